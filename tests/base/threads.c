/* The thread pool: every iteration runs once for any number of threads; many short loops in a row;
 * more threads than cores. */
#include "base/threads.h"
#include "test.h"

struct loop {
    unsigned char hit[5000];
    size_t sum_by_thread[16];
    int threads;
};

static void body(void *ctx, size_t begin, size_t end, int thread)
{
    struct loop *l = ctx;
    if (thread < 0 || thread >= l->threads)
        abort();
    for (size_t i = begin; i < end; i++) {
        l->hit[i]++;
        l->sum_by_thread[thread] += i;
    }
}

static void every_iteration_once(void **state)
{
    (void)state;
    static struct loop l;
    rnd r = { 3 };
    for (int threads = 1; threads <= 7; threads += 2) {
        mote__threads *p = mote__threads_create(threads);
        assert_non_null(p);
        assert_int_equal(mote__threads_count(p), threads);
        for (int round = 0; round < 3000; round++) {
            size_t n = rnd_below(&r, round % 50 ? 40 : 5000), grain = rnd_below(&r, 9);
            memset(&l, 0, sizeof l);
            l.threads = threads;
            mote__threads_for(p, n, grain, body, &l);
            size_t sum = 0;
            for (int t = 0; t < threads; t++)
                sum += l.sum_by_thread[t];
            for (size_t i = 0; i < sizeof l.hit; i++)
                if (l.hit[i] != (i < n))
                    fail_msg("iteration %zu of %zu ran %d times", i, n, l.hit[i]);
            assert_int_equal(sum, n ? n * (n - 1) / 2 : 0);
        }
        mote__threads_destroy(p);
    }
    memset(&l, 0, sizeof l);
    l.threads = 1;
    mote__threads_for(NULL, 17, 4, body, &l); /* no pool: the caller runs all iterations */
    assert_int_equal(l.hit[16], 1);
    assert_int_equal(l.hit[17], 0);
    mote__threads_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_iteration_once) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
