/* The JSON scanner: events are the same in one piece and in random pieces, brackets match, depth stays in bounds, and what is valid
 * stays valid when read again leniently. The first two bytes seed the cuts. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fg_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct sum { uint64_t hash, events; uint32_t depth, max, strings_open; } sum;

#define require(ok) ((ok) ? (void)0 : broken(#ok))
static void broken(const char *what) {
  (void)fprintf(stderr, "violated: %s\n", what);
  abort();
}

static void mix(sum *s, uint64_t v) { s->hash = (s->hash ^ v) * 1099511628211u; /* FNV-1a */ }

static int sink(void *ctx, const fg_scan_event *e) {
  sum *s = ctx;
  require(e->depth <= FG_SCAN_DEPTH && e->what >= FG_SCAN_BEGIN_OBJECT && e->what <= FG_SCAN_NULL);
  require(e->text.len == 0 || e->text.ptr != NULL);
  int begins = e->what == FG_SCAN_BEGIN_OBJECT || e->what == FG_SCAN_BEGIN_ARRAY, ends = e->what == FG_SCAN_END_OBJECT || e->what == FG_SCAN_END_ARRAY;
  require(e->depth + (ends ? 1u : 0u) == s->depth);
  s->depth += begins ? 1u : 0u;
  s->depth -= ends ? 1u : 0u;
  if (e->what == FG_SCAN_STRING) {
    require(e->first != s->strings_open);
    s->strings_open = e->last ? 0 : 1;
    for (uint32_t i = 0; i < e->text.len; i++) {
      mix(s, (uint8_t)e->text.ptr[i]);
    }
    if (e->last) {
      mix(s, 1000 + e->index);
    }
    return 0;
  }
  s->events++;
  mix(s, 2000 + e->what);
  mix(s, e->depth);
  mix(s, (uint64_t)e->integer * 2 + e->is_integer);
  for (uint32_t i = 0; i < e->text.len; i++) {
    mix(s, (uint8_t)e->text.ptr[i]);
  }
  return 0;
}

static int32_t read_all(const char *p, uint32_t len, uint32_t flags, uint32_t seed, sum *out, uint32_t *bad_at) {
  fg_scan s;
  memset(out, 0, sizeof *out);
  fg_scan_init(&s, flags);
  uint32_t i = 0;
  while (i < len) {
    uint32_t n = len;
    if (seed != 0) {
      seed = seed * 1664525u + 1013904223u; /* Numerical Recipes' generator */
      n = 1 + (seed >> 20) % 17;
    }
    n = len - i < n ? len - i : n;
    uint32_t used = 0;
    if (fg_scan_feed(&s, p + i, n, sink, out, &used) == FG_SCAN_BAD) {
      *bad_at = i + used;
      require(s.error != 0 && fg_scan_why(s.error)[0] != 0);
      return FG_SCAN_BAD;
    }
    require(used == n);
    i += n;
  }
  *bad_at = len;
  return fg_scan_end(&s, sink, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2 || size > 1 << 16) {
    return 0;
  }
  uint32_t seed = 1u + data[0] + 256u * data[1];
  const char *p = (const char *)data + 2;
  uint32_t len = (uint32_t)size - 2;
  sum one, cut, soft;
  uint32_t at_one = 0, at_cut = 0, at_soft = 0;
  int32_t a = read_all(p, len, 0, 0, &one, &at_one);
  int32_t b = read_all(p, len, 0, seed, &cut, &at_cut);
  require(a == b && at_one == at_cut && one.events == cut.events && one.hash == cut.hash);
  int32_t c = read_all(p, len, FG_SCAN_LENIENT, seed, &soft, &at_soft);
  require(a != FG_SCAN_DONE || (c == FG_SCAN_DONE && soft.hash == one.hash));
  require(a != FG_SCAN_DONE || one.depth == 0);
  fg_error err;
  memset(&err, 0, sizeof err);
  err.size = sizeof err;
  int32_t code = fg_scan_check(p, len, &err);
  int bom = len >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0;
  require(bom || (code == FG_OK) == (a == FG_SCAN_DONE));
  require(code == FG_OK || (err.line >= 1 && err.column >= 1 && err.offset <= len && err.message[0] != 0));
  /* Any input is a path too. */
  char path[64];
  uint32_t n = len < sizeof path - 1 ? len : (uint32_t)sizeof path - 1;
  memcpy(path, p, n);
  path[n] = 0;
  uint32_t line = 0, column = 0, offset = 0;
  if (fg_scan_locate(p, len, path, 0, &line, &column, &offset) == FG_OK) {
    require(line >= 1 && column >= 1 && offset < len);
  }
  (void)fg_scan_locate(p, len, "a.b[1].c", 1, &line, &column, NULL);
  return 0;
}
