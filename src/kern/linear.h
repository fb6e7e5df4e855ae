/* Many linears of any shapes in one parallel loop: arranges the inputs, cuts all outputs into tiles
 * and runs the tiles on all threads. Results do not depend on the number of rows, jobs or
 * threads. */
#ifndef MOTE_KERN_LINEAR_H
#define MOTE_KERN_LINEAR_H

#include "base/mem.h"
#include "base/threads.h"
#include "kern/kern.h"

/* One linear, y = W x for n_rows rows; everything is borrowed for the call. */
typedef struct mote__linear_job {
    const mote__mat *w;
    /* rows ldx floats apart */
    const float *x;
    size_t ldx, n_rows;
    /* NULL, or row r of the job is row rows[r] of x (a gather) */
    const uint32_t *rows;
    /* n_rows x n_out, rows ldy floats apart */
    float *y;
    size_t ldy;
} mote__linear_job;

/* Memory of one caller; one mote__linear_run at a time. */
typedef struct mote__linear_ctx {
    const mote__kern_ops *kern;
    mote__threads *pool; /* borrowed, may be NULL */
    /* arranged inputs and lists; grows to the largest call */
    mote__buf arranged;
    /* MOTE_LINEAR_SCRATCH floats per thread, owned */
    float *scratch;
    mote__meter *meter; /* borrowed, may be NULL */
} mote__linear_ctx;

/* 0 or MOTE_ENOMEM; call deinit in both cases. */
int mote__linear_init(mote__linear_ctx *ctx, const mote__kern_ops *kern, mote__threads *pool,
                      mote__meter *meter);
void mote__linear_deinit(mote__linear_ctx *ctx);
/* Run all jobs; the outputs of jobs must not overlap. Jobs with n_rows == 0 are allowed. 0, or
 * MOTE_ENOMEM before anything is written. */
int mote__linear_run(mote__linear_ctx *ctx, const mote__linear_job *jobs, size_t n_jobs);

#endif
