/* A card's errors and warnings: every message says what is wrong, where, and what to write instead. */
#include "fg_card_read.h"

#include "fg_card_number.h"
#include "fg_math.h"
#include "fg_scan.h"

/* -------------------------------------------------------------------- path */

void fg_card_push(fg_card *c, const char *key) {
  c->path[c->depth].key = key;
  c->path[c->depth++].index = 0;
}

void fg_card_push_index(fg_card *c, uint32_t index) {
  c->path[c->depth].key = NULL;
  c->path[c->depth++].index = index;
}

typedef struct text_out { char *ptr; uint32_t len, cap; } text_out;

static void put(text_out *t, const char *s, uint32_t len) {
  for (uint32_t i = 0; i < len; i++, t->len++) {
    if (t->len + 1 < t->cap) {
      t->ptr[t->len] = s[i];
    }
  }
}

static int plain_key(const char *key) {
  for (const char *s = key; *s != 0; s++) {
    if (*s == '.' || *s == '[' || *s == ']' || *s == '"' || *s == '\\') {
      return 0;
    }
  }
  return key[0] != 0;
}

static uint32_t path_of(const fg_card *c, uint32_t depth, char *buf, uint32_t cap) {
  text_out t = {buf, 0, cap};
  for (uint32_t i = 0; i < depth; i++) {
    const char *key = c->path[i].key;
    if (key == NULL) {
      char number[32];
      put(&t, "[", 1);
      put(&t, number, fg_number_print(c->path[i].index, 0, number));
      put(&t, "]", 1);
    } else if (plain_key(key)) {
      put(&t, ".", i > 0 ? 1 : 0);
      put(&t, key, (uint32_t)strlen(key));
    } else {
      put(&t, "[\"", 2);
      for (const char *s = key; *s != 0; s++) {
        put(&t, "\\", *s == '"' || *s == '\\' ? 1 : 0);
        put(&t, s, 1);
      }
      put(&t, "\"]", 2);
    }
  }
  buf[t.len < cap ? t.len : cap - 1] = 0;
  return t.len;
}

/* ------------------------------------------------------------------ errors */

/* Cuts at a character's beginning, so that texts stay UTF-8. */
static uint32_t cut_utf8(const char *text, uint32_t len, uint32_t max) {
  if (len <= max) {
    return len;
  }
  while (max > 0 && ((uint8_t)text[max] & 0xC0) == 0x80) {
    max--;
  }
  return max;
}

static uint32_t copy_text(char *to, uint32_t cap, const char *from, uint32_t len) {
  uint32_t n = cut_utf8(from, len, cap - 1);
  memcpy(to, from, n);
  to[n] = 0;
  return n;
}

const char *fg_card_quote(fg_card *c, const char *text) {
  char *buf = c->quote[c->quote_next++ & 7];
  uint32_t len = (uint32_t)strlen(text), n = cut_utf8(text, len, 80), at = 0;
  buf[at++] = '"';
  for (uint32_t i = 0; i < n; i++) {
    buf[at++] = (uint8_t)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i];
  }
  if (n < len) {
    memcpy(buf + at, "...", 3);
    at += 3;
  }
  buf[at++] = '"';
  buf[at] = 0;
  return buf;
}

const char *fg_card_number_text(fg_card *c, int64_t value, uint32_t decimals) {
  char *buf = c->quote[c->quote_next++ & 7];
  fg_number_print(value, decimals, buf);
  return buf;
}

static uint32_t join(const char *const *parts, char *buf, uint32_t cap) {
  char all[600];
  text_out t = {all, 0, sizeof all};
  for (; *parts != NULL; parts++) {
    put(&t, *parts, (uint32_t)strlen(*parts));
  }
  return copy_text(buf, cap, all, fg_min32(t.len, sizeof all - 1));
}

/* Line and column of the path, or of the nearest thing above it that the text has. */
static void place(fg_card *c, uint32_t nth) {
  char path[FG_CARD_PATH];
  for (uint32_t depth = c->depth; depth > 0; depth--, nth = 0) {
    uint32_t len = path_of(c, depth, path, sizeof path);
    if (len < sizeof path &&
        fg_scan_locate(c->text, c->len, path, nth, &c->err->line, &c->err->column, &c->err->offset) == FG_OK) {
      return;
    }
  }
  c->err->line = c->err->column = 1;
}

int fg_card_fail_parts(fg_card *c, uint32_t what, uint32_t nth, const char *const *parts) {
  if (c->code != FG_OK) {
    return 0;
  }
  c->code = c->in_contracts ? FG_ERR_CONTRACT : FG_ERR_RANGE;
  c->err->what = what;
  char path[FG_CARD_PATH];
  uint32_t len = path_of(c, c->depth, path, sizeof path);
  copy_text(c->err->path, sizeof c->err->path, path, fg_min32(len, sizeof path - 1));
  join(parts, c->err->message, sizeof c->err->message);
  place(c, nth);
  return 0;
}

int fg_card_nomem(fg_card *c) {
  if (c->code == FG_OK) {
    c->code = FG_ERR_NOMEM;
    static const char *const WHY[] = {"out of memory while loading the card", NULL};
    join(WHY, c->err->message, sizeof c->err->message);
  }
  return 0;
}

int fg_card_warn_parts(fg_card *c, uint32_t last, const char *const *parts) {
  enum { WARNINGS_MAX = 1000 };
  if (c->lint_count == WARNINGS_MAX && !last) {
    c->lint_more++;
    return 1;
  }
  if (c->lint_count == c->lint_cap) {
    uint32_t cap = c->lint_cap > 0 ? 2 * c->lint_cap : 16;
    fg_lint *more = fg_scratch(c->mem, cap * (uint64_t)sizeof *more);
    if (more == NULL) {
      return fg_card_nomem(c);
    }
    if (c->lint_count > 0) {
      memcpy(more, c->lint, c->lint_count * sizeof *more);
    }
    fg_scratch_free(c->mem, c->lint);
    c->lint = more;
    c->lint_cap = cap;
  }
  fg_lint *l = &c->lint[c->lint_count];
  char path[108], message[200];
  uint32_t len = cut_utf8(path, path_of(c, c->depth, path, sizeof path), sizeof path - 1);
  fg_pstr p = fg_block_text(&c->block, path, len);
  fg_pstr m = fg_block_text(&c->block, message, join(parts, message, sizeof message));
  l->path_off = p.off;
  l->path_len = p.len;
  l->message_off = m.off;
  l->message_len = m.len;
  uint64_t at = 1;
  for (uint32_t i = 0; i < c->depth && i < FG_ARRAY_LEN(l->at); i++) {
    const fg_step *s = &c->path[i];
    at = s->key != NULL ? fg_hash64(at, s->key, strlen(s->key)) : fg_hash64(~at, &s->index, sizeof s->index);
    l->at[l->depth++] = at;
  }
  c->lint_count++;
  return c->block.failed ? fg_card_nomem(c) : 1;
}

const char *fg_card_type(const cJSON *node) {
  return cJSON_IsString(node)   ? "a text"
         : cJSON_IsNumber(node) ? "a number"
         : cJSON_IsBool(node)   ? (cJSON_IsTrue(node) ? "true" : "false")
         : cJSON_IsNull(node)   ? "null"
         : cJSON_IsArray(node)  ? "a list"
                                : "an object";
}

/* ----------------------------------------------------------- near misses */

enum { NEAR_MAX = 40 };

/* Edits (insert, delete, replace, swap neighbours) from a to b; texts to 40 bytes. */
static uint32_t distance(const char *a, uint32_t alen, const char *b, uint32_t blen) {
  uint8_t row[3][NEAR_MAX + 1];
  for (uint32_t j = 0; j <= blen; j++) {
    row[0][j] = (uint8_t)j;
  }
  for (uint32_t i = 1; i <= alen; i++) {
    uint8_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
    now[0] = (uint8_t)i;
    for (uint32_t j = 1; j <= blen; j++) {
      uint32_t best = fg_min32(last[j - 1] + (fg_lower(a[i - 1]) != fg_lower(b[j - 1]) ? 1U : 0U), fg_min32(last[j], now[j - 1]) + 1U);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        best = fg_min32(best, before[j - 2] + 1U);
      }
      now[j] = (uint8_t)best;
    }
  }
  return row[alen % 3][blen];
}

static const char *word_at(const char *const *words, uint32_t i, uint32_t stride) {
  return *(const char *const *)(const void *)((const char *)words + (uint64_t)i * stride);
}

const char *fg_card_nearest(const char *text, const char *const *words, uint32_t count, uint32_t stride) {
  uint32_t len = (uint32_t)strlen(text), best = UINT32_MAX;
  const char *near = NULL;
  if (len > NEAR_MAX) {
    return NULL;
  }
  for (uint32_t i = 0; i < count; i++) {
    const char *word = word_at(words, i, stride);
    uint32_t wlen = word != NULL ? (uint32_t)strlen(word) : NEAR_MAX + 1;
    if (wlen > NEAR_MAX) {
      continue;
    }
    uint32_t d = distance(text, len, word, wlen);
    if (d < best && d <= 1 + wlen / 4 && d < wlen) {
      best = d;
      near = word;
    }
  }
  return near;
}

int fg_card_word_list(const char *const *words, uint32_t count, uint32_t stride, char *buf, uint32_t cap) {
  text_out t = {buf, 0, cap};
  for (uint32_t i = 0; i < count; i++) {
    const char *word = word_at(words, i, stride);
    put(&t, ", ", i > 0 ? 2 : 0);
    put(&t, word, (uint32_t)strlen(word));
  }
  buf[fg_min32(t.len, cap - 1)] = 0;
  return t.len + 1 < cap;
}
