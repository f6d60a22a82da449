/* The stream scanner: four wires, framing, cuts anywhere, errors and ends. */
#include "fg_base.h"
#include "fg_sse.h"
#include "fg_test.h"

typedef struct seen { uint32_t saw; fg_answer a; fg_evidence e; fg_sse s; } seen;

static void feed(seen *o, const char *text, uint32_t len, uint32_t step, uint32_t flags) {
  memset(o, 0, sizeof *o);
  fg_sse_init(&o->s, FG_WIRE_AUTO, flags);
  for (uint32_t i = 0; i < len; i += step) {
    int32_t r = fg_sse_feed(&o->s, text + i, len - i < step ? len - i : step);
    o->saw |= (uint32_t)r;
  }
  o->a.size = sizeof o->a;
  o->e.size = sizeof o->e;
  FG_EQ(fg_sse_answer(&o->s, &o->a), FG_OK);
  FG_EQ(fg_sse_evidence(&o->s, &o->e), FG_OK);
}

/* The same whatever the pieces. */
static void run(seen *o, const char *text, uint32_t len, uint32_t flags) {
  static seen p;
  feed(o, text, len, len > 0 ? len : 1, flags);
  for (uint32_t step = 1; step < len && step < 80; step++) {
    feed(&p, text, len, step, flags);
    int same = p.saw == o->saw && memcmp(&p.a, &o->a, sizeof p.a) == 0 && p.e.visible == o->e.visible && p.e.lifecycle == o->e.lifecycle &&
               p.e.reasoning == o->e.reasoning && p.e.tool_args_bytes == o->e.tool_args_bytes && p.e.terminal == o->e.terminal &&
               fg_str_eq(p.e.body, o->e.body);
    if (!FG_CHECK(same)) {
      printf("  in pieces of %u: %.60s\n", step, text);
      return;
    }
  }
}
/* Whose answer it is, cut anywhere: told once, and then kept. */
static void id_is(const char *text, uint32_t flags, const char *want) {
  const uint32_t len = (uint32_t)strlen(text);
  for (uint32_t step = 1; step <= len; step++) {
    seen o;
    fg_str id = {0};
    feed(&o, text, len, step, flags);
    FG_EQ(fg_sse_id(&o.s, &id), FG_OK);
    if (!FG_CHECK(fg_str_eq(id, fg_str_make(want, (uint32_t)strlen(want))))) {
      printf("  in pieces of %u: %.*s of %.60s\n", step, (int)id.len, id.ptr, text);
      return;
    }
  }
}

static void ids(void) {
  static char text[400];
  fg_str id;
  id_is("data: {\"id\":\"chatcmpl-1\",\"choices\":[]}\n\ndata: {\"id\":\"other\",\"choices\":[]}\n\n", 0, "chatcmpl-1");
  id_is("data: {\"id\":null,\"choices\":[]}\n\ndata: {\"id\":\"\"}\n\ndata: {\"id\":\"gen-2\"}\n\n", 0, "gen-2");
  id_is("data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_3\",\"output\":[{\"id\":\"msg_9\"}]}}\n\n", 0, "resp_3");
  id_is("data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_4\"}}\n\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"id\":\"toolu_1\"}}\n\n", 0,
        "msg_4");
  id_is("data: {\"candidates\":[],\"responseId\":\"abc\"}\n\n", 0, "abc");
  id_is("{\"id\":\"msg_5\",\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_2\"}]}", FG_SSE_WHOLE, "msg_5");
  id_is("{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"call_1\"}]}}],\"id\":\"a\\u00e4\\n\"}", FG_SSE_WHOLE, "a\xc3\xa4\n");
  id_is("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"call_1\"}]}}]}\n\ndata: {\"id\":17}\n\n", 0, "");
  for (uint32_t n = 78; n < 83; n++) { /* 79 are the most; a part of a longer one is none */
    memcpy(text, "{\"id\":\"", 7);
    memset(text + 7, 'x', n);
    memcpy(text + 7 + n, "\"}", 3);
    seen o;
    feed(&o, text, (uint32_t)strlen(text), 7, FG_SSE_WHOLE);
    FG_EQ(fg_sse_id(&o.s, &id), FG_OK);
    FG_EQ(id.len, n < 80 ? n : 0);
  }
  FG_EQ(fg_sse_id(NULL, &id), FG_ERR_ARG);
}
#define RUN(o, text) run((o), (text), (uint32_t)sizeof(text) - 1, 0)

static void chat(void) {
  seen o;
  RUN(&o, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
          "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"H\xc3\xa4llo\"},\"finish_reason\":null}]}\n\n"
          "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
          "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4},\"cost\":0.0012}}\n\n"
          "data: [DONE]\n\n");
  FG_EQ(o.a.visible, 5);
  FG_EQ(o.a.finish, FG_FINISH_STOP);
  FG_EQ(o.a.prompt_tokens, 9);
  FG_EQ(o.a.output_tokens, 3);
  FG_EQ(o.a.cached_tokens, 4);
  FG_EQ(o.a.cost_nusd, 1200000);
  FG_EQ(o.a.flags, FG_ANSWER_USAGE_FINAL);
  FG_EQ(o.e.lifecycle, 2);
  FG_EQ(o.saw, FG_SAW_BYTE | FG_SAW_LIFECYCLE | FG_SAW_TOKEN | FG_SAW_USAGE | FG_SAW_TERMINAL);
  RUN(&o, "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\","
          "\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"q\\\":\"}}]}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n");
  FG_EQ(o.e.visible, 0);
  FG_EQ(o.e.reasoning, 2);
  FG_EQ(o.a.tool_call_count, 1);
  FG_EQ(o.e.tool_args_bytes, 5);
  FG_EQ(o.e.terminal, FG_FINISH_LENGTH);
  RUN(&o, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\"}}\n\n");
  FG_EQ(o.e.visible, 2);
  FG_EQ_BYTES(o.e.body.ptr, o.e.body.len, "{\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\"}}");
  FG_CHECK(o.saw & FG_SAW_ERROR);
  RUN(&o, "data: {\"choices\":[{\"delta\":{\"refusal\":\"I can't\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
  FG_EQ(o.e.terminal, FG_FINISH_REFUSAL);
}

/* n > 1: each choice gives its own reason, and the first of them is not the end. */
static void choices(void) {
#define PIECE(i, rest) "data: {\"choices\":[{\"index\":" i "," rest "}]}\n\n"
#define TEXT(i) PIECE(i, "\"delta\":{\"content\":\"x\"},\"finish_reason\":null")
#define STOP(i) PIECE(i, "\"delta\":{},\"finish_reason\":\"stop\"")
  seen o;
  RUN(&o, TEXT("0") TEXT("1") STOP("0") TEXT("1"));
  FG_EQ(o.e.terminal, FG_FINISH_NONE);
  FG_EQ(o.a.finish, FG_FINISH_NONE);
  FG_EQ(o.saw & FG_SAW_TERMINAL, 0);
  RUN(&o, TEXT("0") TEXT("1") STOP("0") STOP("1"));
  FG_EQ(o.e.terminal, FG_FINISH_STOP);
  FG_EQ(o.saw & FG_SAW_TERMINAL, FG_SAW_TERMINAL);
  const char late[] = STOP("1") TEXT("0"); /* in one piece: in several the first looked like the end, until the next came */
  feed(&o, late, sizeof late - 1, sizeof late - 1, 0);
  FG_EQ(o.e.terminal, FG_FINISH_NONE);
  FG_EQ(o.saw & FG_SAW_TERMINAL, 0);
  feed(&o, late, sizeof late - 1, 1, 0);
  FG_EQ(o.e.terminal, FG_FINISH_NONE);
  RUN(&o, TEXT("0") TEXT("1") STOP("0") "data: [DONE]\n\n"); /* the server says that it is all */
  FG_EQ(o.e.terminal, FG_FINISH_STOP);
  RUN(&o, TEXT("0") TEXT("127") STOP("0")); /* more than are told apart one by one */
  FG_EQ(o.e.terminal, FG_FINISH_NONE);
  RUN(&o, TEXT("0") TEXT("127") STOP("0") STOP("127"));
  FG_EQ(o.e.terminal, FG_FINISH_STOP);
  RUN(&o, "data: {\"choices\":[{\"finish_reason\":\"stop\",\"index\":0},{\"delta\":{\"content\":\"x\"},\"index\":1}]}\n\n"); /* both in one event */
  FG_EQ(o.e.terminal, FG_FINISH_NONE);
  RUN(&o, "data: {\"candidates\":[{\"index\":0,\"finishReason\":\"STOP\"},{\"index\":1,\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\n\n");
  FG_EQ(o.e.terminal, FG_FINISH_NONE);
  RUN(&o, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
          "data: {\"choices\":[{\"delta\":{},\"finish_reason\":null}]}\n\n"); /* no index is one choice, and what ended stays so */
  FG_EQ(o.e.terminal, FG_FINISH_STOP);
}

static void responses(void) {
  seen o;
  RUN(&o, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"status\":\"in_progress\"}}\n\n"
          "event: response.reasoning_summary_text.delta\ndata: {\"delta\":\"think\",\"type\":\"response.reasoning_summary_text.delta\"}\n\n"
          "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n"
          "event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"text\":\"Hi\"}\n\n"
          "event: response.function_call_arguments.delta\ndata: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{}\"}\n\n"
          "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"message\","
          "\"content\":[{\"type\":\"output_text\",\"text\":\"Hi\"}]}],\"usage\":{\"input_tokens\":5,\"output_tokens\":7}}}\n\n");
  FG_EQ(o.a.visible, 2);
  FG_EQ(o.e.reasoning, 5);
  FG_EQ(o.e.tool_args_bytes, 2);
  FG_EQ(o.a.finish, FG_FINISH_STOP);
  FG_EQ(o.a.prompt_tokens, 5);
  FG_EQ(o.a.output_tokens, 7);
  RUN(&o, "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\","
          "\"message\":\"x\"}}}\n\n");
  FG_CHECK(o.saw & FG_SAW_ERROR);
  FG_EQ(o.e.terminal, FG_FINISH_ERROR);
  RUN(&o, "data: {\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"content_filter\"}}}\n\n");
  FG_EQ(o.e.terminal, FG_FINISH_CONTENT_FILTER);
  RUN(&o, "{\"object\":\"response\",\"status\":\"incomplete\",\"error\":null,\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"output\":[{\"type\":"
          "\"reasoning\",\"summary\":[{\"text\":\"abc\"}]},{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{\\\"a\"}]}");
  FG_EQ(o.e.terminal, FG_FINISH_LENGTH);
  FG_EQ(o.e.reasoning, 3);
  FG_EQ(o.a.tool_call_count, 1);
  FG_EQ(o.e.tool_args_bytes, 3);
}

static void messages(void) {
  seen o;
  RUN(&o, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":100,"
          "\"output_tokens\":1}}}\n\n"
          "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
          "event: ping\ndata: {\"type\": \"ping\"}\n\n"
          "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Sure\"}}\n\n"
          "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\","
          "\"input\":{}}}\n\n"
          "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\"}}\n\n"
          "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"output_tokens\":15}}\n\n"
          "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
  FG_EQ(o.a.visible, 4);
  FG_EQ(o.a.finish, FG_FINISH_LENGTH);
  FG_EQ(o.a.tool_call_count, 1);
  FG_EQ(o.a.prompt_tokens, 125);
  FG_EQ(o.a.cached_tokens, 100);
  FG_EQ(o.a.output_tokens, 15);
  FG_EQ(o.e.tool_args_bytes, 3);
  RUN(&o, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n");
  FG_CHECK(o.saw & FG_SAW_ERROR);
  FG_EQ(o.e.visible, 0);
  RUN(&o, "{\"type\":\"message\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\"},{\"type\":\"text\",\"text\":\"Yes\"},{\"type\":\"tool_use\",\"name\":\"f\","
          "\"input\":{\"error\":{\"text\":\"no\"}}}],\"stop_reason\":\"tool_use\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}");
  FG_EQ(o.a.visible, 3);
  FG_EQ(o.e.reasoning, 2);
  FG_EQ(o.a.tool_call_count, 1);
  FG_CHECK((o.saw & FG_SAW_ERROR) == 0);
  FG_EQ(o.a.finish, FG_FINISH_TOOL_CALLS);
}

static void gemini(void) {
  seen o;
  RUN(&o, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"It was\"}],\"role\":\"model\"},\"index\":0}]}\r\n\r\n"
          "data: {\"candidates\":[{\"content\":{\"parts\":[{\"thought\":true,\"text\":\"why\"},{\"functionCall\":{\"name\":\"f\",\"args\":{\"error\":\"x\"}}}]},"
          "\"finishReason\":\"MAX_TOKENS\"}],\"usageMetadata\":{\"promptTokenCount\":20,\"candidatesTokenCount\":4,\"thoughtsTokenCount\":2}}\r\n\r\n");
  FG_EQ(o.a.visible, 6);
  FG_EQ(o.e.reasoning, 3);
  FG_EQ(o.a.finish, FG_FINISH_LENGTH);
  FG_EQ(o.a.output_tokens, 6);
  FG_EQ(o.a.tool_call_count, 1);
  FG_CHECK((o.saw & FG_SAW_ERROR) == 0);
  RUN(&o, "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"A\"}]}}]}\n,\n{\"error\":{\"code\":503,\"message\":\"The model is overloaded.\",\"status\":"
          "\"UNAVAILABLE\"}}\n]");
  FG_EQ(o.a.visible, 1);
  FG_EQ_BYTES(o.e.body.ptr, o.e.body.len, "{\"error\":{\"code\":503,\"message\":\"The model is overloaded.\",\"status\":\"UNAVAILABLE\"}}");
  RUN(&o, "{\"promptFeedback\":{\"blockReason\":\"PROHIBITED_CONTENT\"},\"usageMetadata\":{\"promptTokenCount\":5}}");
  FG_EQ(o.e.terminal, FG_FINISH_CONTENT_FILTER);
}

static void others(void) {
  seen o;
  RUN(&o, "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"done\":false}\n{\"error\":\"unexpected EOF\"}\n");
  FG_EQ(o.e.visible, 2);
  FG_EQ_BYTES(o.e.body.ptr, o.e.body.len, "{\"error\":\"unexpected EOF\"}");
  RUN(&o, "{\"message\":{\"content\":\"Hi\"},\"done\":false}\n{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":3,"
          "\"eval_count\":1}\n");
  FG_EQ(o.a.finish, FG_FINISH_STOP);
  FG_EQ(o.a.output_tokens, 1);
  RUN(&o, "{\"output\":{\"message\":{\"role\":\"assistant\",\"content\":[{\"text\":\"Hi\"}]}},\"stopReason\":\"guardrail_intervened\",\"usage\":{\"inputTokens\":1,"
          "\"outputTokens\":2}}");
  FG_EQ(o.a.visible, 2);
  FG_EQ(o.a.finish, FG_FINISH_CONTENT_FILTER);
  RUN(&o, "{\"validationException\":{\"message\":\"Input is too long\"}}");
  FG_CHECK(o.saw & FG_SAW_ERROR);
  RUN(&o, "data: {\"code\":\"Throttling\",\"message\":\"Requests rate limit exceeded\",\"request_id\":\"x\"}\n\n");
  FG_CHECK(o.saw & FG_SAW_ERROR);
  RUN(&o, "{\"base_resp\":{\"status_code\":0},\"choices\":[{\"message\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}");
  FG_CHECK((o.saw & FG_SAW_ERROR) == 0);
  FG_EQ(o.a.visible, 2);
}

static void framing(void) {
  seen o;
  RUN(&o, "\xef\xbb\xbf" ": ping\r\rid: 1\rretry: 10\rdata:{\"choices\":[{\"delta\":\rdata: {\"content\":\"x\"}}]}\r\rdata:[DONE]\r\r");
  FG_EQ(o.a.visible, 1);
  FG_CHECK(o.saw & FG_SAW_TERMINAL);
  FG_CHECK((o.saw & FG_SAW_MALFORMED) == 0);
  RUN(&o, "data\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}");
  FG_EQ(o.a.visible, 1); /* a whole event counts without its blank line */
  RUN(&o, "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"con");
  FG_EQ(o.a.visible, 5);
  FG_EQ(o.e.terminal, FG_FINISH_NONE);
  RUN(&o, "data: nonsense\n\ndata: [DONE]\n\n");
  FG_CHECK(o.saw & FG_SAW_MALFORMED);
  FG_EQ(o.e.terminal, FG_FINISH_OTHER);
  RUN(&o, ": keep-alive\n\n: keep-alive\n\n");
  FG_EQ(o.e.lifecycle, 2);
  FG_EQ(o.e.terminal, FG_FINISH_NONE);
  RUN(&o, "<html><body>502</body></html>");
  FG_CHECK(o.saw & FG_SAW_MALFORMED);
  RUN(&o, "");
  FG_EQ(o.saw, 0);
  FG_EQ(fg_sse_feed(NULL, "x", 1), FG_ERR_ARG);
  FG_EQ(fg_sse_answer(&o.s, NULL), FG_ERR_ARG);
  fg_answer small = {.size = 4};
  FG_EQ(fg_sse_answer(&o.s, &small), FG_ERR_ABI);
}

static void long_event(void) {
  static char text[200000];
  seen o;
  uint32_t n = (uint32_t)snprintf(text, sizeof text, "data: {\"choices\":[{\"delta\":{\"content\":\"");
  memset(text + n, 'x', 100000);
  n += 100000;
  n += (uint32_t)snprintf(text + n, sizeof text - n, "\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"y\"},\"finish_reason\":\"stop\"}]}\n\n");
  feed(&o, text, n, 4096, 0);
  FG_CHECK(o.saw & FG_SAW_MALFORMED);
  FG_EQ(o.e.terminal, FG_FINISH_STOP);
  seen p;
  feed(&p, text, n, 1, 0);
  FG_EQ(p.e.visible, o.e.visible);
  /* A whole document has no such limit. */
  n = (uint32_t)snprintf(text, sizeof text, "{\"choices\":[{\"message\":{\"content\":\"");
  memset(text + n, 'x', 100000);
  n += 100000;
  n += (uint32_t)snprintf(text + n, sizeof text - n, "\"},\"finish_reason\":\"stop\"}]}");
  feed(&o, text, n, 1000, FG_SSE_WHOLE);
  FG_EQ(o.a.visible, 100000);
  FG_EQ(o.a.finish, FG_FINISH_STOP);
}

int main(void) {
  chat();
  choices();
  responses();
  messages();
  gemini();
  others();
  framing();
  ids();
  long_event();
  return fg_test_end("sse");
}
