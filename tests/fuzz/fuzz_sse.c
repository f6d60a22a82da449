/* The stream scanner: the same facts in one piece and in random pieces, counts bounded by the bytes, evidence that points into the state.
 * The first three bytes: cuts, wire, flags. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fg_sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct seen { fg_sse s; fg_answer a; fg_evidence e; uint32_t saw; } seen;

#define require(ok) ((ok) ? (void)0 : broken(#ok))
static void broken(const char *what) {
  (void)fprintf(stderr, "violated: %s\n", what);
  abort();
}

static void run(seen *o, const char *p, uint32_t len, uint32_t wire, uint32_t flags, uint32_t seed) {
  memset(o, 0, sizeof *o);
  fg_sse_init(&o->s, wire, flags);
  for (uint32_t i = 0; i < len;) {
    uint32_t n = len;
    if (seed != 0) {
      seed = seed * 1664525u + 1013904223u; /* Numerical Recipes' generator */
      n = 1 + (seed >> 20) % 23;
    }
    n = len - i < n ? len - i : n;
    int32_t r = fg_sse_feed(&o->s, p + i, n);
    require(r >= 0);
    o->saw |= (uint32_t)r;
    i += n;
  }
  o->a.size = sizeof o->a;
  o->e.size = sizeof o->e;
  require(fg_sse_answer(&o->s, &o->a) == FG_OK);
  require(fg_sse_evidence(&o->s, &o->e) == FG_OK);
  require(o->e.visible <= len && o->e.reasoning <= len && o->e.lifecycle <= len && o->e.tool_args_bytes <= 3 * len); /* a bad byte becomes three */
  require(fg_name(FG_TABLE_FINISH, o->a.finish) != NULL && o->e.terminal == o->a.finish);
  const char *from = (const char *)&o->s;
  require(o->e.body.len == 0 || (o->e.body.ptr >= from && o->e.body.ptr + o->e.body.len <= from + sizeof o->s));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static seen one, cut;
  if (size < 3 || size > 1 << 18) {
    return 0;
  }
  const char *p = (const char *)data + 3;
  uint32_t len = (uint32_t)size - 3;
  run(&one, p, len, data[1] % 5, data[2] & 1, 0);
  run(&cut, p, len, data[1] % 5, data[2] & 1, 1u + data[0]);
  if (one.e.terminal == FG_FINISH_NONE) { /* in pieces it may have looked like the end, until another choice began */
    cut.saw &= ~(uint32_t)FG_SAW_TERMINAL;
  }
  require(one.saw == cut.saw && memcmp(&one.a, &cut.a, sizeof one.a) == 0);
  require(one.e.visible == cut.e.visible && one.e.lifecycle == cut.e.lifecycle && one.e.reasoning == cut.e.reasoning &&
          one.e.tool_args_bytes == cut.e.tool_args_bytes && one.e.terminal == cut.e.terminal && one.e.flags == cut.e.flags);
  require(fg_str_eq(one.e.body, cut.e.body));
  fg_failure f;
  memset(&f, 0, sizeof f);
  f.size = sizeof f;
  require(fg_classify(NULL, &one.e, &f) == FG_OK);
  require(one.e.visible == 0 || f.commit == FG_COMMIT_PARTIAL);
  return 0;
}
