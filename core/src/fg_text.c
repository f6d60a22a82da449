/* A bounded text writer. */
#include "fg_text.h"

void fg_text_init(fg_text *t, char *buf, uint32_t cap) {
  t->buf = buf;
  t->cap = buf != NULL ? cap : 0;
  t->need = 0;
}

uint32_t fg_text_end(fg_text *t) {
  if (t->cap != 0) {
    t->buf[fg_min32(t->need, t->cap - 1)] = 0;
  }
  return t->need;
}

void fg_text_put(fg_text *t, const char *bytes, uint32_t len) {
  if (t->cap != 0 && t->need < t->cap - 1 && len != 0) {
    memcpy(t->buf + t->need, bytes, fg_min32(len, t->cap - 1 - t->need));
  }
  t->need = fg_add32(t->need, len);
}

void fg_text_z(fg_text *t, const char *z) {
  fg_text_put(t, z, fg_cstr_len(z));
}

void fg_text_u64(fg_text *t, uint64_t v) {
  char digit[20];
  uint32_t n = 0;
  do {
    digit[19 - n++] = (char)('0' + v % 10);
    v /= 10;
  } while (v != 0);
  fg_text_put(t, digit + 20 - n, n);
}

void fg_text_i64(fg_text *t, int64_t v) {
  if (v < 0) {
    fg_text_put(t, "-", 1);
    fg_text_u64(t, (uint64_t)-(v + 1) + 1);
  } else {
    fg_text_u64(t, (uint64_t)v);
  }
}

void fg_text_hex64(fg_text *t, uint64_t v) {
  static const char hex[] = "0123456789abcdef";
  char out[16];
  uint32_t i;
  for (i = 0; i < 16; i++) {
    out[i] = hex[v >> (60 - 4 * i) & 15];
  }
  fg_text_put(t, out, 16);
}

void fg_text_usd(fg_text *t, int64_t nusd) {
  char frac[9];
  uint64_t v = nusd < 0 ? (uint64_t)-(nusd + 1) + 1 : (uint64_t)nusd;
  uint64_t rest = v % 1000000000u;
  uint32_t n = 9, i;
  if (nusd < 0) {
    fg_text_put(t, "-", 1);
  }
  fg_text_u64(t, v / 1000000000u);
  if (rest == 0) {
    return;
  }
  for (i = 9; i > 0; i--) {
    frac[i - 1] = (char)('0' + rest % 10);
    rest /= 10;
  }
  while (frac[n - 1] == '0') {
    n--;
  }
  fg_text_put(t, ".", 1);
  fg_text_put(t, frac, n);
}

/* Length of the well-formed UTF-8 sequence at p, 0 if there is none. */
static uint32_t utf8_len(const unsigned char *p, uint32_t left) {
  uint32_t n, i;
  if (p[0] < 0x80) {
    return 1;
  }
  n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] < 0xc2 || p[0] > 0xf4 || n > left) {
    return 0;
  }
  for (i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) {
      return 0;
    }
  }
  if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) {
    return 0;
  }
  return n;
}

void fg_text_json(fg_text *t, const char *bytes, uint32_t len) {
  static const char hex[] = "0123456789abcdef";
  const unsigned char *p = (const unsigned char *)bytes;
  uint32_t i = 0, n;
  fg_text_put(t, "\"", 1);
  while (i < len) {
    if (p[i] == '"' || p[i] == '\\') {
      fg_text_put(t, "\\", 1);
      fg_text_put(t, bytes + i, 1);
      i++;
    } else if (p[i] < 0x20) {
      char esc[6] = {'\\', 'u', '0', '0', hex[p[i] >> 4], hex[p[i] & 15]};
      fg_text_put(t, esc, 6);
      i++;
    } else {
      n = utf8_len(p + i, len - i);
      if (n == 0) {
        fg_text_put(t, "\xef\xbf\xbd", 3);
        i++;
      } else {
        fg_text_put(t, bytes + i, n);
        i += n;
      }
    }
  }
  fg_text_put(t, "\"", 1);
}

void fg_obj_begin(fg_obj *o, fg_text *t) {
  o->t = t;
  o->any = 0;
  fg_text_put(t, "{", 1);
}

void fg_obj_end(fg_obj *o) {
  fg_text_put(o->t, "}", 1);
}

void fg_obj_key(fg_obj *o, const char *key) {
  if (o->any) {
    fg_text_put(o->t, ",", 1);
  }
  o->any = 1;
  fg_text_put(o->t, "\"", 1);
  fg_text_z(o->t, key);
  fg_text_put(o->t, "\":", 2);
}

void fg_obj_u64(fg_obj *o, const char *key, uint64_t v) {
  fg_obj_key(o, key);
  fg_text_u64(o->t, v);
}

void fg_obj_limit(fg_obj *o, const char *key, uint32_t v) {
  fg_obj_key(o, key);
  if (v == UINT32_MAX) {
    fg_text_z(o->t, "null");
  } else {
    fg_text_u64(o->t, v);
  }
}

void fg_obj_word(fg_obj *o, const char *key, const char *word) {
  fg_obj_key(o, key);
  if (word == NULL) {
    fg_text_z(o->t, "null");
  } else {
    fg_text_json(o->t, word, fg_cstr_len(word));
  }
}

void fg_obj_str(fg_obj *o, const char *key, fg_str s) {
  fg_obj_key(o, key);
  if (s.len == 0) {
    fg_text_z(o->t, "null");
  } else {
    fg_text_json(o->t, s.ptr, s.len);
  }
}

void fg_obj_bool(fg_obj *o, const char *key, uint32_t v) {
  fg_obj_key(o, key);
  fg_text_z(o->t, v ? "true" : "false");
}
