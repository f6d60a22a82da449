/* Wait hints: numbers, durations, dates, resets, prose, headers, precedence. Rows J07 and J09 of the design's vectors are here. */
#include "fg_hint.h"
#include "fg_test.h"

#define S(x) fg_str_of(x)
enum { NONE = -1 };

static int64_t number(const char *t) {
  uint64_t ms = 0;
  return fg_hint_number(S(t), 1000, &ms) ? (int64_t)ms : NONE;
}
static int64_t duration(const char *t) {
  uint64_t ms = 0;
  return fg_hint_duration(S(t), &ms) ? (int64_t)ms : NONE;
}
static int64_t date(const char *t) {
  int64_t ms = 0;
  return fg_hint_date(S(t), &ms) ? ms : NONE;
}
static int64_t prose(const char *t) {
  uint64_t ms = 0;
  return fg_hint_prose(S(t), &ms) ? (int64_t)ms : NONE;
}
static const int64_t now = INT64_C(1791280800000); /* Tue, 06 Oct 2026 10:00:00 GMT */
static int64_t reset(const char *t) {
  uint64_t ms = 0;
  return fg_hint_reset(S(t), now, &ms) ? (int64_t)ms : NONE;
}

static void numbers(void) {
  FG_EQ(number("0"), 0);
  FG_EQ(number(" 7 "), 7000);
  FG_EQ(number("1.5"), 1500);
  FG_EQ(number("0.0001"), 1); /* up to a whole millisecond */
  FG_EQ(number("20.0"), 20000);
  FG_EQ(number("1.0000000000001"), 1001);
  static const char *const bad[] = {"+5", "-1", "1e3", "NaN", "inf", "", " ", "5s", "30s", "1.", ".5", "0x10", "1,5", "soon", "5 5", "1_000", "\xd9\xa5"};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(bad); i++) {
    if (!FG_EQ(number(bad[i]), NONE)) {
      printf("  \"%s\"\n", bad[i]);
    }
  }
  FG_CHECK(number("99999999999999999999") > INT64_C(1) << 40); /* clamped, never wrapped */
  FG_CHECK(number("99999999999999999999999999999999999999999999999999") > INT64_C(1) << 40);
}

static void durations(void) {
  FG_EQ(duration("6m0s"), 360000);
  FG_EQ(duration("12ms"), 12);
  FG_EQ(duration("1s"), 1000);
  FG_EQ(duration("9m38.016s"), 578016);
  FG_EQ(duration("0.847655010s"), 848);
  FG_EQ(duration("34s"), 34000);
  FG_EQ(duration("1h2m3s"), 3723000);
  FG_EQ(duration("1d"), 86400000);
  FG_EQ(duration("59.999s"), 59999);
  FG_EQ(duration("34"), NONE);
  FG_EQ(duration("s"), NONE);
  FG_EQ(duration("-3s"), NONE);
  FG_EQ(duration("3s!"), NONE);
  FG_EQ(duration(""), NONE);
}

static void dates(void) {
  FG_EQ(date("Tue, 06 Oct 2026 10:00:00 GMT"), now);
  FG_EQ(date("Tuesday, 06-Oct-26 10:00:00 GMT"), now);
  FG_EQ(date("Tue Oct  6 10:00:00 2026"), now);
  FG_EQ(date("Sun Nov 16 08:49:37 1994"), INT64_C(784975777000));
  FG_EQ(date("Sunday, 06-Nov-94 08:49:37 GMT"), INT64_C(784111777000));
  FG_EQ(date("2026-10-06T10:00:00Z"), now);
  FG_EQ(date("2026-10-06T12:00:00+02:00"), now);
  FG_EQ(date("2026-10-06T10:00:00.250Z"), now + 250);
  FG_EQ(date("2026-10-06T10:00:00.0001Z"), now + 1);
  FG_EQ(date("2024-02-29T00:00:00Z"), INT64_C(1709164800000));
  static const char *const bad[] = {"2026-10-06T10:00:00", "2026-10-06 10:00:00", "2026-13-06T10:00:00Z", "Tue, 06 Okt 2026 10:00:00 GMT", "Tue, 06 Oct 2026",
                                    "Tue, 06 Oct 2026 25:00:00 GMT", "yesterday", "Tue", "2026-10-06T10:00:00Zx", "Tue, 00 Oct 2026 10:00:00 GMT", ""};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(bad); i++) {
    if (!FG_EQ(date(bad[i]), NONE)) {
      printf("  \"%s\"\n", bad[i]);
    }
  }
}

static void resets(void) {
  FG_EQ(reset("1791280815"), 15000);
  FG_EQ(reset("1791280815000"), 15000);
  FG_EQ(reset("1791280815.5"), 15500);
  FG_EQ(reset("19"), 19000);
  FG_EQ(reset("6m0s"), 360000);
  FG_EQ(reset("2026-10-06T10:00:01Z"), 1000);
  FG_EQ(reset("1791280000"), 0); /* past: now */
  FG_EQ(reset("0"), NONE);       /* a placeholder */
  FG_EQ(reset("-1"), NONE);
  FG_EQ(reset("never"), NONE);
  uint64_t ms;
  FG_EQ(fg_hint_reset(S("1791280815"), 0, &ms), 0); /* no clock */
  FG_EQ(fg_hint_reset(S("19"), 0, &ms), 1);
}

static void proses(void) {
  FG_EQ(prose("please try again in 9m38.016s."), 578016);
  FG_EQ(prose("please try again in 328ms."), 328);
  FG_EQ(prose("please retry after 30 seconds."), 30000);
  FG_EQ(prose("please retry in 34.074824224s."), 34075);
  FG_EQ(prose("please wait 24367 seconds before retrying."), 24367000);
  FG_EQ(prose("please try again after 1 seconds"), 1000);
  FG_EQ(prose("try again in 5 minutes"), 300000);
  FG_EQ(prose("try again in 1 hour and 5 minutes"), 3900000);
  FG_EQ(prose("try again in 1h2m"), 3720000);
  FG_EQ(prose("retry_delay { seconds: 34 }"), 34000);
  FG_EQ(prose("retry_delay { seconds: 1 nanos: 500000000 }"), 1500);
  FG_EQ(prose("retrydelay: \"34s\""), NONE); /* a member: the reader of members has it */
  FG_EQ(prose("\xe8\xaf\xb7\xe5\x9c\xa8 30 \xe7\xa7\x92\xe5\x90\x8e\xe9\x87\x8d\xe8\xaf\x95"), 30000);
  FG_EQ(prose("\xe8\xaf\xb7" "30\xe7\xa7\x92\xe5\x90\x8e\xe5\x86\x8d\xe8\xaf\x95"), 30000);
  FG_EQ(prose("retry-after: 7s"), 7000);
  FG_EQ(prose("wait at least 2s, then try again in 3s"), 3000);
  static const char *const bad[] = {"please try again later", "within the last 5 minutes, please wait a moment and try again.", "your limit will reset at 2026-10-14 00:00:00",
                                    "you will regain access on 2026-11-01 at 00:00 utc.", "limit 30000, requested 342389", "try again in a minute", "in 5 seconds",
                                    "we waited 5 seconds", "retry 3 times", "retry your request (request id 0123)", "wait"};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(bad); i++) {
    if (!FG_EQ(prose(bad[i]), NONE)) {
      printf("  \"%s\"\n", bad[i]);
    }
  }
}

typedef struct pair { const char *name, *value; } pair;

/* The wait of an answer with these headers; -1 none, -2 forbidden. */
static int64_t wait_of(const pair *p, uint32_t n, const char *body, int64_t unix_ms) {
  fg_header h[8];
  fg_evidence e;
  fg_failure f;
  memset(&e, 0, sizeof e);
  memset(&f, 0, sizeof f);
  for (uint32_t i = 0; i < n; i++) {
    h[i].name = S(p[i].name);
    h[i].value = S(p[i].value);
  }
  e.size = sizeof e;
  f.size = sizeof f;
  e.status = 429;
  e.phase = FG_PHASE_RESPONSE;
  e.headers = h;
  e.header_count = n;
  e.body = S(body);
  e.unix_ms = unix_ms;
  FG_EQ(fg_classify(NULL, &e, &f), FG_OK);
  return f.flags & FG_FAIL_MUST_NOT_RETRY ? -2 : f.flags & FG_FAIL_HAS_RETRY_AFTER ? (int64_t)f.retry_after_ms : NONE;
}
#define WAIT(body, ...) wait_of((const pair[]){__VA_ARGS__}, (uint32_t)(sizeof((const pair[]){__VA_ARGS__}) / sizeof(pair)), body, 0)

static void headers(void) {
  FG_EQ(WAIT("", {"retry-after-ms", "250"}, {"retry-after", "9"}), 9000); /* they disagree: the longest */
  FG_EQ(WAIT("", {"retry-after-ms", "29800"}, {"retry-after", "30"}), 29800);
  FG_EQ(WAIT("", {"Retry-After", "2"}), 2000);
  FG_EQ(WAIT("", {"date", "Tue, 06 Oct 2026 10:00:00 GMT"}, {"retry-after", "Tue, 06 Oct 2026 09:59:00 GMT"}), 0);
  FG_EQ(WAIT("", {"date", "Tue, 06 Oct 2026 10:00:00 GMT"}, {"retry-after", "Tue Oct  6 10:00:05 2026"}), 5000);
  FG_EQ(WAIT("", {"retry-after", "Tue, 06 Oct 2026 10:00:05 GMT"}), NONE);
  FG_EQ(wait_of((const pair[]){{"retry-after", "Tue, 06 Oct 2026 10:00:05 GMT"}}, 1, "", now), 5000);
  FG_EQ(WAIT("", {"grpc-retry-pushback-ms", "-1"}), -2);
  FG_EQ(WAIT("", {"grpc-retry-pushback-ms", "abc"}), -2);
  FG_EQ(WAIT("", {"grpc-retry-pushback-ms", "0"}), 0);
  FG_EQ(WAIT("", {"x-should-retry", "false"}), -2);
  FG_EQ(WAIT("", {"retry-after", "99999999999999999999"}), UINT32_MAX);
  FG_EQ(WAIT("", {"retry-after", "1e3"}), NONE);
  FG_EQ(WAIT("", {"x-ratelimit-remaining-requests", "0"}, {"x-ratelimit-reset-requests", "12ms"}, {"x-ratelimit-remaining-tokens", "5"},
             {"x-ratelimit-reset-tokens", "6m0s"}), 12);
  FG_EQ(WAIT("", {"x-ratelimit-remaining", "0"}, {"x-ratelimit-reset", "10"}, {"retry-after", "2"}), 2000);
  FG_EQ(WAIT("", {"x-ratelimit-remaining", "-1"}, {"x-ratelimit-reset", "0"}), NONE);
  FG_EQ(WAIT("", {"ratelimit-remaining", "0"}, {"ratelimit-reset", "19"}), 19000);
  FG_EQ(WAIT("{\"error\":{\"details\":[{\"retryDelay\":\"34s\"}],\"message\":\"please retry in 34.0748s.\"}}", {"x", "y"}), 34000);
  FG_EQ(WAIT("{\"error\":{\"message\":\"Please try again in 2s.\"}}", {"retry-after", "60"}), 60000);
  FG_EQ(WAIT("{\"error\":{\"message\":\"Please try again in 60s.\"}}", {"retry-after", "2"}), 60000);
  FG_EQ(WAIT("", {"anthropic-ratelimit-unified-5h-status", "allowed"}, {"anthropic-ratelimit-unified-5h-reset", "1791281000"},
             {"anthropic-ratelimit-unified-7d-status", "rejected"}, {"anthropic-ratelimit-unified-7d-reset", "1791288000"},
             {"date", "Tue, 06 Oct 2026 10:00:00 GMT"}), 7200000);
  FG_EQ(WAIT("", {"ratelimit", "\"default\";r=0;t=30"}), 30000);
  FG_EQ(WAIT("", {"ratelimit", "limit=10, remaining=0, reset=50"}), 50000);
  FG_EQ(WAIT("", {"ratelimit", "\"default\";r=5;t=30"}), NONE);
  FG_EQ(WAIT("{\"title\":\"x\",\"retry_after\":12.5}", {"x", "y"}), 12500);
  FG_EQ(WAIT("{\"error\":{\"resets_in_seconds\":90}}", {"x", "y"}), 90000);
}

int main(void) {
  numbers();
  durations();
  dates();
  resets();
  proses();
  headers();
  return fg_test_end("hint");
}
