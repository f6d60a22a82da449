/* What an error body says, whatever its shape: words that name the error,
 * numbers that are HTTP statuses, waits, and one lower-case text. JSON (also
 * cut, double-encoded, in an array, or quoted inside a message), HTML, plain
 * text. Nothing is known here about what the words mean. */
#ifndef FG_SIGNS_H
#define FG_SIGNS_H

#include "fg_base.h"
#include "fg_rules.h"

enum { FG_SHAPE_EMPTY = 0, FG_SHAPE_JSON, FG_SHAPE_BROKEN_JSON, FG_SHAPE_HTML, FG_SHAPE_TEXT };
enum { FG_SIGN_POOL = 768, FG_SIGN_BODY_MAX = 65536 };

typedef struct fg_signs {
  fg_rule_input in;       /* names and message point into the two buffers below */
  uint32_t shape;
  int32_t status;         /* HTTP-like number the outermost document gives, 0 none */
  int32_t inner_status;   /* the same of a document quoted inside it */
  uint32_t inner_count;   /* documents quoted inside messages */
  uint64_t wait_ms;       /* an explicit wait member (retryDelay, retry_after, estimated_time, …) */
  uint32_t has_wait, has_reset;
  char reset[40];         /* a reset time, as given */
  uint32_t reset_len, text_len, pool_len;
  uint32_t inner, depth;  /* while reading: inside a quoted document; levels of quoting */
  char text[FG_SIGN_TEXT];
  char pool[FG_SIGN_POOL];
} fg_signs;

void fg_signs_init(fg_signs *s);
/* Reads a body; may be called for several texts. */
void fg_signs_body(fg_signs *s, fg_str body);
/* One name (FG_NAME_*) or one text given by something else than the body. */
void fg_signs_name(fg_signs *s, const char *p, uint32_t len, uint32_t what);
void fg_signs_text(fg_signs *s, const char *p, uint32_t len);
/* Reads the documents quoted in the text that begins at s->text[from]. */
void fg_signs_quoted(fg_signs *s, uint32_t from);
/* A text that begins with its HTTP status ("429 Client Error: …"). */
void fg_signs_leading_status(fg_signs *s, fg_str text);
/* After the last of the above: s->in can be matched. */
void fg_signs_done(fg_signs *s);

#endif /* FG_SIGNS_H */
