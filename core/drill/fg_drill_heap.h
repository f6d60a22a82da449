/* What happens when: events by time, and by the order they were planned in where the times are equal. */
#ifndef FG_DRILL_HEAP_H
#define FG_DRILL_HEAP_H

#include <stdint.h>

typedef struct drill_event {
  int64_t at; /* microseconds */
  uint64_t seq;
  uint32_t kind, index, serial; /* serial: of the thing it is about; another one means the event is void */
} drill_event;

typedef struct drill_heap {
  drill_event *event;
  uint32_t count, room;
  uint64_t seq;
} drill_heap;

/* 1; 0: no memory. */
int drill_heap_push(drill_heap *h, int64_t at, uint32_t kind, uint32_t index, uint32_t serial);
/* 1 and the earliest event; 0: none is left. */
int drill_heap_pop(drill_heap *h, drill_event *out);

#endif /* FG_DRILL_HEAP_H */
