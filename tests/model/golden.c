/* The model against the NumPy reference's recorded results: logits of prefill, decode and both
 * replays, all cache formats. */
#include "double.h"
#include "golden.h"

static json_t *manifest;

static const char *mode_of(const char *file)
{
    return strstr(file, ".plainkv.") ? "plainkv" : strstr(file, ".official.") ? "official" : "fp32";
}

/* Runs every scenario file of `mode` of one checkpoint. */
static deviation run_config(const char *config, const char *mode, const char *kv, double limit)
{
    deviation d = { 0 };
    char path[256];
    snprintf(path, sizeof path, "checkpoints/%s", config);
    mote_model *m = model_open(golden_path(path), MOTE_MATH_FP32, 1);
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(manifest, "cases"), i, c)
    {
        const char *file = json_string_value(json_object_get(c, "file"));
        if (strcmp(json_string_value(json_object_get(c, "config")), config) ||
            json_object_get(c, "kind") || strcmp(mode_of(file), mode))
            continue;
        snprintf(path, sizeof path, "golden/%s", file);
        mote__checkpoint *g = golden_open(golden_path(path));
        deviation one = { 0 };
        scenario(m, g, kv, (size_t)json_integer_value(json_object_get(c, "encreplay_cut")), limit,
                 &one);
        printf("  %-32s %4zu rows, %zu over %g, worst %.2e\n", file, one.rows, one.over, limit,
               one.worst);
        d.rows += one.rows;
        d.over += one.over;
        d.worst = one.worst > d.worst || isnan(one.worst) ? one.worst : d.worst;
        mote__checkpoint_close(g);
    }
    mote_model_close(m);
    assert_true(d.rows > 0);
    return d;
}

static const char *const configs[] = { "tiny-a", "tiny-b", "tiny-c" };

/* unquantised caches: nothing rounds, so everything must agree */
static void plain_kv(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        deviation d = run_config(configs[i], "plainkv", "main=f32,index=f32,window=f32", 1e-3);
        assert_int_equal(d.over, 0);
    }
}

/* default formats: one flipped FP4 rounding moves a logit by up to 0.1 */
static void default_kv(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        deviation d = run_config(configs[i], "fp32", NULL, 2e-3);
        assert_true(d.over * 20 <= d.rows);
        assert_true(d.worst <= 0.3);
    }
}

/* one format replaced at a time; last 8 prefill logits */
static void ablations(void **state)
{
    (void)state;
    static const struct {
        const char *name, *kv;
    } formats[] = {
        { "main.mxfp4_g32", "main=mxfp4" }, { "main.fp8", "main=fp8" },
        { "main.bf16", "main=bf16" },       { "main.fp32", "main=f32" },
        { "window.bf16", "window=bf16" },   { "window.fp4_g16_e4m3", "window=fp4" },
        { "index.fp8", "index=fp8" },       { "index.bf16", "index=bf16" },
    };
    deviation all = { 0 };
    for (size_t i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof path, "checkpoints/%s", configs[i]);
        mote_model *m = model_open(golden_path(path), MOTE_MATH_FP32, 1);
        snprintf(path, sizeof path, "golden/%s.ablation.n97.safetensors", configs[i]);
        mote__checkpoint *g = golden_open(golden_path(path));
        size_t n = 0, rows = 0, vocab = 0, got = 0;
        const int32_t *ids = golden_i32(g, "ids", &n, NULL);
        for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
            const float *want = golden_f32(g, formats[f].name, &rows, &vocab);
            assert_non_null(want);
            mote_session *s = session_open(m, formats[f].kv, MOTE_PREFILL_FULL);
            const float *x = feed(s, ids, n, MOTE_LOGITS_ALL, &got, NULL);
            deviation d = { 0 };
            compare_rows(&d, want, x + (got - rows) * vocab, rows, vocab, 2e-3);
            printf("  %s %-20s %zu of %zu rows over 2e-3, worst %.2e\n", configs[i],
                   formats[f].name, d.over, d.rows, d.worst);
            all.rows += d.rows;
            all.over += d.over;
            all.worst = d.worst > all.worst || isnan(d.worst) ? d.worst : all.worst;
            mote_session_destroy(s);
        }
        mote__checkpoint_close(g);
        mote_model_close(m);
    }
    /* these prompts were not chosen to be stable under every format */
    assert_true(all.over * 10 <= all.rows);
    assert_true(all.worst <= 0.3);
}

/* The same tests went through the double, every part of it that such prompts need, and no block was
 * left. */
static void all_called(void **state)
{
    (void)state;
    static const int elsewhere[] = { CALL_TAKE,     CALL_NARROW,        CALL_STASH,
                                     CALL_UNSTASH,  CALL_DENSE_PROJECT, CALL_DENSE_ATTEND,
                                     CALL_DENSE_ADD }; /* tests/model/layer.c */
    size_t n_called = 0;
    for (int i = 0; i < CALLS; i++)
        n_called += double_counts[i] != 0;
    assert_int_equal(n_called, CALLS - sizeof elsewhere / sizeof elsewhere[0]);
    assert_true(fenced.n_slabs == 0 && fenced.n_open == 0);
}

int main(void)
{
    manifest = json_load_file(source_path("tests/reference/golden-manifest.json"), 0, NULL);
    if (!manifest)
        return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(plain_kv), cmocka_unit_test(default_kv),
                                        cmocka_unit_test(ablations) };
    const struct CMUnitTest doubled[] = { cmocka_unit_test(plain_kv), cmocka_unit_test(default_kv),
                                          cmocka_unit_test(ablations),
                                          cmocka_unit_test(all_called) };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    model_opened = use_double;
    rc |= cmocka_run_group_tests(doubled, NULL, NULL);
    json_decref(manifest);
    return rc;
}
