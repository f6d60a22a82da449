/* Names and what they stand for, for the readers of plain documents. */
#ifndef FGPY_PLAIN_H
#define FGPY_PLAIN_H

#include <string.h>

#include "fg_base.h"

typedef struct fgpy_key {
  const char *name; /* NULL: the end, and what any other name stands for */
  uint32_t len, what;
} fgpy_key;
#define FGPY_KEY(name, what) \
  { name, sizeof(name) - 1, what }

static inline uint32_t fgpy_find(const fgpy_key *keys, fg_str name) {
  while (keys->name != NULL && (keys->len != name.len ||
                                memcmp(keys->name, name.ptr, name.len) != 0)) {
    keys++;
  }
  return keys->what;
}

#endif /* FGPY_PLAIN_H */
