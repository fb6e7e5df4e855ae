/* plan: published numbers of known models, sums against independent arithmetic, fitting into
 * memory, and errors. */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <mote/mote.h>

#include "file/safetensors.h"

static json_t *plan(const char *path, const char *kv, const uint64_t *ctxs, size_t n, uint64_t ram)
{
    char *text;
    mote_err err = { 0 };
    if (mote_plan_json(&text, path, kv, ctxs, n, ram, &err))
        fail_msg("%s: %s", path, err.message);
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    free(text);
    return o;
}

static json_t *plan_data(const char *name, const char *kv)
{
    char relative[200];
    snprintf(relative, sizeof relative, "tests/data/config/%s", name);
    return plan(source_path(relative), kv, NULL, 0, 0);
}

static double num(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_number(v))
        fail_msg("'%s' is no number", key);
    return json_number_value(v);
}
static const char *str(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void test_known_models(void **state)
{
    (void)state;
    static const struct {
        const char *name, *kv, *family, *text;
        double each, main, index, window, classical, n_parameters; /* n_parameters 0: unknown */
    } rows[] = {
        { "v41-flash.json", NULL, "deepseek_v41", "main=fp4,index=mxfp4,window=fp8", 890, 720, 170,
          2703360, 5242880, 748494669424 },
        { "v41-flash-flat.json", NULL, "deepseek_v41", "main=fp4,index=mxfp4,window=fp8", 890, 720,
          170, 2703360, 5242880, 748494669424 },
        { "v41-flash.json", "bf16,index=bf16,window=bf16", "deepseek_v41",
          "main=bf16,index=bf16,window=bf16", 3200, 2560, 640, 5242880, 5242880, 748494669424 },
        { "v41-flash.json", "main.20=fp8", "deepseek_v41",
          "main=fp4,main.20=fp8,index=mxfp4,window=fp8", 1130, 960, 170, 2703360, 5242880,
          748494669424 },
        /* 95 x 8 x 128 x 2 x 2; classical x 64 / 8 */
        { "deepseek-67b.json", NULL, "gqa", "key=bf16,value=bf16", 389120, 194560, 194560, 0,
          3112960, 67425001472 },
        { "deepseek-67b.json", "fp8", "gqa", "key=fp8,value=fp8", 200640, 100320, 100320, 0,
          3112960, 67425001472 },
        { "deepseek-67b.json", "key=fp8,value=fp4", "gqa", "key=fp8,value=fp4", 155040, 100320,
          54720, 0, 3112960, 67425001472 },
        { "deepseek-67b.json", "fp8,key.94=bf16", "gqa", "key=fp8,key.94=bf16,value=fp8", 201632,
          101312, 100320, 0, 3112960, 67425001472 },
        { "deepseek-v2.json", NULL, "mla", "main=bf16", 69120, 69120, 0, 0, 4915200, 235741434880 },
        { "deepseek-v3.json", NULL, "mla", "main=bf16", 70272, 70272, 0, 0, 4997120, 671026419200 },
        { "deepseek-v3.json", "fp4", "mla", "main=fp4", 19764, 19764, 0, 0, 4997120, 671026419200 },
        /* 21 x (584 + 68)/4 + 20 x 584/128; 43 layers x 128 x 584 */
        { "deepseek-v4-flash.json", NULL, "deepseek_v4", "published", 3514.25, 3157.25, 357,
          3214336, 5636096, 0 },
        { "deepseek-v4-flash.json", "fp4", "deepseek_v4", "main=fp4,index=mxfp4,window=fp8", 1914,
          1557, 357, 2906112, 5636096, 0 },
        { "llama-3-8b.json", NULL, "gqa", "key=bf16,value=bf16", 131072, 65536, 65536, 0, 524288,
          8030261248 },
        { "qwen2.5-7b.json", NULL, "gqa", "key=bf16,value=bf16", 57344, 28672, 28672, 0, 401408,
          7615616512 },
        { "qwen3-8b.json", NULL, "gqa", "key=bf16,value=bf16", 147456, 73728, 73728, 0, 589824,
          8190735360 },
        { "mistral-7b-v0.3.json", NULL, "gqa", "key=bf16,value=bf16", 131072, 65536, 65536, 0,
          524288, 7248023552 },
        /* all 32 layers have a window of 4,096 tokens: tokens add to the cache up to there, nothing
         * after */
        { "mistral-7b-v0.1.json", NULL, "gqa", "key=bf16,value=bf16", 131072, 65536, 65536,
          536870912, 524288, 7241732096 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *o = plan_data(rows[i].name, rows[i].kv);
        print_message("%s %s\n", rows[i].name, rows[i].kv ? rows[i].kv : "");
        assert_string_equal(str(o, "family"), rows[i].family);
        assert_string_equal(str(o, "kv"), rows[i].text);
        int slides = !strcmp(rows[i].name, "mistral-7b-v0.1.json");
        assert_true(num(o, "bytes_per_token") == rows[i].each);
        assert_true(num(o, "global_bytes_per_token") == (slides ? 0 : rows[i].each));
        assert_true(num(o, "window_bytes_per_token") == (slides ? rows[i].each : 0));
        /* names of the parts */
        const json_t *names = json_object_get(o, "part_names");
        const char *part[2] = { json_string_value(json_array_get(names, 0)),
                                json_string_value(json_array_get(names, 1)) };
        assert_string_equal(part[0], !strcmp(rows[i].family, "gqa") ? "key" : "main");
        assert_string_equal(part[1], !strcmp(rows[i].family, "gqa") ? "value" : "index");
        char key[4][40];
        for (int k = 0; k < 4; k++)
            snprintf(key[k], sizeof key[k], "%s_%s", part[k / 2], k % 2 ? "scales" : "codes");
        char sum_key[2][40];
        for (int k = 0; k < 2; k++)
            snprintf(sum_key[k], sizeof sum_key[k], "%s_bytes_per_token", part[k]);
        assert_true(num(o, sum_key[0]) == rows[i].main && num(o, sum_key[1]) == rows[i].index);
        assert_true(num(o, "window_bytes_per_sequence") == rows[i].window);
        assert_true(num(o, "classical_bytes_per_token") == rows[i].classical);
        if (rows[i].n_parameters)
            assert_true(num(o, "n_parameters") == rows[i].n_parameters);
        else
            assert_true(json_is_null(json_object_get(o, "weights")) &&
                        !strcmp(str(o, "weights_source"), "unknown"));
        double sum = 0;
        size_t k;
        json_t *s;
        json_array_foreach(json_object_get(o, "sources"), k, s) sum += num(s, "bytes_per_token");
        assert_true(sum == rows[i].each);
        const json_t *parts = json_object_get(o, "parts");
        assert_true(num(parts, key[0]) + num(parts, key[1]) == rows[i].main);
        assert_true(num(parts, key[2]) + num(parts, key[3]) == rows[i].index);
        assert_true(num(o, "ratio_to_classical") == rows[i].classical / rows[i].each);
        json_decref(o);
    }
}

/* Models that the engine runs have blocks; others have a reason why not. */
static void test_runs(void **state)
{
    (void)state;
    static const struct {
        const char *file, *why;
    } rows[] = {
        { "deepseek-67b.json", NULL },
        { "v41-flash.json", NULL },
        { "deepseek-v3.json", "only sums up models of type 'deepseek_v3'" },
        { "llama-3-8b.json", NULL },
        { "mistral-7b-v0.1.json", "'sliding_window' is 4096 and in use" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *o = plan_data(rows[i].file, NULL);
        assert_int_equal(json_is_true(json_object_get(o, "runs")), rows[i].why == NULL);
        assert_true(rows[i].why ? strstr(str(o, "runs_note"), rows[i].why) != NULL
                                : json_is_null(json_object_get(o, "runs_note")));
        assert_int_equal(json_object_get(o, "block_bytes") != NULL, rows[i].why == NULL);
        json_decref(o);
    }
    const uint64_t one = 1;
    json_t *o = plan(source_path("tests/data/config/deepseek-67b.json"), NULL, &one, 1, 0);
    assert_true(num(o, "block_bytes") == 389120 * 256);
    assert_true(num(json_array_get(json_object_get(o, "contexts"), 0), "held_bytes") ==
                389120 * 256);
    json_decref(o);
}

static void test_published(void **state)
{
    (void)state;
    static const uint64_t ctxs[] = { 0, 1, 3, 256, 1000, 1048576, 2000000 };
    json_t *o = plan(source_path("tests/data/config/v41-flash.json"), NULL, ctxs, 7, 0);
    assert_true(num(o, "block_bytes") == 227840 && num(o, "block_tokens") == 256);
    assert_true(num(o, "partial_group_bytes_per_sequence") == 3 * 1 * 2 * 512 * 4);
    assert_true(num(json_object_get(o, "ram"), "bytes") > 0 &&
                strcmp(str(json_object_get(o, "ram"), "source"), "given"));
    const json_t *parts = json_object_get(o, "parts");
    assert_true(num(parts, "main_codes") == 640 && num(parts, "main_scales") == 80 &&
                num(parts, "index_codes") == 160 && num(parts, "index_scales") == 10);
    /* complete entries: a token of a ratio-2 source counts when its group is complete */
    static const uint64_t global[] = { 0,      356,       3 * 356 + 3 * 356, 227840,
                                       890000, 933232640, 1780000000 };
    size_t i;
    json_t *c;
    assert_int_equal(json_array_size(json_object_get(o, "contexts")), 7);
    json_array_foreach(json_object_get(o, "contexts"), i, c)
    {
        assert_true(num(c, "ctx") == (double)ctxs[i]);
        assert_true(num(c, "global_bytes") == (double)global[i]);
        assert_true(num(c, "total_bytes") == (double)global[i] + 2703360);
        assert_true(num(c, "held_bytes") ==
                    (double)((ctxs[i] + 255) / 256 * 227840) + 2703360 + 12288);
        assert_true(json_is_true(json_object_get(c, "beyond_model")) == (ctxs[i] > 1048576));
    }
    /* weights: 15,360 experts of 18,800,640 bytes; 264 bytes per Engram row */
    const json_t *w = json_object_get(o, "weights");
    assert_string_equal(str(o, "weights_source"), "geometry");
    assert_true(num(w, "routed_experts") == 15360.0 * 18800640);
    assert_true(num(w, "engram") > 768022850.0 * 264 && num(w, "engram") < 768022850.0 * 264 + 4e8);
    assert_true(num(w, "dense") > 9e9 && num(w, "dense") < 10e9);
    assert_true(num(w, "total") == num(w, "dense") + num(w, "routed_experts") + num(w, "engram") +
                                       num(w, "draft") + num(w, "vision") + num(w, "other"));
    /* as in the index of the published checkpoint */
    assert_true(num(w, "total") == 510286023000 &&
                num(json_object_get(o, "parameters"), "total") == 763205315794);
    /* comparison rows: the default first */
    const json_t *formats = json_object_get(o, "formats");
    assert_true(num(json_array_get(formats, 0), "times") == 1);
    assert_int_equal(json_array_size(formats), 10);
    assert_string_equal(str(json_array_get(formats, 5), "option"), "fp8");
    assert_string_equal(str(json_array_get(formats, 5), "kv"), "main=fp8,index=mxfp4,window=fp8");
    assert_true(num(json_array_get(formats, 5), "bytes_per_token") == 1490);
    int seen = 0;
    json_array_foreach(json_object_get(o, "references"), i, c) if (strstr(str(c, "name"), "67B"))
        seen += (int)num(c, "times") == 437;
    assert_int_equal(seen, 1);
    json_decref(o);
    /* the default list ends at the model's own limit */
    o = plan_data("v41-flash.json", NULL);
    const json_t *list = json_object_get(o, "contexts");
    assert_int_equal(json_array_size(list), 4);
    assert_true(num(json_array_get(list, 3), "ctx") == 1048576);
    json_decref(o);
}

static void test_ram(void **state)
{
    (void)state;
    const char *path = source_path("tests/data/config/v41-flash.json");
    json_t *o = plan(path, NULL, NULL, 0, 1);
    const json_t *w = json_object_get(o, "weights"),
                 *answer = json_object_get(json_object_get(o, "token"), "answer");
    const double all = num(w, "dense") + num(w, "routed_experts") + num(w, "engram"),
                 once = num(answer, "weight_bytes");
    const json_t *ram = json_object_get(o, "ram");
    assert_true(num(ram, "fits_ctx") == 0);
    assert_string_equal(str(json_object_get(ram, "resident"), "limited_by"), "weights");
    assert_string_equal(str(json_object_get(ram, "mapped"), "limited_by"), "ram");
    json_decref(o);
    /* memory for exactly ten blocks, windows and partial groups besides the weights: 2,560 tokens;
     * one byte less: 2,304 */
    const uint64_t need = (uint64_t)all + 10 * 227840 + 2703360 + 12288;
    for (uint64_t less = 0; less < 2; less++) {
        o = plan(path, NULL, NULL, 0, need - less);
        ram = json_object_get(o, "ram");
        assert_true(num(ram, "fits_ctx") == (less ? 2304 : 2560));
        assert_true(num(ram, "weights_bytes") == all);
        assert_string_equal(str(json_object_get(ram, "resident"), "limited_by"), "ram");
        assert_true(num(json_object_get(ram, "resident"), "sequences_at_max_context") == 0);
        assert_null(json_object_get(ram, "streamed"));
        assert_true(
            num(json_array_get(json_object_get(json_object_get(ram, "mapped"), "contexts"), 3),
                "answer_disk_bytes") < once / 100);
        assert_true(num(json_object_get(ram, "mapped"), "fits_ctx") == 1048576);
        assert_string_equal(str(json_object_get(ram, "mapped"), "limited_by"), "max_context");
        json_decref(o);
    }
    o = plan(path, NULL, NULL, 0, UINT64_MAX);
    assert_true(num(json_object_get(o, "ram"), "fits_ctx") == 1048576);
    json_decref(o);
    /* unknown weights: only the result without them is known */
    o = plan(source_path("tests/data/config/deepseek-v4-flash.json"), NULL, NULL, 0, 1 << 30);
    ram = json_object_get(o, "ram");
    assert_true(json_is_null(json_object_get(ram, "fits_ctx")) &&
                json_is_null(json_object_get(ram, "resident")));
    assert_non_null(strstr(str(o, "weights_note"), "no list of this family's tensors"));
    assert_true(num(json_object_get(ram, "mapped"), "fits_ctx") > 300000);
    json_decref(o);
    /* a sliding window of 4,096 tokens: up to there the cost is that of full attention, more tokens
     * add nothing */
    static const uint64_t ctxs[] = { 1000, 4096, 8192 };
    o = plan(source_path("tests/data/config/mistral-7b-v0.1.json"), NULL, ctxs, 3, 0);
    for (size_t i = 0; i < 3; i++)
        assert_true(num(json_array_get(json_object_get(o, "contexts"), i), "total_bytes") ==
                    131072.0 * (double)(ctxs[i] < 4096 ? ctxs[i] : 4096));
    json_decref(o);
}

/* A folder with a checkpoint: the sums of its tensors, which for this model equal those of the
 * geometry. */
static void test_folder(void **state)
{
    (void)state;
    json_t *exact = plan(source_path("models/nano"), NULL, NULL, 0, 0);
    json_t *geometry = plan(source_path("models/nano/config.json"), NULL, NULL, 0, 0);
    assert_string_equal(str(exact, "weights_source"), "checkpoint");
    assert_string_equal(str(geometry, "weights_source"), "geometry");
    assert_true(
        json_equal(json_object_get(exact, "weights"), json_object_get(geometry, "weights")));
    assert_true(num(exact, "n_parameters") == num(geometry, "n_parameters"));
    assert_true(num(json_object_get(exact, "weights"), "total") == 24452772);
    json_decref(exact);
    json_decref(geometry);
    /* a folder with an index but no shards yet: geometry, and the reason */
    char folder[] = "/tmp/mote-test-XXXXXX", path[100], command[300];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp '%s' %s/config.json",
             source_path("tests/data/config/tiny-a.json"), folder);
    assert_int_equal(system(command), 0);
    json_t *o = plan(folder, NULL, NULL, 0, 0);
    assert_string_equal(str(o, "weights_source"), "geometry");
    assert_true(num(json_object_get(o, "weights"), "total") == 1541152);
    assert_true(json_is_null(json_object_get(o, "weights_note")));
    json_decref(o);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    FILE *f = fopen(path, "w");
    fputs("{\"weight_map\":{\"a\":\"x.safetensors\"}}", f);
    fclose(f);
    o = plan(folder, NULL, NULL, 0, 0);
    assert_string_equal(str(o, "weights_source"), "geometry");
    assert_non_null(strstr(str(o, "weights_note"), "x.safetensors: cannot open"));
    json_decref(o);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* One change to a valid file (value NULL: removed), and the message. */
static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *file, *key, *value;
        int code;
        const char *words;
    } rows[] = {
        { "llama-3-8b.json", "model_type", "\"bert\"", MOTE_EUNSUPPORTED,
          "'model_type' is 'bert', plan knows deepseek_v41, deepseek_v4" },
        { "llama-3-8b.json", "model_type", NULL, MOTE_EFORMAT, "'model_type' is missing" },
        { "llama-3-8b.json", "model_type", "3", MOTE_EFORMAT, "'model_type' is an integer" },
        { "llama-3-8b.json", "num_hidden_layers", NULL, MOTE_EFORMAT,
          "'num_hidden_layers' is missing" },
        { "llama-3-8b.json", "num_hidden_layers", "0", MOTE_EFORMAT,
          "'num_hidden_layers' is 0, outside 1 to 1024" },
        { "llama-3-8b.json", "num_hidden_layers", "1025", MOTE_EFORMAT,
          "'num_hidden_layers' is 1025" },
        { "llama-3-8b.json", "num_attention_heads", "\"x\"", MOTE_EFORMAT,
          "'num_attention_heads' is a string" },
        { "llama-3-8b.json", "num_key_value_heads", "5", MOTE_EFORMAT,
          "'num_key_value_heads' is 5 and does not divide" },
        { "llama-3-8b.json", "num_attention_heads", "24", MOTE_EFORMAT,
          "'head_dim' is missing and 24 heads do not divide 'hidden_size'" },
        { "llama-3-8b.json", "head_dim", "60000", MOTE_EFORMAT, "'head_dim' is 60000, outside" },
        { "llama-3-8b.json", "max_position_embeddings", "-1", MOTE_EFORMAT,
          "'max_position_embeddings' is -1" },
        { "llama-3-8b.json", "layer_types", "[\"full_attention\"]", MOTE_EFORMAT,
          "'layer_types' has 1 elements for 32 layers" },
        { "llama-3-8b.json", "text_config", "[]", MOTE_EFORMAT, "'text_config' is an array" },
        { "deepseek-v3.json", "kv_lora_rank", NULL, MOTE_EFORMAT, "'kv_lora_rank' is missing" },
        { "deepseek-v3.json", "v_head_dim", "0", MOTE_EFORMAT, "'v_head_dim' is 0" },
        { "deepseek-v4-flash.json", "compress_ratios", "[0,0,4]", MOTE_EFORMAT,
          "'compress_ratios' has 3 elements for 43" },
        { "deepseek-v4-flash.json", "compress_ratios[5]", "8", MOTE_EFORMAT,
          "'compress_ratios[5]' is not 0, 4 or 128" },
        { "deepseek-v4-flash.json", "qk_rope_head_dim", "512", MOTE_EFORMAT,
          "'qk_rope_head_dim' is 512, not below 'head_dim'" },
        { "v41-flash.json", "text_config", "{}", MOTE_EFORMAT, "'vocab_size' is missing" },
    };
    char path[] = "/tmp/mote-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char relative[200], key[80], *text = NULL;
        unsigned index;
        snprintf(relative, sizeof relative, "tests/data/config/%s", rows[i].file);
        json_t *o = json_load_file(source_path(relative), 0, NULL);
        json_t *value = rows[i].value ? json_loads(rows[i].value, JSON_DECODE_ANY, NULL) : NULL;
        if (sscanf(rows[i].key, "%79[^[][%u]", key, &index) == 2)
            json_array_set_new(json_object_get(o, key), index, value);
        else if (value)
            json_object_set_new(o, rows[i].key, value);
        else
            json_object_del(o, rows[i].key);
        assert_int_equal(json_dump_file(o, path, 0), 0);
        json_decref(o);
        mote_err err = { 0 };
        int rc = mote_plan_json(&text, path, NULL, NULL, 0, 0, &err);
        if (rc != rows[i].code || text || !strstr(err.message, rows[i].words) ||
            strncmp(err.message, path, strlen(path)))
            fail_msg("%s %s: %d '%s', expected '%s'", rows[i].key, rows[i].value, rc, err.message,
                     rows[i].words);
    }
    unlink(path);
    static const struct {
        const char *file, *kv;
        int code;
        const char *words;
    } kvs[] = {
        { "llama-3-8b.json", "index=fp8", MOTE_EINVAL,
          "'index' is no part of the cache; there are key, value" },
        { "llama-3-8b.json", "fp4,window=fp8", MOTE_EINVAL, "'window' is no part of the cache" },
        { "llama-3-8b.json", "key.32=fp8", MOTE_EINVAL, "'32' is no KV source of this model" },
        { "mistral-7b-v0.1.json", "key.3=fp8", MOTE_EINVAL, "'key.3': layers are not told apart" },
        { "deepseek-v3.json", "main.3=fp8", MOTE_EINVAL, "'main.3': layers are not told apart" },
        { "llama-3-8b.json", "fp3", MOTE_EINVAL, "'fp3' is no format" },
        { "deepseek-v3.json", "fp4-128", MOTE_EUNSUPPORTED, "fp4-128 stores groups of 128 values" },
        { "v41-flash.json", "main.3=fp8", MOTE_EINVAL, "'3' is no KV source" },
    };
    for (size_t i = 0; i < sizeof kvs / sizeof *kvs; i++) {
        char relative[200], *text;
        mote_err err = { 0 };
        snprintf(relative, sizeof relative, "tests/data/config/%s", kvs[i].file);
        int rc = mote_plan_json(&text, source_path(relative), kvs[i].kv, NULL, 0, 0, &err);
        if (rc != kvs[i].code || !strstr(err.message, kvs[i].words))
            fail_msg("%s: %d '%s', expected '%s'", kvs[i].kv, rc, err.message, kvs[i].words);
    }
    char *text, broken[] = "/tmp/mote-test-XXXXXX";
    mote_err err;
    fd = mkstemp(broken);
    assert_true(fd >= 0 && write(fd, "[1]", 3) == 3);
    close(fd);
    assert_int_equal(mote_plan_json(&text, broken, NULL, NULL, 0, 0, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "not a JSON object"));
    unlink(broken);
    const uint64_t far = (uint64_t)1 << 31;
    assert_int_equal(mote_plan_json(&text, "/nonexistent.json", NULL, NULL, 0, 0, &err), MOTE_EIO);
    assert_int_equal(
        mote_plan_json(&text, source_path("tests/data/config"), NULL, NULL, 0, 0, &err), MOTE_EIO);
    assert_int_equal(mote_plan_json(&text, source_path("tests/data/config/tiny-a.json"), NULL, &far,
                                    1, 0, &err),
                     MOTE_EINVAL);
    assert_non_null(strstr(err.message, "2147483648 tokens is over the limit"));
    assert_int_equal(mote_plan_json(&text, NULL, NULL, NULL, 0, 0, &err), MOTE_EINVAL);
}

static void test_sliding(void **state)
{
    (void)state;
    char path[] = "/tmp/mote-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    /* every layer named: 31 full, 1 sliding */
    json_t *o = json_load_file(source_path("tests/data/config/mistral-7b-v0.1.json"), 0, NULL),
           *types = json_array();
    for (int l = 0; l < 32; l++)
        json_array_append_new(types, json_string(l == 5 ? "sliding_attention" : "full_attention"));
    json_object_set(o, "layer_types", types);
    assert_int_equal(json_dump_file(o, path, 0), 0);
    json_t *r = plan(path, NULL, NULL, 0, 0);
    assert_true(num(r, "global_bytes_per_token") == 31 * 4096 &&
                num(r, "window_bytes_per_sequence") == 4096 * 4096);
    json_decref(r);
    char *text;
    mote_err err;
    json_array_set_new(types, 3, json_string("linear_attention"));
    assert_int_equal(json_dump_file(o, path, 0), 0);
    assert_int_equal(mote_plan_json(&text, path, NULL, NULL, 0, 0, &err), MOTE_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "'layer_types[3]' is 'linear_attention'"));
    json_array_set_new(types, 3, json_string("full_attention"));
    json_object_del(o, "sliding_window");
    assert_int_equal(json_dump_file(o, path, 0), 0);
    assert_int_equal(mote_plan_json(&text, path, NULL, NULL, 0, 0, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "'sliding_window' is missing"));
    json_decref(types);
    json_decref(o);
    /* Qwen2: layers from max_window_layers on, if enabled */
    o = json_load_file(source_path("tests/data/config/qwen2.5-7b.json"), 0, NULL);
    json_object_set_new(o, "use_sliding_window", json_true());
    json_object_set_new(o, "max_window_layers", json_integer(20));
    json_object_set_new(o, "sliding_window", json_integer(4096));
    assert_int_equal(json_dump_file(o, path, 0), 0);
    r = plan(path, NULL, NULL, 0, 0);
    assert_true(num(r, "global_bytes_per_token") == 20 * 2048 && num(r, "window_tokens") == 4096);
    json_decref(r);
    /* a window as long as the context counts as none */
    json_object_set_new(o, "sliding_window", json_integer(131072));
    assert_int_equal(json_dump_file(o, path, 0), 0);
    r = plan(path, NULL, NULL, 0, 0);
    assert_true(num(r, "global_bytes_per_token") == 28 * 2048 && num(r, "window_tokens") == 0);
    json_decref(r);
    json_decref(o);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_models), cmocka_unit_test(test_published),
        cmocka_unit_test(test_runs),         cmocka_unit_test(test_ram),
        cmocka_unit_test(test_folder),       cmocka_unit_test(test_bad),
        cmocka_unit_test(test_sliding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
