/* Inputs of MXFP4 linears as fixed point, so that a product with the codes of weights is a sum of
 * integers: exact, the same in any order, and made of byte dot products. kern.h says what is
 * computed; this is how an arranged row lies.
 *
 * A chunk is 512 columns: 16 groups of 32, one for each partial sum. Group i*4 + b of a chunk
 * belongs to sum b*4 + i, because four loads of 64 bytes of weights, transposed in 128-bit parts,
 * bring it there. limbs   byte ((word*2 + odd)*3 + limb)*64 + sum*4 + j: limb of column word*8 + 2j
 * + odd of the sum's group (word < 4, j < 4) offset  int32[16] MOTE_FX_BIAS times the sum of a
 * group's integers: kernels multiply by code + bias, which has no sign scale   float[16] what an
 * integer counts, halved because codes count halves; NaN: the group holds what is no number */
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

/* the group of a chunk that partial sum `lane` adds up */
static inline size_t mote__fx_group(size_t lane) { return lane % 4 * 4 + lane / 4; }

void mote__fx_arrange(void *dst, const float *x, size_t n_in);
/* output o of one arranged row: the definition */
float mote__fx_dot(const mote__mat *w, size_t o, const void *xp);

#endif
