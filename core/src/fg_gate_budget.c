/* Gate 3, budget: attempts, time, tokens, money, quality and patience (DESIGN 7). */
#include "fg_gates.h"

uint32_t fg_budget_call(const fg_facts *f) {
  if (f->attempts_left == 0) {
    return FG_REASON_ATTEMPTS_EXHAUSTED;
  }
  if (f->elapsed_left_ms == 0) {
    return FG_REASON_ELAPSED_EXHAUSTED;
  }
  if (f->flags & FG_FACT_DAILY_OUT) {
    return FG_REASON_SPEND_PER_DAY;
  }
  if (f->stage == FG_STAGE_FAILURE) {
    if (f->resends_left == 0) {
      return FG_REASON_RESENDS_EXHAUSTED;
    }
    if (f->flags & FG_FACT_HOURLY_OUT) {
      return FG_REASON_RETRIES_PER_HOUR;
    }
  }
  return FG_REASON_NONE;
}

uint32_t fg_budget_wait(const fg_facts *f, uint32_t wait_ms) {
  if (wait_ms == 0) {
    return FG_REASON_NONE;
  }
  if ((f->unable & FG_UNABLE_WAIT) || (f->max_wait_ms != 0 && wait_ms > f->max_wait_ms)) {
    return FG_REASON_HOST_CANNOT_WAIT;
  }
  return wait_ms >= f->elapsed_left_ms ? FG_REASON_WAIT_DOES_NOT_FIT : FG_REASON_NONE;
}

uint32_t fg_budget_route(const fg_facts *f, const fg_candidate *c, bool time) {
  if (c->sends_left == 0) {
    return FG_REASON_ROUTE_ATTEMPTS_EXHAUSTED;
  }
  if (time && c->estimate_ms > f->elapsed_left_ms) {
    return FG_REASON_ESTIMATE_DOES_NOT_FIT;
  }
  if (c->tokens > f->tokens_left) {
    return FG_REASON_TOKENS_EXHAUSTED;
  }
  if (c->extra_nusd > f->cost_left_nusd) {
    return FG_REASON_COST_EXHAUSTED;
  }
  if (!(c->flags & FG_CAND_PRIMARY) && c->drop_ppm > f->quality_left_ppm) {
    return FG_REASON_QUALITY_EXHAUSTED;
  }
  return c->bucket;
}

uint32_t fg_budget_retry(const fg_facts *f, uint32_t wait_ms) {
  const fg_candidate *c = &f->candidate[f->failed];
  uint32_t why, need;
  if (f->class_left == 0) {
    return FG_REASON_CLASS_RETRIES_EXHAUSTED;
  }
  why = fg_budget_route(f, c, false);
  if (why != FG_REASON_NONE) {
    return why;
  }
  if ((f->failure.flags & FG_FAIL_HAS_RETRY_AFTER) && f->failure.retry_after_ms > f->hint_cap_ms) {
    return FG_REASON_WAIT_DOES_NOT_FIT; /* unavailable until then, not worth a wait */
  }
  if (fg_health_waits(c->health) && c->health_wait_ms > f->hint_cap_ms) {
    return FG_REASON_WAIT_DOES_NOT_FIT; /* the same, told to another call */
  }
  why = fg_budget_wait(f, wait_ms);
  if (why != FG_REASON_NONE) {
    return why;
  }
  need = c->estimate_ms;
  if (f->failure.klass == FG_CLASS_SILENT && c->first_token_ms > need) {
    need = c->first_token_ms; /* a route that stayed silent is given its whole first-token time-out again, or nothing */
  }
  return wait_ms > f->elapsed_left_ms || need > f->elapsed_left_ms - wait_ms ? FG_REASON_WAIT_DOES_NOT_FIT : FG_REASON_NONE;
}
