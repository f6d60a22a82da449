/* Numbers of cards: every decimal of up to 15 digits is exact, everything else is refused, printing gives them back. */
#include "fg_test.h"

#include <stdlib.h>
#include <cjson/cJSON.h>

#include "fg_card_number.h"

static int32_t scaled(const char *json, uint32_t decimals, int64_t *out) {
  cJSON *node = cJSON_Parse(json);
  FG_CHECK(cJSON_IsNumber(node));
  int32_t got = fg_number_scaled(node, decimals, out);
  cJSON_Delete(node);
  return got;
}

static void known(void) {
  static const struct { const char *json; uint32_t decimals; int32_t got; int64_t value; } ROWS[] = {
      {"0", 0, FG_NUMBER_OK, 0}, {"-0", 9, FG_NUMBER_OK, 0}, {"0.08", 9, FG_NUMBER_OK, 80000000}, {"2.5", 9, FG_NUMBER_OK, 2500000000}, {"1e3", 0, FG_NUMBER_OK, 1000},
      {"0.1", 0, FG_NUMBER_NOT_EXACT, 0}, {"0.1", 1, FG_NUMBER_OK, 1}, {"0.3", 9, FG_NUMBER_OK, 300000000}, {"1e-9", 9, FG_NUMBER_OK, 1}, {"1e-10", 9, FG_NUMBER_NOT_EXACT, 0},
      {"999999999999999", 0, FG_NUMBER_OK, 999999999999999}, {"1000000000000000", 0, FG_NUMBER_TOO_BIG, 0}, {"-999999999999999", 0, FG_NUMBER_OK, -999999999999999},
      {"999999.999999999", 9, FG_NUMBER_OK, 999999999999999}, {"1000000", 9, FG_NUMBER_TOO_BIG, 0}, {"1e300", 0, FG_NUMBER_TOO_BIG, 0}, {"-1e300", 0, FG_NUMBER_TOO_BIG, 0},
      {"1e400", 0, FG_NUMBER_TOO_BIG, 0}, {"1e400", 9, FG_NUMBER_TOO_BIG, 0}, {"5e-324", 9, FG_NUMBER_NOT_EXACT, 0}, {"0.12345678949", 9, FG_NUMBER_NOT_EXACT, 0}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    int64_t value = 0;
    if (!FG_EQ(scaled(ROWS[i].json, ROWS[i].decimals, &value), ROWS[i].got) || !FG_EQ(value, ROWS[i].value)) {
      printf("  %s\n", ROWS[i].json);
    }
  }
}

static void texts(void) {
  static const struct { const char *text; int32_t got; int64_t value; } ROWS[] = {
      {"0", FG_NUMBER_OK, 0}, {"0.08", FG_NUMBER_OK, 80000000}, {"10", FG_NUMBER_OK, 10000000000}, {"0.123456789", FG_NUMBER_OK, 123456789}, {"0.12345678900", FG_NUMBER_OK, 123456789},
      {"0.1234567891", FG_NUMBER_NOT_EXACT, 0}, {"9223372036.854775807", FG_NUMBER_OK, INT64_MAX}, {"9223372036.854775808", FG_NUMBER_TOO_BIG, 0}, {"99999999999", FG_NUMBER_TOO_BIG, 0},
      {"99999999999999999999", FG_NUMBER_TOO_BIG, 0}, {"", FG_NUMBER_BAD, 0}, {".", FG_NUMBER_BAD, 0}, {".5", FG_NUMBER_BAD, 0}, {"5.", FG_NUMBER_BAD, 0}, {"1.2.3", FG_NUMBER_BAD, 0},
      {"-1", FG_NUMBER_BAD, 0}, {"+1", FG_NUMBER_BAD, 0}, {"1e3", FG_NUMBER_BAD, 0}, {" 1", FG_NUMBER_BAD, 0}, {"1,5", FG_NUMBER_BAD, 0}, {"0x10", FG_NUMBER_BAD, 0}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    int64_t value = 0;
    if (!FG_EQ(fg_number_text(ROWS[i].text, (uint32_t)strlen(ROWS[i].text), 9, &value), ROWS[i].got) || !FG_EQ(value, ROWS[i].value)) {
      printf("  %s\n", ROWS[i].text);
    }
  }
}

/* Any decimal of 1 to 15 digits: printed, read as JSON, read as text, all the same. */
static void round_trips(void) {
  uint64_t random = 2463534242u;
  for (uint32_t i = 0; i < 200000; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint32_t digits = 1 + (uint32_t)(random >> 33) % 15, decimals = (uint32_t)(random >> 40) % 10;
    uint64_t power = 1;
    for (uint32_t k = 0; k < digits; k++) {
      power *= 10;
    }
    int64_t want = (int64_t)((random >> 3) % power), value = -1;
    char text[40], again[40];
    uint32_t len = fg_number_print(want, decimals, text);
    FG_CHECK(len == strlen(text) && len < 32);
    if (!FG_EQ(scaled(text, decimals, &value), FG_NUMBER_OK) || !FG_EQ(value, want)) {
      printf("  %s\n", text);
    }
    FG_CHECK(fg_number_text(text, len, decimals, &value) == FG_NUMBER_OK && value == want);
    cJSON *node = cJSON_Parse(text);
    FG_CHECK(fg_number_canonical(node, again) == len && strcmp(text, again) == 0);
    cJSON_Delete(node);
  }
  char text[40];
  fg_number_print(-1500, 3, text);
  FG_EQ_STR(text, "-1.5");
  fg_number_print(INT64_MIN, 0, text);
  FG_EQ_STR(text, "-9223372036854775808");
  fg_number_print(INT64_MAX, 9, text);
  FG_EQ_STR(text, "9223372036.854775807");
  fg_number_print(5, 9, text);
  FG_EQ_STR(text, "0.000000005");
}

int main(void) {
  known();
  texts();
  round_trips();
  return fg_test_end("number");
}
