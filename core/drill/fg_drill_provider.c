/* A provider: slots, an unbounded queue, prefill, then decode. Work is known at full speed; when a fault changes the speed, what remains of the running
 * phases is rescaled. A client that hangs up leaves a zombie, which keeps its place and its slot, unless the provider frees both. */
#include "fg_drill_world.h"

#include <stdlib.h>

static endpoint *of(world *w, const attempt *a) { return &w->provider[a->provider]; }

static int64_t slower(int64_t us, int64_t ppm) { return us / 1000000 * ppm + us % 1000000 * ppm / 1000000; }
static int64_t faster(int64_t us, int64_t ppm) { return us / ppm * 1000000 + us % ppm * 1000000 / ppm; }

static int64_t speed(const endpoint *p, const attempt *a) { return a->state == AT_PREFILL ? p->prefill_ppm : p->decode_ppm; }

static void phase(world *w, attempt *a, uint32_t state, int64_t work_us) {
  a->state = state;
  a->serial = ++w->serial;
  a->phase_end = w->now + slower(work_us, speed(of(w, a), a));
  drill_plan(w, a->phase_end, EV_SERVICE, a->self, a->serial);
}

static void start_waiting(world *w, endpoint *p) {
  while (p->running_count < p->slots && p->queue_first != NOBODY) {
    attempt *a = attempt_at(w, p->queue_first);
    if (p->running_count == p->running_room) {
      const uint32_t room = p->running_room != 0 ? p->running_room * 2 : 64;
      uint32_t *more = realloc(p->running, room * sizeof *more);
      if (more == NULL) {
        w->error = FG_ERR_NOMEM;
        return;
      }
      p->running = more;
      p->running_room = room;
    }
    p->queue_first = a->next;
    if (a->next != NOBODY) {
      attempt_at(w, a->next)->prev = NOBODY;
    } else {
      p->queue_last = NOBODY;
    }
    p->queue_length--;
    a->place = p->running_count;
    p->running[p->running_count++] = a->self;
    phase(w, a, AT_PREFILL, a->prefill_us);
  }
}

static void reply_later(world *w, attempt *a, int32_t status) {
  a->state = AT_ERROR;
  a->status = status;
  a->serial = ++w->serial;
  drill_plan(w, w->now + w->c->error_us, EV_ERROR, a->self, a->serial);
}

int drill_refused(const world *w, uint32_t n, uint32_t record_index, uint32_t number) {
  const uint32_t ppm = w->provider[n].error_ppm;
  return ppm != 0 && drill_chance(drill_hash(w->seed, DRILL_FOR_ERRORS + ((uint64_t)number << 8), record_index), ppm);
}

void drill_provider_take(world *w, attempt *a) {
  endpoint *p = of(w, a);
  if (p->rate_limit != 0) {
    const int64_t window = w->now / p->rate_window_us;
    if (window != p->rate_window) {
      p->rate_window = window;
      p->rate_used = 0;
    }
    if (p->rate_used == p->rate_limit) {
      a->reset_us = (window + 1) * p->rate_window_us - w->now;
      reply_later(w, a, 429);
      return;
    }
    p->rate_used++;
  }
  if (drill_refused(w, a->provider, job_at(w, a->job)->record, a->number)) {
    reply_later(w, a, (int32_t)p->error_status);
    return;
  }
  a->state = AT_QUEUED;
  a->prev = p->queue_last;
  a->next = NOBODY;
  if (p->queue_last != NOBODY) {
    attempt_at(w, p->queue_last)->next = a->self;
  } else {
    p->queue_first = a->self;
  }
  p->queue_last = a->self;
  p->queue_length++;
  start_waiting(w, p);
}

uint32_t drill_tokens_made(const world *w, const attempt *a) {
  if (a->state != AT_DECODE) {
    return a->state == AT_DONE ? a->output : 0;
  }
  const int64_t left = faster(a->phase_end - w->now, w->provider[a->provider].decode_ppm);
  const int64_t done = a->decode_us - (left < a->decode_us ? left : a->decode_us);
  return a->decode_us > 0 ? (uint32_t)(done * a->output / a->decode_us) : a->output;
}

/* What an attempt made goes to the books, and the attempt to the pool. */
static void settle(world *w, attempt *a) {
  const drill_config *c = w->c;
  const int64_t prompt = a->state == AT_DECODE || a->state == AT_DONE ? a->prompt : 0, made = drill_tokens_made(w, a);
  const int64_t share = a->small != 0 ? c->small_ppm : 1000000;
  if (a->population != POP_A) {
    drill_attempt_free(w, a);
    return; /* B pays for itself */
  }
  w->spent_nusd += (prompt * c->price_input + made * c->price_output) / 1000000 * share / 1000000;
  if (a->delivered) {
    w->delivered_tokens += prompt + made;
  } else {
    w->wasted_tokens += prompt + made;
    w->zombie_tokens += a->left ? prompt + made : 0;
    if (w->bucket != NULL && w->now / DRILL_BUCKET_US < w->buckets) {
      w->bucket[w->now / DRILL_BUCKET_US].wasted_tokens += (uint32_t)(prompt + made);
    }
  }
  drill_attempt_free(w, a);
}

static void leave_slot(world *w, attempt *a) {
  endpoint *p = of(w, a);
  const uint32_t last = p->running[--p->running_count];
  p->running[a->place] = last;
  attempt_at(w, last)->place = a->place;
  settle(w, a);
  start_waiting(w, p);
}

void drill_provider_step(world *w, attempt *a) {
  if (a->state == AT_PREFILL) {
    phase(w, a, AT_DECODE, a->decode_us);
    drill_token(w, a);
  } else {
    a->state = AT_DONE;
    drill_whole(w, a);
    leave_slot(w, a);
  }
}

void drill_provider_leave(world *w, attempt *a) {
  endpoint *p = of(w, a);
  if (a->state == AT_ERROR) {
    settle(w, a);
  } else if (w->fault->cancel_frees && a->state == AT_QUEUED) {
    if (a->prev != NOBODY) {
      attempt_at(w, a->prev)->next = a->next;
    } else {
      p->queue_first = a->next;
    }
    if (a->next != NOBODY) {
      attempt_at(w, a->next)->prev = a->prev;
    } else {
      p->queue_last = a->prev;
    }
    p->queue_length--;
    settle(w, a);
  } else if (w->fault->cancel_frees && (a->state == AT_PREFILL || a->state == AT_DECODE)) {
    leave_slot(w, a);
  }
}

void drill_provider_set(world *w, uint32_t index, int64_t prefill_ppm, int64_t decode_ppm, uint32_t slots) {
  endpoint *p = &w->provider[index];
  for (uint32_t i = 0; i < p->running_count; i++) {
    attempt *a = attempt_at(w, p->running[i]);
    const int64_t from = speed(p, a), to = a->state == AT_PREFILL ? prefill_ppm : decode_ppm;
    if (from != to) {
      a->phase_end = w->now + slower(faster(a->phase_end - w->now, from), to);
      a->serial = ++w->serial;
      drill_plan(w, a->phase_end, EV_SERVICE, a->self, a->serial);
    }
  }
  p->prefill_ppm = prefill_ppm;
  p->decode_ppm = decode_ppm;
  p->slots = slots;
  start_waiting(w, p);
}
