/* Headers as httpx keeps them: a list of (name, name in lower case, value), all
 * bytes. What is asked of them for each request is asked here: in Python the
 * loops alone would take as long as the engine. */
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

static const char id_name[] = "X-Client-Request-Id",
                  id_lower[] = "x-client-request-id",
                  attempt_name[] = "X-Request-Attempt",
                  attempt_lower[] = "x-request-attempt",
                  retries_lower[] = "x-stainless-retry-count";

/* Whether a header is one that an attempt sets. */
static int stamps(PyObject *header) {
  size_t len = 0;
  const char *name = part_of(header, 1, &len);
  return name != NULL &&
         (is(name, len, id_lower) || is(name, len, attempt_lower));
}

PyObject *fgpy_plain_headers(PyObject *module, PyObject *headers) {
  (void)module;
  if (!PyList_Check(headers)) {
    Py_RETURN_FALSE;
  }
  const Py_ssize_t count = PyList_Size(headers);
  for (Py_ssize_t i = 0; i < count; i++) {
    size_t len = 0;
    PyObject *header = PyList_GetItem(headers, i);
    const char *name = part_of(header, 1, &len);
    if (name == NULL) {
      Py_RETURN_FALSE;
    }
    if (is(name, len, retries_lower)) {
      const char *value = part_of(header, 2, &len);
      if (value == NULL || !is(value, len, "0")) {
        Py_RETURN_FALSE;
      }
    }
  }
  Py_RETURN_TRUE;
}

/* Appends a header to a list of them. */
static int put(PyObject *list, const char *name, const char *lower,
               const char *value) {
  PyObject *header = Py_BuildValue("(yyy)", name, lower, value);
  int rc = header == NULL ? -1 : PyList_Append(list, header);
  Py_XDECREF(header);
  return rc;
}

PyObject *fgpy_stamped_headers(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *headers = NULL;
  const char *id = NULL;
  unsigned number = 0;
  char text[12];
  if (!PyArg_ParseTuple(args, "O!sI:stamped_headers", &PyList_Type, &headers,
                        &id, &number)) {
    return NULL;
  }
  (void)PyOS_snprintf(text, sizeof text, "%u", number);
  const Py_ssize_t count = PyList_Size(headers);
  PyObject *out = PyList_GetSlice(headers, 0, count);
  for (Py_ssize_t i = count; out != NULL && i-- > 0;) {
    if (stamps(PyList_GetItem(out, i)) &&
        PyList_SetSlice(out, i, i + 1, NULL) < 0) {
      Py_CLEAR(out);
    }
  }
  if (out != NULL && (put(out, id_name, id_lower, id) < 0 ||
                      put(out, attempt_name, attempt_lower, text) < 0)) {
    Py_CLEAR(out);
  }
  return out;
}

PyObject *fgpy_packed_headers(PyObject *module, PyObject *headers) {
  (void)module;
  Py_ssize_t count = PyList_Check(headers) ? PyList_Size(headers) : 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    size_t len = 0;
    const char *name = part_of(PyList_GetItem(headers, i), 1, &len);
    if (name != NULL && is(name, len, "content-encoding")) {
      Py_RETURN_TRUE;
    }
  }
  Py_RETURN_FALSE;
}
