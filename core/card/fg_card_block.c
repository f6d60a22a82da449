/* Builds the policy block. Doubling growth, so a card is copied at most twice over; no pointer into the block outlives a reserve. */
#include "fg_card_block.h"

#include "fg_math.h"

enum { INTERN_FIRST = 256, BLOCK_FIRST = 1 << 14 };

void *fg_scratch(const fg_mem *mem, uint64_t bytes) {
  void *p = bytes > 0 ? mem->alloc(mem->ctx, bytes) : NULL;
  if (p != NULL) {
    memset(p, 0, bytes);
  }
  return p;
}

void fg_scratch_free(const fg_mem *mem, void *ptr) {
  if (ptr != NULL) {
    mem->free(mem->ctx, ptr);
  }
}

void fg_block_init(fg_block *b, const fg_mem *mem) {
  memset(b, 0, sizeof *b);
  b->mem = mem;
}

void fg_block_drop(fg_block *b) {
  fg_scratch_free(b->mem, b->ptr);
  fg_scratch_free(b->mem, b->interned);
  b->ptr = NULL;
  b->interned = NULL;
}

static int grow(fg_block *b, uint64_t need) {
  if (need <= b->cap) {
    return 1;
  }
  if (need > UINT32_MAX) {
    b->failed = FG_ERR_RANGE;
    return 0;
  }
  uint64_t cap = b->cap > 0 ? b->cap : BLOCK_FIRST;
  while (cap < need) {
    cap *= 2;
  }
  char *ptr = b->mem->alloc(b->mem->ctx, cap);
  if (ptr == NULL) {
    b->failed = FG_ERR_NOMEM;
    return 0;
  }
  if (b->len > 0) {
    memcpy(ptr, b->ptr, b->len);
  }
  fg_scratch_free(b->mem, b->ptr);
  b->ptr = ptr;
  b->cap = cap;
  return 1;
}

uint32_t fg_block_reserve(fg_block *b, uint64_t bytes) {
  uint64_t at = (b->len + 7) & ~(uint64_t)7;
  if (b->failed || bytes > UINT32_MAX || !grow(b, at + bytes)) {
    return 0;
  }
  memset(b->ptr + b->len, 0, at + bytes - b->len);
  b->len = at + bytes;
  return (uint32_t)at;
}

uint32_t fg_block_array(fg_block *b, const void *bytes, uint64_t len) {
  uint32_t at = fg_block_reserve(b, len);
  if (at > 0 && len > 0) {
    memcpy(b->ptr + at, bytes, len);
  }
  return at;
}

static int intern_grow(fg_block *b) {
  uint32_t slots = b->interned != NULL ? 2 * (b->interned_mask + 1) : INTERN_FIRST;
  fg_pstr *table = fg_scratch(b->mem, slots * (uint64_t)sizeof *table);
  if (table == NULL) {
    b->failed = FG_ERR_NOMEM;
    return 0;
  }
  for (uint32_t i = 0; b->interned != NULL && i <= b->interned_mask; i++) {
    fg_pstr s = b->interned[i];
    if (s.len > 0) {
      uint32_t at = (uint32_t)fg_hash64(0, b->ptr + s.off, s.len) & (slots - 1);
      while (table[at].len > 0) {
        at = (at + 1) & (slots - 1);
      }
      table[at] = s;
    }
  }
  fg_scratch_free(b->mem, b->interned);
  b->interned = table;
  b->interned_mask = slots - 1;
  return 1;
}

fg_pstr fg_block_text(fg_block *b, const char *text, uint32_t len) {
  fg_pstr none = {0, 0};
  if (len == 0 || b->failed || (2 * (uint64_t)b->interned_count >= b->interned_mask && !intern_grow(b))) {
    return none;
  }
  uint32_t at = (uint32_t)fg_hash64(0, text, len) & b->interned_mask;
  for (; b->interned[at].len > 0; at = (at + 1) & b->interned_mask) {
    if (fg_eq(b->ptr + b->interned[at].off, b->interned[at].len, text, len)) {
      return b->interned[at];
    }
  }
  if (!grow(b, b->len + len + 1)) {
    return none;
  }
  fg_pstr s = {(uint32_t)b->len, len};
  memcpy(b->ptr + s.off, text, len);
  b->ptr[s.off + len] = 0;
  b->len += len + 1;
  b->interned[at] = s;
  b->interned_count++;
  return s;
}

char *fg_block_finish(fg_block *b) {
  char *ptr = NULL;
  if (!b->failed && fg_block_reserve(b, 0) > 0) { /* the length is a multiple of 8 */
    ptr = b->mem->alloc(b->mem->ctx, b->len);
    if (ptr != NULL) {
      memcpy(ptr, b->ptr, b->len);
    } else {
      b->failed = FG_ERR_NOMEM;
    }
  }
  fg_block_drop(b);
  return ptr;
}

uint32_t fg_index_slots(uint32_t names) {
  uint32_t slots = 8;
  while (slots < 2 * names) {
    slots *= 2;
  }
  return slots;
}

int fg_index_init(fg_index *x, const fg_mem *mem, uint32_t names) {
  x->mask = fg_index_slots(names) - 1;
  x->slot = fg_scratch(mem, (x->mask + (uint64_t)1) * sizeof *x->slot);
  return x->slot != NULL;
}
