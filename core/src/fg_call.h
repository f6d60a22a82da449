/* Shared by the files that implement fg_call_*: opening a call, deciding, admitting, ending an attempt. */
#ifndef FG_CALL_H
#define FG_CALL_H

#include "fg_call_state.h"
#include "fg_engine.h"
#include "fg_estimate.h"
#include "fg_facts.h"

/* Checks engine and call, turns now_ms into t, prepares out. told: FG_TOLD_*. FG_OK, or an error with out fail_closed. */
int32_t fg_call_open(const fg_engine *e, fg_call *c, uint32_t told, int64_t now_ms, fg_decision *out, fg_call_state **s, int64_t *t);
/* Same without a decision to fill, and before the look at overdue attempts: news of an attempt comes first. fg_call_look follows. */
int32_t fg_call_touch(const fg_engine *e, fg_call *c, int64_t now_ms, fg_call_state **s, int64_t *t);
void fg_call_look(const fg_engine *e, fg_call_state *s, int64_t t);
/* fg_call_open without the look. */
int32_t fg_call_open_first(const fg_engine *e, fg_call *c, uint32_t told, int64_t now_ms, fg_decision *out, fg_call_state **s, int64_t *t);
/* out := the latest decision again. */
void fg_call_again(const fg_engine *e, const fg_call_state *s, fg_decision *out);
/* Builds the facts, decides, keeps the decision and moves the call's state. */
void fg_call_decide(const fg_engine *e, fg_call_state *s, uint32_t stage, int64_t t, fg_decision *out);
/* Keeps a decision made elsewhere (proceed, accept, keep_waiting). */
void fg_call_keep(const fg_engine *e, fg_call_state *s, fg_decision *out);
/* Fills what every decision carries: numbers left, ids to reuse, alerts. */
void fg_call_fill(const fg_engine *e, fg_call_state *s, int64_t t, fg_decision *out);
/* The clocks an attempt on this route would run under if it began in wait_ms. */
void fg_call_clocks(const fg_engine *e, const fg_call_state *s, uint32_t place, uint32_t wait_ms, int64_t t, fg_clocks *out);
void fg_call_show_clocks(const fg_clocks *k, fg_decision *out);
/* Which routes the request fits now. tools NULL: the names are not known any more, what they barred stays barred. */
void fg_call_fit(const fg_engine *e, fg_call_state *s, const uint64_t *tools, uint32_t tool_count, uint32_t tool_choice, int64_t t);
/* The call stands in one column of its workflow's counters (FG_WF_*), the latest. */
void fg_call_count(const fg_engine *e, fg_call_state *s, uint32_t column, int64_t t);
void fg_call_alert(fg_call_state *s, uint32_t did);

/* A send that was decided and paid for will not be made: the bucket gets it back. */
void fg_call_refund(const fg_engine *e, fg_call_state *s, int64_t t);
/* The live attempt ends: its evidence reaches the route, its money is settled or kept. */
void fg_attempt_over(const fg_engine *e, fg_call_state *s, const fg_outcome *outcome, int64_t t);
/* Rule 0 and what a failure changes in the call; then the decision. elapsed_ms: how long the attempt took. */
void fg_attempt_failed(const fg_engine *e, fg_call_state *s, const fg_failure *f, uint32_t inner_attempts, uint32_t status, int64_t t,
                       fg_decision *out);

#endif /* FG_CALL_H */
