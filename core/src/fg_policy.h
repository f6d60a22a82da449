/* The compiled card: one flat, immutable, pointer-free block. core/card writes it, everything in core/src reads it.
 *
 * Offsets count bytes from the start of the block; array indices are 0-based inside, ids shown outside are index + 1. Every
 * number is already checked against its range and has its default filled in, so readers never meet "unset". */
#ifndef FG_POLICY_H
#define FG_POLICY_H

#include "fivegates.h"
#include "fg_rules.h"

enum { FG_POLICY_MAGIC = 0x31504746, FG_POLICY_LAYOUT = 1 }; /* "FGP1" */
enum { FG_PRICE_UNKNOWN = -1 };

typedef struct fg_pstr { uint32_t off, len; } fg_pstr; /* into the block, NUL-terminated there; len 0 = absent */

/* Numbers of the card that hold for every workflow. */
typedef struct fg_policy_globals {
  uint64_t seed;             /* 0 = the host's */
  uint32_t has_seed, zero;
  uint32_t bucket_credit_milli, bucket_cap_milli, bucket_start_milli, bucket_trickle_milli; /* per success; milli-tokens; trickle a minute */
  uint32_t backoff_base_ms, backoff_rate_base_ms, backoff_cap_ms, retry_after_cap_ms;
  uint32_t retries_per_hour; /* 0 = no limit */
  uint32_t layers_product;   /* sends per decision of all declared layers, >= 1 */
  int64_t spend_per_day_nusd; /* -1 = no limit */
  uint32_t br_consecutive, br_window_ms, br_min_calls, br_failure_ppm, br_open_ms, br_open_max_ms, br_jitter_ppm, br_probes, br_lease_ms,
      br_successes, br_stall;
  uint32_t adapt_limit, adapt_pace, adapt_probes; /* 1: learned limits hold; probes are paid for by requests */
  uint32_t lint_count, lint_off; /* fg_policy_lint_entry[] */
} fg_policy_globals;

typedef struct fg_policy_lint_entry { fg_pstr path, message; uint32_t line, column; } fg_policy_lint_entry;

typedef struct fg_policy_quota { uint32_t in_flight, rpm, tpm; } fg_policy_quota; /* 0 = not declared */

typedef struct fg_policy_account {
  fg_pstr name;
  uint64_t key; /* region key: hash of the name; never 0 */
  fg_policy_quota quota;
  uint32_t zero;
} fg_policy_account;

enum { FG_CANCEL_UNKNOWN = 0, FG_CANCEL_YES = 1, FG_CANCEL_NO = 2 };

enum { FG_TOOLS_UNKNOWN = 0, FG_TOOLS_LISTED = 1, FG_TOOLS_ANY = 2 };

typedef struct fg_policy_route {
  fg_pstr name, provider, model, version, base_url, key_env, api, quota_owner;
  uint64_t key;             /* region key: hash of name, provider, model, base_url, account; never 0 */
  uint64_t quota_owner_key; /* hash of provides.economics.quota_owner; 0 = not declared */
  uint32_t account;         /* index */
  uint32_t weight;          /* 1..1,000,000; 0 = takes no new traffic as a stand-in */
  int64_t price_input, price_cached, price_output; /* nano-dollars per million tokens; FG_PRICE_UNKNOWN; 0 = free */
  fg_policy_quota quota;
  uint32_t cancel_stops, cancel_bills, cancel_needs_stream; /* FG_CANCEL_* */
  /* Declared limits; 0 = not declared. */
  uint32_t context_tokens, request_bytes, max_tokens, max_tokens_whole, first_token_p95_ms, latency_p95_ms;
  uint32_t features_known, features; /* FG_FEATURE_*: bits the route says something about; bits it has */
  uint64_t regions, data_classes;    /* bits of the policy's tables; 0 = not declared */
  uint32_t tools_off, tools_count;   /* uint64_t hashes of the tool names it may be given, sorted; count 0 = not declared */
  uint32_t lookup;                   /* FG_LOOKUP_*: how a lost attempt there can be found */
  uint32_t tools_known;              /* FG_TOOLS_*: UNKNOWN binds no primary and fits no stand-in */
} fg_policy_route;

/* One route as seen by one workflow: the verdict of the eight sections and what the contract says. [0] is the primary, always approved. */
typedef struct fg_policy_standin {
  uint32_t route;           /* index into routes[] */
  uint32_t barred;          /* FG_REASON_* of the contract gate; 0 = approved as far as a card can tell (expiry is looked at per call) */
  fg_pstr section;          /* "data.regions": the first key that fails, or "evidence", "fingerprint", "price" */
  int64_t measured_unix_ms, expires_unix_ms; /* expires 0 = no date (the primary) */
  uint32_t score_ppm, drop_ppm; /* evidence score; primary_score - score, floor 0 */
  uint32_t ladder_only;     /* 1: not in `routes`, serves only a smaller_model step */
  uint32_t other_vendor_after_refusal;
  uint32_t other_budget;    /* 1: quota owner declared here and at the primary, and different */
  uint32_t prefill;         /* 1: may continue a partial answer there (the primary: what it provides) */
  uint32_t drop_tools_off, drop_tools_count; /* uint64_t hashes, `changes.drop_tools` */
  fg_pstr fingerprint;      /* sha256:… as computed from the card now */
  fg_pstr approved_by;
  uint32_t drop_tools_all;
  uint32_t twin;            /* 1: what its route does not declare of input, output and tools is as the primary declares it */
} fg_policy_standin;

typedef struct fg_policy_rung {
  uint32_t step;            /* FG_STEP_* */
  uint32_t standin;         /* index into standin[] for smaller_model */
  uint32_t min_score_ppm, max_tokens, to_tokens, max_age_s;
  uint32_t text;            /* id of a preset text, 1..; 0 none */
} fg_policy_rung;

enum { FG_RETRIES_MAX = 15 }; /* of a class on one route: what a call has bits to count */
enum { FG_WF_INTERACTIVE = 0, FG_WF_BATCH = 1, FG_WF_EFFECTFUL = 2 };
enum { FG_EXTRA_FIXED = 0, FG_EXTRA_HOLDS = 1 }; /* extra budget given, or as a multiple of the first attempt's hold */

typedef struct fg_policy_schema_node { /* output check: a tree in preorder */
  fg_pstr name;             /* property name; len 0 = items */
  uint32_t types;           /* bit set: 1 object 2 array 4 string 8 integer 16 number 32 boolean 64 null; 0 = any */
  uint32_t required;        /* 1: the parent requires it */
  uint32_t child_count;     /* properties, or the one items node */
  uint32_t skip;            /* nodes of this subtree, itself included */
  uint32_t enum_off, enum_count; /* fg_pstr[] of compact JSON values */
} fg_policy_schema_node;

typedef struct fg_policy_workflow {
  fg_pstr name;
  uint64_t key;
  uint32_t kind, order_card;          /* FG_WF_*; 1 = the card's order, 0 = rendezvous */
  uint32_t standin_count;             /* primary + stand-ins + ladder routes, <= 16 */
  uint32_t safe_until, after_visible, after_silence; /* FG_SAFE_*, FG_AFTER_*, FG_SILENCE_* */
  uint32_t total_attempts, per_route, per_class[FG_CLASS_COUNT], call_resends;
  uint32_t overload_retries;          /* same-route retries after an overload: 1, or per_class.server where the card states that */
  uint32_t elapsed_ms, call_elapsed_ms; /* UINT32_MAX = no limit */
  uint32_t extra_cost_mode, extra_tokens_mode; /* FG_EXTRA_* */
  uint32_t extra_cost_holds, extra_tokens_holds; /* FG_EXTRA_HOLDS: how many of the first attempt's holds */
  int64_t extra_cost_nusd;            /* FG_EXTRA_FIXED; -1 = no money limit (no prices) */
  uint32_t extra_tokens, quality_drop_ppm;
  uint32_t hold_ms, slow_failure_ms;
  uint32_t queue, queue_max_age_ms;
  uint32_t spill_mode, spill_max_ppm;
  uint32_t hedge_enabled, hedge_max_ppm;
  uint32_t connect_ms, idle_ms, progress_ms, first_token_ms, total_ms; /* first_token and total: 0 = learned */
  uint32_t stop_on;                   /* bit 1 << owner */
  uint32_t needs_context_tokens;      /* requires.input.context_tokens */
  int64_t spend_per_day_nusd;         /* -1 = no limit */
  uint32_t finish_mask;               /* bit 1 << FG_FINISH_*: accepted finish reasons; 0 = any good end */
  uint32_t refusal_is_answer;         /* requires.output.refusal_form says a refusal is an answer */
  uint32_t schema_off, schema_count;  /* fg_policy_schema_node[]; 0 = no output check */
  uint32_t ladder_count;
  fg_policy_rung ladder[FG_LADDER_MAX];
  fg_policy_standin standin[FG_ROUTES_MAX];
} fg_policy_workflow;

typedef struct fg_policy_text { fg_pstr language, text; uint32_t id, zero; } fg_policy_text; /* grouped by id */

typedef struct fg_policy_slot { uint64_t hash; uint32_t id, zero; } fg_policy_slot; /* open addressing, id 0 = free */

struct fg_policy {
  uint32_t magic, layout;
  uint64_t bytes;
  uint64_t fingerprint_hash; /* first 8 bytes of the fingerprint: a call remembers it */
  fg_pstr fingerprint;       /* "sha256:…" over the compiled meaning of the card */
  fg_pstr hash_key;          /* key for prompt hashes; len 0 = none */
  uint32_t route_count, account_count, workflow_count, rule_count, text_count, region_count, class_count, zero;
  uint32_t routes_off, accounts_off, workflows_off, rules_off, texts_off, regions_off, classes_off, pool_off; /* regions, classes: fg_pstr[], at most 64 */
  uint32_t route_index_off, account_index_off, workflow_index_off; /* fg_policy_slot[mask + 1] */
  uint32_t route_index_mask, account_index_mask, workflow_index_mask;
  fg_policy_globals globals;
};

static inline const void *fg_policy_at(const fg_policy *p, uint32_t off) { return (const char *)p + off; }
static inline const fg_policy_route *fg_policy_routes(const fg_policy *p) { return (const fg_policy_route *)fg_policy_at(p, p->routes_off); }
static inline const fg_policy_account *fg_policy_accounts(const fg_policy *p) {
  return (const fg_policy_account *)fg_policy_at(p, p->accounts_off);
}
static inline const fg_policy_workflow *fg_policy_workflows(const fg_policy *p) {
  return (const fg_policy_workflow *)fg_policy_at(p, p->workflows_off);
}
static inline const fg_rule *fg_policy_rules(const fg_policy *p, uint32_t *count) {
  *count = p->rule_count;
  return (const fg_rule *)fg_policy_at(p, p->rules_off);
}
static inline const char *fg_policy_pool(const fg_policy *p) { return (const char *)fg_policy_at(p, 0); } /* all fg_pstr.off count from the block */
static inline fg_str fg_policy_str(const fg_policy *p, fg_pstr s) {
  fg_str r = {(const char *)p + s.off, s.len, 0};
  return r;
}

enum { FG_SCHEMA_NODES = 256 };                                              /* of one workflow's output schema */
enum { FG_POLICY_REGIONS = 1, FG_POLICY_CLASSES = 2, FG_POLICY_ACCOUNTS = 3 }; /* tables of fg_policy_table_find */

/* A route (an id) as a workflow (an id) sees it; NULL: no such id, or the workflow does not name the route. */
const fg_policy_standin *fg_policy_standin_of(const fg_policy *p, uint32_t workflow, uint32_t route);
/* 1 + index of a region, data class or account; 0 for an empty name; -1 when the card does not know it. */
int32_t fg_policy_table_find(const fg_policy *p, uint32_t what, const char *name, uint32_t len);
/* The whole structure of a block of that many bytes that came from elsewhere: every offset, index and enum. FG_OK, FG_ERR_ARG
 * (NULL, not 8-byte aligned), FG_ERR_RANGE. Numbers that only steer (budgets, times) are not judged. */
int32_t fg_policy_check(const fg_policy *p, uint64_t bytes);

#endif /* FG_POLICY_H */
