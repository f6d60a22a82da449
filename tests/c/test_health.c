/* Health: what the words together say, rows S01-S07, C05-C15, latches, limits, admission undone. */
#include "fg_test.h"
#include "region_help.h"

static uint32_t at_window(bed *b, int64_t at, int failed) {
  fg_window_sums s = fg_window_sum(b->ask.route->window, FG_WINDOW_BUCKETS, 5000, 0, at + HOUR);
  return failed ? s.b : s.a;
}

static void s01_s03(void) {
  bed b;
  fg_ticket k[4];
  bed_open(&b, 8, 16);
  for (int i = 0; i < 3; i++) {
    FG_CHECK(bed_admit(&b, &k[i], i * 1000));
  }
  int64_t tick[] = {4499, 4500, 5500, 6499, 6500};
  uint32_t want[] = {0, 2303, 4606, 4606, 6909};
  for (int i = 0; i < 5; i++) { /* S01 */
    bed_tick(&b, tick[i]);
    FG_EQ(bed_z(&b), want[i]);
    FG_EQ(bed_state(&b, tick[i]), i == 4 ? FG_BREAKER_OPEN : FG_BREAKER_CLOSED);
  }
  FG_EQ(bed_health(&b, 6500), FG_HEALTH_STALLED);
  FG_EQ(fg_health_peek(&b.ask, HOUR + 6500).wait_ms, 5000);
  bed_token(&b, &k[0], 7000); /* two of three speak after all: retracted */
  FG_EQ(bed_health(&b, 7000), FG_HEALTH_STALLED);
  bed_token(&b, &k[1], 7100);
  FG_EQ(bed_health(&b, 7100), FG_HEALTH_PROBE);
  FG_EQ(bed_state(&b, 7100), FG_BREAKER_HALF_OPEN);
  bed_close(&b);

  bed_open(&b, 8, 16); /* S02 */
  FG_CHECK(bed_admit(&b, &k[0], 0));
  FG_CHECK(bed_admit(&b, &k[1], 0));
  bed_tick(&b, 4500);
  FG_CHECK(bed_admit(&b, &k[2], 5000));
  bed_token(&b, &k[2], 5500);
  FG_EQ(bed_z(&b), 3964);
  FG_CHECK(bed_admit(&b, &k[3], 6000));
  bed_tick(&b, 10500);
  FG_EQ(bed_z(&b), 6267);
  FG_EQ(bed_state(&b, 10500), FG_BREAKER_CLOSED);
  FG_CHECK(bed_admit(&b, &k[2], 11000));
  bed_tick(&b, 15500);
  FG_EQ(bed_z(&b), 8570);
  FG_EQ(bed_state(&b, 15500), FG_BREAKER_OPEN);
  bed_close(&b);

  bed_open(&b, 8, 16); /* S03 */
  FG_CHECK(bed_admit(&b, &k[0], 0));
  FG_CHECK(bed_admit(&b, &k[1], 0));
  bed_tick(&b, 4500);
  FG_EQ(bed_z(&b), 4606);
  bed_token(&b, &k[0], 5000);
  FG_EQ(bed_z(&b), 2303);
  FG_CHECK(bed_admit(&b, &k[2], 5000));
  bed_tick(&b, 9500);
  FG_EQ(bed_z(&b), 4606);
  FG_EQ(bed_state(&b, 9500), FG_BREAKER_CLOSED);
  bed_token(&b, &k[0], 9600); /* the second first token is none */
  FG_EQ(bed_z(&b), 4606);
  FG_EQ(bed_gauge(&b).generating, 1);
  bed_close(&b);
}

static void s04_s06(void) {
  bed b;
  fg_ticket k;
  bed_open(&b, 8, 16);
  uint32_t most = 0; /* S04 */
  int64_t at = 0;
  for (int i = 0; i < 1000; i++) {
    FG_CHECK(bed_admit(&b, &k, at));
    if (i % 10 == 9) {
      at += 4500;
      bed_tick(&b, at);
      most = bed_z(&b) > most ? bed_z(&b) : most;
      (void)bed_end(&b, &k, FG_OUT_NEUTRAL, at + 500);
    } else {
      bed_token(&b, &k, at + 500);
      (void)bed_end(&b, &k, FG_OUT_OK, at + 900);
    }
    at += 1000;
  }
  FG_EQ(most, 2303);
  FG_EQ(bed_state(&b, at), FG_BREAKER_CLOSED);
  FG_EQ(bed_gauge(&b).in_flight, 0);
  FG_EQ(b.ask.route->count[FG_ROUTE_ATTEMPTS].v, 1000);
  FG_EQ(b.ask.route->count[FG_ROUTE_SUCCESSES].v, 900);
  FG_EQ(b.ask.route->count[FG_ROUTE_STALLS].v, 100);
  bed_close(&b);

  bed_open(&b, 8, 16); /* S05 */
  uint32_t want[] = {2303, 1661, 3964, 3322, 5625, 4983, 7286};
  fg_ticket hung[4];
  for (int i = 0; i < 7; i++) {
    at = i * 5000;
    fg_ticket *which = i % 2 == 0 ? &hung[i / 2] : &k;
    FG_CHECK(bed_admit(&b, which, at));
    if (i % 2 == 0) {
      bed_tick(&b, at + 4500);
    } else {
      bed_token(&b, which, at + 500);
      (void)bed_end(&b, which, FG_OUT_OK, at + 600);
    }
    FG_EQ(bed_z(&b), want[i]);
    FG_EQ(bed_state(&b, at + 4500), i == 6 ? FG_BREAKER_OPEN : FG_BREAKER_CLOSED);
  }
  bed_close(&b);

  bed_open(&b, 8, 16); /* S06 */
  FG_CHECK(bed_admit(&b, &k, 0));
  bed_tick(&b, 4500);
  FG_EQ(bed_z(&b), 2303);
  (void)bed_end(&b, &k, FG_OUT_FAIL, 6000);
  FG_EQ(bed_z(&b), 0);
  FG_EQ(bed_run(&b), 1);
  FG_EQ(at_window(&b, 6000, 1), 1);
  FG_EQ(at_window(&b, 6000, 0), 0);
  FG_EQ(bed_end(&b, &k, FG_OUT_FAIL, 6001), 0); /* told twice: counted once */
  FG_EQ(bed_run(&b), 1);
  bed_close(&b);
}

static void s07(void) {
  bed b;
  fg_ticket k[3], f, p;
  bed_open(&b, 8, 32);
  for (int i = 0; i < 3; i++) {
    FG_CHECK(bed_admit(&b, &k[i], 10)); /* silent all along */
  }
  for (int i = 0; i < 5; i++) {
    FG_CHECK(bed_admit(&b, &f, 20));
    (void)bed_end(&b, &f, FG_OUT_FAIL, 20);
  }
  FG_EQ(bed_state(&b, 20), FG_BREAKER_OPEN);
  FG_CHECK(bed_admit(&b, &p, 10020));
  bed_tick(&b, 10021);
  FG_EQ(bed_state(&b, 10021), FG_BREAKER_HALF_OPEN);
  FG_EQ(bed_z(&b), 0);
  for (int i = 0; i < 3; i++) { /* nor do their results count */
    FG_EQ(bed_end(&b, &k[i], i == 0 ? FG_OUT_OK : FG_OUT_FAIL, 10030), FG_DID_STALE);
  }
  FG_EQ(bed_state(&b, 10030), FG_BREAKER_HALF_OPEN);
  FG_EQ(fg_breaker_peek(&b.ask.route->breaker, &b.breaker, NULL, HOUR + 10030).ok, 0);
  bed_close(&b);
}

/* Rows C05-C11 through admissions and results. */
static void c05_c15(void) {
  bed b;
  fg_ticket k[5], p, q;
  bed_open(&b, 8, 32);
  for (int i = 0; i < 5; i++) {
    FG_CHECK(bed_admit(&b, &k[i], i * 10));
  }
  for (int i = 0; i < 5; i++) {
    uint32_t did = bed_end(&b, &k[i], FG_OUT_FAIL, 100 + i);
    FG_EQ(did, i == 4 ? FG_DID_OPEN : 0);
  }
  fg_health_view v = fg_health_peek(&b.ask, HOUR + 104); /* C05 */
  FG_EQ(v.breaker, FG_BREAKER_OPEN);
  FG_EQ(v.generation, 2);
  FG_EQ(v.wait_ms, 10000);
  FG_EQ(v.health, FG_HEALTH_OPEN);
  FG_CHECK(!bed_admit(&b, &p, 10103)); /* C06 */
  FG_CHECK(bed_admit(&b, &p, 10104));
  FG_EQ(p.generation[FG_PART_BREAKER], 3);
  FG_CHECK(!bed_admit(&b, &q, 10104));
  FG_EQ(bed_gauge(&b).in_flight, 1);
  FG_EQ(bed_end(&b, &p, FG_OUT_OK, 10200), 0); /* C07 */
  FG_CHECK(bed_admit(&b, &p, 10300));
  FG_EQ(bed_end(&b, &p, FG_OUT_LIFE, 10400), FG_DID_CLOSE);
  FG_EQ(bed_state(&b, 10400), FG_BREAKER_CLOSED);
  FG_EQ(fg_health_peek(&b.ask, HOUR + 10400).generation, 4);
  FG_EQ(fg_health_peek(&b.ask, HOUR + 10400).window_failed, 0); /* the failures before are behind the floor */
  bed_close(&b);

  bed_open(&b, 8, 32); /* C08, C09 */
  FG_CHECK(bed_admit(&b, &q, 0));
  for (int i = 0; i < 5; i++) {
    FG_CHECK(bed_admit(&b, &k[i], 0));
    (void)bed_end(&b, &k[i], FG_OUT_FAIL, 2);
  }
  FG_CHECK(bed_admit(&b, &p, 10002));
  FG_EQ(bed_end(&b, &q, FG_OUT_OK, 10010), FG_DID_STALE);
  FG_EQ(bed_end(&b, &p, FG_OUT_NEUTRAL, 10020), 0);
  FG_CHECK(bed_admit(&b, &p, 10021));
  FG_EQ(bed_end(&b, &p, FG_OUT_RATE, 10030), FG_DID_OPEN); /* a 429 fails a probe */
  FG_EQ(fg_health_peek(&b.ask, HOUR + 10030).wait_ms, 20000);
  bed_close(&b);

  for (int stall = 0; stall < 2; stall++) { /* C10, C11 */
    bed_open(&b, 8, 32);
    b.breaker.stall = (uint32_t)stall;
    for (int i = 0; i < 5; i++) {
      FG_CHECK(bed_admit(&b, &k[i], 0));
      (void)bed_end(&b, &k[i], FG_OUT_FAIL, 2);
    }
    FG_CHECK(bed_admit(&b, &p, 10002));
    bed_tick(&b, 14501);
    FG_EQ(bed_state(&b, 14501), FG_BREAKER_HALF_OPEN);
    bed_tick(&b, 14502);
    if (stall) {
      FG_EQ(bed_state(&b, 14502), FG_BREAKER_OPEN);
      FG_EQ(fg_health_peek(&b.ask, HOUR + 14502).wait_ms, 20000);
    } else {
      FG_CHECK(!bed_admit(&b, &q, 20000));
      FG_CHECK(!bed_admit(&b, &q, 40001));
      FG_CHECK(!bed_admit(&b, &q, 40002));
      FG_EQ(bed_state(&b, 40002), FG_BREAKER_OPEN);
      FG_CHECK(!bed_admit(&b, &q, 60001));
      FG_CHECK(bed_admit(&b, &q, 60002));
    }
    bed_close(&b);
  }

  bed_open(&b, 8, 32); /* C13: a 429 neither counts nor ends the run; a success ends it */
  for (int round = 0; round < 2; round++) {
    uint32_t middle = round == 0 ? FG_OUT_OK : FG_OUT_RATE;
    for (int i = 0; i < 6; i++) {
      FG_CHECK(bed_admit(&b, &p, 100));
      (void)bed_end(&b, &p, i == 4 ? middle : FG_OUT_FAIL, 100);
    }
    FG_EQ(bed_state(&b, 100), round == 0 ? FG_BREAKER_CLOSED : FG_BREAKER_OPEN);
    bed_close(&b);
    bed_open(&b, 8, 32);
  }
  for (int i = 0; i < 8; i++) { /* C14 */
    FG_CHECK(bed_admit(&b, &p, 100));
    FG_EQ(bed_end(&b, &p, i % 2 ? FG_OUT_FAIL : FG_OUT_OK, 100), i == 7 ? FG_DID_OPEN : 0);
  }
  bed_close(&b);

  bed_open(&b, 8, 32); /* C15 through the region's clock */
  for (int i = 0; i < 5; i++) {
    FG_CHECK(bed_admit(&b, &k[i], 0));
    (void)bed_end(&b, &k[i], FG_OUT_FAIL, 2);
  }
  int64_t t = 0;
  FG_EQ(fg_region_time(b.region, 2, &t), FG_OK);
  for (int64_t now = 0; now < 2; now++) {
    FG_EQ(fg_region_time(b.region, now, &t), FG_OK);
    fg_health_view v2 = fg_health_peek(&b.ask, t);
    FG_EQ(v2.health, FG_HEALTH_OPEN);
    FG_EQ(v2.wait_ms, 10000);
  }
  bed_close(&b);
}

static void quota_and_keys(void) {
  bed b;
  fg_ticket k, late, p;
  bed_open(&b, 8, 32);
  FG_CHECK(bed_admit(&b, &k, 0));
  FG_CHECK(bed_admit(&b, &late, 0));
  FG_EQ(bed_end(&b, &k, FG_OUT_AUTH, 100), FG_DID_LATCH_KEY);
  FG_EQ(bed_end(&b, &late, FG_OUT_AUTH, 150), 0); /* one latch */
  FG_EQ(bed_state(&b, 150), FG_BREAKER_CLOSED);
  FG_EQ(bed_health(&b, 150), FG_HEALTH_KEY_LATCHED);
  FG_CHECK(!bed_admit(&b, &p, 30099));
  FG_CHECK(bed_admit(&b, &p, 30100)); /* one leased probe */
  FG_EQ(p.probe[FG_PART_AUTH], 1);
  FG_CHECK(!bed_admit(&b, &k, 30101));
  FG_EQ(bed_end(&b, &p, FG_OUT_AUTH, 30200), FG_DID_LATCH_KEY);
  FG_CHECK(bed_admit(&b, &p, 60200));
  FG_EQ(bed_end(&b, &p, FG_OUT_NEUTRAL, 60300), 0); /* cancelled: the next one probes */
  FG_CHECK(bed_admit(&b, &p, 60400));
  FG_EQ(bed_end(&b, &p, FG_OUT_OK, 60500), FG_DID_CLEAR);
  FG_EQ(bed_health(&b, 60500), FG_HEALTH_OK);

  fg_outcome daily = {FG_OUT_QUOTA, FG_SCOPE_ACCOUNT, FG_PERIOD_DAY, 1, 7200000}; /* the hint may mislead: 60 s, then 120 s */
  FG_CHECK(bed_admit(&b, &k, 61000));
  FG_EQ(fg_health_result(&b.ask, &k, &daily, HOUR + 61000), FG_DID_LATCH_QUOTA);
  fg_health_view v = fg_health_peek(&b.ask, HOUR + 61000);
  FG_EQ(v.health, FG_HEALTH_QUOTA_LATCHED);
  FG_EQ(v.wait_ms, 60000);
  FG_EQ(v.hint_ms, 7200000);
  FG_CHECK(bed_admit(&b, &p, 121000));
  FG_EQ(fg_health_result(&b.ask, &p, &daily, HOUR + 121000), FG_DID_LATCH_QUOTA);
  FG_EQ(fg_health_peek(&b.ask, HOUR + 121000).wait_ms, 120000);
  bed_close(&b);

  bed_open(&b, 8, 32);
  fg_outcome minute = {FG_OUT_QUOTA, FG_SCOPE_MODEL, FG_PERIOD_MINUTE, 1, 17000}; /* a short period is believed */
  FG_CHECK(bed_admit(&b, &k, 0));
  FG_EQ(fg_health_result(&b.ask, &k, &minute, HOUR), FG_DID_LATCH_ROUTE);
  v = fg_health_peek(&b.ask, HOUR);
  FG_EQ(v.health, FG_HEALTH_MODEL_LATCHED);
  FG_EQ(v.wait_ms, 17000);
  uint32_t wait = 0;
  FG_EQ(fg_health_latch(&b.ask, HOUR, &wait), FG_HEALTH_MODEL_LATCHED);
  FG_EQ(wait, 17000);
  bed_close(&b);

  bed_open(&b, 8, 32);
  FG_CHECK(bed_admit(&b, &k, 0));
  FG_EQ(bed_end(&b, &k, FG_OUT_MISCONFIGURED, 0), FG_DID_LATCH_ROUTE);
  FG_EQ(fg_health_peek(&b.ask, HOUR).wait_ms, 30000);
  bed_close(&b);
}

static void limits(void) {
  bed b;
  fg_ticket k[8];
  bed_open(&b, 8, 4);
  b.ask.route_quota.in_flight = 3;
  for (int i = 0; i < 3; i++) {
    FG_CHECK(bed_admit(&b, &k[i], 0));
  }
  FG_CHECK(!bed_admit(&b, &k[3], 0));
  FG_EQ(bed_health(&b, 0), FG_HEALTH_FULL);
  FG_EQ(bed_gauge(&b).in_flight, 3);
  (void)bed_end(&b, &k[0], FG_OUT_OK, 10);
  FG_CHECK(bed_admit(&b, &k[0], 10));
  b.ask.route_quota.in_flight = 0;
  b.ask.account_quota.in_flight = 4;
  b.how.slot = 5; /* another process of the same account */
  FG_CHECK(bed_admit(&b, &k[3], 10));
  FG_CHECK(!bed_admit(&b, &k[4], 10));
  FG_EQ(bed_gauge(&b).in_flight, 4);
  b.ask.account_quota.in_flight = 0;
  b.how.slot = 0;
  FG_CHECK(bed_admit(&b, &k[4], 10)); /* the fourth row */
  FG_CHECK(bed_admit(&b, &k[5], 10)); /* no row free: not a witness, but counted */
  FG_EQ(k[5].watch.row, 0);
  FG_EQ(bed_gauge(&b).in_flight, 6);
  (void)bed_end(&b, &k[5], FG_OUT_OK, 20);
  fg_health_abandon(b.region, &k[4]);
  fg_health_abandon(b.region, &k[4]);
  FG_EQ(bed_gauge(&b).in_flight, 4);
  b.how.retry = 1;
  FG_CHECK(fg_health_retry_room(b.region, b.ask.route)); /* B14: one retry beside fewer than ten */
  FG_CHECK(bed_admit(&b, &k[4], 30));
  FG_CHECK(!fg_health_retry_room(b.region, b.ask.route));
  bed_close(&b);

  bed_open(&b, 8, 64);
  b.ask.route_quota.rpm = 60; /* ten at once, then one a second */
  fg_ticket t[12];
  for (int i = 0; i < 10; i++) {
    FG_CHECK(bed_admit(&b, &t[i], 0));
  }
  FG_CHECK(!bed_admit(&b, &t[10], 0));
  fg_health_view v = fg_health_peek(&b.ask, HOUR);
  FG_EQ(v.health, FG_HEALTH_PACED);
  FG_EQ(v.wait_ms, 1000);
  b.ask.account_quota.in_flight = 1; /* a refusal by a later check gives the earlier ones back */
  uint64_t before = b.ask.route->rpm.v;
  FG_CHECK(!bed_admit(&b, &t[10], 1000));
  FG_CHECK(b.ask.route->rpm.v == before);
  bed_close(&b);

  bed_open(&b, 8, 64); /* a wait the server named holds for everyone */
  FG_CHECK(bed_admit(&b, &t[0], 0));
  fg_outcome rate = {FG_OUT_RATE, FG_SCOPE_MODEL, 0, 1, 2000};
  (void)fg_health_result(&b.ask, &t[0], &rate, HOUR);
  FG_EQ(bed_health(&b, 1999), FG_HEALTH_NOT_BEFORE);
  FG_EQ(fg_health_peek(&b.ask, HOUR + 500).wait_ms, 1500);
  FG_EQ(bed_health(&b, 2000), FG_HEALTH_OK);
  FG_EQ(bed_state(&b, 0), FG_BREAKER_CLOSED);
  bed_close(&b);
}

static void ramp(void) {
  bed b;
  fg_ticket k;
  bed_open(&b, 8, 64);
  for (int i = 0; i < 5; i++) {
    FG_CHECK(bed_admit(&b, &k, 0));
    (void)bed_end(&b, &k, FG_OUT_FAIL, 0);
  }
  FG_CHECK(bed_admit(&b, &k, 10000));
  (void)bed_end(&b, &k, FG_OUT_FAIL, 10000);
  for (int i = 0; i < 2; i++) {
    FG_CHECK(bed_admit(&b, &k, 30000));
    (void)bed_end(&b, &k, FG_OUT_OK, 30000);
  }
  uint32_t taken = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    b.ask.rand = i * (UINT64_MAX / 1000);
    taken += bed_health(&b, 37500) == FG_HEALTH_OK;
  }
  FG_CHECK(taken > 490 && taken < 510);
  b.ask.rand = UINT64_MAX;
  FG_EQ(bed_health(&b, 37500), FG_HEALTH_RAMPING);
  FG_CHECK(!bed_admit(&b, &k, 37500));
  b.ask.ignore_ramp = 1;
  FG_EQ(bed_health(&b, 37500), FG_HEALTH_OK);
  b.ask.ignore_ramp = 0;
  FG_EQ(bed_health(&b, 45000), FG_HEALTH_OK);
  bed_close(&b);
}

static void long_probe(void) { /* a stream longer than its lease stays alive by its tokens */
  bed b;
  fg_ticket k, p;
  bed_open(&b, 8, 64);
  for (int i = 0; i < 5; i++) {
    FG_CHECK(bed_admit(&b, &k, 0));
    (void)bed_end(&b, &k, FG_OUT_FAIL, 0);
  }
  FG_CHECK(bed_admit(&b, &p, 10000));
  bed_token(&b, &p, 12000);
  for (int64_t at = 20000; at < 60000; at += 10000) {
    fg_health_progress(&b.ask, &p, HOUR + at + 60000, HOUR + at);
    FG_EQ(bed_state(&b, at), FG_BREAKER_HALF_OPEN);
    FG_CHECK(!bed_admit(&b, &k, at));
  }
  FG_EQ(bed_end(&b, &p, FG_OUT_OK, 65000), 0);
  FG_EQ(fg_breaker_peek(&b.ask.route->breaker, &b.breaker, NULL, HOUR + 65000).ok, 1);
  bed_close(&b);
  bed_open(&b, 8, 64); /* a whole answer has no tokens: leased for its time-out */
  b.how.kind = FG_LEARN_WHOLE;
  b.how.stall_ms = 0;
  for (int i = 0; i < 5; i++) {
    FG_CHECK(bed_admit(&b, &k, 0));
    (void)bed_end(&b, &k, FG_OUT_FAIL, 0);
  }
  FG_CHECK(bed_admit(&b, &p, 10000));
  FG_CHECK(!bed_admit(&b, &k, 69000));
  FG_EQ(bed_end(&b, &p, FG_OUT_OK, 69500), 0);
  bed_close(&b);
}

int main(void) {
  s01_s03();
  s04_s06();
  s07();
  c05_c15();
  quota_and_keys();
  limits();
  ramp();
  long_probe();
  return fg_test_end("health");
}
