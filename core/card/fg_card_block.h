/* The block under construction: one growing run of bytes whose offsets are final from the first byte on, with an intern table
 * for its texts. A failed allocation is sticky: later calls do nothing and `failed` says so. */
#ifndef FG_CARD_BLOCK_H
#define FG_CARD_BLOCK_H

#include "fg_base.h"
#include "fg_policy.h"

typedef struct fg_block {
  const fg_mem *mem;
  char *ptr;
  uint64_t len, cap;
  fg_pstr *interned; /* open addressing; len 0 = free */
  uint32_t interned_mask, interned_count;
  int32_t failed; /* FG_ERR_NOMEM, or FG_ERR_RANGE: over 4 GiB */
} fg_block;

void fg_block_init(fg_block *b, const fg_mem *mem);
void fg_block_drop(fg_block *b); /* frees everything, the bytes included */
/* Zeroed, 8-byte aligned; 0 on failure (the header is at 0, so no array is). */
uint32_t fg_block_reserve(fg_block *b, uint64_t bytes);
/* A copy of a whole array. */
uint32_t fg_block_array(fg_block *b, const void *bytes, uint64_t len);
/* The text in the block, NUL-terminated, equal texts once. */
fg_pstr fg_block_text(fg_block *b, const char *text, uint32_t len);
static inline void *fg_block_at(const fg_block *b, uint32_t off) { return b->ptr + off; }
/* Gives the bytes away, cut to their length; the table is freed. NULL on failure. */
char *fg_block_finish(fg_block *b);

/* Memory of a load that ends with it: allocated and freed through the same fg_mem. Zeroed; NULL on failure or for 0 bytes. */
void *fg_scratch(const fg_mem *mem, uint64_t bytes);
void fg_scratch_free(const fg_mem *mem, void *ptr);

/* Names to ids, as it stays in the block. */
typedef struct fg_index {
  fg_policy_slot *slot;
  uint32_t mask;
} fg_index;
int fg_index_init(fg_index *x, const fg_mem *mem, uint32_t names);
/* Slots for so many names; a power of two. */
uint32_t fg_index_slots(uint32_t names);

#endif /* FG_CARD_BLOCK_H */
