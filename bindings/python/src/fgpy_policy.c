/* Policy: a checked and compiled card. Immutable; shared by threads. Loading
 * is the only thing in the extension that asks the core to allocate. */
#include "fgpy_convert.h"

#include <string.h>

/* Offered by core/card beside fg_card_load: vectors may ask for the computed
 * fingerprint. */
#include "fg_card.h"

static void *policy_alloc(void *ctx, uint64_t size) {
  (void)ctx;
  return PyMem_Malloc((size_t)size);
}

static void policy_release(void *ctx, void *ptr) {
  (void)ctx;
  PyMem_Free(ptr);
}

static PyObject *names_of(const fg_policy *block, uint32_t what) {
  uint32_t count = fg_policy_count(block, what);
  PyObject *names = PyTuple_New((Py_ssize_t)count);
  for (uint32_t id = 1; names != NULL && id <= count; id++) {
    fg_str name = {0};
    (void)fg_policy_name(block, what, id, &name);
    PyObject *text =
        PyUnicode_DecodeUTF8(name.ptr, (Py_ssize_t)name.len, "replace");
    if (text != NULL) {
      PyUnicode_InternInPlace(&text);
    }
    if (text == NULL || PyTuple_SetItem(names, (Py_ssize_t)id - 1, text) < 0) {
      Py_CLEAR(names);
    }
  }
  return names;
}

/* JSON text of a card to a Policy. */
static PyObject *load_json(PyTypeObject *type, const char *text, Py_ssize_t len,
                           uint32_t flags) {
  fgpy_state *st = PyType_GetModuleState(type);
  fgpy_policy *self = PyObject_GC_New(fgpy_policy, type);
  if (self == NULL) {
    return NULL;
  }
  self->st = st;
  self->block = NULL;
  self->routes = NULL;
  self->workflows = NULL;
  self->fingerprint = NULL;
  self->mem.alloc = policy_alloc;
  self->mem.free = policy_release;
  self->mem.ctx = NULL;
  fg_error err = {.size = sizeof err};
  int32_t rc = fg_card_load_flags(text, (uint64_t)len, &self->mem, flags,
                                  &self->block, &err);
  if (rc != FG_OK) {
    Py_DECREF(self);
    if (rc == FG_ERR_NOMEM) {
      return PyErr_NoMemory();
    }
    return fgpy_fail_load(st, &err);
  }
  self->routes = names_of(self->block, FG_FIND_ROUTE);
  self->workflows = names_of(self->block, FG_FIND_WORKFLOW);
  fg_str print = {0};
  (void)fg_policy_fingerprint(self->block, &print);
  self->fingerprint =
      PyUnicode_DecodeUTF8(print.ptr, (Py_ssize_t)print.len, "replace");
  if (self->routes == NULL || self->workflows == NULL ||
      self->fingerprint == NULL) {
    Py_DECREF(self);
    return NULL;
  }
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

/* What is not JSON is for fivegates.yaml: it reads the text and loads it. */
static PyObject *by_yaml(PyTypeObject *type, const char *fn, PyObject *arg,
                         int automatic) {
  PyObject *module = PyImport_ImportModule("fivegates.yaml");
  if (module == NULL) {
    return NULL;
  }
  PyObject *out = PyObject_CallMethod(module, fn, "OOO", (PyObject *)type, arg,
                                      automatic ? Py_True : Py_False);
  Py_DECREF(module);
  return out;
}

static int looks_like_json(const char *text, Py_ssize_t len) {
  Py_ssize_t i = 0;
  while (i < len && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' ||
                     text[i] == '\r')) {
    i++;
  }
  return i == len || text[i] == '{' || text[i] == '[';
}

static PyObject *load_source(PyTypeObject *type, PyObject *source,
                             int automatic, int json_only) {
  fgpy_state *st = PyType_GetModuleState(type);
  uint32_t flags = automatic ? FG_CARD_AUTO_FINGERPRINT : 0;
  if (PyDict_Check(source)) {
    PyObject *text = PyObject_CallFunctionObjArgs(st->json_dumps, source, NULL);
    if (text == NULL) {
      return NULL;
    }
    Py_ssize_t len = 0;
    const char *raw = PyUnicode_AsUTF8AndSize(text, &len);
    PyObject *out = raw ? load_json(type, raw, len, flags) : NULL;
    Py_DECREF(text);
    return out;
  }
  if (PyUnicode_Check(source) || PyBytes_Check(source)) {
    Py_ssize_t len = 0;
    char *bytes = NULL;
    const char *raw = NULL;
    if (PyUnicode_Check(source)) {
      raw = PyUnicode_AsUTF8AndSize(source, &len);
    } else if (PyBytes_AsStringAndSize(source, &bytes, &len) == 0) {
      raw = bytes;
    }
    if (raw == NULL) {
      return NULL;
    }
    if (json_only || looks_like_json(raw, len)) {
      return load_json(type, raw, len, flags);
    }
    return by_yaml(type, "load_text", source, automatic);
  }
  if (PyObject_HasAttrString(source, "__fspath__")) {
    return by_yaml(type, "load_file", source, automatic);
  }
  PyErr_SetString(PyExc_TypeError,
                  "a card is a dict, text in JSON or YAML, or a path");
  return NULL;
}

static const char *const source_names[] = {"source", "auto_fingerprint",
                                           "json"};

static PyObject *policy_loads(PyObject *type, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Policy.loads", source_names, 3, 1, 1};
  PyObject *in[3];
  int automatic = 0, json_only = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_bool(in[1], "auto_fingerprint", &automatic) < 0 ||
      fgpy_bool(in[2], "json", &json_only) < 0) {
    return NULL;
  }
  if (!PyDict_Check(in[0]) && !PyUnicode_Check(in[0]) &&
      !PyBytes_Check(in[0])) {
    PyErr_SetString(PyExc_TypeError,
                    "Policy.loads() takes text or a dict; a file is for "
                    "Policy.load()");
    return NULL;
  }
  return load_source((PyTypeObject *)type, in[0], automatic, json_only);
}

static PyObject *policy_load(PyObject *type, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Policy.load", source_names, 2, 1, 1};
  PyObject *in[2];
  int automatic = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_bool(in[1], "auto_fingerprint", &automatic) < 0) {
    return NULL;
  }
  return by_yaml((PyTypeObject *)type, "load_file", in[0], automatic);
}

static PyObject *policy_new(PyTypeObject *type, PyObject *args,
                            PyObject *kwargs) {
  static char *names[] = {"source", NULL};
  PyObject *source = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Policy", names, &source)) {
    return NULL;
  }
  if (PyUnicode_Check(source)) { /* one line that is no JSON: a path */
    Py_ssize_t len = 0;
    const char *text = PyUnicode_AsUTF8AndSize(source, &len);
    if (text == NULL) {
      return NULL;
    }
    if (memchr(text, '\n', (size_t)len) == NULL &&
        !looks_like_json(text, len)) {
      return by_yaml(type, "load_file", source, 0);
    }
  }
  return load_source(type, source, 0, 0);
}

static int policy_traverse(fgpy_policy *self, visitproc visit, void *arg) {
  FGPY_VISIT_TYPE(self);
  return 0;
}

static void policy_dealloc(fgpy_policy *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (self->block != NULL) {
    fg_policy_free(self->block, &self->mem);
  }
  Py_XDECREF(self->routes);
  Py_XDECREF(self->workflows);
  Py_XDECREF(self->fingerprint);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

/* ---- reading ---- */

int fgpy_policy_arg(fgpy_state *st, PyObject *value, fgpy_policy **out) {
  *out = NULL;
  if (value == NULL || value == Py_None) {
    return 0;
  }
  if (!Py_IS_TYPE(value, st->policy_type)) {
    PyErr_SetString(PyExc_TypeError, "policy must be a Policy");
    return -1;
  }
  *out = (fgpy_policy *)value;
  return 0;
}

PyObject *fgpy_policy_route_name(fgpy_policy *policy, uint32_t route) {
  if (route == 0 || policy == NULL ||
      (Py_ssize_t)route > PyTuple_Size(policy->routes)) {
    Py_RETURN_NONE;
  }
  PyObject *name = PyTuple_GetItem(policy->routes, (Py_ssize_t)route - 1);
  Py_XINCREF(name);
  return name;
}

/* The id of a name, or 0 with a KeyError. */
static uint32_t find(fgpy_policy *self, uint32_t what, PyObject *name,
                     const char *kind) {
  Py_ssize_t len = 0;
  const char *text =
      PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &len) : NULL;
  if (text == NULL) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_TypeError, "a %s is named by a str", kind);
    }
    return 0;
  }
  uint32_t id = len <= FG_NAME_MAX
                    ? fg_policy_find(self->block, what, text, (uint32_t)len)
                    : 0;
  if (id == 0) {
    PyErr_Format(PyExc_KeyError, "the card has no %s %R", kind, name);
  }
  return id;
}

static PyObject *text_of(fg_str s) {
  if (s.len == 0) {
    Py_RETURN_NONE;
  }
  return PyUnicode_DecodeUTF8(s.ptr, (Py_ssize_t)s.len, "replace");
}

static PyObject *price_of(int64_t nusd) {
  if (nusd < 0) {
    Py_RETURN_NONE;
  }
  return PyLong_FromLongLong(nusd);
}

static PyObject *policy_route(fgpy_policy *self, PyObject *name) {
  uint32_t id = find(self, FG_FIND_ROUTE, name, "route");
  if (id == 0) {
    return NULL;
  }
  fg_route_info info = {.size = sizeof info};
  int32_t rc = fg_policy_route_info(self->block, id, &info);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "route");
  }
  return Py_BuildValue(
      "{sN,sN,sN,sN,sN,sN,sN,s{sN,sN,sN}}", "name", text_of(info.name),
      "provider", text_of(info.provider), "model", text_of(info.model),
      "base_url", text_of(info.base_url), "key_env", text_of(info.key_env),
      "account", text_of(info.account_name), "api", text_of(info.api),
      "price_nusd_per_million", "input", price_of(info.price_input),
      "cached_input", price_of(info.price_cached), "output",
      price_of(info.price_output));
}

static PyObject *policy_routes(fgpy_policy *self, PyObject *unused) {
  (void)unused;
  Py_INCREF(self->routes);
  return self->routes;
}

static PyObject *policy_workflows(fgpy_policy *self, PyObject *unused) {
  (void)unused;
  Py_INCREF(self->workflows);
  return self->workflows;
}

static PyObject *policy_lint(fgpy_policy *self, PyObject *unused) {
  (void)unused;
  PyObject *all = PyList_New(0);
  for (uint32_t i = 0; all != NULL; i++) {
    fg_error e = {.size = sizeof e};
    if (fg_policy_lint(self->block, i, &e) != FG_OK) {
      break;
    }
    PyObject *one =
        Py_BuildValue("{ss,ss,sI,sI}", "path", e.path, "message", e.message,
                      "line", e.line, "column", e.column);
    if (one == NULL || PyList_Append(all, one) < 0) {
      Py_CLEAR(all);
    }
    Py_XDECREF(one);
  }
  return all;
}

static const char *const contract_names[] = {"workflow", "route"};

static PyObject *policy_contract(fgpy_policy *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Policy.contract", contract_names, 2, 2, 2};
  PyObject *in[2];
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0) {
    return NULL;
  }
  uint32_t workflow = find(self, FG_FIND_WORKFLOW, in[0], "workflow");
  uint32_t route = workflow ? find(self, FG_FIND_ROUTE, in[1], "route") : 0;
  if (route == 0) {
    return NULL;
  }
  uint32_t barred = 0;
  fg_str print = {0};
  int32_t rc =
      fg_policy_contract(self->block, workflow, route, &barred, &print);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "contract");
  }
  PyObject *why = Py_None;
  Py_INCREF(why);
  if (barred != 0) {
    Py_DECREF(why);
    why = fgpy_name(self->st, FG_TABLE_REASON, barred);
  }
  return Py_BuildValue("{sO,sN,sN}", "approved",
                       barred == 0 ? Py_True : Py_False, "barred", why,
                       "fingerprint", text_of(print));
}

static const char *const drops_names[] = {"workflow", "route", "tool"};

static PyObject *policy_drops_tool(fgpy_policy *self, PyObject *const *args,
                                   Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Policy.drops_tool", drops_names, 3, 3, 3};
  PyObject *in[3];
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0) {
    return NULL;
  }
  uint32_t workflow = find(self, FG_FIND_WORKFLOW, in[0], "workflow");
  uint32_t route = workflow ? find(self, FG_FIND_ROUTE, in[1], "route") : 0;
  if (route == 0) {
    return NULL;
  }
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->st);
  fg_str tool = {0};
  PyObject *result = NULL;
  if (fgpy_str(&keep, in[2], "tool", &tool) == 0) {
    int32_t rc = fg_policy_drops_tool(self->block, workflow, route, tool.ptr,
                                      tool.len);
    result = rc < 0 ? fgpy_fail(self->st, rc, "drops_tool")
                    : PyBool_FromLong(rc);
  }
  fgpy_keep_drop(&keep);
  return result;
}

static const char *const text_names[] = {"text", "language"};

static PyObject *policy_text(fgpy_policy *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Policy.text", text_names, 2, 2, 1};
  PyObject *in[2];
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->st);
  uint32_t text = 0;
  fg_str language = {0}, out = {0};
  PyObject *result = NULL;
  if (fgpy_args(&sig, args, nargs, kwnames, in) == 0 &&
      fgpy_u32(in[0], "text", &text) == 0 &&
      fgpy_str(&keep, in[1], "language", &language) == 0) {
    int32_t rc =
        fg_policy_preset(self->block, text, language.ptr, language.len, &out);
    result = rc == FG_OK ? text_of(out) : fgpy_fail(self->st, rc, "text");
  }
  fgpy_keep_drop(&keep);
  return result;
}

static PyObject *policy_rule_why(fgpy_policy *self, PyObject *arg) {
  uint32_t rule = 0;
  if (fgpy_u32(arg, "rule", &rule) < 0) {
    return NULL;
  }
  return PyUnicode_FromString(fg_rule_why(self->block, rule));
}

static PyObject *policy_get_fingerprint(fgpy_policy *self, void *closure) {
  (void)closure;
  Py_INCREF(self->fingerprint);
  return self->fingerprint;
}

static PyObject *policy_get_bytes(fgpy_policy *self, void *closure) {
  (void)closure;
  return PyLong_FromUnsignedLongLong(fg_policy_bytes(self->block));
}

static PyObject *policy_repr(fgpy_policy *self) {
  return PyUnicode_FromFormat("<Policy %zd workflows, %zd routes, %U>",
                              PyTuple_Size(self->workflows),
                              PyTuple_Size(self->routes), self->fingerprint);
}

static PyMethodDef policy_methods[] = {
    {"load", FGPY_METHOD(policy_load), FGPY_KW | METH_CLASS,
     "load(path)\n--\n\nThe card in a file, JSON or YAML."},
    {"loads", FGPY_METHOD(policy_loads), FGPY_KW | METH_CLASS,
     "loads(source, *, auto_fingerprint=False, json=False)\n--\n\nThe card in "
     "a text (JSON or YAML; json: only JSON) or a dict."},
    {"route", FGPY_METHOD(policy_route), METH_O,
     "route(name)\n--\n\nWhat the card says of a route, as a dict."},
    {"routes", FGPY_METHOD(policy_routes), METH_NOARGS,
     "routes()\n--\n\nNames of the routes."},
    {"workflows", FGPY_METHOD(policy_workflows), METH_NOARGS,
     "workflows()\n--\n\nNames of the workflows."},
    {"lint", FGPY_METHOD(policy_lint), METH_NOARGS,
     "lint()\n--\n\nWarnings, each with path, message, line, column."},
    {"contract", FGPY_METHOD(policy_contract), FGPY_KW,
     "contract(workflow, route)\n--\n\nWhether a route may stand in: approved, "
     "barred, fingerprint. Dates are not looked at."},
    {"drops_tool", FGPY_METHOD(policy_drops_tool), FGPY_KW,
     "drops_tool(workflow, route, tool)\n--\n\nWhether a contract's changes "
     "take this tool out of a request to the route."},
    {"text", FGPY_METHOD(policy_text), FGPY_KW,
     "text(text, language=None)\n--\n\nA preset text of the card."},
    {"rule_why", FGPY_METHOD(policy_rule_why), METH_O,
     "rule_why(rule)\n--\n\nOne line on a classification rule."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef policy_getset[] = {
    {"fingerprint", (getter)policy_get_fingerprint, NULL,
     "\"sha256:...\" of the card's meaning.", NULL},
    {"nbytes", (getter)policy_get_bytes, NULL, "Size of the compiled card.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot policy_slots[] = {
    {Py_tp_doc, "Policy(source)\n--\n\nA checked and compiled card: from a "
                "path, a text in JSON or YAML, or a dict."},
    {Py_tp_new, policy_new},
    {Py_tp_dealloc, policy_dealloc},
    {Py_tp_traverse, policy_traverse},
    {Py_tp_repr, policy_repr},
    {Py_tp_methods, policy_methods},
    {Py_tp_getset, policy_getset},
    {0, NULL}};

PyType_Spec fgpy_policy_spec = {
    .name = "fivegates._core.Policy",
    .basicsize = sizeof(fgpy_policy),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = policy_slots,
};
