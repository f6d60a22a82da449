/* A call as bytes and back; a call's lines for the ledger. */
#include "fgpy_convert.h"

#include <string.h>

#include "fg_math.h"

/* ---- saved calls: a mark, the length of the id, the id, the call, a hash
 * of all that. The engine believes a call's bytes, so none may have changed
 * on the way. (Who can write them can also write the hash: keep them as safe
 * as the program itself.) ---- */

enum { HASH_BYTES = 8, HASH_SEED = 0x66676332 };
static const char saved_mark[4] = {'f', 'g', 'c', '2'};

PyObject *fgpy_call_save(fgpy_call *self, PyObject *unused) {
  (void)unused;
  int64_t now_ms = 0;
  Py_ssize_t len = 0;
  const char *id = PyUnicode_AsUTF8AndSize(self->id, &len);
  if (id == NULL || fgpy_call_ready(self, NULL, &now_ms) < 0) {
    return NULL;
  }
  char bytes[sizeof saved_mark + 1 + FG_CALL_ID_MAX + sizeof(fg_call) + HASH_BYTES];
  size_t at = sizeof saved_mark;
  size_t id_len = len > FG_CALL_ID_MAX ? FG_CALL_ID_MAX : (size_t)len;
  memcpy(bytes, saved_mark, sizeof saved_mark);
  bytes[at++] = (char)id_len;
  memcpy(bytes + at, id, id_len);
  at += id_len;
  memcpy(bytes + at, &self->box->call, sizeof(fg_call));
  at += sizeof(fg_call);
  uint64_t hash = fg_hash64(HASH_SEED, bytes, at);
  memcpy(bytes + at, &hash, HASH_BYTES);
  at += HASH_BYTES;
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
  size_t hashed = head + id_len + sizeof(fg_call);
  uint64_t hash = 0;
  if ((size_t)len == hashed + HASH_BYTES) {
    memcpy(&hash, raw + hashed, HASH_BYTES);
  }
  if ((size_t)len != hashed + HASH_BYTES || id_len > FG_CALL_ID_MAX ||
      memcmp(raw, saved_mark, sizeof saved_mark) != 0 ||
      hash != fg_hash64(HASH_SEED, raw, hashed)) {
    PyErr_SetString(self->st->argument_error,
                    "not a saved call, of another version, or changed since");
    return NULL;
  }
  fgpy_call *call = fgpy_call_new(self);
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

/* ---- ledger ---- */

static const char *const ledger_names[] = {"line", "decision", "now_ms",
                                           "response_id", "request_id"};

/* An id of the provider's: text, or None; bytes of the str, as long as it lives. */
static int id_of(PyObject *in, const char *name, fg_str *out) {
  if (in == NULL || in == Py_None) {
    return 0;
  }
  if (!PyUnicode_Check(in)) {
    PyErr_Format(PyExc_TypeError, "%s must be text or None", name);
    return -1;
  }
  Py_ssize_t len = 0;
  const char *text = PyUnicode_AsUTF8AndSize(in, &len);
  if (text == NULL) {
    PyErr_Clear(); /* lone surrogates: no id */
    return 0;
  }
  *out = (fg_str){.ptr = text, .len = len > UINT32_MAX ? UINT32_MAX : (uint32_t)len};
  return 0;
}

static uint32_t write_line(const fgpy_call *self, const fg_decision *d,
                           uint32_t line, const fg_served *served,
                           int64_t now_ms, char *to, uint32_t cap) {
  const fg_engine *e = self->engine->engine;
  return line == FG_LINE_DECISION
             ? fg_ledger_served(e, &self->box->call, d, served, now_ms, to, cap)
             : fg_ledger_line(e, &self->box->call, d, line, now_ms, to, cap);
}

PyObject *fgpy_call_ledger_line(fgpy_call *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.ledger_line", ledger_names, 5, 2, 1};
  fgpy_engine *e = self->engine;
  fg_served served = {.size = sizeof served};
  PyObject *in[5];
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
  if (id_of(in[3], "response_id", &served.response_id) < 0 ||
      id_of(in[4], "request_id", &served.request_id) < 0) {
    return NULL;
  }
  char small[4096];
  uint32_t need = write_line(self, d, line, &served, now_ms, small, sizeof small);
  if (need < sizeof small) {
    return PyUnicode_DecodeUTF8(small, (Py_ssize_t)need, "replace");
  }
  char *big = PyMem_Malloc((size_t)need + 1);
  if (big == NULL) {
    return PyErr_NoMemory();
  }
  (void)write_line(self, d, line, &served, now_ms, big, need + 1);
  PyObject *out = PyUnicode_DecodeUTF8(big, (Py_ssize_t)need, "replace");
  PyMem_Free(big);
  return out;
}
