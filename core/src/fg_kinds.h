/* What follows from a kind unless a rule says otherwise. */
#ifndef FG_KINDS_H
#define FG_KINDS_H

#include "fg_base.h"

typedef struct fg_kind_facts { uint8_t owner, klass, scope, billed, commit, repair, flags, zero; } fg_kind_facts;

/* kind: FG_KIND_*; out of range = FG_KIND_UNKNOWN. */
const fg_kind_facts *fg_kind_of(uint32_t kind);

#endif /* FG_KINDS_H */
