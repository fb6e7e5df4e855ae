/* Rotary position embedding: frequencies once, cosines and sines per position, rotation of adjacent
 * pairs of the last `dim` features (V4.1) or of the two halves of a vector (Llama-style models).
 * angle = fp32(position * fp32 frequency); YaRN changes frequencies only, and in Llama-style models
 * the length of the rotated vectors. Source: docs/architecture.md. */
#ifndef MOTE_MODEL_ROPE_H
#define MOTE_MODEL_ROPE_H

#include <stddef.h>
#include <stdint.h>

#include "file/config.h"

enum { MOTE_MAX_ROPE_DIM = MOTE_MAX_HEAD_DIM };

/* scale: of cos and sin */
typedef struct mote__rope {
    size_t dim;
    float scale, freq[MOTE_MAX_ROPE_DIM / 2];
} mote__rope;

/* original == 0: no YaRN */
void mote__rope_init(mote__rope *rope, size_t dim, double theta, double factor, double beta_fast,
                     double beta_slow, size_t original);
/* Stretch frequencies of wavelengths above original / low by factor, none below original / high,
 * and in between by a blend. */
void mote__rope_llama3(mote__rope *rope, double factor, double low, double high, size_t original);
/* cs[dim]: cos, sin of each pair, interleaved */
void mote__rope_angles(float *cs, const mote__rope *rope, uint64_t pos);
/* Rotate the last `dim` features of n_vectors vectors of n features that lie one after the other;
 * inverse: back. */
void mote__rope_apply(float *x, size_t n_vectors, size_t n, const float *cs, size_t dim,
                      int inverse);
/* Rotate n_vectors vectors of dim features; feature i goes with feature i + dim / 2. */
void mote__rope_apply_halves(float *x, size_t n_vectors, const float *cs, size_t dim);

#endif
