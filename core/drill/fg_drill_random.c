/* Integer tables instead of libm: the same bytes from every compiler. Linear interpolation between 257 points errs by less than 2e-6. */
#include "fg_drill_random.h"

#include "fg_drill_tables.inc"

#define ONE ((int64_t)1 << 30)
#define LN2 ((int64_t)744261118)    /* ln 2 */
#define LOG2E ((int64_t)1549082005) /* 1 / ln 2 */

static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

uint64_t drill_next(uint64_t *state) {
  *state += UINT64_C(0x9e3779b97f4a7c15);
  return mix(*state);
}

uint64_t drill_hash(uint64_t seed, uint64_t a, uint64_t b) {
  uint64_t s = seed;
  s = drill_next(&s) ^ a;
  s = drill_next(&s) ^ b;
  return drill_next(&s);
}

uint64_t drill_stream(uint64_t seed, uint64_t purpose) { return drill_hash(seed, purpose, 0); }

int drill_chance(uint64_t bits, uint32_t ppm) { return (bits >> 32) * 1000000 >> 32 < ppm; }

/* A table of 257 points read at a 30-bit fraction. */
static int64_t between(const uint32_t *table, int64_t fraction) {
  const int64_t i = fraction >> 22, rest = fraction & ((1 << 22) - 1);
  return (int64_t)table[i] + (((int64_t)table[i + 1] - (int64_t)table[i]) * rest >> 22);
}

int64_t drill_ln(uint64_t x) {
  int octave = 63;
  while (x >> octave == 0) {
    octave--;
  }
  const uint64_t top = x << (63 - octave); /* 1.f as 63 bits of f */
  return octave * LN2 + between(ln_table, (int64_t)((top & (UINT64_MAX >> 1)) >> 33));
}

int64_t drill_exponential(uint64_t bits) {
  const int64_t v = 63 * LN2 - drill_ln((bits >> 1) + 1);
  return v > 0 ? v * 1000000 >> 30 : 0;
}

/* e^y as parts per million, y with 2^20 as 1, from e^-8 to e^8. */
static int64_t exp_ppm(int64_t y) {
  const int64_t limit = (int64_t)8 << 20;
  y = y > limit ? limit : y < -limit ? -limit : y;
  const int64_t twos = (y + ((int64_t)16 << 20)) * LOG2E >> 20; /* shifted above zero; 2^30 is one octave */
  const int64_t shift = 16 * LOG2E;                             /* what the 16 above became */
  int64_t at = twos - shift, octave = 0;
  while (at < 0) {
    at += ONE;
    octave--;
  }
  octave += at >> 30;
  const int64_t m = between(exp2_table, at & (ONE - 1)) * 1000000 >> 30;
  return octave >= 0 ? m << octave : m >> -octave;
}

static int64_t root(int64_t x) {
  int64_t r = 0;
  for (int64_t bit = (int64_t)1 << 31; bit != 0; bit >>= 1) {
    if ((r + bit) * (r + bit) <= x) {
      r += bit;
    }
  }
  return r;
}

int64_t drill_lognormal(uint64_t *state, uint32_t cv_ppm) {
  if (cv_ppm == 0) {
    return 1000000;
  }
  /* sigma^2 = ln(1 + cv^2); a normal deviate as the sum of twelve uniforms less 6, cut at +-6 by itself */
  const uint64_t million2 = UINT64_C(1000000000000);
  const int64_t sigma2 = (drill_ln(million2 + (uint64_t)cv_ppm * cv_ppm) - drill_ln(million2)) >> 10; /* 2^20 is 1 */
  const int64_t sigma = root(sigma2 << 20);
  int64_t z = -6 * 65535;
  for (int i = 0; i < 3; i++) {
    const uint64_t bits = drill_next(state);
    z += (int64_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
  }
  return exp_ppm(sigma * z / 65536 - sigma2 / 2);
}
