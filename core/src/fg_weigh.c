/* The ways out that the two stages of a decision share: a stand-in, the queue, the ladder, the end (DESIGN 6, rules 9-12). */
#include "fg_weigh.h"

void fg_weigh_reject(fg_weigh *w, uint32_t index, uint32_t why) {
  fg_decision *d = w->d;
  if (d->rejected_count < FG_ROUTES_MAX) {
    d->rejected[d->rejected_count++] = w->f->candidate[index].route | why << 16;
  }
}

void fg_weigh_send(fg_weigh *w, uint32_t action, uint32_t index, uint32_t reason, uint32_t detail) {
  const fg_candidate *c = &w->f->candidate[index];
  fg_decision *d = w->d;
  d->action = action;
  d->route = c->route;
  d->reason = reason;
  d->detail = detail;
  d->gate = fg_reason_gate(reason);
  d->change |= c->change | w->commit.change;
  if (c->change & FG_CHANGE_MAX_TOKENS) {
    d->max_tokens = c->max_tokens;
  }
  if (w->f->stage == FG_STAGE_FAILURE && w->f->failure.kind == FG_KIND_TRUNCATED_TOOL_CALL && action != FG_ACTION_DEGRADE) {
    d->change |= FG_CHANGE_MAX_TOKENS;
    d->max_tokens = w->f->truncated_max_tokens;
  }
  d->label = (c->flags & FG_CAND_PRIMARY) && action != FG_ACTION_DEGRADE ? 0 : 1;
}

uint32_t fg_weigh_spill(const fg_facts *f) {
  if (f->spill_mode == FG_SPILL_NEVER) {
    return FG_REASON_SPILL_FORBIDDEN;
  }
  return (f->flags & FG_FACT_SPILL_OK) ? FG_REASON_NONE : FG_REASON_SPILL_EXHAUSTED;
}

/* Why this stand-in may not be sent to now: contract first (an unapproved route's price is no matter), then health, then budget. */
static uint32_t stand_in_forbidden(const fg_weigh *w, uint32_t index, bool time) {
  const fg_facts *f = w->f;
  const fg_candidate *c = &f->candidate[index];
  uint32_t why = fg_gate_contract(f, c, &w->owner);
  if (why == FG_REASON_NONE && w->commit.resume_from == FG_RESUME_PREFILL && !(c->flags & FG_CAND_PREFILL)) {
    why = FG_REASON_DOES_NOT_FIT_FEATURES;
  }
  if (why == FG_REASON_NONE) {
    why = fg_gate_health(c);
  }
  if (why == FG_REASON_NONE) {
    why = fg_budget_route(f, c, time);
  }
  if (why == FG_REASON_NONE && ((f->unable & FG_UNABLE_REROUTE) || (c->change != 0 && (f->unable & FG_UNABLE_EDIT)))) {
    why = FG_REASON_HOST_UNABLE;
  }
  return why != FG_REASON_NONE ? why : w->spill_why;
}

uint32_t fg_weigh_stand_in(fg_weigh *w) {
  const fg_facts *f = w->f;
  uint32_t i, why;
  for (i = 1; i < f->candidate_count; i++) {
    const fg_candidate *c = &f->candidate[i];
    if (c->flags & FG_CAND_LADDER) {
      continue;
    }
    if (f->stage == FG_STAGE_FAILURE && i == f->failed) {
      w->next_why = w->next_why == FG_REASON_NO_STAND_IN ? w->base_why : w->next_why;
      continue;
    }
    why = FG_REASON_NONE;
    if (f->stage == FG_STAGE_FAILURE && !w->owner.fallback) {
      why = fg_owner_stops(f, f->failure.owner) ? FG_REASON_OWNER_STOPS : w->owner.reason;
    } else if (f->stage == FG_STAGE_BEGIN && !w->owner.fallback) {
      why = FG_REASON_OWNER_STOPS;
    }
    if (why == FG_REASON_NONE) {
      why = stand_in_forbidden(w, i, f->stage == FG_STAGE_FAILURE);
    }
    if (why == FG_REASON_NONE) {
      return i;
    }
    if (w->next_why == FG_REASON_NO_STAND_IN) {
      w->next_why = why;
    }
    fg_weigh_reject(w, i, why);
  }
  return 0;
}

uint32_t fg_weigh_reason(const fg_weigh *w, uint32_t *detail) {
  if (w->call_why != FG_REASON_NONE) {
    *detail = w->owner.reason;
    return w->call_why;
  }
  if (w->f->stage == FG_STAGE_FAILURE && !w->owner.retry) {
    *detail = w->next_why;
    return w->owner.reason;
  }
  if (w->commit.resume_from == FG_RESUME_PREFILL) { /* nobody could continue what was shown */
    *detail = w->next_why;
    return FG_REASON_PARTIAL_OUTPUT;
  }
  if (w->next_why == FG_REASON_NO_STAND_IN) {
    *detail = FG_REASON_NO_STAND_IN;
    return w->base_why;
  }
  *detail = w->base_why;
  return FG_REASON_CHAIN_EXHAUSTED;
}

/* A chain's end is explained by the gate that refused its first stand-in, not by a gate of its own. */
static uint32_t gate_of(const fg_weigh *w, uint32_t reason) {
  return reason == FG_REASON_CHAIN_EXHAUSTED ? fg_reason_gate(w->next_why) : fg_reason_gate(reason);
}

void fg_weigh_end(fg_weigh *w, uint32_t reason, uint32_t detail) {
  w->d->action = FG_ACTION_FAIL_CLOSED;
  w->d->reason = reason;
  w->d->detail = detail;
  w->d->gate = gate_of(w, reason);
  w->d->resume_from = FG_RESUME_CALL;
}

bool fg_weigh_queue(fg_weigh *w) {
  const fg_facts *f = w->f;
  uint32_t i, wait, earliest = UINT32_MAX;
  if (!(f->flags & FG_FACT_QUEUE_OK) || (f->unable & FG_UNABLE_QUEUE) || w->commit.resume_from == FG_RESUME_PREFILL) {
    return false; /* a redelivered call answers anew: it cannot continue what was shown */
  }
  for (i = 0; i < f->candidate_count; i++) {
    const fg_candidate *c = &f->candidate[i];
    if (c->barred != FG_REASON_NONE || (c->flags & (FG_CAND_LADDER | FG_CAND_OUT))) {
      continue;
    }
    if (i != w->base && fg_gate_contract(f, c, &w->owner) != FG_REASON_NONE) {
      continue; /* it could not serve this call later either */
    }
    wait = c->health_wait_ms;
    if (f->stage == FG_STAGE_FAILURE && i == f->failed && wait < f->backoff_ms) {
      wait = f->backoff_ms;
    }
    if (wait < earliest) {
      earliest = wait;
    }
  }
  if (earliest != UINT32_MAX && earliest > f->queue_left_ms) {
    return false;
  }
  w->d->action = FG_ACTION_QUEUE;
  w->d->reason = fg_weigh_reason(w, &w->d->detail);
  w->d->gate = gate_of(w, w->d->reason);
  w->d->wait_ms = earliest == UINT32_MAX ? 0 : earliest;
  w->d->change |= w->commit.change;
  w->d->resume_from = FG_RESUME_CALL;
  return true;
}

static void degrade(fg_weigh *w, const fg_rung *r, uint32_t index, uint32_t change) {
  fg_decision *d = w->d;
  uint32_t detail;
  const uint32_t reason = fg_weigh_reason(w, &detail);
  if (r->step == FG_STEP_CACHED || r->step == FG_STEP_PRESET) {
    d->action = FG_ACTION_DEGRADE;
    d->route = 0;
    d->reason = reason;
    d->detail = detail;
    d->change |= w->commit.change; /* what was shown of another answer goes first */
    d->resume_from = FG_RESUME_CALL;
    d->label = 1;
  } else {
    fg_weigh_send(w, FG_ACTION_DEGRADE, index, reason, detail);
    d->change |= change;
  }
  d->gate = gate_of(w, reason);
  d->ladder_step = r->step;
  d->step = (uint32_t)(r - w->f->ladder) + 1;
  d->max_age_s = r->max_age_s;
  d->text = r->text;
  if (change & FG_CHANGE_MAX_TOKENS) {
    d->max_tokens = r->max_tokens;
  }
  if (change & FG_CHANGE_COMPACT) {
    d->compact_tokens = r->compact_tokens;
  }
}

/* Does this edit remove what failed: size, a feature, time, tokens or money? */
static uint32_t edit_that_helps(const fg_weigh *w, const fg_rung *r) {
  const uint32_t why = w->base_why;
  const bool time = why == FG_REASON_WAIT_DOES_NOT_FIT || why == FG_REASON_ESTIMATE_DOES_NOT_FIT;
  const bool money = why == FG_REASON_TOKENS_EXHAUSTED || why == FG_REASON_COST_EXHAUSTED;
  switch (r->step) {
  case FG_STEP_SHORTER:
    return w->owner.size_out || time || money ? FG_CHANGE_MAX_TOKENS : 0;
  case FG_STEP_NO_THINKING:
    return w->owner.feature || time || money ? FG_CHANGE_NO_THINKING : 0;
  case FG_STEP_COMPACT:
    return w->owner.size_in || money ? FG_CHANGE_COMPACT : 0;
  case FG_STEP_WITHOUT_TOOLS:
    return w->owner.feature ? FG_CHANGE_DROP_TOOLS : 0;
  default:
    return 0;
  }
}

/* An edited request on the same route passes rule 8 but for its class: it is not the request that failed. */
static bool edit_may_send(const fg_weigh *w, const fg_rung *r) {
  const fg_facts *f = w->f;
  fg_candidate c = f->candidate[w->base];
  c.tokens = r->tokens;
  c.extra_nusd = r->extra_nusd;
  c.estimate_ms = r->estimate_ms;
  if (w->send_why != FG_REASON_NONE || (f->unable & FG_UNABLE_EDIT) || (c.flags & FG_CAND_OUT)) {
    return false;
  }
  if (w->commit.resume_from == FG_RESUME_PREFILL && !(c.flags & FG_CAND_PREFILL)) {
    return false;
  }
  return fg_gate_health(&c) == FG_REASON_NONE && fg_budget_route(f, &c, true) == FG_REASON_NONE;
}

/* May an answer that is not the model's stand in? Not behind the beginning of one that can only be continued. */
static bool answers(const fg_weigh *w, uint32_t kinds) {
  return (kinds & FG_RUNG_ANSWER) != 0 && w->commit.resume_from != FG_RESUME_PREFILL;
}

static bool try_rung(fg_weigh *w, const fg_rung *r, uint32_t kinds) {
  const fg_facts *f = w->f;
  uint32_t change;
  switch (r->step) {
  case FG_STEP_SMALLER_MODEL:
    if (!(kinds & FG_RUNG_SMALLER) || w->send_why != FG_REASON_NONE ||
        stand_in_forbidden(w, r->route_index, f->stage == FG_STAGE_FAILURE) != FG_REASON_NONE) {
      return false;
    }
    degrade(w, r, r->route_index, 0);
    return true;
  case FG_STEP_CACHED:
    if (!answers(w, kinds) || (f->unable & FG_UNABLE_CACHE)) {
      return false;
    }
    degrade(w, r, 0, 0);
    return true;
  case FG_STEP_PRESET:
    if (!answers(w, kinds) || (f->unable & FG_UNABLE_PRESET)) {
      return false;
    }
    degrade(w, r, 0, 0);
    return true;
  default:
    change = edit_that_helps(w, r);
    if (!(kinds & FG_RUNG_EDIT) || change == 0 || !edit_may_send(w, r)) {
      return false;
    }
    degrade(w, r, w->base, change);
    return true;
  }
}

bool fg_weigh_ladder(fg_weigh *w, uint32_t kinds) {
  const fg_facts *f = w->f;
  uint32_t i;
  for (i = 0; i < f->ladder_count; i++) {
    const fg_rung *r = &f->ladder[i];
    if (!r->spent && r->helps && try_rung(w, r, kinds)) {
      return true;
    }
  }
  return false;
}

void fg_weigh_give_way(fg_weigh *w) {
  uint32_t detail;
  const uint32_t reason = fg_weigh_reason(w, &detail);
  uint32_t kinds = FG_RUNG_EDIT | FG_RUNG_SMALLER;
  if (w->call_why == FG_REASON_SPEND_PER_DAY) {
    w->owner.queue = false; /* past the day's money only answers that cost nothing are left */
  }
  if (w->owner.queue && fg_weigh_queue(w)) {
    return;
  }
  if (w->owner.answers) {
    kinds |= FG_RUNG_ANSWER;
  }
  if (w->owner.ladder && fg_weigh_ladder(w, kinds)) {
    return;
  }
  fg_weigh_end(w, reason, detail);
}
