/* Top-k of a stream against a full sort: ties, NaN, infinities, ascending and equal scores, any k,
 * any push sizes. */
#include "test.h"

#include <math.h>

#include "kern/topk.h"

typedef struct item {
    float score;
    uint32_t index;
} item;

static int better(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int by_index(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

enum { STYLES = 12 };

static float draw(rnd *r, int style, size_t i)
{
    static const float special[] = { 0,         -0.f, NAN, -NAN,      INFINITY,
                                     -INFINITY, 1,    -1,  0x1p-149f, -0x1p-149f };
    switch (style) {
    case 0: return rnd_unit(r);
    case 1: return (float)i; /* ascending */
    case 2: return -(float)i;
    case 3: return 1.5f;                       /* all equal */
    case 4: return (float)rnd_below(r, 8) - 4; /* many ties */
    case 5: return special[rnd_below(r, 10)];
    case 6: return rnd_below(r, 3) ? -INFINITY : rnd_unit(r);
    case 7: return rnd_below(r, 2) ? -0.f : 0;
    case 8: return ldexpf(rnd_unit(r), (int)rnd_below(r, 250) - 125);
    case 9: return (float)(i % 5000);                          /* teeth longer than a strip */
    case 10: return (float)(i / 300) + (i % 7 == 0 ? NAN : 0); /* steps of equal scores */
    default: return NAN;
    }
}

/* Fill want [k] by a full sort; returns how many */
static size_t by_sort(uint32_t *want, const float *scores, size_t n, size_t k, uint32_t base)
{
    item *all = malloc((n + 1) * sizeof *all);
    size_t valid = 0;
    for (size_t i = 0; i < n; i++)
        if (scores[i] > -INFINITY)
            all[valid++] = (item){ scores[i], base + (uint32_t)i };
    qsort(all, valid, sizeof *all, better);
    size_t n_want = valid < k ? valid : k;
    for (size_t i = 0; i < n_want; i++)
        want[i] = all[i].index;
    qsort(want, n_want, sizeof *want, by_index);
    free(all);
    return n_want;
}

static void push_pieces(mote__topk *t, rnd *r, const float *scores, size_t n, uint32_t base,
                        size_t most)
{
    for (size_t at = 0; at < n;) {
        size_t step = 1 + rnd_below(r, most);
        step = step < n - at ? step : n - at;
        mote__topk_push(t, scores + at, step, base + (uint32_t)at);
        at += step;
    }
}

static void test_against_sort(void **state)
{
    static const size_t ks[] = { 0, 1, 2, 7, 64, 512, 1000, 2048 }, pieces[] = { 16, 2500, 20000 };
    for (uint64_t seed = 1; seed <= 1200; seed++) {
        rnd r = { seed };
        rnd_u64(&r);
        size_t k = ks[rnd_below(&r, 8)], n = rnd_below(&r, seed % 8 ? 3000 : 40000);
        int style = (int)rnd_below(&r, STYLES);
        uint32_t base = rnd_below(&r, 2) ? 0xfffff000u - (uint32_t)n : 0;
        float *scores = malloc((n + 1) * sizeof *scores);
        uint32_t *want = malloc((k + 1) * sizeof *want), *got = malloc((k + 1) * sizeof *got);
        for (size_t i = 0; i < n; i++)
            scores[i] = draw(&r, style, i);
        size_t n_want = by_sort(want, scores, n, k, base);
        void *memory = aligned_alloc(64, mote__topk_bytes(k)),
             *other = aligned_alloc(64, mote__topk_bytes(k));
        for (int level = 0; mote__kern_at(level); level++) {
            mote__topk t, second;
            mote__topk_init(&t, mote__kern_at(level), k, memory);
            mote__topk_init(&second, mote__kern_at(level), k, other);
            /* a reset before each but the first; the last one in two parts */
            for (int round = 0; round < 4; round++) {
                size_t cut = round < 3 ? n : rnd_below(&r, n + 1);
                got[k] = 0xabcdef01;
                push_pieces(&t, &r, scores, cut, base, pieces[round % 3]);
                if (round == 3) {
                    push_pieces(&second, &r, scores + cut, n - cut, base + (uint32_t)cut, 5000);
                    mote__topk_merge(&t, &second);
                }
                size_t n_got = mote__topk_finish(&t, got);
                if (n_got != n_want)
                    fail_msg("%s seed=%llu k=%zu n=%zu style=%d: %zu selected, want %zu",
                             t.kern->name, (unsigned long long)seed, k, n, style, n_got, n_want);
                for (size_t i = 0; i < n_got; i++)
                    if (got[i] != want[i])
                        fail_msg("%s seed=%llu k=%zu n=%zu style=%d: [%zu] is %u, want %u",
                                 t.kern->name, (unsigned long long)seed, k, n, style, i, got[i],
                                 want[i]);
                assert_int_equal(got[k], 0xabcdef01);
                mote__topk_reset(&t);
            }
        }
        free(scores), free(want), free(got), free(memory), free(other);
    }
}

static void test_memory(void **state)
{
    assert_true(mote__topk_bytes(512) <= (2 * 512 + MOTE_TOPK_STRIP + 16) * 8);
    assert_true(mote__topk_bytes(0) % 64 == 0 && mote__topk_bytes(513) % 64 == 0);
    assert_true(mote__topk_bytes((size_t)-1) == (size_t)-1);
    assert_true(mote__topk_bytes((size_t)-1 / 4) == (size_t)-1);
}

/* A million ascending scores: each is accepted, and each must still cost O(1). A quadratic
 * algorithm takes minutes here and fails by meson's timeout. */
static void test_long_ascending(void **state)
{
    enum { N = 1 << 20, K = 512 };
    mote__topk t;
    void *memory = aligned_alloc(64, mote__topk_bytes(K));
    float *scores = malloc(N * sizeof *scores);
    uint32_t out[K];
    for (int i = 0; i < N; i++)
        scores[i] = (float)i;
    mote__topk_init(&t, mote__kern(), K, memory);
    mote__topk_push(&t, scores, N, 7);
    assert_int_equal(mote__topk_finish(&t, out), K);
    for (uint32_t i = 0; i < K; i++)
        assert_int_equal(out[i], N - K + i + 7);
    free(memory), free(scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_sort),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_long_ascending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
