/* Kernels: the table of everything that takes time, with a scalar definition and x86 variants of
 * the same functions.
 *
 * Every variant gives the same bits as the scalar one: the order of every sum follows from the
 * shape alone, fused multiply-adds are written where they are meant, and denormals are kept.
 * Callers never ask about the CPU: they use mote__kern(), a table chosen once at start
 * (MOTE_CPU_MASK=avx512,avx2 hides levels).
 *
 * Order of a sum over K ("lane order"), for all linears, dots and norms: 16 partial sums p = 0..15
 * of fp32 FMAs that start at +0, then the tree  r[i] = p[i] + p[i+8] (i<8), r[i] = r[i] + r[i+4]
 * (i<4), r[i]+r[i+2] (i<2), r[0]+r[1]. Which column goes to which partial sum follows from the
 * element type, columns of one sum in ascending order: F32    k % 16 BF16   k / 2 % 16 E4M3   k /
 * 16 % 4 * 4 + k / 2 % 4: a weight is multiplied by its scale first (exact), the product is the
 * FMA's operand E2M1   k / 32 % 4 * 4 + k / 128 % 4: a group of 32 columns is one step of one sum,
 * see below Columns beyond n_in count as zero weights and zero inputs up to a full step.
 *
 * Inputs of scaled weights (E4M3, E2M1) live between 2^-80 and 2^80. E4M3: smaller ones count as
 * zero, larger ones and infinities as NaN; so a scale may be applied to either factor: the product
 * is the same, and exact. E2M1: inputs are fixed point, per group of 32 columns: with 2^e <= max
 * |x| < 2^(e+1), e >= -80, an input is the integer i = x 2^(21-e), rounded to nearest even: 22 bits
 * and a sign. A step of a sum is then  p = fma((float)sum(2 w i), scale * 2^(e-22), p) with an
 * exact integer sum below 2^31. A group with an input of 2^80 or more, or with a NaN, gives NaN.
 * E2M1 with BF16 inputs (published math, whose inputs are on the FP8 grid and so exact in BF16):
 * inputs as for E4M3, rounded to BF16; a weight is multiplied by its scale first (exact). Word k /
 * 8 belongs to sum k / 8 % 16; of its columns, for i = 0..3: p = fma(w[i+4], x[i+4], p), p =
 * fma(w[i], x[i], p).
 */
#ifndef MOTE_KERN_KERN_H
#define MOTE_KERN_KERN_H

#include <stddef.h>
#include <stdint.h>

#include "num/kvfmt.h"

/* Counts changes of the definitions on this page. Stored blocks of different ones are not mixed
 * (engine/persist.c). */
enum { MOTE_KERN_DEFINITION = 3 };

typedef enum mote__wkind {
    MOTE_W_F32,
    MOTE_W_BF16,
    MOTE_W_FP8,
    MOTE_W_MXFP4,
    MOTE_W_MXFP4_BF16,
    MOTE_W_KINDS
} mote__wkind;

/* A weight matrix as it lies in the checkpoint (row-major, any alignment), borrowed. n_in must be a
 * multiple of g. F32, BF16   data only FP8         E4M3 codes; scale = E8M0
 * [ceil(n_out/32)][ceil(n_in/32)], one per 32x32 tile MXFP4       E2M1, two columns a byte, low
 * nibble first; scale = E8M0 [n_out][n_in/32]; n_in % 32 == 0 MXFP4_BF16  the same, in products
 * with BF16 inputs (published math) */
typedef struct mote__mat {
    mote__wkind kind;
    size_t n_out, n_in;
    const uint8_t *data;
    const uint8_t *scale;
    size_t scale_stride; /* bytes from one scale row to the next */
    /* FP8 only: row 0 of this view is row scale_row0 of the scaled matrix (block-diagonal views) */
    size_t scale_row0;
} mote__mat;

/* Inputs are rearranged once per row so that vector loads meet the weights: F32, BF16 and E4M3 as
 * kern/lanes.h has it, zero-padded to whole steps; E2M1 as fixed point, see kern/fixed.h; E2M1 with
 * BF16 inputs: step k / 128 is 4 x 16 words, word i*16 + l holds columns 8l + i (low half) and 8l +
 * i + 4 of the step. */
enum { MOTE_FX_RANGE = 80, MOTE_FX_BITS = 22 };
size_t mote__arranged_size(mote__wkind kind, size_t n_in); /* floats */
void mote__arrange(mote__wkind kind, float *dst, const float *x, size_t n_in);

/* One query against packed indexer keys (MXFP4). Keys lie in tiles of 16 entries, see
 * docs/format-kv.md: codes   word w (columns 8w..8w+7, low nibble first) of entry e at byte (w*16 +
 * e)*4 of the tile; dim/2*16 bytes a tile scales  E8M0 of group g (32 columns) of entry e at byte
 * e*(dim/32) + g                           dim/32*16 bytes a tile score(e) = sum over heads h,
 * ascending, of fma(max(d_h, 0), weight_h, s), s from +0, with d_h = sum over groups g, ascending,
 * of fma((float)i, q_scale*k_scale, d) from +0 and i = the exact integer sum of products of doubled
 * key codes and query codes. Query codes are doubled E2M1 values times 2^t, t = min(3, how many
 * powers of two the group's scale is above the head's smallest), and q_scale is the group's scale /
 * 4 / 2^t (of a group of zeros: the smallest): the same products, and in most heads one scale.
 * round_bf16 (published math): d_h, max(d_h,0)*weight_h and the final sum are rounded to BF16 (the
 * sum adds the rounded products in fp32). */
typedef struct mote__index_query {
    size_t n_heads, dim;
    const int8_t
        *codes; /* [n_heads][dim] doubled E2M1 values * 2^t (-96..96), column order of the key
                   words: for word w: columns 8w, 8w+2, 8w+4, 8w+6 then 8w+1, 8w+3, 8w+5, 8w+7 */
    /* [n_heads][dim/32] sum of the codes of a group (for unsigned-times-signed products) */
    const int32_t *code_sum;
    /* [n_heads][dim/32] 2^e / 4 / 2^t */
    const float *scales;
    /* [n_heads] */
    const float *weights;
    int round_bf16;
} mote__index_query;
/* n tiles one after the other in memory: 16 n keys */
typedef struct mote__index_tiles {
    const uint8_t *codes, *scales;
    size_t n;
} mote__index_tiles;
/* Bytes of codes, code_sum and scales together */
static inline size_t mote__index_query_bytes(size_t n_heads, size_t dim)
{
    return n_heads * (dim + dim / 32 * 8);
}
/* Fill codes, code_sum, scales from q [n_heads][dim] (fp32): MXFP4-encodes it. */
void mote__index_query_encode(int8_t *codes, int32_t *code_sum, float *scales, const float *q,
                              size_t n_heads, size_t dim);
/* Write entry e's packed MXFP4 key (dim/2 bytes codes, dim/32 bytes scales, as mote__kvfmts
 * encodes) into its tile. */
void mote__index_tile_put(uint8_t *tile_codes, uint8_t *tile_scales, size_t dim, size_t e,
                          const uint8_t *codes, const uint8_t *scales);
void mote__index_tile_get(uint8_t *codes, uint8_t *scales, size_t dim, size_t e,
                          const uint8_t *tile_codes, const uint8_t *tile_scales);

/* Entries from .. from + n - 1 of a tile to places to .. of another. */
void mote__index_tile_move(uint8_t *to_codes, uint8_t *to_scales, size_t to, const uint8_t *codes,
                           const uint8_t *scales, size_t from, size_t n, size_t dim);

typedef struct mote__kern_ops {
    const char *name; /* "scalar", "avx2", "avx512" */

    /* what mote__arrange does */
    void (*arrange)(mote__wkind kind, float *dst, const float *x, size_t n_in);
    /* y[r*ldy + o] = sum_k W[o][k] x_r[k] for o in [o0, o1), r in [0, n_rows); xp: arranged rows,
     * ldxp floats apart. o0 % 16 == 0 unless o1 - o0 < 16 rows remain. scratch: MOTE_LINEAR_SCRATCH
     * floats, 64-byte aligned, one per thread. */
    void (*linear)(const mote__mat *w, size_t o0, size_t o1, const float *xp, size_t n_rows,
                   size_t ldxp, float *y, size_t ldy, float *scratch);
    /* the same for MOTE_W_MXFP4_BF16 */
    void (*linear_pairs)(const mote__mat *w, size_t o0, size_t o1, const float *xp, size_t n_rows,
                         size_t ldxp, float *y, size_t ldy, float *scratch);

    /* y = x / sqrt(mean(x^2) + eps) * weight: sum of squares in lane order (F32), inv =
     * 1/sqrt((double)sum/n + eps) rounded to fp32, y = (x * inv) * weight. y may be x. */
    void (*rmsnorm)(float *y, const float *x, const float *weight, size_t n, float eps);
    /* mean of squares of n values, in lane order: the fp32 sum divided by n in double */
    double (*mean_square)(const float *x, size_t n);

    /* y = silu(min(gate, limit)) * clamp(up, -limit, limit) * weight; limit <= 0: no clamping.
     * silu(g) = g / (1 + exp(-g)). */
    void (*swiglu)(float *y, const float *gate, const float *up, size_t n, float limit,
                   float weight);
    /* y = x on the FP8 grid, as num/kvfmt.h encodes and decodes it; n a multiple of 32; y may be x
     */
    void (*round_fp8)(float *y, const float *x, size_t n);
    /* y = exp(x), by mote__exp_f32's sequence of operations */
    void (*exp)(float *y, const float *x, size_t n);

    /* Residual copies h[j*d + i], j < n <= MOTE_MAX_COPIES (products rounded, then added, j
     * ascending): collapse   x[i] = sum of mix[j] h[j*d + i] expand     h[k*d + i] = post[k] y[i] +
     * sum of comb[j*n + k] h[j*d + i], all k from the old h */
    void (*collapse)(float *x, const float *h, const float *mix, size_t n, size_t d);
    void (*expand)(float *h, const float *y, const float *post, const float *comb, size_t n,
                   size_t d);

    void (*decode[MOTE_KV_FORMATS])(float *dst, const uint8_t *codes, const uint8_t *scales,
                                    size_t n);

    /* s[h*lds + j] = scale * dot(q[h], kv[j]) (lane order F32), h < n_heads, j < n; q rows ldq, kv
     * rows ldkv floats apart. */
    void (*dots)(float *s, size_t lds, const float *q, size_t ldq, size_t n_heads, const float *kv,
                 size_t ldkv, size_t n, size_t dim, float scale);
    /* acc[h][d] = acc[h][d] * keep[h], then for j ascending fma(p[h*ldp + j], kv[j][d], .) */
    void (*mix)(float *acc, size_t lda, const float *keep, const float *p, size_t ldp,
                size_t n_heads, const float *kv, size_t ldkv, size_t n, size_t dim);

    /* A tile of scores s[h*lds + j], j < n, to probabilities, head by head: m = max(maximum, all s)
     * (NaN left out), keep = exp(maximum
     * - m), s = exp(s - m), denominator = denominator * keep + sum of s, ascending, in double;
     * maximum = m. round: s is rounded to BF16 in the end. */
    void (*soften)(float *s, size_t lds, size_t n_heads, size_t n, float *keep, float *maximum,
                   double *denominator, int round);

    /* scores[t*16 + e] of the tiles of all runs, t counted through */
    void (*index_scores)(float *scores, const mote__index_query *q, const mote__index_tiles *runs,
                         size_t n_runs);

    /* Passes of top-k (kern/topk.c) over scores; NaN is not above anything, zeros are equal.
     *   count_above   how many of x are above t
     *   range_above   the same, and the least and the greatest of them (+inf, -inf if there is
     * none) take_above    x[i] above t and first + i go to score and index, in order; returns how
     * many. Up to MOTE_PACK_SLACK more places of score and index may be overwritten keep_above
     * pairs above t and the first n_equal of those equal to t stay, in order and in place; returns
     * how many */
    size_t (*count_above)(const float *x, size_t n, float t);
    size_t (*range_above)(const float *x, size_t n, float t, float *low, float *high);
    size_t (*take_above)(float *score, uint32_t *index, const float *x, size_t n, uint32_t first,
                         float t);
    size_t (*keep_above)(float *score, uint32_t *index, size_t n, float t, size_t n_equal);
    /* most[b] = the maximum of x[b*block .. ) without NaN, -inf if nothing is left; the last block
     * may be short */
    void (*block_maxima)(float *most, const float *x, size_t n, size_t block);
} mote__kern_ops;

enum { MOTE_LINEAR_SCRATCH = 1 << 17 }; /* floats: 512 KiB */
enum { MOTE_PACK_SLACK = 16, MOTE_MAX_COPIES = 8 };

/* `linear` or `linear_pairs`, by the kind of w */
static inline void mote__kern_linear(const mote__kern_ops *ops, const mote__mat *w, size_t o0,
                                     size_t o1, const float *xp, size_t n_rows, size_t ldxp,
                                     float *y, size_t ldy, float *scratch)
{
    (w->kind == MOTE_W_MXFP4_BF16 ? ops->linear_pairs : ops->linear)(w, o0, o1, xp, n_rows, ldxp, y,
                                                                     ldy, scratch);
}

/* the best this CPU has (and MOTE_CPU_MASK allows) */
const mote__kern_ops *mote__kern(void);
const mote__kern_ops *mote__kern_at(int level); /* 0 scalar, 1 avx2, 2 avx512; NULL if this CPU
                                                   lacks it or the mask hides it */
/* Checks MOTE_CPU_MASK; MOTE_EINVAL naming an unknown word. Call before the first mote__kern(). */
struct mote_err;
int mote__kern_init(struct mote_err *err);
/* exp in fp32: the scalar definition (round to nearest n, Cody-Waite, polynomial, scale); 0 below
 * -104, inf above 88.73. */
float mote__exp_f32(float x);

#endif
