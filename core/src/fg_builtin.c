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
#define W(name, message) ONE("", "", "", "", "", "", message, "", UNKNOWN, (), ())
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
#define TRIPS(x) .set_trips_breaker = 1 + (x)
#define PHASES(x) .phases = (x)
#define ON(x) (1u << FG_PHASE_##x)

/* () for "any status" leaves an initialiser empty: C23, and every compiler. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
static const fg_rule rules[] = {
#include "fg_builtin_all.inc"
};

/* ------------------------------------------------------------- the index */

#define AT(id, member, off) (uint32_t)(offsetof(pool, id.member) + (off))

typedef struct name_row { uint32_t off; uint16_t len, rule; } name_row;
typedef struct phrase_row { uint32_t off; uint16_t len, rules, rule_count, joins, join_count; } phrase_row;
typedef struct join_row { uint16_t rule, first, count; } join_row; /* holds when all its other phrases occur too */

#define MASK_WORDS ((FG_ARRAY_LEN(rules) + 63) / 64)
typedef struct status_row { uint16_t status; uint64_t mask[MASK_WORDS]; } status_row;

#include "fg_builtin_index.inc"

_Static_assert(RULE_COUNT == FG_ARRAY_LEN(rules), "run core/tools/gen_builtin.py");
_Static_assert(RULE_WORDS <= FG_ARRAY_LEN(((fg_found *)0)->rules), "fg_found has a bit for every rule");
_Static_assert(RULE_COUNT - ANSWER_END == (int)FG_WORD_COUNT, "a FG_WORD_* for each list");

static const char *pool_at(uint32_t off) { return (const char *)&texts + off; }

static void set(uint64_t *mask, uint32_t n) { mask[n >> 6] |= (uint64_t)1 << (n & 63); }

/* Compares in any case; the stored text may be upper-case too. */
static int order(const char *p, uint32_t len, const name_row *r) {
  const char *q = pool_at(r->off);
  uint32_t n = fg_min32(len, r->len);
  for (uint32_t i = 0; i < n; i++) {
    unsigned char a = (unsigned char)fg_lower(p[i]), b = (unsigned char)fg_lower(q[i]);
    if (a != b) {
      return a < b ? -1 : 1;
    }
  }
  return len < r->len ? -1 : len > r->len;
}

static void by_first(const char *p, uint32_t len, const uint16_t *start, const name_row *rows, uint64_t *mask) {
  unsigned char c = (unsigned char)fg_lower(p[0]);
  if (c >= 128) {
    return;
  }
  for (uint32_t i = start[c]; i < start[c + 1]; i++) {
    if (rows[i].len <= len && fg_eq_nocase(p, rows[i].len, pool_at(rows[i].off), rows[i].len)) {
      set(mask, rows[i].rule);
    }
  }
}

static void look_name(const char *p, uint32_t len, uint64_t *mask) {
  uint32_t lo = 0, hi = (uint32_t)FG_ARRAY_LEN(exact_rows);
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    if (order(p, len, &exact_rows[mid]) > 0) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  for (; lo < FG_ARRAY_LEN(exact_rows) && order(p, len, &exact_rows[lo]) == 0; lo++) {
    set(mask, exact_rows[lo].rule);
  }
  by_first(p, len, prefix_start, prefix_rows, mask);
  for (uint32_t i = 0; i < FG_ARRAY_LEN(inside_rows); i++) {
    const name_row *r = &inside_rows[i];
    const char *q = pool_at(r->off);
    for (uint32_t k = 0; k + r->len <= len; k++) {
      if (fg_lower(p[k]) == fg_lower(q[0]) && fg_eq_nocase(p + k, r->len, q, r->len)) {
        set(mask, r->rule);
        break;
      }
    }
  }
}

static void look_message(fg_str m, uint64_t *mask) {
  uint64_t seen[(PHRASE_COUNT + 63) / 64];
  uint16_t waiting[64]; /* joins whose first phrase occurs */
  uint32_t waits = 0;
  memset(seen, 0, sizeof seen);
  for (uint32_t i = 0; i + 3 <= m.len; i++) {
    if (m.ptr[i] == ' ' || !fg_rule_may_begin(m.ptr, i)) {
      continue;
    }
    uint32_t b = fg_rule_start(m.ptr + i);
    for (uint32_t k = phrase_start[b]; k < phrase_start[b + 1]; k++) {
      const phrase_row *r = &phrase_rows[k];
      const char *q = pool_at(r->off);
      if (r->len > m.len - i || m.ptr[i + r->len - 1u] != q[r->len - 1u] || ((seen[k >> 6] >> (k & 63)) & 1) != 0 || memcmp(m.ptr + i, q, r->len) != 0) {
        continue;
      }
      set(seen, k);
      for (uint32_t n = 0; n < r->rule_count; n++) {
        set(mask, phrase_rules[r->rules + n]);
      }
      for (uint32_t n = 0; n < r->join_count && waits < FG_ARRAY_LEN(waiting); n++) {
        waiting[waits++] = (uint16_t)(r->joins + n);
      }
    }
  }
  for (uint32_t i = 0; i < waits; i++) {
    const join_row *j = &join_rows[waiting[i]];
    uint32_t n = 0;
    while (n < j->count && ((seen[join_parts[j->first + n] >> 6] >> (join_parts[j->first + n] & 63)) & 1) != 0) {
      n++;
    }
    if (n == j->count) {
      set(mask, j->rule);
    }
  }
}

void fg_builtin_look(const fg_rule_input *in, fg_found *out) {
  uint64_t error[RULE_WORDS], message[RULE_WORDS], provider[RULE_WORDS];
  memcpy(error, no_error, sizeof error);
  memcpy(message, no_message, sizeof message);
  memcpy(provider, no_provider, sizeof provider);
  for (uint32_t i = 0; i < in->name_count; i++) {
    if (in->name[i].what != FG_NAME_PARAM) {
      look_name(in->name[i].ptr, in->name[i].len, error);
    }
  }
  look_message(in->message, message);
  if (in->provider.len > 0) {
    by_first(in->provider.ptr, in->provider.len, owner_start, owner_rows, provider);
  }
  for (uint32_t i = 0; i < RULE_WORDS; i++) {
    out->rules[i] = error[i] & message[i] & provider[i];
  }
}

int fg_builtin_word(const fg_found *found, uint32_t word) {
  uint32_t n = (uint32_t)ANSWER_END + word;
  return ((found->rules[n >> 6] >> (n & 63)) & 1) != 0;
}

int32_t fg_builtin_match(uint32_t part, const fg_rule_input *in, const fg_found *found, const fg_rule **rule) {
  const uint64_t *by_class = NULL, *by_status = NULL;
  for (uint32_t i = 0; i < FG_ARRAY_LEN(status_rows); i++) {
    if (status_rows[i].status == in->status) {
      by_status = status_rows[i].mask;
    } else if (status_rows[i].status == in->status / 100) {
      by_class = status_rows[i].mask;
    }
  }
  uint32_t from = part == FG_BUILTIN_TRANSPORT ? 0 : TRANSPORT_END;
  uint32_t end = part == FG_BUILTIN_TRANSPORT ? TRANSPORT_END : ANSWER_END;
  for (uint32_t w = from / 64; w < RULE_WORDS && w * 64 < end; w++) {
    uint64_t bits = no_status[w] | (by_class != NULL ? by_class[w] : 0) | (by_status != NULL ? by_status[w] : 0);
    for (bits &= found->rules[w]; bits != 0; bits &= bits - 1) {
      uint32_t n = w * 64 + (uint32_t)__builtin_ctzll(bits);
      if (n >= from && n < end && fg_rule_rest_holds(&rules[n], (const char *)&texts, in)) {
        *rule = &rules[n];
        return (int32_t)n;
      }
    }
  }
  return -1;
}

uint32_t fg_builtin_count(void) { return ANSWER_END; }
uint32_t fg_builtin_transport_count(void) { return TRANSPORT_END; }

const char *fg_builtin_why(uint32_t number) { return number < ANSWER_END ? pool_at(rules[number].why.off) : ""; }

const fg_rule *fg_builtin_rule(uint32_t number, const char **pool_out) {
  *pool_out = (const char *)&texts;
  return number < RULE_COUNT ? &rules[number] : NULL;
}
