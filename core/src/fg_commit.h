/* Commit facts of a step (DESIGN 5): what may already have been billed, shown, done. They only grow; two proofs may lower them. */
#ifndef FG_COMMIT_H
#define FG_COMMIT_H

#include "fg_call_state.h"

void fg_commit_billing(fg_call_state *s, uint32_t billing); /* raises */
void fg_commit_shown(fg_call_state *s, uint32_t shown);     /* raises; visible only counts when the delivery shows it at once */
/* Proof: refused before inference, and nothing of an answer was seen. */
void fg_commit_proved_unbilled(fg_call_state *s);
/* A new attempt: billing and what was shown begin anew (what was shown before was cleared or is continued); effects stay. */
void fg_commit_attempt(fg_call_state *s, uint32_t keep_shown);
/* A tool operation of this step is in this state (FG_TOOL_*); states only advance, failed before a commit excepted. */
void fg_commit_tool(fg_call_state *s, const char *op, uint32_t len, uint32_t state, uint32_t idempotent);
/* A look-up settled an effect (FG_EFFECT_NONE or _COMMITTED). 1 when the operation is known. */
int fg_commit_resolved(fg_call_state *s, const char *op, uint32_t len, uint32_t effect);
/* A checkpoint: what was committed is held, what is unresolved stays unknown. */
void fg_commit_step(fg_call_state *s);
/* Bit n: the n-th operation of the step is idempotent and may be sent again under its id. */
uint32_t fg_commit_reuse(const fg_call_state *s);

#endif /* FG_COMMIT_H */
