/* fg_curl against the server of curl_server.h: what it reports, what is decided, what the server saw. */
#include "fg_curl.h"
#include "fg_host.h"
#include "fg_test.h"

#include <poll.h>
#include <signal.h>

#include "curl_server.h"

#define PROVIDES "\"provides\":{\"input\":{\"context_tokens\":100000},\"output\":{\"max_tokens\":20000,\"max_tokens_whole\":20000},\"operations\":{\"streaming\":true}}"
static const char card_text[] =
    "{\"version\":1,\"seed\":5,\"backoff\":{\"base_ms\":20,\"rate_base_ms\":20,\"cap_ms\":200},"
    "\"breaker\":{\"consecutive\":1000,\"min_calls\":1000,\"stall\":false},"
    "\"retry_bucket\":{\"credit_ppm\":100000,\"cap\":1000,\"start\":1000,\"trickle_per_minute\":1},"
    "\"routes\":{"
    "\"main\":{\"provider\":\"openai\",\"model\":\"m-1\",\"account\":\"a\",\"base_url\":\"http://127.0.0.1:%d/main\",\"price\":\"free\"," PROVIDES "},"
    "\"backup\":{\"provider\":\"other\",\"model\":\"m-2\",\"account\":\"b\",\"base_url\":\"http://127.0.0.1:%d/backup\",\"price\":\"free\"," PROVIDES "}},"
    "\"workflows\":{\"w\":{\"kind\":\"interactive\",\"routes\":[\"main\",\"backup\"],"
    "\"budget\":{\"total_attempts\":4,\"per_class\":{\"connect\":1},\"elapsed_ms\":9000,\"extra_tokens\":10000},\"spill\":{\"max_ppm\":1000000},"
    "\"timeouts\":{\"connect_ms\":2000,\"first_token_ms\":1200,\"idle_ms\":900,\"progress_ms\":2000,\"total_ms\":5000},"
    "\"ladder\":[{\"step\":\"cached\",\"max_age_s\":60},{\"step\":\"preset\",\"text\":{\"en\":\"Please try again soon.\",\"de\":\"Bitte bald wieder.\"}}]}},"
    "\"contracts\":[{\"workflow\":\"w\",\"route\":\"backup\",\"fingerprint\":\"%s\",\"approved_by\":\"me\",\"evidence\":{\"fixtures\":\"sha256:0\","
    "\"cases\":10,\"passed\":10,\"score_ppm\":990000,\"primary_score_ppm\":990000,\"measured_at\":\"2020-01-01T00:00:00Z\","
    "\"expires_at\":\"2100-01-01T00:00:00Z\"}}]}";

typedef struct client {
  fg_policy *policy;
  fg_host_map *map;
  fg_engine *engine;
  fg_curl *curl;
} client;

/* What a run did, seen by its hooks. */
typedef struct seen {
  char url[128];
  uint32_t action[16], route[16], kind[16], wait_ms[16], count;
  char shown[512];
  uint32_t clears, saw;
  int refuse_build, has_cache, cancel_on_token;
  fg_curl *curl;
} seen;

static fg_policy *load_card(int main_port) {
  char text[8192];
  fg_mem mem = fg_host_mem();
  char fingerprint[80] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
  fg_policy *p = NULL;
  for (int round = 0; round < 2; round++) { /* the second time with the fingerprint the first one asks for */
    fg_error err;
    memset(&err, 0, sizeof err);
    err.size = (uint32_t)sizeof err;
    (void)snprintf(text, sizeof text, card_text, main_port, port, fingerprint);
    fg_policy_free(p, &mem);
    p = NULL;
    if (fg_card_load(text, strlen(text), &mem, &p, &err) != FG_OK) {
      printf("card: %s: %s (line %u)\n", err.path, err.message, err.line);
      exit(1);
    }
    uint32_t barred = 0;
    fg_str f = {NULL, 0, 0};
    FG_EQ(fg_policy_contract(p, 1, fg_policy_find(p, FG_FIND_ROUTE, "backup", 6), &barred, &f), FG_OK);
    (void)snprintf(fingerprint, sizeof fingerprint, "%.*s", (int)f.len, f.ptr);
  }
  return p;
}

static client client_new(int main_port) {
  client c;
  memset(&c, 0, sizeof c);
  int64_t now = fg_host_now_ms();
  c.policy = load_card(main_port);
  FG_EQ(fg_host_map_open(NULL, NULL, 0, now, &c.map, NULL), FG_OK);
  uint64_t bytes = fg_engine_bytes(c.policy);
  void *mem = aligned_alloc(64, (bytes + 63) / 64 * 64);
  FG_EQ(fg_engine_init(mem, bytes, c.policy, fg_host_map_region(c.map), (uint32_t)fg_host_map_slot(c.map, now), 7, now, &c.engine, NULL), FG_OK);
  FG_EQ(fg_engine_clock(c.engine, fg_host_unix_ms(), now), FG_OK);
  c.curl = fg_curl_new();
  return c;
}

static uint32_t in_flight(const client *c) {
  uint32_t n = 0;
  for (uint32_t route = 1; route <= 2; route++) {
    fg_route_view v;
    memset(&v, 0, sizeof v);
    v.size = (uint32_t)sizeof v;
    FG_EQ(fg_engine_route(c->engine, route, fg_host_now_ms(), &v), FG_OK);
    n += v.in_flight + v.retries;
  }
  return n;
}

static void client_free(client *c) {
  fg_mem mem = fg_host_mem();
  FG_EQ(in_flight(c), 0);
  fg_curl_free(c->curl);
  free(c->engine);
  fg_host_map_close(c->map);
  fg_policy_free(c->policy, &mem);
}

static int32_t build(void *ctx, const fg_decision *d, const fg_route_info *route, fg_curl_request *out) {
  seen *s = ctx;
  static const char *const headers[] = {"Authorization: Bearer none", "X-Request-Id: 1", NULL};
  (void)d;
  if (s->refuse_build) {
    return 1;
  }
  (void)snprintf(s->url, sizeof s->url, "%.*s", (int)route->base_url.len, route->base_url.ptr);
  out->url = s->url;
  out->headers = headers;
  out->body = "{\"model\":\"m\",\"stream\":true}";
  out->body_len = strlen(out->body);
  return 0;
}

static void on_chunk(void *ctx, uint32_t saw, const char *bytes, uint32_t len) {
  seen *s = ctx;
  (void)bytes;
  (void)len;
  s->saw |= saw;
  if ((saw & FG_SAW_TOKEN) != 0 && s->cancel_on_token) {
    fg_curl_cancel(s->curl);
  }
}

static int32_t on_cached(void *ctx, uint32_t max_age_s, fg_str *out) {
  seen *s = ctx;
  FG_EQ(max_age_s, 60);
  out->ptr = "stored";
  out->len = 6;
  return s->has_cache;
}

static void on_decided(void *ctx, const fg_decision *d, int64_t now_ms) {
  seen *s = ctx;
  FG_CHECK(now_ms > 0);
  if (s->count < 16) {
    s->action[s->count] = d->action;
    s->route[s->count] = d->route;
    s->kind[s->count] = d->kind;
    if (getenv("FG_VERBOSE") != NULL) {
      printf("  %s route %u kind %s reason %s detail %s wait %u wake %u\n", fg_name(FG_TABLE_ACTION, d->action), d->route,
             fg_name(FG_TABLE_KIND, d->kind), fg_name(FG_TABLE_REASON, d->reason), fg_name(FG_TABLE_REASON, d->detail), d->wait_ms, d->wake_ms);
      for (uint32_t i = 0; i < d->rejected_count; i++) {
        printf("    not %u: %s\n", d->rejected[i] & 0xffff, fg_name(FG_TABLE_REASON, d->rejected[i] >> 16));
      }
    }
    s->wait_ms[s->count] = d->wait_ms;
    s->count++;
  }
}

static int happened(const seen *s, uint32_t action, uint32_t kind) {
  for (uint32_t i = 0; i < s->count; i++) {
    if (s->action[i] == action && (kind == 0 || s->kind[i] == kind)) {
      return 1;
    }
  }
  return 0;
}

static void script_set(const char *main_words, const char *backup_words) {
  (void)pthread_mutex_lock(&script_lock);
  (void)snprintf(scripts[0].words, sizeof scripts[0].words, "%s", main_words);
  (void)snprintf(scripts[1].words, sizeof scripts[1].words, "%s", backup_words);
  (void)pthread_mutex_unlock(&script_lock);
  atomic_store(&scripts[0].requests, 0);
  atomic_store(&scripts[1].requests, 0);
}

static fg_curl_result run_with(client *c, seen *s, uint32_t stream) {
  static fg_call call;
  fg_request q;
  memset(&q, 0, sizeof q);
  q.size = (uint32_t)sizeof q;
  q.workflow.ptr = "w";
  q.workflow.len = 1;
  q.prompt_tokens = 9;
  q.max_output_tokens = 50;
  q.stream = stream;
  q.unable = FG_UNABLE_EDIT | FG_UNABLE_RESUME;
  fg_curl_job job;
  memset(&job, 0, sizeof job);
  memset(&call, 0, sizeof call);
  s->curl = c->curl;
  job.engine = c->engine;
  job.policy = c->policy;
  job.call = &call;
  job.request = &q;
  job.ctx = s;
  job.build = build;
  job.chunk = on_chunk;
  job.cached = on_cached;
  job.decided = on_decided;
  fg_curl_result r;
  FG_EQ(fg_curl_run(c->curl, &job, &r), FG_OK);
  FG_EQ(in_flight(c), 0);
  return r;
}

static fg_curl_result run_script(client *c, seen *s, const char *main_words, const char *backup_words) {
  memset(s, 0, sizeof *s);
  script_set(main_words, backup_words);
  return run_with(c, s, FG_STREAM_YES);
}

static int requests(int which) {
  return atomic_load(&scripts[which].requests);
}

static void expect_hello(const fg_curl_result *r) {
  FG_EQ(r->decision.action, FG_ACTION_ACCEPT);
  FG_EQ(r->status, 200);
  FG_CHECK(r->body != NULL && strstr(r->body, "Hello") != NULL && strlen(r->body) == r->body_len && !r->truncated);
  FG_EQ(r->answer.finish, FG_FINISH_STOP);
  FG_EQ(r->answer.prompt_tokens, 9);
  FG_EQ(r->answer.output_tokens, 2);
}

static void test_good(client *c) {
  seen s;
  fg_curl_result r = run_script(c, &s, "good", "good");
  expect_hello(&r);
  FG_EQ(r.sent, 1);
  FG_EQ(requests(0), 1);
  FG_CHECK((s.saw & FG_SAW_TOKEN) != 0 && (s.saw & FG_SAW_TERMINAL) != 0);
  fg_curl_result_free(&r);
  memset(&s, 0, sizeof s);
  script_set("whole", "good");
  r = run_with(c, &s, FG_STREAM_NO);
  expect_hello(&r);
  fg_curl_result_free(&r);
  int64_t start = fg_host_now_ms();
  r = run_script(c, &s, "open-end", "good"); /* the stream is over, whatever the connection does */
  expect_hello(&r);
  FG_CHECK(fg_host_now_ms() - start < 4000);
  fg_curl_result_free(&r);
}

static void test_error_answers(client *c) {
  seen s;
  int64_t start = fg_host_now_ms();
  fg_curl_result r = run_script(c, &s, "429 good", "good");
  expect_hello(&r);
  FG_CHECK(happened(&s, FG_ACTION_RETRY, FG_KIND_RATE_LIMITED));
  FG_CHECK(fg_host_now_ms() - start >= 600);
  FG_EQ(requests(0), 2);
  FG_EQ(requests(1), 0);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "503 good", "good");
  expect_hello(&r);
  FG_CHECK(happened(&s, FG_ACTION_RETRY, FG_KIND_UNAVAILABLE));
  FG_EQ(requests(0), 2);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "503", "good");
  expect_hello(&r);
  FG_CHECK(happened(&s, FG_ACTION_FALLBACK, 0));
  FG_EQ(requests(0), 2);
  FG_EQ(requests(1), 1);
  FG_EQ(r.decision.label, 1);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "401", "good");
  FG_EQ(r.decision.action, FG_ACTION_FAIL_CLOSED);
  FG_EQ(r.decision.kind, FG_KIND_BAD_KEY);
  FG_EQ(r.status, 401);
  FG_CHECK(r.body != NULL && strstr(r.body, "Incorrect") != NULL);
  FG_EQ(requests(0), 1);
  FG_EQ(requests(1), 0);
  fg_curl_result_free(&r);
}

static void test_big_answers(void) {
  client c = client_new(port); /* the last one's key is latched by now */
  seen s;
  fg_curl_result r = run_script(&c, &s, "headers good", "good");
  expect_hello(&r);
  FG_EQ(requests(0), 2);
  fg_curl_result_free(&r);
  r = run_script(&c, &s, "huge", "good");
  FG_EQ(r.status, 401);
  FG_EQ(r.body_len, FG_CURL_BODY_MAX);
  FG_EQ(r.truncated, 1);
  fg_curl_result_free(&r);
  client_free(&c);
}

static void test_cuts(client *c) {
  seen s;
  fg_curl_result r = run_script(c, &s, "cut", "good"); /* after visible text: never spliced */
  FG_EQ(r.decision.action, FG_ACTION_FAIL_CLOSED);
  FG_EQ(r.decision.reason, FG_REASON_PARTIAL_OUTPUT);
  FG_EQ(requests(0) + requests(1), 1);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "cut-unseen", "good");
  expect_hello(&r);
  FG_CHECK(happened(&s, FG_ACTION_FALLBACK, FG_KIND_STREAM_CUT));
  FG_EQ(requests(0), 1);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "error-event", "good");
  expect_hello(&r);
  FG_EQ(happened(&s, FG_ACTION_ACCEPT, 0), 1);
  FG_CHECK(requests(0) + requests(1) >= 2);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "stall", "good");
  FG_EQ(r.decision.reason, FG_REASON_PARTIAL_OUTPUT);
  FG_EQ(r.decision.kind, FG_KIND_IDLE_TIMEOUT);
  FG_EQ(requests(0) + requests(1), 1);
  fg_curl_result_free(&r);
}

static void test_silence(client *c) {
  seen s;
  int64_t start = fg_host_now_ms();
  fg_curl_result r = run_script(c, &s, "silent", "good");
  expect_hello(&r);
  FG_CHECK(happened(&s, FG_ACTION_FALLBACK, FG_KIND_FIRST_TOKEN_TIMEOUT));
  FG_CHECK(fg_host_now_ms() - start >= 1100 && fg_host_now_ms() - start < 4000);
  FG_EQ(requests(0), 1);
  FG_EQ(requests(1), 1);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "reset", "good");
  expect_hello(&r);
  FG_CHECK(happened(&s, FG_ACTION_FALLBACK, FG_KIND_RESET));
  FG_EQ(requests(0), 1);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "close", "good");
  expect_hello(&r);
  FG_EQ(requests(0), 1); /* sent: not again on the same route */
  fg_curl_result_free(&r);
}

/* libcurl would send the request again by itself when a kept connection dies unanswered. */
static void test_kept_connection(void) {
  client c = client_new(port);
  seen s;
  fg_curl_result r = run_script(&c, &s, "good-then-drop", "good");
  expect_hello(&r);
  fg_curl_result_free(&r);
  r = run_script(&c, &s, "good-then-drop", "good");
  expect_hello(&r);
  FG_EQ(requests(0), 1);
  FG_EQ(requests(1), 1);
  FG_EQ(r.sent, 2);
  fg_curl_result_free(&r);
  client_free(&c);
}

static void test_refused(void) {
  client c = client_new(dead_port);
  seen s;
  fg_curl_result r = run_script(&c, &s, "good", "good");
  expect_hello(&r);
  FG_CHECK(happened(&s, FG_ACTION_RETRY, FG_KIND_CONNECT_FAILED)); /* never sent: free to try again */
  FG_CHECK(happened(&s, FG_ACTION_FALLBACK, FG_KIND_CONNECT_FAILED));
  FG_EQ(requests(0), 0);
  FG_EQ(requests(1), 1);
  FG_EQ(r.sent, 1);
  fg_curl_result_free(&r);
  client_free(&c);
}

static void test_degraded(client *c) {
  seen s;
  memset(&s, 0, sizeof s);
  script_set("503", "503");
  fg_curl_result r = run_with(c, &s, FG_STREAM_YES); /* nothing stored: the preset text */
  FG_EQ(r.decision.action, FG_ACTION_DEGRADE);
  FG_EQ(r.decision.ladder_step, FG_STEP_PRESET);
  FG_EQ_STR(r.body, "Please try again soon.");
  fg_curl_result_free(&r);
  memset(&s, 0, sizeof s);
  s.has_cache = 1;
  r = run_with(c, &s, FG_STREAM_YES);
  FG_EQ(r.decision.ladder_step, FG_STEP_CACHED);
  FG_EQ_STR(r.body, "stored");
  fg_curl_result_free(&r);
}

static void *cancel_later(void *arg) {
  (void)poll(NULL, 0, 100);
  fg_curl_cancel(arg);
  return NULL;
}

static void test_cancel(client *c) {
  seen s;
  pthread_t t;
  int64_t start = fg_host_now_ms();
  FG_EQ(pthread_create(&t, NULL, cancel_later, c->curl), 0);
  fg_curl_result r = run_script(c, &s, "silent", "good"); /* while it waits for an answer */
  (void)pthread_join(t, NULL);
  FG_EQ(r.decision.action, FG_ACTION_FAIL_CLOSED);
  FG_EQ(r.decision.reason, FG_REASON_CLIENT_GONE);
  FG_CHECK(fg_host_now_ms() - start < 1100);
  FG_EQ(requests(1), 0);
  fg_curl_result_free(&r);
  FG_EQ(pthread_create(&t, NULL, cancel_later, c->curl), 0);
  start = fg_host_now_ms();
  r = run_script(c, &s, "429", "429"); /* while it sleeps */
  (void)pthread_join(t, NULL);
  FG_EQ(r.decision.reason, FG_REASON_CLIENT_GONE);
  FG_EQ(requests(0), 1);
  FG_CHECK(fg_host_now_ms() - start < 580);
  fg_curl_result_free(&r);
  memset(&s, 0, sizeof s);
  s.cancel_on_token = 1;
  script_set("stall", "good");
  r = run_with(c, &s, FG_STREAM_YES); /* from a hook, mid-stream */
  FG_EQ(r.decision.reason, FG_REASON_CLIENT_GONE);
  fg_curl_result_free(&r);
  memset(&s, 0, sizeof s);
  s.refuse_build = 1;
  r = run_with(c, &s, FG_STREAM_YES);
  FG_EQ(r.decision.action, FG_ACTION_FAIL_CLOSED);
  FG_EQ(r.sent, 0);
  fg_curl_result_free(&r);
  r = run_script(c, &s, "good", "good"); /* and the next one runs */
  expect_hello(&r);
  fg_curl_result_free(&r);
}

static void test_wrong_use(client *c) {
  fg_curl_result r;
  FG_EQ(fg_curl_run(c->curl, NULL, &r), FG_ERR_ARG);
  FG_EQ(r.decision.action, FG_ACTION_FAIL_CLOSED);
  FG_EQ(fg_curl_run(c->curl, NULL, NULL), FG_ERR_ARG);
  fg_curl_result_free(&r);
  fg_curl_result_free(NULL);
  fg_curl_free(NULL);
}

/* ------------------------------------------------- evidence of one handle */

static size_t discard(char *bytes, size_t size, size_t count, void *arg) {
  (void)bytes;
  (void)arg;
  return size * count;
}

static fg_evidence perform(const char *url, const char *proxy, long timeout_ms, int32_t *code) {
  static char error[CURL_ERROR_SIZE];
  CURL *easy = curl_easy_init();
  error[0] = 0;
  (void)curl_easy_setopt(easy, CURLOPT_URL, url);
  (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error);
  (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, discard);
  (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms);
  (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "{}");
  (void)curl_easy_setopt(easy, CURLOPT_PROXY, proxy != NULL ? proxy : "");
  CURLcode rc = curl_easy_perform(easy);
  fg_evidence v;
  memset(&v, 0, sizeof v);
  v.size = (uint32_t)sizeof v;
  fg_curl_evidence(easy, rc, error, 2, &v);
  *code = v.code;
  curl_easy_cleanup(easy);
  return v;
}

static void expect_phase(const char *scheme, int at, const char *words, const char *proxy, uint32_t phase, int32_t code) {
  char url[96];
  int32_t got = 0;
  (void)snprintf(url, sizeof url, "%s://127.0.0.1:%d/main", scheme, at);
  script_set(words, "good");
  fg_evidence v = perform(url, proxy, code == CURLE_OPERATION_TIMEDOUT ? 300L : 20000L, &got); /* patient, but where a time-out is meant */
  if (!FG_EQ(v.phase, phase)) {
    printf("  %s %s: %.*s\n", url, words, (int)v.message.len, v.message.ptr);
  }
  FG_EQ(got, code);
  FG_CHECK(code == 0 || (v.lib.len == 7 && v.kind.len > 6 && v.message.len > 0));
}

static void test_phases(void) {
  char proxy[64];
  expect_phase("http", dead_port, "good", NULL, FG_PHASE_CONNECT, CURLE_COULDNT_CONNECT);
  expect_phase("gopher-x", port, "good", NULL, FG_PHASE_CONNECT, CURLE_UNSUPPORTED_PROTOCOL);
  expect_phase("https", port, "good", NULL, FG_PHASE_TLS, CURLE_SSL_CONNECT_ERROR);
  expect_phase("http", port, "silent", NULL, FG_PHASE_READ, CURLE_OPERATION_TIMEDOUT);
  expect_phase("http", port, "close", NULL, FG_PHASE_READ, CURLE_GOT_NOTHING);
  expect_phase("http", port, "reset", NULL, FG_PHASE_READ, CURLE_RECV_ERROR);
  expect_phase("http", port, "503", NULL, FG_PHASE_RESPONSE, CURLE_OK);
  expect_phase("http", port, "stall", NULL, FG_PHASE_STREAM, CURLE_OPERATION_TIMEDOUT);
  (void)snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", port);
  expect_phase("https", port, "good", proxy, FG_PHASE_CONNECT, CURLE_RECV_ERROR); /* 56, yet nothing was sent */
  (void)snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", dead_port);
  expect_phase("http", port, "good", proxy, FG_PHASE_CONNECT, CURLE_COULDNT_CONNECT);
}

int main(void) {
  (void)signal(SIGPIPE, SIG_IGN);
  pthread_t server;
  start_server(&server);
  client c = client_new(port);
  test_phases();
  test_good(&c);
  test_cuts(&c);
  test_silence(&c);
  test_degraded(&c);
  test_cancel(&c);
  test_wrong_use(&c);
  test_error_answers(&c);
  test_big_answers();
  test_kept_connection();
  test_refused();
  client_free(&c);
  (void)shutdown(listener, SHUT_RDWR);
  (void)pthread_join(server, NULL);
  (void)close(listener);
  for (int i = 0; i < 200 && atomic_load(&connections) > 0; i++) {
    (void)poll(NULL, 0, 10);
  }
  FG_EQ(atomic_load(&connections), 0); /* every aborted transfer closed its connection */
  return fg_test_end("curl");
}
