/* Witness rows: who ends an attempt, whose silence is excused, what a dead process leaves. */
#include "fg_test.h"
#include "region_help.h"

static void ends(void) {
  bed b;
  fg_ticket k, again;
  bed_open(&b, 8, 4);
  FG_CHECK(bed_admit(&b, &k, 0));
  bed_tick(&b, 4500);
  FG_EQ(bed_z(&b), 2303);
  bed_tick(&b, 59999);
  FG_EQ(bed_gauge(&b).in_flight, 1);
  bed_tick(&b, 60000); /* the host forgot it: row, gauge and provisional evidence end at the total time-out */
  FG_EQ(bed_gauge(&b).in_flight, 0);
  FG_EQ(bed_z(&b), 0);
  FG_EQ(b.ask.route->count[FG_ROUTE_LOST].v, 1);
  (void)bed_end(&b, &k, FG_OUT_FAIL, 60000); /* told at the same moment: counted once */
  FG_EQ(bed_run(&b), 1);
  FG_EQ(bed_gauge(&b).in_flight, 0);
  FG_CHECK(bed_admit(&b, &k, 61000)); /* the row's next life does not answer to the old handle */
  again = k;
  (void)bed_end(&b, &k, FG_OUT_OK, 61100);
  FG_CHECK(bed_admit(&b, &k, 61200));
  FG_CHECK((again.watch.row & UINT32_MAX) == (k.watch.row & UINT32_MAX) && again.watch.row != k.watch.row);
  bed_token(&b, &again, 61300);
  FG_EQ(bed_gauge(&b).generating, 0);
  FG_EQ(fg_witness_end(b.region, &again.watch), FG_END_GONE);
  FG_EQ(bed_gauge(&b).in_flight, 1);
  bed_close(&b);
}

static void progress(void) {
  bed b;
  fg_ticket k;
  bed_open(&b, 8, 4);
  b.how.total_ms = 600000;
  FG_CHECK(bed_admit(&b, &k, 0));
  fg_health_token(&b.ask, &k, HOUR + 10000, HOUR + 1000);
  FG_EQ(bed_gauge(&b).generating, 1);
  bed_tick(&b, 9999);
  FG_EQ(bed_gauge(&b).stuck, 0);
  bed_tick(&b, 10000);
  FG_EQ(bed_gauge(&b).stuck, 1);
  FG_EQ(bed_z(&b), 0);
  fg_health_progress(&b.ask, &k, HOUR + 70000, HOUR + 10500);
  FG_EQ(bed_gauge(&b).stuck, 0);
  bed_tick(&b, 69999);
  FG_EQ(bed_gauge(&b).stuck, 0);
  fg_health_progress(&b.ask, &k, HOUR + 70500, HOUR + 69999); /* less than a second: skipped */
  bed_tick(&b, 70000);
  FG_EQ(bed_gauge(&b).stuck, 1);
  (void)bed_end(&b, &k, FG_OUT_OK, 71000);
  fg_gauge g = bed_gauge(&b);
  FG_EQ(g.in_flight + g.generating + g.stuck + g.retries, 0);
  bed_close(&b);
}

static void late_token(void) { /* late but never flagged: Z unchanged; a tie is in time */
  bed b;
  fg_ticket k[3];
  bed_open(&b, 8, 4);
  for (int i = 0; i < 3; i++) {
    FG_CHECK(bed_admit(&b, &k[i], 0));
  }
  fg_stall_flag(&b.ask.route->evidence, 1);
  bed_token(&b, &k[0], 4501);
  FG_EQ(bed_z(&b), 2303);
  bed_token(&b, &k[1], 4500);
  FG_EQ(bed_z(&b), 1661);
  b.how.stall_ms = 0; /* not a witness */
  bed_tick(&b, 4502);
  FG_EQ(bed_z(&b), 3964);
  bed_close(&b);
}

static void excused(void) {
  bed b;
  fg_ticket mine[2], other;
  bed_open(&b, 8, 4);
  FG_CHECK(bed_admit(&b, &mine[0], 0));
  FG_CHECK(bed_admit(&b, &mine[1], 1000));
  b.how.slot = 3;
  FG_CHECK(bed_admit(&b, &other, 0));
  fg_witness_promise(b.region, 0, HOUR + 2000, HOUR + 1000);
  bed_tick(&b, 9000); /* by process 3: process 0 promised to come at 2000 and has not, so only its own row is judged */
  FG_EQ(bed_z(&b), 2303);
  fg_witness_present(b.region, 0, HOUR + 9000); /* back: its rows move by 7,000 */
  bed_tick(&b, 11499);
  FG_EQ(bed_z(&b), 2303);
  fg_witness_present(b.region, 0, HOUR + 9000); /* twice moves nothing */
  bed_tick(&b, 11500);
  FG_EQ(bed_z(&b), 2303); /* again late for the promise renewed at its return */
  fg_witness_promise(b.region, 0, HOUR + 13000, HOUR + 11500);
  bed_tick(&b, 12500);
  FG_EQ(bed_z(&b), 6909);
  bed_close(&b);

  bed_open(&b, 8, 4); /* a host that promises nothing is judged */
  FG_CHECK(bed_admit(&b, &mine[0], 0));
  fg_witness_present(b.region, 0, HOUR + 60000 - 1);
  bed_tick(&b, 59999);
  FG_EQ(bed_z(&b), 2303);
  bed_close(&b);

  bed_open(&b, 8, 4); /* within a second of its promise: not late */
  FG_CHECK(bed_admit(&b, &mine[0], 0));
  fg_witness_promise(b.region, 0, HOUR + 4000, HOUR);
  fg_witness_present(b.region, 0, HOUR + 5000);
  bed_tick(&b, 5000);
  FG_EQ(bed_z(&b), 2303);
  bed_close(&b);
}

static void reaped(void) {
  bed b;
  fg_ticket k[6], p;
  bed_open(&b, 8, 8);
  b.how.slot = 2;
  b.how.retry = 1;
  for (int i = 0; i < 6; i++) {
    FG_CHECK(bed_admit(&b, &k[i], 0));
  }
  bed_token(&b, &k[0], 500);
  b.how.slot = 0;
  FG_CHECK(bed_admit(&b, &p, 0));
  FG_EQ(bed_gauge(&b).in_flight, 7);
  FG_EQ(fg_region_reap(b.region, 2, 1000), FG_OK); /* killed: nothing of it becomes evidence */
  fg_gauge g = bed_gauge(&b);
  FG_EQ(g.in_flight, 1);
  FG_EQ(g.retries, 1);
  FG_EQ(g.generating, 0);
  uint32_t z = bed_z(&b);
  bed_tick(&b, 4500);
  FG_EQ(bed_z(&b), z + 2303);
  FG_EQ(bed_state(&b, 4500), FG_BREAKER_CLOSED);
  FG_EQ(fg_region_reap(b.region, 8, 1000), FG_ERR_ARG);
  FG_EQ(fg_region_reap(NULL, 0, 1000), FG_ERR_ARG);
  (void)bed_end(&b, &p, FG_OUT_OK, 4600);
  b.how.retry = 0;
  for (int i = 0; i < 5; i++) {
    FG_CHECK(bed_admit(&b, &k[i], 5000));
    (void)bed_end(&b, &k[i], FG_OUT_FAIL, 5000);
  }
  b.how.slot = 4; /* a killed probe gives its slot back at once */
  FG_CHECK(bed_admit(&b, &p, 15000));
  b.how.slot = 0;
  FG_CHECK(!bed_admit(&b, &k[0], 15001));
  FG_EQ(fg_region_reap(b.region, 4, 15002), FG_OK);
  FG_CHECK(bed_admit(&b, &k[0], 15002));
  bed_close(&b);
}

static void many(void) { /* rows are reused lowest first; a full segment still counts */
  bed b;
  fg_ticket k[300];
  bed_open(&b, 8, 256);
  b.ask.account = NULL;
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < 300; i++) {
      FG_CHECK(bed_admit(&b, &k[i], round));
    }
    FG_EQ(bed_gauge(&b).in_flight, 300);
    for (int i = 0; i < 300; i++) {
      (void)bed_end(&b, &k[(i * 7) % 300], FG_OUT_NEUTRAL, round);
    }
    FG_EQ(bed_gauge(&b).in_flight, 0);
  }
  for (int i = 0; i < 5000; i++) {
    FG_CHECK(bed_admit(&b, &k[0], 30));
    (void)bed_end(&b, &k[0], FG_OUT_OK, 30);
  }
  bed_close(&b);
}

int main(void) {
  ends();
  progress();
  late_token();
  excused();
  reaped();
  many();
  return fg_test_end("witness");
}
