#include "fg_gauge.h"
#include "fg_math.h"

static fg_gauge unpack(uint64_t w) {
  fg_gauge g = {(uint32_t)fg_bits(w, 48, 16), (uint32_t)fg_bits(w, 32, 16), (uint32_t)fg_bits(w, 16, 16), (uint32_t)fg_bits(w, 0, 16)};
  return g;
}

static uint64_t pack(fg_gauge g) {
  return fg_put(g.in_flight, 48, 16) | fg_put(g.retries, 32, 16) | fg_put(g.generating, 16, 16) | fg_put(g.stuck, 0, 16);
}

/* The four parts are added or taken off at once where none of them can carry into the next: all below half of what they hold. */
#define HALVES UINT64_C(0x8000800080008000)

fg_gauge fg_gauge_get(const fg_word *w) { return unpack(fg_load(w)); }

void fg_gauge_add(fg_word *w, fg_gauge more) {
  uint64_t old = fg_load_relaxed(w), all = pack(more);
  for (;;) {
    uint64_t new = old + all;
    if (((old | all) & HALVES) != 0) {
      fg_gauge g = unpack(old);
      g.in_flight += more.in_flight;
      g.retries += more.retries;
      g.generating += more.generating;
      g.stuck += more.stuck;
      new = pack(g);
    }
    if (new >> 48 == 0) {
      new = 0; /* its attempt ended between the row and this count */
    }
    if (new == old || fg_cas(w, &old, new)) {
      return;
    }
  }
}

void fg_gauge_sub(fg_word *w, fg_gauge less) {
  uint64_t old = fg_load_relaxed(w), all = pack(less);
  for (;;) {
    uint64_t new = ((old | HALVES) - all) ^ HALVES; /* a part's top bit is clear when it did not fall below 0 */
    if (((old | all | new) & HALVES) != 0) {
      fg_gauge g = unpack(old);
      g.in_flight = fg_sub32(g.in_flight, less.in_flight);
      g.retries = fg_sub32(g.retries, less.retries);
      g.generating = fg_sub32(g.generating, less.generating);
      g.stuck = fg_sub32(g.stuck, less.stuck);
      new = pack(g);
    }
    if (new >> 48 == 0) {
      new = 0; /* nothing in flight: nothing of it is left, also what came late */
    }
    if (new == old || fg_cas(w, &old, new)) {
      return;
    }
  }
}

fg_gauge fg_gauge_sum(const fg_word *w, uint32_t slots) {
  fg_gauge sum = {0, 0, 0, 0};
  for (uint32_t i = 0; i < slots; i++) {
    uint64_t v = fg_load_relaxed(&w[i]);
    if (v != 0) {
      fg_gauge g = unpack(v);
      sum.in_flight += g.in_flight;
      sum.retries += g.retries;
      sum.generating += g.generating;
      sum.stuck += g.stuck;
    }
  }
  return sum;
}
