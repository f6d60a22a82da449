/* The latest decision, packed into the call: ended calls answer it again, explain and the ledger read it. */
#ifndef FG_KEPT_H
#define FG_KEPT_H

#include "fg_call_state.h"

/* w names the routes (the call keeps their places in the workflow). */
void fg_kept_put(fg_call_state *s, const fg_policy_workflow *w, const fg_decision *d);
void fg_kept_get(const fg_call_state *s, const fg_policy_workflow *w, fg_decision *d);

#endif /* FG_KEPT_H */
