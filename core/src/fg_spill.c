#include "fg_spill.h"
#include "fg_math.h"
#include "fg_window.h"

void fg_spill_call(fg_word w[FG_SPILL_BUCKETS], int64_t t) { fg_window_add(w, FG_SPILL_BUCKETS, FG_SPILL_WIDTH_MS, t, 1, 0); }

int fg_spill_room(const fg_word w[FG_SPILL_BUCKETS], uint32_t max_ppm, uint32_t floor, int64_t t) {
  fg_window_sums s = fg_window_sum(w, FG_SPILL_BUCKETS, FG_SPILL_WIDTH_MS, 0, t);
  return max_ppm >= FG_PPM || s.b < fg_max64(fg_ppm_of(s.a, max_ppm), floor); /* all of it: a call may even spill twice */
}

int fg_spill_take(fg_word w[FG_SPILL_BUCKETS], uint32_t max_ppm, uint32_t floor, int64_t t) {
  if (!fg_spill_room(w, max_ppm, floor, t)) {
    return 0;
  }
  fg_window_add(w, FG_SPILL_BUCKETS, FG_SPILL_WIDTH_MS, t, 0, 1);
  return 1;
}

void fg_spill_undo(fg_word w[FG_SPILL_BUCKETS], int64_t t) { fg_window_sub(w, FG_SPILL_BUCKETS, FG_SPILL_WIDTH_MS, t, 0, 1); }
