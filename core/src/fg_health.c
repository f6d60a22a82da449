/* What an attempt has to say of its route: while it runs, when it ends, when it is overdue. */
#include "fg_health_parts.h"
#include "fg_pace.h"
#include "fg_stall.h"

static int current(const fg_route_rec *route, uint32_t generation) { return fg_breaker_generation(&route->breaker) == generation; }

/* Evidence of an attempt that a closed breaker admitted. */
static void record(fg_route_rec *route, const fg_breaker_config *c, uint32_t generation, uint32_t what, int64_t t) {
  if (what == FG_OUT_OK || what == FG_OUT_LIFE) {
    fg_window_add(route->window, FG_WINDOW_BUCKETS, fg_window_bucket_ms(c), t, 1, 0);
    fg_stall_ok(&route->evidence, generation);
  } else if (what == FG_OUT_FAIL) {
    fg_window_add(route->window, FG_WINDOW_BUCKETS, fg_window_bucket_ms(c), t, 0, 1);
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
  fg_breaker_config c = fg_latch_config(ask->breaker, part, fg_part_word(ask, part));
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
      fg_word_raise(part == FG_PART_QUOTA ? &ask->account->quota_hint : &ask->route->latch_hint, t + o->hint_ms, t, fg_hint_bound);
    }
  } else {
    exact = 30000;
  }
  const uint32_t why = o->what == FG_OUT_MISCONFIGURED ? (uint32_t)FG_WHY_SETUP : (uint32_t)FG_WHY_FAILED;
  if (fg_latch_trip(fg_part_word(ask, part), &c, k->generation[part], why, exact, at_most, t) != FG_TURN_OPENED) {
    return 0;
  }
  return part == FG_PART_LATCH ? FG_DID_LATCH_ROUTE : part == FG_PART_AUTH ? FG_DID_LATCH_KEY : FG_DID_LATCH_QUOTA;
}

static uint32_t clear_latches(const fg_health_ask *ask, const fg_ticket *k, uint32_t what, int64_t t) {
  uint32_t did = 0;
  for (int i = 0; i < 3; i++) {
    int part = fg_latch_parts[i];
    if (!k->probe[part]) {
      continue;
    }
    fg_breaker_config c = fg_latch_config(ask->breaker, part, fg_part_word(ask, part));
    if (fg_breaker_report(fg_part_word(ask, part), &c, k->generation[part], 1, latch_report(part, what), 0, t) == FG_TURN_CLOSED) {
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
  fg_word_raise(account ? &ask->account->not_before : &ask->route->not_before, t + wait_ms, t, fg_not_before_bound);
}

void fg_health_asked_for(fg_route_rec *route, int64_t t) {
  if (fg_load_relaxed(&route->probes) != 0) {
    fg_bucket_credit(&route->probes, &fg_probe_budget, t);
  }
}

/* A probe that found life makes the next one free; one that failed is paid for, if it can be: it may have been sent unpaid, where nobody else
 * would serve. */
static void pay_for_probe(fg_route_rec *route, uint32_t report, int64_t t) {
  if (report == FG_REPORT_FAIL) {
    (void)fg_bucket_pay(&route->probes, &fg_probe_budget, FG_PROBE_PRICE, t);
  } else if (report == FG_REPORT_OK && fg_load_relaxed(&route->probes) != 0) {
    fg_store(&route->probes, 0);
  }
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
  if (o->what == FG_OUT_RATE) {
    fg_pace_refused(&route->pace, &route->pace_seen, t);
  }
  int waits = o->has_hint && (o->what == FG_OUT_RATE || o->what == FG_OUT_FAIL);
  if (waits) {
    fg_health_told_to_wait(ask, o->scope, o->hint_ms, t);
  }
  if (ticket->probe[FG_PART_BREAKER]) {
    pay_for_probe(route, breaker_report(o->what), t);
    uint32_t turn = fg_breaker_report(&route->breaker, ask->breaker, generation, 1, breaker_report(o->what), waits ? o->hint_ms : 0, t);
    did |= turn == FG_TURN_STALE ? FG_DID_STALE : turn == FG_TURN_OPENED ? FG_DID_OPEN : turn == FG_TURN_CLOSED ? FG_DID_CLOSE : 0;
    if (turn == FG_TURN_OPENED) {
      fg_count(&route->count[FG_ROUTE_OPENED], 1);
    }
  } else if (!current(route, generation)) {
    did |= FG_DID_STALE;
  } else {
    record(route, ask->breaker, generation, o->what, t);
    did |= fg_route_settle(ask->region, route, ask->account, ask->breaker, t); /* a success too: it may be the call that makes the window speak */
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
  fg_health_give_back(&ask, ticket, fg_region_latest(r));
}

/* ---- running attempts ---- */

static int any_probe(const fg_ticket *k) { return (k->probe[0] | k->probe[1] | k->probe[2] | k->probe[3]) != 0; }

static void renew(const fg_health_ask *ask, const fg_ticket *k, int64_t t) {
  if (!any_probe(k)) {
    return;
  }
  for (int part = 0; part < 4; part++) {
    fg_word *w = fg_part_word(ask, part);
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
    (void)fg_route_settle(ask->region, ask->route, ask->account, ask->breaker, t); /* it may retract an opening */
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
    pay_for_probe(route, FG_REPORT_FAIL, t);
    return FG_DID_OPEN;
  }
  fg_stall_flag(&route->evidence, o->generation);
  fg_account_rec *account = o->account != UINT32_MAX ? fg_region_account_at(r, o->account) : NULL;
  return fg_route_settle(r, route, account, c, t);
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
