/* The ledger of a run of the engine: its three kinds of lines, and event lines for what no decision tells. With these the run can be decided again,
 * to the byte. */
#include "fg_drill_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE_ROOM = 8192 };

void drill_ledger_line(world *w, const fg_engine *e, const fg_call *call, const fg_decision *d, uint32_t line, int64_t now_ms) {
  char text[LINE_ROOM];
  if (w->c->ledger == NULL) {
    return;
  }
  const uint32_t length = fg_ledger_line(e, call, d, line, now_ms, text, sizeof text);
  if (length >= sizeof text || fprintf(w->c->ledger, "%s\n", text) < 0) {
    w->error = FG_ERR_RANGE; /* a ledger with a line missing would be read as whole */
  }
}

void drill_ledger_event(world *w, const job *j, uint32_t number, const char *event, uint32_t value, int64_t now_ms) {
  char call[24] = "null";
  if (w->c->ledger == NULL) {
    return;
  }
  if (j != NULL) {
    (void)snprintf(call, sizeof call, "\"a-%u\"", j->record);
  }
  if (fprintf(w->c->ledger,
              "{\"line\":\"event\",\"v\":1,\"now_ms\":%" PRId64 ",\"call\":%s,\"attempt\":%u,\"event\":\"%s\",\"value\":%u}\n", now_ms,
              call, number, event, value) < 0) {
    w->error = FG_ERR_RANGE;
  }
}

int32_t drill_ledger_check(const drill_config *c, fg_error *err) {
  if (c->ledger == NULL ||
      (c->fault_count == 1 && c->seeds == 1 && c->strategies == 1U << DRILL_FIVEGATES && (c->shared || c->tenants == 1))) {
    return FG_OK;
  }
  if (err != NULL) {
    (void)snprintf(err->path, sizeof err->path, "ledger");
    (void)snprintf(err->message, sizeof err->message,
                   "a ledger is of one run on one region: give one fault, the strategy fivegates, one seed, and shared tenants");
  }
  return FG_ERR_RANGE;
}
