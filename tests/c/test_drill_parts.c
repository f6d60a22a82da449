/* The drills' parts: chance, the order of events, faults, the bound, and what a configuration may say. */
#include "fg_test.h"

#include "fg_drill.h"
#include "fg_drill_heap.h"
#include "fg_drill_random.h"

#include <stdlib.h>

/* ---- chance */

static void logarithms(void) {
  const int64_t one = (int64_t)1 << 30, ln2 = 744261118;
  FG_EQ(drill_ln(1), 0);
  for (int i = 1; i < 64; i++) {
    FG_EQ(drill_ln(UINT64_C(1) << i), i * ln2);
  }
  const int64_t e20 = drill_ln(UINT64_C(485165195)); /* e^20 = 485165195.4 */
  FG_CHECK(e20 > 20 * one - 4000 && e20 < 20 * one + 4000);
  FG_CHECK(drill_ln(UINT64_MAX) <= 64 * ln2 && drill_ln(UINT64_MAX) > 63 * ln2);
}

static void exponential(void) {
  enum { N = 200000 };
  uint64_t s = drill_stream(7, DRILL_FOR_A);
  int64_t sum = 0, over = 0;
  for (int i = 0; i < N; i++) {
    const int64_t v = drill_exponential(drill_next(&s));
    FG_CHECK(v >= 0 && v < 64000000);
    sum += v;
    over += v > 1000000;
  }
  FG_CHECK(sum / N > 990000 && sum / N < 1010000);
  FG_CHECK(over > 0.3579 * N && over < 0.3779 * N); /* 1/e */
  FG_EQ(drill_exponential(UINT64_MAX), 0);
  FG_CHECK(drill_exponential(0) > 43000000);
}

static void lognormal(void) {
  enum { N = 200000 };
  static const uint32_t cvs[] = {300000, 1000000};
  for (int k = 0; k < 2; k++) {
    uint64_t s = drill_stream(7, DRILL_FOR_NOISE);
    int64_t sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
      const int64_t v = drill_lognormal(&s, cvs[k]);
      FG_CHECK(v > 0);
      sum += v;
      squares += v / 1000 * (v / 1000);
    }
    const int64_t mean = sum / N, second = squares / N, var = second - mean / 1000 * (mean / 1000),
                  want = (int64_t)cvs[k] / 1000 * (cvs[k] / 1000);
    FG_CHECK(mean > 985000 && mean < 1015000);
    FG_CHECK(var > want * 90 / 100 && var < want * 110 / 100);
  }
  uint64_t s = 1;
  FG_EQ(drill_lognormal(&s, 0), 1000000);
  FG_EQ(s, 1); /* nothing is drawn for no noise */
}

static void streams(void) {
  uint64_t a = drill_stream(1, DRILL_FOR_A), b = drill_stream(1, DRILL_FOR_B), again = drill_stream(1, DRILL_FOR_A);
  FG_CHECK(a != b);
  FG_EQ(drill_next(&a), drill_next(&again));
  int yes = 0;
  for (uint64_t i = 0; i < 100000; i++) {
    yes += drill_chance(drill_hash(3, DRILL_FOR_ERRORS, i), 300000);
  }
  FG_CHECK(yes > 29400 && yes < 30600);
  FG_CHECK(!drill_chance(0, 0) && drill_chance(UINT64_MAX, 1000000));
}

/* ---- the heap */

static void order_of_events(void) {
  drill_heap h = {0};
  drill_event e, last = {.at = -1};
  uint64_t s = 5;
  for (uint32_t i = 0; i < 5000; i++) {
    FG_CHECK(drill_heap_push(&h, (int64_t)(drill_next(&s) % 100), 1, i, 0));
  }
  uint32_t n = 0;
  for (; drill_heap_pop(&h, &e); n++) {
    FG_CHECK(e.at > last.at || (e.at == last.at && e.seq > last.seq));
    last = e;
  }
  FG_EQ(n, 5000);
  free(h.event);
}

/* ---- faults */

static void faults(void) {
  drill_config c;
  drill_fault f;
  drill_config_default(&c);
  FG_CHECK(!drill_fault_named("nothing", &f));
  FG_CHECK(drill_fault_named("ramp", &f));
  FG_EQ(drill_fault_at(&c, &f, 0, -1).decode_ppm, 1000000);
  FG_EQ(drill_fault_at(&c, &f, 0, 0).decode_ppm, 1000000);
  FG_EQ(drill_fault_at(&c, &f, 0, 150000000).decode_ppm, 2500000);
  FG_EQ(drill_fault_at(&c, &f, 0, 300000000).decode_ppm, 4000000);
  FG_EQ(drill_fault_at(&c, &f, 0, 599999999).decode_ppm, 4000000);
  FG_EQ(drill_fault_at(&c, &f, 0, 600000000).decode_ppm, 1000000);
  FG_EQ(drill_fault_at(&c, &f, 1, 300000000).decode_ppm, 1000000);
  FG_CHECK(drill_fault_named("short", &f));
  FG_EQ(drill_fault_at(&c, &f, 0, 59999999).error_ppm, 0);
  FG_EQ(drill_fault_at(&c, &f, 0, 60000000).error_ppm, 1000000);
  FG_EQ(drill_fault_at(&c, &f, 0, 75000000).error_ppm, 0);
  FG_CHECK(drill_fault_named("backup_blackout", &f));
  FG_EQ(drill_fault_at(&c, &f, 0, 1).error_ppm, 0);
  FG_EQ(drill_fault_at(&c, &f, 1, 1).error_status, 503);
}

static void bound_of(const char *fault, uint32_t spare_ppm, int64_t want_ppm) {
  drill_config c;
  drill_fault f;
  drill_config_default(&c);
  c.spare_ppm = spare_ppm;
  FG_CHECK(drill_fault_named(fault, &f));
  const int64_t got = drill_bound(&c, &f);
  FG_CHECK(got > want_ppm - 3000 && got < want_ppm + 3000);
}

static void bounds(void) {
  /* (c_P + 0.95 mu_S - B) / A; mu_S = 3 + 4 s */
  bound_of("blackout", 0, 212500);
  bound_of("trickle", 250000, 450000);
  bound_of("brownout", 0, 712500);
  bound_of("ratelimit", 0, 712500);
  bound_of("blackout", 875000, 1000000);
  drill_config c;
  drill_config_default(&c);
  FG_EQ(drill_backup_slots(&c), 26);
  c.spare_ppm = 0;
  FG_EQ(drill_backup_slots(&c), 12);
  c.scale = 10;
  FG_EQ(drill_backup_slots(&c), 120);
}

/* ---- the configuration */

static int32_t reads(const char *text, drill_config *c, fg_error *e) {
  *e = (fg_error){.size = sizeof *e};
  drill_config_default(c);
  const int32_t rc = drill_config_read(c, text, strlen(text), e);
  return rc == FG_OK ? drill_config_check(c, e) : rc;
}

static void refused(const char *text, const char *path, const char *words) {
  drill_config c;
  fg_error e;
  FG_EQ(reads(text, &c, &e), FG_ERR_RANGE);
  FG_EQ_STR(e.path, path);
  if (!FG_CHECK(strstr(e.message, words) != NULL)) {
    printf("  %s: %s\n", text, e.message);
  }
  drill_config_free(&c);
}

static void bad_configurations(void) {
  refused("[]", "", "object");
  refused("{\"seedz\": 1}", "seedz", "did you mean seed?");
  refused("{\"nonsense\": 1}", "nonsense", "there are seed, seeds");
  refused("{\"seed\": 1, \"seed\": 2}", "seed", "twice");
  refused("{\"seed\": 1.5}", "seed", "whole number");
  refused("{\"seed\": -1}", "seed", "from 0");
  refused("{\"seeds\": 0}", "seeds", "from 1 to 1000");
  refused("{\"seeds\": \"3\"}", "seeds", "whole number");
  refused("{\"population\": {\"a_per_s\": 0}}", "population.a_per_s", "from 0.001");
  refused("{\"population\": {\"a_per_s\": 1e300}}", "population.a_per_s", "to 10000");
  refused("{\"population\": {\"b_per_s\": 33.33333}}", "population.b_per_s", "at most 3 decimals");
  refused("{\"population\": 4}", "population", "object");
  refused("{\"faults\": []}", "faults", "list");
  refused("{\"faults\": [\"brownout\", \"brown\"]}", "faults[1]", "no such fault; there are brownout");
  refused("{\"faults\": [{\"effects\": []}]}", "faults[0].name", "name the fault");
  refused("{\"faults\": [{\"name\": \"A b\"}]}", "faults[0].name", "a to z");
  refused("{\"faults\": [{\"name\": \"x\", \"effects\": [{\"decode\": 0.5}]}]}", "faults[0].effects[0].decode", "from 1");
  refused("{\"faults\": [{\"name\": \"x\", \"effects\": [{}, {\"rate\": {\"requests\": 0}}]}]}", "faults[0].effects[1].rate.requests",
          "from 1");
  refused("{\"faults\": [{\"name\": \"x\", \"effects\": [{\"target\": \"moon\"}]}]}", "faults[0].effects[0].target", "primary, backups");
  refused("{\"faults\": [{\"name\": \"x\", \"effects\": [{\"start_s\": 500, \"length_s\": 200}]}]}", "faults[0].effects",
          "within the fault's phase");
  refused("{\"faults\": [{\"name\": \"x\", \"burst\": {\"every_s\": 5, \"length_s\": 6, \"times\": 2}}]}", "faults[0].burst",
          "length_s is at most");
  refused("{\"strategies\": [\"naive\", \"brave\"]}", "strategies[1]", "there are naive");
  refused("{\"ladder\": 1}", "ladder", "true or false");
  refused("{\"adopters\": 1.5}", "adopters", "from 0 to 1");
  refused("{\"client\": {\"deadline_s\": 5}}", "client.first_token_s", "deadline_s");
  refused("{\"scale\": 100, \"population\": {\"a_per_s\": 10000}}", "population", "20 million");
  refused("{\"faults\": [\"none\", {\"name\": \"x\", \"burst\": {\"every_s\": 5, \"length_s\": 1, \"times\": 100}}], \"scale\": 100}",
          "faults[1].burst", "20 million");
  refused("{\"speed\": {\"tokens_per_s\": 0.1}, \"request\": {\"output_tokens\": 10000}}", "speed", "more than a day");
  refused("{\"card\": []}", "card", "object");
  drill_config c;
  fg_error e;
  FG_EQ(reads("{\"seeds\":\n 3,}", &c, &e), FG_ERR_SYNTAX);
  FG_EQ(e.line, 2);
  FG_EQ(reads("", &c, &e), FG_ERR_SYNTAX);
}

static void good_configurations(void) {
  drill_config c;
  fg_error e;
  FG_EQ(reads("{\"population\": {\"a_per_s\": 0.5}, \"request\": {\"output_cv\": 0.25}, \"spare\": 0.125, \"card\": {\"version\": 1},"
              "\"faults\": [\"trickle\", {\"name\": \"mine\", \"cancel_frees\": true, \"effects\": [{\"errors\": 0.2, \"status\": 529, "
              "\"ramp_s\": 2.5}]}]}",
              &c, &e),
        FG_OK);
  FG_EQ(c.a_milli, 500);
  FG_EQ(c.output_cv_ppm, 250000);
  FG_EQ(c.spare_ppm, 125000);
  FG_EQ(c.fault_count, 2);
  FG_EQ_STR(c.fault[0].name, "trickle");
  FG_EQ(c.fault[1].effect[0].error_ppm, 200000);
  FG_EQ(c.fault[1].effect[0].ramp_us, 2500000);
  FG_EQ(c.fault[1].effect[0].slots_ppm, 1000000);
  FG_EQ(c.fault[1].cancel_frees, 1);
  FG_EQ_STR(c.card, "{\"version\":1}");
  const uint64_t before = drill_config_hash(&c);
  c.seed = 99;
  c.seeds = 7;
  c.strategies = 1;
  FG_EQ(drill_config_hash(&c), before);
  c.fault[1].effect[0].error_ppm++;
  FG_CHECK(drill_config_hash(&c) != before);
  c.fault[1].effect[0].error_ppm--;
  c.small_ppm++;
  FG_CHECK(drill_config_hash(&c) != before);
  drill_config_free(&c);
}

int main(void) {
  logarithms();
  exponential();
  lognormal();
  streams();
  order_of_events();
  faults();
  bounds();
  bad_configurations();
  good_configurations();
  return fg_test_end("drill_parts");
}
