/* An outside yardstick: sgemm of OpenBLAS, looked for when the bench runs, so that mote itself
 * needs no BLAS. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"

/* CBLAS with 32-bit integers, as distributions build it */
typedef void sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                   const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

static sgemm *found;

static void gemm(float *y, const float *x, const float *w, size_t n, size_t out, size_t in)
{
    found(ROW_MAJOR, NO_TRANS, TRANS, (int)n, (int)out, (int)in, 1, x, (int)in, w, (int)in, 0, y,
          (int)out);
}

mote__bench_gemm mote__bench_blas(int n_threads, char why[120])
{
    static const char *const names[] = { "libopenblas.so.0", "libopenblas.so", "libopenblaso.so.0",
                                         "libopenblasp.so.0" };
    /* Its threads go on spinning for 2^26 cycles after a product, on the cores that the other side
     * of a comparison needs next. */
    setenv("OPENBLAS_THREAD_TIMEOUT", "16", 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!lib)
            continue;
        /* object to function pointer: POSIX promises that this works, ISO C has no cast for it */
        union {
            void *object;
            sgemm *f;
            void (*threads)(int);
            char *(*config)(void);
        } s, t, c;
        s.object = dlsym(lib, "cblas_sgemm");
        t.object = dlsym(lib, "openblas_set_num_threads");
        c.object = dlsym(lib, "openblas_get_config");
        if (s.object && t.object) {
            found = s.f;
            t.threads(n_threads);
            snprintf(why, 120, "%.110s", c.object ? c.config() : names[i]);
            /* stays loaded: its threads cannot be taken back */
            return gemm;
        }
        dlclose(lib);
    }
    snprintf(why, 120, "libopenblas was not found; no outside yardstick");
    return NULL;
}
