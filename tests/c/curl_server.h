/* A small HTTP server on loopback for test_curl.c: each path plays a script of answers and faults. Included once. */
#ifndef CURL_SERVER_H
#define CURL_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* Each path has a script, one word a request, separated by spaces; the last word repeats. */
typedef struct script {
  const char *path;
  char words[128];
  _Atomic int requests;
} script;

static script scripts[2] = {{"/main", "", 0}, {"/backup", "", 0}};
static pthread_mutex_t script_lock = PTHREAD_MUTEX_INITIALIZER;
static int listener, port, dead_port;
static _Atomic int connections;

static void next_word(script *s, char *out, size_t cap) {
  (void)pthread_mutex_lock(&script_lock);
  size_t n = strcspn(s->words, " ");
  (void)snprintf(out, cap, "%.*s", (int)n, s->words);
  if (s->words[n] == ' ') {
    memmove(s->words, s->words + n + 1, strlen(s->words + n + 1) + 1);
  }
  (void)pthread_mutex_unlock(&script_lock);
}

static void put(int fd, const char *text, size_t len) {
  while (len > 0) {
    ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
    if (n <= 0) {
      return;
    }
    text += n;
    len -= (size_t)n;
  }
}

static void say(int fd, const char *text) {
  put(fd, text, strlen(text));
}

static void chunk(int fd, const char *data) {
  char head[32];
  (void)snprintf(head, sizeof head, "%zx\r\n", strlen(data));
  say(fd, head);
  say(fd, data);
  say(fd, "\r\n");
}

static void answer(int fd, const char *status, const char *headers, const char *body) {
  char head[512];
  (void)snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n", status, headers, strlen(body));
  say(fd, head);
  say(fd, body);
}

static const char sse_head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
#define CHUNK(delta, finish)                                                                                                          \
  "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":" delta ",\"finish_reason\":" finish "}]}\n\n"
#define ROLE CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null")
#define HELLO CHUNK("{\"content\":\"Hello\"}", "null")
#define STOP CHUNK("{}", "\"stop\"")
#define USAGE "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11}}\n\n"
#define FINAL "data: [DONE]\n\n"
#define WHOLE                                                                                                                          \
  "{\"id\":\"x\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello\"},"           \
  "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11}}"

/* Until the client closes. */
static void linger(int fd) {
  char byte;
  while (recv(fd, &byte, 1, 0) > 0) {
  }
}

/* Answers one request. Returns 0 when the connection is over. */
static int act(int fd, const char *word, int nth_on_connection) {
  if (strcmp(word, "good") == 0 || strcmp(word, "open-end") == 0) {
    say(fd, sse_head);
    chunk(fd, ROLE);
    chunk(fd, HELLO);
    chunk(fd, STOP);
    chunk(fd, USAGE);
    chunk(fd, FINAL);
    if (word[0] == 'o') {
      linger(fd); /* the stream has ended, the body has not */
      return 0;
    }
    say(fd, "0\r\n\r\n");
    return 1;
  }
  if (strcmp(word, "whole") == 0) {
    answer(fd, "200 OK", "", WHOLE);
    return 1;
  }
  if (strcmp(word, "429") == 0) {
    answer(fd, "429 Too Many Requests", "retry-after-ms: 600\r\n",
           "{\"error\":{\"message\":\"Rate limit reached\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}");
    return 1;
  }
  if (strcmp(word, "503") == 0) {
    answer(fd, "503 Service Unavailable", "", "{\"error\":{\"message\":\"The server is down\",\"type\":\"server_error\"}}");
    return 1;
  }
  if (strcmp(word, "401") == 0) {
    answer(fd, "401 Unauthorized", "", "{\"error\":{\"message\":\"Incorrect API key provided\",\"type\":\"invalid_request_error\",\"code\":\"invalid_api_key\"}}");
    return 1;
  }
  if (strcmp(word, "huge") == 0) { /* an error of 200 KiB */
    char *body = malloc(200001);
    memset(body, 'x', 200000);
    body[200000] = 0;
    answer(fd, "401 Unauthorized", "", body);
    free(body);
    return 1;
  }
  if (strcmp(word, "headers") == 0) { /* more and longer headers than are kept */
    say(fd, "HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\nHTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\nno-colon-here\r\n");
    for (int i = 0; i < 90; i++) {
      char line[512];
      (void)snprintf(line, sizeof line, "X-Header-%d: %0400d\r\n", i, i);
      say(fd, line);
    }
    say(fd, "Content-Length: 0\r\n\r\n");
    return 1;
  }
  if (strcmp(word, "cut") == 0 || strcmp(word, "stall") == 0 || strcmp(word, "cut-unseen") == 0) {
    say(fd, sse_head);
    chunk(fd, ROLE);
    if (word[3] == 0 || word[0] == 's') {
      chunk(fd, HELLO);
    }
    if (word[0] == 's') {
      linger(fd);
    }
    return 0;
  }
  if (strcmp(word, "error-event") == 0) {
    say(fd, sse_head);
    chunk(fd, ROLE);
    chunk(fd, "data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\"}}\n\n");
    say(fd, "0\r\n\r\n");
    return 1;
  }
  if (strcmp(word, "silent") == 0) {
    linger(fd);
    return 0;
  }
  if (strcmp(word, "good-then-drop") == 0 && nth_on_connection == 0) {
    return act(fd, "good", 0);
  }
  if (strcmp(word, "reset") == 0) {
    struct linger hard = {1, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  }
  return 0; /* close, reset, and the second of good-then-drop */
}

/* Reads one request; -1 at the end. */
static int read_request(int fd, script **out) {
  static const char length[] = "content-length:";
  char head[8192];
  size_t n = 0;
  char *end = NULL;
  while (end == NULL && n < sizeof head - 1) {
    ssize_t got = recv(fd, head + n, 1, 0);
    if (got <= 0) {
      return -1;
    }
    if (head[0] == 0x16) { /* TLS: not spoken here */
      say(fd, "HTTP/1.1 400 Bad Request\r\n\r\n");
      return -1;
    }
    n += (size_t)got;
    head[n] = 0;
    end = n >= 4 ? strstr(head + n - 4, "\r\n\r\n") : NULL;
  }
  if (strncmp(head, "CONNECT ", 8) == 0) {
    say(fd, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    return -1;
  }
  size_t body = 0;
  for (char *line = head; (line = strstr(line, "\r\n")) != NULL; line += 2) {
    if (strncasecmp(line + 2, length, sizeof length - 1) == 0) {
      body = strtoul(line + 2 + sizeof length - 1, NULL, 10);
    }
  }
  for (char byte; body > 0; body--) {
    if (recv(fd, &byte, 1, 0) != 1) {
      return -1;
    }
  }
  *out = strstr(head, " /backup") != NULL ? &scripts[1] : &scripts[0];
  return 0;
}

static void *serve(void *arg) {
  int fd = *(int *)arg;
  free(arg);
  script *s = NULL;
  for (int nth = 0; read_request(fd, &s) == 0; nth++) {
    char word[32];
    next_word(s, word, sizeof word);
    atomic_fetch_add(&s->requests, 1);
    if (!act(fd, word, nth)) {
      break;
    }
  }
  (void)close(fd);
  atomic_fetch_sub(&connections, 1);
  return NULL;
}

static void *accept_all(void *arg) {
  (void)arg;
  for (;;) {
    int *fd = malloc(sizeof *fd);
    *fd = accept(listener, NULL, NULL);
    pthread_t t;
    if (*fd < 0) {
      free(fd);
      return NULL;
    }
    atomic_fetch_add(&connections, 1);
    if (pthread_create(&t, NULL, serve, fd) == 0) {
      (void)pthread_detach(t);
    }
  }
}

static int bind_any(int *out_port) {
  struct sockaddr_in at;
  socklen_t len = sizeof at;
  memset(&at, 0, sizeof at);
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
    perror("loopback");
    exit(1);
  }
  *out_port = ntohs(at.sin_port);
  return fd;
}

static void start_server(pthread_t *thread) {
  (void)bind_any(&dead_port); /* bound, never listening: refuses */
  listener = bind_any(&port);
  if (listen(listener, 16) != 0 || pthread_create(thread, NULL, accept_all, NULL) != 0) {
    perror("server");
    exit(1);
  }
}

#endif /* CURL_SERVER_H */
