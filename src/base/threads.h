/* Threads: a small pool that runs one parallel loop at a time.
 *
 * Workers spin a little before they sleep, because a decode step is hundreds of short loops in a
 * row. The split of the iterations over threads never influences results: each iteration must write
 * only its own outputs. */
#ifndef MOTE_BASE_THREADS_H
#define MOTE_BASE_THREADS_H

#include <stddef.h>

typedef struct mote__pool mote__pool;

/* n_threads >= 1 counts the caller. NULL when out of memory or threads. */
mote__pool *mote__pool_create(int n_threads);
void mote__pool_destroy(mote__pool *pool);
int mote__pool_threads(const mote__pool *pool);

/* Run body(ctx, begin, end, thread) over [0, n), cut into pieces that threads take in turn:
 * multiples of `grain` iterations (but for the last one), smaller towards the end. thread is in [0,
 * mote__pool_threads). Returns when all are done. A NULL pool runs everything in the caller. Not
 * reentrant: a body must not start another loop on the same pool. */
typedef void (*mote__pool_body)(void *ctx, size_t begin, size_t end, int thread);
void mote__pool_for(mote__pool *pool, size_t n, size_t grain, mote__pool_body body, void *ctx);

#endif
