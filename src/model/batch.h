/* What a pass is about, whoever runs it: which tokens of which sequences, and which of them are
 * still wanted.
 *
 * An extent is a run of consecutive tokens of one sequence. The tokens of a batch are numbered over
 * its extents in order. A row is a token that is still live: what a layer computes is numbered by
 * row, what goes from layer to layer (model/carry.h) by token. Results of a token never depend on
 * the other extents or on how a sequence was cut into batches.
 *
 * Cone: layer l needs query rows only from q_start(l) = max(0, apex - (top - 1 - l)(W - 1)) on,
 * where `top` is the end of the half and `apex` the first position whose output is wanted; tokens
 * before it only contribute window KV. apex 0: all of them. */
#ifndef MOTE_MODEL_BATCH_H
#define MOTE_MODEL_BATCH_H

#include "base/mem.h"
#include "file/config.h"
#include "kv/cache.h"
#include "kv/state.h"

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

typedef struct mote__extent {
    mote__seq *seq; /* borrowed */
    uint64_t pos;   /* position of the first token */
    size_t n;       /* tokens */
    uint64_t apex;  /* see above */
    /* tokens from this position on make global KV (UINT64_MAX: none) */
    uint64_t publish_from;
    size_t skip; /* tokens at the front that have left the cone: 0 where a pass begins at layer 0 */
    /* set here */
    size_t first;       /* number of the first token in the batch */
    size_t window_skip; /* skip when the current layer made its window KV */
    size_t dropped;     /* of skip, what the last mote__batch_narrow added */
} mote__extent;

typedef struct mote__row {
    uint32_t extent, token;
    uint64_t pos;
} mote__row;

typedef struct mote__batch {
    mote__extent *extents; /* borrowed from one begin to the next */
    size_t n_extents, n_tokens;
    const mote__row *rows; /* live tokens, in order of extents and positions */
    const uint32_t *row_token;
    size_t n_rows;
    /* entries a token's selection has room for: index_topk, or more where a sequence selects more
     */
    size_t topk_room;
    size_t capacity; /* tokens that memory is held for */
    void *memory;    /* of rows and row_token */
    mote__meter *meter;
} mote__batch;

void mote__batch_init(mote__batch *batch, mote__meter *meter);
/* Free what grows with the number of tokens. */
void mote__batch_shrink(mote__batch *batch);
/* Number the extents' tokens and list the live ones. 0 or MOTE_ENOMEM. */
int mote__batch_begin(mote__batch *batch, const mote__config *config, mote__extent *extents,
                      size_t n_extents);
/* Extents' `skip` was changed by the caller: list the rows anew. */
void mote__batch_list_rows(mote__batch *batch);
/* Window KV of the current layer is made from the rows as they are now. */
void mote__batch_mark_windows(mote__batch *batch);
/* Drop the rows that `layer` does not query (top: end of its half, window: W) from the list.
 * Returns how many. */
size_t mote__batch_narrow(mote__batch *batch, size_t layer, size_t top, size_t window);

#endif
