/* A region of the test's own, and one route on it, with time in ms from 0. */
#ifndef REGION_HELP_H
#define REGION_HELP_H

#include <stdlib.h>

#include "fg_health.h"
#include "fg_stall.h"
#include "fg_window.h"

static const fg_breaker_config usual_breaker = {5, 60000, 8, 500000, 10000, 20000, 0, 1, 30000, 2, 1};
enum { HOUR = 3600000 }; /* at_ms 0 is t = 1 h */

typedef struct bed {
  void *mem;
  fg_region *region;
  fg_health_ask ask;
  fg_breaker_config breaker;
  fg_admit how;
} bed;

static inline void bed_open(bed *b, uint32_t procs, uint32_t rows) {
  fg_region_config c = {.size = sizeof(c), .routes = 4, .accounts = 2, .workflows = 2, .procs = procs, .rows = rows};
  uint64_t bytes = fg_region_bytes(&c);
  memset(b, 0, sizeof(*b));
  b->mem = calloc(1, bytes);
  fg_error err = {.size = sizeof(err)};
  if (fg_region_open(b->mem, bytes, &c, 0, &b->region, &err) != FG_OK) {
    printf("open: %s\n", err.message);
    abort();
  }
  b->breaker = usual_breaker;
  b->ask.region = b->region;
  b->ask.route = fg_region_route(b->region, 1234567, HOUR);
  b->ask.account = fg_region_account(b->region, 7654321, HOUR);
  b->ask.breaker = &b->breaker;
  b->how.stall_ms = 4500;
  b->how.total_ms = 60000;
}

static inline void bed_close(bed *b) { free(b->mem); }

static inline uint32_t bed_state(bed *b, int64_t at) { return fg_health_peek(&b->ask, at + HOUR).breaker; }
static inline uint32_t bed_health(bed *b, int64_t at) { return fg_health_peek(&b->ask, at + HOUR).health; }
static inline uint32_t bed_z(bed *b) { return fg_stall_get(&b->ask.route->evidence).z_milli; }
static inline uint32_t bed_run(bed *b) { return fg_stall_get(&b->ask.route->evidence).run; }
static inline int bed_admit(bed *b, fg_ticket *k, int64_t at) {
  fg_health_view why;
  return fg_health_admit(&b->ask, &b->how, at + HOUR, k, &why);
}
static inline uint32_t bed_end(bed *b, fg_ticket *k, uint32_t what, int64_t at) {
  fg_outcome o = {what, FG_SCOPE_ACCOUNT, FG_PERIOD_UNKNOWN, 0, 0};
  return fg_health_result(&b->ask, k, &o, at + HOUR);
}
static inline void bed_token(bed *b, fg_ticket *k, int64_t at) { fg_health_token(&b->ask, k, at + HOUR + 60000, at + HOUR); }
static inline void bed_tick(bed *b, int64_t at) { (void)fg_health_scan(b->region, b->ask.breaker, at + HOUR); }
static inline fg_gauge bed_gauge(bed *b) { return fg_gauge_sum(b->ask.route->gauge, fg_region_procs(b->region)); }

#endif /* REGION_HELP_H */
