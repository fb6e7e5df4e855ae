/* config.json: published values in both forms, the tiny checkpoints, and a table of what must be
 * refused, with words that only the right check says. */
#include "test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/config.h"
#include "base/json.h"

static json_t *load(const char *name)
{
    char relative[256];
    snprintf(relative, sizeof relative, "tests/data/config/%s", name);
    json_t *root = json_load_file(source_path(relative), 0, NULL);
    assert_non_null(root);
    return root;
}

static int parse(mote__config *c, json_t *root, mote_err *err)
{
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    int rc = mote__config_parse(c, text, strlen(text), "cfg", err);
    free(text);
    return rc;
}

static void check_published(const mote__config *c)
{
    assert_int_equal(c->vocab_size, 129280);
    assert_int_equal(c->hidden_size, 5120);
    assert_int_equal(c->n_layers, 40);
    assert_int_equal(c->n_heads, 64);
    assert_int_equal(c->head_dim, 512);
    assert_int_equal(c->rope_dim, 64);
    assert_int_equal(c->q_lora_rank, 1280);
    assert_int_equal(c->o_lora_rank, 1024);
    assert_int_equal(c->o_groups, 8);
    assert_int_equal(c->moe_intermediate_size, 2304);
    assert_int_equal(c->n_routed_experts, 384);
    assert_int_equal(c->n_experts_per_token, 6);
    assert_int_equal(c->score_func, MOTE_SCORE_SQRTSOFTPLUS);
    assert_int_equal(c->norm_topk_prob, 1);
    assert_true(c->routed_scaling_factor == 1.5f && c->swiglu_limit == 10.0f);
    assert_int_equal(c->window, 128);
    assert_true(c->rms_norm_eps == 1e-20f && c->rms_norm_eps > 0 && c->hc_eps == 1e-6f);
    assert_true(c->rope_theta == 10000 && c->compress_rope_theta == 160000);
    assert_true(c->rope_factor == 16 && c->rope_beta_fast == 32 && c->rope_beta_slow == 1);
    assert_int_equal(c->rope_original, 65536);
    assert_int_equal(c->max_context, 1048576);
    for (size_t l = 0; l < MOTE_MAX_LAYERS; l++)
        assert_int_equal(c->compress_ratios[l], l < 2 ? 0 : l < 20 ? 2 : l < 40 ? 1 : 0);
    static const size_t kv[] = { 2, 8, 14, 20 }, index[] = { 2, 8, 14, 20, 24, 28, 32, 36 };
    assert_int_equal(c->n_kv_sources, 4);
    assert_memory_equal(c->kv_sources, kv, sizeof kv);
    assert_int_equal(c->n_index_sources, 8);
    assert_memory_equal(c->index_sources, index, sizeof index);
    assert_int_equal(c->index_n_heads, 32);
    assert_int_equal(c->index_head_dim, 128);
    assert_int_equal(c->index_topk, 512);
    assert_int_equal(c->candidate_source, 20);
    assert_int_equal(c->candidate_topk_blocks, 2048);
    assert_int_equal(c->candidate_block_size, 8);
    assert_int_equal(c->hc_mult, 4);
    assert_int_equal(c->hc_sinkhorn_iters, 20);
    assert_int_equal(c->n_engram_layers, 2);
    assert_int_equal(c->engram_layers[1], 14);
    assert_true(c->engram_rows[0] == 384006168 && c->engram_rows[1] == 384016682);
    assert_int_equal(c->engram_max_ngram, 4);
    assert_int_equal(c->engram_heads, 8);
    assert_int_equal(c->engram_head_dim, 256);
    assert_int_equal(c->engram_compressed_vocab, 99092);
    assert_true(c->engram_vocab == 16000000);
    assert_int_equal(c->engram_pad_token, 2);
    assert_int_equal(c->n_mtp_layers, 3);
    assert_int_equal(c->decoder_start, 20);
    assert_int_equal(c->prefix_multiple, 2);
    assert_int_equal(c->kv_source_of[7], 0);
    assert_int_equal(c->kv_source_of[8], 1);
    assert_int_equal(c->kv_source_of[19], 2);
    assert_int_equal(c->kv_source_of[39], 3);
}

static void test_published(void **state)
{
    (void)state;
    mote__config c, f;
    mote_err err = { 0 };
    assert_int_equal(mote__config_load(&c, source_path("tests/data/config/v41-flash.json"), &err),
                     0);
    check_published(&c);
    assert_int_equal(c.bos, 0);
    assert_true(c.n_eos == 1 && c.eos[0] == 1 && c.has_bos && c.has_eos);
    assert_int_equal(c.image_token, 129264);
    assert_int_equal(
        mote__config_load(&f, source_path("tests/data/config/v41-flash-flat.json"), &err), 0);
    check_published(&f);
    assert_true(f.n_eos == 0 && f.bos == -1 && !f.has_bos && !f.has_eos);
    /* the flat form without its run-time limit: YaRN's reach */
    json_t *root = load("v41-flash-flat.json");
    json_object_del(root, "max_seq_len");
    assert_int_equal(parse(&f, root, &err), 0);
    assert_int_equal(f.max_context, 1048576);
    /* no YaRN at all */
    json_object_set_new(root, "original_seq_len", json_integer(0));
    json_object_set_new(root, "max_seq_len", json_integer(4096));
    json_object_del(root, "beta_fast");
    assert_int_equal(parse(&f, root, &err), 0);
    assert_int_equal(f.rope_original, 0);
    /* the bounds have defaults */
    json_object_set_new(root, "original_seq_len", json_integer(64));
    assert_int_equal(parse(&f, root, &err), 0);
    assert_true(f.rope_original == 64 && f.rope_beta_fast == 32 && f.rope_beta_slow == 1);
    json_decref(root);
    /* published names without the nesting */
    root = load("v41-flash.json");
    json_t *text = json_object_get(root, "text_config");
    json_object_set_new(text, "model_type", json_string("deepseek_v41"));
    assert_int_equal(parse(&c, text, &err), 0);
    check_published(&c);
    /* optional fields */
    json_object_del(text, "candidate_source_layer_id");
    json_object_del(text, "engram_layer_ids");
    json_object_del(text, "engram_num_embeddings");
    json_object_del(text, "norm_topk_prob");
    json_object_del(text, "swiglu_limit");
    json_object_del(text, "rope_scaling");
    json_object_del(text, "scoring_func");
    assert_int_equal(parse(&c, root, &err), 0);
    assert_int_equal(c.candidate_source, -1);
    assert_int_equal(c.candidate_topk_blocks, 0);
    assert_int_equal(c.n_engram_layers, 0);
    assert_int_equal(c.norm_topk_prob, 1);
    assert_true(c.swiglu_limit == 0 && c.routed_scaling_factor == 1.5f);
    assert_int_equal(c.rope_original, 0);
    json_object_set_new(text, "scoring_func", json_string("sigmoid"));
    assert_int_equal(parse(&c, root, &err), 0);
    assert_int_equal(c.score_func, MOTE_SCORE_SIGMOID);
    json_decref(root);
}

static void test_tiny(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t layers, sources, start, multiple, engram;
        int candidate;
    } rows[] = {
        { "tests/data/config/tiny-a.json", 8, 2, 5, 2, 1, 5 },
        { "tests/data/config/tiny-b.json", 12, 3, 7, 2, 2, 7 },
        { "tests/data/config/tiny-c.json", 10, 3, 7, 4, 0, -1 },
        { "models/nano/config.json", 12, 3, 6, 2, 2, 6 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mote__config c;
        mote_err err = { 0 };
        if (mote__config_load(&c, source_path(rows[i].path), &err))
            fail_msg("%s", err.message);
        assert_int_equal(c.n_layers, rows[i].layers);
        assert_int_equal(c.n_kv_sources, rows[i].sources);
        assert_int_equal(c.decoder_start, rows[i].start);
        assert_int_equal(c.prefix_multiple, rows[i].multiple);
        assert_int_equal(c.n_engram_layers, rows[i].engram);
        assert_int_equal(c.candidate_source, rows[i].candidate);
    }
}

/* One change to a good file and what the refusal must say. value NULL: the key is taken away. */
struct bad {
    const char *key, *value;
    int code;
    const char *words;
};

static const struct bad bad_nested[] = {
    /* missing, wrong type, out of range */
    { "hidden_size", NULL, MOTE_EFORMAT, "'hidden_size' is missing" },
    { "hidden_size", "\"5120\"", MOTE_EFORMAT, "'hidden_size' is a string, expected an integer" },
    { "hidden_size", "5120.0", MOTE_OK, NULL },
    { "compress_ratios[2]", "2.0", MOTE_OK, NULL },
    { "compress_ratios[2]", "2.5", MOTE_EFORMAT,
      "'compress_ratios[2]' is a number, expected an integer" },
    { "n_shared_experts", "1.0", MOTE_OK, NULL },
    { "hidden_size", "1e300", MOTE_EFORMAT, "'hidden_size' is 1.0000000000000001e+300, outside" },
    { "hidden_size", "5120.5", MOTE_EFORMAT, "'hidden_size' is a number, expected an integer" },
    { "hidden_size", "0", MOTE_EFORMAT, "'hidden_size' is 0, outside" },
    { "hidden_size", "-5120", MOTE_EFORMAT, "'hidden_size' is -5120, outside" },
    { "hidden_size", "9223372036854775807", MOTE_EFORMAT,
      "'hidden_size' is 9.2233720368547758e+18, outside" },
    { "vocab_size", "16777217", MOTE_EFORMAT, "'vocab_size' is 16777217, outside" },
    { "num_hidden_layers", "257", MOTE_EFORMAT, "'num_hidden_layers' is 257, outside" },
    { "index_topk", "0", MOTE_EFORMAT, "'index_topk' is 0, outside" },
    { "hc_mult", "9", MOTE_EFORMAT, "'hc_mult' is 9, outside" },
    { "hc_sinkhorn_iters", "0", MOTE_EFORMAT, "'hc_sinkhorn_iters' is 0" },
    { "rms_norm_eps", "0", MOTE_EFORMAT, "'rms_norm_eps' is 0, outside" },
    { "rms_norm_eps", "null", MOTE_EFORMAT, "'rms_norm_eps' is missing" },
    { "rope_theta", "1", MOTE_EFORMAT, "'rope_theta' is 1, outside" },
    { "norm_topk_prob", "1", MOTE_EFORMAT, "'norm_topk_prob' is an integer, expected a boolean" },
    { "swiglu_limit", "-1", MOTE_EFORMAT, "'swiglu_limit' is -1, outside" },
    { "sliding_window", "0", MOTE_EFORMAT, "'sliding_window' is 0" },
    { "max_position_embeddings", NULL, MOTE_EFORMAT, "'max_position_embeddings' is missing" },
    { "candidate_source_layer_id", "-2", MOTE_EFORMAT,
      "'candidate_source_layer_id' is -2, outside" },
    /* what this version runs */
    { "n_shared_experts", "2", MOTE_EUNSUPPORTED, "'n_shared_experts' is 2, this version runs 1" },
    { "num_key_value_heads", "8", MOTE_EUNSUPPORTED,
      "'num_key_value_heads' is 8, this version runs 1" },
    { "topk_method", "\"greedy\"", MOTE_EUNSUPPORTED,
      "'topk_method' is 'greedy', this version runs 'noaux_tc'" },
    { "hidden_act", "\"gelu\"", MOTE_EUNSUPPORTED, "'hidden_act' is 'gelu'" },
    { "attention_bias", "true", MOTE_EUNSUPPORTED, "'attention_bias' is true" },
    { "tie_word_embeddings", "true", MOTE_EUNSUPPORTED, "'tie_word_embeddings' is true" },
    { "scoring_func", "\"relu\"", MOTE_EUNSUPPORTED,
      "'scoring_func' is 'relu', known are sqrtsoftplus" },
    { "scoring_func", "3", MOTE_EFORMAT, "'scoring_func' is an integer, expected a string" },
    /* widths */
    { "hidden_size", "5121", MOTE_EFORMAT, "'hidden_size' is 5121, not a multiple of 32" },
    { "head_dim", "520", MOTE_EFORMAT, "'head_dim' is 520, not a multiple of 32" },
    { "q_lora_rank", "1281", MOTE_EFORMAT, "'q_lora_rank' is 1281, not a multiple of 32" },
    { "o_lora_rank", "1000", MOTE_EFORMAT, "'o_lora_rank' is 1000, not a multiple of 32" },
    { "moe_intermediate_size", "2305", MOTE_EFORMAT,
      "'moe_intermediate_size' is 2305, not a multiple of 32" },
    { "index_head_dim", "130", MOTE_EFORMAT, "'index_head_dim' is 130, not a multiple of 32" },
    { "qk_rope_head_dim", "63", MOTE_EFORMAT, "'qk_rope_head_dim' is 63, not even" },
    { "qk_rope_head_dim", "514", MOTE_EFORMAT, "'qk_rope_head_dim' is 514, more than 'head_dim'" },
    { "qk_rope_head_dim", "130", MOTE_EFORMAT,
      "'qk_rope_head_dim' is 130, more than 'index_head_dim'" },
    { "o_groups", "7", MOTE_EFORMAT, "'o_groups' is 7 and does not divide" },
    /* groups of 32: just right */
    { "o_groups", "1024", MOTE_OK, NULL },
    { "num_experts_per_tok", "250", MOTE_OK, NULL },
    { "n_routed_experts", "5", MOTE_EFORMAT, "'num_experts_per_tok' is 6 of 5 experts" },
    /* lists and layers */
    { "compress_ratios", "[0,0,2]", MOTE_EFORMAT,
      "'compress_ratios' has 3 elements for 40 layers" },
    { "compress_ratios", "{}", MOTE_EFORMAT, "'compress_ratios' is an object, expected an array" },
    { "compress_ratios[2]", "\"2\"", MOTE_EFORMAT,
      "'compress_ratios[2]' is a string, expected an integer" },
    { "compress_ratios[2]", "-2", MOTE_EFORMAT, "'compress_ratios[2]' is -2, outside" },
    { "compress_ratios[41]", "null", MOTE_EFORMAT, "'compress_ratios[41]' is null" },
    { "compress_ratios[0]", "3", MOTE_EFORMAT,
      "'compress_ratios' gives layer 0 the ratio 3; supported" },
    { "compress_ratios[3]", "32", MOTE_EFORMAT,
      "'compress_ratios' gives layer 3 the ratio 32; supported" },
    { "compress_ratios[1]", "2", MOTE_EFORMAT,
      "'compress_ratios' gives layer 1 a ratio before the first KV source (2)" },
    { "compress_ratios[3]", "4", MOTE_EFORMAT,
      "'compress_ratios' gives layer 3 the ratio 4, its KV source 2 has 2" },
    { "compress_ratios[25]", "2", MOTE_EFORMAT,
      "'compress_ratios' gives layer 25 the ratio 2, its KV source 20 has 1" },
    /* window only, between sources */
    { "compress_ratios[3]", "0", MOTE_OK, NULL },
    { "compress_ratios[24]", "0", MOTE_EFORMAT,
      "'index_source_layer_ids' names layer 24, whose ratio is 0" },
    { "compress_ratios[8]", "0", MOTE_EFORMAT,
      "'kv_source_layer_ids' names layer 8, whose ratio is 0" },
    { "kv_source_layer_ids", "[]", MOTE_EFORMAT, "'kv_source_layer_ids' is empty" },
    { "kv_source_layer_ids", NULL, MOTE_EFORMAT, "'kv_source_layer_ids' is missing" },
    { "kv_source_layer_ids", "[2,8,8,20]", MOTE_EFORMAT,
      "'kv_source_layer_ids' is not ascending (8 after 8)" },
    { "kv_source_layer_ids", "[2,14,8,20]", MOTE_EFORMAT,
      "'kv_source_layer_ids' is not ascending (8 after 14)" },
    { "kv_source_layer_ids", "[2,8,14,40]", MOTE_EFORMAT,
      "'kv_source_layer_ids' names layer 40 of 40" },
    { "kv_source_layer_ids", "[2,8,14,300]", MOTE_EFORMAT,
      "'kv_source_layer_ids[3]' is 300, outside" },
    { "kv_source_layer_ids", "[2,8,15,20]", MOTE_EFORMAT,
      "'kv_source_layer_ids' names layer 15, which 'index_source_layer_ids' lacks" },
    { "index_source_layer_ids", "[2,8,14,20,28,24]", MOTE_EFORMAT,
      "'index_source_layer_ids' is not ascending" },
    { "index_source_layer_ids", "[2,8,14,20,41]", MOTE_EFORMAT,
      "'index_source_layer_ids' names layer 41 of 40" },
    /* candidates */
    { "candidate_source_layer_id", "21", MOTE_EFORMAT,
      "'candidate_source_layer_id' is 21, which 'index_source_layer_ids' lacks" },
    { "candidate_source_layer_id", "14", MOTE_EFORMAT,
      "'candidate_source_layer_id' is 14, before the last KV source (20)" },
    { "candidate_block_size", "0", MOTE_EFORMAT, "'candidate_block_size' is 0; supported" },
    { "candidate_block_size", "6", MOTE_EFORMAT, "'candidate_block_size' is 6; supported" },
    { "candidate_block_size", "32", MOTE_EFORMAT, "'candidate_block_size' is 32, outside 0 to 16" },
    { "candidate_topk_blocks", "0", MOTE_EFORMAT, "'candidate_topk_blocks' is 0: blocks of 8" },
    { "candidate_topk_blocks", "64", MOTE_EFORMAT,
      "'candidate_topk_blocks' is 64: blocks of 8 cannot promise 'index_topk' = 512" },
    { "candidate_topk_blocks", "65", MOTE_OK, NULL },
    /* Engram */
    { "engram_layer_ids", "[1]", MOTE_EFORMAT,
      "'engram_num_embeddings' has 2 elements for 1 in 'engram_layer_ids'" },
    { "engram_layer_ids", "[14,1]", MOTE_EFORMAT, "'engram_layer_ids' is not ascending" },
    { "engram_layer_ids", "[1,40]", MOTE_EFORMAT, "'engram_layer_ids' names layer 40 of 40" },
    { "engram_num_embeddings", "[384006168,0]", MOTE_EFORMAT,
      "'engram_num_embeddings' gives layer 14 no rows" },
    { "engram_max_ngram_size", "1", MOTE_EFORMAT, "'engram_max_ngram_size' is 1, below 2" },
    { "engram_max_ngram_size", "9", MOTE_EFORMAT, "'engram_max_ngram_size' is 9, outside" },
    { "engram_n_heads", "0", MOTE_EFORMAT, "'engram_n_heads' is 0" },
    { "engram_head_dim", "48", MOTE_EFORMAT,
      "'engram_head_dim' is 48, not a positive multiple of 32" },
    { "engram_vocab_size", "1", MOTE_EFORMAT, "'engram_vocab_size' is 1, below 2" },
    { "engram_compressed_vocab_size", "0", MOTE_EFORMAT,
      "'engram_compressed_vocab_size' is 0, outside 1 to 'vocab_size'" },
    { "engram_compressed_vocab_size", "129281", MOTE_EFORMAT,
      "'engram_compressed_vocab_size' is 129281, outside 1" },
    { "engram_pad_token_id", "129280", MOTE_EFORMAT,
      "'engram_pad_token_id' is 129280, outside the vocabulary" },
    /* YaRN */
    { "rope_scaling", "[]", MOTE_EFORMAT, "'rope_scaling' is an array, expected an object" },
    { "rope_scaling", "{\"rope_type\":\"linear\",\"factor\":2}", MOTE_EUNSUPPORTED,
      "'rope_scaling': 'rope_type' is 'linear'; known are default, yarn" },
    { "rope_scaling", "{\"type\":\"dynamic\"}", MOTE_EUNSUPPORTED, "'rope_type' is 'dynamic'" },
    { "rope_scaling",
      "{\"rope_type\":\"yarn\",\"beta_fast\":32,\"beta_slow\":1,\"original_max_position_"
      "embeddings\":64}",
      MOTE_EFORMAT, "'factor' is missing" },
    { "rope_scaling",
      "{\"type\":\"yarn\",\"factor\":0.5,\"beta_fast\":32,\"beta_slow\":1,\"original_max_position_"
      "embeddings\":64}",
      MOTE_EFORMAT, "'factor' is 0.5, outside" },
    { "rope_scaling",
      "{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":1,\"beta_slow\":32,\"original_max_position_"
      "embeddings\":64}",
      MOTE_EFORMAT, "the fast bound (1) is not above the slow one (32)" },
    { "rope_scaling", "{\"factor\":2,\"original_max_position_embeddings\":64}", MOTE_EFORMAT,
      "'rope_scaling': 'rope_type' is missing" },
    { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2,\"attention_factor\":1.5}",
      MOTE_EUNSUPPORTED, "'attention_factor' is not applied" },
    { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2,\"attention_factor\":1.0,\"mscale\":0}",
      MOTE_OK, NULL },
    { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2,\"mscale\":1.0,\"mscale_all_dim\":1.0}",
      MOTE_EUNSUPPORTED, "'mscale' is not applied" },
    { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2,\"partial_rotary_factor\":0.125}",
      MOTE_OK, NULL },
    { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2,\"partial_rotary_factor\":0.5}",
      MOTE_EUNSUPPORTED, "'partial_rotary_factor' is not applied" },
    { "partial_rotary_factor", "0.5", MOTE_EUNSUPPORTED,
      "'partial_rotary_factor' asks for a variant of 'deepseek_v41'" },
    { "rope_theta", NULL, MOTE_EFORMAT, "'rope_theta' is missing" },
    { "compress_rope_theta", NULL, MOTE_EFORMAT, "'compress_rope_theta' is missing" },
    { "rope_interleave", "true", MOTE_OK, NULL },
    { "rope_local_base_freq", "10000", MOTE_EUNSUPPORTED,
      "'rope_local_base_freq' asks for a variant" },
    { "mscale", "1.0", MOTE_EUNSUPPORTED, "'mscale' asks for a variant" },
    { "rope_factor", "40", MOTE_EUNSUPPORTED, "'rope_factor' asks for a variant" },
};

static const struct bad bad_root[] = {
    { "model_type", "\"llama\"", MOTE_EFORMAT, "'intermediate_size' is missing" },
    { "model_type", "\"gpt2\"", MOTE_EUNSUPPORTED,
      "'model_type' is 'gpt2', this version runs 'deepseek_v41', 'llama', 'mistral', 'qwen2', "
      "'qwen3'" },
    { "model_type", NULL, MOTE_EFORMAT, "'model_type' is missing" },
    { "text_config", "3", MOTE_EFORMAT, "'text_config' is an integer, expected an object" },
    { "eos_token_id", "129280", MOTE_EFORMAT, "'eos_token_id' is 129280, outside 0 to 129279" },
    { "bos_token_id", "\"x\"", MOTE_EFORMAT, "'bos_token_id' is a string, expected an integer" },
    { "eos_token_id", "[7,8]", MOTE_OK, NULL },
    { "eos_token_id", "[7,129280]", MOTE_EFORMAT, "'eos_token_id' is 129280, outside" },
    { "bos_token_id", "[0,1]", MOTE_EUNSUPPORTED, "'bos_token_id' has more than 1 element" },
    { "bos_token_id", "[0]", MOTE_OK, NULL },
    { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2}", MOTE_EFORMAT,
      "'rope_scaling' stands beside 'text_config'" },
    { "quantization_config", "{\"weight_block_size\":[32.0,32]}", MOTE_OK, NULL },
    { "quantization_config", "{\"quant_method\":\"gptq\"}", MOTE_EUNSUPPORTED,
      "'quant_method' is 'gptq'" },
    { "quantization_config", "{\"scale_fmt\":\"f32\"}", MOTE_EUNSUPPORTED, "'scale_fmt' is 'f32'" },
    { "quantization_config", "{\"weight_block_size\":[128,128]}", MOTE_EUNSUPPORTED,
      "'weight_block_size' is not [32, 32]" },
};

static const struct bad bad_flat[] = {
    /* then it is no flat form */
    { "dim", NULL, MOTE_EFORMAT, "'model_type' is missing" },
    { "n_heads", NULL, MOTE_EFORMAT, "'n_heads' is missing" },
    { "norm_eps", "2", MOTE_EFORMAT, "'norm_eps' is 2, outside" },
    { "rope_head_dim", "63", MOTE_EFORMAT, "'rope_head_dim' is 63, not even" },
    { "kv_source_layers", "[2,8,15,20]", MOTE_EFORMAT,
      "'kv_source_layers' names layer 15, which 'index_source_layers' lacks" },
    { "candidate_source_layer", "14", MOTE_EFORMAT, "'candidate_source_layer' is 14, before" },
    { "score_func", "\"x\"", MOTE_EUNSUPPORTED, "'score_func' is 'x'" },
    { "model_type", "\"deepseek_v4\"", MOTE_EUNSUPPORTED, "'model_type' is 'deepseek_v4'" },
    { "engram_pad_id", "200000", MOTE_EFORMAT, "'engram_pad_id' is 200000, outside" },
    { "rope_factor", NULL, MOTE_EFORMAT, "'rope_factor' is missing" },
    { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2}", MOTE_EUNSUPPORTED,
      "'rope_scaling' is not applied in this form" },
    { "rope_parameters", "{\"rope_theta\":2}", MOTE_EUNSUPPORTED,
      "'rope_parameters' is not applied in this form" },
    { "rope_scaling", "{}", MOTE_OK, NULL },
    { "original_seq_len", "65536.0", MOTE_OK, NULL },
};

static void check_bad(const char *file, int in_text, const struct bad *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *root = load(file), *object = in_text ? json_object_get(root, "text_config") : root;
        char key[80];
        unsigned index;
        json_t *value = rows[i].value ? json_loads(rows[i].value, JSON_DECODE_ANY, NULL) : NULL;
        if (sscanf(rows[i].key, "%79[^[][%u]", key, &index) == 2)
            json_array_set_new(json_object_get(object, key), index, value);
        else if (value)
            json_object_set_new(object, rows[i].key, value);
        else
            json_object_del(object, rows[i].key);
        mote__config c;
        mote_err err = { 0 };
        int rc = parse(&c, root, &err);
        if (rc != rows[i].code ||
            (rc && (!strstr(err.message, rows[i].words) || strncmp(err.message, "cfg: ", 5))))
            fail_msg("%s = %s: %d '%s', expected %d '%s'", rows[i].key,
                     rows[i].value ? rows[i].value : "(absent)", rc, rc ? err.message : "",
                     rows[i].code, rows[i].words ? rows[i].words : "");
        json_decref(root);
    }
}

#define CHECK_BAD(file, in_text, rows) check_bad(file, in_text, rows, sizeof rows / sizeof *rows)
static void test_bad(void **state)
{
    (void)state;
    CHECK_BAD("v41-flash.json", 1, bad_nested);
    CHECK_BAD("v41-flash.json", 0, bad_root);
    CHECK_BAD("v41-flash-flat.json", 0, bad_flat);
    /* o_groups that divides but leaves narrow groups */
    json_t *root = load("v41-flash.json"), *text = json_object_get(root, "text_config");
    json_object_set_new(text, "num_attention_heads", json_integer(3));
    json_object_set_new(text, "head_dim", json_integer(160));
    json_object_set_new(text, "o_groups", json_integer(6));
    mote__config c;
    mote_err err;
    assert_int_equal(parse(&c, root, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "'o_groups' is 6 and leaves groups of 80"));
    json_decref(root);
    /* more sources than there is room for */
    root = load("v41-flash.json");
    json_t *many = json_array();
    for (int i = 0; i < 257; i++)
        json_array_append_new(many, json_integer(i));
    json_object_set_new(json_object_get(root, "text_config"), "kv_source_layer_ids", many);
    assert_int_equal(parse(&c, root, &err), MOTE_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "'kv_source_layer_ids' has 257 elements"));
    json_decref(root);
}

static void test_bad_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        { "", "cfg: line 1" },
        { "[]", "cfg: not a JSON object" },
        { "{\"a\":1,\"a\":2}", "duplicate" },
        { "{} x", "end of file" },
        { "{\"a\":\"\xff\"}", "byte 0xff" },
        { "3", "cfg:" },
    };
    mote__config c;
    mote_err err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(mote__config_parse(&c, rows[i].text, strlen(rows[i].text), "cfg", &err),
                         MOTE_EFORMAT);
        if (!strstr(err.message, rows[i].words))
            fail_msg("'%s' lacks '%s'", err.message, rows[i].words);
    }
    static char big[(16 << 20) + 1];
    memset(big, ' ', sizeof big);
    assert_int_equal(mote__config_parse(&c, big, sizeof big, "cfg", &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "more than the 16777216 allowed"));
    assert_int_equal(mote__config_load(&c, "/nonexistent/config.json", &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "/nonexistent/config.json: cannot open"));
    assert_int_equal(mote__config_load(&c, "/nonexistent/config.json", NULL), MOTE_EIO);
}

/* The same RoPE under every name that files use. */
static void test_rope_names(void **state)
{
    (void)state;
#define Y                                                                                   \
    "\"rope_type\":\"yarn\",\"factor\":16,\"beta_fast\":32,\"beta_slow\":1,\"original_max_" \
    "position_embeddings\":65536"
#define PLAIN_THETA "\"rope_type\":\"default\",\"rope_theta\":10000"
    static const struct {
        const char *changes;
        int code;
        const char *words;
    } rows[] = {
        { "{\"rope_scaling\":{" Y "}}", 0, NULL },
        { "{\"rope_scaling\":null,\"rope_parameters\":{" Y
          ",\"rope_theta\":10000},\"rope_theta\":null}",
          0, NULL },
        { "{\"rope_scaling\":{},\"rope_parameters\":{" Y "}}", 0, NULL },
        { "{\"rope_scaling\":null,\"rope_parameters\":{\"main\":{" PLAIN_THETA "},\"compress\":{" Y
          ",\"rope_theta\":160000}},"
          "\"rope_theta\":null,\"compress_rope_theta\":null}",
          0, NULL },
        { "{\"rope_scaling\":{" Y "},\"rope_parameters\":null}", 0, NULL },
        { "{\"rope_scaling\":{" Y "},\"rope_parameters\":{" PLAIN_THETA "}}", 0, NULL },
        { "{\"rope_scaling\":{\"type\":\"yarn\",\"rope_type\":\"yarn\",\"factor\":16.0,\"original_"
          "max_position_embeddings\":65536.0}}",
          0, NULL },
        { "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":16},\"original_max_position_"
          "embeddings\":65536}",
          0, NULL },
        { "{\"rope_theta\":77,\"rope_scaling\":null,\"rope_parameters\":{" Y
          ",\"rope_theta\":10000}}",
          0, NULL },
        { "{\"rope_scaling\":{" Y "},\"rope_parameters\":{" Y ",\"rope_theta\":10000}}", 0, NULL },
        { "{\"rope_scaling\":{" Y "},\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":8,"
          "\"original_max_position_embeddings\":65536}}",
          MOTE_EFORMAT,
          "'rope_scaling' and 'rope_parameters' say different things about 'factor'" },
        { "{\"rope_scaling\":{" Y "},\"rope_parameters\":{\"rope_theta\":500000}}", MOTE_EFORMAT,
          "say different things about 'rope_theta'" },
        { "{\"rope_scaling\":{" Y ",\"type\":\"linear\"}}", MOTE_EFORMAT,
          "'rope_type' is 'yarn' and 'type' is 'linear'" },
        { "{\"rope_scaling\":null,\"rope_parameters\":{\"main\":{" PLAIN_THETA "}}}", MOTE_EFORMAT,
          "'compress' is missing" },
        { "{\"rope_scaling\":null,\"rope_parameters\":{\"main\":{" Y "},\"compress\":{" Y "}}}",
          MOTE_EUNSUPPORTED, "'main' has rope_type 'yarn'" },
        { "{\"rope_scaling\":null,\"rope_parameters\":{\"main\":{" PLAIN_THETA "},\"compress\":{" Y
          "},\"factor\":2}}",
          MOTE_EUNSUPPORTED, "'factor' is not applied" },
        { "{\"rope_scaling\":{" Y ",\"long_factor\":[1,2]}}", MOTE_EUNSUPPORTED,
          "'long_factor' is not applied" },
        { "{\"rope_scaling\":{" Y ",\"truncate\":false}}", MOTE_EUNSUPPORTED,
          "'truncate' is not applied" },
        { "{\"rope_scaling\":{" Y ",\"truncate\":true,\"finetuned\":true,\"long_factor\":null}}", 0,
          NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root = load("v41-flash.json"), *changes = json_loads(rows[i].changes, 0, NULL);
        mote__config c;
        mote_err err = { 0 };
        assert_non_null(changes);
        json_object_update(json_object_get(root, "text_config"), changes);
        int rc = parse(&c, root, &err);
        if (rc != rows[i].code || (rc && !strstr(err.message, rows[i].words)))
            fail_msg("%s: %d '%s'", rows[i].changes, rc, err.message);
        if (!rc)
            check_published(&c);
        json_decref(changes);
        json_decref(root);
    }
    /* without original_max_position_embeddings: max_position_embeddings, as loaders do */
    json_t *root = load("v41-flash.json"),
           *y = json_object_get(json_object_get(root, "text_config"), "rope_scaling");
    json_object_del(y, "original_max_position_embeddings");
    json_object_del(y, "beta_fast");
    mote__config c;
    mote_err err;
    assert_int_equal(parse(&c, root, &err), 0);
    assert_true(c.rope_original == 1048576 && c.rope_beta_fast == 32);
    json_decref(root);
}

/* All of a list ends a text, wherever it stands. */
static void test_eos(void **state)
{
    (void)state;
    mote__config c;
    mote_err err;
    json_t *root = load("v41-flash.json"), *text = json_object_get(root, "text_config"),
           *many = json_array();
    json_object_set_new(root, "eos_token_id", json_pack("[i, f, i]", 7, 9.0, 7));
    assert_int_equal(parse(&c, root, &err), 0);
    assert_true(c.n_eos == 2 && c.eos[0] == 7 && c.eos[1] == 9);
    json_object_del(root, "eos_token_id");
    for (int i = 0; i < MOTE_MAX_EOS; i++)
        json_array_append_new(many, json_integer(i));
    json_object_set(text, "eos_token_id", many);
    assert_int_equal(parse(&c, root, &err), 0);
    assert_true(c.n_eos == MOTE_MAX_EOS && c.eos[MOTE_MAX_EOS - 1] == MOTE_MAX_EOS - 1);
    json_array_append_new(many, json_integer(MOTE_MAX_EOS));
    assert_int_equal(parse(&c, root, &err), MOTE_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "'eos_token_id' has more than 64 elements"));
    json_object_set_new(text, "eos_token_id", json_null());
    assert_int_equal(parse(&c, root, &err), 0);
    assert_true(c.n_eos == 0 && c.has_eos);
    json_decref(many);
    json_decref(root);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_generation(void **state)
{
    (void)state;
    char folder[] = "/tmp/mote-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    mote__config c = { .vocab_size = 100, .eos = { 7, 8 }, .n_eos = 2 };
    mote__generation g;
    mote_err err = { 0 };
    assert_int_equal(mote__generation_load(&g, folder, &c, &err), 0);
    assert_true(g.n_eos == 2 && g.eos[0] == 7 && g.eos[1] == 8 && g.temperature == 1 &&
                g.top_p == 1 && g.min_p == 0 && g.top_k == 0);
    write_text(path, "{\"eos_token_id\": [3, 5], \"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": "
                     "20, \"min_p\": 0.05}");
    assert_int_equal(mote__generation_load(&g, folder, &c, &err), 0);
    assert_true(g.n_eos == 2 && g.eos[0] == 3 && g.eos[1] == 5 && g.temperature == 0.6f &&
                g.top_p == 0.95f && g.top_k == 20 && g.min_p == 0.05f);
    write_text(path, "{\"eos_token_id\": 4, \"temperature\": null, \"top_p\": 0, \"top_k\": -1}");
    assert_int_equal(mote__generation_load(&g, folder, &c, &err), 0);
    assert_true(g.n_eos == 1 && g.eos[0] == 4 && g.temperature == 1 && g.top_p == 0 &&
                g.top_k == 0 && !*g.unapplied);
    write_text(path, "{\"eos_token_id\": [], \"do_sample\": false, \"temperature\": 0.7, "
                     "\"top_k\": 50.0, \"repetition_penalty\": 1.05,"
                     "\"num_beams\": 1, \"typical_p\": 1.0, \"stop_strings\": [\"x\"], "
                     "\"bad_words_ids\": null, \"suppress_tokens\": []}");
    assert_int_equal(mote__generation_load(&g, folder, &c, &err), 0);
    /* do_sample false: greedy */
    assert_true(g.n_eos == 2 && g.temperature == 0 && g.top_k == 50);
    assert_string_equal(g.unapplied, "'repetition_penalty' 1.05, 'stop_strings'");
    static const struct {
        const char *text;
        int code;
        const char *words;
    } rows[] = {
        { "[]", MOTE_EFORMAT, "not a JSON object" },
        { "{\"eos_token_id\": \"x\"}", MOTE_EFORMAT,
          "'eos_token_id' is a string, expected an integer" },
        { "{\"eos_token_id\": [1, 100]}", MOTE_EFORMAT, "'eos_token_id' is 100, outside 0 to 99" },
        { "{\"eos_token_id\": [-1]}", MOTE_EFORMAT, "'eos_token_id' is -1" },
        { "{\"temperature\": -0.5}", MOTE_EFORMAT, "'temperature' is -0.5, outside" },
        { "{\"top_p\": 1.5}", MOTE_EFORMAT, "'top_p' is 1.5, outside" },
        { "{\"top_p\": \"1\"}", MOTE_EFORMAT, "'top_p' is a string" },
        { "{\"top_k\": -2}", MOTE_EFORMAT, "'top_k' is -2, outside" },
        { "{\"top_k\": 1.5}", MOTE_EFORMAT, "'top_k' is a number, expected an integer" },
        { "{\"min_p\": 2}", MOTE_EFORMAT, "'min_p' is 2, outside" },
        { "{\"do_sample\": 1}", MOTE_EFORMAT, "'do_sample' is an integer, expected a boolean" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(path, rows[i].text);
        int rc = mote__generation_load(&g, folder, &c, &err);
        if (rc != rows[i].code || !strstr(err.message, rows[i].words) || !strstr(err.message, path))
            fail_msg("%s: %d '%s'", rows[i].text, rc, err.message);
    }
    assert_int_equal(mote__generation_load(&g, source_path("models/nano"), &c, &err), 0);
    assert_true(g.n_eos == 1 && g.eos[0] == 1 && g.top_p == 0.95f);
    /* there, but not to be read: an error, not the defaults */
    unlink(path);
    assert_int_equal(symlink("../blobs/gone", path), 0);
    assert_int_equal(mote__generation_load(&g, folder, &c, &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "generation_config.json: cannot open"));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mote__generation_load(&g, folder, &c, &err), MOTE_EIO);
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mote__generation_load(&g, folder, &c, &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "not a regular file"));
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),  cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_bad),        cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_rope_names), cmocka_unit_test(test_eos),
        cmocka_unit_test(test_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
