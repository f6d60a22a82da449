/* Shared by the scanner's files. Private to fg_scan*.c. */
#ifndef FG_SCAN_STATE_H
#define FG_SCAN_STATE_H

#include "fg_scan.h"

enum state {
  S_VALUE, S_FIRST_ELEMENT, S_ELEMENT, S_FIRST_KEY, S_KEY, S_COLON, S_AFTER, S_STRING, S_ESCAPE, S_HEX, S_HALF, S_HALF_U, S_NUMBER, S_WORD,
  S_END
};

/* Completes an event with where the scanner is, and hands it on. Nonzero: the sink wants to stop. */
static inline int scan_emit(const fg_scan *s, fg_scan_sink sink, void *ctx, fg_scan_event *e) {
  e->depth = s->depth;
  e->index = s->depth > 0 ? s->index[s->depth - 1] : 0;
  return sink != NULL ? sink(ctx, e) : 0;
}

/* fg_scan_string.c; each answers 0 go on, 1 stop, -1 bad (s->error says why). */
int scan_string(fg_scan *s, const char *b, uint32_t len, uint32_t *at, fg_scan_sink sink, void *ctx);
int scan_escape(fg_scan *s, fg_scan_sink sink, void *ctx, char c);
int scan_hex(fg_scan *s, fg_scan_sink sink, void *ctx, char c);
int scan_code_point(fg_scan *s, fg_scan_sink sink, void *ctx, uint32_t c);

#endif /* FG_SCAN_STATE_H */
