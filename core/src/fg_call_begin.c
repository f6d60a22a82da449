/* A call begins, and each step of an agent's loop after it. */
#include "fg_call.h"

#include "fg_call_replay.h"
#include "fg_commit.h"
#include "fg_contract.h"
#include "fg_math.h"
#include "fg_money.h"
#include "fg_rendezvous.h"

enum { GIVEN_UNKNOWN = UINT16_MAX }; /* a region, class or account the card does not name */

/* Copies the caller's struct and checks what is an enum or a bound. A newer caller's extra fields are not looked at. */
static int32_t read_request(const fg_request *from, fg_request *to) {
  if (from == NULL) {
    return FG_ERR_ARG;
  }
  if (from->size < sizeof *to) {
    return FG_ERR_ABI;
  }
  fg_copy(to, from, sizeof *to);
  if (to->stream >= FG_STREAM_COUNT || to->delivery >= FG_DELIVERY_COUNT || to->server_state >= FG_SERVER_STATE_COUNT ||
      (to->features & ~(uint32_t)FG_FEATURE_ALL) != 0 || (to->unable & ~(uint32_t)FG_UNABLE_ALL) != 0 || to->call_id.len > FG_CALL_ID_MAX ||
      to->tool_count > FG_TOOLS_MAX || (to->tool_count != 0 && to->tools == NULL) || to->prior_cost_nusd < 0) {
    return FG_ERR_ARG;
  }
  return FG_OK;
}

/* 0 not given, 1 + index, or GIVEN_UNKNOWN. */
static uint16_t place_in_table(const fg_policy *p, uint32_t what, fg_str name) {
  const int32_t at = name.len != 0 ? fg_policy_table_find(p, what, name.ptr, name.len) : 0;
  return at < 0 ? GIVEN_UNKNOWN : (uint16_t)at;
}

void fg_call_fit(const fg_engine *e, fg_call_state *s, const uint64_t *tools, uint32_t tool_count, uint32_t tool_choice, int64_t t) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  const int64_t wall = fg_region_wall(e->region, t);
  fg_fit_request r;
  fg_fit fit;
  uint32_t i;
  fg_fit_request_of(s, &r);
  r.tool_hashes = tools;
  r.tool_count = tool_count;
  r.tool_choice = tool_choice;
  for (i = 0; i < w->standin_count; i++) {
    if (tools == NULL && (s->features & FG_FEATURE_TOOLS) && s->barred[i] == FG_REASON_DOES_NOT_FIT_TOOLS) {
      continue;
    }
    fg_contract_fit(e->policy, w, i, &r, wall != 0 ? wall : INT64_MIN, &fit);
    s->barred[i] = (uint8_t)fit.barred;
    s->fit_change[i] = (uint8_t)fit.change;
    s->seat[i] = (uint8_t)((s->seat[i] & ~(unsigned)FG_SEAT_LARGER) | (fit.larger_ok ? FG_SEAT_LARGER : 0));
  }
}

/* The order in which stand-ins are tried: the primary, the others by weighted rendezvous on the affinity key, ladder routes last. */
static void order_routes(const fg_engine *e, fg_call_state *s, uint64_t key) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  fg_rendezvous_item item[FG_ROUTES_MAX];
  uint8_t chosen[FG_RENDEZVOUS_MAX], place[FG_ROUTES_MAX];
  uint32_t i, n = 0, at = 0;
  s->order[at++] = 0;
  for (i = 1; i < w->standin_count; i++) {
    if (!w->standin[i].ladder_only) {
      const fg_policy_route *r = &fg_policy_routes(e->policy)[w->standin[i].route];
      item[n].key = r->key;
      item[n].weight = r->weight;
      place[n++] = (uint8_t)i;
    }
  }
  if (w->order_card || n < 2) {
    for (i = 0; i < n; i++) {
      chosen[i] = (uint8_t)i;
    }
  } else {
    (void)fg_rendezvous_order(key, item, n, chosen);
  }
  for (i = 0; i < n; i++) {
    s->order[at++] = place[chosen[i]];
  }
  for (i = 1; i < w->standin_count; i++) {
    if (w->standin[i].ladder_only) {
      s->order[at++] = (uint8_t)i;
    }
  }
}

/* One more request that would go to the primary. */
static void ask_for_primary(const fg_engine *e, const fg_call_state *s, int64_t t) {
  fg_route_rec *primary = fg_rec_of(e, s, 0, t);
  if (primary != NULL) {
    fg_health_asked_for(primary, t);
  }
}

static uint64_t affinity_of(const fg_engine *e, const fg_policy_workflow *w, const fg_request *r) {
  if (r->affinity.len != 0) {
    return fg_hash64(e->seed, r->affinity.ptr, r->affinity.len);
  }
  if (r->tenant.len != 0) {
    return fg_hash64(e->seed, r->tenant.ptr, r->tenant.len);
  }
  return fg_mix64(e->seed ^ w->key);
}

int32_t fg_call_begin(const fg_engine *e, fg_call *c, const fg_request *request, int64_t now_ms, fg_decision *out) {
  return fg_replay_begin(e, c, request, NULL, now_ms, out);
}

int32_t fg_replay_begin(const fg_engine *e, fg_call *c, const fg_request *request, const fg_replay_known *known, int64_t now_ms, fg_decision *out) {
  const uint32_t size = out != NULL ? out->size : 0;
  const fg_policy_workflow *w;
  fg_workflow_rec *rec;
  fg_call_state *s;
  fg_request r;
  uint64_t tools[FG_TOOLS_MAX];
  uint32_t did = 0, id, i;
  int64_t t;
  int32_t rc;
  if (c == NULL || out == NULL) {
    return FG_ERR_ARG;
  }
  if (size < sizeof *out) {
    return FG_ERR_ABI;
  }
  fg_zero(out, sizeof *out);
  out->size = size;
  s = fg_state(c);
  fg_zero(c, sizeof *c);
  rc = fg_engine_enter(e, now_ms, &t, &did);
  if (rc == FG_OK) {
    rc = read_request(request, &r);
  }
  if (rc != FG_OK) {
    return rc;
  }
  id = fg_policy_find(e->policy, FG_FIND_WORKFLOW, r.workflow.ptr, r.workflow.len);
  if (id == 0) {
    return FG_ERR_ARG;
  }
  w = &fg_policy_workflows(e->policy)[id - 1];
  rec = fg_engine_workflow_rec(e, id - 1, t);
  if (rec == NULL) {
    return FG_ERR_FULL;
  }
  fg_region_touch(&rec->used, t);
  s->magic = FG_CALL_MAGIC;
  s->workflow = (uint16_t)(id - 1);
  s->policy_hash = e->policy_hash;
  s->region_hash = e->region_hash;
  s->began_t = s->last_t = t;
  s->stream = r.call_id.len != 0 ? fg_hash64(e->seed, r.call_id.ptr, r.call_id.len) : fg_rand(e->seed, w->key, fg_load(&rec->count[FG_WF_CALLS]));
  s->id_len = (uint8_t)r.call_id.len;
  if (r.call_id.len != 0) {
    memcpy(s->id, r.call_id.ptr, r.call_id.len);
  }
  s->tenant_hash = r.tenant.len != 0 ? fg_hash64(0, r.tenant.ptr, r.tenant.len) : 0;
  s->prompt_tokens = r.prompt_tokens;
  s->max_output_tokens = r.max_output_tokens;
  s->request_bytes = r.request_bytes;
  s->max_wait_ms = r.max_wait_ms;
  s->unable = (uint16_t)r.unable;
  s->features = (uint16_t)(r.features | (r.tool_count != 0 ? FG_FEATURE_TOOLS : 0));
  s->stream_mode = (uint8_t)r.stream;
  s->delivery = (uint8_t)(r.stream != FG_STREAM_YES ? FG_DELIVERY_WHOLE : r.delivery);
  s->server_state = (uint8_t)r.server_state;
  s->region = place_in_table(e->policy, FG_POLICY_REGIONS, r.region);
  s->data_class = place_in_table(e->policy, FG_POLICY_CLASSES, r.data_class);
  s->account = place_in_table(e->policy, FG_POLICY_ACCOUNTS, r.account);
  if (r.language.len >= 2) {
    s->language = (uint16_t)((uint8_t)r.language.ptr[0] | (uint8_t)r.language.ptr[1] << 8);
  }
  s->send_route = FG_NO_ROUTE;
  s->attempts_used = (uint16_t)fg_min32(r.prior_attempts, UINT16_MAX);
  s->prior_tokens = s->spent_tokens = r.prior_tokens;
  s->spent_nusd = r.prior_cost_nusd;
  for (i = 0; i < r.tool_count; i++) {
    tools[i] = fg_contract_tool_hash(r.tools[i].ptr, r.tools[i].len);
  }
  fg_call_alert(s, did);
  fg_call_fit(e, s, tools, r.tool_count, r.tool_choice, t);
  s->affinity = affinity_of(e, w, &r);
  if (known != NULL) {
    s->tenant_hash = known->tenant;
    s->affinity = known->affinity;
    s->stream = known->stream;
  }
  order_routes(e, s, s->affinity);
  fg_money_step(&fg_policy_routes(e->policy)[w->standin[0].route], s);
  fg_count(&rec->count[FG_WF_CALLS], 1);
  fg_spill_call(rec->spill, t);
  ask_for_primary(e, s, t);
  fg_call_decide(e, s, FG_STAGE_BEGIN, t, out);
  return FG_OK;
}

int32_t fg_call_step(const fg_engine *e, fg_call *c, uint32_t prompt_tokens, uint32_t max_output_tokens, int64_t now_ms, fg_decision *out) {
  fg_call_state *s;
  uint32_t i;
  int64_t t;
  const int32_t rc = fg_call_open(e, c, FG_TOLD_STEP, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (s->state != FG_CALL_ANSWERED) {
    if (s->state < FG_CALL_GIVEN) {
      return FG_ERR_STATE; /* a step follows an accepted answer */
    }
    fg_call_again(e, s, out);
    return FG_OK;
  }
  if (s->attempt_count > UINT16_MAX - FG_CALL_STEP_ATTEMPTS) {
    return FG_ERR_FULL; /* numbers for attempts have run out: no two may share one */
  }
  fg_commit_step(s);
  if (s->steps < UINT16_MAX) {
    s->steps++;
  }
  s->step_at = fg_since(s, t);
  s->prompt_tokens = prompt_tokens != 0 ? prompt_tokens : s->prompt_tokens;
  s->max_output_tokens = max_output_tokens != 0 ? max_output_tokens : s->max_output_tokens;
  s->attempts_used = 0;
  s->held_for_ms = s->hold_from = 0;
  s->empty_end = 0;
  s->ladder_spent = 0;
  for (i = 0; i < FG_ROUTES_MAX; i++) {
    s->retries[i] = 0;
    s->sends[i] = 0;
    s->seat[i] = 0;
  }
  fg_call_fit(e, s, NULL, 0, 0, t);
  fg_money_step(fg_route_of(e, s, 0), s);
  ask_for_primary(e, s, t);
  fg_call_decide(e, s, FG_STAGE_BEGIN, t, out);
  return FG_OK;
}
