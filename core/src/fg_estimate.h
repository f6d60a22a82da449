/* How long a route will take: estimates from what was learned, and the clocks an attempt runs under (DESIGN 6, 8). */
#ifndef FG_ESTIMATE_H
#define FG_ESTIMATE_H

#include "fg_call_state.h"
#include "fg_engine.h"

typedef struct fg_clocks { uint32_t connect_ms, first_token_ms, idle_ms, progress_ms, total_ms, stall_ms; } fg_clocks;

/* FG_LEARN_* of this call: streamed or whole, reasoning or not. */
uint32_t fg_learn_kind(const fg_call_state *s);
/* Is the answer bounded as a whole (not streamed, or held back until accepted)? */
int fg_answer_is_whole(const fg_call_state *s);
/* q50 to the first token (to the whole answer when not streamed), from 10 samples; before that what the route declares, else 2 s. */
uint32_t fg_estimate_ms(const fg_policy_route *r, const fg_call_state *s, fg_route_rec *rec, uint32_t max_output_tokens);
/* The time-outs of an attempt on the route whose record this is (NULL: none). left_ms: of the time budget (UINT32_MAX = none); spare_ms: estimate of the best stand-in that
 * could still serve after this attempt, 0 = none. */
void fg_clocks_of(const fg_policy_workflow *w, const fg_call_state *s, fg_route_rec *rec, uint32_t left_ms, uint32_t spare_ms, int64_t t, fg_clocks *out);

#endif /* FG_ESTIMATE_H */
