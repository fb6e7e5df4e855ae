/* The scalar definitions: plain loops in the order that kern.h describes. fmaf rounds once
 * everywhere, also where libm emulates it. */
#include <math.h>
#include <string.h>

#include "base/le.h"
#include "kern/exp.h"
#include "kern/fixed.h"
#include "kern/kern.h"
#include "kern/lanes.h"
#include "kern/variants.h"
#include "num/formats.h"

/* ---- linear ---- */

/* Weight k, without its scale, of the row that starts at p. */
static float weight(mote__wkind kind, const uint8_t *p, size_t k)
{
    switch (kind) {
    case MOTE_W_BF16: return mote__bf16_decode(mote__le16(p + 2 * k));
    case MOTE_W_FP8: return mote__e4m3_value[p[k]];
    default: return mote__bits_f32(mote__le32(p + 4 * k));
    }
}

/* The low or high half of word i, lane l of a step of MOTE_W_MXFP4_BF16 inputs. */
static float pair_input(const float *step, size_t i, size_t l, int high)
{
    uint32_t u = mote__f32_bits(step[i * 16 + l]);
    return mote__bits_f32(high ? u & 0xffff0000u : u << 16);
}

static float pairs_dot(const mote__mat *w, size_t o, const float *xp)
{
    const uint8_t *row = w->data + o * (w->n_in / 2), *scale = w->scale + o * w->scale_stride;
    float p[MOTE_LANES] = { 0 };
    for (size_t word = 0; word < w->n_in / 8; word++) {
        const float *step = xp + word / 16 * 64;
        float c[8], *sum = &p[word % 16], s = mote__e8m0_decode(scale[word / 4]);
        for (size_t i = 0; i < 8; i++)
            c[i] = mote__e2m1_value[row[word * 4 + i / 2] >> 4 * (i % 2) & 15] * s;
        for (size_t i = 0; i < 4; i++)
            *sum = fmaf(c[i], pair_input(step, i, word % 16, 0),
                        fmaf(c[i + 4], pair_input(step, i, word % 16, 1), *sum));
    }
    return mote__lane_tree(p);
}

static float dot_row(const mote__mat *w, size_t o, const float *xp)
{
    const uint8_t *row = w->data + o * (w->n_in / mote__columns_per_word(w->kind)) * 4;
    float p[MOTE_LANES] = { 0 };
    if (w->kind == MOTE_W_MXFP4)
        return mote__fx_dot(w, o, xp);
    if (w->kind == MOTE_W_MXFP4_BF16)
        return pairs_dot(w, o, xp);
    for (size_t k = 0; k < w->n_in; k++) {
        float v = weight(w->kind, row, k);
        if (w->kind == MOTE_W_FP8)
            v = v *
                mote__e8m0_decode(w->scale[(w->scale_row0 + o) / 32 * w->scale_stride + k / 32]);
        size_t at = mote__arranged_at(w->kind, k);
        p[at % 16] = fmaf(v, xp[at], p[at % 16]);
    }
    return mote__lane_tree(p);
}

void mote__linear_scalar(const mote__mat *w, size_t o0, size_t o1, const float *xp, size_t n_rows,
                         size_t ldxp, float *y, size_t ldy, float *scratch)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = o0; o < o1; o++)
            y[r * ldy + o] = dot_row(w, o, xp + r * ldxp);
}

size_t mote__arranged_size(mote__wkind kind, size_t n_in)
{
    if (kind == MOTE_W_MXFP4)
        return (n_in + MOTE_FX_COLUMNS - 1) / MOTE_FX_COLUMNS * (MOTE_FX_BYTES / sizeof(float));
    if (kind == MOTE_W_MXFP4_BF16)
        return (n_in + 127) / 128 * 64;
    size_t step = 16 * mote__columns_per_word(kind);
    return (n_in + step - 1) / step * step;
}

/* x with the limits of inputs of E4M3 weights (kern.h). */
static inline float in_range(float x)
{
    uint32_t bits = mote__f32_bits(x), size = bits & 0x7fffffff;
    bits = size < (uint32_t)(127 - MOTE_FX_RANGE) << 23 ? 0 : bits;
    return mote__bits_f32(size >= (uint32_t)(127 + MOTE_FX_RANGE) << 23 ? 0x7fc00000 : bits);
}

static inline uint32_t bf16_bits(float x)
{
    uint32_t u = mote__f32_bits(in_range(x));
    /* a NaN is 0x7fc00000 here and stays a NaN */
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* 16 even columns, then 16 odd ones. Compilers vectorise the loop in this form with restrict. */
static inline void apart(float *restrict dst, const float *restrict x)
{
    for (size_t lane = 0; lane < 16; lane++) {
        dst[lane] = x[2 * lane];
        dst[16 + lane] = x[2 * lane + 1];
    }
}

void mote__arrange(mote__wkind kind, float *dst, const float *x, size_t n_in)
{
    if (kind == MOTE_W_MXFP4) {
        mote__fx_arrange(dst, x, n_in);
        return;
    }
    if (kind == MOTE_W_MXFP4_BF16) {
        for (size_t s = 0; s < n_in; s += 128)
            for (size_t i = 0; i < 4; i++)
                for (size_t l = 0; l < 16; l++) {
                    const size_t k = s + l * 8 + i;
                    uint32_t pair = k < n_in ? bf16_bits(x[k]) | bf16_bits(x[k + 4]) << 16 : 0;
                    memcpy(dst + s / 2 + i * 16 + l, &pair, 4);
                }
        return;
    }
    size_t step = 16 * mote__columns_per_word(kind), whole = n_in / step * step;
    if (kind == MOTE_W_F32)
        memcpy(dst, x, whole * sizeof *dst);
    for (size_t s = 0; s < whole && kind != MOTE_W_F32; s += step)
        if (kind == MOTE_W_FP8)
            for (size_t part = 0; part < 4; part++)
                for (size_t i = 0; i < 4; i++)
                    for (size_t v = 0; v < 4; v++)
                        dst[s + v * 16 + part * 4 + i] = in_range(
                            x[s + part * 16 + v / 2 * 8 + i * 2 + v % 2]);
        else
            apart(dst + s, x + s);
    if (whole == n_in)
        return;
    memset(dst + whole, 0, step * sizeof *dst);
    for (size_t k = whole; k < n_in; k++)
        dst[mote__arranged_at(kind, k)] = kind == MOTE_W_FP8 ? in_range(x[k]) : x[k];
}

/* ---- norms and activations ---- */

static float dot(const float *a, const float *b, size_t n)
{
    float p[MOTE_LANES] = { 0 };
    for (size_t k = 0; k < n; k++)
        p[k % 16] = fmaf(a[k], b[k], p[k % 16]);
    return mote__lane_tree(p);
}

static double mean_square(const float *x, size_t n)
{
    return n ? (double)dot(x, x, n) / (double)n : 0;
}

static void rmsnorm(float *y, const float *x, const float *weight, size_t n, float eps)
{
    float inv = (float)(1 / sqrt(mean_square(x, n) + (double)eps));
    for (size_t k = 0; k < n; k++)
        y[k] = x[k] * inv * weight[k];
}

float mote__exp_f32(float x)
{
    if (isnan(x))
        return x;
    if (x < MOTE_EXP_LOW)
        return 0;
    if (x > MOTE_EXP_HIGH)
        return INFINITY;
    float z = fmaf(x, MOTE_EXP_LOG2E, MOTE_EXP_MAGIC), n = z - MOTE_EXP_MAGIC;
    float r = fmaf(n, -MOTE_EXP_LN2_LO, fmaf(n, -MOTE_EXP_LN2_HI, x));
    float q = fmaf(MOTE_EXP_Q4, r, MOTE_EXP_Q3);
    q = fmaf(q, r, MOTE_EXP_Q2);
    q = fmaf(q, r, MOTE_EXP_Q1);
    q = fmaf(q, r, MOTE_EXP_Q0);
    float y = 1 + fmaf(q, r * r, r);
    /* i >> 1; shifting a negative number right is implementation-defined */
    int i = (int)n, half = (i + 256) / 2 - 128;
    return y * mote__bits_f32((uint32_t)(127 + half) << 23) *
           mote__bits_f32((uint32_t)(127 + i - half) << 23);
}

static void exp_all(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = mote__exp_f32(x[i]);
}

/* The comparisons let NaN through. */
static void swiglu(float *y, const float *gate, const float *up, size_t n, float limit,
                   float weight)
{
    for (size_t i = 0; i < n; i++) {
        float g = gate[i], u = up[i];
        if (limit > 0) {
            g = g > limit ? limit : g;
            u = u < -limit ? -limit : u > limit ? limit : u;
        }
        y[i] = g / (1 + mote__exp_f32(-g)) * u * weight;
    }
}

static void round_fp8(float *y, const float *x, size_t n)
{
    if (n)
        memmove(y, x, n * sizeof *y);
    mote__kvfmt_round(&mote__kvfmts[MOTE_KV_FP8], y, n);
}

/* ---- attention ---- */

static void dots(float *s, size_t lds, const float *q, size_t ldq, size_t n_heads, const float *kv,
                 size_t ldkv, size_t n, size_t dim, float scale)
{
    for (size_t h = 0; h < n_heads; h++)
        for (size_t j = 0; j < n; j++)
            s[h * lds + j] = scale * dot(q + h * ldq, kv + j * ldkv, dim);
}

static void mix(float *acc, size_t lda, const float *keep, const float *p, size_t ldp,
                size_t n_heads, const float *kv, size_t ldkv, size_t n, size_t dim)
{
    for (size_t h = 0; h < n_heads; h++)
        for (size_t d = 0; d < dim; d++) {
            float a = acc[h * lda + d] * keep[h];
            for (size_t j = 0; j < n; j++)
                a = fmaf(p[h * ldp + j], kv[j * ldkv + d], a);
            acc[h * lda + d] = a;
        }
}

static void soften(float *s, size_t lds, size_t n_heads, size_t n, float *keep, float *maximum,
                   double *denominator, int round)
{
    for (size_t h = 0; h < n_heads; h++, s += lds) {
        float m = maximum[h];
        for (size_t j = 0; j < n; j++)
            m = s[j] > m ? s[j] : m;
        m += 0.f;
        keep[h] = mote__exp_f32(maximum[h] - m);
        double sum = 0;
        for (size_t j = 0; j < n; j++) {
            s[j] = mote__exp_f32(s[j] - m);
            sum += (double)s[j];
            s[j] = round ? mote__bf16_round(s[j]) : s[j];
        }
        denominator[h] = denominator[h] * (double)keep[h] + sum;
        maximum[h] = m;
    }
}

/* ---- top-k ---- */

static size_t count_above(const float *x, size_t n, float t)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += x[i] > t;
    return count;
}

static size_t range_above(const float *x, size_t n, float t, float *low, float *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (x[i] > t) {
            *low = x[i] < *low ? x[i] + 0.f : *low; /* + 0.f: both zeros give +0 */
            *high = x[i] > *high ? x[i] + 0.f : *high;
        }
    return count_above(x, n, t);
}

/* Branch-free: whether a score passes is hard to predict. */
static size_t take_above(float *score, uint32_t *index, const float *x, size_t n, uint32_t first,
                         float t)
{
    size_t held = 0;
    for (size_t i = 0; i < n; i++) {
        score[held] = x[i];
        index[held] = first + (uint32_t)i;
        held += x[i] > t;
    }
    return held;
}

static size_t keep_above(float *score, uint32_t *index, size_t n, float t, size_t n_equal)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        int equal = score[i] == t && n_equal > 0, stays = score[i] > t || equal;
        n_equal -= (size_t)equal;
        score[kept] = score[i];
        index[kept] = index[i];
        kept += (size_t)stays;
    }
    return kept;
}

static void block_maxima(float *most, const float *x, size_t n, size_t block)
{
    for (size_t b = 0; b * block < n; b++) {
        float top = -INFINITY;
        for (size_t i = b * block; i < n && i < (b + 1) * block; i++)
            top = x[i] > top ? x[i] : top;
        most[b] = top + 0.f;
    }
}

/* ---- residual copies ---- */

static void collapse(float *x, const float *h, const float *mix, size_t n, size_t d)
{
    for (size_t i = 0; i < d; i++) {
        float sum = mix[0] * h[i];
        for (size_t j = 1; j < n; j++)
            sum += mix[j] * h[j * d + i];
        x[i] = sum;
    }
}

void mote__expand_scalar(float *h, const float *y, const float *post, const float *comb, size_t n,
                         size_t d)
{
    for (size_t i = 0; i < d; i++) {
        float old[MOTE_MAX_COPIES];
        for (size_t j = 0; j < n; j++)
            old[j] = h[j * d + i];
        for (size_t k = 0; k < n; k++) {
            float mixed = comb[k] * old[0];
            for (size_t j = 1; j < n; j++)
                mixed += comb[j * n + k] * old[j];
            h[k * d + i] = post[k] * y[i] + mixed;
        }
    }
}

void mote__kern_fill_scalar(mote__kern_ops *ops)
{
    *ops = (mote__kern_ops){ .name = "scalar",
                             .arrange = mote__arrange,
                             .linear = mote__linear_scalar,
                             .linear_pairs = mote__linear_scalar,
                             .rmsnorm = rmsnorm,
                             .mean_square = mean_square,
                             .swiglu = swiglu,
                             .round_fp8 = round_fp8,
                             .exp = exp_all,
                             .collapse = collapse,
                             .expand = mote__expand_scalar,
                             .dots = dots,
                             .mix = mix,
                             .soften = soften,
                             .index_scores = mote__index_scores_scalar,
                             .count_above = count_above,
                             .range_above = range_above,
                             .take_above = take_above,
                             .keep_above = keep_above,
                             .block_maxima = block_maxima };
    for (int i = 0; i < MOTE_KV_FORMATS; i++)
        ops->decode[i] = mote__kvfmts[i].decode;
}
