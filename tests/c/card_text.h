/* What the card tests share: an allocator that counts and can fail, cards written with ' for ", loading. */
#ifndef CARD_TEXT_H
#define CARD_TEXT_H

#include <stdlib.h>
#include <string.h>

#include "fg_card.h"
#include "fg_policy.h"

typedef struct card_mem {
  uint64_t calls, fail_at, open, bytes; /* fail_at: the call that fails, 1-based; 0 none */
} card_mem;

static inline void *card_alloc(void *ctx, uint64_t size) {
  card_mem *m = ctx;
  if (++m->calls == m->fail_at) {
    return NULL;
  }
  void *p = malloc((size_t)size);
  m->open += p != NULL;
  m->bytes += size;
  return p;
}

static inline void card_release(void *ctx, void *ptr) {
  card_mem *m = ctx;
  m->open -= ptr != NULL;
  free(ptr);
}

static inline fg_mem card_allocator(card_mem *m) {
  fg_mem mem = {card_alloc, card_release, m};
  return mem;
}

/* A copy with " for '; freed by the caller. */
static inline char *card_quotes(const char *text) {
  size_t len = strlen(text);
  char *copy = malloc(len + 1);
  for (size_t i = 0; copy != NULL && i <= len; i++) {
    copy[i] = text[i] == '\'' ? '"' : text[i];
  }
  return copy;
}

/* Loads a card written with '; aborts the test program when it does not load. */
static inline fg_policy *card_must(const char *text, uint32_t flags) {
  static card_mem counts;
  fg_mem mem = card_allocator(&counts);
  fg_policy *p = NULL;
  fg_error err = {.size = sizeof err};
  char *json = card_quotes(text);
  if (json == NULL || fg_card_load_flags(json, strlen(json), &mem, flags, &p, &err) != FG_OK) {
    printf("card does not load: %s:%u:%u %s\n%s\n", err.path, err.line, err.column, err.message, text);
    exit(1);
  }
  free(json);
  return p;
}

static inline void card_drop(fg_policy *p) {
  card_mem counts = {0, 0, 0, 0};
  fg_mem mem = card_allocator(&counts);
  fg_policy_free(p, &mem);
}

#endif /* CARD_TEXT_H */
