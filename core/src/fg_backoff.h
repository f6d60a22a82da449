/* How long to wait before sending again. Pure. */
#ifndef FG_BACKOFF_H
#define FG_BACKOFF_H

#include <stdint.h>

/* Upper bound of full jitter before retry 1, 2, …: min(cap, base << (retry - 1)), never overflowing. */
uint32_t fg_backoff_bound(uint32_t base_ms, uint32_t cap_ms, uint32_t retry);
/* Uniform in [0, bound]. */
uint32_t fg_backoff_wait(uint32_t base_ms, uint32_t cap_ms, uint32_t retry, uint64_t rand);
/* Spread added to a server's hint: clamp(hint / 4, 1 s, 30 s). */
uint32_t fg_retry_after_spread(uint32_t hint_ms);
/* hint + uniform in [0, spread]: never early. */
uint32_t fg_retry_after_wait(uint32_t hint_ms, uint64_t rand);

#endif /* FG_BACKOFF_H */
