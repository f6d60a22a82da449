#include "fg_backoff.h"
#include "fg_math.h"

uint32_t fg_backoff_bound(uint32_t base_ms, uint32_t cap_ms, uint32_t retry) {
  uint32_t shift = retry > 1 ? fg_min32(retry - 1, 31) : 0;
  return (uint32_t)fg_min64((uint64_t)base_ms << shift, cap_ms);
}

uint32_t fg_backoff_wait(uint32_t base_ms, uint32_t cap_ms, uint32_t retry, uint64_t rand) {
  return (uint32_t)fg_uniform(rand, (uint64_t)fg_backoff_bound(base_ms, cap_ms, retry) + 1);
}

uint32_t fg_retry_after_wait(uint32_t hint_ms, uint64_t rand) {
  return fg_add32(hint_ms, (uint32_t)fg_uniform(rand, (uint64_t)fg_min32(fg_max32(hint_ms / 4, 1000), 30000) + 1));
}
