/* Gate 5, health: the live state of a route, as fg_health read it, in a decision's words. */
#include "fg_gates.h"

uint32_t fg_gate_health(const fg_candidate *c) {
  switch (c->health) {
  case FG_HEALTH_OK:
  case FG_HEALTH_PROBE: /* due: this attempt may be the one leased probe */
    return FG_REASON_NONE;
  case FG_HEALTH_OPEN:
    return FG_REASON_ROUTE_OPEN;
  case FG_HEALTH_STALLED:
    return FG_REASON_ROUTE_STALLED;
  case FG_HEALTH_FULL:
    return FG_REASON_ROUTE_FULL;
  case FG_HEALTH_PACED:
    return FG_REASON_ROUTE_PACED;
  case FG_HEALTH_NOT_BEFORE:
    return FG_REASON_ROUTE_TOLD_TO_WAIT;
  case FG_HEALTH_QUOTA_LATCHED:
    return FG_REASON_QUOTA_LATCHED;
  case FG_HEALTH_KEY_LATCHED:
    return FG_REASON_KEY_LATCHED;
  case FG_HEALTH_MODEL_LATCHED:
    return FG_REASON_ROUTE_LATCHED;
  case FG_HEALTH_RAMPING:
    return FG_REASON_RAMPING;
  default:
    return FG_REASON_ROUTE_OPEN; /* a word we do not know is not healthy */
  }
}

bool fg_health_waits(uint32_t health) {
  return health == FG_HEALTH_PACED || health == FG_HEALTH_NOT_BEFORE;
}
