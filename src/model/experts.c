#include "model/experts.h"

static int want(mote__experts *base, size_t layer, const uint32_t *ids, size_t n, int in_order)
{
    (void)in_order; /* always */
    mote__resident_experts *e = (mote__resident_experts *)base;
    e->layer = e->weights->layers[layer].experts;
    e->ids = ids;
    e->n = n;
    e->n_given = 0;
    return 0;
}

static long next(mote__experts *base, mote__ready_expert *ready, size_t most)
{
    mote__resident_experts *e = (mote__resident_experts *)base;
    size_t n = e->n - e->n_given < most ? e->n - e->n_given : most;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = e->ids[e->n_given++];
        ready[i] = (mote__ready_expert){ id, &e->layer[id] };
    }
    return (long)n;
}

static void release(mote__experts *base, const mote__ready_expert *ready, size_t n)
{
    (void)base, (void)ready, (void)n; /* they stay */
}

static void drop(mote__experts *base)
{
    mote__resident_experts *e = (mote__resident_experts *)base;
    e->n = e->n_given = 0;
}

void mote__resident_experts_init(mote__resident_experts *e, const mote__weights *weights)
{
    static const mote__experts_ops ops = { want, next, release, drop };
    *e = (mote__resident_experts){ .base = { &ops }, .weights = weights };
}
