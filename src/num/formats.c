/* The element formats, one value at a time: tables of the value of each code, and rounding to a
 * code. num/kvfmt.c combines elements and scales to rows. */
#include "num/formats.h"

#include <math.h>

const float mote__e2m1_value[16] = { 0,    .5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6 };

/* Code = sign, e, m: e == 0 ? m * 2^-9 : (8 + m) * 2^(e - 10); e = 15, m = 7 is NaN. The entries
 * are products with powers of two, which the compiler evaluates exactly. */
#define ROW(s, unit)                                                                     \
    (s) * 8 * (unit), (s)*9 * (unit), (s)*10 * (unit), (s)*11 * (unit), (s)*12 * (unit), \
        (s)*13 * (unit), (s)*14 * (unit)
#define FULL(s, unit) ROW(s, unit), (s)*15 * (unit)
#define HALF(s)                                                                                   \
    (s) * 0x0p-9f, (s)*0x1p-9f, (s)*0x2p-9f, (s)*0x3p-9f, (s)*0x4p-9f, (s)*0x5p-9f, (s)*0x6p-9f,  \
        (s)*0x7p-9f, FULL(s, 0x1p-9f), FULL(s, 0x1p-8f), FULL(s, 0x1p-7f), FULL(s, 0x1p-6f),      \
        FULL(s, 0x1p-5f), FULL(s, 0x1p-4f), FULL(s, 0x1p-3f), FULL(s, 0x1p-2f), FULL(s, 0x1p-1f), \
        FULL(s, 0x1p0f), FULL(s, 0x1p1f), FULL(s, 0x1p2f), FULL(s, 0x1p3f), FULL(s, 0x1p4f),      \
        ROW(s, 0x1p5f), NAN
const float mote__e4m3_value[256] = { HALF(1.f), HALF(-1.f) };

float mote__e8m0_decode(uint8_t code)
{
    /* 2^(code-127) is the exponent field itself; code 0 is the denormal 2^-127 and 255 a quiet NaN:
     * both are the field with the top mantissa bit set. */
    uint32_t top = code == 0 || code == 255 ? 0x400000u : 0;
    return mote__bits_f32((uint32_t)code << 23 | top);
}

uint8_t mote__e2m1_encode(float x)
{
    float a = fabsf(x);
    if (isnan(x))
        return 0;
    /* the seven midpoints; at a midpoint the even code is chosen, so every second comparison
     * includes equality */
    int code = (a > .25f) + (a >= .75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) +
               (a > 5.f);
    return (uint8_t)(code | (signbit(x) ? 8 : 0));
}

uint8_t mote__e4m3_encode(float x)
{
    uint32_t u = mote__f32_bits(x), a = u & 0x7fffffffu, sign = u >> 24 & 0x80;
    if (a > 0x7f800000u)
        return 0x7f;
    if (a >= 0x43e00000u) /* 448 */
        return (uint8_t)(sign | 0x7e);
    /* below 2^-6 values are multiples of 2^-9; x * 512 is exact or far below 1/2 */
    if (a < 0x3c800000u) {
        /* the addition rounds to an integer, ties to even */
        float q = mote__bits_f32(a) * 512.f + 0x1p23f;
        return (uint8_t)(sign | (mote__f32_bits(q) & 0xf));
    }
    /* drop 20 mantissa bits, ties to even; a carry increments the exponent */
    a = (a + 0x7ffffu + (a >> 20 & 1)) >> 20;
    return (uint8_t)(sign | (a - (120u << 3))); /* bias 127 -> 7 */
}

uint8_t mote__e8m0_encode(float pow2)
{
    uint32_t field = mote__f32_bits(pow2) >> 23 & 0xff;
    return (uint8_t)(field == 255 ? 254 : field);
}
