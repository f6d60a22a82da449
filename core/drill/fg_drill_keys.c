#include "fg_drill_keys.h"

#include <stddef.h>
#include <string.h>

#define U32(key, member, unit, min, max) \
  { key, AS_U32, (uint32_t)offsetof(drill_config, member), unit, min, max, NULL }
#define I64(key, member, unit, min, max) \
  { key, AS_I64, (uint32_t)offsetof(drill_config, member), unit, min, max, NULL }
#define OTHER(key, kind, member) \
  { key, kind, (uint32_t)offsetof(drill_config, member), 0, 0, 0, NULL }
#define GROUP(key, fields) \
  { key, AS_GROUP, 0, 0, 0, 0, fields }
#define END \
  { NULL, 0, 0, 0, 0, 0, NULL }

static const field phases[] = {I64("warm_s", warm_us, SECOND, 0, DAY), I64("fault_s", fault_us, SECOND, SECOND, DAY),
                               I64("after_s", after_us, SECOND, 0, DAY), END};
static const field population[] = {U32("a_per_s", a_milli, 1000, 1, 10000000), U32("b_per_s", b_milli, 1000, 0, 10000000), END};
static const field sizes[] = {
    U32("prompt_tokens", prompt_tokens, 1, 1, 1000000),   U32("output_tokens", output_tokens, 1, 1, 100000),
    U32("output_cv", output_cv_ppm, 1000000, 0, 3000000), U32("first_token_cv", first_token_cv_ppm, 1000000, 0, 3000000),
    U32("speed_cv", speed_cv_ppm, 1000000, 0, 3000000),   END};
static const field speed[] = {I64("first_token_ms", first_token_us, 1000, 0, 60 * SECOND), U32("prompt_per_s", prompt_rate, 1, 1, 10000000),
                              U32("tokens_per_s", rate_milli, 1000, 100, 100000000), I64("error_ms", error_us, 1000, 1000, 60 * SECOND),
                              END};
static const field slots[] = {U32("primary", primary_slots, 1, 1, 100000), U32("backup", backup_slots, 1, 0, 100000), END};
static const field client[] = {
    I64("first_token_s", first_token_timeout_us, SECOND, SECOND / 10, DAY), I64("attempt_s", attempt_timeout_us, SECOND, SECOND / 10, DAY),
    I64("deadline_s", deadline_us, SECOND, SECOND / 10, DAY), I64("interactive_s", interactive_us, SECOND, SECOND / 10, DAY), END};
static const field price[] = {I64("input", price_input, 1000000000, 0, INT64_C(100000000000)),
                              I64("output", price_output, 1000000000, 0, INT64_C(100000000000)), END};

const field drill_keys[] = {OTHER("seed", AS_SEED, seed),
                            U32("seeds", seeds, 1, 1, DRILL_SEEDS_MAX),
                            OTHER("strategies", AS_STRATEGIES, strategies),
                            OTHER("faults", AS_FAULTS, fault),
                            GROUP("phases", phases),
                            GROUP("population", population),
                            GROUP("request", sizes),
                            GROUP("speed", speed),
                            GROUP("slots", slots),
                            GROUP("client", client),
                            GROUP("price", price),
                            U32("scale", scale, 1, 1, 100),
                            U32("tenants", tenants, 1, 1, DRILL_TENANTS_MAX),
                            U32("adopters", adopters_ppm, 1000000, 0, 1000000),
                            OTHER("others", AS_STRATEGY, others),
                            OTHER("shared", AS_BOOL, shared),
                            U32("backups", backups, 1, 1, DRILL_BACKUPS_MAX),
                            U32("spare", spare_ppm, 1000000, 0, 10000000),
                            OTHER("ladder", AS_BOOL, ladder),
                            U32("small_cost", small_ppm, 1000000, 1000, 1000000),
                            U32("oracle_load", oracle_ppm, 1000000, 1000, 1000000),
                            I64("report_ms", report_us, 1000, 10000, 10 * SECOND),
                            OTHER("card", AS_CARD, card),
                            END};

#define F(key, kind, type, member, unit, min, max) \
  { key, kind, (uint32_t)offsetof(type, member), unit, min, max, NULL }
static const field effect_rate[] = {F("requests", AS_U32, drill_effect, rate_limit, 1, 1, 1000000),
                                    F("window_s", AS_I64, drill_effect, rate_window_us, SECOND, 1000, DAY), END};
const field drill_effect_keys[] = {F("target", AS_TARGET, drill_effect, target, 0, 0, 0),
                                   F("start_s", AS_I64, drill_effect, start_us, SECOND, 0, DAY),
                                   F("length_s", AS_I64, drill_effect, length_us, SECOND, 0, DAY),
                                   F("ramp_s", AS_I64, drill_effect, ramp_us, SECOND, 0, DAY),
                                   F("prefill", AS_I64, drill_effect, prefill_ppm, 1000000, 1000000, 1000000000),
                                   F("decode", AS_I64, drill_effect, decode_ppm, 1000000, 1000000, 1000000000),
                                   F("errors", AS_U32, drill_effect, error_ppm, 1000000, 0, 1000000),
                                   F("status", AS_U32, drill_effect, error_status, 1, 400, 599),
                                   GROUP("rate", effect_rate),
                                   F("slots", AS_I64, drill_effect, slots_ppm, 1000000, 0, 1000000),
                                   END};
static const field burst[] = {F("every_s", AS_I64, drill_fault, burst_every_us, SECOND, SECOND, DAY),
                              F("length_s", AS_I64, drill_fault, burst_length_us, SECOND, 1, DAY),
                              F("times", AS_I64, drill_fault, burst_ppm, 1000000, 1, 100000000), END};
const field drill_fault_keys[] = {F("name", AS_NAME, drill_fault, name, 0, 0, 0),
                                  F("effects", AS_EFFECTS, drill_fault, effect, 0, 0, 0),
                                  F("cancel_frees", AS_BOOL, drill_fault, cancel_frees, 0, 0, 0),
                                  F("hidden_tries", AS_U32, drill_fault, hidden_tries, 1, 0, 20),
                                  GROUP("burst", burst),
                                  END};

/* ---- the hash */

static uint64_t fold(uint64_t h, const void *bytes, size_t n) { /* FNV-1a */
  for (size_t i = 0; i < n; i++) {
    h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
  }
  return h;
}

static uint64_t fold_fields(uint64_t h, const field *fields, const void *base) {
  for (const field *f = fields; f->key != NULL; f++) {
    const unsigned char *from = (const unsigned char *)base + f->offset;
    int64_t v = 0;
    if (f->kind == AS_GROUP) {
      h = fold_fields(h, f->group, base);
    } else if (f->kind == AS_I64) {
      memcpy(&v, from, sizeof v);
    } else if (f->kind == AS_U32 || f->kind == AS_BOOL || f->kind == AS_STRATEGY || f->kind == AS_TARGET) {
      uint32_t u;
      memcpy(&u, from, sizeof u);
      v = u;
    }
    unsigned char bytes[8];
    for (uint32_t i = 0; i < 8; i++) {
      bytes[i] = (unsigned char)((uint64_t)v >> (8 * i));
    }
    h = strcmp(f->key, "seeds") == 0 ? h : fold(h, bytes, sizeof bytes);
  }
  return h;
}

uint64_t drill_config_hash(const drill_config *c) {
  uint64_t h = fold_fields(UINT64_C(0xcbf29ce484222325), drill_keys, c);
  for (uint32_t i = 0; i < c->fault_count; i++) {
    const drill_fault *f = &c->fault[i];
    h = fold_fields(fold(h, f->name, strlen(f->name)), drill_fault_keys, f);
    for (uint32_t n = 0; n < f->count; n++) {
      h = fold_fields(h, drill_effect_keys, &f->effect[n]);
    }
  }
  return c->card != NULL ? fold(h, c->card, strlen(c->card)) : h;
}
