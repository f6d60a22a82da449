/* SseScanner: the core's scanner of one answer, fed with decoded bytes. */
#include "fgpy_convert.h"

static const char *const sse_names[] = {"wire", "whole", NULL};

static PyObject *sse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  fgpy_state *st = PyType_GetModuleState(type);
  PyObject *wire_arg = NULL, *whole_arg = NULL;
  uint32_t wire = 0;
  int whole = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:SseScanner",
                                   (char **)(uintptr_t)sse_names, &wire_arg,
                                   &whole_arg) ||
      fgpy_word(st, FG_TABLE_WIRE, wire_arg, "wire", &wire) < 0 ||
      fgpy_bool(whole_arg, "whole", &whole) < 0) {
    return NULL;
  }
  fgpy_sse *self = PyObject_GC_New(fgpy_sse, type);
  if (self == NULL) {
    return NULL;
  }
  self->st = st;
  fg_sse_init(&self->sse, wire, whole ? FG_SSE_WHOLE : 0);
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

static int sse_traverse(fgpy_sse *self, visitproc visit, void *arg) {
  FGPY_VISIT_TYPE(self);
  return 0;
}

static void sse_dealloc(fgpy_sse *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyObject *sse_feed(fgpy_sse *self, PyObject *chunk) {
  PyObject *bytes = NULL;
  if (PyUnicode_Check(chunk)) {
    bytes = PyUnicode_AsEncodedString(chunk, "utf-8", "replace");
  } else {
    bytes = PyBytes_FromObject(chunk); /* bytes, bytearray, memoryview */
  }
  if (bytes == NULL) {
    return NULL;
  }
  char *raw = NULL;
  Py_ssize_t len = 0;
  if (PyBytes_AsStringAndSize(bytes, &raw, &len) < 0) {
    Py_DECREF(bytes);
    return NULL;
  }
  int32_t saw = 0;
  while (len > 0 && saw >= 0) {
    uint32_t part = len > 1 << 30 ? 1U << 30 : (uint32_t)len;
    int32_t now = fg_sse_feed(&self->sse, raw, part);
    saw = now < 0 ? now : saw | now;
    raw += part;
    len -= (Py_ssize_t)part;
  }
  Py_DECREF(bytes);
  return saw < 0 ? fgpy_fail(self->st, saw, "feed") : PyLong_FromLong(saw);
}

static PyObject *sse_answer(fgpy_sse *self, PyObject *unused) {
  (void)unused;
  fg_answer a = {.size = sizeof a};
  int32_t rc = fg_sse_answer(&self->sse, &a);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "answer");
  }
  return Py_BuildValue("{sN,sI,sI,sI,sI,sL,sN}", "finish_reason",
                       fgpy_name(self->st, FG_TABLE_FINISH, a.finish),
                       "prompt_tokens", a.prompt_tokens, "cached_tokens",
                       a.cached_tokens, "output_tokens", a.output_tokens,
                       "visible", a.visible, "cost_nusd",
                       (long long)a.cost_nusd, "final",
                       PyBool_FromLong((a.flags & FG_ANSWER_USAGE_FINAL) != 0));
}

static PyObject *sse_evidence(fgpy_sse *self, PyObject *unused) {
  (void)unused;
  fg_evidence e = {.size = sizeof e};
  int32_t rc = fg_sse_evidence(&self->sse, &e);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "evidence");
  }
  return Py_BuildValue(
      "{sN,si,sN,sN,s{sI,sI,sI,sI,sN}}", "phase",
      fgpy_name(self->st, FG_TABLE_PHASE, e.phase), "status", (int)e.status,
      "body",
      PyUnicode_DecodeUTF8(e.body.ptr ? e.body.ptr : "", (Py_ssize_t)e.body.len,
                           "replace"),
      "whole_body", PyBool_FromLong((e.flags & FG_EV_WHOLE_BODY) != 0),
      "progress", "visible", e.visible, "lifecycle", e.lifecycle, "reasoning",
      e.reasoning, "tool_args_bytes", e.tool_args_bytes, "terminal",
      fgpy_name(self->st, FG_TABLE_FINISH, e.terminal));
}

static PyObject *sse_response_id(fgpy_sse *self, PyObject *unused) {
  (void)unused;
  fg_str id = {0};
  int32_t rc = fg_sse_id(&self->sse, &id);
  if (rc != FG_OK) {
    return fgpy_fail(self->st, rc, "response_id");
  }
  if (id.len == 0) {
    Py_RETURN_NONE;
  }
  return PyUnicode_DecodeUTF8(id.ptr, (Py_ssize_t)id.len, "replace");
}

static PyMethodDef sse_methods[] = {
    {"feed", (PyCFunction)sse_feed, METH_O,
     "feed(chunk)\n--\n\nReads decoded bytes, cut anywhere; the SAW_* bits of "
     "what they held."},
    {"answer", (PyCFunction)sse_answer, METH_NOARGS,
     "answer()\n--\n\nUsage, finish reason and counts so far."},
    {"evidence", (PyCFunction)sse_evidence, METH_NOARGS,
     "evidence()\n--\n\nProgress and any error inside the stream."},
    {"response_id", (PyCFunction)sse_response_id, METH_NOARGS,
     "response_id()\n--\n\nThe answer's id as its provider calls it; None "
     "until it was told."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot sse_slots[] = {
    {Py_tp_doc, "SseScanner(wire='auto', whole=False)\n--\n\nReads one answer "
                "of a model as it comes."},
    {Py_tp_new, sse_new},
    {Py_tp_dealloc, sse_dealloc},
    {Py_tp_traverse, sse_traverse},
    {Py_tp_methods, sse_methods},
    {0, NULL}};

PyType_Spec fgpy_sse_spec = {
    .name = "fivegates._core.SseScanner",
    .basicsize = sizeof(fgpy_sse),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = sse_slots,
};
