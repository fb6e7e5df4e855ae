/* Placement of weights: what auto chooses; copied or mapped, the same bits; nothing leaks, also
 * where memory ends or the caller has enough. */
#include "test.h"

#include <mote/mote.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "model/place.h"

static const char *nano(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/models/nano", getenv("MOTE_SOURCE_ROOT"));
    return path;
}

static void test_choose(void **state)
{
    const uint64_t G = (uint64_t)1 << 30;
    assert_int_equal(mote__place_choose(MOTE_WEIGHTS_AUTO, 4 * G, 8 * G), MOTE_WEIGHTS_COPY);
    assert_int_equal(mote__place_choose(MOTE_WEIGHTS_AUTO, 4 * G, 8 * G - 2), MOTE_WEIGHTS_MAP);
    assert_int_equal(mote__place_choose(MOTE_WEIGHTS_AUTO, 32 * G, UINT64_MAX), MOTE_WEIGHTS_COPY);
    assert_int_equal(mote__place_choose(MOTE_WEIGHTS_AUTO, 32 * G + 1, UINT64_MAX),
                     MOTE_WEIGHTS_MAP);
    assert_int_equal(mote__place_choose(MOTE_WEIGHTS_COPY, 40 * G, 0), MOTE_WEIGHTS_COPY);
    assert_int_equal(mote__place_choose(MOTE_WEIGHTS_MAP, 1, UINT64_MAX), MOTE_WEIGHTS_MAP);
    assert_true(mote__memory_available() > 0);
}

static void logits_of(mote_weights mode, float *out, size_t n)
{
    mote_err err = { 0 };
    mote_model *m;
    mote_model_info info;
    mote_memory memory;
    mote_session *s;
    const int32_t ids[5] = { 0, 100, 200, 300, 7 };
    mote_model_params p = { .n_threads = 2, .weights = mode, .no_tokenizer = 1 };
    mote_session_params sp = { 0 };
    size_t rows, first;
    assert_int_equal(mote_model_open(&m, nano(), &p, &err), 0);
    mote_model_get_info(m, &info);
    mote_model_get_memory(m, &memory);
    assert_int_equal(info.weights, mode == MOTE_WEIGHTS_MAP ? MOTE_WEIGHTS_MAP : MOTE_WEIGHTS_COPY);
    /* copied bytes are counted instead of mapped ones; small vectors and tables beside; rounding of
     * 64 bytes, one huge page more */
    const size_t weights = memory.bytes[MOTE_MEM_WEIGHTS];
    assert_true(weights >= info.weight_bytes &&
                weights < info.weight_bytes + (mode == MOTE_WEIGHTS_MAP ? 1 << 20 : 4 << 20));
    assert_int_equal(mote_session_create(&s, m, &sp, &err), 0);
    mote_feed feed = { .session = s, .ids = ids, .n_ids = 5, .logits = MOTE_LOGITS_LAST };
    assert_int_equal(mote_run(m, &feed, 1, NULL, NULL, &err), 0);
    const float *logits = mote_session_logits(s, &rows, &first);
    assert_int_equal(rows, 1);
    assert_true(n <= info.vocab);
    memcpy(out, logits, n * sizeof *out);
    mote_session_destroy(s);
    mote_model_close(m);
}

static void test_same(void **state)
{
    enum { N = 4096 };
    static float mapped[N], copied[N], chosen[N];
    logits_of(MOTE_WEIGHTS_MAP, mapped, N);
    logits_of(MOTE_WEIGHTS_COPY, copied, N);
    logits_of(MOTE_WEIGHTS_AUTO, chosen, N);
    assert_memory_equal(mapped, copied, sizeof mapped);
    assert_memory_equal(mapped, chosen, sizeof mapped);
}

static int enough(void *ctx, const char *what, double fraction)
{
    assert_true(fraction >= 0 && fraction <= 1 && what);
    ++*(int *)ctx;
    return 1;
}

/* the copy itself, with a caller who cancels, with no pool, and where the meter must come back to
 * what it was */
static void test_weights(void **state)
{
    mote_err err = { 0 };
    mote__meter meter = { 0 };
    mote__config c;
    mote__weights w;
    char file[4200];
    int calls = 0;
    snprintf(file, sizeof file, "%s/config.json", nano());
    assert_int_equal(mote__config_load(&c, file, &err), 0);
    assert_int_equal(mote__weights_open(&w, nano(), &c, &meter, &err), 0);
    const size_t mapped = mote__meter_total(&meter);
    const uint8_t *where = w.layers[3].wq_b.data, *embed = w.embed.data;
    int rc = mote__weights_place(&w, MOTE_WEIGHTS_COPY, NULL, enough, &calls, &err);
    assert_int_equal(rc, MOTE_ECANCELED); /* and nothing has changed */
    assert_int_equal(calls, 1);
    assert_true(w.layers[3].wq_b.data == where && !w.copy && mote__meter_total(&meter) == mapped);
    assert_int_equal(mote__weights_place(&w, MOTE_WEIGHTS_COPY, NULL, NULL, NULL, &err), 0);
    const mote__mat *m = &w.layers[3].wq_b;
    assert_true(w.copy && m->data != where && w.embed.data == embed);
    assert_true((uintptr_t)m->data % 64 == 0);
    assert_memory_equal(m->data, where, m->n_out * m->n_in);
    mote__weights_close(&w);
    assert_int_equal(mote__meter_total(&meter), 0);

    /* no memory: an error where a copy was asked for, the mapping where it was not */
    for (int auto_too = 0; auto_too < 2; auto_too++) {
        assert_int_equal(mote__weights_open(&w, nano(), &c, &meter, &err), 0);
        mote__alloc_fail_at = 1;
        rc = mote__weights_place(&w, auto_too ? MOTE_WEIGHTS_AUTO : MOTE_WEIGHTS_COPY, NULL, NULL,
                                 NULL, &err);
        mote__alloc_fail_at = 0;
        assert_int_equal(rc, auto_too ? 0 : MOTE_ENOMEM);
        assert_true(!w.copy && mote__meter_total(&meter) == mapped);
        mote__weights_close(&w);
    }
    assert_int_equal(mote__meter_total(&meter), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_choose), cmocka_unit_test(test_same),
                                        cmocka_unit_test(test_weights) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
