/* Region: the memory that outlives calls. A file shared by the processes of a
 * machine, or memory of this process alone. */
#include "fgpy_convert.h"

#include <string.h>

static fgpy_region *region_alloc(fgpy_state *st) {
  fgpy_region *self = PyObject_GC_New(fgpy_region, st->region_type);
  if (self != NULL) {
    self->st = st;
    self->map = NULL;
    self->mem = NULL;
    self->at = NULL;
    self->bytes = 0;
    memset(&self->config, 0, sizeof self->config);
    self->config.size = sizeof self->config;
    self->fork_number = fgpy_fork_number;
  }
  return self;
}

static int open_memory(fgpy_region *self, int64_t now_ms) {
  self->bytes = fg_region_bytes(&self->config);
  self->mem = PyMem_Calloc(1, (size_t)self->bytes);
  if (self->mem == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  fg_error err = {.size = sizeof err};
  int32_t rc = fg_region_open(self->mem, self->bytes, &self->config, now_ms,
                              &self->at, &err);
  if (rc != FG_OK) {
    fgpy_fail_region(self->st, rc, &err);
    return -1;
  }
  return 0;
}

static int open_file(fgpy_region *self, PyObject *path, int existing,
                     int64_t now_ms) {
  PyObject *bytes = NULL;
  if (!PyUnicode_FSConverter(path, &bytes)) {
    return -1;
  }
  if (PyBytes_Size(bytes) == 0) { /* an unset variable must not mean "alone" */
    Py_DECREF(bytes);
    PyErr_SetString(PyExc_ValueError, "the region's path is empty; None means memory of this process alone");
    return -1;
  }
  fg_error err = {.size = sizeof err};
  int32_t rc = fg_host_map_open(PyBytes_AsString(bytes), &self->config,
                                existing ? FG_HOST_MAP_EXISTING : 0, now_ms,
                                &self->map, &err);
  Py_DECREF(bytes);
  if (rc != FG_OK) {
    self->map = NULL;
    fgpy_fail_region(self->st, rc, &err);
    return -1;
  }
  if (fg_host_map_warning(self->map, &err)) {
    return PyErr_WarnFormat(PyExc_RuntimeWarning, 2, "%s: %s", err.path,
                            err.message);
  }
  return 0;
}

fgpy_region *fgpy_region_open(fgpy_state *st, PyObject *path, uint32_t procs,
                              int existing, int64_t now_ms) {
  fgpy_region *self = region_alloc(st);
  if (self == NULL) {
    return NULL;
  }
  self->config.procs = procs;
  int rc = path == NULL || path == Py_None ? open_memory(self, now_ms)
                                           : open_file(self, path, existing, now_ms);
  if (rc < 0) {
    Py_DECREF(self);
    return NULL;
  }
  PyObject_GC_Track(self);
  return self;
}

fg_region *fgpy_region_slot(fgpy_region *self, int64_t now_ms, int32_t *slot) {
  if (self->map != NULL) {
    *slot = fg_host_map_slot(self->map, now_ms);
    return fg_host_map_region(self->map);
  }
  if (self->fork_number != fgpy_fork_number) {
    /* A child has a copy: the calls in its rows and gauges are the parent's. */
    self->fork_number = fgpy_fork_number;
    for (uint32_t i = 0; i < (self->config.procs ? self->config.procs : 64);
         i++) {
      (void)fg_region_reap(self->at, i, now_ms);
    }
  }
  return self->at;
}

static PyObject *region_new(PyTypeObject *type, PyObject *args,
                            PyObject *kwargs) {
  static char *names[] = {"path", "procs", "now_ms", "existing", NULL};
  fgpy_state *st = PyType_GetModuleState(type);
  PyObject *path = NULL, *procs_arg = NULL, *now_arg = NULL;
  uint32_t procs = 0;
  int64_t now_ms = 0;
  int existing = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOp:Region", names, &path,
                                   &procs_arg, &now_arg, &existing) ||
      fgpy_u32(procs_arg, "procs", &procs) < 0 ||
      fgpy_i64(now_arg, "now_ms", &now_ms) < 0) {
    return NULL;
  }
  if (now_arg == NULL || now_arg == Py_None) {
    now_ms = fg_host_now_ms();
  }
  return (PyObject *)fgpy_region_open(st, path, procs, existing, now_ms);
}

static int region_traverse(fgpy_region *self, visitproc visit, void *arg) {
  FGPY_VISIT_TYPE(self);
  return 0;
}

static void region_dealloc(fgpy_region *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  fg_host_map_close(self->map);
  PyMem_Free(self->mem);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static const char *const reap_names[] = {"slot", "now_ms"};

static PyObject *region_reap(fgpy_region *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Region.reap", reap_names, 2, 1, 1};
  PyObject *in[2];
  uint32_t slot = 0;
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_u32(in[0], "slot", &slot) < 0 ||
      fgpy_i64(in[1], "now_ms", &now_ms) < 0) {
    return NULL;
  }
  if (in[1] == NULL || in[1] == Py_None) {
    now_ms = fg_host_now_ms();
  }
  fg_region *at = self->map ? fg_host_map_region(self->map) : self->at;
  int32_t rc = fg_region_reap(at, slot, now_ms);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "reap");
  }
  Py_RETURN_NONE;
}

/* For the vectors' restart: the bytes go on at another address. */
static PyObject *region_restart(fgpy_region *self, PyObject *now) {
  int64_t now_ms = 0;
  if (fgpy_i64(now, "now_ms", &now_ms) < 0) {
    return NULL;
  }
  if (self->mem == NULL) {
    PyErr_SetString(PyExc_ValueError, "a region in a file restarts by itself");
    return NULL;
  }
  void *moved = PyMem_Malloc((size_t)self->bytes);
  if (moved == NULL) {
    return PyErr_NoMemory();
  }
  memcpy(moved, self->mem, (size_t)self->bytes);
  fg_error err = {.size = sizeof err};
  fg_region *at = NULL;
  int32_t rc =
      fg_region_open(moved, self->bytes, &self->config, now_ms, &at, &err);
  if (rc != FG_OK) {
    PyMem_Free(moved);
    return fgpy_fail_region(self->st, rc, &err);
  }
  memset(self->mem, 0xA5, (size_t)self->bytes);
  PyMem_Free(self->mem);
  self->mem = moved;
  self->at = at;
  Py_RETURN_NONE;
}

static PyObject *region_get_path(fgpy_region *self, void *closure) {
  (void)closure;
  const char *path = self->map ? fg_host_map_path(self->map) : NULL;
  if (path == NULL) {
    Py_RETURN_NONE;
  }
  return PyUnicode_DecodeFSDefault(path);
}

static PyObject *region_get_warning(fgpy_region *self, void *closure) {
  (void)closure;
  fg_error err = {.size = sizeof err};
  if (self->map == NULL || !fg_host_map_warning(self->map, &err)) {
    Py_RETURN_NONE;
  }
  return PyUnicode_FromString(err.message);
}

static PyMethodDef region_methods[] = {
    {"reap", FGPY_METHOD(region_reap), FGPY_KW,
     "reap(slot, now_ms=None)\n--\n\nClears what a dead process left."},
    {"_restart", (PyCFunction)region_restart, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef region_getset[] = {
    {"path", (getter)region_get_path, NULL,
     "The file in use; None: memory of this process alone.", NULL},
    {"warning", (getter)region_get_warning, NULL,
     "Why a file could not be used, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot region_slots[] = {
    {Py_tp_doc, "Region(path=None, procs=None, now_ms=None, existing=False)\n--\n\n"
                "Shared state of breakers, buckets and budgets. existing: only a "
                "file that is a region already, for who looks at a live one."},
    {Py_tp_new, region_new},
    {Py_tp_dealloc, region_dealloc},
    {Py_tp_traverse, region_traverse},
    {Py_tp_methods, region_methods},
    {Py_tp_getset, region_getset},
    {0, NULL}};

PyType_Spec fgpy_region_spec = {
    .name = "fivegates._core.Region",
    .basicsize = sizeof(fgpy_region),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = region_slots,
};
