/* May this route serve now? Looks at the levels of its words; the only thing it ever stores is what those levels demand. */
#include "fg_health_parts.h"
#include "fg_limit.h"
#include "fg_pace.h"
#include "fg_stall.h"

static const uint32_t latch_health[3] = {FG_HEALTH_KEY_LATCHED, FG_HEALTH_QUOTA_LATCHED, FG_HEALTH_MODEL_LATCHED};

static int64_t not_before(const fg_route_rec *route, const fg_account_rec *account, int64_t t) {
  int64_t until = fg_word_future(&route->not_before, t, fg_not_before_bound);
  return account == NULL ? until : fg_maxs(until, fg_word_future(&account->not_before, t, fg_not_before_bound));
}

/* Half of the streams under way write next to nothing: no new one would fare better, and each would be one more to give up. */
static int is_stuck(fg_gauge g) { return g.stuck >= 3 && 2 * g.stuck >= g.generating; }

/* The levels of a route's words about the breaker's generation now; evidence first, so that it is never ahead of the breaker. A window
 * without a failure opens nothing: unless the whole of it is wanted, its successes are not counted then. */
static fg_breaker_levels fg_route_levels(const fg_region *r, const fg_route_rec *route, const fg_account_rec *account, const fg_breaker_config *c, int whole, int64_t t) {
  fg_stall_state e = fg_stall_get(&route->evidence);
  fg_breaker_view b = {.state = FG_BREAKER_CLOSED, .generation = 1}; /* of a word that is 0 */
  if (fg_load(&route->breaker) != 0) {
    b = fg_breaker_peek(&route->breaker, c, NULL, t);
  }
  fg_breaker_levels v = {b.generation, 0, 0, 0, 0, 0, 0};
  if (b.state == FG_BREAKER_CLOSED) {
    if (whole || fg_window_any_b(route->window, FG_WINDOW_BUCKETS)) {
      fg_window_sums s = fg_window_sum(route->window, FG_WINDOW_BUCKETS, fg_window_bucket_ms(c), b.t, t);
      v.window_ok = s.a;
      v.window_failed = s.b;
    }
    if (e.generation == b.generation) {
      v.run = e.run;
      v.z_milli = e.z_milli;
    }
    if (c->stall && is_stuck(fg_gauge_sum(route->gauge, fg_slots_used(r)))) {
      v.z_milli = FG_Z_MAX;
    }
  } else if (b.state == FG_BREAKER_OPEN && b.why == FG_WHY_STALL) {
    v.retract = fg_stall_retracts(&route->evidence, b.generation);
  }
  v.not_before = not_before(route, account, t);
  return v;
}

/* The levels as one who looks sees them. The planted fault sees none: then only the failure that crosses a level can open. */
static fg_breaker_levels seen_levels(const fg_health_ask *ask, int whole, int64_t t) {
  fg_breaker_levels v = fg_route_levels(ask->region, ask->route, ask->account, ask->breaker, whole, t);
  if (FG_PLANTED(FG_PLANT_LEVEL)) {
    v.generation = 0;
  }
  return v;
}

uint32_t fg_route_settle(const fg_region *r, fg_route_rec *route, const fg_account_rec *account, const fg_breaker_config *c, int64_t t) {
  fg_breaker_levels v = fg_route_levels(r, route, account, c, 0, t);
  if (fg_breaker_settle(&route->breaker, c, &v, t) != FG_TURN_OPENED) {
    return 0;
  }
  fg_count(&route->count[FG_ROUTE_OPENED], 1);
  return FG_DID_OPEN;
}

uint32_t fg_health_settle(const fg_health_ask *ask, int64_t t) {
  return fg_route_settle(ask->region, ask->route, ask->account, ask->breaker, t);
}

/* A reason against the route. The first one named is the health; the longest wait is the wait. */
static void against(fg_health_view *v, uint32_t health, uint32_t wait_ms) {
  if (v->health == FG_HEALTH_OK || v->health == FG_HEALTH_PROBE) {
    v->health = health;
  }
  v->wait_ms = fg_max32(v->wait_ms, wait_ms);
}

static void may_probe(fg_health_view *v) {
  if (v->health == FG_HEALTH_OK) {
    v->health = FG_HEALTH_PROBE;
  }
}

static void add_limit(fg_limits *l, fg_word *w, fg_gcra_config c, uint64_t n) {
  if (c.rate > 0 && n > 0) {
    l->word[l->count] = w;
    l->config[l->count] = c;
    l->take[l->count++] = n;
  }
}

static void limits_of(const fg_health_ask *ask, fg_limits *l) {
  l->count = 0;
  if (ask->route_quota.rpm > 0) {
    add_limit(l, &ask->route->rpm, fg_gcra_per_minute(ask->route_quota.rpm), 1);
  }
  if (ask->route_quota.tpm > 0) {
    add_limit(l, &ask->route->tpm, fg_gcra_per_minute(ask->route_quota.tpm), ask->tokens);
  }
  if (ask->account != NULL && ask->account_quota.rpm > 0) {
    add_limit(l, &ask->account->rpm, fg_gcra_per_minute(ask->account_quota.rpm), 1);
  }
  if (ask->account != NULL && ask->account_quota.tpm > 0) {
    add_limit(l, &ask->account->tpm, fg_gcra_per_minute(ask->account_quota.tpm), ask->tokens);
  }
}

uint32_t fg_health_latch(const fg_health_ask *ask, int64_t t, uint32_t *wait_ms) {
  fg_health_view v = {.health = FG_HEALTH_OK};
  for (int i = 0; i < 3; i++) {
    fg_word *w = fg_part_word(ask, fg_latch_parts[i]);
    if (w != NULL && fg_load(w) != 0) {
      fg_breaker_config c = fg_latch_config(ask->breaker, fg_latch_parts[i], fg_part_word(ask, fg_latch_parts[i]));
      fg_breaker_view b = fg_breaker_peek(w, &c, NULL, t);
      if (b.state != FG_BREAKER_CLOSED) {
        against(&v, latch_health[i], b.wait_ms);
      }
    }
  }
  *wait_ms = v.wait_ms;
  return v.health;
}

static void peek_latches(const fg_health_ask *ask, int64_t t, fg_health_view *v) {
  for (int i = 0; i < 3; i++) {
    fg_word *w = fg_part_word(ask, fg_latch_parts[i]);
    if (w == NULL || fg_load(w) == 0) {
      continue;
    }
    fg_breaker_config c = fg_latch_config(ask->breaker, fg_latch_parts[i], fg_part_word(ask, fg_latch_parts[i]));
    fg_breaker_view b = fg_breaker_peek(w, &c, NULL, t);
    if (!b.room) {
      against(v, latch_health[i], b.wait_ms);
      int64_t hint = fg_latch_parts[i] == FG_PART_QUOTA ? fg_word_future(&ask->account->quota_hint, t, fg_hint_bound)
                     : fg_latch_parts[i] == FG_PART_LATCH ? fg_word_future(&ask->route->latch_hint, t, fg_hint_bound) : 0;
      v->hint_ms = fg_max32(v->hint_ms, hint > 0 ? fg_clamp32(hint - t) : 0);
    } else if (b.state != FG_BREAKER_CLOSED) {
      may_probe(v);
    }
  }
}

/* What was learned of how much the provider takes now. Over it, another route is tried first, and a short hold after that. */
static void learned_limits(const fg_health_ask *ask, int64_t t, fg_health_view *v) {
  const uint32_t limit = ask->adapt & FG_ADAPT_LIMIT ? fg_limit_now(&ask->route->limit, t) : 0;
  if (limit != 0) {
    v->limit = v->limit == 0 ? limit : fg_min32(v->limit, limit);
  }
  if (ask->adapt & FG_ADAPT_PACE) {
    const fg_gcra_config c = fg_pace_now(&ask->route->pace);
    if (c.rate > 0 && !fg_gcra_peek(&ask->route->pace_tat, &c, 1, t).allowed) {
      against(v, FG_HEALTH_FULL, 0);
    }
  }
}

fg_health_view fg_health_look(const fg_health_ask *ask, int whole, int64_t t, fg_breaker_levels *levels, fg_limits *l) {
  fg_health_view v = {.health = FG_HEALTH_OK};
  fg_route_rec *route = ask->route;
  if (fg_any_latch(ask)) {
    peek_latches(ask, t, &v);
  }
  *levels = seen_levels(ask, whole, t);
  fg_breaker_view b = fg_breaker_peek(&route->breaker, ask->breaker, levels, t);
  v.breaker = b.state;
  v.breaker_wait_ms = b.wait_ms;
  v.generation = b.generation;
  v.reopens = b.reopens;
  v.run = levels->run;
  v.z_milli = levels->z_milli;
  v.window_ok = levels->window_ok;
  v.window_failed = levels->window_failed;
  if (!b.room) {
    against(&v, b.state == FG_BREAKER_OPEN && b.why == FG_WHY_STALL ? FG_HEALTH_STALLED : FG_HEALTH_OPEN, b.wait_ms);
  } else if (b.state != FG_BREAKER_CLOSED) {
    may_probe(&v);
    v.early = ask->adapt & FG_ADAPT_PROBES && fg_bucket_balance(&route->probes, &fg_probe_budget, t) < FG_PROBE_PRICE;
  }
  if (levels->not_before > t) {
    against(&v, FG_HEALTH_NOT_BEFORE, fg_clamp32(levels->not_before - t));
  }
  limits_of(ask, l);
  for (uint32_t i = 0; i < l->count; i++) {
    fg_gcra_result g = fg_gcra_peek(l->word[i], &l->config[i], l->take[i], t);
    if (!g.allowed) {
      against(&v, FG_HEALTH_PACED, g.retry_ms);
    }
  }
  uint32_t slots = fg_slots_used(ask->region);
  fg_gauge sum = fg_gauge_sum(route->gauge, slots);
  v.in_flight = sum.in_flight;
  v.retries = sum.retries;
  v.limit = ask->route_quota.in_flight;
  if (b.state == FG_BREAKER_CLOSED) { /* a probe is one attempt, whatever else is in flight */
    learned_limits(ask, t, &v);
  }
  if (v.limit > 0 && v.in_flight >= v.limit) {
    against(&v, FG_HEALTH_FULL, 0);
  }
  if (ask->account != NULL && ask->account_quota.in_flight > 0 &&
      fg_gauge_sum(ask->account->gauge, slots).in_flight >= ask->account_quota.in_flight) {
    against(&v, FG_HEALTH_FULL, 0);
  }
  v.ramp_ppm = fg_breaker_ramp_ppm(&route->breaker, t);
  if (v.ramp_ppm < FG_PPM && b.state == FG_BREAKER_CLOSED && !ask->ignore_ramp && fg_uniform(ask->rand, FG_PPM) >= v.ramp_ppm) {
    against(&v, FG_HEALTH_RAMPING, 0);
  }
  return v;
}

fg_health_view fg_health_peek(const fg_health_ask *ask, int64_t t) {
  fg_breaker_levels levels;
  fg_limits l;
  return fg_health_look(ask, 1, t, &levels, &l);
}

fg_health_view fg_health_glance(const fg_health_ask *ask, int64_t t) {
  fg_breaker_levels levels;
  fg_limits l;
  return fg_health_look(ask, 0, t, &levels, &l);
}

int fg_health_retry_room(const fg_region *r, const fg_route_rec *route) {
  fg_gauge sum = fg_gauge_sum(route->gauge, fg_slots_used(r));
  return fg_bucket_room(sum.in_flight, sum.retries);
}
