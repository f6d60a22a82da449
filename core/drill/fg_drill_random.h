/* Chance, in integers: splitmix64 streams, one for each purpose, and the two distributions the drills draw from. */
#ifndef FG_DRILL_RANDOM_H
#define FG_DRILL_RANDOM_H

#include <stdint.h>

enum {                       /* what a stream is for: every strategy sees the same arrivals and sizes, however often it draws */
       DRILL_FOR_A = 1,      /* arrivals of population A */
       DRILL_FOR_B = 2,      /* arrivals at the first backup; the next backup's is one more */
       DRILL_FOR_SIZES = 20, /* sizes of a request, by its number */
       DRILL_FOR_TENANT = 21,
       DRILL_FOR_ERRORS = 22, /* does an attempt fail, by request and attempt */
       DRILL_FOR_NOISE = 23,  /* speed of an attempt */
       DRILL_FOR_POLICY = 24  /* the client's own choices */
};

/* The start of a stream. */
uint64_t drill_stream(uint64_t seed, uint64_t purpose);
/* The next 64 bits of a stream. */
uint64_t drill_next(uint64_t *state);
/* 64 bits that depend on three numbers only. */
uint64_t drill_hash(uint64_t seed, uint64_t a, uint64_t b);
/* True with this probability, in parts per million. */
int drill_chance(uint64_t bits, uint32_t ppm);
/* ln(x) for x >= 1; 2^30 is 1. */
int64_t drill_ln(uint64_t x);
/* Exponential with mean 1,000,000, from 64 random bits. */
int64_t drill_exponential(uint64_t bits);
/* Log-normal with mean 1,000,000 and this coefficient of variation (parts per million), drawn from a stream. */
int64_t drill_lognormal(uint64_t *state, uint32_t cv_ppm);

#endif /* FG_DRILL_RANDOM_H */
