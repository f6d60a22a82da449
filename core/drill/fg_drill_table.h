/* Many runs: what they are, doing them on several threads, and their results as text. */
#ifndef FG_DRILL_TABLE_H
#define FG_DRILL_TABLE_H

#include "fg_drill.h"
#include <stdio.h>

typedef struct drill_row { /* one fault and one strategy over all seeds */
  uint32_t fault, strategy, seeds;
  int64_t mean[DRILL_METRICS], sd[DRILL_METRICS]; /* DRILL_NONE: in no run */
  uint32_t measured[DRILL_METRICS];               /* runs it was measured in */
  drill_result first;                             /* of the first seed: its buckets, when asked for */
} drill_row;

typedef struct drill_table {
  drill_row *row;
  uint32_t rows;
  int64_t events;
} drill_table;

/* Runs everything c asks for. progress (may be NULL) is called by the calling thread, after each run and ten times a second; it answers not 0 to
 * stop. FG_OK, FG_ERR_STATE: stopped; FG_ERR_NOMEM; what drill_run says. */
typedef int (*drill_progress)(void *ctx, uint32_t done, uint32_t of);
int32_t drill_table_run(const drill_config *c, uint32_t threads, int with_buckets, drill_progress progress, void *ctx, drill_table *out,
                        fg_error *err);
void drill_table_free(drill_table *t);

const char *drill_metric_name(uint32_t metric);
uint32_t drill_metric_unit(uint32_t metric);
/* A value for people, in the unit of its metric; "-" for none. */
void drill_value(char *to, size_t cap, uint32_t metric, int64_t value);

void drill_print_table(FILE *to, const drill_config *c, const drill_table *t);
void drill_print_csv(FILE *to, const drill_config *c, const drill_table *t);
/* JSON as text, freed by the caller; NULL: no memory. */
char *drill_json(const drill_config *c, const drill_table *t);

#endif /* FG_DRILL_TABLE_H */
