/* A card becomes a policy: syntax, tree, tables, block. The tree and the scratch memory end with the load; the block alone stays.
 *
 * cJSON's parser keeps its latest error in a static variable, so parses take turns under a spin lock; nothing else here is shared. */
#include "fg_card.h"

#include "fg_card_canon.h"
#include "fg_card_read.h"
#include "fg_scan.h"

static char parsing; /* the lock */

static cJSON *parse(const char *text, uint64_t len, const char **end) {
  /* A child forked in the middle of another thread's parse inherits a lock that nobody will open: after some seconds it goes on. What
   * the lock keeps apart is that static alone, which this loader never reads. */
  for (uint32_t spins = 0; __atomic_test_and_set(&parsing, __ATOMIC_ACQUIRE) && spins < UINT32_C(1) << 27; spins++) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
  cJSON *root = cJSON_ParseWithLengthOpts(text, (size_t)len, end, 0);
  __atomic_clear(&parsing, __ATOMIC_RELEASE);
  return root;
}

/* ------------------------------------------------ what cJSON would misread */

static void at_offset(fg_card *c, uint64_t offset, uint32_t what, const char *message) {
  c->code = what == FG_LOAD_SYNTAX ? FG_ERR_SYNTAX : FG_ERR_RANGE;
  c->err->what = what;
  c->err->line = c->err->column = 1;
  c->err->offset = (uint32_t)offset;
  for (uint64_t i = 0; i < offset; i++) {
    c->err->column += ((uint8_t)c->text[i] & 0xC0) != 0x80;
    if (c->text[i] == '\n') {
      c->err->line++;
      c->err->column = 1;
    }
  }
  memcpy(c->err->message, message, strlen(message) + 1);
}

/* People hand over their YAML. */
static int is_object(fg_card *c) {
  uint64_t at = 0;
  while (at < c->len && fg_is_space(c->text[at])) {
    at++;
  }
  if (at < c->len && (fg_is_alnum(c->text[at]) || c->text[at] == '#' || (c->text[at] == '-' && at + 2 < c->len && c->text[at + 1] == '-'))) {
    at_offset(c, at, FG_LOAD_SYNTAX, "a card is a JSON object here; YAML is read by the Python package, and `fivegates check CARD` writes the JSON");
    return 0;
  }
  return 1;
}

/* cJSON ends a text at \u0000. */
static int no_nul(fg_card *c) {
  for (const char *s = c->text, *end = c->text + c->len; (s = memchr(s, '\\', (size_t)(end - s))) != NULL; s += 2) {
    if (end - s >= 6 && memcmp(s, "\\u0000", 6) == 0) {
      at_offset(c, (uint64_t)(s - c->text), FG_LOAD_BAD_VALUE, "\\u0000 does not belong in a card; remove it");
      return 0;
    }
  }
  return 1;
}

/* A tree costs about 64 bytes a value, whatever its text: 4 million values are 256 MiB. */
static int no_flood(fg_card *c) {
  enum { VALUES_MAX = 4000000 };
  uint32_t commas = 0;
  for (uint64_t i = 0; i < c->len; i++) {
    commas += c->text[i] == ',';
  }
  if (commas < VALUES_MAX) {
    return 1;
  }
  at_offset(c, 0, FG_LOAD_LIMIT, "the card has over 4 million values; split it");
  return 0;
}

/* cJSON takes 63 characters of a number. */
static int no_long_number(fg_card *c, const char *end) {
  enum { NUMBER_MAX = 63 };
  const char *first = end, *last = end, *limit = c->text + c->len;
  while (first > c->text && first[-1] != 0 && strchr("0123456789+-.eE", first[-1]) != NULL) {
    first--;
  }
  while (last < limit && *last != 0 && strchr("0123456789+-.eE", *last) != NULL) {
    last++;
  }
  if (last - first <= NUMBER_MAX) {
    return 1;
  }
  at_offset(c, (uint64_t)(first - c->text), FG_LOAD_BAD_VALUE, "the number has more than 63 characters; write fewer digits");
  return 0;
}

/* ----------------------------------------------------------------- the block */

static uint32_t keep_index(fg_card *c, const fg_index *x, uint32_t *mask) {
  *mask = x->mask;
  return fg_block_array(&c->block, x->slot, (x->mask + (uint64_t)1) * sizeof *x->slot);
}

static int keep_lint(fg_card *c) {
  fg_policy_globals *g = &c->head.globals;
  if (!fg_card_where(c)) {
    return 0;
  }
  g->lint_count = c->lint_count;
  g->lint_off = fg_block_reserve(&c->block, c->lint_count * (uint64_t)sizeof(fg_policy_lint_entry));
  for (uint32_t i = 0; i < c->lint_count && !c->block.failed; i++) {
    const fg_lint *l = &c->lint[i];
    fg_policy_lint_entry e = {{l->path_off, l->path_len}, {l->message_off, l->message_len}, l->line, l->column};
    memcpy((fg_policy_lint_entry *)fg_block_at(&c->block, g->lint_off) + i, &e, sizeof e);
  }
  return 1;
}

/* SHA-256 over the card's JSON with sorted keys: its meaning, whatever its layout. */
static int keep_fingerprint(fg_card *c) {
  fg_sha256 sha;
  fg_canon out;
  char buf[4096], text[FG_FINGERPRINT_LEN + 1];
  fg_sha256_init(&sha);
  fg_canon_init(&out, &sha, buf, sizeof buf);
  if (!fg_canon_value(c, &out, c->root, 0)) {
    return 0;
  }
  fg_canon_flush(&out);
  fg_sha256_text(&sha, text);
  c->head.fingerprint = fg_block_text(&c->block, text, FG_FINGERPRINT_LEN);
  for (uint32_t i = 0; i < 8; i++) {
    c->head.fingerprint_hash = c->head.fingerprint_hash << 8 | (uint8_t)(sha.state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return 1;
}

static int compile(fg_card *c) {
  fg_policy *h = &c->head;
  h->magic = FG_POLICY_MAGIC;
  h->layout = FG_POLICY_LAYOUT;
  fg_block_reserve(&c->block, sizeof *h);
  if (!fg_card_globals(c, c->root) || !fg_card_accounts(c) || !fg_card_routes(c) || !fg_card_workflows(c) || !fg_card_contracts(c) ||
      !fg_card_classify(c) || !fg_card_lint(c) || !keep_lint(c) || !keep_fingerprint(c)) {
    return 0;
  }
  h->account_count = c->account_count;
  h->accounts_off = fg_block_array(&c->block, c->account, c->account_count * (uint64_t)sizeof *c->account);
  h->text_count = c->text_count;
  h->texts_off = fg_block_array(&c->block, c->texts, c->text_count * (uint64_t)sizeof *c->texts);
  h->regions_off = fg_block_array(&c->block, c->regions, h->region_count * sizeof *c->regions);
  h->classes_off = fg_block_array(&c->block, c->classes, h->class_count * sizeof *c->classes);
  h->account_index_off = keep_index(c, &c->account_index, &h->account_index_mask);
  h->route_index_off = keep_index(c, &c->route_index, &h->route_index_mask);
  h->workflow_index_off = keep_index(c, &c->workflow_index, &h->workflow_index_mask);
  h->pool_off = (uint32_t)sizeof *h; /* texts lie between the arrays */
  if (c->block.failed == FG_ERR_RANGE) {
    c->depth = 0;
    return FG_FAIL(c, FG_LOAD_LIMIT, "the compiled card would pass 4 GiB; split it");
  }
  return c->block.failed ? fg_card_nomem(c) : 1;
}

static fg_policy *finish(fg_card *c) {
  fg_block_reserve(&c->block, 0);
  c->head.bytes = c->block.len;
  if (!c->block.failed) {
    memcpy(c->block.ptr, &c->head, sizeof c->head);
  }
  fg_policy *p = (fg_policy *)(void *)fg_block_finish(&c->block);
  if (p == NULL) {
    fg_card_nomem(c);
  }
  return p;
}

static void drop(fg_card *c) {
  fg_block_drop(&c->block);
  void *scratch[] = {c->account, c->account_index.slot, c->route_index.slot, c->workflow_index.slot, c->provides, c->used,
                     c->workflow, c->contract,          c->lint,             c->texts,               c->sort};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(scratch); i++) {
    fg_scratch_free(c->mem, scratch[i]);
  }
}

static fg_policy *load(fg_card *c) {
  const char *end = NULL;
  fg_policy *p = NULL;
  int32_t syntax;
  if (!is_object(c)) {
    return NULL;
  }
  syntax = fg_scan_check(c->text, c->len, c->err);
  if (syntax != FG_OK) {
    c->code = syntax;
    return NULL;
  }
  if (!no_nul(c) || !no_flood(c)) {
    return NULL;
  }
  cJSON *root = parse(c->text, c->len, &end);
  if (root == NULL) {
    if (end == NULL || no_long_number(c, end)) {
      fg_card_nomem(c);
    }
    return NULL;
  }
  c->root = root;
  if (compile(c)) {
    p = finish(c);
  }
  drop(c);
  cJSON_Delete(root);
  return p;
}

/* ------------------------------------------------------------------ exported */

int32_t fg_card_load_flags(const char *text, uint64_t len, const fg_mem *mem, uint32_t flags, fg_policy **out, fg_error *err) {
  fg_error own;
  fg_card c;
  if (out == NULL) {
    return FG_ERR_ARG;
  }
  *out = NULL;
  if (text == NULL || mem == NULL || mem->alloc == NULL || mem->free == NULL) {
    return FG_ERR_ARG;
  }
  memset(&own, 0, sizeof own);
  memset(&c, 0, sizeof c);
  own.size = (uint32_t)sizeof own;
  c.text = text;
  c.len = len;
  c.mem = mem;
  c.flags = flags;
  c.err = &own;
  fg_block_init(&c.block, mem);
  *out = load(&c);
  if (err != NULL && err->size >= (uint32_t)offsetof(fg_error, path)) {
    uint32_t size = fg_min32(err->size, (uint32_t)sizeof own);
    own.code = c.code;
    own.size = err->size;
    memcpy(err, &own, size);
  }
  return c.code;
}

int32_t fg_card_load(const char *text, uint64_t len, const fg_mem *mem, fg_policy **out, fg_error *err) {
  return fg_card_load_flags(text, len, mem, 0, out, err);
}

void fg_policy_free(fg_policy *p, const fg_mem *mem) {
  if (p != NULL && mem != NULL) {
    mem->free(mem->ctx, p);
  }
}
