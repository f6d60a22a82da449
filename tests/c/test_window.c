/* Sliding counts. */
#include "fg_math.h"
#include "fg_test.h"
#include "fg_window.h"

enum { N = 10, S = 1000 };

int main(void) {
  fg_word w[N] = {{0}}; /* C18 */
  fg_window_add(w, N, S, 0, 0, 1);
  fg_window_add(w, N, S, 9999, 1, 0);
  fg_window_sums s = fg_window_sum(w, N, S, 0, 9999);
  FG_EQ(s.a, 1);
  FG_EQ(s.b, 1);
  s = fg_window_sum(w, N, S, 0, 10000);
  FG_EQ(s.a, 1);
  FG_EQ(s.b, 0);
  fg_word x[N] = {{0}};
  fg_window_add(x, N, S, 20500, 1, 0);
  fg_window_add(x, N, S, 10500, 0, 1); /* late: an older lap of the same bucket */
  s = fg_window_sum(x, N, S, 0, 20500);
  FG_EQ(s.a, 1);
  FG_EQ(s.b, 0);
  fg_window_add(x, N, S, 30500, 0, 1); /* the next lap replaces */
  s = fg_window_sum(x, N, S, 0, 30500);
  FG_EQ(s.a, 0);
  FG_EQ(s.b, 1);

  fg_word f[12] = {{0}}; /* closed at 7,000: what came before, in its bucket too, is left out */
  fg_window_add(f, 12, 5000, 4000, 0, 3);
  fg_window_add(f, 12, 5000, 6000, 0, 3);
  fg_window_add(f, 12, 5000, 10000, 2, 0);
  s = fg_window_sum(f, 12, 5000, 7000, 12000);
  FG_EQ(s.a, 2);
  FG_EQ(s.b, 0);
  s = fg_window_sum(f, 12, 5000, 0, 12000);
  FG_EQ(s.b, 6);
  s = fg_window_sum(f, 12, 5000, 0, 59999);
  FG_EQ(s.b, 6);
  s = fg_window_sum(f, 12, 5000, 0, 60000); /* the bucket of 4,000 has left */
  FG_EQ(s.b, 3);
  s = fg_window_sum(f, 12, 5000, 0, INT64_C(1) << 36); /* an idle gap costs nothing */
  FG_EQ(s.a + s.b, 0);

  fg_word b[1] = {{0}}; /* saturates */
  for (int i = 0; i < 10; i++) {
    fg_window_add(b, 1, 5000, 100, 30000, 7);
  }
  s = fg_window_sum(b, 1, 5000, 0, 100);
  FG_EQ(s.a, 65535);
  FG_EQ(s.b, 70);
  fg_window_sub(b, 1, 5000, 100, 70000, 60);
  s = fg_window_sum(b, 1, 5000, 0, 100);
  FG_EQ(s.a, 0);
  FG_EQ(s.b, 10);
  fg_window_sub(b, 1, 5000, 5100, 0, 10); /* another bucket now: nothing */
  FG_EQ(fg_window_sum(b, 1, 5000, 0, 100).b, 10);

  uint32_t wrong = 0; /* any word is usable */
  for (uint64_t i = 0; i < 100000; i++) {
    fg_word n[12];
    for (uint64_t k = 0; k < 12; k++) {
      n[k].v = fg_rand(i, 0, k);
    }
    int64_t t = (int64_t)fg_uniform(fg_rand(i, 1, 0), (uint64_t)FG_T_MAX);
    fg_window_add(n, 12, 5000, t, 1, 0);
    fg_window_add(n, 12, 5000, t + 60000, 1, 0);
    wrong += fg_window_sum(n, 12, 5000, 0, t + 60000).a == 0;
  }
  FG_EQ(wrong, 0);
  return fg_test_end("window");
}
