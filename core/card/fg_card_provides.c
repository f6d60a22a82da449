/* What a route declares, as numbers and bits of the block: the limits a request must fit. */
#include "fg_card_number.h"
#include "fg_card_sections.h"
#include "fg_math.h"

static uint32_t whole(const cJSON *node) {
  int64_t value = 0;
  if (node != NULL) {
    fg_number_scaled(node, 0, &value);
  }
  return (uint32_t)value;
}

static void feature(fg_policy_route *r, const cJSON *node, uint32_t bit) {
  if (node != NULL) {
    r->features_known |= bit;
    r->features |= cJSON_IsFalse(node) ? 0 : bit;
  }
}

static void modalities(fg_policy_route *r, const cJSON *list) {
  static const struct { const char *word; uint32_t bit; } BITS[] = {
      {"text", FG_FEATURE_TEXT}, {"image", FG_FEATURE_IMAGE}, {"audio", FG_FEATURE_AUDIO}, {"video", FG_FEATURE_VIDEO}, {"file", FG_FEATURE_FILE}};
  for (uint32_t i = 0; list != NULL && i < FG_ARRAY_LEN(BITS); i++) {
    r->features_known |= BITS[i].bit;
    for (const cJSON *e = list->child; e != NULL; e = e->next) {
      r->features |= strcmp(e->valuestring, BITS[i].word) == 0 ? BITS[i].bit : 0;
    }
  }
}

static int bit_of(fg_card *c, fg_pstr *table, uint32_t *count, const cJSON *node, uint64_t *bits) {
  uint32_t len = (uint32_t)strlen(node->valuestring);
  fg_pstr name = fg_block_text(&c->block, node->valuestring, len);
  if (c->block.failed) {
    return fg_card_nomem(c);
  }
  for (uint32_t i = 0; i < *count; i++) {
    if (table[i].off == name.off) { /* equal texts are interned once */
      *bits |= (uint64_t)1 << i;
      return 1;
    }
  }
  if (*count == 64) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "a card knows at most 64 different regions and 64 data classes; merge some");
  }
  table[*count] = name;
  *bits |= (uint64_t)1 << (*count)++;
  return 1;
}

int fg_card_bits(fg_card *c, int regions, const cJSON *list, uint64_t *bits) {
  uint32_t i = 0;
  fg_card_push(c, "data");
  fg_card_push(c, regions ? "regions" : "classes");
  for (const cJSON *e = list != NULL ? list->child : NULL; e != NULL; e = e->next) {
    fg_card_push_index(c, i++);
    if (!bit_of(c, regions ? c->regions : c->classes, regions ? &c->head.region_count : &c->head.class_count, e, bits)) {
      return 0;
    }
    fg_card_pop(c);
  }
  fg_card_pop(c);
  fg_card_pop(c);
  return 1;
}

/* Hashes of tool names, sorted; "*" among them: any. */
int fg_card_tool_list(fg_card *c, const cJSON *node, uint32_t *off, uint32_t *count, uint32_t *any) {
  uint64_t hash[FG_TOOLS_MAX];
  uint32_t n = 0;
  for (const cJSON *e = node->child; e != NULL; e = e->next) {
    if (strcmp(e->valuestring, "*") == 0) {
      *any = 1;
      continue;
    }
    uint64_t h = fg_card_hash(e->valuestring, (uint32_t)strlen(e->valuestring));
    uint32_t at = n++;
    for (; at > 0 && hash[at - 1] > h; at--) {
      hash[at] = hash[at - 1];
    }
    hash[at] = h;
  }
  *count = n;
  *off = n > 0 ? fg_block_array(&c->block, hash, n * sizeof *hash) : 0;
  return c->block.failed ? fg_card_nomem(c) : 1;
}

int fg_card_provides(fg_card *c, const cJSON *node, fg_policy_route *r) {
  fg_sections s;
  if (!fg_sections_read(c, node, FG_SIDE_PROVIDES, &s)) {
    return 0;
  }
  const cJSON *const *v = s.value;
  if (!fg_sections_not_empty(c, v[FG_KEY_DATA_REGIONS], "data", "regions") || !fg_sections_not_empty(c, v[FG_KEY_DATA_CLASSES], "data", "classes")) {
    return 0;
  }
  r->context_tokens = whole(v[FG_KEY_INPUT_CONTEXT]);
  r->request_bytes = whole(v[FG_KEY_INPUT_BYTES]);
  r->max_tokens = whole(v[FG_KEY_OUTPUT_MAX]);
  r->max_tokens_whole = whole(v[FG_KEY_OUTPUT_MAX_WHOLE]);
  r->first_token_p95_ms = whole(v[FG_KEY_OPERATIONS_FIRST_TOKEN]);
  r->latency_p95_ms = whole(v[FG_KEY_OPERATIONS_LATENCY]);
  feature(r, v[FG_KEY_TOOLS_PARALLEL], FG_FEATURE_PARALLEL_TOOLS);
  feature(r, v[FG_KEY_TOOLS_ROUND_TRIP], FG_FEATURE_TOOL_ROUND_TRIP);
  feature(r, v[FG_KEY_OUTPUT_JSON_SCHEMA], FG_FEATURE_JSON_SCHEMA);
  feature(r, v[FG_KEY_INPUT_SYSTEM_PROMPT], FG_FEATURE_SYSTEM_PROMPT);
  feature(r, v[FG_KEY_INPUT_PREFILL], FG_FEATURE_PREFILL);
  feature(r, v[FG_KEY_OUTPUT_REASONING], FG_FEATURE_REASONING);
  feature(r, v[FG_KEY_OUTPUT_CITATIONS], FG_FEATURE_CITATIONS);
  feature(r, v[FG_KEY_OPERATIONS_STREAMING], FG_FEATURE_STREAMING);
  modalities(r, v[FG_KEY_INPUT_MODALITIES]);
  if (s.tools_given) { /* an empty list of names says: no tools */
    const cJSON *names = v[FG_KEY_TOOLS_NAMES];
    r->features_known |= FG_FEATURE_TOOLS;
    r->features |= names == NULL || names->child != NULL ? FG_FEATURE_TOOLS : 0;
  }
  if (v[FG_KEY_TOOLS_NAMES] != NULL) {
    uint32_t any = 0;
    if (!fg_card_tool_list(c, v[FG_KEY_TOOLS_NAMES], &r->tools_off, &r->tools_count, &any)) {
      return 0;
    }
    r->tools_known = any ? FG_TOOLS_ANY : FG_TOOLS_LISTED;
  }
  if (v[FG_KEY_ECONOMICS_QUOTA_OWNER] != NULL && !fg_read_text(c, v[FG_KEY_ECONOMICS_QUOTA_OWNER], FG_NAME_MAX, &r->quota_owner)) {
    return 0;
  }
  return fg_card_bits(c, 1, v[FG_KEY_DATA_REGIONS], &r->regions) && fg_card_bits(c, 0, v[FG_KEY_DATA_CLASSES], &r->data_classes);
}
