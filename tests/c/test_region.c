/* The region: opening, refusing, rebuilding, records, clocks. */
#include "fg_math.h"
#include "fg_test.h"
#include "region_help.h"

static fg_region_config small(void) {
  fg_region_config c = {.size = sizeof(c), .routes = 3, .accounts = 2, .workflows = 2, .procs = 8, .rows = 4, .boot = {5, 6}};
  return c;
}

static void opening(void) {
  fg_region_config c = small();
  uint64_t bytes = fg_region_bytes(&c);
  void *mem = calloc(1, bytes + 8);
  fg_region *r = NULL, *again = NULL;
  fg_error err = {.size = sizeof(err)};
  FG_EQ(bytes, 256 + 8 * (2048 + 64) + 4 * (128 + 64) + 4 * 256 + 8 * 64 + 8 * 4 * 32);
  FG_EQ(fg_region_open(mem, bytes, &c, 1000, &r, &err), FG_OK);
  FG_EQ_STR(err.message, "");
  fg_route_rec *rec = fg_region_route(r, 42, HOUR);
  rec->retry.v = 77;
  FG_EQ(fg_region_open(mem, bytes, &c, 2000, &again, &err), FG_OK); /* history kept */
  FG_CHECK(again == r && fg_region_route(again, 42, HOUR) == rec && rec->retry.v == 77);

  FG_EQ(fg_region_open(NULL, bytes, &c, 0, &again, &err), FG_ERR_ARG);
  FG_EQ(fg_region_open((char *)mem + 4, bytes, &c, 0, &again, &err), FG_ERR_ARG);
  FG_EQ(fg_region_open(mem, bytes, NULL, 0, &again, &err), FG_ERR_ARG);
  FG_EQ(fg_region_open(mem, bytes, &c, 0, NULL, &err), FG_ERR_ARG);
  FG_EQ(fg_region_open(mem, bytes - 1, &c, 2000, &again, &err), FG_ERR_ABI);
  FG_CHECK(again == NULL && err.message[0] != 0);
  FG_EQ(fg_region_open(mem, bytes, &c, INT64_C(1800000000000), &again, &err), FG_ERR_ARG); /* wall time */
  FG_EQ(fg_region_open(mem, bytes, &c, 2000, &again, NULL), FG_OK);                        /* err may be NULL */
  fg_region_config other = c;
  other.routes = 1;
  FG_EQ(fg_region_open(mem, bytes, &other, 2000, &again, &err), FG_ERR_REGION);
  other = c;
  other.procs = 257;
  FG_EQ(fg_region_open(mem, bytes, &other, 2000, &again, &err), FG_ERR_ARG);
  FG_EQ(fg_region_bytes(&other), 0);
  FG_EQ(fg_region_bytes(NULL), 0);
  uint64_t layout = r->layout.v;
  r->layout.v = (UINT64_C(2) << 32) | 256;
  FG_EQ(fg_region_open(mem, bytes, &c, 2000, &again, &err), FG_ERR_REGION);
  r->layout.v = layout;
  r->magic.v = 0x1234;
  FG_EQ(fg_region_open(mem, bytes, &c, 2000, &again, &err), FG_ERR_REGION);
  FG_EQ(rec->retry.v, 77);
  r->magic.v = 0; /* killed while it was made */
  FG_EQ(fg_region_open(mem, bytes, &c, 2000, &again, &err), FG_OK);
  FG_CHECK(err.message[0] != 0);
  FG_EQ(rec->retry.v, 0);

  rec = fg_region_route(again, 42, HOUR);
  rec->retry.v = 77;
  c.boot[0] = 9; /* another boot */
  FG_EQ(fg_region_open(mem, bytes, &c, 2000, &again, &err), FG_OK);
  FG_CHECK(err.message[0] != 0);
  FG_EQ(rec->key.v, 0);
  FG_EQ(fg_region_open(mem, bytes, &c, 3000, &again, &err), FG_OK);
  FG_EQ_STR(err.message, "");
  FG_EQ(fg_region_open(mem, bytes, &c, 3000 + (INT64_C(1) << 37), &again, &err), FG_OK); /* its time is over */
  FG_CHECK(err.message[0] != 0);
  free(mem);
}

static void sizes(void) {
  fg_region_config c = {.size = sizeof(c)};
  uint64_t usual = fg_region_bytes(&c);
  FG_EQ(usual, 256 + 128 * (2048 + 512) + 32 * (128 + 512) + 128 * 256 + 64 * 64 + 64 * 256 * 32);
  c.routes = 10000;
  c.workflows = 1000;
  c.accounts = 100;
  FG_CHECK(fg_region_bytes(&c) < UINT64_C(90) << 20);
  c.size = 4;
  FG_EQ(fg_region_bytes(&c), 0);
}

static void clocks(void) {
  bed b;
  bed_open(&b, 8, 4);
  int64_t t = 0;
  FG_EQ(fg_region_time(b.region, 5000, &t), FG_OK);
  FG_EQ(t, HOUR + 5000);
  FG_EQ(fg_region_time(b.region, 4000, &t), FG_OK); /* back: stays */
  FG_EQ(t, HOUR + 5000);
  FG_EQ(fg_region_latest(b.region), HOUR + 5000);
  FG_EQ(fg_region_time(b.region, INT64_C(1800000000000), &t), FG_ERR_ARG);
  FG_EQ(fg_region_time(b.region, -HOUR - 1, &t), FG_ERR_ARG);
  b.region->high.v = UINT64_MAX; /* nonsense there stops nobody */
  FG_EQ(fg_region_time(b.region, 6000, &t), FG_OK);
  FG_EQ(t, HOUR + 6000);
  FG_EQ(fg_region_time(b.region, 86400000, &t), FG_OK); /* a jump ahead */
  FG_EQ(t, HOUR + 86400000);

  FG_EQ(fg_region_wall(b.region, HOUR), 0);
  fg_region_set_wall(b.region, INT64_C(1800000000000), HOUR);
  FG_EQ(fg_region_wall(b.region, HOUR + 5), INT64_C(1800000000005));
  fg_region_set_wall(b.region, INT64_C(1800000000900), HOUR); /* drift below a second: kept */
  FG_EQ(fg_region_wall(b.region, HOUR), INT64_C(1800000000000));
  fg_region_set_wall(b.region, INT64_C(1800000060000), HOUR);
  FG_EQ(fg_region_wall(b.region, HOUR), INT64_C(1800000060000));
  fg_region_set_wall(b.region, 5, HOUR); /* no wall clock */
  FG_EQ(fg_region_wall(b.region, HOUR), INT64_C(1800000060000));

  fg_word w = {0};
  fg_word_raise(&w, 1000, 500, 10000);
  fg_word_raise(&w, 900, 500, 10000);
  FG_EQ(fg_word_future(&w, 500, 10000), 1000);
  FG_EQ(fg_word_future(&w, 1000, 10000), 0);
  fg_word_raise(&w, 999999, 500, 10000);
  FG_EQ(w.v, 10500);
  w.v = UINT64_MAX;
  FG_EQ(fg_word_future(&w, 500, 10000), 0);
  fg_word_raise(&w, 600, 500, 10000);
  FG_EQ(w.v, 600);
  bed_close(&b);
}

static void records(void) {
  bed b;
  bed_open(&b, 8, 4); /* eight slots */
  fg_route_rec *seen[8];
  uint64_t key[8];
  key[0] = 1234567;
  seen[0] = b.ask.route;
  for (uint64_t i = 1; i < 8; i++) {
    key[i] = fg_mix64(i);
    seen[i] = fg_region_route(b.region, key[i], HOUR);
    FG_CHECK(seen[i] != NULL);
    for (uint64_t j = 0; j < i; j++) {
      FG_CHECK(seen[i] != seen[j]);
    }
  }
  for (uint64_t i = 0; i < 8; i++) {
    FG_CHECK(fg_region_route(b.region, key[i], HOUR + 1) == seen[i]);
    FG_CHECK(fg_region_route_at(b.region, fg_region_route_index(b.region, seen[i])) == seen[i]);
  }
  FG_CHECK(fg_region_route(b.region, 999, HOUR + 86399999) == NULL); /* full of today's */
  for (uint64_t i = 0; i < 8; i++) {
    if (i != 3) {
      FG_CHECK(fg_region_route(b.region, key[i], HOUR + 86399999) == seen[i]);
    }
  }
  seen[3]->breaker.v = 5;
  FG_CHECK(fg_region_route(b.region, 999, HOUR + 86400000) == seen[3]); /* idle for a day: reclaimed, and clean */
  FG_EQ(seen[3]->breaker.v, 0);
  FG_CHECK(fg_region_route(b.region, key[3], HOUR + 86400001) == NULL);
  FG_CHECK(fg_region_route(b.region, 999, HOUR + 86400001) == seen[3]);
  FG_CHECK(fg_region_route_at(b.region, 8) == NULL);
  FG_CHECK(fg_region_account_at(b.region, 4) == NULL);
  FG_CHECK(fg_region_process(b.region, 8) == NULL);
  FG_EQ(fg_region_account_index(b.region, fg_region_account_at(b.region, 3)), 3);
  FG_CHECK(fg_region_workflow(b.region, 0, HOUR) != NULL); /* keys 0 and ~0 are mapped away */
  FG_CHECK(fg_region_workflow(b.region, 0, HOUR) == fg_region_workflow(b.region, UINT64_MAX, HOUR));
  bed_close(&b);
}

/* No now_ms overflows: not the largest, not the smallest, not beside a base that is nonsense. */
static void limits(void) {
  static const int64_t at[] = {INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1, FG_T_MAX + 1, -FG_T_MAX};
  bed b;
  size_t i;
  int64_t t;
  bed_open(&b, 8, 4);
  for (i = 0; i < sizeof at / sizeof at[0]; i++) {
    FG_EQ(fg_region_time(b.region, at[i], &t), FG_ERR_ARG);
  }
  FG_EQ(fg_region_time(b.region, 0, &t), FG_OK);
  FG_EQ(t, HOUR);
  bed_close(&b);
}

int main(void) {
  opening();
  limits();
  sizes();
  clocks();
  records();
  return fg_test_end("region");
}
