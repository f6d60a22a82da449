/* How a route is served now: speed of its streams, first tokens that queued, requests it lets in. From these the learned limits. */
#include "fg_cadence.h"
#include "fg_health_parts.h"
#include "fg_limit.h"
#include "fg_pace.h"
#include "fg_sketch.h"
#include "fg_stall.h"

enum {
  SAMPLES = 8,          /* first tokens before they judge another */
  SKETCHED = 50,        /* before their spread is known */
  UNUSUAL_PPM = 950000, /* what one in twenty takes is late by chance, not by a queue */
  LATE_MS = 150,        /* and a quarter of what was expected: later than that has queued */
  CLEAN_MS = 50,        /* and a quarter: up to there it has not */
  CROWDED_PART = 7,     /* of what is in flight a crowded route gives up */
  BURIED_PART = 3,      /* a stand-in that is late by far: it has users of its own, who queue behind ours */
  PROVED_MS = 1200,     /* of text at speed: a probe has done its work */
  STUCK_MS = 2000       /* behind a fifth of the usual speed by so much: stuck */
};

static uint32_t in_flight(const fg_health_ask *ask) { return fg_gauge_sum(ask->route->gauge, fg_slots_used(ask->region)).in_flight; }

static int is_closed(const fg_health_ask *ask, int64_t t) {
  return fg_breaker_peek(&ask->route->breaker, ask->breaker, NULL, t).state == FG_BREAKER_CLOSED;
}

static uint32_t slower(uint32_t ms, uint32_t slow_q10) { return fg_sat32((uint64_t)ms * slow_q10 / FG_SLOW_ONE); }

/* A first token later than this has queued; 0: it cannot be judged. expected: as the route is now, without a queue. */
static uint32_t late_after(fg_route_rec *route, uint32_t kind, uint32_t prompt_tokens, uint32_t took_ms, uint32_t slow, uint32_t *expected) {
  fg_learn *own = &route->learn[kind];
  const uint32_t samples = fg_learn_samples(own);
  if (samples < SAMPLES) {
    return 0;
  }
  *expected = slower(fg_learn_predict(own, prompt_tokens), slow);
  if (samples < SKETCHED) {
    return *expected + *expected / 2 + LATE_MS;
  }
  const uint32_t late = *expected + *expected / 4 + LATE_MS;
  if (took_ms <= late) {
    return late; /* as mostly: how much longer the spread would allow is not asked for */
  }
  const uint32_t unusual = slower(fg_learn_quantile(own, prompt_tokens, UNUSUAL_PPM).ms, slow);
  return fg_max32(late, unusual + unusual / 4);
}

/* What may be learned from: not while the route is suspected or slow, else a brownout becomes the norm; and sparingly where a queue may be of
 * our own making. Then one first token now and then is learned all the same, so that a route that is slower for good is not held to its past for
 * ever: half of that is forgotten in 12 minutes for a primary, in an hour for a stand-in, whose whole traffic comes at once. */
static int may_learn(const fg_health_ask *ask, uint32_t kind, uint32_t crowded, uint32_t standin, int64_t t) {
  fg_route_rec *route = ask->route;
  const int first_ones = fg_learn_samples(&route->learn[kind]) < SAMPLES && fg_limit_now(&route->limit, t) == 0;
  const uint64_t every_ms = crowded ? (standin ? 60000 : 10000) : standin ? 5000 : 0;
  uint64_t last = fg_load(&route->learned);
  if (first_ones || every_ms == 0) {
    return 1;
  }
  if (last + every_ms > (uint64_t)t && last <= (uint64_t)t) {
    return 0;
  }
  return fg_cas(&route->learned, &last, (uint64_t)t);
}

void fg_health_first(const fg_health_ask *ask, uint32_t kind, uint32_t prompt_tokens, uint32_t took_ms, uint32_t standin, int64_t t) {
  fg_route_rec *route = ask->route;
  const fg_cadence speed = fg_cadence_look(&route->cadence, &route->cadence_usual, t);
  uint32_t expected = 0;
  const uint32_t late = late_after(route, kind, prompt_tokens, took_ms, fg_cadence_slow(&speed), &expected);
  const uint32_t now = in_flight(ask);
  if (!is_closed(ask, t)) {
    return;
  }
  if (late != 0 && took_ms > late) {
    fg_limit_late(&route->limit, &route->crowd, now, standin && took_ms > 2 * late ? BURIED_PART : CROWDED_PART, fg_max32(2 * expected, 2000), t);
  } else if (late != 0 && took_ms <= expected + expected / 4 + CLEAN_MS) {
    fg_limit_in_time(&route->limit, &route->crowd, now, t);
  }
  const uint32_t crowded = fg_limit_now(&route->limit, t) != 0 || (late != 0 && took_ms > late);
  if (fg_stall_get(&route->evidence).z_milli <= FG_Z_STALL && !fg_cadence_slows(&speed) && may_learn(ask, kind, crowded, standin, t)) {
    fg_learn_record(&route->learn[kind], prompt_tokens, took_ms);
  }
}

void fg_health_text(const fg_health_ask *ask, uint32_t tokens, uint32_t ms, int64_t t) {
  fg_route_rec *route = ask->route;
  fg_cadence_step(&route->cadence, &route->cadence_usual, tokens, ms, t);
  const fg_cadence speed = fg_cadence_look(&route->cadence, &route->cadence_usual, t);
  if (fg_cadence_slows(&speed) && fg_limit_now(&route->limit, t) == 0 && is_closed(ask, t)) { /* a lone probe's speed limits nobody */
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

uint32_t fg_health_proved(const fg_health_ask *ask, fg_ticket *ticket, uint32_t tokens, uint32_t ms, int64_t t) {
  const uint32_t usual = fg_cadence_look(&ask->route->cadence, &ask->route->cadence_usual, t).usual;
  if (!ticket->probe[FG_PART_BREAKER] || usual == 0 || ms < PROVED_MS || (uint64_t)tokens * FG_PPM / ms <= usual / 4) {
    return 0;
  }
  ticket->probe[FG_PART_BREAKER] = 0;
  fg_store(&ask->route->probes, 0); /* life: the next one is free */
  return fg_breaker_report(&ask->route->breaker, ask->breaker, ticket->generation[FG_PART_BREAKER], 1, FG_REPORT_OK, 0, t) == FG_TURN_CLOSED ? FG_DID_CLOSE : 0;
}

int64_t fg_health_stuck_at(const fg_health_ask *ask, uint32_t tokens, uint32_t ms, uint32_t limit_ms, int64_t t) {
  const uint32_t usual = fg_cadence_look(&ask->route->cadence, &ask->route->cadence_usual, t).usual;
  if (usual == 0) {
    return t + limit_ms;
  }
  const uint64_t allowed = (uint64_t)tokens * 5 * FG_PPM / usual + STUCK_MS;
  return allowed <= ms ? 0 : t + (int64_t)fg_min64(allowed - ms, limit_ms);
}
