/* Scores and weighted sums of attention; included once per instruction set.
 *
 * dots: the sums of TILE_O heads times TILE_R entries are in registers. mix: the sums of MIX_H
 * heads times MIX_V vectors of the value stay in registers over all entries of a tile; the
 * outermost loop is over stripes of dim, so that 64 entries of a stripe stay in L1. */

#if defined(__AVX512F__)
/* The lane trees of 4 heads times n_e <= 4 entries at once: each step makes the additions of
 * lane_sum for two vectors side by side. s[h*lds + e] = scale * sum. */
INLINE void dots_sums(const int n_e, float *s, size_t lds, vf (*acc)[TILE_R], int e0, float scale)
{
    vf quarter[4], pair[2], sums; /* quarter[e]: 4 lanes of each head */
    UNROLL for (int e = 0; e < n_e; e++)
    {
        vf a = acc[0][e0 + e], b = acc[1][e0 + e], c = acc[2][e0 + e], d = acc[3][e0 + e];
        vf ab = vf_add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
        vf cd = vf_add(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
        quarter[e] = vf_add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    }
    UNROLL for (int e = n_e; e < 4; e++) quarter[e] = quarter[0];
    UNROLL for (int i = 0; i < 2; i++)
    {
        __m512d x = _mm512_castps_pd(quarter[2 * i]), y = _mm512_castps_pd(quarter[2 * i + 1]);
        pair[i] = vf_add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    sums = vf_add(_mm512_shuffle_ps(pair[0], pair[1], 0x88),
                  _mm512_shuffle_ps(pair[0], pair[1], 0xdd));
    sums = vf_mul(vf_set(scale), sums);
    __m128 row[4] = { _mm512_castps512_ps128(sums), _mm512_extractf32x4_ps(sums, 1),
                      _mm512_extractf32x4_ps(sums, 2), _mm512_extractf32x4_ps(sums, 3) };
    UNROLL for (int h = 0; h < 4; h++)
    {
        /* without this gcc 12 stores with a masked extract to memory, which may fault for lanes
         * that the mask excludes */
        __asm__("" : "+v"(row[h]));
        _mm_mask_storeu_ps(s + (size_t)h * lds, (__mmask8)((1 << n_e) - 1), row[h]);
    }
}
#endif

INLINE void dots_tile(const int n_h, const int n_e, float *s, size_t lds, const float *q,
                      size_t ldq, const float *kv, size_t ldkv, size_t dim, float scale)
{
    _Alignas(64) float sums[TILE_O * TILE_R][16];
    for (int half = 0; half < HALVES; half++) {
        vf acc[TILE_O][TILE_R];
        UNROLL for (int h = 0; h < n_h; h++) UNROLL for (int e = 0; e < n_e; e++)
            acc[h][e] = vf_zero();
        size_t d = (size_t)(half * VN);
        for (; d + VN <= dim; d += 16) {
            vf v[TILE_R];
            UNROLL for (int e = 0; e < n_e; e++) v[e] = vf_load(kv + (size_t)e * ldkv + d);
            UNROLL for (int h = 0; h < n_h; h++)
            {
                vf a = vf_keep(vf_load(q + (size_t)h * ldq + d));
                UNROLL for (int e = 0; e < n_e; e++) acc[h][e] = vf_fma(a, v[e], acc[h][e]);
            }
        }
        if (d < dim)
            UNROLL for (int h = 0; h < n_h; h++)
            {
                vf a = vf_load_n(q + (size_t)h * ldq + d, dim - d);
                UNROLL for (int e = 0; e < n_e; e++)
                    acc[h][e] = vf_fma(a, vf_load_n(kv + (size_t)e * ldkv + d, dim - d), acc[h][e]);
            }
#if defined(__AVX512F__)
        if (n_h == 4) {
            dots_sums(n_e < 4 ? n_e : 4, s, lds, acc, 0, scale);
            if (n_e > 4)
                dots_sums(n_e - 4, s + 4, lds, acc, 4, scale);
            return;
        }
#endif
        UNROLL for (int h = 0; h < n_h; h++) UNROLL for (int e = 0; e < n_e; e++)
            vf_store(sums[h * TILE_R + e] + half * VN, acc[h][e]);
    }
    for (int h = 0; h < n_h; h++)
        for (int e = 0; e < n_e; e++)
            s[(size_t)h * lds + (size_t)e] = scale * lane_sum(sums[h * TILE_R + e]);
}

typedef void dots_fn(float *s, size_t lds, const float *q, size_t ldq, const float *kv, size_t ldkv,
                     size_t dim, float scale);
#define DOTS(n_h, n_e)                                                                    \
    static void dots_##n_h##_##n_e(float *s, size_t lds, const float *q, size_t ldq,      \
                                   const float *kv, size_t ldkv, size_t dim, float scale) \
    {                                                                                     \
        dots_tile(n_h, n_e, s, lds, q, ldq, kv, ldkv, dim, scale);                        \
    }
DOTS(1, 1)
DOTS(1, 2)
DOTS(1, 3)
DOTS(4, 1)
DOTS(4, 2)
DOTS(4, 3)
#if defined(__AVX512F__)
DOTS(1, 4)
DOTS(1, 5)
DOTS(1, 6)
DOTS(4, 4)
DOTS(4, 5)
DOTS(4, 6)
static dots_fn *const dots_tiles[2][TILE_R] = {
    { dots_1_1, dots_1_2, dots_1_3, dots_1_4, dots_1_5, dots_1_6 },
    { dots_4_1, dots_4_2, dots_4_3, dots_4_4, dots_4_5, dots_4_6 }
};
#else
static dots_fn *const dots_tiles[2][TILE_R] = { { dots_1_1, dots_1_2, dots_1_3 },
                                                { dots_4_1, dots_4_2, dots_4_3 } };
#endif

static void dots(float *s, size_t lds, const float *q, size_t ldq, size_t n_heads, const float *kv,
                 size_t ldkv, size_t n, size_t dim, float scale)
{
    for (size_t j = 0, n_e; j < n; j += n_e) {
        n_e = n - j < TILE_R ? n - j : TILE_R;
        for (size_t h = 0, n_h; h < n_heads; h += n_h) {
            n_h = n_heads - h < TILE_O ? 1 : TILE_O;
            dots_tiles[n_h == TILE_O][n_e - 1](s + h * lds + j, lds, q + h * ldq, ldq,
                                               kv + j * ldkv, ldkv, dim, scale);
        }
    }
}

/* n_v vectors of values for n_h heads; the last vector has `last` lanes */
INLINE void mix_tile(const int n_h, const int n_v, float *acc, size_t lda, const float *keep,
                     const float *p, size_t ldp, const float *kv, size_t ldkv, size_t n,
                     size_t last)
{
    vf a[MIX_H][MIX_V];
    UNROLL for (int h = 0; h < n_h; h++) UNROLL for (int v = 0; v < n_v; v++)
        a[h][v] = vf_mul(vf_load_n(acc + (size_t)h * lda + v * VN, v == n_v - 1 ? last : VN),
                         vf_set(keep[h]));
    for (size_t j = 0; j < n; j++) {
        vf x[MIX_V];
        UNROLL for (int v = 0; v < n_v; v++) x[v] = n_v == MIX_V
                                                        ? vf_load(kv + j * ldkv + v * VN)
                                                        : vf_load_n(kv + j * ldkv + v * VN, last);
        UNROLL for (int h = 0; h < n_h; h++)
        {
            vf w = vf_keep(vf_set(p[(size_t)h * ldp + j]));
            UNROLL for (int v = 0; v < n_v; v++) a[h][v] = vf_fma(w, x[v], a[h][v]);
        }
    }
    UNROLL for (int h = 0; h < n_h; h++) UNROLL for (int v = 0; v < n_v; v++)
        vf_store_n(acc + (size_t)h * lda + v * VN, a[h][v], v == n_v - 1 ? last : VN);
}

static void mix(float *acc, size_t lda, const float *keep, const float *p, size_t ldp,
                size_t n_heads, const float *kv, size_t ldkv, size_t n, size_t dim)
{
    for (size_t d = 0; d < dim;) {
        int whole = dim - d >= MIX_V * VN;
        size_t last = whole || dim - d >= VN ? VN : dim - d;
        for (size_t h = 0; h < n_heads;) {
            int heads = n_heads - h >= MIX_H;
            float *to = acc + h * lda + d;
            const float *ph = p + h * ldp;
            if (heads && whole)
                mix_tile(MIX_H, MIX_V, to, lda, keep + h, ph, ldp, kv + d, ldkv, n, last);
            else if (heads)
                mix_tile(MIX_H, 1, to, lda, keep + h, ph, ldp, kv + d, ldkv, n, last);
            else if (whole)
                mix_tile(1, MIX_V, to, lda, keep + h, ph, ldp, kv + d, ldkv, n, last);
            else
                mix_tile(1, 1, to, lda, keep + h, ph, ldp, kv + d, ldkv, n, last);
            h += heads ? MIX_H : 1;
        }
        d += whole ? (size_t)(MIX_V * VN) : last;
    }
}

/* ---- probabilities ---- */

/* heads whose sums are computed side by side, because each sum is a chain of additions */
enum { SOFTEN_H = 8 };

static void soften(float *s, size_t lds, size_t n_heads, size_t n, float *keep, float *maximum,
                   double *denominator, int round)
{
    for (size_t h0 = 0, heads; h0 < n_heads; h0 += heads) {
        heads = n_heads - h0 < SOFTEN_H ? n_heads - h0 : SOFTEN_H;
        double sum[SOFTEN_H] = { 0 };
        for (size_t h = h0; h < h0 + heads; h++) {
            float *row = s + h * lds, lanes[VN], m = maximum[h];
            vf top = vf_set(m);
            size_t i = 0;
            for (; i + VN <= n; i += VN)
                top = vf_max(vf_load(row + i), top); /* NaN is ignored */
            vf_store(lanes, top);
            for (int k = 0; k < VN; k++)
                m = lanes[k] > m ? lanes[k] : m;
            for (; i < n; i++)
                m = row[i] > m ? row[i] : m;
            m += 0.f;
            keep[h] = mote__exp_f32(maximum[h] - m);
            maximum[h] = m;
            FOR_VECTORS(j, n)
            vf_store_n(row + j, vf_exp(vf_sub(vf_load_n(row + j, part), vf_set(m))), part);
        }
        const float *p = s + h0 * lds;
        if (heads == SOFTEN_H)
            for (size_t j = 0; j < n; j++)
                UNROLL for (size_t h = 0; h < SOFTEN_H; h++) sum[h] += (double)p[h * lds + j];
        else
            for (size_t h = 0; h < heads; h++)
                for (size_t j = 0; j < n; j++)
                    sum[h] += (double)p[h * lds + j];
        for (size_t h = h0; h < h0 + heads; h++) {
            denominator[h] = denominator[h] * (double)keep[h] + sum[h - h0];
            if (round)
                FOR_VECTORS(j, n)
            vf_store_n(s + h * lds + j, vf_bf16(vf_load_n(s + h * lds + j, part)), part);
        }
    }
}
