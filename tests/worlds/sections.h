/* The cards of world_sections: one workflow that requires something of all eight sections, a primary p, a stand-in x with at most one
 * fault, a sound stand-in g; and the request that is asked of them. */
#ifndef FG_WORLD_SECTIONS_H
#define FG_WORLD_SECTIONS_H

#include "world.h"

enum { ROUTE_X = 2, ROUTE_G = 3, CARD_MAX = 16384 };

/* ------------------------------------------------------------------ the keys */

enum asks { ASKS_NOTHING, ASKS_PROMPT, ASKS_OUTPUT, ASKS_TOOLS, ASKS_CLASS, ASKS_REGION, ASKS_FEATURE };

/* What the workflow requires, what is enough, what is too little. asks: how a request alone can need it. Of a section the first row is
 * walked to the full depth. */
typedef struct row { const char *section, *key, *requires, *good, *little; uint32_t asks, feature; } row;

static const row ROWS[] = {
    {"input", "context_tokens", "16000", "20000", "15999", ASKS_PROMPT, 0},
    {"input", "request_bytes", "1000", "1000", "999", 0, 0},
    {"input", "modalities", "[\"text\",\"image\"]", "[\"image\",\"text\"]", "[\"text\"]", ASKS_FEATURE, FG_FEATURE_IMAGE},
    {"input", "languages", "[\"en\",\"zh\"]", "[\"en\",\"zh\",\"de\"]", "[\"en\"]", 0, 0},
    {"input", "system_prompt", "true", "true", "false", ASKS_FEATURE, FG_FEATURE_SYSTEM_PROMPT},
    {"input", "prefill", "true", "true", "false", ASKS_FEATURE, FG_FEATURE_PREFILL},
    {"output", "max_tokens", "1000", "1000", "999", ASKS_OUTPUT, 0},
    {"output", "max_tokens_whole", "1000", "1001", "999", 0, 0},
    {"output", "json_schema", "true", "true", "false", ASKS_FEATURE, FG_FEATURE_JSON_SCHEMA},
    {"output", "finish_reasons", "[\"stop\",\"length\"]", "[\"stop\"]", "[\"stop\",\"pause\"]", 0, 0},
    {"output", "refusal_form", "\"text\"", "\"text\"", "\"error\"", 0, 0},
    {"output", "citations", "true", "true", "false", ASKS_FEATURE, FG_FEATURE_CITATIONS},
    {"output", "truncation", "\"error\"", "\"error\"", "\"silent\"", 0, 0},
    {"output", "reasoning", "true", "true", "false", ASKS_FEATURE, FG_FEATURE_REASONING},
    {"tools", "names", "[\"find\",\"book\"]", "[\"*\"]", "[\"find\"]", ASKS_TOOLS, FG_FEATURE_TOOLS},
    {"tools", "parallel_calls", "true", "true", "false", ASKS_FEATURE, FG_FEATURE_PARALLEL_TOOLS},
    {"tools", "round_trip", "true", "true", "false", ASKS_FEATURE, FG_FEATURE_TOOL_ROUND_TRIP},
    {"tools", "argument_schemas", "true", "true", "false", 0, 0},
    {"tools", "idempotent", "true", "true", "false", 0, 0},
    {"tools", "history_portable", "true", "true", "false", 0, 0},
    {"safety", "filter", "\"strict\"", "\"strict\"", "\"loose\"", 0, 0},
    {"safety", "high_risk", "\"refuse\"", "\"refuse\"", "\"answer\"", 0, 0},
    {"safety", "human_escalation", "true", "true", "false", 0, 0},
    {"safety", "stop_rules", "[\"x\",\"y\"]", "[\"y\",\"x\"]", "[\"x\"]", 0, 0},
    {"data", "regions", "[\"eu\",\"uk\"]", "[\"eu\"]", "[\"eu\",\"us\"]", ASKS_REGION, 0},
    {"data", "classes", "[\"pii\"]", "[\"pii\",\"public\"]", "[\"public\"]", ASKS_CLASS, 0},
    {"data", "retention_days", "30", "30", "31", 0, 0},
    {"data", "training", "false", "false", "true", 0, 0},
    {"data", "tenant_isolation", "\"dedicated\"", "\"dedicated\"", "\"shared\"", 0, 0},
    {"operations", "streaming", "true", "true", "false", ASKS_FEATURE, FG_FEATURE_STREAMING},
    {"operations", "request_id", "true", "true", "false", 0, 0},
    {"operations", "first_token_p95_ms", "900", "900", "901", 0, 0},
    {"operations", "latency_p95_ms", "5000", "10", "5001", 0, 0},
    {"operations", "status_page", "true", "\"https://status.example.com\"", "false", 0, 0},
    {"economics", "cache", "true", "true", "false", 0, 0},
    {"economics", "retry_charged", "false", "false", "true", 0, 0},
    {"economics", "spend_per_day_usd", "10", "\"10.00\"", "9.999999999", 0, 0},
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS, NO_ROW = ROW_COUNT };

/* Faults that no key of provides makes: texts of the faulty stand-in's card entry instead of the sound ones. */
#define PRICE ", \"price\": {\"input\": 2, \"output\": 8}"
#define APPROVED "\"fingerprint\": \"auto\", \"approved_by\": \"ops\""
#define EVIDENCE(...) EVIDENCE_OF(__VA_ARGS__) /* DATES are two */
#define EVIDENCE_OF(fixtures, cases, score, primary, measured, expires)                                                                       \
  ", \"evidence\": {\"fixtures\": \"" fixtures "\", \"cases\": " cases ", \"passed\": 9, \"score_ppm\": " score                            \
  ", \"primary_score_ppm\": " primary ", \"measured_at\": \"" measured "\", \"expires_at\": \"" expires "\"}"
#define DATES "2026-11-01", "2027-02-01"
#define GOOD EVIDENCE("f1", "10", "970000", "980000", DATES)
typedef struct odd {
  const char *name, *price, *approval, *contract; /* approval NULL: no contract */
  uint32_t why, until_ms, deep;                   /* FG_REASON_*; the date, from the start, 0 none; 1: to the full depth */
} odd;
enum { FAILS = FG_REASON_CONTRACT_SECTION_FAILS, MISSING = FG_REASON_MISSING_EVIDENCE, EXPIRED = FG_REASON_CONTRACT_EXPIRED };

static const odd ODDS[] = {
    {"economics.price_max", ", \"price\": {\"input\": 3.000000001, \"output\": 8}", APPROVED, GOOD, FAILS, 0, 1},
    {"economics.price_max of cached tokens", ", \"price\": {\"input\": 2, \"cached_input\": 2.5, \"output\": 8}", APPROVED, GOOD, FAILS, 0, 0},
    {"no price", "", APPROVED, GOOD, FAILS, 0, 1},
    {"another price than the approved", PRICE, APPROVED ", \"price\": {\"input\": 2, \"output\": 9}", GOOD, FG_REASON_CONTRACT_STALE, 0, 1},
    {"quality.cases_min", PRICE, APPROVED, EVIDENCE("f1", "9", "970000", "980000", DATES), FAILS, 0, 0},
    {"quality.fixtures", PRICE, APPROVED, EVIDENCE("f2", "10", "970000", "980000", DATES), FAILS, 0, 0},
    {"quality.max_drop_ppm", PRICE, APPROVED, EVIDENCE("f1", "10", "970000", "980001", DATES), FAILS, 0, 0},
    {"quality.min_score_ppm", PRICE, APPROVED, EVIDENCE("f1", "10", "969999", "969999", DATES), FAILS, 0, 1},
    {"no evidence", PRICE, APPROVED, "", MISSING, 0, 1},
    {"evidence without a date", PRICE, APPROVED,
     ", \"evidence\": {\"fixtures\": \"f1\", \"cases\": 10, \"passed\": 10, \"score_ppm\": 990000}", MISSING, 0, 0},
    {"no contract", PRICE, NULL, "", FG_REASON_NOT_APPROVED, 0, 0},
    {"no fingerprint", PRICE, "\"approved_by\": \"ops\"", GOOD, FG_REASON_NOT_APPROVED, 0, 0},
    {"another fingerprint", PRICE, "\"fingerprint\": \"sha256:0\"", GOOD, FG_REASON_CONTRACT_STALE, 0, 0},
    {"expired", PRICE, APPROVED, EVIDENCE("f1", "10", "970000", "980000", "2026-11-01", "2026-12-01"), EXPIRED, 0, 0},
    {"measured tomorrow", PRICE, APPROVED, EVIDENCE("f1", "10", "970000", "980000", "2026-12-02", "2027-02-01"), FG_REASON_NO_WALL_CLOCK, 0, 0},
    {"expires while it is asked", PRICE, APPROVED, EVIDENCE("f1", "10", "970000", "980000", "2026-11-01", "2026-12-01T00:00:00.5Z"), EXPIRED, 500, 1},
    {"expires when it has answered", PRICE, APPROVED, EVIDENCE("f1", "10", "970000", "980000", "2026-11-01", "2026-12-01T00:00:00.8Z"), EXPIRED, 800, 1},
};
enum { ODD_COUNT = sizeof ODDS / sizeof *ODDS };
static const odd SOUND = {"", PRICE, APPROVED, GOOD, 0, 0, 0};

enum place { BEFORE, BEHIND, LADDER, PLACES };
static const char *const PLACE[PLACES] = {"before the sound one", "behind the sound one", "a smaller model"};
enum fault { LITTLE, ABSENT, ASKED_LITTLE, ASKED_ABSENT, FAULTS };
static const char *const FAULT[FAULTS] = {"too little", "unknown", "too little for the request", "unknown, and the request needs it"};

typedef struct setup { uint32_t row, fault, place; const odd *odd; } setup; /* row NO_ROW: the odd one, or none */
static setup S;

/* ------------------------------------------------------------------ the card */

typedef struct text { char at[CARD_MAX]; size_t len; } text;

static void put(text *t, const char *a, const char *b, const char *c) {
  const char *parts[3] = {a, b, c};
  for (uint32_t i = 0; i < 3; i++) {
    const size_t n = strlen(parts[i]);
    if (t->len + n + 1 > sizeof t->at) {
      fprintf(stderr, "the card is too long\n");
      exit(2);
    }
    memcpy(t->at + t->len, parts[i], n + 1);
    t->len += n;
  }
}

static int asked(void) { return S.row != NO_ROW && (S.fault == ASKED_LITTLE || S.fault == ASKED_ABSENT); }

/* The sections of one side as an object's members. */
static void sections(text *t, int requires, int faulty, const char *extra_safety, const char *extra_economics) {
  const char *now = "";
  for (uint32_t i = 0; i < ROW_COUNT; i++) {
    const row *r = &ROWS[i];
    const int hit = i == S.row;
    if (strcmp(now, r->section) != 0) {
      put(t, *now != 0 ? "}, \"" : "\"", r->section, "\": {");
      now = r->section;
      put(t, strcmp(now, "safety") == 0 ? extra_safety : strcmp(now, "economics") == 0 ? extra_economics : "", "", "");
    }
    if (hit && (requires ? asked() : faulty && (S.fault == ABSENT || S.fault == ASKED_ABSENT))) {
      continue; /* not stated */
    }
    put(t, t->at[t->len - 1] == '{' ? "\"" : ", \"", r->key, "\": ");
    put(t, requires ? r->requires : hit && faulty ? r->little : r->good, "", "");
  }
  put(t, "}", "", "");
}

static void stand_in(text *t, const char *name, const char *vendor, const odd *o, int faulty) {
  char owner[64];
  snprintf(owner, sizeof owner, "\"quota_owner\": \"%s\"", name);
  put(t, ", \"", name, "\": {\"provider\": \"");
  put(t, vendor, "\", \"model\": \"m\", \"account\": \"", name);
  put(t, "\"", o->price, ", \"provides\": {");
  sections(t, 0, faulty, "\"other_vendor_after_refusal\": true", owner);
  put(t, "}}", "", "");
}

static void contract(text *t, const char *name, const odd *o) {
  if (o->approval != NULL) {
    put(t, t->at[t->len - 1] == '[' ? "" : ", ", "{\"workflow\": \"w\", \"route\": \"", name);
    put(t, "\", ", o->approval, o->contract);
    put(t, "}", "", "");
  }
}

static const char *card(void) {
  static text t;
  static const char *const ROUTES[PLACES] = {"\"p\", \"x\", \"g\"", "\"p\", \"g\", \"x\"", "\"p\""};
  const odd *x = S.odd != NULL ? S.odd : &SOUND;
  t.len = 0;
  put(&t, "{\"version\": 1, \"retry_bucket\": {\"start\": 10}, \"breaker\": {\"consecutive\": 2, \"successes\": 1}, \"routes\": {\"p\": ",
      "{\"provider\": \"openai\", \"model\": \"m\", \"account\": \"p\", \"price\": {\"input\": 1, \"output\": 4}, ",
      "\"provides\": {\"economics\": {\"quota_owner\": \"p\"}}}");
  stand_in(&t, "x", "anthropic", x, S.row != NO_ROW);
  stand_in(&t, "g", "azure-openai", &SOUND, 0);
  put(&t, "}, \"workflows\": {\"w\": {\"order\": \"card\", \"stop_on\": [], \"budget\": {\"extra_tokens\": 10000000, \"extra_cost_usd\": null}, ",
      "\"routes\": [", ROUTES[S.place]);
  put(&t, "], \"requires\": {", "", "");
  sections(&t, 1, 0, "\"other_vendor_after_refusal\": true", "\"price_max\": {\"input\": 3, \"cached_input\": 2, \"output\": 10}");
  put(&t, ", \"quality\": {\"cases_min\": 10, \"fixtures\": \"f1\", \"max_drop_ppm\": 10000, \"min_score_ppm\": 970000}}, \"ladder\": [",
      S.place == LADDER ? "{\"step\": \"smaller_model\", \"route\": \"x\"}, {\"step\": \"smaller_model\", \"route\": \"g\"}, " : "",
      "{\"step\": \"shorter\", \"max_tokens\": 100}, {\"step\": \"compact\", \"to_tokens\": 100}, ");
  put(&t, "{\"step\": \"preset\", \"text\": \"later\"}]}}, \"contracts\": [", "", "");
  contract(&t, "x", x);
  contract(&t, "g", &SOUND);
  put(&t, "]}", "", "");
  return t.at;
}

static fg_request request(void) {
  static const fg_str TOOLS[2] = {{"find", 4, 0}, {"book", 4, 0}};
  fg_request r;
  memset(&r, 0, sizeof r);
  r.size = sizeof r;
  r.workflow = world_str("w");
  r.call_id = world_str("sections");
  r.prompt_tokens = 900;
  r.max_output_tokens = 300;
  r.stream = FG_STREAM_YES;
  if (!asked()) {
    return r;
  }
  r.features = ROWS[S.row].feature;
  switch (ROWS[S.row].asks) {
  case ASKS_PROMPT:
    r.prompt_tokens = 15950; /* and 300, or the 100 of a shorter answer */
    break;
  case ASKS_OUTPUT:
    r.max_output_tokens = 1000;
    break;
  case ASKS_TOOLS:
    r.tools = TOOLS;
    r.tool_count = 2;
    break;
  case ASKS_CLASS:
    r.data_class = world_str("pii");
    break;
  case ASKS_REGION:
    r.region = world_str("eu");
    break;
  default:
    break;
  }
  return r;
}

/* ------------------------------------------------------------ what is expected */

/* Of a refusal of x, when it was not asked yet. */
static uint32_t expected_reason(void) {
  if (S.odd != NULL) {
    return S.odd->why;
  }
  if (!asked()) {
    return FG_REASON_CONTRACT_SECTION_FAILS;
  }
  switch (ROWS[S.row].asks) {
  case ASKS_PROMPT:
  case ASKS_OUTPUT:
    return FG_REASON_DOES_NOT_FIT_TOKENS;
  case ASKS_TOOLS:
    return FG_REASON_DOES_NOT_FIT_TOOLS;
  case ASKS_CLASS:
    return FG_REASON_DOES_NOT_FIT_DATA;
  case ASKS_REGION:
    return FG_REASON_DOES_NOT_FIT_REGION;
  default:
    return FG_REASON_DOES_NOT_FIT_FEATURES;
  }
}

static int faulty(void) { return S.row != NO_ROW || S.odd != NULL; }

static void describe(void) {
  fprintf(stderr, "%s%s%s (%s), %s", S.row != NO_ROW ? ROWS[S.row].section : S.odd != NULL ? S.odd->name : "no fault", S.row != NO_ROW ? "." : "",
          S.row != NO_ROW ? ROWS[S.row].key : "", S.row != NO_ROW ? FAULT[S.fault] : "whole", PLACE[S.place]);
}

#endif /* FG_WORLD_SECTIONS_H */
