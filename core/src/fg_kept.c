/* Packing a decision. Every enum fits a byte (asserted); routes are kept as places in the workflow. */
#include "fg_kept.h"

enum { KEPT_MAY_PAY_TWICE = 1, KEPT_MAY_RETRY = 2, KEPT_SHOULD_RETRY = 4, KEPT_LABEL = 8 };
_Static_assert(FG_REASON_COUNT <= 255 && FG_KIND_COUNT <= 255 && FG_CHANGE_ALL <= 255 && FG_ALERT_ALL <= 255, "a byte each");

/* Route id -> place in the workflow; FG_NO_ROUTE for none. */
static uint8_t place_of(const fg_policy_workflow *w, uint32_t route) {
  uint32_t i;
  for (i = 0; route != 0 && i < w->standin_count; i++) {
    if (w->standin[i].route + 1 == route) {
      return (uint8_t)i;
    }
  }
  return FG_NO_ROUTE;
}

static uint32_t route_at(const fg_policy_workflow *w, uint32_t place) {
  return place < w->standin_count ? w->standin[place].route + 1 : 0;
}

void fg_kept_put(fg_call_state *s, const fg_policy_workflow *w, const fg_decision *d) {
  fg_kept *k = &s->kept;
  uint32_t i;
  k->cost_left_nusd = d->cost_left_nusd;
  k->wait_ms = d->wait_ms;
  k->wake_ms = d->wake_ms;
  k->attempts_left = d->attempts_left;
  k->elapsed_left_ms = d->elapsed_left_ms;
  k->tokens_left = d->tokens_left;
  k->max_tokens = d->max_tokens;
  k->compact_tokens = d->compact_tokens;
  k->max_age_s = d->max_age_s;
  k->reuse_ops = d->reuse_ops;
  k->hint_retry_after_ms = d->hint_retry_after_ms;
  k->connect_ms = d->connect_ms;
  k->first_token_ms = d->first_token_ms;
  k->idle_ms = d->idle_ms;
  k->progress_ms = d->progress_ms;
  k->total_ms = d->total_ms;
  k->text = (uint16_t)d->text;
  k->hint_status = (uint16_t)d->hint_status;
  k->action = (uint8_t)d->action;
  k->route = place_of(w, d->route);
  k->attempt = (uint16_t)d->attempt;
  k->reason = (uint8_t)d->reason;
  k->detail = (uint8_t)d->detail;
  k->gate = (uint8_t)d->gate;
  k->owner = (uint8_t)d->owner;
  k->kind = (uint8_t)d->kind;
  k->step = (uint8_t)d->step;
  k->ladder_step = (uint8_t)d->ladder_step;
  k->resume_from = (uint8_t)d->resume_from;
  k->lookup = (uint8_t)d->lookup;
  k->cancel = (uint16_t)d->cancel;
  k->change = (uint8_t)d->change;
  k->repair = (uint8_t)d->repair;
  k->alert = (uint8_t)d->alert;
  k->flags = (uint8_t)((d->may_pay_twice ? KEPT_MAY_PAY_TWICE : 0) | (d->user_may_retry ? KEPT_MAY_RETRY : 0) |
                       (d->hint_should_retry ? KEPT_SHOULD_RETRY : 0) | (d->label ? KEPT_LABEL : 0));
  k->rejected_count = (uint8_t)d->rejected_count;
  for (i = 0; i < d->rejected_count && i < FG_ROUTES_MAX; i++) {
    k->rejected_route[i] = place_of(w, d->rejected[i] & 0xffffu);
    k->rejected_why[i] = (uint8_t)(d->rejected[i] >> 16);
  }
}

void fg_kept_get(const fg_call_state *s, const fg_policy_workflow *w, fg_decision *d) {
  const fg_kept *k = &s->kept;
  uint32_t i;
  d->cost_left_nusd = k->cost_left_nusd;
  d->wait_ms = k->wait_ms;
  d->wake_ms = k->wake_ms;
  d->attempts_left = k->attempts_left;
  d->elapsed_left_ms = k->elapsed_left_ms;
  d->tokens_left = k->tokens_left;
  d->max_tokens = k->max_tokens;
  d->compact_tokens = k->compact_tokens;
  d->max_age_s = k->max_age_s;
  d->reuse_ops = k->reuse_ops;
  d->hint_retry_after_ms = k->hint_retry_after_ms;
  d->connect_ms = k->connect_ms;
  d->first_token_ms = k->first_token_ms;
  d->idle_ms = k->idle_ms;
  d->progress_ms = k->progress_ms;
  d->total_ms = k->total_ms;
  d->text = k->text;
  d->hint_status = k->hint_status;
  d->action = k->action;
  d->route = route_at(w, k->route);
  d->attempt = k->attempt;
  d->reason = k->reason;
  d->detail = k->detail;
  d->gate = k->gate;
  d->owner = k->owner;
  d->kind = k->kind;
  d->step = k->step;
  d->ladder_step = k->ladder_step;
  d->resume_from = k->resume_from;
  d->lookup = k->lookup;
  d->cancel = k->cancel;
  d->change = k->change;
  d->repair = k->repair;
  d->alert = k->alert;
  d->may_pay_twice = (k->flags & KEPT_MAY_PAY_TWICE) != 0;
  d->user_may_retry = (k->flags & KEPT_MAY_RETRY) != 0;
  d->hint_should_retry = (k->flags & KEPT_SHOULD_RETRY) != 0;
  d->label = (k->flags & KEPT_LABEL) != 0;
  d->requested = route_at(w, 0);
  d->rejected_count = k->rejected_count;
  fg_zero(d->rejected, sizeof d->rejected);
  for (i = 0; i < k->rejected_count && i < FG_ROUTES_MAX; i++) {
    d->rejected[i] = route_at(w, k->rejected_route[i]) | (uint32_t)k->rejected_why[i] << 16;
  }
}
