/* Python values to the core's structs: single values, begin()'s facts,
 * evidence, answers. Facts of decide() are in fgpy_facts.c. */
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
static int keep_object(fgpy_keep *keep, PyObject *o) {
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

static void *keep_memory(fgpy_keep *keep, size_t bytes) {
  void *mem = PyMem_Malloc(bytes);
  if (mem == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  keep->mem[keep->mem_count++] = mem;
  return mem;
}

/* ---- single values ---- */

static int type_error(const char *key, const char *wanted, PyObject *v) {
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
      return type_error(key, "an int", v);
    }
  } else {
    return type_error(key, "an int", v);
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
    return type_error(key, "true or false", v);
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
      if (bytes == NULL || keep_object(keep, bytes) < 0) {
        return -1;
      }
      v = bytes;
    }
  }
  if (text == NULL) {
    char *raw = NULL;
    if (!PyBytes_Check(v)) {
      return type_error(key, "a str", v);
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
    return type_error(key, "a str", v);
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
    return type_error(key, "a list of str", v);
  }
  PyObject *one = NULL;
  while ((one = PyIter_Next(each)) != NULL) {
    uint32_t bit = 0;
    int rc = one == Py_None ? type_error(key, "a list of str", one)
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

/* ---- begin()'s facts ---- */

enum {
  R_STR,
  R_U32,
  R_WORD,
  R_BITS,
  R_STREAM,
  R_TOOLS,
  R_CHOICE,
  R_PRIOR
};
typedef struct request_field {
  const char *name;
  uint32_t kind, table;
  size_t offset;
} request_field;

#define AT(field) offsetof(fg_request, field)
static const request_field request_fields[] = {
    {"prompt_tokens", R_U32, 0, AT(prompt_tokens)},
    {"max_output_tokens", R_U32, 0, AT(max_output_tokens)},
    {"workflow", R_STR, 0, AT(workflow)},
    {"call_id", R_STR, 0, AT(call_id)},
    {"tenant", R_STR, 0, AT(tenant)},
    {"affinity", R_STR, 0, AT(affinity)},
    {"account", R_STR, 0, AT(account)},
    {"data_class", R_STR, 0, AT(data_class)},
    {"region", R_STR, 0, AT(region)},
    {"language", R_STR, 0, AT(language)},
    {"request_bytes", R_U32, 0, AT(request_bytes)},
    {"max_wait_ms", R_U32, 0, AT(max_wait_ms)},
    {"stream", R_STREAM, FG_TABLE_STREAM, AT(stream)},
    {"delivery", R_WORD, FG_TABLE_DELIVERY, AT(delivery)},
    {"server_state", R_WORD, FG_TABLE_SERVER_STATE, AT(server_state)},
    {"features", R_BITS, FG_TABLE_FEATURE, AT(features)},
    {"unable", R_BITS, FG_TABLE_UNABLE, AT(unable)},
    {"tools", R_TOOLS, 0, 0},
    {"tool_choice", R_CHOICE, 0, 0},
    {"prior", R_PRIOR, 0, 0},
};
#undef AT

static int request_tools(fgpy_keep *keep, PyObject *v, fg_request *r) {
  if (v == Py_None) {
    return 0;
  }
  if (PyUnicode_Check(v) || PyBytes_Check(v) || PyDict_Check(v)) {
    return type_error("tools", "a list of str", v);
  }
  PyObject *list = PySequence_List(v);
  if (list == NULL) {
    PyErr_Clear();
    return type_error("tools", "a list of str", v);
  }
  if (keep_object(keep, list) < 0) {
    return -1;
  }
  Py_ssize_t count = PyList_Size(list);
  if (count > FG_TOOLS_MAX) {
    PyErr_Format(PyExc_ValueError, "tools holds more than %d names",
                 FG_TOOLS_MAX);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *one = PyList_GetItem(list, i);
    if (!PyUnicode_Check(one)) {
      return type_error("tools", "a list of str", one);
    }
    if (fgpy_str(keep, one, "tools", &keep->tool[i]) < 0) {
      return -1;
    }
  }
  r->tools = keep->tool;
  r->tool_count = (uint32_t)count;
  return 0;
}

static int request_prior(PyObject *v, fg_request *r) {
  if (v == Py_None) {
    return 0;
  }
  if (!PyDict_Check(v)) {
    return type_error("prior", "a dict", v);
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(v, &at, &key, &value)) {
    int rc = 0;
    if (!PyUnicode_Check(key)) {
      return type_error("a key of prior", "a str", key);
    }
    if (PyUnicode_CompareWithASCIIString(key, "attempts") == 0) {
      rc = fgpy_u32(value, "prior.attempts", &r->prior_attempts);
    } else if (PyUnicode_CompareWithASCIIString(key, "tokens") == 0) {
      rc = fgpy_u32(value, "prior.tokens", &r->prior_tokens);
    } else if (PyUnicode_CompareWithASCIIString(key, "cost_nusd") == 0) {
      rc = fgpy_i64(value, "prior.cost_nusd", &r->prior_cost_nusd);
    } else {
      PyErr_Format(PyExc_TypeError,
                   "prior has no key %R; it has attempts, "
                   "tokens, cost_nusd",
                   key);
      return -1;
    }
    if (rc < 0) {
      return -1;
    }
  }
  return 0;
}

static int request_value(fgpy_keep *keep, const request_field *f, PyObject *v,
                         fg_request *r) {
  void *at = (char *)r + f->offset;
  switch (f->kind) {
  case R_STR:
    return fgpy_str(keep, v, f->name, (fg_str *)at);
  case R_U32:
    return fgpy_u32(v, f->name, (uint32_t *)at);
  case R_WORD:
    return fgpy_word(keep->st, f->table, v, f->name, (uint32_t *)at);
  case R_BITS:
    return fgpy_bits(keep->st, f->table, v, f->name, (uint32_t *)at);
  case R_STREAM:
    if (PyBool_Check(v)) {
      r->stream = v == Py_True ? FG_STREAM_YES : FG_STREAM_NO;
      return 0;
    }
    return fgpy_word(keep->st, f->table, v, f->name, &r->stream);
  case R_TOOLS:
    return request_tools(keep, v, r);
  case R_PRIOR:
    return request_prior(v, r);
  default: /* R_CHOICE, by name: tools may come after it, so it waits */
    return 0;
  }
}

/* tool_choice is a name of `tools`; it is settled when all keys are read. */
static int request_choice(fgpy_keep *keep, PyObject *v, fg_request *r) {
  if (v == Py_None) {
    return 0;
  }
  fg_str name;
  if (fgpy_str(keep, v, "tool_choice", &name) < 0) {
    return -1;
  }
  for (uint32_t i = 0; i < r->tool_count; i++) {
    const fg_str *tool = &r->tools[i];
    if (tool->len == name.len && memcmp(tool->ptr, name.ptr, name.len) == 0) {
      r->tool_choice = i + 1;
      return 0;
    }
  }
  PyErr_Format(PyExc_ValueError, "tool_choice %R is not one of tools", v);
  return -1;
}

int fgpy_request_key(fgpy_keep *keep, const char *key, PyObject *v,
                     fg_request *r) {
  const size_t count = sizeof request_fields / sizeof request_fields[0];
  for (size_t i = 0; i < count; i++) {
    const request_field *f = &request_fields[i];
    if (strcmp(key, f->name) == 0) {
      if (f->kind == R_CHOICE) {
        return request_choice(keep, v, r) < 0 ? -1 : 1;
      }
      return request_value(keep, f, v, r) < 0 ? -1 : 1;
    }
  }
  return 0;
}

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
    if (value == NULL || keep_object(keep, value) < 0) {
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
    return type_error("headers", "a dict or a list of pairs", v);
  }
  if (keep_object(keep, items) < 0) {
    return -1;
  }
  uint32_t room = FGPY_HEADERS;
  fg_header *all = keep->header;
  Py_ssize_t count = PyList_Size(items);
  if (count > FGPY_HEADERS) {
    room = count > 4096 ? 4096 : (uint32_t)count;
    all = keep_memory(keep, room * sizeof *all);
    if (all == NULL) {
      return -1;
    }
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *pair = PySequence_Tuple(PyList_GetItem(items, i));
    if (pair == NULL || PyTuple_Size(pair) != 2) {
      Py_XDECREF(pair);
      PyErr_Clear();
      return type_error("headers", "a dict or a list of pairs", v);
    }
    if (keep_object(keep, pair) < 0 ||
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
    return type_error("transport", "a dict", v);
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(v, &at, &key, &value)) {
    int rc = 0;
    if (!PyUnicode_Check(key)) {
      return type_error("a key of transport", "a str", key);
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
    return type_error("progress", "a dict", v);
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
      return type_error("a key of progress", "a str", key);
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
    return type_error("evidence", "a dict", dict);
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!PyUnicode_Check(key)) {
      return type_error("a key of evidence", "a str", key);
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
    return type_error("tool_calls", "a list of dicts", one);
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(one, &at, &key, &value)) {
    int rc = 0;
    if (!PyUnicode_Check(key)) {
      return type_error("a key of a tool call", "a str", key);
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
    return type_error("tool_calls", "a list of dicts", v);
  }
  PyObject *list = PySequence_List(v);
  if (list == NULL) {
    PyErr_Clear();
    return type_error("tool_calls", "a list of dicts", v);
  }
  if (keep_object(keep, list) < 0) {
    return -1;
  }
  Py_ssize_t count = PyList_Size(list);
  fg_tool_call *all = keep->call;
  if (count > FGPY_CALLS) {
    all = keep_memory(keep, (size_t)count * sizeof *all);
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

int fgpy_answer_key(fgpy_keep *keep, const char *key, PyObject *v,
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
