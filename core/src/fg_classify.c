/* fg_classify: evidence to failure. Order: the caller left; refused on this
 * side; one of our clocks; an error inside what came; the transport; the
 * status; an answer that is none. Then the card's rules, then the hints. */
#include "fg_classify.h"
#include "fg_builtin.h"
#include "fg_kinds.h"
#include "fg_policy.h"

enum { RULE_BUILTIN = 0x10000 };
enum { ADVICE = FG_FAIL_HAS_RETRY_AFTER | FG_FAIL_SHOULD_RETRY | FG_FAIL_MUST_NOT_RETRY }; /* what the server said, apart from what went wrong */

void fg_judge_kind(fg_judged *j, uint32_t kind) {
  const fg_kind_facts *k = fg_kind_of(kind);
  fg_failure *f = &j->f;
  f->kind = kind;
  f->owner = k->owner;
  f->klass = k->klass;
  f->scope = k->scope;
  f->billed = k->billed;
  f->commit = k->commit;
  f->repair = k->repair;
  f->flags = k->flags;
}

static void set_flag(fg_failure *f, uint32_t flag, uint32_t set) {
  if (set != 0) {
    f->flags = set == 2 ? f->flags | flag : f->flags & ~flag;
  }
}

/* An owner without a kind: the flags of the old owner do not fit the new one. */
static void new_owner(fg_failure *f, uint32_t owner) {
  if (owner == f->owner) {
    return;
  }
  f->owner = owner;
  f->klass = owner == FG_OWNER_RATE ? (uint32_t)FG_CLASS_RATE : owner == FG_OWNER_TRANSIENT ? (uint32_t)FG_CLASS_SERVER : (uint32_t)FG_CLASS_OTHER;
  if (owner != FG_OWNER_TRANSIENT) {
    f->flags &= ~(uint32_t)(FG_FAIL_OVERLOAD | FG_FAIL_TRIPS_BREAKER);
  }
  if (owner == FG_OWNER_LOCAL) { /* our own refusal: nothing reached the provider, unless the phase says otherwise */
    f->klass = FG_CLASS_CONNECT;
    f->billed = FG_BILLED_NO;
    f->commit = FG_COMMIT_NONE;
    f->flags = (f->flags & ~(uint32_t)FG_FAIL_SILENT) | FG_FAIL_NEVER_SENT | FG_FAIL_LOCAL_FAULT;
  }
}

/* A rule's `then`. */
static void apply_rule(fg_judged *j, const fg_rule *r) {
  fg_failure *f = &j->f;
  if (r->set_kind != 0) {
    fg_judge_kind(j, r->set_kind - 1u);
  }
  if (r->set_owner != 0) {
    uint32_t flags = f->flags;
    new_owner(f, r->set_owner - 1u);
    f->flags = r->set_kind != 0 ? flags : f->flags; /* a built-in rule that says both means both */
  }
  f->klass = r->set_class != 0 ? r->set_class - 1u : f->klass;
  f->scope = r->set_scope != 0 ? r->set_scope - 1u : f->scope;
  f->period = r->set_period != 0 ? r->set_period - 1u : f->period;
  f->billed = r->set_billed != 0 ? r->set_billed - 1u : f->billed;
  f->commit = r->set_commit != 0 ? r->set_commit - 1u : f->commit;
  f->repair = r->set_repair != 0 ? r->set_repair - 1u : f->repair;
  set_flag(f, FG_FAIL_OVERLOAD, r->set_overload);
  set_flag(f, FG_FAIL_TRIPS_BREAKER, r->set_trips_breaker);
  set_flag(f, FG_FAIL_SHOULD_RETRY, r->set_should_retry);
  set_flag(f, FG_FAIL_MUST_NOT_RETRY, r->set_should_retry == 1 ? 2 : r->set_should_retry == 2 ? 1 : 0);
  if (r->has_retry_after) {
    f->retry_after_ms = r->retry_after_ms;
    f->flags |= FG_FAIL_HAS_RETRY_AFTER;
  }
}

int fg_judge_builtin(fg_judged *j, uint32_t part) {
  const fg_rule *r = NULL;
  int32_t n = fg_builtin_match(part, &j->signs.in, &j->found, &r);
  if (n < 0) {
    return 0;
  }
  apply_rule(j, r);
  j->f.rule = (uint32_t)(RULE_BUILTIN + n + 1);
  j->ruled = 1;
  return 1;
}

/* --------------------------------------------------------------- signs */

static void add_type(fg_signs *s, fg_str v) { /* "ns#ThrottlingException:http://…" -> ThrottlingException */
  uint32_t from = 0, len = v.len;
  for (uint32_t i = 0; i < v.len; i++) {
    if (v.ptr[i] == '#') {
      from = i + 1;
    } else if (v.ptr[i] == ':' && i > from) {
      len = i;
      break;
    }
  }
  fg_signs_name(s, v.ptr + from, len - from, FG_NAME_TYPE);
}

static void read_headers(fg_judged *j) {
  static const char *const types[] = {"x-amzn-errortype", ":exception-type", "x-amzn-error-type", "x-vercel-error", "x-ms-error-code", "x-error-code"};
  for (uint32_t i = 0; i < FG_ARRAY_LEN(types) && j->e.header_count > 0; i++) {
    const fg_str *v = fg_header_find(j->e.headers, j->e.header_count, types[i]);
    if (v != NULL) {
      add_type(&j->signs, *v);
    }
  }
}

static int starts_with(fg_str s, const char *w) {
  uint32_t n = fg_cstr_len(w);
  return s.len >= n && memcmp(s.ptr, w, n) == 0;
}

static int is_event_stream(fg_str b) {
  b = fg_trim(b);
  return starts_with(b, "data:") || starts_with(b, "event:") || starts_with(b, ": ") || starts_with(b, ":\n") || starts_with(b, "id:") ||
         starts_with(b, "retry:");
}

static void decimal_name(fg_signs *s, int32_t code) {
  char b[12];
  uint32_t n = 0;
  uint32_t v = code < 0 ? 0u - (uint32_t)code : (uint32_t)code;
  do {
    b[sizeof b - 1 - n++] = (char)('0' + v % 10);
    v /= 10;
  } while (v > 0);
  fg_signs_name(s, b + sizeof b - n, n, FG_NAME_CODE);
}

static int has_transport(const fg_evidence *e) { return e->lib.len + e->kind.len + e->message.len > 0 || e->code != 0; }

/* The word in "An error occurred (ThrottlingException) when calling …" of botocore. */
static void parenthesised(fg_signs *s, fg_str m) {
  for (uint32_t i = 0; i < m.len; i++) {
    if (m.ptr[i] != '(') {
      continue;
    }
    uint32_t k = i + 1;
    while (k < m.len && fg_is_alnum(m.ptr[k])) {
      k++;
    }
    if (k < m.len && m.ptr[k] == ')' && k > i + 4) {
      fg_signs_name(s, m.ptr + i + 1, k - i - 1, FG_NAME_OTHER);
    }
    return;
  }
}

static void read_transport(fg_judged *j) {
  fg_signs *s = &j->signs;
  fg_signs_name(s, j->e.kind.ptr, fg_min32(j->e.kind.len, 96), FG_NAME_OTHER);
  if (j->e.code != 0) {
    decimal_name(s, j->e.code);
  }
  parenthesised(s, j->e.message);
  fg_signs_text(s, j->e.kind.ptr, fg_min32(j->e.kind.len, 256));
  fg_str m = j->e.message;
  uint32_t from = s->text_len;
  fg_signs_text(s, m.ptr, fg_min32(m.len, 1024));
  fg_signs_leading_status(s, m);
  fg_signs_quoted(s, from);
}

static void look_at_body(fg_judged *j) {
  fg_sse scan;
  int framed = is_event_stream(j->e.body);
  int answer = j->e.status == 0 || (j->e.status >= 200 && j->e.status <= 299);
  if (j->e.body.len > 0 && (framed || answer)) {
    fg_sse_init(&scan, FG_WIRE_AUTO, 0);
    (void)fg_sse_feed(&scan, j->e.body.ptr, j->e.body.len);
    fg_sse_close(&scan);
    fg_sse_look(&scan, &j->look);
    j->shown |= j->look.visible > 0;
    if (j->look.error && j->look.is_lines) {
      fg_signs_body(&j->signs, j->look.body);
    } else if (!framed && !(j->look.is_json && j->look.events > 1)) {
      fg_signs_body(&j->signs, j->e.body);
    } else if (j->look.error) {
      fg_signs_body(&j->signs, j->look.body);
    }
    /* look's texts point into scan, which ends here */
    j->look.body = fg_str_make(NULL, 0);
    if (j->look.reason.len > 0) {
      uint32_t n = fg_min32(j->look.reason.len, (uint32_t)sizeof j->reason);
      memcpy(j->reason, j->look.reason.ptr, n);
      j->look.reason = fg_str_make(j->reason, n);
    }
    return;
  }
  fg_signs_body(&j->signs, j->e.body);
}

/* --------------------------------------------------------------- hints */

static void quota_by_wait(fg_judged *j, int long_wait, uint32_t period) {
  fg_failure *f = &j->f;
  if (f->owner != FG_OWNER_RATE || (f->flags & FG_FAIL_OVERLOAD) || !(long_wait || (period != 0 && !j->hint.explicit_hint))) {
    return;
  }
  uint32_t scope = f->scope, flags = f->flags & ADVICE;
  fg_judge_kind(j, FG_KIND_QUOTA_EXHAUSTED);
  f->scope = scope;
  f->flags |= flags;
  f->period = period != 0 ? period : (uint32_t)FG_PERIOD_DAY;
}

static void hints(fg_judged *j) {
  fg_hint_heads h;
  uint64_t ms = 0;
  fg_hint *o = &j->hint;
  fg_hint_headers(j->e.headers, j->e.header_count, j->e.unix_ms, &h);
  if (h.has_millis) {
    fg_hint_longer(o, h.millis);
  }
  if (h.has_seconds) {
    fg_hint_longer(o, h.seconds);
  }
  if (j->signs.has_wait) {
    fg_hint_longer(o, j->signs.wait_ms);
  }
  if (fg_hint_prose(j->signs.in.message, &ms)) {
    fg_hint_longer(o, ms);
  }
  if (!o->has && h.has_reset) {
    o->wait_ms = h.reset;
    o->has = 1;
  }
  if (!o->has && j->signs.has_reset && fg_hint_reset(fg_str_make(j->signs.reset, j->signs.reset_len), h.now_ms, &ms)) {
    o->wait_ms = ms;
    o->has = 1;
  }
  fg_failure *f = &j->f;
  if (o->has && !(f->flags & FG_FAIL_HAS_RETRY_AFTER)) {
    f->retry_after_ms = fg_sat32(o->wait_ms);
    f->flags |= FG_FAIL_HAS_RETRY_AFTER;
  }
  if (h.no_retry) {
    f->flags |= FG_FAIL_MUST_NOT_RETRY;
  }
  /* A rate limit that asks for most of a day is a daily quota (Azure says 86400); more than a week is nonsense, not a period. */
  const uint64_t hour = 3600000;
  int long_wait = o->explicit_hint && o->wait_ms >= 12 * hour && o->wait_ms <= 168 * hour;
  if (f->rule == 0 || f->rule > RULE_BUILTIN) {
    quota_by_wait(j, long_wait, h.period);
  }
}

static void should_retry(fg_judged *j) {
  const fg_str *v = j->e.header_count > 0 ? fg_header_find(j->e.headers, j->e.header_count, "x-should-retry") : NULL;
  if (v == NULL) {
    return;
  }
  fg_str t = fg_trim(*v);
  fg_failure *f = &j->f;
  if (FG_ISI(t, "false")) {
    f->flags |= FG_FAIL_MUST_NOT_RETRY;
  } else if (FG_ISI(t, "true")) {
    f->flags |= FG_FAIL_SHOULD_RETRY;
    /* On a status without a known code it reads as transient; it is advice, so nobody's breaker hears of it. */
    if (!j->ruled && j->signs.in.name_count == 0 && (f->owner == FG_OWNER_UNKNOWN || f->owner == FG_OWNER_REQUEST)) {
      uint32_t keep = f->flags;
      fg_judge_kind(j, FG_KIND_SERVER_ERROR);
      f->klass = FG_CLASS_OTHER; /* once, because the server asked: not the retries of a server error */
      f->flags = keep;
    }
  }
}

/* ---------------------------------------------------------------- main */

/* The client library refused its own arguments: the same call would be refused again. */
static int wrong_call(fg_str kind) {
  return FG_ISI(kind, "ValueError") || FG_ISI(kind, "TypeError") || FG_ISI(kind, "AssertionError") || FG_ISI(kind, "ValidationError") ||
         FG_ISI(kind, "NotImplementedError");
}

/* A client's exception that tells of an error answer: "429 Client Error: …". A proxy's status is not the provider's. */
static int told_status(const fg_judged *j) {
  const fg_signs *s = &j->signs;
  return (s->status != 0 || s->inner_status != 0) && j->e.phase != FG_PHASE_CONNECT && j->e.phase != FG_PHASE_TLS &&
         !fg_builtin_word(&j->found, FG_WORD_PROXY);
}

static void judge(fg_judged *j) {
  const fg_evidence *e = &j->e;
  int answered = e->status >= 300;
  if (e->flags & FG_EV_CLIENT_GONE) {
    fg_judge_kind(j, FG_KIND_CLIENT_GONE);
    return;
  }
  if (e->timeout >= FG_KIND_CONNECT_TIMEOUT && e->timeout <= FG_KIND_TOTAL_TIMEOUT && !answered && !j->look.error) {
    fg_judge_timeout(j);
    return;
  }
  if (e->flags & FG_EV_LOCAL) {
    if (!has_transport(e) || !fg_judge_builtin(j, FG_BUILTIN_TRANSPORT) || j->f.owner != FG_OWNER_LOCAL) {
      const int config = j->f.kind == FG_KIND_LOCAL_CONFIG || wrong_call(e->kind);
      fg_judge_kind(j, config ? FG_KIND_LOCAL_CONFIG : FG_KIND_ADMISSION_REFUSED);
      j->f.owner = FG_OWNER_LOCAL;
      j->f.scope = config ? (uint32_t)FG_SCOPE_REQUEST : j->f.scope;
    }
    return;
  }
  if (answered) {
    fg_judge_status(j, e->status);
    return;
  }
  if (j->look.error && !(e->status == 0 && j->look.is_json && !j->look.visible && j->signs.status == 0 && j->signs.in.name_count == 0)) {
    fg_judge_answer(j);
    return;
  }
  if (has_transport(e)) {
    if (e->status == 0 && told_status(j)) {
      fg_judge_status(j, 0);
    } else {
      fg_judge_transport(j);
    }
    return;
  }
  if (e->status >= 200) {
    fg_judge_answer(j);
    return;
  }
  fg_judge_status(j, e->status);
}

/* "Never sent" is no proof where the phase says that sending had begun: the same words come from a connection that was in use. */
static void never_sent(fg_judged *j) {
  fg_failure *f = &j->f;
  const int begun = j->e.phase >= FG_PHASE_SEND && j->e.status < 400 && !j->look.error;
  if (!begun || !(f->flags & FG_FAIL_NEVER_SENT) || f->kind == FG_KIND_REFUSED_STREAM) {
    return;
  }
  f->flags &= ~(uint32_t)FG_FAIL_NEVER_SENT;
  f->billed = f->billed == FG_BILLED_NO ? (uint32_t)FG_BILLED_MAYBE : f->billed;
  f->commit = f->commit == FG_COMMIT_NONE ? (uint32_t)FG_COMMIT_UNKNOWN : f->commit;
  if (f->klass == FG_CLASS_CONNECT) {
    const int head = j->e.phase == FG_PHASE_STREAM || j->e.phase == FG_PHASE_BODY || j->e.status >= 200 || j->shown;
    f->klass = head ? FG_CLASS_CUT : FG_CLASS_SILENT;
    f->flags |= head ? 0 : (uint32_t)FG_FAIL_SILENT;
  }
}

/* What the phase and the progress prove, whatever the rule says. */
static void facts(fg_judged *j) {
  fg_failure *f = &j->f;
  never_sent(j);
  if (j->shown && f->commit != FG_COMMIT_PARTIAL) {
    f->commit = FG_COMMIT_PARTIAL;
    f->billed = f->billed == FG_BILLED_NO ? (uint32_t)FG_BILLED_MAYBE : f->billed;
    f->flags &= ~(uint32_t)FG_FAIL_NEVER_SENT;
  }
  if ((j->e.flags & FG_EV_CLIENT_GONE) && !j->shown && (j->e.phase == FG_PHASE_CONNECT || j->e.phase == FG_PHASE_TLS)) {
    f->commit = FG_COMMIT_NONE;
    f->billed = FG_BILLED_NO;
  }
}

static void card_rules(fg_judged *j, const fg_policy *p) {
  uint32_t count = 0;
  const fg_rule *r = fg_policy_rules(p, &count);
  const char *pool = fg_policy_pool(p);
  for (uint32_t i = 0; i < count; i++) {
    if (fg_rule_holds(&r[i], pool, &j->signs.in)) {
      const uint32_t heard = j->f.flags & (uint32_t)(FG_FAIL_HAS_RETRY_AFTER | FG_FAIL_MUST_NOT_RETRY | FG_FAIL_SHOULD_RETRY);
      apply_rule(j, &r[i]);
      if (r[i].set_should_retry == 0) {
        j->f.flags |= heard; /* what the server asked for stays, unless the rule says otherwise */
      } else {
        j->f.flags |= heard & (uint32_t)FG_FAIL_HAS_RETRY_AFTER;
      }
      j->f.rule = i + 1;
      j->ruled = 1;
      return;
    }
  }
}

int32_t fg_classify(const fg_policy *p, const fg_evidence *e, fg_failure *out) {
  if (e == NULL || out == NULL) {
    return FG_ERR_ARG;
  }
  if (e->size < offsetof(fg_evidence, headers) || out->size < offsetof(fg_failure, rule)) {
    return FG_ERR_ABI;
  }
  fg_judged j;
  memset(&j, 0, offsetof(fg_judged, signs));
  memcpy(&j.e, e, fg_min32(e->size, (uint32_t)sizeof j.e));
  fg_signs_init(&j.signs);
  if (j.e.headers == NULL) {
    j.e.header_count = 0;
  }
  j.e.phase = j.e.phase < FG_PHASE_COUNT ? j.e.phase : (uint32_t)FG_PHASE_UNKNOWN;
  j.shown = j.e.visible > 0;
  fg_rule_input *in = &j.signs.in;
  in->provider = j.e.provider;
  in->api = j.e.api;
  in->lib = j.e.lib;
  in->kind = j.e.kind;
  in->phase = j.e.phase;
  in->headers = j.e.headers;
  in->header_count = j.e.header_count;
  read_headers(&j);
  look_at_body(&j);
  if (has_transport(&j.e)) {
    read_transport(&j);
  }
  fg_signs_done(&j.signs);
  fg_builtin_look(in, &j.found);
  in->status = j.e.status;
  judge(&j);
  if (p != NULL) {
    in->status = j.e.status;
    fg_rule_index(in);
    card_rules(&j, p);
  }
  should_retry(&j);
  hints(&j);
  facts(&j); /* last: no rule and no hint outranks them */
  j.f.size = fg_min32(out->size, (uint32_t)sizeof j.f);
  memcpy(out, &j.f, j.f.size);
  return FG_OK;
}

const char *fg_rule_why(const fg_policy *p, uint32_t rule) {
  if (rule > RULE_BUILTIN) {
    return fg_builtin_why(rule - RULE_BUILTIN - 1);
  }
  uint32_t count = 0;
  if (p != NULL && rule > 0) {
    const fg_rule *r = fg_policy_rules(p, &count);
    if (rule <= count && r[rule - 1].why.len > 0) {
      return fg_policy_pool(p) + r[rule - 1].why.off;
    }
  }
  return "";
}
