/* Speed of the kernels as ratios to limits measured in the same run: one thread's memory reads over
 * the same buffer, and its fused multiply-adds. Prints figures and passes or fails nothing, but
 * each result is first compared with the scalar one. speed-kern [runs] medians of `runs` (default
 * 7) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kern/attend.h"
#include "kern/kern.h"
#include "kern/lanes.h"
#include "kern/topk.h"
#include "num/formats.h"
#include "test.h"

enum { BUFFER = 192 << 20, MOST_RUNS = 99 };

static int runs = 7;
static double read_gbs, fma_gflops;
static volatile float keep_alive;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* median seconds of one call; *spread: half the distance of the outer quartiles, relative */
static double measure(void (*body)(void *), void *ctx, double *spread)
{
    double t[MOST_RUNS];
    body(ctx);
    for (int i = 0; i < runs; i++) {
        t[i] = now();
        body(ctx);
        t[i] = now() - t[i];
    }
    qsort(t, (size_t)runs, sizeof *t, by_value);
    *spread = (t[runs * 3 / 4] - t[runs / 4]) / 2 / t[runs / 2];
    return t[runs / 2];
}

/* ---- limits ---- */

static uint8_t *buffer;
enum { FMAS = 1 << 22 };

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void read_512(void *arg)
{
    __m512i s[4] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                     _mm512_setzero_si512() };
    for (size_t i = 0; i < BUFFER; i += 256)
        for (int k = 0; k < 4; k++)
            s[k] = _mm512_xor_si512(s[k], _mm512_load_si512(buffer + i + 64 * k));
    keep_alive = (float)_mm512_reduce_add_epi32(
        _mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3])));
}
__attribute__((target("avx512f"))) static void fma_512(void *arg)
{
    __m512 a[12], x = _mm512_set1_ps(keep_alive * 0 + 0.5f), y = _mm512_set1_ps(0.25f), sum = y;
    for (int k = 0; k < 12; k++)
        a[k] = _mm512_set1_ps((float)k);
    for (int i = 0; i < FMAS; i += 12)
        for (int k = 0; k < 12; k++)
            a[k] = _mm512_fmadd_ps(a[k], x, y);
    for (int k = 0; k < 12; k++)
        sum = _mm512_add_ps(sum, a[k]);
    keep_alive = _mm512_reduce_add_ps(sum);
}
#endif
static void read_plain(void *arg)
{
    uint64_t s[8] = { 0 }, v[8];
    for (size_t i = 0; i < BUFFER; i += 64) {
        memcpy(v, buffer + i, 64);
        for (int k = 0; k < 8; k++)
            s[k] ^= v[k];
    }
    keep_alive = (float)(s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7]);
}

static void limits(void)
{
    double spread, t = measure(read_plain, NULL, &spread);
    read_gbs = BUFFER / t * 1e-9;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        t = measure(read_512, NULL, &spread);
        read_gbs = fmax(read_gbs, BUFFER / t * 1e-9);
        t = measure(fma_512, NULL, &spread);
        fma_gflops = 32.0 * FMAS / t * 1e-9;
    }
#endif
    printf("limit  read %.1f GB/s   fma %.1f GFLOP/s   (1 thread, measured, %d runs)\n\n", read_gbs,
           fma_gflops, runs);
    printf("%-36s %13s %9s %9s %9s %8s\n", "kernel", "time", "of read", "of fma", "x scalar",
           "spread");
}

typedef struct call {
    void (*body)(void *, const mote__kern_ops *);
    void *ctx;
    const mote__kern_ops *kern;
} call;
static void run_call(void *arg)
{
    call *c = arg;
    c->body(c->ctx, c->kern);
}

/* offset in the buffer of the next linear's weights */
static size_t walk;

/* Print one line per level, after checking that its result in out [n_out] equals the scalar one.
 * bytes: read per call (0: nothing from memory); flops per call (0: not counted). */
static void report(const char *what, void (*body)(void *, const mote__kern_ops *), void *ctx,
                   const float *out, size_t n_out, double bytes, double flops)
{
    double scalar = 0;
    float *place = (float *)(uintptr_t)out, *before = malloc(n_out * sizeof *before),
          *want = malloc(n_out * sizeof *want);
    if (!before || !want)
        exit(1);
    memcpy(before, out, n_out * sizeof *before);
    for (int level = 0; mote__kern_at(level); level++) {
        call c = { body, ctx, mote__kern_at(level) };
        double spread, t;
        memcpy(place, before, n_out * sizeof *before); /* mix adds to its output */
        walk = 0;
        run_call(&c);
        if (level == 0) {
            memcpy(want, out, n_out * sizeof *want);
        } else if (memcmp(want, out, n_out * sizeof *want) != 0) {
            printf("%s/%s: WRONG, not timed\n", what, c.kern->name);
            continue;
        }
        int keep = runs;
        runs = level ? runs : 1;
        t = measure(run_call, &c, &spread);
        runs = keep;
        scalar = level ? scalar : t;
        char name[96], read[16] = "-", fma[16] = "-";
        snprintf(name, sizeof name, "%s/%s", what, c.kern->name);
        if (bytes > 0)
            snprintf(read, sizeof read, "%.2f", bytes / t * 1e-9 / read_gbs);
        if (flops > 0 && fma_gflops > 0)
            snprintf(fma, sizeof fma, "%.2f", flops / t * 1e-9 / fma_gflops);
        printf("%-36s %10.2f us %9s %9s %9.1f %7.1f%%\n", name, t * 1e6, read, fma, scalar / t,
               spread * 100);
    }
    free(before), free(want);
}

/* ---- linear ---- */

enum { N_IN = 5120, N_OUT = 2304 };
typedef struct linear_ctx {
    mote__mat m;
    float *xp, *y, *scratch;
    size_t rows, ldxp;
} linear_ctx;

static void run_linear(void *arg, const mote__kern_ops *k)
{
    linear_ctx *c = arg;
    /* step through the buffer matrix by matrix, so that weights come from the same memory as the
     * bytes of the limit */
    size_t bytes = N_OUT * (size_t)N_IN / mote__columns_per_word(c->m.kind) * 4;
    walk = walk + 2 * bytes > BUFFER ? 0 : walk + bytes;
    c->m.data = buffer + walk;
    for (size_t o = 0; o < N_OUT; o += 16)
        k->linear(&c->m, o, o + 16, c->xp, c->rows, c->ldxp, c->y, N_OUT, c->scratch);
}

static void linears(void)
{
    static const char *const name[] = { "f32", "bf16", "fp8", "mxfp4" };
    float *x = malloc(N_IN * sizeof *x);
    rnd r = { 3 };
    for (int i = 0; i < N_IN; i++)
        x[i] = rnd_unit(&r);
    uint8_t *scale = malloc(N_OUT * (N_IN / 32));
    memset(scale, 124, N_OUT * (N_IN / 32));
    for (int kind = 0; kind < MOTE_W_KINDS; kind++) {
        static const size_t rows[] = { 1, 4, 48 };
        size_t n_bytes = N_OUT * (size_t)N_IN / mote__columns_per_word((mote__wkind)kind) * 4;
        for (int i = 0; i < 3; i++) {
            linear_ctx c = { .m = { (mote__wkind)kind, N_OUT, N_IN, buffer, scale, N_IN / 32, 0 },
                             .rows = rows[i] };
            c.ldxp = mote__arranged_size(c.m.kind, N_IN) + 16;
            c.xp = aligned_alloc(64, rows[i] * c.ldxp * sizeof(float));
            c.y = aligned_alloc(64, rows[i] * N_OUT * sizeof(float));
            memset(c.y, 0, rows[i] * N_OUT * sizeof(float));
            c.scratch = aligned_alloc(64, MOTE_LINEAR_SCRATCH * sizeof(float));
            for (size_t k = 0; k < rows[i]; k++)
                mote__arrange(c.m.kind, c.xp + k * c.ldxp, x, N_IN);
            char what[64];
            snprintf(what, sizeof what, "linear %s rows=%zu", name[kind], rows[i]);
            report(what, run_linear, &c, c.y, rows[i] * N_OUT, rows[i] == 48 ? 0 : (double)n_bytes,
                   2.0 * N_OUT * N_IN * (double)rows[i]);
            free(c.xp), free(c.y), free(c.scratch);
        }
    }
    free(x), free(scale);
}

/* ---- other kernels: data stays in cache ---- */

enum { HEADS = 64, DIM = 512, TILE = 64, I_HEADS = 32, I_DIM = 128, I_TILES = 64, N = 1 << 16 };
typedef struct small_ctx {
    float *q, *kv, *s, *acc, *keep, *x, *y, *scores;
    uint8_t *codes, *scales;
    mote__kvfmt_id fmt;
    mote__index_query query;
} small_ctx;

static void run_dots(void *arg, const mote__kern_ops *k)
{
    small_ctx *c = arg;
    k->dots(c->s, TILE, c->q, DIM, HEADS, c->kv, DIM, TILE, DIM, 0.04f);
}
static void run_mix(void *arg, const mote__kern_ops *k)
{
    small_ctx *c = arg;
    k->mix(c->acc, DIM, c->keep, c->s, TILE, HEADS, c->kv, DIM, TILE, DIM);
}
static void run_index(void *arg, const mote__kern_ops *k)
{
    small_ctx *c = arg;
    k->index_scores(c->scores, &c->query, &(mote__index_tiles){ c->codes, c->scales, I_TILES }, 1);
}
static void run_decode(void *arg, const mote__kern_ops *k)
{
    small_ctx *c = arg;
    k->decode[c->fmt](c->y, c->codes, c->scales, 32768);
}
static void run_exp(void *arg, const mote__kern_ops *k)
{
    small_ctx *c = arg;
    k->exp(c->y, c->x, N);
}
static void run_swiglu(void *arg, const mote__kern_ops *k)
{
    small_ctx *c = arg;
    k->swiglu(c->y, c->x, c->x, N, 10, 1);
}
static void run_rmsnorm(void *arg, const mote__kern_ops *k)
{
    small_ctx *c = arg;
    k->rmsnorm(c->y, c->x, c->x, N, 1e-6f);
}

static void small(void)
{
    rnd r = { 5 };
    small_ctx c;
    float **all[] = { &c.q, &c.kv, &c.s, &c.acc, &c.keep, &c.x, &c.y, &c.scores };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *all[i] = aligned_alloc(64, N * sizeof(float));
        for (int k = 0; k < N; k++)
            (*all[i])[k] = rnd_unit(&r);
    }
    c.codes = aligned_alloc(64, 1 << 18);
    c.scales = aligned_alloc(64, 1 << 16);
    for (size_t i = 0; i < 1 << 18; i++)
        c.codes[i] = (uint8_t)(rnd_u64(&r) >> 30) & 0x77;
    memset(c.scales, 120, 1 << 16);
    report("dots 64x64x512", run_dots, &c, c.s, HEADS * TILE, 0, 2.0 * HEADS * TILE * DIM);
    report("mix 64x64x512", run_mix, &c, c.acc, HEADS * DIM, 0, 2.0 * HEADS * TILE * DIM);
    int8_t *codes = malloc(I_HEADS * I_DIM);
    int32_t *sums = malloc(I_HEADS * I_DIM / 32 * sizeof *sums);
    float *query_scales = malloc(I_HEADS * I_DIM / 32 * sizeof *query_scales);
    mote__index_query_encode(codes, sums, query_scales, c.q, I_HEADS, I_DIM);
    c.query = (mote__index_query){ I_HEADS, I_DIM, codes, sums, query_scales, c.keep, 0 };
    report("index_scores 1024 x 32 x 128", run_index, &c, c.scores, 1024, 1024.0 * 68,
           2.0 * 1024 * I_HEADS * I_DIM);
    for (int i = 0; i < MOTE_KV_FORMATS; i++) {
        char what[64];
        c.fmt = (mote__kvfmt_id)i;
        snprintf(what, sizeof what, "decode %s 64x512", mote__kvfmts[i].name);
        report(what, run_decode, &c, c.y, 32768, 32768.0 * mote__kvfmts[i].code_bits / 8, 0);
    }
    report("exp 65536", run_exp, &c, c.y, N, 0, 0);
    report("swiglu 65536", run_swiglu, &c, c.y, N, 0, 0);
    report("rmsnorm 65536", run_rmsnorm, &c, c.y, N, 0, 0);
    mote__topk t;
    void *memory = aligned_alloc(64, mote__topk_bytes(512));
    uint32_t out[512];
    for (int ascending = 0; ascending < 2; ascending++) {
        for (int k = 0; k < N && ascending; k++)
            c.x[k] = (float)k;
        double t0 = now();
        mote__topk_init(&t, mote__kern(), 512, memory);
        mote__topk_push(&t, c.x, N, 0);
        size_t n = mote__topk_finish(&t, out);
        printf("topk 512 of 65536, %-12s %8.2f us (%.2f ns a score; %zu kept)\n",
               ascending ? "ascending" : "random", (now() - t0) * 1e6, (now() - t0) / N * 1e9, n);
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(*all[i]);
    free(c.codes), free(c.scales), free(codes), free(sums), free(query_scales), free(memory);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        runs = atoi(argv[1]);
    runs = runs < 1 ? 1 : runs > MOST_RUNS ? MOST_RUNS : runs;
    buffer = aligned_alloc(4096, BUFFER);
    if (!buffer)
        return 1;
    rnd r = { 1 };
    /* usable as weights of every kind: as fp32 and BF16 about 2^-5 to 2, no E4M3 NaN, no denormals
     */
    for (size_t i = 0; i < BUFFER; i += 4) {
        uint32_t u = (uint32_t)rnd_u64(&r) & 0x83778377u;
        u |= 0x3c003c00u;
        memcpy(buffer + i, &u, 4);
    }
    limits();
    linears();
    small();
    free(buffer);
    return 0;
}
