/* State of one import of fivegates._core: its types, its exceptions, the wire
 * names as Python strings; and the objects behind the types. Objects keep a
 * pointer to it: their type keeps the module alive. */
#ifndef FGPY_STATE_H
#define FGPY_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include "fg_host.h"
#include "fivegates.h"

/* Tables are FG_TABLE_*; FG_TABLE_LOAD (40) is kept in the last place. */
enum {
  FGPY_TABLES = FG_TABLE_COUNT + 1,
  FGPY_VALUES = 96
};
enum {
  FGPY_LOAD = FG_TABLE_COUNT
};

enum { /* fgpy_state.word: str, and of headers' names bytes */
  FGPY_CALL,
  FGPY_ROUTE,
  FGPY_ATTEMPT,
  FGPY_CONNECT,
  FGPY_WRITE,
  FGPY_POOL,
  FGPY_READ,
  FGPY_ID_NAME,
  FGPY_ID_LOWER,
  FGPY_ATTEMPT_NAME,
  FGPY_ATTEMPT_LOWER,
  FGPY_WORDS
};

typedef struct fgpy_state {
  PyTypeObject *policy_type, *region_type, *engine_type, *call_type;
  PyTypeObject *decision_type, *failure_type, *sse_type;
  PyObject *error, *argument_error, *state_error, *region_error, *policy_error;
  PyObject *json_loads, *json_dumps;
  PyObject *empty; /* "" */
  PyObject *word[FGPY_WORDS];
  PyObject *name[FGPY_TABLES][FGPY_VALUES];
} fgpy_state;

typedef struct fgpy_policy {
  PyObject_HEAD;
  fgpy_state *st;
  fg_policy *block;
  fg_mem mem;
  PyObject *routes, *workflows; /* tuples of str: id - 1 is the index */
  PyObject *fingerprint;
} fgpy_policy;

/* A region and this process's hold on it, shared by the engines on it: a file
 * (map), or memory of this process alone. */
typedef struct fgpy_region {
  PyObject_HEAD;
  fgpy_state *st;
  fg_host_map *map;
  void *mem;
  uint64_t bytes;
  fg_region *at; /* of mem; a map's is asked for each time */
  fg_region_config config;
  uint32_t fork_number; /* of mem: a child starts with cleared gauges */
} fgpy_region;

typedef struct fgpy_engine {
  PyObject_HEAD;
  fgpy_state *st;
  fgpy_policy *policy;
  fgpy_region *region;
  PyObject *clock; /* NULL: the host's monotonic clock */
  fg_engine *engine;
  void *mem;
  uint64_t bytes, seed, id_seed, next_id;
  const fg_region *at;  /* what the engine was made with */
  int32_t slot;         /* so too */
  uint32_t fork_number; /* when the last id was drawn */
} fgpy_engine;

/* A call's memory. Decisions share it to explain themselves, without keeping
 * the call itself alive. */
typedef struct fgpy_box {
  Py_ssize_t refs;
  fg_call call;
} fgpy_box;

typedef struct fgpy_call {
  PyObject_HEAD;
  fgpy_engine *engine;
  fgpy_box *box;
  PyObject *id;         /* str */
  PyObject *language;   /* str or NULL */
  uint32_t fork_number; /* another one now: the call is the parent's */
  int forgotten;        /* not ours to end */
} fgpy_call;

typedef struct fgpy_decision {
  PyObject_HEAD;
  fgpy_state *st;
  fgpy_policy *policy; /* NULL: decide() without a card */
  fgpy_engine *engine; /* NULL: decide() */
  fgpy_box *box;       /* NULL: decide() */
  PyObject *language;
  fg_decision d;
} fgpy_decision;

typedef struct fgpy_failure {
  PyObject_HEAD;
  fgpy_state *st;
  fgpy_policy *policy;
  fg_failure f;
} fgpy_failure;

typedef struct fgpy_sse {
  PyObject_HEAD;
  fgpy_state *st;
  fg_sse sse;
} fgpy_sse;

/* How often this process's line of ancestors has forked since the import. */
extern uint32_t fgpy_fork_number;

/* fgpy_module.c */
PyObject *fgpy_name(fgpy_state *st, uint32_t table, uint32_t value);
/* An exception for a result code; returns NULL for the caller to return. */
PyObject *fgpy_fail(fgpy_state *st, int32_t code, const char *what);
PyObject *fgpy_fail_load(fgpy_state *st, const fg_error *err);
PyObject *fgpy_fail_region(fgpy_state *st, int32_t code, const fg_error *err);
PyObject *fgpy_from_json(fgpy_state *st, PyObject *text);

/* Specs, and what one file needs of another. */
extern PyType_Spec fgpy_policy_spec, fgpy_region_spec, fgpy_engine_spec;
extern PyType_Spec fgpy_call_spec, fgpy_decision_spec, fgpy_failure_spec;
extern PyType_Spec fgpy_sse_spec;

/* The region and the slot to use at now_ms; after a fork, new ones. */
fgpy_region *fgpy_region_open(fgpy_state *st, PyObject *path, uint32_t procs,
                              int existing, int64_t now_ms);
fg_region *fgpy_region_slot(fgpy_region *self, int64_t now_ms, int32_t *slot);
/* Reads the clock where `now` is NULL or None, and makes the engine anew where
 * region or slot have changed. */
int fgpy_engine_ready(fgpy_engine *self, PyObject *now, int64_t *now_ms);
PyObject *fgpy_engine_begin(fgpy_engine *self, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames);
PyObject *fgpy_engine_begin_chat(fgpy_engine *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames);
/* A call begun and its first decision, or NULL and an exception. id, language:
 * str or NULL; known: NULL but for a recorded call. The engine is ready. */
struct fg_replay_known;
fgpy_call *fgpy_begin(fgpy_engine *self, fg_request *r, PyObject *id,
                      PyObject *language, const struct fg_replay_known *known,
                      int64_t now_ms, fg_decision *first);
PyObject *fgpy_engine_resume(fgpy_engine *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames);
fgpy_call *fgpy_call_new(fgpy_engine *engine);
/* Ready to be told something: still ours, the engine in its place. */
int fgpy_call_ready(fgpy_call *self, PyObject *now, int64_t *now_ms);
PyObject *fgpy_call_save(fgpy_call *self, PyObject *unused);
PyObject *fgpy_call_ledger_line(fgpy_call *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames);
void fgpy_box_drop(fgpy_box *box);
fgpy_decision *fgpy_decision_new(fgpy_state *st, fgpy_policy *policy,
                                 fgpy_engine *engine, fgpy_box *box);
PyObject *fgpy_failure_new(fgpy_state *st, fgpy_policy *policy,
                           const fg_failure *f);
PyObject *fgpy_classify(PyObject *module, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kwnames);
PyObject *fgpy_decide(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);
/* What fg_call_begin_attempt() decides of a ready call. */
fgpy_decision *fgpy_call_permit(fgpy_call *self, int64_t now_ms);
/* An attempt came to its end by itself: the decision. */
PyObject *fgpy_call_succeeded(fgpy_call *self, uint32_t attempt,
                              const fg_answer *a, int64_t now_ms);
PyObject *fgpy_call_chat_success(fgpy_call *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames);
PyObject *fgpy_chat_answer(PyObject *module, PyObject *body);
PyObject *fgpy_chat_request(PyObject *module, PyObject *body);
PyObject *fgpy_stamped_headers(PyObject *module, PyObject *args);
/* Whether a request's headers are those of a first send. */
int fgpy_headers_plain(PyObject *headers);
/* What an attempt sends of a request with such headers: (route, headers as
 * pairs of name and value, time-outs, seconds for the whole answer or None, the
 * answer's label). timeouts: the client's, a dict, None or NULL. */
PyObject *fgpy_sent(fgpy_call *call, const fg_decision *permit,
                    PyObject *headers, PyObject *timeouts);
/* Whether a response's headers name a content encoding. */
int fgpy_headers_packed(PyObject *headers);
/* An optional Policy argument, borrowed; absent or None: *out is NULL. */
int fgpy_policy_arg(fgpy_state *st, PyObject *value, fgpy_policy **out);
PyObject *fgpy_policy_route_name(fgpy_policy *policy, uint32_t route);

/* A heap type with GC visits its type too. */
#define FGPY_VISIT_TYPE(self) Py_VISIT((PyObject *)Py_TYPE(self))
#define FGPY_METHOD(f) ((PyCFunction)(void (*)(void))(f))
#define FGPY_KW (METH_FASTCALL | METH_KEYWORDS)

#endif /* FGPY_STATE_H */
