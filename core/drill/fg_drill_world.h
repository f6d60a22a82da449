/* The simulated world: providers, attempts at them, the clients' jobs, and what a strategy may do. */
#ifndef FG_DRILL_WORLD_H
#define FG_DRILL_WORLD_H

#include <stddef.h>

#include "fg_drill.h"
#include "fg_drill_heap.h"
#include "fg_drill_random.h"

#define NOBODY UINT32_MAX
enum { EV_ARRIVE = 1, EV_SERVICE, EV_ERROR, EV_CLOCK, EV_TIMER, EV_FAULT, EV_TICK, EV_BUCKET };
enum { POP_A = 0, POP_B = 1 }; /* B: of backup population - 1 */
enum { AT_NEW = 0, AT_QUEUED, AT_PREFILL, AT_DECODE, AT_ERROR, AT_DONE };
enum { OUT_OPEN = 0, OUT_FULL, OUT_SMALL, OUT_PRESET, OUT_REFUSED, OUT_FAILED };
enum { ATTEMPTS_LIVE = 4, CHUNK = 1024, CHUNKS = 4096 }; /* pools grow in chunks, so that pointers into them stay good */

typedef struct attempt {                                   /* one request at a provider; outlives its job as a zombie */
  uint32_t self, next_free, job, serial;                   /* job NOBODY: the client left */
  uint32_t id, provider, number, state, small, population; /* id: serial changes with every phase, this does not */
  uint32_t prompt, output, left, delivered;                /* left: the client hung up */
  int64_t sent_at, phase_end, decode_us, prefill_us;       /* work at full speed */
  int64_t first_token_at;                                  /* -1: none yet */
  uint32_t prev, next, place;                              /* in the queue; index among the running */
  uint32_t reported;                                       /* tokens the engine heard of */
  int32_t status;                                          /* of an error answer */
  int64_t reset_us;                                        /* of a rate limit */
} attempt;

typedef struct job { /* one request of a user, while it is open */
  uint32_t self, next_free, record, serial, tenant, population, strategy;
  uint32_t prompt, output, tries, mark; /* mark: the strategy's own */
  int64_t arrived_at, deadline_at, hold;
  uint32_t live[ATTEMPTS_LIVE]; /* attempts, NOBODY: free */
} job;

typedef struct record {                           /* what is remembered of a request */
  int64_t arrived_at, latency_us, first_token_us; /* -1: none */
  uint8_t population, outcome, served_by, adopter;
  uint16_t attempts, zero;
} record;

typedef struct endpoint { /* a provider */
  uint32_t slots, running_count, queue_first, queue_last, queue_length;
  uint32_t *running, running_room;
  uint32_t full_slots; /* without a fault */
  int64_t prefill_ppm, decode_ppm;
  uint32_t error_ppm, error_status, rate_limit, rate_used;
  int64_t rate_window_us, rate_window;
} endpoint;

typedef struct world world;

typedef struct strategy {
  int32_t (*open)(world *w, fg_error *err); /* NULL: nothing to prepare */
  void (*close)(world *w);
  void (*arrive)(world *w, job *j);
  void (*first_token)(world *w, job *j, attempt *a);
  void (*done)(world *w, job *j, attempt *a);   /* the whole answer is there */
  void (*failed)(world *w, job *j, attempt *a); /* an error answer, or the client's clock; the attempt is already left */
  void (*timer)(world *w, job *j);              /* the wait it asked for is over */
  void (*tick)(world *w);                       /* every report_us */
  uint32_t own_clocks;                          /* 1: it ends its attempts itself */
} strategy;

struct world {
  const drill_config *c;
  const drill_fault *fault;
  uint64_t seed;
  int64_t now, fault_at, after_at, end_at;
  drill_heap heap;
  uint32_t strategy, providers, serial;
  endpoint provider[1 + DRILL_BACKUPS_MAX];
  attempt *attempts[CHUNKS];
  job *jobs[CHUNKS];
  uint32_t attempt_count, job_count, jobs_open; /* made so far; jobs not finished */
  uint32_t attempt_free, job_free;              /* first of those to use again, chained by `next_free`; NOBODY: none */
  record *record;
  uint32_t record_count, record_room;
  uint64_t arrivals[2 + DRILL_BACKUPS_MAX]; /* streams */
  void *state[DRILL_STRATEGIES];
  int32_t error; /* FG_ERR_NOMEM: something could not be kept; the run is void */
  /* counts */
  int64_t attempts_in_fault, abandoned, zombie_tokens, wasted_tokens, delivered_tokens, spent_nusd, events, detected_us;
  drill_bucket *bucket;
  uint32_t buckets;
};

extern const strategy *const drill_strategies[DRILL_STRATEGIES];
extern const strategy drill_naive, drill_backoff, drill_plain, drill_own_users, drill_disciplined, drill_oracle, drill_fivegates;

/* ---- fg_drill_provider.c */
/* Is this attempt (by its number) of a request one that the provider answers with an error now? */
int drill_refused(const world *w, uint32_t provider, uint32_t record, uint32_t number);
void drill_provider_take(world *w, attempt *a);  /* a request arrives */
void drill_provider_leave(world *w, attempt *a); /* its client hangs up; the attempt may be gone after it */
void drill_provider_step(world *w, attempt *a);  /* a phase is over */
void drill_provider_set(world *w, uint32_t p, int64_t prefill_ppm, int64_t decode_ppm, uint32_t slots);
uint32_t drill_tokens_made(const world *w, const attempt *a);
/* ---- fg_drill_client.c */
job *drill_job_new(world *w, uint32_t population);
/* Sends an attempt of this job; NULL: no memory, or too many at once. number: the engine's, 0 = the next. */
attempt *drill_send(world *w, job *j, uint32_t provider, uint32_t small, uint32_t number);
void drill_leave(world *w, attempt *a); /* hangs up */
void drill_wait(world *w, job *j, int64_t us);
void drill_finish(world *w, job *j, uint32_t outcome, const attempt *a);
void drill_clock(world *w, attempt *a);
void drill_reply(world *w, attempt *a); /* its error answer arrived */
void drill_token(world *w, attempt *a); /* its first token arrived */
void drill_whole(world *w, attempt *a); /* its answer is whole */
void drill_attempt_free(world *w, attempt *a);
const strategy *drill_strategy_of(const job *j);
/* ---- fg_drill_ledger.c: nothing where there is no ledger. line: FG_LINE_*; j NULL: of the engine itself; number: of the attempt, 0 none */
void drill_ledger_line(world *w, const fg_engine *e, const fg_call *call, const fg_decision *d, uint32_t line, int64_t now_ms);
void drill_ledger_event(world *w, const job *j, uint32_t number, const char *event, uint32_t value, int64_t now_ms);
/* ---- fg_drill_metrics.c */
void drill_measure(const world *w, drill_result *out);
/* ---- fg_drill_clock.c: 1 and the next event, when it is time for it; 0: there is none */
int drill_next_event(world *w, drill_event *out);
/* ---- fg_drill_world.c */
void drill_plan(world *w, int64_t at, uint32_t kind, uint32_t index, uint32_t serial);
void drill_detected(world *w); /* the strategy noticed something about the primary */
int drill_in_fault(const world *w);
/* ---- fg_drill_card.c: the default card; text is the caller's to free. FG_OK or what the loader says. */
int32_t drill_card(const drill_config *c, fg_policy **out, fg_error *err);
extern const fg_mem drill_mem;

static inline attempt *attempt_at(const world *w, uint32_t i) { return &w->attempts[i / CHUNK][i % CHUNK]; }
static inline job *job_at(const world *w, uint32_t i) { return &w->jobs[i / CHUNK][i % CHUNK]; }

#endif /* FG_DRILL_WORLD_H */
