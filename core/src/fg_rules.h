/* Classification rules, compiled: one form for the built-in ones and for a
 * card's `classify:`. Pointer-free; texts are offsets into a pool.
 *
 * A text condition holds alternatives joined by '|', compared in any case; an
 * alternative that ends in '*' is a prefix, one that begins with it occurs anywhere. Of `message`, an alternative is a
 * list of phrases joined by '&' that must all occur, each beginning at the
 * start of a word; message texts are lower-case. core/card joins a JSON list
 * with '|' (message: one text -> its words joined by '&', a list -> its phrases
 * joined by '&'), and refuses a rule whose `when` has nothing but a message. */
#ifndef FG_RULES_H
#define FG_RULES_H

#include "fg_base.h"

typedef struct fg_rtext { uint32_t off, len; } fg_rtext; /* into the pool; len 0 = any */

enum { FG_RULE_STATUS_MAX = 8, FG_RULE_HEADER_MAX = 2 };

typedef struct fg_rule {
  /* when: all must hold */
  fg_rtext provider, api, code, type, error, message, lib, kind;
  fg_rtext header[FG_RULE_HEADER_MAX], header_value[FG_RULE_HEADER_MAX]; /* value len 0: the header is there */
  uint16_t status[FG_RULE_STATUS_MAX]; /* 429; 5 is 5xx; 0 ends the list, an empty list is any */
  uint32_t phases;                     /* bit 1 << FG_PHASE_*; 0 = any */
  /* then: value + 1, 0 = as the rest says (the kind's defaults, then the owner's) */
  uint16_t set_owner, set_kind, set_class, set_scope, set_period, set_billed, set_commit, set_repair;
  uint16_t set_overload, set_trips_breaker, set_should_retry; /* 1 false, 2 true */
  uint16_t has_retry_after;
  uint32_t retry_after_ms;
  uint32_t zero;
  fg_rtext why; /* NUL-terminated in the pool */
} fg_rule;

/* Everything of a failed attempt that a rule can look at. Built by fg_classify
 * from evidence; texts are borrowed. */
enum { FG_SIGN_NAMES = 16, FG_SIGN_TEXT = 2048 };
enum { FG_NAME_CODE = 1, FG_NAME_TYPE = 2, FG_NAME_OTHER = 4, FG_NAME_PARAM = 8 }; /* a parameter's name is no error's name */

typedef struct fg_rule_name { const char *ptr; uint16_t len, what; } fg_rule_name; /* a code, type, status or reason word of the body */

typedef struct fg_rule_input {
  fg_str provider, api, lib, kind;
  uint32_t phase;
  int32_t status;
  const fg_header *headers;
  uint32_t header_count, name_count;
  fg_rule_name name[FG_SIGN_NAMES];
  fg_str message;      /* lower-case */
  uint64_t name_first;  /* first letters of the names: a filter */
  uint64_t starts[16]; /* which word beginnings the message has: a filter before the search */
} fg_rule_input;

/* A phrase may begin at the start of a word, or with something that is no letter or digit. */
static inline int fg_rule_may_begin(const char *p, uint32_t i) { return i == 0 || !fg_is_alnum(p[i - 1]) || !fg_is_alnum(p[i]); }
/* Hash of three bytes to 0..1023 (Knuth's multiplicative); core/tools/gen_builtin.py has it too. */
static inline uint32_t fg_rule_start(const char *p) {
  uint32_t h = (unsigned char)p[0] * 961u + (unsigned char)p[1] * 31u + (unsigned char)p[2];
  return (h * 2654435761u) >> 22;
}

/* Nonzero when all conditions of the rule hold. */
int fg_rule_holds(const fg_rule *r, const char *pool, const fg_rule_input *in);
/* The conditions apart from status, provider, error and message. */
int fg_rule_rest_holds(const fg_rule *r, const char *pool, const fg_rule_input *in);
/* Fills the filters from in->message and the names. */
void fg_rule_index(fg_rule_input *in);

#endif /* FG_RULES_H */
