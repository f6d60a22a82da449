/* The built-in classification rules, in the form a card's rules have. */
#ifndef FG_BUILTIN_H
#define FG_BUILTIN_H

#include "fg_rules.h"

enum { FG_BUILTIN_TRANSPORT = 1, FG_BUILTIN_ANSWER = 2 }; /* errors of the transport; error answers */

/* First rule of a part that holds: its number from 0 over all parts, or -1. */
int32_t fg_builtin_match(uint32_t part, const fg_rule_input *in, const fg_rule **rule);
uint32_t fg_builtin_count(void);
const char *fg_builtin_why(uint32_t number);

#endif /* FG_BUILTIN_H */
