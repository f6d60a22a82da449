/* What fg_sse.word holds. Private to fg_sse*.c. */
#ifndef FG_SSE_STATE_H
#define FG_SSE_STATE_H

#include "fg_keys.h"
#include "fg_scan.h"

enum { FG_SSE_RAW = 1192, FG_SSE_WORD = 40, FG_SSE_ID = 80, FG_SSE_EVENT_MAX = 65536 };
enum { FG_SSE_MODE_NEW = 0, FG_SSE_MODE_LINES, FG_SSE_MODE_JSON, FG_SSE_MODE_OTHER };

/* Of the event being read; judged when it is complete, as a client would. */
typedef struct sse_event {
  uint32_t visible, refusal, reasoning, tool_args; /* characters; of arguments bytes */
  uint32_t typed, part, root_text;                 /* characters whose meaning the event's type, or its part's, decides */
  uint32_t tools, usage;
  uint8_t error, finish, done, thought, has_content, root_code, root_message, any;
  uint8_t choice, choice_done; /* of the element of `choices` or `candidates` being read: its index, and whether it gave a reason */
} sse_event;

typedef struct sse_state {
  uint32_t wire, flags, mode;
  uint32_t line;              /* where in a line */
  uint32_t field_len;
  uint16_t skip_lf, bom;
  uint32_t event_bytes, data_lines, too_long;
  uint32_t saw;               /* FG_SAW_* of this feed */
  uint32_t bytes, events, comments, malformed;
  uint32_t visible, lifecycle, reasoning, tool_args, tools, refusal;
  uint32_t finish, done, stop_seen; /* FG_FINISH_*; [DONE] or its like; the protocol's own end event */
  uint32_t choices, choices_done;   /* bit n: choice n was seen; gave its reason. The last bit is shared by all from 31 on */
  uint32_t prompt, cached, created, output, thoughts, usage, usage_final;
  int64_t cost_nusd;
  uint32_t error, raw_len, is_error_raw, word_len, type_len, name_len;
  uint32_t text_in_value;     /* the string being read is a word to keep */
  sse_event ev;
  fg_path path;
  fg_scan scan;
  char field[8];
  char word[FG_SSE_WORD];     /* of the string being read */
  char type[FG_SSE_WORD];     /* member "type" of the event */
  char name[FG_SSE_WORD];     /* its `event:` line */
  char reason[FG_SSE_WORD];   /* the finish reason as given */
  uint32_t reason_len;
  uint32_t id_len, id_whole;  /* id_whole: 1 when all of it is there */
  char id[FG_SSE_ID];         /* the answer's own, as its provider calls it */
  char raw[FG_SSE_RAW];       /* the event's data; kept once it is an error */
} sse_state;

_Static_assert(sizeof(sse_state) <= sizeof(fg_sse), "the scanner's state must fit its public storage");

/* fg_sse_event.c: members of an event, and its meaning when complete. */
int sse_member(void *ctx, const fg_scan_event *e);
void sse_event_begin(sse_state *s);
void sse_event_end(sse_state *s, int whole);
/* Whether what was read is an answer's end: [DONE], the protocol's end event, or a reason for every choice seen. With n > 1 choices each
 * gives its own, and a stream cut behind the first of them is no whole answer. */
int sse_ended(const sse_state *s);

#endif /* FG_SSE_STATE_H */
