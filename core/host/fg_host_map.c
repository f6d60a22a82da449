/* The region map, as the host sees it: one place per region, private or a file; maps of one file share theirs. */
#include "fg_host_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fg_region.h" /* FG_REGION_LAYOUT */

enum { REAP_EVERY_MS = 1000 };

struct fg_host_map {
  _Atomic(fg_place *) at; /* home, or a private place after a fork found no free slot */
  fg_place *home;
  _Atomic int32_t warned;
  fg_error warning;
};

static void hand_out(const fg_error *from, fg_error *to) {
  if (to == NULL || to->size < 2 * sizeof(uint32_t)) {
    return;
  }
  uint32_t size = to->size;
  memcpy(to, from, size < sizeof *from ? size : sizeof *from);
  to->size = size;
  if (size < sizeof *from && size > offsetof(fg_error, message)) {
    ((char *)to)[size - 1] = 0;
  }
}

static void config_fill(fg_region_config *out, const fg_region_config *cfg) {
  memset(out, 0, sizeof *out);
  if (cfg != NULL) {
    memcpy(out, cfg, cfg->size < sizeof *out ? cfg->size : sizeof *out);
  }
  out->size = (uint32_t)sizeof *out;
  out->routes = out->routes != 0 ? out->routes : 64;
  out->accounts = out->accounts != 0 ? out->accounts : 16;
  out->workflows = out->workflows != 0 ? out->workflows : 64;
  out->procs = out->procs == 0 ? 64 : out->procs < 8 ? 8 : out->procs;
  out->rows = out->rows != 0 ? out->rows : 256;
  if ((out->boot[0] | out->boot[1]) == 0) {
    (void)fg_host_boot_id(out->boot);
  }
}

static int32_t open_named(const char *path, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, fg_host_map *m) {
  char name[FG_PLACE_NAME_MAX];
  fg_place *p = NULL;
  int rebuilt = 0;
  int result = FG_PLACE_WRONG_PATH;
  int n = snprintf(name, sizeof name, "%s.fg%u", path, (unsigned)FG_REGION_LAYOUT);
  if (n < 0 || (size_t)n >= sizeof name) {
    fg_say(&m->warning, FG_ERR_REGION, path, "the path is too long", "use a shorter one");
  } else if ((cfg->boot[0] | cfg->boot[1]) == 0) {
    fg_say(&m->warning, FG_ERR_REGION, name, "this machine does not tell its boot id", "state is private to this process; mount /proc, or give cfg.boot");
    result = FG_PLACE_REFUSED;
  } else {
    result = fg_place_open(name, cfg, flags, now_ms, &p, &m->warning, &rebuilt);
  }
  if (result == FG_PLACE_MADE) {
    atomic_store(&m->at, p);
    m->home = p;
    atomic_store(&m->warned, m->warning.code != FG_OK);
    return FG_OK;
  }
  int only_existing = (flags & FG_HOST_MAP_EXISTING) != 0;
  int may_fall_back = (flags & FG_HOST_MAP_FALLBACK) != 0 || (result == FG_PLACE_REFUSED && !only_existing);
  if (!may_fall_back || m->warning.code == FG_ERR_NOMEM) {
    return m->warning.code == FG_ERR_NOMEM ? FG_ERR_NOMEM : FG_ERR_REGION;
  }
  atomic_store(&m->warned, 1);
  return FG_OK;
}

int32_t fg_host_map_open(const char *path, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, fg_host_map **out, fg_error *err) {
  if (out == NULL) {
    return FG_ERR_ARG;
  }
  *out = NULL;
  fg_region_config c;
  config_fill(&c, cfg);
  fg_host_map *m = calloc(1, sizeof *m);
  if (m == NULL) {
    return FG_ERR_NOMEM;
  }
  int32_t rc = FG_OK;
  fg_error why;
  fg_places_lock();
  if (fg_region_bytes(&c) == 0) {
    fg_say(&m->warning, FG_ERR_ARG, path != NULL ? path : "", "the region's sizes are out of range", "8 to 256 process slots; see fg_region_config");
    rc = FG_ERR_ARG;
  } else if (path != NULL && path[0] != 0) {
    rc = open_named(path, &c, flags, now_ms, m);
  }
  if (rc != FG_OK) {
    why = m->warning;
  } else if (m->home == NULL) {
    memset(&why, 0, sizeof why);
    why.size = (uint32_t)sizeof why;
    rc = fg_place_private(&c, now_ms, &m->home, &why);
    atomic_store(&m->at, m->home);
  }
  fg_places_unlock();
  if (rc != FG_OK) {
    hand_out(&why, err);
    free(m);
    return rc;
  }
  *out = m;
  return FG_OK;
}

fg_region *fg_host_map_region(const fg_host_map *m) {
  return m != NULL ? atomic_load(&m->at)->region : NULL;
}

const char *fg_host_map_path(const fg_host_map *m) {
  return m != NULL ? atomic_load(&m->at)->name : NULL;
}

int32_t fg_host_map_warning(const fg_host_map *m, fg_error *out) {
  if (m == NULL || atomic_load(&m->warned) == 0) {
    return 0;
  }
  hand_out(&m->warning, out);
  return 1;
}

/* After a fork: a slot of our own, or a private region. */
static int32_t settle(fg_host_map *m, int64_t now_ms) {
  fg_place *p = atomic_load(&m->at);
  if (!fg_place_is_current(p)) {
    (void)fg_place_take_slot(p, now_ms);
  }
  int32_t slot = atomic_load(&p->slot);
  if (slot >= 0) {
    return slot;
  }
  fg_place *own = NULL;
  fg_error err;
  memset(&err, 0, sizeof err);
  err.size = (uint32_t)sizeof err;
  int32_t rc = fg_place_private(&p->cfg, now_ms, &own, &err);
  if (rc != FG_OK) {
    return rc;
  }
  fg_say(&m->warning, FG_ERR_FULL, p->name, "all process slots are taken", "state is private to this process; make the region with more slots");
  atomic_store(&m->warned, 1);
  atomic_store(&m->at, own);
  return 0;
}

int32_t fg_host_map_slot(fg_host_map *m, int64_t now_ms) {
  if (m == NULL) {
    return FG_ERR_ARG;
  }
  fg_place *p = atomic_load_explicit(&m->at, memory_order_acquire);
  int due = now_ms - atomic_load_explicit(&p->reaped_ms, memory_order_relaxed) >= REAP_EVERY_MS && p->tail != NULL;
  int32_t slot = atomic_load_explicit(&p->slot, memory_order_relaxed);
  if (slot >= 0 && !due && fg_place_is_current(p)) {
    return slot;
  }
  fg_places_lock();
  slot = settle(m, now_ms);
  p = atomic_load(&m->at);
  if (now_ms - atomic_load(&p->reaped_ms) >= REAP_EVERY_MS) {
    (void)fg_place_reap(p, now_ms);
  }
  fg_places_unlock();
  return slot;
}

int32_t fg_host_map_reap(fg_host_map *m, int64_t now_ms) {
  if (m == NULL) {
    return FG_ERR_ARG;
  }
  fg_places_lock();
  int32_t rc = settle(m, now_ms);
  if (rc >= 0) {
    rc = fg_place_reap(atomic_load(&m->at), now_ms);
  }
  fg_places_unlock();
  return rc;
}

void fg_host_map_close(fg_host_map *m) {
  if (m == NULL) {
    return;
  }
  fg_places_lock();
  fg_place *p = atomic_load(&m->at);
  if (p != m->home) {
    fg_place_free(p);
  }
  if (--m->home->refs == 0) {
    fg_place_free(m->home);
  }
  fg_places_unlock();
  free(m);
}
