/* fivegates-host: what the pure core may not touch. The monotonic clock, a seed, this boot's id, memory from malloc, and the region: a private block, or a
 * file that the processes of one machine share.
 *
 * A region file. `path` names it without its layout: the file on disk is path + ".fg" + layout number, so that two versions of the library live side by side
 * during a rollout. It is made under a temporary name, reserved whole, and only then linked to its name: who creates it first wins, the others use it. It is
 * never truncated (whoever truncates it by hand while it is mapped kills its users); mode 0660 & ~umask. It belongs on /dev/shm or a local disk (the locks of NFS are not those of one kernel).
 *
 * Slots. A process owns a slot by holding the POSIX record lock on that byte of the file; the kernel drops it at any death, also of a zombie or in another
 * container. fg_host_map_slot clears what dead owners left. Maps of one file in one process share a descriptor, a mapping and a slot.
 *
 * Fork. A child inherits map and engine, but no lock: it calls fg_host_map_slot before its first decision (a few ns when nothing changed). When that, or
 * fg_host_map_region, answers something else than the engine was made with, the host makes a new engine in the same memory. Calls begun before the fork
 * belong to the parent.
 *
 * A file that cannot be used (another size, all slots taken, not a region at all) never stops the host: a region nobody holds a slot of is made anew, and
 * else the map falls back to a private region; fg_host_map_warning says which and why. A file without the marks of a region is never replaced. A path that is wrong (a directory, a symbolic link, no permission) is an error with the remedy, unless FG_HOST_MAP_FALLBACK asks for the
 * same fallback. Every function may be called from any thread. */
#ifndef FG_HOST_H
#define FG_HOST_H

#include <stdint.h>
#include "fivegates.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Milliseconds of CLOCK_MONOTONIC: the now_ms of every function of the core. */
FG_API int64_t fg_host_now_ms(void);
/* Milliseconds since 1970, for fg_engine_clock and fg_evidence.unix_ms. */
FG_API int64_t fg_host_unix_ms(void);
/* 64 random bits, from the kernel. */
FG_API uint64_t fg_host_seed(void);
/* This boot's id. FG_OK; FG_ERR_REGION and zeros when the machine does not tell (then regions stay private). */
FG_API int32_t fg_host_boot_id(uint64_t out[2]);
/* malloc and free, for fg_card_load. */
FG_API fg_mem fg_host_mem(void);

typedef struct fg_host_map fg_host_map;

enum { /* flags of fg_host_map_open */
  FG_HOST_MAP_FALLBACK = 1, /* a path that cannot be used gives a private region and a warning instead of an error */
  FG_HOST_MAP_EXISTING = 2  /* never creates or rebuilds the file: for tools that look at a live region */
};

/* Opens a region and takes a slot of it. path NULL or "" = a private region in this process's memory (slot 0). cfg NULL = defaults; cfg->boot {0, 0} = this boot.
 * FG_OK and *out, with or without a warning; FG_ERR_ARG, FG_ERR_NOMEM; FG_ERR_REGION with err filled: path and message (what is wrong, what to do). err may
 * be NULL. */
FG_API int32_t fg_host_map_open(const char *path, const fg_region_config *cfg, uint32_t flags, int64_t now_ms, fg_host_map **out, fg_error *err);
/* The region. May change only at a fork (see above), when the child finds no free slot. */
FG_API fg_region *fg_host_map_region(const fg_host_map *m);
/* This process's slot, 0 or more: a new one after a fork. Once a second it also clears the slots of dead owners. */
FG_API int32_t fg_host_map_slot(fg_host_map *m, int64_t now_ms);
/* Clears the slots of dead owners now: how many. */
FG_API int32_t fg_host_map_reap(fg_host_map *m, int64_t now_ms);
/* The file in use, or NULL when the region is private. Valid until the map is closed. */
FG_API const char *fg_host_map_path(const fg_host_map *m);
/* 1 and out filled when the region is private though a path was given, or the file had to be rebuilt; 0 when all is well. */
FG_API int32_t fg_host_map_warning(const fg_host_map *m, fg_error *out);
/* Gives the slot back and unmaps with the last map of the file. No engine on the region may be in use. NULL is fine. */
FG_API void fg_host_map_close(fg_host_map *m);

#ifdef __cplusplus
}
#endif
#endif /* FG_HOST_H */
