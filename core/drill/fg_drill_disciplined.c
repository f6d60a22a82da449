/* The textbook client: a retry budget of one in ten requests, and a breaker for each provider over its last 60 outcomes. It goes to the backup only while
 * the primary's breaker is open, and never for a 429. An outcome is known when its attempt ends, which is what makes it slow to notice. */
#include "fg_drill_world.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW = 60, MIN_OUTCOMES = 10, PROBES = 4, TRIES = 3, BUDGET_ADD = 100, RETRY_COST = 1000, BUDGET_CAP = 3000 };
#define FAILURE_SHARE_PPM 600000
#define COOLDOWN_US INT64_C(18000000)
#define SLOW_US INT64_C(2000000) /* a later first token counts as a failure */

enum { CLOSED = 0, OPEN, HALF };

typedef struct breaker {
  uint8_t failed[WINDOW];
  uint32_t count, next, failures, state, probes_out, probes_good;
  int64_t until;
} breaker;

typedef struct client { /* of one tenant */
  uint32_t budget;
  breaker of[1 + DRILL_BACKUPS_MAX];
} client;

static client *client_of(const world *w, const job *j) { return (client *)w->state[DRILL_DISCIPLINED] + j->tenant; }

static int32_t open_clients(world *w, fg_error *err) {
  (void)err;
  client *all = calloc(w->c->tenants, sizeof *all);
  w->state[DRILL_DISCIPLINED] = all;
  if (all == NULL) {
    return FG_ERR_NOMEM;
  }
  for (uint32_t i = 0; i < w->c->tenants; i++) {
    all[i].budget = BUDGET_CAP;
  }
  return FG_OK;
}
static void close_clients(world *w) { free(w->state[DRILL_DISCIPLINED]); }

static int admits(const world *w, breaker *b) {
  if (b->state == OPEN && w->now >= b->until) {
    b->state = HALF;
    b->probes_out = b->probes_good = 0;
  }
  if (b->state == HALF && b->probes_out < PROBES) {
    b->probes_out++;
    return 1;
  }
  return b->state == CLOSED;
}

static void outcome(world *w, breaker *b, uint32_t provider, uint8_t failed) {
  if (b->state == HALF) {
    if (failed) {
      b->state = OPEN;
      b->until = w->now + COOLDOWN_US;
    } else if (++b->probes_good == PROBES) {
      memset(b, 0, sizeof *b);
    }
    return;
  }
  if (b->state == OPEN) {
    return;
  }
  b->failures += failed;
  if (b->count == WINDOW) {
    b->failures -= b->failed[b->next];
  } else {
    b->count++;
  }
  b->failed[b->next] = failed;
  b->next = (b->next + 1) % WINDOW;
  if (b->count >= MIN_OUTCOMES && (uint64_t)b->failures * 1000000 >= (uint64_t)b->count * FAILURE_SHARE_PPM) {
    b->state = OPEN;
    b->until = w->now + COOLDOWN_US;
    if (provider == 0) {
      drill_detected(w);
    }
  }
}

static void try_once(world *w, job *j) {
  client *k = client_of(w, j);
  const uint32_t backup = 1 + j->tenant % w->c->backups;
  if (admits(w, &k->of[0])) {
    (void)drill_send(w, j, 0, 0, 0);
  } else if (admits(w, &k->of[backup])) {
    (void)drill_send(w, j, backup, 0, 0);
  } else {
    drill_finish(w, j, OUT_REFUSED, NULL);
  }
}

static void arrive(world *w, job *j) {
  client *k = client_of(w, j);
  k->budget = k->budget + BUDGET_ADD < BUDGET_CAP ? k->budget + BUDGET_ADD : BUDGET_CAP;
  try_once(w, j);
}

static void done(world *w, job *j, attempt *a) {
  outcome(w, &client_of(w, j)->of[a->provider], a->provider, a->first_token_at - a->sent_at > SLOW_US);
  drill_finish(w, j, OUT_FULL, a);
}

static void failed(world *w, job *j, attempt *a) {
  client *k = client_of(w, j);
  if (a->status == 429) { /* says nothing about the provider's health: a probe may go again */
    k->of[a->provider].probes_out -= k->of[a->provider].state == HALF;
  } else {
    outcome(w, &k->of[a->provider], a->provider, 1);
  }
  const int64_t wait = a->status == 429 ? a->reset_us : INT64_C(1000000) << (j->tries - 1);
  if (j->tries >= TRIES || k->budget < RETRY_COST || w->now + wait >= j->deadline_at) {
    drill_finish(w, j, OUT_FAILED, NULL);
    return;
  }
  k->budget -= RETRY_COST;
  drill_wait(w, j, wait);
}

const strategy drill_disciplined = {
    .open = open_clients, .close = close_clients, .arrive = arrive, .done = done, .failed = failed, .timer = try_once};
