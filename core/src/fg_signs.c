/* Reading of error bodies. Member names decide what a value is (a name, a
 * text, a status, a wait), not where it stands, so a shape nobody has seen yet
 * is read as well. Members that echo the request are skipped. */
#include "fg_signs_read.h"
#include "fg_hint.h"
#include "fg_keys.h"

enum value { V_NONE, V_NAME, V_TEXT, V_STATUS, V_CODE, V_SECONDS, V_MILLIS, V_DURATION, V_RESET, V_NAME_TEXT };
enum { INNER_MAX = 3 }; /* levels of JSON in JSON strings; LiteLLM in front of a gateway needs two */

void fg_signs_init(fg_signs *s) { memset(s, 0, offsetof(fg_signs, text)); }

void fg_signs_name(fg_signs *s, const char *p, uint32_t len, uint32_t what) {
  if (len == 0 || len > 96 || s->in.name_count == FG_SIGN_NAMES || s->pool_len + len > FG_SIGN_POOL) {
    return;
  }
  if (fg_eq_nocase(p, len, "none", 4) || fg_eq_nocase(p, len, "null", 4) || fg_eq_nocase(p, len, "error", 5)) {
    return; /* str(None) of Python gateways; the outer type of an envelope */
  }
  fg_rule_name *n = &s->in.name[s->in.name_count++];
  memcpy(s->pool + s->pool_len, p, len);
  n->ptr = s->pool + s->pool_len;
  n->len = (uint16_t)len;
  n->what = (uint16_t)what;
  s->pool_len += len;
}

/* Lower-case, white space collapsed, curly apostrophes straightened. */
void signs_put(fg_signs *s, const char *p, uint32_t len) {
  uint32_t n = s->text_len;
  char last = n > 0 ? s->text[n - 1] : ' ';
  for (uint32_t i = 0; i < len && n < FG_SIGN_TEXT; i++) {
    char c = fg_lower(p[i]);
    if (fg_is_space(c)) {
      c = ' ';
      if (last == ' ') {
        continue;
      }
    } else if ((unsigned char)c == 0xE2 && i + 2 < len && (unsigned char)p[i + 1] == 0x80 && (unsigned char)p[i + 2] == 0x99) {
      c = '\'';
      i += 2;
    }
    s->text[n++] = c;
    last = c;
  }
  s->text_len = n;
}

void signs_end_text(fg_signs *s) {
  if (s->text_len > 0 && s->text_len < FG_SIGN_TEXT && s->text[s->text_len - 1] != '\n') {
    s->text[s->text_len++] = '\n'; /* phrases do not run over from one text to the next */
  }
}

void fg_signs_text(fg_signs *s, const char *p, uint32_t len) {
  signs_put(s, p, len);
  signs_end_text(s);
}

/* Blanks what an error message quotes of the request ("got 'how do I handle a rate limit error?'", pydantic's input_value='…'), so that no
 * rule fires on the caller's own words. */
static void mask_echo(fg_signs *s) {
  static const char *const before[] = {"got ", "got: ", "received ", "received: ", "input_value=", "input: ", "input ", "value ", "value: ", "content ", "content: ", "prompt: "};
  for (uint32_t i = 1; i < s->text_len; i++) {
    char quote = s->text[i];
    if (quote != '\'' && quote != '"' && quote != '`') {
      continue;
    }
    uint32_t k = 0;
    for (; k < FG_ARRAY_LEN(before); k++) {
      uint32_t n = fg_cstr_len(before[k]);
      if (i >= n && memcmp(s->text + i - n, before[k], n) == 0 && (i == n || !fg_is_alnum(s->text[i - n - 1]))) {
        break;
      }
    }
    if (k == FG_ARRAY_LEN(before)) {
      continue;
    }
    uint32_t end = i + 1;
    while (end < s->text_len && s->text[end] != '\n' && !(s->text[end] == quote && (end + 1 == s->text_len || !fg_is_alnum(s->text[end + 1])))) {
      end++;
    }
    memset(s->text + i + 1, '.', end - i - 1);
    i = end;
  }
}

void fg_signs_done(fg_signs *s) {
  mask_echo(s);
  s->in.message = fg_str_make(s->text, s->text_len);
}

/* ------------------------------------------------------------- members */

static uint32_t value_of(uint32_t key) {
  switch (key) {
  case FG_K_CODE:
  case FG_K_ERRORCODE:
  case FG_K_ERRCODE:
    return V_CODE;
  case FG_K_STATUS:
  case FG_K_STATUSCODE:
  case FG_K_HTTPCODE:
  case FG_K_RAWSTATUSCODE:
  case FG_K_ORIGINALSTATUSCODE:
    return V_STATUS;
  case FG_K_TYPE:
  case FG_K_ERRORTYPE:
  case FG_K_ERRORNAME:
  case FG_K_LIMITSOURCE:
  case FG_K_QUOTAID:
  case FG_K_QUOTALIMIT:
  case FG_K_QUOTAMETRIC:
  case FG_K_NAME:
  case FG_K_PARAM:
    return V_NAME;
  case FG_K_REASON:
  case FG_K_ERROR:
  case FG_K_ERR:
  case FG_K_EXCEPTION:
  case FG_K_DETAIL:
  case FG_K_DETAILS:
    return V_NAME_TEXT;
  case FG_K_MESSAGE:
  case FG_K_MSG:
  case FG_K_ERRORS:
  case FG_K_ERRMSG:
  case FG_K_ERRORMSG:
  case FG_K_ERRORMESSAGE:
  case FG_K_STATUSMSG:
  case FG_K_STATUSMESSAGE:
  case FG_K_STATUSTEXT:
  case FG_K_TITLE:
  case FG_K_DESCRIPTION:
  case FG_K_FAULTSTRING:
  case FG_K_RAW:
  case FG_K_CAUSE:
    return V_TEXT;
  case FG_K_RETRYAFTER:
  case FG_K_RETRYAFTERSECONDS:
  case FG_K_RETRYINSECONDS:
  case FG_K_WAITSECONDS:
  case FG_K_ESTIMATEDTIME:
  case FG_K_RESETSINSECONDS:
    return V_SECONDS;
  case FG_K_RETRYAFTERMS:
    return V_MILLIS;
  case FG_K_RETRYDELAY:
    return V_DURATION;
  case FG_K_XRATELIMITRESET:
  case FG_K_RATELIMITRESET:
  case FG_K_RESETAT:
  case FG_K_RESETSAT:
  case FG_K_RESETTIME:
    return V_RESET;
  default:
    return V_NONE;
  }
}

/* Members that repeat what the caller sent, or say nothing about the error. */
static int skipped(uint32_t key) {
  switch (key) {
  case FG_K_INPUT:
  case FG_K_CTX:
  case FG_K_LOC:
  case FG_K_REQUEST:
  case FG_K_PROMPT:
  case FG_K_MESSAGES:
  case FG_K_FAILEDGENERATION:
  case FG_K_CONTENTFILTERRESULT:
  case FG_K_CONTENTFILTERRESULTS:
  case FG_K_SAFETYRATINGS:
  case FG_K_USAGE:
  case FG_K_USAGEMETADATA:
  case FG_K_PROMPTTOKENIDS:
  case FG_K_STACK:
  case FG_K_TRACEBACK:
  case FG_K_CONTENT:
  case FG_K_TOOLCALLS:
  case FG_K_FUNCTIONCALL:
  case FG_K_ARGS:
    return 1;
  default:
    return 0;
  }
}

static int is_status(int64_t n) { return n >= 400 && n <= 599; }

void signs_status(fg_signs *s, int64_t n) {
  int32_t *to = s->inner > 0 ? &s->inner_status : &s->status;
  if (is_status(n) && *to == 0) {
    *to = (int32_t)n;
  }
}

static void found_wait(fg_signs *s, uint64_t ms) {
  s->wait_ms = s->has_wait ? fg_max64(s->wait_ms, ms) : ms;
  s->has_wait = 1;
}

typedef struct reader {
  fg_signs *s;
  fg_path path;
  uint32_t skip_depth; /* depth of the skipped member, 0 none */
  uint32_t value, len;
  uint32_t text_at;      /* where the string's text began in s->text */
  char buf[192];         /* of the string being read, its beginning */
} reader;

static void number(reader *r, const fg_scan_event *e) {
  fg_signs *s = r->s;
  int64_t n = e->integer;
  int whole = (int)e->is_integer;
  if (!whole) { /* 429.0 */
    uint32_t i = 0;
    n = 0;
    while (i < e->text.len && i < 9 && fg_is_digit(e->text.ptr[i])) {
      n = n * 10 + (e->text.ptr[i++] - '0');
    }
    whole = i > 0 && i + 2 == e->text.len && e->text.ptr[i] == '.' && e->text.ptr[i + 1] == '0';
  }
  uint64_t ms;
  switch (r->value) {
  case V_CODE:
  case V_STATUS:
    if (whole && is_status(n)) {
      signs_status(s, n);
    } else if (whole && n != 0) {
      fg_signs_name(s, e->text.ptr, e->text.len, FG_NAME_CODE); /* a vendor's number */
    }
    break;
  case V_SECONDS:
  case V_MILLIS:
  case V_DURATION:
    if (fg_hint_number(e->text, r->value == V_MILLIS ? 1 : 1000, &ms)) {
      found_wait(s, ms);
    }
    break;
  case V_RESET:
    if (s->reset_len == 0 && e->text.len <= sizeof s->reset) {
      memcpy(s->reset, e->text.ptr, e->text.len);
      s->reset_len = e->text.len;
      s->has_reset = 1;
    }
    break;
  default:
    break;
  }
}

static int all_digits(const char *p, uint32_t len) {
  for (uint32_t i = 0; i < len; i++) {
    if (!fg_is_digit(p[i])) {
      return 0;
    }
  }
  return len > 0;
}

static int has_space(const char *p, uint32_t len) {
  for (uint32_t i = 0; i < len; i++) {
    if (p[i] == ' ') {
      return 1;
    }
  }
  return 0;
}

static uint32_t as_number(const char *p, uint32_t len) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < len && i < 9; i++) {
    n = n * 10 + (uint32_t)(p[i] - '0');
  }
  return n;
}

static int wants_text(uint32_t value) { return value == V_TEXT || value == V_NAME_TEXT || value == V_CODE || value == V_STATUS; }

/* A string came to its end: r->buf holds its beginning, s->text its normalised text if one was wanted. */
static void string_end(reader *r) {
  fg_signs *s = r->s;
  fg_str v = fg_trim(fg_str_make(r->buf, fg_min32(r->len, (uint32_t)sizeof r->buf)));
  int whole = r->len <= sizeof r->buf;
  uint64_t ms;
  switch (r->value) {
  case V_STATUS:
  case V_CODE:
    if (whole && all_digits(v.ptr, v.len)) {
      uint32_t n = as_number(v.ptr, v.len);
      if (is_status(n)) {
        signs_status(s, n);
      } else if (n != 0) {
        fg_signs_name(s, v.ptr, v.len, FG_NAME_CODE);
      }
      s->text_len = r->text_at;
      return;
    }
    if (whole && !has_space(v.ptr, v.len)) {
      s->text_len = r->text_at; /* a word: a name, no text */
    }
    if (whole) {
      fg_signs_name(s, v.ptr, v.len, FG_NAME_CODE);
    }
    break;
  case V_NAME:
    if (whole && !all_digits(v.ptr, v.len)) {
      fg_signs_name(s, v.ptr, v.len, r->path.latest == FG_K_PARAM  ? FG_NAME_PARAM
                                       : r->path.latest == FG_K_NAME ? FG_NAME_OTHER
                                                                     : FG_NAME_TYPE);
    }
    break;
  case V_NAME_TEXT:
    if (whole && !has_space(v.ptr, v.len)) {
      fg_signs_name(s, v.ptr, v.len, FG_NAME_OTHER);
    }
    break;
  case V_SECONDS:
  case V_MILLIS:
    if (whole && fg_hint_number(v, r->value == V_MILLIS ? 1 : 1000, &ms)) {
      found_wait(s, ms);
    }
    break;
  case V_DURATION:
    if (whole && (fg_hint_duration(v, &ms) || fg_hint_number(v, 1000, &ms))) {
      found_wait(s, ms);
    }
    break;
  case V_RESET:
    if (whole && s->reset_len == 0 && v.len <= sizeof s->reset) {
      memcpy(s->reset, v.ptr, v.len);
      s->reset_len = v.len;
      s->has_reset = 1;
    }
    break;
  default:
    break;
  }
  if (wants_text(r->value) && s->text_len > r->text_at) {
    uint32_t from = r->text_at, len = s->text_len - r->text_at;
    signs_end_text(s);
    if (s->depth < INNER_MAX) {
      signs_quoted(s, s->text + from, len);
    }
  }
}

static void string_piece(reader *r, const fg_scan_event *e) {
  if (e->first) {
    r->len = 0;
    r->text_at = r->s->text_len;
  }
  if (r->len < sizeof r->buf) {
    uint32_t n = fg_min32(e->text.len, (uint32_t)sizeof r->buf - r->len);
    memcpy(r->buf + r->len, e->text.ptr, n);
  }
  r->len = fg_add32(r->len, e->text.len);
  if (wants_text(r->value)) {
    signs_put(r->s, e->text.ptr, e->text.len);
  }
  if (e->last) {
    string_end(r);
  }
}

static int ends_with_exception(fg_str k) { return k.len > 9 && fg_eq_nocase(k.ptr + k.len - 9, 9, "exception", 9); }

static int sink(void *ctx, const fg_scan_event *e) {
  reader *r = ctx;
  if (r->skip_depth > 0) { /* until the next member beside the skipped one, or the end of its object */
    int ends = e->what == FG_SCAN_END_OBJECT || e->what == FG_SCAN_END_ARRAY;
    if (!(e->what == FG_SCAN_KEY && e->depth <= r->skip_depth) && !(ends && e->depth < r->skip_depth)) {
      return 0;
    }
    r->skip_depth = 0;
  }
  fg_path_step(&r->path, e);
  switch (e->what) {
  case FG_SCAN_KEY:
    r->value = value_of(r->path.latest);
    if (skipped(r->path.latest)) {
      r->skip_depth = e->depth;
      r->value = V_NONE;
    } else if (r->path.latest == FG_K_NONE && e->depth == 1 && ends_with_exception(e->text)) {
      fg_signs_name(r->s, e->text.ptr, e->text.len, FG_NAME_TYPE); /* a decoded stream frame of AWS is named by its member */
    } else if (r->path.latest == FG_K_ID && e->depth == 1) {
      r->value = V_NAME; /* DigitalOcean: {"id": "too_many_requests"} */
    }
    break;
  case FG_SCAN_STRING:
    if (e->depth == 0) {
      r->value = V_TEXT;
    }
    string_piece(r, e);
    break;
  case FG_SCAN_NUMBER:
    number(r, e);
    break;
  default:
    break;
  }
  return 0;
}

int32_t signs_json(fg_signs *s, const char *p, uint32_t len, uint32_t *used) {
  reader r;
  memset(&r, 0, offsetof(reader, buf));
  r.s = s;
  fg_path_init(&r.path);
  fg_scan scan;
  fg_scan_init(&scan, FG_SCAN_LENIENT | FG_SCAN_ONE);
  int32_t code = fg_scan_feed(&scan, p, len, sink, &r, used);
  if (code == FG_SCAN_MORE) {
    if (fg_scan_end(&scan, sink, &r) == FG_SCAN_DONE) {
      return FG_SCAN_DONE;
    }
    signs_end_text(s); /* cut inside a message: what came is read */
  }
  return code;
}
