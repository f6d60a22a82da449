/* Canonical JSON, written through a buffer. Members are ordered by a merge sort over pointers in one scratch stack, so a card of
 * 10,000 routes is neither copied nor sorted quadratically. */
#include "fg_card_canon.h"

#include "fg_card_number.h"

void fg_canon_init(fg_canon *o, fg_sha256 *sha, char *buf, uint32_t cap) {
  memset(o, 0, sizeof *o);
  o->sha = sha;
  o->buf = buf;
  o->cap = cap;
}

void fg_canon_flush(fg_canon *o) {
  fg_sha256_add(o->sha, o->buf, o->len);
  o->len = 0;
}

void fg_canon_put(fg_canon *o, const char *bytes, uint32_t len) {
  if (len > o->cap - o->len && o->sha != NULL) {
    fg_canon_flush(o);
    if (len > o->cap) {
      fg_sha256_add(o->sha, bytes, len);
      return;
    }
  }
  if (len > o->cap - o->len) {
    o->cut = 1;
    len = o->cap - o->len;
  }
  memcpy(o->buf + o->len, bytes, len);
  o->len += len;
}

static void put_string(fg_canon *o, const char *text) {
  static const char SHORT[] = "btn\0fr"; /* \b is 8, \t 9, \n 10, \f 12, \r 13 */
  const char *from = text, *at = text;
  fg_canon_put(o, "\"", 1);
  for (;; at++) {
    uint8_t ch = (uint8_t)*at;
    if (ch >= 0x20 && ch != '"' && ch != '\\') {
      continue;
    }
    fg_canon_put(o, from, (uint32_t)(at - from));
    from = at + 1;
    if (ch == 0) {
      break;
    }
    char escape[6] = {'\\', (char)ch, '0', '0', 0, 0};
    if (ch >= 0x20) {
      fg_canon_put(o, escape, 2);
    } else if (ch >= 8 && ch <= 13 && ch != 11) {
      escape[1] = SHORT[ch - 8];
      fg_canon_put(o, escape, 2);
    } else {
      escape[1] = 'u';
      escape[4] = (char)('0' + (ch >> 4));
      escape[5] = "0123456789abcdef"[ch & 15];
      fg_canon_put(o, escape, 6);
    }
  }
  fg_canon_put(o, "\"", 1);
}

/* ----------------------------------------------------------------- sorting */

static int room(fg_card *c, uint32_t count) {
  if (c->sort_len + count <= c->sort_cap) {
    return 1;
  }
  uint32_t cap = 2 * (c->sort_len + count) + 64;
  const cJSON **more = fg_scratch(c->mem, cap * (uint64_t)sizeof *more);
  if (more == NULL) {
    return fg_card_nomem(c);
  }
  if (c->sort_len > 0) {
    memcpy(more, c->sort, c->sort_len * sizeof *more);
  }
  fg_scratch_free(c->mem, c->sort);
  c->sort = more;
  c->sort_cap = cap;
  return 1;
}

typedef int (*order_fn)(const cJSON *a, const cJSON *b);

static int by_key(const cJSON *a, const cJSON *b) {
  return strcmp(a->string, b->string);
}

/* The order of the scalars' JSON texts: quotes come before digits, digits before words. */
static int by_value(const cJSON *a, const cJSON *b) {
  char text[2][32];
  const cJSON *node[2] = {a, b};
  uint32_t len[2];
  if (cJSON_IsString(a) && cJSON_IsString(b)) {
    return strcmp(a->valuestring, b->valuestring);
  }
  for (uint32_t i = 0; i < 2; i++) {
    fg_canon t;
    fg_canon_init(&t, NULL, text[i], sizeof text[i]);
    if (cJSON_IsNumber(node[i])) {
      t.len = fg_number_canonical(node[i], text[i]);
    } else {
      const char *word = cJSON_IsString(node[i]) ? "\"" : cJSON_IsTrue(node[i]) ? "true" : cJSON_IsFalse(node[i]) ? "false" : "null";
      fg_canon_put(&t, word, (uint32_t)strlen(word));
    }
    len[i] = t.len;
  }
  int order = memcmp(text[0], text[1], fg_min32(len[0], len[1]));
  return order != 0 ? order : (len[0] > len[1]) - (len[0] < len[1]);
}

/* Short runs by insertion, then merged bottom up; `spare` is as long as `list`. */
static void sort(const cJSON **list, const cJSON **spare, uint32_t count, order_fn order) {
  for (uint32_t i = 1; i < count; i++) { /* mostly short, or already in order */
    if (i % 8 == 0) {
      continue;
    }
    const cJSON *m = list[i];
    uint32_t at = i;
    for (; at % 8 != 0 && order(list[at - 1], m) > 0; at--) {
      list[at] = list[at - 1];
    }
    list[at] = m;
  }
  for (uint32_t run = 8; run < count; run *= 2) {
    for (uint32_t from = 0; from + run < count; from += 2 * run) {
      uint32_t a = from, mid = from + run, b = mid, end = fg_min32(from + 2 * run, count);
      if (order(list[mid - 1], list[mid]) <= 0) {
        continue;
      }
      for (uint32_t at = from; at < end; at++) {
        int left = a < mid && (b == end || order(list[a], list[b]) <= 0);
        spare[at] = left ? list[a++] : list[b++];
      }
      memcpy(list + from, spare + from, (end - from) * sizeof *list);
    }
  }
}

/* Members or elements in order; each is written by its key, a colon and the value, or the value alone. */
static int put_sorted(fg_card *c, fg_canon *o, const cJSON *node, uint32_t flags, order_fn order) {
  uint32_t count = 0, base = c->sort_len;
  for (const cJSON *m = node->child; m != NULL; m = m->next) {
    count++;
  }
  if (count == 0) {
    return 1; /* and no sort stack to point into yet */
  }
  if (!room(c, 2 * count)) {
    return 0;
  }
  for (const cJSON *m = node->child; m != NULL; m = m->next) {
    c->sort[c->sort_len++] = m;
  }
  sort(c->sort + base, c->sort + base + count, count, order);
  for (uint32_t i = 0; i < count; i++) {
    const cJSON *m = c->sort[base + i]; /* the stack may move while a member is written */
    fg_canon_put(o, ",", i > 0 ? 1 : 0);
    if (order == by_key) {
      put_string(o, m->string);
      fg_canon_put(o, ":", 1);
    }
    if (!fg_canon_value(c, o, m, flags)) {
      return 0;
    }
  }
  c->sort_len = base;
  return 1;
}

int fg_canon_value(fg_card *c, fg_canon *o, const cJSON *node, uint32_t flags) {
  if (cJSON_IsString(node)) {
    put_string(o, node->valuestring);
  } else if (cJSON_IsNumber(node)) {
    char number[32];
    uint32_t len = fg_number_canonical(node, number);
    if (len == 0) {
      return FG_FAIL(c, FG_LOAD_BAD_VALUE, "a number here is not exact; write at most 9 decimals and 15 digits");
    }
    fg_canon_put(o, number, len);
  } else if (cJSON_IsObject(node)) {
    fg_canon_put(o, "{", 1);
    if (!put_sorted(c, o, node, flags, by_key)) {
      return 0;
    }
    fg_canon_put(o, "}", 1);
  } else if (cJSON_IsArray(node) && flags & FG_CANON_SORT_LISTS) {
    fg_canon_put(o, "[", 1);
    if (!put_sorted(c, o, node, flags, by_value)) {
      return 0;
    }
    fg_canon_put(o, "]", 1);
  } else if (cJSON_IsArray(node)) {
    fg_canon_put(o, "[", 1);
    for (const cJSON *e = node->child; e != NULL; e = e->next) {
      fg_canon_put(o, ",", e != node->child ? 1 : 0);
      if (!fg_canon_value(c, o, e, flags)) {
        return 0;
      }
    }
    fg_canon_put(o, "]", 1);
  } else {
    const char *word = cJSON_IsTrue(node) ? "true" : cJSON_IsFalse(node) ? "false" : "null";
    fg_canon_put(o, word, (uint32_t)strlen(word));
  }
  return 1;
}
