/* The table reader: values and objects of a card by the tables of its parts, and the names it has defined. */
#include "fg_card_read.h"

#include "fg_card_number.h"
#include "fg_math.h"

/* ------------------------------------------------------------------ values */

static int wrong_type(fg_card *c, const cJSON *node, const char *want) {
  return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(node), "; write ", want);
}

int fg_read_type(fg_card *c, const cJSON *node, uint32_t flags) {
  if (flags & FG_OBJECT && !cJSON_IsObject(node)) {
    return wrong_type(c, node, "an object, {...}");
  }
  if (flags & FG_ARRAY && !cJSON_IsArray(node)) {
    return wrong_type(c, node, "a list, [...]");
  }
  return 1;
}

static int scaled(fg_card *c, int32_t got, uint32_t decimals) {
  if (got == FG_NUMBER_OK) {
    return 1;
  }
  if (got == FG_NUMBER_TOO_BIG) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the number has too many digits to be exact; write a smaller one",
                   decimals == FG_DECIMALS_MONEY ? ", or a text such as \"1000000.5\"" : "");
  }
  if (got == FG_NUMBER_BAD) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not a plain decimal; write digits with at most one point, such as \"0.08\"");
  }
  if (decimals == 0) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not a whole number; write an integer");
  }
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not exact; write at most ", fg_card_number_text(c, decimals, 0), " decimals and 15 digits");
}

static int in_range(fg_card *c, int64_t value, int64_t min, int64_t max, uint32_t decimals) {
  if (value >= min && value <= max) {
    return 1;
  }
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_number_text(c, value, decimals), " is out of range; write ",
                 fg_card_number_text(c, min, decimals), " to ", fg_card_number_text(c, max, decimals));
}

int fg_read_int(fg_card *c, const cJSON *node, const fg_field *f, int64_t *out) {
  if (!cJSON_IsNumber(node)) {
    return wrong_type(c, node, f->decimals > 0 ? "a number" : "an integer");
  }
  return scaled(c, fg_number_scaled(node, f->decimals, out), f->decimals) && in_range(c, *out, f->min, f->max, f->decimals);
}

int fg_read_money(fg_card *c, const cJSON *node, int64_t min, int64_t max, int64_t *out) {
  int32_t got;
  if (cJSON_IsNumber(node)) {
    got = fg_number_scaled(node, FG_DECIMALS_MONEY, out);
  } else if (cJSON_IsString(node)) {
    got = fg_number_text(node->valuestring, (uint32_t)strlen(node->valuestring), FG_DECIMALS_MONEY, out);
  } else {
    return wrong_type(c, node, "US dollars as a number or a text, such as 0.08");
  }
  return scaled(c, got, FG_DECIMALS_MONEY) && in_range(c, *out, min, max, FG_DECIMALS_MONEY);
}

static int no_control(fg_card *c, const char *text) {
  for (const char *s = text; *s != 0; s++) {
    if ((uint8_t)*s < 0x20 || *s == 0x7F) {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, "control characters do not belong here; write printable text");
    }
  }
  return 1;
}

int fg_read_text(fg_card *c, const cJSON *node, uint32_t max, fg_pstr *out) {
  if (!cJSON_IsString(node)) {
    return wrong_type(c, node, "a text");
  }
  size_t len = strlen(node->valuestring);
  if (len == 0) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the text is empty; write something or leave the key out");
  }
  if (len > max) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "the text has ", fg_card_number_text(c, (int64_t)len, 0), " bytes; at most ",
                   fg_card_number_text(c, max, 0), " are allowed");
  }
  if (max <= 1024 && !no_control(c, node->valuestring)) {
    return 0;
  }
  *out = fg_block_text(&c->block, node->valuestring, (uint32_t)len);
  return c->block.failed ? fg_card_nomem(c) : 1;
}

int fg_read_name_ok(fg_card *c, const char *name) {
  size_t len = strlen(name);
  if (len == 0) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the name is empty; write one");
  }
  if (len > FG_NAME_MAX) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "the name has ", fg_card_number_text(c, (int64_t)len, 0), " bytes; at most 64 are allowed");
  }
  return no_control(c, name);
}

static uint32_t word_count(const char *const *words) {
  uint32_t n = 0;
  while (words[n] != NULL) {
    n++;
  }
  return n;
}

static int unknown_word(fg_card *c, const char *text, const char *const *words) {
  uint32_t count = word_count(words);
  const char *near = fg_card_nearest(text, words, count, sizeof *words);
  if (near != NULL) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, text), " is not known here; did you mean ", fg_card_quote(c, near), "?");
  }
  char list[160];
  if (!fg_card_word_list(words, count, sizeof *words, list, sizeof list)) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, text), " is not known here; the card's reference lists the words");
  }
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, text), " is not known here; write one of ", list);
}

int fg_read_word(fg_card *c, const cJSON *node, const char *const *words, uint32_t *out) {
  if (!cJSON_IsString(node)) {
    return wrong_type(c, node, "a word");
  }
  for (uint32_t i = 0; words[i] != NULL; i++) {
    if (strcmp(words[i], node->valuestring) == 0) {
      *out = i;
      return 1;
    }
  }
  return unknown_word(c, node->valuestring, words);
}

int fg_read_words(fg_card *c, const cJSON *node, const char *const *words, uint32_t *bits) {
  if (!fg_read_type(c, node, FG_ARRAY)) {
    return 0;
  }
  uint32_t i = 0, word = 0;
  *bits = 0;
  for (const cJSON *e = node->child; e != NULL; e = e->next, i++) {
    fg_card_push_index(c, i);
    if (!fg_read_word(c, e, words, &word)) {
      return 0;
    }
    if (*bits & 1U << word) {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, words[word]), " is listed twice; leave one out");
    }
    *bits |= 1U << word;
    fg_card_pop(c);
  }
  return 1;
}

/* ----------------------------------------------------------------- objects */

static int read_field(fg_card *c, const cJSON *node, const fg_field *f, void *out) {
  void *at = (char *)out + f->offset;
  uint32_t word = 0;
  int64_t value = 0;
  if (f->flags & FG_NULL && cJSON_IsNull(node)) {
    value = f->none;
  } else {
    switch (f->kind) {
    case FG_FIELD_INT:
    case FG_FIELD_LONG:
      if (!fg_read_int(c, node, f, &value)) {
        return 0;
      }
      break;
    case FG_FIELD_MONEY:
      if (!fg_read_money(c, node, f->min, f->max, &value)) {
        return 0;
      }
      break;
    case FG_FIELD_BOOL:
      if (!cJSON_IsBool(node)) {
        return wrong_type(c, node, "true or false");
      }
      value = cJSON_IsTrue(node) ? 1 : 0;
      break;
    case FG_FIELD_WORD:
      if (!fg_read_word(c, node, f->words, &word)) {
        return 0;
      }
      value = word;
      break;
    case FG_FIELD_DATE:
      if (!cJSON_IsString(node)) {
        return wrong_type(c, node, "a date such as \"2027-02-01T00:00:00Z\"");
      }
      if (fg_number_date(node->valuestring, (uint32_t)strlen(node->valuestring), &value) != FG_NUMBER_OK) {
        return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not a date; write one such as \"2027-02-01T00:00:00Z\"");
      }
      break;
    case FG_FIELD_TEXT:
      return fg_read_text(c, node, (uint32_t)f->max, at);
    case FG_FIELD_NODE:
      memcpy(at, &node, sizeof node);
      return fg_read_type(c, node, f->flags);
    default:
      return f->read(c, node, at);
    }
  }
  if (f->kind == FG_FIELD_INT || f->kind == FG_FIELD_BOOL || f->kind == FG_FIELD_WORD) {
    word = (uint32_t)value;
    memcpy(at, &word, sizeof word);
  } else if (f->kind == FG_FIELD_LONG || f->kind == FG_FIELD_MONEY || f->kind == FG_FIELD_DATE) {
    memcpy(at, &value, sizeof value);
  }
  return 1;
}

static int unknown_key(fg_card *c, const cJSON *member, const fg_field *fields, uint32_t count) {
  const char *near = fg_card_nearest(member->string, &fields->name, count, sizeof *fields);
  fg_card_push(c, member->string);
  if (near != NULL) {
    return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, "no such key here; did you mean ", fg_card_quote(c, near), "?");
  }
  char list[150];
  if (!fg_card_word_list(&fields->name, count, sizeof *fields, list, sizeof list)) {
    return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, "no such key here; remove it (the card's reference lists the keys)");
  }
  return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, "no such key here; remove it, or write one of ", list);
}

int fg_read_object(fg_card *c, const cJSON *node, const fg_field *fields, uint32_t count, void *out, uint64_t *seen) {
  uint64_t have = 0;
  uint32_t next = 0; /* keys mostly come in the table's order */
  if (!fg_read_type(c, node, FG_OBJECT)) {
    return 0;
  }
  for (const cJSON *m = node->child; m != NULL; m = m->next) {
    uint32_t i = 0, at = next;
    for (; i < count; i++, at = at + 1 < count ? at + 1 : 0) {
      if (strcmp(fields[at].name, m->string) == 0) {
        break;
      }
    }
    if (i == count) {
      return unknown_key(c, m, fields, count);
    }
    next = at + 1 < count ? at + 1 : 0;
    fg_card_push(c, m->string);
    if (have & (uint64_t)1 << at) {
      return fg_card_fail_parts(c, FG_LOAD_DUPLICATE_KEY, 1,
                                (const char *const[]){"this key is already given above; leave one out", NULL});
    }
    have |= (uint64_t)1 << at;
    if (!read_field(c, m, &fields[at], out)) {
      return 0;
    }
    fg_card_pop(c);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (fields[i].flags & FG_MUST && !(have & (uint64_t)1 << i)) {
      fg_card_push(c, fields[i].name);
      return FG_FAIL(c, FG_LOAD_MISSING, "this key is required; add it");
    }
  }
  if (seen != NULL) {
    *seen = have;
  }
  return 1;
}

/* ------------------------------------------------------------------- names */

uint64_t fg_card_hash(const char *text, uint32_t len) {
  uint64_t h = fg_hash64(0, text, len);
  return h != 0 ? h : 1;
}

void fg_card_index_add(fg_index *x, uint64_t hash, uint32_t id) {
  uint32_t at = (uint32_t)hash & x->mask;
  while (x->slot[at].id != 0) {
    at = (at + 1) & x->mask;
  }
  x->slot[at].hash = hash;
  x->slot[at].id = id;
}

static uint32_t find(const fg_card *c, const fg_index *x, const void *names, uint32_t stride, const char *name) {
  if (x->slot == NULL) {
    return 0;
  }
  uint32_t len = (uint32_t)strlen(name);
  uint64_t hash = fg_card_hash(name, len);
  for (uint32_t at = (uint32_t)hash & x->mask; x->slot[at].id != 0; at = (at + 1) & x->mask) {
    fg_pstr s;
    memcpy(&s, (const char *)names + (uint64_t)(x->slot[at].id - 1) * stride, sizeof s);
    if (x->slot[at].hash == hash && fg_eq(c->block.ptr + s.off, s.len, name, len)) {
      return x->slot[at].id;
    }
  }
  return 0;
}

uint32_t fg_card_find_account(const fg_card *c, const char *name) {
  return find(c, &c->account_index, c->account, sizeof *c->account, name);
}

uint32_t fg_card_find_route(const fg_card *c, const char *name) {
  return find(c, &c->route_index, c->block.ptr + c->head.routes_off, sizeof(fg_policy_route), name);
}

uint32_t fg_card_find_workflow(const fg_card *c, const char *name) {
  return find(c, &c->workflow_index, c->block.ptr + c->head.workflows_off, sizeof(fg_policy_workflow), name);
}
