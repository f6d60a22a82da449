#include "fg_gcra.h"
#include "fg_math.h"

static const uint64_t hour_us = UINT64_C(3600000000);
static const uint64_t minute_us = UINT64_C(60000000);

static uint64_t spacing(const fg_gcra_config *c, uint64_t n) { return fg_min64(fg_mul_div_ceil(n, c->period_us, c->rate), 24 * hour_us); }

/* All the debt that may be owed and still let one unit pass. */
static uint64_t tolerance(const fg_gcra_config *c) { return spacing(c, fg_add64(c->burst, 1)); }

static uint64_t read_word(uint64_t tat, const fg_gcra_config *c, uint64_t now) {
  return tat > now + tolerance(c) + 25 * hour_us ? 0 : tat; /* further ahead than any take reaches: nonsense */
}

static uint32_t up_ms(uint64_t us) { return fg_sat32(us / 1000 + (us % 1000 != 0)); }

/* The answer to a take of n, and the word after it. */
static fg_gcra_result look(const fg_gcra_config *c, uint64_t n, uint64_t *tat, uint64_t now) {
  uint64_t allowance = tolerance(c);
  uint64_t from = fg_max64(*tat, now);
  uint64_t next = from + spacing(c, n);
  fg_gcra_result r = {1, 0};
  if (n > fg_add64(c->burst, 1)) {
    r.allowed = *tat <= now;
    r.retry_ms = r.allowed ? 0 : up_ms(*tat - now);
  } else if (next > now + allowance) {
    r.allowed = 0;
    r.retry_ms = up_ms(next - allowance - now);
  }
  if (r.allowed && n > 0) {
    *tat = next;
  }
  return r;
}

static fg_gcra_result no_limit(void) {
  fg_gcra_result r = {1, 0};
  return r;
}

fg_gcra_result fg_gcra_peek(const fg_word *tat, const fg_gcra_config *c, uint64_t n, int64_t t) {
  if (c->rate == 0) {
    return no_limit();
  }
  uint64_t now = (uint64_t)t * 1000, v = read_word(fg_load(tat), c, now);
  return look(c, n, &v, now);
}

fg_gcra_result fg_gcra_take(fg_word *tat, const fg_gcra_config *c, uint64_t n, int64_t t) {
  if (c->rate == 0) {
    return no_limit();
  }
  uint64_t now = (uint64_t)t * 1000, old = fg_load(tat);
  for (;;) {
    uint64_t v = read_word(old, c, now);
    fg_gcra_result r = look(c, n, &v, now);
    if (!r.allowed || n == 0 || fg_cas(tat, &old, v)) {
      return r;
    }
  }
}

void fg_gcra_undo(fg_word *tat, const fg_gcra_config *c, uint64_t n) {
  uint64_t old = fg_load(tat);
  while (c->rate != 0 && old != 0 && !fg_cas(tat, &old, fg_sub64(old, spacing(c, n)))) {
  }
}

fg_gcra_config fg_gcra_per_minute(uint32_t rate) {
  fg_gcra_config c = {rate, minute_us, rate >= 12 ? rate / 6 - 1 : 0};
  return c;
}
