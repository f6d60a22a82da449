/* A region file: make it, check it, use it, replace it.
 *
 * File: the region, padding to a page, then a tail with the sizes it was made for and one owner word per slot. Locks on it: byte `slot` for a slot's
 * owner, byte GATE while a process decides whether the file is good, takes its first slot, or replaces the file. A file somebody holds a slot of is never
 * replaced, nor one that bears no mark of a region: it is somebody else's. */
#include "fg_host_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fg_region.h" /* FG_REGION_MAGIC */

enum { GATE = 1 << 20, GATE_WAIT_MS = 2000, TRIES = 64, EMPTY_MAX = 64 << 20 };
#define TAIL_MAGIC UINT64_C(0x6667746169000001)

/* Anyone else holding a slot? */
static int slots_held(int fd) {
  struct flock l;
  memset(&l, 0, sizeof l);
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  l.l_start = 0;
  l.l_len = FG_PLACE_SLOTS_MAX;
  return fcntl(fd, F_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

static int take_gate(int fd) {
  for (int i = 0; i < GATE_WAIT_MS; i++) {
    if (fg_place_set_lock(fd, F_WRLCK, GATE) == 0) {
      return 1;
    }
    if (errno != EAGAIN && errno != EACCES) {
      return 0;
    }
    fg_nap_us(1000);
  }
  errno = EAGAIN;
  return 0;
}

static uint64_t tail_offset(const fg_region_config *cfg) {
  return (fg_region_bytes(cfg) + 4095) / 4096 * 4096;
}

/* Closing any descriptor of a file drops every lock this process has on it: one that turned out to be of a file in use stays open. */
static void park_or_close(int fd) {
  struct stat st;
  fg_place *p = fstat(fd, &st) == 0 ? fg_place_find(st.st_dev, st.st_ino) : NULL;
  if (p == NULL) {
    (void)close(fd);
  } else if (p->parked_count < (int)(sizeof p->parked / sizeof p->parked[0])) {
    p->parked[p->parked_count++] = fd;
  } /* else it leaks: a lost descriptor is better than a lost slot */
}

static void tail_fill(fg_place_tail *t, const fg_region_config *cfg) {
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

static int tail_fits(const fg_place_tail *t, const fg_region_config *cfg) {
  return t->magic == TAIL_MAGIC && t->region_bytes == fg_region_bytes(cfg) && t->routes == cfg->routes && t->accounts == cfg->accounts &&
         t->workflows == cfg->workflows && t->procs == cfg->procs && t->rows == cfg->rows;
}

/* Maps fd, which is `bytes` long and has every block. */
static int place_map(fg_place *p, int fd, uint64_t bytes) {
  void *mem = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mem == MAP_FAILED) {
    return 0;
  }
  p->mem = mem;
  p->bytes = (size_t)bytes;
  p->tail = (fg_place_tail *)(void *)((char *)mem + tail_offset(&p->cfg));
  return 1;
}

/* A new file under a temporary name, complete and with our slot taken, then linked to `name` (or put in its fg_place). */
static int place_create(const char *name, const fg_region_config *cfg, int replace, int64_t now_ms, fg_place **out, fg_error *err) {
  char temp[FG_PLACE_NAME_MAX + 64];
  (void)snprintf(temp, sizeof temp, "%s.new.%ld.%08llx", name, (long)getpid(), (unsigned long long)(fg_host_seed() & 0xffffffffU));
  int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0660);
  if (fd < 0) {
    fg_say_errno(err, name, "cannot create the region file", "use a directory this user may write, such as /dev/shm");
    return FG_PLACE_WRONG_PATH;
  }
  uint64_t bytes = tail_offset(cfg) + sizeof(fg_place_tail);
  fg_place *p = fg_place_new(cfg);
  int result = FG_PLACE_WRONG_PATH;
  int rc = posix_fallocate(fd, 0, (off_t)bytes);
  if (p == NULL) {
    fg_say(err, FG_ERR_NOMEM, name, "no memory", "give the process more");
  } else if (rc != 0) {
    char need[96];
    (void)snprintf(need, sizeof need, "free %llu KiB there, or declare fewer routes and slots", (unsigned long long)(bytes / 1024));
    errno = rc;
    fg_say_errno(err, name, "cannot reserve the region file", need);
  } else if (!place_map(p, fd, bytes)) {
    fg_say_errno(err, name, "cannot map the region file", "use /dev/shm or a local disk");
  } else if (fg_region_open(p->mem, fg_region_bytes(cfg), cfg, now_ms, &p->region, err) == FG_OK) {
    tail_fill(p->tail, cfg);
    p->fd = fd;
    if (fg_place_take_slot(p, now_ms) < 0) {
      fg_say_errno(err, name, "cannot lock the region file", "use a file system with record locks, such as /dev/shm");
    } else if ((replace ? rename(temp, name) : link(temp, name)) == 0) {
      result = FG_PLACE_MADE;
    } else if (errno == EEXIST) {
      result = FG_PLACE_LOST_RACE;
    } else {
      fg_say_errno(err, name, "cannot name the region file", "use a file system with hard links, such as /dev/shm");
    }
    p->fd = -1;
  }
  if (!(result == FG_PLACE_MADE && replace)) {
    (void)unlink(temp);
  }
  if (result == FG_PLACE_MADE && !fg_place_adopt(p, fd, name)) {
    fg_say(err, FG_ERR_NOMEM, name, "no memory", "give the process more");
    result = FG_PLACE_WRONG_PATH;
  }
  if (result != FG_PLACE_MADE) {
    if (p != NULL) {
      p->tail = NULL; /* nobody else saw it */
      p->fd = -1;
      fg_place_free(p);
    }
    (void)close(fd);
    return result;
  }
  atomic_store(&p->reaped_ms, now_ms);
  *out = p;
  return FG_PLACE_MADE;
}

/* Every block must exist before the file is mapped: a hole on a full file system is a SIGBUS in the middle of a decision. */
static int is_reserved(int fd, const struct stat *st) {
  if (fallocate(fd, 0, 0, st->st_size) == 0) {
    return 1;
  }
  return (errno == EOPNOTSUPP || errno == ENOSYS) && (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size;
}

/* Is this file a region for cfg? Maps it into p if so; says why if not. */
static int place_check(fg_place *p, int fd, const char *name, int64_t now_ms, fg_error *err) {
  struct stat st;
  uint64_t bytes = tail_offset(&p->cfg) + sizeof(fg_place_tail);
  if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != bytes) {
    fg_say(err, FG_ERR_REGION, name, "the file has another size than this card's region", "use one card, or one path for each set of sizes");
    return 0;
  }
  if (!is_reserved(fd, &st)) {
    fg_say_errno(err, name, "cannot reserve the file", "free space there");
    return 0;
  }
  if (!place_map(p, fd, bytes)) {
    fg_say_errno(err, name, "cannot map the file", "use /dev/shm or a local disk");
    return 0;
  }
  if (tail_fits(p->tail, &p->cfg) && (p->tail->boot[0] != p->cfg.boot[0] || p->tail->boot[1] != p->cfg.boot[1])) {
    fg_say(err, FG_ERR_REGION, name, "the region is from before this machine started", "nothing to do: it begins anew");
    return 0;
  }
  if (!tail_fits(p->tail, &p->cfg)) {
    fg_say(err, FG_ERR_REGION, name, "the file is not a region of these sizes", "use one card, or one path for each set of sizes");
    return 0;
  }
  memset(err, 0, sizeof *err);
  err->size = (uint32_t)sizeof *err;
  int32_t rc = fg_region_open(p->mem, fg_region_bytes(&p->cfg), &p->cfg, now_ms, &p->region, err);
  fg_say_path(err, name);
  if (rc != FG_OK) {
    return 0;
  }
  if (err->message[0] != 0) { /* opened, but begun anew: its reason is a warning */
    err->code = FG_ERR_REGION;
  }
  return 1;
}

/* Nothing but zeros: a file that was begun and never written. */
static int is_blank(int fd, off_t size) {
  char block[4096], any = 0;
  for (off_t at = 0; at < size; at += (off_t)sizeof block) {
    ssize_t n = pread(fd, block, sizeof block, at);
    if (n <= 0) {
      return 0;
    }
    for (ssize_t i = 0; i < n; i++) {
      any |= block[i];
    }
    if (any != 0) {
      return 0;
    }
  }
  return 1;
}

/* May the file be replaced? Only one that a region was made in: its first word, cut short or not, or its tail's says so; or one with nothing in it. */
static int is_ours(int fd) {
  struct stat st;
  const uint64_t head = FG_REGION_MAGIC, foot = TAIL_MAGIC;
  uint64_t found = 0;
  if (fstat(fd, &st) != 0) {
    return 0;
  }
  ssize_t n = pread(fd, &found, sizeof found, 0);
  if (n > 0 && memcmp(&found, &head, (size_t)n) == 0) {
    return 1;
  }
  off_t tail = st.st_size - (off_t)sizeof(fg_place_tail);
  if (tail > 0 && tail % 4096 == 0 && pread(fd, &found, sizeof found, tail) == (ssize_t)sizeof found && found == foot) {
    return 1;
  }
  return st.st_size <= EMPTY_MAX && is_blank(fd, st.st_size);
}

/* What a file was replaced for: the fault that place_check named, without its remedy. */
static void say_replaced(fg_error *err, const fg_error *fault, const char *name) {
  char what[sizeof fault->message];
  memcpy(what, fault->message, sizeof what);
  char *remedy = strchr(what, ';');
  if (remedy != NULL) {
    *remedy = 0;
  }
  fg_say(err, fault->code, name, what, "nobody used it, so a new one has taken its place");
}

static void unmap_unowned(fg_place *p) {
  if (p->mem != NULL) {
    (void)munmap(p->mem, p->bytes);
    p->mem = NULL;
    p->tail = NULL;
  }
}

/* The file at `name` is open as fd and known to be the one there. Under the gate: use it, or replace it if nobody lives in it. */
static int place_enter(int fd, const char *name, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, fg_place **out, fg_error *err, int *rebuilt) {
  fg_place *p = fg_place_new(cfg);
  if (p == NULL) {
    fg_say(err, FG_ERR_NOMEM, name, "no memory", "give the process more");
    return FG_PLACE_WRONG_PATH;
  }
  if (place_check(p, fd, name, now_ms, err)) {
    p->fd = fd;
    if (fg_place_take_slot(p, now_ms) < 0) {
      char what[96];
      (void)snprintf(what, sizeof what, "all %u process slots are taken", cfg->procs);
      fg_say(err, FG_ERR_FULL, name, what, "state is private to this process; make the region with more slots");
    } else if (fg_place_adopt(p, fd, name)) {
      (void)fg_place_reap(p, now_ms);
      *out = p;
      return FG_PLACE_MADE;
    } else {
      fg_say(err, FG_ERR_NOMEM, name, "no memory", "give the process more");
    }
    p->fd = -1;
    unmap_unowned(p);
    fg_place_free(p);
    return FG_PLACE_REFUSED;
  }
  unmap_unowned(p);
  fg_place_free(p);
  if (slots_held(fd) || (flags & FG_HOST_MAP_EXISTING) != 0) {
    return FG_PLACE_REFUSED; /* with the reason place_check gave */
  }
  if (!is_ours(fd)) {
    fg_say(err, FG_ERR_REGION, name, "the file is no region, so it was left as it is", "move it away, or name another path; until then state is private");
    return FG_PLACE_REFUSED;
  }
  fg_error fault = *err;
  int result = place_create(name, cfg, 1, now_ms, out, err);
  if (result == FG_PLACE_MADE) {
    say_replaced(err, &fault, name);
    *rebuilt = 1;
  }
  return result;
}

static int path_fits(const char *name, const struct stat *st, fg_error *err) {
  if (S_ISLNK(st->st_mode)) {
    fg_say(err, FG_ERR_REGION, name, "a symbolic link is in the place of the region file", "name the file itself");
  } else if (S_ISDIR(st->st_mode)) {
    fg_say(err, FG_ERR_REGION, name, "a directory is in the place of the region file", "name a file");
  } else if (!S_ISREG(st->st_mode)) {
    fg_say(err, FG_ERR_REGION, name, "not a regular file", "name a file on /dev/shm or a local disk");
  } else if ((st->st_mode & S_IWOTH) != 0) {
    fg_say(err, FG_ERR_REGION, name, "anyone may write the region file", "chmod o-w it, or remove it");
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

/* One try; FG_PLACE_LOST_RACE means the file at `name` changed under us. */
static int place_try(const char *name, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, fg_place **out, fg_error *err, int *rebuilt) {
  struct stat st, again;
  if (lstat(name, &st) != 0) {
    if (errno != ENOENT) {
      fg_say_errno(err, name, "cannot look at the region file", "check the directories of the path");
      return FG_PLACE_WRONG_PATH;
    }
    if ((flags & FG_HOST_MAP_EXISTING) != 0) {
      fg_say(err, FG_ERR_REGION, name, "no such region file", "start a program that makes it, or correct the path");
      return FG_PLACE_WRONG_PATH;
    }
    return place_create(name, cfg, 0, now_ms, out, err);
  }
  if (!path_fits(name, &st, err)) {
    return FG_PLACE_WRONG_PATH;
  }
  fg_place *p = fg_place_find(st.st_dev, st.st_ino);
  if (p != NULL) {
    if (!tail_fits(p->tail, cfg)) {
      fg_say(err, FG_ERR_REGION, name, "this process uses the file for a region of other sizes", "use one path for each set of sizes");
      return FG_PLACE_REFUSED;
    }
    if (!fg_place_is_current(p) && fg_place_take_slot(p, now_ms) < 0) {
      fg_say(err, FG_ERR_FULL, name, "all process slots are taken", "state is private to this process; make the region with more slots");
      return FG_PLACE_REFUSED;
    }
    p->refs++;
    *out = p;
    return FG_PLACE_MADE;
  }
  int fd = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT || errno == ELOOP) {
      return FG_PLACE_LOST_RACE;
    }
    fg_say_errno(err, name, "cannot open the region file", "let this user's group write it, or use another path");
    return FG_PLACE_WRONG_PATH;
  }
  int result = FG_PLACE_WRONG_PATH;
  if (fstat(fd, &again) != 0 || again.st_dev != st.st_dev || again.st_ino != st.st_ino) {
    result = FG_PLACE_LOST_RACE;
  } else if (is_network(fd)) {
    fg_say(err, FG_ERR_REGION, name, "the region file is on a network file system", "use /dev/shm or a local disk");
  } else if (!take_gate(fd)) {
    fg_say_errno(err, name, "cannot lock the region file", "use a file system with record locks, such as /dev/shm");
    result = FG_PLACE_REFUSED;
  } else if (lstat(name, &again) != 0 || again.st_dev != st.st_dev || again.st_ino != st.st_ino) {
    result = FG_PLACE_LOST_RACE;
  } else {
    result = place_enter(fd, name, cfg, flags, now_ms, out, err, rebuilt);
    if (result == FG_PLACE_MADE && !*rebuilt) {
      (void)fg_place_set_lock(fd, F_UNLCK, GATE);
      return FG_PLACE_MADE; /* fd is the place's */
    }
  }
  park_or_close(fd);
  return result;
}

int fg_place_open(const char *name, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, fg_place **out, fg_error *err, int *rebuilt) {
  for (int i = 0; i < TRIES; i++) {
    memset(err, 0, sizeof *err);
    err->size = (uint32_t)sizeof *err;
    int result = place_try(name, cfg, flags, now_ms, out, err, rebuilt);
    if (result != FG_PLACE_LOST_RACE) {
      return result;
    }
    fg_nap_us(500);
  }
  fg_say(err, FG_ERR_REGION, name, "the file is being replaced again and again", "use one path for each set of sizes");
  return FG_PLACE_REFUSED;
}
