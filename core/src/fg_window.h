/* Counts over a sliding window: n buckets of width_ms, each one word epoch:32 a:16 b:16. A late write never revives an older lap. */
#ifndef FG_WINDOW_H
#define FG_WINDOW_H

#include "fg_atomic.h"

typedef struct fg_window_sums { uint32_t a, b; } fg_window_sums;

/* Adds to the bucket of t (a: calls or successes, b: failures or spilled); saturates at 65,535 a bucket. */
void fg_window_add(fg_word *w, uint32_t n, uint32_t width_ms, int64_t t, uint32_t a, uint32_t b);
/* Takes back from the bucket of t, not below 0, if it still is that bucket. */
void fg_window_sub(fg_word *w, uint32_t n, uint32_t width_ms, int64_t t, uint32_t a, uint32_t b);
/* Sums the n buckets up to t. Buckets that began at or before `floor` are left out (0 = none are). */
/* Does any bucket, also one of an older lap, count in b? */
int fg_window_any_b(const fg_word *w, uint32_t n);
fg_window_sums fg_window_sum(const fg_word *w, uint32_t n, uint32_t width_ms, int64_t floor, int64_t t);

#endif /* FG_WINDOW_H */
