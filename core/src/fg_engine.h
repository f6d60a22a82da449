/* The engine: one policy on one region, in one process slot. It never changes after init; the shared state is in the region. */
#ifndef FG_ENGINE_H
#define FG_ENGINE_H

#include "fg_health.h"
#include "fg_policy.h"
#include "fg_spend.h"

enum { FG_ENGINE_MAGIC = 0x47454746 }; /* "FGEG" */

struct fg_engine {
  uint32_t magic, slot;
  const fg_policy *policy;
  fg_region *region;
  fg_process_rec *process; /* of the slot */
  uint64_t seed, policy_hash, region_hash;
  fg_breaker_config breaker;
  fg_bucket_config bucket;
  uint32_t place[]; /* where the records of routes, accounts, workflows were, in words from the region's start: a guess, checked by key */
};

/* Every entry point begins here: checks the engine, turns now_ms into t, tells the region this process is alive, looks at overdue attempts.
 * *did: FG_DID_* of what that look changed. */
int32_t fg_engine_enter(const fg_engine *e, int64_t now_ms, int64_t *t, uint32_t *did);
/* The same without the look: for news of an attempt, which comes before the verdict on its silence (a tie is in time). */
int32_t fg_engine_arrive(const fg_engine *e, int64_t now_ms, int64_t *t);
/* The live records of a route (by its index in the policy). 0 when the region has no room for one. Does not keep them from being
 * reclaimed when idle for a day: fg_engine_use does, once an attempt. */
int fg_engine_ask(const fg_engine *e, uint32_t route, int64_t t, fg_health_ask *out);
/* The route's record alone; NULL where fg_engine_ask would answer 0. */
fg_route_rec *fg_engine_route_rec(const fg_engine *e, uint32_t route, int64_t t);
void fg_engine_use(const fg_engine *e, uint32_t route, int64_t t);
fg_workflow_rec *fg_engine_workflow_rec(const fg_engine *e, uint32_t workflow, int64_t t);
fg_day fg_engine_day(const fg_engine *e, int64_t t);

#endif /* FG_ENGINE_H */
