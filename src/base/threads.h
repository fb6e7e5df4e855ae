/* A small thread pool that runs one parallel loop at a time.
 *
 * Workers spin for a short time before they sleep, because a decode step is hundreds of short loops
 * in a row. How iterations are split over threads varies from run to run, so each iteration must
 * write only its own outputs; then results do not depend on the split. */
#ifndef MOTE_BASE_THREADS_H
#define MOTE_BASE_THREADS_H

#include <stddef.h>

typedef struct mote__threads mote__threads;

/* n_threads >= 1 includes the calling thread. Owned by the caller. NULL: out of memory, or a thread
 * could not be created. */
mote__threads *mote__threads_create(int n_threads);
/* Stops and joins the workers; no loop may be running. NULL does nothing. */
void mote__threads_destroy(mote__threads *pool);
/* Number of threads, the caller included; 1 for a NULL pool. */
int mote__threads_count(const mote__threads *pool);

/* Call body(ctx, begin, end, thread) for pieces that together cover [0, n) once. A piece is a
 * multiple of `grain` iterations, except the last one. `thread` is in [0, mote__threads_count); two
 * calls with the same `thread` never overlap. Returns when all pieces are done. A NULL pool runs
 * everything in the caller. One loop at a time: a body must not start another loop on the same
 * pool, nor may two threads. */
typedef void (*mote__threads_body)(void *ctx, size_t begin, size_t end, int thread);
void mote__threads_for(mote__threads *pool, size_t n, size_t grain, mote__threads_body body,
                       void *ctx);

#endif
