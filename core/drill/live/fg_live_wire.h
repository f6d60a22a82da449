/* The client's side of the wire: a provider of the drills that is a server, reached by libcurl. */
#ifndef FG_LIVE_WIRE_H
#define FG_LIVE_WIRE_H

#include "fg_live.h"

typedef struct live_seen {              /* how well this machine kept up, and what went wrong */
  int64_t arrivals, late_us, latest_us; /* requests of users; the drill's time they were late, in sum and at most */
  char broken[256];                     /* a transfer that ended otherwise than an answer; "": none did */
} live_seen;

/* Before and after the one run of this process. 0: no libcurl, or no memory. */
int live_wire_open(const live_start *start);
void live_wire_close(live_seen *out);

#endif /* FG_LIVE_WIRE_H */
