/* Contracts: each section's comparison, evidence, fingerprint, twins; and whether a request fits a route. */
#include "fg_test.h"

#include "card_text.h"
#include "fg_card_number.h"
#include "fg_contract.h"

#define MEASURED "'cases': 100, 'passed': 99, 'score_ppm': 970000, 'primary_score_ppm': 990000, 'measured_at': '2026-11-01T00:00:00Z', 'expires_at': '2027-02-01T00:00:00Z'"
#define EVIDENCE "'evidence': {" MEASURED "}"
#define CARD "{'version': 1, 'routes': {'a': {'provider': 'p', 'model': 'm', 'account': 'x', %s 'provides': {%s}}, 'b': {'provider': '%s', 'model': 'm', 'account': 'y', %s 'provides': {%s}}}," \
             "'workflows': {'w': {'routes': ['a', 'b'], 'requires': {%s}}}, 'contracts': [{'workflow': 'w', 'route': 'b', 'fingerprint': 'auto', %s}]}"

typedef struct parts { const char *primary, *provides, *requires, *contract, *provider, *main_rest, *rest; } parts;

static fg_policy *make(parts x) {
  char text[8192];
  snprintf(text, sizeof text, CARD, x.main_rest != NULL ? x.main_rest : "", x.primary != NULL ? x.primary : "", x.provider != NULL ? x.provider : "q", x.rest != NULL ? x.rest : "",
           x.provides != NULL ? x.provides : "", x.requires != NULL ? x.requires : "", x.contract != NULL ? x.contract : EVIDENCE);
  return card_must(text, FG_CARD_AUTO_FINGERPRINT);
}

static const fg_policy_standin *stand_in(const fg_policy *p) {
  return &fg_policy_workflows(p)->standin[1];
}

/* ------------------------------------------------------------------ sections */

static void pair(const char *requires, const char *provides, const char *fails) {
  fg_policy *p = make((parts){.requires = requires, .provides = provides});
  const fg_policy_standin *s = stand_in(p);
  FG_EQ(s->barred, fails != NULL ? FG_REASON_CONTRACT_SECTION_FAILS : 0);
  if (!FG_EQ_BYTES((const char *)p + s->section.off, s->section.len, fails != NULL ? fails : "")) {
    printf("  %s | %s\n", requires, provides);
  }
  card_drop(p);
}

static void sections(void) {
  pair("", "", NULL);
  /* sizes: at least */
  pair("'input': {'context_tokens': 1000}", "'input': {'context_tokens': 1000}", NULL);
  pair("'input': {'context_tokens': 1000}", "'input': {'context_tokens': 999}", "input.context_tokens");
  pair("'input': {'context_tokens': 1000}", "", "input.context_tokens");
  pair("'input': {'request_bytes': 5}", "'input': {'request_bytes': 6}", NULL);
  pair("'output': {'max_tokens': 5, 'max_tokens_whole': 4}", "'output': {'max_tokens': 5, 'max_tokens_whole': 3}", "output.max_tokens_whole");
  pair("'economics': {'spend_per_day_usd': '1.5'}", "'economics': {'spend_per_day_usd': 1.5}", NULL);
  pair("'economics': {'spend_per_day_usd': 1.51}", "'economics': {'spend_per_day_usd': '1.5'}", "economics.spend_per_day_usd");
  /* at most */
  pair("'data': {'retention_days': 30}", "'data': {'retention_days': 0}", NULL);
  pair("'data': {'retention_days': 0}", "'data': {'retention_days': 1}", "data.retention_days");
  pair("'data': {'retention_days': 30}", "", "data.retention_days");
  pair("'operations': {'first_token_p95_ms': 900}", "'operations': {'first_token_p95_ms': 901}", "operations.first_token_p95_ms");
  pair("'operations': {'latency_p95_ms': 900}", "'operations': {'latency_p95_ms': 900}", NULL);
  /* abilities */
  pair("'input': {'prefill': true}", "'input': {'prefill': true}", NULL);
  pair("'input': {'prefill': true}", "'input': {'prefill': false}", "input.prefill");
  pair("'input': {'prefill': true}", "", "input.prefill");
  pair("'input': {'prefill': false, 'system_prompt': false}", "", NULL);
  pair("'operations': {'status_page': true, 'streaming': true, 'request_id': true}", "'operations': {'status_page': 'https://s', 'streaming': true, 'request_id': true}", NULL);
  pair("'operations': {'status_page': true}", "'operations': {'status_page': false}", "operations.status_page");
  pair("'tools': {'argument_schemas': true, 'history_portable': true, 'idempotent': true, 'parallel_calls': true, 'round_trip': true}",
       "'tools': {'argument_schemas': true, 'history_portable': true, 'idempotent': true, 'parallel_calls': true}", "tools.round_trip");
  pair("'output': {'json_schema': true, 'citations': true, 'reasoning': true}", "'output': {'json_schema': true, 'citations': true}", "output.reasoning");
  pair("'economics': {'cache': true}", "", "economics.cache");
  pair("'safety': {'human_escalation': true}", "'safety': {'human_escalation': true}", NULL);
  /* supersets */
  pair("'input': {'modalities': ['image', 'text']}", "'input': {'modalities': ['text', 'audio', 'image']}", NULL);
  pair("'input': {'modalities': ['image', 'text']}", "'input': {'modalities': ['text']}", "input.modalities");
  pair("'input': {'languages': []}", "", NULL);
  pair("'input': {'languages': ['en']}", "", "input.languages");
  pair("'tools': {'names': ['a', 'b']}", "'tools': {'names': ['b', 'c', 'a']}", NULL);
  pair("'tools': {'names': ['a', 'b']}", "'tools': {'names': ['*']}", NULL);
  pair("'tools': {'names': ['a', 'b']}", "'tools': {'names': ['a']}", "tools.names");
  pair("'data': {'classes': ['pii']}", "'data': {'classes': ['public']}", "data.classes");
  pair("'safety': {'stop_rules': ['x']}", "'safety': {'stop_rules': ['x', 'y']}", NULL);
  /* subsets */
  pair("'data': {'regions': ['eu', 'uk']}", "'data': {'regions': ['eu']}", NULL);
  pair("'data': {'regions': ['eu']}", "'data': {'regions': ['eu', 'us']}", "data.regions");
  pair("'data': {'regions': ['eu']}", "", "data.regions");
  pair("'output': {'finish_reasons': ['stop', 'length']}", "'output': {'finish_reasons': ['stop']}", NULL);
  pair("'output': {'finish_reasons': ['stop']}", "'output': {'finish_reasons': ['stop', 'length']}", "output.finish_reasons");
  pair("'output': {'finish_reasons': ['stop']}", "", "output.finish_reasons");
  /* equal */
  pair("'data': {'training': false}", "'data': {'training': false}", NULL);
  pair("'data': {'training': false}", "'data': {'training': true}", "data.training");
  pair("'data': {'training': false}", "", "data.training");
  pair("'data': {'tenant_isolation': 'dedicated'}", "'data': {'tenant_isolation': 'shared'}", "data.tenant_isolation");
  pair("'output': {'refusal_form': 'text', 'truncation': 'error'}", "'output': {'refusal_form': 'text', 'truncation': 'silent'}", "output.truncation");
  pair("'output': {'refusal_form': 'text'}", "'output': {'refusal_form': 'error'}", "output.refusal_form");
  pair("'safety': {'filter': 'strict', 'high_risk': 'refuse'}", "'safety': {'filter': 'strict', 'high_risk': 'refuse'}", NULL);
  pair("'safety': {'filter': 'strict'}", "'safety': {'filter': 'Strict'}", "safety.filter");
  pair("'economics': {'retry_charged': true}", "'economics': {'retry_charged': true}", NULL);
  /* the first that fails is named; a schema is for the answer, not for the route */
  pair("'tools': {'names': ['a']}, 'data': {'training': false}", "", "data.training");
  pair("'output': {'schema': {'type': 'object'}}", "", NULL);
}

static void prices(void) {
  static const struct { const char *max, *price; int ok; } ROWS[] = {
      {"{'input': 2.5}", "'price': {'input': '2.5', 'output': 9},", 1}, {"{'input': 2.5, 'output': 8.99}", "'price': {'input': '2.5', 'output': 9},", 0},
      {"{'cached_input': 1}", "'price': {'input': 2, 'cached_input': 1, 'output': 9},", 1}, {"{'cached_input': 1}", "'price': {'input': 2, 'output': 9},", 0},
      {"{'output': 0}", "'price': 'free',", 1}, {"{'output': 100}", "", 0}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    char requires[128];
    snprintf(requires, sizeof requires, "'economics': {'price_max': %s}", ROWS[i].max);
    fg_policy *p = make((parts){.requires = requires, .rest = ROWS[i].price, .main_rest = "'price': 'free',"});
    FG_EQ(stand_in(p)->barred, ROWS[i].ok ? 0 : FG_REASON_CONTRACT_SECTION_FAILS);
    card_drop(p);
  }
}

/* The price that was approved against the route's own, exact to the nano-dollar, whatever the spelling. */
static void approved_prices(void) {
  static const struct { const char *approved, *price; int same; } ROWS[] = {
      {"{'input': 2.5, 'output': 10}", "'price': {'input': '2.50', 'output': '10.000000000'},", 1},
      {"{'input': '002.5', 'cached_input': 2.5, 'output': 1e1}", "'price': {'input': 2.5, 'output': 10},", 1}, /* cached as input when not stated */
      {"{'input': 2.5, 'output': 10}", "'price': {'input': 2.5, 'cached_input': '2.5', 'output': 10},", 1},
      {"'free'", "'price': {'input': 0, 'output': '0.0'},", 1},
      {"{'input': 0, 'output': 0}", "'price': 'free',", 1},
      {"{'input': 2.5, 'output': 10}", "'price': {'input': 2.500000001, 'cached_input': 2.5, 'output': 10},", 0},
      {"{'input': 2.5, 'output': 10}", "'price': {'input': 2.5, 'cached_input': 1.25, 'output': 10},", 0},
      {"{'input': 2.5, 'output': 10}", "'price': {'input': 2.5, 'output': '9.999999999'},", 0}, /* cheaper is another price, too */
      {"{'input': 2.5, 'output': 10}", "'price': 'free',", 0},
      {"{'input': 2.5, 'output': 10}", "", 0},
      {"'free'", "", 0}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    char contract[512];
    snprintf(contract, sizeof contract, "'price': %s, " EVIDENCE, ROWS[i].approved);
    fg_policy *p = make((parts){.contract = contract, .rest = ROWS[i].price});
    const fg_policy_standin *s = stand_in(p);
    if (!FG_EQ(s->barred, ROWS[i].same ? 0 : FG_REASON_CONTRACT_STALE) ||
        !FG_EQ_BYTES((const char *)p + s->section.off, s->section.len, ROWS[i].same ? "" : "price")) {
      printf("  row %zu\n", i);
    }
    card_drop(p);
  }
}

/* What is said first of a stand-in with several faults: what an approval is worth nothing without comes before the approval. */
static void first_fault(void) {
  static const struct { const char *requires, *contract; uint32_t barred; const char *section; } ROWS[] = {
      {"'data': {'training': false}", "'fingerprint': 'sha256:0', 'price': 'free'", FG_REASON_CONTRACT_SECTION_FAILS, "data.training"},
      {"", "'fingerprint': 'sha256:0', 'price': 'free'", FG_REASON_MISSING_EVIDENCE, "evidence.cases"},
      {"'quality': {'cases_min': 101}", "'fingerprint': 'sha256:0', 'price': 'free', " EVIDENCE, FG_REASON_CONTRACT_SECTION_FAILS, "quality.cases_min"},
      {"", "'fingerprint': 'sha256:0', 'price': 'free', 'evidence': {'cases': 1, 'route': {'provider': 'q', 'model': 'x'}}", FG_REASON_MISSING_EVIDENCE, "evidence.passed"},
      {"'quality': {'cases_min': 101}", "'fingerprint': 'sha256:0', 'price': 'free', 'evidence': {'route': {'provider': 'q', 'model': 'x'}, " MEASURED "}",
       FG_REASON_CONTRACT_STALE, "evidence.route"},
      {"'quality': {'cases_min': 101}", "'fingerprint': 'sha256:0', 'price': 'free', 'evidence': {'primary': {'provider': 'p', 'model': 'x'}, " MEASURED "}",
       FG_REASON_CONTRACT_STALE, "evidence.primary"},
      {"", "'evidence': {'route': {'provider': 'q', 'model': 'x'}, " MEASURED "}", FG_REASON_NOT_APPROVED, "fingerprint"},
      {"", "'fingerprint': 'sha256:0', 'price': 'free', " EVIDENCE, FG_REASON_CONTRACT_STALE, "fingerprint"},
      {"", "'price': 'free', " EVIDENCE, FG_REASON_NOT_APPROVED, "fingerprint"}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    char text[2048];
    snprintf(text, sizeof text,
             "{'version': 1, 'routes': {'a': {'provider': 'p', 'model': 'm'}, 'b': {'provider': 'q', 'model': 'm', 'price': {'input': 1, 'output': 1}}}, 'workflows': {'w': "
             "{'routes': ['a', 'b'], 'requires': {%s}}}, 'contracts': [{'workflow': 'w', 'route': 'b', %s}]}", ROWS[i].requires, ROWS[i].contract);
    fg_policy *p = card_must(text, 0);
    const fg_policy_standin *s = stand_in(p);
    if (!FG_EQ(s->barred, ROWS[i].barred) || !FG_EQ_BYTES((const char *)p + s->section.off, s->section.len, ROWS[i].section)) {
      printf("  row %zu\n", i);
    }
    card_drop(p);
  }
}

/* ------------------------------------------------------------------ evidence */

static void verdict(const char *contract, const char *requires, uint32_t barred, const char *section) {
  fg_policy *p = make((parts){.requires = requires, .contract = contract});
  const fg_policy_standin *s = stand_in(p);
  if (!FG_EQ(s->barred, barred) || !FG_EQ_BYTES((const char *)p + s->section.off, s->section.len, section)) {
    printf("  %s\n", contract);
  }
  card_drop(p);
}

static void evidence(void) {
  verdict("'approved_by': 'x'", "", FG_REASON_MISSING_EVIDENCE, "evidence.cases");
  verdict("'evidence': {'cases': 0, 'passed': 0, 'score_ppm': 1, 'measured_at': '2026-01-01', 'expires_at': '2027-01-01'}", "", FG_REASON_MISSING_EVIDENCE, "evidence.cases");
  verdict("'evidence': {'cases': 1}", "", FG_REASON_MISSING_EVIDENCE, "evidence.passed");
  verdict("'evidence': {'cases': 1, 'passed': 1}", "", FG_REASON_MISSING_EVIDENCE, "evidence.score_ppm");
  verdict("'evidence': {'cases': 1, 'passed': 1, 'score_ppm': 5}", "", FG_REASON_MISSING_EVIDENCE, "evidence.measured_at");
  verdict("'evidence': {'cases': 1, 'passed': 1, 'score_ppm': 5, 'measured_at': '2026-01-01'}", "", FG_REASON_MISSING_EVIDENCE, "evidence.expires_at");
  verdict("'evidence': {'cases': 1, 'passed': 1, 'score_ppm': 5, 'measured_at': '2026-01-01', 'expires_at': '2027-01-01'}", "", 0, "");
  verdict(EVIDENCE, "'quality': {'cases_min': 100}", 0, "");
  verdict(EVIDENCE, "'quality': {'cases_min': 101}", FG_REASON_CONTRACT_SECTION_FAILS, "quality.cases_min");
  verdict(EVIDENCE, "'quality': {'min_score_ppm': 970000}", 0, "");
  verdict(EVIDENCE, "'quality': {'min_score_ppm': 970001}", FG_REASON_CONTRACT_SECTION_FAILS, "quality.min_score_ppm");
  verdict(EVIDENCE, "'quality': {'max_drop_ppm': 20000}", 0, "");
  verdict(EVIDENCE, "'quality': {'max_drop_ppm': 19999}", FG_REASON_CONTRACT_SECTION_FAILS, "quality.max_drop_ppm");
  verdict(EVIDENCE, "'quality': {'fixtures': 'sha256:a'}", FG_REASON_CONTRACT_SECTION_FAILS, "quality.fixtures");
  verdict("'evidence': {'fixtures': 'sha256:a', 'cases': 1, 'passed': 1, 'score_ppm': 5, 'measured_at': '2026-01-01', 'expires_at': '2027-01-01'}", "'quality': {'fixtures': 'sha256:a'}", 0, "");
  /* without the primary's score the drop is taken from a perfect one */
  verdict("'evidence': {'cases': 1, 'passed': 1, 'score_ppm': 900000, 'measured_at': '2026-01-01', 'expires_at': '2027-01-01'}", "'quality': {'max_drop_ppm': 99999}",
          FG_REASON_CONTRACT_SECTION_FAILS, "quality.max_drop_ppm");
  fg_policy *p = make((parts){.provides = "'input': {'prefill': true}, 'economics': {'quota_owner': 'b'}", .primary = "'economics': {'quota_owner': 'a'}",
                              .requires = "'safety': {'other_vendor_after_refusal': true}",
                              .contract = EVIDENCE ", 'approved_by': 'ops', 'changes': {'drop_tools': ['t2', 't1']}"});
  const fg_policy_standin *s = stand_in(p);
  FG_CHECK(s->barred == 0 && s->score_ppm == 970000 && s->drop_ppm == 20000 && s->prefill == 1 && s->other_budget == 1 && s->other_vendor_after_refusal == 1);
  FG_CHECK(s->drop_tools_count == 2 && s->drop_tools_all == 0 && s->measured_unix_ms == 1793491200000 && s->expires_unix_ms == 1801440000000);
  card_drop(p);
  p = make((parts){.provides = "'economics': {'quota_owner': 'a'}, 'safety': {'other_vendor_after_refusal': false}", .primary = "'economics': {'quota_owner': 'a'}",
                   .requires = "'safety': {'other_vendor_after_refusal': true}"});
  FG_CHECK(stand_in(p)->other_budget == 0 && stand_in(p)->other_vendor_after_refusal == 0);
  card_drop(p);
  p = make((parts){.provides = "'economics': {'quota_owner': 'a'}"}); /* undeclared at the primary: not known to differ */
  FG_CHECK(stand_in(p)->other_budget == 0 && stand_in(p)->other_vendor_after_refusal == 0);
  card_drop(p);
}

/* What was measured against what the card names, for the route and for the primary: every pair of a small world. In it a text of one key is
 * also the text of another. */
static void measured_models(void) {
  static const char *const MODELS[] = {
      "'provider': 'p', 'model': 'p'", "'provider': 'p', 'model': 'p', 'version': 'p'", "'provider': 'p', 'model': 'p', 'version': 'q'",
      "'provider': 'p', 'model': 'q'", "'provider': 'p', 'model': 'q', 'version': 'p'", "'provider': 'p', 'model': 'q', 'version': 'q'",
      "'provider': 'q', 'model': 'p'", "'provider': 'q', 'model': 'p', 'version': 'p'", "'provider': 'q', 'model': 'p', 'version': 'q'",
      "'provider': 'q', 'model': 'q'", "'provider': 'q', 'model': 'q', 'version': 'p'", "'provider': 'q', 'model': 'q', 'version': 'q'"};
  static const char *const OTHER = "'provider': 'z', 'model': 'z'", *const KEYS[] = {"route", "primary"}, *const SECTIONS[] = {"evidence.route", "evidence.primary"};
  enum { ALL = FG_ARRAY_LEN(MODELS) };
  for (uint32_t i = 0; i < 2 * ALL * ALL; i++) {
    uint32_t key = i % 2, now = i / 2 % ALL, was = i / 2 / ALL;
    char text[1024];
    snprintf(text, sizeof text,
             "{'version': 1, 'routes': {'a': {%s, 'account': 'x'}, 'b': {%s, 'account': 'y'}}, 'workflows': {'w': {'routes': ['a', 'b']}},"
             "'contracts': [{'workflow': 'w', 'route': 'b', 'fingerprint': 'auto', 'evidence': {'%s': {%s}, " MEASURED "}}]}",
             key == 0 ? OTHER : MODELS[now], key == 0 ? MODELS[now] : OTHER, KEYS[key], MODELS[was]);
    fg_policy *p = card_must(text, FG_CARD_AUTO_FINGERPRINT);
    const fg_policy_standin *s = stand_in(p);
    if (!FG_EQ(s->barred, was == now ? 0 : FG_REASON_CONTRACT_STALE) ||
        !FG_EQ_BYTES((const char *)p + s->section.off, s->section.len, was == now ? "" : SECTIONS[key])) {
      printf("  %s\n", text);
    }
    card_drop(p);
  }
}

/* --------------------------------------------------------------- fingerprint */

static void fingerprint_of(const fg_policy *p, char *out) {
  uint32_t barred = 0;
  fg_str f = {NULL, 0, 0};
  FG_CHECK(fg_policy_contract(p, 1, 2, &barred, &f) == FG_OK && f.len == 71);
  memcpy(out, f.ptr, f.len);
  out[f.len] = 0;
}

static void fingerprints(void) {
  char a[80], b[80];
  /* sha256 of: provides.input.context_tokens=1000 LF provides.tools.names=["a","b"] LF requires.economics.price_max={"input":2.5} LF
   * requires.output.schema={"enum":["a",1,null,true],"required":["x","y"]} LF route.model="m" LF route.provider="q" LF */
  fg_policy *p = make((parts){.provides = "'tools': {'names': ['b', 'a']}, 'input': {'context_tokens': 1000}", .main_rest = "'price': 'free',", .rest = "'price': 'free',",
                              .requires = "'output': {'schema': {'required': ['y', 'x'], 'enum': [true, 1, null, 'a']}}, 'economics': {'price_max': {'input': 2.50}}"});
  fingerprint_of(p, a);
  FG_EQ_STR(a, "sha256:643c40658d54a554904eab4181b6069c7e7cadcb329b94f378c7b12628ce6dff");
  card_drop(p);
  p = make((parts){.provides = "'input': {'context_tokens': 1e3}, 'tools': {'names': ['a', 'b']}", .main_rest = "'price': 'free',", .rest = "'price': 'free',",
                   .requires = "'economics': {'price_max': {'input': 2.5}}, 'output': {'schema': {'enum': ['a', 1, true, null], 'required': ['x', 'y']}}"});
  fingerprint_of(p, b);
  FG_EQ_STR(b, a);
  card_drop(p);
  p = make((parts){.provides = "'input': {'context_tokens': 1001}, 'tools': {'names': ['a', 'b']}", .main_rest = "'price': 'free',", .rest = "'price': 'free',",
                   .requires = "'economics': {'price_max': {'input': 2.5}}, 'output': {'schema': {'enum': ['a', 1, true, null], 'required': ['x', 'y']}}"});
  fingerprint_of(p, b);
  FG_CHECK(strcmp(a, b) != 0);
  card_drop(p);
  /* A stated fingerprint: right, or stale after any change of the pair. */
  static const char *const RESTS[] = {"", "'version': '2',", "'weight': 5,", "'price': 'free',"};
  static const uint32_t WANT[] = {0, FG_REASON_CONTRACT_STALE, 0, 0};
  p = make((parts){.rest = ""});
  fingerprint_of(p, a);
  card_drop(p);
  for (uint32_t i = 0; i < 4; i++) {
    char text[4096];
    snprintf(text, sizeof text,
             "{'version': 1, 'routes': {'a': {'provider': 'p', 'model': 'm'}, 'b': {'provider': 'q', 'model': 'm', %s 'account': 'z'}}, 'workflows': {'w': {'routes': ['a', 'b']}},"
             "'contracts': [{'workflow': 'w', 'route': 'b', 'fingerprint': '%s', " EVIDENCE "}]}", RESTS[i], a);
    p = card_must(text, 0);
    FG_EQ(stand_in(p)->barred, WANT[i]);
    card_drop(p);
  }
  p = make((parts){.contract = "'twin': false"});
  FG_EQ(stand_in(p)->barred, FG_REASON_MISSING_EVIDENCE);
  card_drop(p);
  p = card_must("{'version': 1, 'routes': {'a': {'provider': 'p', 'model': 'm'}, 'b': {'provider': 'q', 'model': 'm'}}, 'workflows': {'w': {'routes': ['a', 'b']}},"
                "'contracts': [{'workflow': 'w', 'route': 'b', " EVIDENCE "}]}", 0);
  FG_CHECK(stand_in(p)->barred == FG_REASON_NOT_APPROVED);
  FG_EQ_BYTES((const char *)p + stand_in(p)->section.off, stand_in(p)->section.len, "fingerprint");
  card_drop(p);
}

/* A smaller model's own floor. */
static void ladder_floor(void) {
  for (uint32_t floor = 970000; floor <= 970001; floor++) {
    char text[4096];
    snprintf(text, sizeof text,
             "{'version': 1, 'routes': {'a': {'provider': 'p', 'model': 'm'}, 'b': {'provider': 'q', 'model': 's'}}, 'workflows': {'w': {'routes': ['a'], 'ladder': "
             "[{'step': 'smaller_model', 'route': 'b', 'min_score_ppm': %u}]}}, 'contracts': [{'workflow': 'w', 'route': 'b', 'fingerprint': 'auto', " EVIDENCE "}]}", floor);
    fg_policy *p = card_must(text, FG_CARD_AUTO_FINGERPRINT);
    FG_CHECK(stand_in(p)->ladder_only == 1 && stand_in(p)->barred == (floor == 970000 ? 0 : FG_REASON_CONTRACT_SECTION_FAILS));
    card_drop(p);
  }
}

/* ----------------------------------------------------------------------- fit */

static fg_fit fit_at(const fg_policy *p, uint32_t index, fg_fit_request r, int64_t unix_ms) {
  fg_fit f;
  memset(&f, 0xAA, sizeof f);
  fg_contract_fit(p, fg_policy_workflows(p), index, &r, unix_ms, &f);
  return f;
}

static const int64_t NOW = 1794000000000; /* November 2026 */

static void dates(void) {
  fg_policy *p = make((parts){.provides = "'input': {'context_tokens': 10}, 'output': {'max_tokens': 10}"});
  fg_fit_request none = {0};
  FG_EQ(fit_at(p, 1, none, NOW).barred, 0);
  FG_EQ(fit_at(p, 1, none, INT64_MIN).barred, FG_REASON_NO_WALL_CLOCK);
  FG_EQ(fit_at(p, 1, none, 1801439999999).barred, 0);
  FG_EQ(fit_at(p, 1, none, 1801440000000).barred, FG_REASON_CONTRACT_EXPIRED);
  FG_EQ(fit_at(p, 0, none, INT64_MIN).barred, 0);
  FG_EQ(fit_at(p, 1, none, 1793491200000).barred, 0); /* the moment it was measured */
  FG_EQ(fit_at(p, 1, none, 1793491199999).barred, FG_REASON_NO_WALL_CLOCK);
  FG_EQ(fit_at(p, 1, none, 0).barred, FG_REASON_NO_WALL_CLOCK);
  FG_EQ(fit_at(p, 0, none, 0).barred, 0);
  card_drop(p);
  p = make((parts){.contract = "'approved_by': 'x'"}); /* what the card refused stays refused, whatever the date */
  FG_EQ(fit_at(p, 1, none, INT64_MIN).barred, FG_REASON_MISSING_EVIDENCE);
  card_drop(p);
}

static void sizes(void) {
  fg_policy *p = make((parts){.primary = "'input': {'context_tokens': 1000, 'request_bytes': 50}, 'output': {'max_tokens': 300, 'max_tokens_whole': 100}",
                              .provides = "'input': {'context_tokens': 2000}, 'output': {'max_tokens': 200}"});
  static const struct { uint32_t prompt, output, bytes, stream, index, barred, change, max_tokens, larger; } ROWS[] = {
      {700, 300, 0, FG_STREAM_YES, 0, 0, 0, 0, 1},
      {701, 300, 0, FG_STREAM_YES, 0, FG_REASON_DOES_NOT_FIT_TOKENS, 0, 299, 0},
      {1001, 0, 0, FG_STREAM_YES, 0, FG_REASON_DOES_NOT_FIT_TOKENS, 0, 0, 0},
      {10, 301, 0, FG_STREAM_YES, 0, FG_REASON_DOES_NOT_FIT_TOKENS, 0, 300, 0},
      {10, 100, 0, FG_STREAM_NO, 0, 0, 0, 0, 1},
      {10, 101, 0, FG_STREAM_NO, 0, 0, FG_CHANGE_STREAM, 0, 1},
      {10, 101, 0, FG_STREAM_IMPOSSIBLE, 0, FG_REASON_DOES_NOT_FIT_TOKENS, 0, 100, 0},
      {0, 0, 51, FG_STREAM_YES, 0, FG_REASON_DOES_NOT_FIT_TOKENS, 0, 0, 0},
      {0, 0, 50, FG_STREAM_YES, 0, 0, 0, 0, 1},
      {1800, 200, 51, FG_STREAM_NO, 1, 0, 0, 0, 1},
      {1801, 200, 0, FG_STREAM_YES, 1, FG_REASON_DOES_NOT_FIT_TOKENS, 0, 199, 0},
      {0, 201, 0, FG_STREAM_YES, 1, FG_REASON_DOES_NOT_FIT_TOKENS, 0, 200, 0},
      {UINT32_MAX, UINT32_MAX, 0, FG_STREAM_YES, 1, FG_REASON_DOES_NOT_FIT_TOKENS, 0, 0, 0}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    fg_fit_request r = {.prompt_tokens = ROWS[i].prompt, .max_output_tokens = ROWS[i].output, .request_bytes = ROWS[i].bytes, .stream = ROWS[i].stream};
    fg_fit f = fit_at(p, ROWS[i].index, r, NOW);
    if (!FG_CHECK(f.barred == ROWS[i].barred && f.change == ROWS[i].change && f.max_tokens == ROWS[i].max_tokens && f.larger_ok == ROWS[i].larger)) {
      printf("  row %zu: %u %u %u %u\n", i, f.barred, f.change, f.max_tokens, f.larger_ok);
    }
  }
  card_drop(p);
  p = make((parts){.provides = ""}); /* nothing declared: binds no primary, fits no stand-in of a known size */
  fg_fit_request r = {.prompt_tokens = 1};
  FG_EQ(fit_at(p, 0, r, NOW).barred, 0);
  FG_EQ(fit_at(p, 0, r, NOW).larger_ok, 0);
  FG_EQ(fit_at(p, 1, r, NOW).barred, FG_REASON_DOES_NOT_FIT_TOKENS);
  r = (fg_fit_request){.max_output_tokens = 1};
  FG_EQ(fit_at(p, 1, r, NOW).barred, FG_REASON_DOES_NOT_FIT_TOKENS);
  r = (fg_fit_request){0};
  FG_EQ(fit_at(p, 1, r, NOW).barred, 0);
  card_drop(p);
  p = make((parts){.primary = "'output': {'max_tokens_whole': 5}, 'operations': {'streaming': false}"});
  r = (fg_fit_request){.max_output_tokens = 6, .stream = FG_STREAM_NO};
  FG_EQ(fit_at(p, 0, r, NOW).barred, FG_REASON_DOES_NOT_FIT_TOKENS); /* cannot stream either */
  r = (fg_fit_request){.stream = FG_STREAM_YES};
  FG_EQ(fit_at(p, 0, r, NOW).change, FG_CHANGE_NO_STREAM);
  card_drop(p);
}

static void features(void) {
  fg_policy *p = make((parts){.primary = "'input': {'modalities': ['text'], 'prefill': false}",
                              .provides = "'input': {'modalities': ['text', 'image']}, 'output': {'json_schema': true, 'citations': false}, 'tools': {'parallel_calls': true, 'names': ['a', 'b']}"});
  static const struct { uint32_t index, features, barred; } ROWS[] = {
      {0, FG_FEATURE_TEXT, 0}, {0, FG_FEATURE_IMAGE, FG_REASON_DOES_NOT_FIT_FEATURES}, {0, FG_FEATURE_PREFILL, FG_REASON_DOES_NOT_FIT_FEATURES},
      {0, FG_FEATURE_TOOLS | FG_FEATURE_REASONING | FG_FEATURE_STREAMING, 0}, {1, FG_FEATURE_IMAGE | FG_FEATURE_JSON_SCHEMA | FG_FEATURE_TOOLS | FG_FEATURE_PARALLEL_TOOLS, 0},
      {1, FG_FEATURE_CITATIONS, FG_REASON_DOES_NOT_FIT_FEATURES}, {1, FG_FEATURE_REASONING, FG_REASON_DOES_NOT_FIT_FEATURES},
      {1, FG_FEATURE_STREAMING, FG_REASON_DOES_NOT_FIT_FEATURES}, {1, FG_FEATURE_SYSTEM_PROMPT, FG_REASON_DOES_NOT_FIT_FEATURES}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    fg_fit_request r = {.features = ROWS[i].features};
    if (!FG_EQ(fit_at(p, ROWS[i].index, r, NOW).barred, ROWS[i].barred)) {
      printf("  row %zu\n", i);
    }
  }
  card_drop(p);
}

static void tools(void) {
  uint64_t ab[2] = {fg_contract_tool_hash("a", 1), fg_contract_tool_hash("b", 1)}, ac[2] = {ab[0], fg_contract_tool_hash("c", 1)};
  fg_fit_request two = {.tool_count = 2, .tool_hashes = ab, .features = FG_FEATURE_TOOLS}, other = {.tool_count = 2, .tool_hashes = ac};
  fg_policy *p = make((parts){.primary = "'tools': {'names': ['a', 'b']}", .provides = "'tools': {'names': ['b', 'a']}"});
  for (uint32_t i = 0; i < 2; i++) {
    FG_EQ(fit_at(p, i, two, NOW).barred, 0);
    FG_EQ(fit_at(p, i, other, NOW).barred, FG_REASON_DOES_NOT_FIT_TOOLS);
  }
  card_drop(p);
  p = make((parts){.primary = "'tools': {'names': []}", .provides = "'tools': {'names': ['*']}"});
  FG_EQ(fit_at(p, 0, two, NOW).barred, FG_REASON_DOES_NOT_FIT_TOOLS);
  FG_EQ(fit_at(p, 1, two, NOW).barred, 0);
  FG_EQ(fit_at(p, 1, other, NOW).barred, 0);
  card_drop(p);
  p = make((parts){.provides = ""});
  FG_EQ(fit_at(p, 0, two, NOW).barred, 0);
  FG_EQ(fit_at(p, 1, other, NOW).barred, FG_REASON_DOES_NOT_FIT_TOOLS);
  card_drop(p);
  /* Dropped tools ask for nothing; when none is left the feature is not needed either. */
  p = make((parts){.provides = "'tools': {'names': ['a']}", .contract = EVIDENCE ", 'changes': {'drop_tools': ['b']}"});
  fg_fit f = fit_at(p, 1, two, NOW);
  FG_CHECK(f.barred == 0 && f.change == FG_CHANGE_DROP_TOOLS);
  FG_EQ(fit_at(p, 1, other, NOW).barred, FG_REASON_DOES_NOT_FIT_TOOLS);
  card_drop(p);
  p = make((parts){.provides = "'tools': {'names': []}", .contract = EVIDENCE ", 'changes': {'drop_tools': ['*']}"});
  f = fit_at(p, 1, two, NOW);
  FG_CHECK(f.barred == 0 && f.change == FG_CHANGE_DROP_TOOLS);
  fg_fit_request none = {.features = FG_FEATURE_TOOLS};
  FG_EQ(fit_at(p, 1, none, NOW).barred, FG_REASON_DOES_NOT_FIT_FEATURES);
  card_drop(p);
}

static void data(void) {
  fg_policy *p = make((parts){.primary = "'data': {'regions': ['eu', 'us'], 'classes': ['public']}", .provides = "'data': {'regions': ['eu'], 'classes': ['public', 'pii']}"});
  uint32_t eu = (uint32_t)fg_policy_table_find(p, FG_POLICY_REGIONS, "eu", 2), us = (uint32_t)fg_policy_table_find(p, FG_POLICY_REGIONS, "us", 2);
  uint32_t pii = (uint32_t)fg_policy_table_find(p, FG_POLICY_CLASSES, "pii", 3), open = (uint32_t)fg_policy_table_find(p, FG_POLICY_CLASSES, "public", 6);
  uint32_t x = (uint32_t)fg_policy_table_find(p, FG_POLICY_ACCOUNTS, "x", 1), y = (uint32_t)fg_policy_table_find(p, FG_POLICY_ACCOUNTS, "y", 1);
  FG_CHECK(eu == 1 && us == 2 && open == 1 && pii == 2 && x == 1 && y == 2);
  FG_EQ(fg_policy_table_find(p, FG_POLICY_REGIONS, "jp", 2), -1);
  FG_EQ(fg_policy_table_find(p, FG_POLICY_REGIONS, "", 0), 0);
  FG_EQ(fg_policy_table_find(p, FG_POLICY_ACCOUNTS, "z", 1), -1);
  const struct { uint32_t index, region, class_, account, barred; } ROWS[] = {
      {0, eu, 0, 0, FG_REASON_DOES_NOT_FIT_REGION}, {1, eu, 0, 0, 0}, {1, us, 0, 0, FG_REASON_DOES_NOT_FIT_REGION}, {1, UINT32_MAX, 0, 0, FG_REASON_DOES_NOT_FIT_REGION},
      {0, UINT32_MAX, 0, 0, FG_REASON_DOES_NOT_FIT_REGION}, {0, 0, open, 0, 0}, {0, 0, pii, 0, FG_REASON_DOES_NOT_FIT_DATA}, {1, 0, pii, 0, 0},
      {1, 0, UINT32_MAX, 0, FG_REASON_DOES_NOT_FIT_DATA}, {0, 0, 0, x, 0}, {1, 0, 0, x, FG_REASON_DOES_NOT_FIT_ACCOUNT}, {1, 0, 0, y, 0},
      {0, 0, 0, UINT32_MAX, FG_REASON_DOES_NOT_FIT_ACCOUNT}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    fg_fit_request r = {.region = ROWS[i].region, .data_class = ROWS[i].class_, .account = ROWS[i].account};
    if (!FG_EQ(fit_at(p, ROWS[i].index, r, NOW).barred, ROWS[i].barred)) {
      printf("  row %zu\n", i);
    }
  }
  card_drop(p);
  p = make((parts){.provides = "", .requires = ""}); /* undeclared */
  fg_fit_request r = {.region = UINT32_MAX};
  FG_CHECK(fit_at(p, 0, r, NOW).barred == 0 && fit_at(p, 1, r, NOW).barred == FG_REASON_DOES_NOT_FIT_REGION);
  r = (fg_fit_request){.data_class = UINT32_MAX};
  FG_CHECK(fit_at(p, 0, r, NOW).barred == 0 && fit_at(p, 1, r, NOW).barred == FG_REASON_DOES_NOT_FIT_DATA);
  card_drop(p);
}

static void twins(void) {
  /* The model's own sections come from the primary; the account's have to be stated. */
  fg_policy *p = make((parts){.provider = "p", .primary = "'input': {'context_tokens': 100, 'prefill': true}, 'output': {'max_tokens': 50, 'json_schema': true}, 'tools': {'names': ['a']}",
                              .requires = "'input': {'context_tokens': 90}, 'quality': {'min_score_ppm': 999999}, 'tools': {'names': ['a']}", .contract = "'twin': true"});
  const fg_policy_standin *s = stand_in(p);
  FG_CHECK(s->barred == 0 && s->twin == 1 && s->expires_unix_ms == 0 && s->drop_ppm == 0 && s->score_ppm == 1000000 && s->prefill == 1);
  uint64_t a = fg_contract_tool_hash("a", 1);
  fg_fit_request r = {.prompt_tokens = 50, .max_output_tokens = 50, .features = FG_FEATURE_JSON_SCHEMA | FG_FEATURE_PREFILL, .tool_count = 1, .tool_hashes = &a};
  fg_fit f = fit_at(p, 1, r, INT64_MIN);
  FG_CHECK(f.barred == 0 && f.larger_ok == 1);
  r.prompt_tokens = 51;
  FG_EQ(fit_at(p, 1, r, INT64_MIN).barred, FG_REASON_DOES_NOT_FIT_TOKENS);
  card_drop(p);
  p = make((parts){.provider = "p", .primary = "'input': {'context_tokens': 100}", .provides = "'input': {'context_tokens': 10}", .contract = "'twin': true"}); /* its own word wins */
  r = (fg_fit_request){.prompt_tokens = 11};
  FG_EQ(fit_at(p, 1, r, INT64_MIN).barred, FG_REASON_DOES_NOT_FIT_TOKENS);
  card_drop(p);
  p = make((parts){.provider = "p", .requires = "'data': {'training': false}", .primary = "'data': {'training': false}", .contract = "'twin': true"});
  FG_EQ(stand_in(p)->barred, FG_REASON_CONTRACT_SECTION_FAILS);
  card_drop(p);
  p = make((parts){.provider = "p", .contract = "'twin': true, 'evidence': {'route': {'provider': 'p', 'model': 'm'}, 'primary': {'provider': 'p', 'model': 'm'}}"});
  FG_EQ(stand_in(p)->barred, 0);
  card_drop(p);
  p = make((parts){.provider = "p", .contract = "'twin': true, 'evidence': {'primary': {'provider': 'p', 'model': 'x'}}"}); /* what is said binds a twin, too */
  FG_EQ(stand_in(p)->barred, FG_REASON_CONTRACT_STALE);
  card_drop(p);
  p = make((parts){.provider = "p", .contract = "'twin': true, 'evidence': {'cases': 3}"}); /* half an evidence is not one */
  FG_EQ(stand_in(p)->barred, FG_REASON_MISSING_EVIDENCE);
  card_drop(p);
  p = make((parts){.provider = "p", .contract = "'twin': true, 'evidence': {'expires_at': '2027-02-01T00:00:00Z'}"}); /* a date alone still ends it */
  FG_CHECK(stand_in(p)->barred == 0 && fit_at(p, 1, (fg_fit_request){0}, 1801440000000).barred == FG_REASON_CONTRACT_EXPIRED);
  card_drop(p);
}

/* --------------------------------------------------------------------- dates */

static void calendar(void) {
  static const struct { const char *text; int64_t ms; } ROWS[] = {
      {"1970-01-01", 0}, {"1970-01-01T00:00:00Z", 0}, {"2000-02-29T12:34:56.789Z", 951827696789}, {"2026-11-01t00:00:00z", 1793491200000},
      {"2026-11-01 02:00:00+02:00", 1793491200000}, {"2026-10-31T18:30:00-05:30", 1793491200000}, {"9999-12-31T23:59:59Z", 253402300799000},
      {"2026-11-01T00:00:00.5Z", 1793491200500}, {"2026-11-01T00:00:00.123456789Z", 1793491200123}, {"2016-12-31T23:59:60Z", 1483228800000}};
  static const char *const BAD[] = {"", "2026", "2026-1-01", "2026-13-01", "2026-00-10", "2026-02-30", "1900-01-01", "2026-11-01T", "2026-11-01T00:00:00", "2026-11-01T24:00:00Z",
                                    "2026-11-01T00:60:00Z", "2026-11-01T00:00:00.Z", "2026-11-01T00:00:00+2", "2026-11-01T00:00:00+02:60", "2026-11-01T00:00:00Zx", "2026-11-01X00:00:00Z",
                                    "2026-11-0a", "x026-11-01", "2026-11-01T00:00:00.5", "2026-11-01T00:00:00+0200", "2100-02-29"};
  int64_t ms = 0;
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    FG_EQ(fg_number_date(ROWS[i].text, (uint32_t)strlen(ROWS[i].text), &ms), FG_NUMBER_OK);
    FG_EQ(ms, ROWS[i].ms);
  }
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
    if (!FG_EQ(fg_number_date(BAD[i], (uint32_t)strlen(BAD[i]), &ms), FG_NUMBER_BAD)) {
      printf("  %s\n", BAD[i]);
    }
  }
}

int main(void) {
  sections();
  prices();
  approved_prices();
  first_fault();
  evidence();
  measured_models();
  fingerprints();
  ladder_floor();
  dates();
  sizes();
  features();
  tools();
  data();
  twins();
  calendar();
  return fg_test_end("contract");
}
