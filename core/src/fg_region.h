/* The region: one flat block of 64-bit atomics that outlives calls, engines and processes.
 *
 * head, route records, account records, workflow records, processes, witness rows. Records are found by open addressing on
 * their key and born by a CAS of it into zeroed memory: there is no half-made record. Time inside is t = ms since head.base
 * (first now - 1 h). Records may move to another owner after a day idle: look one up when it is needed, keep no pointer. */
#ifndef FG_REGION_H
#define FG_REGION_H

#include "fivegates.h"
#include "fg_atomic.h"
#include "fg_breaker.h"
#include "fg_gauge.h"
#include "fg_math.h"
#include "fg_sketch.h"
#include "fg_spill.h"

#define FG_REGION_MAGIC UINT64_C(0x314e4f4947455246) /* "FREGION1" as bytes */
enum { FG_REGION_LAYOUT = 1, FG_HOUR_MS = 3600000, FG_DAY_MS = 86400000, FG_WINDOW_BUCKETS = 12 };

/* Totals of a route since its record was made (fetch_add; status and metrics only). */
enum {
  FG_ROUTE_ATTEMPTS, FG_ROUTE_SUCCESSES, FG_ROUTE_FAILURES, FG_ROUTE_RATE, FG_ROUTE_QUOTA, FG_ROUTE_AUTH, FG_ROUTE_LIFE, FG_ROUTE_NEUTRAL,
  FG_ROUTE_OPENED, FG_ROUTE_STALLS, FG_ROUTE_STUCK, FG_ROUTE_LOST, FG_ROUTE_PROBES, FG_ROUTE_TOKENS_IN, FG_ROUTE_TOKENS_OUT, FG_ROUTE_NUSD,
  FG_ROUTE_HELD, /* nano-dollars held by the attempts that succeeded: the mean worst case */
  FG_ROUTE_COUNTS = 24
};
/* Totals of a workflow, in the order of fg_workflow_view. */
enum {
  FG_WF_CALLS, FG_WF_PRIMARY_SUCCESS, FG_WF_RETRY_RECOVERY, FG_WF_FALLBACK_RECOVERY, FG_WF_DEGRADED, FG_WF_FAILED_CLOSED, FG_WF_QUEUED,
  FG_WF_CANCELLED, FG_WF_COUNTS = 16
};

typedef struct fg_route_rec { /* 2,048 bytes + a gauge word for each process slot */
  fg_word key, used;          /* used: t of the last use, to the minute */
  fg_word breaker, evidence;  /* fg_breaker.h, fg_stall.h */
  fg_word not_before;         /* t:37: a Retry-After all waiters respect */
  fg_word retry;              /* fg_bucket.h */
  fg_word latch, latch_hint;  /* breaker format; t:37 of the reset the provider named */
  fg_word window[FG_WINDOW_BUCKETS]; /* fg_window.h: ok, failed */
  fg_word rpm, tpm;           /* fg_gcra.h */
  fg_word cadence, cadence_usual; /* fg_cadence.h */
  fg_word limit, crowd;       /* fg_limit.h */
  fg_word pace, pace_seen, pace_tat; /* fg_pace.h; fg_gcra.h */
  fg_word learned;            /* t of the latest first token learned where that is done sparingly */
  fg_word probes;             /* fg_bucket.h: what pays for probes; 0 = full, as it is until one was made */
  fg_word spare[9];
  fg_word count[FG_ROUTE_COUNTS];
  fg_learn learn[FG_LEARN_KINDS]; /* fg_sketch.h */
  fg_word gauge[];            /* fg_gauge.h; one a process slot */
} fg_route_rec;
_Static_assert(sizeof(fg_route_rec) == 2048, "a route record without gauges is 2,048 bytes");

typedef struct fg_account_rec { /* 128 bytes + a gauge word for each process slot */
  fg_word key, used;
  fg_word auth, quota;        /* latches, breaker format */
  fg_word quota_hint;         /* t:37 of the reset the provider named */
  fg_word not_before, rpm, tpm;
  fg_word spare[8];
  fg_word gauge[];
} fg_account_rec;
_Static_assert(sizeof(fg_account_rec) == 128, "an account record without gauges is 128 bytes");

typedef struct fg_workflow_rec {
  fg_word key, used;
  fg_word retries_hour, spend_day; /* fg_spend.h */
  fg_word spill[FG_SPILL_BUCKETS]; /* fg_spill.h */
  fg_word count[FG_WF_COUNTS];
  fg_word spare[8];
} fg_workflow_rec;
_Static_assert(sizeof(fg_workflow_rec) == 256, "a workflow record is 256 bytes");

typedef struct fg_process_rec {
  fg_word seen;               /* t of its last engine call, to the second; 0 = slot never used */
  fg_word promised;           /* t of the tick it was told to come back at; 0 = it promised none */
  fg_word rows_end;           /* rows [0, rows_end) have been used */
  fg_word row_hint;           /* where to look for a free row first */
  fg_word excused;            /* the promise whose lateness was already forgiven */
  fg_word spare[3];
} fg_process_rec;
_Static_assert(sizeof(fg_process_rec) == 64, "a process record is 64 bytes");

typedef struct fg_row {       /* a witness: an attempt in flight; see fg_witness.h */
  fg_word due;                /* due:37 what:3 flag:1 seq:23; changed only by CAS, published last */
  fg_word who;                /* route:16 gen:14 kind:2 t0:32 */
  fg_word more;               /* total_due:37 account:16 retry:1 probe:1 */
  fg_word spare;
} fg_row;

struct fg_region {            /* the head; sizes are written once, as words, so that racing openers agree */
  fg_word magic, layout;      /* layout:32 head bytes:32 */
  fg_word bytes, routes, accounts, workflows, procs, rows; /* slots (a power of two for records), not the records asked for */
  fg_word boot[2];
  fg_word base;               /* now_ms of t = 0, plus 2^62 so that it is never 0 */
  fg_word high;               /* latest t seen */
  fg_word wall;               /* unix ms of t = 0 + 1; 0 = no wall clock */
  fg_word next_due;           /* t when a row may be overdue; 0 = none was ever added */
  fg_word retries_hour, spend_day; /* of everybody */
  fg_word slots_end;          /* process slots [0, slots_end) have been used */
  fg_word spare[15];
};
_Static_assert(sizeof(struct fg_region) == 256, "the head is 256 bytes");

/* Sizes and the start of each table. */
uint32_t fg_region_procs(const fg_region *r);
uint32_t fg_region_rows(const fg_region *r);   /* of one process */
uint32_t fg_region_routes(const fg_region *r); /* slots */
/* Found, or made; NULL when the table is full of records used within a day. key: any value (0 and ~0 are mapped away). */
fg_route_rec *fg_region_route(fg_region *r, uint64_t key, int64_t t);
fg_account_rec *fg_region_account(fg_region *r, uint64_t key, int64_t t);
fg_workflow_rec *fg_region_workflow(fg_region *r, uint64_t key, int64_t t);
fg_process_rec *fg_region_process(fg_region *r, uint32_t slot);      /* NULL when slot is out of range */
fg_row *fg_region_row(fg_region *r, uint32_t slot, uint32_t index);  /* no check */
fg_route_rec *fg_region_route_at(fg_region *r, uint32_t index);      /* by table index; NULL out of range */
fg_account_rec *fg_region_account_at(fg_region *r, uint32_t index);
uint32_t fg_region_route_index(const fg_region *r, const fg_route_rec *rec);
uint32_t fg_region_account_index(const fg_region *r, const fg_account_rec *rec);

/* now_ms -> t. Time that goes back (by less than an hour) stays at the latest t seen. Returns FG_OK, or FG_ERR_ARG when now_ms cannot be
 * this region's monotonic clock (wall time, another boot). */
int32_t fg_region_time(fg_region *r, int64_t now_ms, int64_t *t);
int64_t fg_region_latest(const fg_region *r);  /* latest t seen: the clock of those who have none */
/* Wall clock: unix ms of now. Stored only when it moved by more than a second. */
void fg_region_set_wall(fg_region *r, int64_t unix_ms, int64_t t);
int64_t fg_region_wall(const fg_region *r, int64_t t); /* unix ms of t; 0 = unknown */

/* A record in use: no one takes it over. used: the word beside its key, a t to the minute. */
static inline void fg_region_touch(fg_word *used, int64_t t) {
  uint64_t last = fg_load_relaxed(used);
  if ((uint64_t)t > last + 60000 || last > (uint64_t)t + FG_HOUR_MS) {
    fg_store(used, (uint64_t)t);
  }
}

static inline void fg_count(fg_word *w, uint64_t n) {
  if (n != 0) {
    (void)fg_fetch_add(w, n);
  }
}
/* Raises the t kept in a word; a value beyond t + bound_ms is nonsense and replaced. */
void fg_word_raise(fg_word *w, int64_t value, int64_t t, int64_t bound_ms);
/* A t further ahead than bound_ms is nonsense: cleared before time makes it look true. */
static inline void fg_word_verify(fg_word *w, int64_t t, int64_t bound_ms) {
  uint64_t v = fg_load(w);
  if (v > (uint64_t)t + (uint64_t)bound_ms) {
    (void)fg_cas(w, &v, 0); /* lost: someone has just written it */
  }
}
/* The t kept in a word, 0 when it is past or nonsense. */
static inline int64_t fg_t_future(uint64_t v, int64_t t, int64_t bound_ms) {
  return v > (uint64_t)t && v - (uint64_t)t <= (uint64_t)bound_ms && v <= (uint64_t)FG_T_MAX ? (int64_t)v : 0;
}
static inline int64_t fg_word_future(const fg_word *w, int64_t t, int64_t bound_ms) { return fg_t_future(fg_load(w), t, bound_ms); }

#endif /* FG_REGION_H */
