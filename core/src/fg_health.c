#include "fg_health.h"
#include "fg_math.h"
#include "fg_rendezvous.h"
#include "fg_stall.h"
#include "fg_window.h"

static const int64_t not_before_bound = INT64_C(30) * FG_DAY_MS;
static const int64_t hint_bound = INT64_C(60) * FG_DAY_MS;

/* Latches: the breaker's word under their own times. The lease is the breaker's. */
static fg_breaker_config latch_config(const fg_breaker_config *c, int part, const fg_word *w) {
  fg_breaker_config l = {0, 0, 0, 0, 30000, 30000, 0, 1, c->lease_ms, 1, 0};
  if (part == FG_PART_QUOTA || (part == FG_PART_LATCH && fg_latch_why(w) != FG_WHY_SETUP)) { /* a route's latch may hold a quota of its model */
    l.open_ms = 60000;
    l.open_max_ms = 900000;
  }
  return l;
}

static fg_word *part_word(const fg_health_ask *ask, int part) {
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
static int any_latch(const fg_health_ask *ask) {
  uint64_t any = fg_load(&ask->route->latch);
  return (ask->account == NULL ? any : any | fg_load(&ask->account->auth) | fg_load(&ask->account->quota)) != 0;
}

static const int latch_parts[3] = {FG_PART_AUTH, FG_PART_QUOTA, FG_PART_LATCH};
static const uint32_t latch_health[3] = {FG_HEALTH_KEY_LATCHED, FG_HEALTH_QUOTA_LATCHED, FG_HEALTH_MODEL_LATCHED};

/* ---- levels ---- */

static uint32_t bucket_ms(const fg_breaker_config *c) { return fg_max32(c->window_ms / FG_WINDOW_BUCKETS, 1); }

static int64_t not_before(const fg_route_rec *route, const fg_account_rec *account, int64_t t) {
  int64_t until = fg_word_future(&route->not_before, t, not_before_bound);
  return account == NULL ? until : fg_maxs(until, fg_word_future(&account->not_before, t, not_before_bound));
}

/* The levels of a route's words about the breaker's generation now; evidence first, so that it is never ahead of the breaker. A window
 * without a failure opens nothing: unless the whole of it is wanted, its successes are not counted then. */
static fg_breaker_levels levels_of(const fg_route_rec *route, const fg_account_rec *account, const fg_breaker_config *c, int whole, int64_t t) {
  fg_stall_state e = fg_stall_get(&route->evidence);
  fg_breaker_view b = {.state = FG_BREAKER_CLOSED, .generation = 1}; /* of a word that is 0 */
  if (fg_load(&route->breaker) != 0) {
    b = fg_breaker_peek(&route->breaker, c, NULL, t);
  }
  fg_breaker_levels v = {b.generation, 0, 0, 0, 0, 0, 0};
  if (b.state == FG_BREAKER_CLOSED) {
    if (whole || fg_window_any_b(route->window, FG_WINDOW_BUCKETS)) {
      fg_window_sums s = fg_window_sum(route->window, FG_WINDOW_BUCKETS, bucket_ms(c), b.t, t);
      v.window_ok = s.a;
      v.window_failed = s.b;
    }
    if (e.generation == b.generation) {
      v.run = e.run;
      v.z_milli = e.z_milli;
    }
  } else if (b.state == FG_BREAKER_OPEN && b.why == FG_WHY_STALL) {
    v.retract = fg_stall_retracts(&route->evidence, b.generation);
  }
  v.not_before = not_before(route, account, t);
  return v;
}

/* The levels as one who looks sees them. The planted fault sees none: then only the failure that crosses a level can open. */
static fg_breaker_levels seen_levels(const fg_health_ask *ask, int whole, int64_t t) {
  fg_breaker_levels v = levels_of(ask->route, ask->account, ask->breaker, whole, t);
  if (FG_PLANTED(FG_PLANT_LEVEL)) {
    v.generation = 0;
  }
  return v;
}

static uint32_t settle(fg_route_rec *route, const fg_account_rec *account, const fg_breaker_config *c, int64_t t) {
  fg_breaker_levels v = levels_of(route, account, c, 0, t);
  if (fg_breaker_settle(&route->breaker, c, &v, t) != FG_TURN_OPENED) {
    return 0;
  }
  fg_count(&route->count[FG_ROUTE_OPENED], 1);
  return FG_DID_OPEN;
}

/* ---- looking ---- */

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

typedef struct limits { /* the rate limits that hold, with their words */
  fg_word *word[5];
  fg_gcra_config config[5];
  uint64_t take[5];
  uint32_t count;
} limits;

static void add_limit(limits *l, fg_word *w, fg_gcra_config c, uint64_t n) {
  if (c.rate > 0 && n > 0) {
    l->word[l->count] = w;
    l->config[l->count] = c;
    l->take[l->count++] = n;
  }
}

static void limits_of(const fg_health_ask *ask, int64_t t, limits *l) {
  l->count = 0;
  if (fg_load_relaxed(&ask->route->pace) != 0) {
    add_limit(l, &ask->route->pace_tat, fg_pace_config(fg_pace_get(&ask->route->pace, t)), 1);
  }
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

static uint32_t slots_used(const fg_region *r) { return (uint32_t)fg_min64(fg_load_relaxed(&r->slots_end), fg_region_procs(r)); }

/* limit: L_q8:24 mode:3 cut_at:37; mode 0 = none learned. */
static uint32_t learned_limit(const fg_route_rec *route) {
  uint64_t v = fg_load_relaxed(&route->limit);
  return fg_bits(v, 37, 3) != 0 ? fg_max32((uint32_t)fg_bits(v, 40, 24) >> 8, 1) : 0;
}

uint32_t fg_health_latch(const fg_health_ask *ask, int64_t t, uint32_t *wait_ms) {
  fg_health_view v = {.health = FG_HEALTH_OK};
  for (int i = 0; i < 3; i++) {
    fg_word *w = part_word(ask, latch_parts[i]);
    if (w != NULL && fg_load(w) != 0) {
      fg_breaker_config c = latch_config(ask->breaker, latch_parts[i], part_word(ask, latch_parts[i]));
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
    fg_word *w = part_word(ask, latch_parts[i]);
    if (w == NULL || fg_load(w) == 0) {
      continue;
    }
    fg_breaker_config c = latch_config(ask->breaker, latch_parts[i], part_word(ask, latch_parts[i]));
    fg_breaker_view b = fg_breaker_peek(w, &c, NULL, t);
    if (!b.room) {
      against(v, latch_health[i], b.wait_ms);
      int64_t hint = latch_parts[i] == FG_PART_QUOTA ? fg_word_future(&ask->account->quota_hint, t, hint_bound)
                     : latch_parts[i] == FG_PART_LATCH ? fg_word_future(&ask->route->latch_hint, t, hint_bound) : 0;
      v->hint_ms = fg_max32(v->hint_ms, hint > 0 ? fg_clamp32(hint - t) : 0);
    } else if (b.state != FG_BREAKER_CLOSED) {
      may_probe(v);
    }
  }
}

/* *levels, *l: what it has looked at, for the admission that follows. */
static fg_health_view look(const fg_health_ask *ask, int whole, int64_t t, fg_breaker_levels *levels, limits *l) {
  fg_health_view v = {.health = FG_HEALTH_OK};
  fg_route_rec *route = ask->route;
  if (any_latch(ask)) {
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
  }
  if (levels->not_before > t) {
    against(&v, FG_HEALTH_NOT_BEFORE, fg_clamp32(levels->not_before - t));
  }
  limits_of(ask, t, l);
  for (uint32_t i = 0; i < l->count; i++) {
    fg_gcra_result g = fg_gcra_peek(l->word[i], &l->config[i], l->take[i], t);
    if (!g.allowed) {
      against(&v, FG_HEALTH_PACED, g.retry_ms);
    }
  }
  uint32_t slots = slots_used(ask->region);
  fg_gauge sum = fg_gauge_sum(route->gauge, slots);
  v.in_flight = sum.in_flight;
  v.retries = sum.retries;
  v.limit = ask->route_quota.in_flight > 0 ? ask->route_quota.in_flight : learned_limit(route);
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
  limits l;
  return look(ask, 1, t, &levels, &l);
}

fg_health_view fg_health_glance(const fg_health_ask *ask, int64_t t) {
  fg_breaker_levels levels;
  limits l;
  return look(ask, 0, t, &levels, &l);
}

int fg_health_retry_room(const fg_region *r, const fg_route_rec *route) {
  fg_gauge sum = fg_gauge_sum(route->gauge, slots_used(r));
  return fg_bucket_room(sum.in_flight, sum.retries);
}

/* ---- admitting ---- */

/* Words out of their bounds are cleared here, where every attempt passes: left alone, time would make some of them look true. */
static void verify(const fg_health_ask *ask, int64_t t) {
  fg_word_verify(&ask->route->not_before, t, not_before_bound);
  fg_word_verify(&ask->route->latch_hint, t, hint_bound);
  if (fg_load_relaxed(&ask->route->pace) != 0) {
    fg_pace_verify(&ask->route->pace, t);
  }
  if (ask->account != NULL) {
    fg_word_verify(&ask->account->not_before, t, not_before_bound);
    fg_word_verify(&ask->account->quota_hint, t, hint_bound);
  }
  const int parts = any_latch(ask) ? 4 : FG_PART_BREAKER + 1;
  for (int part = 0; part < parts; part++) {
    fg_word *w = part_word(ask, part);
    if (w != NULL && fg_load(w) != 0) {
      fg_breaker_config c = part == FG_PART_BREAKER ? *ask->breaker : latch_config(ask->breaker, part, part_word(ask, part));
      (void)fg_breaker_settle(w, &c, NULL, t);
    }
  }
  fg_stall_verify(&ask->route->evidence, &ask->route->breaker);
}

static fg_ticket blank(const fg_health_ask *ask, const fg_admit *how, int64_t t) {
  fg_ticket k = {.watch = {.slot = how->slot,
                           .route = fg_region_route_index(ask->region, ask->route),
                           .account = ask->account != NULL ? fg_region_account_index(ask->region, ask->account) : UINT32_MAX,
                           .kind = how->kind,
                           .retry = how->retry != 0,
                           .total_due = how->total_ms > 0 ? t + how->total_ms : 0}};
  return k;
}

/* A declared quota: counted first, then looked at, so that racing processes refuse rather than overshoot. */
static int over_quota(const fg_health_ask *ask) {
  uint32_t slots = slots_used(ask->region);
  if (FG_PLANTED(FG_PLANT_QUOTA)) {
    return 0; /* planted: what the look has seen is taken for granted */
  }
  return (ask->route_quota.in_flight > 0 && fg_gauge_sum(ask->route->gauge, slots).in_flight > ask->route_quota.in_flight) ||
         (ask->account != NULL && ask->account_quota.in_flight > 0 &&
          fg_gauge_sum(ask->account->gauge, slots).in_flight > ask->account_quota.in_flight);
}

static fg_breaker_config admit_config(const fg_health_ask *ask, const fg_admit *how, int part) {
  fg_breaker_config c = part == FG_PART_BREAKER ? *ask->breaker : latch_config(ask->breaker, part, part_word(ask, part));
  if (how->kind == FG_LEARN_WHOLE || how->kind == FG_LEARN_WHOLE_REASONING) {
    c.lease_ms = fg_max32(c.lease_ms, fg_min32(how->total_ms, 600000)); /* nothing renews it before the answer is there */
  }
  return c;
}

static int admit_part(const fg_health_ask *ask, const fg_admit *how, int part, const fg_breaker_levels *levels, int64_t t, fg_ticket *k) {
  fg_word *w = part_word(ask, part);
  if (w == NULL) {
    return 1;
  }
  if (part != FG_PART_BREAKER && fg_load(w) == 0) {
    k->generation[part] = 1; /* never latched */
    return 1;
  }
  fg_breaker_config c = admit_config(ask, how, part);
  fg_breaker_ticket b = fg_breaker_admit(w, &c, levels, t);
  k->generation[part] = (uint16_t)b.generation;
  k->probe[part] = b.verdict == FG_ADMIT_PROBE;
  return b.verdict != FG_ADMIT_REJECT;
}

static void give_back(const fg_health_ask *ask, fg_ticket *k, int64_t t) {
  for (int part = 0; part < 4; part++) {
    fg_word *w = part_word(ask, part);
    if (w != NULL && k->probe[part]) {
      fg_breaker_give_back(w, k->generation[part], t);
    }
  }
}

int fg_health_admit(const fg_health_ask *ask, const fg_admit *how, int64_t t, fg_ticket *out, fg_health_view *why) {
  fg_ticket k = {.zero = {0}};
  *out = k;
  fg_breaker_levels levels;
  limits l;
  verify(ask, t);
  *why = look(ask, 0, t, &levels, &l);
  if (why->health != FG_HEALTH_OK && why->health != FG_HEALTH_PROBE) {
    (void)settle(ask->route, ask->account, ask->breaker, t); /* complete what the look has seen */
    return 0;
  }
  k = blank(ask, how, t);
  uint32_t taken = 0;
  fg_witness_enter(ask->region, &k.watch);
  int ok = !over_quota(ask);
  while (ok && taken < l.count) {
    ok = (int)fg_gcra_take(l.word[taken], &l.config[taken], l.take[taken], t).allowed;
    taken += (uint32_t)ok;
  }
  for (int i = 0; ok && i < 3; i++) {
    ok = admit_part(ask, how, latch_parts[i], NULL, t, &k);
  }
  ok = ok && admit_part(ask, how, FG_PART_BREAKER, &levels, t, &k);
  if (!ok) { /* somebody was faster between the look and the taking */
    give_back(ask, &k, t);
    while (taken > 0) {
      taken--;
      fg_gcra_undo(l.word[taken], &l.config[taken], l.take[taken]);
    }
    (void)fg_witness_end(ask->region, &k.watch);
    *why = fg_health_peek(ask, t);
    if (why->health == FG_HEALTH_OK || why->health == FG_HEALTH_PROBE) {
      why->health = FG_HEALTH_FULL; /* free again already: ask once more */
    }
    return 0;
  }
  k.watch.generation = k.generation[FG_PART_BREAKER];
  k.watch.probe = k.probe[FG_PART_BREAKER];
  (void)fg_witness_row(ask->region, &k.watch, how->stall_ms > 0 ? t + how->stall_ms : 0, t);
  fg_count(&ask->route->count[FG_ROUTE_ATTEMPTS], 1);
  if (k.watch.probe) {
    fg_count(&ask->route->count[FG_ROUTE_PROBES], 1);
  }
  *out = k;
  return 1;
}

/* ---- results ---- */

static int current(const fg_route_rec *route, uint32_t generation) { return fg_breaker_generation(&route->breaker) == generation; }

/* Evidence of an attempt that a closed breaker admitted. */
static void record(fg_route_rec *route, const fg_breaker_config *c, uint32_t generation, uint32_t what, int64_t t) {
  if (what == FG_OUT_OK || what == FG_OUT_LIFE) {
    fg_window_add(route->window, FG_WINDOW_BUCKETS, bucket_ms(c), t, 1, 0);
    fg_stall_ok(&route->evidence, generation);
  } else if (what == FG_OUT_FAIL) {
    fg_window_add(route->window, FG_WINDOW_BUCKETS, bucket_ms(c), t, 0, 1);
    fg_stall_fail(&route->evidence, generation);
  }
}

static uint32_t breaker_report(uint32_t what) {
  switch (what) {
  case FG_OUT_OK:
  case FG_OUT_LIFE:
    return FG_REPORT_OK;
  case FG_OUT_FAIL:
  case FG_OUT_RATE:
  case FG_OUT_QUOTA:
    return FG_REPORT_FAIL;
  default:
    return FG_REPORT_NEUTRAL;
  }
}

/* Does this outcome show that what the latch was closed for is over? */
static uint32_t latch_report(int part, uint32_t what) {
  if (what == FG_OUT_OK || (part == FG_PART_AUTH && (what == FG_OUT_LIFE || what == FG_OUT_RATE || what == FG_OUT_QUOTA))) {
    return FG_REPORT_OK;
  }
  return FG_REPORT_NEUTRAL;
}

static uint32_t trip(const fg_health_ask *ask, const fg_ticket *k, const fg_outcome *o, int64_t t) {
  int part = o->what == FG_OUT_MISCONFIGURED || o->scope == FG_SCOPE_MODEL || ask->account == NULL ? FG_PART_LATCH
             : o->what == FG_OUT_AUTH ? FG_PART_AUTH : FG_PART_QUOTA;
  fg_breaker_config c = latch_config(ask->breaker, part, part_word(ask, part));
  uint64_t exact = 0, at_most = 0;
  if (o->what == FG_OUT_QUOTA) {
    int may_mislead = o->period == FG_PERIOD_UNKNOWN || o->period >= FG_PERIOD_DAY;
    if (o->has_hint && may_mislead) {
      at_most = fg_max32(o->hint_ms, 1);
    } else if (o->has_hint) {
      exact = fg_max32(o->hint_ms, 1);
    } else if (o->period == FG_PERIOD_SECOND || o->period == FG_PERIOD_MINUTE) {
      exact = o->period == FG_PERIOD_SECOND ? 1000 : 60000;
    }
    if (o->has_hint) {
      fg_word_raise(part == FG_PART_QUOTA ? &ask->account->quota_hint : &ask->route->latch_hint, t + o->hint_ms, t, hint_bound);
    }
  } else {
    exact = 30000;
  }
  const uint32_t why = o->what == FG_OUT_MISCONFIGURED ? (uint32_t)FG_WHY_SETUP : (uint32_t)FG_WHY_FAILED;
  if (fg_latch_trip(part_word(ask, part), &c, k->generation[part], why, exact, at_most, t) != FG_TURN_OPENED) {
    return 0;
  }
  return part == FG_PART_LATCH ? FG_DID_LATCH_ROUTE : part == FG_PART_AUTH ? FG_DID_LATCH_KEY : FG_DID_LATCH_QUOTA;
}

static uint32_t clear_latches(const fg_health_ask *ask, const fg_ticket *k, uint32_t what, int64_t t) {
  uint32_t did = 0;
  for (int i = 0; i < 3; i++) {
    int part = latch_parts[i];
    if (!k->probe[part]) {
      continue;
    }
    fg_breaker_config c = latch_config(ask->breaker, part, part_word(ask, part));
    if (fg_breaker_report(part_word(ask, part), &c, k->generation[part], 1, latch_report(part, what), 0, t) == FG_TURN_CLOSED) {
      did |= FG_DID_CLEAR;
    }
  }
  return did;
}

static void tally(fg_route_rec *route, uint32_t what) {
  static const uint8_t to[] = {FG_ROUTE_NEUTRAL, FG_ROUTE_SUCCESSES, FG_ROUTE_FAILURES, FG_ROUTE_RATE,
                               FG_ROUTE_LIFE,    FG_ROUTE_QUOTA,     FG_ROUTE_AUTH,     FG_ROUTE_LIFE};
  fg_count(&route->count[to[what < sizeof(to) ? what : 0]], 1);
}

void fg_health_told_to_wait(const fg_health_ask *ask, uint32_t scope, uint32_t wait_ms, int64_t t) {
  int account = scope == FG_SCOPE_ACCOUNT && ask->account != NULL;
  fg_word_raise(account ? &ask->account->not_before : &ask->route->not_before, t + wait_ms, t, not_before_bound);
}

uint32_t fg_health_settle(const fg_health_ask *ask, int64_t t) {
  return settle(ask->route, ask->account, ask->breaker, t);
}

uint32_t fg_health_result(const fg_health_ask *ask, fg_ticket *ticket, const fg_outcome *o, int64_t t) {
  if (!ticket->watch.live) {
    return 0;
  }
  fg_route_rec *route = ask->route;
  uint32_t generation = ticket->generation[FG_PART_BREAKER], did = 0;
  if (fg_witness_end(ask->region, &ticket->watch) == FG_END_FLAGGED) {
    fg_stall_drop(&route->evidence, generation); /* provisional evidence gives way to what really happened */
  }
  tally(route, o->what);
  int waits = o->has_hint && (o->what == FG_OUT_RATE || o->what == FG_OUT_FAIL);
  if (waits) {
    fg_health_told_to_wait(ask, o->scope, o->hint_ms, t);
  }
  if (ticket->probe[FG_PART_BREAKER]) {
    uint32_t turn = fg_breaker_report(&route->breaker, ask->breaker, generation, 1, breaker_report(o->what), waits ? o->hint_ms : 0, t);
    did |= turn == FG_TURN_STALE ? FG_DID_STALE : turn == FG_TURN_OPENED ? FG_DID_OPEN : turn == FG_TURN_CLOSED ? FG_DID_CLOSE : 0;
    if (turn == FG_TURN_OPENED) {
      fg_count(&route->count[FG_ROUTE_OPENED], 1);
    }
  } else if (!current(route, generation)) {
    did |= FG_DID_STALE;
  } else {
    record(route, ask->breaker, generation, o->what, t);
    did |= settle(route, ask->account, ask->breaker, t); /* a success too: it may be the call that makes the window speak */
  }
  if (o->what >= FG_OUT_QUOTA) {
    did |= trip(ask, ticket, o, t);
  }
  return did | clear_latches(ask, ticket, o->what, t);
}

void fg_health_abandon(fg_region *r, fg_ticket *ticket) {
  fg_route_rec *route = fg_region_route_at(r, ticket->watch.route);
  if (!ticket->watch.live || route == NULL) {
    return;
  }
  fg_account_rec *account = ticket->watch.account != UINT32_MAX ? fg_region_account_at(r, ticket->watch.account) : NULL;
  if (fg_witness_end(r, &ticket->watch) == FG_END_FLAGGED) {
    fg_stall_drop(&route->evidence, ticket->generation[FG_PART_BREAKER]);
  }
  fg_count(&route->count[FG_ROUTE_NEUTRAL], 1);
  fg_health_ask ask = {.region = r, .route = route, .account = account};
  give_back(&ask, ticket, fg_region_latest(r));
}

/* ---- running attempts ---- */

static int any_probe(const fg_ticket *k) { return (k->probe[0] | k->probe[1] | k->probe[2] | k->probe[3]) != 0; }

static void renew(const fg_health_ask *ask, const fg_ticket *k, int64_t t) {
  if (!any_probe(k)) {
    return;
  }
  for (int part = 0; part < 4; part++) {
    fg_word *w = part_word(ask, part);
    if (w != NULL && k->probe[part]) {
      fg_breaker_renew(w, ask->breaker, k->generation[part], t); /* alive: its lease goes on */
    }
  }
}

void fg_health_token(const fg_health_ask *ask, const fg_ticket *ticket, int64_t progress_due, int64_t t) {
  uint32_t generation = ticket->generation[FG_PART_BREAKER];
  uint32_t how = fg_witness_token(ask->region, &ticket->watch, progress_due, t);
  renew(ask, ticket, t);
  if (!ask->breaker->stall || ticket->probe[FG_PART_BREAKER]) {
    return;
  }
  if (how == FG_TOKEN_IN_TIME) {
    fg_stall_in_time(&ask->route->evidence, generation);
  } else if (how == FG_TOKEN_UNFLAGGED) {
    fg_stall_late(&ask->route->evidence, generation);
    (void)settle(ask->route, ask->account, ask->breaker, t); /* it may retract an opening */
  }
}

void fg_health_progress(const fg_health_ask *ask, const fg_ticket *ticket, int64_t progress_due, int64_t t) {
  fg_witness_progress(ask->region, &ticket->watch, progress_due, t);
  renew(ask, ticket, t);
}

/* What an overdue row means for its route. */
static uint32_t overdue(fg_region *r, const fg_breaker_config *c, const fg_overdue *o, int64_t t) {
  fg_route_rec *route = fg_region_route_at(r, o->route);
  if (route == NULL) {
    return 0;
  }
  if (o->what == FG_OVERDUE_TOTAL) {
    fg_count(&route->count[FG_ROUTE_LOST], 1);
    if (o->flagged) {
      fg_stall_drop(&route->evidence, o->generation);
    }
    return 0;
  }
  if (o->what == FG_OVERDUE_STUCK) {
    fg_count(&route->count[FG_ROUTE_STUCK], 1);
    return 0;
  }
  fg_count(&route->count[FG_ROUTE_STALLS], 1);
  if (!c->stall || !current(route, o->generation)) {
    return 0; /* silence of an older generation is no evidence */
  }
  if (o->probe) {
    if (fg_breaker_report(&route->breaker, c, o->generation, 1, FG_REPORT_FAIL, 0, t) != FG_TURN_OPENED) {
      return 0;
    }
    fg_count(&route->count[FG_ROUTE_OPENED], 1);
    return FG_DID_OPEN;
  }
  fg_stall_flag(&route->evidence, o->generation);
  fg_account_rec *account = o->account != UINT32_MAX ? fg_region_account_at(r, o->account) : NULL;
  return settle(route, account, c, t);
}

uint32_t fg_health_scan_due(fg_region *r, const fg_breaker_config *c, int64_t t) {
  uint32_t did = 0;
  if (fg_witness_scan(r, t)) {
    fg_scan_at at = {0, 0};
    fg_overdue o;
    while (fg_witness_scan_next(r, &at, t, &o)) {
      did |= overdue(r, c, &o, t);
    }
  }
  return did;
}
