#include "fg_rendezvous.h"
#include "fg_math.h"

/* score = weight / -ln(u), largest first: i before j when L_i * w_j < L_j * w_i, L = -log2(u). The base of the logarithm
 * cancels and nothing is divided. Equal products: the smaller key, then the earlier item. */
static int before(uint64_t li, uint32_t wi, uint64_t ki, uint64_t lj, uint32_t wj, uint64_t kj) {
  int c = fg_mul_cmp(li, wj, lj, wi);
  return c != 0 ? c < 0 : ki < kj;
}

uint32_t fg_rendezvous_order(uint64_t key, const fg_rendezvous_item *items, uint32_t count, uint8_t order[FG_RENDEZVOUS_MAX]) {
  uint64_t score[FG_RENDEZVOUS_MAX];
  count = fg_min32(count, FG_RENDEZVOUS_MAX);
  uint32_t present = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (items[i].weight == 0) {
      continue;
    }
    score[i] = fg_neglog2_q32(fg_rand(key, items[i].key, 0));
    uint32_t at = present++;
    for (; at > 0; at--) {
      uint8_t j = order[at - 1];
      if (!before(score[i], items[i].weight, items[i].key, score[j], items[j].weight, items[j].key)) {
        break;
      }
      order[at] = j;
    }
    order[at] = (uint8_t)i;
  }
  uint32_t last = present;
  for (uint32_t i = 0; i < count; i++) {
    if (items[i].weight == 0) {
      order[last++] = (uint8_t)i;
    }
  }
  return present;
}

uint32_t fg_ramp_ppm(int64_t since_ms, uint32_t window_ms, uint32_t min_ppm, uint32_t aggression) {
  uint64_t since = since_ms < 1 ? 1 : (uint64_t)since_ms;
  if (since >= window_ms) {
    return FG_PPM;
  }
  uint64_t part = since * FG_PPM / window_ms;
  if (aggression >= 2) {
    part = fg_isqrt(part * FG_PPM);
  }
  return fg_max32((uint32_t)part, fg_min32(min_ppm, FG_PPM));
}
