/* The output check against a plain validator over a tree: random schemas of the subset, random answers near them. */
#include "fg_test.h"

#include <cjson/cJSON.h>

#include "card_text.h"
#include "fg_output.h"

static uint64_t state = 20261101;

static uint32_t pick(uint32_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 33) % n;
}

static const char *const KEYS[] = {"a", "b", "long key with \xc3\xbc", "d"};
static const char *const TEXTS[] = {"", "a", "ab", "\xc3\xbc", "quote\"slash\\", "line\nend"};
static const char *const TYPES[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
static const double NUMBERS[] = {0, 1, -1, 2.5, -0.5, 1000000, 0.125};

static cJSON *scalar(void) {
  switch (pick(5)) {
  case 0:
    return cJSON_CreateString(TEXTS[pick(6)]);
  case 1:
    return cJSON_CreateNumber(NUMBERS[pick(7)]);
  case 2:
    return cJSON_CreateBool((int)pick(2));
  case 3:
    return cJSON_CreateNull();
  default:
    return cJSON_CreateString(TEXTS[pick(3)]);
  }
}

/* ------------------------------------------------------------------- schema */

static cJSON *schema(uint32_t depth) {
  cJSON *s = cJSON_CreateObject();
  uint32_t first = pick(7);
  if (pick(4) == 0) {
    cJSON *list = cJSON_AddArrayToObject(s, "type");
    cJSON_AddItemToArray(list, cJSON_CreateString(TYPES[first]));
    cJSON_AddItemToArray(list, cJSON_CreateString(TYPES[(first + 1 + pick(6)) % 7]));
  } else if (pick(3) > 0) {
    cJSON_AddStringToObject(s, "type", TYPES[depth > 0 ? pick(2) : first]);
  }
  if (pick(6) == 0) {
    cJSON *list = cJSON_AddArrayToObject(s, "enum");
    for (uint32_t i = 0, n = 1 + pick(4); i < n; i++) {
      cJSON_AddItemToArray(list, scalar());
    }
  }
  if (depth > 0 && pick(3) > 0) {
    cJSON *p = cJSON_AddObjectToObject(s, "properties");
    for (uint32_t k = 0; k < 4; k++) {
      if (pick(2)) {
        cJSON_AddItemToObject(p, KEYS[k], schema(depth - 1));
      }
    }
  }
  if (pick(3) == 0) {
    cJSON *r = cJSON_AddArrayToObject(s, "required");
    for (uint32_t k = 0; k < 4; k++) {
      if (pick(3) == 0) {
        cJSON_AddItemToArray(r, cJSON_CreateString(KEYS[k]));
      }
    }
  }
  if (depth > 0 && pick(3) > 0) {
    cJSON_AddItemToObject(s, "items", schema(depth - 1));
  }
  return s;
}

static cJSON *value(uint32_t depth) {
  uint32_t what = depth > 0 ? pick(4) : 3;
  if (what <= 1) {
    cJSON *o = cJSON_CreateObject();
    for (uint32_t k = 0; k < 4; k++) {
      if (pick(3) > 0) {
        cJSON_AddItemToObject(o, KEYS[k], value(depth - 1));
      }
    }
    return o;
  }
  if (what == 2) {
    cJSON *a = cJSON_CreateArray();
    for (uint32_t i = 0, n = pick(4); i < n; i++) {
      cJSON_AddItemToArray(a, value(depth - 1));
    }
    return a;
  }
  return scalar();
}

/* An answer made after the schema: mostly right, so that both verdicts come often. */
static cJSON *near(const cJSON *s, uint32_t depth) {
  const cJSON *list = cJSON_GetObjectItem(s, "enum"), *type = cJSON_GetObjectItem(s, "type"), *m = NULL;
  if (pick(12) == 0) {
    return value(depth);
  }
  if (list != NULL) {
    return cJSON_Duplicate(cJSON_GetArrayItem(list, (int)pick((uint32_t)cJSON_GetArraySize(list))), 1);
  }
  const char *word = cJSON_IsArray(type) ? cJSON_GetArrayItem(type, (int)pick(2))->valuestring : type != NULL ? type->valuestring : TYPES[pick(7)];
  if (strcmp(word, "object") == 0) {
    cJSON *o = cJSON_CreateObject();
    cJSON_ArrayForEach(m, cJSON_GetObjectItem(s, "required")) {
      const cJSON *p = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItem(s, "properties"), m->valuestring);
      if (pick(15) > 0) {
        cJSON_AddItemToObject(o, m->valuestring, p != NULL ? near(p, depth > 0 ? depth - 1 : 0) : scalar());
      }
    }
    cJSON_ArrayForEach(m, cJSON_GetObjectItem(s, "properties")) {
      if (pick(2) && !cJSON_HasObjectItem(o, m->string)) {
        cJSON_AddItemToObject(o, m->string, near(m, depth > 0 ? depth - 1 : 0));
      }
    }
    return o;
  }
  if (strcmp(word, "array") == 0) {
    cJSON *a = cJSON_CreateArray();
    const cJSON *items = cJSON_GetObjectItem(s, "items");
    for (uint32_t i = 0, n = pick(4); i < n; i++) {
      cJSON_AddItemToArray(a, items != NULL ? near(items, depth > 0 ? depth - 1 : 0) : scalar());
    }
    return a;
  }
  return strcmp(word, "string") == 0    ? cJSON_CreateString(TEXTS[pick(6)])
         : strcmp(word, "integer") == 0 ? cJSON_CreateNumber((double)pick(5))
         : strcmp(word, "number") == 0  ? cJSON_CreateNumber(NUMBERS[pick(7)])
         : strcmp(word, "boolean") == 0 ? cJSON_CreateBool((int)pick(2))
                                        : cJSON_CreateNull();
}

/* ---------------------------------------------------------------- the model */

static int is_type(const cJSON *v, const char *word) {
  return strcmp(word, "object") == 0    ? cJSON_IsObject(v)
         : strcmp(word, "array") == 0   ? cJSON_IsArray(v)
         : strcmp(word, "string") == 0  ? cJSON_IsString(v)
         : strcmp(word, "integer") == 0 ? cJSON_IsNumber(v) && (int64_t)(v->valuedouble * 8) % 8 == 0
         : strcmp(word, "number") == 0  ? cJSON_IsNumber(v)
         : strcmp(word, "boolean") == 0 ? cJSON_IsBool(v)
                                        : cJSON_IsNull(v);
}

static int valid(const cJSON *s, const cJSON *v) {
  const cJSON *type = cJSON_GetObjectItem(s, "type"), *m = NULL;
  int ok = type == NULL;
  if (cJSON_IsString(type)) {
    ok = is_type(v, type->valuestring);
  }
  cJSON_ArrayForEach(m, type) {
    ok |= is_type(v, m->valuestring);
  }
  if (cJSON_GetObjectItem(s, "enum") != NULL) {
    int found = 0;
    cJSON_ArrayForEach(m, cJSON_GetObjectItem(s, "enum")) {
      found |= cJSON_Compare(m, v, 1);
    }
    ok &= found;
  }
  if (cJSON_IsObject(v)) {
    cJSON_ArrayForEach(m, cJSON_GetObjectItem(s, "required")) {
      ok &= cJSON_GetObjectItemCaseSensitive(v, m->valuestring) != NULL;
    }
    cJSON_ArrayForEach(m, cJSON_GetObjectItem(s, "properties")) {
      const cJSON *child = cJSON_GetObjectItemCaseSensitive(v, m->string);
      ok &= child == NULL || valid(m, child);
    }
  }
  if (cJSON_IsArray(v) && cJSON_GetObjectItem(s, "items") != NULL) {
    cJSON_ArrayForEach(m, v) {
      ok &= valid(cJSON_GetObjectItem(s, "items"), m);
    }
  }
  return ok;
}

int main(void) {
  uint32_t good = 0, bad = 0;
  card_mem counts = {0, 0, 0, 0};
  fg_mem mem = card_allocator(&counts);
  for (uint32_t i = 0; i < 3000; i++) {
    cJSON *s = schema(3);
    char *text = cJSON_PrintUnformatted(s), *card = malloc(strlen(text) + 200);
    sprintf(card, "{\"version\":1,\"routes\":{\"m\":{\"provider\":\"p\",\"model\":\"m\"}},\"workflows\":{\"w\":{\"routes\":[\"m\"],\"requires\":{\"output\":{\"schema\":%s}}}}}", text);
    fg_policy *p = NULL;
    fg_error err = {.size = sizeof err};
    if (!FG_EQ(fg_card_load(card, strlen(card), &mem, &p, &err), FG_OK)) {
      printf("  %s: %s\n", err.message, card);
      return 1;
    }
    for (uint32_t k = 0; k < 20; k++) {
      cJSON *v = near(s, 3);
      char *json = pick(2) ? cJSON_Print(v) : cJSON_PrintUnformatted(v);
      fg_answer a = {.size = sizeof a, .finish = FG_FINISH_STOP, .output = fg_str_of(json), .flags = FG_ANSWER_OUTPUT_KNOWN};
      int want = valid(s, v);
      *(want ? &good : &bad) += 1;
      if (!FG_EQ(fg_output_check(p, fg_policy_workflows(p), &a), want ? 0 : FG_KIND_OUTPUT_INVALID)) {
        printf("  %s\n  %s\n", text, json);
      }
      a.output.len = pick(a.output.len); /* cut off: never a document again, unless it was a bare number */
      if (!cJSON_IsNumber(v) && fg_trim(a.output).len > 0) {
        FG_EQ(fg_output_check(p, fg_policy_workflows(p), &a), FG_KIND_OUTPUT_INVALID);
      }
      free(json);
      cJSON_Delete(v);
    }
    fg_policy_free(p, &mem);
    free(card);
    free(text);
    cJSON_Delete(s);
  }
  FG_EQ(counts.open, 0);
  FG_CHECK(good > 10000 && bad > 10000);
  printf("%u answers hold, %u do not\n", good, bad);
  return fg_test_end("output_model");
}
