/* Shared by the readers of error bodies. Private to fg_signs*.c. */
#ifndef FG_SIGNS_READ_H
#define FG_SIGNS_READ_H

#include "fg_scan.h"
#include "fg_signs.h"

/* Text, normalised; signs_end_text closes one, so that phrases do not run over. */
void signs_put(fg_signs *s, const char *p, uint32_t len);
void signs_end_text(fg_signs *s);
/* An HTTP-like number. */
void signs_status(fg_signs *s, int64_t n);
/* One JSON document. FG_SCAN_*; *used may be NULL. */
int32_t signs_json(fg_signs *s, const char *p, uint32_t len, uint32_t *used);
/* Documents quoted in a normalised text. */
void signs_quoted(fg_signs *s, const char *p, uint32_t len);

#endif /* FG_SIGNS_READ_H */
