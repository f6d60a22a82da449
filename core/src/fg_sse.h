/* Beyond the public functions: what fg_classify wants to know of a transcript. */
#ifndef FG_SSE_H
#define FG_SSE_H

#include "fg_base.h"

typedef struct fg_sse_facts {
  uint32_t visible, lifecycle, comments, reasoning, tool_args, tools, refusal; /* counts */
  uint32_t finish, ended;    /* FG_FINISH_*; some end of the protocol came */
  uint32_t usage, usage_final, output_tokens, prompt_tokens;
  uint32_t error, malformed, events, is_json, is_lines;
  uint32_t open_event;       /* the transcript stops inside an event */
  fg_str body;               /* of the error event; points into s */
  fg_str reason;             /* the finish reason as given; points into s */
} fg_sse_facts;

void fg_sse_look(const fg_sse *s, fg_sse_facts *out);
/* No more bytes will come: a last event without its blank line counts if it is whole. */
void fg_sse_close(fg_sse *s);

#endif /* FG_SSE_H */
