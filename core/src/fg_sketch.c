#include "fg_sketch.h"
#include "fg_math.h"

/* ---- cells ---- */

uint32_t fg_sketch_index(uint64_t v) {
  if (v < 16) {
    return (uint32_t)v;
  }
  uint32_t e = 63 - (uint32_t)__builtin_clzll(v);
  return (e - 4) * 16 + (uint32_t)(v >> (e - 4));
}

static uint32_t octave(uint32_t index) { return index < 32 ? 0 : index / 16 - 1; }
uint64_t fg_sketch_low(uint32_t index) { return (uint64_t)(index - octave(index) * 16) << octave(index); }
uint64_t fg_sketch_width(uint32_t index) { return UINT64_C(1) << octave(index); }
uint64_t fg_sketch_mid(uint32_t index) { return fg_sketch_low(index) + fg_sketch_width(index) / 2; }

void fg_sketch_add(fg_word *w, uint32_t n, uint32_t index) {
  index = fg_min32(index, 4 * n - 1);
  w += index / 4;
  unsigned at = 16 * (index % 4);
  uint64_t old = fg_load_relaxed(w);
  while (fg_bits(old, at, 16) < UINT16_MAX && !fg_cas(w, &old, old + (UINT64_C(1) << at))) {
  }
}

/* The four counters of a word added to two sums of 32 bits. */
static uint64_t lanes(uint64_t v) { return (v & UINT64_C(0x0000ffff0000ffff)) + (v >> 16 & UINT64_C(0x0000ffff0000ffff)); }

uint32_t fg_sketch_count(const fg_word *w, uint32_t n) {
  const fg_word *end = w + n;
  uint64_t sum = 0;
  for (; end - w >= 4; w += 4) { /* times lie close together: most words are 0 */
    uint64_t a = fg_load_relaxed(w), b = fg_load_relaxed(w + 1), c = fg_load_relaxed(w + 2), d = fg_load_relaxed(w + 3);
    if ((a | b | c | d) != 0) {
      sum += lanes(a) + lanes(b) + lanes(c) + lanes(d);
    }
  }
  for (; w < end; w++) {
    sum += lanes(fg_load_relaxed(w));
  }
  return (uint32_t)sum + (uint32_t)(sum >> 32);
}

/* The cell of rank ceil(q x count), count > 0. */
static uint32_t ranked(const fg_word *w, uint32_t n, uint32_t count, uint32_t q_ppm) {
  uint64_t rank = fg_max64(((uint64_t)count * fg_min32(q_ppm, FG_PPM) + FG_PPM - 1) / FG_PPM, 1);
  uint64_t seen = 0;
  uint32_t last = 0; /* counters may shrink while we read: then the last cell that holds anything */
  for (uint32_t i = 0; i < n; i++) {
    uint64_t v = fg_load_relaxed(&w[i]);
    if (v == 0) {
      continue;
    }
    for (uint32_t lane = 0; lane < 4; lane++) {
      uint64_t c = fg_bits(v, 16 * lane, 16);
      if (c > 0) {
        last = 4 * i + lane;
        seen += c;
        if (seen >= rank) {
          return last;
        }
      }
    }
  }
  return last;
}

uint32_t fg_sketch_rank(const fg_word *w, uint32_t n, uint32_t q_ppm) {
  uint32_t count = fg_sketch_count(w, n);
  return count == 0 ? UINT32_MAX : ranked(w, n, count, q_ppm);
}

void fg_sketch_halve(fg_word *w, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    uint64_t old = fg_load_relaxed(&w[i]);
    while (old != 0 && !fg_cas(&w[i], &old, old >> 1 & UINT64_C(0x7fff7fff7fff7fff))) {
    }
  }
}

/* ---- fit: eight bins of prompt octaves ---- */

enum { N_AT = 59, N_MAX = 16, STAMP_BITS = 14, TOKENS_BITS = 22, MS_BITS = 23, HALF_LIFE = 69, RATIO_ONE = 64 };

typedef struct bin { uint32_t n, stamp; int64_t tokens_q2, ms_q3; } bin;

static bin unpack(uint64_t w) {
  bin b = {(uint32_t)fg_bits(w, N_AT, 5), (uint32_t)fg_bits(w, 45, STAMP_BITS), (int64_t)fg_bits(w, 23, TOKENS_BITS), (int64_t)fg_bits(w, 0, MS_BITS)};
  b.n = fg_min32(b.n, N_MAX);
  return b;
}

static uint64_t pack(bin b) {
  return fg_put(b.n, N_AT, 5) | fg_put(b.stamp & ((1u << STAMP_BITS) - 1), 45, STAMP_BITS) | fg_put((uint64_t)b.tokens_q2, 23, TOKENS_BITS) |
         fg_put((uint64_t)b.ms_q3, 0, MS_BITS);
}

static uint32_t bin_of(uint32_t tokens) { /* below 512, an octave each, from 32k */
  if (tokens < 512) {
    return 0;
  }
  return fg_min32(31 - (uint32_t)__builtin_clz(tokens) - 8, FG_FIT_BINS - 1);
}

static int64_t move(int64_t mean, int64_t to, int64_t n) { /* mean + (to - mean) / n, rounded to nearest */
  int64_t d = to - mean;
  return mean + (d >= 0 ? d + n / 2 : d - n / 2) / n;
}

static uint32_t rounded(int64_t ms_q3) { return (uint32_t)fg_mins((ms_q3 + 4) >> 3, (1 << 20) - 1); }

static int64_t cap(uint64_t v, unsigned bits) { return (int64_t)fg_min64(v, (UINT64_C(1) << bits) - 1); }

uint32_t fg_learn_predict(const fg_learn *l, uint32_t prompt_tokens) {
  uint64_t now = fg_load_relaxed(&l->seen);
  uint64_t word[FG_FIT_BINS];
  int64_t x[FG_FIT_BINS], y[FG_FIT_BINS], weight[FG_FIT_BINS], least = INT64_MAX;
  uint32_t used = 0;
  for (uint32_t i = 0; i < FG_FIT_BINS; i++) {
    word[used] = fg_load_relaxed(&l->fit[i]);
    used += word[used] >> N_AT != 0;
  }
  if (used <= 1) { /* one octave of prompts has no slope: its mean, as below */
    return used == 0 ? 0 : rounded(fg_maxs(unpack(word[0]).ms_q3, 8));
  }
  for (uint32_t i = 0; i < used; i++) {
    bin b = unpack(word[i]);
    uint64_t age = (now - b.stamp) & ((1u << STAMP_BITS) - 1);
    weight[i] = (int64_t)((uint64_t)(b.n << 12) * fg_exp2_neg_q32((age << 32) / HALF_LIFE) >> 32); /* at most 2^16 */
    x[i] = b.tokens_q2 >> 2;
    y[i] = fg_maxs(b.ms_q3, 8);
    least = fg_mins(least, y[i]);
  }
  int64_t sum = 0, sum_x = 0, sum_y = 0;
  for (uint32_t i = 0; i < used; i++) { /* times spread in proportion to their size: a bin weighs by 1 / ms^2 */
    int64_t near_q16 = (least << 16) / y[i];
    weight[i] = fg_maxs(weight[i] * (near_q16 * near_q16 >> 16) >> 16, 1);
    sum += weight[i];
    sum_x += weight[i] * x[i];
    sum_y += weight[i] * y[i];
  }
  int64_t mean_x = sum_x / sum, mean_y = sum_y / sum, sxy = 0;
  int64_t sxx = sum * (mean_x / 8) * (mean_x / 8); /* prompts of nearly one size say little about the slope */
  for (uint32_t i = 0; i < used; i++) {
    sxx += weight[i] * (x[i] - mean_x) * (x[i] - mean_x); /* below 2^59 */
    sxy += weight[i] * (x[i] - mean_x) * (y[i] - mean_y); /* below 2^62 */
  }
  int64_t at = mean_y;
  if (sxy > 0) { /* a longer prompt is never faster */
    while (sxy >= INT64_C(1) << 43) {
      sxy >>= 1;
      sxx >>= 1;
    }
    int64_t slope_q20 = sxx > 0 ? fg_mins((sxy << 20) / sxx, INT64_C(1) << 42) : 0;
    at += slope_q20 * (cap(prompt_tokens, TOKENS_BITS - 2) - mean_x) / (1 << 20);
  }
  return rounded(fg_maxs(at, fg_maxs(mean_y / 16, 8)));
}

void fg_learn_record(fg_learn *l, uint32_t prompt_tokens, uint32_t actual_ms) {
  uint32_t predicted = fg_learn_predict(l, prompt_tokens);
  uint64_t ratio = predicted == 0 ? RATIO_ONE : ((uint64_t)actual_ms * RATIO_ONE + predicted / 2) / predicted;
  fg_sketch_add(l->ratio, FG_RATIO_WORDS, fg_sketch_index(ratio)); /* against the old fit, then the fit */
  uint64_t stamp = fg_fetch_add(&l->seen, 1) + 1;
  fg_word *w = &l->fit[bin_of(prompt_tokens)];
  int64_t tokens = cap((uint64_t)prompt_tokens << 2, TOKENS_BITS), ms = cap((uint64_t)actual_ms << 3, MS_BITS);
  uint64_t old = fg_load_relaxed(w);
  for (;;) {
    bin b = unpack(old);
    b.n = fg_min32(b.n + 1, N_MAX);
    b.stamp = (uint32_t)(stamp & ((1u << STAMP_BITS) - 1));
    b.tokens_q2 = move(b.tokens_q2, tokens, b.n);
    b.ms_q3 = move(b.ms_q3, ms, b.n);
    if (fg_cas(w, &old, pack(b))) {
      return;
    }
  }
}

uint32_t fg_learn_samples(const fg_learn *l) { return fg_sketch_count(l->ratio, FG_RATIO_WORDS); }

fg_quantile fg_learn_quantile(fg_learn *l, uint32_t prompt_tokens, uint32_t q_ppm) {
  fg_quantile q = {0, 0};
  if (fg_load_relaxed(&l->seen) == 0) {
    return q;
  }
  q.samples = fg_learn_samples(l);
  uint32_t predicted = q.samples > 0 ? fg_learn_predict(l, prompt_tokens) : 0;
  if (predicted == 0) {
    return q;
  }
  uint32_t cell = ranked(l->ratio, FG_RATIO_WORDS, q.samples, q_ppm);
  q.ms = fg_sat32(fg_max64(((uint64_t)predicted * fg_sketch_mid(cell) + RATIO_ONE / 2) / RATIO_ONE, 1));
  if (q.samples > FG_SKETCH_HALVE) {
    fg_sketch_halve(l->ratio, FG_RATIO_WORDS); /* two readers may both: harmless */
  }
  return q;
}

/* ---- output speed ---- */

enum { RATE_PRIOR = 12000, RATE_GAIN = 32, RATE_MEAN_AFTER = 10, RATE_SLOW_AFTER = 50, TOTAL_EXTRA_MS = 10000 };

typedef struct speed { uint32_t n; int64_t mean, deviation; } speed;

static speed read_speed(uint64_t w) {
  speed s = {(uint32_t)fg_bits(w, 56, 8), (int64_t)fg_bits(w, 28, 28), (int64_t)fg_bits(w, 0, 28)};
  return s;
}

void fg_learn_rate(fg_learn *l, uint32_t output_tokens, uint32_t ms) {
  if (output_tokens == 0 || ms == 0) {
    return;
  }
  int64_t rate = cap((uint64_t)output_tokens * 1000000 / ms, 28);
  uint64_t old = fg_load_relaxed(&l->rate);
  for (;;) {
    speed s = read_speed(old);
    int64_t off = s.n == 0 ? 0 : rate > s.mean ? rate - s.mean : s.mean - rate;
    s.n = fg_min32(s.n + 1, 255);
    int64_t n = fg_min32(s.n, RATE_GAIN);
    s.mean = move(s.mean, rate, n);
    s.deviation = move(s.deviation, off, n);
    if (fg_cas(&l->rate, &old, fg_put(s.n, 56, 8) | fg_put((uint64_t)s.mean, 28, 28) | fg_put((uint64_t)s.deviation, 0, 28))) {
      return;
    }
  }
}

uint32_t fg_learn_rate_milli(const fg_learn *l) {
  speed s = read_speed(fg_load_relaxed(&l->rate));
  return s.n >= RATE_MEAN_AFTER ? (uint32_t)s.mean : 0;
}

uint32_t fg_learn_total_ms(const fg_learn *l, uint32_t output_tokens) {
  speed s = read_speed(fg_load_relaxed(&l->rate));
  int64_t rate = s.n >= RATE_MEAN_AFTER ? s.mean : RATE_PRIOR;
  if (s.n >= RATE_SLOW_AFTER) { /* about the slowest of twenty: 1.645 sigma, sigma = 1.2533 mean deviations */
    rate = fg_maxs(s.mean - s.deviation * 206 / 100, s.mean / 4);
  }
  return fg_sat32(fg_add64(fg_mul_div_ceil(output_tokens, 1000000, (uint64_t)fg_maxs(rate, 1)), TOTAL_EXTRA_MS));
}
