/* Evidence of failure()'s dict, answers of success()'s and usage()'s keywords.
 */
#include "fgpy_convert.h"

#include <string.h>

/* ---- evidence ---- */

static int key_is(PyObject *key, const char *name) {
  return PyUnicode_CompareWithASCIIString(key, name) == 0;
}

static int unknown_key(const char *where, PyObject *key) {
  PyErr_Format(PyExc_TypeError, "%s has no key %R", where, key);
  return -1;
}

/* Header values may be str or bytes, and a list of them counts one by one. */
static int add_header(fgpy_keep *keep, fg_evidence *e, fg_header *all,
                      uint32_t room, PyObject *name, PyObject *value) {
  if (value == Py_None) {
    return 0;
  }
  if (PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PyList_Size(value); i++) {
      if (add_header(keep, e, all, room, name, PyList_GetItem(value, i)) < 0) {
        return -1;
      }
    }
    return 0;
  }
  if (e->header_count == room) {
    return 0; /* more than a server sends: the rest is unknown */
  }
  if (!PyUnicode_Check(value) && !PyBytes_Check(value)) {
    value = PyObject_Str(value);
    if (value == NULL || fgpy_keep_object(keep, value) < 0) {
      return -1;
    }
  }
  fg_header *h = &all[e->header_count];
  if (fgpy_str(keep, name, "a header's name", &h->name) < 0 ||
      fgpy_str(keep, value, "a header's value", &h->value) < 0) {
    return -1;
  }
  e->header_count++;
  return 0;
}

static int evidence_headers(fgpy_keep *keep, PyObject *v, fg_evidence *e) {
  if (v == Py_None) {
    return 0;
  }
  PyObject *items = PyDict_Check(v) ? PyDict_Items(v) : NULL;
  if (items == NULL && !PyErr_Occurred()) {
    items = PyObject_HasAttrString(v, "items") ? PyMapping_Items(v)
                                               : PySequence_List(v);
  }
  if (items == NULL) {
    PyErr_Clear();
    return fgpy_type_error("headers", "a dict or a list of pairs", v);
  }
  if (fgpy_keep_object(keep, items) < 0) {
    return -1;
  }
  uint32_t room = FGPY_HEADERS;
  fg_header *all = keep->header;
  Py_ssize_t count = PyList_Size(items);
  if (count > FGPY_HEADERS) {
    room = count > 4096 ? 4096 : (uint32_t)count;
    all = fgpy_keep_memory(keep, room * sizeof *all);
    if (all == NULL) {
      return -1;
    }
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *pair = PySequence_Tuple(PyList_GetItem(items, i));
    if (pair == NULL || PyTuple_Size(pair) != 2) {
      Py_XDECREF(pair);
      PyErr_Clear();
      return fgpy_type_error("headers", "a dict or a list of pairs", v);
    }
    if (fgpy_keep_object(keep, pair) < 0 ||
        add_header(keep, e, all, room, PyTuple_GetItem(pair, 0),
                   PyTuple_GetItem(pair, 1)) < 0) {
      return -1;
    }
  }
  e->headers = all;
  return 0;
}

static int evidence_transport(fgpy_keep *keep, PyObject *v, fg_evidence *e) {
  if (v == Py_None) {
    return 0;
  }
  if (!PyDict_Check(v)) {
    return fgpy_type_error("transport", "a dict", v);
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(v, &at, &key, &value)) {
    int rc = 0;
    if (!PyUnicode_Check(key)) {
      return fgpy_type_error("a key of transport", "a str", key);
    }
    if (key_is(key, "lib")) {
      rc = fgpy_str(keep, value, "transport.lib", &e->lib);
    } else if (key_is(key, "kind")) {
      rc = fgpy_str(keep, value, "transport.kind", &e->kind);
    } else if (key_is(key, "message")) {
      rc = fgpy_str(keep, value, "transport.message", &e->message);
    } else if (key_is(key, "code")) {
      rc = fgpy_i32(value, "transport.code", &e->code);
    } else {
      rc = unknown_key("transport", key);
    }
    if (rc < 0) {
      return -1;
    }
  }
  return 0;
}

static int evidence_progress(fgpy_keep *keep, PyObject *v, fg_evidence *e) {
  if (v == Py_None) {
    return 0;
  }
  if (!PyDict_Check(v)) {
    return fgpy_type_error("progress", "a dict", v);
  }
  static const struct {
    const char *name, *full;
    size_t offset;
  } fields[] = {
      {"visible", "progress.visible", offsetof(fg_evidence, visible)},
      {"lifecycle", "progress.lifecycle", offsetof(fg_evidence, lifecycle)},
      {"reasoning", "progress.reasoning", offsetof(fg_evidence, reasoning)},
      {"tool_args_bytes", "progress.tool_args_bytes",
       offsetof(fg_evidence, tool_args_bytes)},
      {"last_byte_ms", "progress.last_byte_ms",
       offsetof(fg_evidence, last_byte_ms)},
      {"last_progress_ms", "progress.last_progress_ms",
       offsetof(fg_evidence, last_progress_ms)},
  };
  e->flags |= FG_EV_PROGRESS;
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(v, &at, &key, &value)) {
    if (!PyUnicode_Check(key)) {
      return fgpy_type_error("a key of progress", "a str", key);
    }
    if (key_is(key, "terminal")) {
      if (PyBool_Check(value)) {
        e->terminal = value == Py_True ? FG_FINISH_OTHER : FG_FINISH_NONE;
      } else if (fgpy_word(keep->st, FG_TABLE_FINISH, value,
                           "progress.terminal", &e->terminal) < 0) {
        return -1;
      }
      continue;
    }
    size_t i = 0;
    while (i < sizeof fields / sizeof fields[0] &&
           !key_is(key, fields[i].name)) {
      i++;
    }
    if (i == sizeof fields / sizeof fields[0]) {
      return unknown_key("progress", key);
    }
    if (fgpy_u32(value, fields[i].full,
                 (uint32_t *)(void *)((char *)e + fields[i].offset)) < 0) {
      return -1;
    }
  }
  return 0;
}

static int evidence_flag(PyObject *v, const char *key, uint32_t bit,
                         fg_evidence *e) {
  int on = 0;
  if (fgpy_bool(v, key, &on) < 0) {
    return -1;
  }
  e->flags |= on ? bit : 0;
  return 0;
}

/* 1: read; 0: no such key; -1: error. */
static int evidence_key(fgpy_keep *keep, PyObject *key, PyObject *v,
                        fg_evidence *e, uint32_t *attempt) {
  int rc = 0;
  if (key_is(key, "phase")) {
    rc = fgpy_word(keep->st, FG_TABLE_PHASE, v, "phase", &e->phase);
  } else if (key_is(key, "status")) {
    rc = fgpy_i32(v, "status", &e->status);
  } else if (key_is(key, "headers")) {
    rc = evidence_headers(keep, v, e);
  } else if (key_is(key, "body")) {
    rc = fgpy_str(keep, v, "body", &e->body);
  } else if (key_is(key, "provider")) {
    rc = fgpy_str(keep, v, "provider", &e->provider);
  } else if (key_is(key, "api")) {
    rc = fgpy_str(keep, v, "api", &e->api);
  } else if (key_is(key, "transport")) {
    rc = evidence_transport(keep, v, e);
  } else if (key_is(key, "progress")) {
    rc = evidence_progress(keep, v, e);
  } else if (key_is(key, "elapsed_ms")) {
    rc = fgpy_u32(v, "elapsed_ms", &e->elapsed_ms);
  } else if (key_is(key, "inner_attempts")) {
    rc = fgpy_u32(v, "inner_attempts", &e->inner_attempts);
  } else if (key_is(key, "unix_ms")) {
    rc = fgpy_i64(v, "unix_ms", &e->unix_ms);
  } else if (key_is(key, "client_gone")) {
    rc = evidence_flag(v, "client_gone", FG_EV_CLIENT_GONE, e);
  } else if (key_is(key, "whole_body")) {
    rc = evidence_flag(v, "whole_body", FG_EV_WHOLE_BODY, e);
  } else if (key_is(key, "timeout")) {
    rc = fgpy_word(keep->st, FG_TABLE_KIND, v, "timeout", &e->timeout);
  } else if (key_is(key, "attempt") && attempt != NULL) {
    rc = fgpy_u32(v, "attempt", attempt);
  } else if (key_is(key, "origin")) {
    if (PyUnicode_Check(v) && key_is(v, "local")) {
      e->flags |= FG_EV_LOCAL;
    } else if (v != Py_None && !(PyUnicode_Check(v) && key_is(v, "upstream"))) {
      PyErr_Format(PyExc_ValueError, "origin is %R; it is upstream or local",
                   v);
      return -1;
    }
  } else {
    return 0;
  }
  return rc < 0 ? -1 : 1;
}

int fgpy_evidence(fgpy_keep *keep, PyObject *dict, fg_evidence *e,
                  uint32_t *attempt) {
  memset(e, 0, sizeof *e);
  e->size = sizeof *e;
  if (!PyDict_Check(dict)) {
    return fgpy_type_error("evidence", "a dict", dict);
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!PyUnicode_Check(key)) {
      return fgpy_type_error("a key of evidence", "a str", key);
    }
    int rc = evidence_key(keep, key, value, e, attempt);
    if (rc <= 0) {
      return rc < 0 ? -1 : unknown_key("evidence", key);
    }
  }
  return 0;
}

/* ---- answers ---- */

static int answer_tool_call(fgpy_keep *keep, PyObject *one, fg_tool_call *out) {
  memset(out, 0, sizeof *out);
  if (!PyDict_Check(one)) {
    return fgpy_type_error("tool_calls", "a list of dicts", one);
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(one, &at, &key, &value)) {
    int rc = 0;
    if (!PyUnicode_Check(key)) {
      return fgpy_type_error("a key of a tool call", "a str", key);
    }
    if (key_is(key, "id")) {
      rc = fgpy_str(keep, value, "tool_calls.id", &out->id);
    } else if (key_is(key, "name")) {
      rc = fgpy_str(keep, value, "tool_calls.name", &out->name);
    } else if (key_is(key, "arguments")) {
      rc = fgpy_str(keep, value, "tool_calls.arguments", &out->arguments);
    } else {
      rc = unknown_key("tool_calls", key);
    }
    if (rc < 0) {
      return -1;
    }
  }
  return 0;
}

static int answer_tool_calls(fgpy_keep *keep, PyObject *v, fg_answer *a) {
  if (v == Py_None) {
    return 0;
  }
  if (PyUnicode_Check(v) || PyDict_Check(v)) {
    return fgpy_type_error("tool_calls", "a list of dicts", v);
  }
  PyObject *list = PySequence_List(v);
  if (list == NULL) {
    PyErr_Clear();
    return fgpy_type_error("tool_calls", "a list of dicts", v);
  }
  if (fgpy_keep_object(keep, list) < 0) {
    return -1;
  }
  Py_ssize_t count = PyList_Size(list);
  fg_tool_call *all = keep->call;
  if (count > FGPY_CALLS) {
    all = fgpy_keep_memory(keep, (size_t)count * sizeof *all);
    if (all == NULL) {
      return -1;
    }
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    if (answer_tool_call(keep, PyList_GetItem(list, i), &all[i]) < 0) {
      return -1;
    }
  }
  a->tool_calls = all;
  a->tool_call_count = (uint32_t)count;
  return 0;
}

static int same(const char *key, const char *name) {
  return strcmp(key, name) == 0;
}

static int answer_key(fgpy_keep *keep, const char *key, PyObject *v,
                      fg_answer *a) {
  int rc = 0, on = 0;
  if (same(key, "output_tokens")) {
    rc = fgpy_u32(v, "output_tokens", &a->output_tokens);
  } else if (same(key, "prompt_tokens")) {
    rc = fgpy_u32(v, "prompt_tokens", &a->prompt_tokens);
  } else if (same(key, "cached_tokens")) {
    rc = fgpy_u32(v, "cached_tokens", &a->cached_tokens);
  } else if (same(key, "finish_reason")) {
    rc = fgpy_word(keep->st, FG_TABLE_FINISH, v, "finish_reason", &a->finish);
  } else if (same(key, "output")) {
    rc = fgpy_str(keep, v, "output", &a->output);
    a->flags |= v == Py_None ? 0 : FG_ANSWER_OUTPUT_KNOWN;
  } else if (same(key, "visible")) {
    rc = fgpy_u32(v, "visible", &a->visible);
  } else if (same(key, "tool_calls")) {
    rc = answer_tool_calls(keep, v, a);
  } else if (same(key, "cost_usd")) {
    rc = fgpy_usd(v, "cost_usd", &a->cost_nusd);
  } else if (same(key, "cost_nusd")) {
    rc = fgpy_i64(v, "cost_nusd", &a->cost_nusd);
  } else if (same(key, "final")) {
    rc = fgpy_bool(v, "final", &on);
    a->flags |= on ? FG_ANSWER_USAGE_FINAL : 0;
  } else {
    return 0;
  }
  return rc < 0 ? -1 : 1;
}

/* Keywords of usage() and success() into a. `reported`: 1 when they told of
 * tokens or money, without a word on final. */
int fgpy_answer(fgpy_keep *keep, const char *fn, PyObject *const *values,
                PyObject *kwnames, fg_answer *a, uint32_t *attempt,
                PyObject **now, int *reported) {
  Py_ssize_t count = kwnames ? PyTuple_Size(kwnames) : 0;
  int said = 0;
  memset(a, 0, sizeof *a);
  a->size = sizeof *a;
  *attempt = 0;
  *now = NULL;
  *reported = 0;
  for (Py_ssize_t k = 0; k < count; k++) {
    const char *key = fgpy_key_text(kwnames, k);
    if (key == NULL) {
      return -1;
    }
    if (strcmp(key, "now_ms") == 0) {
      *now = values[k];
      continue;
    }
    if (strcmp(key, "attempt") == 0) {
      if (fgpy_u32(values[k], "attempt", attempt) < 0) {
        return -1;
      }
      continue;
    }
    int rc = answer_key(keep, key, values[k], a);
    if (rc == 0) {
      PyErr_Format(PyExc_TypeError, "%s() has no argument '%s'", fn, key);
    }
    if (rc <= 0) {
      return -1;
    }
    int none = values[k] == Py_None;
    said |= strcmp(key, "final") == 0 && !none;
    *reported |= !none && (strcmp(key, "prompt_tokens") == 0 ||
                           strcmp(key, "output_tokens") == 0 ||
                           strcmp(key, "cost_usd") == 0 ||
                           strcmp(key, "cost_nusd") == 0);
  }
  *reported = *reported && !said;
  return 0;
}
