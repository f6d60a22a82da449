/* Words and arithmetic every module uses: saturating sums and products, text
 * compare without libc. Header-only; no state. */
#ifndef FG_BASE_H
#define FG_BASE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "fivegates.h"

#define FG_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static inline uint32_t fg_min32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t fg_max32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint64_t fg_min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t fg_max64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline int64_t fg_mins(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t fg_maxs(int64_t a, int64_t b) { return a > b ? a : b; }

/* Saturating: the result stays at the type's end instead of wrapping. */
static inline uint32_t fg_add32(uint32_t a, uint32_t b) { return a > UINT32_MAX - b ? UINT32_MAX : a + b; }
static inline uint32_t fg_sub32(uint32_t a, uint32_t b) { return a > b ? a - b : 0; }
static inline uint64_t fg_add64(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
static inline uint64_t fg_sub64(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static inline uint64_t fg_mul64(uint64_t a, uint64_t b) {
  uint64_t r;
  return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}
static inline uint32_t fg_mul32(uint32_t a, uint32_t b) {
  uint64_t r = (uint64_t)a * b;
  return r > UINT32_MAX ? UINT32_MAX : (uint32_t)r;
}
static inline uint32_t fg_sat32(uint64_t a) { return a > UINT32_MAX ? UINT32_MAX : (uint32_t)a; }
static inline int64_t fg_adds(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_add_overflow(a, b, &r)) {
    return r;
  }
  return b > 0 ? INT64_MAX : INT64_MIN;
}
static inline int64_t fg_subs(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_sub_overflow(a, b, &r)) {
    return r;
  }
  return b < 0 ? INT64_MAX : INT64_MIN;
}
static inline int64_t fg_muls(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_mul_overflow(a, b, &r)) {
    return r;
  }
  return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

/* Clears a block by a call: what compilers make of a memset of known size starts slower than a whole block like a decision takes. */
static inline void fg_zero(void *p, size_t bytes) {
  __asm__("" : "+r"(bytes));
  memset(p, 0, bytes);
}

static inline void fg_copy(void *to, const void *from, size_t bytes) { /* the same for a copy */
  __asm__("" : "+r"(bytes));
  memcpy(to, from, bytes);
}

static inline uint32_t fg_cstr_len(const char *z) {
  uint32_t n = 0;
  while (z[n] != 0) {
    n++;
  }
  return n;
}
static inline fg_str fg_str_make(const char *ptr, uint32_t len) {
  fg_str s = {ptr, ptr != NULL ? len : 0, 0};
  return s;
}
static inline fg_str fg_str_of(const char *z) { return fg_str_make(z, fg_cstr_len(z)); }

/* ASCII only; bytes of UTF-8 are left alone. */
static inline char fg_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }
static inline int fg_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline int fg_is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline int fg_is_alnum(char c) { return fg_is_digit(c) || fg_is_alpha(c); }
static inline int fg_is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static inline int fg_eq(const char *a, uint32_t alen, const char *b, uint32_t blen) {
  return alen == blen && (alen == 0 || memcmp(a, b, alen) == 0);
}
static inline int fg_str_eq(fg_str a, fg_str b) { return fg_eq(a.ptr, a.len, b.ptr, b.len); }
static inline int fg_eq_nocase(const char *a, uint32_t alen, const char *b, uint32_t blen) {
  if (alen != blen) {
    return 0;
  }
  for (uint32_t i = 0; i < alen; i++) {
    if (fg_lower(a[i]) != fg_lower(b[i])) {
      return 0;
    }
  }
  return 1;
}
/* Against a literal: FG_IS(s, "timeout"), exact and in any case. */
#define FG_IS(s, lit) fg_eq((s).ptr, (s).len, "" lit, (uint32_t)sizeof(lit) - 1)
#define FG_ISI(s, lit) fg_eq_nocase((s).ptr, (s).len, "" lit, (uint32_t)sizeof(lit) - 1)

static inline fg_str fg_trim(fg_str s) {
  while (s.len > 0 && fg_is_space(s.ptr[0])) {
    s.ptr++;
    s.len--;
  }
  while (s.len > 0 && fg_is_space(s.ptr[s.len - 1])) {
    s.len--;
  }
  return s;
}

#endif /* FG_BASE_H */
