/* Live state for people and metrics: a route's view, a workflow's counters. Looks, changes nothing. */
#include "fg_engine.h"
#include "fg_math.h"
#include "fg_pace.h"
#include "fg_stall.h"

/* Checks and zeroes the caller's struct, which begins with its size; then the engine's own checks. */
static int32_t begin(const fg_engine *e, void *out, uint64_t bytes, int64_t now_ms, int64_t *t) {
  uint32_t size, did;
  if (out == NULL) {
    return FG_ERR_ARG;
  }
  memcpy(&size, out, sizeof size);
  if (size < bytes) {
    return FG_ERR_ABI;
  }
  memset(out, 0, bytes);
  memcpy(out, &size, sizeof size);
  return fg_engine_enter(e, now_ms, t, &did);
}

int32_t fg_engine_route(const fg_engine *e, uint32_t route, int64_t now_ms, fg_route_view *out) {
  fg_health_ask ask;
  fg_health_view v;
  fg_quantile q;
  uint32_t latch_wait = 0;
  int64_t t;
  int32_t rc;
  rc = begin(e, out, sizeof *out, now_ms, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (route == 0 || route > e->policy->route_count) {
    return FG_ERR_ARG;
  }
  if (!fg_engine_ask(e, route - 1, t, &ask)) {
    return FG_ERR_FULL;
  }
  v = fg_health_peek(&ask, t);
  out->breaker = v.breaker;
  out->health = v.health;
  out->open_for_ms = v.breaker == FG_BREAKER_OPEN ? v.breaker_wait_ms : 0;
  out->generation = v.generation;
  out->opened_count = fg_sat32(fg_load(&ask.route->count[FG_ROUTE_OPENED]));
  out->in_flight = v.in_flight;
  out->retries = v.retries;
  out->limit = v.limit;
  out->z_milli = v.z_milli;
  out->run = v.run;
  out->window_ok = v.window_ok;
  out->window_failed = v.window_failed;
  q = fg_learn_quantile(&ask.route->learn[FG_LEARN_STREAM], 0, 500000);
  out->first_token_ms = q.ms;
  out->samples = q.samples;
  q = fg_learn_quantile(&ask.route->learn[FG_LEARN_STREAM], 0, 990000);
  out->stall_ms = fg_stall_after_ms(q.ms, q.samples, 0, FG_STALL_START_MS);
  out->rate_milli = (uint32_t)fg_pace_now(&ask.route->pace).rate;
  out->not_before_ms = v.health == FG_HEALTH_NOT_BEFORE ? v.wait_ms : 0;
  out->balance_milli = fg_bucket_balance(&ask.route->retry, &e->bucket, t);
  out->latch = fg_health_latch(&ask, t, &latch_wait);
  out->latch_for_ms = latch_wait;
  out->attempts = fg_load(&ask.route->count[FG_ROUTE_ATTEMPTS]);
  out->successes = fg_load(&ask.route->count[FG_ROUTE_SUCCESSES]);
  out->failures = fg_load(&ask.route->count[FG_ROUTE_FAILURES]);
  out->tokens = fg_add64(fg_load(&ask.route->count[FG_ROUTE_TOKENS_IN]), fg_load(&ask.route->count[FG_ROUTE_TOKENS_OUT]));
  return FG_OK;
}

int32_t fg_engine_workflow(const fg_engine *e, uint32_t workflow, int64_t now_ms, fg_workflow_view *out) {
  const fg_workflow_rec *rec;
  int64_t t;
  int32_t rc;
  rc = begin(e, out, sizeof *out, now_ms, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (workflow == 0 || workflow > e->policy->workflow_count) {
    return FG_ERR_ARG;
  }
  rec = fg_engine_workflow_rec(e, workflow - 1, t);
  if (rec == NULL) {
    return FG_ERR_FULL;
  }
  out->calls = fg_load(&rec->count[FG_WF_CALLS]);
  out->primary_success = fg_load(&rec->count[FG_WF_PRIMARY_SUCCESS]);
  out->retry_recovery = fg_load(&rec->count[FG_WF_RETRY_RECOVERY]);
  out->fallback_recovery = fg_load(&rec->count[FG_WF_FALLBACK_RECOVERY]);
  out->degraded = fg_load(&rec->count[FG_WF_DEGRADED]);
  out->failed_closed = fg_load(&rec->count[FG_WF_FAILED_CLOSED]);
  out->queued = fg_load(&rec->count[FG_WF_QUEUED]);
  out->cancelled = fg_load(&rec->count[FG_WF_CANCELLED]);
  out->retries_this_hour = fg_retries_get(&rec->retries_hour, t);
  out->spent_today_nusd = (uint64_t)fg_maxs(fg_spend_get(&rec->spend_day, fg_engine_day(e, t)), 0);
  return FG_OK;
}
