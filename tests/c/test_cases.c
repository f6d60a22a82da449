/* Labelled failures through fg_classify: accuracy by field, the misses, and the
 * floors below. Files: tests/cases/(*).jsonl, or those named as arguments.
 *
 * A case: provider, api, phase, status, headers, body, transport {lib, kind,
 * code, message}, expect {owner, overload, trips_breaker, retry_after_ms,
 * billed, scope, commit}, alt_owners (also right). */
#include <stdlib.h>
#include <cjson/cJSON.h>
#include "fg_base.h"
#include "fg_test.h"

enum { OWNER, OVERLOAD, TRIPS, RETRY_AFTER, BILLED, COMMIT, SCOPE, FIELDS };
static const char *const field_name[FIELDS] = {"owner", "overload", "trips_breaker", "retry_after_ms", "billed", "commit", "scope"};
static const unsigned floor_percent[FIELDS] = {98, 96, 96, 98, 96, 96, 90};

static unsigned right[FIELDS], owner_strict, total;
static int verbose;

static fg_str str_of(const cJSON *o, const char *name) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
  return cJSON_IsString(v) ? fg_str_of(v->valuestring) : fg_str_make(NULL, 0);
}

static int32_t int_of(const cJSON *o, const char *name) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
  return cJSON_IsNumber(v) ? (int32_t)v->valuedouble : 0;
}

static int named(uint32_t table, uint32_t value, fg_str want) {
  const char *n = fg_name(table, value);
  return n != NULL && fg_str_eq(fg_str_of(n), want);
}

static int owner_right(const cJSON *c, const cJSON *expect, uint32_t owner) {
  if (named(FG_TABLE_OWNER, owner, str_of(expect, "owner"))) {
    owner_strict++;
    return 1;
  }
  const cJSON *a;
  cJSON_ArrayForEach(a, cJSON_GetObjectItemCaseSensitive(c, "alt_owners")) {
    if (named(FG_TABLE_OWNER, owner, fg_str_of(a->valuestring))) {
      return 1;
    }
  }
  return 0;
}

static int wait_right(const cJSON *expect, const fg_failure *f) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(expect, "retry_after_ms");
  int has = (f->flags & FG_FAIL_HAS_RETRY_AFTER) != 0;
  return cJSON_IsNumber(v) ? has && (int64_t)v->valuedouble == (int64_t)f->retry_after_ms : !has;
}

static void one(const cJSON *c) {
  fg_header headers[64];
  fg_evidence e;
  fg_failure f;
  memset(&e, 0, sizeof e);
  memset(&f, 0, sizeof f);
  e.size = sizeof e;
  f.size = sizeof f;
  e.provider = str_of(c, "provider");
  e.api = str_of(c, "api");
  fg_str phase = str_of(c, "phase");
  int32_t ph = fg_parse(FG_TABLE_PHASE, phase.ptr, phase.len);
  e.phase = ph > 0 ? (uint32_t)ph : 0;
  e.status = int_of(c, "status");
  e.body = str_of(c, "body");
  e.flags = FG_EV_WHOLE_BODY;
  const cJSON *t = cJSON_GetObjectItemCaseSensitive(c, "transport");
  if (cJSON_IsObject(t)) {
    e.lib = str_of(t, "lib");
    e.kind = str_of(t, "kind");
    e.message = str_of(t, "message");
    e.code = int_of(t, "code");
  }
  const cJSON *h;
  cJSON_ArrayForEach(h, cJSON_GetObjectItemCaseSensitive(c, "headers")) {
    if (e.header_count < FG_ARRAY_LEN(headers) && cJSON_IsString(h)) {
      headers[e.header_count].name = fg_str_of(h->string);
      headers[e.header_count++].value = fg_str_of(h->valuestring);
    }
  }
  e.headers = headers;
  FG_EQ(fg_classify(NULL, &e, &f), FG_OK);
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(c, "expect");
  int ok[FIELDS];
  ok[OWNER] = owner_right(c, x, f.owner);
  ok[OVERLOAD] = ((f.flags & FG_FAIL_OVERLOAD) != 0) == cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(x, "overload"));
  ok[TRIPS] = ((f.flags & FG_FAIL_TRIPS_BREAKER) != 0) == cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(x, "trips_breaker"));
  ok[RETRY_AFTER] = wait_right(x, &f);
  ok[BILLED] = named(FG_TABLE_BILLED, f.billed, str_of(x, "billed"));
  ok[COMMIT] = named(FG_TABLE_COMMIT, f.commit, str_of(x, "commit"));
  ok[SCOPE] = named(FG_TABLE_SCOPE, f.scope, str_of(x, "scope"));
  total++;
  int all = 1;
  for (int i = 0; i < FIELDS; i++) {
    right[i] += (unsigned)ok[i];
    all = all && (ok[i] || i == SCOPE);
  }
  if (all && !(verbose && !ok[SCOPE])) {
    return;
  }
  char *want = cJSON_PrintUnformatted(x);
  char wait[24] = "null";
  if (f.flags & FG_FAIL_HAS_RETRY_AFTER) {
    snprintf(wait, sizeof wait, "%" PRIu32, f.retry_after_ms);
  }
  printf("%s:", cJSON_GetObjectItemCaseSensitive(c, "id")->valuestring);
  for (int i = 0; i < FIELDS; i++) {
    if (!ok[i]) {
      printf(" %s", field_name[i]);
    }
  }
  printf("\n  got  owner %s overload %d trips_breaker %d retry_after_ms %s billed %s scope %s commit %s, kind %s: %s\n  want %s\n",
         fg_name(FG_TABLE_OWNER, f.owner), (f.flags & FG_FAIL_OVERLOAD) != 0, (f.flags & FG_FAIL_TRIPS_BREAKER) != 0, wait,
         fg_name(FG_TABLE_BILLED, f.billed), fg_name(FG_TABLE_SCOPE, f.scope), fg_name(FG_TABLE_COMMIT, f.commit),
         fg_name(FG_TABLE_KIND, f.kind), fg_rule_why(NULL, f.rule), want);
  free(want);
}

static char *read_file(const char *path) {
  FILE *in = fopen(path, "rb");
  if (in == NULL) {
    return NULL;
  }
  char *text = NULL;
  size_t len = 0, room = 0;
  for (;;) {
    if (room - len < 65536) {
      room = room * 2 + 131072;
      char *more = realloc(text, room);
      if (more == NULL) {
        break;
      }
      text = more;
    }
    size_t n = fread(text + len, 1, room - len - 1, in);
    len += n;
    if (n == 0) {
      break;
    }
  }
  fclose(in);
  if (text != NULL) {
    text[len] = 0;
  }
  return text;
}

static void file(const char *path) {
  char *text = read_file(path);
  if (!FG_CHECK(text != NULL)) {
    printf("%s: cannot be read\n", path);
    return;
  }
  memset(right, 0, sizeof right);
  owner_strict = total = 0;
  for (char *line = text; line != NULL && *line != 0;) {
    char *end = strchr(line, '\n');
    if (end != NULL) {
      *end = 0;
    }
    cJSON *c = *line != 0 ? cJSON_Parse(line) : NULL;
    if (c != NULL) {
      one(c);
    } else if (*line != 0) {
      FG_CHECK(c != NULL);
      printf("%s: not JSON: %.60s\n", path, line);
    }
    cJSON_Delete(c);
    line = end != NULL ? end + 1 : NULL;
  }
  free(text);
  printf("%s: %u cases, owner exactly as labelled %u.%u %%\n", path, total, owner_strict * 100 / total, owner_strict * 1000 / total % 10);
  for (int i = 0; i < FIELDS; i++) {
    printf("  %-15s %u of %u (%u.%u %%)\n", field_name[i], right[i], total, right[i] * 100 / total, right[i] * 1000 / total % 10);
    FG_CHECK(right[i] * 100 >= floor_percent[i] * total);
  }
}

int main(int argc, char **argv) {
  const char *root = getenv("FG_SOURCE_ROOT");
  char path[1024];
  int files = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "-v") == 0) {
      verbose = 1;
    } else {
      file(argv[i]);
      files++;
    }
  }
  if (files == 0) {
    static const char *const names[] = {"failures.jsonl", "more.jsonl"};
    for (unsigned i = 0; i < FG_ARRAY_LEN(names); i++) {
      snprintf(path, sizeof path, "%s/tests/cases/%s", root != NULL ? root : ".", names[i]);
      file(path);
    }
  }
  return fg_test_end("cases");
}
