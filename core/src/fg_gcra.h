/* Rate limits: GCRA, one word holding the theoretical arrival time in us since the region's base. And the learned pace. */
#ifndef FG_GCRA_H
#define FG_GCRA_H

#include "fg_atomic.h"

typedef struct fg_gcra_config {
  uint64_t rate, period_us; /* `rate` units each period; rate 0: no limit */
  uint64_t burst;           /* units beyond the first that may go at once */
  uint32_t oversize, zero;  /* 1: a take larger than the whole burst may go when nothing is owed, and owes the rest */
} fg_gcra_config;

typedef struct fg_gcra_result {
  uint32_t allowed;
  uint64_t remaining;       /* units that could go at once now */
  uint32_t reset_ms;        /* until nothing is owed */
  uint32_t retry_ms;        /* refused: until this take could go; UINT32_MAX never */
} fg_gcra_result;

/* A declared limit a minute: burst of a sixth, oversize allowed. */
fg_gcra_config fg_gcra_per_minute(uint32_t rate);
fg_gcra_result fg_gcra_peek(const fg_word *tat, const fg_gcra_config *c, uint64_t n, int64_t t); /* what a take would answer */
fg_gcra_result fg_gcra_take(fg_word *tat, const fg_gcra_config *c, uint64_t n, int64_t t);       /* n 0 peeks */
void fg_gcra_undo(fg_word *tat, const fg_gcra_config *c, uint64_t n);                            /* an allowed take that was not used */

/* The learned pace of a route: mode:2 rate_milli:25 since:37; its GCRA word lies beside it. Not renewed for an hour, it is forgotten. */
enum { FG_PACE_LIFE_MS = 3600000 };
enum { FG_PACE_OFF = 0, FG_PACE_LEARN = 1, FG_PACE_ON = 2 };
typedef struct fg_pace { uint32_t mode, rate_milli; int64_t since; } fg_pace; /* requests per 1000 s */
fg_pace fg_pace_get(const fg_word *w, int64_t t);
void fg_pace_set(fg_word *w, uint32_t mode, uint32_t rate_milli, int64_t t);
void fg_pace_clear(fg_word *w);
void fg_pace_verify(fg_word *w, int64_t t); /* clears nonsense */
fg_gcra_config fg_pace_config(fg_pace p); /* burst of a second; no limit unless FG_PACE_ON */

#endif /* FG_GCRA_H */
