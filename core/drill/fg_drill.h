/* The drills: a deterministic simulation of a provider's fault, of the clients that meet it, and of the stand-in's own users.
 *
 * Integers only; time is int64 microseconds, shares are parts per million, money is nano-dollars. One run is one fault, one strategy and one
 * seed; the same three give the same bytes on any machine. The strategy `fivegates` is the engine of fivegates.h with simulated time. */
#ifndef FG_DRILL_H
#define FG_DRILL_H

#include <stdint.h>
#include <stdio.h>
#include "fivegates.h"

enum { DRILL_BACKUPS_MAX = 7, DRILL_EFFECTS_MAX = 8, DRILL_FAULTS_MAX = 32, DRILL_SEEDS_MAX = 1000, DRILL_TENANTS_MAX = 10000 };
enum { DRILL_NAME_MAX = 32, DRILL_SLOTS_MAX = 10000000 };

#define DRILL_STRATEGY_MAP(XX)                                                                              \
  XX(0, NAIVE, naive)             /* three tries, no wait, primary and backup in turn */                    \
  XX(1, BACKOFF, backoff)         /* three tries on the primary, 1 s and 2 s apart, then the backup once */ \
  XX(2, DISCIPLINED, disciplined) /* retry budget and a breaker for each provider */                        \
  XX(3, FIVEGATES, fivegates)     /* the engine */                                                          \
  XX(4, ORACLE, oracle)           /* a router that knows every queue: the bound */                          \
  XX(5, PLAIN, plain)             /* one try on the primary */
#define DRILL_ENUM_STRATEGY(n, N, w) DRILL_##N = n,
enum { DRILL_STRATEGY_MAP(DRILL_ENUM_STRATEGY) DRILL_STRATEGIES };

enum { DRILL_AT_PRIMARY = 0, DRILL_AT_BACKUPS = 1, DRILL_AT_FIRST_BACKUP = 2 };

typedef struct drill_effect {       /* what a fault does to a provider, for how long */
  uint32_t target;                  /* DRILL_AT_* */
  int64_t start_us, length_us;      /* from the start of the fault's phase; length 0: to its end */
  int64_t ramp_us;                  /* the slowness and the cut of slots grow over so long */
  int64_t prefill_ppm, decode_ppm;  /* times slower, in millionths; 1,000,000 is no change */
  uint32_t error_ppm, error_status; /* share of requests that are refused, and how */
  uint32_t rate_limit;              /* requests admitted in a window; 0: no limit */
  int64_t rate_window_us;
  int64_t slots_ppm; /* slots that are left */
} drill_effect;

typedef struct drill_fault {
  char name[DRILL_NAME_MAX];
  uint32_t count;
  drill_effect effect[DRILL_EFFECTS_MAX];
  uint32_t cancel_frees;                   /* 1: a provider stops when the client hangs up; else the attempt keeps its place and its slot */
  uint32_t hidden_tries;                   /* tries an inner layer of a naive client adds to each of its own */
  int64_t burst_every_us, burst_length_us; /* arrivals of A come faster for so long, every so often; 0: they do not */
  int64_t burst_ppm;                       /* how much faster */
} drill_fault;

typedef struct drill_config {
  uint64_t seed; /* of the first run; the next has the next */
  uint32_t seeds;
  int64_t warm_us, fault_us, after_us;
  uint32_t scale;                         /* multiplies both populations and all slots */
  uint32_t a_milli, b_milli;              /* requests in 1,000 s; B at each backup */
  uint32_t tenants, adopters_ppm, others; /* others: DRILL_* of the tenants that do not adopt the strategy */
  uint32_t shared;                        /* 1: all tenants share one region, 0: each has its own */
  uint32_t prompt_tokens, output_tokens;
  uint32_t output_cv_ppm, first_token_cv_ppm, speed_cv_ppm;
  int64_t first_token_us;           /* before the prompt is read */
  uint32_t prompt_rate, rate_milli; /* prompt tokens a second; output tokens in 1,000 s */
  uint32_t primary_slots;
  uint32_t backups, backup_slots; /* slots of each; 0: from spare_ppm */
  uint32_t spare_ppm;             /* capacity of the backups beyond 1.5 times B's load, as a share of A's load */
  uint32_t ladder, small_ppm;     /* is a smaller model a way out; its cost and work against the large one's */
  int64_t error_us;               /* an error answer takes so long */
  int64_t first_token_timeout_us, attempt_timeout_us, deadline_us, interactive_us;
  int64_t price_input, price_output; /* nano-dollars per million tokens */
  uint32_t oracle_ppm;               /* load of a backup the oracle goes to */
  int64_t report_us;                 /* how often the engine hears of tokens */
  char *card;                        /* JSON of another card, NULL: the default one */
  FILE *ledger;                      /* where the engine's ledger goes; NULL: nowhere; the caller's to close */
  uint32_t fault_count;
  drill_fault fault[DRILL_FAULTS_MAX];
  uint32_t strategies; /* bits 1 << DRILL_* */
} drill_config;

/* What is measured, and how it is written: XX(NAME, word, unit). Not measured is DRILL_NONE. */
#define DRILL_METRIC_MAP(XX)                                                                          \
  XX(LOAD, load, RATIO)         /* attempts for each request, in the fault */                         \
  XX(USEFUL, useful, SHARE)     /* of A's requests in the fault: answered by the deadline */          \
  XX(WITHIN, within, SHARE)     /* answered while a person still waits */                             \
  XX(FULL, full, SHARE)         /* by the model that was asked for or its equal */                    \
  XX(DEGRADED, degraded, SHARE) /* by the smaller model */                                            \
  XX(REFUSED, refused, SHARE)   /* told no, or given a prepared text */                               \
  XX(P50, p50, TIME)            /* latency of the answers */                                          \
  XX(P95, p95, TIME)                                                                                  \
  XX(FIRST_TOKEN_P95, first_token_p95, TIME)                                                          \
  XX(DETECTED, detected, TIME)                     /* first open breaker, limit or pace */            \
  XX(NORMAL, normal, TIME)                         /* after the fault: three good buckets in a row */ \
  XX(PRIMARY, primary, TIME)                       /* after the fault: the primary serves again */    \
  XX(ABANDONED, abandoned, COUNT)                  /* attempts the client left */                     \
  XX(ZOMBIE_TOKENS, zombie_tokens, COUNT)          /* made after that */                              \
  XX(WASTED_TOKENS, wasted_tokens, COUNT)          /* made and not delivered */                       \
  XX(EXTRA, extra, SHARE)                          /* wasted for each delivered */                    \
  XX(COST, cost, MONEY)                            /* for each answer */                              \
  XX(REST_USEFUL, rest_useful, SHARE)              /* of the tenants that have not adopted it */      \
  XX(B_BEFORE, b_before, SHARE)                    /* B's requests answered: before, */               \
  XX(B_DURING, b_during, SHARE)                    /* during */                                       \
  XX(B_AFTER, b_after, SHARE)                      /* and after the fault */                          \
  XX(B_P95_BEFORE, b_first_token_p95_before, TIME) /* B's first token */                              \
  XX(B_P95_DURING, b_first_token_p95_during, TIME)                                                    \
  XX(B_P95_AFTER, b_first_token_p95_after, TIME)                                                      \
  XX(B_P99_BEFORE, b_first_token_p99_before, TIME)                                                    \
  XX(B_P99_DURING, b_first_token_p99_during, TIME)                                                    \
  XX(B_P99_AFTER, b_first_token_p99_after, TIME)                                                      \
  XX(B_HARM, b_harm, TIME)      /* B's first token p95, during less before */                         \
  XX(BOUND, bound, SHARE)       /* full answers physics allows */                                     \
  XX(REQUESTS, requests, COUNT) /* A's, in the fault */                                               \
  XX(EVENTS, events, COUNT)
#define DRILL_ENUM_METRIC(N, w, u) DRILL_M_##N,
enum { DRILL_METRIC_MAP(DRILL_ENUM_METRIC) DRILL_METRICS };
#define DRILL_NONE INT64_MIN
enum { DRILL_UNIT_RATIO, DRILL_UNIT_SHARE, DRILL_UNIT_TIME, DRILL_UNIT_COUNT, DRILL_UNIT_MONEY };

typedef struct drill_bucket { /* one piece of time, for the pictures; by arrival */
  uint32_t requests, attempts, useful, full, b_requests, b_useful;
  uint32_t wasted_tokens;
  uint32_t p50_ms, p95_ms, b_first_token_p95_ms;                   /* UINT32_MAX: nobody was answered */
  uint32_t primary_busy, primary_queue, backup_busy, backup_queue; /* at its end */
} drill_bucket;
enum { DRILL_BUCKET_US = 5000000 };

typedef struct drill_result {
  int64_t metric[DRILL_METRICS];
  drill_bucket *bucket; /* asked for by drill_run, freed by drill_result_free */
  uint32_t buckets;
} drill_result;

/* What a drill reads when nothing is said: DRILL.md's rig, six faults, five strategies. */
void drill_config_default(drill_config *c);
/* Reads a JSON object over what c holds. FG_OK; FG_ERR_SYNTAX, FG_ERR_RANGE, FG_ERR_NOMEM with err filled: path, message, line of a syntax error. */
int32_t drill_config_read(drill_config *c, const char *text, uint64_t len, fg_error *err);
void drill_config_free(drill_config *c);
/* Are the numbers of c possible together? Asked after the last text was read. FG_OK or FG_ERR_RANGE. */
int32_t drill_config_check(const drill_config *c, fg_error *err);
/* May this configuration write its ledger? FG_OK or FG_ERR_RANGE. */
int32_t drill_ledger_check(const drill_config *c, fg_error *err);
/* A hash of everything in c but seed, seeds and the strategies. */
uint64_t drill_config_hash(const drill_config *c);
/* A fault of the table by its name. 1, or 0: there is none. */
int drill_fault_named(const char *name, drill_fault *out);
/* The names of the table, with commas between. */
void drill_fault_names(char *to, uint32_t cap);
int drill_strategy_named(const char *name, uint32_t *out);
const char *drill_strategy_name(uint32_t strategy);

typedef struct drill_state { /* what a fault makes of a provider at one moment */
  int64_t prefill_ppm, decode_ppm, slots_ppm, rate_window_us;
  uint32_t error_ppm, error_status, rate_limit;
} drill_state;
/* provider: 0 the primary, then the backups; since_us: from the start of the fault's phase. */
drill_state drill_fault_at(const drill_config *c, const drill_fault *f, uint32_t provider, int64_t since_us);

/* Microseconds a request takes at full speed, when it does not wait. */
int64_t drill_takes_us(const drill_config *c);
/* Slots of one backup, and the bound on full answers under a fault (parts per million). */
uint32_t drill_backup_slots(const drill_config *c);
int64_t drill_bound(const drill_config *c, const drill_fault *f);

/* One run. stop (may be NULL) is looked at now and then: not 0 ends the run. FG_OK; FG_ERR_STATE: stopped; FG_ERR_NOMEM; what the card's loader or the
 * engine says. Any number of threads may run at once. */
int32_t drill_run(const drill_config *c, uint32_t fault, uint32_t strategy, uint64_t seed, int with_buckets, const _Atomic int32_t *stop,
                  drill_result *out, fg_error *err);
void drill_result_free(drill_result *r);

#endif /* FG_DRILL_H */
