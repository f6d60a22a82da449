/* Commit facts. An operation is a word: hash of its id, 56 bits; state, 4 bits; idempotent, 1 bit. */
#include "fg_commit.h"

#include "fg_math.h"

enum { OP_STATE_SHIFT = 56, OP_IDEMPOTENT_SHIFT = 60, OP_USED_SHIFT = 61 };
#define OP_HASH_MASK ((UINT64_C(1) << OP_STATE_SHIFT) - 1)

static uint32_t op_state(uint64_t op) {
  return (uint32_t)(op >> OP_STATE_SHIFT) & 15u;
}
static int op_idempotent(uint64_t op) {
  return (int)((op >> OP_IDEMPOTENT_SHIFT) & 1u);
}
static uint64_t op_make(uint64_t hash, uint32_t state, uint32_t idempotent) {
  return (hash & OP_HASH_MASK) | (uint64_t)state << OP_STATE_SHIFT | (uint64_t)(idempotent != 0) << OP_IDEMPOTENT_SHIFT |
         UINT64_C(1) << OP_USED_SHIFT;
}
static uint64_t op_hash(const char *op, uint32_t len) {
  return fg_hash64(FG_OPS_MAX, op, len) & OP_HASH_MASK;
}

static uint32_t effect_of(uint64_t op) {
  if (op_idempotent(op)) {
    return FG_EFFECT_NONE;
  }
  switch (op_state(op)) {
  case FG_TOOL_STARTED:
    return FG_EFFECT_UNKNOWN;
  case FG_TOOL_COMMITTED:
  case FG_TOOL_ACKNOWLEDGED:
    return FG_EFFECT_COMMITTED;
  default:
    return FG_EFFECT_NONE;
  }
}

/* The worst of the step's operations. More of them than fit: unknown, for the whole step. */
static void weigh(fg_call_state *s) {
  uint32_t i, worst = s->op_overflow ? FG_EFFECT_UNKNOWN : FG_EFFECT_NONE;
  for (i = 0; i < s->op_count; i++) {
    worst = fg_max32(worst, effect_of(s->op[i]));
  }
  s->effect = (uint8_t)worst;
}

void fg_commit_billing(fg_call_state *s, uint32_t billing) {
  if (billing > s->billing) {
    s->billing = (uint8_t)billing;
  }
}

void fg_commit_shown(fg_call_state *s, uint32_t shown) {
  if (shown == FG_SHOWN_VISIBLE && s->delivery == FG_DELIVERY_WHOLE) {
    return; /* held back: nothing is shown until it is accepted */
  }
  if (shown > s->shown) {
    s->shown = (uint8_t)shown;
  }
}

void fg_commit_proved_unbilled(fg_call_state *s) {
  if (s->billing < FG_BILLING_CERTAIN) {
    s->billing = FG_BILLING_NONE;
  }
}

void fg_commit_attempt(fg_call_state *s, uint32_t keep_shown) {
  s->billing = FG_BILLING_NONE;
  if (!keep_shown) {
    s->shown = FG_SHOWN_NOTHING;
  }
}

void fg_commit_tool(fg_call_state *s, const char *op, uint32_t len, uint32_t state, uint32_t idempotent) {
  const uint64_t hash = op_hash(op, len);
  uint32_t i;
  for (i = 0; i < s->op_count; i++) {
    if ((s->op[i] & OP_HASH_MASK) == hash) {
      const uint32_t old = op_state(s->op[i]);
      /* What was committed cannot be declared failed afterwards: that takes a look-up (fg_commit_resolved). */
      const int back = state < old || (state == FG_TOOL_FAILED && old >= FG_TOOL_COMMITTED) || old == FG_TOOL_FAILED;
      if (!back || (old == FG_TOOL_FAILED && state != FG_TOOL_REQUESTED)) {
        /* Declared idempotent before it starts, or never: afterwards it would be a smaller report. */
        const uint32_t declared = old == FG_TOOL_REQUESTED ? idempotent : 0;
        s->op[i] = op_make(hash, state, (uint32_t)op_idempotent(s->op[i]) | declared);
      }
      weigh(s);
      return;
    }
  }
  if (s->op_count == FG_OPS_MAX) {
    s->op_overflow = 1;
  } else {
    s->op[s->op_count++] = op_make(hash, state, idempotent);
  }
  weigh(s);
}

int fg_commit_resolved(fg_call_state *s, const char *op, uint32_t len, uint32_t effect) {
  const uint64_t hash = op_hash(op, len);
  uint32_t i;
  for (i = 0; i < s->op_count; i++) {
    if ((s->op[i] & OP_HASH_MASK) == hash) {
      s->op[i] = op_make(hash, effect == FG_EFFECT_COMMITTED ? FG_TOOL_ACKNOWLEDGED : FG_TOOL_FAILED, (uint32_t)op_idempotent(s->op[i]));
      weigh(s);
      return 1;
    }
  }
  return 0;
}

void fg_commit_step(fg_call_state *s) {
  uint32_t i, kept = 0;
  for (i = 0; i < s->op_count; i++) {
    const uint32_t effect = effect_of(s->op[i]);
    if (effect == FG_EFFECT_COMMITTED) {
      s->prior_effect = 1;
    } else if (effect == FG_EFFECT_UNKNOWN) {
      s->op[kept++] = s->op[i];
    }
  }
  s->op_count = (uint8_t)kept;
  s->shown = FG_SHOWN_NOTHING;
  s->billing = FG_BILLING_NONE;
  weigh(s);
}

uint32_t fg_commit_reuse(const fg_call_state *s) {
  uint32_t i, bits = 0;
  for (i = 0; i < s->op_count; i++) {
    if (op_idempotent(s->op[i])) {
      bits |= UINT32_C(1) << i;
    }
  }
  return bits;
}
