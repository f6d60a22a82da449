/* A stream of operations on two calls of one engine, read from the input, with books of our own beside it. The first bytes pick the card and the requests.
 *
 * Oracles: an error leaves fail_closed; what has ended stays ended; no more sends than the budget; no wait beyond what the host or the clock allows; attempts
 * left never grow within a step; only approved routes; no send over a committed or unknown effect, nor over text the user saw; nothing left in flight; and
 * the same input gives the same bytes. */
#include "fg_host.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CARDS = 4, CALLS = 2, OPS = 4, ATTEMPTS = 3, RESENDS = 5, TRACE_MAX = 1024 };

#define PROVIDES "\"provides\":{\"input\":{\"context_tokens\":100000},\"output\":{\"max_tokens\":20000,\"max_tokens_whole\":20000},\"operations\":{\"streaming\":true}}"
#define ROUTE(name, vendor, price)                                                                                                       \
  "\"" name "\":{\"provider\":\"" vendor "\",\"model\":\"m-" name "\",\"account\":\"a-" name "\",\"price\":" price "," PROVIDES "}"
#define PRICE "{\"input\":1,\"cached_input\":0.5,\"output\":4}"
#define BUDGET "\"budget\":{\"total_attempts\":3,\"per_route\":3,\"call_resends\":5,\"elapsed_ms\":60000"
#define HEAD                                                                                                                           \
  "{\"version\":1,\"seed\":11,\"breaker\":{\"consecutive\":3,\"min_calls\":3,\"probe_lease_ms\":2000},\"retry_bucket\":{\"cap\":10,\"start\":3},"    \
  "\"routes\":{" ROUTE("main", "openai", PRICE) "," ROUTE("good", "other", PRICE) "," ROUTE("bad", "third", PRICE) "},\"workflows\":{\"w\":{"
#define TAIL                                                                                                                           \
  "}},\"contracts\":[{\"workflow\":\"w\",\"route\":\"good\",\"fingerprint\":\"%s\",\"approved_by\":\"me\",\"evidence\":{\"fixtures\":\"sha256:0\","       \
  "\"cases\":10,\"passed\":10,\"score_ppm\":990000,\"primary_score_ppm\":990000,\"measured_at\":\"2020-01-01T00:00:00Z\","                       \
  "\"expires_at\":\"2100-01-01T00:00:00Z\"}}]}"
#define LADDER "\"ladder\":[{\"step\":\"shorter\",\"max_tokens\":50},{\"step\":\"cached\",\"max_age_s\":60},{\"step\":\"preset\",\"text\":{\"en\":\"sorry\"}}]"

static const char *const cards[CARDS] = {
    HEAD "\"kind\":\"interactive\",\"routes\":[\"main\",\"good\",\"bad\"]," BUDGET "}," LADDER TAIL,
    HEAD "\"kind\":\"batch\",\"queue\":{\"max_age_ms\":600000},\"routes\":[\"main\",\"good\",\"bad\"]," BUDGET ",\"extra_tokens\":100000}" TAIL,
    HEAD "\"kind\":\"effectful\",\"routes\":[\"main\",\"good\",\"bad\"]," BUDGET ",\"extra_cost_usd\":0.01}," LADDER TAIL,
    HEAD "\"kind\":\"batch\",\"queue\":false,\"after_visible\":\"restart\",\"routes\":[\"main\",\"good\",\"bad\"]," BUDGET "},\"stop_on\":[\"policy\"]," LADDER TAIL,
};
enum { RESTARTS = 3 }; /* the card whose visible text may be taken back */

static int talk;   /* FG_FUZZ_TRACE: say what happens */
static int strict; /* FG_FUZZ_STRICT: also judge effects reported after the decision and before its begin_attempt */
static fg_policy *policy[CARDS];
static uint32_t approved[CARDS][2];

static void die(const char *what) {
  fprintf(stderr, "oracle: %s\n", what);
  abort();
}
#define MUST(cond, what)      \
  do {                        \
    if (!(cond)) {            \
      die(what);              \
    }                         \
  } while (0)

static void load(int i) {
  char text[4096], fingerprint[80] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
  fg_mem mem = fg_host_mem();
  for (int round = 0; round < 2; round++) {
    fg_error err;
    memset(&err, 0, sizeof err);
    err.size = (uint32_t)sizeof err;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(text, sizeof text, cards[i], fingerprint);
#pragma GCC diagnostic pop
    fg_policy_free(policy[i], &mem);
    policy[i] = NULL;
    if (fg_card_load(text, strlen(text), &mem, &policy[i], &err) != FG_OK) {
      fprintf(stderr, "card %d: %s: %s (line %u)\n", i, err.path, err.message, err.line);
      exit(2);
    }
    uint32_t barred = 0;
    fg_str f = {NULL, 0, 0};
    approved[i][0] = fg_policy_find(policy[i], FG_FIND_ROUTE, "main", 4);
    approved[i][1] = fg_policy_find(policy[i], FG_FIND_ROUTE, "good", 4);
    (void)fg_policy_contract(policy[i], 1, approved[i][1], &barred, &f);
    (void)snprintf(fingerprint, sizeof fingerprint, "%.*s", (int)f.len, f.ptr);
  }
}

/* ------------------------------------------------------------------ input */

typedef struct reader { const uint8_t *at, *end; } reader;

static uint32_t take(reader *r) {
  return r->at < r->end ? *r->at++ : 0U;
}

static uint32_t take2(reader *r) {
  uint32_t high = take(r);
  return high << 8 | take(r);
}

/* ------------------------------------------------------------------ books */

enum { OP_NONE, OP_OPEN, OP_COMMITTED, OP_IDEMPOTENT, OP_SETTLED }; /* the last two are for good: nothing is claimed of them */

typedef struct books {
  fg_call call;
  int begun, ended, cancelled, steps, running;
  uint32_t number, sends, resends, attempts_left, max_wait_ms, delivery, streamed;
  int late;       /* a tool was reported between a decision to send and its begin_attempt */
  uint32_t local; /* attempts refused on this side */
  int visible;
  uint8_t op[OPS];
  uint32_t last_action;
} books;

typedef struct world {
  const fg_engine *engine;
  int card;
  int64_t now, high; /* high: the latest now there was */
  books book[CALLS];
  uint64_t trace;   /* hash of every decision and result */
  uint32_t decisions;
} world;

static void note(world *w, const void *bytes, size_t len) {
  const uint8_t *b = bytes;
  for (size_t i = 0; i < len; i++) {
    w->trace = (w->trace ^ b[i]) * UINT64_C(0x100000001b3);
  }
}

static fg_decision decision_new(void) {
  fg_decision d;
  memset(&d, 0xa5, sizeof d);
  d.size = (uint32_t)sizeof d;
  return d;
}

static int sends(const fg_decision *d) {
  switch (d->action) {
  case FG_ACTION_PROCEED:
  case FG_ACTION_RETRY:
  case FG_ACTION_FALLBACK:
  case FG_ACTION_HEDGE:
    return 1;
  case FG_ACTION_DEGRADE:
    return d->ladder_step != FG_STEP_CACHED && d->ladder_step != FG_STEP_PRESET;
  default:
    return 0;
  }
}

static int effect_open(const books *b) {
  for (int i = 0; i < OPS; i++) {
    if (b->op[i] == OP_OPEN || b->op[i] == OP_COMMITTED) {
      return 1;
    }
  }
  return 0;
}

enum { FROM_OTHER, FROM_BEGIN_ATTEMPT, FROM_BEGIN, FROM_STEP, FROM_RESOLVED, FROM_UNABLE };

/* What must hold of any decision, whoever asked for it. */
static void judge(world *w, books *b, int32_t rc, const fg_decision *d, int from) {
  note(w, &rc, sizeof rc);
  if (rc != FG_OK) {
    if (talk) {
      printf("  %lld call %d: error %d\n", (long long)w->now, (int)(b - w->book), rc);
    }
    MUST(rc == FG_ERR_ARG || rc == FG_ERR_STATE || rc == FG_ERR_ABI || rc == FG_ERR_FULL, "an error code that is not documented");
    MUST(d->action == FG_ACTION_FAIL_CLOSED, "an error without fail_closed");
    return;
  }
  note(w, d, sizeof *d);
  w->decisions++;
  if (talk) {
    printf("  %lld call %d: %s route %u %s (%s) wait %u left %u\n", (long long)w->now, (int)(b - w->book), fg_name(FG_TABLE_ACTION, d->action), d->route,
           fg_name(FG_TABLE_REASON, d->reason), fg_name(FG_TABLE_KIND, d->kind), d->wait_ms, d->attempts_left);
  }
  MUST(d->action < FG_ACTION_COUNT && d->reason < FG_REASON_COUNT && d->detail < FG_REASON_COUNT && d->gate < FG_GATE_COUNT, "an unknown number");
  MUST(d->owner < FG_OWNER_COUNT && d->kind < FG_KIND_COUNT && d->lookup < FG_LOOKUP_COUNT && d->ladder_step < FG_STEP_COUNT, "an unknown number");
  MUST((d->change & ~(uint32_t)FG_CHANGE_ALL) == 0 && (d->alert & ~(uint32_t)FG_ALERT_ALL) == 0 && d->rejected_count <= 16, "an unknown bit");
  if (b->ended && from != FROM_RESOLVED) {
    MUST(!sends(d) && d->action != FG_ACTION_HOLD && d->action != FG_ACTION_KEEP_WAITING, "an ended call went on");
  }
  if (b->cancelled) {
    MUST(d->action == FG_ACTION_FAIL_CLOSED || d->action == FG_ACTION_ACCEPT, "a cancelled call went on");
  }
  if (sends(d)) {
    MUST(d->route == approved[w->card][0] || d->route == approved[w->card][1], "a send to a route that is not approved");
    MUST(d->action == FG_ACTION_PROCEED || d->attempts_left >= 1, "a resend without an attempt left");
  }
  if (sends(d) || d->action == FG_ACTION_HOLD) {
    MUST(b->max_wait_ms == 0 || d->wait_ms <= b->max_wait_ms, "a wait longer than the host takes");
    MUST(d->wait_ms <= 120000, "a wait over every cap");
  }
  if (from == FROM_BEGIN || from == FROM_STEP) {
    b->attempts_left = UINT32_MAX;
  }
  MUST(d->attempts_left <= b->attempts_left || d->action == FG_ACTION_ACCEPT, "attempts left grew");
  b->attempts_left = d->attempts_left < b->attempts_left ? d->attempts_left : b->attempts_left;
  b->last_action = d->action;
  if (d->action == FG_ACTION_FAIL_CLOSED) {
    b->ended = 1;
    b->running = 0;
  } else if (from == FROM_RESOLVED || from == FROM_UNABLE || from == FROM_STEP) {
    b->ended = 0;
  }
  if (d->action == FG_ACTION_ACCEPT) {
    b->running = 0;
  }
}

/* The one permission to send. */
static void judge_send(world *w, books *b, const fg_decision *d) {
  if (d->action != FG_ACTION_PROCEED || b->running) {
    return;
  }
  b->running = 1;
  b->number = d->attempt;
  b->sends++;
  b->resends += b->sends > 1;
  MUST(b->local <= 12, "local refusals without an end");
  MUST(b->sends <= ATTEMPTS, "more attempts than total_attempts");
  MUST(b->resends <= RESENDS, "more resends than call_resends");
  MUST(b->sends == 1 || !effect_open(b) || (b->late && !strict), "a send over an open or committed effect");
  MUST(!b->visible || w->card == RESTARTS, "a send over visible text");
  MUST(d->wake_ms > 0, "an attempt nobody wakes up for");
  b->visible = 0;
  b->late = 0;
}

/* -------------------------------------------------------------- operations */

static void begin(world *w, books *b, reader *r) {
  memset(b, 0, sizeof *b);
  fg_request q;
  memset(&q, 0, sizeof q);
  uint32_t pick = take(r);
  q.size = (uint32_t)sizeof q;
  q.workflow.ptr = "w";
  q.workflow.len = 1;
  q.prompt_tokens = take2(r);
  q.max_output_tokens = take(r) * 8;
  q.stream = pick & 1U ? FG_STREAM_NO : FG_STREAM_YES;
  q.delivery = pick & 2U ? FG_DELIVERY_WHOLE : FG_DELIVERY_STREAM;
  q.server_state = pick >> 2 & 7U ? 0 : take(r) % FG_SERVER_STATE_COUNT;
  q.max_wait_ms = pick & 32U ? take2(r) : 0;
  q.unable = pick & 64U ? take2(r) & FG_UNABLE_ALL : 0;
  q.prior_attempts = pick & 128U ? take(r) % 4 : 0;
  b->max_wait_ms = q.max_wait_ms;
  b->streamed = q.stream == FG_STREAM_YES;
  b->delivery = q.delivery;
  b->begun = 1;
  b->sends = 0;
  fg_decision d = decision_new();
  int32_t rc = fg_call_begin(w->engine, &b->call, &q, w->now, &d);
  judge(w, b, rc, &d, FROM_BEGIN);
  if (rc != FG_OK) {
    b->begun = 0;
  }
}

static void begin_attempt(world *w, books *b) {
  fg_decision d = decision_new();
  int32_t rc = fg_call_begin_attempt(w->engine, &b->call, w->now, &d);
  judge(w, b, rc, &d, FROM_BEGIN_ATTEMPT);
  if (rc == FG_OK) {
    judge_send(w, b, &d);
  }
}

static void event(world *w, books *b, reader *r) {
  uint32_t kind = take(r) % (FG_EVENT_COUNT + 1), attempt = take(r) % 3, value = take(r);
  uint32_t number = attempt == 0 ? 0 : attempt == 1 ? b->number : 200;
  int32_t rc = fg_call_event(w->engine, &b->call, number, kind, value, w->now);
  note(w, &rc, sizeof rc);
  if (rc == FG_OK && kind == FG_EVENT_TOKEN && attempt != 2 && b->running && b->streamed && b->delivery == FG_DELIVERY_STREAM) {
    b->visible = 1;
  }
}

static void tool(world *w, books *b, reader *r) {
  static const char *const names[OPS] = {"op-1", "op-2", "op-3", "op-4"};
  uint32_t at = take(r) % OPS, state = take(r) % (FG_TOOL_COUNT + 1), idempotent = take(r) % 4 == 0;
  int32_t rc = fg_call_tool(w->engine, &b->call, 0, names[at], 4, state, idempotent, w->now);
  note(w, &rc, sizeof rc);
  if (talk) {
    printf("  %s %s idempotent %u: %d\n", names[at], state < FG_TOOL_COUNT ? fg_name(FG_TABLE_TOOL, state) : "?", idempotent, rc);
  }
  if (rc != FG_OK || b->ended) {
    return;
  }
  b->late |= !b->running;
  if (idempotent) {
    b->op[at] = OP_IDEMPOTENT;
  }
  if (b->op[at] >= OP_IDEMPOTENT) {
    return;
  }
  if (state == FG_TOOL_FAILED) {
    b->op[at] = b->op[at] == OP_COMMITTED ? OP_COMMITTED : OP_NONE;
  } else if (state == FG_TOOL_STARTED && b->op[at] == OP_NONE) {
    b->op[at] = OP_OPEN;
  } else if (state == FG_TOOL_COMMITTED || state == FG_TOOL_ACKNOWLEDGED) {
    b->op[at] = OP_COMMITTED;
  }
}

static fg_str borrow(const char *z) {
  fg_str s = {z, (uint32_t)strlen(z), 0};
  return s;
}

static void failure(world *w, books *b, reader *r) {
  static const int32_t status[] = {0, 200, 400, 401, 402, 403, 404, 408, 409, 413, 422, 425, 429, 499, 500, 502, 503, 504, 529, 302, 999, -1};
  static const char *const body[] = {
      "",
      "{\"error\":{\"message\":\"Rate limit reached\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}",
      "{\"error\":{\"message\":\"You exceeded your quota\",\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\"}}",
      "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}",
      "{\"error\":{\"message\":\"This model's maximum context length is 8192 tokens\",\"code\":\"context_length_exceeded\"}}",
      "{\"error\":{\"message\":\"blocked\",\"code\":\"content_filter\"}}",
      "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n",
      "{\"error\":", "<html>"};
  static const char *const after[] = {"1", "0", "59", "3600", "-1", "nan", "Wed, 21 Oct 2037 07:28:00 GMT", "9999999999999999999999"};
  static const int32_t code[] = {0, 7, 28, 35, 52, 55, 56, 92, 18, 42};
  static const uint32_t clocks[] = {0, 0, 0, FG_KIND_FIRST_TOKEN_TIMEOUT, FG_KIND_IDLE_TIMEOUT, FG_KIND_PROGRESS_TIMEOUT, FG_KIND_TOTAL_TIMEOUT};
  fg_header h = {borrow("retry-after"), borrow(after[take(r) % 8])};
  fg_evidence v;
  memset(&v, 0, sizeof v);
  v.size = (uint32_t)sizeof v;
  uint32_t pick = take(r);
  v.phase = take(r) % (FG_PHASE_COUNT + 1);
  v.status = status[take(r) % (sizeof status / sizeof status[0])];
  v.body = borrow(body[take(r) % (sizeof body / sizeof body[0])]);
  v.code = code[take(r) % (sizeof code / sizeof code[0])];
  v.timeout = clocks[take(r) % (sizeof clocks / sizeof clocks[0])];
  if (v.code != 0) {
    v.lib = borrow("libcurl");
  }
  if (pick & 1U) {
    v.headers = &h;
    v.header_count = 1;
  }
  v.flags = (pick & 2U ? FG_EV_PROGRESS : 0U) | (pick & 12U ? 0U : FG_EV_CLIENT_GONE) | (pick & 48U ? 0U : FG_EV_LOCAL);
  v.visible = pick & 64U ? take(r) : 0;
  v.inner_attempts = pick & 128U ? take(r) % 4 : 0;
  uint32_t number = take(r) % 4 == 0 ? b->number + 7 : 0; /* of no attempt, or the latest */
  int was_running = b->running && number == 0;
  fg_decision d = decision_new();
  int32_t rc = fg_call_failure(w->engine, &b->call, number, &v, w->now, &d);
  if (rc == FG_OK && was_running && d.owner == FG_OWNER_LOCAL) { /* refused on this side: no attempt is counted */
    b->attempts_left = UINT32_MAX;
    b->resends -= b->resends > 0;
    b->sends--;
    b->local++;
  }
  if (rc == FG_OK && was_running) {
    b->running = 0;
    if (v.visible != 0 && (v.flags & FG_EV_PROGRESS) != 0 && b->streamed && b->delivery == FG_DELIVERY_STREAM) {
      b->visible = 1;
    }
  }
  judge(w, b, rc, &d, FROM_OTHER);
}

static void success(world *w, books *b, reader *r) {
  fg_answer a;
  memset(&a, 0, sizeof a);
  uint32_t pick = take(r);
  a.size = (uint32_t)sizeof a;
  a.finish = take(r) % (FG_FINISH_COUNT + 1);
  a.output_tokens = pick & 1U ? take(r) : 0;
  a.prompt_tokens = pick & 2U ? take2(r) : 0;
  a.visible = pick & 4U ? 1 : 0;
  a.cost_nusd = pick & 8U ? (int64_t)take2(r) * 1000 : 0;
  a.flags = pick >> 4 & 3U;
  a.output = borrow(pick & 64U ? "{}" : "");
  fg_tool_call call = {borrow("id"), borrow("tool"), borrow(pick & 32U ? "{\"a\":" : "{\"a\":1}")};
  if (pick & 128U) {
    a.tool_calls = &call;
    a.tool_call_count = 1;
  }
  fg_decision d = decision_new();
  int32_t rc = fg_call_success(w->engine, &b->call, 0, &a, w->now, &d);
  if (rc == FG_OK && d.action != FG_ACTION_ACCEPT) {
    b->running = 0;
  }
  judge(w, b, rc, &d, FROM_OTHER);
}

static void deadline(world *w, books *b) {
  fg_decision d = decision_new();
  int32_t rc = fg_call_deadline(w->engine, &b->call, w->now, &d);
  if (rc == FG_OK && d.action != FG_ACTION_KEEP_WAITING && d.cancel != 0) {
    b->running = 0;
  }
  judge(w, b, rc, &d, FROM_OTHER);
}

static void step(world *w, books *b, reader *r) {
  fg_decision d = decision_new();
  int accepted = b->last_action == FG_ACTION_ACCEPT && !b->ended;
  uint32_t prompt = take2(r), output = take(r);
  int32_t rc = fg_call_step(w->engine, &b->call, prompt, output, w->now, &d);
  if (rc == FG_OK && accepted) {
    b->sends = 0;
    b->resends = 0; /* counted by the engine over all steps; ours only over one */
    b->visible = 0;
    for (int i = 0; i < OPS; i++) {
      b->op[i] = b->op[i] == OP_COMMITTED ? OP_NONE : b->op[i]; /* held by the checkpoint; what is open stays open */
    }
    judge(w, b, rc, &d, FROM_STEP);
    return;
  }
  judge(w, b, rc, &d, FROM_OTHER);
}

static void resolved(world *w, books *b, reader *r) {
  static const char *const names[OPS] = {"op-1", "op-2", "op-3", "op-4"};
  uint32_t at = take(r) % OPS, effect = take(r) % 4;
  fg_decision d = decision_new();
  int32_t rc = fg_call_resolved(w->engine, &b->call, names[at], 4, effect, w->now, &d);
  if (rc == FG_OK) {
    b->late |= !b->running;
    b->op[at] = b->op[at] == OP_IDEMPOTENT ? OP_IDEMPOTENT : effect == FG_EFFECT_COMMITTED ? OP_COMMITTED : OP_SETTLED;
  }
  judge(w, b, rc, &d, FROM_RESOLVED);
}

static void cancel(world *w, books *b) {
  int was_over = b->ended; /* then a cancel changes nothing: a look-up may still reopen the call */
  fg_decision d = decision_new();
  int32_t rc = fg_call_cancel(w->engine, &b->call, w->now, &d);
  if (rc == FG_OK && d.action == FG_ACTION_FAIL_CLOSED && !was_over) {
    b->cancelled = 1;
  }
  judge(w, b, rc, &d, FROM_OTHER);
}

static void unable(world *w, books *b, reader *r) {
  uint32_t what = take2(r);
  fg_decision d = decision_new();
  int32_t rc = fg_call_unable(w->engine, &b->call, what & (FG_UNABLE_ALL | 1U << 12), w->now, &d);
  judge(w, b, rc, &d, FROM_UNABLE);
}

static void usage(world *w, books *b, reader *r) {
  fg_answer a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.output_tokens = take2(r);
  a.prompt_tokens = take2(r);
  a.flags = take(r) & 3U;
  int32_t rc = fg_call_usage(w->engine, &b->call, take(r) % 3, &a, w->now);
  note(w, &rc, sizeof rc);
}

static void look(world *w, books *b) {
  char text[2048];
  fg_decision d = decision_new();
  int32_t rc = fg_call_decision(w->engine, &b->call, &d);
  MUST(rc == FG_OK, "the latest decision cannot be asked for again");
  uint32_t n = fg_explain(w->engine, &b->call, &d, text, sizeof text);
  MUST(n > 0 && memchr(text, 0, sizeof text) != NULL, "an explanation without an end");
  note(w, text, strlen(text));
  n = fg_ledger_line(w->engine, &b->call, &d, FG_LINE_DECISION, w->now, text, sizeof text);
  MUST(memchr(text, 0, sizeof text) != NULL, "a ledger line without an end");
  note(w, &n, sizeof n);
  fg_served served = {.size = sizeof served, .response_id = {text, (uint32_t)strlen(text), 0}, .request_id = borrow("req_1")};
  char again[2048];
  n = fg_ledger_served(w->engine, &b->call, &d, &served, w->now, again, sizeof again);
  MUST(memchr(again, 0, sizeof again) != NULL, "a ledger line without an end");
  note(w, &n, sizeof n);
}

static void clock_op(world *w, reader *r) {
  uint32_t how = take(r), by = take2(r);
  switch (how % 4) {
  case 0:
    w->now += by;
    break;
  case 1:
    w->now += (int64_t)(by % 200);
    break;
  case 2:
    w->now -= (int64_t)(by % 2000) * (how & 64U ? 900 : 1); /* back, up to half an hour */
    break;
  default:
    w->now += how & 64U ? (int64_t)by * 3000 : by / 16; /* forward, up to two days */
    break;
  }
}

static void drop(world *w, books *b) {
  MUST(fg_call_end(w->engine, &b->call) == FG_OK && fg_call_end(w->engine, &b->call) == FG_OK, "a call cannot be dropped");
  b->begun = 0;
}

static void operate(world *w, reader *r) {
  uint32_t op = take(r);
  books *b = &w->book[op >> 7];
  op &= 31U;
  if (talk) {
    printf("op %u, call %d\n", op, (int)(b - w->book));
  }
  if (!b->begun && op != 1) {
    begin(w, b, r);
    return;
  }
  switch (op) {
  case 0:
  case 2:
  case 3:
    begin_attempt(w, b);
    break;
  case 1:
    clock_op(w, r);
    break;
  case 4:
  case 5:
  case 6:
    event(w, b, r);
    break;
  case 7:
  case 8:
    tool(w, b, r);
    break;
  case 9:
  case 10:
  case 11:
  case 12:
    failure(w, b, r);
    break;
  case 13:
  case 14:
    success(w, b, r);
    break;
  case 15:
  case 16:
    deadline(w, b);
    break;
  case 17:
    step(w, b, r);
    break;
  case 18:
    resolved(w, b, r);
    break;
  case 19:
    cancel(w, b);
    break;
  case 20:
    unable(w, b, r);
    break;
  case 21:
    usage(w, b, r);
    break;
  case 22:
    look(w, b);
    break;
  case 23:
    drop(w, b);
    break;
  case 24: { /* another place in memory: no pointer may be inside */
    fg_call moved = b->call;
    memset(&b->call, 0xee, sizeof b->call);
    b->call = moved;
    break;
  }
  case 25:
    (void)fg_engine_tick(w->engine, w->now);
    break;
  default:
    begin_attempt(w, b);
    break;
  }
}

static uint64_t play(const uint8_t *data, size_t size, uint8_t *region, uint64_t region_bytes, const fg_region_config *c) {
  reader r = {data, data + size};
  world w;
  memset(&w, 0, sizeof w);
  w.card = (int)(take(&r) % CARDS);
  w.now = 10000000;
  w.trace = UINT64_C(0xcbf29ce484222325);
  memset(region, 0, region_bytes);
  fg_region *reg = NULL;
  MUST(fg_region_open(region, region_bytes, c, w.now, &reg, NULL) == FG_OK, "no region");
  static _Alignas(64) uint8_t memory[65536];
  fg_engine *e = NULL;
  MUST(fg_engine_bytes(policy[w.card]) <= sizeof memory, "an engine larger than 64 KiB");
  MUST(fg_engine_init(memory, sizeof memory, policy[w.card], reg, 0, 5, w.now, &e, NULL) == FG_OK, "no engine");
  MUST(fg_engine_clock(e, INT64_C(1790000000000), w.now) == FG_OK, "no wall clock");
  w.engine = e;
  for (int i = 0; r.at < r.end && i < TRACE_MAX; i++) {
    operate(&w, &r);
    w.high = w.now > w.high ? w.now : w.high;
  }
  for (int i = 0; i < CALLS; i++) {
    if (w.book[i].begun) {
      drop(&w, &w.book[i]);
    }
  }
  for (uint32_t route = 1; route <= 3; route++) {
    fg_route_view v;
    memset(&v, 0, sizeof v);
    v.size = (uint32_t)sizeof v;
    MUST(fg_engine_route(e, route, w.high > 10000000 ? w.high : 10000000, &v) == FG_OK, "no route view");
    MUST(v.in_flight == 0 && v.retries == 0, "something is left in flight");
  }
  return w.trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t *region;
  static uint64_t region_bytes;
  static fg_region_config c;
  if (region == NULL) {
    talk = getenv("FG_FUZZ_TRACE") != NULL;
    strict = getenv("FG_FUZZ_STRICT") != NULL;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < CARDS; i++) {
      load(i);
    }
    c.size = (uint32_t)sizeof c;
    c.routes = 4;
    c.accounts = 4;
    c.workflows = 2;
    c.procs = 8;
    c.rows = 4;
    c.boot[0] = 1;
    region_bytes = fg_region_bytes(&c);
    region = aligned_alloc(64, (region_bytes + 63) / 64 * 64);
    MUST(region != NULL, "no memory");
  }
  uint64_t first = play(data, size, region, region_bytes, &c);
  MUST(play(data, size, region, region_bytes, &c) == first, "the same input gave other bytes");
  return 0;
}
