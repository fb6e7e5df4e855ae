/* The config.json of a DeepSeek-V4.1 model (the nested published form and the flat form of the
 * reference inference) or of a dense Llama-style model. Each field is range-checked, and errors
 * name fields that contradict each other. docs/config.md lists names and values. */
#ifndef MOTE_FILE_CONFIG_H
#define MOTE_FILE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Bounds that fixed-size arrays elsewhere depend on. Each such array has a static assert, and
 * tests/engine/ranges.c runs both ends of each range. */
enum {
    MOTE_MAX_LAYERS = 256,
    MOTE_MAX_SOURCES = 256,
    MOTE_MAX_ENGRAM = 16,
    MOTE_MAX_HC = 8,
    MOTE_MAX_HEAD_DIM = 4096,
    MOTE_MAX_NGRAM = 8,
    MOTE_MAX_ENGRAM_HEADS = 32,
    MOTE_MAX_RATIO = 16,
    MOTE_MAX_EOS = 64
};

typedef enum mote__score_func {
    MOTE_SCORE_SQRTSOFTPLUS,
    MOTE_SCORE_SIGMOID,
    MOTE_SCORE_SOFTMAX
} mote__score_func;

/* The architecture selects the tables of tensor names, layer roles and cache parts. */
typedef enum mote__arch {
    /* windows, shared compressed KV, experts, residual copies, Engram */
    MOTE_ARCH_V41,
    /* Llama-style: each layer has keys and values of n_kv_heads and one SwiGLU */
    MOTE_ARCH_DENSE,
    MOTE_ARCHS
} mote__arch;

/* RoPE frequencies of a dense model: unchanged, all divided, or scaled depending on the
 * wavelength. */
typedef enum mote__rope_rule {
    MOTE_ROPE_PLAIN,
    MOTE_ROPE_LINEAR,
    MOTE_ROPE_LLAMA3,
    MOTE_ROPE_YARN
} mote__rope_rule;

/* Fields have their published names (table in docs/config.md). Layer lists are ascending. A dense
 * model uses the same fields: each layer is a KV source of ratio 1; one residual copy, no window,
 * no routed experts; moe_intermediate_size is its intermediate_size. No pointers are owned. */
typedef struct mote__config {
    mote__arch arch;
    /* "deepseek_v41", "llama", ...; static */
    const char *family;
    size_t vocab_size, hidden_size, n_layers, n_heads, head_dim, rope_dim, q_lora_rank, o_lora_rank,
        o_groups;
    size_t moe_intermediate_size, n_routed_experts, n_experts_per_token;
    mote__score_func score_func;
    int norm_topk_prob;
    float routed_scaling_factor, swiglu_limit;
    size_t window;
    float rms_norm_eps;
    double rope_theta, compress_rope_theta;
    /* YaRN, on compressed layers; rope_original == 0: none */
    double rope_factor, rope_beta_fast, rope_beta_slow;
    size_t rope_original;
    size_t max_context;
    unsigned compress_ratios[MOTE_MAX_LAYERS]; /* 0: window only */
    size_t kv_sources[MOTE_MAX_SOURCES], n_kv_sources;
    size_t index_sources[MOTE_MAX_SOURCES], n_index_sources;
    size_t index_n_heads, index_head_dim, index_topk;
    int candidate_source; /* layer, or -1 */
    size_t candidate_topk_blocks, candidate_block_size;
    size_t hc_mult, hc_sinkhorn_iters;
    float hc_eps;
    size_t engram_layers[MOTE_MAX_ENGRAM], n_engram_layers;
    uint64_t engram_rows[MOTE_MAX_ENGRAM]; /* engram_num_embeddings */
    size_t engram_max_ngram, engram_heads, engram_head_dim, engram_compressed_vocab;
    uint64_t engram_vocab;
    int32_t engram_pad_token;
    int32_t bos, image_token; /* -1: none */
    int32_t eos[MOTE_MAX_EOS];
    size_t n_eos;
    int has_bos, has_eos; /* the file has the key, possibly null */
    size_t n_mtp_layers;
    /* dense models */
    size_t n_kv_heads; /* 0 in V4.1 */
    int qkv_bias, qk_norm, tied_embeddings;
    /* uses rope_factor and rope_original; llama3 has its high_freq_factor and low_freq_factor in
     * rope_beta_fast and rope_beta_slow */
    mote__rope_rule rope_rule;
    /* yarn: factor of cos and sin */
    double rope_attention;
    /* derived */
    /* first layer of the decoder: the last KV source; dense: n_layers, because every layer runs for
     * every token */
    size_t decoder_start;
    size_t prefix_multiple; /* least common multiple of the sources' ratios */
    /* index into kv_sources, for layers with a ratio */
    size_t kv_source_of[MOTE_MAX_LAYERS];
} mote__config;

/* Read the config.json at `path`. MOTE_EIO, MOTE_ENOMEM, MOTE_EFORMAT (missing, out of range or
 * contradictory; names the key), MOTE_EUNSUPPORTED (another architecture; names model_type). */
int mote__config_load(mote__config *config, const char *path, mote_err *err);
/* Read only bos and has_bos, of any model_type. */
int mote__config_load_bos(mote__config *config, const char *path, mote_err *err);
/* mote__config_load from text[0..n); messages begin with `what`. */
int mote__config_parse(mote__config *config, const char *text, size_t n, const char *what,
                       mote_err *err);

/* Called by config.c, which reads and range-checks single fields: checks the rules between fields
 * and fills in the derived fields (config_rules.c). flat: messages use the names of the flat
 * form. */
int mote__config_rules(mote__config *config, int flat, const char *what, mote_err *err);
/* The name of a field in the published or the flat form; static. */
const char *mote__config_key(const char *published, int flat);

/* The generation_config.json in the same folder. If it is missing: eos from config, temperature and
 * top_p 1, min_p and top_k 0 (off). unapplied: "'key' value, ..." of the settings that mote does
 * not apply; "" if none. A file that cannot be read is an error. */
typedef struct mote__generation {
    int32_t eos[MOTE_MAX_EOS];
    size_t n_eos;
    float temperature, top_p, min_p;
    int top_k;
    char unapplied[200];
} mote__generation;
int mote__generation_load(mote__generation *g, const char *folder, const mote__config *config,
                          mote_err *err);

#endif
