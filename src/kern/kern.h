/* Kernels: the table of all functions that take time, with a scalar definition of each and x86
 * variants.
 *
 * Every variant gives the same bits as the scalar definition: the order of every sum follows from
 * the shape alone, fused multiply-adds are written explicitly, and denormals are kept. Callers do
 * not ask about the CPU: they use mote__kern(), a table that is chosen once
 * (MOTE_CPU_MASK=avx512,avx2 hides levels). All functions of a table may run in any thread.
 *
 * Order of a sum over K ("lane order"), for all linears, dots and norms: 16 partial sums p[0..15]
 * of fp32 FMAs that start at +0, then the tree
 *   r[i] = p[i] + p[i+8] (i < 8), r[i] = r[i] + r[i+4] (i < 4), r[i] + r[i+2] (i < 2), r[0] + r[1].
 * The element type decides which partial sum a column k belongs to. The columns of one partial sum
 * are added in ascending order:
 *   F32    k % 16
 *   BF16   k / 2 % 16
 *   E4M3   k / 16 % 4 * 4 + k / 2 % 4; weight times scale (exact) is the operand of the FMA
 *   E2M1   k / 32 % 4 * 4 + k / 128 % 4; a group of 32 columns is one step of one sum, see below
 * The last step is padded: columns from n_in on have zero weights and zero inputs.
 *
 * Inputs of scaled weights (E4M3, E2M1) have a limited range, below 2^80 and down to about 2^-80.
 *   E4M3: smaller inputs become 0, larger ones and infinities NaN. A kernel may then multiply
 *     either factor by the scale: the product is exact either way.
 *   E2M1: inputs become fixed point, with one unit per group of 32 columns. With 2^e <= max |x| <
 *     2^(e+1) and e >= -80, an input is the integer i = x 2^(21-e), rounded to nearest even: 22
 *     bits and a sign. One step of a sum is p = fma((float)sum(2 w i), scale * 2^(e-22), p), where
 *     the integer sum is exact and below 2^31. An input of 2^80 or more, or a NaN, makes its whole
 *     group NaN.
 *   E2M1 with BF16 inputs (published math, whose inputs are on the FP8 grid and thus exact in
 *     BF16): inputs are limited as for E4M3 and rounded to BF16; weight times scale (exact) is the
 *     operand. Word k / 8 belongs to partial sum k / 8 % 16; its columns are added in the order
 *     p = fma(w[i+4], x[i+4], p), p = fma(w[i], x[i], p) for i = 0..3. */
#ifndef MOTE_KERN_KERN_H
#define MOTE_KERN_KERN_H

#include <stddef.h>
#include <stdint.h>

#include "num/kvfmt.h"

/* Version of the definitions on this page, incremented with each change. Stored blocks of another
 * version are not used (engine/persist.c). */
enum { MOTE_KERN_DEFINITION = 3 };

typedef enum mote__wkind {
    MOTE_W_F32,
    MOTE_W_BF16,
    MOTE_W_FP8,
    MOTE_W_MXFP4,
    MOTE_W_MXFP4_BF16,
    MOTE_W_KINDS
} mote__wkind;

/* A weight matrix as stored in the checkpoint: row-major, any alignment, borrowed.
 *   F32, BF16   data only
 *   FP8         E4M3 codes; scale = E8M0 [ceil(n_out/32)][ceil(n_in/32)], one per 32x32 tile
 *   MXFP4       E2M1, two columns per byte, low nibble first; scale = E8M0 [n_out][n_in/32];
 *               n_in % 32 == 0
 *   MXFP4_BF16  the same data, multiplied with BF16 inputs (published math) */
typedef struct mote__mat {
    mote__wkind kind;
    size_t n_out, n_in;
    const uint8_t *data;
    const uint8_t *scale;
    size_t scale_stride; /* bytes from one scale row to the next */
    /* FP8 only: row 0 of this view is row scale_row0 of the scaled matrix (block-diagonal views) */
    size_t scale_row0;
} mote__mat;

/* Inputs are rearranged once per row, so that vector loads of inputs match those of weights.
 *   F32, BF16, E4M3         as mote__arranged_at (kern/lanes.h) says, zero-padded to whole steps
 *   E2M1                    fixed point, see kern/fixed.h
 *   E2M1 with BF16 inputs   step k / 128 is 4 x 16 words; word i*16 + l holds columns 8l + i (low
 *                           half) and 8l + i + 4 (high half) of the step */
enum { MOTE_FX_RANGE = 80, MOTE_FX_BITS = 22 };
/* Size of an arranged row, in floats. */
size_t mote__arranged_size(mote__wkind kind, size_t n_in);
/* Arrange the row x[0..n_in) into dst: the scalar definition. */
void mote__arrange(mote__wkind kind, float *dst, const float *x, size_t n_in);

/* One query against packed indexer keys (MXFP4). Keys are stored in tiles of 16 entries
 * (docs/format-kv.md):
 *   codes   word w (columns 8w..8w+7, low nibble first) of entry e at byte (w*16 + e)*4 of the
 *           tile; dim/2*16 bytes per tile
 *   scales  E8M0 of group g (32 columns) of entry e at byte e*(dim/32) + g; dim/32*16 bytes per
 *           tile
 * The score of an entry is s after, for all heads h in ascending order, s = fma(max(d_h, 0),
 * weight_h, s), from s = +0. d_h is d after, for all groups g in ascending order, d = fma((float)i,
 * q_scale * k_scale, d), from d = +0. i is the exact integer sum of products of doubled key codes
 * and query codes.
 *
 * A query code is a doubled E2M1 value times 2^t, where t = min(3, log2(scale of the group / the
 * smallest scale in the head)). q_scale is the group's scale / 4 / 2^t; a group of zeros has the
 * head's smallest scale. The products are unchanged, and in most heads all groups get one scale.
 *
 * round_bf16 (published math): d_h, max(d_h, 0) * weight_h and the final sum are rounded to BF16;
 * the rounded products are added in fp32. */
typedef struct mote__index_query {
    size_t n_heads, dim; /* dim: a multiple of 32 */
    /* [n_heads][dim] doubled E2M1 values * 2^t (-96..96), in the column order of the key words: of
     * word w columns 8w, 8w+2, 8w+4, 8w+6, then 8w+1, 8w+3, 8w+5, 8w+7 */
    const int8_t *codes;
    /* [n_heads][dim/32] sum of the codes of a group (for unsigned-times-signed products) */
    const int32_t *code_sum;
    /* [n_heads][dim/32] q_scale */
    const float *scales;
    /* [n_heads] */
    const float *weights;
    int round_bf16;
} mote__index_query;
/* n tiles, contiguous in memory: 16 n keys. Borrowed. */
typedef struct mote__index_tiles {
    const uint8_t *codes, *scales;
    size_t n;
} mote__index_tiles;
/* Total bytes of codes, code_sum and scales of a query. */
static inline size_t mote__index_query_bytes(size_t n_heads, size_t dim)
{
    return n_heads * (dim + dim / 32 * 8);
}
/* Encode q [n_heads][dim] (fp32) as MXFP4 into codes, code_sum and scales. */
void mote__index_query_encode(int8_t *codes, int32_t *code_sum, float *scales, const float *q,
                              size_t n_heads, size_t dim);
/* Copy one packed MXFP4 key (dim/2 bytes of codes, dim/32 bytes of scales, as mote__kvfmts encodes
 * it) to entry e < 16 of a tile, or from it. */
void mote__index_tile_put(uint8_t *tile_codes, uint8_t *tile_scales, size_t dim, size_t e,
                          const uint8_t *codes, const uint8_t *scales);
void mote__index_tile_get(uint8_t *codes, uint8_t *scales, size_t dim, size_t e,
                          const uint8_t *tile_codes, const uint8_t *tile_scales);
/* Copy entries from..from+n-1 of one tile to entries to..to+n-1 of another. */
void mote__index_tile_move(uint8_t *to_codes, uint8_t *to_scales, size_t to, const uint8_t *codes,
                           const uint8_t *scales, size_t from, size_t n, size_t dim);

typedef struct mote__kern_ops {
    const char *name; /* "scalar", "avx2", "avx512" */

    /* mote__arrange */
    void (*arrange)(mote__wkind kind, float *dst, const float *x, size_t n_in);
    /* y[r*ldy + o] = sum over k of W[o][k] x_r[k], for o in [o0, o1) and r in [0, n_rows). xp:
     * arranged rows, ldxp floats apart. o0 % 16 == 0, unless fewer than 16 outputs are asked for.
     * scratch: MOTE_LINEAR_SCRATCH floats, 64-byte aligned, not shared between threads. */
    void (*linear)(const mote__mat *w, size_t o0, size_t o1, const float *xp, size_t n_rows,
                   size_t ldxp, float *y, size_t ldy, float *scratch);
    /* the same for MOTE_W_MXFP4_BF16 */
    void (*linear_pairs)(const mote__mat *w, size_t o0, size_t o1, const float *xp, size_t n_rows,
                         size_t ldxp, float *y, size_t ldy, float *scratch);

    /* y = x / sqrt(mean(x^2) + eps) * weight. Sum of squares in lane order (F32); inv =
     * 1 / sqrt((double)sum / n + eps), rounded to fp32; y = (x * inv) * weight. y may be x. */
    void (*rmsnorm)(float *y, const float *x, const float *weight, size_t n, float eps);
    /* Mean of the squares of n values: the fp32 sum in lane order, divided by n in double. */
    double (*mean_square)(const float *x, size_t n);

    /* y = silu(min(gate, limit)) * clamp(up, -limit, limit) * weight; limit <= 0: no clamping.
     * silu(g) = g / (1 + exp(-g)). NaN stays NaN. */
    void (*swiglu)(float *y, const float *gate, const float *up, size_t n, float limit,
                   float weight);
    /* y = x rounded to the FP8 cache format and back (num/kvfmt.h); n % 32 == 0; y may be x. */
    void (*round_fp8)(float *y, const float *x, size_t n);
    /* y = exp(x), by the operations of mote__exp_f32 */
    void (*exp)(float *y, const float *x, size_t n);

    /* Residual copies h[j*d + i], j < n <= MOTE_MAX_COPIES; products are rounded, then added with j
     * ascending:
     *   collapse   x[i] = sum over j of mix[j] h[j*d + i]
     *   expand     h[k*d + i] = post[k] y[i] + sum over j of comb[j*n + k] h[j*d + i], for all k
     *              from the old h */
    void (*collapse)(float *x, const float *h, const float *mix, size_t n, size_t d);
    void (*expand)(float *h, const float *y, const float *post, const float *comb, size_t n,
                   size_t d);

    /* The decode function of each cache format (num/kvfmt.h). */
    void (*decode[MOTE_KV_FORMATS])(float *dst, const uint8_t *codes, const uint8_t *scales,
                                    size_t n);

    /* s[h*lds + j] = scale * dot(q[h], kv[j]) in lane order (F32), h < n_heads, j < n. q rows are
     * ldq floats apart, kv rows ldkv. */
    void (*dots)(float *s, size_t lds, const float *q, size_t ldq, size_t n_heads, const float *kv,
                 size_t ldkv, size_t n, size_t dim, float scale);
    /* acc[h][d] = acc[h][d] * keep[h], then fma(p[h*ldp + j], kv[j][d], acc[h][d]) for j
     * ascending. acc rows are lda floats apart. */
    void (*mix)(float *acc, size_t lda, const float *keep, const float *p, size_t ldp,
                size_t n_heads, const float *kv, size_t ldkv, size_t n, size_t dim);

    /* Turn a tile of scores s[h*lds + j], j < n, into softmax weights, for each head: m =
     * max(maximum, all s), NaN ignored; keep = exp(maximum - m); s = exp(s - m); denominator =
     * denominator * keep + sum of s, in double with j ascending; maximum = m. round: each s is then
     * rounded to BF16; the denominator has the unrounded ones. */
    void (*soften)(float *s, size_t lds, size_t n_heads, size_t n, float *keep, float *maximum,
                   double *denominator, int round);

    /* scores[t*16 + e] = score of entry e of tile t; t counts the tiles of all runs in order. */
    void (*index_scores)(float *scores, const mote__index_query *q, const mote__index_tiles *runs,
                         size_t n_runs);

    /* Passes of top-k (kern/topk.c) over scores. NaN is not above anything; -0 equals +0.
     *   count_above   the number of x[i] > t
     *   range_above   the same, with the least and the greatest of them (+inf, -inf if none)
     *   take_above    copies the x[i] > t to score and first + i to index, in order; returns their
     *                 number. Up to MOTE_PACK_SLACK more elements of both may be overwritten
     *   keep_above    keeps the pairs with score > t and the first n_equal with score == t, in
     *                 order and in place; returns their number */
    size_t (*count_above)(const float *x, size_t n, float t);
    size_t (*range_above)(const float *x, size_t n, float t, float *low, float *high);
    size_t (*take_above)(float *score, uint32_t *index, const float *x, size_t n, uint32_t first,
                         float t);
    size_t (*keep_above)(float *score, uint32_t *index, size_t n, float t, size_t n_equal);
    /* most[b] = the maximum of x[b*block .. b*block + block), NaN ignored, -inf if all are NaN; the
     * last block may be shorter. */
    void (*block_maxima)(float *most, const float *x, size_t n, size_t block);
} mote__kern_ops;

enum { MOTE_LINEAR_SCRATCH = 1 << 17 }; /* floats: 512 KiB */
enum { MOTE_PACK_SLACK = 16, MOTE_MAX_COPIES = 8 };

/* Calls `linear` or `linear_pairs`, as the kind of w requires. */
static inline void mote__kern_linear(const mote__kern_ops *ops, const mote__mat *w, size_t o0,
                                     size_t o1, const float *xp, size_t n_rows, size_t ldxp,
                                     float *y, size_t ldy, float *scratch)
{
    (w->kind == MOTE_W_MXFP4_BF16 ? ops->linear_pairs : ops->linear)(w, o0, o1, xp, n_rows, ldxp, y,
                                                                     ldy, scratch);
}

/* The table of the best level that the CPU has and MOTE_CPU_MASK leaves; valid for ever. */
const mote__kern_ops *mote__kern(void);
/* The table of `level` (0 scalar, 1 avx2, 2 avx512); NULL if the CPU lacks it or the mask hides
 * it. */
const mote__kern_ops *mote__kern_at(int level);
/* Read MOTE_CPU_MASK. 0, or MOTE_EINVAL naming an unknown word. Call before the first
 * mote__kern(), which ignores unknown words. */
struct mote_err;
int mote__kern_init(struct mote_err *err);
/* exp in fp32, the scalar definition (kern/exp.h): round to the nearest n, Cody-Waite reduction,
 * polynomial, scaling. 0 below -104, infinity above 88.73, NaN for NaN. */
float mote__exp_f32(float x);

#endif
