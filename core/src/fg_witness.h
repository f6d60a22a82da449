/* Witnesses: one row for each attempt in flight, in its process's segment. A row knows when silence becomes unusual, when lack of progress
 * does, and when the attempt must be over; head.next_due tells any engine call of any process that some row is due.
 *
 * Gauges belong to rows: whoever takes a row out of use (its owner, or a scan past the total time-out) also takes it off the gauges, once.
 * An attempt without a row (none was free) is not a witness, but its gauge counts; only its owner can end it. */
#ifndef FG_WITNESS_H
#define FG_WITNESS_H

#include "fg_region.h"

enum { FG_ROW_FREE = 0, FG_ROW_SILENT = 1, FG_ROW_FLOWING = 2, FG_ROW_TAKING = 3, FG_ROW_QUIET = 4 }; /* a row waits for: first token, progress, the end only */

typedef struct fg_watch {     /* an attempt's handle; 40 bytes, kept in the call */
  uint64_t row;               /* 0: no row */
  uint32_t slot, route, account, generation; /* table indexes; account UINT32_MAX: none */
  uint32_t kind;              /* FG_LEARN_* */
  uint8_t retry, probe, live, zero;
  int64_t total_due;          /* t when the attempt must be over; 0 = no limit */
} fg_watch;

/* Counts the attempt in the gauges of route and account. slot, route, account, generation, kind, retry, probe, total_due are the caller's. */
void fg_witness_enter(fg_region *r, fg_watch *w);
/* Gives it a row: silent until first_due (0: its silence is not judged). Returns 0 when no row is free. */
int fg_witness_row(fg_region *r, fg_watch *w, int64_t first_due, int64_t t);

enum { FG_TOKEN_NONE = 0, FG_TOKEN_IN_TIME = 1, FG_TOKEN_UNFLAGGED = 2, FG_TOKEN_LATE = 3 };
/* First token: the row waits for progress until progress_due. IN_TIME (t <= first_due), UNFLAGGED (it had been flagged), LATE (late but
 * never flagged), NONE (no row, not the first, or already over). */
uint32_t fg_witness_token(fg_region *r, const fg_watch *w, int64_t progress_due, int64_t t);
/* More progress: moves the deadline, and takes the row out of `stuck`. Moves of less than a second are skipped. */
void fg_witness_progress(fg_region *r, const fg_watch *w, int64_t progress_due, int64_t t);

enum { FG_END_GONE = 0, FG_END_CLEAN = 1, FG_END_FLAGGED = 2 }; /* already over; over; over and its silence was flagged */
/* Ends the attempt: row free, gauges down. Twice is fine. w->live becomes 0. */
uint32_t fg_witness_end(fg_region *r, fg_watch *w);

enum { FG_OVERDUE_STALL = 1, FG_OVERDUE_STUCK = 2, FG_OVERDUE_TOTAL = 3 };
typedef struct fg_overdue { uint32_t what, slot, route, account, generation, kind, probe, flagged; int64_t at; } fg_overdue; /* at: the due time */
/* A scan: 1 when something may be overdue; then call next until it returns 0. Each call changes one row (flag first, evidence is the
 * caller's to add) and tells what happened. Rows of a process that promised a tick and is late are left alone. */
static inline int fg_witness_idle(const fg_region *r, int64_t t) { /* nothing can be overdue */
  uint64_t next = fg_load(&r->next_due);
  return next == 0 || (next > (uint64_t)t && next <= (uint64_t)t + FG_HOUR_MS);
}
int fg_witness_scan(fg_region *r, int64_t t);
typedef struct fg_scan_at { uint32_t slot, row; } fg_scan_at; /* zero to begin */
int fg_witness_scan_next(fg_region *r, fg_scan_at *at, int64_t t, fg_overdue *out);

/* Every engine call of a process begins here: if it promised a tick and is more than a second late, the silence was its own, and its rows
 * move by the excess. */
void fg_witness_present(fg_region *r, uint32_t slot, int64_t t);
/* The tick it was told to come at; 0 = promises none. */
void fg_witness_promise(fg_region *r, uint32_t slot, int64_t t_next, int64_t t);
/* fg_region_reap (fivegates.h) lives here: a dead process's rows and gauges are cleared, its probes given back; nothing becomes evidence. */

#endif /* FG_WITNESS_H */
