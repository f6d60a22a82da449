/* The JSON scanner: events, cuts anywhere, grammar, places. */
#include "fg_scan.h"
#include "fg_test.h"

typedef struct trace { char text[4096]; uint32_t len; } trace;

static void put(trace *t, const char *p, uint32_t n) {
  if (t->len + n < sizeof t->text) {
    memcpy(t->text + t->len, p, n);
    t->len += n;
    t->text[t->len] = 0;
  }
}

static int record(void *ctx, const fg_scan_event *e) {
  trace *t = ctx;
  char b[64];
  switch (e->what) {
  case FG_SCAN_BEGIN_OBJECT:
    put(t, "{", 1);
    break;
  case FG_SCAN_END_OBJECT:
    put(t, "}", 1);
    break;
  case FG_SCAN_BEGIN_ARRAY:
    put(t, "[", 1);
    break;
  case FG_SCAN_END_ARRAY:
    put(t, "]", 1);
    break;
  case FG_SCAN_KEY:
    put(t, e->text.ptr, e->text.len);
    put(t, e->cut ? "~:" : ":", e->cut ? 2 : 1);
    break;
  case FG_SCAN_STRING:
    if (e->first) {
      put(t, "'", 1);
    }
    put(t, e->text.ptr, e->text.len);
    if (e->last) {
      put(t, "' ", 2);
    }
    break;
  case FG_SCAN_NUMBER:
    put(t, e->text.ptr, e->text.len);
    if (e->is_integer) {
      put(t, b, (uint32_t)snprintf(b, sizeof b, "=%" PRId64, e->integer));
    }
    put(t, " ", 1);
    break;
  case FG_SCAN_TRUE:
    put(t, "T", 1);
    break;
  case FG_SCAN_FALSE:
    put(t, "F", 1);
    break;
  default:
    put(t, "N", 1);
    break;
  }
  return 0;
}

/* Events of a document fed in pieces of `step` bytes; "!" + error number when bad. */
static void run(const char *doc, uint32_t len, uint32_t flags, uint32_t step, trace *t) {
  fg_scan s;
  fg_scan_init(&s, flags);
  t->len = 0;
  t->text[0] = 0;
  char b[16];
  for (uint32_t i = 0; i < len; i += step) {
    uint32_t n = len - i < step ? len - i : step;
    if (fg_scan_feed(&s, doc + i, n, record, t, NULL) == FG_SCAN_BAD) {
      put(t, b, (uint32_t)snprintf(b, sizeof b, "!%u", s.error));
      return;
    }
  }
  if (fg_scan_end(&s, record, t) == FG_SCAN_BAD) {
    put(t, b, (uint32_t)snprintf(b, sizeof b, "!%u", s.error));
  }
}

static void both(const char *doc, uint32_t flags, const char *want) {
  trace t;
  uint32_t len = (uint32_t)strlen(doc);
  for (uint32_t step = 1; step <= len + 1; step++) {
    run(doc, len, flags, step, &t);
    if (!FG_EQ_STR(t.text, want)) {
      printf("  in pieces of %u: %s\n", step, doc);
      return;
    }
  }
}

static void events(void) {
  both("{}", 0, "{}");
  both(" [ ] ", 0, "[]");
  both("{\"a\":1,\"b\":[true,false,null,\"x\"]}", 0, "{a:1=1 b:[TFN'x' ]}");
  both("\"\\u00e4\\n\\\"\\\\\\/\\ud83d\\ude00\"", 0, "'\xc3\xa4\n\"\\/\xf0\x9f\x98\x80' ");
  both("\"\xe4\xbd\xa0\xe5\xa5\xbd\"", 0, "'\xe4\xbd\xa0\xe5\xa5\xbd' ");
  both("\"\"", 0, "'' ");
  both("-0", 0, "-0=0 ");
  both("[-9223372036854775808,9223372036854775807,9223372036854775808]", 0,
       "[-9223372036854775808=-9223372036854775808 9223372036854775807=9223372036854775807 9223372036854775808 ]");
  both("[1.5,1e3,1E-2,0.0]", 0, "[1.5 1e3 1E-2 0.0 ]");
  both("{\"a\":{\"b\":{\"c\":[[]]}}}", 0, "{a:{b:{c:[[]]}}}");
}

static void bad(const char *doc, uint32_t error) {
  trace t;
  char want[16];
  snprintf(want, sizeof want, "!%u", error);
  uint32_t len = (uint32_t)strlen(doc);
  for (uint32_t step = 1; step <= len + 1; step++) {
    run(doc, len, 0, step, &t);
    const char *mark = strchr(t.text, '!');
    if (!FG_EQ_STR(mark, want)) {
      printf("  in pieces of %u: %s\n", step, doc);
      return;
    }
  }
}

static void grammar(void) {
  bad("", FG_SCAN_E_EMPTY);
  bad("  ", FG_SCAN_E_EMPTY);
  bad("01", FG_SCAN_E_AFTER);
  bad("1.", FG_SCAN_E_NUMBER);
  bad("1.e3", FG_SCAN_E_NUMBER);
  bad("[1e]", FG_SCAN_E_NUMBER);
  bad("-", FG_SCAN_E_NUMBER);
  bad("+1", FG_SCAN_E_VALUE);
  bad(".5", FG_SCAN_E_VALUE);
  bad("NaN", FG_SCAN_E_VALUE);
  bad("[1,]", FG_SCAN_E_TRAILING_COMMA);
  bad("{\"a\":1,}", FG_SCAN_E_TRAILING_COMMA);
  bad("{a:1}", FG_SCAN_E_KEY);
  bad("{\"a\" 1}", FG_SCAN_E_COLON);
  bad("{\"a\":1 \"b\":2}", FG_SCAN_E_COMMA_OBJECT);
  bad("[1 2]", FG_SCAN_E_COMMA_ARRAY);
  bad("[1}", FG_SCAN_E_COMMA_ARRAY);
  bad("tru", FG_SCAN_E_END);
  bad("trux", FG_SCAN_E_WORD);
  bad("\"\\x\"", FG_SCAN_E_ESCAPE);
  bad("\"\\u12g4\"", FG_SCAN_E_UNICODE);
  bad("\"\\ud800\"", FG_SCAN_E_SURROGATE);
  bad("\"\\udc00\"", FG_SCAN_E_SURROGATE);
  bad("\"\\ud800\\u0041\"", FG_SCAN_E_SURROGATE);
  bad("\"a\nb\"", FG_SCAN_E_CONTROL);
  bad("\"\xff\"", FG_SCAN_E_UTF8);
  bad("\"\xc0\x80\"", FG_SCAN_E_UTF8);
  bad("\"\xe4\xbd\"", FG_SCAN_E_UTF8);
  bad("\"\xed\xa0\x80\"", FG_SCAN_E_UTF8);
  bad("\"\xf4\x90\x80\x80\"", FG_SCAN_E_UTF8);
  bad("{} x", FG_SCAN_E_AFTER);
  bad("{}{}", FG_SCAN_E_AFTER);
  bad("{\"a\":", FG_SCAN_E_END);
  bad("\"abc", FG_SCAN_E_END);
  bad("\xef\xbb\xbf{}", FG_SCAN_E_VALUE);
}

static void lenient(void) {
  both("\"\\ud800x\"", FG_SCAN_LENIENT, "'\xef\xbf\xbdx' ");
  both("\"\\ud800\\n\"", FG_SCAN_LENIENT, "'\xef\xbf\xbd\n' ");
  both("\"\\ud800\\u0041\"", FG_SCAN_LENIENT, "'\xef\xbf\xbd" "A' ");
  both("\"a\nb\"", FG_SCAN_LENIENT, "'a\nb' ");
  both("\"\\x\"", FG_SCAN_LENIENT, "'x' ");
  trace t;
  const char *doc = "\"a\xff" "b\xe4\xbd\"";
  for (uint32_t step = 1; step < 9; step++) {
    run(doc, 7, FG_SCAN_LENIENT, step, &t);
    FG_CHECK(strncmp(t.text, "'a\xef\xbf\xbd" "b\xef\xbf\xbd", 9) == 0);
    FG_CHECK(strchr(t.text, '!') == NULL);
  }
}

static void limits(void) {
  char doc[200];
  memset(doc, '[', 33);
  trace t;
  run(doc, 33, 0, 7, &t);
  FG_CHECK(strstr(t.text, "!13") != NULL);
  memset(doc + 32, ']', 32);
  run(doc, 64, 0, 5, &t);
  FG_CHECK(strchr(t.text, '!') == NULL);
  FG_EQ(t.len, 64);
  /* A key longer than its buffer is cut, not an error. */
  memset(doc, 'k', sizeof doc);
  memcpy(doc, "{\"", 2);
  memcpy(doc + 102, "\":1}", 5);
  run(doc, 106, 0, 3, &t);
  FG_CHECK(strstr(t.text, "~:1=1 }") != NULL);
}

static void check(const char *doc, uint32_t line, uint32_t column, const char *message) {
  fg_error err = {.size = sizeof err};
  FG_EQ(fg_scan_check(doc, strlen(doc), &err), FG_ERR_SYNTAX);
  FG_EQ(err.line, line);
  FG_EQ(err.column, column);
  FG_EQ(err.what, FG_LOAD_SYNTAX);
  FG_EQ_STR(err.message, message);
}

static void places(void) {
  FG_EQ(fg_scan_check("{\"a\": 1}", 8, NULL), FG_OK);
  FG_EQ(fg_scan_check("\xef\xbb\xbf{}", 5, NULL), FG_OK);
  check("{\n  \"a\": 1,\n  \"b\" 2\n}", 3, 7, "expected ':' after the key");
  check("{\n  \"\xc3\xa4\xc3\xa4\": x}", 2, 9, "expected a value");
  check("{\r\n\"a\": 1,\r\n}", 3, 1, "a comma before the closing bracket");
  check("", 1, 1, "the text is empty");
  check("{\"a\": [1, 2", 1, 12, "the text ends too early");
  fg_error err = {.size = sizeof err};
  FG_EQ(fg_scan_check("x", (uint64_t)FG_SCAN_CARD_MAX + 1, &err), FG_ERR_RANGE);
  FG_EQ(err.what, FG_LOAD_LIMIT);
}

static void at(const char *doc, const char *path, uint32_t nth, int32_t code, uint32_t line, uint32_t column, uint32_t offset) {
  uint32_t l = 0, c = 0, o = 0;
  if (!FG_EQ(fg_scan_locate(doc, strlen(doc), path, nth, &l, &c, &o), code)) {
    printf("  %s\n", path);
  }
  if (code == FG_OK) {
    FG_EQ(l, line);
    FG_EQ(c, column);
    FG_EQ(o, offset);
  }
}

static void paths(void) {
  const char *doc = "{\n \"a\": {\"b\": [1, {\"c\": 2}, \"x\", [7, 8]]},\n \"a\": 5,\n \"k.1\": {\"q\\\"\": null, \"\": 1},\n \"b\": {\"b\": 1}\n}";
  at(doc, "", 0, FG_OK, 1, 1, 0);
  at(doc, "a", 0, FG_OK, 2, 2, 3);
  at(doc, "a", 1, FG_OK, 3, 2, (uint32_t)(strstr(doc, "\"a\": 5") - doc));
  at(doc, "a", 2, FG_ERR_RANGE, 0, 0, 0);
  at(doc, "a.b", 0, FG_OK, 2, 8, 9);
  at(doc, "a.b[0]", 0, FG_OK, 2, 14, 15);
  at(doc, "a.b[1]", 0, FG_OK, 2, 17, 18);
  at(doc, "a.b[1].c", 0, FG_OK, 2, 18, 19);
  at(doc, "a.b[2]", 0, FG_OK, 2, 27, 28);
  at(doc, "a.b[3][1]", 0, FG_OK, 2, 36, 37);
  at(doc, "a.b[4]", 0, FG_ERR_RANGE, 0, 0, 0);
  at(doc, "[\"k.1\"][\"q\\\"\"]", 0, FG_OK, 4, 10, (uint32_t)(strstr(doc, "\"q\\") - doc));
  at(doc, "[\"k.1\"][\"\"]", 0, FG_OK, 4, 23, (uint32_t)(strstr(doc, "\"\": 1") - doc));
  at(doc, "b.b", 0, FG_OK, 5, 8, (uint32_t)(strstr(doc, "\"b\": 1}") - doc));
  at(doc, "b.c", 0, FG_ERR_RANGE, 0, 0, 0);
  at(doc, "b..c", 0, FG_ERR_RANGE, 0, 0, 0);
  at(doc, "[", 0, FG_ERR_RANGE, 0, 0, 0);
  at("{\"a\": tru}", "b", 0, FG_ERR_SYNTAX, 0, 0, 0);
  at("[[1, 2], [3]]", "[1][0]", 0, FG_OK, 1, 11, 10);
}

int main(void) {
  events();
  grammar();
  lenient();
  limits();
  places();
  paths();
  return fg_test_end("scan");
}
