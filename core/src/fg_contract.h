/* Does a request fit a route of its workflow now? The card's verdict, dates, sizes, features, tools, data, region, account. */
#ifndef FG_CONTRACT_H
#define FG_CONTRACT_H

#include "fg_policy.h"

typedef struct fg_fit_request {
  uint32_t prompt_tokens, max_output_tokens, request_bytes; /* 0 = unknown: asks for nothing */
  uint32_t features, stream, delivery;                      /* FG_FEATURE_*, FG_STREAM_*, FG_DELIVERY_* */
  uint32_t region, data_class, account; /* 0 none given, 1 + index into the policy's table, UINT32_MAX given but not in the card */
  uint32_t tool_count;
  const uint64_t *tool_hashes;          /* fg_contract_tool_hash of each name */
  uint32_t tool_choice;
} fg_fit_request;

typedef struct fg_fit {
  uint32_t barred;     /* FG_REASON_* of the contract gate; 0 = it may serve */
  uint32_t change;     /* FG_CHANGE_*: edits the request needs there */
  uint32_t max_tokens; /* with DOES_NOT_FIT_TOKENS: the largest max_tokens that would fit; 0 = none would */
  uint32_t larger_ok;  /* 1: the limits it declares (or, as a twin, inherits) hold the request */
} fg_fit;

/* Route `index` of the workflow's stand-ins; 0 is the primary, which only what it declares binds. Of a stand-in, what is unknown is
 * not provided. unix_ms: wall time, INT64_MIN unknown. */
void fg_contract_fit(const fg_policy *p, const fg_policy_workflow *w, uint32_t index, const fg_fit_request *r, int64_t unix_ms, fg_fit *out);

/* Does a contract's date hold at that wall time (INT64_MIN unknown)? 0; CONTRACT_EXPIRED; NO_WALL_CLOCK: no time, or one before the
 * evidence was measured. */
uint32_t fg_contract_dates(const fg_policy_standin *s, int64_t unix_ms);

/* As the card's tool lists keep them. */
uint64_t fg_contract_tool_hash(const char *name, uint32_t len);

#endif /* FG_CONTRACT_H */
