#include "fg_cadence.h"
#include "fg_math.h"

enum {
  N_AT = 58, N_MAX = 16, RATE_AT = 29, RATE_BITS = 29, LEARN_MS = 256, LEARN_BITS = 29,
  GOT_AT = 43, WANT_AT = 22, SUM_BITS = 21, STEP_MS = 64, STEP_BITS = 22,
  HALF_LIFE_MS = 1000,
  PAUSE_MAX_MS = 4000, /* a longer pause of one stream says no more of the route */
  STALE_MS = 10000,    /* sums nobody added to for so long say nothing */
  ENOUGH_MS = 1000,    /* of stream time */
  FOLD_MS = 3600000    /* the usual speed changes e-fold in no less */
};

typedef struct speed { uint32_t n; int64_t rate; uint32_t stamp; } speed;

static speed read_usual(uint64_t w) {
  speed s = {(uint32_t)fg_bits(w, N_AT, 6), (int64_t)fg_bits(w, RATE_AT, RATE_BITS), (uint32_t)fg_bits(w, 0, LEARN_BITS)};
  s.n = fg_min32(s.n, N_MAX);
  return s;
}

void fg_cadence_learn(fg_word *usual, uint32_t tokens, uint32_t ms, int64_t t) {
  const int64_t sample = (int64_t)fg_min64((uint64_t)tokens * FG_PPM / fg_max32(ms, 1), (1u << RATE_BITS) - 1);
  const uint32_t stamp = (uint32_t)((uint64_t)t / LEARN_MS) & ((1u << LEARN_BITS) - 1);
  uint64_t old = fg_load(usual);
  for (;;) {
    speed s = read_usual(old);
    int64_t step = (sample - s.rate) / (s.n < N_MAX ? (int64_t)s.n + 1 : N_MAX);
    if (s.n >= FG_CADENCE_SAMPLES) {
      const int64_t age_ms = (int64_t)((stamp - s.stamp) & ((1u << LEARN_BITS) - 1)) * LEARN_MS;
      const int64_t most = s.rate * fg_mins(age_ms, FOLD_MS) / FOLD_MS;
      step = fg_mins(fg_maxs(step, -most), most);
    }
    speed next = {fg_min32(s.n + 1, N_MAX), fg_maxs(s.rate + step, 1), step == 0 && s.n >= N_MAX ? s.stamp : stamp};
    const uint64_t new = fg_put(next.n, N_AT, 6) | fg_put((uint64_t)next.rate, RATE_AT, RATE_BITS) | fg_put(next.stamp, 0, LEARN_BITS);
    if (new == old || fg_cas(usual, &old, new)) {
      return;
    }
  }
}

static uint32_t usual_of(const fg_word *usual) {
  const speed s = read_usual(fg_load_relaxed(usual));
  return s.n < FG_CADENCE_SAMPLES ? 0 : (uint32_t)s.rate;
}

static uint32_t steps_since(uint64_t w, int64_t t) {
  const uint32_t mask = (1u << STEP_BITS) - 1;
  return ((uint32_t)((uint64_t)t / STEP_MS) - (uint32_t)fg_bits(w, 0, STEP_BITS)) & mask;
}

void fg_cadence_step(fg_word *now, const fg_word *usual, uint32_t tokens, uint32_t ms, int64_t t) {
  const uint64_t rate = usual_of(usual), max = (1u << SUM_BITS) - 1;
  uint64_t old;
  if (rate == 0 || ms == 0) {
    return;
  }
  old = fg_load(now);
  for (;;) {
    uint64_t got = fg_bits(old, GOT_AT, SUM_BITS), want = fg_bits(old, WANT_AT, SUM_BITS), stamp = fg_bits(old, 0, STEP_BITS);
    const uint32_t steps = steps_since(old, t);
    if (steps > 0) {
      const uint64_t left = fg_exp2_neg_q32(((uint64_t)fg_min32(steps, 1u << 12) * STEP_MS << 32) / HALF_LIFE_MS);
      got = got * left >> 32;
      want = want * left >> 32;
      stamp = (uint64_t)t / STEP_MS;
    }
    got += (uint64_t)tokens * 16;
    want += fg_min32(ms, PAUSE_MAX_MS) * rate * 16 / FG_PPM;
    while (got > max || want > max) {
      got >>= 1;
      want >>= 1;
    }
    if (fg_cas(now, &old, fg_put(got, GOT_AT, SUM_BITS) | fg_put(want, WANT_AT, SUM_BITS) | (stamp & ((1u << STEP_BITS) - 1)))) {
      return;
    }
  }
}

fg_cadence fg_cadence_look(const fg_word *now, const fg_word *usual, int64_t t) {
  fg_cadence c = {usual_of(usual), FG_PPM, 0};
  const uint64_t w = fg_load_relaxed(now);
  const uint64_t got = fg_bits(w, GOT_AT, SUM_BITS), want = fg_bits(w, WANT_AT, SUM_BITS);
  if (c.usual == 0 || want == 0 || (uint64_t)steps_since(w, t) * STEP_MS > STALE_MS) {
    return c;
  }
  c.now_ppm = fg_sat32(got * FG_PPM / want);
  c.weight_ms = fg_sat32(want * FG_PPM / 16 / c.usual);
  return c;
}

int fg_cadence_slows(const fg_cadence *c) { return c->weight_ms >= ENOUGH_MS && c->now_ppm < FG_CADENCE_SLOW_PPM; }

uint32_t fg_cadence_slow(const fg_cadence *c) {
  if (c->weight_ms < ENOUGH_MS || c->now_ppm >= FG_CADENCE_FINE_PPM || c->now_ppm < FG_PPM / 50) {
    return FG_SLOW_ONE; /* below a fiftieth it has stopped: that is no longer slowness */
  }
  return fg_min32((uint32_t)((uint64_t)FG_SLOW_ONE * FG_PPM / c->now_ppm), FG_SLOW_MAX);
}
