/* Kernels that are faster with AVX512-BF16: pairs of BF16 products. Compiled with that flag
 * (src/kern/meson.build); nothing here may run before the CPU has been checked. */
#include "kern/x86/vec_avx512.h"

#include <math.h>

#include "kern/kern.h"
#include "kern/variants.h"
#include "kern/x86/vec_common.h"

#define PAIRS_HW
#include "kern/x86/pairs_body.h"

/* The manual describes a pair as two fused multiply-adds, the odd one first, rounded to nearest.
 * The bits of sums depend on this, so the instruction is tested at start. */
static int as_documented(void)
{
    uint64_t state = 1;
    for (int i = 0; i < 256; i++) {
        uint32_t bits[3];
        /* values of about 2^-8 to 2^8, so that sums are rounded */
        for (int k = 0; k < 3; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint32_t u = (uint32_t)(state >> 32);
            bits[k] = (u & 0x807f807fu) | (119 + (u >> 8 & 7)) << 7 | (119 + (u >> 24 & 7)) << 23;
        }
        float f[2][2], sum;
        for (int k = 0; k < 2; k++) {
            uint32_t low = bits[k] << 16, high = bits[k] & 0xffff0000u;
            memcpy(&f[k][0], &low, 4);
            memcpy(&f[k][1], &high, 4);
        }
        memcpy(&sum, &bits[2], 4);
        float want = fmaf(f[0][0], f[1][0], fmaf(f[0][1], f[1][1], sum));
        float got = _mm512_cvtss_f32(
            pair_dot(vf_set(sum), vi_set((int32_t)bits[0]), vi_set((int32_t)bits[1])));
        if (memcmp(&want, &got, sizeof want))
            return 0;
    }
    return 1;
}

void mote__kern_fill_avx512bf16(mote__kern_ops *ops)
{
    if (!as_documented())
        return;
    pairs_fallback = ops->linear_pairs;
    ops->linear_pairs = linear_pairs;
}
