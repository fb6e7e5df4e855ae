/* Cache vector formats: equal to the NumPy reference on its vectors, idempotent, sizes, behaviour
 * for NaN, infinity and zeros. */
#include "test.h"

#include <float.h>
#include <math.h>

#include "num/formats.h"
#include "num/kvfmt.h"

static uint8_t *read_all(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    uint8_t *p = malloc(1 << 20);
    assert_non_null(p);
    *size = fread(p, 1, 1 << 20, f);
    fclose(f);
    return p;
}

static void test_reference(void **state)
{
    size_t size, at = 0, formats = 0;
    uint8_t *file = read_all(source_path("tests/data/num/kvfmt.bin"), &size);
    for (; at < size; formats++) {
        char name[17] = { 0 };
        uint32_t n;
        memcpy(name, file + at, 16);
        memcpy(&n, file + at + 16, 4);
        at += 20;
        const mote__kvfmt *f = mote__kvfmt_find(name, strlen(name));
        assert_non_null(f);
        size_t code_bytes = mote__kvfmt_code_bytes(f, n),
               scale_bytes = mote__kvfmt_scale_bytes(f, n);
        assert_true(at + 8 * n + code_bytes + scale_bytes <= size);
        float *x = malloc(4 * n), *back = malloc(4 * n);
        uint8_t *codes = malloc(code_bytes), *scales = malloc(scale_bytes + 1);
        memcpy(x, file + at, 4 * n);
        f->encode(codes, scales, x, n);
        at += 4 * n;
        for (size_t i = 0; i < scale_bytes; i++)
            if (scales[i] != file[at + code_bytes + i])
                fail_msg("%s: scale %zu is %u, want %u", name, i, scales[i],
                         file[at + code_bytes + i]);
        for (size_t i = 0; i < code_bytes; i++)
            if (codes[i] != file[at + i])
                fail_msg("%s: code byte %zu is %u, want %u", name, i, codes[i], file[at + i]);
        at += code_bytes + scale_bytes;
        f->decode(back, codes, scales, n);
        mote__kvfmt_round(f, x, n);
        for (size_t i = 0; i < n; i++) {
            float want;
            memcpy(&want, file + at + 4 * i, 4);
            if (mote__f32_bits(back[i]) != mote__f32_bits(want) ||
                mote__f32_bits(x[i]) != mote__f32_bits(want))
                fail_msg("%s: value %zu is %a, rounded in place %a, want %a", name, i,
                         (double)back[i], (double)x[i], (double)want);
        }
        at += 4 * n;
        free(x), free(back), free(codes), free(scales);
    }
    assert_int_equal(at, size);
    assert_int_equal(formats, MOTE_KV_FORMATS);
    free(file);
}

static void test_table(void **state)
{
    static const size_t bytes512[MOTE_KV_FORMATS] = { 288, 272, 272, 264, 260, 528, 1024, 2048 };
    for (int i = 0; i < MOTE_KV_FORMATS; i++) {
        const mote__kvfmt *f = &mote__kvfmts[i];
        assert_int_equal(f->id, i);
        assert_ptr_equal(mote__kvfmt_find(f->name, strlen(f->name)), f);
        assert_null(mote__kvfmt_find(f->name, strlen(f->name) - 1));
        assert_int_equal(mote__kvfmt_code_bytes(f, 512) + mote__kvfmt_scale_bytes(f, 512),
                         bytes512[i]);
    }
    assert_null(mote__kvfmt_find("", 0));
    assert_null(mote__kvfmt_find("fp4x", 4));
}

/* Decoded values encode to the same bytes again. With an E4M3 scale they encode to the same values:
 * the scale may halve while the codes double if the group's largest code is not 6, so values are
 * compared. */
static void test_idempotent(void **state)
{
    rnd r = { 7 };
    float x[256], y[256];
    for (int i = 0; i < MOTE_KV_FORMATS; i++)
        for (int round = 0; round < 200; round++) {
            const mote__kvfmt *f = &mote__kvfmts[i];
            for (int k = 0; k < 256; k++)
                x[k] = rnd_unit(&r) * rnd_unit(&r) * ldexpf(1, (int)rnd_below(&r, 20) - 10);
            mote__kvfmt_round(f, x, 256);
            memcpy(y, x, sizeof x);
            mote__kvfmt_round(f, y, 256);
            if (f->group && f->code_bits == 4 && f->id != MOTE_KV_MXFP4)
                /* E4M3 scales are rounded: a second pass may change values */
                continue;
            assert_memory_equal(x, y, sizeof x);
        }
}

/* The error of a value is at most half a step of its element at its scale. The scale is at most
 * what the group's largest value requires. */
static void test_error_bound(void **state)
{
    rnd r = { 8 };
    float x[128], y[128];
    for (int i = 0; i < MOTE_KV_FORMATS; i++)
        for (int round = 0; round < 200; round++) {
            const mote__kvfmt *f = &mote__kvfmts[i];
            float unit = ldexpf(1, (int)rnd_below(&r, 8) - 2);
            for (int k = 0; k < 128; k++)
                x[k] = rnd_unit(&r) * unit;
            memcpy(y, x, sizeof x);
            mote__kvfmt_round(f, y, 128);
            size_t g = f->group ? f->group : 1;
            for (size_t k = 0; k < 128; k++) {
                float amax = 0;
                for (size_t j = k / g * g; j < k / g * g + g; j++)
                    amax = fmaxf(amax, fabsf(x[j]));
                /* widest half step: E2M1 1/6 of the maximum (1/3 under a power-of-two scale, and
                 * 17/16 for the rounding of an E4M3 scale, whose saturation adds 1/16), E4M3 16/448
                 * (x 2), BF16 2^-9 relative */
                float bound = f->code_bits == 4
                                  ? (f->id == MOTE_KV_MXFP4 ? amax / 3
                                                            : amax * (17 / 96.f + 1 / 16.f))
                              : f->code_bits == 8  ? amax * 32 / 448
                              : f->code_bits == 16 ? fabsf(x[k]) * 0x1p-8f
                                                   : 0;
                if (!(fabsf(x[k] - y[k]) <= bound))
                    fail_msg("%s: %a became %a, bound %a", f->name, (double)x[k], (double)y[k],
                             (double)bound);
            }
        }
}

static void test_odd_inputs(void **state)
{
    float x[128], y[128];
    uint8_t codes[512], scales[8];
    for (int i = 0; i < MOTE_KV_FORMATS; i++) {
        const mote__kvfmt *f = &mote__kvfmts[i];
        f->encode(codes, scales, x, 0); /* nothing is written */
        f->decode(y, codes, scales, 0);
        /* a NaN affects only its own value */
        for (int k = 0; k < 128; k++)
            x[k] = k == 5 ? NAN : 1;
        mote__kvfmt_round(f, x, 128);
        for (int k = 0; k < 128; k++)
            if (k != 5 && fabsf(x[k] - 1) > 0.05f)
                fail_msg("%s: 1 beside a NaN became %g", f->name, (double)x[k]);
        assert_true(f->code_bits == 4 ? x[5] == 0 : isnan(x[5]));
        /* infinity saturates or is kept */
        for (int k = 0; k < 128; k++)
            x[k] = k == 5 ? INFINITY : k == 6 ? -INFINITY : 1;
        f->encode(codes, scales, x, 128);
        f->decode(y, codes, scales, 128);
        assert_true(y[5] > 1000 && y[6] == -y[5]);
        for (int k = 0; k < 128; k++)
            assert_false(isnan(y[k]));
        /* signs of zeros are kept */
        for (int k = 0; k < 128; k++)
            x[k] = k % 2 ? -0.f : 0.f;
        mote__kvfmt_round(f, x, 128);
        for (int k = 0; k < 128; k++)
            assert_true(x[k] == 0 && !signbit(x[k]) == (k % 2 == 0));
    }
    /* every pair of code byte and scale decodes to the product of their values */
    for (int c = 0; c < 256; c++)
        for (int s = 0; s < 256; s++) {
            uint8_t code[32], scale = (uint8_t)s;
            memset(code, c, sizeof code);
            float v[32], e8 = mote__e8m0_decode(scale);
            mote__kvfmts[MOTE_KV_FP8].decode(v, code, &scale, 32);
            assert_true(mote__f32_bits(v[31]) == mote__f32_bits(mote__e4m3_value[c] * e8) ||
                        isnan(v[31]));
            mote__kvfmts[MOTE_KV_MXFP4].decode(v, code, &scale, 32);
            assert_true(mote__f32_bits(v[0]) == mote__f32_bits(mote__e2m1_value[c & 15] * e8) ||
                        s == 255);
            assert_true(mote__f32_bits(v[1]) == mote__f32_bits(mote__e2m1_value[c >> 4] * e8) ||
                        s == 255);
            mote__kvfmts[MOTE_KV_FP4].decode(v, code, &scale, 16);
            assert_true(mote__f32_bits(v[15]) ==
                            mote__f32_bits(mote__e2m1_value[c >> 4] * mote__e4m3_value[s]) ||
                        isnan(v[15]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),  cmocka_unit_test(test_table),
        cmocka_unit_test(test_idempotent), cmocka_unit_test(test_error_bound),
        cmocka_unit_test(test_odd_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
