/* What the two programs of a live drill share: the configuration, and a clock that runs faster than the wall's, from one moment that both are told. All else is in
 * the drill's own microseconds. */
#ifndef FG_LIVE_H
#define FG_LIVE_H

#include <stdint.h>

#include "fg_drill_world.h"

typedef struct live_start {
  const char *program;
  int64_t zero_us, times; /* CLOCK_MONOTONIC at the drill's 0; the drill's seconds in one of the wall's */
  int port;               /* 0: none */
} live_start;

/* Reads PROGRAM ZERO_US TIMES PORT CONFIG..., each configuration over those before it. 0; or 2, and what is wrong was printed. */
int live_read(int argc, char **argv, drill_config *c, live_start *out);
/* The drill's time, and how many microseconds of the wall's are left until some time of the drill's: 0 when it is over. */
int64_t live_now(const live_start *s);
int64_t live_until(const live_start *s, int64_t at);

#endif /* FG_LIVE_H */
