/* What a workflow requires, and the schema its answers are checked against, as a tree in preorder. */
#include "fg_card_number.h"
#include "fg_card_sections.h"

enum { NODES_MAX = FG_SCHEMA_NODES, ENUM_MAX = 256 };

typedef struct tree {
  fg_policy_schema_node node[NODES_MAX];
  uint32_t count;
} tree;

static const char *const TYPES[] = {"object", "array", "string", "integer", "number", "boolean", "null", NULL}; /* bits 1, 2, 4 ... */

static int read_types(fg_card *c, const cJSON *node, uint32_t *types) {
  uint32_t bit = 0;
  if (cJSON_IsArray(node)) {
    return fg_read_words(c, node, TYPES, types);
  }
  if (!fg_read_word(c, node, TYPES, &bit)) {
    return 0;
  }
  *types = 1U << bit;
  return 1;
}

/* Scalars as the output check compares them: a text in quotes, unescaped; numbers as shortest decimals. */
static int read_enum(fg_card *c, const cJSON *list, fg_policy_schema_node *n) {
  fg_pstr value[ENUM_MAX];
  uint32_t i = 0;
  if (!fg_read_type(c, list, FG_ARRAY)) {
    return 0;
  }
  for (const cJSON *e = list->child; e != NULL; e = e->next, i++) {
    char text[1026];
    uint32_t len;
    fg_card_push_index(c, i);
    if (i == ENUM_MAX) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "an enum has at most 256 values");
    }
    if (cJSON_IsString(e)) {
      len = (uint32_t)strlen(e->valuestring);
      if (len > 1024) {
        return FG_FAIL(c, FG_LOAD_LIMIT, "a value of an enum has at most 1024 bytes");
      }
      text[0] = '"';
      memcpy(text + 1, e->valuestring, len);
      text[len + 1] = '"';
      len += 2;
    } else if (cJSON_IsNumber(e)) {
      len = fg_number_canonical(e, text);
      if (len == 0) {
        return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not exact; write at most 9 decimals and 15 digits");
      }
    } else if (cJSON_IsBool(e) || cJSON_IsNull(e)) {
      const char *word = cJSON_IsTrue(e) ? "true" : cJSON_IsFalse(e) ? "false" : "null";
      len = (uint32_t)strlen(word);
      memcpy(text, word, len);
    } else {
      return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(e), "; an enum lists texts, numbers, true, false or null");
    }
    value[i] = fg_block_text(&c->block, text, len);
    fg_card_pop(c);
  }
  if (i == 0) {
    return FG_FAIL(c, FG_LOAD_MISSING, "an empty enum allows nothing; list its values");
  }
  n->enum_count = i;
  n->enum_off = fg_block_array(&c->block, value, i * sizeof *value);
  return c->block.failed ? fg_card_nomem(c) : 1;
}

typedef struct schema_in { const cJSON *type, *required, *properties, *items, *values; } schema_in;

#define NODE(key, field, kind_of) {.name = key, .kind = FG_FIELD_NODE, .flags = kind_of, .offset = (uint32_t)offsetof(schema_in, field)}
static const fg_field SCHEMA[] = {
    NODE("type", type, 0), NODE("required", required, FG_ARRAY), NODE("properties", properties, FG_OBJECT), NODE("items", items, FG_OBJECT),
    NODE("enum", values, FG_ARRAY),
};
#undef NODE

static int add(fg_card *c, tree *t, fg_pstr name, uint32_t *at) {
  if (t->count == NODES_MAX) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "a schema has at most 256 nodes; check less of the answer");
  }
  *at = t->count++;
  memset(&t->node[*at], 0, sizeof t->node[*at]);
  t->node[*at].name = name;
  t->node[*at].skip = 1;
  return 1;
}

static int read_schema(fg_card *c, const cJSON *node, tree *t, uint32_t at);

static int property(fg_card *c, tree *t, uint32_t parent, const char *name, uint32_t *at) {
  size_t len = strlen(name);
  if (len == 0 || len > FG_NAME_MAX) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "a property's name has 1 to 64 bytes");
  }
  fg_pstr s = fg_block_text(&c->block, name, (uint32_t)len);
  t->node[parent].child_count++;
  return c->block.failed ? fg_card_nomem(c) : add(c, t, s, at);
}

static uint32_t child_of(const fg_card *c, const tree *t, uint32_t parent, const char *name) {
  uint32_t at = parent + 1, len = (uint32_t)strlen(name);
  for (uint32_t i = 0; i < t->node[parent].child_count; i++, at += t->node[at].skip) {
    fg_pstr s = t->node[at].name;
    if (s.len > 0 && fg_eq(c->block.ptr + s.off, s.len, name, len)) {
      return at;
    }
  }
  return 0;
}

static int read_properties(fg_card *c, const cJSON *node, tree *t, uint32_t parent) {
  for (const cJSON *m = node->child; m != NULL; m = m->next) {
    uint32_t at = 0;
    fg_card_push(c, m->string);
    if (child_of(c, t, parent, m->string) != 0) {
      return fg_card_fail_parts(c, FG_LOAD_DUPLICATE_KEY, 1,
                                (const char *const[]){"this property is already given above; leave one out", NULL});
    }
    if (!property(c, t, parent, m->string, &at) || !read_schema(c, m, t, at)) {
      return 0;
    }
    fg_card_pop(c);
  }
  return 1;
}

static int read_required(fg_card *c, const cJSON *list, tree *t, uint32_t parent) {
  uint32_t i = 0;
  for (const cJSON *e = list->child; e != NULL; e = e->next, i++) {
    uint32_t at = 0;
    fg_card_push_index(c, i);
    if (!cJSON_IsString(e)) {
      return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(e), "; write a property's name");
    }
    at = child_of(c, t, parent, e->valuestring);
    if (at == 0 && !property(c, t, parent, e->valuestring, &at)) { /* required, and free in form */
      return 0;
    }
    t->node[at].required = 1;
    fg_card_pop(c);
  }
  return 1;
}

static int within(fg_card *c, const char *key, const cJSON *node, tree *t, uint32_t at, int (*read)(fg_card *, const cJSON *, tree *, uint32_t)) {
  if (node == NULL) {
    return 1;
  }
  fg_card_push(c, key);
  if (!read(c, node, t, at)) {
    return 0;
  }
  fg_card_pop(c);
  return 1;
}

static int read_items(fg_card *c, const cJSON *node, tree *t, uint32_t parent) {
  uint32_t at = 0;
  t->node[parent].child_count++;
  return add(c, t, (fg_pstr){0, 0}, &at) && read_schema(c, node, t, at);
}

static int read_schema(fg_card *c, const cJSON *node, tree *t, uint32_t at) {
  schema_in in;
  memset(&in, 0, sizeof in);
  if (!cJSON_IsObject(node)) {
    return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(node), "; write a schema: type, required, properties, enum, items");
  }
  if (!FG_READ(c, node, SCHEMA, &in, NULL)) {
    return 0;
  }
  if (in.type != NULL) {
    fg_card_push(c, "type");
    if (!read_types(c, in.type, &t->node[at].types)) {
      return 0;
    }
    fg_card_pop(c);
  }
  if (in.values != NULL) {
    fg_card_push(c, "enum");
    if (!read_enum(c, in.values, &t->node[at])) {
      return 0;
    }
    fg_card_pop(c);
  }
  if (!within(c, "properties", in.properties, t, at, read_properties) || !within(c, "required", in.required, t, at, read_required) ||
      !within(c, "items", in.items, t, at, read_items)) {
    return 0;
  }
  t->node[at].skip = t->count - at;
  return 1;
}

int fg_card_schema(fg_card *c, const cJSON *node, fg_policy_workflow *w) {
  tree t;
  uint32_t root;
  t.count = 0;
  if (!add(c, &t, (fg_pstr){0, 0}, &root) || !read_schema(c, node, &t, root)) {
    return 0;
  }
  w->schema_count = t.count;
  w->schema_off = fg_block_array(&c->block, t.node, t.count * sizeof *t.node);
  return c->block.failed ? fg_card_nomem(c) : 1;
}

/* ---------------------------------------------------------------- requires */

static uint32_t whole(const cJSON *node, uint32_t otherwise) {
  int64_t value = otherwise;
  if (node != NULL) {
    fg_number_scaled(node, 0, &value);
  }
  return (uint32_t)value;
}

int fg_card_requires(fg_card *c, const cJSON *node, fg_policy_workflow *w, fg_card_workflow *extra) {
#define FINISH_WORD(n, N, w) #w,
  static const char *const FINISHES[] = {FG_FINISH_MAP(FINISH_WORD) NULL};
  fg_sections s;
  if (!fg_sections_read(c, node, FG_SIDE_REQUIRES, &s)) {
    return 0;
  }
  const cJSON *const *v = s.value;
  if (!fg_sections_not_empty(c, v[FG_KEY_DATA_REGIONS], "data", "regions") || !fg_sections_not_empty(c, v[FG_KEY_OUTPUT_FINISH], "output", "finish_reasons")) {
    return 0;
  }
  w->needs_context_tokens = whole(v[FG_KEY_INPUT_CONTEXT], 0);
  extra->min_cases = whole(v[FG_KEY_QUALITY_CASES], 1);
  extra->min_score_ppm = whole(v[FG_KEY_QUALITY_SCORE], 0);
  extra->max_drop_ppm = whole(v[FG_KEY_QUALITY_DROP], 1000000);
  if (v[FG_KEY_OUTPUT_FINISH] != NULL && !fg_read_words(c, v[FG_KEY_OUTPUT_FINISH], FINISHES, &w->finish_mask)) {
    return 0;
  }
  w->refusal_is_answer = v[FG_KEY_OUTPUT_REFUSAL] != NULL && strcmp(v[FG_KEY_OUTPUT_REFUSAL]->valuestring, "answer") == 0;
  uint64_t unused = 0; /* a request may name these though no route does */
  if (!fg_card_bits(c, 1, v[FG_KEY_DATA_REGIONS], &unused) || !fg_card_bits(c, 0, v[FG_KEY_DATA_CLASSES], &unused)) {
    return 0;
  }
  if (v[FG_KEY_OUTPUT_SCHEMA] != NULL) {
    fg_card_push(c, "output");
    fg_card_push(c, "schema");
    if (!fg_card_schema(c, v[FG_KEY_OUTPUT_SCHEMA], w)) {
      return 0;
    }
    fg_card_pop(c);
    fg_card_pop(c);
  }
  return 1;
}
