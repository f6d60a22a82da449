/* World A: one call; a primary, an approved stand-in, an unapproved one, an approved one the request does not fit. Every sequence of
 * operations to a depth (default 6; meson.build has the full one). Usage: world_a [DEPTH].
 *
 * The oracle's laws, from what was sent and done, never from the engine's answers:
 *   no send to the unapproved or the unfit route; at most 3 attempts a step and 2 sent on one route; no send after visible text, an
 *   unresolved or a committed effect in the same step; none after a dead key; none to another budget after a spent quota; none earlier
 *   than a server's wait allows on that route; none after the step's time is over; none once the call has ended; every call ends; same
 *   state and operation, same bytes. */
#include "seen.h"

enum { ROUTE_P = 1, ROUTE_F = 2, ROUTE_U = 3, ROUTE_X = 4 };
enum { TOTAL = 3, PER_ROUTE = 2, ELAPSED = 20000, HINT = 2000, END_ROUNDS = 40, MAX_DEPTH = 12, SAID = 5 };

static const char CARD[] =
    "{\"version\":1,\"routes\":{"
    "\"p\":{\"provider\":\"openai\",\"model\":\"m\",\"account\":\"one\",\"price\":{\"input\":1,\"output\":2}},"
    "\"f\":{\"provider\":\"azure-openai\",\"model\":\"m\",\"account\":\"two\",\"price\":{\"input\":1,\"output\":2},"
    "\"provides\":{\"input\":{\"context_tokens\":100000},\"output\":{\"max_tokens\":9000}}},"
    "\"u\":{\"provider\":\"other\",\"model\":\"m\",\"account\":\"three\",\"price\":{\"input\":1,\"output\":2},"
    "\"provides\":{\"input\":{\"context_tokens\":100000},\"output\":{\"max_tokens\":9000}}},"
    "\"x\":{\"provider\":\"small\",\"model\":\"s\",\"account\":\"four\",\"price\":{\"input\":1,\"output\":2},"
    "\"provides\":{\"input\":{\"context_tokens\":500},\"output\":{\"max_tokens\":9000}}}},"
    "\"workflows\":{\"w\":{\"order\":\"card\",\"routes\":[\"p\",\"u\",\"x\",\"f\"],\"budget\":{\"total_attempts\":3,\"per_route\":2,\"elapsed_ms\":20000,"
    "\"extra_tokens\":100000,\"extra_cost_usd\":1},\"ladder\":[{\"step\":\"preset\",\"text\":{\"en\":\"later\"}}]}},"
    "\"contracts\":[{\"workflow\":\"w\",\"route\":\"f\",\"fingerprint\":\"auto\",\"approved_by\":\"ops\",\"evidence\":{\"fixtures\":"
    "\"sha256:abababababababababababababababababababababababababababababababab\",\"cases\":10,\"passed\":10,\"score_ppm\":990000,"
    "\"primary_score_ppm\":990000,\"measured_at\":\"2026-11-01T00:00:00Z\",\"expires_at\":\"2027-02-01T00:00:00Z\"}},"
    "{\"workflow\":\"w\",\"route\":\"x\",\"fingerprint\":\"auto\",\"approved_by\":\"ops\",\"evidence\":{\"fixtures\":"
    "\"sha256:abababababababababababababababababababababababababababababababab\",\"cases\":10,\"passed\":10,\"score_ppm\":990000,"
    "\"primary_score_ppm\":990000,\"measured_at\":\"2026-11-01T00:00:00Z\",\"expires_at\":\"2027-02-01T00:00:00Z\"}}]}";

enum op {
  ATTEMPT, WAIT, SENT, ACCEPTED, TOKEN, TOOL_STARTED, TOOL_COMMITTED, STEP, REFUSED, RATE, QUOTA, ERROR_500, SILENT, CUT, AUTH, SUCCESS, CANCEL,
  UNDONE, DONE, NO_PRESET, OPS
};
static const char *const NAME[OPS] = {"attempt", "wait",  "sent",      "accepted", "token", "tool_started", "tool_committed", "step",   "refused",
                                      "429+2s",  "quota", "error 500", "silent",   "cut",   "401",          "success",        "cancel",
                                      "resolved: none", "resolved: committed", "unable: preset"};

typedef struct books { /* the oracle's */
  uint8_t running, route, attempts, sent[5], shown, started, committed, dead_key, no_other_budget, ended, answered, was_sent, is_new, cancelled, settled; /* settled: a look-up said committed; later, smaller reports are ignored */
  int64_t step_at, not_before[5];
} books;

typedef struct node { fg_call call; books b; fg_decision d; int64_t now; } node;

static world W;
static tally T;
static uint8_t path[MAX_DEPTH];
static uint8_t *saved[MAX_DEPTH + 1];
static uint32_t depth_max = 6;
static seen states;

static void violation(uint32_t depth, const char *law, const fg_decision *d) {
  uint32_t i;
  if (T.violations++ < SAID) {
    fprintf(stderr, "\nviolation: %s (route %u, attempt %u), after:", law, d->route, d->attempt);
    for (i = 0; i < depth; i++) {
      fprintf(stderr, " %s,", NAME[path[i]]);
    }
    fprintf(stderr, "\n");
  }
}

/* The engine gave permission to send: by the oracle's books, may it? */
static void on_send(node *n, uint32_t depth) {
  books *b = &n->b;
  const fg_decision *d = &n->d;
  const uint32_t r = d->route;
  if (r != ROUTE_P && r != ROUTE_F) {
    violation(depth, r == ROUTE_U ? "sent to an unapproved route" : r == ROUTE_X ? "sent to an unfit route" : "sent nowhere", d);
  }
  if (b->ended) {
    violation(depth, "sent after the end", d);
  }
  if (b->running) {
    violation(depth, "sent while an attempt runs", d);
  }
  if (b->attempts >= TOTAL) {
    violation(depth, "more attempts than the budget", d);
  }
  if (r < 5 && b->sent[r] >= PER_ROUTE) {
    violation(depth, "more sends on a route than the budget", d);
  }
  if (!b->is_new && b->shown) {
    violation(depth, "sent again after visible text", d);
  }
  if (!b->is_new && b->committed) {
    violation(depth, "sent again after a committed effect", d);
  }
  if (!b->is_new && b->started) {
    violation(depth, "sent again over an unknown effect", d);
  }
  if (b->dead_key) {
    violation(depth, "sent after a dead key", d);
  }
  if (b->no_other_budget) {
    violation(depth, "moved to another budget unasked", d);
  }
  if (r < 5 && n->now < b->not_before[r]) {
    violation(depth, "sent earlier than the server's wait", d);
  }
  if (n->now - b->step_at >= ELAPSED) {
    violation(depth, "sent after the step's time", d);
  }
  b->running = 1;
  b->is_new = 0;
  b->was_sent = 0;
  b->route = (uint8_t)r;
  b->attempts++;
  if (r < 5) {
    b->sent[r]++;
  }
}

static void on_end_of_attempt(books *b) {
  b->running = 0;
}

static fg_evidence evidence(uint32_t phase, int32_t status, const char *body) {
  fg_evidence v;
  memset(&v, 0, sizeof v);
  v.size = sizeof v;
  v.phase = phase;
  v.status = status;
  v.body = world_str(body);
  return v;
}

static int legal(const books *b, enum op op, const fg_decision *d) {
  switch (op) {
  case ATTEMPT:
    return !b->running && !b->ended && !b->answered;
  case WAIT:
    return b->running || d->wait_ms != 0;
  case STEP:
    return b->answered;
  case TOOL_STARTED:
  case TOOL_COMMITTED:
    return !b->ended; /* tools report when they like */
  case CANCEL:
    return !b->ended && !b->answered;
  case UNDONE:
  case DONE: /* a look-up of the operation that was started */
    return b->started && !b->running;
  case NO_PRESET:
    return d->action == FG_ACTION_DEGRADE && d->ladder_step == FG_STEP_PRESET;
  default: /* hosts forget events and repeat them: every order is legal while an attempt runs */
    return b->running;
  }
}

/* Performs one operation on engine and books. */
static void act(node *n, enum op op, uint32_t depth) {
  static const fg_header hint[1] = {{{"retry-after", 11, 0}, {"2", 1, 0}}};
  fg_call *c = &n->call;
  books *b = &n->b;
  fg_evidence v;
  fg_answer a;
  T.operations++;
  n->d.size = sizeof n->d;
  switch (op) {
  case ATTEMPT:
    (void)fg_call_begin_attempt(W.engine, c, n->now, &n->d);
    if (n->d.action == FG_ACTION_PROCEED) {
      on_send(n, depth);
    }
    break;
  case WAIT: /* to the next moment that matters */
    n->now += b->running ? (n->d.wake_ms != 0 ? n->d.wake_ms : 1000) : n->d.wait_ms;
    if (b->running) {
      (void)fg_call_deadline(W.engine, c, n->now, &n->d);
      if (n->d.action != FG_ACTION_KEEP_WAITING) {
        on_end_of_attempt(b);
      }
    } else {
      n->d.wait_ms = 0;
    }
    return;
  case SENT:
    b->was_sent = 1;
    (void)fg_call_event(W.engine, c, 0, FG_EVENT_SENT, 0, n->now);
    return;
  case ACCEPTED:
    b->was_sent = 1;
    (void)fg_call_event(W.engine, c, 0, FG_EVENT_ACCEPTED, 0, n->now);
    return;
  case TOKEN:
    b->was_sent = 1;
    b->shown = 1;
    (void)fg_call_event(W.engine, c, 0, FG_EVENT_TOKEN, 1, n->now);
    return;
  case TOOL_STARTED:
    b->started |= !b->settled;
    (void)fg_call_tool(W.engine, c, 0, "one", 3, FG_TOOL_STARTED, 0, n->now);
    return;
  case TOOL_COMMITTED:
    b->committed = 1;
    (void)fg_call_tool(W.engine, c, 0, "two", 3, FG_TOOL_COMMITTED, 0, n->now);
    return;
  case STEP:
    (void)fg_call_step(W.engine, c, 0, 0, n->now, &n->d);
    b->answered = 0;
    b->is_new = 1;
    b->attempts = 0;
    memset(b->sent, 0, sizeof b->sent);
    b->shown = 0;
    b->settled = 0;
    b->committed = 0; /* held; an unresolved effect stays */
    b->step_at = n->now;
    return;
  case SUCCESS:
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.finish = FG_FINISH_STOP;
    a.prompt_tokens = 900;
    a.output_tokens = 20;
    a.output = world_str("fine");
    a.flags = FG_ANSWER_OUTPUT_KNOWN | FG_ANSWER_USAGE_FINAL;
    (void)fg_call_success(W.engine, c, 0, &a, n->now, &n->d);
    if (n->d.action != FG_ACTION_ACCEPT) {
      violation(depth, "a good answer was not accepted", &n->d);
    }
    on_end_of_attempt(b);
    b->answered = 1;
    return;
  case UNDONE:
  case DONE:
    (void)fg_call_resolved(W.engine, c, "one", 3, op == DONE ? FG_EFFECT_COMMITTED : FG_EFFECT_NONE, n->now, &n->d);
    b->started = 0;
    b->committed |= op == DONE;
    b->settled = op == DONE;
    b->ended = b->cancelled;
    break;
  case NO_PRESET:
    (void)fg_call_unable(W.engine, c, FG_UNABLE_PRESET, n->now, &n->d);
    break;
  case CANCEL:
    (void)fg_call_cancel(W.engine, c, n->now, &n->d);
    on_end_of_attempt(b);
    b->ended = b->cancelled = 1;
    break;
  default:
    v = evidence(FG_PHASE_RESPONSE, 500, "{\"error\":{\"type\":\"server_error\",\"message\":\"oops\"}}");
    if (op == REFUSED) {
      v = evidence(FG_PHASE_CONNECT, 0, "");
      v.lib = world_str("libcurl");
      v.code = 7;
      if (!b->was_sent) {
        b->sent[b->route]--; /* the attempt counts, the send on the route does not */
      }
    } else if (op == RATE) {
      v = evidence(FG_PHASE_RESPONSE, 429, "{\"error\":{\"code\":\"rate_limit_exceeded\",\"type\":\"requests\",\"message\":\"slow\"}}");
      v.headers = hint;
      v.header_count = 1;
      b->not_before[b->route] = n->now + HINT;
    } else if (op == QUOTA) {
      v = evidence(FG_PHASE_RESPONSE, 429, "{\"error\":{\"code\":\"insufficient_quota\",\"type\":\"insufficient_quota\",\"message\":\"no money\"}}");
      b->no_other_budget = 1;
    } else if (op == SILENT) {
      v = evidence(FG_PHASE_READ, 0, "");
      v.timeout = FG_KIND_READ_TIMEOUT;
    } else if (op == CUT) {
      v = evidence(FG_PHASE_STREAM, 200, "");
      v.lib = world_str("httpx");
      v.kind = world_str("RemoteProtocolError");
      v.message = world_str("peer closed connection without sending complete message body");
    } else if (op == AUTH) {
      v = evidence(FG_PHASE_RESPONSE, 401, "{\"error\":{\"code\":\"invalid_api_key\",\"message\":\"bad key\"}}");
      b->dead_key = 1;
    }
    v.elapsed_ms = 500;
    (void)fg_call_failure(W.engine, c, 0, &v, n->now, &n->d);
    on_end_of_attempt(b);
    break;
  }
  if (n->d.action == FG_ACTION_FAIL_CLOSED || n->d.action == FG_ACTION_QUEUE || (n->d.action == FG_ACTION_DEGRADE && n->d.route == 0)) {
    b->ended = 1;
  }
}

/* Whatever happened: driven by an obedient host, the call comes to an end. */
static void must_end(node n, uint32_t depth) {
  uint32_t i;
  for (i = 0; i < END_ROUNDS && !n.b.ended && !n.b.answered; i++) {
    act(&n, n.b.running || n.d.wait_ms != 0 ? WAIT : ATTEMPT, depth);
    if (!n.b.running && n.d.action != FG_ACTION_HOLD && n.d.action != FG_ACTION_KEEP_WAITING && n.d.route == 0) {
      n.b.ended = 1;
    }
  }
  if (!n.b.ended && !n.b.answered) {
    violation(depth, "the call does not end", &n.d);
  }
}

static void walk(const node *from, uint32_t depth) {
  const seen_key key = seen_state(&states, &W, from, sizeof *from, depth_max - depth);
  const tally was = T;
  seen_one known;
  uint32_t op;
  int leaf = 1;
  if (seen_before(&states, key, &T, &known)) {
    return;
  }
  for (op = 0; depth < depth_max && op < OPS; op++) {
    node n, again;
    tally once;
    if (!legal(&from->b, (enum op)op, &from->d)) {
      continue;
    }
    leaf = 0;
    path[depth] = (uint8_t)op;
    memcpy(W.memory, saved[depth], W.bytes);
    n = *from;
    act(&n, (enum op)op, depth + 1);
    memcpy(saved[depth + 1], W.memory, W.bytes);
    once = T; /* same state, same operation: the same bytes, said once */
    T.violations = SAID;
    again = *from;
    memcpy(W.memory, saved[depth], W.bytes);
    act(&again, (enum op)op, depth + 1);
    T = once;
    if (memcmp(saved[depth + 1], W.memory, W.bytes) != 0 || memcmp(&again.call, &n.call, sizeof n.call) != 0 ||
        memcmp(&again.d, &n.d, sizeof n.d) != 0) {
      violation(depth + 1, "not the same bytes twice", &n.d);
    }
    walk(&n, depth + 1);
  }
  if (leaf) {
    memcpy(W.memory, saved[depth], W.bytes);
    must_end(*from, depth);
    T.sequences++;
  }
  if (!seen_walked(&states, key, &was, &T, &known)) {
    violation(depth, "an equal state has other sequences", &from->d);
  }
}

int main(int argc, char **argv) {
  fg_request r;
  node n;
  uint32_t i;
  if (argc > 1) {
    depth_max = (uint32_t)strtoul(argv[1], NULL, 10);
  }
  if (depth_max == 0 || depth_max > MAX_DEPTH - 1) {
    fprintf(stderr, "usage: world_a [DEPTH 1..%d]\n", MAX_DEPTH - 1);
    return 2;
  }
  world_open(&W, CARD, 4, 2);
  memset(&n, 0, sizeof n);
  memset(&r, 0, sizeof r);
  r.size = sizeof r;
  r.workflow = world_str("w");
  r.call_id = world_str("world-a");
  r.prompt_tokens = 900;
  r.max_output_tokens = 300;
  n.now = W.now;
  n.d.size = sizeof n.d;
  n.b.is_new = 1;
  n.b.step_at = n.now;
  if (fg_call_begin(W.engine, &n.call, &r, n.now, &n.d) != FG_OK || n.d.action != FG_ACTION_PROCEED || n.d.route != ROUTE_P) {
    fprintf(stderr, "begin refused\n");
    return 2;
  }
  for (i = 0; i <= depth_max; i++) {
    saved[i] = malloc(W.bytes);
  }
  memcpy(saved[0], W.memory, W.bytes);
  seen_start(&states, &W, &n, sizeof n);
  walk(&n, 0);
  tally_show(&T, "world A");
  printf("world A depth %u: %" PRIu64 " sequences, %" PRIu64 " operations; %" PRIu64 " states walked\n", depth_max, T.sequences, T.operations, states.used);
  printf("%d passed, %d failed\n", T.violations == 0, T.violations != 0);
  return T.violations != 0;
}
