/* Encoding and decoding of cache vectors, format by format. Layouts, floors and rounding:
 * docs/format-kv.md.
 *
 * NaN and infinities are defined too: NaN is ignored in a group's maximum and becomes the element's
 * NaN (E4M3, BF16, F32) or 0 (E2M1); infinities count as FLT_MAX and become the largest element. */
#include "num/kvfmt.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "num/formats.h"

static float group_max(const float *x, size_t n, float floor)
{
    float m = floor;
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > m)
            m = fabsf(x[i]);
    return m < FLT_MAX ? m : FLT_MAX;
}

static void encode_e2m1(uint8_t *codes, const float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i += 2)
        codes[i / 2] = (uint8_t)(mote__e2m1_encode(x[i] / scale) |
                                 mote__e2m1_encode(x[i + 1] / scale) << 4);
}

static void decode_e2m1(float *x, const uint8_t *codes, size_t n, float scale)
{
    for (size_t i = 0; i < n; i += 2) {
        x[i] = mote__e2m1_value[codes[i / 2] & 15] * scale;
        x[i + 1] = mote__e2m1_value[codes[i / 2] >> 4] * scale;
    }
}

static void encode_fp4(uint8_t *codes, uint8_t *scales, const float *src, size_t n, size_t group)
{
    assert(n % group == 0);
    for (size_t i = 0; i < n; i += group) {
        /* the floor makes the scale at least 2^-9, the smallest E4M3 above 0 */
        uint8_t s = mote__e4m3_encode(group_max(src + i, group, 6 * 0x1p-9f) / 6.f);
        scales[i / group] = s;
        encode_e2m1(codes + i / 2, src + i, group, mote__e4m3_value[s]);
    }
}

static void decode_fp4(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n,
                       size_t group)
{
    for (size_t i = 0; i < n; i += group)
        decode_e2m1(dst + i, codes + i / 2, group, mote__e4m3_value[scales[i / group]]);
}

static void encode_mxfp4(uint8_t *codes, uint8_t *scales, const float *src, size_t n)
{
    assert(n % 32 == 0);
    for (size_t i = 0; i < n; i += 32) {
        float scale = mote__pow2_ceil(group_max(src + i, 32, 6 * 0x1p-126f) * (1.f / 6.f));
        scales[i / 32] = mote__e8m0_encode(scale);
        encode_e2m1(codes + i / 2, src + i, 32, scale);
    }
}

static void decode_mxfp4(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    for (size_t i = 0; i < n; i += 32)
        decode_e2m1(dst + i, codes + i / 2, 32, mote__e8m0_decode(scales[i / 32]));
}

static void encode_fp8(uint8_t *codes, uint8_t *scales, const float *src, size_t n)
{
    assert(n % 32 == 0);
    for (size_t i = 0; i < n; i += 32) {
        float scale = mote__pow2_ceil(group_max(src + i, 32, 1e-4f) * (1.f / 448.f));
        scales[i / 32] = mote__e8m0_encode(scale);
        for (size_t j = i; j < i + 32; j++)
            codes[j] = mote__e4m3_encode(src[j] / scale);
    }
}

static void decode_fp8(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = mote__e4m3_value[codes[i]] * mote__e8m0_decode(scales[i / 32]);
}

static void encode_bf16(uint8_t *codes, uint8_t *scales, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h = mote__bf16_encode(src[i]);
        codes[2 * i] = (uint8_t)h;
        codes[2 * i + 1] = (uint8_t)(h >> 8);
    }
}

static void decode_bf16(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = mote__bf16_decode((uint16_t)(codes[2 * i] | codes[2 * i + 1] << 8));
}

static void encode_f32(uint8_t *codes, uint8_t *scales, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = mote__f32_bits(src[i]);
        for (int b = 0; b < 4; b++)
            codes[4 * i + (size_t)b] = (uint8_t)(u >> 8 * b);
    }
}

static void decode_f32(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = codes + 4 * i;
        dst[i] = mote__bits_f32((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                (uint32_t)p[3] << 24);
    }
}

#define FP4(g)                                                                         \
    static void encode_fp4_##g(uint8_t *c, uint8_t *s, const float *x, size_t n)       \
    {                                                                                  \
        encode_fp4(c, s, x, n, g);                                                     \
    }                                                                                  \
    static void decode_fp4_##g(float *x, const uint8_t *c, const uint8_t *s, size_t n) \
    {                                                                                  \
        decode_fp4(x, c, s, n, g);                                                     \
    }
FP4(16)
FP4(32)
FP4(64)
FP4(128)

const mote__kvfmt mote__kvfmts[MOTE_KV_FORMATS] = {
    { MOTE_KV_FP4, "fp4", 16, 4, "E2M1, an E4M3 scale per 16 values (4.5 bits a value)",
      encode_fp4_16, decode_fp4_16 },
    { MOTE_KV_MXFP4, "mxfp4", 32, 4, "E2M1, a power-of-two scale per 32 values (4.25 bits)",
      encode_mxfp4, decode_mxfp4 },
    { MOTE_KV_FP4_32, "fp4-32", 32, 4, "E2M1, an E4M3 scale per 32 values (4.25 bits)",
      encode_fp4_32, decode_fp4_32 },
    { MOTE_KV_FP4_64, "fp4-64", 64, 4, "E2M1, an E4M3 scale per 64 values (4.125 bits)",
      encode_fp4_64, decode_fp4_64 },
    { MOTE_KV_FP4_128, "fp4-128", 128, 4, "E2M1, an E4M3 scale per 128 values (4.0625 bits)",
      encode_fp4_128, decode_fp4_128 },
    { MOTE_KV_FP8, "fp8", 32, 8, "E4M3, a power-of-two scale per 32 values (8.25 bits)", encode_fp8,
      decode_fp8 },
    { MOTE_KV_BF16, "bf16", 0, 16, "bfloat16 (16 bits)", encode_bf16, decode_bf16 },
    { MOTE_KV_F32, "f32", 0, 32, "IEEE single precision (32 bits)", encode_f32, decode_f32 },
};

const mote__kvfmt *mote__kvfmt_find(const char *name, size_t name_bytes)
{
    for (int i = 0; i < MOTE_KV_FORMATS; i++)
        if (strlen(mote__kvfmts[i].name) == name_bytes &&
            memcmp(mote__kvfmts[i].name, name, name_bytes) == 0)
            return &mote__kvfmts[i];
    return NULL;
}

void mote__kvfmt_round(const mote__kvfmt *f, float *x, size_t n)
{
    /* one group (or value) at a time, so that the packed form fits on the stack for any n */
    size_t step = f->group ? f->group : 1;
    uint8_t codes[128], scale[1];
    assert(mote__kvfmt_code_bytes(f, step) <= sizeof codes);
    for (size_t i = 0; i < n; i += step) {
        f->encode(codes, scale, x + i, step);
        f->decode(x + i, codes, scale, step);
    }
}
