/* Where the matrices of each group of weights lie: in the mapped files, or copied into huge pages,
 * which are read faster (fewer misses of address translation) and cannot be dropped under memory
 * pressure. Results never depend on it. */
#ifndef MOTE_MODEL_PLACE_H
#define MOTE_MODEL_PLACE_H

#include "base/threads.h"
#include "model/weights.h"

/* What AUTO becomes for groups of `bytes`, with `available` bytes of memory free: groups are copied
 * in the order of mote_weight_group, that of use, as long as all copies take at most half of the
 * free memory and at most MOTE_AUTO_COPY_MOST; a group that does not fit is mapped, experts are
 * streamed; the tables, of which a token reads some rows, are streamed with them, else mapped. */
#define MOTE_AUTO_COPY_MOST ((uint64_t)32 << 30)
void mote__place_choose(mote_weights placing[MOTE_WEIGHT_GROUPS],
                        const uint64_t bytes[MOTE_WEIGHT_GROUPS], uint64_t available);

/* Bytes of the matrices of each group: what a copy takes. */
void mote__place_bytes(mote__weights *w, uint64_t bytes[MOTE_WEIGHT_GROUPS]);

/* Copies the groups that `placing` says, AUTO as above, and leaves the others mapped; w->placed
 * then says what it did. STREAM is of experts and tables; for other groups it is AUTO. Without
 * memory for it AUTO is mapped, COPY is MOTE_ENOMEM and names the groups. progress as in
 * mote_model_params; MOTE_ECANCELED when it says so. After an error all is as before. */
int mote__weights_place(mote__weights *w, const mote_weights placing[MOTE_WEIGHT_GROUPS],
                        mote__threads *pool, mote_progress progress, void *progress_ctx,
                        mote_err *err);

/* Published math: a wo_a that is F32 in the file becomes BF16, since the published code multiplies
 * with it as a plain BF16 matrix. 0 or MOTE_ENOMEM. */
int mote__weights_round_outputs(mote__weights *w);

#endif
