/* MXFP4 linears of published math (MOTE_W_MXFP4_BF16): BF16 inputs, pairs of products. Included
 * once per instruction set, and once more with PAIRS_HW for processors with vdpbf16ps; without it a
 * pair is two FMAs in the same order.
 *
 * A step is 16 words of 8 columns; vector k of a step holds the pairs (k, k + 4) of its words.
 * Weights are multiplied by their scales when decoded, so that a sum consists of dot products only.
 * One or two rows: weights are decoded in registers. More rows: PAIR_O outputs are decoded into the
 * scratch over all of K and used for all rows, PAIR_R at a time, whose sums stay in registers for
 * all columns. 24 sums hide the latency of the dot product, 16 do not; storing a sum would take the
 * time of two dot products. */

#if defined(PAIRS_HW)
typedef vi pair_w;
/* distance of scales from the largest scale, in BF16 exponents */
typedef vi pair_s;
enum { PAIR_R = 6, PAIR_FEW_O = 4 };
/* The instruction flushes denormals, but none occur with scales of 2^-38 or more: a product is a
 * multiple of 2^-38 * 2^-1 (weights) * 2^-87 (inputs: 8 bits, at least 2^-80) = 2^-126, and so is
 * every rounded sum. Above 2^125 BF16 overflows. Outputs with scales out of these bounds are
 * computed without the instruction. */
enum { PAIR_LOW = 127 - 38, PAIR_HIGH = 127 + 125 };
static void (*pairs_fallback)(const mote__mat *m, size_t o0, size_t o1, const float *x,
                              size_t n_rows, size_t ldx, float *y, size_t ldy, float *scratch);
INLINE pair_s pair_scale(uint32_t codes, int h)
{
    const __m512i spread = _mm512_set_epi32(0x03ff03ff, 0x03ff03ff, 0x03ff03ff, 0x03ff03ff,
                                            0x02ff02ff, 0x02ff02ff, 0x02ff02ff, 0x02ff02ff,
                                            0x01ff01ff, 0x01ff01ff, 0x01ff01ff, 0x01ff01ff,
                                            0x00ff00ff, 0x00ff00ff, 0x00ff00ff, 0x00ff00ff);
    vi v = _mm512_srli_epi16(_mm512_shuffle_epi8(vi_set((int32_t)codes), spread), 1);
    return _mm512_sub_epi16(_mm512_set1_epi16(PAIR_HIGH << 7), v);
}
/* Vector k of pairs of the words v. The table lookup gives values with the largest scale (a permute
 * uses five bits of the index, so the table is stored twice); a subtraction from the exponents,
 * which leaves zeros unchanged, gives the actual scale. -0 becomes +0, which makes no difference in
 * a sum. */
INLINE pair_w pair_codes(vi v, pair_s s, int k)
{
    const __m256i once = _mm256_setr_epi16(0, 0x7d80, 0x7e00, 0x7e40, 0x7e80, 0x7ec0, 0x7f00,
                                           0x7f40, 0, (short)0xfd80, (short)0xfe00, (short)0xfe40,
                                           (short)0xfe80, (short)0xfec0, (short)0xff00,
                                           (short)0xff40);
    const vi table = _mm512_broadcast_i64x4(once);
    switch (k) {
    case 0: break;
    case 1: v = vi_srl(v, 4); break;
    case 2: v = vi_srl(v, 8); break;
    default: v = vi_srl(v, 12); break;
    }
    return _mm512_subs_epu16(_mm512_permutexvar_epi16(v, table), s);
}
/* with the intrinsic gcc 12 copies and spills sums */
INLINE vf pair_dot(vf t, pair_w w, vi x)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(t) : "v"(w), "v"(x));
    return t;
}
INLINE void pair_store(float *p, pair_w w) { vi_store(p, w); }
INLINE pair_w pair_load(const float *p) { return vi_keep(vi_load(p)); }
#else
typedef struct pair_w {
    vf low, high;
} pair_w;
typedef vf pair_s;
enum { PAIR_R = VN == 16 ? 4 : 2, PAIR_FEW_O = 2 };
enum { PAIR_LOW = 1, PAIR_HIGH = 254 };
INLINE pair_s pair_scale(uint32_t codes, int h) { return mx_step_scale(codes, h); }
INLINE pair_w pair_codes(vi v, pair_s s, int k)
{
    return (pair_w){ vf_mul(vf_nibble(v, k), s), vf_mul(vf_nibble(v, k + 4), s) };
}
INLINE vf pair_dot(vf t, pair_w w, vi x)
{
    t = vf_fma(w.high, vf_bits(vi_and(x, vi_set((int32_t)0xffff0000))), t);
    return vf_fma(w.low, vf_bits(vi_sll(x, 16)), t);
}
/* stored as BF16, in which weight times scale is exact */
INLINE void pair_store(float *p, pair_w w)
{
    vi_store(p, vi_or(vi_and(vi_bits(w.high), vi_set((int32_t)0xffff0000)),
                      vi_srl(vi_bits(w.low), 16)));
}
INLINE pair_w pair_load(const float *p)
{
    vi v = vi_keep(vi_load(p));
    return (pair_w){ vf_bits(vi_sll(v, 16)), vf_bits(vi_and(v, vi_set((int32_t)0xffff0000))) };
}
static void pairs_fallback(const mote__mat *m, size_t o0, size_t o1, const float *x, size_t n_rows,
                           size_t ldx, float *y, size_t ldy, float *scratch)
{
    mote__linear_scalar(m, o0, o1, x, n_rows, ldx, y, ldy, scratch);
}
#endif

/* PAIR_STEP: floats per step of PAIR_O decoded outputs */
enum { PAIR_BLOCK_O = 16, PAIR_O = 4, PAIR_AT_ONCE = 2, PAIR_STEP = 4 * PAIR_O * 16 };

/* The words of a step, of which n_bytes exist. */
INLINE vi pair_words(const uint8_t *w, size_t n_bytes, int h)
{
    size_t at = (size_t)h * VN * 4;
    return n_bytes >= 64 ? vi_load(w + at)
                         : vi_load_n(w + at, n_bytes <= at           ? 0
                                             : n_bytes - at < VN * 4 ? (n_bytes - at) / 4
                                                                     : VN);
}
INLINE pair_s pair_scales(const uint8_t *codes, size_t n_bytes, int h)
{
    uint32_t four = 0;
    if (n_bytes >= 64)
        return pair_scale(load_u32(codes), h);
    memcpy(&four, codes, n_bytes / 16);
    return pair_scale(four, h);
}

/* ---- one or two rows ---- */

/* A step of n_bytes (the constant 64, or the rest of the rows) of n_o outputs and n_r rows. */
INLINE void pair_few_step(const int n_o, const int n_r, vf sum[PAIR_FEW_O][2][HALVES],
                          const uint8_t *w, size_t row_bytes, size_t n_bytes, const uint8_t *scale,
                          size_t scale_stride, const float *x, size_t ldx)
{
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        vi v[PAIR_FEW_O];
        pair_s s[PAIR_FEW_O];
        UNROLL for (int a = 0; a < n_o; a++)
        {
            v[a] = pair_words(w + (size_t)a * row_bytes, n_bytes, h);
            s[a] = pair_scales(scale + (size_t)a * scale_stride, n_bytes, h);
        }
        UNROLL for (int k = 0; k < 4; k++)
        {
            vi xv[2];
            UNROLL for (int r = 0; r < n_r; r++)
                xv[r] = vi_load(x + (size_t)r * ldx + k * 16 + h * VN);
            UNROLL for (int a = 0; a < n_o; a++)
            {
                pair_w c = pair_codes(v[a], s[a], k);
                UNROLL for (int r = 0; r < n_r; r++)
                    sum[a][r][h] = pair_dot(sum[a][r][h], c, xv[r]);
            }
        }
    }
}

INLINE void pair_few(const int n_o, const int n_r, const mote__mat *m, size_t o, const float *x,
                     size_t ldx, float *y, size_t ldy)
{
    const size_t row_bytes = m->n_in / 2;
    const uint8_t *w = m->data + o * row_bytes, *scale = m->scale + o * m->scale_stride, *first = w;
    vf sum[PAIR_FEW_O][2][HALVES];
    UNROLL for (int a = 0; a < n_o; a++) UNROLL for (int r = 0; r < n_r; r++)
        UNROLL for (int h = 0; h < HALVES; h++) sum[a][r][h] = vf_zero();
    size_t left = row_bytes, ask = within(AHEAD, w, m->data + m->n_out * row_bytes);
    for (; left >= 64; left -= 64, w += 64, scale += 4, x += 64) {
        UNROLL for (int a = 0; a < n_o; a++) prefetch(first, ask + (size_t)a * 64);
        ask += 64 * (size_t)n_o;
        pair_few_step(n_o, n_r, sum, w, row_bytes, 64, scale, m->scale_stride, x, ldx);
    }
    if (left)
        pair_few_step(n_o, n_r, sum, w, row_bytes, left, scale, m->scale_stride, x, ldx);
    UNROLL for (int a = 0; a < n_o; a++) UNROLL for (int r = 0; r < n_r; r++)
    {
        float p[16];
        UNROLL for (int h = 0; h < HALVES; h++) vf_store(p + h * VN, sum[a][r][h]);
        y[(size_t)r * ldy + o + (size_t)a] = lane_sum(p);
    }
}

typedef void pair_few_fn(const mote__mat *m, size_t o, const float *x, size_t ldx, float *y,
                         size_t ldy);
#define PAIR_FEW(name, n_o, n_r)                                                         \
    static void name(const mote__mat *m, size_t o, const float *x, size_t ldx, float *y, \
                     size_t ldy)                                                         \
    {                                                                                    \
        pair_few(n_o, n_r, m, o, x, ldx, y, ldy);                                        \
    }
PAIR_FEW(pair_few_11, 1, 1)
PAIR_FEW(pair_few_12, 1, 2)
PAIR_FEW(pair_few_n1, PAIR_FEW_O, 1)
PAIR_FEW(pair_few_n2, PAIR_FEW_O, 2)

static void pair_few_rows(const mote__mat *m, size_t o0, size_t o1, const float *x, size_t n_rows,
                          size_t ldx, float *y, size_t ldy)
{
    static pair_few_fn *const few_of[2][2] = { { pair_few_11, pair_few_12 },
                                               { pair_few_n1, pair_few_n2 } };
    for (size_t r = 0; r < n_rows; r += PAIR_AT_ONCE)
        for (size_t o = o0, n; o < o1; o += n) {
            n = o1 - o < PAIR_FEW_O ? 1 : PAIR_FEW_O;
            few_of[n > 1][n_rows - r > 1](m, o, x + r * ldx, ldx, y + r * ldy, ldy);
        }
}

/* ---- more rows ---- */

/* Decode n_o outputs into `to` as [step][k][output]; the places of the other outputs up to PAIR_O
 * are not written. */
INLINE void pair_decode_step(const int n_o, float *to, const uint8_t *w, size_t row_bytes,
                             size_t n_bytes, const uint8_t *scale, size_t scale_stride)
{
    UNROLL for (int a = 0; a < n_o; a++) UNROLL for (int h = 0; h < HALVES; h++)
    {
        vi v = pair_words(w + (size_t)a * row_bytes, n_bytes, h);
        pair_s s = pair_scales(scale + (size_t)a * scale_stride, n_bytes, h);
        UNROLL for (int k = 0; k < 4; k++)
            pair_store(to + (k * PAIR_O + a) * 16 + h * VN, pair_codes(v, s, k));
    }
}

INLINE void pair_decode(const int n_o, const mote__mat *m, size_t o, float *to)
{
    const size_t row_bytes = m->n_in / 2;
    const uint8_t *w = m->data + o * row_bytes, *scale = m->scale + o * m->scale_stride;
    size_t left = row_bytes;
    for (; left >= 64; left -= 64, w += 64, scale += 4, to += PAIR_STEP)
        pair_decode_step(n_o, to, w, row_bytes, 64, scale, m->scale_stride);
    if (left)
        pair_decode_step(n_o, to, w, row_bytes, left, scale, m->scale_stride);
}

/* PAIR_O decoded outputs of n_r rows; the first n_o are stored. ahead: codes of the next outputs to
 * prefetch, or NULL. */
INLINE void pair_tile(const int n_r, const float *w, size_t n_steps, const float *x, size_t ldx,
                      size_t n_o, float *y, size_t ldy, const uint8_t *ahead)
{
    _Alignas(64) float p[PAIR_R][PAIR_O][16];
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        vf sum[PAIR_O][PAIR_R];
        const float *at = w + h * VN, *xs = x + h * VN;
        UNROLL for (int a = 0; a < PAIR_O; a++) UNROLL for (int r = 0; r < n_r; r++)
            sum[a][r] = vf_zero();
        for (size_t i = 0; i < 4 * n_steps; i++, at += PAIR_O * 16, xs += 16) {
            vi xv[PAIR_R];
            /* a vector of PAIR_O outputs comes from about one line of codes */
            if (ahead && h == 0)
                _mm_prefetch((const char *)((uintptr_t)ahead + i * (16 * PAIR_O)), _MM_HINT_T1);
            UNROLL for (int r = 0; r < n_r; r++) xv[r] = vi_keep(vi_load(xs + (size_t)r * ldx));
            UNROLL for (int a = 0; a < PAIR_O; a++)
            {
                pair_w c = pair_load(at + a * 16);
                UNROLL for (int r = 0; r < n_r; r++) sum[a][r] = pair_dot(sum[a][r], c, xv[r]);
            }
        }
        UNROLL for (int a = 0; a < PAIR_O; a++) UNROLL for (int r = 0; r < n_r; r++)
            vf_store(p[r][a] + h * VN, sum[a][r]);
    }
    for (size_t r = 0; r < (size_t)n_r; r++) {
        vf all[16][HALVES];
        float to[16];
        UNROLL for (int a = 0; a < PAIR_O; a++) UNROLL for (int h = 0; h < HALVES; h++)
            all[a][h] = vf_load(p[r][a] + h * VN);
        lane_sums(to, all, PAIR_O);
        for (size_t a = 0; a < n_o; a++)
            y[r * ldy + a] = to[lane_sums_at((int)a)];
    }
}

typedef void pair_tile_fn(const float *w, size_t n_steps, const float *x, size_t ldx, size_t n_o,
                          float *y, size_t ldy, const uint8_t *ahead);
#define PAIR_TILE(n)                                                                      \
    static void pair_tile_##n(const float *w, size_t n_steps, const float *x, size_t ldx, \
                              size_t n_o, float *y, size_t ldy, const uint8_t *ahead)     \
    {                                                                                     \
        pair_tile(n < PAIR_R ? n : PAIR_R, w, n_steps, x, ldx, n_o, y, ldy, ahead);       \
    }
PAIR_TILE(1)
PAIR_TILE(2)
PAIR_TILE(3)
PAIR_TILE(4)
PAIR_TILE(5)
PAIR_TILE(6)
_Static_assert(PAIR_R <= 6, "a tile for each number of rows");

/* PAIR_O decoded outputs must fit into the scratch. */
static void pair_many_rows(const mote__mat *m, size_t o0, size_t o1, const float *x, size_t n_rows,
                           size_t ldx, float *y, size_t ldy, float *scratch)
{
    static pair_tile_fn *const tile_of[] = { pair_tile_1, pair_tile_2, pair_tile_3,
                                             pair_tile_4, pair_tile_5, pair_tile_6 };
    const size_t n_steps = (m->n_in + 127) / 128, n_tiles = (n_rows + PAIR_R - 1) / PAIR_R;
    for (size_t o = o0; o < o1; o += PAIR_O) {
        const size_t n_o = o1 - o < PAIR_O ? o1 - o : PAIR_O;
        if (n_o == PAIR_O)
            pair_decode(PAIR_O, m, o, scratch);
        else
            /* the places of missing outputs are computed too, and not stored */
            for (size_t a = 0; a < n_o; a++)
                pair_decode(1, m, o + a, scratch + a * 16);
        for (size_t t = 0; t < n_tiles; t++) { /* tiles of nearly equal size */
            const size_t r = t * n_rows / n_tiles, n_r = (t + 1) * n_rows / n_tiles - r;
            tile_of[n_r - 1](scratch, n_steps, x + r * ldx, ldx, n_o, y + r * ldy + o, ldy,
                             t ? NULL : m->data + (o + PAIR_O) * (m->n_in / 2));
        }
    }
}

/* Whether all scales of outputs [o0, o1) are in the bounds of PAIR_LOW and PAIR_HIGH. */
static int pair_scales_fit(const mote__mat *m, size_t o0, size_t o1)
{
    const size_t n = m->n_in / 32, whole = n / (VN * 4) * (VN * 4);
    /* the largest code, and the largest complement of a code */
    vi high = vi_zero(), low = vi_zero();
    unsigned worst = 0;
    for (size_t o = o0; o < o1; o++) {
        const uint8_t *s = m->scale + o * m->scale_stride;
        for (size_t i = 0; i < whole; i += VN * 4) {
            vi v = vi_load(s + i);
            high = vi_max_u8(high, v);
            low = vi_max_u8(low, vi_sub(vi_set(-1), v));
        }
        for (size_t i = whole; i < n; i++)
            worst |= s[i] < PAIR_LOW || s[i] > PAIR_HIGH;
    }
    uint8_t most[2][VN * 4];
    vi_store(most[0], high);
    vi_store(most[1], low);
    for (size_t i = 0; i < VN * 4; i++)
        worst |= most[0][i] > PAIR_HIGH || most[1][i] > 255 - PAIR_LOW;
    return !worst;
}

static void linear_pairs(const mote__mat *m, size_t o0, size_t o1, const float *x, size_t n_rows,
                         size_t ldx, float *y, size_t ldy, float *scratch)
{
    const int few = n_rows <= PAIR_AT_ONCE ||
                    (m->n_in + 127) / 128 * PAIR_STEP > MOTE_LINEAR_SCRATCH;
    for (size_t o = o0, end; n_rows && o < o1; o = end) {
        end = o1 - o < PAIR_BLOCK_O ? o1 : o + PAIR_BLOCK_O;
        if (!pair_scales_fit(m, o, end))
            pairs_fallback(m, o, end, x, n_rows, ldx, y, ldy, scratch);
        else if (few)
            pair_few_rows(m, o, end, x, n_rows, ldx, y, ldy);
        else
            pair_many_rows(m, o, end, x, n_rows, ldx, y, ldy, scratch);
    }
}
