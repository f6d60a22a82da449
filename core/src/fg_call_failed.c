/* An attempt failed: what that teaches the route (rule 0), what it changes in the call, and the decision that follows. */
#include "fg_call.h"

#include "fg_backoff.h"
#include "fg_commit.h"
#include "fg_math.h"
#include "fg_money.h"

/* Did nothing leave this side? The evidence says so; but what the host saw leave was sent, and of several requests of an inner layer
 * the evidence tells of the last one only. An answer that a rule calls our own refusal never reached the provider. */
static int never_left(const fg_call_state *s, const fg_failure *f, uint32_t inner_attempts, uint32_t status) {
  if (inner_attempts > 1 || s->billing == FG_BILLING_CERTAIN || (s->live.flags & FG_AT_TOKEN)) {
    return 0;
  }
  if (f->owner == FG_OWNER_LOCAL && f->kind != FG_KIND_CLIENT_GONE && status >= 400) {
    return 1;
  }
  return (f->flags & FG_FAIL_NEVER_SENT) != 0 && !(s->live.flags & FG_AT_SENT);
}

/* Proofs that nothing was billed (DESIGN 5): never sent, or an error answer of a pre-inference class, with no token or usage seen. */
static int proves_unbilled(const fg_call_state *s, const fg_failure *f, uint32_t inner_attempts, uint32_t status) {
  if (f->flags & FG_FAIL_NEVER_SENT) {
    return 1;
  }
  if (inner_attempts > 1) {
    return 0; /* only the last of them answered */
  }
  if ((s->live.flags & FG_AT_TOKEN) || s->billing == FG_BILLING_CERTAIN || f->billed == FG_BILLED_YES) {
    return 0;
  }
  switch (f->owner) {
  case FG_OWNER_RATE:
  case FG_OWNER_QUOTA:
  case FG_OWNER_AUTH:
  case FG_OWNER_REQUEST:
    return f->billed == FG_BILLED_NO;
  case FG_OWNER_TRANSIENT:
    return f->kind == FG_KIND_REFUSED_STREAM || ((f->flags & FG_FAIL_OVERLOAD) && status >= 400 && f->billed == FG_BILLED_NO);
  default:
    return 0;
  }
}

static void learn_commit(fg_call_state *s, const fg_failure *f, uint32_t inner_attempts, uint32_t status) {
  if (proves_unbilled(s, f, inner_attempts, status)) {
    fg_commit_proved_unbilled(s);
    return;
  }
  if (f->kind == FG_KIND_CLIENT_GONE && !(s->live.flags & FG_AT_SENT)) {
    return;
  }
  fg_commit_billing(s, f->billed == FG_BILLED_YES ? FG_BILLING_CERTAIN : status >= 200 && status < 300 ? FG_BILLING_LIKELY : FG_BILLING_POSSIBLE);
  if (f->commit == FG_COMMIT_PARTIAL) {
    fg_commit_shown(s, FG_SHOWN_VISIBLE);
  }
}

static void outcome_of(const fg_failure *f, fg_outcome *o) {
  memset(o, 0, sizeof *o);
  o->scope = f->scope;
  o->period = f->period;
  o->has_hint = (f->flags & FG_FAIL_HAS_RETRY_AFTER) != 0;
  o->hint_ms = f->retry_after_ms;
  switch (f->owner) {
  case FG_OWNER_TRANSIENT:
    o->what = f->klass == FG_CLASS_ANSWER && f->kind == FG_KIND_OUTPUT_INVALID ? FG_OUT_NEUTRAL
              : (f->flags & FG_FAIL_TRIPS_BREAKER)                             ? FG_OUT_FAIL
                                                                               : FG_OUT_NEUTRAL;
    break;
  case FG_OWNER_RATE:
    o->what = FG_OUT_RATE;
    break;
  case FG_OWNER_QUOTA:
    o->what = FG_OUT_QUOTA;
    break;
  case FG_OWNER_AUTH:
    o->what = FG_OUT_AUTH;
    break;
  case FG_OWNER_REQUEST:
    o->what = f->scope == FG_SCOPE_MODEL || f->scope == FG_SCOPE_NETWORK ? FG_OUT_MISCONFIGURED : FG_OUT_LIFE;
    break;
  case FG_OWNER_POLICY:
    o->what = FG_OUT_LIFE;
    break;
  default:
    o->what = FG_OUT_NEUTRAL;
    break;
  }
}

/* The wait before a retry on this route, drawn once: the server's hint and its spread, else full jitter by the retries so far. */
static uint32_t draw_wait(const fg_engine *e, fg_call_state *s, const fg_failure *f) {
  const fg_policy_globals *g = &e->policy->globals;
  const uint64_t rand = fg_rand(s->stream, e->policy_hash, ++s->draws);
  const uint32_t base = f->owner == FG_OWNER_RATE || (f->flags & FG_FAIL_OVERLOAD) ? g->backoff_rate_base_ms : g->backoff_base_ms;
  uint32_t klass, retries = 0;
  if (f->flags & FG_FAIL_HAS_RETRY_AFTER) {
    return fg_retry_after_wait(f->retry_after_ms, rand);
  }
  for (klass = 0; klass < FG_CLASS_COUNT; klass++) {
    retries += fg_retries_of(s, s->failed_route, klass);
  }
  return fg_backoff_wait(base, g->backoff_cap_ms, retries + 1, rand);
}

/* What this side knows better than the evidence: an answer had begun, so the failure is a cut and no silence; something had left, so
 * it is not a connection that never was. */
static uint32_t class_of(const fg_call_state *s, const fg_failure *f) {
  const int sent = f->klass == FG_CLASS_CONNECT && s->billing > FG_BILLING_NONE;
  if (sent || f->klass == FG_CLASS_SILENT) {
    return (s->live.flags & FG_AT_ACCEPTED) ? FG_CLASS_CUT : FG_CLASS_SILENT;
  }
  return f->klass < FG_CLASS_COUNT ? f->klass : FG_CLASS_OTHER;
}

static void keep_failure(fg_call_state *s, const fg_failure *f) {
  s->failure.owner = (uint8_t)f->owner;
  s->failure.kind = (uint8_t)f->kind;
  s->failure.klass = (uint8_t)class_of(s, f);
  s->failure.scope = (uint8_t)f->scope;
  s->failure.period = (uint8_t)f->period;
  s->failure.billed = (uint8_t)f->billed;
  s->failure.commit = (uint8_t)f->commit;
  s->failure.repair = (uint8_t)f->repair;
  s->failure.flags = (uint16_t)f->flags;
  s->failure.retry_after_ms = f->retry_after_ms;
  s->failure.rule = f->rule;
}

/* Attempts are counted on the wire: an inner layer's too, and none for what never left this side. */
static void recount(fg_call_state *s, const fg_failure *f, uint32_t inner_attempts) {
  uint8_t *sends = &s->sends[s->live.route];
  if (inner_attempts > 1) {
    s->attempts_used = (uint16_t)fg_min32(fg_add32(s->attempts_used, inner_attempts - 1), UINT16_MAX);
    *sends = (uint8_t)fg_min32(fg_add32(*sends, inner_attempts - 1), UINT8_MAX);
    s->inner = (uint16_t)fg_min32(fg_add32(s->inner, inner_attempts - 1), UINT16_MAX);
  }
  if (!(f->flags & FG_FAIL_NEVER_SENT)) {
    return;
  }
  if (f->owner == FG_OWNER_LOCAL && s->attempts_used != 0) {
    s->attempts_used--;
  }
  if (*sends != 0) {
    (*sends)--;
  }
}

void fg_attempt_failed(const fg_engine *e, fg_call_state *s, const fg_failure *reported, uint32_t inner_attempts, uint32_t status, int64_t t,
                       fg_decision *out) {
  fg_failure known = *reported, *f = &known;
  fg_outcome o;
  fg_health_ask ask;
  const uint32_t place = s->live.route;
  const uint32_t number = s->live.number;
  if (never_left(s, f, inner_attempts, status)) {
    f->flags |= FG_FAIL_NEVER_SENT;
  } else {
    f->flags &= ~(uint32_t)FG_FAIL_NEVER_SENT; /* a later, smaller report: the host saw it leave */
  }
  s->failed_route = (uint8_t)place;
  s->failed_elapsed_ms = fg_since(s, t) - s->live.began_at;
  learn_commit(s, f, inner_attempts, status);
  keep_failure(s, f);
  s->failed_status = (uint16_t)fg_min32(status, UINT16_MAX);
  recount(s, f, inner_attempts);
  s->empty_end = f->owner == FG_OWNER_UNKNOWN && f->klass == FG_CLASS_ANSWER;
  if (f->kind == FG_KIND_OUTPUT_INVALID && place != 0) {
    s->seat[place] |= FG_SEAT_OUT; /* that stand-in is out for this call */
  }
  if ((f->flags & FG_FAIL_NEVER_SENT) && s->live.paid_milli != 0 && fg_ask_of(e, s, s->live.paid_route, t, &ask)) {
    fg_bucket_refund(&ask.route->retry, &e->bucket, s->live.paid_milli, t); /* what never left costs nothing */
  }
  s->live.paid_milli = 0;
  if (inner_attempts > 1 && fg_ask_of(e, s, place, t, &ask)) {
    fg_count(&ask.route->count[FG_ROUTE_ATTEMPTS], inner_attempts - 1); /* never fewer than the provider saw */
  }
  outcome_of(f, &o);
  if ((f->owner == FG_OWNER_RATE || f->owner == FG_OWNER_TRANSIENT) && o.has_hint && fg_ask_of(e, s, place, t, &ask)) {
    fg_health_told_to_wait(&ask, f->scope, f->retry_after_ms, t);
  }
  fg_attempt_over(e, s, &o, t);
  s->backoff_due_at = fg_add32(fg_since(s, t), draw_wait(e, s, f));
  fg_call_decide(e, s, FG_STAGE_FAILURE, t, out);
  if (out->attempt == 0) {
    out->attempt = number;
  }
}
