/* The kernel tables of all levels, the choice of one, and MOTE_CPU_MASK. */
#include "kern/kern.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/err.h"
#include "kern/variants.h"

static mote__kern_ops tables[MOTE_CPU_LEVELS];
static atomic_int best = -1; /* level in use; -1: MOTE_CPU_MASK has not been read */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Fill the tables of the levels that this CPU has. The functions that fill higher ones must not be
 * called: they are compiled with instructions that the CPU lacks. */
static void fill_tables(void)
{
    mote__kern_fill_scalar(&tables[MOTE_CPU_SCALAR]);
    for (int level = 1; level <= (int)mote__cpu_detect(); level++) {
        tables[level] = tables[level - 1];
#if defined(MOTE_KERN_X86)
        (level == MOTE_CPU_AVX2 ? mote__kern_fill_avx2 : mote__kern_fill_avx512)(&tables[level]);
        if (level == MOTE_CPU_AVX512 && __builtin_cpu_supports("avx512bf16"))
            mote__kern_fill_avx512bf16(&tables[level]);
#endif
    }
}

/* The highest level that the CPU has and the mask leaves. *bad: the first unknown word of the mask,
 * or NULL. */
static int choose(const char **bad, size_t *bad_bytes)
{
    const char *mask = getenv("MOTE_CPU_MASK");
    int level = (int)mote__cpu_detect();
#if !defined(MOTE_KERN_X86)
    level = MOTE_CPU_SCALAR;
#endif
    *bad = NULL;
    while (mask && *mask) {
        size_t n = strcspn(mask, ",");
        int i = 1;
        while (i < MOTE_CPU_LEVELS && (strlen(mote__cpu_level_name[i]) != n ||
                                       memcmp(mask, mote__cpu_level_name[i], n) != 0))
            i++;
        if (i < MOTE_CPU_LEVELS) {
            if (level >= i)
                level = i - 1; /* higher levels include this one */
        } else if (n && !*bad) {
            *bad = mask;
            *bad_bytes = n;
        }
        mask += n + (mask[n] == ',');
    }
    return level;
}

int mote__kern_init(mote_err *err)
{
    const char *bad;
    size_t n = 0;
    pthread_once(&once, fill_tables);
    int level = choose(&bad, &n);
    if (bad)
        return mote__fail(err, MOTE_EINVAL,
                          "MOTE_CPU_MASK: unknown word '%.*s', known are avx2 and avx512",
                          (int)(n < 64 ? n : 64), bad);
    atomic_store(&best, level);
    return 0;
}

static int level_now(void)
{
    const char *bad;
    size_t n;
    pthread_once(&once, fill_tables);
    int level = atomic_load_explicit(&best, memory_order_relaxed);
    if (level < 0)
        atomic_store(&best, level = choose(&bad, &n));
    return level;
}

const mote__kern_ops *mote__kern(void) { return &tables[level_now()]; }

const mote__kern_ops *mote__kern_at(int level)
{
    return level >= 0 && level <= level_now() ? &tables[level] : NULL;
}
