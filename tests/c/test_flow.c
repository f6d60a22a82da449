/* What is learned of how a route is served: speed of its streams, the limit in flight, the rate it lets in. Each on its own words. */
#include "fg_cadence.h"
#include "fg_limit.h"
#include "fg_math.h"
#include "fg_pace.h"
#include "fg_test.h"

enum { START = 3600000 };

static fg_word usual_of(uint32_t per_s) {
  fg_word usual = {0};
  for (int i = 0; i < FG_CADENCE_SAMPLES; i++) {
    fg_cadence_learn(&usual, per_s * 4, 4000, START);
  }
  return usual;
}

/* `streams` streams for ms, each with a piece every 100 ms at `share` per cent of 70 tokens a second. */
static int64_t flow(fg_word *now, const fg_word *usual, uint32_t streams, uint32_t share, uint32_t ms, int64_t t) {
  for (int64_t end = t + ms; t < end; t += 100) {
    for (uint32_t i = 0; i < streams; i++) {
      fg_cadence_step(now, usual, 7 * share / 100, 100, t);
    }
  }
  return t;
}

static void cadence(void) {
  fg_word now = {0}, none = {0}, usual = usual_of(70);
  fg_cadence c = fg_cadence_look(&now, &none, START);
  FG_EQ(c.usual, 0); /* nothing is known: nothing is slow */
  FG_EQ(fg_cadence_slow(&c), FG_SLOW_ONE);
  FG_CHECK(!fg_cadence_slows(&c));
  fg_cadence_step(&now, &none, 1, 100000, START);
  FG_EQ(fg_load(&now), 0);

  int64_t t = flow(&now, &usual, 10, 100, 5000, START);
  c = fg_cadence_look(&now, &usual, t);
  FG_EQ(c.usual, 70000);
  FG_CHECK(c.now_ppm > 990000 && c.now_ppm < 1010000);
  FG_CHECK(!fg_cadence_slows(&c));
  const int64_t onset = t;
  while (c = fg_cadence_look(&now, &usual, t), !fg_cadence_slows(&c) && t < onset + 10000) {
    t = flow(&now, &usual, 10, 29, 100, t); /* a third of the speed, but for the rounding of 7 x 0.29 to 2 */
  }
  FG_CHECK(t - onset >= 800 && t - onset <= 1500); /* seen in little over a second */
  t = flow(&now, &usual, 10, 29, 6000, t);
  c = fg_cadence_look(&now, &usual, t);
  FG_CHECK(fg_cadence_slow(&c) > 3 * FG_SLOW_ONE && fg_cadence_slow(&c) < 4 * FG_SLOW_ONE);
  c = fg_cadence_look(&now, &usual, t + 11000); /* nobody has written since */
  FG_EQ(c.weight_ms, 0);
  FG_EQ(fg_cadence_slow(&c), FG_SLOW_ONE);

  fg_word few = {0}; /* one stream's half second is no evidence */
  t = flow(&few, &usual, 1, 29, 500, START);
  c = fg_cadence_look(&few, &usual, t);
  FG_CHECK(!fg_cadence_slows(&c));

  for (int i = 0; i < 2000; i++) { /* ten minutes of a third: the usual has not become it */
    fg_cadence_learn(&usual, 93, 4000, START + i * 300);
  }
  c = fg_cadence_look(&now, &usual, START);
  FG_CHECK(c.usual > 56000);
  for (int i = 0; i < 24 * 20; i++) { /* six seconds of streams that look 64 times as fast */
    fg_cadence_learn(&usual, 70 * 64 * 4, 4000, START + 600000 + i * 12);
  }
  c = fg_cadence_look(&now, &usual, START);
  FG_CHECK(c.usual < 70000);
  for (int i = 0; i < 3600; i++) { /* an hour of twice as fast is believed */
    fg_cadence_learn(&usual, 560, 4000, START + 610000 + i * 1000);
  }
  c = fg_cadence_look(&now, &usual, START);
  FG_CHECK(c.usual > 110000);
  now.v = usual.v = UINT64_MAX; /* nonsense is no trap */
  fg_cadence_step(&now, &usual, UINT32_MAX, UINT32_MAX, START);
  c = fg_cadence_look(&now, &usual, START);
  FG_CHECK(fg_cadence_slow(&c) >= FG_SLOW_ONE && fg_cadence_slow(&c) <= FG_SLOW_MAX);
}

static void limit(void) {
  fg_word w = {0}, crowd = {0};
  FG_EQ(fg_limit_now(&w, START), 0);
  fg_limit_admitted(&w, 100, START);
  fg_limit_in_time(&w, &crowd, 100, START);
  FG_EQ(fg_load(&w), 0); /* nothing makes a limit but a reason */
  fg_limit_brake(&w, 16, START);
  FG_EQ(fg_limit_now(&w, START), 16);
  fg_limit_brake(&w, 99, START);
  FG_EQ(fg_limit_now(&w, START), 16);
  for (int i = 0; i < 80; i++) {
    fg_limit_in_time(&w, &crowd, 5, START + 20 * i); /* hardly used: it does not grow */
  }
  FG_EQ(fg_limit_now(&w, START + 1600), 16);
  for (int i = 0; i < 80; i++) {
    fg_limit_in_time(&w, &crowd, 16, START + 1600 + 20 * i);
  }
  FG_CHECK(fg_limit_now(&w, START + 3200) > 16 && fg_limit_now(&w, START + 3200) <= 26);
  FG_EQ(fg_limit_now(&w, START + 14900), fg_limit_now(&w, START + 3200));
  FG_EQ(fg_limit_now(&w, START + 15200), 0); /* did not bind for 15 s */
  fg_limit_admitted(&w, 16, START + 15200);
  FG_EQ(fg_load(&w), 0);

  fg_word late = {0}, queue = {0};
  fg_limit_late(&late, &queue, 30, 7, 2000, START);
  fg_limit_late(&late, &queue, 30, 7, 2000, START);
  FG_EQ(fg_limit_now(&late, START), 0); /* two are chance */
  fg_limit_late(&late, &queue, 30, 7, 2000, START);
  FG_EQ(fg_limit_now(&late, START), 26);
  fg_limit_late(&late, &queue, 28, 7, 2000, START + 500);
  FG_EQ(fg_limit_now(&late, START + 500), 26); /* they queued before it was lowered */
  fg_limit_late(&late, &queue, 14, 7, 2000, START + 2100);
  FG_EQ(fg_limit_now(&late, START + 2100), 12);
  fg_limit_late(&late, &queue, 2, 7, 2000, START + 5000);
  FG_EQ(fg_limit_now(&late, START + 5000), 12); /* two in flight are no crowd */

  fg_word some = {0}, mixed = {0}; /* one in five late: an ordinary day */
  for (int i = 0; i < 500; i++) {
    if (i % 5 == 0) {
      fg_limit_late(&some, &mixed, 40, 7, 2000, START + 100 * i);
    } else {
      fg_limit_in_time(&some, &mixed, 40, START + 100 * i);
    }
  }
  FG_EQ(fg_load(&some), 0);

  fg_word held = {0};
  fg_limit_brake(&held, 1, START);
  FG_EQ(fg_limit_now(&held, START), FG_LIMIT_LEAST);
  for (int i = 1; i < 60; i++) { /* as long as it binds it stays */
    fg_limit_admitted(&held, 3, START + 1000 * i);
    FG_EQ(fg_limit_now(&held, START + 1000 * i), FG_LIMIT_LEAST);
  }
}

static void pace(void) {
  fg_word w = {0}, seen = {0};
  int64_t t = START;
  FG_EQ(fg_pace_now(&w).rate, 0);
  fg_pace_let_in(&w, &seen, t);
  FG_EQ(fg_load(&w), 0);
  fg_pace_refused(&w, &seen, t); /* two a second get in, two are refused */
  for (int i = 0; i < 10; i++) {
    t += 500;
    fg_pace_let_in(&w, &seen, t);
    fg_pace_refused(&w, &seen, t);
  }
  FG_CHECK(fg_pace_now(&w).rate >= 1900 && fg_pace_now(&w).rate <= 2100);
  const uint64_t learned = fg_pace_now(&w).rate;
  for (int i = 0; i < 21; i++) { /* a round of 10 s without a 429 */
    t += 500;
    fg_pace_let_in(&w, &seen, t);
  }
  FG_EQ(fg_pace_now(&w).rate, learned + learned / 10); /* a tenth more is tried */
  fg_pace_refused(&w, &seen, t + 100);
  FG_CHECK(fg_pace_now(&w).rate + 2 >= learned && fg_pace_now(&w).rate <= learned);
  int64_t next = 0;
  for (int i = 0; i < 100 && next == 0; i++) {
    t += 500;
    fg_pace_let_in(&w, &seen, t);
    next = fg_pace_now(&w).rate > learned ? i : 0;
  }
  FG_CHECK(next >= 38 && next <= 42); /* after twice as long */
  while (fg_pace_now(&w).rate != 0 && t < START + 600000) { /* little is wanted any more */
    t += 4000;
    fg_pace_let_in(&w, &seen, t);
  }
  FG_CHECK(t < START + 200000);

  fg_word rare = {0}, counts = {0}; /* a 429 a minute is no rate */
  for (int i = 0; i < 50; i++) {
    fg_pace_refused(&rare, &counts, START + 60000 * i);
    fg_pace_let_in(&rare, &counts, START + 60000 * i + 30000);
    FG_EQ(fg_pace_now(&rare).rate, 0);
  }
  fg_word odd = {UINT64_MAX}, none = {UINT64_MAX};
  fg_pace_let_in(&odd, &none, START);
  FG_EQ(fg_load(&odd), 0);
  fg_word closed = {0}, nothing = {0}; /* nothing gets in: one in 5 s looks */
  for (int i = 0; i <= 60; i++) {
    fg_pace_refused(&closed, &nothing, START + 100 * i);
  }
  FG_EQ(fg_pace_now(&closed).rate, 200);
}

int main(void) {
  cadence();
  limit();
  pace();
  return fg_test_end("flow");
}
