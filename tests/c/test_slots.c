/* Process slots of one region file: forked children, zombies, kill -9, a worker that gave up its rights, two pid namespaces. */
#include "fg_host.h"
#include "fg_test.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/fivegates-slots-XXXXXX";
static char path[128], name[160];

static fg_region_config config(void) {
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

static fg_host_map *open_map(void) {
  fg_region_config c = config();
  fg_host_map *m = NULL;
  return fg_host_map_open(path, &c, 0, fg_host_now_ms(), &m, NULL) == FG_OK ? m : NULL;
}

/* What a child says about itself. */
typedef struct report { int32_t slot, is_private, same_region, pid; } report;
typedef struct child { pid_t pid; int from, to; report says; } child;

static report look(fg_host_map *m, const fg_region *before) {
  report r = {-1, 1, 0, (int32_t)getpid()};
  if (m != NULL) {
    r.slot = fg_host_map_slot(m, fg_host_now_ms());
    r.is_private = fg_host_map_path(m) == NULL;
    r.same_region = fg_host_map_region(m) == before;
  }
  return r;
}

enum { INHERIT = 1, OPEN_ANEW = 2, NOBODY = 4, NEW_PIDS = 8, CLOSE_FIRST = 16 };

/* Goes on as pid 1 of a namespace of its own; dies with its parent. */
static int enter_namespace(void) {
  if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
    return 0;
  }
  pid_t pid = fork();
  if (pid < 0) {
    return 0;
  }
  if (pid > 0) {
    (void)close(STDIN_FILENO);
    for (int fd = 3; fd < 64; fd++) {
      (void)close(fd);
    }
    (void)waitpid(pid, NULL, 0);
    _exit(0);
  }
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  return 1;
}

/* Forks a child that takes its slot, says so, and leaves when told (or is killed). */
static child spawn(fg_host_map *m, int how) {
  int up[2], down[2];
  child c = {-1, -1, -1, {-1, 0, 0, 0}};
  if (pipe(up) != 0 || pipe(down) != 0) {
    return c;
  }
  c.pid = fork();
  if (c.pid == 0) {
    (void)signal(SIGPIPE, SIG_DFL);
    (void)close(up[0]);
    (void)close(down[1]);
    const fg_region *before = fg_host_map_region(m);
    if ((how & NEW_PIDS) != 0 && !enter_namespace()) {
      report no = {-1, 1, 0, -errno};
      (void)!write(up[1], &no, sizeof no);
      _exit(0);
    }
    if ((how & NOBODY) != 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
      _exit(2);
    }
    if ((how & CLOSE_FIRST) != 0) {
      fg_host_map_close(m);
    }
    report r = look((how & OPEN_ANEW) != 0 ? open_map() : m, before);
    (void)!write(up[1], &r, sizeof r);
    char byte;
    (void)!read(down[0], &byte, 1);
    _exit(0);
  }
  (void)close(up[1]);
  (void)close(down[0]);
  c.from = up[0];
  c.to = down[1];
  FG_CHECK(read(c.from, &c.says, sizeof c.says) == (ssize_t)sizeof c.says);
  return c;
}

static void let_go(child *c) {
  (void)!write(c->to, "", 1); /* a close would not do: later children hold copies */
  (void)close(c->to);
  (void)close(c->from);
  (void)waitpid(c->pid, NULL, 0);
}

static void kill_hard(child *c) {
  (void)kill(c->pid, SIGKILL);
  let_go(c);
}

static int32_t reap_now(fg_host_map *m) {
  return fg_host_map_reap(m, fg_host_now_ms());
}

static void test_forks(void) {
  fg_host_map *m = open_map();
  int32_t own = fg_host_map_slot(m, fg_host_now_ms());
  child a = spawn(m, INHERIT), b = spawn(m, INHERIT), c = spawn(m, OPEN_ANEW);
  FG_CHECK(a.says.slot >= 0 && b.says.slot >= 0 && c.says.slot >= 0);
  FG_CHECK(a.says.slot != own && b.says.slot != own && c.says.slot != own);
  FG_CHECK(a.says.slot != b.says.slot && a.says.slot != c.says.slot && b.says.slot != c.says.slot);
  FG_CHECK(a.says.same_region && !a.says.is_private && !c.says.is_private);
  FG_EQ(fg_host_map_slot(m, fg_host_now_ms()), own);
  FG_EQ(reap_now(m), 0); /* all live */
  kill_hard(&a);
  let_go(&b); /* left without closing: as good as killed */
  FG_EQ(reap_now(m), 2);
  FG_EQ(reap_now(m), 0);
  child d = spawn(m, INHERIT);
  FG_CHECK(d.says.slot != own && d.says.slot != c.says.slot);
  child e = spawn(m, CLOSE_FIRST | OPEN_ANEW); /* a child's close frees nothing of the parent's */
  FG_CHECK(e.says.slot != own && e.says.slot != d.says.slot && e.says.slot != c.says.slot);
  let_go(&c);
  let_go(&d);
  let_go(&e);
  FG_EQ(fg_host_map_slot(m, fg_host_now_ms()), own);
  /* A grandchild, of a child that never asked for a slot. */
  pid_t pid = fork();
  if (pid == 0) {
    child g = spawn(m, INHERIT);
    int32_t mine = fg_host_map_slot(m, fg_host_now_ms());
    int ok = g.says.slot >= 0 && g.says.slot != own && mine != g.says.slot && mine != own;
    let_go(&g);
    fg_host_map_close(m);
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  FG_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  fg_host_map_close(m);
}

static void test_zombie(void) {
  fg_host_map *m = open_map();
  (void)reap_now(m);
  child z = spawn(m, INHERIT);
  (void)kill(z.pid, SIGKILL);
  siginfo_t info; /* dead, but not waited for */
  FG_CHECK(waitid(P_PID, (id_t)z.pid, &info, WEXITED | WNOWAIT) == 0);
  FG_EQ(kill(z.pid, 0), 0);
  FG_EQ(reap_now(m), 1);
  child next = spawn(m, INHERIT);
  FG_EQ(next.says.slot, z.says.slot);
  FG_EQ(reap_now(m), 0);
  let_go(&next);
  let_go(&z);
  fg_host_map_close(m);
}

/* More processes than slots: the last ones work alone, and say so. */
static void test_full(void) {
  fg_host_map *m = open_map();
  child c[9];
  unsigned seen = 1U << fg_host_map_slot(m, fg_host_now_ms());
  int alone = 0;
  for (int i = 0; i < 9; i++) {
    c[i] = spawn(m, i % 2 == 0 ? INHERIT : OPEN_ANEW);
    FG_CHECK(c[i].says.slot >= 0);
    if (c[i].says.is_private) {
      FG_CHECK(c[i].says.slot == 0 && !c[i].says.same_region);
      alone++;
    } else {
      FG_EQ(seen >> c[i].says.slot & 1, 0);
      seen |= 1U << c[i].says.slot;
    }
  }
  FG_EQ(seen, 0xff);
  FG_EQ(alone, 2);
  for (int i = 0; i < 9; i++) {
    kill_hard(&c[i]);
  }
  child late = spawn(m, OPEN_ANEW); /* takes what the dead left */
  FG_CHECK(!late.says.is_private);
  let_go(&late);
  fg_host_map_close(m);
}

static void test_many_kills(void) {
  fg_host_map *m = open_map();
  for (int i = 0; i < 200; i++) {
    child c = spawn(m, i % 2 == 0 ? INHERIT : OPEN_ANEW);
    FG_CHECK(c.says.slot >= 0 && !c.says.is_private);
    kill_hard(&c);
  }
  (void)reap_now(m);
  FG_EQ(reap_now(m), 0);
  fg_host_map_close(m);
}

static void test_nobody(void) {
  if (geteuid() != 0) {
    printf("slots: a worker that gave up root not tried (not root)\n");
    return;
  }
  fg_host_map *m = open_map();
  FG_CHECK(chmod(name, 0600) == 0);
  child c = spawn(m, INHERIT | NOBODY);
  FG_CHECK(c.says.slot >= 0 && c.says.slot != fg_host_map_slot(m, fg_host_now_ms()) && !c.says.is_private);
  kill_hard(&c);
  FG_EQ(reap_now(m), 1);
  fg_host_map_close(m);
}

/* Two containers' worth of pids on one file: both workers are pid 1 of theirs. */
static void test_namespaces(void) {
  fg_host_map *m = open_map();
  child a = spawn(m, INHERIT | NEW_PIDS), b = spawn(m, OPEN_ANEW | NEW_PIDS);
  if (a.says.pid < 0) {
    printf("slots: pid namespaces not tried (%s)\n", strerror(-a.says.pid));
  } else {
    FG_EQ(a.says.pid, 1);
    FG_EQ(b.says.pid, 1);
    int32_t own = fg_host_map_slot(m, fg_host_now_ms());
    FG_CHECK(a.says.slot >= 0 && b.says.slot >= 0 && a.says.slot != b.says.slot && own != a.says.slot && own != b.says.slot);
    FG_CHECK(!a.says.is_private && !b.says.is_private);
    FG_EQ(reap_now(m), 0);
    (void)kill(a.pid, SIGKILL); /* takes its worker along */
    char byte;
    FG_EQ(read(a.from, &byte, 1), 0); /* the worker is gone */
    FG_EQ(reap_now(m), 1);
    FG_EQ(fg_host_map_slot(m, fg_host_now_ms()), own);
  }
  let_go(&a);
  let_go(&b);
  fg_host_map_close(m);
}

/* Processes that find no file, or a bad one, all at once: one makes it, all share it. */
static void test_race(void) {
  enum { RACERS = 6 };
  for (int round = 0; round < 40; round++) {
    int gate[2], up[2], hold[2];
    pid_t pid[RACERS];
    FG_CHECK(pipe(gate) == 0 && pipe(up) == 0 && pipe(hold) == 0);
    (void)unlink(name);
    if (round % 2 == 1) {
      FILE *f = fopen(name, "w");
      FG_CHECK(f != NULL && fputs("FREGION1, and then noise", f) >= 0); /* it was one: a file of something else is left alone */
      (void)fclose(f);
    }
    for (int i = 0; i < RACERS; i++) {
      pid[i] = fork();
      if (pid[i] == 0) {
        char byte;
        (void)close(gate[1]);
        (void)close(hold[1]);
        (void)!read(gate[0], &byte, 1); /* until the parent closes it */
        report r = look(open_map(), NULL);
        (void)!write(up[1], &r, sizeof r);
        (void)!read(hold[0], &byte, 1);
        _exit(0);
      }
    }
    (void)close(gate[0]);
    (void)close(gate[1]);
    (void)close(hold[0]);
    unsigned seen = 0;
    for (int i = 0; i < RACERS; i++) {
      report r;
      FG_CHECK(read(up[0], &r, sizeof r) == (ssize_t)sizeof r && r.slot >= 0 && r.slot < 8 && !r.is_private);
      seen |= 1U << (r.slot & 31);
    }
    FG_EQ(seen, (1U << RACERS) - 1); /* in two files there would be two slots 0 */
    (void)close(hold[1]);
    (void)close(up[0]);
    (void)close(up[1]);
    for (int i = 0; i < RACERS; i++) {
      (void)waitpid(pid[i], NULL, 0);
    }
  }
}

int main(void) {
  (void)signal(SIGPIPE, SIG_IGN);
  if (mkdtemp(dir) == NULL || chmod(dir, 0755) != 0) {
    perror(dir);
    return 1;
  }
  (void)snprintf(path, sizeof path, "%s/region", dir);
  fg_host_map *m = open_map();
  if (!FG_CHECK(m != NULL && fg_host_map_path(m) != NULL)) {
    return 1;
  }
  (void)snprintf(name, sizeof name, "%s", fg_host_map_path(m));
  fg_host_map_close(m);
  test_forks();
  test_zombie();
  test_full();
  test_many_kills();
  test_nobody();
  test_namespaces();
  test_race();
  (void)unlink(name);
  FG_CHECK(rmdir(dir) == 0);
  return fg_test_end("slots");
}
