/* Rate limits. */
#include "fg_gcra.h"
#include "fg_math.h"
#include "fg_test.h"

static const fg_gcra_config usual = {1, 1000000, 4}; /* 1/s, burst 4: a limit of 5 */

static void g01(void) {
  static const struct { int64_t t; uint64_t n; uint32_t limited, retry; } rows[] = {
      {0, 6, 0, 0},    {0, 1, 1, 2000}, {2000, 1, 0, 0}, {2000, 1, 1, 1000}, /* six at once when nothing is owed */
      {9000, 1, 0, 0}, {9000, 1, 0, 0}, {9000, 1, 0, 0}, {9000, 1, 0, 0},    {9000, 1, 0, 0},     {9000, 1, 1, 1000},
      {12000, 1, 0, 0}, {18500, 0, 0, 0}, {18500, 2, 0, 0}, {18500, 5, 1, 2000},
  };
  fg_word w = {0};
  for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    fg_gcra_result p = fg_gcra_peek(&w, &usual, rows[i].n, rows[i].t);
    fg_gcra_result r = fg_gcra_take(&w, &usual, rows[i].n, rows[i].t);
    FG_EQ(r.allowed, !rows[i].limited);
    FG_EQ(r.retry_ms, rows[i].retry);
    FG_EQ(p.allowed, r.allowed);
    FG_EQ(p.retry_ms, r.retry_ms);
  }
}

int main(void) {
  g01();
  fg_word w = {0}; /* G02 */
  (void)fg_gcra_take(&w, &usual, 5, 0);
  FG_EQ(fg_gcra_take(&w, &usual, 1, 0).allowed, 0);
  FG_EQ(fg_gcra_take(&w, &usual, 1, 0).retry_ms, 1000);
  FG_EQ(fg_gcra_take(&w, &usual, 1, 1000).allowed, 1);
  fg_gcra_undo(&w, &usual, 1);
  FG_EQ(fg_gcra_take(&w, &usual, 1, 1000).allowed, 1);

  fg_gcra_config minute = fg_gcra_per_minute(600); /* 100 at once, then 10 a second */
  fg_word m = {0};
  uint32_t n = 0;
  while (fg_gcra_take(&m, &minute, 1, 0).allowed) {
    n++;
  }
  FG_EQ(n, 100);
  FG_EQ(fg_gcra_peek(&m, &minute, 1, 0).retry_ms, 100);
  for (int64_t t = 0; t <= 60000; t += 10) {
    n += fg_gcra_take(&m, &minute, 1, t).allowed;
  }
  FG_EQ(n, 700);

  fg_gcra_config tokens = fg_gcra_per_minute(90000); /* a request larger than the burst goes when nothing is owed */
  fg_word k = {0};
  FG_EQ(fg_gcra_take(&k, &tokens, 60000, 0).allowed, 1);
  fg_gcra_result again = fg_gcra_take(&k, &tokens, 60000, 0);
  FG_EQ(again.allowed, 0);
  FG_EQ(again.retry_ms, 40000);
  FG_EQ(fg_gcra_take(&k, &tokens, 60000, 39999).allowed, 0);
  FG_EQ(fg_gcra_take(&k, &tokens, 60000, 40000).allowed, 1);

  fg_gcra_config none = {0, 1, 0};
  FG_EQ(fg_gcra_take(&k, &none, UINT64_MAX, 0).allowed, 1);
  fg_gcra_config one = fg_gcra_per_minute(1);
  fg_word o = {0};
  FG_EQ(fg_gcra_take(&o, &one, 1, 0).allowed, 1);
  FG_EQ(fg_gcra_take(&o, &one, 1, 0).retry_ms, 60000);
  FG_EQ(fg_gcra_take(&o, &one, UINT64_MAX, FG_T_MAX).allowed, 1); /* absurd sizes saturate */

  uint32_t stuck = 0; /* any word: usable again within a bounded time */
  for (uint64_t i = 0; i < 100000; i++) {
    fg_word x = {fg_rand(8, 0, i) >> (i % 40)};
    int64_t t = (int64_t)fg_uniform(fg_rand(8, 1, i), (uint64_t)FG_T_MAX / 2);
    (void)fg_gcra_take(&x, &usual, 1, t);
    stuck += !fg_gcra_take(&x, &usual, 1, t + INT64_C(26) * 3600000).allowed;
  }
  FG_EQ(stuck, 0);
  return fg_test_end("gcra");
}
