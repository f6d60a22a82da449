/* Call: one logical request of the business, from begin to its end. */
#include "fgpy_convert.h"

#include "fg_call_replay.h"

#include <string.h>

/* ---- making and ending ---- */

void fgpy_box_drop(fgpy_box *box) {
  if (--box->refs == 0) {
    PyMem_Free(box);
  }
}

fgpy_call *fgpy_call_new(fgpy_engine *engine) {
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
int fgpy_call_ready(fgpy_call *self, PyObject *now, int64_t *now_ms) {
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
      fgpy_call_ready(self, in[3], &now_ms) < 0) {
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
      fgpy_call_ready(self, in[4], &now_ms) == 0) {
    out =
        done(self,
             fg_call_tool(self->engine->engine, &self->box->call, attempt,
                          op.ptr, op.len, state, (uint32_t)idempotent, now_ms),
             "tool");
  }
  fgpy_keep_drop(&keep);
  return out;
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
  if (fgpy_answer(&keep, "usage", args, kwnames, &a, &attempt, &now,
                  &reported) == 0 &&
      fgpy_call_ready(self, now, &now_ms) == 0) {
    out = done(self,
               fg_call_usage(self->engine->engine, &self->box->call, attempt,
                             &a, now_ms),
               "usage");
  }
  fgpy_keep_drop(&keep);
  return out;
}

/* ---- decisions ---- */

PyObject *fgpy_call_succeeded(fgpy_call *self, uint32_t attempt,
                              const fg_answer *a, int64_t now_ms) {
  fgpy_decision *d = decision_of(self);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = fg_call_success(self->engine->engine, &self->box->call, attempt,
                               a, now_ms, &d->d);
  return answer(self, d, rc, "success");
}

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
  if (fgpy_answer(&keep, "success", args, kwnames, &a, &attempt, &now,
                  &reported) == 0 &&
      fgpy_call_ready(self, now, &now_ms) == 0) {
    a.flags |= reported ? FG_ANSWER_USAGE_FINAL : 0;
    out = fgpy_call_succeeded(self, attempt, &a, now_ms);
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
      fgpy_call_ready(self, in[2], &now_ms) == 0) {
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

/* ---- a recorded call, decided again ---- */

static const char *const judged_names[] = {"failure", "inner", "status",
                                           "now_ms"};

static PyObject *call_judged(fgpy_call *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call._judged", judged_names, 4, 4, 4};
  PyObject *in[4];
  fg_failure f;
  uint32_t inner = 0, status = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_failure_facts(self->engine->st, in[0], &f) < 0 ||
      fgpy_u32(in[1], "inner", &inner) < 0 ||
      fgpy_u32(in[2], "status", &status) < 0 ||
      fgpy_call_ready(self, in[3], &now_ms) < 0) {
    return NULL;
  }
  fgpy_decision *d = decision_of(self);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = fg_replay_failure(self->engine->engine, &self->box->call, &f,
                                 inner, status, now_ms, &d->d);
  return answer(self, d, rc, "failure");
}

static const char *const answered_names[] = {
    "rejected", "prompt_tokens", "output_tokens", "cost_nusd", "now_ms"};

/* rejected: the kind of failure the output check made of it, or None. */
static PyObject *call_answered(fgpy_call *self, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call._answered", answered_names, 5, 5, 5};
  PyObject *in[5];
  fg_answer a = {.size = sizeof a, .flags = FG_ANSWER_USAGE_FINAL};
  uint32_t verdict = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_word(self->engine->st, FG_TABLE_KIND, in[0], "rejected", &verdict) <
          0 ||
      fgpy_u32(in[1], "prompt_tokens", &a.prompt_tokens) < 0 ||
      fgpy_u32(in[2], "output_tokens", &a.output_tokens) < 0 ||
      fgpy_i64(in[3], "cost_nusd", &a.cost_nusd) < 0 ||
      fgpy_call_ready(self, in[4], &now_ms) < 0) {
    return NULL;
  }
  fgpy_decision *d = decision_of(self);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = fg_replay_success(self->engine->engine, &self->box->call, 0, &a,
                                 &verdict, now_ms, &d->d);
  return answer(self, d, rc, "success");
}

fgpy_decision *fgpy_call_permit(fgpy_call *self, int64_t now_ms) {
  fgpy_decision *d = decision_of(self);
  if (d == NULL) {
    return NULL;
  }
  int32_t rc = fg_call_begin_attempt(self->engine->engine, &self->box->call,
                                     now_ms, &d->d);
  return (fgpy_decision *)answer(self, d, rc, "begin_attempt");
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
      fgpy_call_ready(self, in[0], &now_ms) < 0) {
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
      fgpy_call_ready(self, in[1], &now_ms) < 0) {
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
      fgpy_call_ready(self, in[2], &now_ms) < 0) {
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
      fgpy_call_ready(self, in[2], &now_ms) == 0) {
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

/* ---- end ---- */

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
    {"chat_success", FGPY_METHOD(fgpy_call_chat_success), FGPY_KW,
     "chat_success(body, headers=None, *, attempt=0, now_ms=None)\n--\n\n"
     "success() by the bytes of a whole chat completion with one choice and "
     "nothing but text; None for others, and nothing is told. headers: of the "
     "response, a list of (name, lower name, value) in bytes; a body that they "
     "say is encoded is another."},
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
    {"save", (PyCFunction)fgpy_call_save, METH_NOARGS,
     "save()\n--\n\nThe call as bytes for Engine.resume(); this object lets go "
     "of it."},
    {"forget", (PyCFunction)call_forget, METH_NOARGS,
     "forget()\n--\n\nLets go of the call without ending it, as a killed "
     "process does."},
    {"ledger_line", FGPY_METHOD(fgpy_call_ledger_line), FGPY_KW,
     "ledger_line(line, decision=None, *, now_ms=None, response_id=None, "
     "request_id=None)\n--\n\nA line of the ledger: call, decision or end. The "
     "provider's ids go into the line of a decision that ended an attempt; one "
     "that is no printable ASCII of 1 to 128 characters is left out."},
    {"_judged", FGPY_METHOD(call_judged), FGPY_KW, NULL},
    {"_answered", FGPY_METHOD(call_answered), FGPY_KW, NULL},
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
