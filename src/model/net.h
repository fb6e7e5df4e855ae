/* The loaded model: everything that does not change while sequences run through it. */
#ifndef MOTE_MODEL_NET_H
#define MOTE_MODEL_NET_H

#include "base/threads.h"
#include "kern/linear.h"
#include "kv/cache.h"
#include "kv/state.h"
#include "model/engram_hash.h"
#include "model/rope.h"
#include "model/weights.h"

/* Watch and steer a pass, for tests against recorded layers. All may be NULL. */
typedef struct mote__trace {
    void *ctx;
    /* before a layer runs: h [n_rows][hc][hidden] and mix [n_rows][hc] of its input rows may be
     * overwritten */
    void (*enter)(void *ctx, size_t layer, float *h, float *mix, size_t n_rows);
    /* a tensor of `layer`, fp32 or int32 [n_rows][n_cols]; names as in tests/reference (engram_ids
     * come row by row) */
    void (*f32)(void *ctx, size_t layer, const char *name, const float *data, size_t n_rows,
                size_t n_cols);
    void (*i32)(void *ctx, size_t layer, const char *name, const int32_t *data, size_t n_rows,
                size_t n_cols);
} mote__trace;

typedef struct mote__net {
    mote__config config;
    mote__layer_plan plan[MOTE_MAX_LAYERS];
    mote__weights weights;
    const mote__kern_ops *kern;
    mote__pool *pool;
    mote__meter *meter;
    mote__linear_ctx linear;
    /* --math published: BF16 activations, FP8-grid inputs of quantised linears */
    int published;
    mote__rope rope[2]; /* window-only layers, layers with a ratio */
    mote__engram_table engram[MOTE_MAX_ENGRAM];
    /* [vocab_size] Engram class of a token; NULL without Engram */
    int32_t *token_map;
    const mote__trace *trace; /* borrowed, usually NULL */
} mote__net;

/* One sequence as the model sees it. */
typedef struct mote__seq {
    mote__kv_cache kv;
    mote__kv_state state;
    const int32_t *ids; /* all tokens, the new ones included; borrowed */
    size_t topk;        /* entries a query selects; 0: index_topk */
    int all_candidates; /* 1: every selection scores all entries */
} mote__seq;
static inline size_t mote__seq_topk(const mote__seq *seq, const mote__config *c)
{
    return seq->topk ? seq->topk : c->index_topk;
}

/* Round to BF16 in published math; nothing otherwise. */
void mote__act(const mote__net *net, float *x, size_t n);
/* The input of linear `m` as published math wants it: x itself, or x on the FP8 grid in `buf` when
 * m is block-scaled. */
const float *mote__linear_input(const mote__net *net, const mote__mat *m, const float *x,
                                size_t n_rows, float *buf);

#endif
