/* Small worlds: every sequence of operations to a depth, on the production engine through its public API, against an oracle that
 * keeps its own books of sends and effects and never asks the engine. Depth-first, by snapshots of call and region; what lies below a
 * state once walked is counted (seen.h). */
#ifndef FG_WORLD_H
#define FG_WORLD_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fg_card.h"
#include "fivegates.h"

enum { WORLD_NOW = 1000000000, WORLD_UNIX = 1796083200 }; /* start of time; wall seconds at start */

typedef struct world {
  fg_policy *policy;
  fg_engine *engine;
  fg_region *region;
  void *memory;
  uint64_t bytes; /* of the region */
  fg_call call[2];
  int64_t now;
} world;

static void *world_alloc(void *ctx, uint64_t size) {
  (void)ctx;
  return malloc(size);
}
static void world_free(void *ctx, void *ptr) {
  (void)ctx;
  free(ptr);
}

/* routes: of the card, and as many accounts. */
static inline void world_open(world *w, const char *card, uint32_t routes, uint32_t rows) {
  const fg_mem mem = {world_alloc, world_free, NULL};
  fg_region_config config = {.size = sizeof config, .routes = routes, .accounts = routes, .workflows = 1, .procs = 8, .rows = rows};
  fg_error err = {.size = sizeof err};
  memset(w, 0, sizeof *w);
  w->now = WORLD_NOW;
  if (fg_card_load_flags(card, strlen(card), &mem, FG_CARD_AUTO_FINGERPRINT, &w->policy, &err) != FG_OK) {
    fprintf(stderr, "card: %s: %s\n", err.path, err.message);
    exit(2);
  }
  w->bytes = fg_region_bytes(&config);
  w->memory = calloc(1, w->bytes);
  if (w->memory == NULL || fg_region_open(w->memory, w->bytes, &config, w->now, &w->region, &err) != FG_OK ||
      fg_engine_init(malloc(fg_engine_bytes(w->policy)), fg_engine_bytes(w->policy), w->policy, w->region, 0, 7, w->now, &w->engine, &err) !=
          FG_OK) {
    fprintf(stderr, "engine: %s\n", err.message);
    exit(2);
  }
  if (fg_engine_clock(w->engine, INT64_C(1000) * WORLD_UNIX, w->now) != FG_OK) {
    fprintf(stderr, "clock refused\n");
    exit(2);
  }
}

static inline void world_close(world *w) {
  const fg_mem mem = {world_alloc, world_free, NULL};
  fg_policy_free(w->policy, &mem);
  free(w->engine);
  free(w->memory);
}

static inline fg_str world_str(const char *z) {
  const fg_str s = {z, (uint32_t)strlen(z), 0};
  return s;
}

typedef struct tally { uint64_t sequences, operations, violations; } tally;

static inline void tally_show(const tally *t, const char *name) {
  fprintf(stderr, "%s: %" PRIu64 " sequences, %" PRIu64 " operations, %" PRIu64 " violations\n", name, t->sequences, t->operations,
          t->violations);
}

#endif /* FG_WORLD_H */
