/* Numbers of a card, exact: JSON numbers and decimal texts as scaled integers, integers as text, dates as milliseconds. */
#ifndef FG_CARD_NUMBER_H
#define FG_CARD_NUMBER_H

#include <cjson/cJSON.h>
#include "fg_base.h"

enum { FG_NUMBER_OK = 0, FG_NUMBER_NOT_EXACT = -1, FG_NUMBER_TOO_BIG = -2, FG_NUMBER_BAD = -3 };
enum { FG_DECIMALS_MONEY = 9, FG_DECIMALS_MAX = 9 };
#define FG_NUMBER_MAX 999999999999999 /* 15 digits: every such decimal has a double of its own */

/* A JSON number times 10^decimals (at most 9), when that is an integer of at most 15 digits. */
int32_t fg_number_scaled(const cJSON *node, uint32_t decimals, int64_t *out);
/* A plain decimal text ("12", "0.08"): digits, a point and digits; no sign, exponent or white space. */
int32_t fg_number_text(const char *text, uint32_t len, uint32_t decimals, int64_t *out);
/* value / 10^decimals as the shortest plain decimal; buf holds 32 bytes. Returns its length. */
uint32_t fg_number_print(int64_t value, uint32_t decimals, char *buf);
/* A number node as the shortest plain decimal, for canonical text; 0 when it has more than 9 decimals or 15 digits. */
uint32_t fg_number_canonical(const cJSON *node, char *buf);
/* RFC 3339 date-time with an offset or Z, or a date alone (its midnight UTC), to Unix milliseconds. Years 1970 to 9999. */
int32_t fg_number_date(const char *text, uint32_t len, int64_t *unix_ms);

#endif /* FG_CARD_NUMBER_H */
