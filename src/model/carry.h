/* What one layer hands to the next, by token of the batch: all that a pass needs of the layers
 * before it beside the sequences themselves. A cut between layers (mote__plan_cuts) copies it from
 * one pass into another: on another backend, or another host. */
#ifndef MOTE_MODEL_CARRY_H
#define MOTE_MODEL_CARRY_H

#include <stddef.h>
#include <stdint.h>

/* Arrays of n_tokens items each; the widths are per token. Whoever filled the struct in owns
 * them. */
typedef struct mote__carry {
    size_t n_tokens, h_width, mix_width, topk_room, candidate_room;
    float *h;   /* residual copies, one after the other */
    float *mix; /* weights with which the next sublayer collapses them */
    /* entries of the last selection, ascending; how many */
    int32_t *topk;
    uint32_t *n_topk;
    /* candidate blocks for the selections behind it; how many */
    int32_t *candidates;
    uint32_t *n_candidates;
} mote__carry;

/* Of the same shape: overwrite what `to` points to. */
void mote__carry_copy(mote__carry *to, const mote__carry *from);

#endif
