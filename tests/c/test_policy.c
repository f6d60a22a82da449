/* The policy block: accessors, refusals, presets, and noise in every byte. */
#include "fg_test.h"

#include "card_text.h"

static const char CARD[] =
    "{'version': 1, 'routes': {'main': {'provider': 'openai', 'model': 'gpt', 'account': 'acct', 'base_url': 'https://x/v1', 'key_env': 'KEY', 'api': 'chat', 'price': {'input': 2, 'output': 8},"
    "'provides': {'input': {'modalities': ['text']}, 'tools': {'names': ['a', 'b']}, 'data': {'regions': ['eu'], 'classes': ['pii']}}}, 'other': {'provider': 'p', 'model': 'm'}},"
    "'workflows': {'one': {'routes': ['main', 'other'], 'requires': {'output': {'schema': {'type': 'object', 'properties': {'a': {'enum': ['x', 1]}, 'l': {'items': {}}}}}},"
    "'ladder': [{'step': 'preset', 'text': {'en': 'Hello', 'zh-Hant': '\xe6\x82\xa8', 'de': 'Hallo', 'de-AT': 'Servus'}}]}, 'two': {'routes': ['other'], 'ladder': [{'step': 'preset', 'text': 'Bye'}]}},"
    "'contracts': [{'workflow': 'one', 'route': 'other', 'fingerprint': 'auto', 'changes': {'drop_tools': ['a']}}],"
    "'classify': [{'when': {'status': 500, 'header': {'x-a': 'y'}}, 'then': {'owner': 'rate', 'why': 'because'}}]}";

static void accessors(const fg_policy *p) {
  fg_str s = {NULL, 0, 0};
  fg_route_info r = {.size = sizeof r};
  uint32_t barred = 99;
  FG_EQ(fg_policy_count(p, FG_FIND_ROUTE), 2);
  FG_EQ(fg_policy_count(p, FG_FIND_WORKFLOW), 2);
  FG_EQ(fg_policy_count(p, FG_FIND_ACCOUNT), 2);
  FG_EQ(fg_policy_count(p, 4), 0);
  FG_EQ(fg_policy_find(p, FG_FIND_ROUTE, "other", 5), 2);
  FG_EQ(fg_policy_find(p, FG_FIND_WORKFLOW, "two", 3), 2);
  FG_EQ(fg_policy_find(p, FG_FIND_ROUTE, "otherx", 6), 0);
  FG_EQ(fg_policy_find(p, FG_FIND_ROUTE, "", 0), 0);
  FG_EQ(fg_policy_find(p, FG_FIND_ROUTE, NULL, 3), 0);
  FG_EQ(fg_policy_find(p, 9, "other", 5), 0);
  FG_CHECK(fg_policy_name(p, FG_FIND_ACCOUNT, 2, &s) == FG_OK && FG_IS(s, "p"));
  FG_EQ(fg_policy_name(p, FG_FIND_ACCOUNT, 3, &s), FG_ERR_ARG);
  FG_EQ(fg_policy_name(p, FG_FIND_ACCOUNT, 0, &s), FG_ERR_ARG);
  FG_EQ(fg_policy_name(p, FG_FIND_ACCOUNT, 1, NULL), FG_ERR_ARG);
  FG_EQ(fg_policy_route_info(p, 1, &r), FG_OK);
  FG_CHECK(FG_IS(r.name, "main") && FG_IS(r.provider, "openai") && FG_IS(r.model, "gpt") && FG_IS(r.base_url, "https://x/v1") && FG_IS(r.key_env, "KEY"));
  FG_CHECK(FG_IS(r.api, "chat") && FG_IS(r.account_name, "acct") && r.account == 1 && r.price_input == 2000000000 && r.price_output == 8000000000);
  FG_EQ(fg_policy_route_info(p, 2, &r), FG_OK);
  FG_CHECK(r.base_url.len == 0 && r.base_url.ptr != NULL && r.price_input == -1 && r.size == sizeof r);
  FG_EQ(fg_policy_route_info(p, 3, &r), FG_ERR_ARG);
  r.size = 4;
  FG_EQ(fg_policy_route_info(p, 1, &r), FG_ERR_ABI);
  FG_CHECK(fg_policy_contract(p, 1, 2, &barred, &s) == FG_OK && barred == FG_REASON_MISSING_EVIDENCE && s.len == 71);
  FG_CHECK(fg_policy_contract(p, 1, 1, &barred, &s) == FG_OK && barred == 0);
  FG_EQ(fg_policy_contract(p, 2, 1, &barred, &s), FG_ERR_ARG);
  FG_EQ(fg_policy_contract(p, 3, 1, &barred, &s), FG_ERR_ARG);
  FG_EQ(fg_policy_drops_tool(p, 1, 2, "mail", 4), 0);
  FG_EQ(fg_policy_drops_tool(p, 1, 1, NULL, 0), 0);
  FG_EQ(fg_policy_drops_tool(p, 3, 1, "mail", 4), FG_ERR_ARG);
  FG_EQ(fg_policy_drops_tool(NULL, 1, 1, "mail", 4), FG_ERR_ARG);
}

static void preset(const fg_policy *p, const char *language, const char *want) {
  fg_str s = {NULL, 0, 0};
  FG_EQ(fg_policy_preset(p, 1, language, language != NULL ? (uint32_t)strlen(language) : 0, &s), FG_OK);
  FG_EQ_BYTES(s.ptr, s.len, want);
}

static void presets(const fg_policy *p) {
  fg_str s = {NULL, 0, 0};
  preset(p, NULL, "Hello");
  preset(p, "", "Hello");
  preset(p, "en", "Hello");
  preset(p, "EN-gb", "Hello");
  preset(p, "de", "Hallo");
  preset(p, "de-AT", "Servus");
  preset(p, "de_CH", "Hallo");
  preset(p, "zh-hant", "\xe6\x82\xa8");
  preset(p, "fr", "Hello");
  FG_CHECK(fg_policy_preset(p, 2, "de", 2, &s) == FG_OK && FG_IS(s, "Bye"));
  FG_EQ(fg_policy_preset(p, 3, "de", 2, &s), FG_ERR_ARG);
  FG_EQ(fg_policy_preset(p, 0, "de", 2, &s), FG_ERR_ARG);
}

/* Everything the accessors can be asked; only that nothing breaks matters. */
static void ask_all(const fg_policy *p) {
  fg_str s;
  fg_route_info r = {.size = sizeof r};
  fg_error e = {.size = sizeof e};
  uint32_t barred;
  fg_policy_bytes(p);
  fg_policy_fingerprint(p, &s);
  for (uint32_t what = 0; what < 5; what++) {
    fg_policy_count(p, what);
    fg_policy_find(p, what, "main", 4);
    for (uint32_t id = 0; id < 4; id++) {
      fg_policy_name(p, what, id, &s);
    }
  }
  for (uint32_t id = 0; id < 4; id++) {
    fg_policy_route_info(p, id, &r);
    fg_policy_preset(p, id, "de-AT", 5, &s);
    fg_policy_lint(p, id, &e);
    fg_policy_contract(p, id, 2, &barred, &s);
    fg_policy_table_find(p, id, "eu", 2);
  }
}

static void noise(const fg_policy *p) {
  uint64_t bytes = fg_policy_bytes(p), random = 88172645463325252u;
  char *copy = malloc((size_t)bytes);
  fg_policy *q = (fg_policy *)(void *)copy;
  uint32_t passed = 0;
  for (uint64_t at = 0; at < bytes; at++) { /* each byte in turn, by three values */
    for (uint32_t k = 0; k < 3; k++) {
      memcpy(copy, p, (size_t)bytes);
      copy[at] = (char)(k == 0 ? 0xFF : k == 1 ? copy[at] ^ 1 : copy[at] + 0x40);
      passed += fg_policy_check(q, bytes) == FG_OK;
      ask_all(q);
    }
  }
  FG_CHECK(passed < 3 * bytes);
  for (uint32_t round = 0; round < 3000; round++) { /* many bytes at once, the head mostly sound */
    memcpy(copy, p, (size_t)bytes);
    for (uint32_t k = 0; k < 24; k++) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      copy[16 + random % (bytes - 16)] = (char)(random >> 40);
    }
    fg_policy_check(q, bytes);
    ask_all(q);
  }
  for (uint64_t i = 0; i < bytes; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    copy[i] = (char)(random >> 56);
  }
  FG_CHECK(fg_policy_check(q, bytes) != FG_OK && fg_policy_bytes(q) == 0);
  ask_all(q);
  memset(copy, 0, (size_t)bytes);
  FG_CHECK(fg_policy_check(q, bytes) != FG_OK);
  free(copy);
}

static void refusals(const fg_policy *p) {
  fg_str s;
  fg_error e = {.size = sizeof e}, small = {.size = 4};
  uint64_t bytes = fg_policy_bytes(p);
  FG_EQ(fg_policy_check(p, bytes), FG_OK);
  FG_EQ(fg_policy_check(p, bytes - 8), FG_ERR_RANGE);
  FG_EQ(fg_policy_check(p, bytes + 8), FG_ERR_RANGE);
  FG_EQ(fg_policy_check(p, 8), FG_ERR_RANGE);
  FG_EQ(fg_policy_check(NULL, bytes), FG_ERR_ARG);
  FG_EQ(fg_policy_check((const fg_policy *)(const void *)((const char *)p + 4), bytes), FG_ERR_ARG);
  FG_EQ(fg_policy_bytes(NULL), 0);
  FG_EQ(fg_policy_fingerprint(NULL, &s), FG_ERR_ARG);
  FG_EQ(fg_policy_fingerprint(p, NULL), FG_ERR_ARG);
  FG_EQ(fg_policy_lint(p, 0, &e), FG_OK);
  FG_EQ(fg_policy_lint(p, 1000, &e), FG_ERR_RANGE);
  FG_EQ(fg_policy_lint(p, 0, &small), FG_ERR_ABI);
  FG_EQ(fg_policy_lint(p, 0, NULL), FG_ERR_ARG);
  ask_all(NULL);
}

/* A route's history belongs to what it is, not to its name alone. */
static void keys(void) {
  static const char *const ROUTES[] = {"'provider': 'p', 'model': 'm'", "'provider': 'q', 'model': 'm'", "'provider': 'p', 'model': 'n'", "'provider': 'p', 'model': 'm', 'base_url': 'https://b'",
                                       "'provider': 'p', 'model': 'm', 'account': 'z'", "'provider': 'p', 'model': 'm', 'key_env': 'K'"};
  uint64_t key[6], again = 0;
  for (uint32_t i = 0; i < 7; i++) {
    char text[512];
    snprintf(text, sizeof text, "{'version': 1, 'routes': {%s 'r': {%s, 'weight': %u}}, 'workflows': {'w': {'routes': ['r']}}}", i == 6 ? "'first': {'provider': 'x', 'model': 'y'}," : "", ROUTES[i % 6], i);
    fg_policy *p = card_must(text, 0);
    uint32_t id = fg_policy_find(p, FG_FIND_ROUTE, "r", 1);
    *(i < 6 ? &key[i] : &again) = fg_policy_routes(p)[id - 1].key;
    card_drop(p);
  }
  FG_CHECK(again == key[0] && again != 0);
  for (uint32_t i = 0; i < 6; i++) {
    for (uint32_t k = 0; k < i; k++) {
      FG_CHECK(key[i] != key[k]);
    }
  }
}

/* Rules, as the classifier reads them. */
static void rules(void) {
  fg_policy *p = card_must(
      "{'version': 1, 'routes': {'r': {'provider': 'p', 'model': 'm'}}, 'workflows': {'w': {'routes': ['r']}}, 'classify': ["
      "{'when': {'provider': ['a', 'b*'], 'status': [429, '5xx'], 'phase': ['response', 'body'], 'code': 1302, 'message': 'Try  Again Later', 'header': {'X-Up': true, 'server': ['n', 'e*']}},"
      " 'then': {'owner': 'quota', 'kind': 'quota_exhausted', 'class': 'other', 'period': 'day', 'overload': false, 'trips_breaker': true, 'retry_after_ms': 0, 'why': 'w'}},"
      "{'when': {'lib': 'x', 'message': ['Two Words', 'three']}, 'then': {'scope': 'network'}}]}", 0);
  uint32_t count = 0;
  const fg_rule *r = fg_policy_rules(p, &count);
  const char *pool = fg_policy_pool(p);
  FG_EQ(count, 2);
  FG_EQ_BYTES(pool + r[0].provider.off, r[0].provider.len, "a|b*");
  FG_CHECK(r[0].status[0] == 429 && r[0].status[1] == 5 && r[0].status[2] == 0 && r[0].phases == (1 << FG_PHASE_RESPONSE | 1 << FG_PHASE_BODY));
  FG_EQ_BYTES(pool + r[0].code.off, r[0].code.len, "1302");
  FG_EQ_BYTES(pool + r[0].message.off, r[0].message.len, "try&again&later");
  FG_EQ_BYTES(pool + r[0].header[0].off, r[0].header[0].len, "x-up");
  FG_EQ(r[0].header_value[0].len, 0);
  FG_EQ_BYTES(pool + r[0].header[1].off, r[0].header[1].len, "server");
  FG_EQ_BYTES(pool + r[0].header_value[1].off, r[0].header_value[1].len, "n|e*");
  FG_CHECK(r[0].set_owner == FG_OWNER_QUOTA + 1 && r[0].set_kind == FG_KIND_QUOTA_EXHAUSTED + 1 && r[0].set_class == FG_CLASS_OTHER + 1 && r[0].set_period == FG_PERIOD_DAY + 1);
  FG_CHECK(r[0].set_overload == 1 && r[0].set_trips_breaker == 2 && r[0].set_should_retry == 0 && r[0].set_scope == 0 && r[0].has_retry_after == 1 && r[0].retry_after_ms == 0);
  FG_EQ_BYTES(pool + r[0].why.off, r[0].why.len, "w");
  FG_EQ_BYTES(pool + r[1].message.off, r[1].message.len, "two words&three");
  FG_CHECK(r[1].set_scope == FG_SCOPE_NETWORK + 1 && r[1].set_owner == 0 && r[1].why.len > 0 && r[1].has_retry_after == 0);
  card_drop(p);
}

int main(void) {
  fg_policy *p = card_must(CARD, FG_CARD_AUTO_FINGERPRINT);
  accessors(p);
  presets(p);
  refusals(p);
  noise(p);
  keys();
  rules();
  card_drop(p);
  return fg_test_end("policy");
}
