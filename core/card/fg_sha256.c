/* SHA-256, after FIPS 180-4 §6.2. Plain and portable: a fingerprint of a card is a few megabytes at most. */
#include "fg_sha256.h"

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, uint32_t n) {
  return x >> n | x << (32 - n);
}

static void compress(uint32_t *state, const uint8_t *p) {
  uint32_t w[64];
  for (uint32_t i = 0; i < 16; i++) {
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
  }
  for (uint32_t i = 16; i < 64; i++) {
    uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t v[8]; /* a to h; instead of moving them, each round calls them by other names */
  memcpy(v, state, sizeof v);
#define V(n) v[((n) - i) & 7]
#define ROUND(k)                                                                                                                       \
  do {                                                                                                                                 \
    uint32_t i = (k), e = V(4), a = V(0);                                                                                              \
    uint32_t t = V(7) + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (V(6) ^ (e & (V(5) ^ V(6)))) + K[at + i] + w[at + i];          \
    V(3) += t;                                                                                                                         \
    V(7) = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & V(1)) | (V(2) & (a | V(1))));                                     \
  } while (0)
  for (uint32_t at = 0; at < 64; at += 8) {
    ROUND(0U);
    ROUND(1U);
    ROUND(2U);
    ROUND(3U);
    ROUND(4U);
    ROUND(5U);
    ROUND(6U);
    ROUND(7U);
  }
  for (uint32_t i = 0; i < 8; i++) {
    state[i] += v[i];
  }
}

void fg_sha256_init(fg_sha256 *s) {
  static const uint32_t START[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memset(s, 0, sizeof *s);
  memcpy(s->state, START, sizeof START);
}

void fg_sha256_add(fg_sha256 *s, const void *bytes, uint64_t len) {
  const uint8_t *p = bytes;
  s->bytes += len;
  while (len > 0) {
    if (s->fill == 0 && len >= 64) {
      compress(s->state, p);
      p += 64;
      len -= 64;
      continue;
    }
    uint32_t take = len < 64 - s->fill ? (uint32_t)len : 64 - s->fill;
    memcpy(s->block + s->fill, p, take);
    s->fill += take;
    p += take;
    len -= take;
    if (s->fill == 64) {
      compress(s->state, s->block);
      s->fill = 0;
    }
  }
}

void fg_sha256_end(fg_sha256 *s, uint8_t out[32]) {
  uint64_t bits = s->bytes * 8;
  s->block[s->fill++] = 0x80;
  if (s->fill > 56) {
    memset(s->block + s->fill, 0, 64 - s->fill);
    compress(s->state, s->block);
    s->fill = 0;
  }
  memset(s->block + s->fill, 0, 56 - s->fill);
  for (uint32_t i = 0; i < 8; i++) {
    s->block[56 + i] = (uint8_t)(bits >> (56 - 8 * i));
  }
  compress(s->state, s->block);
  for (uint32_t i = 0; i < 32; i++) {
    out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
  }
}

void fg_sha256_text(fg_sha256 *s, char *buf) {
  uint8_t digest[32];
  fg_sha256_end(s, digest);
  memcpy(buf, "sha256:", 7);
  for (uint32_t i = 0; i < 32; i++) {
    buf[7 + 2 * i] = "0123456789abcdef"[digest[i] >> 4];
    buf[8 + 2 * i] = "0123456789abcdef"[digest[i] & 15];
  }
  buf[FG_FINGERPRINT_LEN] = 0;
}
