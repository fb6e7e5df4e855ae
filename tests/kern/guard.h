/* For tests of kernels: buffers between guard pages, random floats of several styles, and
 * comparisons that report the first difference. */
#ifndef MOTE_TESTS_KERN_GUARD_H
#define MOTE_TESTS_KERN_GUARD_H

#include <float.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "num/formats.h"
#include "test.h"

/* All buffers of a round are in one arena of guarded pieces and are freed together. */
typedef struct guard {
    struct {
        void *base;
        size_t size;
    } piece[32];
    int n, at_end;
} guard;

/* `bytes` that end directly before an inaccessible page (at_end) or start directly after one */
static inline void *guard_alloc(guard *g, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page,
           size = inner + 2 * page;
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED && g->n < 32);
    assert_int_equal(mprotect(p, page, PROT_NONE) | mprotect(p + page + inner, page, PROT_NONE), 0);
    g->piece[g->n].base = p;
    g->piece[g->n++].size = size;
    return g->at_end ? p + page + inner - bytes : p + page;
}
static inline float *guard_floats(guard *g, size_t n) { return guard_alloc(g, n * sizeof(float)); }

static inline void guard_free(guard *g)
{
    while (g->n > 0) {
        g->n--;
        munmap(g->piece[g->n].base, g->piece[g->n].size);
    }
}

enum { NORMAL, ZEROS, EXTREMES, DENORMALS, ALTERNATING, SMALL_AND_LARGE, SPECIALS, FLOAT_STYLES };
static const char *const style_name[FLOAT_STYLES] = { "normal",    "zeros",       "extremes",
                                                      "denormals", "alternating", "small-and-large",
                                                      "specials" };

static inline void fill_floats(rnd *r, float *p, size_t n, int style)
{
    static const float special[] = { INFINITY, -INFINITY, NAN,        0, -0.f,
                                     FLT_MAX,  FLT_MIN,   -0x1p-149f, 1, -1 };
    /* only denormals, or mixed with normal numbers */
    const int tiny = (int)rnd_below(r, 2);
    for (size_t i = 0; i < n; i++) {
        float u = rnd_unit(r);
        switch (style) {
        case ZEROS: p[i] = rnd_below(r, 2) ? 0 : -0.f; break;
        case EXTREMES: p[i] = rnd_below(r, 2) ? u * FLT_MAX : u * FLT_MIN; break;
        case DENORMALS: p[i] = tiny || rnd_below(r, 2) ? u * 0x1p-127f : u * 0x1p-70f; break;
        case ALTERNATING: p[i] = i % 2 ? -1.f - u * 1e-3f : 1.f + u * 1e-3f; break;
        case SMALL_AND_LARGE: p[i] = u * ldexpf(1, (int)rnd_below(r, 60) - 30); break;
        case SPECIALS: p[i] = rnd_below(r, 8) ? u : special[rnd_below(r, 10)]; break;
        default: p[i] = u + rnd_unit(r) + rnd_unit(r); break;
        }
    }
}

static inline void fill_bytes(rnd *r, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(rnd_u64(r) >> 32);
}

/* Index of the first pair that differs in bits and is not NaN in both, or n. (Which NaN results
 * from two is not defined.) */
static inline size_t first_difference(const float *want, const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mote__f32_bits(want[i]) != mote__f32_bits(got[i]) && !(isnan(want[i]) && isnan(got[i])))
            return i;
    return n;
}

#define check_same_f32(want, got, n, fmt, ...)                                           \
    do {                                                                                 \
        size_t at_ = first_difference(want, got, n);                                     \
        if (at_ < (n))                                                                   \
            fail_msg(fmt ": [%zu] is %a, want %a", __VA_ARGS__, at_, (double)(got)[at_], \
                     (double)(want)[at_]);                                               \
    } while (0)

#endif
