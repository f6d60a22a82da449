#include "fg_spend.h"
#include "fg_math.h"

/* ---- retries an hour: hour:24 n:40 ---- */

static uint64_t hour_of(int64_t t) { return (uint64_t)t / 3600000 & 0xffffff; }

static uint64_t this_hour(uint64_t w, int64_t t) { /* the word as it stands now */
  return w >> 40 == hour_of(t) ? w : hour_of(t) << 40;
}

int fg_retries_take(fg_word *w, uint32_t limit, int64_t t) {
  uint64_t old = fg_load(w);
  for (;;) {
    uint64_t v = this_hour(old, t), n = fg_bits(v, 0, 40);
    if (limit > 0 && n >= limit) {
      return 0;
    }
    if (fg_cas(w, &old, v + (n + 1 < UINT64_C(1) << 40))) {
      return 1;
    }
  }
}

void fg_retries_undo(fg_word *w, int64_t t) {
  uint64_t old = fg_load(w);
  while (old >> 40 == hour_of(t) && fg_bits(old, 0, 40) > 0 && !fg_cas(w, &old, old - 1)) {
  }
}

uint64_t fg_retries_get(const fg_word *w, int64_t t) { return fg_bits(this_hour(fg_load(w), t), 0, 40); }

/* ---- money a day: rolling:1 stamp:15 micro_usd:48 ---- */

enum { STAMP_MASK = 0x7fff, ROLLING = 0x8000 };

static uint32_t stamp_of(fg_day day) {
  if (day.unix_ms > 0) {
    return (uint32_t)(day.unix_ms / 86400000) & STAMP_MASK;
  }
  return ((uint32_t)(day.t / 3600000) & STAMP_MASK) | ROLLING;
}

/* The word as it stands now: the same day goes on, another begins at 0. */
static uint64_t today(uint64_t w, fg_day day) {
  uint32_t stored = (uint32_t)(w >> 48), now = stamp_of(day);
  uint64_t micro = fg_bits(w, 0, 48);
  if (micro == 0) {
    return (uint64_t)now << 48;
  }
  if ((stored & ROLLING) != (now & ROLLING)) {
    return (uint64_t)now << 48 | micro; /* a wall clock came or went: nothing is forgotten */
  }
  uint32_t ahead = (now - stored) & STAMP_MASK;
  uint32_t length = now & ROLLING ? 24 : 1;
  if (ahead < length || ahead == STAMP_MASK) { /* also when the clock went back by one unit */
    return w;
  }
  return (uint64_t)now << 48;
}

static uint64_t micro_up(int64_t nusd) { return nusd <= 0 ? 0 : (uint64_t)nusd / 1000 + ((uint64_t)nusd % 1000 != 0); }

static int over(uint64_t v, int64_t limit_nusd, uint64_t amount) {
  return limit_nusd >= 0 && fg_bits(v, 0, 48) + amount > (uint64_t)limit_nusd / 1000;
}

static uint64_t plus(uint64_t v, uint64_t amount) {
  uint64_t most = (UINT64_C(1) << 48) - 1, micro = fg_bits(v, 0, 48);
  return (v & ~most) | fg_min64(fg_add64(micro, amount), most);
}

static uint64_t minus(uint64_t v, uint64_t amount) {
  uint64_t most = (UINT64_C(1) << 48) - 1, micro = fg_bits(v, 0, 48);
  return (v & ~most) | fg_sub64(micro, amount);
}

static int hold(fg_word *w, int64_t limit_nusd, uint64_t amount, fg_day day) {
  uint64_t old = fg_load(w);
  for (;;) {
    uint64_t v = today(old, day);
    if (over(v, limit_nusd, amount)) {
      return 0;
    }
    if (amount == 0 || fg_cas(w, &old, plus(v, amount))) {
      return 1;
    }
  }
}

/* Was a hold of this stamp made in the day that the word counts? */
static int held_in(uint64_t v, uint32_t stamp) {
  const uint32_t stored = (uint32_t)(v >> 48);
  return (stored & ROLLING) == (stamp & ROLLING) && ((stamp - stored) & STAMP_MASK) < (stamp & ROLLING ? 24u : 1u);
}

static void settle(fg_word *w, uint64_t held, uint64_t actual, uint32_t stamp, fg_day day) {
  uint64_t old = fg_load(w);
  while (actual != held || fg_bits(old, 0, 48) != 0) { /* without prices there is nothing to settle */
    uint64_t v = today(old, day);
    if (actual > held) {
      v = plus(v, actual - held);
    } else if (held_in(v, stamp)) {
      v = minus(v, held - actual);
    }
    if (v == old || fg_cas(w, &old, v)) {
      return;
    }
  }
}

int fg_spend_hold(fg_word *first, int64_t first_limit_nusd, fg_word *second, int64_t second_limit_nusd, int64_t amount_nusd, fg_day day,
                  uint32_t *stamp) {
  uint64_t amount = micro_up(amount_nusd);
  *stamp = stamp_of(day);
  if (!hold(first, first_limit_nusd, amount, day)) {
    return 1;
  }
  if (second != NULL && !hold(second, second_limit_nusd, amount, day)) {
    settle(first, amount, 0, *stamp, day);
    return 2;
  }
  return 0;
}

void fg_spend_settle(fg_word *first, fg_word *second, int64_t held_nusd, int64_t actual_nusd, uint32_t stamp, fg_day day) {
  settle(first, micro_up(held_nusd), micro_up(actual_nusd), stamp, day);
  if (second != NULL) {
    settle(second, micro_up(held_nusd), micro_up(actual_nusd), stamp, day);
  }
}

int64_t fg_spend_get(const fg_word *w, fg_day day) { return (int64_t)fg_bits(today(fg_load(w), day), 0, 48) * 1000; }

int fg_spend_over(const fg_word *w, int64_t limit_nusd, int64_t amount_nusd, fg_day day) {
  return over(today(fg_load(w), day), limit_nusd, micro_up(amount_nusd));
}
