/* World A over the eight sections of a contract: a primary that fails in every way, a stand-in with exactly one fault, and a sound one.
 *
 * The fault: one key of one section, of which the stand-in provides too little, or says nothing; the same where only the request asks for
 * it; a price; evidence; an approval. The place: before the sound stand-in, behind it, or as the ladder's smaller model. Each such card is
 * walked through every sequence of operations to a depth (default 3; what does not lead its section, one less).
 * Usage: world_sections [DEPTH].
 *
 * The law: no decision of any call ever names the faulty stand-in, not after a failure, not for a retry, an edited request, a step of the
 * ladder, and not for a new call when the primary is dark. With a date that comes in the middle: none from that moment on.
 * So that this is no empty promise: with the fault the sound stand-in is named and the refusal is told with its reason; without any fault
 * the other is named in every way a place allows. */
#include "sections.h"

enum { MAX_DEPTH = 6, FAILS_AFTER_MS = 300, LATER_MS = 1000 };

/* ----------------------------------------------------------------- the walk */

enum op {
  ATTEMPT, TOKEN, REFUSED, RATE, RATE_LONG, QUOTA, ERROR_500, SILENT, CUT, AUTH, POLICY, TOO_LARGE, TOO_MUCH, BAD_ANSWER, SUCCESS, STEP, NEW, LATER,
  NO_PRESET, OPS
};
static const char *const NAME[OPS] = {"attempt", "token", "refused", "429+2s", "429+90s", "quota", "500", "silent", "cut", "401", "content filter",
                                      "context too long", "max_tokens too large", "answer rejected", "success", "step", "new call", "later", "unable: preset"};

/* edits: FG_CHANGE_* the call's request has seen. */
typedef struct node { fg_call call; fg_decision d; int64_t now; uint8_t running, ended, answered, edits; } node;

static world W;
static tally T;
static uint8_t path[MAX_DEPTH];
static uint8_t *saved[MAX_DEPTH + 1];
static uint32_t depth_max = 3, depth_now;
static uint64_t named_x[FG_ACTION_COUNT], named_g, refused_x, refused_else; /* refused_else: with another reason than the fault's */

static void violation(const char *law, uint32_t depth, const fg_decision *d) {
  if (T.violations++ < 5) {
    fprintf(stderr, "\nviolation: %s, with ", law);
    describe();
    if (d != NULL) {
      fprintf(stderr, "; action %u, reason %u, after:", d->action, d->reason);
    }
    for (uint32_t i = 0; i < depth; i++) {
      fprintf(stderr, " %s,", NAME[path[i]]);
    }
    fprintf(stderr, "\n");
  }
}

/* A ladder's edit may have made the request small enough. */
static int smaller_now(const node *n) {
  const uint32_t asks = S.row != NO_ROW && S.fault == ASKED_LITTLE ? ROWS[S.row].asks : ASKS_NOTHING;
  return n->edits & (asks == ASKS_PROMPT ? FG_CHANGE_COMPACT : asks == ASKS_OUTPUT ? FG_CHANGE_MAX_TOKENS : 0);
}

/* Whom does this decision name? An answer under way may be named past the date. */
static void look(const node *n, uint32_t depth) {
  const fg_decision *d = &n->d;
  const int under_way = d->action == FG_ACTION_KEEP_WAITING || d->action == FG_ACTION_ACCEPT;
  const int dated = S.odd != NULL && S.odd->until_ms != 0 && (n->now < WORLD_NOW + (int64_t)S.odd->until_ms || under_way);
  const int holds = dated || smaller_now(n);
  T.operations++;
  if (d->route == ROUTE_X) {
    named_x[d->action]++;
    if (faulty() && !holds) {
      violation("the faulty stand-in is named", depth, d);
    }
  }
  named_g += d->route == ROUTE_G;
  for (uint32_t i = 0; i < d->rejected_count; i++) {
    if ((d->rejected[i] & 0xffff) == ROUTE_X) {
      const uint32_t why = d->rejected[i] >> 16;
      refused_x += why == expected_reason();
      const int asked_before = S.odd != NULL && S.odd->until_ms != 0; /* then what it answered may be the reason */
      refused_else += why != expected_reason() && faulty() && !holds && !asked_before;
    }
  }
}

static void settle(node *n) {
  n->ended = n->d.action == FG_ACTION_FAIL_CLOSED || n->d.action == FG_ACTION_QUEUE || (n->d.action == FG_ACTION_DEGRADE && n->d.route == 0);
}

static void begin(node *n, uint32_t depth) {
  const fg_request r = request();
  memset(&n->call, 0, sizeof n->call);
  n->running = n->ended = n->answered = n->edits = 0;
  n->d.size = sizeof n->d;
  (void)fg_call_begin(W.engine, &n->call, &r, n->now, &n->d);
  look(n, depth);
  settle(n);
}

/* Asks for permission, waiting as it is told; 1: an attempt runs. */
static int attempt(node *n, uint32_t depth) {
  for (uint32_t i = 0; i < 3 && !n->running && !n->ended; i++) {
    n->now += n->d.wait_ms;
    (void)fg_call_begin_attempt(W.engine, &n->call, n->now, &n->d);
    look(n, depth);
    n->running = n->d.action == FG_ACTION_PROCEED;
    n->edits |= (uint8_t)(n->running ? n->d.change & (FG_CHANGE_COMPACT | FG_CHANGE_MAX_TOKENS) : 0);
    settle(n);
  }
  if (n->running) {
    (void)fg_call_event(W.engine, &n->call, 0, FG_EVENT_SENT, 0, n->now);
  }
  return n->running;
}

static int legal(const node *n, enum op op) {
  switch (op) {
  case ATTEMPT:
    return !n->running && !n->ended && !n->answered;
  case NEW:
    return n->ended || n->answered;
  case STEP:
    return n->answered;
  case LATER:
    return !n->running;
  case NO_PRESET:
    return n->d.action == FG_ACTION_DEGRADE && n->d.ladder_step == FG_STEP_PRESET;
  default:
    return !n->ended && !n->answered;
  }
}

static fg_evidence failure(enum op op, const fg_header *hint) {
  static const struct { int32_t status; const char *body; } ANSWERS[OPS] = {
      [RATE] = {429, "{\"error\":{\"code\":\"rate_limit_exceeded\",\"type\":\"requests\",\"message\":\"slow\"}}"},
      [RATE_LONG] = {429, "{\"error\":{\"code\":\"rate_limit_exceeded\",\"type\":\"requests\",\"message\":\"slow\"}}"},
      [QUOTA] = {429, "{\"error\":{\"code\":\"insufficient_quota\",\"type\":\"insufficient_quota\",\"message\":\"no money\"}}"},
      [ERROR_500] = {500, "{\"error\":{\"type\":\"server_error\",\"message\":\"oops\"}}"},
      [AUTH] = {401, "{\"error\":{\"code\":\"invalid_api_key\",\"message\":\"bad key\"}}"},
      [POLICY] = {400, "{\"error\":{\"code\":\"content_policy_violation\",\"message\":\"rejected by our safety system\"}}"},
      [TOO_LARGE] = {400, "{\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"maximum context length is 800 tokens\"}}"},
      [TOO_MUCH] = {400, "{\"error\":{\"message\":\"max_tokens is too large: 300. This model supports at most 200 completion tokens\","
                         "\"type\":\"invalid_request_error\",\"param\":\"max_tokens\"}}"}};
  fg_evidence v;
  memset(&v, 0, sizeof v);
  v.size = sizeof v;
  v.phase = op == REFUSED ? FG_PHASE_CONNECT : op == SILENT ? FG_PHASE_READ : op == CUT ? FG_PHASE_STREAM : FG_PHASE_RESPONSE;
  v.status = op == CUT ? 200 : ANSWERS[op].status;
  v.body = world_str(ANSWERS[op].body != NULL ? ANSWERS[op].body : "");
  if (op == REFUSED) {
    v.lib = world_str("libcurl");
    v.code = 7;
  } else if (op == SILENT) {
    v.timeout = FG_KIND_READ_TIMEOUT;
  } else if (op == CUT) {
    v.lib = world_str("httpx");
    v.kind = world_str("RemoteProtocolError");
    v.message = world_str("peer closed connection without sending complete message body");
  } else if (op == RATE || op == RATE_LONG) {
    v.headers = hint;
    v.header_count = 1;
  }
  v.elapsed_ms = FAILS_AFTER_MS;
  return v;
}

/* Performs one operation; what needs an attempt asks for one first. 0: it could not be done. */
static int act(node *n, enum op op, uint32_t depth) {
  const fg_header hint = {{"retry-after", 11, 0}, {op == RATE ? "2" : "90", op == RATE ? 1 : 2, 0}};
  fg_answer a;
  fg_evidence v;
  n->d.size = sizeof n->d;
  switch (op) {
  case ATTEMPT:
    return attempt(n, depth);
  case STEP:
    (void)fg_call_step(W.engine, &n->call, 0, 0, n->now, &n->d);
    n->answered = 0;
    look(n, depth);
    settle(n);
    return 1;
  case NEW:
    begin(n, depth);
    return 1;
  case LATER:
    n->now += LATER_MS;
    return 1;
  case NO_PRESET:
    (void)fg_call_unable(W.engine, &n->call, FG_UNABLE_PRESET, n->now, &n->d);
    look(n, depth);
    settle(n);
    return 1;
  default:
    break;
  }
  if (!n->running && !attempt(n, depth)) {
    return 0;
  }
  if (op == TOKEN) {
    (void)fg_call_event(W.engine, &n->call, 0, FG_EVENT_TOKEN, 1, n->now);
    return 1;
  }
  n->now += FAILS_AFTER_MS;
  n->running = 0;
  if (op == SUCCESS || op == BAD_ANSWER) {
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.finish = op == SUCCESS ? FG_FINISH_STOP : FG_FINISH_PAUSE;
    a.prompt_tokens = 900;
    a.output_tokens = 20;
    a.output = world_str("fine");
    a.flags = FG_ANSWER_OUTPUT_KNOWN | FG_ANSWER_USAGE_FINAL;
    (void)fg_call_success(W.engine, &n->call, 0, &a, n->now, &n->d);
    n->answered = n->d.action == FG_ACTION_ACCEPT;
  } else {
    v = failure(op, &hint);
    (void)fg_call_failure(W.engine, &n->call, 0, &v, n->now, &n->d);
  }
  look(n, depth);
  settle(n);
  return 1;
}

static void walk(const node *from, uint32_t depth) {
  int leaf = 1;
  for (uint32_t op = 0; depth < depth_now && op < OPS; op++) {
    node n = *from;
    if (!legal(from, (enum op)op)) {
      continue;
    }
    path[depth] = (uint8_t)op;
    memcpy(W.memory, saved[depth], W.bytes);
    if (act(&n, (enum op)op, depth + 1)) {
      leaf = 0;
      memcpy(saved[depth + 1], W.memory, W.bytes);
      walk(&n, depth + 1);
    }
  }
  if (leaf) { /* and once more with whatever was decided last */
    node n = *from;
    memcpy(W.memory, saved[depth], W.bytes);
    if (!n.running) {
      (void)attempt(&n, depth);
    }
    T.sequences++;
  }
}

static uint64_t times_x(void) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < FG_ACTION_COUNT; i++) {
    sum += named_x[i];
  }
  return sum;
}

/* One card, walked; whoever can be named was named. Cards behind one that broke the law are not looked at. Returns the cards walked. */
static uint32_t explore(setup s, int deep) {
  node n;
  if (T.violations != 0) {
    return 0;
  }
  S = s;
  memset(named_x, 0, sizeof named_x);
  named_g = refused_x = refused_else = 0;
  depth_now = deep ? depth_max : depth_max - 1;
  world_open(&W, card(), 4, 2);
  memset(&n, 0, sizeof n);
  n.now = W.now;
  for (uint32_t i = 0; i <= depth_now; i++) {
    saved[i] = malloc(W.bytes);
  }
  begin(&n, 0);
  memcpy(saved[0], W.memory, W.bytes);
  walk(&n, 0);
  for (uint32_t i = 0; i <= depth_now; i++) {
    free(saved[i]);
  }
  world_close(&W);
  if (named_g == 0) {
    violation("the sound stand-in is never named", 0, NULL);
  }
  if (faulty()) {
    if (refused_else != 0 || (s.place != LADDER && refused_x == 0)) {
      violation("the refusal does not name its reason", 0, NULL);
    }
    if (s.odd != NULL && s.odd->until_ms != 0 && s.place != BEHIND && times_x() == 0) {
      violation("never named before its date", 0, NULL);
    }
    return 1;
  }
  const uint32_t ways[] = {FG_ACTION_PROCEED, FG_ACTION_RETRY, FG_ACTION_DEGRADE, FG_ACTION_ACCEPT, FG_ACTION_FALLBACK};
  for (uint32_t i = 0; i < (s.place == LADDER ? 4U : 5U); i++) {
    if (named_x[ways[i]] == 0) {
      fprintf(stderr, "\nnever: %s", fg_name(FG_TABLE_ACTION, ways[i]));
      violation("a sound stand-in is not named in this way", 0, NULL);
    }
  }
  return 1;
}

int main(int argc, char **argv) {
  uint32_t worlds = 0;
  if (argc > 1) {
    depth_max = (uint32_t)strtoul(argv[1], NULL, 10);
  }
  if (depth_max < 3 || depth_max >= MAX_DEPTH) {
    fprintf(stderr, "usage: world_sections [DEPTH 3..%d]\n", MAX_DEPTH - 1);
    return 2;
  }
  for (uint32_t place = 0; place < PLACES; place++) {
    worlds += explore((setup){NO_ROW, 0, place, NULL}, 1);
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
      for (uint32_t fault = 0; fault < (ROWS[i].asks != ASKS_NOTHING ? FAULTS : ASKED_LITTLE); fault++) {
        worlds += explore((setup){i, fault, place, NULL}, i == 0 || strcmp(ROWS[i].section, ROWS[i - 1].section) != 0);
      }
    }
    for (uint32_t i = 0; i < ODD_COUNT; i++) {
      worlds += explore((setup){NO_ROW, 0, place, &ODDS[i]}, (int)ODDS[i].deep);
    }
  }
  tally_show(&T, "world of sections");
  printf("world of sections depth %u: %u cards, %" PRIu64 " sequences, %" PRIu64 " decisions\n", depth_max, worlds, T.sequences, T.operations);
  printf("%d passed, %d failed\n", T.violations == 0, T.violations != 0);
  return T.violations != 0;
}
