/* What success() wants to know of a whole chat completion, read in one pass,
 * for the answer that nearly all are: one choice, text only, the members
 * everybody sends. Any other is left to who parses it. Call.chat_success()
 * tells the engine at once, chat_answer() says what it would be told. */
#include "fgpy_convert.h"

#include "fg_keys.h"
#include "fg_scan.h"
#include "fgpy_plain.h"

/* Members that are read, each a bit: a second one of its name is no plain
 * answer. What follows CHAT_READ is only allowed. */
enum {
  CHAT_CHOICES = 1,
  CHAT_USAGE = 2,
  CHAT_MESSAGE = 4,
  CHAT_FINISH = 8,
  CHAT_CONTENT = 16,
  CHAT_PROMPT = 32,
  CHAT_OUTPUT = 64,
  CHAT_DETAILS = 128,
  CHAT_CACHED = 256,
  CHAT_COUNTED = CHAT_PROMPT | CHAT_OUTPUT,
  CHAT_READ = 511,
  CHAT_OBJECT = 512,
  CHAT_EMPTY = 1024, /* must be null, or a list of nothing */
  CHAT_FREE = 2048,  /* any scalar, null, or empty */
  CHAT_COUNTS = 4096 /* in usage: not looked at */
};

static const fgpy_key root_keys[] = {
    FGPY_KEY("id", CHAT_FREE),
    FGPY_KEY("object", CHAT_OBJECT),
    FGPY_KEY("created", CHAT_FREE),
    FGPY_KEY("model", CHAT_FREE),
    FGPY_KEY("choices", CHAT_CHOICES),
    FGPY_KEY("usage", CHAT_USAGE),
    FGPY_KEY("service_tier", CHAT_FREE),
    FGPY_KEY("system_fingerprint", CHAT_FREE),
    FGPY_KEY("provider", CHAT_FREE),
    FGPY_KEY("prompt_logprobs", CHAT_FREE),
    {NULL, 0, 0}};
static const fgpy_key choice_keys[] = {
    FGPY_KEY("index", CHAT_FREE),
    FGPY_KEY("message", CHAT_MESSAGE),
    FGPY_KEY("logprobs", CHAT_FREE),
    FGPY_KEY("finish_reason", CHAT_FINISH),
    FGPY_KEY("stop_reason", CHAT_FREE),
    {NULL, 0, 0}};
static const fgpy_key message_keys[] = {
    FGPY_KEY("role", CHAT_FREE),
    FGPY_KEY("content", CHAT_CONTENT),
    FGPY_KEY("refusal", CHAT_EMPTY),
    FGPY_KEY("annotations", CHAT_EMPTY),
    FGPY_KEY("tool_calls", CHAT_EMPTY),
    FGPY_KEY("function_call", CHAT_EMPTY),
    FGPY_KEY("audio", CHAT_EMPTY),
    {NULL, 0, 0}};
static const fgpy_key usage_keys[] = {
    FGPY_KEY("prompt_tokens", CHAT_PROMPT),
    FGPY_KEY("completion_tokens", CHAT_OUTPUT),
    FGPY_KEY("prompt_tokens_details", CHAT_DETAILS),
    {NULL, 0, CHAT_COUNTS}};
static const fgpy_key detail_keys[] = {
    FGPY_KEY("cached_tokens", CHAT_CACHED),
    {NULL, 0, CHAT_COUNTS}};

enum { CHAT_DEPTH = 5, CHAT_WORD = 16 };

typedef struct chat {
  uint32_t at[CHAT_DEPTH]; /* the member open at each depth */
  uint32_t seen;
  uint32_t prompt, output, cached, visible;
  uint32_t finish, word_len;
  char word[CHAT_WORD];
  char *text;
  uint32_t text_len;
} chat;

/* Which member this key is; 0: one that no plain answer has. */
static uint32_t chat_member(const chat *c, const fg_scan_event *e) {
  if (c->at[1] == CHAT_USAGE && e->depth > 1) {
    if (fg_key(e->text.ptr, e->text.len) == FG_K_COST) {
      return 0;
    }
    return e->depth == 2 ? fgpy_find(usage_keys, e->text)
           : e->depth == 3 && c->at[2] == CHAT_DETAILS
               ? fgpy_find(detail_keys, e->text)
               : (uint32_t)CHAT_COUNTS;
  }
  return e->depth == 1   ? fgpy_find(root_keys, e->text)
         : e->depth == 3 ? fgpy_find(choice_keys, e->text)
                         : fgpy_find(message_keys, e->text);
}

static int chat_is_key(chat *c, const fg_scan_event *e) {
  uint32_t what = e->cut ? 0 : chat_member(c, e);
  if (what == 0 || (c->seen & CHAT_READ & what)) {
    return 1;
  }
  c->seen |= what;
  if (e->depth < CHAT_DEPTH) {
    c->at[e->depth] = what;
  }
  return 0;
}

/* Where the value of this event stands: the member it belongs to. */
static uint32_t chat_place(const chat *c, const fg_scan_event *e) {
  if (e->depth == 0) {
    return 0;
  }
  if (c->at[1] == CHAT_USAGE && e->depth > 2 &&
      (e->depth > 3 || c->at[2] != CHAT_DETAILS)) {
    return CHAT_COUNTS;
  }
  return e->depth < CHAT_DEPTH ? c->at[e->depth] : 0;
}

static int chat_begins(const chat *c, const fg_scan_event *e) {
  int object = e->what == FG_SCAN_BEGIN_OBJECT;
  if (e->depth == 0) {
    return !object;
  }
  if (e->depth == 2 && c->at[1] == CHAT_CHOICES) {
    return !object || e->index > 0; /* one choice */
  }
  switch (chat_place(c, e)) {
  case CHAT_CHOICES:
  case CHAT_EMPTY:
  case CHAT_FREE:
    return object; /* what is inside is looked at in its turn */
  case CHAT_USAGE:
  case CHAT_MESSAGE:
  case CHAT_DETAILS:
    return !object;
  case CHAT_COUNTS:
    return 0;
  default:
    return 1;
  }
}

static int chat_string(chat *c, const fg_scan_event *e, uint32_t place) {
  switch (place) {
  case CHAT_CONTENT:
    memcpy(c->text + c->text_len, e->text.ptr, e->text.len);
    c->text_len += e->text.len;
    for (uint32_t i = 0; i < e->text.len; i++) {
      c->visible += ((unsigned char)e->text.ptr[i] & 0xC0) != 0x80;
    }
    return 0;
  case CHAT_FINISH:
  case CHAT_OBJECT:
    if (e->text.len > CHAT_WORD - c->word_len) {
      return 1;
    }
    memcpy(c->word + c->word_len, e->text.ptr, e->text.len);
    c->word_len += e->text.len;
    if (!e->last) {
      return 0;
    }
    const fg_str word = fg_str_make(c->word, c->word_len);
    static const fgpy_key finishes[] = {
        FGPY_KEY("stop", FG_FINISH_STOP),
        FGPY_KEY("length", FG_FINISH_LENGTH),
        FGPY_KEY("content_filter", FG_FINISH_CONTENT_FILTER),
        {NULL, 0, FG_FINISH_NONE}};
    static const fgpy_key objects[] = {
        FGPY_KEY("chat.completion", 1),
        {NULL, 0, 0}};
    c->word_len = 0;
    if (place == CHAT_OBJECT) {
      return fgpy_find(objects, word) == 0;
    }
    c->finish = fgpy_find(finishes, word);
    return c->finish == FG_FINISH_NONE;
  case CHAT_FREE:
  case CHAT_COUNTS:
    return 0;
  default:
    return 1;
  }
}

static int chat_number(chat *c, const fg_scan_event *e, uint32_t place) {
  uint32_t *out = place == CHAT_PROMPT   ? &c->prompt
                  : place == CHAT_OUTPUT ? &c->output
                  : place == CHAT_CACHED ? &c->cached
                                         : NULL;
  if (out == NULL) {
    return place != CHAT_FREE && place != CHAT_COUNTS;
  }
  if (!e->is_integer || e->integer < 0 || e->integer > UINT32_MAX) {
    return 1;
  }
  *out = (uint32_t)e->integer;
  return 0;
}

/* Nonzero: not a plain answer. */
static int chat_sink(void *ctx, const fg_scan_event *e) {
  chat *c = ctx;
  uint32_t place;
  switch (e->what) {
  case FG_SCAN_KEY:
    return chat_is_key(c, e);
  case FG_SCAN_BEGIN_OBJECT:
  case FG_SCAN_BEGIN_ARRAY:
    if (chat_begins(c, e)) {
      return 1;
    }
    if (e->depth + 1 < CHAT_DEPTH) {
      c->at[e->depth + 1] = 0; /* elements of a list belong to none */
    }
    return 0;
  case FG_SCAN_END_OBJECT:
  case FG_SCAN_END_ARRAY:
    return 0;
  case FG_SCAN_STRING:
    return chat_string(c, e, chat_place(c, e));
  case FG_SCAN_NUMBER:
    return chat_number(c, e, chat_place(c, e));
  case FG_SCAN_NULL:
    place = chat_place(c, e);
    if (place == CHAT_USAGE) {
      c->seen &= ~(uint32_t)CHAT_USAGE; /* as if it were not there */
    }
    return place != CHAT_FREE && place != CHAT_EMPTY && place != CHAT_COUNTS &&
           place != CHAT_USAGE && place != CHAT_DETAILS;
  default:
    place = chat_place(c, e);
    return place != CHAT_FREE && place != CHAT_COUNTS;
  }
}

static PyObject *chat_facts(fgpy_state *st, const chat *c) {
  PyObject *out = Py_BuildValue(
      "{sI,sN,ss#}", "visible", (unsigned)c->visible, "finish_reason",
      fgpy_name(st, FG_TABLE_FINISH, c->finish), "output", c->text,
      (Py_ssize_t)c->text_len);
  if (out != NULL && (c->seen & CHAT_COUNTED)) {
    PyObject *usage = Py_BuildValue(
        "{sI,sI,sI,sO}", "prompt_tokens", (unsigned)c->prompt, "output_tokens",
        (unsigned)c->output, "cached_tokens", (unsigned)c->cached, "final",
        Py_True);
    if (usage == NULL || PyDict_Update(out, usage) < 0) {
      Py_CLEAR(out);
    }
    Py_XDECREF(usage);
  }
  return out;
}

/* 1: a plain answer, c->text to be freed; 0: another; -1: an exception. */
static int chat_read(PyObject *body, chat *c) {
  char *bytes = NULL;
  Py_ssize_t len = 0;
  if (PyBytes_AsStringAndSize(body, &bytes, &len) < 0) {
    return -1;
  }
  if (len > 1 << 30) {
    return 0;
  }
  memset(c, 0, sizeof *c);
  c->text = PyMem_Malloc((size_t)len + 1);
  if (c->text == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  fg_scan scan;
  fg_scan_init(&scan, 0);
  const uint32_t whole = CHAT_CHOICES | CHAT_MESSAGE | CHAT_CONTENT |
                         CHAT_FINISH;
  if (fg_scan_feed(&scan, bytes, (uint32_t)len, chat_sink, c, NULL) ==
          FG_SCAN_DONE &&
      fg_scan_end(&scan, chat_sink, c) == FG_SCAN_DONE &&
      (c->seen & whole) == whole &&
      (!(c->seen & CHAT_USAGE) ||
       ((c->seen & CHAT_COUNTED) && (c->prompt > 0 || c->output > 0)))) {
    return 1;
  }
  PyMem_Free(c->text);
  return 0;
}

PyObject *fgpy_chat_answer(PyObject *module, PyObject *body) {
  chat c;
  const int plain = chat_read(body, &c);
  if (plain <= 0) {
    return plain < 0 ? NULL : Py_NewRef(Py_None);
  }
  PyObject *out = chat_facts(PyModule_GetState(module), &c);
  PyMem_Free(c.text);
  return out;
}

static const char *const chat_names[] = {"body", "headers", "attempt",
                                         "now_ms"};

PyObject *fgpy_call_chat_success(fgpy_call *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames) {
  static const fgpy_sig sig = {"Call.chat_success", chat_names, 4, 2, 1};
  PyObject *in[4], *out = NULL;
  uint32_t attempt = 0;
  int64_t now_ms = 0;
  chat c;
  if (fgpy_args(&sig, args, nargs, kwnames, in) < 0 ||
      fgpy_u32(in[2], "attempt", &attempt) < 0) {
    return NULL;
  }
  const int plain = in[1] != NULL && fgpy_headers_packed(in[1])
                        ? 0
                        : chat_read(in[0], &c);
  if (plain <= 0) {
    return plain < 0 ? NULL : Py_NewRef(Py_None);
  }
  const fg_answer a = {
      .size = sizeof a,
      .flags = FG_ANSWER_OUTPUT_KNOWN |
               (c.seen & CHAT_COUNTED ? FG_ANSWER_USAGE_FINAL : 0),
      .prompt_tokens = c.prompt,
      .output_tokens = c.output,
      .cached_tokens = c.cached,
      .finish = c.finish,
      .visible = c.visible,
      .output = fg_str_make(c.text, c.text_len)};
  if (fgpy_call_ready(self, in[3], &now_ms) == 0) {
    out = fgpy_call_succeeded(self, attempt, &a, now_ms);
  }
  PyMem_Free(c.text);
  return out;
}
