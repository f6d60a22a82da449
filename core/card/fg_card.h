/* Loading with flags, for the vector runners. Users call fg_card_load (fivegates.h), which passes none. */
#ifndef FG_CARD_H
#define FG_CARD_H

#include "fivegates.h"

enum {
  FG_CARD_AUTO_FINGERPRINT = 1 /* `fingerprint: "auto"` in a contract stands for the computed one */
};

FG_API int32_t fg_card_load_flags(const char *text, uint64_t len, const fg_mem *mem, uint32_t flags, fg_policy **out, fg_error *err);

#endif /* FG_CARD_H */
