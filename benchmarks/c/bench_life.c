/* A call's life in C, one thread: begin, begin_attempt, event sent, event token, success. DESIGN 15 allows 300 ns.
 *
 * Prints the median and the best of many short batches, for the whole life and for each of its parts (those with 40 calls open at once). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "fg_base.h"

enum { ROUNDS = 2001, CALLS = 40, PARTS = 5 };

static const char card[] =
    "{\"version\":1,"
    "\"routes\":{\"main\":{\"provider\":\"openai\",\"model\":\"m\",\"account\":\"a\"},\"backup\":{\"provider\":\"other\",\"model\":\"m\",\"account\":\"b\"}},"
    "\"workflows\":{\"w\":{\"routes\":[\"main\",\"backup\"]}}}";

static fg_engine *engine;
static fg_request request;
static fg_answer answer;
static fg_call call[CALLS];
static fg_decision decision[CALLS];
static int64_t took[PARTS + 1][ROUNDS];

static void *take(void *ctx, uint64_t size) {
  (void)ctx;
  return malloc(size);
}
static void give(void *ctx, void *ptr) {
  (void)ctx;
  free(ptr);
}

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int order(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void must(int ok, const char *what) {
  if (!ok) {
    fprintf(stderr, "%s: not what it should be\n", what);
    exit(1);
  }
}

static void begin(uint32_t i, int64_t t) {
  must(fg_call_begin(engine, &call[i], &request, t, &decision[i]) == FG_OK && decision[i].action == FG_ACTION_PROCEED, "begin");
}
static void begin_attempt(uint32_t i, int64_t t) {
  must(fg_call_begin_attempt(engine, &call[i], t, &decision[i]) == FG_OK && decision[i].action == FG_ACTION_PROCEED, "begin_attempt");
}
static void sent(uint32_t i, int64_t t) { must(fg_call_event(engine, &call[i], 0, FG_EVENT_SENT, 0, t) == FG_OK, "sent"); }
static void token(uint32_t i, int64_t t) { must(fg_call_event(engine, &call[i], 0, FG_EVENT_TOKEN, 1, t) == FG_OK, "token"); }
static void success(uint32_t i, int64_t t) {
  must(fg_call_success(engine, &call[i], 0, &answer, t, &decision[i]) == FG_OK && decision[i].action == FG_ACTION_ACCEPT, "success");
}

static void (*const part[PARTS])(uint32_t, int64_t) = {begin, begin_attempt, sent, token, success};
static const char *const name[PARTS + 1] = {"begin", "begin_attempt", "event sent", "event token", "success", "a call's life"};

static void prepare(int64_t now_ms) {
  const fg_mem mem = {take, give, NULL};
  const fg_region_config config = {.size = sizeof config, .procs = 8};
  fg_error e = {.size = sizeof e};
  fg_policy *policy;
  fg_region *region;
  must(fg_card_load(card, sizeof card - 1, &mem, &policy, &e) == FG_OK, e.message);
  const uint64_t bytes = fg_region_bytes(&config), needed = fg_engine_bytes(policy);
  must(fg_region_open(calloc(1, bytes), bytes, &config, now_ms, &region, &e) == FG_OK, e.message);
  must(fg_engine_init(malloc(needed), needed, policy, region, 0, 1, now_ms, &engine, &e) == FG_OK, e.message);
  request.size = sizeof request;
  request.workflow = fg_str_of("w");
  request.prompt_tokens = 900;
  request.max_output_tokens = 300;
  answer.size = sizeof answer;
  answer.finish = FG_FINISH_STOP;
  answer.prompt_tokens = 900;
  answer.output_tokens = 100;
  answer.output = fg_str_of("hi");
  answer.flags = FG_ANSWER_OUTPUT_KNOWN | FG_ANSWER_USAGE_FINAL;
  for (uint32_t i = 0; i < CALLS; i++) {
    decision[i].size = sizeof decision[i];
  }
}

int main(void) {
  int64_t t = 1000000000;
  prepare(t);
  for (int round = 0; round < ROUNDS; round++, t += 5) {
    int64_t from = now_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
      for (int p = 0; p < PARTS; p++) {
        part[p](0, t);
      }
    }
    took[PARTS][round] = now_ns() - from;
    for (int p = 0; p < PARTS; p++) {
      from = now_ns();
      for (uint32_t i = 0; i < CALLS; i++) {
        part[p](i, t);
      }
      took[p][round] = now_ns() - from;
    }
  }
  for (int p = 0; p <= PARTS; p++) {
    qsort(took[p], ROUNDS, sizeof took[p][0], order);
    printf("%-14s median %5.0f ns  best %5.0f ns\n", name[p], (double)took[p][ROUNDS / 2] / CALLS, (double)took[p][0] / CALLS);
  }
  return 0;
}
