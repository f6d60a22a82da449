/* The drills as a whole: the article's rows, the same bytes for the same seed, the engine under test, and a stop. */
#include "fg_test.h"

#include "fg_drill_table.h"

#include <stdlib.h>

/* Of the JSON of same_bytes. */
#define GOLDEN UINT64_C(0x561f05382ce58ef9)

static drill_config c;

static uint32_t index_of(const char *fault) {
  for (uint32_t i = 0; i < c.fault_count; i++) {
    if (strcmp(c.fault[i].name, fault) == 0) {
      return i;
    }
  }
  printf("no fault %s\n", fault);
  exit(1);
}

static void start(const char *text) {
  fg_error e = {.size = sizeof e};
  drill_config_default(&c);
  if (drill_config_read(&c, text, strlen(text), &e) != FG_OK) {
    printf("%s: %s\n", e.path, e.message);
    exit(1);
  }
}

static drill_table run(void) {
  drill_table t;
  fg_error e = {.size = sizeof e};
  if (!FG_EQ(drill_table_run(&c, 2, 0, NULL, NULL, &t, &e), FG_OK)) {
    printf("%s: %s\n", e.path, e.message);
    exit(1);
  }
  return t;
}

static const drill_row *row_of(const drill_table *t, const char *fault, uint32_t strategy) {
  const uint32_t f = index_of(fault);
  for (uint32_t i = 0; i < t->rows; i++) {
    if (t->row[i].fault == f && t->row[i].strategy == strategy) {
      return &t->row[i];
    }
  }
  exit(1);
}

/* ---- the article's table: load within 0.05, disciplined's answers within 4 points (hundredths; per cent) */

static void near(const drill_table *t, const char *fault, uint32_t strategy, uint32_t metric, int64_t want, int64_t off) {
  const int64_t got = row_of(t, fault, strategy)->mean[metric];
  if (!FG_CHECK(got >= want - off && got <= want + off)) {
    printf("  %s %s %s: %" PRId64 ", not %" PRId64 "\n", fault, drill_strategy_name(strategy), drill_metric_name(metric), got, want);
  }
}

static void calibration(void) {
  static const struct {
    const char *fault;
    int64_t naive, backoff, disciplined, answered;
  } article[] = {{"brownout", 1960000, 3830000, 1010000, 773000},
                 {"blackout", 2000000, 3990000, 970000, 910000},
                 {"ratelimit", 1530000, 2920000, 1110000, 478000},
                 {"trickle", 1980000, 3890000, 990000, 897000},
                 {"brownout_layered", 3830000, 3830000, 1010000, 774000},
                 /* backoff is left out here: how its waits meet the freed slots depends on jitter the article does not state */
                 {"brownout_cancel", 1480000, 0, 1000000, 857000}};
  start("{\"seeds\": 20, \"strategies\": [\"naive\", \"backoff\", \"disciplined\"]}");
  drill_table t = run();
  for (size_t i = 0; i < sizeof article / sizeof article[0]; i++) {
    near(&t, article[i].fault, DRILL_NAIVE, DRILL_M_LOAD, article[i].naive, 50000);
    if (article[i].backoff != 0) {
      near(&t, article[i].fault, DRILL_BACKOFF, DRILL_M_LOAD, article[i].backoff, 50000);
    }
    near(&t, article[i].fault, DRILL_DISCIPLINED, DRILL_M_LOAD, article[i].disciplined, 50000);
    near(&t, article[i].fault, DRILL_DISCIPLINED, DRILL_M_USEFUL, article[i].answered, 40000);
  }
  near(&t, "brownout", DRILL_NAIVE, DRILL_M_ABANDONED, 3743, 100);
  near(&t, "brownout", DRILL_NAIVE, DRILL_M_EXTRA, 870000, 20000);
  near(&t, "brownout", DRILL_DISCIPLINED, DRILL_M_DETECTED, 27000000, 3000000);
  near(&t, "brownout", DRILL_BACKOFF, DRILL_M_WITHIN, 17000, 2000);
  near(&t, "trickle", DRILL_BACKOFF, DRILL_M_WITHIN, 0, 0);
  drill_table_free(&t);
}

/* ---- what is known without a simulation */

static void without_a_fault(void) {
  start("{\"seeds\": 2, \"faults\": [\"none\"], \"strategies\": [\"naive\", \"fivegates\", \"oracle\", \"plain\"]}");
  drill_table t = run();
  for (uint32_t i = 0; i < t.rows; i++) {
    const int64_t *m = t.row[i].mean;
    FG_EQ(m[DRILL_M_LOAD], 1000000);
    FG_EQ(m[DRILL_M_USEFUL], 1000000);
    FG_EQ(m[DRILL_M_FULL], 1000000);
    FG_CHECK(m[DRILL_M_P50] >= 4000000 && m[DRILL_M_P50] < 4001000); /* 0.144 + 512 / 2000 + 256 / 71.11 */
    FG_EQ(m[DRILL_M_ABANDONED], 0);
    FG_EQ(m[DRILL_M_WASTED_TOKENS], 0);
    FG_EQ(m[DRILL_M_COST], 3840000);                             /* 512 x 2.5 + 256 x 10 dollars a million */
    FG_EQ(m[DRILL_M_REQUESTS], t.row[0].mean[DRILL_M_REQUESTS]); /* all strategies see the same arrivals */
  }
  drill_table_free(&t);
}

static void slow_work_is_rescaled(void) {
  /* Five seconds of a fault that makes everything ten times slower, with a slot for everybody: an answer takes at most 4 + 4.5 s. */
  start("{\"strategies\": [\"plain\"], \"slots\": {\"primary\": 1000}, \"phases\": {\"fault_s\": 10, \"warm_s\": 60, \"after_s\": 60},"
        "\"faults\": [{\"name\": \"dip\", \"effects\": [{\"prefill\": 10, \"decode\": 10, \"length_s\": 5}]}]}");
  drill_table t = run();
  const int64_t *m = t.row[0].mean;
  FG_EQ(m[DRILL_M_USEFUL], 1000000);
  FG_CHECK(m[DRILL_M_P95] > 8000000 && m[DRILL_M_P95] <= 8501000);
  FG_EQ(m[DRILL_M_ABANDONED], 0);
  drill_table_free(&t);
}

/* ---- determinism */

static uint64_t fold(const char *text) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (; *text != 0; text++) {
    h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  }
  return h;
}

static char *json(uint32_t threads) {
  drill_table t;
  fg_error e = {.size = sizeof e};
  FG_EQ(drill_table_run(&c, threads, 1, NULL, NULL, &t, &e), FG_OK);
  char *text = drill_json(&c, &t);
  drill_table_free(&t);
  return text;
}

static void same_bytes(void) {
  start("{\"seed\": 11, \"seeds\": 3, \"request\": {\"output_cv\": 1, \"first_token_cv\": 0.5, \"speed_cv\": 0.3}}");
  char *one = json(1), *many = json(8);
  FG_EQ_STR(one, many);
  free(one);
  free(many);
  /* The strategies that are not the engine: the same on every compiler and machine, until the simulator itself is changed. */
  c.strategies = 1 << DRILL_NAIVE | 1 << DRILL_BACKOFF | 1 << DRILL_DISCIPLINED | 1 << DRILL_ORACLE;
  char *text = json(2);
  FG_CHECK(fold(text) == GOLDEN);
  if (fold(text) != GOLDEN) {
    printf("  0x%016" PRIx64 "\n", fold(text));
  }
  free(text);
}

/* ---- the engine is what is tested: another decision, another table */

static void engine_matters(void) {
  static const char card[] =
      "{\"version\":1,\"breaker\":{\"consecutive\":1000,\"min_calls\":100000,\"stall\":false},"
      "\"routes\":{\"primary\":{\"provider\":\"p\",\"model\":\"m\"}},\"workflows\":{\"drill\":{\"routes\":[\"primary\"]}}}";
  start("{\"seeds\": 2, \"faults\": [\"blackout\", \"brownout\"], \"strategies\": [\"fivegates\", \"plain\"]}");
  drill_table t = run();
  const int64_t with = row_of(&t, "blackout", DRILL_FIVEGATES)->mean[DRILL_M_USEFUL];
  FG_CHECK(with > 900000);
  FG_CHECK(row_of(&t, "blackout", DRILL_PLAIN)->mean[DRILL_M_USEFUL] == 0);
  FG_CHECK(row_of(&t, "blackout", DRILL_FIVEGATES)->mean[DRILL_M_DETECTED] != DRILL_NONE);
  drill_table_free(&t);
  c.card = malloc(sizeof card);
  memcpy(c.card, card, sizeof card);
  t = run();
  FG_EQ(row_of(&t, "blackout", DRILL_FIVEGATES)->mean[DRILL_M_USEFUL], 0); /* no stand-in: nothing to answer with */
  drill_table_free(&t);
  drill_config_free(&c);
}

static void tenants(void) {
  start("{\"tenants\": 50, \"backups\": 3, \"spare\": 1, \"shared\": false, \"adopters\": 0.5, \"others\": \"plain\", \"faults\": "
        "[\"blackout\"],"
        "\"strategies\": [\"fivegates\"], \"phases\": {\"fault_s\": 120}}");
  drill_table t = run();
  const int64_t *m = t.row[0].mean;
  FG_EQ(m[DRILL_M_REST_USEFUL], 0);     /* the others have one try on the primary */
  FG_CHECK(m[DRILL_M_USEFUL] > 500000); /* who adopts is answered */
  FG_EQ(m[DRILL_M_B_DURING], 1000000);
  drill_table_free(&t);
}

/* ---- bad cards, and a stop */

static void bad_card(const char *card, const char *path, const char *words) {
  drill_table t;
  fg_error e = {.size = sizeof e};
  start("{\"strategies\": [\"fivegates\"], \"faults\": [\"none\"]}");
  c.card = malloc(strlen(card) + 1);
  memcpy(c.card, card, strlen(card) + 1);
  FG_CHECK(drill_table_run(&c, 2, 0, NULL, NULL, &t, &e) < 0);
  FG_EQ_STR(e.path, path);
  if (!FG_CHECK(strstr(e.message, words) != NULL)) {
    printf("  %s\n", e.message);
  }
  drill_config_free(&c);
}

static int stop_at_once(void *ctx, uint32_t done, uint32_t of) {
  (void)done;
  (void)of;
  ++*(int *)ctx;
  return 1;
}

static void stops(void) {
  drill_table t;
  fg_error e = {.size = sizeof e};
  int asked = 0;
  start("{\"seeds\": 1000, \"scale\": 20}"); /* hours of work */
  FG_EQ(drill_table_run(&c, 2, 1, stop_at_once, &asked, &t, &e), FG_ERR_STATE);
  FG_EQ(asked, 1);
  FG_EQ(t.rows, 0);
}

int main(void) {
  calibration();
  without_a_fault();
  slow_work_is_rescaled();
  same_bytes();
  engine_matters();
  tenants();
  bad_card("{\"version\":1}", "card.routes", "required");
  bad_card("{\"version\":1,\"routes\":{\"main\":{\"provider\":\"p\",\"model\":\"m\"}},\"workflows\":{\"drill\":{\"routes\":[\"main\"]}}}",
           "card", "routes primary, backup1");
  stops();
  return fg_test_end("drill");
}
