/* The arithmetic of the lab: means with errors, specs taken apart, effects of causes, and the words
 * made from them. */
#include <math.h>

#include "lab/blame.h"
#include "lab/kv_text.h"
#include "test.h"

static void means_and_errors(void **state)
{
    (void)state;
    lab_sum s = { 0 };
    assert_true(isnan(lab_sum_mean(&s)) && isnan(lab_sum_error(&s)));
    for (int i = 0; i < 4; i++)
        lab_sum_add(&s, i); /* 0 1 2 3: variance 5/3 */
    assert_true(fabs(lab_sum_mean(&s) - 1.5) < 1e-12 &&
                fabs(lab_sum_error(&s) - sqrt(5.0 / 3 / 4)) < 1e-12);
    /* long waves: single tokens say the mean is sharp, blocks know better */
    lab_sum wave = { 0 }, noise = { 0 };
    rnd r = { 3 };
    for (int i = 0; i < 64 * LAB_BLOCK; i++) {
        lab_sum_add(&wave, i / LAB_BLOCK % 2 ? 1 : -1);
        lab_sum_add(&noise, (double)rnd_unit(&r));
    }
    double n = 64 * LAB_BLOCK, single = 1 / sqrt(n - 1), blocks = 1 / sqrt(63.0);
    assert_true(fabs(lab_sum_error(&wave) - blocks) < 1e-9 && blocks > 5 * single);
    assert_true(lab_sum_error(&noise) < 2 * sqrt(1.0 / 3 / n) &&
                fabs(lab_sum_mean(&noise)) < 3 * lab_sum_error(&noise));
    /* an unfinished block does not run on into the next window */
    lab_sum a = { 0 };
    for (int i = 0; i < 9 * LAB_BLOCK; i++) {
        lab_sum_add(&a, i % LAB_BLOCK);
        if (i == LAB_BLOCK / 2)
            lab_sum_gap(&a);
    }
    assert_int_equal(a.n_blocks, 8);
    assert_true(lab_is_real(0.21, 0.1, LAB_ONE) && !lab_is_real(0.19, 0.1, LAB_ONE) &&
                !lab_is_real(0.21, 0.1, LAB_SEVERAL));
    assert_true(lab_is_real(-0.31, 0.1, LAB_SEVERAL) && !lab_is_real(NAN, 0.1, LAB_ONE) &&
                !lab_is_real(1, NAN, LAB_ONE));
}

static void specs(void **state)
{
    (void)state;
    static const char ours[] = "main=fp4,index=mxfp4,window=fp8", dense[] = "key=bf16,value=bf16";
    static const struct {
        const char *kv;
        unsigned exact;
        const char *joined, *defaults;
    } rows[] = {
        { NULL, 0, "main=fp4,index=mxfp4,window=fp8", NULL },
        { "fp8", 0, "main=fp8,index=mxfp4,window=fp8", NULL },
        { "fp8", 1, "main=f32,index=mxfp4,window=fp8", NULL },
        { "fp8", 7, "main=f32,index=f32,window=f32", NULL },
        { "fp8", 0, "key=fp8,value=fp8", dense },
        { "value.3=f32,key=fp8", 0, "key=fp8,value.3=f32,value=bf16", dense },
        { "value=fp4", 2, "key=bf16,value=f32", dense },
        { "main.8=bf16", 0, "main.8=bf16,main=fp4,index=mxfp4,window=fp8", NULL },
        { "index.2=fp8,main=fp4-64,window=bf16,index=f32,main.4=fp8", 2,
          "main=fp4-64,main.4=fp8,index=f32,window=bf16", NULL },
        { "index.2=fp8,main=fp4-64,window=bf16,index=f32,main.4=fp8", 4,
          "main=fp4-64,main.4=fp8,index.2=fp8,index=f32,window=f32", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lab_spec s;
        char out[LAB_SPEC_BYTES];
        assert_int_equal(lab_spec_split(&s, rows[i].kv, rows[i].defaults ? rows[i].defaults : ours),
                         0);
        lab_spec_join(out, &s, rows[i].exact);
        assert_string_equal(out, rows[i].joined);
    }
    lab_spec s;
    assert_int_equal(lab_spec_split(&s, "tail=fp8", ours), -1);
    assert_int_equal(lab_spec_split(&s, "window=fp8", dense), -1);
    char longest[LAB_SPEC_BYTES] = "";
    for (size_t i = 0; i + 12 < sizeof longest; i += 12)
        memcpy(longest + i, "main.12=fp8,", 13);
    assert_int_equal(lab_spec_split(&s, longest, ours), -1);
}

/* Three causes whose effects are known: the first costs 0.5, the second nothing, the third only
 * helps when the first is there. */
static double known(unsigned on, double base)
{
    return base + (on & 1 ? 0.5 : 0) - ((on & 5) == 5 ? 0.2 : 0);
}

static unsigned mask_of(size_t i, size_t n)
{
    unsigned all = (1u << n) - 1;
    for (size_t c = 0; c < n; c++) {
        if (i == lab_blame_alone(c))
            return 1u << c;
        if (i == lab_blame_without(n, c))
            return all & ~(1u << c);
    }
    return i == lab_blame_full(n) ? all : 0;
}

static void effects_of_causes(void **state)
{
    (void)state;
    enum { N = 3 };
    lab_blame_sums s = { .n_causes = N };
    rnd r = { 9 };
    for (int t = 0; t < 2000; t++) {
        /* tokens differ; effects do not */
        double values[2 * N + 2], token = 3 + (double)rnd_unit(&r);
        for (size_t i = 0; i < lab_blame_cases(N); i++)
            values[i] = known(mask_of(i, N), token) + 0.01 * (double)rnd_unit(&r);
        lab_blame_add(&s, values);
    }
    /* paired: far below the spread of tokens */
    assert_true(fabs(lab_sum_mean(&s.total) - 0.3) < 0.001 && lab_sum_error(&s.total) < 0.001);
    assert_true(fabs(lab_sum_mean(&s.alone[0]) - 0.5) < 0.001 &&
                fabs(lab_sum_mean(&s.last[0]) - 0.3) < 0.001);
    assert_true(fabs(lab_sum_mean(&s.alone[2])) < 0.001 &&
                fabs(lab_sum_mean(&s.last[2]) + 0.2) < 0.001);
    assert_true(fabs(lab_sum_mean(&s.rest) + 0.2) < 0.001);
    assert_int_equal(lab_blame_judge(&s, 0), LAB_GUILTY);
    assert_int_equal(lab_blame_judge(&s, 2), LAB_LAST_ONLY);
    lab_guilt quiet = lab_blame_judge(&s, 1);
    assert_int_equal(quiet, LAB_NOISE);
    static const char *const names[N][3] = { { "first", "f32", "fp4" },
                                             { "second", "f32", "fp8" },
                                             { "third", "all", "64" } };
    json_t *o = lab_blame_json(&s, names, "loss", "nat a token", "token");
    const json_t *verdict = json_object_get(o, "verdict");
    static const char *const words[] = { "loses 0.", "first (fp4 instead of f32) explains",
                                         "third shows only together",
                                         "noise (three standard errors): second.",
                                         "working together" };
    assert_int_equal(json_array_size(verdict), 5);
    for (size_t i = 0; i < 5; i++)
        if (!strstr(json_string_value(json_array_get(verdict, i)), words[i]))
            fail_msg("'%s' does not say '%s'", json_string_value(json_array_get(verdict, i)),
                     words[i]);
    json_decref(o);
}

/* Pure noise: nobody is blamed, and the report says how much text it would take. */
static void noise_blames_nobody(void **state)
{
    (void)state;
    enum { N = 7 };
    static const char *const names[N][3] = { { "a", "x", "y" }, { "b", "x", "y" },
                                             { "c", "x", "y" }, { "d", "x", "y" },
                                             { "e", "x", "y" }, { "f", "x", "y" },
                                             { "g", "x", "y" } };
    int blamed = 0;
    rnd r = { 77 };
    for (int round = 0; round < 40; round++) {
        lab_blame_sums s = { .n_causes = N };
        for (int t = 0; t < 500; t++) {
            double values[2 * N + 2];
            for (size_t i = 0; i < lab_blame_cases(N); i++)
                values[i] = (double)rnd_unit(&r);
            lab_blame_add(&s, values);
        }
        for (size_t c = 0; c < N; c++)
            blamed += lab_blame_judge(&s, c) != LAB_NOISE;
        json_t *o = lab_blame_json(&s, names, "loss", "nat a token", "token");
        const char *first = json_string_value(json_array_get(json_object_get(o, "verdict"), 0));
        assert_true(lab_is_real(lab_sum_mean(&s.total), lab_sum_error(&s.total), LAB_ONE) ==
                    (strstr(first, "within the noise") == NULL));
        json_decref(o);
    }
    /* of 280; three errors let about 0.5 % through */
    assert_true(blamed <= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_and_errors),
        cmocka_unit_test(specs),
        cmocka_unit_test(effects_of_causes),
        cmocka_unit_test(noise_blames_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
