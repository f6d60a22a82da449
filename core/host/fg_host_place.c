/* Places: the process-wide lock, slots, and the life of a region's memory.
 *
 * A forked child is recognised by a page the kernel wipes at a fork; the process-wide lock lives there too, so a child never finds it held by a thread
 * it does not have. */
#include "fg_host_place.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------- process and lock */

typedef struct mark {
  _Atomic uint32_t alive; /* 0 after a fork, until refresh */
  _Atomic uint32_t lock;
} mark;

static mark spare; /* when a page cannot be had */
static mark *here = &spare;
static _Atomic uint64_t generation = 1;
static fg_place *places;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget_parent(void) {
  atomic_store(&here->alive, 0);
  atomic_store(&here->lock, 0);
}

static void set_up(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int wiped = 0;
  if (p != MAP_FAILED) {
#ifdef MADV_WIPEONFORK
    wiped = madvise(p, page, MADV_WIPEONFORK) == 0;
#endif
    here = (mark *)p;
  }
  if (!wiped) {
    (void)pthread_atfork(NULL, NULL, forget_parent);
  }
  atomic_store(&here->alive, 1);
}

void fg_nap_us(long us) {
  struct timespec t = {us / 1000000, us % 1000000 * 1000};
  (void)nanosleep(&t, NULL);
}

void fg_places_lock(void) {
  (void)pthread_once(&once, set_up);
  uint32_t zero = 0;
  while (!atomic_compare_exchange_weak(&here->lock, &zero, 1)) {
    zero = 0;
    fg_nap_us(50);
  }
  if (atomic_load(&here->alive) == 0) { /* the first time in a forked child */
    atomic_fetch_add(&generation, 1);
    atomic_store(&here->alive, 1);
  }
}

void fg_places_unlock(void) {
  atomic_store(&here->lock, 0);
}

int fg_place_is_current(fg_place *p) {
  return atomic_load_explicit(&here->alive, memory_order_relaxed) != 0 && atomic_load(&p->generation) == atomic_load(&generation);
}

/* ----------------------------------------------------------------- errors */

void fg_say_path(fg_error *err, const char *path) {
  size_t len = path != NULL ? strlen(path) : 0;
  if (len < sizeof err->path) {
    memcpy(err->path, path != NULL ? path : "", len + 1);
  } else { /* the end says more than the beginning */
    (void)snprintf(err->path, sizeof err->path, "...%s", path + len - (sizeof err->path - 4));
  }
}

void fg_say(fg_error *err, int32_t code, const char *path, const char *what, const char *remedy) {
  memset(err, 0, sizeof *err);
  err->size = (uint32_t)sizeof *err;
  err->code = code;
  fg_say_path(err, path);
  (void)snprintf(err->message, sizeof err->message, "%s; %s", what, remedy);
}

void fg_say_errno(fg_error *err, const char *path, const char *what, const char *remedy) {
  char line[120];
  char reason[64];
  const char *r = strerror_r(errno, reason, sizeof reason);
  (void)snprintf(line, sizeof line, "%s: %s", what, r);
  fg_say(err, FG_ERR_REGION, path, line, remedy);
}

/* ------------------------------------------------------------------ slots */

int fg_place_set_lock(int fd, short type, off_t at) {
  struct flock l;
  memset(&l, 0, sizeof l);
  l.l_type = type;
  l.l_whence = SEEK_SET;
  l.l_start = at;
  l.l_len = 1;
  int rc;
  do {
    rc = fcntl(fd, F_SETLK, &l);
  } while (rc != 0 && errno == EINTR);
  return rc;
}

/* Slot for this process, or -1. A slot whose lock we get has no living owner: what is left of the last one is cleared. */
int32_t fg_place_take_slot(fg_place *p, int64_t now_ms) {
  int32_t got = -1;
  if (p->tail == NULL) {
    got = 0;
    (void)fg_region_reap(p->region, 0, now_ms);
  }
  for (int round = 0; round < 3 && got < 0; round++) {
    if (round > 0) { /* a reaper may have held the last free one for a moment */
      fg_nap_us(2000);
    }
    for (uint32_t s = 0; s < p->cfg.procs && got < 0; s++) {
      if (fg_place_set_lock(p->fd, F_WRLCK, (off_t)s) == 0) {
        (void)fg_region_reap(p->region, s, now_ms);
        atomic_store(&p->tail->owner[s], (uint64_t)getpid());
        got = (int32_t)s;
      }
    }
  }
  atomic_store(&p->slot, got);
  atomic_store(&p->generation, atomic_load(&generation));
  return got;
}

int32_t fg_place_reap(fg_place *p, int64_t now_ms) {
  int32_t reaped = 0;
  int32_t own = atomic_load(&p->slot);
  atomic_store(&p->reaped_ms, now_ms);
  if (p->tail == NULL || own < 0) {
    return 0;
  }
  for (uint32_t s = 0; s < p->cfg.procs; s++) {
    if ((int32_t)s == own || atomic_load(&p->tail->owner[s]) == 0 || fg_place_set_lock(p->fd, F_WRLCK, (off_t)s) != 0) {
      continue;
    }
    (void)fg_region_reap(p->region, s, now_ms);
    atomic_store(&p->tail->owner[s], 0);
    (void)fg_place_set_lock(p->fd, F_UNLCK, (off_t)s);
    reaped++;
  }
  return reaped;
}

/* ----------------------------------------------------------------- places */

fg_place *fg_place_new(const fg_region_config *cfg) {
  fg_place *p = calloc(1, sizeof *p);
  if (p != NULL) {
    p->fd = -1;
    p->refs = 1;
    p->cfg = *cfg;
    atomic_store(&p->slot, -1);
  }
  return p;
}

void fg_place_free(fg_place *p) {
  for (fg_place **at = &places; *at != NULL; at = &(*at)->next) {
    if (*at == p) {
      *at = p->next;
      break;
    }
  }
  int32_t slot = atomic_load(&p->slot);
  if (p->tail != NULL && slot >= 0 && fg_place_is_current(p)) {
    (void)fg_region_reap(p->region, (uint32_t)slot, atomic_load(&p->reaped_ms));
    atomic_store(&p->tail->owner[slot], 0);
  }
  if (p->mem != NULL) {
    (void)munmap(p->mem, p->bytes);
  }
  for (int i = 0; i < p->parked_count; i++) {
    (void)close(p->parked[i]);
  }
  if (p->fd >= 0) {
    (void)close(p->fd);
  }
  free(p->name);
  free(p);
}

int32_t fg_place_private(const fg_region_config *cfg, int64_t now_ms, fg_place **out, fg_error *err) {
  fg_place *p = fg_place_new(cfg);
  if (p == NULL) {
    fg_say(err, FG_ERR_NOMEM, "", "no memory for a region", "give the process more");
    return FG_ERR_NOMEM;
  }
  p->bytes = (size_t)fg_region_bytes(cfg);
  void *mem = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mem == MAP_FAILED) {
    fg_say(err, FG_ERR_NOMEM, "", "no memory for a region", "give the process more, or declare fewer routes and slots");
    fg_place_free(p);
    return FG_ERR_NOMEM;
  }
  p->mem = mem;
  int32_t rc = fg_region_open(mem, p->bytes, cfg, now_ms, &p->region, err);
  if (rc != FG_OK) {
    fg_place_free(p);
    return rc;
  }
  atomic_store(&p->reaped_ms, now_ms);
  atomic_store(&p->slot, 0);
  atomic_store(&p->generation, atomic_load(&generation));
  *out = p;
  return FG_OK;
}

fg_place *fg_place_find(dev_t dev, ino_t ino) {
  fg_place *p = places;
  while (p != NULL && (p->dev != dev || p->ino != ino)) {
    p = p->next;
  }
  return p;
}

int fg_place_adopt(fg_place *p, int fd, const char *name) {
  struct stat st;
  p->name = strdup(name);
  if (p->name == NULL || fstat(fd, &st) != 0) {
    return 0;
  }
  p->fd = fd;
  p->dev = st.st_dev;
  p->ino = st.st_ino;
  p->next = places;
  places = p;
  return 1;
}
