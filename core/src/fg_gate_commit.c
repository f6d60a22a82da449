/* Gate 2, commit (DESIGN 5). Whatever it forbids stays forbidden, whoever asks. */
#include "fg_gates.h"

/* Could the last attempt have gone past the point up to which this workflow may be sent again? */
static bool past_safe_point(const fg_facts *f) {
  switch (f->safe_until) {
  case FG_SAFE_NOT_SENT:
    return f->billing > FG_BILLING_NONE;
  case FG_SAFE_ACCEPTED:
    return f->billing > FG_BILLING_POSSIBLE;
  default:
    return false; /* visible text and effects have their own rules */
  }
}

static void visible_verdict(const fg_facts *f, fg_commit_verdict *v) {
  if (f->after_visible == FG_AFTER_RESTART && !(f->unable & FG_UNABLE_CLEAR)) {
    v->change |= FG_CHANGE_CLEAR_SHOWN;
    return;
  }
  if (f->after_visible == FG_AFTER_CONTINUE && !(f->flags & FG_FACT_TOOL_OPEN) && !(f->unable & FG_UNABLE_RESUME)) {
    v->resume_from = FG_RESUME_PREFILL;
    v->change |= FG_CHANGE_PREFILL;
    return;
  }
  v->reason = FG_REASON_PARTIAL_OUTPUT;
}

void fg_gate_commit(const fg_facts *f, fg_commit_verdict *v) {
  const fg_commit_verdict none = {0};
  *v = none;
  if (f->effect == FG_EFFECT_UNKNOWN) {
    v->reason = (f->flags & FG_FACT_OPS_OVERFLOW) ? FG_REASON_TOO_MANY_OPERATIONS : FG_REASON_RECONCILE_FIRST;
    v->lookup = FG_LOOKUP_OPERATION;
    return;
  }
  if (f->effect == FG_EFFECT_COMMITTED) {
    v->reason = FG_REASON_EFFECT_COMMITTED;
    v->lookup = FG_LOOKUP_OPERATION;
    return;
  }
  if (f->server_state >= FG_SERVER_STATE_CONVERSATION && f->billing >= FG_BILLING_POSSIBLE) {
    /* The provider keeps what it did: a second send would append to it or act twice. */
    v->reason = FG_REASON_RECONCILE_FIRST;
    v->lookup = f->server_state == FG_SERVER_STATE_BACKGROUND ? FG_LOOKUP_REATTACH : f->lookup;
    return;
  }
  if (f->shown == FG_SHOWN_VISIBLE) {
    visible_verdict(f, v);
  }
  if (v->reason == FG_REASON_NONE && past_safe_point(f)) {
    v->reason = f->shown == FG_SHOWN_VISIBLE ? FG_REASON_PARTIAL_OUTPUT : FG_REASON_MAY_HAVE_RUN;
    v->lookup = f->lookup;
  }
  if (v->reason == FG_REASON_NONE && (f->failure.klass == FG_CLASS_SILENT || f->failure.klass == FG_CLASS_CUT) &&
      f->after_silence == FG_SILENCE_NONE && f->billing > FG_BILLING_NONE) {
    v->reason = FG_REASON_MAY_HAVE_RUN;
    v->lookup = f->lookup;
  }
  if (v->reason != FG_REASON_NONE) {
    v->change = 0;
    v->resume_from = FG_RESUME_CALL;
    v->answers = v->reason == FG_REASON_MAY_HAVE_RUN && f->shown != FG_SHOWN_VISIBLE;
    return;
  }
  if ((f->flags & FG_FACT_PRIOR_EFFECT) != 0 && v->resume_from == FG_RESUME_CALL) {
    /* What an earlier step committed is held and never replayed: only this step may go again. */
    if ((f->flags & FG_FACT_RESUMABLE) && !(f->unable & FG_UNABLE_RESUME)) {
      v->resume_from = FG_RESUME_STEP;
    } else {
      v->reason = FG_REASON_EFFECT_COMMITTED;
      v->change = 0;
    }
  }
}
