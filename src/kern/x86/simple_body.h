/* Norms, activations, residual copies and decoding of cache vectors; included once per instruction
 * set. */

/* the last vector may have fewer than VN lanes: the others compute on zeros and are not stored */
#define FOR_VECTORS(i, n) for (size_t i = 0, part; part = n - i < VN ? n - i : VN, i < n; i += VN)

static double mean_square(const float *x, size_t n)
{
    vf acc[HALVES];
    for (int h = 0; h < HALVES; h++)
        acc[h] = vf_zero();
    FOR_VECTORS(i, n)
    {
        vf v = vf_load_n(x + i, part);
        if (HALVES == 1 || i / VN % 2 == 0)
            acc[0] = vf_fma(v, v, acc[0]);
        else
            acc[HALVES - 1] = vf_fma(v, v, acc[HALVES - 1]);
    }
    float p[16];
    for (int h = 0; h < HALVES; h++)
        vf_store(p + h * VN, acc[h]);
    return n ? (double)lane_sum(p) / (double)n : 0;
}

static void rmsnorm(float *y, const float *x, const float *weight, size_t n, float eps)
{
    vf inv = vf_set((float)(1 / sqrt(mean_square(x, n) + (double)eps)));
    FOR_VECTORS(i, n)
    vf_store_n(y + i, vf_mul(vf_mul(vf_load_n(x + i, part), inv), vf_load_n(weight + i, part)),
               part);
}

INLINE vf vf_exp(vf x)
{
    vf z = vf_fma(x, vf_set(MOTE_EXP_LOG2E), vf_set(MOTE_EXP_MAGIC)),
       n = vf_sub(z, vf_set(MOTE_EXP_MAGIC));
    vf r = vf_fma(n, vf_set(-MOTE_EXP_LN2_LO), vf_fma(n, vf_set(-MOTE_EXP_LN2_HI), x));
    vf q = vf_fma(vf_set(MOTE_EXP_Q4), r, vf_set(MOTE_EXP_Q3));
    q = vf_fma(q, r, vf_set(MOTE_EXP_Q2));
    q = vf_fma(q, r, vf_set(MOTE_EXP_Q1));
    q = vf_fma(q, r, vf_set(MOTE_EXP_Q0));
    vf y = vf_add(vf_set(1), vf_fma(q, vf_mul(r, r), r));
    vi i = vi_from_f(n), half = vi_sra(i, 1);
    y = vf_mul(y, vf_bits(vi_sll(vi_add(half, vi_set(127)), 23)));
    y = vf_mul(y, vf_bits(vi_sll(vi_add(vi_sub(i, half), vi_set(127)), 23)));
    y = vf_if_less(x, vf_set(MOTE_EXP_LOW), vf_zero(), y);
    return vf_if_less(vf_set(MOTE_EXP_HIGH), x, vf_set(INFINITY), y);
}

static void exp_all(float *y, const float *x, size_t n)
{
    FOR_VECTORS(i, n)
    vf_store_n(y + i, vf_exp(vf_load_n(x + i, part)), part);
}

static void swiglu(float *y, const float *gate, const float *up, size_t n, float limit,
                   float weight)
{
    vf top = vf_set(limit), bottom = vf_set(-limit);
    FOR_VECTORS(i, n)
    {
        vf g = vf_load_n(gate + i, part), u = vf_load_n(up + i, part);
        if (limit > 0) {
            g = vf_min(top, g);
            u = vf_min(top, vf_max(bottom, u));
        }
        vf s = vf_div(g, vf_add(vf_set(1), vf_exp(vf_neg(g))));
        vf_store_n(y + i, vf_mul(vf_mul(s, u), vf_set(weight)), part);
    }
}

/* Rounding to E4M3 is an addition after which 3 fraction bits are left, and no bits below 2^-9. NaN
 * stays NaN and is ignored in the maximum of its group. */
static void round_fp8(float *y, const float *x, size_t n)
{
    enum { VECTORS = 32 / VN };
    const vi sign = vi_set((int32_t)0x80000000);
    for (size_t i = 0; i < n; i += 32) {
        vf v[VECTORS], most = vf_set(1e-4f);
        UNROLL for (int k = 0; k < VECTORS; k++)
        {
            v[k] = vf_load(x + i + k * VN);
            most = vf_max(vf_abs(v[k]), most);
        }
        float top = vf_greatest(most);
        float scale = mote__pow2_ceil((top < FLT_MAX ? top : FLT_MAX) * (1.f / 448.f));
        /* 1 / scale: exact */
        vf up = vf_set(mote__bits_f32((254u << 23) - mote__f32_bits(scale))), down = vf_set(scale);
        UNROLL for (int k = 0; k < VECTORS; k++)
        {
            vf q = vf_min(vf_set(448), vf_abs(vf_mul(v[k], up)));
            vf magnitude = vf_max(vf_bits(vi_and(vi_bits(q), vi_set(0x7f800000))), vf_set(0x1p-6f));
            vf magic = vf_bits(vi_add(vi_bits(magnitude), vi_set(20 << 23)));
            q = vf_mul(vf_sub(vf_add(q, magic), magic), down);
            vf_store(y + i + k * VN, vf_bits(vi_or(vi_bits(q), vi_and(vi_bits(v[k]), sign))));
        }
    }
}

/* ---- residual copies ---- */

static void collapse(float *x, const float *h, const float *mix, size_t n, size_t d)
{
    FOR_VECTORS(i, d)
    {
        vf sum = vf_mul(vf_set(mix[0]), vf_load_n(h + i, part));
        for (size_t j = 1; j < n; j++)
            sum = vf_add(sum, vf_mul(vf_set(mix[j]), vf_load_n(h + j * d + i, part)));
        vf_store_n(x + i, sum, part);
    }
}

static void expand(float *h, const float *y, const float *post, const float *comb, size_t n,
                   size_t d)
{
    /* the number of copies in the published model; other numbers use the scalar function */
    enum { N = 4 };
    if (n != N) {
        mote__expand_scalar(h, y, post, comb, n, d);
        return;
    }
    FOR_VECTORS(i, d)
    {
        vf old[N], out = vf_load_n(y + i, part);
        UNROLL for (size_t j = 0; j < N; j++) old[j] = vf_load_n(h + j * d + i, part);
        UNROLL for (size_t k = 0; k < N; k++)
        {
            vf mixed = vf_mul(vf_set(comb[k]), old[0]);
            UNROLL for (size_t j = 1; j < N; j++)
                mixed = vf_add(mixed, vf_mul(vf_set(comb[j * N + k]), old[j]));
            vf_store_n(h + k * d + i, vf_add(vf_mul(vf_set(post[k]), out), mixed), part);
        }
    }
}

/* ---- decoding ---- */

INLINE void decode_e2m1(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n,
                        const size_t group, const int power_of_two)
{
    for (size_t i = 0; i < n; i += group) {
        uint8_t code = scales[i / group];
        vf s = vf_set(power_of_two ? e8m0(code) : mote__e4m3_value[code]);
        UNROLL for (size_t j = i; j < i + group; j += 16)
        {
            vf v[HALVES];
            e2m1_expand16(v, codes + j / 2);
            UNROLL for (int h = 0; h < HALVES; h++) vf_store(dst + j + h * VN, vf_mul(v[h], s));
        }
    }
}

#define DECODE_E2M1(name, group, power_of_two)                                                   \
    static void decode_##name(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n) \
    {                                                                                            \
        decode_e2m1(dst, codes, scales, n, group, power_of_two);                                 \
    }
DECODE_E2M1(fp4, 16, 0)
DECODE_E2M1(mxfp4, 32, 1)
DECODE_E2M1(fp4_32, 32, 0)
DECODE_E2M1(fp4_64, 64, 0)
DECODE_E2M1(fp4_128, 128, 0)

static void decode_fp8(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    for (size_t i = 0; i < n; i += 32) {
        int nan = 0;
        for (size_t j = i; j < i + 32; j++)
            nan |= (codes[j] & 0x7f) == 0x7f;
        /* a scale that times 2^8 (E4M3_UNIT) overflows, or a NaN: plain loop */
        if (nan || scales[i / 32] > 246) {
            for (size_t j = i; j < i + 32; j++)
                dst[j] = mote__e4m3_value[codes[j]] * e8m0(scales[i / 32]);
            continue;
        }
        vf s = vf_bits(vi_set((scales[i / 32] + 8) << 23));
        UNROLL for (size_t j = i; j < i + 32; j += 16)
        {
            vf v[HALVES];
            e4m3_expand16(v, codes + j);
            UNROLL for (int h = 0; h < HALVES; h++) vf_store(dst + j + h * VN, vf_mul(v[h], s));
        }
    }
}

static void decode_bf16(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vf v[HALVES];
        bf16_expand16(v, codes + 2 * i);
        for (int h = 0; h < HALVES; h++)
            vf_store(dst + i + h * VN, v[h]);
    }
    for (; i < n; i++) {
        uint32_t u = (uint32_t)codes[2 * i] << 16 | (uint32_t)codes[2 * i + 1] << 24;
        memcpy(dst + i, &u, 4);
    }
}

static void decode_f32(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    if (n)
        memcpy(dst, codes, n * sizeof *dst);
}
