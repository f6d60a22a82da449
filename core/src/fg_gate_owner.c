/* Gate 1, owner. Rules 3-7 of DESIGN 6 as a table of ways out; the commit gate has already been asked. */
#include "fg_gates.h"

bool fg_owner_stops(const fg_facts *f, uint32_t owner) {
  return (f->stop_on & (1u << owner)) != 0;
}

/* A request that cannot be served as it is: by size, by a feature, or because it is wrong. */
static void request_verdict(const fg_facts *f, fg_owner_verdict *o) {
  o->reason = FG_REASON_REQUEST_INVALID;
  if (f->failure.scope == FG_SCOPE_MODEL || f->failure.scope == FG_SCOPE_NETWORK) {
    /* Wrong model id, certificate or base URL: the route is set up wrongly, the request may be fine elsewhere. */
    o->reason = FG_REASON_ROUTE_MISCONFIGURED;
    o->fallback = o->queue = o->ladder = o->answers = true;
    return;
  }
  switch (f->failure.kind) {
  case FG_KIND_CONTEXT_TOO_LONG:
  case FG_KIND_REQUEST_TOO_LARGE:
  case FG_KIND_NEVER_FITS_LIMIT:
    o->reason = FG_REASON_TOO_LARGE;
    o->size_in = true;
    /* "input + max_tokens exceed the limit": less output helps as well. */
    o->size_out = f->failure.kind != FG_KIND_REQUEST_TOO_LARGE;
    break;
  case FG_KIND_OUTPUT_TOO_LONG:
    o->reason = FG_REASON_TOO_LARGE;
    o->size_out = true;
    break;
  case FG_KIND_UNSUPPORTED:
    o->reason = FG_REASON_UNSUPPORTED;
    o->feature = true;
    break;
  default:
    return;
  }
  o->fallback = o->larger = o->ladder = true;
}

void fg_gate_owner(const fg_facts *f, fg_owner_verdict *o) {
  const fg_owner_verdict none = {0};
  *o = none;
  switch (f->failure.owner) {
  case FG_OWNER_TRANSIENT:
    o->reason = f->failure.klass == FG_CLASS_ANSWER ? FG_REASON_BAD_ANSWER : FG_REASON_TRANSIENT;
    o->retry = o->fallback = o->queue = o->ladder = o->answers = true;
    if (f->failure.kind == FG_KIND_TRUNCATED_TOOL_CALL && f->truncated_max_tokens == 0) {
      /* The same max_tokens would cut it again: each round costs a generation. */
      o->reason = FG_REASON_TRUNCATED_TOOL_CALL;
      o->retry = o->fallback = o->queue = o->ladder = o->answers = false;
    }
    break;
  case FG_OWNER_RATE:
    o->reason = FG_REASON_RATE_LIMITED;
    o->retry = o->fallback = o->queue = o->ladder = o->answers = true;
    break;
  case FG_OWNER_LOCAL:
    o->reason = f->failure.kind == FG_KIND_CLIENT_GONE ? FG_REASON_CLIENT_GONE : FG_REASON_LOCAL_FAULT;
    if (f->failure.kind != FG_KIND_CLIENT_GONE && f->failure.kind != FG_KIND_LOCAL_CONFIG) {
      /* Our own refusal: later, or with less; another route would be refused here as well. */
      o->retry = o->queue = o->ladder = o->answers = true;
      o->fallback = f->failure.kind != FG_KIND_NETWORK_DOWN;
    }
    break;
  case FG_OWNER_QUOTA:
    o->reason = FG_REASON_QUOTA_EXHAUSTED;
    o->fallback = o->other_budget = o->queue = o->ladder = o->answers = true;
    break;
  case FG_OWNER_REQUEST:
    request_verdict(f, o);
    break;
  case FG_OWNER_AUTH:
    o->reason = FG_REASON_KEY_REJECTED;
    o->fallback = true;
    break;
  case FG_OWNER_POLICY:
    o->reason = FG_REASON_REFUSED;
    o->fallback = o->other_vendor = true;
    break;
  default:
    o->reason = FG_REASON_UNKNOWN_FAILURE;
    o->queue = o->ladder = o->answers = true;
    /* An empty but well-formed end may be tried once more (class answer), nothing bolder. */
    o->retry = (f->flags & FG_FACT_EMPTY_END) != 0;
    break;
  }
  if (fg_owner_stops(f, f->failure.owner)) {
    o->fallback = false;
  }
}
