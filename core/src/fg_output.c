/* Checks an answer against what its workflow requires. The schema is a tree in preorder; the scanner's events walk it, one frame an
 * open container, so an answer of any length is checked in one pass without memory. Strict: JSON inside a fence is not JSON. */
#include "fg_output.h"

#include "fg_scan.h"

enum { TYPE_OBJECT = 1, TYPE_ARRAY = 2, TYPE_STRING = 4, TYPE_INTEGER = 8, TYPE_NUMBER = 16, TYPE_BOOLEAN = 32, TYPE_NULL = 64 };
enum { WORDS = FG_SCHEMA_NODES / 32 };
#define FREE UINT32_MAX /* no node says anything about this value */

typedef struct frame {
  uint32_t node, is_object;
  uint32_t seen[WORDS]; /* children by their number */
} frame;

typedef struct check {
  const fg_policy *p;
  const fg_policy_schema_node *node;
  uint32_t bad;          /* a value did not hold: a bare number is told only at the end, where nothing can be stopped */
  uint32_t next;         /* node of the value that follows the latest key */
  uint32_t text_node;    /* node of the string being read */
  uint32_t text_len;
  uint32_t alive[WORDS]; /* enum values the string can still be */
  frame open[FG_SCAN_DEPTH + 1];
} check;

/* ------------------------------------------------------------------- values */

/* The node a value beginning at this depth belongs to. */
static uint32_t node_at(const check *k, uint32_t depth) {
  if (depth == 0) {
    return 0;
  }
  const frame *f = &k->open[depth - 1];
  if (f->is_object || f->node == FREE) {
    return f->is_object ? k->next : FREE;
  }
  const fg_policy_schema_node *n = &k->node[f->node];
  for (uint32_t i = 0, at = f->node + 1; i < n->child_count; i++, at += k->node[at].skip) {
    if (k->node[at].name.len == 0) {
      return at;
    }
  }
  return FREE;
}

static int type_holds(const check *k, uint32_t node, uint32_t type) {
  return node == FREE || k->node[node].types == 0 || (k->node[node].types & type) != 0;
}

static const fg_pstr *values_of(const check *k, uint32_t node) {
  return fg_policy_at(k->p, k->node[node].enum_off);
}

/* A scalar other than a string, by its shortest text. */
static int enum_holds(const check *k, uint32_t node, const char *text, uint32_t len) {
  if (node == FREE || k->node[node].enum_count == 0) {
    return 1;
  }
  const fg_pstr *v = values_of(k, node);
  for (uint32_t i = 0; i < k->node[node].enum_count; i++) {
    if (fg_eq(fg_policy_pool(k->p) + v[i].off, v[i].len, text, len)) {
      return 1;
    }
  }
  return 0;
}

/* "1.50" is 1.5 and "2.0" is 2: the card's spelling. Numbers with an exponent are left as they are. */
static uint32_t shortest(fg_str number, char *buf, uint32_t *integer) {
  uint32_t len = fg_min32(number.len, FG_SCAN_NUMBER_MAX), point = 0;
  memcpy(buf, number.ptr, len);
  *integer = 1;
  for (uint32_t i = 0; i < len; i++) {
    if (buf[i] == 'e' || buf[i] == 'E') {
      *integer = 0;
      return len;
    }
    point = buf[i] == '.' ? i : point;
  }
  if (point > 0) {
    while (buf[len - 1] == '0') {
      len--;
    }
    *integer = buf[len - 1] == '.';
    len -= *integer;
  }
  if (len == 2 && buf[0] == '-' && buf[1] == '0') {
    buf[0] = '0';
    len = 1;
  }
  return len;
}

static int number_holds(const check *k, uint32_t node, const fg_scan_event *e) {
  char buf[FG_SCAN_NUMBER_MAX];
  uint32_t integer = 0, len = shortest(e->text, buf, &integer);
  if (e->cut) { /* what was cut off may be digits or a fraction; longer than any value of an enum */
    return type_holds(k, node, TYPE_NUMBER | (e->whole ? TYPE_INTEGER : 0)) && (node == FREE || k->node[node].enum_count == 0);
  }
  return type_holds(k, node, TYPE_NUMBER | (integer ? TYPE_INTEGER : 0)) && enum_holds(k, node, buf, len);
}

/* Pieces of a string thin out the values it can still be; in the card each lies in quotes, unescaped. */
static int string_holds(check *k, const fg_scan_event *e) {
  if (e->first) {
    k->text_node = node_at(k, e->depth);
    k->text_len = 0;
    memset(k->alive, 0xFF, sizeof k->alive);
    if (!type_holds(k, k->text_node, TYPE_STRING)) {
      return 0;
    }
  }
  if (k->text_node == FREE || k->node[k->text_node].enum_count == 0) {
    return 1;
  }
  const fg_pstr *v = values_of(k, k->text_node);
  uint32_t left = 0, end = fg_add32(k->text_len, e->text.len);
  for (uint32_t i = 0; i < k->node[k->text_node].enum_count; i++) {
    const char *value = fg_policy_pool(k->p) + v[i].off;
    int fits = value[0] == '"' && end <= v[i].len - 2 && (!e->last || end == v[i].len - 2) &&
               (e->text.len == 0 || memcmp(value + 1 + k->text_len, e->text.ptr, e->text.len) == 0);
    if (!fits) {
      k->alive[i / 32] &= ~(1U << i % 32);
    }
    left |= k->alive[i / 32] >> i % 32 & 1;
  }
  k->text_len = end;
  return left != 0;
}

/* --------------------------------------------------------------- containers */

static int begin(check *k, uint32_t depth, uint32_t type) {
  frame *f = &k->open[depth];
  uint32_t node = node_at(k, depth);
  memset(f, 0, sizeof *f);
  f->node = node;
  f->is_object = type == TYPE_OBJECT;
  return type_holds(k, node, type) && (node == FREE || k->node[node].enum_count == 0);
}

static void key(check *k, const fg_scan_event *e) {
  frame *f = &k->open[e->depth - 1];
  k->next = FREE;
  if (f->node == FREE || e->cut) {
    return;
  }
  const fg_policy_schema_node *n = &k->node[f->node];
  for (uint32_t i = 0, at = f->node + 1; i < n->child_count; i++, at += k->node[at].skip) {
    fg_pstr name = k->node[at].name;
    if (name.len > 0 && fg_eq(fg_policy_pool(k->p) + name.off, name.len, e->text.ptr, e->text.len)) {
      f->seen[i / 32] |= 1U << i % 32;
      k->next = at;
      return;
    }
  }
}

static int all_required(const check *k, uint32_t depth) {
  const frame *f = &k->open[depth];
  if (f->node == FREE) {
    return 1;
  }
  const fg_policy_schema_node *n = &k->node[f->node];
  for (uint32_t i = 0, at = f->node + 1; i < n->child_count; i++, at += k->node[at].skip) {
    if (k->node[at].required && !(f->seen[i / 32] >> i % 32 & 1)) {
      return 0;
    }
  }
  return 1;
}

static int breaks(check *k, const fg_scan_event *e) {
  switch (e->what) {
  case FG_SCAN_BEGIN_OBJECT:
    return !begin(k, e->depth, TYPE_OBJECT);
  case FG_SCAN_BEGIN_ARRAY:
    return !begin(k, e->depth, TYPE_ARRAY);
  case FG_SCAN_END_OBJECT:
    return !all_required(k, e->depth);
  case FG_SCAN_KEY:
    key(k, e);
    return 0;
  case FG_SCAN_STRING:
    return !string_holds(k, e);
  case FG_SCAN_NUMBER:
    return !number_holds(k, node_at(k, e->depth), e);
  case FG_SCAN_TRUE:
    return !type_holds(k, node_at(k, e->depth), TYPE_BOOLEAN) || !enum_holds(k, node_at(k, e->depth), "true", 4);
  case FG_SCAN_FALSE:
    return !type_holds(k, node_at(k, e->depth), TYPE_BOOLEAN) || !enum_holds(k, node_at(k, e->depth), "false", 5);
  case FG_SCAN_NULL:
    return !type_holds(k, node_at(k, e->depth), TYPE_NULL) || !enum_holds(k, node_at(k, e->depth), "null", 4);
  default:
    return 0;
  }
}

static int on_event(void *ctx, const fg_scan_event *e) {
  check *k = ctx;
  k->bad = breaks(k, e) ? 1 : 0;
  return (int)k->bad;
}

/* One whole JSON value, and all of its events accepted. */
static int whole_json(fg_str text, fg_scan_sink sink, void *ctx) {
  fg_scan s;
  uint32_t used = 0;
  fg_scan_init(&s, 0);
  int32_t got = fg_scan_feed(&s, text.ptr, text.len, sink, ctx, &used);
  return got >= 0 && got != FG_SCAN_STOPPED && fg_scan_end(&s, sink, ctx) == FG_SCAN_DONE;
}

static int schema_holds(const fg_policy *p, const fg_policy_workflow *w, fg_str text) {
  check k;
  k.p = p;
  k.node = fg_policy_at(p, w->schema_off);
  k.next = k.text_node = FREE;
  k.text_len = 0;
  k.bad = 0;
  return whole_json(text, on_event, &k) && !k.bad;
}

/* -------------------------------------------------------------------- answer */

static uint32_t check_end(const fg_policy_workflow *w, uint32_t finish) {
  if (finish == FG_FINISH_NONE || (finish < 32 && w->finish_mask >> finish & 1)) {
    return 0;
  }
  if (finish == FG_FINISH_REFUSAL) {
    return w->refusal_is_answer ? 0 : FG_KIND_MODEL_REFUSED;
  }
  if (finish == FG_FINISH_CONTENT_FILTER) {
    return FG_KIND_OUTPUT_FILTERED;
  }
  if (finish == FG_FINISH_ERROR) {
    return FG_KIND_ERROR_IN_STREAM;
  }
  return w->finish_mask != 0 ? FG_KIND_OUTPUT_INVALID : 0;
}

static uint32_t check_tools(const fg_answer *a) {
  for (uint32_t i = 0; a->tool_calls != NULL && i < a->tool_call_count; i++) {
    fg_str args = fg_trim(a->tool_calls[i].arguments);
    if (args.len == 0 && a->finish != FG_FINISH_LENGTH) {
      continue; /* a tool without arguments */
    }
    if (!whole_json(args, NULL, NULL)) {
      return FG_KIND_TRUNCATED_TOOL_CALL;
    }
  }
  return 0;
}

static uint32_t check_empty(const fg_policy_workflow *w, const fg_answer *a) {
  int said = fg_trim(a->output).len > 0 || a->visible > 0 || a->tool_call_count > 0;
  if (said || !(a->flags & FG_ANSWER_OUTPUT_KNOWN) || a->finish == FG_FINISH_PAUSE || (a->finish == FG_FINISH_REFUSAL && w->refusal_is_answer)) {
    return 0;
  }
  int usage = a->flags & FG_ANSWER_USAGE_FINAL || a->prompt_tokens > 0 || a->output_tokens > 0;
  return usage ? FG_KIND_NO_OUTPUT : FG_KIND_EMPTY_ANSWER;
}

uint32_t fg_output_check(const fg_policy *p, const fg_policy_workflow *w, const fg_answer *a) {
  uint32_t kind = check_end(w, a->finish);
  kind = kind != 0 ? kind : check_tools(a);
  kind = kind != 0 ? kind : check_empty(w, a);
  if (kind != 0 || w->schema_count == 0 || !(a->flags & FG_ANSWER_OUTPUT_KNOWN)) {
    return kind;
  }
  if (a->tool_call_count > 0 || a->finish == FG_FINISH_REFUSAL || a->finish == FG_FINISH_PAUSE) {
    return 0; /* tools were called, an accepted refusal, or more will come: no document to check yet */
  }
  return schema_holds(p, w, a->output) ? 0 : FG_KIND_OUTPUT_INVALID;
}
