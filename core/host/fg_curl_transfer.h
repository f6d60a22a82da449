/* One attempt on the wire: private to fg_curl. */
#ifndef FG_CURL_TRANSFER_H
#define FG_CURL_TRANSFER_H

#include "fg_curl.h"

enum { FG_CURL_ARENA = 16 << 10 };

typedef struct fg_transfer {
  const fg_curl_job *job;
  CURL *easy;
  struct curl_slist *list;
  uint64_t upload;
  uint32_t attempt, wire;
  int32_t status;            /* of the final head, 0 until it is complete */
  uint32_t sends;            /* times libcurl was about to write the request */
  uint32_t resend_refused, whole, saw, ended;
  int64_t started_ms, first_byte_ms, last_byte_ms, last_progress_ms, ended_ms;
  uint32_t visible, reasoning, tool_args_bytes; /* progress reported so far */
  fg_sse sse;
  uint32_t sse_ready, header_count, arena_len, body_truncated;
  fg_header header[FG_CURL_HEADERS_MAX];
  char arena[FG_CURL_ARENA];
  char error[CURL_ERROR_SIZE];
  char *body;
  uint64_t body_len, body_cap;
} fg_transfer;

/* Sets up t->easy for the request. Returns 0 when there is no memory. */
int fg_transfer_start(fg_transfer *t, const fg_curl_job *job, const fg_curl_request *r, const fg_route_info *route, const fg_decision *d);
/* An answer that came to its end by itself: nothing wrong is known about it. */
int fg_transfer_is_good(const fg_transfer *t, CURLcode rc);
void fg_transfer_answer(const fg_transfer *t, fg_answer *out);
/* Borrows from t. */
void fg_transfer_evidence(fg_transfer *t, CURLcode rc, const fg_route_info *route, fg_evidence *out);
void fg_transfer_free(fg_transfer *t);

#endif /* FG_CURL_TRANSFER_H */
