/* Errors of the transport. The rules name what happened; the phase says what
 * may have been done by then. */
#include "fg_builtin.h"
#include "fg_classify.h"

static int sent_nothing(uint32_t phase) { return phase == FG_PHASE_CONNECT || phase == FG_PHASE_TLS; }
static int head_came(const fg_judged *j) {
  return j->e.phase == FG_PHASE_STREAM || j->e.phase == FG_PHASE_BODY || (j->e.status >= 200 && j->e.status <= 299) || j->shown;
}

static uint32_t timeout_kind(uint32_t phase) { return sent_nothing(phase) ? FG_KIND_CONNECT_TIMEOUT : FG_KIND_READ_TIMEOUT; }

static uint32_t phase_kind(uint32_t phase) {
  switch (phase) {
  case FG_PHASE_CONNECT:
    return FG_KIND_CONNECT_FAILED;
  case FG_PHASE_TLS:
    return FG_KIND_TLS_FAILED;
  case FG_PHASE_SEND:
    return FG_KIND_SEND_FAILED;
  case FG_PHASE_RESPONSE:
  case FG_PHASE_READ:
    return FG_KIND_RESET;
  case FG_PHASE_STREAM:
  case FG_PHASE_BODY:
    return FG_KIND_STREAM_CUT;
  default:
    return FG_KIND_UNKNOWN;
  }
}

/* A kind that contradicts the phase becomes the phase's own. */
static uint32_t fitted(const fg_judged *j, uint32_t kind) {
  uint32_t phase = j->e.phase;
  int cut = kind == FG_KIND_RESET || kind == FG_KIND_STREAM_CUT || kind == FG_KIND_SEND_FAILED;
  if (kind == FG_KIND_READ_TIMEOUT) {
    if (head_came(j)) {
      return FG_KIND_IDLE_TIMEOUT;
    }
    return phase == FG_PHASE_SEND ? FG_KIND_SEND_FAILED : timeout_kind(phase);
  }
  if (cut && phase != FG_PHASE_UNKNOWN) {
    return head_came(j) ? FG_KIND_STREAM_CUT : phase_kind(phase);
  }
  if (cut && head_came(j)) {
    return FG_KIND_STREAM_CUT;
  }
  return kind;
}

/* Some libraries name the phase in their words. */
static uint32_t told_phase(const fg_found *f) {
  return fg_builtin_word(f, FG_WORD_TOLD_READ)   ? FG_PHASE_READ
         : fg_builtin_word(f, FG_WORD_TOLD_SEND) ? FG_PHASE_SEND
         : fg_builtin_word(f, FG_WORD_TOLD_BODY) ? FG_PHASE_BODY
                                                 : FG_PHASE_UNKNOWN;
}

static int says(fg_str text, const char *word) {
  const uint32_t n = fg_cstr_len(word);
  uint32_t i;
  for (i = 0; i + n <= text.len; i++) {
    if (memcmp(text.ptr + i, word, n) == 0) {
      return 1;
    }
  }
  return 0;
}

/* A connection in use loses its network in the same words as a new one, unless they tell of connecting. */
static int in_use(const fg_judged *j) {
  static const char *const connecting[] = {"connect error", "connecterror", "connect e",  "connect to",        "connect:",    "connecting", "connection error",
                                           "connector",     "new conn",     "dial ", "address not avail", "assign req", "eaddrnotavail", "errno 99"};
  uint32_t i;
  if (j->f.kind != FG_KIND_NETWORK_DOWN || (j->e.flags & FG_EV_LOCAL)) {
    return 0;
  }
  for (i = 0; i < FG_ARRAY_LEN(connecting); i++) {
    if (says(j->signs.in.message, connecting[i])) {
      return 0;
    }
  }
  return 1;
}

void fg_judge_transport(fg_judged *j) {
  fg_signs *s = &j->signs;
  s->in.status = 100; /* none: see fg_builtin_*.inc */
  if (j->e.phase == FG_PHASE_UNKNOWN) {
    j->e.phase = told_phase(&j->found);
  }
  if (!fg_judge_builtin(j, FG_BUILTIN_TRANSPORT)) {
    if (fg_judge_builtin(j, FG_BUILTIN_ANSWER)) {
      return; /* an SDK's exception names the answer instead of the transport */
    }
    fg_judge_kind(j, phase_kind(j->e.phase));
  } else {
    uint32_t kind = fitted(j, j->f.kind);
    if (kind != j->f.kind) {
      fg_judge_kind(j, kind);
    }
  }
  if (j->e.phase == FG_PHASE_UNKNOWN && !head_came(j) && (in_use(j) || (j->f.owner == FG_OWNER_TRANSIENT && !(j->f.flags & FG_FAIL_NEVER_SENT)))) {
    uint32_t kind = j->f.kind; /* nobody says how far it came */
    fg_judge_kind(j, FG_KIND_UNKNOWN);
    j->f.kind = kind;
    j->f.scope = FG_SCOPE_NETWORK;
  }
  if (j->e.phase == FG_PHASE_SEND && j->f.kind == FG_KIND_SEND_FAILED) {
    j->f.scope = FG_SCOPE_NETWORK;
  }
  if (sent_nothing(j->e.phase) && j->f.commit != FG_COMMIT_NONE) {
    j->f.commit = FG_COMMIT_NONE;
    j->f.billed = FG_BILLED_NO;
    j->f.flags = (j->f.flags & ~(uint32_t)FG_FAIL_SILENT) | FG_FAIL_NEVER_SENT;
  }
}

void fg_judge_timeout(fg_judged *j) {
  fg_judge_kind(j, j->e.timeout);
  int came = j->e.visible + j->e.reasoning + j->e.tool_args_bytes > 0 || j->shown;
  if (j->e.timeout == FG_KIND_TOTAL_TIMEOUT || j->e.timeout == FG_KIND_IDLE_TIMEOUT) {
    /* Our clock ran out: cut when an answer had begun, silent when nothing came. */
    int silent = !came && j->e.lifecycle == 0 && j->e.last_byte_ms == 0 && j->e.status == 0;
    j->f.klass = silent ? FG_CLASS_SILENT : FG_CLASS_CUT;
    if (silent) {
      j->f.flags |= FG_FAIL_SILENT;
    }
  }
  if (sent_nothing(j->e.phase)) {
    j->f.commit = FG_COMMIT_NONE;
    j->f.billed = FG_BILLED_NO;
    j->f.klass = FG_CLASS_CONNECT;
    j->f.flags = (j->f.flags & ~(uint32_t)FG_FAIL_SILENT) | FG_FAIL_NEVER_SENT;
  }
}
