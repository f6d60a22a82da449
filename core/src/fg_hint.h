/* Wait hints: how long the server asks to wait, from headers and from prose.
 * All waits are whole milliseconds, rounded up, so nobody comes early. */
#ifndef FG_HINT_H
#define FG_HINT_H

#include "fg_base.h"

/* Each returns nonzero when the text is one. Numbers too large end at UINT64_MAX / 2, never wrap. */
int fg_hint_number(fg_str s, uint64_t unit_ms, uint64_t *ms); /* "1.5", " 7 "; no sign, exponent, unit, NaN */
int fg_hint_duration(fg_str s, uint64_t *ms);                 /* Go and protobuf: "6m0s", "328ms", "0.847s", "1h2m3.5s" */
int fg_hint_date(fg_str s, int64_t *unix_ms);                 /* the three HTTP dates; RFC 3339 with a zone */
/* A reset moment or delta: RFC 3339, HTTP date, duration, epoch seconds or milliseconds, delta seconds. now_ms 0 = unknown:
 * then only deltas count. 0 and negative numbers are placeholders: no hint. */
int fg_hint_reset(fg_str s, int64_t now_ms, uint64_t *ms);
/* "try again in 9m38.016s", "retry after 30 seconds", "retry_delay { seconds: 34 }"; s is lower-case. */
int fg_hint_prose(fg_str s, uint64_t *ms);

typedef struct fg_hint {
  uint32_t has, explicit_hint; /* wait_ms is meant; it is not from a reset header */
  uint64_t wait_ms;
} fg_hint;

/* From headers: explicit waits and, apart, resets of the exhausted buckets. */
typedef struct fg_hint_heads {
  uint64_t millis, seconds, reset;
  uint32_t has_millis, has_seconds, has_reset;
  uint32_t no_retry; /* a pushback that forbids a retry */
  uint32_t period;   /* FG_PERIOD_* an exhausted bucket is named by, 0 none */
  int64_t now_ms;    /* wall time of the answer: its Date, else unix_ms; 0 unknown */
} fg_hint_heads;
void fg_hint_headers(const fg_header *h, uint32_t count, int64_t unix_ms, fg_hint_heads *out);
/* Explicit hints in order of trust: a later one counts only when it is over a second longer. */
void fg_hint_longer(fg_hint *h, uint64_t ms);
/* Header by name, any case; NULL when absent. */
const fg_str *fg_header_find(const fg_header *h, uint32_t count, const char *name);

#endif /* FG_HINT_H */
