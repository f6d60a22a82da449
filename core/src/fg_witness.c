#include "fg_witness.h"
#include "fg_math.h"

enum { SEQ_BITS = 23, SEQ_MASK = (1 << SEQ_BITS) - 1, LATE_MS = 1000, TAKING_MS = 60000, NO_ACCOUNT = 0xffff };

static const int64_t longest_ms = 12 * FG_HOUR_MS; /* an attempt without a total time-out is forgotten after so long */

typedef struct due { int64_t t; uint32_t what, flag, seq; } due;

static due read_due(uint64_t w) {
  due d = {(int64_t)fg_bits(w, 0, FG_T_BITS), (uint32_t)fg_bits(w, 37, 3), (uint32_t)fg_bits(w, 40, 1), (uint32_t)fg_bits(w, 41, SEQ_BITS)};
  return d;
}

static uint64_t pack_due(due d) {
  return fg_put((uint64_t)(d.t > 0 ? d.t : 0), 0, FG_T_BITS) | fg_put(d.what, 37, 3) | fg_put(d.flag, 40, 1) | fg_put(d.seq & SEQ_MASK, 41, SEQ_BITS);
}

static int running(due d) { return d.what == FG_ROW_SILENT || d.what == FG_ROW_FLOWING || d.what == FG_ROW_QUIET; }

typedef struct facts { uint32_t route, account, generation, kind, retry, probe; int64_t total; } facts;

static facts read_facts(const fg_row *row) {
  uint64_t who = fg_load(&row->who), more = fg_load(&row->more);
  facts f = {(uint32_t)fg_bits(who, 48, 16), (uint32_t)fg_bits(more, 11, 16), (uint32_t)fg_bits(who, 34, 14) + 1, (uint32_t)fg_bits(who, 32, 2),
             (uint32_t)fg_bits(more, 1, 1), (uint32_t)fg_bits(more, 0, 1), (int64_t)fg_bits(more, 27, FG_T_BITS)};
  return f;
}

/* ---- gauges ---- */

static void count(fg_region *r, uint32_t slot, uint32_t route, uint32_t account, fg_gauge g, int up) {
  fg_route_rec *a = fg_region_route_at(r, route);
  fg_account_rec *b = account == NO_ACCOUNT ? NULL : fg_region_account_at(r, account);
  if (a != NULL) {
    (up ? fg_gauge_add : fg_gauge_sub)(&a->gauge[slot], g);
  }
  if (b != NULL && g.in_flight > 0) {
    fg_gauge whole = {g.in_flight, g.retries, 0, 0};
    (up ? fg_gauge_add : fg_gauge_sub)(&b->gauge[slot], whole);
  }
}

static void uncount(fg_region *r, uint32_t slot, uint32_t route, uint32_t account, uint32_t retry, due d) {
  fg_gauge g = {1, retry, d.what == FG_ROW_FLOWING, d.what == FG_ROW_FLOWING && d.flag};
  count(r, slot, route, account, g, 0);
}

static uint32_t account_of(const fg_watch *w) { return w->account < NO_ACCOUNT ? w->account : NO_ACCOUNT; }

void fg_witness_enter(fg_region *r, fg_watch *w) {
  fg_gauge g = {1, w->retry, 0, 0};
  uint64_t end = fg_load_relaxed(&r->slots_end);
  while (end <= w->slot && !fg_cas(&r->slots_end, &end, w->slot + 1)) {
  }
  w->row = 0;
  w->live = 1;
  count(r, w->slot, w->route, account_of(w), g, 1);
}

/* ---- rows ---- */

static void due_by(fg_region *r, int64_t t) { /* next_due is no later than t */
  uint64_t old = fg_load(&r->next_due);
  while ((old == 0 || old > (uint64_t)t) && !fg_cas(&r->next_due, &old, (uint64_t)fg_maxs(t, 1))) {
  }
}

/* Makes row i the caller's. The reaper looks only below rows_end, so that is raised first: killed in between, nothing is left behind. */
static int take(fg_process_rec *p, fg_row *row, uint32_t i, int64_t t, uint32_t *seq) {
  uint64_t old = fg_load(&row->due);
  due d = read_due(old);
  int lost = d.what == FG_ROW_TAKING && (d.t > t + LATE_MS || t - d.t > TAKING_MS); /* nobody is so slow: nonsense */
  if (running(d) || (d.what == FG_ROW_TAKING && !lost)) {
    return 0;
  }
  uint64_t end = fg_load_relaxed(&p->rows_end);
  while (end <= i && !fg_cas(&p->rows_end, &end, i + 1)) {
  }
  *seq = (d.seq + 1) & SEQ_MASK;
  due mine = {t, FG_ROW_TAKING, 0, *seq};
  return fg_cas(&row->due, &old, pack_due(mine));
}

int fg_witness_row(fg_region *r, fg_watch *w, int64_t first_due, int64_t t) {
  fg_process_rec *p = fg_region_process(r, w->slot);
  uint32_t rows = fg_region_rows(r), seq = 0, i = 0;
  uint32_t hint = (uint32_t)fg_min64(fg_load_relaxed(&p->row_hint), UINT32_MAX) % rows;
  fg_row *mine = fg_region_row(r, w->slot, 0), *row = NULL;
  for (uint32_t n = 0;; n++) {
    if (n == rows) {
      return 0;
    }
    i = hint + n < rows ? hint + n : hint + n - rows;
    row = mine + i;
    if (take(p, row, i, t, &seq)) {
      break;
    }
  }
  int64_t total = w->total_due > 0 ? fg_mins(w->total_due, t + longest_ms) : t + longest_ms;
  fg_store(&p->row_hint, i + 1);
  fg_store(&row->who, fg_put(w->route, 48, 16) | fg_put((w->generation - 1) & FG_GEN_MASK, 34, 14) | fg_put(w->kind, 32, 2) |
                          ((uint64_t)t & UINT32_MAX));
  fg_store(&row->more, fg_put((uint64_t)total, 27, FG_T_BITS) | fg_put(account_of(w), 11, 16) | fg_put(w->retry, 1, 1) | fg_put(w->probe, 0, 1));
  due d = {first_due > 0 ? fg_mins(first_due, total) : total, first_due > 0 ? FG_ROW_SILENT : FG_ROW_QUIET, 0, seq};
  fg_store(&row->due, pack_due(d));
  w->row = (uint64_t)seq << 32 | ((uint64_t)w->slot * rows + i + 1);
  due_by(r, d.t);
  return 1;
}

static fg_row *row_of(fg_region *r, const fg_watch *w, uint32_t *seq) {
  uint64_t at = (w->row & UINT32_MAX) - 1;
  if (w->row == 0 || !w->live || at >= (uint64_t)fg_region_procs(r) * fg_region_rows(r)) {
    return NULL;
  }
  *seq = (uint32_t)(w->row >> 32) & SEQ_MASK;
  return fg_region_row(r, 0, (uint32_t)at);
}

uint32_t fg_witness_token(fg_region *r, const fg_watch *w, int64_t progress_due, int64_t t) {
  uint32_t seq = 0;
  fg_row *row = row_of(r, w, &seq);
  uint64_t old = row != NULL ? fg_load(&row->due) : 0;
  while (row != NULL) {
    due d = read_due(old);
    if (d.seq != seq || (d.what != FG_ROW_SILENT && d.what != FG_ROW_QUIET)) {
      return FG_TOKEN_NONE;
    }
    int64_t total = read_facts(row).total;
    due next = {progress_due > 0 ? fg_mins(progress_due, total) : total, FG_ROW_FLOWING, 0, seq};
    if (fg_cas(&row->due, &old, pack_due(next))) {
      fg_gauge g = {0, 0, 1, 0};
      count(r, w->slot, w->route, NO_ACCOUNT, g, 1);
      due_by(r, next.t);
      return d.flag ? FG_TOKEN_UNFLAGGED : d.what == FG_ROW_SILENT && t <= d.t ? FG_TOKEN_IN_TIME : FG_TOKEN_LATE;
    }
  }
  return FG_TOKEN_NONE;
}

void fg_witness_progress(fg_region *r, const fg_watch *w, int64_t progress_due, int64_t t) {
  uint32_t seq = 0;
  fg_row *row = row_of(r, w, &seq);
  uint64_t old = row != NULL ? fg_load(&row->due) : 0;
  (void)t;
  while (row != NULL) {
    due d = read_due(old);
    const int64_t by = progress_due - d.t;
    if (d.seq != seq || d.what != FG_ROW_FLOWING || (!d.flag && by < 1000 && by > -1000)) {
      return;
    }
    due next = {fg_mins(progress_due, read_facts(row).total), FG_ROW_FLOWING, 0, seq};
    if (fg_cas(&row->due, &old, pack_due(next))) {
      if (d.flag) {
        fg_gauge g = {0, 0, 0, 1};
        count(r, w->slot, w->route, NO_ACCOUNT, g, 0);
      }
      due_by(r, next.t);
      return;
    }
  }
}

uint32_t fg_witness_end(fg_region *r, fg_watch *w) {
  if (!w->live) {
    return FG_END_GONE;
  }
  uint32_t seq = 0;
  fg_row *row = row_of(r, w, &seq);
  w->live = 0;
  if (row == NULL) {
    due none = {0, FG_ROW_FREE, 0, 0};
    uncount(r, w->slot, w->route, account_of(w), w->retry, none);
    return FG_END_CLEAN;
  }
  uint64_t old = fg_load(&row->due);
  for (;;) {
    due d = read_due(old);
    if (d.seq != seq || !running(d)) {
      return FG_END_GONE; /* a scan ended it at its total time-out */
    }
    due over = {0, FG_ROW_FREE, 0, seq};
    if (fg_cas(&row->due, &old, pack_due(over)) || FG_PLANTED(FG_PLANT_ENDS)) { /* only who frees the row counts it down */
      uncount(r, w->slot, w->route, account_of(w), w->retry, d);
      fg_process_rec *p = fg_region_process(r, w->slot);
      fg_store(&p->row_hint, ((uint32_t)w->row - 1) % fg_region_rows(r));
      return d.what == FG_ROW_SILENT && d.flag ? FG_END_FLAGGED : FG_END_CLEAN;
    }
  }
}

/* ---- scanning ---- */

int fg_witness_scan(fg_region *r, int64_t t) {
  uint64_t next = fg_load(&r->next_due);
  if (next == 0 || (next > (uint64_t)t && next <= (uint64_t)t + FG_HOUR_MS)) {
    return 0;
  }
  return fg_cas(&r->next_due, &next, (uint64_t)t + 1000); /* killed while scanning: the next scan is a second later */
}

/* Changes the row when it is overdue and says how. */
static int judge(fg_region *r, fg_row *row, uint32_t slot, int64_t t, fg_overdue *out) {
  uint64_t old = fg_load_relaxed(&row->due);
  due d = read_due(old);
  if (!running(d)) {
    return 0;
  }
  if (d.t > t) {
    due_by(r, d.t);
    return 0;
  }
  facts f = read_facts(row);
  due next = {f.total, d.what, 1, d.seq};
  uint32_t what = d.what == FG_ROW_FLOWING ? FG_OVERDUE_STUCK : FG_OVERDUE_STALL;
  if (f.total <= t || d.flag || d.what == FG_ROW_QUIET) {
    what = FG_OVERDUE_TOTAL;
    next.t = 0;
    next.what = FG_ROW_FREE;
    next.flag = 0;
  }
  if (!fg_cas(&row->due, &old, pack_due(next))) {
    return 0; /* it has just spoken, or ended */
  }
  if (what == FG_OVERDUE_TOTAL) {
    uncount(r, slot, f.route, f.account, f.retry, d);
  } else {
    if (what == FG_OVERDUE_STUCK) {
      fg_gauge g = {0, 0, 0, 1};
      count(r, slot, f.route, NO_ACCOUNT, g, 1);
    }
    due_by(r, f.total);
  }
  fg_overdue o = {what, slot, f.route, f.account == NO_ACCOUNT ? UINT32_MAX : f.account, f.generation, f.kind, f.probe,
                  d.what == FG_ROW_SILENT && d.flag, d.t};
  *out = o;
  return 1;
}

static int is_late(const fg_process_rec *p, int64_t t) { /* it promised a tick and has not come: its silence may be its own */
  uint64_t promised = fg_load_relaxed(&p->promised);
  return promised != 0 && promised + LATE_MS < (uint64_t)t;
}

int fg_witness_scan_next(fg_region *r, fg_scan_at *at, int64_t t, fg_overdue *out) {
  uint32_t slots = (uint32_t)fg_min64(fg_load_relaxed(&r->slots_end), fg_region_procs(r)), rows = fg_region_rows(r);
  for (; at->slot < slots; at->slot++, at->row = 0) {
    fg_process_rec *p = fg_region_process(r, at->slot);
    if (is_late(p, t)) {
      continue;
    }
    uint32_t end = (uint32_t)fg_min64(fg_load_relaxed(&p->rows_end), rows);
    while (at->row < end) {
      if (judge(r, fg_region_row(r, at->slot, at->row++), at->slot, t, out)) {
        return 1;
      }
    }
  }
  return 0;
}

/* ---- processes ---- */

static void excuse(fg_region *r, uint32_t slot, fg_process_rec *p, int64_t excess) {
  uint32_t end = (uint32_t)fg_min64(fg_load_relaxed(&p->rows_end), fg_region_rows(r));
  for (uint32_t i = 0; i < end; i++) {
    fg_row *row = fg_region_row(r, slot, i);
    uint64_t old = fg_load(&row->due);
    for (;;) {
      due d = read_due(old);
      if (d.flag || (d.what != FG_ROW_SILENT && d.what != FG_ROW_FLOWING)) {
        break;
      }
      due next = {fg_mins(d.t + excess, read_facts(row).total), d.what, 0, d.seq};
      if (fg_cas(&row->due, &old, pack_due(next))) {
        break;
      }
    }
  }
}

void fg_witness_present(fg_region *r, uint32_t slot, int64_t t) {
  fg_process_rec *p = fg_region_process(r, slot);
  uint64_t promised = p != NULL ? fg_load_relaxed(&p->promised) : 0;
  if (promised == 0 || promised > (uint64_t)t) {
    return;
  }
  if (promised + LATE_MS >= (uint64_t)t) {
    (void)fg_cas(&p->promised, &promised, (uint64_t)t + LATE_MS); /* it is here: the tick itself may follow */
    return;
  }
  uint64_t excused = fg_load(&p->excused);
  if (excused != promised && fg_cas(&p->excused, &excused, promised)) {
    excuse(r, slot, p, t - (int64_t)promised);
    (void)fg_cas(&p->promised, &promised, (uint64_t)t + LATE_MS); /* only now may they be judged */
  }
}

void fg_witness_promise(fg_region *r, uint32_t slot, int64_t t_next, int64_t t) {
  fg_process_rec *p = fg_region_process(r, slot);
  if (p != NULL) {
    fg_store(&p->promised, t_next > t ? (uint64_t)t_next : 0);
  }
}

int32_t fg_region_reap(fg_region *r, uint32_t slot, int64_t now_ms) {
  int64_t t;
  fg_process_rec *p = r != NULL ? fg_region_process(r, slot) : NULL;
  if (p == NULL || fg_region_time(r, now_ms, &t) != FG_OK) {
    return FG_ERR_ARG;
  }
  uint32_t rows = fg_region_rows(r);
  uint32_t end = (uint32_t)fg_min64(fg_load(&p->rows_end), rows);
  for (uint32_t i = 0; i < end; i++) {
    fg_row *row = fg_region_row(r, slot, i);
    uint64_t old = fg_load(&row->due);
    for (;;) {
      due d = read_due(old);
      due over = {0, FG_ROW_FREE, 0, d.seq};
      facts f = read_facts(row);
      if (d.what == FG_ROW_FREE) {
        break;
      }
      if (fg_cas(&row->due, &old, pack_due(over))) {
        fg_route_rec *route = running(d) && f.probe ? fg_region_route_at(r, f.route) : NULL;
        if (route != NULL) {
          fg_breaker_give_back(&route->breaker, f.generation, t);
        }
        break;
      }
    }
  }
  uint32_t n = fg_region_routes(r);
  for (uint32_t i = 0; i < n; i++) {
    fg_word *g = &fg_region_route_at(r, i)->gauge[slot];
    if (fg_load_relaxed(g) != 0) {
      fg_store(g, 0);
    }
  }
  fg_account_rec *account;
  for (uint32_t i = 0; (account = fg_region_account_at(r, i)) != NULL; i++) {
    if (fg_load_relaxed(&account->gauge[slot]) != 0) {
      fg_store(&account->gauge[slot], 0);
    }
  }
  fg_store(&p->promised, 0);
  fg_store(&p->excused, 0);
  fg_store(&p->row_hint, 0);
  fg_store(&p->rows_end, 0);
  return FG_OK;
}
