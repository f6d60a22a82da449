/* A finished transfer of libcurl, put into the words of the evidence: which phase it died in is read from libcurl's own timings, never guessed from the code
 * alone (56 is a reset while waiting, and also a proxy's refusal before anything was sent). */
#include "fg_curl.h"

#include <string.h>

static fg_str text(const char *z) {
  fg_str s = {z, z != NULL ? (uint32_t)strlen(z) : 0, 0};
  return s;
}

#define NAME(code) \
  case code:       \
    return #code

static const char *code_name(int code) {
  switch (code) {
    NAME(CURLE_OK);
    NAME(CURLE_UNSUPPORTED_PROTOCOL);
    NAME(CURLE_FAILED_INIT);
    NAME(CURLE_URL_MALFORMAT);
    NAME(CURLE_COULDNT_RESOLVE_PROXY);
    NAME(CURLE_COULDNT_RESOLVE_HOST);
    NAME(CURLE_COULDNT_CONNECT);
    NAME(CURLE_WEIRD_SERVER_REPLY);
    NAME(CURLE_HTTP2);
    NAME(CURLE_PARTIAL_FILE);
    NAME(CURLE_HTTP_RETURNED_ERROR);
    NAME(CURLE_WRITE_ERROR);
    NAME(CURLE_READ_ERROR);
    NAME(CURLE_OUT_OF_MEMORY);
    NAME(CURLE_OPERATION_TIMEDOUT);
    NAME(CURLE_SSL_CONNECT_ERROR);
    NAME(CURLE_ABORTED_BY_CALLBACK);
    NAME(CURLE_INTERFACE_FAILED);
    NAME(CURLE_TOO_MANY_REDIRECTS);
    NAME(CURLE_GOT_NOTHING);
    NAME(CURLE_SSL_ENGINE_NOTFOUND);
    NAME(CURLE_SEND_ERROR);
    NAME(CURLE_RECV_ERROR);
    NAME(CURLE_SSL_CERTPROBLEM);
    NAME(CURLE_SSL_CIPHER);
    NAME(CURLE_PEER_FAILED_VERIFICATION);
    NAME(CURLE_BAD_CONTENT_ENCODING);
    NAME(CURLE_SEND_FAIL_REWIND);
    NAME(CURLE_SSL_CACERT_BADFILE);
    NAME(CURLE_SSL_CRL_BADFILE);
    NAME(CURLE_SSL_ISSUER_ERROR);
    NAME(CURLE_NO_CONNECTION_AVAILABLE);
    NAME(CURLE_SSL_PINNEDPUBKEYNOTMATCH);
    NAME(CURLE_SSL_INVALIDCERTSTATUS);
    NAME(CURLE_HTTP2_STREAM);
    NAME(CURLE_HTTP3);
    NAME(CURLE_QUIC_CONNECT_ERROR);
    NAME(CURLE_PROXY);
  default:
    return "CURLE_OTHER";
  }
}

/* Codes that can only come before a byte of the request; 0 = the code does not tell. */
static uint32_t phase_of_code(int code) {
  switch (code) {
  case CURLE_UNSUPPORTED_PROTOCOL:
  case CURLE_URL_MALFORMAT:
  case CURLE_COULDNT_RESOLVE_PROXY:
  case CURLE_COULDNT_RESOLVE_HOST:
  case CURLE_COULDNT_CONNECT:
  case CURLE_INTERFACE_FAILED:
  case CURLE_NO_CONNECTION_AVAILABLE:
  case CURLE_QUIC_CONNECT_ERROR:
  case CURLE_PROXY:
    return FG_PHASE_CONNECT;
  case CURLE_PEER_FAILED_VERIFICATION:
  case CURLE_SSL_CERTPROBLEM:
  case CURLE_SSL_CIPHER:
  case CURLE_SSL_CACERT_BADFILE:
  case CURLE_SSL_CRL_BADFILE:
  case CURLE_SSL_ISSUER_ERROR:
  case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
  case CURLE_SSL_INVALIDCERTSTATUS:
  case CURLE_SSL_ENGINE_NOTFOUND:
    return FG_PHASE_TLS;
  default:
    return FG_PHASE_UNKNOWN;
  }
}

static curl_off_t number(CURL *easy, CURLINFO what) {
  curl_off_t v = 0;
  return curl_easy_getinfo(easy, what, &v) == CURLE_OK ? v : 0;
}

static int is_stream(CURL *easy) {
  const char *type = NULL;
  static const char event_stream[] = "text/event-stream";
  (void)curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
  return type != NULL && strncmp(type, event_stream, sizeof event_stream - 1) == 0;
}

static uint32_t phase_of(CURL *easy, CURLcode rc, const char *message, int32_t status, uint64_t upload) {
  if (status >= 300 || (status > 0 && status < 200)) {
    return FG_PHASE_RESPONSE;
  }
  if (status > 0) {
    return is_stream(easy) ? FG_PHASE_STREAM : FG_PHASE_BODY;
  }
  if (number(easy, CURLINFO_PRETRANSFER_TIME_T) > 0) { /* connected: bytes of the request may have left */
    if (rc == CURLE_SEND_ERROR || rc == CURLE_SEND_FAIL_REWIND || rc == CURLE_READ_ERROR) {
      return FG_PHASE_SEND;
    }
    return (uint64_t)number(easy, CURLINFO_SIZE_UPLOAD_T) < upload ? FG_PHASE_SEND : FG_PHASE_READ;
  }
  uint32_t phase = phase_of_code((int)rc);
  if (phase != FG_PHASE_UNKNOWN) {
    return phase;
  }
  if (message != NULL && strstr(message, "CONNECT") != NULL) { /* a proxy's tunnel */
    return FG_PHASE_CONNECT;
  }
  if (rc == CURLE_SSL_CONNECT_ERROR) {
    return FG_PHASE_TLS;
  }
  const char *scheme = NULL;
  (void)curl_easy_getinfo(easy, CURLINFO_SCHEME, &scheme);
  int tls = scheme != NULL && (scheme[0] == 'h' || scheme[0] == 'H') && strlen(scheme) == 5;
  return tls && number(easy, CURLINFO_CONNECT_TIME_T) > 0 ? FG_PHASE_TLS : FG_PHASE_CONNECT;
}

void fg_curl_evidence(CURL *easy, CURLcode rc, const char *message, uint64_t upload, fg_evidence *out) {
  long status = 0;
  (void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  out->status = (int32_t)status;
  out->phase = phase_of(easy, rc, message, (int32_t)status, upload);
  curl_off_t us = number(easy, CURLINFO_TOTAL_TIME_T);
  out->elapsed_ms = us <= 0 ? 0 : us / 1000 > UINT32_MAX ? UINT32_MAX : (uint32_t)(us / 1000);
  if (rc != CURLE_OK) {
    out->lib = text("libcurl");
    out->code = (int32_t)rc;
    out->kind = text(code_name((int)rc));
    out->message = text(message != NULL && message[0] != 0 ? message : curl_easy_strerror(rc));
  }
}
