/* fg_classify over any body: values in their tables, the same twice, and never bolder than the facts. The first bytes pick status, phase,
 * provider, and how much goes to the transport's message instead. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fg_base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define require(ok) ((ok) ? (void)0 : broken(#ok))
static void broken(const char *what) {
  (void)fprintf(stderr, "violated: %s\n", what);
  abort();
}

static void judge(const fg_evidence *e, fg_failure *f) {
  memset(f, 0, sizeof *f);
  f->size = sizeof *f;
  require(fg_classify(NULL, e, f) == FG_OK);
  require(f->owner < FG_OWNER_COUNT && f->kind < FG_KIND_COUNT && f->klass < FG_CLASS_COUNT && f->scope < FG_SCOPE_COUNT);
  require(f->period < FG_PERIOD_COUNT && f->billed < FG_BILLED_COUNT && f->commit < FG_COMMIT_COUNT && f->repair < FG_REPAIR_COUNT);
  require(f->retry_after_ms == 0 || (f->flags & FG_FAIL_HAS_RETRY_AFTER));
  require(!(f->flags & FG_FAIL_TRIPS_BREAKER) || f->owner == FG_OWNER_TRANSIENT || (f->flags & FG_FAIL_OVERLOAD));
  require(!(f->flags & FG_FAIL_OVERLOAD) || (f->flags & FG_FAIL_TRIPS_BREAKER));
  require(f->commit != FG_COMMIT_NONE || f->billed != FG_BILLED_YES);
  require(!(f->flags & FG_FAIL_NEVER_SENT) || f->commit == FG_COMMIT_NONE);
  require(e->visible == 0 || f->commit == FG_COMMIT_PARTIAL);
  require(fg_rule_why(NULL, f->rule) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int32_t statuses[] = {0, 200, 200, 400, 401, 402, 403, 404, 408, 413, 422, 424, 429, 429, 429, 500, 503, 529, 302, 599, -1, 1000000};
  static const char *const providers[] = {"", "openai", "azure-openai", "anthropic", "gemini", "vertex", "bedrock", "openrouter", "dashscope", "zhipu",
                                          "minimax", "qianfan", "litellm", "workers-ai", "siliconflow", "generic"};
  if (size < 5 || size > 1 << 17) {
    return 0;
  }
  fg_evidence e;
  fg_failure a, b;
  memset(&e, 0, sizeof e);
  e.size = sizeof e;
  e.status = statuses[data[0] % FG_ARRAY_LEN(statuses)];
  e.phase = data[1] % (FG_PHASE_COUNT + 1);
  e.provider = fg_str_of(providers[data[2] % FG_ARRAY_LEN(providers)]);
  e.flags = data[3] & 15;
  e.visible = data[3] >> 7;
  e.terminal = data[3] & 64 ? data[4] % (FG_FINISH_COUNT + 1u) : 0;
  e.timeout = data[3] & 32 ? data[4] % (FG_KIND_COUNT + 1u) : 0;
  const char *p = (const char *)data + 5;
  uint32_t len = (uint32_t)size - 5;
  uint32_t split = data[3] & 16 ? len * data[4] / 256 : len;
  e.body = fg_str_make(p, split);
  e.message = fg_str_make(p + split, len - split);
  e.kind = fg_str_make(p + split, (len - split) / 4);
  judge(&e, &a);
  judge(&e, &b);
  require(memcmp(&a, &b, sizeof a) == 0);
  return 0;
}
