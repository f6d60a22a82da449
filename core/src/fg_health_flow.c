/* How a route is served now: speed of its streams, first tokens that queued, requests it lets in. From these the learned limits. */
#include "fg_cadence.h"
#include "fg_health_parts.h"
#include "fg_limit.h"
#include "fg_pace.h"
#include "fg_sketch.h"
#include "fg_stall.h"

enum {
  SAMPLES = 20,         /* first tokens before a prediction judges one */
  CLEAN_MS = 50,
  LATE_MS = 250,        /* and half of what was expected: later than that has queued */
  BORROWED_LATE_MS = 500, /* and all of it, where another route's times had to do */
  UNUSUAL_PPM = 950000, /* what one in twenty takes is late by chance, not by a queue */
  STUCK_MS = 2000       /* behind a fifth of the usual speed by so much: stuck */
};

static uint32_t in_flight(const fg_health_ask *ask) { return fg_gauge_sum(ask->route->gauge, fg_slots_used(ask->region)).in_flight; }

static uint32_t slower(uint32_t ms, uint32_t slow_q10) { return fg_sat32((uint64_t)ms * slow_q10 / FG_SLOW_ONE); }

/* A first token later than this has queued; 0: it cannot be judged. expected: as the route is now, without a queue. */
static uint32_t late_after(fg_route_rec *route, uint32_t kind, uint32_t prompt_tokens, const fg_route_rec *learned, uint32_t slow, uint32_t *expected) {
  const uint32_t own = fg_learn_samples(&route->learn[kind]);
  if (own >= SAMPLES) {
    *expected = slower(fg_learn_predict(&route->learn[kind], prompt_tokens), slow);
    const uint32_t unusual = slower(fg_learn_quantile(&route->learn[kind], prompt_tokens, UNUSUAL_PPM).ms, slow);
    return fg_max32(*expected + *expected / 4 + LATE_MS, unusual + unusual / 4);
  }
  if (learned != NULL && learned != route && fg_learn_samples(&learned->learn[kind]) >= SAMPLES) {
    *expected = slower(fg_learn_predict(&learned->learn[kind], prompt_tokens), slow);
    return *expected + *expected / 2 + BORROWED_LATE_MS;
  }
  return 0;
}

void fg_health_first(const fg_health_ask *ask, uint32_t kind, uint32_t prompt_tokens, uint32_t took_ms, const fg_route_rec *learned, int64_t t) {
  fg_route_rec *route = ask->route;
  const fg_cadence speed = fg_cadence_look(&route->cadence, &route->cadence_usual, t);
  uint32_t expected = 0;
  const uint32_t late = late_after(route, kind, prompt_tokens, learned, fg_cadence_slow(&speed), &expected);
  const uint32_t now = in_flight(ask);
  if (fg_breaker_peek(&route->breaker, ask->breaker, NULL, t).state != FG_BREAKER_CLOSED) {
    return;
  }
  if (late != 0 && took_ms > late) {
    fg_limit_late(&route->limit, &route->crowd, now, fg_max32(2 * expected, 2000), t);
  } else if (late != 0 && took_ms <= expected + expected / 4 + CLEAN_MS) {
    fg_limit_in_time(&route->limit, &route->crowd, now, t);
  }
  /* Learning stops while the route is suspected, slow or crowded: else a brownout becomes the norm. With few in flight the crowd is not ours,
   * and what is seen is what is. */
  const int crowded = fg_limit_now(&route->limit, t) != 0 || (late != 0 && took_ms > late);
  if (fg_stall_get(&route->evidence).z_milli <= FG_Z_STALL && !fg_cadence_slows(&speed) && (!crowded || now <= FG_LIMIT_LEAST)) {
    fg_learn_record(&route->learn[kind], prompt_tokens, took_ms);
  }
}

void fg_health_text(const fg_health_ask *ask, uint32_t tokens, uint32_t ms, int64_t t) {
  fg_route_rec *route = ask->route;
  fg_cadence_step(&route->cadence, &route->cadence_usual, tokens, ms, t);
  const fg_cadence speed = fg_cadence_look(&route->cadence, &route->cadence_usual, t);
  if (fg_cadence_slows(&speed) && fg_limit_now(&route->limit, t) == 0) {
    fg_limit_brake(&route->limit, in_flight(ask), t);
  }
}

void fg_health_spoke(const fg_health_ask *ask, uint32_t tokens, uint32_t ms, int64_t t) {
  enum { TOKENS = 16, MS = 200 }; /* shorter texts are all burst */
  if (tokens >= TOKENS && ms >= MS) {
    fg_cadence_learn(&ask->route->cadence_usual, tokens, ms, t);
  }
}

void fg_health_let_in(const fg_health_ask *ask, int64_t t) { fg_pace_let_in(&ask->route->pace, &ask->route->pace_seen, t); }

int64_t fg_health_stuck_at(const fg_health_ask *ask, uint32_t tokens, uint32_t ms, uint32_t limit_ms, int64_t t) {
  const uint32_t usual = fg_cadence_look(&ask->route->cadence, &ask->route->cadence_usual, t).usual;
  if (usual == 0) {
    return t + limit_ms;
  }
  const uint64_t allowed = (uint64_t)tokens * 5 * FG_PPM / usual + STUCK_MS;
  return allowed <= ms ? 0 : t + (int64_t)fg_min64(allowed - ms, limit_ms);
}
