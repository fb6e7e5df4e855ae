/* Linears of many shapes at once: arranges the inputs, cuts all outputs into tiles and runs them in
 * one parallel loop. Results do not depend on the number of rows, jobs or threads. */
#ifndef MOTE_KERN_LINEAR_H
#define MOTE_KERN_LINEAR_H

#include "base/mem.h"
#include "base/threads.h"
#include "kern/kern.h"

typedef struct mote__linear_job {
    const mote__mat *w;
    /* rows ldx floats apart */
    const float *x;
    size_t ldx, n_rows;
    /* NULL, or n_rows row numbers into x (a gather) */
    const uint32_t *rows;
    /* n_rows x n_out, rows ldy floats apart */
    float *y;
    size_t ldy;
} mote__linear_job;

typedef struct mote__linear_ctx {
    const mote__kern_ops *kern;
    mote__pool *pool;
    /* grows to the largest step */
    mote__buf arranged;
    /* MOTE_LINEAR_SCRATCH floats per thread, owned */
    float *scratch;
    mote__meter *meter;
} mote__linear_ctx;

int mote__linear_init(mote__linear_ctx *ctx, const mote__kern_ops *kern, mote__pool *pool,
                      mote__meter *meter);
void mote__linear_deinit(mote__linear_ctx *ctx);
/* 0 or MOTE_ENOMEM. Jobs with n_rows == 0 are allowed. */
int mote__linear_run(mote__linear_ctx *ctx, const mote__linear_job *jobs, size_t n_jobs);

#endif
