/* Headers with waits, and how hints of one answer are weighed (DESIGN 4):
 * explicit hints are the ms header, the s header, members of the body, and
 * prose. The longest wins, but two that agree within a second are one wait
 * told twice, and then the more exact one is meant. */
#include "fg_hint.h"

const fg_str *fg_header_find(const fg_header *h, uint32_t count, const char *name) {
  uint32_t len = fg_cstr_len(name);
  for (uint32_t i = 0; i < count; i++) {
    if (fg_eq_nocase(h[i].name.ptr, h[i].name.len, name, len)) {
      return &h[i].value;
    }
  }
  return NULL;
}

void fg_hint_longer(fg_hint *h, uint64_t ms) {
  if (!h->has || ms > fg_add64(h->wait_ms, 1000)) {
    h->wait_ms = ms;
  }
  h->has = 1;
  h->explicit_hint = 1;
}

static int contains(fg_str s, const char *word) {
  uint32_t n = fg_cstr_len(word);
  for (uint32_t i = 0; i + n <= s.len; i++) {
    if (fg_lower(s.ptr[i]) == word[0] && fg_eq_nocase(s.ptr + i, n, word, n)) {
      return 1;
    }
  }
  return 0;
}

static void longest(uint64_t *to, uint32_t *has, uint64_t ms) {
  *to = *has ? fg_max64(*to, ms) : ms;
  *has = 1;
}

static uint32_t period_of(fg_str name) {
  return contains(name, "month")                            ? FG_PERIOD_MONTH
         : contains(name, "week") || contains(name, "-7d-") ? FG_PERIOD_WEEK
         : contains(name, "day")                            ? FG_PERIOD_DAY
         : contains(name, "-5h-")                           ? FG_PERIOD_HOUR
                                                            : FG_PERIOD_UNKNOWN;
}

/* The header beside a reset header that has another word in place of "reset". */
static const fg_str *beside(const fg_header *h, uint32_t count, fg_str reset, const char *word) {
  char b[96];
  uint32_t n = fg_cstr_len(word);
  for (uint32_t i = 0; i + 5 <= reset.len; i++) {
    if (!fg_eq_nocase(reset.ptr + i, 5, "reset", 5)) {
      continue;
    }
    uint32_t len = reset.len - 5 + n;
    if (len >= sizeof b) {
      return NULL;
    }
    memcpy(b, reset.ptr, i);
    memcpy(b + i, word, n);
    memcpy(b + i + n, reset.ptr + i + 5, reset.len - i - 5);
    b[len] = 0;
    return fg_header_find(h, count, b);
  }
  return NULL;
}

static int is_reset_name(fg_str n) { return contains(n, "reset") && (contains(n, "ratelimit") || contains(n, "rate-limit")); }

/* Its bucket is the exhausted one: nothing remains, or (Anthropic's unified limits) its status says rejected. */
static int exhausted(const fg_header *h, uint32_t count, fg_str reset) {
  const fg_str *left = beside(h, count, reset, "remaining");
  if (left != NULL) {
    fg_str l = fg_trim(*left);
    return FG_IS(l, "0");
  }
  const fg_str *status = beside(h, count, reset, "status");
  if (status != NULL) {
    fg_str t = fg_trim(*status);
    return FG_ISI(t, "rejected");
  }
  return 0;
}

/* A number after `key=` of a structured field. */
static int member(fg_str v, const char *key, fg_str *out) {
  uint32_t n = fg_cstr_len(key);
  for (uint32_t i = 0; i + n < v.len; i++) {
    if ((i == 0 || !fg_is_alnum(v.ptr[i - 1])) && memcmp(v.ptr + i, key, n) == 0) {
      uint32_t end = i + n;
      while (end < v.len && fg_is_digit(v.ptr[end])) {
        end++;
      }
      *out = fg_str_make(v.ptr + i + n, end - i - n);
      return out->len > 0;
    }
  }
  return 0;
}

/* RateLimit: "default";r=0;t=30 (IETF draft 8 on), RateLimit: limit=10, remaining=0, reset=50 (before). */
static int structured(fg_str v, uint64_t *ms) {
  fg_str left, wait;
  int has = (member(v, "r=", &left) && member(v, "t=", &wait)) || (member(v, "remaining=", &left) && member(v, "reset=", &wait));
  return has && FG_IS(left, "0") && fg_hint_reset(wait, 0, ms);
}

void fg_hint_headers(const fg_header *h, uint32_t count, int64_t unix_ms, fg_hint_heads *out) {
  static const char *const millis[] = {"retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "x-retry-after-ms"};
  static const char *const seconds[] = {"retry-after", "x-retry-after", "x-ratelimit-timeremaining", "x-ratelimit-retry-after", "ratelimit-retry-after"};
  memset(out, 0, sizeof *out);
  int64_t date = 0;
  const fg_str *v = fg_header_find(h, count, "date");
  out->now_ms = v != NULL && fg_hint_date(*v, &date) ? date : unix_ms;
  uint64_t ms;
  for (uint32_t i = 0; i < FG_ARRAY_LEN(millis); i++) {
    v = fg_header_find(h, count, millis[i]);
    if (v != NULL && fg_hint_number(*v, 1, &ms)) {
      longest(&out->millis, &out->has_millis, ms);
    }
  }
  for (uint32_t i = 0; i < FG_ARRAY_LEN(seconds); i++) {
    v = fg_header_find(h, count, seconds[i]);
    if (v == NULL) {
      continue;
    }
    if (fg_hint_number(*v, 1000, &ms)) {
      longest(&out->seconds, &out->has_seconds, ms);
    } else if (fg_hint_date(*v, &date) && out->now_ms > 0) {
      longest(&out->seconds, &out->has_seconds, date > out->now_ms ? (uint64_t)(date - out->now_ms) : 0);
    }
  }
  v = fg_header_find(h, count, "grpc-retry-pushback-ms"); /* gRPC A6: negative or unreadable forbids the retry */
  if (v != NULL) {
    if (fg_hint_number(*v, 1, &ms)) {
      longest(&out->millis, &out->has_millis, ms);
    } else {
      out->no_retry = 1;
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    if (FG_ISI(h[i].name, "ratelimit") && structured(h[i].value, &ms)) {
      longest(&out->reset, &out->has_reset, ms);
    }
    if (!is_reset_name(h[i].name)) {
      continue;
    }
    if (!exhausted(h, count, h[i].name)) {
      continue; /* another bucket refused the request, or nobody says which */
    }
    out->period = fg_max32(out->period, period_of(h[i].name));
    if (fg_hint_reset(h[i].value, out->now_ms, &ms)) {
      longest(&out->reset, &out->has_reset, ms);
    }
  }
}
