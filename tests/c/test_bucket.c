/* The retry bucket. */
#include "fg_bucket.h"
#include "fg_math.h"
#include "fg_test.h"

static const fg_bucket_config usual = {100, 10000, 3000, 1000};
enum { T = 3600000 }; /* a region's time begins an hour in */

int main(void) {
  fg_word w = {0};
  FG_EQ(fg_bucket_balance(&w, &usual, T), 3000);
  for (int i = 0; i < 3; i++) { /* B12 */
    FG_CHECK(fg_bucket_pay(&w, &usual, 1000, T));
  }
  FG_CHECK(!fg_bucket_pay(&w, &usual, 1000, T));
  FG_EQ(fg_bucket_wait_ms(&w, &usual, 1000, T), 60000);
  FG_CHECK(!fg_bucket_pay(&w, &usual, 1000, T + 59999));
  FG_EQ(fg_bucket_wait_ms(&w, &usual, 1000, T + 59999), 1);
  FG_CHECK(fg_bucket_pay(&w, &usual, 1000, T + 60000));
  FG_EQ(fg_bucket_balance(&w, &usual, T + 60000), 0);
  FG_EQ(fg_bucket_balance(&w, &usual, T + 600000), 3000); /* the trickle ends at the start balance */
  FG_EQ(fg_bucket_wait_ms(&w, &usual, 3001, T), UINT32_MAX);

  fg_word b = {0}; /* B13, clock frozen */
  (void)fg_bucket_pay(&b, &usual, 3000, T);
  for (int i = 0; i < 9; i++) {
    fg_bucket_credit(&b, &usual, T);
  }
  FG_CHECK(!fg_bucket_pay(&b, &usual, 1000, T));
  fg_bucket_credit(&b, &usual, T);
  FG_CHECK(fg_bucket_pay(&b, &usual, 1000, T));
  for (int i = 0; i < 1000; i++) {
    fg_bucket_credit(&b, &usual, T);
  }
  FG_EQ(fg_bucket_balance(&b, &usual, T), 10000);
  FG_EQ(fg_bucket_balance(&b, &usual, T + 86400000), 10000); /* above the start balance time gives nothing and takes nothing */
  (void)fg_bucket_pay(&b, &usual, 4000, T);
  fg_bucket_refund(&b, &usual, 2500, T);
  FG_EQ(fg_bucket_balance(&b, &usual, T), 8500);
  fg_bucket_refund(&b, &usual, 9000, T);
  FG_EQ(fg_bucket_balance(&b, &usual, T), 10000);

  /* Looking and paying often loses no fraction of the trickle. */
  fg_word f = {0};
  fg_bucket_config odd = {100, 10000, 10000, 777};
  (void)fg_bucket_pay(&f, &odd, 10000, T);
  for (int64_t t = T; t <= T + 600000; t += 7) {
    (void)fg_bucket_pay(&f, &odd, 0, t);
  }
  FG_EQ(fg_bucket_balance(&f, &odd, T + 600000), 7770);

  FG_CHECK(fg_bucket_room(25, 0) && fg_bucket_room(25, 1) && !fg_bucket_room(25, 2)); /* B14 */
  FG_CHECK(fg_bucket_room(5, 0) && !fg_bucket_room(5, 1));
  FG_CHECK(fg_bucket_room(0, 0) && !fg_bucket_room(0, 1));

  FG_EQ(fg_bucket_weight(0, 100), 1000);
  FG_EQ(fg_bucket_weight(100, 100), 1000);
  FG_EQ(fg_bucket_weight(149, 100), 1000);
  FG_EQ(fg_bucket_weight(150, 100), 2000);
  FG_EQ(fg_bucket_weight(1, 100), 1000);
  FG_EQ(fg_bucket_weight(INT64_MAX, 1), 10000);
  FG_EQ(fg_bucket_weight(5, 0), 1000);

  uint32_t wrong = 0; /* any word: at most the cap, usable, and time going back takes nothing */
  for (uint64_t i = 0; i < 200000; i++) {
    fg_word n = {fg_rand(6, 0, i)};
    int64_t t = (int64_t)fg_uniform(fg_rand(6, 1, i), (uint64_t)FG_T_MAX);
    wrong += fg_bucket_balance(&n, &usual, t) > 10000;
    fg_bucket_credit(&n, &usual, t);
    uint32_t now = fg_bucket_balance(&n, &usual, t);
    wrong += now < 100 || now > 10000 || fg_bucket_balance(&n, &usual, t > 5 ? t - 5 : 0) > 10000;
  }
  FG_EQ(wrong, 0);
  return fg_test_end("bucket");
}
