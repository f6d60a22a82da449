/* What an op answered, as compact JSON text, and its comparison with `expect`. Keys and their order are those of tests/vectors/README.md:
 * another language's runner prints the same bytes. */
#ifndef VEC_OUT_H
#define VEC_OUT_H

#include "vec_json.h"

enum { VEC_TEXT_MAX = 16384 };

typedef struct vec_text_buf { char text[VEC_TEXT_MAX]; uint32_t len; } vec_text_buf;

__attribute__((format(printf, 2, 3))) static void vec_put(vec_text_buf *b, const char *format, ...) {
  va_list args;
  int n;
  va_start(args, format);
  n = vsnprintf(b->text + b->len, sizeof b->text - b->len, format, args);
  va_end(args);
  if (n > 0) {
    b->len += (uint32_t)n;
  }
  if (b->len >= sizeof b->text) {
    b->len = sizeof b->text - 1;
  }
}

static const char *vec_name(uint32_t table, uint32_t value) {
  const char *name = fg_name(table, value);
  return name == NULL ? "?" : name;
}

/* `"key":n`, or null where there is no such moment. */
static void vec_put_moment(vec_text_buf *b, const char *key, int there, int64_t at_ms) {
  if (there) {
    vec_put(b, ",\"%s\":%" PRId64, key, at_ms);
  } else {
    vec_put(b, ",\"%s\":null", key);
  }
}

static void vec_put_route(vec_text_buf *b, const fg_route_view *v, int64_t at_ms) {
  vec_put(b, "{\"breaker\":\"%s\",\"health\":\"%s\"", vec_name(FG_TABLE_BREAKER, v->breaker), vec_name(FG_TABLE_HEALTH, v->health));
  vec_put_moment(b, "until_ms", v->breaker != FG_BREAKER_CLOSED, at_ms + v->open_for_ms);
  vec_put(b, ",\"open_for_ms\":%u,\"generation\":%u,\"opened_count\":%u", v->open_for_ms, v->generation, v->opened_count);
  vec_put(b, ",\"in_flight\":%u,\"retries\":%u,\"limit\":%u", v->in_flight, v->retries, v->limit);
  vec_put(b, ",\"z_milli\":%u,\"run\":%u,\"window_ok\":%u,\"window_failed\":%u", v->z_milli, v->run, v->window_ok, v->window_failed);
  vec_put(b, ",\"first_token_ms\":%u,\"stall_ms\":%u,\"samples\":%u,\"rate_milli\":%u", v->first_token_ms, v->stall_ms, v->samples, v->rate_milli);
  vec_put_moment(b, "not_before_ms", v->not_before_ms != 0, at_ms + v->not_before_ms);
  vec_put(b, ",\"bucket\":%u,\"latch\":\"%s\"", v->balance_milli, v->latch == 0 ? "none" : vec_name(FG_TABLE_HEALTH, v->latch));
  vec_put_moment(b, "latch_until_ms", v->latch != 0, at_ms + v->latch_for_ms);
  vec_put(b, ",\"attempts\":%" PRIu64 ",\"successes\":%" PRIu64 ",\"failures\":%" PRIu64 ",\"tokens\":%" PRIu64 "}", v->attempts, v->successes,
          v->failures, v->tokens);
}

static void vec_put_workflow(vec_text_buf *b, const fg_workflow_view *v) {
  vec_put(b, "{\"calls\":%" PRIu64 ",\"primary_success\":%" PRIu64 ",\"retry_recovery\":%" PRIu64, v->calls, v->primary_success, v->retry_recovery);
  vec_put(b, ",\"fallback_recovery\":%" PRIu64 ",\"degraded\":%" PRIu64 ",\"failed_closed\":%" PRIu64, v->fallback_recovery, v->degraded,
          v->failed_closed);
  vec_put(b, ",\"queued\":%" PRIu64 ",\"cancelled\":%" PRIu64 ",\"retries_this_hour\":%" PRIu64, v->queued, v->cancelled, v->retries_this_hour);
  vec_put(b, ",\"spent_today_nusd\":%" PRIu64 "}", v->spent_today_nusd);
}

static void vec_put_failure(vec_text_buf *b, const fg_failure *v) {
  const char *should = "null";
  if ((v->flags & FG_FAIL_SHOULD_RETRY) != 0) {
    should = "true";
  } else if ((v->flags & FG_FAIL_MUST_NOT_RETRY) != 0) {
    should = "false";
  }
  vec_put(b, "{\"owner\":\"%s\",\"kind\":\"%s\",\"class\":\"%s\"", vec_name(FG_TABLE_OWNER, v->owner), vec_name(FG_TABLE_KIND, v->kind),
          vec_name(FG_TABLE_CLASS, v->klass));
  vec_put(b, ",\"overload\":%s,\"trips_breaker\":%s", (v->flags & FG_FAIL_OVERLOAD) != 0 ? "true" : "false",
          (v->flags & FG_FAIL_TRIPS_BREAKER) != 0 ? "true" : "false");
  vec_put_moment(b, "retry_after_ms", (v->flags & FG_FAIL_HAS_RETRY_AFTER) != 0, v->retry_after_ms);
  vec_put(b, ",\"period\":\"%s\",\"should_retry\":%s,\"billed\":\"%s\"", vec_name(FG_TABLE_PERIOD, v->period), should,
          vec_name(FG_TABLE_BILLED, v->billed));
  vec_put(b, ",\"commit\":\"%s\",\"scope\":\"%s\",\"repair\":\"%s\"", vec_name(FG_TABLE_COMMIT, v->commit), vec_name(FG_TABLE_SCOPE, v->scope),
          vec_name(FG_TABLE_REPAIR, v->repair));
  vec_put(b, ",\"never_sent\":%s,\"silent\":%s,\"local_fault\":%s}", (v->flags & FG_FAIL_NEVER_SENT) != 0 ? "true" : "false",
          (v->flags & FG_FAIL_SILENT) != 0 ? "true" : "false", (v->flags & FG_FAIL_LOCAL_FAULT) != 0 ? "true" : "false");
}

static const char *vec_result(int32_t code) {
  switch (code) {
  case FG_OK: return "ok";
  case FG_ERR_ARG: return "arg";
  case FG_ERR_STATE: return "state";
  case FG_ERR_ABI: return "abi";
  case FG_ERR_SYNTAX: return "syntax";
  case FG_ERR_RANGE: return "range";
  case FG_ERR_CONTRACT: return "contract";
  case FG_ERR_REGION: return "region";
  case FG_ERR_FULL: return "full";
  case FG_ERR_NOMEM: return "nomem";
  default: return "?";
  }
}

/* A field by its dotted path; a number reaches into a list. */
static const cJSON *vec_find(const cJSON *object, const char *path) {
  const cJSON *at = cJSON_GetObjectItemCaseSensitive(object, path);
  char key[128];
  size_t n;
  if (at != NULL) {
    return at;
  }
  at = object;
  while (at != NULL && *path != 0) {
    n = strcspn(path, ".");
    if (n >= sizeof key) {
      return NULL;
    }
    memcpy(key, path, n);
    key[n] = 0;
    at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(key)) : cJSON_GetObjectItemCaseSensitive(at, key);
    path += n + (path[n] == '.');
  }
  return at;
}

static int vec_match(const cJSON *want, const cJSON *got) {
  const cJSON *inner, *item;
  if (cJSON_IsObject(want) && cJSON_GetArraySize(want) == 1) {
    if ((inner = vec_get(want, "not")) != NULL) {
      return !vec_match(inner, got);
    }
    if ((inner = vec_get(want, "in")) != NULL && cJSON_IsArray(inner)) {
      cJSON_ArrayForEach(item, inner) {
        if (vec_match(item, got)) {
          return 1;
        }
      }
      return 0;
    }
  }
  if (cJSON_IsArray(want) && cJSON_IsNumber(got)) {
    const cJSON *lo = cJSON_GetArrayItem(want, 0), *hi = cJSON_GetArrayItem(want, 1);
    return cJSON_GetArraySize(want) == 2 && cJSON_IsNumber(lo) && cJSON_IsNumber(hi) && got->valuedouble >= lo->valuedouble &&
           got->valuedouble <= hi->valuedouble;
  }
  return cJSON_Compare(want, got, 1);
}

#endif /* VEC_OUT_H */
