/* Indexer scores: packing of queries and of key tiles, and the scalar definition of the score.
 * Layouts: docs/format-kv.md. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kern/kern.h"
#include "kern/variants.h"
#include "num/formats.h"
#include "num/kvfmt.h"

/* Index of column c of a head in mote__index_query.codes: within a word the even columns come
 * first, then the odd ones, because kernels split a vector of key words into low nibbles (even
 * columns) and high nibbles (odd columns). */
static size_t query_at(size_t c) { return c / 8 * 8 + c % 2 * 4 + c % 8 / 2; }

/* Twice the value of an E2M1 code. */
static int doubled(uint8_t code)
{
    static const int8_t value[8] = { 0, 1, 2, 3, 4, 6, 8, 12 };
    return code & 8 ? -value[code & 7] : value[code & 7];
}

/* Groups whose scale is at most 8 times the head's smallest are rescaled to the smallest, so that
 * in most heads all groups have one scale (kern.h). */
void mote__index_query_encode(int8_t *codes, int32_t *code_sum, float *scales, const float *q,
                              size_t n_heads, size_t dim)
{
    assert(dim % 32 == 0);
    for (size_t h = 0; h < n_heads;
         h++, q += dim, codes += dim, code_sum += dim / 32, scales += dim / 32) {
        uint8_t packed[16], scale;
        float least = INFINITY;
        for (size_t g = 0; g < dim / 32; g++) {
            mote__kvfmts[MOTE_KV_MXFP4].encode(packed, &scale, q + g * 32, 32);
            int any = 0;
            for (size_t c = 0; c < 32; c++) {
                int v = doubled(packed[c / 2] >> 4 * (c % 2) & 15);
                codes[g * 32 + query_at(c)] = (int8_t)v;
                any |= v;
            }
            /* set below: the products of a group of zeros do not depend on its scale */
            scales[g] = any ? mote__e8m0_decode(scale) * 0.25f : 0;
            if (any && scales[g] < least)
                least = scales[g];
        }
        for (size_t g = 0; g < dim / 32; g++) {
            int times = 1;
            for (scales[g] = scales[g] > 0      ? scales[g]
                             : least < INFINITY ? least
                                                : 1;
                 times < 8 && scales[g] > least; times *= 2)
                scales[g] *= 0.5f;
            code_sum[g] = 0;
            for (size_t c = g * 32; c < g * 32 + 32; c++)
                code_sum[g] += codes[c] = (int8_t)(codes[c] * times);
        }
    }
}

void mote__index_tile_put(uint8_t *tile_codes, uint8_t *tile_scales, size_t dim, size_t e,
                          const uint8_t *codes, const uint8_t *scales)
{
    assert(e < 16 && dim % 32 == 0);
    for (size_t w = 0; w < dim / 8; w++)
        memcpy(tile_codes + (w * 16 + e) * 4, codes + w * 4, 4);
    memcpy(tile_scales + e * (dim / 32), scales, dim / 32);
}

void mote__index_tile_get(uint8_t *codes, uint8_t *scales, size_t dim, size_t e,
                          const uint8_t *tile_codes, const uint8_t *tile_scales)
{
    assert(e < 16 && dim % 32 == 0);
    for (size_t w = 0; w < dim / 8; w++)
        memcpy(codes + w * 4, tile_codes + (w * 16 + e) * 4, 4);
    memcpy(scales, tile_scales + e * (dim / 32), dim / 32);
}

void mote__index_tile_move(uint8_t *to_codes, uint8_t *to_scales, size_t to, const uint8_t *codes,
                           const uint8_t *scales, size_t from, size_t n, size_t dim)
{
    assert(to + n <= 16 && from + n <= 16);
    to_codes += to * 4;
    codes += from * 4;
    /* half a tile: the block size of the published model */
    if (n == 8)
        for (size_t w = 0; w < dim / 8; w++)
            memcpy(to_codes + w * 64, codes + w * 64, 32);
    else
        for (size_t w = 0; w < dim / 8; w++)
            memcpy(to_codes + w * 64, codes + w * 64, n * 4);
    memcpy(to_scales + to * (dim / 32), scales + from * (dim / 32), n * (dim / 32));
}

/* Sum of products of doubled key codes and query codes for group g and entry e of a tile. */
static int group_dot(const int8_t *query, const uint8_t *tile, size_t g, size_t e)
{
    int sum = 0;
    for (size_t c = 0; c < 32; c++) {
        uint8_t byte = tile[((g * 4 + c / 8) * 16 + e) * 4 + c % 8 / 2];
        sum += doubled(byte >> 4 * (c % 2) & 15) * query[g * 32 + query_at(c)];
    }
    return sum;
}

static void score_tiles(float *scores, const mote__index_query *q, const mote__index_tiles *run)
{
    size_t groups = q->dim / 32;
    for (size_t i = 0; i < run->n * 16; i++) {
        const uint8_t *tile = run->codes + i / 16 * (q->dim / 2 * 16),
                      *key_scales = run->scales + i * groups;
        float s = 0;
        for (size_t h = 0; h < q->n_heads; h++) {
            float d = 0;
            for (size_t g = 0; g < groups; g++)
                d = fmaf((float)group_dot(q->codes + h * q->dim, tile, g, i % 16),
                         q->scales[h * groups + g] * mote__e8m0_decode(key_scales[g]), d);
            if (q->round_bf16) {
                d = mote__bf16_round(d);
                s += mote__bf16_round((d < 0 ? 0 : d) * q->weights[h]);
            } else {
                s = fmaf(d < 0 ? 0 : d, q->weights[h], s); /* NaN stays NaN */
            }
        }
        scores[i] = q->round_bf16 ? mote__bf16_round(s) : s;
    }
}

void mote__index_scores_scalar(float *scores, const mote__index_query *q,
                               const mote__index_tiles *runs, size_t n_runs)
{
    for (size_t r = 0; r < n_runs; scores += runs[r++].n * 16)
        score_tiles(scores, q, &runs[r]);
}
