/* MXFP4 linears: fixed-point inputs, and the scalar definition of a product. */
#include "kern/fixed.h"

#include <math.h>
#include <string.h>

#include "kern/lanes.h"
#include "num/formats.h"

/* Convert 32 columns to integers q; returns the value of the integer 1. If an input is a NaN or
 * 2^MOTE_FX_RANGE or more, all q are 0 and the result is NaN. */
static float quantise(int32_t q[32], const float *x)
{
    /* v + MAGIC has the integer nearest to v (ties to even) in its low bits, for |v| <= 2^22 */
    const float MAGIC = 12582912;
    uint32_t top = 0;
    for (int k = 0; k < 32; k++) {
        uint32_t bits = mote__f32_bits(x[k]) & 0x7fffffff;
        top = bits > top ? bits : top;
    }
    uint32_t e = top >> 23;
    if (e >= 127 + MOTE_FX_RANGE) {
        memset(q, 0, 32 * sizeof *q);
        return NAN;
    }
    e = e < 127 - MOTE_FX_RANGE ? 127 - MOTE_FX_RANGE : e;
    /* 2^(21 - exponent): exact, and no overflow */
    float up = mote__bits_f32((127 + 127 + MOTE_FX_BITS - 1 - e) << 23);
    for (int k = 0; k < 32; k++)
        q[k] = (int32_t)(mote__f32_bits(x[k] * up + MAGIC) - mote__f32_bits(MAGIC));
    return mote__bits_f32((e - (MOTE_FX_BITS - 1)) << 23);
}

void mote__fx_arrange(void *dst, const float *x, size_t n_in)
{
    for (size_t k = 0; k < n_in; k += MOTE_FX_COLUMNS) {
        uint8_t *to = (uint8_t *)dst + k / MOTE_FX_COLUMNS * MOTE_FX_BYTES;
        if (n_in - k < MOTE_FX_COLUMNS)
            memset(to, 0, MOTE_FX_BYTES);
        for (size_t lane = 0; lane < MOTE_FX_GROUPS; lane++) {
            size_t first = k + mote__fx_group(lane) * 32;
            if (first >= n_in)
                continue;
            int32_t q[32], sum = 0;
            float unit = quantise(q, x + first) / 2;
            for (int i = 0; i < 32; i++) {
                sum += q[i];
                /* bytes 0, 1, 2 are now signed digits in base 256 */
                q[i] = (q[i] + 0x8080) ^ 0x8080;
            }
            for (size_t v = 0; v < 8; v++) { /* word * 2 + odd */
                const uint32_t *c = (const uint32_t *)(const void *)q + v / 2 * 8 + v % 2;
                for (size_t limb = 0; limb < MOTE_FX_LIMBS; limb++) {
                    const unsigned s = 8 * (unsigned)limb;
                    uint32_t four = (c[0] >> s & 255) | (c[2] >> s & 255) << 8 |
                                    (c[4] >> s & 255) << 16 | (c[6] >> s & 255) << 24;
                    memcpy(to + (v * MOTE_FX_LIMBS + limb) * 64 + lane * 4, &four, 4);
                }
            }
            sum *= MOTE_FX_BIAS;
            memcpy(to + MOTE_FX_OFFSET + lane * 4, &sum, 4);
            memcpy(to + MOTE_FX_SCALE + lane * 4, &unit, 4);
        }
    }
}

/* The integer of column k of partial sum `lane`, from its limbs. */
static int32_t integer_at(const uint8_t *chunk, size_t lane, size_t k)
{
    const uint8_t *p = chunk + (k / 8 * 2 + k % 2) * MOTE_FX_LIMBS * 64 + lane * 4 + k % 8 / 2;
    return (int8_t)p[0] + (int8_t)p[64] * 256 + (int8_t)p[128] * 65536;
}

float mote__fx_dot(const mote__mat *w, size_t o, const void *xp)
{
    const uint8_t *row = w->data + o * (w->n_in / 2), *scale = w->scale + o * w->scale_stride;
    float p[MOTE_LANES] = { 0 };
    for (size_t first = 0; first < w->n_in; first += MOTE_FX_COLUMNS) {
        const uint8_t *chunk = (const uint8_t *)xp + first / MOTE_FX_COLUMNS * MOTE_FX_BYTES;
        for (size_t lane = 0; lane < MOTE_LANES; lane++) {
            size_t group = first / 32 + mote__fx_group(lane);
            int32_t sum = 0;
            float unit;
            if (group >= w->n_in / 32)
                continue;
            for (size_t k = 0; k < 32; k++)
                sum += (int32_t)(2 *
                                 mote__e2m1_value[row[group * 16 + k / 2] >> 4 * (k % 2) & 15]) *
                       integer_at(chunk, lane, k);
            memcpy(&unit, chunk + MOTE_FX_SCALE + lane * 4, 4);
            p[lane] = fmaf((float)sum, mote__e8m0_decode(scale[group]) * unit, p[lane]);
        }
    }
    return mote__lane_tree(p);
}
