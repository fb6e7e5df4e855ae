/* Reads in flight, from inside: reads.c cuts reads into pieces and adds up what comes of them,
 * ring.c and hand.c move a piece. */
#ifndef MOTE_IO_READS_IMPL_H
#define MOTE_IO_READS_IMPL_H

#include <liburing.h>
#include <pthread.h>

#include "io/reads.h"

typedef struct mote__read {
    struct mote__read *next; /* in `active` or `finished` */
    mote__read_file *file;
    void *tag;
    uint64_t offset;
    struct iovec parts[MOTE_READ_PARTS];
    int n_parts;
    size_t bytes;
    size_t begun; /* bytes that pieces were made for, from the first on */
    int n_pieces; /* of it, in flight */
    /* bytes before the first that did not come, and why that one did not */
    size_t reached;
    int error;
    int cancelled;
} mote__read;

/* A piece is free, in flight in the ring, queued or being read by hand, or done by hand. */
typedef struct mote__piece {
    struct mote__piece *next;
    mote__read *read;
    size_t begin, bytes; /* within the read */
    struct iovec parts[MOTE_READ_PARTS];
    int n_parts;
    int direct;
    int in_ring;
    size_t got; /* bytes that came, and of those the ones past the page cache */
    size_t got_direct;
    int error; /* what ended it before `bytes`; ENODATA: the file's end */
} mote__piece;

typedef struct mote__pieces {
    mote__piece *first, *last;
} mote__pieces;

struct mote__reads {
    mote__reads_params params;
    mote__meter *meter;
    mote__read *reads;   /* [depth] */
    mote__piece *pieces; /* [depth] */
    mote__read *free_reads;
    mote__piece *free_pieces;
    mote__read *active, *active_last; /* oldest first */
    mote__read *finished, *finished_last;
    size_t n_held;
    uint64_t direct_bytes, buffered_bytes;

    struct io_uring ring;
    int has_ring;               /* it is open */
    int ring_dead;              /* it takes nothing any more; what flies in it is waited for */
    size_t n_in_ring, n_unsent; /* pieces that the kernel has; that it does not have yet */
    mote__pieces unsent;        /* those, in the ring's order */

    /* by hand; with threads under the mutex */
    mote__pieces todo, done;
    size_t n_by_hand; /* queued, being read or done; of the owner */
    pthread_t *threads;
    size_t n_threads;
    pthread_mutex_t mutex;
    pthread_cond_t wake, read_one;
    int stop;
};

static inline void mote__pieces_push(mote__pieces *l, mote__piece *p)
{
    p->next = NULL;
    *(l->first ? &l->last->next : &l->first) = p;
    l->last = p;
}
static inline mote__piece *mote__pieces_pop(mote__pieces *l)
{
    mote__piece *p = l->first;
    if (p)
        l->first = p->next;
    return p;
}

/* ---- ring.c ---- */
void mote__ring_open(mote__reads *r);
void mote__ring_close(mote__reads *r);
/* 1: it is in the ring; 0: read it by hand. */
int mote__ring_push(mote__reads *r, mote__piece *p);
/* Hands what was pushed to the kernel; what it does not take is given to mote__hand_push. */
void mote__ring_send(mote__reads *r);
/* A piece that came back, with `got` and `error` set; NULL: none (without `wait`, or none flies).
 * error -1: to be gone on with by hand. */
mote__piece *mote__ring_next(mote__reads *r, int wait);
void mote__ring_cancel(mote__reads *r, mote__piece *p);

/* ---- hand.c ---- */
void mote__hand_open(mote__reads *r, size_t n_threads);
void mote__hand_close(mote__reads *r);
/* Reads what is left of a piece, in the calling thread. */
void mote__hand_read(const mote__reads *r, mote__piece *p);
void mote__hand_push(mote__reads *r, mote__piece *p);
/* A piece that was read; without threads the oldest is read now. NULL: none is done (without
 * `wait`), or none was pushed. */
mote__piece *mote__hand_next(mote__reads *r, int wait);
/* Pieces of this read that nobody has begun; a list linked by `next`. */
mote__piece *mote__hand_take_back(mote__reads *r, const mote__read *of);

#endif
