/* Evidence from attempts in flight: the integers of rows S02-S08 on the word itself (S01, S03, S06, S07 with rows: test_health.c). */
#include "fg_breaker.h"
#include "fg_math.h"
#include "fg_stall.h"
#include "fg_test.h"

static uint32_t z(const fg_word *w) { return fg_stall_get(w).z_milli; }

int main(void) {
  fg_word w = {0};
  FG_EQ(fg_stall_get(&w).generation, 1);
  fg_stall_flag(&w, 1); /* S02 */
  fg_stall_flag(&w, 1);
  FG_EQ(z(&w), 4606);
  fg_stall_in_time(&w, 1);
  fg_stall_flag(&w, 1);
  FG_EQ(z(&w), 6267);
  fg_stall_flag(&w, 1);
  FG_EQ(z(&w), 8570);

  fg_word s3 = {0}; /* S03: un-counted by its late token */
  fg_stall_flag(&s3, 1);
  fg_stall_flag(&s3, 1);
  fg_stall_late(&s3, 1);
  FG_EQ(z(&s3), 2303);
  fg_stall_flag(&s3, 1);
  FG_EQ(z(&s3), 4606);

  fg_word s4 = {0}; /* S04: every tenth stalls and is cancelled */
  uint32_t most = 0;
  for (int i = 0; i < 1000; i++) {
    if (i % 10 == 9) {
      fg_stall_flag(&s4, 1);
      most = z(&s4) > most ? z(&s4) : most;
      fg_stall_drop(&s4, 1);
    } else {
      fg_stall_in_time(&s4, 1);
    }
  }
  FG_EQ(most, 2303);
  FG_EQ(z(&s4), 0);

  fg_word s5 = {0}; /* S05: alternating */
  uint32_t want[] = {2303, 1661, 3964, 3322, 5625, 4983, 7286};
  for (int i = 0; i < 7; i++) {
    if (i % 2 == 0) {
      fg_stall_flag(&s5, 1);
    } else {
      fg_stall_in_time(&s5, 1);
    }
    FG_EQ(z(&s5), want[i]);
  }
  FG_CHECK(z(&s5) >= FG_Z_OPEN);
  /* At the opening level it stays: tokens count as delivered, and half of them retract. */
  fg_stall_in_time(&s5, 1);
  FG_EQ(z(&s5), 7286);
  FG_EQ(fg_stall_get(&s5).flagged, 4);
  FG_EQ(fg_stall_retracts(&s5, 2), 0);
  fg_stall_late(&s5, 1);
  FG_EQ(fg_stall_retracts(&s5, 2), 0);
  fg_stall_late(&s5, 1);
  FG_EQ(fg_stall_retracts(&s5, 2), 1);
  FG_EQ(fg_stall_retracts(&s5, 3), 0);
  fg_stall_drop(&s5, 1);
  FG_EQ(z(&s5), 7286);
  for (int i = 0; i < 10; i++) {
    fg_stall_flag(&s5, 1);
  }
  FG_EQ(z(&s5), FG_Z_MAX);

  fg_word s6 = {0}; /* S06: provisional evidence gives way to the real failure */
  fg_stall_flag(&s6, 1);
  fg_stall_drop(&s6, 1);
  fg_stall_fail(&s6, 1);
  FG_EQ(z(&s6), 0);
  FG_EQ(fg_stall_get(&s6).run, 1);

  fg_word s7 = {0}; /* S07: a newer generation starts fresh, an older one is ignored */
  fg_stall_fail(&s7, 1);
  fg_stall_flag(&s7, 3);
  FG_EQ(z(&s7), 2303);
  FG_EQ(fg_stall_get(&s7).run, 0);
  fg_stall_flag(&s7, 1);
  fg_stall_fail(&s7, 2);
  FG_EQ(z(&s7), 2303);
  FG_EQ(fg_stall_get(&s7).run, 0);
  FG_EQ(fg_stall_get(&s7).generation, 3);

  fg_word run = {0}; /* C13's arithmetic */
  for (int i = 0; i < 4; i++) {
    fg_stall_fail(&run, 1);
  }
  fg_stall_ok(&run, 1);
  fg_stall_fail(&run, 1);
  FG_EQ(fg_stall_get(&run).run, 1);
  for (int i = 0; i < 400; i++) {
    fg_stall_fail(&run, 1);
  }
  FG_EQ(fg_stall_get(&run).run, 255);

  FG_EQ(fg_stall_after_ms(3000, 500, 0, 0), 4500); /* S08 */
  FG_EQ(fg_stall_after_ms(3000, 49, 0, 0), 10000);
  FG_EQ(fg_stall_after_ms(400, 1000, 0, 0), 2000);
  FG_EQ(fg_stall_after_ms(90000, 1000, 0, 0), 60000);
  FG_EQ(fg_stall_after_ms(90000, 1000, 1, 300000), 135000); /* reasoning, whole answers: no ceiling, their own start */
  FG_EQ(fg_stall_after_ms(90000, 49, 1, 300000), 300000);
  FG_EQ(fg_stall_after_ms(UINT32_MAX, 1000, 1, 0), UINT32_MAX);

  uint32_t wrong = 0; /* any word: a breaker in any generation can use it */
  for (uint64_t i = 0; i < 200000; i++) {
    fg_word n = {fg_rand(5, 0, i)};
    uint32_t gen = (uint32_t)fg_uniform(fg_rand(5, 1, i), 16384) + 1;
    fg_word breaker = {(uint64_t)(gen - 1) << 37};
    fg_stall_verify(&n, &breaker);
    fg_stall_flag(&n, gen);
    fg_stall_state s = fg_stall_get(&n);
    wrong += s.generation != gen || s.z_milli > FG_Z_MAX || s.z_milli < FG_Z_STALL;
  }
  FG_EQ(wrong, 0);
  return fg_test_end("stall");
}
