/* Element formats: every code, every midpoint and its neighbours, saturation, NaN, denormals; BF16
 * over all codes. */
#include "test.h"

#include <float.h>
#include <math.h>

#include "num/formats.h"

/* The nearest finite code by exhaustive search in double, ties to the even code; shares nothing
 * with the code under test. The magnitude increases with the code. */
static uint8_t nearest(double x, double (*value)(int code), int last)
{
    int sign = signbit(x) != 0, best = 0;
    double a = fmin(fabs(x), 1000); /* keeps distances exact */
    for (int c = 1; c <= last; c++) {
        double d = fabs(value(c) - a), d0 = fabs(value(best) - a);
        if (d < d0 || (d == d0 && c % 2 == 0))
            best = c;
    }
    return (uint8_t)(best | sign * (last + (last == 7 ? 1 : 2)));
}

static double e2m1(int c)
{
    int e = c >> 1, m = c & 1;
    return e ? ldexp(1 + m / 2.0, e - 1) : m / 2.0;
}

static double e4m3(int c)
{
    int e = c >> 3, m = c & 7;
    return e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m, -9);
}

static void around(void (*check)(float), float x)
{
    check(x);
    check(nextafterf(x, INFINITY));
    check(nextafterf(x, -INFINITY));
}

static void check_e2m1(float x)
{
    for (int s = 0; s < 2; s++, x = -x)
        if (mote__e2m1_encode(x) != nearest(x, e2m1, 7))
            fail_msg("e2m1(%a) = %u, want %u", (double)x, mote__e2m1_encode(x),
                     nearest(x, e2m1, 7));
}

static void check_e4m3(float x)
{
    for (int s = 0; s < 2; s++, x = -x)
        if (mote__e4m3_encode(x) != nearest(x, e4m3, 0x7e))
            fail_msg("e4m3(%a) = %u, want %u", (double)x, mote__e4m3_encode(x),
                     nearest(x, e4m3, 0x7e));
}

static float anything(rnd *r)
{
    for (;;) {
        float x = mote__bits_f32((uint32_t)rnd_u64(r));
        if (isfinite(x))
            return x;
    }
}

static void test_e2m1(void **state)
{
    rnd r = { 1 };
    for (int c = 0; c < 8; c++) {
        assert_true(mote__e2m1_value[c] == e2m1(c) && mote__e2m1_value[c | 8] == -e2m1(c));
        assert_true(signbit(mote__e2m1_value[c | 8]));
        around(check_e2m1, mote__e2m1_value[c]);
        if (c < 7)
            around(check_e2m1, (float)((e2m1(c) + e2m1(c + 1)) / 2));
    }
    for (int c = 0; c < 16; c++)
        assert_int_equal(mote__e2m1_encode(mote__e2m1_value[c]), c);
    check_e2m1(FLT_MAX);
    check_e2m1(0x1p-149f);
    assert_int_equal(mote__e2m1_encode(INFINITY), 7);
    assert_int_equal(mote__e2m1_encode(-INFINITY), 15);
    assert_int_equal(mote__e2m1_encode(NAN), 0);
    assert_int_equal(mote__e2m1_encode(-NAN), 0);
    for (int i = 0; i < 200000; i++) {
        check_e2m1(anything(&r));
        check_e2m1(8 * rnd_unit(&r));
    }
}

static void test_e4m3(void **state)
{
    rnd r = { 2 };
    for (int c = 0; c < 0x7f; c++) {
        assert_true(mote__e4m3_value[c] == e4m3(c) && mote__e4m3_value[c | 0x80] == -e4m3(c));
        assert_true(signbit(mote__e4m3_value[c | 0x80]));
        assert_int_equal(mote__e4m3_encode(mote__e4m3_value[c]), c);
        assert_int_equal(mote__e4m3_encode(mote__e4m3_value[c | 0x80]), c | 0x80);
        around(check_e4m3, mote__e4m3_value[c]);
        if (c < 0x7e)
            around(check_e4m3, (float)((e4m3(c) + e4m3(c + 1)) / 2));
    }
    assert_true(isnan(mote__e4m3_value[0x7f]) && isnan(mote__e4m3_value[0xff]));
    around(check_e4m3, 464);
    check_e4m3(FLT_MAX);
    check_e4m3(0x1p-149f);
    assert_int_equal(mote__e4m3_encode(INFINITY), 0x7e);
    assert_int_equal(mote__e4m3_encode(-INFINITY), 0xfe);
    assert_int_equal(mote__e4m3_encode(NAN), 0x7f);
    assert_int_equal(mote__e4m3_encode(-NAN), 0x7f);
    for (int i = 0; i < 20000; i++) {
        check_e4m3(anything(&r));
        check_e4m3(500 * rnd_unit(&r));
        check_e4m3(0.02f * rnd_unit(&r));
    }
}

static void test_e8m0(void **state)
{
    for (int c = 0; c < 255; c++) {
        float x = mote__e8m0_decode((uint8_t)c);
        assert_true(x == ldexp(1, c - 127));
        assert_int_equal(mote__e8m0_encode(x), c);
    }
    assert_true(isnan(mote__e8m0_decode(255)));
    assert_int_equal(mote__e8m0_encode(INFINITY), 254);
    assert_int_equal(mote__e8m0_encode(0), 0);
    assert_int_equal(mote__e8m0_encode(0x1p-149f), 0);
}

static void test_bf16(void **state)
{
    rnd r = { 3 };
    for (uint32_t h = 0; h < 0x10000; h++) {
        float x = mote__bf16_decode((uint16_t)h);
        assert_int_equal(mote__f32_bits(x), h << 16);
        if (isnan(x)) {
            assert_int_equal(mote__bf16_encode(x), h | 0x40); /* made quiet */
            continue;
        }
        assert_int_equal(mote__bf16_encode(x), h);
        if ((h & 0x7fff) >= 0x7f7f)
            continue;
        /* the midpoint to the next magnitude goes to the even code, its neighbours to the nearer
         * one */
        uint32_t mid = h << 16 | 0x8000, even = h % 2 ? h + 1 : h;
        assert_int_equal(mote__bf16_encode(mote__bits_f32(mid)), even);
        assert_int_equal(mote__bf16_encode(mote__bits_f32(mid - 1)), h);
        assert_int_equal(mote__bf16_encode(mote__bits_f32(mid + 1)), h + 1);
    }
    assert_int_equal(mote__bf16_encode(FLT_MAX), 0x7f80);
    /* low payload: still NaN */
    assert_int_equal(mote__bf16_encode(mote__bits_f32(0x7f800001)) & 0x7fc0, 0x7fc0);
    for (int i = 0; i < 1000; i++) {
        float x = anything(&r);
        assert_true(mote__f32_bits(mote__bf16_round(x)) == (uint32_t)mote__bf16_encode(x) << 16);
    }
}

/* every half, against its value computed from sign, exponent and mantissa */
static void test_f16(void **state)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        int e = (int)(h >> 10 & 31), m = (int)(h & 0x3ff);
        float x = mote__f16_decode((uint16_t)h),
              want = e == 31 ? (m ? NAN : INFINITY)
                             : ldexpf((float)(e ? 1024 + m : m), (e ? e : 1) - 25);
        assert_true(isnan(want) ? isnan(x) : x == (h >> 15 ? -want : want));
        assert_true((signbit(x) != 0) == (h >> 15));
    }
}

static void test_pow2_ceil(void **state)
{
    rnd r = { 4 };
    for (int e = -126; e < 127; e++) {
        float p = ldexpf(1, e);
        assert_true(mote__pow2_ceil(p) == p);
        assert_true(mote__pow2_ceil(nextafterf(p, INFINITY)) == 2 * p);
        assert_true(mote__pow2_ceil(nextafterf(2 * p, 0)) == 2 * p);
        float x = p * (1.5f + 0.499f * rnd_unit(&r));
        assert_true(mote__pow2_ceil(x) == 2 * p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e2m1), cmocka_unit_test(test_e4m3), cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_bf16), cmocka_unit_test(test_f16),  cmocka_unit_test(test_pow2_ceil),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
