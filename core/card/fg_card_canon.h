/* Canonical text of JSON values: compact, keys sorted by bytes, numbers as shortest decimals. Fingerprints are taken over it. */
#ifndef FG_CARD_CANON_H
#define FG_CARD_CANON_H

#include "fg_card_read.h"
#include "fg_sha256.h"

typedef struct fg_canon {
  fg_sha256 *sha; /* where the text goes */
  char *buf;      /* collects for sha, or is the target itself when sha is NULL */
  uint32_t len, cap, cut; /* cut: the target was too small */
} fg_canon;

enum { FG_CANON_SORT_LISTS = 1 }; /* lists are sets of scalars: sorted by their text */

void fg_canon_init(fg_canon *o, fg_sha256 *sha, char *buf, uint32_t cap);
void fg_canon_put(fg_canon *o, const char *bytes, uint32_t len);
/* 0 after an error of the card (no memory, a number that has no exact decimal). */
int fg_canon_value(fg_card *c, fg_canon *o, const cJSON *node, uint32_t flags);
/* Hands what is collected to sha. */
void fg_canon_flush(fg_canon *o);

#endif /* FG_CARD_CANON_H */
