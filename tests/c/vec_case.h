/* One case being replayed: its cards, region, engines of every process, calls. */
#ifndef VEC_CASE_H
#define VEC_CASE_H

#include "fg_card.h"
#include "vec_in.h"
#include "vec_out.h"

enum { VEC_BASE_MS = 1000000000, VEC_PROCS = 64, VEC_FAULTS_SHOWN = 8, VEC_OPERATIONS = 1000000 };

typedef struct vec_engine { fg_engine *engine; fg_policy *policy; uint32_t slot, gone; } vec_engine;
typedef struct vec_call { char name[FG_CALL_ID_MAX + 1]; fg_call call; fg_decision last; uint32_t engine, killed; } vec_call;

typedef struct vec_case {
  const char *file, *name;
  uint64_t seed;
  fg_region_config config;
  void *region_memory;
  fg_region *region;
  fg_policy **policies;
  vec_engine *engines;
  vec_call *calls;
  uint32_t policy_count, engine_count, call_count, call_cap;
  uint32_t policy;           /* of a new engine: index + 1 */
  uint32_t proc[VEC_PROCS];  /* its engine: index + 1 */
  unsigned faults, operations;
} vec_case;

typedef struct vec_step { /* one op being run */
  const cJSON *json, *in;
  const char *op, *where;    /* "3" or "3.0.1" */
  char call_name[FG_CALL_ID_MAX + 1];
  int64_t at_ms, now_ms;
  uint32_t proc;
  int32_t result;
  vec_fault fault;
  vec_text_buf out, extra;   /* the answer; the failure's own fields */
  vec_in store;
} vec_step;

static FILE *vec_dump;
static unsigned vec_passed, vec_failed;

static void vec_report(vec_case *c, const char *where, const char *op, const char *text) {
  if (c->faults == 0) {
    printf("%s: \"%s\"\n", c->file, c->name);
  }
  if (++c->faults <= VEC_FAULTS_SHOWN) {
    printf("  step %s %s: %s\n", where, op, text);
  }
}

static fg_policy *vec_load(vec_case *c, const cJSON *card, fg_error *err) {
  char *text = cJSON_IsString(card) ? NULL : cJSON_PrintUnformatted(card);
  const char *bytes = text != NULL ? text : card->valuestring;
  fg_policy *policy = NULL;
  int32_t code;
  memset(err, 0, sizeof *err);
  err->size = sizeof *err;
  code = fg_card_load_flags(bytes, strlen(bytes), &vec_mem, FG_CARD_AUTO_FINGERPRINT, &policy, err);
  cJSON_free(text);
  if (code != FG_OK) {
    return NULL;
  }
  c->policies = realloc(c->policies, (c->policy_count + 1) * sizeof *c->policies);
  c->policies[c->policy_count++] = policy;
  c->policy = c->policy_count;
  return policy;
}

static uint32_t vec_new_engine(vec_case *c, uint32_t slot, int64_t now_ms, vec_fault *f) {
  fg_policy *policy = c->policies[c->policy - 1];
  uint64_t bytes = fg_engine_bytes(policy);
  fg_error err = {.size = sizeof err};
  vec_engine e = {NULL, policy, slot, 0};
  int32_t code = fg_engine_init(vec_alloc(NULL, bytes), bytes, policy, c->region, slot, c->seed, now_ms, &e.engine, &err);
  if (code != FG_OK) {
    vec_bad(f, "fg_engine_init: %s %s", vec_result(code), err.message);
    return 0;
  }
  c->engines = realloc(c->engines, (c->engine_count + 1) * sizeof *c->engines);
  c->engines[c->engine_count++] = e;
  return c->engine_count;
}

static int vec_open_region(vec_case *c, int64_t now_ms, vec_fault *f) {
  fg_error err = {.size = sizeof err};
  int32_t code = fg_region_open(c->region_memory, fg_region_bytes(&c->config), &c->config, now_ms, &c->region, &err);
  if (code != FG_OK) {
    vec_bad(f, "fg_region_open: %s %s", vec_result(code), err.message);
  }
  return code == FG_OK;
}

static vec_engine *vec_engine_of(vec_case *c, vec_step *s) {
  uint32_t *at = &c->proc[s->proc - 1];
  if (*at == 0) {
    *at = vec_new_engine(c, s->proc - 1, s->now_ms, &s->fault);
  }
  return *at == 0 ? NULL : &c->engines[*at - 1];
}

/* Every process restarts: the region's bytes move to another address, each engine is made again there, calls go on. */
static void vec_restart(vec_case *c, vec_step *s) {
  uint64_t bytes = fg_region_bytes(&c->config);
  void *old = c->region_memory;
  uint32_t i;
  c->region_memory = vec_alloc(NULL, bytes);
  memcpy(c->region_memory, old, (size_t)bytes);
  memset(old, 0xA5, (size_t)bytes);
  free(old);
  if (!vec_open_region(c, s->now_ms, &s->fault)) {
    return;
  }
  for (i = 0; i < c->engine_count; i++) {
    vec_engine *e = &c->engines[i];
    if (e->gone == 0) {
      uint64_t size = fg_engine_bytes(e->policy);
      fg_error err = {.size = sizeof err};
      free(e->engine);
      s->result = fg_engine_init(vec_alloc(NULL, size), size, e->policy, c->region, e->slot, c->seed, s->now_ms, &e->engine, &err);
    }
  }
}

static void vec_close(vec_case *c) {
  uint32_t i;
  for (i = 0; i < c->engine_count; i++) {
    free(c->engines[i].engine);
  }
  for (i = 0; i < c->policy_count; i++) {
    fg_policy_free(c->policies[i], &vec_mem);
  }
  free(c->policies);
  free(c->engines);
  free(c->calls);
  free(c->region_memory);
}

static vec_call *vec_find_call(vec_case *c, const char *name) {
  uint32_t i;
  for (i = c->call_count; i > 0; i--) {
    if (strcmp(c->calls[i - 1].name, name) == 0) {
      return &c->calls[i - 1];
    }
  }
  return NULL;
}

static vec_call *vec_new_call(vec_case *c, const char *name) {
  vec_call *call = vec_find_call(c, name);
  if (call == NULL) {
    if (c->call_count == c->call_cap) {
      c->call_cap = c->call_cap == 0 ? 16 : c->call_cap * 2;
      c->calls = realloc(c->calls, c->call_cap * sizeof *c->calls);
    }
    call = &c->calls[c->call_count++];
  }
  memset(call, 0, sizeof *call);
  snprintf(call->name, sizeof call->name, "%s", name);
  return call;
}

#endif /* VEC_CASE_H */
