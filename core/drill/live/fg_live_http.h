/* As much of HTTP/1.1 as a provider on loopback needs: POST in, an answer or a stream out, connections kept. */
#ifndef FG_LIVE_HTTP_H
#define FG_LIVE_HTTP_H

#include <stddef.h>
#include <stdint.h>

typedef struct http_server http_server;
typedef struct http_peer { /* a connection; busy while its request is answered */
  int fd, busy;
  uint32_t tag; /* the user's: whom the answer is about */
  size_t length, room;
  char *bytes; /* received and not used yet */
} http_peer;

typedef struct http_calls {
  void *ctx;
  void (*request)(void *ctx, http_peer *p, const char *path, const char *body); /* the peer is busy until http_free_peer */
  void (*gone)(void *ctx, http_peer *p);                                        /* a busy peer hung up; not to be written to any more */
} http_calls;

/* NULL: no socket, which perror told. */
http_server *http_open(int *port);
void http_close(http_server *s);
/* Waits so long at most for something to do, and does it. 0: standard input has ended, and so should the server. */
int http_serve(http_server *s, const http_calls *calls, int64_t wait_us);

/* A whole answer; headers: lines that end in CRLF, or "". */
void http_answer(http_peer *p, int32_t status, const char *headers, const char *body);
void http_begin(http_peer *p); /* a stream of events */
void http_event(http_peer *p, const char *data);
void http_end(http_peer *p);
/* Its answer is over: the next request may come. */
void http_free_peer(http_peer *p);

#endif /* FG_LIVE_HTTP_H */
