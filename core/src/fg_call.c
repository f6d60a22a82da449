/* A call, shared parts: opening it, keeping its latest decision, ending it. */
#include "fg_call.h"

#include "fg_commit.h"
#include "fg_kept.h"
#include "fg_math.h"
#include "fg_money.h"

int32_t fg_call_touch(const fg_engine *e, fg_call *c, int64_t now_ms, fg_call_state **s, int64_t *t) {
  fg_call_state *state;
  int32_t rc;
  if (c == NULL) {
    return FG_ERR_ARG;
  }
  rc = fg_engine_arrive(e, now_ms, t);
  if (rc != FG_OK) {
    return rc;
  }
  state = fg_state(c);
  if (state->magic != FG_CALL_MAGIC || state->policy_hash != e->policy_hash || state->region_hash != e->region_hash ||
      state->workflow >= e->policy->workflow_count) {
    return FG_ERR_STATE;
  }
  if (*t < state->last_t) {
    *t = state->last_t; /* time that goes back stands still */
  }
  state->last_t = *t;
  *s = state;
  return FG_OK;
}

void fg_call_look(const fg_engine *e, fg_call_state *s, int64_t t) {
  const uint32_t did = fg_health_scan(e->region, &e->breaker, t);
  if (did != 0) {
    fg_call_alert(s, did);
  }
}

int32_t fg_call_open(const fg_engine *e, fg_call *c, uint32_t told, int64_t now_ms, fg_decision *out, fg_call_state **s, int64_t *t) {
  const int32_t rc = fg_call_open_first(e, c, told, now_ms, out, s, t);
  if (rc == FG_OK) {
    fg_call_look(e, *s, *t);
  }
  return rc;
}

int32_t fg_call_open_first(const fg_engine *e, fg_call *c, uint32_t told, int64_t now_ms, fg_decision *out, fg_call_state **s, int64_t *t) {
  uint32_t size;
  int32_t rc;
  if (out == NULL) {
    return FG_ERR_ARG;
  }
  size = out->size;
  if (size < sizeof *out) {
    if (size >= 8) {
      out->action = FG_ACTION_FAIL_CLOSED;
    }
    return FG_ERR_ABI;
  }
  fg_zero(out, sizeof *out);
  out->size = size;
  rc = fg_call_touch(e, c, now_ms, s, t);
  if (rc == FG_OK) {
    (*s)->told = (uint8_t)told;
    (*s)->ended = 0;
  }
  return rc;
}

void fg_call_alert(fg_call_state *s, uint32_t did) {
  uint32_t alerts = s->alerts;
  alerts |= (did & FG_DID_LATCH_KEY) ? FG_ALERT_KEY_LATCHED : 0;
  alerts |= (did & FG_DID_LATCH_QUOTA) ? FG_ALERT_ACCOUNT_EMPTY : 0;
  alerts |= (did & FG_DID_LATCH_ROUTE) ? FG_ALERT_ROUTE_MISCONFIGURED : 0;
  alerts |= (did & FG_DID_OPEN) ? FG_ALERT_BREAKER_OPENED : 0;
  s->alerts = (uint8_t)alerts;
}

void fg_call_again(const fg_engine *e, const fg_call_state *s, fg_decision *out) {
  fg_kept_get(s, fg_workflow_of(e, s), out);
}

void fg_call_count(const fg_engine *e, fg_call_state *s, uint32_t column, int64_t t) {
  fg_workflow_rec *rec = fg_engine_workflow_rec(e, s->workflow, t);
  if (rec == NULL) {
    return;
  }
  if (s->counted != 0) {
    (void)fg_fetch_add(&rec->count[s->counted - 1], UINT64_MAX); /* minus one: it stood elsewhere before */
  }
  fg_count(&rec->count[column], 1);
  s->counted = (uint8_t)(column + 1);
}

void fg_call_fill(const fg_engine *e, fg_call_state *s, int64_t t, fg_decision *out) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  out->attempts_left = fg_sub32(w->total_attempts, s->attempts_used);
  out->elapsed_left_ms = fg_elapsed_left(e, s, t);
  out->tokens_left = fg_tokens_left(w, s);
  out->cost_left_nusd = fg_cost_left(w, s);
  out->requested = w->standin[0].route + 1;
  out->reuse_ops = fg_commit_reuse(s);
  out->alert |= s->alerts;
  s->alerts = 0;
}

void fg_call_clocks(const fg_engine *e, const fg_call_state *s, uint32_t place, uint32_t wait_ms, int64_t t, fg_clocks *out) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  uint32_t i, left = fg_elapsed_left(e, s, t), spare = 0;
  for (i = 1; i < w->standin_count && left != UINT32_MAX; i++) { /* could a stand-in still serve after this one? then leave it time */
    const uint32_t p = s->order[i];
    if (p != place && s->barred[p] == 0 && !w->standin[p].ladder_only && !(s->seat[p] & FG_SEAT_OUT) && s->sends[p] < w->per_route &&
        s->attempts_used + 1u < w->total_attempts) {
      const uint32_t estimate = fg_estimate_ms(fg_route_of(e, s, p), s, fg_rec_of(e, s, p, t), s->max_output_tokens);
      if (spare == 0 || estimate < spare) {
        spare = estimate;
      }
    }
  }
  if (left != UINT32_MAX) {
    left = fg_sub32(left, wait_ms);
  }
  fg_clocks_of(w, s, fg_rec_of(e, s, place, t), left, spare, t, out);
}

void fg_call_show_clocks(const fg_clocks *k, fg_decision *out) {
  out->connect_ms = k->connect_ms;
  out->first_token_ms = k->first_token_ms;
  out->idle_ms = k->idle_ms;
  out->progress_ms = k->progress_ms;
  out->total_ms = k->total_ms;
}

void fg_call_keep(const fg_engine *e, fg_call_state *s, fg_decision *out) {
  fg_kept_put(s, fg_workflow_of(e, s), out);
}

/* The failed route's bucket pays for the send that was decided; a call that sends nothing gets it back. 0 when it cannot pay (any more). */
static int settle_bucket(const fg_engine *e, fg_call_state *s, uint32_t stage, const fg_decision *d, uint32_t route, int64_t t) {
  const uint32_t sends = d->route != 0 && (d->action == FG_ACTION_RETRY || d->action == FG_ACTION_FALLBACK || d->action == FG_ACTION_DEGRADE);
  fg_health_ask failed;
  uint32_t price = 0;
  if (stage != FG_STAGE_FAILURE || !fg_ask_of(e, s, s->failed_route, t, &failed)) {
    return stage != FG_STAGE_FAILURE || !sends;
  }
  if (sends) {
    price = route == s->failed_route ? fg_price_of_retry(e, s, t) : fg_price_of_fallback(s);
  }
  if (price > s->paid_milli) {
    if (!fg_bucket_pay(&failed.route->retry, &e->bucket, price - s->paid_milli, t)) {
      return 0;
    }
    s->paid_milli = (uint16_t)price;
  } else if (!sends) {
    fg_call_refund(e, s, t);
  }
  return 1;
}

void fg_call_refund(const fg_engine *e, fg_call_state *s, int64_t t) {
  fg_health_ask failed;
  if (s->paid_milli != 0 && fg_ask_of(e, s, s->failed_route, t, &failed)) {
    fg_bucket_refund(&failed.route->retry, &e->bucket, s->paid_milli, t);
  }
  s->paid_milli = 0;
}

static uint32_t place_of(const fg_facts_build *b, uint32_t route) {
  uint32_t i;
  for (i = 0; i < b->facts.candidate_count; i++) {
    if (route != 0 && b->facts.candidate[i].route == route) {
      return b->place[i];
    }
  }
  return FG_NO_ROUTE;
}

/* Where a decision takes the call. */
static void move(const fg_engine *e, fg_call_state *s, uint32_t stage, const fg_facts_build *b, int64_t t, const fg_decision *d) {
  s->stage = (uint8_t)stage;
  s->send_action = (uint8_t)d->action;
  s->send_route = (uint8_t)place_of(b, d->route);
  s->send_rung = (uint8_t)(d->action == FG_ACTION_DEGRADE ? d->step : 0);
  switch (d->action) {
  case FG_ACTION_PROCEED:
  case FG_ACTION_RETRY:
  case FG_ACTION_FALLBACK:
    s->state = FG_CALL_DECIDED;
    break;
  case FG_ACTION_HOLD:
    s->state = FG_CALL_DECIDED;
    s->hold_from = s->hold_from != 0 ? s->hold_from : fg_since(s, t) + 1;
    break;
  case FG_ACTION_DEGRADE:
    s->state = d->route != 0 ? FG_CALL_DECIDED : FG_CALL_GIVEN;
    if (d->route == 0) {
      fg_call_count(e, s, FG_WF_DEGRADED, t);
    }
    break;
  case FG_ACTION_QUEUE:
    s->state = FG_CALL_GIVEN;
    fg_call_count(e, s, FG_WF_QUEUED, t);
    break;
  default:
    s->state = FG_CALL_ENDED;
    fg_call_count(e, s, d->reason == FG_REASON_CLIENT_GONE ? FG_WF_CANCELLED : FG_WF_FAILED_CLOSED, t);
    break;
  }
  s->not_before_at = fg_add32(fg_since(s, t), d->wait_ms);
}

static void decide(const fg_facts_build *b, fg_decision *out) {
  const uint32_t size = out->size;
  if (fg_decide(&b->facts, out) != FG_OK) { /* facts we built ourselves: cannot happen, and if it does nothing is sent */
    memset(out, 0, sizeof *out);
    out->size = size;
  }
}

/* The request as it is, to a route that is no lesser one. */
static int sends(const fg_decision *d) {
  return d->action == FG_ACTION_PROCEED || d->action == FG_ACTION_RETRY || d->action == FG_ACTION_FALLBACK;
}

void fg_call_decide(const fg_engine *e, fg_call_state *s, uint32_t stage, int64_t t, fg_decision *out) {
  enum { ROUNDS = 4 };
  fg_facts_build b;
  const uint32_t size = out->size;
  uint32_t round, ready = 0;
  if (stage == FG_STAGE_BEGIN) { /* mostly the primary is ready, and nothing else needs a look */
    fg_facts_primary(e, s, t, &b);
    ready = fg_decide(&b.facts, out) == FG_OK && out->action == FG_ACTION_PROCEED && !(b.facts.candidate[0].flags & FG_CAND_EARLY);
  }
  for (round = 0; round < ROUNDS; round++) {
    if (!ready) {
      fg_facts_make(e, s, stage, t, &b);
      decide(&b, out);
      if (!sends(out) && fg_facts_end_ramp(&b.facts)) {
        decide(&b, out); /* slow start sends a call to another route; where none would serve, it refuses nothing */
      }
    }
    if (settle_bucket(e, s, stage, out, place_of(&b, out->route), t)) {
      break;
    }
    if (round + 1 == ROUNDS) { /* others took the bucket's last token each time we looked */
      memset(out, 0, sizeof *out);
      out->size = size;
      out->reason = FG_REASON_RETRY_BUCKET_EMPTY;
      out->gate = FG_GATE_BUDGET;
    }
  }
  fg_call_alert(s, b.did);
  if (out->reason == FG_REASON_SPEND_PER_DAY) {
    out->alert |= FG_ALERT_SPEND_LIMIT_REACHED;
  }
  if (s->effect == FG_EFFECT_UNKNOWN && out->action == FG_ACTION_FAIL_CLOSED) {
    out->alert |= FG_ALERT_EFFECT_UNKNOWN;
  }
  move(e, s, stage, &b, t, out);
  fg_call_fill(e, s, t, out);
  out->attempt = s->send_route != FG_NO_ROUTE ? s->attempt_count + 1u : s->attempt_count;
  if (s->send_route != FG_NO_ROUTE) {
    fg_clocks k;
    fg_call_clocks(e, s, s->send_route, out->wait_ms, t, &k);
    fg_call_show_clocks(&k, out);
    s->stall_ms = k.stall_ms;
    s->clocks_at = fg_since(s, t) + out->wait_ms;
  }
  fg_call_keep(e, s, out);
}


void fg_attempt_over(const fg_engine *e, fg_call_state *s, const fg_outcome *outcome, int64_t t) {
  fg_attempt *a = &s->live;
  fg_health_ask ask;
  if (a->number == 0) {
    return;
  }
  if (fg_ask_of(e, s, a->route, t, &ask)) {
    fg_call_alert(s, fg_health_result(&ask, &a->ticket, outcome, t));
  } else {
    fg_health_abandon(e->region, &a->ticket);
  }
  if (s->billing == FG_BILLING_NONE && !(a->flags & FG_AT_USAGE)) {
    fg_money_release(e, s, a, t);
  } else {
    fg_money_keep(s, a);
  }
  a->number = 0;
  s->ended = 1;
}
