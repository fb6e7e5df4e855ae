/* Rotary position embedding with YaRN: frequencies once, cosines and sines per position, rotation of adjacent pairs of the
 * last `dim` features. angle = fp32(position * fp32 frequency); YaRN changes frequencies only. Source: docs/architecture.md. */
#ifndef MOTE_MODEL_ROPE_H
#define MOTE_MODEL_ROPE_H

#include <stddef.h>
#include <stdint.h>

enum { MOTE_MAX_ROPE_DIM = 512 };

typedef struct mote__rope { size_t dim; float freq[MOTE_MAX_ROPE_DIM / 2]; } mote__rope;

/* original == 0: no YaRN */
void mote__rope_init(mote__rope *rope, size_t dim, double theta, double factor, double beta_fast, double beta_slow, size_t original);
/* cs[dim]: cos, sin of each pair, interleaved */
void mote__rope_angles(float *cs, const mote__rope *rope, uint64_t pos);
/* Rotate the last `dim` features of n_vectors vectors of n features that lie one after the other; inverse: back. */
void mote__rope_apply(float *x, size_t n_vectors, size_t n, const float *cs, size_t dim, int inverse);

#endif
