/* fivegates._core: state, names, exceptions, and the check that the compiled
 * core is the one this was written for. */
#include "fgpy_convert.h"

#include <pthread.h>
#include <string.h>

uint32_t fgpy_fork_number;

/* In a child, between fork and its return: nothing but this. */
static void after_fork_in_child(void) {
  fgpy_fork_number++;
}

/* ---- names and errors ---- */

PyObject *fgpy_name(fgpy_state *st, uint32_t table, uint32_t value) {
  PyObject *name = NULL;
  if (table < FGPY_TABLES && value < FGPY_VALUES) {
    name = st->name[table][value];
  }
  if (name == NULL) {
    return PyUnicode_FromFormat("%u", (unsigned)value);
  }
  Py_INCREF(name);
  return name;
}

/* Raises type(message) with .result. */
static PyObject *raise_result(PyObject *type, const char *message,
                              const char *result) {
  PyObject *e = PyObject_CallFunction(type, "ss", message, result);
  if (e != NULL) {
    PyErr_SetObject(type, e);
    Py_DECREF(e);
  }
  return NULL;
}

PyObject *fgpy_fail(fgpy_state *st, int32_t code, const char *what) {
  static const struct {
    int32_t code;
    const char *result, *text;
  } known[] = {
      {FG_ERR_ARG, "arg",
       "an id or value is outside its range, or now_ms is "
       "not a monotonic clock"},
      {FG_ERR_STATE, "state",
       "the call has ended, or belongs to another engine"},
      {FG_ERR_ABI, "abi", "the core is of another version"},
      {FG_ERR_REGION, "region", "the region cannot be used"},
      {FG_ERR_FULL, "full", "no free slot or record is left in the region"},
      {FG_ERR_RANGE, "range", "there is no such entry"},
  };
  if (code == FG_ERR_NOMEM) {
    return PyErr_NoMemory();
  }
  char message[160];
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (known[i].code == code) {
      PyObject *type =
          code == FG_ERR_ARG || code == FG_ERR_RANGE   ? st->argument_error
          : code == FG_ERR_STATE || code == FG_ERR_ABI ? st->state_error
                                                       : st->region_error;
      PyOS_snprintf(message, sizeof message, "%s: %s", what, known[i].text);
      return raise_result(type, message, known[i].result);
    }
  }
  PyOS_snprintf(message, sizeof message, "%s: error %d", what, (int)code);
  return raise_result(st->error, message, "error");
}

PyObject *fgpy_fail_region(fgpy_state *st, int32_t code, const fg_error *err) {
  if (code == FG_ERR_NOMEM) {
    return PyErr_NoMemory();
  }
  if (err->message[0] == 0) {
    return fgpy_fail(st, code, "region");
  }
  char message[320];
  PyOS_snprintf(message, sizeof message, "%s%s%s", err->path,
                err->path[0] ? ": " : "", err->message);
  return raise_result(st->region_error, message,
                      code == FG_ERR_FULL ? "full" : "region");
}

PyObject *fgpy_fail_load(fgpy_state *st, const fg_error *err) {
  PyObject *word = fgpy_name(st, FGPY_LOAD, err->what);
  PyObject *message = PyUnicode_DecodeUTF8(
      err->message, (Py_ssize_t)strnlen(err->message, sizeof err->message),
      "replace");
  PyObject *path = PyUnicode_DecodeUTF8(
      err->path, (Py_ssize_t)strnlen(err->path, sizeof err->path), "replace");
  PyObject *e = NULL;
  if (word != NULL && message != NULL && path != NULL) {
    e = PyObject_CallFunction(st->policy_error, "OOOII", message, word, path,
                              (unsigned)err->line, (unsigned)err->column);
  }
  Py_XDECREF(word);
  Py_XDECREF(message);
  Py_XDECREF(path);
  if (e != NULL) {
    PyErr_SetObject(st->policy_error, e);
    Py_DECREF(e);
  }
  return NULL;
}

PyObject *fgpy_from_json(fgpy_state *st, PyObject *text) {
  return PyObject_CallFunctionObjArgs(st->json_loads, text, NULL);
}

/* ---- functions of the module ---- */

/* The place of a table's words in st->name; FGPY_TABLES when there is none. */
static uint32_t table_named(PyObject *name) {
#define TABLE(n, N, w)                                   \
  if (PyUnicode_CompareWithASCIIString(name, #w) == 0) { \
    return n;                                            \
  }
  FG_TABLE_MAP(TABLE)
#undef TABLE
  return PyUnicode_CompareWithASCIIString(name, "load") == 0 ? FGPY_LOAD
                                                             : FGPY_TABLES;
}

static PyObject *core_names(PyObject *module, PyObject *table) {
  fgpy_state *st = PyModule_GetState(module);
  uint32_t at = PyUnicode_Check(table) ? table_named(table) : FGPY_TABLES;
  if (at == FGPY_TABLES) {
    PyErr_Format(PyExc_ValueError, "no table %R; such as action, owner, reason",
                 table);
    return NULL;
  }
  PyObject *all = PyDict_New();
  for (uint32_t i = 0; all != NULL && i < FGPY_VALUES; i++) {
    PyObject *name = st->name[at][i];
    if (name == NULL) {
      continue;
    }
    PyObject *number = PyLong_FromUnsignedLong(i);
    if (number == NULL || PyDict_SetItem(all, name, number) < 0) {
      Py_CLEAR(all);
    }
    Py_XDECREF(number);
  }
  return all;
}

static PyObject *core_gate_of(PyObject *module, PyObject *reason) {
  fgpy_state *st = PyModule_GetState(module);
  uint32_t number = 0;
  if (fgpy_word(st, FG_TABLE_REASON, reason, "reason", &number) < 0) {
    return NULL;
  }
  return fgpy_name(st, FG_TABLE_GATE, fg_reason_gate(number));
}

static PyMethodDef core_methods[] = {
    {"classify", FGPY_METHOD(fgpy_classify), FGPY_KW,
     "classify(evidence, policy=None)\n--\n\nEvidence of a failed attempt to a "
     "Failure; with a policy its own rules come first."},
    {"decide", FGPY_METHOD(fgpy_decide), FGPY_KW,
     "decide(facts, policy=None)\n--\n\nThe pure kernel: facts to a Decision, "
     "nothing else read."},
    {"chat_answer", (PyCFunction)fgpy_chat_answer, METH_O,
     "chat_answer(body)\n--\n\nsuccess()'s keywords for the bytes of a whole "
     "chat completion with one choice and nothing but text; None for others."},
    {"chat_request", (PyCFunction)fgpy_chat_request, METH_O,
     "chat_request(body)\n--\n\nThe model and begin()'s keywords for the bytes "
     "of a chat completion's request with nothing but text; None for others."},
    {"stamped_headers", (PyCFunction)fgpy_stamped_headers, METH_VARARGS,
     "stamped_headers(headers, call_id, attempt)\n--\n\nA request's headers, a "
     "list of (name, lower name, value) in bytes, with the two of an attempt in "
     "place of any of that name."},
    {"names", (PyCFunction)core_names, METH_O,
     "names(table)\n--\n\nWire names of a table, with their numbers."},
    {"gate_of", (PyCFunction)core_gate_of, METH_O,
     "gate_of(reason)\n--\n\nThe gate a reason belongs to."},
    {NULL, NULL, 0, NULL}};

/* ---- import ---- */

static int check_core(void) {
  static const struct {
    const char *name;
    size_t size;
  } known[] = {
      {"fg_str", sizeof(fg_str)},
      {"fg_header", sizeof(fg_header)},
      {"fg_error", sizeof(fg_error)},
      {"fg_request", sizeof(fg_request)},
      {"fg_evidence", sizeof(fg_evidence)},
      {"fg_failure", sizeof(fg_failure)},
      {"fg_answer", sizeof(fg_answer)},
      {"fg_decision", sizeof(fg_decision)},
      {"fg_facts", sizeof(fg_facts)},
      {"fg_call", sizeof(fg_call)},
      {"fg_sse", sizeof(fg_sse)},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    uint32_t size = fg_sizeof(known[i].name);
    if (size != 0 && size != known[i].size) {
      PyErr_Format(PyExc_ImportError,
                   "fivegates: %s has %u bytes in the core, %zu here; install "
                   "the package again",
                   known[i].name, (unsigned)size, known[i].size);
      return -1;
    }
  }
  return 0;
}

static int fill_names(fgpy_state *st) {
  for (uint32_t table = 1; table < FGPY_TABLES; table++) {
    uint32_t number = table == FGPY_LOAD ? (uint32_t)FG_TABLE_LOAD : table;
    for (uint32_t i = 0; i < FGPY_VALUES; i++) {
      const char *text = fg_name(number, i);
      if (text != NULL) {
        st->name[table][i] = PyUnicode_InternFromString(text);
        if (st->name[table][i] == NULL) {
          return -1;
        }
      }
    }
  }
  return 0;
}

/* A constant for each word: ACTION_RETRY = "retry". */
static int add_constants(PyObject *module, fgpy_state *st) {
  char name[96];
#define CONSTANT(n, N, w, TABLE)                                           \
  PyOS_snprintf(name, sizeof name, "%s_%s", #TABLE, #N);                   \
  if (PyModule_AddObjectRef(module, name, st->name[FG_TABLE_##TABLE][n]) < \
      0) {                                                                 \
    return -1;                                                             \
  }
#define ACTION(n, N, w) CONSTANT(n, N, w, ACTION)
#define OWNER(n, N, w) CONSTANT(n, N, w, OWNER)
#define GATE(n, N, w) CONSTANT(n, N, w, GATE)
#define REASON(n, N, w, g) CONSTANT(n, N, w, REASON)
  FG_ACTION_MAP(ACTION)
  FG_OWNER_MAP(OWNER)
  FG_GATE_MAP(GATE)
  FG_REASON_MAP(REASON)
#undef ACTION
#undef OWNER
#undef GATE
#undef REASON
#undef CONSTANT
  static const struct {
    const char *name;
    long value;
  } saw[] = {
      {"SAW_BYTE", FG_SAW_BYTE},           {"SAW_LIFECYCLE", FG_SAW_LIFECYCLE},
      {"SAW_REASONING", FG_SAW_REASONING}, {"SAW_TOKEN", FG_SAW_TOKEN},
      {"SAW_TOOL_ARGS", FG_SAW_TOOL_ARGS}, {"SAW_USAGE", FG_SAW_USAGE},
      {"SAW_TERMINAL", FG_SAW_TERMINAL},   {"SAW_ERROR", FG_SAW_ERROR},
      {"SAW_MALFORMED", FG_SAW_MALFORMED}};
  for (size_t i = 0; i < sizeof saw / sizeof saw[0]; i++) {
    if (PyModule_AddIntConstant(module, saw[i].name, saw[i].value) < 0) {
      return -1;
    }
  }
  uint32_t v = fg_version();
  PyOS_snprintf(name, sizeof name, "%u.%u.%u", (unsigned)(v >> 16),
                (unsigned)(v >> 8 & 255), (unsigned)(v & 255));
  return PyModule_AddStringConstant(module, "VERSION", name);
}

static int take(const char *module, const char *attr, PyObject **out) {
  PyObject *from = PyImport_ImportModule(module);
  *out = from ? PyObject_GetAttrString(from, attr) : NULL;
  Py_XDECREF(from);
  return *out ? 0 : -1;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out) {
  *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
  if (*out == NULL) {
    return -1;
  }
  return PyModule_AddType(module, *out);
}

/* For `case Decision("retry", route):`; these two types stay open for it. */
static int add_match(PyTypeObject *type, const char *first,
                     const char *second) {
  PyObject *args = Py_BuildValue("(ss)", first, second);
  int rc = -1;
  if (args != NULL) {
    rc = PyObject_SetAttrString((PyObject *)type, "__match_args__", args);
  }
  Py_XDECREF(args);
  return rc;
}

static int fill_words(fgpy_state *st) {
  static const char *const texts[FGPY_WORDS] = {
      [FGPY_CALL] = "call",       [FGPY_ROUTE] = "route",
      [FGPY_ATTEMPT] = "attempt", [FGPY_CONNECT] = "connect",
      [FGPY_WRITE] = "write",     [FGPY_POOL] = "pool",
      [FGPY_READ] = "read",       [FGPY_ID_NAME] = "X-Client-Request-Id",
      [FGPY_ID_LOWER] = "x-client-request-id",
      [FGPY_ATTEMPT_NAME] = "X-Request-Attempt",
      [FGPY_ATTEMPT_LOWER] = "x-request-attempt"};
  for (uint32_t i = 0; i < FGPY_WORDS; i++) {
    st->word[i] = i < FGPY_ID_NAME ? PyUnicode_InternFromString(texts[i])
                                   : PyBytes_FromString(texts[i]);
    if (st->word[i] == NULL) {
      return -1;
    }
  }
  return 0;
}

static int core_exec(PyObject *module) {
  static int watching; /* pthread_atfork has no way back: once a process */
  fgpy_state *st = PyModule_GetState(module);
  if (!watching) {
    if (pthread_atfork(NULL, NULL, after_fork_in_child) != 0) {
      PyErr_NoMemory();
      return -1;
    }
    watching = 1;
  }
  if (check_core() < 0 || fill_names(st) < 0 || fill_words(st) < 0 || add_constants(module, st) < 0 ||
      take("json", "loads", &st->json_loads) < 0 ||
      take("json", "dumps", &st->json_dumps) < 0 ||
      take("fivegates.errors", "FivegatesError", &st->error) < 0 ||
      take("fivegates.errors", "ArgumentError", &st->argument_error) < 0 ||
      take("fivegates.errors", "StateError", &st->state_error) < 0 ||
      take("fivegates.errors", "RegionError", &st->region_error) < 0 ||
      take("fivegates.errors", "PolicyError", &st->policy_error) < 0) {
    return -1;
  }
  if (add_type(module, &fgpy_policy_spec, &st->policy_type) < 0 ||
      add_type(module, &fgpy_region_spec, &st->region_type) < 0 ||
      add_type(module, &fgpy_engine_spec, &st->engine_type) < 0 ||
      add_type(module, &fgpy_call_spec, &st->call_type) < 0 ||
      add_type(module, &fgpy_decision_spec, &st->decision_type) < 0 ||
      add_type(module, &fgpy_failure_spec, &st->failure_type) < 0 ||
      add_type(module, &fgpy_sse_spec, &st->sse_type) < 0 ||
      add_match(st->decision_type, "action", "route") < 0 ||
      add_match(st->failure_type, "owner", "kind") < 0) {
    return -1;
  }
  return 0;
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
  fgpy_state *st = PyModule_GetState(module);
  Py_VISIT((PyObject *)st->policy_type);
  Py_VISIT((PyObject *)st->region_type);
  Py_VISIT((PyObject *)st->engine_type);
  Py_VISIT((PyObject *)st->call_type);
  Py_VISIT((PyObject *)st->decision_type);
  Py_VISIT((PyObject *)st->failure_type);
  Py_VISIT((PyObject *)st->sse_type);
  Py_VISIT(st->error);
  Py_VISIT(st->argument_error);
  Py_VISIT(st->state_error);
  Py_VISIT(st->region_error);
  Py_VISIT(st->policy_error);
  Py_VISIT(st->json_loads);
  Py_VISIT(st->json_dumps);
  return 0;
}

static int core_clear(PyObject *module) {
  fgpy_state *st = PyModule_GetState(module);
  Py_CLEAR(st->policy_type);
  Py_CLEAR(st->region_type);
  Py_CLEAR(st->engine_type);
  Py_CLEAR(st->call_type);
  Py_CLEAR(st->decision_type);
  Py_CLEAR(st->failure_type);
  Py_CLEAR(st->sse_type);
  Py_CLEAR(st->error);
  Py_CLEAR(st->argument_error);
  Py_CLEAR(st->state_error);
  Py_CLEAR(st->region_error);
  Py_CLEAR(st->policy_error);
  Py_CLEAR(st->json_loads);
  Py_CLEAR(st->json_dumps);
  for (uint32_t i = 0; i < FGPY_WORDS; i++) {
    Py_CLEAR(st->word[i]);
  }
  for (uint32_t table = 0; table < FGPY_TABLES; table++) {
    for (uint32_t i = 0; i < FGPY_VALUES; i++) {
      Py_CLEAR(st->name[table][i]);
    }
  }
  return 0;
}

static void core_free(void *module) {
  (void)core_clear((PyObject *)module);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL}};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fivegates._core",
    .m_doc = "The engine, compiled.",
    .m_size = sizeof(fgpy_state),
    .m_methods = core_methods,
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void) {
  return PyModuleDef_Init(&core_module);
}
