/* The CPU levels that kernels are written for, and which of them this machine has. */
#ifndef MOTE_BASE_CPU_H
#define MOTE_BASE_CPU_H

typedef enum mote__cpu_level {
    MOTE_CPU_SCALAR,
    MOTE_CPU_AVX2,   /* AVX2, FMA, F16C */
    MOTE_CPU_AVX512, /* AVX-512 F, BW, VL, DQ, VNNI, VBMI */
    MOTE_CPU_LEVELS
} mote__cpu_level;

/* The highest level that both the processor and the operating system support. A level includes all
 * lower ones. MOTE_CPU_MASK is not read here (kern/kern.c). Any thread. */
mote__cpu_level mote__cpu_detect(void);
/* "scalar", "avx2", "avx512" */
extern const char *const mote__cpu_level_name[MOTE_CPU_LEVELS];

#endif
