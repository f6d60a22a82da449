/* Clock, seed, boot id, memory. */
#include "fg_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ms(clockid_t which) {
  struct timespec t;
  if (clock_gettime(which, &t) != 0) {
    return 0;
  }
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t fg_host_now_ms(void) {
  return clock_ms(CLOCK_MONOTONIC);
}

int64_t fg_host_unix_ms(void) {
  return clock_ms(CLOCK_REALTIME);
}

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

uint64_t fg_host_seed(void) {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) {
    return seed;
  }
  struct timespec t = {0, 0};
  (void)clock_gettime(CLOCK_REALTIME, &t);
  seed = mix((uint64_t)t.tv_sec) ^ mix((uint64_t)t.tv_nsec) ^ mix((uint64_t)getpid());
  return mix(seed ^ (uint64_t)(uintptr_t)&seed);
}

static int hex_value(int c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* 32 hexadecimal digits with dashes anywhere. */
static int parse_uuid(const char *text, uint64_t out[2]) {
  uint64_t word[2] = {0, 0};
  int digits = 0;
  for (; *text != 0 && *text != '\n'; text++) {
    int v = hex_value((unsigned char)*text);
    if (v < 0) {
      if (*text == '-') {
        continue;
      }
      return 0;
    }
    if (digits == 32) {
      return 0;
    }
    word[digits / 16] = word[digits / 16] << 4 | (uint64_t)v;
    digits++;
  }
  if (digits != 32 || (word[0] | word[1]) == 0) {
    return 0;
  }
  out[0] = word[0];
  out[1] = word[1];
  return 1;
}

static int boot_from_uuid(uint64_t out[2]) {
  char line[64];
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (f == NULL) {
    return 0;
  }
  int ok = fgets(line, sizeof line, f) != NULL && parse_uuid(line, out);
  (void)fclose(f);
  return ok;
}

/* The second the kernel says it started in. */
static int boot_from_stat(uint64_t out[2]) {
  char line[256];
  unsigned long long at = 0;
  FILE *f = fopen("/proc/stat", "re");
  if (f == NULL) {
    return 0;
  }
  while (at == 0 && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, "btime ", 6) == 0) {
      at = strtoull(line + 6, NULL, 10);
    }
  }
  (void)fclose(f);
  if (at == 0) {
    return 0;
  }
  out[0] = mix(at);
  out[1] = at;
  return 1;
}

int32_t fg_host_boot_id(uint64_t out[2]) {
  if (out == NULL) {
    return FG_ERR_ARG;
  }
  out[0] = 0;
  out[1] = 0;
  return boot_from_uuid(out) || boot_from_stat(out) ? FG_OK : FG_ERR_REGION;
}

static void *mem_alloc(void *ctx, uint64_t size) {
  (void)ctx;
  return size > SIZE_MAX / 2 ? NULL : malloc(size == 0 ? 1 : (size_t)size);
}

static void mem_free(void *ctx, void *ptr) {
  (void)ctx;
  free(ptr);
}

fg_mem fg_host_mem(void) {
  fg_mem mem = {mem_alloc, mem_free, NULL};
  return mem;
}
