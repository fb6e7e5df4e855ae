/* Inside src/model/cpu/moe*.c: the experts of one layer for the rows of a batch. */
#ifndef MOTE_MODEL_CPU_MOE_H
#define MOTE_MODEL_CPU_MOE_H

#include "model/cpu/pass.h"

struct moe {
    mote__cpu_pass *p;
    const mote__layer_weights *L;
    const mote__layer_plan *plan;
    size_t layer, n_rows;
    const float *rounded; /* x on the grid of published math, once somebody wants it */
    /* of p->pairs: pairs of an expert are consecutive, the shared one's rows lie behind them */
    uint32_t *row_of;     /* [pairs] */
    float *weight_of;     /* [pairs] */
    uint32_t *first_pair; /* [n_experts + 1] */
    uint32_t *fill;       /* [n_experts] */
    uint32_t *wanted;     /* [n_experts] experts with pairs, ascending */
    size_t n_wanted;
    uint32_t *batch; /* [pairs] those whose experts are being computed */
    size_t n_batch;
    mote__ready_expert *ready; /* [n_experts + 1] */
};

/* pair_gate of a pair = weight swiglu(pair_gate, pair_up), as the model's math wants it. */
void mote__moe_activate(mote__cpu_pass *pass, size_t pair, float weight);
/* y of all rows, after sort_pairs: more rows than a tile has. */
int mote__moe_wide(struct moe *m);

#endif
