/* The states a world has walked. The engine is a function of its arguments and of the bytes it is handed (the core has no writable
 * global: check_symbols.py), so below an equal state, with as many operations left, lie the same sequences: they are counted, not walked
 * again. A state is the time and all bytes of region, engine, calls, decisions and books. Of those seen again each RECHECK-th is walked
 * once more and must count what was kept: what this rests on is tried too. */
#ifndef FG_WORLD_SEEN_H
#define FG_WORLD_SEEN_H

#include "world.h"

enum { SEEN_FIRST = 1 << 12, SEEN_BLOCK = 64, RECHECK = 16 };

/* 128 bits of hash stand for a state: that any two of a million share them is a chance of 1 in 10^26. */
typedef struct seen_key { uint64_t a, b; } seen_key;
/* What lies below the state; no sequences: a free place. */
typedef struct seen_one { seen_key key; uint64_t sequences, operations; } seen_one;
typedef struct seen {
  seen_one *table;
  uint64_t places, used, again; /* again: states met that were known */
  uint8_t *start[3];            /* region, engine, node at the start */
} seen;

/* The round of xxHash64, twice with other constants: each maps words and halves one to one. */
static inline void seen_word(seen_key *k, uint64_t word) {
  const uint64_t a = k->a + word * UINT64_C(0xc2b2ae3d27d4eb4f), b = k->b + word * UINT64_C(0xff51afd7ed558ccd);
  k->a = (a << 31 | a >> 33) * UINT64_C(0x9e3779b185ebca87);
  k->b = (b << 27 | b >> 37) * UINT64_C(0xc4ceb9fe1a85ec53);
}

/* Bytes by what of them is not as it was at the start, block by block, each with its place. */
static inline void seen_bytes(seen_key *k, const void *now, const void *start, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += SEEN_BLOCK) {
    const uint64_t size = bytes - at < SEEN_BLOCK ? bytes - at : SEEN_BLOCK;
    uint64_t words[SEEN_BLOCK / sizeof(uint64_t)] = {0};
    if (memcmp((const uint8_t *)now + at, (const uint8_t *)start + at, size) != 0) {
      memcpy(words, (const uint8_t *)now + at, size);
      seen_word(k, at);
      for (uint32_t i = 0; i < SEEN_BLOCK / sizeof *words; i++) {
        seen_word(k, words[i]);
      }
    }
  }
  seen_word(k, UINT64_MAX); /* the end: no place of a block */
}

static inline uint8_t *seen_copy(const void *from, uint64_t bytes) {
  uint8_t *copy = malloc(bytes);
  if (copy == NULL) {
    fprintf(stderr, "no memory for the states seen\n");
    exit(2);
  }
  return memcpy(copy, from, bytes);
}

/* node: calls, decisions, books and time, as the world keeps them. */
static inline void seen_start(seen *s, const world *w, const void *node, uint64_t bytes) {
  s->start[0] = seen_copy(w->memory, w->bytes);
  s->start[1] = seen_copy(w->engine, fg_engine_bytes(w->policy));
  s->start[2] = seen_copy(node, bytes);
}

static inline seen_key seen_state(const seen *s, const world *w, const void *node, uint64_t bytes, uint32_t operations_left) {
  seen_key k = {operations_left, operations_left};
  seen_bytes(&k, w->memory, s->start[0], w->bytes);
  seen_bytes(&k, w->engine, s->start[1], fg_engine_bytes(w->policy));
  seen_bytes(&k, node, s->start[2], bytes);
  return k;
}

static inline seen_one *seen_place(const seen *s, seen_key k) {
  uint64_t i = (k.a ^ k.b >> 32) & (s->places - 1);
  while (s->table[i].sequences != 0 && (s->table[i].key.a != k.a || s->table[i].key.b != k.b)) {
    i = (i + 1) & (s->places - 1);
  }
  return &s->table[i];
}

/* Keeps what was counted below a state; at half its places the table doubles. */
static inline void seen_keep(seen *s, seen_one one) {
  if (2 * s->used >= s->places) {
    seen more = *s;
    more.places = s->places != 0 ? 2 * s->places : SEEN_FIRST;
    more.table = calloc(more.places, sizeof *more.table);
    if (more.table == NULL) {
      fprintf(stderr, "no memory for the states seen\n");
      exit(2);
    }
    for (uint64_t i = 0; i < s->places; i++) {
      if (s->table[i].sequences != 0) {
        *seen_place(&more, s->table[i].key) = s->table[i];
      }
    }
    free(s->table);
    *s = more;
  }
  *seen_place(s, one.key) = one;
  s->used++;
}

/* 1: known, and added to the tally; else *known is what is to be found again, or has no sequences. */
static inline int seen_before(seen *s, seen_key k, tally *t, seen_one *known) {
  memset(known, 0, sizeof *known);
  if (s->places != 0) {
    *known = *seen_place(s, k);
  }
  if (known->sequences == 0 || ++s->again % RECHECK == 0) {
    return 0;
  }
  t->sequences += known->sequences;
  t->operations += known->operations;
  return 1;
}

/* The state is walked, the tally before was `was`. 0: it was known, and this is another count. */
static inline int seen_walked(seen *s, seen_key k, const tally *was, const tally *now, const seen_one *known) {
  const seen_one one = {k, now->sequences - was->sequences, now->operations - was->operations};
  if (known->sequences == 0) {
    seen_keep(s, one);
    return 1;
  }
  return one.sequences == known->sequences && one.operations == known->operations;
}

#endif /* FG_WORLD_SEEN_H */
