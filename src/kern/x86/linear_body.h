/* Linears on vectors, included once per instruction set.
 *
 * Few rows (1-4): weights are streamed once and decoded in registers, several outputs at a time where that shares loads
 * of the inputs. More rows: a block of up to 16 outputs is decoded into the scratch as fp32 in lane layout, then a
 * register tile of TILE_O outputs times TILE_R rows walks it, 16 vectors (of 16 lanes) of K at a time so that both
 * operands come from L1. Either way lane p of a sum sees the columns that kern.h gives it, in ascending order.
 *
 * MXFP4 scales are applied as the definition has it, fma(t, scale, sum), also after decoding: weights scaled beforehand
 * would round twice where a product is denormal. The price is one fma, load and store in nine.
 * FP8 is decoded as half floats, 2^-8 times the value; the scale carries the 2^8, and the product is the exact one.
 *
 * Not done here but by the scalar definition, row by row: E8M0 codes whose float is no plain exponent shift. No
 * checkpoint has them. E4M3 NaN codes are noticed on the way, and the output is then NaN as every sum over them is. */

enum {
    BLOCK_O = 16,                          /* outputs decoded at once                        */
    BLOCK_V = 16,                          /* vectors (16 floats) of K walked at once        */
};

/* Column vector i of the words v. F32, BF16, FP8 (unscaled, times 2^-8). */
INLINE void decode_words(const mote__wkind kind, vf out[4], vi v)
{
    if (kind == MOTE_W_F32) {
        out[0] = vf_bits(v);
    } else if (kind == MOTE_W_BF16) {
        out[0] = vf_bits(vi_sll(v, 16));
        out[1] = vf_bits(vi_and(v, vi_set((int32_t)0xffff0000)));
    } else {
        e4m3_columns(out, v);
    }
}

/* Words of a step's half h: all, or the first n of the step. */
INLINE vi step_words(const uint8_t *p, int h, size_t n)
{
    if (n == 16)
        return vi_load(p + h * VN * 4);
    size_t from = (size_t)(h * VN);
    return vi_load_n(p + h * VN * 4, n <= from ? 0 : n - from < VN ? n - from : VN);
}

/* the scales of a step of 64 columns, times 2^8 (see top); s: its two codes, of which the second may not exist */
INLINE vf fp8_scale(const uint8_t *s, int two, int h)
{
    return fp8_scale_vec((uint32_t)(s[0] + 8) << 23, two ? (uint32_t)(s[1] + 8) << 23 : 0, h);
}

INLINE uint32_t mx_codes(const uint8_t *s, size_t n_words)
{
    uint32_t codes = 0;
    if (n_words == 16)
        return load_u32(s);
    memcpy(&codes, s, n_words / 4);
    return codes;
}

/* true if a scale of outputs [o0, o1) needs the scalar definition */
static int odd_scales(const mote__mat *m, size_t o0, size_t o1)
{
    uint8_t odd = 0;
    if (m->kind == MOTE_W_MXFP4)
        for (size_t o = o0; o < o1; o++)
            for (size_t i = 0; i < m->n_in / 32; i++)
                odd |= (uint8_t)(m->scale[o * m->scale_stride + i] + 1) < 2;
    if (m->kind == MOTE_W_FP8)
        for (size_t row = (m->scale_row0 + o0) / 32; row <= (m->scale_row0 + o1 - 1) / 32; row++)
            for (size_t i = 0; i < (m->n_in + 31) / 32; i++)
                odd |= m->scale[row * m->scale_stride + i] > 246;
    return odd;
}

/* ---- few rows ----------------------------------------------------------------------------------------------- */

typedef struct few_state {
    vf acc[4][4][HALVES];                  /* [output][row]            */
    vi seen[4];                            /* FP8: largest code | 0x80 */
} few_state;

/* one step of `n` words (16, or fewer in the last) */
INLINE void few_step(const mote__wkind kind, const int n_o, const int n_r, few_state *st, const uint8_t *w, size_t row_bytes,
                     const uint8_t *scale, size_t scale_stride, const float *x, size_t ldxp, size_t n)
{
    UNROLL for (int h = 0; h < HALVES; h++) {
        vi v[4];
        UNROLL for (int o = 0; o < n_o; o++)
            v[o] = step_words(w + (size_t)o * row_bytes, h, n);
        if (kind == MOTE_W_MXFP4) {
            vf t[4][4];
            UNROLL for (int o = 0; o < n_o; o++)
                UNROLL for (int r = 0; r < n_r; r++)
                    t[o][r] = vf_zero();
            UNROLL for (int i = 0; i < 8; i++) {
                UNROLL for (int o = 0; o < n_o; o++) {
                    vf c = vf_nibble(v[o], i);
                    UNROLL for (int r = 0; r < n_r; r++)
                        t[o][r] = vf_fma(c, vf_load(x + (size_t)r * ldxp + i * 16 + h * VN), t[o][r]);
                }
            }
            UNROLL for (int o = 0; o < n_o; o++) {
                vf s = mx_scale(mx_codes(scale + (size_t)o * scale_stride, n), h);
                UNROLL for (int r = 0; r < n_r; r++)
                    st->acc[o][r][h] = vf_fma(t[o][r], s, st->acc[o][r][h]);
            }
            continue;
        }
        const int g = kind == MOTE_W_FP8 ? 4 : kind == MOTE_W_BF16 ? 2 : 1;
        vf s = vf_zero();
        if (kind == MOTE_W_FP8)
            s = fp8_scale(scale, n > 8, h);
        UNROLL for (int o = 0; o < n_o; o++) {
            vf c[4];
            decode_words(kind, c, v[o]);
            if (kind == MOTE_W_FP8)
                st->seen[o] = vi_max_u8(st->seen[o], vi_or(v[o], vi_set8(0x80)));
            UNROLL for (int i = 0; i < g; i++) {
                vf weight = kind == MOTE_W_FP8 ? vf_mul(c[i], s) : c[i];
                UNROLL for (int r = 0; r < n_r; r++)
                    st->acc[o][r][h] = vf_fma(weight, vf_load(x + (size_t)r * ldxp + i * 16 + h * VN), st->acc[o][r][h]);
            }
        }
    }
}

/* outputs o .. o+n_o-1 (FP8: all in one row of scales) of n_r rows */
INLINE void few(const mote__wkind kind, const int n_o, const int n_r, const mote__mat *m, size_t o, const float *xp,
                size_t ldxp, float *y, size_t ldy)
{
    const size_t g = kind == MOTE_W_MXFP4 ? 8 : kind == MOTE_W_FP8 ? 4 : kind == MOTE_W_BF16 ? 2 : 1;
    const size_t words = m->n_in / g, row_bytes = words * 4, step_scales = kind == MOTE_W_MXFP4 ? 4 : 2;
    const uint8_t *w = m->data + o * row_bytes, *scale = m->scale;
    if (kind == MOTE_W_MXFP4)
        scale += o * m->scale_stride;
    if (kind == MOTE_W_FP8)
        scale += (m->scale_row0 + o) / 32 * m->scale_stride;
    few_state st;
    UNROLL for (int i = 0; i < n_o; i++) {
        st.seen[i] = vi_zero();
        UNROLL for (int r = 0; r < n_r; r++)
            UNROLL for (int h = 0; h < HALVES; h++)
                st.acc[i][r][h] = vf_zero();
    }
    const float *x = xp;
    size_t left = words;
    for (; left >= 16; left -= 16, w += 64, x += 16 * g) {
        few_step(kind, n_o, n_r, &st, w, row_bytes, scale, m->scale_stride, x, ldxp, 16);
        if (kind == MOTE_W_MXFP4 || kind == MOTE_W_FP8)
            scale += step_scales;
    }
    if (left)
        few_step(kind, n_o, n_r, &st, w, row_bytes, scale, m->scale_stride, x, ldxp, left);
    UNROLL for (int i = 0; i < n_o; i++) {
        int bad = kind == MOTE_W_FP8 && vi_any_eq8(st.seen[i], vi_set8(0xff));
        UNROLL for (int r = 0; r < n_r; r++) {
            float p[16];
            UNROLL for (int h = 0; h < HALVES; h++)
                vf_store(p + h * VN, st.acc[i][r][h]);
            y[(size_t)r * ldy + o + (size_t)i] = bad ? NAN : lane_sum(p);
        }
    }
}

#define FEW(kind, n_o, n_r)                                                                                    \
    static void few_##kind##_##n_o##_##n_r(const mote__mat *m, size_t o, const float *xp, size_t ldxp, float *y, size_t ldy) \
    {                                                                                                          \
        few(kind, n_o, n_r, m, o, xp, ldxp, y, ldy);                                                           \
    }
#define FEW_KIND(kind) FEW(kind, 4, 1) FEW(kind, 2, 1) FEW(kind, 1, 1) FEW(kind, 2, 2) FEW(kind, 1, 2) FEW(kind, 1, 3) FEW(kind, 1, 4)
FEW_KIND(MOTE_W_F32)
FEW_KIND(MOTE_W_BF16)
FEW_KIND(MOTE_W_FP8)
FEW_KIND(MOTE_W_MXFP4)

typedef void few_fn(const mote__mat *m, size_t o, const float *xp, size_t ldxp, float *y, size_t ldy);
typedef struct few_row { few_fn *one, *several; size_t n_several; } few_row;     /* one output, several outputs */
#define FEW_ROWS_OF(kind)                                                                                      \
    { { few_##kind##_1_1, FEW_O1 == 4 ? few_##kind##_4_1 : few_##kind##_2_1, FEW_O1 },                         \
      { few_##kind##_1_2, FEW_O2 == 2 ? few_##kind##_2_2 : few_##kind##_1_2, FEW_O2 },                         \
      { few_##kind##_1_3, few_##kind##_1_3, 1 }, { few_##kind##_1_4, few_##kind##_1_4, 1 } }
static const few_row few_rows[MOTE_W_KINDS][4] = {
    [MOTE_W_F32] = FEW_ROWS_OF(MOTE_W_F32), [MOTE_W_BF16] = FEW_ROWS_OF(MOTE_W_BF16),
    [MOTE_W_FP8] = FEW_ROWS_OF(MOTE_W_FP8), [MOTE_W_MXFP4] = FEW_ROWS_OF(MOTE_W_MXFP4),
};

static void linear_few(const mote__mat *m, size_t o0, size_t o1, const float *xp, size_t n_rows, size_t ldxp, float *y,
                       size_t ldy)
{
    for (size_t r = 0; r < n_rows; r += 4) {
        const few_row *f = &few_rows[m->kind][n_rows - r < 4 ? n_rows - r - 1 : 3];
        for (size_t o = o0; o < o1;) {
            size_t in_scale_row = 32 - (m->scale_row0 + o) % 32, n = f->n_several;
            int fits = o1 - o >= n && (m->kind != MOTE_W_FP8 || in_scale_row >= n);
            (fits ? f->several : f->one)(m, o, xp + r * ldxp, ldxp, y + r * ldy, ldy);
            o += fits ? n : 1;
        }
    }
}

/* ---- many rows ---------------------------------------------------------------------------------------------- */

/* Decoded outputs lie as [K block][output][BLOCK_V vectors][16]. MXFP4 scales, one vector a step, follow as
 * [output][step][16]. */
INLINE float *decoded_at(float *block, size_t n_block_o, size_t o, size_t v)
{
    return block + ((v / BLOCK_V * n_block_o + o) * BLOCK_V + v % BLOCK_V) * 16;
}

/* Decode outputs [o, o+n) and zero the rest of n_block_o. Bit i of the result: output o+i holds an E4M3 NaN. */
INLINE unsigned decode_block(const mote__wkind kind, const mote__mat *m, size_t o0, size_t n, size_t n_block_o, float *block,
                             float *scale_vectors)
{
    const size_t g = kind == MOTE_W_MXFP4 ? 8 : kind == MOTE_W_FP8 ? 4 : kind == MOTE_W_BF16 ? 2 : 1;
    const size_t words = m->n_in / g, steps = (words + 15) / 16;
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *w = m->data + (o0 + i) * words * 4, *scale = m->scale;
        if (kind == MOTE_W_MXFP4)
            scale += (o0 + i) * m->scale_stride;
        if (kind == MOTE_W_FP8)
            scale += (m->scale_row0 + o0 + i) / 32 * m->scale_stride;
        vi seen = vi_zero();
        for (size_t s = 0; s < steps; s++) {
            size_t left = words - s * 16 < 16 ? words - s * 16 : 16;
            float *dst = decoded_at(block, n_block_o, i, s * g);     /* g divides BLOCK_V: a step stays in its K block */
            for (int h = 0; h < HALVES; h++) {
                vi v = step_words(w + s * 64, h, left);
                if (kind == MOTE_W_MXFP4) {
                    UNROLL for (int k = 0; k < 8; k++)
                        vf_store(dst + k * 16 + h * VN, vf_nibble(v, k));
                    vf_store(scale_vectors + (i * steps + s) * 16 + h * VN, mx_scale(mx_codes(scale + s * 4, left), h));
                    continue;
                }
                vf c[4], sv = vf_zero();
                decode_words(kind, c, v);
                if (kind == MOTE_W_FP8) {
                    sv = fp8_scale(scale + s * 2, left > 8, h);
                    seen = vi_max_u8(seen, vi_or(v, vi_set8(0x80)));
                }
                UNROLL for (size_t k = 0; k < g; k++)
                    vf_store(dst + k * 16 + h * VN, kind == MOTE_W_FP8 ? vf_mul(c[k], sv) : c[k]);
            }
        }
        if (kind == MOTE_W_FP8 && vi_any_eq8(seen, vi_set8(0xff)))
            bad |= 1u << i;
    }
    for (size_t i = n; i < n_block_o; i++) {
        for (size_t v = 0; v < steps * g; v++)
            memset(decoded_at(block, n_block_o, i, v), 0, 16 * sizeof(float));
        if (kind == MOTE_W_MXFP4)
            memset(scale_vectors + i * steps * 16, 0, steps * 16 * sizeof(float));
    }
    return bad;
}

/* n_v vectors of K for TILE_O outputs and n_r rows. sums: [TILE_O][TILE_R][16], read and written. */
INLINE void tile(const int scaled, const int n_r, const float *w, size_t n_v, const float *x, size_t ldxp, float *sums,
                 const float *scale, size_t scale_stride)
{
    for (int h = 0; h < HALVES; h++) {
        vf acc[TILE_O][TILE_R];
        if (!scaled)
            UNROLL for (int o = 0; o < TILE_O; o++)
                UNROLL for (int r = 0; r < n_r; r++)
                    acc[o][r] = vf_load(sums + (o * TILE_R + r) * 16 + h * VN);
        for (size_t v = 0; v < n_v; v += scaled ? 8 : 1) {
            if (scaled)
                UNROLL for (int o = 0; o < TILE_O; o++)
                    UNROLL for (int r = 0; r < n_r; r++)
                        acc[o][r] = vf_zero();
            for (size_t k = v; k < v + (scaled ? 8 : 1); k++) {
                vf xv[TILE_R];
                UNROLL for (int r = 0; r < n_r; r++)
                    xv[r] = vf_load(x + (size_t)r * ldxp + k * 16 + (size_t)(h * VN));
                UNROLL for (int o = 0; o < TILE_O; o++) {
                    vf wv = vf_load(w + ((size_t)o * BLOCK_V + k) * 16 + (size_t)(h * VN));
                    UNROLL for (int r = 0; r < n_r; r++)
                        acc[o][r] = vf_fma(wv, xv[r], acc[o][r]);
                }
            }
            if (scaled)
                UNROLL for (int o = 0; o < TILE_O; o++) {
                    vf s = vf_load(scale + (size_t)o * scale_stride + v / 8 * 16 + (size_t)(h * VN));
                    UNROLL for (int r = 0; r < n_r; r++) {
                        float *sum = sums + (o * TILE_R + r) * 16 + h * VN;
                        vf_store(sum, vf_fma(acc[o][r], s, vf_load(sum)));
                    }
                }
        }
        if (!scaled)
            UNROLL for (int o = 0; o < TILE_O; o++)
                UNROLL for (int r = 0; r < n_r; r++)
                    vf_store(sums + (o * TILE_R + r) * 16 + h * VN, acc[o][r]);
    }
}

typedef void tile_fn(const float *w, size_t n_v, const float *x, size_t ldxp, float *sums, const float *scale,
                     size_t scale_stride);
#define TILE(scaled, n_r)                                                                                          \
    static void tile_##scaled##_##n_r(const float *w, size_t n_v, const float *x, size_t ldxp, float *sums,        \
                                      const float *scale, size_t scale_stride)                                     \
    {                                                                                                              \
        tile(scaled, n_r, w, n_v, x, ldxp, sums, scale, scale_stride);                                             \
    }
TILE(0, 1) TILE(0, 2) TILE(0, 3) TILE(1, 1) TILE(1, 2) TILE(1, 3)
#if defined(__AVX512F__)
TILE(0, 4) TILE(0, 5) TILE(0, 6) TILE(1, 4) TILE(1, 5) TILE(1, 6)
static tile_fn *const tiles[2][TILE_R] = { { tile_0_1, tile_0_2, tile_0_3, tile_0_4, tile_0_5, tile_0_6 },
                                           { tile_1_1, tile_1_2, tile_1_3, tile_1_4, tile_1_5, tile_1_6 } };
#else
static tile_fn *const tiles[2][TILE_R] = { { tile_0_1, tile_0_2, tile_0_3 }, { tile_1_1, tile_1_2, tile_1_3 } };
#endif

static unsigned decode_any(const mote__mat *m, size_t o0, size_t n, size_t n_block_o, float *block, float *scale_vectors)
{
    switch (m->kind) {
    case MOTE_W_BF16: return decode_block(MOTE_W_BF16, m, o0, n, n_block_o, block, scale_vectors);
    case MOTE_W_FP8: return decode_block(MOTE_W_FP8, m, o0, n, n_block_o, block, scale_vectors);
    case MOTE_W_MXFP4: return decode_block(MOTE_W_MXFP4, m, o0, n, n_block_o, block, scale_vectors);
    default: return decode_block(MOTE_W_F32, m, o0, n, n_block_o, block, scale_vectors);
    }
}

/* n_o outputs from o0 on of all rows, decoded to `block` in units of n_block_o */
static void linear_block(const mote__mat *m, size_t o0, size_t n_o, size_t n_block_o, const float *xp, size_t n_rows,
                         size_t ldxp, float *y, size_t ldy, float *block)
{
    const size_t n_v = mote__arranged_size(m->kind, m->n_in) / 16, blocks = (n_v + BLOCK_V - 1) / BLOCK_V;
    const int scaled = m->kind == MOTE_W_MXFP4;
    float *scale_vectors = block + blocks * BLOCK_V * n_block_o * 16;
    unsigned bad = decode_any(m, o0, n_o, n_block_o, block, scale_vectors);
    const size_t groups = (n_o + TILE_O - 1) / TILE_O, scale_stride = scaled ? n_v / 8 * 16 : 0;
    for (size_t r = 0, n; r < n_rows; r += n) {
        /* rows in equal shares: 8 rows are 4 + 4, not 6 + 2 */
        size_t turns = (n_rows - r + TILE_R - 1) / TILE_R;
        n = (n_rows - r + turns - 1) / turns;
        _Alignas(64) float sums[BLOCK_O / TILE_O][TILE_O * TILE_R * 16];
        memset(sums, 0, groups * sizeof sums[0]);
        for (size_t b = 0; b < blocks; b++)
            for (size_t q = 0; q < groups; q++)
                tiles[scaled][n - 1](decoded_at(block, n_block_o, q * TILE_O, b * BLOCK_V),
                                     n_v - b * BLOCK_V < BLOCK_V ? n_v - b * BLOCK_V : BLOCK_V,
                                     xp + r * ldxp + b * BLOCK_V * 16, ldxp, sums[q],
                                     scale_vectors + q * TILE_O * scale_stride + b * (BLOCK_V / 8) * 16, scale_stride);
        for (size_t i = 0; i < n_o; i++)
            for (size_t k = 0; k < n; k++)
                y[(r + k) * ldy + o0 + i] =
                    bad >> i & 1 ? NAN : lane_sum(sums[i / TILE_O] + (i % TILE_O * TILE_R + k) * 16);
    }
}

static void linear(const mote__mat *m, size_t o0, size_t o1, const float *xp, size_t n_rows, size_t ldxp, float *y,
                   size_t ldy, float *scratch)
{
    if (o0 >= o1 || n_rows == 0)
        return;
    if (odd_scales(m, o0, o1)) {
        mote__linear_scalar(m, o0, o1, xp, n_rows, ldxp, y, ldy, scratch);
        return;
    }
    /* outputs that fit into the scratch, with their scales (in whole K blocks) */
    size_t n_v = mote__arranged_size(m->kind, m->n_in) / 16, padded = (n_v + BLOCK_V - 1) / BLOCK_V * BLOCK_V, n_block_o = BLOCK_O;
    size_t floats = (padded + (m->kind == MOTE_W_MXFP4 ? n_v / 8 : 0)) * 16;
    while (n_block_o >= TILE_O && floats > MOTE_LINEAR_SCRATCH / n_block_o)
        n_block_o /= 2;
    if (n_rows <= 4 || n_block_o < TILE_O) {
        linear_few(m, o0, o1, xp, n_rows, ldxp, y, ldy);
        return;
    }
    for (size_t o = o0; o < o1; o += n_block_o)
        linear_block(m, o, o1 - o < n_block_o ? o1 - o : n_block_o, n_block_o, xp, n_rows, ldxp, y, ldy, scratch);
}
