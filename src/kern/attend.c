/* Sparse attention of one query row, tile by tile under a running maximum.
 *
 * Per tile of at most 64 entries (window entries first, then main entries; a tile may hold both):
 *   kv = decoded rows; s = scale * q.kv; m' = max(m, max s); keep = exp(m - m'); p = exp(s - m')
 *   denominator = denominator * keep + sum of p (ascending, in double); acc = acc * keep + sum p kv
 * then out = acc / (denominator + exp(sink - m)). m starts at -1e30, as the published kernel does: a tile of -inf scores
 * then gives zeros and not NaN. With `published`, p is rounded to BF16 where it meets kv, not in the denominator. */
#include "kern/attend.h"

#include <string.h>

#include "base/mem.h"
#include "num/formats.h"

enum { TILE = 64 };

size_t mote__attend_scratch(size_t n_heads, size_t dim)
{
    /* kv tile, scores, keep, maximum, denominator (double); parts padded to 16 floats so that all start a line */
    size_t heads = mote__mul(mote__add(n_heads, 15) / 16, 16);
    return mote__add(mote__mul(TILE, mote__add(dim, 15) / 16 * 16), mote__mul(heads, TILE + 4));
}

void mote__attend_soften(const mote__kern_ops *kern, float *s, size_t n, float *keep, float *maximum, double *denominator)
{
    float m = *maximum;
    for (size_t j = 0; j < n; j++)
        m = s[j] > m ? s[j] : m;
    *keep = mote__exp_f32(*maximum - m);
    for (size_t j = 0; j < n; j++)
        s[j] -= m;
    kern->exp(s, s, n);
    double sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += (double)s[j];
    *denominator = *denominator * (double)*keep + sum;
    *maximum = m;
}

void mote__attend(const mote__kern_ops *kern, const mote__attend_args *a, float *scratch)
{
    size_t heads = (a->n_heads + 15) / 16 * 16, ldkv = (a->dim + 15) / 16 * 16, n = a->n_window + a->n_main;
    float *kv = scratch, *s = kv + TILE * ldkv, *keep = s + heads * TILE, *maximum = keep + heads;
    double *denominator = (double *)(void *)(maximum + heads);
    for (size_t h = 0; h < a->n_heads; h++) {
        maximum[h] = -1e30f;
        denominator[h] = 0;
    }
    memset(a->out, 0, a->n_heads * a->dim * sizeof *a->out);
    for (size_t first = 0; first < n; first += TILE) {
        size_t count = n - first < TILE ? n - first : TILE;
        for (size_t j = 0; j < count; j++) {
            size_t at = first + j;
            const mote__kv_ref *ref = at < a->n_window ? &a->window[at] : &a->main[at - a->n_window];
            kern->decode[at < a->n_window ? a->window_fmt : a->main_fmt](kv + j * ldkv, ref->codes, ref->scales, a->dim);
        }
        kern->dots(s, TILE, a->q, a->dim, a->n_heads, kv, ldkv, count, a->dim, a->scale);
        for (size_t h = 0; h < a->n_heads; h++) {
            float *row = s + h * TILE;
            mote__attend_soften(kern, row, count, &keep[h], &maximum[h], &denominator[h]);
            for (size_t j = 0; a->published && j < count; j++)
                row[j] = mote__bf16_round(row[j]);
        }
        kern->mix(a->out, a->dim, keep, s, TILE, a->n_heads, kv, ldkv, count, a->dim);
    }
    for (size_t h = 0; h < a->n_heads; h++) {
        float total = (float)(denominator[h] + (double)mote__exp_f32(a->sink[h] - maximum[h]));
        for (size_t d = 0; d < a->dim; d++)
            a->out[h * a->dim + d] /= total;
    }
}
