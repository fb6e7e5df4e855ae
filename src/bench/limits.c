/* What the machine can do, with given threads: bytes read per second from memory, and operations per second of the
 * multiply-add instructions that kernels are made of, from registers alone. The best of several ways to read counts. */
#include <string.h>

#include "base/cpu.h"
#include "bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PIECE = 2 << 20, ROUNDS = 1 << 16, LOOPS = 32 };      /* bytes of a read task; instructions of a task; tasks a thread */

struct reads { const uint8_t *data; size_t bytes; void (*read)(const uint8_t *p, size_t n); };
struct sums { void (*loop)(void); size_t n; };
static volatile uint64_t sink;

/* ---- reads -------------------------------------------------------------------------------------------------- */

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
WITH("avx512f") static inline __attribute__((always_inline)) void read_512(const uint8_t *p, size_t n, size_t streams, size_t ahead)
{
    __m512i s[4] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512() };
    size_t part = n / streams;
    for (size_t i = 0; i < part; i += 256)
        for (size_t t = 0; t < streams; t++)
            for (size_t k = 0; k < 4; k++) {
                const uint8_t *at = p + t * part + i + 64 * k;
                if (ahead)
                    _mm_prefetch((const char *)at + ahead, _MM_HINT_T0);
                s[k] = _mm512_xor_si512(s[k], _mm512_load_si512(at));
            }
    sink = (uint64_t)_mm512_reduce_add_epi64(_mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3])));
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
    mote__pool_for(env->pool, r->bytes / PIECE, 1, read_pieces, ctx);
}

/* ---- multiply-adds: twelve independent chains cover the latency of two units ------------------------------------ */

#if defined(__x86_64__)
enum { CHAINS = 12 };
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
    __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f003f00), y = (__m512bh)_mm512_set1_epi32((int)(0x3e803e80u + (sink & 1)));
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

static void run_sums(void *ctx, mote__bench_env *env) { mote__pool_for(env->pool, ((struct sums *)ctx)->n, 1, run_loops, ctx); }

/* ops: operations of one instruction */
static double per_second(const mote__bench *b, mote__bench_env *env, void (*loop)(void), double ops)
{
    struct sums s = { loop, (size_t)mote__pool_threads(env->pool) * LOOPS };
    double rounds = (ROUNDS + CHAINS - 1) / CHAINS * CHAINS;
    return (double)s.n * rounds * ops / mote__bench_measure(b, run_sums, &s, env).median;
}

static double read_rate(const mote__bench *b, mote__bench_env *env, const uint8_t *data, size_t bytes, double best,
                        void (*f)(const uint8_t *, size_t))
{
    struct reads r = { data, bytes / PIECE * PIECE, f };
    double rate = (double)r.bytes / mote__bench_measure(b, run_reads, &r, env).median;
    return rate > best ? rate : best;
}

void mote__bench_limits_measure(const mote__bench *b, mote__pool *pool, const uint8_t *buffer, size_t bytes, mote__bench_limits *l)
{
    mote__bench_env env = { .pool = pool };
    *l = (mote__bench_limits){ 0 };
    l->read = read_rate(b, &env, buffer, bytes, 0, read_plain);
#if defined(__x86_64__)
    mote__cpu_level level = mote__cpu_detect();
    if (level >= MOTE_CPU_AVX2)
        l->fma = per_second(b, &env, fma_256, 16);
    if (level >= MOTE_CPU_AVX512) {
        void (*const ways[])(const uint8_t *, size_t) = { read_512_1, read_512_1p, read_512_4, read_512_4p };
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            l->read = read_rate(b, &env, buffer, bytes, l->read, ways[i]);
        double wide = per_second(b, &env, fma_512, 32);
        l->fma = wide > l->fma ? wide : l->fma;
        l->int8 = per_second(b, &env, vnni_512, 128);
        if (__builtin_cpu_supports("avx512bf16"))
            l->bf16 = per_second(b, &env, bf16_512, 64);
    }
#endif
}
