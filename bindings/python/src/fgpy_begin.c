/* begin(): the facts of one logical call, its id, the first decision. */
#include "fgpy_convert.h"

#include "fg_call_replay.h"

#include <string.h>
#include <unistd.h>

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
    return fgpy_type_error("tools", "a list of str", v);
  }
  PyObject *list = PySequence_List(v);
  if (list == NULL) {
    PyErr_Clear();
    return fgpy_type_error("tools", "a list of str", v);
  }
  if (fgpy_keep_object(keep, list) < 0) {
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
      return fgpy_type_error("tools", "a list of str", one);
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
    return fgpy_type_error("prior", "a dict", v);
  }
  Py_ssize_t at = 0;
  PyObject *key = NULL, *value = NULL;
  while (PyDict_Next(v, &at, &key, &value)) {
    int rc = 0;
    if (!PyUnicode_Check(key)) {
      return fgpy_type_error("a key of prior", "a str", key);
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

static int request_key(fgpy_keep *keep, const char *key, PyObject *v,
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

/* ---- begin ---- */

/* An id nobody else draws: the engine's seed and a counter, mixed; a forked
 * child starts elsewhere. */
static PyObject *new_id(fgpy_engine *e, char *text, fg_str *out) {
  static const char hex[] = "0123456789abcdef";
  if (e->fork_number != fgpy_fork_number) {
    e->fork_number = fgpy_fork_number;
    e->id_seed ^= (uint64_t)getpid() * UINT64_C(0xd6e8feb86659fd93);
  }
  uint64_t z = e->id_seed + ++e->next_id * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  text[0] = 'f';
  text[1] = 'g';
  text[2] = '-';
  for (int i = 0; i < 16; i++) {
    text[3 + i] = hex[z >> (60 - 4 * i) & 15];
  }
  out->ptr = text;
  out->len = 19;
  return PyUnicode_FromStringAndSize(text, 19);
}

static PyObject *begin_refused(fgpy_engine *e, const fg_request *r,
                               int32_t rc) {
  if (rc == FG_ERR_ARG &&
      fg_policy_find(e->policy->block, FG_FIND_WORKFLOW, r->workflow.ptr,
                     r->workflow.len) == 0) {
    PyObject *name =
        PyUnicode_DecodeUTF8(r->workflow.ptr ? r->workflow.ptr : "",
                             (Py_ssize_t)r->workflow.len, "replace");
    PyObject *comma = PyUnicode_FromString(", ");
    PyObject *known =
        comma != NULL ? PyUnicode_Join(comma, e->policy->workflows) : NULL;
    if (name != NULL && known != NULL) {
      PyErr_Format(e->st->argument_error,
                   "the card has no workflow %R; it has: %U", name, known);
    }
    Py_XDECREF(name);
    Py_XDECREF(comma);
    Py_XDECREF(known);
    return NULL;
  }
  if (rc == FG_ERR_ARG && r->call_id.len > FG_CALL_ID_MAX) {
    PyErr_Format(e->st->argument_error, "call_id is longer than %d bytes",
                 FG_CALL_ID_MAX);
    return NULL;
  }
  return fgpy_fail(e->st, rc, "begin");
}

/* begin()'s keywords into r, and those that are not facts of the request. */
static int begin_facts(fgpy_keep *keep, PyObject *const *values,
                       PyObject *kwnames, fg_request *r, PyObject **now,
                       PyObject **id, PyObject **language,
                       PyObject **known) {
  Py_ssize_t count = kwnames ? PyTuple_Size(kwnames) : 0;
  Py_ssize_t choice = -1;
  for (Py_ssize_t k = 0; k < count; k++) {
    const char *key = fgpy_key_text(kwnames, k);
    if (key == NULL) {
      return -1;
    }
    if (strcmp(key, "tool_choice") == 0) {
      choice = k; /* a name of tools: when those are read */
      continue;
    }
    if (strcmp(key, "now_ms") == 0) {
      *now = values[k];
      continue;
    }
    if (strcmp(key, "_known") == 0) { /* of a recorded call */
      *known = values[k];
      continue;
    }
    int rc = request_key(keep, key, values[k], r);
    if (rc == 0) {
      PyErr_Format(PyExc_TypeError, "begin() has no fact '%s'", key);
    }
    if (rc <= 0) {
      return -1;
    }
    if (strcmp(key, "call_id") == 0) {
      *id = values[k] == Py_None ? NULL : values[k];
    } else if (strcmp(key, "language") == 0) {
      *language = values[k] == Py_None ? NULL : values[k];
    }
  }
  if (choice >= 0) {
    return request_key(keep, "tool_choice", values[choice], r) < 0 ? -1 : 0;
  }
  return 0;
}

/* (tenant, affinity, stream): the hashes a ledger gives. */
static int known_hashes(PyObject *v, fg_replay_known *out) {
  unsigned long long tenant = 0, affinity = 0, stream = 0;
  if (!PyArg_ParseTuple(v, "KKK", &tenant, &affinity, &stream)) {
    return -1;
  }
  *out = (fg_replay_known){tenant, affinity, stream};
  return 0;
}

fgpy_call *fgpy_begin(fgpy_engine *self, fg_request *r, PyObject *id,
                      PyObject *language, const fg_replay_known *known,
                      int64_t now_ms, fg_decision *first) {
  char text[24];
  fgpy_call *call = fgpy_call_new(self);
  if (call == NULL) {
    return NULL;
  }
  call->id = id != NULL ? Py_NewRef(id) : new_id(self, text, &r->call_id);
  call->language = Py_XNewRef(language);
  if (call->id == NULL) {
    Py_DECREF((PyObject *)call);
    return NULL;
  }
  first->size = sizeof *first;
  int32_t rc = fg_replay_begin(self->engine, &call->box->call, r, known,
                               now_ms, first);
  if (rc != FG_OK) {
    (void)begin_refused(self, r, rc);
    Py_DECREF((PyObject *)call);
    return NULL;
  }
  call->forgotten = 0;
  return call;
}

PyObject *fgpy_engine_begin(fgpy_engine *self, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames) {
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->st);
  fg_request r;
  memset(&r, 0, sizeof r);
  r.size = sizeof r;
  PyObject *now = NULL, *id = NULL, *language = NULL, *hashes = NULL;
  fg_replay_known known;
  int64_t now_ms = 0;
  fgpy_call *call = NULL;
  fg_decision first; /* the call remembers it */
  if (nargs > 1) {
    PyErr_SetString(PyExc_TypeError,
                    "begin() takes the workflow; its facts come by keyword");
    return NULL;
  }
  if ((nargs == 1 && fgpy_str(&keep, args[0], "workflow", &r.workflow) < 0) ||
      begin_facts(&keep, args + nargs, kwnames, &r, &now, &id, &language,
                  &hashes) < 0 ||
      (hashes != NULL && known_hashes(hashes, &known) < 0)) {
    goto done;
  }
  if (r.workflow.len == 0) {
    PyErr_SetString(PyExc_TypeError, "begin() needs the workflow's name");
    goto done;
  }
  if (fgpy_engine_ready(self, now, &now_ms) == 0) {
    call = fgpy_begin(self, &r, id, language, hashes != NULL ? &known : NULL,
                      now_ms, &first);
  }
done:
  fgpy_keep_drop(&keep);
  return (PyObject *)call;
}
