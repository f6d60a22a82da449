/* The card the engine runs with: another one when the configuration gives it, else as little as a card can say of three kinds of routes: the primary,
 * its approved stand-ins, and a smaller model at each of those. */
#include "fg_drill_world.h"

#include "fg_card.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CARD_ROOM = 16384 };

typedef struct text {
  char *at;
  size_t length, room;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(t->at + t->length, t->room - t->length, format, args);
  va_end(args);
  t->length += n > 0 && (size_t)n < t->room - t->length ? (size_t)n : 0;
}

/* Nano-dollars per million tokens as the card's decimal dollars. */
static void add_price(text *t, const char *key, int64_t nusd) {
  add(t, "\"%s\":\"%" PRId64 ".%09" PRId64 "\"", key, nusd / 1000000000, nusd % 1000000000);
}

static void add_route(text *t, const drill_config *c, const char *name, const char *provider, const char *model, int64_t share_ppm) {
  add(t, "%s\"%s\":{\"provider\":\"%s\",\"model\":\"%s\",\"account\":\"%s\",\"price\":{", t->at[t->length - 1] == '{' ? "" : ",", name,
      provider, model, provider);
  add_price(t, "input", c->price_input / 1000000 * share_ppm);
  add(t, ",");
  add_price(t, "output", c->price_output / 1000000 * share_ppm);
  add(t, "},\"provides\":{\"input\":{\"context_tokens\":1100000},\"output\":{\"max_tokens\":400000}}}");
}

static void add_contract(text *t, const char *route) {
  add(t,
      "%s{\"workflow\":\"drill\",\"route\":\"%s\",\"fingerprint\":\"auto\",\"evidence\":{\"cases\":100,\"passed\":99,\"score_ppm\":990000,"
      "\"primary_score_ppm\":990000,\"measured_at\":\"2026-11-01\",\"expires_at\":\"2100-01-01\"}}",
      t->at[t->length - 1] == '[' ? "" : ",", route);
}

static void write_card(const drill_config *c, text *t) {
  char name[24], provider[24];
  add(t, "{\"version\":1,\"routes\":{");
  add_route(t, c, "primary", "primary", "large", 1000000);
  for (uint32_t pass = 0; pass <= c->ladder; pass++) {
    for (uint32_t n = 1; n <= c->backups; n++) {
      (void)snprintf(name, sizeof name, "%s%u", pass == 0 ? "backup" : "small", n);
      (void)snprintf(provider, sizeof provider, "backup%u", n);
      add_route(t, c, name, provider, pass == 0 ? "equal" : "small", pass == 0 ? 1000000 : c->small_ppm);
    }
  }
  add(t, "},\"workflows\":{\"drill\":{\"routes\":[\"primary\"");
  for (uint32_t n = 1; n <= c->backups; n++) {
    add(t, ",\"backup%u\"", n);
  }
  add(t, "],\"ladder\":[");
  for (uint32_t n = 1; c->ladder && n <= c->backups; n++) {
    add(t, "{\"step\":\"smaller_model\",\"route\":\"small%u\"},", n);
  }
  add(t, "{\"step\":\"preset\",\"text\":\"We can't answer right now.\"}]}},\"contracts\":[");
  for (uint32_t pass = 0; pass <= c->ladder; pass++) {
    for (uint32_t n = 1; n <= c->backups; n++) {
      (void)snprintf(name, sizeof name, "%s%u", pass == 0 ? "backup" : "small", n);
      add_contract(t, name);
    }
  }
  add(t, "]}");
}

static void *take(void *ctx, uint64_t size) {
  (void)ctx;
  return aligned_alloc(64, (size_t)(size + 63) / 64 * 64);
}
static void give(void *ctx, void *ptr) {
  (void)ctx;
  free(ptr);
}
const fg_mem drill_mem = {take, give, NULL};

int32_t drill_card(const drill_config *c, fg_policy **out, fg_error *err) {
  if (c->card != NULL) {
    const int32_t bad = fg_card_load_flags(c->card, strlen(c->card), &drill_mem, FG_CARD_AUTO_FINGERPRINT, out, err);
    if (bad != FG_OK && err != NULL) {
      char path[sizeof err->path];
      (void)snprintf(path, sizeof path, "card.%.100s", err->path);
      memcpy(err->path, path, sizeof path);
      err->line = err->column = 0; /* of the card's text alone, which the caller may never have seen */
    }
    return bad;
  }
  text t = {malloc(CARD_ROOM), 0, CARD_ROOM};
  if (t.at == NULL) {
    return FG_ERR_NOMEM;
  }
  write_card(c, &t);
  const int32_t rc = fg_card_load_flags(t.at, t.length, &drill_mem, FG_CARD_AUTO_FINGERPRINT, out, err);
  free(t.at);
  return rc;
}
