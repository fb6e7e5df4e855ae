/* All kernels for AVX-512 (F, BW, VL, DQ, VNNI, VBMI). Compiled with those flags
 * (src/kern/meson.build): nothing here may run before the CPU has been checked, and only the fill
 * function may have external linkage, so that the linker cannot use code from here elsewhere. */
#include "kern/x86/vec_avx512.h"

#include <float.h>
#include <math.h>

#include "kern/exp.h"
#include "kern/fixed.h"
#include "kern/kern.h"
#include "kern/lanes.h"
#include "kern/variants.h"
#include "kern/x86/vec_common.h"
#include "num/formats.h"

#include "kern/x86/arrange_avx512.h"
#include "kern/x86/index_avx512.h"
#include "kern/x86/mx_body.h"
#include "kern/x86/linear_body.h"
#include "kern/x86/pairs_body.h"
#include "kern/x86/simple_body.h"
#include "kern/x86/attend_body.h"
#include "kern/x86/topk_body.h"

void mote__kern_fill_avx512(mote__kern_ops *ops)
{
    *ops = (mote__kern_ops){
        .name = "avx512",
        .arrange = arrange,
        .linear = linear,
        .linear_pairs = linear_pairs,
        .rmsnorm = rmsnorm,
        .mean_square = mean_square,
        .swiglu = swiglu,
        .round_fp8 = round_fp8,
        .exp = exp_all,
        .collapse = collapse,
        .expand = expand,
        .dots = dots,
        .mix = mix,
        .soften = soften,
        .index_scores = index_scores,
        .count_above = count_above,
        .range_above = range_above,
        .take_above = take_above,
        .keep_above = keep_above,
        .block_maxima = block_maxima,
        .decode = { [MOTE_KV_FP4] = decode_fp4,
                    [MOTE_KV_MXFP4] = decode_mxfp4,
                    [MOTE_KV_FP4_32] = decode_fp4_32,
                    [MOTE_KV_FP4_64] = decode_fp4_64,
                    [MOTE_KV_FP4_128] = decode_fp4_128,
                    [MOTE_KV_FP8] = decode_fp8,
                    [MOTE_KV_BF16] = decode_bf16,
                    [MOTE_KV_F32] = decode_f32 },
    };
}
