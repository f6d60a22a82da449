/* requires and provides: one table reads both, one comparison joins them. What is not stated is not provided. */
#include "fg_card_sections.h"

#include "fg_card_number.h"

static const char *const MODALITIES[] = {"text", "image", "audio", "video", "file", NULL};
static const char *const REFUSALS[] = {"error", "finish_reason", "text", "answer", NULL};
#define FINISH_WORD(n, N, w) #w,
static const char *const FINISHES[] = {FG_FINISH_MAP(FINISH_WORD) NULL};

typedef struct key_row { const char *section, *key, *full; uint32_t compare, side; } key_row;

#define FG_SECTION_ROW(NAME, section, key, compare, side) {section, key, section "." key, FG_COMPARE_##compare, FG_SIDE_##side},
static const key_row KEYS[FG_KEY_COUNT] = {FG_SECTION_KEYS(FG_SECTION_ROW)};
static const char *const SECTIONS[] = {"data", "economics", "input", "operations", "output", "quality", "safety", "tools"};
static const char *const MODEL_SECTIONS[] = {"input", "output", "quality", "tools"}; /* what the same model decides alike elsewhere */

const char *fg_sections_name(uint32_t key) {
  return KEYS[key].full;
}

/* ----------------------------------------------------------------- reading */

static int whole(fg_card *c, const cJSON *node, int64_t min, int64_t max) {
  const fg_field f = {.min = min, .max = max};
  int64_t value;
  return fg_read_int(c, node, &f, &value);
}

static int text(fg_card *c, const cJSON *node, uint32_t max) {
  fg_pstr unused;
  return fg_read_text(c, node, max, &unused);
}

static int flag(fg_card *c, const cJSON *node) {
  return cJSON_IsBool(node) || FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(node), "; write true or false");
}

static int word(fg_card *c, const cJSON *node, const char *const *words) {
  uint32_t value;
  return fg_read_word(c, node, words, &value);
}

static int words(fg_card *c, const cJSON *node, const char *const *list) {
  uint32_t bits;
  return fg_read_words(c, node, list, &bits);
}

/* A list of texts, none twice. */
static int texts(fg_card *c, const cJSON *node, uint32_t most) {
  uint32_t i = 0;
  if (!fg_read_type(c, node, FG_ARRAY)) {
    return 0;
  }
  for (const cJSON *e = node->child; e != NULL; e = e->next, i++) {
    fg_card_push_index(c, i);
    if (i == most) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "at most ", fg_card_number_text(c, most, 0), " are allowed here");
    }
    if (!text(c, e, FG_NAME_MAX)) {
      return 0;
    }
    for (const cJSON *before = node->child; before != e; before = before->next) {
      if (strcmp(before->valuestring, e->valuestring) == 0) {
        return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, e->valuestring), " is listed twice; leave one out");
      }
    }
    fg_card_pop(c);
  }
  return 1;
}

static int price_max(fg_card *c, const cJSON *node) {
  static const fg_field PRICE[] = {
      {.name = "input", .kind = FG_FIELD_MONEY, .offset = 0, .max = (int64_t)1000000 * 1000000000},
      {.name = "cached_input", .kind = FG_FIELD_MONEY, .offset = 8, .max = (int64_t)1000000 * 1000000000},
      {.name = "output", .kind = FG_FIELD_MONEY, .offset = 16, .max = (int64_t)1000000 * 1000000000},
  };
  int64_t price[3];
  return FG_READ(c, node, PRICE, price, NULL);
}

static int check_value(fg_card *c, uint32_t key, const cJSON *node) {
  enum { BIG = 1000000000 };
  int64_t money;
  switch (key) {
  case FG_KEY_DATA_CLASSES:
  case FG_KEY_DATA_REGIONS:
    return texts(c, node, 64);
  case FG_KEY_INPUT_LANGUAGES:
  case FG_KEY_SAFETY_STOP_RULES:
  case FG_KEY_TOOLS_NAMES:
    return texts(c, node, FG_TOOLS_MAX);
  case FG_KEY_INPUT_MODALITIES:
    return words(c, node, MODALITIES);
  case FG_KEY_OUTPUT_FINISH:
    return words(c, node, FINISHES);
  case FG_KEY_OUTPUT_REFUSAL:
    return word(c, node, REFUSALS);
  case FG_KEY_DATA_RETENTION:
    return whole(c, node, 0, 36500);
  case FG_KEY_QUALITY_DROP:
  case FG_KEY_QUALITY_SCORE:
    return whole(c, node, 0, 1000000);
  case FG_KEY_DATA_ISOLATION:
  case FG_KEY_OUTPUT_TRUNCATION:
  case FG_KEY_SAFETY_FILTER:
  case FG_KEY_SAFETY_HIGH_RISK:
  case FG_KEY_ECONOMICS_QUOTA_OWNER:
    return text(c, node, FG_NAME_MAX);
  case FG_KEY_QUALITY_FIXTURES:
    return text(c, node, 128);
  case FG_KEY_OPERATIONS_STATUS_PAGE:
    return cJSON_IsString(node) ? text(c, node, 512) : flag(c, node);
  case FG_KEY_ECONOMICS_PRICE_MAX:
    return price_max(c, node);
  case FG_KEY_ECONOMICS_SPEND:
    return fg_read_money(c, node, 0, INT64_MAX / 8, &money);
  case FG_KEY_OUTPUT_SCHEMA:
    return fg_read_type(c, node, FG_OBJECT); /* compiled with its workflow */
  default:
    break;
  }
  if (KEYS[key].compare == FG_COMPARE_SIZE || KEYS[key].compare == FG_COMPARE_CAP || KEYS[key].compare == FG_COMPARE_RESULT) {
    return whole(c, node, 1, BIG);
  }
  return flag(c, node);
}

static int bad_key(fg_card *c, const char *key, uint32_t first, uint32_t end, uint32_t side) {
  const char *near = first < end ? fg_card_nearest(key, &KEYS[first].key, end - first, sizeof *KEYS)
                                 : fg_card_nearest(key, SECTIONS, (uint32_t)FG_ARRAY_LEN(SECTIONS), sizeof *SECTIONS);
  if (near != NULL && strcmp(near, key) == 0) {
    return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, side == FG_SIDE_REQUIRES ? "only a route's provides states this; move it there"
                                                                   : "only a workflow's requires states this; move it there");
  }
  if (near != NULL) {
    return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, "no such key here; did you mean ", fg_card_quote(c, near), "?");
  }
  return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, first < end ? "no such key in this section; remove it" : "no such section; write one of data, economics, input, operations, output, quality, safety, tools");
}

static int again(fg_card *c) {
  return fg_card_fail_parts(c, FG_LOAD_DUPLICATE_KEY, 1, (const char *const[]){"this key is already given above; leave one out", NULL});
}

static int read_section(fg_card *c, const cJSON *node, uint32_t first, uint32_t side, fg_sections *out) {
  uint32_t end = first;
  while (end < FG_KEY_COUNT && KEYS[end].section == KEYS[first].section) {
    end++;
  }
  if (!fg_read_type(c, node, FG_OBJECT)) {
    return 0;
  }
  for (const cJSON *m = node->child; m != NULL; m = m->next) {
    uint32_t key = first;
    while (key < end && (strcmp(KEYS[key].key, m->string) != 0 || !(KEYS[key].side & side))) {
      key++;
    }
    fg_card_push(c, m->string);
    if (key == end) {
      return bad_key(c, m->string, first, end, side);
    }
    if (out->value[key] != NULL) {
      return again(c);
    }
    if (!check_value(c, key, m)) {
      return 0;
    }
    out->value[key] = m;
    fg_card_pop(c);
  }
  return 1;
}

int fg_sections_read(fg_card *c, const cJSON *node, uint32_t side, fg_sections *out) {
  uint32_t seen = 0;
  memset(out, 0, sizeof *out);
  for (const cJSON *m = node != NULL ? node->child : NULL; m != NULL; m = m->next) {
    uint32_t s = 0, first = 0;
    while (s < FG_ARRAY_LEN(SECTIONS) && strcmp(SECTIONS[s], m->string) != 0) {
      s++;
    }
    fg_card_push(c, m->string);
    if (s == FG_ARRAY_LEN(SECTIONS)) {
      return bad_key(c, m->string, 0, 0, side);
    }
    if (seen & 1U << s) {
      return again(c);
    }
    seen |= 1U << s;
    while (strcmp(KEYS[first].section, SECTIONS[s]) != 0) {
      first++;
    }
    if (!read_section(c, m, first, side, out)) {
      return 0;
    }
    if (strcmp(m->string, "tools") == 0) {
      out->tools_given = m->child != NULL;
    }
    fg_card_pop(c);
  }
  return 1;
}

int fg_sections_not_empty(fg_card *c, const cJSON *list, const char *section, const char *key) {
  if (list == NULL || list->child != NULL) {
    return 1;
  }
  fg_card_push(c, section);
  fg_card_push(c, key);
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, "an empty list allows nothing; list what is allowed or leave the key out");
}

/* -------------------------------------------------------------- comparison */

static int64_t number_of(uint32_t key, const cJSON *node) {
  int64_t value = 0;
  if (cJSON_IsString(node)) {
    fg_number_text(node->valuestring, (uint32_t)strlen(node->valuestring), FG_DECIMALS_MONEY, &value);
  } else {
    fg_number_scaled(node, key == FG_KEY_ECONOMICS_SPEND ? FG_DECIMALS_MONEY : 0, &value);
  }
  return value;
}

static int listed(const cJSON *list, const char *what) {
  for (const cJSON *e = list->child; e != NULL; e = e->next) {
    if (strcmp(e->valuestring, what) == 0) {
      return 1;
    }
  }
  return 0;
}

static int all_listed(const cJSON *inner, const cJSON *outer, int any) {
  if (any && listed(outer, "*")) {
    return 1;
  }
  for (const cJSON *e = inner->child; e != NULL; e = e->next) {
    if (!listed(outer, e->valuestring)) {
      return 0;
    }
  }
  return 1;
}

static int same(const cJSON *a, const cJSON *b) {
  if (cJSON_IsBool(a)) {
    return cJSON_IsTrue(a) == cJSON_IsTrue(b);
  }
  return strcmp(a->valuestring, b->valuestring) == 0;
}

static int price_holds(const cJSON *max, const fg_policy_route *r) {
  for (const cJSON *m = max->child; m != NULL; m = m->next) {
    int64_t price = m->string[0] == 'i' ? r->price_input : m->string[0] == 'c' ? r->price_cached : r->price_output;
    if (price == FG_PRICE_UNKNOWN || price > number_of(FG_KEY_ECONOMICS_SPEND, m)) {
      return 0;
    }
  }
  return 1;
}

static int holds(uint32_t key, const cJSON *r, const cJSON *p, const fg_policy_route *route) {
  switch (KEYS[key].compare) {
  case FG_COMPARE_SIZE:
    return p != NULL && number_of(key, p) >= number_of(key, r);
  case FG_COMPARE_CAP:
    return p != NULL && number_of(key, p) <= number_of(key, r);
  case FG_COMPARE_ABILITY:
    return cJSON_IsFalse(r) || (p != NULL && !cJSON_IsFalse(p));
  case FG_COMPARE_HAS:
    return r->child == NULL || (p != NULL && all_listed(r, p, key == FG_KEY_TOOLS_NAMES));
  case FG_COMPARE_ONLY:
    return p != NULL && p->child != NULL && all_listed(p, r, 0);
  case FG_COMPARE_SAME:
    return p != NULL && same(r, p);
  case FG_COMPARE_PRICE:
    return price_holds(r, route);
  default:
    return 1; /* granted, noted, or compared with the evidence */
  }
}

static int models_own(const char *section) {
  for (uint32_t i = 0; i < FG_ARRAY_LEN(MODEL_SECTIONS); i++) {
    if (strcmp(MODEL_SECTIONS[i], section) == 0) {
      return 1;
    }
  }
  return 0;
}

uint32_t fg_sections_compare(const fg_sections *requires, const fg_sections *provides, const fg_policy_route *route, uint32_t twin) {
  for (uint32_t key = 0; key < FG_KEY_COUNT; key++) {
    if (requires->value[key] == NULL || (twin && models_own(KEYS[key].section))) {
      continue;
    }
    if (!holds(key, requires->value[key], provides->value[key], route)) {
      return key;
    }
  }
  return FG_KEY_COUNT;
}
