/* Inputs of MXFP4 linears in fixed point: a product with the weights' codes becomes a sum of
 * integers, which is exact, the same in any order, and computed by byte dot products. kern.h
 * defines the values; this is the layout of an arranged row.
 *
 * A chunk is 512 columns: 16 groups of 32, one for each partial sum. Group i*4 + b of a chunk
 * belongs to sum b*4 + i, because four loads of 64 bytes of weights, transposed as 128-bit parts,
 * put it there. Parts of a chunk:
 *   limbs   byte ((word*2 + odd)*3 + limb)*64 + sum*4 + j: limb of column word*8 + 2j + odd of the
 *           sum's group (word < 4, j < 4); limbs are signed base-256 digits, lowest first
 *   offset  int32[16]: MOTE_FX_BIAS times the sum of a group's integers; kernels multiply by code +
 *           bias, which is unsigned, and subtract the offset
 *   scale   float[16]: the value of the integer 1, halved because codes are doubled; NaN if the
 *           group has an input out of range or a NaN */
#ifndef MOTE_KERN_FIXED_H
#define MOTE_KERN_FIXED_H

#include "kern/kern.h"

enum {
    MOTE_FX_COLUMNS = 512,
    MOTE_FX_GROUPS = 16,
    MOTE_FX_LIMBS = 3,
    MOTE_FX_BIAS = 12,
    MOTE_FX_OFFSET = 8 * MOTE_FX_LIMBS * 64,
    MOTE_FX_SCALE = MOTE_FX_OFFSET + 64,
    MOTE_FX_BYTES = MOTE_FX_SCALE + 64,
};

/* The group of a chunk that partial sum `lane` adds. */
static inline size_t mote__fx_group(size_t lane) { return lane % 4 * 4 + lane / 4; }

/* Arrange x[0..n_in), n_in % 32 == 0, into dst (mote__arranged_size floats). */
void mote__fx_arrange(void *dst, const float *x, size_t n_in);
/* Output o of w for the arranged row xp: the scalar definition. */
float mote__fx_dot(const mote__mat *w, size_t o, const void *xp);

#endif
