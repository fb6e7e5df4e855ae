/* The cache's kernels at the published shapes: 32 x 128 indexer heads over a million packed keys,
 * the best 512 of a million scores, and 64 x 512 attention heads over 512 + 128 packed entries that
 * lie anywhere in a million. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "kern/attend.h"
#include "kern/topk.h"
#include "num/formats.h"

static size_t entries_of(const mote__bench *b) { return (size_t)1 << (b->quick ? 13 : 20); }

/* ---- indexer ---- */

enum { I_HEADS = 32, I_DIM = 128, TILE = 16, TILES_AT_ONCE = 64 };
typedef struct indexer {
    mote__index_query q;
    int8_t codes[I_HEADS * I_DIM];
    int32_t sums[I_HEADS * I_DIM / 32];
    float scales[I_HEADS * I_DIM / 32], weights[I_HEADS];
    uint8_t *keys, *key_scales;
    float *scores;
    size_t n_tiles;
    const mote__kern_ops *kern;
} indexer;

static mote__index_tiles tiles_from(const indexer *x, size_t t, size_t n)
{
    return (mote__index_tiles)
    {
        x->keys + t *TILE
        *(I_DIM / 2), x->key_scales + t *TILE
        *(I_DIM / 32), n
    };
}

static void score_tiles(void *ctx, size_t begin, size_t end, int thread)
{
    const indexer *x = ctx;
    mote__index_tiles tiles = tiles_from(x, begin, end - begin);
    x->kern->index_scores(x->scores + begin * TILE, &x->q, &tiles, 1);
}

static void run_indexer(void *ctx, mote__bench_env *env)
{
    indexer *x = ctx;
    x->kern = env->kern;
    mote__threads_for(env->pool, x->n_tiles, TILES_AT_ONCE, score_tiles, x);
}

static int check_indexer(mote__bench *b, indexer *x)
{
    float want[TILE];
    for (size_t i = 0; i < 64; i++) {
        size_t t = (size_t)mote__bench_random(9, i) % x->n_tiles;
        mote__index_tiles tile = tiles_from(x, t, 1);
        mote__kern_at(0)->index_scores(want, &x->q, &tile, 1);
        if (memcmp(want, x->scores + t * TILE, sizeof want))
            return mote__bench_fail(
                b, MOTE_EFORMAT,
                "wrong answer: scores of entries from %zu on differ from the scalar kernel's",
                t * TILE);
    }
    return 0;
}

int mote__bench_indexer(mote__bench *b)
{
    size_t n = entries_of(b);
    indexer *x = mote__alloc(NULL, MOTE_MEM_SCRATCH, sizeof *x);
    size_t bytes = n * (I_DIM / 2 + I_DIM / 32 + sizeof(float));
    uint8_t *memory = mote__bench_pages(bytes);
    int rc = x && memory ? 0 : mote__bench_fail(b, MOTE_ENOMEM, "out of memory for %zu keys", n);
    if (!rc) {
        float q[I_HEADS * I_DIM];
        x->n_tiles = n / TILE;
        x->keys = memory;
        x->key_scales = memory + n * (I_DIM / 2);
        x->scores = (float *)(void *)(x->key_scales + n * (I_DIM / 32));
        for (size_t i = 0; i < n * (I_DIM / 2); i += 8) {
            uint64_t u = mote__bench_random(21, i);
            memcpy(x->keys + i, &u, 8);
        }
        for (size_t i = 0; i < n * (I_DIM / 32); i++)
            x->key_scales[i] = (uint8_t)(122 + (mote__bench_random(22, i) >> 62));
        mote__bench_floats(q, I_HEADS * I_DIM, 23);
        mote__bench_floats(x->weights, I_HEADS, 24);
        mote__index_query_encode(x->codes, x->sums, x->scales, q, I_HEADS, I_DIM);
        x->q = (mote__index_query){ I_HEADS, I_DIM, x->codes, x->sums, x->scales, x->weights, 0 };
        char shape[80];
        snprintf(shape, sizeof shape, "%d heads x %d, %zu keys, one query", I_HEADS, I_DIM, n);
        mote__bench_work work = { run_indexer, x, &b->env[MOTE_BENCH_AS_RUN],
                                  2.0 * I_HEADS * I_DIM * (double)n };
        mote__bench_work peak = mote__bench_peak_of(b, MOTE_PEAK_INT8);
        run_indexer(x, work.env);
        rc = check_indexer(b, x);
        if (!rc)
            rc = mote__bench_against(b, "indexer score", shape, &work, &peak, "GOP/s", 0.7,
                                     "limit: int8 VNNI peak");
        if (!rc)
            rc = mote__bench_modes(b, "indexer score", shape, run_indexer, x, 1);
    }
    mote__bench_unpages(memory, bytes);
    mote__free(NULL, MOTE_MEM_SCRATCH, x, sizeof *x);
    return rc;
}

/* ---- top-k ---- */

enum { BEST = 512, STRIP = MOTE_TOPK_STRIP }; /* strips as the selection pushes them */
typedef struct topk {
    float *scores;
    size_t n;
    mote__topk t;
    void *memory;
    uint32_t best[BEST];
    size_t n_best;
} topk;

static void run_topk(void *ctx, mote__bench_env *env)
{
    topk *x = ctx;
    mote__topk_init(&x->t, env->kern, BEST, x->memory);
    for (size_t at = 0; at < x->n; at += STRIP)
        mote__topk_push(&x->t, x->scores + at, x->n - at < STRIP ? x->n - at : STRIP, (uint32_t)at);
    x->n_best = mote__topk_finish(&x->t, x->best);
}

static void run_read(void *ctx, mote__bench_env *env)
{
    const topk *x = ctx;
    mote__bench_read_once((const uint8_t *)x->scores, x->n * sizeof *x->scores);
}

struct ranked {
    float score;
    uint32_t index;
};
static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1)
                                : (x->index > y->index) - (x->index < y->index);
}
static int by_index(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

static int check_topk(mote__bench *b, const topk *x, const char *what)
{
    struct ranked *all = malloc(x->n * sizeof *all);
    if (!all)
        return mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    for (size_t i = 0; i < x->n; i++)
        all[i] = (struct ranked){ x->scores[i], (uint32_t)i };
    qsort(all, x->n, sizeof *all, by_score);
    qsort(all, BEST, sizeof *all, by_index);
    int rc = x->n_best == BEST ? 0
                               : mote__bench_fail(b, MOTE_EFORMAT, "wrong answer, %s: %zu selected",
                                                  what, x->n_best);
    for (size_t i = 0; i < BEST && !rc; i++)
        if (x->best[i] != all[i].index)
            rc = mote__bench_fail(b, MOTE_EFORMAT,
                                  "wrong answer, %s: pick %zu is %u, a sort says %u", what, i,
                                  x->best[i], all[i].index);
    free(all);
    return rc;
}

static int one_order(mote__bench *b, topk *x, const char *what, double target)
{
    char name[80], shape[80];
    mote__bench_env *env = &b->env[MOTE_BENCH_AS_RUN];
    mote__bench quick_runs = *b; /* short: twice the runs cost nothing */
    quick_runs.runs = b->runs < 50 ? 2 * b->runs : 99;
    /* in turn, so that both find the scores where the other left them */
    mote__bench_work ours = { run_topk, x, env, 1 }, reads = { run_read, x, env, 1 };
    mote__bench_pair p = mote__bench_in_turn(&quick_runs, &reads, &ours);
    int rc = check_topk(b, x, what);
    if (rc)
        return rc;
    snprintf(name, sizeof name, "top-%d, %s", BEST, what);
    snprintf(shape, sizeof shape, "%zu scores, one thread", x->n);
    return mote__bench_add(b, &(mote__bench_row){ name, shape, p.y.median * 1e3, "ms",
                                                  p.x.median * 1e3, p.y_over_x.median, target,
                                                  p.y_over_x, 1,
                                                  "limit: one read pass over the same scores" });
}

int mote__bench_topk(mote__bench *b)
{
    topk *x = calloc(1, sizeof *x);
    size_t n = entries_of(b), bytes = n * sizeof(float);
    float *scores = mote__bench_pages(bytes);
    void *memory = mote__alloc(NULL, MOTE_MEM_SCRATCH, mote__topk_bytes(BEST));
    int rc = x && scores && memory ? 0 : mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    if (!rc) {
        x->scores = scores;
        x->n = n;
        x->memory = memory;
        mote__bench_floats(scores, n, 31);
        rc = one_order(b, x, "random", 1.5);
        for (size_t i = 0; i < n; i++)
            scores[i] = (float)i;
        if (!rc)
            rc = one_order(b, x, "ascending", 4);
        for (size_t i = 0; i < n; i++)
            scores[i] = 1;
        if (!rc)
            rc = one_order(b, x, "all equal", 4);
    }
    mote__free(NULL, MOTE_MEM_SCRATCH, memory, mote__topk_bytes(BEST));
    mote__bench_unpages(scores, bytes);
    free(x);
    return rc;
}

/* ---- attention ---- */

/* REPEAT: queries a run */
enum {
    HEADS = 64,
    DIM = 512,
    N_WINDOW = 128,
    CODES = DIM / 2,
    SCALES = DIM / 16,
    W_ROW = DIM + DIM / 32,
    LISTS = 16,
    REPEAT = 8,
    WHOLE = 32768
};
typedef struct attention {
    uint8_t *codes, *scales, *window;
    float *q, *out, *sink;
    mote__kv_ref refs[LISTS][N_WINDOW + BEST], all[WHOLE];
    /* n_all: 0, or so many entries of the cache from its start, and no window */
    size_t list, n_all;
    const mote__kern_ops *kern;
    size_t groups;
    float *scratch; /* [groups][mote__attend_scratch] */
} attention;

/* heads [h0, h1) of the query, as a thread gets them */
static void attend_heads(const attention *x, const mote__kern_ops *kern, size_t h0, size_t h1,
                         float *out, float *scratch)
{
    const mote__kv_ref *refs = x->refs[x->list % LISTS];
    mote__attend_args a = { .q = x->q + h0 * DIM,
                            .n_heads = h1 - h0,
                            .dim = DIM,
                            .window = refs,
                            .n_window = x->n_all ? 0 : N_WINDOW,
                            .window_fmt = MOTE_KV_FP8,
                            .main = x->n_all ? x->all : refs + N_WINDOW,
                            .n_main = x->n_all ? x->n_all : BEST,
                            .main_fmt = MOTE_KV_FP4,
                            .sink = x->sink + h0,
                            .scale = 1 / sqrtf(DIM),
                            .out = out + h0 * DIM };
    mote__attend(kern, &a, scratch);
}

static void attend_groups(void *ctx, size_t begin, size_t end, int thread)
{
    const attention *x = ctx;
    for (size_t g = begin; g < end; g++)
        attend_heads(x, x->kern, HEADS * g / x->groups, HEADS * (g + 1) / x->groups, x->out,
                     x->scratch + g * mote__attend_scratch(HEADS, DIM));
}

static void run_attention(void *ctx, mote__bench_env *env)
{
    attention *x = ctx;
    x->kern = env->kern;
    x->groups = (size_t)mote__threads_count(env->pool);
    for (int i = 0; i < (x->n_all ? 1 : REPEAT); i++) {
        x->list++;
        mote__threads_for(env->pool, x->groups, 1, attend_groups, x);
    }
}

/* One head against softmax in double; all heads against the scalar kernels' bits. The bound: scores
 * and sums are FP32 dots of DIM terms, so probabilities are off by DIM/16 eps sum |q kv| relative,
 * and the output by that times the largest |kv|. */
static int check_attention(mote__bench *b, attention *x, float *want)
{
    size_t n_window = x->n_all ? 0 : N_WINDOW, n = n_window + (x->n_all ? x->n_all : BEST);
    attend_heads(x, mote__kern_at(0), 0, HEADS, want, x->scratch);
    if (memcmp(want, x->out, HEADS * DIM * sizeof *want))
        return mote__bench_fail(b, MOTE_EFORMAT,
                                "wrong answer: the output differs from the scalar kernels'");
    const mote__kv_ref *refs = x->n_all ? x->all : x->refs[x->list % LISTS];
    double acc[DIM] = { 0 }, sum = exp((double)x->sink[0]), worst = 0, largest = 0;
    for (size_t j = 0; j < n; j++) {
        float kv[DIM];
        double s = 0, size = 0;
        mote__kvfmts[j < n_window ? MOTE_KV_FP8 : MOTE_KV_FP4].decode(kv, refs[j].codes,
                                                                      refs[j].scales, DIM);
        for (size_t d = 0; d < DIM; d++) {
            s += (double)x->q[d] * (double)kv[d];
            size += fabs((double)x->q[d] * (double)kv[d]);
            largest = fmax(largest, fabs((double)kv[d]));
        }
        worst = fmax(worst, size / sqrt(DIM));
        double p = exp(s / sqrt(DIM));
        sum += p;
        for (size_t d = 0; d < DIM; d++)
            acc[d] += p * (double)kv[d];
    }
    double bound = (DIM / 16 + 20) * (double)FLT_EPSILON * (worst + 1) * largest * 2;
    for (size_t d = 0; d < DIM; d++)
        if (!(fabs(acc[d] / sum - (double)x->out[d]) <= bound))
            return mote__bench_fail(b, MOTE_EFORMAT,
                                    "wrong answer: output %zu is %.9g, in double %.9g", d,
                                    (double)x->out[d], acc[d] / sum);
    return 0;
}

static void fill_entries(attention *x, size_t n)
{
    for (size_t i = 0; i < n * CODES; i += 8) {
        uint64_t u = mote__bench_random(41, i);
        memcpy(x->codes + i, &u, 8);
    }
    for (size_t i = 0; i < n * SCALES; i++) /* E4M3 scales of 0.125 to 0.47 */
        x->scales[i] = (uint8_t)(0x20 + (mote__bench_random(42, i) >> 60));
    for (size_t i = 0; i < N_WINDOW * (size_t)W_ROW; i++)
        x->window[i] = i % W_ROW < DIM ? (uint8_t)(mote__bench_random(43, i) >> 56 & 0xbf) : 127;
    for (size_t l = 0; l < LISTS; l++) {
        for (size_t j = 0; j < N_WINDOW; j++)
            x->refs[l][j] = (mote__kv_ref){ x->window + j * W_ROW, x->window + j * W_ROW + DIM };
        /* one entry of each 1/512 of the cache: ascending, scattered */
        for (size_t j = 0; j < BEST; j++) {
            size_t e = j * (n / BEST) + (size_t)mote__bench_random(44 + l, j) % (n / BEST);
            x->refs[l][N_WINDOW + j] = (mote__kv_ref){ x->codes + e * CODES,
                                                       x->scales + e * SCALES };
        }
    }
}

/* Every entry of a cache of 32,768, as attention without a selection reads it: the work that other
 * engines do at this length. */
static int bench_whole(mote__bench *b, attention *x, size_t n, float *want)
{
    x->n_all = n < WHOLE ? n : WHOLE;
    for (size_t e = 0; e < x->n_all; e++)
        x->all[e] = (mote__kv_ref){ x->codes + e * CODES, x->scales + e * SCALES };
    char shape[80];
    snprintf(shape, sizeof shape, "%d heads x %d, all of %zu entries", HEADS, DIM, x->n_all);
    mote__bench_work work = { run_attention, x, &b->env[MOTE_BENCH_AS_RUN],
                              4.0 * HEADS * DIM * (double)x->n_all };
    mote__bench_work peak = mote__bench_peak_of(b, MOTE_PEAK_FMA);
    run_attention(x, work.env);
    int rc = check_attention(b, x, want);
    return rc ? rc
              : mote__bench_against(b, "whole attention", shape, &work, &peak, "GFLOP/s",
                                    (double)NAN,
                                    "limit: FP32 FMA peak; one query, entries in order, no window");
}

int mote__bench_attention(mote__bench *b)
{
    size_t n = entries_of(b), bytes = n * (CODES + SCALES),
           scratch = mote__attend_scratch(HEADS, DIM) * sizeof(float) * (size_t)b->n_threads;
    size_t floats = (3 * HEADS * DIM + HEADS) * sizeof(float);
    attention *x = calloc(1, sizeof *x);
    uint8_t *memory = mote__bench_pages(bytes),
            *window = mote__alloc(NULL, MOTE_MEM_SCRATCH, N_WINDOW * (size_t)W_ROW);
    float *f = mote__bench_pages(floats), *s = mote__bench_pages(scratch);
    int rc = x && memory && window && f && s
                 ? 0
                 : mote__bench_fail(b, MOTE_ENOMEM, "out of memory for %zu entries", n);
    if (!rc) {
        *x = (attention){ .codes = memory,
                          .scales = memory + n * CODES,
                          .window = window,
                          .q = f,
                          .out = f + HEADS * DIM,
                          .sink = f + 3 * HEADS * DIM,
                          .scratch = s };
        fill_entries(x, n);
        mote__bench_floats(x->q, HEADS * DIM, 45);
        char shape[80];
        snprintf(shape, sizeof shape, "%d heads x %d, %d of %zu + %d entries", HEADS, DIM, BEST, n,
                 N_WINDOW);
        mote__bench_work work = { run_attention, x, &b->env[MOTE_BENCH_AS_RUN],
                                  REPEAT * 4.0 * HEADS * DIM * (BEST + N_WINDOW) };
        mote__bench_work peak = mote__bench_peak_of(b, MOTE_PEAK_FMA);
        run_attention(x, work.env);
        rc = check_attention(b, x, f + 2 * HEADS * DIM);
        if (!rc)
            rc = mote__bench_against(
                b, "sparse attention", shape, &work, &peak, "GFLOP/s", 0.6,
                "limit: FP32 FMA peak; eight queries a run, each with other entries");
        if (!rc)
            rc = mote__bench_modes(b, "sparse attention", shape, run_attention, x, 1);
        if (!rc)
            rc = bench_whole(b, x, n, f + 2 * HEADS * DIM);
    }
    mote__bench_unpages(s, scratch);
    mote__bench_unpages(f, floats);
    mote__free(NULL, MOTE_MEM_SCRATCH, window, N_WINDOW * (size_t)W_ROW);
    mote__bench_unpages(memory, bytes);
    free(x);
    return rc;
}
