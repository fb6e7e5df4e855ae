/* Indexer scores for AVX2. The keys of a tile are converted once, for all heads, to doubled codes +
 * 12 (0..24: the unsigned operand of a byte product); sums start from minus 12 times the sum of the
 * query's codes. Integer sums are exact in any order; the float part follows the order of the
 * definition. Two heads share the loads of keys. */

/* limits of the arrays on the stack; larger queries use the scalar function */
enum { INDEX_DIM = 512, INDEX_HEADS = 128 };

/* Start values of the 16-bit sums of a group, two per word: -12 times the sum of the query bytes
 * that go into each. A final sum of 16 products is at most 16 * 12 * 96; intermediate ones may
 * wrap. */
static void start_sums(int32_t *start, const mote__index_query *q)
{
    for (size_t i = 0; i < q->n_heads * (q->dim / 32); i++) {
        vi s = _mm256_maddubs_epi16(vi_set8(12), vi_load(q->codes + i * 32));
        __m128i half = _mm_add_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
        half = _mm_add_epi16(half, _mm_shuffle_epi32(half, 0x4e));
        half = _mm_add_epi16(half, _mm_shuffle_epi32(half, 0xb1));
        start[i] = _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), half));
    }
}

/* v, with a barrier against reassociation: compilers build a tree of sums, which needs more
 * registers than there are */
INLINE vi in_order(vi v)
{
    __asm__("" : "+x"(v));
    return v;
}

INLINE void index_heads(const int n_h, vf s[HALVES], const mote__index_query *q,
                        const int32_t *start, size_t h, const uint8_t *keys,
                        const float *key_scales, const int round)
{
    size_t groups = q->dim / 32;
    const int8_t *query = q->codes + h * q->dim;
    vf d[2][HALVES];
    UNROLL for (int i = 0; i < n_h; i++) UNROLL for (int e = 0; e < HALVES; e++)
        d[i][e] = vf_zero();
    for (size_t g = 0; g < groups; g++) {
        vi sum[2][HALVES];
        UNROLL for (int i = 0; i < n_h; i++) UNROLL for (int e = 0; e < HALVES; e++)
            sum[i][e] = vi_set(start[(h + (size_t)i) * groups + g]);
        UNROLL for (size_t v = 0; v < 8; v++)
        {
            vi key[HALVES];
            UNROLL for (int e = 0; e < HALVES; e++)
                key[e] = vi_load(keys + (g * 8 + v) * 64 + e * VN * 4);
            UNROLL for (int i = 0; i < n_h; i++)
            {
                vi x = vi_set((int32_t)load_u32(query + (size_t)i * q->dim + g * 32 + v * 4));
                /* a pair is at most 24 * 96 * 2 = 4608, so it does not saturate */
                UNROLL for (int e = 0; e < HALVES; e++) sum[i][e] = in_order(
                    _mm256_add_epi16(sum[i][e], _mm256_maddubs_epi16(key[e], x)));
            }
        }
        UNROLL for (int i = 0; i < n_h; i++) UNROLL for (int e = 0; e < HALVES; e++)
            sum[i][e] = _mm256_madd_epi16(sum[i][e], _mm256_set1_epi16(1));
        UNROLL for (int i = 0; i < n_h; i++) UNROLL for (int e = 0; e < HALVES; e++)
            d[i][e] = vf_fma(vf_from_i(sum[i][e]),
                             vf_mul(vf_set(q->scales[(h + (size_t)i) * groups + g]),
                                    vf_load(key_scales + g * 16 + e * VN)),
                             d[i][e]);
    }
    UNROLL for (int i = 0; i < n_h; i++) UNROLL for (int e = 0; e < HALVES; e++)
    {
        vf w = vf_set(q->weights[h + (size_t)i]);
        if (round)
            s[e] = vf_add(s[e], vf_bf16(vf_mul(vf_max(vf_zero(), vf_bf16(d[i][e])), w)));
        else
            s[e] = vf_fma(vf_max(vf_zero(), d[i][e]), w, s[e]);
    }
}

INLINE void index_tile(float *scores, const mote__index_query *q, const int32_t *start,
                       const uint8_t *keys, const float *key_scales, const int round)
{
    vf s[HALVES] = { vf_zero(), vf_zero() };
    size_t h = 0;
    for (; h + 2 <= q->n_heads; h += 2)
        index_heads(2, s, q, start, h, keys, key_scales, round);
    if (h < q->n_heads)
        index_heads(1, s, q, start, h, keys, key_scales, round);
    for (int e = 0; e < HALVES; e++)
        vf_store(scores + e * VN, round ? vf_bf16(s[e]) : s[e]);
}

static void index_run(float *scores, const mote__index_query *q, const int32_t *start,
                      const mote__index_tiles *run)
{
    const vi lift = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    size_t words = q->dim / 8, groups = q->dim / 32;
    _Alignas(64) uint8_t keys[INDEX_DIM / 8 * 2 * 64];
    _Alignas(64) float key_scales[INDEX_DIM / 32 * 16];
    for (size_t t = 0; t < run->n; t++) {
        const uint8_t *tile = run->codes + t * words * 64,
                      *tile_scales = run->scales + t * groups * 16;
        for (size_t w = 0; w < words; w++)
            for (int e = 0; e < HALVES; e++) {
                vi v = vi_load(tile + w * 64 + e * VN * 4);
                vi_store(keys + w * 128 + e * VN * 4,
                         _mm256_shuffle_epi8(lift, vi_and(v, vi_set8(15))));
                vi_store(keys + w * 128 + 64 + e * VN * 4,
                         _mm256_shuffle_epi8(lift, vi_and(vi_srl(v, 4), vi_set8(15))));
            }
        for (size_t e = 0; e < 16; e++)
            for (size_t g = 0; g < groups; g++)
                key_scales[g * 16 + e] = e8m0(tile_scales[e * groups + g]);
        if (q->round_bf16)
            index_tile(scores + t * 16, q, start, keys, key_scales, 1);
        else
            index_tile(scores + t * 16, q, start, keys, key_scales, 0);
    }
}

static void index_scores(float *scores, const mote__index_query *q, const mote__index_tiles *runs,
                         size_t n_runs)
{
    int32_t start[INDEX_HEADS * INDEX_DIM / 32];
    if (q->dim > INDEX_DIM || q->n_heads > INDEX_HEADS) {
        mote__index_scores_scalar(scores, q, runs, n_runs);
        return;
    }
    start_sums(start, q);
    for (size_t r = 0; r < n_runs; scores += runs[r++].n * 16)
        index_run(scores, q, start, &runs[r]);
}
