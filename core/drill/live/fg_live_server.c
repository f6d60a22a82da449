/* fivegates-drill-server: the drills' providers as servers on loopback, /0/v1/chat/completions the primary, /1/... the backups. Slots, queues, zombies and the
 * fault are the simulator's (fg_drill_provider.c); time and the wire are real. Prints its port, serves until its standard input ends, and prints by how many
 * milliseconds of the drill's time it was late at most.
 *
 * Exit codes: 0 done; 2 bad input; 3 no socket, or no memory. */
#include "fg_live.h"
#include "fg_live_http.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_US = 100000, BODY_MAX = 512, PIECE_MAX = 256, CHARACTERS = 4 }; /* FLUSH_US: how often tokens are sent, of the drill's time */

typedef struct server {
  world w;
  const live_start *start;
  http_server *http;
  http_peer **peer; /* by the attempt's index; NULL: nobody listens */
  uint32_t peer_room;
  int64_t latest_us;
} server;

/* ---- what the simulated provider asks of its world */

void drill_plan(world *w, int64_t at, uint32_t kind, uint32_t index, uint32_t serial) {
  if (!drill_heap_push(&w->heap, at, kind, index, serial)) {
    w->error = FG_ERR_NOMEM;
  }
}

void drill_attempt_free(world *w, attempt *a) {
  a->serial = 0; /* no event is about it any more */
  a->next_free = w->attempt_free;
  w->attempt_free = a->self;
}

static server *server_of(world *w) { return (server *)w; } /* its first member */
static http_peer *peer_of(world *w, const attempt *a) { return server_of(w)->peer[a->self]; }

static void send_delta(http_peer *p, const char *content, uint32_t times, const char *finish) {
  char text[BODY_MAX + PIECE_MAX * CHARACTERS];
  size_t n = (size_t)snprintf(text, sizeof text, "{\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{%s",
                              times > 0 ? "\"content\":\"" : "");
  for (uint32_t i = 0; i < times; i++) {
    memcpy(text + n, content, CHARACTERS);
    n += CHARACTERS;
  }
  (void)snprintf(text + n, sizeof text - n, "%s},\"finish_reason\":%s}]}", times > 0 ? "\"" : "", finish);
  http_event(p, text);
}

static void send_tokens(world *w, attempt *a) {
  http_peer *p = peer_of(w, a);
  const uint32_t made = drill_tokens_made(w, a);
  while (p != NULL && a->reported < made) {
    const uint32_t some = made - a->reported < PIECE_MAX ? made - a->reported : PIECE_MAX;
    send_delta(p, "word", some, "null");
    a->reported += some;
  }
}

void drill_token(world *w, attempt *a) {
  http_peer *p = peer_of(w, a);
  a->first_token_at = w->now;
  if (p != NULL) {
    http_begin(p);
    send_delta(p, "word", 1, "null");
    a->reported = 1;
  }
}

static void part(world *w, attempt *a) {
  server_of(w)->peer[a->self] = NULL;
  a->job = NOBODY;
}

void drill_whole(world *w, attempt *a) {
  char usage[BODY_MAX];
  http_peer *p = peer_of(w, a);
  if (p == NULL) {
    return;
  }
  send_tokens(w, a);
  send_delta(p, "", 0, "\"stop\"");
  (void)snprintf(
      usage, sizeof usage,
      "{\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u}}",
      a->prompt, a->output, a->prompt + a->output);
  http_event(p, usage);
  http_event(p, "[DONE]");
  http_end(p);
  a->delivered = 1;
  part(w, a);
  http_free_peer(p);
}

void drill_reply(world *w, attempt *a) {
  char headers[BODY_MAX] = "";
  http_peer *p = peer_of(w, a);
  if (p != NULL) {
    if (a->status == 429) {
      const int64_t ms = (a->reset_us + 999) / 1000;
      (void)snprintf(headers, sizeof headers,
                     "retry-after-ms: %" PRId64 "\r\nx-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: %" PRId64 "ms\r\n",
                     ms, ms);
    }
    http_answer(p, a->status, headers,
                a->status == 429 ? "{\"error\":{\"message\":\"Rate limit reached\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}"
                                 : "{\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\",\"code\":null}}");
    part(w, a);
    http_free_peer(p);
  }
  drill_attempt_free(w, a);
}

/* ---- requests */

static attempt *attempt_new(server *s) {
  world *w = &s->w;
  uint32_t i = w->attempt_free;
  if (i != NOBODY) {
    w->attempt_free = attempt_at(w, i)->next_free;
    return attempt_at(w, i);
  }
  i = w->attempt_count;
  if (i == s->peer_room) { /* attempts, jobs and peers stand under one index */
    http_peer **more = realloc(s->peer, (i + CHUNK) * sizeof(http_peer *));
    s->peer = more != NULL ? more : s->peer;
    w->attempts[i / CHUNK] = calloc(CHUNK, sizeof(attempt));
    w->jobs[i / CHUNK] = calloc(CHUNK, sizeof(job));
    if (more == NULL || i / CHUNK + 1 == CHUNKS || w->attempts[i / CHUNK] == NULL || w->jobs[i / CHUNK] == NULL) {
      w->error = FG_ERR_NOMEM;
      return NULL;
    }
    s->peer_room += CHUNK;
  }
  w->attempt_count++;
  attempt_at(w, i)->self = i;
  return attempt_at(w, i);
}

static int64_t whole(const cJSON *object, const char *name) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
  return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < 9e15 ? (int64_t)v->valuedouble : -1;
}

static void take(server *s, http_peer *p, uint32_t provider, const cJSON *body) {
  world *w = &s->w;
  const cJSON *meta = cJSON_GetObjectItemCaseSensitive(body, "metadata");
  const cJSON *message = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(body, "messages"), 0);
  const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
  const int64_t output = whole(body, "max_tokens"), prefill = whole(meta, "prefill_us"), decode = whole(meta, "decode_us");
  if (output < 1 || output > UINT32_MAX || prefill < 0 || decode < 0 || !cJSON_IsString(content)) {
    http_answer(p, 400, "", "{\"error\":{\"message\":\"not a request of a live drill\"}}");
    http_free_peer(p);
    return;
  }
  attempt *a = attempt_new(s);
  if (a == NULL) {
    return;
  }
  *a = (attempt){.self = a->self,
                 .job = a->self,
                 .serial = ++w->serial,
                 .provider = provider,
                 .number = (uint32_t)whole(meta, "number"),
                 .prompt = (uint32_t)(strlen(content->valuestring) / CHARACTERS),
                 .output = (uint32_t)output,
                 .prefill_us = prefill,
                 .decode_us = decode,
                 .sent_at = w->now,
                 .first_token_at = -1};
  *job_at(w, a->self) = (job){.record = (uint32_t)whole(meta, "record")};
  p->tag = a->self;
  s->peer[a->self] = p;
  drill_provider_take(w, a);
}

static void on_request(void *ctx, http_peer *p, const char *path, const char *text) {
  server *s = ctx;
  char *end = NULL;
  const unsigned long provider = path[0] == '/' ? strtoul(path + 1, &end, 10) : UINT32_MAX;
  cJSON *body = cJSON_Parse(text);
  s->w.now = live_now(s->start);
  if (provider >= s->w.providers || end == NULL || strcmp(end, "/v1/chat/completions") != 0) {
    http_answer(p, 404, "", "{\"error\":{\"message\":\"no such provider\"}}");
    http_free_peer(p);
  } else {
    take(s, p, (uint32_t)provider, body);
  }
  cJSON_Delete(body);
}

static void on_gone(void *ctx, http_peer *p) {
  server *s = ctx;
  attempt *a = attempt_at(&s->w, p->tag);
  s->w.now = live_now(s->start);
  part(&s->w, a);
  a->left = 1;
  drill_provider_leave(&s->w, a);
}

/* ---- time */

static void apply_fault(world *w) {
  for (uint32_t n = 0; n < w->providers; n++) {
    endpoint *p = &w->provider[n];
    const drill_state now = drill_fault_at(w->c, w->fault, n, w->now - w->fault_at);
    const uint32_t slots = (uint32_t)(p->full_slots * now.slots_ppm / 1000000);
    p->error_ppm = now.error_ppm;
    p->error_status = now.error_status;
    p->rate_limit = now.rate_limit;
    p->rate_window_us = now.rate_window_us;
    if (p->prefill_ppm != now.prefill_ppm || p->decode_ppm != now.decode_ppm || p->slots != slots) {
      drill_provider_set(w, n, now.prefill_ppm, now.decode_ppm, slots);
    }
  }
}

static void flush(world *w) {
  for (uint32_t n = 0; n < w->providers; n++) {
    for (uint32_t i = 0; i < w->provider[n].running_count; i++) {
      attempt *a = attempt_at(w, w->provider[n].running[i]);
      if (a->state == AT_DECODE) {
        send_tokens(w, a);
      }
    }
  }
}

static void happen(world *w, const drill_event *e) {
  if (e->kind == EV_TICK) {
    apply_fault(w);
    flush(w);
    drill_plan(w, e->at + FLUSH_US, EV_TICK, 0, 0);
  } else if (attempt_at(w, e->index)->serial == e->serial) {
    if (e->kind == EV_ERROR) {
      drill_reply(w, attempt_at(w, e->index));
    } else {
      drill_provider_step(w, attempt_at(w, e->index));
    }
  }
}

static void serve(server *s) {
  world *w = &s->w;
  const http_calls calls = {s, on_request, on_gone};
  int64_t wait = 0;
  while (http_serve(s->http, &calls, wait) && w->error == 0) {
    drill_event e;
    const int64_t now = live_now(s->start);
    while (w->heap.count != 0 && w->heap.event[0].at <= now && drill_heap_pop(&w->heap, &e)) {
      s->latest_us = now - e.at > s->latest_us ? now - e.at : s->latest_us;
      w->now = e.at; /* work takes exactly as long as in the simulation, however late it is told */
      happen(w, &e);
    }
    wait = live_until(s->start, w->heap.event[0].at);
  }
}

int main(int argc, char **argv) {
  static server s;
  static drill_config c;
  live_start start;
  int port = 0;
  const int bad = live_read(argc, argv, &c, &start);
  if (bad != 0) {
    drill_config_free(&c);
    return bad;
  }
  s.start = &start;
  s.w.c = &c;
  s.w.fault = &c.fault[0];
  s.w.seed = c.seed;
  s.w.fault_at = c.warm_us;
  s.w.attempt_free = NOBODY;
  s.w.providers = 1 + c.backups;
  for (uint32_t n = 0; n < s.w.providers; n++) {
    s.w.provider[n] =
        (endpoint){.queue_first = NOBODY, .queue_last = NOBODY, .prefill_ppm = 1000000, .decode_ppm = 1000000, .rate_window = -1};
    s.w.provider[n].full_slots = s.w.provider[n].slots = n == 0 ? c.primary_slots * c.scale : drill_backup_slots(&c);
    s.w.provider[n].rate_window_us = 1;
  }
  s.http = http_open(&port);
  if (s.http == NULL) {
    return 3;
  }
  (void)printf("%d\n", port);
  (void)fflush(stdout);
  drill_plan(&s.w, 0, EV_TICK, 0, 0);
  serve(&s);
  http_close(s.http);
  (void)printf("%" PRId64 "\n", s.latest_us / 1000);
  drill_config_free(&c);
  return s.w.error == FG_OK ? 0 : 3;
}
