/* Strings of the scanner: runs of plain bytes are handed on without a copy,
 * escapes and characters cut by a chunk's end are put together. */
#include "fg_scan_state.h"

/* A run of decoded string bytes: kept for a key, handed on for a value. */
static int text(fg_scan *s, fg_scan_sink sink, void *ctx, const char *p, uint32_t len) {
  if (len == 0) {
    return 0;
  }
  if (s->in_key) {
    uint32_t room = FG_SCAN_KEY_MAX - s->key_len;
    uint32_t n = fg_min32(room, len);
    memcpy(s->key + s->key_len, p, n);
    s->key_len += n;
    if (n < len) {
      s->cut = 1;
    }
    return 0;
  }
  fg_scan_event e = {0};
  e.what = FG_SCAN_STRING;
  e.text = fg_str_make(p, len);
  e.first = s->first;
  s->first = 0;
  return scan_emit(s, sink, ctx, &e);
}

static int text_end(fg_scan *s, fg_scan_sink sink, void *ctx) {
  fg_scan_event e = {0};
  if (s->in_key) {
    e.what = FG_SCAN_KEY;
    e.text = fg_str_make(s->key, s->key_len);
    e.cut = s->cut;
    s->in_key = 0;
    s->state = S_COLON;
  } else {
    e.what = FG_SCAN_STRING;
    e.text = fg_str_make("", 0);
    e.first = s->first;
    e.last = 1;
    s->state = s->depth > 0 ? S_AFTER : S_END;
  }
  return scan_emit(s, sink, ctx, &e);
}

int scan_code_point(fg_scan *s, fg_scan_sink sink, void *ctx, uint32_t c) {
  char b[4];
  uint32_t n;
  if (c < 0x80) {
    b[0] = (char)c;
    n = 1;
  } else if (c < 0x800) {
    b[0] = (char)(0xC0 | (c >> 6));
    b[1] = (char)(0x80 | (c & 0x3F));
    n = 2;
  } else if (c < 0x10000) {
    b[0] = (char)(0xE0 | (c >> 12));
    b[1] = (char)(0x80 | ((c >> 6) & 0x3F));
    b[2] = (char)(0x80 | (c & 0x3F));
    n = 3;
  } else {
    b[0] = (char)(0xF0 | (c >> 18));
    b[1] = (char)(0x80 | ((c >> 12) & 0x3F));
    b[2] = (char)(0x80 | ((c >> 6) & 0x3F));
    b[3] = (char)(0x80 | (c & 0x3F));
    n = 4;
  }
  return text(s, sink, ctx, b, n);
}

/* Bytes that follow a lead byte, 0 when it cannot lead; value and smallest allowed value start here. */
static uint32_t utf8_lead(unsigned char c, uint32_t *value, uint32_t *min) {
  if (c >= 0xC2 && c < 0xE0) {
    *value = c & 0x1Fu;
    *min = 0x80;
    return 1;
  }
  if (c >= 0xE0 && c < 0xF0) {
    *value = c & 0x0Fu;
    *min = 0x800;
    return 2;
  }
  if (c >= 0xF0 && c < 0xF5) {
    *value = c & 0x07u;
    *min = 0x10000;
    return 3;
  }
  return 0;
}

static int utf8_fits(uint32_t value, uint32_t min) { return value >= min && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF); }

static int hex(char c) {
  if (fg_is_digit(c)) {
    return c - '0';
  }
  c = fg_lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int scan_escape(fg_scan *s, fg_scan_sink sink, void *ctx, char c) {
  static const char from[] = "\"\\/bfnrt";
  static const char to[] = "\"\\/\b\f\n\r\t";
  if (c == 'u') {
    s->unicode = 0;
    s->word_at = 0;
    s->state = S_HEX;
    return 0;
  }
  for (uint32_t i = 0; i < sizeof from - 1; i++) {
    if (from[i] == c) {
      s->state = S_STRING;
      return text(s, sink, ctx, to + i, 1);
    }
  }
  if (s->flags & FG_SCAN_LENIENT) {
    s->state = S_STRING;
    return text(s, sink, ctx, &c, 1);
  }
  s->error = FG_SCAN_E_ESCAPE;
  return -1;
}

int scan_hex(fg_scan *s, fg_scan_sink sink, void *ctx, char c) {
  int h = hex(c);
  if (h < 0) {
    s->error = FG_SCAN_E_UNICODE;
    return -1;
  }
  s->unicode = s->unicode << 4 | (uint32_t)h;
  if (++s->word_at < 4) {
    return 0;
  }
  uint32_t u = s->unicode;
  s->state = S_STRING;
  if (s->surrogate != 0) {
    uint32_t high = s->surrogate;
    s->surrogate = 0;
    if (u >= 0xDC00 && u <= 0xDFFF) {
      return scan_code_point(s, sink, ctx, 0x10000 + ((high - 0xD800) << 10) + (u - 0xDC00));
    }
    if (!(s->flags & FG_SCAN_LENIENT)) {
      s->error = FG_SCAN_E_SURROGATE;
      return -1;
    }
    int r = scan_code_point(s, sink, ctx, 0xFFFD);
    if (r != 0) {
      return r;
    }
  }
  if (u >= 0xD800 && u <= 0xDBFF) {
    s->surrogate = u;
    s->state = S_HALF;
    return 0;
  }
  if (u >= 0xDC00 && u <= 0xDFFF) {
    if (!(s->flags & FG_SCAN_LENIENT)) {
      s->error = FG_SCAN_E_SURROGATE;
      return -1;
    }
    u = 0xFFFD;
  }
  return scan_code_point(s, sink, ctx, u);
}

/* Bytes inside a string up to the closing quote, an escape, or the end of the chunk. *at moves; 0 go on, 1 stop, -1 bad. */
int scan_string(fg_scan *s, const char *b, uint32_t len, uint32_t *at, fg_scan_sink sink, void *ctx) {
  uint32_t i = *at;
  uint32_t from = i;
  int lenient = (s->flags & FG_SCAN_LENIENT) != 0;
  while (i < len) {
    unsigned char c = (unsigned char)b[i];
    if (s->utf8_left > 0) { /* a character begun in an earlier chunk */
      if ((c & 0xC0) == 0x80) {
        s->utf8_buf[s->utf8_len++] = (char)c;
        s->utf8_value = s->utf8_value << 6 | (c & 0x3Fu);
        from = ++i;
        if (--s->utf8_left > 0) {
          continue;
        }
        int fits = utf8_fits(s->utf8_value, s->utf8_min);
        *at = i;
        if (!fits && !lenient) {
          s->error = FG_SCAN_E_UTF8;
          return -1;
        }
        int r = fits ? text(s, sink, ctx, s->utf8_buf, s->utf8_len) : scan_code_point(s, sink, ctx, 0xFFFD);
        if (r != 0) {
          return 1;
        }
        continue;
      }
      s->utf8_left = 0;
      *at = i;
      if (!lenient) {
        s->error = FG_SCAN_E_UTF8;
        return -1;
      }
      if (scan_code_point(s, sink, ctx, 0xFFFD) != 0) {
        return 1;
      }
      continue; /* this byte again, as an ordinary one */
    }
    if (c != '"' && c != '\\' && c >= 0x20 && c < 0x80) {
      i++;
      continue;
    }
    if (c >= 0x80) {
      uint32_t value = 0, min = 0;
      uint32_t more = utf8_lead(c, &value, &min);
      if (more > 0 && len - i > more) {
        uint32_t k = 1;
        while (k <= more && ((unsigned char)b[i + k] & 0xC0) == 0x80) {
          value = value << 6 | ((unsigned char)b[i + k] & 0x3Fu);
          k++;
        }
        if (k > more && utf8_fits(value, min)) {
          i += more + 1;
          continue;
        }
        more = k > more ? more + 1 : k; /* bytes of the broken sequence: up to the one that does not belong */
      } else if (more > 0) {
        if (text(s, sink, ctx, b + from, i - from) != 0) {
          *at = i;
          return 1;
        }
        s->utf8_left = more;
        s->utf8_value = value;
        s->utf8_min = min;
        s->utf8_buf[0] = (char)c;
        s->utf8_len = 1;
        from = ++i;
        continue;
      } else {
        more = 1;
      }
      if (!lenient) {
        int lead = more == 1 && utf8_lead(c, &value, &min) == 0;
        *at = lead ? i : i + more;
        if (text(s, sink, ctx, b + from, i - from) != 0) {
          return 1;
        }
        s->error = FG_SCAN_E_UTF8;
        return -1;
      }
      *at = i;
      if (text(s, sink, ctx, b + from, i - from) != 0 || scan_code_point(s, sink, ctx, 0xFFFD) != 0) {
        return 1;
      }
      i += more;
      from = i;
      continue;
    }
    if (c < 0x20) {
      if (lenient) {
        i++;
        continue;
      }
      *at = i;
      if (text(s, sink, ctx, b + from, i - from) != 0) {
        return 1;
      }
      s->error = FG_SCAN_E_CONTROL;
      return -1;
    }
    int r = text(s, sink, ctx, b + from, i - from);
    *at = i + 1;
    if (c == '\\') {
      s->state = S_ESCAPE;
      return r;
    }
    return r != 0 ? 1 : text_end(s, sink, ctx) != 0;
  }
  *at = i;
  return i > from ? text(s, sink, ctx, b + from, i - from) != 0 : 0;
}
