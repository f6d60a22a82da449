/* fg_classify beyond the labelled cases: argument checks, our clocks, progress, local origin, texts of clients' exceptions, phases,
 * x-should-retry, a card's rules, hostile bodies. */
#include "fg_policy.h"
#include "fg_test.h"

typedef struct given {
  uint32_t phase, flags, timeout, visible, lifecycle, terminal;
  int32_t status, code;
  const char *provider, *lib, *kind, *message, *body, *header, *value;
} given;

static fg_failure with(const fg_policy *p, given g) {
  fg_evidence e;
  fg_failure f;
  fg_header h;
  memset(&e, 0, sizeof e);
  memset(&f, 0, sizeof f);
  memset(&h, 0, sizeof h);
  e.size = sizeof e;
  f.size = sizeof f;
  e.phase = g.phase;
  e.flags = g.flags;
  e.timeout = g.timeout;
  e.visible = g.visible;
  e.lifecycle = g.lifecycle;
  e.terminal = g.terminal;
  e.status = g.status;
  e.code = g.code;
  const char *const text[] = {g.provider, g.lib, g.kind, g.message, g.body};
  fg_str *const to[] = {&e.provider, &e.lib, &e.kind, &e.message, &e.body};
  for (int i = 0; i < 5; i++) {
    if (text[i] != NULL) {
      *to[i] = fg_str_of(text[i]);
    }
  }
  if (g.header != NULL) {
    h.name = fg_str_of(g.header);
    h.value = fg_str_of(g.value);
    e.headers = &h;
    e.header_count = 1;
  }
  FG_EQ(fg_classify(p, &e, &f), FG_OK);
  return f;
}
#define F(...) with(NULL, (given){__VA_ARGS__})

static void arguments(void) {
  fg_evidence e = {.size = sizeof e};
  fg_failure f = {.size = sizeof f};
  FG_EQ(fg_classify(NULL, NULL, &f), FG_ERR_ARG);
  FG_EQ(fg_classify(NULL, &e, NULL), FG_ERR_ARG);
  e.size = 8;
  FG_EQ(fg_classify(NULL, &e, &f), FG_ERR_ABI);
  e.size = sizeof e;
  f.size = 4;
  FG_EQ(fg_classify(NULL, &e, &f), FG_ERR_ABI);
  /* A host of an older version: what it does not have is unknown, and nothing is written past its struct. */
  fg_failure old;
  memset(&old, 0x55, sizeof old);
  old.size = (uint32_t)offsetof(fg_failure, rule);
  e.size = (uint32_t)offsetof(fg_evidence, elapsed_ms);
  e.status = 429;
  FG_EQ(fg_classify(NULL, &e, &old), FG_OK);
  FG_EQ(old.owner, FG_OWNER_RATE);
  FG_EQ(old.rule, 0x55555555);
  FG_EQ_STR(fg_rule_why(NULL, 0), "");
  FG_EQ_STR(fg_rule_why(NULL, 7), "");
  FG_EQ_STR(fg_rule_why(NULL, UINT32_MAX), "");
}

static void ours(void) {
  fg_failure f = F(.flags = FG_EV_CLIENT_GONE, .phase = FG_PHASE_STREAM, .visible = 4);
  FG_EQ(f.owner, FG_OWNER_LOCAL);
  FG_EQ(f.kind, FG_KIND_CLIENT_GONE);
  FG_EQ(f.commit, FG_COMMIT_PARTIAL);
  f = F(.flags = FG_EV_CLIENT_GONE, .phase = FG_PHASE_CONNECT);
  FG_EQ(f.commit, FG_COMMIT_NONE);
  f = F(.flags = FG_EV_LOCAL, .status = 503, .phase = FG_PHASE_CONNECT);
  FG_EQ(f.kind, FG_KIND_ADMISSION_REFUSED);
  FG_EQ(f.owner, FG_OWNER_LOCAL);
  f = F(.flags = FG_EV_LOCAL, .kind = "PoolTimeout", .lib = "httpx");
  FG_EQ(f.kind, FG_KIND_POOL_FULL);
  FG_CHECK(f.flags & FG_FAIL_LOCAL_FAULT);
  f = F(.timeout = FG_KIND_FIRST_TOKEN_TIMEOUT, .phase = FG_PHASE_READ);
  FG_EQ(f.klass, FG_CLASS_SILENT);
  FG_CHECK(f.flags & FG_FAIL_SILENT);
  f = F(.timeout = FG_KIND_IDLE_TIMEOUT, .phase = FG_PHASE_STREAM, .status = 200, .visible = 9);
  FG_EQ(f.klass, FG_CLASS_CUT);
  FG_EQ(f.commit, FG_COMMIT_PARTIAL);
  f = F(.timeout = FG_KIND_TOTAL_TIMEOUT, .phase = FG_PHASE_READ);
  FG_EQ(f.klass, FG_CLASS_SILENT);
  f = F(.timeout = FG_KIND_CONNECT_TIMEOUT, .phase = FG_PHASE_CONNECT);
  FG_EQ(f.klass, FG_CLASS_CONNECT);
  FG_CHECK(f.flags & FG_FAIL_NEVER_SENT);
  f = F(.timeout = FG_KIND_TOTAL_TIMEOUT, .phase = FG_PHASE_TLS);
  FG_EQ(f.commit, FG_COMMIT_NONE);
  f = F(.phase = FG_PHASE_STREAM, .flags = FG_EV_PROGRESS, .status = 200, .visible = 10, .terminal = FG_FINISH_CONTENT_FILTER);
  FG_EQ(f.owner, FG_OWNER_POLICY);
  FG_EQ(f.billed, FG_BILLED_YES);
}

static void phases(void) {
  fg_failure f = F(.kind = "closed", .message = "closed");
  FG_EQ(f.owner, FG_OWNER_UNKNOWN);
  FG_EQ(f.commit, FG_COMMIT_UNKNOWN);
  f = F(.kind = "ReadTimeout"); /* names its phase itself */
  FG_EQ(f.owner, FG_OWNER_TRANSIENT);
  FG_EQ(f.kind, FG_KIND_READ_TIMEOUT);
  f = F(.kind = "ConnectTimeout");
  FG_EQ(f.kind, FG_KIND_CONNECT_TIMEOUT);
  FG_EQ(f.commit, FG_COMMIT_NONE);
  f = F(.kind = "something new", .phase = FG_PHASE_CONNECT);
  FG_EQ(f.kind, FG_KIND_CONNECT_FAILED);
  f = F(.kind = "something new", .phase = FG_PHASE_TLS);
  FG_EQ(f.kind, FG_KIND_TLS_FAILED);
  f = F(.kind = "something new", .phase = FG_PHASE_SEND);
  FG_EQ(f.kind, FG_KIND_SEND_FAILED);
  f = F(.kind = "something new", .phase = FG_PHASE_BODY, .status = 200);
  FG_EQ(f.klass, FG_CLASS_CUT);
  f = F(.kind = "timeout", .phase = FG_PHASE_STREAM, .status = 200, .visible = 3);
  FG_EQ(f.kind, FG_KIND_IDLE_TIMEOUT);
  FG_EQ(f.commit, FG_COMMIT_PARTIAL);
  f = F(.lib = "libcurl", .code = 7, .phase = FG_PHASE_CONNECT);
  FG_EQ(f.kind, FG_KIND_CONNECT_FAILED);
  f = F(.lib = "pycurl", .code = 60, .phase = FG_PHASE_TLS);
  FG_EQ(f.kind, FG_KIND_CERTIFICATE);
  f = F(.lib = "errno", .code = 28, .phase = FG_PHASE_READ); /* curl's numbers mean nothing elsewhere */
  FG_EQ(f.kind, FG_KIND_RESET);
}

/* Exceptions of clients that carry the answer only as a text. */
static void told(void) {
  fg_failure f = F(.lib = "openai", .kind = "RateLimitError", .phase = FG_PHASE_RESPONSE,
                   .message = "Error code: 429 - {'error': {'message': \"You exceeded your current quota, it's over\", 'type': 'insufficient_quota', "
                              "'param': None, 'code': 'insufficient_quota'}}");
  FG_EQ(f.owner, FG_OWNER_QUOTA);
  f = F(.lib = "openai", .kind = "RateLimitError", .message = "Error code: 429 - {'error': {'message': 'Rate limit reached. Please try again in 7s.', 'code': "
                                                              "'rate_limit_exceeded'}}");
  FG_EQ(f.owner, FG_OWNER_RATE);
  FG_EQ(f.retry_after_ms, 7000);
  f = F(.lib = "requests", .kind = "HTTPError", .message = "503 Server Error: Service Unavailable for url: https://api.example.com/v1");
  FG_EQ(f.kind, FG_KIND_UNAVAILABLE);
  f = F(.lib = "httpx", .kind = "HTTPStatusError", .message = "Client error '401 Unauthorized' for url 'https://api.example.com'");
  FG_EQ(f.owner, FG_OWNER_AUTH);
  f = F(.lib = "axios", .kind = "ERR_BAD_RESPONSE", .message = "Request failed with status code 502");
  FG_EQ(f.kind, FG_KIND_BAD_GATEWAY);
  f = F(.lib = "botocore", .kind = "ClientError", .phase = FG_PHASE_RESPONSE,
        .message = "An error occurred (ThrottlingException) when calling the InvokeModel operation: Too many requests");
  FG_EQ(f.owner, FG_OWNER_RATE);
  f = F(.lib = "google", .kind = "ResourceExhausted", .phase = FG_PHASE_RESPONSE, .message = "429 Resource has been exhausted (e.g. check quota).");
  FG_EQ(f.owner, FG_OWNER_RATE);
  f = F(.lib = "httpx", .kind = "ProxyError", .phase = FG_PHASE_CONNECT, .message = "503 Service Unavailable");
  FG_EQ(f.kind, FG_KIND_PROXY_FAILED);
  f = F(.lib = "anthropic", .kind = "APIStatusError", .phase = FG_PHASE_RESPONSE, .message = "{'type': 'error', 'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}");
  FG_CHECK(f.flags & FG_FAIL_OVERLOAD);
}

static void advice(void) {
  fg_failure f = F(.status = 418, .header = "X-Should-Retry", .value = "true");
  FG_EQ(f.owner, FG_OWNER_TRANSIENT);
  FG_CHECK(f.flags & FG_FAIL_SHOULD_RETRY);
  FG_CHECK(!(f.flags & FG_FAIL_TRIPS_BREAKER));
  f = F(.status = 400, .header = "x-should-retry", .value = "true", .body = "{\"error\":{\"code\":\"invalid_value\",\"message\":\"x\"}}");
  FG_EQ(f.owner, FG_OWNER_REQUEST); /* a known code */
  f = F(.status = 500, .header = "x-should-retry", .value = "false");
  FG_CHECK(f.flags & FG_FAIL_MUST_NOT_RETRY);
  f = F(.status = 429, .header = "retry-after", .value = "86400", .visible = 5); /* a wait of a day is a quota, and the user still saw five */
  FG_EQ(f.owner, FG_OWNER_QUOTA);
  FG_EQ(f.period, FG_PERIOD_DAY);
  FG_EQ(f.commit, FG_COMMIT_PARTIAL);
}

static void never_fits(void) {
  fg_failure f = F(.status = 429, .body = "{\"error\":{\"message\":\"Limit 30,000, Requested 342,389\",\"code\":\"rate_limit_exceeded\"}}");
  FG_EQ(f.kind, FG_KIND_NEVER_FITS_LIMIT);
  FG_EQ(f.owner, FG_OWNER_REQUEST);
  f = F(.status = 429, .body = "{\"error\":{\"message\":\"Limit 30000, Used 29000, Requested 5000\",\"code\":\"rate_limit_exceeded\"}}");
  FG_EQ(f.owner, FG_OWNER_RATE);
}

/* What a message quotes of the request decides nothing. */
static void echoes(void) {
  fg_failure f = F(.status = 400, .body = "{\"error\":{\"message\":\"Invalid type for 'messages[0].content': got 'is this sensitive content? insufficient balance, "
                                          "rate limit, try again in 5s'\",\"code\":\"400\"}}");
  FG_EQ(f.owner, FG_OWNER_REQUEST);
  FG_EQ(f.kind, FG_KIND_BAD_REQUEST);
  FG_CHECK(!(f.flags & FG_FAIL_HAS_RETRY_AFTER));
  f = F(.status = 422, .body = "{\"detail\":\"Input should be a valid list [type=list_type, input_value='it\u2019s overloaded, insufficient_quota', input_type=str]\"}");
  FG_EQ(f.kind, FG_KIND_BAD_REQUEST);
  f = F(.status = 422, .body = "{\"detail\":[{\"msg\":\"Field required\",\"input\":{\"error\":{\"code\":\"insufficient_quota\",\"message\":\"content exists risk\"}}}]}");
  FG_EQ(f.kind, FG_KIND_BAD_REQUEST);
  f = F(.status = 404, .body = "<html><head><title>404 Not Found</title></head></html>");
  FG_EQ(f.kind, FG_KIND_ENDPOINT_NOT_FOUND);
}

static void answers(void) {
  fg_failure f = F(.status = 200, .phase = FG_PHASE_BODY, .body = "");
  FG_EQ(f.kind, FG_KIND_EMPTY_ANSWER);
  f = F(.status = 200, .phase = FG_PHASE_BODY, .body = "{}");
  FG_EQ(f.klass, FG_CLASS_ANSWER);
  f = F(.status = 200, .phase = FG_PHASE_BODY, .body = "{\"choices\":[{\"message\":{\"content\":\"Hel");
  FG_EQ(f.kind, FG_KIND_MALFORMED);
  f = F(.status = 200, .phase = FG_PHASE_STREAM, .body = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n");
  FG_EQ(f.kind, FG_KIND_STREAM_CUT);
  FG_EQ(f.commit, FG_COMMIT_PARTIAL);
  f = F(.status = 200, .phase = FG_PHASE_STREAM, .body = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"insufficient_system_resource\"}]}\n\n");
  FG_CHECK(f.flags & FG_FAIL_OVERLOAD);
  f = F(.status = 429, .phase = FG_PHASE_RESPONSE, .body = "event: error\ndata: {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"x\"}}\n\n");
  FG_EQ(f.owner, FG_OWNER_QUOTA);
}

/* A card's block with two rules. */
static void card_rules(void) {
  static struct { fg_policy p; fg_rule rule[2]; char pool[128]; } block;
  memset(&block, 0, sizeof block);
  block.p.rule_count = 2;
  block.p.rules_off = (uint32_t)((const char *)block.rule - (const char *)&block);
  uint32_t at = (uint32_t)(block.pool - (const char *)&block);
  memcpy(block.pool, "seat&taken\0the seats are taken\0x-gw\0busy", 41);
  block.rule[0].status[0] = 4;
  block.rule[0].message = (fg_rtext){at, 10};
  block.rule[0].set_owner = 1 + FG_OWNER_RATE;
  block.rule[0].has_retry_after = 1;
  block.rule[0].retry_after_ms = 1234;
  block.rule[0].why = (fg_rtext){at + 11, 19};
  block.rule[1].header[0] = (fg_rtext){at + 31, 4};
  block.rule[1].header_value[0] = (fg_rtext){at + 36, 4};
  block.rule[1].set_kind = 1 + FG_KIND_OVERLOADED;
  block.rule[1].set_should_retry = 1;
  fg_failure f = with(&block.p, (given){.status = 418, .body = "{\"error\":{\"message\":\"The SEAT is Taken\"}}"});
  FG_EQ(f.owner, FG_OWNER_RATE);
  FG_EQ(f.klass, FG_CLASS_RATE);
  FG_EQ(f.retry_after_ms, 1234);
  FG_EQ(f.rule, 1);
  FG_EQ_STR(fg_rule_why(&block.p, f.rule), "the seats are taken");
  f = with(&block.p, (given){.status = 400, .header = "X-GW", .value = " busy "});
  FG_EQ(f.kind, FG_KIND_OVERLOADED);
  FG_EQ(f.rule, 2);
  FG_CHECK(f.flags & FG_FAIL_MUST_NOT_RETRY);
  FG_EQ_STR(fg_rule_why(&block.p, 2), "");
  /* What the user saw and how long the server asks to wait hold whatever a rule says. */
  f = with(&block.p, (given){.status = 400, .header = "X-GW", .value = "busy", .visible = 3, .body = "{\"error\":{\"message\":\"Try again in 2s.\"}}"});
  FG_EQ(f.commit, FG_COMMIT_PARTIAL);
  FG_EQ(f.retry_after_ms, 2000);
  FG_CHECK(f.flags & FG_FAIL_OVERLOAD);
  f = with(&block.p, (given){.status = 429, .header = "X-GW", .value = "idle"});
  FG_CHECK(f.rule > 0x10000);
  FG_CHECK(fg_rule_why(&block.p, f.rule)[0] != 0);
}

static void hostile(void) {
  static char body[70000];
  memset(body, '[', sizeof body - 1);
  FG_EQ(F(.status = 400, .body = body).owner, FG_OWNER_REQUEST);
  memset(body, '"', sizeof body - 1);
  FG_EQ(F(.status = 429, .body = body).owner, FG_OWNER_RATE);
  for (uint32_t i = 0; i + 2 < sizeof body; i += 2) {
    memcpy(body + i, "{'", 2);
  }
  FG_EQ(F(.status = 500, .body = body).owner, FG_OWNER_TRANSIENT);
  memset(body, 'a', sizeof body - 1);
  FG_EQ(F(.status = 403, .body = body, .message = body, .kind = body).owner, FG_OWNER_AUTH);
  FG_EQ(F(.status = 400, .body = "{\"error\":{\"message\":\"\xff\xfe\xc3\"}}").owner, FG_OWNER_REQUEST);
  FG_EQ(F(.status = 429, .body = "{\"error\":{\"code\":\"insufficient_quota\",\"mess").owner, FG_OWNER_QUOTA);
}

int main(void) {
  arguments();
  ours();
  phases();
  told();
  advice();
  never_fits();
  echoes();
  answers();
  card_rules();
  hostile();
  return fg_test_end("classify");
}
