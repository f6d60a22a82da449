/* SHA-256 (FIPS 180-4), for fingerprints only. */
#ifndef FG_SHA256_H
#define FG_SHA256_H

#include "fg_base.h"

typedef struct fg_sha256 {
  uint32_t state[8], fill;
  uint64_t bytes;
  uint8_t block[64];
} fg_sha256;

enum { FG_FINGERPRINT_LEN = 71 }; /* "sha256:" and 64 hex digits */

void fg_sha256_init(fg_sha256 *s);
void fg_sha256_add(fg_sha256 *s, const void *bytes, uint64_t len);
void fg_sha256_end(fg_sha256 *s, uint8_t out[32]);
/* Ends s; writes "sha256:…" and a NUL into buf (72 bytes). */
void fg_sha256_text(fg_sha256 *s, char *buf);

#endif /* FG_SHA256_H */
