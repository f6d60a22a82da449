#include "fg_breaker.h"
#include "fg_math.h"
#include "fg_rendezvous.h"

typedef struct bits { uint32_t state, why, reopens, probes, ok, gen; int64_t t; } bits;

static const int64_t hour_ms = 3600000;

static bits unpack(uint64_t w) {
  bits s = {(uint32_t)fg_bits(w, 62, 2), (uint32_t)fg_bits(w, 60, 2), (uint32_t)fg_bits(w, 57, 3), (uint32_t)fg_bits(w, 54, 3),
            (uint32_t)fg_bits(w, 51, 3), (uint32_t)fg_bits(w, 37, FG_GEN_BITS), (int64_t)fg_bits(w, 0, FG_T_BITS)};
  return s;
}

static uint64_t pack(bits s) {
  return fg_put(s.state, 62, 2) | fg_put(s.why, 60, 2) | fg_put(s.reopens, 57, 3) | fg_put(s.probes, 54, 3) | fg_put(s.ok, 51, 3) |
         fg_put(s.gen & FG_GEN_MASK, 37, FG_GEN_BITS) | fg_put((uint64_t)(s.t > 0 ? s.t : 0), 0, FG_T_BITS);
}

static uint32_t limit7(uint32_t v) { return v < 1 ? 1 : v > 7 ? 7 : v; }

static int is_latch(const fg_breaker_config *c) { return c->consecutive == 0 && c->min_calls == 0 && c->stall == 0; }

/* A breaker stays open for a day at most; a latch until a reset that may be a month away. */
static int64_t open_bound(const fg_breaker_config *c) { return (is_latch(c) ? 40 * 24 : 24) * hour_ms; }

/* What the word means; nonsense is fresh. */
static bits read_word(uint64_t w, const fg_breaker_config *c, int64_t t) {
  bits s = unpack(w);
  int64_t bound = s.state == FG_BREAKER_OPEN ? open_bound(c) : s.state == FG_BREAKER_HALF_OPEN ? (int64_t)c->lease_ms + hour_ms : hour_ms;
  if (s.state > FG_BREAKER_HALF_OPEN || s.t - t > bound) {
    bits fresh = {0};
    return fresh;
  }
  return s;
}

uint64_t fg_breaker_open_ms(const fg_breaker_config *c, uint32_t why, uint32_t reopens, uint32_t generation) {
  uint64_t most = fg_max64(c->open_max_ms, c->open_ms);
  uint64_t wait = fg_min64((uint64_t)c->open_ms << (reopens & 7), most);
  if (why == FG_WHY_STALL && reopens == 0) {
    wait = c->open_ms / 2; /* provisional: silence alone is weaker evidence than a failure */
  }
  uint64_t spread = fg_ppm_of(wait, c->jitter_ppm);
  if (spread > 0) {
    spread = fg_min64(spread, wait);
    wait = wait - spread + fg_uniform(fg_rand(generation, why, reopens), 2 * spread + 1);
  }
  return fg_max64(wait, 1);
}

static void open_until(bits *s, const fg_breaker_config *c, uint32_t why, int64_t from, int64_t not_before) {
  s->state = FG_BREAKER_OPEN;
  s->why = why;
  s->probes = 0;
  s->ok = 0;
  s->gen = (s->gen + 1) & FG_GEN_MASK;
  int64_t until = from + (int64_t)fg_breaker_open_ms(c, why, s->reopens, s->gen);
  s->t = fg_mins(fg_maxs(until, not_before), from + open_bound(c));
}

static void reopen(bits *s, const fg_breaker_config *c, int64_t from, int64_t not_before) {
  s->reopens = s->reopens < 7 ? s->reopens + 1 : 7;
  open_until(s, c, is_latch(c) && s->why == FG_WHY_SETUP ? (uint32_t)FG_WHY_SETUP : (uint32_t)FG_WHY_PROBE, from, not_before);
}

static uint32_t tripped(const fg_breaker_config *c, const fg_breaker_levels *v) {
  if (c->consecutive > 0 && v->run >= c->consecutive) {
    return FG_WHY_FAILED;
  }
  uint64_t calls = (uint64_t)v->window_ok + v->window_failed;
  if (c->min_calls > 0 && calls >= c->min_calls && v->window_failed > 0 &&
      (uint64_t)v->window_failed * FG_PPM >= calls * c->failure_ppm) {
    return FG_WHY_FAILED;
  }
  return c->stall && v->z_milli >= 6900 ? FG_WHY_STALL : FG_WHY_NONE;
}

/* One change that levels or clock demand; FG_TURN_NONE when there is none. */
static uint32_t advance(bits *s, const fg_breaker_config *c, const fg_breaker_levels *v, int64_t t) {
  if (s->state == FG_BREAKER_HALF_OPEN && s->probes > 0 && s->t <= t) {
    reopen(s, c, s->t, 0); /* the lease is over: a probe that never reported has failed */
    return FG_TURN_OPENED;
  }
  if (v == NULL || v->generation != s->gen + 1) {
    return FG_TURN_NONE;
  }
  if (s->state == FG_BREAKER_CLOSED) {
    uint32_t why = tripped(c, v);
    if (why != FG_WHY_NONE) {
      s->reopens = s->why == FG_WHY_RAMP && t - s->t < FG_SLOW_START_MS ? 1 : 0;
      open_until(s, c, why, t, v->not_before);
      return FG_TURN_OPENED;
    }
  } else if (s->state == FG_BREAKER_OPEN && s->why == FG_WHY_STALL && v->retract && s->t > t) {
    s->state = FG_BREAKER_HALF_OPEN;
    s->gen = (s->gen + 1) & FG_GEN_MASK;
    s->probes = 0;
    s->ok = 0;
    s->t = t;
    return FG_TURN_HALF;
  }
  return FG_TURN_NONE;
}

static uint32_t advance_all(bits *s, const fg_breaker_config *c, const fg_breaker_levels *v, int64_t t) {
  uint32_t last = FG_TURN_NONE;
  for (int i = 0; i < 4; i++) { /* each kind of change happens at most once at one moment */
    uint32_t turn = advance(s, c, v, t);
    if (turn == FG_TURN_NONE) {
      break;
    }
    last = turn;
  }
  return last;
}

/* Do the levels open a word that is 0, as it is while nothing ever went wrong? */
static int opens_fresh(const fg_breaker_config *c, const fg_breaker_levels *v) {
  return v != NULL && v->generation == 1 && tripped(c, v) != FG_WHY_NONE;
}

fg_breaker_view fg_breaker_peek(const fg_word *w, const fg_breaker_config *c, const fg_breaker_levels *levels, int64_t t) {
  uint64_t v = fg_load(w);
  if (v == 0 && !opens_fresh(c, levels)) {
    fg_breaker_view fresh = {.state = FG_BREAKER_CLOSED, .room = 1, .generation = 1};
    return fresh;
  }
  bits s = read_word(v, c, t);
  (void)advance_all(&s, c, levels, t);
  fg_breaker_view view = {s.state, s.why, 1, 0, s.gen + 1, s.reopens, s.probes, s.ok, s.t};
  if (s.state == FG_BREAKER_OPEN && s.t > t) {
    view.room = 0;
    view.wait_ms = fg_clamp32(s.t - t);
  } else if (s.state == FG_BREAKER_HALF_OPEN && s.probes >= limit7(c->probes)) {
    view.room = 0;
    view.wait_ms = fg_clamp32(s.t - t);
  }
  return view;
}

uint32_t fg_breaker_settle(fg_word *w, const fg_breaker_config *c, const fg_breaker_levels *levels, int64_t t) {
  uint64_t old = fg_load(w);
  for (;;) {
    bits s = read_word(old, c, t);
    uint32_t turn = advance_all(&s, c, levels, t);
    uint64_t new = pack(s);
    if (new == old || fg_cas(w, &old, new)) {
      return turn;
    }
  }
}

fg_breaker_ticket fg_breaker_admit(fg_word *w, const fg_breaker_config *c, const fg_breaker_levels *levels, int64_t t) {
  uint64_t old = fg_load(w);
  if (old == 0 && !opens_fresh(c, levels)) {
    fg_breaker_ticket fresh = {FG_ADMIT_CLOSED, 1, 0};
    return fresh;
  }
  for (;;) {
    bits s = read_word(old, c, t);
    uint32_t turn = advance_all(&s, c, levels, t);
    fg_breaker_ticket ticket = {FG_ADMIT_REJECT, s.gen + 1, 0};
    if (s.state == FG_BREAKER_CLOSED) {
      ticket.verdict = FG_ADMIT_CLOSED;
      if (turn == FG_TURN_NONE && fg_bits(old, 0, FG_T_BITS) == (uint64_t)s.t && old >> 62 == FG_BREAKER_CLOSED) {
        return ticket; /* the usual case: nothing to write */
      }
    } else if (s.state == FG_BREAKER_OPEN && s.t <= t) {
      s.state = FG_BREAKER_HALF_OPEN;
      s.gen = (s.gen + 1) & FG_GEN_MASK;
      s.probes = 1;
      s.ok = 0;
      s.t = t + c->lease_ms;
      ticket.verdict = FG_ADMIT_PROBE;
    } else if (s.state == FG_BREAKER_HALF_OPEN && s.probes < limit7(c->probes)) {
      s.probes++;
      s.t = t + c->lease_ms;
      ticket.verdict = FG_ADMIT_PROBE;
    } else {
      ticket.wait_ms = fg_clamp32(s.t - t);
    }
    ticket.generation = s.gen + 1;
    uint64_t new = pack(s);
    if (new == old || fg_cas(w, &old, new)) {
      return ticket;
    }
  }
}

uint32_t fg_breaker_report(fg_word *w, const fg_breaker_config *c, uint32_t generation, uint32_t probe, uint32_t report, uint32_t retry_after_ms,
                           int64_t t) {
  uint64_t old = fg_load(w);
  for (;;) {
    bits s = read_word(old, c, t);
    (void)advance_all(&s, c, NULL, t); /* a result after its lease comes too late, whoever looks first */
    uint32_t turn = FG_TURN_NONE;
    if (s.gen + 1 != generation) {
      turn = FG_TURN_STALE;
    } else if (s.state == FG_BREAKER_HALF_OPEN && probe) {
      s.probes -= s.probes > 0;
      if (report == FG_REPORT_FAIL) {
        reopen(&s, c, t, t + retry_after_ms);
        turn = FG_TURN_OPENED;
      } else if (report == FG_REPORT_OK && ++s.ok >= limit7(c->successes)) {
        s.state = FG_BREAKER_CLOSED;
        s.why = s.reopens > 0 ? FG_WHY_RAMP : FG_WHY_NONE;
        s.gen = (s.gen + 1) & FG_GEN_MASK;
        s.reopens = 0;
        s.probes = 0;
        s.ok = 0;
        s.t = t;
        turn = FG_TURN_CLOSED;
      }
    }
    uint64_t new = pack(s);
    if (new == old || fg_cas(w, &old, new)) {
      return turn;
    }
  }
}

void fg_breaker_give_back(fg_word *w, uint32_t generation, int64_t t) {
  uint64_t old = fg_load(w);
  for (;;) {
    bits s = unpack(old);
    if (s.state != FG_BREAKER_HALF_OPEN || s.gen + 1 != generation || s.probes == 0 || s.t <= t) {
      return; /* a lease that is over stands, though nobody stored it yet */
    }
    s.probes--;
    if (fg_cas(w, &old, pack(s))) {
      return;
    }
  }
}

void fg_breaker_renew(fg_word *w, const fg_breaker_config *c, uint32_t generation, int64_t t) {
  uint64_t old = fg_load(w);
  for (;;) {
    bits s = read_word(old, c, t);
    if (s.state != FG_BREAKER_HALF_OPEN || s.gen + 1 != generation || s.probes == 0 || s.t <= t || s.t >= t + c->lease_ms) {
      return;
    }
    s.t = t + c->lease_ms;
    if (fg_cas(w, &old, pack(s))) {
      return;
    }
  }
}

uint32_t fg_latch_why(const fg_word *w) { return unpack(fg_load_relaxed(w)).why; }

uint32_t fg_latch_trip(fg_word *w, const fg_breaker_config *c, uint32_t generation, uint32_t why, uint64_t exact_ms, uint64_t at_most_ms, int64_t t) {
  uint64_t old = fg_load(w);
  for (;;) {
    bits s = read_word(old, c, t);
    (void)advance_all(&s, c, NULL, t);
    if (generation != 0 && s.gen + 1 != generation) {
      return FG_TURN_STALE;
    }
    if (s.state == FG_BREAKER_OPEN && s.t > t) {
      return FG_TURN_NONE; /* latched already */
    }
    s.reopens = s.state == FG_BREAKER_CLOSED ? 0 : s.reopens < 7 ? s.reopens + 1 : 7;
    open_until(&s, c, why, t, 0);
    int64_t bound = open_bound(c);
    if (exact_ms != 0) {
      s.t = t + (exact_ms < (uint64_t)bound ? (int64_t)exact_ms : bound);
    } else if (at_most_ms != 0 && at_most_ms < (uint64_t)bound) {
      s.t = fg_mins(s.t, t + (int64_t)at_most_ms);
    }
    if (fg_cas(w, &old, pack(s))) {
      return FG_TURN_OPENED;
    }
  }
}

uint32_t fg_breaker_generation(const fg_word *w) { return (uint32_t)fg_bits(fg_load(w), 37, FG_GEN_BITS) + 1; }

uint32_t fg_breaker_ramp_ppm(const fg_word *w, int64_t t) {
  uint64_t v = fg_load(w);
  if (v == 0) {
    return FG_PPM;
  }
  bits s = unpack(v);
  if (s.state != FG_BREAKER_CLOSED || s.why != FG_WHY_RAMP || t - s.t >= FG_SLOW_START_MS) {
    return FG_PPM;
  }
  return fg_ramp_ppm(fg_maxs(t - s.t, 0), FG_SLOW_START_MS, 100000, 1);
}
