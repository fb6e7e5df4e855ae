/* What the machine can do, with given threads: bytes read per second from memory, operations per
 * second of the multiply-add instructions that kernels are made of, from registers alone, and the
 * time it takes all threads to meet. The best of several ways to read counts. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cpu.h"
#include "bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* bytes of a read task; instructions of a task; tasks a thread */
enum { PIECE = 2 << 20, ROUNDS = 1 << 16, LOOPS = 512 };

struct reads {
    const uint8_t *data;
    size_t bytes;
    void (*read)(const uint8_t *p, size_t n);
};
struct sums {
    void (*loop)(void);
    size_t n;
};
static volatile uint64_t sink;

/* ---- reads ---- */

static void read_plain(const uint8_t *p, size_t n)
{
    uint64_t s[8] = { 0 }, v[8];
    for (size_t i = 0; i < n; i += 64) {
        memcpy(v, p + i, 64);
        for (int k = 0; k < 8; k++)
            s[k] ^= v[k];
    }
    sink = s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

#if defined(__x86_64__)
#define WITH(flags) __attribute__((target(flags)))
/* streams: places of the piece that are read in turn; more of them keep more prefetchers busy */
WITH("avx512f")
static inline __attribute__((always_inline)) void read_512(const uint8_t *p, size_t n,
                                                           size_t streams, size_t ahead)
{
    __m512i s[4] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                     _mm512_setzero_si512() };
    size_t part = n / streams;
    for (size_t i = 0; i < part; i += 256)
        for (size_t t = 0; t < streams; t++)
            for (size_t k = 0; k < 4; k++) {
                const uint8_t *at = p + t * part + i + 64 * k;
                if (ahead)
                    _mm_prefetch((const char *)at + ahead, _MM_HINT_T0);
                s[k] = _mm512_xor_si512(s[k], _mm512_load_si512(at));
            }
    uint64_t v[8];
    _mm512_storeu_si512(v, _mm512_xor_si512(_mm512_xor_si512(s[0], s[1]),
                                            _mm512_xor_si512(s[2], s[3])));
    sink = v[0] ^ v[1] ^ v[2] ^ v[3] ^ v[4] ^ v[5] ^ v[6] ^ v[7];
}
WITH("avx512f") static void read_512_1(const uint8_t *p, size_t n) { read_512(p, n, 1, 0); }
WITH("avx512f") static void read_512_1p(const uint8_t *p, size_t n) { read_512(p, n, 1, 1024); }
WITH("avx512f") static void read_512_4(const uint8_t *p, size_t n) { read_512(p, n, 4, 0); }
WITH("avx512f") static void read_512_4p(const uint8_t *p, size_t n) { read_512(p, n, 4, 1024); }
#endif

void mote__bench_read_once(const uint8_t *p, size_t n)
{
#if defined(__x86_64__)
    if (mote__cpu_detect() >= MOTE_CPU_AVX512) {
        read_512_1(p, n);
        return;
    }
#endif
    read_plain(p, n);
}

static void read_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct reads *r = ctx;
    for (size_t i = begin; i < end; i++)
        r->read(r->data + i * PIECE, PIECE);
}

static void run_reads(void *ctx, mote__bench_env *env)
{
    const struct reads *r = ctx;
    mote__threads_for(env->pool, r->bytes / PIECE, 1, read_pieces, ctx);
}

/* ---- multiply-adds: twelve independent chains cover the latency of two units ---- */

enum { CHAINS = 12 };
#if defined(__x86_64__)
WITH("avx2,fma") static void fma_256(void)
{
    __m256 a[CHAINS], x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
    for (int k = 0; k < CHAINS; k++)
        a[k] = _mm256_set1_ps((float)k);
    for (int i = 0; i < ROUNDS; i += CHAINS)
        for (int k = 0; k < CHAINS; k++)
            a[k] = _mm256_fmadd_ps(a[k], x, y);
    for (int k = 1; k < CHAINS; k++)
        a[0] = _mm256_add_ps(a[0], a[k]);
    sink = (uint64_t)_mm_cvtsi128_si64(_mm_castps_si128(_mm256_castps256_ps128(a[0])));
}
WITH("avx512f") static void fma_512(void)
{
    __m512 a[CHAINS], x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
    for (int k = 0; k < CHAINS; k++)
        a[k] = _mm512_set1_ps((float)k);
    for (int i = 0; i < ROUNDS; i += CHAINS)
        for (int k = 0; k < CHAINS; k++)
            a[k] = _mm512_fmadd_ps(a[k], x, y);
    for (int k = 1; k < CHAINS; k++)
        a[0] = _mm512_add_ps(a[0], a[k]);
    sink = (uint64_t)_mm512_reduce_add_ps(a[0]);
}
WITH("avx512f,avx512bw,avx512vl,avx512bf16") static void bf16_512(void)
{
    __m512 a[CHAINS];
    __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f003f00),
             y = (__m512bh)_mm512_set1_epi32((int)(0x3e803e80u + (sink & 1)));
    for (int k = 0; k < CHAINS; k++)
        a[k] = _mm512_set1_ps((float)k);
    for (int i = 0; i < ROUNDS; i += CHAINS)
        for (int k = 0; k < CHAINS; k++)
            a[k] = _mm512_dpbf16_ps(a[k], x, y);
    for (int k = 1; k < CHAINS; k++)
        a[0] = _mm512_add_ps(a[0], a[k]);
    sink = (uint64_t)_mm512_reduce_add_ps(a[0]);
}
WITH("avx512f,avx512bw,avx512vnni") static void vnni_512(void)
{
    __m512i a[CHAINS], x = _mm512_set1_epi8(3), y = _mm512_set1_epi8((char)(5 + (sink & 1)));
    for (int k = 0; k < CHAINS; k++)
        a[k] = _mm512_set1_epi32(k);
    for (int i = 0; i < ROUNDS; i += CHAINS)
        for (int k = 0; k < CHAINS; k++)
            a[k] = _mm512_dpbusd_epi32(a[k], x, y);
    for (int k = 1; k < CHAINS; k++)
        a[0] = _mm512_add_epi32(a[0], a[k]);
    sink = (uint64_t)_mm512_reduce_add_epi32(a[0]);
}
#endif

static void run_loops(void *ctx, size_t begin, size_t end, int thread)
{
    for (size_t i = begin; i < end; i++)
        ((const struct sums *)ctx)->loop();
}

static void run_sums(void *ctx, mote__bench_env *env)
{
    mote__threads_for(env->pool, ((struct sums *)ctx)->n, 1, run_loops, ctx);
}

/* ---- yardsticks ---- */

/* operations of one instruction */
typedef struct peak {
    void (*loop)(void);
    double ops;
} peak;
typedef void reader(const uint8_t *p, size_t n);

static peak peak_of(mote__bench_peak which)
{
#if defined(__x86_64__)
    mote__cpu_level level = mote__cpu_detect();
    if (level >= MOTE_CPU_AVX512)
        switch (which) {
        case MOTE_PEAK_FMA: return (peak){ fma_512, 32 };
        case MOTE_PEAK_BF16:
            return __builtin_cpu_supports("avx512bf16") ? (peak){ bf16_512, 64 }
                                                        : (peak){ NULL, 0 };
        case MOTE_PEAK_INT8: return (peak){ vnni_512, 128 };
        default: break;
        }
    if (level >= MOTE_CPU_AVX2 && which == MOTE_PEAK_FMA)
        return (peak){ fma_256, 16 };
#endif
    return (peak){ NULL, 0 };
}

/* The i-th way to read that this machine has; NULL behind the last. */
static reader *reader_at(int i)
{
#if defined(__x86_64__)
    static reader *const wide[] = { read_512_1, read_512_1p, read_512_4, read_512_4p };
    if (i >= 1 && i <= 4 && mote__cpu_detect() >= MOTE_CPU_AVX512)
        return wide[i - 1];
#endif
    return i == 0 ? read_plain : NULL;
}

mote__bench_work mote__bench_reads(mote__bench *b, const uint8_t *memory, size_t bytes)
{
    static struct reads r;
    r = (struct reads){ memory, bytes / PIECE * PIECE, reader_at(b->limits.best_read) };
    return (mote__bench_work){ run_reads, &r, &b->env[MOTE_BENCH_AS_RUN], (double)r.bytes };
}

static mote__bench_work sums_of(struct sums *s, mote__bench_env *env, mote__bench_peak which)
{
    peak p = peak_of(which);
    double rounds = (ROUNDS + CHAINS - 1) / CHAINS * CHAINS;
    *s = (struct sums){ p.loop, (size_t)mote__threads_count(env->pool) * LOOPS };
    return (mote__bench_work){ p.loop ? run_sums : NULL, s, env, (double)s->n * rounds * p.ops };
}

mote__bench_work mote__bench_peak_of(mote__bench *b, mote__bench_peak which)
{
    static struct sums s[MOTE_PEAKS];
    return sums_of(&s[which], &b->env[MOTE_BENCH_AS_RUN], which);
}

/* ---- meetings ---- */

enum { MEETINGS = 1024 };

struct meeting {
    _Atomic size_t missing;
};

/* One piece a thread: nobody leaves before all have come. */
static void meet(void *ctx, size_t begin, size_t end, int thread)
{
    struct meeting *m = ctx;
    atomic_fetch_sub(&m->missing, end - begin);
    for (size_t spins = 1; atomic_load(&m->missing); spins++)
        if (spins % 4096 == 0)
            sched_yield(); /* more threads than cores */
}

static void run_meetings(void *ctx, mote__bench_env *env)
{
    size_t n = (size_t)mote__threads_count(env->pool);
    for (int i = 0; i < MEETINGS; i++) {
        struct meeting m = { n };
        mote__threads_for(env->pool, n, 1, meet, &m);
    }
}

void mote__bench_limits_measure(mote__bench *b, mote__bench_env *env, const uint8_t *buffer,
                                size_t bytes, mote__bench_limits *l)
{
    *l = (mote__bench_limits){ 0 };
    for (int i = 0; reader_at(i); i++) {
        struct reads r = { buffer, bytes / PIECE * PIECE, reader_at(i) };
        double rate = (double)r.bytes / mote__bench_measure(b, run_reads, &r, env).median;
        if (rate > l->read) {
            l->read = rate;
            l->best_read = i;
        }
    }
    double *const rates[MOTE_PEAKS] = { &l->fma, &l->bf16, &l->int8 };
    for (int i = 0; i < MOTE_PEAKS; i++) {
        struct sums s;
        mote__bench_work w = sums_of(&s, env, (mote__bench_peak)i);
        if (w.body)
            *rates[i] = w.amount / mote__bench_measure(b, w.body, w.ctx, env).median;
    }
    if (mote__threads_count(env->pool) > 1)
        l->loop = mote__bench_measure(b, run_meetings, NULL, env).median / MEETINGS;
}
