/* Limits across calls: retries an hour, money a day, spill and hedge shares, gauges. */
#include "fg_gauge.h"
#include "fg_math.h"
#include "fg_spend.h"
#include "fg_spill.h"
#include "fg_test.h"

static const int64_t hour = 3600000, day = 86400000, cent = 10000000;
static const int64_t noon = INT64_C(1800000000000) / 86400000 * 86400000 + 43200000;

static fg_day wall(int64_t t) { return (fg_day){t, noon + t}; }
static fg_day no_wall(int64_t t) { return (fg_day){t, 0}; }

static void retries(void) {
  fg_word w = {0};
  for (int i = 0; i < 3; i++) {
    FG_CHECK(fg_retries_take(&w, 3, hour));
  }
  FG_CHECK(!fg_retries_take(&w, 3, 2 * hour - 1));
  fg_retries_undo(&w, hour);
  FG_EQ(fg_retries_get(&w, hour), 2);
  FG_CHECK(fg_retries_take(&w, 3, hour));
  FG_CHECK(fg_retries_take(&w, 3, 2 * hour));
  FG_EQ(fg_retries_get(&w, 2 * hour), 1);
  fg_retries_undo(&w, 5 * hour); /* of another hour: nothing */
  FG_EQ(fg_retries_get(&w, 2 * hour), 1);
  for (int i = 0; i < 1000; i++) {
    FG_CHECK(fg_retries_take(&w, 0, 2 * hour)); /* no limit, still counted */
  }
  FG_EQ(fg_retries_get(&w, 2 * hour), 1001);
}

static void money(void) {
  fg_word own = {0}, all = {0};
  uint32_t stamp = 0, later = 0;
  FG_EQ(fg_spend_hold(&own, 5 * cent, &all, 8 * cent, 3 * cent, wall(0), &stamp), 0);
  FG_EQ(fg_spend_hold(&own, 5 * cent, &all, 8 * cent, 3 * cent, wall(0), &later), 1); /* its own limit */
  FG_EQ(fg_spend_get(&own, wall(0)), 3 * cent);
  fg_word other = {0};
  FG_EQ(fg_spend_hold(&other, -1, &all, 8 * cent, 6 * cent, wall(0), &later), 2); /* everybody's: undone in the first */
  FG_EQ(fg_spend_get(&other, wall(0)), 0);
  FG_EQ(fg_spend_get(&all, wall(0)), 3 * cent);
  fg_spend_settle(&own, &all, 3 * cent, 1 * cent, stamp, wall(1000));
  FG_EQ(fg_spend_get(&own, wall(1000)), 1 * cent);
  FG_EQ(fg_spend_get(&all, wall(1000)), 1 * cent);
  FG_EQ(fg_spend_hold(&own, 5 * cent, NULL, 0, 4 * cent, wall(2000), &stamp), 0); /* exactly the limit */
  FG_CHECK(fg_spend_over(&own, 5 * cent, 1, wall(2000)));
  FG_CHECK(!fg_spend_over(&own, -1, INT64_MAX, wall(2000)));
  FG_CHECK(!fg_spend_over(&own, 5 * cent, 5 * cent, wall(day)));
  /* Midnight: the hold of yesterday is not given back to today, but what it cost more is counted. */
  FG_EQ(fg_spend_get(&own, wall(hour * 12)), 0);
  FG_EQ(fg_spend_hold(&own, -1, NULL, 0, 2 * cent, wall(hour * 13), &later), 0);
  fg_spend_settle(&own, NULL, 4 * cent, 1 * cent, stamp, wall(hour * 13));
  FG_EQ(fg_spend_get(&own, wall(hour * 13)), 2 * cent);
  fg_spend_settle(&own, NULL, 4 * cent, 5 * cent, stamp, wall(hour * 13));
  FG_EQ(fg_spend_get(&own, wall(hour * 13)), 3 * cent);
  FG_EQ(fg_spend_get(&own, wall(hour * 11)), 3 * cent); /* the clock went back over midnight: nothing is forgotten */

  fg_word rolling = {0}; /* no wall clock: 24 hours from the first spend */
  int64_t t = 5 * hour;
  FG_EQ(fg_spend_hold(&rolling, 5 * cent, NULL, 0, 5 * cent, no_wall(t), &stamp), 0);
  FG_EQ(fg_spend_hold(&rolling, 5 * cent, NULL, 0, 1, no_wall(t + day - hour), &stamp), 1);
  FG_EQ(fg_spend_hold(&rolling, 5 * cent, NULL, 0, 5 * cent, no_wall(t + day), &stamp), 0);
  FG_EQ(fg_spend_get(&rolling, wall(t + day)), 5 * cent); /* a wall clock arrives: the sum is kept */
  FG_EQ(fg_spend_hold(&rolling, 5 * cent, NULL, 0, 1, wall(t + day), &stamp), 1);

  /* Two days of 24 hours that began at other hours: each gets back what was held in it, by the 16 bits that a call keeps. */
  fg_word early = {0}, everybody = {0};
  FG_EQ(fg_spend_hold(&everybody, -1, NULL, 0, 1 * cent, no_wall(t), &later), 0);
  FG_EQ(fg_spend_hold(&early, -1, &everybody, -1, 3 * cent, no_wall(t + 5 * hour), &stamp), 0);
  FG_CHECK(stamp <= UINT16_MAX);
  fg_spend_settle(&early, &everybody, 3 * cent, 1 * cent, (uint16_t)stamp, no_wall(t + 6 * hour));
  FG_EQ(fg_spend_get(&early, no_wall(t + 6 * hour)), 1 * cent);
  FG_EQ(fg_spend_get(&everybody, no_wall(t + 6 * hour)), 2 * cent);
  FG_EQ(fg_spend_hold(&early, -1, &everybody, -1, 3 * cent, no_wall(t + 7 * hour), &stamp), 0);
  FG_EQ(fg_spend_hold(&everybody, -1, NULL, 0, 1 * cent, no_wall(t + 25 * hour), &later), 0); /* its next day */
  fg_spend_settle(&early, &everybody, 3 * cent, 0, stamp, no_wall(t + 26 * hour));
  FG_EQ(fg_spend_get(&early, no_wall(t + 26 * hour)), 1 * cent);
  FG_EQ(fg_spend_get(&everybody, no_wall(t + 26 * hour)), 1 * cent);

  fg_word small = {0}; /* whole micro-dollars, rounded up */
  FG_EQ(fg_spend_hold(&small, -1, NULL, 0, 1, wall(0), &stamp), 0);
  FG_EQ(fg_spend_get(&small, wall(0)), 1000);
  fg_word huge = {0};
  FG_EQ(fg_spend_hold(&huge, -1, NULL, 0, INT64_MAX, wall(0), &stamp), 0);
  FG_EQ(fg_spend_hold(&huge, -1, NULL, 0, INT64_MAX, wall(0), &stamp), 0);
  FG_CHECK(fg_spend_get(&huge, wall(0)) > 0);
  FG_EQ(fg_spend_hold(&huge, 0, NULL, 0, 1, wall(0), &stamp), 1);
}

static void spill(void) {
  fg_word w[FG_SPILL_BUCKETS] = {{0}};
  for (int i = 0; i < 3; i++) { /* never fewer than three */
    FG_CHECK(fg_spill_take(w, 0, FG_SPILL_FLOOR, hour));
  }
  FG_CHECK(!fg_spill_take(w, 0, FG_SPILL_FLOOR, hour));
  for (int i = 0; i < 100; i++) {
    fg_spill_call(w, hour + 1000);
  }
  FG_CHECK(!fg_spill_take(w, 30000, FG_SPILL_FLOOR, hour + 2000)); /* 3 of 100 are out */
  FG_CHECK(fg_spill_take(w, 40000, FG_SPILL_FLOOR, hour + 2000));
  fg_spill_undo(w, hour + 2000);
  FG_CHECK(fg_spill_room(w, 40000, FG_SPILL_FLOOR, hour + 2000));
  FG_CHECK(fg_spill_take(w, 40000, FG_SPILL_FLOOR, hour + 2000));
  FG_CHECK(!fg_spill_take(w, 40000, FG_SPILL_FLOOR, hour + 59000));
  FG_CHECK(fg_spill_take(w, 0, FG_SPILL_FLOOR, hour + 61000));
  FG_CHECK(!fg_spill_take(w, 20000, 0, hour + 200000)); /* hedges have no floor */
}

static void gauges(void) {
  fg_word w[3] = {{0}};
  fg_gauge one = {1, 1, 0, 0}, flow = {0, 0, 1, 1};
  fg_gauge_add(&w[0], one);
  fg_gauge_add(&w[0], flow);
  fg_gauge_add(&w[2], one);
  fg_gauge s = fg_gauge_sum(w, 3);
  FG_EQ(s.in_flight, 2);
  FG_EQ(s.retries, 2);
  FG_EQ(s.generating, 1);
  FG_EQ(s.stuck, 1);
  fg_gauge_sub(&w[1], one); /* never below 0, never into the neighbour */
  FG_EQ(w[1].v, 0);
  for (int i = 0; i < 3; i++) {
    fg_gauge_sub(&w[0], one);
  }
  FG_EQ(w[0].v, 0); /* what generates is in flight, or was */
  fg_gauge_add(&w[0], flow);
  FG_EQ(w[0].v, 0); /* counted after the end: too late */
  fg_gauge lots = {60000, 60000, 60000, 60000};
  fg_gauge_add(&w[1], lots);
  fg_gauge_add(&w[1], lots);
  FG_CHECK(w[1].v == UINT64_MAX);
}

static void test_whole_share(void) {
  fg_word w[FG_SPILL_BUCKETS];
  memset(w, 0, sizeof w);
  fg_spill_call(w, 1000); /* one call, and it may spill from stand-in to stand-in */
  for (int i = 0; i < 10; i++) {
    FG_EQ(fg_spill_take(w, 1000000, FG_SPILL_FLOOR, 1000), 1);
  }
}

int main(void) {
  retries();
  money();
  spill();
  gauges();
  test_whole_share();
  return fg_test_end("spend");
}
