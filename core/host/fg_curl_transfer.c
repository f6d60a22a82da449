/* One attempt: libcurl's callbacks turned to events, headers and body kept. */
#include "fg_curl_transfer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fg_host.h"

static void event(fg_transfer *t, uint32_t kind, uint32_t value, int64_t now_ms) {
  (void)fg_call_event(t->job->engine, t->job->call, t->attempt, kind, value, now_ms);
}

static fg_str borrow(const char *ptr, size_t len) {
  fg_str s = {ptr, (uint32_t)len, 0};
  return s;
}

/* ---------------------------------------------------------------- headers */

/* A copy in the arena, or nothing when it is full. */
static fg_str keep(fg_transfer *t, const char *ptr, size_t len) {
  if (len > (size_t)(FG_CURL_ARENA - t->arena_len)) {
    return borrow(NULL, 0);
  }
  char *to = t->arena + t->arena_len;
  memcpy(to, ptr, len);
  t->arena_len += (uint32_t)len;
  return borrow(to, len);
}

static void add_header(fg_transfer *t, const char *line, size_t len) {
  const char *colon = memchr(line, ':', len);
  if (colon == NULL || t->header_count == FG_CURL_HEADERS_MAX) {
    return;
  }
  size_t name_len = (size_t)(colon - line);
  const char *value = colon + 1;
  size_t value_len = len - name_len - 1;
  while (value_len > 0 && (value[0] == ' ' || value[0] == '\t')) {
    value++;
    value_len--;
  }
  fg_header h = {keep(t, line, name_len), keep(t, value, value_len)};
  if (h.name.ptr != NULL && h.value.ptr != NULL) {
    t->header[t->header_count++] = h;
  }
}

static int is_event_stream(const fg_transfer *t) {
  static const char type[] = "content-type", stream[] = "text/event-stream";
  for (uint32_t i = 0; i < t->header_count; i++) {
    const fg_header *h = &t->header[i];
    if (h->name.len == sizeof type - 1 && strncasecmp(h->name.ptr, type, sizeof type - 1) == 0) {
      return h->value.len >= sizeof stream - 1 && strncasecmp(h->value.ptr, stream, sizeof stream - 1) == 0;
    }
  }
  return 0;
}

static size_t on_header(char *line, size_t size, size_t count, void *arg) {
  fg_transfer *t = arg;
  size_t len = size * count;
  size_t bare = len;
  while (bare > 0 && (line[bare - 1] == '\n' || line[bare - 1] == '\r')) {
    bare--;
  }
  if (bare >= 5 && memcmp(line, "HTTP/", 5) == 0) { /* a new head: what came before was an interim one */
    t->header_count = 0;
    t->arena_len = 0;
    return len;
  }
  if (bare > 0) {
    add_header(t, line, bare);
    return len;
  }
  long status = 0;
  (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
  if (status >= 200 && t->status == 0) {
    t->status = (int32_t)status;
    t->last_byte_ms = fg_host_now_ms();
    t->whole = !is_event_stream(t);
    if (status < 300) {
      event(t, FG_EVENT_ACCEPTED, 0, t->last_byte_ms);
    }
  }
  return len;
}

/* ------------------------------------------------------------------- body */

static void keep_body(fg_transfer *t, const char *bytes, size_t len) {
  uint64_t max = FG_CURL_BODY_MAX;
  if (t->status >= 200 && t->status < 300) {
    max = t->job->max_body != 0 ? t->job->max_body : 16U << 20;
  }
  uint64_t room = max - t->body_len;
  if (len > room) {
    t->body_truncated = 1;
    len = (size_t)room;
  }
  if (t->body_len + len + 1 > t->body_cap) {
    uint64_t cap = t->body_cap == 0 ? 4096 : t->body_cap * 2;
    while (cap < t->body_len + len + 1) {
      cap *= 2;
    }
    char *bigger = realloc(t->body, (size_t)cap);
    if (bigger == NULL) {
      t->body_truncated = 1;
      return;
    }
    t->body = bigger;
    t->body_cap = cap;
  }
  memcpy(t->body + t->body_len, bytes, len);
  t->body_len += len;
  t->body[t->body_len] = 0;
}

/* How much a count grew since it was last reported; at least 1, for it was seen. */
static uint32_t growth(uint32_t now, uint32_t *before) {
  uint32_t more = now > *before ? now - *before : 1;
  *before = now;
  return more;
}

static void report(fg_transfer *t, uint32_t saw, int64_t now_ms) {
  fg_evidence v;
  memset(&v, 0, sizeof v);
  v.size = (uint32_t)sizeof v;
  (void)fg_sse_evidence(&t->sse, &v);
  if ((saw & FG_SAW_LIFECYCLE) != 0) {
    event(t, FG_EVENT_LIFECYCLE, 0, now_ms);
  }
  if ((saw & FG_SAW_REASONING) != 0) {
    event(t, FG_EVENT_REASONING, growth(v.reasoning, &t->reasoning), now_ms);
  }
  if ((saw & FG_SAW_TOOL_ARGS) != 0) {
    event(t, FG_EVENT_TOOL_ARGS, growth(v.tool_args_bytes, &t->tool_args_bytes), now_ms);
  }
  if ((saw & FG_SAW_TOKEN) != 0) {
    event(t, FG_EVENT_TOKEN, growth(v.visible, &t->visible), now_ms);
  }
  if ((saw & (FG_SAW_REASONING | FG_SAW_TOOL_ARGS | FG_SAW_TOKEN)) != 0) {
    t->last_progress_ms = now_ms;
  }
  if ((saw & (FG_SAW_USAGE | FG_SAW_TERMINAL)) != 0) {
    fg_answer a;
    fg_transfer_answer(t, &a);
    if ((saw & FG_SAW_USAGE) != 0) {
      (void)fg_call_usage(t->job->engine, t->job->call, t->attempt, &a, now_ms);
    }
    if ((saw & FG_SAW_TERMINAL) != 0) {
      event(t, FG_EVENT_TERMINAL, a.finish, now_ms);
    }
  }
  if ((saw & (FG_SAW_TERMINAL | FG_SAW_ERROR)) != 0 && !t->ended) {
    t->ended = 1;
    t->ended_ms = now_ms;
  }
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
  fg_transfer *t = arg;
  size_t len = size * count;
  int64_t now_ms = fg_host_now_ms();
  t->last_byte_ms = now_ms;
  keep_body(t, bytes, len);
  if (t->status < 200 || t->status >= 300 || len == 0) {
    return len;
  }
  if (!t->sse_ready) {
    t->sse_ready = 1;
    t->first_byte_ms = now_ms;
    fg_sse_init(&t->sse, t->wire, t->whole ? FG_SSE_WHOLE : 0);
    event(t, FG_EVENT_FIRST_BYTE, 0, now_ms);
  }
  int32_t saw = fg_sse_feed(&t->sse, bytes, (uint32_t)len);
  if (saw < 0) {
    saw = 0;
  }
  t->saw |= (uint32_t)saw;
  report(t, (uint32_t)saw, now_ms);
  if (t->job->chunk != NULL) {
    t->job->chunk(t->job->ctx, (uint32_t)saw, bytes, (uint32_t)len);
  }
  return len;
}

/* ----------------------------------------------------------------- set-up */

#if LIBCURL_VERSION_NUM >= 0x075000
/* libcurl is connected and about to write the request. The second time it is a resend it decided on by itself. */
static int on_ready(void *arg, char *remote, char *local, int remote_port, int local_port) {
  (void)remote;
  (void)local;
  (void)remote_port;
  (void)local_port;
  fg_transfer *t = arg;
  if (t->sends > 0) {
    t->resend_refused = 1;
    return CURL_PREREQFUNC_ABORT;
  }
  t->sends = 1;
  int64_t now_ms = fg_host_now_ms();
  event(t, FG_EVENT_CONNECTED, 0, now_ms);
  event(t, FG_EVENT_SENT, 0, now_ms);
  return CURL_PREREQFUNC_OK;
}
#endif

static int add_line(fg_transfer *t, const char *line) {
  struct curl_slist *more = curl_slist_append(t->list, line);
  if (more == NULL) {
    return 0;
  }
  t->list = more;
  return 1;
}

static int add_lines(fg_transfer *t, const fg_curl_request *r) {
  int has_type = 0;
  for (uint32_t i = 0; r->headers != NULL && r->headers[i] != NULL; i++) {
    has_type |= strncasecmp(r->headers[i], "content-type:", 13) == 0;
    if (!add_line(t, r->headers[i])) {
      return 0;
    }
  }
  if (r->body != NULL && !has_type && !add_line(t, "Content-Type: application/json")) {
    return 0;
  }
  return add_line(t, "Expect:"); /* never wait for 100-continue */
}

static uint32_t wire_of(const fg_curl_request *r, const fg_route_info *route) {
  int32_t wire = r->wire != 0 ? (int32_t)r->wire : fg_parse(FG_TABLE_WIRE, route->api.ptr, route->api.len);
  return wire > 0 ? (uint32_t)wire : FG_WIRE_AUTO;
}

#define SET(option, value) (void)curl_easy_setopt(t->easy, option, value)

int fg_transfer_start(fg_transfer *t, const fg_curl_job *job, const fg_curl_request *r, const fg_route_info *route, const fg_decision *d) {
  t->job = job;
  t->attempt = d->attempt;
  t->wire = wire_of(r, route);
  t->upload = r->body != NULL ? r->body_len : 0;
  t->started_ms = fg_host_now_ms();
  t->easy = curl_easy_init();
  if (t->easy == NULL || !add_lines(t, r)) {
    return 0;
  }
  SET(CURLOPT_URL, r->url);
  SET(CURLOPT_HTTPHEADER, t->list);
  if (r->body != NULL) {
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDS, r->body);
    SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_len);
  }
#if LIBCURL_VERSION_NUM >= 0x075500
  SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
  SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075000
  SET(CURLOPT_PREREQFUNCTION, on_ready);
  SET(CURLOPT_PREREQDATA, t);
  SET(CURLOPT_MAXAGE_CONN, 60L);
#else /* no way to see a hidden resend: it happens only on kept connections */
  SET(CURLOPT_FRESH_CONNECT, 1L);
#endif
  SET(CURLOPT_NOSIGNAL, 1L);
  SET(CURLOPT_FOLLOWLOCATION, 0L);
  SET(CURLOPT_ACCEPT_ENCODING, "");
  SET(CURLOPT_TCP_KEEPALIVE, 1L);
  SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  SET(CURLOPT_ERRORBUFFER, t->error);
  SET(CURLOPT_HEADERFUNCTION, on_header);
  SET(CURLOPT_HEADERDATA, t);
  SET(CURLOPT_WRITEFUNCTION, on_body);
  SET(CURLOPT_WRITEDATA, t);
  if (d->connect_ms != 0) {
    SET(CURLOPT_CONNECTTIMEOUT_MS, d->connect_ms > INT32_MAX ? (long)INT32_MAX : (long)d->connect_ms);
  }
  if (r->tune != NULL) {
    r->tune(job->ctx, t->easy);
  }
  return 1;
}

/* -------------------------------------------------------------------- end */

int fg_transfer_is_good(const fg_transfer *t, CURLcode rc) {
  if (t->status < 200 || t->status >= 300 || !t->sse_ready || (t->saw & FG_SAW_ERROR) != 0) {
    return 0;
  }
  fg_answer a;
  fg_transfer_answer(t, &a);
  /* A stream that reached its end is whole, even when the connection was cut after it. */
  return a.finish != FG_FINISH_NONE && a.finish != FG_FINISH_ERROR && (rc == CURLE_OK || !t->whole);
}

void fg_transfer_answer(const fg_transfer *t, fg_answer *out) {
  memset(out, 0, sizeof *out);
  out->size = (uint32_t)sizeof *out;
  if (t->sse_ready) {
    (void)fg_sse_answer(&t->sse, out);
  }
}

static uint32_t since(const fg_transfer *t, int64_t at_ms) {
  int64_t d = at_ms - t->started_ms;
  return at_ms == 0 || d < 0 ? 0 : d > (int64_t)UINT32_MAX ? UINT32_MAX : (uint32_t)d;
}

void fg_transfer_evidence(fg_transfer *t, CURLcode rc, const fg_route_info *route, fg_evidence *out) {
  memset(out, 0, sizeof *out);
  out->size = (uint32_t)sizeof *out;
  if (t->sse_ready) { /* progress, and an error inside a 200 */
    (void)fg_sse_evidence(&t->sse, out);
  }
  fg_str in_band = out->body;
  fg_curl_evidence(t->easy, rc, t->error, t->upload, out);
  if (t->resend_refused) {
    out->phase = FG_PHASE_READ;
    out->code = (int32_t)CURLE_GOT_NOTHING;
    out->kind = borrow("CURLE_GOT_NOTHING", 17);
    out->message = borrow("the kept connection died unanswered", 35);
  }
  out->provider = route->provider;
  out->api = route->api;
  out->headers = t->header;
  out->header_count = t->header_count;
  if (in_band.len > 0) {
    out->body = in_band;
  } else if (t->body_len > 0) {
    out->body = borrow(t->body, t->body_len > FG_CURL_BODY_MAX ? FG_CURL_BODY_MAX : (size_t)t->body_len);
    if (rc == CURLE_OK && !t->body_truncated && t->body_len <= FG_CURL_BODY_MAX) {
      out->flags |= FG_EV_WHOLE_BODY;
    }
  }
  out->flags |= FG_EV_PROGRESS;
  out->last_byte_ms = since(t, t->last_byte_ms);
  out->last_progress_ms = since(t, t->last_progress_ms);
  out->unix_ms = fg_host_unix_ms();
}

void fg_transfer_free(fg_transfer *t) {
  if (t->easy != NULL) {
    curl_easy_cleanup(t->easy);
  }
  curl_slist_free_all(t->list);
  free(t->body);
  free(t);
}
