/* Reading a vector: cJSON behind checks. A wrong type, an unknown key or word is the step's fault, never a silent default. */
#ifndef VEC_JSON_H
#define VEC_JSON_H

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fivegates.h"

typedef struct vec_fault { char text[512]; } vec_fault; /* the first thing wrong; empty = nothing */

__attribute__((format(printf, 2, 3))) static void vec_bad(vec_fault *f, const char *format, ...) {
  va_list args;
  if (f->text[0] != 0) {
    return;
  }
  va_start(args, format);
  vsnprintf(f->text, sizeof f->text, format, args);
  va_end(args);
}

static void *vec_alloc(void *ctx, uint64_t size) {
  void *p = calloc(1, size > 0 ? (size_t)size : 1);
  (void)ctx;
  if (p == NULL) {
    fputs("run_vectors: out of memory\n", stderr);
    exit(2);
  }
  return p;
}

static void vec_free(void *ctx, void *p) {
  (void)ctx;
  free(p);
}

static const fg_mem vec_mem = {vec_alloc, vec_free, NULL};

/* Every key of object must be one word of `allowed` ("a b c"), and stand there once. NULL passes: nothing to read. */
static void vec_only(vec_fault *f, const cJSON *object, const char *what, const char *allowed) {
  const cJSON *item, *other;
  if (object == NULL) {
    return;
  }
  if (!cJSON_IsObject(object)) {
    vec_bad(f, "%s is not an object", what);
    return;
  }
  cJSON_ArrayForEach(item, object) {
    size_t n = strlen(item->string);
    const char *at = n > 0 ? allowed : NULL; /* an empty key is nowhere */
    while (at != NULL && (at = strstr(at, item->string)) != NULL) {
      if ((at == allowed || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0)) {
        break;
      }
      at++;
    }
    if (at == NULL) {
      vec_bad(f, "unknown key \"%s\" in %s", item->string, what);
    }
    for (other = item->next; other != NULL; other = other->next) {
      if (strcmp(other->string, item->string) == 0) {
        vec_bad(f, "key \"%s\" twice in %s", item->string, what);
      }
    }
  }
}

static const cJSON *vec_get(const cJSON *object, const char *key) {
  return object == NULL ? NULL : cJSON_GetObjectItemCaseSensitive(object, key);
}

/* A whole number in [lo, hi]; absent = 0. */
static int64_t vec_int(vec_fault *f, const cJSON *object, const char *key, int64_t lo, int64_t hi) {
  const cJSON *v = vec_get(object, key);
  int64_t n;
  if (v == NULL) {
    return 0;
  }
  if (!cJSON_IsNumber(v) || fabs(v->valuedouble) > 9007199254740992.0) {
    vec_bad(f, "%s is not a whole number", key);
    return 0;
  }
  n = llround(v->valuedouble);
  if (fabs(v->valuedouble - (double)n) > 0 || n < lo || n > hi) {
    vec_bad(f, "%s is not a whole number from %" PRId64 " to %" PRId64, key, lo, hi);
    return 0;
  }
  return n;
}

static uint32_t vec_u32(vec_fault *f, const cJSON *object, const char *key) {
  return (uint32_t)vec_int(f, object, key, 0, UINT32_MAX);
}

static uint32_t vec_flag(vec_fault *f, const cJSON *object, const char *key) {
  const cJSON *v = vec_get(object, key);
  if (v != NULL && !cJSON_IsBool(v)) {
    vec_bad(f, "%s is not true or false", key);
  }
  return cJSON_IsTrue(v) ? 1 : 0;
}

static fg_str vec_text(vec_fault *f, const cJSON *value, const char *what) {
  fg_str s = {NULL, 0, 0};
  if (value == NULL || cJSON_IsNull(value)) {
    return s;
  }
  if (!cJSON_IsString(value)) {
    vec_bad(f, "%s is not text", what);
    return s;
  }
  s.ptr = value->valuestring;
  s.len = (uint32_t)strlen(value->valuestring);
  return s;
}

static fg_str vec_str(vec_fault *f, const cJSON *object, const char *key) { return vec_text(f, vec_get(object, key), key); }

static uint32_t vec_word(vec_fault *f, const cJSON *value, const char *what, uint32_t table) {
  fg_str s = vec_text(f, value, what);
  int32_t n;
  if (s.ptr == NULL) {
    return 0;
  }
  n = fg_parse(table, s.ptr, s.len);
  if (n < 0) {
    vec_bad(f, "%s: unknown word \"%s\"", what, s.ptr);
    return 0;
  }
  return (uint32_t)n;
}

/* A word, or a list of words, of a bit-set table. */
static uint32_t vec_bits(vec_fault *f, const cJSON *object, const char *key, uint32_t table) {
  const cJSON *v = vec_get(object, key), *item;
  uint32_t bits = 0;
  if (v == NULL) {
    return 0;
  }
  if (cJSON_IsString(v)) {
    return 1u << vec_word(f, v, key, table);
  }
  if (!cJSON_IsArray(v)) {
    vec_bad(f, "%s is not a list", key);
    return 0;
  }
  cJSON_ArrayForEach(item, v) bits |= 1u << vec_word(f, item, key, table);
  return bits;
}

/* Decimal US dollars to nano-dollars. */
static int64_t vec_usd(vec_fault *f, const cJSON *object, const char *key) {
  const cJSON *v = vec_get(object, key);
  if (v == NULL) {
    return 0;
  }
  if (!cJSON_IsNumber(v) || v->valuedouble < 0 || v->valuedouble > 1e6) {
    vec_bad(f, "%s is not an amount", key);
    return 0;
  }
  return llround(v->valuedouble * 1e9);
}

#endif /* VEC_JSON_H */
