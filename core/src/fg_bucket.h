/* The retry bucket: balance_milli:27 last:37 in one word. A zero word has the start balance. */
#ifndef FG_BUCKET_H
#define FG_BUCKET_H

#include "fg_atomic.h"

typedef struct fg_bucket_config { uint32_t credit_milli, cap_milli, start_milli, trickle_milli; } fg_bucket_config; /* trickle a minute, up to start */

uint32_t fg_bucket_balance(const fg_word *w, const fg_bucket_config *c, int64_t t); /* milli-tokens now */
void fg_bucket_credit(fg_word *w, const fg_bucket_config *c, int64_t t);           /* a success: + credit_milli up to the cap */
int fg_bucket_pay(fg_word *w, const fg_bucket_config *c, uint32_t cost_milli, int64_t t); /* 1 paid, 0 refused and nothing changed */
void fg_bucket_refund(fg_word *w, const fg_bucket_config *c, uint32_t cost_milli, int64_t t);
/* How long until `cost_milli` could be paid by the trickle alone; UINT32_MAX = never. */
uint32_t fg_bucket_wait_ms(const fg_word *w, const fg_bucket_config *c, uint32_t cost_milli, int64_t t);
/* The in-flight cap: may one more retry start beside `retries` of `active` attempts in flight? retries < max(1, active / 10). */
int fg_bucket_room(uint32_t active, uint32_t retries);
/* Cost weight of a retry, milli-tokens: 1000 x clamp(round(cost / mean), 1, 10). Unknown (<= 0) cost or mean: 1000. */
uint32_t fg_bucket_weight(int64_t cost_nusd, int64_t mean_nusd);

#endif /* FG_BUCKET_H */
