/* What is in flight: one word per process, in_flight:16 retries:16 generating:16 stuck:16. The owner adds, sums are read over all
 * processes, the reaper of a dead process stores 0. A row is changed first and counted after, so a scan's `stuck` may come after the end
 * of its attempt has been counted down: with nothing in flight the whole word is 0, and a count that came late is gone at the latest then. */
#ifndef FG_GAUGE_H
#define FG_GAUGE_H

#include "fg_atomic.h"

typedef struct fg_gauge { uint32_t in_flight, retries, generating, stuck; } fg_gauge;

fg_gauge fg_gauge_get(const fg_word *w);
void fg_gauge_add(fg_word *w, fg_gauge more);  /* each part saturates at 65,535 */
void fg_gauge_sub(fg_word *w, fg_gauge less);  /* each part stops at 0 */
fg_gauge fg_gauge_sum(const fg_word *w, uint32_t slots);

#endif /* FG_GAUGE_H */
