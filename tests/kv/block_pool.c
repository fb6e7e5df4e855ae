/* Blocks: sharing by reference, zeros for each new owner, and an account that is right after any
 * order of taking and giving. */
#include "kv/block_pool.h"
#include "test.h"

enum { MOST = 300 };

static mote__kv_layout small_layout(void)
{
    mote__kv_layout l = { .block_bytes = 4096, .part_bytes = { 2000, 1000, 900, 196 } };
    for (int i = 0; i < 4; i++)
        l.part_class[i] = (mote_mem_class)(MOTE_MEM_KV_MAIN_CODES + i);
    return l;
}

static void check_account(const mote__kv_pool *p, const mote__meter *m, size_t n_held)
{
    assert_int_equal(p->n_blocks_used, n_held);
    for (int i = 0; i < 4; i++)
        assert_int_equal(m->bytes[p->layout.part_class[i]], n_held * p->layout.part_bytes[i]);
}

static void any_order(void **state)
{
    (void)state;
    rnd r = { 5 };
    mote__meter m = { 0 };
    mote__kv_pool p;
    mote__kv_layout l = small_layout();
    mote__kv_pool_init(&p, &l, &m);
    struct held {
        mote__kv_block *b;
        unsigned refs;
        unsigned char mark;
    } held[MOST];
    size_t n = 0;
    for (int turn = 0; turn < 20000; turn++) {
        size_t what = rnd_below(&r, 10), i = rnd_below(&r, n);
        if (what == 9 && rnd_below(&r, 40) == 0)
            mote__kv_pool_expect(&p, rnd_below(&r, 200));
        /* it fills, then empties, in turns */
        if (what < (turn / 2000 % 2 ? 3u : 6u) && n < MOST) {
            mote__kv_block *b = mote__kv_block_new(&p);
            assert_non_null(b);
            for (size_t k = 0; k < l.block_bytes; k += 61)
                assert_int_equal(mote__kv_block_here(b)[k], 0);
            held[n] = (struct held){ b, 1, (unsigned char)(1 + rnd_below(&r, 255)) };
            memset(mote__kv_block_here(b), held[n].mark, l.block_bytes);
            n++;
        } else if (what < 7 && n) {
            assert_ptr_equal(mote__kv_block_ref(held[i].b), held[i].b);
            held[i].refs++;
        } else if (n) {
            assert_true(mote__kv_block_here(held[i].b)[0] == held[i].mark &&
                        mote__kv_block_here(held[i].b)[l.block_bytes - 1] == held[i].mark);
            mote__kv_block_unref(&p, held[i].b);
            if (--held[i].refs == 0)
                held[i] = held[--n];
        }
        check_account(&p, &m, n);
    }
    while (n--)
        for (unsigned k = 0; k < held[n].refs; k++)
            mote__kv_block_unref(&p, held[n].b);
    check_account(&p, &m, 0);
    mote__kv_block_unref(&p, NULL);
    mote__kv_pool_deinit(&p);
    assert_int_equal(mote__meter_total(&m), 0);
}

static void without_memory(void **state)
{
    (void)state;
    mote__meter m = { 0 };
    mote__kv_pool p;
    mote__kv_layout l = small_layout();
    mote__kv_pool_init(&p, &l, &m);
    mote__kv_block *first = mote__kv_block_new(&p);
    /* the slab's struct, its pages */
    for (long at = 1; at <= 2; at++) {
        mote__alloc_fail_at = at;
        assert_null(mote__kv_block_new(&p));
        mote__kv_pool_expect(&p, 100); /* a hint: nothing happens */
        mote__alloc_fail_at = 0;
        check_account(&p, &m, 1);
    }
    mote__kv_block *second = mote__kv_block_new(&p);
    assert_true(first && second && first != second);
    mote__kv_block_unref(&p, first);
    mote__kv_block_unref(&p, second);
    mote__kv_pool_deinit(&p);
    assert_int_equal(mote__meter_total(&m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(any_order),
                                        cmocka_unit_test(without_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
