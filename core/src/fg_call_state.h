/* What a call remembers: the inside of fg_call, at most 1 KiB, without a pointer, so that memcpy saves and resumes it.
 *
 * Times are the region's t (ms since its base); *_at are ms since the call began. Routes are indices into the workflow's
 * stand-ins (0 the primary). Only the current step's facts are kept, and that something was committed before. */
#ifndef FG_CALL_STATE_H
#define FG_CALL_STATE_H

#include "fg_health.h"
#include "fg_policy.h"

enum { FG_CALL_MAGIC = 0x4c434746, FG_LATE_MAX = 4, FG_NO_ROUTE = 255, FG_CALL_STEP_ATTEMPTS = 256 }; /* "FGCL" */

enum { /* state */
  FG_CALL_NEW = 0,
  FG_CALL_DECIDED = 1,  /* a send or a hold was decided: begin_attempt is next */
  FG_CALL_RUNNING = 2,  /* an attempt is in flight */
  FG_CALL_ANSWERED = 3, /* accepted; another step may follow */
  FG_CALL_GIVEN = 4,    /* queue, cached or preset: over, unless the host says it is unable */
  FG_CALL_ENDED = 5
};

enum { /* fg_attempt.flags */
  FG_AT_SENT = 1,
  FG_AT_ACCEPTED = 2,    /* a 2xx head, or any byte of an answer */
  FG_AT_TOKEN = 4,       /* content, reasoning or tool arguments: the first token is there */
  FG_AT_REASONED = 8,
  FG_AT_TOOL_OPEN = 16,  /* tool arguments arrived, no end yet */
  FG_AT_USAGE = 32,      /* final usage: the money is settled */
  FG_AT_RETRY = 64,      /* a same-route retry: counts in the in-flight cap */
  FG_AT_VISIBLE = 128,   /* this attempt showed content to the user */
  FG_AT_DEGRADED = 256   /* a ladder step's attempt */
};

enum { /* told: what the latest decision answers; wire names in fg_ledger.c */
  FG_TOLD_BEGIN = 0,
  FG_TOLD_BEGIN_ATTEMPT,
  FG_TOLD_FAILURE,
  FG_TOLD_SUCCESS,
  FG_TOLD_DEADLINE,
  FG_TOLD_UNABLE,
  FG_TOLD_STEP,
  FG_TOLD_CANCEL,
  FG_TOLD_RESOLVED,
  FG_TOLD_COUNT
};

typedef struct fg_attempt {
  fg_ticket ticket;
  int64_t hold_nusd;
  uint32_t began_at, last_byte_at, last_progress_at; /* since the call began */
  uint32_t first_token_ms, idle_ms, progress_ms, total_ms, stall_ms; /* the clocks, from began_at or the last byte or progress */
  uint32_t visible, reasoning, tool_bytes, output_tokens; /* counts seen */
  uint32_t text_at, text_tokens, text_ms; /* latest text, since the call began, 0 none or interrupted; text behind the first piece, and the time it took */
  uint32_t hold_tokens;
  uint16_t flags, stamp;  /* stamp: the money day it was held in */
  uint16_t paid_milli;    /* paid for this send by the bucket of paid_route; given back when it never left */
  uint16_t number;        /* 0: none */
  uint8_t paid_route, route;
  uint8_t billing, finish;
} fg_attempt;

typedef struct fg_late { /* an ended attempt whose money is still held */
  int64_t hold_nusd;
  uint32_t hold_tokens;
  uint16_t stamp, number;
} fg_late;

typedef struct fg_kept { /* the latest decision, packed; fg_kept.c is its only reader and writer */
  int64_t cost_left_nusd;
  uint32_t wait_ms, wake_ms, attempts_left, elapsed_left_ms, tokens_left, max_tokens, compact_tokens, max_age_s, reuse_ops, hint_retry_after_ms;
  uint32_t connect_ms, first_token_ms, idle_ms, progress_ms, total_ms;
  uint16_t text, hint_status, attempt, cancel;
  uint8_t action, route, reason, detail, gate, owner, kind, step, ladder_step, resume_from, lookup, change, repair, alert, flags;
  uint8_t rejected_count, rejected_why[FG_ROUTES_MAX], rejected_route[FG_ROUTES_MAX];
} fg_kept;

typedef struct fg_call_state {
  uint32_t magic;
  uint8_t state, stage;              /* FG_CALL_*; FG_STAGE_* the latest decision was made at */
  uint16_t workflow;                 /* index */
  uint64_t policy_hash, region_hash; /* the engine it began with */
  uint64_t stream;                   /* its own random stream: hash(seed, call id) */
  int64_t began_t, last_t;           /* t of begin; latest t seen */
  uint64_t tenant_hash, affinity;    /* affinity: the key stand-ins were ordered by */
  uint32_t step_at;                  /* when the current step began */
  uint32_t prompt_tokens, max_output_tokens, request_bytes, max_wait_ms;
  uint16_t features, unable;
  uint8_t stream_mode, delivery, server_state, id_len;
  char id[FG_CALL_ID_MAX];
  uint16_t region, data_class, account, language; /* 0 none, 1 + index, 65535 given but not in the card; language: two letters */
  /* budgets */
  uint16_t attempts_used, resends, steps, draws;
  uint32_t held_for_ms, hold_from, prior_tokens; /* time spent holding in this step; 1 + since when it holds now, 0 = it does not */
  uint16_t paid_milli, gone;         /* the failed route's bucket has paid so much for the send that was decided; 1: the caller left */
  int64_t spent_nusd, base_nusd, first_nusd;  /* held or settled; the primary's own estimates; of this step */
  uint32_t spent_tokens, base_tokens, first_tokens;
  /* what was decided last, and what may be sent */
  uint32_t not_before_at, backoff_due_at; /* earliest begin_attempt; when the drawn wait after the failure is over */
  uint8_t send_route, send_action, send_rung, failed_route;
  uint8_t shown, effect, prior_effect, billing; /* commit facts of the step; billing of the last attempt */
  uint16_t attempt_count;            /* attempts permitted so far: the latest one's number */
  uint8_t op_count, op_overflow, ladder_spent, counted, degraded, alerts, empty_end; /* counted: 1 + FG_WF_* this call stands in */
  uint32_t failed_elapsed_ms;
  uint16_t inner, failed_status;     /* requests inner layers made beyond the attempts permitted here; HTTP status of the last failure, 0 none */
  uint32_t clocks_at, stall_ms;      /* the kept decision's clocks are those of an attempt that begins then */
  struct { uint8_t owner, kind, klass, scope, period, billed, commit, repair; uint16_t flags, zero; uint32_t retry_after_ms, rule; } failure;
  /* routes */
  uint32_t retries[FG_ROUTES_MAX];   /* 4 bits a class, and 4 for overload */
  uint8_t barred[FG_ROUTES_MAX], fit_change[FG_ROUTES_MAX], sends[FG_ROUTES_MAX], order[FG_ROUTES_MAX], seat[FG_ROUTES_MAX]; /* seat: FG_SEAT_* */
  uint8_t told, ended;               /* FG_TOLD_* of the latest operation; 1: it ended an attempt */
  fg_attempt live;
  fg_late late[FG_LATE_MAX];
  uint8_t late_route[FG_LATE_MAX];
  fg_kept kept;
  uint64_t op[FG_OPS_MAX];           /* hash:56 state:4 idempotent:1 */
} fg_call_state;
_Static_assert(sizeof(fg_call_state) <= sizeof(fg_call), "a call's state must fit in fg_call");

enum { FG_SEAT_OUT = 1, FG_SEAT_WAITED = 2, FG_SEAT_LARGER = 4, FG_SEAT_LOCAL = 16, FG_SEAT_LOCAL_MAX = 240 }; /* its answer was rejected; this call waited for its
  limit; declared limits hold the request; from FG_SEAT_LOCAL up: how many retries there followed a refusal of our own */

/* Is this attempt the one in flight? 0 means the latest. */
static inline int fg_is_live(const fg_call_state *s, uint32_t attempt) {
  return s->state == FG_CALL_RUNNING && (attempt == 0 || attempt == s->live.number);
}

static inline fg_call_state *fg_state(fg_call *c) { return (fg_call_state *)(void *)c->word; }
static inline const fg_call_state *fg_state_const(const fg_call *c) { return (const fg_call_state *)(const void *)c->word; }

#endif /* FG_CALL_STATE_H */
