#include "fg_drill_heap.h"

#include <stdlib.h>

static int earlier(const drill_event *a, const drill_event *b) { return a->at < b->at || (a->at == b->at && a->seq < b->seq); }

int drill_heap_push(drill_heap *h, int64_t at, uint32_t kind, uint32_t index, uint32_t serial) {
  if (h->count == h->room) {
    const uint32_t room = h->room != 0 ? h->room * 2 : 256;
    drill_event *more = realloc(h->event, room * sizeof *more);
    if (more == NULL) {
      return 0;
    }
    h->event = more;
    h->room = room;
  }
  const drill_event e = {at, h->seq++, kind, index, serial};
  uint32_t i = h->count++;
  while (i > 0 && earlier(&e, &h->event[(i - 1) / 4])) {
    h->event[i] = h->event[(i - 1) / 4];
    i = (i - 1) / 4;
  }
  h->event[i] = e;
  return 1;
}

int drill_heap_pop(drill_heap *h, drill_event *out) {
  if (h->count == 0) {
    return 0;
  }
  *out = h->event[0];
  const drill_event e = h->event[--h->count];
  uint32_t i = 0;
  for (;;) {
    const uint32_t first = i * 4 + 1, end = first + 4 < h->count ? first + 4 : h->count;
    uint32_t best = first;
    for (uint32_t k = first + 1; k < end; k++) {
      best = earlier(&h->event[k], &h->event[best]) ? k : best;
    }
    if (first >= h->count || !earlier(&h->event[best], &e)) {
      break;
    }
    h->event[i] = h->event[best];
    i = best;
  }
  h->event[i] = e;
  return 1;
}
