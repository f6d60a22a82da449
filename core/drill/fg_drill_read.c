/* Reads a configuration: strict JSON, and every key by its table. */
#include "fg_drill_keys.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (!read_object(r, i, drill_effect_keys, &f->effect[n])) {
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
    } else if (!read_object(r, i, drill_fault_keys, &c->fault[n])) {
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
    a++;
    b++;
    m--;
    n--;
  }
  while (m > 0 && n > 0 && a[m - 1] == b[n - 1]) {
    m--;
    n--;
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
  const int good = root != NULL ? read_object(&r, root, drill_keys, c) : fail(&r, "cannot be read: not JSON, or no memory");
  cJSON_Delete(root);
  return good ? FG_OK : FG_ERR_RANGE;
}
