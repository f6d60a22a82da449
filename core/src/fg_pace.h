/* A learned rate: what a provider that answers 429 lets through, so that the rest goes elsewhere at once instead of into refusals. Off until
 * the first 429; when two more came within 5 s, what got in meanwhile is the rate. Every 10 s a tenth more is tried and kept when no 429 came; each one that failed
 * doubles the time to the next, up to 80 s. Off again when less than the rate was wanted for a whole round.
 *
 * pace: mode:2 rate:22 (attempts a 1,000 s) wait:3 (2^wait x 10 s) at:37 (the round's end). seen: let in:15 refused:12
 * since:37, of the round. */
#ifndef FG_PACE_H
#define FG_PACE_H

#include "fg_atomic.h"
#include "fg_gcra.h"

enum { FG_PACE_OFF = 0, FG_PACE_LEARN = 1, FG_PACE_HOLD = 2, FG_PACE_TEST = 3 };

/* The rate that holds, as a limit: rate 0 none. */
fg_gcra_config fg_pace_now(const fg_word *pace);
/* A 429. */
void fg_pace_refused(fg_word *pace, fg_word *seen, int64_t t);
/* An attempt the provider let in; also ends rounds that are over. */
void fg_pace_let_in(fg_word *pace, fg_word *seen, int64_t t);

#endif /* FG_PACE_H */
