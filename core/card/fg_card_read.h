/* The table-driven reader of a card's objects, and the state of one load.
 *
 * An object is described by a table of fields; one function reads them all, so unknown keys, duplicate keys, wrong types and
 * numbers out of range are found in one place and reported with their path. The functions return 1, or 0 after the first error,
 * which is kept in fg_card.err. */
#ifndef FG_CARD_READ_H
#define FG_CARD_READ_H

#include <cjson/cJSON.h>
#include "fg_card_block.h"

enum { FG_PATH_DEPTH = 40, FG_CARD_ROUTES = 65535, FG_CARD_WORKFLOWS = 16384, FG_CARD_RULES = 256, FG_CARD_LAYERS = 16, FG_CARD_LANGUAGES = 64 };
enum { FG_CARD_PATH = 1024 }; /* the longest path that is looked up in the text */

typedef struct fg_step { const char *key; uint32_t index; } fg_step; /* key NULL: an array's element */

typedef struct fg_lint { /* a warning until the block takes it */
  uint64_t at[8];        /* hashes of the path and of the paths above it, [0] the outermost */
  uint32_t depth, line, column;
  uint32_t path_off, path_len, message_off, message_len; /* into the block */
} fg_lint;

typedef struct fg_card_price { int64_t input, cached, output; } fg_card_price; /* nano-dollars per million tokens; FG_PRICE_UNKNOWN */

typedef struct fg_card_model { fg_pstr provider, model, version; } fg_card_model; /* what was measured; no provider: not given */

typedef struct fg_card_contract { /* a contract between its reading and the verdict */
  const cJSON *node;
  fg_pstr fingerprint, approved_by, fixtures;
  uint32_t index; /* in the card's list */
  uint32_t workflow, standin, twin, has_cases, has_passed, has_score, has_primary_score;
  uint32_t cases, passed, score_ppm, primary_score_ppm;
  int64_t measured_ms, expires_ms; /* -1 = not given */
  fg_card_model route_model, primary_model;
  fg_card_price price;             /* as approved; input FG_PRICE_UNKNOWN: the approval states none */
  uint32_t drop_tools_off, drop_tools_count, drop_tools_all;
} fg_card_contract;

typedef struct fg_card_workflow { /* what the block does not keep of a workflow */
  const cJSON *node, *requires;
  uint32_t contract[FG_ROUTES_MAX]; /* 1 + index into contracts, by stand-in; 0 none */
  uint32_t min_cases, min_score_ppm, max_drop_ppm;
} fg_card_workflow;

typedef struct fg_card {
  const char *text;
  uint64_t len;
  const fg_mem *mem;
  uint32_t flags;
  fg_error *err;
  int32_t code; /* the first error's; FG_OK while there is none */
  uint32_t in_contracts;
  fg_step path[FG_PATH_DEPTH];
  uint32_t depth;
  char quote[8][96];
  uint32_t quote_next;

  fg_block block;
  fg_policy head;
  const cJSON *root, *accounts, *routes, *workflows, *contracts, *classify;
  uint32_t account_count, contract_count;
  fg_policy_account *account; /* until the number is known */
  fg_index account_index, route_index, workflow_index;
  const cJSON **provides;     /* of each route */
  uint8_t *used;              /* of each route: 1 in a workflow */
  fg_card_workflow *workflow;
  fg_card_contract *contract;
  fg_pstr regions[64], classes[64];
  fg_lint *lint;
  uint32_t lint_count, lint_cap, lint_more;
  fg_policy_text *texts;
  uint32_t text_count, text_cap, text_ids;
  const cJSON **sort; /* scratch stack of the canonical writer */
  uint32_t sort_len, sort_cap;
} fg_card;

/* ------------------------------------------------- errors and warnings: fg_card_error.c */

void fg_card_push(fg_card *c, const char *key);
void fg_card_push_index(fg_card *c, uint32_t index);
static inline void fg_card_pop(fg_card *c) { c->depth--; }
/* Keeps the first error. what: FG_LOAD_*; the parts make the message. Returns 0. */
int fg_card_fail_parts(fg_card *c, uint32_t what, uint32_t nth, const char *const *parts);
#define FG_FAIL(c, what, ...) fg_card_fail_parts(c, what, 0, (const char *const[]){__VA_ARGS__, NULL})
int fg_card_nomem(fg_card *c);
/* A quoted and shortened copy of a card's own text, good for eight uses; a number as text. */
const char *fg_card_quote(fg_card *c, const char *text);
const char *fg_card_number_text(fg_card *c, int64_t value, uint32_t decimals);
const char *fg_card_type(const cJSON *node); /* "a text", "an object", ...; for messages */
/* Of `count` words, `stride` bytes apart (NULL: no word): the nearest to text, or NULL when none is near. */
const char *fg_card_nearest(const char *text, const char *const *words, uint32_t count, uint32_t stride);
/* The known vendor that a provider's name was likely meant to be; NULL: it is one, or resembles none. */
const char *fg_card_vendor_near(const char *provider);
/* The words with commas between; 0 when they do not fit. */
int fg_card_word_list(const char *const *words, uint32_t count, uint32_t stride, char *buf, uint32_t cap);

/* A warning about the current path. The first thousand are kept; the last one says how many more there were. */
int fg_card_warn_parts(fg_card *c, uint32_t last, const char *const *parts);
#define FG_WARN(c, ...) fg_card_warn_parts(c, 0, (const char *const[]){__VA_ARGS__, NULL})
#define FG_WARN_LAST(c, ...) fg_card_warn_parts(c, 1, (const char *const[]){__VA_ARGS__, NULL})
/* Lines and columns of all warnings, in one pass over the text. */
int fg_card_where(fg_card *c);

/* ------------------------------------------------------------------ tables */

enum { /* fg_field.kind */
  FG_FIELD_INT = 1, /* uint32_t; decimals > 0: a decimal, stored times 10^decimals */
  FG_FIELD_LONG,    /* int64_t */
  FG_FIELD_MONEY,   /* int64_t nano-dollars; a number or a decimal text */
  FG_FIELD_BOOL,    /* uint32_t */
  FG_FIELD_WORD,    /* uint32_t: index into words */
  FG_FIELD_TEXT,    /* fg_pstr, max bytes */
  FG_FIELD_NODE,    /* const cJSON *: looked at later */
  FG_FIELD_DATE,    /* int64_t Unix milliseconds */
  FG_FIELD_CALL     /* read(c, node, out) */
};
enum { FG_MUST = 1, FG_NULL = 2, FG_OBJECT = 4, FG_ARRAY = 8 }; /* required; null means `none`; FG_FIELD_NODE of that type */

typedef int (*fg_read_fn)(fg_card *c, const cJSON *node, void *out);
typedef struct fg_field {
  const char *name;
  uint16_t kind, flags;
  uint32_t offset; /* in out */
  int64_t min, max, none;
  uint32_t decimals;
  const char *const *words; /* NULL-terminated */
  fg_read_fn read;
} fg_field;

/* Reads all members of an object; *seen (may be NULL): bit n for field n. At most 64 fields. */
int fg_read_object(fg_card *c, const cJSON *node, const fg_field *fields, uint32_t count, void *out, uint64_t *seen);
#define FG_READ(c, node, fields, out, seen) fg_read_object(c, node, fields, (uint32_t)FG_ARRAY_LEN(fields), out, seen)

int fg_read_int(fg_card *c, const cJSON *node, const fg_field *f, int64_t *out);
int fg_read_money(fg_card *c, const cJSON *node, int64_t min, int64_t max, int64_t *out);
int fg_read_text(fg_card *c, const cJSON *node, uint32_t max, fg_pstr *out);
/* Index of a string in a word list. */
int fg_read_word(fg_card *c, const cJSON *node, const char *const *words, uint32_t *out);
/* A list of words to a bit set; a word twice is an error. */
int fg_read_words(fg_card *c, const cJSON *node, const char *const *words, uint32_t *bits);
int fg_read_type(fg_card *c, const cJSON *node, uint32_t flags); /* FG_OBJECT, FG_ARRAY */
/* A name of the card (1 to 64 bytes, no control bytes). */
int fg_read_name_ok(fg_card *c, const char *name);

/* ------------------------------------------------------------------- names */

/* 1-based id, 0 = not there. names: where the entry's fg_pstr lies, by id - 1. */
uint32_t fg_card_find_account(const fg_card *c, const char *name);
uint32_t fg_card_find_route(const fg_card *c, const char *name);
uint32_t fg_card_find_workflow(const fg_card *c, const char *name);
/* The account of that name, made when it is new; 0 after an error. */
uint32_t fg_card_account(fg_card *c, const char *name);
void fg_card_index_add(fg_index *x, uint64_t hash, uint32_t id);
uint64_t fg_card_hash(const char *text, uint32_t len); /* never 0 */

/* ------------------------------------------------------------------- parts */

int fg_card_globals(fg_card *c, const cJSON *root);
int fg_card_accounts(fg_card *c);
int fg_card_routes(fg_card *c);
int fg_card_workflows(fg_card *c);
int fg_card_contracts(fg_card *c);
int fg_card_classify(fg_card *c);
int fg_card_ladder(fg_card *c, const cJSON *ladder, fg_policy_workflow *w);
/* Adds a route to a workflow; index of the stand-in, or UINT32_MAX after an error. */
uint32_t fg_card_standin(fg_card *c, fg_policy_workflow *w, const cJSON *name, uint32_t ladder_only);
int fg_card_requires(fg_card *c, const cJSON *node, fg_policy_workflow *w, fg_card_workflow *extra);
int fg_card_provides(fg_card *c, const cJSON *node, fg_policy_route *r);
int fg_card_schema(fg_card *c, const cJSON *node, fg_policy_workflow *w);
int fg_card_tool_list(fg_card *c, const cJSON *node, uint32_t *off, uint32_t *count, uint32_t *any);
int fg_card_quota(fg_card *c, const cJSON *node, fg_policy_quota *out);
int fg_card_lint(fg_card *c);
/* A price as routes and contracts write it; all of out is set. */
int fg_card_read_price(fg_card *c, const cJSON *node, fg_card_price *out);
/* The first part of a route's price that is not the approved one, what was approved and what it is now (FG_PRICE_UNKNOWN: it has none);
 * NULL: all are, or the approval states no price. */
const char *fg_card_price_changed(const fg_card_price *approved, const fg_policy_route *r, int64_t *was, int64_t *now);
/* Bits of regions (or data classes) in the policy's table, made when they are new; 64 at most. */
int fg_card_bits(fg_card *c, int regions, const cJSON *list, uint64_t *bits);

#endif /* FG_CARD_READ_H */
