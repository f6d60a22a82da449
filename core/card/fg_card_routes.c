/* Accounts and routes: who answers, at what price, with what share, and what it declares to provide. */
#include "fg_card_number.h"
#include "fg_card_read.h"
#include "fg_math.h"

/* ---------------------------------------------------------------- accounts */

int fg_card_quota(fg_card *c, const cJSON *node, fg_policy_quota *out) {
  enum { MAX = 1000000000 };
  static const fg_field QUOTA[] = {
      {.name = "in_flight", .kind = FG_FIELD_INT, .offset = (uint32_t)offsetof(fg_policy_quota, in_flight), .min = 1, .max = MAX},
      {.name = "requests_per_minute", .kind = FG_FIELD_INT, .offset = (uint32_t)offsetof(fg_policy_quota, rpm), .min = 1, .max = MAX},
      {.name = "tokens_per_minute", .kind = FG_FIELD_INT, .offset = (uint32_t)offsetof(fg_policy_quota, tpm), .min = 1, .max = MAX},
  };
  return FG_READ(c, node, QUOTA, out, NULL);
}

static int read_quota(fg_card *c, const cJSON *node, void *out) {
  return fg_card_quota(c, node, out);
}

uint32_t fg_card_account(fg_card *c, const char *name) {
  uint32_t id = fg_card_find_account(c, name), len = (uint32_t)strlen(name);
  if (id != 0) {
    return id;
  }
  fg_policy_account *a = &c->account[c->account_count];
  a->name = fg_block_text(&c->block, name, len);
  if (c->block.failed) {
    fg_card_nomem(c);
    return 0;
  }
  a->key = fg_card_hash(name, len);
  id = ++c->account_count;
  fg_card_index_add(&c->account_index, a->key, id);
  return id;
}

static int duplicate(fg_card *c) {
  return fg_card_fail_parts(c, FG_LOAD_DUPLICATE_KEY, 1,
                            (const char *const[]){"this name is already given above; rename or remove one", NULL});
}

int fg_card_accounts(fg_card *c) {
  static const fg_field ACCOUNT[] = {
      {.name = "quota", .kind = FG_FIELD_CALL, .offset = (uint32_t)offsetof(fg_policy_account, quota), .read = read_quota},
  };
  uint64_t declared = c->accounts != NULL ? (uint64_t)cJSON_GetArraySize(c->accounts) : 0;
  uint64_t routes = (uint64_t)cJSON_GetArraySize(c->routes);
  if (declared > FG_CARD_ROUTES || routes > FG_CARD_ROUTES) {
    fg_card_push(c, declared > FG_CARD_ROUTES ? "accounts" : "routes");
    return FG_FAIL(c, FG_LOAD_LIMIT, "at most 65535 are allowed; split the card");
  }
  uint32_t most = (uint32_t)(declared + routes);
  c->account = fg_scratch(c->mem, (most + (uint64_t)1) * sizeof *c->account);
  if (c->account == NULL || !fg_index_init(&c->account_index, c->mem, most)) {
    return fg_card_nomem(c);
  }
  if (declared == 0) {
    return 1;
  }
  fg_card_push(c, "accounts");
  for (const cJSON *m = c->accounts->child; m != NULL; m = m->next) {
    fg_card_push(c, m->string);
    if (!fg_read_name_ok(c, m->string)) {
      return 0;
    }
    if (fg_card_find_account(c, m->string) != 0) {
      return duplicate(c);
    }
    uint32_t id = fg_card_account(c, m->string);
    if (id == 0 || !FG_READ(c, m, ACCOUNT, &c->account[id - 1], NULL)) {
      return 0;
    }
    fg_card_pop(c);
  }
  fg_card_pop(c);
  return 1;
}

/* ------------------------------------------------------- what vendors do */

typedef struct vendor { const char *name; uint32_t lookup, stops, bills; } vendor;

/* How a lost attempt can be found afterwards, and what hanging up does: only what the vendors' own words say. Streams only. */
static const vendor VENDORS[] = {
    {"openai", FG_LOOKUP_METADATA_LIST, FG_CANCEL_YES, FG_CANCEL_UNKNOWN},
    {"azure-openai", FG_LOOKUP_METADATA_LIST, FG_CANCEL_UNKNOWN, FG_CANCEL_UNKNOWN},
    {"anthropic", FG_LOOKUP_NONE_EXISTS, FG_CANCEL_UNKNOWN, FG_CANCEL_UNKNOWN},
    {"gemini", FG_LOOKUP_NONE_EXISTS, FG_CANCEL_NO, FG_CANCEL_YES},
    {"vertex", FG_LOOKUP_NONE_EXISTS, FG_CANCEL_NO, FG_CANCEL_YES},
    {"bedrock", FG_LOOKUP_INVOCATION_LOG, FG_CANCEL_NO, FG_CANCEL_YES},
    {"openrouter", FG_LOOKUP_GENERATION_ID, FG_CANCEL_YES, FG_CANCEL_YES},
    {"deepseek", FG_LOOKUP_NONE_EXISTS, FG_CANCEL_UNKNOWN, FG_CANCEL_UNKNOWN},
    {"dashscope", FG_LOOKUP_NONE_EXISTS, FG_CANCEL_NO, FG_CANCEL_YES},
    {"litellm", FG_LOOKUP_SPEND_LOG, FG_CANCEL_UNKNOWN, FG_CANCEL_UNKNOWN},
};

const char *fg_card_vendor_near(const char *provider) {
  for (uint32_t i = 0; i < FG_ARRAY_LEN(VENDORS); i++) {
    if (strcmp(VENDORS[i].name, provider) == 0) {
      return NULL;
    }
  }
  return fg_card_nearest(provider, &VENDORS[0].name, (uint32_t)FG_ARRAY_LEN(VENDORS), sizeof *VENDORS);
}

static void vendor_defaults(fg_policy_route *r, fg_str provider, fg_str api) {
  for (uint32_t i = 0; i < FG_ARRAY_LEN(VENDORS); i++) {
    if (fg_str_eq(fg_str_of(VENDORS[i].name), provider)) {
      r->lookup = VENDORS[i].lookup;
      r->cancel_stops = r->cancel_stops == UINT32_MAX ? VENDORS[i].stops : r->cancel_stops;
      r->cancel_bills = r->cancel_bills == UINT32_MAX ? VENDORS[i].bills : r->cancel_bills;
    }
  }
  if (r->lookup == FG_LOOKUP_METADATA_LIST && FG_IS(api, "responses")) {
    r->lookup = FG_LOOKUP_RESPONSE_ID;
  }
  r->cancel_stops = r->cancel_stops == UINT32_MAX ? FG_CANCEL_UNKNOWN : r->cancel_stops;
  r->cancel_bills = r->cancel_bills == UINT32_MAX ? FG_CANCEL_UNKNOWN : r->cancel_bills;
}

/* ------------------------------------------------------------------ routes */

int fg_card_read_price(fg_card *c, const cJSON *node, fg_card_price *out) {
  enum { USD = 1000000000 };
#define AT(field) (uint32_t)offsetof(fg_card_price, field)
  static const fg_field PRICE[] = {
      {.name = "input", .kind = FG_FIELD_MONEY, .flags = FG_MUST, .offset = AT(input), .max = (int64_t)1000000 * USD},
      {.name = "cached_input", .kind = FG_FIELD_MONEY, .offset = AT(cached), .max = (int64_t)1000000 * USD},
      {.name = "output", .kind = FG_FIELD_MONEY, .flags = FG_MUST, .offset = AT(output), .max = (int64_t)1000000 * USD},
  };
#undef AT
  out->input = out->cached = out->output = FG_PRICE_UNKNOWN;
  if (cJSON_IsString(node) && strcmp(node->valuestring, "free") == 0) {
    out->input = out->cached = out->output = 0;
    return 1;
  }
  if (!cJSON_IsObject(node)) {
    return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(node), "; write {input, cached_input, output} in USD per million tokens, or \"free\"");
  }
  if (!FG_READ(c, node, PRICE, out, NULL)) {
    return 0;
  }
  if (out->cached == FG_PRICE_UNKNOWN) {
    out->cached = out->input; /* no discount known */
  }
  return 1;
}

const char *fg_card_price_changed(const fg_card_price *approved, const fg_policy_route *r, int64_t *was, int64_t *now) {
  const struct { const char *part; int64_t was, now; } PARTS[] = {
      {"input", approved->input, r->price_input}, {"cached_input", approved->cached, r->price_cached}, {"output", approved->output, r->price_output}};
  for (uint32_t i = 0; approved->input != FG_PRICE_UNKNOWN && i < FG_ARRAY_LEN(PARTS); i++) {
    if (PARTS[i].was != PARTS[i].now) {
      *was = PARTS[i].was;
      *now = PARTS[i].now;
      return PARTS[i].part;
    }
  }
  return NULL;
}

static int read_price(fg_card *c, const cJSON *node, void *out) {
  fg_policy_route *r = out;
  fg_card_price price;
  if (!fg_card_read_price(c, node, &price)) {
    return 0;
  }
  r->price_input = price.input;
  r->price_cached = price.cached;
  r->price_output = price.output;
  return 1;
}

static int read_tristate(fg_card *c, const cJSON *node, void *out) {
  static const char *const WORDS[] = {"unknown", "yes", "no", NULL};
  uint32_t value = 0;
  if (cJSON_IsBool(node)) {
    value = cJSON_IsTrue(node) ? FG_CANCEL_YES : FG_CANCEL_NO;
  } else if (!fg_read_word(c, node, WORDS, &value)) {
    return 0;
  }
  memcpy(out, &value, sizeof value);
  return 1;
}

static int read_cancel(fg_card *c, const cJSON *node, void *out) {
#define AT(field) (uint32_t)offsetof(fg_policy_route, field)
  static const fg_field CANCEL[] = {
      {.name = "stops", .kind = FG_FIELD_CALL, .offset = AT(cancel_stops), .read = read_tristate},
      {.name = "bills", .kind = FG_FIELD_CALL, .offset = AT(cancel_bills), .read = read_tristate},
      {.name = "needs_stream", .kind = FG_FIELD_CALL, .offset = AT(cancel_needs_stream), .read = read_tristate},
  };
  return FG_READ(c, node, CANCEL, out, NULL);
}

typedef struct route_in { fg_policy_route route; const cJSON *price, *on_cancel, *account, *provides; } route_in;

#define R(field) (uint32_t)offsetof(route_in, route.field)
#define IN(field) (uint32_t)offsetof(route_in, field)
static const fg_field ROUTE[] = {
    {.name = "provider", .kind = FG_FIELD_TEXT, .flags = FG_MUST, .offset = R(provider), .max = 64},
    {.name = "model", .kind = FG_FIELD_TEXT, .flags = FG_MUST, .offset = R(model), .max = 256},
    {.name = "version", .kind = FG_FIELD_TEXT, .offset = R(version), .max = 64},
    {.name = "account", .kind = FG_FIELD_NODE, .offset = IN(account)},
    {.name = "base_url", .kind = FG_FIELD_TEXT, .offset = R(base_url), .max = 512},
    {.name = "key_env", .kind = FG_FIELD_TEXT, .offset = R(key_env), .max = 64},
    {.name = "api", .kind = FG_FIELD_TEXT, .offset = R(api), .max = 64},
    {.name = "weight", .kind = FG_FIELD_INT, .offset = R(weight), .min = 0, .max = 1000000},
    {.name = "price", .kind = FG_FIELD_NODE, .offset = IN(price)},
    {.name = "on_cancel", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = IN(on_cancel)},
    {.name = "quota", .kind = FG_FIELD_CALL, .offset = R(quota), .read = read_quota},
    {.name = "provides", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = IN(provides)},
};
#undef R
#undef IN

static int account_of(fg_card *c, const route_in *in, uint32_t *index) {
  char name[2 * FG_NAME_MAX + 2];
  const char *text = name;
  if (in->account != NULL) {
    fg_card_push(c, "account");
    if (!cJSON_IsString(in->account)) {
      return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(in->account), "; write an account's name");
    }
    text = in->account->valuestring;
    if (!fg_read_name_ok(c, text)) {
      return 0;
    }
    fg_card_pop(c);
  } else { /* provider:key_env */
    fg_pstr p = in->route.provider, k = in->route.key_env;
    if (p.len + 1 + k.len > FG_NAME_MAX) {
      fg_card_push(c, "account");
      return FG_FAIL(c, FG_LOAD_MISSING, "provider and key_env are too long to make an account's name; add account");
    }
    memcpy(name, fg_block_at(&c->block, p.off), p.len);
    if (k.len > 0) {
      name[p.len] = ':';
      memcpy(name + p.len + 1, fg_block_at(&c->block, k.off), k.len);
    }
    name[p.len + (k.len > 0 ? 1 + k.len : 0)] = 0;
  }
  uint32_t id = fg_card_account(c, text);
  *index = id - 1;
  return id != 0;
}

/* A breaker's history belongs to this key: another model or endpoint under an old name begins anew. */
static uint64_t route_key(const fg_card *c, const fg_policy_route *r) {
  const fg_pstr parts[] = {r->name, r->provider, r->model, r->base_url, c->account[r->account].name};
  uint64_t key = 0;
  for (uint32_t i = 0; i < FG_ARRAY_LEN(parts); i++) {
    key = fg_hash64(key + i + 1, fg_block_at(&c->block, parts[i].off), parts[i].len);
  }
  return key != 0 ? key : 1;
}

static int read_route(fg_card *c, const cJSON *node, uint32_t id) {
  route_in in;
  memset(&in, 0, sizeof in);
  fg_policy_route *r = &in.route;
  r->weight = 1;
  r->price_input = r->price_cached = r->price_output = FG_PRICE_UNKNOWN;
  r->cancel_stops = r->cancel_bills = UINT32_MAX;
  r->cancel_needs_stream = FG_CANCEL_YES;
  if (!FG_READ(c, node, ROUTE, &in, NULL)) {
    return 0;
  }
  struct { const char *key; const cJSON *node; fg_read_fn read; } later[] = {{"price", in.price, read_price}, {"on_cancel", in.on_cancel, read_cancel}};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(later); i++) {
    if (later[i].node != NULL) {
      fg_card_push(c, later[i].key);
      if (!later[i].read(c, later[i].node, r)) {
        return 0;
      }
      fg_card_pop(c);
    }
  }
  if (in.provides != NULL) {
    fg_card_push(c, "provides");
    if (!fg_card_provides(c, in.provides, r)) {
      return 0;
    }
    fg_card_pop(c);
  }
  r->name = fg_block_text(&c->block, node->string, (uint32_t)strlen(node->string));
  if (!account_of(c, &in, &r->account)) {
    return 0;
  }
  if (c->block.failed) {
    return fg_card_nomem(c);
  }
  vendor_defaults(r, fg_str_make(fg_block_at(&c->block, r->provider.off), r->provider.len),
                  fg_str_make(fg_block_at(&c->block, r->api.off), r->api.len));
  r->key = route_key(c, r);
  if (r->quota_owner.len > 0) {
    r->quota_owner_key = fg_card_hash(fg_block_at(&c->block, r->quota_owner.off), r->quota_owner.len);
  }
  c->provides[id - 1] = in.provides;
  memcpy((fg_policy_route *)fg_block_at(&c->block, c->head.routes_off) + (id - 1), r, sizeof *r);
  fg_card_index_add(&c->route_index, fg_card_hash(node->string, r->name.len), id);
  return 1;
}

int fg_card_routes(fg_card *c) {
  uint32_t count = (uint32_t)cJSON_GetArraySize(c->routes), id = 0;
  fg_card_push(c, "routes");
  if (count == 0) {
    return FG_FAIL(c, FG_LOAD_MISSING, "there is no route; add one with a provider and a model");
  }
  c->head.route_count = count;
  c->head.routes_off = fg_block_reserve(&c->block, count * (uint64_t)sizeof(fg_policy_route));
  c->provides = fg_scratch(c->mem, count * (uint64_t)sizeof *c->provides);
  c->used = fg_scratch(c->mem, count);
  if (c->block.failed || c->provides == NULL || c->used == NULL || !fg_index_init(&c->route_index, c->mem, count)) {
    return fg_card_nomem(c);
  }
  for (const cJSON *m = c->routes->child; m != NULL; m = m->next) {
    fg_card_push(c, m->string);
    if (!fg_read_name_ok(c, m->string)) {
      return 0;
    }
    if (fg_card_find_route(c, m->string) != 0) {
      return duplicate(c);
    }
    if (!read_route(c, m, ++id)) {
      return 0;
    }
    fg_card_pop(c);
  }
  fg_card_pop(c);
  return 1;
}
