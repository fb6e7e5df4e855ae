/* Indexer scores for AVX-512 with VNNI. The keys of four tiles are converted to bytes once, for all
 * heads.
 *
 * Products of bytes: key code * 2^shift + 96 (0..192, unsigned) times query code * 2^shift
 * (-96..96). If the scales of the groups of an entry, or of a head, are within a factor of 8 of
 * each other, the shifts bring them to one scale. Then the product of a head and an entry is one
 * integer sum of 128 columns, |sum| < 2^24, converted and scaled once. In that case all steps of
 * the definition are exact, so the bits are the same. A head whose scales are further apart is
 * summed group by group, and so are all heads if an entry of the chunk has such scales. Sums start
 * from minus 96 times the sum of the query's codes.
 *
 * The scale of an entry is a power of two, so it is multiplied once at the end. That gives the same
 * bits if no sum is infinite or denormal, which holds if all scales and weights are `near`: with
 * key scales of 2^-24..2^24, query scales of 2^-30..2^30 and weights of 2^-40..2^40, sums are below
 * 2^(24 + 24 + 30 + 40 + 7) and multiples of 2^-(24 + 30 + 40 + 23).
 *
 * Operations per head and tile at dim 128: 32 dot products, a maximum, a conversion, a
 * multiply-add, and 1/32 of 32 lookups and 16 shifts. */

enum {
    /* limit of the keys of a chunk on the stack; larger queries use the scalar function */
    INDEX_DIM = 512,
    INDEX_HEADS = 128,
    CHUNK = 4,   /* tiles converted at once */
    BLOCK_H = 4, /* heads; times CHUNK sums in registers */
    LIFT = 96
};

typedef struct index_head {
    int32_t start;
    float weight;
    int one_scale;
} index_head;
typedef struct index_chunk {
    /* each entry has one scale, scales[tile][0], and it is near */
    int near;
    /* [v]: columns of query bytes 4v..4v+3, 16 entries */
    _Alignas(64) uint8_t keys[INDEX_DIM / 4][CHUNK][64];
    _Alignas(64) float scales[CHUNK][INDEX_DIM / 32][16];
} index_chunk;

/* sum + 4 products of unsigned bytes of a and signed bytes of b, per word. Not the intrinsic: with
 * it gcc 12 copies every sum to another register and back and spills, which costs a tenth of the
 * time. */
INLINE __m512i dot4(__m512i sum, __m512i a, __m512i b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* Find out for each head whether it has one scale; returns whether all scales and weights are
 * near. */
static int prepare_heads(index_head *heads, const mote__index_query *q)
{
    size_t groups = q->dim / 32;
    int near = 1;
    for (size_t h = 0; h < q->n_heads; h++) {
        const float *scale = q->scales + h * groups;
        const int32_t *sum = q->code_sum + h * groups;
        float w = fabsf(q->weights[h]);
        int one = 1, start = 0;
        near &= w == 0 || (w >= 0x1p-40f && w < 0x1p40f);
        for (size_t g = 0; g < groups; g++) {
            near &= scale[g] >= 0x1p-30f && scale[g] <= 0x1p30f;
            one &= scale[g] == scale[0];
            start -= LIFT * sum[g];
        }
        heads[h] = (index_head){ start, q->weights[h] * scale[0], one };
    }
    return near;
}

/* E8M0 codes of a tile's entries, one byte per group; 1, 2 or 4 groups */
INLINE __m512i tile_codes4(const uint8_t *scales, size_t groups)
{
    switch (groups) {
    case 1:
        return _mm512_mullo_epi32(_mm512_cvtepu8_epi32(
                                      _mm_loadu_si128((const __m128i *)(const void *)scales)),
                                  vi_set(0x01010101));
    case 2:
        return _mm512_mullo_epi32(_mm512_cvtepu16_epi32(
                                      _mm256_loadu_si256((const __m256i *)(const void *)scales)),
                                  vi_set(0x00010001));
    default: return vi_load(scales);
    }
}

static void look_up(index_chunk *c, size_t t, const uint8_t *tile, const uint8_t *scales,
                    size_t groups)
{
    /* [shift][code]: doubled value * 2^shift + LIFT */
    static const uint8_t table[64] = {
        96, 97,  98,  99,  100, 102, 104, 108, 96, 95, 94, 93, 92, 90, 88, 84,
        96, 98,  100, 102, 104, 108, 112, 120, 96, 94, 92, 90, 88, 84, 80, 72,
        96, 100, 104, 108, 112, 120, 128, 144, 96, 92, 88, 84, 80, 72, 64, 48,
        96, 104, 112, 120, 128, 144, 160, 192, 96, 88, 80, 72, 64, 48, 32, 0,
    };
    const __m512i values = vi_load(table), low = vi_set8(15);
    const __m512i first = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    __m512i shifts = vi_zero();
    int one = 0;
    if (groups == 1 || groups == 2 || groups == 4) {
        __m512i v = tile_codes4(scales, groups),
                least = _mm512_min_epu8(v, _mm512_rol_epi32(v, 16));
        least = _mm512_min_epu8(least, _mm512_rol_epi32(least, 8));
        shifts = _mm512_sub_epi8(v, least);
        /* within a factor of 2^3, and near */
        one = !(_mm512_cmpgt_epu8_mask(shifts, vi_set8(3)) |
                _mm512_cmplt_epu8_mask(v, vi_set8(127 - 24)) |
                _mm512_cmpgt_epu8_mask(v, vi_set8((char)(127 + 24))));
        shifts = one ? vi_sll(shifts, 4) : vi_zero();
        if (one)
            vf_store(c->scales[t][0], vf_bits(vi_sll(vi_and(least, vi_set(255)), 23)));
    }
    c->near &= one;
    for (size_t g = 0; g < groups; g++) {
        if (one)
            vf_store(c->scales[t][g], vf_load(c->scales[t][0]));
        else
            for (size_t e = 0; e < 16; e++)
                c->scales[t][g][e] = e8m0(scales[e * groups + g]);
        __m512i s = _mm512_shuffle_epi8(shifts, _mm512_add_epi8(first, vi_set8((int)(g & 3))));
        UNROLL for (size_t w = g * 4; w < g * 4 + 4; w++)
        {
            __m512i v = vi_load(tile + w * 64);
            /* 0xea: (a & b) | c */
            vi_store(c->keys[w * 2][t],
                     _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(v, low, s, 0xea), values));
            vi_store(c->keys[w * 2 + 1][t],
                     _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(vi_srl(v, 4), low, s, 0xea),
                                             values));
        }
    }
}

/* d: the product of a head, before its weight */
INLINE vf add_head(vf s, vf d, float weight, const int round)
{
    d = vf_max(vf_zero(), d); /* NaN stays NaN */
    return round ? vf_add(s, vf_bf16(vf_mul(d, vf_set(weight)))) : vf_fma(d, vf_set(weight), s);
}

/* Heads h..h+n_h-1, which have one scale, times n_t tiles; without the scales of the keys. */
INLINE void heads_of_one_scale(const int n_h, const int n_t, vf s[CHUNK],
                               const mote__index_query *q, const index_head *heads, size_t h,
                               const index_chunk *c, const int round)
{
    const int8_t *query = q->codes + h * q->dim;
    __m512i sum[BLOCK_H * 2][CHUNK];
    UNROLL for (int i = 0; i < n_h; i++) UNROLL for (int t = 0; t < n_t; t++)
        sum[i][t] = vi_set(heads[h + (size_t)i].start);
    for (size_t v = 0; v < q->dim / 4; v++) {
        __m512i key[CHUNK];
        UNROLL for (int t = 0; t < n_t; t++) key[t] = vi_load(c->keys[v][t]);
        UNROLL for (int i = 0; i < n_h; i++)
        {
            __m512i x = vi_set((int32_t)load_u32(query + (size_t)i * q->dim + v * 4));
            UNROLL for (int t = 0; t < n_t; t++) sum[i][t] = dot4(sum[i][t], key[t], x);
        }
    }
    UNROLL for (int i = 0; i < n_h; i++) UNROLL for (int t = 0; t < n_t; t++)
    {
        size_t at = h + (size_t)i;
        vf d = vf_from_i(_mm512_max_epi32(sum[i][t], vi_zero()));
        if (round)
            s[t] = add_head(s[t], vf_bf16(vf_mul(d, vf_set(q->scales[at * (q->dim / 32)]))),
                            q->weights[at], 1);
        else
            s[t] = vf_fma(d, vf_set(heads[at].weight), s[t]);
    }
}

/* One head, group by group, in the order of the definition; near: without the scales of the
 * keys. */
INLINE void head_of_groups(const int n_t, vf s[CHUNK], const mote__index_query *q, size_t h,
                           const index_chunk *c, int near, const int round)
{
    size_t groups = q->dim / 32;
    const int8_t *query = q->codes + h * q->dim;
    vf d[CHUNK];
    UNROLL for (int t = 0; t < n_t; t++) d[t] = vf_zero();
    for (size_t g = 0; g < groups; g++) {
        __m512i sum[CHUNK];
        UNROLL for (int t = 0; t < n_t; t++) sum[t] = vi_set(-LIFT * q->code_sum[h * groups + g]);
        UNROLL for (size_t v = 0; v < 8; v++)
        {
            __m512i x = vi_set((int32_t)load_u32(query + g * 32 + v * 4));
            UNROLL for (int t = 0; t < n_t; t++)
                sum[t] = dot4(sum[t], vi_load(c->keys[g * 8 + v][t]), x);
        }
        vf scale = vf_set(q->scales[h * groups + g]);
        UNROLL for (int t = 0; t < n_t; t++)
            d[t] = vf_fma(vf_from_i(sum[t]), near ? scale : vf_mul(scale, vf_load(c->scales[t][g])),
                          d[t]);
    }
    UNROLL for (int t = 0; t < n_t; t++)
        s[t] = add_head(s[t], round ? vf_bf16(d[t]) : d[t], q->weights[h], round);
}

/* next: the chunk to prefetch, a few lines with each head; all at once they would fill the miss
 * queue and delay the loads of this chunk. */
INLINE void index_chunk_scores(const int n_t, const int n_h, float *scores,
                               const mote__index_query *q, const index_head *heads,
                               const index_chunk *c, const mote__index_tiles *next, const int round)
{
    const int near = c->near;
    vf s[CHUNK];
    const size_t lines = q->dim / 8 * next->n;
    size_t asked = 0;
    for (size_t i = 0; i < q->dim / 2 * next->n; i += 64)
        _mm_prefetch((const char *)next->scales + i, _MM_HINT_T0);
    UNROLL for (int t = 0; t < n_t; t++) s[t] = vf_zero();
    for (size_t h = 0; h < q->n_heads;) {
        int run = 0;
        while (near && run < n_h && h + (size_t)run < q->n_heads &&
               heads[h + (size_t)run].one_scale)
            run++;
        if (run == n_h) {
            heads_of_one_scale(n_h, n_t, s, q, heads, h, c, round);
        } else if (run) {
            heads_of_one_scale(1, n_t, s, q, heads, h, c, round);
            run = 1;
        } else {
            head_of_groups(n_t, s, q, h, c, near, round);
            run = 1;
        }
        h += (size_t)run;
        /* complete before the last quarter of the heads */
        for (; asked < lines && 3 * asked * q->n_heads < 4 * lines * h; asked++)
            _mm_prefetch((const char *)next->codes + asked * 64, _MM_HINT_T0);
    }
    UNROLL for (int t = 0; t < n_t; t++)
    {
        vf x = near ? vf_mul(s[t], vf_load(c->scales[t][0])) : s[t];
        vf_store(scores + t * 16, round ? vf_bf16(x) : x);
    }
}

typedef void index_chunk_fn(float *scores, const mote__index_query *q, const index_head *heads,
                            const index_chunk *c, const mote__index_tiles *next);
#define INDEX_CHUNK(n_t, n_h)                                                    \
    static void index_chunk_##n_t(float *scores, const mote__index_query *q,     \
                                  const index_head *heads, const index_chunk *c, \
                                  const mote__index_tiles *next)                 \
    {                                                                            \
        if (q->round_bf16)                                                       \
            index_chunk_scores(n_t, n_h, scores, q, heads, c, next, 1);          \
        else                                                                     \
            index_chunk_scores(n_t, n_h, scores, q, heads, c, next, 0);          \
    }
INDEX_CHUNK(1, 8)
INDEX_CHUNK(2, 4)
INDEX_CHUNK(3, 4)
INDEX_CHUNK(4, 4)

static void index_scores(float *scores, const mote__index_query *q, const mote__index_tiles *runs,
                         size_t n_runs)
{
    static index_chunk_fn *const chunks[CHUNK] = { index_chunk_1, index_chunk_2, index_chunk_3,
                                                   index_chunk_4 };
    index_chunk c;
    index_head heads[INDEX_HEADS];
    size_t groups = q->dim / 32, tile_bytes = q->dim * 8;
    if (q->dim > INDEX_DIM || q->n_heads > INDEX_HEADS) {
        mote__index_scores_scalar(scores, q, runs, n_runs);
        return;
    }
    const int near = prepare_heads(heads, q);
    for (size_t r = 0; r < n_runs; r++)
        for (size_t t = 0, n; t < runs[r].n; t += n, scores += n * 16) {
            n = runs[r].n - t < CHUNK ? runs[r].n - t : CHUNK;
            const uint8_t *codes = runs[r].codes + t * tile_bytes,
                          *scales = runs[r].scales + t * groups * 16;
            /* the next keys follow here or are elsewhere, where the hardware prefetcher does not
             * look */
            mote__index_tiles next = { codes + n * tile_bytes, scales + n * groups * 16,
                                       runs[r].n - t - n };
            if (next.n == 0 && r + 1 < n_runs)
                next = runs[r + 1];
            next.n = next.n < CHUNK ? next.n : CHUNK;
            c.near = near;
            for (size_t i = 0; i < n; i++)
                look_up(&c, i, codes + i * tile_bytes, scales + i * groups * 16, groups);
            chunks[n - 1](scores, q, heads, &c, &next);
        }
}
