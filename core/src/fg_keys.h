/* Member names the readers of answers and error bodies know, as small numbers,
 * so that a path is one integer and a rule on it is one comparison. */
#ifndef FG_KEYS_H
#define FG_KEYS_H

#include "fg_base.h"
#include "fg_scan.h"

/* Normalised: lower-case, without '_' and '-' ("__type" and "Type" are one).
 * Sorted by length: the lookup relies on it, a test checks it. */
#define FG_KEY_MAP(XX) \
  XX(ID, "id") XX(CTX, "ctx") XX(ERR, "err") XX(LOC, "loc") XX(MSG, "msg") XX(RAW, "raw") XX(URL, "url") XX(ARGS, "args") \
  XX(BODY, "body") XX(CODE, "code") XX(COST, "cost") XX(DATA, "data") XX(DONE, "done") XX(NAME, "name") XX(ROLE, "role") \
  XX(TEXT, "text") XX(TYPE, "type") XX(ATTYPE, "@type") XX(CAUSE, "cause") XX(DELTA, "delta") XX(ERROR, "error") \
  XX(INDEX, "index") XX(INPUT, "input") XX(PARAM, "param") XX(PARTS, "parts") XX(STACK, "stack") XX(TITLE, "title") XX(TOKEN, "token") \
  XX(USAGE, "usage") XX(DETAIL, "detail") XX(DOCURL, "docurl") XX(ERRMSG, "errmsg") XX(ERRORS, "errors") XX(OBJECT, "object") \
  XX(OUTPUT, "output") XX(PROMPT, "prompt") XX(REASON, "reason") XX(STATUS, "status") XX(CHOICES, "choices") \
  XX(CONTENT, "content") XX(DETAILS, "details") XX(ERRCODE, "errcode") XX(HEADERS, "headers") XX(MESSAGE, "message") \
  XX(QUOTAID, "quotaid") XX(REFUSAL, "refusal") XX(REQUEST, "request") XX(RESETAT, "resetat") XX(SUCCESS, "success") \
  XX(SUMMARY, "summary") XX(THOUGHT, "thought") XX(TOOLUSE, "tooluse") XX(BASERESP, "baseresp") XX(ERRORMSG, "errormsg") \
  XX(FUNCTION, "function") XX(HELPLINK, "helplink") XX(HTTPCODE, "httpcode") XX(MESSAGES, "messages") XX(METADATA, "metadata") \
  XX(RESETSAT, "resetsat") XX(RESPONSE, "response") XX(THINKING, "thinking") XX(ARGUMENTS, "arguments") \
  XX(CREATEDAT, "createdat") XX(ERRORCODE, "errorcode") XX(ERRORNAME, "errorname") XX(ERRORTYPE, "errortype") \
  XX(EVALCOUNT, "evalcount") XX(EXCEPTION, "exception") XX(REASONING, "reasoning") XX(REQUESTID, "requestid") \
  XX(RESETTIME, "resettime") XX(STATUSMSG, "statusmsg") XX(TOOLCALLS, "toolcalls") XX(TOOLUSEID, "tooluseid") \
  XX(TRACEBACK, "traceback") XX(CANDIDATES, "candidates") XX(DONEREASON, "donereason") XX(INNERERROR, "innererror") \
  XX(OUTPUTTEXT, "outputtext") XX(QUOTALIMIT, "quotalimit") XX(RESETAFTER, "resetafter") XX(RESPONSEID, "responseid") XX(RETRYAFTER, "retryafter") \
  XX(RETRYDELAY, "retrydelay") XX(STATUSCODE, "statuscode") XX(STATUSTEXT, "statustext") XX(STOPREASON, "stopreason") \
  XX(VALIDATION, "validation") XX(VIOLATIONS, "violations") XX(BLOCKREASON, "blockreason") XX(DESCRIPTION, "description") \
  XX(FAULTSTRING, "faultstring") XX(FINALSTATUS, "finalstatus") XX(INPUTTOKENS, "inputtokens") XX(LIMITSOURCE, "limitsource") \
  XX(MESSAGESTOP, "messagestop") XX(PARTIALJSON, "partialjson") XX(QUOTAMETRIC, "quotametric") XX(WAITSECONDS, "waitseconds") \
  XX(CACHEDTOKENS, "cachedtokens") XX(CONTENTBLOCK, "contentblock") XX(ERRORMESSAGE, "errormessage") \
  XX(FINISHREASON, "finishreason") XX(FUNCTIONCALL, "functioncall") XX(MESSAGESTART, "messagestart") \
  XX(OUTPUTTOKENS, "outputtokens") XX(PROMPTTOKENS, "prompttokens") XX(RETRYAFTERMS, "retryafterms") \
  XX(CONTENTFILTER, "contentfilter") XX(ESTIMATEDTIME, "estimatedtime") XX(GENERATEDTEXT, "generatedtext") \
  XX(RAWSTATUSCODE, "rawstatuscode") XX(SAFETYRATINGS, "safetyratings") XX(STATUSMESSAGE, "statusmessage") \
  XX(USAGEMETADATA, "usagemetadata") XX(PROMPTFEEDBACK, "promptfeedback") XX(PROMPTTOKENIDS, "prompttokenids") \
  XX(RATELIMITRESET, "ratelimitreset") XX(RETRYINSECONDS, "retryinseconds") XX(PROMPTEVALCOUNT, "promptevalcount") \
  XX(RESETSINSECONDS, "resetsinseconds") XX(XRATELIMITRESET, "xratelimitreset") XX(COMPLETIONTOKENS, "completiontokens") \
  XX(FAILEDGENERATION, "failedgeneration") XX(FUNCTIONRESPONSE, "functionresponse") XX(PROMPTTOKENCOUNT, "prompttokencount") \
  XX(REASONINGCONTENT, "reasoningcontent") XX(REASONINGDETAILS, "reasoningdetails") XX(CONTENTBLOCKDELTA, "contentblockdelta") \
  XX(CONTENTBLOCKSTART, "contentblockstart") XX(INCOMPLETEDETAILS, "incompletedetails") \
  XX(RETRYAFTERSECONDS, "retryafterseconds") XX(ORIGINALSTATUSCODE, "originalstatuscode") \
  XX(THOUGHTSTOKENCOUNT, "thoughtstokencount") XX(CONTENTFILTERRESULT, "contentfilterresult") \
  XX(PROMPTTOKENSDETAILS, "prompttokensdetails") XX(CACHEREADINPUTTOKENS, "cachereadinputtokens") \
  XX(CANDIDATESTOKENCOUNT, "candidatestokencount") XX(CONTENTFILTERRESULTS, "contentfilterresults") \
  XX(CACHEDCONTENTTOKENCOUNT, "cachedcontenttokencount") XX(CACHECREATIONINPUTTOKENS, "cachecreationinputtokens")

#define FG_ENUM_KEY(N, w) FG_K_##N,
enum { FG_K_NONE = 0, FG_KEY_MAP(FG_ENUM_KEY) FG_K_COUNT };
enum { FG_KEY_LEN_MAX = 24 };
enum { FG_K_OTHER = 0xFE, FG_K_ELEMENT = 0xFF }; /* in a path: an unknown name; in fg_path.name: an array's element, no name */
_Static_assert((int)FG_K_COUNT <= (int)FG_K_OTHER, "names are one byte of a path");

/* FG_K_* of a member's name, FG_K_NONE when unknown. */
uint32_t fg_key(const char *name, uint32_t len);

/* Where the scanner is: the known names of the open members, arrays left out.
 * The path's last byte is the innermost name; FG_P(CHOICES, DELTA) is such a path. */
typedef struct fg_path {
  uint64_t path;                   /* of the innermost eight names */
  uint8_t name[FG_SCAN_DEPTH + 1]; /* name[d]: of the member the things at depth d + 1 belong to */
  uint8_t latest, depth, zero[5];
} fg_path;

#define FG_P1(a) ((uint64_t)FG_K_##a)
#define FG_P2(a, b) (FG_P1(a) << 8 | FG_P1(b))
#define FG_P3(a, b, c) (FG_P2(a, b) << 8 | FG_P1(c))
#define FG_P4(a, b, c, d) (FG_P3(a, b, c) << 8 | FG_P1(d))
#define FG_P5(a, b, c, d, e) (FG_P4(a, b, c, d) << 8 | FG_P1(e))

void fg_path_init(fg_path *p);
/* Follows one event. After it, for a value, p->path names it; for an end, what was closed. */
void fg_path_step(fg_path *p, const fg_scan_event *e);

#endif /* FG_KEYS_H */
