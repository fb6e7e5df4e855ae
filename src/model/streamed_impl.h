/* Inside src/model/streamed*.c: slots, and the experts that come into them.
 *
 * key = layer * n_experts + id. A slot is empty, being read, or ready. One that is pinned belongs
 * to the present layer: its expert is wanted and was not released yet. `absent` are wanted experts
 * that have no pinned slot yet, in the order in which they will get one.
 *
 *   streamed.c        opening, a layer's use
 *   streamed_slots.c  where experts lie in the files, and which slot is emptied for which
 *   streamed_reads.c  from a slot that was taken to one that is ready, or a fault */
#ifndef MOTE_MODEL_STREAMED_IMPL_H
#define MOTE_MODEL_STREAMED_IMPL_H

#include <stdatomic.h>

#include "file/runs.h"
#include "model/streamed.h"

/* Units of direct reads; w1, w2, w3 and their scales; slots that experts of a prompt go through
 * which are not worth a place of their own */
enum { MOTE_SLOT_PAGE = 4096, MOTE_EXPERT_PARTS = 6, MOTE_MOST_PASSING = 64 };

/* Where an expert's matrices lie in the files. Parts: w1, w2, w3, then their scales. */
typedef struct mote__home {
    mote__runs runs;
} mote__home;

typedef enum mote__slot_state {
    MOTE_SLOT_EMPTY,
    MOTE_SLOT_READING,
    MOTE_SLOT_READY
} mote__slot_state;

typedef struct mote__xslot {
    uint8_t *memory; /* of an arena */
    mote__slot_state state;
    uint8_t pinned;
    uint8_t guess;     /* it came as a guess and was not wanted since */
    uint8_t passing;   /* of a prompt, not worth its place: the first to go */
    uint8_t n_tries;   /* of reading it */
    uint8_t n_reads;   /* not reported yet */
    uint8_t cancelled; /* one of them was given up before it began */
    int error;         /* of the first that failed: an errno, or 0 */
    unsigned error_run;
    mote__expert view;
} mote__xslot;

struct mote__streamed {
    mote__experts base;
    const mote__weights *weights; /* borrowed */
    mote__meter *meter;
    size_t n_layers, n_experts, n_keys;
    size_t slot_bytes, n_slots;
    mote__home *homes;   /* [n_keys] */
    int32_t *slot_of;    /* [n_keys] or -1 */
    mote__xslot *slots;  /* [n_slots] */
    uint32_t *keys;      /* [n_slots] whose expert it holds */
    uint8_t *kept;       /* [n_slots] 0: ready, and nobody's: it may be emptied */
    uint32_t *free_list; /* [n_slots] empty slots */
    size_t n_free;
    void **arenas;
    size_t n_arenas, slots_per_arena;
    mote__read_file *files; /* [n_shards] */
    size_t n_files;
    mote__reads *reads;
    size_t depth; /* reads held at most */
    size_t n_guess_reads;
    mote__score score;
    uint32_t *passing; /* [MOST_PASSING] slots of passing experts, the first to be emptied */
    size_t n_passing;
    /* the present layer */
    size_t layer, n_pinned;
    int prompt, in_order;
    uint32_t *absent, *ready; /* [n_experts] ids; slots */
    size_t n_absent, first_absent, n_ready, first_ready, n_left;
    const uint32_t *order; /* in_order: the ids wanted, borrowed; n_left of them are to come */
    mote_err fault;
    uint64_t busy_since, checked_at;
    /* read by other threads */
    _Atomic uint64_t n_wanted, n_hits, n_guessed, n_read, n_guesses, bytes_wanted, bytes_guessed;
    _Atomic uint64_t wait_ns, busy_ns;
};

static inline uint32_t mote__xslot_number(const mote__streamed *s, const mote__xslot *t)
{
    return (uint32_t)(t - s->slots);
}
static inline size_t mote__xslot_key(const mote__streamed *s, const mote__xslot *t)
{
    return s->keys[t - s->slots];
}
/* Whether it may be emptied is the slot's; the policy sees it in `kept`. */
static inline void mote__xslot_note(mote__streamed *s, const mote__xslot *t)
{
    s->kept[t - s->slots] = t->state != MOTE_SLOT_READY || t->pinned;
}
/* Of this thread alone; others read. */
static inline void mote__streamed_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* ---- streamed_slots.c ---- */

/* MOTE_EINVAL: a part of the expert is not in the files. */
int mote__home_of(mote__home *h, const mote__weights *w, const mote__expert *x);
size_t mote__home_bytes(const mote__home *h);
/* Bytes that a run takes in a slot: whole pages, as it lies in the file. */
size_t mote__run_room(const mote__source *run);
/* s->slot_bytes is known. */
int mote__slots_make(mote__streamed *s, uint64_t budget, mote_err *err);
void mote__slots_free(mote__streamed *s);
/* A slot for `key`: an empty one, one that a passing expert has left, or the policy's choice.
 * *pass: 1 where the expert is not worth the place of the one that goes, and so is the first to go
 * itself. NULL: none can be had now. */
mote__xslot *mote__xslot_take(mote__streamed *s, size_t key, int prompt, int *pass);
/* Its reads have failed: it is empty. */
void mote__xslot_clear(mote__streamed *s, mote__xslot *t);
/* The views of a slot's expert: the checkpoint's matrices, over the slot's bytes. */
void mote__xslot_view(mote__streamed *s, mote__xslot *t);

/* ---- streamed_reads.c ---- */

void mote__xslot_read(mote__streamed *s, mote__xslot *t, size_t key, int guess);
/* A guess in flight is wanted now; or is of no use, if it has not begun. */
void mote__xslot_promote(mote__streamed *s, mote__xslot *t);
void mote__xslot_drop(mote__streamed *s, mote__xslot *t);
/* Take what has come, or wait for one read. */
void mote__streamed_poll(mote__streamed *s);
void mote__streamed_wait(mote__streamed *s);

#endif
