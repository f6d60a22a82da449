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
    if (fg_eq_nocase(s.ptr + i, n, word, n)) {
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
  return contains(name, "month") ? FG_PERIOD_MONTH
         : contains(name, "week") ? FG_PERIOD_WEEK
         : contains(name, "day")  ? FG_PERIOD_DAY
                                  : FG_PERIOD_UNKNOWN;
}

/* The bucket a reset header speaks of: its name with "reset" in place of "remaining" tells whether it is exhausted. */
static const fg_str *remaining_of(const fg_header *h, uint32_t count, fg_str reset) {
  char b[96];
  static const char word[] = "remaining";
  for (uint32_t i = 0; i + 5 <= reset.len; i++) {
    if (!fg_eq_nocase(reset.ptr + i, 5, "reset", 5)) {
      continue;
    }
    uint32_t len = reset.len - 5 + (uint32_t)sizeof word - 1;
    if (len >= sizeof b) {
      return NULL;
    }
    memcpy(b, reset.ptr, i);
    memcpy(b + i, word, sizeof word - 1);
    memcpy(b + i + sizeof word - 1, reset.ptr + i + 5, reset.len - i - 5);
    b[len] = 0;
    return fg_header_find(h, count, b);
  }
  return NULL;
}

static int is_reset_name(fg_str n) {
  return contains(n, "reset") && (contains(n, "ratelimit") || contains(n, "rate-limit"));
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
    if (!is_reset_name(h[i].name)) {
      continue;
    }
    const fg_str *left = remaining_of(h, count, h[i].name);
    fg_str l = left != NULL ? fg_trim(*left) : fg_str_make(NULL, 0);
    if (left != NULL && !FG_IS(l, "0")) {
      continue; /* another bucket refused the request */
    }
    if (left == NULL && !contains(h[i].name, "unified")) {
      continue; /* nobody says it is the exhausted one */
    }
    out->period = fg_max32(out->period, period_of(h[i].name));
    if (fg_hint_reset(h[i].value, out->now_ms, &ms)) {
      longest(&out->reset, &out->has_reset, ms);
    }
  }
}
