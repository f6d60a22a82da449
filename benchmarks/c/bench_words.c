/* What the shared words cost: nanoseconds of one thread (its CPU time), median of several rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fg_backoff.h"
#include "fg_math.h"
#include "fg_rendezvous.h"
#include "region_help.h"

enum { ROUNDS = 9, N = 200000 };

static uint64_t sink;

static double now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

#define MEASURE(name, ...) \
  do { \
    double took[ROUNDS]; \
    for (int round = 0; round < ROUNDS; round++) { \
      double from = now_ns(); \
      for (uint64_t i = 0; i < N; i++) { \
        __VA_ARGS__; \
      } \
      took[round] = (now_ns() - from) / N; \
    } \
    qsort(took, ROUNDS, sizeof(double), by_value); \
    printf("%-44s %8.1f ns\n", name, took[ROUNDS / 2]); \
  } while (0)

int main(void) {
  static const fg_bucket_config bucket = {100, 10000, 3000, 1000};
  bed b;
  bed_open(&b, 64, 256);
  fg_ticket k;
  fg_outcome good = {.what = FG_OUT_OK};
  fg_health_view why;
  int64_t t = HOUR;
  fg_word retry = {0};
  fg_learn *l = &b.ask.route->learn[0];
  fg_rendezvous_item item[8];
  uint8_t order[16];
  for (uint32_t i = 0; i < 8; i++) {
    item[i].key = fg_mix64(i);
    item[i].weight = 1 + i % 3;
  }
  MEASURE("look at a route's health", sink += fg_health_peek(&b.ask, t).health);
  MEASURE("admit + first token + result", {
    sink += (uint64_t)fg_health_admit(&b.ask, &b.how, t, &k, &why);
    fg_health_token(&b.ask, &k, t + 60000, t);
    sink += fg_health_result(&b.ask, &k, &good, t);
  });
  MEASURE("admit + result, quotas declared", {
    b.ask.route_quota = (fg_quota){100, 100000000, 0};
    sink += (uint64_t)fg_health_admit(&b.ask, &b.how, t + (int64_t)i, &k, &why);
    sink += fg_health_result(&b.ask, &k, &good, t + (int64_t)i);
  });
  b.ask.route_quota = (fg_quota){0, 0, 0};
  MEASURE("find a route's record", sink += (uint64_t)(fg_region_route(b.region, 1234567, t) == b.ask.route));
  MEASURE("retry bucket: pay + credit", {
    sink += (uint64_t)fg_bucket_pay(&retry, &bucket, 100, t);
    fg_bucket_credit(&retry, &bucket, t);
  });
  MEASURE("sketch: record", fg_learn_record(l, (uint32_t)(i & 4095), 300 + (uint32_t)(i & 255)));
  MEASURE("sketch: q99", sink += fg_learn_quantile(l, (uint32_t)(i & 4095), 990000).ms);
  MEASURE("scan when nothing is due", sink += fg_health_scan(b.region, &b.breaker, t));
  MEASURE("rendezvous order of 8", sink += fg_rendezvous_order(i, item, 8, order) + order[0]);
  MEASURE("backoff", sink += fg_backoff_wait(500, 20000, (uint32_t)(i & 7), fg_rand(1, 2, i)));
  bed_close(&b);
  return sink == 1; /* keeps the work from being thrown away */
}
