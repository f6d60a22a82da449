/* The host library in one process: clock, seed, boot id, and what a region file may look like. */
#include "fg_host.h"
#include "fg_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/fivegates-host-XXXXXX";
static char path[128];

static fg_error error_new(void) {
  fg_error e;
  memset(&e, 0, sizeof e);
  e.size = (uint32_t)sizeof e;
  return e;
}

static fg_region_config small_config(void) {
  fg_region_config c;
  memset(&c, 0, sizeof c);
  c.size = (uint32_t)sizeof c;
  c.routes = 4;
  c.accounts = 2;
  c.workflows = 2;
  c.procs = 8;
  c.rows = 16;
  return c;
}

static fg_host_map *open_at(const char *at, const fg_region_config *c, uint32_t flags, fg_error *err) {
  fg_host_map *m = NULL;
  *err = error_new();
  int32_t rc = fg_host_map_open(at, c, flags, fg_host_now_ms(), &m, err);
  FG_CHECK((rc == FG_OK) == (m != NULL));
  return m;
}

/* The file's name on disk. */
static const char *file_name(void) {
  static char name[160];
  fg_error err;
  fg_region_config c = small_config();
  if (name[0] == 0) {
    fg_host_map *m = open_at(path, &c, 0, &err);
    (void)snprintf(name, sizeof name, "%s", fg_host_map_path(m));
    fg_host_map_close(m);
    (void)unlink(name);
  }
  return name;
}

static int has_warning(const fg_host_map *m, const char *part) {
  fg_error w = error_new();
  return fg_host_map_warning(m, &w) == 1 && strstr(w.message, part) != NULL && strstr(w.path, "region") != NULL;
}

static void test_clock(void) {
  int64_t a = fg_host_now_ms();
  int64_t b = fg_host_now_ms();
  FG_CHECK(a > 0 && b >= a);
  FG_CHECK(fg_host_unix_ms() > INT64_C(1600000000000));
  uint64_t s = fg_host_seed();
  FG_CHECK(s != fg_host_seed());
  uint64_t id[2], again[2];
  FG_EQ(fg_host_boot_id(id), FG_OK);
  FG_EQ(fg_host_boot_id(again), FG_OK);
  FG_CHECK(id[0] == again[0] && id[1] == again[1] && (id[0] | id[1]) != 0);
  FG_EQ(fg_host_boot_id(NULL), FG_ERR_ARG);
  fg_mem mem = fg_host_mem();
  void *p = mem.alloc(mem.ctx, 100);
  FG_CHECK(p != NULL);
  mem.free(mem.ctx, p);
  FG_CHECK(mem.alloc(mem.ctx, UINT64_MAX) == NULL);
}

static void test_private(void) {
  fg_error err;
  fg_host_map *m = open_at(NULL, NULL, 0, &err);
  FG_CHECK(fg_host_map_region(m) != NULL);
  FG_EQ(fg_host_map_slot(m, fg_host_now_ms()), 0);
  FG_CHECK(fg_host_map_path(m) == NULL);
  FG_EQ(fg_host_map_warning(m, &err), 0);
  FG_EQ(fg_host_map_reap(m, fg_host_now_ms()), 0);
  pid_t child = fork();
  if (child == 0) {
    _exit(fg_host_map_slot(m, fg_host_now_ms()) == 0 ? 0 : 1);
  }
  int status = -1;
  FG_CHECK(waitpid(child, &status, 0) == child && status == 0);
  fg_host_map_close(m);
  fg_host_map_close(NULL);
  FG_EQ(fg_host_map_open(NULL, NULL, 0, 1, NULL, NULL), FG_ERR_ARG);
  FG_EQ(fg_host_map_slot(NULL, 1), FG_ERR_ARG);
  FG_EQ(fg_host_map_reap(NULL, 1), FG_ERR_ARG);
  FG_CHECK(fg_host_map_region(NULL) == NULL);
  FG_EQ(fg_host_map_warning(NULL, NULL), 0);
  fg_region_config bad = small_config();
  bad.procs = 300;
  m = open_at(NULL, &bad, 0, &err);
  FG_CHECK(m == NULL && err.code != FG_OK && err.message[0] != 0);
}

static void test_shared(void) {
  fg_error err;
  fg_region_config c = small_config();
  mode_t old = umask(027);
  fg_host_map *a = open_at(path, &c, 0, &err);
  (void)umask(old);
  fg_host_map *b = open_at(path, &c, 0, &err);
  FG_EQ(fg_host_map_warning(a, &err), 0);
  FG_EQ_STR(fg_host_map_path(a), file_name());
  struct stat st;
  FG_CHECK(stat(file_name(), &st) == 0 && (st.st_mode & 07777) == 0640 && st.st_nlink == 1);
  FG_CHECK(st.st_blocks * 512 >= st.st_size);
  FG_CHECK(fg_host_map_region(a) == fg_host_map_region(b));
  FG_EQ(fg_host_map_slot(a, fg_host_now_ms()), fg_host_map_slot(b, fg_host_now_ms()));
  fg_host_map_close(a);
  FG_CHECK(fg_host_map_slot(b, fg_host_now_ms()) >= 0); /* the lock outlives the first map */
  fg_region_config other = c;
  other.routes = 8;
  a = open_at(path, &other, 0, &err);
  FG_CHECK(has_warning(a, "other sizes") && fg_host_map_path(a) == NULL && fg_host_map_region(a) != fg_host_map_region(b));
  fg_host_map_close(a);
  fg_host_map_close(b);
  FG_CHECK(stat(file_name(), &st) == 0); /* stays: state outlives processes */
}

/* Refused while somebody lives in it, rebuilt once nobody does. */
static void test_other_sizes(void) {
  fg_error err;
  fg_region_config c = small_config(), other = small_config();
  other.routes = 8;
  int ready[2], leave[2];
  FG_CHECK(pipe(ready) == 0 && pipe(leave) == 0);
  pid_t child = fork();
  if (child == 0) {
    fg_host_map *m = open_at(path, &c, 0, &err);
    char byte = (char)(m != NULL && fg_host_map_path(m) != NULL);
    (void)!write(ready[1], &byte, 1);
    (void)!read(leave[0], &byte, 1);
    _exit(0);
  }
  char ok = 0;
  FG_CHECK(read(ready[0], &ok, 1) == 1 && ok == 1);
  fg_host_map *m = open_at(path, &other, 0, &err);
  FG_CHECK(has_warning(m, "another size") && fg_host_map_path(m) == NULL);
  fg_host_map_close(m);
  FG_CHECK(write(leave[1], &ok, 1) == 1);
  (void)waitpid(child, NULL, 0);
  m = open_at(path, &other, FG_HOST_MAP_EXISTING, &err);
  FG_CHECK(m == NULL && err.code == FG_ERR_REGION);
  m = open_at(path, &other, 0, &err);
  FG_CHECK(has_warning(m, "another size than this card's region; nobody used it, so a new one has taken its place") && fg_host_map_path(m) != NULL);
  fg_host_map_close(m);
  m = open_at(path, &other, 0, &err);
  FG_EQ(fg_host_map_warning(m, &err), 0);
  fg_host_map_close(m);
  (void)unlink(file_name());
  for (int i = 0; i < 2; i++) {
    (void)close(ready[i]);
    (void)close(leave[i]);
  }
}

static void test_other_boot(void) {
  fg_error err;
  fg_region_config c = small_config();
  c.boot[0] = 1;
  c.boot[1] = 2;
  fg_host_map_close(open_at(path, &c, 0, &err));
  fg_host_map *m = open_at(path, &c, 0, &err);
  FG_EQ(fg_host_map_warning(m, &err), 0);
  fg_host_map_close(m);
  c.boot[1] = 3;
  m = open_at(path, &c, 0, &err);
  FG_CHECK(has_warning(m, "started") && fg_host_map_path(m) != NULL);
  fg_host_map_close(m);
  (void)unlink(file_name());
}

static uint64_t noise_state = 42;
static uint8_t noise(void) {
  noise_state = noise_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint8_t)(noise_state >> 56);
}

/* Overwrites `len` bytes at `from` with noise, or with zeros. */
static void scribble(off_t from, off_t len, int zero) {
  int fd = open(file_name(), O_WRONLY);
  FG_CHECK(fd >= 0);
  for (off_t i = 0; i < len; i++) {
    uint8_t byte = zero ? 0 : noise();
    (void)!pwrite(fd, &byte, 1, from + i);
  }
  (void)close(fd);
}

/* Whatever is in the file, opening gives a region that works. */
static void expect_usable(int warned) {
  fg_error err;
  fg_region_config c = small_config();
  fg_host_map *m = open_at(path, &c, 0, &err);
  FG_CHECK(m != NULL && fg_host_map_path(m) != NULL && fg_host_map_slot(m, fg_host_now_ms()) >= 0);
  if (warned >= 0) {
    FG_EQ(fg_host_map_warning(m, &err), warned);
  }
  fg_host_map_close(m);
}

static void test_damaged(void) {
  struct stat st;
  expect_usable(0);
  FG_CHECK(stat(file_name(), &st) == 0);
  off_t size = st.st_size;
  off_t cuts[] = {0, 1, 4095, 4096, size / 2, size - 1, size + 1, size + 4096};
  for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
    FG_CHECK(truncate(file_name(), cuts[i]) == 0);
    expect_usable(1);
    expect_usable(0);
  }
  scribble(0, 64, 0); /* the head */
  expect_usable(1);
  scribble(0, 8, 1);
  expect_usable(1);
  scribble(0, size, 1);
  expect_usable(1);
  for (int i = 0; i < 50; i++) { /* words here and there: repaired or rebuilt, never trusted blindly */
    off_t at = (off_t)(noise() << 8 | noise()) * 64 % size;
    scribble(at, at + 24 <= size ? 24 : size - at, 0);
    expect_usable(-1);
  }
  (void)unlink(file_name());
  int fd = open(file_name(), O_CREAT | O_WRONLY, 0600); /* one big hole */
  FG_CHECK(fd >= 0 && ftruncate(fd, size) == 0);
  (void)close(fd);
  expect_usable(1);
  FG_CHECK(stat(file_name(), &st) == 0 && st.st_blocks * 512 >= st.st_size);
  (void)unlink(file_name());
}

/* What was never a region is somebody's: left as it is, byte for byte, and said so. */
static void test_not_ours(void) {
  fg_error err;
  fg_region_config c = small_config();
  expect_usable(0);
  struct stat st;
  FG_CHECK(stat(file_name(), &st) == 0);
  const off_t sizes[] = {1, 7, 300, 8192, st.st_size};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    (void)unlink(file_name());
    int fd = open(file_name(), O_CREAT | O_WRONLY, 0600);
    for (off_t at = 0; at < sizes[i]; at++) {
      (void)!write(fd, "x", 1);
    }
    (void)close(fd);
    fg_host_map *m = open_at(path, &c, 0, &err);
    FG_CHECK(has_warning(m, "no region, so it was left as it is; move it away") && fg_host_map_path(m) == NULL);
    fg_host_map_close(m);
    FG_CHECK(stat(file_name(), &st) == 0 && st.st_size == sizes[i]);
    fd = open(file_name(), O_RDONLY);
    char byte = 0;
    for (off_t at = 0; at < sizes[i]; at += sizes[i] > 16 ? 15 : 1) {
      FG_CHECK(pread(fd, &byte, 1, at) == 1 && byte == 'x');
    }
    (void)close(fd);
  }
  (void)unlink(file_name());
}

static void expect_error(const char *at, const char *part) {
  fg_error err;
  fg_region_config c = small_config();
  fg_host_map *m = open_at(at, &c, 0, &err);
  FG_CHECK(m == NULL);
  FG_EQ(err.code, FG_ERR_REGION);
  if (!FG_CHECK(strstr(err.message, part) != NULL && strstr(err.message, ";") != NULL && err.path[0] != 0)) {
    printf("  message: %s\n", err.message);
  }
  m = open_at(at, &c, FG_HOST_MAP_FALLBACK, &err);
  FG_CHECK(m != NULL && fg_host_map_path(m) == NULL && fg_host_map_warning(m, &err) == 1 && fg_host_map_slot(m, 1) == 0);
  fg_host_map_close(m);
}

static void test_wrong_paths(void) {
  char other[200], long_path[1200];
  FG_CHECK(mkdir(file_name(), 0700) == 0);
  expect_error(path, "directory");
  (void)rmdir(file_name());
  FG_CHECK(symlink("/etc/passwd", file_name()) == 0);
  expect_error(path, "symbolic link");
  (void)unlink(file_name());
  FG_CHECK(symlink("nowhere", file_name()) == 0);
  expect_error(path, "symbolic link");
  (void)unlink(file_name());
  FG_CHECK(mkfifo(file_name(), 0600) == 0);
  expect_error(path, "regular");
  (void)unlink(file_name());
  expect_usable(0);
  FG_CHECK(chmod(file_name(), 0666) == 0);
  expect_error(path, "anyone");
  if (geteuid() != 0) { /* root may open everything */
    FG_CHECK(chmod(file_name(), 0400) == 0);
    expect_error(path, "cannot open");
    FG_CHECK(chmod(dir, 0500) == 0);
    (void)snprintf(other, sizeof other, "%s/other", dir);
    expect_error(other, "cannot create");
    FG_CHECK(chmod(dir, 0700) == 0);
  } else {
    printf("host: permission errors not tried (root)\n");
  }
  (void)unlink(file_name());
  (void)snprintf(other, sizeof other, "%s/no/such/region", dir);
  expect_error(other, "cannot create");
  expect_error("/proc/version/region", "cannot look");
  memset(long_path, 'x', sizeof long_path);
  long_path[sizeof long_path - 1] = 0;
  expect_error(long_path, "too long");
  fg_error err;
  fg_region_config c = small_config();
  FG_CHECK(open_at(path, &c, FG_HOST_MAP_EXISTING, &err) == NULL && strstr(err.message, "no such") != NULL);
  struct { /* an older, smaller struct: nothing past its size is written */
    fg_error error;
    char guard[8];
  } cut;
  memset(&cut, 0x7f, sizeof cut);
  cut.error.size = 16;
  fg_host_map *m = NULL;
  FG_EQ(fg_host_map_open("/proc/version/region", &c, 0, 1, &m, &cut.error), FG_ERR_REGION);
  FG_EQ(cut.error.code, FG_ERR_REGION);
  FG_EQ(cut.error.size, 16);
  FG_EQ(cut.error.column, 0x7f7f7f7f);
}

static void test_no_room(void) {
  fg_error err;
  fg_region_config c = small_config();
  pid_t child = fork();
  if (child == 0) {
    struct rlimit limit = {4096, 4096};
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    fg_host_map *m = open_at(path, &c, 0, &err);
    int ok = m == NULL && err.code == FG_ERR_REGION && strstr(err.message, "KiB") != NULL && access(file_name(), F_OK) != 0;
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  FG_CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Threads that open, ask and close at once share one slot and lose no lock. */
static void *opener(void *arg) {
  (void)arg;
  fg_region_config c = small_config();
  for (int i = 0; i < 200; i++) {
    fg_host_map *m = NULL;
    if (fg_host_map_open(path, &c, 0, fg_host_now_ms(), &m, NULL) != FG_OK || fg_host_map_path(m) == NULL ||
        fg_host_map_slot(m, fg_host_now_ms() + i * 500) < 0) {
      return &dir;
    }
    fg_host_map_close(m);
  }
  return NULL;
}

static void test_threads(void) {
  fg_error err;
  fg_region_config c = small_config();
  fg_host_map *keep = open_at(path, &c, 0, &err);
  int32_t slot = fg_host_map_slot(keep, fg_host_now_ms());
  pthread_t t[4];
  for (int i = 0; i < 4; i++) {
    FG_EQ(pthread_create(&t[i], NULL, opener, NULL), 0);
  }
  for (int i = 0; i < 4; i++) {
    void *failed = NULL;
    (void)pthread_join(t[i], &failed);
    FG_CHECK(failed == NULL);
  }
  FG_EQ(fg_host_map_slot(keep, fg_host_now_ms()), slot);
  pid_t child = fork();
  if (child == 0) { /* the parent still holds its lock */
    _exit(fg_host_map_slot(keep, fg_host_now_ms()) != slot ? 0 : 1);
  }
  int status = -1;
  FG_CHECK(waitpid(child, &status, 0) == child && status == 0);
  fg_host_map_close(keep);
  (void)unlink(file_name());
}

int main(void) {
  if (mkdtemp(dir) == NULL) {
    perror(dir);
    return 1;
  }
  (void)snprintf(path, sizeof path, "%s/region", dir);
  test_clock();
  test_private();
  (void)file_name();
  test_shared();
  test_other_sizes();
  test_other_boot();
  test_damaged();
  test_not_ours();
  test_wrong_paths();
  test_no_room();
  test_threads();
  FG_EQ(rmdir(dir), 0); /* nothing is left in it */
  return fg_test_end("host");
}
