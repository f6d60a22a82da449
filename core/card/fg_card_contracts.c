/* Contracts: the approval of one route as a stand-in for one workflow. Read first; then every stand-in of every workflow gets its
 * verdict: the sections, the evidence, the fingerprint, the price. */
#include "fg_card.h"
#include "fg_card_canon.h"
#include "fg_card_number.h"
#include "fg_card_sections.h"

/* ----------------------------------------------------------------- reading */

typedef struct contract_in {
  const cJSON *workflow, *route, *price, *evidence, *changes;
  fg_pstr fingerprint, approved_by;
  uint32_t twin;
} contract_in;

#define AT(field) (uint32_t)offsetof(contract_in, field)
static const fg_field CONTRACT[] = {
    {.name = "workflow", .kind = FG_FIELD_NODE, .flags = FG_MUST, .offset = AT(workflow)},
    {.name = "route", .kind = FG_FIELD_NODE, .flags = FG_MUST, .offset = AT(route)},
    {.name = "fingerprint", .kind = FG_FIELD_TEXT, .offset = AT(fingerprint), .max = 128},
    {.name = "approved_by", .kind = FG_FIELD_TEXT, .offset = AT(approved_by), .max = 256},
    {.name = "price", .kind = FG_FIELD_NODE, .offset = AT(price)},
    {.name = "evidence", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(evidence)},
    {.name = "twin", .kind = FG_FIELD_BOOL, .offset = AT(twin)},
    {.name = "changes", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(changes)},
};
#undef AT

/* Every route has the first two: evidence without them would fit none. */
static int read_model(fg_card *c, const cJSON *node, void *out) {
  static const fg_field MODEL[] = {
      {.name = "provider", .kind = FG_FIELD_TEXT, .flags = FG_MUST, .offset = (uint32_t)offsetof(fg_card_model, provider), .max = 64},
      {.name = "model", .kind = FG_FIELD_TEXT, .flags = FG_MUST, .offset = (uint32_t)offsetof(fg_card_model, model), .max = 256},
      {.name = "version", .kind = FG_FIELD_TEXT, .offset = (uint32_t)offsetof(fg_card_model, version), .max = 64},
  };
  return FG_READ(c, node, MODEL, out, NULL);
}

#define AT(field) (uint32_t)offsetof(fg_card_contract, field)
enum { EVIDENCE_CASES = 1, EVIDENCE_PASSED, EVIDENCE_SCORE, EVIDENCE_PRIMARY };
static const fg_field EVIDENCE[] = {
    {.name = "fixtures", .kind = FG_FIELD_TEXT, .offset = AT(fixtures), .max = 128},
    {.name = "cases", .kind = FG_FIELD_INT, .offset = AT(cases), .min = 0, .max = 1000000000},
    {.name = "passed", .kind = FG_FIELD_INT, .offset = AT(passed), .min = 0, .max = 1000000000},
    {.name = "score_ppm", .kind = FG_FIELD_INT, .offset = AT(score_ppm), .min = 0, .max = 1000000},
    {.name = "primary_score_ppm", .kind = FG_FIELD_INT, .offset = AT(primary_score_ppm), .min = 0, .max = 1000000},
    {.name = "measured_at", .kind = FG_FIELD_DATE, .offset = AT(measured_ms)},
    {.name = "expires_at", .kind = FG_FIELD_DATE, .offset = AT(expires_ms)},
    {.name = "route", .kind = FG_FIELD_CALL, .offset = AT(route_model), .read = read_model},
    {.name = "primary", .kind = FG_FIELD_CALL, .offset = AT(primary_model), .read = read_model},
};
#undef AT

static int read_evidence(fg_card *c, const cJSON *node, fg_card_contract *k) {
  uint64_t seen = 0;
  if (!FG_READ(c, node, EVIDENCE, k, &seen)) {
    return 0;
  }
  k->has_cases = (seen >> EVIDENCE_CASES) & 1;
  k->has_passed = (seen >> EVIDENCE_PASSED) & 1;
  k->has_score = (seen >> EVIDENCE_SCORE) & 1;
  k->has_primary_score = (seen >> EVIDENCE_PRIMARY) & 1;
  if (k->has_cases && k->has_passed && k->passed > k->cases) {
    fg_card_push(c, "passed");
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_number_text(c, k->passed, 0), " passed of ", fg_card_number_text(c, k->cases, 0), " cases; correct one of them");
  }
  if (k->measured_ms >= 0 && k->expires_ms >= 0 && k->expires_ms <= k->measured_ms) {
    fg_card_push(c, "expires_at");
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the evidence expires before it was measured; correct one of the dates");
  }
  return 1;
}

static int read_drop_tools(fg_card *c, const cJSON *node, void *out) {
  fg_card_contract *k = out;
  uint32_t i = 0;
  if (!fg_read_type(c, node, FG_ARRAY)) {
    return 0;
  }
  for (const cJSON *e = node->child; e != NULL; e = e->next) {
    fg_pstr unused;
    fg_card_push_index(c, i++);
    if (i > FG_TOOLS_MAX) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "at most 128 tools are allowed; \"*\" stands for all");
    }
    if (!fg_read_text(c, e, FG_NAME_MAX, &unused)) {
      return 0;
    }
    fg_card_pop(c);
  }
  return fg_card_tool_list(c, node, &k->drop_tools_off, &k->drop_tools_count, &k->drop_tools_all);
}

static int same_model(fg_card *c, const fg_card_contract *k) {
  const fg_policy_workflow *w = (const fg_policy_workflow *)fg_block_at(&c->block, c->head.workflows_off) + k->workflow;
  const fg_policy_route *routes = fg_block_at(&c->block, c->head.routes_off);
  const fg_policy_route *a = &routes[w->standin[0].route], *b = &routes[w->standin[k->standin].route];
  if (a->provider.off == b->provider.off && a->model.off == b->model.off && a->version.off == b->version.off) { /* interned */
    return 1;
  }
  fg_card_push(c, "twin");
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, "a twin has the primary's provider, model and version; this route has not: state its sections instead");
}

static int find_pair(fg_card *c, const contract_in *in, fg_card_contract *k) {
  const cJSON *names[2] = {in->workflow, in->route};
  const char *keys[2] = {"workflow", "route"};
  uint32_t id[2];
  for (uint32_t i = 0; i < 2; i++) {
    fg_card_push(c, keys[i]);
    if (!cJSON_IsString(names[i])) {
      return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(names[i]), "; write a name");
    }
    id[i] = i == 0 ? fg_card_find_workflow(c, names[i]->valuestring) : fg_card_find_route(c, names[i]->valuestring);
    if (id[i] == 0) {
      return FG_FAIL(c, FG_LOAD_UNKNOWN_NAME, "no ", keys[i], " is called ", fg_card_quote(c, names[i]->valuestring), "; correct the name or remove the contract");
    }
    fg_card_pop(c);
  }
  const fg_policy_workflow *w = (const fg_policy_workflow *)fg_block_at(&c->block, c->head.workflows_off) + (id[0] - 1);
  k->workflow = id[0] - 1;
  for (k->standin = 0; k->standin < w->standin_count; k->standin++) {
    if (w->standin[k->standin].route == id[1] - 1) {
      return 1;
    }
  }
  fg_card_push(c, "route");
  return FG_FAIL(c, FG_LOAD_UNKNOWN_NAME, "workflow ", fg_card_quote(c, names[0]->valuestring), " does not use route ", fg_card_quote(c, names[1]->valuestring),
                 "; add it to its routes or remove the contract");
}

static int read_contract(fg_card *c, const cJSON *node, uint32_t index) {
  fg_card_contract *k = &c->contract[index];
  contract_in in;
  memset(&in, 0, sizeof in);
  k->node = node;
  k->index = index;
  k->measured_ms = k->expires_ms = -1;
  k->price.input = FG_PRICE_UNKNOWN;
  if (!FG_READ(c, node, CONTRACT, &in, NULL) || !find_pair(c, &in, k)) {
    return 0;
  }
  k->fingerprint = in.fingerprint;
  k->approved_by = in.approved_by;
  k->twin = in.twin;
  uint32_t *slot = &c->workflow[k->workflow].contract[k->standin];
  if (*slot != 0) {
    return FG_FAIL(c, FG_LOAD_DUPLICATE_KEY, "contracts[", fg_card_number_text(c, *slot - 1, 0), "] is about the same workflow and route; leave one out");
  }
  *slot = index + 1;
  if (k->twin && !same_model(c, k)) {
    return 0;
  }
  if (in.price != NULL) {
    fg_card_push(c, "price");
    if (!fg_card_read_price(c, in.price, &k->price)) {
      return 0;
    }
    fg_card_pop(c);
  }
  if (in.evidence != NULL) {
    fg_card_push(c, "evidence");
    if (!read_evidence(c, in.evidence, k)) {
      return 0;
    }
    fg_card_pop(c);
  }
  if (in.changes != NULL) {
    static const fg_field CHANGES[] = {{.name = "drop_tools", .kind = FG_FIELD_CALL, .offset = 0, .read = read_drop_tools}};
    fg_card_push(c, "changes");
    if (!FG_READ(c, in.changes, CHANGES, k, NULL)) {
      return 0;
    }
    fg_card_pop(c);
  }
  fg_pstr f = k->fingerprint;
  if (f.len > 0 && fg_eq(c->block.ptr + f.off, f.len, "auto", 4) && !(c->flags & FG_CARD_AUTO_FINGERPRINT)) {
    fg_card_push(c, "fingerprint");
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "\"auto\" is for test vectors only; write the fingerprint that was approved");
  }
  return 1;
}

/* ------------------------------------------------------------- fingerprint */

typedef struct lines { fg_canon out; char buf[512]; fg_sha256 sha; } lines;

static void begin_line(lines *l, const char *first, const char *second) {
  fg_canon_put(&l->out, first, (uint32_t)strlen(first));
  fg_canon_put(&l->out, second, (uint32_t)strlen(second));
  fg_canon_put(&l->out, "=", 1);
}

static int section_lines(fg_card *c, lines *l, const char *side, const fg_sections *s) {
  for (uint32_t key = 0; key < FG_KEY_COUNT; key++) {
    if (s->value[key] != NULL) {
      begin_line(l, side, fg_sections_name(key));
      if (!fg_canon_value(c, &l->out, s->value[key], FG_CANON_SORT_LISTS)) {
        return 0;
      }
      fg_canon_put(&l->out, "\n", 1);
    }
  }
  return 1;
}

static int text_line(fg_card *c, lines *l, const char *key, fg_pstr text) {
  if (text.len == 0) {
    return 1;
  }
  cJSON node;
  memset(&node, 0, sizeof node);
  node.type = cJSON_String;
  node.valuestring = fg_block_at(&c->block, text.off);
  begin_line(l, "route.", key);
  if (!fg_canon_value(c, &l->out, &node, 0)) {
    return 0;
  }
  fg_canon_put(&l->out, "\n", 1);
  return 1;
}

/* Byte order puts provides before requires before route, and the keys of a section in their table's order. */
static int fingerprint(fg_card *c, const fg_sections *requires, const fg_sections *provides, const fg_policy_route *r, fg_pstr *out) {
  lines l;
  char text[FG_FINGERPRINT_LEN + 1];
  fg_sha256_init(&l.sha);
  fg_canon_init(&l.out, &l.sha, l.buf, sizeof l.buf);
  if (!section_lines(c, &l, "provides.", provides) || !section_lines(c, &l, "requires.", requires) || !text_line(c, &l, "model", r->model) ||
      !text_line(c, &l, "provider", r->provider) || !text_line(c, &l, "version", r->version)) {
    return 0;
  }
  fg_canon_flush(&l.out);
  fg_sha256_text(&l.sha, text);
  *out = fg_block_text(&c->block, text, FG_FINGERPRINT_LEN);
  return c->block.failed ? fg_card_nomem(c) : 1;
}

/* ----------------------------------------------------------------- verdict */

static int bar(fg_card *c, fg_policy_standin *s, uint32_t reason, const char *section) {
  s->barred = reason;
  s->section = section != NULL ? fg_block_text(&c->block, section, (uint32_t)strlen(section)) : (fg_pstr){0, 0};
  return c->block.failed ? fg_card_nomem(c) : 1;
}

static const char *missing_evidence(const fg_card_contract *k) {
  if (k->twin && !k->has_cases && !k->has_passed && !k->has_score && k->measured_ms < 0) {
    return NULL; /* the same model: nothing to measure */
  }
  return !k->has_cases || k->cases == 0 ? "evidence.cases"
         : !k->has_passed               ? "evidence.passed"
         : !k->has_score                ? "evidence.score_ppm"
         : k->measured_ms < 0           ? "evidence.measured_at"
         : k->expires_ms < 0            ? "evidence.expires_at"
                                        : NULL;
}

/* What was measured, if the evidence says it, and is no longer what the card names. Texts are interned: the same is at the same place. */
static int is_another(const fg_card_model *m, const fg_policy_route *r) {
  return m->provider.len > 0 && (m->provider.off != r->provider.off || m->model.off != r->model.off || m->version.off != r->version.off);
}

static const char *old_evidence(const fg_card_contract *k, const fg_policy_route *r, const fg_policy_route *primary) {
  return is_another(&k->route_model, r) ? "evidence.route" : is_another(&k->primary_model, primary) ? "evidence.primary" : NULL;
}

static const char *poor_evidence(fg_card *c, const fg_card_contract *k, const fg_card_workflow *extra, const fg_sections *requires, uint32_t drop_ppm) {
  const cJSON *fixtures = requires->value[FG_KEY_QUALITY_FIXTURES];
  if (k->twin && !k->has_score) {
    return NULL;
  }
  if (k->cases < extra->min_cases) {
    return "quality.cases_min";
  }
  if (fixtures != NULL && !fg_eq(fixtures->valuestring, (uint32_t)strlen(fixtures->valuestring), c->block.ptr + k->fixtures.off, k->fixtures.len)) {
    return "quality.fixtures";
  }
  if (drop_ppm > extra->max_drop_ppm) {
    return "quality.max_drop_ppm";
  }
  return k->score_ppm < extra->min_score_ppm ? "quality.min_score_ppm" : NULL;
}

static int judge(fg_card *c, fg_policy_standin *s, const fg_card_workflow *extra, const fg_card_contract *k, const fg_sections *requires,
                 const fg_sections *provides, const fg_policy_route *r, const fg_policy_route *primary) {
  if (k == NULL) {
    return bar(c, s, FG_REASON_NOT_APPROVED, NULL);
  }
  s->approved_by = k->approved_by;
  s->twin = k->twin;
  s->measured_unix_ms = k->measured_ms >= 0 ? k->measured_ms : 0;
  s->expires_unix_ms = k->expires_ms >= 0 ? k->expires_ms : 0;
  s->score_ppm = k->has_score || !k->twin ? k->score_ppm : 1000000;
  uint32_t best = k->has_primary_score ? k->primary_score_ppm : 1000000; /* not stated: the worst drop */
  s->drop_ppm = fg_sub32(best, s->score_ppm);
  s->drop_tools_off = k->drop_tools_off;
  s->drop_tools_count = k->drop_tools_count;
  s->drop_tools_all = k->drop_tools_all;
  if (k->fingerprint.len == 0) {
    return bar(c, s, FG_REASON_NOT_APPROVED, "fingerprint");
  }
  uint32_t key = fg_sections_compare(requires, provides, r, k->twin);
  if (key != FG_KEY_COUNT) {
    return bar(c, s, FG_REASON_CONTRACT_SECTION_FAILS, fg_sections_name(key));
  }
  const char *why = missing_evidence(k);
  if (why != NULL) {
    return bar(c, s, FG_REASON_MISSING_EVIDENCE, why);
  }
  why = old_evidence(k, r, primary); /* before the scores: another model's say nothing */
  if (why != NULL) {
    return bar(c, s, FG_REASON_CONTRACT_STALE, why);
  }
  why = poor_evidence(c, k, extra, requires, s->drop_ppm);
  if (why != NULL) {
    return bar(c, s, FG_REASON_CONTRACT_SECTION_FAILS, why);
  }
  fg_pstr f = k->fingerprint;
  int is_auto = fg_eq(c->block.ptr + f.off, f.len, "auto", 4);
  if (!is_auto && f.off != s->fingerprint.off) {
    return bar(c, s, FG_REASON_CONTRACT_STALE, "fingerprint");
  }
  int64_t was, now; /* last: a price alone needs no new measurement, and a new approval writes both */
  return fg_card_price_changed(&k->price, r, &was, &now) == NULL ? 1 : bar(c, s, FG_REASON_CONTRACT_STALE, "price");
}

static int judge_workflow(fg_card *c, uint32_t index) {
  const fg_card_workflow *extra = &c->workflow[index];
  fg_policy_workflow w; /* the block may move while texts are added */
  memcpy(&w, (const fg_policy_workflow *)fg_block_at(&c->block, c->head.workflows_off) + index, sizeof w);
  fg_sections requires, provides;
  if (!fg_sections_read(c, extra->requires, FG_SIDE_REQUIRES, &requires)) {
    return 0;
  }
  const cJSON *grant = requires.value[FG_KEY_SAFETY_OTHER_VENDOR];
  for (uint32_t i = 0; i < w.standin_count; i++) {
    fg_policy_standin *s = &w.standin[i];
    fg_policy_route r, primary;
    memcpy(&r, (const fg_policy_route *)fg_block_at(&c->block, c->head.routes_off) + s->route, sizeof r);
    memcpy(&primary, (const fg_policy_route *)fg_block_at(&c->block, c->head.routes_off) + w.standin[0].route, sizeof r);
    if (!fg_sections_read(c, c->provides[s->route], FG_SIDE_PROVIDES, &provides) || !fingerprint(c, &requires, &provides, &r, &s->fingerprint)) {
      return 0;
    }
    s->prefill = (r.features & FG_FEATURE_PREFILL) != 0;
    if (i == 0) {
      s->score_ppm = 1000000;
      continue;
    }
    s->other_vendor_after_refusal = cJSON_IsTrue(grant) && !cJSON_IsFalse(provides.value[FG_KEY_SAFETY_OTHER_VENDOR]);
    s->other_budget = r.quota_owner_key != 0 && primary.quota_owner_key != 0 && r.quota_owner_key != primary.quota_owner_key;
    const fg_card_contract *k = extra->contract[i] != 0 ? &c->contract[extra->contract[i] - 1] : NULL;
    if (!judge(c, s, extra, k, &requires, &provides, &r, &primary)) {
      return 0;
    }
    if (s->twin && !(r.features_known & FG_FEATURE_PREFILL)) {
      s->prefill = w.standin[0].prefill;
    }
  }
  memcpy((fg_policy_workflow *)fg_block_at(&c->block, c->head.workflows_off) + index, &w, sizeof w);
  return 1;
}

/* A smaller model's own floor, once its evidence is known. */
static int judge_ladder(fg_card *c, uint32_t index) {
  fg_policy_workflow *w = (fg_policy_workflow *)fg_block_at(&c->block, c->head.workflows_off) + index;
  for (uint32_t i = 0; i < w->ladder_count; i++) {
    fg_policy_standin *s = &w->standin[w->ladder[i].standin];
    if (w->ladder[i].step == FG_STEP_SMALLER_MODEL && s->ladder_only && s->barred == 0 && s->score_ppm < w->ladder[i].min_score_ppm) {
      fg_policy_standin copy = *s;
      if (!bar(c, &copy, FG_REASON_CONTRACT_SECTION_FAILS, "quality.min_score_ppm")) {
        return 0;
      }
      w = (fg_policy_workflow *)fg_block_at(&c->block, c->head.workflows_off) + index;
      w->standin[w->ladder[i].standin] = copy;
    }
  }
  return 1;
}

int fg_card_contracts(fg_card *c) {
  uint32_t count = c->contracts != NULL ? (uint32_t)cJSON_GetArraySize(c->contracts) : 0, i = 0;
  c->contract_count = count;
  c->contract = fg_scratch(c->mem, (count + (uint64_t)1) * sizeof *c->contract);
  if (c->contract == NULL) {
    return fg_card_nomem(c);
  }
  c->in_contracts = 1;
  fg_card_push(c, "contracts");
  for (const cJSON *e = count > 0 ? c->contracts->child : NULL; e != NULL; e = e->next, i++) {
    fg_card_push_index(c, i);
    if (!read_contract(c, e, i)) {
      return 0;
    }
    fg_card_pop(c);
  }
  fg_card_pop(c);
  c->in_contracts = 0;
  for (i = 0; i < c->head.workflow_count; i++) {
    if (!judge_workflow(c, i) || !judge_ladder(c, i)) {
      return 0;
    }
  }
  return 1;
}
