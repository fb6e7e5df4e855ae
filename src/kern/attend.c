/* Sparse attention of one query row, tile by tile with a running maximum.
 *
 * Per tile of at most 64 entries (window entries first, then main entries; a tile may hold both):
 *   kv = decoded rows; s = scale * q.kv; m' = max(m, max s); keep = exp(m - m'); p = exp(s - m')
 *   denominator = denominator * keep + sum of p (ascending, in double); acc = acc * keep + sum p kv
 *   then out = acc / (denominator + exp(sink - m)). m starts at -1e30, as in the published kernel,
 *   so that a tile of -inf scores gives zeros and not NaN. With `published`, p is rounded to BF16
 *   in the product with kv but not in the denominator. */
#include "kern/attend.h"

#include <string.h>

#include "base/mem.h"
#include "num/formats.h"

/* entries of a tile; heads scored between two prefetches */
enum { TILE_ENTRIES = 64, HEADS = 8 };

/* Floats from one decoded row to the next: one cache line more than a row, so that the same column
 * of many rows does not fall into few cache sets. */
static size_t row_stride(size_t dim) { return mote__add(mote__add(dim, 15) / 16 * 16, 16); }

size_t mote__attend_scratch(size_t n_heads, size_t dim)
{
    /* kv tile, scores, keep, maximum, denominator (double), each padded to 16 floats, so that all
     * start on a cache line */
    size_t heads = mote__mul(mote__add(n_heads, 15) / 16, 16);
    return mote__add(mote__mul(TILE_ENTRIES, row_stride(dim)), mote__mul(heads, TILE_ENTRIES + 4));
}

/* Prefetch entry `at` into L2. Entries are scattered in memory. The misses of the next tile are
 * spread over the arithmetic of this one, which takes longer than they do. */
static void prefetch(const mote__attend_args *a, size_t at)
{
    const mote__kvfmt *f = &mote__kvfmts[at < a->n_window ? a->window_fmt : a->main_fmt];
    const mote__kv_ref *ref = at < a->n_window ? &a->window[at] : &a->main[at - a->n_window];
    for (size_t i = 0; i < mote__kvfmt_code_bytes(f, a->dim); i += 64)
        __builtin_prefetch(ref->codes + i, 0, 2);
    if (f->group)
        __builtin_prefetch(ref->scales, 0, 2);
}

void mote__attend(const mote__kern_ops *kern, const mote__attend_args *a, float *scratch)
{
    size_t heads = (a->n_heads + 15) / 16 * 16, ldkv = row_stride(a->dim),
           n = a->n_window + a->n_main;
    float *kv = scratch, *s = kv + TILE_ENTRIES * ldkv, *keep = s + heads * TILE_ENTRIES,
          *maximum = keep + heads;
    double *denominator = (double *)(void *)(maximum + heads);
    for (size_t h = 0; h < a->n_heads; h++) {
        maximum[h] = -1e30f;
        denominator[h] = 0;
    }
    memset(a->out, 0, a->n_heads * a->dim * sizeof *a->out);
    for (size_t first = 0; first < n; first += TILE_ENTRIES) {
        size_t count = n - first < TILE_ENTRIES ? n - first : TILE_ENTRIES;
        for (size_t j = 0; j < count; j++) {
            size_t at = first + j;
            const mote__kv_ref *ref = at < a->n_window ? &a->window[at]
                                                       : &a->main[at - a->n_window];
            kern->decode[at < a->n_window ? a->window_fmt : a->main_fmt](kv + j * ldkv, ref->codes,
                                                                         ref->scales, a->dim);
        }
        size_t next = first + count, n_next = n - next < TILE_ENTRIES ? n - next : TILE_ENTRIES;
        for (size_t h = 0, some; h < a->n_heads; h += some) {
            some = a->n_heads - h < HEADS ? a->n_heads - h : HEADS;
            for (size_t j = n_next * h / a->n_heads; j < n_next * (h + some) / a->n_heads; j++)
                prefetch(a, next + j);
            kern->dots(s + h * TILE_ENTRIES, TILE_ENTRIES, a->q + h * a->dim, a->dim, some, kv,
                       ldkv, count, a->dim, a->scale);
        }
        kern->soften(s, TILE_ENTRIES, a->n_heads, count, keep, maximum, denominator, a->published);
        kern->mix(a->out, a->dim, keep, s, TILE_ENTRIES, a->n_heads, kv, ldkv, count, a->dim);
    }
    for (size_t h = 0; h < a->n_heads; h++) {
        float total = (float)(denominator[h] + (double)mote__exp_f32(a->sink[h] - maximum[h]));
        for (size_t d = 0; d < a->dim; d++)
            a->out[h * a->dim + d] /= total;
    }
}
