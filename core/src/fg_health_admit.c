/* Admission of one attempt: takes limits, latches and breaker in turn, and gives all of it back when one refuses. */
#include "fg_health_parts.h"
#include "fg_limit.h"
#include "fg_pace.h"
#include "fg_stall.h"

/* Words out of their bounds are cleared here, where every attempt passes: left alone, time would make some of them look true. */
static void verify(const fg_health_ask *ask, int64_t t) {
  fg_word_verify(&ask->route->not_before, t, fg_not_before_bound);
  fg_word_verify(&ask->route->latch_hint, t, fg_hint_bound);
  if (ask->account != NULL) {
    fg_word_verify(&ask->account->not_before, t, fg_not_before_bound);
    fg_word_verify(&ask->account->quota_hint, t, fg_hint_bound);
  }
  const int parts = fg_any_latch(ask) ? 4 : FG_PART_BREAKER + 1;
  for (int part = 0; part < parts; part++) {
    fg_word *w = fg_part_word(ask, part);
    if (w != NULL && fg_load(w) != 0) {
      fg_breaker_config c = part == FG_PART_BREAKER ? *ask->breaker : fg_latch_config(ask->breaker, part, fg_part_word(ask, part));
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
  uint32_t slots = fg_slots_used(ask->region);
  if (FG_PLANTED(FG_PLANT_QUOTA)) {
    return 0; /* planted: what the look has seen is taken for granted */
  }
  return (ask->route_quota.in_flight > 0 && fg_gauge_sum(ask->route->gauge, slots).in_flight > ask->route_quota.in_flight) ||
         (ask->account != NULL && ask->account_quota.in_flight > 0 &&
          fg_gauge_sum(ask->account->gauge, slots).in_flight > ask->account_quota.in_flight);
}

/* The learned rate this admission takes from; rate 0 none. */
static fg_gcra_config paced(const fg_health_ask *ask, const fg_health_view *look) {
  const fg_gcra_config none = {0, 0, 0};
  return ask->adapt & FG_ADAPT_PACE && look->breaker == FG_BREAKER_CLOSED ? fg_pace_now(&ask->route->pace) : none;
}

static fg_breaker_config admit_config(const fg_health_ask *ask, const fg_admit *how, int part) {
  fg_breaker_config c = part == FG_PART_BREAKER ? *ask->breaker : fg_latch_config(ask->breaker, part, fg_part_word(ask, part));
  if (how->kind == FG_LEARN_WHOLE || how->kind == FG_LEARN_WHOLE_REASONING) {
    c.lease_ms = fg_max32(c.lease_ms, fg_min32(how->total_ms, 600000)); /* nothing renews it before the answer is there */
  }
  return c;
}

static int admit_part(const fg_health_ask *ask, const fg_admit *how, int part, const fg_breaker_levels *levels, int64_t t, fg_ticket *k) {
  fg_word *w = fg_part_word(ask, part);
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

void fg_health_give_back(const fg_health_ask *ask, fg_ticket *k, int64_t t) {
  for (int part = 0; part < 4; part++) {
    fg_word *w = fg_part_word(ask, part);
    if (w != NULL && k->probe[part]) {
      fg_breaker_give_back(w, k->generation[part], t);
    }
  }
}

int fg_health_admit(const fg_health_ask *ask, const fg_admit *how, int64_t t, fg_ticket *out, fg_health_view *why) {
  fg_ticket k = {.zero = {0}};
  *out = k;
  fg_breaker_levels levels;
  fg_limits l;
  verify(ask, t);
  *why = fg_health_look(ask, 0, t, &levels, &l);
  if (why->health != FG_HEALTH_OK && why->health != FG_HEALTH_PROBE) {
    (void)fg_route_settle(ask->region, ask->route, ask->account, ask->breaker, t); /* complete what the look has seen */
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
  const fg_gcra_config pace = paced(ask, why);
  int pace_taken = ok && pace.rate > 0 && (int)fg_gcra_take(&ask->route->pace_tat, &pace, 1, t).allowed;
  ok = ok && (pace.rate == 0 || pace_taken);
  for (int i = 0; ok && i < 3; i++) {
    ok = admit_part(ask, how, fg_latch_parts[i], NULL, t, &k);
  }
  ok = ok && admit_part(ask, how, FG_PART_BREAKER, &levels, t, &k);
  if (!ok) { /* somebody was faster between the look and the taking */
    fg_health_give_back(ask, &k, t);
    while (taken > 0) {
      taken--;
      fg_gcra_undo(l.word[taken], &l.config[taken], l.take[taken]);
    }
    if (pace_taken) {
      fg_gcra_undo(&ask->route->pace_tat, &pace, 1);
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
  fg_limit_admitted(&ask->route->limit, why->in_flight + 1, t);
  if (k.watch.probe) {
    fg_count(&ask->route->count[FG_ROUTE_PROBES], 1);
  }
  *out = k;
  return 1;
}
