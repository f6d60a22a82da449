/* In the place of the simulated providers and of simulated time: attempts are HTTP requests, and the next event is the one that is due by the clock, or what a
 * transfer brought. The strategies, the engine among them, and the metrics are the simulator's, unchanged. */
#include "fg_live_wire.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CHARACTERS = 4, URL_MAX = 96, HEAD_ROOM = 1024, BODY_ROOM = 512 };
enum { FIRST = 1, WHOLE = 2, REPLY = 4 }; /* what a transfer brought that its attempt was not told yet */

typedef struct transfer { /* of the attempt with the same index */
  CURL *easy;
  char *body;
  fg_sse sse;
  uint32_t news, self, next_news;
  int32_t saw_token;
  int64_t reset_ms;
  char error[CURL_ERROR_SIZE];
} transfer;

static struct {
  const live_start *start;
  CURLM *multi;
  struct curl_slist *headers;
  transfer **of; /* by the attempt's index */
  uint32_t room, news_first, news_last, open;
  live_seen seen;
} wire;

int live_wire_open(const live_start *start) {
  wire.start = start;
  wire.news_first = wire.news_last = NOBODY;
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return 0;
  }
  wire.multi = curl_multi_init();
  wire.headers = curl_slist_append(NULL, "Content-Type: application/json");
  struct curl_slist *more = wire.headers != NULL ? curl_slist_append(wire.headers, "Expect:") : NULL;
  return wire.multi != NULL && more != NULL;
}

void live_wire_close(live_seen *out) {
  *out = wire.seen;
  free(wire.of);
  (void)curl_multi_cleanup(wire.multi);
  curl_slist_free_all(wire.headers);
  curl_global_cleanup();
}

static void broke(const char *what) {
  if (wire.seen.broken[0] == 0) {
    (void)snprintf(wire.seen.broken, sizeof wire.seen.broken, "%s", what);
  }
}

/* ---- what comes */

static void add_news(transfer *t, uint32_t what) {
  if (t->news == 0) {
    t->next_news = NOBODY;
    *(wire.news_last != NOBODY ? &wire.of[wire.news_last]->next_news : &wire.news_first) = t->self;
    wire.news_last = t->self;
  }
  t->news |= what;
}

static void forget_news(const transfer *t) {
  uint32_t before = NOBODY;
  for (uint32_t i = wire.news_first; i != NOBODY; before = i, i = wire.of[i]->next_news) {
    if (i == t->self) {
      *(before != NOBODY ? &wire.of[before]->next_news : &wire.news_first) = t->next_news;
      wire.news_last = wire.news_last == i ? before : wire.news_last;
      return;
    }
  }
}

static size_t on_header(char *line, size_t size, size_t count, void *arg) {
  static const char name[] = "retry-after-ms:";
  transfer *t = arg;
  const size_t len = size * count;
  char text[32];
  if (len > sizeof name && strncasecmp(line, name, sizeof name - 1) == 0) {
    const size_t rest = len - (sizeof name - 1) < sizeof text ? len - (sizeof name - 1) : sizeof text - 1;
    memcpy(text, line + sizeof name - 1, rest);
    text[rest] = 0;
    t->reset_ms = strtoll(text, NULL, 10);
  }
  return len;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
  transfer *t = arg;
  const int32_t saw = fg_sse_feed(&t->sse, bytes, (uint32_t)(size * count));
  if (saw > 0 && ((uint32_t)saw & FG_SAW_TOKEN) != 0 && !t->saw_token) {
    t->saw_token = 1;
    add_news(t, FIRST);
  }
  return size * count;
}

/* A transfer is over: an answer, an error answer, or neither, which a provider on loopback never gives. */
static void ended(transfer *t, CURLcode rc) {
  long status = 0;
  fg_answer answer = {.size = sizeof answer};
  (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
  if (rc != CURLE_OK) {
    broke(t->error[0] != 0 ? t->error : curl_easy_strerror(rc));
  } else if (status >= 300) {
    add_news(t, REPLY);
  } else if (fg_sse_answer(&t->sse, &answer) == FG_OK && answer.finish == FG_FINISH_STOP && t->saw_token) {
    add_news(t, WHOLE);
  } else {
    broke("an answer of 200 that is not whole");
  }
}

static void perform(void) {
  int running = 0, left = 0;
  const CURLMsg *m;
  if (curl_multi_perform(wire.multi, &running) != CURLM_OK) {
    broke("libcurl does not go on");
  }
  while ((m = curl_multi_info_read(wire.multi, &left)) != NULL) {
    transfer *t = NULL;
    if (m->msg == CURLMSG_DONE && curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t) == CURLE_OK) {
      ended(t, m->data.result);
    }
  }
}

/* ---- what goes */

static char *body_of(const world *w, const attempt *a) {
  const uint32_t nth = job_at(w, a->job)->record;
  const size_t prompt = (size_t)a->prompt * CHARACTERS;
  char *text = malloc(prompt + BODY_ROOM);
  if (text == NULL) {
    return NULL;
  }
  /* The work is in the metadata: what the provider cannot guess, and what must be as in the simulation. */
  const int n = snprintf(text, BODY_ROOM,
                         "{\"model\":\"%s\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"max_tokens\":%u,"
                         "\"metadata\":{\"record\":%u,\"number\":%u,\"prefill_us\":%" PRId64 ",\"decode_us\":%" PRId64
                         "},\"messages\":[{\"role\":\"user\",\"content\":\"",
                         a->small != 0 ? "small" : "large", a->output, nth, a->number, a->prefill_us, a->decode_us);
  memset(text + n, 'x', prompt);
  memcpy(text + n + prompt, "\"}]}", 5);
  return text;
}

static transfer *transfer_new(const world *w, const attempt *a) {
  if (a->self >= wire.room) {
    const uint32_t room = a->self + CHUNK;
    transfer **more = realloc(wire.of, room * sizeof(transfer *));
    if (more == NULL) {
      return NULL;
    }
    memset(more + wire.room, 0, (room - wire.room) * sizeof(transfer *));
    wire.of = more;
    wire.room = room;
  }
  transfer *t = calloc(1, sizeof *t);
  if (t != NULL) {
    t->self = a->self;
    t->easy = curl_easy_init();
    t->body = body_of(w, a);
    fg_sse_init(&t->sse, FG_WIRE_CHAT, 0);
  }
  if (t == NULL || t->easy == NULL || t->body == NULL) {
    return NULL; /* the run ends */
  }
  return wire.of[a->self] = t;
}

#define SET(option, value) (void)curl_easy_setopt(t->easy, option, value)

static void enter(world *w, attempt *a) { /* among those that `tick` looks through */
  endpoint *p = &w->provider[a->provider];
  if (p->running_count == p->running_room) {
    const uint32_t room = p->running_room != 0 ? p->running_room * 2 : 64;
    uint32_t *more = realloc(p->running, room * sizeof *more);
    if (more == NULL) {
      w->error = FG_ERR_NOMEM;
      return;
    }
    p->running = more;
    p->running_room = room;
  }
  a->place = p->running_count;
  p->running[p->running_count++] = a->self;
}

void drill_provider_take(world *w, attempt *a) {
  char url[URL_MAX];
  transfer *t = transfer_new(w, a);
  enter(w, a);
  if (t == NULL || w->error != FG_OK) {
    w->error = FG_ERR_NOMEM;
    return;
  }
  a->state = AT_QUEUED;
  a->serial = ++w->serial;
  (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/%u/v1/chat/completions", wire.start->port, a->provider);
  SET(CURLOPT_URL, url);
  SET(CURLOPT_HTTPHEADER, wire.headers);
  SET(CURLOPT_POSTFIELDS, t->body);
  SET(CURLOPT_NOSIGNAL, 1L);
  SET(CURLOPT_NOPROXY, "*");
  SET(CURLOPT_TCP_NODELAY, 1L);
  SET(CURLOPT_ERRORBUFFER, t->error);
  SET(CURLOPT_HEADERFUNCTION, on_header);
  SET(CURLOPT_HEADERDATA, t);
  SET(CURLOPT_WRITEFUNCTION, on_body);
  SET(CURLOPT_WRITEDATA, t);
  SET(CURLOPT_PRIVATE, t);
  if (curl_multi_add_handle(wire.multi, t->easy) != CURLM_OK) {
    broke("libcurl does not take a request");
  }
  wire.open++;
}

/* The connection is kept when the answer is over, closed when it is not. */
static void release(world *w, const attempt *a) {
  transfer *t = wire.of[a->self];
  endpoint *p = &w->provider[a->provider];
  const uint32_t last = p->running[--p->running_count];
  p->running[a->place] = last;
  attempt_at(w, last)->place = a->place;
  if (t->news != 0) {
    forget_news(t);
  }
  (void)curl_multi_remove_handle(wire.multi, t->easy);
  curl_easy_cleanup(t->easy);
  free(t->body);
  free(t);
  wire.of[a->self] = NULL;
  wire.open--;
}

void drill_provider_leave(world *w, attempt *a) {
  release(w, a);
  drill_attempt_free(w, a);
}

/* ---- in the place of the simulated provider */

void drill_provider_step(world *w, attempt *a) {
  if (a->state == AT_QUEUED) {
    a->state = AT_DECODE;
    drill_token(w, a);
    return;
  }
  fg_answer answer = {.size = sizeof answer};
  (void)fg_sse_answer(&wire.of[a->self]->sse, &answer);
  a->prompt = answer.prompt_tokens;
  a->output = answer.output_tokens;
  a->state = AT_DONE;
  drill_whole(w, a);
  release(w, a);
  drill_attempt_free(w, a);
}

uint32_t drill_tokens_made(const world *w, const attempt *a) {
  fg_evidence seen = {.size = sizeof seen};
  (void)w;
  (void)fg_sse_evidence(&wire.of[a->self]->sse, &seen);
  return seen.visible / CHARACTERS;
}

/* The fault is the server's; of its state the client knows nothing, so that the oracle has no live drill. */
void drill_provider_set(world *w, uint32_t p, int64_t prefill_ppm, int64_t decode_ppm, uint32_t slots) {
  (void)w;
  (void)p;
  (void)prefill_ppm;
  (void)decode_ppm;
  (void)slots;
}
int drill_refused(const world *w, uint32_t provider, uint32_t record_index, uint32_t number) {
  (void)w;
  (void)provider;
  (void)record_index;
  (void)number;
  return 0;
}

/* ---- in the place of simulated time */

static void news_event(world *w, int64_t now, drill_event *out) {
  transfer *t = wire.of[wire.news_first];
  attempt *a = attempt_at(w, t->self);
  *out = (drill_event){.at = now, .kind = EV_SERVICE, .index = a->self, .serial = a->serial};
  if ((t->news & REPLY) != 0) {
    long status = 0;
    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    a->status = (int32_t)status;
    a->reset_us = t->reset_ms * 1000;
    out->kind = EV_ERROR;
    release(w, a);
    return;
  }
  t->news &= ~((t->news & FIRST) != 0 ? (uint32_t)FIRST : (uint32_t)WHOLE);
  if (t->news == 0) {
    t->news = FIRST; /* still in the list */
    forget_news(t);
    t->news = 0;
  }
}

static void note_late(int64_t us) {
  wire.seen.arrivals++;
  wire.seen.late_us += us;
  wire.seen.latest_us = us > wire.seen.latest_us ? us : wire.seen.latest_us;
}

int drill_next_event(world *w, drill_event *out) {
  while (wire.seen.broken[0] == 0) {
    perform();
    const int64_t now = live_now(wire.start);
    if (wire.news_first != NOBODY) {
      news_event(w, now, out);
      return 1;
    }
    if (w->jobs_open == 0 && now >= w->end_at) {
      return 0; /* what is planned now is about nobody */
    }
    if (w->heap.count != 0 && w->heap.event[0].at <= now) {
      (void)drill_heap_pop(&w->heap, out);
      if (out->kind == EV_ARRIVE) {
        note_late(now - out->at); /* happens when it was due: what the machine was late for is the user's wait */
      } else {
        out->at = now;
      }
      return 1;
    }
    const int64_t wait_us = w->heap.count != 0 ? live_until(wire.start, w->heap.event[0].at) : 1000000;
    (void)curl_multi_poll(wire.multi, NULL, 0, (int)(wait_us / 1000) + 1, NULL);
  }
  w->error = FG_ERR_STATE;
  return 0;
}
