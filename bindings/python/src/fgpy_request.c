/* What begin() wants to know of a chat completion's request, read in one pass,
 * where it is plain: messages of text, no tools, no schema. Any other is left
 * to who parses it. Engine.begin_chat() begins at once, chat_request() says
 * what begin() would be told. */
#include "fgpy_convert.h"

#include "fg_scan.h"
#include "fgpy_plain.h"

enum {
  REQ_MODEL = 1, /* those that may come once are bits; so to REQ_ONCE */
  REQ_MESSAGES = 2,
  REQ_STREAM = 4,
  REQ_LIMIT_COMPLETION = 8,
  REQ_LIMIT_OUTPUT = 16,
  REQ_LIMIT = 32,
  REQ_ROLE = 64,
  REQ_CONTENT = 128,
  REQ_TYPE = 256,
  REQ_ONCE = 511,
  REQ_TEXT = 512,
  REQ_FREE = 1024 /* not looked at, nor what is inside */
};
enum { REQ_OF_MESSAGE = REQ_ROLE | REQ_CONTENT };

static const fgpy_key root_keys[] = {
    FGPY_KEY("model", REQ_MODEL),
    FGPY_KEY("messages", REQ_MESSAGES),
    FGPY_KEY("stream", REQ_STREAM),
    FGPY_KEY("max_completion_tokens", REQ_LIMIT_COMPLETION),
    FGPY_KEY("max_output_tokens", REQ_LIMIT_OUTPUT),
    FGPY_KEY("max_tokens", REQ_LIMIT),
    FGPY_KEY("temperature", REQ_FREE),
    FGPY_KEY("top_p", REQ_FREE),
    FGPY_KEY("stop", REQ_FREE),
    FGPY_KEY("n", REQ_FREE),
    FGPY_KEY("seed", REQ_FREE),
    FGPY_KEY("user", REQ_FREE),
    FGPY_KEY("stream_options", REQ_FREE),
    FGPY_KEY("presence_penalty", REQ_FREE),
    FGPY_KEY("frequency_penalty", REQ_FREE),
    FGPY_KEY("metadata", REQ_FREE),
    FGPY_KEY("service_tier", REQ_FREE),
    {NULL, 0, 0}};
static const fgpy_key message_keys[] = {
    FGPY_KEY("role", REQ_ROLE),
    FGPY_KEY("content", REQ_CONTENT),
    FGPY_KEY("type", 0),
    FGPY_KEY("parts", 0),
    {NULL, 0, REQ_FREE}};
static const fgpy_key part_keys[] = {
    FGPY_KEY("type", REQ_TYPE),
    FGPY_KEY("text", REQ_TEXT),
    {NULL, 0, 0}};

/* What a turn's role says of the request. */
enum { ROLE_OTHER, ROLE_SYSTEM = 1, ROLE_TOOL = 2, ROLE_MODEL = 4 };
static const fgpy_key roles[] = {
    FGPY_KEY("system", ROLE_SYSTEM),
    FGPY_KEY("developer", ROLE_SYSTEM),
    FGPY_KEY("tool", ROLE_TOOL),
    FGPY_KEY("function", ROLE_TOOL),
    FGPY_KEY("assistant", ROLE_MODEL),
    FGPY_KEY("model", ROLE_MODEL),
    {NULL, 0, ROLE_OTHER}};
static const fgpy_key types[] = {
    FGPY_KEY("text", 1),
    {NULL, 0, 0}};

/* Depths: members of the root 1, messages 2, their members 3, parts 4, their
 * members 5. */
enum { REQ_DEPTH = 6, REQ_WORD = 128, REQ_BASE64_FROM = 2000 };

typedef struct req {
  uint32_t at[REQ_DEPTH]; /* the member open at each depth */
  uint32_t seen, limit, roles, last_role, stream;
  uint32_t word_len, model_len;
  char word[REQ_WORD], model[REQ_WORD];
} req;

/* The member a value at this depth belongs to; 0: an element of a list. */
static uint32_t req_place(const req *r, uint32_t depth) {
  if (depth == 0) {
    return 0;
  }
  if (depth == 1 || r->at[1] == REQ_FREE) {
    return r->at[1];
  }
  if (depth < 4 || r->at[3] == REQ_FREE) {
    return depth == 2 ? 0 : r->at[3];
  }
  return depth == 5 ? r->at[5] : 0;
}

static int req_key(req *r, const fg_scan_event *e) {
  if (e->depth > 1 && req_place(r, e->depth - 1) == REQ_FREE) {
    return 0;
  }
  if (e->cut || e->depth >= REQ_DEPTH) {
    return 1;
  }
  uint32_t what = fgpy_find(e->depth == 1   ? root_keys
                            : e->depth == 3 ? message_keys
                                            : part_keys,
                            e->text);
  if (what == 0 || (r->seen & REQ_ONCE & what)) {
    return 1;
  }
  r->seen |= what;
  r->at[e->depth] = what;
  return 0;
}

static int req_begin(req *r, const fg_scan_event *e) {
  uint32_t place = req_place(r, e->depth);
  int object = e->what == FG_SCAN_BEGIN_OBJECT;
  if (place == REQ_FREE) {
    return 0;
  }
  switch (e->depth) {
  case 0:
    return !object;
  case 1:
    return place != REQ_MESSAGES || object;
  case 2: /* a message */
    r->seen &= ~(uint32_t)REQ_OF_MESSAGE;
    r->at[3] = 0;
    r->last_role = ROLE_OTHER;
    return !object;
  case 3:
    return place != REQ_CONTENT || object;
  case 4: /* a part */
    r->seen &= ~(uint32_t)REQ_TYPE;
    return !object;
  default:
    return 1;
  }
}

/* A word to keep came whole. */
static int req_word(req *r, uint32_t place) {
  const fg_str word = fg_str_make(r->word, r->word_len);
  r->word_len = 0;
  if (place == REQ_MODEL) {
    memcpy(r->model, word.ptr, word.len);
    r->model_len = word.len;
    return 0;
  }
  if (place == REQ_TYPE) {
    return fgpy_find(types, word) == 0;
  }
  r->last_role = fgpy_find(roles, word);
  r->roles |= r->last_role;
  return 0;
}

static int req_string(req *r, const fg_scan_event *e, uint32_t place) {
  if (place != REQ_MODEL && place != REQ_TYPE && place != REQ_ROLE) {
    return place != REQ_FREE && place != REQ_TEXT && place != REQ_CONTENT;
  }
  if (e->text.len > REQ_WORD - r->word_len) {
    return 1;
  }
  memcpy(r->word + r->word_len, e->text.ptr, e->text.len);
  r->word_len += e->text.len;
  return e->last ? req_word(r, place) : 0;
}

static int req_number(req *r, const fg_scan_event *e, uint32_t place) {
  if (place != REQ_LIMIT && place != REQ_LIMIT_OUTPUT &&
      place != REQ_LIMIT_COMPLETION) {
    return place != REQ_FREE;
  }
  if (!e->is_integer || e->integer > UINT32_MAX) {
    return 1;
  }
  if (e->integer > (int64_t)r->limit) {
    r->limit = (uint32_t)e->integer;
  }
  return 0;
}

/* Nonzero: not a plain request. */
static int req_sink(void *ctx, const fg_scan_event *e) {
  req *r = ctx;
  uint32_t place = 0;
  switch (e->what) {
  case FG_SCAN_KEY:
    return req_key(r, e);
  case FG_SCAN_BEGIN_OBJECT:
  case FG_SCAN_BEGIN_ARRAY:
    return req_begin(r, e);
  case FG_SCAN_END_OBJECT:
  case FG_SCAN_END_ARRAY:
    return 0;
  case FG_SCAN_STRING:
    return req_string(r, e, req_place(r, e->depth));
  case FG_SCAN_NUMBER:
    return req_number(r, e, req_place(r, e->depth));
  case FG_SCAN_NULL:
    place = req_place(r, e->depth);
    return place != REQ_FREE && place != REQ_CONTENT && place != REQ_LIMIT &&
           place != REQ_LIMIT_OUTPUT && place != REQ_LIMIT_COMPLETION &&
           place != REQ_STREAM;
  default: /* true, false */
    place = req_place(r, e->depth);
    if (place == REQ_STREAM) {
      r->stream = e->what == FG_SCAN_TRUE;
      return 0;
    }
    return place != REQ_FREE;
  }
}

/* Whether an attachment may be inside, which counts otherwise. */
static int req_base64(const char *bytes, size_t len) {
  const char *at = bytes, *end = bytes + len;
  while ((at = memchr(at, '6', (size_t)(end - at))) != NULL) {
    if (at - bytes >= 4 && end - at >= 2 &&
        fg_eq_nocase(at - 4, 6, "base64", 6)) {
      return 1;
    }
    at++;
  }
  return 0;
}

static PyObject *req_features(const req *r) {
  PyObject *out = PyList_New(0);
  const struct {
    uint32_t on;
    const char *name;
  } all[] = {{r->last_role & ROLE_MODEL, "prefill"},
             {r->roles & ROLE_SYSTEM, "system_prompt"},
             {r->roles & ROLE_TOOL, "tool_round_trip"}};
  for (size_t i = 0; out != NULL && i < sizeof all / sizeof all[0]; i++) {
    PyObject *name = all[i].on ? PyUnicode_FromString(all[i].name) : NULL;
    if (all[i].on && (name == NULL || PyList_Append(out, name) < 0)) {
      Py_CLEAR(out);
    }
    Py_XDECREF(name);
  }
  return out;
}

static int req_put(PyObject *dict, const char *key, PyObject *value) {
  int rc = value == NULL ? -1 : PyDict_SetItemString(dict, key, value);
  Py_XDECREF(value);
  return rc;
}

/* An estimate: four bytes of JSON for a token. */
static uint32_t req_tokens(size_t len) {
  return len < 8 ? 1 : (uint32_t)(len / 4);
}

static PyObject *req_facts(const req *r, size_t len) {
  PyObject *out = Py_BuildValue(
      "{sI,sn,sO}", "prompt_tokens", (unsigned)req_tokens(len),
      "request_bytes", (Py_ssize_t)len, "stream",
      r->stream ? Py_True : Py_False);
  if (out != NULL && r->limit > 0 &&
      req_put(out, "max_output_tokens", PyLong_FromUnsignedLong(r->limit)) <
          0) {
    Py_CLEAR(out);
  }
  if (out != NULL &&
      (r->last_role & ROLE_MODEL || r->roles & (ROLE_SYSTEM | ROLE_TOOL)) &&
      req_put(out, "features", req_features(r)) < 0) {
    Py_CLEAR(out);
  }
  return out == NULL ? NULL
                     : Py_BuildValue("(s#N)", r->model,
                                     (Py_ssize_t)r->model_len, out);
}

/* 1: a plain request; 0: another; -1: an exception. */
static int req_read(PyObject *body, req *r, size_t *size) {
  char *bytes = NULL;
  Py_ssize_t len = 0;
  if (PyBytes_AsStringAndSize(body, &bytes, &len) < 0) {
    return -1;
  }
  if (len > 1 << 30 ||
      (len > REQ_BASE64_FROM && req_base64(bytes, (size_t)len))) {
    return 0;
  }
  memset(r, 0, sizeof *r);
  *size = (size_t)len;
  fg_scan scan;
  fg_scan_init(&scan, 0);
  return fg_scan_feed(&scan, bytes, (uint32_t)len, req_sink, r, NULL) ==
             FG_SCAN_DONE &&
         fg_scan_end(&scan, req_sink, r) == FG_SCAN_DONE &&
         (r->seen & REQ_MODEL) != 0;
}

PyObject *fgpy_chat_request(PyObject *module, PyObject *body) {
  (void)module;
  req r;
  size_t len = 0;
  const int plain = req_read(body, &r, &len);
  if (plain <= 0) {
    return plain < 0 ? NULL : Py_NewRef(Py_None);
  }
  return req_facts(&r, len);
}

/* Whether a decision is to send the request whole, now and as it is, to the
 * route that was asked for, which serves the model that it names. */
static int req_goes_as_it_is(const fgpy_engine *e, const req *r,
                             const fg_decision *d) {
  fg_route_info route = {.size = sizeof route};
  return !r->stream && d->action == FG_ACTION_PROCEED && d->wait_ms == 0 &&
         d->change == 0 && (d->requested == 0 || d->requested == d->route) &&
         fg_policy_route_info(e->policy->block, d->route, &route) == FG_OK &&
         (route.model.len == 0 ||
          (route.model.len == r->model_len &&
           memcmp(route.model.ptr, r->model, r->model_len) == 0));
}

/* A call begun, and permitted where it may be, as begin_chat() tells of it.
 * headers: NULL where no permission is asked for. */
static PyObject *req_begun(fgpy_call *call, const req *r,
                           const fg_decision *first, PyObject *headers,
                           PyObject *timeouts, int64_t now_ms) {
  fgpy_engine *e = call->engine;
  fgpy_decision *permit = NULL;
  PyObject *sent = NULL, *out = NULL;
  if (headers != NULL && req_goes_as_it_is(e, r, first)) {
    permit = fgpy_call_permit(call, now_ms);
    if (permit == NULL) {
      return NULL;
    }
    if (req_goes_as_it_is(e, r, &permit->d)) {
      sent = fgpy_sent(call, &permit->d, headers, timeouts);
      if (sent == NULL) { /* whoever sends it will say why */
        PyErr_Clear();
      }
    }
  }
  out = Py_BuildValue(
      "(Os#OOO)", (PyObject *)call, r->model, (Py_ssize_t)r->model_len,
      r->stream ? Py_True : Py_False,
      permit != NULL ? (PyObject *)permit : Py_None, sent ? sent : Py_None);
  Py_XDECREF(sent);
  Py_XDECREF((PyObject *)permit);
  return out;
}

static const char *const begin_names[] = {"workflow", "body",     "unable",
                                          "headers",  "timeouts", "now_ms"};

PyObject *fgpy_engine_begin_chat(fgpy_engine *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Engine.begin_chat", begin_names, 6, 5, 3};
  PyObject *in[6], *out = NULL;
  fgpy_keep keep;
  fgpy_keep_init(&keep, self->st);
  fg_request ask = {.size = sizeof ask};
  fg_decision first;
  fgpy_call *call = NULL;
  req r;
  size_t len = 0;
  int64_t now_ms = 0;
  int plain = -1;
  if (fgpy_args(&sig, args, nargs, kwnames, in) == 0 &&
      fgpy_str(&keep, in[0], "workflow", &ask.workflow) == 0 &&
      fgpy_bits(self->st, FG_TABLE_UNABLE, in[2], "unable", &ask.unable) == 0) {
    if (in[3] == Py_None) {
      in[3] = NULL;
    }
    plain = in[3] != NULL && !fgpy_headers_plain(in[3])
                ? 0
                : req_read(in[1], &r, &len);
  }
  if (plain > 0 && fgpy_engine_ready(self, in[5], &now_ms) == 0) {
    ask.prompt_tokens = req_tokens(len);
    ask.request_bytes = (uint32_t)len;
    ask.max_output_tokens = r.limit;
    ask.stream = r.stream ? FG_STREAM_YES : FG_STREAM_NO;
    ask.features =
        (r.last_role & ROLE_MODEL ? (uint32_t)FG_FEATURE_PREFILL : 0) |
        (r.roles & ROLE_SYSTEM ? (uint32_t)FG_FEATURE_SYSTEM_PROMPT : 0) |
        (r.roles & ROLE_TOOL ? (uint32_t)FG_FEATURE_TOOL_ROUND_TRIP : 0);
    call = fgpy_begin(self, &ask, NULL, NULL, NULL, now_ms, &first);
  }
  fgpy_keep_drop(&keep);
  if (call == NULL) {
    return plain == 0 ? Py_NewRef(Py_None) : NULL;
  }
  out = req_begun(call, &r, &first, in[3], in[4], now_ms);
  Py_DECREF((PyObject *)call);
  return out;
}
