/* The eight sections of a contract: each key's type, and how what a route provides is compared with what a workflow requires. */
#ifndef FG_CARD_SECTIONS_H
#define FG_CARD_SECTIONS_H

#include "fg_card_read.h"

/* One row a key, in byte order of "section.key", which is the order of a fingerprint's lines.
 *   SIZE provided >= required      CAP provided <= required       ABILITY required true: provided true
 *   HAS every required one is provided     ONLY every provided one is required (both lists not empty)
 *   SAME equal    GRANT, NOTE not compared    PRICE the route's price <= each    RESULT compared with the evidence */
#define FG_SECTION_KEYS(XX)                                                                                                            \
  XX(DATA_CLASSES, "data", "classes", HAS, BOTH)                                                                                       \
  XX(DATA_REGIONS, "data", "regions", ONLY, BOTH)                                                                                      \
  XX(DATA_RETENTION, "data", "retention_days", CAP, BOTH)                                                                              \
  XX(DATA_ISOLATION, "data", "tenant_isolation", SAME, BOTH)                                                                           \
  XX(DATA_TRAINING, "data", "training", SAME, BOTH)                                                                                    \
  XX(ECONOMICS_CACHE, "economics", "cache", ABILITY, BOTH)                                                                             \
  XX(ECONOMICS_PRICE_MAX, "economics", "price_max", PRICE, REQUIRES)                                                                   \
  XX(ECONOMICS_QUOTA_OWNER, "economics", "quota_owner", NOTE, PROVIDES)                                                                \
  XX(ECONOMICS_RETRY_CHARGED, "economics", "retry_charged", SAME, BOTH)                                                                \
  XX(ECONOMICS_SPEND, "economics", "spend_per_day_usd", SIZE, BOTH)                                                                    \
  XX(INPUT_CONTEXT, "input", "context_tokens", SIZE, BOTH)                                                                             \
  XX(INPUT_LANGUAGES, "input", "languages", HAS, BOTH)                                                                                 \
  XX(INPUT_MODALITIES, "input", "modalities", HAS, BOTH)                                                                               \
  XX(INPUT_PREFILL, "input", "prefill", ABILITY, BOTH)                                                                                 \
  XX(INPUT_BYTES, "input", "request_bytes", SIZE, BOTH)                                                                                \
  XX(INPUT_SYSTEM_PROMPT, "input", "system_prompt", ABILITY, BOTH)                                                                     \
  XX(OPERATIONS_FIRST_TOKEN, "operations", "first_token_p95_ms", CAP, BOTH)                                                            \
  XX(OPERATIONS_LATENCY, "operations", "latency_p95_ms", CAP, BOTH)                                                                    \
  XX(OPERATIONS_REQUEST_ID, "operations", "request_id", ABILITY, BOTH)                                                                 \
  XX(OPERATIONS_STATUS_PAGE, "operations", "status_page", ABILITY, BOTH)                                                               \
  XX(OPERATIONS_STREAMING, "operations", "streaming", ABILITY, BOTH)                                                                   \
  XX(OUTPUT_CITATIONS, "output", "citations", ABILITY, BOTH)                                                                           \
  XX(OUTPUT_FINISH, "output", "finish_reasons", ONLY, BOTH)                                                                            \
  XX(OUTPUT_JSON_SCHEMA, "output", "json_schema", ABILITY, BOTH)                                                                       \
  XX(OUTPUT_MAX, "output", "max_tokens", SIZE, BOTH)                                                                                   \
  XX(OUTPUT_MAX_WHOLE, "output", "max_tokens_whole", SIZE, BOTH)                                                                       \
  XX(OUTPUT_REASONING, "output", "reasoning", ABILITY, BOTH)                                                                           \
  XX(OUTPUT_REFUSAL, "output", "refusal_form", SAME, BOTH)                                                                             \
  XX(OUTPUT_SCHEMA, "output", "schema", NOTE, REQUIRES)                                                                                \
  XX(OUTPUT_TRUNCATION, "output", "truncation", SAME, BOTH)                                                                            \
  XX(QUALITY_CASES, "quality", "cases_min", RESULT, REQUIRES)                                                                          \
  XX(QUALITY_FIXTURES, "quality", "fixtures", RESULT, REQUIRES)                                                                        \
  XX(QUALITY_DROP, "quality", "max_drop_ppm", RESULT, REQUIRES)                                                                        \
  XX(QUALITY_SCORE, "quality", "min_score_ppm", RESULT, REQUIRES)                                                                      \
  XX(SAFETY_FILTER, "safety", "filter", SAME, BOTH)                                                                                    \
  XX(SAFETY_HIGH_RISK, "safety", "high_risk", SAME, BOTH)                                                                              \
  XX(SAFETY_HUMAN, "safety", "human_escalation", ABILITY, BOTH)                                                                        \
  XX(SAFETY_OTHER_VENDOR, "safety", "other_vendor_after_refusal", GRANT, BOTH)                                                         \
  XX(SAFETY_STOP_RULES, "safety", "stop_rules", HAS, BOTH)                                                                             \
  XX(TOOLS_ARGUMENTS, "tools", "argument_schemas", ABILITY, BOTH)                                                                      \
  XX(TOOLS_PORTABLE, "tools", "history_portable", ABILITY, BOTH)                                                                       \
  XX(TOOLS_IDEMPOTENT, "tools", "idempotent", ABILITY, BOTH)                                                                           \
  XX(TOOLS_NAMES, "tools", "names", HAS, BOTH)                                                                                         \
  XX(TOOLS_PARALLEL, "tools", "parallel_calls", ABILITY, BOTH)                                                                         \
  XX(TOOLS_ROUND_TRIP, "tools", "round_trip", ABILITY, BOTH)

#define FG_SECTION_ENUM(NAME, section, key, compare, side) FG_KEY_##NAME,
enum { FG_SECTION_KEYS(FG_SECTION_ENUM) FG_KEY_COUNT };

enum { FG_COMPARE_SIZE, FG_COMPARE_CAP, FG_COMPARE_ABILITY, FG_COMPARE_HAS, FG_COMPARE_ONLY, FG_COMPARE_SAME, FG_COMPARE_GRANT, FG_COMPARE_NOTE, FG_COMPARE_PRICE, FG_COMPARE_RESULT };
enum { FG_SIDE_REQUIRES = 1, FG_SIDE_PROVIDES = 2, FG_SIDE_BOTH = 3 };

typedef struct fg_sections { const cJSON *value[FG_KEY_COUNT]; uint32_t tools_given; } fg_sections; /* NULL = not stated */

/* Reads and checks all sections of a `requires` or `provides` (node may be NULL: nothing stated). */
int fg_sections_read(fg_card *c, const cJSON *node, uint32_t side, fg_sections *out);
/* An empty list where it would allow nothing is an error. */
int fg_sections_not_empty(fg_card *c, const cJSON *list, const char *section, const char *key);
/* "section.key" */
const char *fg_sections_name(uint32_t key);
/* The first key that fails, or FG_KEY_COUNT when all hold. twin: the model's own sections are not looked at. */
uint32_t fg_sections_compare(const fg_sections *requires, const fg_sections *provides, const fg_policy_route *route, uint32_t twin);

#endif /* FG_CARD_SECTIONS_H */
