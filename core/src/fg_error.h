/* Fills an fg_error of the caller's size with a fixed text; returns the code, so that callers can write `return fg_error_set(...)`. */
#ifndef FG_ERROR_H
#define FG_ERROR_H

#include "fg_base.h"

static inline int32_t fg_error_set(fg_error *err, int32_t code, const char *message) {
  uint32_t size, len;
  fg_error e;
  if (err == NULL || err->size < 8) {
    return code;
  }
  memset(&e, 0, sizeof e);
  size = err->size < sizeof e ? err->size : (uint32_t)sizeof e;
  e.size = size;
  e.code = code;
  len = fg_min32(fg_cstr_len(message), (uint32_t)sizeof e.message - 1);
  memcpy(e.message, message, len);
  memcpy(err, &e, size);
  return code;
}

#endif /* FG_ERROR_H */
