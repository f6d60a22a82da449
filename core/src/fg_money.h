/* Tokens and money of a call: the worst case an attempt holds, what it settles at, what is left (DESIGN 7). */
#ifndef FG_MONEY_H
#define FG_MONEY_H

#include "fg_call_state.h"
#include "fg_engine.h"

typedef struct fg_hold { uint32_t tokens; int64_t nusd; } fg_hold;

/* Worst case of one attempt on a route: input at the miss price, all of max_output. */
fg_hold fg_hold_of(const fg_policy_route *r, const fg_call_state *s, uint32_t prompt_tokens, uint32_t max_output_tokens);
/* A new step (or the call) begins: the primary's own estimate is what "extra" is measured from. */
void fg_money_step(const fg_policy_route *primary, fg_call_state *s);
/* Extra tokens and money used so far; what one more hold would add; what is left. *_left: the type's maximum = no limit. */
uint32_t fg_extra_tokens(const fg_call_state *s, uint32_t more);
int64_t fg_extra_nusd(const fg_call_state *s, int64_t more);
uint32_t fg_tokens_left(const fg_policy_workflow *w, const fg_call_state *s);
int64_t fg_cost_left(const fg_policy_workflow *w, const fg_call_state *s);
/* Holds an attempt's worst case in the call and in the day's money. 0, or FG_REASON_SPEND_PER_DAY and nothing held. */
uint32_t fg_money_hold(const fg_engine *e, const fg_policy_workflow *w, fg_call_state *s, fg_attempt *a, fg_hold hold, int64_t t);
/* Proved unbilled: the hold is released. */
void fg_money_release(const fg_engine *e, fg_call_state *s, fg_attempt *a, int64_t t);
/* Final usage: the hold becomes what it cost. Usage without token counts settles nothing. */
void fg_money_settle(const fg_engine *e, const fg_policy_workflow *w, fg_call_state *s, fg_attempt *a, const fg_answer *usage, int64_t t);
/* The attempt ends unsettled: its hold waits for late usage or the bill. */
void fg_money_keep(fg_call_state *s, const fg_attempt *a);
/* Late final usage of an ended attempt, once. 1 when it was found. */
int fg_money_late(const fg_engine *e, const fg_policy_workflow *w, fg_call_state *s, uint32_t number, const fg_answer *usage, int64_t t);
/* Would the day's money refuse this hold? */
int fg_money_day_over(const fg_engine *e, const fg_policy_workflow *w, int64_t nusd, int64_t t);

#endif /* FG_MONEY_H */
