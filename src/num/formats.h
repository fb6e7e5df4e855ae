/* Scalar number formats: E2M1, E4M3, E8M0, BF16. These are the definitions; SIMD variants must give
 * the same bits.
 *
 *   E2M1  4 bits: sign, codes 0..7 = 0 .5 1 1.5 2 3 4 6
 *   E4M3  8 bits: sign, 4 exponent bits (bias 7), 3 mantissa bits; largest 448; no infinity; 0x7F
 *         and 0xFF are NaN
 *   E8M0  8 bits: b = 2^(b-127); 0xFF is NaN
 *   BF16  the upper half of an fp32
 *
 * Rounding: to nearest, ties to the even code; E2M1 saturates at 6, E4M3 at 448. NaN becomes 0x7F
 * in E4M3, 0 in E2M1 and a quiet NaN in BF16. */
#ifndef MOTE_NUM_FORMATS_H
#define MOTE_NUM_FORMATS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t mote__f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static inline float mote__bits_f32(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

extern const float mote__e2m1_value[16];  /* by code */
extern const float mote__e4m3_value[256]; /* by code */
/* Exact, including the denormal result of code 0. */
float mote__e8m0_decode(uint8_t code);

uint8_t mote__e2m1_encode(float x);
uint8_t mote__e4m3_encode(float x);
/* E8M0 code of a positive power of two; saturates to [0, 254]. */
uint8_t mote__e8m0_encode(float pow2);

static inline uint16_t mote__bf16_encode(float x)
{
    uint32_t u = mote__f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static inline float mote__bf16_decode(uint16_t h) { return mote__bits_f32((uint32_t)h << 16); }
static inline float mote__bf16_round(float x) { return mote__bf16_decode(mote__bf16_encode(x)); }

/* IEEE half precision; exact. Some Llama-style checkpoints have such weights. */
static inline float mote__f16_decode(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, e = h >> 10 & 31, m = h & 0x3ffu;
    if (e == 31)
        return mote__bits_f32(sign | 0x7f800000u | m << 13);
    if (e)
        return mote__bits_f32(sign | (e + 112) << 23 | m << 13);
    return mote__bits_f32(sign | mote__f32_bits((float)m * 0x1p-24f));
}

/* Smallest power of two >= x. x must be positive and normal. */
static inline float mote__pow2_ceil(float x)
{
    uint32_t u = mote__f32_bits(x);
    return mote__bits_f32(((u >> 23) + ((u & 0x7fffffu) != 0)) << 23);
}

#endif
