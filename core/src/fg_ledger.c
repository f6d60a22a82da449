/* Ledger lines: one JSON object a line, written into the caller's buffer and carried by the host. Three kinds: the call's facts, each
 * decision with what it answers, the end; together enough to decide the call again by another card. No prompt, no key, no answer, no tenant's name.
 * Keys follow OpenTelemetry's GenAI conventions where these have one. */
#include "fg_call_state.h"
#include "fg_decision_json.h"
#include "fg_engine.h"
#include "fg_facts.h"
#include "fg_math.h"
#include "fg_money.h"

enum { LEDGER_VERSION = 1, ID_MAX = 128 };

static void head(const fg_engine *e, const fg_call_state *s, const char *line, int64_t now_ms, fg_obj *o) {
  int64_t t = 0, wall = 0;
  if (fg_region_time(e->region, now_ms, &t) == FG_OK) {
    wall = fg_region_wall(e->region, t);
  }
  fg_obj_word(o, "line", line);
  fg_obj_u64(o, "v", LEDGER_VERSION);
  fg_obj_key(o, "unix_ms");
  if (wall > 0) {
    fg_text_i64(o->t, wall);
  } else {
    fg_text_z(o->t, "null"); /* no wall clock was given: only the monotonic time below orders the lines */
  }
  fg_obj_key(o, "now_ms");
  fg_text_i64(o->t, now_ms);
  fg_obj_str(o, "workflow", fg_policy_str(e->policy, fg_policy_workflows(e->policy)[s->workflow].name));
  fg_obj_str(o, "call", fg_str_make(s->id, s->id_len));
  fg_obj_u64(o, "step", s->steps);
  fg_obj_str(o, "policy", fg_policy_str(e->policy, e->policy->fingerprint));
}

static void bits(fg_obj *o, const char *key, uint32_t table, uint32_t set) {
  uint32_t bit, any = 0;
  fg_obj_key(o, key);
  fg_text_put(o->t, "[", 1);
  for (bit = 0; bit < 32; bit++) {
    const char *word = (set >> bit) & 1u ? fg_name(table, bit) : NULL;
    if (word != NULL) {
      if (any) {
        fg_text_put(o->t, ",", 1);
      }
      any = 1;
      fg_text_json(o->t, word, fg_cstr_len(word));
    }
  }
  fg_text_put(o->t, "]", 1);
}

/* A name of the policy's region or data class table; null when none was given, "?" when the card does not know it. */
static void table_name(const fg_policy *p, fg_obj *o, const char *key, uint32_t off, uint32_t count, uint16_t place) {
  const fg_pstr *names = fg_policy_at(p, off);
  if (place != 0 && place <= count) {
    fg_obj_str(o, key, fg_policy_str(p, names[place - 1]));
  } else {
    fg_obj_word(o, key, place == 0 ? NULL : "?");
  }
}

static void hash_or_null(fg_obj *o, const char *key, uint64_t hash) {
  fg_obj_key(o, key);
  if (hash == 0) {
    fg_text_z(o->t, "null");
    return;
  }
  fg_text_put(o->t, "\"", 1);
  fg_text_hex64(o->t, hash);
  fg_text_put(o->t, "\"", 1);
}

static void account_name(const fg_policy *p, fg_obj *o, uint16_t place) {
  if (place != 0 && place <= p->account_count) {
    fg_obj_str(o, "account", fg_policy_str(p, fg_policy_accounts(p)[place - 1].name));
  } else {
    fg_obj_word(o, "account", place == 0 ? NULL : "?");
  }
}

static void call_line(const fg_engine *e, const fg_call_state *s, int64_t now_ms, fg_obj *o) {
  const fg_policy *p = e->policy;
  int64_t t = 0;
  fg_obj_u64(o, "prompt_tokens", s->prompt_tokens);
  fg_obj_u64(o, "gen_ai.request.max_tokens", s->max_output_tokens);
  fg_obj_u64(o, "request_bytes", s->request_bytes);
  fg_obj_word(o, "stream", fg_name(FG_TABLE_STREAM, s->stream_mode));
  fg_obj_word(o, "delivery", fg_name(FG_TABLE_DELIVERY, s->delivery));
  fg_obj_word(o, "server_state", fg_name(FG_TABLE_SERVER_STATE, s->server_state));
  bits(o, "features", FG_TABLE_FEATURE, s->features);
  bits(o, "unable", FG_TABLE_UNABLE, s->unable);
  fg_obj_u64(o, "max_wait_ms", s->max_wait_ms);
  table_name(p, o, "data_class", p->classes_off, p->class_count, s->data_class);
  table_name(p, o, "region", p->regions_off, p->region_count, s->region);
  hash_or_null(o, "tenant", s->tenant_hash);
  hash_or_null(o, "affinity", s->affinity);
  hash_or_null(o, "stream_id", s->stream);
  fg_obj_u64(o, "prior_tokens", s->prior_tokens);
  account_name(p, o, s->account);
  (void)fg_region_time(e->region, now_ms, &t);
  fg_obj_key(o, "began_ms"); /* on now_ms's clock; a decision's own time is elapsed_ms later */
  fg_text_i64(o->t, now_ms - t + s->began_t);
  fg_obj_key(o, "region_age_ms"); /* then; what was learned before the ledger began is not in it */
  fg_text_i64(o->t, s->began_t);
}

static void money(fg_obj *o, const char *key, int64_t nusd) {
  fg_obj_key(o, key);
  fg_text_put(o->t, "\"", 1);
  fg_text_usd(o->t, nusd);
  fg_text_put(o->t, "\"", 1);
}

/* What the attempt that has just ended used, where its provider told. */
static void usage(const fg_attempt *a, fg_obj *o) {
  const uint32_t out = fg_min32(a->output_tokens, a->hold_tokens);
  if (a->flags & FG_AT_USAGE) {
    fg_obj_u64(o, "gen_ai.usage.input_tokens", a->hold_tokens - out);
    fg_obj_u64(o, "gen_ai.usage.output_tokens", out);
    money(o, "settled_usd", a->hold_nusd);
  }
}

/* An id is somebody else's text: one that cannot be an id is none. A part of it would name nothing, or another. */
static void id(fg_obj *o, const char *key, fg_str text) {
  uint32_t i;
  if (text.ptr == NULL || text.len == 0 || text.len > ID_MAX) {
    return;
  }
  for (i = 0; i < text.len; i++) {
    if (text.ptr[i] <= ' ' || text.ptr[i] > '~') {
      return;
    }
  }
  fg_obj_str(o, key, text);
}

/* What came of the attempt that has just ended. Times are since it began; the first token's is known of text that was not interrupted. */
static void progress(const fg_attempt *a, fg_obj *outer) {
  fg_obj o;
  fg_obj_key(outer, "progress");
  fg_obj_begin(&o, outer->t);
  fg_obj_bool(&o, "sent", a->flags & FG_AT_SENT);
  fg_obj_bool(&o, "accepted", a->flags & FG_AT_ACCEPTED);
  fg_obj_bool(&o, "first_token", a->flags & FG_AT_TOKEN);
  fg_obj_limit(&o, "first_token_ms", a->text_at != 0 ? fg_sub32(fg_sub32(a->text_at, a->text_ms), a->began_at) : UINT32_MAX);
  fg_obj_u64(&o, "last_byte_ms", fg_sub32(a->last_byte_at, a->began_at));
  fg_obj_u64(&o, "last_progress_ms", fg_sub32(a->last_progress_at, a->began_at));
  fg_obj_u64(&o, "visible", a->visible);
  fg_obj_u64(&o, "reasoning", a->reasoning);
  fg_obj_u64(&o, "tool_args_bytes", a->tool_bytes);
  fg_obj_end(&o);
}

static void failure(const fg_call_state *s, fg_obj *outer) {
  static const char *const flag[] = {"overload",       "trips_breaker", "has_retry_after", "should_retry",
                                     "must_not_retry", "never_sent",    "silent",          "local_fault"};
  uint32_t i, any = 0;
  fg_obj o;
  fg_obj_key(outer, "failure");
  fg_obj_begin(&o, outer->t);
  fg_obj_word(&o, "owner", fg_name(FG_TABLE_OWNER, s->failure.owner));
  fg_obj_word(&o, "kind", fg_name(FG_TABLE_KIND, s->failure.kind));
  fg_obj_word(&o, "class", fg_name(FG_TABLE_CLASS, s->failure.klass));
  fg_obj_word(&o, "scope", fg_name(FG_TABLE_SCOPE, s->failure.scope));
  fg_obj_word(&o, "period", fg_name(FG_TABLE_PERIOD, s->failure.period));
  fg_obj_word(&o, "billed", fg_name(FG_TABLE_BILLED, s->failure.billed));
  fg_obj_word(&o, "commit", fg_name(FG_TABLE_COMMIT, s->failure.commit));
  fg_obj_word(&o, "repair", fg_name(FG_TABLE_REPAIR, s->failure.repair));
  fg_obj_key(&o, "flags");
  fg_text_put(o.t, "[", 1);
  for (i = 0; i < FG_ARRAY_LEN(flag); i++) {
    if ((s->failure.flags >> i) & 1u) {
      fg_text_z(o.t, any ? ",\"" : "\"");
      fg_text_z(o.t, flag[i]);
      fg_text_put(o.t, "\"", 1);
      any = 1;
    }
  }
  fg_text_put(o.t, "]", 1);
  fg_obj_u64(&o, "retry_after_ms", s->failure.retry_after_ms);
  fg_obj_end(&o);
  fg_obj_u64(outer, "http.response.status_code", s->failed_status);
}

/* What the decision answers, and what a replay needs to ask it again. */
static void asked(const fg_call_state *s, fg_obj *o) {
  static const char *const told[] = {"begin", "begin_attempt", "failure", "success", "deadline", "unable", "step", "cancel", "resolved"};
  _Static_assert(FG_ARRAY_LEN(told) == FG_TOLD_COUNT, "one word for each FG_TOLD_*");
  fg_obj_word(o, "after", s->told < FG_TOLD_COUNT ? told[s->told] : NULL);
  if (s->told == FG_TOLD_UNABLE) {
    bits(o, "unable", FG_TABLE_UNABLE, s->unable);
  }
  if (s->ended) {
    fg_obj_u64(o, "inner_requests", s->inner);
    progress(&s->live, o);
    if (s->told != FG_TOLD_CANCEL && s->state != FG_CALL_ANSWERED) {
      failure(s, o);
    }
  }
}

static void decision_line(const fg_engine *e, const fg_call_state *s, const fg_decision *d, const fg_served *served, int64_t now_ms, fg_obj *o) {
  const fg_policy *p = e->policy;
  fg_route_view v;
  if (d->route != 0 && d->route <= p->route_count) {
    const fg_policy_route *r = &fg_policy_routes(p)[d->route - 1];
    fg_obj_str(o, "gen_ai.provider.name", fg_policy_str(p, r->provider));
    fg_obj_str(o, "gen_ai.request.model", fg_policy_str(p, r->model));
    memset(&v, 0, sizeof v);
    v.size = sizeof v;
    if (fg_engine_route(e, d->route, now_ms, &v) == FG_OK) {
      fg_obj_word(o, "breaker", fg_name(FG_TABLE_BREAKER, v.breaker));
    }
  }
  fg_obj_str(o, "requested", fg_route_name(p, d->requested));
  fg_obj_u64(o, "elapsed_ms", fg_clamp32(s->last_t - s->began_t));
  fg_obj_u64(o, "attempts_used", s->attempts_used);
  fg_obj_word(o, "billing", fg_name(FG_TABLE_BILLING, s->billing));
  fg_obj_word(o, "shown", fg_name(FG_TABLE_SHOWN, s->shown));
  fg_obj_word(o, "effect", fg_name(FG_TABLE_EFFECT, s->effect));
  fg_obj_u64(o, "tokens", s->spent_tokens);
  money(o, "cost_usd", s->spent_nusd);
  if (s->live.number != 0) {
    money(o, "held_usd", (s->live.flags & FG_AT_USAGE) ? 0 : s->live.hold_nusd);
  }
  if (s->ended) {
    usage(&s->live, o);
    if (served != NULL && served->size >= sizeof *served) {
      id(o, "gen_ai.response.id", served->response_id);
      id(o, "server_request_id", served->request_id);
    }
  }
  fg_decision_members(p, d, o);
  asked(s, o);
}

static void end_line(const fg_engine *e, const fg_call_state *s, const fg_decision *d, fg_obj *o) {
  static const char *const column[] = {"calls",    "primary_success", "retry_recovery", "fallback_recovery",
                                       "degraded", "failed_closed",   "queued",         "cancelled"};
  int64_t held = 0;
  uint32_t i;
  for (i = 0; i < FG_LATE_MAX; i++) {
    held = fg_adds(held, s->late[i].hold_nusd);
  }
  fg_obj_word(o, "result", s->counted != 0 && s->counted <= FG_ARRAY_LEN(column) ? column[s->counted - 1] : NULL);
  fg_obj_word(o, "action", fg_name(FG_TABLE_ACTION, d->action));
  fg_obj_word(o, "reason", fg_name(FG_TABLE_REASON, d->reason));
  fg_obj_str(o, "requested", fg_route_name(e->policy, d->requested));
  fg_obj_str(o, "served", fg_route_name(e->policy, d->action == FG_ACTION_ACCEPT ? d->route : 0));
  fg_obj_u64(o, "elapsed_ms", fg_clamp32(s->last_t - s->began_t));
  fg_obj_u64(o, "attempts", s->attempt_count);
  fg_obj_u64(o, "attempts_used", s->attempts_used); /* of the step, with what was spent before the call and by inner layers */
  fg_obj_u64(o, "requests", (uint64_t)s->attempt_count + s->inner); /* an inner layer's as well: what the provider saw */
  fg_obj_u64(o, "resends", s->resends);
  fg_obj_u64(o, "tokens", s->spent_tokens);
  money(o, "cost_usd", s->spent_nusd); /* held and settled */
  money(o, "held_usd", held);          /* of it: attempts whose bill is not known */
}

static uint32_t write_line(const fg_engine *e, const fg_call *c, const fg_decision *d, const fg_served *served, uint32_t line, int64_t now_ms,
                           char *buf, uint32_t cap) {
  const fg_call_state *s = c != NULL ? fg_state_const(c) : NULL;
  fg_text t;
  fg_obj o;
  fg_text_init(&t, buf, cap);
  if (e == NULL || e->magic != FG_ENGINE_MAGIC || s == NULL || s->magic != FG_CALL_MAGIC || s->policy_hash != e->policy_hash ||
      s->workflow >= e->policy->workflow_count || (line != FG_LINE_CALL && (d == NULL || d->size < sizeof *d))) {
    return fg_text_end(&t); /* nothing to say: an empty line */
  }
  fg_obj_begin(&o, &t);
  switch (line) {
  case FG_LINE_CALL:
    head(e, s, "call", now_ms, &o);
    call_line(e, s, now_ms, &o);
    break;
  case FG_LINE_DECISION:
    head(e, s, "decision", now_ms, &o);
    decision_line(e, s, d, served, now_ms, &o);
    break;
  default:
    head(e, s, "end", now_ms, &o);
    end_line(e, s, d, &o);
    break;
  }
  fg_obj_end(&o);
  return fg_text_end(&t);
}

uint32_t fg_ledger_line(const fg_engine *e, const fg_call *c, const fg_decision *d, uint32_t line, int64_t now_ms, char *buf, uint32_t cap) {
  return write_line(e, c, d, NULL, line, now_ms, buf, cap);
}

uint32_t fg_ledger_served(const fg_engine *e, const fg_call *c, const fg_decision *d, const fg_served *served, int64_t now_ms, char *buf, uint32_t cap) {
  return write_line(e, c, d, served, FG_LINE_DECISION, now_ms, buf, cap);
}
