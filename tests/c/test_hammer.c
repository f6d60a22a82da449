/* Two processes of four threads each hammer one region file through the public API while workers are killed with -9. Afterwards the region must hold no
 * more and no less than the books of the workers say: nothing in flight, no probe stuck, no count lost but what was in somebody's hands at a kill.
 *
 * FG_HAMMER_KILLS sets the number of kills (default 250). */
#include "fg_host.h"
#include "fg_region.h"
#include "fg_witness.h"
#include "fg_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 2, THREADS = 4, LIVES_MAX = 4096, ROUTES = 3, PROMPT = 100, OUTPUT = 10, MAX_OUTPUT = 50 };
enum { PRICE = 1000000000 }; /* nano-dollars per million tokens: 1,000 a token */

/* One thread's books: `began` before an operation, `done` after it. The difference is what a kill caught in its hands. */
typedef struct pair { _Atomic uint64_t began, done; } pair;
typedef struct book {
  pair calls[2], attempts[ROUTES], successes[ROUTES], retries;
  _Atomic uint64_t settled_nusd; /* money of accepted answers, workflow w1 */
  _Atomic uint64_t held_now;     /* 1: an attempt of w1 may be in our hands */
  _Atomic uint64_t sure;         /* 1: one is */
  _Atomic uint64_t wrong;        /* answers of the engine no one may give */
} book;

typedef struct shared {
  book books[LIVES_MAX][THREADS];
  _Atomic int stop;
} shared;

static shared *all;
static char dir[] = "/tmp/fivegates-hammer-XXXXXX";
static char path[128];
static fg_policy *policy;
static uint32_t route_id[ROUTES], workflow_id[2];

#define PROVIDES "\"provides\":{\"input\":{\"context_tokens\":100000},\"output\":{\"max_tokens\":20000,\"max_tokens_whole\":20000},\"operations\":{\"streaming\":true}}"
static const char card_text[] =
    "{\"version\":1,\"seed\":3,\"backoff\":{\"base_ms\":1,\"rate_base_ms\":1,\"cap_ms\":2,\"retry_after_cap_ms\":1000},"
    "\"retry_bucket\":{\"credit_ppm\":500000,\"cap\":1000,\"start\":1000,\"trickle_per_minute\":1000},"
    "\"limits\":{\"retries_per_hour\":1000000000},"
    "\"breaker\":{\"consecutive\":5,\"open_ms\":20,\"open_max_ms\":40,\"probes\":1,\"probe_lease_ms\":100,\"successes\":2,\"stall\":false},"
    "\"routes\":{"
    "\"one\":{\"provider\":\"openai\",\"model\":\"m1\",\"account\":\"a\",\"price\":{\"input\":1,\"cached_input\":1,\"output\":1}," PROVIDES "},"
    "\"two\":{\"provider\":\"openai\",\"model\":\"m2\",\"account\":\"b\",\"price\":\"free\"," PROVIDES "},"
    "\"three\":{\"provider\":\"other\",\"model\":\"m3\",\"account\":\"c\",\"price\":\"free\"," PROVIDES "}},"
    "\"workflows\":{"
    "\"w1\":{\"kind\":\"batch\",\"queue\":false,\"routes\":[\"one\"],\"budget\":{\"total_attempts\":3,\"per_route\":3,\"elapsed_ms\":5000,\"extra_tokens\":100000}},"
    "\"w2\":{\"kind\":\"batch\",\"queue\":false,\"routes\":[\"two\",\"three\"],\"spill\":{\"mode\":\"prefer_fast\"},"
    "\"budget\":{\"total_attempts\":4,\"per_route\":3,\"elapsed_ms\":5000,\"extra_tokens\":100000}}},"
    "\"contracts\":[{\"workflow\":\"w2\",\"route\":\"three\",\"fingerprint\":\"%s\",\"approved_by\":\"me\",\"evidence\":{\"fixtures\":\"sha256:0\","
    "\"cases\":10,\"passed\":10,\"score_ppm\":990000,\"primary_score_ppm\":990000,\"measured_at\":\"2020-01-01T00:00:00Z\","
    "\"expires_at\":\"2100-01-01T00:00:00Z\"}}]}";

static void load_card(void) {
  char text[4096], fingerprint[80] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
  fg_mem mem = fg_host_mem();
  for (int round = 0; round < 2; round++) {
    fg_error err;
    memset(&err, 0, sizeof err);
    err.size = (uint32_t)sizeof err;
    (void)snprintf(text, sizeof text, card_text, fingerprint);
    fg_policy_free(policy, &mem);
    policy = NULL;
    if (fg_card_load(text, strlen(text), &mem, &policy, &err) != FG_OK) {
      printf("card: %s: %s (line %u)\n", err.path, err.message, err.line);
      exit(1);
    }
    uint32_t barred = 0;
    fg_str f = {NULL, 0, 0};
    (void)fg_policy_contract(policy, fg_policy_find(policy, FG_FIND_WORKFLOW, "w2", 2), fg_policy_find(policy, FG_FIND_ROUTE, "three", 5), &barred, &f);
    (void)snprintf(fingerprint, sizeof fingerprint, "%.*s", (int)f.len, f.ptr);
  }
  static const char *const names[ROUTES] = {"one", "two", "three"};
  for (uint32_t i = 0; i < ROUTES; i++) {
    route_id[i] = fg_policy_find(policy, FG_FIND_ROUTE, names[i], (uint32_t)strlen(names[i]));
  }
  workflow_id[0] = fg_policy_find(policy, FG_FIND_WORKFLOW, "w1", 2);
  workflow_id[1] = fg_policy_find(policy, FG_FIND_WORKFLOW, "w2", 2);
}

static fg_region_config config(void) {
  fg_region_config c;
  memset(&c, 0, sizeof c);
  c.size = (uint32_t)sizeof c;
  c.routes = 4;
  c.accounts = 4;
  c.workflows = 4;
  c.procs = 8;
  c.rows = 8; /* fewer than threads can use: attempts without a row are tried too */
  return c;
}

static void nap_us(long us) {
  struct timespec t = {us / 1000000, us % 1000000 * 1000};
  (void)nanosleep(&t, NULL);
}

/* ---------------------------------------------------------------- workers */

typedef struct hand { /* a thread */
  const fg_engine *engine;
  book *b;
  uint64_t random;
  int busy; /* never sleeps: kills land inside the engine */
  fg_call call;
} hand;

static uint32_t draw(hand *h, uint32_t below) {
  h->random = h->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((h->random >> 33) % below);
}

static void begin_op(pair *p) {
  atomic_fetch_add(&p->began, 1);
}

static void end_op(pair *p) {
  atomic_fetch_add(&p->done, 1);
}

static uint32_t route_index(uint32_t id) {
  for (uint32_t i = 0; i < ROUTES; i++) {
    if (route_id[i] == id) {
      return i;
    }
  }
  return ROUTES;
}

static fg_evidence evidence(uint32_t phase, int32_t status) {
  fg_evidence v;
  memset(&v, 0, sizeof v);
  v.size = (uint32_t)sizeof v;
  v.phase = phase;
  v.status = status;
  v.provider.ptr = "openai";
  v.provider.len = 6;
  return v;
}

/* What became of an attempt. w1 sees only ends whose money is exact: accepted, or refused before it ran. */
enum { GOOD, LIMITED, REFUSED, DOWN, CUT, SILENT, LEFT, DROPPED };

static int outcome(hand *h, int exact) {
  uint32_t x = draw(h, 1000);
  if (exact) {
    return x < 850 ? GOOD : x < 853 ? LIMITED : REFUSED;
  }
  return x < 700 ? GOOD : x < 703 ? LIMITED : x < 750 ? REFUSED : x < 850 ? DOWN : x < 890 ? CUT : x < 930 ? SILENT : x < 970 ? LEFT : DROPPED;
}

static int32_t finish(hand *h, int end, uint32_t r, uint32_t attempt, fg_decision *d) {
  static const char limited[] = "{\"error\":{\"message\":\"Rate limit reached\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}";
  int64_t now = fg_host_now_ms();
  fg_evidence v;
  if (end == GOOD) {
    fg_answer a;
    memset(&a, 0, sizeof a);
    a.size = (uint32_t)sizeof a;
    a.finish = FG_FINISH_STOP;
    a.prompt_tokens = PROMPT;
    a.output_tokens = OUTPUT;
    a.visible = OUTPUT;
    a.flags = FG_ANSWER_USAGE_FINAL;
    begin_op(&h->b->successes[r]);
    int32_t rc = fg_call_success(h->engine, &h->call, attempt, &a, now, d);
    end_op(&h->b->successes[r]);
    return rc;
  }
  switch (end) {
  case LIMITED:
    v = evidence(FG_PHASE_RESPONSE, 429);
    v.body.ptr = limited;
    v.body.len = (uint32_t)sizeof limited - 1;
    break;
  case REFUSED:
    v = evidence(FG_PHASE_CONNECT, 0);
    break;
  case DOWN:
    v = evidence(FG_PHASE_RESPONSE, 503);
    break;
  case CUT:
    v = evidence(FG_PHASE_STREAM, 200);
    break;
  default:
    v = evidence(FG_PHASE_READ, 0);
    break;
  }
  if (end == REFUSED || end == CUT || end == SILENT) {
    v.lib.ptr = "libcurl";
    v.lib.len = 7;
    v.code = end == REFUSED ? 7 : end == CUT ? 18 : 56;
  }
  return fg_call_failure(h->engine, &h->call, attempt, &v, now, d);
}

static void report(hand *h, int end, uint32_t attempt) {
  int64_t now = fg_host_now_ms();
  if (end == REFUSED) {
    return;
  }
  (void)fg_call_event(h->engine, &h->call, attempt, FG_EVENT_CONNECTED, 0, now);
  (void)fg_call_event(h->engine, &h->call, attempt, FG_EVENT_SENT, 0, now);
  if (end == GOOD || end == CUT) {
    (void)fg_call_event(h->engine, &h->call, attempt, FG_EVENT_ACCEPTED, 0, now);
    (void)fg_call_event(h->engine, &h->call, attempt, FG_EVENT_FIRST_BYTE, 0, now);
  }
  if (end == GOOD) {
    (void)fg_call_event(h->engine, &h->call, attempt, FG_EVENT_TOKEN, OUTPUT, now);
  }
}

/* One granted attempt. Returns 0 when the call is over. */
static int attempt_once(hand *h, int exact, fg_decision *d) {
  uint32_t r = route_index(d->route);
  uint32_t attempt = d->attempt;
  if (r == ROUTES || (exact && r != 0)) {
    atomic_fetch_add(&h->b->wrong, 1);
    return 0;
  }
  int end = outcome(h, exact);
  report(h, end, attempt);
  if (!h->busy && draw(h, 4) == 0) {
    nap_us(500);
  }
  if (end == LEFT) {
    (void)fg_call_cancel(h->engine, &h->call, fg_host_now_ms(), d);
    return 0;
  }
  if (end == DROPPED) {
    return 0; /* the end without a clock */
  }
  atomic_store(&h->b->sure, 0);
  int32_t rc = finish(h, end, r, attempt, d);
  if (rc != FG_OK) {
    atomic_fetch_add(&h->b->wrong, 1);
    return 0;
  }
  if (end == GOOD && exact && d->action == FG_ACTION_ACCEPT) {
    atomic_fetch_add(&h->b->settled_nusd, (uint64_t)(PROMPT + OUTPUT) * (PRICE / 1000000));
  }
  if (exact) {
    atomic_store(&h->b->held_now, 0);
  }
  return d->action == FG_ACTION_RETRY || d->action == FG_ACTION_FALLBACK;
}

/* Permission for the next send; 0 = the call is over. */
static int ask(hand *h, int exact, int is_retry, fg_decision *d) {
  for (int i = 0; i < 20; i++) {
    if (d->wait_ms > 0 && (h->busy || (d->wait_ms > 10 && draw(h, 8) != 0))) {
      return 0; /* no patience: dropped while it waits */
    }
    if (d->wait_ms > 0) {
      nap_us((d->wait_ms > 20 ? 20 : (long)d->wait_ms) * 1000);
    }
    for (uint32_t r = 0; r < ROUTES; r++) {
      begin_op(&h->b->attempts[r]);
    }
    if (exact) {
      atomic_store(&h->b->held_now, 1);
    }
    if (is_retry) {
      begin_op(&h->b->retries);
    }
    int32_t rc = fg_call_begin_attempt(h->engine, &h->call, fg_host_now_ms(), d);
    int go = rc == FG_OK && d->action == FG_ACTION_PROCEED;
    uint32_t got = go ? route_index(d->route) : ROUTES;
    for (uint32_t r = 0; r < ROUTES; r++) { /* what was not granted was never begun */
      if (r == got) {
        end_op(&h->b->attempts[r]);
      } else {
        atomic_fetch_sub(&h->b->attempts[r].began, 1);
      }
    }
    if (is_retry) {
      if (go) {
        end_op(&h->b->retries);
      } else {
        atomic_fetch_sub(&h->b->retries.began, 1);
      }
    }
    if (exact) {
      atomic_store(&h->b->sure, (uint64_t)go);
      atomic_store(&h->b->held_now, (uint64_t)go);
    }
    if (go || rc != FG_OK || (d->action != FG_ACTION_HOLD && d->action != FG_ACTION_RETRY && d->action != FG_ACTION_FALLBACK)) {
      if (rc != FG_OK) {
        atomic_fetch_add(&h->b->wrong, 1);
      }
      return go;
    }
  }
  return 0;
}

static void one_call(hand *h) {
  int exact = draw(h, 2) == 0;
  fg_request q;
  memset(&q, 0, sizeof q);
  q.size = (uint32_t)sizeof q;
  q.workflow.ptr = exact ? "w1" : "w2";
  q.workflow.len = 2;
  q.prompt_tokens = PROMPT;
  q.max_output_tokens = MAX_OUTPUT;
  fg_decision d;
  memset(&d, 0, sizeof d);
  d.size = (uint32_t)sizeof d;
  pair *calls = &h->b->calls[exact ? 0 : 1];
  begin_op(calls);
  int32_t rc = fg_call_begin(h->engine, &h->call, &q, fg_host_now_ms(), &d);
  end_op(calls);
  if (rc != FG_OK) {
    atomic_fetch_add(&h->b->wrong, 1);
    return;
  }
  int is_retry = 0;
  while ((d.action == FG_ACTION_PROCEED || d.action == FG_ACTION_HOLD || is_retry) && ask(h, exact, is_retry, &d)) {
    if (!attempt_once(h, exact, &d)) {
      break;
    }
    is_retry = 1;
  }
  (void)fg_call_end(h->engine, &h->call);
  if (exact) {
    atomic_store(&h->b->held_now, 0);
  }
}

static void *thread_main(void *arg) {
  hand *h = arg;
  for (uint32_t i = 0; atomic_load(&all->stop) == 0; i++) {
    one_call(h);
    if (i % 8 == 0) {
      (void)fg_engine_tick(h->engine, fg_host_now_ms());
    }
    if (i % 64 == 0 && !h->busy) {
      nap_us(200);
    }
  }
  return NULL;
}

static fg_engine *engine_new(fg_host_map *m, uint64_t seed) {
  int64_t now = fg_host_now_ms();
  uint64_t bytes = fg_engine_bytes(policy);
  void *mem = aligned_alloc(64, (bytes + 63) / 64 * 64);
  fg_engine *e = NULL;
  int32_t slot = fg_host_map_slot(m, now);
  if (mem == NULL || slot < 0 || fg_engine_init(mem, bytes, policy, fg_host_map_region(m), (uint32_t)slot, seed, now, &e, NULL) != FG_OK) {
    return NULL;
  }
  return e;
}

static void worker(fg_host_map *inherited, uint32_t life) {
  fg_region_config c = config();
  fg_host_map *m = inherited;
  if (life % 2 == 1 && (fg_host_map_open(path, &c, 0, fg_host_now_ms(), &m, NULL) != FG_OK || fg_host_map_path(m) == NULL)) {
    _exit(3);
  }
  fg_engine *e = engine_new(m, life);
  if (e == NULL || fg_host_map_path(m) == NULL) {
    _exit(4);
  }
  pthread_t t[THREADS];
  hand *h = calloc(THREADS, sizeof *h);
  for (uint32_t i = 0; h != NULL && i < THREADS; i++) {
    h[i].engine = e;
    h[i].b = &all->books[life][i];
    h[i].busy = i == 0;
    h[i].random = life * 1000003U + i * 7919U + 1;
    if (pthread_create(&t[i], NULL, thread_main, &h[i]) != 0) {
      _exit(5);
    }
  }
  for (int i = 0; h != NULL && i < THREADS; i++) {
    (void)pthread_join(t[i], NULL);
  }
  _exit(0);
}

static pid_t spawn(fg_host_map *m, uint32_t life) {
  pid_t pid = fork();
  if (pid == 0) {
    worker(m, life);
  }
  return pid;
}

/* ------------------------------------------------------------ the accounts */

typedef struct total { uint64_t began, done; } total;

static void add_pair(total *t, pair *p) {
  t->began += atomic_load(&p->began);
  t->done += atomic_load(&p->done);
}

/* What the region counted lies between what was finished and what was begun. */
static void within(const char *what, uint64_t counted, total t, uint64_t kills) {
  if (!FG_CHECK(counted >= t.done && counted <= t.began)) {
    printf("  %s: counted %" PRIu64 ", done %" PRIu64 ", begun %" PRIu64 "\n", what, counted, t.done, t.began);
  }
  FG_CHECK(t.began - t.done <= kills * THREADS);
}

static void check_gauges(fg_region *r) {
  uint64_t left = 0, rows = 0;
  for (uint32_t i = 0; i < fg_region_routes(r); i++) {
    fg_route_rec *rec = fg_region_route_at(r, i);
    for (uint32_t s = 0; rec != NULL && s < fg_region_procs(r); s++) {
      left += fg_load(&rec->gauge[s]) != 0;
    }
  }
  for (uint32_t i = 0; fg_region_account_at(r, i) != NULL; i++) {
    for (uint32_t s = 0; s < fg_region_procs(r); s++) {
      left += fg_load(&fg_region_account_at(r, i)->gauge[s]) != 0;
    }
  }
  for (uint32_t s = 0; s < fg_region_procs(r); s++) {
    for (uint32_t i = 0; i < fg_region_rows(r); i++) {
      rows += (fg_load(&fg_region_row(r, s, i)->due) >> 37 & 7) != FG_ROW_FREE;
    }
  }
  FG_EQ(left, 0);
  FG_EQ(rows, 0);
}

static fg_route_view view_route(const fg_engine *e, uint32_t i, int64_t now) {
  fg_route_view v;
  memset(&v, 0, sizeof v);
  v.size = (uint32_t)sizeof v;
  FG_EQ(fg_engine_route(e, route_id[i], now, &v), FG_OK);
  return v;
}

static void check_books(const fg_engine *e, uint64_t kills) {
  total calls[2] = {{0, 0}, {0, 0}}, attempts[ROUTES], successes[ROUTES], retries = {0, 0};
  memset(attempts, 0, sizeof attempts);
  memset(successes, 0, sizeof successes);
  uint64_t settled = 0, in_hands = 0, sure = 0, wrong = 0;
  for (uint32_t life = 0; life < LIVES_MAX; life++) {
    for (int t = 0; t < THREADS; t++) {
      book *b = &all->books[life][t];
      add_pair(&calls[0], &b->calls[0]);
      add_pair(&calls[1], &b->calls[1]);
      for (int r = 0; r < ROUTES; r++) {
        add_pair(&attempts[r], &b->attempts[r]);
        add_pair(&successes[r], &b->successes[r]);
      }
      add_pair(&retries, &b->retries);
      settled += atomic_load(&b->settled_nusd);
      in_hands += atomic_load(&b->held_now);
      sure += atomic_load(&b->sure);
      wrong += atomic_load(&b->wrong);
    }
  }
  FG_EQ(wrong, 0);
  int64_t now = fg_host_now_ms();
  uint64_t lost = 0;
  for (uint32_t i = 0; i < 2; i++) {
    fg_workflow_view w;
    memset(&w, 0, sizeof w);
    w.size = (uint32_t)sizeof w;
    FG_EQ(fg_engine_workflow(e, workflow_id[i], now, &w), FG_OK);
    within("calls", w.calls, calls[i], kills);
    lost += calls[i].began - w.calls;
    if (i == 0) { /* settled money is exact; an attempt in dead hands stays held at its worst case, no more */
      uint64_t worst = (uint64_t)(PROMPT + MAX_OUTPUT) * (PRICE / 1000000);
      uint64_t slack = (in_hands + kills * THREADS) * worst;
      if (!FG_CHECK(w.spent_today_nusd >= settled + sure * worst && w.spent_today_nusd <= settled + slack)) {
        printf("  spent %" PRIu64 ", settled %" PRIu64 ", at most %" PRIu64 " more\n", w.spent_today_nusd, settled, slack);
      }
      printf("hammer: %" PRIu64 " nUSD settled, %" PRIu64 " held by the dead (%" PRIu64 " to %" PRIu64 " attempts in their hands)\n", settled,
             w.spent_today_nusd - settled, sure, in_hands);
    }
  }
  uint64_t made = 0;
  for (uint32_t i = 0; i < ROUTES; i++) {
    fg_route_view v = view_route(e, i, now);
    within("attempts", v.attempts, attempts[i], kills);
    within("successes", v.successes, successes[i], kills);
    FG_EQ(v.in_flight, 0);
    FG_EQ(v.retries, 0);
    FG_CHECK(v.balance_milli <= 1000000);
    made += v.attempts;
  }
  FG_CHECK(made > 1000);
  printf("hammer: %" PRIu64 " kills, %" PRIu64 " calls, %" PRIu64 " attempts, %" PRIu64 " of them retries; %" PRIu64 " calls lost\n", kills,
         calls[0].began + calls[1].began, made, retries.done, lost);
}

/* Whatever state the breakers were left in: a minute later every route serves again, one probe after the other. */
static void check_probes(const fg_engine *e, fg_region *r) {
  int64_t now = fg_host_now_ms() + 60000;
  hand h;
  memset(&h, 0, sizeof h);
  for (int i = 0; i < 40; i++) {
    for (int w = 0; w < 2; w++) {
      fg_request q;
      memset(&q, 0, sizeof q);
      q.size = (uint32_t)sizeof q;
      q.workflow.ptr = w == 0 ? "w1" : "w2";
      q.workflow.len = 2;
      q.prompt_tokens = PROMPT;
      q.max_output_tokens = MAX_OUTPUT;
      fg_decision d;
      memset(&d, 0, sizeof d);
      d.size = (uint32_t)sizeof d;
      FG_EQ(fg_call_begin(e, &h.call, &q, now, &d), FG_OK);
      if (d.action == FG_ACTION_PROCEED) {
        FG_EQ(fg_call_begin_attempt(e, &h.call, now, &d), FG_OK);
      }
      if (d.action == FG_ACTION_PROCEED) {
        fg_answer a;
        memset(&a, 0, sizeof a);
        a.size = (uint32_t)sizeof a;
        a.finish = FG_FINISH_STOP;
        a.output_tokens = OUTPUT;
        a.visible = OUTPUT;
        FG_EQ(fg_call_success(e, &h.call, d.attempt, &a, now + 5, &d), FG_OK);
      }
      (void)fg_call_end(e, &h.call);
    }
    now += 50;
  }
  for (uint32_t i = 0; i < 2; i++) { /* the primaries */
    FG_EQ(view_route(e, i, now).breaker, FG_BREAKER_CLOSED);
  }
  check_gauges(r);
}

static int wait_end(pid_t pid) {
  int status = -1;
  for (int i = 0; i < 2000; i++) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    nap_us(10000);
  }
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, &status, 0);
  return -1;
}

int main(void) {
  const char *want = getenv("FG_HAMMER_KILLS");
  uint32_t kills = want != NULL ? (uint32_t)strtoul(want, NULL, 10) : 250;
  kills = kills > LIVES_MAX - 8 ? LIVES_MAX - 8 : kills;
  all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED || mkdtemp(dir) == NULL) {
    perror("hammer");
    return 1;
  }
  (void)snprintf(path, sizeof path, "%s/region", dir);
  load_card();
  fg_region_config c = config();
  fg_host_map *m = NULL;
  if (!FG_CHECK(fg_host_map_open(path, &c, 0, fg_host_now_ms(), &m, NULL) == FG_OK && fg_host_map_path(m) != NULL)) {
    return fg_test_end("hammer");
  }
  fg_engine *e = engine_new(m, 1);
  FG_EQ(fg_engine_clock(e, fg_host_unix_ms(), fg_host_now_ms()), FG_OK);
  hand dice;
  memset(&dice, 0, sizeof dice);
  dice.random = 99;
  uint32_t life = 0;
  pid_t pid[WORKERS];
  for (int i = 0; i < WORKERS; i++) {
    pid[i] = spawn(m, life++);
  }
  for (uint32_t k = 0; k < kills; k++) {
    nap_us(5000 + draw(&dice, 70000));
    uint32_t i = draw(&dice, WORKERS);
    (void)kill(pid[i], SIGKILL);
    FG_EQ(wait_end(pid[i]), 128 + SIGKILL);
    pid[i] = spawn(m, life++);
    if (k % 3 == 0) { /* sometimes the parent cleans up first, sometimes the next worker */
      (void)fg_host_map_reap(m, fg_host_now_ms());
    }
  }
  nap_us(100000);
  atomic_store(&all->stop, 1);
  for (int i = 0; i < WORKERS; i++) {
    FG_EQ(wait_end(pid[i]), 0);
  }
  (void)fg_host_map_reap(m, fg_host_now_ms());
  FG_EQ(fg_host_map_reap(m, fg_host_now_ms()), 0);
  check_gauges(fg_host_map_region(m));
  check_books(e, kills);
  check_probes(e, fg_host_map_region(m));
  char name[192];
  (void)snprintf(name, sizeof name, "%s", fg_host_map_path(m));
  fg_host_map_close(m);
  free(e);
  fg_mem mem = fg_host_mem();
  fg_policy_free(policy, &mem);
  (void)unlink(name);
  FG_EQ(rmdir(dir), 0);
  (void)munmap(all, sizeof *all);
  return fg_test_end("hammer");
}
