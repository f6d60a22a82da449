/* The breaker: one word that says closed, open until t, or half-open with leased probes. Latches (dead key, empty account, wrong
 * model) are the same word under another configuration.
 *
 * word: state:2 why:2 reopens:3 probes:3 ok:3 gen:14 t:37. t is: closed since (0 = always), open until, half-open's lease end. A
 * generation ends with every change of state; a result that carries an older one changes nothing. Generations shown outside are
 * 1..16384, 0 = none. What opens a closed breaker are the levels of other words (run, window, stall evidence); whoever looks
 * next completes what a killed caller began. */
#ifndef FG_BREAKER_H
#define FG_BREAKER_H

#include "fg_atomic.h"

enum { FG_GEN_BITS = 14, FG_GEN_MASK = (1 << FG_GEN_BITS) - 1 };
enum { FG_SLOW_START_MS = 15000 };

typedef struct fg_breaker_config {
  uint32_t consecutive, window_ms, min_calls, failure_ppm; /* 0 consecutive or min_calls: that rule is off */
  uint32_t open_ms, open_max_ms, jitter_ppm, probes, lease_ms, successes, stall;
} fg_breaker_config;

typedef struct fg_breaker_levels { /* what the other words say */
  uint32_t generation;  /* about this generation of the breaker; the word having moved on, they say nothing */
  uint32_t run, window_ok, window_failed, z_milli;
  uint32_t retract;     /* 1: half of what looked silent has spoken since a stall opened it */
  int64_t not_before;   /* a Retry-After still running: the open time ends no sooner; 0 none */
} fg_breaker_levels;

enum { FG_WHY_SETUP = 0 }; /* of a latch that is open: the route is set up wrongly; its time does not double */
enum { FG_WHY_NONE = 0, FG_WHY_FAILED = 1, FG_WHY_STALL = 2, FG_WHY_PROBE = 3 }; /* of OPEN: failures, silence alone, a failed probe */
enum { FG_WHY_RAMP = 1 };                                                        /* of CLOSED: closed after a reopening: starts slowly */

enum { FG_ADMIT_REJECT = 0, FG_ADMIT_CLOSED = 1, FG_ADMIT_PROBE = 2 };

typedef struct fg_breaker_view {
  uint32_t state;       /* FG_BREAKER_* as it would be after completing what the levels demand */
  uint32_t why;         /* FG_WHY_* */
  uint32_t room;        /* 1: an attempt may go now, as a probe unless closed */
  uint32_t wait_ms;     /* until an attempt may go; 0 with room */
  uint32_t generation, reopens, probes, ok;
  int64_t t;            /* closed since, open until, lease end */
} fg_breaker_view;

typedef struct fg_breaker_ticket { uint32_t verdict, generation, wait_ms; } fg_breaker_ticket; /* FG_ADMIT_* */

enum { FG_REPORT_OK = 0, FG_REPORT_FAIL = 1, FG_REPORT_NEUTRAL = 2 };
enum { FG_TURN_NONE = 0, FG_TURN_STALE = 1, FG_TURN_OPENED = 2, FG_TURN_HALF = 3, FG_TURN_CLOSED = 4 }; /* what a call changed */

/* A pure look. levels may be NULL (latches). */
fg_breaker_view fg_breaker_peek(const fg_word *w, const fg_breaker_config *c, const fg_breaker_levels *levels, int64_t t);
/* Completes every change the levels and the clock demand, short of admitting. Returns the last FG_TURN_*. */
uint32_t fg_breaker_settle(fg_word *w, const fg_breaker_config *c, const fg_breaker_levels *levels, int64_t t);
/* Settles, then admits: closed, as a probe (leased from t), or rejected with the wait. */
fg_breaker_ticket fg_breaker_admit(fg_word *w, const fg_breaker_config *c, const fg_breaker_levels *levels, int64_t t);
/* The result of an admitted attempt. A probe's OK counts towards closing, its FAIL opens again for twice as long (never shorter
 * than retry_after_ms), NEUTRAL gives the slot back. An attempt of a closed breaker changes nothing here (its evidence lies in
 * other words). Another generation: FG_TURN_STALE. */
uint32_t fg_breaker_report(fg_word *w, const fg_breaker_config *c, uint32_t generation, uint32_t probe, uint32_t report, uint32_t retry_after_ms,
                           int64_t t);
/* A probe ended without a verdict, told by someone without configuration or clock: its slot is given back. */
void fg_breaker_give_back(fg_word *w, uint32_t generation, int64_t t);
/* A probe that shows life keeps its lease: at least lease_ms from t. */
void fg_breaker_renew(fg_word *w, const fg_breaker_config *c, uint32_t generation, int64_t t);
/* Latches: closes to traffic. generation: the ticket's (another one is stale), 0 = whatever is there now. exact_ms != 0: closed
 * exactly so long; else open_ms doubled with each failed probe up to open_max_ms, but no longer than at_most_ms when that is not 0. */
uint32_t fg_latch_trip(fg_word *w, const fg_breaker_config *c, uint32_t generation, uint32_t why, uint64_t exact_ms, uint64_t at_most_ms, int64_t t);
/* FG_WHY_* the word holds. */
uint32_t fg_latch_why(const fg_word *w);
/* The generation now, 1..16384. */
uint32_t fg_breaker_generation(const fg_word *w);
/* Share of traffic a closed breaker takes, ppm: 1,000,000 except in the FG_SLOW_START_MS after it closed from a reopening. */
uint32_t fg_breaker_ramp_ppm(const fg_word *w, int64_t t);
/* Time a breaker stays open: open_ms, half of it when silence alone opened it, doubled by reopens, at most open_max_ms. */
uint64_t fg_breaker_open_ms(const fg_breaker_config *c, uint32_t why, uint32_t reopens, uint32_t generation);

#endif /* FG_BREAKER_H */
