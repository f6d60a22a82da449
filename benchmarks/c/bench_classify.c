/* fg_classify on error bodies of about 300 bytes; DESIGN 15 allows 3 us. Prints the median of many rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "fg_base.h"

enum { ROUNDS = 301, CALLS = 200 };

static int order(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void run(const char *name, const char *provider, int32_t status, const char *body) {
  static int64_t took[ROUNDS];
  fg_header h[] = {{fg_str_of("content-type"), fg_str_of("application/json")},
                   {fg_str_of("date"), fg_str_of("Tue, 06 Oct 2026 10:00:00 GMT")},
                   {fg_str_of("x-request-id"), fg_str_of("req_0123456789abcdef")},
                   {fg_str_of("x-ratelimit-remaining-requests"), fg_str_of("0")},
                   {fg_str_of("x-ratelimit-reset-requests"), fg_str_of("20s")}};
  fg_evidence e;
  fg_failure f;
  memset(&e, 0, sizeof e);
  memset(&f, 0, sizeof f);
  e.size = sizeof e;
  f.size = sizeof f;
  e.phase = FG_PHASE_RESPONSE;
  e.status = status;
  e.provider = fg_str_of(provider);
  e.api = fg_str_of("chat");
  e.body = fg_str_of(body);
  e.headers = h;
  e.header_count = FG_ARRAY_LEN(h);
  for (int r = 0; r < ROUNDS; r++) {
    int64_t t = now_ns();
    for (int i = 0; i < CALLS; i++) {
      if (fg_classify(NULL, &e, &f) != FG_OK) {
        exit(1);
      }
    }
    took[r] = (now_ns() - t) / CALLS;
  }
  qsort(took, ROUNDS, sizeof took[0], order);
  printf("classify %-28s %4u bytes  median %5lld ns  p99 %5lld ns  -> %s\n", name, e.body.len, (long long)took[ROUNDS / 2],
         (long long)took[ROUNDS * 99 / 100], fg_name(FG_TABLE_KIND, f.kind));
}

int main(void) {
  run("429 rate, text with a wait", "openai", 429,
      "{\"error\":{\"message\":\"Rate limit reached for gpt-4o-mini in organization org-example on requests per min (RPM): Limit 3, Used 3, "
      "Requested 1. Please try again in 20s. Visit https://platform.openai.com/account/rate-limits to learn more.\",\"type\":\"requests\","
      "\"param\":null,\"code\":\"rate_limit_exceeded\"}}");
  run("400 context", "openai", 400,
      "{\"error\":{\"message\":\"This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please "
      "reduce the length of the messages. See the documentation for ways to shorten a conversation before it is sent.\",\"type\":"
      "\"invalid_request_error\",\"param\":\"messages\",\"code\":\"context_length_exceeded\"}}");
  run("400 no rule matches", "someone", 400,
      "{\"error\":{\"message\":\"Additional properties are not allowed here: the member 'frobnicate' was unexpected at path "
      "request.options.inner and the value was left as it is; consult the reference for what may stand at this place and send it anew\","
      "\"type\":\"invalid_request_error\",\"param\":\"options\",\"code\":null}}");
  run("500 server error", "openai", 500,
      "{\"error\":{\"message\":\"The server had an error while processing your request. Sorry about that! You can retry your request, or "
      "contact us through our help center if the error persists. Please include the request ID req_0123456789abcdef0123456789abcdef in "
      "your message.\",\"type\":\"server_error\",\"param\":null,\"code\":null}}");
  run("502 HTML", "nginx", 502,
      "<html>\n<head><title>502 Bad Gateway</title></head>\n<body>\n<center><h1>502 Bad Gateway</h1></center>\n<hr><center>nginx/1.25.3</center>\n"
      "</body>\n</html>\n");
  run("empty body", "openai", 503, "");
  return 0;
}
