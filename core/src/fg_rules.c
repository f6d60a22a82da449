/* The matcher: does a rule hold for what was seen. Cheap conditions first;
 * before a phrase is searched, a set of the message's word beginnings tells
 * whether it can be there at all. */
#include "fg_rules.h"

void fg_rule_index(fg_rule_input *in) {
  const char *p = in->message.ptr;
  memset(in->starts, 0, sizeof in->starts);
  for (uint32_t i = 0; i + 3 <= in->message.len; i++) {
    if (fg_rule_may_begin(p, i)) {
      uint32_t b = fg_rule_start(p + i);
      in->starts[b >> 6] |= (uint64_t)1 << (b & 63);
    }
  }
  in->name_first = 0;
  for (uint32_t i = 0; i < in->name_count; i++) {
    in->name_first |= (uint64_t)1 << (fg_lower(in->name[i].ptr[0]) & 63);
  }
}

static int phrase(const char *w, uint32_t n, const fg_rule_input *in) {
  const char *p = in->message.ptr;
  uint32_t len = in->message.len;
  if (n == 0 || n > len) {
    return n == 0;
  }
  if (n >= 3) {
    uint32_t b = fg_rule_start(w);
    if (((in->starts[b >> 6] >> (b & 63)) & 1) == 0) {
      return 0;
    }
  }
  for (uint32_t i = 0; i + n <= len; i++) {
    if (p[i] == w[0] && fg_rule_may_begin(p, i) && memcmp(p + i, w, n) == 0) {
      return 1;
    }
  }
  return 0;
}

/* Nonzero when one alternative of a message condition holds. */
static int message_holds(const char *a, uint32_t len, const fg_rule_input *in) {
  uint32_t from = 0;
  int all = 1;
  for (uint32_t i = 0; i <= len; i++) {
    if (i < len && a[i] != '|' && a[i] != '&') {
      continue;
    }
    all = all && phrase(a + from, i - from, in);
    if (i == len || a[i] == '|') {
      if (all) {
        return 1;
      }
      all = 1;
    }
    from = i + 1;
  }
  return 0;
}

/* One alternative against one text: exact, `prefix*`, or `*inside*`; any case. */
static int word(const char *w, uint32_t n, const char *p, uint32_t len) {
  if (n > 0 && w[0] == '*') {
    w++;
    n--;
    n -= n > 0 && w[n - 1] == '*';
    for (uint32_t i = 0; i + n <= len; i++) {
      if (fg_eq_nocase(p + i, n, w, n)) {
        return 1;
      }
    }
    return 0;
  }
  if (n > 0 && w[n - 1] == '*') {
    return len >= n - 1 && fg_eq_nocase(p, n - 1, w, n - 1);
  }
  return fg_eq_nocase(p, len, w, n);
}

static int text_holds(fg_rtext t, const char *pool, fg_str s) {
  if (t.len == 0) {
    return 1;
  }
  const char *a = pool + t.off;
  uint32_t from = 0;
  for (uint32_t i = 0; i <= t.len; i++) {
    if (i == t.len || a[i] == '|') {
      if (word(a + from, i - from, s.ptr, s.len)) {
        return 1;
      }
      from = i + 1;
    }
  }
  return 0;
}

static int name_holds(fg_rtext t, const char *pool, const fg_rule_input *in, uint32_t what) {
  if (t.len == 0) {
    return 1;
  }
  const char *a = pool + t.off;
  uint32_t from = 0;
  for (uint32_t i = 0; i <= t.len; i++) {
    if (i < t.len && a[i] != '|') {
      continue;
    }
    int may = i > from && (a[from] == '*' || ((in->name_first >> (fg_lower(a[from]) & 63)) & 1) != 0);
    for (uint32_t k = 0; may && k < in->name_count; k++) {
      const fg_rule_name *n = &in->name[k];
      if ((n->what & what) != 0 && word(a + from, i - from, n->ptr, n->len)) {
        return 1;
      }
    }
    from = i + 1;
  }
  return 0;
}

static int status_holds(const fg_rule *r, int32_t status) {
  if (r->status[0] == 0) {
    return 1;
  }
  for (uint32_t i = 0; i < FG_RULE_STATUS_MAX && r->status[i] != 0; i++) {
    int32_t want = r->status[i];
    if (want == status || (want < 10 && want == status / 100)) {
      return 1;
    }
  }
  return 0;
}

static int header_holds(fg_rtext name, fg_rtext value, const char *pool, const fg_rule_input *in) {
  if (name.len == 0) {
    return 1;
  }
  for (uint32_t i = 0; i < in->header_count; i++) {
    const fg_header *h = &in->headers[i];
    if (fg_eq_nocase(h->name.ptr, h->name.len, pool + name.off, name.len) && text_holds(value, pool, fg_trim(h->value))) {
      return 1;
    }
  }
  return 0;
}

int fg_rule_rest_holds(const fg_rule *r, const char *pool, const fg_rule_input *in) {
  if (r->phases != 0 && ((r->phases >> in->phase) & 1) == 0) {
    return 0;
  }
  if (!text_holds(r->api, pool, in->api) || !text_holds(r->lib, pool, in->lib) || !text_holds(r->kind, pool, in->kind)) {
    return 0;
  }
  if (!name_holds(r->code, pool, in, FG_NAME_CODE) || !name_holds(r->type, pool, in, FG_NAME_TYPE)) {
    return 0;
  }
  for (uint32_t i = 0; i < FG_RULE_HEADER_MAX; i++) {
    if (!header_holds(r->header[i], r->header_value[i], pool, in)) {
      return 0;
    }
  }
  return 1;
}

int fg_rule_holds(const fg_rule *r, const char *pool, const fg_rule_input *in) {
  return status_holds(r, in->status) && text_holds(r->provider, pool, in->provider) &&
         name_holds(r->error, pool, in, FG_NAME_CODE | FG_NAME_TYPE | FG_NAME_OTHER) && fg_rule_rest_holds(r, pool, in) &&
         (r->message.len == 0 || message_holds(pool + r->message.off, r->message.len, in));
}
