/* Waits. */
#include "fg_backoff.h"
#include "fg_math.h"
#include "fg_test.h"

int main(void) {
  uint32_t bound[] = {500, 1000, 2000, 4000, 8000, 16000, 20000, 20000}; /* J01 */
  for (uint32_t i = 0; i < 8; i++) {
    FG_EQ(fg_backoff_bound(500, 20000, i + 1), bound[i]);
    FG_EQ(fg_backoff_wait(500, 20000, i + 1, 0), 0);
    FG_EQ(fg_backoff_wait(500, 20000, i + 1, UINT64_MAX), bound[i]);
  }
  FG_EQ(fg_backoff_bound(500, 20000, 0), 500);
  FG_EQ(fg_backoff_bound(500, 20000, UINT32_MAX), 20000);
  FG_EQ(fg_backoff_bound(UINT32_MAX, UINT32_MAX, 40), UINT32_MAX);
  FG_EQ(fg_backoff_bound(0, 20000, 9), 0);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 100000; i++) {
    sum += fg_backoff_wait(500, 20000, 3, fg_rand(1, 2, i));
  }
  FG_CHECK(sum / 100000 > 985 && sum / 100000 < 1015);

  uint32_t hint[] = {0, 2000, 20000, 200000}, most[] = {1000, 3000, 25000, 230000}; /* J05 */
  for (int i = 0; i < 4; i++) {
    FG_EQ(fg_retry_after_wait(hint[i], 0), hint[i]);
    FG_EQ(fg_retry_after_wait(hint[i], UINT64_MAX), most[i]);
  }
  FG_EQ(fg_retry_after_wait(UINT32_MAX, UINT64_MAX), UINT32_MAX);
  FG_EQ(fg_retry_after_wait(UINT32_MAX - 5, UINT64_MAX), UINT32_MAX);
  return fg_test_end("backoff");
}
