/* How fast a route's streams write now, against what is usual there: the earliest sign of a provider that slows down, for streams that
 * are under way tell it before any new request has waited. Only the time between two pieces of text counts; silence before the first, and
 * between text and a tool call, is other modules' matter.
 *
 * usual: n:6 rate:29 stamp:29 (rate in tokens a 1,000 s, stamp in 256 ms). now: got:21 want:21 stamp:22 (sixteenths of tokens that came and
 * that would usually have come in the same time, halved every second; stamp in 64 ms). */
#ifndef FG_CADENCE_H
#define FG_CADENCE_H

#include "fg_atomic.h"

enum { FG_CADENCE_SAMPLES = 8 };     /* complete streams before the usual speed is believed */
enum { FG_CADENCE_SLOW_PPM = 600000, FG_CADENCE_FINE_PPM = 850000 }; /* below: it slows down; from: nothing to see */
enum { FG_SLOW_ONE = 1024, FG_SLOW_MAX = 15 * FG_SLOW_ONE };         /* factors of slowness, Q10 */

typedef struct fg_cadence {
  uint32_t usual;     /* tokens a 1,000 s; 0 not known yet */
  uint32_t now_ppm;   /* share of the usual speed; 1,000,000 where nothing tells otherwise */
  uint32_t weight_ms; /* of stream time lately seen, decayed: what now_ppm rests on */
} fg_cadence;

/* Text of a stream: so many tokens, ms after the text before. */
void fg_cadence_step(fg_word *now, const fg_word *usual, uint32_t tokens, uint32_t ms, int64_t t);
/* A complete stream's own speed. The usual one changes at most e-fold in an hour: a slow hour is no new usual, and no caller whose streams look
 * fast (many choices, runs of spaces) makes those of all others look stuck. */
void fg_cadence_learn(fg_word *usual, uint32_t tokens, uint32_t ms, int64_t t);
fg_cadence fg_cadence_look(const fg_word *now, const fg_word *usual, int64_t t);
/* How many times slower than usual, Q10, 1 to 15: what a wait for the first token may be longer by. The rest of a long wait is a queue. */
uint32_t fg_cadence_slow(const fg_cadence *c);
/* Does it write at less than 0.6 of its speed, by at least a second of streams? */
int fg_cadence_slows(const fg_cadence *c);

#endif /* FG_CADENCE_H */
