/* World B: two calls on one route, a breaker of two failures and one probe, a retry bucket of two. Every sequence of operations to a
 * depth (default 8; meson.build has the full one). Usage: world_b [DEPTH [BUCKET]].
 *
 * The oracle's laws, from its own books of sends and results:
 *   no send through an open breaker; never more than one probe; no more retries than the bucket holds, by an upper bound of its
 *   balance; never two retries in flight; nothing in flight when both calls are over; every call ends; same state, same bytes. */
#include "seen.h"

enum { OPEN_MS = 10000, OPEN_MAX_MS = 20000, TOTAL_MS = 15000, RETRY = 1000, CREDIT = 100, END_ROUNDS = 900, MAX_DEPTH = 14, SAID = 5 };

#define CARD /* %u: tokens the bucket starts with and holds */ \
    "{\"version\":1,\"retry_bucket\":{\"start\":%u,\"cap\":%u},\"backoff\":{\"base_ms\":1000}," \
    "\"breaker\":{\"consecutive\":2,\"min_calls\":1000,\"successes\":2,\"stall\":false}," \
    "\"routes\":{\"p\":{\"provider\":\"openai\",\"model\":\"m\",\"account\":\"one\"}}," \
    "\"workflows\":{\"w\":{\"routes\":[\"p\"],\"hold_ms\":0,\"timeouts\":{\"first_token_ms\":15000,\"total_ms\":15000},\"budget\":{" \
    "\"total_attempts\":4,\"per_class\":{\"server\":3,\"silent\":3},\"elapsed_ms\":600000,\"extra_tokens\":100000}}}}"

enum op { BEGIN, GOOD, BAD, CANCEL, SILENCE, PER_CALL, JUMP = 2 * PER_CALL, OPS };
static const char *const NAME[PER_CALL] = {"begin", "good", "bad", "cancel", "silence"};

typedef struct one { /* the oracle's book of one call */
  uint8_t begun, running, probe, retry, wants_retry, number;
  uint32_t epoch;
  int64_t sent_at;
} one;

typedef struct books {
  one call[2];
  uint8_t state, run, ok, probes, level; /* state: 0 closed, 1 open, 2 half-open */
  uint32_t epoch;
  int64_t open_until, bucket, bucket_at;
} books;

typedef struct node { fg_call call[2]; fg_decision d[2]; books b; int64_t now; } node;

static world W;
static tally T;
static uint8_t path[MAX_DEPTH];
static uint8_t *saved[MAX_DEPTH + 1];
static seen states;
static uint32_t depth_max = 8;
static int64_t cap = 2000; /* of the bucket, milli-tokens */

static void violation(uint32_t depth, const char *law) {
  uint32_t i;
  if (T.violations++ < SAID) {
    fprintf(stderr, "\nviolation: %s, after:", law);
    for (i = 0; i < depth; i++) {
      if (path[i] == JUMP) {
        fprintf(stderr, " jump,");
      } else {
        fprintf(stderr, " %c %s,", 'a' + path[i] / PER_CALL, NAME[path[i] % PER_CALL]);
      }
    }
    fprintf(stderr, "\n");
  }
}

/* Upper bound of the bucket: the trickle counted up to the last started millisecond. */
static void trickle(books *b, int64_t now) {
  b->bucket += ((now - b->bucket_at) * 1000 + 59999) / 60000;
  b->bucket = b->bucket > cap ? cap : b->bucket;
  b->bucket_at = now;
}

static void open_breaker(books *b, int64_t now) {
  int64_t open_ms = (int64_t)OPEN_MS << b->level;
  b->open_until = now + (open_ms > OPEN_MAX_MS ? OPEN_MAX_MS : open_ms);
  b->level++;
  b->state = 1;
  b->epoch++;
  b->run = b->ok = b->probes = 0;
}

static void on_send(node *n, uint32_t i, uint32_t depth) {
  books *b = &n->b;
  one *c = &b->call[i];
  if (b->state == 1) {
    if (n->now < b->open_until) {
      violation(depth, "sent through an open breaker");
    }
    b->state = 2;
    b->epoch++;
    b->ok = 0;
  }
  if (b->state == 2) {
    c->probe = 1;
    if (++b->probes > 1) {
      violation(depth, "more than one probe");
    }
  }
  c->retry = c->wants_retry;
  c->wants_retry = 0;
  if (c->retry && b->call[1 - i].running && b->call[1 - i].retry) {
    violation(depth, "two retries in flight");
  }
  c->running = 1;
  c->epoch = b->epoch;
  c->sent_at = n->now;
}

static void on_result(node *n, uint32_t i, int verdict) { /* 1 good, -1 bad, 0 neutral */
  books *b = &n->b;
  one *c = &b->call[i];
  const int counts = c->epoch == b->epoch;
  c->running = c->retry = 0;
  if (counts && c->probe) {
    b->probes--;
  }
  c->probe = 0;
  if (!counts || verdict == 0) {
    return;
  }
  if (b->state == 0) {
    b->run = verdict > 0 ? 0 : (uint8_t)(b->run + 1);
    if (b->run >= 2) {
      open_breaker(b, n->now);
    }
  } else if (b->state == 2) {
    if (verdict < 0) {
      open_breaker(b, n->now);
    } else if (++b->ok == 2) {
      b->state = b->run = b->level = 0;
      b->epoch++;
    }
  }
}

static int is_over(const node *n, uint32_t i) {
  const uint32_t action = n->d[i].action;
  return !n->b.call[i].begun || action == FG_ACTION_ACCEPT || action == FG_ACTION_FAIL_CLOSED;
}

static int legal(const node *n, uint32_t op) {
  const uint32_t i = op / PER_CALL;
  if (op == JUMP) {
    return (n->b.call[0].begun && !is_over(n, 0)) || (n->b.call[1].begun && !is_over(n, 1)) || n->b.state == 1;
  }
  switch (op % PER_CALL) {
  case BEGIN:
    return !n->b.call[i].running && (is_over(n, i) || n->d[i].wait_ms == 0);
  case CANCEL:
    return !is_over(n, i);
  default:
    return n->b.call[i].running;
  }
}

/* A retry was decided: the bucket must have held it. Nothing sent after all: it went back. */
static void on_decision(node *n, uint32_t i, uint32_t depth) {
  books *b = &n->b;
  one *c = &b->call[i];
  trickle(b, n->now);
  if (n->d[i].action == FG_ACTION_RETRY && !c->wants_retry) {
    if (b->bucket < RETRY) {
      violation(depth, "a retry past the bucket");
    }
    b->bucket -= RETRY;
    c->wants_retry = 1;
  } else if (is_over(n, i) && c->wants_retry) {
    b->bucket = b->bucket + RETRY > cap ? cap : b->bucket + RETRY;
    c->wants_retry = 0;
  }
}

static void begin(node *n, uint32_t i, uint32_t depth) {
  one *c = &n->b.call[i];
  n->d[i].size = sizeof n->d[i];
  if (is_over(n, i)) {
    fg_request r;
    char id[3] = {(char)('a' + i), (char)('0' + c->number++ % 10), 0};
    memset(&r, 0, sizeof r);
    r.size = sizeof r;
    r.workflow = world_str("w");
    r.call_id = world_str(id);
    r.prompt_tokens = 900;
    r.max_output_tokens = 300;
    (void)fg_call_begin(W.engine, &n->call[i], &r, n->now, &n->d[i]);
    c->begun = 1;
    c->wants_retry = 0;
    if (is_over(n, i)) {
      return;
    }
  }
  (void)fg_call_begin_attempt(W.engine, &n->call[i], n->now, &n->d[i]);
  if (n->d[i].action == FG_ACTION_PROCEED) {
    on_send(n, i, depth);
  } else {
    on_decision(n, i, depth);
  }
}

static void jump(node *n, uint32_t depth) {
  int64_t due = INT64_MAX;
  uint32_t i;
  for (i = 0; i < 2; i++) {
    const one *c = &n->b.call[i];
    int64_t at = c->running ? c->sent_at + TOTAL_MS : n->now + n->d[i].wait_ms;
    if (!is_over(n, i) && (c->running || n->d[i].wait_ms != 0) && at < due) {
      due = at;
    }
  }
  if (n->b.state == 1 && n->b.open_until > n->now && n->b.open_until < due) {
    due = n->b.open_until;
  }
  if (due == INT64_MAX || due <= n->now) {
    due = n->now + 1000;
  }
  for (i = 0; i < 2; i++) {
    n->d[i].wait_ms = (int64_t)n->d[i].wait_ms > due - n->now ? n->d[i].wait_ms - (uint32_t)(due - n->now) : 0;
  }
  n->now = due;
  for (i = 0; i < 2; i++) {
    if (n->b.call[i].running && n->now >= n->b.call[i].sent_at + TOTAL_MS) {
      (void)fg_call_deadline(W.engine, &n->call[i], n->now, &n->d[i]);
      if (n->d[i].action == FG_ACTION_KEEP_WAITING) {
        violation(depth, "past its clock and still waiting");
      }
      on_result(n, i, -1);
      on_decision(n, i, depth);
    }
  }
}

static void act(node *n, uint32_t op, uint32_t depth) {
  const uint32_t i = op / PER_CALL;
  fg_answer a;
  fg_evidence v;
  T.operations++;
  if (op == JUMP) {
    jump(n, depth);
    return;
  }
  switch (op % PER_CALL) {
  case BEGIN:
    begin(n, i, depth);
    return;
  case GOOD:
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.finish = FG_FINISH_STOP;
    a.output = world_str("fine");
    a.flags = FG_ANSWER_OUTPUT_KNOWN;
    (void)fg_call_success(W.engine, &n->call[i], 0, &a, n->now, &n->d[i]);
    trickle(&n->b, n->now);
    n->b.bucket = n->b.bucket + CREDIT > cap ? cap : n->b.bucket + CREDIT;
    on_result(n, i, 1);
    return;
  case BAD:
  case SILENCE:
    memset(&v, 0, sizeof v);
    v.size = sizeof v;
    v.phase = op % PER_CALL == BAD ? FG_PHASE_RESPONSE : FG_PHASE_READ;
    v.status = op % PER_CALL == BAD ? 500 : 0;
    v.timeout = op % PER_CALL == BAD ? 0 : FG_KIND_READ_TIMEOUT;
    (void)fg_call_event(W.engine, &n->call[i], 0, FG_EVENT_SENT, 0, n->now);
    (void)fg_call_failure(W.engine, &n->call[i], 0, &v, n->now, &n->d[i]);
    on_result(n, i, -1);
    on_decision(n, i, depth);
    return;
  default: /* CANCEL */
    (void)fg_call_cancel(W.engine, &n->call[i], n->now, &n->d[i]);
    if (n->b.call[i].running) {
      on_result(n, i, 0);
    }
    on_decision(n, i, depth);
    return;
  }
}

/* An obedient host: every call ends, and then nothing is left in flight. */
static void must_end(node n, uint32_t depth) {
  fg_route_view v;
  uint32_t i, k;
  for (k = 0; k < END_ROUNDS && !(is_over(&n, 0) && is_over(&n, 1)); k++) {
    for (i = 0; i < 2; i++) {
      if (!is_over(&n, i) && !n.b.call[i].running && n.d[i].wait_ms == 0) {
        begin(&n, i, depth);
      }
    }
    if (!(is_over(&n, 0) && is_over(&n, 1))) {
      jump(&n, depth);
    }
  }
  if (!is_over(&n, 0) || !is_over(&n, 1)) {
    violation(depth, "a call does not end");
  }
  memset(&v, 0, sizeof v);
  v.size = sizeof v;
  (void)fg_engine_route(W.engine, 1, n.now, &v);
  if (v.in_flight != 0 || v.retries != 0) {
    violation(depth, "something is left in flight");
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
    if (!legal(from, op)) {
      continue;
    }
    leaf = 0;
    path[depth] = (uint8_t)op;
    memcpy(W.memory, saved[depth], W.bytes);
    n = *from;
    act(&n, op, depth + 1);
    memcpy(saved[depth + 1], W.memory, W.bytes);
    once = T; /* same state, same operation: the same bytes, said once */
    T.violations = SAID;
    again = *from;
    memcpy(W.memory, saved[depth], W.bytes);
    act(&again, op, depth + 1);
    T = once;
    if (memcmp(saved[depth + 1], W.memory, W.bytes) != 0 || memcmp(&again.d, &n.d, sizeof n.d) != 0 ||
        memcmp(&again.call, &n.call, sizeof n.call) != 0) {
      violation(depth + 1, "not the same bytes twice");
    }
    walk(&n, depth + 1);
  }
  if (leaf) {
    memcpy(W.memory, saved[depth], W.bytes);
    must_end(*from, depth);
    T.sequences++;
  }
  if (!seen_walked(&states, key, &was, &T, &known)) {
    violation(depth, "an equal state has other sequences");
  }
}

int main(int argc, char **argv) {
  static node n;
  char card[2048];
  uint32_t i, bucket = 2;
  if (argc > 2) {
    bucket = (uint32_t)strtoul(argv[2], NULL, 10);
  }
  if (argc > 1) {
    depth_max = (uint32_t)strtoul(argv[1], NULL, 10);
  }
  if (depth_max == 0 || depth_max > MAX_DEPTH - 1 || bucket == 0 || bucket > 9) {
    fprintf(stderr, "usage: world_b [DEPTH 1..%d [BUCKET 1..9]]\n", MAX_DEPTH - 1);
    return 2;
  }
  snprintf(card, sizeof card, CARD, bucket, bucket);
  world_open(&W, card, 1, 2);
  n.now = W.now;
  cap = (int64_t)bucket * 1000;
  n.b.bucket = cap;
  n.b.bucket_at = n.now;
  for (i = 0; i <= depth_max; i++) {
    saved[i] = malloc(W.bytes);
  }
  memcpy(saved[0], W.memory, W.bytes);
  seen_start(&states, &W, &n, sizeof n);
  walk(&n, 0);
  tally_show(&T, "world B");
  printf("world B depth %u: %" PRIu64 " sequences, %" PRIu64 " operations; %" PRIu64 " states walked\n", depth_max, T.sequences, T.operations, states.used);
  printf("%d passed, %d failed\n", T.violations == 0, T.violations != 0);
  return T.violations != 0;
}
