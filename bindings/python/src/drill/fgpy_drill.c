/* fivegates._drill: the simulator of core/drill, with a configuration as JSON texts in and the results as one JSON text out. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "fg_drill_table.h"

/* ValueError(message, path, line, column, index): index of the text that is wrong, -1 none of them alone. */
static PyObject *reject(const fg_error *e, Py_ssize_t index) {
  PyObject *args = Py_BuildValue("(ssIIn)", e->message, e->path, (unsigned)e->line, (unsigned)e->column, index);
  if (args != NULL) {
    PyErr_SetObject(PyExc_ValueError, args);
    Py_DECREF(args);
  }
  return NULL;
}

static int read_texts(drill_config *c, PyObject *texts) {
  const Py_ssize_t count = PySequence_Size(texts);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *text = PySequence_GetItem(texts, i);
    Py_ssize_t length = 0;
    const char *at = text != NULL ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    fg_error e = {.size = sizeof e};
    const int32_t rc = at != NULL ? drill_config_read(c, at, (uint64_t)length, &e) : FG_ERR_ARG;
    Py_XDECREF(text);
    if (at == NULL) {
      return 0;
    }
    if (rc != FG_OK) {
      (void)reject(&e, i);
      return 0;
    }
  }
  fg_error e = {.size = sizeof e};
  if (count >= 0 && drill_config_check(c, &e) != FG_OK) {
    (void)reject(&e, -1);
    return 0;
  }
  return count >= 0;
}

typedef struct caller {
  PyThreadState *saved;
  PyObject *progress;
} caller;

/* Called by the thread that called run, which has let go of the interpreter. */
static int progress(void *ctx, uint32_t done, uint32_t of) {
  caller *k = ctx;
  PyEval_RestoreThread(k->saved);
  int stop = PyErr_CheckSignals() != 0;
  if (!stop && k->progress != Py_None) {
    PyObject *got = PyObject_CallFunction(k->progress, "II", (unsigned)done, (unsigned)of);
    stop = got == NULL;
    Py_XDECREF(got);
  }
  k->saved = PyEval_SaveThread();
  return stop;
}

static PyObject *run_config(const drill_config *c, unsigned threads, int pictures, PyObject *report) {
  fg_error e = {.size = sizeof e};
  drill_table t;
  caller k = {.progress = report};
  char *text = NULL;
  k.saved = PyEval_SaveThread();
  const int32_t rc = drill_table_run(c, threads, pictures, progress, &k, &t, &e);
  if (rc == FG_OK) {
    text = drill_json(c, &t);
    drill_table_free(&t);
  }
  PyEval_RestoreThread(k.saved);
  if (PyErr_Occurred()) {
    free(text);
    return NULL;
  }
  if (rc != FG_OK && rc != FG_ERR_NOMEM) {
    if (e.message[0] == 0) {
      PyOS_snprintf(e.message, sizeof e.message, "the run failed: error %d", (int)rc);
    }
    return reject(&e, -1);
  }
  PyObject *out = text != NULL ? PyUnicode_FromString(text) : PyErr_NoMemory();
  free(text);
  return out;
}

static PyObject *run(PyObject *self, PyObject *args) {
  PyObject *texts, *report;
  unsigned threads;
  int pictures;
  const char *ledger = NULL;
  (void)self;
  if (!PyArg_ParseTuple(args, "OIpO|z:run", &texts, &threads, &pictures, &report, &ledger)) {
    return NULL;
  }
  drill_config *c = malloc(sizeof *c);
  if (c == NULL) {
    return PyErr_NoMemory();
  }
  drill_config_default(c);
  PyObject *out = NULL;
  int good = read_texts(c, texts);
  if (good && ledger != NULL) {
    fg_error e = {.size = sizeof e};
    c->ledger = fopen(ledger, "w");
    if (c->ledger == NULL) {
      (void)PyErr_SetFromErrnoWithFilename(PyExc_OSError, ledger);
      good = 0;
    } else if (drill_ledger_check(c, &e) != FG_OK) {
      (void)reject(&e, -1);
      good = 0;
    }
  }
  if (good) {
    out = run_config(c, threads, pictures, report);
  }
  if (c->ledger != NULL && fclose(c->ledger) != 0 && out != NULL) {
    Py_CLEAR(out);
    (void)PyErr_SetFromErrnoWithFilename(PyExc_OSError, ledger);
  }
  drill_config_free(c);
  free(c);
  return out;
}

static PyObject *faults(PyObject *self, PyObject *none) {
  char names[512];
  (void)self;
  (void)none;
  drill_fault_names(names, sizeof names);
  PyObject *text = PyUnicode_FromString(names), *list = text != NULL ? PyObject_CallMethod(text, "split", "s", ", ") : NULL;
  Py_XDECREF(text);
  return list;
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS,
     "run(texts, threads, pictures, progress, ledger=None) -> str\n\nRuns what the JSON texts ask for, one over the other. progress(done, total), or None.\n"
     "ledger: path of the engine's ledger."},
    {"faults", faults, METH_NOARGS, "faults() -> list[str]\n\nNames of the faults."},
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "fivegates._drill", .m_doc = "The fault drills' simulator.", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__drill(void);
PyMODINIT_FUNC PyInit__drill(void) { return PyModuleDef_Init(&module); }
