/* Simulated time: the next event is now. A live drill has another. */
#include "fg_drill_world.h"

int drill_next_event(world *w, drill_event *out) { return drill_heap_pop(&w->heap, out); }
