/* fg_decide alone, on facts of the usual kinds; DESIGN 15 allows 50 ns. Prints the median and the best of many short batches. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "fg_base.h"

enum { ROUNDS = 2001, CALLS = 200 };

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int order(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* A workflow with a primary and three stand-ins, all healthy and within budget. */
static fg_facts usual(uint32_t stage) {
  fg_facts f = {.size = sizeof f,
                .stage = stage,
                .safe_until = FG_SAFE_FIRST_VISIBLE,
                .after_silence = FG_SILENCE_STAND_IN,
                .billing = FG_BILLING_POSSIBLE,
                .backoff_ms = 300,
                .hint_cap_ms = 60000,
                .class_left = 1,
                .attempts_left = 3,
                .resends_left = 6,
                .elapsed_left_ms = 25000,
                .tokens_left = 100000,
                .quality_left_ppm = 1000000,
                .spill_mode = FG_SPILL_WHEN_NEEDED,
                .hold_ms = 2000,
                .cost_left_nusd = INT64_MAX,
                .candidate_count = 4};
  for (uint32_t i = 0; i < f.candidate_count; i++) {
    fg_candidate *c = &f.candidate[i];
    c->route = i + 1;
    c->flags = i == 0 ? FG_CAND_PRIMARY : FG_CAND_OTHER_BUDGET | FG_CAND_OTHER_VENDOR | FG_CAND_OTHER_MODEL;
    c->sends_left = 2;
    c->estimate_ms = 900;
    c->first_token_ms = 8000;
    c->tokens = 1200;
  }
  if (stage == FG_STAGE_FAILURE) {
    f.failure.size = sizeof f.failure;
    f.failure.owner = FG_OWNER_TRANSIENT;
    f.failure.kind = FG_KIND_UNAVAILABLE;
    f.failure.klass = FG_CLASS_SERVER;
  }
  return f;
}

static void run(const char *name, const fg_facts *f, uint32_t action) {
  static int64_t took[ROUNDS];
  fg_decision d = {.size = sizeof d};
  for (int r = 0; r < ROUNDS; r++) {
    const int64_t from = now_ns();
    for (int i = 0; i < CALLS; i++) {
      (void)fg_decide(f, &d);
    }
    took[r] = now_ns() - from;
  }
  if (d.action != action) {
    fprintf(stderr, "%s: decided %s\n", name, fg_name(FG_TABLE_ACTION, d.action));
    exit(1);
  }
  qsort(took, ROUNDS, sizeof took[0], order);
  printf("fg_decide %-38s median %4.0f ns  best %4.0f ns\n", name, (double)took[ROUNDS / 2] / CALLS, (double)took[0] / CALLS);
}

int main(void) {
  fg_facts f = usual(FG_STAGE_BEGIN);
  run("begin, the primary is ready", &f, FG_ACTION_PROCEED);
  f.candidate[0].health = FG_HEALTH_OPEN;
  f.candidate[0].health_wait_ms = 20000;
  run("begin, the primary is out", &f, FG_ACTION_PROCEED);
  f = usual(FG_STAGE_FAILURE);
  run("failed, retry", &f, FG_ACTION_RETRY);
  f.class_left = 0;
  run("failed, fallback", &f, FG_ACTION_FALLBACK);
  for (uint32_t i = 0; i < f.candidate_count; i++) {
    f.candidate[i].health = FG_HEALTH_OPEN;
  }
  run("failed, every route is out", &f, FG_ACTION_FAIL_CLOSED);
  return 0;
}
