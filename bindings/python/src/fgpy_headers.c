/* A request as an attempt sends it, and what is asked of headers as httpx keeps
 * them: a list of (name, name in lower case, value), all bytes. It is done here
 * as it is done for each request: in Python it took as long as the engine. */
#include "fgpy_convert.h"

#include <string.h>

/* The part of a header at `at`; NULL and no exception: it is none of ours. */
static const char *part_of(PyObject *header, Py_ssize_t at, size_t *len) {
  PyObject *part = PyTuple_Check(header) && PyTuple_Size(header) == 3
                       ? PyTuple_GetItem(header, at)
                       : NULL;
  if (part == NULL || !PyBytes_Check(part)) {
    return NULL;
  }
  *len = (size_t)PyBytes_Size(part);
  return PyBytes_AsString(part);
}

static int is(const char *text, size_t len, const char *word) {
  return len == strlen(word) && memcmp(text, word, len) == 0;
}

static const char id_lower[] = "x-client-request-id",
                  attempt_lower[] = "x-request-attempt",
                  retries_lower[] = "x-stainless-retry-count";

/* Whether a header is one that an attempt sets. */
static int stamps(PyObject *header) {
  size_t len = 0;
  const char *name = part_of(header, 1, &len);
  return name != NULL &&
         (is(name, len, id_lower) || is(name, len, attempt_lower));
}

int fgpy_headers_plain(PyObject *headers) {
  if (!PyList_Check(headers)) {
    return 0;
  }
  const Py_ssize_t count = PyList_Size(headers);
  for (Py_ssize_t i = 0; i < count; i++) {
    size_t len = 0;
    PyObject *header = PyList_GetItem(headers, i);
    const char *name = part_of(header, 1, &len);
    if (name == NULL) {
      return 0;
    }
    if (is(name, len, retries_lower)) {
      const char *value = part_of(header, 2, &len);
      if (value == NULL || !is(value, len, "0")) {
        return 0;
      }
    }
  }
  return 1;
}

/* Appends a header to a list of them; value is kept. lower: NULL where they
 * are pairs. */
static int put(PyObject *list, PyObject *name, PyObject *lower,
               PyObject *value) {
  PyObject *header = value == NULL   ? NULL
                     : lower == NULL ? PyTuple_Pack(2, name, value)
                                     : PyTuple_Pack(3, name, lower, value);
  int rc = header == NULL ? -1 : PyList_Append(list, header);
  Py_XDECREF(header);
  Py_XDECREF(value);
  return rc;
}

/* The same of one with three parts, as a pair; header is kept. */
static int put_pair(PyObject *list, PyObject *header) {
  PyObject *name = PyTuple_GetItem(header, 0);
  PyObject *value = PyTuple_GetItem(header, 2);
  int rc = name == NULL || value == NULL
               ? -1
               : put(list, name, NULL, Py_NewRef(value));
  Py_DECREF(header);
  return rc;
}

/* The headers with those of an attempt; pairs: as (name, value). */
static PyObject *stamped(fgpy_state *st, PyObject *headers, PyObject *call_id,
                         uint32_t number, int pairs) {
  char text[12], *digits = text + sizeof text;
  do {
    *--digits = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  const Py_ssize_t count = PyList_Size(headers);
  PyObject *out = PyList_New(0);
  for (Py_ssize_t i = 0; out != NULL && i < count; i++) {
    /* The collector may run in between, and whatever it calls. */
    PyObject *header = PyList_GetItem(headers, i);
    if (header == NULL ||
        (!stamps(header) && (pairs ? put_pair(out, Py_NewRef(header))
                                   : PyList_Append(out, header)) < 0)) {
      Py_CLEAR(out);
    }
  }
  if (out != NULL &&
      (put(out, st->word[FGPY_ID_NAME],
           pairs ? NULL : st->word[FGPY_ID_LOWER],
           PyUnicode_AsASCIIString(call_id)) < 0 ||
       put(out, st->word[FGPY_ATTEMPT_NAME],
           pairs ? NULL : st->word[FGPY_ATTEMPT_LOWER],
           PyBytes_FromStringAndSize(digits, text + sizeof text - digits)) < 0)) {
    Py_CLEAR(out);
  }
  return out;
}

int fgpy_headers_packed(PyObject *headers) {
  const Py_ssize_t count = PyList_Check(headers) ? PyList_Size(headers) : 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    size_t len = 0;
    const char *name = part_of(PyList_GetItem(headers, i), 1, &len);
    if (name != NULL && is(name, len, "content-encoding")) {
      return 1;
    }
  }
  return 0;
}

PyObject *fgpy_stamped_headers(PyObject *module, PyObject *args) {
  PyObject *headers = NULL, *id = NULL;
  unsigned number = 0;
  if (!PyArg_ParseTuple(args, "O!UI:stamped_headers", &PyList_Type, &headers,
                        &id, &number)) {
    return NULL;
  }
  return stamped(PyModule_GetState(module), headers, id, number, 0);
}

/* A client's time-outs in seconds with this one cut to ms; 0: there is none. */
static int cut(PyObject *timeouts, PyObject *key, uint32_t ms) {
  if (ms == 0) {
    return 0;
  }
  PyObject *own = PyDict_GetItemWithError(timeouts, key);
  if (own == NULL && PyErr_Occurred()) {
    return -1;
  }
  if (own != NULL && own != Py_None) {
    double seconds = PyFloat_AsDouble(own);
    if (PyErr_Occurred()) {
      return -1;
    }
    if (seconds <= ms / 1000.0) {
      return 0;
    }
  }
  PyObject *less = PyFloat_FromDouble(ms / 1000.0);
  int rc = less == NULL ? -1 : PyDict_SetItem(timeouts, key, less);
  Py_XDECREF(less);
  return rc;
}

static PyObject *cut_timeouts(fgpy_state *st, PyObject *own,
                              const fg_decision *d) {
  PyObject *out = own == NULL || own == Py_None ? PyDict_New()
                                                : PyDict_Copy(own);
  if (out != NULL &&
      (cut(out, st->word[FGPY_CONNECT], d->connect_ms) < 0 ||
       cut(out, st->word[FGPY_WRITE], d->connect_ms) < 0 ||
       cut(out, st->word[FGPY_POOL], d->connect_ms) < 0 ||
       cut(out, st->word[FGPY_READ],
           d->total_ms ? d->total_ms : d->first_token_ms) < 0)) {
    Py_CLEAR(out);
  }
  return out;
}

static PyObject *label_of(fgpy_state *st, fgpy_call *call, PyObject *route,
                          uint32_t attempt) {
  PyObject *out = PyDict_New(), *number = PyLong_FromUnsignedLong(attempt);
  if (out != NULL &&
      (number == NULL ||
       PyDict_SetItem(out, st->word[FGPY_CALL], call->id) < 0 ||
       PyDict_SetItem(out, st->word[FGPY_ROUTE], route) < 0 ||
       PyDict_SetItem(out, st->word[FGPY_ATTEMPT], number) < 0)) {
    Py_CLEAR(out);
  }
  Py_XDECREF(number);
  return out;
}

PyObject *fgpy_sent(fgpy_call *call, const fg_decision *permit,
                    PyObject *headers, PyObject *timeouts) {
  fgpy_state *st = call->engine->st;
  PyObject *route = fgpy_policy_route_name(call->engine->policy, permit->route);
  PyObject *parts[5] = {
      route, stamped(st, headers, call->id, permit->attempt, 1),
      cut_timeouts(st, timeouts, permit),
      permit->total_ms ? PyFloat_FromDouble(permit->total_ms / 1000.0)
                       : Py_NewRef(Py_None),
      route == NULL ? NULL : label_of(st, call, route, permit->attempt)};
  PyObject *out = NULL;
  if (parts[0] != NULL && parts[1] != NULL && parts[2] != NULL &&
      parts[3] != NULL && parts[4] != NULL) {
    out = PyTuple_Pack(5, parts[0], parts[1], parts[2], parts[3], parts[4]);
  }
  for (int i = 0; i < 5; i++) {
    Py_XDECREF(parts[i]);
  }
  return out;
}
