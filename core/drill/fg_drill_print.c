/* The table for people, as CSV and as JSON. Everything is written from integers. */
#include "fg_drill_table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define NAME(N, word, unit) #word,
    DRILL_METRIC_MAP(NAME)};
static const uint32_t units[] = {
#define UNIT(N, word, unit) DRILL_UNIT_##unit,
    DRILL_METRIC_MAP(UNIT)};

const char *drill_metric_name(uint32_t metric) { return names[metric]; }
uint32_t drill_metric_unit(uint32_t metric) { return units[metric]; }

/* A fixed-point value with so many decimals of `unit`, rounded half away from zero. */
static void fixed(char *to, size_t cap, int64_t v, int64_t unit, uint32_t decimals) {
  int64_t ten = 1;
  for (uint32_t i = 0; i < decimals; i++) {
    ten *= 10;
  }
  const int64_t size = v < 0 ? -v : v, step = unit / ten, n = (size + step / 2) / step;
  (void)snprintf(to, cap, decimals != 0 ? "%s%" PRId64 ".%0*" PRId64 : "%s%" PRId64, v < 0 && n != 0 ? "-" : "", n / ten, (int)decimals,
                 n % ten);
}

void drill_value(char *to, size_t cap, uint32_t metric, int64_t v) {
  if (v == DRILL_NONE) {
    (void)snprintf(to, cap, "-");
    return;
  }
  switch (units[metric]) {
  case DRILL_UNIT_RATIO:
    fixed(to, cap, v, 1000000, 3);
    break;
  case DRILL_UNIT_SHARE: /* per cent */
    fixed(to, cap, v, 10000, 2);
    break;
  case DRILL_UNIT_TIME:
    fixed(to, cap, v, 1000000, 2);
    break;
  case DRILL_UNIT_MONEY: /* thousandths of a dollar */
    fixed(to, cap, v, 1000000, 3);
    break;
  default:
    (void)snprintf(to, cap, "%" PRId64, v);
  }
}

static const struct {
  uint32_t metric;
  const char *head;
} columns[] = {{DRILL_M_LOAD, "load"},     {DRILL_M_USEFUL, "useful%"}, {DRILL_M_WITHIN, "<20s%"},   {DRILL_M_FULL, "full%"},
               {DRILL_M_REFUSED, "no%"},   {DRILL_M_P50, "p50 s"},      {DRILL_M_P95, "p95 s"},      {DRILL_M_DETECTED, "found s"},
               {DRILL_M_NORMAL, "norm s"}, {DRILL_M_PRIMARY, "prim s"}, {DRILL_M_ABANDONED, "left"}, {DRILL_M_EXTRA, "extra%"},
               {DRILL_M_COST, "m$/ans"},   {DRILL_M_B_DURING, "B ok%"}, {DRILL_M_B_HARM, "B +s"},    {DRILL_M_BOUND, "bound%"}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

void drill_print_table(FILE *to, const drill_config *c, const drill_table *t) {
  char text[32];
  (void)fprintf(to, "%-17s %-11s", "fault", "strategy");
  for (uint32_t i = 0; i < COLUMNS; i++) {
    (void)fprintf(to, " %8s", columns[i].head);
  }
  (void)fputc('\n', to);
  for (uint32_t r = 0; r < t->rows; r++) {
    (void)fprintf(to, "%-17s %-11s", c->fault[t->row[r].fault].name, drill_strategy_name(t->row[r].strategy));
    for (uint32_t i = 0; i < COLUMNS; i++) {
      drill_value(text, sizeof text, columns[i].metric, t->row[r].mean[columns[i].metric]);
      (void)fprintf(to, " %8s", text);
    }
    (void)fputc('\n', to);
  }
}

void drill_print_csv(FILE *to, const drill_config *c, const drill_table *t) {
  char text[32];
  (void)fprintf(to, "fault,strategy,seeds");
  for (uint32_t m = 0; m < DRILL_METRICS; m++) {
    (void)fprintf(to, ",%s,%s_sd", names[m], names[m]);
  }
  (void)fputc('\n', to);
  for (uint32_t r = 0; r < t->rows; r++) {
    const drill_row *row = &t->row[r];
    (void)fprintf(to, "%s,%s,%u", c->fault[row->fault].name, drill_strategy_name(row->strategy), row->seeds);
    for (uint32_t m = 0; m < DRILL_METRICS; m++) {
      drill_value(text, sizeof text, m, row->mean[m]);
      (void)fprintf(to, ",%s", strcmp(text, "-") != 0 ? text : "");
      drill_value(text, sizeof text, m, row->sd[m]);
      (void)fprintf(to, ",%s", strcmp(text, "-") != 0 ? text : "");
    }
    (void)fputc('\n', to);
  }
}

/* ---- JSON */

typedef struct out {
  char *at;
  size_t length, room;
} out;

__attribute__((format(printf, 2, 3))) static void add(out *o, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (o->room - o->length < 512 && o->at != NULL) {
    char *more = realloc(o->at, o->room * 2);
    if (more == NULL) {
      free(o->at);
    }
    o->at = more;
    o->room *= 2;
  }
  if (o->at != NULL) {
    const int n = vsnprintf(o->at + o->length, o->room - o->length, format, args);
    o->length += n > 0 ? (size_t)n : 0;
  }
  va_end(args);
}

static void add_ms(out *o, uint32_t ms) {
  if (ms == UINT32_MAX) {
    add(o, ",null");
  } else {
    add(o, ",%u", ms);
  }
}

static void add_buckets(out *o, const drill_result *r) {
  add(o, ",\"buckets\":[");
  for (uint32_t i = 0; i < r->buckets; i++) {
    const drill_bucket *b = &r->bucket[i];
    add(o, "%s[%u,%u,%u,%u,%u,%u,%u", i != 0 ? "," : "", b->requests, b->attempts, b->useful, b->full, b->b_requests, b->b_useful,
        b->wasted_tokens);
    add_ms(o, b->p50_ms);
    add_ms(o, b->p95_ms);
    add_ms(o, b->b_first_token_p95_ms);
    add(o, ",%u,%u,%u,%u]", b->primary_busy, b->primary_queue, b->backup_busy, b->backup_queue);
  }
  add(o, "]");
}

char *drill_json(const drill_config *c, const drill_table *t) {
  out o = {malloc(4096), 0, 4096};
  if (o.at == NULL) {
    return NULL;
  }
  add(&o, "{\"seed\":%" PRIu64 ",\"seeds\":%u,\"config\":\"%016" PRIx64 "\",\"events\":%" PRId64, c->seed, c->seeds, drill_config_hash(c),
      t->events);
  add(&o,
      ",\"warm_s\":%" PRId64 ",\"fault_s\":%" PRId64 ",\"after_s\":%" PRId64
      ",\"bucket_s\":%d,\"backup_slots\":%u,\"primary_slots\":%u,\"rows\":[",
      c->warm_us / 1000000, c->fault_us / 1000000, c->after_us / 1000000, DRILL_BUCKET_US / 1000000, drill_backup_slots(c),
      c->primary_slots * c->scale);
  for (uint32_t r = 0; r < t->rows; r++) {
    const drill_row *row = &t->row[r];
    char mean[32], sd[32];
    add(&o, "%s{\"fault\":\"%s\",\"strategy\":\"%s\",\"metrics\":{", r != 0 ? "," : "", c->fault[row->fault].name,
        drill_strategy_name(row->strategy));
    for (uint32_t m = 0; m < DRILL_METRICS; m++) {
      drill_value(mean, sizeof mean, m, row->mean[m]);
      drill_value(sd, sizeof sd, m, row->sd[m]);
      if (row->measured[m] == 0) {
        add(&o, "%s\"%s\":null", m != 0 ? "," : "", names[m]);
      } else {
        add(&o, "%s\"%s\":{\"mean\":%s,\"sd\":%s,\"n\":%u}", m != 0 ? "," : "", names[m], mean, sd, row->measured[m]);
      }
    }
    add(&o, "}");
    if (row->first.bucket != NULL) {
      add_buckets(&o, &row->first);
    }
    add(&o, "}");
  }
  add(&o, "]}");
  return o.at;
}
