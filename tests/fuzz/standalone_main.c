/* Runs a fuzz target without libFuzzer: every file of the folders and files named, then mutations of them (FG_FUZZ_ROUNDS, default 3000), always the same
 * ones. A violated oracle aborts, and the input is left in ./crash-input. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUTS_MAX = 4096, INPUT_BYTES_MAX = 1 << 20 };

typedef struct input { uint8_t *data; size_t size; } input;

static input inputs[INPUTS_MAX];
static uint32_t count;
static const uint8_t *running;
static size_t running_size;

static void on_abort(int sig) {
  FILE *f = fopen("crash-input", "wb");
  if (f != NULL) {
    (void)fwrite(running, 1, running_size, f);
    (void)fclose(f);
  }
  (void)signal(sig, SIG_DFL);
  (void)raise(sig);
}

static int run_one(const uint8_t *data, size_t size) {
  running = data;
  running_size = size;
  return LLVMFuzzerTestOneInput(data, size);
}

static int add_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (f == NULL || count == INPUTS_MAX) {
    if (f != NULL) {
      (void)fclose(f);
    }
    return 0;
  }
  uint8_t *data = malloc(INPUT_BYTES_MAX);
  size_t n = data != NULL ? fread(data, 1, INPUT_BYTES_MAX, f) : 0;
  (void)fclose(f);
  inputs[count].data = data;
  inputs[count].size = n;
  count++;
  return data != NULL;
}

static int add_path(const char *path) {
  DIR *d = opendir(path);
  if (d == NULL) {
    return add_file(path);
  }
  struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    char name[1024];
    int n = snprintf(name, sizeof name, "%s/%s", path, e->d_name);
    if (e->d_name[0] != '.' && n > 0 && (size_t)n < sizeof name) {
      (void)add_file(name);
    }
  }
  (void)closedir(d);
  return 1;
}

static uint64_t state = 1;
static uint32_t draw(uint32_t below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((state >> 33) % below);
}

/* A few bytes changed, dropped or repeated. */
static size_t mutate(const input *from, uint8_t *to, size_t cap) {
  size_t n = from->size < cap ? from->size : cap;
  memcpy(to, from->data, n);
  for (uint32_t k = draw(8); k > 0 && n > 1; k--) {
    uint32_t at = draw((uint32_t)n);
    switch (draw(4)) {
    case 0:
      to[at] = (uint8_t)draw(256);
      break;
    case 1:
      to[at] ^= (uint8_t)(1U << draw(8));
      break;
    case 2:
      n--;
      memmove(to + at, to + at + 1, n - at);
      break;
    default:
      if (n < cap) {
        memmove(to + at + 1, to + at, n - at);
        n++;
      }
      break;
    }
  }
  return n;
}

static int by_content(const void *a, const void *b) {
  const input *x = a, *y = b;
  size_t n = x->size < y->size ? x->size : y->size;
  int c = memcmp(x->data, y->data, n);
  return c != 0 ? c : (x->size > y->size) - (x->size < y->size);
}

int main(int argc, char **argv) {
  const char *want = getenv("FG_FUZZ_ROUNDS");
  uint32_t rounds = want != NULL ? (uint32_t)strtoul(want, NULL, 10) : 3000;
  for (int i = 1; i < argc; i++) {
    if (!add_path(argv[i])) {
      fprintf(stderr, "%s: cannot read it\n", argv[i]);
      return 2;
    }
  }
  if (count == 0) {
    fprintf(stderr, "no inputs: name corpus folders or files\n");
    return 2;
  }
  qsort(inputs, count, sizeof inputs[0], by_content); /* the order of a folder is not always the same */
  (void)signal(SIGABRT, on_abort);
  uint8_t *scratch = malloc(INPUT_BYTES_MAX);
  for (uint32_t i = 0; i < count; i++) {
    (void)run_one(inputs[i].data, inputs[i].size);
  }
  for (uint32_t i = 0; scratch != NULL && i < rounds; i++) {
    size_t n = mutate(&inputs[draw(count)], scratch, INPUT_BYTES_MAX);
    (void)run_one(scratch, n);
  }
  printf("fuzz: %u inputs, %u mutations, 0 failed\n", count, rounds);
  for (uint32_t i = 0; i < count; i++) {
    free(inputs[i].data);
  }
  free(scratch);
  return 0;
}
