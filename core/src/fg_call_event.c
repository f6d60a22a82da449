/* Facts of a running attempt, without a decision: what was sent, what came, what tools did. */
#include "fg_call.h"

#include "fg_commit.h"
#include "fg_math.h"
#include "fg_money.h"

/* text: whether it is text, whose speed is known. */
static void first_token(const fg_engine *e, fg_call_state *s, uint32_t text, int64_t t) {
  fg_attempt *a = &s->live;
  fg_health_ask ask;
  if (a->flags & FG_AT_TOKEN) {
    return;
  }
  a->flags |= FG_AT_TOKEN | FG_AT_ACCEPTED | FG_AT_SENT;
  if (!fg_ask_of(e, s, a->route, t, &ask)) {
    return;
  }
  if (s->stream_mode == FG_STREAM_YES) {
    fg_health_first(&ask, fg_learn_kind(s), s->prompt_tokens, fg_since(s, t) - a->began_at, a->route != 0, t);
    fg_health_let_in(&ask, t);
  }
  fg_health_token(&ask, &a->ticket, text != 0 ? fg_health_stuck_at(&ask, 0, 0, a->progress_ms, t) : t + (int64_t)a->progress_ms, t);
}

/* text: tokens of text that came, 0 for reasoning and tool arguments, which have other speeds. Returns when the stream will be stuck. */
static int64_t speed(const fg_health_ask *ask, fg_call_state *s, uint32_t text, uint32_t now, int64_t t) {
  fg_attempt *a = &s->live;
  const uint32_t before = a->text_at;
  a->text_at = text != 0 ? now : 0;
  if (text == 0 || before == 0) {
    return t + (int64_t)a->progress_ms;
  }
  a->text_tokens = fg_add32(a->text_tokens, text);
  a->text_ms = fg_add32(a->text_ms, now - before);
  fg_health_text(ask, text, now - before, t);
  fg_call_alert(s, fg_health_proved(ask, &a->ticket, a->text_tokens, a->text_ms, t));
  return fg_health_stuck_at(ask, a->text_tokens, a->text_ms, a->progress_ms, t);
}

static void progress(const fg_engine *e, fg_call_state *s, uint32_t text, int64_t t) {
  fg_attempt *a = &s->live;
  fg_health_ask ask;
  const uint32_t now = fg_since(s, t);
  const int begun = (a->flags & FG_AT_TOKEN) != 0;
  a->last_byte_at = a->last_progress_at = now;
  fg_commit_billing(s, FG_BILLING_LIKELY);
  if (!begun) {
    first_token(e, s, text, t);
    a->text_at = text != 0 ? now : 0;
  } else if (fg_ask_of(e, s, a->route, t, &ask)) {
    const int64_t due = speed(&ask, s, text, now, t);
    if (due != 0) {
      fg_health_progress(&ask, &a->ticket, due, t);
    }
  }
}

int32_t fg_call_event(const fg_engine *e, fg_call *c, uint32_t attempt, uint32_t kind, uint32_t value, int64_t now_ms) {
  fg_call_state *s;
  fg_attempt *a;
  int64_t t;
  const int32_t rc = fg_call_touch(e, c, now_ms, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (kind == FG_EVENT_NONE || kind >= FG_EVENT_COUNT || (kind == FG_EVENT_TERMINAL && value >= FG_FINISH_COUNT)) {
    return FG_ERR_ARG;
  }
  if (!fg_is_live(s, attempt)) {
    fg_call_look(e, s, t);
    return FG_OK; /* late news of an attempt that is over changes no fact */
  }
  a = &s->live;
  switch (kind) {
  case FG_EVENT_CONNECTED:
    break;
  case FG_EVENT_SENT:
    a->flags |= FG_AT_SENT;
    fg_commit_billing(s, FG_BILLING_POSSIBLE);
    break;
  case FG_EVENT_ACCEPTED:
  case FG_EVENT_FIRST_BYTE:
    a->flags |= FG_AT_SENT | FG_AT_ACCEPTED;
    a->last_byte_at = fg_since(s, t);
    fg_commit_billing(s, FG_BILLING_LIKELY);
    break;
  case FG_EVENT_LIFECYCLE:
    a->flags |= FG_AT_SENT | FG_AT_ACCEPTED;
    a->last_byte_at = fg_since(s, t);
    a->text_at = 0; /* a ping, or a host whose reader held back: the time to the next text is not the provider's */
    fg_commit_billing(s, FG_BILLING_LIKELY);
    fg_commit_shown(s, FG_SHOWN_LIFECYCLE);
    break;
  case FG_EVENT_REASONING:
    progress(e, s, 0, t);
    a->flags |= FG_AT_REASONED;
    a->reasoning = fg_add32(a->reasoning, fg_max32(value, 1));
    fg_commit_shown(s, FG_SHOWN_LIFECYCLE);
    break;
  case FG_EVENT_TOOL_ARGS:
    progress(e, s, 0, t);
    a->flags |= FG_AT_TOOL_OPEN;
    a->tool_bytes = fg_add32(a->tool_bytes, fg_max32(value, 1));
    break;
  case FG_EVENT_TOKEN:
    progress(e, s, fg_max32(value, 1), t);
    a->flags |= FG_AT_VISIBLE;
    a->visible = fg_add32(a->visible, fg_max32(value, 1));
    fg_commit_shown(s, FG_SHOWN_VISIBLE);
    break;
  default: /* FG_EVENT_TERMINAL */
    a->flags |= FG_AT_SENT | FG_AT_ACCEPTED;
    fg_commit_billing(s, FG_BILLING_LIKELY);
    a->last_byte_at = a->last_progress_at = fg_since(s, t);
    a->finish = (uint8_t)value;
    a->flags &= (uint16_t)~FG_AT_TOOL_OPEN;
    break;
  }
  fg_call_look(e, s, t);
  return FG_OK;
}

int32_t fg_call_usage(const fg_engine *e, fg_call *c, uint32_t attempt, const fg_answer *usage, int64_t now_ms) {
  fg_call_state *s;
  int64_t t;
  const int32_t rc = fg_call_touch(e, c, now_ms, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (usage == NULL || usage->size < sizeof *usage) {
    return usage == NULL ? FG_ERR_ARG : FG_ERR_ABI;
  }
  if (fg_is_live(s, attempt)) {
    s->live.output_tokens = fg_max32(s->live.output_tokens, usage->output_tokens);
    s->live.flags |= FG_AT_SENT;
    fg_commit_billing(s, FG_BILLING_CERTAIN);
    if (usage->flags & FG_ANSWER_USAGE_FINAL) {
      fg_money_settle(e, fg_workflow_of(e, s), s, &s->live, usage, t);
    }
  } else if (usage->flags & FG_ANSWER_USAGE_FINAL) { /* also after the call has ended, once */
    (void)fg_money_late(e, fg_workflow_of(e, s), s, attempt != 0 ? attempt : s->attempt_count, usage, t);
  }
  fg_call_look(e, s, t);
  return FG_OK;
}

int32_t fg_call_tool(const fg_engine *e, fg_call *c, uint32_t attempt, const char *op, uint32_t len, uint32_t state, uint32_t idempotent,
                     int64_t now_ms) {
  fg_call_state *s;
  int64_t t;
  const int32_t rc = fg_call_touch(e, c, now_ms, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (op == NULL || len == 0 || state >= FG_TOOL_COUNT) {
    return FG_ERR_ARG;
  }
  (void)attempt; /* a tool acts for the step, whichever attempt asked for it */
  fg_commit_tool(s, op, len, state, idempotent);
  fg_call_look(e, s, t);
  return FG_OK;
}
