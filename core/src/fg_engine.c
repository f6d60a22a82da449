/* The engine's life: init, wall clock, tick, and the live records calls ask about. Levels: above fg_health, below fg_call. */
#include "fg_engine.h"

#include "fg_error.h"
#include "fg_math.h"

static uint64_t region_identity(const fg_region *r) {
  const uint64_t parts[3] = {fg_load(&r->boot[0]), fg_load(&r->boot[1]), fg_load(&r->base)};
  return fg_hash64(FG_REGION_LAYOUT, parts, sizeof parts);
}

static uint64_t places(const fg_policy *p) {
  return (uint64_t)p->route_count + p->account_count + p->workflow_count;
}

uint64_t fg_engine_bytes(const fg_policy *p) {
  return p != NULL ? sizeof(fg_engine) + places(p) * sizeof(uint32_t) : 0;
}

static void configure(fg_engine *e, const fg_policy_globals *g) {
  e->breaker.consecutive = g->br_consecutive;
  e->breaker.window_ms = g->br_window_ms;
  e->breaker.min_calls = g->br_min_calls;
  e->breaker.failure_ppm = g->br_failure_ppm;
  e->breaker.open_ms = g->br_open_ms;
  e->breaker.open_max_ms = g->br_open_max_ms;
  e->breaker.jitter_ppm = g->br_jitter_ppm;
  e->breaker.probes = g->br_probes;
  e->breaker.lease_ms = g->br_lease_ms;
  e->breaker.successes = g->br_successes;
  e->breaker.stall = g->br_stall;
  e->bucket.credit_milli = g->bucket_credit_milli;
  e->bucket.cap_milli = g->bucket_cap_milli;
  e->bucket.start_milli = g->bucket_start_milli;
  e->bucket.trickle_milli = g->bucket_trickle_milli;
}

static int remember(const fg_region *r, const void *rec, uint32_t *place) {
  if (rec == NULL) {
    return 0;
  }
  *place = (uint32_t)(((const unsigned char *)rec - (const unsigned char *)r) / 8);
  return 1;
}

/* The record that was there, if it still has this key (each kind of record begins with its key). */
static inline void *recall(const fg_engine *e, uint64_t n, uint64_t key) {
  fg_word *rec = (fg_word *)(void *)e->region + e->place[n];
  return fg_load_relaxed(rec) == key ? rec : NULL;
}

/* A record for everything the policy names, so that a region too small says so now and not in the middle of a call. */
static int32_t make_records(fg_engine *e, int64_t t, fg_error *err) {
  const fg_policy *p = e->policy;
  uint32_t *place = e->place;
  uint32_t i;
  for (i = 0; i < p->route_count; i++) {
    if (!remember(e->region, fg_region_route(e->region, fg_policy_routes(p)[i].key, t), place++)) {
      return fg_error_set(err, FG_ERR_FULL, "the region has no room for all routes: make it with more routes (fg_region_config.routes)");
    }
  }
  for (i = 0; i < p->account_count; i++) {
    if (!remember(e->region, fg_region_account(e->region, fg_policy_accounts(p)[i].key, t), place++)) {
      return fg_error_set(err, FG_ERR_FULL, "the region has no room for all accounts: make it with more accounts (fg_region_config.accounts)");
    }
  }
  for (i = 0; i < p->workflow_count; i++) {
    if (!remember(e->region, fg_region_workflow(e->region, fg_policy_workflows(p)[i].key, t), place++)) {
      return fg_error_set(err, FG_ERR_FULL,
                          "the region has no room for all workflows: make it with more workflows (fg_region_config.workflows)");
    }
  }
  return FG_OK;
}

int32_t fg_engine_init(void *mem, uint64_t bytes, const fg_policy *p, fg_region *r, uint32_t slot, uint64_t seed, int64_t now_ms,
                       fg_engine **out, fg_error *err) {
  fg_engine *e = mem;
  int64_t t;
  int32_t rc;
  if (out != NULL) {
    *out = NULL;
  }
  if (mem == NULL || p == NULL || r == NULL || out == NULL) {
    return fg_error_set(err, FG_ERR_ARG, "engine memory, policy, region and out must be given");
  }
  if (p->magic != FG_POLICY_MAGIC || p->layout != FG_POLICY_LAYOUT) {
    return fg_error_set(err, FG_ERR_ABI, "not a policy block of this library's layout: load the card again");
  }
  if (bytes < fg_engine_bytes(p) || ((uintptr_t)mem & 7) != 0) {
    return fg_error_set(err, FG_ERR_ABI, "engine memory is too small or not 8-byte aligned: ask fg_engine_bytes");
  }
  if (slot >= fg_region_procs(r)) {
    return fg_error_set(err, FG_ERR_ARG, "slot is beyond the region's process slots");
  }
  rc = fg_region_time(r, now_ms, &t);
  if (rc != FG_OK) {
    return fg_error_set(err, rc, "now_ms is not this region's monotonic clock (wall time, or another boot)");
  }
  memset(e, 0, sizeof *e);
  e->magic = FG_ENGINE_MAGIC;
  e->slot = slot;
  e->policy = p;
  e->region = r;
  e->seed = p->globals.has_seed ? p->globals.seed : seed;
  e->policy_hash = p->fingerprint_hash;
  e->region_hash = region_identity(r);
  e->process = fg_region_process(r, slot);
  configure(e, &p->globals);
  rc = make_records(e, t, err);
  if (rc != FG_OK) {
    e->magic = 0;
    return rc;
  }
  *out = e;
  return FG_OK;
}

int32_t fg_engine_arrive(const fg_engine *e, int64_t now_ms, int64_t *t) {
  int32_t rc;
  if (e == NULL || e->magic != FG_ENGINE_MAGIC) {
    return FG_ERR_ARG;
  }
  rc = fg_region_time(e->region, now_ms, t);
  if (rc != FG_OK) {
    return rc;
  }
  if (fg_load_relaxed(&e->process->promised) != 0) {
    fg_witness_present(e->region, e->slot, *t);
  }
  return FG_OK;
}

int32_t fg_engine_enter(const fg_engine *e, int64_t now_ms, int64_t *t, uint32_t *did) {
  const int32_t rc = fg_engine_arrive(e, now_ms, t);
  *did = rc == FG_OK ? fg_health_scan(e->region, &e->breaker, *t) : 0;
  return rc;
}

int fg_engine_ask(const fg_engine *e, uint32_t route, int64_t t, fg_health_ask *out) {
  const fg_policy_route *pr = &fg_policy_routes(e->policy)[route];
  const fg_policy_account *pa = &fg_policy_accounts(e->policy)[pr->account];
  out->region = e->region;
  out->tokens = 0;
  out->ignore_ramp = 0;
  out->adapt = (e->policy->globals.adapt_limit ? (uint32_t)FG_ADAPT_LIMIT : 0) | (e->policy->globals.adapt_pace ? (uint32_t)FG_ADAPT_PACE : 0) |
               (e->policy->globals.adapt_probes ? (uint32_t)FG_ADAPT_PROBES : 0);
  out->rand = 0;
  out->route = recall(e, route, pr->key);
  if (out->route == NULL) {
    out->route = fg_region_route(e->region, pr->key, t);
  }
  out->account = recall(e, (uint64_t)e->policy->route_count + pr->account, pa->key);
  if (out->account == NULL) {
    out->account = fg_region_account(e->region, pa->key, t);
  }
  out->breaker = &e->breaker;
  out->route_quota.in_flight = pr->quota.in_flight;
  out->route_quota.rpm = pr->quota.rpm;
  out->route_quota.tpm = pr->quota.tpm;
  out->account_quota.in_flight = pa->quota.in_flight;
  out->account_quota.rpm = pa->quota.rpm;
  out->account_quota.tpm = pa->quota.tpm;
  return out->route != NULL && out->account != NULL;
}

fg_route_rec *fg_engine_route_rec(const fg_engine *e, uint32_t route, int64_t t) {
  const fg_policy_route *pr = &fg_policy_routes(e->policy)[route];
  fg_route_rec *rec = recall(e, route, pr->key);
  fg_health_ask ask;
  if (rec != NULL && recall(e, (uint64_t)e->policy->route_count + pr->account, fg_policy_accounts(e->policy)[pr->account].key) != NULL) {
    return rec;
  }
  return fg_engine_ask(e, route, t, &ask) ? ask.route : NULL;
}

fg_workflow_rec *fg_engine_workflow_rec(const fg_engine *e, uint32_t workflow, int64_t t) {
  const uint64_t key = fg_policy_workflows(e->policy)[workflow].key;
  fg_workflow_rec *rec = recall(e, (uint64_t)e->policy->route_count + e->policy->account_count + workflow, key);
  return rec != NULL ? rec : fg_region_workflow(e->region, key, t);
}

void fg_engine_use(const fg_engine *e, uint32_t route, int64_t t) {
  const fg_policy_route *pr = &fg_policy_routes(e->policy)[route];
  const uint64_t account_key = fg_policy_accounts(e->policy)[pr->account].key;
  fg_route_rec *rec = recall(e, route, pr->key);
  fg_account_rec *account = recall(e, (uint64_t)e->policy->route_count + pr->account, account_key);
  if (rec != NULL && account != NULL) {
    fg_region_touch(&rec->used, t);
    fg_region_touch(&account->used, t);
    return;
  }
  (void)fg_region_route(e->region, pr->key, t);
  (void)fg_region_account(e->region, account_key, t);
}

fg_day fg_engine_day(const fg_engine *e, int64_t t) {
  const fg_day day = {t, fg_region_wall(e->region, t)};
  return day;
}

int32_t fg_engine_clock(const fg_engine *e, int64_t unix_ms, int64_t now_ms) {
  int64_t t;
  uint32_t did;
  const int32_t rc = fg_engine_enter(e, now_ms, &t, &did);
  if (rc != FG_OK) {
    return rc;
  }
  if (unix_ms <= 0) {
    return FG_ERR_ARG;
  }
  fg_region_set_wall(e->region, unix_ms, t);
  return FG_OK;
}

int32_t fg_engine_tick(const fg_engine *e, int64_t now_ms) {
  enum { TICK_MAX_MS = 1000 };
  int64_t t, due, wait = TICK_MAX_MS;
  uint32_t did;
  const int32_t rc = fg_engine_enter(e, now_ms, &t, &did);
  if (rc != FG_OK) {
    return rc;
  }
  due = (int64_t)fg_load(&e->region->next_due);
  if (due != 0 && due - t < wait) {
    wait = due > t ? due - t : 1;
  }
  fg_witness_promise(e->region, e->slot, t + wait, t);
  return (int32_t)wait;
}
