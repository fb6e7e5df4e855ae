/* Inside bench/: what its parts share. A part checks its kernels' answers, measures them against
 * limits of the same run and adds rows. Parts and what each is about: limits.c      what the
 * machine can do: reads, multiply-adds; an outside GEMM is in blas.c rows_weights.c     linears of
 * the published shapes, from memory rows_cache.c       indexer, top-k and sparse attention over a
 * million packed entries synthetic.c   a model of the published shapes without a checkpoint: random
 * weights, a random cache rows_published.c   decode, batches and prefill of that model, whole-model
 * sums rows_small.c       a real checkpoint end to end: prefill, decode, loading, tokenizer
 *   random.c      memory in huge pages and random weights
 *   bench.c       the table of parts, rows to JSON
 * Fields of a row: docs/results/bench.md. */
#ifndef MOTE_BENCH_BENCH_H
#define MOTE_BENCH_BENCH_H

#include <jansson.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/threads.h"
#include "bench/run.h"
#include "kern/linear.h"

/* How a kernel is run: its table of functions and the threads. */
typedef struct mote__bench_env {
    const mote__kern_ops *kern;
    mote__threads *pool; /* NULL: one thread */
    mote__linear_ctx linear;
} mote__bench_env;
typedef enum mote__bench_mode {
    MOTE_BENCH_AS_RUN,
    MOTE_BENCH_ONE_THREAD,
    MOTE_BENCH_AVX2,
    MOTE_BENCH_MODES
} mote__bench_mode;

/* Per second; 0: not measured (the processor lacks the instruction). One multiply-add is two
 * operations. */
typedef struct mote__bench_limits {
    double read, fma, bf16, int8;
    /* seconds of a loop that all threads join and that does nothing; 0: one thread */
    double loop;
    int best_read; /* see limits.c */
} mote__bench_limits;
/* seconds; see mote__bench_measure */
typedef struct mote__bench_time {
    double median, spread;
    int runs;
} mote__bench_time;

typedef struct mote__bench {
    const mote_bench_params *params;
    json_t *rows;
    int n_threads, runs, quick;
    const char *part; /* name of the part that runs */
    double fraction;  /* of the work done, for progress */
    /* env[i].kern NULL: this machine has no such mode */
    mote__bench_env env[MOTE_BENCH_MODES];
    /* with the threads of MOTE_BENCH_AS_RUN; with one */
    mote__bench_limits limits, one_thread;
    mote_err *err;
} mote__bench;

/* value: in `unit`. limit: what the machine allows, in the same unit (NAN: none). ratio: what
 * `target` is about, value / limit unless said otherwise in note (NAN: the target is about the
 * value). target NAN: none. */
typedef struct mote__bench_row {
    const char *name, *shape;
    double value;
    const char *unit;
    double limit, ratio, target;
    mote__bench_time time; /* its spread and runs are shown */
    int lower_is_better;
    const char *note; /* may be NULL */
} mote__bench_row;
/* 0, MOTE_ENOMEM, or MOTE_ECANCELED when the caller's progress function said so. */
int mote__bench_add(mote__bench *b, const mote__bench_row *row);
int mote__bench_fail(mote__bench *b, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Report where the bench is; MOTE_ECANCELED when the caller wants it to stop. */
int mote__bench_progress(mote__bench *b, const char *what);

/* b->runs calls after one that is not timed: median, and as spread half the distance of the
 * quartiles over the median. */
typedef void (*mote__bench_body)(void *ctx, mote__bench_env *env);
mote__bench_time mote__bench_measure(const mote__bench *b, mote__bench_body body, void *ctx,
                                     mote__bench_env *env);
mote__bench_time mote__bench_median(double *seconds, int n); /* sorts them */
/* Something to time; amount: operations or bytes of one call. */
typedef struct mote__bench_work {
    mote__bench_body body;
    void *ctx;
    mote__bench_env *env;
    double amount;
} mote__bench_work;
/* Time two things in turn, so that what disturbs the machine disturbs both. Medians of each, and of
 * y's time over x's. */
typedef struct mote__bench_pair {
    mote__bench_time x, y, y_over_x;
} mote__bench_pair;
mote__bench_pair mote__bench_in_turn(const mote__bench *b, const mote__bench_work *x,
                                     const mote__bench_work *y);
/* Time `w` in turn with a yardstick and add the row: value w.amount per second, limit yard.amount
 * per second, in units of 1e9. A yardstick without a body (the processor lacks it) gives a row
 * without limit. *seconds (may be NULL): of w. */
int mote__bench_against(mote__bench *b, const char *name, const char *shape,
                        const mote__bench_work *w, const mote__bench_work *yard, const char *unit,
                        double target, const char *note);
/* Rows "NAME, N threads" (where compute-bound: as run over one thread, target 0.9 N; limit: what
 * the machine's FMA peak gains, less than N where threads share a core) and "NAME, AVX2-only" (time
 * over time as run, target 2.5), each measured in turn with the body as run. */
int mote__bench_modes(mote__bench *b, const char *name, const char *shape, mote__bench_body body,
                      void *ctx, int compute_bound);

/* Memory in huge pages where the system gives them, zero-filled; NULL: none. */
void *mote__bench_pages(size_t bytes);
void mote__bench_unpages(void *p, size_t bytes);
/* Pseudo-random 64 bits of (seed, i): the same for any number of threads. */
uint64_t mote__bench_random(uint64_t seed, uint64_t i);
float mote__bench_unit(uint64_t seed, uint64_t i); /* [-1, 1) */
void mote__bench_floats(float *x, size_t n, uint64_t seed);
/* A matrix of random weights, about 1/sqrt(n_in) in size: bytes it takes (a multiple of 64), and
 * where it lies from *at on. */
size_t mote__bench_mat_bytes(mote__wkind kind, size_t n_out, size_t n_in);
mote__mat mote__bench_place(uint8_t **at, mote__wkind kind, size_t n_out, size_t n_in);
void mote__bench_fill(mote__threads *pool, const mote__mat *m, uint64_t seed);
/* Bytes a product with the matrix reads. */
double mote__bench_mat_traffic(const mote__mat *m);

/* limits.c: yardsticks with the threads of MOTE_BENCH_AS_RUN, good until the next call for the same
 * one. Reads go over memory of the caller's (whole 2 MiB pieces of it). */
typedef enum mote__bench_peak {
    MOTE_PEAK_FMA,
    MOTE_PEAK_BF16,
    MOTE_PEAK_INT8,
    MOTE_PEAKS
} mote__bench_peak;
mote__bench_work mote__bench_reads(mote__bench *b, const uint8_t *memory, size_t bytes);
mote__bench_work mote__bench_peak_of(mote__bench *b, mote__bench_peak peak);
/* buffer of at least 64 MiB, 1 GiB for figures to be shown */
void mote__bench_limits_measure(mote__bench *b, mote__bench_env *env, const uint8_t *buffer,
                                size_t bytes, mote__bench_limits *l);
/* Read n bytes (a multiple of 256, 64-byte aligned) once, as fast as one thread can. */
void mote__bench_read_once(const uint8_t *p, size_t n);
/* blas.c: y[n][out] = x[n][in] w[out][in]^T with OpenBLAS found at run time; NULL: not installed.
 * why says what was found. */
typedef void (*mote__bench_gemm)(float *y, const float *x, const float *w, size_t n, size_t out,
                                 size_t in);
mote__bench_gemm mote__bench_blas(int n_threads, char why[120]);

/* The parts */
int mote__bench_weights(mote__bench *b);
int mote__bench_experts(mote__bench *b);
int mote__bench_indexer(mote__bench *b);
int mote__bench_topk(mote__bench *b);
int mote__bench_attention(mote__bench *b);
int mote__bench_published(mote__bench *b);
int mote__bench_small(mote__bench *b);
int mote__bench_load(mote__bench *b);
int mote__bench_tokenizer(mote__bench *b);

#endif
