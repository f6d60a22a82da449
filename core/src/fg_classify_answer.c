/* Answers with a 2xx that are no answers: errors inside, filters and refusals,
 * broken tool calls, empty ones, and streams that just stop. */
#include "fg_builtin.h"
#include "fg_classify.h"

/* Usage of more than nothing was reported. */
static void reported(fg_judged *j, uint32_t usage) {
  if (usage && (j->look.output_tokens > 0 || j->look.prompt_tokens > 0)) {
    j->f.billed = FG_BILLED_YES;
  }
}

static void settle(fg_judged *j, int ended) {
  if (j->shown) {
    j->f.commit = FG_COMMIT_PARTIAL;
  }
  if (ended && (j->look.usage || j->shown)) {
    j->f.billed = FG_BILLED_YES;
  }
}

static void error_inside(fg_judged *j) {
  fg_signs *s = &j->signs;
  fg_judge_status(j, 200);
  int server = s->in.status >= 500 && s->in.status <= 599;
  if (j->f.kind == FG_KIND_UNKNOWN && !server && !j->ruled) {
    fg_judge_kind(j, j->look.is_lines ? FG_KIND_ERROR_IN_STREAM : FG_KIND_SERVER_ERROR);
  }
  /* The head promised an answer: what had not been refused before inference may have run. */
  if (j->f.owner == FG_OWNER_TRANSIENT && j->f.commit == FG_COMMIT_NONE) {
    j->f.commit = FG_COMMIT_UNKNOWN;
    j->f.billed = FG_BILLED_MAYBE;
  }
  if (j->shown) {
    j->f.commit = FG_COMMIT_PARTIAL;
    j->f.billed = j->f.billed == FG_BILLED_NO ? (uint32_t)FG_BILLED_MAYBE : j->f.billed;
  }
}

static void bad_finish(fg_judged *j) {
  fg_str why = j->look.reason;
  if (FG_ISI(why, "insufficient_system_resource")) { /* DeepSeek */
    fg_judge_kind(j, FG_KIND_OVERLOADED);
    j->f.commit = FG_COMMIT_UNKNOWN;
    j->f.billed = FG_BILLED_MAYBE;
  } else if (FG_ISI(why, "malformed_function_call") || FG_ISI(why, "unexpected_tool_call") || FG_ISI(why, "malformed_tool_use")) {
    fg_judge_kind(j, FG_KIND_TRUNCATED_TOOL_CALL);
    j->f.repair = FG_REPAIR_NONE; /* drawn again it is usually right */
  } else if (FG_ISI(why, "cancelled")) { /* somebody else ended it: no fault of the provider */
    fg_judge_kind(j, FG_KIND_UNKNOWN);
    j->f.scope = FG_SCOPE_REQUEST;
  } else {
    fg_judge_kind(j, FG_KIND_ERROR_IN_STREAM);
    if (FG_ISI(why, "malformed_response") || FG_ISI(why, "malformed_model_output")) {
      fg_judge_kind(j, FG_KIND_MALFORMED);
    }
  }
}

static int ended_answer(fg_judged *j, uint32_t finish) {
  const fg_sse_facts *l = &j->look;
  uint32_t tools = l->tools + l->tool_args + j->e.tool_args_bytes;
  switch (finish) {
  case FG_FINISH_CONTENT_FILTER:
    fg_judge_kind(j, FG_KIND_OUTPUT_FILTERED);
    settle(j, 1);
    return 1;
  case FG_FINISH_REFUSAL:
    fg_judge_kind(j, FG_KIND_MODEL_REFUSED);
    settle(j, 1);
    return 1;
  case FG_FINISH_ERROR:
    bad_finish(j);
    settle(j, j->f.kind == FG_KIND_TRUNCATED_TOOL_CALL);
    reported(j, l->usage_final);
    return 1;
  case FG_FINISH_LENGTH:
    fg_judge_kind(j, tools > 0 ? FG_KIND_TRUNCATED_TOOL_CALL : FG_KIND_OUTPUT_CUT);
    settle(j, 1);
    return 1;
  case FG_FINISH_NONE:
    return 0;
  default:
    fg_judge_kind(j, j->shown || tools > 0 ? FG_KIND_UNKNOWN : FG_KIND_NO_OUTPUT);
    if (finish == FG_FINISH_OTHER && !j->shown) {
      j->f.scope = FG_SCOPE_PROVIDER; /* an end mark alone */
    }
    if (j->shown || (l->usage_final && l->output_tokens > 0)) {
      j->f.billed = FG_BILLED_YES;
    }
    j->f.commit = j->shown ? (uint32_t)FG_COMMIT_PARTIAL : j->f.commit;
    return 1;
  }
}

void fg_judge_answer(fg_judged *j) {
  const fg_sse_facts *l = &j->look;
  uint32_t finish = j->e.terminal != FG_FINISH_NONE ? j->e.terminal : l->finish;
  if (l->error) {
    error_inside(j);
    return;
  }
  if (finish == FG_FINISH_STOP && l->refusal > 0) {
    finish = FG_FINISH_REFUSAL;
  }
  if (ended_answer(j, finish)) {
    return;
  }
  if (j->signs.shape == FG_SHAPE_HTML) { /* a captive portal, a login page: not this API */
    fg_judge_kind(j, FG_KIND_UNKNOWN);
    j->f.scope = FG_SCOPE_NETWORK;
    j->f.billed = FG_BILLED_NO;
    return;
  }
  int streams = l->is_lines || j->e.phase == FG_PHASE_STREAM;
  if (streams && l->events == 0 && l->comments > 0 && !j->shown) {
    fg_judge_kind(j, FG_KIND_OVERLOADED); /* only keep-alive comments, then the end: it stood in a queue (DeepSeek) */
    j->f.commit = FG_COMMIT_UNKNOWN;
    j->f.billed = FG_BILLED_MAYBE;
    return;
  }
  if (streams || j->shown) {
    fg_judge_kind(j, FG_KIND_STREAM_CUT);
    j->f.scope = FG_SCOPE_PROVIDER;
    settle(j, 0);
    return;
  }
  if (l->malformed || l->open_event || j->signs.shape == FG_SHAPE_TEXT) {
    fg_judge_kind(j, FG_KIND_MALFORMED);
    return;
  }
  fg_judge_kind(j, FG_KIND_EMPTY_ANSWER);
  reported(j, l->usage); /* a whole body: nothing comes after it */
}
