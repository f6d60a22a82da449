/* Engine: a policy on a region, in this process's slot. It follows its process
 * through a fork, and keeps the wall clock of the region. */
#include "fgpy_convert.h"

#include <string.h>

/* ---- making, and making anew ---- */

/* Wall time, where there is one to be had: dated contracts need it. */
static int engine_wall(fgpy_engine *self, int64_t now_ms) {
  int64_t unix_ms = 0;
  if (self->clock == NULL) {
    unix_ms = fg_host_unix_ms();
  } else if (PyObject_HasAttrString(self->clock, "unix_ms")) {
    PyObject *v = PyObject_CallMethod(self->clock, "unix_ms", NULL);
    if (v == NULL) {
      return -1;
    }
    int rc = fgpy_i64(v, "the clock's unix_ms()", &unix_ms);
    Py_DECREF(v);
    if (rc < 0) {
      return -1;
    }
  }
  if (unix_ms > 0) {
    (void)fg_engine_clock(self->engine, unix_ms, now_ms);
  }
  return 0;
}

static int engine_make(fgpy_engine *self, fg_region *at, int32_t slot,
                       int64_t now_ms) {
  fg_error err = {.size = sizeof err};
  int32_t rc =
      fg_engine_init(self->mem, self->bytes, self->policy->block, at,
                     (uint32_t)slot, self->seed, now_ms, &self->engine, &err);
  if (rc != FG_OK) {
    fgpy_fail_region(self->st, rc, &err);
    return -1;
  }
  self->at = at;
  self->slot = slot;
  return engine_wall(self, now_ms);
}

static int engine_now(fgpy_engine *self, PyObject *now, int64_t *now_ms) {
  if (now != NULL && now != Py_None) {
    return fgpy_i64(now, "now_ms", now_ms);
  }
  if (self->clock == NULL) {
    *now_ms = fg_host_now_ms();
    return 0;
  }
  PyObject *v = PyObject_CallObject(self->clock, NULL);
  if (v == NULL) {
    return -1;
  }
  int rc = fgpy_i64(v, "the clock's now_ms", now_ms);
  Py_DECREF(v);
  return rc;
}

int fgpy_engine_ready(fgpy_engine *self, PyObject *now, int64_t *now_ms) {
  if (engine_now(self, now, now_ms) < 0) {
    return -1;
  }
  int32_t slot = self->slot;
  fg_region *at = fgpy_region_slot(self->region, *now_ms, &slot);
  if (at != self->at || slot != self->slot) {
    return engine_make(self, at, slot, *now_ms);
  }
  return 0;
}

static fgpy_engine *engine_alloc(fgpy_state *st, fgpy_policy *policy,
                                 fgpy_region *region, PyObject *clock,
                                 uint64_t seed, uint64_t id_seed) {
  fgpy_engine *self = PyObject_GC_New(fgpy_engine, st->engine_type);
  if (self == NULL) {
    return NULL;
  }
  self->st = st;
  self->policy = policy;
  self->region = region;
  self->clock = clock;
  Py_INCREF((PyObject *)policy);
  Py_XINCREF((PyObject *)region);
  Py_XINCREF(clock);
  self->engine = NULL;
  self->seed = seed;
  self->id_seed = id_seed;
  self->next_id = 0;
  self->fork_number = fgpy_fork_number;
  self->at = NULL;
  self->slot = 0;
  self->bytes = fg_engine_bytes(policy->block);
  self->mem = PyMem_Calloc(1, (size_t)self->bytes);
  if (self->mem == NULL) {
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
  }
  return self;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *args,
                            PyObject *kwargs) {
  static char *names[] = {"policy", "region", "seed", "clock",
                          "procs",  "slot",   NULL};
  fgpy_state *st = PyType_GetModuleState(type);
  PyObject *policy = NULL, *region = NULL, *seed_arg = NULL, *clock = NULL;
  PyObject *procs_arg = NULL, *slot_arg = NULL, *made = NULL;
  uint32_t procs = 0, slot_wanted = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOOOO:Engine", names,
                                   &policy, &region, &seed_arg, &clock,
                                   &procs_arg, &slot_arg) ||
      fgpy_u32(procs_arg, "procs", &procs) < 0 ||
      fgpy_u32(slot_arg, "slot", &slot_wanted) < 0) {
    return NULL;
  }
  uint64_t seed = 0;
  if (seed_arg != NULL && seed_arg != Py_None) {
    if (!PyLong_Check(seed_arg)) {
      PyErr_SetString(PyExc_TypeError, "seed must be an int");
      return NULL;
    }
    seed = PyLong_AsUnsignedLongLongMask(seed_arg);
    if (PyErr_Occurred()) {
      return NULL;
    }
  } else {
    seed = fg_host_seed();
  }
  clock = clock == Py_None ? NULL : clock;
  if (clock != NULL && !PyCallable_Check(clock)) {
    PyErr_SetString(PyExc_TypeError, "clock must be callable, without "
                                     "arguments, and answer milliseconds");
    return NULL;
  }
  if (!Py_IS_TYPE(policy, st->policy_type)) {
    made =
        PyObject_CallFunctionObjArgs((PyObject *)st->policy_type, policy, NULL);
    if (made == NULL) {
      return NULL;
    }
    policy = made;
  }
  fgpy_region *shared = NULL;
  if (region != NULL && Py_IS_TYPE(region, st->region_type)) {
    shared = (fgpy_region *)region;
    Py_INCREF(region);
  }
  fgpy_engine *self = engine_alloc(
      st, (fgpy_policy *)policy, shared, clock, seed,
      seed_arg == NULL || seed_arg == Py_None ? fg_host_seed() : seed);
  Py_XDECREF(made);
  Py_XDECREF((PyObject *)shared);
  int64_t now_ms = 0;
  if (self == NULL || engine_now(self, NULL, &now_ms) < 0) {
    Py_XDECREF(self);
    return NULL;
  }
  if (self->region == NULL) {
    self->region = fgpy_region_open(st, region, procs, 0, now_ms);
  }
  int32_t slot = (int32_t)slot_wanted;
  fg_region *at =
      self->region ? fgpy_region_slot(self->region, now_ms, &slot) : NULL;
  if (at == NULL || engine_make(self, at, slot, now_ms) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

static const char *const reload_names[] = {"policy", "now_ms"};

static PyObject *engine_reload(fgpy_engine *self, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Engine.reload", reload_names, 2, 1, 1};
  fgpy_state *st = self->st;
  PyObject *in[2];
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_engine_ready(self, in[1], &now_ms) < 0) {
    return NULL;
  }
  PyObject *policy = in[0];
  Py_INCREF(policy);
  if (!Py_IS_TYPE(policy, st->policy_type)) {
    PyObject *made =
        PyObject_CallFunctionObjArgs((PyObject *)st->policy_type, policy, NULL);
    Py_DECREF(policy);
    if (made == NULL) {
      return NULL;
    }
    policy = made;
  }
  fgpy_engine *next = engine_alloc(st, (fgpy_policy *)policy, self->region,
                                   self->clock, self->seed, self->id_seed);
  Py_DECREF(policy);
  if (next == NULL) {
    return NULL;
  }
  /* Ids of the two never meet: another start, drawn from this one's. */
  uint64_t z = (self->id_seed ^ ++self->next_id) * UINT64_C(0xbf58476d1ce4e5b9);
  next->id_seed = z ^ (z >> 29);
  int32_t slot = self->slot;
  fg_region *at = fgpy_region_slot(self->region, now_ms, &slot);
  if (engine_make(next, at, slot, now_ms) < 0) {
    Py_DECREF(next);
    return NULL;
  }
  PyObject_GC_Track(next);
  return (PyObject *)next;
}

static int engine_traverse(fgpy_engine *self, visitproc visit, void *arg) {
  FGPY_VISIT_TYPE(self);
  Py_VISIT((PyObject *)self->policy);
  Py_VISIT((PyObject *)self->region);
  Py_VISIT(self->clock);
  return 0;
}

/* The clock alone can close a cycle; calls still need the rest. */
static int engine_clear(fgpy_engine *self) {
  Py_CLEAR(self->clock);
  return 0;
}

static void engine_dealloc(fgpy_engine *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(self->clock);
  PyMem_Free(self->mem);
  Py_CLEAR(self->policy);
  Py_CLEAR(self->region);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

/* ---- views, ticks, clocks ---- */

static uint32_t find(fgpy_engine *self, uint32_t what, PyObject *name,
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
  uint32_t id = len <= FG_NAME_MAX ? fg_policy_find(self->policy->block, what,
                                                    text, (uint32_t)len)
                                   : 0;
  if (id == 0) {
    PyErr_Format(PyExc_KeyError, "the card has no %s %R", kind, name);
  }
  return id;
}

static const char *const view_names[] = {"name", "now_ms"};

#define ULL(field) (unsigned long long)v.field

static PyObject *engine_route(fgpy_engine *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Engine.route", view_names, 2, 1, 1};
  PyObject *in[2];
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0) {
    return NULL;
  }
  uint32_t id = find(self, FG_FIND_ROUTE, in[0], "route");
  if (id == 0 || fgpy_engine_ready(self, in[1], &now_ms) < 0) {
    return NULL;
  }
  fg_route_view v = {.size = sizeof v};
  int32_t rc = fg_engine_route(self->engine, id, now_ms, &v);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "route");
  }
  PyObject *latch = v.latch == 0
                        ? PyUnicode_FromString("none")
                        : fgpy_name(self->st, FG_TABLE_HEALTH, v.latch);
  return Py_BuildValue(
      "{sN,sN,sI,sI,sI,sI,sI,sI,sI,sI,sI,sI,sI,sI,sI,sI,sI,sI,sN,sI,sK,sK,sK,"
      "sK}",
      "breaker", fgpy_name(self->st, FG_TABLE_BREAKER, v.breaker), "health",
      fgpy_name(self->st, FG_TABLE_HEALTH, v.health), "open_for_ms",
      v.open_for_ms, "generation", v.generation, "opened_count", v.opened_count,
      "in_flight", v.in_flight, "retries", v.retries, "limit", v.limit,
      "z_milli", v.z_milli, "run", v.run, "window_ok", v.window_ok,
      "window_failed", v.window_failed, "first_token_ms", v.first_token_ms,
      "stall_ms", v.stall_ms, "samples", v.samples, "rate_milli", v.rate_milli,
      "not_before_ms", v.not_before_ms, "balance_milli", v.balance_milli,
      "latch", latch, "latch_for_ms", v.latch_for_ms, "attempts", ULL(attempts),
      "successes", ULL(successes), "failures", ULL(failures), "tokens",
      ULL(tokens));
}

static PyObject *engine_workflow(fgpy_engine *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Engine.workflow", view_names, 2, 1, 1};
  PyObject *in[2];
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0) {
    return NULL;
  }
  uint32_t id = find(self, FG_FIND_WORKFLOW, in[0], "workflow");
  if (id == 0 || fgpy_engine_ready(self, in[1], &now_ms) < 0) {
    return NULL;
  }
  fg_workflow_view v = {.size = sizeof v};
  int32_t rc = fg_engine_workflow(self->engine, id, now_ms, &v);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "workflow");
  }
  return Py_BuildValue(
      "{sK,sK,sK,sK,sK,sK,sK,sK,sK,sK}", "calls", ULL(calls), "primary_success",
      ULL(primary_success), "retry_recovery", ULL(retry_recovery),
      "fallback_recovery", ULL(fallback_recovery), "degraded", ULL(degraded),
      "failed_closed", ULL(failed_closed), "queued", ULL(queued), "cancelled",
      ULL(cancelled), "retries_this_hour", ULL(retries_this_hour),
      "spent_today_nusd", ULL(spent_today_nusd));
}
#undef ULL

static const char *const now_names[] = {"now_ms"};

static PyObject *engine_tick(fgpy_engine *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Engine.tick", now_names, 1, 1, 0};
  PyObject *in[1];
  int64_t now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_engine_ready(self, in[0], &now_ms) < 0) {
    return NULL;
  }
  if (self->clock == NULL && (in[0] == NULL || in[0] == Py_None) &&
      engine_wall(self, now_ms) < 0) {
    return NULL;
  }
  int32_t next = fg_engine_tick(self->engine, now_ms);
  return next < 0 ? fgpy_fail(self->st, next, "tick") : PyLong_FromLong(next);
}

static const char *const clock_names[] = {"unix_ms", "now_ms"};

static PyObject *engine_clock(fgpy_engine *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Engine.clock", clock_names, 2, 2, 1};
  PyObject *in[2];
  int64_t unix_ms = 0, now_ms = 0;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_i64(in[0], "unix_ms", &unix_ms) < 0 ||
      fgpy_engine_ready(self, in[1], &now_ms) < 0) {
    return NULL;
  }
  int32_t rc = fg_engine_clock(self->engine, unix_ms, now_ms);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "clock");
  }
  Py_RETURN_NONE;
}

/* For tests that restart a region: the engine anew, now. */
static PyObject *engine_renew(fgpy_engine *self, PyObject *now) {
  int64_t now_ms = 0;
  if (engine_now(self, now, &now_ms) < 0) {
    return NULL;
  }
  int32_t slot = self->slot;
  fg_region *at = fgpy_region_slot(self->region, now_ms, &slot);
  if (engine_make(self, at, slot, now_ms) < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *engine_now_ms(fgpy_engine *self, PyObject *unused) {
  (void)unused;
  int64_t now_ms = 0;
  if (engine_now(self, NULL, &now_ms) < 0) {
    return NULL;
  }
  return PyLong_FromLongLong(now_ms);
}

/* The loop around a send is Python: fivegates.runner. */
static PyObject *engine_drive(fgpy_engine *self, const char *fn, PyObject *args,
                              PyObject *kwargs) {
  PyObject *module = PyImport_ImportModule("fivegates.runner");
  PyObject *run = module ? PyObject_GetAttrString(module, fn) : NULL;
  Py_ssize_t count = PyTuple_Size(args);
  PyObject *all = run ? PyTuple_New(count + 1) : NULL;
  PyObject *out = NULL;
  if (all != NULL) {
    Py_INCREF((PyObject *)self);
    (void)PyTuple_SetItem(all, 0, (PyObject *)self);
    for (Py_ssize_t i = 0; i < count; i++) {
      PyObject *arg = PyTuple_GetItem(args, i);
      Py_INCREF(arg);
      (void)PyTuple_SetItem(all, i + 1, arg);
    }
    out = PyObject_Call(run, all, kwargs);
  }
  Py_XDECREF(all);
  Py_XDECREF(run);
  Py_XDECREF(module);
  return out;
}

static PyObject *engine_run(fgpy_engine *self, PyObject *args,
                            PyObject *kwargs) {
  return engine_drive(self, "run", args, kwargs);
}

static PyObject *engine_arun(fgpy_engine *self, PyObject *args,
                             PyObject *kwargs) {
  return engine_drive(self, "arun", args, kwargs);
}

static PyObject *engine_get_object(fgpy_engine *self, void *closure) {
  PyObject *o =
      closure == NULL ? (PyObject *)self->policy : (PyObject *)self->region;
  Py_INCREF(o);
  return o;
}

static PyObject *engine_get_slot(fgpy_engine *self, void *closure) {
  (void)closure;
  return PyLong_FromLong(self->slot);
}

static PyMethodDef engine_methods[] = {
    {"begin_chat", FGPY_METHOD(fgpy_engine_begin_chat), FGPY_KW,
     "begin_chat(workflow, body, unable, headers=None, timeouts=None, *, "
     "now_ms=None)\n--\n\nbegin() by the bytes of a chat completion's request: "
     "the call, the model asked for, whether it streams, and two more. None for "
     "one with more than text, and nothing is begun. headers: a list of (name, "
     "lower name, value) in bytes; where they are those of a first send and the "
     "request, which does not stream, may be sent at once, as it is, where it "
     "was asked for, the fourth is begin_attempt()'s decision; and where that "
     "says so too the fifth is what to send: route, headers, timeouts cut to "
     "the attempt's, seconds for the whole answer or None, and the answer's "
     "label. Else they are None; and for headers of a later send nothing is "
     "begun."},
    {"begin", FGPY_METHOD(fgpy_engine_begin), FGPY_KW,
     "begin(workflow, **facts)\n--\n\nBegins a call. Facts: call_id, "
     "prompt_tokens, max_output_tokens, request_bytes, stream, delivery, "
     "features, tools, tool_choice, data_class, region, tenant, affinity, "
     "account, server_state, unable, max_wait_ms, prior, language; now_ms."},
    {"resume", FGPY_METHOD(fgpy_engine_resume), FGPY_KW,
     "resume(saved)\n--\n\nThe call that Call.save() turned into bytes."},
    {"run", FGPY_METHOD(engine_run), METH_VARARGS | METH_KEYWORDS,
     "run(workflow, send, **facts)\n--\n\nRuns a call to its end: see "
     "fivegates.runner.run."},
    {"arun", FGPY_METHOD(engine_arun), METH_VARARGS | METH_KEYWORDS,
     "arun(workflow, send, **facts)\n--\n\nThe same for async code: see "
     "fivegates.runner.arun."},
    {"reload", FGPY_METHOD(engine_reload), FGPY_KW,
     "reload(policy, now_ms=None)\n--\n\nA new engine with another card on the "
     "same region. Calls go on with the engine they began with."},
    {"route", FGPY_METHOD(engine_route), FGPY_KW,
     "route(name, now_ms=None)\n--\n\nLive state of a route, as a dict."},
    {"workflow", FGPY_METHOD(engine_workflow), FGPY_KW,
     "workflow(name, now_ms=None)\n--\n\nCounters of a workflow, as a dict."},
    {"tick", FGPY_METHOD(engine_tick), FGPY_KW,
     "tick(now_ms=None)\n--\n\nLooks at overdue attempts; milliseconds until "
     "the next look is useful."},
    {"clock", FGPY_METHOD(engine_clock), FGPY_KW,
     "clock(unix_ms, now_ms=None)\n--\n\nTells the region the wall time."},
    {"now_ms", (PyCFunction)engine_now_ms, METH_NOARGS,
     "now_ms()\n--\n\nThe engine's clock."},
    {"_renew", (PyCFunction)engine_renew, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef engine_getset[] = {
    {"policy", (getter)engine_get_object, NULL, "The card.", NULL},
    {"region", (getter)engine_get_object, NULL, "The shared state.",
     (void *)(uintptr_t)1},
    {"slot", (getter)engine_get_slot, NULL, "This process's slot.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot engine_slots[] = {
    {Py_tp_doc,
     "Engine(policy, region=None, seed=None, clock=None, procs=64)\n--\n\n"
     "Decides for the calls of this process. region: a path shared with other "
     "processes, a Region, or None for memory of this process alone. clock: "
     "milliseconds of a monotonic clock; None is the host's."},
    {Py_tp_new, engine_new},
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_traverse, engine_traverse},
    {Py_tp_clear, engine_clear},
    {Py_tp_methods, engine_methods},
    {Py_tp_getset, engine_getset},
    {0, NULL}};

PyType_Spec fgpy_engine_spec = {
    .name = "fivegates._core.Engine",
    .basicsize = sizeof(fgpy_engine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = engine_slots,
};
