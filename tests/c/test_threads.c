/* Four threads on one region: admissions, results, payments, scans, look-ups, and a reaper. The sums must come out even. */
#include <pthread.h>
#include <stdatomic.h>

#include "fg_math.h"
#include "fg_spend.h"
#include "fg_test.h"
#include "region_help.h"

enum { THREADS = 4, ROUNDS = 20000 };
static const fg_bucket_config bucket = {0, 10000, 10000, 0};

typedef struct worker {
  bed *b;
  uint32_t slot, bad;
  uint64_t admitted, ended, failed, paid, spilled, learned, held;
} worker;

static atomic_llong clock_ms;

static void *work(void *arg) {
  worker *w = arg;
  fg_health_ask ask = w->b->ask;
  fg_region *r = w->b->region;
  fg_ticket live[8];
  memset(live, 0, sizeof(live));
  for (uint64_t i = 0; i < ROUNDS; i++) {
    int64_t t = 0;
    uint64_t x = fg_rand(w->slot, 1, i);
    if (fg_region_time(r, atomic_fetch_add(&clock_ms, 1), &t) != FG_OK) {
      w->bad++;
      continue;
    }
    ask.route = fg_region_route(r, 1000 + x % 3, t);
    ask.rand = x;
    fg_ticket *k = &live[x >> 8 & 7];
    fg_admit how = {w->slot, FG_LEARN_STREAM, x >> 16 & 1, 300, 2000};
    fg_witness_present(r, w->slot, t);
    if (!k->watch.live) {
      fg_health_view why;
      w->admitted += (uint64_t)fg_health_admit(&ask, &how, t, k, &why);
    } else {
      uint32_t what = x >> 20 & 7; /* latches now and then */
      fg_outcome o = {what < FG_OUT_QUOTA || (x >> 52 & 1023) == 0 ? what : FG_OUT_OK, (uint32_t)(x >> 24) % 5, (uint32_t)(x >> 28) % 7, x >> 32 & 1, (uint32_t)(x >> 33 & 255)};
      ask.route = fg_region_route_at(r, k->watch.route);
      if (x >> 40 & 1) {
        fg_health_token(&ask, k, t + 500, t);
      } else if (x >> 41 & 1) {
        fg_health_progress(&ask, k, t + 1500, t);
      }
      if (x >> 42 & 7) {
        (void)fg_health_result(&ask, k, &o, t);
      } else {
        fg_health_abandon(r, k);
      }
      w->ended++;
    }
    (void)fg_health_scan(r, ask.breaker, t);
    fg_workflow_rec *wf = fg_region_workflow(r, 5, t);
    w->paid += (uint64_t)fg_bucket_pay(&w->b->ask.route->retry, &bucket, 10, t);
    w->spilled += (uint64_t)fg_retries_take(&wf->retries_hour, 0, t);
    uint32_t stamp = 0;
    if (fg_spend_hold(&wf->spend_day, -1, &r->spend_day, 2000000000, 3000, (fg_day){t, 0}, &stamp) == 0) {
      fg_spend_settle(&wf->spend_day, &r->spend_day, 3000, x >> 50 & 1 ? 1000 : 3000, stamp, (fg_day){t, 0});
      w->held += x >> 50 & 1 ? 1 : 3;
    }
    fg_learn_record(&w->b->ask.route->learn[0], (uint32_t)(x >> 44), (uint32_t)(x >> 50));
    (void)fg_learn_quantile(&w->b->ask.route->learn[0], 700, 990000);
  }
  for (int i = 0; i < 8; i++) {
    fg_health_abandon(r, &live[i]);
  }
  return NULL;
}

int main(void) {
  bed b;
  bed_open(&b, 8, 4); /* fewer rows than attempts */
  b.ask.route_quota.in_flight = 20;
  b.ask.account_quota.rpm = 100000;
  atomic_store(&clock_ms, 1);
  worker w[THREADS];
  pthread_t id[THREADS];
  memset(w, 0, sizeof(w));
  for (uint32_t i = 0; i < THREADS; i++) {
    w[i].b = &b;
    w[i].slot = i / 2; /* two threads a process */
    FG_EQ(pthread_create(&id[i], NULL, work, &w[i]), 0);
  }
  for (int i = 0; i < 200; i++) {
    (void)fg_region_reap(b.region, 6, atomic_load(&clock_ms)); /* a slot nobody has */
  }
  uint64_t paid = 0, counted = 0, held = 0, admitted = 0;
  for (int i = 0; i < THREADS; i++) {
    FG_EQ(pthread_join(id[i], NULL), 0);
    FG_EQ(w[i].bad, 0);
    paid += w[i].paid;
    counted += w[i].spilled;
    held += w[i].held;
    admitted += w[i].admitted;
  }
  FG_EQ(paid, 1000);
  int64_t t = fg_region_latest(b.region);
  fg_workflow_rec *wf = fg_region_workflow(b.region, 5, t);
  FG_EQ(counted, (uint64_t)THREADS * ROUNDS);
  FG_EQ(fg_retries_get(&wf->retries_hour, t), counted);
  FG_EQ(fg_spend_get(&wf->spend_day, (fg_day){t, 0}), (int64_t)held * 1000);
  FG_EQ(fg_spend_get(&b.region->spend_day, (fg_day){t, 0}), (int64_t)held * 1000);
  FG_CHECK(admitted > 1000);
  uint64_t attempts = 0;
  for (uint64_t i = 0; i < 3; i++) {
    fg_route_rec *route = fg_region_route(b.region, 1000 + i, t);
    fg_gauge g = fg_gauge_sum(route->gauge, 8);
    FG_EQ(g.in_flight + g.retries + g.generating + g.stuck, 0);
    attempts += route->count[FG_ROUTE_ATTEMPTS].v;
    fg_health_ask ask = b.ask;
    ask.route = route;
    FG_CHECK(fg_health_peek(&ask, t + INT64_C(41) * 86400000).health <= FG_HEALTH_PROBE);
  }
  FG_EQ(attempts, admitted);
  FG_EQ(fg_gauge_sum(b.ask.account->gauge, 8).in_flight, 0);
  FG_EQ(b.ask.route->learn[0].seen.v, (uint64_t)THREADS * ROUNDS);
  bed_close(&b);
  return fg_test_end("threads");
}
