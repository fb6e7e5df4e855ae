/* Formats of cache vectors: a table with one row per format. docs/format-kv.md is the reference.
 *
 *   name          elements     scale                  floor of the maximum   bytes per 512 values
 *   fp4           E2M1 per 16  E4M3(amax/6)           6 x 2^-9               288
 *   mxfp4         E2M1 per 32  2^ceil(log2(amax/6))   6 x 2^-126             272
 *   fp4-32/64/128 E2M1, longer groups, else as fp4                           272 / 264 / 260
 *   fp8           E4M3 per 32  2^ceil(log2(amax/448)) 1e-4                   528
 *   bf16, f32     no scales                                                  1024 / 2048
 *
 * E2M1: two codes per byte, the even column in the low nibble. x / scale is an fp32 division. amax
 * is the group's largest |x|, at least the floor: amax / 6 for an E4M3 scale is an fp32 division;
 * amax / 6 and amax / 448 for a power-of-two scale are fp32 products with fp32(1/6), fp32(1/448).
 */
#ifndef MOTE_NUM_KVFMT_H
#define MOTE_NUM_KVFMT_H

#include <stddef.h>
#include <stdint.h>

typedef enum mote__kvfmt_id {
    MOTE_KV_FP4,
    MOTE_KV_MXFP4,
    MOTE_KV_FP4_32,
    MOTE_KV_FP4_64,
    MOTE_KV_FP4_128,
    MOTE_KV_FP8,
    MOTE_KV_BF16,
    MOTE_KV_F32,
    MOTE_KV_FORMATS
} mote__kvfmt_id;

typedef struct mote__kvfmt {
    mote__kvfmt_id id;
    const char *name;
    unsigned group;      /* values per scale; 0: no scales */
    unsigned code_bits;  /* per value: 4, 8, 16, 32 */
    const char *summary; /* for help texts */
    /* n values <-> n * code_bits / 8 bytes of codes and n / group bytes of scales; n is even and a
     * multiple of group. Decoding is exact; bf16 and f32 are little-endian. Formats without scales
     * ignore `scales`. These are the scalar definitions. */
    void (*encode)(uint8_t *codes, uint8_t *scales, const float *src, size_t n);
    void (*decode)(float *dst, const uint8_t *codes, const uint8_t *scales, size_t n);
} mote__kvfmt;

extern const mote__kvfmt mote__kvfmts[MOTE_KV_FORMATS];
/* The format of that name, or NULL. */
const mote__kvfmt *mote__kvfmt_find(const char *name, size_t name_bytes);

/* Bytes of the codes, and of the scales, of n values. */
static inline size_t mote__kvfmt_code_bytes(const mote__kvfmt *f, size_t n)
{
    return n * f->code_bits / 8;
}
static inline size_t mote__kvfmt_scale_bytes(const mote__kvfmt *f, size_t n)
{
    return f->group ? n / f->group : 0;
}

/* Quantise in place, x = decode(encode(x)); n as for encode. */
void mote__kvfmt_round(const mote__kvfmt *f, float *x, size_t n);

#endif
