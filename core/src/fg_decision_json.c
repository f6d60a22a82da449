/* Wire names and order of a decision's members. */
#include "fg_decision_json.h"

fg_str fg_route_name(const fg_policy *p, uint32_t route) {
  const fg_str none = {NULL, 0, 0};
  if (p == NULL || route == 0 || route > p->route_count) {
    return none;
  }
  return fg_policy_str(p, fg_policy_routes(p)[route - 1].name);
}

static void timeouts(const fg_decision *d, fg_obj *outer) {
  fg_obj o;
  fg_obj_key(outer, "timeouts");
  if (d->total_ms == 0) {
    fg_text_z(outer->t, "null");
    return;
  }
  fg_obj_begin(&o, outer->t);
  fg_obj_u64(&o, "connect_ms", d->connect_ms);
  fg_obj_u64(&o, "first_token_ms", d->first_token_ms);
  fg_obj_u64(&o, "idle_ms", d->idle_ms);
  fg_obj_u64(&o, "progress_ms", d->progress_ms);
  fg_obj_u64(&o, "total_ms", d->total_ms);
  fg_obj_end(&o);
}

static void changes(const fg_decision *d, fg_obj *outer) {
  fg_obj o;
  fg_obj_key(outer, "request_changes");
  fg_obj_begin(&o, outer->t);
  if (d->change & FG_CHANGE_STREAM) {
    fg_obj_bool(&o, "stream", 1);
  }
  if (d->change & FG_CHANGE_NO_STREAM) {
    fg_obj_bool(&o, "stream", 0);
  }
  if (d->change & FG_CHANGE_MAX_TOKENS) {
    fg_obj_u64(&o, "max_tokens", d->max_tokens);
  }
  if (d->change & FG_CHANGE_DROP_TOOLS) {
    fg_obj_bool(&o, "drop_tools", 1);
  }
  if (d->change & FG_CHANGE_NO_THINKING) {
    fg_obj_bool(&o, "no_thinking", 1);
  }
  if (d->change & FG_CHANGE_COMPACT) {
    fg_obj_u64(&o, "compact_tokens", d->compact_tokens);
  }
  if (d->change & FG_CHANGE_CLEAR_SHOWN) {
    fg_obj_bool(&o, "clear_shown", 1);
  }
  if (d->change & FG_CHANGE_PREFILL) {
    fg_obj_bool(&o, "prefill", 1);
  }
  fg_obj_end(&o);
}

static void for_people(const fg_policy *p, const fg_decision *d, fg_obj *outer) {
  fg_obj o;
  fg_str text = {NULL, 0, 0};
  if (p != NULL && d->text != 0) {
    (void)fg_policy_preset(p, d->text, NULL, 0, &text);
  }
  fg_obj_key(outer, "user");
  fg_obj_begin(&o, outer->t);
  fg_obj_str(&o, "text", text);
  fg_obj_bool(&o, "may_retry", d->user_may_retry);
  fg_obj_end(&o);
  fg_obj_key(outer, "http_hint");
  if (d->hint_status == 0) {
    fg_text_z(outer->t, "null");
  } else {
    fg_obj_begin(&o, outer->t);
    fg_obj_u64(&o, "status", d->hint_status);
    fg_obj_bool(&o, "should_retry", d->hint_should_retry);
    fg_obj_u64(&o, "retry_after_ms", d->hint_retry_after_ms);
    fg_obj_end(&o);
  }
}

static void label(const fg_policy *p, const fg_decision *d, fg_obj *outer) {
  fg_obj o;
  fg_obj_key(outer, "label");
  if (!d->label) {
    fg_text_z(outer->t, "null");
    return;
  }
  fg_obj_begin(&o, outer->t);
  fg_obj_str(&o, "requested", fg_route_name(p, d->requested));
  fg_obj_str(&o, "served", fg_route_name(p, d->route));
  fg_obj_word(&o, "why", fg_name(FG_TABLE_REASON, d->action == FG_ACTION_ACCEPT ? d->detail : d->reason));
  fg_obj_end(&o);
}

static void rejected(const fg_policy *p, const fg_decision *d, fg_obj *outer) {
  uint32_t i;
  fg_obj o;
  fg_obj_key(outer, "rejected");
  fg_text_put(outer->t, "[", 1);
  for (i = 0; i < d->rejected_count && i < FG_ROUTES_MAX; i++) {
    if (i != 0) {
      fg_text_put(outer->t, ",", 1);
    }
    fg_obj_begin(&o, outer->t);
    fg_obj_str(&o, "route", fg_route_name(p, d->rejected[i] & 0xffffu));
    fg_obj_word(&o, "why", fg_name(FG_TABLE_REASON, d->rejected[i] >> 16));
    fg_obj_end(&o);
  }
  fg_text_put(outer->t, "]", 1);
}

static void alerts(const fg_decision *d, fg_obj *outer) {
  uint32_t bit, any = 0;
  fg_obj_key(outer, "alert");
  fg_text_put(outer->t, "[", 1);
  for (bit = 0; (1u << bit) <= FG_ALERT_ALL; bit++) {
    if (d->alert & (1u << bit)) {
      const char *word = fg_name(FG_TABLE_ALERT, bit);
      if (any) {
        fg_text_put(outer->t, ",", 1);
      }
      any = 1;
      fg_text_json(outer->t, word, fg_cstr_len(word));
    }
  }
  fg_text_put(outer->t, "]", 1);
}

void fg_decision_members(const fg_policy *p, const fg_decision *d, fg_obj *o) {
  fg_obj_word(o, "action", fg_name(FG_TABLE_ACTION, d->action));
  fg_obj_str(o, "route", fg_route_name(p, d->route));
  fg_obj_u64(o, "attempt", d->attempt);
  fg_obj_u64(o, "wait_ms", d->wait_ms);
  fg_obj_u64(o, "wake_ms", d->wake_ms);
  fg_obj_word(o, "reason", fg_name(FG_TABLE_REASON, d->reason));
  fg_obj_word(o, "detail", fg_name(FG_TABLE_REASON, d->detail));
  fg_obj_word(o, "gate", fg_name(FG_TABLE_GATE, d->gate));
  fg_obj_word(o, "owner", fg_name(FG_TABLE_OWNER, d->owner));
  fg_obj_word(o, "kind", fg_name(FG_TABLE_KIND, d->kind));
  fg_obj_limit(o, "attempts_left", d->attempts_left);
  fg_obj_limit(o, "elapsed_left_ms", d->elapsed_left_ms);
  fg_obj_limit(o, "tokens_left", d->tokens_left);
  fg_obj_key(o, "cost_left_nusd");
  if (d->cost_left_nusd == INT64_MAX) {
    fg_text_z(o->t, "null");
  } else {
    fg_text_i64(o->t, d->cost_left_nusd);
  }
  timeouts(d, o);
  changes(d, o);
  fg_obj_word(o, "resume_from", fg_name(FG_TABLE_RESUME, d->resume_from));
  fg_obj_u64(o, "cancel", d->cancel);
  fg_obj_u64(o, "reuse_ops", d->reuse_ops);
  fg_obj_word(o, "ladder_step", d->ladder_step != FG_STEP_NONE ? fg_name(FG_TABLE_STEP, d->ladder_step) : NULL);
  fg_obj_u64(o, "max_age_s", d->max_age_s);
  fg_obj_word(o, "lookup", fg_name(FG_TABLE_LOOKUP, d->lookup));
  fg_obj_word(o, "repair", fg_name(FG_TABLE_REPAIR, d->repair));
  alerts(d, o);
  fg_obj_bool(o, "may_pay_twice", d->may_pay_twice);
  for_people(p, d, o);
  label(p, d, o);
  rejected(p, d, o);
}

uint32_t fg_decision_json(const fg_policy *p, const fg_decision *d, char *buf, uint32_t cap) {
  fg_text t;
  fg_obj o;
  fg_text_init(&t, buf, cap);
  if (d == NULL || d->size < sizeof *d) {
    fg_text_z(&t, "{}");
    return fg_text_end(&t);
  }
  fg_obj_begin(&o, &t);
  fg_decision_members(p, d, &o);
  fg_obj_end(&o);
  return fg_text_end(&t);
}
