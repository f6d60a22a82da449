/* What the parts of fg_decide share while one decision is weighed. */
#ifndef FG_WEIGH_H
#define FG_WEIGH_H

#include "fg_gates.h"

typedef struct fg_weigh {
  const fg_facts *f;
  fg_decision *d;
  fg_owner_verdict owner;
  fg_commit_verdict commit;
  uint32_t base;      /* index of the route spoken of: the failed one, or the primary before the first attempt */
  uint32_t base_why;  /* FG_REASON_*: why that route is not sent to (again) */
  uint32_t next_why;  /* why the first stand-in was refused; FG_REASON_NO_STAND_IN when there is none */
  uint32_t send_why;  /* why nothing may be sent at all, 0 = something may */
  uint32_t call_why;  /* the same where it is what ends the call: the owner would have allowed a send */
  uint32_t spill_why; /* why no call may leave a limited primary for a stand-in, 0 = it may, or the limit is not the matter */
} fg_weigh;

void fg_weigh_reject(fg_weigh *w, uint32_t index, uint32_t why); /* notes it in rejected[] */
void fg_weigh_send(fg_weigh *w, uint32_t action, uint32_t index, uint32_t reason, uint32_t detail);
/* First stand-in that may serve now, 0 if none (index 0 is the primary). */
uint32_t fg_weigh_stand_in(fg_weigh *w);
uint32_t fg_weigh_spill(const fg_facts *f); /* rate limits leave a route only through spill: why not, or 0 */
/* Rules 10-12: queue, ladder, fail_closed. */
void fg_weigh_give_way(fg_weigh *w);
bool fg_weigh_queue(fg_weigh *w);
void fg_weigh_end(fg_weigh *w, uint32_t reason, uint32_t detail);
uint32_t fg_weigh_reason(const fg_weigh *w, uint32_t *detail); /* why nothing nicer was possible */

enum { FG_RUNG_SMALLER = 1, FG_RUNG_EDIT = 2, FG_RUNG_ANSWER = 4 }; /* kinds of ladder steps */
bool fg_weigh_ladder(fg_weigh *w, uint32_t kinds);

void fg_decide_begin(fg_weigh *w);

#endif /* FG_WEIGH_H */
