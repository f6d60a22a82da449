#include "fg_live_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 1024, EVENTS = 256, REQUEST_MAX = 8 << 20, READ = 16 << 10, OUT_MAX = 4096 };

struct http_server {
  int listener, epoll;
};
/* What epoll tells apart beside peers. */
static char of_listener, of_input;

static int watch(const http_server *s, int fd, void *whose) {
  struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data = {.ptr = whose}};
  return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

http_server *http_open(int *port) {
  http_server *s = calloc(1, sizeof *s);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof at;
  if (s == NULL) {
    return NULL;
  }
  s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  s->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (s->listener < 0 || s->epoll < 0 || bind(s->listener, (struct sockaddr *)&at, size) != 0 || listen(s->listener, BACKLOG) != 0 ||
      getsockname(s->listener, (struct sockaddr *)&at, &size) != 0 || !watch(s, s->listener, &of_listener) ||
      !watch(s, STDIN_FILENO, &of_input)) {
    perror("a socket on 127.0.0.1");
    http_close(s);
    return NULL;
  }
  *port = ntohs(at.sin_port);
  return s;
}

void http_close(http_server *s) {
  (void)close(s->listener);
  (void)close(s->epoll);
  free(s);
}

/* ---- out: answers are small, and their readers on this machine; one that does not read is cut off */

static void put(http_peer *p, const char *bytes, size_t len) {
  if (p->fd >= 0 && send(p->fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len) {
    (void)shutdown(p->fd, SHUT_RDWR); /* epoll tells of it */
  }
}

void http_answer(http_peer *p, int32_t status, const char *headers, const char *body) {
  char text[OUT_MAX];
  const int n = snprintf(text, sizeof text, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n%s",
                         (int)status, status < 300 ? "OK" : "No", headers, strlen(body), body);
  put(p, text, n > 0 && n < OUT_MAX ? (size_t)n : 0);
}

void http_begin(http_peer *p) {
  static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  put(p, head, sizeof head - 1);
}

void http_event(http_peer *p, const char *data) {
  char text[OUT_MAX];
  const int n = snprintf(text, sizeof text, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
  put(p, text, n > 0 && n < OUT_MAX ? (size_t)n : 0);
}

void http_end(http_peer *p) { put(p, "0\r\n\r\n", 5); }

void http_free_peer(http_peer *p) { p->busy = 0; }

/* ---- in */

static void accept_all(const http_server *s) {
  int fd;
  while ((fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    const int yes = 1;
    http_peer *p = calloc(1, sizeof *p);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (p == NULL || !watch(s, fd, p)) {
      free(p);
      (void)close(fd);
      continue;
    }
    p->fd = fd;
  }
}

static void drop(const http_calls *calls, http_peer *p) {
  if (p->busy) {
    calls->gone(calls->ctx, p);
  }
  (void)close(p->fd);
  free(p->bytes);
  free(p);
}

/* 1; 0: the end, or no memory, or too much. */
static int read_all(http_peer *p) {
  for (;;) {
    if (p->room - p->length < READ + 1) {
      const size_t room = p->room != 0 ? p->room * 2 : 2 * READ;
      char *more = room <= REQUEST_MAX ? realloc(p->bytes, room) : NULL;
      if (more == NULL) {
        return 0;
      }
      p->bytes = more;
      p->room = room;
    }
    const ssize_t n = recv(p->fd, p->bytes + p->length, READ, 0);
    if (n <= 0) {
      return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    p->length += (size_t)n;
    p->bytes[p->length] = 0;
  }
}

static size_t content_length(const char *head, const char *end) {
  static const char name[] = "\r\ncontent-length:";
  for (const char *at = head; at + sizeof name < end; at++) {
    if (strncasecmp(at, name, sizeof name - 1) == 0) {
      return strtoul(at + sizeof name - 1, NULL, 10);
    }
  }
  return 0;
}

/* 1: the connection goes on; 0: it is not HTTP. */
static int parse(const http_calls *calls, http_peer *p) {
  char *end = p->length != 0 && !p->busy ? strstr(p->bytes, "\r\n\r\n") : NULL;
  if (end == NULL) {
    return 1;
  }
  const size_t head = (size_t)(end - p->bytes) + 4, body = content_length(p->bytes, end);
  if (body > REQUEST_MAX || strncmp(p->bytes, "POST ", 5) != 0) {
    return 0;
  }
  if (p->length < head + body) {
    return 1;
  }
  const char after = p->bytes[head + body];
  char *path = p->bytes + 5, *space = strchr(path, ' ');
  if (space == NULL || space > end) {
    return 0;
  }
  *space = 0;
  p->bytes[head + body] = 0;
  p->busy = 1;
  calls->request(calls->ctx, p, path, p->bytes + head);
  p->bytes[head + body] = after;
  p->length -= head + body;
  memmove(p->bytes, p->bytes + head + body, p->length + 1);
  return 1;
}

static int wait_for(const http_server *s, struct epoll_event *e, int64_t wait_us) {
  /* epoll's timeout is whole milliseconds, ten times as long in the drill: rather a little early */
  if (wait_us > 0 && wait_us < 1000) {
    const struct timespec nap = {0, (long)wait_us * 1000};
    const int n = epoll_wait(s->epoll, e, EVENTS, 0);
    if (n != 0) {
      return n;
    }
    (void)nanosleep(&nap, NULL);
    wait_us = 0;
  }
  return epoll_wait(s->epoll, e, EVENTS, (int)(wait_us / 1000));
}

int http_serve(http_server *s, const http_calls *calls, int64_t wait_us) {
  struct epoll_event e[EVENTS];
  const int n = wait_for(s, e, wait_us);
  for (int i = 0; i < n; i++) {
    char byte;
    http_peer *p = e[i].data.ptr;
    if (e[i].data.ptr == &of_listener) {
      accept_all(s);
    } else if (e[i].data.ptr == &of_input) {
      if (read(STDIN_FILENO, &byte, 1) <= 0) {
        return 0;
      }
    } else if ((e[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 || !read_all(p) || !parse(calls, p)) {
      drop(calls, p);
    }
  }
  return 1;
}
