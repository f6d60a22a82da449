/* The table reader and its errors: every message says what is wrong, where, and what to write instead. */
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

const char *fg_card_nearest(const char *text, const char *const *words, uint32_t count, uint32_t stride) {
  uint32_t len = (uint32_t)strlen(text), best = UINT32_MAX;
  const char *near = NULL;
  if (len > NEAR_MAX) {
    return NULL;
  }
  for (uint32_t i = 0; i < count; i++) {
    const char *word = *(const char *const *)(const void *)((const char *)words + (uint64_t)i * stride);
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

/* ------------------------------------------------------------------ values */

static int wrong_type(fg_card *c, const cJSON *node, const char *want) {
  return FG_FAIL(c, FG_LOAD_BAD_TYPE, "this is ", fg_card_type(node), "; write ", want);
}

int fg_read_type(fg_card *c, const cJSON *node, uint32_t flags) {
  if (flags & FG_OBJECT && !cJSON_IsObject(node)) {
    return wrong_type(c, node, "an object, {...}");
  }
  if (flags & FG_ARRAY && !cJSON_IsArray(node)) {
    return wrong_type(c, node, "a list, [...]");
  }
  return 1;
}

static int scaled(fg_card *c, int32_t got, uint32_t decimals) {
  if (got == FG_NUMBER_OK) {
    return 1;
  }
  if (got == FG_NUMBER_TOO_BIG) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the number has too many digits to be exact; write a smaller one",
                   decimals == FG_DECIMALS_MONEY ? ", or a text such as \"1000000.5\"" : "");
  }
  if (got == FG_NUMBER_BAD) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not a plain decimal; write digits with at most one point, such as \"0.08\"");
  }
  if (decimals == 0) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not a whole number; write an integer");
  }
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not exact; write at most ", fg_card_number_text(c, decimals, 0), " decimals and 15 digits");
}

static int in_range(fg_card *c, int64_t value, int64_t min, int64_t max, uint32_t decimals) {
  if (value >= min && value <= max) {
    return 1;
  }
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_number_text(c, value, decimals), " is out of range; write ",
                 fg_card_number_text(c, min, decimals), " to ", fg_card_number_text(c, max, decimals));
}

int fg_read_int(fg_card *c, const cJSON *node, const fg_field *f, int64_t *out) {
  if (!cJSON_IsNumber(node)) {
    return wrong_type(c, node, f->decimals > 0 ? "a number" : "an integer");
  }
  return scaled(c, fg_number_scaled(node, f->decimals, out), f->decimals) && in_range(c, *out, f->min, f->max, f->decimals);
}

int fg_read_money(fg_card *c, const cJSON *node, int64_t min, int64_t max, int64_t *out) {
  int32_t got;
  if (cJSON_IsNumber(node)) {
    got = fg_number_scaled(node, FG_DECIMALS_MONEY, out);
  } else if (cJSON_IsString(node)) {
    got = fg_number_text(node->valuestring, (uint32_t)strlen(node->valuestring), FG_DECIMALS_MONEY, out);
  } else {
    return wrong_type(c, node, "US dollars as a number or a text, such as 0.08");
  }
  return scaled(c, got, FG_DECIMALS_MONEY) && in_range(c, *out, min, max, FG_DECIMALS_MONEY);
}

static int no_control(fg_card *c, const char *text) {
  for (const char *s = text; *s != 0; s++) {
    if ((uint8_t)*s < 0x20 || *s == 0x7F) {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, "control characters do not belong here; write printable text");
    }
  }
  return 1;
}

int fg_read_text(fg_card *c, const cJSON *node, uint32_t max, fg_pstr *out) {
  if (!cJSON_IsString(node)) {
    return wrong_type(c, node, "a text");
  }
  size_t len = strlen(node->valuestring);
  if (len == 0) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the text is empty; write something or leave the key out");
  }
  if (len > max) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "the text has ", fg_card_number_text(c, (int64_t)len, 0), " bytes; at most ",
                   fg_card_number_text(c, max, 0), " are allowed");
  }
  if (max <= 1024 && !no_control(c, node->valuestring)) {
    return 0;
  }
  *out = fg_block_text(&c->block, node->valuestring, (uint32_t)len);
  return c->block.failed ? fg_card_nomem(c) : 1;
}

int fg_read_name_ok(fg_card *c, const char *name) {
  size_t len = strlen(name);
  if (len == 0) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, "the name is empty; write one");
  }
  if (len > FG_NAME_MAX) {
    return FG_FAIL(c, FG_LOAD_LIMIT, "the name has ", fg_card_number_text(c, (int64_t)len, 0), " bytes; at most 64 are allowed");
  }
  return no_control(c, name);
}

static uint32_t word_count(const char *const *words) {
  uint32_t n = 0;
  while (words[n] != NULL) {
    n++;
  }
  return n;
}

static int unknown_word(fg_card *c, const char *text, const char *const *words) {
  uint32_t count = word_count(words);
  const char *near = fg_card_nearest(text, words, count, sizeof *words);
  if (near != NULL) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, text), " is not known here; did you mean ", fg_card_quote(c, near), "?");
  }
  char list[160];
  text_out t = {list, 0, sizeof list};
  for (uint32_t i = 0; i < count; i++) {
    put(&t, ", ", i > 0 ? 2 : 0);
    put(&t, words[i], (uint32_t)strlen(words[i]));
  }
  if (t.len + 1 >= t.cap) {
    return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, text), " is not known here; the card's reference lists the words");
  }
  list[t.len] = 0;
  return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, text), " is not known here; write one of ", list);
}

int fg_read_word(fg_card *c, const cJSON *node, const char *const *words, uint32_t *out) {
  if (!cJSON_IsString(node)) {
    return wrong_type(c, node, "a word");
  }
  for (uint32_t i = 0; words[i] != NULL; i++) {
    if (strcmp(words[i], node->valuestring) == 0) {
      *out = i;
      return 1;
    }
  }
  return unknown_word(c, node->valuestring, words);
}

int fg_read_words(fg_card *c, const cJSON *node, const char *const *words, uint32_t *bits) {
  if (!fg_read_type(c, node, FG_ARRAY)) {
    return 0;
  }
  uint32_t i = 0, word = 0;
  *bits = 0;
  for (const cJSON *e = node->child; e != NULL; e = e->next, i++) {
    fg_card_push_index(c, i);
    if (!fg_read_word(c, e, words, &word)) {
      return 0;
    }
    if (*bits & 1U << word) {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, fg_card_quote(c, words[word]), " is listed twice; leave one out");
    }
    *bits |= 1U << word;
    fg_card_pop(c);
  }
  return 1;
}

/* ----------------------------------------------------------------- objects */

static int read_field(fg_card *c, const cJSON *node, const fg_field *f, void *out) {
  void *at = (char *)out + f->offset;
  uint32_t word = 0;
  int64_t value = 0;
  if (f->flags & FG_NULL && cJSON_IsNull(node)) {
    value = f->none;
  } else {
    switch (f->kind) {
    case FG_FIELD_INT:
    case FG_FIELD_LONG:
      if (!fg_read_int(c, node, f, &value)) {
        return 0;
      }
      break;
    case FG_FIELD_MONEY:
      if (!fg_read_money(c, node, f->min, f->max, &value)) {
        return 0;
      }
      break;
    case FG_FIELD_BOOL:
      if (!cJSON_IsBool(node)) {
        return wrong_type(c, node, "true or false");
      }
      value = cJSON_IsTrue(node) ? 1 : 0;
      break;
    case FG_FIELD_WORD:
      if (!fg_read_word(c, node, f->words, &word)) {
        return 0;
      }
      value = word;
      break;
    case FG_FIELD_DATE:
      if (!cJSON_IsString(node)) {
        return wrong_type(c, node, "a date such as \"2027-02-01T00:00:00Z\"");
      }
      if (fg_number_date(node->valuestring, (uint32_t)strlen(node->valuestring), &value) != FG_NUMBER_OK) {
        return FG_FAIL(c, FG_LOAD_BAD_VALUE, "not a date; write one such as \"2027-02-01T00:00:00Z\"");
      }
      break;
    case FG_FIELD_TEXT:
      return fg_read_text(c, node, (uint32_t)f->max, at);
    case FG_FIELD_NODE:
      memcpy(at, &node, sizeof node);
      return fg_read_type(c, node, f->flags);
    default:
      return f->read(c, node, at);
    }
  }
  if (f->kind == FG_FIELD_INT || f->kind == FG_FIELD_BOOL || f->kind == FG_FIELD_WORD) {
    word = (uint32_t)value;
    memcpy(at, &word, sizeof word);
  } else if (f->kind == FG_FIELD_LONG || f->kind == FG_FIELD_MONEY || f->kind == FG_FIELD_DATE) {
    memcpy(at, &value, sizeof value);
  }
  return 1;
}

static int unknown_key(fg_card *c, const cJSON *member, const fg_field *fields, uint32_t count) {
  const char *near = fg_card_nearest(member->string, &fields->name, count, sizeof *fields);
  fg_card_push(c, member->string);
  if (near != NULL) {
    return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, "no such key here; did you mean ", fg_card_quote(c, near), "?");
  }
  char list[150];
  text_out t = {list, 0, sizeof list};
  for (uint32_t i = 0; i < count; i++) {
    put(&t, ", ", i > 0 ? 2 : 0);
    put(&t, fields[i].name, (uint32_t)strlen(fields[i].name));
  }
  if (t.len + 1 >= t.cap) {
    return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, "no such key here; remove it (the card's reference lists the keys)");
  }
  list[t.len] = 0;
  return FG_FAIL(c, FG_LOAD_UNKNOWN_KEY, "no such key here; remove it, or write one of ", list);
}

int fg_read_object(fg_card *c, const cJSON *node, const fg_field *fields, uint32_t count, void *out, uint64_t *seen) {
  uint64_t have = 0;
  uint32_t next = 0; /* keys mostly come in the table's order */
  if (!fg_read_type(c, node, FG_OBJECT)) {
    return 0;
  }
  for (const cJSON *m = node->child; m != NULL; m = m->next) {
    uint32_t i = 0, at = next;
    for (; i < count; i++, at = at + 1 < count ? at + 1 : 0) {
      if (strcmp(fields[at].name, m->string) == 0) {
        break;
      }
    }
    if (i == count) {
      return unknown_key(c, m, fields, count);
    }
    next = at + 1 < count ? at + 1 : 0;
    fg_card_push(c, m->string);
    if (have & (uint64_t)1 << at) {
      return fg_card_fail_parts(c, FG_LOAD_DUPLICATE_KEY, 1,
                                (const char *const[]){"this key is already given above; leave one out", NULL});
    }
    have |= (uint64_t)1 << at;
    if (!read_field(c, m, &fields[at], out)) {
      return 0;
    }
    fg_card_pop(c);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (fields[i].flags & FG_MUST && !(have & (uint64_t)1 << i)) {
      fg_card_push(c, fields[i].name);
      return FG_FAIL(c, FG_LOAD_MISSING, "this key is required; add it");
    }
  }
  if (seen != NULL) {
    *seen = have;
  }
  return 1;
}

/* ------------------------------------------------------------------- names */

uint64_t fg_card_hash(const char *text, uint32_t len) {
  uint64_t h = fg_hash64(0, text, len);
  return h != 0 ? h : 1;
}

void fg_card_index_add(fg_index *x, uint64_t hash, uint32_t id) {
  uint32_t at = (uint32_t)hash & x->mask;
  while (x->slot[at].id != 0) {
    at = (at + 1) & x->mask;
  }
  x->slot[at].hash = hash;
  x->slot[at].id = id;
}

static uint32_t find(const fg_card *c, const fg_index *x, const void *names, uint32_t stride, const char *name) {
  if (x->slot == NULL) {
    return 0;
  }
  uint32_t len = (uint32_t)strlen(name);
  uint64_t hash = fg_card_hash(name, len);
  for (uint32_t at = (uint32_t)hash & x->mask; x->slot[at].id != 0; at = (at + 1) & x->mask) {
    fg_pstr s;
    memcpy(&s, (const char *)names + (uint64_t)(x->slot[at].id - 1) * stride, sizeof s);
    if (x->slot[at].hash == hash && fg_eq(c->block.ptr + s.off, s.len, name, len)) {
      return x->slot[at].id;
    }
  }
  return 0;
}

uint32_t fg_card_find_account(const fg_card *c, const char *name) {
  return find(c, &c->account_index, c->account, sizeof *c->account, name);
}

uint32_t fg_card_find_route(const fg_card *c, const char *name) {
  return find(c, &c->route_index, c->block.ptr + c->head.routes_off, sizeof(fg_policy_route), name);
}

uint32_t fg_card_find_workflow(const fg_card *c, const char *name) {
  return find(c, &c->workflow_index, c->block.ptr + c->head.workflows_off, sizeof(fg_policy_workflow), name);
}
