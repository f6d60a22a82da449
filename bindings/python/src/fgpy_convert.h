/* Python values to the core's structs. Each function returns 0, or -1 with an
 * exception that names the key. Strings stay owned by the objects they came
 * from; what had to be made on the way is kept in a fgpy_keep until dropped. */
#ifndef FGPY_CONVERT_H
#define FGPY_CONVERT_H

#include "fgpy_state.h"

/* The parameters of one method; the first `positional` may come by position,
 * the first `required` must come. */
typedef struct fgpy_sig {
  const char *fn;
  const char *const *names;
  int count, positional, required;
} fgpy_sig;

/* Fills out[count], borrowed, NULL where nothing came. */
int fgpy_args(const fgpy_sig *sig, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames, PyObject **out);

enum {
  FGPY_KEEP = 24,
  FGPY_HEADERS = 48,
  FGPY_CALLS = 16
};
typedef struct fgpy_keep {
  fgpy_state *st;
  PyObject *obj[FGPY_KEEP]; /* the last one is a list when there are more */
  int count;
  void *mem[3];
  int mem_count;
  fg_header header[FGPY_HEADERS];
  fg_tool_call call[FGPY_CALLS];
  fg_str tool[FG_TOOLS_MAX];
} fgpy_keep;

static inline void fgpy_keep_init(fgpy_keep *keep, fgpy_state *st) {
  keep->st = st;
  keep->count = 0;
  keep->mem_count = 0;
}
void fgpy_keep_drop(fgpy_keep *keep);

/* One value. `key` is what the exception calls it. None and NULL are 0. */
int fgpy_u32(PyObject *v, const char *key, uint32_t *out);
int fgpy_i32(PyObject *v, const char *key, int32_t *out);
int fgpy_i64(PyObject *v, const char *key, int64_t *out);
int fgpy_bool(PyObject *v, const char *key, int *out);
int fgpy_str(fgpy_keep *keep, PyObject *v, const char *key, fg_str *out);
/* A wire name (or None) to its number; a list of them to a bit set. */
int fgpy_word(fgpy_state *st, uint32_t table, PyObject *v, const char *key,
              uint32_t *out);
int fgpy_bits(fgpy_state *st, uint32_t table, PyObject *v, const char *key,
              uint32_t *out);
/* USD as number, Decimal or decimal text, exact to nano-dollars, up. */
int fgpy_usd(PyObject *v, const char *key, int64_t *out);

/* Keeps an object, taking the reference also when it fails; memory. */
int fgpy_keep_object(fgpy_keep *keep, PyObject *o);
void *fgpy_keep_memory(fgpy_keep *keep, size_t bytes);
/* "key must be wanted, not ..."; returns -1. */
int fgpy_type_error(const char *key, const char *wanted, PyObject *v);
/* The k-th keyword's text: the object's own, ending with NUL. */
const char *fgpy_key_text(PyObject *kwnames, Py_ssize_t k);

int fgpy_evidence(fgpy_keep *keep, PyObject *dict, fg_evidence *e,
                  uint32_t *attempt);
/* Keywords of usage() and success(). `reported`: 1 when they told of tokens or
 * money, without a word on final. */
int fgpy_answer(fgpy_keep *keep, const char *fn, PyObject *const *values,
                PyObject *kwnames, fg_answer *a, uint32_t *attempt,
                PyObject **now, int *reported);
int fgpy_facts(fgpy_state *st, PyObject *dict, fg_facts *f);
int fgpy_failure_facts(fgpy_state *st, PyObject *dict, fg_failure *f);

#endif /* FGPY_CONVERT_H */
