/* Wire names of every table, from the maps of the public header. */
#include "fg_base.h"

typedef struct entry { uint32_t value; const char *name; } entry;

#define ENTRY(n, N, w) {n, #w},
#define ENTRY_REASON(n, N, w, g) {n, #w},

#define TABLE(name, MAP) static const entry name[] = {MAP(ENTRY)};
TABLE(action, FG_ACTION_MAP)
TABLE(owner, FG_OWNER_MAP)
TABLE(gate, FG_GATE_MAP)
TABLE(class, FG_CLASS_MAP)
TABLE(phase, FG_PHASE_MAP)
TABLE(scope, FG_SCOPE_MAP)
TABLE(period, FG_PERIOD_MAP)
TABLE(billed, FG_BILLED_MAP)
TABLE(commit, FG_COMMIT_MAP)
TABLE(kind, FG_KIND_MAP)
TABLE(repair, FG_REPAIR_MAP)
TABLE(billing, FG_BILLING_MAP)
TABLE(shown, FG_SHOWN_MAP)
TABLE(effect, FG_EFFECT_MAP)
TABLE(stream, FG_STREAM_MAP)
TABLE(delivery, FG_DELIVERY_MAP)
TABLE(server_state, FG_SERVER_STATE_MAP)
TABLE(tool, FG_TOOL_MAP)
TABLE(event, FG_EVENT_MAP)
TABLE(finish, FG_FINISH_MAP)
TABLE(feature, FG_FEATURE_MAP)
TABLE(unable, FG_UNABLE_MAP)
TABLE(step, FG_STEP_MAP)
TABLE(resume, FG_RESUME_MAP)
TABLE(lookup, FG_LOOKUP_MAP)
TABLE(change, FG_CHANGE_MAP)
TABLE(alert, FG_ALERT_MAP)
TABLE(breaker, FG_BREAKER_MAP)
TABLE(health, FG_HEALTH_MAP)
TABLE(wire, FG_WIRE_MAP)
TABLE(load, FG_LOAD_MAP)
static const entry reason[] = {FG_REASON_MAP(ENTRY_REASON)};

typedef struct table { const entry *first; uint32_t count; } table;

#define POINT(n, N, w) [n] = {w, (uint32_t)FG_ARRAY_LEN(w)},
static const table tables[] = {FG_TABLE_MAP(POINT)[FG_TABLE_LOAD] = {load, (uint32_t)FG_ARRAY_LEN(load)}};

#define GATE_CASE(n, N, w, g)                                                                                                          \
  case n:                                                                                                                              \
    return FG_GATE_##g;

const char *fg_name(uint32_t t, uint32_t value) {
  if (t >= FG_ARRAY_LEN(tables)) {
    return NULL;
  }
  const table *in = &tables[t];
  if (value < in->count && in->first[value].value == value) {
    return in->first[value].name; /* most tables are dense */
  }
  for (uint32_t i = 0; i < in->count; i++) {
    if (in->first[i].value == value) {
      return in->first[i].name;
    }
  }
  return NULL;
}

int32_t fg_parse(uint32_t t, const char *text, uint32_t len) {
  if (t >= FG_ARRAY_LEN(tables) || text == NULL) {
    return -1;
  }
  for (uint32_t i = 0; i < tables[t].count; i++) {
    const entry *e = &tables[t].first[i];
    if (fg_eq(text, len, e->name, fg_cstr_len(e->name))) {
      return (int32_t)e->value;
    }
  }
  return -1;
}

uint32_t fg_reason_gate(uint32_t value) {
  switch (value) {
    FG_REASON_MAP(GATE_CASE)
  default:
    return FG_GATE_NONE;
  }
}
