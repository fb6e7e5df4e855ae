/* Batches against a plain list of tokens: numbering, rows, cones. */
#include "model/batch.h"
#include "test.h"

enum { MOST = 6, LONGEST = 40 };

static size_t minus(size_t a, size_t b) { return a > b ? a - b : 0; }

/* Rows are exactly the tokens from skip on, in order. */
static void check_rows(const mote__batch *b)
{
    size_t token = 0, row = 0;
    for (size_t i = 0; i < b->n_extents; i++)
        for (size_t k = 0; k < b->extents[i].n; k++, token++) {
            if (k < b->extents[i].skip)
                continue;
            assert_true(row < b->n_rows);
            assert_int_equal(b->rows[row].extent, i);
            assert_int_equal(b->rows[row].token, token);
            assert_int_equal(b->rows[row].pos, b->extents[i].pos + k);
            assert_int_equal(b->row_token[row++], token);
        }
    assert_int_equal(row, b->n_rows);
    assert_int_equal(token, b->n_tokens);
}

static void random_batches(void **state)
{
    (void)state;
    rnd r = { 17 };
    mote__meter meter = { 0 };
    mote__batch b;
    mote__config c = { .index_topk = 4 };
    mote__seq seq[MOST] = { 0 };
    mote__batch_init(&b, &meter);
    for (int turn = 0; turn < 3000; turn++) {
        mote__extent e[MOST];
        size_t n = 1 + rnd_below(&r, MOST), first[MOST], top = 1 + rnd_below(&r, 6),
               window = 1 + rnd_below(&r, 8), room = 4;
        for (size_t i = 0; i < n; i++) {
            uint64_t pos = rnd_below(&r, 100);
            size_t all = 1 + rnd_below(&r, LONGEST);
            seq[i].topk = rnd_below(&r, 3) ? 0 : 1 + rnd_below(&r, 60);
            e[i] = (mote__extent){ .seq = &seq[i],
                                   .pos = pos,
                                   .n = all,
                                   .apex = rnd_below(&r, 2) ? pos + rnd_below(&r, all + 5) : 0,
                                   .skip = rnd_below(&r, 4) ? 0 : rnd_below(&r, all + 1) };
            first[i] = e[i].skip;
            /* the least power of two times 4 that is asked for, or that there are tokens for */
            size_t here = 4;
            while (here < seq[i].topk && here < pos + all)
                here *= 2;
            room = here > room ? here : room;
        }
        assert_int_equal(mote__batch_begin(&b, &c, e, n), 0);
        assert_int_equal(b.topk_room, room);
        check_rows(&b);
        for (size_t layer = 0; layer < top; layer++) {
            size_t reach = (top - 1 - layer) * (window - 1), dropped = 0, before = b.n_rows;
            mote__batch_mark_windows(&b);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(e[i].window_skip, e[i].skip);
            size_t got = mote__batch_narrow(&b, layer, top, window);
            for (size_t i = 0; i < n; i++) {
                /* live: not skipped at first, and at or behind q_start(layer) */
                size_t start = minus((size_t)e[i].apex, reach), skip = first[i];
                while (skip < e[i].n && e[i].pos + skip < start)
                    skip++;
                assert_int_equal(e[i].skip, skip);
                assert_int_equal(e[i].dropped, skip - e[i].window_skip);
                dropped += e[i].dropped;
            }
            assert_int_equal(got, dropped);
            assert_int_equal(b.n_rows, before - dropped);
            check_rows(&b);
        }
        if (rnd_below(&r, 50) == 0)
            mote__batch_shrink(&b);
    }
    mote__batch_shrink(&b);
    assert_int_equal(mote__meter_total(&meter), 0);
}

/* A batch that no memory is left for says so, and the next one is whole. */
static void no_memory(void **state)
{
    (void)state;
    mote__meter meter = { 0 };
    mote__batch b;
    mote__config c = { .index_topk = 4 };
    mote__seq seq = { 0 };
    mote__extent e = { .seq = &seq, .n = 100 };
    mote__batch_init(&b, &meter);
    mote__alloc_fail_at = 1;
    assert_int_equal(mote__batch_begin(&b, &c, &e, 1), MOTE_ENOMEM);
    mote__alloc_fail_at = 0;
    assert_int_equal(mote__batch_begin(&b, &c, &e, 1), 0);
    check_rows(&b);
    mote__batch_shrink(&b);
    assert_int_equal(mote__meter_total(&meter), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_batches),
                                        cmocka_unit_test(no_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
