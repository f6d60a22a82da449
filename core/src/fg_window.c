#include "fg_window.h"
#include "fg_math.h"

static uint64_t bucket(uint64_t epoch, uint64_t a, uint64_t b) { return epoch << 32 | fg_put(a, 16, 16) | fg_put(b, 0, 16); }
static uint64_t part_a(uint64_t w) { return fg_bits(w, 16, 16); }
static uint64_t part_b(uint64_t w) { return fg_bits(w, 0, 16); }
static uint64_t epoch_of(int64_t t, uint32_t width_ms) { return (uint64_t)(t > 0 ? t : 0) / (width_ms > 0 ? width_ms : 1) & UINT32_MAX; }

void fg_window_add(fg_word *w, uint32_t n, uint32_t width_ms, int64_t t, uint32_t a, uint32_t b) {
  uint64_t mine = epoch_of(t, width_ms);
  w += mine % n;
  uint64_t old = fg_load_relaxed(w);
  for (;;) {
    uint64_t epoch = old >> 32, new;
    if (epoch == mine) {
      new = bucket(mine, part_a(old) + a, part_b(old) + b);
    } else if (epoch > mine && epoch - mine <= 2 * (uint64_t)n) {
      return; /* written late: the bucket has begun a newer lap */
    } else {
      new = bucket(mine, a, b); /* an older lap, or nonsense */
    }
    if (new == old || fg_cas(w, &old, new)) {
      return;
    }
  }
}

void fg_window_sub(fg_word *w, uint32_t n, uint32_t width_ms, int64_t t, uint32_t a, uint32_t b) {
  uint64_t mine = epoch_of(t, width_ms);
  w += mine % n;
  uint64_t old = fg_load_relaxed(w);
  while (old >> 32 == mine) {
    if (fg_cas(w, &old, bucket(mine, fg_sub64(part_a(old), a), fg_sub64(part_b(old), b)))) {
      return;
    }
  }
}

int fg_window_any_b(const fg_word *w, uint32_t n) {
  const fg_word *end = w + n;
  uint64_t any = 0;
  for (; w < end; w++) {
    any |= fg_load_relaxed(w);
  }
  return part_b(any) != 0;
}

fg_window_sums fg_window_sum(const fg_word *w, uint32_t n, uint32_t width_ms, int64_t floor, int64_t t) {
  fg_window_sums sums = {0, 0};
  uint64_t now = epoch_of(t, width_ms);
  uint64_t first = floor > 0 ? epoch_of(floor, width_ms) + 1 : 0;
  uint64_t ages = first > now ? 0 : fg_min64(n, now - first + 1); /* a bucket counts when it is younger; one of the future is older than all */
  for (uint32_t i = 0; i < n; i++) {
    uint64_t v = fg_load_relaxed(&w[i]);
    if (now - (v >> 32) < ages) {
      sums.a += (uint32_t)part_a(v);
      sums.b += (uint32_t)part_b(v);
    }
  }
  return sums;
}
