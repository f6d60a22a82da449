/* Replays vector files (tests/vectors/README.md) through the public API and compares every decision.
 *
 *   run_vectors [--dump FILE] PATH…    a folder stands for every .json below it but schema.json
 *
 * A vector's at_ms is added to 1,000,000,000 to make now_ms; nothing here reads a clock. */
#include <dirent.h>
#include <sys/stat.h>
#include "vec_call.h"

/* ---------------------------------------------------------------- other ops */

static uint32_t vec_named(vec_step *s, const vec_engine *e, const char *key, uint32_t what) {
  fg_str name = vec_str(&s->fault, s->in, key);
  uint32_t id = 0;
  vec_only(&s->fault, s->in, s->op, key);
  if (name.ptr != NULL) {
    id = fg_policy_find(e->policy, what, name.ptr, name.len);
  }
  if (id == 0) {
    vec_bad(&s->fault, "no %s of that name", key);
  }
  return id;
}

static void vec_view(vec_step *s, const vec_engine *e) {
  if (strcmp(s->op, "route") == 0) {
    fg_route_view view = {.size = sizeof view};
    s->result = fg_engine_route(e->engine, vec_named(s, e, "route", FG_FIND_ROUTE), s->now_ms, &view);
    vec_put_route(&s->out, &view, s->at_ms);
  } else {
    fg_workflow_view view = {.size = sizeof view};
    s->result = fg_engine_workflow(e->engine, vec_named(s, e, "workflow", FG_FIND_WORKFLOW), s->now_ms, &view);
    vec_put_workflow(&s->out, &view);
  }
}

static void vec_end_process(vec_case *c, vec_step *s, int reap) {
  uint32_t proc = vec_u32(&s->fault, s->in, "proc"), i;
  vec_only(&s->fault, s->in, s->op, "proc");
  if (proc < 1 || proc > VEC_PROCS) {
    vec_bad(&s->fault, "proc is not 1 to %d", (int)VEC_PROCS);
    return;
  }
  if (reap) {
    s->result = fg_region_reap(c->region, proc - 1, s->now_ms);
    return;
  }
  for (i = 0; i < c->call_count; i++) {
    if (c->calls[i].engine != 0 && c->engines[c->calls[i].engine - 1].slot == proc - 1) {
      c->calls[i].killed = 1;
    }
  }
  for (i = 0; i < c->engine_count; i++) {
    if (c->engines[i].slot == proc - 1) {
      c->engines[i].gone = 1;
    }
  }
  c->proc[proc - 1] = 0;
}

static void vec_reload(vec_case *c, vec_step *s) {
  const cJSON *card = vec_get(s->in, "policy");
  fg_error err;
  uint32_t made;
  vec_only(&s->fault, s->in, "reload", "policy");
  if (card == NULL || vec_load(c, card, &err) == NULL) {
    vec_bad(&s->fault, "the new card does not load: %s at %s: %s", card == NULL ? "missing" : vec_name(FG_TABLE_LOAD, err.what),
            card == NULL ? "policy" : err.path, card == NULL ? "" : err.message);
    return;
  }
  made = vec_new_engine(c, s->proc - 1, s->now_ms, &s->fault);
  c->proc[s->proc - 1] = made;
}

static void vec_engine_op(vec_case *c, vec_step *s) {
  const vec_engine *e;
  if (strcmp(s->op, "kill") == 0 || strcmp(s->op, "reap") == 0) {
    vec_end_process(c, s, s->op[0] == 'r');
    return;
  }
  if (strcmp(s->op, "reload") == 0) {
    vec_reload(c, s);
    return;
  }
  e = vec_engine_of(c, s);
  if (e == NULL) {
    return;
  }
  if (strcmp(s->op, "route") == 0 || strcmp(s->op, "workflow") == 0) {
    vec_view(s, e);
  } else if (strcmp(s->op, "tick") == 0) {
    int32_t next = fg_engine_tick(e->engine, s->now_ms);
    vec_only(&s->fault, s->in, "tick", "");
    s->result = next < 0 ? next : FG_OK;
    vec_put(&s->out, "{\"next_ms\":%d}", next);
  } else if (strcmp(s->op, "classify") == 0) {
    fg_evidence v;
    vec_evidence(&s->fault, s->in, &s->store, &v);
    vec_classify(s, e, 0, &v, &s->out);
  } else if (strcmp(s->op, "restart") == 0) {
    vec_only(&s->fault, s->in, "restart", "");
    vec_restart(c, s);
  } else if (strcmp(s->op, "clock") == 0) {
    vec_only(&s->fault, s->in, "clock", "unix_ms");
    s->result = fg_engine_clock(e->engine, vec_int(&s->fault, s->in, "unix_ms", 0, INT64_C(9007199254740992)), s->now_ms);
  } else {
    vec_bad(&s->fault, "unknown op");
  }
}

/* ---------------------------------------------------------------- steps */

static void vec_expect(vec_case *c, vec_step *s) {
  const cJSON *expect = vec_get(s->json, "expect"), *item, *got;
  cJSON *answer = cJSON_Parse(s->out.len > 0 ? s->out.text : "{}"), *extra = cJSON_Parse(s->extra.len > 0 ? s->extra.text : "{}");
  char text[1024], *want_text, *got_text;
  if (answer == NULL || extra == NULL || (expect != NULL && !cJSON_IsObject(expect))) {
    vec_report(c, s->where, s->op, answer == NULL ? "the answer is no JSON" : "expect is not an object");
    expect = NULL;
  }
  if (s->result != FG_OK && (expect == NULL || vec_get(expect, "result") == NULL)) {
    snprintf(text, sizeof text, "the library answers error %s", vec_result(s->result));
    vec_report(c, s->where, s->op, text);
  }
  cJSON_AddStringToObject(answer, "result", vec_result(s->result));
  cJSON_ArrayForEach(item, expect) {
    got = vec_find(answer, item->string);
    got = got != NULL ? got : vec_find(extra, item->string);
    if (got == NULL || !vec_match(item, got)) {
      want_text = cJSON_PrintUnformatted(item);
      got_text = got == NULL ? NULL : cJSON_PrintUnformatted(got);
      snprintf(text, sizeof text, "%s: expected %s, got %s", item->string, want_text, got_text == NULL ? "(no such field)" : got_text);
      vec_report(c, s->where, s->op, text);
      cJSON_free(want_text);
      cJSON_free(got_text);
    }
  }
  cJSON_Delete(answer);
  cJSON_Delete(extra);
}

/* `{i}` in a call's name becomes the round. */
static void vec_call_name(vec_step *s, const cJSON *name, uint32_t round) {
  fg_str text = vec_text(&s->fault, name, "call");
  const char *mark;
  int n;
  if (text.ptr == NULL) {
    return;
  }
  mark = strstr(text.ptr, "{i}");
  if (mark != NULL) {
    n = snprintf(s->call_name, sizeof s->call_name, "%.*s%u%s", (int)(mark - text.ptr), text.ptr, round, mark + 3);
  } else {
    n = snprintf(s->call_name, sizeof s->call_name, "%s", text.ptr);
  }
  if (n < 0 || n >= (int)sizeof s->call_name) {
    vec_bad(&s->fault, "the call's name is longer than %d bytes", (int)FG_CALL_ID_MAX);
  }
}

static void vec_steps(vec_case *c, const cJSON *steps, const char *prefix, int64_t base_ms, uint32_t round);

static void vec_repeat(vec_case *c, vec_step *s) {
  const cJSON *steps = vec_get(s->in, "steps");
  uint32_t times = vec_u32(&s->fault, s->in, "times"), every_ms = vec_u32(&s->fault, s->in, "every_ms"), i;
  char prefix[64];
  vec_only(&s->fault, s->in, "repeat", "times every_ms steps");
  if (!cJSON_IsArray(steps) || times > 100000) {
    vec_bad(&s->fault, "repeat needs times up to 100,000 and a list of steps");
    return;
  }
  for (i = 0; i < times && c->operations <= VEC_OPERATIONS; i++) {
    snprintf(prefix, sizeof prefix, "%s.%u.", s->where, i);
    vec_steps(c, steps, prefix, s->at_ms + (int64_t)i * every_ms, i);
  }
}

static void vec_run_step(vec_case *c, vec_step *s, int64_t base_ms, int inner, uint32_t round) {
  const cJSON *op = vec_get(s->json, "op"), *at = vec_get(s->json, inner ? "after_ms" : "at_ms");
  vec_fault *f = &s->fault;
  if (++c->operations > VEC_OPERATIONS) { /* repeats inside repeats: refused, not run for ever */
    if (c->operations == VEC_OPERATIONS + 1) {
      vec_report(c, s->where, "repeat", "a case may have a million operations, repeats counted");
    }
    return;
  }
  vec_only(f, s->json, "a step", inner ? "after_ms op call in expect proc why needs" : "at_ms op call in expect proc why needs");
  s->in = vec_get(s->json, "in");
  s->op = cJSON_IsString(op) ? op->valuestring : "?";
  s->proc = vec_get(s->json, "proc") == NULL ? 1 : (uint32_t)vec_int(f, s->json, "proc", 1, VEC_PROCS);
  vec_call_name(s, vec_get(s->json, "call"), round);
  if (at == NULL && !inner) {
    vec_bad(f, "no at_ms");
  }
  s->at_ms = base_ms + vec_int(f, s->json, inner ? "after_ms" : "at_ms", 0, INT64_C(100000000000));
  s->now_ms = VEC_BASE_MS + s->at_ms;
  if (s->proc == 0) {
    s->proc = 1;
  }
  if (f->text[0] == 0 && strcmp(s->op, "repeat") == 0) {
    vec_repeat(c, s);
  } else if (f->text[0] == 0) {
    if (!vec_call_op(c, s)) {
      vec_engine_op(c, s);
    }
    if (vec_dump != NULL) {
      if (s->result != FG_OK || s->out.len == 0) {
        fprintf(vec_dump, "%s\t%s\t{\"result\":\"%s\"}\n", c->name, s->where, vec_result(s->result));
      } else {
        fprintf(vec_dump, "%s\t%s\t%s\n", c->name, s->where, s->out.text);
      }
    }
  }
  if (f->text[0] != 0) {
    vec_report(c, s->where, s->op, f->text);
  } else if (strcmp(s->op, "repeat") != 0) {
    vec_expect(c, s);
  }
}

static void vec_steps(vec_case *c, const cJSON *steps, const char *prefix, int64_t base_ms, uint32_t round) {
  const cJSON *json;
  unsigned index = 0;
  char where[96];
  cJSON_ArrayForEach(json, steps) {
    vec_step *s = vec_alloc(NULL, sizeof *s);
    snprintf(where, sizeof where, "%s%u", prefix, index++);
    s->json = json;
    s->where = where;
    vec_run_step(c, s, base_ms, prefix[0] != 0, round);
    free(s);
  }
}

/* ---------------------------------------------------------------- cases and files */

static void vec_load_error(vec_case *c, const cJSON *want, const fg_error *err, int loaded) {
  const cJSON *item;
  cJSON *got = cJSON_CreateObject();
  const char *code = loaded ? "none" : vec_name(FG_TABLE_LOAD, err->what);
  char text[1024], *want_text;
  cJSON_AddStringToObject(got, "code", code);
  cJSON_AddStringToObject(got, "path", err->path);
  cJSON_AddNumberToObject(got, "line", err->line);
  cJSON_AddNumberToObject(got, "column", err->column);
  if (vec_dump != NULL) {
    fprintf(vec_dump, "%s\terror\t{\"code\":\"%s\",\"path\":\"%s\"}\n", c->name, code, err->path);
  }
  cJSON_ArrayForEach(item, want) {
    if (vec_get(got, item->string) == NULL || !vec_match(item, vec_get(got, item->string))) {
      want_text = cJSON_PrintUnformatted(want);
      snprintf(text, sizeof text, "expected %s, got %s at \"%s\" line %u column %u: %s", want_text, loaded ? "a card that loads" : code, err->path,
               err->line, err->column, err->message);
      vec_report(c, "-", "load", text);
      cJSON_free(want_text);
      break;
    }
  }
  cJSON_Delete(got);
}

static void vec_run_case(const char *file, const cJSON *json) {
  const cJSON *name = vec_get(json, "name"), *card = vec_get(json, "policy"), *want = vec_get(json, "error");
  vec_case c = {.file = file, .name = cJSON_IsString(name) ? name->valuestring : "?", .config = {.size = sizeof c.config}};
  vec_fault f = {{0}};
  fg_error err;
  fg_policy *policy;
  vec_only(&f, json, "a case", "name why needs policy seed steps error");
  vec_only(&f, want, "error", "code path line column");
  c.seed = (uint64_t)vec_int(&f, json, "seed", 0, INT64_C(9007199254740992));
  if (!cJSON_IsObject(card) && !cJSON_IsString(card)) {
    vec_bad(&f, "no policy");
  }
  if ((want == NULL) == (vec_get(json, "steps") == NULL) || (want == NULL && !cJSON_IsArray(vec_get(json, "steps")))) {
    vec_bad(&f, "a case has either steps or error");
  }
  if (f.text[0] == 0) {
    policy = vec_load(&c, card, &err);
    if (want != NULL) {
      vec_load_error(&c, want, &err, policy != NULL);
    } else if (policy == NULL) {
      vec_bad(&f, "the card does not load: %s at %s line %u: %s", vec_name(FG_TABLE_LOAD, err.what), err.path, err.line, err.message);
    } else {
      c.region_memory = vec_alloc(NULL, fg_region_bytes(&c.config));
      if (vec_open_region(&c, VEC_BASE_MS, &f)) {
        vec_steps(&c, vec_get(json, "steps"), "", 0, 0);
      }
    }
  }
  if (f.text[0] != 0) {
    vec_report(&c, "-", "case", f.text);
  }
  if (c.faults > VEC_FAULTS_SHOWN) {
    printf("  … %u more\n", c.faults - VEC_FAULTS_SHOWN);
  }
  if (c.faults == 0) {
    vec_passed++;
  } else {
    vec_failed++;
  }
  vec_close(&c);
}

/* A vector file's text; NULL: it could not be read. text[len] is 0. */
static void vec_run_text(const char *path, const char *text, size_t len) {
  vec_fault f = {{0}};
  cJSON *document = text != NULL ? cJSON_ParseWithLengthOpts(text, len + 1, NULL, 1) : NULL;
  const cJSON *item;
  if (document == NULL) {
    vec_bad(&f, text == NULL ? "cannot be read" : "is not JSON");
  } else {
    vec_only(&f, document, "the file", "name why needs cases");
    if (!cJSON_IsArray(vec_get(document, "cases"))) {
      vec_bad(&f, "has no cases");
    }
  }
  if (f.text[0] != 0) {
    printf("%s: %s\n", path, f.text);
    vec_failed++;
  } else {
    cJSON_ArrayForEach(item, vec_get(document, "cases")) vec_run_case(path, item);
  }
  cJSON_Delete(document);
}

static void vec_run_file(const char *path) {
  FILE *in = fopen(path, "rb");
  char *text = NULL;
  size_t len = 0, cap = 0, n;
  if (in != NULL) {
    do {
      cap = len + 65536;
      text = realloc(text, cap + 1);
      n = fread(text + len, 1, cap - len, in);
      len += n;
    } while (n > 0);
    text[len] = 0;
    fclose(in);
  }
  vec_run_text(path, text, len);
  free(text);
}

static int vec_is_vector(const struct dirent *entry) {
  return entry->d_name[0] != '.' && strcmp(entry->d_name, "schema.json") != 0;
}

static void vec_run_path(const char *path, int named) {
  struct stat info;
  struct dirent **entries = NULL;
  size_t n = strlen(path);
  int count, i;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
    count = scandir(path, &entries, vec_is_vector, alphasort);
    for (i = 0; i < count; i++) {
      char *below = vec_alloc(NULL, n + strlen(entries[i]->d_name) + 2);
      sprintf(below, "%s/%s", path, entries[i]->d_name);
      vec_run_path(below, 0);
      free(below);
      free(entries[i]);
    }
    free(entries);
  } else if (named || (n > 5 && strcmp(path + n - 5, ".json") == 0)) {
    vec_run_file(path);
  }
}

int main(int argc, char **argv) {
  int i = 1;
  if (argc > 2 && strcmp(argv[1], "--dump") == 0) {
    vec_dump = fopen(argv[2], "wb");
    if (vec_dump == NULL) {
      fprintf(stderr, "run_vectors: cannot write %s\n", argv[2]);
      return 2;
    }
    i = 3;
  }
  if (i >= argc) {
    fputs("usage: run_vectors [--dump FILE] PATH…\n", stderr);
    return 2;
  }
  for (; i < argc; i++) {
    vec_run_path(argv[i], 1);
  }
  if (vec_dump != NULL) {
    fclose(vec_dump);
  }
  printf("%u passed, %u failed\n", vec_passed, vec_failed);
  return vec_failed == 0 ? 0 : 1;
}
