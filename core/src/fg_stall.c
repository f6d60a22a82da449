#include "fg_stall.h"
#include "fg_breaker.h"
#include "fg_math.h"

typedef struct bits { uint32_t gen, run, z, flagged, delivered; } bits;

static bits unpack(uint64_t w) {
  bits s = {(uint32_t)fg_bits(w, 50, 14), (uint32_t)fg_bits(w, 42, 8), (uint32_t)fg_bits(w, 28, 14), (uint32_t)fg_bits(w, 14, 14),
            (uint32_t)fg_bits(w, 0, 14)};
  if (s.z > FG_Z_MAX) { /* nonsense */
    s.run = s.z = s.flagged = s.delivered = 0;
  }
  return s;
}

static uint64_t pack(bits s) {
  return fg_put(s.gen, 50, 14) | fg_put(s.run, 42, 8) | fg_put(s.z, 28, 14) | fg_put(s.flagged, 14, 14) | fg_put(s.delivered, 0, 14);
}

fg_stall_state fg_stall_get(const fg_word *w) {
  uint64_t v = fg_load(w);
  fg_stall_state fresh = {1, 0, 0, 0, 0};
  if (v == 0) {
    return fresh;
  }
  bits s = unpack(v);
  fg_stall_state out = {s.gen + 1, s.run, s.z, s.flagged, s.delivered};
  return out;
}

enum { OK, FAIL, FLAG, IN_TIME, LATE, DROP };

static void change(bits *s, int what) {
  int reached = s->z >= FG_Z_OPEN; /* the breaker opens, whoever looks next: the level stays */
  switch (what) {
  case OK:
    s->run = 0;
    break;
  case FAIL:
    s->run = fg_min32(s->run + 1, 255);
    break;
  case FLAG:
    s->z = fg_min32(s->z + FG_Z_STALL, FG_Z_MAX);
    s->flagged++;
    break;
  case IN_TIME:
    s->z = reached ? s->z : fg_sub32(s->z, FG_Z_TOKEN);
    break;
  case LATE:
  default:
    if (reached) {
      s->delivered += what == LATE;
    } else {
      s->z = fg_sub32(s->z, FG_Z_STALL);
      s->flagged = fg_sub32(s->flagged, 1);
    }
    break;
  }
}

static void apply(fg_word *w, uint32_t generation, int what) {
  uint32_t gen = (generation - 1) & FG_GEN_MASK;
  uint64_t old = fg_load(w);
  for (;;) {
    bits s = unpack(old);
    if (s.gen != gen) {
      if (((gen - s.gen) & FG_GEN_MASK) >= 1u << (FG_GEN_BITS - 1)) {
        return; /* evidence of an older generation */
      }
      bits fresh = {gen, 0, 0, 0, 0};
      s = fresh;
    }
    change(&s, what);
    uint64_t new = pack(s);
    if (new == old || fg_cas(w, &old, new)) {
      return;
    }
  }
}

void fg_stall_ok(fg_word *w, uint32_t generation) { apply(w, generation, OK); }
void fg_stall_fail(fg_word *w, uint32_t generation) { apply(w, generation, FAIL); }
void fg_stall_flag(fg_word *w, uint32_t generation) { apply(w, generation, FLAG); }
void fg_stall_in_time(fg_word *w, uint32_t generation) { apply(w, generation, IN_TIME); }
void fg_stall_late(fg_word *w, uint32_t generation) { apply(w, generation, LATE); }
void fg_stall_drop(fg_word *w, uint32_t generation) { apply(w, generation, DROP); }

void fg_stall_verify(fg_word *w, const fg_word *breaker) {
  uint64_t old = fg_load(w); /* before the breaker: what is written meanwhile makes the CAS fail */
  uint32_t mine = (uint32_t)fg_bits(old, 50, 14);
  uint32_t gen = (fg_breaker_generation(breaker) - 1) & FG_GEN_MASK;
  if (mine != gen && ((gen - mine) & FG_GEN_MASK) >= 1u << (FG_GEN_BITS - 1)) {
    bits fresh = {gen, 0, 0, 0, 0};
    (void)fg_cas(w, &old, pack(fresh)); /* lost: someone else has just written it */
  }
}

uint32_t fg_stall_retracts(const fg_word *w, uint32_t breaker_generation) {
  bits s = unpack(fg_load(w));
  return s.gen == ((breaker_generation - 2) & FG_GEN_MASK) && s.z >= FG_Z_OPEN && s.flagged > 0 && 2 * s.delivered >= s.flagged;
}

uint32_t fg_stall_after_ms(uint32_t q99_ms, uint32_t samples, uint32_t is_long, uint32_t prior_ms) {
  uint64_t wait = (uint64_t)q99_ms * 3 / 2;
  if (is_long) {
    return samples < FG_STALL_SAMPLES ? prior_ms : fg_sat32(fg_max64(wait, FG_STALL_MIN_MS));
  }
  if (samples < FG_STALL_SAMPLES) {
    return FG_STALL_START_MS;
  }
  return (uint32_t)fg_min64(fg_max64(wait, FG_STALL_MIN_MS), FG_STALL_MAX_MS);
}
