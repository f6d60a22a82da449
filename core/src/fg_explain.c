/* explain: the five gates of a call's latest decision in plain words, one line each, then what was decided and why. */
#include "fg_call_state.h"
#include "fg_decision_json.h"
#include "fg_engine.h"
#include "fg_facts.h"
#include "fg_gates.h"
#include "fg_money.h"

static void seconds(fg_text *t, uint32_t ms) {
  if (ms == UINT32_MAX) {
    fg_text_z(t, "no limit");
    return;
  }
  fg_text_u64(t, ms / 1000);
  if (ms % 1000 != 0) {
    const char frac[4] = {'.', (char)('0' + ms / 100 % 10), (char)('0' + ms / 10 % 10), (char)('0' + ms % 10)};
    fg_text_put(t, frac, 4);
  }
  fg_text_z(t, " s");
}

static void word(fg_text *t, uint32_t table, uint32_t value) {
  const char *z = fg_name(table, value);
  fg_text_z(t, z != NULL ? z : "?");
}

static void route(fg_text *t, const fg_policy *p, uint32_t id) {
  const fg_str name = fg_route_name(p, id);
  fg_text_put(t, name.ptr, name.len);
}

static void mark(fg_text *t, uint32_t gate, const fg_decision *d) {
  fg_text_z(t, d->gate == gate ? "  [stopped here] " : "  ");
}

static void owner_line(fg_text *t, const fg_engine *e, const fg_call_state *s, const fg_decision *d) {
  fg_text_z(t, "1 owner   ");
  mark(t, FG_GATE_OWNER, d);
  if (s->stage != FG_STAGE_FAILURE) {
    fg_text_z(t, "nothing has failed in this step yet\n");
    return;
  }
  word(t, FG_TABLE_OWNER, s->failure.owner);
  fg_text_z(t, ", ");
  word(t, FG_TABLE_KIND, s->failure.kind);
  fg_text_z(t, " (class ");
  word(t, FG_TABLE_CLASS, s->failure.klass);
  fg_text_z(t, ", darkens the ");
  word(t, FG_TABLE_SCOPE, s->failure.scope);
  fg_text_z(t, ") on ");
  route(t, e->policy, fg_workflow_of(e, s)->standin[s->failed_route].route + 1);
  if (s->failure.flags & FG_FAIL_HAS_RETRY_AFTER) {
    fg_text_z(t, "; the server named a wait of ");
    seconds(t, s->failure.retry_after_ms);
  }
  if (s->failure.flags & FG_FAIL_MUST_NOT_RETRY) {
    fg_text_z(t, "; the server forbade a retry");
  }
  if (s->failure.rule != 0) {
    fg_text_z(t, "; ");
    fg_text_z(t, fg_rule_why(e->policy, s->failure.rule));
  }
  fg_text_z(t, "\n");
}

static void commit_line(fg_text *t, const fg_call_state *s, const fg_decision *d) {
  fg_text_z(t, "2 commit  ");
  mark(t, FG_GATE_COMMIT, d);
  fg_text_z(t, "billed: ");
  word(t, FG_TABLE_BILLING, s->billing);
  fg_text_z(t, ", shown: ");
  word(t, FG_TABLE_SHOWN, s->shown);
  fg_text_z(t, ", outside effect: ");
  word(t, FG_TABLE_EFFECT, s->effect);
  if (s->prior_effect) {
    fg_text_z(t, "; an earlier step committed something, which is never replayed");
  }
  if (d->resume_from != FG_RESUME_CALL) {
    fg_text_z(t, "; send again from the ");
    word(t, FG_TABLE_RESUME, d->resume_from);
  }
  if (d->lookup != FG_LOOKUP_NONE) {
    fg_text_z(t, "; look up: ");
    word(t, FG_TABLE_LOOKUP, d->lookup);
  }
  if (d->may_pay_twice) {
    fg_text_z(t, "; the failed attempt may be billed as well");
  }
  fg_text_z(t, "\n");
}

/* The routes one gate refused, each with why, after `before`; 0: it refused none. */
static int refused(fg_text *t, const char *before, uint32_t gate, const fg_engine *e, const fg_call_state *s, const fg_decision *d) {
  const fg_policy_workflow *w = fg_workflow_of(e, s);
  uint32_t i, k;
  int any = 0;
  for (i = 0; i < d->rejected_count && i < FG_ROUTES_MAX; i++) {
    const uint32_t id = d->rejected[i] & 0xffffu, why = d->rejected[i] >> 16;
    if (fg_reason_gate(why) != gate) {
      continue;
    }
    fg_text_z(t, any ? ", " : before);
    any = 1;
    route(t, e->policy, id);
    fg_text_z(t, ": ");
    word(t, FG_TABLE_REASON, why);
    for (k = 0; gate == FG_GATE_CONTRACT && k < w->standin_count; k++) {
      if (w->standin[k].route + 1 == id && w->standin[k].barred == why && w->standin[k].section.len != 0) {
        fg_text_z(t, " (");
        fg_text_put(t, fg_policy_pool(e->policy) + w->standin[k].section.off, w->standin[k].section.len);
        fg_text_z(t, ")");
      }
    }
  }
  return any;
}

static void budget_line(fg_text *t, const fg_engine *e, const fg_call_state *s, const fg_decision *d) {
  fg_text_z(t, "3 budget  ");
  mark(t, FG_GATE_BUDGET, d);
  fg_text_z(t, "left: ");
  fg_text_u64(t, d->attempts_left);
  fg_text_z(t, " attempts, ");
  seconds(t, d->elapsed_left_ms);
  fg_text_z(t, ", ");
  if (d->tokens_left == UINT32_MAX) {
    fg_text_z(t, "any");
  } else {
    fg_text_u64(t, d->tokens_left);
  }
  fg_text_z(t, " extra tokens, ");
  if (d->cost_left_nusd == INT64_MAX) {
    fg_text_z(t, "no money limit");
  } else {
    fg_text_z(t, "$");
    fg_text_usd(t, d->cost_left_nusd);
    fg_text_z(t, " extra");
  }
  refused(t, "; refused: ", FG_GATE_BUDGET, e, s, d);
  fg_text_z(t, "\n");
}

/* One of the two route gates: what stopped each rejected route there. */
static void route_line(fg_text *t, const char *title, uint32_t gate, const fg_engine *e, const fg_call_state *s, const fg_decision *d) {
  fg_text_z(t, title);
  mark(t, gate, d);
  if (!refused(t, "", gate, e, s, d)) {
    fg_text_z(t, gate == FG_GATE_CONTRACT ? "no stand-in was refused" : "no route was refused");
  }
  fg_text_z(t, "\n");
}

static void changes(fg_text *t, const fg_decision *d) {
  uint32_t bit;
  for (bit = 0; (1u << bit) <= FG_CHANGE_ALL; bit++) {
    if (d->change & (1u << bit)) {
      fg_text_z(t, "; change the request: ");
      word(t, FG_TABLE_CHANGE, bit);
    }
  }
  if (d->change & FG_CHANGE_MAX_TOKENS) {
    fg_text_z(t, " = ");
    fg_text_u64(t, d->max_tokens);
  }
}

static void decision_line(fg_text *t, const fg_engine *e, const fg_decision *d) {
  fg_text_z(t, "=> ");
  word(t, FG_TABLE_ACTION, d->action);
  if (d->ladder_step != FG_STEP_NONE) {
    fg_text_z(t, " (");
    word(t, FG_TABLE_STEP, d->ladder_step);
    fg_text_z(t, ")");
  }
  if (d->route != 0) {
    fg_text_z(t, " on ");
    route(t, e->policy, d->route);
  }
  if (d->wait_ms != 0) {
    fg_text_z(t, d->action == FG_ACTION_KEEP_WAITING ? " for " : " after ");
    seconds(t, d->wait_ms);
  }
  fg_text_z(t, ", because: ");
  word(t, FG_TABLE_REASON, d->reason);
  if (d->detail != FG_REASON_NONE) {
    fg_text_z(t, " / ");
    word(t, FG_TABLE_REASON, d->detail);
  }
  changes(t, d);
  if (d->cancel != 0) {
    fg_text_z(t, "; hang up attempt ");
    fg_text_u64(t, d->cancel);
  }
  if (d->repair != FG_REPAIR_NONE) {
    fg_text_z(t, "; the caller should: ");
    word(t, FG_TABLE_REPAIR, d->repair);
  }
  fg_text_z(t, "\n");
}

uint32_t fg_explain(const fg_engine *e, const fg_call *c, const fg_decision *d, char *buf, uint32_t cap) {
  const fg_call_state *s = c != NULL ? fg_state_const(c) : NULL;
  fg_text t;
  fg_text_init(&t, buf, cap);
  if (e == NULL || e->magic != FG_ENGINE_MAGIC || s == NULL || s->magic != FG_CALL_MAGIC || s->policy_hash != e->policy_hash ||
      s->workflow >= e->policy->workflow_count || d == NULL || d->size < sizeof *d) {
    return fg_text_end(&t);
  }
  fg_text_z(&t, "workflow ");
  fg_text_put(&t, fg_policy_pool(e->policy) + fg_workflow_of(e, s)->name.off, fg_workflow_of(e, s)->name.len);
  if (s->id_len != 0) {
    fg_text_z(&t, ", call ");
    fg_text_put(&t, s->id, s->id_len);
  }
  fg_text_z(&t, ", step ");
  fg_text_u64(&t, s->steps + 1u);
  fg_text_z(&t, ", attempt ");
  fg_text_u64(&t, d->attempt);
  fg_text_z(&t, "\n");
  owner_line(&t, e, s, d);
  commit_line(&t, s, d);
  budget_line(&t, e, s, d);
  route_line(&t, "4 contract", FG_GATE_CONTRACT, e, s, d);
  route_line(&t, "5 health  ", FG_GATE_HEALTH, e, s, d);
  decision_line(&t, e, d);
  return fg_text_end(&t);
}
