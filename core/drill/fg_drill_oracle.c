/* The bound: a router that sees every queue, slot and fault. It sends where an answer comes in time without a queue, fills the backups with large answers
 * to the load their own users bear and the rest with small ones, and else keeps the request until something is free. */
#include "fg_drill_world.h"

enum { LOOK_US = 50000 };

/* Would an attempt begun now be answered by the deadline, and would it not wait? */
static int serves(const world *w, const job *j, uint32_t n, uint32_t small) {
  const endpoint *p = &w->provider[n];
  const drill_config *c = w->c;
  const int64_t slots = n == 0 || small ? p->slots : (int64_t)p->slots * c->oracle_ppm / 1000000;
  const int64_t prefill = (c->first_token_us + (int64_t)j->prompt * 1000000 / c->prompt_rate) / 1000 * p->prefill_ppm / 1000;
  const int64_t decode = (int64_t)j->output * 1000000 / c->rate_milli * p->decode_ppm / 1000;
  const int64_t takes = (prefill + decode) * (small ? c->small_ppm : 1000000) / 1000000;
  const int admitted = p->rate_limit == 0 || w->now / p->rate_window_us != p->rate_window || p->rate_used < p->rate_limit;
  return !drill_refused(w, n, j->record, j->tries + 1) && admitted && (int64_t)p->running_count + p->queue_length < slots &&
         takes <= c->interactive_us && w->now + takes <= j->deadline_at;
}

static void route(world *w, job *j) {
  for (uint32_t small = 0; small <= w->c->ladder; small++) {
    for (uint32_t i = small; i < w->providers; i++) {
      const uint32_t n = i == 0 ? 0 : 1 + (i - 1 + j->tenant) % w->c->backups;
      if (serves(w, j, n, small)) {
        (void)drill_send(w, j, n, small, 0);
        return;
      }
    }
  }
  if (w->now + LOOK_US >= j->deadline_at) {
    drill_finish(w, j, OUT_REFUSED, NULL);
  } else {
    drill_wait(w, j, LOOK_US);
  }
}

static void done(world *w, job *j, attempt *a) { drill_finish(w, j, a->small ? OUT_SMALL : OUT_FULL, a); }

static void failed(world *w, job *j, attempt *a) {
  (void)a;
  if (w->now < j->deadline_at) {
    route(w, j);
  } else {
    drill_finish(w, j, OUT_FAILED, NULL);
  }
}

/* Streams a fault caught on the primary are moved, when there is time and room for them. */
static void tick(world *w) {
  if (w->provider[0].decode_ppm < 20 * INT64_C(1000000)) {
    return;
  }
  for (uint32_t i = 0; i < w->provider[0].running_count; i++) {
    attempt *a = attempt_at(w, w->provider[0].running[i]);
    if (a->job == NOBODY || job_at(w, a->job)->population != POP_A) {
      continue;
    }
    job *j = job_at(w, a->job);
    if (a->phase_end > j->deadline_at || a->phase_end > w->now + w->c->interactive_us) {
      drill_leave(w, a);
      route(w, j);
    }
  }
}

const strategy drill_oracle = {.arrive = route, .done = done, .failed = failed, .timer = route, .tick = tick};
