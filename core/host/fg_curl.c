/* The loop: decide, wait, ask permission, send, report, decide. */
#include "fg_curl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fg_curl_transfer.h"
#include "fg_host.h"

enum {
  IDLE_ROUNDS = 100, /* decisions in a row without a send or a wait: something is wrong */
  GRACE_MS = 2000, /* for what follows the end of a stream: usage, the end of the body */
  ASK_AGAIN_MS = 20,
  POLL_MAX_MS = 60000
};

struct fg_curl {
  CURLM *multi;
  _Atomic int cancelled;
};

typedef struct run { /* of one job */
  fg_curl *h;
  const fg_curl_job *job;
  fg_curl_result *out;
  fg_transfer *last; /* the latest attempt's, kept for its body */
  fg_str stand_in;   /* a cached answer, or a preset text */
} run;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int ready;

static void set_up(void) {
  ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

fg_curl *fg_curl_new(void) {
  (void)pthread_once(&once, set_up);
  fg_curl *h = ready ? calloc(1, sizeof *h) : NULL;
  if (h == NULL) {
    return NULL;
  }
  h->multi = curl_multi_init();
  if (h->multi == NULL) {
    free(h);
    return NULL;
  }
  return h;
}

void fg_curl_free(fg_curl *h) {
  if (h != NULL) {
    (void)curl_multi_cleanup(h->multi);
    free(h);
  }
}

void fg_curl_cancel(fg_curl *h) {
  atomic_store(&h->cancelled, 1);
  (void)curl_multi_wakeup(h->multi);
}

void fg_curl_result_free(fg_curl_result *r) {
  if (r != NULL) {
    free(r->body);
    r->body = NULL;
    r->body_len = 0;
  }
}

static fg_decision decision_new(void) {
  fg_decision d;
  memset(&d, 0, sizeof d);
  d.size = (uint32_t)sizeof d;
  return d;
}

static int cancelled(run *r) {
  return atomic_load(&r->h->cancelled);
}

/* Tells the caller what was decided. */
static int32_t decided(run *r, int32_t rc, const fg_decision *d) {
  if (rc == FG_OK && r->job->decided != NULL) {
    r->job->decided(r->job->ctx, d, fg_host_now_ms());
  }
  return rc;
}

static int32_t cancel(run *r, fg_decision *d) {
  return decided(r, fg_call_cancel(r->job->engine, r->job->call, fg_host_now_ms(), d), d);
}

/* Sleeps; 0 when the caller left meanwhile. */
static int wait_for(run *r, uint32_t ms) {
  int64_t until = fg_host_now_ms() + ms;
  for (;;) {
    if (cancelled(r)) {
      return 0;
    }
    int64_t left = until - fg_host_now_ms();
    if (left <= 0) {
      return 1;
    }
    int step = left > POLL_MAX_MS ? POLL_MAX_MS : (int)left;
    (void)curl_multi_poll(r->h->multi, NULL, 0, step, NULL);
  }
}

/* ----------------------------------------------------------- one transfer */

static int64_t earlier(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* When to look at the clocks next: the engine's own wish, or one of the attempt's clocks that events have moved. */
static int64_t next_look(const fg_transfer *t, const fg_decision *d, int64_t wake_ms) {
  if (t->ended) {
    return t->ended_ms + GRACE_MS;
  }
  int64_t at = wake_ms;
  if (d->total_ms != 0) {
    at = earlier(at, t->started_ms + d->total_ms);
  }
  if (t->first_byte_ms != 0 && d->idle_ms != 0) {
    at = earlier(at, t->last_byte_ms + d->idle_ms);
  }
  if (t->last_progress_ms != 0 && d->progress_ms != 0) {
    at = earlier(at, t->last_progress_ms + d->progress_ms);
  }
  return at;
}

static int64_t wake_at(const fg_decision *d, int64_t now_ms) {
  uint32_t after = d->wake_ms != 0 ? d->wake_ms : d->wait_ms;
  return now_ms + (after != 0 ? after : POLL_MAX_MS);
}

static int is_done(CURLM *multi, const CURL *easy, CURLcode *rc) {
  CURLMsg *m;
  int left = 0;
  while ((m = curl_multi_info_read(multi, &left)) != NULL) {
    if (m->msg == CURLMSG_DONE && m->easy_handle == easy) {
      *rc = m->data.result;
      return 1;
    }
  }
  return 0;
}

/* Success or failure, to the engine. */
static int32_t settle(run *r, fg_transfer *t, const fg_route_info *route, CURLcode rc, fg_decision *d) {
  const fg_curl_job *job = r->job;
  int64_t now_ms = fg_host_now_ms();
  if (fg_transfer_is_good(t, rc)) {
    fg_answer a;
    fg_transfer_answer(t, &a);
    if (job->answer != NULL) {
      job->answer(job->ctx, t->body != NULL ? t->body : "", t->body_len, &a);
    }
    int32_t result = fg_call_success(job->engine, job->call, t->attempt, &a, now_ms, d);
    if (result == FG_OK && d->action == FG_ACTION_ACCEPT) {
      r->out->answer = a;
      r->out->answer.tool_calls = NULL;
      r->out->answer.tool_call_count = 0;
      memset(&r->out->answer.output, 0, sizeof a.output);
    }
    return result;
  }
  fg_evidence v;
  fg_transfer_evidence(t, rc, route, &v);
  return fg_call_failure(job->engine, job->call, t->attempt, &v, now_ms, d);
}

/* Drives the transfer until it is over or given up; *d is the next decision. */
static int32_t drive(run *r, fg_transfer *t, const fg_route_info *route, fg_decision *d) {
  CURLM *multi = r->h->multi;
  fg_decision clocks = *d;
  int64_t wake_ms = wake_at(d, t->started_ms);
  int64_t quiet_until = 0;
  CURLcode rc = CURLE_OK;
  for (;;) {
    int running = 0;
    if (curl_multi_perform(multi, &running) != CURLM_OK) {
      rc = CURLE_OUT_OF_MEMORY;
      break;
    }
    if (is_done(multi, t->easy, &rc)) {
      break;
    }
    if (cancelled(r)) {
      return cancel(r, d);
    }
    int64_t now_ms = fg_host_now_ms();
    int64_t at = next_look(t, &clocks, wake_ms);
    at = at < quiet_until ? quiet_until : at;
    if (now_ms >= at) {
      if (t->ended) {
        break;
      }
      int32_t result = fg_call_deadline(r->job->engine, r->job->call, now_ms, d);
      if (result != FG_OK || d->action != FG_ACTION_KEEP_WAITING) {
        return decided(r, result, d);
      }
      wake_ms = wake_at(d, now_ms);
      quiet_until = now_ms + ASK_AGAIN_MS;
      continue;
    }
    int64_t left = at - now_ms;
    (void)curl_multi_poll(multi, NULL, 0, left > POLL_MAX_MS ? POLL_MAX_MS : (int)left, NULL);
  }
  if (cancelled(r)) {
    return cancel(r, d);
  }
  return decided(r, settle(r, t, route, rc, d), d);
}

/* An attempt the engine permitted. */
static int32_t send_one(run *r, fg_decision *d) {
  const fg_curl_job *job = r->job;
  fg_route_info route;
  memset(&route, 0, sizeof route);
  route.size = (uint32_t)sizeof route;
  int32_t rc = fg_policy_route_info(job->policy, d->route, &route);
  if (rc != FG_OK) {
    return rc;
  }
  fg_curl_request request;
  memset(&request, 0, sizeof request);
  if (job->build(job->ctx, d, &route, &request) != 0 || request.url == NULL) {
    return cancel(r, d);
  }
  if (r->last != NULL) {
    fg_transfer_free(r->last);
  }
  fg_transfer *t = calloc(1, sizeof *t);
  r->last = t;
  if (t == NULL || !fg_transfer_start(t, job, &request, &route, d) || curl_multi_add_handle(r->h->multi, t->easy) != CURLM_OK) {
    (void)cancel(r, d);
    return FG_ERR_NOMEM;
  }
  rc = drive(r, t, &route, d);
  (void)curl_multi_remove_handle(r->h->multi, t->easy);
  r->out->status = t->status;
  r->out->sent += t->sends;
  return rc;
}

/* --------------------------------------------------------------- the loop */

enum { STEP_SEND, STEP_STAND_IN, STEP_END };

static int next_step(const fg_decision *d) {
  switch (d->action) {
  case FG_ACTION_PROCEED:
  case FG_ACTION_RETRY:
  case FG_ACTION_FALLBACK:
  case FG_ACTION_HOLD:
    return STEP_SEND;
  case FG_ACTION_DEGRADE:
    return d->ladder_step == FG_STEP_CACHED || d->ladder_step == FG_STEP_PRESET ? STEP_STAND_IN : STEP_SEND;
  default:
    return STEP_END;
  }
}

/* A degraded answer that needs no request. Returns 1 when it was had; else the engine was asked again. */
static int stand_in(run *r, fg_decision *d, int32_t *rc) {
  const fg_curl_job *job = r->job;
  const fg_request *q = job->request;
  if (d->ladder_step == FG_STEP_PRESET && fg_policy_preset(job->policy, d->text, q->language.ptr, q->language.len, &r->stand_in) == FG_OK) {
    return 1;
  }
  if (d->ladder_step == FG_STEP_CACHED && job->cached != NULL && job->cached(job->ctx, d->max_age_s, &r->stand_in)) {
    return 1;
  }
  uint32_t what = d->ladder_step == FG_STEP_CACHED ? FG_UNABLE_CACHE : FG_UNABLE_PRESET;
  *rc = decided(r, fg_call_unable(job->engine, job->call, what, fg_host_now_ms(), d), d);
  return 0;
}

static int32_t loop(run *r, fg_decision *d) {
  const fg_curl_job *job = r->job;
  fg_request q;
  memset(&q, 0, sizeof q);
  memcpy(&q, job->request, job->request->size < sizeof q ? job->request->size : sizeof q);
  q.unable |= FG_UNABLE_HEDGE | (job->cached == NULL ? FG_UNABLE_CACHE : 0U) | (job->clear == NULL ? FG_UNABLE_CLEAR : 0U);
  int32_t rc = decided(r, fg_call_begin(job->engine, job->call, &q, fg_host_now_ms(), d), d);
  for (int idle = 0; rc == FG_OK && idle < IDLE_ROUNDS; idle++) {
    int step = next_step(d);
    if (step == STEP_END || (step == STEP_STAND_IN && stand_in(r, d, &rc))) {
      break;
    }
    if (step != STEP_SEND) {
      continue;
    }
    if ((d->change & FG_CHANGE_CLEAR_SHOWN) != 0 && job->clear != NULL) {
      job->clear(job->ctx);
    }
    idle = d->wait_ms > 0 ? 0 : idle;
    if (!wait_for(r, d->wait_ms)) {
      rc = cancel(r, d);
      break;
    }
    rc = decided(r, fg_call_begin_attempt(job->engine, job->call, fg_host_now_ms(), d), d);
    if (rc == FG_OK && d->action == FG_ACTION_PROCEED) {
      rc = send_one(r, d);
      idle = 0;
    }
  }
  return rc;
}

static int copy_text(fg_curl_result *out, fg_str s) {
  out->body = malloc((size_t)s.len + 1);
  if (out->body == NULL) {
    return 0;
  }
  memcpy(out->body, s.len > 0 ? s.ptr : "", s.len);
  out->body[s.len] = 0;
  out->body_len = s.len;
  return 1;
}

static int32_t hand_over(run *r, int32_t rc) {
  fg_transfer *t = r->last;
  if (r->stand_in.ptr != NULL) {
    if (!copy_text(r->out, r->stand_in)) {
      rc = FG_ERR_NOMEM;
    }
  } else if (t != NULL) {
    r->out->body = t->body;
    r->out->body_len = t->body_len;
    r->out->truncated = t->body_truncated;
    t->body = NULL;
  }
  if (t != NULL) {
    fg_transfer_free(t);
  }
  return rc;
}

int32_t fg_curl_run(fg_curl *h, const fg_curl_job *job, fg_curl_result *out) {
  if (out == NULL) {
    return FG_ERR_ARG;
  }
  memset(out, 0, sizeof *out);
  out->decision = decision_new();
  if (h == NULL || job == NULL || job->engine == NULL || job->policy == NULL || job->call == NULL || job->request == NULL || job->build == NULL) {
    return FG_ERR_ARG;
  }
  run r = {h, job, out, NULL, {NULL, 0, 0}};
  fg_decision d = decision_new();
  int32_t rc = loop(&r, &d);
  (void)fg_call_end(job->engine, job->call);
  out->decision = d;
  rc = hand_over(&r, rc);
  if (rc != FG_OK) {
    out->decision.action = FG_ACTION_FAIL_CLOSED;
  }
  atomic_store(&h->cancelled, 0);
  return rc;
}
