/* World C: any two operations (and chosen threes) on the same words of one region, in every order of their single atomic
 * accesses, each also killed after each of its writes. Afterwards one ordinary caller must find everything in order.
 *
 *   world_c           pairs from four situations, a few threes, the planted faults   (under a minute)
 *   world_c full      also every three, without kills (hours)
 * The library and this file are built with FG_ATOMIC_WEAVE. Orders that differ only in accesses that commute count as one. */
#include <time.h>

#include "fg_health.h"
#include "fg_stall.h"
#include "fg_window.h"
#include "weave.h"

enum { ADMIT, FAIL, OK, CANCEL, PAY, FLAG, REAP, TOKEN, OPS };
static const char *const op_names[OPS] = {"admit", "fail", "succeed", "cancel", "pay", "flag", "reap", "token"};
enum { CLOSED, EXPIRED, PROBING, SILENT, SITUATIONS };
static const char *const situation_names[SITUATIONS] = {"closed", "expired", "probing", "silent"};

enum { T = 3600000, VICTIM = 7, ROOM = 1 };
static const fg_breaker_config breaker = {2, 60000, 0, 0, 10000, 20000, 0, 1, 30000, 1, 1};
static const fg_bucket_config bucket = {100, 10000, 1000, 0};

typedef struct actor { /* one operation and what came of it: the oracle's own books */
  int op;
  uint32_t slot;
  fg_ticket ticket, admitted; /* the attempt it has in flight; the one it admits */
  int admits, pays, ended, finished;
  uint32_t did;
} actor;

typedef struct world {
  fg_region *region;
  uint64_t bytes;
  fg_health_ask ask;
  int situation, count, same_slot;
  actor before[WEAVE_MAX], now[WEAVE_MAX];
  fg_ticket victim;
  uint32_t failed_before, generation_before, z_before;
  int64_t t;
  const char *wrong, *last_wrong;
} world;

static world the;

/* ---- operations ---- */

static void act(void *ctx) {
  actor *a = ctx;
  world *w = &the;
  int64_t t = w->t;
  fg_admit how = {.slot = a->slot, .retry = 1, .stall_ms = 4500, .total_ms = 20000};
  fg_outcome o = {.what = a->op == FAIL ? FG_OUT_FAIL : a->op == OK ? FG_OUT_OK : FG_OUT_NEUTRAL};
  fg_health_view why;
  switch (a->op) {
  case ADMIT:
    a->admits = fg_health_admit(&w->ask, &how, t, &a->admitted, &why);
    break;
  case FAIL:
  case OK:
  case CANCEL:
    a->did = fg_health_result(&w->ask, &a->ticket, &o, t);
    a->ended = 1;
    break;
  case PAY:
    a->pays = fg_bucket_pay(&w->ask.route->retry, &bucket, 1000, t);
    break;
  case FLAG:
    (void)fg_health_scan(w->region, &breaker, t);
    break;
  case REAP:
    (void)fg_region_reap(w->region, VICTIM, t - T);
    break;
  default:
    fg_health_token(&w->ask, &a->ticket, t + 60000, t);
    break;
  }
  a->finished = 1;
}

static void begin(void *ctx, weave_op *ops) {
  world *w = ctx;
  for (int i = 0; i < w->count; i++) {
    w->now[i] = w->before[i];
    ops[i].run = act;
    ops[i].ctx = &w->now[i];
  }
  w->wrong = NULL;
}

/* ---- what must hold ---- */

#define MUST(cond, text) \
  do { \
    if (!(cond)) { \
      w->wrong = w->last_wrong = text; \
      return 0; \
    } \
  } while (0)

static uint32_t in_flight(const world *w) { return fg_gauge_sum(w->ask.route->gauge, fg_region_procs(w->region)).in_flight; }

static uint32_t rows_taken(const world *w) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < fg_region_procs(w->region); s++) {
    for (uint32_t i = 0; i < fg_region_rows(w->region); i++) {
      n += (fg_region_row(w->region, s, i)->due.v >> 37 & 7) != FG_ROW_FREE;
    }
  }
  return n;
}

static int has(const world *w, int op) {
  int n = 0;
  for (int i = 0; i < w->count; i++) {
    n += w->now[i].op == op;
  }
  return n;
}

static int check(void *ctx, int killed) {
  world *w = ctx;
  fg_route_rec *route = w->ask.route;
  uint32_t live = 0, probes = 0, failures = 0, pays = 0;
  int cut = killed >= 0 ? w->now[killed].op : -1;
  /* 1. The dead are reaped, as their host does; one who reaps may die too, so again. */
  if (killed >= 0) {
    (void)fg_region_reap(w->region, w->now[killed].slot, w->t - T);
  }
  if (has(w, REAP)) {
    (void)fg_region_reap(w->region, VICTIM, w->t - T);
  }
  /* 2. The books of the others. */
  uint32_t generation = fg_breaker_generation(&route->breaker);
  for (int i = 0; i < w->count; i++) {
    actor *a = &w->now[i];
    MUST(i == killed || a->finished, "an operation did not end");
    pays += (uint32_t)a->pays;
    if (i == killed) {
      continue;
    }
    if (a->ticket.watch.live) {
      live++;
      probes += a->ticket.probe[FG_PART_BREAKER] && a->ticket.generation[FG_PART_BREAKER] == generation;
    }
    if (a->admits) {
      live++;
      probes += a->admitted.probe[FG_PART_BREAKER] && a->admitted.generation[FG_PART_BREAKER] == generation;
    }
    failures += a->op == FAIL && a->ended && w->before[i].ticket.watch.live && !(a->did & FG_DID_STALE) && !a->ticket.probe[FG_PART_BREAKER];
  }
  live += w->victim.watch.live && !has(w, REAP);
  /* 3. Probes: never more than allowed. */
  fg_breaker_view b = fg_breaker_peek(&route->breaker, &breaker, NULL, w->t);
  MUST(probes <= breaker.probes, "more probes than allowed");
  MUST(b.state != FG_BREAKER_HALF_OPEN || b.probes <= breaker.probes, "more probes counted than allowed");
  MUST(b.state != FG_BREAKER_HALF_OPEN || b.probes >= probes, "a probe in flight is not counted");
  /* 4. Gauges and rows. One who looks after others' rows may die between the row and its gauge: one count. */
  uint32_t slack = cut == FLAG || cut == REAP;
  uint32_t flying = in_flight(w);
  MUST(flying >= live, "an attempt in flight is not counted");
  MUST(flying <= live + slack, "a gauge leaks");
  MUST(rows_taken(w) == live, "a row leaks");
  if (w->ask.route_quota.in_flight > 0) {
    MUST(live <= w->ask.route_quota.in_flight, "over the declared quota");
  }
  /* 5. Money: never overspent; one payment may die with its payer. */
  uint32_t balance = fg_bucket_balance(&route->retry, &bucket, w->t);
  uint32_t lost = cut == PAY ? 1 : 0;
  MUST(pays <= 1, "the bucket is overspent");
  MUST(balance + 1000 * pays <= 1000 && balance + 1000 * (pays + lost) >= 1000, "the bucket does not add up");
  /* 6. Failures: each is counted, but for one that a kill took. */
  fg_window_sums s = fg_window_sum(route->window, FG_WINDOW_BUCKETS, 5000, 0, w->t);
  MUST(s.b >= w->failed_before + failures, "a failure was lost");
  MUST(s.b <= w->failed_before + failures + (cut == FAIL), "a failure was counted twice");
  /* 7. Levels: whoever comes next completes what they demand. */
  fg_stall_state e = fg_stall_get(&route->evidence);
  int demands = b.state == FG_BREAKER_CLOSED && e.generation == b.generation && (e.run >= breaker.consecutive || e.z_milli >= FG_Z_OPEN);
  fg_ticket k;
  fg_health_view why;
  fg_admit how = {.slot = 6, .stall_ms = 4500, .total_ms = 20000};
  w->ask.route_quota.in_flight += 2;
  int admitted = fg_health_admit(&w->ask, &how, w->t, &k, &why);
  w->ask.route_quota.in_flight -= 2;
  MUST(!demands || !admitted, "a level that demands opening was not completed");
  MUST(!(admitted && k.probe[FG_PART_BREAKER]) || probes == 0, "a second probe beside a living one");
  fg_outcome gone = {.what = FG_OUT_NEUTRAL};
  if (admitted) {
    (void)fg_health_result(&w->ask, &k, &gone, w->t);
  }
  /* 8. The survivors end; nothing of them stays. */
  for (int i = 0; i < w->count; i++) {
    if (i != killed) {
      (void)fg_health_result(&w->ask, &w->now[i].ticket, &gone, w->t + 1);
      (void)fg_health_result(&w->ask, &w->now[i].admitted, &gone, w->t + 1);
    }
  }
  (void)fg_region_reap(w->region, VICTIM, w->t - T);
  MUST(in_flight(w) <= slack, "a gauge leaks after the end");
  MUST(rows_taken(w) == 0, "a row leaks after the end");
  e = fg_stall_get(&route->evidence);
  if (fg_breaker_generation(&route->breaker) == w->generation_before && e.z_milli < FG_Z_OPEN) {
    MUST(e.z_milli <= w->z_before + (killed >= 0 ? FG_Z_STALL : 0), "stall evidence leaks");
  }
  /* 9. Never stuck: after every wait there is, an ordinary call is admitted, and a success closes. */
  int64_t t = w->t + breaker.lease_ms + breaker.open_max_ms + 1;
  (void)fg_health_scan(w->region, &breaker, t);
  MUST(fg_health_admit(&w->ask, &how, t, &k, &why), "stuck");
  fg_outcome good = {.what = FG_OUT_OK};
  (void)fg_health_result(&w->ask, &k, &good, t);
  MUST(fg_health_peek(&w->ask, t).breaker == FG_BREAKER_CLOSED, "a success does not close");
  MUST(in_flight(w) <= slack, "a gauge leaks at last");
  return 1;
}

/* ---- situations ---- */

static void must(int ok, const char *what) {
  if (!ok) {
    printf("setting up: %s\n", what);
    exit(2);
  }
}

static void set_up(world *w, int situation, const int *ops, int count, int same_slot) {
  fg_region_config c = {.size = sizeof(c), .routes = 1, .accounts = 1, .workflows = 1, .procs = 8, .rows = 4};
  memset(w->region, 0, w->bytes);
  fg_region *r = NULL;
  must(fg_region_open(w->region, w->bytes, &c, 0, &r, NULL) == FG_OK, "open");
  fg_health_ask ask = {.region = r, .route = fg_region_route(r, 11, T), .account = fg_region_account(r, 12, T), .breaker = &breaker};
  w->ask = ask;
  w->situation = situation;
  w->count = count;
  w->same_slot = same_slot;
  w->t = T;
  memset(w->before, 0, sizeof(w->before));
  memset(&w->victim, 0, sizeof(w->victim));
  fg_health_view why;
  fg_ticket k;
  fg_outcome bad = {.what = FG_OUT_FAIL};
  for (int i = 0; i < count; i++) {
    w->before[i].op = ops[i];
    w->before[i].slot = same_slot ? 0 : (uint32_t)i;
  }
  int64_t t = T;
  int opens = situation == EXPIRED || situation == PROBING;
  /* Attempts in flight: the actors', then the victim's. Where the breaker has opened since they are of an older generation, but
   * for the first actor's while probing (the victim's, when that actor needs none): it is the probe. */
  for (int late = 0; late < 2; late++) {
    for (int i = 0; i < count; i++) {
      int needs = ops[i] == FAIL || ops[i] == OK || ops[i] == CANCEL || ops[i] == TOKEN || situation == SILENT;
      fg_admit how = {.slot = w->before[i].slot, .retry = 1, .stall_ms = 4500, .total_ms = 20000};
      if (needs && late == (situation == PROBING && i == 0)) {
        must(fg_health_admit(&w->ask, &how, t, &w->before[i].ticket, &why), "an actor's attempt");
      }
    }
    for (int n = late ? 0 : opens ? 2 : situation == CLOSED ? 1 : 0; n > 0; n--) {
      fg_admit how = {.slot = 6, .stall_ms = 4500, .total_ms = 20000};
      must(fg_health_admit(&w->ask, &how, t, &k, &why), "a first failure");
      (void)fg_health_result(&w->ask, &k, &bad, t);
    }
    t += opens && !late ? breaker.open_ms : 0;
  }
  fg_admit dying = {.slot = VICTIM, .retry = 1, .stall_ms = 4500, .total_ms = 20000};
  (void)(situation != EXPIRED && fg_health_admit(&w->ask, &dying, t, &w->victim, &why));
  w->t = t;
  if (situation == SILENT) { /* two attempts already look silent, the actors' are about to */
    fg_stall_flag(&w->ask.route->evidence, 1);
    fg_stall_flag(&w->ask.route->evidence, 1);
    w->t = t + 4500;
  }
  w->ask.route_quota.in_flight = in_flight(w) + ROOM;
  w->failed_before = fg_window_sum(w->ask.route->window, FG_WINDOW_BUCKETS, 5000, 0, w->t).b;
  w->generation_before = fg_breaker_generation(&w->ask.route->breaker);
  w->z_before = fg_stall_get(&w->ask.route->evidence).z_milli;
}

/* ---- all of it ---- */

typedef struct totals { uint64_t worlds, runs, kills, pruned, steps, violations; } totals;
static totals sum;
static int quiet, stop_at_first;
static struct timespec started;

static double seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - started.tv_sec) + (double)(now.tv_nsec - started.tv_nsec) / 1e9;
}

static int every;

static void try_ops(int situation, const int *ops, int count, int same_slot, int kills) {
  set_up(&the, situation, ops, count, same_slot);
  for (int kill = -1; kill < (kills ? count : 0); kill++) {
    for (int after = 0;; after++) {
      weave_world w = {.count = count, .kill = kill, .after = after, .every = every, .begin = begin, .check = check, .world = &the};
      int cut = weave_explore(&w);
      if (kill >= 0 && !cut) {
        break; /* it has ended before that many writes: the runs were the plain ones */
      }
      sum.runs += w.runs;
      sum.kills += w.kills;
      sum.pruned += w.pruned;
      sum.steps += w.steps;
      sum.violations += w.violations;
      if (w.violations > 0 && !quiet) {
        printf("%s:", situation_names[situation]);
        for (int i = 0; i < count; i++) {
          printf(" %s", op_names[ops[i]]);
        }
        printf("%s", same_slot ? " (one process)" : "");
        if (kill >= 0) {
          printf(", %s killed after %d writes", op_names[ops[kill]], after);
        }
        printf(": %llu violations, one is: %s\n", (unsigned long long)w.violations, the.last_wrong);
      }
      if (kill < 0 || (sum.violations > 0 && stop_at_first)) {
        break;
      }
    }
    if (sum.violations > 0 && stop_at_first) {
      break;
    }
  }
  sum.worlds++;
}

static void pairs(int kills) {
  for (int s = 0; s < SITUATIONS; s++) {
    for (int a = 0; a < OPS; a++) {
      for (int b = 0; b < OPS; b++) {
        int ops[2] = {a, b};
        if (b < a && s != PROBING) {
          continue; /* only there the first actor differs: the probe is its */
        }
        try_ops(s, ops, 2, 0, kills);
        try_ops(s, ops, 2, 1, 0);
        if (sum.violations > 0 && stop_at_first) {
          return;
        }
      }
    }
    if (!quiet) {
      printf("  %-8s pairs: %llu runs so far, %.1f s\n", situation_names[s], (unsigned long long)sum.runs, seconds());
      (void)fflush(stdout);
    }
  }
}

/* The reduction itself, checked: beside a payment, orders that commute are run too. */
static void unreduced(void) {
  every = 1;
  for (int s = 0; s < SITUATIONS; s++) {
    for (int a = 0; a < OPS; a++) {
      int ops[2] = {a, PAY};
      try_ops(s, ops, 2, 0, 1);
    }
  }
  every = 0;
}

static void threes(int all, int kills) {
  static const int chosen[][4] = {
      {CLOSED, FAIL, FAIL, PAY},       {CLOSED, ADMIT, ADMIT, ADMIT},   {CLOSED, ADMIT, FAIL, PAY},   {CLOSED, PAY, PAY, PAY},
      {CLOSED, ADMIT, CANCEL, REAP},   {EXPIRED, ADMIT, PAY, PAY},      {EXPIRED, ADMIT, ADMIT, REAP}, {PROBING, OK, FAIL, TOKEN},
      {PROBING, OK, ADMIT, ADMIT},     {PROBING, CANCEL, ADMIT, ADMIT}, {PROBING, CANCEL, FLAG, PAY}, {PROBING, FAIL, ADMIT, REAP},
      {SILENT, FLAG, TOKEN, PAY},      {SILENT, FLAG, FLAG, TOKEN},     {SILENT, FLAG, FAIL, PAY},
  };
  if (!all) {
    for (uint32_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++) {
      uint64_t before = sum.runs;
      try_ops(chosen[i][0], &chosen[i][1], 3, 0, kills);
      printf("  %-8s %s %s %s: %llu runs, %.1f s\n", situation_names[chosen[i][0]], op_names[chosen[i][1]], op_names[chosen[i][2]],
             op_names[chosen[i][3]], (unsigned long long)(sum.runs - before), seconds());
      (void)fflush(stdout);
    }
  }
  for (int s = 0; all && s < SITUATIONS; s++) {
    for (int a = 0; a < OPS; a++) {
      for (int b = a; b < OPS; b++) {
        for (int c = b; c < OPS; c++) {
          int ops[3] = {a, b, c};
          uint64_t before = sum.runs;
          try_ops(s, ops, 3, 0, kills);
          printf("  %-8s %s %s %s: %llu runs, %llu in all, %.1f s\n", situation_names[s], op_names[a], op_names[b], op_names[c],
                 (unsigned long long)(sum.runs - before), (unsigned long long)sum.runs, seconds());
          (void)fflush(stdout);
        }
      }
    }
  }
}

int main(int argc, char **argv) {
  fg_region_config c = {.size = sizeof(c), .routes = 1, .accounts = 1, .workflows = 1, .procs = 8, .rows = 4};
  the.bytes = fg_region_bytes(&c);
  the.region = malloc(the.bytes);
  (void)clock_gettime(CLOCK_MONOTONIC, &started);
  int full = argc > 1 && strcmp(argv[1], "full") == 0;
  int failed = 0;
  must(the.region != NULL, "memory");
  pairs(1);
  unreduced();
  threes(0, 1);
  static const int long_three[] = {ADMIT, FAIL, FAIL};
  try_ops(CLOSED, long_three, 3, 0, 0);
  if (full) {
    threes(1, 0);
  }
  printf("world C: %llu worlds, %llu runs (%llu with a kill), %llu cut short as equal, %llu steps, %llu violations, %.1f s\n",
         (unsigned long long)sum.worlds, (unsigned long long)sum.runs, (unsigned long long)sum.kills, (unsigned long long)sum.pruned,
         (unsigned long long)sum.steps, (unsigned long long)sum.violations, seconds());
  failed += sum.violations > 0;
  static const struct { int plant; const char *name; } plants[] = {{FG_PLANT_STORE, "a plain store instead of compare-and-swap"},
                                                                   {FG_PLANT_LEVEL, "opening by edge: who looks ignores the levels"},
                                                                   {FG_PLANT_QUOTA, "a declared quota looked at before it is counted"},
                                                                   {FG_PLANT_ENDS, "an end that counts down without having freed the row"}};
  quiet = stop_at_first = 1;
  for (uint32_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
    totals none = {0};
    sum = none;
    fg_weave_plant = plants[i].plant;
    pairs(1);
    printf("planted: %s: %s after %llu runs\n", plants[i].name, sum.violations > 0 ? "found" : "NOT FOUND", (unsigned long long)sum.runs);
    failed += sum.violations == 0;
  }
  free(the.region);
  printf("world_c: %d passed, %d failed\n", 5 - failed, failed);
  return failed > 0;
}
