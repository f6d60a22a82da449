/* The configuration: defaults, what is possible, its hash, and its reader. One table says for each key where it goes, its unit and its range. */
#include "fg_drill.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000)
#define DAY (86400 * SECOND)
#define REQUESTS_MAX 20000000

enum { AS_U32, AS_I64, AS_BOOL, AS_GROUP, AS_STRATEGY, AS_STRATEGIES, AS_FAULTS, AS_CARD, AS_SEED, AS_EFFECTS, AS_TARGET, AS_NAME };

typedef struct field {
  const char *key;
  uint32_t kind;
  uint32_t offset;
  int64_t unit;     /* of the stored number in one of the file's */
  int64_t min, max; /* stored */
  const struct field *group;
} field;

#define U32(key, member, unit, min, max) \
  { key, AS_U32, (uint32_t)offsetof(drill_config, member), unit, min, max, NULL }
#define I64(key, member, unit, min, max) \
  { key, AS_I64, (uint32_t)offsetof(drill_config, member), unit, min, max, NULL }
#define OTHER(key, kind, member) \
  { key, kind, (uint32_t)offsetof(drill_config, member), 0, 0, 0, NULL }
#define GROUP(key, fields) \
  { key, AS_GROUP, 0, 0, 0, 0, fields }
#define END \
  { NULL, 0, 0, 0, 0, 0, NULL }

static const field phases[] = {I64("warm_s", warm_us, SECOND, 0, DAY), I64("fault_s", fault_us, SECOND, SECOND, DAY),
                               I64("after_s", after_us, SECOND, 0, DAY), END};
static const field population[] = {U32("a_per_s", a_milli, 1000, 1, 10000000), U32("b_per_s", b_milli, 1000, 0, 10000000), END};
static const field sizes[] = {
    U32("prompt_tokens", prompt_tokens, 1, 1, 1000000),   U32("output_tokens", output_tokens, 1, 1, 100000),
    U32("output_cv", output_cv_ppm, 1000000, 0, 3000000), U32("first_token_cv", first_token_cv_ppm, 1000000, 0, 3000000),
    U32("speed_cv", speed_cv_ppm, 1000000, 0, 3000000),   END};
static const field speed[] = {I64("first_token_ms", first_token_us, 1000, 0, 60 * SECOND), U32("prompt_per_s", prompt_rate, 1, 1, 10000000),
                              U32("tokens_per_s", rate_milli, 1000, 100, 100000000), I64("error_ms", error_us, 1000, 1000, 60 * SECOND),
                              END};
static const field slots[] = {U32("primary", primary_slots, 1, 1, 100000), U32("backup", backup_slots, 1, 0, 100000), END};
static const field client[] = {
    I64("first_token_s", first_token_timeout_us, SECOND, SECOND / 10, DAY), I64("attempt_s", attempt_timeout_us, SECOND, SECOND / 10, DAY),
    I64("deadline_s", deadline_us, SECOND, SECOND / 10, DAY), I64("interactive_s", interactive_us, SECOND, SECOND / 10, DAY), END};
static const field price[] = {I64("input", price_input, 1000000000, 0, INT64_C(100000000000)),
                              I64("output", price_output, 1000000000, 0, INT64_C(100000000000)), END};

static const field top[] = {OTHER("seed", AS_SEED, seed),
                            U32("seeds", seeds, 1, 1, DRILL_SEEDS_MAX),
                            OTHER("strategies", AS_STRATEGIES, strategies),
                            OTHER("faults", AS_FAULTS, fault),
                            GROUP("phases", phases),
                            GROUP("population", population),
                            GROUP("request", sizes),
                            GROUP("speed", speed),
                            GROUP("slots", slots),
                            GROUP("client", client),
                            GROUP("price", price),
                            U32("scale", scale, 1, 1, 100),
                            U32("tenants", tenants, 1, 1, DRILL_TENANTS_MAX),
                            U32("adopters", adopters_ppm, 1000000, 0, 1000000),
                            OTHER("others", AS_STRATEGY, others),
                            OTHER("shared", AS_BOOL, shared),
                            U32("backups", backups, 1, 1, DRILL_BACKUPS_MAX),
                            U32("spare", spare_ppm, 1000000, 0, 10000000),
                            OTHER("ladder", AS_BOOL, ladder),
                            U32("small_cost", small_ppm, 1000000, 1000, 1000000),
                            U32("oracle_load", oracle_ppm, 1000000, 1000, 1000000),
                            I64("report_ms", report_us, 1000, 10000, 10 * SECOND),
                            OTHER("card", AS_CARD, card),
                            END};

#define F(key, kind, type, member, unit, min, max) \
  { key, kind, (uint32_t)offsetof(type, member), unit, min, max, NULL }
static const field effect_rate[] = {F("requests", AS_U32, drill_effect, rate_limit, 1, 1, 1000000),
                                    F("window_s", AS_I64, drill_effect, rate_window_us, SECOND, 1000, DAY), END};
static const field effect_fields[] = {F("target", AS_TARGET, drill_effect, target, 0, 0, 0),
                                      F("start_s", AS_I64, drill_effect, start_us, SECOND, 0, DAY),
                                      F("length_s", AS_I64, drill_effect, length_us, SECOND, 0, DAY),
                                      F("ramp_s", AS_I64, drill_effect, ramp_us, SECOND, 0, DAY),
                                      F("prefill", AS_I64, drill_effect, prefill_ppm, 1000000, 1000000, 1000000000),
                                      F("decode", AS_I64, drill_effect, decode_ppm, 1000000, 1000000, 1000000000),
                                      F("errors", AS_U32, drill_effect, error_ppm, 1000000, 0, 1000000),
                                      F("status", AS_U32, drill_effect, error_status, 1, 400, 599),
                                      GROUP("rate", effect_rate),
                                      F("slots", AS_I64, drill_effect, slots_ppm, 1000000, 0, 1000000),
                                      END};
static const field burst_fields[] = {F("every_s", AS_I64, drill_fault, burst_every_us, SECOND, SECOND, DAY),
                                     F("length_s", AS_I64, drill_fault, burst_length_us, SECOND, 1, DAY),
                                     F("times", AS_I64, drill_fault, burst_ppm, 1000000, 1, 100000000), END};
static const field fault_fields[] = {F("name", AS_NAME, drill_fault, name, 0, 0, 0),
                                     F("effects", AS_EFFECTS, drill_fault, effect, 0, 0, 0),
                                     F("cancel_frees", AS_BOOL, drill_fault, cancel_frees, 0, 0, 0),
                                     F("hidden_tries", AS_U32, drill_fault, hidden_tries, 1, 0, 20),
                                     GROUP("burst", burst_fields),
                                     END};

void drill_config_default(drill_config *c) {
  static const char *const faults[] = {"brownout", "blackout", "ratelimit", "trickle", "brownout_layered", "brownout_cancel"};
  memset(c, 0, sizeof *c);
  c->seed = 1;
  c->seeds = 1;
  c->warm_us = 120 * SECOND;
  c->fault_us = 600 * SECOND;
  c->after_us = 360 * SECOND;
  c->scale = c->tenants = c->backups = c->shared = c->ladder = 1;
  c->a_milli = 4000;
  c->b_milli = 2000;
  c->adopters_ppm = 1000000;
  c->prompt_tokens = 512;
  c->output_tokens = 256;
  c->first_token_us = 144000;
  c->prompt_rate = 2000;
  c->rate_milli = 71110;
  c->primary_slots = 24;
  c->spare_ppm = 875000;
  c->small_ppm = 250000;
  c->error_us = 40000;
  c->first_token_timeout_us = 10 * SECOND;
  c->attempt_timeout_us = 30 * SECOND;
  c->deadline_us = 60 * SECOND;
  c->interactive_us = 20 * SECOND;
  c->price_input = INT64_C(2500000000);
  c->price_output = INT64_C(10000000000);
  c->oracle_ppm = 950000;
  c->report_us = 250000;
  c->strategies = 1 << DRILL_NAIVE | 1 << DRILL_BACKOFF | 1 << DRILL_DISCIPLINED | 1 << DRILL_FIVEGATES | 1 << DRILL_ORACLE;
  for (c->fault_count = 0; c->fault_count < sizeof faults / sizeof faults[0]; c->fault_count++) {
    (void)drill_fault_named(faults[c->fault_count], &c->fault[c->fault_count]);
  }
}

void drill_config_free(drill_config *c) {
  free(c->card);
  c->card = NULL;
}

static const char *const strategy_names[] = {
#define WORD(n, N, word) #word,
    DRILL_STRATEGY_MAP(WORD)};

const char *drill_strategy_name(uint32_t strategy) { return strategy_names[strategy]; }

int drill_strategy_named(const char *name, uint32_t *out) {
  for (uint32_t i = 0; i < DRILL_STRATEGIES; i++) {
    if (strcmp(strategy_names[i], name) == 0) {
      *out = i;
      return 1;
    }
  }
  return 0;
}

/* ---- errors */

typedef struct reader {
  drill_config *c;
  fg_error *err;
  char path[108];
} reader;

static int fail(reader *r, const char *message) {
  if (r->err != NULL) {
    r->err->code = FG_ERR_RANGE;
    (void)snprintf(r->err->path, sizeof r->err->path, "%s", r->path);
    (void)snprintf(r->err->message, sizeof r->err->message, "%s", message);
  }
  return 0;
}

/* Goes down to a key; the caller puts back what it returns. */
static size_t into(reader *r, const char *key) {
  const size_t at = strlen(r->path);
  (void)snprintf(r->path + at, sizeof r->path - at, "%s%s", at != 0 && key[0] != '[' ? "." : "", key);
  return at;
}

/* A stored number in the file's unit, for messages. */
static void in_unit(char *to, size_t cap, int64_t stored, int64_t unit) {
  int n = snprintf(to, cap, "%" PRId64, stored / unit);
  int64_t rest = stored % unit, digit = unit;
  if (rest != 0 && n > 0 && (size_t)n + 12 < cap) {
    to[n++] = '.';
    while (rest != 0 && digit >= 10) {
      digit /= 10;
      to[n++] = (char)('0' + rest / digit);
      rest %= digit;
    }
    to[n] = 0;
  }
}

static int read_number(reader *r, const cJSON *v, const field *f, int64_t *out) {
  char text[160], low[32], high[32];
  in_unit(low, sizeof low, f->min, f->unit);
  in_unit(high, sizeof high, f->max, f->unit);
  const double scaled = cJSON_IsNumber(v) ? v->valuedouble * (double)f->unit : 0;
  const int in = cJSON_IsNumber(v) && scaled >= (double)f->min - 0.5 && scaled <= (double)f->max + 0.5;
  const int64_t stored = in ? (int64_t)(scaled + 0.5) : -1;
  const double off = in ? scaled - (double)stored : 0;
  if (!in) {
    (void)snprintf(text, sizeof text, f->unit == 1 ? "must be a whole number from %s to %s" : "must be a number from %s to %s", low, high);
    return fail(r, text);
  }
  if (off > 1e-3 || off < -1e-3) { /* finer than it can be kept */
    int decimals = 0;
    for (int64_t unit = f->unit; unit > 1; unit /= 10) {
      decimals++;
    }
    (void)snprintf(text, sizeof text,
                   f->unit == 1 ? "must be a whole number from %s to %s" : "must be a number from %s to %s, with at most %d decimals", low,
                   high, decimals);
    return fail(r, text);
  }
  *out = stored;
  return 1;
}

static int read_object(reader *r, const cJSON *node, const field *fields, void *base);

static int read_strategy(reader *r, const cJSON *v, uint32_t *out) {
  if (!cJSON_IsString(v) || !drill_strategy_named(v->valuestring, out)) {
    return fail(r, "no such strategy; there are naive, backoff, disciplined, fivegates, oracle, plain");
  }
  return 1;
}

static int read_strategies(reader *r, const cJSON *v, uint32_t *out) {
  char key[24];
  uint32_t n = 0, set = 0;
  if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) == 0) {
    return fail(r, "must be a list of strategies, at least one");
  }
  for (const cJSON *i = v->child; i != NULL; i = i->next, n++) {
    uint32_t one = 0;
    (void)snprintf(key, sizeof key, "[%u]", n);
    const size_t at = into(r, key);
    if (!read_strategy(r, i, &one)) {
      return 0;
    }
    set |= 1U << one;
    r->path[at] = 0;
  }
  *out = set;
  return 1;
}

static int read_target(reader *r, const cJSON *v, uint32_t *out) {
  static const char *const words[] = {"primary", "backups", "first_backup"};
  for (uint32_t i = 0; i < 3 && cJSON_IsString(v); i++) {
    if (strcmp(words[i], v->valuestring) == 0) {
      *out = i;
      return 1;
    }
  }
  return fail(r, "must be primary, backups or first_backup");
}

static int read_effects(reader *r, const cJSON *v, drill_fault *f) {
  char key[24];
  uint32_t n = 0;
  if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) > DRILL_EFFECTS_MAX) {
    return fail(r, "must be a list of at most 8 objects");
  }
  for (const cJSON *i = v->child; i != NULL; i = i->next, n++) {
    (void)snprintf(key, sizeof key, "[%u]", n);
    const size_t at = into(r, key);
    f->effect[n] =
        (drill_effect){.prefill_ppm = 1000000, .decode_ppm = 1000000, .slots_ppm = 1000000, .error_status = 503, .rate_window_us = SECOND};
    if (!read_object(r, i, effect_fields, &f->effect[n])) {
      return 0;
    }
    const drill_effect *e = &f->effect[n];
    if (e->ramp_us != 0 && e->ramp_us < 1000) {
      (void)into(r, "ramp_s");
      return fail(r, "must be 0 or at least 0.001");
    }
    r->path[at] = 0;
  }
  f->count = n;
  return 1;
}

static int read_faults(reader *r, const cJSON *v) {
  char key[24], names[400], text[200];
  uint32_t n = 0;
  drill_config *c = r->c;
  if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) == 0 || cJSON_GetArraySize(v) > DRILL_FAULTS_MAX) {
    return fail(r, "must be a list of 1 to 32 names and objects");
  }
  for (const cJSON *i = v->child; i != NULL; i = i->next, n++) {
    (void)snprintf(key, sizeof key, "[%u]", n);
    const size_t at = into(r, key);
    memset(&c->fault[n], 0, sizeof c->fault[n]);
    if (cJSON_IsString(i)) {
      if (!drill_fault_named(i->valuestring, &c->fault[n])) {
        drill_fault_names(names, sizeof names);
        (void)snprintf(text, sizeof text, "no such fault; there are %.170s", names);
        return fail(r, text);
      }
    } else if (!read_object(r, i, fault_fields, &c->fault[n])) {
      return 0;
    } else if (c->fault[n].name[0] == 0) {
      (void)into(r, "name");
      return fail(r, "missing; name the fault");
    }
    r->path[at] = 0;
  }
  c->fault_count = n;
  return 1;
}

static int read_name(reader *r, const cJSON *v, char *out) {
  const size_t n = cJSON_IsString(v) ? strlen(v->valuestring) : 0;
  if (n == 0 || n >= DRILL_NAME_MAX || strspn(v->valuestring, "abcdefghijklmnopqrstuvwxyz0123456789_-") != n) {
    return fail(r, "must be a name of 1 to 31 characters, of a to z, 0 to 9, - and _");
  }
  memcpy(out, v->valuestring, n + 1);
  return 1;
}

static int read_card(reader *r, const cJSON *v) {
  if (!cJSON_IsObject(v)) {
    return fail(r, "must be a card: an object");
  }
  free(r->c->card);
  char *text = cJSON_PrintUnformatted(v);
  r->c->card = text != NULL ? malloc(strlen(text) + 1) : NULL;
  if (r->c->card != NULL) {
    memcpy(r->c->card, text, strlen(text) + 1);
  }
  cJSON_free(text);
  return r->c->card != NULL || fail(r, "no memory");
}

static int read_field(reader *r, const cJSON *v, const field *f, void *base) {
  char *to = (char *)base + f->offset;
  int64_t number = 0;
  switch (f->kind) {
  case AS_U32:
  case AS_I64:
    if (!read_number(r, v, f, &number)) {
      return 0;
    }
    if (f->kind == AS_U32) {
      memcpy(to, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
    } else {
      memcpy(to, &number, sizeof number);
    }
    return 1;
  case AS_BOOL:
    if (!cJSON_IsBool(v)) {
      return fail(r, "must be true or false");
    }
    memcpy(to, &(uint32_t){cJSON_IsTrue(v) ? 1 : 0}, sizeof(uint32_t));
    return 1;
  case AS_SEED: {
    const field whole = {.unit = 1, .min = 0, .max = INT64_C(999999999999999)};
    if (!read_number(r, v, &whole, &number)) {
      return 0;
    }
    r->c->seed = (uint64_t)number;
    return 1;
  }
  case AS_GROUP:
    return read_object(r, v, f->group, base);
  case AS_STRATEGY:
    return read_strategy(r, v, &r->c->others);
  case AS_STRATEGIES:
    return read_strategies(r, v, &r->c->strategies);
  case AS_FAULTS:
    return read_faults(r, v);
  case AS_EFFECTS:
    return read_effects(r, v, base);
  case AS_TARGET:
    return read_target(r, v, &((drill_effect *)base)->target);
  case AS_NAME:
    return read_name(r, v, to);
  default:
    return read_card(r, v);
  }
}

/* Single edits (one character more, less or other) that make one word of the other; a common beginning and end are left out. */
static int is_near(const char *a, const char *b) {
  size_t m = strlen(a), n = strlen(b);
  while (m > 0 && n > 0 && *a == *b) {
    a++, b++, m--, n--;
  }
  while (m > 0 && n > 0 && a[m - 1] == b[n - 1]) {
    m--, n--;
  }
  return m <= 2 && n <= 2;
}

static int unknown_key(reader *r, const char *key, const field *fields) {
  char text[200];
  size_t n = (size_t)snprintf(text, sizeof text, "no such key; there are");
  for (const field *f = fields; f->key != NULL; f++) {
    if (is_near(f->key, key)) {
      (void)snprintf(text, sizeof text, "no such key; did you mean %s?", f->key);
      return fail(r, text);
    }
    if (n + strlen(f->key) + 8 < sizeof text) {
      n += (size_t)snprintf(text + n, sizeof text - n, "%s %s", f != fields ? "," : "", f->key);
    } else {
      memcpy(text + strlen(text), ", ...", 6);
      break;
    }
  }
  return fail(r, text);
}

static int read_object(reader *r, const cJSON *node, const field *fields, void *base) {
  if (!cJSON_IsObject(node)) {
    return fail(r, "must be an object");
  }
  for (const cJSON *v = node->child; v != NULL; v = v->next) {
    const field *f = fields;
    while (f->key != NULL && strcmp(f->key, v->string) != 0) {
      f++;
    }
    const size_t at = into(r, v->string);
    if (f->key == NULL) {
      return unknown_key(r, v->string, fields);
    }
    for (const cJSON *other = node->child; other != v; other = other->next) {
      if (strcmp(other->string, v->string) == 0) {
        return fail(r, "given twice; keep one");
      }
    }
    if (!read_field(r, v, f, base)) {
      return 0;
    }
    r->path[at] = 0;
  }
  return 1;
}

static void *take(void *ctx, uint64_t size) {
  (void)ctx;
  return malloc(size);
}
static void give(void *ctx, void *ptr) {
  (void)ctx;
  free(ptr);
}

int32_t drill_config_read(drill_config *c, const char *text, uint64_t len, fg_error *err) {
  /* The card's loader is the strict judge of JSON itself: it names line and column where the text is none. What else it says is about cards. */
  const fg_mem mem = {take, give, NULL};
  fg_policy *none = NULL;
  fg_error said = {.size = sizeof said};
  if (fg_card_load(text, len, &mem, &none, &said) == FG_ERR_SYNTAX) {
    if (err != NULL) {
      *err = said;
    }
    return FG_ERR_SYNTAX;
  }
  fg_policy_free(none, &mem);
  cJSON *root = cJSON_ParseWithLength(text, len);
  reader r = {.c = c, .err = err};
  const int good = root != NULL ? read_object(&r, root, top, c) : fail(&r, "cannot be read: not JSON, or no memory");
  cJSON_Delete(root);
  return good ? FG_OK : FG_ERR_RANGE;
}

/* Requests of a run under this fault, about. */
static int64_t requests_of(const drill_config *c, const drill_fault *f) {
  const int64_t seconds = (c->warm_us + c->fault_us + c->after_us) / SECOND + 1;
  const int64_t a = (int64_t)c->a_milli * c->scale, b = (int64_t)c->b_milli * c->backups * c->scale;
  const int64_t burst = f->burst_every_us != 0 ? a / 1000 * (c->fault_us / SECOND) * (f->burst_ppm / 1000000) : 0;
  return (a + b) / 1000 * seconds + burst;
}

static int at(reader *r, const char *path, const char *message) {
  (void)into(r, path);
  return fail(r, message);
}

static int check_fault(reader *r, const drill_config *c, const drill_fault *f) {
  if (f->burst_every_us != 0 && (f->burst_length_us == 0 || f->burst_length_us > f->burst_every_us || f->burst_ppm == 0)) {
    return at(r, "burst", "needs every_s, length_s and times, and length_s is at most every_s");
  }
  if (requests_of(c, f) > REQUESTS_MAX) {
    return at(r, "population", "more than 20 million requests; lower the rates, the scale, the phases or the burst");
  }
  for (uint32_t n = 0; n < f->count; n++) {
    const drill_effect *e = &f->effect[n];
    if (e->start_us >= c->fault_us || e->start_us + e->length_us > c->fault_us) {
      return at(r, "effects", "an effect must lie within the fault's phase: start_s + length_s is at most phases.fault_s");
    }
  }
  return 1;
}

int32_t drill_config_check(const drill_config *c, fg_error *err) {
  reader r = {.err = err};
  int good = 1;
  if (c->deadline_us < c->first_token_timeout_us) {
    good = at(&r, "client.first_token_s", "must not be longer than deadline_s");
  } else if (drill_takes_us(c) > DAY) {
    good = at(&r, "speed", "one request takes more than a day; raise prompt_per_s or tokens_per_s, or make it smaller");
  } else if (drill_backup_slots(c) == 0 && c->b_milli != 0) {
    good = at(&r, "slots.backup", "a backup without a slot cannot serve its own users; raise it, or spare");
  }
  for (uint32_t i = 0; good && i < c->fault_count; i++) {
    char key[40];
    (void)snprintf(key, sizeof key, "faults[%u]", i);
    (void)into(&r, key);
    good = check_fault(&r, c, &c->fault[i]);
    r.path[0] = 0;
  }
  return good ? FG_OK : FG_ERR_RANGE;
}

/* ---- the hash */

static uint64_t fold(uint64_t h, const void *bytes, size_t n) { /* FNV-1a */
  for (size_t i = 0; i < n; i++) {
    h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
  }
  return h;
}

static uint64_t fold_fields(uint64_t h, const field *fields, const void *base) {
  for (const field *f = fields; f->key != NULL; f++) {
    const unsigned char *from = (const unsigned char *)base + f->offset;
    int64_t v = 0;
    if (f->kind == AS_GROUP) {
      h = fold_fields(h, f->group, base);
    } else if (f->kind == AS_I64) {
      memcpy(&v, from, sizeof v);
    } else if (f->kind == AS_U32 || f->kind == AS_BOOL || f->kind == AS_STRATEGY || f->kind == AS_TARGET) {
      uint32_t u;
      memcpy(&u, from, sizeof u);
      v = u;
    }
    unsigned char bytes[8];
    for (uint32_t i = 0; i < 8; i++) {
      bytes[i] = (unsigned char)((uint64_t)v >> (8 * i));
    }
    h = strcmp(f->key, "seeds") == 0 ? h : fold(h, bytes, sizeof bytes);
  }
  return h;
}

uint64_t drill_config_hash(const drill_config *c) {
  uint64_t h = fold_fields(UINT64_C(0xcbf29ce484222325), top, c);
  for (uint32_t i = 0; i < c->fault_count; i++) {
    const drill_fault *f = &c->fault[i];
    h = fold_fields(fold(h, f->name, strlen(f->name)), fault_fields, f);
    for (uint32_t n = 0; n < f->count; n++) {
      h = fold_fields(h, effect_fields, &f->effect[n]);
    }
  }
  return c->card != NULL ? fold(h, c->card, strlen(c->card)) : h;
}
