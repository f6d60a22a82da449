/* The built-in classification rules, in the form a card's rules have, with an
 * index over their words. */
#ifndef FG_BUILTIN_H
#define FG_BUILTIN_H

#include "fg_rules.h"

enum { FG_BUILTIN_TRANSPORT = 1, FG_BUILTIN_ANSWER = 2 }; /* errors of the transport; error answers */
enum { /* lists of fg_builtin_words.inc, in its order */
  FG_WORD_MODEL_LIMIT, FG_WORD_MODEL_LOAD, FG_WORD_TOO_LARGE_EVER, FG_WORD_SEVERAL_FAILURES, FG_WORD_TOLD_READ, FG_WORD_TOLD_SEND,
  FG_WORD_TOLD_BODY, FG_WORD_PROXY, FG_WORD_COUNT
};

/* What of the rules the names, the text and the provider satisfy: a bit a rule. */
typedef struct fg_found { uint64_t rules[8]; } fg_found;

/* Looks at in->name, in->message and in->provider, once for an attempt. */
void fg_builtin_look(const fg_rule_input *in, fg_found *out);
int fg_builtin_word(const fg_found *found, uint32_t word);
/* First rule of a part that holds: its number from 0, or -1. */
int32_t fg_builtin_match(uint32_t part, const fg_rule_input *in, const fg_found *found, const fg_rule **rule);
uint32_t fg_builtin_count(void);           /* of both parts */
uint32_t fg_builtin_transport_count(void); /* the first of them are the transport's */
const char *fg_builtin_why(uint32_t number);
/* A rule and the pool its texts are in, for the test of the index. */
const fg_rule *fg_builtin_rule(uint32_t number, const char **pool);

#endif /* FG_BUILTIN_H */
