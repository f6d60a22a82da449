/* decide(): the pure kernel, with fg_facts as a dict. Keys are the struct's
 * names; words and lists of words stand for enums and bit sets. */
#include "fgpy_convert.h"

#include <string.h>

enum {
  K_U32,
  K_I64,
  K_WORD,
  K_BITS,
  K_OWN
};

typedef struct own_word {
  const char *name;
  uint32_t value;
} own_word;

typedef struct fact {
  const char *name;
  uint32_t kind, table;
  size_t offset;
  const own_word *words; /* K_OWN: names only this struct has; many: a list */
  int many;
} fact;

static const own_word stage_words[] = {
    {"begin", FG_STAGE_BEGIN}, {"failure", FG_STAGE_FAILURE}, {NULL, 0}};
static const own_word safe_words[] = {
    {"not_sent", FG_SAFE_NOT_SENT},
    {"accepted", FG_SAFE_ACCEPTED},
    {"first_visible_token", FG_SAFE_FIRST_VISIBLE},
    {"first_tool_start", FG_SAFE_FIRST_TOOL},
    {NULL, 0}};
static const own_word after_words[] = {{"stop", FG_AFTER_STOP},
                                       {"restart", FG_AFTER_RESTART},
                                       {"continue", FG_AFTER_CONTINUE},
                                       {NULL, 0}};
static const own_word silence_words[] = {{"none", FG_SILENCE_NONE},
                                         {"stand_in", FG_SILENCE_STAND_IN},
                                         {"any", FG_SILENCE_ANY},
                                         {NULL, 0}};
static const own_word spill_words[] = {
    {"never", FG_SPILL_NEVER},
    {"when_wait_does_not_fit", FG_SPILL_WHEN_NEEDED},
    {"prefer_fast", FG_SPILL_PREFER_FAST},
    {NULL, 0}};
static const own_word flag_words[] = {{"queue_ok", FG_FACT_QUEUE_OK},
                                      {"waited", FG_FACT_WAITED},
                                      {"slow", FG_FACT_SLOW},
                                      {"prior_effect", FG_FACT_PRIOR_EFFECT},
                                      {"tool_open", FG_FACT_TOOL_OPEN},
                                      {"ops_overflow", FG_FACT_OPS_OVERFLOW},
                                      {"spill_ok", FG_FACT_SPILL_OK},
                                      {"streamed", FG_FACT_STREAMED},
                                      {"hourly_out", FG_FACT_HOURLY_OUT},
                                      {"daily_out", FG_FACT_DAILY_OUT},
                                      {"resumable", FG_FACT_RESUMABLE},
                                      {"empty_end", FG_FACT_EMPTY_END},
                                      {"route_paced", FG_FACT_ROUTE_PACED},
                                      {NULL, 0}};
static const own_word candidate_words[] = {
    {"primary", FG_CAND_PRIMARY},
    {"ladder", FG_CAND_LADDER},
    {"in_scope", FG_CAND_IN_SCOPE},
    {"other_budget", FG_CAND_OTHER_BUDGET},
    {"other_vendor", FG_CAND_OTHER_VENDOR},
    {"larger", FG_CAND_LARGER},
    {"out", FG_CAND_OUT},
    {"prefill", FG_CAND_PREFILL},
    {"other_model", FG_CAND_OTHER_MODEL},
    {"early", FG_CAND_EARLY},
    {NULL, 0}};
static const own_word failure_words[] = {
    {"overload", FG_FAIL_OVERLOAD},
    {"trips_breaker", FG_FAIL_TRIPS_BREAKER},
    {"has_retry_after", FG_FAIL_HAS_RETRY_AFTER},
    {"should_retry", FG_FAIL_SHOULD_RETRY},
    {"must_not_retry", FG_FAIL_MUST_NOT_RETRY},
    {"never_sent", FG_FAIL_NEVER_SENT},
    {"silent", FG_FAIL_SILENT},
    {"local_fault", FG_FAIL_LOCAL_FAULT},
    {NULL, 0}};

#define U32(T, f) \
  { #f, K_U32, 0, offsetof(T, f), NULL, 0 }
#define WORD(T, f, t) \
  { #f, K_WORD, FG_TABLE_##t, offsetof(T, f), NULL, 0 }
#define BITS(T, f, t) \
  { #f, K_BITS, FG_TABLE_##t, offsetof(T, f), NULL, 0 }
#define OWN(T, f, w) \
  { #f, K_OWN, 0, offsetof(T, f), w, 0 }
#define OWNS(T, f, w) \
  { #f, K_OWN, 0, offsetof(T, f), w, 1 }
#define END \
  { NULL, 0, 0, 0, NULL, 0 }

static const fact failure_facts[] = {
    WORD(fg_failure, owner, OWNER),
    WORD(fg_failure, kind, KIND),
    {"class", K_WORD, FG_TABLE_CLASS, offsetof(fg_failure, klass), NULL, 0},
    WORD(fg_failure, scope, SCOPE),
    WORD(fg_failure, period, PERIOD),
    WORD(fg_failure, billed, BILLED),
    WORD(fg_failure, commit, COMMIT),
    WORD(fg_failure, repair, REPAIR),
    OWNS(fg_failure, flags, failure_words),
    U32(fg_failure, retry_after_ms),
    U32(fg_failure, rule),
    END};
static const fact rung_facts[] = {
    WORD(fg_rung, step, STEP),
    U32(fg_rung, route_index),
    U32(fg_rung, max_tokens),
    U32(fg_rung, compact_tokens),
    U32(fg_rung, max_age_s),
    U32(fg_rung, text),
    U32(fg_rung, spent),
    U32(fg_rung, helps),
    U32(fg_rung, tokens),
    U32(fg_rung, estimate_ms),
    {"extra_nusd", K_I64, 0, offsetof(fg_rung, extra_nusd), NULL, 0},
    END};
static const fact candidate_facts[] = {
    U32(fg_candidate, route),
    OWNS(fg_candidate, flags, candidate_words),
    WORD(fg_candidate, barred, REASON),
    WORD(fg_candidate, health, HEALTH),
    U32(fg_candidate, health_wait_ms),
    U32(fg_candidate, sends_left),
    U32(fg_candidate, estimate_ms),
    U32(fg_candidate, first_token_ms),
    U32(fg_candidate, tokens),
    U32(fg_candidate, drop_ppm),
    WORD(fg_candidate, bucket, REASON),
    BITS(fg_candidate, change, CHANGE),
    U32(fg_candidate, max_tokens),
    {"extra_nusd", K_I64, 0, offsetof(fg_candidate, extra_nusd), NULL, 0},
    END};
static const fact facts_facts[] = {
    OWN(fg_facts, stage, stage_words),
    OWNS(fg_facts, flags, flag_words),
    BITS(fg_facts, unable, UNABLE),
    U32(fg_facts, max_wait_ms),
    OWN(fg_facts, safe_until, safe_words),
    OWN(fg_facts, after_visible, after_words),
    OWN(fg_facts, after_silence, silence_words),
    BITS(fg_facts, stop_on, OWNER),
    WORD(fg_facts, billing, BILLING),
    WORD(fg_facts, shown, SHOWN),
    WORD(fg_facts, effect, EFFECT),
    WORD(fg_facts, server_state, SERVER_STATE),
    U32(fg_facts, failed),
    U32(fg_facts, backoff_ms),
    U32(fg_facts, hint_cap_ms),
    U32(fg_facts, class_left),
    U32(fg_facts, attempts_left),
    U32(fg_facts, resends_left),
    U32(fg_facts, elapsed_left_ms),
    U32(fg_facts, tokens_left),
    U32(fg_facts, quality_left_ppm),
    OWN(fg_facts, spill_mode, spill_words),
    U32(fg_facts, hold_ms),
    {"cost_left_nusd", K_I64, 0, offsetof(fg_facts, cost_left_nusd), NULL, 0},
    WORD(fg_facts, lookup, LOOKUP),
    U32(fg_facts, truncated_max_tokens),
    END};

static int own_value(const fact *f, PyObject *v, uint32_t *out) {
  for (const own_word *w = f->words; PyUnicode_Check(v) && w->name; w++) {
    if (PyUnicode_CompareWithASCIIString(v, w->name) == 0) {
      *out |= w->value;
      return 0;
    }
  }
  PyErr_Format(PyExc_ValueError, "%s: unknown word %R", f->name, v);
  return -1;
}

static int read_own(const fact *f, PyObject *v, uint32_t *out) {
  *out = 0;
  if (PyLong_Check(v) || v == Py_None) {
    return fgpy_u32(v, f->name, out);
  }
  if (PyUnicode_Check(v)) {
    return own_value(f, v, out);
  }
  PyObject *list = f->many ? PySequence_List(v) : NULL;
  if (list == NULL) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s must be a word%s or an int", f->name,
                 f->many ? ", a list of words" : "");
    return -1;
  }
  int rc = 0;
  for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(list); i++) {
    rc = own_value(f, PyList_GetItem(list, i), out);
  }
  Py_DECREF(list);
  return rc;
}

/* A number, or what has none: None is no limit. */
static int read_u32(const fact *f, PyObject *v, uint32_t *out) {
  size_t len = strlen(f->name);
  if (v == Py_None && len > 5 && (strstr(f->name, "_left") != NULL)) {
    *out = UINT32_MAX;
    return 0;
  }
  return fgpy_u32(v, f->name, out);
}

static int read_fact(fgpy_state *st, const fact *f, PyObject *v, char *base) {
  void *at = base + f->offset;
  switch (f->kind) {
  case K_U32:
    return read_u32(f, v, at);
  case K_I64:
    if (v == Py_None) {
      *(int64_t *)at = INT64_MAX;
      return 0;
    }
    return fgpy_i64(v, f->name, at);
  case K_WORD:
    return fgpy_word(st, f->table, v, f->name, at);
  case K_BITS:
    return fgpy_bits(st, f->table, v, f->name, at);
  default:
    return read_own(f, v, at);
  }
}

static int read_dict(fgpy_state *st, const fact *all, const char *what,
                     PyObject *dict, void *base) {
  if (!PyDict_Check(dict)) {
    PyErr_Format(PyExc_TypeError, "%s must be a dict", what);
    return -1;
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(dict, &at, &key, &value)) {
    const fact *f = all;
    while (f->name != NULL &&
           !(PyUnicode_Check(key) &&
             PyUnicode_CompareWithASCIIString(key, f->name) == 0)) {
      f++;
    }
    if (f->name == NULL) {
      PyErr_Format(PyExc_TypeError, "%s has no key %R", what, key);
      return -1;
    }
    if (read_fact(st, f, value, base) < 0) {
      return -1;
    }
  }
  return 0;
}

static int read_list(fgpy_state *st, const fact *all, const char *what,
                     PyObject *v, void *base, size_t size, Py_ssize_t most,
                     uint32_t *count) {
  if (!PyList_Check(v) || PyList_Size(v) > most) {
    PyErr_Format(PyExc_TypeError, "%s must be a list of at most %zd dicts",
                 what, most);
    return -1;
  }
  *count = (uint32_t)PyList_Size(v);
  for (uint32_t i = 0; i < *count; i++) {
    if (read_dict(st, all, what, PyList_GetItem(v, i),
                  (char *)base + i * size) < 0) {
      return -1;
    }
  }
  return 0;
}

int fgpy_facts(fgpy_state *st, PyObject *dict, fg_facts *f) {
  memset(f, 0, sizeof *f);
  f->size = sizeof *f;
  f->failure.size = sizeof f->failure;
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "facts must be a dict");
    return -1;
  }
  PyObject *rest = PyDict_Copy(dict);
  if (rest == NULL) {
    return -1;
  }
  int rc = 0;
  PyObject *part = PyDict_GetItemString(rest, "failure");
  if (rc == 0 && part != NULL) {
    rc = read_dict(st, failure_facts, "failure", part, &f->failure);
    rc = rc < 0 ? rc : PyDict_DelItemString(rest, "failure");
  }
  part = PyDict_GetItemString(rest, "ladder");
  if (rc == 0 && part != NULL) {
    rc = read_list(st, rung_facts, "ladder", part, f->ladder,
                   sizeof f->ladder[0], FG_LADDER_MAX, &f->ladder_count);
    rc = rc < 0 ? rc : PyDict_DelItemString(rest, "ladder");
  }
  part = PyDict_GetItemString(rest, "candidates");
  if (rc == 0 && part != NULL) {
    rc = read_list(st, candidate_facts, "candidates", part, f->candidate,
                   sizeof f->candidate[0], FG_ROUTES_MAX, &f->candidate_count);
    rc = rc < 0 ? rc : PyDict_DelItemString(rest, "candidates");
  }
  if (rc == 0) {
    rc = read_dict(st, facts_facts, "facts", rest, f);
  }
  Py_DECREF(rest);
  return rc;
}

int fgpy_failure_facts(fgpy_state *st, PyObject *dict, fg_failure *f) {
  memset(f, 0, sizeof *f);
  f->size = sizeof *f;
  return read_dict(st, failure_facts, "failure", dict, f);
}

static const char *const decide_names[] = {"facts", "policy"};

PyObject *fgpy_decide(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames) {
  static const fgpy_sig sig = {"decide", decide_names, 2, 2, 1};
  fgpy_state *st = PyModule_GetState(module);
  PyObject *in[2];
  fg_facts f;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_facts(st, in[0], &f) < 0) {
    return NULL;
  }
  fgpy_policy *policy = NULL;
  if (fgpy_policy_arg(st, in[1], &policy) < 0) {
    return NULL;
  }
  fgpy_decision *d = fgpy_decision_new(st, policy, NULL, NULL);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = fg_decide(&f, &d->d);
  if (rc != FG_OK) {
    Py_DECREF((PyObject *)d);
    return fgpy_fail(st, rc, "decide");
  }
  return (PyObject *)d;
}
