/* Indexer scores; included once per instruction set. A tile's keys are looked up once as doubled codes + 12 (0..24, so
 * that they can be the unsigned side of a byte product) and serve all heads; 12 times the sum of the query's codes is
 * taken off again. All of it is exact in integers, so only the float part has an order, the definition's. */

enum { INDEX_DIM = 512 };                  /* keys of a tile on the stack: 8 KiB; larger ones go the scalar way */

INLINE void index_tile(float *scores, const mote__index_query *q, const int8_t *keys, const float *key_scales, int half,
                       const int round)
{
    size_t groups = q->dim / 32;
    vf s = vf_zero();
    for (size_t h = 0; h < q->n_heads; h++) {
        const int8_t *query = q->codes + h * q->dim;
        vf d = vf_zero();
        for (size_t g = 0; g < groups; g++) {
            vacc acc = vacc_zero();
            UNROLL for (int i = 0; i < 8; i++)
                acc = vacc_add(acc, vi_load(keys + (g * 8 + (size_t)i) * 64 + half * VN * 4),
                               vi_set((int32_t)load_u32(query + g * 32 + i * 4)));
            vi sum = vi_sub(vacc_finish(acc), vi_set(12 * q->code_sum[h * groups + g]));
            d = vf_fma(vf_from_i(sum),
                       vf_mul(vf_set(q->scales[h * groups + g]), vf_load(key_scales + g * 16 + half * VN)), d);
        }
        vf w = vf_set(q->weights[h]);
        if (round) {
            d = vf_bf16(d);
            s = vf_add(s, vf_bf16(vf_mul(vf_max(vf_zero(), d), w)));
        } else {
            s = vf_fma(vf_max(vf_zero(), d), w, s);
        }
    }
    vf_store(scores + half * VN, round ? vf_bf16(s) : s);
}

static void index_scores(float *scores, const mote__index_query *q, const uint8_t *codes, const uint8_t *scales, size_t n_tiles)
{
    static const int8_t lift[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };
    size_t words = q->dim / 8, groups = q->dim / 32;
    _Alignas(64) int8_t keys[INDEX_DIM / 8 * 2 * 64];
    _Alignas(64) float key_scales[INDEX_DIM / 32 * 16];
    if (q->dim > INDEX_DIM) {
        mote__index_scores_scalar(scores, q, codes, scales, n_tiles);
        return;
    }
    for (size_t t = 0; t < n_tiles; t++) {
        const uint8_t *tile = codes + t * words * 64, *tile_scales = scales + t * groups * 16;
        for (size_t w = 0; w < words; w++)
            for (int h = 0; h < HALVES; h++) {
                vi v = vi_load(tile + w * 64 + h * VN * 4);
                vi_store(keys + w * 128 + h * VN * 4, vi_lookup16(lift, vi_and(v, vi_set8(15))));
                vi_store(keys + w * 128 + 64 + h * VN * 4, vi_lookup16(lift, vi_and(vi_srl(v, 4), vi_set8(15))));
            }
        for (size_t e = 0; e < 16; e++)
            for (size_t g = 0; g < groups; g++)
                key_scales[g * 16 + e] = e8m0(tile_scales[e * groups + g]);
        for (int h = 0; h < HALVES; h++)
            if (q->round_bf16)
                index_tile(scores + t * 16, q, keys, key_scales, h, 1);
            else
                index_tile(scores + t * 16, q, keys, key_scales, h, 0);
    }
}
