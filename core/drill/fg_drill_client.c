/* Jobs and their attempts: what every client does, whatever its strategy. */
#include "fg_drill_world.h"

#include <stdlib.h>

enum { OUTPUT_MAX = 1000000 };
#define WORK_MAX_US INT64_C(1000000000000)

const strategy *drill_strategy_of(const job *j) { return j->population == POP_A ? drill_strategies[j->strategy] : &drill_own_users; }

static uint32_t adopter(const drill_config *c, uint32_t tenant) {
  return (uint64_t)tenant * 1000000 < (uint64_t)c->adopters_ppm * c->tenants;
}

job *drill_job_new(world *w, uint32_t population) {
  const drill_config *c = w->c;
  uint32_t i = w->job_free;
  if (i != NOBODY) {
    w->job_free = job_at(w, i)->next_free;
  } else {
    i = w->job_count;
    if (i % CHUNK == 0 && (i / CHUNK == CHUNKS || (w->jobs[i / CHUNK] = calloc(CHUNK, sizeof(job))) == NULL)) {
      w->error = FG_ERR_NOMEM;
      return NULL;
    }
    w->job_count++;
  }
  if (w->record_count == w->record_room) {
    const uint32_t room = w->record_room != 0 ? w->record_room * 2 : 8192;
    record *more = realloc(w->record, room * sizeof *more);
    if (more == NULL) {
      w->error = FG_ERR_NOMEM;
      return NULL;
    }
    w->record = more;
    w->record_room = room;
  }
  job *j = job_at(w, i);
  const uint32_t n = w->record_count++;
  /* Sizes depend on the request's number, which is the same for every strategy: arrivals are. */
  uint64_t sizes = drill_hash(w->seed, DRILL_FOR_SIZES, n);
  int64_t output = (int64_t)c->output_tokens * drill_lognormal(&sizes, c->output_cv_ppm) / 1000000;
  output = output < OUTPUT_MAX ? output : OUTPUT_MAX;
  *j = (job){.self = i,
             .record = n,
             .serial = ++w->serial,
             .population = population,
             .prompt = c->prompt_tokens,
             .output = output > 1 ? (uint32_t)output : 1,
             .arrived_at = w->now,
             .deadline_at = w->now + c->deadline_us,
             .live = {NOBODY, NOBODY, NOBODY, NOBODY}};
  if (population == POP_A) {
    j->tenant = c->tenants > 1 ? (uint32_t)(drill_hash(w->seed, DRILL_FOR_TENANT, n) % c->tenants) : 0;
    j->strategy = adopter(c, j->tenant) ? w->strategy : c->others;
  }
  w->record[n] = (record){.arrived_at = w->now,
                          .latency_us = -1,
                          .first_token_us = -1,
                          .population = (uint8_t)population,
                          .adopter = population == POP_A && adopter(c, j->tenant)};
  w->jobs_open++;
  return j;
}

static attempt *attempt_new(world *w) {
  uint32_t i = w->attempt_free;
  if (i != NOBODY) {
    w->attempt_free = attempt_at(w, i)->next_free;
  } else {
    i = w->attempt_count;
    if (i % CHUNK == 0 && (i / CHUNK == CHUNKS || (w->attempts[i / CHUNK] = calloc(CHUNK, sizeof(attempt))) == NULL)) {
      w->error = FG_ERR_NOMEM;
      return NULL;
    }
    w->attempt_count++;
  }
  attempt *a = attempt_at(w, i);
  ++w->serial;
  *a = (attempt){.self = i, .id = w->serial, .serial = w->serial};
  return a;
}

void drill_attempt_free(world *w, attempt *a) {
  a->serial = a->id = 0; /* no event is about it any more */
  a->next_free = w->attempt_free;
  w->attempt_free = a->self;
}

static void clock_next(world *w, attempt *a) {
  const drill_config *c = w->c;
  const job *j = job_at(w, a->job);
  int64_t at = a->sent_at + (a->first_token_at < 0 ? c->first_token_timeout_us : c->attempt_timeout_us);
  at = at < j->deadline_at ? at : j->deadline_at;
  drill_plan(w, at, EV_CLOCK, a->self, a->id);
}

/* A piece of work times so many millionths; longer than any run is as long as any run. */
static int64_t times(int64_t us, int64_t ppm) {
  us = us < WORK_MAX_US ? us : WORK_MAX_US;
  const int64_t product = us / 1000000 * ppm + us % 1000000 * ppm / 1000000;
  return product < WORK_MAX_US ? product : WORK_MAX_US;
}

attempt *drill_send(world *w, job *j, uint32_t provider, uint32_t small, uint32_t number) {
  const drill_config *c = w->c;
  uint32_t place = 0;
  while (place < ATTEMPTS_LIVE && j->live[place] != NOBODY) {
    place++;
  }
  attempt *a = place < ATTEMPTS_LIVE ? attempt_new(w) : NULL;
  if (a == NULL) {
    w->error = w->error != 0 ? w->error : FG_ERR_STATE;
    return NULL;
  }
  record *r = &w->record[j->record];
  r->attempts++;
  j->tries++;
  j->live[place] = a->self;
  a->job = j->self;
  a->provider = provider;
  a->small = small;
  a->population = j->population;
  a->number = number != 0 ? number : j->tries;
  a->prompt = j->prompt;
  a->output = j->output;
  a->sent_at = w->now;
  a->first_token_at = -1;
  uint64_t noise = drill_hash(w->seed, DRILL_FOR_NOISE, (uint64_t)j->record << 8 | j->tries);
  const int64_t start = c->first_token_us + (int64_t)j->prompt * 1000000 / c->prompt_rate;
  a->prefill_us = times(start, drill_lognormal(&noise, c->first_token_cv_ppm));
  a->decode_us = times((int64_t)j->output * 1000000000 / c->rate_milli, drill_lognormal(&noise, c->speed_cv_ppm));
  if (small) {
    a->prefill_us = times(a->prefill_us, c->small_ppm);
    a->decode_us = times(a->decode_us, c->small_ppm);
  }
  if (j->population == POP_A && drill_in_fault(w)) {
    w->attempts_in_fault++;
  }
  if (w->bucket != NULL && j->population == POP_A && w->now / DRILL_BUCKET_US < w->buckets) {
    w->bucket[w->now / DRILL_BUCKET_US].attempts++;
  }
  drill_provider_take(w, a);
  if (!drill_strategy_of(j)->own_clocks) {
    clock_next(w, a);
  }
  return a;
}

/* The attempt is no longer its job's. */
static void part(world *w, attempt *a) {
  job *j = job_at(w, a->job);
  for (uint32_t i = 0; i < ATTEMPTS_LIVE; i++) {
    if (j->live[i] == a->self) {
      j->live[i] = NOBODY;
    }
  }
  a->job = NOBODY;
}

void drill_leave(world *w, attempt *a) {
  part(w, a);
  a->left = 1;
  w->abandoned += a->population == POP_A;
  drill_provider_leave(w, a);
}

void drill_wait(world *w, job *j, int64_t us) {
  j->serial = ++w->serial;
  drill_plan(w, w->now + us, EV_TIMER, j->self, j->serial);
}

void drill_finish(world *w, job *j, uint32_t outcome, const attempt *a) {
  record *r = &w->record[j->record];
  r->outcome = (uint8_t)outcome;
  if (a != NULL) {
    r->served_by = (uint8_t)a->provider;
    r->first_token_us = a->first_token_at - j->arrived_at;
  }
  r->latency_us = w->now - j->arrived_at;
  for (uint32_t i = 0; i < ATTEMPTS_LIVE; i++) {
    if (j->live[i] != NOBODY) {
      drill_leave(w, attempt_at(w, j->live[i]));
    }
  }
  j->serial = ++w->serial;
  j->next_free = w->job_free;
  w->job_free = j->self;
  w->jobs_open--;
}

void drill_token(world *w, attempt *a) {
  a->first_token_at = w->now;
  if (a->job != NOBODY) {
    job *j = job_at(w, a->job);
    if (!drill_strategy_of(j)->own_clocks) {
      clock_next(w, a);
    }
    if (drill_strategy_of(j)->first_token != NULL) {
      drill_strategy_of(j)->first_token(w, j, a);
    }
  }
}

void drill_whole(world *w, attempt *a) {
  if (a->job != NOBODY) {
    job *j = job_at(w, a->job);
    part(w, a);
    a->delivered = 1;
    drill_strategy_of(j)->done(w, j, a);
  }
}

void drill_reply(world *w, attempt *a) {
  job *j = job_at(w, a->job);
  const attempt copy = *a; /* the pool may use its place again at once */
  attempt seen = copy;
  part(w, a);
  drill_attempt_free(w, a);
  drill_strategy_of(j)->failed(w, j, &seen);
}

void drill_clock(world *w, attempt *a) {
  const drill_config *c = w->c;
  job *j = job_at(w, a->job);
  const int late = a->first_token_at < 0 && w->now >= a->sent_at + c->first_token_timeout_us;
  if (late || w->now >= a->sent_at + c->attempt_timeout_us || w->now >= j->deadline_at) {
    attempt seen = *a;
    seen.status = 0;
    drill_leave(w, a);
    drill_strategy_of(j)->failed(w, j, &seen);
  }
}
