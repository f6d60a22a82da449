/* One chat completion through fivegates and libcurl:
 *
 *   curl_call CARD.json WORKFLOW "prompt" [REGION]
 *
 * Routes speak the OpenAI chat API; keys come from the environment (the card's key_env). With REGION (a path such as /dev/shm/my-service) breakers and
 * budgets are shared with every other process that names it. Decisions and the ledger go to stderr, the answer as it came (an event stream) to stdout. */
#include "fg_curl.h"
#include "fg_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_TOKENS_PER_BYTE = 3, MAX_OUTPUT = 500 };

typedef struct job {
  const fg_policy *policy;
  const fg_engine *engine;
  const fg_call *call;
  const char *prompt;
  char url[512], auth[512], body[16384];
  const char *headers[3];
} job;

/* Text as the inside of a JSON string; what does not fit is left out. */
static void quote(char *to, size_t cap, const char *from) {
  size_t n = 0;
  for (; *from != 0 && n + 7 < cap; from++) {
    unsigned char c = (unsigned char)*from;
    if (c == '"' || c == '\\') {
      to[n++] = '\\';
      to[n++] = (char)c;
    } else if (c < 0x20) {
      n += (size_t)snprintf(to + n, cap - n, "\\u%04x", c);
    } else {
      to[n++] = (char)c;
    }
  }
  to[n] = 0;
}

/* The request to a route, with the edits the decision asks for. */
static int32_t build(void *ctx, const fg_decision *d, const fg_route_info *route, fg_curl_request *out) {
  job *j = ctx;
  char text[8192], name[128];
  uint32_t max_tokens = (d->change & FG_CHANGE_MAX_TOKENS) != 0 ? d->max_tokens : MAX_OUTPUT;
  quote(text, sizeof text, j->prompt);
  (void)snprintf(j->url, sizeof j->url, "%.*s/chat/completions", (int)route->base_url.len, route->base_url.ptr);
  (void)snprintf(j->body, sizeof j->body,
                 "{\"model\":\"%.*s\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"max_tokens\":%u,"
                 "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
                 (int)route->model.len, route->model.ptr, max_tokens, text);
  (void)snprintf(name, sizeof name, "%.*s", (int)route->key_env.len, route->key_env.ptr);
  const char *key = name[0] != 0 ? getenv(name) : NULL;
  (void)snprintf(j->auth, sizeof j->auth, "Authorization: Bearer %s", key != NULL ? key : "");
  j->headers[0] = "Accept: text/event-stream";
  j->headers[1] = key != NULL ? j->auth : NULL;
  j->headers[2] = NULL;
  out->url = j->url;
  out->headers = j->headers;
  out->body = j->body;
  out->body_len = strlen(j->body);
  return 0;
}

static void decided(void *ctx, const fg_decision *d, int64_t now_ms) {
  const job *j = ctx;
  fg_str route = {"none", 4, 0};
  char line[4096];
  (void)fg_policy_name(j->policy, FG_FIND_ROUTE, d->route, &route);
  (void)fprintf(stderr, "%s on %.*s: %s, wait %u ms\n", fg_name(FG_TABLE_ACTION, d->action), (int)route.len, route.ptr,
                fg_name(FG_TABLE_REASON, d->reason), d->wait_ms);
  if (fg_ledger_line(j->engine, j->call, d, FG_LINE_DECISION, now_ms, line, sizeof line) < sizeof line) {
    (void)fprintf(stderr, "%s\n", line);
  }
}

static char *read_file(const char *path, size_t *len) {
  FILE *f = fopen(path, "rb");
  char *text = malloc(1 << 24);
  *len = 0;
  if (f != NULL && text != NULL) {
    *len = fread(text, 1, 1 << 24, f);
  }
  if (f == NULL) {
    perror(path);
    free(text);
    text = NULL;
  } else {
    (void)fclose(f);
  }
  return text;
}

static int complain(const char *what, const fg_error *err) {
  (void)fprintf(stderr, "%s: %s%s%s", what, err->path, err->path[0] != 0 ? ": " : "", err->message);
  if (err->line != 0) {
    (void)fprintf(stderr, " (line %u, column %u)", err->line, err->column);
  }
  (void)fputc('\n', stderr);
  return 2;
}

static int run(const fg_policy *policy, const fg_engine *engine, const char *workflow, const char *prompt) {
  static fg_call call;
  static job j;
  fg_request q;
  fg_curl_job c;
  fg_curl_result r;
  char why[4096], id[24];
  memset(&q, 0, sizeof q);
  (void)snprintf(id, sizeof id, "fg-%016llx", (unsigned long long)fg_host_seed());
  q.size = (uint32_t)sizeof q;
  q.workflow.ptr = workflow;
  q.workflow.len = (uint32_t)strlen(workflow);
  q.call_id.ptr = id; /* the ledger's lines of one call */
  q.call_id.len = (uint32_t)strlen(id);
  q.prompt_tokens = 8 + (uint32_t)strlen(prompt) / PROMPT_TOKENS_PER_BYTE;
  q.max_output_tokens = MAX_OUTPUT;
  q.unable = FG_UNABLE_QUEUE | FG_UNABLE_RESUME;
  j.policy = policy;
  j.engine = engine;
  j.call = &call;
  j.prompt = prompt;
  memset(&c, 0, sizeof c);
  c.engine = engine;
  c.policy = policy;
  c.call = &call;
  c.request = &q;
  c.ctx = &j;
  c.build = build;
  c.decided = decided;
  fg_curl *h = fg_curl_new();
  int32_t rc = fg_curl_run(h, &c, &r);
  if (rc != FG_OK) {
    (void)fprintf(stderr, "error %d: is \"%s\" a workflow of the card?\n", rc, workflow);
  } else {
    (void)fg_explain(engine, &call, &r.decision, why, sizeof why);
    (void)fprintf(stderr, "%s\n", why);
    (void)fprintf(stderr, "%u sent, %u + %u tokens\n", r.sent, r.answer.prompt_tokens, r.answer.output_tokens);
    (void)fwrite(r.body != NULL ? r.body : "", 1, (size_t)r.body_len, stdout);
  }
  int good = rc == FG_OK && (r.decision.action == FG_ACTION_ACCEPT || r.decision.action == FG_ACTION_DEGRADE);
  fg_curl_result_free(&r);
  fg_curl_free(h);
  return good ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    (void)fprintf(stderr, "usage: %s CARD.json WORKFLOW PROMPT [REGION]\n", argv[0]);
    return 2;
  }
  size_t len;
  char *text = read_file(argv[1], &len);
  if (text == NULL) {
    return 2;
  }
  fg_mem mem = fg_host_mem();
  fg_error err;
  memset(&err, 0, sizeof err);
  err.size = (uint32_t)sizeof err;
  fg_policy *policy = NULL;
  int32_t rc = fg_card_load(text, len, &mem, &policy, &err);
  free(text);
  if (rc != FG_OK) {
    return complain(argv[1], &err);
  }
  int64_t now = fg_host_now_ms();
  fg_host_map *map = NULL;
  if (fg_host_map_open(argc > 4 ? argv[4] : NULL, NULL, 0, now, &map, &err) != FG_OK) {
    return complain("region", &err);
  }
  if (fg_host_map_warning(map, &err) == 1) {
    (void)complain("region", &err);
  }
  uint64_t bytes = fg_engine_bytes(policy);
  void *memory = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
  fg_engine *engine = NULL;
  rc = fg_engine_init(memory, bytes, policy, fg_host_map_region(map), (uint32_t)fg_host_map_slot(map, now), fg_host_seed(), now, &engine, &err);
  int result = 2;
  if (rc != FG_OK) {
    (void)complain("engine", &err);
  } else {
    (void)fg_engine_clock(engine, fg_host_unix_ms(), now);
    result = run(policy, engine, argv[2], argv[3]);
  }
  free(memory);
  fg_host_map_close(map);
  fg_policy_free(policy, &mem);
  return result;
}
