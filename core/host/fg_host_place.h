/* A region's place: its memory, private or of a file, and this process's slot of it. Private to fg_host_*.c.
 *
 * Nothing here is called without fg_places_lock, but what is said to be safe without. */
#ifndef FG_HOST_PLACE_H
#define FG_HOST_PLACE_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "fg_host.h"

enum { FG_PLACE_SLOTS_MAX = 256, FG_PLACE_NAME_MAX = 1024 };

typedef struct fg_place_tail { /* behind the region in its file */
  uint64_t magic, region_bytes, boot[2];
  uint32_t routes, accounts, workflows, procs, rows, zero;
  _Atomic uint64_t owner[FG_PLACE_SLOTS_MAX]; /* pid that took the slot, 0 = given back; only the lock says who lives */
} fg_place_tail;

typedef struct fg_place {
  struct fg_place *next;
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
  fg_place_tail *tail; /* NULL = private */
  char *name;       /* NULL = private */
  _Atomic uint64_t generation; /* of the process, when the slot was taken */
  _Atomic int32_t slot;        /* -1 = none was free */
  _Atomic int64_t reaped_ms;
} fg_place;

/* ------------------------------------------------------------ fg_host_place.c */

/* The lock of this process, which no forked child inherits held. The first call in a child notices the fork. */
void fg_places_lock(void);
void fg_places_unlock(void);
void fg_nap_us(long us);
/* Was its slot taken by this process, not by the parent it was forked from? Safe without the lock. */
int fg_place_is_current(fg_place *p);

/* Fills err: what is wrong, and the remedy; say_errno adds errno's own words and FG_ERR_REGION. */
void fg_say(fg_error *err, int32_t code, const char *path, const char *what, const char *remedy);
void fg_say_errno(fg_error *err, const char *path, const char *what, const char *remedy);
void fg_say_path(fg_error *err, const char *path);

/* A record lock on one byte of a file: F_WRLCK or F_UNLCK. 0, or -1 with errno; never waits. */
int fg_place_set_lock(int fd, short type, off_t at);
/* Slot for this process, or -1 when none is free; also kept in p. Clears what its last owner left. */
int32_t fg_place_take_slot(fg_place *p, int64_t now_ms);
/* Clears the slots of dead owners: how many. */
int32_t fg_place_reap(fg_place *p, int64_t now_ms);

/* An empty place with one reference; NULL: no memory. */
fg_place *fg_place_new(const fg_region_config *cfg);
/* Gives slot, memory and descriptors back. */
void fg_place_free(fg_place *p);
/* A region in this process's own memory, slot 0. */
int32_t fg_place_private(const fg_region_config *cfg, int64_t now_ms, fg_place **out, fg_error *err);
/* The place this process has of a file, or NULL. */
fg_place *fg_place_find(dev_t dev, ino_t ino);
/* fd and name become p's, and p is found from now on. 0: no memory. */
int fg_place_adopt(fg_place *p, int fd, const char *name);

/* ------------------------------------------------------------- fg_host_file.c */

enum { FG_PLACE_MADE, FG_PLACE_LOST_RACE, FG_PLACE_WRONG_PATH, FG_PLACE_REFUSED }; /* WRONG_PATH, REFUSED: err filled */
/* The place of the file `name`: found, used, made, or rebuilt when nobody lives in it (*rebuilt, err says why). flags: FG_HOST_MAP_*. */
int fg_place_open(const char *name, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, fg_place **out, fg_error *err, int *rebuilt);

#endif /* FG_HOST_PLACE_H */
