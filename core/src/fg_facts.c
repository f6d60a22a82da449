/* Fills fg_facts from the call, the policy and the region. Changes nothing of the call; of the region only what its levels demand. */
#include "fg_facts.h"

#include <stddef.h>

#include "fg_estimate.h"
#include "fg_math.h"
#include "fg_money.h"

enum {
  POLL_MS = 50,              /* a full route has no known end: look again so soon */
  BUCKET_RETRY = 1000,
  BUCKET_UNBILLED = 200,     /* a fallback after a failure that proved to cost nothing */
  MEAN_SAMPLES = 10
};

int fg_ask_of(const fg_engine *e, const fg_call_state *s, uint32_t place, int64_t t, fg_health_ask *out) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  const uint32_t route = w->standin[place].route;
  const int ok = fg_engine_ask(e, route, t, out);
  out->rand = fg_mix64(s->stream + route); /* the same at the look and at the admission */
  if (w->standin_count == 1 && w->ladder_count == 0) {
    out->adapt = 0; /* learned limits steer; with nowhere to steer to they would only refuse */
  }
  return ok;
}

static uint32_t wide(uint16_t place) {
  return place == UINT16_MAX ? UINT32_MAX : place;
}

void fg_fit_request_of(const fg_call_state *s, fg_fit_request *out) {
  memset(out, 0, sizeof *out);
  out->prompt_tokens = s->prompt_tokens;
  out->max_output_tokens = s->max_output_tokens;
  out->request_bytes = s->request_bytes;
  out->features = s->features;
  out->stream = s->stream_mode;
  out->delivery = s->delivery;
  out->region = wide(s->region);
  out->data_class = wide(s->data_class);
  out->account = wide(s->account);
}

uint32_t fg_retries_of(const fg_call_state *s, uint32_t place, uint32_t klass) {
  return s->retries[place] >> (4 * klass) & FG_RETRIES_MAX;
}

void fg_retries_add(fg_call_state *s, uint32_t place, uint32_t klass) {
  if (fg_retries_of(s, place, klass) < FG_RETRIES_MAX) {
    s->retries[place] += UINT32_C(1) << (4 * klass);
  }
}

static uint32_t same_route_retries(const fg_call_state *s, uint32_t place) {
  uint32_t klass, n = 0;
  for (klass = 0; klass < FG_CLASS_COUNT; klass++) {
    n += fg_retries_of(s, place, klass);
  }
  return fg_sub32(n, s->seat[place] / FG_SEAT_LOCAL); /* a retry after our own refusal is none of the route's */
}

/* "One retry on the same route" (interactive), two (batch), or what the card's per_route allows; also for what never left this side, so
 * that a route that refuses connections gives way to a stand-in. */
static uint32_t retries_of_kind(const fg_policy_workflow *w) {
  return fg_max32(w->kind == FG_WF_BATCH ? 2 : 1, fg_sub32(w->per_route, 1));
}

static int is_free(const fg_call_state *s) {
  return (s->failure.flags & FG_FAIL_NEVER_SENT) != 0;
}

uint32_t fg_price_of_retry(const fg_engine *e, const fg_call_state *s, int64_t t) {
  const fg_policy_route *r = fg_route_of(e, s, s->failed_route);
  const fg_route_rec *rec;
  uint64_t successes;
  if (is_free(s)) {
    return 0;
  }
  rec = fg_rec_of(e, s, s->failed_route, t);
  if (rec == NULL) {
    return BUCKET_RETRY;
  }
  successes = fg_load(&rec->count[FG_ROUTE_SUCCESSES]);
  if (successes < MEAN_SAMPLES) {
    return BUCKET_RETRY;
  }
  return fg_bucket_weight(fg_hold_of(r, s, s->prompt_tokens, s->max_output_tokens).nusd, (int64_t)(fg_load(&rec->count[FG_ROUTE_HELD]) / successes));
}

uint32_t fg_price_of_fallback(const fg_call_state *s) {
  if (is_free(s)) {
    return 0;
  }
  return s->billing == FG_BILLING_NONE ? BUCKET_UNBILLED : BUCKET_RETRY;
}

static uint32_t bucket_says(const fg_engine *e, const fg_call_state *s, uint32_t price, uint32_t is_retry, int64_t t) {
  fg_health_ask ask;
  if (price == 0) {
    return FG_REASON_NONE;
  }
  if (!fg_ask_of(e, s, s->failed_route, t, &ask)) {
    return FG_REASON_RETRY_BUCKET_EMPTY;
  }
  price = fg_sub32(price, s->paid_milli); /* what was paid for this failure stays paid */
  if (price != 0 && fg_bucket_balance(&ask.route->retry, &e->bucket, t) < price) {
    return FG_REASON_RETRY_BUCKET_EMPTY;
  }
  return is_retry && !fg_health_retry_room(e->region, ask.route) ? FG_REASON_RETRIES_IN_FLIGHT : FG_REASON_NONE;
}

static int same_text(const fg_policy *p, fg_pstr a, fg_pstr b) {
  return a.len == b.len && memcmp(fg_policy_pool(p) + a.off, fg_policy_pool(p) + b.off, a.len) == 0;
}

/* Is `other` darkened by what failed (or latched) `base`? */
static int in_scope(const fg_policy *p, const fg_policy_route *base, const fg_policy_route *other, uint32_t owner, uint32_t scope, uint32_t klass,
                    uint32_t flags) {
  switch (scope) {
  case FG_SCOPE_ACCOUNT:
  case FG_SCOPE_PROVIDER:
    if (scope == FG_SCOPE_PROVIDER && owner != FG_OWNER_AUTH && owner != FG_OWNER_QUOTA) {
      return 0; /* an overloaded provider: each route's own health tells */
    }
    return base->account == other->account;
  case FG_SCOPE_NETWORK: /* this endpoint, when it could not be reached at all */
    return !(flags & FG_FAIL_LOCAL_FAULT) && (klass == FG_CLASS_CONNECT || owner == FG_OWNER_REQUEST) && base->base_url.len != 0 &&
           same_text(p, base->base_url, other->base_url);
  case FG_SCOPE_MODEL:
    return owner == FG_OWNER_QUOTA && base->account == other->account && same_text(p, base->model, other->model);
  default:
    return 0;
  }
}

static uint32_t flags_of(const fg_engine *e, const fg_call_state *s, uint32_t stage, uint32_t base_place, uint32_t place,
                         uint32_t primary_health) {
  const fg_policy *p = e->policy;
  const fg_policy_standin *st = &fg_workflow_of(e, s)->standin[place];
  const fg_policy_route *base = fg_route_of(e, s, base_place);
  const fg_policy_route *r = fg_route_of(e, s, place);
  uint32_t flags = 0;
  if (place == 0) {
    flags |= FG_CAND_PRIMARY;
  }
  if (st->ladder_only) {
    flags |= FG_CAND_LADDER;
  }
  if (s->seat[place] & FG_SEAT_OUT) {
    flags |= FG_CAND_OUT;
  }
  if (st->prefill) {
    flags |= FG_CAND_PREFILL;
  }
  if (place == base_place) {
    return flags;
  }
  if (base->quota_owner_key != 0 && r->quota_owner_key != 0 && base->quota_owner_key != r->quota_owner_key) {
    flags |= FG_CAND_OTHER_BUDGET;
  }
  if (st->other_vendor_after_refusal && !same_text(p, base->provider, r->provider)) {
    flags |= FG_CAND_OTHER_VENDOR;
  }
  if (!same_text(p, base->model, r->model)) {
    flags |= FG_CAND_OTHER_MODEL;
  }
  if (stage == FG_STAGE_BEGIN) {
    flags |= (s->seat[place] & FG_SEAT_LARGER) || s->barred[0] != FG_REASON_DOES_NOT_FIT_TOKENS ? FG_CAND_LARGER : 0;
    if ((primary_health == FG_HEALTH_QUOTA_LATCHED || primary_health == FG_HEALTH_KEY_LATCHED) && base->account == r->account) {
      flags |= FG_CAND_IN_SCOPE;
    }
    return flags;
  }
  if (in_scope(p, base, r, s->failure.owner, s->failure.scope, s->failure.klass, s->failure.flags)) {
    flags |= FG_CAND_IN_SCOPE;
  }
  switch (s->failure.kind) {
  case FG_KIND_CONTEXT_TOO_LONG:
  case FG_KIND_NEVER_FITS_LIMIT:
    if (r->context_tokens >= fg_add32(s->prompt_tokens, s->max_output_tokens) && r->context_tokens > base->context_tokens) {
      flags |= FG_CAND_LARGER;
    }
    break;
  case FG_KIND_OUTPUT_TOO_LONG:
    if (r->max_tokens >= s->max_output_tokens && r->max_tokens > base->max_tokens) {
      flags |= FG_CAND_LARGER;
    }
    break;
  case FG_KIND_REQUEST_TOO_LARGE:
    if (r->request_bytes > base->request_bytes && r->request_bytes >= s->request_bytes) {
      flags |= FG_CAND_LARGER;
    }
    break;
  case FG_KIND_UNSUPPORTED: /* it declares every feature the request uses, and is another model */
    if ((r->features & s->features) == s->features && (flags & FG_CAND_OTHER_MODEL)) {
      flags |= FG_CAND_LARGER;
    }
    break;
  default:
    break;
  }
  return flags;
}

/* INT64_MIN: unknown. */
static int64_t wall_of(const fg_engine *e, int64_t t) {
  const int64_t wall = fg_region_wall(e->region, t);
  return wall != 0 ? wall : INT64_MIN;
}

/* What bars a stand-in now: what did when the step began, or that its approval has run out since. */
static uint32_t barred_now(const fg_engine *e, const fg_call_state *s, uint32_t place, int64_t t) {
  const fg_policy_standin *st = &fg_workflow_of(e, s)->standin[place];
  return place == 0 || s->barred[place] != FG_REASON_NONE ? s->barred[place] : fg_contract_dates(st, wall_of(e, t));
}

static void candidate(const fg_engine *e, const fg_call_state *s, uint32_t stage, uint32_t base_place, uint32_t index, uint32_t output, int64_t t,
                      fg_facts_build *b) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  const uint32_t place = b->place[index];
  const fg_policy_route *r = fg_route_of(e, s, place);
  fg_candidate *c = &b->facts.candidate[index];
  fg_health_view *v = &b->health[index];
  fg_hold hold = fg_hold_of(r, s, s->prompt_tokens, output);
  fg_health_ask ask;
  fg_clocks clocks;
  memset(c, 0, sizeof *c);
  c->route = w->standin[place].route + 1;
  c->barred = barred_now(e, s, place, t);
  c->sends_left = fg_sub32(w->per_route, s->sends[place]);
  if (stage == FG_STAGE_FAILURE && place == base_place && s->failure.owner != FG_OWNER_LOCAL) {
    c->sends_left = fg_min32(c->sends_left, fg_sub32(retries_of_kind(w), same_route_retries(s, place)));
  }
  c->tokens = fg_extra_tokens(s, hold.tokens);
  c->extra_nusd = fg_extra_nusd(s, hold.nusd);
  c->drop_ppm = w->standin[place].drop_ppm;
  c->change = s->fit_change[place];
  c->flags = flags_of(e, s, stage, base_place, place, index == 0 ? 0 : b->health[0].health);
  if (!fg_ask_of(e, s, place, t, &ask)) { /* no record to be had: not a route to trust */
    c->health = FG_HEALTH_OPEN;
    c->estimate_ms = fg_estimate_ms(r, s, NULL, output);
    return;
  }
  ask.tokens = hold.tokens;
  *v = fg_health_glance(&ask, t);
  if (v->breaker != FG_BREAKER_CLOSED) {
    b->did |= fg_health_settle(&ask, t); /* seen open by its levels: from now on it is */
  }
  c->health = v->health;
  c->flags |= place == 0 && stage == FG_STAGE_BEGIN && v->early ? FG_CAND_EARLY : 0;
  c->health_wait_ms = v->wait_ms == UINT32_MAX ? 0 : v->wait_ms;
  if (v->health == FG_HEALTH_FULL) {
    c->health_wait_ms = POLL_MS;
  }
  if (v->health == FG_HEALTH_QUOTA_LATCHED && v->hint_ms > c->health_wait_ms) {
    c->health_wait_ms = v->hint_ms; /* the leased probe may go sooner; a queued call waits for the hint */
  }
  if (stage == FG_STAGE_FAILURE) { /* before the first attempt neither time nor bucket refuses a route */
    c->estimate_ms = fg_estimate_ms(r, s, ask.route, output);
    fg_clocks_of(w, s, ask.route, UINT32_MAX, 0, t, &clocks);
    c->first_token_ms = clocks.first_token_ms;
    const uint32_t retry = place == base_place;
    c->bucket = bucket_says(e, s, retry ? fg_price_of_retry(e, s, t) : fg_price_of_fallback(s), retry, t);
  }
}

uint32_t fg_facts_end_ramp(fg_facts *f) {
  uint32_t i, any = 0;
  for (i = 0; i < f->candidate_count; i++) {
    if (f->candidate[i].health == FG_HEALTH_RAMPING) {
      f->candidate[i].health = FG_HEALTH_OK;
      f->candidate[i].health_wait_ms = 0;
      any = 1;
    }
  }
  return any;
}

static void rungs(const fg_engine *e, const fg_call_state *s, uint32_t base_place, int64_t t, fg_facts_build *b) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  const fg_policy_route *r = fg_route_of(e, s, base_place);
  const int barred = barred_now(e, s, base_place, t) != FG_REASON_NONE;
  fg_facts *f = &b->facts;
  uint32_t i, k;
  f->ladder_count = w->ladder_count;
  for (i = 0; i < w->ladder_count; i++) {
    const fg_policy_rung *from = &w->ladder[i];
    fg_rung *to = &f->ladder[i];
    uint32_t prompt = s->prompt_tokens, output = s->max_output_tokens;
    fg_call_state edited;
    fg_hold hold;
    memset(to, 0, sizeof *to);
    to->step = from->step;
    to->max_tokens = from->max_tokens;
    to->compact_tokens = from->to_tokens;
    to->max_age_s = from->max_age_s;
    to->text = from->text;
    to->spent = (s->ladder_spent >> i) & 1u;
    switch (from->step) {
    case FG_STEP_SMALLER_MODEL:
      for (k = 0; k < f->candidate_count; k++) {
        if (b->place[k] == from->standin) {
          to->route_index = k;
        }
      }
      to->helps = w->standin[from->standin].score_ppm >= from->min_score_ppm;
      break;
    case FG_STEP_SHORTER:
      to->helps = output == 0 || from->max_tokens < output;
      output = from->max_tokens;
      break;
    case FG_STEP_NO_THINKING:
      to->helps = (s->features & FG_FEATURE_REASONING) != 0;
      break;
    case FG_STEP_COMPACT:
      to->helps = prompt == 0 || from->to_tokens < prompt;
      prompt = from->to_tokens;
      break;
    case FG_STEP_WITHOUT_TOOLS:
      to->helps = (s->features & (FG_FEATURE_TOOLS | FG_FEATURE_PARALLEL_TOOLS)) != 0;
      break;
    default:
      to->helps = 1;
      break;
    }
    hold = fg_hold_of(r, s, prompt, output);
    to->tokens = fg_extra_tokens(s, hold.tokens);
    to->extra_nusd = fg_extra_nusd(s, hold.nusd);
    edited = *s;
    edited.prompt_tokens = prompt;
    edited.max_output_tokens = output;
    if (from->step == FG_STEP_NO_THINKING) {
      edited.features &= (uint16_t)~FG_FEATURE_REASONING;
    }
    if (from->step == FG_STEP_WITHOUT_TOOLS) {
      edited.features &= (uint16_t) ~(FG_FEATURE_TOOLS | FG_FEATURE_PARALLEL_TOOLS | FG_FEATURE_TOOL_ROUND_TRIP);
    }
    if (barred && from->step >= FG_STEP_SHORTER && from->step <= FG_STEP_WITHOUT_TOOLS) {
      fg_fit_request request; /* an edit only helps when the edited request fits */
      fg_fit fit;
      fg_fit_request_of(&edited, &request);
      fg_contract_fit(e->policy, w, base_place, &request, wall_of(e, t), &fit);
      to->helps = to->helps && fit.barred == FG_REASON_NONE;
    }
    to->estimate_ms = fg_estimate_ms(r, &edited, fg_rec_of(e, s, base_place, t), output);
  }
}

/* A cut tool call is only worth another try with more room for it. */
static uint32_t raised_max(const fg_policy_route *r, const fg_call_state *s) {
  uint32_t raised = fg_mul32(s->max_output_tokens, 2);
  if (r->max_tokens != 0) {
    raised = fg_min32(raised, r->max_tokens);
  }
  return raised > s->max_output_tokens ? raised : 0;
}

static uint32_t class_left(const fg_policy_workflow *w, const fg_call_state *s) {
  const uint32_t klass = s->failure.klass < FG_CLASS_COUNT ? s->failure.klass : FG_CLASS_OTHER;
  uint32_t limit = w->per_class[klass];
  uint32_t left;
  if (s->failure.flags & FG_FAIL_SHOULD_RETRY) {
    limit = fg_max32(limit, 1); /* the server asked for it: once */
  }
  left = fg_sub32(limit, fg_retries_of(s, s->failed_route, klass));
  if (s->failure.flags & FG_FAIL_OVERLOAD) {
    left = fg_min32(left, fg_sub32(w->overload_retries, fg_retries_of(s, s->failed_route, FG_CLASS_COUNT)));
  }
  return left;
}

/* Everything but routes and ladder. Returns max_output of the next attempt. alone: the primary or nothing, so spill is no matter. */
static uint32_t call_facts(const fg_engine *e, const fg_call_state *s, uint32_t stage, uint32_t alone, int64_t t, fg_facts_build *b) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  const fg_policy_globals *g = &e->policy->globals;
  fg_facts *f = &b->facts;
  const uint32_t base_place = stage == FG_STAGE_FAILURE ? s->failed_route : 0;
  const fg_policy_route *base = fg_route_of(e, s, base_place);
  const fg_workflow_rec *rec = alone ? NULL : fg_engine_workflow_rec(e, s->workflow, t);
  uint32_t output = s->max_output_tokens;
  fg_zero(f, offsetof(fg_facts, ladder));
  f->size = sizeof *f;
  f->stage = stage;
  f->unable = s->unable;
  f->max_wait_ms = s->max_wait_ms;
  f->safe_until = w->safe_until;
  f->after_visible = w->after_visible;
  f->after_silence = w->after_silence;
  f->stop_on = w->stop_on;
  f->billing = s->billing;
  f->shown = s->shown;
  f->effect = s->effect;
  f->server_state = s->server_state;
  f->hint_cap_ms = g->retry_after_cap_ms;
  f->attempts_left = fg_sub32(w->total_attempts, s->attempts_used);
  f->resends_left = fg_sub32(w->call_resends, s->resends);
  f->elapsed_left_ms = fg_elapsed_left(e, s, t);
  f->tokens_left = fg_tokens_left(w, s);
  f->cost_left_nusd = fg_cost_left(w, s);
  f->quality_left_ppm = w->quality_drop_ppm;
  f->spill_mode = w->spill_mode;
  f->hold_ms = fg_sub32(w->hold_ms, fg_add32(s->held_for_ms, s->hold_from != 0 ? fg_since(s, t) + 1 - s->hold_from : 0));
  f->lookup = base->lookup != FG_LOOKUP_NONE ? base->lookup : FG_LOOKUP_NONE_EXISTS;
  if (stage == FG_STAGE_FAILURE) {
    f->failure.size = sizeof f->failure;
    f->failure.owner = s->failure.owner;
    f->failure.kind = s->failure.kind;
    f->failure.klass = s->failure.klass;
    f->failure.scope = s->failure.scope;
    f->failure.period = s->failure.period;
    f->failure.billed = s->failure.billed;
    f->failure.commit = s->failure.commit;
    f->failure.repair = s->failure.repair;
    f->failure.flags = s->failure.flags;
    f->failure.retry_after_ms = s->failure.retry_after_ms;
    f->failure.rule = s->failure.rule;
    f->class_left = class_left(w, s);
    if (s->failure.kind == FG_KIND_TRUNCATED_TOOL_CALL) {
      f->truncated_max_tokens = raised_max(base, s);
      output = f->truncated_max_tokens != 0 ? f->truncated_max_tokens : output;
    }
  }
  f->flags |= w->queue ? FG_FACT_QUEUE_OK : 0;
  f->queue_left_ms = fg_sub32(w->queue_max_age_ms, fg_since(s, t));
  f->flags |= (s->seat[base_place] & FG_SEAT_WAITED) ? FG_FACT_WAITED : 0;
  f->flags |= stage == FG_STAGE_FAILURE && s->failed_elapsed_ms > w->slow_failure_ms ? FG_FACT_SLOW : 0;
  f->flags |= s->prior_effect ? FG_FACT_PRIOR_EFFECT | FG_FACT_RESUMABLE : 0;
  f->flags |= s->op_count != 0 || (s->live.flags & (FG_AT_TOOL_OPEN | FG_AT_REASONED)) ? FG_FACT_TOOL_OPEN : 0;
  f->flags |= s->op_overflow ? FG_FACT_OPS_OVERFLOW : 0;
  f->flags |= rec != NULL && fg_spill_room(rec->spill, w->spill_max_ppm, FG_SPILL_FLOOR, t) ? FG_FACT_SPILL_OK : 0;
  f->flags |= fg_answer_is_whole(s) ? 0 : FG_FACT_STREAMED;
  f->flags |= g->retries_per_hour != 0 && fg_retries_get(&e->region->retries_hour, t) >= g->retries_per_hour ? FG_FACT_HOURLY_OUT : 0;
  f->flags |= s->empty_end ? FG_FACT_EMPTY_END : 0;
  if ((g->spend_per_day_nusd >= 0 || w->spend_per_day_nusd >= 0) && fg_money_day_over(e, w, fg_hold_of(base, s, s->prompt_tokens, output).nusd, t)) {
    f->flags |= FG_FACT_DAILY_OUT;
  }
  return output;
}

void fg_facts_primary(const fg_engine *e, const fg_call_state *s, int64_t t, fg_facts_build *b) {
  const uint32_t output = call_facts(e, s, FG_STAGE_BEGIN, 1, t, b);
  b->did = 0;
  b->facts.candidate_count = 1;
  b->place[0] = 0;
  candidate(e, s, FG_STAGE_BEGIN, 0, 0, output, t, b);
}

void fg_facts_make(const fg_engine *e, const fg_call_state *s, uint32_t stage, int64_t t, fg_facts_build *b) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  fg_facts *f = &b->facts;
  const uint32_t base_place = stage == FG_STAGE_FAILURE ? s->failed_route : 0;
  const uint32_t output = call_facts(e, s, stage, 0, t, b);
  uint32_t i;
  b->did = 0;
  f->candidate_count = w->standin_count;
  for (i = 0; i < w->standin_count; i++) {
    b->place[i] = s->order[i];
    if (b->place[i] == base_place) {
      f->failed = i;
    }
  }
  for (i = 0; i < w->standin_count; i++) {
    candidate(e, s, stage, base_place, i, output, t, b);
  }
  if (stage == FG_STAGE_FAILURE) {
    f->backoff_ms = fg_sub32(s->backoff_due_at, fg_since(s, t));
    if (f->candidate[f->failed].health == FG_HEALTH_NOT_BEFORE || f->candidate[f->failed].health == FG_HEALTH_PACED) {
      f->backoff_ms = fg_max32(f->backoff_ms, f->candidate[f->failed].health_wait_ms); /* a wait other callers were told as well */
    }
  }
  rungs(e, s, base_place, t, b);
  if (b->health[f->failed].health == FG_HEALTH_PACED) {
    f->flags |= FG_FACT_ROUTE_PACED;
  }
}
