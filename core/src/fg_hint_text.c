/* Numbers, durations, dates and prose of wait hints. Strict: what is not
 * surely a wait is no hint, because a wrong short wait hammers a closed door. */
#include "fg_hint.h"

#define WAIT_MAX (UINT64_MAX / 2)

/* Digits with at most one point, times unit, rounded up. *used: bytes taken; 0 when it is no number. */
static uint64_t decimal(const char *p, uint32_t len, uint64_t unit_ms, uint32_t *used) {
  uint64_t whole = 0, rest = 0, scale = 1;
  uint32_t i = 0, digits = 0;
  int more = 0;
  for (; i < len && fg_is_digit(p[i]); i++, digits++) {
    whole = fg_add64(fg_mul64(whole, 10), (uint64_t)(p[i] - '0'));
  }
  if (digits > 0 && i + 1 < len && p[i] == '.' && fg_is_digit(p[i + 1])) {
    for (i++; i < len && fg_is_digit(p[i]); i++) {
      if (scale < 1000000000) {
        rest = rest * 10 + (uint64_t)(p[i] - '0');
        scale *= 10;
      } else if (p[i] != '0') {
        more = 1;
      }
    }
  }
  *used = digits > 0 ? i : 0;
  uint64_t part = fg_mul64(rest, unit_ms); /* rest < 1e9, unit <= a week: fits */
  uint64_t up = part / scale + (part % scale != 0 || more ? 1 : 0);
  return fg_min64(fg_add64(fg_mul64(whole, unit_ms), up), WAIT_MAX);
}

int fg_hint_number(fg_str s, uint64_t unit_ms, uint64_t *ms) {
  uint32_t used = 0;
  s = fg_trim(s);
  uint64_t v = decimal(s.ptr, s.len, unit_ms, &used);
  if (used == 0 || used != s.len) {
    return 0;
  }
  *ms = v;
  return 1;
}

typedef struct unit { const char *name; uint64_t ms; } unit;
/* Longest spelling first. Micro- and nanoseconds count as one millisecond at most. */
static const unit units[] = {
    {"milliseconds", 1}, {"millisecond", 1}, {"msecs", 1}, {"ms", 1}, {"seconds", 1000}, {"second", 1000}, {"secs", 1000}, {"sec", 1000},
    {"minutes", 60000}, {"minute", 60000}, {"mins", 60000}, {"min", 60000}, {"hours", 3600000}, {"hour", 3600000}, {"hrs", 3600000},
    {"hr", 3600000}, {"days", 86400000}, {"day", 86400000}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
    {"\xe6\xaf\xab\xe7\xa7\x92", 1}, /* haomiao */ {"\xe7\xa7\x92", 1000}, /* miao */ {"\xe5\x88\x86\xe9\x92\x9f", 60000}, /* fenzhong */
    {"\xe5\x88\x86", 60000}, {"\xe5\xb0\x8f\xe6\x97\xb6", 3600000}, /* xiaoshi */ {"\xe5\xa4\xa9", 86400000}, /* tian */
};

static const unit *unit_at(const char *p, uint32_t len) {
  for (uint32_t i = 0; i < FG_ARRAY_LEN(units); i++) {
    uint32_t n = fg_cstr_len(units[i].name);
    if (n > len || !fg_eq_nocase(p, n, units[i].name, n)) {
      continue;
    }
    /* A Latin unit ends where its word ends; a digit may follow ("9m38s"). */
    if (n == len || (unsigned char)units[i].name[0] >= 0x80 || !fg_is_alpha(p[n])) {
      return &units[i];
    }
  }
  return NULL;
}

/* A run of number-unit pairs; spaces, "and" and commas between them only when loose. *used bytes. */
static int pairs(const char *p, uint32_t len, int loose, uint64_t *ms, uint32_t *used) {
  uint64_t sum = 0;
  uint32_t i = 0, count = 0, end = 0;
  while (i < len) {
    uint32_t n = 0;
    uint32_t k = i;
    (void)decimal(p + i, len - i, 1, &n);
    if (n == 0) {
      break;
    }
    k += n;
    while (loose && k < len && p[k] == ' ') {
      k++;
    }
    const unit *u = unit_at(p + k, len - k);
    if (u == NULL) {
      break;
    }
    sum = fg_add64(sum, decimal(p + i, len - i, u->ms, &n));
    k += fg_cstr_len(u->name);
    count++;
    end = k;
    while (loose && k < len && (p[k] == ' ' || p[k] == ',')) {
      k++;
    }
    if (loose && k + 4 <= len && memcmp(p + k, "and ", 4) == 0) {
      k += 4;
    }
    i = k;
  }
  *ms = fg_min64(sum, WAIT_MAX);
  *used = end;
  return count > 0;
}

int fg_hint_duration(fg_str s, uint64_t *ms) {
  uint32_t used = 0;
  s = fg_trim(s);
  return pairs(s.ptr, s.len, 0, ms, &used) && used == s.len;
}

/* ---------------------------------------------------------------- dates */

/* Days since 1970-01-01 of a proleptic Gregorian date (Howard Hinnant, "chrono-compatible low-level date algorithms"). */
static int64_t days_from_civil(int64_t y, int64_t m, int64_t d) {
  y -= m <= 2;
  int64_t era = (y >= 0 ? y : y - 399) / 400;
  int64_t yoe = y - era * 400;
  int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
  int64_t doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
  return era * 146097 + doe - 719468;
}

typedef struct cursor { const char *p; uint32_t len, at, ok; } cursor;

static int64_t digits(cursor *c, uint32_t n) {
  int64_t v = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (c->at >= c->len || !fg_is_digit(c->p[c->at])) {
      c->ok = 0;
      return 0;
    }
    v = v * 10 + (c->p[c->at++] - '0');
  }
  return v;
}

static void expect(cursor *c, char ch) {
  if (c->at < c->len && fg_lower(c->p[c->at]) == ch) {
    c->at++;
  } else {
    c->ok = 0;
  }
}

static int peek(const cursor *c, char ch) { return c->at < c->len && c->p[c->at] == ch; }

static int64_t month(cursor *c) {
  static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";
  if (c->at + 3 <= c->len) {
    for (uint32_t m = 0; m < 12; m++) {
      if (fg_eq_nocase(c->p + c->at, 3, names + m * 3, 3)) {
        c->at += 3;
        return (int64_t)m + 1;
      }
    }
  }
  c->ok = 0;
  return 1;
}

static int64_t clock_of(cursor *c) {
  int64_t h = digits(c, 2);
  expect(c, ':');
  int64_t m = digits(c, 2);
  expect(c, ':');
  int64_t s = digits(c, 2);
  if (h > 23 || m > 59 || s > 60) {
    c->ok = 0;
  }
  return (h * 60 + m) * 60 + s;
}

static int64_t at_day(cursor *c, int64_t y, int64_t m, int64_t d) {
  static const uint8_t last[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (m < 1 || m > 12 || d < 1 || d > last[m - 1]) {
    c->ok = 0;
    return 0;
  }
  return days_from_civil(y, m, d) * 86400;
}

static int rfc3339(cursor *c, int64_t *ms) {
  int64_t y = digits(c, 4);
  expect(c, '-');
  int64_t mo = digits(c, 2);
  expect(c, '-');
  int64_t d = digits(c, 2);
  int64_t t = c->ok ? at_day(c, y, mo, d) : 0;
  if (c->at < c->len && (fg_lower(c->p[c->at]) == 't' || c->p[c->at] == ' ')) {
    c->at++;
  } else {
    c->ok = 0;
  }
  t += clock_of(c);
  int64_t frac = 0;
  if (peek(c, '.')) {
    int64_t scale = 100;
    c->at++;
    uint32_t n = 0;
    int more = 0;
    for (; c->at < c->len && fg_is_digit(c->p[c->at]); c->at++, n++) {
      if (scale > 0) {
        frac += (c->p[c->at] - '0') * scale;
        scale /= 10;
      } else if (c->p[c->at] != '0') {
        more = 1;
      }
    }
    c->ok &= n > 0;
    frac += more;
  }
  if (c->at < c->len && fg_lower(c->p[c->at]) == 'z') {
    c->at++;
  } else if (peek(c, '+') || peek(c, '-')) {
    int64_t sign = c->p[c->at++] == '+' ? -1 : 1;
    int64_t h = digits(c, 2);
    expect(c, ':');
    t += sign * (h * 3600 + digits(c, 2) * 60);
  } else {
    c->ok = 0; /* without a zone it is no moment */
  }
  *ms = t * 1000 + frac;
  return c->ok && c->at == c->len;
}

int fg_hint_date(fg_str s, int64_t *unix_ms) {
  s = fg_trim(s);
  cursor c = {s.ptr, s.len, 0, 1};
  if (s.len >= 20 && fg_is_digit(s.ptr[0])) {
    return rfc3339(&c, unix_ms);
  }
  while (c.at < c.len && fg_is_alpha(c.p[c.at])) { /* the day of the week says nothing new */
    c.at++;
  }
  if (c.at < 3) {
    return 0;
  }
  int64_t y, mo, d, t;
  if (peek(&c, ',')) {
    c.at++;
    expect(&c, ' ');
    d = digits(&c, 2);
    if (peek(&c, '-')) { /* RFC 850: two-digit year, within 50 years of 2026 */
      c.at++;
      mo = month(&c);
      expect(&c, '-');
      y = digits(&c, 2);
      y += y > 76 ? 1900 : 2000;
    } else { /* IMF-fixdate */
      expect(&c, ' ');
      mo = month(&c);
      expect(&c, ' ');
      y = digits(&c, 4);
    }
    expect(&c, ' ');
    t = clock_of(&c);
    expect(&c, ' ');
    expect(&c, 'g');
    expect(&c, 'm');
    expect(&c, 't');
  } else { /* asctime */
    expect(&c, ' ');
    mo = month(&c);
    expect(&c, ' ');
    if (peek(&c, ' ')) {
      c.at++;
      d = digits(&c, 1);
    } else {
      d = digits(&c, 2);
    }
    expect(&c, ' ');
    t = clock_of(&c);
    expect(&c, ' ');
    y = digits(&c, 4);
  }
  if (!c.ok || c.at != c.len) {
    return 0;
  }
  *unix_ms = (at_day(&c, y, mo, d) + t) * 1000;
  return c.ok != 0;
}

int fg_hint_reset(fg_str s, int64_t now_ms, uint64_t *ms) {
  /* Seconds since 1970 passed 1e9 in 2001 and milliseconds 1e12 then; a delta of 1e9 s would be 31 years. */
  const uint64_t epoch_s = 1000000000, epoch_ms = 1000000000000;
  uint64_t v;
  int64_t at = 0;
  s = fg_trim(s);
  if (fg_hint_number(s, 1000, &v)) {
    if (v == 0) {
      return 0;
    }
    if (v / 1000 < epoch_s) {
      *ms = v;
      return 1;
    }
    if (v >= (uint64_t)INT64_MAX) {
      return 0;
    }
    at = (int64_t)(v / 1000 >= epoch_ms ? v / 1000 : v);
  } else if (fg_hint_duration(s, &v)) {
    *ms = v;
    return 1;
  } else if (!fg_hint_date(s, &at)) {
    return 0;
  }
  if (now_ms <= 0) {
    return 0;
  }
  *ms = at > now_ms ? (uint64_t)(at - now_ms) : 0;
  return 1;
}

/* ---------------------------------------------------------------- prose */

static inline int word_at(fg_str s, uint32_t i, const char *w) {
  uint32_t k = 0; /* most differ in the first letters: no call for them */
  while (w[k] != 0 && i + k < s.len && s.ptr[i + k] == w[k]) {
    k++;
  }
  return w[k] == 0;
}

/* "seconds: 34 nanos: 500000000 }" of a protobuf's text form. */
static int proto_seconds(fg_str s, uint32_t i, uint64_t *ms) {
  uint32_t n = 0;
  while (i < s.len && (s.ptr[i] == ' ' || s.ptr[i] == '{' || s.ptr[i] == '\n' || s.ptr[i] == ':')) {
    i++;
  }
  uint64_t sum = 0;
  int found = 0;
  if (word_at(s, i, "seconds:")) {
    i += 8;
    i += i < s.len && s.ptr[i] == ' ';
    sum = decimal(s.ptr + i, s.len - i, 1000, &n);
    found = n > 0;
    i += n;
    i += i < s.len && (s.ptr[i] == ' ' || s.ptr[i] == '\n');
  }
  if (word_at(s, i, "nanos:")) {
    i += 6;
    i += i < s.len && s.ptr[i] == ' ';
    uint64_t nanos = decimal(s.ptr + i, s.len - i, 1, &n);
    found |= n > 0;
    sum = fg_add64(sum, n > 0 ? (nanos + 999999) / 1000000 : 0);
  }
  *ms = fg_min64(sum, WAIT_MAX);
  return found;
}

/* Words that ask for a wait, and what may stand between them and the number. */
static const char *const asks[] = {
    "try again", "retry-after", "retry_after", "retrying", "retry", "waiting", "wait", "again", "available again", "available in", "resets", "reset",
    "\xe8\xaf\xb7\xe5\x9c\xa8", /* qing zai */ "\xe8\xaf\xb7", /* qing */ "\xe7\xad\x89\xe5\xbe\x85", /* dengdai */
};
static const char *const links[] = {" in", " after", " for", " at least", " another", " about", " approximately", ":", "=", "\"", "'", " your request", " the request", " until", " this request", " request"};

int fg_hint_prose(fg_str s, uint64_t *ms) {
  uint64_t best = 0;
  int found = 0;
  for (uint32_t i = 0; i < s.len; i++) {
    unsigned char c = (unsigned char)s.ptr[i];
    char second = i + 1 < s.len ? s.ptr[i + 1] : 0;
    int may = c == 't' ? second == 'r' : c == 'r' ? second == 'e' : c == 'w' ? second == 'a' : c == 'a' ? second == 'g' || second == 'v' : c == 0xE8 || c == 0xE7;
    if (!may) { /* no word of `asks` begins so */
      continue;
    }
    if (i > 0 && fg_is_alnum(s.ptr[i - 1])) {
      continue;
    }
    uint64_t v = 0;
    if (word_at(s, i, "retry_delay") || word_at(s, i, "retrydelay")) {
      if (proto_seconds(s, i + (s.ptr[i + 5] == '_' ? 11u : 10u), &v)) {
        best = found ? fg_max64(best, v) : v;
        found = 1;
      }
      continue;
    }
    uint32_t k = 0;
    for (uint32_t a = 0; a < FG_ARRAY_LEN(asks) && k == 0; a++) {
      k = word_at(s, i, asks[a]) ? i + fg_cstr_len(asks[a]) : 0;
    }
    if (k == 0) {
      continue;
    }
    for (int more = 1; more;) {
      more = 0;
      for (uint32_t l = 0; l < FG_ARRAY_LEN(links); l++) {
        if (k < s.len && word_at(s, k, links[l])) {
          k += fg_cstr_len(links[l]);
          more = 1;
          break;
        }
      }
    }
    while (k < s.len && s.ptr[k] == ' ') {
      k++;
    }
    uint32_t used = 0;
    if (k < s.len && pairs(s.ptr + k, s.len - k, 1, &v, &used)) {
      best = found ? fg_max64(best, v) : v;
      found = 1;
    }
  }
  *ms = best;
  return found;
}
