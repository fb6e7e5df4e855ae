/* Memory in huge pages, and random weights in it: the same bytes for any number of threads. */
#include <math.h>
#include <string.h>

#include "bench/bench.h"

void *mote__bench_pages(size_t bytes)
{
    return mote__map_large_pages(NULL, MOTE_MEM_SCRATCH, &bytes);
}

void mote__bench_unpages(void *p, size_t bytes)
{
    mote__unmap_pages(NULL, MOTE_MEM_SCRATCH, p, bytes);
}

/* splitmix64's output function over a counter */
uint64_t mote__bench_random(uint64_t seed, uint64_t i)
{
    uint64_t z = (seed * 0x2545F4914F6CDD1Dull) + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

float mote__bench_unit(uint64_t seed, uint64_t i)
{
    return (float)((double)(mote__bench_random(seed, i) >> 40) / (1 << 23) - 1.0);
}

void mote__bench_floats(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = mote__bench_unit(seed, i);
}

/* ---- random weights ---- */

static size_t code_bytes(mote__wkind kind, size_t n_out, size_t n_in)
{
    static const size_t bits[MOTE_W_KINDS] = { 32, 16, 8, 4, 4 };
    return n_out * n_in * bits[kind] / 8;
}

static size_t scale_bytes(mote__wkind kind, size_t n_out, size_t n_in)
{
    return kind == MOTE_W_FP8     ? (n_out + 31) / 32 * ((n_in + 31) / 32)
           : kind >= MOTE_W_MXFP4 ? n_out * (n_in / 32)
                                  : 0;
}

size_t mote__bench_mat_bytes(mote__wkind kind, size_t n_out, size_t n_in)
{
    return mote__round64(code_bytes(kind, n_out, n_in)) +
           mote__round64(scale_bytes(kind, n_out, n_in));
}

double mote__bench_mat_traffic(const mote__mat *m)
{
    return (double)(code_bytes(m->kind, m->n_out, m->n_in) +
                    scale_bytes(m->kind, m->n_out, m->n_in));
}

mote__mat mote__bench_place(uint8_t **at, mote__wkind kind, size_t n_out, size_t n_in)
{
    mote__mat m = { .kind = kind, .n_out = n_out, .n_in = n_in, .data = *at };
    *at += mote__round64(code_bytes(kind, n_out, n_in));
    if (scale_bytes(kind, n_out, n_in)) {
        m.scale = *at;
        m.scale_stride = (n_in + 31) / 32;
        *at += mote__round64(scale_bytes(kind, n_out, n_in));
    }
    return m;
}

struct fill {
    const mote__mat *m;
    uint64_t seed;
    size_t bytes;
    int exponent;
};
enum { FILL_PIECE = 1 << 20 };

/* Weights of about 2^exponent: BF16 and F32 by their own exponent, E4M3 (codes of rms 2^7) and E2M1
 * (rms 3) by scales. */
static void fill_piece(void *ctx, size_t begin, size_t end, int thread)
{
    const struct fill *f = ctx;
    /* the bench's own memory: matrices only borrow it */
    uint8_t *data = (uint8_t *)(uintptr_t)f->m->data;
    for (size_t piece = begin; piece < end; piece++)
        for (size_t at = piece * FILL_PIECE; at < f->bytes && at < (piece + 1) * FILL_PIECE;
             at += 8) {
            uint64_t u = mote__bench_random(f->seed, at);
            /* sign and mantissa are random, exponents e or e - 1 */
            if (f->m->kind == MOTE_W_BF16)
                u = (u & 0x80ff80ff80ff80ffull & ~0x0080008000800080ull) |
                    (uint64_t)(127 + f->exponent) * 0x0080008000800080ull;
            else if (f->m->kind == MOTE_W_F32)
                u = (u & 0x807fffff807fffffull) |
                    (uint64_t)(127 + f->exponent) * 0x0080000000800000ull;
            else if (f->m->kind == MOTE_W_FP8) /* no NaN: 0x7f and 0xff lose a bit */
                u &= ~(((u & 0x7f7f7f7f7f7f7f7full) + 0x0101010101010101ull) >> 7 &
                       0x0101010101010101ull);
            memcpy(data + at, &u, f->bytes - at < 8 ? f->bytes - at : 8);
        }
}

void mote__bench_fill(mote__threads *pool, const mote__mat *m, uint64_t seed)
{
    struct fill f = { m, seed, code_bytes(m->kind, m->n_out, m->n_in),
                      -(int)(log2((double)m->n_in) / 2 + 0.5) };
    mote__threads_for(pool, (f.bytes + FILL_PIECE - 1) / FILL_PIECE, 1, fill_piece, &f);
    size_t n = scale_bytes(m->kind, m->n_out, m->n_in);
    int exponent = f.exponent - (m->kind == MOTE_W_FP8 ? 7 : 2);
    /* a row of one tile has the scale of its neighbours: where rows are long the sum evens its many
     * scales out, too */
    int spread = m->n_in > 32;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)(uintptr_t)m->scale)[i] =
            (uint8_t)(127 + exponent + spread * ((int)(mote__bench_random(seed + 1, i) >> 62) - 1));
}
