/* A scheduler for a handful of operations on shared words. Each atomic access of the library yields to it, so it can try every
 * order, and stop an operation for ever (a killed process) after any of its writes.
 *
 * Orders that differ only in accesses that commute (other words, or two reads) are one order; each is run once. Another choice is
 * tried at a point only when a later access of that operation races with the step taken there (dynamic partial order
 * reduction), and sleep sets leave out what was tried before. A run is repeated from the beginning under a prefix of
 * choices; an undo log restores the words. */
#ifndef WEAVE_H
#define WEAVE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fg_atomic.h"

#ifndef FG_ATOMIC_WEAVE
#error "built with -DFG_ATOMIC_WEAVE=1, like the library"
#endif

enum { WEAVE_MAX = 3, WEAVE_STACK = 32768, WEAVE_DEPTH = 4096, WEAVE_LOG = 8192 };

int fg_weave_plant;

typedef struct weave_op {
  void (*run)(void *ctx);
  void *ctx;
} weave_op;

/* ---- switching ---- */

#if defined(__x86_64__) && !defined(WEAVE_UCONTEXT)
typedef struct weave_context { void *sp; } weave_context;
void weave_switch(weave_context *from, const weave_context *to);
__asm__(".text\n.globl weave_switch\n.type weave_switch,@function\nweave_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq (%rsi), %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".size weave_switch,.-weave_switch\n");
#else
#include <ucontext.h>
typedef struct weave_context { ucontext_t u; } weave_context;
static inline void weave_switch(weave_context *from, weave_context *to) { (void)swapcontext(&from->u, &to->u); }
#endif

typedef struct weave_thread {
  weave_context context;
  weave_op op;
  int alive, writes, kind; /* what it is about to do */
  const fg_word *word;
  _Alignas(16) unsigned char stack[WEAVE_STACK];
} weave_thread;

static weave_thread weave_threads[WEAVE_MAX];
static weave_context weave_home;
static int weave_now = -1; /* running thread; -1: accesses are plain */
static struct { fg_word *word; uint64_t old; } weave_log[WEAVE_LOG];
static uint32_t weave_logged;
static int weave_logging;

static void weave_note(const fg_word *w) {
  if (weave_logged == WEAVE_LOG) {
    printf("weave: the undo log is full\n");
    exit(2);
  }
  weave_log[weave_logged].word = (fg_word *)(uintptr_t)w;
  weave_log[weave_logged++].old = w->v;
}

void fg_weave_step(const fg_word *w, int kind) {
  int me = weave_now;
  if (me >= 0) {
    weave_threads[me].word = w;
    weave_threads[me].kind = kind;
    weave_switch(&weave_threads[me].context, &weave_home);
  }
  if (kind == FG_WEAVE_WRITE && weave_logging) {
    weave_note(w);
  }
}

static void weave_main(void) {
  int me = weave_now;
  weave_threads[me].op.run(weave_threads[me].op.ctx);
  weave_threads[me].alive = 0;
  weave_switch(&weave_threads[me].context, &weave_home);
  abort();
}

static void weave_resume(int i) {
  weave_now = i;
  weave_switch(&weave_home, &weave_threads[i].context);
  weave_now = -1;
}

/* Starts an operation and runs it to its first access. */
static void weave_start(int i, weave_op op) {
  weave_thread *t = &weave_threads[i];
  t->op = op;
  t->alive = 1;
  t->writes = 0;
#if defined(__x86_64__) && !defined(WEAVE_UCONTEXT)
  void **sp = (void **)(void *)(t->stack + WEAVE_STACK);
  *--sp = NULL; /* keeps the stack aligned as after a call */
  void (*entry)(void) = weave_main;
  memcpy(--sp, &entry, sizeof(entry));
  for (int k = 0; k < 6; k++) {
    *--sp = NULL;
  }
  t->context.sp = sp;
#else
  (void)getcontext(&t->context.u);
  t->context.u.uc_stack.ss_sp = t->stack;
  t->context.u.uc_stack.ss_size = WEAVE_STACK;
  t->context.u.uc_link = NULL;
  makecontext(&t->context.u, weave_main, 0);
#endif
  weave_resume(i);
}

/* ---- exploring ---- */

typedef struct weave_node {
  uint8_t enabled, sleep, done, back, chosen; /* sets of operations; back: those to be tried here */
  uint8_t kind;
  const fg_word *word;                        /* the access made here */
  int16_t clock[WEAVE_MAX][WEAVE_MAX];        /* before it: last step of each operation that each has to follow */
  int16_t after[WEAVE_MAX];                   /* of the access itself */
} weave_node;

typedef struct weave_world {
  int count;                       /* operations */
  int kill, after;                 /* operation killed after so many writes; kill -1: none */
  int every;                       /* 1: orders that commute too, each by itself */
  void (*begin)(void *world, weave_op *ops); /* sets the words and the operations up */
  int (*check)(void *world, int killed);     /* killed: the operation that was, or -1; 0 = a violation */
  void *world;
  uint64_t runs, pruned, kills, steps, violations;
} weave_world;

static weave_node weave_stack[WEAVE_DEPTH];

static int weave_commute(const weave_thread *a, const weave_thread *b) {
  return a->word != b->word || (a->kind == FG_WEAVE_READ && b->kind == FG_WEAVE_READ);
}

static uint8_t weave_enabled(const weave_world *w, int *killed) {
  uint8_t set = 0;
  for (int i = 0; i < w->count; i++) {
    if (!weave_threads[i].alive) {
      continue;
    }
    if (w->kill == i && weave_threads[i].writes >= w->after) {
      *killed = 1;
      continue;
    }
    set |= (uint8_t)(1 << i);
  }
  return set;
}

static int weave_conflict(const weave_node *n, const fg_word *word, int kind) {
  return n->word == word && (n->kind == FG_WEAVE_WRITE || kind == FG_WEAVE_WRITE);
}

/* Steps taken that race with what each operation is about to do: it is to be tried before them. */
static void weave_races(const weave_world *w, int i) {
  weave_node *n = &weave_stack[i];
  for (int p = 0; p < w->count; p++) {
    const weave_thread *t = &weave_threads[p];
    if (!(n->enabled >> p & 1)) {
      continue;
    }
    for (int j = i - 1; j >= 0; j--) {
      weave_node *m = &weave_stack[j];
      if (m->chosen != p && weave_conflict(m, t->word, t->kind) && j > n->clock[p][m->chosen]) {
        m->back |= (uint8_t)(m->enabled >> p & 1 ? 1 << p : m->enabled);
        break;
      }
    }
  }
}

/* What the access of step i has to follow. */
static void weave_order(int i) {
  weave_node *n = &weave_stack[i];
  memcpy(n->after, n->clock[n->chosen], sizeof(n->after));
  for (int j = 0; j < i; j++) {
    const weave_node *m = &weave_stack[j];
    if (weave_conflict(m, n->word, n->kind)) {
      for (int k = 0; k < WEAVE_MAX; k++) {
        n->after[k] = m->after[k] > n->after[k] ? m->after[k] : n->after[k];
      }
    }
  }
  n->after[n->chosen] = (int16_t)i;
}

static void weave_node_begin(const weave_world *w, int i, uint8_t sleep, int *killed) {
  weave_node *n = &weave_stack[i];
  n->enabled = weave_enabled(w, killed);
  n->sleep = sleep;
  n->done = 0;
  if (i == 0) {
    memset(n->clock, -1, sizeof(n->clock));
  } else {
    memcpy(n->clock, n[-1].clock, sizeof(n->clock));
    memcpy(n->clock[n[-1].chosen], n[-1].after, sizeof(n->after));
  }
  weave_races(w, i);
  n->back = w->every ? n->enabled : (uint8_t)((n->enabled & ~sleep) & -(n->enabled & ~sleep));
}

/* One run under the choices of weave_stack[0, depth), then the first ones. Returns its length. */
static int weave_run(weave_world *w, int depth, int *killed) {
  weave_op ops[WEAVE_MAX];
  weave_logged = 0;
  weave_logging = 1;
  w->begin(w->world, ops);
  for (int i = 0; i < w->count; i++) {
    weave_start(i, ops[i]);
  }
  uint8_t sleep = 0;
  int i = 0;
  *killed = 0;
  for (;; i++) {
    if (i == WEAVE_DEPTH) {
      printf("weave: an operation does not end\n");
      exit(2);
    }
    weave_node *n = &weave_stack[i];
    if (i >= depth) {
      weave_node_begin(w, i, sleep, killed);
      if (n->back == 0) {
        break;
      }
      n->chosen = (uint8_t)__builtin_ctz(n->back);
    }
    weave_thread *t = &weave_threads[n->chosen];
    if (i >= depth - 1) {
      n->word = t->word;
      n->kind = (uint8_t)t->kind;
      weave_order(i);
    }
    uint8_t rest = n->sleep | n->done;
    sleep = 0;
    for (int k = 0; k < w->count; k++) {
      if (rest >> k & 1 && !w->every && weave_commute(&weave_threads[k], t)) {
        sleep |= (uint8_t)(1 << k);
      }
    }
    t->writes += t->kind == FG_WEAVE_WRITE;
    w->steps++;
    weave_resume(n->chosen);
  }
  if (weave_stack[i].enabled == 0) {
    w->runs++;
    w->kills += (uint64_t)*killed;
    w->violations += !w->check(w->world, *killed ? w->kill : -1);
  } else {
    w->pruned++;
  }
  weave_logging = 0;
  while (weave_logged > 0) {
    weave_logged--;
    weave_log[weave_logged].word->v = weave_log[weave_logged].old;
  }
  return i;
}

/* Every order. Returns 1 when some run was cut by the kill. */
static int weave_explore(weave_world *w) {
  int depth = 0, any = 0;
  for (;;) {
    int killed = 0;
    int length = weave_run(w, depth, &killed);
    any |= killed;
    for (depth = length; depth > 0; depth--) {
      weave_node *n = &weave_stack[depth - 1];
      n->done |= (uint8_t)(1 << n->chosen);
      uint8_t open = n->back & (uint8_t)~(n->sleep | n->done);
      if (open != 0) {
        n->chosen = (uint8_t)__builtin_ctz(open);
        break;
      }
    }
    if (depth == 0) {
      return any;
    }
  }
}

#endif /* WEAVE_H */
