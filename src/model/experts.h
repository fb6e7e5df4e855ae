/* Routed experts of one layer at a time: asked for together, used as they become ready. Where their
 * matrices lie, and when they get there, is the object's business; in what order they come changes
 * no bit of the result (model/cpu/moe.c).
 *
 * A layer's use: want, then next and release until each of them was ready once. After an error of
 * next, or to leave early, drop. One layer at a time; one thread. */
#ifndef MOTE_MODEL_EXPERTS_H
#define MOTE_MODEL_EXPERTS_H

#include "model/weights.h"

typedef struct mote__ready_expert {
    uint32_t id;
    const mote__expert *weights; /* good until its release */
} mote__ready_expert;

typedef struct mote__experts mote__experts;
typedef struct mote__experts_ops {
    /* ids: n different experts of `layer`, ascending; borrowed until the last of them was ready or
     * drop. in_order: they are given in this order. 0 or a negative code. */
    int (*want)(mote__experts *e, size_t layer, const uint32_t *ids, size_t n, int in_order);
    /* Wait for at least one that was not given yet and give up to `most` of those that are ready.
     * Returns how many (0: all of them were given) or a negative code. */
    long (*next)(mote__experts *e, mote__ready_expert *ready, size_t most);
    /* The matrices of these are no longer read. */
    void (*release)(mote__experts *e, const mote__ready_expert *ready, size_t n);
    void (*drop)(mote__experts *e);
} mote__experts_ops;

struct mote__experts {
    const mote__experts_ops *ops;
};

/* All in memory: every one is ready at once. */
typedef struct mote__resident_experts {
    mote__experts base;
    const mote__weights *weights; /* borrowed */
    const mote__expert *layer;
    const uint32_t *ids;
    size_t n, n_given;
} mote__resident_experts;
void mote__resident_experts_init(mote__resident_experts *e, const mote__weights *weights);

#endif
