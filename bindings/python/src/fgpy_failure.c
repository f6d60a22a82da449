/* Failure: what classify() makes of evidence. */
#include "fgpy_convert.h"

#include <stddef.h>

PyObject *fgpy_failure_new(fgpy_state *st, fgpy_policy *policy,
                           const fg_failure *f) {
  fgpy_failure *self = PyObject_GC_New(fgpy_failure, st->failure_type);
  if (self == NULL) {
    return NULL;
  }
  self->st = st;
  self->policy = policy;
  Py_XINCREF((PyObject *)policy);
  self->f = *f;
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

static const char *const classify_names[] = {"evidence", "policy"};

PyObject *fgpy_classify(PyObject *module, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"classify", classify_names, 2, 2, 1};
  fgpy_state *st = PyModule_GetState(module);
  PyObject *in[2];
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0) {
    return NULL;
  }
  fgpy_policy *policy = NULL;
  if (fgpy_policy_arg(st, in[1], &policy) < 0) {
    return NULL;
  }
  fgpy_keep keep;
  fgpy_keep_init(&keep, st);
  fg_evidence e;
  PyObject *out = NULL;
  uint32_t attempt = 0;
  if (fgpy_evidence(&keep, in[0], &e, &attempt) == 0) {
    fg_failure f = {.size = sizeof f};
    int32_t rc = fg_classify(policy ? policy->block : NULL, &e, &f);
    out = rc == FG_OK ? fgpy_failure_new(st, policy, &f)
                      : fgpy_fail(st, rc, "classify");
  }
  fgpy_keep_drop(&keep);
  return out;
}

static int failure_traverse(fgpy_failure *self, visitproc visit, void *arg) {
  FGPY_VISIT_TYPE(self);
  Py_VISIT((PyObject *)self->policy);
  return 0;
}

static int failure_clear(fgpy_failure *self) {
  Py_CLEAR(self->policy);
  return 0;
}

static void failure_dealloc(fgpy_failure *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  (void)failure_clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

/* ---- fields ---- */

#define FIELD(field, table) \
  ((void *)(uintptr_t)(offsetof(fg_failure, field) | (uintptr_t)(table) << 16))

static PyObject *get_name(fgpy_failure *self, void *closure) {
  size_t offset = (uintptr_t)closure & 0xffff;
  const void *at = (const char *)&self->f + offset;
  return fgpy_name(self->st, (uint32_t)((uintptr_t)closure >> 16),
                   *(const uint32_t *)at);
}

static PyObject *get_flag(fgpy_failure *self, void *closure) {
  return PyBool_FromLong((self->f.flags & (uintptr_t)closure) != 0);
}

static PyObject *get_retry_after(fgpy_failure *self, void *closure) {
  (void)closure;
  if ((self->f.flags & FG_FAIL_HAS_RETRY_AFTER) == 0) {
    Py_RETURN_NONE;
  }
  return PyLong_FromUnsignedLong(self->f.retry_after_ms);
}

static PyObject *get_should_retry(fgpy_failure *self, void *closure) {
  (void)closure;
  if ((self->f.flags & FG_FAIL_SHOULD_RETRY) != 0) {
    Py_RETURN_TRUE;
  }
  if ((self->f.flags & FG_FAIL_MUST_NOT_RETRY) != 0) {
    Py_RETURN_FALSE;
  }
  Py_RETURN_NONE;
}

static PyObject *get_rule(fgpy_failure *self, void *closure) {
  (void)closure;
  return PyLong_FromUnsignedLong(self->f.rule);
}

static PyObject *get_why(fgpy_failure *self, void *closure) {
  (void)closure;
  const fg_policy *policy = self->policy ? self->policy->block : NULL;
  return PyUnicode_FromString(fg_rule_why(policy, self->f.rule));
}

#define NAME(name, field, table) \
  { name, (getter)get_name, NULL, NULL, FIELD(field, FG_TABLE_##table) }
#define FLAG(name, bit) \
  { name, (getter)get_flag, NULL, NULL, (void *)(uintptr_t)(FG_FAIL_##bit) }
/* to_dict() lists the first WIRE of them, in this order. */
enum {
  WIRE = 15
};
static PyGetSetDef failure_getset[] = {
    NAME("owner", owner, OWNER),
    NAME("kind", kind, KIND),
    NAME("class_", klass, CLASS),
    FLAG("overload", OVERLOAD),
    FLAG("trips_breaker", TRIPS_BREAKER),
    {"retry_after_ms", (getter)get_retry_after, NULL, NULL, NULL},
    NAME("period", period, PERIOD),
    {"should_retry", (getter)get_should_retry, NULL, NULL, NULL},
    NAME("billed", billed, BILLED),
    NAME("commit", commit, COMMIT),
    NAME("scope", scope, SCOPE),
    NAME("repair", repair, REPAIR),
    FLAG("never_sent", NEVER_SENT),
    FLAG("silent", SILENT),
    FLAG("local_fault", LOCAL_FAULT),
    {"rule", (getter)get_rule, NULL, "Number of the rule that matched.", NULL},
    {"why", (getter)get_why, NULL, "One line on that rule.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
#undef NAME
#undef FLAG

static PyObject *failure_to_dict(fgpy_failure *self, PyObject *unused) {
  (void)unused;
  PyObject *out = PyDict_New();
  for (int i = 0; out != NULL && i < WIRE; i++) {
    const PyGetSetDef *g = &failure_getset[i];
    const char *key = i == 2 ? "class" : g->name; /* a keyword in Python */
    PyObject *value = g->get((PyObject *)self, g->closure);
    if (value == NULL || PyDict_SetItemString(out, key, value) < 0) {
      Py_CLEAR(out);
    }
    Py_XDECREF(value);
  }
  return out;
}

static PyObject *failure_repr(fgpy_failure *self) {
  PyObject *owner = fgpy_name(self->st, FG_TABLE_OWNER, self->f.owner);
  PyObject *kind = fgpy_name(self->st, FG_TABLE_KIND, self->f.kind);
  PyObject *out = NULL;
  if (owner != NULL && kind != NULL) {
    out = PyUnicode_FromFormat("<Failure %U: %U>", owner, kind);
  }
  Py_XDECREF(owner);
  Py_XDECREF(kind);
  return out;
}

static PyMethodDef failure_methods[] = {
    {"to_dict", (PyCFunction)failure_to_dict, METH_NOARGS,
     "to_dict()\n--\n\nThe failure by the words of cards and ledgers."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot failure_slots[] = {
    {Py_tp_doc, "Evidence, normalised."}, {Py_tp_dealloc, failure_dealloc},
    {Py_tp_traverse, failure_traverse},   {Py_tp_clear, failure_clear},
    {Py_tp_repr, failure_repr},           {Py_tp_methods, failure_methods},
    {Py_tp_getset, failure_getset},       {0, NULL}};

PyType_Spec fgpy_failure_spec = {
    .name = "fivegates._core.Failure",
    .basicsize = sizeof(fgpy_failure),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = failure_slots,
};
