/* How an attempt or a call comes to its end: failure, success, a clock, the caller, a host that cannot. */
#include "fg_call.h"

#include "fg_call_replay.h"
#include "fg_commit.h"
#include "fg_kept.h"
#include "fg_math.h"
#include "fg_money.h"
#include "fg_output.h"

static void to_failure(const fg_engine *e, fg_call_state *s, const fg_evidence *v, int64_t t, fg_decision *out) {
  fg_failure f;
  memset(&f, 0, sizeof f);
  f.size = sizeof f;
  (void)fg_classify(e->policy, v, &f); /* evidence was checked; what it cannot read stays unknown */
  fg_attempt_failed(e, s, &f, v->inner_attempts, v->status > 0 ? (uint32_t)v->status : 0, t, out);
}

/* Progress that evidence reports, for hosts that sent no events. */
static void learn_progress(fg_call_state *s, const fg_evidence *v) {
  fg_attempt *a = &s->live;
  if (!(v->flags & FG_EV_PROGRESS)) {
    return;
  }
  if (v->visible != 0) {
    a->flags |= FG_AT_SENT | FG_AT_ACCEPTED | FG_AT_TOKEN | FG_AT_VISIBLE;
    fg_commit_billing(s, FG_BILLING_LIKELY);
    fg_commit_shown(s, FG_SHOWN_VISIBLE);
  }
  if (v->reasoning != 0 || v->tool_args_bytes != 0) {
    a->flags |= FG_AT_SENT | FG_AT_ACCEPTED | FG_AT_TOKEN;
    a->flags |= v->reasoning != 0 ? FG_AT_REASONED : 0;
    a->flags |= v->tool_args_bytes != 0 ? FG_AT_TOOL_OPEN : 0;
    fg_commit_billing(s, FG_BILLING_LIKELY);
    fg_commit_shown(s, FG_SHOWN_LIFECYCLE);
  }
  if (v->lifecycle != 0) {
    a->flags |= FG_AT_SENT | FG_AT_ACCEPTED;
    fg_commit_billing(s, FG_BILLING_LIKELY);
    fg_commit_shown(s, FG_SHOWN_LIFECYCLE);
  }
}

int32_t fg_call_failure(const fg_engine *e, fg_call *c, uint32_t attempt, const fg_evidence *v, int64_t now_ms, fg_decision *out) {
  fg_call_state *s;
  fg_evidence ev;
  int64_t t;
  const int32_t rc = fg_call_open(e, c, FG_TOLD_FAILURE, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (v == NULL || (v->header_count != 0 && v->headers == NULL) || v->phase >= FG_PHASE_COUNT) {
    return FG_ERR_ARG;
  }
  if (v->size < sizeof ev) {
    return FG_ERR_ABI;
  }
  if (!fg_is_live(s, attempt)) {
    fg_call_again(e, s, out);
    return FG_OK;
  }
  ev = *v;
  if (ev.provider.len == 0) {
    const fg_policy_route *r = fg_route_of(e, s, s->live.route);
    ev.provider = fg_policy_str(e->policy, r->provider);
  }
  if (ev.api.len == 0) {
    ev.api = fg_policy_str(e->policy, fg_route_of(e, s, s->live.route)->api);
  }
  if (ev.unix_ms == 0) {
    ev.unix_ms = fg_region_wall(e->region, t);
  }
  learn_progress(s, &ev);
  to_failure(e, s, &ev, t, out);
  return FG_OK;
}

int32_t fg_replay_failure(const fg_engine *e, fg_call *c, const fg_failure *f, uint32_t inner_attempts, uint32_t status, int64_t now_ms,
                          fg_decision *out) {
  fg_call_state *s;
  int64_t t;
  const int32_t rc = fg_call_open(e, c, FG_TOLD_FAILURE, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (fg_is_live(s, 0)) {
    fg_attempt_failed(e, s, f, inner_attempts, status, t, out);
  } else {
    fg_call_again(e, s, out);
  }
  return FG_OK;
}

/* A well-formed answer that may not be accepted, as a failure. */
static void reject(const fg_engine *e, fg_call_state *s, uint32_t kind, int64_t t, fg_decision *out) {
  fg_failure f;
  memset(&f, 0, sizeof f);
  f.size = sizeof f;
  f.kind = kind;
  f.owner = FG_OWNER_TRANSIENT;
  f.klass = FG_CLASS_ANSWER;
  f.scope = FG_SCOPE_REQUEST;
  f.billed = s->live.flags & FG_AT_USAGE ? FG_BILLED_YES : FG_BILLED_MAYBE;
  switch (kind) {
  case FG_KIND_NO_OUTPUT:
    f.owner = FG_OWNER_UNKNOWN;
    break;
  case FG_KIND_MODEL_REFUSED:
  case FG_KIND_OUTPUT_FILTERED:
  case FG_KIND_CONTENT_REFUSED:
    f.owner = FG_OWNER_POLICY;
    f.klass = FG_CLASS_OTHER;
    f.repair = FG_REPAIR_CHANGE_CONTENT;
    break;
  case FG_KIND_TRUNCATED_TOOL_CALL:
    f.repair = FG_REPAIR_RAISE_MAX_TOKENS;
    break;
  default:
    break;
  }
  fg_attempt_failed(e, s, &f, 0, 200, t, out);
}

static void learn_speed(const fg_engine *e, fg_call_state *s, const fg_answer *a, int64_t t) {
  fg_route_rec *rec = fg_rec_of(e, s, s->live.route, t);
  const uint32_t took = fg_since(s, t) - s->live.began_at;
  fg_health_ask ask;
  if (rec == NULL) {
    return;
  }
  if (fg_ask_of(e, s, s->live.route, t, &ask)) {
    if (s->stream_mode != FG_STREAM_YES) {
      fg_health_let_in(&ask, t);
    } else {
      fg_health_spoke(&ask, s->live.text_tokens, s->live.text_ms, t);
    }
  }
  if (s->stream_mode != FG_STREAM_YES) {
    fg_learn_record(&rec->learn[fg_learn_kind(s)], s->prompt_tokens, took);
  }
  if (a->output_tokens != 0 && took != 0) {
    fg_learn_rate(&rec->learn[fg_learn_kind(s)], a->output_tokens, took);
  }
  fg_count(&rec->count[FG_ROUTE_HELD], (uint64_t)fg_maxs(fg_hold_of(fg_route_of(e, s, s->live.route), s, s->prompt_tokens, s->max_output_tokens).nusd, 0));
}

static void accept(const fg_engine *e, fg_call_state *s, const fg_answer *a, int64_t t, fg_decision *out) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  const fg_outcome ok = {.what = FG_OUT_OK};
  const uint32_t place = s->live.route, number = s->live.number;
  const uint32_t label = place != 0 || s->degraded;
  const uint32_t column = s->degraded     ? FG_WF_DEGRADED
                          : place != 0    ? FG_WF_FALLBACK_RECOVERY
                          : s->resends    ? FG_WF_RETRY_RECOVERY
                                          : FG_WF_PRIMARY_SUCCESS;
  fg_route_rec *primary = fg_rec_of(e, s, 0, t);
  learn_speed(e, s, a, t);
  if (primary != NULL) {
    fg_bucket_credit(&primary->retry, &e->bucket, t); /* any success of a call credits its primary */
  }
  fg_attempt_over(e, s, &ok, t);
  fg_call_count(e, s, column, t);
  s->state = FG_CALL_ANSWERED;
  out->action = FG_ACTION_ACCEPT;
  out->route = w->standin[place].route + 1;
  out->attempt = number;
  out->reason = FG_REASON_COMPLETE;
  out->detail = label ? s->kept.reason : FG_REASON_NONE;
  out->label = label;
  out->ladder_step = s->degraded ? s->kept.ladder_step : FG_STEP_NONE;
  fg_call_fill(e, s, t, out);
  fg_call_keep(e, s, out);
}

/* A complete answer contains a first token, no later than now; when it came is not known, so nothing is learned from it. */
static void came(const fg_engine *e, fg_call_state *s, int64_t t) {
  fg_health_ask ask;
  if (!(s->live.flags & FG_AT_TOKEN) && fg_ask_of(e, s, s->live.route, t, &ask)) {
    fg_health_token(&ask, &s->live.ticket, t + (int64_t)s->live.progress_ms, t);
  }
}

int32_t fg_call_success(const fg_engine *e, fg_call *c, uint32_t attempt, const fg_answer *a, int64_t now_ms, fg_decision *out) {
  return fg_replay_success(e, c, attempt, a, NULL, now_ms, out);
}

int32_t fg_replay_success(const fg_engine *e, fg_call *c, uint32_t attempt, const fg_answer *a, const uint32_t *verdict, int64_t now_ms,
                          fg_decision *out) {
  fg_call_state *s;
  uint32_t bad;
  int64_t t;
  const int32_t rc = fg_call_open_first(e, c, FG_TOLD_SUCCESS, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (a == NULL || a->finish >= FG_FINISH_COUNT || (a->tool_call_count != 0 && a->tool_calls == NULL)) {
    return FG_ERR_ARG;
  }
  if (a->size < sizeof *a) {
    return FG_ERR_ABI;
  }
  if (!fg_is_live(s, attempt)) {
    fg_call_look(e, s, t);
    fg_call_again(e, s, out);
    return FG_OK;
  }
  came(e, s, t);
  fg_call_look(e, s, t);
  s->live.flags |= FG_AT_SENT | FG_AT_ACCEPTED;
  fg_commit_billing(s, FG_BILLING_LIKELY);
  if (a->prompt_tokens != 0 || a->output_tokens != 0 || a->cost_nusd > 0) {
    fg_commit_billing(s, FG_BILLING_CERTAIN);
    s->live.output_tokens = fg_max32(s->live.output_tokens, a->output_tokens);
    fg_money_settle(e, fg_workflow_of(e, s), s, &s->live, a, t);
  }
  bad = verdict != NULL ? *verdict : fg_output_check(e->policy, fg_workflow_of(e, s), a);
  if (bad != FG_KIND_UNKNOWN) {
    reject(e, s, bad, t, out);
    return FG_OK;
  }
  accept(e, s, a, t, out);
  return FG_OK;
}

typedef struct fg_due { uint32_t at, kind; } fg_due;

/* The clock of the running attempt that ends first. Bytes and content have a clock each: pings keep only the first one quiet. */
static fg_due nearest(const fg_call_state *s) {
  const fg_attempt *a = &s->live;
  const int streamed = s->stream_mode == FG_STREAM_YES;
  fg_due due = {fg_add32(a->began_at, a->total_ms), FG_KIND_TOTAL_TIMEOUT};
  uint32_t at;
  if (streamed && !(a->flags & FG_AT_TOKEN)) {
    at = fg_add32(a->began_at, a->first_token_ms);
    if (at < due.at || (at == due.at && !(a->flags & FG_AT_TOKEN))) {
      due.at = at;
      due.kind = FG_KIND_FIRST_TOKEN_TIMEOUT;
    }
  }
  if (streamed && (a->flags & FG_AT_ACCEPTED)) {
    at = fg_add32(a->last_byte_at, a->idle_ms);
    if (at < due.at) {
      due.at = at;
      due.kind = FG_KIND_IDLE_TIMEOUT;
    }
  }
  if (streamed && (a->flags & FG_AT_TOKEN)) {
    at = fg_add32(a->last_progress_at, a->progress_ms);
    if (at < due.at) {
      due.at = at;
      due.kind = FG_KIND_PROGRESS_TIMEOUT;
    }
  }
  return due;
}

static void timed_out(const fg_engine *e, fg_call_state *s, uint32_t kind, int64_t t, fg_decision *out) {
  const fg_attempt *a = &s->live;
  const fg_policy_route *r = fg_route_of(e, s, a->route);
  const uint32_t number = a->number;
  fg_evidence v;
  memset(&v, 0, sizeof v);
  v.size = sizeof v;
  v.timeout = kind;
  v.phase = a->flags & FG_AT_ACCEPTED ? FG_PHASE_STREAM : FG_PHASE_READ;
  v.flags = FG_EV_PROGRESS;
  v.visible = a->visible;
  v.reasoning = a->reasoning;
  v.tool_args_bytes = a->tool_bytes;
  v.lifecycle = s->shown >= FG_SHOWN_LIFECYCLE;
  v.elapsed_ms = fg_since(s, t) - a->began_at;
  v.provider = fg_policy_str(e->policy, r->provider);
  v.api = fg_policy_str(e->policy, r->api);
  to_failure(e, s, &v, t, out);
  out->cancel = number; /* it still runs on the wire: hang up, whatever is done next */
  fg_call_keep(e, s, out);
}

int32_t fg_call_deadline(const fg_engine *e, fg_call *c, int64_t now_ms, fg_decision *out) {
  fg_call_state *s;
  fg_due due;
  uint32_t now, stall;
  int64_t t;
  const int32_t rc = fg_call_open(e, c, FG_TOLD_DEADLINE, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (s->state != FG_CALL_RUNNING) {
    fg_call_again(e, s, out);
    return FG_OK;
  }
  now = fg_since(s, t);
  due = nearest(s);
  if (now >= due.at) {
    timed_out(e, s, due.kind, t, out);
    return FG_OK;
  }
  out->action = FG_ACTION_KEEP_WAITING;
  out->reason = FG_REASON_IN_TIME;
  out->route = fg_workflow_of(e, s)->standin[s->live.route].route + 1;
  out->attempt = s->live.number;
  out->wait_ms = due.at - now;
  out->wake_ms = out->wait_ms;
  stall = fg_add32(s->live.began_at, s->live.stall_ms);
  if (!(s->live.flags & FG_AT_TOKEN) && s->live.stall_ms != 0 && stall > now) {
    out->wake_ms = fg_min32(out->wake_ms, stall - now); /* when its silence becomes evidence */
  }
  fg_call_fill(e, s, t, out);
  return FG_OK;
}

/* Ends the live attempt without a verdict on its route. Unsent is unbilled; what was sent stays held. */
static void drop_attempt(const fg_engine *e, fg_call_state *s, int64_t t) {
  const fg_outcome neutral = {.what = FG_OUT_NEUTRAL};
  if (s->state != FG_CALL_RUNNING) {
    return;
  }
  fg_attempt_over(e, s, &neutral, t);
}

int32_t fg_call_cancel(const fg_engine *e, fg_call *c, int64_t now_ms, fg_decision *out) {
  fg_call_state *s;
  int64_t t;
  const int32_t rc = fg_call_open(e, c, FG_TOLD_CANCEL, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  s->gone = s->state != FG_CALL_ANSWERED; /* no look-up of an effect brings it back */
  if (s->state >= FG_CALL_ANSWERED) {
    fg_call_again(e, s, out);
    return FG_OK;
  }
  if (s->state == FG_CALL_RUNNING) {
    out->cancel = s->live.number;
    out->route = 0;
  }
  drop_attempt(e, s, t);
  fg_call_refund(e, s, t);
  s->state = FG_CALL_ENDED;
  fg_call_count(e, s, FG_WF_CANCELLED, t);
  out->action = FG_ACTION_FAIL_CLOSED;
  out->reason = FG_REASON_CLIENT_GONE;
  out->gate = FG_GATE_OWNER;
  out->owner = FG_OWNER_LOCAL;
  out->kind = FG_KIND_CLIENT_GONE;
  out->attempt = s->attempt_count;
  out->lookup = s->effect == FG_EFFECT_UNKNOWN ? FG_LOOKUP_OPERATION : FG_LOOKUP_NONE;
  out->alert = s->effect == FG_EFFECT_UNKNOWN ? FG_ALERT_EFFECT_UNKNOWN : 0;
  out->hint_status = 499;
  fg_call_fill(e, s, t, out);
  fg_call_keep(e, s, out);
  return FG_OK;
}

int32_t fg_call_unable(const fg_engine *e, fg_call *c, uint32_t what, int64_t now_ms, fg_decision *out) {
  fg_call_state *s;
  int64_t t;
  const int32_t rc = fg_call_open(e, c, FG_TOLD_UNABLE, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (what == 0 || (what & ~(uint32_t)FG_UNABLE_ALL) != 0) {
    return FG_ERR_ARG;
  }
  if (s->state == FG_CALL_NEW || s->state == FG_CALL_ANSWERED || s->state == FG_CALL_ENDED || s->gone) {
    fg_call_again(e, s, out); /* a call that was left stays left */
    return FG_OK;
  }
  s->unable = (uint16_t)(s->unable | what);
  if (s->state == FG_CALL_RUNNING) {
    fg_call_again(e, s, out);
    return FG_OK;
  }
  fg_call_decide(e, s, s->stage, t, out);
  return FG_OK;
}

int32_t fg_call_resolved(const fg_engine *e, fg_call *c, const char *op, uint32_t len, uint32_t effect, int64_t now_ms, fg_decision *out) {
  fg_call_state *s;
  int64_t t;
  int known;
  const int32_t rc = fg_call_open(e, c, FG_TOLD_RESOLVED, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (op == NULL || len == 0 || (effect != FG_EFFECT_NONE && effect != FG_EFFECT_COMMITTED)) {
    return FG_ERR_ARG;
  }
  known = fg_commit_resolved(s, op, len, effect);
  if (known && s->state == FG_CALL_ENDED && s->kept.reason == FG_REASON_RECONCILE_FIRST && s->stage == FG_STAGE_FAILURE && !s->gone &&
      s->effect != FG_EFFECT_UNKNOWN) {
    fg_call_decide(e, s, FG_STAGE_FAILURE, t, out); /* the look-up settled it: the gates again, on the same failure */
    return FG_OK;
  }
  if (!known) {
    return FG_ERR_ARG;
  }
  fg_call_again(e, s, out);
  return FG_OK;
}

int32_t fg_call_end(const fg_engine *e, fg_call *c) {
  fg_call_state *s;
  if (e == NULL || c == NULL || e->magic != FG_ENGINE_MAGIC) {
    return FG_ERR_ARG;
  }
  s = fg_state(c);
  if (s->magic != FG_CALL_MAGIC) {
    return FG_OK; /* never begun */
  }
  if (s->policy_hash != e->policy_hash || s->region_hash != e->region_hash || s->workflow >= e->policy->workflow_count) {
    return FG_ERR_STATE;
  }
  if (s->state == FG_CALL_RUNNING) {
    fg_health_abandon(e->region, &s->live.ticket); /* its money stays held: nobody knows what it did */
    s->live.number = 0;
  }
  fg_call_refund(e, s, s->last_t);
  if (s->state == FG_CALL_GIVEN) {
    s->gone = 1;
  } else if (s->state != FG_CALL_ANSWERED) {
    if (s->state != FG_CALL_ENDED) {
      fg_call_count(e, s, FG_WF_CANCELLED, s->last_t);
    }
    s->state = FG_CALL_ENDED;
  }
  return FG_OK;
}

int32_t fg_call_decision(const fg_engine *e, const fg_call *c, fg_decision *out) {
  const fg_call_state *s;
  if (e == NULL || c == NULL || out == NULL || e->magic != FG_ENGINE_MAGIC) {
    return FG_ERR_ARG;
  }
  s = fg_state_const(c);
  if (out->size < sizeof *out) {
    return FG_ERR_ABI;
  }
  if (s->magic != FG_CALL_MAGIC || s->policy_hash != e->policy_hash || s->workflow >= e->policy->workflow_count) {
    const uint32_t size = out->size;
    memset(out, 0, sizeof *out);
    out->size = size;
    return FG_ERR_STATE;
  }
  fg_call_again(e, s, out);
  return FG_OK;
}
