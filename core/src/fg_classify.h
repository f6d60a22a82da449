/* One failed attempt while it is being judged. Private to fg_classify*.c. */
#ifndef FG_CLASSIFY_H
#define FG_CLASSIFY_H

#include "fg_base.h"
#include "fg_builtin.h"
#include "fg_hint.h"
#include "fg_rules.h"
#include "fg_signs.h"
#include "fg_sse.h"

typedef struct fg_judged {
  fg_evidence e;
  fg_failure f;
  fg_sse_facts look; /* of the body, where it is an answer or a transcript */
  uint32_t shown;    /* the user saw something */
  uint32_t ruled;    /* a rule matched, not only the status */
  fg_hint hint;
  fg_found found;    /* rules whose words are there */
  char reason[40];   /* look.reason points here */
  fg_signs signs;    /* last: most of it is buffers */
} fg_judged;

/* Sets the kind and all that follows from it. */
void fg_judge_kind(fg_judged *j, uint32_t kind);
/* Tries the built-in rules of a part on j->signs.in; nonzero when one held. */
int fg_judge_builtin(fg_judged *j, uint32_t part);

/* fg_classify_transport.c: errors of the transport and our own clocks. */
void fg_judge_transport(fg_judged *j);
void fg_judge_timeout(fg_judged *j);
/* fg_classify_status.c: error answers, by rule, then by status. */
void fg_judge_status(fg_judged *j, int32_t status);
/* fg_classify_answer.c: answers with a 2xx that are no answers. */
void fg_judge_answer(fg_judged *j);

#endif /* FG_CLASSIFY_H */
