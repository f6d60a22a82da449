/* The output check of an answer: its end, its tool calls, its form. */
#ifndef FG_OUTPUT_H
#define FG_OUTPUT_H

#include "fg_policy.h"

/* 0 when the answer may be accepted, else the FG_KIND_* it fails with: MODEL_REFUSED, OUTPUT_FILTERED, ERROR_IN_STREAM (its end),
 * TRUNCATED_TOOL_CALL, EMPTY_ANSWER (no usage either), NO_OUTPUT, OUTPUT_INVALID (an end not accepted, or against the schema). Of an
 * answer whose text the host did not keep, only its end and its tool calls are judged. Never allocates. */
uint32_t fg_output_check(const fg_policy *p, const fg_policy_workflow *w, const fg_answer *a);

#endif /* FG_OUTPUT_H */
