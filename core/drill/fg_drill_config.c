/* A configuration: what it is when nothing is said, and what is impossible together. */
#include "fg_drill_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX 20000000

void drill_config_default(drill_config *c) {
  static const char *const faults[] = {"brownout", "blackout", "ratelimit", "trickle", "brownout_layered", "brownout_cancel"};
  memset(c, 0, sizeof *c);
  c->seed = 1;
  c->seeds = 1;
  c->warm_us = 120 * SECOND;
  c->fault_us = 600 * SECOND;
  c->after_us = 360 * SECOND;
  c->scale = c->tenants = c->backups = c->shared = c->ladder = 1;
  c->a_milli = 4000;
  c->b_milli = 2000;
  c->adopters_ppm = 1000000;
  c->prompt_tokens = 512;
  c->output_tokens = 256;
  c->first_token_us = 144000;
  c->prompt_rate = 2000;
  c->rate_milli = 71110;
  c->primary_slots = 24;
  c->spare_ppm = 875000;
  c->small_ppm = 250000;
  c->error_us = 40000;
  c->first_token_timeout_us = 10 * SECOND;
  c->attempt_timeout_us = 30 * SECOND;
  c->deadline_us = 60 * SECOND;
  c->interactive_us = 20 * SECOND;
  c->price_input = INT64_C(2500000000);
  c->price_output = INT64_C(10000000000);
  c->oracle_ppm = 950000;
  c->report_us = 250000;
  c->strategies = 1 << DRILL_NAIVE | 1 << DRILL_BACKOFF | 1 << DRILL_DISCIPLINED | 1 << DRILL_FIVEGATES | 1 << DRILL_ORACLE;
  for (c->fault_count = 0; c->fault_count < sizeof faults / sizeof faults[0]; c->fault_count++) {
    (void)drill_fault_named(faults[c->fault_count], &c->fault[c->fault_count]);
  }
}

void drill_config_free(drill_config *c) {
  free(c->card);
  c->card = NULL;
}

static const char *const strategy_names[] = {
#define WORD(n, N, word) #word,
    DRILL_STRATEGY_MAP(WORD)};

const char *drill_strategy_name(uint32_t strategy) { return strategy_names[strategy]; }

int drill_strategy_named(const char *name, uint32_t *out) {
  for (uint32_t i = 0; i < DRILL_STRATEGIES; i++) {
    if (strcmp(strategy_names[i], name) == 0) {
      *out = i;
      return 1;
    }
  }
  return 0;
}

/* Requests of a run under this fault, about. */
static int64_t requests_of(const drill_config *c, const drill_fault *f) {
  const int64_t seconds = (c->warm_us + c->fault_us + c->after_us) / SECOND + 1;
  const int64_t a = (int64_t)c->a_milli * c->scale, b = (int64_t)c->b_milli * c->backups * c->scale;
  const int64_t burst = f->burst_every_us != 0 ? a / 1000 * (c->fault_us / SECOND) * (f->burst_ppm / 1000000) : 0;
  return (a + b) / 1000 * seconds + burst;
}

static int32_t impossible(fg_error *err, const char *path, const char *message) {
  if (err != NULL) {
    err->code = FG_ERR_RANGE;
    (void)snprintf(err->path, sizeof err->path, "%s", path);
    (void)snprintf(err->message, sizeof err->message, "%s", message);
  }
  return FG_ERR_RANGE;
}

/* NULL, or what is wrong; *key is where in the fault. */
static const char *wrong_fault(const drill_config *c, const drill_fault *f, const char **key) {
  *key = "burst";
  if (f->burst_every_us != 0 && (f->burst_length_us == 0 || f->burst_length_us > f->burst_every_us || f->burst_ppm == 0)) {
    return "needs every_s, length_s and times, and length_s is at most every_s";
  }
  *key = "effects";
  for (uint32_t n = 0; n < f->count; n++) {
    const drill_effect *e = &f->effect[n];
    if (e->start_us >= c->fault_us || e->start_us + e->length_us > c->fault_us) {
      return "an effect must lie within the fault's phase: start_s + length_s is at most phases.fault_s";
    }
  }
  *key = "burst";
  return f->burst_every_us != 0 && requests_of(c, f) > REQUESTS_MAX ? "makes more than 20 million requests; lower times, or population"
                                                                    : NULL;
}

int32_t drill_config_check(const drill_config *c, fg_error *err) {
  if (c->deadline_us < c->first_token_timeout_us) {
    return impossible(err, "client.first_token_s", "must not be longer than deadline_s");
  }
  if (drill_takes_us(c) > DAY) {
    return impossible(err, "speed", "one request takes more than a day; raise prompt_per_s or tokens_per_s, or make it smaller");
  }
  if (drill_backup_slots(c) == 0 && c->b_milli != 0) {
    return impossible(err, "slots.backup", "a backup without a slot cannot serve its own users; raise it, or spare");
  }
  if (requests_of(c, &(drill_fault){0}) > REQUESTS_MAX) {
    return impossible(err, "population", "more than 20 million requests; lower the rates, the scale or the phases");
  }
  for (uint32_t i = 0; i < c->fault_count; i++) {
    char path[64];
    const char *key;
    const char *wrong = wrong_fault(c, &c->fault[i], &key);
    if (wrong != NULL) {
      (void)snprintf(path, sizeof path, "faults[%u].%s", i, key);
      return impossible(err, path, wrong);
    }
  }
  return FG_OK;
}
