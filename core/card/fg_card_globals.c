/* The card's top level and what holds for every workflow: retry bucket, backoff, limits, breaker, layers, seed. */
#include "fg_card_number.h"
#include "fg_card_read.h"

typedef struct root {
  const cJSON *layers, *bucket, *backoff, *limits, *breaker, *adapt, *accounts, *routes, *workflows, *contracts, *classify;
  uint32_t version;
  int64_t seed;
  fg_pstr hash_key;
} root;

#define AT(field) (uint32_t)offsetof(root, field)
static const fg_field ROOT[] = {
    {.name = "version", .kind = FG_FIELD_INT, .flags = FG_MUST, .offset = AT(version), .min = 1, .max = 1},
    {.name = "seed", .kind = FG_FIELD_LONG, .flags = FG_NULL, .offset = AT(seed), .min = 0, .max = FG_NUMBER_MAX, .none = -1},
    {.name = "hash_key", .kind = FG_FIELD_TEXT, .offset = AT(hash_key), .max = 256},
    {.name = "layers", .kind = FG_FIELD_NODE, .flags = FG_ARRAY, .offset = AT(layers)},
    {.name = "retry_bucket", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(bucket)},
    {.name = "backoff", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(backoff)},
    {.name = "limits", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(limits)},
    {.name = "breaker", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(breaker)},
    {.name = "adapt", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(adapt)},
    {.name = "accounts", .kind = FG_FIELD_NODE, .flags = FG_OBJECT, .offset = AT(accounts)},
    {.name = "routes", .kind = FG_FIELD_NODE, .flags = FG_MUST | FG_OBJECT, .offset = AT(routes)},
    {.name = "workflows", .kind = FG_FIELD_NODE, .flags = FG_MUST | FG_OBJECT, .offset = AT(workflows)},
    {.name = "contracts", .kind = FG_FIELD_NODE, .flags = FG_ARRAY, .offset = AT(contracts)},
    {.name = "classify", .kind = FG_FIELD_NODE, .flags = FG_ARRAY, .offset = AT(classify)},
};
#undef AT

/* ------------------------------------------------- the small global objects */

#define AT(field) (uint32_t)offsetof(fg_policy_globals, field)
#define MS(key, field, lo, hi) {.name = key, .kind = FG_FIELD_INT, .offset = AT(field), .min = lo, .max = hi}
#define PPM(key, field) MS(key, field, 0, 1000000)
#define MILLI(key, field, lo, hi) {.name = key, .kind = FG_FIELD_INT, .offset = AT(field), .min = lo, .max = hi, .decimals = 3}

static int read_credit(fg_card *c, const cJSON *node, void *out) {
  static const fg_field CREDIT = {.min = 0, .max = 1000000};
  int64_t ppm = 0;
  if (!fg_read_int(c, node, &CREDIT, &ppm)) {
    return 0;
  }
  if (ppm % 1000 != 0) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "credit is kept in thousandths of a token; write a multiple of 1000 ppm");
  }
  uint32_t milli = (uint32_t)(ppm / 1000);
  memcpy(out, &milli, sizeof milli);
  return 1;
}

static const fg_field BUCKET[] = {
    {.name = "credit_ppm", .kind = FG_FIELD_CALL, .offset = AT(bucket_credit_milli), .read = read_credit},
    MILLI("cap", bucket_cap_milli, 1000, 1000000),
    MILLI("start", bucket_start_milli, 0, 1000000),
    MILLI("trickle_per_minute", bucket_trickle_milli, 0, 1000000),
};
static const fg_field BACKOFF[] = {
    MS("base_ms", backoff_base_ms, 1, 600000),
    MS("rate_base_ms", backoff_rate_base_ms, 1, 600000),
    MS("cap_ms", backoff_cap_ms, 1, 3600000),
    MS("retry_after_cap_ms", retry_after_cap_ms, 0, 86400000),
};
static const fg_field LIMITS[] = {
    {.name = "retries_per_hour", .kind = FG_FIELD_INT, .flags = FG_NULL, .offset = AT(retries_per_hour), .min = 1, .max = 1000000000},
    {.name = "spend_per_day_usd", .kind = FG_FIELD_MONEY, .flags = FG_NULL, .offset = AT(spend_per_day_nusd), .min = 1, .max = INT64_MAX / 8, .none = -1},
};
static const fg_field BREAKER[] = {
    MS("consecutive", br_consecutive, 1, 1000),
    MS("window_ms", br_window_ms, 1000, 3600000),
    MS("min_calls", br_min_calls, 1, 100000),
    MS("failure_ppm", br_failure_ppm, 1, 1000000),
    MS("open_ms", br_open_ms, 1, 3600000),
    MS("open_max_ms", br_open_max_ms, 1, 3600000),
    PPM("jitter_ppm", br_jitter_ppm),
    MS("probes", br_probes, 1, 64),
    MS("probe_lease_ms", br_lease_ms, 1, 3600000),
    MS("successes", br_successes, 1, 1000),
    {.name = "stall", .kind = FG_FIELD_BOOL, .offset = AT(br_stall)},
};
static const fg_field ADAPT[] = {
    {.name = "limit", .kind = FG_FIELD_BOOL, .offset = AT(adapt_limit)},
    {.name = "pace", .kind = FG_FIELD_BOOL, .offset = AT(adapt_pace)},
    {.name = "probes", .kind = FG_FIELD_BOOL, .offset = AT(adapt_probes)},
};
#undef AT

static void defaults(fg_policy_globals *g) {
  g->bucket_credit_milli = 100;
  g->bucket_cap_milli = 10000;
  g->bucket_start_milli = 3000;
  g->bucket_trickle_milli = 1000;
  g->backoff_base_ms = 500;
  g->backoff_rate_base_ms = 1000;
  g->backoff_cap_ms = 20000;
  g->retry_after_cap_ms = 60000;
  g->layers_product = 1;
  g->spend_per_day_nusd = -1;
  g->br_consecutive = 5;
  g->br_window_ms = 60000;
  g->br_min_calls = 8;
  g->br_failure_ppm = 500000;
  g->br_open_ms = 10000;
  g->br_open_max_ms = 20000;
  g->br_jitter_ppm = 0;
  g->br_probes = 1;
  g->br_lease_ms = 30000;
  g->br_successes = 2;
  g->br_stall = 1;
  g->adapt_limit = 1;
  g->adapt_pace = 1;
  g->adapt_probes = 1;
}

static int section(fg_card *c, const char *key, const cJSON *node, const fg_field *fields, uint32_t count) {
  if (node == NULL) {
    return 1;
  }
  fg_card_push(c, key);
  if (!fg_read_object(c, node, fields, count, &c->head.globals, NULL)) {
    return 0;
  }
  fg_card_pop(c);
  return 1;
}

static int at_most(fg_card *c, const char *object, const char *key, uint32_t value, const char *other, uint32_t limit, uint32_t decimals) {
  if (value <= limit) {
    return 1;
  }
  fg_card_push(c, object);
  fg_card_push(c, key);
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_number_text(c, value, decimals), " is over ", other, ", ",
                 fg_card_number_text(c, limit, decimals), "; lower it or raise ", other);
}

/* ------------------------------------------------------------------ layers */

typedef struct layer { fg_pstr name; uint32_t side, retries; } layer;

static int read_layers(fg_card *c, const cJSON *list) {
  static const char *const SIDES[] = {"inner", "outer", NULL};
  static const fg_field LAYER[] = {
      {.name = "name", .kind = FG_FIELD_TEXT, .offset = (uint32_t)offsetof(layer, name), .max = FG_NAME_MAX},
      {.name = "side", .kind = FG_FIELD_WORD, .offset = (uint32_t)offsetof(layer, side), .words = SIDES},
      {.name = "max_retries", .kind = FG_FIELD_INT, .flags = FG_MUST, .offset = (uint32_t)offsetof(layer, retries), .max = 1000},
  };
  uint32_t i = 0;
  uint64_t product = 1;
  if (list == NULL) {
    return 1;
  }
  fg_card_push(c, "layers");
  for (const cJSON *e = list->child; e != NULL; e = e->next, i++) {
    if (i == FG_CARD_LAYERS) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "at most 16 layers are allowed");
    }
    layer l = {{0, 0}, 0, 0};
    fg_card_push_index(c, i);
    if (!FG_READ(c, e, LAYER, &l, NULL)) {
      return 0;
    }
    fg_card_pop(c);
    product = fg_min64(product * (l.retries + 1), 1000000000);
  }
  fg_card_pop(c);
  c->head.globals.layers_product = (uint32_t)product;
  return 1;
}

/* ---------------------------------------------------------------- the whole */

int fg_card_globals(fg_card *c, const cJSON *node) {
  root r;
  memset(&r, 0, sizeof r);
  r.seed = -1;
  fg_policy_globals *g = &c->head.globals;
  defaults(g);
  if (!FG_READ(c, node, ROOT, &r, NULL) || !section(c, "retry_bucket", r.bucket, BUCKET, (uint32_t)FG_ARRAY_LEN(BUCKET)) ||
      !section(c, "backoff", r.backoff, BACKOFF, (uint32_t)FG_ARRAY_LEN(BACKOFF)) ||
      !section(c, "limits", r.limits, LIMITS, (uint32_t)FG_ARRAY_LEN(LIMITS)) ||
      !section(c, "breaker", r.breaker, BREAKER, (uint32_t)FG_ARRAY_LEN(BREAKER)) ||
      !section(c, "adapt", r.adapt, ADAPT, (uint32_t)FG_ARRAY_LEN(ADAPT)) || !read_layers(c, r.layers)) {
    return 0;
  }
  if (r.bucket != NULL && !at_most(c, "retry_bucket", "start", g->bucket_start_milli, "cap", g->bucket_cap_milli, 3)) {
    return 0;
  }
  if (!at_most(c, "backoff", "base_ms", g->backoff_base_ms, "cap_ms", g->backoff_cap_ms, 0) ||
      !at_most(c, "backoff", "rate_base_ms", g->backoff_rate_base_ms, "cap_ms", g->backoff_cap_ms, 0) ||
      !at_most(c, "breaker", "open_ms", g->br_open_ms, "open_max_ms", g->br_open_max_ms, 0)) {
    return 0;
  }
  g->has_seed = r.seed >= 0;
  g->seed = r.seed >= 0 ? (uint64_t)r.seed : 0;
  c->head.hash_key = r.hash_key;
  c->accounts = r.accounts;
  c->routes = r.routes;
  c->workflows = r.workflows;
  c->contracts = r.contracts;
  c->classify = r.classify;
  return 1;
}
