/* The CPU's pass object: scratch of one pass, and the parts of a layer that work in it (one file
 * each; what each reads and leaves is in model/backend.h). Scalar kernels of kern/ are the
 * definition of every backend.
 *
 * Arrays are [n_tokens] (the carry, angles), [n_rows], or of a tile's rows, each item as wide as
 * its name says. What goes from part to part is by row; what one part or one tile of attention
 * needs is by tile, so that a row of a wide pass costs little more than its residual copies. Those
 * of a layer's parts that are never live together share memory: see the table in pass.c. */
#ifndef MOTE_MODEL_CPU_PASS_H
#define MOTE_MODEL_CPU_PASS_H

#include "kern/linear.h"
#include "model/net.h"

/* of a wide batch: experts (pieces of their rows) computed together at most */
enum { MOTE_WIDE_EXPERTS = 64 };

typedef struct mote__cpu_pass {
    mote__backend_pass base;
    mote__net *net;           /* = base.net */
    const mote__batch *batch; /* = base.batch */
    /* the carry */
    float *h;               /* [hc_mult][hidden_size] */
    float *mix;             /* [hc_mult] */
    int32_t *topk;          /* [topk_room] */
    uint32_t *n_topk;       /* [1] */
    int32_t *candidates;    /* [candidate_topk_blocks] */
    uint32_t *n_candidates; /* [1] */
    float *angles[2];       /* [rope_dim]: of window-only layers, of layers with a ratio */
    /* by row */
    float *x;                  /* [hidden_size] input of a sublayer */
    float *y;                  /* [hidden_size] its output */
    float *mix_products;       /* [(2 + hc_mult) hc_mult] raw products of mixes */
    float *post, *comb;        /* [hc_mult], [hc_mult][hc_mult] weights of expand */
    float *window_kv;          /* [head_dim] */
    uint8_t *window_packed;    /* by token: the layer's window entry, at most 4 head_dim bytes */
    float *latent, *pool_gate; /* [head_dim] of a KV source: latents, and their scores */
    float *dense_key, *dense_value; /* [n_kv_heads][head_dim] */
    float *router;                  /* [n_experts] */
    int32_t *expert_id;             /* [n_per_token] */
    float *expert_weight;           /* [n_per_token] */
    /* a pair is (row, expert); n_per_token routed ones and the shared one a row */
    uint32_t *pair_of_row; /* pairs of a row, in the order of their sum */
    /* by row of a tile */
    float *rounded;                /* a linear's input on the grid of published math */
    float *query_low, *query;      /* [q_lora_rank], [n_heads][head_dim] */
    float *attended;               /* [n_heads][head_dim] */
    float *attended_low;           /* [o_groups][o_lora_rank] */
    float *index_query;            /* [index_n_heads][index_head_dim] */
    float *index_weight;           /* [index_n_heads] */
    uint8_t *index_coded;          /* index_query in integer form, where keys are MXFP4 */
    float *engram_rows;            /* the looked-up rows, one after the other */
    float *engram_kv;              /* [hc_mult keys, 1 value][hidden_size] */
    float *pair_gate, *pair_up;    /* [n_per_token + 1][moe_intermediate_size] */
    float *pair_out;               /* [n_per_token + 1][hidden_size] */
    void *memory;                  /* all of the above, owned */
    size_t memory_bytes, capacity; /* capacity: tokens */
    size_t tile_room;              /* rows of a tile: all of them where attention is not tiled */
    size_t topk_room;              /* what the above has room for */
    /* per thread */
    void *thread_memory;
    size_t thread_bytes;
    int n_threads;
    mote__threads *first_threads; /* whose threads linear was made for */
    mote__linear_ctx linear;
    mote__linear_job *jobs;
    /* behind jobs, in the same memory: views of wo_a [o_groups]; jobs as published math wants them
     */
    mote__mat *output_groups, *published_views;
    mote__linear_job *published_jobs;
    mote__buf block_maxima; /* select.c: they grow with the context */
    mote__buf topk_states;  /* select.c */
    mote__buf entries;      /* publish.c: what a layer publishes */
    mote__buf pairs;        /* moe.c: pairs by expert */
    mote__buf query_tiles;  /* dense.c */
    mote__buf stashed_h;
    mote__buf row_numbers; /* of tables: embed, engram.c */
} mote__cpu_pass;

static inline mote__cpu_pass *mote__cpu_pass_of(mote__backend_pass *base)
{
    return (mote__cpu_pass *)base;
}

/* The table of this backend. */
const mote__backend_ops *mote__cpu_backend(void);

/* Scratch of one thread, 64-byte aligned, thread_bytes long */
void *mote__cpu_thread(mote__cpu_pass *pass, int thread);
int mote__cpu_linear(mote__cpu_pass *pass, const mote__linear_job *jobs, size_t n_jobs);
/* Round to BF16 in published math; nothing otherwise. */
void mote__act(const mote__net *net, float *x, size_t n);
/* The rows from `first` on, at most as many as a tile has room for. */
static inline mote__tile mote__cpu_tile(const mote__cpu_pass *pass, size_t first)
{
    size_t left = pass->batch->n_rows - first;
    return (mote__tile){ first, left < pass->tile_room ? left : pass->tile_room };
}
/* y [n_rows][n_out] of x [n_rows][n_in], a tile at a time: any number of rows. */
int mote__cpu_linear_rows(mote__cpu_pass *pass, const mote__mat *w, const float *x, size_t n_rows,
                          float *y);
/* The input of linear `m` as published math wants it: x itself, or x on the FP8 grid in `buf` when
 * m is block-scaled. */
const float *mote__linear_input(const mote__net *net, const mote__mat *m, const float *x,
                                size_t n_rows, float *buf);
/* A tensor of the layer for the trace: by row, or by token where all are live. */
void mote__cpu_trace(const mote__cpu_pass *pass, size_t layer, const char *name, const float *data,
                     size_t n_cols);
void mote__cpu_trace_tokens(const mote__cpu_pass *pass, size_t layer, const char *name,
                            const float *data, size_t n_cols);

/* hyper.c */
int mote__cpu_collapse(mote__backend_pass *pass, size_t layer, mote__sublayer sub);
int mote__cpu_mixes(mote__backend_pass *pass, size_t layer, mote__sublayer sub);
int mote__cpu_expand(mote__backend_pass *pass, size_t layer, mote__sublayer sub);
/* x = norm of the collapsed h of n rows: those in `rows`, or the first n */
void mote__cpu_collapse_rows(mote__cpu_pass *pass, const uint32_t *rows, size_t n,
                             const float *norm);
/* engram.c */
int mote__cpu_engram(mote__backend_pass *pass, size_t layer);
/* publish.c */
int mote__cpu_publish(mote__backend_pass *pass, size_t layer);
/* select.c: the sparse indexer of a selecting layer: scores of all visible entries of its source
 * (or of those inside the candidate blocks), in strips with a running top-k. Nothing grows with the
 * context but block maxima of the candidate source. */
int mote__cpu_select(mote__backend_pass *pass, size_t layer, mote__tile tile);
size_t mote__cpu_select_thread_bytes(const mote__config *config);
/* attention.c */
int mote__cpu_window(mote__backend_pass *pass, size_t layer);
int mote__cpu_queries(mote__backend_pass *pass, size_t layer, mote__tile tile);
int mote__cpu_attend(mote__backend_pass *pass, size_t layer, mote__tile tile);
size_t mote__cpu_attend_thread_bytes(const mote__config *config, size_t topk_room);
/* moe.c */
int mote__cpu_moe(mote__backend_pass *pass, size_t layer);
/* sqrt(softplus(z)) or sigmoid(z); not for softmax, which is of all of them */
double mote__router_score(mote__score_func f, double z);
/* lookahead.c: guesses which experts `layer` + 1 will want from this layer's x, and tells
 * net->experts. After the layer's routing, before its experts: it uses the memory of `router` and
 * `rounded`. No result depends on it. */
int mote__cpu_look_ahead(mote__cpu_pass *pass, size_t layer, size_t n_rows);
/* dense.c */
int mote__cpu_dense_project(mote__backend_pass *pass, size_t layer);
int mote__cpu_dense_attend(mote__backend_pass *pass, size_t layer);
int mote__cpu_dense_add(mote__backend_pass *pass, size_t layer, mote__sublayer sub);
size_t mote__cpu_dense_thread_bytes(const mote__config *config);

#endif
