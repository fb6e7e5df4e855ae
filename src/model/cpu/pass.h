/* A pass: rows of one or several sequences through consecutive layers.
 *
 * A row is one token of one sequence. A segment is a run of consecutive rows of one sequence. Rows
 * live in slots: h holds the residual copies and mix the weights with which the previous sublayer
 * collapses them. Results of a row never depend on the other segments of the pass or on how a
 * sequence was cut into passes.
 *
 * Cone: layer l needs query rows only from q_start(l) = max(0, apex - (top - 1 - l)(W - 1)) on,
 * where `top` is the end of the half and `apex` the first position whose output is wanted; rows
 * before it only contribute window KV. apex 0: all rows. */
#ifndef MOTE_MODEL_CPU_PASS_H
#define MOTE_MODEL_CPU_PASS_H

#include "model/net.h"

typedef struct mote__segment {
    mote__seq *seq;
    uint64_t pos;  /* position of the first row */
    size_t n;      /* rows */
    uint64_t apex; /* see above */
    /* rows from this position on make global KV (UINT64_MAX: none) */
    uint64_t publish_from;
    size_t slot;        /* of the first row; set by mote__pass_begin */
    size_t skip;        /* rows at the front that have left the cone */
    size_t window_skip; /* skip when the current layer made its window KV */
} mote__segment;

typedef struct mote__row {
    uint32_t segment, slot;
    uint64_t pos;
} mote__row;

typedef struct mote__pass {
    mote__net *net;
    mote__segment *segments;
    size_t n_segments; /* borrowed */
    size_t n_slots, capacity;
    mote__row *rows;
    size_t n_rows; /* live rows, in segment and position order */
    /* per slot */
    float *h, *mix, *angles[2];
    /* [topk_room] selected entries of the last selection */
    int32_t *topk;
    uint32_t *n_topk;
    int32_t *candidates;
    uint32_t *n_candidates; /* [candidate_topk_blocks] */
    /* per live row */
    float *pre, *post, *comb, *next, *x, *xq, *y, *qr, *q, *o, *low, *iq, *iw, *router, *e, *ekv;
    /* latents and their gate scores; keys and values of a dense layer */
    float *key, *gate;
    uint8_t *iq_coded; /* iq in integer form, where keys are MXFP4 */
    uint8_t *win;      /* packed window entries of this layer */
    int32_t *expert_id;
    float *expert_weight;
    uint32_t *slots; /* slot of each live row, for gathers */
    /* MoE: one row per (row, expert) pair and one per row for the shared expert */
    float *pair_gate, *pair_up, *pair_out;
    uint32_t *pair_row;
    void *memory;
    size_t memory_bytes; /* all of the above */
    /* index_topk, or more where a sequence of this pass selects more */
    size_t topk_room;
    /* per thread */
    void *thread_memory;
    size_t thread_bytes;
    int n_threads;
    mote__linear_job *jobs;
    /* [o_groups] views of wo_a; behind jobs, in the same memory */
    mote__mat *groups;
    /* of model/cpu/select.c; block maxima grow with the context */
    mote__buf maxima, topk_states;
    /* lists that publish.c and moe.c make anew each layer */
    mote__buf work;
} mote__pass;

void mote__pass_init(mote__pass *pass, mote__net *net);
void mote__pass_deinit(mote__pass *pass);
/* Bytes of scratch one row costs, for choosing how many rows a pass may have. */
size_t mote__pass_row_bytes(const mote__net *net);
/* Free what grows with the number of rows (it comes back with the next mote__pass_begin). */
void mote__pass_shrink(mote__pass *pass);

/* Make room for the segments' rows and lay them out. window/window_fmt must agree over segments of
 * one pass only per segment. 0 or MOTE_ENOMEM. */
int mote__pass_begin(mote__pass *pass, mote__segment *segments, size_t n_segments);
/* Fill h and mix of all rows from token embeddings. */
void mote__pass_embed(mote__pass *pass);
/* Run layers [first, last) over the live rows; `top` for cones is `last`. 0 or MOTE_ENOMEM. */
int mote__pass_layers(mote__pass *pass, size_t first, size_t last);
/* Global KV of the decoder half from the encoder's output (h, mix), for rows from publish_from on.
 */
int mote__pass_publish_decoder(mote__pass *pass);
/* Logits of n live rows (numbers into pass->rows): n x vocab floats. */
int mote__pass_logits(mote__pass *pass, const uint32_t *rows, size_t n, float *logits);
/* Segments' `skip` was changed by the caller: list the live rows anew. */
void mote__pass_list_rows(mote__pass *pass);

/* ---- the parts of a layer (one file each) ---- */
int mote__pass_linear(mote__pass *p, const mote__linear_job *jobs, size_t n_jobs);
/* model/cpu/hyper.c: pre, post, comb of all live rows; x = act(RMSNorm(sum_j mix_j h_j)); h = post
 * y + comb^T h */
int mote__hyper_mixes(mote__pass *p, const mote__hc *hc);
void mote__hyper_collapse(mote__pass *p, const float *mix, int mix_by_slot, const float *norm);
void mote__hyper_expand(mote__pass *p);
/* model/cpu/engram.c: adds the gated lookup to h */
int mote__engram_add(mote__pass *p, size_t layer);
/* model/cpu/publish.c: global KV entries from x */
int mote__publish(mote__pass *p, size_t layer);
/* model/cpu/select.c: topk (and candidates) of all live rows from qr and x */
int mote__select(mote__pass *p, size_t layer);
/* model/cpu/attention.c: window KV of all live rows from x (packed into p->win); then, on the rows
 * the cone kept, y = attention(x) */
int mote__attention_window(mote__pass *p, size_t layer);
int mote__attention(mote__pass *p, size_t layer);
/* model/cpu/moe.c: y = shared expert + routed experts of x (a dense layer has none of the latter)
 */
int mote__moe(mote__pass *p, size_t layer);
/* model/cpu/dense.c: a whole layer of a Llama-style model */
int mote__dense_layer(mote__pass *p, size_t layer, size_t top);
size_t mote__dense_thread_bytes(const mote__config *config);

/* Scratch of one thread, 64-byte aligned, p->thread_bytes long */
void *mote__pass_thread(mote__pass *p, int thread);

#endif
