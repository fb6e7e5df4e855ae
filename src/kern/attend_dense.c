/* Causal attention of several positions over one key and value head, tile by tile with a running
 * maximum: the recurrence of attend.c without a sink. Scores and weighted sums are the kernels dots
 * and mix; their scalar versions are the definition. */
#include "kern/attend_dense.h"

#include <string.h>

#include "base/mem.h"

enum { TILE_ENTRIES = MOTE_DENSE_TILE, QUERIES = 32 };

size_t mote__dense_rows(size_t n_heads) { return n_heads < QUERIES ? QUERIES / n_heads : 1; }

static size_t round16(size_t n) { return mote__add(n, 15) / 16 * 16; }

size_t mote__dense_scratch(size_t n_heads, size_t dim)
{
    /* decoded tile; queries and sums; scores, keep, maximum, denominator (double) */
    size_t queries = round16(mote__mul(mote__dense_rows(n_heads), n_heads));
    return mote__add(mote__mul(TILE_ENTRIES + 2 * queries, round16(dim)),
                     mote__mul(queries, TILE_ENTRIES + 4));
}

static void decode_tile(const mote__kern_ops *kern, float *kv, size_t ld,
                        const mote__dense_side *side, mote__kv_ref at, size_t n, size_t dim)
{
    for (size_t j = 0; j < n; j++)
        kern->decode[side->fmt](kv + j * ld, at.codes + j * side->code_stride,
                                at.scales + j * side->scale_stride, dim);
}

void mote__attend_dense(const mote__kern_ops *kern, const mote__dense_args *a, float *scratch)
{
    size_t heads = a->n_heads, n = a->n_rows * heads,
           queries = round16(mote__dense_rows(heads) * heads), ld = round16(a->dim);
    float *kv = scratch, *q = kv + TILE_ENTRIES * ld, *acc = q + queries * ld,
          *s = acc + queries * ld, *keep = s + queries * TILE_ENTRIES;
    float *maximum = keep + queries;
    double *denominator = (double *)(void *)(maximum + queries);
    for (size_t i = 0; i < n; i++) {
        memcpy(q + i * ld, a->q + i / heads * a->ldq + i % heads * a->dim, a->dim * sizeof *q);
        memset(acc + i * ld, 0, a->dim * sizeof *acc);
        maximum[i] = -1e30f;
        denominator[i] = 0;
    }
    uint64_t end = a->pos + a->n_rows; /* entries that the last row sees */
    for (uint64_t first = 0; first < end; first += TILE_ENTRIES) {
        size_t count = end - first < TILE_ENTRIES ? (size_t)(end - first) : TILE_ENTRIES;
        /* the first row that sees anything of this tile */
        size_t r0 = first > a->pos ? (size_t)(first - a->pos) : 0;
        mote__kv_ref key, value;
        a->tile(a->ctx, (size_t)(first / TILE_ENTRIES), &key, &value);
        decode_tile(kern, kv, ld, &a->key, key, count, a->dim);
        kern->dots(s + r0 * heads * TILE_ENTRIES, TILE_ENTRIES, q + r0 * heads * ld, ld,
                   n - r0 * heads, kv, ld, count, a->dim, a->scale);
        decode_tile(kern, kv, ld, &a->value, value, count, a->dim);
        /* rows that see the whole tile are processed together, those on its diagonal one by one */
        for (size_t r = r0, together; r < a->n_rows; r += together) {
            uint64_t sees = a->pos + r + 1 - first;
            size_t visible = sees < count ? (size_t)sees : count, i0 = r * heads;
            together = visible == count ? a->n_rows - r : 1;
            kern->soften(s + i0 * TILE_ENTRIES, TILE_ENTRIES, together * heads, visible, keep + i0,
                         maximum + i0, denominator + i0, a->published);
            kern->mix(acc + i0 * ld, ld, keep + i0, s + i0 * TILE_ENTRIES, TILE_ENTRIES,
                      together * heads, kv, ld, visible, a->dim);
        }
    }
    for (size_t i = 0; i < n; i++) {
        float total = (float)denominator[i],
              *out = a->out + i / heads * a->ldo + i % heads * a->dim;
        for (size_t d = 0; d < a->dim; d++)
            out[d] = acc[i * ld + d] / total;
    }
}
