/* Before the first attempt, and again at begin_attempt: the same gates, by why the primary is out (DESIGN 6). */
#include "fg_weigh.h"

/* What a primary that is out for this reason leaves open, as if it had just failed that way. */
static void verdict_of(const fg_facts *f, uint32_t why, fg_owner_verdict *o) {
  const fg_owner_verdict none = {0};
  *o = none;
  o->reason = why;
  o->fallback = o->queue = o->ladder = o->answers = true;
  switch (why) {
  case FG_REASON_QUOTA_LATCHED:
    o->reason = FG_REASON_QUOTA_EXHAUSTED;
    o->other_budget = true;
    o->fallback = !fg_owner_stops(f, FG_OWNER_QUOTA);
    break;
  case FG_REASON_KEY_LATCHED: /* rule 4: never queued, never degraded: a person must act */
    o->reason = FG_REASON_KEY_REJECTED;
    o->fallback = !fg_owner_stops(f, FG_OWNER_AUTH);
    o->queue = o->ladder = o->answers = false;
    break;
  case FG_REASON_ROUTE_LATCHED:
    o->reason = FG_REASON_ROUTE_MISCONFIGURED;
    break;
  case FG_REASON_DOES_NOT_FIT_TOKENS:
    o->size_in = o->size_out = true;
    o->larger = true;
    o->queue = o->answers = false;
    break;
  case FG_REASON_DOES_NOT_FIT_FEATURES:
  case FG_REASON_DOES_NOT_FIT_TOOLS:
    o->feature = o->larger = true;
    o->queue = o->answers = false;
    break;
  case FG_REASON_DOES_NOT_FIT_DATA:
  case FG_REASON_DOES_NOT_FIT_REGION:
  case FG_REASON_DOES_NOT_FIT_ACCOUNT:
    o->queue = false;
    break;
  default:
    break;
  }
}

/* Shortest wait until any route of this call has room again; 0 = none will by waiting. */
static uint32_t shortest_hold(const fg_weigh *w, uint32_t *why) {
  const fg_facts *f = w->f;
  uint32_t i, best = 0;
  for (i = 0; i < f->candidate_count; i++) {
    const fg_candidate *c = &f->candidate[i];
    if ((c->flags & FG_CAND_LADDER) || c->barred != FG_REASON_NONE || c->health_wait_ms == 0) {
      continue;
    }
    if (i != 0 && ((f->unable & FG_UNABLE_REROUTE) || fg_gate_contract(f, c, &w->owner) != FG_REASON_NONE)) {
      continue;
    }
    if (c->health == FG_HEALTH_QUOTA_LATCHED || c->health == FG_HEALTH_KEY_LATCHED || c->health == FG_HEALTH_MODEL_LATCHED) {
      continue;
    }
    if (best == 0 || c->health_wait_ms < best) {
      best = c->health_wait_ms;
      *why = fg_gate_health(c);
    }
  }
  return best;
}

static bool hold(fg_weigh *w, uint32_t wait, uint32_t why) {
  const fg_facts *f = w->f;
  if (wait == 0 || wait > f->hold_ms || fg_budget_wait(f, wait) != FG_REASON_NONE) {
    return false;
  }
  w->d->action = FG_ACTION_HOLD;
  w->d->wait_ms = wait;
  w->d->reason = why;
  w->d->gate = fg_reason_gate(why);
  return true;
}

static uint32_t primary_forbidden(const fg_facts *f) {
  const fg_candidate *c = &f->candidate[0];
  uint32_t why = c->barred;
  if (why == FG_REASON_NONE && (c->flags & FG_CAND_OUT)) {
    why = FG_REASON_OUTPUT_REJECTED;
  }
  if (why == FG_REASON_NONE) {
    why = fg_gate_health(c);
  }
  if (why == FG_REASON_NONE) {
    why = fg_budget_route(f, c, false);
  }
  if (why == FG_REASON_NONE && c->change != 0 && (f->unable & FG_UNABLE_EDIT)) {
    why = FG_REASON_HOST_UNABLE;
  }
  return why;
}

/* Whose matter it is, and what would mend it. */
static void blame(fg_weigh *w) {
  switch (w->base_why) {
  case FG_REASON_DOES_NOT_FIT_TOKENS:
    w->d->repair = FG_REPAIR_SMALLER_REQUEST;
    break;
  case FG_REASON_DOES_NOT_FIT_FEATURES:
  case FG_REASON_DOES_NOT_FIT_TOOLS:
    w->d->repair = FG_REPAIR_REMOVE_FEATURE;
    break;
  case FG_REASON_KEY_LATCHED:
    w->d->repair = FG_REPAIR_FIX_KEY;
    w->d->owner = FG_OWNER_AUTH;
    break;
  case FG_REASON_QUOTA_LATCHED:
    w->d->repair = FG_REPAIR_ADD_CREDIT;
    w->d->owner = FG_OWNER_QUOTA;
    break;
  default:
    break;
  }
}

/* A probe that requests have not paid for yet is left to a later one, if another route would serve this one now. */
static bool leave_probe(fg_weigh *w) {
  uint32_t stand_in;
  if (!(w->f->candidate[0].flags & FG_CAND_EARLY)) {
    return false;
  }
  verdict_of(w->f, FG_REASON_ROUTE_OPEN, &w->owner);
  fg_weigh_reject(w, 0, FG_REASON_ROUTE_OPEN);
  stand_in = fg_weigh_stand_in(w);
  if (stand_in == 0) {
    w->d->rejected_count = 0;
    return false;
  }
  fg_weigh_send(w, FG_ACTION_PROCEED, stand_in, FG_REASON_PRIMARY_OUT, FG_REASON_ROUTE_OPEN);
  return true;
}

void fg_decide_begin(fg_weigh *w) {
  const fg_facts *f = w->f;
  const fg_candidate *primary = &f->candidate[0];
  uint32_t stand_in, wait, detail, why = FG_REASON_NONE;
  w->call_why = w->send_why = fg_budget_call(f);
  if (w->call_why != FG_REASON_NONE) {
    w->owner.reason = FG_REASON_NONE;
    if (!fg_weigh_ladder(w, FG_RUNG_ANSWER)) {
      fg_weigh_end(w, w->call_why, FG_REASON_NONE);
    }
    return;
  }
  w->base_why = primary_forbidden(f);
  if (w->base_why == FG_REASON_NONE) {
    if (leave_probe(w)) {
      return;
    }
    fg_weigh_send(w, FG_ACTION_PROCEED, 0, FG_REASON_PRIMARY_READY, FG_REASON_NONE);
    return;
  }
  verdict_of(f, w->base_why, &w->owner);
  fg_weigh_reject(w, 0, w->base_why);
  blame(w);
  if (fg_health_waits(primary->health) && primary->barred == FG_REASON_NONE) {
    if (f->spill_mode != FG_SPILL_PREFER_FAST && hold(w, primary->health_wait_ms, w->base_why)) {
      return;
    }
    w->spill_why = fg_weigh_spill(f);
  }
  stand_in = fg_weigh_stand_in(w);
  if (stand_in != 0) {
    fg_weigh_send(w, FG_ACTION_PROCEED, stand_in, FG_REASON_PRIMARY_OUT, w->base_why);
    return;
  }
  if (w->owner.queue && fg_weigh_queue(w)) {
    return;
  }
  if (w->owner.ladder && fg_weigh_ladder(w, FG_RUNG_SMALLER | FG_RUNG_EDIT)) {
    return;
  }
  wait = shortest_hold(w, &why);
  if (w->owner.queue && hold(w, wait, why)) {
    w->d->detail = w->base_why;
    return;
  }
  if (w->owner.answers && fg_weigh_ladder(w, FG_RUNG_ANSWER)) {
    return;
  }
  why = fg_weigh_reason(w, &detail);
  if (w->base_why >= FG_REASON_DOES_NOT_FIT_TOKENS && w->base_why <= FG_REASON_DOES_NOT_FIT_ACCOUNT) {
    detail = why == FG_REASON_CHAIN_EXHAUSTED ? w->next_why : FG_REASON_NONE;
    why = w->base_why; /* the request itself: that says more than the chain */
  } else if (w->owner.reason != w->base_why) { /* latched: rule 4, 5 or 6, as if it had just failed */
    detail = w->next_why;
    why = w->owner.reason;
  }
  fg_weigh_end(w, why, detail);
}
