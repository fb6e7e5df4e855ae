/* A backend: how the parts of a layer are computed. model/layer.c decides which parts run and in
 * what order; which backend runs a layer is a field of the layer plan. Every backend gives the bits
 * of the CPU's.
 *
 * Rules of a call:
 * (1) It works on the batch's rows as they are now, and reads what the calls before it left: each
 *     function says which. x, y and the like are names of a backend's own scratch.
 * (2) It may return before the work is done; sync waits. The KV of the batch's sequences, the carry
 *     and logits are the host's to read after sync only.
 * (3) It returns 0 or MOTE_ENOMEM (or what else made it fail); after a failure the pass is only fit
 *     for another begin. What the sequences hold beyond their old length is then undefined.
 * (4) One thread calls; one pass at a time. */
#ifndef MOTE_MODEL_BACKEND_H
#define MOTE_MODEL_BACKEND_H

#include "model/batch.h"
#include "model/carry.h"

struct mote__net;

/* Rows [first, first + n) of a batch. */
typedef struct mote__tile {
    size_t first, n;
} mote__tile;

/* The two sublayers of a layer. */
typedef enum mote__sublayer { MOTE_SUB_ATTENTION, MOTE_SUB_EXPERTS } mote__sublayer;

/* The beginning of each backend's own pass object. */
typedef struct mote__backend_pass {
    const struct mote__backend_ops *ops;
    struct mote__net *net;    /* borrowed */
    const mote__batch *batch; /* borrowed: of the pass that owns this object */
} mote__backend_pass;

typedef struct mote__backend_ops {
    const char *name;
    /* bytes of scratch of a pass over n_tokens, for choosing how many it may have */
    size_t (*scratch_bytes)(const struct mote__net *net, size_t n_tokens);
    /* NULL: no memory */
    mote__backend_pass *(*pass_create)(struct mote__net *net, const mote__batch *batch);
    void (*pass_destroy)(mote__backend_pass *pass);
    /* free what grows with the number of tokens; begin brings it back */
    void (*shrink)(mote__backend_pass *pass);

    /* room for the batch that was begun */
    int (*begin)(mote__backend_pass *pass);
    /* the carry of the batch's tokens: where it lies, good until the next call */
    int (*carry)(mote__backend_pass *pass, mote__carry *view);
    /* overwrite it */
    int (*take)(mote__backend_pass *pass, const mote__carry *from);
    /* put the carry's h aside; bring it back */
    int (*stash)(mote__backend_pass *pass);
    int (*unstash)(mote__backend_pass *pass);
    /* the batch's rows were narrowed: x keeps those that are left (mote__extent.dropped) */
    int (*narrow)(mote__backend_pass *pass);

    /* h and mix from token embeddings */
    int (*embed)(mote__backend_pass *pass);
    /* h += the layer's gated lookup */
    int (*engram)(mote__backend_pass *pass, size_t layer);
    /* x = the sublayer's norm of sum_j mix_j h_j */
    int (*collapse)(mote__backend_pass *pass, size_t layer, mote__sublayer sub);
    /* from h: mix of the sublayer that follows, and the weights of this one's expand */
    int (*mixes)(mote__backend_pass *pass, size_t layer, mote__sublayer sub);
    /* h = post y + comb^T h, with the weights of the last mixes */
    int (*expand)(mote__backend_pass *pass, size_t layer, mote__sublayer sub);
    /* global KV of the rows from publish_from on, from x; n_entries and pending rows move along */
    int (*publish)(mote__backend_pass *pass, size_t layer);
    /* window KV of all rows, from x; the rings take it in the last attend */
    int (*window)(mote__backend_pass *pass, size_t layer);
    /* These three are called one after the other for each tile of at most net->tile_rows rows, in
     * the order of rows: what they hand to each other is of one tile.
     * queries, from x */
    int (*queries)(mote__backend_pass *pass, size_t layer, mote__tile tile);
    /* topk, and candidates where the layer makes them, from queries and x */
    int (*select)(mote__backend_pass *pass, size_t layer, mote__tile tile);
    /* y = attention over window and selected entries */
    int (*attend)(mote__backend_pass *pass, size_t layer, mote__tile tile);
    /* y = routed experts and the shared one of x */
    int (*moe)(mote__backend_pass *pass, size_t layer);

    /* Llama-style layers (NULL: none): queries from x, keys and values of all rows into the cache;
     * y = attention over the cache; h += y */
    int (*dense_project)(mote__backend_pass *pass, size_t layer);
    int (*dense_attend)(mote__backend_pass *pass, size_t layer);
    int (*dense_add)(mote__backend_pass *pass, size_t layer, mote__sublayer sub);

    /* n x vocab floats for n rows, by number */
    int (*logits)(mote__backend_pass *pass, const uint32_t *rows, size_t n, float *logits);
    int (*sync)(mote__backend_pass *pass);
} mote__backend_ops;

#endif
