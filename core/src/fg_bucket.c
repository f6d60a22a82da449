#include "fg_bucket.h"
#include "fg_math.h"

enum { BALANCE_BITS = 27, BALANCE_MAX = (1 << BALANCE_BITS) - 1, MINUTE_MS = 60000 };

typedef struct bits { uint64_t balance; int64_t last; } bits;

/* What the trickle has given since t = 0, on a grid of whole milli-tokens: the difference of two readings carries every fraction. */
static uint64_t trickled(uint32_t trickle, int64_t t) {
  uint64_t minutes = (uint64_t)t / MINUTE_MS, rest = (uint64_t)t % MINUTE_MS;
  return minutes * trickle + rest * trickle / MINUTE_MS;
}

static uint64_t most(const fg_bucket_config *c) { return fg_min64(c->cap_milli, BALANCE_MAX); }

static bits read_word(uint64_t w, const fg_bucket_config *c, int64_t t) {
  bits s = {fg_bits(w, FG_T_BITS, BALANCE_BITS), (int64_t)fg_bits(w, 0, FG_T_BITS)};
  uint64_t start = fg_min64(c->start_milli, most(c));
  if (s.last == 0 || s.last - t > 3600000) { /* fresh, or nonsense */
    s.balance = start;
  } else {
    s.balance = fg_min64(s.balance, most(c));
    if (t > s.last && s.balance < start) {
      s.balance = fg_min64(s.balance + trickled(c->trickle_milli, t) - trickled(c->trickle_milli, s.last), start);
    }
    t = fg_maxs(t, s.last);
  }
  s.last = fg_maxs(t, 1); /* 0 means fresh */
  return s;
}

static uint64_t pack(bits s) { return fg_put(s.balance, FG_T_BITS, BALANCE_BITS) | fg_put((uint64_t)s.last, 0, FG_T_BITS); }

uint32_t fg_bucket_balance(const fg_word *w, const fg_bucket_config *c, int64_t t) { return (uint32_t)read_word(fg_load(w), c, t).balance; }

static void give(fg_word *w, const fg_bucket_config *c, uint32_t milli, int64_t t) {
  uint64_t old = fg_load(w);
  for (;;) {
    bits s = read_word(old, c, t);
    s.balance = fg_min64(s.balance + milli, most(c));
    uint64_t new = pack(s);
    if (new == old || fg_cas(w, &old, new)) {
      return;
    }
  }
}

void fg_bucket_credit(fg_word *w, const fg_bucket_config *c, int64_t t) { give(w, c, c->credit_milli, t); }
void fg_bucket_refund(fg_word *w, const fg_bucket_config *c, uint32_t cost_milli, int64_t t) { give(w, c, cost_milli, t); }

int fg_bucket_pay(fg_word *w, const fg_bucket_config *c, uint32_t cost_milli, int64_t t) {
  uint64_t old = fg_load(w);
  for (;;) {
    bits s = read_word(old, c, t);
    if (s.balance < cost_milli) {
      return 0;
    }
    s.balance -= cost_milli;
    uint64_t new = pack(s);
    if (new == old || fg_cas(w, &old, new)) {
      return 1;
    }
  }
}

uint32_t fg_bucket_wait_ms(const fg_word *w, const fg_bucket_config *c, uint32_t cost_milli, int64_t t) {
  bits s = read_word(fg_load(w), c, t);
  if (s.balance >= cost_milli) {
    return 0;
  }
  if (cost_milli > fg_min64(c->start_milli, most(c)) || c->trickle_milli == 0) {
    return UINT32_MAX;
  }
  /* The first moment the grid has moved on by what is missing. */
  uint64_t target = trickled(c->trickle_milli, s.last) + cost_milli - s.balance;
  return fg_clamp32((int64_t)fg_mul_div_ceil(target, MINUTE_MS, c->trickle_milli) - t);
}

int fg_bucket_room(uint32_t active, uint32_t retries) { return retries < fg_max32(1, active / 10); }

uint32_t fg_bucket_weight(int64_t cost_nusd, int64_t mean_nusd) {
  if (cost_nusd <= 0 || mean_nusd <= 0) {
    return 1000;
  }
  uint64_t weight = fg_mul_div(1, (uint64_t)cost_nusd + (uint64_t)mean_nusd / 2, (uint64_t)mean_nusd);
  return 1000 * (uint32_t)fg_min64(fg_max64(weight, 1), 10);
}
