/* Integer arithmetic shared by everything: saturation, 128-bit products, log2 and 2^-x tables, hash, stateless random numbers.
 * The same bytes on every machine and in every language. */
#ifndef FG_MATH_H
#define FG_MATH_H

#include "fg_base.h"

enum { FG_PPM = 1000000, FG_T_BITS = 37 };
#define FG_T_MAX ((INT64_C(1) << FG_T_BITS) - 1) /* the latest time a word can hold: 4.3 years of ms */
#define FG_Q32 (UINT64_C(1) << 32)

static inline uint32_t fg_clamp32(int64_t v) { return v < 0 ? 0 : v > (int64_t)UINT32_MAX ? UINT32_MAX : (uint32_t)v; }

/* A field of a packed word: bits [at, at + width). */
static inline uint64_t fg_bits(uint64_t w, unsigned at, unsigned width) { return (w >> at) & ((UINT64_C(1) << width) - 1); }
/* The value in that field's place, saturated at what it can hold. */
static inline uint64_t fg_put(uint64_t v, unsigned at, unsigned width) {
  uint64_t max = (UINT64_C(1) << width) - 1;
  return (v > max ? max : v) << at;
}

/* floor / ceil of a * b / d in 128 bits, saturated at UINT64_MAX; d 0 counts as 1. */
uint64_t fg_mul_div(uint64_t a, uint64_t b, uint64_t d);
uint64_t fg_mul_div_ceil(uint64_t a, uint64_t b, uint64_t d);
/* Compares a * b with c * d in 128 bits: -1, 0, 1. */
int fg_mul_cmp(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
/* Money of `tokens` at `price` nano-dollars a million tokens, rounded up, saturated at INT64_MAX; a price below 0 costs 0. */
int64_t fg_priced_nusd(uint64_t tokens, uint64_t price);
static inline int64_t fg_cost_nusd(uint64_t tokens, int64_t price) { return price <= 0 ? 0 : fg_priced_nusd(tokens, (uint64_t)price); }
/* amount * ppm / 1e6, rounded down. */
static inline uint64_t fg_ppm_of(uint64_t amount, uint32_t ppm) { return fg_mul_div(amount, ppm, FG_PPM); }

/* log2(x) in Q32 for x >= 1 (0 counts as 1); absolute error below 3e-6. */
uint64_t fg_log2_q32(uint64_t x);
/* -log2((h + 1) / 2^64) in Q32: 0 .. 64 << 32. */
uint64_t fg_neglog2_q32(uint64_t h);
/* 2^-x in Q32 for x in Q32; 0 from x = 33. */
uint64_t fg_exp2_neg_q32(uint64_t x);
uint64_t fg_isqrt(uint64_t x);

uint64_t fg_mix64(uint64_t x); /* a bijection that spreads every bit */
uint64_t fg_hash64(uint64_t seed, const void *bytes, uint64_t len);
/* The n-th random number of a stream: a pure function, so interleaving changes nothing. */
uint64_t fg_rand(uint64_t seed, uint64_t stream, uint64_t n);
/* A random number scaled to [0, bound); 0 when bound is 0. */
uint64_t fg_uniform(uint64_t rand, uint64_t bound);

#endif /* FG_MATH_H */
