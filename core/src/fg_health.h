/* Is a route worth an attempt now? The operations the engine calls; each looks at levels of words, changes each by one CAS, and
 * completes what an earlier, perhaps killed, caller left undone. */
#ifndef FG_HEALTH_H
#define FG_HEALTH_H

#include "fg_breaker.h"
#include "fg_bucket.h"
#include "fg_gcra.h"
#include "fg_region.h"
#include "fg_witness.h"

typedef struct fg_quota { uint32_t in_flight, rpm, tpm; } fg_quota; /* declared; 0 = none */

typedef struct fg_health_ask { /* one route as one workflow's call sees it */
  fg_region *region;
  fg_route_rec *route;
  fg_account_rec *account;       /* NULL: none */
  const fg_breaker_config *breaker;
  fg_quota route_quota, account_quota;
  uint32_t tokens;               /* worst case of the attempt, for tokens per minute */
  uint32_t ignore_ramp;          /* 1: slow start does not refuse (no other route would serve) */
  uint32_t adapt;                /* FG_ADAPT_*: what is learned of how much it may be given */
  uint64_t rand;                 /* the call's draw for slow start: the same at peek and at admit */
} fg_health_ask;

typedef struct fg_health_view {
  uint32_t health;               /* FG_HEALTH_*; OK and PROBE may serve */
  uint32_t wait_ms;              /* until it may serve; UINT32_MAX: cannot be told (FULL: until another attempt ends, told as 0) */
  uint32_t hint_ms;              /* quota latch: until the reset the provider named, 0 unknown; what a queued call waits for */
  uint32_t breaker;              /* FG_BREAKER_* */
  uint32_t breaker_wait_ms, generation, reopens;
  uint32_t run, z_milli, window_ok, window_failed;
  uint32_t in_flight, retries;   /* of the route, over all processes */
  uint32_t limit;                /* in-flight limit that holds, the smaller of declared and learned; 0 none */
  uint32_t ramp_ppm;             /* 1,000,000 = takes all traffic */
  uint32_t early;                /* 1: a probe is due by time, but requests have not paid for it yet */
} fg_health_view;

/* A pure look: changes nothing, promises nothing. */
fg_health_view fg_health_peek(const fg_health_ask *ask, int64_t t);
/* The same for a decision: window_ok and window_failed are 0 while the window has no failure. */
fg_health_view fg_health_glance(const fg_health_ask *ask, int64_t t);

typedef struct fg_ticket {       /* an admitted attempt; 64 bytes, kept in the call; zero is "none" */
  fg_watch watch;
  uint16_t generation[4];        /* FG_PART_*: which generation of each word admitted it */
  uint8_t probe[4];              /* FG_PART_*: 1 = holds that word's probe */
  uint8_t zero[12];
} fg_ticket;
enum { FG_ADAPT_LIMIT = 1, FG_ADAPT_PACE = 2, FG_ADAPT_PROBES = 4 };
enum { FG_PART_BREAKER = 0, FG_PART_LATCH = 1, FG_PART_AUTH = 2, FG_PART_QUOTA = 3 };
_Static_assert(sizeof(fg_ticket) == 64, "a ticket is 64 bytes");

typedef struct fg_admit {        /* what is about to be sent */
  uint32_t slot, kind, retry;    /* process slot; FG_LEARN_*; 1 counts in the in-flight retry cap */
  uint32_t stall_ms, total_ms;   /* from now: silence unusual after (0 = not a witness), over after (0 = never) */
} fg_admit;

/* Admission: limits, latches, breaker; on a refusal everything taken is given back. Returns 1 and the ticket, or 0 and why. */
int fg_health_admit(const fg_health_ask *ask, const fg_admit *how, int64_t t, fg_ticket *out, fg_health_view *why);
/* A request that would go to this route was seen: it pays towards the next probe of a route whose last probe failed. */
void fg_health_asked_for(fg_route_rec *route, int64_t t);
/* Completes what the levels of the route's words demand: opens a breaker nobody stored as open yet. Returns FG_DID_OPEN or 0. Whoever
 * looks and sees it open calls this, so that the open time runs and ends. */
uint32_t fg_health_settle(const fg_health_ask *ask, int64_t t);
/* May one more retry be in flight on this route? (the bucket's second lock) */
int fg_health_retry_room(const fg_region *r, const fg_route_rec *route);

enum { /* how an attempt ended, for its route */
  FG_OUT_NEUTRAL = 0,            /* cancelled, local, or a failure that says nothing of the route */
  FG_OUT_OK = 1,                 /* a complete answer */
  FG_OUT_FAIL = 2,               /* a hard failure: counts for the breaker */
  FG_OUT_RATE = 3,               /* told to slow down: fails a probe, else neutral */
  FG_OUT_LIFE = 4,               /* the caller's mistake or a refusal: a sign of life */
  FG_OUT_QUOTA = 5, FG_OUT_AUTH = 6, FG_OUT_MISCONFIGURED = 7 /* latches by scope */
};
typedef struct fg_outcome {
  uint32_t what;                 /* FG_OUT_* */
  uint32_t scope;                /* FG_SCOPE_*: MODEL latches the route, else the account (MISCONFIGURED: always the route) */
  uint32_t period;               /* FG_PERIOD_* of a quota */
  uint32_t has_hint, hint_ms;    /* the server's wait, spread not included */
} fg_outcome;

enum { /* what fg_health_result and fg_health_scan changed (bits) */
  FG_DID_STALE = 1,              /* the attempt belonged to an older generation: no evidence */
  FG_DID_OPEN = 2, FG_DID_CLOSE = 4, FG_DID_LATCH_KEY = 8, FG_DID_LATCH_QUOTA = 16, FG_DID_LATCH_ROUTE = 32, FG_DID_CLEAR = 64
};
/* The attempt is over: row, gauges, evidence, then the change of state the levels demand. Uses the ticket up; a second call does nothing. */
uint32_t fg_health_result(const fg_health_ask *ask, fg_ticket *ticket, const fg_outcome *outcome, int64_t t);
/* The same for an attempt dropped without a word, by whoever has neither clock nor policy. */
void fg_health_abandon(fg_region *r, fg_ticket *ticket);
/* How a route is served, from what its attempts tell (fg_health_flow.c). First token: how long it took, for how many prompt tokens;
 * standin: 1 when the route serves another's traffic. */
void fg_health_first(const fg_health_ask *ask, uint32_t kind, uint32_t prompt_tokens, uint32_t took_ms, uint32_t standin, int64_t t);
/* Text of a stream, ms after the text before. */
void fg_health_text(const fg_health_ask *ask, uint32_t tokens, uint32_t ms, int64_t t);
/* A complete stream: its text after the first piece. */
void fg_health_spoke(const fg_health_ask *ask, uint32_t tokens, uint32_t ms, int64_t t);
/* The provider took the request: a first token, or a whole answer. */
void fg_health_let_in(const fg_health_ask *ask, int64_t t);
/* A probe that has written so much text in so many ms, at more than a quarter of the usual speed for long enough, has shown what it was sent
 * for: it counts as a good one before its end. Uses up the ticket's hold on the breaker. Returns FG_DID_*. */
uint32_t fg_health_proved(const fg_health_ask *ask, fg_ticket *ticket, uint32_t tokens, uint32_t ms, int64_t t);
/* When a stream that has written so much text in so many ms is stuck: t, or 0 when it is already. limit_ms: its progress clock. */
int64_t fg_health_stuck_at(const fg_health_ask *ask, uint32_t tokens, uint32_t ms, uint32_t limit_ms, int64_t t);
/* First token, and later progress. */
void fg_health_token(const fg_health_ask *ask, const fg_ticket *ticket, int64_t progress_due, int64_t t);
void fg_health_progress(const fg_health_ask *ask, const fg_ticket *ticket, int64_t progress_due, int64_t t);

/* Looks at overdue attempts of all processes when some may be; otherwise one load. Returns FG_DID_* bits. */
uint32_t fg_health_scan_due(fg_region *r, const fg_breaker_config *c, int64_t t);
static inline uint32_t fg_health_scan(fg_region *r, const fg_breaker_config *c, int64_t t) {
  return fg_witness_idle(r, t) ? 0 : fg_health_scan_due(r, c, t);
}
/* Records a wait all callers of the route (account != NULL and scope account: of the account) respect. */
void fg_health_told_to_wait(const fg_health_ask *ask, uint32_t scope, uint32_t wait_ms, int64_t t);
/* Latch state for views: FG_HEALTH_OK, KEY_LATCHED, QUOTA_LATCHED or MODEL_LATCHED, and how long. */
uint32_t fg_health_latch(const fg_health_ask *ask, int64_t t, uint32_t *wait_ms);

#endif /* FG_HEALTH_H */
