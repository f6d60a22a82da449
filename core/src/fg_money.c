/* Money held and settled. Unknown is never zero: a lost attempt stays held at its worst case. */
#include "fg_money.h"

#include "fg_math.h"

enum { OUTPUT_UNKNOWN = 4096, BYTES_PER_TOKEN = 3 }; /* when the host does not say; on the dear side for English and Chinese alike */

fg_hold fg_hold_of(const fg_policy_route *r, const fg_call_state *s, uint32_t prompt_tokens, uint32_t max_output_tokens) {
  fg_hold h;
  if (prompt_tokens == 0) {
    prompt_tokens = s->request_bytes / BYTES_PER_TOKEN;
  }
  if (max_output_tokens == 0) {
    max_output_tokens = r->max_tokens != 0 ? r->max_tokens : OUTPUT_UNKNOWN;
  }
  h.tokens = fg_add32(prompt_tokens, max_output_tokens);
  h.nusd = fg_adds(fg_cost_nusd(prompt_tokens, r->price_input), fg_cost_nusd(max_output_tokens, r->price_output));
  return h;
}

void fg_money_step(const fg_policy_route *primary, fg_call_state *s) {
  const fg_hold h = fg_hold_of(primary, s, s->prompt_tokens, s->max_output_tokens);
  s->base_nusd = fg_adds(s->base_nusd, h.nusd);
  s->base_tokens = fg_add32(s->base_tokens, h.tokens);
  s->first_nusd = h.nusd;
  s->first_tokens = h.tokens;
}

static uint32_t over_tokens(const fg_call_state *s, uint32_t more) {
  return fg_sub32(fg_add32(s->spent_tokens, more), s->base_tokens);
}
static int64_t over_nusd(const fg_call_state *s, int64_t more) {
  const int64_t over = fg_subs(fg_adds(s->spent_nusd, more), s->base_nusd);
  return over > 0 ? over : 0;
}

/* A sum that no longer counts is no room: what it would add is unknown, which is never zero. */
uint32_t fg_extra_tokens(const fg_call_state *s, uint32_t more) {
  if (more > UINT32_MAX - s->spent_tokens) {
    return UINT32_MAX;
  }
  return over_tokens(s, more) - over_tokens(s, 0);
}
int64_t fg_extra_nusd(const fg_call_state *s, int64_t more) {
  if (more > 0 && s->spent_nusd > INT64_MAX - more) {
    return INT64_MAX;
  }
  return over_nusd(s, more) - over_nusd(s, 0);
}

uint32_t fg_tokens_left(const fg_policy_workflow *w, const fg_call_state *s) {
  const uint32_t limit = w->extra_tokens_mode == FG_EXTRA_FIXED ? w->extra_tokens : fg_mul32(s->first_tokens, w->extra_tokens_holds);
  if (w->extra_tokens_mode == FG_EXTRA_FIXED && limit == UINT32_MAX) {
    return UINT32_MAX;
  }
  return fg_sub32(limit, over_tokens(s, 0));
}

int64_t fg_cost_left(const fg_policy_workflow *w, const fg_call_state *s) {
  int64_t limit = w->extra_cost_nusd;
  if (w->extra_cost_mode == FG_EXTRA_HOLDS) {
    limit = fg_muls(s->first_nusd, w->extra_cost_holds);
  } else if (limit < 0) {
    return INT64_MAX;
  }
  limit = fg_subs(limit, over_nusd(s, 0));
  return limit > 0 ? limit : 0;
}

int fg_money_day_over(const fg_engine *e, const fg_policy_workflow *w, int64_t nusd, int64_t t) {
  const int64_t all = e->policy->globals.spend_per_day_nusd;
  const fg_day day = fg_engine_day(e, t);
  const fg_workflow_rec *rec;
  if (all >= 0 && fg_spend_over(&e->region->spend_day, all, nusd, day)) {
    return 1;
  }
  if (w->spend_per_day_nusd < 0) {
    return 0;
  }
  rec = fg_engine_workflow_rec(e, (uint32_t)(w - fg_policy_workflows(e->policy)), t);
  return rec == NULL || fg_spend_over(&rec->spend_day, w->spend_per_day_nusd, nusd, day);
}

uint32_t fg_money_hold(const fg_engine *e, const fg_policy_workflow *w, fg_call_state *s, fg_attempt *a, fg_hold hold, int64_t t) {
  fg_workflow_rec *rec = fg_engine_workflow_rec(e, s->workflow, t);
  uint32_t stamp = 0;
  if (rec == NULL) {
    return FG_REASON_SPEND_PER_DAY; /* no word to count it in: not sent */
  }
  if (fg_spend_hold(&rec->spend_day, w->spend_per_day_nusd, &e->region->spend_day, e->policy->globals.spend_per_day_nusd, hold.nusd,
                    fg_engine_day(e, t), &stamp) != 0) {
    return FG_REASON_SPEND_PER_DAY;
  }
  a->hold_nusd = hold.nusd;
  a->hold_tokens = hold.tokens;
  a->stamp = (uint16_t)stamp;
  s->spent_nusd = fg_adds(s->spent_nusd, hold.nusd);
  s->spent_tokens = fg_add32(s->spent_tokens, hold.tokens);
  return FG_REASON_NONE;
}

static void become(const fg_engine *e, fg_call_state *s, int64_t held_nusd, uint32_t held_tokens, uint32_t stamp,
                   int64_t nusd, uint32_t tokens, int64_t t) {
  fg_workflow_rec *rec = fg_engine_workflow_rec(e, s->workflow, t);
  if (rec != NULL) {
    fg_spend_settle(&rec->spend_day, &e->region->spend_day, held_nusd, nusd, stamp, fg_engine_day(e, t));
  }
  s->spent_nusd = fg_adds(fg_subs(s->spent_nusd, held_nusd), nusd);
  s->spent_tokens = fg_add32(fg_sub32(s->spent_tokens, held_tokens), tokens);
}

void fg_money_release(const fg_engine *e, fg_call_state *s, fg_attempt *a, int64_t t) {
  become(e, s, a->hold_nusd, a->hold_tokens, a->stamp, 0, 0, t);
  a->hold_nusd = 0;
  a->hold_tokens = 0;
}

static const fg_policy_route *route_of(const fg_engine *e, const fg_policy_workflow *w, uint32_t route) {
  return &fg_policy_routes(e->policy)[w->standin[route].route];
}

static int64_t cost_of(const fg_policy_route *r, const fg_answer *u) {
  const uint32_t cached = fg_min32(u->cached_tokens, u->prompt_tokens);
  const int64_t cached_price = r->price_cached >= 0 ? r->price_cached : r->price_input;
  if (u->cost_nusd > 0) { /* a provider's 0 means "not reported" */
    return u->cost_nusd;
  }
  return fg_adds(fg_adds(fg_cost_nusd(u->prompt_tokens - cached, r->price_input), fg_cost_nusd(cached, cached_price)),
                 fg_cost_nusd(u->output_tokens, r->price_output));
}

static int reported(const fg_answer *u) {
  return u->prompt_tokens != 0 || u->output_tokens != 0 || u->cost_nusd > 0;
}

void fg_money_settle(const fg_engine *e, const fg_policy_workflow *w, fg_call_state *s, fg_attempt *a, const fg_answer *usage, int64_t t) {
  fg_route_rec *rec;
  int64_t nusd;
  const fg_policy_route *r = route_of(e, w, a->route);
  if ((a->flags & FG_AT_USAGE) || !reported(usage)) {
    return;
  }
  nusd = usage->prompt_tokens == 0 && usage->output_tokens == 0 ? usage->cost_nusd : cost_of(r, usage);
  become(e, s, a->hold_nusd, a->hold_tokens, a->stamp, nusd, fg_add32(usage->prompt_tokens, usage->output_tokens), t);
  rec = fg_engine_route_rec(e, w->standin[a->route].route, t);
  if (rec != NULL) {
    fg_count(&rec->count[FG_ROUTE_TOKENS_IN], usage->prompt_tokens);
    fg_count(&rec->count[FG_ROUTE_TOKENS_OUT], usage->output_tokens);
    fg_count(&rec->count[FG_ROUTE_NUSD], (uint64_t)(nusd > 0 ? nusd : 0));
  }
  a->hold_nusd = nusd;
  a->hold_tokens = fg_add32(usage->prompt_tokens, usage->output_tokens);
  a->flags |= FG_AT_USAGE;
}

void fg_money_keep(fg_call_state *s, const fg_attempt *a) {
  fg_late *l;
  uint32_t i;
  if ((a->flags & FG_AT_USAGE) || (a->hold_nusd == 0 && a->hold_tokens == 0)) {
    return;
  }
  l = &s->late[0];
  for (i = 0; i < FG_LATE_MAX; i++) {
    if (s->late[i].number == 0) {
      l = &s->late[i];
      break;
    }
    if (s->late[i].number < l->number) {
      l = &s->late[i]; /* full: the oldest makes room and stays held for good */
    }
  }
  l->hold_nusd = a->hold_nusd;
  l->hold_tokens = a->hold_tokens;
  l->stamp = a->stamp;
  l->number = a->number;
  s->late_route[l - s->late] = a->route;
}

int fg_money_late(const fg_engine *e, const fg_policy_workflow *w, fg_call_state *s, uint32_t number, const fg_answer *usage, int64_t t) {
  uint32_t i;
  for (i = 0; i < FG_LATE_MAX; i++) {
    if (s->late[i].number == number && number != 0) {
      fg_attempt a;
      memset(&a, 0, sizeof a);
      a.hold_nusd = s->late[i].hold_nusd;
      a.hold_tokens = s->late[i].hold_tokens;
      a.stamp = s->late[i].stamp;
      a.route = s->late_route[i];
      fg_money_settle(e, w, s, &a, usage, t);
      if (a.flags & FG_AT_USAGE) {
        memset(&s->late[i], 0, sizeof s->late[i]);
      }
      return 1;
    }
  }
  return 0;
}
