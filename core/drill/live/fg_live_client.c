/* fivegates-drill-client: one fault, one strategy and one seed against a fivegates-drill-server; prints what the simulator would print, and how late it was.
 *
 * Exit codes: 0 done; 2 bad input; 3 the drill broke: no server, or an answer that is none. */
#include "fg_live_wire.h"

#include <inttypes.h>
#include <stdlib.h>

#include "fg_drill_table.h"

int main(int argc, char **argv) {
  static drill_config c;
  static live_start start;
  live_seen seen;
  drill_table t;
  fg_error e = {.size = sizeof e};
  int bad = live_read(argc, argv, &c, &start);
  if (bad == 0 &&
      (c.seeds != 1 || (c.strategies & (c.strategies - 1)) != 0 || (c.strategies & 1U << DRILL_ORACLE) != 0 || start.port == 0)) {
    (void)fprintf(stderr, "%s: one strategy, which is not oracle, one seed, and a port\n", argv[0]);
    bad = 2;
  }
  if (bad == 0 && !live_wire_open(&start)) {
    (void)fprintf(stderr, "%s: libcurl does not start\n", argv[0]);
    bad = 3;
  }
  if (bad != 0) {
    drill_config_free(&c);
    return bad;
  }
  const int32_t rc = drill_table_run(&c, 1, 0, NULL, NULL, &t, &e);
  live_wire_close(&seen);
  if (rc == FG_OK) {
    char *text = drill_json(&c, &t);
    (void)printf("{\"late_ms\":{\"mean\":%" PRId64 ",\"max\":%" PRId64 "},\"results\":%s}\n",
                 seen.late_us / 1000 / (seen.arrivals > 0 ? seen.arrivals : 1), seen.latest_us / 1000, text != NULL ? text : "null");
    free(text);
    drill_table_free(&t);
  } else {
    (void)fprintf(stderr, "%s: %s%s%s\n", argv[0], e.path, e.path[0] != 0 ? ": " : "",
                  seen.broken[0] != 0 ? seen.broken
                  : e.message[0] != 0 ? e.message
                                      : "the run failed");
  }
  drill_config_free(&c);
  return rc == FG_OK ? 0 : 3;
}
