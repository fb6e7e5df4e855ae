/* Where the matrices of linears lie: in the mapped files, or copied into huge pages, which are read
 * faster (fewer misses of address translation) and cannot be dropped under memory pressure.
 * Embedding and Engram tables are read row by row and stay mapped. Results never depend on it. */
#ifndef MOTE_MODEL_PLACE_H
#define MOTE_MODEL_PLACE_H

#include "base/threads.h"
#include "model/weights.h"

/* What mode becomes for matrices of `bytes`, with `available` bytes of memory free. AUTO copies
 * what takes at most half of the free memory and at most MOTE_AUTO_COPY_MOST. */
#define MOTE_AUTO_COPY_MOST ((uint64_t)32 << 30)
mote_weights mote__place_choose(mote_weights mode, uint64_t bytes, uint64_t available);

/* Copies, or leaves everything alone; `w` then says what it did (w->copy NULL: mapped). With AUTO,
 * too little memory is no error. progress as in mote_model_params; MOTE_ECANCELED when it says so.
 */
int mote__weights_place(mote__weights *w, mote_weights mode, mote__pool *pool,
                        int (*progress)(void *, const char *, double), void *progress_ctx,
                        mote_err *err);

/* Codes and scales of an expert's three matrices. */
size_t mote__expert_bytes(const mote__expert *x);

/* Published math: matrices of MXFP4 take BF16 inputs from now on, and a wo_a that is F32 in the
 * file becomes BF16: the published code multiplies with it as a plain BF16 matrix. 0 or
 * MOTE_ENOMEM. */
int mote__weights_publish_math(mote__weights *w);

#endif
