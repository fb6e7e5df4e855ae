/* --kv: what texts mean, which are refused and how, and the bytes that follow. */
#include "test.h"

#include "kv/layout.h"
#include "kv/state.h"
#include "model/kv_shape.h"

static mote__kv_shape published, tiny, dense;

static int load(mote__kv_shape *shape, const char *file)
{
    static mote__config c;
    mote_err err;
    int rc = mote__config_load(&c, source_path(file), &err);
    mote__kv_shape_of(shape, &c);
    return rc;
}

static int setup(void **state)
{
    (void)state;
    return load(&published, "tests/data/config/v41-flash.json") ||
           load(&tiny, "tests/data/config/tiny-a.json") ||
           load(&dense, "tests/data/config/deepseek-67b.json");
}

/* Of global KV, a token; of the windows of a sequence. */
static double bytes_per_token(const mote__kv_spec *spec, const mote__kv_shape *shape,
                              double parts[4])
{
    mote__kv_layout l;
    mote__kv_layout_init(&l, shape, spec);
    for (int i = 0; i < 4; i++)
        parts[i] = mote__kv_layout_part_per_token(&l, i);
    return mote__kv_layout_bytes_per_token(&l);
}

static size_t window_bytes(const mote__kv_spec *spec, const mote__kv_shape *shape)
{
    mote__kv_state s;
    assert_int_equal(mote__kv_state_init(&s, shape, spec, NULL), 0);
    size_t n = s.n_layers * s.window * s.row_bytes;
    mote__kv_state_deinit(&s);
    return n;
}

static void test_good(void **state)
{
    (void)state;
    /* text, the same written back, bytes per token, window bytes */
    static const struct {
        const char *text, *back;
        double bytes, main, index;
        size_t window;
    } rows[] = {
        { NULL, "main=fp4,index=mxfp4,window=fp8", 890, 720, 170, 2703360 },
        { "", "main=fp4,index=mxfp4,window=fp8", 890, 720, 170, 2703360 },
        { "fp4", "main=fp4,index=mxfp4,window=fp8", 890, 720, 170, 2703360 },
        { "mxfp4", "main=mxfp4,index=mxfp4,window=fp8", 850, 680, 170, 2703360 },
        { "fp4-32", "main=fp4-32,index=mxfp4,window=fp8", 850, 680, 170, 2703360 },
        { "main=fp4-64", "main=fp4-64,index=mxfp4,window=fp8", 830, 660, 170, 2703360 },
        { "fp4-128,window=bf16", "main=fp4-128,index=mxfp4,window=bf16", 820, 650, 170, 5242880 },
        { "fp8,index=fp8", "main=fp8,index=fp8,window=fp8", 1650, 1320, 330, 2703360 },
        { "index=bf16,main=bf16,window=bf16", "main=bf16,index=bf16,window=bf16", 3200, 2560, 640,
          5242880 },
        { "f32,index=f32,window=f32", "main=f32,index=f32,window=f32", 6400, 5120, 1280, 10485760 },
        { "main.8=fp8", "main=fp4,main.8=fp8,index=mxfp4,window=fp8", 1010, 840, 170, 2703360 },
        { "main.8=fp8,main=bf16", "main=bf16,main.8=fp8,index=mxfp4,window=fp8", 2482, 2312, 170,
          2703360 },
        { "index.20=bf16", "main=fp4,index=mxfp4,index.20=bf16,window=fp8", 1078, 720, 358,
          2703360 },
        { "main.2=fp8,main.8=fp8,main.14=fp8", "main=fp8,main.20=fp4,index=mxfp4,window=fp8", 1250,
          1080, 170, 2703360 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mote__kv_spec s, again;
        mote_err err = { 0 };
        double parts[4];
        if (mote__kv_spec_parse(&s, rows[i].text, &published, &err))
            fail_msg("%s: %s", rows[i].text, err.message);
        char *back = mote__kv_spec_text(&s, &published);
        assert_string_equal(back, rows[i].back);
        assert_int_equal(mote__kv_spec_parse(&again, back, &published, &err), 0);
        assert_memory_equal(&s, &again, sizeof s);
        free(back);
        if (bytes_per_token(&s, &published, parts) != rows[i].bytes)
            fail_msg("%s: %g bytes", rows[i].text, parts[0] + parts[1] + parts[2] + parts[3]);
        assert_true(parts[0] + parts[1] == rows[i].main && parts[2] + parts[3] == rows[i].index);
        assert_int_equal(window_bytes(&s, &published), rows[i].window);
    }
    mote__kv_spec s;
    double parts[4];
    assert_int_equal(mote__kv_spec_parse(&s, NULL, &published, NULL), 0);
    bytes_per_token(&s, &published, parts);
    assert_true(parts[0] == 640 && parts[1] == 80 && parts[2] == 160 && parts[3] == 10);
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *words;
    } rows[] = {
        { "fp5", MOTE_EINVAL,
          "kv formats: 'fp5' is no format; there are fp4, mxfp4, fp4-32, fp4-64, fp4-128, fp8, "
          "bf16, f32" },
        { "main=", MOTE_EINVAL, "'main=': '' is no format" },
        { "main=FP4", MOTE_EINVAL, "'FP4' is no format" },
        { "fp4 ", MOTE_EINVAL, "'fp4 ' is no format" },
        { "keys=fp4", MOTE_EINVAL,
          "'keys=fp4': 'keys' is no part of the cache; there are main, index, window" },
        { "=fp4", MOTE_EINVAL, "'' is no part of the cache" },
        { "main,fp4", MOTE_EINVAL, "'main' is no format" },
        { "main.9=fp8", MOTE_EINVAL,
          "'main.9=fp8': '9' is no KV source of this model; there are 2, 8, 14, 20" },
        { "main.=fp8", MOTE_EINVAL, "'' is no KV source" },
        { "main.08=fp8", MOTE_EINVAL, "'08' is no KV source" },
        { "window.2=fp8", MOTE_EINVAL, "'window.2=fp8': window has one format for all layers" },
        { "main=fp4,fp8", MOTE_EINVAL, "'fp8': main is given twice" },
        { "main.8=fp4,main.8=fp8", MOTE_EINVAL, "'main.8=fp8': main.8 is given twice" },
        { "fp4,", MOTE_EINVAL, "an empty word" },
        { ",fp4", MOTE_EINVAL, "an empty word" },
        { "fp4,,index=fp8", MOTE_EINVAL, "an empty word" },
    };
    mote__kv_spec s;
    mote_err err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err = (mote_err){ 0 };
        int rc = mote__kv_spec_parse(&s, rows[i].text, &published, &err);
        if (rc != rows[i].code || !strstr(err.message, rows[i].words) ||
            strncmp(err.message, "kv formats: ", 12))
            fail_msg("%s: %d '%s', expected '%s'", rows[i].text, rc, err.message, rows[i].words);
    }
    /* groups must divide the vectors: head_dim 32, index_head_dim 32 */
    assert_int_equal(mote__kv_spec_parse(&s, "fp4-32", &tiny, &err), 0);
    assert_int_equal(mote__kv_spec_parse(&s, "fp4-64", &tiny, &err), MOTE_EUNSUPPORTED);
    assert_non_null(
        strstr(err.message, "fp4-64 stores groups of 64 values, this model's 'head_dim' is 32"));
    assert_int_equal(mote__kv_spec_parse(&s, "main.5=fp4-128", &tiny, &err), MOTE_EUNSUPPORTED);
    /* a word of any length */
    static char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    assert_int_equal(mote__kv_spec_parse(&s, longest, &published, &err), MOTE_EINVAL);
}

/* A model of keys and values: 95 layers x 8 heads x 128. */
static void test_dense(void **state)
{
    (void)state;
    static const struct {
        const char *text, *back;
        double bytes, key, value;
    } rows[] = {
        { NULL, "key=bf16,value=bf16", 389120, 194560, 194560 },
        { "fp8", "key=fp8,value=fp8", 200640, 100320, 100320 },
        { "key=fp8,value=fp4", "key=fp8,value=fp4", 155040, 100320, 54720 },
        { "value=fp4-128", "key=bf16,value=fp4-128", 243960, 194560, 49400 },
        { "mxfp4,key.3=bf16,value.94=f32", "key=mxfp4,key.3=bf16,value=mxfp4,value.94=f32", 108416,
          53184, 55232 },
    };
    mote__kv_spec s, again;
    mote_err err = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double parts[4];
        if (mote__kv_spec_parse(&s, rows[i].text, &dense, &err))
            fail_msg("%s: %s", rows[i].text, err.message);
        char *back = mote__kv_spec_text(&s, &dense);
        assert_string_equal(back, rows[i].back);
        assert_int_equal(mote__kv_spec_parse(&again, back, &dense, NULL), 0);
        assert_memory_equal(&s, &again, sizeof s);
        free(back);
        double sum = bytes_per_token(&s, &dense, parts);
        if (sum != rows[i].bytes || parts[0] + parts[1] != rows[i].key ||
            parts[2] + parts[3] != rows[i].value)
            fail_msg("%s: %g bytes, %g + %g", rows[i].back, sum, parts[0] + parts[1],
                     parts[2] + parts[3]);
        assert_int_equal(window_bytes(&s, &dense), 0);
    }
    static const struct {
        const char *text, *words;
    } bad[] = {
        { "main=fp8", "'main' is no part of the cache; there are key, value" },
        { "window=fp8", "'window' is no part of the cache" },
        { "fp8,value=fp4", "'value=fp4': value is given twice" },
        { "key=fp8,fp4", "'fp4': key is given twice" },
        { "key.95=fp8", "'95' is no KV source" },
        { "fp3", "'fp3' is no format" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mote__kv_spec_parse(&s, bad[i].text, &dense, &err), MOTE_EINVAL);
        if (!strstr(err.message, bad[i].words))
            fail_msg("%s: '%s', expected '%s'", bad[i].text, err.message, bad[i].words);
    }
    /* groups may not cross from one head to the next */
    mote__kv_shape narrow = dense;
    narrow.main_vector = narrow.index_vector = 64;
    assert_int_equal(mote__kv_spec_parse(&s, "value=fp4-128", &narrow, &err), MOTE_EUNSUPPORTED);
    assert_non_null(
        strstr(err.message, "fp4-128 stores groups of 128 values, this model's 'head_dim' is 64"));
}

/* Any text gives an answer and, if it is taken, comes back the same. */
static void test_random(void **state)
{
    (void)state;
    static const char *const bits[] = { "main", "index", "window", "=", ".",  ",", "fp4", "mxfp4",
                                        "fp8",  "bf16",  "f32",    "8", "20", "x", "" };
    rnd r = { 4 };
    int taken = 0;
    for (int i = 0; i < 200000; i++) {
        char text[200] = "";
        for (size_t k = rnd_below(&r, 10); k; k--)
            strcat(text, bits[rnd_below(&r, sizeof bits / sizeof *bits)]);
        mote__kv_spec s, again;
        mote_err err = { 0 };
        if (mote__kv_spec_parse(&s, text, &published, &err)) {
            assert_true(err.message[0] != 0);
            continue;
        }
        taken++;
        char *back = mote__kv_spec_text(&s, &published);
        assert_int_equal(mote__kv_spec_parse(&again, back, &published, NULL), 0);
        assert_memory_equal(&s, &again, sizeof s);
        free(back);
    }
    assert_true(taken > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_good), cmocka_unit_test(test_bad),
                                        cmocka_unit_test(test_dense),
                                        cmocka_unit_test(test_random) };
    return cmocka_run_group_tests(tests, setup, NULL);
}
