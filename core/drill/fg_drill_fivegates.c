/* The strategy fivegates: the production engine, told of simulated time and of what a real host would see. Routes are found by name: primary, backup1,
 * small1, ... ; the workflow is `drill`. */
#include "fg_drill_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 32, ASK = 0, WAKE = 1, ROUTES_MAX = 64, ROWS = 65536, CHARACTERS = 4 };
#define EPOCH_MS INT64_C(10000000)     /* the engine's clock at the start of a run */
#define UNIX_MS INT64_C(1796083200000) /* 2026-12-01, for the contracts' dates */

typedef struct side {
  fg_call call;
  fg_decision d;
} side; /* a job's part of the engine */

typedef struct office {
  fg_region *region;
  fg_engine *engine;
  uint32_t open;
  int64_t tick_at;
} office; /* of all tenants, or of one */

typedef struct fleet {
  fg_policy *policy;
  office *office;
  uint32_t offices, routes, primary;
  uint32_t provider[ROUTES_MAX], small[ROUTES_MAX]; /* by route id */
  side *side[CHUNKS];
} fleet;

static fleet *fleet_of(const world *w) { return w->state[DRILL_FIVEGATES]; }
static office *office_of(const world *w, const job *j) { return &fleet_of(w)->office[w->c->shared ? 0 : j->tenant]; }
static int64_t clock_ms(const world *w) { return EPOCH_MS + w->now / 1000; }
static fg_str str(const char *text) { return (fg_str){.ptr = text, .len = (uint32_t)strlen(text)}; }

static side *side_of(world *w, const job *j) {
  side **chunk = &fleet_of(w)->side[j->self / CHUNK];
  if (*chunk == NULL) {
    *chunk = calloc(CHUNK, sizeof(side));
    w->error = *chunk != NULL ? w->error : FG_ERR_NOMEM;
  }
  return *chunk != NULL ? *chunk + j->self % CHUNK : NULL;
}

/* ---- making the engines */

static int32_t bad_card(fg_error *err, const char *what) {
  if (err != NULL) {
    (void)snprintf(err->path, sizeof err->path, "card");
    (void)snprintf(err->message, sizeof err->message,
                   "%s; the drill's card has a workflow drill, and routes primary, backup1 .., small1 ..", what);
  }
  return FG_ERR_RANGE;
}

static int32_t map_routes(world *w, fleet *f, fg_error *err) {
  f->routes = fg_policy_count(f->policy, FG_FIND_ROUTE);
  f->primary = fg_policy_find(f->policy, FG_FIND_ROUTE, "primary", 7);
  if (f->primary == 0 || f->routes >= ROUTES_MAX || fg_policy_find(f->policy, FG_FIND_WORKFLOW, "drill", 5) == 0) {
    return bad_card(err, "no route primary, no workflow drill, or too many routes");
  }
  for (uint32_t i = 1; i <= f->routes; i++) {
    fg_str name;
    char copy[FG_NAME_MAX + 1] = "";
    unsigned n = 0;
    (void)fg_policy_name(f->policy, FG_FIND_ROUTE, i, &name);
    memcpy(copy, name.ptr, name.len < FG_NAME_MAX ? name.len : FG_NAME_MAX);
    f->small[i] = strncmp(copy, "small", 5) == 0;
    const char *digits = f->small[i] ? copy + 5 : strncmp(copy, "backup", 6) == 0 ? copy + 6 : "";
    if (i != f->primary && (sscanf(digits, "%u", &n) != 1 || n == 0 || n > w->c->backups)) {
      return bad_card(err, "a route with another name");
    }
    f->provider[i] = n;
  }
  return FG_OK;
}

static int32_t open_office(world *w, fleet *f, office *o, fg_error *err) {
  const fg_region_config g = {.size = sizeof g,
                              .routes = f->routes,
                              .accounts = f->routes,
                              .workflows = 1,
                              .procs = 8,
                              .rows = f->offices == 1 && w->c->tenants > 1 ? ROWS : 1024};
  const uint64_t bytes = fg_region_bytes(&g), needed = fg_engine_bytes(f->policy);
  void *region = calloc(1, bytes), *engine = calloc(1, needed);
  o->region = region;
  o->engine = engine; /* their memory, whatever becomes of it */
  if (region == NULL || engine == NULL) {
    return FG_ERR_NOMEM;
  }
  int32_t rc = fg_region_open(region, bytes, &g, clock_ms(w), &o->region, err);
  o->region = region;
  if (rc == FG_OK) {
    rc = fg_engine_init(engine, needed, f->policy, o->region, 0, drill_hash(w->seed, DRILL_FOR_POLICY, (uint64_t)(o - f->office)),
                        clock_ms(w), &o->engine, err);
    o->engine = engine;
  }
  return rc == FG_OK ? fg_engine_clock(o->engine, UNIX_MS, clock_ms(w)) : rc;
}

static int32_t open_fleet(world *w, fg_error *err) {
  fleet *f = calloc(1, sizeof *f);
  w->state[DRILL_FIVEGATES] = f;
  if (f == NULL) {
    return FG_ERR_NOMEM;
  }
  f->offices = w->c->shared ? 1 : w->c->tenants;
  f->office = calloc(f->offices, sizeof *f->office);
  int32_t rc = f->office != NULL ? drill_card(w->c, &f->policy, err) : FG_ERR_NOMEM;
  rc = rc == FG_OK ? map_routes(w, f, err) : rc;
  for (uint32_t i = 0; i < f->offices && rc == FG_OK; i++) {
    rc = open_office(w, f, &f->office[i], err);
  }
  return rc;
}

static void close_fleet(world *w) {
  fleet *f = fleet_of(w);
  for (uint32_t i = 0; i < f->offices && f->office != NULL; i++) {
    free(f->office[i].engine);
    free(f->office[i].region);
  }
  for (uint32_t i = 0; i < CHUNKS; i++) {
    free(f->side[i]);
  }
  free(f->office);
  fg_policy_free(f->policy, &drill_mem);
  free(f);
}

/* ---- one call */

static void write_line(world *w, const job *j, uint32_t line) {
  const side *s = side_of(w, j);
  drill_ledger_line(w, office_of(w, j)->engine, &s->call, &s->d, line, clock_ms(w));
}

static int32_t told(world *w, const job *j, int32_t rc) {
  if (rc == FG_OK) {
    write_line(w, j, FG_LINE_DECISION);
  }
  return rc;
}

static void tell(world *w, const job *j, uint32_t number, uint32_t event, uint32_t value) {
  (void)fg_call_event(office_of(w, j)->engine, &side_of(w, j)->call, number, event, value, clock_ms(w));
  drill_ledger_event(w, j, number, fg_name(FG_TABLE_EVENT, event), value, clock_ms(w));
}

static void end(world *w, job *j, uint32_t outcome, const attempt *a) {
  write_line(w, j, FG_LINE_END);
  (void)fg_call_end(office_of(w, j)->engine, &side_of(w, j)->call);
  office_of(w, j)->open--;
  drill_finish(w, j, outcome, a);
}

static void later(world *w, job *j, uint32_t mark, uint32_t ms) {
  j->mark = mark;
  drill_wait(w, j, (int64_t)ms * 1000);
}

static void hang_up(world *w, const job *j, uint32_t number) {
  for (uint32_t i = 0; i < ATTEMPTS_LIVE; i++) {
    if (j->live[i] != NOBODY && attempt_at(w, j->live[i])->number == number) {
      drill_leave(w, attempt_at(w, j->live[i]));
    }
  }
}

/* The permission is there: send. */
static void send(world *w, job *j, const fg_decision *d) {
  const fleet *f = fleet_of(w);
  attempt *a = drill_send(w, j, f->provider[d->route], f->small[d->route], d->attempt);
  if (a != NULL) {
    tell(w, j, d->attempt, FG_EVENT_SENT, 0);
    if (d->wake_ms != 0) {
      later(w, j, WAKE, d->wake_ms);
    }
  }
}

static int has_noticed(const world *w, const fleet *f, const office *o) {
  fg_route_view v = {.size = sizeof v};
  return fg_engine_route(o->engine, f->primary, clock_ms(w), &v) == FG_OK &&
         (v.breaker != FG_BREAKER_CLOSED || v.health != FG_HEALTH_OK || v.limit != 0 || v.rate_milli != 0);
}

/* Looked at after whatever may have changed the engine's mind. */
static void watch(world *w, const office *o) {
  if (w->detected_us < 0 && drill_in_fault(w) && has_noticed(w, fleet_of(w), o)) {
    drill_detected(w);
  }
}

/* Does what the latest decision says, until it has to wait for something. */
static void follow(world *w, job *j, int32_t rc) {
  side *s = side_of(w, j);
  const fg_engine *e = office_of(w, j)->engine;
  fg_decision *d = &s->d;
  watch(w, office_of(w, j));
  for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
    if (rc != FG_OK) {
      w->error = rc;
      return;
    }
    if (d->cancel != 0) {
      hang_up(w, j, d->cancel);
    }
    switch (d->action) {
    case FG_ACTION_KEEP_WAITING:
      later(w, j, WAKE, d->wake_ms != 0 ? d->wake_ms : d->wait_ms);
      return;
    case FG_ACTION_DEGRADE:
      if (d->route == 0) {
        end(w, j, OUT_PRESET, NULL);
        return;
      }
      break;
    case FG_ACTION_PROCEED:
    case FG_ACTION_RETRY:
    case FG_ACTION_FALLBACK:
    case FG_ACTION_HOLD:
      break;
    default:
      end(w, j, w->record[j->record].attempts == 0 ? OUT_REFUSED : OUT_FAILED, NULL);
      return;
    }
    if (d->wait_ms != 0) {
      later(w, j, ASK, d->wait_ms);
      return;
    }
    rc = told(w, j, fg_call_begin_attempt(e, &s->call, clock_ms(w), d));
    if (rc == FG_OK && d->action == FG_ACTION_PROCEED) {
      send(w, j, d);
      return;
    }
  }
  w->error = FG_ERR_STATE; /* the engine asks for the same again and again without a wait */
}

static void arrive(world *w, job *j) {
  char id[24], tenant[24];
  side *s = side_of(w, j);
  if (s == NULL) {
    return;
  }
  (void)snprintf(id, sizeof id, "a-%u", j->record);
  (void)snprintf(tenant, sizeof tenant, "t-%u", j->tenant);
  const uint32_t varies = w->c->output_cv_ppm != 0 ? 8 : 1; /* nobody knows the length of an answer before */
  const fg_request q = {.size = sizeof q,
                        .unable = FG_UNABLE_CACHE | FG_UNABLE_QUEUE | FG_UNABLE_RESUME | FG_UNABLE_HEDGE,
                        .workflow = str("drill"),
                        .call_id = str(id),
                        .tenant = str(tenant),
                        .affinity = str(tenant),
                        .prompt_tokens = j->prompt,
                        .max_output_tokens = w->c->output_tokens * varies,
                        .stream = FG_STREAM_YES,
                        .delivery = FG_DELIVERY_WHOLE};
  office *o = office_of(w, j);
  o->open++;
  s->d = (fg_decision){.size = sizeof s->d};
  const int32_t rc = fg_call_begin(o->engine, &s->call, &q, clock_ms(w), &s->d);
  write_line(w, j, FG_LINE_CALL);
  follow(w, j, told(w, j, rc));
}

static void first_token(world *w, job *j, attempt *a) {
  tell(w, j, a->number, FG_EVENT_ACCEPTED, 0);
  tell(w, j, a->number, FG_EVENT_TOKEN, 1);
  a->reported = 1;
}

static void report_tokens(world *w, job *j, attempt *a) {
  const uint32_t made = drill_tokens_made(w, a);
  if (made > a->reported) {
    tell(w, j, a->number, FG_EVENT_TOKEN, made - a->reported);
    a->reported = made;
  }
}

static void done(world *w, job *j, attempt *a) {
  side *s = side_of(w, j);
  const fg_engine *e = office_of(w, j)->engine;
  const fg_answer answer = {.size = sizeof answer,
                            .finish = FG_FINISH_STOP,
                            .prompt_tokens = a->prompt,
                            .output_tokens = a->output,
                            .visible = a->output * CHARACTERS,
                            .flags = FG_ANSWER_USAGE_FINAL};
  report_tokens(w, j, a);
  tell(w, j, a->number, FG_EVENT_TERMINAL, FG_FINISH_STOP);
  const int32_t rc = told(w, j, fg_call_success(e, &s->call, a->number, &answer, clock_ms(w), &s->d));
  if (rc == FG_OK && s->d.action == FG_ACTION_ACCEPT) {
    end(w, j, a->small ? OUT_SMALL : OUT_FULL, a);
  } else {
    follow(w, j, rc);
  }
}

/* What an overloaded or limiting provider answers. */
static void failed(world *w, job *j, attempt *a) {
  side *s = side_of(w, j);
  char reset[24], after[24];
  (void)snprintf(reset, sizeof reset, "%dms", (int)(a->reset_us / 1000));
  (void)snprintf(after, sizeof after, "%d", (int)((a->reset_us + 999) / 1000));
  const fg_header headers[] = {{str("content-type"), str("application/json")},
                               {str("retry-after-ms"), str(after)},
                               {str("x-ratelimit-remaining-requests"), str("0")},
                               {str("x-ratelimit-reset-requests"), str(reset)}};
  const int limited = a->status == 429;
  const fg_evidence v = {
      .size = sizeof v,
      .phase = FG_PHASE_RESPONSE,
      .status = a->status,
      .flags = FG_EV_WHOLE_BODY | FG_EV_PROGRESS,
      .body = str(
          limited ? "{\"error\":{\"message\":\"Rate limit reached for requests\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}"
                  : "{\"error\":{\"message\":\"The server had an error while processing your "
                    "request\",\"type\":\"server_error\",\"code\":null}}"),
      .headers = headers,
      .header_count = limited ? 4 : 1,
      .elapsed_ms = (uint32_t)((w->now - a->sent_at) / 1000)};
  follow(w, j, told(w, j, fg_call_failure(office_of(w, j)->engine, &s->call, a->number, &v, clock_ms(w), &s->d)));
}

static void timer(world *w, job *j) {
  side *s = side_of(w, j);
  if (j->mark == WAKE) {
    int32_t rc = fg_call_deadline(office_of(w, j)->engine, &s->call, clock_ms(w), &s->d);
    if (rc == FG_OK && s->d.action == FG_ACTION_KEEP_WAITING) {
      drill_ledger_event(w, j, s->d.attempt, "deadline", 0, clock_ms(w));
    } else {
      rc = told(w, j, rc);
    }
    follow(w, j, rc);
  } else {
    s->d.wait_ms = 0; /* it is over */
    follow(w, j, FG_OK);
  }
}

/* ---- every report_us: tokens that came, and the engine's own clock */

static void tick(world *w) {
  fleet *f = fleet_of(w);
  for (uint32_t n = 0; n < w->providers; n++) {
    const endpoint *p = &w->provider[n];
    for (uint32_t i = 0; i < p->running_count; i++) {
      attempt *a = attempt_at(w, p->running[i]);
      if (a->state == AT_DECODE && a->job != NOBODY) {
        job *j = job_at(w, a->job);
        if (j->population == POP_A && j->strategy == DRILL_FIVEGATES) {
          report_tokens(w, j, a);
        }
      }
    }
  }
  for (uint32_t i = 0; i < f->offices; i++) {
    office *o = &f->office[i];
    if (o->open != 0 && w->now >= o->tick_at) {
      o->tick_at = w->now + (int64_t)fg_engine_tick(o->engine, clock_ms(w)) * 1000;
      drill_ledger_event(w, NULL, 0, "tick", 0, clock_ms(w));
    }
    if (o->open != 0) {
      watch(w, o);
    }
  }
}

const strategy drill_fivegates = {.open = open_fleet,
                                  .close = close_fleet,
                                  .arrive = arrive,
                                  .first_token = first_token,
                                  .done = done,
                                  .failed = failed,
                                  .timer = timer,
                                  .tick = tick,
                                  .own_clocks = 1};
