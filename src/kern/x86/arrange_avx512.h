/* Arranging inputs with AVX-512: the same bytes as mote__arrange (kern.h, kern/lanes.h,
 * kern/fixed.h). */

/* x with the limits of inputs of scaled weights (kern.h) */
INLINE vf arrange_in_range(vf x)
{
    vf size = vf_abs(x);
    x = vf_if_less(size, vf_set(0x1p-80f), vf_zero(), x);
    return vf_if_less(size, vf_set(0x1p80f), x, vf_bits(vi_set(0x7fc00000)));
}
_Static_assert(MOTE_FX_RANGE == 80, "the constants above");

/* transpose the 128-bit parts of four vectors: part i of v[j] goes to part j of v[i] */
INLINE void transpose_parts(vi v[4])
{
    vi a = _mm512_shuffle_i32x4(v[0], v[1], 0x44), b = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
    vi c = _mm512_shuffle_i32x4(v[2], v[3], 0x44), d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

static void arrange_f32(float *dst, const float *x) { vf_store(dst, vf_load(x)); }

static void arrange_bf16(float *dst, const float *x)
{
    const vi even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    vf a = vf_load(x), b = vf_load(x + 16);
    vf_store(dst, _mm512_permutex2var_ps(a, even, b));
    vf_store(dst + 16, _mm512_permutex2var_ps(a, vi_add(even, vi_set(1)), b));
}

static void arrange_fp8(float *dst, const float *x)
{
    /* of 16 columns: the even ones of each half, then the odd ones, each in a 128-bit part */
    const vi split = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    vi v[4];
    UNROLL for (int i = 0; i < 4; i++)
        v[i] = _mm512_permutexvar_epi32(split, vi_bits(arrange_in_range(vf_load(x + 16 * i))));
    transpose_parts(v);
    UNROLL for (int i = 0; i < 4; i++) vi_store(dst + 16 * i, v[i]);
}

/* 128 columns: of every 8 (a word of codes) columns i and i + 4 go to vector i */
static void arrange_pairs(float *dst, const float *x)
{
    const vi across = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    vi v[4];
    UNROLL for (int m = 0; m < 4; m++)
    {
        vi p[2];
        UNROLL for (int k = 0; k < 2; k++)
        {
            vi b = vi_bits(vf_bf16(arrange_in_range(vf_load(x + 32 * m + 16 * k))));
            p[k] = vi_or(vi_srl(b, 16), _mm512_shuffle_i32x4(b, b, 0xb1));
        }
        v[m] = _mm512_permutexvar_epi32(across, _mm512_shuffle_i32x4(p[0], p[1], 0x88));
    }
    transpose_parts(v);
    UNROLL for (int i = 0; i < 4; i++) vi_store(dst + 16 * i, v[i]);
}

/* The integers of a group (0 if x is NULL); returns the value of the integer 1. */
INLINE float arrange_group(vi q[2], const float *x)
{
    const vf magic = vf_set(12582912); /* see kern/fixed.c */
    q[0] = q[1] = vi_zero();
    if (!x)
        return 0;
    vf a = vf_load(x), b = vf_load(x + 16);
    uint32_t e = _mm512_reduce_max_epu32(
                     _mm512_max_epu32(vi_bits(vf_abs(a)), vi_bits(vf_abs(b)))) >>
                 23;
    if (e >= 127 + MOTE_FX_RANGE)
        return NAN;
    e = e < 127 - MOTE_FX_RANGE ? 127 - MOTE_FX_RANGE : e;
    vf up = vf_bits(vi_set((int32_t)((127 + 127 + MOTE_FX_BITS - 1 - e) << 23)));
    q[0] = vi_sub(vi_bits(vf_add(vf_mul(a, up), magic)), vi_bits(magic));
    q[1] = vi_sub(vi_bits(vf_add(vf_mul(b, up), magic)), vi_bits(magic));
    return mote__bits_f32((e - (MOTE_FX_BITS - 1)) << 23);
}

static void arrange_fixed_chunk(uint8_t *to, const float *x, size_t n_groups)
{
    /* the columns of two words, limb by limb, first the even then the odd ones: 12 words */
    static const _Alignas(64) uint8_t limbs[64] = {
        0,  8,  16, 24, 1,  9,  17, 25, 2,  10, 18, 26, 4,  12, 20, 28,
        5,  13, 21, 29, 6,  14, 22, 30, 32, 40, 48, 56, 33, 41, 49, 57,
        34, 42, 50, 58, 36, 44, 52, 60, 37, 45, 53, 61, 38, 46, 54, 62,
    };
    const vi digits = vi_set(0x8080), from = vi_load(limbs);
    /* [half a group][word of 4][lane / 4] */
    vi row[2][4][4];
    int32_t offset[16];
    float scale[16];
    UNROLL for (int part = 0; part < 4; part++)
    {
        vi v[2][4];
        UNROLL for (int i = 0; i < 4; i++)
        {
            const size_t lane = (size_t)(part * 4 + i), group = mote__fx_group(lane);
            vi q[2];
            scale[lane] = arrange_group(q, group < n_groups ? x + group * 32 : NULL) / 2;
            offset[lane] = MOTE_FX_BIAS * _mm512_reduce_add_epi32(vi_add(q[0], q[1]));
            UNROLL for (int half = 0; half < 2; half++) v[half][i] = _mm512_permutexvar_epi8(
                from, _mm512_xor_si512(vi_add(q[half], digits), digits));
        }
        UNROLL for (int half = 0; half < 2; half++)
        {
            transpose_words(v[half]);
            UNROLL for (int i = 0; i < 4; i++) row[half][i][part] = v[half][i];
        }
    }
    UNROLL for (int half = 0; half < 2; half++) UNROLL for (int i = 0; i < 4; i++)
    {
        transpose_parts(row[half][i]);
        UNROLL for (int k = 0; k < 3; k++)
            vi_store(to + (half * 12 + k * 4 + i) * 64, row[half][i][k]);
    }
    memcpy(to + MOTE_FX_OFFSET, offset, sizeof offset);
    memcpy(to + MOTE_FX_SCALE, scale, sizeof scale);
}

static void arrange(mote__wkind kind, float *dst, const float *x, size_t n_in)
{
    typedef void step_fn(float *dst, const float *x);
    static const struct {
        size_t columns, floats;
        step_fn *step;
    } of[MOTE_W_KINDS] = {
        [MOTE_W_F32] = { 16, 16, arrange_f32 },
        [MOTE_W_BF16] = { 32, 32, arrange_bf16 },
        [MOTE_W_FP8] = { 64, 64, arrange_fp8 },
        [MOTE_W_MXFP4_BF16] = { 128, 64, arrange_pairs },
    };
    size_t k = 0;
    if (kind == MOTE_W_MXFP4) {
        for (uint8_t *to = (uint8_t *)dst; k < n_in; k += MOTE_FX_COLUMNS, to += MOTE_FX_BYTES)
            arrange_fixed_chunk(to, x + k,
                                (n_in - k < MOTE_FX_COLUMNS ? n_in - k : MOTE_FX_COLUMNS) / 32);
        return;
    }
    for (; n_in - k >= of[kind].columns; k += of[kind].columns, dst += of[kind].floats)
        of[kind].step(dst, x + k);
    if (k < n_in)
        mote__arrange(kind, dst, x + k, n_in - k);
}
