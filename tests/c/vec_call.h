/* The ops of a call: begin to drop. */
#ifndef VEC_CALL_H
#define VEC_CALL_H

#include "vec_case.h"

static void vec_decision(vec_step *s, const vec_engine *e, vec_call *call, fg_decision *d) {
  if (s->result != FG_OK) {
    if (d->action != FG_ACTION_FAIL_CLOSED) {
      vec_bad(&s->fault, "an error with an action other than fail_closed");
    }
    return;
  }
  s->out.len = fg_decision_json(e->policy, d, s->out.text, sizeof s->out.text);
  if (s->out.len >= sizeof s->out.text) {
    vec_bad(&s->fault, "the decision's text is too long");
  }
  call->last = *d;
}

/* The failure's own fields, for `expect`: what fg_classify says of the same evidence from the same route. */
static void vec_classify(vec_step *s, const vec_engine *e, uint32_t route, fg_evidence *v, vec_text_buf *out) {
  fg_failure failure = {.size = sizeof failure};
  fg_route_info info = {.size = sizeof info};
  if (route != 0 && fg_policy_route_info(e->policy, route, &info) == FG_OK) {
    v->provider = v->provider.len > 0 ? v->provider : info.provider;
    v->api = v->api.len > 0 ? v->api : info.api;
  }
  s->result = fg_classify(e->policy, v, &failure);
  if (s->result == FG_OK) {
    vec_put_failure(out, &failure);
  }
}

static int32_t vec_event(vec_step *s, const vec_engine *e, vec_call *call) {
  const cJSON *in = s->in, *kind = vec_get(in, "kind");
  vec_fault *f = &s->fault;
  uint32_t attempt = vec_u32(f, in, "attempt"), number, value = 0;
  fg_answer usage;
  fg_str op;
  if (!cJSON_IsString(kind)) {
    vec_bad(f, "an event has no kind");
    return FG_OK;
  }
  if (strcmp(kind->valuestring, "tool") == 0) {
    vec_only(f, in, "a tool event", "attempt kind op_id state idempotent");
    op = vec_str(f, in, "op_id");
    number = vec_word(f, vec_get(in, "state"), "state", FG_TABLE_TOOL);
    value = vec_flag(f, in, "idempotent");
    return f->text[0] != 0 ? FG_OK : fg_call_tool(e->engine, &call->call, attempt, op.ptr, op.len, number, value, s->now_ms);
  }
  if (strcmp(kind->valuestring, "usage") == 0) {
    vec_only(f, in, "a usage event", "attempt kind prompt_tokens cached_tokens output_tokens cost_usd final");
    vec_usage(f, in, &usage, 0);
    return f->text[0] != 0 ? FG_OK : fg_call_usage(e->engine, &call->call, attempt, &usage, s->now_ms);
  }
  number = vec_word(f, kind, "kind", FG_TABLE_EVENT);
  if (number == FG_EVENT_TOKEN) {
    vec_only(f, in, "a token event", "attempt kind count");
    value = vec_get(in, "count") == NULL ? 1 : vec_u32(f, in, "count");
  } else if (number == FG_EVENT_TOOL_ARGS) {
    vec_only(f, in, "a tool_args event", "attempt kind bytes");
    value = vec_u32(f, in, "bytes");
  } else if (number == FG_EVENT_TERMINAL) {
    vec_only(f, in, "a terminal event", "attempt kind reason");
    value = vec_word(f, vec_get(in, "reason"), "reason", FG_TABLE_FINISH);
  } else {
    vec_only(f, in, "an event", "attempt kind");
  }
  return f->text[0] != 0 ? FG_OK : fg_call_event(e->engine, &call->call, attempt, number, value, s->now_ms);
}

static void vec_failure_op(vec_step *s, const vec_engine *e, vec_call *call, fg_decision *d) {
  fg_evidence v;
  uint32_t route = call->last.route, attempt = vec_u32(&s->fault, s->in, "attempt");
  vec_evidence(&s->fault, s->in, &s->store, &v);
  if (s->fault.text[0] != 0) {
    return;
  }
  s->result = fg_call_failure(e->engine, &call->call, attempt, &v, s->now_ms, d);
  vec_decision(s, e, call, d);
  if (s->result == FG_OK) {
    vec_classify(s, e, route, &v, &s->extra);
  }
}

/* Runs an op of a call. Returns 0 when the op is not one. */
static int vec_call_op(vec_case *c, vec_step *s) {
  static const char *const ops[] = {"begin", "begin_attempt", "event",  "failure",  "success", "deadline",
                                    "step",  "cancel",        "unable", "resolved", "drop"};
  fg_decision d = {.size = sizeof d};
  vec_fault *f = &s->fault;
  const vec_engine *e;
  vec_call *call;
  size_t which = 0;
  while (which < sizeof ops / sizeof ops[0] && strcmp(ops[which], s->op) != 0) {
    which++;
  }
  if (which == sizeof ops / sizeof ops[0]) {
    return 0;
  }
  if (s->call_name[0] == 0) {
    vec_bad(f, "no call is named");
    return 1;
  }
  if (which == 0) {
    fg_request r;
    call = vec_new_call(c, s->call_name);
    vec_request(f, s->in, call->name, &s->store, &r);
    e = vec_engine_of(c, s);
    call->engine = c->proc[s->proc - 1];
    if (f->text[0] == 0 && e != NULL) {
      s->result = fg_call_begin(e->engine, &call->call, &r, s->now_ms, &d);
      vec_decision(s, e, call, &d);
    }
    return 1;
  }
  call = vec_find_call(c, s->call_name);
  if (call == NULL || call->killed != 0 || call->engine == 0) {
    vec_bad(f, "call %s was never begun, or its process is gone", s->call_name);
    return 1;
  }
  e = &c->engines[call->engine - 1];
  if (which == 2) {
    s->result = vec_event(s, e, call);
    return 1;
  }
  if (which == 10) {
    vec_only(f, s->in, "drop", "");
    s->result = fg_call_end(e->engine, &call->call);
    return 1;
  }
  if (which == 3) {
    vec_failure_op(s, e, call, &d);
    return 1;
  }
  if (which == 4) {
    fg_answer a;
    vec_answer(f, s->in, &s->store, &a);
    if (f->text[0] == 0) {
      s->result = fg_call_success(e->engine, &call->call, vec_u32(f, s->in, "attempt"), &a, s->now_ms, &d);
    }
  } else if (which == 6) {
    uint32_t prompt = vec_u32(f, s->in, "prompt_tokens"), output = vec_u32(f, s->in, "max_output_tokens");
    vec_only(f, s->in, "step", "prompt_tokens max_output_tokens");
    s->result = fg_call_step(e->engine, &call->call, prompt, output, s->now_ms, &d);
  } else if (which == 8) {
    vec_only(f, s->in, "unable", "what");
    s->result = fg_call_unable(e->engine, &call->call, vec_bits(f, s->in, "what", FG_TABLE_UNABLE), s->now_ms, &d);
  } else if (which == 9) {
    fg_str op = vec_str(f, s->in, "op_id");
    vec_only(f, s->in, "resolved", "op_id effect");
    s->result = fg_call_resolved(e->engine, &call->call, op.ptr, op.len, vec_word(f, vec_get(s->in, "effect"), "effect", FG_TABLE_EFFECT),
                                 s->now_ms, &d);
  } else {
    vec_only(f, s->in, s->op, "");
    s->result = which == 1   ? fg_call_begin_attempt(e->engine, &call->call, s->now_ms, &d)
                : which == 5 ? fg_call_deadline(e->engine, &call->call, s->now_ms, &d)
                             : fg_call_cancel(e->engine, &call->call, s->now_ms, &d);
  }
  if (f->text[0] == 0) {
    vec_decision(s, e, call, &d);
  }
  return 1;
}

#endif /* VEC_CALL_H */
