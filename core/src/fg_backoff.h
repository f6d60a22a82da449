/* How long to wait before sending again. Pure. */
#ifndef FG_BACKOFF_H
#define FG_BACKOFF_H

#include <stdint.h>

/* Upper bound of full jitter before retry 1, 2, …: min(cap, base << (retry - 1)), never overflowing. */
uint32_t fg_backoff_bound(uint32_t base_ms, uint32_t cap_ms, uint32_t retry);
/* Uniform in [0, bound]. */
uint32_t fg_backoff_wait(uint32_t base_ms, uint32_t cap_ms, uint32_t retry, uint64_t rand);
/* A server's hint + uniform in [0, clamp(hint / 4, 1 s, 30 s)]: never early. */
uint32_t fg_retry_after_wait(uint32_t hint_ms, uint64_t rand);

#endif /* FG_BACKOFF_H */
