/* Any bytes as a card. The first byte picks the flags; what follows is the text.
 * Holds: no crash, no leak, the same bytes twice, an error that names a place, a block that passes its own check. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fg_card.h"
#include "fg_policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct counts { uint64_t open, calls, fail_at; } counts;

static void *take(void *ctx, uint64_t size) {
  counts *c = ctx;
  if (++c->calls == c->fail_at || size > (256u << 20)) {
    return NULL;
  }
  c->open++;
  return malloc((size_t)size);
}

static void give(void *ctx, void *ptr) {
  counts *c = ctx;
  c->open -= ptr != NULL;
  free(ptr);
}

#define MUST(cond)                                                                                                                     \
  do {                                                                                                                                 \
    if (!(cond)) {                                                                                                                     \
      fprintf(stderr, "broken: %s\n", #cond);                                                                                          \
      abort();                                                                                                                         \
    }                                                                                                                                  \
  } while (0)

static void judge_error(int32_t got, const fg_error *e, size_t size) {
  MUST(got == FG_ERR_SYNTAX || got == FG_ERR_RANGE || got == FG_ERR_CONTRACT || got == FG_ERR_NOMEM);
  MUST(e->code == got && memchr(e->path, 0, sizeof e->path) != NULL && memchr(e->message, 0, sizeof e->message) != NULL && e->message[0] != 0);
  if (got != FG_ERR_NOMEM) {
    MUST(e->what > FG_LOAD_NONE && e->what < FG_LOAD_COUNT && e->line > 0 && e->column > 0 && e->offset <= size);
  }
}

static void judge_policy(const fg_policy *p) {
  fg_str s;
  fg_error e = {.size = sizeof e};
  MUST(fg_policy_check(p, fg_policy_bytes(p)) == FG_OK);
  for (uint32_t what = FG_FIND_ROUTE; what <= FG_FIND_ACCOUNT; what++) {
    for (uint32_t id = 1; id <= fg_policy_count(p, what); id++) {
      MUST(fg_policy_name(p, what, id, &s) == FG_OK && fg_policy_find(p, what, s.ptr, s.len) == id);
    }
  }
  for (uint32_t i = 0; fg_policy_lint(p, i, &e) == FG_OK; i++) {
    MUST(e.line > 0 && e.message[0] != 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) {
    return 0;
  }
  uint32_t flags = data[0] & 1;
  const char *text = (const char *)data + 1;
  fg_policy *p[2] = {NULL, NULL};
  fg_error e[2] = {{.size = sizeof e[0]}, {.size = sizeof e[1]}};
  counts c = {0, 0, 0};
  fg_mem mem = {take, give, &c};
  int32_t got = fg_card_load_flags(text, size - 1, &mem, flags, &p[0], &e[0]);
  uint64_t calls = c.calls;
  MUST(c.open == (got == FG_OK ? 1 : 0) && (p[0] != NULL) == (got == FG_OK));
  MUST(fg_card_load_flags(text, size - 1, &mem, flags, &p[1], &e[1]) == got);
  if (got == FG_OK) {
    MUST(p[0]->bytes == p[1]->bytes && memcmp(p[0], p[1], (size_t)p[0]->bytes) == 0);
    judge_policy(p[0]);
  } else {
    judge_error(got, &e[0], size);
    MUST(memcmp(&e[0], &e[1], sizeof e[0]) == 0);
  }
  fg_policy_free(p[0], &mem);
  fg_policy_free(p[1], &mem);
  MUST(c.open == 0);
  if (calls > 0) { /* one allocation fails */
    fg_policy *q = NULL;
    c.calls = 0;
    c.fail_at = 1 + (data[0] >> 1) % calls;
    fg_card_load_flags(text, size - 1, &mem, flags, &q, &e[0]);
    MUST(q == NULL && c.open == 0);
  }
  return 0;
}
