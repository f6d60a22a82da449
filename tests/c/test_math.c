/* Integer arithmetic: 128-bit products, logarithms, powers, hash, random numbers. */
#include <math.h>

#include "fg_math.h"
#include "fg_test.h"

__extension__ typedef unsigned __int128 u128;

static void products(void) {
  FG_EQ(fg_mul_div(7, 6, 5), 8);
  FG_EQ(fg_mul_div_ceil(7, 6, 5), 9);
  FG_EQ(fg_mul_div_ceil(10, 6, 5), 12);
  FG_CHECK(fg_mul_div(UINT64_MAX, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
  FG_CHECK(fg_mul_div(UINT64_MAX, UINT64_MAX, 1) == UINT64_MAX);
  FG_CHECK(fg_mul_div_ceil(UINT64_MAX, 2, 1) == UINT64_MAX);
  FG_EQ(fg_mul_div(5, 3, 0), 15);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < 400000; i++) {
    uint64_t a = fg_rand(1, 0, i) >> (i % 64), b = fg_rand(1, 1, i) >> (i / 64 % 64), d = (fg_rand(1, 2, i) >> (i / 7 % 64)) | 1;
    u128 q = (u128)a * b / d, r = (u128)a * b % d;
    uint64_t floor = q > UINT64_MAX ? UINT64_MAX : (uint64_t)q;
    uint64_t up = q + (r != 0) > UINT64_MAX ? UINT64_MAX : (uint64_t)(q + (r != 0));
    wrong += fg_mul_div(a, b, d) != floor;
    wrong += fg_mul_div_ceil(a, b, d) != up;
    uint64_t c = fg_rand(1, 3, i);
    wrong += fg_mul_cmp(a, b, c, d) != ((u128)a * b < (u128)c * d ? -1 : (u128)a * b > (u128)c * d);
  }
  FG_EQ(wrong, 0);
}

static void money(void) {
  FG_EQ(fg_cost_nusd(512, 2500000000), 1280000);   /* 2.5 USD a million */
  FG_EQ(fg_cost_nusd(1, 2800000), 3);              /* 2.8 nano-dollars a token, rounded up */
  FG_EQ(fg_cost_nusd(1000000, 2800000), 2800000);
  FG_EQ(fg_cost_nusd(0, 5), 0);
  FG_EQ(fg_cost_nusd(5, -1), 0);
  FG_CHECK(fg_cost_nusd(UINT64_MAX, INT64_MAX) == INT64_MAX);
}

static void logarithms(void) {
  double worst = 0;
  for (uint64_t i = 0; i < 2000000; i++) {
    uint64_t x = (fg_rand(2, 0, i) >> (i % 64)) | 1;
    double e = fabs((double)fg_log2_q32(x) / 4294967296.0 - log2((double)x));
    worst = e > worst ? e : worst;
  }
  FG_CHECK(worst < 3e-6);
  FG_EQ(fg_log2_q32(0), 0);
  FG_EQ(fg_log2_q32(1), 0);
  FG_CHECK(fg_log2_q32(UINT64_C(1) << 63) == UINT64_C(63) << 32);
  FG_EQ(fg_neglog2_q32(UINT64_MAX), 0);
  FG_CHECK(fg_neglog2_q32(0) == UINT64_C(64) << 32);
  FG_CHECK(fg_neglog2_q32(UINT64_MAX >> 1) == UINT64_C(1) << 32);
  worst = 0;
  for (uint64_t i = 0; i < 1000000; i++) {
    uint64_t x = fg_uniform(fg_rand(3, 0, i), UINT64_C(20) << 32);
    double want = exp2(-(double)x / 4294967296.0);
    double e = fabs((double)fg_exp2_neg_q32(x) / 4294967296.0 - want);
    worst = e > worst ? e : worst;
  }
  FG_CHECK(worst < 1.6e-5);
  FG_CHECK(fg_exp2_neg_q32(0) == FG_Q32);
  FG_CHECK(fg_exp2_neg_q32(UINT64_C(1) << 32) == FG_Q32 / 2);
  FG_EQ(fg_exp2_neg_q32(UINT64_C(33) << 32), 0);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < 100000; i++) {
    uint64_t x = fg_rand(4, 0, i) >> (i % 64), s = fg_isqrt(x);
    wrong += (u128)s * s > x || (u128)(s + 1) * (s + 1) <= x;
  }
  FG_EQ(wrong, 0);
}

static void randomness(void) {
  FG_CHECK(fg_hash64(0, "abc", 3) != fg_hash64(0, "abd", 3));
  FG_CHECK(fg_hash64(0, "abc", 3) != fg_hash64(1, "abc", 3));
  FG_CHECK(fg_hash64(0, "a\0", 2) != fg_hash64(0, "a", 1));
  FG_CHECK(fg_hash64(0, "", 0) == fg_hash64(0, NULL, 0));
  /* Known answers: other machines and languages give the same. */
  FG_CHECK(fg_mix64(1) == UINT64_C(0x5692161d100b05e5));
  FG_EQ(fg_uniform(0, 10), 0);
  FG_EQ(fg_uniform(UINT64_MAX, 10), 9);
  FG_EQ(fg_uniform(UINT64_MAX, 0), 0);
  uint32_t cell[16] = {0}, bits[64] = {0};
  for (uint64_t i = 0; i < 160000; i++) {
    uint64_t r = fg_rand(7, 9, i);
    cell[fg_uniform(r, 16)]++;
    for (int b = 0; b < 64; b++) {
      bits[b] += (uint32_t)(r >> b & 1);
    }
  }
  for (int i = 0; i < 16; i++) {
    FG_CHECK(cell[i] > 9500 && cell[i] < 10500);
  }
  for (int b = 0; b < 64; b++) {
    FG_CHECK(bits[b] > 79000 && bits[b] < 81000);
  }
}

int main(void) {
  products();
  money();
  logarithms();
  randomness();
  return fg_test_end("math");
}
