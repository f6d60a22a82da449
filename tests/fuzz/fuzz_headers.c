/* Wait hints from any headers and body: no wrap, deterministic, order of the headers does not matter when names differ. Input: lines
 * `name: value`, an empty line, the body. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fg_hint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define require(ok) ((ok) ? (void)0 : broken(#ok))
static void broken(const char *what) {
  (void)fprintf(stderr, "violated: %s\n", what);
  abort();
}

static void judge(const fg_header *h, uint32_t n, fg_str body, fg_failure *f) {
  fg_evidence e;
  memset(&e, 0, sizeof e);
  memset(f, 0, sizeof *f);
  e.size = sizeof e;
  f->size = sizeof *f;
  e.status = 429;
  e.phase = FG_PHASE_RESPONSE;
  e.headers = h;
  e.header_count = n;
  e.body = body;
  require(fg_classify(NULL, &e, f) == FG_OK);
  require(f->retry_after_ms == 0 || (f->flags & FG_FAIL_HAS_RETRY_AFTER));
}

static void values(fg_str v) {
  uint64_t ms = 0;
  int64_t at = 0;
  const uint64_t top = UINT64_MAX / 2;
  require(!fg_hint_number(v, 1000, &ms) || ms <= top);
  require(!fg_hint_duration(v, &ms) || ms <= top);
  require(!fg_hint_date(v, &at) || (at > -INT64_C(100000000000000) && at < INT64_C(400000000000000)));
  require(!fg_hint_reset(v, INT64_C(1791280800000), &ms) || ms <= top);
  require(!fg_hint_prose(v, &ms) || ms <= top);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fg_header h[32], back[32];
  uint32_t n = 0, at = 0, len = size < 1 << 16 ? (uint32_t)size : 1 << 16;
  const char *p = (const char *)data;
  while (at < len && n < FG_ARRAY_LEN(h)) {
    uint32_t end = at, colon = len;
    while (end < len && p[end] != '\n') {
      colon = p[end] == ':' && colon == len ? end : colon;
      end++;
    }
    if (end == at || colon >= end) {
      at = end;
      break;
    }
    h[n].name = fg_str_make(p + at, colon - at);
    h[n].value = fg_str_make(p + colon + 1, end - colon - 1);
    values(h[n].value);
    n++;
    at = end < len ? end + 1 : end;
  }
  int distinct = 1;
  for (uint32_t i = 0; i < n; i++) {
    back[n - 1 - i] = h[i];
    for (uint32_t k = 0; k < i; k++) {
      distinct = distinct && !fg_eq_nocase(h[i].name.ptr, h[i].name.len, h[k].name.ptr, h[k].name.len);
    }
  }
  fg_str body = fg_str_make(p + at, len - at);
  values(body);
  fg_failure a, b;
  judge(h, n, body, &a);
  judge(back, n, body, &b);
  require(!distinct || a.retry_after_ms == b.retry_after_ms);
  return 0;
}
