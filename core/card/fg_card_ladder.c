/* The ladder: ordered ways to answer with less. Each step knows its own keys. */
#include "fg_card_read.h"

typedef struct rung_in {
  fg_policy_rung rung;
  const cJSON *route, *text;
} rung_in;

#define AT(field) (uint32_t)offsetof(rung_in, field)
#define INT(key, field, lo, hi) {.name = key, .kind = FG_FIELD_INT, .offset = AT(field), .min = lo, .max = hi}
enum { FIELD_STEP, FIELD_ROUTE, FIELD_SCORE, FIELD_MAX, FIELD_TO, FIELD_AGE, FIELD_TEXT };
#define STEP_WORD(n, N, w) #w,
static const char *const STEPS[] = {FG_STEP_MAP(STEP_WORD) NULL};
static const fg_field RUNG[] = {
    [FIELD_STEP] = {.name = "step", .kind = FG_FIELD_WORD, .flags = FG_MUST, .offset = AT(rung.step), .words = STEPS},
    [FIELD_ROUTE] = {.name = "route", .kind = FG_FIELD_NODE, .offset = AT(route)},
    [FIELD_SCORE] = INT("min_score_ppm", rung.min_score_ppm, 0, 1000000),
    [FIELD_MAX] = INT("max_tokens", rung.max_tokens, 1, 1000000000),
    [FIELD_TO] = INT("to_tokens", rung.to_tokens, 1, 1000000000),
    [FIELD_AGE] = INT("max_age_s", rung.max_age_s, 0, 31536000),
    [FIELD_TEXT] = {.name = "text", .kind = FG_FIELD_NODE, .offset = AT(text)},
};
#undef AT
#undef INT

/* Bits of the keys a step must have and may have. */
static const struct { uint32_t must, may; } KEYS[FG_STEP_COUNT] = {
    [FG_STEP_SMALLER_MODEL] = {1U << FIELD_ROUTE, 1U << FIELD_SCORE | 1U << FIELD_MAX},
    [FG_STEP_SHORTER] = {1U << FIELD_MAX, 0},
    [FG_STEP_NO_THINKING] = {0, 1U << FIELD_MAX},
    [FG_STEP_COMPACT] = {1U << FIELD_TO, 0},
    [FG_STEP_WITHOUT_TOOLS] = {0, 0},
    [FG_STEP_CACHED] = {0, 1U << FIELD_AGE},
    [FG_STEP_PRESET] = {1U << FIELD_TEXT, 0},
};

static int check_keys(fg_card *c, uint32_t step, uint32_t seen) {
  if (step == FG_STEP_NONE) {
    fg_card_push(c, "step");
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "\"none\" is no step; write smaller_model, shorter, no_thinking, compact, without_tools, cached or preset");
  }
  for (uint32_t f = FIELD_ROUTE; f <= FIELD_TEXT; f++) {
    uint32_t bit = 1U << f;
    if (KEYS[step].must & bit && !(seen & bit)) {
      fg_card_push(c, RUNG[f].name);
      return FG_FAIL(c, FG_LOAD_MISSING, "the step ", STEPS[step], " needs this key; add it");
    }
    if (seen & bit && !((KEYS[step].must | KEYS[step].may) & bit)) {
      fg_card_push(c, RUNG[f].name);
      return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, "the step ", STEPS[step], " does not have this key; remove it");
    }
  }
  return 1;
}

static int add_text(fg_card *c, fg_policy_text *texts, uint32_t *count, const char *language, const cJSON *node, uint32_t id) {
  enum { TEXT_MAX = 65536 };
  fg_policy_text *t = &texts[*count];
  t->id = id;
  if (language != NULL) {
    t->language = fg_block_text(&c->block, language, (uint32_t)strlen(language));
  }
  (*count)++;
  return fg_read_text(c, node, TEXT_MAX, &t->text);
}

static int keep_texts(fg_card *c, const fg_policy_text *texts, uint32_t count) {
  if (c->text_count + count > c->text_cap) {
    uint32_t cap = 2 * (c->text_cap + count);
    fg_policy_text *more = fg_scratch(c->mem, cap * (uint64_t)sizeof *more);
    if (more == NULL) {
      return fg_card_nomem(c);
    }
    if (c->text_count > 0) {
      memcpy(more, c->texts, c->text_count * sizeof *more);
    }
    fg_scratch_free(c->mem, c->texts);
    c->texts = more;
    c->text_cap = cap;
  }
  memcpy(c->texts + c->text_count, texts, count * sizeof *texts);
  c->text_count += count;
  return 1;
}

/* One text, or {language: text, ...}: the first is the one others fall back to. */
static int read_text(fg_card *c, const cJSON *node, uint32_t *id) {
  uint32_t have = 0;
  fg_policy_text texts[FG_CARD_LANGUAGES];
  memset(texts, 0, sizeof texts);
  *id = ++c->text_ids;
  if (cJSON_IsString(node)) {
    if (!add_text(c, texts, &have, NULL, node, *id)) {
      return 0;
    }
  } else if (!cJSON_IsObject(node)) {
    return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(node), "; write a text, or {en: \"...\"} by language");
  } else if (node->child == NULL) {
    return FG_FAIL(c, FG_LOAD_MISSING, "there is no text; write one, such as {en: \"...\"}");
  }
  for (const cJSON *m = cJSON_IsObject(node) ? node->child : NULL; m != NULL; m = m->next) {
    fg_card_push(c, m->string);
    if (have == FG_CARD_LANGUAGES) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "at most 64 languages are allowed");
    }
    if (!fg_read_name_ok(c, m->string)) {
      return 0;
    }
    for (const cJSON *before = node->child; before != m; before = before->next) {
      if (strcmp(before->string, m->string) == 0) {
        return fg_card_fail_parts(c, FG_LOAD_DUPLICATE_KEY, 1,
                                  (const char *const[]){"this language is already given above; leave one out", NULL});
      }
    }
    if (!add_text(c, texts, &have, m->string, m, *id)) {
      return 0;
    }
    fg_card_pop(c);
  }
  return keep_texts(c, texts, have);
}

static int read_rung(fg_card *c, const cJSON *node, fg_policy_workflow *w) {
  rung_in in;
  uint64_t seen = 0;
  memset(&in, 0, sizeof in);
  if (!FG_READ(c, node, RUNG, &in, &seen) || !check_keys(c, in.rung.step, (uint32_t)seen)) {
    return 0;
  }
  if (in.route != NULL) {
    fg_card_push(c, "route");
    in.rung.standin = fg_card_standin(c, w, in.route, 1);
    if (in.rung.standin == UINT32_MAX) {
      return 0;
    }
    if (in.rung.standin == 0) {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the primary is no smaller model; name another route");
    }
    fg_card_pop(c);
  }
  if (in.rung.step == FG_STEP_CACHED && !(seen & 1U << FIELD_AGE)) {
    in.rung.max_age_s = 3600;
  }
  if (in.text != NULL) {
    fg_card_push(c, "text");
    if (!read_text(c, in.text, &in.rung.text)) {
      return 0;
    }
    fg_card_pop(c);
  }
  w->ladder[w->ladder_count++] = in.rung;
  return 1;
}

int fg_card_ladder(fg_card *c, const cJSON *ladder, fg_policy_workflow *w) {
  uint32_t i = 0;
  for (const cJSON *e = ladder->child; e != NULL; e = e->next, i++) {
    fg_card_push_index(c, i);
    if (i == FG_LADDER_MAX) {
      return FG_FAIL(c, FG_LOAD_LIMIT, "a ladder has at most 8 steps; leave some out");
    }
    if (!read_rung(c, e, w)) {
      return 0;
    }
    fg_card_pop(c);
  }
  return 1;
}
