/* Python values to C: arguments of a call, what must outlive it, single
 * values. Structs are read in fgpy_begin.c, fgpy_evidence.c, fgpy_facts.c. */
#include "fgpy_convert.h"

#include <math.h>
#include <string.h>

/* ---- arguments ---- */

int fgpy_args(const fgpy_sig *sig, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames, PyObject **out) {
  if (nargs > sig->positional) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments",
                 sig->fn, sig->positional);
    return -1;
  }
  for (int i = 0; i < sig->count; i++) {
    out[i] = i < nargs ? args[i] : NULL;
  }
  Py_ssize_t more = kwnames ? PyTuple_Size(kwnames) : 0;
  for (Py_ssize_t k = 0; k < more; k++) {
    PyObject *name = PyTuple_GetItem(kwnames, k);
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (text == NULL) {
      return -1;
    }
    int i = 0;
    while (i < sig->count && strcmp(text, sig->names[i]) != 0) {
      i++;
    }
    if (i == sig->count) {
      PyErr_Format(PyExc_TypeError, "%s() has no argument '%U'", sig->fn, name);
      return -1;
    }
    if (out[i] != NULL) {
      PyErr_Format(PyExc_TypeError, "%s() got '%U' twice", sig->fn, name);
      return -1;
    }
    out[i] = args[nargs + k];
  }
  for (int i = 0; i < sig->required; i++) {
    if (out[i] == NULL) {
      PyErr_Format(PyExc_TypeError, "%s() needs '%s'", sig->fn, sig->names[i]);
      return -1;
    }
  }
  return 0;
}

/* ---- what must live until the core has read it ---- */

void fgpy_keep_drop(fgpy_keep *keep) {
  for (int i = 0; i < keep->count; i++) {
    Py_DECREF(keep->obj[i]);
  }
  for (int i = 0; i < keep->mem_count; i++) {
    PyMem_Free(keep->mem[i]);
  }
  keep->count = 0;
  keep->mem_count = 0;
}

/* Takes the reference, also when it fails. */
int fgpy_keep_object(fgpy_keep *keep, PyObject *o) {
  if (keep->count < FGPY_KEEP - 1) {
    keep->obj[keep->count++] = o;
    return 0;
  }
  if (keep->count == FGPY_KEEP - 1) {
    PyObject *list = PyList_New(0);
    if (list == NULL) {
      Py_DECREF(o);
      return -1;
    }
    keep->obj[keep->count++] = list;
  }
  int rc = PyList_Append(keep->obj[FGPY_KEEP - 1], o);
  Py_DECREF(o);
  return rc;
}

void *fgpy_keep_memory(fgpy_keep *keep, size_t bytes) {
  void *mem = PyMem_Malloc(bytes);
  if (mem == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  keep->mem[keep->mem_count++] = mem;
  return mem;
}

/* ---- single values ---- */

int fgpy_type_error(const char *key, const char *wanted, PyObject *v) {
  PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(v), "__name__");
  if (name == NULL) {
    return -1;
  }
  PyErr_Format(PyExc_TypeError, "%s must be %s, not %U", key, wanted, name);
  Py_DECREF(name);
  return -1;
}

/* An int, or a float that is one. */
static int integer(PyObject *v, const char *key, long long *out) {
  PyObject *whole = NULL;
  if (PyLong_Check(v)) {
    whole = v;
    Py_INCREF(whole);
  } else if (PyFloat_Check(v)) {
    double d = PyFloat_AsDouble(v);
    if (d != floor(d)) {
      PyErr_Format(PyExc_TypeError, "%s must be a whole number", key);
      return -1;
    }
    whole = PyLong_FromDouble(d);
  } else if (!PyUnicode_Check(v) && !PyBytes_Check(v)) {
    whole = PyNumber_Index(v);
    if (whole == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      return fgpy_type_error(key, "an int", v);
    }
  } else {
    return fgpy_type_error(key, "an int", v);
  }
  if (whole == NULL) {
    return -1;
  }
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(whole, &overflow);
  Py_DECREF(whole);
  if (overflow != 0) {
    PyErr_Format(PyExc_ValueError, "%s is out of range", key);
    return -1;
  }
  return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int fgpy_i64(PyObject *v, const char *key, int64_t *out) {
  *out = 0;
  if (v == NULL || v == Py_None) {
    return 0;
  }
  long long n = 0;
  if (integer(v, key, &n) < 0) {
    return -1;
  }
  *out = n;
  return 0;
}

int fgpy_i32(PyObject *v, const char *key, int32_t *out) {
  int64_t n = 0;
  if (fgpy_i64(v, key, &n) < 0) {
    return -1;
  }
  if (n < INT32_MIN || n > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%s is out of range", key);
    return -1;
  }
  *out = (int32_t)n;
  return 0;
}

int fgpy_u32(PyObject *v, const char *key, uint32_t *out) {
  int64_t n = 0;
  if (fgpy_i64(v, key, &n) < 0) {
    return -1;
  }
  if (n < 0 || n > UINT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%s must be between 0 and 4294967295", key);
    return -1;
  }
  *out = (uint32_t)n;
  return 0;
}

int fgpy_bool(PyObject *v, const char *key, int *out) {
  *out = 0;
  if (v == NULL || v == Py_None) {
    return 0;
  }
  if (!PyBool_Check(v) && !PyLong_Check(v)) {
    return fgpy_type_error(key, "true or false", v);
  }
  *out = PyObject_IsTrue(v);
  return *out < 0 ? -1 : 0;
}

int fgpy_str(fgpy_keep *keep, PyObject *v, const char *key, fg_str *out) {
  out->ptr = NULL;
  out->len = 0;
  out->zero = 0;
  if (v == NULL || v == Py_None) {
    return 0;
  }
  Py_ssize_t len = 0;
  const char *text = NULL;
  if (PyUnicode_Check(v)) {
    text = PyUnicode_AsUTF8AndSize(v, &len);
    if (text == NULL) { /* a lone surrogate; JSON may hold one */
      if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        return -1;
      }
      PyErr_Clear();
      PyObject *bytes = PyUnicode_AsEncodedString(v, "utf-8", "replace");
      if (bytes == NULL || fgpy_keep_object(keep, bytes) < 0) {
        return -1;
      }
      v = bytes;
    }
  }
  if (text == NULL) {
    char *raw = NULL;
    if (!PyBytes_Check(v)) {
      return fgpy_type_error(key, "a str", v);
    }
    if (PyBytes_AsStringAndSize(v, &raw, &len) < 0) {
      return -1;
    }
    text = raw;
  }
  if ((size_t)len > UINT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%s is too long", key);
    return -1;
  }
  out->ptr = text;
  out->len = (uint32_t)len;
  return 0;
}

/* "a, b, c": the words of a table, for an error. */
static PyObject *words_of(fgpy_state *st, uint32_t table) {
  PyObject *words = PyList_New(0);
  for (uint32_t i = 0; words != NULL && i < FGPY_VALUES; i++) {
    PyObject *name = st->name[table][i];
    if (name != NULL && PyList_Append(words, name) < 0) {
      Py_CLEAR(words);
    }
  }
  PyObject *comma = words ? PyUnicode_FromString(", ") : NULL;
  PyObject *text = comma ? PyUnicode_Join(comma, words) : NULL;
  Py_XDECREF(words);
  Py_XDECREF(comma);
  return text;
}

int fgpy_word(fgpy_state *st, uint32_t table, PyObject *v, const char *key,
              uint32_t *out) {
  *out = 0;
  if (v == NULL || v == Py_None) {
    return 0;
  }
  for (uint32_t i = 0; i < FGPY_VALUES; i++) { /* literals are interned */
    if (st->name[table][i] == v) {
      *out = i;
      return 0;
    }
  }
  if (!PyUnicode_Check(v)) {
    return fgpy_type_error(key, "a str", v);
  }
  for (uint32_t i = 0; i < FGPY_VALUES; i++) {
    PyObject *name = st->name[table][i];
    if (name != NULL && PyUnicode_Compare(name, v) == 0) {
      *out = i;
      return 0;
    }
  }
  PyObject *words = words_of(st, table);
  if (words != NULL) {
    PyErr_Format(PyExc_ValueError, "%s is %R; it is one of: %U", key, v, words);
    Py_DECREF(words);
  }
  return -1;
}

int fgpy_bits(fgpy_state *st, uint32_t table, PyObject *v, const char *key,
              uint32_t *out) {
  *out = 0;
  if (v == NULL || v == Py_None) {
    return 0;
  }
  if (PyUnicode_Check(v)) {
    uint32_t bit = 0;
    if (fgpy_word(st, table, v, key, &bit) < 0) {
      return -1;
    }
    *out = 1U << bit;
    return 0;
  }
  PyObject *each = PyObject_GetIter(v);
  if (each == NULL) {
    PyErr_Clear();
    return fgpy_type_error(key, "a list of str", v);
  }
  PyObject *one = NULL;
  while ((one = PyIter_Next(each)) != NULL) {
    uint32_t bit = 0;
    int rc = one == Py_None ? fgpy_type_error(key, "a list of str", one)
                            : fgpy_word(st, table, one, key, &bit);
    Py_DECREF(one);
    if (rc < 0) {
      Py_DECREF(each);
      return -1;
    }
    *out |= 1U << bit;
  }
  Py_DECREF(each);
  return PyErr_Occurred() ? -1 : 0;
}

/* Decimal text, "12.5" or "1.25e-3": nano-dollars, what is left rounded up. */
static int usd_text(const char *text, const char *key, int64_t *out) {
  const char *p = text;
  uint64_t digits = 0;
  int scale = 9, seen = 0, rest = 0, point = 0;
  for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
    if (*p == '.') {
      point = 1;
      continue;
    }
    seen = 1;
    if (digits < 900000000000000000U) {
      digits = digits * 10 + (uint64_t)(*p - '0');
      scale -= point;
    } else {
      rest |= *p != '0';
      scale += !point;
    }
  }
  if (seen && (*p == 'e' || *p == 'E')) {
    int sign = p[1] == '-' ? -1 : 1, exponent = 0;
    p += 1 + (p[1] == '-' || p[1] == '+');
    seen = *p >= '0' && *p <= '9';
    for (; *p >= '0' && *p <= '9'; p++) {
      exponent = exponent > 999 ? 1000 : exponent * 10 + (*p - '0');
    }
    scale += sign * exponent;
  }
  if (!seen || *p != 0) {
    PyErr_Format(PyExc_ValueError, "%s must be an amount in USD, not '%s'", key,
                 text);
    return -1;
  }
  for (; scale > 0 && digits != 0; scale--) {
    if (digits > INT64_MAX / 10) {
      PyErr_Format(PyExc_ValueError, "%s is out of range", key);
      return -1;
    }
    digits *= 10;
  }
  for (; scale < 0 && digits != 0; scale++) {
    rest |= digits % 10 != 0;
    digits /= 10;
  }
  *out = (int64_t)digits + (rest && digits < INT64_MAX);
  return 0;
}

int fgpy_usd(PyObject *v, const char *key, int64_t *out) {
  *out = 0;
  if (v == NULL || v == Py_None) {
    return 0;
  }
  if (PyFloat_Check(v)) { /* as the vectors' JSON numbers are read in C */
    double d = PyFloat_AsDouble(v);
    if (!(d >= 0.0) || d > 2251799.0) {
      PyErr_Format(PyExc_ValueError, "%s is out of range", key);
      return -1;
    }
    *out = llround(d * 1e9);
    return 0;
  }
  PyObject *text = PyObject_Str(v);
  const char *raw = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  int rc = raw ? usd_text(raw, key, out) : -1;
  Py_XDECREF(text);
  return rc;
}

/* The k-th keyword: its text is the object's own, and ends with NUL. */
const char *fgpy_key_text(PyObject *kwnames, Py_ssize_t k) {
  return PyUnicode_AsUTF8AndSize(PyTuple_GetItem(kwnames, k), NULL);
}
