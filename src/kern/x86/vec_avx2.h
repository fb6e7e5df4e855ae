/* The vector functions that the bodies in this folder are written in, for AVX2 with FMA and F16C: 8
 * lanes, so the 16 lanes of a step are two vectors. vec_avx512.h documents the functions. */
#ifndef MOTE_KERN_X86_VEC_H
#define MOTE_KERN_X86_VEC_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VN = 8, HALVES = 2 };
/* register tile: 12 sums and 3 + 1 operands use all 16 registers */
enum { TILE_O = 4, TILE_R = 3 };
enum { MX_O = 2, MX_R = 1, MX_MANY_FROM = 3 }; /* MXFP4: 2 outputs times 3 limbs, twice */
enum { MIX_H = 4, MIX_V = 2 };
enum { FEW_ROWS = 4 };

typedef __m256 vf;
typedef __m256i vi;

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i first_lanes(size_t n)
{
    static const int32_t mask[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return _mm256_loadu_si256((const __m256i *)(const void *)(mask + 8 - n));
}

INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
INLINE vf vf_load_n(const float *p, size_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
INLINE void vf_store_n(float *p, vf v, size_t n) { _mm256_maskstore_ps(p, first_lanes(n), v); }
INLINE vf vf_keep(vf v)
{
    __asm__("" : "+x"(v));
    return v;
}
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_neg(vf a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.f)); }
INLINE float vf_greatest(vf v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}
INLINE vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), a); }
INLINE vf vf_if_less(vf a, vf b, vf v, vf w)
{
    return _mm256_blendv_ps(w, v, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

INLINE unsigned vf_less_mask(vf a, vf b)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
INLINE unsigned vf_equal_mask(vf a, vf b)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
/* Bytes 0..7 of pack_order[m]: the lanes that mask m keeps, in order. Filled once, before any
 * kernel runs. */
static uint64_t pack_order[256];
static void fill_pack_order(void)
{
    for (unsigned m = 0; m < 256; m++)
        for (uint64_t lane = 0, at = 0; lane < 8; lane++)
            if (m >> lane & 1)
                pack_order[m] |= lane << 8 * at++;
}
INLINE vf vf_pack(vf v, unsigned mask)
{
    return _mm256_permutevar8x32_ps(
        v, _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)&pack_order[mask])));
}

INLINE vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE vi vi_load_n(const void *p, size_t n) { return _mm256_maskload_epi32(p, first_lanes(n)); }
INLINE void vi_store(void *p, vi v) { _mm256_storeu_si256(p, v); }
INLINE vi vi_zero(void) { return _mm256_setzero_si256(); }
INLINE vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi vi_set8(int x) { return _mm256_set1_epi8((char)x); }
INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
#define vi_sll(a, n) _mm256_slli_epi32(a, n)
#define vi_srl(a, n) _mm256_srli_epi32(a, n)
#define vi_sra(a, n) _mm256_srai_epi32(a, n)
INLINE vi vi_max_u8(vi a, vi b) { return _mm256_max_epu8(a, b); }
INLINE int vi_any_eq8(vi a, vi b) { return _mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) != 0; }
INLINE vi vi_unpack_lo32(vi a, vi b) { return _mm256_unpacklo_epi32(a, b); }
INLINE vi vi_unpack_hi32(vi a, vi b) { return _mm256_unpackhi_epi32(a, b); }
INLINE vi vi_unpack_lo64(vi a, vi b) { return _mm256_unpacklo_epi64(a, b); }
INLINE vi vi_unpack_hi64(vi a, vi b) { return _mm256_unpackhi_epi64(a, b); }
INLINE vi vi_keep(vi v)
{
    __asm__("" : "+x"(v));
    return v;
}
INLINE vi vi_count(uint32_t from)
{
    return vi_add(vi_set((int32_t)from), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vi vi_bits(vf v) { return _mm256_castps_si256(v); }
INLINE vf vf_bits(vi v) { return _mm256_castsi256_ps(v); }
INLINE vi vi_from_f(vf v) { return _mm256_cvtps_epi32(v); }
INLINE vf vf_from_i(vi v) { return _mm256_cvtepi32_ps(v); }
INLINE vf vf_bf16(vf v)
{
    vi u = vi_bits(v), r = vi_add(vi_add(u, vi_set(0x7fff)), vi_and(vi_srl(u, 16), vi_set(1)));
    vi q = vi_bits(_mm256_blendv_ps(vf_bits(r), vf_bits(vi_or(u, vi_set(0x400000))),
                                    _mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    return vf_bits(vi_and(q, vi_set((int32_t)0xffff0000)));
}

INLINE float lane_sum(const float *p)
{
    __m256 a = _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

INLINE int lane_sums_at(int i) { return i; }
INLINE void lane_sums(float to[16], vf v[16][HALVES], const int n)
{
    for (int i = 0; i < n; i++) {
        float p[16];
        vf_store(p, v[i][0]);
        vf_store(p + 8, v[i][1]);
        to[i] = lane_sum(p);
    }
}

/* a permute of 8 lanes uses three bits of the index, the magnitude; the fourth bit is the sign */
INLINE vf vf_e2m1(vi v)
{
    const __m256 table = _mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6);
    vi sign = vi_and(vi_sll(v, 28), vi_set((int32_t)0x80000000));
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(table, v), vf_bits(sign));
}

INLINE void e2m1_expand16(vf out[HALVES], const uint8_t *codes)
{
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    for (int h = 0; h < 2; h++) {
        int32_t word;
        memcpy(&word, codes + h * 4, 4);
        out[h] = vf_e2m1(_mm256_srlv_epi32(vi_set(word), shifts));
    }
}

INLINE vf mx_lane_scale(const uint8_t *codes, int h)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)codes);
    v = _mm_shuffle_epi8(v, h ? _mm_setr_epi8(2, 6, 10, 14, 3, 7, 11, 15, 0, 0, 0, 0, 0, 0, 0, 0)
                              : _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0));
    return vf_bits(vi_sll(_mm256_cvtepu8_epi32(v), 23));
}

INLINE vf mx_step_scale(uint32_t codes, int h)
{
    const __m256i spread = _mm256_set_epi32(0x01ffffff, 0x01ffffff, 0x01ffffff, 0x01ffffff,
                                            0x00ffffff, 0x00ffffff, 0x00ffffff, 0x00ffffff);
    return vf_bits(vi_srl(_mm256_shuffle_epi8(vi_set((int32_t)(codes >> 16 * h)), spread), 1));
}

INLINE vi mx_codes_of(vi v)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm256_shuffle_epi8(table, vi_and(v, vi_set8(15)));
}

INLINE vf fp8_scale_vec(uint32_t a, uint32_t b, int h)
{
    return vf_bits(vi_set((int32_t)(h ? b : a)));
}

INLINE __m256i half_of_e4m3(__m256i v)
{
    return _mm256_and_si256(_mm256_srai_epi16(v, 1), _mm256_set1_epi16((short)0xbfff));
}

/* E4M3 codes are converted as half floats, which have one more exponent bit; the results are 2^-8
 * times the values of the codes */
enum { E4M3_UNIT_LOG2 = 8 };
INLINE void e4m3_columns(vf out[4], vi v)
{
    /* in each 128 bits: even bytes of the first and of the second half, then odd bytes of both;
     * then 8 even bytes of all first halves, ... */
    const __m256i group = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0,
                                           2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m256i nan = vi_set8(0x7f);
    v = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(v, group),
                                    _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m256i bad = _mm256_cmpeq_epi8(vi_and(v, nan), nan);
    /* columns 0 | 1 */
    __m256i a = half_of_e4m3(_mm256_unpacklo_epi8(_mm256_setzero_si256(), v));
    /* columns 2 | 3 */
    __m256i b = half_of_e4m3(_mm256_unpackhi_epi8(_mm256_setzero_si256(), v));
    a = vi_or(a, _mm256_unpacklo_epi8(bad, bad));
    b = vi_or(b, _mm256_unpackhi_epi8(bad, bad));
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(a));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
    out[2] = _mm256_cvtph_ps(_mm256_castsi256_si128(b));
    out[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(b, 1));
}

INLINE void e4m3_expand16(vf out[HALVES], const uint8_t *codes)
{
    __m256i w = _mm256_slli_epi16(
        _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes)), 8);
    w = half_of_e4m3(w);
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(w));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(w, 1));
}

INLINE void bf16_expand16(vf out[HALVES], const uint8_t *codes)
{
    for (int h = 0; h < 2; h++)
        out[h] = vf_bits(vi_sll(
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(codes + h * 16))),
            16));
}

INLINE vi vi_lookup16(const int8_t table[16], vi nibbles)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(
                                   _mm_loadu_si128((const __m128i *)(const void *)table)),
                               nibbles);
}

/* 16-bit sums of pairs. Keys are 0..24 and queries -12..12, so a pair is at most 576 and the 8
 * pairs of a group at most 4608: no sum saturates. */
typedef __m256i vacc;
enum { VACC_WORDS = 2 }; /* 4 pairs of at most 2 * 24 * 128 */
INLINE vacc vacc_zero(void) { return vi_zero(); }
INLINE vacc vacc_add(vacc acc, vi u8, vi s8)
{
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(u8, s8));
}
INLINE vi vacc_finish(vacc acc) { return _mm256_madd_epi16(acc, _mm256_set1_epi16(1)); }

#endif
