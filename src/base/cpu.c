/* CPU detection for x86-64; any other processor is MOTE_CPU_SCALAR. */
#include "base/cpu.h"

const char *const mote__cpu_level_name[MOTE_CPU_LEVELS] = { "scalar", "avx2", "avx512" };

#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports checks by XGETBV that the operating system saves the vector registers. Not
 * every compiler version knows "f16c", so its CPUID bit is read here. F16C uses the AVX registers,
 * which the check for AVX2 covers. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

mote__cpu_level mote__cpu_detect(void)
{
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()))
        return MOTE_CPU_SCALAR;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi")))
        return MOTE_CPU_AVX2;
    return MOTE_CPU_AVX512;
}
#else
mote__cpu_level mote__cpu_detect(void) { return MOTE_CPU_SCALAR; }
#endif
