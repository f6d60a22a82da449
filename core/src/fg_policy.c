/* Reading a policy block: what the public accessors answer, and the check of a block that came from elsewhere. */
#include "fg_policy.h"

#include "fg_math.h"

/* ------------------------------------------------------------- small checks */

static int sound(const fg_policy *p) {
  return p != NULL && p->magic == FG_POLICY_MAGIC && p->layout == FG_POLICY_LAYOUT && p->bytes >= sizeof *p && p->bytes <= UINT32_MAX;
}

static int inside(const fg_policy *p, uint32_t off, uint64_t count, uint64_t size) {
  return off >= sizeof *p && off % 8 == 0 && off <= p->bytes && count * size <= p->bytes - off;
}

static int text_inside(const fg_policy *p, fg_pstr s) {
  return s.len == 0 ? s.off < p->bytes : s.off >= sizeof *p && (uint64_t)s.off + s.len < p->bytes && fg_policy_pool(p)[s.off + s.len] == 0;
}

static int give(const fg_policy *p, fg_pstr s, fg_str *out) {
  if (!text_inside(p, s)) {
    return FG_ERR_RANGE;
  }
  *out = s.len > 0 ? fg_policy_str(p, s) : fg_str_make("", 0);
  return FG_OK;
}

/* Array of one kind of named thing. */
typedef struct kind { uint32_t off, count, stride, index_off, index_mask; } kind;

static int kind_of(const fg_policy *p, uint32_t what, kind *k) {
  if (!sound(p)) {
    return 0;
  }
  if (what == FG_FIND_ROUTE) {
    *k = (kind){p->routes_off, p->route_count, (uint32_t)sizeof(fg_policy_route), p->route_index_off, p->route_index_mask};
  } else if (what == FG_FIND_WORKFLOW) {
    *k = (kind){p->workflows_off, p->workflow_count, (uint32_t)sizeof(fg_policy_workflow), p->workflow_index_off, p->workflow_index_mask};
  } else if (what == FG_FIND_ACCOUNT) {
    *k = (kind){p->accounts_off, p->account_count, (uint32_t)sizeof(fg_policy_account), p->account_index_off, p->account_index_mask};
  } else {
    return 0;
  }
  return inside(p, k->off, k->count, k->stride) && inside(p, k->index_off, (uint64_t)k->index_mask + 1, sizeof(fg_policy_slot)) &&
         (k->index_mask & (k->index_mask + 1)) == 0;
}

/* The name is the first field of each. */
static fg_pstr name_of(const fg_policy *p, const kind *k, uint32_t id) {
  fg_pstr s;
  memcpy(&s, fg_policy_pool(p) + k->off + (uint64_t)(id - 1) * k->stride, sizeof s);
  return s;
}

/* --------------------------------------------------------------- accessors */

uint64_t fg_policy_bytes(const fg_policy *p) {
  return sound(p) ? p->bytes : 0;
}

int32_t fg_policy_fingerprint(const fg_policy *p, fg_str *out) {
  if (!sound(p) || out == NULL) {
    return FG_ERR_ARG;
  }
  return give(p, p->fingerprint, out);
}

uint32_t fg_policy_find(const fg_policy *p, uint32_t what, const char *name, uint32_t len) {
  kind k;
  if (name == NULL || len == 0 || !kind_of(p, what, &k)) {
    return 0;
  }
  const fg_policy_slot *slot = fg_policy_at(p, k.index_off);
  uint64_t hash = fg_hash64(0, name, len);
  hash = hash != 0 ? hash : 1;
  for (uint32_t i = 0, at = (uint32_t)hash & k.index_mask; i <= k.index_mask && slot[at].id != 0; i++, at = (at + 1) & k.index_mask) {
    if (slot[at].hash != hash || slot[at].id > k.count) {
      continue;
    }
    fg_pstr s = name_of(p, &k, slot[at].id);
    if (text_inside(p, s) && fg_eq(fg_policy_pool(p) + s.off, s.len, name, len)) {
      return slot[at].id;
    }
  }
  return 0;
}

uint32_t fg_policy_count(const fg_policy *p, uint32_t what) {
  kind k;
  return kind_of(p, what, &k) ? k.count : 0;
}

int32_t fg_policy_name(const fg_policy *p, uint32_t what, uint32_t id, fg_str *out) {
  kind k;
  if (out == NULL || !kind_of(p, what, &k) || id == 0 || id > k.count) {
    return FG_ERR_ARG;
  }
  return give(p, name_of(p, &k, id), out);
}

int32_t fg_policy_route_info(const fg_policy *p, uint32_t route, fg_route_info *out) {
  kind k, a;
  fg_route_info i;
  if (out == NULL || !kind_of(p, FG_FIND_ROUTE, &k) || !kind_of(p, FG_FIND_ACCOUNT, &a) || route == 0 || route > k.count) {
    return FG_ERR_ARG;
  }
  if (out->size < 8) {
    return FG_ERR_ABI;
  }
  const fg_policy_route *r = &fg_policy_routes(p)[route - 1];
  memset(&i, 0, sizeof i);
  i.size = fg_min32(out->size, (uint32_t)sizeof i);
  i.account = r->account + 1;
  i.price_input = r->price_input;
  i.price_cached = r->price_cached;
  i.price_output = r->price_output;
  if (i.account == 0 || i.account > a.count || give(p, r->name, &i.name) || give(p, r->provider, &i.provider) || give(p, r->model, &i.model) ||
      give(p, r->base_url, &i.base_url) || give(p, r->key_env, &i.key_env) || give(p, name_of(p, &a, i.account), &i.account_name) ||
      give(p, r->api, &i.api)) {
    return FG_ERR_RANGE;
  }
  memcpy(out, &i, i.size);
  return FG_OK;
}

int32_t fg_policy_preset(const fg_policy *p, uint32_t text, const char *language, uint32_t len, fg_str *out) {
  if (out == NULL || !sound(p) || text == 0 || !inside(p, p->texts_off, p->text_count, sizeof(fg_policy_text))) {
    return FG_ERR_ARG;
  }
  const fg_policy_text *t = fg_policy_at(p, p->texts_off);
  uint32_t lo = 0, hi = p->text_count;
  while (lo < hi) { /* the first of its id */
    uint32_t mid = lo + (hi - lo) / 2;
    if (t[mid].id < text) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  if (lo == p->text_count || t[lo].id != text) {
    return FG_ERR_ARG;
  }
  /* "en-GB" is served by "en-gb", else by "en", else by the first. */
  uint32_t best = lo, base = 0;
  while (language != NULL && base < len && language[base] != '-' && language[base] != '_') {
    base++;
  }
  for (uint32_t i = lo, found = 0; language != NULL && i < p->text_count && t[i].id == text; i++) {
    fg_pstr s = t[i].language;
    if (!text_inside(p, s)) {
      return FG_ERR_RANGE;
    }
    const char *own = fg_policy_pool(p) + s.off;
    uint32_t grade = fg_eq_nocase(own, s.len, language, len) ? 2 : fg_eq_nocase(own, s.len, language, base) ? 1 : 0;
    if (grade > found) {
      found = grade;
      best = i;
    }
  }
  return give(p, t[best].text, out);
}

int32_t fg_policy_lint(const fg_policy *p, uint32_t index, fg_error *out) {
  fg_error e;
  fg_str path, message;
  if (out == NULL || !sound(p)) {
    return FG_ERR_ARG;
  }
  if (out->size < 8) {
    return FG_ERR_ABI;
  }
  if (index >= p->globals.lint_count || !inside(p, p->globals.lint_off, p->globals.lint_count, sizeof(fg_policy_lint_entry))) {
    return FG_ERR_RANGE;
  }
  const fg_policy_lint_entry *l = (const fg_policy_lint_entry *)fg_policy_at(p, p->globals.lint_off) + index;
  if (give(p, l->path, &path) || give(p, l->message, &message)) {
    return FG_ERR_RANGE;
  }
  memset(&e, 0, sizeof e);
  e.size = fg_min32(out->size, (uint32_t)sizeof e);
  e.line = l->line;
  e.column = l->column;
  memcpy(e.path, path.ptr, fg_min32(path.len, (uint32_t)sizeof e.path - 1));
  memcpy(e.message, message.ptr, fg_min32(message.len, (uint32_t)sizeof e.message - 1));
  memcpy(out, &e, e.size);
  return FG_OK;
}

const fg_policy_standin *fg_policy_standin_of(const fg_policy *p, uint32_t workflow, uint32_t route) {
  kind k;
  if (!kind_of(p, FG_FIND_WORKFLOW, &k) || workflow == 0 || workflow > k.count) {
    return NULL;
  }
  const fg_policy_workflow *w = &fg_policy_workflows(p)[workflow - 1];
  for (uint32_t i = 0; i < w->standin_count && i < FG_ROUTES_MAX; i++) {
    if (w->standin[i].route + 1 == route) {
      return &w->standin[i];
    }
  }
  return NULL;
}

int32_t fg_policy_contract(const fg_policy *p, uint32_t workflow, uint32_t route, uint32_t *barred, fg_str *fingerprint) {
  const fg_policy_standin *s = fg_policy_standin_of(p, workflow, route);
  if (s == NULL || barred == NULL || fingerprint == NULL) {
    return FG_ERR_ARG;
  }
  *barred = s->barred;
  return give(p, s->fingerprint, fingerprint);
}

int32_t fg_policy_table_find(const fg_policy *p, uint32_t what, const char *name, uint32_t len) {
  if (!sound(p) || name == NULL || len == 0) {
    return 0;
  }
  if (what == FG_POLICY_ACCOUNTS) {
    uint32_t id = fg_policy_find(p, FG_FIND_ACCOUNT, name, len);
    return id != 0 ? (int32_t)id : -1;
  }
  uint32_t off = what == FG_POLICY_REGIONS ? p->regions_off : p->classes_off;
  uint32_t count = what == FG_POLICY_REGIONS ? p->region_count : p->class_count;
  const fg_pstr *table = fg_policy_at(p, off);
  for (uint32_t i = 0; inside(p, off, count, sizeof *table) && i < count; i++) {
    if (text_inside(p, table[i]) && fg_eq(fg_policy_pool(p) + table[i].off, table[i].len, name, len)) {
      return (int32_t)i + 1;
    }
  }
  return -1;
}

/* ----------------------------------------------- a block that came from elsewhere */

static int good_hashes(const fg_policy *p, uint32_t off, uint32_t count) {
  if (count == 0) {
    return 1;
  }
  if (count > FG_TOOLS_MAX || !inside(p, off, count, sizeof(uint64_t))) {
    return 0;
  }
  const uint64_t *list = fg_policy_at(p, off);
  for (uint32_t i = 1; i < count; i++) {
    if (list[i] < list[i - 1]) {
      return 0;
    }
  }
  return 1;
}

static int good_route(const fg_policy *p, const fg_policy_route *r) {
  const fg_pstr texts[] = {r->name, r->provider, r->model, r->version, r->base_url, r->key_env, r->api, r->quota_owner};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(texts); i++) {
    if (!text_inside(p, texts[i])) {
      return 0;
    }
  }
  uint64_t regions = p->region_count < 64 ? ((uint64_t)1 << p->region_count) - 1 : UINT64_MAX;
  uint64_t classes = p->class_count < 64 ? ((uint64_t)1 << p->class_count) - 1 : UINT64_MAX;
  return r->name.len > 0 && r->key != 0 && r->account < p->account_count && r->weight <= 1000000 && r->price_input >= FG_PRICE_UNKNOWN &&
         r->price_cached >= FG_PRICE_UNKNOWN && r->price_output >= FG_PRICE_UNKNOWN && r->cancel_stops <= FG_CANCEL_NO &&
         r->cancel_bills <= FG_CANCEL_NO && r->cancel_needs_stream <= FG_CANCEL_NO && r->lookup < FG_LOOKUP_COUNT &&
         (r->features_known & ~(uint32_t)FG_FEATURE_ALL) == 0 && (r->features & ~r->features_known) == 0 && (r->regions & ~regions) == 0 &&
         (r->data_classes & ~classes) == 0 && r->tools_known <= FG_TOOLS_ANY && good_hashes(p, r->tools_off, r->tools_count);
}

/* Children lie inside their parent, in preorder: bounded by the parent's skip. */
static int good_schema(const fg_policy *p, uint32_t off, uint32_t count) {
  if (count == 0) {
    return 1;
  }
  if (count > FG_SCHEMA_NODES || !inside(p, off, count, sizeof(fg_policy_schema_node))) {
    return 0;
  }
  const fg_policy_schema_node *n = fg_policy_at(p, off);
  if (n[0].skip != count) {
    return 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t at = i + 1;
    if (n[i].skip == 0 || n[i].skip > count - i || n[i].types > 127 || n[i].required > 1 || !text_inside(p, n[i].name) || n[i].enum_count > 256 ||
        (n[i].enum_count > 0 && !inside(p, n[i].enum_off, n[i].enum_count, sizeof(fg_pstr)))) {
      return 0;
    }
    for (uint32_t c = 0; c < n[i].child_count; c++) {
      if (at >= i + n[i].skip || n[at].skip == 0) {
        return 0;
      }
      at += n[at].skip;
    }
    if (at != i + n[i].skip) {
      return 0;
    }
    const fg_pstr *values = fg_policy_at(p, n[i].enum_off);
    for (uint32_t e = 0; e < n[i].enum_count; e++) {
      if (!text_inside(p, values[e])) {
        return 0;
      }
    }
  }
  return 1;
}

static int good_standin(const fg_policy *p, const fg_policy_standin *s) {
  return s->route < p->route_count && (s->barred == 0 || (s->barred >= FG_REASON_NO_STAND_IN && s->barred <= FG_REASON_MISSING_EVIDENCE)) &&
         text_inside(p, s->section) && text_inside(p, s->fingerprint) && text_inside(p, s->approved_by) && s->score_ppm <= 1000000 &&
         s->drop_ppm <= 1000000 && s->ladder_only <= 1 && s->prefill <= 1 && s->twin <= 1 && good_hashes(p, s->drop_tools_off, s->drop_tools_count);
}

static int good_workflow(const fg_policy *p, const fg_policy_workflow *w) {
  if (!text_inside(p, w->name) || w->name.len == 0 || w->key == 0 || w->kind > FG_WF_EFFECTFUL || w->order_card > 1 || w->standin_count == 0 ||
      w->standin_count > FG_ROUTES_MAX || w->safe_until > FG_SAFE_FIRST_TOOL || w->after_visible > FG_AFTER_CONTINUE ||
      w->after_silence > FG_SILENCE_ANY || w->spill_mode > FG_SPILL_PREFER_FAST || w->extra_cost_mode > FG_EXTRA_HOLDS ||
      w->extra_tokens_mode > FG_EXTRA_HOLDS || w->queue > 1 || w->hedge_enabled > 1 || w->ladder_count > FG_LADDER_MAX ||
      w->total_attempts == 0 || w->per_route == 0 || !good_schema(p, w->schema_off, w->schema_count)) {
    return 0;
  }
  for (uint32_t i = 0; i < w->standin_count; i++) {
    if (!good_standin(p, &w->standin[i])) {
      return 0;
    }
  }
  for (uint32_t i = 0; i < w->ladder_count; i++) {
    const fg_policy_rung *g = &w->ladder[i];
    if (g->step == FG_STEP_NONE || g->step >= FG_STEP_COUNT || g->standin >= w->standin_count || g->text > p->text_count) {
      return 0;
    }
  }
  return 1;
}

static int good_rule(const fg_policy *p, const fg_rule *r) {
  const fg_rtext texts[] = {r->provider, r->api,       r->code,      r->type,          r->error,           r->message, r->lib,
                            r->kind,     r->header[0], r->header[1], r->header_value[0], r->header_value[1], r->why};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(texts); i++) {
    if (!text_inside(p, (fg_pstr){texts[i].off, texts[i].len})) {
      return 0;
    }
  }
  return r->set_owner <= FG_OWNER_COUNT && r->set_kind <= FG_KIND_COUNT && r->set_class <= FG_CLASS_COUNT && r->set_scope <= FG_SCOPE_COUNT &&
         r->set_period <= FG_PERIOD_COUNT && r->set_billed <= FG_BILLED_COUNT && r->set_commit <= FG_COMMIT_COUNT &&
         r->set_repair <= FG_REPAIR_COUNT && r->set_overload <= 2 && r->set_trips_breaker <= 2 && r->set_should_retry <= 2;
}

static int good_names(const fg_policy *p, uint32_t off, uint32_t count) {
  const fg_pstr *table = fg_policy_at(p, off);
  if (count > 64 || !inside(p, off, count, sizeof *table)) {
    return 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (!text_inside(p, table[i])) {
      return 0;
    }
  }
  return 1;
}

static int good_texts(const fg_policy *p) {
  const fg_policy_text *t = fg_policy_at(p, p->texts_off);
  if (!inside(p, p->texts_off, p->text_count, sizeof *t)) {
    return 0;
  }
  for (uint32_t i = 0; i < p->text_count; i++) {
    if (!text_inside(p, t[i].language) || !text_inside(p, t[i].text) || (i > 0 && t[i].id < t[i - 1].id)) {
      return 0;
    }
  }
  return 1;
}

static int good_lint(const fg_policy *p) {
  const fg_policy_lint_entry *l = fg_policy_at(p, p->globals.lint_off);
  if (!inside(p, p->globals.lint_off, p->globals.lint_count, sizeof *l)) {
    return 0;
  }
  for (uint32_t i = 0; i < p->globals.lint_count; i++) {
    if (!text_inside(p, l[i].path) || !text_inside(p, l[i].message)) {
      return 0;
    }
  }
  return 1;
}

int32_t fg_policy_check(const fg_policy *p, uint64_t bytes) {
  kind k;
  if (p == NULL || ((uintptr_t)p & 7) != 0) {
    return FG_ERR_ARG;
  }
  if (bytes < sizeof *p || !sound(p) || p->bytes != bytes || !text_inside(p, p->fingerprint) || !text_inside(p, p->hash_key) ||
      p->globals.layers_product == 0 || !inside(p, p->rules_off, p->rule_count, sizeof(fg_rule)) ||
      !good_names(p, p->regions_off, p->region_count) || !good_names(p, p->classes_off, p->class_count) || !good_texts(p) || !good_lint(p)) {
    return FG_ERR_RANGE;
  }
  for (uint32_t what = FG_FIND_ROUTE; what <= FG_FIND_ACCOUNT; what++) {
    if (!kind_of(p, what, &k) || k.count == 0) {
      return FG_ERR_RANGE;
    }
    uint32_t used = 0;
    const fg_policy_slot *slot = fg_policy_at(p, k.index_off);
    for (uint32_t i = 0; i <= k.index_mask; i++) {
      used += slot[i].id != 0;
      if (slot[i].id > k.count) {
        return FG_ERR_RANGE;
      }
    }
    if (used != k.count) {
      return FG_ERR_RANGE;
    }
  }
  const fg_policy_account *a = fg_policy_accounts(p);
  for (uint32_t i = 0; i < p->account_count; i++) {
    if (!text_inside(p, a[i].name) || a[i].name.len == 0 || a[i].key == 0) {
      return FG_ERR_RANGE;
    }
  }
  for (uint32_t i = 0; i < p->route_count; i++) {
    if (!good_route(p, &fg_policy_routes(p)[i])) {
      return FG_ERR_RANGE;
    }
  }
  for (uint32_t i = 0; i < p->workflow_count; i++) {
    if (!good_workflow(p, &fg_policy_workflows(p)[i])) {
      return FG_ERR_RANGE;
    }
  }
  uint32_t rules = 0;
  const fg_rule *r = fg_policy_rules(p, &rules);
  for (uint32_t i = 0; i < rules; i++) {
    if (!good_rule(p, &r[i])) {
      return FG_ERR_RANGE;
    }
  }
  return FG_OK;
}
