/* The index of the built-in rules against the rules themselves, over the
 * labelled cases' words and random mixtures; the forms of conditions. */
#include <stdlib.h>
#include "fg_builtin.h"
#include "fg_keys.h"
#include "fg_kinds.h"
#include "fg_test.h"

static uint64_t seed = 88172645463325252u;
static uint32_t draw(uint32_t n) { /* xorshift64 (Marsaglia 2003) */
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (uint32_t)(seed >> 33) % n;
}

/* The first rule of a part by looking at each. */
static int32_t slowly(uint32_t part, const fg_rule_input *in) {
  uint32_t n = fg_builtin_count();
  const char *pool;
  uint32_t first = fg_builtin_transport_count();
  uint32_t from = part == FG_BUILTIN_TRANSPORT ? 0 : first, end = part == FG_BUILTIN_TRANSPORT ? first : n;
  for (uint32_t i = from; i < end; i++) {
    const fg_rule *r = fg_builtin_rule(i, &pool);
    if (fg_rule_holds(r, pool, in)) {
      return (int32_t)i;
    }
  }
  return -1;
}

/* A random alternative of a random rule's condition, as evidence would spell it. */
static uint32_t pick(char *out, uint32_t cap, int message) {
  const char *pool;
  for (;;) {
    const fg_rule *r = fg_builtin_rule(draw(fg_builtin_count()), &pool);
    fg_rtext t = message ? r->message : draw(3) ? r->error : r->provider;
    if (t.len == 0) {
      continue;
    }
    uint32_t at = draw(t.len), from = at, to = at;
    while (from > 0 && pool[t.off + from - 1] != '|') {
      from--;
    }
    while (to < t.len && pool[t.off + to] != '|') {
      to++;
    }
    uint32_t n = 0;
    for (uint32_t i = from; i < to && n < cap; i++) {
      char c = pool[t.off + i];
      if (c == '*') {
        continue;
      }
      out[n++] = c == '&' ? ' ' : draw(8) == 0 && !message && c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
    }
    return n;
  }
}

static void index_agrees(void) {
  static const int32_t statuses[] = {100, 200, 400, 401, 402, 403, 404, 408, 413, 422, 424, 429, 498, 500, 501, 502, 503, 504, 520, 524, 529, 530};
  static const char *const providers[] = {"", "openai", "zhipu", "minimax", "Gemini", "vertex-ai", "dashscope", "bedrock", "qianfan", "openrouter", "workers-ai"};
  static const char *const libs[] = {"", "libcurl", "pycurl", "httpx"};
  static char names[1024], text[4096];
  unsigned hits = 0;
  for (int round = 0; round < 60000; round++) {
    fg_rule_input in;
    fg_found found;
    memset(&in, 0, sizeof in);
    uint32_t used = 0, len = 0;
    for (uint32_t k = draw(3); k > 0; k--) {
      uint32_t n = pick(names + used, 90, 0);
      in.name[in.name_count].ptr = names + used;
      in.name[in.name_count].len = (uint16_t)n;
      in.name[in.name_count++].what = (uint16_t)(1u << draw(3));
      used += n;
    }
    for (uint32_t k = draw(4); k > 0; k--) {
      len += pick(text + len, 400, 1);
      text[len++] = draw(2) ? ' ' : draw(2) ? 'x' : '\n';
    }
    in.message = fg_str_make(text, len);
    in.provider = fg_str_of(providers[draw(FG_ARRAY_LEN(providers))]);
    in.lib = fg_str_of(libs[draw(FG_ARRAY_LEN(libs))]);
    in.status = statuses[draw(FG_ARRAY_LEN(statuses))];
    in.phase = draw(FG_PHASE_COUNT);
    fg_rule_index(&in);
    fg_builtin_look(&in, &found);
    for (uint32_t part = FG_BUILTIN_TRANSPORT; part <= FG_BUILTIN_ANSWER; part++) {
      const fg_rule *r = NULL;
      int32_t fast = fg_builtin_match(part, &in, &found, &r), slow = slowly(part, &in);
      hits += fast >= 0;
      if (fast != slow) {
        FG_EQ(fast, slow);
        printf("  %.*s | %.*s\n", (int)len, text, (int)used, names);
        return;
      }
    }
  }
  FG_CHECK(hits > 20000);
}

static void every_rule(void) {
  for (uint32_t i = 0; i < fg_builtin_count(); i++) {
    const char *pool;
    const fg_rule *r = fg_builtin_rule(i, &pool);
    FG_CHECK(r->why.len > 0);
    FG_EQ_STR(fg_builtin_why(i), pool + r->why.off);
    FG_CHECK(r->set_kind > 0);
  }
  FG_EQ_STR(fg_builtin_why(100000), "");
}

/* One rule over one input. */
static int holds(const char *error, const char *message, const char *provider, const char *name, const char *text, const char *who) {
  static char pool[512];
  fg_rule r;
  fg_rule_input in;
  memset(&r, 0, sizeof r);
  memset(&in, 0, sizeof in);
  uint32_t at = 0;
  const char *const texts[] = {error, message, provider};
  fg_rtext *const to[] = {&r.error, &r.message, &r.provider};
  for (int i = 0; i < 3; i++) {
    to[i]->off = at;
    to[i]->len = (uint32_t)strlen(texts[i]);
    memcpy(pool + at, texts[i], to[i]->len);
    at += to[i]->len;
  }
  in.name[0] = (fg_rule_name){name, (uint16_t)strlen(name), FG_NAME_CODE};
  in.name_count = name[0] != 0;
  in.message = fg_str_of(text);
  in.provider = fg_str_of(who);
  in.status = 429;
  fg_rule_index(&in);
  return fg_rule_holds(&r, pool, &in);
}

static void forms(void) {
  FG_CHECK(holds("a|b", "", "", "B", "", ""));
  FG_CHECK(!holds("a|b", "", "", "c", "", ""));
  FG_CHECK(!holds("a|b", "", "", "", "", ""));
  FG_CHECK(holds("rate*", "", "", "RateLimitExceeded.X", "", ""));
  FG_CHECK(!holds("rate*", "", "", "my_rate", "", ""));
  FG_CHECK(holds("*perday*", "", "", "GenerateRequestsPerDayPerProject", "", ""));
  FG_CHECK(holds("", "credit balance", "", "", "your credit balance is low", ""));
  FG_CHECK(!holds("", "edit balance", "", "", "your credit balance is low", "")); /* not at a word's start */
  FG_CHECK(holds("", "low&credit", "", "", "your credit balance is low", ""));
  FG_CHECK(!holds("", "low&debit", "", "", "your credit balance is low", ""));
  FG_CHECK(holds("", "low&debit|credit", "", "", "your credit balance is low", ""));
  FG_CHECK(holds("", "\xe4\xbd\x99\xe9\xa2\x9d", "", "", "\xe7\x9a\x84\xe4\xbd\x99\xe9\xa2\x9d\xe4\xb8\x8d\xe8\xb6\xb3", ""));
  FG_CHECK(holds("", "ok", "", "", "so ok", ""));
  FG_CHECK(!holds("", "toolong", "", "", "too", ""));
  FG_CHECK(holds("", "", "azure*", "", "", "Azure-OpenAI"));
  FG_CHECK(!holds("", "", "azure", "", "", "azure-openai"));
}

static void keys_sorted(void) {
  static const char *const names[] = {
#define NAME(N, w) w,
      FG_KEY_MAP(NAME)};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(names); i++) {
    FG_CHECK(i == 0 || strlen(names[i - 1]) <= strlen(names[i]));
    FG_EQ(fg_key(names[i], (uint32_t)strlen(names[i])), i + 1);
  }
  FG_EQ(fg_key("Finish_Reason", 13), FG_K_FINISHREASON);
  FG_EQ(fg_key("__type", 6), FG_K_TYPE);
  FG_EQ(fg_key("no such member", 14), FG_K_NONE);
  FG_EQ(fg_key("", 0), FG_K_NONE);
}

static void kinds_sound(void) {
  for (uint32_t k = 0; k < FG_KIND_COUNT; k++) {
    const fg_kind_facts *f = fg_kind_of(k);
    int over = (f->flags & FG_FAIL_OVERLOAD) != 0, trips = (f->flags & FG_FAIL_TRIPS_BREAKER) != 0;
    FG_CHECK(!trips || f->owner == FG_OWNER_TRANSIENT);
    FG_CHECK(!over || trips);
    FG_CHECK(f->commit != FG_COMMIT_NONE || f->billed == FG_BILLED_NO);
    FG_CHECK(!(f->flags & FG_FAIL_NEVER_SENT) || f->commit == FG_COMMIT_NONE);
    FG_CHECK(f->owner != FG_OWNER_RATE || f->klass == FG_CLASS_RATE);
    FG_CHECK(k == FG_KIND_UNKNOWN || f->owner != FG_OWNER_UNKNOWN || k == FG_KIND_NO_OUTPUT);
  }
  FG_CHECK(fg_kind_of(9999) == fg_kind_of(FG_KIND_UNKNOWN));
}

int main(void) {
  keys_sorted();
  kinds_sound();
  forms();
  every_rule();
  index_agrees();
  return fg_test_end("rules");
}
