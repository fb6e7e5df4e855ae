/* What the processor can do, as far as kernels care. */
#ifndef MOTE_BASE_CPU_H
#define MOTE_BASE_CPU_H

typedef enum mote__cpu_level {
    MOTE_CPU_SCALAR,
    MOTE_CPU_AVX2,   /* AVX2, FMA, F16C */
    MOTE_CPU_AVX512, /* AVX-512 F, BW, VL, DQ, VNNI, VBMI */
    MOTE_CPU_LEVELS
} mote__cpu_level;

/* The highest level that processor and operating system support; higher levels include the lower
 * ones. */
mote__cpu_level mote__cpu_detect(void);
/* "scalar", "avx2", "avx512" */
extern const char *const mote__cpu_level_name[MOTE_CPU_LEVELS];

#endif
