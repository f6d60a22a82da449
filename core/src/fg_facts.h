/* From live state to fg_facts: what fg_decide will look at. */
#ifndef FG_FACTS_H
#define FG_FACTS_H

#include "fg_call_state.h"
#include "fg_contract.h"
#include "fg_engine.h"
#include "fg_math.h"

typedef struct fg_facts_build {
  fg_facts facts;
  uint8_t place[FG_ROUTES_MAX];   /* candidate index -> place in the workflow */
  fg_health_view health[FG_ROUTES_MAX]; /* by candidate index */
  uint32_t did;                   /* FG_DID_*: what the look completed */
} fg_facts_build;

/* Builds the facts of a decision at this stage (FG_STAGE_*). */
void fg_facts_make(const fg_engine *e, const fg_call_state *s, uint32_t stage, int64_t t, fg_facts_build *out);
/* The same before the first attempt with the primary alone, without stand-ins and ladder: when that proceeds, nothing else matters. */
void fg_facts_primary(const fg_engine *e, const fg_call_state *s, int64_t t, fg_facts_build *out);
/* Slow start refuses no route any more. 1 when it refused one. */
uint32_t fg_facts_end_ramp(fg_facts *f);

static inline const fg_policy_workflow *fg_workflow_of(const fg_engine *e, const fg_call_state *s) {
  return &fg_policy_workflows(e->policy)[s->workflow];
}
static inline const fg_policy_route *fg_route_of(const fg_engine *e, const fg_call_state *s, uint32_t place) {
  return &fg_policy_routes(e->policy)[fg_workflow_of(e, s)->standin[place].route];
}
/* The record of a route of the workflow, NULL when there is none to be had. */
static inline fg_route_rec *fg_rec_of(const fg_engine *e, const fg_call_state *s, uint32_t place, int64_t t) {
  return fg_engine_route_rec(e, fg_workflow_of(e, s)->standin[place].route, t);
}
int fg_ask_of(const fg_engine *e, const fg_call_state *s, uint32_t place, int64_t t, fg_health_ask *out);
/* The request as the contract gate sees it; tool names are known at begin only. */
void fg_fit_request_of(const fg_call_state *s, fg_fit_request *out);
static inline uint32_t fg_since(const fg_call_state *s, int64_t t) { /* ms since the call began */
  return fg_clamp32(t - s->began_t);
}
static inline uint32_t fg_elapsed_left(const fg_engine *e, const fg_call_state *s, int64_t t) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  const uint32_t since = fg_since(s, t);
  uint32_t left = UINT32_MAX;
  if (w->elapsed_ms != UINT32_MAX) {
    left = fg_sub32(w->elapsed_ms, since - s->step_at);
  }
  if (w->call_elapsed_ms != UINT32_MAX) {
    left = fg_min32(left, fg_sub32(w->call_elapsed_ms, since));
  }
  return left;
}
/* Milli-tokens the failed route's bucket pays for this send: a retry there, or a stand-in. */
uint32_t fg_price_of_retry(const fg_engine *e, const fg_call_state *s, int64_t t);
uint32_t fg_price_of_fallback(const fg_call_state *s);
/* Retries counted against a class on a route (FG_CLASS_COUNT: overload). */
uint32_t fg_retries_of(const fg_call_state *s, uint32_t place, uint32_t klass);
void fg_retries_add(fg_call_state *s, uint32_t place, uint32_t klass);

#endif /* FG_FACTS_H */
