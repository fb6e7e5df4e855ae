/* The lane order of sums (kern.h) as functions, for the scalar definitions, x86 tails and tests. */
#ifndef MOTE_KERN_LANES_H
#define MOTE_KERN_LANES_H

#include <stddef.h>

#include "kern/kern.h"

enum { MOTE_LANES = 16 };

/* Columns per 32-bit word of weights. */
static inline size_t mote__columns_per_word(mote__wkind kind)
{
    return kind >= MOTE_W_MXFP4 ? 8 : kind == MOTE_W_FP8 ? 4 : kind == MOTE_W_BF16 ? 2 : 1;
}

/* Index of column k in an arranged row; index % 16 is its partial sum. Not for E2M1, see
 * kern/fixed.h. E4M3: of each 16 bytes, word i of a sum holds columns 2i, 2i+1, 8+2i, 8+2i+1, the
 * order in which bytes are unpacked within 128 bits. */
static inline size_t mote__arranged_at(mote__wkind kind, size_t k)
{
    if (kind == MOTE_W_FP8)
        return k / 64 * 64 + (k / 8 % 2 * 2 + k % 2) * 16 + k / 16 % 4 * 4 + k / 2 % 4;
    size_t g = mote__columns_per_word(kind);
    return k / (16 * g) * (16 * g) + k % g * 16 + k / g % 16;
}

/* Add 16 partial sums in the fixed tree order; overwrites p. */
static inline float mote__lane_tree(float *p)
{
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            p[i] = p[i] + p[i + half];
    return p[0];
}

#endif
