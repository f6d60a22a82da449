/* The breaker's word: numbered rows of the algorithm tables, clocks, leases, latches. */
#include "fg_breaker.h"
#include "fg_math.h"
#include "fg_test.h"
#include "fivegates.h"

static const fg_breaker_config usual = {5, 60000, 8, 500000, 10000, 20000, 0, 1, 30000, 2, 1};
static const fg_breaker_config key_latch = {0, 0, 0, 0, 30000, 30000, 0, 1, 30000, 1, 0};
static const fg_breaker_config quota_latch = {0, 0, 0, 0, 60000, 900000, 0, 1, 30000, 1, 0};

static fg_breaker_levels run_of(uint32_t generation, uint32_t run) {
  fg_breaker_levels v = {generation, run, 0, 0, 0, 0, 0};
  return v;
}

static fg_breaker_ticket admit(fg_word *w, int64_t t) { return fg_breaker_admit(w, &usual, NULL, t); }
static uint32_t state(const fg_word *w, int64_t t) { return fg_breaker_peek(w, &usual, NULL, t).state; }

/* A breaker opened by five failures at 104: C05. */
static void opened(fg_word *w) {
  fg_word fresh = {0};
  *w = fresh;
  fg_breaker_levels v = run_of(1, 5);
  FG_EQ(fg_breaker_settle(w, &usual, &v, 104), FG_TURN_OPENED);
}

static void c05_c10(void) {
  fg_word w = {0};
  FG_EQ(admit(&w, 0).verdict, FG_ADMIT_CLOSED);
  FG_EQ(admit(&w, 0).generation, 1);
  fg_breaker_levels four = run_of(1, 4), five = run_of(1, 5);
  FG_EQ(fg_breaker_settle(&w, &usual, &four, 103), FG_TURN_NONE);
  FG_EQ(fg_breaker_settle(&w, &usual, &five, 104), FG_TURN_OPENED); /* C05 */
  FG_EQ(fg_breaker_generation(&w), 2);
  FG_EQ(state(&w, 104), FG_BREAKER_OPEN);
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 104).wait_ms, 10000);
  FG_EQ(admit(&w, 10103).verdict, FG_ADMIT_REJECT); /* C06 */
  FG_EQ(admit(&w, 10103).wait_ms, 1);
  fg_breaker_ticket p1 = admit(&w, 10104);
  FG_EQ(p1.verdict, FG_ADMIT_PROBE);
  FG_EQ(p1.generation, 3);
  FG_EQ(admit(&w, 10104).verdict, FG_ADMIT_REJECT);
  FG_EQ(fg_breaker_report(&w, &usual, 3, 1, FG_REPORT_OK, 0, 10200), FG_TURN_NONE); /* C07 */
  FG_EQ(state(&w, 10200), FG_BREAKER_HALF_OPEN);
  fg_breaker_ticket p3 = admit(&w, 10300);
  FG_EQ(p3.verdict, FG_ADMIT_PROBE);
  FG_EQ(fg_breaker_report(&w, &usual, p3.generation, 1, FG_REPORT_OK, 0, 10400), FG_TURN_CLOSED);
  fg_breaker_view v = fg_breaker_peek(&w, &usual, NULL, 10400);
  FG_EQ(v.state, FG_BREAKER_CLOSED);
  FG_EQ(v.generation, 4);
  FG_EQ(v.reopens, 0);
  FG_EQ(fg_breaker_ramp_ppm(&w, 10400), 1000000); /* no reopening: no slow start */

  opened(&w); /* C08: an attempt of generation 1 reports while a probe is out */
  FG_EQ(admit(&w, 10104).verdict, FG_ADMIT_PROBE);
  FG_EQ(fg_breaker_report(&w, &usual, 1, 0, FG_REPORT_OK, 0, 10110), FG_TURN_STALE);
  FG_EQ(fg_breaker_report(&w, &usual, 1, 1, FG_REPORT_OK, 0, 10110), FG_TURN_STALE);
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 10110).ok, 0);
  FG_EQ(fg_breaker_report(&w, &usual, 3, 1, FG_REPORT_NEUTRAL, 0, 10120), FG_TURN_NONE); /* C09: cancelled */
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 10120).ok, 0);
  FG_EQ(admit(&w, 10121).verdict, FG_ADMIT_PROBE);

  fg_word zero = {0}; /* C10: opened at 2, the probe of 10,002 never reports */
  w = zero;
  fg_breaker_levels v5 = run_of(1, 5);
  (void)fg_breaker_settle(&w, &usual, &v5, 2);
  FG_EQ(admit(&w, 10002).verdict, FG_ADMIT_PROBE);
  FG_EQ(admit(&w, 20000).verdict, FG_ADMIT_REJECT);
  FG_EQ(admit(&w, 40001).verdict, FG_ADMIT_REJECT);
  fg_breaker_ticket late = admit(&w, 40002);
  FG_EQ(late.verdict, FG_ADMIT_REJECT);
  FG_EQ(late.wait_ms, 20000);
  FG_EQ(state(&w, 40002), FG_BREAKER_OPEN);
  FG_EQ(fg_breaker_report(&w, &usual, 3, 1, FG_REPORT_OK, 0, 40003), FG_TURN_STALE);
  FG_EQ(admit(&w, 60001).verdict, FG_ADMIT_REJECT);
  FG_EQ(admit(&w, 60002).verdict, FG_ADMIT_PROBE);
  /* Nobody looked for a day: the lease and the open time are over, the next caller probes. */
  fg_breaker_ticket day = admit(&w, 86400000);
  FG_EQ(day.verdict, FG_ADMIT_PROBE);
}

static void c11(void) {
  fg_word w = {0};
  fg_breaker_levels v = run_of(1, 5);
  (void)fg_breaker_settle(&w, &usual, &v, 2);
  fg_breaker_ticket p = admit(&w, 10002);
  FG_EQ(fg_breaker_report(&w, &usual, p.generation, 1, FG_REPORT_FAIL, 0, 14502), FG_TURN_OPENED);
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 14502).why, FG_WHY_PROBE);
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 14502).t, 34502);
  FG_EQ(admit(&w, 34501).verdict, FG_ADMIT_REJECT);
  FG_EQ(admit(&w, 34502).verdict, FG_ADMIT_PROBE);
}

static void rates(void) {
  fg_word w = {0};
  fg_breaker_levels v = {1, 0, 4, 4, 0, 0, 0}; /* C14 */
  FG_EQ(fg_breaker_settle(&w, &usual, &v, 50), FG_TURN_OPENED);
  fg_word x = {0};
  fg_breaker_levels seven = {1, 0, 3, 4, 0, 0, 0};
  FG_EQ(fg_breaker_settle(&x, &usual, &seven, 50), FG_TURN_NONE);
  fg_breaker_levels just_below = {1, 0, 5, 4, 0, 0, 0};
  FG_EQ(fg_breaker_settle(&x, &usual, &just_below, 50), FG_TURN_NONE);
  fg_breaker_levels other = {2, 9, 0, 99, 9000, 0, 0}; /* levels of another generation say nothing */
  FG_EQ(fg_breaker_settle(&x, &usual, &other, 50), FG_TURN_NONE);
  fg_breaker_levels many = {1, 0, 4000000, 4000000, 0, 0, 0};
  FG_EQ(fg_breaker_settle(&x, &usual, &many, 50), FG_TURN_OPENED);
  fg_breaker_config off = usual;
  off.consecutive = 0;
  off.min_calls = 0;
  off.stall = 0;
  fg_word y = {0};
  fg_breaker_levels all = {1, 255, 0, 1000, 13800, 0, 0};
  FG_EQ(fg_breaker_settle(&y, &off, &all, 50), FG_TURN_NONE);
}

static void stall_and_retraction(void) {
  fg_word w = {0};
  fg_breaker_levels v = {1, 0, 0, 0, 6899, 0, 0};
  FG_EQ(fg_breaker_settle(&w, &usual, &v, 6500), FG_TURN_NONE);
  v.z_milli = 6909;
  FG_EQ(fg_breaker_settle(&w, &usual, &v, 6500), FG_TURN_OPENED);
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 6500).why, FG_WHY_STALL);
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 6500).wait_ms, 5000); /* provisional */
  fg_breaker_levels back = {2, 0, 0, 0, 0, 1, 0};
  FG_EQ(fg_breaker_settle(&w, &usual, &back, 7000), FG_TURN_HALF);
  FG_EQ(admit(&w, 7000).verdict, FG_ADMIT_PROBE);
  FG_EQ(admit(&w, 7000).verdict, FG_ADMIT_REJECT);
  fg_word both = {0}; /* failures and silence: not provisional */
  fg_breaker_levels two = {1, 5, 0, 0, 6909, 0, 0};
  (void)fg_breaker_settle(&both, &usual, &two, 100);
  FG_EQ(fg_breaker_peek(&both, &usual, NULL, 100).why, FG_WHY_FAILED);
  FG_EQ(fg_breaker_peek(&both, &usual, NULL, 100).wait_ms, 10000);
}

static void backing_off(void) {
  fg_breaker_config c = usual;
  c.open_max_ms = 300000;
  fg_word w = {0};
  fg_breaker_levels v = run_of(1, 5);
  (void)fg_breaker_settle(&w, &c, &v, 0);
  int64_t t = 10000, want = 20000;
  for (int i = 0; i < 7; i++) {
    fg_breaker_ticket p = fg_breaker_admit(&w, &c, NULL, t);
    FG_EQ(p.verdict, FG_ADMIT_PROBE);
    (void)fg_breaker_report(&w, &c, p.generation, 1, FG_REPORT_FAIL, 0, t);
    FG_EQ(fg_breaker_peek(&w, &c, NULL, t).wait_ms, want);
    t += want;
    want = want * 2 > 300000 ? 300000 : want * 2;
  }
  fg_breaker_ticket p = fg_breaker_admit(&w, &c, NULL, t); /* Retry-After is longer than the open time */
  (void)fg_breaker_report(&w, &c, p.generation, 1, FG_REPORT_FAIL, 900000, t);
  FG_EQ(fg_breaker_peek(&w, &c, NULL, t).wait_ms, 900000);
  fg_word x = {0};
  fg_breaker_levels told = {1, 5, 0, 0, 0, 0, 60000};
  (void)fg_breaker_settle(&x, &usual, &told, 100);
  FG_EQ(fg_breaker_peek(&x, &usual, NULL, 100).wait_ms, 59900);
  c.jitter_ppm = 100000; /* +-10 % when asked for */
  for (uint32_t g = 1; g < 2000; g++) {
    uint64_t wait = fg_breaker_open_ms(&c, FG_WHY_FAILED, 0, g);
    if (wait < 9000 || wait > 11000) {
      FG_EQ(wait, 10000);
    }
  }
}

static void slow_start(void) {
  fg_word w;
  opened(&w);
  fg_breaker_ticket p = admit(&w, 10104);
  (void)fg_breaker_report(&w, &usual, p.generation, 1, FG_REPORT_FAIL, 0, 10200);
  p = admit(&w, 30200);
  (void)fg_breaker_report(&w, &usual, p.generation, 1, FG_REPORT_OK, 0, 30300);
  p = admit(&w, 30400);
  FG_EQ(fg_breaker_report(&w, &usual, p.generation, 1, FG_REPORT_OK, 0, 30500), FG_TURN_CLOSED);
  FG_EQ(fg_breaker_ramp_ppm(&w, 30500), 100000);
  FG_EQ(fg_breaker_ramp_ppm(&w, 38000), 500000);
  FG_EQ(fg_breaker_ramp_ppm(&w, 45500), 1000000);
  fg_breaker_levels again = run_of(fg_breaker_generation(&w), 5); /* a failure during the ramp */
  fg_word y = w;
  (void)fg_breaker_settle(&y, &usual, &again, 40000);
  FG_EQ(fg_breaker_peek(&y, &usual, NULL, 40000).wait_ms, 20000);
  (void)fg_breaker_settle(&w, &usual, &again, 70000); /* after it */
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 70000).wait_ms, 10000);
}

static void clocks(void) {
  fg_word w = {0};
  fg_breaker_levels v = run_of(1, 5);
  (void)fg_breaker_settle(&w, &usual, &v, 2);
  FG_EQ(admit(&w, 2).verdict, FG_ADMIT_REJECT); /* C15; the region keeps time from going back further */
  FG_EQ(admit(&w, 2).wait_ms, 10000);
  FG_EQ(admit(&w, 0).verdict, FG_ADMIT_REJECT);
  FG_EQ(admit(&w, 1).wait_ms, 10001);
  FG_EQ(admit(&w, FG_T_MAX).verdict, FG_ADMIT_PROBE);
}

static void leases(void) {
  fg_word w;
  opened(&w);
  fg_breaker_ticket p = admit(&w, 10104);
  fg_breaker_renew(&w, &usual, p.generation, 30000); /* a token: alive */
  FG_EQ(admit(&w, 40104).verdict, FG_ADMIT_REJECT);
  FG_EQ(state(&w, 40104), FG_BREAKER_HALF_OPEN);
  FG_EQ(fg_breaker_report(&w, &usual, p.generation, 1, FG_REPORT_OK, 0, 50000), FG_TURN_NONE);
  FG_EQ(fg_breaker_peek(&w, &usual, NULL, 50000).ok, 1);
  fg_breaker_renew(&w, &usual, p.generation, 50000); /* no probe out: nothing to renew */
  p = admit(&w, 50001);
  fg_breaker_give_back(&w, p.generation, 0);
  fg_breaker_give_back(&w, p.generation, 0); /* twice is harmless with none out */
  FG_EQ(admit(&w, 50002).verdict, FG_ADMIT_PROBE);
  fg_breaker_give_back(&w, p.generation + 1, 0);
  FG_EQ(admit(&w, 50003).verdict, FG_ADMIT_REJECT);
  fg_breaker_config three = usual;
  three.probes = 3;
  opened(&w);
  for (int i = 0; i < 3; i++) {
    FG_EQ(fg_breaker_admit(&w, &three, NULL, 10104).verdict, FG_ADMIT_PROBE);
  }
  FG_EQ(fg_breaker_admit(&w, &three, NULL, 10104).verdict, FG_ADMIT_REJECT);
}

static void latches(void) {
  fg_word w = {0};
  FG_EQ(fg_latch_trip(&w, &key_latch, 1, FG_WHY_FAILED, 30000, 0, 1000), FG_TURN_OPENED);
  FG_EQ(fg_latch_trip(&w, &key_latch, 1, FG_WHY_FAILED, 30000, 0, 1000), FG_TURN_STALE); /* five late 401s are one latch */
  FG_EQ(fg_breaker_peek(&w, &key_latch, NULL, 1000).wait_ms, 30000);
  fg_breaker_ticket p = fg_breaker_admit(&w, &key_latch, NULL, 31000);
  FG_EQ(p.verdict, FG_ADMIT_PROBE);
  FG_EQ(fg_breaker_admit(&w, &key_latch, NULL, 31000).verdict, FG_ADMIT_REJECT);
  FG_EQ(fg_latch_trip(&w, &key_latch, p.generation, FG_WHY_FAILED, 30000, 0, 31500), FG_TURN_OPENED);
  FG_EQ(fg_breaker_peek(&w, &key_latch, NULL, 31500).wait_ms, 30000); /* every 30 s, no doubling */
  p = fg_breaker_admit(&w, &key_latch, NULL, 61500);
  FG_EQ(fg_breaker_report(&w, &key_latch, p.generation, 1, FG_REPORT_OK, 0, 62000), FG_TURN_CLOSED);
  FG_EQ(fg_breaker_admit(&w, &key_latch, NULL, 62000).verdict, FG_ADMIT_CLOSED);

  fg_word q = {0}; /* quota of an unknown period: 60 s, doubling to 15 min */
  int64_t t = 0;
  int64_t wants[] = {60000, 120000, 240000, 480000, 900000, 900000};
  uint32_t generation = 1;
  for (int i = 0; i < 6; i++) {
    FG_EQ(fg_latch_trip(&q, &quota_latch, generation, FG_WHY_FAILED, 0, 86400000, t), FG_TURN_OPENED);
    FG_EQ(fg_breaker_peek(&q, &quota_latch, NULL, t).wait_ms, wants[i]);
    t += wants[i];
    p = fg_breaker_admit(&q, &quota_latch, NULL, t);
    FG_EQ(p.verdict, FG_ADMIT_PROBE);
    generation = p.generation;
  }
  FG_EQ(fg_latch_trip(&q, &quota_latch, generation, FG_WHY_FAILED, 0, 5000, t), FG_TURN_OPENED); /* the reset is sooner than the schedule */
  FG_EQ(fg_breaker_peek(&q, &quota_latch, NULL, t).wait_ms, 5000);
  fg_word m = {0}; /* a month away: not corrupt */
  FG_EQ(fg_latch_trip(&m, &quota_latch, 0, FG_WHY_FAILED, UINT64_C(30) * 86400000, 0, 5), FG_TURN_OPENED);
  FG_EQ(fg_breaker_admit(&m, &quota_latch, NULL, 6).verdict, FG_ADMIT_REJECT);
  FG_EQ(fg_latch_trip(&m, &quota_latch, 0, FG_WHY_FAILED, 1000, 0, 7), FG_TURN_NONE); /* already latched */
}

/* Any word at all: nonsense is fresh, the rest heals within its bounds. */
static void noise(void) {
  uint32_t stuck = 0;
  for (uint64_t i = 0; i < 200000; i++) {
    fg_word w = {fg_rand(11, 0, i)};
    int64_t t = (int64_t)fg_uniform(fg_rand(11, 1, i), (uint64_t)FG_T_MAX / 2);
    fg_breaker_view v = fg_breaker_peek(&w, &usual, NULL, t);
    stuck += v.state > FG_BREAKER_HALF_OPEN;
    (void)admit(&w, t);
    t += INT64_C(2) * 86400000;
    fg_breaker_ticket p = admit(&w, t);
    stuck += p.verdict == FG_ADMIT_REJECT;
  }
  FG_EQ(stuck, 0);
}

static void wrap(void) { /* 16,384 generations, then from the beginning */
  fg_word w = {0};
  uint32_t last = 0;
  for (int i = 0; i < 20000; i++) {
    fg_breaker_levels v = run_of(fg_breaker_generation(&w), 5);
    (void)fg_breaker_settle(&w, &usual, &v, 30000 * (int64_t)i);
    fg_breaker_ticket p = admit(&w, 30000 * (int64_t)i + 20000);
    last = p.generation;
    (void)fg_breaker_report(&w, &usual, p.generation, 1, FG_REPORT_OK, 0, 30000 * (int64_t)i + 20001);
    p = admit(&w, 30000 * (int64_t)i + 20002);
    (void)fg_breaker_report(&w, &usual, p.generation, 1, FG_REPORT_OK, 0, 30000 * (int64_t)i + 20003);
    if (state(&w, 30000 * (int64_t)i + 20003) != FG_BREAKER_CLOSED || p.generation < 1 || p.generation > 16384) {
      FG_EQ(i, -1);
      break;
    }
  }
  FG_CHECK(last >= 1 && last <= 16384);
}

int main(void) {
  c05_c10();
  c11();
  rates();
  stall_and_retraction();
  backing_off();
  slow_start();
  clocks();
  leases();
  latches();
  noise();
  wrap();
  return fg_test_end("breaker");
}
