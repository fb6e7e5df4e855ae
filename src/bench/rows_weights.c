/* Linears of the published shapes as the engine runs them (mote__linear_run: inputs arranged, tiles
 * taken by threads). Few rows: the weights come from memory, so a run walks 1 GiB of them and the
 * limit is the read rate. Many rows: the limit is FMAs, and sgemm on the same shape, whose weights
 * are FP32 already, is the outside yardstick. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "kern/lanes.h"
#include "model/cpu/pass.h"
#include "model/net.h"
#include "num/formats.h"

/* ---- one row of x through matrices that fill the memory ---- */

enum { GROUPS = 8 };
typedef struct vectors {
    mote__mat *mats;
    size_t n;
    float *x, *y;
    int failed;
} vectors;

static void run_vectors(void *ctx, mote__bench_env *env)
{
    vectors *v = ctx;
    for (size_t i = 0; i < v->n; i++) {
        mote__linear_job job = { .w = &v->mats[i],
                                 .x = v->x,
                                 .ldx = v->mats[i].n_in,
                                 .n_rows = 1,
                                 .y = v->y,
                                 .ldy = v->mats[i].n_out };
        v->failed |= mote__linear_run(&env->linear, &job, 1);
    }
}

static float weight(const mote__mat *m, size_t o, size_t k)
{
    size_t at = o * m->n_in + k;
    switch (m->kind) {
    case MOTE_W_F32:
        return mote__bits_f32((uint32_t)m->data[4 * at] | (uint32_t)m->data[4 * at + 1] << 8 |
                              (uint32_t)m->data[4 * at + 2] << 16 |
                              (uint32_t)m->data[4 * at + 3] << 24);
    case MOTE_W_BF16:
        return mote__bf16_decode((uint16_t)(m->data[2 * at] | m->data[2 * at + 1] << 8));
    case MOTE_W_FP8:
        return mote__e4m3_value[m->data[at]] *
               mote__e8m0_decode(m->scale[(m->scale_row0 + o) / 32 * m->scale_stride + k / 32]);
    default:
        return mote__e2m1_value[m->data[at / 2] >> at % 2 * 4 & 15] *
               mote__e8m0_decode(m->scale[o * m->scale_stride + k / 32]);
    }
}

/* y = W x of one row: the first and last outputs equal the scalar kernel's bits, and a double sum
 * within the bound of a sum of n_in / 16 steps and a tree, (n_in / 16 + 8 + 6) eps sum |w x| (8:
 * products inside an MXFP4 word). */
static int check_linear(mote__bench *b, const mote__mat *m, const float *x, const float *y,
                        const char *shape)
{
    size_t n = mote__arranged_size(m->kind, m->n_in), probe = m->n_out < 16 ? m->n_out : 16;
    float *xp = mote__alloc(NULL, MOTE_MEM_SCRATCH, n * sizeof *xp),
          *scratch = mote__alloc(NULL, MOTE_MEM_SCRATCH, MOTE_LINEAR_SCRATCH * 4);
    float *want = mote__alloc(NULL, MOTE_MEM_SCRATCH, m->n_out * sizeof *want);
    int rc = xp && scratch && want ? 0 : mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    if (!rc)
        mote__arrange(m->kind, xp, x, m->n_in);
    for (int end = 0; end < 2 && !rc; end++) {
        size_t o0 = end ? (m->n_out - probe) / 16 * 16 : 0, o1 = o0 + probe;
        mote__kern_linear(mote__kern_at(0), m, o0, o1, xp, 1, n, want, m->n_out, scratch);
        for (size_t o = o0; o < o1 && !rc; o++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < m->n_in; k++) {
                double t = (double)weight(m, o, k) * (double)x[k];
                sum += t;
                size += fabs(t);
            }
            if (memcmp(&y[o], &want[o], sizeof *y))
                rc = mote__bench_fail(
                    b, MOTE_EFORMAT,
                    "wrong answer, %s: output %zu is %.9g, the scalar kernel says %.9g", shape, o,
                    (double)y[o], (double)want[o]);
            else if (!(fabs(sum - (double)y[o]) <=
                       ((double)m->n_in / 16 + 14) * (double)FLT_EPSILON * size))
                rc = mote__bench_fail(b, MOTE_EFORMAT,
                                      "wrong answer, %s: output %zu is %.9g, a double sum %.9g",
                                      shape, o, (double)y[o], sum);
        }
    }
    mote__free(NULL, MOTE_MEM_SCRATCH, xp, n * sizeof *xp);
    mote__free(NULL, MOTE_MEM_SCRATCH, scratch, MOTE_LINEAR_SCRATCH * 4);
    mote__free(NULL, MOTE_MEM_SCRATCH, want, m->n_out * sizeof *want);
    return rc;
}

static int one_shape(mote__bench *b, const char *what, mote__wkind kind, size_t n_out, size_t n_in,
                     int modes)
{
    size_t each = mote__bench_mat_bytes(kind, n_out, n_in), least = (size_t)(b->quick ? 4 : 1024)
                                                                    << 20;
    vectors v = { .n = (least + each - 1) / each };
    uint8_t *memory = mote__bench_pages(v.n * each), *at = memory;
    v.mats = calloc(v.n, sizeof *v.mats);
    v.x = mote__alloc(NULL, MOTE_MEM_SCRATCH, n_in * sizeof *v.x);
    v.y = mote__alloc(NULL, MOTE_MEM_SCRATCH, n_out * sizeof *v.y);
    int rc = memory && v.mats && v.x && v.y
                 ? 0
                 : mote__bench_fail(b, MOTE_ENOMEM, "out of memory for %zu MiB of weights",
                                    v.n * each >> 20);
    mote__bench_env *env = &b->env[MOTE_BENCH_AS_RUN];
    double bytes = 0;
    for (size_t i = 0; i < v.n && !rc; i++) {
        v.mats[i] = mote__bench_place(&at, kind, n_out, n_in);
        mote__bench_fill(env->pool, &v.mats[i], i + 7);
        bytes += mote__bench_mat_traffic(&v.mats[i]);
    }
    if (!rc) {
        char shape[80];
        snprintf(shape, sizeof shape, "%zu x %zu, %zu matrices, %.2f GB", n_out, n_in, v.n,
                 bytes * 1e-9);
        mote__bench_floats(v.x, n_in, 3);
        mote__bench_work work = { run_vectors, &v, env, bytes },
                         reads = mote__bench_reads(b, memory, v.n * each);
        run_vectors(&v, env);
        rc = v.failed ? mote__bench_fail(b, MOTE_ENOMEM, "out of memory")
                      : check_linear(b, &v.mats[v.n - 1], v.x, v.y, shape);
        if (!rc)
            rc = mote__bench_against(b, what, shape, &work, &reads, "GB/s", 0.85,
                                     "limit: reads of the same memory");
        if (!rc && modes)
            rc = mote__bench_modes(b, what, shape, run_vectors, &v, 0);
    }
    mote__free(NULL, MOTE_MEM_SCRATCH, v.x, n_in * sizeof *v.x);
    mote__free(NULL, MOTE_MEM_SCRATCH, v.y, n_out * sizeof *v.y);
    free(v.mats);
    mote__bench_unpages(memory, v.n * each);
    return rc;
}

int mote__bench_weights(mote__bench *b)
{
    static const struct {
        const char *name;
        mote__wkind kind;
        size_t n_out, n_in;
        int modes;
    } shapes[] = {
        { "FP8 matrix-vector wq_a", MOTE_W_FP8, 1280, 5120, 0 },
        { "FP8 matrix-vector wq_b", MOTE_W_FP8, 32768, 1280, 1 },
        { "FP8 matrix-vector wkv", MOTE_W_FP8, 512, 5120, 0 },
        { "FP8 matrix-vector wo_a group", MOTE_W_FP8, 1024, 4096, 0 },
        { "FP8 matrix-vector wo_b", MOTE_W_FP8, 5120, 8192, 0 },
        { "FP8 matrix-vector shared w1", MOTE_W_FP8, 2304, 5120, 0 },
        { "BF16 matrix-vector compressor", MOTE_W_BF16, 512, 5120, 0 },
        { "BF16 matrix-vector head", MOTE_W_BF16, 129280, 5120, 1 },
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !rc; i++)
        rc = one_shape(b, shapes[i].name, shapes[i].kind,
                       b->quick ? shapes[i].n_out / 32 / 32 * 32 + 32 : shapes[i].n_out,
                       b->quick ? shapes[i].n_in / 8 : shapes[i].n_in, shapes[i].modes);
    return rc;
}

/* ---- experts ---- */

enum { EXPERTS = 64, AT_ONCE = 6, MOST_ROWS = 512 };
typedef struct experts {
    /* the same matrices, as published math takes them */
    mote__expert e[EXPERTS], pairs[EXPERTS];
    size_t n_experts, hidden, inter, n_rows, next;
    float *x, *gate, *up, *y, *rounded;
    /* only to round inputs as a pass does in published math */
    mote__net net;
    float *dense[3], *dense_gate, *dense_up, *dense_y; /* for sgemm */
    mote__bench_gemm gemm;
    int failed;
} experts;

/* n tokens of each of `count` experts from `first` on, the three matrices as model/cpu/moe.c runs
 * them */
static void triple(experts *x, mote__bench_env *env, size_t first, size_t count)
{
    mote__linear_job jobs[2 * AT_ONCE];
    size_t n = x->n_rows, step = n * x->inter;
    x->net.threads = env->pool;
    x->net.kern = env->kern;
    for (size_t i = 0; i < count; i++) {
        const mote__expert *e = &(x->net.published ? x->pairs : x->e)[(first + i) % x->n_experts];
        const float *in = mote__linear_input(&x->net, &e->w1, x->x, n, x->rounded);
        jobs[2 * i] = (mote__linear_job){ .w = &e->w1,
                                          .x = in,
                                          .ldx = x->hidden,
                                          .n_rows = n,
                                          .y = x->gate + i * step,
                                          .ldy = x->inter };
        jobs[2 * i + 1] = (mote__linear_job){ .w = &e->w3,
                                              .x = in,
                                              .ldx = x->hidden,
                                              .n_rows = n,
                                              .y = x->up + i * step,
                                              .ldy = x->inter };
    }
    x->failed |= mote__linear_run(&env->linear, jobs, 2 * count);
    for (size_t i = 0; i < count * n; i++)
        env->kern->swiglu(x->gate + i * x->inter, x->gate + i * x->inter, x->up + i * x->inter,
                          x->inter, 10, 1);
    for (size_t i = 0; i < count; i++) {
        const mote__expert *e = &(x->net.published ? x->pairs : x->e)[(first + i) % x->n_experts];
        jobs[i] = (mote__linear_job){ .w = &e->w2,
                                      .ldx = x->inter,
                                      .n_rows = n,
                                      .y = x->y + i * n * x->hidden,
                                      .ldy = x->hidden,
                                      .x = mote__linear_input(&x->net, &e->w2, x->gate + i * step,
                                                              n, x->up + i * step) };
    }
    x->failed |= mote__linear_run(&env->linear, jobs, count);
}

/* as one token of decode meets them: six at a time */
static void run_one_token(void *ctx, mote__bench_env *env)
{
    experts *x = ctx;
    for (size_t i = 0; i + AT_ONCE <= x->n_experts; i += AT_ONCE)
        triple(x, env, i, AT_ONCE);
}

static void run_many_tokens(void *ctx, mote__bench_env *env)
{
    experts *x = ctx;
    triple(x, env, x->next++, 1);
}

static void run_gemm(void *ctx, mote__bench_env *env)
{
    experts *x = ctx;
    x->gemm(x->dense_gate, x->x, x->dense[0], x->n_rows, x->inter, x->hidden);
    x->gemm(x->dense_up, x->x, x->dense[2], x->n_rows, x->inter, x->hidden);
    x->gemm(x->dense_y, x->dense_gate, x->dense[1], x->n_rows, x->hidden, x->inter);
}

static int check_experts(mote__bench *b, experts *x, const char *shape)
{
    const mote__expert *e = &x->e[0];
    size_t last = x->n_rows - 1;
    x->net.published = 1;
    /* leaves the rounded inputs of w2 in up */
    triple(x, &b->env[MOTE_BENCH_AS_RUN], 0, 1);
    int rc = x->failed ? mote__bench_fail(b, MOTE_ENOMEM, "out of memory") : 0;
    if (!rc)
        rc = check_linear(b, &x->pairs[0].w2, x->up + last * x->inter, x->y + last * x->hidden,
                          shape);
    x->net.published = 0;
    triple(x, &b->env[MOTE_BENCH_AS_RUN], 0, 1);
    if (!rc && x->failed)
        rc = mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    if (!rc)
        rc = check_linear(b, &e->w3, x->x + last * x->hidden, x->up + last * x->inter, shape);
    if (!rc)
        rc = check_linear(b, &e->w2, x->gate + last * x->inter, x->y + last * x->hidden, shape);
    return rc;
}

static int many_tokens(mote__bench *b, experts *x, size_t n, const char *why)
{
    char shape[80], name[80];
    mote__bench_env *env = &b->env[MOTE_BENCH_AS_RUN];
    double flops = 6.0 * (double)n * (double)x->hidden * (double)x->inter;
    x->n_rows = n;
    snprintf(shape, sizeof shape, "3 x %zu x %zu, %zu tokens", x->inter, x->hidden, n);
    int rc = check_experts(b, x, shape);
    if (rc)
        return rc;
    mote__bench_work work = { run_many_tokens, x, env, flops },
                     theirs = { run_gemm, x, env, flops };
    mote__bench_work fma = mote__bench_peak_of(b, MOTE_PEAK_FMA),
                     bf16 = mote__bench_peak_of(b, MOTE_PEAK_BF16);
    snprintf(name, sizeof name, "MXFP4 experts, %zu tokens, fp32", n);
    rc = mote__bench_against(b, name, shape, &work, &fma, "GFLOP/s", 0.7, "limit: FP32 FMA peak");
    if (!rc && x->gemm) {
        snprintf(name, sizeof name, "MXFP4 experts, %zu tokens, against sgemm", n);
        rc = mote__bench_against(b, name, shape, &work, &theirs, "GFLOP/s", 0.9, why);
    }
    if (!rc && n == 64)
        rc = mote__bench_modes(b, "MXFP4 experts, 64 tokens", shape, run_many_tokens, x, 1);
    if (!rc) {
        x->net.published = 1;
        snprintf(name, sizeof name, "MXFP4 experts, %zu tokens, published", n);
        rc = mote__bench_against(
            b, name, shape, &work, &bf16, "GFLOP/s", 0.6,
            "limit: BF16 dot peak; inputs are rounded to the FP8 grid inside the time");
        x->net.published = 0;
    }
    return rc;
}

static int place_experts(mote__bench *b, experts *x, uint8_t *at)
{
    mote__threads *pool = b->env[MOTE_BENCH_AS_RUN].pool;
    for (size_t i = 0; i < x->n_experts; i++) {
        x->e[i].w1 = mote__bench_place(&at, MOTE_W_MXFP4, x->inter, x->hidden);
        x->e[i].w2 = mote__bench_place(&at, MOTE_W_MXFP4, x->hidden, x->inter);
        x->e[i].w3 = mote__bench_place(&at, MOTE_W_MXFP4, x->inter, x->hidden);
        const mote__mat *m[3] = { &x->e[i].w1, &x->e[i].w2, &x->e[i].w3 };
        for (size_t k = 0; k < 3; k++) {
            mote__bench_fill(pool, m[k], 100 + 3 * i + k);
            for (size_t o = 0; i == 0 && o < m[k]->n_out && x->dense[k]; o++)
                for (size_t j = 0; j < m[k]->n_in; j++)
                    x->dense[k][o * m[k]->n_in + j] = weight(m[k], o, j);
        }
        x->pairs[i] = x->e[i];
        x->pairs[i].w1.kind = x->pairs[i].w2.kind = x->pairs[i].w3.kind = MOTE_W_MXFP4_BF16;
    }
    return 0;
}

static int run_experts(mote__bench *b, experts *x, const char *why)
{
    char shape[80];
    double bytes = 0;
    size_t n = x->n_experts / AT_ONCE * AT_ONCE;
    for (size_t i = 0; i < n; i++)
        bytes += mote__bench_mat_traffic(&x->e[i].w1) + mote__bench_mat_traffic(&x->e[i].w2) +
                 mote__bench_mat_traffic(&x->e[i].w3);
    snprintf(shape, sizeof shape, "3 x %zu x %zu, %zu experts, %.2f GB", x->inter, x->hidden, n,
             bytes * 1e-9);
    x->n_rows = 1;
    int rc = check_experts(b, x, shape);
    if (rc)
        return rc;
    mote__bench_work work = { run_one_token, x, &b->env[MOTE_BENCH_AS_RUN], bytes };
    mote__bench_work reads = mote__bench_reads(b, x->e[0].w1.data, (size_t)bytes);
    rc = mote__bench_against(
        b, "MXFP4 experts, one token", shape, &work, &reads, "GB/s", 0.8,
        "limit: reads of the same memory; activations have 22 bits and a sign, by groups of 32");
    if (!rc)
        rc = mote__bench_modes(b, "MXFP4 experts, one token", shape, run_one_token, x, 0);
    static const size_t rows[] = { 16, 64, MOST_ROWS };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !rc; i++)
        rc = many_tokens(b, x, rows[i], why);
    return rc;
}

int mote__bench_experts(mote__bench *b)
{
    experts *x = calloc(1, sizeof *x);
    if (!x)
        return mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    x->n_experts = b->quick ? AT_ONCE : EXPERTS;
    x->hidden = b->quick ? 256 : 5120;
    x->inter = b->quick ? 192 : 2304;
    char why[120];
    x->gemm = mote__bench_blas(b->n_threads, why);
    size_t matrix = x->hidden * x->inter, rows = MOST_ROWS, at = 0;
    size_t each = 2 * mote__bench_mat_bytes(MOTE_W_MXFP4, x->inter, x->hidden) +
                  mote__bench_mat_bytes(MOTE_W_MXFP4, x->hidden, x->inter);
    uint8_t *memory = mote__bench_pages(x->n_experts * each);
    const struct {
        float **p;
        size_t n;
    } floats[] = {
        { &x->x, rows * x->hidden },       { &x->rounded, rows * x->hidden },
        { &x->y, rows * x->hidden },       { &x->gate, rows * x->inter },
        { &x->up, rows * x->inter },       { &x->dense_gate, rows * x->inter },
        { &x->dense_up, rows * x->inter }, { &x->dense_y, rows * x->hidden },
        { &x->dense[0], matrix },          { &x->dense[1], matrix },
        { &x->dense[2], matrix },
    };
    size_t n = sizeof floats / sizeof *floats - (x->gemm ? 0 : 6), total = 0;
    for (size_t i = 0; i < n; i++)
        total += (floats[i].n + 15) / 16 * 16 * sizeof(float);
    float *f = mote__bench_pages(total);
    int rc = memory && f ? 0
                         : mote__bench_fail(b, MOTE_ENOMEM, "out of memory for %zu MiB of experts",
                                            x->n_experts * each >> 20);
    for (size_t i = 0; i < n && !rc; i++) {
        *floats[i].p = f + at;
        at += (floats[i].n + 15) / 16 * 16;
    }
    if (!rc) {
        mote__bench_floats(x->x, rows * x->hidden, 5);
        rc = place_experts(b, x, memory);
    }
    if (!rc)
        rc = run_experts(b, x, why);
    mote__bench_unpages(f, total);
    mote__bench_unpages(memory, x->n_experts * each);
    free(x);
    return rc;
}
