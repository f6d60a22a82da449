/* Rate limits: GCRA, one word holding the theoretical arrival time in us since the region's base. */
#ifndef FG_GCRA_H
#define FG_GCRA_H

#include "fg_atomic.h"

typedef struct fg_gcra_config {
  uint64_t rate, period_us; /* `rate` units each period; rate 0: no limit */
  uint64_t burst;           /* units beyond the first that may go at once; a larger take may go when nothing is owed, and owes the rest */
} fg_gcra_config;

typedef struct fg_gcra_result {
  uint32_t allowed;
  uint32_t retry_ms;        /* refused: until this take could go */
} fg_gcra_result;

/* A declared limit a minute: burst of a sixth. */
fg_gcra_config fg_gcra_per_minute(uint32_t rate);
fg_gcra_result fg_gcra_peek(const fg_word *tat, const fg_gcra_config *c, uint64_t n, int64_t t); /* what a take would answer */
fg_gcra_result fg_gcra_take(fg_word *tat, const fg_gcra_config *c, uint64_t n, int64_t t);       /* n 0 peeks */
void fg_gcra_undo(fg_word *tat, const fg_gcra_config *c, uint64_t n);                            /* an allowed take that was not used */

#endif /* FG_GCRA_H */
