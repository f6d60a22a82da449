/* Error answers: the rules first, then what the status alone says. */
#include "fg_builtin.h"
#include "fg_classify.h"

static uint32_t status_kind(int32_t status) {
  switch (status) {
  case 400:
  case 406:
  case 411:
  case 412:
  case 415:
  case 416:
  case 422:
  case 428:
    return FG_KIND_BAD_REQUEST;
  case 401:
    return FG_KIND_BAD_KEY;
  case 402:
    return FG_KIND_NO_CREDIT;
  case 403:
    return FG_KIND_NO_PERMISSION;
  case 404:
  case 410:
    return FG_KIND_MODEL_NOT_FOUND;
  case 405:
  case 421:
    return FG_KIND_ENDPOINT_NOT_FOUND;
  case 408:
  case 504:
  case 524:
  case 598:
  case 599:
    return FG_KIND_SERVER_TIMEOUT;
  case 409:
    return FG_KIND_CONFLICT;
  case 413:
  case 414:
  case 431:
    return FG_KIND_REQUEST_TOO_LARGE;
  case 425:
    return FG_KIND_UNAVAILABLE;
  case 429:
    return FG_KIND_RATE_LIMITED;
  case 451:
    return FG_KIND_REGION_BLOCKED;
  case 424:
    return FG_KIND_SERVER_ERROR;
  case 501:
    return FG_KIND_UNSUPPORTED;
  case 502:
    return FG_KIND_BAD_GATEWAY;
  case 503:
    return FG_KIND_UNAVAILABLE;
  case 529:
    return FG_KIND_OVERLOADED;
  default:
    return status >= 500 && status <= 599 ? (uint32_t)FG_KIND_SERVER_ERROR : (uint32_t)FG_KIND_UNKNOWN;
  }
}

static void by_status(fg_judged *j, int32_t status) {
  fg_judge_kind(j, status_kind(status));
  if (status == 425) { /* RFC 8470: refused because it came early; nobody is ill */
    j->f.flags &= ~(uint32_t)FG_FAIL_TRIPS_BREAKER;
    j->f.scope = FG_SCOPE_NETWORK;
  } else if (status >= 300 && status <= 399) { /* a redirect is no answer of this API */
    j->f.scope = FG_SCOPE_NETWORK;
    j->f.billed = FG_BILLED_NO;
    j->f.commit = FG_COMMIT_NONE;
  } else if (status >= 400 && status <= 498 && status != 460 && j->f.kind == FG_KIND_UNKNOWN) { /* an unassigned 4xx ran nothing; 460: the client left a load balancer, as 499 */
    j->f.billed = FG_BILLED_NO;
    j->f.commit = FG_COMMIT_NONE;
  } else if (status <= 0) {
    j->f.scope = FG_SCOPE_NETWORK;
  }
}

/* A number after a word, punctuation between: "limit: 30000", "requested about 41648". 0 = none. */
static uint64_t number_after(fg_str m, const char *word) {
  uint32_t n = fg_cstr_len(word);
  for (uint32_t i = 0; i + n < m.len; i++) {
    if (m.ptr[i] != word[0] || m.ptr[i + 1] != word[1] || (i > 0 && fg_is_alnum(m.ptr[i - 1])) || memcmp(m.ptr + i, word, n) != 0) {
      continue;
    }
    uint32_t k = i + n;
    while (k < m.len && (m.ptr[k] == ' ' || m.ptr[k] == ':')) {
      k++;
    }
    uint64_t v = 0;
    uint32_t digits = 0;
    for (; k < m.len && (fg_is_digit(m.ptr[k]) || (m.ptr[k] == ',' && k + 1 < m.len && fg_is_digit(m.ptr[k + 1]))); k++) {
      if (m.ptr[k] != ',') {
        v = fg_add64(fg_mul64(v, 10), (uint64_t)(m.ptr[k] - '0'));
        digits++;
      }
    }
    if (digits > 0) {
      return v;
    }
  }
  return 0;
}

/* DESIGN 4: a request larger than the limit can never fit, whatever the status. */
static int never_fits(const fg_judged *j, int32_t status) {
  if (status != 429 && status != 413 && status != 400) {
    return 0;
  }
  fg_str m = j->signs.in.message;
  uint64_t limit = number_after(m, "limit"), asked = number_after(m, "requested");
  return (limit > 0 && asked > limit) || (status == 429 && fg_builtin_word(&j->found, FG_WORD_TOO_LARGE_EVER));
}

static int has_part(fg_str s, const char *part) {
  uint32_t n = fg_cstr_len(part);
  for (uint32_t k = 0; k + n <= s.len; k++) {
    if (memcmp(s.ptr + k, part, n) == 0) {
      return 1;
    }
  }
  return 0;
}

/* The limit is the model's own rather than the account's. */
static void limit_scope(fg_judged *j) {
  const fg_rule_input *in = &j->signs.in;
  static const char *const names[] = {"PerModel", "ModelAccount", "FoundationModel"};
  static const char owners[] = "azure|bedrock|vertex|github-models";
  if (j->f.scope != FG_SCOPE_ACCOUNT || (j->f.owner != FG_OWNER_RATE && j->f.kind != FG_KIND_QUOTA_EXHAUSTED)) {
    return;
  }
  int model = fg_builtin_word(&j->found, FG_WORD_MODEL_LIMIT);
  for (uint32_t i = 0; i < in->name_count && !model; i++) {
    for (uint32_t n = 0; n < FG_ARRAY_LEN(names) && !model; n++) {
      model = has_part(fg_str_make(in->name[i].ptr, in->name[i].len), names[n]);
    }
  }
  for (uint32_t i = 0, from = 0; i < sizeof owners && !model; i++) {
    if (owners[i] == '|' || owners[i] == 0) {
      model = in->provider.len >= i - from && fg_eq_nocase(in->provider.ptr, i - from, owners + from, i - from);
      from = i + 1;
    }
  }
  if (model) {
    j->f.scope = FG_SCOPE_MODEL;
  }
}

/* Overload of one model, not of the whole provider. */
static void load_scope(fg_judged *j) {
  if (j->f.kind == FG_KIND_OVERLOADED && j->f.scope == FG_SCOPE_PROVIDER &&
      fg_builtin_word(&j->found, FG_WORD_MODEL_LOAD)) {
    j->f.scope = FG_SCOPE_MODEL;
  }
}

/* Status the rules see: the HTTP one; the body's where there is none; a quoted upstream's where a gateway says only 500. */
static int32_t effective(const fg_judged *j, int32_t status) {
  if (status <= 0 || (status >= 200 && status <= 299)) {
    int32_t inner = j->signs.status != 0 ? j->signs.status : j->signs.inner_status;
    return inner != 0 ? inner : status <= 0 ? 100 : status;
  }
  if (status == 500 && j->signs.inner_status >= 400) {
    return j->signs.inner_status;
  }
  return status;
}

void fg_judge_status(fg_judged *j, int32_t status) {
  fg_signs *g = &j->signs;
  int32_t eff = effective(j, status);
  g->in.status = eff;
  if (g->inner_count > 1 && eff >= 500 && fg_builtin_word(&j->found, FG_WORD_SEVERAL_FAILURES)) {
    fg_judge_kind(j, FG_KIND_UNKNOWN); /* a gateway joins several upstream failures: none of them is the answer */
    j->f.scope = FG_SCOPE_PROVIDER;
    return;
  }
  if (never_fits(j, eff)) {
    fg_judge_kind(j, FG_KIND_NEVER_FITS_LIMIT);
    j->ruled = 1;
  } else if (!fg_judge_builtin(j, FG_BUILTIN_ANSWER)) {
    by_status(j, eff == 100 ? status : eff);
  }
  if (eff == 404 && g->shape == FG_SHAPE_HTML && j->f.kind == FG_KIND_MODEL_NOT_FOUND) {
    fg_judge_kind(j, FG_KIND_ENDPOINT_NOT_FOUND); /* a web server's page: not this API */
  }
  limit_scope(j);
  load_scope(j);
}
