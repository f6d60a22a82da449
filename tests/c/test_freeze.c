/* Nothing is allocated after engine creation: the allocator of the whole program counts while calls live and die. (That core/src cannot
 * even name an allocator is proved by core/tools/check_symbols.py; this is the same seen from outside.) */
#include <stdlib.h>

#include "fg_test.h"
#include "fivegates.h"

static volatile int frozen; /* volatile: the compiler takes malloc for a builtin that reads no variable of ours */
static volatile unsigned allocations;

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(SANITIZED)
#define COUNTS 1 /* a sanitizer has its own allocator; the plain build counts */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *ptr, size_t size);
void *malloc(size_t size) {
  allocations += (unsigned)frozen;
  return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
  allocations += (unsigned)frozen;
  return __libc_calloc(n, size);
}
void *realloc(void *ptr, size_t size) {
  allocations += (unsigned)frozen;
  return __libc_realloc(ptr, size);
}
#endif

static void *give(void *ctx, uint64_t size) {
  (void)ctx;
  return malloc(size);
}
static void take(void *ctx, void *ptr) {
  (void)ctx;
  free(ptr);
}

static const char CARD[] = "{\"version\":1,\"routes\":{\"main\":{\"provider\":\"openai\",\"model\":\"m\",\"account\":\"a\"},"
                           "\"other\":{\"provider\":\"anthropic\",\"model\":\"n\",\"account\":\"b\"}},\"workflows\":{\"w\":{\"routes\":[\"main\",\"other\"],"
                           "\"queue\":true,\"ladder\":[{\"step\":\"cached\"},{\"step\":\"preset\",\"text\":{\"en\":\"later\"}}]}},"
                           "\"classify\":[{\"when\":{\"code\":\"odd\"},\"then\":{\"owner\":\"rate\"}}]}";

static fg_str str(const char *z) {
  const fg_str s = {z, (uint32_t)strlen(z), 0};
  return s;
}

/* One call's life, by turns good, failing, timing out, cancelled, dropped; with every text the engine can write. */
static void live(const fg_engine *e, uint32_t turn, int64_t now) {
  static const char *const body[] = {"{\"error\":{\"code\":\"rate_limit_exceeded\"}}", "{\"error\":{\"type\":\"server_error\"}}", "<html>502</html>",
                                     "{\"error\":{\"code\":\"odd\",\"message\":\"try again in 3s\"}}", "data: {\"choices\":[]}\n\n"};
  static const int32_t status[] = {429, 500, 502, 418, 200};
  char text[4096];
  fg_call c;
  fg_decision d;
  fg_request r;
  fg_evidence v;
  fg_answer a;
  fg_sse s;
  memset(&r, 0, sizeof r);
  memset(&v, 0, sizeof v);
  memset(&a, 0, sizeof a);
  r.size = sizeof r;
  r.workflow = str("w");
  r.prompt_tokens = 100;
  r.max_output_tokens = 50;
  v.size = sizeof v;
  v.phase = FG_PHASE_RESPONSE;
  v.status = status[turn % 5];
  v.body = str(body[turn % 5]);
  a.size = sizeof a;
  a.finish = FG_FINISH_STOP;
  a.output = str("fine");
  a.flags = FG_ANSWER_OUTPUT_KNOWN;
  d.size = sizeof d;
  (void)fg_call_begin(e, &c, &r, now, &d);
  (void)fg_call_begin_attempt(e, &c, now, &d);
  (void)fg_call_event(e, &c, 0, FG_EVENT_SENT, 0, now);
  (void)fg_call_tool(e, &c, 0, "op", 2, FG_TOOL_REQUESTED, 0, now);
  if (turn % 3 == 0) {
    (void)fg_call_event(e, &c, 0, FG_EVENT_TOKEN, 1, now + 5);
    (void)fg_call_success(e, &c, 0, &a, now + 9, &d);
    (void)fg_call_step(e, &c, 0, 0, now + 10, &d);
  } else if (turn % 3 == 1) {
    (void)fg_call_failure(e, &c, 0, &v, now + 9, &d);
    (void)fg_call_unable(e, &c, FG_UNABLE_QUEUE, now + 9, &d);
  } else {
    (void)fg_call_deadline(e, &c, now + 700000, &d);
  }
  (void)fg_explain(e, &c, &d, text, sizeof text);
  (void)fg_ledger_line(e, &c, &d, FG_LINE_CALL, now + 9, text, sizeof text);
  (void)fg_ledger_line(e, &c, &d, FG_LINE_DECISION, now + 9, text, sizeof text);
  (void)fg_ledger_line(e, &c, &d, FG_LINE_END, now + 9, text, sizeof text);
  (void)fg_ledger_served(e, &c, &d, NULL, now + 9, text, sizeof text);
  (void)fg_call_cancel(e, &c, now + 9, &d);
  (void)fg_call_end(e, &c);
  fg_sse_init(&s, FG_WIRE_CHAT, 0);
  (void)fg_sse_feed(&s, body[4], (uint32_t)strlen(body[4]));
}

int main(void) {
  const fg_mem mem = {give, take, NULL};
  fg_region_config config = {.size = sizeof config, .routes = 4, .accounts = 4, .workflows = 2, .procs = 8, .rows = 8};
  fg_error err = {.size = sizeof err};
  fg_policy *policy = NULL;
  fg_region *region = NULL;
  fg_engine *engine = NULL;
  void *memory, *storage;
  void *volatile kept = NULL;
  uint32_t turn;
  FG_CHECK(fg_card_load(CARD, sizeof CARD - 1, &mem, &policy, &err) == FG_OK);
  memory = calloc(1, fg_region_bytes(&config));
  storage = malloc(fg_engine_bytes(policy));
  FG_CHECK(fg_region_open(memory, fg_region_bytes(&config), &config, 1000000000, &region, &err) == FG_OK);
  FG_CHECK(fg_engine_init(storage, fg_engine_bytes(policy), policy, region, 0, 1, 1000000000, &engine, &err) == FG_OK);
  frozen = 1;
  for (turn = 0; turn < 300; turn++) {
    live(engine, turn, 1000000000 + (int64_t)turn * 800000);
  }
  frozen = 0;
#ifdef COUNTS
  FG_CHECK(allocations == 0);
  frozen = 1;
  kept = malloc(1); /* and the count does count */
  frozen = 0;
  FG_CHECK(allocations == 1);
#endif
  free(kept);
  fg_policy_free(policy, &mem);
  free(memory);
  free(storage);
  return fg_test_end("freeze");
}
