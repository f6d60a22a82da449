/* The pure kernel: facts in, one decision out (DESIGN 6). Reads nothing else, keeps nothing.
 *
 * This file is the order of the rules after a failed attempt; fg_decide_begin.c that before the first one; fg_weigh.c the ways out
 * they share; the fg_gate_* files what each gate means. */
#include "fg_weigh.h"

#include "fg_base.h"

/* Rule 8, as far as it does not depend on rule 9: may the same route be sent to again? */
static uint32_t retry_forbidden(const fg_weigh *w) {
  const fg_facts *f = w->f;
  const fg_candidate *c = &f->candidate[f->failed];
  uint32_t why;
  if (!w->owner.retry) {
    return w->owner.reason;
  }
  if (f->failure.flags & FG_FAIL_MUST_NOT_RETRY) {
    return FG_REASON_SERVER_FORBADE_RETRY;
  }
  if (c->barred != FG_REASON_NONE) { /* a stand-in whose approval ran out while it was asked */
    return c->barred;
  }
  if (c->flags & FG_CAND_OUT) {
    return FG_REASON_OUTPUT_REJECTED;
  }
  if ((f->failure.klass == FG_CLASS_SILENT || f->failure.klass == FG_CLASS_CUT) && f->after_silence != FG_SILENCE_ANY &&
      f->billing > FG_BILLING_NONE) {
    return f->failure.klass == FG_CLASS_CUT ? FG_REASON_CUT_ROUTE : FG_REASON_SILENT_ROUTE;
  }
  if (w->commit.resume_from == FG_RESUME_PREFILL && !(c->flags & FG_CAND_PREFILL)) {
    return FG_REASON_PARTIAL_OUTPUT;
  }
  if (f->failure.kind == FG_KIND_TRUNCATED_TOOL_CALL && (f->unable & FG_UNABLE_EDIT)) {
    return FG_REASON_TRUNCATED_TOOL_CALL;
  }
  if (!fg_health_waits(c->health)) { /* a wait is part of backoff_ms already */
    why = fg_gate_health(c);
    if (why != FG_REASON_NONE) {
      return why;
    }
  }
  return fg_budget_retry(f, f->backoff_ms);
}

/* Rule 8's second half: reasons to prefer a stand-in that would be sent to now. */
static uint32_t better_elsewhere(const fg_facts *f) {
  if (f->failure.klass == FG_CLASS_SILENT) {
    return FG_REASON_SILENT_ROUTE;
  }
  if ((f->flags & FG_FACT_SLOW) && f->failure.owner != FG_OWNER_RATE) {
    return FG_REASON_SLOW_ROUTE;
  }
  if (f->failure.owner == FG_OWNER_RATE) {
    if (f->spill_mode == FG_SPILL_PREFER_FAST) {
      return FG_REASON_FASTER_ELSEWHERE;
    }
  }
  return FG_REASON_NONE;
}

static void send_again(fg_weigh *w) {
  const fg_facts *f = w->f;
  fg_weigh_send(w, FG_ACTION_RETRY, f->failed, (f->flags & FG_FACT_EMPTY_END) ? FG_REASON_BAD_ANSWER : w->owner.reason, FG_REASON_NONE);
  w->d->wait_ms = f->backoff_ms;
}

/* Rules 8 to 12. */
static void retry_or_leave(fg_weigh *w) {
  const fg_facts *f = w->f;
  uint32_t stand_in = 0;
  uint32_t prefer;
  w->base_why = retry_forbidden(w);
  prefer = w->base_why == FG_REASON_NONE || w->base_why == FG_REASON_WAIT_DOES_NOT_FIT ? better_elsewhere(f) : FG_REASON_NONE;
  if (w->base_why == FG_REASON_NONE && prefer == FG_REASON_NONE) {
    send_again(w);
    return;
  }
  if (w->base_why != FG_REASON_NONE && f->failure.owner == FG_OWNER_RATE) {
    const bool used_up = w->base_why == FG_REASON_CLASS_RETRIES_EXHAUSTED || w->base_why == FG_REASON_ROUTE_ATTEMPTS_EXHAUSTED;
    prefer = used_up && (f->flags & (FG_FACT_WAITED | FG_FACT_ROUTE_PACED)) ? FG_REASON_LIMIT_PERSISTS : FG_REASON_NONE;
  }
  fg_weigh_reject(w, f->failed, prefer != FG_REASON_NONE ? prefer : w->base_why);
  stand_in = fg_weigh_stand_in(w);
  if (stand_in != 0) {
    fg_weigh_send(w, FG_ACTION_FALLBACK, stand_in, prefer != FG_REASON_NONE ? prefer : w->base_why, w->owner.reason);
    return;
  }
  if (w->base_why == FG_REASON_NONE) { /* nobody else would send now: the same route after all */
    w->d->rejected_count = 0;
    send_again(w);
    return;
  }
  fg_weigh_give_way(w);
}

static void after_failure(fg_weigh *w) {
  const fg_facts *f = w->f;
  fg_gate_owner(f, &w->owner);
  if (f->failure.kind == FG_KIND_CLIENT_GONE) { /* rule 1 */
    fg_weigh_end(w, FG_REASON_CLIENT_GONE, FG_REASON_NONE);
    if (f->effect == FG_EFFECT_UNKNOWN) {
      w->d->lookup = FG_LOOKUP_OPERATION;
    }
    return;
  }
  fg_gate_commit(f, &w->commit); /* rule 2 */
  w->d->resume_from = w->commit.resume_from;
  if (w->commit.reason != FG_REASON_NONE) {
    const uint32_t owner = f->failure.owner;
    const bool own = owner == FG_OWNER_POLICY || owner == FG_OWNER_AUTH || owner == FG_OWNER_REQUEST;
    w->call_why = own ? w->owner.reason : w->commit.reason;
    w->d->lookup = w->commit.lookup;
    if (!own && w->commit.answers && fg_weigh_ladder(w, FG_RUNG_ANSWER)) {
      return;
    }
    fg_weigh_end(w, w->call_why, own ? w->commit.reason : w->owner.reason);
    return;
  }
  if (f->failure.owner == FG_OWNER_RATE) {
    w->spill_why = fg_weigh_spill(f);
  }
  w->send_why = fg_budget_call(f);
  w->call_why = w->owner.retry || w->owner.fallback ? w->send_why : FG_REASON_NONE;
  if (w->call_why != FG_REASON_NONE) {
    w->base_why = w->owner.retry ? w->call_why : w->owner.reason;
    fg_weigh_reject(w, f->failed, w->base_why);
    fg_weigh_give_way(w);
    return;
  }
  retry_or_leave(w);
}

/* What the end user may be told, and what an outer layer should do. */
static void hints(fg_weigh *w) {
  const fg_facts *f = w->f;
  fg_decision *d = w->d;
  uint32_t i, shortest = UINT32_MAX;
  bool waiting = true;
  if (d->action != FG_ACTION_FAIL_CLOSED && d->action != FG_ACTION_QUEUE) {
    return;
  }
  switch (d->reason) {
  case FG_REASON_REQUEST_INVALID:
  case FG_REASON_TOO_LARGE:
  case FG_REASON_UNSUPPORTED:
  case FG_REASON_TRUNCATED_TOOL_CALL:
  case FG_REASON_REFUSED:
  case FG_REASON_DOES_NOT_FIT_TOKENS:
  case FG_REASON_DOES_NOT_FIT_FEATURES:
  case FG_REASON_DOES_NOT_FIT_TOOLS:
  case FG_REASON_DOES_NOT_FIT_DATA:
  case FG_REASON_DOES_NOT_FIT_REGION:
  case FG_REASON_DOES_NOT_FIT_ACCOUNT:
    d->hint_status = 400;
    return;
  case FG_REASON_CLIENT_GONE:
    d->hint_status = 499;
    return;
  case FG_REASON_RECONCILE_FIRST:
  case FG_REASON_EFFECT_COMMITTED:
  case FG_REASON_TOO_MANY_OPERATIONS:
    d->hint_status = 409;
    return;
  case FG_REASON_PARTIAL_OUTPUT:
  case FG_REASON_MAY_HAVE_RUN:
    d->hint_status = 502;
    d->user_may_retry = 1;
    return;
  default:
    break;
  }
  d->hint_status = 503;
  d->user_may_retry = 1;
  for (i = 0; i < f->candidate_count; i++) { /* all merely waiting? then say how long */
    const fg_candidate *c = &f->candidate[i];
    const bool rated = f->stage == FG_STAGE_FAILURE && i == f->failed && f->failure.owner == FG_OWNER_RATE;
    uint32_t wait = c->health_wait_ms;
    if (c->barred != FG_REASON_NONE || (c->flags & (FG_CAND_LADDER | FG_CAND_OUT))) {
      continue;
    }
    if (rated && wait < f->backoff_ms) {
      wait = f->backoff_ms;
    }
    if (!rated && !fg_health_waits(c->health) && c->health != FG_HEALTH_FULL) {
      waiting = false;
    }
    if (wait != 0 && wait < shortest) {
      shortest = wait;
    }
  }
  if (shortest != UINT32_MAX) {
    d->hint_retry_after_ms = shortest;
    d->hint_should_retry = waiting;
    d->hint_status = waiting ? 429 : 503;
  }
}

static bool facts_ok(const fg_facts *f) {
  uint32_t i;
  if (f->candidate_count == 0 || f->candidate_count > FG_ROUTES_MAX || f->failed >= f->candidate_count || f->ladder_count > FG_LADDER_MAX ||
      f->stage > FG_STAGE_FAILURE || f->failure.owner >= FG_OWNER_COUNT) {
    return false;
  }
  for (i = 0; i < f->ladder_count; i++) {
    if (f->ladder[i].route_index >= f->candidate_count || f->ladder[i].step >= FG_STEP_COUNT) {
      return false;
    }
  }
  return true;
}

int32_t fg_decide(const fg_facts *facts, fg_decision *out) {
  fg_weigh w;
  fg_decision d;
  const uint32_t size = out != NULL ? out->size : 0;
  if (out == NULL || facts == NULL) {
    return FG_ERR_ARG;
  }
  fg_zero(&d, sizeof d);
  if (size < sizeof d || facts->size < sizeof *facts) {
    if (size >= 8) {
      out->action = FG_ACTION_FAIL_CLOSED;
    }
    return FG_ERR_ABI;
  }
  d.size = size;
  if (!facts_ok(facts)) {
    memcpy(out, &d, sizeof d);
    return FG_ERR_ARG;
  }
  memset(&w, 0, sizeof w);
  w.f = facts;
  w.d = &d;
  w.base = facts->stage == FG_STAGE_FAILURE ? facts->failed : 0;
  w.next_why = FG_REASON_NO_STAND_IN;
  d.owner = facts->failure.owner;
  d.kind = facts->failure.kind;
  d.repair = facts->failure.repair;
  d.attempts_left = facts->attempts_left;
  d.elapsed_left_ms = facts->elapsed_left_ms;
  d.tokens_left = facts->tokens_left;
  d.cost_left_nusd = facts->cost_left_nusd;
  d.requested = facts->candidate[0].route;
  if (facts->stage == FG_STAGE_BEGIN) {
    fg_decide_begin(&w);
  } else {
    after_failure(&w);
    d.may_pay_twice = facts->billing != FG_BILLING_NONE && (d.action == FG_ACTION_RETRY || d.action == FG_ACTION_FALLBACK ||
                                                            (d.action == FG_ACTION_DEGRADE && d.route != 0));
  }
  hints(&w);
  fg_copy(out, &d, sizeof d);
  return FG_OK;
}
