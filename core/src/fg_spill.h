/* Shares of a workflow's calls over 60 s: how many may go to stand-ins for want of waiting. */
#ifndef FG_SPILL_H
#define FG_SPILL_H

#include "fg_atomic.h"

enum { FG_SPILL_BUCKETS = 4, FG_SPILL_WIDTH_MS = 15000, FG_SPILL_FLOOR = 3 };

void fg_spill_call(fg_word w[FG_SPILL_BUCKETS], int64_t t); /* one more call of the workflow */
int fg_spill_room(const fg_word w[FG_SPILL_BUCKETS], uint32_t max_ppm, uint32_t floor, int64_t t); /* would one more be within the share? */
/* 1: counted; at most max_ppm of the calls of 60 s, never fewer than `floor` allowed (spill: FG_SPILL_FLOOR). Racing callers may overshoot by one each. */
int fg_spill_take(fg_word w[FG_SPILL_BUCKETS], uint32_t max_ppm, uint32_t floor, int64_t t);
void fg_spill_undo(fg_word w[FG_SPILL_BUCKETS], int64_t t);

#endif /* FG_SPILL_H */
