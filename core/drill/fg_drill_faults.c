/* The faults that have names, and what a fault makes of a provider. */
#include "fg_drill.h"

#include <stdio.h>
#include <string.h>

#define SLOW(times) .prefill_ppm = (times)*INT64_C(1000000), .decode_ppm = (times)*INT64_C(1000000)
#define SAME SLOW(1)
#define WHOLE .slots_ppm = 1000000
#define SECOND INT64_C(1000000)

static const drill_fault table[] = {
    {.name = "brownout", .count = 1, .effect = {{SLOW(3), WHOLE}}},
    {.name = "blackout", .count = 1, .effect = {{SAME, WHOLE, .error_ppm = 1000000, .error_status = 503}}},
    {.name = "ratelimit", .count = 1, .effect = {{SAME, WHOLE, .rate_limit = 2, .rate_window_us = SECOND}}},
    {.name = "trickle", .count = 1, .effect = {{.prefill_ppm = 1000000, .decode_ppm = 70 * SECOND, WHOLE}}},
    {.name = "brownout_layered", .count = 1, .effect = {{SLOW(3), WHOLE}}, .hidden_tries = 2},
    {.name = "brownout_cancel", .count = 1, .effect = {{SLOW(3), WHOLE}}, .cancel_frees = 1},
    /* not in the article */
    {.name = "none"},
    {.name = "burst", .burst_every_us = 60 * SECOND, .burst_length_us = 10 * SECOND, .burst_ppm = 2000000},
    {.name = "errors", .count = 1, .effect = {{SAME, WHOLE, .error_ppm = 300000, .error_status = 500}}},
    {.name = "prefill", .count = 1, .effect = {{.prefill_ppm = 20 * SECOND, .decode_ppm = 1000000, WHOLE}}},
    {.name = "ratelimit_minute", .count = 1, .effect = {{SAME, WHOLE, .rate_limit = 120, .rate_window_us = 60 * SECOND}}},
    {.name = "short",
     .count = 1,
     .effect = {{SAME, WHOLE, .error_ppm = 1000000, .error_status = 503, .start_us = 60 * SECOND, .length_us = 15 * SECOND}}},
    {.name = "ramp", .count = 1, .effect = {{SLOW(4), WHOLE, .ramp_us = 300 * SECOND}}},
    {.name = "slots", .count = 1, .effect = {{SAME, .slots_ppm = 333333}}},
    {.name = "backup_blackout",
     .count = 1,
     .effect = {{SAME, WHOLE, .target = DRILL_AT_FIRST_BACKUP, .error_ppm = 1000000, .error_status = 503}}},
    {.name = "both",
     .count = 2,
     .effect = {{SLOW(3), WHOLE}, {SLOW(2), WHOLE, .target = DRILL_AT_BACKUPS, .start_us = 200 * SECOND, .length_us = 200 * SECOND}}},
};
enum { FAULTS = sizeof table / sizeof table[0] };

int drill_fault_named(const char *name, drill_fault *out) {
  for (uint32_t i = 0; i < FAULTS; i++) {
    if (strcmp(table[i].name, name) == 0) {
      *out = table[i];
      return 1;
    }
  }
  return 0;
}

void drill_fault_names(char *to, uint32_t cap) {
  uint32_t at = 0;
  to[0] = 0;
  for (uint32_t i = 0; i < FAULTS && at < cap; i++) {
    const int n = snprintf(to + at, cap - at, "%s%s", i != 0 ? ", " : "", table[i].name);
    at += n > 0 ? (uint32_t)n : 0;
  }
}

static int64_t ramped(int64_t to_ppm, int64_t since, int64_t ramp) {
  return since >= ramp ? to_ppm : 1000000 + (to_ppm - 1000000) * (since / 1000) / (ramp / 1000);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

drill_state drill_fault_at(const drill_config *c, const drill_fault *f, uint32_t provider, int64_t since_us) {
  drill_state s = {.prefill_ppm = 1000000, .decode_ppm = 1000000, .slots_ppm = 1000000, .rate_window_us = 1};
  for (uint32_t i = 0; i < f->count; i++) {
    const drill_effect *e = &f->effect[i];
    const int64_t since = since_us - e->start_us;
    const int here = e->target == DRILL_AT_PRIMARY ? provider == 0 : e->target == DRILL_AT_FIRST_BACKUP ? provider == 1 : provider > 0;
    if (!here || since < 0 || since_us >= c->fault_us || (e->length_us != 0 && since >= e->length_us)) {
      continue;
    }
    s.prefill_ppm = larger(s.prefill_ppm, ramped(e->prefill_ppm, since, e->ramp_us));
    s.decode_ppm = larger(s.decode_ppm, ramped(e->decode_ppm, since, e->ramp_us));
    s.slots_ppm = smaller(s.slots_ppm, ramped(e->slots_ppm, since, e->ramp_us));
    if (e->error_ppm > s.error_ppm) {
      s.error_ppm = e->error_ppm;
      s.error_status = e->error_status;
    }
    if (e->rate_limit != 0) {
      s.rate_limit = e->rate_limit * c->scale;
      s.rate_window_us = e->rate_window_us;
    }
  }
  return s;
}

/* Answers in 1,000 s a provider gives in this state; none where one takes longer than a person waits. */
static int64_t served_milli(const drill_config *c, uint32_t slots, const drill_state *s) {
  const int64_t prefill = (c->first_token_us + (int64_t)c->prompt_tokens * 1000000 / c->prompt_rate) / 1000 * s->prefill_ppm / 1000;
  const int64_t decode = (int64_t)c->output_tokens * 1000000 / c->rate_milli * s->decode_ppm / 1000;
  if (prefill + decode > c->interactive_us) {
    return 0;
  }
  int64_t n = (int64_t)slots * s->slots_ppm / 1000 * 1000000 / (prefill + decode);
  n = n * (1000000 - s->error_ppm) / 1000000;
  return s->rate_limit != 0 ? smaller(n, (int64_t)s->rate_limit * 1000000000 / s->rate_window_us) : n;
}

int64_t drill_takes_us(const drill_config *c) {
  return c->first_token_us + (int64_t)c->prompt_tokens * 1000000 / c->prompt_rate + (int64_t)c->output_tokens * 1000000000 / c->rate_milli;
}

uint32_t drill_backup_slots(const drill_config *c) {
  if (c->backup_slots != 0) {
    return c->backup_slots * c->scale;
  }
  /* 1.5 times what B uses, and a share of what A uses; in slots, at full speed */
  const int64_t milli = (int64_t)c->b_milli * 3 / 2 + (int64_t)c->a_milli * c->spare_ppm / 1000000 / c->backups;
  return (uint32_t)smaller((milli * c->scale * (drill_takes_us(c) / 1000) + 500000) / 1000000, DRILL_SLOTS_MAX);
}

int64_t drill_bound(const drill_config *c, const drill_fault *f) {
  const int64_t a = (int64_t)c->a_milli * c->scale, b = (int64_t)c->b_milli * c->scale, step = 1000000;
  int64_t sum = 0, steps = 0;
  for (int64_t at = 0; at < c->fault_us && a > 0; at += step, steps++) {
    const drill_state p = drill_fault_at(c, f, 0, at);
    int64_t can = served_milli(c, c->primary_slots * c->scale, &p);
    for (uint32_t n = 1; n <= c->backups; n++) {
      const drill_state q = drill_fault_at(c, f, n, at);
      can += larger(0, served_milli(c, drill_backup_slots(c), &q) * c->oracle_ppm / 1000000 - b);
    }
    sum += smaller(1000000, can * 1000000 / a);
  }
  return steps > 0 ? sum / steps : DRILL_NONE;
}
