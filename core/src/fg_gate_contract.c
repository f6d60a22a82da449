/* Gate 4, contract. Approval and fit were worked out by fg_contract.c; here: is the stand-in outside what just failed? */
#include "fg_gates.h"

uint32_t fg_gate_contract(const fg_facts *f, const fg_candidate *c, const fg_owner_verdict *o) {
  if (c->barred != FG_REASON_NONE) {
    return c->barred;
  }
  if (c->flags & FG_CAND_OUT) {
    return FG_REASON_OUTPUT_REJECTED;
  }
  if (c->flags & FG_CAND_IN_SCOPE) {
    return FG_REASON_SAME_SCOPE;
  }
  if (o->other_budget) {
    /* A model-scope quota is left by another model; an account's only by a budget declared to be another one. */
    const uint32_t need = f->failure.scope == FG_SCOPE_MODEL ? FG_CAND_OTHER_MODEL : FG_CAND_OTHER_BUDGET;
    if (!(c->flags & need)) {
      return FG_REASON_SAME_BUDGET;
    }
  }
  if (o->other_vendor && !(c->flags & FG_CAND_OTHER_VENDOR)) {
    return FG_REASON_SAME_VENDOR;
  }
  if (o->larger && !(c->flags & FG_CAND_LARGER)) {
    return o->feature ? FG_REASON_DOES_NOT_FIT_FEATURES : FG_REASON_DOES_NOT_FIT_TOKENS;
  }
  return FG_REASON_NONE;
}
