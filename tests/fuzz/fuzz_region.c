/* A region whose records are noise: ordinary operations neither crash nor hang, and every word is usable again. Input: 8 bytes of seed, then the
 * bytes laid over the region (repeated); the head's sizes are kept, as opening would refuse others. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "fg_math.h"
#include "fg_spend.h"
#include "region_help.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok, const char *what) {
  if (!ok) {
    printf("fuzz_region: %s\n", what);
    (void)fflush(stdout);
    abort();
  }
}

static void lay(void *mem, uint64_t from, uint64_t bytes, const uint8_t *data, size_t size, uint64_t seed) {
  uint64_t *w = (uint64_t *)mem + from / 8;
  for (uint64_t i = 0; i < bytes / 8; i++) {
    uint64_t v = 0;
    if (size >= 8) {
      memcpy(&v, data + i * 8 % (size - 7), 8);
    }
    uint64_t r = fg_rand(seed, 1, i);
    w[i] = r % 4 == 0 ? v : r % 4 == 1 ? fg_rand(seed, 2, i) : r % 4 == 2 ? fg_rand(seed, 2, i) >> (r >> 8 & 63) : 0;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t seed = 0;
  memcpy(&seed, data, size < 8 ? size : 8);
  bed b;
  bed_open(&b, 8, 4);
  fg_region_config c = {.size = sizeof(c), .routes = 4, .accounts = 2, .workflows = 2, .procs = 8, .rows = 4};
  uint64_t bytes = fg_region_bytes(&c), head = sizeof(struct fg_region);
  if (size & 1) { /* a head of noise: refused, or rebuilt */
    void *copy = malloc(bytes);
    must(copy != NULL, "memory");
    memcpy(copy, b.mem, bytes);
    lay(copy, 0, head, data, size, seed);
    fg_region *r = NULL;
    fg_error err = {.size = sizeof(err)};
    int32_t got = fg_region_open(copy, bytes, &c, 100, &r, &err);
    must((got == FG_OK) == (r != NULL), "open's answer");
    must(got == FG_OK || err.message[0] != 0, "open's reason");
    free(copy);
  }
  uint64_t keep = (uint64_t)((unsigned char *)&b.region->high - (unsigned char *)b.mem);
  lay(b.mem, keep, bytes - keep, data, size, seed);
  if (seed % 3 == 0) { /* keys intact: the noise is in the words */
    fg_region_route_at(b.region, 1234567 % 8)->key.v = 1234567;
  }
  b.ask.route_quota = (fg_quota){3, 600, 90000};
  b.ask.account_quota = (fg_quota){9, 600, 90000};
  b.ask.tokens = 500;
  fg_ticket k[4];
  memset(k, 0, sizeof(k));
  int64_t now = 0, t = 0;
  for (uint64_t i = 0; i < 64; i++) {
    uint64_t x = fg_rand(seed, 3, i);
    now += (int64_t)(x >> 40 & 8191);
    must(fg_region_time(b.region, now, &t) == FG_OK, "time");
    b.ask.route = fg_region_route(b.region, 1234567, t);
    b.ask.account = fg_region_account(b.region, 7654321, t);
    fg_workflow_rec *w = fg_region_workflow(b.region, 42, t);
    if (b.ask.route == NULL) {
      break; /* full of records that look used today */
    }
    b.how.slot = (uint32_t)(x & 7);
    fg_health_view why;
    fg_ticket *one = &k[x >> 3 & 3];
    fg_outcome o = {(uint32_t)(x >> 5 & 7), (uint32_t)(x >> 8) % 5, (uint32_t)(x >> 11) % 7, x >> 14 & 1, (uint32_t)(x >> 15 & 65535)};
    fg_witness_present(b.region, b.how.slot, t);
    (void)fg_health_scan(b.region, b.ask.breaker, t);
    if (!one->watch.live) {
      (void)fg_health_admit(&b.ask, &b.how, t, one, &why);
    } else {
      fg_health_token(&b.ask, one, t + 1000, t);
      fg_health_progress(&b.ask, one, t + 5000, t);
      (void)fg_health_result(&b.ask, one, &o, t);
    }
    fg_bucket_config bucket = {100, 10000, 3000, 1000};
    (void)fg_bucket_pay(&b.ask.route->retry, &bucket, 1000, t);
    (void)fg_bucket_wait_ms(&b.ask.route->retry, &bucket, 1000, t);
    for (int kind = 0; kind < FG_LEARN_KINDS; kind++) {
      (void)fg_learn_quantile(&b.ask.route->learn[kind], 500, 990000);
      fg_learn_record(&b.ask.route->learn[kind], 500, 700);
      fg_learn_rate(&b.ask.route->learn[kind], 500, 700);
      (void)fg_learn_total_ms(&b.ask.route->learn[kind], 500);
    }
    if (w != NULL) {
      uint32_t stamp = 0;
      (void)fg_retries_take(&w->retries_hour, 5, t);
      (void)fg_spend_hold(&w->spend_day, 5000000, &b.region->spend_day, 9000000, 1000000, (fg_day){t, 0}, &stamp);
      fg_spend_settle(&w->spend_day, &b.region->spend_day, 1000000, 5, stamp, (fg_day){t, fg_region_wall(b.region, t)});
    }
  }
  /* Every process is gone and reaped, and every wait there is has passed: the route serves, and a success closes it. */
  for (uint32_t slot = 0; slot < 8; slot++) {
    must(fg_region_reap(b.region, slot, now) == FG_OK, "reap");
  }
  for (int i = 0; i < 2; i++) { /* at the first look what is out of bounds is cleared; what lies within them ends */
    now += INT64_C(61) * 86400000;
    must(fg_region_time(b.region, now, &t) == FG_OK, "time");
    (void)fg_health_scan(b.region, b.ask.breaker, t);
    b.ask.route = fg_region_route(b.region, 1234567, t);
    b.ask.account = fg_region_account(b.region, 7654321, t);
    must(b.ask.route != NULL && b.ask.account != NULL, "a record after a day idle");
    if (i == 0) {
      fg_health_view first;
      memset(&k[0], 0, sizeof(k[0]));
      (void)fg_health_admit(&b.ask, &b.how, t, &k[0], &first);
      fg_health_abandon(b.region, &k[0]);
    }
  }
  fg_outcome good = {.what = FG_OUT_OK};
  fg_health_view why = {0};
  int served = 0;
  for (int i = 0; i < 20 && served < 3; i++) { /* evidence that looks true may open it once more, for seconds */
    now += 61000;
    must(fg_region_time(b.region, now, &t) == FG_OK, "time");
    memset(&k[0], 0, sizeof(k[0]));
    int in = fg_health_admit(&b.ask, &b.how, t, &k[0], &why);
    (void)fg_health_result(&b.ask, &k[0], &good, t);
    served = in ? served + 1 : 0;
  }
  if (served < 3) {
    printf("health %u, wait %u ms\n", why.health, why.wait_ms);
  }
  must(served == 3, "stuck");
  fg_health_view v = fg_health_peek(&b.ask, t);
  must(v.breaker == FG_BREAKER_CLOSED && v.in_flight == 0, "in order");
  bed_close(&b);
  return 0;
}
