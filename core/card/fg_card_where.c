/* Lines and columns of all warnings in one pass. The text is known to be sound JSON by now, so this walks it without checking:
 * each member's key extends the hash of the path above it, and hashes that a warning waits for are remembered. */
#include "fg_card_read.h"

#include "fg_math.h"

enum { DEPTH = 40 };

typedef struct want { uint64_t hash; uint32_t line, column; } want;

typedef struct walk {
  const char *text;
  uint64_t len, at, counted; /* columns of this line are counted up to there */
  uint32_t line, column, mask;
  want *table;
} walk;

static want *slot_of(const walk *w, uint64_t hash) {
  uint32_t at = (uint32_t)(hash ^ hash >> 32) & w->mask;
  while (w->table[at].hash != 0 && w->table[at].hash != hash) {
    at = (at + 1) & w->mask;
  }
  return &w->table[at];
}

static void note(walk *w, uint64_t hash, uint64_t at) {
  want *slot = slot_of(w, hash);
  if (slot->hash == hash && slot->line == 0) {
    for (; w->counted < at; w->counted++) {
      w->column += ((uint8_t)w->text[w->counted] & 0xC0) != 0x80;
    }
    slot->line = w->line;
    slot->column = w->column;
  }
}

/* From the opening quote to behind the closing one; the key between them, undecoded. */
static fg_str skip_string(walk *w) {
  uint64_t from = ++w->at;
  while (w->text[w->at] != '"') {
    w->at += w->text[w->at] == '\\' ? 2 : 1;
  }
  return fg_str_make(w->text + from, (uint32_t)(w->at++ - from));
}

static uint32_t hex4(const char *s) {
  uint32_t v = 0;
  for (uint32_t i = 0; i < 4; i++) {
    char ch = fg_lower(s[i]);
    v = v << 4 | (uint32_t)(fg_is_digit(ch) ? ch - '0' : ch - 'a' + 10);
  }
  return v;
}

static uint32_t put_utf8(char *to, uint32_t v) {
  uint32_t more = v < 0x80 ? 0 : v < 0x800 ? 1 : v < 0x10000 ? 2 : 3;
  static const uint8_t LEAD[] = {0, 0xC0, 0xE0, 0xF0};
  to[0] = (char)(LEAD[more] | v >> (6 * more));
  for (uint32_t i = 1; i <= more; i++) {
    to[i] = (char)(0x80 | (v >> (6 * (more - i)) & 0x3F));
  }
  return more + 1;
}

/* Hash of a key as the tree has it; escapes are rare, and keys of the card are short. */
static uint64_t key_hash(uint64_t path, fg_str key) {
  char text[512];
  uint32_t len = 0;
  if (memchr(key.ptr, '\\', key.len) == NULL || key.len > sizeof text) {
    return fg_hash64(path, key.ptr, key.len);
  }
  for (uint32_t i = 0; i < key.len; i++) {
    if (key.ptr[i] != '\\') {
      text[len++] = key.ptr[i];
      continue;
    }
    char ch = key.ptr[++i];
    if (ch != 'u') {
      static const char FROM[] = "bfnrt", TO[] = "\b\f\n\r\t";
      const char *at = strchr(FROM, ch);
      text[len++] = at != NULL ? TO[at - FROM] : ch;
      continue;
    }
    uint32_t v = hex4(key.ptr + i + 1);
    i += 4;
    if (v >> 10 == 0x36) { /* a high half; its low one follows */
      v = 0x10000 + ((v & 0x3FF) << 10) + (hex4(key.ptr + i + 3) & 0x3FF);
      i += 6;
    }
    len += put_utf8(text + len, v);
  }
  return fg_hash64(path, text, len);
}

static void run(walk *w) {
  uint64_t path[DEPTH] = {1};
  uint32_t index[DEPTH] = {0}, depth = 0, fresh = 0; /* fresh: an element of the array is about to begin */
  uint64_t objects = 0, value = 1;                   /* value: the path of the value that comes next */
  while (w->at < w->len) {
    char ch = w->text[w->at];
    if (fresh && !fg_is_space(ch) && ch != ']') {
      value = fg_hash64(~path[depth], &index[depth], sizeof index[depth]);
      note(w, value, w->at);
      fresh = 0;
    }
    if (ch == '"') {
      uint64_t at = w->at;
      fg_str key = skip_string(w);
      if (depth > 0 && objects >> depth & 1 && w->text[at] == '"' && index[depth] == 0) {
        value = key_hash(path[depth], key);
        note(w, value, at);
        index[depth] = 1; /* the key is read: a string now is its value */
      }
      continue;
    }
    w->at++;
    if (ch == '\n') {
      w->line++;
      w->counted = w->at;
      w->column = 1;
    } else if (ch == '{' || ch == '[') {
      depth++;
      path[depth] = value;
      index[depth] = 0;
      fresh = ch == '[';
      objects = ch == '{' ? objects | (uint64_t)1 << depth : objects & ~((uint64_t)1 << depth);
    } else if (ch == '}' || ch == ']') {
      depth--;
      fresh = 0;
    } else if (ch == ',') {
      fresh = !(objects >> depth & 1);
      index[depth] = fresh ? index[depth] + 1 : 0;
    }
  }
}

int fg_card_where(fg_card *c) {
  walk w = {c->text, c->len, 0, 0, 1, 1, 0, NULL};
  if (c->len >= 3 && memcmp(c->text, "\xEF\xBB\xBF", 3) == 0) {
    w.at = w.counted = 3;
  }
  if (c->lint_count == 0) {
    return 1;
  }
  w.mask = fg_index_slots(c->lint_count * (uint32_t)FG_ARRAY_LEN(c->lint->at)) - 1;
  w.table = fg_scratch(c->mem, (w.mask + (uint64_t)1) * sizeof *w.table);
  if (w.table == NULL) {
    return fg_card_nomem(c);
  }
  for (uint32_t i = 0; i < c->lint_count; i++) {
    for (uint32_t d = 0; d < c->lint[i].depth; d++) {
      slot_of(&w, c->lint[i].at[d])->hash = c->lint[i].at[d];
    }
  }
  run(&w);
  for (uint32_t i = 0; i < c->lint_count; i++) {
    fg_lint *l = &c->lint[i];
    l->line = l->column = 1;
    for (uint32_t d = l->depth; d > 0; d--) {
      want *found = slot_of(&w, l->at[d - 1]);
      if (found->line > 0) {
        l->line = found->line;
        l->column = found->column;
        break;
      }
    }
  }
  fg_scratch_free(c->mem, w.table);
  return 1;
}
