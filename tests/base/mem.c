/* Memory: what the meter counts, the growing buffer, forced failures, overflow of sizes. */
#include "base/mem.h"
#include "test.h"

static void meter_counts_by_class(void **state)
{
    (void)state;
    mote__meter m = { 0 };
    void *a = mote__alloc(&m, MOTE_MEM_SCRATCH, 1), *b = mote__alloc(&m, MOTE_MEM_OTHER, 65);
    void *none = mote__alloc(&m, MOTE_MEM_OTHER, 0);
    assert_true(a && b && none);
    assert_int_equal((uintptr_t)a % 64 | (uintptr_t)b % 64, 0);
    assert_int_equal(m.bytes[MOTE_MEM_SCRATCH], 64);
    assert_int_equal(m.bytes[MOTE_MEM_OTHER], 128 + 64);
    assert_int_equal(mote__meter_total(&m), 256);
    assert_int_equal(m.n_allocs, 3);
    mote__free(&m, MOTE_MEM_OTHER, b, 65);
    assert_int_equal(mote__meter_total(&m), 128);
    assert_int_equal(m.peak, 256); /* the peak does not fall */
    mote__free(&m, MOTE_MEM_SCRATCH, a, 1);
    mote__free(&m, MOTE_MEM_OTHER, none, 0);
    mote__free(&m, MOTE_MEM_OTHER, NULL, 1000); /* NULL counts nothing */
    assert_int_equal(mote__meter_total(&m), 0);
    mote__meter_add(NULL, MOTE_MEM_OTHER, 5); /* no meter: not accounted */
    mote__meter_sub(NULL, MOTE_MEM_OTHER, 5);
}

static void pages_are_whole_and_zero(void **state)
{
    (void)state;
    mote__meter m = { 0 };
    size_t bytes = 5000, large = MOTE_LARGE_PAGE + 1;
    unsigned char *p = mote__map_pages(&m, MOTE_MEM_WEIGHTS, &bytes);
    unsigned char *q = mote__map_large_pages(&m, MOTE_MEM_WEIGHTS, &large);
    assert_true(p && q && bytes >= 5000 && bytes % 4096 == 0 && large > MOTE_LARGE_PAGE);
    assert_int_equal((uintptr_t)q % MOTE_LARGE_PAGE, 0);
    assert_int_equal(mote__meter_total(&m), bytes + large);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(p[i], 0);
    q[large - 1] = 1; /* the last byte can be written */
    mote__unmap_pages(&m, MOTE_MEM_WEIGHTS, p, bytes);
    mote__unmap_pages(&m, MOTE_MEM_WEIGHTS, q, large);
    assert_int_equal(mote__meter_total(&m), 0);
    size_t zero = 0, absurd = (size_t)1 << 60;
    assert_null(mote__map_pages(&m, MOTE_MEM_WEIGHTS, &zero));
    assert_null(mote__map_pages(&m, MOTE_MEM_WEIGHTS, &absurd));
    assert_null(mote__map_large_pages(&m, MOTE_MEM_WEIGHTS, &absurd));
    assert_int_equal(mote__meter_total(&m), 0);
}

static void buffer_grows_and_keeps(void **state)
{
    (void)state;
    mote__meter m = { 0 };
    mote__buf b;
    rnd r = { 9 };
    unsigned char want[20000];
    size_t n = 0;
    mote__buf_init(&b, &m, MOTE_MEM_OTHER);
    while (n < sizeof want - 300) {
        size_t more = rnd_below(&r, 300);
        for (size_t i = 0; i < more; i++)
            want[n + i] = (unsigned char)rnd_u64(&r);
        assert_int_equal(mote__buf_append(&b, want + n, more), 0);
        n += more;
        assert_int_equal(b.size, n);
        assert_true(b.capacity >= n && b.capacity <= 2 * n + 4096);
        assert_true(mote__meter_total(&m) >= b.capacity && mote__meter_total(&m) < b.capacity + 64);
    }
    assert_memory_equal(b.data, want, n);
    assert_int_equal(mote__buf_append(&b, NULL, 0), 0);
    /* a failed growth changes neither contents nor meter */
    size_t held = b.capacity, counted = mote__meter_total(&m);
    assert_int_equal(mote__buf_reserve(&b, (size_t)1 << 60), MOTE_ENOMEM);
    assert_int_equal(mote__buf_append(&b, want, SIZE_MAX), MOTE_ENOMEM);
    assert_true(b.size == n && b.capacity == held && mote__meter_total(&m) == counted);
    assert_memory_equal(b.data, want, n);
    mote__buf_deinit(&b);
    assert_true(!b.data && !b.size && !b.capacity && !mote__meter_total(&m));
}

static void allocations_fail_on_demand(void **state)
{
    (void)state;
    mote__meter m = { 0 };
    mote__alloc_fail_at = 3;
    void *a = mote__alloc(&m, MOTE_MEM_OTHER, 10), *b = mote__alloc(&m, MOTE_MEM_OTHER, 10);
    assert_true(a && b);
    assert_null(mote__alloc(&m, MOTE_MEM_OTHER, 10));
    size_t bytes = 10;
    assert_null(mote__map_pages(&m, MOTE_MEM_OTHER, &bytes)); /* all later ones fail too */
    mote__alloc_fail_at = 0;
    mote__free(&m, MOTE_MEM_OTHER, a, 10);
    mote__free(&m, MOTE_MEM_OTHER, b, 10);
    assert_int_equal(mote__meter_total(&m), 0);
}

static void sums_saturate(void **state)
{
    (void)state;
    assert_int_equal(mote__mul(3, 5), 15);
    assert_int_equal(mote__mul(0, SIZE_MAX), 0);
    assert_true(mote__mul((size_t)1 << 33, (size_t)1 << 33) == SIZE_MAX);
    assert_true(mote__add(SIZE_MAX, 1) == SIZE_MAX && mote__add(SIZE_MAX - 1, 1) == SIZE_MAX &&
                mote__add(2, 3) == 5);
    assert_null(mote__alloc(NULL, MOTE_MEM_OTHER, SIZE_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meter_counts_by_class),  cmocka_unit_test(pages_are_whole_and_zero),
        cmocka_unit_test(buffer_grows_and_keeps), cmocka_unit_test(allocations_fail_on_demand),
        cmocka_unit_test(sums_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
