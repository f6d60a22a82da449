/* One protected call as a host makes it, clock read at every step: what
 * benchmarks/run.py sets beside other libraries. CPU time of this thread in
 * nanoseconds, median of many short rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "fg_base.h"
#include "fg_host.h"

enum { ROUNDS = 301, SIZE = 1000 };

static const char card[] = "{\"version\":1,\"retry_bucket\":{\"credit_ppm\":1000000,\"cap\":100,"
                           "\"start\":100},"
                           "\"routes\":{\"main\":{\"provider\":\"openai\",\"model\":\"m\",\"account\":"
                           "\"a\",\"price\":{\"input\":2.5,\"output\":10}},"
                           "\"dark\":{\"provider\":\"openai\",\"model\":\"m\",\"account\":\"b\","
                           "\"price\":{\"input\":2.5,\"output\":10}}},"
                           "\"workflows\":{\"up\":{\"routes\":[\"main\"]},\"down\":{\"routes\":["
                           "\"dark\"],\"budget\":{\"total_attempts\":1}}},"
                           "\"breaker\":{\"failure_ppm\":900000,\"open_ms\":3600000,\"open_max_ms\":3600000}}";

static const fg_engine *engine;
static int64_t still; /* the time when the clock is not read */
static int64_t ahead; /* waits are not slept through: the clock goes on */

static int64_t read_clock(void) { return fg_host_now_ms() + ahead; }
static int64_t keep_clock(void) { return still + ahead; }

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double cpu_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(int ok, const char *what) {
  if (!ok) {
    fprintf(stderr, "bench_protect: %s\n", what);
    exit(1);
  }
}

static fg_request asked(const char *workflow) {
  fg_request r = {.size = sizeof r, .prompt_tokens = 900, .max_output_tokens = 300};
  r.workflow = (fg_str){workflow, (uint32_t)strlen(workflow), 0};
  return r;
}

static void answer(fg_call *c, int64_t (*now)(void), fg_decision *d) {
  const fg_answer a = {.size = sizeof a, .finish = FG_FINISH_STOP, .prompt_tokens = 900, .output_tokens = 120};
  (void)fg_call_event(engine, c, 0, FG_EVENT_SENT, 0, now());
  (void)fg_call_event(engine, c, 0, FG_EVENT_TOKEN, 12, now());
  (void)fg_call_success(engine, c, 0, &a, now(), d);
}

static int fail(fg_call *c, int64_t (*now)(void), fg_decision *d) {
  const fg_evidence v = {.size = sizeof v, .phase = FG_PHASE_RESPONSE, .status = 503};
  (void)fg_call_event(engine, c, 0, FG_EVENT_SENT, 0, now());
  return fg_call_failure(engine, c, 0, &v, now(), d) == FG_OK;
}

/* begin, permit, sent, first token, success */
static uint32_t succeed(int64_t (*now)(void)) {
  fg_call c;
  fg_decision d = {.size = sizeof d};
  const fg_request r = asked("up");
  (void)fg_call_begin(engine, &c, &r, now(), &d);
  (void)fg_call_begin_attempt(engine, &c, now(), &d);
  answer(&c, now, &d);
  return d.action == FG_ACTION_ACCEPT;
}

/* the same with a 503 first: classified, decided, paid from the retry bucket,
 * sent again */
static uint32_t recover(int64_t (*now)(void)) {
  fg_call c;
  fg_decision d = {.size = sizeof d};
  const fg_request r = asked("up");
  (void)fg_call_begin(engine, &c, &r, now(), &d);
  (void)fg_call_begin_attempt(engine, &c, now(), &d);
  (void)fail(&c, now, &d);
  if (d.action != FG_ACTION_RETRY) {
    return 0;
  }
  ahead += d.wait_ms;
  (void)fg_call_begin_attempt(engine, &c, now(), &d);
  answer(&c, now, &d);
  return d.action == FG_ACTION_ACCEPT;
}

/* the only route's breaker is open */
static uint32_t refused(int64_t (*now)(void)) {
  fg_call c;
  fg_decision d = {.size = sizeof d};
  const fg_request r = asked("down");
  (void)fg_call_begin(engine, &c, &r, now(), &d);
  return d.action == FG_ACTION_FAIL_CLOSED;
}

static void measure(const char *name, uint32_t (*work)(int64_t (*)(void)), int64_t (*now)(void)) {
  static double took[ROUNDS];
  for (int r = -5; r < ROUNDS; r++) {
    double from = cpu_ns();
    uint32_t good = 0;
    for (int i = 0; i < SIZE; i++) {
      good += work(now);
    }
    if (r >= 0) {
      took[r] = (cpu_ns() - from) / SIZE;
    }
    if (good != SIZE) {
      fprintf(stderr, "bench_protect: %s: %u of %d as expected\n", name, good, SIZE);
      exit(1);
    }
  }
  qsort(took, ROUNDS, sizeof took[0], by_value);
  printf("%-44s %8.1f ns\n", name, took[ROUNDS / 2]);
}

static void trip(void) {
  const fg_request r = asked("down");
  for (int i = 0; i < 8; i++) {
    fg_call c;
    fg_decision d = {.size = sizeof d};
    (void)fg_call_begin(engine, &c, &r, keep_clock(), &d);
    if (d.action == FG_ACTION_PROCEED && fg_call_begin_attempt(engine, &c, keep_clock(), &d) == FG_OK) {
      must(fail(&c, keep_clock, &d), "a failure is not taken");
    }
    (void)fg_call_end(engine, &c);
  }
}

int main(void) {
  const fg_mem mem = fg_host_mem();
  fg_region_config config = {.size = sizeof config};
  fg_error err = {.size = sizeof err};
  fg_policy *policy = NULL;
  fg_region *region = NULL;
  fg_engine *made = NULL;
  still = fg_host_now_ms();
  must(fg_card_load(card, sizeof card - 1, &mem, &policy, &err) == FG_OK, err.message);
  void *memory = mmap(NULL, fg_region_bytes(&config), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  must(memory != MAP_FAILED, "no memory");
  void *storage = malloc(fg_engine_bytes(policy));
  must(fg_region_open(memory, fg_region_bytes(&config), &config, still, &region, &err) == FG_OK, err.message);
  must(fg_engine_init(storage, fg_engine_bytes(policy), policy, region, 0, 1, still, &made, &err) == FG_OK, err.message);
  engine = made;
  trip();
  measure("success, time given", succeed, keep_clock);
  measure("success, clock read 5 times", succeed, read_clock);
  measure("refused, breaker open", refused, read_clock);
  measure("a 503, a paid retry, success", recover, read_clock);
  fg_policy_free(policy, &mem);
  free(storage);
  return 0;
}
