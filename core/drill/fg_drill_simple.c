/* Clients that count their tries and know nothing else: naive, backoff, plain, and population B. mark: the try of the loop. */
#include "fg_drill_world.h"

/* The backup a tenant falls back to. */
static uint32_t backup_of(const world *w, const job *j) { return 1 + j->tenant % w->c->backups; }

static void give_up_or(world *w, job *j, int64_t wait_us) {
  if (w->now + wait_us >= j->deadline_at) {
    drill_finish(w, j, OUT_FAILED, NULL);
  } else {
    drill_wait(w, j, wait_us);
  }
}

static void whole(world *w, job *j, attempt *a) { drill_finish(w, j, OUT_FULL, a); }

/* ---- naive: primary, backup, primary, at once; an inner layer may multiply each */

static void naive_send(world *w, job *j) {
  const uint32_t turn = j->mark / (1 + w->fault->hidden_tries);
  (void)drill_send(w, j, turn % 2 == 0 ? 0 : backup_of(w, j), 0, 0);
}
static void naive_failed(world *w, job *j, attempt *a) {
  (void)a;
  if (++j->mark == 3 * (1 + w->fault->hidden_tries) || w->now >= j->deadline_at) {
    drill_finish(w, j, OUT_FAILED, NULL);
  } else {
    naive_send(w, j);
  }
}
const strategy drill_naive = {.arrive = naive_send, .done = whole, .failed = naive_failed};

/* ---- backoff: the primary three times, then the backup; without jitter all would come back at the same place of a rate limit's window */

static int64_t jitter(const world *w, const job *j) { /* 0.5 to 1.5 s */
  return 500000 + (int64_t)(drill_hash(w->seed, DRILL_FOR_POLICY, (uint64_t)j->record << 8 | j->mark) % 1000000);
}

static void backoff_send(world *w, job *j) { (void)drill_send(w, j, j->mark < 3 ? 0 : backup_of(w, j), 0, 0); }
static void backoff_failed(world *w, job *j, attempt *a) {
  (void)a;
  j->mark++;
  if (j->mark < 3) {
    give_up_or(w, j, j->mark * jitter(w, j));
  } else if (j->mark == 3 && w->now < j->deadline_at) {
    backoff_send(w, j);
  } else {
    drill_finish(w, j, OUT_FAILED, NULL);
  }
}
const strategy drill_backoff = {.arrive = backoff_send, .done = whole, .failed = backoff_failed, .timer = backoff_send};

/* ---- plain: one try */

static void plain_send(world *w, job *j) { (void)drill_send(w, j, 0, 0, 0); }
static void plain_failed(world *w, job *j, attempt *a) {
  (void)a;
  drill_finish(w, j, OUT_FAILED, NULL);
}
const strategy drill_plain = {.arrive = plain_send, .done = whole, .failed = plain_failed};

/* ---- population B: one try at its own provider, a backup of A's */

static void own_send(world *w, job *j) { (void)drill_send(w, j, 1 + j->population - POP_B, 0, 0); }
const strategy drill_own_users = {.arrive = own_send, .done = whole, .failed = plain_failed};
