/* Internal to kern/: the functions that fill a table. Each level overwrites the entries that it has
 * a faster variant of. The scalar functions below are shared with the variants. */
#ifndef MOTE_KERN_VARIANTS_H
#define MOTE_KERN_VARIANTS_H

#include "kern/kern.h"

void mote__kern_fill_scalar(mote__kern_ops *ops);
void mote__index_scores_scalar(float *scores, const mote__index_query *q,
                               const mote__index_tiles *runs, size_t n_runs);
void mote__expand_scalar(float *h, const float *y, const float *post, const float *comb, size_t n,
                         size_t d);
void mote__linear_scalar(const mote__mat *w, size_t o0, size_t o1, const float *xp, size_t n_rows,
                         size_t ldxp, float *y, size_t ldy, float *scratch);
#if defined(__x86_64__)
#define MOTE_KERN_X86 1
void mote__kern_fill_avx2(mote__kern_ops *ops);
void mote__kern_fill_avx512(mote__kern_ops *ops);
/* after mote__kern_fill_avx512, if the processor has AVX512-BF16 */
void mote__kern_fill_avx512bf16(mote__kern_ops *ops);
#endif

#endif
