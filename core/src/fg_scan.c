/* The scanner's state machine: one byte decides the next state; runs of plain
 * string bytes are handed on without a copy. Strict by RFC 8259: no leading
 * zeros, no trailing commas, no raw control bytes, whole UTF-8, paired
 * surrogates. FG_SCAN_LENIENT relaxes only what stands inside strings, because
 * error bodies quote whatever the caller sent. */
#include "fg_scan_state.h"

enum number { N_MINUS, N_ZERO, N_INT, N_POINT, N_FRACTION, N_E, N_E_SIGN, N_EXPONENT };

static const char *const words[] = {"true", "false", "null"};

void fg_scan_init(fg_scan *s, uint32_t flags) {
  memset(s, 0, sizeof *s);
  s->flags = flags;
  s->max_depth = FG_SCAN_DEPTH;
}

static int in_object(const fg_scan *s) { return s->depth > 0 && ((s->is_object >> (s->depth - 1)) & 1) != 0; }

static int emit_plain(fg_scan *s, fg_scan_sink sink, void *ctx, uint32_t what) {
  fg_scan_event e = {0};
  e.what = what;
  return scan_emit(s, sink, ctx, &e);
}

static int begin(fg_scan *s, fg_scan_sink sink, void *ctx, int object) {
  if (s->depth >= s->max_depth) {
    s->error = FG_SCAN_E_DEPTH;
    return -1;
  }
  if (emit_plain(s, sink, ctx, object ? FG_SCAN_BEGIN_OBJECT : FG_SCAN_BEGIN_ARRAY) != 0) {
    return 1;
  }
  uint64_t bit = (uint64_t)1 << s->depth;
  s->is_object = object ? s->is_object | bit : s->is_object & ~bit;
  s->index[s->depth] = 0;
  s->depth++;
  s->state = object ? S_FIRST_KEY : S_FIRST_ELEMENT;
  return 0;
}

static int end(fg_scan *s, fg_scan_sink sink, void *ctx) {
  int object = in_object(s);
  s->depth--;
  s->state = s->depth > 0 ? S_AFTER : S_END;
  return emit_plain(s, sink, ctx, object ? FG_SCAN_END_OBJECT : FG_SCAN_END_ARRAY) != 0;
}

static int begin_string(fg_scan *s, int key) {
  s->in_key = (uint8_t)key;
  s->key_len = 0;
  s->cut = 0;
  s->first = 1;
  s->state = S_STRING;
  return 0;
}

static int begin_value(fg_scan *s, fg_scan_sink sink, void *ctx, char c) {
  switch (c) {
  case '{':
    return begin(s, sink, ctx, 1);
  case '[':
    return begin(s, sink, ctx, 0);
  case '"':
    return begin_string(s, 0);
  case 't':
  case 'f':
  case 'n':
    s->word = c == 't' ? 0 : c == 'f' ? 1 : 2;
    s->word_at = 1;
    s->state = S_WORD;
    return 0;
  default:
    break;
  }
  if (c != '-' && !fg_is_digit(c)) {
    s->error = FG_SCAN_E_VALUE;
    return -1;
  }
  s->number[0] = c;
  s->number_len = 1;
  s->cut = 0;
  s->overflow = 0;
  s->negative = c == '-';
  s->integer = c == '-' ? 0 : (uint64_t)(c - '0');
  s->number_state = (uint8_t)(c == '-' ? N_MINUS : c == '0' ? N_ZERO : N_INT);
  s->state = S_NUMBER;
  return 0;
}

/* Nonzero when c continues the number. */
static int number_step(fg_scan *s, char c) {
  int digit = fg_is_digit(c);
  int next = -1;
  switch (s->number_state) {
  case N_MINUS:
    next = c == '0' ? N_ZERO : digit ? N_INT : -1;
    break;
  case N_ZERO:
    next = c == '.' ? N_POINT : c == 'e' || c == 'E' ? N_E : -1;
    break;
  case N_INT:
    next = digit ? N_INT : c == '.' ? N_POINT : c == 'e' || c == 'E' ? N_E : -1;
    break;
  case N_POINT:
    next = digit ? N_FRACTION : -1;
    break;
  case N_FRACTION:
    next = digit ? N_FRACTION : c == 'e' || c == 'E' ? N_E : -1;
    break;
  case N_E:
    next = digit ? N_EXPONENT : c == '+' || c == '-' ? N_E_SIGN : -1;
    break;
  default:
    next = digit ? N_EXPONENT : -1;
    break;
  }
  if (next < 0) {
    return 0;
  }
  s->number_state = (uint8_t)next;
  if (next == N_INT || next == N_ZERO) {
    uint64_t d = (uint64_t)(c - '0');
    if (s->integer > (UINT64_MAX - d) / 10) {
      s->overflow = 1;
    } else {
      s->integer = s->integer * 10 + d;
    }
  }
  if (s->number_len < FG_SCAN_NUMBER_MAX) {
    s->number[s->number_len++] = c;
  } else {
    s->cut = 1;
  }
  return 1;
}

static int number_end(fg_scan *s, fg_scan_sink sink, void *ctx) {
  uint32_t st = s->number_state;
  if (st != N_ZERO && st != N_INT && st != N_FRACTION && st != N_EXPONENT) {
    s->error = FG_SCAN_E_NUMBER;
    return -1;
  }
  fg_scan_event e = {0};
  e.what = FG_SCAN_NUMBER;
  e.text = fg_str_make(s->number, s->number_len);
  e.cut = s->cut;
  e.whole = st == N_ZERO || st == N_INT;
  uint64_t top = (uint64_t)INT64_MAX + (s->negative ? 1u : 0u);
  if (e.whole && !s->overflow && s->integer <= top) {
    e.is_integer = 1;
    e.integer = s->negative ? (int64_t)(0 - s->integer) : (int64_t)s->integer;
  }
  s->state = s->depth > 0 ? S_AFTER : S_END;
  return scan_emit(s, sink, ctx, &e) != 0;
}

/* One byte outside strings and numbers. */
static int plain(fg_scan *s, fg_scan_sink sink, void *ctx, char c) {
  switch (s->state) {
  case S_FIRST_ELEMENT:
    if (c == ']') {
      return end(s, sink, ctx);
    }
    return begin_value(s, sink, ctx, c);
  case S_ELEMENT:
    if (c == ']') {
      s->error = FG_SCAN_E_TRAILING_COMMA;
      return -1;
    }
    return begin_value(s, sink, ctx, c);
  case S_VALUE:
    return begin_value(s, sink, ctx, c);
  case S_FIRST_KEY:
  case S_KEY:
    if (c == '"') {
      return begin_string(s, 1);
    }
    if (c == '}' && s->state == S_FIRST_KEY) {
      return end(s, sink, ctx);
    }
    s->error = c == '}' ? FG_SCAN_E_TRAILING_COMMA : FG_SCAN_E_KEY;
    return -1;
  case S_COLON:
    if (c == ':') {
      s->state = S_VALUE;
      return 0;
    }
    s->error = FG_SCAN_E_COLON;
    return -1;
  case S_AFTER: {
    int object = in_object(s);
    if (c == ',') {
      s->index[s->depth - 1]++;
      s->state = object ? S_KEY : S_ELEMENT;
      return 0;
    }
    if (c == (object ? '}' : ']')) {
      return end(s, sink, ctx);
    }
    s->error = object ? FG_SCAN_E_COMMA_OBJECT : FG_SCAN_E_COMMA_ARRAY;
    return -1;
  }
  default:
    s->error = FG_SCAN_E_AFTER;
    return -1;
  }
}

static int word_step(fg_scan *s, fg_scan_sink sink, void *ctx, char c) {
  const char *w = words[s->word];
  if (c != w[s->word_at]) {
    s->error = FG_SCAN_E_WORD;
    return -1;
  }
  s->word_at++;
  if (w[s->word_at] != 0) {
    return 0;
  }
  s->state = s->depth > 0 ? S_AFTER : S_END;
  return emit_plain(s, sink, ctx, FG_SCAN_TRUE + s->word);
}

static int step(fg_scan *s, fg_scan_sink sink, void *ctx, const char *b, uint32_t len, uint32_t *at) {
  char c = b[*at];
  int r;
  switch (s->state) {
  case S_STRING:
    return scan_string(s, b, len, at, sink, ctx);
  case S_ESCAPE:
    r = scan_escape(s, sink, ctx, c);
    break;
  case S_HEX:
    r = scan_hex(s, sink, ctx, c);
    break;
  case S_HALF:
  case S_HALF_U: {
    int expected = c == (s->state == S_HALF ? '\\' : 'u');
    if (expected) {
      s->unicode = 0;
      s->word_at = 0;
      s->state = s->state == S_HALF ? S_HALF_U : S_HEX;
      r = 0;
      break;
    }
    if (!(s->flags & FG_SCAN_LENIENT)) {
      s->error = FG_SCAN_E_SURROGATE;
      return -1;
    }
    s->surrogate = 0;
    s->state = s->state == S_HALF ? S_STRING : S_ESCAPE;
    return scan_code_point(s, sink, ctx, 0xFFFD); /* this byte again */
  }
  case S_NUMBER:
    while (*at < len && number_step(s, b[*at])) {
      ++*at;
    }
    return *at < len ? number_end(s, sink, ctx) : 0;
  case S_WORD:
    r = word_step(s, sink, ctx, c);
    break;
  default:
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
      r = 0;
      break;
    }
    r = plain(s, sink, ctx, c);
    break;
  }
  if (r >= 0) {
    ++*at;
  }
  return r;
}

int32_t fg_scan_feed(fg_scan *s, const char *bytes, uint32_t len, fg_scan_sink sink, void *ctx, uint32_t *used) {
  uint32_t at = 0;
  int r = s->error != 0 ? -1 : 0;
  while (r == 0 && at < len) {
    if (s->state == S_END && (s->flags & FG_SCAN_ONE)) {
      break;
    }
    r = step(s, sink, ctx, bytes, len, &at);
  }
  s->offset += at;
  if (used != NULL) {
    *used = at;
  }
  if (r < 0) {
    return FG_SCAN_BAD;
  }
  if (r > 0) {
    return FG_SCAN_STOPPED;
  }
  return s->state == S_END ? FG_SCAN_DONE : FG_SCAN_MORE;
}

int32_t fg_scan_end(fg_scan *s, fg_scan_sink sink, void *ctx) {
  if (s->error != 0) {
    return FG_SCAN_BAD;
  }
  if (s->state == S_NUMBER && s->depth == 0) {
    return number_end(s, sink, ctx) < 0 ? FG_SCAN_BAD : FG_SCAN_DONE;
  }
  if (s->state == S_END) {
    return FG_SCAN_DONE;
  }
  s->error = s->state == S_VALUE && s->depth == 0 ? FG_SCAN_E_EMPTY : FG_SCAN_E_END;
  return FG_SCAN_BAD;
}

uint32_t fg_scan_expects(const fg_scan *s) {
  switch (s->state) {
  case S_FIRST_KEY:
  case S_KEY:
    return FG_SCAN_EXPECTS_KEY;
  case S_VALUE:
  case S_FIRST_ELEMENT:
  case S_ELEMENT:
    return FG_SCAN_EXPECTS_VALUE;
  default:
    return 0;
  }
}

const char *fg_scan_why(uint32_t error) {
  static const char *const why[FG_SCAN_E_COUNT] = {
      "",
      "expected a value",
      "expected a key in double quotes",
      "expected ':' after the key",
      "expected ',' or '}' after a member",
      "expected ',' or ']' after an element",
      "not a JSON number",
      "expected true, false or null",
      "unknown escape in a string",
      "expected four hexadecimal digits after \\u",
      "half of a surrogate pair without its other half",
      "a control character in a string must be escaped",
      "not valid UTF-8",
      "nested deeper than 32 levels",
      "text after the end of the document",
      "the text ends too early",
      "the text is empty",
      "the text is longer than 16 MiB",
      "a comma before the closing bracket",
  };
  return why[error < FG_SCAN_E_COUNT ? error : 0];
}
