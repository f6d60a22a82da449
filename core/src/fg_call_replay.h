/* A call that was recorded, decided again: what its ledger tells in place of what only its host knew. No part of the library's face; the
 * Python extension is compiled with it. */
#ifndef FG_CALL_REPLAY_H
#define FG_CALL_REPLAY_H

#include "fg_base.h"

/* Hashes a ledger gives of what it may not say (its call line: tenant, affinity, stream_id). */
typedef struct fg_replay_known { uint64_t tenant, affinity, stream; } fg_replay_known;

/* fg_call_begin with those hashes as they were; known NULL: they are made of the request. */
int32_t fg_replay_begin(const fg_engine *e, fg_call *c, const fg_request *r, const fg_replay_known *known, int64_t now_ms, fg_decision *out);
/* fg_call_failure of the running attempt with a failure that was judged before. status: of HTTP, 0 none. */
int32_t fg_replay_failure(const fg_engine *e, fg_call *c, const fg_failure *f, uint32_t inner_attempts, uint32_t status, int64_t now_ms,
                          fg_decision *out);
/* fg_call_success with the verdict of the output check that was made before: FG_KIND_UNKNOWN, it may be accepted; NULL: it is made now. */
int32_t fg_replay_success(const fg_engine *e, fg_call *c, uint32_t attempt, const fg_answer *a, const uint32_t *verdict, int64_t now_ms,
                          fg_decision *out);

#endif /* FG_CALL_REPLAY_H */
