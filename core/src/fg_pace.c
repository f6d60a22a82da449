#include "fg_pace.h"
#include "fg_math.h"

enum {
  MODE_AT = 62, RATE_AT = 40, RATE_BITS = 22, WAIT_AT = 37, WAIT_BITS = 3, WAIT_MAX = 3, IN_AT = 49, IN_BITS = 15, OUT_AT = 37, OUT_BITS = 12,
  LEARN_MS = 5000, ROUND_MS = 10000, RATE_LEAST = 200, /* one in 5 s */
  REFUSED_LEAST = 3,                                   /* in the time of learning: one or two 429s are no rate */
  AHEAD_MS = 1000000                                   /* a round never ends later: nonsense */
};

typedef struct pace { uint32_t mode, rate, wait; int64_t at; } pace;

static pace read_pace(uint64_t w) {
  pace p = {(uint32_t)fg_bits(w, MODE_AT, 2), (uint32_t)fg_bits(w, RATE_AT, RATE_BITS), (uint32_t)fg_bits(w, WAIT_AT, WAIT_BITS),
            (int64_t)fg_bits(w, 0, FG_T_BITS)};
  return p;
}

static uint64_t pack(pace p) {
  return fg_put(p.mode, MODE_AT, 2) | fg_put(p.rate, RATE_AT, RATE_BITS) | fg_put(p.wait, WAIT_AT, WAIT_BITS) | fg_put((uint64_t)p.at, 0, FG_T_BITS);
}

static int64_t round_of(uint32_t wait) { return (int64_t)ROUND_MS << fg_min32(wait, WAIT_MAX); }

fg_gcra_config fg_pace_now(const fg_word *w) {
  const pace p = read_pace(fg_load_relaxed(w));
  const uint64_t second_us = 1000000;
  fg_gcra_config c = {p.mode < FG_PACE_HOLD ? 0 : fg_max32(p.rate, RATE_LEAST), 1000 * second_us, p.rate / 4000}; /* a quarter second's at once */
  return c;
}

static void restart(fg_word *seen, int64_t t) { fg_store(seen, fg_put((uint64_t)t, 0, FG_T_BITS)); }

typedef struct counts { uint32_t in, refused; int64_t since; } counts;

static counts read_counts(const fg_word *seen) {
  const uint64_t w = fg_load(seen);
  counts c = {(uint32_t)fg_bits(w, IN_AT, IN_BITS), (uint32_t)fg_bits(w, OUT_AT, OUT_BITS), (int64_t)fg_bits(w, 0, FG_T_BITS)};
  return c;
}

static void count(fg_word *seen, uint32_t in, uint32_t refused) {
  uint64_t old = fg_load(seen);
  while (!fg_cas(seen, &old, fg_put(fg_bits(old, IN_AT, IN_BITS) + in, IN_AT, IN_BITS) |
                                 fg_put(fg_bits(old, OUT_AT, OUT_BITS) + refused, OUT_AT, OUT_BITS) | fg_bits(old, 0, FG_T_BITS))) {
  }
}

/* What was let in since the count began, a 1,000 s. */
static uint32_t rate_of(const counts *c, int64_t t) { return fg_sat32((uint64_t)c->in * FG_PPM / (uint64_t)fg_maxs(t - c->since, 1000)); }

/* The round is over: what the next one is. */
static pace next_round(pace p, const counts *c, int64_t t) {
  const pace off = {FG_PACE_OFF, 0, 0, 0};
  const uint32_t seen = rate_of(c, t);
  pace n = p;
  if (p.mode == FG_PACE_LEARN) {
    if (c->refused < REFUSED_LEAST || t - p.at > LEARN_MS) {
      return off; /* too few, or so long ago that they tell nothing of now */
    }
    n.mode = FG_PACE_HOLD;
    n.rate = fg_max32(seen, RATE_LEAST);
    n.wait = 0;
  } else if (seen < p.rate / 10 * 4) { /* attempts at random, kept apart, use half of a rate they would fill */
    return off; /* less was wanted than is let through */
  } else {
    n.wait = p.mode == FG_PACE_TEST ? 0 : p.wait; /* a test that brought no 429 */
    n.mode = FG_PACE_TEST;
    n.rate = fg_min32(p.rate + fg_max32(p.rate / 10, 1), (1u << RATE_BITS) - 1);
  }
  n.at = t + (n.mode == FG_PACE_TEST ? ROUND_MS : round_of(n.wait));
  return n;
}

void fg_pace_let_in(fg_word *w, fg_word *seen, int64_t t) {
  uint64_t old = fg_load(w);
  const pace p = read_pace(old);
  if (p.mode == FG_PACE_OFF) {
    return;
  }
  if (p.at > t + AHEAD_MS) {
    (void)fg_cas(w, &old, 0);
    return;
  }
  count(seen, 1, 0);
  if (t >= p.at) {
    const counts c = read_counts(seen);
    if (fg_cas(w, &old, pack(next_round(p, &c, t)))) {
      restart(seen, t);
    }
  }
}

static pace learning(int64_t t) {
  const pace p = {FG_PACE_LEARN, 0, 0, t + LEARN_MS};
  return p;
}

void fg_pace_refused(fg_word *w, fg_word *seen, int64_t t) {
  uint64_t old = fg_load(w);
  pace p = read_pace(old);
  counts c;
  count(seen, 0, 1);
  switch (p.mode) {
  case FG_PACE_LEARN:
    if (t < p.at) {
      return;
    }
    c = read_counts(seen);
    p = next_round(p, &c, t);
    if (p.mode == FG_PACE_OFF) {
      p = learning(t); /* those were old or few: it begins with this one */
    }
    break;
  case FG_PACE_OFF:
    p = learning(t);
    break;
  case FG_PACE_TEST: /* it was too much: back, and the next try later */
    p.mode = FG_PACE_HOLD;
    p.rate = (uint32_t)((uint64_t)p.rate * 10 / 11);
    p.wait = fg_min32(p.wait + 1, WAIT_MAX);
    p.at = t + round_of(p.wait);
    break;
  default: /* less than it was: a twentieth down, once a second at most (others were sent meanwhile) */
    if (round_of(p.wait) - (p.at - t) < 1000) {
      return;
    }
    p.rate = fg_max32(p.rate - p.rate / 20, RATE_LEAST);
    p.at = t + round_of(p.wait);
    break;
  }
  if (fg_cas(w, &old, pack(p))) { /* lost: another 429 has just said the same */
    restart(seen, t);
    if (p.mode == FG_PACE_LEARN) {
      count(seen, 0, 1);
    }
  }
}
