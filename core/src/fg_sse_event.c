/* What the members of an answer mean. The names of the four wires (and of
 * AWS, Ollama, Cohere) do not collide, so all are read at once and a gateway's
 * mixture is understood too; only a bare `delta` needs its event's type. */
#include "fg_sse_state.h"

static uint32_t characters(fg_str t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t.len; i++) {
    n += ((unsigned char)t.ptr[i] & 0xC0) != 0x80;
  }
  return n;
}

/* ------------------------------------------------------------ strings */

/* The first id told is the answer's. One that is too long is none: a part of it would name another. */
static void id_piece(sse_state *s, const fg_scan_event *e) {
  if (s->id_whole) {
    return;
  }
  if (e->first) {
    s->id_len = 0;
  }
  if (e->text.len > FG_SSE_ID - s->id_len) {
    s->id_len = FG_SSE_ID;
    return;
  }
  memcpy(s->id + s->id_len, e->text.ptr, e->text.len);
  s->id_len += e->text.len;
  s->id_whole = e->last && s->id_len > 0 && s->id_len < FG_SSE_ID;
}

static void string_piece(sse_state *s, const fg_scan_event *e) {
  sse_event *v = &s->ev;
  uint32_t n = characters(e->text);
  switch (s->path.path) {
  case FG_P3(CHOICES, DELTA, CONTENT):
  case FG_P4(CHOICES, DELTA, CONTENT, TEXT):
  case FG_P3(CHOICES, MESSAGE, CONTENT):
  case FG_P4(CHOICES, MESSAGE, CONTENT, TEXT):
  case FG_P2(CHOICES, TEXT):
  case FG_P2(MESSAGE, CONTENT): /* Ollama */
  case FG_P1(RESPONSE):
  case FG_P1(GENERATEDTEXT): /* TGI */
  case FG_P2(TOKEN, TEXT):
  case FG_P2(DELTA, TEXT): /* Anthropic text_delta, Bedrock */
  case FG_P3(CONTENTBLOCKDELTA, DELTA, TEXT):
  case FG_P2(CONTENTBLOCK, TEXT):
  case FG_P2(CONTENT, TEXT):
  case FG_P3(OUTPUT, CONTENT, TEXT):
  case FG_P4(OUTPUT, MESSAGE, CONTENT, TEXT):
  case FG_P4(OUTPUT, CHOICES, MESSAGE, CONTENT): /* DashScope */
  case FG_P2(OUTPUT, TEXT):
  case FG_P4(DELTA, MESSAGE, CONTENT, TEXT): /* Cohere v2 */
  case FG_P3(MESSAGE, CONTENT, TEXT):
  case FG_P3(RESPONSE, CONTENT, TEXT):
    v->visible += n;
    break;
  case FG_P4(CANDIDATES, CONTENT, PARTS, TEXT):
    v->part += n;
    break;
  case FG_P3(CHOICES, DELTA, REFUSAL):
  case FG_P3(CHOICES, MESSAGE, REFUSAL):
  case FG_P3(OUTPUT, CONTENT, REFUSAL):
    v->refusal += n;
    break;
  case FG_P3(CHOICES, DELTA, REASONINGCONTENT):
  case FG_P3(CHOICES, DELTA, REASONING):
  case FG_P4(CHOICES, DELTA, REASONINGDETAILS, TEXT):
  case FG_P3(CHOICES, MESSAGE, REASONINGCONTENT):
  case FG_P3(CHOICES, MESSAGE, REASONING):
  case FG_P2(DELTA, THINKING):
  case FG_P2(CONTENT, THINKING):
  case FG_P2(MESSAGE, THINKING):
  case FG_P3(OUTPUT, SUMMARY, TEXT):
    v->reasoning += n;
    break;
  case FG_P5(CHOICES, DELTA, TOOLCALLS, FUNCTION, ARGUMENTS):
  case FG_P5(CHOICES, MESSAGE, TOOLCALLS, FUNCTION, ARGUMENTS):
  case FG_P4(CHOICES, DELTA, FUNCTIONCALL, ARGUMENTS):
  case FG_P4(CHOICES, MESSAGE, FUNCTIONCALL, ARGUMENTS):
  case FG_P2(DELTA, PARTIALJSON):
  case FG_P2(OUTPUT, ARGUMENTS):
    v->tool_args += e->text.len;
    break;
  case FG_P5(CHOICES, DELTA, TOOLCALLS, FUNCTION, NAME):
  case FG_P5(CHOICES, MESSAGE, TOOLCALLS, FUNCTION, NAME):
  case FG_P4(CHOICES, DELTA, FUNCTIONCALL, NAME):
  case FG_P2(CONTENTBLOCK, NAME):
  case FG_P2(CONTENT, NAME):
  case FG_P2(OUTPUT, NAME):
  case FG_P5(CANDIDATES, CONTENT, PARTS, FUNCTIONCALL, NAME):
    v->tools += e->first && n > 0;
    break;
  case FG_P1(ID):
  case FG_P2(RESPONSE, ID):
  case FG_P2(MESSAGE, ID):
  case FG_P1(RESPONSEID):
    id_piece(s, e);
    break;
  case FG_P1(DELTA):
    v->typed += n;
    break;
  case FG_P1(TEXT):
    v->root_text += n;
    break;
  case FG_P1(ERROR):
  case FG_P2(CHOICES, ERROR):
    v->error |= n > 0;
    break;
  case FG_P1(MESSAGE):
    v->root_message |= n > 0;
    break;
  default:
    break;
  }
}

/* Strings that are kept as words: types and reasons. */
static int keeps(uint64_t path) {
  switch (path) {
  case FG_P1(TYPE):
  case FG_P1(CODE):
  case FG_P2(CHOICES, FINISHREASON):
  case FG_P3(OUTPUT, CHOICES, FINISHREASON):
  case FG_P2(OUTPUT, FINISHREASON):
  case FG_P2(DELTA, STOPREASON):
  case FG_P2(DELTA, FINISHREASON):
  case FG_P1(FINISHREASON):
  case FG_P1(STOPREASON):
  case FG_P2(MESSAGESTOP, STOPREASON):
  case FG_P2(CANDIDATES, FINISHREASON):
  case FG_P2(PROMPTFEEDBACK, BLOCKREASON):
  case FG_P1(DONEREASON):
  case FG_P1(STATUS):
  case FG_P2(RESPONSE, STATUS):
  case FG_P2(INCOMPLETEDETAILS, REASON):
  case FG_P3(RESPONSE, INCOMPLETEDETAILS, REASON):
  case FG_P1(OBJECT):
  case FG_P2(USAGE, COST):
    return 1;
  default:
    return 0;
  }
}

typedef struct reason { const char *word; uint32_t finish; } reason;
static const reason reasons[] = {
    {"stop", FG_FINISH_STOP}, {"end_turn", FG_FINISH_STOP}, {"stop_sequence", FG_FINISH_STOP}, {"complete", FG_FINISH_STOP},
    {"completed", FG_FINISH_STOP}, {"eos", FG_FINISH_STOP}, {"eos_token", FG_FINISH_STOP}, {"end", FG_FINISH_STOP}, {"normal", FG_FINISH_STOP},
    {"length", FG_FINISH_LENGTH}, {"max_tokens", FG_FINISH_LENGTH}, {"max_output_tokens", FG_FINISH_LENGTH}, {"model_length", FG_FINISH_LENGTH},
    {"max_length", FG_FINISH_LENGTH}, {"model_context_window_exceeded", FG_FINISH_LENGTH}, {"incomplete", FG_FINISH_LENGTH},
    {"tool_calls", FG_FINISH_TOOL_CALLS}, {"tool_use", FG_FINISH_TOOL_CALLS}, {"function_call", FG_FINISH_TOOL_CALLS},
    {"tool_call", FG_FINISH_TOOL_CALLS},
    {"content_filter", FG_FINISH_CONTENT_FILTER}, {"content_filtered", FG_FINISH_CONTENT_FILTER}, {"safety", FG_FINISH_CONTENT_FILTER},
    {"recitation", FG_FINISH_CONTENT_FILTER}, {"blocklist", FG_FINISH_CONTENT_FILTER}, {"prohibited_content", FG_FINISH_CONTENT_FILTER},
    {"spii", FG_FINISH_CONTENT_FILTER}, {"image_safety", FG_FINISH_CONTENT_FILTER}, {"guardrail_intervened", FG_FINISH_CONTENT_FILTER},
    {"sensitive", FG_FINISH_CONTENT_FILTER}, {"content-filter", FG_FINISH_CONTENT_FILTER}, {"language", FG_FINISH_CONTENT_FILTER},
    {"image_prohibited_content", FG_FINISH_CONTENT_FILTER}, {"error_toxic", FG_FINISH_CONTENT_FILTER}, {"jailbreak", FG_FINISH_CONTENT_FILTER},
    {"model_armor", FG_FINISH_CONTENT_FILTER}, {"blocked", FG_FINISH_CONTENT_FILTER},
    {"refusal", FG_FINISH_REFUSAL}, {"pause_turn", FG_FINISH_PAUSE}, {"pause", FG_FINISH_PAUSE},
    {"error", FG_FINISH_ERROR}, {"failed", FG_FINISH_ERROR}, {"network_error", FG_FINISH_ERROR}, {"cancelled", FG_FINISH_ERROR},
    {"malformed_function_call", FG_FINISH_ERROR}, {"unexpected_tool_call", FG_FINISH_ERROR}, {"malformed_response", FG_FINISH_ERROR},
    {"insufficient_system_resource", FG_FINISH_ERROR}, {"abort", FG_FINISH_ERROR}, {"aborted", FG_FINISH_ERROR},
    {"malformed_tool_use", FG_FINISH_ERROR}, {"malformed_model_output", FG_FINISH_ERROR}, {"error_limit", FG_FINISH_LENGTH},
};

static uint32_t finish_of(const char *w, uint32_t len) {
  for (uint32_t i = 0; i < FG_ARRAY_LEN(reasons); i++) {
    if (fg_eq_nocase(w, len, reasons[i].word, fg_cstr_len(reasons[i].word))) {
      return reasons[i].finish;
    }
  }
  return FG_FINISH_OTHER;
}

static void finished(sse_state *s, uint32_t finish) {
  if (finish != FG_FINISH_NONE) {
    s->ev.choice_done = 1;
    s->ev.finish = (uint8_t)finish;
    memcpy(s->reason, s->word, s->word_len);
    s->reason_len = s->word_len;
  }
}

static int64_t nano_usd(fg_str t) {
  uint64_t whole = 0, frac = 0, scale = 1000000000;
  uint32_t i = 0;
  for (; i < t.len && fg_is_digit(t.ptr[i]); i++) {
    whole = fg_add64(fg_mul64(whole, 10), (uint64_t)(t.ptr[i] - '0'));
  }
  if (i < t.len && t.ptr[i] == '.') {
    for (i++; i < t.len && fg_is_digit(t.ptr[i]) && scale > 1; i++) {
      scale /= 10;
      frac += (uint64_t)(t.ptr[i] - '0') * scale;
    }
    while (i < t.len && fg_is_digit(t.ptr[i])) {
      i++;
    }
  }
  if (i + 1 < t.len && (t.ptr[i] == 'e' || t.ptr[i] == 'E')) { /* 2.5e-05 */
    uint32_t k = i + 1, n = 0;
    int minus = t.ptr[k] == '-';
    k += t.ptr[k] == '-' || t.ptr[k] == '+';
    for (; k < t.len && fg_is_digit(t.ptr[k]); k++) {
      n = fg_add32(fg_mul32(n, 10), (uint32_t)(t.ptr[k] - '0'));
    }
    uint64_t v = fg_add64(fg_mul64(whole, 1000000000), frac);
    for (n = fg_min32(n, 40); n > 0; n--) {
      v = minus ? v / 10 : fg_mul64(v, 10);
    }
    return (int64_t)fg_min64(v, INT64_MAX);
  }
  return (int64_t)fg_min64(fg_add64(fg_mul64(whole, 1000000000), frac), INT64_MAX);
}

static void word_end(sse_state *s) {
  uint32_t len = s->word_len;
  switch (s->path.path) {
  case FG_P1(TYPE):
    memcpy(s->type, s->word, len);
    s->type_len = len;
    s->ev.error |= (uint8_t)fg_eq(s->word, len, "error", 5);
    break;
  case FG_P1(OBJECT):
    s->ev.error |= (uint8_t)fg_eq(s->word, len, "error", 5);
    break;
  case FG_P1(CODE):
    s->ev.root_code |= len > 0 && !fg_eq(s->word, len, "200", 3) && !fg_eq(s->word, len, "0", 1);
    break;
  case FG_P2(USAGE, COST):
    s->cost_nusd = fg_maxs(s->cost_nusd, nano_usd(fg_str_make(s->word, len)));
    break;
  case FG_P1(STATUS):
  case FG_P2(RESPONSE, STATUS): /* Responses: anything not final says nothing */
    if (fg_eq(s->word, len, "completed", 9) || fg_eq(s->word, len, "failed", 6) || fg_eq(s->word, len, "cancelled", 9)) {
      finished(s, finish_of(s->word, len));
    } else if (fg_eq(s->word, len, "incomplete", 10) && s->ev.finish == FG_FINISH_NONE) {
      finished(s, FG_FINISH_LENGTH);
    }
    break;
  case FG_P2(PROMPTFEEDBACK, BLOCKREASON):
    finished(s, FG_FINISH_CONTENT_FILTER);
    break;
  case FG_P2(CANDIDATES, FINISHREASON):
    if (fg_eq(s->word, len, "FINISH_REASON_UNSPECIFIED", 25)) {
      break;
    }
    finished(s, finish_of(s->word, len));
    break;
  default:
    if (len > 0 && !fg_eq(s->word, len, "null", 4)) { /* DashScope streams "null" until the end */
      finished(s, finish_of(s->word, len));
    }
    break;
  }
}

/* ------------------------------------------------------------ numbers */

static void number(sse_state *s, const fg_scan_event *e) {
  uint64_t path = s->path.path;
  uint32_t last = (uint32_t)(path & 0xFF), parent = (uint32_t)(path >> 8 & 0xFF), grand = (uint32_t)(path >> 16 & 0xFF);
  uint32_t n = e->is_integer && e->integer > 0 ? fg_sat32((uint64_t)e->integer) : 0;
  if (path == FG_P2(CHOICES, INDEX) || path == FG_P2(CANDIDATES, INDEX)) {
    s->ev.choice = (uint8_t)fg_min32(n, 31);
    return;
  }
  if (path == FG_P1(ERRORCODE) || path == FG_P2(BASERESP, STATUSCODE)) {
    s->ev.error |= n != 0 || (e->is_integer && e->integer < 0);
    return;
  }
  if (path == FG_P1(CODE)) {
    s->ev.root_code |= n != 0 && n != 200 && n != 20000;
    return;
  }
  if (path == FG_P1(PROMPTEVALCOUNT)) {
    s->prompt = fg_max32(s->prompt, n);
    s->ev.usage = 1;
    return;
  }
  if (path == FG_P1(EVALCOUNT)) {
    s->output = fg_max32(s->output, n);
    s->ev.usage = 1;
    return;
  }
  if (parent != FG_K_USAGE && parent != FG_K_USAGEMETADATA && grand != FG_K_USAGE) {
    return;
  }
  switch (last) {
  case FG_K_PROMPTTOKENS:
  case FG_K_INPUTTOKENS:
  case FG_K_PROMPTTOKENCOUNT:
    s->prompt = fg_max32(s->prompt, n);
    s->ev.usage |= n > 0;
    break;
  case FG_K_COMPLETIONTOKENS:
  case FG_K_OUTPUTTOKENS:
  case FG_K_CANDIDATESTOKENCOUNT:
    s->output = fg_max32(s->output, n);
    s->ev.usage |= n > 0;
    break;
  case FG_K_THOUGHTSTOKENCOUNT:
    s->thoughts = fg_max32(s->thoughts, n);
    break;
  case FG_K_CACHEDTOKENS:
  case FG_K_CACHEREADINPUTTOKENS:
  case FG_K_CACHEDCONTENTTOKENCOUNT:
    s->cached = fg_max32(s->cached, n);
    break;
  case FG_K_CACHECREATIONINPUTTOKENS:
    s->created = fg_max32(s->created, n);
    break;
  case FG_K_COST:
    s->cost_nusd = fg_maxs(s->cost_nusd, nano_usd(e->text));
    break;
  default:
    break;
  }
}

static int is_exception(fg_str k) { return k.len > 9 && fg_eq_nocase(k.ptr + k.len - 9, 9, "exception", 9); }

static void container(sse_state *s) {
  switch (s->path.path) {
  case FG_P1(ERROR):
  case FG_P2(CHOICES, ERROR):
  case FG_P2(RESPONSE, ERROR):
  case FG_P1(ERRORS): /* Workers AI */
    s->ev.error = 1;
    break;
  case FG_P1(CHOICES):
  case FG_P1(CANDIDATES):
    s->ev.choice = 0; /* where none is told there is one */
    s->ev.choice_done = 0;
    s->ev.has_content = 1;
    break;
  case FG_P1(OUTPUT):
    s->ev.has_content = 1;
    break;
  default:
    break;
  }
}

int sse_member(void *ctx, const fg_scan_event *e) {
  sse_state *s = ctx;
  fg_path_step(&s->path, e);
  s->ev.any |= e->what >= FG_SCAN_KEY;
  switch (e->what) {
  case FG_SCAN_KEY:
    s->text_in_value = 0;
    if (s->path.latest == FG_K_NONE && e->depth == 1 && is_exception(e->text)) {
      s->ev.error = 1;
    }
    break;
  case FG_SCAN_STRING:
    if (e->first) {
      s->text_in_value = keeps(s->path.path) != 0;
      s->word_len = 0;
    }
    if (s->text_in_value) {
      uint32_t n = fg_min32(e->text.len, FG_SSE_WORD - s->word_len);
      memcpy(s->word + s->word_len, e->text.ptr, n);
      s->word_len += n;
      if (e->last) {
        word_end(s);
      }
    } else {
      string_piece(s, e);
    }
    break;
  case FG_SCAN_NUMBER:
    number(s, e);
    break;
  case FG_SCAN_TRUE:
    if (s->path.path == FG_P1(DONE)) {
      s->ev.done = 1;
    } else if (s->path.path == FG_P4(CANDIDATES, CONTENT, PARTS, THOUGHT)) {
      s->ev.thought = 1;
    } else if (s->path.path == FG_P1(ERROR)) {
      s->ev.error = 1;
    }
    break;
  case FG_SCAN_BEGIN_OBJECT:
    container(s);
    break;
  case FG_SCAN_BEGIN_ARRAY:
    s->ev.has_content |= s->path.path == FG_P1(CHOICES) || s->path.path == FG_P1(CANDIDATES) || s->path.path == FG_P1(OUTPUT);
    break;
  case FG_SCAN_END_OBJECT:
    if (s->path.path == FG_P1(CHOICES) || s->path.path == FG_P1(CANDIDATES)) {
      s->choices |= 1u << s->ev.choice;
      s->choices_done |= (uint32_t)s->ev.choice_done << s->ev.choice;
    }
    if (s->path.path == FG_P3(CANDIDATES, CONTENT, PARTS)) { /* `thought` may stand before or after the text */
      *(s->ev.thought ? &s->ev.reasoning : &s->ev.visible) += s->ev.part;
      s->ev.part = 0;
      s->ev.thought = 0;
    }
    if (s->mode == FG_SSE_MODE_JSON && e->depth == 1 && s->path.path == 0 && (s->scan.is_object & 1) == 0) {
      sse_event_end(s, 1); /* an element of a streamed array is an event */
      sse_event_begin(s);
    }
    break;
  default:
    break;
  }
  return 0;
}

/* ------------------------------------------------------------- events */

void sse_event_begin(sse_state *s) {
  memset(&s->ev, 0, sizeof s->ev);
  s->type_len = 0;
  s->event_bytes = 0;
  s->data_lines = 0;
  s->too_long = 0;
  if (!s->is_error_raw) {
    s->raw_len = 0;
  }
}

static int has_word(const char *p, uint32_t len, const char *w) {
  uint32_t n = fg_cstr_len(w);
  for (uint32_t i = 0; i + n <= len; i++) {
    if (memcmp(p + i, w, n) == 0) {
      return 1;
    }
  }
  return 0;
}

/* A bare `delta` or `text`: what it is, the event's type says. */
static void typed_text(sse_state *s, const char *t, uint32_t len) {
  sse_event *v = &s->ev;
  if (v->root_text > 0 && (len == 0 || has_word(t, len, "text-generation"))) {
    v->visible += v->root_text;
  }
  if (v->typed == 0) {
    return;
  }
  if (has_word(t, len, "reasoning") || has_word(t, len, "thinking")) {
    v->reasoning += v->typed;
  } else if (has_word(t, len, "arguments") || has_word(t, len, ".input.") || has_word(t, len, "input_json") || has_word(t, len, "code.delta")) {
    v->tool_args += v->typed;
  } else if (has_word(t, len, "refusal")) {
    v->refusal += v->typed;
  } else {
    v->visible += v->typed;
  }
}

int sse_ended(const sse_state *s) {
  return s->done || s->stop_seen || (s->finish != FG_FINISH_NONE && (s->choices & ~s->choices_done) == 0);
}

/* whole: its JSON came to an end. */
void sse_event_end(sse_state *s, int whole) {
  sse_event *v = &s->ev;
  const char *t = s->type_len > 0 ? s->type : s->name;
  uint32_t len = s->type_len > 0 ? s->type_len : s->name_len;
  if (!whole) {
    s->malformed = fg_add32(s->malformed, 1);
    s->saw |= FG_SAW_MALFORMED;
  }
  s->events = fg_add32(s->events, 1);
  typed_text(s, t, len);
  int failed = fg_eq(t, len, "response.failed", 15) || fg_eq(t, len, "error", 5);
  int bare = v->root_code && v->root_message && !v->has_content; /* {"code": …, "message": …} and nothing else */
  uint32_t saw = 0;
  if (v->error || failed || bare) {
    saw |= FG_SAW_ERROR;
    if (!s->error) {
      s->error = 1;
      s->is_error_raw = 1;
    }
  }
  if (v->visible + v->refusal > 0) {
    saw |= FG_SAW_TOKEN;
  }
  if (v->reasoning > 0) {
    saw |= FG_SAW_REASONING;
  }
  if (v->tool_args > 0 || v->tools > 0) {
    saw |= FG_SAW_TOOL_ARGS;
  }
  if (v->usage) {
    saw |= FG_SAW_USAGE;
  }
  s->visible = fg_add32(s->visible, v->visible + v->refusal);
  s->refusal = fg_add32(s->refusal, v->refusal);
  s->reasoning = fg_add32(s->reasoning, v->reasoning);
  s->tool_args = fg_add32(s->tool_args, v->tool_args);
  s->tools = fg_add32(s->tools, v->tools);
  int stops = fg_eq(t, len, "message_stop", 12) || fg_eq(t, len, "response.completed", 18) || fg_eq(t, len, "response.incomplete", 19) ||
              fg_eq(t, len, "message-end", 11);
  if (v->finish != FG_FINISH_NONE) {
    s->finish = v->finish;
  }
  s->done |= v->done;
  s->stop_seen |= (uint32_t)stops;
  if ((v->finish != FG_FINISH_NONE || stops || v->done) && sse_ended(s)) {
    saw |= FG_SAW_TERMINAL;
  }
  if (v->usage) {
    s->usage = 1;
    s->usage_final |= (uint32_t)sse_ended(s); /* message_start counts only the prompt */
  }
  if ((saw & ~(uint32_t)FG_SAW_USAGE) == 0) {
    saw |= FG_SAW_LIFECYCLE;
    s->lifecycle = fg_add32(s->lifecycle, 1);
  }
  s->saw |= saw;
}
