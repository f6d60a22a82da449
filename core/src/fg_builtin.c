/* Expands the rule lists three times: the types of their texts, the texts (one
 * read-only pool), and the compiled rules with offsets into it. A rule of a
 * list is
 *
 *   R(provider, (statuses), error, message, kind, (more), why)
 *
 * with "" and () for any; `more` are further members of fg_rule, by name. A
 * rule on the transport is T(lib, kind, message, kind, (more), why), one on a
 * header H(header, value, (statuses), kind, (more), why). Order matters: the
 * first that holds wins. */
#include "fg_builtin.h"

#define UNPAREN(...) __VA_ARGS__
#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
#define RULE_ID PASTE(PASTE(r_, FAMILY), __LINE__)

#define R(provider, status, error, message, to, more, why) ONE(provider, "", "", "", "", error, message, why, to, status, more)
#define T(lib, kind, message, to, more, why) ONE("", lib, kind, "", "", "", message, why, to, (), more)
#define H(header, value, status, to, more, why) ONE("", "", "", header, value, "", "", why, to, status, more)
#define C(lib, number, to, more, why) ONE("", lib, "", "", "", number, "", why, to, (), more)

#define ONE(p, l, k, h, v, e, m, w, to, status, more)                                                                                  \
  struct { char provider[sizeof(p)], lib[sizeof(l)], kind[sizeof(k)], header[sizeof(h)], value[sizeof(v)], error[sizeof(e)],           \
                message[sizeof(m)], why[sizeof(w)]; } RULE_ID;
typedef struct pool {
#include "fg_builtin_all.inc"
} pool;
#undef ONE

#define ONE(p, l, k, h, v, e, m, w, to, status, more) {p, l, k, h, v, e, m, w},
static const pool texts = {
#include "fg_builtin_all.inc"
};
#undef ONE

#define TEXT(id, member) {(uint32_t)offsetof(pool, id.member), (uint32_t)sizeof(texts.id.member) - 1}
#define ONE(p, l, k, h, v, e, m, w, to, s, more) ONE_ID(RULE_ID, to, s, more)
#define ONE_ID(id, to, s, more) ONE_WITH(id, to, s, UNPAREN more)
#define ONE_WITH(id, to, s, ...)                                                                                                       \
  {.provider = TEXT(id, provider),                                                                                                     \
   .error = TEXT(id, error),                                                                                                           \
   .message = TEXT(id, message),                                                                                                       \
   .lib = TEXT(id, lib),                                                                                                               \
   .kind = TEXT(id, kind),                                                                                                             \
   .header = {TEXT(id, header)},                                                                                                       \
   .header_value = {TEXT(id, value)},                                                                                                  \
   .status = {UNPAREN s},                                                                                                              \
   .set_kind = 1 + FG_KIND_##to,                                                                                                       \
   .why = TEXT(id, why),                                                                                                               \
   __VA_ARGS__},

/* Short for `more`. */
#define OWNER(x) .set_owner = 1 + FG_OWNER_##x
#define SCOPE(x) .set_scope = 1 + FG_SCOPE_##x
#define PERIOD(x) .set_period = 1 + FG_PERIOD_##x
#define BILLED(x) .set_billed = 1 + FG_BILLED_##x
#define COMMIT(x) .set_commit = 1 + FG_COMMIT_##x
#define REPAIR(x) .set_repair = 1 + FG_REPAIR_##x
#define CLASS(x) .set_class = 1 + FG_CLASS_##x
#define OVERLOAD(x) .set_overload = 1 + (x)
#define TRIPS(x) .set_trips_breaker = 1 + (x)
#define PHASES(x) .phases = (x)
#define ON(x) (1u << FG_PHASE_##x)

/* () for "any status" leaves an initialiser empty: C23, and every compiler. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
static const fg_rule transport_rules[] = {
#define TRANSPORT_LIST
#include "fg_builtin_all.inc"
#undef TRANSPORT_LIST
};
static const fg_rule answer_rules[] = {
#define ANSWER_LIST
#include "fg_builtin_all.inc"
#undef ANSWER_LIST
};
#pragma GCC diagnostic pop

int32_t fg_builtin_match(uint32_t part, const fg_rule_input *in, const fg_rule **rule) {
  const fg_rule *r = part == FG_BUILTIN_TRANSPORT ? transport_rules : answer_rules;
  uint32_t n = part == FG_BUILTIN_TRANSPORT ? (uint32_t)FG_ARRAY_LEN(transport_rules) : (uint32_t)FG_ARRAY_LEN(answer_rules);
  uint32_t base = part == FG_BUILTIN_TRANSPORT ? 0 : (uint32_t)FG_ARRAY_LEN(transport_rules);
  for (uint32_t i = 0; i < n; i++) {
    if (fg_rule_holds(&r[i], (const char *)&texts, in)) {
      *rule = &r[i];
      return (int32_t)(base + i);
    }
  }
  return -1;
}

uint32_t fg_builtin_count(void) { return (uint32_t)(FG_ARRAY_LEN(transport_rules) + FG_ARRAY_LEN(answer_rules)); }

const char *fg_builtin_why(uint32_t number) {
  uint32_t first = (uint32_t)FG_ARRAY_LEN(transport_rules);
  if (number >= fg_builtin_count()) {
    return "";
  }
  const fg_rule *r = number < first ? &transport_rules[number] : &answer_rules[number - first];
  return (const char *)&texts + r->why.off;
}
