/* The only way to a shared word. Every operation is one 64-bit atomic; nothing here waits.
 *
 * Built with FG_WEAVE, each operation first yields to a scheduler and then does a plain access, so a test can try every
 * interleaving and a kill at every step. The planted faults exist to prove that such a test would notice. */
#ifndef FG_ATOMIC_H
#define FG_ATOMIC_H

#include <stdint.h>

#if defined(FG_ATOMIC_WEAVE) && !defined(FG_WEAVE)
#define FG_WEAVE 1
#endif

typedef struct fg_word { uint64_t v; } fg_word; /* touched only by the functions below; zero is a valid fresh value */

_Static_assert(sizeof(fg_word) == 8, "a shared word is 64 bits");

enum { FG_WEAVE_READ = 0, FG_WEAVE_WRITE = 1 };

enum { FG_PLANT_STORE = 1, FG_PLANT_LEVEL, FG_PLANT_QUOTA, FG_PLANT_ENDS };

#ifdef FG_WEAVE
void fg_weave_step(const fg_word *w, int kind); /* the test's scheduler; kind: FG_WEAVE_READ or FG_WEAVE_WRITE */
extern int fg_weave_plant;                      /* the fault to show, FG_PLANT_* */
#define FG_PLANTED(fault) (fg_weave_plant == (fault))

static inline uint64_t fg_load(const fg_word *w) {
  fg_weave_step(w, FG_WEAVE_READ);
  return w->v;
}
static inline uint64_t fg_load_relaxed(const fg_word *w) { return fg_load(w); }
static inline void fg_store(fg_word *w, uint64_t v) {
  fg_weave_step(w, FG_WEAVE_WRITE);
  w->v = v;
}
static inline int fg_cas(fg_word *w, uint64_t *expected, uint64_t desired) {
  fg_weave_step(w, FG_WEAVE_WRITE);
  if (w->v != *expected && !FG_PLANTED(FG_PLANT_STORE)) {
    *expected = w->v;
    return 0;
  }
  w->v = desired;
  return 1;
}
static inline uint64_t fg_fetch_add(fg_word *w, uint64_t n) {
  fg_weave_step(w, FG_WEAVE_WRITE);
  uint64_t old = w->v;
  w->v = old + n;
  return old;
}

#else

#define FG_PLANTED(fault) 0

#if !defined(__GCC_ATOMIC_LLONG_LOCK_FREE) || __GCC_ATOMIC_LLONG_LOCK_FREE != 2
#error "64-bit atomics without a lock are required"
#endif

static inline uint64_t fg_load(const fg_word *w) { return __atomic_load_n(&w->v, __ATOMIC_ACQUIRE); }
static inline uint64_t fg_load_relaxed(const fg_word *w) { return __atomic_load_n(&w->v, __ATOMIC_RELAXED); } /* counters, sketches */
static inline void fg_store(fg_word *w, uint64_t v) { __atomic_store_n(&w->v, v, __ATOMIC_RELEASE); }
/* 1 = swapped; 0 = *expected now holds what was there. */
static inline int fg_cas(fg_word *w, uint64_t *expected, uint64_t desired) {
  return __atomic_compare_exchange_n(&w->v, expected, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
static inline uint64_t fg_fetch_add(fg_word *w, uint64_t n) { return __atomic_fetch_add(&w->v, n, __ATOMIC_RELAXED); }

#endif

#endif /* FG_ATOMIC_H */
