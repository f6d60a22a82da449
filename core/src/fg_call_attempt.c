/* begin_attempt: the only permission to send. Re-checks what was decided, pays for it, and takes the route's admission. */
#include "fg_call.h"

#include "fg_commit.h"
#include "fg_gates.h"
#include "fg_math.h"
#include "fg_money.h"

enum { POLL_MS = 50, ROUNDS = FG_ROUTES_MAX + 4 };

static uint32_t index_of(const fg_facts_build *b, uint32_t place) {
  uint32_t i;
  for (i = 0; i < b->facts.candidate_count; i++) {
    if (b->place[i] == place) {
      return i;
    }
  }
  return 0;
}

/* Does what was decided still hold? 0, or the reason it does not. */
static uint32_t recheck(const fg_call_state *s, const fg_facts_build *b) {
  const fg_facts *f = &b->facts;
  fg_candidate c = f->candidate[index_of(b, s->send_route)];
  uint32_t why = fg_budget_call(f);
  fg_commit_verdict commit;
  if (why == FG_REASON_NONE && f->stage == FG_STAGE_FAILURE) { /* a tool may have acted since the decision */
    fg_gate_commit(f, &commit);
    why = commit.reason;
  }
  if (why != FG_REASON_NONE) {
    return why;
  }
  if (s->send_rung != 0 && f->ladder[s->send_rung - 1].step != FG_STEP_SMALLER_MODEL) { /* an edited request: its own size and time */
    const fg_rung *r = &f->ladder[s->send_rung - 1];
    c.tokens = r->tokens;
    c.extra_nusd = r->extra_nusd;
    c.estimate_ms = r->estimate_ms;
    c.barred = r->helps ? FG_REASON_NONE : c.barred; /* it may fit where the one it came from did not; no edit renews an approval */
  }
  if (c.barred != FG_REASON_NONE) {
    return c.barred;
  }
  if (c.health == FG_HEALTH_RAMPING) {
    c.health = FG_HEALTH_OK; /* slow start was weighed when the route was chosen */
  }
  why = fg_gate_health(&c);
  return why != FG_REASON_NONE ? why : fg_budget_route(f, &c, s->stage == FG_STAGE_FAILURE);
}

/* The same for a first attempt on the primary, by far the most frequent send: no other route needs a look. */
static uint32_t recheck_primary(const fg_engine *e, const fg_call_state *s, int64_t t) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  const fg_hold hold = fg_hold_of(fg_route_of(e, s, 0), s, s->prompt_tokens, s->max_output_tokens);
  if (s->attempts_used >= w->total_attempts) {
    return FG_REASON_ATTEMPTS_EXHAUSTED;
  }
  if (fg_elapsed_left(e, s, t) == 0) {
    return FG_REASON_ELAPSED_EXHAUSTED;
  }
  if (s->sends[0] >= w->per_route) {
    return FG_REASON_ROUTE_ATTEMPTS_EXHAUSTED;
  }
  if (fg_extra_tokens(s, hold.tokens) > fg_tokens_left(w, s)) {
    return FG_REASON_TOKENS_EXHAUSTED;
  }
  return fg_extra_nusd(s, hold.nusd) > fg_cost_left(w, s) ? FG_REASON_COST_EXHAUSTED : FG_REASON_NONE;
}

/* The clocks of this attempt: as they were shown, when it begins when it was meant to. */
static void clocks_now(const fg_engine *e, const fg_call_state *s, int64_t t, fg_clocks *k) {
  if (s->clocks_at != fg_since(s, t)) {
    fg_call_clocks(e, s, s->send_route, 0, t, k);
    return;
  }
  k->connect_ms = s->kept.connect_ms;
  k->first_token_ms = s->kept.first_token_ms;
  k->idle_ms = s->kept.idle_ms;
  k->progress_ms = s->kept.progress_ms;
  k->total_ms = s->kept.total_ms;
  k->stall_ms = s->stall_ms;
}

static int is_resend(const fg_call_state *s) {
  return s->stage == FG_STAGE_FAILURE;
}
static int is_same_route(const fg_call_state *s) {
  return is_resend(s) && s->send_route == s->failed_route;
}
/* Does this send leave a limited route for another one? Then it is counted as spill. */
static int is_spill(const fg_call_state *s, const fg_facts_build *b) {
  if (is_resend(s)) {
    return s->failure.owner == FG_OWNER_RATE && s->send_route != s->failed_route;
  }
  return s->send_route != 0 && fg_health_waits(b->facts.candidate[0].health) && b->facts.candidate[0].barred == FG_REASON_NONE;
}

typedef struct fg_paid { fg_word *spill; int hourly; } fg_paid;

static void undo(const fg_engine *e, fg_workflow_rec *rec, const fg_paid *paid, int64_t t) {
  if (paid->hourly) {
    fg_retries_undo(&e->region->retries_hour, t);
    fg_retries_undo(&rec->retries_hour, t);
  }
  if (paid->spill != NULL) {
    fg_spill_undo(paid->spill, t);
  }
}

/* The budgets over all calls that count sends: an hour's resends, a minute's spill. (The bucket was paid with the decision.) */
static uint32_t pay(const fg_engine *e, const fg_call_state *s, const fg_facts_build *b, fg_workflow_rec *rec, int64_t t, fg_paid *paid) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  memset(paid, 0, sizeof *paid);
  if (is_resend(s)) {
    if (!fg_retries_take(&e->region->retries_hour, e->policy->globals.retries_per_hour, t)) {
      undo(e, rec, paid, t);
      return FG_REASON_RETRIES_PER_HOUR;
    }
    (void)fg_retries_take(&rec->retries_hour, 0, t);
    paid->hourly = 1;
  }
  if (is_spill(s, b)) {
    if (!fg_spill_take(rec->spill, w->spill_max_ppm, FG_SPILL_FLOOR, t)) {
      undo(e, rec, paid, t);
      return FG_REASON_SPILL_EXHAUSTED;
    }
    paid->spill = rec->spill;
  }
  return FG_REASON_NONE;
}

/* The request as it will be sent: what the ladder step or the raised limit changed stays changed. */
static void edit(const fg_engine *e, fg_call_state *s, int64_t t) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  if (s->kept.change & FG_CHANGE_MAX_TOKENS) {
    s->max_output_tokens = s->kept.max_tokens;
  }
  if (s->send_rung != 0) {
    const fg_policy_rung *r = &w->ladder[s->send_rung - 1];
    s->ladder_spent = (uint8_t)(s->ladder_spent | 1u << (s->send_rung - 1));
    s->degraded = 1;
    if (r->step == FG_STEP_COMPACT) {
      s->prompt_tokens = r->to_tokens;
    } else if (r->step == FG_STEP_WITHOUT_TOOLS) {
      s->features &= (uint16_t) ~(FG_FEATURE_TOOLS | FG_FEATURE_PARALLEL_TOOLS | FG_FEATURE_TOOL_ROUND_TRIP);
    } else if (r->step == FG_STEP_NO_THINKING) {
      s->features &= (uint16_t)~FG_FEATURE_REASONING;
    }
  }
  if (s->kept.change & (FG_CHANGE_MAX_TOKENS | FG_CHANGE_COMPACT | FG_CHANGE_DROP_TOOLS | FG_CHANGE_NO_THINKING)) {
    fg_call_fit(e, s, NULL, 0, 0, t);
  }
}

static void start(const fg_engine *e, fg_call_state *s, const fg_attempt *a, const fg_clocks *k, int64_t t) {
  const uint32_t keep_shown = s->kept.change & FG_CHANGE_PREFILL;
  if (is_resend(s)) {
    s->resends++;
  }
  if (is_same_route(s) && s->send_rung == 0) {
    fg_retries_add(s, s->failed_route, s->failure.klass);
    if (s->failure.flags & FG_FAIL_OVERLOAD) {
      fg_retries_add(s, s->failed_route, FG_CLASS_COUNT);
    }
    if (s->failure.owner == FG_OWNER_RATE) {
      s->seat[s->failed_route] |= FG_SEAT_WAITED;
    }
    if (s->failure.owner == FG_OWNER_LOCAL && s->seat[s->failed_route] < FG_SEAT_LOCAL_MAX) {
      s->seat[s->failed_route] = (uint8_t)(s->seat[s->failed_route] + FG_SEAT_LOCAL);
    }
  }
  if (s->hold_from != 0) {
    s->held_for_ms = fg_add32(s->held_for_ms, fg_since(s, t) + 1 - s->hold_from);
    s->hold_from = 0;
  }
  edit(e, s, t);
  fg_commit_attempt(s, keep_shown);
  s->attempts_used++;
  if (s->sends[s->send_route] < UINT8_MAX) {
    s->sends[s->send_route]++;
  }
  s->attempt_count++;
  fg_copy(&s->live, a, sizeof *a);
  s->live.number = s->attempt_count;
  s->live.paid_milli = s->paid_milli;
  s->live.paid_route = s->failed_route;
  s->paid_milli = 0;
  s->live.route = s->send_route;
  s->live.began_at = s->live.last_byte_at = s->live.last_progress_at = fg_since(s, t);
  s->live.first_token_ms = k->first_token_ms;
  s->live.idle_ms = k->idle_ms;
  s->live.progress_ms = k->progress_ms;
  s->live.total_ms = k->total_ms;
  s->live.stall_ms = k->stall_ms;
  s->empty_end = 0;
  s->state = FG_CALL_RUNNING;
}

/* Pays and admits the decided send. 0 and the attempt runs, or the reason it may not. */
static uint32_t admit(const fg_engine *e, fg_call_state *s, const fg_facts_build *b, int64_t t, fg_clocks *k) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  fg_workflow_rec *rec = fg_engine_workflow_rec(e, s->workflow, t);
  fg_health_view view;
  fg_health_ask ask;
  fg_attempt a;
  fg_admit how;
  fg_paid paid;
  fg_hold hold;
  uint32_t why, prompt = s->prompt_tokens, output = s->max_output_tokens;
  fg_engine_use(e, w->standin[s->send_route].route, t);
  if (rec == NULL || !fg_ask_of(e, s, s->send_route, t, &ask)) {
    return FG_REASON_ROUTE_OPEN;
  }
  if (s->kept.change & FG_CHANGE_MAX_TOKENS) {
    output = s->kept.max_tokens;
  }
  if (s->kept.change & FG_CHANGE_COMPACT) {
    prompt = s->kept.compact_tokens;
  }
  hold = fg_hold_of(fg_route_of(e, s, s->send_route), s, prompt, output);
  why = pay(e, s, b, rec, t, &paid);
  if (why != FG_REASON_NONE) {
    return why;
  }
  fg_zero(&a, sizeof a);
  why = fg_money_hold(e, w, s, &a, hold, t);
  if (why != FG_REASON_NONE) {
    undo(e, rec, &paid, t);
    return why;
  }
  clocks_now(e, s, t, k);
  memset(&how, 0, sizeof how);
  how.slot = e->slot;
  how.kind = fg_learn_kind(s);
  how.retry = is_same_route(s) && s->paid_milli != 0;
  how.stall_ms = k->stall_ms;
  how.total_ms = k->total_ms;
  ask.tokens = hold.tokens;
  ask.ignore_ramp = 1; /* slow start was weighed when the route was chosen */
  if (!fg_health_admit(&ask, &how, t, &a.ticket, &view)) {
    const fg_candidate refused = {.health = view.health};
    fg_money_release(e, s, &a, t);
    undo(e, rec, &paid, t);
    why = fg_gate_health(&refused);
    return why != FG_REASON_NONE ? why : FG_REASON_ROUTE_FULL;
  }
  start(e, s, &a, k, t);
  return FG_REASON_NONE;
}

static uint32_t nearest_clock(const fg_attempt *a) {
  const uint32_t due = fg_min32(a->first_token_ms, a->total_ms);
  return a->stall_ms != 0 ? fg_min32(due, a->stall_ms) : due;
}

static void permit(const fg_engine *e, fg_call_state *s, const fg_clocks *k, int64_t t, fg_decision *out) {
  fg_call_again(e, s, out); /* the reason, the label and the edits of what was decided */
  out->action = FG_ACTION_PROCEED;
  out->attempt = s->live.number;
  out->wait_ms = 0;
  out->route = fg_workflow_of(e, s)->standin[s->live.route].route + 1;
  fg_call_show_clocks(k, out);
  out->wake_ms = nearest_clock(&s->live);
  fg_call_fill(e, s, t, out);
  fg_call_keep(e, s, out);
}

static void too_early(const fg_engine *e, fg_call_state *s, uint32_t rest_ms, int64_t t, fg_decision *out) {
  fg_call_again(e, s, out);
  out->action = FG_ACTION_HOLD;
  out->reason = FG_REASON_TOO_EARLY;
  out->detail = FG_REASON_NONE;
  out->gate = FG_GATE_NONE;
  out->wait_ms = rest_ms;
  fg_call_fill(e, s, t, out);
}

int32_t fg_call_begin_attempt(const fg_engine *e, fg_call *c, int64_t now_ms, fg_decision *out) {
  fg_facts_build b;
  fg_call_state *s;
  fg_clocks k;
  uint32_t round, since;
  int64_t t;
  const int32_t rc = fg_call_open(e, c, FG_TOLD_BEGIN_ATTEMPT, now_ms, out, &s, &t);
  if (rc != FG_OK) {
    return rc;
  }
  if (s->state == FG_CALL_RUNNING) {
    return FG_ERR_STATE; /* one permission, one send */
  }
  if (s->state != FG_CALL_DECIDED) {
    fg_call_again(e, s, out);
    return FG_OK;
  }
  since = fg_since(s, t);
  if (since < s->not_before_at) {
    too_early(e, s, s->not_before_at - since, t, out);
    return FG_OK;
  }
  if (s->send_action == FG_ACTION_HOLD) { /* held long enough: look again */
    fg_call_decide(e, s, s->stage, t, out);
  }
  for (round = 0; round < ROUNDS; round++) {
    uint32_t why;
    if (s->state != FG_CALL_DECIDED || s->send_action == FG_ACTION_HOLD || fg_since(s, t) < s->not_before_at) {
      fg_call_again(e, s, out); /* a new decision, without a send now */
      return FG_OK;
    }
    if (s->stage == FG_STAGE_BEGIN && s->send_route == 0 && s->send_rung == 0) {
      b.facts.candidate_count = 0; /* the admission looks at the primary's health itself */
      why = recheck_primary(e, s, t);
    } else {
      fg_facts_make(e, s, s->stage, t, &b);
      why = recheck(s, &b);
    }
    if (why == FG_REASON_NONE) {
      why = admit(e, s, &b, t, &k);
      if (why == FG_REASON_NONE) {
        permit(e, s, &k, t, out);
        return FG_OK;
      }
    }
    if (why == FG_REASON_RETRIES_IN_FLIGHT && fg_elapsed_left(e, s, t) > POLL_MS && !(s->unable & FG_UNABLE_WAIT)) {
      too_early(e, s, POLL_MS, t, out); /* paid for and waited for: its turn comes when another retry ends */
      return FG_OK;
    }
    fg_call_decide(e, s, s->stage, t, out);
  }
  /* Others took every place between the look and the admission: try again in a moment, inside the call's own time. */
  too_early(e, s, POLL_MS, t, out);
  return FG_OK;
}
