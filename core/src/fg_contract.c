/* Gate 4's facts: what a card approved is weighed against what this request needs. Pure; the verdict on the eight sections was
 * reached when the card was loaded. */
#include "fg_contract.h"

#include "fg_math.h"

uint64_t fg_contract_tool_hash(const char *name, uint32_t len) {
  uint64_t h = fg_hash64(0, name, len);
  return h != 0 ? h : 1;
}

/* What a route declares, or, where a twin is silent, its primary does. */
typedef struct limits {
  uint32_t context_tokens, max_tokens, max_tokens_whole, request_bytes;
  uint32_t known, features;
  uint32_t tools_known, tools_off, tools_count;
} limits;

static void declared(limits *l, const fg_policy_route *r) {
  l->context_tokens = l->context_tokens != 0 ? l->context_tokens : r->context_tokens;
  l->max_tokens = l->max_tokens != 0 ? l->max_tokens : r->max_tokens;
  l->max_tokens_whole = l->max_tokens_whole != 0 ? l->max_tokens_whole : r->max_tokens_whole;
  l->request_bytes = l->request_bytes != 0 ? l->request_bytes : r->request_bytes;
  l->features |= r->features & ~l->known;
  l->known |= r->features_known;
  if (l->tools_known == FG_TOOLS_UNKNOWN) {
    l->tools_known = r->tools_known;
    l->tools_off = r->tools_off;
    l->tools_count = r->tools_count;
  }
}

static int has_hash(const fg_policy *p, uint32_t off, uint32_t count, uint64_t hash) {
  const uint64_t *list = fg_policy_at(p, off);
  uint32_t lo = 0, hi = count;
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (list[mid] < hash) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return lo < count && list[lo] == hash;
}

/* ------------------------------------------------------------------- sizes */

/* The largest answer that would fit; 0 when the prompt alone does not. */
static uint32_t answer_room(const limits *l, const fg_fit_request *r, int whole) {
  uint32_t room = l->max_tokens != 0 ? l->max_tokens : UINT32_MAX;
  if (whole && l->max_tokens_whole != 0) {
    room = fg_min32(room, l->max_tokens_whole);
  }
  if (l->context_tokens != 0) {
    room = fg_min32(room, fg_sub32(l->context_tokens, r->prompt_tokens));
  }
  return room == UINT32_MAX ? 0 : room;
}

static uint32_t fit_tokens(const limits *l, const fg_fit_request *r, int primary, fg_fit *out) {
  uint32_t need = fg_add32(r->prompt_tokens, r->max_output_tokens);
  int whole = r->stream != FG_STREAM_YES;
  int too_long = l->context_tokens != 0 ? need > l->context_tokens : !primary && need > 0;
  int too_much = l->max_tokens != 0 ? r->max_output_tokens > l->max_tokens : !primary && r->max_output_tokens > 0;
  if (too_long || too_much) {
    out->max_tokens = answer_room(l, r, r->stream == FG_STREAM_IMPOSSIBLE);
    return FG_REASON_DOES_NOT_FIT_TOKENS;
  }
  if (whole && l->max_tokens_whole != 0 && r->max_output_tokens > l->max_tokens_whole) {
    int cannot = l->known & FG_FEATURE_STREAMING && !(l->features & FG_FEATURE_STREAMING);
    if (r->stream == FG_STREAM_IMPOSSIBLE || cannot) {
      out->max_tokens = answer_room(l, r, 1);
      return FG_REASON_DOES_NOT_FIT_TOKENS;
    }
    out->change |= FG_CHANGE_STREAM;
  }
  if (l->request_bytes != 0 && r->request_bytes > l->request_bytes) {
    return FG_REASON_DOES_NOT_FIT_TOKENS;
  }
  out->larger_ok = l->context_tokens != 0 && (l->max_tokens != 0 || r->max_output_tokens == 0);
  return 0;
}

/* ------------------------------------------------------- features and tools */

static int drops_tool(const fg_policy *p, const fg_policy_standin *s, uint64_t hash) {
  return s->drop_tools_all || has_hash(p, s->drop_tools_off, s->drop_tools_count, hash);
}

static uint32_t fit_tools(const fg_policy *p, const fg_policy_standin *s, const limits *l, const fg_fit_request *r, int primary, uint32_t *left,
                          fg_fit *out) {
  uint32_t missing = 0;
  *left = 0;
  for (uint32_t i = 0; i < r->tool_count; i++) {
    uint64_t hash = r->tool_hashes[i];
    if (drops_tool(p, s, hash)) {
      out->change |= FG_CHANGE_DROP_TOOLS;
      continue;
    }
    ++*left;
    if (l->tools_known == FG_TOOLS_LISTED) {
      missing |= !has_hash(p, l->tools_off, l->tools_count, hash);
    } else if (l->tools_known == FG_TOOLS_UNKNOWN) {
      missing |= !primary;
    }
  }
  return missing ? FG_REASON_DOES_NOT_FIT_TOOLS : 0;
}

int32_t fg_policy_drops_tool(const fg_policy *p, uint32_t workflow, uint32_t route, const char *tool, uint32_t len) {
  const fg_policy_standin *s = fg_policy_standin_of(p, workflow, route);
  if (s == NULL) {
    return FG_ERR_ARG;
  }
  return tool != NULL && len != 0 && drops_tool(p, s, fg_contract_tool_hash(tool, len));
}

static uint32_t fit_features(const limits *l, const fg_fit_request *r, int primary, uint32_t tools_left, fg_fit *out) {
  uint32_t need = r->features;
  if (out->change & FG_CHANGE_DROP_TOOLS && tools_left == 0) {
    need &= ~(uint32_t)(FG_FEATURE_TOOLS | FG_FEATURE_PARALLEL_TOOLS);
  }
  uint32_t lacks = primary ? l->known & ~l->features : ~(l->known & l->features);
  if (need & lacks) {
    return FG_REASON_DOES_NOT_FIT_FEATURES;
  }
  if (r->stream == FG_STREAM_YES && l->known & ~l->features & FG_FEATURE_STREAMING) {
    out->change |= FG_CHANGE_NO_STREAM;
  }
  return 0;
}

/* ------------------------------------------------------------ data and place */

static uint32_t fit_data(const fg_policy_route *route, const fg_fit_request *r, int primary) {
  if (r->data_class != 0 && (route->data_classes != 0 || !primary)) {
    uint64_t bit = r->data_class <= 64 ? (uint64_t)1 << (r->data_class - 1) : 0;
    if (!(route->data_classes & bit)) {
      return FG_REASON_DOES_NOT_FIT_DATA;
    }
  }
  /* Every place a route may work in has to be the request's. */
  if (r->region != 0 && (route->regions != 0 || !primary)) {
    uint64_t bit = r->region <= 64 ? (uint64_t)1 << (r->region - 1) : 0;
    if (route->regions == 0 || route->regions & ~bit) {
      return FG_REASON_DOES_NOT_FIT_REGION;
    }
  }
  return r->account != 0 && r->account - 1 != route->account ? FG_REASON_DOES_NOT_FIT_ACCOUNT : 0;
}

uint32_t fg_contract_dates(const fg_policy_standin *s, int64_t unix_ms) {
  if (s->expires_unix_ms == 0) {
    return FG_REASON_NONE;
  }
  /* A clock that stands before the measurement is wrong, and would never come to the end of the evidence either. */
  if (unix_ms == INT64_MIN || unix_ms < s->measured_unix_ms) {
    return FG_REASON_NO_WALL_CLOCK;
  }
  return unix_ms >= s->expires_unix_ms ? FG_REASON_CONTRACT_EXPIRED : FG_REASON_NONE;
}

static uint32_t approval(const fg_policy_standin *s, int64_t unix_ms) {
  return s->barred != 0 ? s->barred : fg_contract_dates(s, unix_ms);
}

void fg_contract_fit(const fg_policy *p, const fg_policy_workflow *w, uint32_t index, const fg_fit_request *r, int64_t unix_ms, fg_fit *out) {
  const fg_policy_standin *s = &w->standin[index];
  const fg_policy_route *routes = fg_policy_routes(p), *route = &routes[s->route];
  int primary = index == 0;
  uint32_t tools_left = 0;
  limits l;
  memset(out, 0, sizeof *out);
  memset(&l, 0, sizeof l);
  declared(&l, route);
  if (s->twin) {
    declared(&l, &routes[w->standin[0].route]);
  }
  uint32_t barred = primary ? 0 : approval(s, unix_ms);
  barred = barred != 0 ? barred : fit_tokens(&l, r, primary, out);
  barred = barred != 0 ? barred : fit_tools(p, s, &l, r, primary, &tools_left, out);
  barred = barred != 0 ? barred : fit_features(&l, r, primary, tools_left, out);
  barred = barred != 0 ? barred : fit_data(route, r, primary);
  out->barred = barred;
  if (barred != 0) {
    out->change = 0;
    out->larger_ok = 0;
  }
}
