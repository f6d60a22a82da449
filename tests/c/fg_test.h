/* A plain test harness: FG_CHECK counts, fg_test_end prints and answers main's
 * result. Include once, in the file that has main. */
#ifndef FG_TEST_H
#define FG_TEST_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned fg_test_passed, fg_test_failed;

#define FG_CHECK(cond) fg_test_check((cond) != 0, __FILE__, __LINE__, #cond)
/* Integers of any type; both sides are printed when they differ. */
#define FG_EQ(got, want) fg_test_eq((int64_t)(got), (int64_t)(want), __FILE__, __LINE__, #got)
#define FG_EQ_STR(got, want) fg_test_str((got), (want), __FILE__, __LINE__, #got)
#define FG_EQ_BYTES(got, got_len, want) fg_test_bytes((got), (uint32_t)(got_len), (want), __FILE__, __LINE__, #got)

static inline int fg_test_check(int ok, const char *file, int line, const char *text) {
  if (ok) {
    fg_test_passed++;
  } else {
    fg_test_failed++;
    printf("%s:%d: %s\n", file, line, text);
  }
  return ok;
}

static inline int fg_test_eq(int64_t got, int64_t want, const char *file, int line, const char *text) {
  if (got == want) {
    fg_test_passed++;
    return 1;
  }
  fg_test_failed++;
  printf("%s:%d: %s is %" PRId64 ", not %" PRId64 "\n", file, line, text, got, want);
  return 0;
}

static inline int fg_test_str(const char *got, const char *want, const char *file, int line, const char *text) {
  if ((got == NULL) == (want == NULL) && (got == NULL || strcmp(got, want) == 0)) {
    fg_test_passed++;
    return 1;
  }
  fg_test_failed++;
  printf("%s:%d: %s is \"%s\", not \"%s\"\n", file, line, text, got ? got : "(null)", want ? want : "(null)");
  return 0;
}

static inline int fg_test_bytes(const char *got, uint32_t len, const char *want, const char *file, int line, const char *text) {
  if (len == strlen(want) && memcmp(got, want, len) == 0) {
    fg_test_passed++;
    return 1;
  }
  fg_test_failed++;
  printf("%s:%d: %s is \"%.*s\", not \"%s\"\n", file, line, text, (int)len, got, want);
  return 0;
}

static inline int fg_test_end(const char *name) {
  printf("%s: %u passed, %u failed\n", name, fg_test_passed, fg_test_failed);
  return fg_test_failed == 0 ? 0 : 1;
}

#endif /* FG_TEST_H */
