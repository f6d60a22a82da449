/* The region map: one `place` per region, private or a file; maps of one file share theirs.
 *
 * File: the region, padding to a page, then a tail with the sizes it was made for and one owner word per slot. Locks on it: byte `slot` for a slot's
 * owner, byte GATE while a process decides whether the file is good, takes its first slot, or replaces the file. A file somebody holds a slot of is never
 * replaced.
 *
 * A forked child is recognised by a page the kernel wipes at a fork; the process-wide lock lives there too, so a child never finds it held by a thread
 * it does not have. */
#include "fg_host.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "fg_region.h" /* FG_REGION_LAYOUT */

enum { SLOTS_MAX = 256, GATE = 1 << 20, REAP_EVERY_MS = 1000, GATE_WAIT_MS = 2000, TRIES = 64, NAME_BYTES = 1024 };
#define TAIL_MAGIC UINT64_C(0x6667746169000001)

typedef struct tail {
  uint64_t magic, region_bytes, boot[2];
  uint32_t routes, accounts, workflows, procs, rows, zero;
  _Atomic uint64_t owner[SLOTS_MAX]; /* pid that took the slot, 0 = given back; only the lock says who lives */
} tail;

typedef struct place {
  struct place *next;
  uint32_t refs;
  int fd;           /* -1 = private */
  int parked[4];    /* descriptors of the same file that must not be closed before fd */
  int parked_count;
  dev_t dev;
  ino_t ino;
  void *mem;
  size_t bytes;
  fg_region *region;
  fg_region_config cfg;
  tail *tail;       /* NULL = private */
  char *name;       /* NULL = private */
  _Atomic uint64_t generation; /* of the process, when the slot was taken */
  _Atomic int32_t slot;        /* -1 = none was free */
  _Atomic int64_t reaped_ms;
} place;

struct fg_host_map {
  _Atomic(place *) at; /* home, or a private place after a fork found no free slot */
  place *home;
  _Atomic int32_t warned;
  fg_error warning;
};

/* ------------------------------------------------------- process and lock */

typedef struct mark {
  _Atomic uint32_t alive; /* 0 after a fork, until refresh */
  _Atomic uint32_t lock;
} mark;

static mark spare; /* when a page cannot be had */
static mark *here = &spare;
static _Atomic uint64_t generation = 1;
static place *places;
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

static void nap(long us) {
  struct timespec t = {us / 1000000, us % 1000000 * 1000};
  (void)nanosleep(&t, NULL);
}

static void lock_all(void) {
  (void)pthread_once(&once, set_up);
  uint32_t zero = 0;
  while (!atomic_compare_exchange_weak(&here->lock, &zero, 1)) {
    zero = 0;
    nap(50);
  }
  if (atomic_load(&here->alive) == 0) { /* the first time in a forked child */
    atomic_fetch_add(&generation, 1);
    atomic_store(&here->alive, 1);
  }
}

static void unlock_all(void) {
  atomic_store(&here->lock, 0);
}

static int is_current(place *p) {
  return atomic_load_explicit(&here->alive, memory_order_relaxed) != 0 && atomic_load(&p->generation) == atomic_load(&generation);
}

/* ----------------------------------------------------------------- errors */

static void say_path(fg_error *err, const char *path) {
  size_t len = path != NULL ? strlen(path) : 0;
  if (len < sizeof err->path) {
    memcpy(err->path, path != NULL ? path : "", len + 1);
  } else { /* the end says more than the beginning */
    (void)snprintf(err->path, sizeof err->path, "...%s", path + len - (sizeof err->path - 4));
  }
}

static void say(fg_error *err, int32_t code, const char *path, const char *what, const char *remedy) {
  memset(err, 0, sizeof *err);
  err->size = (uint32_t)sizeof *err;
  err->code = code;
  say_path(err, path);
  (void)snprintf(err->message, sizeof err->message, "%s; %s", what, remedy);
}

static void say_errno(fg_error *err, const char *path, const char *what, const char *remedy) {
  char line[120];
  char reason[64];
  const char *r = strerror_r(errno, reason, sizeof reason);
  (void)snprintf(line, sizeof line, "%s: %s", what, r);
  say(err, FG_ERR_REGION, path, line, remedy);
}

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

/* ------------------------------------------------------------------ locks */

static int set_lock(int fd, short type, off_t at) {
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

/* Anyone else holding a slot? */
static int slots_held(int fd) {
  struct flock l;
  memset(&l, 0, sizeof l);
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  l.l_start = 0;
  l.l_len = SLOTS_MAX;
  return fcntl(fd, F_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

static int take_gate(int fd) {
  for (int i = 0; i < GATE_WAIT_MS; i++) {
    if (set_lock(fd, F_WRLCK, GATE) == 0) {
      return 1;
    }
    if (errno != EAGAIN && errno != EACCES) {
      return 0;
    }
    nap(1000);
  }
  errno = EAGAIN;
  return 0;
}

/* Slot for this process, or -1. A slot whose lock we get has no living owner: what is left of the last one is cleared. */
static int32_t take_slot(place *p, int64_t now_ms) {
  int32_t got = -1;
  if (p->tail == NULL) {
    got = 0;
    (void)fg_region_reap(p->region, 0, now_ms);
  }
  for (int round = 0; round < 3 && got < 0; round++) {
    if (round > 0) { /* a reaper may have held the last free one for a moment */
      nap(2000);
    }
    for (uint32_t s = 0; s < p->cfg.procs && got < 0; s++) {
      if (set_lock(p->fd, F_WRLCK, (off_t)s) == 0) {
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

static int32_t reap_dead(place *p, int64_t now_ms) {
  int32_t reaped = 0;
  int32_t own = atomic_load(&p->slot);
  atomic_store(&p->reaped_ms, now_ms);
  if (p->tail == NULL || own < 0) {
    return 0;
  }
  for (uint32_t s = 0; s < p->cfg.procs; s++) {
    if ((int32_t)s == own || atomic_load(&p->tail->owner[s]) == 0 || set_lock(p->fd, F_WRLCK, (off_t)s) != 0) {
      continue;
    }
    (void)fg_region_reap(p->region, s, now_ms);
    atomic_store(&p->tail->owner[s], 0);
    (void)set_lock(p->fd, F_UNLCK, (off_t)s);
    reaped++;
  }
  return reaped;
}

/* ----------------------------------------------------------------- places */

static uint64_t tail_offset(const fg_region_config *cfg) {
  return (fg_region_bytes(cfg) + 4095) / 4096 * 4096;
}

static place *place_new(const fg_region_config *cfg) {
  place *p = calloc(1, sizeof *p);
  if (p != NULL) {
    p->fd = -1;
    p->refs = 1;
    p->cfg = *cfg;
    atomic_store(&p->slot, -1);
  }
  return p;
}

static void place_free(place *p) {
  for (place **at = &places; *at != NULL; at = &(*at)->next) {
    if (*at == p) {
      *at = p->next;
      break;
    }
  }
  int32_t slot = atomic_load(&p->slot);
  if (p->tail != NULL && slot >= 0 && is_current(p)) {
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

static int32_t place_private(const fg_region_config *cfg, int64_t now_ms, place **out, fg_error *err) {
  place *p = place_new(cfg);
  if (p == NULL) {
    say(err, FG_ERR_NOMEM, "", "no memory for a region", "give the process more");
    return FG_ERR_NOMEM;
  }
  p->bytes = (size_t)fg_region_bytes(cfg);
  void *mem = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mem == MAP_FAILED) {
    say(err, FG_ERR_NOMEM, "", "no memory for a region", "give the process more, or declare fewer routes and slots");
    place_free(p);
    return FG_ERR_NOMEM;
  }
  p->mem = mem;
  int32_t rc = fg_region_open(mem, p->bytes, cfg, now_ms, &p->region, err);
  if (rc != FG_OK) {
    place_free(p);
    return rc;
  }
  atomic_store(&p->reaped_ms, now_ms);
  atomic_store(&p->slot, 0);
  atomic_store(&p->generation, atomic_load(&generation));
  *out = p;
  return FG_OK;
}

static place *find_place(dev_t dev, ino_t ino) {
  place *p = places;
  while (p != NULL && (p->dev != dev || p->ino != ino)) {
    p = p->next;
  }
  return p;
}

/* Closing any descriptor of a file drops every lock this process has on it: one that turned out to be of a file in use stays open. */
static void park_or_close(int fd) {
  struct stat st;
  place *p = fstat(fd, &st) == 0 ? find_place(st.st_dev, st.st_ino) : NULL;
  if (p == NULL) {
    (void)close(fd);
  } else if (p->parked_count < (int)(sizeof p->parked / sizeof p->parked[0])) {
    p->parked[p->parked_count++] = fd;
  } /* else it leaks: a lost descriptor is better than a lost slot */
}

static void tail_fill(tail *t, const fg_region_config *cfg) {
  t->magic = TAIL_MAGIC;
  t->region_bytes = fg_region_bytes(cfg);
  t->boot[0] = cfg->boot[0];
  t->boot[1] = cfg->boot[1];
  t->routes = cfg->routes;
  t->accounts = cfg->accounts;
  t->workflows = cfg->workflows;
  t->procs = cfg->procs;
  t->rows = cfg->rows;
}

static int tail_fits(const tail *t, const fg_region_config *cfg) {
  return t->magic == TAIL_MAGIC && t->region_bytes == fg_region_bytes(cfg) && t->routes == cfg->routes && t->accounts == cfg->accounts &&
         t->workflows == cfg->workflows && t->procs == cfg->procs && t->rows == cfg->rows;
}

/* Maps fd, which is `bytes` long and has every block. */
static int place_map(place *p, int fd, uint64_t bytes) {
  void *mem = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mem == MAP_FAILED) {
    return 0;
  }
  p->mem = mem;
  p->bytes = (size_t)bytes;
  p->tail = (tail *)(void *)((char *)mem + tail_offset(&p->cfg));
  return 1;
}

static int place_adopt(place *p, int fd, const char *name) {
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

enum { MADE, LOST_RACE, WRONG_PATH, REFUSED }; /* WRONG_PATH, REFUSED: err filled */

/* A new file under a temporary name, complete and with our slot taken, then linked to `name` (or put in its place). */
static int place_create(const char *name, const fg_region_config *cfg, int replace, int64_t now_ms, place **out, fg_error *err) {
  char temp[NAME_BYTES + 64];
  (void)snprintf(temp, sizeof temp, "%s.new.%ld.%08llx", name, (long)getpid(), (unsigned long long)(fg_host_seed() & 0xffffffffU));
  int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0660);
  if (fd < 0) {
    say_errno(err, name, "cannot create the region file", "use a directory this user may write, such as /dev/shm");
    return WRONG_PATH;
  }
  uint64_t bytes = tail_offset(cfg) + sizeof(tail);
  place *p = place_new(cfg);
  int result = WRONG_PATH;
  int rc = posix_fallocate(fd, 0, (off_t)bytes);
  if (p == NULL) {
    say(err, FG_ERR_NOMEM, name, "no memory", "give the process more");
  } else if (rc != 0) {
    char need[96];
    (void)snprintf(need, sizeof need, "free %llu KiB there, or declare fewer routes and slots", (unsigned long long)(bytes / 1024));
    errno = rc;
    say_errno(err, name, "cannot reserve the region file", need);
  } else if (!place_map(p, fd, bytes)) {
    say_errno(err, name, "cannot map the region file", "use /dev/shm or a local disk");
  } else if (fg_region_open(p->mem, fg_region_bytes(cfg), cfg, now_ms, &p->region, err) == FG_OK) {
    tail_fill(p->tail, cfg);
    p->fd = fd;
    if (take_slot(p, now_ms) < 0) {
      say_errno(err, name, "cannot lock the region file", "use a file system with record locks, such as /dev/shm");
    } else if ((replace ? rename(temp, name) : link(temp, name)) == 0) {
      result = MADE;
    } else if (errno == EEXIST) {
      result = LOST_RACE;
    } else {
      say_errno(err, name, "cannot name the region file", "use a file system with hard links, such as /dev/shm");
    }
    p->fd = -1;
  }
  if (!(result == MADE && replace)) {
    (void)unlink(temp);
  }
  if (result == MADE && !place_adopt(p, fd, name)) {
    say(err, FG_ERR_NOMEM, name, "no memory", "give the process more");
    result = WRONG_PATH;
  }
  if (result != MADE) {
    if (p != NULL) {
      p->tail = NULL; /* nobody else saw it */
      p->fd = -1;
      place_free(p);
    }
    (void)close(fd);
    return result;
  }
  atomic_store(&p->reaped_ms, now_ms);
  *out = p;
  return MADE;
}

/* Every block must exist before the file is mapped: a hole on a full file system is a SIGBUS in the middle of a decision. */
static int is_reserved(int fd, const struct stat *st) {
  if (fallocate(fd, 0, 0, st->st_size) == 0) {
    return 1;
  }
  return (errno == EOPNOTSUPP || errno == ENOSYS) && (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size;
}

/* Is this file a region for cfg? Maps it into p if so; says why if not. */
static int place_check(place *p, int fd, const char *name, int64_t now_ms, fg_error *err) {
  struct stat st;
  uint64_t bytes = tail_offset(&p->cfg) + sizeof(tail);
  if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != bytes) {
    say(err, FG_ERR_REGION, name, "the file has another size than this card's region", "use one card, or one path for each set of sizes");
    return 0;
  }
  if (!is_reserved(fd, &st)) {
    say_errno(err, name, "cannot reserve the file", "free space there");
    return 0;
  }
  if (!place_map(p, fd, bytes)) {
    say_errno(err, name, "cannot map the file", "use /dev/shm or a local disk");
    return 0;
  }
  if (tail_fits(p->tail, &p->cfg) && (p->tail->boot[0] != p->cfg.boot[0] || p->tail->boot[1] != p->cfg.boot[1])) {
    say(err, FG_ERR_REGION, name, "the region is from before this machine started", "nothing to do: it begins anew");
    return 0;
  }
  if (!tail_fits(p->tail, &p->cfg)) {
    say(err, FG_ERR_REGION, name, "the file is not a region of these sizes", "use one card, or one path for each set of sizes");
    return 0;
  }
  memset(err, 0, sizeof *err);
  err->size = (uint32_t)sizeof *err;
  int32_t rc = fg_region_open(p->mem, fg_region_bytes(&p->cfg), &p->cfg, now_ms, &p->region, err);
  say_path(err, name);
  if (rc != FG_OK) {
    return 0;
  }
  if (err->message[0] != 0) { /* opened, but begun anew: its reason is a warning */
    err->code = FG_ERR_REGION;
  }
  return 1;
}

static void unmap_unowned(place *p) {
  if (p->mem != NULL) {
    (void)munmap(p->mem, p->bytes);
    p->mem = NULL;
    p->tail = NULL;
  }
}

/* The file at `name` is open as fd and known to be the one there. Under the gate: use it, or replace it if nobody lives in it. */
static int place_enter(int fd, const char *name, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, place **out, fg_error *err, int *rebuilt) {
  place *p = place_new(cfg);
  if (p == NULL) {
    say(err, FG_ERR_NOMEM, name, "no memory", "give the process more");
    return WRONG_PATH;
  }
  if (place_check(p, fd, name, now_ms, err)) {
    p->fd = fd;
    if (take_slot(p, now_ms) < 0) {
      char what[96];
      (void)snprintf(what, sizeof what, "all %u process slots are taken", cfg->procs);
      say(err, FG_ERR_FULL, name, what, "state is private to this process; make the region with more slots");
    } else if (place_adopt(p, fd, name)) {
      (void)reap_dead(p, now_ms);
      *out = p;
      return MADE;
    } else {
      say(err, FG_ERR_NOMEM, name, "no memory", "give the process more");
    }
    p->fd = -1;
    unmap_unowned(p);
    place_free(p);
    return REFUSED;
  }
  unmap_unowned(p);
  place_free(p);
  if (slots_held(fd) || (flags & FG_HOST_MAP_EXISTING) != 0) {
    return REFUSED; /* with the reason place_check gave */
  }
  fg_error why = *err;
  int result = place_create(name, cfg, 1, now_ms, out, err);
  if (result == MADE) {
    *err = why;
    *rebuilt = 1;
  }
  return result;
}

static int path_fits(const char *name, const struct stat *st, fg_error *err) {
  if (S_ISLNK(st->st_mode)) {
    say(err, FG_ERR_REGION, name, "a symbolic link is in the place of the region file", "name the file itself");
  } else if (S_ISDIR(st->st_mode)) {
    say(err, FG_ERR_REGION, name, "a directory is in the place of the region file", "name a file");
  } else if (!S_ISREG(st->st_mode)) {
    say(err, FG_ERR_REGION, name, "not a regular file", "name a file on /dev/shm or a local disk");
  } else if ((st->st_mode & S_IWOTH) != 0) {
    say(err, FG_ERR_REGION, name, "anyone may write the region file", "chmod o-w it, or remove it");
  } else {
    return 1;
  }
  return 0;
}

static int is_network(int fd) {
  struct statfs fs;
  if (fstatfs(fd, &fs) != 0) {
    return 0;
  }
  unsigned long type = (unsigned long)fs.f_type & 0xffffffffUL;
  return type == 0x6969UL || type == 0xff534d42UL || type == 0xfe534d42UL || type == 0x517bUL; /* NFS, CIFS, SMB2, SMB */
}

/* One try; LOST_RACE means the file at `name` changed under us. */
static int place_try(const char *name, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, place **out, fg_error *err, int *rebuilt) {
  struct stat st, again;
  if (lstat(name, &st) != 0) {
    if (errno != ENOENT) {
      say_errno(err, name, "cannot look at the region file", "check the directories of the path");
      return WRONG_PATH;
    }
    if ((flags & FG_HOST_MAP_EXISTING) != 0) {
      say(err, FG_ERR_REGION, name, "no such region file", "start a program that makes it, or correct the path");
      return WRONG_PATH;
    }
    return place_create(name, cfg, 0, now_ms, out, err);
  }
  if (!path_fits(name, &st, err)) {
    return WRONG_PATH;
  }
  place *p = find_place(st.st_dev, st.st_ino);
  if (p != NULL) {
    if (!tail_fits(p->tail, cfg)) {
      say(err, FG_ERR_REGION, name, "this process uses the file for a region of other sizes", "use one path for each set of sizes");
      return REFUSED;
    }
    if (!is_current(p) && take_slot(p, now_ms) < 0) {
      say(err, FG_ERR_FULL, name, "all process slots are taken", "state is private to this process; make the region with more slots");
      return REFUSED;
    }
    p->refs++;
    *out = p;
    return MADE;
  }
  int fd = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT || errno == ELOOP) {
      return LOST_RACE;
    }
    say_errno(err, name, "cannot open the region file", "let this user's group write it, or use another path");
    return WRONG_PATH;
  }
  int result = WRONG_PATH;
  if (fstat(fd, &again) != 0 || again.st_dev != st.st_dev || again.st_ino != st.st_ino) {
    result = LOST_RACE;
  } else if (is_network(fd)) {
    say(err, FG_ERR_REGION, name, "the region file is on a network file system", "use /dev/shm or a local disk");
  } else if (!take_gate(fd)) {
    say_errno(err, name, "cannot lock the region file", "use a file system with record locks, such as /dev/shm");
    result = REFUSED;
  } else if (lstat(name, &again) != 0 || again.st_dev != st.st_dev || again.st_ino != st.st_ino) {
    result = LOST_RACE;
  } else {
    result = place_enter(fd, name, cfg, flags, now_ms, out, err, rebuilt);
    if (result == MADE && !*rebuilt) {
      (void)set_lock(fd, F_UNLCK, GATE);
      return MADE; /* fd is the place's */
    }
  }
  park_or_close(fd);
  return result;
}

static int place_open(const char *name, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, place **out, fg_error *err, int *rebuilt) {
  for (int i = 0; i < TRIES; i++) {
    memset(err, 0, sizeof *err);
    err->size = (uint32_t)sizeof *err;
    int result = place_try(name, cfg, flags, now_ms, out, err, rebuilt);
    if (result != LOST_RACE) {
      return result;
    }
    nap(500);
  }
  say(err, FG_ERR_REGION, name, "the file is being replaced again and again", "use one path for each set of sizes");
  return REFUSED;
}

/* ---------------------------------------------------------------- the API */

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
  char name[NAME_BYTES];
  place *p = NULL;
  int rebuilt = 0;
  int result = WRONG_PATH;
  int n = snprintf(name, sizeof name, "%s.fg%u", path, (unsigned)FG_REGION_LAYOUT);
  if (n < 0 || (size_t)n >= sizeof name) {
    say(&m->warning, FG_ERR_REGION, path, "the path is too long", "use a shorter one");
  } else if ((cfg->boot[0] | cfg->boot[1]) == 0) {
    say(&m->warning, FG_ERR_REGION, name, "this machine does not tell its boot id", "state is private to this process; mount /proc, or give cfg.boot");
    result = REFUSED;
  } else {
    result = place_open(name, cfg, flags, now_ms, &p, &m->warning, &rebuilt);
  }
  if (result == MADE) {
    atomic_store(&m->at, p);
    m->home = p;
    atomic_store(&m->warned, m->warning.code != FG_OK);
    return FG_OK;
  }
  int only_existing = (flags & FG_HOST_MAP_EXISTING) != 0;
  int may_fall_back = (flags & FG_HOST_MAP_FALLBACK) != 0 || (result == REFUSED && !only_existing);
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
  lock_all();
  if (fg_region_bytes(&c) == 0) {
    say(&m->warning, FG_ERR_ARG, path != NULL ? path : "", "the region's sizes are out of range", "8 to 256 process slots; see fg_region_config");
    rc = FG_ERR_ARG;
  } else if (path != NULL && path[0] != 0) {
    rc = open_named(path, &c, flags, now_ms, m);
  }
  if (rc != FG_OK) {
    why = m->warning;
  } else if (m->home == NULL) {
    memset(&why, 0, sizeof why);
    why.size = (uint32_t)sizeof why;
    rc = place_private(&c, now_ms, &m->home, &why);
    atomic_store(&m->at, m->home);
  }
  unlock_all();
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
  place *p = atomic_load(&m->at);
  if (!is_current(p)) {
    (void)take_slot(p, now_ms);
  }
  int32_t slot = atomic_load(&p->slot);
  if (slot >= 0) {
    return slot;
  }
  place *own = NULL;
  fg_error err;
  memset(&err, 0, sizeof err);
  err.size = (uint32_t)sizeof err;
  int32_t rc = place_private(&p->cfg, now_ms, &own, &err);
  if (rc != FG_OK) {
    return rc;
  }
  say(&m->warning, FG_ERR_FULL, p->name, "all process slots are taken", "state is private to this process; make the region with more slots");
  atomic_store(&m->warned, 1);
  atomic_store(&m->at, own);
  return 0;
}

int32_t fg_host_map_slot(fg_host_map *m, int64_t now_ms) {
  if (m == NULL) {
    return FG_ERR_ARG;
  }
  place *p = atomic_load_explicit(&m->at, memory_order_acquire);
  int due = now_ms - atomic_load_explicit(&p->reaped_ms, memory_order_relaxed) >= REAP_EVERY_MS && p->tail != NULL;
  int32_t slot = atomic_load_explicit(&p->slot, memory_order_relaxed);
  if (slot >= 0 && !due && is_current(p)) {
    return slot;
  }
  lock_all();
  slot = settle(m, now_ms);
  p = atomic_load(&m->at);
  if (now_ms - atomic_load(&p->reaped_ms) >= REAP_EVERY_MS) {
    (void)reap_dead(p, now_ms);
  }
  unlock_all();
  return slot;
}

int32_t fg_host_map_reap(fg_host_map *m, int64_t now_ms) {
  if (m == NULL) {
    return FG_ERR_ARG;
  }
  lock_all();
  int32_t rc = settle(m, now_ms);
  if (rc >= 0) {
    rc = reap_dead(atomic_load(&m->at), now_ms);
  }
  unlock_all();
  return rc;
}

void fg_host_map_close(fg_host_map *m) {
  if (m == NULL) {
    return;
  }
  lock_all();
  place *p = atomic_load(&m->at);
  if (p != m->home) {
    place_free(p);
  }
  if (--m->home->refs == 0) {
    place_free(m->home);
  }
  unlock_all();
  free(m);
}
