/* The keys of a configuration: where each goes, its unit and its range. One table serves the reader and the hash. */
#ifndef FG_DRILL_KEYS_H
#define FG_DRILL_KEYS_H

#include "fg_drill.h"

#define SECOND INT64_C(1000000)
#define DAY (86400 * SECOND)

/* Kinds of values; from AS_STRATEGY on each has a reader of its own. */
enum { AS_U32, AS_I64, AS_BOOL, AS_GROUP, AS_STRATEGY, AS_STRATEGIES, AS_FAULTS, AS_CARD, AS_SEED, AS_EFFECTS, AS_TARGET, AS_NAME };

typedef struct field {
  const char *key;
  uint32_t kind;
  uint32_t offset;
  int64_t unit;     /* of the stored number in one of the file's */
  int64_t min, max; /* stored */
  const struct field *group;
} field;

/* Each ends with a key NULL. */
extern const field drill_keys[], drill_fault_keys[], drill_effect_keys[];

#endif /* FG_DRILL_KEYS_H */
