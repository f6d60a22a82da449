#include "fg_limit.h"
#include "fg_math.h"

enum {
  VALUE_AT = 44, VALUE_BITS = 20, ONE = 16, GROW = 2, FASTER_MS = 7000, CUT_AT = 22, STEP_MS = 64, STEP_BITS = 22, STEP_MASK = (1 << STEP_BITS) - 1,
  FORGET_MS = 15000,
  GOOD_AT = 48, LATE_AT = 32, COUNT_BITS = 16, HALF_LIFE_MS = 2000,
  LATE_LEAST = 5 * ONE / 2 /* three late ones, a little decayed */
};

typedef struct limit { uint32_t value, cut, bound; } limit;

static uint32_t step_of(int64_t t) { return (uint32_t)((uint64_t)t / STEP_MS) & STEP_MASK; }
static uint64_t since(uint32_t step, int64_t t) { return (uint64_t)((step_of(t) - step) & STEP_MASK) * STEP_MS; }

static limit read_limit(uint64_t w) {
  limit l = {(uint32_t)fg_bits(w, VALUE_AT, VALUE_BITS), (uint32_t)fg_bits(w, CUT_AT, STEP_BITS), (uint32_t)fg_bits(w, 0, STEP_BITS)};
  return l;
}

static uint64_t pack(limit l) { return fg_put(l.value, VALUE_AT, VALUE_BITS) | fg_put(l.cut, CUT_AT, STEP_BITS) | fg_put(l.bound, 0, STEP_BITS); }

static int holds(limit l, int64_t t) { return l.value != 0 && since(l.bound, t) <= FORGET_MS; }

uint32_t fg_limit_now(const fg_word *w, int64_t t) {
  const limit l = read_limit(fg_load_relaxed(w));
  return holds(l, t) ? fg_max32(l.value / ONE, 1) : 0;
}

static limit fresh(uint32_t attempts, int64_t t) {
  limit l = {fg_min32(fg_max32(attempts, FG_LIMIT_LEAST), (1u << VALUE_BITS) / ONE - 1) * ONE, step_of(t), step_of(t)};
  return l;
}

void fg_limit_brake(fg_word *w, uint32_t in_flight, int64_t t) {
  uint64_t old = fg_load(w);
  while (!holds(read_limit(old), t) && !fg_cas(w, &old, pack(fresh(in_flight, t)))) {
  }
}

static int nearly_used(limit l, uint32_t in_flight) { return (uint64_t)in_flight * 8 >= (uint64_t)(l.value / ONE) * 7; }

void fg_limit_admitted(fg_word *w, uint32_t in_flight, int64_t t) {
  uint64_t old = fg_load(w);
  while (old != 0) {
    limit l = read_limit(old);
    uint64_t new = 0; /* long unused: no limit */
    if (holds(l, t)) {
      if (!nearly_used(l, in_flight) || since(l.bound, t) < 1000) {
        return;
      }
      l.bound = step_of(t);
      new = pack(l);
    }
    if (fg_cas(w, &old, new)) {
      return;
    }
  }
}

typedef struct counts { uint64_t good, late; } counts;

/* One more first token: the counts lately, it included. */
static counts count(fg_word *crowd, uint32_t late, int64_t t) {
  uint64_t old = fg_load(crowd);
  for (;;) {
    counts c = {fg_bits(old, GOOD_AT, COUNT_BITS), fg_bits(old, LATE_AT, COUNT_BITS)};
    uint32_t stamp = (uint32_t)fg_bits(old, 0, STEP_BITS);
    const uint64_t age = since(stamp, t);
    if (age > 0) {
      const uint64_t left = fg_exp2_neg_q32((fg_min64(age, 1 << 18) << 32) / HALF_LIFE_MS);
      c.good = c.good * left >> 32;
      c.late = c.late * left >> 32;
      stamp = step_of(t);
    }
    c.good += late ? 0 : ONE;
    c.late += late ? ONE : 0;
    if (fg_cas(crowd, &old, fg_put(c.good, GOOD_AT, COUNT_BITS) | fg_put(c.late, LATE_AT, COUNT_BITS) | stamp)) {
      return c;
    }
  }
}

/* Carefully at first; faster the longer ago it was lowered, for what it was lowered for may be over. */
static uint32_t growth(limit l, int64_t t) { return (uint32_t)fg_min64(GROW + since(l.cut, t) / FASTER_MS, ONE); }

void fg_limit_in_time(fg_word *w, fg_word *crowd, uint32_t in_flight, int64_t t) {
  const counts c = count(crowd, 0, t);
  uint64_t old = fg_load(w);
  while (holds(read_limit(old), t)) {
    limit l = read_limit(old);
    if (!nearly_used(l, in_flight) || c.late * 8 > c.good + c.late) {
      return;
    }
    l.value = fg_min32(l.value + growth(l, t), (1u << VALUE_BITS) - 1);
    if (fg_cas(w, &old, pack(l))) {
      return;
    }
  }
}

void fg_limit_late(fg_word *w, fg_word *crowd, uint32_t in_flight, uint32_t part, uint32_t gap_ms, int64_t t) {
  const counts c = count(crowd, 1, t);
  uint64_t old = fg_load(w);
  if (c.late < LATE_LEAST || c.late * 4 <= c.good + c.late || in_flight <= FG_LIMIT_LEAST) {
    return;
  }
  for (;;) {
    const limit l = read_limit(old);
    limit next = fresh(in_flight - in_flight / part, t);
    if (holds(l, t) && (since(l.cut, t) < gap_ms || l.value < next.value)) {
      return;
    }
    if (fg_cas(w, &old, pack(next))) {
      return;
    }
  }
}
