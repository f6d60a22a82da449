/* fg_curl: runs one call to its end over libcurl, for C hosts. It sends what the engine decided, reports what happened (events as they come, evidence at the
 * end), keeps the engine's clocks, waits, changes routes, and stops when told. The caller says what a request to a route looks like.
 *
 * One fg_curl belongs to one thread at a time and keeps its connections for the next call; fg_curl_cancel alone may come from any thread. libcurl's own
 * habit of sending a request again when a kept connection dies unanswered is refused: that is the engine's decision. Redirects are not followed. */
#ifndef FG_CURL_H
#define FG_CURL_H

#include <curl/curl.h>
#include <stdint.h>
#include "fivegates.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FG_CURL_BODY_MAX = 64 << 10, FG_CURL_HEADERS_MAX = 64 }; /* of an error answer */

typedef struct fg_curl fg_curl;

typedef struct fg_curl_request { /* what one attempt sends; all of it borrowed until the attempt is over */
  const char *url;
  const char *const *headers;    /* "Name: value", ended by NULL; NULL = none. Content-Type is application/json unless given */
  const char *body;              /* POST; NULL = GET */
  uint64_t body_len;
  uint32_t wire;                 /* FG_WIRE_*; 0 = as the route's `api` says, or found out from the answer */
  uint32_t zero;
  void (*tune)(void *ctx, CURL *easy); /* last word on the handle (proxy, certificates); NULL = none */
} fg_curl_request;

typedef struct fg_curl_job {
  const fg_engine *engine;
  const fg_policy *policy;       /* the engine's */
  fg_call *call;                 /* the caller's memory; fg_explain and fg_ledger_line read it afterwards */
  const fg_request *request;     /* what it must never be asked to do is in request->unable; hedges, and hooks left out, are added */
  void *ctx;                     /* handed to every hook */
  /* Fills *out for d->route and the edits d asks for (change, max_tokens, compact_tokens, resume_from). Nonzero: cannot; the call is cancelled. */
  int32_t (*build)(void *ctx, const fg_decision *d, const fg_route_info *route, fg_curl_request *out);
  /* Hooks, each may be NULL. */
  void (*chunk)(void *ctx, uint32_t saw, const char *bytes, uint32_t len);     /* of a good answer, as it comes; saw: FG_SAW_* bits */
  void (*clear)(void *ctx);                                                    /* take back what was shown: the answer begins anew */
  int32_t (*cached)(void *ctx, uint32_t max_age_s, fg_str *out);               /* 1: *out is a stored answer, kept until the job is over */
  void (*answer)(void *ctx, const char *body, uint64_t len, fg_answer *a);     /* adds output and tool calls to a, for the output check */
  void (*decided)(void *ctx, const fg_decision *d, int64_t now_ms);            /* every decision, before it is followed: ledger, progress */
  uint64_t max_body;             /* bytes of a good answer kept; 0 = 16 MiB. The rest is only scanned and shown */
} fg_curl_job;

typedef struct fg_curl_result {
  fg_decision decision;          /* the last one: accept, degrade, queue, or fail_closed */
  fg_answer answer;              /* of an accepted answer: usage and finish; points nowhere */
  int32_t status;                /* of the last answer; 0 = none */
  uint32_t truncated;            /* 1: body is only the beginning */
  char *body;                    /* the answer, the cached or preset text, or the last error's body; ends with NUL */
  uint64_t body_len;
  uint32_t sent;                 /* requests that went out */
  uint32_t zero;
} fg_curl_result;

/* NULL when there is no memory or no libcurl. */
FG_API fg_curl *fg_curl_new(void);
FG_API void fg_curl_free(fg_curl *h);
/* Runs the job to its end. Returns FG_OK and fills *out (free it with fg_curl_result_free), or the engine's error code with
 * out->decision.action = fail_closed. Blocks; sleeps what the engine says. */
FG_API int32_t fg_curl_run(fg_curl *h, const fg_curl_job *job, fg_curl_result *out);
FG_API void fg_curl_result_free(fg_curl_result *r);
/* Ends the running job, or else the next one, as "the caller left". From any thread, also from a hook. */
FG_API void fg_curl_cancel(fg_curl *h);

/* For hosts with a loop of their own: what a finished transfer says in lib, code, kind, message, phase, status and elapsed_ms. message (libcurl's error
 * buffer, or NULL) is borrowed; upload: bytes of the request's body. Headers, body and progress are the host's to add. */
FG_API void fg_curl_evidence(CURL *easy, CURLcode rc, const char *message, uint64_t upload, fg_evidence *out);

#ifdef __cplusplus
}
#endif
#endif /* FG_CURL_H */
