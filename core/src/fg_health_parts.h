/* What fg_health*.c share: the words of a route by part, and what one look has seen. Private to them. */
#ifndef FG_HEALTH_PARTS_H
#define FG_HEALTH_PARTS_H

#include "fg_health.h"
#include "fg_math.h"
#include "fg_window.h"

static const int64_t fg_not_before_bound = INT64_C(30) * FG_DAY_MS; /* a t further ahead is nonsense */
static const int64_t fg_hint_bound = INT64_C(60) * FG_DAY_MS;
/* What a failed probe of an open primary costs, beyond the first two: fifty requests, a quarter of an hour, or some of both. By time alone a probe
 * would be every second request of one who sends few. */
enum { FG_PROBE_PRICE = 1000 };
static const fg_bucket_config fg_probe_budget = {.credit_milli = 20, .cap_milli = 2 * FG_PROBE_PRICE, .start_milli = 2 * FG_PROBE_PRICE, .trickle_milli = 67};
static const int fg_latch_parts[3] = {FG_PART_AUTH, FG_PART_QUOTA, FG_PART_LATCH};

/* Latches: the breaker's word under their own times. The lease is the breaker's. */
static inline fg_breaker_config fg_latch_config(const fg_breaker_config *c, int part, const fg_word *w) {
  fg_breaker_config l = {0, 0, 0, 0, 30000, 30000, 0, 1, c->lease_ms, 1, 0};
  if (part == FG_PART_QUOTA || (part == FG_PART_LATCH && fg_latch_why(w) != FG_WHY_SETUP)) { /* a route's latch may hold a quota of its model */
    l.open_ms = 60000;
    l.open_max_ms = 900000;
  }
  return l;
}

static inline fg_word *fg_part_word(const fg_health_ask *ask, int part) {
  switch (part) {
  case FG_PART_BREAKER:
    return &ask->route->breaker;
  case FG_PART_LATCH:
    return &ask->route->latch;
  case FG_PART_AUTH:
    return ask->account != NULL ? &ask->account->auth : NULL;
  default:
    return ask->account != NULL ? &ask->account->quota : NULL;
  }
}

/* Mostly none of the latches was ever tripped: three words that are 0. */
static inline int fg_any_latch(const fg_health_ask *ask) {
  uint64_t any = fg_load(&ask->route->latch);
  return (ask->account == NULL ? any : any | fg_load(&ask->account->auth) | fg_load(&ask->account->quota)) != 0;
}

static inline uint32_t fg_window_bucket_ms(const fg_breaker_config *c) { return fg_max32(c->window_ms / FG_WINDOW_BUCKETS, 1); }
static inline uint32_t fg_slots_used(const fg_region *r) { return (uint32_t)fg_min64(fg_load_relaxed(&r->slots_end), fg_region_procs(r)); }

typedef struct fg_limits { /* the rate limits that hold, with their words */
  fg_word *word[4];        /* requests and tokens a minute, of the route and of its account */
  fg_gcra_config config[4];
  uint64_t take[4];
  uint32_t count;
} fg_limits;

/* whole: count the breaker's window even when it holds no failure. *levels, *l: what was looked at, for the admission that follows. */
fg_health_view fg_health_look(const fg_health_ask *ask, int whole, int64_t t, fg_breaker_levels *levels, fg_limits *l);
/* fg_health_settle, where there is no ask. */
uint32_t fg_route_settle(const fg_region *r, fg_route_rec *route, const fg_account_rec *account, const fg_breaker_config *c, int64_t t);
/* The probes a ticket holds are free again. */
void fg_health_give_back(const fg_health_ask *ask, fg_ticket *k, int64_t t);

#endif /* FG_HEALTH_PARTS_H */
