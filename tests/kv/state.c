/* Window rings against a list of rows that forgets nothing; copies that are independent. */
#include "kv/state.h"
#include "test.h"

enum { LAYERS = 3, WINDOW = 7, DIM = 32, END = 400 };

static mote__kv_shape small_shape(void)
{
    mote__kv_shape c = { .n_layers = LAYERS,
                         .window = WINDOW,
                         .main_vector = DIM,
                         .n_sources = 2,
                         .source_layer = { 1, 2 },
                         .ratio = { 4, 1 } };
    return c;
}

static unsigned char byte_of(size_t layer, uint64_t pos, unsigned turn)
{
    return (unsigned char)(layer * 97 + pos * 31 + turn * 7);
}

static void rings_hold_the_newest(void **state)
{
    (void)state;
    rnd r = { 11 };
    mote__meter m = { 0 };
    mote__kv_shape c = small_shape();
    mote__kv_spec spec;
    mote_err err;
    assert_int_equal(mote__kv_spec_parse(&spec, "window=bf16", &c, &err), 0);
    mote__kv_state s;
    assert_int_equal(mote__kv_state_init(&s, &c, &spec, &m), 0);
    assert_int_equal(m.bytes[MOTE_MEM_KV_WINDOW], (s.bytes + 63) / 64 * 64);
    uint8_t *rows = malloc(64 * s.row_bytes);
    for (unsigned turn = 0; turn < 300; turn++) {
        size_t layer = rnd_below(&r, LAYERS);
        /* a gap, mostly: the ring starts anew */
        uint64_t first = rnd_below(&r, END), at = first;
        if (s.ring[layer].end == at)
            continue;
        for (int piece = 0; piece < 4; piece++) {
            size_t n = rnd_below(&r, 20);
            for (size_t i = 0; i < n; i++)
                memset(rows + i * s.row_bytes, byte_of(layer, at + i, turn), s.row_bytes);
            mote__kv_window_push(&s, layer, at, rows, n);
            at += n;
            if (at == first)
                continue;
            uint64_t start = at - first > WINDOW ? at - WINDOW : first;
            assert_true(s.ring[layer].start == start && s.ring[layer].end == at);
            for (uint64_t p = start; p < at; p++) {
                mote__kv_ref ref = mote__kv_window(&s, layer, p);
                assert_int_equal(ref.codes[0], byte_of(layer, p, turn));
                assert_int_equal(mote__kv_window_row(&s, layer, p)[s.row_bytes - 1],
                                 byte_of(layer, p, turn));
            }
        }
    }
    mote__kv_state_clear_windows(&s, 1, 2);
    assert_true(s.ring[1].start == 0 && s.ring[1].end == 0 && s.ring[0].end > 0);
    free(rows);
    mote__kv_state_deinit(&s);
    assert_int_equal(mote__meter_total(&m), 0);
}

static void copies_are_independent(void **state)
{
    (void)state;
    mote__meter m = { 0 };
    mote__kv_shape c = small_shape();
    mote__kv_spec spec;
    mote_err err;
    assert_int_equal(mote__kv_spec_parse(&spec, NULL, &c, &err), 0);
    mote__kv_state a, b;
    assert_int_equal(mote__kv_state_init(&a, &c, &spec, &m), 0);
    /* ratio 4 leaves at most 3 rows; ratio 1 none */
    assert_int_equal(a.pending_floats, 3 * 2 * DIM);
    a.n_pending[0] = 2;
    mote__kv_pending(&a, 0, 1, 1)[DIM - 1] = 5;
    mote__kv_pending(&a, 0, 1, 0)[0] = 6;
    a.ring[2] = (mote__kv_ring){ 3, 9 };
    mote__alloc_fail_at = 1;
    assert_int_equal(mote__kv_state_clone(&b, &a), MOTE_ENOMEM);
    mote__alloc_fail_at = 0;
    assert_int_equal(mote__kv_state_clone(&b, &a), 0);
    assert_memory_equal(a.memory, b.memory, a.bytes);
    assert_true(b.memory != a.memory && b.pending != a.pending && b.n_pending[0] == 2);
    mote__kv_pending(&b, 0, 1, 1)[DIM - 1] = 7;
    b.ring[2].end = 10;
    b.n_pending[0] = 1;
    assert_true(mote__kv_pending(&a, 0, 1, 1)[DIM - 1] == 5 && a.ring[2].end == 9);
    mote__kv_state_copy(&a, &b);
    assert_true(mote__kv_pending(&a, 0, 1, 1)[DIM - 1] == 7 && a.ring[2].end == 10 &&
                a.n_pending[0] == 1);
    mote__kv_state_clear_pending(&a);
    assert_true(a.n_pending[0] == 0 && b.n_pending[0] == 1);
    mote__kv_state_deinit(&a);
    mote__kv_state_deinit(&b);
    assert_int_equal(mote__meter_total(&m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rings_hold_the_newest),
                                        cmocka_unit_test(copies_are_independent) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
