/* The output check: ends, tool calls, emptiness, and the schema subset against texts in any form. */
#include "fg_test.h"

#include "card_text.h"
#include "fg_output.h"

static fg_policy *with(const char *output) {
  char text[4096];
  snprintf(text, sizeof text, "{'version': 1, 'routes': {'m': {'provider': 'p', 'model': 'm'}}, 'workflows': {'w': {'routes': ['m'], 'requires': {'output': {%s}}}}}", output);
  return card_must(text, 0);
}

static fg_answer answer(const char *text, uint32_t finish) {
  fg_answer a;
  memset(&a, 0, sizeof a);
  a.size = sizeof a;
  a.finish = finish;
  a.output = fg_str_of(text);
  a.flags = FG_ANSWER_OUTPUT_KNOWN;
  return a;
}

static uint32_t check(const fg_policy *p, const fg_answer *a) {
  return fg_output_check(p, fg_policy_workflows(p), a);
}

/* -------------------------------------------------------------------- the end */

static void ends(void) {
  fg_policy *any = with(""), *stop = with("'finish_reasons': ['stop', 'refusal', 'content_filter']"), *form = with("'refusal_form': 'answer'");
  static const struct { uint32_t finish, any, stop, form; } ROWS[] = {
      {FG_FINISH_NONE, 0, 0, 0},
      {FG_FINISH_STOP, 0, 0, 0},
      {FG_FINISH_LENGTH, 0, FG_KIND_OUTPUT_INVALID, 0},
      {FG_FINISH_TOOL_CALLS, 0, FG_KIND_OUTPUT_INVALID, 0},
      {FG_FINISH_CONTENT_FILTER, FG_KIND_OUTPUT_FILTERED, 0, FG_KIND_OUTPUT_FILTERED},
      {FG_FINISH_REFUSAL, FG_KIND_MODEL_REFUSED, 0, 0},
      {FG_FINISH_ERROR, FG_KIND_ERROR_IN_STREAM, FG_KIND_ERROR_IN_STREAM, FG_KIND_ERROR_IN_STREAM},
      {FG_FINISH_OTHER, 0, FG_KIND_OUTPUT_INVALID, 0}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    fg_answer a = answer("text", ROWS[i].finish);
    FG_EQ(check(any, &a), ROWS[i].any);
    FG_EQ(check(stop, &a), ROWS[i].stop);
    FG_EQ(check(form, &a), ROWS[i].form);
  }
  fg_answer odd = answer("text", 77);
  FG_EQ(check(any, &odd), 0);
  FG_EQ(check(stop, &odd), FG_KIND_OUTPUT_INVALID);
  card_drop(any);
  card_drop(stop);
  card_drop(form);
}

static void emptiness(void) {
  fg_policy *p = with(""), *form = with("'refusal_form': 'answer'");
  fg_answer a = answer(" \n\t", FG_FINISH_STOP);
  FG_EQ(check(p, &a), FG_KIND_EMPTY_ANSWER);
  a.output_tokens = 3;
  FG_EQ(check(p, &a), FG_KIND_NO_OUTPUT);
  a.output_tokens = 0;
  a.flags |= FG_ANSWER_USAGE_FINAL;
  FG_EQ(check(p, &a), FG_KIND_NO_OUTPUT);
  a.visible = 1;
  FG_EQ(check(p, &a), 0);
  a = answer("", FG_FINISH_PAUSE);
  FG_EQ(check(p, &a), 0);
  a = answer("", FG_FINISH_STOP);
  a.flags = 0; /* the text was not kept */
  FG_EQ(check(p, &a), 0);
  a = answer("", FG_FINISH_REFUSAL);
  FG_EQ(check(form, &a), 0);
  card_drop(p);
  card_drop(form);
}

static void tool_calls(void) {
  fg_policy *p = with("'schema': {'type': 'object'}");
  static const struct { const char *arguments; uint32_t finish, want; } ROWS[] = {
      {"{}", FG_FINISH_TOOL_CALLS, 0}, {" {\"a\": [1, 2]} ", FG_FINISH_LENGTH, 0}, {"", FG_FINISH_TOOL_CALLS, 0},
      {"", FG_FINISH_LENGTH, FG_KIND_TRUNCATED_TOOL_CALL}, {"{\"a\": ", FG_FINISH_LENGTH, FG_KIND_TRUNCATED_TOOL_CALL},
      {"{\"a\": 1", FG_FINISH_TOOL_CALLS, FG_KIND_TRUNCATED_TOOL_CALL}, {"{'a': 1}", FG_FINISH_TOOL_CALLS, FG_KIND_TRUNCATED_TOOL_CALL},
      {"{} {}", FG_FINISH_TOOL_CALLS, FG_KIND_TRUNCATED_TOOL_CALL}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    fg_tool_call calls[2];
    memset(calls, 0, sizeof calls);
    calls[0].arguments = fg_str_of("{\"fine\": true}");
    calls[1].arguments = fg_str_of(ROWS[i].arguments);
    fg_answer a = answer("", ROWS[i].finish);
    a.tool_calls = calls;
    a.tool_call_count = 2;
    if (!FG_EQ(check(p, &a), ROWS[i].want)) {
      printf("  row %zu\n", i);
    }
    a.output = fg_str_of("let me look that up"); /* a text beside tool calls is no document yet */
    FG_EQ(check(p, &a), ROWS[i].want);
  }
  card_drop(p);
}

/* --------------------------------------------------------------------- schema */

static void holds(const fg_policy *p, const char *text, int ok) {
  char *json = card_quotes(text);
  fg_answer a = answer(json, FG_FINISH_STOP);
  if (!FG_EQ(check(p, &a), ok ? 0 : FG_KIND_OUTPUT_INVALID)) {
    printf("  %s\n", json);
  }
  free(json);
}

static void schemas(void) {
  fg_policy *p = with("'schema': {'type': 'object', 'required': ['answer', 'score', 'free'], 'properties': {'answer': {'type': 'string'}, 'score': {'type': 'integer'},"
                      "'tags': {'type': 'array', 'items': {'type': 'string', 'enum': ['red', 'gr\xc3\xbcn', '']}}, 'deep': {'type': 'object', 'required': ['x'], 'properties': {'x': {'type': ['number', 'null']}}},"
                      "'any': {'enum': [1, 2.5, 'a\\\\b', true, null]}}}");
  holds(p, "{'answer': 'a', 'score': 1, 'free': {}}", 1);
  holds(p, " \n{'free': [1, {'answer': 2}], 'score': 1.0, 'answer': ''}\n ", 1);
  holds(p, "{'answer': 'a', 'score': 1}", 0);                             /* required, missing */
  holds(p, "{'answer': 'a', 'score': 1, 'free': null, 'more': [[]]}", 1); /* more is allowed */
  holds(p, "{'answer': 7, 'score': 1, 'free': 0}", 0);
  holds(p, "{'answer': null, 'score': 1, 'free': 0}", 0);
  holds(p, "{'answer': 'a', 'score': 1.5, 'free': 0}", 0);
  holds(p, "{'answer': 'a', 'score': 1e2, 'free': 0}", 0); /* an exponent is not read as an integer */
  holds(p, "{'answer': 'a', 'score': '1', 'free': 0}", 0);
  holds(p, "{'answer': 'a', 'score': -0.0, 'free': 0}", 1);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'tags': ['red', 'gr\xc3\xbcn', 'gr\\u00fcn', '']}", 1);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'tags': []}", 1);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'tags': ['re']}", 0);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'tags': ['redd']}", 0);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'tags': ['red', 1]}", 0);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'tags': 'red'}", 0);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'deep': {'x': 1e5}}", 1);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'deep': {'x': null, 'answer': 5}}", 1);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'deep': {}}", 0);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'deep': {'x': true}}", 0);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0, 'deep': [{'x': 1}]}", 0);
  for (uint32_t i = 0; i < 9; i++) {
    static const char *const GOOD[] = {"1", "1.0", "2.5", "2.50", "'a\\\\b'", "'a\\u005cb'", "true", "null", "1.00"};
    static const char *const BAD[] = {"2", "25e-1", "'a'", "'a/b'", "false", "[]", "{}", "'true'", "'1'"};
    char text[200];
    snprintf(text, sizeof text, "{'answer': 'a', 'score': 1, 'free': 0, 'any': %s}", GOOD[i]);
    holds(p, text, 1);
    snprintf(text, sizeof text, "{'answer': 'a', 'score': 1, 'free': 0, 'any': %s}", BAD[i]);
    holds(p, text, 0);
  }
  /* Strict JSON, and one document. */
  holds(p, "```json\n{'answer': 'a', 'score': 1, 'free': 0}\n```", 0);
  holds(p, "Sure! {'answer': 'a', 'score': 1, 'free': 0}", 0);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0} done", 0);
  holds(p, "{'answer': 'a', 'score': 1, 'free': 0", 0);
  holds(p, "{'answer': 'a', 'score': 01, 'free': 0}", 0);
  holds(p, "[{'answer': 'a', 'score': 1, 'free': 0}]", 0);
  holds(p, "'text'", 0);
  fg_answer cut = answer("{\"answer\": \"a\", \"score\"", FG_FINISH_LENGTH);
  FG_EQ(check(p, &cut), FG_KIND_OUTPUT_INVALID);
  cut.flags = 0;
  FG_EQ(check(p, &cut), 0); /* a text that was not kept cannot be judged */
  card_drop(p);
  p = with("'schema': {'type': 'array', 'items': {'type': 'array', 'items': {'type': 'boolean'}}}");
  holds(p, "[]", 1);
  holds(p, "[[true, false], []]", 1);
  holds(p, "[[true, 0]]", 0);
  holds(p, "[true]", 0);
  holds(p, "[[[true]]]", 0);
  holds(p, "{}", 0);
  card_drop(p);
  p = with("'schema': {'type': ['string', 'null', 'number']}");
  holds(p, "'x'", 1);
  holds(p, "null", 1);
  holds(p, "12", 1);
  holds(p, "true", 0);
  card_drop(p);
}

/* Long texts arrive in pieces inside the scanner, many properties use every bit of the frame. */
static void large(void) {
  enum { MANY = 200 };
  char *schema = malloc(40000), *at = schema, *json = malloc(400000), *out = json;
  at += sprintf(at, "'schema': {'properties': {");
  for (int i = 0; i < MANY; i++) {
    at += sprintf(at, "%s'property_number_%d': {'type': 'integer'}", i > 0 ? "," : "", i);
  }
  at += sprintf(at, "}, 'required': ['property_number_0'");
  for (int i = 1; i < MANY; i++) {
    at += sprintf(at, ",'property_number_%d'", i);
  }
  sprintf(at, "]}");
  char *card = malloc(60000);
  sprintf(card, "{'version': 1, 'routes': {'m': {'provider': 'p', 'model': 'm'}}, 'workflows': {'w': {'routes': ['m'], 'requires': {'output': {%s}}}}}", schema);
  fg_policy *p = card_must(card, 0);
  for (int missing = -1; missing < MANY; missing += 67) {
    out = json;
    out += sprintf(out, "{'long': '");
    memset(out, 'x', 200000);
    out += 200000;
    out += sprintf(out, "'");
    for (int i = MANY - 1; i >= 0; i--) {
      if (i != missing) {
        out += sprintf(out, ",'property_number_%d':%d", i, i);
      }
    }
    sprintf(out, "}");
    holds(p, json, missing < 0);
  }
  card_drop(p);
  free(card);
  free(schema);
  free(json);
  p = with("'schema': {'enum': ['" "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789" "', '0123456789']}");
  holds(p, "'0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789'", 1);
  holds(p, "'0123456789'", 1);
  holds(p, "'01234567890'", 0);
  holds(p, "'01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890'", 0);
  holds(p, "'\\u00301234567\\u00389'", 1);
  card_drop(p);
}

int main(void) {
  ends();
  emptiness();
  tool_calls();
  schemas();
  large();
  return fg_test_end("output");
}
