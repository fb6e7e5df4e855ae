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
#define A MOTE_WEIGHTS_AUTO
#define C MOTE_WEIGHTS_COPY
#define M MOTE_WEIGHTS_MAP
#define S MOTE_WEIGHTS_STREAM
    /* groups: dense, shared, head, experts, embed, engram; sizes in GiB; +1: a byte more */
    static const struct {
        mote_weights asked[6];
        uint64_t gib[6], more, available_gib;
        mote_weights want[6];
    } cases[] = {
        { { A, A, A, A, A, A }, { 1, 1, 1, 1, 9, 9 }, 0, 8, { C, C, C, C, M, M } },
        { { A, A, A, A, A, A }, { 1, 1, 1, 1, 9, 9 }, 1, 8, { C, C, C, S, S, S } },
        { { A, A, A, A, A, A }, { 8, 1, 1, 269, 1, 189 }, 0, 60, { C, C, C, S, S, S } },
        { { A, A, A, A, A, A }, { 20, 1, 1, 10, 1, 1 }, 0, 999, { C, C, C, C, M, M } },
        { { A, A, A, A, A, A }, { 20, 1, 1, 10, 1, 1 }, 1, 999, { C, C, C, S, S, S } },
        { { A, A, A, A, A, A }, { 40, 1, 1, 5, 1, 1 }, 0, 999, { M, C, C, C, M, M } },
        { { C, C, C, C, C, C }, { 40, 9, 9, 9, 9, 9 }, 0, 0, { C, C, C, C, C, C } },
        { { M, M, M, M, M, M }, { 1, 1, 1, 1, 1, 1 }, 0, 999, { M, M, M, M, M, M } },
        /* tables go together, and where one of them was asked for */
        { { A, A, A, S, M, A }, { 1, 1, 1, 9, 1, 1 }, 0, 8, { C, C, C, S, M, M } },
        { { A, A, A, S, A, C }, { 1, 1, 1, 9, 1, 1 }, 0, 8, { C, C, C, S, M, C } },
        { { A, A, A, S, A, A }, { 1, 1, 1, 9, 1, 1 }, 0, 8, { C, C, C, S, S, S } },
        /* without experts nothing is streamed */
        { { C, A, A, A, A, A }, { 40, 0, 1, 0, 1, 0 }, 0, 60, { C, M, M, M, M, M } },
        /* what was asked for takes its part of the room */
        { { A, A, A, C, A, C }, { 2, 1, 1, 4, 1, 1 }, 0, 14, { C, M, M, C, M, C } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mote_weights placing[MOTE_WEIGHT_GROUPS];
        uint64_t bytes[MOTE_WEIGHT_GROUPS];
        memcpy(placing, cases[i].asked, sizeof placing);
        for (size_t g = 0; g < MOTE_WEIGHT_GROUPS; g++)
            bytes[g] = cases[i].gib[g] * G + (g == MOTE_GROUP_EXPERTS ? cases[i].more : 0);
        mote__place_choose(placing, bytes, cases[i].available_gib * G);
        for (size_t g = 0; g < MOTE_WEIGHT_GROUPS; g++)
            if (placing[g] != cases[i].want[g])
                fail_msg("case %zu, %s: %d", i, mote_weight_group_name((mote_weight_group)g),
                         (int)placing[g]);
    }
    assert_true(mote__memory_available() > 0);
}

static void logits_of(mote_weights mode, const mote_weights *places, float *out, size_t n)
{
    mote_err err = { 0 };
    mote_model *m;
    mote_model_info info;
    mote_memory memory;
    mote_session *s;
    const int32_t ids[5] = { 0, 100, 200, 300, 7 };
    mote_model_params p = { .n_threads = 2, .weights = mode, .no_tokenizer = 1 };
    if (places)
        memcpy(p.place, places, MOTE_WEIGHT_GROUPS * sizeof *places);
    mote_session_params sp = { 0 };
    size_t rows, first;
    assert_int_equal(mote_model_open(&m, nano(), &p, &err), 0);
    mote_model_get_info(m, &info);
    mote_model_get_memory(m, &memory);
    for (int g = 0; g < MOTE_GROUP_EMBED && !places; g++)
        assert_int_equal(info.placed[g],
                         mode == MOTE_WEIGHTS_MAP ? MOTE_WEIGHTS_MAP : MOTE_WEIGHTS_COPY);
    uint64_t all = 0;
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++) {
        assert_true(info.group_bytes[g] > 0);
        all += info.group_bytes[g];
        if (places)
            assert_int_equal(info.placed[g], places[g]);
    }
    assert_int_equal(all, info.weight_bytes);
    /* copied bytes are counted instead of mapped ones; small vectors and tables beside; rounding of
     * 64 bytes, one huge page more */
    const size_t weights = memory.bytes[MOTE_MEM_WEIGHTS];
    assert_true(weights >= info.weight_bytes &&
                weights <
                    info.weight_bytes + (mode == MOTE_WEIGHTS_MAP && !places ? 1 << 20 : 4 << 20));
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
    logits_of(MOTE_WEIGHTS_MAP, NULL, mapped, N);
    logits_of(MOTE_WEIGHTS_COPY, NULL, copied, N);
    logits_of(MOTE_WEIGHTS_AUTO, NULL, chosen, N);
    assert_memory_equal(mapped, copied, sizeof mapped);
    assert_memory_equal(mapped, chosen, sizeof mapped);
    rnd r = { 5 };
    for (int i = 0; i < 8; i++) { /* each group by itself */
        mote_weights places[MOTE_WEIGHT_GROUPS];
        for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++)
            places[g] = rnd_below(&r, 2) ? MOTE_WEIGHTS_COPY : MOTE_WEIGHTS_MAP;
        logits_of(i % 2 ? MOTE_WEIGHTS_MAP : MOTE_WEIGHTS_AUTO, places, chosen, N);
        assert_memory_equal(mapped, chosen, sizeof mapped);
    }
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
    mote_weights all[MOTE_WEIGHT_GROUPS], automatic[MOTE_WEIGHT_GROUPS] = { 0 };
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++)
        all[g] = g < MOTE_GROUP_EMBED ? MOTE_WEIGHTS_COPY : MOTE_WEIGHTS_MAP;
    int rc = mote__weights_place(&w, all, NULL, enough, &calls, &err);
    assert_int_equal(rc, MOTE_ECANCELED); /* and nothing has changed */
    assert_int_equal(calls, 1);
    assert_true(w.layers[3].wq_b.data == where && !w.copy && mote__meter_total(&meter) == mapped);
    assert_int_equal(mote__weights_place(&w, all, NULL, NULL, NULL, &err), 0);
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
        rc = mote__weights_place(&w, auto_too ? automatic : all, NULL, NULL, NULL, &err);
        mote__alloc_fail_at = 0;
        assert_int_equal(rc, auto_too ? 0 : MOTE_ENOMEM);
        if (!auto_too)
            assert_non_null(strstr(err.message, "(dense, shared, head, experts: "));
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
