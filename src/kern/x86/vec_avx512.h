/* The vector functions that the bodies in this folder are written in, for AVX-512: 16 lanes.
 * vec_avx2.h has the same functions with 8 lanes. */
#ifndef MOTE_KERN_X86_VEC_H
#define MOTE_KERN_X86_VEC_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VN = 16, HALVES = 1 };    /* lanes of a vector; vectors that make 16 lanes */
enum { TILE_O = 4, TILE_R = 6 }; /* register tile: 24 sums, 6 + 1 operands */
/* MXFP4: 8 outputs and rows times 3 limbs, 4 + 1 operands */
enum { MX_O = 4, MX_R = 2, MX_MANY_FROM = 5 };
enum { MIX_H = 4, MIX_V = 4 }; /* heads times vectors of mix */
enum { FEW_ROWS = 8 };         /* rows whose sums stay in registers */

typedef __m512 vf;
typedef __m512i vi;

#define INLINE static inline __attribute__((always_inline))

INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
/* The first n lanes (n <= VN): memory beyond them is not accessed, and the other lanes are loaded
 * as 0. */
INLINE vf vf_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
INLINE void vf_store_n(float *p, vf v, size_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
/* Keep v in a register from here on. Compilers fold a load into each use of it, and load bandwidth
 * is the first limit. */
INLINE vf vf_keep(vf v)
{
    __asm__("" : "+v"(v));
    return v;
}
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
/* The operands are never swapped: if one is NaN, or both are zeros, the result is b. */
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_neg(vf a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.f)); }
/* The greatest lane; v has no NaN. */
INLINE float vf_greatest(vf v) { return _mm512_reduce_max_ps(v); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
/* a < b ? v : w per lane; w for NaN */
INLINE vf vf_if_less(vf a, vf b, vf v, vf w)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), w, v);
}

/* Bit i: lane i of a is below lane i of b; 0 for NaN. */
INLINE unsigned vf_less_mask(vf a, vf b) { return (unsigned)_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE unsigned vf_equal_mask(vf a, vf b) { return (unsigned)_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
/* The lanes in the mask, packed to the front; the others are unspecified. */
INLINE vf vf_pack(vf v, unsigned mask) { return _mm512_maskz_compress_ps((__mmask16)mask, v); }

INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE vi vi_load_n(const void *p, size_t n)
{
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p);
}
INLINE void vi_store(void *p, vi v) { _mm512_storeu_si512(p, v); }
INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi vi_set8(int x) { return _mm512_set1_epi8((char)x); }
INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
#define vi_sll(a, n) _mm512_slli_epi32(a, n)
#define vi_srl(a, n) _mm512_srli_epi32(a, n)
#define vi_sra(a, n) _mm512_srai_epi32(a, n)
INLINE vi vi_max_u8(vi a, vi b) { return _mm512_max_epu8(a, b); }
/* within 128 bits */
INLINE vi vi_unpack_lo32(vi a, vi b) { return _mm512_unpacklo_epi32(a, b); }
INLINE vi vi_unpack_hi32(vi a, vi b) { return _mm512_unpackhi_epi32(a, b); }
INLINE vi vi_unpack_lo64(vi a, vi b) { return _mm512_unpacklo_epi64(a, b); }
INLINE vi vi_unpack_hi64(vi a, vi b) { return _mm512_unpackhi_epi64(a, b); }
INLINE vi vi_keep(vi v)
{
    __asm__("" : "+v"(v));
    return v;
}
INLINE vi vi_count(uint32_t from)
{
    return vi_add(vi_set((int32_t)from),
                  _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
INLINE vi vi_bits(vf v) { return _mm512_castps_si512(v); }
INLINE vf vf_bits(vi v) { return _mm512_castsi512_ps(v); }
INLINE vi vi_from_f(vf v) { return _mm512_cvtps_epi32(v); }
INLINE vf vf_from_i(vi v) { return _mm512_cvtepi32_ps(v); }
/* Round to BF16; NaN becomes quiet. */
INLINE vf vf_bf16(vf v)
{
    vi u = vi_bits(v), r = vi_add(vi_add(u, vi_set(0x7fff)), vi_and(vi_srl(u, 16), vi_set(1)));
    vi q = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u, vi_set(0x400000));
    return vf_bits(vi_and(q, vi_set((int32_t)0xffff0000)));
}

/* Sum of the 16 partial sums at p by the tree of kern.h. */
INLINE float lane_sum(const float *p)
{
    __m512 v = _mm512_loadu_ps(p);
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

/* lane_sum of n vectors, n <= 16, of which sum i is stored to to[lane_sums_at(i)]. Each step folds
 * two vectors into one. */
INLINE int lane_sums_at(int i) { return i % 4 * 4 + i / 4; }
INLINE void lane_sums(float to[16], vf v[16][HALVES], const int n)
{
    vf s[16];
    for (int i = 0; i < 16; i++)
        s[i] = v[i < n ? i : 0][0];
    for (int i = 0; 2 * i < n; i++)
        s[i] = vf_add(_mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0x44),
                      _mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0xee));
    for (int i = 0; 4 * i < n; i++)
        s[i] = vf_add(_mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0x88),
                      _mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0xdd));
    for (int i = 0; 8 * i < n; i++) {
        __m512d a = _mm512_castps_pd(s[2 * i]), b = _mm512_castps_pd(s[2 * i + 1]);
        s[i] = vf_add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                      _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    vf_store(to, vf_add(_mm512_shuffle_ps(s[0], s[1], 0x88), _mm512_shuffle_ps(s[0], s[1], 0xdd)));
}

/* The E2M1 value of the lowest nibble of each word; a permute uses only four bits of the index. */
INLINE vf vf_e2m1(vi v)
{
    const __m512 table = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3,
                                        -4, -6);
    return _mm512_permutexvar_ps(v, table);
}

/* 16 E2M1 values from 8 bytes: nibbles 2j and 2j + 1 of the 64 bits go to the low bytes of words 2j
 * and 2j + 1 (bits above the fourth of a word are ignored). */
INLINE void e2m1_expand16(vf out[HALVES], const uint8_t *codes)
{
    const __m512i from = _mm512_setr_epi64(0x0000000400000000, 0x0000000c00000008,
                                           0x0000001400000010, 0x0000001c00000018,
                                           0x0000002400000020, 0x0000002c00000028,
                                           0x0000003400000030, 0x0000003c00000038);
    int64_t bits;
    memcpy(&bits, codes, 8);
    out[0] = vf_e2m1(_mm512_multishift_epi64_epi8(from, _mm512_set1_epi64(bits)));
}

/* Vector h of HALVES of the scales of the 16 sums (kern/fixed.h), from the E8M0 codes (1..254) of a
 * chunk's 16 groups. */
INLINE vf mx_lane_scale(const uint8_t *codes, int h)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)codes);
    v = _mm_shuffle_epi8(v, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return vf_bits(vi_sll(_mm512_cvtepu8_epi32(v), 23));
}

/* The scales of 16 words from the E8M0 codes (1..254) of their 4 groups, 4 lanes each. */
INLINE vf mx_step_scale(uint32_t codes, int h)
{
    const __m512i spread = _mm512_set_epi32(0x03ffffff, 0x03ffffff, 0x03ffffff, 0x03ffffff,
                                            0x02ffffff, 0x02ffffff, 0x02ffffff, 0x02ffffff,
                                            0x01ffffff, 0x01ffffff, 0x01ffffff, 0x01ffffff,
                                            0x00ffffff, 0x00ffffff, 0x00ffffff, 0x00ffffff);
    return vf_bits(vi_srl(_mm512_shuffle_epi8(vi_set((int32_t)codes), spread), 1));
}

/* Doubled E2M1 value + 12 of the low nibble of each byte; the table is stored four times, so that
 * the bits above the nibble do not matter. */
INLINE vi mx_codes_of(vi v)
{
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm512_permutexvar_epi8(v, table);
}

/* Vector h of HALVES: lanes 0..7 are the float with bits a, lanes 8..15 the one with bits b. */
INLINE vf fp8_scale_vec(uint32_t a, uint32_t b, int h)
{
    return vf_bits(_mm512_mask_blend_epi32(0xff00, vi_set((int32_t)a), vi_set((int32_t)b)));
}

/* The four columns of each word of E4M3 codes (kern/lanes.h), divided by E4M3_UNIT. NaN codes give
 * NaN. A code is converted by looking up the two bytes of its BF16 value: code * 16 + 0x3c00 for
 * codes of 8 and more, below that 2^-9 times the code. */
enum { E4M3_UNIT_LOG2 = 0 };
#define E4M3_HIGH(n) n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n
#define E4M3_LOW \
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0
INLINE void e4m3_columns(vf out[4], vi v)
{
    /* clang-format off */
    static const _Alignas(64) uint8_t high[128] = {
        0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c,
        0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c,
        E4M3_HIGH(0x3d), E4M3_HIGH(0x3e), E4M3_HIGH(0x3f), E4M3_HIGH(0x40),
        E4M3_HIGH(0x41), E4M3_HIGH(0x42),
        0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43,
        0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x7f,
    };
    /* clang-format on */
    static const _Alignas(64) uint8_t low[128] = {
        0x00,     0x00,     0x80,     0xc0,     0x00,     0x20,     0x40,     0x60,
        0x80,     0x90,     0xa0,     0xb0,     0xc0,     0xd0,     0xe0,     0xf0,
        E4M3_LOW, E4M3_LOW, E4M3_LOW, E4M3_LOW, E4M3_LOW, E4M3_LOW, E4M3_LOW,
    };
    v = vi_keep(v); /* one load */
    vi h = _mm512_permutex2var_epi8(vi_load(high), v, vi_load(high + 64)),
       l = _mm512_permutex2var_epi8(vi_load(low), v, vi_load(low + 64));
    /* two operations that run on any port; a ternary one would compete with FMAs */
    h = vi_or(h, vi_keep(vi_and(v, vi_set8(-128))));
    vi a = _mm512_unpacklo_epi8(l, h), b = _mm512_unpackhi_epi8(l, h),
       odd = vi_set((int32_t)0xffff0000);
    out[0] = vf_bits(vi_sll(a, 16));
    out[1] = vf_bits(vi_and(a, odd));
    out[2] = vf_bits(vi_sll(b, 16));
    out[3] = vf_bits(vi_and(b, odd));
}

/* 16 consecutive E4M3 codes in order, times 2^-8 */
INLINE void e4m3_expand16(vf out[HALVES], const uint8_t *codes)
{
    __m256i w = _mm256_slli_epi16(
        _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes)), 8);
    out[0] = _mm512_cvtph_ps(
        _mm256_and_si256(_mm256_srai_epi16(w, 1), _mm256_set1_epi16((short)0xbfff)));
}

/* 16 bf16 from 32 bytes */
INLINE void bf16_expand16(vf out[HALVES], const uint8_t *codes)
{
    out[0] = vf_bits(vi_sll(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)codes)), 16));
}

/* Dot products of 4 unsigned and 4 signed bytes, added over the 8 half words of a group of 32
 * columns. */
typedef __m512i vacc;
/* words of 8 codes of up to 24 times any byte that one sum can hold */
enum { VACC_WORDS = 4 };
INLINE vacc vacc_zero(void) { return vi_zero(); }
INLINE vacc vacc_add(vacc acc, vi u8, vi s8) { return _mm512_dpbusd_epi32(acc, u8, s8); }
INLINE vi vacc_finish(vacc acc) { return acc; }

#endif
