/* Evidence about a route in one word: consecutive hard failures, and a Bernoulli CUSUM over attempts still in flight.
 *
 * word: gen:14 run:8 z:14 flagged:14 delivered:14; z in milli-nats. It belongs to one generation of the breaker: a newer one starts fresh,
 * an older one is ignored. Once z has reached the opening level it stays there (the breaker opens by level, even when the
 * caller that raised it was killed); tokens of flagged attempts then count as delivered: half of them retract the opening. */
#ifndef FG_STALL_H
#define FG_STALL_H

#include "fg_atomic.h"

enum { FG_Z_STALL = 2303, FG_Z_TOKEN = 642, FG_Z_OPEN = 6900, FG_Z_MAX = 13800 };
enum { FG_STALL_START_MS = 10000, FG_STALL_MIN_MS = 2000, FG_STALL_MAX_MS = 60000, FG_STALL_SAMPLES = 50 };

typedef struct fg_stall_state { uint32_t generation, run, z_milli, flagged, delivered; } fg_stall_state;

fg_stall_state fg_stall_get(const fg_word *w);
/* generation: 1..16384, the attempt's, already compared with the breaker's. */
void fg_stall_ok(fg_word *w, uint32_t generation);      /* the run of failures ends */
void fg_stall_fail(fg_word *w, uint32_t generation);    /* one more hard failure */
void fg_stall_flag(fg_word *w, uint32_t generation);    /* an attempt's silence became unusual */
void fg_stall_in_time(fg_word *w, uint32_t generation); /* a first token in time */
void fg_stall_late(fg_word *w, uint32_t generation);    /* first token of a flagged attempt: un-counted */
void fg_stall_drop(fg_word *w, uint32_t generation);    /* a flagged attempt ended: its provisional evidence goes */
/* A word that claims a generation its breaker has not reached is nonsense: made fresh. */
void fg_stall_verify(fg_word *w, const fg_word *breaker);
/* 1: opened by silence in the generation before `breaker_generation`, and half of it has spoken since. */
uint32_t fg_stall_retracts(const fg_word *w, uint32_t breaker_generation);

/* Silence that is unusual: 1.5 x q99, 2 s .. 60 s, 10 s until 50 samples exist; streamed answers without reasoning. Others (long != 0):
 * prior_ms until 50 samples, no ceiling but the attempt's own time-out, which the caller applies. */
uint32_t fg_stall_after_ms(uint32_t q99_ms, uint32_t samples, uint32_t is_long, uint32_t prior_ms);

#endif /* FG_STALL_H */
