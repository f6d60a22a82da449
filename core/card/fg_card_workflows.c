/* Workflows: the budgets of a kind, filled in, then what the card says. */
#include "fg_card_number.h"
#include "fg_card_sections.h"

typedef struct workflow_in {
  fg_policy_workflow w;
  const cJSON *routes, *budget, *limits, *requires, *ladder;
  uint64_t budget_seen;
} workflow_in;

enum { MS_MAX = 604800000 }; /* a week */

/* ------------------------------------------------------------------ budget */

#define AT(field) (uint32_t)offsetof(fg_policy_workflow, field)
#define INT(key, field, lo, hi) {.name = key, .kind = FG_FIELD_INT, .offset = AT(field), .min = lo, .max = hi}
#define NO_LIMIT(key, field, lo, hi) {.name = key, .kind = FG_FIELD_INT, .flags = FG_NULL, .offset = AT(field), .min = lo, .max = hi, .none = UINT32_MAX}

static int read_per_class(fg_card *c, const cJSON *node, void *out) {
#define CLASS_ROW(n, N, w) {.name = #w, .kind = FG_FIELD_INT, .offset = (n) * (uint32_t)sizeof(uint32_t), .min = 0, .max = FG_RETRIES_MAX},
  static const fg_field CLASSES[] = {FG_CLASS_MAP(CLASS_ROW)};
  fg_policy_workflow *w = out;
  uint64_t seen = 0;
  if (!FG_READ(c, node, CLASSES, w->per_class, &seen)) {
    return 0;
  }
  if (seen & 1U << FG_CLASS_SERVER) {
    w->overload_retries = w->per_class[FG_CLASS_SERVER];
  }
  return 1;
}

enum { SEEN_PER_ROUTE = 1, SEEN_COST = 4, SEEN_TOKENS = 5 };
static const fg_field BUDGET[] = {
    INT("total_attempts", total_attempts, 1, 100),
    INT("per_route", per_route, 1, 100),
    {.name = "per_class", .kind = FG_FIELD_CALL, .offset = 0, .read = read_per_class},
    NO_LIMIT("elapsed_ms", elapsed_ms, 1, MS_MAX),
    {.name = "extra_cost_usd", .kind = FG_FIELD_MONEY, .flags = FG_NULL, .offset = AT(extra_cost_nusd), .min = 0, .max = INT64_MAX / 8, .none = -1},
    NO_LIMIT("extra_tokens", extra_tokens, 0, 1000000000),
    INT("quality_drop_ppm", quality_drop_ppm, 0, 1000000),
    INT("call_resends", call_resends, 0, 1000),
    NO_LIMIT("call_elapsed_ms", call_elapsed_ms, 1, MS_MAX),
};

/* ----------------------------------------------------------- other objects */

static int read_queue(fg_card *c, const cJSON *node, void *out) {
  static const fg_field QUEUE[] = {INT("max_age_ms", queue_max_age_ms, 1, MS_MAX)};
  fg_policy_workflow *w = out;
  if (cJSON_IsBool(node)) {
    w->queue = cJSON_IsTrue(node) ? 1 : 0;
    return 1;
  }
  if (!cJSON_IsObject(node)) {
    return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(node), "; write false, true or {max_age_ms: 86400000}");
  }
  w->queue = 1;
  return FG_READ(c, node, QUEUE, w, NULL);
}

static int read_spill(fg_card *c, const cJSON *node, void *out) {
  static const char *const MODES[] = {"never", "when_wait_does_not_fit", "prefer_fast", NULL}; /* FG_SPILL_* */
  static const fg_field SPILL[] = {
      {.name = "mode", .kind = FG_FIELD_WORD, .offset = AT(spill_mode), .words = MODES},
      INT("max_ppm", spill_max_ppm, 0, 1000000),
  };
  return FG_READ(c, node, SPILL, out, NULL);
}

static int read_hedge(fg_card *c, const cJSON *node, void *out) {
  static const fg_field HEDGE[] = {
      {.name = "enabled", .kind = FG_FIELD_BOOL, .offset = AT(hedge_enabled)},
      INT("max_ppm", hedge_max_ppm, 0, 1000000),
  };
  return FG_READ(c, node, HEDGE, out, NULL);
}

static int read_timeouts(fg_card *c, const cJSON *node, void *out) {
#define LEARNED(key, field) {.name = key, .kind = FG_FIELD_INT, .flags = FG_NULL, .offset = AT(field), .min = 1, .max = MS_MAX, .none = 0}
  static const fg_field TIMEOUTS[] = {
      INT("connect_ms", connect_ms, 1, MS_MAX), INT("idle_ms", idle_ms, 1, MS_MAX),    INT("progress_ms", progress_ms, 1, MS_MAX),
      LEARNED("first_token_ms", first_token_ms), LEARNED("total_ms", total_ms),
  };
  return FG_READ(c, node, TIMEOUTS, out, NULL);
}

static int read_limits(fg_card *c, const cJSON *node, fg_policy_workflow *w) {
  static const fg_field LIMITS[] = {
      {.name = "spend_per_day_usd", .kind = FG_FIELD_MONEY, .flags = FG_NULL, .offset = AT(spend_per_day_nusd), .min = 1, .max = INT64_MAX / 8, .none = -1},
  };
  return FG_READ(c, node, LIMITS, w, NULL);
}

static int read_stop_on(fg_card *c, const cJSON *node, void *out) {
#define OWNER_WORD(n, N, w) #w,
  static const char *const OWNERS[] = {FG_OWNER_MAP(OWNER_WORD) NULL};
  uint32_t bits = 0;
  if (!fg_read_words(c, node, OWNERS, &bits)) {
    return 0;
  }
  memcpy(out, &bits, sizeof bits);
  return 1;
}
#undef AT
#undef INT
#undef NO_LIMIT

/* ---------------------------------------------------------------- workflow */

static const char *const KINDS[] = {"interactive", "batch", "effectful", NULL};
static const char *const ORDERS[] = {"rendezvous", "card", NULL};
static const char *const SAFE[] = {"not_sent", "accepted", "first_visible_token", "first_tool_start", NULL}; /* FG_SAFE_* */
static const char *const AFTER[] = {"stop", "restart", "continue", NULL};                                    /* FG_AFTER_* */
static const char *const SILENCE[] = {"none", "stand_in", "any", NULL};                                      /* FG_SILENCE_* */

#define AT(field) (uint32_t)offsetof(workflow_in, field)
#define WORD(key, field, list) {.name = key, .kind = FG_FIELD_WORD, .offset = AT(field), .words = list}
#define CALL(key, field, fn) {.name = key, .kind = FG_FIELD_CALL, .offset = AT(field), .read = fn}
static const fg_field WORKFLOW[] = {
    WORD("kind", w.kind, KINDS),
    {.name = "routes", .kind = FG_FIELD_NODE, .flags = FG_MUST | FG_ARRAY, .offset = AT(routes)},
    WORD("order", w.order_card, ORDERS),
    WORD("safe_replay_until", w.safe_until, SAFE),
    WORD("after_visible", w.after_visible, AFTER),
    WORD("after_silence", w.after_silence, SILENCE),
    {.name = "budget", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(budget)},
    {.name = "hold_ms", .kind = FG_FIELD_INT, .offset = AT(w.hold_ms), .min = 0, .max = 600000},
    {.name = "slow_failure_ms", .kind = FG_FIELD_INT, .offset = AT(w.slow_failure_ms), .min = 0, .max = MS_MAX},
    CALL("queue", w, read_queue),
    CALL("spill", w, read_spill),
    CALL("hedge", w, read_hedge),
    CALL("timeouts", w, read_timeouts),
    CALL("stop_on", w.stop_on, read_stop_on),
    {.name = "limits", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(limits)},
    {.name = "requires", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(requires)},
    {.name = "ladder", .kind = FG_FIELD_NODE, .flags = FG_ARRAY, .offset = AT(ladder)},
};
#undef AT
#undef WORD
#undef CALL

/* The kind decides the defaults, so it is looked for before the rest is read. */
static uint32_t kind_of(const cJSON *node) {
  for (const cJSON *m = cJSON_IsObject(node) ? node->child : NULL; m != NULL; m = m->next) {
    for (uint32_t k = 0; strcmp(m->string, "kind") == 0 && cJSON_IsString(m) && KINDS[k] != NULL; k++) {
      if (strcmp(KINDS[k], m->valuestring) == 0) {
        return k;
      }
    }
  }
  return FG_WF_INTERACTIVE;
}

static void defaults(fg_policy_workflow *w, uint32_t kind) {
  static const struct { uint32_t safe, silence, per_route, elapsed_ms, queue, holds; } KIND[] = {
      [FG_WF_INTERACTIVE] = {FG_SAFE_FIRST_VISIBLE, FG_SILENCE_STAND_IN, 2, 60000, 0, 1},
      [FG_WF_BATCH] = {FG_SAFE_FIRST_VISIBLE, FG_SILENCE_ANY, 3, 600000, 1, 2},
      [FG_WF_EFFECTFUL] = {FG_SAFE_NOT_SENT, FG_SILENCE_NONE, 2, 600000, 0, 0},
  };
  static const uint32_t PER_CLASS[FG_CLASS_COUNT] = {
      [FG_CLASS_CONNECT] = 3, [FG_CLASS_SILENT] = 1, [FG_CLASS_CUT] = 1, [FG_CLASS_RATE] = 2, [FG_CLASS_SERVER] = 2, [FG_CLASS_ANSWER] = 1};
  w->kind = kind;
  w->safe_until = KIND[kind].safe;
  w->after_silence = KIND[kind].silence;
  w->total_attempts = 4;
  w->per_route = KIND[kind].per_route;
  memcpy(w->per_class, PER_CLASS, sizeof PER_CLASS);
  w->call_resends = 6;
  w->overload_retries = 1;
  w->elapsed_ms = KIND[kind].elapsed_ms;
  w->call_elapsed_ms = UINT32_MAX;
  w->extra_cost_mode = w->extra_tokens_mode = FG_EXTRA_HOLDS;
  w->extra_cost_holds = w->extra_tokens_holds = KIND[kind].holds;
  w->extra_cost_nusd = -1;
  w->quality_drop_ppm = 1000000;
  w->hold_ms = 3000;
  w->slow_failure_ms = 10000;
  w->queue = KIND[kind].queue;
  w->queue_max_age_ms = 86400000;
  w->spill_mode = FG_SPILL_WHEN_NEEDED;
  w->spill_max_ppm = 1000000;
  w->hedge_max_ppm = 20000;
  w->connect_ms = 5000;
  w->idle_ms = 30000;
  w->progress_ms = 60000;
  w->stop_on = 1U << FG_OWNER_AUTH | 1U << FG_OWNER_POLICY;
  w->spend_per_day_nusd = -1;
}

uint32_t fg_card_standin(fg_card *c, fg_policy_workflow *w, const cJSON *name, uint32_t ladder_only) {
  if (!cJSON_IsString(name)) {
    FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(name), "; write a route's name");
    return UINT32_MAX;
  }
  uint32_t id = fg_card_find_route(c, name->valuestring);
  if (id == 0) {
    FG_FAIL(c, FG_LOAD_UNKNOWN_NAME, "no route is called ", fg_card_quote(c, name->valuestring), "; add it to routes or correct the name");
    return UINT32_MAX;
  }
  for (uint32_t i = 0; i < w->standin_count; i++) {
    if (w->standin[i].route == id - 1) {
      if (!ladder_only) {
        FG_FAIL(c, FG_LOAD_BAD_VALUE, "route ", fg_card_quote(c, name->valuestring), " is listed twice; leave one out");
        return UINT32_MAX;
      }
      return i;
    }
  }
  if (w->standin_count == FG_ROUTES_MAX) {
    FG_FAIL(c, FG_LOAD_LIMIT, "a workflow has at most 16 routes, those of its ladder included; leave some out");
    return UINT32_MAX;
  }
  fg_policy_standin *s = &w->standin[w->standin_count];
  s->route = id - 1;
  s->ladder_only = ladder_only;
  c->used[id - 1] = 1;
  return w->standin_count++;
}

static int read_routes(fg_card *c, const cJSON *list, fg_policy_workflow *w) {
  uint32_t i = 0;
  fg_card_push(c, "routes");
  if (list->child == NULL) {
    return FG_FAIL(c, FG_LOAD_MISSING, "the list is empty; name at least the primary route");
  }
  for (const cJSON *e = list->child; e != NULL; e = e->next) {
    fg_card_push_index(c, i++);
    if (fg_card_standin(c, w, e, 0) == UINT32_MAX) {
      return 0;
    }
    fg_card_pop(c);
  }
  fg_card_pop(c);
  return 1;
}

/* Name of the first route of the workflow without a price; len 0 when all have one. */
static fg_pstr unpriced(const fg_card *c, const fg_policy_workflow *w) {
  const fg_policy_route *routes = fg_block_at(&c->block, c->head.routes_off);
  for (uint32_t i = 0; i < w->standin_count; i++) {
    if (routes[w->standin[i].route].price_input == FG_PRICE_UNKNOWN) {
      return routes[w->standin[i].route].name;
    }
  }
  return (fg_pstr){0, 0};
}

static int need_prices(fg_card *c, const fg_policy_workflow *w, const char *object, const char *key) {
  fg_pstr route = unpriced(c, w);
  if (route.len == 0) {
    return 1;
  }
  if (object != NULL) {
    fg_card_push(c, object);
    fg_card_push(c, key);
  }
  const char *name = fg_card_quote(c, fg_block_at(&c->block, route.off));
  return FG_FAIL(c, FG_LOAD_UNPRICED_ROUTE, "money cannot be counted: route ", name, " has no price; add its price, or price: \"free\"");
}

static int read_budget(fg_card *c, workflow_in *in) {
  fg_policy_workflow *w = &in->w;
  uint64_t seen = 0;
  if (in->budget != NULL) {
    fg_card_push(c, "budget");
    if (!FG_READ(c, in->budget, BUDGET, w, &seen)) {
      return 0;
    }
    fg_card_pop(c);
  }
  if (!(seen & 1U << SEEN_PER_ROUTE)) {
    w->per_route = w->standin_count == 1 || w->standin[1].ladder_only ? w->total_attempts : fg_min32(w->per_route, w->total_attempts);
  }
  if (seen & 1U << SEEN_TOKENS) {
    w->extra_tokens_mode = FG_EXTRA_FIXED;
    w->extra_tokens_holds = 0;
  }
  int has_money = w->extra_cost_nusd >= 0;
  if (seen & 1U << SEEN_COST || unpriced(c, w).len > 0) {
    w->extra_cost_mode = FG_EXTRA_FIXED;
    w->extra_cost_holds = 0;
  }
  return !has_money || need_prices(c, w, "budget", "extra_cost_usd");
}

static int with_path(fg_card *c, const char *key, const cJSON *node, int (*read)(fg_card *, const cJSON *, fg_policy_workflow *), fg_policy_workflow *w) {
  if (node == NULL) {
    return 1;
  }
  fg_card_push(c, key);
  if (!read(c, node, w)) {
    return 0;
  }
  fg_card_pop(c);
  return 1;
}

static int read_workflow(fg_card *c, const cJSON *node, uint32_t id) {
  workflow_in in;
  memset(&in, 0, sizeof in);
  fg_policy_workflow *w = &in.w;
  fg_card_workflow *extra = &c->workflow[id - 1];
  defaults(w, kind_of(node));
  if (!FG_READ(c, node, WORKFLOW, &in, NULL) || !read_routes(c, in.routes, w) || !with_path(c, "ladder", in.ladder, fg_card_ladder, w) ||
      !read_budget(c, &in) || !with_path(c, "limits", in.limits, read_limits, w)) {
    return 0;
  }
  if (w->spend_per_day_nusd >= 0 && !need_prices(c, w, "limits", "spend_per_day_usd")) {
    return 0;
  }
  if (c->head.globals.spend_per_day_nusd >= 0 && !need_prices(c, w, NULL, NULL)) {
    return 0;
  }
  if (w->safe_until == FG_SAFE_FIRST_TOOL && w->after_visible == FG_AFTER_STOP) {
    fg_card_push(c, "safe_replay_until");
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "text may be visible before a tool starts: with first_tool_start write after_visible: restart or continue");
  }
  extra->min_cases = 1;
  extra->max_drop_ppm = 1000000;
  if (in.requires != NULL) {
    fg_card_push(c, "requires");
    if (!fg_card_requires(c, in.requires, w, extra)) {
      return 0;
    }
    fg_card_pop(c);
  }
  w->name = fg_block_text(&c->block, node->string, (uint32_t)strlen(node->string));
  if (c->block.failed) {
    return fg_card_nomem(c);
  }
  w->key = fg_card_hash(node->string, w->name.len);
  extra->node = node;
  extra->requires = in.requires;
  memcpy((fg_policy_workflow *)fg_block_at(&c->block, c->head.workflows_off) + (id - 1), w, sizeof *w);
  fg_card_index_add(&c->workflow_index, w->key, id);
  return 1;
}

int fg_card_workflows(fg_card *c) {
  uint32_t count = (uint32_t)cJSON_GetArraySize(c->workflows), id = 0;
  fg_card_push(c, "workflows");
  if (count == 0) {
    return FG_FAIL(c, FG_LOAD_MISSING, "there is no workflow; add one that names its routes");
  }
  if (count > FG_CARD_WORKFLOWS) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "at most 16384 workflows are allowed; split the card");
  }
  c->head.workflow_count = count;
  c->head.workflows_off = fg_block_reserve(&c->block, count * (uint64_t)sizeof(fg_policy_workflow));
  c->workflow = fg_scratch(c->mem, count * (uint64_t)sizeof *c->workflow);
  if (c->block.failed || c->workflow == NULL || !fg_index_init(&c->workflow_index, c->mem, count)) {
    return fg_card_nomem(c);
  }
  for (const cJSON *m = c->workflows->child; m != NULL; m = m->next) {
    fg_card_push(c, m->string);
    if (!fg_read_name_ok(c, m->string)) {
      return 0;
    }
    if (fg_card_find_workflow(c, m->string) != 0) {
      return fg_card_fail_parts(c, FG_LOAD_DUPLICATE_KEY, 1,
                                (const char *const[]){"this name is already given above; rename or remove one", NULL});
    }
    if (!read_workflow(c, m, ++id)) {
      return 0;
    }
    fg_card_pop(c);
  }
  fg_card_pop(c);
  return 1;
}
