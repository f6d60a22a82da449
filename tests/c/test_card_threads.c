/* Cards loaded by several threads at once: cJSON's one static variable must not be raced for. Run under a thread sanitizer too. */
#include "fg_test.h"

#include <pthread.h>

#include "card_text.h"

enum { THREADS = 4, ROUNDS = 60 };
static const char GOOD[] = "{\"version\": 1, \"routes\": {\"m\": {\"provider\": \"p\", \"model\": \"m\"}}, \"workflows\": {\"w\": {\"routes\": [\"m\"]}}}";
static const char BAD[] = "{\"version\": 1, \"routes\": {\"m\": {\"provider\": \"p\"}}, \"workflows\": {}}";

static void *loads(void *arg) {
  uint64_t *good = arg;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    card_mem counts = {0, 0, 0, 0};
    fg_mem mem = card_allocator(&counts);
    fg_error err = {.size = sizeof err};
    fg_policy *p = NULL;
    int32_t a = fg_card_load(GOOD, sizeof GOOD - 1, &mem, &p, &err);
    *good += a == FG_OK && fg_policy_count(p, FG_FIND_ROUTE) == 1;
    fg_policy_free(p, &mem);
    *good += fg_card_load(BAD, sizeof BAD - 1, &mem, &p, &err) == FG_ERR_RANGE && err.what == FG_LOAD_MISSING && counts.open == 0;
  }
  return NULL;
}

int main(void) {
  pthread_t thread[THREADS];
  uint64_t good[THREADS] = {0};
  for (uint32_t i = 0; i < THREADS; i++) {
    FG_EQ(pthread_create(&thread[i], NULL, loads, &good[i]), 0);
  }
  for (uint32_t i = 0; i < THREADS; i++) {
    pthread_join(thread[i], NULL);
    FG_EQ(good[i], 2 * ROUNDS);
  }
  return fg_test_end("card_threads");
}
