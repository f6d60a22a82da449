/* Wire names of every table there and back; gates of reasons. */
#include "fg_base.h"
#include "fg_test.h"

int main(void) {
  for (uint32_t t = 0; t < FG_TABLE_LOAD + 2; t++) {
    uint32_t known = 0;
    for (uint32_t v = 0; v < 300; v++) {
      const char *n = fg_name(t, v);
      if (n == NULL) {
        continue;
      }
      known++;
      FG_EQ(fg_parse(t, n, (uint32_t)strlen(n)), v);
      for (const char *p = n; *p != 0; p++) {
        int ok = (*p >= 'a' && *p <= 'z') || *p == '_' || (*p >= '0' && *p <= '9') || t == FG_TABLE_WIRE;
        if (!ok) {
          FG_CHECK(ok);
        }
      }
    }
    int exists = (t >= FG_TABLE_ACTION && t < FG_TABLE_COUNT) || t == FG_TABLE_LOAD;
    FG_CHECK(exists ? known >= 2 : known == 0);
  }
  FG_EQ_STR(fg_name(FG_TABLE_ACTION, 0), "fail_closed");
  FG_EQ_STR(fg_name(FG_TABLE_OWNER, FG_OWNER_QUOTA), "quota");
  FG_EQ_STR(fg_name(FG_TABLE_FEATURE, 3), "json_schema");
  FG_EQ_STR(fg_name(FG_TABLE_WIRE, FG_WIRE_GEMINI), "generateContent");
  FG_EQ_STR(fg_name(FG_TABLE_LOAD, FG_LOAD_LIMIT), "limit");
  FG_EQ_STR(fg_name(FG_TABLE_OWNER, 99), NULL);
  FG_EQ_STR(fg_name(9999, 0), NULL);
  FG_EQ(fg_parse(FG_TABLE_OWNER, "quotas", 6), -1);
  FG_EQ(fg_parse(FG_TABLE_OWNER, "quo", 3), -1);
  FG_EQ(fg_parse(FG_TABLE_OWNER, NULL, 0), -1);
  FG_EQ(fg_parse(0, "none", 4), -1);
  FG_EQ(fg_reason_gate(FG_REASON_NONE), FG_GATE_NONE);
  FG_EQ(fg_reason_gate(FG_REASON_RATE_LIMITED), FG_GATE_OWNER);
  FG_EQ(fg_reason_gate(FG_REASON_MAY_HAVE_RUN), FG_GATE_COMMIT);
  FG_EQ(fg_reason_gate(FG_REASON_COST_EXHAUSTED), FG_GATE_BUDGET);
  FG_EQ(fg_reason_gate(FG_REASON_NOT_APPROVED), FG_GATE_CONTRACT);
  FG_EQ(fg_reason_gate(FG_REASON_ROUTE_OPEN), FG_GATE_HEALTH);
  FG_EQ(fg_reason_gate(12345), FG_GATE_NONE);
  return fg_test_end("names");
}
