/* Cards: good ones load with the expected warnings, bad ones fail at the expected place, defaults, no memory, big cards. */
#include "fg_test.h"

#include <cjson/cJSON.h>
#include <time.h>

#include "card_text.h"
#include "fg_scan.h"

#define LOAD_WORD(n, N, w) #w,
static const char *const CODES[] = {FG_LOAD_MAP(LOAD_WORD)};

static char *read_file(const char *path, size_t *len) {
  FILE *f = fopen(path, "rb");
  if (f == NULL) {
    printf("cannot read %s\n", path);
    exit(1);
  }
  size_t cap = 1 << 22;
  char *text = malloc(cap);
  *len = text != NULL ? fread(text, 1, cap - 1, f) : 0;
  fclose(f);
  if (text != NULL) {
    text[*len] = 0;
  }
  return text;
}

static const char *field(const cJSON *c, const char *key) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(c, key);
  return cJSON_IsString(v) ? v->valuestring : "";
}

static int32_t load(const char *text, uint64_t len, card_mem *counts, uint32_t flags, fg_policy **p, fg_error *err) {
  fg_mem mem = card_allocator(counts);
  memset(err, 0, sizeof *err);
  err->size = sizeof *err;
  return fg_card_load_flags(text, len, &mem, flags, p, err);
}

static int same(const char *got, const char *want, const char *name, const char *what) {
  int ok = strcmp(got, want) == 0;
  FG_CHECK(ok);
  if (!ok) {
    printf("  %s: %s is %s, not %s\n", name, what, got, want);
  }
  return ok;
}

/* ---------------------------------------------------------------- bad cards */

static void bad_card(const cJSON *c) {
  const char *name = field(c, "name");
  const cJSON *card = cJSON_GetObjectItemCaseSensitive(c, "card"), *line = cJSON_GetObjectItemCaseSensitive(c, "line");
  char *text = card != NULL ? cJSON_Print(card) : strdup(field(c, "text"));
  card_mem counts = {0, 0, 0, 0};
  fg_policy *p = NULL;
  fg_error err;
  int32_t got = load(text, strlen(text), &counts, 0, &p, &err);
  FG_CHECK(got != FG_OK && p == NULL && err.code == got);
  FG_EQ(counts.open, 0);
  same(err.what < FG_LOAD_COUNT ? CODES[err.what] : "?", field(c, "code"), name, "code");
  same(err.path, field(c, "path"), name, "path");
  FG_CHECK(strlen(err.message) > 10 && err.line > 0 && err.column > 0);
  if (cJSON_IsNumber(line)) {
    if (!FG_EQ(err.line, line->valueint)) {
      printf("  %s\n", name);
    }
  } else if (err.what != FG_LOAD_MISSING && err.what != FG_LOAD_SYNTAX) { /* the place is where the path is */
    uint32_t at_line = 0, at_column = 0, offset = 0;
    if (fg_scan_locate(text, strlen(text), err.path, 0, &at_line, &at_column, &offset) == FG_OK) {
      FG_EQ(err.line, at_line);
      FG_EQ(err.column, at_column);
    }
  }
  const char *near = field(c, "near");
  if (!FG_CHECK(strstr(err.message, near) != NULL)) {
    printf("  %s: %s\n", name, err.message);
  }
  int expected = got == FG_ERR_SYNTAX || got == FG_ERR_RANGE || got == FG_ERR_CONTRACT;
  FG_CHECK(expected && (got == FG_ERR_SYNTAX) == (err.what == FG_LOAD_SYNTAX));
  FG_EQ(strncmp(err.path, "contracts", 9) == 0, got == FG_ERR_CONTRACT);
  free(text);
}

/* --------------------------------------------------------------- good cards */

static void check_lint(const cJSON *c, const fg_policy *p, const char *text) {
  const char *name = field(c, "name");
  const cJSON *want = cJSON_GetObjectItemCaseSensitive(c, "lint");
  uint32_t n = 0;
  for (; ; n++) {
    fg_error e = {.size = sizeof e};
    if (fg_policy_lint(p, n, &e) != FG_OK) {
      break;
    }
    const cJSON *path = cJSON_GetArrayItem(want, (int)n);
    uint32_t line = 0, column = 0, offset = 0;
    FG_CHECK(e.line > 0 && strlen(e.message) > 10);
    if (!FG_CHECK(path != NULL && strcmp(path->valuestring, e.path) == 0)) {
      printf("  %s: warning %u is %s: %s\n", name, n, e.path, e.message);
    }
    if (fg_scan_locate(text, strlen(text), e.path, 0, &line, &column, &offset) == FG_OK) {
      FG_EQ(e.line, line);
      FG_EQ(e.column, column);
    }
  }
  FG_EQ(n, cJSON_GetArraySize(want));
}

static void check_copy(const fg_policy *p) {
  fg_str a, b;
  uint64_t bytes = fg_policy_bytes(p);
  fg_policy *copy = malloc((size_t)bytes);
  memcpy(copy, p, (size_t)bytes);
  FG_EQ(fg_policy_check(copy, bytes), FG_OK);
  for (uint32_t what = FG_FIND_ROUTE; what <= FG_FIND_ACCOUNT; what++) {
    for (uint32_t id = 1; id <= fg_policy_count(copy, what); id++) {
      FG_CHECK(fg_policy_name(p, what, id, &a) == FG_OK && fg_policy_name(copy, what, id, &b) == FG_OK && fg_str_eq(a, b) && a.ptr != b.ptr);
      FG_EQ(fg_policy_find(copy, what, b.ptr, b.len), id);
    }
  }
  free(copy);
}

static void no_memory(const char *text, uint32_t flags) {
  card_mem counts = {0, 0, 0, 0};
  for (uint64_t n = 1; n < 1000; n++) {
    fg_policy *p = NULL;
    fg_error err;
    counts.calls = 0;
    counts.fail_at = n;
    int32_t got = load(text, strlen(text), &counts, flags, &p, &err);
    if (got == FG_OK) {
      FG_EQ(counts.open, 1);
      fg_mem mem = card_allocator(&counts);
      fg_policy_free(p, &mem);
      FG_CHECK(n > 5 && counts.open == 0);
      return;
    }
    FG_EQ(got, FG_ERR_NOMEM);
    FG_EQ(err.code, FG_ERR_NOMEM);
    FG_CHECK(p == NULL && counts.open == 0 && strlen(err.message) > 0);
  }
  FG_CHECK(!"the card never loads");
}

static void good_card(const cJSON *c) {
  uint32_t flags = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "auto")) ? FG_CARD_AUTO_FINGERPRINT : 0;
  const cJSON *card = cJSON_GetObjectItemCaseSensitive(c, "card");
  char *text[2] = {cJSON_Print(card), cJSON_PrintUnformatted(card)};
  fg_policy *p[2] = {NULL, NULL};
  card_mem counts = {0, 0, 0, 0};
  fg_mem mem = card_allocator(&counts);
  fg_error err;
  for (uint32_t i = 0; i < 2; i++) {
    if (!FG_EQ(load(text[i], strlen(text[i]), &counts, flags, &p[i], &err), FG_OK)) {
      printf("  %s: %s %s\n", field(c, "name"), err.path, err.message);
      exit(1);
    }
    FG_EQ(counts.open, i + 1);
  }
  check_lint(c, p[0], text[0]);
  check_copy(p[0]);
  /* White space changes only where warnings are. */
  fg_policy_lint_entry *l[2];
  for (uint32_t i = 0; i < 2; i++) {
    l[i] = (fg_policy_lint_entry *)(void *)((char *)p[i] + p[i]->globals.lint_off);
    for (uint32_t k = 0; k < p[i]->globals.lint_count; k++) {
      l[i][k].line = l[i][k].column = 0;
    }
  }
  FG_CHECK(p[0]->bytes == p[1]->bytes && memcmp(p[0], p[1], (size_t)p[0]->bytes) == 0);
  no_memory(text[1], flags);
  for (uint32_t i = 0; i < 2; i++) {
    fg_policy_free(p[i], &mem);
    free(text[i]);
  }
  FG_EQ(counts.open, 0);
}

/* ----------------------------------------------------------------- defaults */

#define MINIMAL "{'version': 1, 'routes': {'m': {'provider': 'openai', 'model': 'gpt', %s}, 'b': {'provider': 'p', 'model': 'x', %s}},'workflows': {'w': {'routes': [%s] %s}}}"

static fg_policy *minimal(const char *main, const char *backup, const char *routes, const char *rest) {
  char text[2048];
  snprintf(text, sizeof text, MINIMAL, main, backup, routes, rest);
  return card_must(text, 0);
}

static void global_defaults(void) {
  fg_policy *p = minimal("'weight': 1", "'weight': 1", "'m','b'", "");
  const fg_policy_globals *g = &p->globals;
  FG_CHECK(g->has_seed == 0 && g->seed == 0 && p->hash_key.len == 0 && g->retries_per_hour == 0 && g->layers_product == 1);
  FG_CHECK(g->bucket_credit_milli == 100 && g->bucket_cap_milli == 10000 && g->bucket_start_milli == 3000 && g->bucket_trickle_milli == 1000);
  FG_CHECK(g->backoff_base_ms == 500 && g->backoff_rate_base_ms == 1000 && g->backoff_cap_ms == 20000 && g->retry_after_cap_ms == 60000);
  FG_CHECK(g->br_consecutive == 5 && g->br_window_ms == 60000 && g->br_min_calls == 8 && g->br_failure_ppm == 500000);
  FG_CHECK(g->br_open_ms == 10000 && g->br_open_max_ms == 20000 && g->br_jitter_ppm == 0 && g->br_probes == 1);
  FG_CHECK(g->br_lease_ms == 30000 && g->br_successes == 2 && g->br_stall == 1);
  FG_EQ(g->spend_per_day_nusd, -1);
  const fg_policy_route *r = fg_policy_routes(p);
  FG_CHECK(r->weight == 1 && r->price_input == -1 && r->price_cached == -1 && r->price_output == -1 && r->key != 0 && r->quota_owner_key == 0);
  FG_CHECK(r->lookup == FG_LOOKUP_METADATA_LIST && r[1].lookup == FG_LOOKUP_NONE && r->cancel_needs_stream == FG_CANCEL_YES);
  FG_CHECK(r->context_tokens == 0 && r->features_known == 0 && r->regions == 0 && r->tools_known == FG_TOOLS_UNKNOWN);
  fg_str account;
  FG_CHECK(fg_policy_name(p, FG_FIND_ACCOUNT, r->account + 1, &account) == FG_OK && FG_IS(account, "openai"));
  card_drop(p);
}

static void workflow_defaults(void) {
  static const uint32_t CLASS[FG_CLASS_COUNT] = {0, 3, 1, 1, 2, 2, 1};
  static const struct { const char *kind; uint32_t safe, silence, per_route, elapsed, queue, holds; } KINDS[] = {
      {"interactive", FG_SAFE_FIRST_VISIBLE, FG_SILENCE_STAND_IN, 2, 60000, 0, 1},
      {"batch", FG_SAFE_FIRST_VISIBLE, FG_SILENCE_ANY, 3, 600000, 1, 2},
      {"effectful", FG_SAFE_NOT_SENT, FG_SILENCE_NONE, 2, 600000, 0, 0}};
  for (uint32_t i = 0; i < 3; i++) {
    char rest[64];
    snprintf(rest, sizeof rest, ", 'kind': '%s'", KINDS[i].kind);
    fg_policy *p = minimal("'price': 'free'", "'price': {'input': 1, 'output': 2}", "'m','b'", rest);
    const fg_policy_workflow *w = fg_policy_workflows(p);
    FG_CHECK(w->kind == i && w->order_card == 0 && w->standin_count == 2 && w->ladder_count == 0 && w->after_visible == FG_AFTER_STOP);
    FG_CHECK(w->safe_until == KINDS[i].safe && w->after_silence == KINDS[i].silence && w->per_route == KINDS[i].per_route);
    FG_CHECK(w->total_attempts == 4 && w->call_resends == 6 && w->overload_retries == 1 && memcmp(w->per_class, CLASS, sizeof CLASS) == 0);
    FG_CHECK(w->elapsed_ms == KINDS[i].elapsed && w->call_elapsed_ms == UINT32_MAX && w->queue == KINDS[i].queue && w->queue_max_age_ms == 86400000);
    FG_CHECK(w->extra_cost_mode == FG_EXTRA_HOLDS && w->extra_cost_holds == KINDS[i].holds && w->extra_tokens_mode == FG_EXTRA_HOLDS);
    FG_CHECK(w->extra_tokens_holds == KINDS[i].holds && w->quality_drop_ppm == 1000000 && w->hold_ms == 3000 && w->slow_failure_ms == 10000);
    FG_CHECK(w->spill_mode == FG_SPILL_WHEN_NEEDED && w->spill_max_ppm == 1000000 && w->hedge_enabled == 0 && w->hedge_max_ppm == 20000);
    FG_CHECK(w->connect_ms == 5000 && w->idle_ms == 30000 && w->progress_ms == 60000 && w->first_token_ms == 0 && w->total_ms == 0);
    FG_CHECK(w->stop_on == (1 << FG_OWNER_AUTH | 1 << FG_OWNER_POLICY) && w->spend_per_day_nusd == -1 && w->finish_mask == 0 && w->schema_count == 0);
    FG_CHECK(w->standin[0].barred == 0 && w->standin[1].barred == FG_REASON_NOT_APPROVED && w->key != 0);
    card_drop(p);
  }
  fg_policy *p = minimal("'price': 'free'", "'weight': 1", "'m','b'", ""); /* one price unknown: money is not bounded */
  const fg_policy_workflow *w = fg_policy_workflows(p);
  FG_CHECK(w->extra_cost_mode == FG_EXTRA_FIXED && w->extra_cost_nusd == -1 && w->extra_tokens_mode == FG_EXTRA_HOLDS);
  card_drop(p);
  p = minimal("'price': 'free'", "'weight': 1", "'m'", ", 'kind': 'batch', 'budget': {'total_attempts': 7}"); /* one route: its share is all */
  FG_EQ(fg_policy_workflows(p)->per_route, 7);
  card_drop(p);
  p = minimal("'price': 'free'", "'weight': 1", "'m', 'b'", ", 'budget': {'total_attempts': 1}");
  FG_EQ(fg_policy_workflows(p)->per_route, 1);
  card_drop(p);
  p = minimal("'price': 'free'", "'weight': 1", "'m'", ", 'ladder': [{'step': 'smaller_model', 'route': 'b'}]");
  FG_CHECK(fg_policy_workflows(p)->per_route == 4 && fg_policy_workflows(p)->standin[1].ladder_only == 1);
  card_drop(p);
}

/* ------------------------------------------------------------------- values */

static void stated_values(void) {
  fg_policy *p = minimal("'price': {'input': 2.5, 'output': '10.000000001'}, 'key_env': 'K', 'on_cancel': {'stops': 'no', 'bills': true, 'needs_stream': false}",
                         "'price': {'input': 0.000000001, 'cached_input': 0, 'output': 999999.999999999}, 'account': 'x'", "'m', 'b'",
                         ", 'budget': {'extra_cost_usd': '0.08', 'extra_tokens': 0, 'per_class': {'server': 5, 'other': 1}, 'elapsed_ms': null},"
                         "'limits': {'spend_per_day_usd': 20}, 'stop_on': ['quota', 'unknown'], 'order': 'card', 'queue': {'max_age_ms': 5},"
                         "'requires': {'output': {'finish_reasons': ['stop', 'tool_calls'], 'refusal_form': 'answer'}, 'input': {'context_tokens': 77}},"
                         "'ladder': [{'step': 'cached', 'max_age_s': 9}, {'step': 'preset', 'text': {'en': 'no', 'zh': '\xe4\xb8\x8d'}}]");
  const fg_policy_route *r = fg_policy_routes(p);
  const fg_policy_workflow *w = fg_policy_workflows(p);
  fg_str s;
  FG_CHECK(r[0].price_input == 2500000000 && r[0].price_cached == 2500000000 && r[0].price_output == 10000000001);
  FG_CHECK(r[1].price_input == 1 && r[1].price_cached == 0 && r[1].price_output == 999999999999999);
  FG_CHECK(r[0].cancel_stops == FG_CANCEL_NO && r[0].cancel_bills == FG_CANCEL_YES && r[0].cancel_needs_stream == FG_CANCEL_NO);
  FG_CHECK(fg_policy_name(p, FG_FIND_ACCOUNT, r[0].account + 1, &s) == FG_OK && FG_IS(s, "openai:K"));
  FG_CHECK(w->extra_cost_mode == FG_EXTRA_FIXED && w->extra_cost_nusd == 80000000 && w->extra_tokens_mode == FG_EXTRA_FIXED && w->extra_tokens == 0);
  FG_CHECK(w->per_class[FG_CLASS_SERVER] == 5 && w->overload_retries == 5 && w->per_class[FG_CLASS_OTHER] == 1 && w->per_class[FG_CLASS_RATE] == 2);
  FG_CHECK(w->elapsed_ms == UINT32_MAX && w->spend_per_day_nusd == 20000000000 && w->order_card == 1 && w->queue == 1 && w->queue_max_age_ms == 5);
  FG_EQ(w->stop_on, 1 << FG_OWNER_QUOTA | 1 << FG_OWNER_UNKNOWN);
  FG_CHECK(w->finish_mask == (1 << FG_FINISH_STOP | 1 << FG_FINISH_TOOL_CALLS) && w->refusal_is_answer == 1 && w->needs_context_tokens == 77);
  FG_CHECK(w->ladder_count == 2 && w->ladder[0].step == FG_STEP_CACHED && w->ladder[0].max_age_s == 9 && w->ladder[1].text == 1);
  FG_CHECK(fg_policy_preset(p, 1, "en", 2, &s) == FG_OK && FG_IS(s, "no"));
  card_drop(p);
}

/* ------------------------------------------------------------ fingerprints */

static void fingerprints(void) {
  static const char *const SAME[] = {"{'version':1,'routes':{'m':{'provider':'p','model':'m','weight':2}},'workflows':{'w':{'routes':['m']}}}",
                                     "{ 'workflows': {'w': {'routes': ['m']}},\n 'routes': {'m': {'weight': 2.0, 'model': 'm', 'provider': 'p'}}, 'version': 1e0 }"};
  static const char OTHER[] = "{'version':1,'routes':{'m':{'provider':'p','model':'m','weight':3}},'workflows':{'w':{'routes':['m']}}}";
  fg_policy *a = card_must(SAME[0], 0), *b = card_must(SAME[1], 0), *c = card_must(OTHER, 0);
  fg_str fa, fb, fc;
  FG_CHECK(fg_policy_fingerprint(a, &fa) == FG_OK && fg_policy_fingerprint(b, &fb) == FG_OK && fg_policy_fingerprint(c, &fc) == FG_OK);
  FG_CHECK(fg_str_eq(fa, fb) && !fg_str_eq(fa, fc) && a->fingerprint_hash == b->fingerprint_hash && a->fingerprint_hash != c->fingerprint_hash);
  /* sha256 of {"routes":{"m":{"model":"m","provider":"p","weight":2}},"version":1,"workflows":{"w":{"routes":["m"]}}} */
  FG_EQ_BYTES(fa.ptr, fa.len, "sha256:05a79b1d773a5d85cbb274fd9025d73a26d9c6c4dbf7b5524fc8f7655920cfec");
  card_drop(a);
  card_drop(b);
  card_drop(c);
}

/* ------------------------------------------------------------------ big cards */

static void put(char **at, const char *text) {
  size_t n = strlen(text);
  memcpy(*at, text, n);
  *at += n;
}

/* Time is printed, not judged; what must hold is that names are found and nothing is quadratic enough to notice. */
static void many(uint32_t routes, uint32_t workflows) {
  char *text = malloc(routes * 400U + workflows * 600U + 1000), *at = text, buf[512];
  put(&at, "{\"version\":1,\"routes\":{");
  for (uint32_t i = 0; i < routes; i++) {
    snprintf(buf, sizeof buf, "%s\"route-%05u\":{\"provider\":\"openai\",\"model\":\"m-%u\",\"account\":\"a-%u\",\"base_url\":\"https://api.example.com/v1\",\"price\":{\"input\":2.5,"
             "\"output\":10},\"provides\":{\"input\":{\"context_tokens\":128000,\"modalities\":[\"text\",\"image\"]},\"output\":{\"max_tokens\":16384}}}", i > 0 ? "," : "", i, i % 50, i % 200);
    put(&at, buf);
  }
  put(&at, "},\"workflows\":{");
  for (uint32_t i = 0; i < workflows; i++) {
    snprintf(buf, sizeof buf, "%s\"workflow-%04u\":{\"routes\":[\"route-%05u\",\"route-%05u\"],\"budget\":{\"total_attempts\":3,\"extra_cost_usd\":0.08},\"requires\":{\"input\":{\"context_tokens\":"
             "16000}},\"ladder\":[{\"step\":\"preset\",\"text\":{\"en\":\"Sorry.\"}}]}", i > 0 ? "," : "", i, i % routes, (i + 1) % routes);
    put(&at, buf);
  }
  put(&at, "}}");
  card_mem counts = {0, 0, 0, 0};
  fg_mem mem = card_allocator(&counts);
  fg_policy *p = NULL;
  fg_error err;
  struct timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  FG_EQ(load(text, (uint64_t)(at - text), &counts, 0, &p, &err), FG_OK);
  clock_gettime(CLOCK_MONOTONIC, &t1);
  printf("%u routes, %u workflows, %ld bytes: %ld ms\n", routes, workflows, (long)(at - text), (long)((t1.tv_sec - t0.tv_sec) * 1000 + (t1.tv_nsec - t0.tv_nsec) / 1000000));
  FG_CHECK(fg_policy_count(p, FG_FIND_ROUTE) == routes && fg_policy_count(p, FG_FIND_WORKFLOW) == workflows && fg_policy_count(p, FG_FIND_ACCOUNT) == (routes < 200 ? routes : 200));
  snprintf(buf, sizeof buf, "route-%05u", routes - 1);
  FG_EQ(fg_policy_find(p, FG_FIND_ROUTE, buf, (uint32_t)strlen(buf)), routes);
  FG_EQ(fg_policy_check(p, fg_policy_bytes(p)), FG_OK);
  fg_policy_free(p, &mem);
  free(text);
}

static void limits_of_size(void) {
  card_mem counts = {0, 0, 0, 0};
  fg_policy *p = NULL;
  fg_error err;
  size_t len = (16u << 20) + 1;
  char *text = malloc(len);
  memset(text, ' ', len);
  FG_EQ(load(text, len, &counts, 0, &p, &err), FG_ERR_RANGE);
  FG_EQ(err.what, FG_LOAD_LIMIT);
  len = 9000000; /* a list of ones */
  for (size_t i = 1; i < len - 1; i++) {
    text[i] = i % 2 == 0 ? ',' : '1';
  }
  text[0] = '[';
  len -= len % 2 == 0 ? 1 : 0; /* ends with a one and the bracket */
  text[len - 1] = ']';
  FG_EQ(load(text, len, &counts, 0, &p, &err), FG_ERR_RANGE);
  FG_EQ(err.what, FG_LOAD_LIMIT);
  free(text);
  FG_EQ(counts.open, 0);
}

/* A warning is where its key is, also when the key is written in escapes. */
static void escaped_keys(void) {
  static const char CARD[] = "{\"version\": 1,\n \"routes\": {\"m\": {\"provider\": \"p\", \"model\": \"m\"},\n  \"\\u0436\\ud83d\\ude00\\n\\/x\": {\"provider\": \"p\", \"model\": \"m\"}},\n"
                             " \"workflows\": {\"w\": {\"kind\": \"batch\", \"routes\": [\"m\"]}}}";
  char plain[sizeof CARD];
  memcpy(plain, CARD, sizeof CARD);
  char *n = strstr(plain, "\\n"); /* a control byte is no name: write a letter */
  memcpy(n, "\\t", 2);
  card_mem counts = {0, 0, 0, 0};
  fg_mem mem = card_allocator(&counts);
  fg_policy *p = NULL;
  fg_error err;
  FG_EQ(load(CARD, sizeof CARD - 1, &counts, 0, &p, &err), FG_ERR_RANGE);
  FG_CHECK(err.what == FG_LOAD_BAD_VALUE && err.line == 3);
  memcpy(strstr(plain, "\\t"), "yz", 2);
  FG_EQ(load(plain, sizeof CARD - 1, &counts, 0, &p, &err), FG_OK);
  FG_EQ(fg_policy_lint(p, 0, &err), FG_OK);
  FG_EQ_STR(err.path, "routes.\xd0\xb6\xf0\x9f\x98\x80yz/x");
  FG_CHECK(err.line == 3 && err.column == 3);
  fg_policy_free(p, &mem);
}

/* Warnings name the word that was likely meant, and what can never be paid. */
static void lint_words(void) {
  static const struct { const char *card, *path, *words; } CASES[] = {
      {"{'version': 1, 'routes': {'m': {'provider': 'opnai', 'model': 'm'}}, 'workflows': {'w': {'kind': 'batch', 'routes': ['m'], 'queue': true}}}", "routes.m.provider",
       "did you mean \"openai\"?"},
      {"{'version': 1, 'routes': {'m': {'provider': 'p', 'model': 'm', 'api': 'respones'}}, 'workflows': {'w': {'kind': 'batch', 'routes': ['m'], 'queue': true}}}", "routes.m.api",
       "did you mean \"responses\"?"},
      {"{'version': 1, 'routes': {'m': {'provider': 'p', 'model': 'm', 'price': {'input': 1, 'output': 2}}, 'n': {'provider': 'q', 'model': 'n', 'price': {'input': 1, "
       "'output': 3}}}, 'workflows': {'w': {'kind': 'batch', 'queue': true, 'routes': ['m', 'n'], 'budget': {'extra_cost_usd': 0}}}}",
       "workflows.w.routes[1]", "never paid for"},
  };
  static const char *const SOUND[] = {
      "{'version': 1, 'routes': {'m': {'provider': 'openai', 'model': 'm', 'api': 'converse'}}, 'workflows': {'w': {'kind': 'batch', 'routes': ['m'], 'queue': true}}}",
      "{'version': 1, 'routes': {'m': {'provider': 'groq', 'model': 'm', 'api': 'native'}}, 'workflows': {'w': {'kind': 'batch', 'routes': ['m'], 'queue': true}}}",
  };
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
    fg_policy *p = card_must(CASES[i].card, 0);
    fg_error err = {.size = sizeof err};
    int found = 0;
    for (uint32_t k = 0; fg_policy_lint(p, k, &err) == FG_OK; k++) {
      found |= strcmp(err.path, CASES[i].path) == 0 && strstr(err.message, CASES[i].words) != NULL;
    }
    if (!FG_CHECK(found)) {
      printf("  %s\n", CASES[i].words);
    }
    card_drop(p);
  }
  for (size_t i = 0; i < sizeof SOUND / sizeof SOUND[0]; i++) {
    fg_policy *p = card_must(SOUND[i], 0);
    fg_error err = {.size = sizeof err};
    FG_EQ(fg_policy_lint(p, 0, &err), FG_ERR_RANGE);
    card_drop(p);
  }
}

static void arguments(void) {
  card_mem counts = {0, 0, 0, 0};
  fg_mem mem = card_allocator(&counts), none = {NULL, NULL, NULL};
  fg_policy *p = (fg_policy *)(void *)&counts;
  fg_error small = {.size = 24};
  FG_EQ(fg_card_load("x", 1, &mem, NULL, NULL), FG_ERR_ARG);
  FG_EQ(fg_card_load(NULL, 1, &mem, &p, NULL), FG_ERR_ARG);
  FG_CHECK(p == NULL);
  FG_EQ(fg_card_load("x", 1, NULL, &p, NULL), FG_ERR_ARG);
  FG_EQ(fg_card_load("x", 1, &none, &p, NULL), FG_ERR_ARG);
  FG_EQ(fg_card_load("x", 1, &mem, &p, NULL), FG_ERR_SYNTAX);
  FG_EQ(fg_card_load("{\n\"version\": 2}", 15, &mem, &p, &small), FG_ERR_RANGE);
  FG_CHECK(small.line == 2 && small.code == FG_ERR_RANGE && small.path[0] == 0 && small.size == 24);
  fg_policy_free(NULL, &mem);
}

int main(void) {
  const char *root = getenv("FG_SOURCE_ROOT");
  char path[4096];
  size_t len = 0;
  snprintf(path, sizeof path, "%s/tests/cards/cards.json", root != NULL ? root : ".");
  char *text = read_file(path, &len);
  cJSON *all = cJSON_ParseWithLength(text, len);
  const cJSON *c = NULL;
  FG_CHECK(all != NULL);
  uint32_t good = 0, bad = 0;
  cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(all, "bad")) {
    bad_card(c);
    bad++;
  }
  cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(all, "good")) {
    good_card(c);
    good++;
  }
  FG_CHECK(good >= 7 && bad >= 180);
  global_defaults();
  workflow_defaults();
  stated_values();
  fingerprints();
  many(10000, 1000);
  many(3, 5000);
  limits_of_size();
  escaped_keys();
  lint_words();
  arguments();
  cJSON_Delete(all);
  free(text);
  return fg_test_end("card");
}
