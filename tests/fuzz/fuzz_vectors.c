/* Any bytes as a vector file, run by the vector runner on the engine itself. Holds: no crash, no hang, no leak; whatever the file asks for,
 * the runner answers with passed or failed cases. */
#include <stdint.h>

int run_vectors_main(int argc, char **argv);
#define main run_vectors_main
#include "../c/run_vectors.c"
#undef main

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  static int quiet;
  if (!quiet) { /* the runner tells people what failed: here nobody reads it */
    quiet = freopen("/dev/null", "w", stdout) != NULL;
  }
  if (text == NULL) {
    return 0;
  }
  memcpy(text, data, size);
  text[size] = 0;
  vec_run_text("fuzz", text, size);
  free(text);
  (void)run_vectors_main;
  return 0;
}
