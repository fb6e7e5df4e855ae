/* Every kernel of every variant that this CPU has against the scalar definition, bit for bit, on
 * random shapes and data; the sums of the definition against sums in double; exp against libm;
 * MOTE_CPU_MASK. */
#include "kern/guard.h"

#include <mote/mote.h>

#include "kern/kern.h"
#include "kern/fixed.h"
#include "kern/lanes.h"

enum { LEVELS = 3 };
static const mote__kern_ops *variants[LEVELS];
static int n_variants; /* variants[0] is scalar */

static int setup(void **state)
{
    mote_err err;
    assert_int_equal(mote__kern_init(&err), 0);
    for (int level = 0; level < LEVELS; level++)
        if (mote__kern_at(level))
            variants[n_variants++] = mote__kern_at(level);
    assert_true(n_variants >= 1);
    assert_null(mote__kern_at(LEVELS));
    assert_null(mote__kern_at(-1));
    assert_ptr_equal(mote__kern(), variants[n_variants - 1]);
    print_message("variants: up to %s\n", variants[n_variants - 1]->name);
    return 0;
}

/* lengths around the sizes at which kernels cut */
static size_t length(rnd *r, size_t most)
{
    static const size_t edge[] = { 0,  1,  2,  7,  8,   9,   15,  16,  17,  31,  32,
                                   33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512 };
    size_t n = rnd_below(r, 3) ? edge[rnd_below(r, sizeof edge / sizeof edge[0])]
                               : rnd_below(r, most + 1);
    return n < most ? n : most;
}

static rnd start(uint64_t seed)
{
    rnd r = { seed * 0x9E3779B97F4A7C15ull + 1 };
    for (int i = 0; i < 4; i++)
        rnd_u64(&r);
    return r;
}

static uint8_t scale_code(rnd *r, int wild)
{
    return wild ? (uint8_t)rnd_below(r, 256) : (uint8_t)(110 + rnd_below(r, 30));
}

/* ---- linear ---- */

typedef struct linear_case {
    mote__mat m;
    size_t n_rows, ldxp;
    uint8_t *data, *scale;
    float *x, *xp; /* rows of n_in, and arranged */
} linear_case;

static void make_linear(rnd *r, guard *g, linear_case *c, mote__wkind kind, size_t n_out,
                        size_t n_in, size_t n_rows, int style)
{
    size_t per_word = mote__columns_per_word(kind), bytes = n_out * n_in / per_word * 4;
    int wild = style == EXTREMES || style == SPECIALS;
    *c = (linear_case){ .m = { kind, n_out, n_in, NULL, NULL, 0, 0 }, .n_rows = n_rows };
    c->data = guard_alloc(g, bytes);
    fill_bytes(r, c->data, bytes);
    if (kind == MOTE_W_F32 || kind == MOTE_W_BF16) {
        float *w = malloc((n_out * n_in + 1) * sizeof *w);
        fill_floats(r, w, n_out * n_in, style);
        if (kind == MOTE_W_F32) {
            memcpy(c->data, w, bytes);
        } else {
            for (size_t i = 0; i < n_out * n_in; i++) {
                uint16_t h = mote__bf16_encode(w[i]);
                memcpy(c->data + 2 * i, &h, 2);
            }
        }
        free(w);
    }
    if (kind == MOTE_W_FP8) {
        if (style != SPECIALS || rnd_below(r, 2))
            for (size_t i = 0; i < bytes; i++)
                c->data[i] ^= (c->data[i] & 0x7f) == 0x7f; /* no NaN */
        c->m.scale_row0 = rnd_below(r, 70);
        size_t columns = (n_in + 31) / 32, rows = (c->m.scale_row0 + n_out + 31) / 32;
        c->m.scale_stride = columns + rnd_below(r, 3);
        c->scale = guard_alloc(g, rows ? (rows - 1) * c->m.scale_stride + columns : 0);
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < columns; k++)
                c->scale[i * c->m.scale_stride + k] = scale_code(r, wild);
    }
    if (kind >= MOTE_W_MXFP4) {
        size_t columns = n_in / 32;
        c->m.scale_stride = columns + rnd_below(r, 3);
        c->scale = guard_alloc(g, n_out ? (n_out - 1) * c->m.scale_stride + columns : 0);
        for (size_t i = 0; i < n_out; i++)
            for (size_t k = 0; k < columns; k++)
                c->scale[i * c->m.scale_stride + k] = scale_code(r, wild && rnd_below(r, 2));
    }
    if (style == ZEROS && rnd_below(r, 2))
        for (size_t i = 0; i < bytes; i++)
            c->data[i] &= kind >= MOTE_W_MXFP4 ? 0x88 : 0x80;
    c->m.data = c->data;
    c->m.scale = c->scale;
    c->ldxp = mote__arranged_size(kind, n_in);
    if (kind < MOTE_W_MXFP4)
        assert_true(c->ldxp >= n_in && c->ldxp % (16 * per_word) == 0 &&
                    c->ldxp < n_in + 16 * per_word);
    c->x = guard_floats(g, n_rows * n_in);
    c->xp = guard_floats(g, n_rows * c->ldxp);
    fill_floats(r, c->x, n_rows * n_in, style);
    for (size_t i = 0; i < n_rows; i++)
        mote__arrange(kind, c->xp + i * c->ldxp, c->x + i * n_in, n_in);
}

static double weight_of(const mote__mat *m, size_t o, size_t k)
{
    const uint8_t *p = m->data;
    float f;
    uint16_t h;
    switch (m->kind) {
    case MOTE_W_F32: memcpy(&f, p + (o * m->n_in + k) * 4, 4); return (double)f;
    case MOTE_W_BF16: memcpy(&h, p + (o * m->n_in + k) * 2, 2); return (double)mote__bf16_decode(h);
    case MOTE_W_FP8:
        return (double)mote__e4m3_value[p[o * m->n_in + k]] *
               (double)mote__e8m0_decode(
                   m->scale[(m->scale_row0 + o) / 32 * m->scale_stride + k / 32]);
    default:
        return (double)mote__e2m1_value[p[(o * m->n_in + k) / 2] >> 4 * (k % 2) & 15] *
               (double)mote__e8m0_decode(m->scale[o * m->scale_stride + k / 32]);
    }
}

static const char *const kind_name[MOTE_W_KINDS] = { "f32", "bf16", "fp8", "mxfp4", "mxfp4 pairs" };

static void test_linear(void **state)
{
    float *scratch = aligned_alloc(64, MOTE_LINEAR_SCRATCH * sizeof(float));
    for (uint64_t seed = 1; seed <= 1600; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        mote__wkind kind = (mote__wkind)rnd_below(&r, MOTE_W_KINDS);
        size_t unit = kind >= MOTE_W_MXFP4 ? 32 : mote__columns_per_word(kind);
        size_t n_in = (1 + length(&r, seed % 50 ? 700 : 9000)) / unit * unit,
               n_out = length(&r, 70);
        size_t n_rows = seed % 100 == 7    ? 190 + rnd_below(&r, 8)
                        : rnd_below(&r, 4) ? rnd_below(&r, 6)
                                           : rnd_below(&r, 20);
        int style = (int)rnd_below(&r, FLOAT_STYLES);
        linear_case c;
        make_linear(&r, &g, &c, kind, n_out, n_in, n_rows, style);
        size_t ldy = n_out + rnd_below(&r, 3), o0 = rnd_below(&r, n_out / 16 + 1) * 16;
        size_t o1 = rnd_below(&r, 2) ? n_out : o0 + rnd_below(&r, n_out - o0 + 1),
               n_y = n_rows * ldy;
        float *want = guard_floats(&g, n_y), *got = guard_floats(&g, n_y);
        for (size_t i = 0; i < n_y; i++)
            want[i] = got[i] = 12345;
        mote__kern_linear(variants[0], &c.m, o0, o1, c.xp, n_rows, c.ldxp, want, ldy, scratch);
        for (int v = 1; v < n_variants; v++) {
            for (size_t i = 0; i < n_y; i++)
                got[i] = 12345;
            mote__kern_linear(variants[v], &c.m, o0, o1, c.xp, n_rows, c.ldxp, got, ldy, scratch);
            check_same_f32(
                want, got, n_y,
                "linear/%s %s seed=%llu n_out=%zu [%zu,%zu) n_in=%zu rows=%zu ldy=%zu style=%s",
                variants[v]->name, kind_name[kind], (unsigned long long)seed, n_out, o0, o1, n_in,
                n_rows, ldy, style_name[style]);
        }
        /* Against a sum in double. Each of the n_in terms is rounded at most n_in/16 + 5 times;
         * MXFP4: n_in/512 + 7 times, including the integer and the scale, and each input is rounded
         * to 2^-22 of its group's largest. */
        if (style == NORMAL || style == ALTERNATING || style == ZEROS)
            for (size_t row = 0; row < n_rows; row++)
                for (size_t o = o0; o < o1; o++) {
                    double sum = 0, magnitude = 0, rounded = 0;
                    for (size_t k = 0; k < n_in; k++) {
                        float x = c.x[row * n_in + k];
                        double t = weight_of(&c.m, o, k) *
                                   (double)(kind == MOTE_W_MXFP4_BF16 ? mote__bf16_round(x) : x);
                        sum += t;
                        magnitude += fabs(t);
                        if (kind == MOTE_W_MXFP4) {
                            double top = 0x1p-80;
                            for (size_t i = k / 32 * 32; i < k / 32 * 32 + 32; i++)
                                top = fmax(top, fabs((double)c.x[row * n_in + i]));
                            rounded += fabs(weight_of(&c.m, o, k)) * top * 0x1p-22;
                        }
                    }
                    double bound = (double)(n_in / 16 + 13) * (double)FLT_EPSILON * magnitude +
                                   rounded;
                    if (!(fabs(sum - (double)want[row * ldy + o]) <= bound))
                        fail_msg("linear/scalar %s seed=%llu n_in=%zu [%zu,%zu] is %a, want %a "
                                 "within %a",
                                 kind_name[kind], (unsigned long long)seed, n_in, row, o,
                                 (double)want[row * ldy + o], sum, bound);
                }
        guard_free(&g);
    }
    free(scratch);
}

/* A matrix so wide that its decoded rows do not fit into the scratch. */
static void test_linear_wide(void **state)
{
    float *scratch = aligned_alloc(64, MOTE_LINEAR_SCRATCH * sizeof(float));
    for (int kind = 0; kind < MOTE_W_KINDS; kind++) {
        rnd r = start(77 + (uint64_t)kind);
        guard g = { .at_end = 1 };
        linear_case c;
        float want[7 * 5], got[7 * 5];
        make_linear(&r, &g, &c, (mote__wkind)kind, 5, kind == MOTE_W_MXFP4_BF16 ? 70016 : 40000, 7,
                    NORMAL);
        mote__kern_linear(variants[0], &c.m, 0, 5, c.xp, 7, c.ldxp, want, 5, scratch);
        for (int v = 1; v < n_variants; v++) {
            mote__kern_linear(variants[v], &c.m, 0, 5, c.xp, 7, c.ldxp, got, 5, scratch);
            check_same_f32(want, got, 35, "linear/%s %s wide", variants[v]->name, kind_name[kind]);
        }
        guard_free(&g);
    }
    free(scratch);
}

/* Pairs whose products would reveal an instruction that flushes denormals, or rounding of weights
 * to BF16: the smallest inputs with small scales and the largest with large scales, in sums that
 * cancel. */
static void test_pairs_limits(void **state)
{
    float *scratch = aligned_alloc(64, MOTE_LINEAR_SCRATCH * sizeof(float));
    for (uint64_t seed = 1; seed <= 600; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = 1 };
        linear_case c;
        int large = seed % 4 == 0;
        size_t n_in = 32 * (1 + rnd_below(&r, 9)), n_out = 1 + rnd_below(&r, 18),
               n_rows = 1 + rnd_below(&r, 8);
        make_linear(&r, &g, &c, MOTE_W_MXFP4_BF16, n_out, n_in, n_rows, NORMAL);
        /* one scale, or two adjacent ones */
        for (size_t o = 0; o < n_out; o++)
            for (size_t k = 0; k < n_in / 32; k++)
                c.scale[o * c.m.scale_stride + k] = (uint8_t)((large ? 249 : 85) + seed / 4 % 6 +
                                                              rnd_below(&r, 1 + seed % 2));
        for (size_t i = 0; i < n_rows * n_in; i++) {
            float size = (large ? 0x1p79f : 0x1p-80f) * (1 + (float)rnd_below(&r, 256) / 256);
            c.x[i] = rnd_below(&r, 2) ? size : -size;
        }
        for (size_t i = 0; i < n_rows; i++)
            mote__arrange(MOTE_W_MXFP4_BF16, c.xp + i * c.ldxp, c.x + i * n_in, n_in);
        float want[18 * 8], got[18 * 8];
        mote__kern_linear(variants[0], &c.m, 0, n_out, c.xp, n_rows, c.ldxp, want, n_out, scratch);
        for (int v = 1; v < n_variants; v++) {
            mote__kern_linear(variants[v], &c.m, 0, n_out, c.xp, n_rows, c.ldxp, got, n_out,
                              scratch);
            check_same_f32(want, got, n_out * n_rows, "linear/%s pairs seed=%llu",
                           variants[v]->name, (unsigned long long)seed);
        }
        guard_free(&g);
    }
    free(scratch);
}

/* every column is at the index of kern/lanes.h, no two share one, and the rest is zero */
static void test_arrange(void **state)
{
    for (int kind = 0; kind < MOTE_W_MXFP4; kind++)
        for (size_t n = 0; n < 300; n++) {
            float x[300], dst[512];
            size_t size = mote__arranged_size((mote__wkind)kind, n), zeros = 0;
            for (size_t k = 0; k < n; k++)
                x[k] = (float)(k + 1);
            for (size_t k = 0; k < 512; k++)
                dst[k] = -1;
            mote__arrange((mote__wkind)kind, dst, x, n);
            for (size_t k = 0; k < n; k++)
                assert_true(dst[mote__arranged_at((mote__wkind)kind, k)] == x[k]);
            for (size_t k = 0; k < size; k++)
                zeros += dst[k] == 0;
            assert_int_equal(zeros, size - n);
            assert_true(dst[size] == -1);
        }
    /* FP8: inputs that are too small become 0, inputs that are too large, and NaN, become NaN */
    const float odd[8] = { 0x1p-81f, -0x1.fffffep-81f, 0x1p-80f, 0x1.fffffep79f,
                           0x1p80f,  -INFINITY,        NAN,      -0.f };
    float dst[64];
    mote__arrange(MOTE_W_FP8, dst, odd, 8);
    for (size_t k = 0; k < 8; k++) {
        float got = dst[mote__arranged_at(MOTE_W_FP8, k)];
        assert_true(k >= 4 && k < 7    ? isnan(got)
                    : k == 2 || k == 3 ? got == odd[k]
                                       : mote__f32_bits(got) == 0);
    }
}

static void test_arrange_variants(void **state)
{
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        mote__wkind kind = (mote__wkind)rnd_below(&r, MOTE_W_KINDS);
        size_t unit = kind >= MOTE_W_MXFP4 ? 32 : mote__columns_per_word(kind),
               n = length(&r, 1600) / unit * unit;
        size_t bytes = mote__arranged_size(kind, n) * sizeof(float);
        float *x = guard_floats(&g, n);
        uint8_t *want = guard_alloc(&g, bytes), *got = guard_alloc(&g, bytes);
        int style = (int)rnd_below(&r, FLOAT_STYLES);
        fill_floats(&r, x, n, style);
        mote__arrange(kind, (float *)(void *)want, x, n);
        for (int v = 0; v < n_variants; v++) {
            fill_bytes(&r, got, bytes);
            variants[v]->arrange(kind, (float *)(void *)got, x, n);
            if (bytes && memcmp(want, got, bytes))
                fail_msg("arrange/%s %s seed=%llu n=%zu style=%s", variants[v]->name,
                         kind_name[kind], (unsigned long long)seed, n, style_name[style]);
        }
        guard_free(&g);
    }
}

/* Fixed point: integer times unit equals the input within half of 2^-21 of its group's largest
 * power of two */
static void test_fixed(void **state)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rnd r = start(seed);
        size_t n = 32 * (1 + rnd_below(&r, 40));
        int style = (int)rnd_below(&r, FLOAT_STYLES);
        float x[32 * 40];
        uint8_t *dst = malloc(mote__arranged_size(MOTE_W_MXFP4, n) * sizeof(float));
        fill_floats(&r, x, n, style);
        mote__arrange(MOTE_W_MXFP4, (float *)(void *)dst, x, n);
        for (size_t k = 0; k < n; k++) {
            const uint8_t *chunk = dst + k / MOTE_FX_COLUMNS * MOTE_FX_BYTES;
            size_t lane = k / 32 % 4 * 4 + k / 128 % 4, in = k % 32;
            const uint8_t *p = chunk + (in / 8 * 2 + in % 2) * 3 * 64 + lane * 4 + in % 8 / 2;
            double got = (int8_t)p[0] + (int8_t)p[64] * 256.0 + (int8_t)p[128] * 65536.0,
                   top = 0x1p-80;
            float unit;
            int finite = 1;
            memcpy(&unit, chunk + MOTE_FX_SCALE + lane * 4, 4);
            for (size_t i = k / 32 * 32; i < k / 32 * 32 + 32; i++) {
                top = fmax(top, fabs((double)x[i]));
                finite &= fabsf(x[i]) < 0x1p80f;
            }
            if (!finite)
                assert_true(isnan(unit) && got == 0);
            else
                assert_true(fabs(got * 2 * (double)unit - (double)x[k]) <=
                            exp2(floor(log2(top)) - 22));
        }
        free(dst);
    }
}

/* ---- elementwise and norms ---- */

static void test_elementwise(void **state)
{
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        size_t n = length(&r, 3000);
        int style = (int)rnd_below(&r, FLOAT_STYLES);
        float *a = guard_floats(&g, n), *b = guard_floats(&g, n), *want = guard_floats(&g, n),
              *got = guard_floats(&g, n);
        fill_floats(&r, a, n, style);
        int style_b = style == NORMAL ? NORMAL : (int)rnd_below(&r, FLOAT_STYLES);
        fill_floats(&r, b, n, style_b);
        if (rnd_below(&r, 2))
            for (size_t i = 0; i < n; i++)
                a[i] *= 100; /* beyond the range of exp */
        float eps = rnd_below(&r, 2) ? 1e-20f : 1e-6f,
              limit = rnd_below(&r, 3) ? 10 * rnd_unit(&r) : 0, weight = rnd_unit(&r);
        for (int v = 1; v < n_variants; v++) {
            const mote__kern_ops *s = variants[0], *k = variants[v];
#define CHECK(what, call_want, call_got)                                       \
    call_want;                                                                 \
    call_got;                                                                  \
    check_same_f32(want, got, n, what "/%s seed=%llu n=%zu style=%s", k->name, \
                   (unsigned long long)seed, n, style_name[style])
            CHECK("exp", s->exp(want, a, n), k->exp(got, a, n));
            CHECK("swiglu", s->swiglu(want, a, b, n, limit, weight),
                  k->swiglu(got, a, b, n, limit, weight));
            CHECK("rmsnorm", s->rmsnorm(want, a, b, n, eps), k->rmsnorm(got, a, b, n, eps));
            memcpy(got, a, n * sizeof *got);
            CHECK("rmsnorm in place", (void)0, k->rmsnorm(got, got, b, n, eps));
            double ms = s->mean_square(a, n), mk = k->mean_square(a, n);
            if (!(ms == mk || (isnan(ms) && isnan(mk))))
                fail_msg("mean_square/%s seed=%llu n=%zu: %a, want %a", k->name,
                         (unsigned long long)seed, n, mk, ms);
        }
        if (style == NORMAL && n) {
            double sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += (double)a[i] * (double)a[i];
            double got_ms = variants[0]->mean_square(a, n);
            assert_true(fabs(got_ms * (double)n - sum) <=
                        (double)(n / 16 + 5) * (double)FLT_EPSILON * sum);
            double inv = 1 / sqrt(got_ms + (double)eps);
            variants[0]->rmsnorm(want, a, b, n, eps);
            for (size_t i = 0; i < n; i++)
                if (!(fabs((double)want[i] - (double)a[i] * inv * (double)b[i]) <=
                      2 * (double)FLT_EPSILON * fabs((double)a[i] * inv * (double)b[i]) + 0x1p-148))
                    fail_msg("rmsnorm/scalar seed=%llu n=%zu [%zu]", (unsigned long long)seed, n,
                             i);
        }
        guard_free(&g);
    }
}

static void test_round_fp8(void **state)
{
    for (uint64_t seed = 1; seed <= 600; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        size_t n = length(&r, 2000) / 32 * 32;
        float *x = guard_floats(&g, n), *got = guard_floats(&g, n), *want = guard_floats(&g, n);
        fill_floats(&r, x, n, (int)rnd_below(&r, FLOAT_STYLES));
        /* some values midway between two grid points */
        for (size_t i = 0; i < n; i++)
            if (rnd_below(&r, 4) == 0)
                x[i] = ldexpf((float)rnd_below(&r, 64) - 32, (int)rnd_below(&r, 16) - 12);
        if (n)
            memcpy(want, x, n * sizeof *want);
        mote__kvfmt_round(&mote__kvfmts[MOTE_KV_FP8], want, n);
        for (int v = 0; v < n_variants; v++) {
            variants[v]->round_fp8(got, x, n);
            check_same_f32(want, got, n, "round_fp8/%s seed=%llu n=%zu", variants[v]->name,
                           (unsigned long long)seed, n);
            if (n)
                memcpy(got, x, n * sizeof *got);
            variants[v]->round_fp8(got, got, n);
            check_same_f32(want, got, n, "round_fp8/%s in place seed=%llu n=%zu", variants[v]->name,
                           (unsigned long long)seed, n);
        }
        guard_free(&g);
    }
}

/* every 97th float of the whole range, in units of the last place of the true result */
static void test_exp_accuracy(void **state)
{
    double worst = 0;
    float at = 0;
    for (uint32_t u = 0; u < 0xc2d00000u; u += 97) { /* to -104 */
        /* beyond 88.73: on to the negative ones */
        if (u == 0x42b17500u / 97 * 97 + 97)
            u = 0x80000000u / 97 * 97;
        float x = mote__bits_f32(u);
        double want = exp((double)x);
        if (!(fabsf(x) <= 104) || want > (double)FLT_MAX)
            continue;
        int e;
        frexp(want, &e);
        double ulp = ldexp(1, e - 24 < -149 ? -149 : e - 24),
               error = fabs((double)mote__exp_f32(x) - want) / ulp;
        if (error > worst) {
            worst = error;
            at = x;
        }
    }
    print_message("exp: worst error %.3f ulp, at %a\n", worst, (double)at);
    assert_true(worst <= 1.5);
    assert_true(mote__exp_f32(0) == 1 && mote__exp_f32(-0.f) == 1);
    assert_true(mote__exp_f32(-104.001f) == 0 && mote__exp_f32(-INFINITY) == 0 &&
                mote__exp_f32(-1e30f) == 0);
    assert_true(mote__exp_f32(88.74f) == INFINITY && mote__exp_f32(INFINITY) == INFINITY);
    assert_true(mote__exp_f32(88.7228f) < INFINITY && mote__exp_f32(88.7229f) == INFINITY);
    assert_true(mote__exp_f32(-103.9f) == 0x1p-149f && isnan(mote__exp_f32(NAN)));
}

/* silu(g) * u * weight in double, within a few roundings */
static void test_copies(void **state)
{
    for (uint64_t seed = 1; seed <= 600; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        size_t n = 1 + rnd_below(&r, MOTE_MAX_COPIES), d = length(&r, 300);
        int style = (int)rnd_below(&r, FLOAT_STYLES);
        float *h = guard_floats(&g, n * d), *y = guard_floats(&g, d), *post = guard_floats(&g, n),
              *comb = guard_floats(&g, n * n);
        float *want = guard_floats(&g, n * d), *got = guard_floats(&g, n * d);
        fill_floats(&r, h, n * d, style);
        fill_floats(&r, y, d, style);
        fill_floats(&r, post, n, NORMAL);
        fill_floats(&r, comb, n * n, NORMAL);
        float *sum = guard_floats(&g, d), *got_sum = guard_floats(&g, d);
        variants[0]->collapse(sum, h, post, n, d);
        memcpy(want, h, n * d * sizeof *h);
        variants[0]->expand(want, y, post, comb, n, d);
        for (int v = 1; v < n_variants; v++) {
            const char *name = variants[v]->name;
            variants[v]->collapse(got_sum, h, post, n, d);
            check_same_f32(sum, got_sum, d, "collapse/%s seed=%llu n=%zu d=%zu style=%s", name,
                           (unsigned long long)seed, n, d, style_name[style]);
            memcpy(got, h, n * d * sizeof *h);
            variants[v]->expand(got, y, post, comb, n, d);
            check_same_f32(want, got, n * d, "expand/%s seed=%llu n=%zu d=%zu style=%s", name,
                           (unsigned long long)seed, n, d, style_name[style]);
        }
        if (style == NORMAL)
            for (size_t k = 0; k < n; k++)
                for (size_t i = 0; i < d; i++) {
                    double exact = (double)post[k] * (double)y[i], size = fabs(exact);
                    for (size_t j = 0; j < n; j++) {
                        exact += (double)comb[j * n + k] * (double)h[j * d + i];
                        size += fabs((double)comb[j * n + k] * (double)h[j * d + i]);
                    }
                    assert_true(fabs((double)want[k * d + i] - exact) <=
                                (double)(n + 2) * (double)FLT_EPSILON * size);
                }
        guard_free(&g);
    }
}

static void test_swiglu_values(void **state)
{
    rnd r = start(5);
    float g[512], u[512], y[512];
    fill_floats(&r, g, 512, NORMAL);
    fill_floats(&r, u, 512, NORMAL);
    for (int i = 0; i < 512; i++) {
        g[i] *= 8;
        u[i] *= 8;
    }
    for (int clamped = 0; clamped < 2; clamped++) {
        variants[0]->swiglu(y, g, u, 512, clamped ? 10 : 0, 0.75f);
        for (int i = 0; i < 512; i++) {
            double gg = (double)g[i], uu = (double)u[i];
            if (clamped) {
                gg = fmin(gg, 10);
                uu = fmax(fmin(uu, 10), -10);
            }
            double want = gg / (1 + exp(-gg)) * uu * 0.75;
            assert_true(fabs((double)y[i] - want) <= 5 * (double)FLT_EPSILON * fabs(want));
        }
    }
}

/* ---- cache vectors, attention, indexer ---- */

static void test_decode(void **state)
{
    for (uint64_t seed = 1; seed <= 1600; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        const mote__kvfmt *f = &mote__kvfmts[rnd_below(&r, MOTE_KV_FORMATS)];
        size_t unit = f->group ? f->group : 2, n = length(&r, 1100) / unit * unit;
        uint8_t *codes = guard_alloc(&g, mote__kvfmt_code_bytes(f, n)),
                *scales = guard_alloc(&g, mote__kvfmt_scale_bytes(f, n));
        float *want = guard_floats(&g, n), *got = guard_floats(&g, n);
        fill_bytes(&r, codes, mote__kvfmt_code_bytes(f, n));
        fill_bytes(&r, scales, mote__kvfmt_scale_bytes(f, n));
        /* as encoded, instead of any bytes */
        if (rnd_below(&r, 2)) {
            fill_floats(&r, want, n, (int)rnd_below(&r, FLOAT_STYLES));
            f->encode(codes, scales, want, n);
        }
        f->decode(want, codes, scales, n);
        for (int v = 0; v < n_variants; v++) {
            variants[v]->decode[f->id](got, codes, scales, n);
            check_same_f32(want, got, n, "decode/%s %s seed=%llu n=%zu", variants[v]->name, f->name,
                           (unsigned long long)seed, n);
        }
        guard_free(&g);
    }
}

static void test_dots_mix(void **state)
{
    for (uint64_t seed = 1; seed <= 700; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        size_t heads = rnd_below(&r, 11), n = rnd_below(&r, 2) ? rnd_below(&r, 20) : length(&r, 64),
               dim = length(&r, 200);
        size_t ldq = dim + rnd_below(&r, 3), ldkv = dim + rnd_below(&r, 3),
               lds = n + rnd_below(&r, 3), lda = dim + rnd_below(&r, 3);
        int style = (int)rnd_below(&r, FLOAT_STYLES);
        float scale = rnd_unit(&r);
        /* the exact length up to the end of the last row */
#define ROWS(rows, ld, width) ((rows) ? ((rows)-1) * (ld) + (width) : 0)
        size_t n_q = ROWS(heads, ldq, dim), n_kv = ROWS(n, ldkv, dim), n_s = ROWS(heads, lds, n),
               n_a = ROWS(heads, lda, dim);
        float *q = guard_floats(&g, n_q), *kv = guard_floats(&g, n_kv),
              *keep = guard_floats(&g, heads);
        float *s_want = guard_floats(&g, n_s), *s_got = guard_floats(&g, n_s);
        float *a_from = guard_floats(&g, n_a), *a_want = guard_floats(&g, n_a),
              *a_got = guard_floats(&g, n_a);
        fill_floats(&r, q, n_q, style);
        fill_floats(&r, kv, n_kv, (int)rnd_below(&r, 2) ? style : NORMAL);
        fill_floats(&r, keep, heads, NORMAL);
        fill_floats(&r, a_from, n_a, style);
        fill_floats(&r, s_want, n_s, ZEROS);
        memcpy(s_got, s_want, n_s * sizeof(float));
        memcpy(a_want, a_from, n_a * sizeof(float));
        variants[0]->dots(s_want, lds, q, ldq, heads, kv, ldkv, n, dim, scale);
        variants[0]->mix(a_want, lda, keep, s_want, lds, heads, kv, ldkv, n, dim);
        for (int v = 1; v < n_variants; v++) {
            memcpy(a_got, a_from, n_a * sizeof(float));
            variants[v]->dots(s_got, lds, q, ldq, heads, kv, ldkv, n, dim, scale);
            check_same_f32(s_want, s_got, n_s, "dots/%s seed=%llu heads=%zu n=%zu dim=%zu style=%s",
                           variants[v]->name, (unsigned long long)seed, heads, n, dim,
                           style_name[style]);
            variants[v]->mix(a_got, lda, keep, s_want, lds, heads, kv, ldkv, n, dim);
            check_same_f32(a_want, a_got, n_a, "mix/%s seed=%llu heads=%zu n=%zu dim=%zu style=%s",
                           variants[v]->name, (unsigned long long)seed, heads, n, dim,
                           style_name[style]);
        }
        if (style == NORMAL)
            for (size_t h = 0; h < heads; h++) {
                for (size_t j = 0; j < n; j++) {
                    double sum = 0, magnitude = 0;
                    for (size_t d = 0; d < dim; d++) {
                        double t = (double)q[h * ldq + d] * (double)kv[j * ldkv + d];
                        sum += t;
                        magnitude += fabs(t);
                    }
                    double bound = (double)(dim / 16 + 6) * (double)FLT_EPSILON * magnitude *
                                   fabs((double)scale);
                    assert_true(fabs(sum * (double)scale - (double)s_want[h * lds + j]) <= bound);
                }
                for (size_t d = 0; d < dim; d++) {
                    double sum = (double)a_from[h * lda + d] * (double)keep[h],
                           magnitude = fabs(sum);
                    for (size_t j = 0; j < n; j++) {
                        double t = (double)s_want[h * lds + j] * (double)kv[j * ldkv + d];
                        sum += t;
                        magnitude += fabs(t);
                    }
                    assert_true(fabs(sum - (double)a_want[h * lda + d]) <=
                                (double)(n + 2) * (double)FLT_EPSILON * magnitude);
                }
            }
        guard_free(&g);
    }
}

static void test_soften(void **state)
{
    for (uint64_t seed = 1; seed <= 500; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        size_t heads = rnd_below(&r, 20), n = length(&r, 64), lds = n + rnd_below(&r, 3),
               n_s = ROWS(heads, lds, n);
        int style = rnd_below(&r, 2) ? NORMAL : (int)rnd_below(&r, FLOAT_STYLES),
            round = (int)rnd_below(&r, 2);
        float *from = guard_floats(&g, n_s),
              *s[2] = { guard_floats(&g, n_s), guard_floats(&g, n_s) };
        float *keep[2] = { guard_floats(&g, heads), guard_floats(&g, heads) };
        float *top[2] = { guard_floats(&g, heads), guard_floats(&g, heads) };
        double *sum[2] = { guard_alloc(&g, heads * sizeof(double)),
                           guard_alloc(&g, heads * sizeof(double)) };
        fill_floats(&r, from, n_s, style);
        for (int v = 0; v < n_variants; v++) {
            int i = v > 0;
            memcpy(s[i], from, n_s * sizeof(float));
            for (size_t h = 0; h < heads; h++) {
                top[i][h] = seed % 3 ? -1e30f : 0.5f;
                sum[i][h] = seed % 3 ? 0 : 1.25;
            }
            variants[v]->soften(s[i], lds, heads, n, keep[i], top[i], sum[i], round);
            check_same_f32(s[0], s[i], n_s, "soften/%s seed=%llu heads=%zu n=%zu style=%s",
                           variants[v]->name, (unsigned long long)seed, heads, n,
                           style_name[style]);
            check_same_f32(keep[0], keep[i], heads, "soften/%s keep seed=%llu", variants[v]->name,
                           (unsigned long long)seed);
            check_same_f32(top[0], top[i], heads, "soften/%s maximum seed=%llu", variants[v]->name,
                           (unsigned long long)seed);
            for (size_t h = 0; h < heads; h++)
                assert_true(sum[0][h] == sum[i][h] || (isnan(sum[0][h]) && isnan(sum[i][h])));
        }
        guard_free(&g);
    }
}

/* Scales of keys and of the query's groups: near each other, near except for a few, far apart,
 * arbitrary, or (keys) all equal (the first and last codes, and those around the limits of the fast
 * path). Code bytes: arbitrary, or all the largest, so that sums come closest to the range of their
 * integers. */
static void test_index_scores(void **state)
{
    static const size_t dims[] = { 32, 64, 96, 128, 128, 128, 160, 512, 544 };
    for (uint64_t seed = 1; seed <= 600; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        size_t dim = dims[rnd_below(&r, 9)],
               heads = rnd_below(&r, 8) ? rnd_below(&r, 12) : rnd_below(&r, 140);
        size_t tiles = rnd_below(&r, 10), groups = dim / 32;
        int style = rnd_below(&r, 2) ? NORMAL : (int)rnd_below(&r, FLOAT_STYLES),
            scales = (int)rnd_below(&r, 5);
        static const uint8_t edges[] = { 0,   1,   2,   12,  40,  102, 103, 104, 150,
                                         151, 152, 200, 230, 252, 253, 254, 255 };
        uint8_t edge = edges[rnd_below(&r, sizeof edges)];
        int largest = rnd_below(&r, 8) == 0;
        float *q = guard_floats(&g, heads * dim), *qs = guard_floats(&g, heads * groups),
              *w = guard_floats(&g, heads);
        int8_t *codes = guard_alloc(&g, heads * dim);
        int32_t *sums = guard_alloc(&g, heads * groups * 4);
        uint8_t *keys = guard_alloc(&g, tiles * dim * 8),
                *key_scales = guard_alloc(&g, tiles * groups * 16);
        float *want = guard_floats(&g, tiles * 16), *got = guard_floats(&g, tiles * 16);
        fill_floats(&r, q, heads * dim, style);
        for (size_t i = 0; largest && i < heads * dim; i++)
            q[i] = (rnd_below(&r, 64) ? 6 : -6) * (i / 32 % 3 ? 8 : 1);
        for (size_t i = 0; (scales == 2 || scales == 3) && i < heads * groups; i++) {
            float times = ldexpf(1,
                                 scales == 2 && rnd_below(&r, 8) ? 0 : (int)rnd_below(&r, 12) - 6);
            for (size_t c = 0; c < 32; c++)
                q[i * 32 + c] *= rnd_below(&r, 2) && scales == 3 ? 0 : times;
        }
        fill_floats(&r, w, heads, rnd_below(&r, 8) ? NORMAL : (int)rnd_below(&r, FLOAT_STYLES));
        mote__index_query_encode(codes, sums, qs, q, heads, dim);
        fill_bytes(&r, keys, tiles * dim * 8);
        if (largest)
            memset(keys, rnd_below(&r, 2) ? 0x77 : 0xff, tiles * dim * 8);
        for (size_t i = 0; i < tiles * groups * 16; i++)
            switch (scales) {
            case 0: key_scales[i] = (uint8_t)(120 + rnd_below(&r, 4)); break;
            case 1:
                key_scales[i] = (uint8_t)(120 + rnd_below(&r, rnd_below(&r, 300) ? 4 : 8));
                break;
            case 2: key_scales[i] = (uint8_t)(110 + rnd_below(&r, 30)); break;
            case 3: key_scales[i] = (uint8_t)rnd_below(&r, 256); break;
            default: key_scales[i] = edge;
            }
        mote__index_query query = { heads, dim, codes, sums, qs, w, (int)rnd_below(&r, 2) };
        /* the scalar kernel over all tiles as one run, the others over random runs, some of them
         * empty */
        mote__index_tiles whole = { keys, key_scales, tiles }, runs[24];
        size_t n_runs = 0;
        for (size_t t = 0; n_runs < 23 && (t < tiles || rnd_below(&r, 2));) {
            size_t n = rnd_below(&r, tiles - t + 1);
            runs[n_runs++] = (mote__index_tiles){ keys + t * dim * 8, key_scales + t * groups * 16,
                                                  n };
            t += n;
            if (n_runs == 22) {
                runs[n_runs++] = (mote__index_tiles){ keys + t * dim * 8,
                                                      key_scales + t * groups * 16, tiles - t };
                t = tiles;
            }
        }
        variants[0]->index_scores(want, &query, &whole, 1);
        for (int v = 1; v < n_variants; v++) {
            variants[v]->index_scores(got, &query, runs, n_runs);
            check_same_f32(
                want, got, tiles * 16,
                "index_scores/%s seed=%llu heads=%zu dim=%zu tiles=%zu bf16=%d style=%s scales=%d",
                variants[v]->name, (unsigned long long)seed, heads, dim, tiles, query.round_bf16,
                style_name[style], scales);
        }
        guard_free(&g);
    }
}

/* Codes times scales of an encoded query equal the MXFP4 values for any rescaling; a head whose
 * scales are within a factor of 8 has one scale. */
static void test_index_query(void **state)
{
    enum { DIM = 128, GROUPS = DIM / 32 };
    const mote__kvfmt *f = &mote__kvfmts[MOTE_KV_MXFP4];
    for (uint64_t seed = 1; seed <= 200; seed++) {
        rnd r = start(seed);
        float q[DIM], want[DIM], qs[GROUPS], group_scale[GROUPS];
        int8_t codes[DIM];
        int32_t sums[GROUPS];
        uint8_t packed[DIM / 2], scale[GROUPS];
        int span = (int)rnd_below(&r, 9), zeros = (int)rnd_below(&r, GROUPS * 2);
        fill_floats(&r, q, DIM, NORMAL);
        for (int i = 0; i < DIM; i++)
            q[i] = i / 32 == zeros ? 0 : ldexpf(q[i], (i / 32) % 2 ? span : 0);
        f->encode(packed, scale, q, DIM);
        f->decode(want, packed, scale, DIM);
        mote__index_query_encode(codes, sums, qs, q, 1, DIM);
        float least = INFINITY, most = 0;
        for (int g = 0; g < GROUPS; g++) {
            group_scale[g] = mote__e8m0_decode(scale[g]);
            if (g != zeros) {
                least = group_scale[g] < least ? group_scale[g] : least;
                most = group_scale[g] > most ? group_scale[g] : most;
            }
            int sum = 0;
            for (int c = 0; c < 32; c++) {
                int word = c / 8, in = c % 8, at = word * 8 + in % 2 * 4 + in / 2;
                assert_true((float)codes[g * 32 + at] * qs[g] * 2 == want[g * 32 + c]);
                sum += codes[g * 32 + at];
            }
            assert_int_equal(sums[g], sum);
        }
        for (int g = 1; g < GROUPS && most <= 8 * least; g++)
            assert_true(qs[g] == qs[0]);
    }
}

/* ---- top-k's passes ---- */

static void test_passes(void **state)
{
    static const float some[] = { 0, -0.f, 0.25f, -0.5f, 1, -INFINITY, INFINITY, 0x1p-149f };
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        rnd r = start(seed);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        size_t n = rnd_below(&r, 8) ? length(&r, 300) : rnd_below(&r, 3000),
               block = (size_t)1 << rnd_below(&r, 5);
        size_t n_blocks = (n + block - 1) / block,
               n_equal = rnd_below(&r, 3) ? rnd_below(&r, 40) : 0;
        int style = (int)rnd_below(&r, FLOAT_STYLES), few = (int)rnd_below(&r, 3) == 0;
        uint32_t first = (uint32_t)rnd_u64(&r);
        float *x = guard_floats(&g, n),
              t = few || !rnd_below(&r, 3) ? some[rnd_below(&r, 8)] : rnd_unit(&r), low[2], high[2];
        fill_floats(&r, x, n, style);
        for (size_t i = 0; few && i < n; i++)
            x[i] = some[rnd_below(&r, 8)];
        float *score[2] = { guard_floats(&g, n + MOTE_PACK_SLACK),
                            guard_floats(&g, n + MOTE_PACK_SLACK) };
        uint32_t *index[2] = { guard_alloc(&g, (n + MOTE_PACK_SLACK) * 4),
                               guard_alloc(&g, (n + MOTE_PACK_SLACK) * 4) };
        float *most[2] = { guard_floats(&g, n_blocks), guard_floats(&g, n_blocks) };
        size_t count = variants[0]->count_above(x, n, t);
        assert_int_equal(variants[0]->range_above(x, n, t, &low[0], &high[0]), count);
        assert_int_equal(variants[0]->take_above(score[0], index[0], x, n, first, t), count);
        variants[0]->block_maxima(most[0], x, n, block);
        for (int v = 1; v < n_variants; v++) {
            const char *name = variants[v]->name;
            unsigned long long s = seed;
            assert_int_equal(variants[v]->count_above(x, n, t), count);
            assert_int_equal(variants[v]->range_above(x, n, t, &low[1], &high[1]), count);
            check_same_f32(low, low + 1, 1, "range_above/%s low seed=%llu n=%zu", name, s, n);
            check_same_f32(high, high + 1, 1, "range_above/%s high seed=%llu n=%zu", name, s, n);
            assert_int_equal(variants[v]->take_above(score[1], index[1], x, n, first, t), count);
            check_same_f32(score[0], score[1], count, "take_above/%s seed=%llu n=%zu", name, s, n);
            assert_memory_equal(index[0], index[1], count * 4);
            variants[v]->block_maxima(most[1], x, n, block);
            check_same_f32(most[0], most[1], n_blocks, "block_maxima/%s seed=%llu n=%zu block=%zu",
                           name, s, n, block);
        }
        /* keep_above works in place, so each variant gets its own copy of the scores */
        size_t kept = 0;
        for (int v = 0; v < n_variants; v++) {
            float *into = score[v > 0];
            for (size_t i = 0; i < n; i++) {
                into[i] = x[i];
                index[v > 0][i] = first + (uint32_t)i;
            }
            size_t got = variants[v]->keep_above(into, index[v > 0], n, t, n_equal);
            kept = v ? kept : got;
            assert_int_equal(got, kept);
            check_same_f32(score[0], into, kept, "keep_above/%s seed=%llu n=%zu", variants[v]->name,
                           (unsigned long long)seed, n);
            assert_memory_equal(index[0], index[v > 0], kept * 4);
        }
        size_t equal = 0;
        for (size_t i = 0; i < n; i++)
            equal += x[i] == t;
        assert_int_equal(kept, count + (equal < n_equal ? equal : n_equal));
        guard_free(&g);
    }
}

/* Put entries into a tile, get them back, and compare scores with decoded query times decoded key
 * in double. */
static void test_index_meaning(void **state)
{
    enum { DIM = 128, HEADS = 5, N = 16 };
    rnd r = start(3);
    float q[HEADS * DIM], w[HEADS], qs[HEADS * DIM / 32], key[N][DIM], scores[N];
    int8_t codes[HEADS * DIM];
    int32_t sums[HEADS * DIM / 32];
    uint8_t tile_codes[DIM / 2 * 16], tile_scales[DIM / 32 * 16], packed[DIM / 2], scale[DIM / 32],
        back[DIM / 2], sback[DIM / 32];
    const mote__kvfmt *f = &mote__kvfmts[MOTE_KV_MXFP4];
    memset(tile_codes, 0xee, sizeof tile_codes);
    for (int e = N - 1; e >= 0; e--) {
        fill_floats(&r, key[e], DIM, NORMAL);
        f->encode(packed, scale, key[e], DIM);
        mote__index_tile_put(tile_codes, tile_scales, DIM, (size_t)e, packed, scale);
        f->decode(key[e], packed, scale, DIM);
        mote__index_tile_get(back, sback, DIM, (size_t)e, tile_codes, tile_scales);
        assert_memory_equal(back, packed, sizeof back);
        assert_memory_equal(sback, scale, sizeof sback);
        /* move one entry, or its half of the tile */
        uint8_t moved_codes[DIM / 2 * 16], moved_scales[DIM / 32 * 16];
        int n = e % 8 ? 1 : 8, to = (e + 8) % 16;
        mote__index_tile_move(moved_codes, moved_scales, (size_t)to, tile_codes, tile_scales,
                              (size_t)e, (size_t)n, DIM);
        for (int i = 0; i < n; i++) {
            uint8_t one[DIM / 2], one_scale[DIM / 32];
            mote__index_tile_get(one, one_scale, DIM, (size_t)(e + i), tile_codes, tile_scales);
            mote__index_tile_get(back, sback, DIM, (size_t)(to + i), moved_codes, moved_scales);
            assert_memory_equal(back, one, sizeof back);
            assert_memory_equal(sback, one_scale, sizeof sback);
        }
        /* the layout of docs/format-kv.md for word 3 */
        assert_memory_equal(tile_codes + (3 * 16 + e) * 4, packed + 12, 4);
    }
    fill_floats(&r, q, HEADS * DIM, NORMAL);
    fill_floats(&r, w, HEADS, NORMAL);
    mote__index_query_encode(codes, sums, qs, q, HEADS, DIM);
    mote__kvfmt_round(f, q, HEADS * DIM);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        mote__index_query query = { HEADS, DIM, codes, sums, qs, w, bf16 };
        for (int v = 0; v < n_variants; v++) {
            variants[v]->index_scores(scores, &query,
                                      &(mote__index_tiles){ tile_codes, tile_scales, 1 }, 1);
            for (int e = 0; e < N; e++) {
                double want = 0, magnitude = 0;
                for (int h = 0; h < HEADS; h++) {
                    double d = 0;
                    for (int c = 0; c < DIM; c++)
                        d += (double)q[h * DIM + c] * (double)key[e][c];
                    want += fmax(d, 0) * (double)w[h];
                    magnitude += fabs(d * (double)w[h]);
                }
                /* d is exact here (small integers); two BF16 roundings of 2^-8 a head and one of
                 * the sum */
                double bound = magnitude *
                               (bf16 ? 3 * 0x1p-8 * 1.01 : (HEADS + 1) * (double)FLT_EPSILON);
                if (!(fabs((double)scores[e] - want) <= bound))
                    fail_msg("index_scores/%s bf16=%d entry %d: %a, want %a", variants[v]->name,
                             bf16, e, (double)scores[e], want);
            }
        }
    }
}

/* ---- choice ---- */

static void test_mask(void **state)
{
    mote_err err;
    const char *had = getenv("MOTE_CPU_MASK");
    char *keep = had ? strdup(had) : NULL;
    setenv("MOTE_CPU_MASK", "avx512,bogus", 1);
    assert_int_equal(mote__kern_init(&err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "'bogus'"));
    assert_non_null(strstr(err.message, "MOTE_CPU_MASK"));
    setenv("MOTE_CPU_MASK", "avx", 1);
    assert_int_equal(mote__kern_init(&err), MOTE_EINVAL);
    setenv("MOTE_CPU_MASK", "scalar", 1); /* cannot be hidden */
    assert_int_equal(mote__kern_init(NULL), MOTE_EINVAL);
    setenv("MOTE_CPU_MASK", "avx2", 1); /* hides the levels above it too */
    assert_int_equal(mote__kern_init(&err), 0);
    assert_string_equal(mote__kern()->name, "scalar");
    assert_null(mote__kern_at(1));
    assert_null(mote__kern_at(2));
    setenv("MOTE_CPU_MASK", "avx512", 1);
    assert_int_equal(mote__kern_init(&err), 0);
    assert_string_not_equal(mote__kern()->name, "avx512");
    setenv("MOTE_CPU_MASK", "avx512,avx2", 1);
    assert_int_equal(mote__kern_init(&err), 0);
    assert_string_equal(mote__kern()->name, "scalar");
    setenv("MOTE_CPU_MASK", "", 1);
    assert_int_equal(mote__kern_init(&err), 0);
    unsetenv("MOTE_CPU_MASK");
    assert_int_equal(mote__kern_init(&err), 0);
    if (keep)
        setenv("MOTE_CPU_MASK", keep, 1);
    free(keep);
    assert_int_equal(mote__kern_init(&err), 0);
    assert_ptr_equal(mote__kern(), variants[n_variants - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_wide),
        cmocka_unit_test(test_pairs_limits),
        cmocka_unit_test(test_arrange),
        cmocka_unit_test(test_arrange_variants),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_round_fp8),
        cmocka_unit_test(test_exp_accuracy),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_swiglu_values),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_dots_mix),
        cmocka_unit_test(test_soften),
        cmocka_unit_test(test_index_scores),
        cmocka_unit_test(test_index_query),
        cmocka_unit_test(test_index_meaning),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_mask),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
