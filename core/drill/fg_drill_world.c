/* One run: arrivals, the fault, and the loop over events. */
#include "fg_drill_world.h"

#include <stdlib.h>
#include <string.h>

enum { RAMP_STEP_US = 1000000, STOP_EVERY = 4096, PATIENCE_US = 1800000000 };

#define AS_POINTER(n, N, word) &drill_##word,
const strategy *const drill_strategies[DRILL_STRATEGIES] = {DRILL_STRATEGY_MAP(AS_POINTER)};

void drill_plan(world *w, int64_t at, uint32_t kind, uint32_t index, uint32_t serial) {
  if (!drill_heap_push(&w->heap, at, kind, index, serial)) {
    w->error = FG_ERR_NOMEM;
  }
}

int drill_in_fault(const world *w) { return w->now >= w->fault_at && w->now < w->after_at; }

void drill_detected(world *w) {
  if (w->detected_us < 0 && w->now >= w->fault_at) {
    w->detected_us = w->now - w->fault_at;
  }
}

/* ---- arrivals: Poisson, at a rate that bursts may change */

static int in_burst(const world *w, int64_t at, int64_t *until) {
  const drill_fault *f = w->fault;
  if (f->burst_every_us == 0 || at >= w->after_at) {
    *until = INT64_MAX;
    return 0;
  }
  if (at < w->fault_at) {
    *until = w->fault_at;
    return 0;
  }
  const int64_t into = (at - w->fault_at) % f->burst_every_us, start = at - into;
  const int in = into < f->burst_length_us;
  *until = start + (in ? f->burst_length_us : f->burst_every_us);
  *until = *until < w->after_at ? *until : w->after_at;
  return in;
}

static void next_arrival(world *w, uint32_t population) {
  const drill_config *c = w->c;
  const int64_t base = (int64_t)(population == POP_A ? c->a_milli : c->b_milli) * c->scale;
  int64_t need = drill_exponential(drill_next(&w->arrivals[population])), at = w->now; /* need: millionths of a mean gap */
  while (base != 0) {
    int64_t until = INT64_MAX;
    const int64_t rate = population == POP_A && in_burst(w, at, &until) ? base * w->fault->burst_ppm / 1000000 : base;
    const int64_t gap = rate != 0 ? need * 1000 / rate : INT64_MAX; /* a burst may also be a pause */
    if (until == INT64_MAX || gap < until - at) {
      at += gap;
      break;
    }
    need -= (until - at) * rate / 1000;
    need = need > 0 ? need : 0;
    at = until;
  }
  if (base != 0 && at < w->end_at) {
    drill_plan(w, at, EV_ARRIVE, population, 0);
  }
}

static void arrive(world *w, uint32_t population) {
  next_arrival(w, population);
  job *j = drill_job_new(w, population);
  if (j != NULL) {
    drill_strategy_of(j)->arrive(w, j);
  }
}

/* ---- the fault */

static void plan_fault(world *w) {
  for (uint32_t i = 0; i < w->fault->count; i++) {
    const drill_effect *e = &w->fault->effect[i];
    const int64_t start = w->fault_at + e->start_us, end = e->length_us != 0 ? start + e->length_us : w->after_at;
    for (int64_t at = start; at < start + e->ramp_us && at < end; at += RAMP_STEP_US) {
      drill_plan(w, at, EV_FAULT, 0, 0);
    }
    drill_plan(w, start + e->ramp_us < end ? start + e->ramp_us : end, EV_FAULT, 0, 0);
    drill_plan(w, end, EV_FAULT, 0, 0);
  }
}

static void apply_fault(world *w) {
  for (uint32_t n = 0; n < w->providers; n++) {
    endpoint *p = &w->provider[n];
    const drill_state s = drill_fault_at(w->c, w->fault, n, w->now - w->fault_at);
    p->error_ppm = s.error_ppm;
    p->error_status = s.error_status;
    p->rate_limit = s.rate_limit;
    p->rate_window_us = s.rate_window_us;
    drill_provider_set(w, n, s.prefill_ppm, s.decode_ppm, (uint32_t)(p->full_slots * s.slots_ppm / 1000000));
  }
}

/* ---- the loop */

static void each_tick(world *w) {
  const uint32_t both[2] = {w->strategy, w->c->others};
  for (uint32_t i = 0; i < (both[0] == both[1] ? 1U : 2U); i++) {
    if (w->state[both[i]] != NULL && drill_strategies[both[i]]->tick != NULL) {
      drill_strategies[both[i]]->tick(w);
    }
  }
  if (w->jobs_open != 0 || w->now < w->end_at) {
    drill_plan(w, w->now + w->c->report_us, EV_TICK, 0, 0);
  }
}

static void sample(world *w, uint32_t i) {
  drill_bucket *b = &w->bucket[i];
  b->primary_busy = w->provider[0].running_count;
  b->primary_queue = w->provider[0].queue_length;
  for (uint32_t n = 1; n < w->providers; n++) {
    b->backup_busy += w->provider[n].running_count;
    b->backup_queue += w->provider[n].queue_length;
  }
}

static void happen(world *w, const drill_event *e) {
  switch (e->kind) {
  case EV_ARRIVE:
    arrive(w, e->index);
    break;
  case EV_SERVICE:
    if (attempt_at(w, e->index)->serial == e->serial) {
      drill_provider_step(w, attempt_at(w, e->index));
    }
    break;
  case EV_ERROR:
    if (attempt_at(w, e->index)->serial == e->serial) {
      drill_reply(w, attempt_at(w, e->index));
    }
    break;
  case EV_CLOCK:
    if (attempt_at(w, e->index)->id == e->serial && attempt_at(w, e->index)->job != NOBODY) {
      drill_clock(w, attempt_at(w, e->index));
    }
    break;
  case EV_TIMER:
    if (job_at(w, e->index)->serial == e->serial) {
      drill_strategy_of(job_at(w, e->index))->timer(w, job_at(w, e->index));
    }
    break;
  case EV_FAULT:
    apply_fault(w);
    break;
  case EV_TICK:
    each_tick(w);
    break;
  default:
    sample(w, e->index);
  }
}

static int32_t loop(world *w, const _Atomic int32_t *stop) {
  drill_event e;
  while (w->error == 0 && drill_next_event(w, &e)) {
    w->now = e.at;
    if (w->now > w->end_at + PATIENCE_US) {
      break; /* whoever is still open is never answered */
    }
    if (++w->events % STOP_EVERY == 0 && stop != NULL && *stop != 0) {
      return FG_ERR_STATE;
    }
    happen(w, &e);
  }
  return w->error;
}

static int32_t open_world(world *w, const drill_config *c, int with_buckets, fg_error *err) {
  w->fault_at = c->warm_us;
  w->after_at = c->warm_us + c->fault_us;
  w->end_at = w->after_at + c->after_us;
  w->detected_us = -1;
  w->attempt_free = w->job_free = NOBODY;
  w->providers = 1 + c->backups;
  for (uint32_t n = 0; n < w->providers; n++) {
    endpoint *p = &w->provider[n];
    p->queue_first = p->queue_last = NOBODY;
    p->full_slots = (n == 0 ? c->primary_slots * c->scale : drill_backup_slots(c));
    p->slots = p->full_slots;
    p->prefill_ppm = p->decode_ppm = 1000000;
    p->rate_window = -1;
    p->rate_window_us = 1;
    w->arrivals[POP_B + n] = drill_stream(w->seed, DRILL_FOR_B + n);
  }
  w->arrivals[POP_A] = drill_stream(w->seed, DRILL_FOR_A);
  if (with_buckets) {
    w->buckets = (uint32_t)((w->end_at + DRILL_BUCKET_US - 1) / DRILL_BUCKET_US);
    w->bucket = calloc(w->buckets, sizeof *w->bucket);
    if (w->bucket == NULL) {
      return FG_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < w->buckets; i++) {
      drill_plan(w, (i + 1) * (int64_t)DRILL_BUCKET_US - 1, EV_BUCKET, i, 0);
    }
  }
  const uint32_t both[2] = {w->strategy, c->others};
  const uint32_t mixed = c->adopters_ppm < 1000000 && both[0] != both[1];
  for (uint32_t i = 0; i < (mixed ? 2U : 1U); i++) {
    const strategy *s = drill_strategies[both[i]];
    const int32_t rc = s->open != NULL ? s->open(w, err) : FG_OK;
    if (rc != FG_OK) {
      return rc;
    }
  }
  plan_fault(w);
  for (uint32_t n = 0; n < w->providers; n++) {
    next_arrival(w, n == 0 ? POP_A : POP_B + n - 1);
  }
  drill_plan(w, c->report_us, EV_TICK, 0, 0);
  return w->error;
}

static void close_world(world *w) {
  for (uint32_t i = 0; i < DRILL_STRATEGIES; i++) {
    if (w->state[i] != NULL) {
      drill_strategies[i]->close(w);
    }
  }
  for (uint32_t i = 0; i < CHUNKS; i++) {
    free(w->attempts[i]);
    free(w->jobs[i]);
  }
  for (uint32_t n = 0; n < w->providers; n++) {
    free(w->provider[n].running);
  }
  free(w->record);
  free(w->heap.event);
  free(w->bucket);
  free(w);
}

int32_t drill_run(const drill_config *c, uint32_t fault, uint32_t how, uint64_t seed, int with_buckets, const _Atomic int32_t *stop,
                  drill_result *out, fg_error *err) {
  memset(out, 0, sizeof *out);
  world *w = calloc(1, sizeof *w);
  if (w == NULL) {
    return FG_ERR_NOMEM;
  }
  w->c = c;
  w->fault = &c->fault[fault];
  w->seed = seed;
  w->strategy = how;
  int32_t rc = open_world(w, c, with_buckets, err);
  rc = rc == FG_OK ? loop(w, stop) : rc;
  if (rc == FG_OK) {
    out->bucket = w->bucket; /* now the result's */
    out->buckets = w->buckets;
    w->bucket = NULL;
    drill_measure(w, out);
  }
  close_world(w);
  return rc;
}

void drill_result_free(drill_result *r) {
  free(r->bucket);
  r->bucket = NULL;
}
