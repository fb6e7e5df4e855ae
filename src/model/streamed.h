/* Routed experts read from the checkpoint's files when a layer wants them, and kept in slots: an
 * implementation of model/experts.h. Results never depend on it.
 *
 * A slot holds the bytes of one expert as they lie in the files (at most six runs, file/runs.h),
 * read past the page cache where that is possible. Slots lie in arenas of large pages. An expert is
 * absent, being read (wanted, or as a guess), or ready. What the present layer wants is pinned
 * from `want` to `release`; a slot is taken from the others only. A read in flight is joined, never
 * made twice; guesses that have not begun when their layer is there are dropped. When more experts
 * are wanted than there are slots, they come in turns: a slot that is released takes the next one.
 *
 * Errors: a failed read is tried once more. Then, or where a file ends too early, the layer fails
 * with MOTE_EIO or MOTE_EFORMAT; mote__streamed_fault tells shard and offset. Nothing in memory
 * is lost by it, and the next step tries again. */
#ifndef MOTE_MODEL_STREAMED_H
#define MOTE_MODEL_STREAMED_H

#include "io/reads.h"
#include "model/experts.h"
#include "model/score.h"

enum { MOTE_FEWEST_SLOTS = 8 };

typedef struct mote__streamed_params {
    uint64_t budget_bytes; /* of the slots; at least MOTE_FEWEST_SLOTS of them */
    size_t n_per_token;    /* experts that a token uses in a layer */
    uint64_t seed;         /* of the choice of slots to reuse: changes speed only */
    /* of depth, engine and preadv; 0: 16 pieces in flight */
    mote__reads_params reads;
} mote__streamed_params;

/* Since opening. */
typedef struct mote__streamed_stats {
    uint64_t n_wanted;  /* experts that layers asked for */
    uint64_t n_hits;    /* ready at that time, none of it a guess that was never used before */
    uint64_t n_guessed; /* the same by guesses: ready, or joined in flight */
    uint64_t n_read;    /* read because they were wanted */
    uint64_t n_guesses; /* guesses whose reads began */
    uint64_t bytes_wanted, bytes_guessed; /* read from files for the two kinds */
    double wait_s;                        /* the layers waited for reads */
    double busy_s;                        /* with at least one read in flight */
    size_t n_slots, slot_bytes;
    int direct; /* reads go past the page cache */
} mote__streamed_stats;

typedef struct mote__streamed mote__streamed;

/* weights: borrowed, its checkpoint open and mapped; its experts' data and scale pointers tell
 * where in the files they lie, and are not used later. MOTE_ENOMEM; MOTE_EINVAL: the budget is too
 * small; MOTE_EIO. */
int mote__streamed_open(mote__streamed **s, const mote__weights *weights,
                        const mote__streamed_params *params, mote__meter *meter, mote_err *err);
void mote__streamed_close(mote__streamed *s);
mote__experts *mote__streamed_experts(mote__streamed *s);
/* The bytes of a slot and the number of experts of a model; 0, or MOTE_EINVAL: it has none. */
int mote__streamed_slot_bytes(const mote__weights *w, size_t *slot_bytes, size_t *n_experts);
void mote__streamed_get_stats(const mote__streamed *s, mote__streamed_stats *stats);
/* What made the last layer that was wanted fail; code 0: it did not. */
const mote_err *mote__streamed_fault(const mote__streamed *s);

#endif
