#include "fg_live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONFIG_MAX = 16 << 20, TIMES_MAX = 1000, PORT_MAX = 65535 };

static int bad(const char *program, const char *where, const char *what) {
  (void)fprintf(stderr, "%s: %s: %s\n", program, where, what);
  return 2;
}

static int number(const char *text, int64_t most, int64_t *out) {
  char *end = NULL;
  *out = strtoll(text, &end, 10);
  return end != text && *end == 0 && *out >= 0 && *out <= most;
}

static int read_config(const char *program, const char *path, drill_config *c) {
  fg_error e = {.size = sizeof e};
  FILE *f = fopen(path, "rb");
  char *text = f != NULL ? malloc(CONFIG_MAX) : NULL;
  if (text == NULL) {
    perror(path);
    if (f != NULL) {
      (void)fclose(f);
    }
    return 2;
  }
  const size_t len = fread(text, 1, CONFIG_MAX - 1, f);
  text[len] = 0;
  (void)fclose(f);
  const int32_t rc = drill_config_read(c, text, len, &e);
  free(text);
  return rc == FG_OK ? 0 : bad(program, e.path, e.message);
}

int live_read(int argc, char **argv, drill_config *c, live_start *out) {
  int64_t port = 0;
  fg_error e = {.size = sizeof e};
  *out = (live_start){.program = argv[0]};
  if (argc < 5) {
    return bad(argv[0], "usage", "ZERO_US TIMES PORT CONFIG...; `fivegates drill --live` starts it");
  }
  if (!number(argv[1], INT64_MAX, &out->zero_us) || !number(argv[2], TIMES_MAX, &out->times) || out->times == 0 ||
      !number(argv[3], PORT_MAX, &port)) {
    return bad(argv[0], "usage", "ZERO_US is a time of the monotonic clock, TIMES 1 to 1000, PORT 0 to 65535");
  }
  out->port = (int)port;
  drill_config_default(c);
  for (int i = 4; i < argc; i++) {
    const int rc = read_config(argv[0], argv[i], c);
    if (rc != 0) {
      return rc;
    }
  }
  if (drill_config_check(c, &e) != FG_OK) {
    return bad(argv[0], e.path, e.message);
  }
  return c->fault_count == 1 ? 0 : bad(argv[0], "faults", "a live drill has one");
}

int64_t live_now(const live_start *s) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return ((int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 - s->zero_us) * s->times;
}

int64_t live_until(const live_start *s, int64_t at) {
  const int64_t left = at - live_now(s);
  return left > 0 ? left / s->times : 0;
}
