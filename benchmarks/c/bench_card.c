/* Loading a card with 1,000 workflows and 10,000 routes (DESIGN 15 allows 200
 * ms): text to a policy ready for an engine, with and without a contract for
 * every stand-in. CPU time of this thread, median of several loads. Also the
 * sizes DESIGN 15 limits. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fg_base.h"
#include "fg_host.h"
#include "fg_region.h"

enum { ROUNDS = 9, WORKFLOWS = 1000, PER_WORKFLOW = 10 };

typedef struct text {
  char *at;
  size_t len, cap;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->at + t->len, t->cap - t->len, format, args);
  va_end(args);
  if (n < 0 || (size_t)n >= t->cap - t->len) {
    fprintf(stderr, "the card does not fit its buffer\n");
    exit(1);
  }
  t->len += (size_t)n;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double now_ms(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The card; `approved`, a policy made from the same card without contracts,
 * gives their fingerprints. NULL = none. */
static void write_card(text *t, const fg_policy *approved) {
  t->len = 0;
  add(t, "{\"version\":1,\"limits\":{\"retries_per_hour\":600},\"routes\":{");
  for (int r = 0; r < WORKFLOWS * PER_WORKFLOW; r++) {
    add(t,
        "%s\"route-%d\":{\"provider\":\"%s\",\"model\":\"model-%d\","
        "\"account\":\"account-%d\",\"base_url\":\"https://api-%d.example.com/"
        "v1\","
        "\"key_env\":\"KEY_%d\",\"price\":{\"input\":2.5,\"cached_input\":1.25,"
        "\"output\":10},\"quota\":{\"in_flight\":40},"
        "\"provides\":{\"input\":{\"context_tokens\":128000,\"modalities\":["
        "\"text\",\"image\"]},"
        "\"output\":{\"max_tokens\":16384,\"json_schema\":true},\"data\":{"
        "\"regions\":[\"eu\"]}}}",
        r > 0 ? "," : "", r, r % 2 ? "azure-openai" : "openai", r % 7, r % 100, r % 50, r % 100);
  }
  add(t, "},\"workflows\":{");
  for (int w = 0; w < WORKFLOWS; w++) {
    add(t, "%s\"workflow-%d\":{\"kind\":\"interactive\",\"routes\":[", w > 0 ? "," : "", w);
    for (int i = 0; i < PER_WORKFLOW; i++) {
      add(t, "%s\"route-%d\"", i > 0 ? "," : "", w * PER_WORKFLOW + i);
    }
    add(t, "],\"budget\":{\"total_attempts\":3,\"per_route\":2,\"elapsed_ms\":"
           "9000,\"extra_cost_usd\":0.08},"
           "\"requires\":{\"input\":{\"context_tokens\":16000},\"output\":{"
           "\"finish_reasons\":[\"stop\",\"length\"]},\"data\":{\"regions\":["
           "\"eu\"]}},"
           "\"ladder\":[{\"step\":\"cached\",\"max_age_s\":600},{\"step\":"
           "\"preset\",\"text\":{\"en\":\"Please try again soon.\"}}]}");
  }
  add(t, "},\"contracts\":[");
  for (int w = 0; approved != NULL && w < WORKFLOWS; w++) {
    char name[32];
    int n = snprintf(name, sizeof name, "workflow-%d", w);
    uint32_t workflow = fg_policy_find(approved, FG_FIND_WORKFLOW, name, (uint32_t)n);
    for (int i = 1; i < PER_WORKFLOW; i++) {
      uint32_t barred = 0;
      fg_str print = {0};
      n = snprintf(name, sizeof name, "route-%d", w * PER_WORKFLOW + i);
      if (fg_policy_contract(approved, workflow, fg_policy_find(approved, FG_FIND_ROUTE, name, (uint32_t)n), &barred, &print) != FG_OK) {
        fprintf(stderr, "no fingerprint for %s\n", name);
        exit(1);
      }
      add(t,
          "%s{\"workflow\":\"workflow-%d\",\"route\":\"%s\",\"fingerprint\":\"%"
          ".*s\",\"approved_by\":\"ops@example.com\","
          "\"evidence\":{\"cases\":120,\"passed\":118,\"score_ppm\":983000,"
          "\"primary_score_ppm\":990000,"
          "\"measured_at\":\"2026-11-01T00:00:00Z\",\"expires_at\":\"2027-11-"
          "01T00:00:00Z\"}}",
          w + i > 1 ? "," : "", w, name, (int)print.len, print.ptr);
    }
  }
  add(t, "]}");
}

static fg_policy *load(const text *t) {
  fg_mem mem = fg_host_mem();
  fg_error err = {.size = sizeof err};
  fg_policy *p = NULL;
  if (fg_card_load(t->at, t->len, &mem, &p, &err) != FG_OK) {
    fprintf(stderr, "card: %s, line %u: %s\n", err.path, err.line, err.message);
    exit(1);
  }
  return p;
}

static void measure(const char *name, const text *t) {
  fg_mem mem = fg_host_mem();
  double took[ROUNDS];
  uint64_t bytes = 0;
  for (int r = 0; r < ROUNDS; r++) {
    double from = now_ms();
    fg_policy *p = load(t);
    took[r] = now_ms() - from;
    bytes = fg_policy_bytes(p);
    fg_policy_free(p, &mem);
  }
  qsort(took, ROUNDS, sizeof(double), by_value);
  printf("%-44s %8.1f ms   (text %.1f MB, policy %.1f MB)\n", name, took[ROUNDS / 2], (double)t->len / 1e6, (double)bytes / 1e6);
}

int main(void) {
  fg_mem mem = fg_host_mem();
  text t = {.cap = (size_t)16 << 20};
  t.at = malloc(t.cap);
  if (t.at == NULL) {
    return 1;
  }
  write_card(&t, NULL);
  measure("load a card, 10,000 routes", &t);
  fg_policy *bare = load(&t);
  write_card(&t, bare);
  fg_policy_free(bare, &mem);
  measure("load a card, 10,000 routes, 9,000 contracts", &t);
  printf("%-44s %8zu bytes\n", "a route's record, 64 process slots", sizeof(fg_route_rec) + 64 * sizeof(fg_word));
  printf("%-44s %8zu bytes\n", "a route's record, 256 process slots", sizeof(fg_route_rec) + 256 * sizeof(fg_word));
  printf("%-44s %8u bytes\n", "a call's storage", fg_sizeof("fg_call"));
  free(t.at);
  return 0;
}
