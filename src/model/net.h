/* The loaded model: everything that does not change while sequences run through it. Scratch belongs
 * to the passes. */
#ifndef MOTE_MODEL_NET_H
#define MOTE_MODEL_NET_H

#include "base/threads.h"
#include "model/backend.h"
#include "model/engram_hash.h"
#include "model/experts.h"
#include "model/streamed.h"
#include "model/rope.h"
#include "model/route_log.h"
#include "model/rows.h"
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

enum { MOTE_TILE_ROWS = 512 };

typedef struct mote__net {
    mote__config config;
    mote__layer_plan plan[MOTE_MAX_LAYERS];
    mote__weights weights;
    const mote__kern_ops *kern;
    mote__threads *threads;
    mote__meter *meter;
    /* rows of a tile (model/backend.h): MOTE_TILE_ROWS, fewer in tests */
    size_t tile_rows;
    /* --math published: BF16 activations, FP8-grid inputs of quantised linears */
    int published;
    mote__rope rope[2]; /* window-only layers, layers with a ratio */
    mote__engram_table engram[MOTE_MAX_ENGRAM];
    /* [vocab_size] Engram class of a token; NULL without Engram */
    int32_t *token_map;
    /* where routed experts come from: `resident`, or somebody else's */
    mote__experts *experts;
    mote__resident_experts resident;
    mote__streamed *streamed; /* owned; NULL: they are not streamed */
    /* tables that are read row by row from the files; rows NULL: they lie in memory */
    mote__rows *rows; /* owned */
    mote__row_table embed_rows, engram_codes[MOTE_MAX_ENGRAM], engram_scales[MOTE_MAX_ENGRAM];
    mote_err fault; /* what made the last pass fail, where it can be said; code 0: it did not */
    mote__route_log *route_log; /* owned; NULL: routing is not recorded */
    mote__kv_memory *kv_memory; /* of the blocks of all sequences */
    const mote__trace *trace;   /* borrowed, usually NULL */
} mote__net;

/* All layers run on `backend` with the experts and the
 * cache in memory. After mote__plan_init, before the first
 * pass. */
void mote__net_use(mote__net *net, const mote__backend_ops *backend);

#endif
