/* The one JSON scanner: strict, incremental, no allocation. Bytes are pushed
 * in, cut anywhere; events come out. It serves error bodies, stream data,
 * JSON inside strings, and a card's syntax before the card is built. */
#ifndef FG_SCAN_H
#define FG_SCAN_H

#include "fg_base.h"

enum { FG_SCAN_DEPTH = 32 };                        /* nesting allowed anywhere */
enum { FG_SCAN_KEY_MAX = 64, FG_SCAN_NUMBER_MAX = 40 }; /* longer ones are cut in the event, never an error */
#define FG_SCAN_CARD_MAX (16u << 20)                /* bytes of a card */

enum { /* fg_scan_event.what */
  FG_SCAN_BEGIN_OBJECT = 1,
  FG_SCAN_END_OBJECT,
  FG_SCAN_BEGIN_ARRAY,
  FG_SCAN_END_ARRAY,
  FG_SCAN_KEY,    /* text: the key, decoded */
  FG_SCAN_STRING, /* text: a piece, decoded; `last` on the final one (which may be empty) */
  FG_SCAN_NUMBER, /* text: exact spelling; integer when is_integer */
  FG_SCAN_TRUE,
  FG_SCAN_FALSE,
  FG_SCAN_NULL
};

typedef struct fg_scan_event {
  uint32_t what, depth; /* depth: containers open around it; a container's own begin and end do not count it */
  fg_str text;          /* valid during the sink's call */
  int64_t integer;
  uint32_t index;       /* position in the enclosing array */
  uint32_t is_integer, last;
  uint32_t whole;       /* a number of digits alone, however many: no point, no exponent */
  uint32_t cut;         /* the key or number was longer than its buffer */
  uint32_t first;       /* first piece of this string */
} fg_scan_event;

/* Returns nonzero to stop: fg_scan_feed then answers FG_SCAN_STOPPED. */
typedef int (*fg_scan_sink)(void *ctx, const fg_scan_event *e);

enum { /* flags */
  FG_SCAN_LENIENT = 1, /* bad UTF-8, lone surrogates and raw control bytes in strings are let through (as U+FFFD or themselves) */
  FG_SCAN_ONE = 2      /* stop after one value: what follows it is not looked at */
};
enum { FG_SCAN_MORE = 0, FG_SCAN_DONE = 1, FG_SCAN_STOPPED = 2, FG_SCAN_BAD = -1 };

typedef struct fg_scan {
  uint64_t is_object;     /* bit n: container n is an object */
  uint64_t offset;        /* bytes consumed */
  uint64_t integer;       /* digits so far */
  uint32_t state, flags;
  uint32_t depth, max_depth;
  uint32_t index[FG_SCAN_DEPTH];
  uint32_t unicode, surrogate; /* \u in progress: digits and value; a high half waiting for its low one */
  uint32_t word, word_at; /* true/false/null in progress */
  uint32_t utf8_left, utf8_value, utf8_min, utf8_len;
  uint32_t key_len, number_len;
  uint32_t error;         /* FG_SCAN_E_*, 0 none */
  uint8_t in_key, first, cut, number_state, negative, overflow, zero[2];
  char utf8_buf[4];
  char key[FG_SCAN_KEY_MAX];
  char number[FG_SCAN_NUMBER_MAX];
} fg_scan;

enum { /* fg_scan.error */
  FG_SCAN_E_VALUE = 1, FG_SCAN_E_KEY, FG_SCAN_E_COLON, FG_SCAN_E_COMMA_OBJECT, FG_SCAN_E_COMMA_ARRAY, FG_SCAN_E_NUMBER, FG_SCAN_E_WORD,
  FG_SCAN_E_ESCAPE, FG_SCAN_E_UNICODE, FG_SCAN_E_SURROGATE, FG_SCAN_E_CONTROL, FG_SCAN_E_UTF8, FG_SCAN_E_DEPTH, FG_SCAN_E_AFTER,
  FG_SCAN_E_END, FG_SCAN_E_EMPTY, FG_SCAN_E_SIZE, FG_SCAN_E_TRAILING_COMMA, FG_SCAN_E_COUNT
};

void fg_scan_init(fg_scan *s, uint32_t flags);
/* FG_SCAN_MORE: wants more; FG_SCAN_DONE: one whole value was read, only white space may follow; FG_SCAN_STOPPED; FG_SCAN_BAD.
 * *used: bytes taken; on FG_SCAN_BAD the index of the byte that is wrong. */
int32_t fg_scan_feed(fg_scan *s, const char *bytes, uint32_t len, fg_scan_sink sink, void *ctx, uint32_t *used);
/* No more bytes will come (a number at the top level ends here). FG_SCAN_DONE or FG_SCAN_BAD. */
int32_t fg_scan_end(fg_scan *s, fg_scan_sink sink, void *ctx);
/* What the next byte that is no white space begins: FG_SCAN_EXPECTS_KEY, FG_SCAN_EXPECTS_VALUE, or neither. */
enum { FG_SCAN_EXPECTS_KEY = 1, FG_SCAN_EXPECTS_VALUE = 2 };
uint32_t fg_scan_expects(const fg_scan *s);
/* One line on fg_scan.error; static text. */
const char *fg_scan_why(uint32_t error);

/* The syntax of a whole document. FG_OK, or FG_ERR_SYNTAX with err (may be NULL) filled: what, message, line, column, offset.
 * Texts over FG_SCAN_CARD_MAX bytes are FG_ERR_RANGE. Duplicate keys are not looked at: use fg_scan_locate with nth 1. */
int32_t fg_scan_check(const char *text, uint64_t len, fg_error *err);
/* Where a path is: `workflows.w.ladder[2].step`; a key with dots, brackets, quotes or none at all is ["a.b"] (\" and \\ inside).
 * The place of a member is its key, of an array's element its first byte. nth: 0 the first such path, 1 its first duplicate.
 * Lines and columns from 1; columns count characters. FG_OK, FG_ERR_RANGE when there is none, FG_ERR_SYNTAX when the text is bad
 * before it. Any of the out pointers may be NULL. */
int32_t fg_scan_locate(const char *text, uint64_t len, const char *path, uint32_t nth, uint32_t *line, uint32_t *column, uint32_t *offset);

#endif /* FG_SCAN_H */
