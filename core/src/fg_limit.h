/* A learned limit of attempts in flight on one route, so that a provider that slows down is not buried under a queue, and a stand-in's own
 * users keep their places. There is none until it is needed; it grows while answers begin in time, shrinks while they begin late, and is
 * gone after 15 s in which it did not bind. A declared quota holds beside it, the smaller of the two.
 *
 * limit: value:20 (sixteenths) cut:22 bound:22 (64 ms; last lowered, last binding); 0 none. crowd: good:16 late:16 stamp:22 (sixteenths of first
 * tokens, halved every 2 s). */
#ifndef FG_LIMIT_H
#define FG_LIMIT_H

#include "fg_atomic.h"

enum { FG_LIMIT_LEAST = 3 }; /* so few in flight are no crowd: what is slow then has another cause */

/* The limit that holds, 0 none. */
uint32_t fg_limit_now(const fg_word *limit, int64_t t);
/* Streams slow down: no more than are in flight now. Nothing where a limit holds already. */
void fg_limit_brake(fg_word *limit, uint32_t in_flight, int64_t t);
/* One more was admitted, in_flight with it: a limit that is nearly used up binds; one that has not for long goes. */
void fg_limit_admitted(fg_word *limit, uint32_t in_flight, int64_t t);
/* A first token in time: a limit that is used grows by one. */
void fg_limit_in_time(fg_word *limit, fg_word *crowd, uint32_t in_flight, int64_t t);
/* A first token later than its prompt and the route's speed explain, so it queued. More than a quarter of them, and the limit is what is in
 * flight less one in `part`; again no sooner than gap_ms later, when what queued before has begun. */
void fg_limit_late(fg_word *limit, fg_word *crowd, uint32_t in_flight, uint32_t part, uint32_t gap_ms, int64_t t);

#endif /* FG_LIMIT_H */
