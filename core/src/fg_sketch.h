/* Learned times of one kind of answer on one route: first token = a + b x prompt tokens, and how actual times spread around it.
 *
 * fit[8]: one self-contained word per prompt octave, n:5 stamp:14 mean_tokens_q2:22 mean_ms_q3:23. ratio[36]: 144 log-linear counters (u16)
 * of actual / predicted in Q6, up to 64x. Quantiles are prediction x ratio. When to learn (not in a brownout) is the caller's rule. */
#ifndef FG_SKETCH_H
#define FG_SKETCH_H

#include "fg_atomic.h"

enum { FG_FIT_BINS = 8, FG_RATIO_CELLS = 144, FG_RATIO_WORDS = FG_RATIO_CELLS / 4, FG_SKETCH_HALVE = 1000 };
enum { FG_LEARN_STREAM = 0, FG_LEARN_WHOLE = 1, FG_LEARN_STREAM_REASONING = 2, FG_LEARN_WHOLE_REASONING = 3, FG_LEARN_KINDS = 4 };

typedef struct fg_learn { /* 384 bytes */
  fg_word seen;             /* samples ever */
  fg_word rate;             /* n:8 mean:28 deviation:28: output tokens per 1000 s */
  fg_word fit[FG_FIT_BINS];
  fg_word ratio[FG_RATIO_WORDS];
  fg_word spare[2];
} fg_learn;
_Static_assert(sizeof(fg_learn) == 384, "a learn block is 384 bytes");

typedef struct fg_quantile { uint32_t ms, samples; } fg_quantile; /* ms 0: no sample yet */

void fg_learn_record(fg_learn *l, uint32_t prompt_tokens, uint32_t actual_ms);
/* Expected ms, 0 when nothing was seen. */
uint32_t fg_learn_predict(const fg_learn *l, uint32_t prompt_tokens);
/* q in ppm: 500000 the median, 990000 q99. Past FG_SKETCH_HALVE samples the reader halves the counters. */
fg_quantile fg_learn_quantile(fg_learn *l, uint32_t prompt_tokens, uint32_t q_ppm);
uint32_t fg_learn_samples(const fg_learn *l);
/* Output speed of one complete answer. */
void fg_learn_rate(fg_learn *l, uint32_t output_tokens, uint32_t ms);
/* Suggested time for output_tokens: tokens / rate + 10 s; rate 12/s at first, the mean from 10 samples, a slow one (about p5) from 50. */
uint32_t fg_learn_total_ms(const fg_learn *l, uint32_t output_tokens);
uint32_t fg_learn_rate_milli(const fg_learn *l); /* learned mean, tokens per 1000 s; 0 unknown */

/* Log-linear cells, 16 an octave, values below 16 themselves: relative error of the mid-point at most 1/32. */
uint32_t fg_sketch_index(uint64_t v);
uint64_t fg_sketch_low(uint32_t index);   /* smallest value of the cell */
uint64_t fg_sketch_width(uint32_t index);
uint64_t fg_sketch_mid(uint32_t index);
/* Counters, four u16 a word; n words. */
void fg_sketch_add(fg_word *w, uint32_t n, uint32_t index);
uint32_t fg_sketch_count(const fg_word *w, uint32_t n);
uint32_t fg_sketch_rank(const fg_word *w, uint32_t n, uint32_t q_ppm); /* cell of rank ceil(q x count); UINT32_MAX when empty */
void fg_sketch_halve(fg_word *w, uint32_t n);

#endif /* FG_SKETCH_H */
