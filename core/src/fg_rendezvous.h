/* Which stand-in first: weighted rendezvous order, and the ramp of a route that just came back. Pure. */
#ifndef FG_RENDEZVOUS_H
#define FG_RENDEZVOUS_H

#include <stdint.h>

enum { FG_RENDEZVOUS_MAX = 16 };
typedef struct fg_rendezvous_item { uint64_t key; uint32_t weight; } fg_rendezvous_item; /* weight 0: absent, placed last */

/* order[i] = index of the i-th choice for this key; returns how many have a weight. Removing an item never reorders the others. */
uint32_t fg_rendezvous_order(uint64_t key, const fg_rendezvous_item *items, uint32_t count, uint8_t order[FG_RENDEZVOUS_MAX]);
/* Slow start, ppm: max(min_ppm, (max(since, 1) / window) ^ (1 / aggression)); aggression 1 or 2. */
uint32_t fg_ramp_ppm(int64_t since_ms, uint32_t window_ms, uint32_t min_ppm, uint32_t aggression);

#endif /* FG_RENDEZVOUS_H */
