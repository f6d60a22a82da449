/* Whole documents: the syntax check of a card and the place of a path in it.
 * Lines and columns are counted only here, and only when asked. */
#include "fg_scan.h"

static uint32_t skip_bom(const char *text, uint64_t len) {
  return len >= 3 && (unsigned char)text[0] == 0xEF && (unsigned char)text[1] == 0xBB && (unsigned char)text[2] == 0xBF ? 3 : 0;
}

static void place(const char *text, uint64_t at, uint32_t *line, uint32_t *column) {
  uint32_t l = 1, c = 1;
  for (uint64_t i = skip_bom(text, at); i < at; i++) {
    unsigned char b = (unsigned char)text[i];
    if (b == '\n' || (b == '\r' && !(i + 1 < at && text[i + 1] == '\n'))) {
      l++;
      c = 1;
    } else if (b != '\r' && (b & 0xC0) != 0x80) {
      c++;
    }
  }
  if (line != NULL) {
    *line = l;
  }
  if (column != NULL) {
    *column = c;
  }
}

static int32_t fail(const char *text, uint64_t at, uint32_t error, fg_error *err) {
  int32_t code = error == FG_SCAN_E_SIZE ? FG_ERR_RANGE : FG_ERR_SYNTAX;
  if (err == NULL || err->size < 8) { /* size and code are the least a caller has */
    return code;
  }
  fg_error e;
  memset(&e, 0, sizeof e);
  e.size = fg_min32(err->size, (uint32_t)sizeof e);
  e.code = code;
  e.what = error == FG_SCAN_E_SIZE ? FG_LOAD_LIMIT : FG_LOAD_SYNTAX;
  if (error != FG_SCAN_E_SIZE) {
    place(text, at, &e.line, &e.column);
    e.offset = (uint32_t)at;
  }
  const char *why = fg_scan_why(error);
  memcpy(e.message, why, fg_min32(fg_cstr_len(why), (uint32_t)sizeof e.message - 1));
  memcpy(err, &e, e.size);
  return code;
}

int32_t fg_scan_check(const char *text, uint64_t len, fg_error *err) {
  if (text == NULL) {
    len = 0;
  }
  if (len > FG_SCAN_CARD_MAX) {
    return fail(text, 0, FG_SCAN_E_SIZE, err);
  }
  fg_scan s;
  fg_scan_init(&s, 0);
  uint32_t bom = text != NULL ? skip_bom(text, len) : 0;
  uint32_t used = 0;
  if (len > bom && fg_scan_feed(&s, text + bom, (uint32_t)len - bom, NULL, NULL, &used) == FG_SCAN_BAD) {
    return fail(text, bom + used, s.error, err);
  }
  if (fg_scan_end(&s, NULL, NULL) == FG_SCAN_BAD) {
    return fail(text, len, s.error, err);
  }
  return FG_OK;
}

/* ------------------------------------------------------------- paths */

enum { PATH_DEPTH = FG_SCAN_DEPTH };

typedef struct path_step { char key[FG_SCAN_KEY_MAX]; uint32_t len, index, is_index; } path_step;

typedef struct finder {
  path_step want[PATH_DEPTH];
  uint32_t count;       /* steps of the path */
  uint32_t matched;     /* steps the open containers satisfy */
  uint32_t key_matches; /* the latest key is want[matched] */
  uint32_t left;        /* occurrences still to skip */
  const fg_scan *scan;
  uint64_t found, key_at, value_at;
  uint32_t is_found;
} finder;

/* One step off the front of a path; 0 when the path is not well formed. */
static uint32_t path_next(const char *p, uint32_t at, path_step *out) {
  memset(out, 0, sizeof *out);
  if (p[at] == '[' && p[at + 1] == '"') {
    at += 2;
    while (p[at] != '"') {
      if (p[at] == '\\') {
        at++;
      }
      if (p[at] == 0 || out->len == sizeof out->key) {
        return 0;
      }
      out->key[out->len++] = p[at++];
    }
    return p[at + 1] == ']' ? at + 2 : 0;
  }
  if (p[at] == '[') {
    out->is_index = 1;
    at++;
    if (!fg_is_digit(p[at])) {
      return 0;
    }
    while (fg_is_digit(p[at])) {
      out->index = fg_add32(fg_mul32(out->index, 10), (uint32_t)(p[at++] - '0'));
    }
    return p[at] == ']' ? at + 1 : 0;
  }
  while (p[at] != 0 && p[at] != '.' && p[at] != '[') {
    if (out->len == sizeof out->key) {
      return 0;
    }
    out->key[out->len++] = p[at++];
  }
  return out->len > 0 ? at : 0;
}

static int hit(finder *f, uint64_t at) {
  if (f->left > 0) {
    f->left--;
    return 0;
  }
  f->found = at;
  f->is_found = 1;
  return 1;
}

static int finder_sink(void *ctx, const fg_scan_event *e) {
  finder *f = ctx;
  if (e->what == FG_SCAN_END_OBJECT || e->what == FG_SCAN_END_ARRAY) {
    f->matched = fg_min32(f->matched, fg_sub32(e->depth, 1)); /* the outermost container is no step */
    return 0;
  }
  if (e->what == FG_SCAN_KEY) {
    const path_step *w = &f->want[f->matched];
    f->key_matches = f->matched < f->count && e->depth == f->matched + 1 && !w->is_index && !e->cut &&
                     fg_eq(e->text.ptr, e->text.len, w->key, w->len);
    if (f->key_matches && f->matched + 1 == f->count) {
      return hit(f, f->key_at);
    }
    return 0;
  }
  int starts = e->what != FG_SCAN_STRING || e->first;
  if (!starts) {
    return 0;
  }
  /* A value. In an array it is a step of its own; in an object its key was. */
  int in_array = e->depth > 0 && ((f->scan->is_object >> (e->depth - 1)) & 1) == 0;
  int step_ok = 0;
  if (in_array && e->depth == f->matched + 1 && f->matched < f->count) {
    const path_step *w = &f->want[f->matched];
    step_ok = w->is_index && w->index == e->index;
    if (step_ok && f->matched + 1 == f->count) {
      return hit(f, f->value_at);
    }
  } else if (!in_array && e->depth == f->matched + 1) {
    step_ok = (int)f->key_matches;
  }
  f->key_matches = 0;
  if (step_ok && (e->what == FG_SCAN_BEGIN_OBJECT || e->what == FG_SCAN_BEGIN_ARRAY)) {
    f->matched++;
  }
  return 0;
}

int32_t fg_scan_locate(const char *text, uint64_t len, const char *path, uint32_t nth, uint32_t *line, uint32_t *column, uint32_t *offset) {
  finder f;
  memset(&f, 0, sizeof f);
  if (text == NULL || len > FG_SCAN_CARD_MAX) {
    return FG_ERR_RANGE;
  }
  uint32_t at = 0;
  while (path != NULL && path[at] != 0) {
    if (path[at] == '.') {
      at++;
    }
    at = f.count < PATH_DEPTH ? path_next(path, at, &f.want[f.count]) : 0;
    if (at == 0) {
      return FG_ERR_RANGE;
    }
    f.count++;
  }
  fg_scan s;
  fg_scan_init(&s, 0);
  f.scan = &s;
  f.left = nth;
  uint64_t i = skip_bom(text, len);
  if (f.count == 0) { /* the document itself */
    while (i < len && fg_is_space(text[i])) {
      i++;
    }
    f.found = i;
    f.is_found = i < len && nth == 0;
  }
  for (; !f.is_found && i < len; i++) { /* byte by byte: where a key or value begins is seen before it is taken */
    uint32_t expects = fg_is_space(text[i]) ? 0 : fg_scan_expects(&s);
    if (expects == FG_SCAN_EXPECTS_KEY) {
      f.key_at = i;
    } else if (expects == FG_SCAN_EXPECTS_VALUE) {
      f.value_at = i;
    }
    if (fg_scan_feed(&s, text + i, 1, finder_sink, &f, NULL) == FG_SCAN_BAD) {
      return FG_ERR_SYNTAX;
    }
  }
  if (!f.is_found) {
    return FG_ERR_RANGE;
  }
  place(text, f.found, line, column);
  if (offset != NULL) {
    *offset = (uint32_t)f.found;
  }
  return FG_OK;
}
