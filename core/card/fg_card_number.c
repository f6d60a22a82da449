/* Exact numbers. fg_number_scaled is the one function of the core that names a floating-point type. */
#include "fg_card_number.h"

#include <math.h>

static const int64_t POWER[FG_DECIMALS_MAX + 1] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000};

/* cJSON keeps only the nearest double. A decimal of at most 15 digits is the only one of its length near that double, so rounding
 * value * 10^d gives back its digits; dividing them again (both operands exact, one rounding) must give the same double. */
int32_t fg_number_scaled(const cJSON *node, uint32_t decimals, int64_t *out) {
  double value = node->valuedouble, scale = (double)POWER[decimals];
  if (!(value * scale <= (double)FG_NUMBER_MAX) || !(value * scale >= -(double)FG_NUMBER_MAX)) {
    return FG_NUMBER_TOO_BIG;
  }
  int64_t digits = llround(value * scale);
  double again = (double)digits / scale;
  if (again < value || again > value) {
    return FG_NUMBER_NOT_EXACT;
  }
  *out = digits;
  return FG_NUMBER_OK;
}

int32_t fg_number_text(const char *text, uint32_t len, uint32_t decimals, int64_t *out) {
  int64_t value = 0;
  uint32_t i = 0, after = 0, point = 0, digits = 0;
  for (; i < len; i++) {
    if (text[i] == '.' && !point && digits > 0) {
      point = 1;
      continue;
    }
    if (!fg_is_digit(text[i])) {
      return FG_NUMBER_BAD;
    }
    digits++;
    if (point && after == decimals) {
      if (text[i] != '0') {
        return FG_NUMBER_NOT_EXACT;
      }
      continue;
    }
    after += point;
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text[i] - '0', &value)) {
      return FG_NUMBER_TOO_BIG;
    }
  }
  if (digits == 0 || text[len - 1] == '.') {
    return FG_NUMBER_BAD;
  }
  if (__builtin_mul_overflow(value, POWER[decimals - after], &value)) {
    return FG_NUMBER_TOO_BIG;
  }
  *out = value;
  return FG_NUMBER_OK;
}

uint32_t fg_number_print(int64_t value, uint32_t decimals, char *buf) {
  char digits[24];
  uint32_t n = 0, at = 0;
  uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do {
    digits[n++] = (char)('0' + left % 10);
    left /= 10;
  } while (left > 0 || n <= decimals);
  if (value < 0) {
    buf[at++] = '-';
  }
  uint32_t last = 0; /* trailing zeros after the point are not written */
  while (last < decimals && digits[last] == '0') {
    last++;
  }
  while (n > last || n > decimals) {
    if (n == decimals) {
      buf[at++] = '.';
    }
    buf[at++] = digits[--n];
  }
  buf[at] = 0;
  return at;
}

uint32_t fg_number_canonical(const cJSON *node, char *buf) {
  for (uint32_t decimals = 0; decimals <= FG_DECIMALS_MAX; decimals++) {
    int64_t value;
    if (fg_number_scaled(node, decimals, &value) == FG_NUMBER_OK) {
      return fg_number_print(value, decimals, buf);
    }
  }
  return 0;
}

/* ------------------------------------------------------------------ dates */

static int digits_of(const char *text, uint32_t at, uint32_t count, uint32_t *out) {
  uint32_t value = 0;
  for (uint32_t i = at; i < at + count; i++) {
    if (!fg_is_digit(text[i])) {
      return 0;
    }
    value = value * 10 + (uint32_t)(text[i] - '0');
  }
  *out = value;
  return 1;
}

/* Days from 1970-01-01 in the proleptic Gregorian calendar: years begin in March, so the leap day is the last of its year. */
static int64_t days_of(uint32_t year, uint32_t month, uint32_t day) {
  uint32_t y = month <= 2 ? year - 1 : year;
  uint32_t m = month <= 2 ? month + 9 : month - 3;
  int64_t in_year = (153 * (int64_t)m + 2) / 5 + day - 1;
  return 365 * (int64_t)y + y / 4 - y / 100 + y / 400 + in_year - 719468;
}

static uint32_t days_in(uint32_t year, uint32_t month) {
  if (month == 2) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28;
  }
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

int32_t fg_number_date(const char *text, uint32_t len, int64_t *unix_ms) {
  uint32_t year, month, day, hour = 0, minute = 0, second = 0, ms = 0;
  if (len < 10 || text[4] != '-' || text[7] != '-' || !digits_of(text, 0, 4, &year) || !digits_of(text, 5, 2, &month) ||
      !digits_of(text, 8, 2, &day) || year < 1970 || month < 1 || month > 12 || day < 1 || day > days_in(year, month)) {
    return FG_NUMBER_BAD;
  }
  int64_t offset = 0;
  if (len > 10) {
    uint32_t at = 19;
    if (len < 20 || (text[10] != 'T' && text[10] != 't' && text[10] != ' ') || text[13] != ':' || text[16] != ':' ||
        !digits_of(text, 11, 2, &hour) || !digits_of(text, 14, 2, &minute) || !digits_of(text, 17, 2, &second) || hour > 23 ||
        minute > 59 || second > 60) {
      return FG_NUMBER_BAD;
    }
    if (text[at] == '.') {
      uint32_t weight = 100, first = ++at;
      for (; at < len && fg_is_digit(text[at]); at++, weight /= 10) {
        ms += (uint32_t)(text[at] - '0') * weight;
      }
      if (at == first) {
        return FG_NUMBER_BAD;
      }
    }
    if (at + 1 == len && (text[at] == 'Z' || text[at] == 'z')) {
      offset = 0;
    } else {
      uint32_t oh, om;
      if (at + 6 != len || (text[at] != '+' && text[at] != '-') || text[at + 3] != ':' || !digits_of(text, at + 1, 2, &oh) ||
          !digits_of(text, at + 4, 2, &om) || oh > 23 || om > 59) {
        return FG_NUMBER_BAD;
      }
      offset = (int64_t)(oh * 60 + om) * (text[at] == '-' ? -60000 : 60000);
    }
  }
  *unix_ms = ((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60000 + second * 1000 + ms - offset;
  return FG_NUMBER_OK;
}
