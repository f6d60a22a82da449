/* Order of stand-ins, and the ramp. */
#include "fg_math.h"
#include "fg_rendezvous.h"
#include "fg_test.h"

enum { KEYS = 20000 };

static void shares(const uint32_t *weights, uint32_t n, const uint32_t *want_permille) {
  fg_rendezvous_item item[16];
  uint32_t first[16] = {0};
  for (uint32_t i = 0; i < n; i++) {
    item[i].key = fg_hash64(1, &i, sizeof(i));
    item[i].weight = weights[i];
  }
  for (uint64_t k = 0; k < KEYS; k++) {
    uint8_t order[16];
    FG_EQ(fg_rendezvous_order(fg_mix64(k), item, n, order), n);
    first[order[0]]++;
  }
  for (uint32_t i = 0; i < n; i++) {
    uint32_t got = first[i] * 1000 / KEYS;
    if (got + 20 < want_permille[i] || got > want_permille[i] + 20) {
      FG_EQ(got, want_permille[i]);
    }
  }
}

int main(void) {
  uint32_t even[] = {1, 1, 1, 1}, quarter[] = {250, 250, 250, 250}; /* H02 */
  shares(even, 4, quarter);
  uint32_t uneven[] = {4, 2, 1}, part[] = {571, 286, 143};
  shares(uneven, 3, part);
  uint32_t changed = 0, last = 0;
  for (uint64_t k = 0; k < KEYS; k++) {
    fg_rendezvous_item item[4] = {{11, 1}, {22, 1}, {33, 1}, {44, 1}};
    uint8_t all[16], less[16];
    (void)fg_rendezvous_order(k, item, 4, all);
    item[0].weight = 0;
    FG_EQ(fg_rendezvous_order(k, item, 4, less), 3);
    last += less[3] == 0;
    uint32_t at = 0;
    for (int i = 0; i < 4; i++) {
      if (all[i] != 0) {
        changed += less[at++] != all[i];
      }
    }
  }
  FG_EQ(changed, 0);
  FG_EQ(last, KEYS);
  uint8_t order[16];
  FG_EQ(fg_rendezvous_order(1, NULL, 0, order), 0);
  fg_rendezvous_item many[20];
  for (uint32_t i = 0; i < 20; i++) {
    many[i].key = i;
    many[i].weight = 1000000;
  }
  FG_EQ(fg_rendezvous_order(5, many, 20, order), 16);
  uint32_t seen = 0;
  for (int i = 0; i < 16; i++) {
    seen |= 1u << order[i];
  }
  FG_EQ(seen, 0xffff);

  int64_t t[] = {0, 3000, 6000, 30000, 60000}; /* H01 */
  uint32_t want[] = {100000, 100000, 100000, 500000, 1000000};
  for (int i = 0; i < 5; i++) {
    FG_EQ(fg_ramp_ppm(t[i], 60000, 100000, 1), want[i]);
  }
  FG_EQ(fg_ramp_ppm(15000, 60000, 100000, 2), 500000);
  FG_EQ(fg_ramp_ppm(-5, 60000, 0, 1), 16);
  FG_EQ(fg_ramp_ppm(5, 0, 0, 1), 1000000);
  return fg_test_end("rendezvous");
}
