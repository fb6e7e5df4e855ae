/* inspect and doctor: the nano model is complete; missing, wrong and unknown tensors of a
 * checkpoint are listed by name. */
#include "test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <mote/mote.h>

#include "file/safetensors.h"

static json_t *inspect(const char *path)
{
    char *text;
    mote_err err = { 0 };
    if (mote_inspect_json(path, &text, &err))
        fail_msg("%s", err.message);
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    free(text);
    return o;
}
static json_int_t num(const json_t *o, const char *key)
{
    assert_true(json_is_integer(json_object_get(o, key)));
    return json_integer_value(json_object_get(o, key));
}
static const char *str(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void test_nano(void **state)
{
    (void)state;
    json_t *o = inspect(source_path("models/nano")), *x;
    const json_t *c = json_object_get(o, "completeness");
    assert_true(json_is_true(json_object_get(c, "complete")));
    assert_int_equal(num(c, "expected"), num(o, "n_tensors"));
    assert_int_equal(num(c, "found"), num(o, "n_tensors"));
    assert_int_equal(num(c, "n_unknown"), 0);
    static const json_int_t counts[] = { 12, 3, 2, 5, 3, 2, 144 };
    size_t i;
    json_array_foreach(json_object_get(c, "counts"), i, x)
        assert_true(num(x, "expected") == counts[i] && num(x, "found") == counts[i]);
    assert_int_equal(i, 7);
    assert_int_equal(num(json_object_get(o, "config"), "layers"), 12);
    /* three sums that must be equal */
    json_int_t bytes[3] = { 0 }, tensors[3] = { 0 };
    json_array_foreach(json_object_get(o, "shards"), i, x) bytes[0] += num(x, "tensor_bytes"),
        tensors[0] += num(x, "tensors");
    json_array_foreach(json_object_get(o, "classes"), i, x) bytes[1] += num(x, "bytes"),
        tensors[1] += num(x, "tensors");
    json_array_foreach(json_object_get(o, "tensors"), i, x) bytes[2] += num(x, "bytes"),
        tensors[2]++;
    for (i = 0; i < 3; i++)
        assert_true(bytes[i] == num(o, "tensor_bytes") && tensors[i] == num(o, "n_tensors"));
    json_decref(o);
}

/* A damaged copy of the nano model: three tensors removed, one of another shape, unknown ones
 * added. */
static void test_incomplete(void **state)
{
    (void)state;
    char folder[] = "/tmp/mote-test-XXXXXX", path[100], command[400];
    assert_non_null(mkdtemp(folder));
    mote__checkpoint *nano;
    assert_int_equal(mote__checkpoint_open(&nano, source_path("models/nano"), NULL), 0);
    size_t n = mote__checkpoint_n_tensors(nano), k = 0;
    mote__tensor *t = calloc(n + 4, sizeof *t);
    for (size_t i = 0; i < n; i++) {
        const mote__tensor *x = mote__checkpoint_tensor(nano, i);
        if (!strcmp(x->name, "layers.4.attn.compressor.wgate.weight") ||
            !strcmp(x->name, "layers.3.ffn.experts.7.w1.weight") ||
            !strcmp(x->name, "layers.0.attn.wq_a.scale"))
            continue;
        t[k++] = *x;
        if (!strcmp(x->name, "layers.0.hc_attn_base")) { /* [24] becomes [4, 6] */
            t[k - 1].n_dims = 2;
            t[k - 1].shape[0] = 4;
            t[k - 1].shape[1] = 6;
        }
        if (!strcmp(x->name, "layers.1.attn.wq_a.scale"))
            t[k - 1].name = "layers.1.attn.wq_a.weight_scale_inv";
    }
    static const char *const strangers[] = { "mtp.0.norm.weight", "vision.x",
                                             "layers.0.ffn.gate.bias_vl", "layers.99.x" };
    for (size_t i = 0; i < 4; i++)
        t[k++] = (mote__tensor){ .name = strangers[i],
                                 .dtype = MOTE_DT_I8,
                                 .n_dims = 1,
                                 .shape = { 3 },
                                 .data = t[0].data,
                                 .n_bytes = 3 };
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(mote__safetensors_write(path, t, k, NULL), 0);
    snprintf(command, sizeof command, "cp '%s' %s/config.json",
             source_path("models/nano/config.json"), folder);
    assert_int_equal(system(command), 0);
    json_t *o = inspect(folder);
    const json_t *c = json_object_get(o, "completeness"), *missing = json_object_get(c, "missing"),
                 *x;
    assert_true(json_is_false(json_object_get(c, "complete")));
    assert_int_equal(num(c, "n_missing"), 3);
    assert_int_equal(json_array_size(missing), 3);
    assert_string_equal(json_string_value(json_array_get(missing, 0)), "layers.0.attn.wq_a.scale");
    assert_string_equal(json_string_value(json_array_get(missing, 1)),
                        "layers.3.ffn.experts.7.w1.weight");
    assert_string_equal(json_string_value(json_array_get(missing, 2)),
                        "layers.4.attn.compressor.wgate.weight");
    assert_int_equal(num(c, "n_mismatched"), 1);
    x = json_array_get(json_object_get(c, "mismatched"), 0);
    assert_string_equal(str(x, "name"), "layers.0.hc_attn_base");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(x, "expected_shape"), 0)),
                     24);
    assert_int_equal(num(c, "n_unknown"), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(c, "unknown"), 0)),
                        "layers.99.x");
    static const char *const classes[] = { "mtp", "vision", "image_bias", "unknown" };
    size_t i, seen = 0;
    json_t *row;
    json_array_foreach(json_object_get(o, "classes"), i,
                       row) for (size_t q = 0; q < 4;
                                 q++) if (!strcmp(str(row, "class"), classes[q]))
        seen += num(row, "tensors") == 1 && num(row, "bytes") == 3 &&
                json_is_false(json_object_get(row, "loaded"));
    assert_int_equal(seen, 4);
    const json_t *counts = json_object_get(c, "counts");
    assert_true(num(json_array_get(counts, 2), "expected") == 2 &&
                num(json_array_get(counts, 2), "found") == 1);
    assert_true(num(json_array_get(counts, 6), "expected") == 144 &&
                num(json_array_get(counts, 6), "found") == 143);
    json_decref(o);
    /* without a usable configuration: no completeness, but everything else, and the reason */
    snprintf(command, sizeof command, "cp '%s' %s/config.json",
             source_path("tests/data/config/deepseek-v3.json"), folder);
    assert_int_equal(system(command), 0);
    o = inspect(folder);
    assert_true(json_is_null(json_object_get(o, "completeness")) &&
                json_is_null(json_object_get(o, "config")));
    assert_non_null(strstr(str(o, "config_error"), "'model_type' is 'deepseek_v3'"));
    assert_int_equal(num(o, "n_tensors"), k);
    json_decref(o);
    o = inspect(path); /* a single file */
    assert_true(json_is_null(json_object_get(o, "config_error")));
    assert_int_equal(json_array_size(json_object_get(o, "shards")), 1);
    json_decref(o);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    free(t);
    mote__checkpoint_close(nano);
    char *text;
    mote_err err;
    assert_int_equal(mote_inspect_json("/nonexistent", &text, &err), MOTE_EIO);
    assert_null(text);
}

static void test_doctor(void **state)
{
    (void)state;
    char *text;
    assert_int_equal(mote_doctor_json(&text, NULL), 0);
    json_t *o = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(o);
    assert_true(num(json_object_get(o, "cpu"), "cores_allowed") >= 1);
    assert_true(num(json_object_get(o, "cpu"), "cores_allowed") <=
                num(json_object_get(o, "cpu"), "cores_online"));
    const json_t *m = json_object_get(o, "memory");
    assert_int_equal(num(m, "page_bytes"), sysconf(_SC_PAGESIZE));
    assert_int_equal(num(m, "total_bytes") / sysconf(_SC_PAGESIZE), sysconf(_SC_PHYS_PAGES));
    assert_true(num(m, "available_bytes") > 0 &&
                num(m, "available_bytes") <= num(m, "total_bytes"));
    assert_string_equal(str(json_object_get(o, "libraries"), "jansson"), jansson_version_str());
    assert_non_null(str(json_object_get(o, "kernels"), "level"));
    assert_true(json_is_null(json_object_get(json_object_get(o, "kernels"), "error")));
#if defined(__x86_64__)
    const json_t *sets = json_object_get(json_object_get(o, "cpu"), "instruction_sets");
    assert_true(json_is_true(json_object_get(sets, "avx2")) ==
                (__builtin_cpu_supports("avx2") != 0));
    assert_true(json_is_true(json_object_get(sets, "avx512vbmi")) ==
                (__builtin_cpu_supports("avx512vbmi") != 0));
    assert_true(json_is_true(json_object_get(sets, "avx512vnni")) ==
                (__builtin_cpu_supports("avx512vnni") != 0));
#endif
    const json_t *ring = json_object_get(json_object_get(o, "system"), "io_uring");
    assert_true(json_is_true(json_object_get(ring, "available")) ==
                json_is_null(json_object_get(ring, "errno")));
    json_decref(o);
    assert_int_equal(setenv("MOTE_CPU_MASK", "mmx", 1), 0);
    assert_int_equal(mote_doctor_json(&text, NULL), 0);
    assert_non_null(strstr(text, "MOTE_CPU_MASK: unknown word 'mmx'"));
    free(text);
    unsetenv("MOTE_CPU_MASK");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_nano),
                                        cmocka_unit_test(test_incomplete),
                                        cmocka_unit_test(test_doctor) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
