/* Estimates and clocks. Priors hold until there are samples: 2 s to a first token, 12 tokens a second, 30 s of patience for a first
 * token (300 s when the model reasons first). */
#include "fg_estimate.h"

#include "fg_cadence.h"
#include "fg_math.h"
#include "fg_sketch.h"
#include "fg_stall.h"

enum {
  ESTIMATE_MS = 2000,
  ESTIMATE_SAMPLES = 10,
  RATE_PER_S = 12,
  FIRST_TOKEN_MS = 30000,
  FIRST_TOKEN_FLOOR_MS = 5000,
  REASONING_MS = 300000,
  TOTAL_UNKNOWN_MS = 600000 /* no max_output: the SDKs' own 10 minutes */
};

int fg_answer_is_whole(const fg_call_state *s) {
  return s->stream_mode != FG_STREAM_YES || s->delivery == FG_DELIVERY_WHOLE;
}

static int not_streamed(const fg_call_state *s) {
  return s->stream_mode != FG_STREAM_YES;
}

uint32_t fg_learn_kind(const fg_call_state *s) {
  const uint32_t reasoning = (s->features & FG_FEATURE_REASONING) != 0;
  if (not_streamed(s)) {
    return reasoning ? FG_LEARN_WHOLE_REASONING : FG_LEARN_WHOLE;
  }
  return reasoning ? FG_LEARN_STREAM_REASONING : FG_LEARN_STREAM;
}

uint32_t fg_estimate_ms(const fg_policy_route *r, const fg_call_state *s, fg_route_rec *rec, uint32_t max_output_tokens) {
  const uint32_t declared = not_streamed(s) ? r->latency_p95_ms : r->first_token_p95_ms;
  if (rec != NULL) {
    const fg_quantile q = fg_learn_quantile(&rec->learn[fg_learn_kind(s)], s->prompt_tokens, 500000);
    if (q.samples >= ESTIMATE_SAMPLES) {
      return q.ms;
    }
  }
  if (declared != 0) {
    return declared;
  }
  return not_streamed(s) ? fg_add32(ESTIMATE_MS, fg_mul32(max_output_tokens, 1000) / RATE_PER_S) : ESTIMATE_MS;
}

static uint32_t total_of(const fg_policy_workflow *w, const fg_call_state *s, fg_route_rec *rec) {
  const uint32_t kind = fg_learn_kind(s);
  uint32_t total;
  if (w->total_ms != 0) {
    return w->total_ms;
  }
  if (s->max_output_tokens == 0) {
    return TOTAL_UNKNOWN_MS;
  }
  if (rec != NULL) {
    total = fg_learn_total_ms(&rec->learn[kind], s->max_output_tokens);
  } else {
    total = fg_add32(fg_mul32(s->max_output_tokens, 1000) / RATE_PER_S, 10000);
  }
  /* Hidden reasoning is not in max_output's arithmetic: never less than its own patience. */
  return (s->features & FG_FEATURE_REASONING) ? fg_max32(total, REASONING_MS) : total;
}

/* 2 x q99 leaves room above the stall evidence (1.5 x q99), which looks at the route and not at the attempt. */
static uint32_t first_token_of(const fg_policy_workflow *w, const fg_call_state *s, fg_quantile q99, uint32_t total_ms) {
  const uint32_t prior = (s->features & FG_FEATURE_REASONING) ? REASONING_MS : FIRST_TOKEN_MS;
  if (not_streamed(s)) {
    return total_ms; /* a whole answer has no first token of its own, whatever the card says of streams */
  }
  if (w->first_token_ms != 0) {
    return w->first_token_ms;
  }
  return q99.samples >= FG_STALL_SAMPLES ? fg_min32(fg_max32(fg_mul32(q99.ms, 2), FIRST_TOKEN_FLOOR_MS), prior) : prior;
}

/* How many times slower its streams write now than usual, Q10: its first tokens may take as much longer. */
static uint32_t slowness(const fg_route_rec *rec, int64_t t) {
  const fg_cadence c = fg_cadence_look(&rec->cadence, &rec->cadence_usual, t);
  return fg_cadence_slow(&c);
}

void fg_clocks_of(const fg_policy_workflow *w, const fg_call_state *s, fg_route_rec *rec, uint32_t left_ms, uint32_t spare_ms, int64_t t, fg_clocks *out) {
  const int whole = fg_answer_is_whole(s);
  const uint32_t kind = fg_learn_kind(s);
  const fg_quantile none = {0, 0};
  uint32_t prior;
  const fg_quantile q99 = rec != NULL ? fg_learn_quantile(&rec->learn[kind], s->prompt_tokens, 990000) : none;
  out->connect_ms = w->connect_ms;
  out->idle_ms = w->idle_ms;
  out->progress_ms = (s->features & FG_FEATURE_REASONING) ? fg_max32(w->progress_ms, REASONING_MS) : w->progress_ms;
  out->total_ms = total_of(w, s, rec);
  out->first_token_ms = first_token_of(w, s, q99, out->total_ms);
  if (left_ms != UINT32_MAX) {
    uint32_t first = left_ms;
    if (spare_ms != 0) { /* leave a stand-in the time to answer, but keep at least half */
      first = fg_max32(fg_sub32(left_ms, spare_ms), left_ms / 2);
    }
    out->first_token_ms = fg_max32(fg_min32(out->first_token_ms, first), 1);
    out->connect_ms = fg_max32(fg_min32(out->connect_ms, out->first_token_ms), 1);
    if (whole) {
      out->total_ms = fg_max32(fg_min32(out->total_ms, not_streamed(s) ? out->first_token_ms : left_ms), 1);
    }
  }
  if (out->first_token_ms > out->total_ms) {
    if (w->total_ms == 0 && !whole) {
      out->total_ms = out->first_token_ms; /* a learned total does not cut short the patience the card states */
    } else {
      out->first_token_ms = out->total_ms;
    }
  }
  prior = kind != FG_LEARN_STREAM && q99.samples < FG_STALL_SAMPLES ? first_token_of(w, s, none, total_of(w, s, NULL)) : 0;
  out->stall_ms = fg_stall_after_ms(q99.ms, q99.samples, kind != FG_LEARN_STREAM, prior);
  if (rec != NULL) {
    out->stall_ms = fg_sat32((uint64_t)out->stall_ms * slowness(rec, t) / FG_SLOW_ONE);
  }
  out->stall_ms = fg_min32(out->stall_ms, out->total_ms);
}
