/* fivegates-drill: the fault drills, as a table.
 *
 * Exit codes: 0 done; 2 bad input; 130 stopped by a signal. */
#include "fg_drill_table.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FILE_MAX = 16 << 20 };

static const char usage[] = "usage: fivegates-drill [options]\n"
                            "  --config FILE     JSON, read before the other options\n"
                            "  --fault NAME      only this fault (again for more)\n"
                            "  --strategy NAME   only this strategy (again for more)\n"
                            "  --seed N          of the first run\n"
                            "  --seeds N         runs of each cell\n"
                            "  --spare S         capacity of the backups beyond their own users' needs, as a share of A's load\n"
                            "  --ladder on|off   is a smaller model a way out\n"
                            "  --card FILE       another card for the engine\n"
                            "  --ledger FILE     write the engine's ledger there: one fault, one seed\n"
                            "  --threads N\n"
                            "  --csv, --json     instead of the table; --pictures adds pieces of time to the JSON\n"
                            "  --faults          names of the faults\n";

static volatile sig_atomic_t signalled;
static void on_signal(int n) {
  (void)n;
  signalled = 1;
}

static int complain(const char *where, const fg_error *e) {
  (void)fprintf(stderr, "fivegates-drill: %s%s%s%s%s", where, where[0] != 0 ? ": " : "", e->path, e->path[0] != 0 ? ": " : "", e->message);
  if (e->line != 0) {
    (void)fprintf(stderr, " (line %u, column %u)", e->line, e->column);
  }
  (void)fputc('\n', stderr);
  return 2;
}

static int bad(const char *what, const char *value, const char *remedy) {
  (void)fprintf(stderr, "fivegates-drill: %s%s%s\n", what, value, remedy);
  return 2;
}

static char *read_file(const char *path, uint64_t *len) {
  FILE *f = fopen(path, "rb");
  char *text = f != NULL ? malloc(FILE_MAX + 1) : NULL;
  if (text == NULL) {
    perror(path);
  } else {
    *len = fread(text, 1, FILE_MAX, f);
    text[*len] = 0;
  }
  if (f != NULL) {
    (void)fclose(f);
  }
  return text;
}

typedef struct options {
  uint32_t threads;
  int csv, json, pictures;
} options;

static int number(const char *text, double *out) {
  char *end = NULL;
  *out = strtod(text, &end);
  return end != text && *end == 0;
}

/* An option with a value, as one key of the configuration: the reader judges it. */
static int set(drill_config *c, const char *option, const char *before, const char *value, const char *after) {
  char text[256];
  fg_error e = {.size = sizeof e};
  double any;
  if (!number(value, &any) || snprintf(text, sizeof text, "%s%s%s", before, value, after) >= (int)sizeof text) {
    return bad(option, value, ": is not a number");
  }
  return drill_config_read(c, text, strlen(text), &e) == FG_OK ? 0 : complain(option, &e);
}

static int read_config(drill_config *c, const char *path) {
  uint64_t len = 0;
  fg_error e = {.size = sizeof e};
  char *text = read_file(path, &len);
  const int32_t rc = text != NULL ? drill_config_read(c, text, len, &e) : FG_ERR_ARG;
  free(text);
  return rc == FG_OK ? 0 : text == NULL ? 2 : complain(path, &e);
}

static int add_fault(drill_config *c, const char *name, uint32_t *count) {
  char names[400];
  if (*count == DRILL_FAULTS_MAX || !drill_fault_named(name, &c->fault[*count])) {
    drill_fault_names(names, sizeof names);
    (void)fprintf(stderr, "fivegates-drill: no such fault: %s; there are %s\n", name, names);
    return 2;
  }
  c->fault_count = ++*count;
  return 0;
}

static int parse(drill_config *c, int argc, char **argv, options *o) {
  uint32_t faults = 0, strategies = 0, one = 0;
  int rc = 0;
  for (int i = 1; i < argc && rc == 0; i++) {
    const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(a, "--csv") == 0) {
      o->csv = 1;
    } else if (strcmp(a, "--json") == 0) {
      o->json = 1;
    } else if (strcmp(a, "--pictures") == 0) {
      o->pictures = 1;
    } else if (value == NULL) {
      rc = bad(a, "", ": no such option, or it needs a value; see --help");
    } else if (strcmp(a, "--config") == 0) {
      i++; /* read already */
    } else if (strcmp(a, "--fault") == 0) {
      rc = add_fault(c, argv[++i], &faults);
    } else if (strcmp(a, "--strategy") == 0) {
      rc = drill_strategy_named(argv[++i], &one)
               ? 0
               : bad("no such strategy: ", value, "; there are naive, backoff, disciplined, fivegates, oracle, plain");
      strategies |= 1U << one;
    } else if (strcmp(a, "--seed") == 0) {
      rc = set(c, "--seed ", "{\"seed\":", argv[++i], "}");
    } else if (strcmp(a, "--seeds") == 0) {
      rc = set(c, "--seeds ", "{\"seeds\":", argv[++i], "}");
    } else if (strcmp(a, "--spare") == 0) {
      rc = set(c, "--spare ", "{\"spare\":", argv[++i], ",\"slots\":{\"backup\":0}}");
    } else if (strcmp(a, "--ladder") == 0 && (strcmp(value, "on") == 0 || strcmp(value, "off") == 0)) {
      c->ladder = strcmp(argv[++i], "on") == 0;
    } else if (strcmp(a, "--threads") == 0 && atoi(value) > 0) {
      o->threads = (uint32_t)atoi(argv[++i]);
    } else if (strcmp(a, "--card") == 0) {
      uint64_t len = 0;
      free(c->card);
      c->card = read_file(argv[++i], &len);
      rc = c->card != NULL ? 0 : 2;
    } else if (strcmp(a, "--ledger") == 0 && c->ledger == NULL) {
      c->ledger = fopen(argv[++i], "w");
      rc = c->ledger != NULL ? 0 : bad(value, "", ": cannot be written");
    } else {
      rc = bad(a, "", ": no such option, or not such a value; see --help");
    }
  }
  c->strategies = strategies != 0 ? strategies : c->strategies;
  return rc;
}

static int progress(void *ctx, uint32_t done, uint32_t of) {
  const int *shown = ctx;
  if (*shown) {
    (void)fprintf(stderr, "\r%u of %u runs", done, of);
  }
  return signalled != 0;
}

static int64_t clock_us(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int run(const drill_config *c, const options *o) {
  fg_error e = {.size = sizeof e};
  drill_table t;
  int shown = isatty(2);
  const int64_t began = clock_us();
  const int32_t rc = drill_table_run(c, o->threads, o->json && o->pictures, progress, &shown, &t, &e);
  const int64_t took = clock_us() - began;
  if (shown) {
    (void)fprintf(stderr, "\r%30s\r", "");
  }
  if (rc == FG_ERR_STATE && signalled) {
    return 130;
  }
  if (rc != FG_OK) {
    if (e.message[0] == 0) {
      (void)snprintf(e.message, sizeof e.message, "the run failed: error %d", rc);
    }
    return complain("", &e);
  }
  if (o->csv) {
    drill_print_csv(stdout, c, &t);
  } else if (o->json) {
    char *text = drill_json(c, &t);
    (void)puts(text != NULL ? text : "");
    free(text);
  } else {
    drill_print_table(stdout, c, &t);
    (void)printf("seeds %" PRIu64 " to %" PRIu64 ", config %016" PRIx64 ", %" PRId64 " events\n", c->seed, c->seed + c->seeds - 1,
                 drill_config_hash(c), t.events);
  }
  (void)fprintf(stderr, "%" PRId64 ".%02d s, %" PRId64 " events a second\n", took / 1000000, (int)(took / 10000 % 100),
                t.events * 1000000 / (took > 0 ? took : 1));
  drill_table_free(&t);
  return 0;
}

int main(int argc, char **argv) {
  static drill_config c;
  char names[400];
  options o = {.threads = 2};
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  o.threads = cpus > 0 ? (uint32_t)cpus : 1;
  drill_config_default(&c);
  int rc = 0;
  for (int i = 1; i < argc && rc == 0; i++) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--faults") == 0) {
      drill_fault_names(names, sizeof names);
      (void)puts(argv[i][2] == 'h' ? usage : names);
      return 0;
    }
    if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) {
      rc = read_config(&c, argv[i + 1]);
    }
  }
  rc = rc == 0 ? parse(&c, argc, argv, &o) : rc;
  fg_error e = {.size = sizeof e};
  if (rc == 0 && (drill_config_check(&c, &e) != FG_OK || drill_ledger_check(&c, &e) != FG_OK)) {
    rc = complain("", &e);
  }
  if (rc == 0) {
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    rc = run(&c, &o);
  }
  if (c.ledger != NULL && fclose(c.ledger) != 0) {
    rc = bad("--ledger", "", ": it could not be written whole");
  }
  drill_config_free(&c);
  return rc;
}
