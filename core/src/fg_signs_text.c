/* Bodies that are no JSON document, and documents quoted inside a text: JSON,
 * Python's repr of a dict, an HTTP status at the text's beginning. */
#include "fg_signs_read.h"

/* ------------------------------------------------------------ quoted */

/* {'error': {'message': "it's", 'code': None}} as Python prints it -> JSON. The text is lower-case. Returns bytes written. */
static uint32_t from_python(const char *p, uint32_t len, char *out, uint32_t cap, uint32_t *used) {
  uint32_t n = 0, i = 0, depth = 0;
  char quote = 0;
  for (; i < len && n + 6 < cap; i++) {
    char c = p[i];
    if (quote == 0) {
      if (c == '\'' || c == '"') {
        quote = c;
        out[n++] = '"';
        continue;
      }
      if (len - i >= 4 && memcmp(p + i, "none", 4) == 0) {
        memcpy(out + n, "null", 4);
        n += 4;
        i += 3;
        continue;
      }
      depth += c == '{' || c == '[';
      out[n++] = c;
      if ((c == '}' || c == ']') && --depth == 0) {
        i++;
        break;
      }
      continue;
    }
    if (c == '\\' && i + 1 < len) {
      char next = p[++i];
      if (next != '\'') { /* \' needs no escape in JSON */
        out[n++] = '\\';
      }
      out[n++] = next;
    } else if (c == quote) {
      quote = 0;
      out[n++] = '"';
    } else if (c == '"') {
      out[n++] = '\\';
      out[n++] = '"';
    } else {
      out[n++] = c;
    }
  }
  *used = i;
  return n;
}

/* {"error": … or [{ …, also b'{…}' of Python, and {'error': …. */
void signs_quoted(fg_signs *s, const char *p, uint32_t len) {
  uint32_t i = 0;
  s->depth++;
  while (i + 1 < len) {
    if (p[i] != '{' && p[i] != '[') {
      i++;
      continue;
    }
    uint32_t k = i + 1;
    while (k < len && (p[k] == ' ' || p[k] == '{')) {
      k++;
    }
    int32_t code = FG_SCAN_BAD;
    uint32_t used = 0;
    s->inner++;
    if (k < len && p[k] == '"') {
      code = signs_json(s, p + i, len - i, &used);
    } else if (k + 1 < len && p[k] == '\'' && fg_is_alpha(p[k + 1])) {
      char json[1024];
      uint32_t n = from_python(p + i, len - i, json, sizeof json, &used);
      code = signs_json(s, json, n, NULL);
    }
    s->inner--;
    if (code == FG_SCAN_DONE) {
      s->inner_count++;
    }
    i += used > 0 ? used : 1;
  }
  s->depth--;
}

void fg_signs_quoted(fg_signs *s, uint32_t from) { signs_quoted(s, s->text + from, s->text_len - from); }

/* ------------------------------------------------- status in a text */

/* A text that begins with its HTTP status, as clients print it. Numbers elsewhere in prose are never read. */
void fg_signs_leading_status(fg_signs *s, fg_str t) {
  static const char *const before[] = {"http error ", "http/1.1 ", "http/2 ", "http ", "error code: ", "client error '", "server error '", "status code ",
                                       "status code: ", "request failed with status code ", "response status code ", "error, status code: ",
                                       "unexpected status code: ", "unexpected status ", "api error: ", "api error (", "error: ", "status: ", "("};
  t = fg_trim(t);
  for (uint32_t i = 0; i <= FG_ARRAY_LEN(before); i++) {
    uint32_t n = i < FG_ARRAY_LEN(before) ? fg_cstr_len(before[i]) : 0;
    if (t.len < n + 3 || !fg_eq_nocase(t.ptr, n, i < FG_ARRAY_LEN(before) ? before[i] : "", n)) {
      continue;
    }
    const char *d = t.ptr + n;
    int ends = t.len == n + 3 || (!fg_is_alnum(d[3]) && d[3] != '.');
    if (fg_is_digit(d[0]) && fg_is_digit(d[1]) && fg_is_digit(d[2]) && ends) {
      signs_status(s, (d[0] - '0') * 100 + (d[1] - '0') * 10 + (d[2] - '0'));
      return;
    }
  }
}

/* Words in double quotes of a text, such as a gRPC error's quota_id: "…". */
static void quoted_words(fg_signs *s, fg_str t) {
  for (uint32_t i = 0; i < t.len; i++) {
    if (t.ptr[i] != '"') {
      continue;
    }
    uint32_t k = i + 1;
    while (k < t.len && (fg_is_alnum(t.ptr[k]) || t.ptr[k] == '_' || t.ptr[k] == '-' || t.ptr[k] == '.')) {
      k++;
    }
    if (k < t.len && t.ptr[k] == '"' && k - i > 8) {
      fg_signs_name(s, t.ptr + i + 1, k - i - 1, FG_NAME_OTHER);
    }
    i = k;
  }
}

/* ----------------------------------------------------------- bodies */

/* What stands between two tags; a lone word is a name too (<Code>Throttling</Code>). */
static void between_tags(fg_signs *s, const char *p, uint32_t len) {
  fg_str t = fg_trim(fg_str_make(p, len));
  uint32_t letters = 0;
  for (uint32_t i = 0; i < t.len; i++) {
    letters += fg_is_alpha(t.ptr[i]) || t.ptr[i] == '.' || t.ptr[i] == '_';
  }
  if (t.len >= 6 && t.len <= 64 && letters == t.len) {
    fg_signs_name(s, t.ptr, t.len, FG_NAME_OTHER);
  }
  signs_put(s, p, len);
}

static void read_html(fg_signs *s, const char *p, uint32_t len) {
  uint32_t i = 0, from = 0;
  while (i < len && s->text_len < FG_SIGN_TEXT) {
    if (p[i] != '<') {
      i++;
      continue;
    }
    between_tags(s, p + from, i - from);
    while (i < len && p[i] != '>') {
      i++;
    }
    i = i < len ? i + 1 : i;
    from = i;
    signs_end_text(s);
  }
  signs_put(s, p + from, i - from);
  signs_end_text(s);
}

void fg_signs_body(fg_signs *s, fg_str body) {
  if (body.len > FG_SIGN_BODY_MAX) {
    body.len = FG_SIGN_BODY_MAX;
  }
  if (body.len >= 3 && memcmp(body.ptr, "\xEF\xBB\xBF", 3) == 0) {
    body.ptr += 3;
    body.len -= 3;
  }
  fg_str t = fg_trim(body);
  if (t.len == 0) {
    return;
  }
  char c = t.ptr[0];
  if (c == '{' || c == '[' || c == '"') {
    int32_t code = signs_json(s, t.ptr, t.len, NULL);
    s->shape = code == FG_SCAN_DONE ? FG_SHAPE_JSON : FG_SHAPE_BROKEN_JSON;
    return;
  }
  if (c == '<') {
    s->shape = FG_SHAPE_HTML;
    read_html(s, t.ptr, t.len);
    return;
  }
  s->shape = FG_SHAPE_TEXT;
  uint32_t from = s->text_len;
  t.len = fg_min32(t.len, FG_SIGN_TEXT);
  fg_signs_text(s, t.ptr, t.len);
  fg_signs_leading_status(s, t);
  quoted_words(s, t);
  fg_signs_quoted(s, from);
}
