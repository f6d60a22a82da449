/* Call: one logical request of the business, from begin to its end. */
#include "fgpy_convert.h"

#include <string.h>
#include <unistd.h>

/* ---- making and ending ---- */

void fgpy_box_drop(fgpy_box *box) {
  if (--box->refs == 0) {
    PyMem_Free(box);
  }
}

static fgpy_call *call_new(fgpy_engine *engine) {
  fgpy_call *self = PyObject_GC_New(fgpy_call, engine->st->call_type);
  if (self == NULL) {
    return NULL;
  }
  self->engine = engine;
  Py_INCREF((PyObject *)engine);
  self->id = NULL;
  self->language = NULL;
  self->fork_number = fgpy_fork_number;
  self->forgotten = 1; /* until it has begun */
  self->box = PyMem_Malloc(sizeof *self->box);
  if (self->box == NULL) {
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
  }
  self->box->refs = 1;
  memset(&self->box->call, 0, sizeof self->box->call);
  PyObject_GC_Track(self);
  return self;
}

static int call_traverse(fgpy_call *self, visitproc visit, void *arg) {
  FGPY_VISIT_TYPE(self);
  Py_VISIT((PyObject *)self->engine);
  return 0;
}

static void call_end_now(fgpy_call *self) {
  if (!self->forgotten && self->fork_number == fgpy_fork_number) {
    (void)fg_call_end(self->engine->engine, &self->box->call);
  }
  self->forgotten = 1;
}

static void call_dealloc(fgpy_call *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  call_end_now(self);
  if (self->box != NULL) {
    fgpy_box_drop(self->box);
  }
  Py_CLEAR(self->engine);
  Py_CLEAR(self->id);
  Py_CLEAR(self->language);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

/* Ready to be told something: still ours, the engine in its place. */
static int call_ready(fgpy_call *self, PyObject *now, int64_t *now_ms) {
  if (self->fork_number != fgpy_fork_number) {
    PyErr_SetString(self->engine->st->state_error,
                    "this call began before a fork: it belongs to the parent "
                    "process; begin a new one");
    return -1;
  }
  if (self->forgotten) {
    PyErr_SetString(self->engine->st->state_error,
                    "this call was saved or ended here; Engine.resume() goes "
                    "on with a saved one");
    return -1;
  }
  return fgpy_engine_ready(self->engine, now, now_ms);
}

static fgpy_decision *decision_of(fgpy_call *self) {
  fgpy_engine *e = self->engine;
  fgpy_decision *d = fgpy_decision_new(e->st, e->policy, e, self->box);
  if (d != NULL && self->language != NULL) {
    Py_INCREF(self->language);
    d->language = self->language;
  }
  return d;
}

static PyObject *answer(fgpy_call *self, fgpy_decision *d, int32_t rc,
                        const char *what) {
  if (rc != FG_OK) {
    Py_DECREF(d);
    return fgpy_fail(self->engine->st, rc, what);
  }
  return (PyObject *)d;
}

/* ---- begin ---- */

/* An id nobody else draws: the engine's seed and a counter, mixed; a forked
 * child starts elsewhere. */
static PyObject *new_id(fgpy_engine *e, char *text, fg_str *out) {
  static const char hex[] = "0123456789abcdef";
  if (e->fork_number != fgpy_fork_number) {
    e->fork_number = fgpy_fork_number;
    e->id_seed ^= (uint64_t)getpid() * UINT64_C(0xd6e8feb86659fd93);
  }
  uint64_t z = e->id_seed + ++e->next_id * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  text[0] = 'f';
  text[1] = 'g';
  text[2] = '-';
  for (int i = 0; i < 16; i++) {
    text[3 + i] = hex[z >> (60 - 4 * i) & 15];
  }
  out->ptr = text;
  out->len = 19;
  return PyUnicode_FromStringAndSize(text, 19);
}

static PyObject *begin_refused(fgpy_engine *e, const fg_request *r,
                               int32_t rc) {
  if (rc == FG_ERR_ARG &&
      fg_policy_find(e->policy->block, FG_FIND_WORKFLOW, r->workflow.ptr,
                     r->workflow.len) == 0) {
    PyObject *name =
        PyUnicode_DecodeUTF8(r->workflow.ptr ? r->workflow.ptr : "",
                             (Py_ssize_t)r->workflow.len, "replace");
    if (name != NULL) {
      PyErr_Format(e->st->argument_error,
                   "the card has no workflow %R; it has %R", name,
                   e->policy->workflows);
      Py_DECREF(name);
    }
    return NULL;
  }
  if (rc == FG_ERR_ARG && r->call_id.len > FG_CALL_ID_MAX) {
    PyErr_Format(e->st->argument_error, "call_id is longer than %d bytes",
                 FG_CALL_ID_MAX);
    return NULL;
  }
  return fgpy_fail(e->st, rc, "begin");
}

/* The k-th keyword: its text is the object's own, and ends with NUL. */
static const char *key_text(PyObject *kwnames, Py_ssize_t k) {
  return PyUnicode_AsUTF8AndSize(PyTuple_GetItem(kwnames, k), NULL);
}

/* begin()'s keywords into r, and those that are not facts of the request. */
static int begin_facts(fgpy_keep *keep, PyObject *const *values,
                       PyObject *kwnames, fg_request *r, PyObject **now,
                       PyObject **id, PyObject **language) {
  Py_ssize_t count = kwnames ? PyTuple_Size(kwnames) : 0;
  Py_ssize_t choice = -1;
  for (Py_ssize_t k = 0; k < count; k++) {
    const char *key = key_text(kwnames, k);
    if (key == NULL) {
      return -1;
    }
    if (strcmp(key, "tool_choice") == 0) {
      choice = k; /* a name of tools: when those are read */
      continue;
    }
    if (strcmp(key, "now_ms") == 0) {
      *now = values[k];
      continue;
    }
    int rc = fgpy_request_key(keep, key, values[k], r);
    if (rc == 0) {
      PyErr_Format(PyExc_TypeError, "begin() has no fact '%s'", key);
    }
    if (rc <= 0) {
      return -1;
    }
    if (strcmp(key, "call_id") == 0) {
      *id = values[k] == Py_None ? NULL : values[k];
    } else if (strcmp(key, "language") == 0) {
      *language = values[k] == Py_None ? NULL : values[k];
    }
  }
  if (choice >= 0) {
    return fgpy_request_key(keep, "tool_choice", values[choice], r) < 0 ? -1
                                                                        : 0;
  }
  return 0;
}

PyObject *fgpy_engine_begin(fgpy_engine *self, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames) {
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->st);
  fg_request r;
  memset(&r, 0, sizeof r);
  r.size = sizeof r;
  PyObject *now = NULL, *id = NULL, *language = NULL;
  int64_t now_ms = 0;
  fgpy_call *call = NULL;
  char text[24];
  if (nargs > 1) {
    PyErr_SetString(PyExc_TypeError,
                    "begin() takes the workflow; its facts come by keyword");
    return NULL;
  }
  if ((nargs == 1 && fgpy_str(&keep, args[0], "workflow", &r.workflow) < 0) ||
      begin_facts(&keep, args + nargs, kwnames, &r, &now, &id, &language) < 0) {
    goto done;
  }
  if (r.workflow.len == 0) {
    PyErr_SetString(PyExc_TypeError, "begin() needs the workflow's name");
    goto done;
  }
  if (fgpy_engine_ready(self, now, &now_ms) < 0 ||
      (call = call_new(self)) == NULL) {
    goto done;
  }
  if (id != NULL) {
    call->id = id;
    Py_INCREF(id);
  } else {
    call->id = new_id(self, text, &r.call_id);
  }
  if (language != NULL) {
    call->language = language;
    Py_INCREF(language);
  }
  if (call->id == NULL) {
    goto done;
  }
  fg_decision d = {.size = sizeof d}; /* the call remembers it */
  int32_t rc = fg_call_begin(self->engine, &call->box->call, &r, now_ms, &d);
  if (rc != FG_OK) {
    (void)begin_refused(self, &r, rc);
    goto done;
  }
  call->forgotten = 0;
  fgpy_keep_drop(&keep);
  return (PyObject *)call;
done:
  Py_XDECREF((PyObject *)call);
  fgpy_keep_drop(&keep);
  return NULL;
}

/* ---- saved calls: a mark, the length of the id, the id, the call ---- */

static const char saved_mark[4] = {'f', 'g', 'c', '1'};

static PyObject *call_save(fgpy_call *self, PyObject *unused) {
  (void)unused;
  int64_t now_ms = 0;
  Py_ssize_t len = 0;
  const char *id = PyUnicode_AsUTF8AndSize(self->id, &len);
  if (id == NULL || call_ready(self, NULL, &now_ms) < 0) {
    return NULL;
  }
  char bytes[sizeof saved_mark + 1 + FG_CALL_ID_MAX + sizeof(fg_call)];
  size_t at = sizeof saved_mark;
  size_t id_len = len > FG_CALL_ID_MAX ? FG_CALL_ID_MAX : (size_t)len;
  memcpy(bytes, saved_mark, sizeof saved_mark);
  bytes[at++] = (char)id_len;
  memcpy(bytes + at, id, id_len);
  at += id_len;
  memcpy(bytes + at, &self->box->call, sizeof(fg_call));
  at += sizeof(fg_call);
  PyObject *out = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)at);
  self->forgotten = out != NULL ? 1 : self->forgotten;
  return out;
}

static const char *const resume_names[] = {"saved"};

PyObject *fgpy_engine_resume(fgpy_engine *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Engine.resume", resume_names, 1, 1, 1};
  PyObject *in[1];
  char *raw = NULL;
  Py_ssize_t len = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_engine_ready(self, NULL, &now_ms) < 0 ||
      PyBytes_AsStringAndSize(in[0], &raw, &len) < 0) {
    return NULL;
  }
  size_t head = sizeof saved_mark + 1;
  size_t id_len = (size_t)len > head ? (unsigned char)raw[head - 1] : 0;
  if ((size_t)len != head + id_len + sizeof(fg_call) ||
      id_len > FG_CALL_ID_MAX || memcmp(raw, saved_mark, sizeof saved_mark)) {
    PyErr_SetString(self->st->argument_error,
                    "not a saved call, or of another version");
    return NULL;
  }
  fgpy_call *call = call_new(self);
  if (call == NULL) {
    return NULL;
  }
  call->id = PyUnicode_DecodeUTF8(raw + head, (Py_ssize_t)id_len, "replace");
  memcpy(&call->box->call, raw + head + id_len, sizeof(fg_call));
  fg_decision latest = {.size = sizeof latest};
  int32_t rc = fg_call_event(self->engine, &call->box->call, 0, FG_EVENT_NONE,
                             0, now_ms);
  if (rc == FG_OK || rc == FG_ERR_ARG) {
    rc = fg_call_decision(self->engine, &call->box->call, &latest);
  }
  if (call->id == NULL || rc != FG_OK) {
    Py_DECREF(call);
    return PyErr_Occurred() ? NULL : fgpy_fail(self->st, rc, "resume");
  }
  call->forgotten = 0;
  return (PyObject *)call;
}

/* ---- facts without a decision ---- */

static PyObject *done(fgpy_call *self, int32_t rc, const char *what) {
  if (rc != FG_OK) {
    return fgpy_fail(self->engine->st, rc, what);
  }
  Py_RETURN_NONE;
}

static const char *const event_names[] = {"kind", "value", "attempt", "now_ms"};

static PyObject *call_event(fgpy_call *self, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.event", event_names, 4, 2, 1};
  fgpy_state *st = self->engine->st;
  PyObject *in[4];
  uint32_t kind = 0, value = 0, attempt = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_word(st, FG_TABLE_EVENT, in[0], "kind", &kind) < 0) {
    return NULL;
  }
  int rc = 0;
  if (kind == FG_EVENT_TERMINAL) {
    rc = fgpy_word(st, FG_TABLE_FINISH, in[1], "value", &value);
  } else if (kind == FG_EVENT_TOKEN && (in[1] == NULL || in[1] == Py_None)) {
    value = 1;
  } else {
    rc = fgpy_u32(in[1], "value", &value);
  }
  if (rc < 0 || fgpy_u32(in[2], "attempt", &attempt) < 0 ||
      call_ready(self, in[3], &now_ms) < 0) {
    return NULL;
  }
  return done(self,
              fg_call_event(self->engine->engine, &self->box->call, attempt,
                            kind, value, now_ms),
              "event");
}

static const char *const tool_names[] = {"op_id", "state", "idempotent",
                                         "attempt", "now_ms"};

static PyObject *call_tool(fgpy_call *self, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.tool", tool_names, 5, 3, 2};
  fgpy_state *st = self->engine->st;
  PyObject *in[5];
  fgpy_keep keep;
  fgpy_keep_init(&keep, st);
  fg_str op = {0};
  uint32_t state = 0, attempt = 0;
  int idempotent = 0;
  int64_t now_ms = 0;
  PyObject *out = NULL;
  if (fgpy_args(&sig, args, nargs, kwnames, in) == 0 &&
      fgpy_str(&keep, in[0], "op_id", &op) == 0 &&
      fgpy_word(st, FG_TABLE_TOOL, in[1], "state", &state) == 0 &&
      fgpy_bool(in[2], "idempotent", &idempotent) == 0 &&
      fgpy_u32(in[3], "attempt", &attempt) == 0 &&
      call_ready(self, in[4], &now_ms) == 0) {
    out =
        done(self,
             fg_call_tool(self->engine->engine, &self->box->call, attempt,
                          op.ptr, op.len, state, (uint32_t)idempotent, now_ms),
             "tool");
  }
  fgpy_keep_drop(&keep);
  return out;
}

/* Keywords of usage() and success() into a. `reported`: 1 when they told of
 * tokens or money, without a word on final. */
static int answer_facts(fgpy_keep *keep, const char *fn,
                        PyObject *const *values, PyObject *kwnames,
                        fg_answer *a, uint32_t *attempt, PyObject **now,
                        int *reported) {
  Py_ssize_t count = kwnames ? PyTuple_Size(kwnames) : 0;
  int said = 0;
  memset(a, 0, sizeof *a);
  a->size = sizeof *a;
  *attempt = 0;
  *now = NULL;
  *reported = 0;
  for (Py_ssize_t k = 0; k < count; k++) {
    const char *key = key_text(kwnames, k);
    if (key == NULL) {
      return -1;
    }
    if (strcmp(key, "now_ms") == 0) {
      *now = values[k];
      continue;
    }
    if (strcmp(key, "attempt") == 0) {
      if (fgpy_u32(values[k], "attempt", attempt) < 0) {
        return -1;
      }
      continue;
    }
    int rc = fgpy_answer_key(keep, key, values[k], a);
    if (rc == 0) {
      PyErr_Format(PyExc_TypeError, "%s() has no argument '%s'", fn, key);
    }
    if (rc <= 0) {
      return -1;
    }
    int none = values[k] == Py_None;
    said |= strcmp(key, "final") == 0 && !none;
    *reported |= !none && (strcmp(key, "prompt_tokens") == 0 ||
                           strcmp(key, "output_tokens") == 0 ||
                           strcmp(key, "cost_usd") == 0 ||
                           strcmp(key, "cost_nusd") == 0);
  }
  *reported = *reported && !said;
  return 0;
}

static PyObject *call_usage(fgpy_call *self, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames) {
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->engine->st);
  fg_answer a;
  uint32_t attempt = 0;
  PyObject *now = NULL, *out = NULL;
  int reported = 0;
  int64_t now_ms = 0;
  if (nargs != 0) {
    PyErr_SetString(PyExc_TypeError, "usage() takes keywords only");
    return NULL;
  }
  if (answer_facts(&keep, "usage", args, kwnames, &a, &attempt, &now,
                   &reported) == 0 &&
      call_ready(self, now, &now_ms) == 0) {
    out = done(self,
               fg_call_usage(self->engine->engine, &self->box->call, attempt,
                             &a, now_ms),
               "usage");
  }
  fgpy_keep_drop(&keep);
  return out;
}

/* ---- decisions ---- */

static PyObject *call_success(fgpy_call *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames) {
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->engine->st);
  fg_answer a;
  uint32_t attempt = 0;
  PyObject *now = NULL, *out = NULL;
  int reported = 0;
  int64_t now_ms = 0;
  if (nargs != 0) {
    PyErr_SetString(PyExc_TypeError, "success() takes keywords only");
    return NULL;
  }
  if (answer_facts(&keep, "success", args, kwnames, &a, &attempt, &now,
                   &reported) == 0 &&
      call_ready(self, now, &now_ms) == 0) {
    a.flags |= reported ? FG_ANSWER_USAGE_FINAL : 0;
    fgpy_decision *d = decision_of(self);
    if (d != NULL) {
      int32_t rc = fg_call_success(self->engine->engine, &self->box->call,
                                   attempt, &a, now_ms, &d->d);
      out = answer(self, d, rc, "success");
    }
  }
  fgpy_keep_drop(&keep);
  return out;
}

static const char *const failure_names[] = {"evidence", "attempt", "now_ms"};

static PyObject *call_failure(fgpy_call *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.failure", failure_names, 3, 1, 1};
  PyObject *in[3], *out = NULL;
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->engine->st);
  fg_evidence e;
  uint32_t attempt = 0, named = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) == 0 &&
      fgpy_u32(in[1], "attempt", &named) == 0 &&
      fgpy_evidence(&keep, in[0], &e, &attempt) == 0 &&
      call_ready(self, in[2], &now_ms) == 0) {
    fgpy_decision *d = decision_of(self);
    if (d != NULL) {
      int32_t rc = fg_call_failure(self->engine->engine, &self->box->call,
                                   named ? named : attempt, &e, now_ms, &d->d);
      out = answer(self, d, rc, "failure");
    }
  }
  fgpy_keep_drop(&keep);
  return out;
}

static const char *const now_names[] = {"now_ms"};
typedef int32_t plain(const fg_engine *, fg_call *, int64_t, fg_decision *);

static PyObject *call_plain(fgpy_call *self, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames, const char *fn,
                            plain *op) {
  const fgpy_sig sig = {fn, now_names, 1, 1, 0};
  PyObject *in[1];
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      call_ready(self, in[0], &now_ms) < 0) {
    return NULL;
  }
  fgpy_decision *d = decision_of(self);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = op(self->engine->engine, &self->box->call, now_ms, &d->d);
  return answer(self, d, rc, fn);
}

static PyObject *call_begin_attempt(fgpy_call *self, PyObject *const *args,
                                    Py_ssize_t nargs, PyObject *kwnames) {
  return call_plain(self, args, nargs, kwnames, "begin_attempt",
                    fg_call_begin_attempt);
}

static PyObject *call_deadline(fgpy_call *self, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames) {
  return call_plain(self, args, nargs, kwnames, "deadline", fg_call_deadline);
}

static PyObject *call_cancel(fgpy_call *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  return call_plain(self, args, nargs, kwnames, "cancel", fg_call_cancel);
}

static const char *const unable_names[] = {"what", "now_ms"};

static PyObject *call_unable(fgpy_call *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.unable", unable_names, 2, 1, 1};
  PyObject *in[2];
  uint32_t what = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_bits(self->engine->st, FG_TABLE_UNABLE, in[0], "what", &what) < 0 ||
      call_ready(self, in[1], &now_ms) < 0) {
    return NULL;
  }
  fgpy_decision *d = decision_of(self);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = fg_call_unable(self->engine->engine, &self->box->call, what,
                              now_ms, &d->d);
  return answer(self, d, rc, "unable");
}

static const char *const step_names[] = {"prompt_tokens", "max_output_tokens",
                                         "now_ms"};

static PyObject *call_step(fgpy_call *self, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.step", step_names, 3, 2, 0};
  PyObject *in[3];
  uint32_t prompt = 0, output = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_u32(in[0], "prompt_tokens", &prompt) < 0 ||
      fgpy_u32(in[1], "max_output_tokens", &output) < 0 ||
      call_ready(self, in[2], &now_ms) < 0) {
    return NULL;
  }
  fgpy_decision *d = decision_of(self);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = fg_call_step(self->engine->engine, &self->box->call, prompt,
                            output, now_ms, &d->d);
  return answer(self, d, rc, "step");
}

static const char *const resolved_names[] = {"op_id", "effect", "now_ms"};

static PyObject *call_resolved(fgpy_call *self, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.resolved", resolved_names, 3, 2, 2};
  PyObject *in[3], *out = NULL;
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->engine->st);
  fg_str op = {0};
  uint32_t effect = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) == 0 &&
      fgpy_str(&keep, in[0], "op_id", &op) == 0 &&
      fgpy_word(self->engine->st, FG_TABLE_EFFECT, in[1], "effect", &effect) ==
          0 &&
      call_ready(self, in[2], &now_ms) == 0) {
    fgpy_decision *d = decision_of(self);
    if (d != NULL) {
      int32_t rc = fg_call_resolved(self->engine->engine, &self->box->call,
                                    op.ptr, op.len, effect, now_ms, &d->d);
      out = answer(self, d, rc, "resolved");
    }
  }
  fgpy_keep_drop(&keep);
  return out;
}

static PyObject *call_latest(fgpy_call *self, PyObject *unused) {
  (void)unused;
  fgpy_decision *d = decision_of(self);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = fg_call_decision(self->engine->engine, &self->box->call, &d->d);
  return answer(self, d, rc, "decision");
}

/* ---- end, ledger ---- */

static PyObject *call_end(fgpy_call *self, PyObject *unused) {
  (void)unused;
  if (!self->forgotten && self->fork_number == fgpy_fork_number) {
    int32_t rc = fg_call_end(self->engine->engine, &self->box->call);
    return done(self, rc, "end");
  }
  Py_RETURN_NONE;
}

static PyObject *call_forget(fgpy_call *self, PyObject *unused) {
  (void)unused;
  self->forgotten = 1;
  Py_RETURN_NONE;
}

static const char *const ledger_names[] = {"line", "decision", "now_ms"};

static PyObject *call_ledger_line(fgpy_call *self, PyObject *const *args,
                                  Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.ledger_line", ledger_names, 3, 2, 1};
  fgpy_engine *e = self->engine;
  PyObject *in[3];
  int64_t now_ms = 0;
  uint32_t line = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0) {
    return NULL;
  }
  if (PyUnicode_Check(in[0])) {
    line = PyUnicode_CompareWithASCIIString(in[0], "call") == 0 ? FG_LINE_CALL
           : PyUnicode_CompareWithASCIIString(in[0], "decision") == 0
               ? FG_LINE_DECISION
           : PyUnicode_CompareWithASCIIString(in[0], "end") == 0 ? FG_LINE_END
                                                                 : 0;
  }
  if (line == 0) {
    PyErr_SetString(PyExc_ValueError, "line is one of: call, decision, end");
    return NULL;
  }
  fg_decision latest = {.size = sizeof latest};
  const fg_decision *d = &latest;
  if (in[1] != NULL && in[1] != Py_None) {
    if (!Py_IS_TYPE(in[1], e->st->decision_type)) {
      PyErr_SetString(PyExc_TypeError, "decision must be a Decision");
      return NULL;
    }
    d = &((fgpy_decision *)in[1])->d;
  } else if (fg_call_decision(e->engine, &self->box->call, &latest) != FG_OK) {
    return fgpy_fail(e->st, FG_ERR_STATE, "ledger_line");
  }
  if (fgpy_engine_ready(e, in[2], &now_ms) < 0) {
    return NULL;
  }
  char small[4096];
  uint32_t need = fg_ledger_line(e->engine, &self->box->call, d, line, now_ms,
                                 small, sizeof small);
  if (need < sizeof small) {
    return PyUnicode_DecodeUTF8(small, (Py_ssize_t)need, "replace");
  }
  char *big = PyMem_Malloc((size_t)need + 1);
  if (big == NULL) {
    return PyErr_NoMemory();
  }
  (void)fg_ledger_line(e->engine, &self->box->call, d, line, now_ms, big,
                       need + 1);
  PyObject *out = PyUnicode_DecodeUTF8(big, (Py_ssize_t)need, "replace");
  PyMem_Free(big);
  return out;
}

static PyObject *call_get_id(fgpy_call *self, void *closure) {
  (void)closure;
  Py_INCREF(self->id);
  return self->id;
}

static PyObject *call_get_engine(fgpy_call *self, void *closure) {
  (void)closure;
  Py_INCREF((PyObject *)self->engine);
  return (PyObject *)self->engine;
}

static PyObject *call_get_decision(fgpy_call *self, void *closure) {
  (void)closure;
  return call_latest(self, NULL);
}

static PyObject *call_repr(fgpy_call *self) {
  return PyUnicode_FromFormat("<Call %U>", self->id);
}

static PyMethodDef call_methods[] = {
    {"begin_attempt", FGPY_METHOD(call_begin_attempt), FGPY_KW,
     "begin_attempt(now_ms=None)\n--\n\nPermission to send what was decided: "
     "only its `proceed` allows a send."},
    {"event", FGPY_METHOD(call_event), FGPY_KW,
     "event(kind, value=None, *, attempt=0, now_ms=None)\n--\n\nProgress of an "
     "attempt. value: tokens or bytes; for terminal the finish reason."},
    {"usage", FGPY_METHOD(call_usage), FGPY_KW,
     "usage(*, prompt_tokens=0, cached_tokens=0, output_tokens=0, "
     "cost_usd=None, final=False, attempt=0, now_ms=None)\n--\n\nUsage as the "
     "provider reports it."},
    {"tool", FGPY_METHOD(call_tool), FGPY_KW,
     "tool(op_id, state, idempotent=False, *, attempt=0, now_ms=None)\n--\n\n"
     "What became of a tool's operation."},
    {"failure", FGPY_METHOD(call_failure), FGPY_KW,
     "failure(evidence, *, attempt=0, now_ms=None)\n--\n\nAn attempt failed; "
     "what now?"},
    {"success", FGPY_METHOD(call_success), FGPY_KW,
     "success(*, prompt_tokens=0, cached_tokens=0, output_tokens=0, "
     "cost_usd=None, finish_reason=None, output=None, visible=0, "
     "tool_calls=None, final=None, attempt=0, now_ms=None)\n--\n\nAn attempt "
     "came to its end by itself; is the answer good?"},
    {"deadline", FGPY_METHOD(call_deadline), FGPY_KW,
     "deadline(now_ms=None)\n--\n\nNothing happened until now."},
    {"unable", FGPY_METHOD(call_unable), FGPY_KW,
     "unable(what, *, now_ms=None)\n--\n\nThis host cannot do what was "
     "decided."},
    {"step", FGPY_METHOD(call_step), FGPY_KW,
     "step(prompt_tokens=0, max_output_tokens=0, *, now_ms=None)\n--\n\nThe "
     "next model request of an agent's loop: a checkpoint."},
    {"cancel", FGPY_METHOD(call_cancel), FGPY_KW,
     "cancel(now_ms=None)\n--\n\nNobody waits for the answer any more."},
    {"resolved", FGPY_METHOD(call_resolved), FGPY_KW,
     "resolved(op_id, effect, *, now_ms=None)\n--\n\nA look-up settled what an "
     "operation did."},
    {"end", (PyCFunction)call_end, METH_NOARGS,
     "end()\n--\n\nDropped without a word. Twice is fine."},
    {"save", (PyCFunction)call_save, METH_NOARGS,
     "save()\n--\n\nThe call as bytes for Engine.resume(); this object lets go "
     "of it."},
    {"forget", (PyCFunction)call_forget, METH_NOARGS,
     "forget()\n--\n\nLets go of the call without ending it, as a killed "
     "process does."},
    {"ledger_line", FGPY_METHOD(call_ledger_line), FGPY_KW,
     "ledger_line(line, decision=None, *, now_ms=None)\n--\n\nA line of the "
     "ledger: call, decision or end."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef call_getset[] = {
    {"id", (getter)call_get_id, NULL, "Sent with every attempt.", NULL},
    {"decision", (getter)call_get_decision, NULL, "The latest decision.", NULL},
    {"engine", (getter)call_get_engine, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot call_slots[] = {
    {Py_tp_doc, "One logical request; from Engine.begin(). One thread at a "
                "time."},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_traverse, call_traverse},
    {Py_tp_repr, call_repr},
    {Py_tp_methods, call_methods},
    {Py_tp_getset, call_getset},
    {0, NULL}};

PyType_Spec fgpy_call_spec = {
    .name = "fivegates._core.Call",
    .basicsize = sizeof(fgpy_call),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = call_slots,
};
