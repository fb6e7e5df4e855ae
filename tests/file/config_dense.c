/* config.json of Llama-style models: what each family implies, and a table of what must be refused
 * by its key. */
#include "test.h"

#include <math.h>

#include <jansson.h>

#include "file/config.h"

static const char llama[] = "{\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":96,\"num_"
                            "hidden_layers\":3,\"num_attention_heads\":6,"
                            "\"intermediate_size\":128,\"rms_norm_eps\":1e-5,\"max_position_"
                            "embeddings\":512,\"bos_token_id\":1,"
                            "\"eos_token_id\":[2,3],\"hidden_act\":\"silu\",\"pretraining_tp\":1,"
                            "\"torch_dtype\":\"bfloat16\"}";

static json_t *base(const char *type)
{
    json_t *root = json_loads(llama, 0, NULL);
    assert_non_null(root);
    json_object_set_new(root, "model_type", json_string(type));
    return root;
}

/* changes: members that replace those of the base; null takes one away */
static int parse(mote__config *c, const char *type, const char *changes, mote_err *err)
{
    json_t *root = base(type), *more = json_loads(changes, JSON_DECODE_ANY, NULL), *value;
    const char *key;
    assert_non_null(more);
    json_object_foreach(more, key, value) json_object_set(root, key, value);
    char *text = json_dumps(root, 0);
    int rc = mote__config_parse(c, text, strlen(text), "cfg", err);
    free(text);
    json_decref(more);
    json_decref(root);
    return rc;
}

static void test_good(void **state)
{
    (void)state;
    mote__config c;
    mote_err err = { 0 };
    assert_int_equal(parse(&c, "llama", "{}", &err), 0);
    assert_true(c.arch == MOTE_ARCH_DENSE && !strcmp(c.family, "llama"));
    assert_true(c.n_kv_heads == 6 && c.head_dim == 16 && c.rope_dim == 16 &&
                c.moe_intermediate_size == 128);
    assert_true(c.rope_theta == 10000 && c.rope_rule == MOTE_ROPE_PLAIN && c.rope_attention == 1);
    assert_true(!c.tied_embeddings && !c.qkv_bias && !c.qk_norm && c.bos == 1 && c.n_eos == 2 &&
                c.eos[0] == 2 && c.eos[1] == 3 && c.max_context == 512);
    /* every layer is a source of its own, nothing is split and nothing slides */
    assert_true(c.n_kv_sources == 3 && c.kv_sources[2] == 2 && c.kv_source_of[2] == 2 &&
                c.compress_ratios[2] == 1);
    assert_true(c.decoder_start == 3 && c.prefix_multiple == 1 && c.window == 0 && c.hc_mult == 1 &&
                c.n_routed_experts == 0);
    assert_int_equal(parse(&c, "llama",
                           "{\"num_key_value_heads\":2,\"head_dim\":40,\"rope_theta\":5e5,\"tie_"
                           "word_embeddings\":true}",
                           &err),
                     0);
    assert_true(c.n_kv_heads == 2 && c.head_dim == 40 && c.rope_theta == 5e5 && c.tied_embeddings);
    /* off unless switched on */
    assert_int_equal(parse(&c, "qwen2", "{\"sliding_window\":128,\"max_window_layers\":3}", &err),
                     0);
    assert_true(c.qkv_bias && !c.qk_norm && !strcmp(c.family, "qwen2"));
    assert_int_equal(
        parse(&c, "qwen3",
              "{\"attention_bias\":false,\"layer_types\":[\"full_attention\",\"full_attention\"]}",
              &err),
        0);
    assert_true(!c.qkv_bias && c.qk_norm);
    assert_int_equal(
        parse(&c, "mistral",
              "{\"sliding_window\":null,\"partial_rotary_factor\":1.0,\"num_experts\":0}", &err),
        0);
    assert_int_equal(
        parse(&c, "mistral", "{\"sliding_window\":64,\"use_sliding_window\":false}", &err), 0);
    /* windows that cut nothing: as long as the context, or of no layer */
    assert_int_equal(parse(&c, "mistral", "{\"sliding_window\":512}", &err), 0);
    assert_int_equal(
        parse(&c, "qwen2",
              "{\"sliding_window\":64,\"use_sliding_window\":true,\"max_window_layers\":3}", &err),
        0);
    /* from layer 28 on */
    assert_int_equal(
        parse(&c, "qwen2", "{\"sliding_window\":64.0,\"use_sliding_window\":true}", &err), 0);
    assert_int_equal(parse(&c, "qwen3",
                           "{\"sliding_window\":600,\"use_sliding_window\":true,\"layer_types\":["
                           "\"sliding_attention\"]}",
                           &err),
                     0);
    /* what loaders have a default for, and integers with a fraction of zeros */
    assert_int_equal(parse(&c, "llama",
                           "{\"rms_norm_eps\":null,\"hidden_size\":96.0,\"head_dim\":16.0,\"eos_"
                           "token_id\":[2.0,3]}",
                           &err),
                     0);
    assert_true(c.rms_norm_eps == 1e-6f && c.hidden_size == 96 && c.head_dim == 16);
    assert_int_equal(
        mote__config_load(&c, source_path("tests/data/config/deepseek-67b.json"), &err), 0);
    assert_true(c.n_layers == 95 && c.n_kv_heads == 8 && c.head_dim == 128);
}

static void test_rope(void **state)
{
    (void)state;
    mote__config c;
    mote_err err = { 0 };
    assert_int_equal(
        parse(&c, "llama", "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}", &err), 0);
    assert_true(c.rope_rule == MOTE_ROPE_LINEAR && c.rope_factor == 4 && c.rope_attention == 1);
    assert_int_equal(
        parse(&c, "llama",
              "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
              "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}",
              &err),
        0);
    assert_true(c.rope_rule == MOTE_ROPE_LLAMA3 && c.rope_beta_slow == 1 && c.rope_beta_fast == 4 &&
                c.rope_original == 8192);
    assert_int_equal(parse(&c, "qwen3",
                           "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_"
                           "position_embeddings\":64}}",
                           &err),
                     0);
    assert_true(c.rope_rule == MOTE_ROPE_YARN && c.rope_beta_fast == 32 && c.rope_beta_slow == 1);
    assert_true(fabs(c.rope_attention - (0.1 * log(4) + 1)) < 1e-15);
    assert_int_equal(parse(&c, "qwen3",
                           "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_"
                           "position_embeddings\":64,"
                           "\"attention_factor\":1.5}}",
                           &err),
                     0);
    assert_true(c.rope_attention == 1.5);
    assert_int_equal(parse(&c, "llama",
                           "{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":77}}",
                           &err),
                     0);
    assert_true(c.rope_rule == MOTE_ROPE_PLAIN && c.rope_theta == 77);
    /* the value decides, not whether the key is there; rope_scaling wins; where both scale they
     * must agree */
#define Y "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":64}"
    static const char *const same[] = {
        "{\"rope_scaling\":" Y "}",
        "{\"rope_scaling\":" Y ",\"rope_parameters\":null}",
        "{\"rope_scaling\":" Y ",\"rope_parameters\":{}}",
        "{\"rope_scaling\":null,\"rope_parameters\":" Y "}",
        "{\"rope_scaling\":" Y ",\"rope_parameters\":{\"rope_type\":\"default\"}}",
        "{\"rope_parameters\":{\"full_attention\":" Y
        ",\"sliding_attention\":{\"rope_type\":\"default\"}}}",
        "{\"rope_scaling\":" Y ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":"
        "10000.0,\"partial_rotary_factor\":1.0}}",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (parse(&c, "llama", same[i], &err))
            fail_msg("%s: %s", same[i], err.message);
        assert_true(c.rope_rule == MOTE_ROPE_YARN && c.rope_factor == 4 && c.rope_original == 64 &&
                    c.rope_theta == 10000);
    }
    /* max_position_embeddings */
    assert_int_equal(
        parse(&c, "llama", "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2}}", &err), 0);
    assert_true(c.rope_original == 512);
    assert_int_equal(parse(&c, "llama",
                           "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":0.5,"
                           "\"mscale_all_dim\":2}}",
                           &err),
                     0);
    assert_true(fabs(c.rope_attention - (0.05 * log(4) + 1) / (0.2 * log(4) + 1)) < 1e-15);
    assert_int_equal(parse(&c, "llama",
                           "{\"rope_theta\":10,\"rope_parameters\":{\"rope_theta\":1e6}}", &err),
                     0);
    assert_true(c.rope_theta == 1e6);
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *type, *changes;
        int code;
        const char *words;
    } rows[] = {
        { "llama", "{\"hidden_size\":null}", MOTE_EFORMAT, "'hidden_size' is missing" },
        { "llama", "{\"intermediate_size\":null}", MOTE_EFORMAT, "'intermediate_size' is missing" },
        { "llama", "{\"rms_norm_eps\":0}", MOTE_EFORMAT, "'rms_norm_eps' is 0, outside" },
        { "llama", "{\"num_hidden_layers\":257}", MOTE_EFORMAT,
          "'num_hidden_layers' is 257, outside 1 to 256" },
        { "llama", "{\"num_attention_heads\":0}", MOTE_EFORMAT,
          "'num_attention_heads' is 0, outside" },
        { "llama", "{\"num_key_value_heads\":4}", MOTE_EFORMAT,
          "'num_key_value_heads' is 4 and does not divide 6 heads" },
        { "llama", "{\"num_key_value_heads\":0}", MOTE_EFORMAT,
          "'num_key_value_heads' is 0, outside" },
        { "llama", "{\"num_attention_heads\":5}", MOTE_EFORMAT,
          "'head_dim' is missing and 5 heads do not divide 'hidden_size' (96)" },
        { "llama", "{\"head_dim\":15}", MOTE_EUNSUPPORTED,
          "'head_dim' is 15; this version runs even ones from 2 to 512" },
        { "llama", "{\"head_dim\":514}", MOTE_EFORMAT, "'head_dim' is 514, outside 2 to 512" },
        { "llama", "{\"hidden_size\":96000}", MOTE_EUNSUPPORTED, "'head_dim' is 16000" },
        { "llama", "{\"rope_theta\":1}", MOTE_EFORMAT, "'rope_theta' is 1, outside" },
        { "llama", "{\"vocab_size\":\"x\"}", MOTE_EFORMAT, "'vocab_size' is a string" },
        { "llama", "{\"eos_token_id\":100}", MOTE_EFORMAT,
          "'eos_token_id' is 100, outside 0 to 99" },
        { "llama", "{\"hidden_act\":\"gelu\"}", MOTE_EUNSUPPORTED,
          "'hidden_act' is 'gelu', this version runs 'silu'" },
        { "llama", "{\"attention_bias\":true}", MOTE_EUNSUPPORTED,
          "'attention_bias' asks for a variant of 'llama'" },
        { "llama", "{\"mlp_bias\":true}", MOTE_EUNSUPPORTED, "'mlp_bias' asks for a variant" },
        { "qwen3", "{\"attention_bias\":true}", MOTE_EUNSUPPORTED,
          "'attention_bias' asks for a variant of 'qwen3'" },
        { "llama", "{\"partial_rotary_factor\":0.5}", MOTE_EUNSUPPORTED,
          "'partial_rotary_factor' asks for a variant of 'llama'" },
        { "llama", "{\"rope_interleaved\":true}", MOTE_EUNSUPPORTED,
          "'rope_interleaved' asks for a variant" },
        { "llama", "{\"rotary_pct\":0.25}", MOTE_EUNSUPPORTED, "'rotary_pct' asks for a variant" },
        { "llama",
          "{\"rope_scaling\":" Y ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4}}",
          MOTE_EFORMAT,
          "'rope_scaling' and 'rope_parameters' say different things about 'rope_type'" },
        { "llama", "{\"rope_scaling\":{\"rope_type\":\"default\",\"factor\":4}}", MOTE_EUNSUPPORTED,
          "'factor' is not applied by this version (rope_type default)" },
        { "llama", "{\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4,\"beta_fast\":32}}",
          MOTE_EUNSUPPORTED, "'beta_fast' is not applied" },
        { "llama", "{\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":4}}",
          MOTE_EUNSUPPORTED, "'rope_type' is 'longrope'" },
        { "llama",
          "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"attention_factor\":1,"
          "\"mscale\":1,\"mscale_all_dim\":1}}",
          MOTE_EUNSUPPORTED, "'mscale' is not applied by this version beside 'attention_factor'" },
        { "mistral", "{\"num_local_experts\":8}", MOTE_EUNSUPPORTED,
          "'num_local_experts' asks for a variant of 'mistral'" },
        { "qwen3", "{\"num_experts\":128}", MOTE_EUNSUPPORTED, "'num_experts' asks for a variant" },
        { "llama", "{\"n_routed_experts\":8}", MOTE_EUNSUPPORTED,
          "'n_routed_experts' asks for a variant" },
        { "llama", "{\"kv_lora_rank\":512}", MOTE_EUNSUPPORTED,
          "'kv_lora_rank' asks for a variant" },
        { "llama", "{\"clip_qkv\":8}", MOTE_EUNSUPPORTED, "'clip_qkv' asks for a variant" },
        { "llama", "{\"attn_logit_softcapping\":\"x\"}", MOTE_EUNSUPPORTED,
          "'attn_logit_softcapping' asks for a variant" },
        { "mistral", "{\"sliding_window\":64}", MOTE_EUNSUPPORTED,
          "'sliding_window' is 64 and in use" },
        { "mistral", "{\"sliding_window\":511}", MOTE_EUNSUPPORTED,
          "'sliding_window' is 511 and in use, less than 'max_position_embeddings' (512)" },
        { "mistral", "{\"sliding_window\":64,\"max_window_layers\":3}", MOTE_EUNSUPPORTED,
          "'sliding_window' is 64 and in use" },
        { "qwen2", "{\"sliding_window\":64,\"use_sliding_window\":true,\"max_window_layers\":2}",
          MOTE_EUNSUPPORTED, "'sliding_window' is 64 and in use" },
        { "qwen2",
          "{\"sliding_window\":64,\"use_sliding_window\":true,\"layer_types\":[\"full_attention\","
          "\"sliding_attention\"]}",
          MOTE_EUNSUPPORTED, "'layer_types[1]' is 'sliding_attention'" },
        { "qwen3", "{\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
          MOTE_EUNSUPPORTED, "'layer_types[1]' is 'sliding_attention'" },
        { "llama", "{\"layer_types\":[3]}", MOTE_EUNSUPPORTED, "'layer_types[0]' is '?'" },
        { "llama", "{\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}}", MOTE_EUNSUPPORTED,
          "'rope_scaling': 'rope_type' is 'dynamic'; known are default, linear, llama3, yarn" },
        { "llama", "{\"rope_scaling\":{\"factor\":2}}", MOTE_EFORMAT, "'rope_type' is missing" },
        { "llama", "{\"rope_scaling\":{\"type\":\"linear\"}}", MOTE_EFORMAT,
          "'factor' is missing" },
        { "llama", "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}}", MOTE_EFORMAT,
          "'factor' is 0.5, outside" },
        { "llama",
          "{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,\"high_freq_"
          "factor\":4,"
          "\"original_max_position_embeddings\":64}}",
          MOTE_EFORMAT, "the fast bound (4) is not above the slow one (4)" },
        { "llama",
          "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":"
          "64,\"mscale\":1.0}}",
          MOTE_EUNSUPPORTED, "'mscale' is not applied by this version without 'mscale_all_dim'" },
        { "llama",
          "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":"
          "64,\"truncate\":false}}",
          MOTE_EUNSUPPORTED, "'truncate' is not applied" },
        { "llama", "{\"quantization_config\":{\"quant_method\":\"gptq\"}}", MOTE_EUNSUPPORTED,
          "'quant_method' is 'gptq'" },
        { "llama",
          "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}",
          MOTE_EUNSUPPORTED, "'weight_block_size' is not [32, 32]" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mote__config c;
        mote_err err = { 0 };
        int rc = parse(&c, rows[i].type, rows[i].changes, &err);
        if (rc != rows[i].code || !strstr(err.message, rows[i].words) ||
            strncmp(err.message, "cfg: ", 5))
            fail_msg("%s %s: %d '%s', expected '%s'", rows[i].type, rows[i].changes, rc,
                     err.message, rows[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_good), cmocka_unit_test(test_rope),
                                        cmocka_unit_test(test_bad) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
