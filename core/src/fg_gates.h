/* The five gates, each a pure function over fg_facts. fg_decide.c asks them in the order of DESIGN 6.
 *
 * A gate answers 0 (FG_REASON_NONE: pass) or the reason it stops the action asked about. */
#ifndef FG_GATES_H
#define FG_GATES_H

#include <stdbool.h>

#include "fivegates.h"

/* Gate 1, owner: whose fault is it, and which ways out does that leave? */
typedef struct fg_owner_verdict {
  uint32_t reason;      /* what this failure is called in a decision */
  bool retry;           /* the same request may go to the same route again */
  bool fallback;        /* another route may be asked */
  bool queue, ladder;   /* later, or with less */
  bool answers;         /* of the ladder: cached and preset too (not only the step that removes the cause) */
  bool larger;          /* a stand-in must hold what the failed route could not */
  bool other_budget, other_vendor; /* a stand-in must differ in this */
  bool size_in, size_out, feature; /* the cause, for the ladder */
} fg_owner_verdict;
void fg_gate_owner(const fg_facts *f, fg_owner_verdict *out);
bool fg_owner_stops(const fg_facts *f, uint32_t owner); /* stop_on names it */

/* Gate 2, commit: could sending again repeat tokens, a write, or an outside action? */
typedef struct fg_commit_verdict {
  uint32_t reason;      /* 0: may send */
  uint32_t resume_from; /* FG_RESUME_*: how */
  uint32_t change;      /* FG_CHANGE_CLEAR_SHOWN, FG_CHANGE_PREFILL */
  uint32_t lookup;      /* FG_LOOKUP_*: what can settle it */
  bool answers;         /* a cached or preset answer is still harmless */
} fg_commit_verdict;
void fg_gate_commit(const fg_facts *f, fg_commit_verdict *out);

/* Gate 3, budget. */
uint32_t fg_budget_call(const fg_facts *f);                                   /* nothing more may be sent at all */
uint32_t fg_budget_route(const fg_facts *f, const fg_candidate *c, bool time); /* tokens, money, quality, time of one send there */
uint32_t fg_budget_retry(const fg_facts *f, uint32_t wait_ms);                /* class, route, bucket, wait: the failed route again */
uint32_t fg_budget_wait(const fg_facts *f, uint32_t wait_ms);                 /* may this host wait so long */

/* Gate 4, contract: is this stand-in approved, does the request fit it, is it outside what just failed? */
uint32_t fg_gate_contract(const fg_facts *f, const fg_candidate *c, const fg_owner_verdict *o);

/* Gate 5, health: is the route worth an attempt now? */
uint32_t fg_gate_health(const fg_candidate *c);
bool fg_health_waits(uint32_t health); /* out only for a known, short while: paced or told to wait */

#endif /* FG_GATES_H */
