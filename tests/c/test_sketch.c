/* Learned times: cells, quantiles, the fit over prompt octaves, output speed. */
#include "fg_math.h"
#include "fg_sketch.h"
#include "fg_test.h"

enum { WORDS = 80 }; /* 320 cells: to 10 million */

static void cells(void) {
  uint64_t v[] = {1, 15, 16, 31, 32, 1000, 3000, 60000, 600000}; /* Q01 */
  uint32_t index[] = {1, 15, 16, 31, 32, 111, 135, 205, 258};
  for (int i = 0; i < 9; i++) {
    FG_EQ(fg_sketch_index(v[i]), index[i]);
  }
  uint32_t wrong = 0;
  for (uint64_t x = 0; x <= 700000; x++) { /* Q02 */
    uint32_t i = fg_sketch_index(x);
    uint64_t low = fg_sketch_low(i), mid = fg_sketch_mid(i), off = mid > x ? mid - x : x - mid;
    wrong += x < low || x >= low + fg_sketch_width(i) || (x >= 16 && off * 32 > x) || (x < 16 && off != 0);
    wrong += x > 0 && i < fg_sketch_index(x - 1);
  }
  FG_EQ(wrong, 0);
  fg_word w[WORDS] = {{0}}; /* Q03 */
  FG_EQ(fg_sketch_rank(w, WORDS, 500000), UINT32_MAX);
  for (uint64_t x = 1; x <= 1000; x++) {
    fg_sketch_add(w, WORDS, fg_sketch_index(x));
  }
  FG_EQ(fg_sketch_count(w, WORDS), 1000);
  uint32_t q50 = fg_sketch_rank(w, WORDS, 500000), q99 = fg_sketch_rank(w, WORDS, 990000);
  FG_EQ(fg_sketch_low(q50), 496);
  FG_EQ(fg_sketch_low(q50) + fg_sketch_width(q50), 512);
  FG_EQ(fg_sketch_low(q99), 960);
  FG_EQ(fg_sketch_low(q99) + fg_sketch_width(q99), 992);
  FG_EQ(fg_sketch_rank(w, WORDS, 0), 1);
  FG_EQ(fg_sketch_rank(w, WORDS, 2000000), fg_sketch_index(1000));
  fg_sketch_halve(w, WORDS);
  FG_CHECK(fg_sketch_count(w, WORDS) > 450 && fg_sketch_count(w, WORDS) <= 500);
  fg_word a[WORDS] = {{0}}, b[WORDS] = {{0}}, both[WORDS] = {{0}}; /* Q04: merging is adding */
  for (uint64_t i = 0; i < 3000; i++) {
    uint32_t c = fg_sketch_index(fg_uniform(fg_rand(1, 0, i), 60000));
    fg_sketch_add(i % 3 ? a : b, WORDS, c);
    fg_sketch_add(both, WORDS, c);
  }
  wrong = 0;
  for (int i = 0; i < WORDS; i++) {
    wrong += a[i].v + b[i].v != both[i].v;
  }
  FG_EQ(wrong, 0);
  fg_word full[1] = {{0x0001ffff00000000}}; /* a full counter spills into no neighbour */
  fg_sketch_add(full, 1, 2);
  FG_CHECK(full[0].v == UINT64_C(0x0001ffff00000000));
  fg_sketch_add(full, 1, 99); /* past the end: the last cell */
  FG_CHECK(full[0].v == UINT64_C(0x0002ffff00000000));
}

/* First token = 144 ms + 0.5 ms a prompt token, noise of +-20 %. */
static uint32_t truth(uint32_t prompt, uint64_t i) {
  uint64_t mean = 144 + prompt / 2;
  return (uint32_t)(mean * (800 + fg_uniform(fg_rand(3, 0, i), 401)) / 1000);
}

static uint32_t prompt_of(uint64_t i) { return (uint32_t)(UINT64_C(64) << fg_uniform(fg_rand(4, 0, i), 9)); }

static void near(uint32_t got, uint32_t want, uint32_t percent) {
  if (!(got * 100 >= want * (100 - percent) && got * 100 <= want * (100 + percent))) {
    FG_EQ(got, want);
  } else {
    FG_CHECK(1);
  }
}

static void fit(void) {
  fg_learn l;
  memset(&l, 0, sizeof(l));
  FG_EQ(fg_learn_predict(&l, 100), 0);
  fg_quantile q = fg_learn_quantile(&l, 100, 500000);
  FG_EQ(q.ms, 0);
  FG_EQ(q.samples, 0);
  fg_learn_record(&l, 100, 400);
  FG_EQ(fg_learn_predict(&l, 100), 400);
  FG_EQ(fg_learn_quantile(&l, 100, 500000).samples, 1);
  memset(&l, 0, sizeof(l));
  for (uint64_t i = 0; i < 600; i++) {
    uint32_t p = prompt_of(i);
    fg_learn_record(&l, p, truth(p, i));
  }
  uint32_t prompts[] = {64, 512, 4096, 16384};
  for (int i = 0; i < 4; i++) {
    near(fg_learn_predict(&l, prompts[i]), 144 + prompts[i] / 2, 10);
  }
  q = fg_learn_quantile(&l, 4096, 990000);
  FG_EQ(q.samples, 600);
  near(q.ms, 2192 * 12 / 10, 20);
  near(fg_learn_quantile(&l, 4096, 500000).ms, 2192, 12);
  for (uint64_t i = 0; i < 300; i++) { /* the provider becomes three times slower: followed within 200 samples */
    uint32_t p = prompt_of(i + 9000);
    fg_learn_record(&l, p, 3 * truth(p, i + 9000));
  }
  near(fg_learn_predict(&l, 4096), 3 * 2192, 15);
  for (uint64_t i = 0; i < 400; i++) {
    fg_learn_record(&l, 1000, 600);
  }
  FG_CHECK(fg_learn_samples(&l) > FG_SKETCH_HALVE);
  (void)fg_learn_quantile(&l, 1000, 500000);
  FG_CHECK(fg_learn_samples(&l) <= 650); /* halved by whoever asked */

  fg_learn one; /* one prompt size only: no slope, longer prompts are not extrapolated to nonsense */
  memset(&one, 0, sizeof(one));
  for (int i = 0; i < 60; i++) {
    fg_learn_record(&one, 900, 500);
  }
  near(fg_learn_quantile(&one, 900, 990000).ms, 500, 4);
  near(fg_learn_predict(&one, 100000), 500, 4);
  fg_learn few; /* two sizes close together: no wild slope from noise */
  memset(&few, 0, sizeof(few));
  for (int i = 0; i < 10; i++) {
    fg_learn_record(&few, i % 2 ? 500 : 520, i % 2 ? 600 : 700);
  }
  FG_CHECK(fg_learn_predict(&few, 32000) < 60000);
  fg_learn down; /* longer prompts looked faster: taken as flat */
  memset(&down, 0, sizeof(down));
  for (int i = 0; i < 60; i++) {
    fg_learn_record(&down, i % 2 ? 100 : 8000, i % 2 ? 3000 : 300);
  }
  FG_CHECK(fg_learn_predict(&down, 100) <= fg_learn_predict(&down, 8000));
  fg_learn big; /* extremes saturate */
  memset(&big, 0, sizeof(big));
  fg_learn_record(&big, UINT32_MAX, UINT32_MAX);
  fg_learn_record(&big, 0, 0);
  fg_learn_record(&big, 0, UINT32_MAX);
  FG_CHECK(fg_learn_predict(&big, UINT32_MAX) <= 1 << 20);
}

static void speed(void) {
  fg_learn l;
  memset(&l, 0, sizeof(l));
  FG_EQ(fg_learn_rate_milli(&l), 0);
  FG_EQ(fg_learn_total_ms(&l, 256), 256000 / 12 + 1 + 10000); /* 12 tokens a second, and ten seconds */
  FG_EQ(fg_learn_total_ms(&l, UINT32_MAX), UINT32_MAX);
  fg_learn_rate(&l, 0, 5);
  fg_learn_rate(&l, 5, 0);
  FG_EQ(fg_learn_rate_milli(&l), 0);
  for (int i = 0; i < 20; i++) {
    fg_learn_rate(&l, 256, 3600);
  }
  near(fg_learn_rate_milli(&l), 71111, 1);
  near(fg_learn_total_ms(&l, 256), 13600, 2);
  for (uint64_t i = 0; i < 200; i++) {
    fg_learn_rate(&l, 256, 3600 * (uint32_t)(700 + fg_uniform(fg_rand(9, 0, i), 601)) / 1000);
  }
  uint32_t slow = fg_learn_total_ms(&l, 2560); /* later than the mean, not absurdly */
  FG_CHECK(slow > 46500 && slow < 90000);
}

static void noise(void) {
  uint32_t wrong = 0;
  for (uint64_t i = 0; i < 20000; i++) {
    fg_learn l;
    for (uint64_t k = 0; k < sizeof(l) / 8; k++) {
      ((fg_word *)(void *)&l)[k].v = fg_rand(i, 0, k) >> (i % 50);
    }
    (void)fg_learn_quantile(&l, 1000, 990000);
    (void)fg_learn_total_ms(&l, 1000);
    for (int k = 0; k < 3; k++) {
      fg_learn_record(&l, 1000, 500);
    }
    wrong += fg_learn_predict(&l, 1000) == 0;
  }
  FG_EQ(wrong, 0);
}

int main(void) {
  cells();
  fit();
  speed();
  noise();
  return fg_test_end("sketch");
}
