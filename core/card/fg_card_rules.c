/* `classify`: a card's own rules, in the form of the built-in ones. */
#include "fg_card_number.h"
#include "fg_card_read.h"
#include "fg_rules.h"

enum { TEXT_MAX = 1024, LIST_MAX = 32 };

#define WIRE_WORD(n, N, w) #w,
static const char *const OWNERS[] = {FG_OWNER_MAP(WIRE_WORD) NULL};
static const char *const KINDS[] = {FG_KIND_MAP(WIRE_WORD) NULL};
static const char *const CLASSES[] = {FG_CLASS_MAP(WIRE_WORD) NULL};
static const char *const SCOPES[] = {FG_SCOPE_MAP(WIRE_WORD) NULL};
static const char *const PERIODS[] = {FG_PERIOD_MAP(WIRE_WORD) NULL};
static const char *const BILLED[] = {FG_BILLED_MAP(WIRE_WORD) NULL};
static const char *const COMMITS[] = {FG_COMMIT_MAP(WIRE_WORD) NULL};
static const char *const REPAIRS[] = {FG_REPAIR_MAP(WIRE_WORD) NULL};
static const char *const PHASES[] = {FG_PHASE_MAP(WIRE_WORD) NULL};

/* -------------------------------------------------------------------- when */

static int append(fg_card *c, char *buf, uint32_t *len, const char *text, char joint, int words) {
  uint32_t at = *len, fresh = 1;
  if (at > 0) {
    buf[at++] = joint;
  }
  for (const char *s = text; *s != 0; s++) {
    char ch = *s;
    if (ch == '|' || ch == '&') {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, "| and & separate alternatives and cannot be part of a text; write a list");
    }
    if (words) { /* words in any case and order: joined by & */
      ch = fg_lower(ch);
      if (fg_is_space(ch)) {
        fresh = 1;
        continue;
      }
      if (fresh && at > *len + (*len > 0)) {
        buf[at++] = '&';
      }
      fresh = 0;
    }
    if (at + 2 > TEXT_MAX) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "at most 1024 bytes are allowed here");
    }
    buf[at++] = ch;
  }
  if (at == *len + (*len > 0)) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the text is empty; write something or leave it out");
  }
  *len = at;
  return 1;
}

/* One text or a list of alternatives, joined by '|'. message: one text -> its words joined by '&'; a list -> its phrases joined by '&'. */
static int read_alternatives(fg_card *c, const cJSON *node, fg_rtext *out, int message) {
  char buf[TEXT_MAX + 4];
  uint32_t len = 0, i = 0;
  if (cJSON_IsString(node)) {
    if (!append(c, buf, &len, node->valuestring, '|', message)) {
      return 0;
    }
  } else if (!cJSON_IsArray(node)) {
    return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(node), "; write a text or a list of texts");
  } else {
    if (node->child == NULL) {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, "an empty list matches nothing; list texts or leave the key out");
    }
    for (const cJSON *e = node->child; e != NULL; e = e->next) {
      fg_card_push_index(c, i);
      if (i++ == LIST_MAX) {
        return FG_FAIL(c, FG_LOAD_LIMIT, "at most 32 texts are allowed here");
      }
      if (!cJSON_IsString(e)) {
        return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(e), "; write a text");
      }
      uint32_t from = len;
      if (!append(c, buf, &len, e->valuestring, message ? '&' : '|', 0)) {
        return 0;
      }
      for (uint32_t k = from; message && k < len; k++) {
        buf[k] = fg_lower(buf[k]);
      }
      fg_card_pop(c);
    }
  }
  fg_pstr s = fg_block_text(&c->block, buf, len);
  out->off = s.off;
  out->len = s.len;
  return c->block.failed ? fg_card_nomem(c) : 1;
}

static int read_texts(fg_card *c, const cJSON *node, void *out) {
  return read_alternatives(c, node, out, 0);
}

static int read_message(fg_card *c, const cJSON *node, void *out) {
  return read_alternatives(c, node, out, 1);
}

/* Codes are texts or numbers: providers use both. */
static int read_code(fg_card *c, const cJSON *node, void *out) {
  char number[32];
  if (!cJSON_IsNumber(node)) {
    return read_alternatives(c, node, out, 0);
  }
  uint32_t len = fg_number_canonical(node, number);
  if (len == 0) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not exact; write the code as a text");
  }
  fg_pstr s = fg_block_text(&c->block, number, len);
  memcpy(out, &s, sizeof s);
  return c->block.failed ? fg_card_nomem(c) : 1;
}

static int read_one_status(fg_card *c, const cJSON *node, uint16_t *out) {
  static const fg_field STATUS = {.min = 100, .max = 999};
  int64_t value = 0;
  if (cJSON_IsString(node)) {
    const char *s = node->valuestring;
    if (strlen(s) == 3 && s[0] >= '1' && s[0] <= '9' && s[1] == 'x' && s[2] == 'x') {
      *out = (uint16_t)(s[0] - '0');
      return 1;
    }
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, s), " is no status; write a number, a list of numbers, or a class such as \"5xx\"");
  }
  if (!fg_read_int(c, node, &STATUS, &value)) {
    return 0;
  }
  *out = (uint16_t)value;
  return 1;
}

static int read_status(fg_card *c, const cJSON *node, void *out) {
  uint16_t *status = out;
  uint32_t i = 0;
  if (!cJSON_IsArray(node)) {
    return read_one_status(c, node, status);
  }
  if (node->child == NULL) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "an empty list matches nothing; list statuses or leave the key out");
  }
  for (const cJSON *e = node->child; e != NULL; e = e->next, i++) {
    fg_card_push_index(c, i);
    if (i == FG_RULE_STATUS_MAX) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "at most 8 statuses are allowed; write two rules");
    }
    if (!read_one_status(c, e, &status[i])) {
      return 0;
    }
    fg_card_pop(c);
  }
  return 1;
}

static int read_phase(fg_card *c, const cJSON *node, void *out) {
  uint32_t bits = 0;
  if (cJSON_IsArray(node)) {
    if (!fg_read_words(c, node, PHASES, &bits)) {
      return 0;
    }
  } else if (!fg_read_word(c, node, PHASES, &bits)) {
    return 0;
  } else {
    bits = 1U << bits;
  }
  memcpy(out, &bits, sizeof bits);
  return 1;
}

static int read_header(fg_card *c, const cJSON *node, void *out) {
  fg_rule *r = out;
  uint32_t i = 0;
  if (!fg_read_type(c, node, FG_OBJECT)) {
    return 0;
  }
  for (const cJSON *m = node->child; m != NULL; m = m->next, i++) {
    char name[TEXT_MAX + 4];
    uint32_t len = 0;
    fg_card_push(c, m->string);
    if (i == FG_RULE_HEADER_MAX) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "at most 2 headers are allowed; write two rules");
    }
    if (strlen(m->string) > FG_NAME_MAX || !append(c, name, &len, m->string, '|', 0)) {
      return c->code != FG_OK ? 0 : FG_FAIL(c, FG_LOAD_LIMIT, "a header's name has at most 64 bytes");
    }
    for (uint32_t k = 0; k < len; k++) {
      name[k] = fg_lower(name[k]);
    }
    fg_pstr s = fg_block_text(&c->block, name, len);
    r->header[i].off = s.off;
    r->header[i].len = s.len;
    if (i == 1 && r->header[0].off == s.off) {
      return fg_card_fail_parts(c, FG_LOAD_DUPLICATE_KEY, 1, (const char *const[]){"this header is already given above; leave one out", NULL});
    }
    if (cJSON_IsFalse(m)) {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, "a rule cannot ask for a header's absence; write true or a text");
    }
    if (!cJSON_IsTrue(m) && !read_alternatives(c, m, &r->header_value[i], 0)) {
      return 0;
    }
    fg_card_pop(c);
  }
  return c->block.failed ? fg_card_nomem(c) : 1;
}

#define AT(field) (uint32_t)offsetof(fg_rule, field)
#define CALL(key, field, fn) {.name = key, .kind = FG_FIELD_CALL, .offset = AT(field), .read = fn}
enum { WHEN_MESSAGE = 7 };
static const fg_field WHEN[] = {
    CALL("provider", provider, read_texts), CALL("api", api, read_texts),   CALL("phase", phases, read_phase), CALL("status", status, read_status),
    CALL("code", code, read_code),          CALL("type", type, read_code),  CALL("error", error, read_code),   [WHEN_MESSAGE] = CALL("message", message, read_message),
    CALL("header", provider, read_header),  CALL("lib", lib, read_texts),   CALL("kind", kind, read_texts),
};
#undef CALL

/* -------------------------------------------------------------------- then */

typedef struct then_in {
  uint32_t owner, kind, klass, scope, period, billed, commit, repair, overload, trips, should_retry, retry_after;
  fg_pstr why;
} then_in;

#define THEN(field) (uint32_t)offsetof(then_in, field)
#define WORD(key, field, list) {.name = key, .kind = FG_FIELD_WORD, .offset = THEN(field), .words = list}
#define FLAG(key, field) {.name = key, .kind = FG_FIELD_BOOL, .offset = THEN(field)}
static const fg_field RESULT[] = {
    WORD("owner", owner, OWNERS),
    WORD("kind", kind, KINDS),
    WORD("class", klass, CLASSES),
    WORD("scope", scope, SCOPES),
    WORD("period", period, PERIODS),
    WORD("billed", billed, BILLED),
    WORD("commit", commit, COMMITS),
    WORD("repair", repair, REPAIRS),
    FLAG("overload", overload),
    FLAG("trips_breaker", trips),
    FLAG("should_retry", should_retry),
    {.name = "retry_after_ms", .kind = FG_FIELD_INT, .offset = THEN(retry_after), .min = 0, .max = 604800000},
    {.name = "why", .kind = FG_FIELD_TEXT, .offset = THEN(why), .max = 200},
};

static int read_then(fg_card *c, const cJSON *node, fg_rule *r) {
  then_in in;
  uint64_t seen = 0;
  memset(&in, 0, sizeof in);
  if (!FG_READ(c, node, RESULT, &in, &seen)) {
    return 0;
  }
  if ((seen & ~((uint64_t)1 << (FG_ARRAY_LEN(RESULT) - 1))) == 0) {
    return FG_FAIL(c, FG_LOAD_MISSING, "the rule sets nothing; add an owner or another field of a failure");
  }
  const struct { uint16_t *to; uint32_t value; } SET[] = {
      {&r->set_owner, in.owner},       {&r->set_kind, in.kind},         {&r->set_class, in.klass},   {&r->set_scope, in.scope},
      {&r->set_period, in.period},     {&r->set_billed, in.billed},     {&r->set_commit, in.commit}, {&r->set_repair, in.repair},
      {&r->set_overload, in.overload}, {&r->set_trips_breaker, in.trips}, {&r->set_should_retry, in.should_retry}};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(SET); i++) {
    *SET[i].to = seen & (uint64_t)1 << i ? (uint16_t)(SET[i].value + 1) : 0;
  }
  r->has_retry_after = (seen >> FG_ARRAY_LEN(SET)) & 1;
  r->retry_after_ms = in.retry_after;
  if (in.why.len == 0) {
    static const char WHY[] = "a rule of the card";
    in.why = fg_block_text(&c->block, WHY, sizeof WHY - 1);
  }
  r->why.off = in.why.off;
  r->why.len = in.why.len;
  return c->block.failed ? fg_card_nomem(c) : 1;
}

/* ------------------------------------------------------------------- rules */

typedef struct rule_in { const cJSON *when, *then; } rule_in;

static int read_rule(fg_card *c, const cJSON *node, fg_rule *r) {
  static const fg_field RULE[] = {
      {.name = "when", .kind = FG_FIELD_NODE, .flags = FG_MUST | FG_OBJECT, .offset = (uint32_t)offsetof(rule_in, when)},
      {.name = "then", .kind = FG_FIELD_NODE, .flags = FG_MUST | FG_OBJECT, .offset = (uint32_t)offsetof(rule_in, then)},
  };
  rule_in in = {NULL, NULL};
  uint64_t seen = 0;
  if (!FG_READ(c, node, RULE, &in, NULL)) {
    return 0;
  }
  fg_card_push(c, "when");
  for (const cJSON *m = in.when->child; m != NULL; m = m->next) { /* header fills several fields of the rule */
    if (strcmp(m->string, "header") == 0 && m->child == NULL && cJSON_IsObject(m)) {
      fg_card_push(c, "header");
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, "an empty object asks for nothing; name a header or leave the key out");
    }
  }
  if (!FG_READ(c, in.when, WHEN, r, &seen)) {
    return 0;
  }
  if (seen == 0) {
    return FG_FAIL(c, FG_LOAD_MISSING, "the rule would match everything; add a condition such as status or code");
  }
  if (seen == 1U << WHEN_MESSAGE) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "prose alone is no proof; add a provider, a status or another condition");
  }
  fg_card_pop(c);
  fg_card_push(c, "then");
  if (!read_then(c, in.then, r)) {
    return 0;
  }
  fg_card_pop(c);
  return 1;
}

int fg_card_classify(fg_card *c) {
  uint32_t count = c->classify != NULL ? (uint32_t)cJSON_GetArraySize(c->classify) : 0, i = 0;
  fg_card_push(c, "classify");
  if (count > FG_CARD_RULES) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "at most 256 rules are allowed");
  }
  c->head.rule_count = count;
  c->head.rules_off = fg_block_reserve(&c->block, count * (uint64_t)sizeof(fg_rule));
  for (const cJSON *e = count > 0 ? c->classify->child : NULL; e != NULL; e = e->next, i++) {
    fg_rule r;
    memset(&r, 0, sizeof r);
    fg_card_push_index(c, i);
    if (!read_rule(c, e, &r)) {
      return 0;
    }
    memcpy((fg_rule *)fg_block_at(&c->block, c->head.rules_off) + i, &r, sizeof r);
    fg_card_pop(c);
  }
  fg_card_pop(c);
  return c->block.failed ? fg_card_nomem(c) : 1;
}
