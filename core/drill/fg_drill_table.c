/* Runs are independent: threads take the next one, results stand in the order of the table, so the text does not depend on the threads. */
#include "fg_drill_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS_MAX = 64, LOOK_NS = 100000000 };

typedef struct work {
  const drill_config *c;
  drill_table *table;
  drill_result *result; /* row by row, seed by seed */
  uint32_t next, done, total;
  int with_buckets;
  pthread_mutex_t lock;
  pthread_cond_t news;
  _Atomic int32_t stop;
  int32_t rc;
  fg_error *err;
} work;

static void ended(work *w, int32_t rc, const fg_error *said) {
  (void)pthread_mutex_lock(&w->lock);
  w->done++;
  if (rc != FG_OK && w->rc == FG_OK) {
    w->rc = rc;
    w->stop = 1;
    if (w->err != NULL) {
      *w->err = *said;
    }
  }
  (void)pthread_cond_signal(&w->news);
  (void)pthread_mutex_unlock(&w->lock);
}

static void *take_runs(void *arg) {
  work *w = arg;
  for (;;) {
    (void)pthread_mutex_lock(&w->lock);
    const uint32_t i = w->stop ? w->total : w->next;
    w->next += i < w->total;
    (void)pthread_mutex_unlock(&w->lock);
    if (i >= w->total) {
      return NULL;
    }
    const drill_row *r = &w->table->row[i / w->c->seeds];
    const uint32_t nth = i % w->c->seeds;
    fg_error said = {.size = sizeof said};
    const int32_t rc =
        drill_run(w->c, r->fault, r->strategy, w->c->seed + nth, w->with_buckets && nth == 0, &w->stop, &w->result[i], &said);
    ended(w, rc, &said);
  }
}

/* The calling thread only waits: it is the one that hears of signals, and that a language with a lock of its own can call back in. */
static void wait_for_runs(work *w, drill_progress progress, void *ctx) {
  uint32_t told = 0;
  (void)pthread_mutex_lock(&w->lock);
  while (w->done < w->total && !(w->stop && w->rc != FG_OK)) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&w->news, &w->lock, &until);
    const uint32_t done = w->done;
    (void)pthread_mutex_unlock(&w->lock);
    const int stop = progress != NULL && progress(ctx, done, w->total) != 0;
    told = done;
    (void)pthread_mutex_lock(&w->lock);
    if (stop && w->rc == FG_OK) {
      w->rc = FG_ERR_STATE;
      w->stop = 1;
    }
  }
  (void)pthread_mutex_unlock(&w->lock);
  if (progress != NULL && w->rc == FG_OK && told != w->total && progress(ctx, w->total, w->total) != 0) {
    w->rc = FG_ERR_STATE; /* the last run ended before anyone looked: its end is told all the same */
  }
}

static int64_t root(int64_t x) {
  int64_t r = 0;
  for (int64_t bit = (int64_t)1 << 31; bit != 0; bit >>= 1) {
    if ((r + bit) * (r + bit) <= x) {
      r += bit;
    }
  }
  return r;
}

/* Mean and sample standard deviation, over the runs that have the value. Deviations are scaled so that their squares fit. */
static void sum_up(drill_row *r, const drill_result *runs) {
  for (uint32_t m = 0; m < DRILL_METRICS; m++) {
    int64_t sum = 0, n = 0, far = 0;
    for (uint32_t i = 0; i < r->seeds; i++) {
      const int64_t v = runs[i].metric[m];
      sum += v != DRILL_NONE ? v : 0;
      n += v != DRILL_NONE;
    }
    r->measured[m] = (uint32_t)n;
    r->mean[m] = r->sd[m] = DRILL_NONE;
    if (n == 0) {
      continue;
    }
    r->mean[m] = sum / n;
    for (uint32_t i = 0; i < r->seeds; i++) {
      const int64_t v = runs[i].metric[m], off = v > r->mean[m] ? v - r->mean[m] : r->mean[m] - v;
      far = v != DRILL_NONE && off > far ? off : far;
    }
    int64_t scale = 1, squares = 0;
    while (far / scale > 1000000) {
      scale *= 10;
    }
    for (uint32_t i = 0; i < r->seeds; i++) {
      const int64_t off = runs[i].metric[m] != DRILL_NONE ? (runs[i].metric[m] - r->mean[m]) / scale : 0;
      squares += off * off;
    }
    r->sd[m] = n > 1 ? root(squares / (n - 1)) * scale : 0;
  }
}

static int plan(const drill_config *c, drill_table *t) {
  t->row = calloc((size_t)c->fault_count * DRILL_STRATEGIES, sizeof *t->row);
  for (uint32_t f = 0; f < c->fault_count && t->row != NULL; f++) {
    for (uint32_t s = 0; s < DRILL_STRATEGIES; s++) {
      if (c->strategies >> s & 1) {
        t->row[t->rows++] = (drill_row){.fault = f, .strategy = s, .seeds = c->seeds};
      }
    }
  }
  return t->row != NULL;
}

int32_t drill_table_run(const drill_config *c, uint32_t threads, int with_buckets, drill_progress progress, void *ctx, drill_table *out,
                        fg_error *err) {
  memset(out, 0, sizeof *out);
  work w = {.c = c, .table = out, .with_buckets = with_buckets, .err = err};
  if (!plan(c, out)) {
    return FG_ERR_NOMEM;
  }
  w.total = out->rows * c->seeds;
  w.result = calloc(w.total, sizeof *w.result);
  if (w.result == NULL) {
    drill_table_free(out);
    return FG_ERR_NOMEM;
  }
  (void)pthread_mutex_init(&w.lock, NULL);
  (void)pthread_cond_init(&w.news, NULL);
  pthread_t thread[THREADS_MAX];
  uint32_t started = 0;
  threads = threads < THREADS_MAX ? threads : THREADS_MAX;
  while (started < threads && started < w.total && pthread_create(&thread[started], NULL, take_runs, &w) == 0) {
    started++;
  }
  if (started == 0) {
    (void)take_runs(&w); /* no thread to be had */
  }
  wait_for_runs(&w, progress, ctx);
  for (uint32_t i = 0; i < started; i++) {
    (void)pthread_join(thread[i], NULL);
  }
  (void)pthread_cond_destroy(&w.news);
  (void)pthread_mutex_destroy(&w.lock);
  for (uint32_t r = 0; r < out->rows; r++) {
    drill_result *runs = &w.result[r * c->seeds];
    sum_up(&out->row[r], runs);
    out->row[r].first = runs[0];
    for (uint32_t i = 0; i < c->seeds; i++) {
      out->events += w.rc == FG_OK ? runs[i].metric[DRILL_M_EVENTS] : 0;
    }
  }
  free(w.result); /* the buckets are the rows' now */
  if (w.rc != FG_OK) {
    drill_table_free(out);
  }
  return w.rc;
}

void drill_table_free(drill_table *t) {
  for (uint32_t i = 0; i < t->rows; i++) {
    drill_result_free(&t->row[i].first);
  }
  free(t->row);
  memset(t, 0, sizeof *t);
}
