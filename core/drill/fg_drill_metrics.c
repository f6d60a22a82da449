/* What a run came to, from the records of its requests. */
#include "fg_drill_world.h"

#include <stdlib.h>
#include <string.h>

enum { GOOD_BUCKETS = 3 };
#define BUCKET_US INT64_C(10000000) /* of "back to normal" */
#define GOOD_PPM 950000
#define NORMAL_P95_PPM 1500000
#define PRIMARY_PPM 900000

typedef struct values {
  int64_t *v;
  uint32_t count;
} values;

static int ascending(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* The value of rank ceil(share * n). */
static int64_t quantile(values *x, int64_t ppm) {
  if (x->count == 0) {
    return DRILL_NONE;
  }
  qsort(x->v, x->count, sizeof *x->v, ascending);
  const int64_t rank = ((int64_t)x->count * ppm + 999999) / 1000000;
  return x->v[rank > 0 ? rank - 1 : 0];
}

static int64_t share(int64_t part, int64_t whole) { return whole > 0 ? part * 1000000 / whole : DRILL_NONE; }

static int answered(const world *w, const record *r) {
  return (r->outcome == OUT_FULL || r->outcome == OUT_SMALL) && r->latency_us <= w->c->deadline_us;
}
/* To the first token; a user whose attempt ran into a time-out waited at least that long. */
static int64_t waited(const record *r) { return r->first_token_us >= 0 ? r->first_token_us : r->latency_us; }
static int is_b(const record *r) { return r->population >= POP_B; }

typedef struct span {
  int64_t from, to;
} span;
static int within(const record *r, span s) { return r->arrived_at >= s.from && r->arrived_at < s.to; }

/* The first record of this time or later: records are in the order of arrival. */
static uint32_t first_at(const world *w, int64_t time) {
  uint32_t low = 0, high = w->record_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (w->record[middle].arrived_at < time) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static void of_a(const world *w, span fault, values *x, int64_t *m) {
  int64_t requests = 0, counted = 0, useful = 0, soon = 0, full = 0, small = 0, refused = 0, rest = 0, rest_useful = 0;
  for (uint32_t i = 0; i < w->record_count; i++) {
    const record *r = &w->record[i];
    if (is_b(r) || !within(r, fault)) {
      continue;
    }
    requests++;
    if (!r->adopter) {
      rest++;
      rest_useful += answered(w, r);
      continue;
    }
    counted++;
    if (answered(w, r)) {
      useful++;
      soon += r->latency_us <= w->c->interactive_us;
      full += r->outcome == OUT_FULL;
      small += r->outcome == OUT_SMALL;
      x->v[x->count++] = r->latency_us;
    }
    refused += r->outcome == OUT_REFUSED || r->outcome == OUT_PRESET;
  }
  m[DRILL_M_REQUESTS] = requests;
  m[DRILL_M_LOAD] = share(w->attempts_in_fault, requests);
  m[DRILL_M_USEFUL] = share(useful, counted);
  m[DRILL_M_WITHIN] = share(soon, counted);
  m[DRILL_M_FULL] = share(full, counted);
  m[DRILL_M_DEGRADED] = share(small, counted);
  m[DRILL_M_REFUSED] = share(refused, counted);
  m[DRILL_M_REST_USEFUL] = share(rest_useful, rest);
  m[DRILL_M_P50] = quantile(x, 500000);
  m[DRILL_M_P95] = quantile(x, 950000);
  x->count = 0;
  for (uint32_t i = 0; i < w->record_count; i++) {
    const record *r = &w->record[i];
    if (!is_b(r) && r->adopter && within(r, fault) && answered(w, r)) {
      x->v[x->count++] = r->first_token_us;
    }
  }
  m[DRILL_M_FIRST_TOKEN_P95] = quantile(x, 950000);
}

static void of_b(const world *w, span s, values *x, int64_t *success, int64_t *p95, int64_t *p99) {
  int64_t all = 0, good = 0;
  x->count = 0;
  for (uint32_t i = 0; i < w->record_count; i++) {
    const record *r = &w->record[i];
    if (is_b(r) && within(r, s)) {
      all++;
      good += answered(w, r);
      if (r->latency_us >= 0) {
        x->v[x->count++] = waited(r);
      }
    }
  }
  *success = share(good, all);
  *p95 = quantile(x, 950000);
  *p99 = quantile(x, 990000);
}

/* A's requests of one span: how many, answered, by the primary; p95 of the answers. */
static void piece(const world *w, span s, values *x, int64_t *count, int64_t *good, int64_t *primary, int64_t *p95) {
  *count = *good = *primary = 0;
  x->count = 0;
  for (uint32_t i = first_at(w, s.from); i < w->record_count && w->record[i].arrived_at < s.to; i++) {
    const record *r = &w->record[i];
    if (!is_b(r) && r->adopter) {
      ++*count;
      *good += answered(w, r);
      *primary += answered(w, r) && r->served_by == 0;
      if (answered(w, r)) {
        x->v[x->count++] = r->latency_us;
      }
    }
  }
  *p95 = quantile(x, 950000);
}

static void recovery(const world *w, values *x, int64_t *m) {
  int64_t count, good, primary, p95, warm;
  uint32_t run = 0;
  m[DRILL_M_NORMAL] = m[DRILL_M_PRIMARY] = DRILL_NONE;
  piece(w, (span){0, w->fault_at}, x, &count, &good, &primary, &warm);
  if (warm == DRILL_NONE) {
    return;
  }
  for (int64_t at = w->after_at; at + BUCKET_US <= w->end_at; at += BUCKET_US) {
    piece(w, (span){at, at + BUCKET_US}, x, &count, &good, &primary, &p95);
    if (count == 0) {
      continue;
    }
    const int normal = share(good, count) >= GOOD_PPM && p95 * 1000000 / NORMAL_P95_PPM <= warm;
    run = normal ? run + 1 : 0;
    if (run == GOOD_BUCKETS && m[DRILL_M_NORMAL] == DRILL_NONE) {
      m[DRILL_M_NORMAL] = at - w->after_at - (GOOD_BUCKETS - 1) * BUCKET_US;
    }
    if (m[DRILL_M_PRIMARY] == DRILL_NONE && share(primary, count) >= PRIMARY_PPM) {
      m[DRILL_M_PRIMARY] = at - w->after_at;
    }
  }
}

static uint32_t in_ms(int64_t us) { return us == DRILL_NONE ? UINT32_MAX : (uint32_t)(us / 1000); }

/* The buckets of the pictures; records are in the order of arrival. */
static void pictures(const world *w, values *x, drill_result *out) {
  uint32_t from = 0;
  for (uint32_t n = 0; n < out->buckets; n++) {
    drill_bucket *b = &out->bucket[n];
    uint32_t to = from;
    while (to < w->record_count && w->record[to].arrived_at < (n + 1) * (int64_t)DRILL_BUCKET_US) {
      to++;
    }
    x->count = 0;
    for (uint32_t i = from; i < to; i++) {
      const record *r = &w->record[i];
      const int good = answered(w, r);
      b->requests += !is_b(r);
      b->useful += !is_b(r) && good;
      b->full += !is_b(r) && good && r->outcome == OUT_FULL;
      b->b_requests += is_b(r) != 0;
      b->b_useful += is_b(r) && good;
      if (!is_b(r) && good) {
        x->v[x->count++] = r->latency_us;
      }
    }
    b->p50_ms = in_ms(quantile(x, 500000));
    b->p95_ms = in_ms(quantile(x, 950000));
    x->count = 0;
    for (uint32_t i = from; i < to; i++) {
      if (is_b(&w->record[i]) && w->record[i].latency_us >= 0) {
        x->v[x->count++] = waited(&w->record[i]);
      }
    }
    b->b_first_token_p95_ms = in_ms(quantile(x, 950000));
    from = to;
  }
}

void drill_measure(const world *w, drill_result *out) {
  int64_t *m = out->metric;
  values x = {malloc((w->record_count + 1) * sizeof(int64_t)), 0};
  for (uint32_t i = 0; i < DRILL_METRICS; i++) {
    m[i] = DRILL_NONE;
  }
  if (x.v == NULL) {
    return;
  }
  const span before = {0, w->fault_at}, during = {w->fault_at, w->after_at}, after = {w->after_at, w->end_at};
  of_a(w, during, &x, m);
  recovery(w, &x, m);
  of_b(w, before, &x, &m[DRILL_M_B_BEFORE], &m[DRILL_M_B_P95_BEFORE], &m[DRILL_M_B_P99_BEFORE]);
  of_b(w, during, &x, &m[DRILL_M_B_DURING], &m[DRILL_M_B_P95_DURING], &m[DRILL_M_B_P99_DURING]);
  of_b(w, after, &x, &m[DRILL_M_B_AFTER], &m[DRILL_M_B_P95_AFTER], &m[DRILL_M_B_P99_AFTER]);
  if (m[DRILL_M_B_P95_DURING] != DRILL_NONE && m[DRILL_M_B_P95_BEFORE] != DRILL_NONE) {
    m[DRILL_M_B_HARM] = m[DRILL_M_B_P95_DURING] - m[DRILL_M_B_P95_BEFORE];
  }
  m[DRILL_M_DETECTED] = w->detected_us >= 0 ? w->detected_us : DRILL_NONE;
  m[DRILL_M_ABANDONED] = w->abandoned;
  m[DRILL_M_ZOMBIE_TOKENS] = w->zombie_tokens;
  m[DRILL_M_WASTED_TOKENS] = w->wasted_tokens;
  m[DRILL_M_EXTRA] = share(w->wasted_tokens, w->delivered_tokens);
  int64_t answers = 0;
  for (uint32_t i = 0; i < w->record_count; i++) {
    answers += !is_b(&w->record[i]) && answered(w, &w->record[i]);
  }
  m[DRILL_M_COST] = answers > 0 ? w->spent_nusd / answers : DRILL_NONE;
  m[DRILL_M_BOUND] = drill_bound(w->c, w->fault);
  m[DRILL_M_EVENTS] = w->events;
  pictures(w, &x, out);
  free(x.v);
}
