/* Warnings: a card that loads, and will not do what its author hopes. Each names the place, the figures and the remedy. A card is
 * judged without a clock, so dates are compared only with each other; an expired contract shows at the first call. */
#include "fg_card_sections.h"

/* The workflow being looked at; texts stay valid while the block grows. */
typedef struct view {
  fg_policy_workflow w;
  const fg_card_workflow *extra;
  const char *name;
} view;

static fg_policy_route route_at(const fg_card *c, uint32_t index) {
  fg_policy_route r;
  memcpy(&r, (const fg_policy_route *)fg_block_at(&c->block, c->head.routes_off) + index, sizeof r);
  return r;
}

static const char *quote_text(fg_card *c, fg_pstr s) {
  return fg_card_quote(c, s.len > 0 ? (const char *)fg_block_at(&c->block, s.off) : "");
}

static const char *quote_route(fg_card *c, uint32_t index) {
  return quote_text(c, route_at(c, index).name);
}

static const char *number(fg_card *c, uint64_t value) {
  return fg_card_number_text(c, (int64_t)value, 0);
}

static const cJSON *member(const cJSON *node, const char *key) {
  for (const cJSON *m = cJSON_IsObject(node) ? node->child : NULL; m != NULL; m = m->next) {
    if (strcmp(m->string, key) == 0) {
      return m;
    }
  }
  return NULL;
}

/* A warning at workflows.<name>.<a>.<b>. */
#define AT_WORKFLOW(c, v, a, b, ...) (enter(c, v, a, b), leave(c, FG_WARN(c, __VA_ARGS__)))

static void enter(fg_card *c, const view *v, const char *a, const char *b) {
  c->depth = 0;
  fg_card_push(c, "workflows");
  fg_card_push(c, v->name);
  if (a != NULL) {
    fg_card_push(c, a);
  }
  if (b != NULL) {
    fg_card_push(c, b);
  }
}

static int leave(fg_card *c, int ok) {
  c->depth = 0;
  return ok;
}

/* Where a stand-in is named: routes[i], or the ladder's step. */
static void enter_standin(fg_card *c, const view *v, uint32_t index) {
  if (!v->w.standin[index].ladder_only) {
    enter(c, v, "routes", NULL);
    fg_card_push_index(c, index);
    return;
  }
  enter(c, v, "ladder", NULL);
  for (uint32_t i = 0; i < v->w.ladder_count; i++) {
    if (v->w.ladder[i].step == FG_STEP_SMALLER_MODEL && v->w.ladder[i].standin == index) {
      fg_card_push_index(c, i);
      fg_card_push(c, "route");
      return;
    }
  }
}
#define AT_STANDIN(c, v, index, ...) (enter_standin(c, v, index), leave(c, FG_WARN(c, __VA_ARGS__)))

static void enter_contract(fg_card *c, const view *v, uint32_t index, const char *key) {
  c->depth = 0;
  fg_card_push(c, "contracts");
  fg_card_push_index(c, v->extra->contract[index] - 1);
  if (key != NULL) {
    fg_card_push(c, key);
  }
}
#define AT_CONTRACT(c, v, index, key, ...) (enter_contract(c, v, index, key), leave(c, FG_WARN(c, __VA_ARGS__)))

/* ------------------------------------------------------------------- time */

static int lint_times(fg_card *c, const view *v) {
  const fg_policy_workflow *w = &v->w;
  const cJSON *timeouts = member(v->extra->node, "timeouts");
  const struct { const char *key; uint32_t value; } CLOCKS[] = {{"connect_ms", w->connect_ms}, {"first_token_ms", w->first_token_ms}};
  if (w->elapsed_ms != UINT32_MAX) {
    for (uint32_t i = 0; i < FG_ARRAY_LEN(CLOCKS); i++) {
      if (CLOCKS[i].value > w->elapsed_ms && member(timeouts, CLOCKS[i].key) != NULL &&
          !AT_WORKFLOW(c, v, "timeouts", CLOCKS[i].key, number(c, CLOCKS[i].value), " ms is longer than budget.elapsed_ms, ", number(c, w->elapsed_ms),
                       ": the call ends before this clock does; lower it or raise elapsed_ms")) {
        return 0;
      }
    }
    if (w->hold_ms > w->elapsed_ms && member(v->extra->node, "hold_ms") != NULL &&
        !AT_WORKFLOW(c, v, "hold_ms", NULL, "a hold of ", number(c, w->hold_ms), " ms is longer than budget.elapsed_ms, ", number(c, w->elapsed_ms), "; lower it or raise elapsed_ms")) {
      return 0;
    }
    if (w->call_elapsed_ms < w->elapsed_ms &&
        !AT_WORKFLOW(c, v, "budget", "call_elapsed_ms", "the whole call may take ", number(c, w->call_elapsed_ms), " ms, less than one step's elapsed_ms, ", number(c, w->elapsed_ms), "; raise it or lower elapsed_ms")) {
      return 0;
    }
  }
  if (w->progress_ms < w->idle_ms && member(timeouts, "progress_ms") != NULL &&
      !AT_WORKFLOW(c, v, "timeouts", "progress_ms", "content may pause ", number(c, w->progress_ms), " ms, bytes ", number(c, w->idle_ms), " ms: idle_ms can never end a stream; lower idle_ms")) {
    return 0;
  }
  return w->per_route <= w->total_attempts ||
         AT_WORKFLOW(c, v, "budget", "per_route", number(c, w->per_route), " sends a route are more than total_attempts, ", number(c, w->total_attempts), "; lower it");
}

/* ------------------------------------------------------------------- routes */

static int section_is(const fg_card *c, const fg_policy_standin *s, const char *name) {
  return fg_eq(fg_block_at(&c->block, s->section.off), s->section.len, name, (uint32_t)strlen(name));
}

/* The evidence is of another model than the route's: the first part that differs. */
static int lint_measured(fg_card *c, const view *v, uint32_t i, const fg_card_model *m, uint32_t route) {
  static const char *const PARTS[] = {"provider", "model", "version"};
  const fg_policy_route r = route_at(c, route);
  const fg_pstr was[] = {m->provider, m->model, m->version}, now[] = {r.provider, r.model, r.version};
  uint32_t n = was[0].off != now[0].off ? 0 : was[1].off != now[1].off ? 1 : 2;
  return AT_CONTRACT(c, v, i, "evidence", quote_route(c, route), " was measured with ", PARTS[n], " ", was[n].len > 0 ? quote_text(c, was[n]) : "not stated", ", now ",
                     now[n].len > 0 ? quote_text(c, now[n]) : "not stated", ": stale; run the fixtures again");
}

static int lint_stale(fg_card *c, const view *v, uint32_t i) {
  const fg_policy_standin *s = &v->w.standin[i];
  const fg_card_contract *k = &c->contract[v->extra->contract[i] - 1];
  const fg_policy_route r = route_at(c, s->route);
  int64_t was = 0, now = 0;
  if (section_is(c, s, "evidence.route")) {
    return lint_measured(c, v, i, &k->route_model, s->route);
  }
  if (section_is(c, s, "evidence.primary")) {
    return lint_measured(c, v, i, &k->primary_model, v->w.standin[0].route);
  }
  if (!section_is(c, s, "price")) {
    return AT_CONTRACT(c, v, i, "fingerprint", "the card changed since the approval: stale; check again and approve ", quote_text(c, s->fingerprint));
  }
  const char *part = fg_card_price_changed(&k->price, &r, &was, &now);
  if (now == FG_PRICE_UNKNOWN) {
    return AT_CONTRACT(c, v, i, "price", "a price was approved, and ", quote_route(c, s->route), " states none now: stale; give the route its price");
  }
  return AT_CONTRACT(c, v, i, "price", quote_route(c, s->route), " costs ", part, " ", fg_card_number_text(c, now, 9), " now, approved was ", fg_card_number_text(c, was, 9),
                     ": stale; look at what it costs, and write the price you approve");
}

static int lint_verdict(fg_card *c, const view *v, uint32_t i) {
  const fg_policy_standin *s = &v->w.standin[i];
  if (s->barred == FG_REASON_NOT_APPROVED && v->extra->contract[i] == 0) {
    return AT_STANDIN(c, v, i, "no contract approves ", quote_route(c, s->route), " as a stand-in here: it is never used; add one to contracts");
  }
  if (s->barred == FG_REASON_NOT_APPROVED) {
    return AT_CONTRACT(c, v, i, NULL, "no fingerprint, so nothing is approved; the one to approve is ", quote_text(c, s->fingerprint));
  }
  if (s->barred == FG_REASON_CONTRACT_STALE) {
    return lint_stale(c, v, i);
  }
  if (s->barred == FG_REASON_MISSING_EVIDENCE) {
    return AT_CONTRACT(c, v, i, "evidence", quote_text(c, s->section), " is missing: the route is never used; run the fixtures and add it");
  }
  if (s->barred == FG_REASON_CONTRACT_SECTION_FAILS) {
    return AT_CONTRACT(c, v, i, NULL, quote_route(c, s->route), " does not provide what the workflow requires: ", quote_text(c, s->section),
                       "; it is never used; change the route or the requirement");
  }
  return 1;
}

static int lint_approved(fg_card *c, const view *v, uint32_t i) {
  const fg_policy_standin *s = &v->w.standin[i];
  const fg_card_contract *k = &c->contract[v->extra->contract[i] - 1];
  fg_policy_route r = route_at(c, s->route), primary = route_at(c, v->w.standin[0].route);
  const int64_t YEAR = INT64_C(366) * 86400000;
  if (k->approved_by.len == 0 && !AT_CONTRACT(c, v, i, NULL, "nobody is named as approving; add approved_by")) {
    return 0;
  }
  if (k->measured_ms >= 0 && k->expires_ms - k->measured_ms > YEAR &&
      !AT_CONTRACT(c, v, i, "evidence", "the evidence stays valid for ", number(c, (uint64_t)(k->expires_ms - k->measured_ms) / 86400000), " days; models change sooner: shorten expires_at")) {
    return 0;
  }
  if (s->drop_ppm > v->w.quality_drop_ppm &&
      !AT_STANDIN(c, v, i, quote_route(c, s->route), " answers ", number(c, s->drop_ppm), " ppm worse than the primary, over quality_drop_ppm ", number(c, v->w.quality_drop_ppm), ": it is never used")) {
    return 0;
  }
  if ((r.context_tokens == 0 || r.max_tokens == 0) && !(s->twin && primary.context_tokens != 0 && primary.max_tokens != 0) &&
      !AT_STANDIN(c, v, i, quote_route(c, s->route), " does not declare ", r.context_tokens == 0 ? "input.context_tokens" : "", r.context_tokens == 0 && r.max_tokens == 0 ? " and " : "",
                  r.max_tokens == 0 ? "output.max_tokens" : "", ": a request of known size does not fit it; add what is missing to provides")) {
    return 0;
  }
  if (v->w.refusal_is_answer && v->w.standin[i].other_vendor_after_refusal &&
      !AT_STANDIN(c, v, i, "a refusal counts as an answer here, so other_vendor_after_refusal never acts; drop one of them")) {
    return 0;
  }
  return r.weight != 0 || s->ladder_only || AT_STANDIN(c, v, i, quote_route(c, s->route), " has weight 0 and takes no new traffic; raise its weight or leave it out");
}

static int lint_fate(fg_card *c, const view *v) {
  const fg_policy_workflow *w = &v->w;
  fg_policy_route primary = route_at(c, w->standin[0].route);
  uint32_t others = 0, same = 0;
  for (uint32_t i = 1; i < w->standin_count; i++) {
    fg_policy_route r = route_at(c, w->standin[i].route);
    if (w->standin[i].ladder_only) {
      continue;
    }
    others++;
    same += r.provider.off == primary.provider.off && !w->standin[i].twin;
    if (r.account == primary.account &&
        !AT_STANDIN(c, v, i, quote_route(c, w->standin[i].route), " shares the primary's account: an empty balance or a dead key ends both; give it an account of its own")) {
      return 0;
    }
  }
  return others == 0 || same < others ||
         AT_WORKFLOW(c, v, "routes", NULL, "every stand-in is at ", quote_text(c, primary.provider), ", like the primary: its outage ends them all; add another provider");
}

static int lint_prices(fg_card *c, const view *v) {
  const fg_policy_workflow *w = &v->w;
  uint32_t priced = 0, without = UINT32_MAX;
  for (uint32_t i = 0; i < w->standin_count; i++) {
    if (route_at(c, w->standin[i].route).price_input != FG_PRICE_UNKNOWN) {
      priced++;
    } else {
      without = w->standin[i].route;
    }
  }
  return priced == 0 || without == UINT32_MAX ||
         AT_WORKFLOW(c, v, "routes", NULL, quote_route(c, without), " has no price, so money is not bounded in this workflow; add its price, or price: \"free\"");
}

/* With no money beyond the primary's estimate a stand-in must cost no more than that. Certain where no price of it is lower, one is higher, and it may write as
 * much; with tokens or money above 0 it depends on the request. */
static int lint_unpaid(fg_card *c, const view *v) {
  enum { MAX_TOKENS_UNSTATED = 4096 };
  const fg_policy_workflow *w = &v->w;
  fg_policy_route primary = route_at(c, w->standin[0].route);
  if (w->extra_cost_mode != FG_EXTRA_FIXED || w->extra_cost_nusd != 0 || primary.price_input == FG_PRICE_UNKNOWN) {
    return 1;
  }
  for (uint32_t i = 1; i < w->standin_count; i++) {
    fg_policy_route r = route_at(c, w->standin[i].route);
    uint32_t most = primary.max_tokens != 0 ? primary.max_tokens : MAX_TOKENS_UNSTATED;
    int dearer = r.price_input != FG_PRICE_UNKNOWN && r.price_input >= primary.price_input && r.price_output > primary.price_output;
    if (dearer && (r.max_tokens != 0 ? r.max_tokens : MAX_TOKENS_UNSTATED) >= most &&
        !AT_STANDIN(c, v, i, "budget.extra_cost_usd is 0 and ", quote_route(c, w->standin[i].route), " costs more than the primary: it is never paid for; raise extra_cost_usd")) {
      return 0;
    }
  }
  return 1;
}

/* What the primary declares against what the workflow requires: it serves anyway, so a contradiction is somebody's mistake. */
static int lint_primary(fg_card *c, const view *v) {
  fg_sections requires, provides;
  fg_policy_route r = route_at(c, v->w.standin[0].route);
  if (v->extra->contract[0] != 0 && !AT_CONTRACT(c, v, 0, NULL, "this is the workflow's primary, which needs no contract; remove it")) {
    return 0;
  }
  if (v->extra->requires == NULL) {
    return 1;
  }
  if (!fg_sections_read(c, v->extra->requires, FG_SIDE_REQUIRES, &requires) || !fg_sections_read(c, c->provides[v->w.standin[0].route], FG_SIDE_PROVIDES, &provides)) {
    return 0;
  }
  for (uint32_t key = 0; key < FG_KEY_COUNT; key++) {
    requires.value[key] = provides.value[key] != NULL ? requires.value[key] : NULL;
  }
  uint32_t key = fg_sections_compare(&requires, &provides, &r, 0);
  return key == FG_KEY_COUNT || AT_WORKFLOW(c, v, "requires", NULL, "the primary itself does not provide ", fg_sections_name(key), " as required here; correct one of them");
}

/* ------------------------------------------------------------------- ladder */

static int lint_ladder(fg_card *c, const view *v) {
  const fg_policy_workflow *w = &v->w;
  uint32_t preset = UINT32_MAX, prefill = 0;
  for (uint32_t i = 0; i < w->ladder_count; i++) {
    preset = w->ladder[i].step == FG_STEP_PRESET && preset == UINT32_MAX ? i : preset;
  }
  if (preset != UINT32_MAX && preset + 1 < w->ladder_count) {
    enter(c, v, "ladder", NULL);
    fg_card_push_index(c, preset + 1);
    if (!leave(c, FG_WARN(c, "a preset always answers, so the steps behind it never come; move it to the end"))) {
      return 0;
    }
  }
  if (w->kind == FG_WF_INTERACTIVE && preset == UINT32_MAX &&
      !AT_WORKFLOW(c, v, w->ladder_count > 0 ? "ladder" : NULL, NULL, "no preset: when every route is out the user gets an error; end the ladder with {step: preset, text: {en: \"...\"}}")) {
    return 0;
  }
  if (w->standin_count == 1 && w->ladder_count == 0 && !w->queue &&
      !AT_WORKFLOW(c, v, "routes", NULL, "one route, no queue and no ladder: nothing but retries can help; add a stand-in, a queue or a ladder")) {
    return 0;
  }
  if (w->hedge_enabled && !AT_WORKFLOW(c, v, "hedge", NULL, "this version sends no hedges: the switch changes nothing; leave it off")) {
    return 0;
  }
  for (uint32_t i = 0; i < w->standin_count; i++) {
    prefill |= w->standin[i].prefill;
  }
  return w->after_visible != FG_AFTER_CONTINUE || prefill ||
         AT_WORKFLOW(c, v, "after_visible", NULL, "no route provides input.prefill, so nothing can be continued; add it to a route's provides or write restart");
}

/* ----------------------------------------------------------------- the card */

static int lint_layers(fg_card *c, uint32_t attempts) {
  uint64_t product = c->head.globals.layers_product;
  c->depth = 0;
  fg_card_push(c, "layers");
  return leave(c, product <= 1 || FG_WARN(c, "the layers turn each attempt into up to ", number(c, product), " sends: ", number(c, attempts), " attempts become ",
                                          number(c, product * attempts), "; set their max_retries to 0"));
}

static int lint_cap(fg_card *c, uint32_t longest) {
  const cJSON *cap = member(member(c->root, "backoff"), "retry_after_cap_ms");
  c->depth = 0;
  fg_card_push(c, "backoff");
  fg_card_push(c, "retry_after_cap_ms");
  return leave(c, cap == NULL || c->head.globals.retry_after_cap_ms <= longest ||
                      FG_WARN(c, "waits up to ", number(c, c->head.globals.retry_after_cap_ms), " ms are obeyed, but no workflow lasts longer than ", number(c, longest), " ms or queues; lower it"));
}

static int lint_unused(fg_card *c) {
  uint32_t i = 0;
  for (const cJSON *m = c->routes->child; m != NULL; m = m->next, i++) {
    c->depth = 0;
    fg_card_push(c, "routes");
    fg_card_push(c, m->string);
    if (!c->used[i] && !FG_WARN(c, "no workflow uses this route; add it to one or remove it")) {
      return 0;
    }
  }
  return leave(c, 1);
}

static const char *const APIS[] = {"chat", "responses", "messages", "generateContent", "converse"};

/* The word that a text was likely meant to be; NULL: it is one of them, or near none. */
static const char *nearly(const char *text, const char *const *words, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(words[i], text) == 0) {
      return NULL;
    }
  }
  return fg_card_nearest(text, words, count, sizeof *words);
}

/* A provider may be anybody; one that is nearly a known vendor is likely a slip, and its errors would be read without that vendor's words. */
static int lint_providers(fg_card *c) {
  for (const cJSON *m = c->routes->child; m != NULL; m = m->next) {
    const cJSON *provider = member(m, "provider");
    if (provider == NULL) {
      continue; /* such a card does not load */
    }
    const char *near = fg_card_vendor_near(provider->valuestring);
    c->depth = 0;
    fg_card_push(c, "routes");
    fg_card_push(c, m->string);
    fg_card_push(c, "provider");
    if (near != NULL && !FG_WARN(c, fg_card_quote(c, provider->valuestring), " is no vendor whose errors are known; did you mean ", fg_card_quote(c, near), "?")) {
      return 0;
    }
    const cJSON *api = member(m, "api");
    near = api != NULL ? nearly(api->valuestring, APIS, (uint32_t)FG_ARRAY_LEN(APIS)) : NULL;
    c->path[c->depth - 1].key = "api";
    if (near != NULL && !FG_WARN(c, fg_card_quote(c, api->valuestring), " is no API known here; did you mean ", fg_card_quote(c, near), "?")) {
      return 0;
    }
  }
  return leave(c, 1);
}

static int lint_workflow(fg_card *c, const view *v) {
  for (uint32_t i = 1; i < v->w.standin_count; i++) {
    if (!lint_verdict(c, v, i) || (v->w.standin[i].barred == 0 && !lint_approved(c, v, i))) {
      return 0;
    }
  }
  return lint_times(c, v) && lint_fate(c, v) && lint_prices(c, v) && lint_unpaid(c, v) && lint_primary(c, v) && lint_ladder(c, v);
}

int fg_card_lint(fg_card *c) {
  uint32_t attempts = 0, longest = 0;
  for (uint32_t i = 0; i < c->head.workflow_count; i++) {
    view v;
    memcpy(&v.w, (const fg_policy_workflow *)fg_block_at(&c->block, c->head.workflows_off) + i, sizeof v.w);
    v.extra = &c->workflow[i];
    v.name = v.extra->node->string;
    attempts = fg_max32(attempts, v.w.total_attempts);
    longest = fg_max32(longest, v.w.queue ? UINT32_MAX : v.w.elapsed_ms);
    if (!lint_workflow(c, &v)) {
      return 0;
    }
  }
  if (!lint_layers(c, attempts) || !lint_cap(c, longest) || !lint_unused(c) || !lint_providers(c)) {
    return 0;
  }
  c->depth = 0;
  return c->lint_more == 0 || FG_WARN_LAST(c, number(c, c->lint_more), " more warnings are not listed");
}
