/* Lines of an event stream, or documents of JSON, cut anywhere. Data goes to
 * the scanner as it comes; nothing but an error event's beginning is kept. */
#include "fg_sse.h"
#include "fg_sse_state.h"

enum line { L_START, L_FIELD, L_SPACE, L_DATA, L_NAME, L_SKIP, L_COMMENT };

static sse_state *state(fg_sse *s) { return (sse_state *)(void *)s->word; }
static const sse_state *state_of(const fg_sse *s) { return (const sse_state *)(const void *)s->word; }

static void scan_begin(sse_state *s) {
  fg_scan_init(&s->scan, FG_SCAN_LENIENT);
  fg_path_init(&s->path);
}

void fg_sse_init(fg_sse *public, uint32_t wire, uint32_t flags) {
  if (public == NULL) {
    return;
  }
  memset(public, 0, sizeof *public);
  sse_state *s = state(public);
  s->wire = wire < FG_WIRE_COUNT ? wire : FG_WIRE_AUTO;
  s->flags = flags;
  s->mode = flags & FG_SSE_WHOLE ? FG_SSE_MODE_JSON : FG_SSE_MODE_NEW;
  scan_begin(s);
  sse_event_begin(s);
}

static void keep_raw(sse_state *s, const char *p, uint32_t len) {
  if (!s->is_error_raw) {
    while (s->mode == FG_SSE_MODE_JSON && s->raw_len == 0 && len > 0 && (fg_is_space(*p) || *p == ',' || *p == '[')) {
      p++; /* between the elements of a streamed array */
      len--;
    }
    uint32_t n = fg_min32(len, FG_SSE_RAW - s->raw_len);
    memcpy(s->raw + s->raw_len, p, n);
    s->raw_len += n;
  }
}

/* ------------------------------------------------------- event stream */

static void data_bytes(sse_state *s, const char *p, uint32_t len) {
  uint32_t room = FG_SSE_EVENT_MAX - fg_min32(s->event_bytes, FG_SSE_EVENT_MAX);
  s->event_bytes = fg_add32(s->event_bytes, len);
  keep_raw(s, p, len);
  if (!s->too_long && s->scan.error == 0) {
    (void)fg_scan_feed(&s->scan, p, fg_min32(len, room), sse_member, s, NULL);
  }
  s->too_long |= len > room;
}

static void dispatch(sse_state *s) {
  if (s->data_lines == 0) {
    s->name_len = 0;
    return; /* an event without data is none */
  }
  int done = s->event_bytes == 6 && !s->is_error_raw && s->raw_len >= 6 && memcmp(s->raw, "[DONE]", 6) == 0;
  if (s->is_error_raw && s->event_bytes == 6 && s->scan.error != 0) {
    done = 1; /* the raw bytes are kept for the error; only [DONE] is six bytes of no JSON in practice */
  }
  if (done) {
    s->done = 1;
    s->saw |= FG_SAW_TERMINAL;
  } else {
    int whole = !s->too_long && fg_scan_end(&s->scan, sse_member, s) == FG_SCAN_DONE;
    sse_event_end(s, whole);
  }
  scan_begin(s);
  sse_event_begin(s);
  s->name_len = 0;
}

static void line_end(sse_state *s) {
  if (s->line == L_START) {
    dispatch(s);
  } else if ((s->line == L_FIELD && fg_eq(s->field, s->field_len, "data", 4)) || s->line == L_DATA ||
             (s->line == L_SPACE && fg_eq(s->field, s->field_len, "data", 4))) {
    s->data_lines = fg_add32(s->data_lines, 1);
  } else if (s->line == L_COMMENT) {
    s->comments = fg_add32(s->comments, 1);
    s->lifecycle = fg_add32(s->lifecycle, 1);
    s->saw |= FG_SAW_LIFECYCLE;
  }
  s->line = L_START;
  s->field_len = 0;
}

static uint32_t until_end(const char *b, uint32_t at, uint32_t len) {
  while (at < len && b[at] != '\n' && b[at] != '\r') {
    at++;
  }
  return at;
}

static void field_known(sse_state *s) {
  int data = fg_eq(s->field, s->field_len, "data", 4);
  int name = fg_eq(s->field, s->field_len, "event", 5);
  s->line = s->line == L_FIELD ? L_SPACE : data ? L_DATA : name ? L_NAME : L_SKIP;
  if (s->line == L_DATA && s->data_lines > 0) {
    data_bytes(s, "\n", 1);
  } else if (s->line == L_NAME) {
    s->name_len = 0;
  }
}

static void lines(sse_state *s, const char *b, uint32_t len) {
  uint32_t i = 0;
  while (i < len) {
    char c = b[i];
    if (s->skip_lf) {
      s->skip_lf = 0;
      if (c == '\n') {
        i++;
        continue;
      }
    }
    if (c == '\n' || c == '\r') {
      if (s->line == L_SPACE) {
        field_known(s); /* an empty value */
      }
      s->skip_lf = c == '\r';
      line_end(s);
      i++;
      continue;
    }
    switch (s->line) {
    case L_START:
      s->line = c == ':' ? L_COMMENT : L_FIELD;
      i += c == ':';
      break;
    case L_FIELD:
      if (c == ':') {
        field_known(s);
      } else if (s->field_len < sizeof s->field) {
        s->field[s->field_len++] = c;
      } else {
        s->line = L_SKIP;
      }
      i++;
      break;
    case L_SPACE:
      field_known(s);
      i += c == ' ';
      break;
    case L_DATA: {
      uint32_t end = until_end(b, i, len);
      data_bytes(s, b + i, end - i);
      i = end;
      break;
    }
    case L_NAME: {
      uint32_t end = until_end(b, i, len);
      uint32_t n = fg_min32(end - i, FG_SSE_WORD - s->name_len);
      memcpy(s->name + s->name_len, b + i, n);
      s->name_len += n;
      i = end;
      break;
    }
    default:
      i = until_end(b, i, len);
      break;
    }
  }
}

/* --------------------------------------------------- JSON documents */

/* In pieces that end where a container may end, so that the kept bytes of an event are the same however it was cut. */
static uint32_t piece(const char *b, uint32_t at, uint32_t len) {
  while (at < len && b[at] != '}' && b[at] != ']') {
    at++;
  }
  return at < len ? at + 1 : at;
}

static void documents(sse_state *s, const char *b, uint32_t len) {
  uint32_t i = 0;
  while (i < len && s->scan.error == 0) {
    uint32_t used = 0, end = piece(b, i, len);
    keep_raw(s, b + i, end - i);
    int32_t r = fg_scan_feed(&s->scan, b + i, end - i, sse_member, s, &used);
    i += used;
    if (r == FG_SCAN_BAD) {
      if (s->scan.error != FG_SCAN_E_AFTER) {
        s->malformed = fg_add32(s->malformed, 1);
        s->saw |= FG_SAW_MALFORMED;
        return;
      }
      if (s->ev.any) {
        sse_event_end(s, 1);
      }
      scan_begin(s); /* the next document of a line-wise stream */
      sse_event_begin(s);
      continue;
    }
    if (r == FG_SCAN_DONE && s->ev.any) {
      sse_event_end(s, 1);
      memset(&s->ev, 0, sizeof s->ev);
    }
  }
}

static uint32_t detect(sse_state *s, const char *b, uint32_t len) {
  static const char bom[] = "\xEF\xBB\xBF";
  uint32_t i = 0;
  while (i < len && s->mode == FG_SSE_MODE_NEW) {
    char c = b[i];
    if (s->bom < 3 && c == bom[s->bom]) {
      s->bom++;
      i++;
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      i++;
      continue;
    }
    s->mode = c == '{' || c == '[' || c == '"' ? FG_SSE_MODE_JSON : c == '<' ? FG_SSE_MODE_OTHER : FG_SSE_MODE_LINES;
  }
  return i;
}

int32_t fg_sse_feed(fg_sse *public, const char *bytes, uint32_t len) {
  if (public == NULL || (bytes == NULL && len > 0)) {
    return FG_ERR_ARG;
  }
  sse_state *s = state(public);
  s->saw = len > 0 ? FG_SAW_BYTE : 0;
  s->bytes = fg_add32(s->bytes, len);
  uint32_t i = s->mode == FG_SSE_MODE_NEW ? detect(s, bytes, len) : 0;
  if (s->mode == FG_SSE_MODE_LINES) {
    lines(s, bytes + i, len - i);
  } else if (s->mode == FG_SSE_MODE_JSON) {
    documents(s, bytes + i, len - i);
  } else if (s->mode == FG_SSE_MODE_OTHER) {
    s->saw |= FG_SAW_MALFORMED;
    s->malformed = 1;
  }
  if (!sse_ended(s)) {
    s->saw &= ~(uint32_t)FG_SAW_TERMINAL; /* another choice began in the same bytes */
  }
  return (int32_t)s->saw;
}

void fg_sse_close(fg_sse *public) {
  sse_state *s = state(public);
  if (s->mode == FG_SSE_MODE_LINES) {
    int whole = s->scan.error == 0 && !s->too_long && fg_scan_end(&s->scan, sse_member, s) == FG_SCAN_DONE;
    int done = s->event_bytes == 6 && !s->is_error_raw && s->raw_len >= 6 && memcmp(s->raw, "[DONE]", 6) == 0;
    if (s->event_bytes > 0 && (whole || done)) {
      s->data_lines = fg_max32(s->data_lines, 1);
      dispatch(s);
    }
  } else if (s->mode == FG_SSE_MODE_JSON && s->scan.error == 0 && s->ev.any && fg_scan_end(&s->scan, sse_member, s) == FG_SCAN_DONE) {
    sse_event_end(s, 1);
    memset(&s->ev, 0, sizeof s->ev);
  }
}

/* ----------------------------------------------------------- answers */

static uint32_t finish_of(const sse_state *s) {
  if (!sse_ended(s)) {
    return FG_FINISH_NONE;
  }
  if (s->finish == FG_FINISH_NONE) {
    return FG_FINISH_OTHER;
  }
  return s->finish == FG_FINISH_STOP && s->refusal > 0 ? FG_FINISH_REFUSAL : s->finish;
}

void fg_sse_look(const fg_sse *public, fg_sse_facts *out) {
  const sse_state *s = state_of(public);
  memset(out, 0, sizeof *out);
  out->visible = s->visible;
  out->lifecycle = s->lifecycle;
  out->comments = s->comments;
  out->reasoning = s->reasoning;
  out->tool_args = s->tool_args;
  out->tools = s->tools;
  out->refusal = s->refusal;
  out->finish = finish_of(s);
  out->ended = out->finish != FG_FINISH_NONE;
  out->usage = s->usage;
  out->usage_final = s->usage_final;
  out->output_tokens = fg_add32(s->output, s->thoughts);
  out->prompt_tokens = s->prompt;
  out->error = s->error;
  out->malformed = s->malformed;
  out->events = s->events;
  out->is_json = s->mode == FG_SSE_MODE_JSON;
  out->is_lines = s->mode == FG_SSE_MODE_LINES;
  out->open_event = s->event_bytes > 0 || (s->mode == FG_SSE_MODE_JSON && s->ev.any);
  if (s->is_error_raw) {
    out->body = fg_str_make(s->raw, s->raw_len);
  }
  out->reason = fg_str_make(s->reason, s->reason_len);
}

int32_t fg_sse_answer(const fg_sse *public, fg_answer *out) {
  if (public == NULL || out == NULL) {
    return FG_ERR_ARG;
  }
  if (out->size < 8) {
    return FG_ERR_ABI;
  }
  fg_sse copy = *public;
  fg_sse_close(&copy);
  const sse_state *s = state_of(&copy);
  fg_answer a;
  memset(&a, 0, sizeof a);
  a.size = fg_min32(out->size, (uint32_t)sizeof a);
  a.finish = finish_of(s);
  /* Anthropic's input_tokens leaves out what the cache held or took; the others' counts hold it. */
  uint32_t apart = s->created > 0 || s->cached > s->prompt ? fg_add32(s->created, s->cached) : 0;
  a.prompt_tokens = fg_add32(s->prompt, apart);
  a.cached_tokens = s->cached;
  a.output_tokens = fg_add32(s->output, s->thoughts);
  a.tool_call_count = s->tools;
  a.cost_nusd = s->cost_nusd;
  a.visible = s->visible;
  a.flags = s->usage_final ? (uint32_t)FG_ANSWER_USAGE_FINAL : 0;
  memcpy(out, &a, a.size);
  return FG_OK;
}

int32_t fg_sse_id(const fg_sse *public, fg_str *out) {
  if (public == NULL || out == NULL) {
    return FG_ERR_ARG;
  }
  const sse_state *s = state_of(public);
  *out = s->id_whole ? fg_str_make(s->id, s->id_len) : (fg_str){0};
  return FG_OK;
}

int32_t fg_sse_evidence(const fg_sse *public, fg_evidence *out) {
  if (public == NULL || out == NULL) {
    return FG_ERR_ARG;
  }
  if (out->size < offsetof(fg_evidence, last_byte_ms)) {
    return FG_ERR_ABI;
  }
  fg_sse copy = *public;
  fg_sse_close(&copy);
  const sse_state *s = state_of(&copy);
  const sse_state *kept = state_of(public); /* the body must outlive this call: it points into the caller's s */
  if (out->status == 0) {
    out->status = 200;
  }
  if (out->phase == FG_PHASE_UNKNOWN) {
    out->phase = FG_PHASE_STREAM;
  }
  out->flags |= FG_EV_PROGRESS;
  if (s->error && s->raw_len <= kept->raw_len && s->raw_len > 0) {
    out->body = fg_str_make(kept->raw, s->raw_len);
    out->flags &= ~(uint32_t)FG_EV_WHOLE_BODY;
  }
  out->visible = s->visible;
  out->lifecycle = s->lifecycle;
  out->reasoning = s->reasoning;
  out->tool_args_bytes = fg_max32(s->tool_args, s->tools);
  out->terminal = finish_of(s);
  return FG_OK;
}
