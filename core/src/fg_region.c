#include "fg_region.h"

#include "fg_error.h"
#include "fg_math.h"

enum { HEAD_BYTES = sizeof(struct fg_region), PROCS_MIN = 8, PROCS_MAX = 256, ROWS_MAX = 65536, SLOTS_MAX = 65536, PROBES_MAX = 128 };

static const uint64_t base_offset = UINT64_C(1) << 62;
static const int64_t wall_clock_looks = INT64_C(1000000000000); /* 31 years of ms: no machine is up for so long */
static const uint64_t key_busy = UINT64_MAX;

typedef struct shape { uint32_t routes, accounts, workflows, procs, rows; } shape; /* slots */

/* ---- sizes ---- */

static uint64_t route_bytes(uint32_t procs) { return sizeof(fg_route_rec) + 8 * (uint64_t)procs; }
static uint64_t account_bytes(uint32_t procs) { return sizeof(fg_account_rec) + 8 * (uint64_t)procs; }
static uint64_t accounts_at(shape s) { return HEAD_BYTES + s.routes * route_bytes(s.procs); }
static uint64_t workflows_at(shape s) { return accounts_at(s) + s.accounts * account_bytes(s.procs); }
static uint64_t processes_at(shape s) { return workflows_at(s) + s.workflows * sizeof(fg_workflow_rec); }
static uint64_t rows_at(shape s) { return processes_at(s) + s.procs * sizeof(fg_process_rec); }
static uint64_t bytes_of(shape s) { return rows_at(s) + (uint64_t)s.procs * s.rows * sizeof(fg_row); }

static uint32_t twice(uint32_t wanted, uint32_t usual) { /* slots: a power of two, at least twice the records */
  uint32_t n = 2;
  wanted = wanted > 0 ? wanted : usual;
  while (n < 2 * (uint64_t)wanted && n < SLOTS_MAX) {
    n *= 2;
  }
  return n;
}

/* 1, or 0 when a number is out of range. */
static int shape_of(const fg_region_config *config, shape *s) {
  fg_region_config c = {0};
  if (config->size < sizeof(uint32_t) * 6) {
    return 0;
  }
  memcpy(&c, config, fg_min64(config->size, sizeof(c)));
  if (c.routes > SLOTS_MAX / 2 || c.accounts > SLOTS_MAX / 2 || c.workflows > SLOTS_MAX / 2 || c.procs > PROCS_MAX || c.rows > ROWS_MAX) {
    return 0;
  }
  s->routes = twice(c.routes, 64);
  s->accounts = twice(c.accounts, 16);
  s->workflows = twice(c.workflows, 64);
  s->procs = c.procs == 0 ? 64 : fg_max32(c.procs, PROCS_MIN);
  s->rows = c.rows == 0 ? 256 : c.rows;
  return 1;
}

static shape stored(const fg_region *r) {
  shape s = {(uint32_t)r->routes.v, (uint32_t)r->accounts.v, (uint32_t)r->workflows.v, (uint32_t)r->procs.v, (uint32_t)r->rows.v};
  return s; /* written before anybody shares the region, never again: read plainly */
}

uint64_t fg_region_bytes(const fg_region_config *c) {
  shape s;
  return c != NULL && shape_of(c, &s) ? bytes_of(s) : 0;
}

uint32_t fg_region_procs(const fg_region *r) { return stored(r).procs; }
uint32_t fg_region_rows(const fg_region *r) { return stored(r).rows; }
uint32_t fg_region_routes(const fg_region *r) { return stored(r).routes; }

/* ---- opening ---- */

static int all_zero(const void *mem, uint64_t bytes) {
  const uint64_t *w = mem;
  for (uint64_t i = 0; i < bytes / 8; i++) {
    if (w[i] != 0) {
      return 0;
    }
  }
  return 1;
}

static void build(fg_region *r, shape s, const uint64_t boot[2], int64_t now_ms) {
  fg_store(&r->layout, (uint64_t)FG_REGION_LAYOUT << 32 | HEAD_BYTES);
  fg_store(&r->bytes, bytes_of(s));
  fg_store(&r->routes, s.routes);
  fg_store(&r->accounts, s.accounts);
  fg_store(&r->workflows, s.workflows);
  fg_store(&r->procs, s.procs);
  fg_store(&r->rows, s.rows);
  fg_store(&r->boot[0], boot[0]);
  fg_store(&r->boot[1], boot[1]);
  fg_store(&r->base, (uint64_t)(now_ms - FG_HOUR_MS) + base_offset);
  fg_store(&r->magic, FG_REGION_MAGIC); /* last: without it the region is not there yet */
}

static int64_t base_of(const fg_region *r) { return (int64_t)(fg_load_relaxed(&r->base) - base_offset); }

/* Is now_ms a time of a region that began at base? The difference of any two of them, without overflow. */
static int within(int64_t now_ms, int64_t base) { return now_ms >= base && (uint64_t)now_ms - (uint64_t)base <= (uint64_t)FG_T_MAX; }

int32_t fg_region_open(void *mem, uint64_t bytes, const fg_region_config *c, int64_t now_ms, fg_region **out, fg_error *err) {
  shape s;
  if (out == NULL) {
    return fg_error_set(err, FG_ERR_ARG, "out is NULL");
  }
  *out = NULL;
  if (mem == NULL || c == NULL || ((uintptr_t)mem & 7) != 0) {
    return fg_error_set(err, FG_ERR_ARG, "the region's memory must be given and 8-byte aligned");
  }
  if (now_ms < -wall_clock_looks || now_ms >= wall_clock_looks) {
    return fg_error_set(err, FG_ERR_ARG, "now_ms looks like wall time; pass the monotonic clock in milliseconds");
  }
  if (!shape_of(c, &s)) {
    return fg_error_set(err, FG_ERR_ARG, "a size in the region's configuration is out of range");
  }
  if (bytes < bytes_of(s)) {
    return fg_error_set(err, FG_ERR_ABI, "the memory is smaller than fg_region_bytes of this configuration");
  }
  uint64_t boot[2] = {0, 0};
  if (c->size >= sizeof(*c)) {
    memcpy(boot, c->boot, sizeof(boot));
  }
  fg_region *r = mem;
  const char *why = NULL;
  if (r->magic.v == 0) {
    if (all_zero(r, HEAD_BYTES)) {
      build(r, s, boot, now_ms);
      *out = r;
      return fg_error_set(err, FG_OK, "");
    }
    why = "a region that was never finished has been rebuilt";
  } else if (r->magic.v != FG_REGION_MAGIC) {
    return fg_error_set(err, FG_ERR_REGION, "this memory is not a region; remove the file, or name another one");
  } else if (r->layout.v != ((uint64_t)FG_REGION_LAYOUT << 32 | HEAD_BYTES)) {
    return fg_error_set(err, FG_ERR_REGION, "the region has the layout of another version; each version needs a file of its own");
  } else if (r->bytes.v != bytes_of(s) || r->routes.v != s.routes || r->accounts.v != s.accounts || r->workflows.v != s.workflows ||
             r->procs.v != s.procs || r->rows.v != s.rows) {
    return fg_error_set(err, FG_ERR_REGION, "the region was made with other sizes; open it with the same configuration, or remove the file");
  } else if (r->boot[0].v != boot[0] || r->boot[1].v != boot[1]) {
    why = "the region is from before this machine's last start: it has been rebuilt";
  } else if (!within(now_ms, base_of(r))) {
    why = "the region's clock cannot be this machine's: it has been rebuilt";
  }
  if (why != NULL) {
    memset(mem, 0, bytes_of(s));
    build(r, s, boot, now_ms);
  }
  *out = r;
  return fg_error_set(err, FG_OK, why != NULL ? why : "");
}

/* ---- time ---- */

int32_t fg_region_time(fg_region *r, int64_t now_ms, int64_t *t) {
  int64_t base = base_of(r);
  if (!within(now_ms, base)) {
    return FG_ERR_ARG;
  }
  *t = now_ms - base;
  uint64_t high = fg_load_relaxed(&r->high);
  while ((uint64_t)*t > high || high - (uint64_t)*t > FG_HOUR_MS) { /* an hour back is no jitter: that word is nonsense */
    if (fg_cas(&r->high, &high, (uint64_t)*t)) {
      return FG_OK;
    }
  }
  *t = (int64_t)high;
  return FG_OK;
}

int64_t fg_region_latest(const fg_region *r) { return (int64_t)(fg_load_relaxed(&r->high) & (uint64_t)FG_T_MAX); }

void fg_region_set_wall(fg_region *r, int64_t unix_ms, int64_t t) {
  if (unix_ms <= t) {
    return; /* no wall clock is from before the region began */
  }
  uint64_t new = (uint64_t)(unix_ms - t) + 1, old = fg_load_relaxed(&r->wall);
  uint64_t moved = new > old ? new - old : old - new;
  if (moved > 1000) {
    fg_store(&r->wall, new);
  }
}

int64_t fg_region_wall(const fg_region *r, int64_t t) {
  uint64_t wall = fg_load_relaxed(&r->wall);
  if (wall == 0 || wall > UINT64_C(1) << 52) {
    return 0;
  }
  return (int64_t)wall - 1 + t;
}

void fg_word_raise(fg_word *w, int64_t value, int64_t t, int64_t bound_ms) {
  value = fg_mins(value, fg_mins(t + bound_ms, FG_T_MAX));
  uint64_t old = fg_load(w);
  while (value > t && value > fg_t_future(old, t, bound_ms) && !fg_cas(w, &old, (uint64_t)value)) {
  }
}

/* ---- records ---- */

typedef struct table { unsigned char *at; uint64_t stride; uint32_t slots; } table;

static fg_word *record(table b, uint64_t i) { return (fg_word *)(void *)(b.at + i * b.stride); }

/* A record idle for a day changes its owner. The CAS of `used` elects one taker; killed on the way, it leaves a busy record that
 * is idle for a day. */
static fg_word *reclaim(table b, fg_word *rec, uint64_t key, int64_t t) {
  uint64_t used = fg_load(&rec[1]);
  int nonsense = used > (uint64_t)t + FG_HOUR_MS;
  if ((!nonsense && (uint64_t)t - fg_min64(used, (uint64_t)t) < FG_DAY_MS) || !fg_cas(&rec[1], &used, (uint64_t)t)) {
    return NULL;
  }
  fg_store(&rec[0], key_busy);
  for (uint64_t i = 2; i < b.stride / 8; i++) {
    fg_store(&rec[i], 0);
  }
  fg_store(&rec[0], key);
  return rec;
}

static fg_word *find(table b, uint64_t key, int64_t t) {
  key = key == 0 || key == key_busy ? 1 : key;
  uint32_t mask = b.slots - 1, probes = fg_min32(b.slots, PROBES_MAX);
  for (uint32_t i = 0; i < probes; i++) {
    fg_word *rec = record(b, (key + i) & mask);
    uint64_t k = fg_load(&rec[0]);
    if (k == key || (k == 0 && fg_cas(&rec[0], &k, key)) || k == key) {
      fg_region_touch(&rec[1], t);
      return rec;
    }
  }
  for (uint32_t i = 0; i < probes; i++) {
    fg_word *rec = reclaim(b, record(b, (key + i) & mask), key, t);
    if (rec != NULL) {
      return rec;
    }
  }
  return NULL;
}

static unsigned char *bytes_at(const fg_region *r, uint64_t off) { return (unsigned char *)(uintptr_t)r + off; }

static table routes(const fg_region *r) {
  shape s = stored(r);
  table b = {bytes_at(r, HEAD_BYTES), route_bytes(s.procs), s.routes};
  return b;
}

static table accounts(const fg_region *r) {
  shape s = stored(r);
  table b = {bytes_at(r, accounts_at(s)), account_bytes(s.procs), s.accounts};
  return b;
}

fg_route_rec *fg_region_route(fg_region *r, uint64_t key, int64_t t) { return (fg_route_rec *)(void *)find(routes(r), key, t); }
fg_account_rec *fg_region_account(fg_region *r, uint64_t key, int64_t t) { return (fg_account_rec *)(void *)find(accounts(r), key, t); }

fg_workflow_rec *fg_region_workflow(fg_region *r, uint64_t key, int64_t t) {
  shape s = stored(r);
  table b = {bytes_at(r, workflows_at(s)), sizeof(fg_workflow_rec), s.workflows};
  return (fg_workflow_rec *)(void *)find(b, key, t);
}

fg_process_rec *fg_region_process(fg_region *r, uint32_t slot) {
  shape s = stored(r);
  return slot < s.procs ? (fg_process_rec *)(void *)bytes_at(r, processes_at(s)) + slot : NULL;
}

fg_row *fg_region_row(fg_region *r, uint32_t slot, uint32_t index) {
  shape s = stored(r);
  return (fg_row *)(void *)bytes_at(r, rows_at(s)) + (uint64_t)slot * s.rows + index;
}

fg_route_rec *fg_region_route_at(fg_region *r, uint32_t index) {
  table b = routes(r);
  return index < b.slots ? (fg_route_rec *)(void *)record(b, index) : NULL;
}

fg_account_rec *fg_region_account_at(fg_region *r, uint32_t index) {
  table b = accounts(r);
  return index < b.slots ? (fg_account_rec *)(void *)record(b, index) : NULL;
}

static uint32_t index_in(table b, const void *rec) { /* a table is below 4 GiB: 65,536 slots of 4 KiB; the narrow division is the fast one */
  return (uint32_t)((const unsigned char *)rec - b.at) / (uint32_t)b.stride;
}

uint32_t fg_region_route_index(const fg_region *r, const fg_route_rec *rec) {
  return index_in(routes(r), rec);
}

uint32_t fg_region_account_index(const fg_region *r, const fg_account_rec *rec) {
  return index_in(accounts(r), rec);
}
