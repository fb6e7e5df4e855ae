/* Inside kern/: each variant overwrites in the table what it does better. */
#ifndef MOTE_KERN_VARIANTS_H
#define MOTE_KERN_VARIANTS_H

#include "kern/kern.h"

void mote__kern_fill_scalar(mote__kern_ops *ops);
void mote__index_scores_scalar(float *scores, const mote__index_query *q, const uint8_t *codes, const uint8_t *scales,
                               size_t n_tiles);
#if defined(MOTE_KERN_X86)
void mote__kern_fill_avx2(mote__kern_ops *ops);
void mote__kern_fill_avx512(mote__kern_ops *ops);
#endif

#endif
