/* mote_bench_json with tiny shapes: it runs through, checks its answers on the way, and every row
 * has the fields that docs/results/bench.md promises. Wrong requests are named; a cancelled run
 * says so; nothing is left allocated (ASan looks). */
#include "test.h"

#include <math.h>

#include <jansson.h>
#include <mote/mote.h>

#include "bench/bench.h"
#include "num/formats.h"

static json_t *run(mote_bench_params p)
{
    char *text = NULL;
    mote_err err = { 0 };
    p.quick = 1;
    if (mote_bench_json(&text, &p, &err))
        fail_msg("%s", err.message);
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    mote_free(text);
    return o;
}

static void check_number_or_null(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    if (!v || !(json_is_null(v) || (json_is_number(v) && isfinite(json_number_value(v)))))
        fail_msg("%s: '%s' is neither a number nor null",
                 json_string_value(json_object_get(row, "name")), key);
}

static int count_part(const json_t *rows, const char *part)
{
    int n = 0;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
        n += !strcmp(json_string_value(json_object_get(row, "part")), part);
    return n;
}

static void check_rows(const json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        static const char *const strings[] = { "part", "name", "shape", "unit" },
                                 *const numbers[] = { "limit", "ratio", "spread", "target" };
        for (size_t k = 0; k < 4; k++) {
            assert_true(json_is_string(json_object_get(row, strings[k])));
            check_number_or_null(row, numbers[k]);
        }
        assert_true(json_is_number(json_object_get(row, "value")));
        assert_true(json_number_value(json_object_get(row, "value")) >= 0);
        assert_true(json_is_integer(json_object_get(row, "runs")) &&
                    json_is_boolean(json_object_get(row, "lower_is_better")));
        assert_non_null(json_object_get(row, "met"));
        /* tiny shapes meet or miss nothing */
        assert_true(json_is_null(json_object_get(row, "target")) &&
                    json_is_null(json_object_get(row, "met")));
    }
}

static void test_all(void **state)
{
    json_t *o = run((mote_bench_params){ .model = source_path("models/nano"), .n_threads = 2 });
    const json_t *rows = json_object_get(o, "rows"), *limits = json_object_get(o, "limits");
    const char *part;
    for (size_t i = 0; (part = mote_bench_part(i, NULL)); i++)
        if (!count_part(rows, part))
            fail_msg("part '%s' gave no row", part);
    check_rows(rows);
    assert_true(json_number_value(json_object_get(limits, "read_gb_s")) > 0);
    assert_true(json_number_value(json_object_get(limits, "empty_loop_us")) > 0);
    assert_true(
        json_is_null(json_object_get(json_object_get(o, "limits_one_thread"), "empty_loop_us")));
    assert_true(json_is_object(json_object_get(o, "limits_one_thread")) &&
                json_is_object(json_object_get(o, "limits_at_end")));
    assert_int_equal(json_integer_value(json_object_get(o, "threads")), 2);
    assert_true(json_is_true(json_object_get(o, "quick")));
    assert_true(json_integer_value(json_object_get(o, "peak_rss_bytes")) > 0);
    json_decref(o);
}

static void test_choice(void **state)
{
    json_t *o = run((mote_bench_params){ .only = "topk,indexer", .n_threads = 1 });
    const json_t *rows = json_object_get(o, "rows");
    assert_int_equal(count_part(rows, "topk"), 3);
    assert_int_equal(count_part(rows, "topk") + count_part(rows, "indexer"), json_array_size(rows));
    json_decref(o);
    o = run((mote_bench_params){
        .model = source_path("models/nano"), .geometry = MOTE_BENCH_NANO, .n_threads = 1 });
    rows = json_object_get(o, "rows");
    assert_true(count_part(rows, "load") > 0 && count_part(rows, "weights") == 0);
    json_decref(o);
}

static int cancel(void *ctx, const char *what, double fraction)
{
    assert_non_null(what);
    assert_true(fraction >= 0 && fraction <= 1);
    return --*(int *)ctx <= 0;
}

static void test_refusals(void **state)
{
    static const struct {
        mote_bench_params p;
        int code;
        const char *word;
    } cases[] = {
        { { .only = "topk,flux" }, MOTE_EINVAL, "flux" },
        { { .only = "load" }, MOTE_EINVAL, "load" },
        { { .geometry = MOTE_BENCH_NANO }, MOTE_EINVAL, "nano" },
        { { .n_threads = 5000 }, MOTE_EINVAL, "5000" },
        { { .only = "load", .model = "/nonexistent" }, MOTE_EIO, "/nonexistent" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = (char *)&text;
        mote_err err = { 0 };
        mote_bench_params p = cases[i].p;
        p.quick = 1;
        assert_int_equal(mote_bench_json(&text, &p, &err), cases[i].code);
        assert_null(text);
        if (!strstr(err.message, cases[i].word))
            fail_msg("'%s' does not name '%s'", err.message, cases[i].word);
    }
    for (int after = 1; after < 40; after += 12) {
        int left = after;
        char *text;
        mote_err err = { 0 };
        mote_bench_params p = {
            .quick = 1, .n_threads = 2, .progress = cancel, .progress_ctx = &left
        };
        assert_int_equal(mote_bench_json(&text, &p, &err), MOTE_ECANCELED);
        assert_null(text);
    }
}

/* Random weights are usable: no NaN or infinity, and of the size that keeps a product of unit
 * inputs near 1. */
static void test_weights(void **state)
{
    for (int kind = 0; kind < MOTE_W_KINDS; kind++) {
        enum { OUT = 64, IN = 256 };
        size_t bytes = mote__bench_mat_bytes((mote__wkind)kind, OUT, IN);
        uint8_t *memory = mote__bench_pages(bytes), *at = memory;
        assert_non_null(memory);
        mote__mat m = mote__bench_place(&at, (mote__wkind)kind, OUT, IN);
        assert_int_equal(at - memory, bytes);
        mote__bench_fill(NULL, &m, 5);
        float x[IN], *xp = mote__alloc(NULL, MOTE_MEM_SCRATCH, mote__arranged_size(m.kind, IN) * 4),
                     y[OUT];
        float *scratch = mote__alloc(NULL, MOTE_MEM_SCRATCH, MOTE_LINEAR_SCRATCH * 4);
        mote__bench_floats(x, IN, 6);
        mote__arrange(m.kind, xp, x, IN);
        mote__kern_at(0)->linear(&m, 0, OUT, xp, 1, mote__arranged_size(m.kind, IN), y, OUT,
                                 scratch);
        double square = 0;
        for (int o = 0; o < OUT; o++)
            square += (double)y[o] * (double)y[o];
        assert_true(isfinite(square));
        if (!(sqrt(square / OUT) > 0.1 && sqrt(square / OUT) < 10))
            fail_msg("kind %d: outputs of size %g", kind, sqrt(square / OUT));
        mote__free(NULL, MOTE_MEM_SCRATCH, xp, mote__arranged_size(m.kind, IN) * 4);
        mote__free(NULL, MOTE_MEM_SCRATCH, scratch, MOTE_LINEAR_SCRATCH * 4);
        mote__bench_unpages(memory, bytes);
    }
}

static void test_median(void **state)
{
    double t[] = { 5, 1, 4, 2, 3 };
    mote__bench_time m = mote__bench_median(t, 5);
    assert_true(m.median == 3 && m.runs == 5);
    assert_true(fabs(m.spread - (4.0 - 2.0) / 2 / 3) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),      cmocka_unit_test(test_choice),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_median),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
