/* Limits across calls: retries an hour (hour:24 n:40), money a day (rolling:1 stamp:15 micro_usd:48). */
#ifndef FG_SPEND_H
#define FG_SPEND_H

#include "fg_atomic.h"

/* 1: one more retry was counted; 0: `limit` a clock hour is used up. limit 0: none, but counted. */
int fg_retries_take(fg_word *w, uint32_t limit, int64_t t);
void fg_retries_undo(fg_word *w, int64_t t);
uint64_t fg_retries_get(const fg_word *w, int64_t t);

/* Which day it is: UTC days by the wall clock, else 24 hours from the first spend. */
typedef struct fg_day { int64_t t; int64_t unix_ms; } fg_day; /* unix_ms <= 0: no wall clock */

/* A hold in up to two words (a workflow's own, everybody's): in the first, then in the second; a refusal by the second is undone in
 * the first. limit_nusd < 0: none, still counted. second may be NULL. Money is counted in whole micro-dollars, rounded up.
 * Returns 0 held, 1 or 2: that limit refused. *stamp: when it was held, 16 bits; keep it for the settlement. */
int fg_spend_hold(fg_word *first, int64_t first_limit_nusd, fg_word *second, int64_t second_limit_nusd, int64_t amount_nusd, fg_day day,
                  uint32_t *stamp);
/* What was held becomes what it cost. A hold of another day is not given back to this one. */
void fg_spend_settle(fg_word *first, fg_word *second, int64_t held_nusd, int64_t actual_nusd, uint32_t stamp, fg_day day);
int64_t fg_spend_get(const fg_word *w, fg_day day); /* nano-dollars held and settled today */
/* Would a hold of `amount` be refused now? */
int fg_spend_over(const fg_word *w, int64_t limit_nusd, int64_t amount_nusd, fg_day day);

#endif /* FG_SPEND_H */
