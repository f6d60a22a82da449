/* Decision: an answer of the engine. Numbers are members of the struct inside;
 * names are looked up in the module's table; the rest is built when asked. */
#include "fgpy_convert.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

fgpy_decision *fgpy_decision_new(fgpy_state *st, fgpy_policy *policy,
                                 fgpy_engine *engine, fgpy_box *box) {
  fgpy_decision *self = PyObject_GC_New(fgpy_decision, st->decision_type);
  if (self == NULL) {
    return NULL;
  }
  self->st = st;
  self->policy = policy;
  self->engine = engine;
  self->box = box;
  self->language = NULL;
  Py_XINCREF((PyObject *)policy);
  Py_XINCREF((PyObject *)engine);
  if (box != NULL) {
    box->refs++;
  }
  memset(&self->d, 0, sizeof self->d);
  self->d.size = sizeof self->d;
  PyObject_GC_Track(self);
  return self;
}

static int decision_traverse(fgpy_decision *self, visitproc visit, void *arg) {
  FGPY_VISIT_TYPE(self);
  Py_VISIT((PyObject *)self->policy);
  Py_VISIT((PyObject *)self->engine);
  return 0;
}

static int decision_clear(fgpy_decision *self) {
  Py_CLEAR(self->policy);
  Py_CLEAR(self->engine);
  Py_CLEAR(self->language);
  return 0;
}

static void decision_dealloc(fgpy_decision *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  (void)decision_clear(self);
  if (self->box != NULL) {
    fgpy_box_drop(self->box);
  }
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

/* ---- text ---- */

/* Runs a text function of the core: in a small buffer first. */
static PyObject *text_of(fgpy_decision *self, int explain) {
  char small[2048];
  const fg_policy *policy = self->policy ? self->policy->block : NULL;
  const fg_engine *engine = self->engine ? self->engine->engine : NULL;
  const fg_call *call = self->box ? &self->box->call : NULL;
  uint32_t need = explain
                      ? fg_explain(engine, call, &self->d, small, sizeof small)
                      : fg_decision_json(policy, &self->d, small, sizeof small);
  if (need < sizeof small) {
    return PyUnicode_DecodeUTF8(small, (Py_ssize_t)need, "replace");
  }
  char *big = PyMem_Malloc((size_t)need + 1);
  if (big == NULL) {
    return PyErr_NoMemory();
  }
  uint32_t len = explain ? fg_explain(engine, call, &self->d, big, need + 1)
                         : fg_decision_json(policy, &self->d, big, need + 1);
  PyObject *out = PyUnicode_DecodeUTF8(
      big, (Py_ssize_t)(len < need ? len : need), "replace");
  PyMem_Free(big);
  return out;
}

static PyObject *decision_json(fgpy_decision *self, PyObject *unused) {
  (void)unused;
  return text_of(self, 0);
}

static PyObject *decision_explain(fgpy_decision *self, PyObject *unused) {
  (void)unused;
  return text_of(self, 1);
}

static PyObject *decision_to_dict(fgpy_decision *self, PyObject *unused) {
  (void)unused;
  PyObject *text = text_of(self, 0);
  PyObject *out = text ? fgpy_from_json(self->st, text) : NULL;
  Py_XDECREF(text);
  return out;
}

static PyObject *decision_repr(fgpy_decision *self) {
  PyObject *action = fgpy_name(self->st, FG_TABLE_ACTION, self->d.action);
  PyObject *reason = fgpy_name(self->st, FG_TABLE_REASON, self->d.reason);
  PyObject *route = fgpy_policy_route_name(self->policy, self->d.route);
  PyObject *out = NULL;
  if (action != NULL && reason != NULL && route != NULL) {
    out = route == Py_None
              ? PyUnicode_FromFormat("<Decision %U, wait_ms=%u, reason=%U>",
                                     action, (unsigned)self->d.wait_ms, reason)
              : PyUnicode_FromFormat("<Decision %U %R, wait_ms=%u, reason=%U>",
                                     action, route, (unsigned)self->d.wait_ms,
                                     reason);
  }
  Py_XDECREF(action);
  Py_XDECREF(reason);
  Py_XDECREF(route);
  return out;
}

/* ---- fields ---- */

/* Closures of the getters below: an offset and a table in one word. */
#define FIELD(field, table) \
  ((void *)(uintptr_t)(offsetof(fg_decision, field) | (uintptr_t)(table) << 16))

static uint32_t field_at(fgpy_decision *self, void *closure) {
  size_t offset = (uintptr_t)closure & 0xffff;
  return *(const uint32_t *)(const void *)((const char *)&self->d + offset);
}

static PyObject *get_name(fgpy_decision *self, void *closure) {
  return fgpy_name(self->st, (uint32_t)((uintptr_t)closure >> 16),
                   field_at(self, closure));
}

/* As above, None for the table's 0. */
static PyObject *get_name_or_none(fgpy_decision *self, void *closure) {
  uint32_t value = field_at(self, closure);
  if (value == 0) {
    Py_RETURN_NONE;
  }
  return fgpy_name(self->st, (uint32_t)((uintptr_t)closure >> 16), value);
}

static PyObject *get_names(fgpy_decision *self, void *closure) {
  uint32_t bits = field_at(self, closure);
  PyObject *all = PyList_New(0);
  for (uint32_t bit = 0; all != NULL && bit < 32; bit++) {
    if ((bits >> bit & 1) != 0) {
      PyObject *name =
          fgpy_name(self->st, (uint32_t)((uintptr_t)closure >> 16), bit);
      if (name == NULL || PyList_Append(all, name) < 0) {
        Py_CLEAR(all);
      }
      Py_XDECREF(name);
    }
  }
  return all;
}

static PyObject *get_route(fgpy_decision *self, void *closure) {
  return fgpy_policy_route_name(self->policy, field_at(self, closure));
}

static PyObject *get_bool(fgpy_decision *self, void *closure) {
  return PyBool_FromLong(field_at(self, closure) != 0);
}

/* A *_left: None is no limit. */
static PyObject *get_left(fgpy_decision *self, void *closure) {
  uint32_t left = field_at(self, closure);
  if (left == UINT32_MAX) {
    Py_RETURN_NONE;
  }
  return PyLong_FromUnsignedLong(left);
}

static PyObject *get_cost_left(fgpy_decision *self, void *closure) {
  (void)closure;
  if (self->d.cost_left_nusd == INT64_MAX) {
    Py_RETURN_NONE;
  }
  return PyLong_FromLongLong(self->d.cost_left_nusd);
}

static PyObject *get_rejected(fgpy_decision *self, void *closure) {
  (void)closure;
  uint32_t count = self->d.rejected_count < 16 ? self->d.rejected_count : 16;
  PyObject *all = PyList_New(0);
  for (uint32_t i = 0; all != NULL && i < count; i++) {
    uint32_t route = self->d.rejected[i] & 0xffff;
    uint32_t why = self->d.rejected[i] >> 16;
    PyObject *one = Py_BuildValue(
        "{sN,sN}", "route", fgpy_policy_route_name(self->policy, route), "why",
        fgpy_name(self->st, FG_TABLE_REASON, why));
    if (one == NULL || PyList_Append(all, one) < 0) {
      Py_CLEAR(all);
    }
    Py_XDECREF(one);
  }
  return all;
}

/* A nested part, as the JSON has it. */
static PyObject *get_part(fgpy_decision *self, void *closure) {
  PyObject *all = decision_to_dict(self, NULL);
  PyObject *part =
      all && PyDict_Check(all) ? PyDict_GetItemString(all, closure) : NULL;
  if (all != NULL && part == NULL) {
    part = Py_None;
  }
  Py_XINCREF(part);
  Py_XDECREF(all);
  return part;
}

static PyObject *get_text(fgpy_decision *self, void *closure) {
  (void)closure;
  if (self->d.text == 0 || self->policy == NULL) {
    Py_RETURN_NONE;
  }
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->st);
  fg_str language = {0}, out = {0};
  int32_t rc = FG_ERR_ARG;
  if (fgpy_str(&keep, self->language, "language", &language) == 0) {
    rc = fg_policy_preset(self->policy->block, self->d.text, language.ptr,
                          language.len, &out);
  }
  fgpy_keep_drop(&keep);
  if (rc != FG_OK) {
    Py_RETURN_NONE;
  }
  return PyUnicode_DecodeUTF8(out.ptr, (Py_ssize_t)out.len, "replace");
}

#define NUMBER(name) \
  { #name, T_UINT, offsetof(fgpy_decision, d.name), READONLY, NULL }
static PyMemberDef decision_members[] = {
    NUMBER(attempt),
    NUMBER(wait_ms),
    NUMBER(wake_ms),
    NUMBER(step),
    NUMBER(cancel),
    NUMBER(connect_ms),
    NUMBER(first_token_ms),
    NUMBER(idle_ms),
    NUMBER(progress_ms),
    NUMBER(total_ms),
    NUMBER(max_tokens),
    NUMBER(compact_tokens),
    NUMBER(max_age_s),
    NUMBER(reuse_ops),
    NUMBER(hint_status),
    NUMBER(hint_retry_after_ms),
    {"route_id", T_UINT, offsetof(fgpy_decision, d.route), READONLY, NULL},
    {"text_id", T_UINT, offsetof(fgpy_decision, d.text), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
#undef NUMBER

#define NAME(name, table) \
  { #name, (getter)get_name, NULL, NULL, FIELD(name, FG_TABLE_##table) }
#define GET(name, how, field, table) \
  { #name, (getter)(how), NULL, NULL, FIELD(field, table) }
static PyGetSetDef decision_getset[] = {
    NAME(action, ACTION),
    NAME(reason, REASON),
    NAME(gate, GATE),
    NAME(owner, OWNER),
    NAME(kind, KIND),
    NAME(resume_from, RESUME),
    NAME(lookup, LOOKUP),
    NAME(repair, REPAIR),
    NAME(detail, REASON),
    GET(ladder_step, get_name_or_none, ladder_step, FG_TABLE_STEP),
    GET(route, get_route, route, 0),
    GET(requested, get_route, requested, 0),
    GET(change, get_names, change, FG_TABLE_CHANGE),
    GET(alert, get_names, alert, FG_TABLE_ALERT),
    GET(may_pay_twice, get_bool, may_pay_twice, 0),
    GET(user_may_retry, get_bool, user_may_retry, 0),
    GET(hint_should_retry, get_bool, hint_should_retry, 0),
    GET(attempts_left, get_left, attempts_left, 0),
    GET(elapsed_left_ms, get_left, elapsed_left_ms, 0),
    GET(tokens_left, get_left, tokens_left, 0),
    {"cost_left_nusd", (getter)get_cost_left, NULL, NULL, NULL},
    {"rejected", (getter)get_rejected, NULL, NULL, NULL},
    {"timeouts", (getter)get_part, NULL, NULL, "timeouts"},
    {"request_changes", (getter)get_part, NULL, NULL, "request_changes"},
    {"user", (getter)get_part, NULL, NULL, "user"},
    {"http_hint", (getter)get_part, NULL, NULL, "http_hint"},
    {"label", (getter)get_part, NULL, NULL, "label"},
    {"text", (getter)get_text, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};
#undef NAME
#undef GET

static PyMethodDef decision_methods[] = {
    {"json", (PyCFunction)decision_json, METH_NOARGS,
     "json()\n--\n\nThe decision as compact JSON: the ledger's form."},
    {"to_dict", (PyCFunction)decision_to_dict, METH_NOARGS,
     "to_dict()\n--\n\nThe decision as a dict, in the ledger's form."},
    {"explain", (PyCFunction)decision_explain, METH_NOARGS,
     "explain()\n--\n\nThe five gates for it, in plain words."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot decision_slots[] = {{Py_tp_doc, "What to do now."},
                                       {Py_tp_dealloc, decision_dealloc},
                                       {Py_tp_traverse, decision_traverse},
                                       {Py_tp_clear, decision_clear},
                                       {Py_tp_repr, decision_repr},
                                       {Py_tp_methods, decision_methods},
                                       {Py_tp_members, decision_members},
                                       {Py_tp_getset, decision_getset},
                                       {0, NULL}};

PyType_Spec fgpy_decision_spec = {
    .name = "fivegates._core.Decision",
    .basicsize = sizeof(fgpy_decision),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = decision_slots,
};
