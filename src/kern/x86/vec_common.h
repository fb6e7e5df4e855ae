/* Vector functions in terms of those of vec_avx2.h or vec_avx512.h, and prefetching. */
#ifndef MOTE_KERN_X86_VEC_COMMON_H
#define MOTE_KERN_X86_VEC_COMMON_H

/* for short loops over arrays of vectors that must be kept in registers */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Hardware prefetchers do not recognise rows of weights that are read side by side, although a
 * block of rows as a whole is contiguous. So while a block is read, as many lines are prefetched
 * AHEAD bytes further on, into L2, because L1 would evict them. Not beyond the end of a matrix,
 * where another thread may be reading: there the block's own lines are prefetched, which costs
 * nothing. */
enum { AHEAD = 32768 };
INLINE size_t within(size_t ahead, const uint8_t *block, const uint8_t *end)
{
    return ahead < (size_t)(end - block) ? ahead : 0;
}
INLINE void prefetch(const uint8_t *block, size_t at)
{
    _mm_prefetch((const char *)((uintptr_t)block + at), _MM_HINT_T1);
}
/* from L2 into L1, shortly before the line is read */
enum { NEAR = 512 };
INLINE void prefetch_near(const uint8_t *block, size_t at)
{
    _mm_prefetch((const char *)((uintptr_t)block + at + NEAR), _MM_HINT_T0);
}

/* Transpose 32-bit words of four vectors within their 128-bit parts: word i of v[j] goes to word j
 * of v[i]. */
INLINE void transpose_words(vi v[4])
{
    vi a = vi_unpack_lo32(v[0], v[1]), b = vi_unpack_lo32(v[2], v[3]);
    vi c = vi_unpack_hi32(v[0], v[1]), d = vi_unpack_hi32(v[2], v[3]);
    v[0] = vi_unpack_lo64(a, b);
    v[1] = vi_unpack_hi64(a, b);
    v[2] = vi_unpack_lo64(c, d);
    v[3] = vi_unpack_hi64(c, d);
}

INLINE uint32_t load_u32(const void *p)
{
    uint32_t u;
    memcpy(&u, p, 4);
    return u;
}

INLINE float e8m0(uint8_t code)
{
    uint32_t u = (uint32_t)code << 23 | (code == 0 || code == 255 ? 0x400000u : 0);
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* E2M1 value of nibble i of each word. With a constant i the switch disappears and shift counts are
 * literals. */
INLINE vf vf_nibble(vi v, int i)
{
    switch (i) {
    case 0: return vf_e2m1(v);
    case 1: return vf_e2m1(vi_srl(v, 4));
    case 2: return vf_e2m1(vi_srl(v, 8));
    case 3: return vf_e2m1(vi_srl(v, 12));
    case 4: return vf_e2m1(vi_srl(v, 16));
    case 5: return vf_e2m1(vi_srl(v, 20));
    case 6: return vf_e2m1(vi_srl(v, 24));
    default: return vf_e2m1(vi_srl(v, 28));
    }
}

#endif
