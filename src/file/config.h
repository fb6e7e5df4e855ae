/* config.json of a DeepSeek-V4.1 model (the nested published form and the flat form of the
 * reference inference) or of a dense Llama-style model. Every field is range-checked, and fields
 * that contradict each other are named. Source of names and values: docs/config.md. */
#ifndef MOTE_FILE_CONFIG_H
#define MOTE_FILE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Bounds that arrays elsewhere are made for: each such array has a static assert, and
 * tests/engine/ranges.c runs both ends. */
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

/* What a model is made of: the row of the tables of tensor names, layer roles and cache parts. */
typedef enum mote__arch {
    /* windows, shared compressed KV, experts, residual copies, Engram */
    MOTE_ARCH_V41,
    /* Llama-style: every layer keeps keys and values of n_kv_heads and one SwiGLU */
    MOTE_ARCH_DENSE,
    MOTE_ARCHS
} mote__arch;

/* Frequencies of a dense model's RoPE: as they are, all divided, or stretched by wavelength. */
typedef enum mote__rope_rule {
    MOTE_ROPE_PLAIN,
    MOTE_ROPE_LINEAR,
    MOTE_ROPE_LLAMA3,
    MOTE_ROPE_YARN
} mote__rope_rule;

/* Published names (TABLE in docs/config.md). Layer lists are ascending. A dense model is read into
 * the same fields: every layer is a KV source of ratio 1, one residual copy, no window, no routed
 * experts; moe_intermediate_size is its intermediate_size. */
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
    int has_bos, has_eos; /* the file has the key, be it null */
    size_t n_mtp_layers;
    /* dense models */
    size_t n_kv_heads; /* 0 in V4.1 */
    int qkv_bias, qk_norm, tied_embeddings;
    /* with rope_factor, rope_original and, as beta_fast and beta_slow, */
    mote__rope_rule rope_rule;
    /* llama3's high and low_freq_factor; yarn: scale of cos and sin */
    double rope_attention;
    /* derived */
    /* = last KV source; dense: n_layers, as every layer runs over every token */
    size_t decoder_start;
    size_t prefix_multiple; /* lcm of the sources' ratios */
    /* index into kv_sources, for layers with a ratio */
    size_t kv_source_of[MOTE_MAX_LAYERS];
} mote__config;

/* path: the config.json itself. MOTE_EIO, MOTE_EFORMAT (missing, out of range, contradictory: names
 * the key), MOTE_EUNSUPPORTED (another architecture: names model_type). */
int mote__config_load(mote__config *config, const char *path, mote_err *err);
/* Only bos and has_bos, of a model of any kind. */
int mote__config_load_bos(mote__config *config, const char *path, mote_err *err);
int mote__config_parse(mote__config *config, const char *text, size_t n, const char *what,
                       mote_err *err);

/* Between config.c, which reads and range-checks each field by itself, and config_rules.c, which
 * checks what fields say about each other and fills in the derived ones. flat: messages use the
 * flat form's names. */
int mote__config_rules(mote__config *config, int flat, const char *what, mote_err *err);
const char *mote__config_key(const char *published, int flat);

/* generation_config.json beside it; a missing file gives the defaults: eos from config, temperature
 * and top_p 1, min_p and top_k 0 (off). unapplied: "'key' value, ..." of what it asks for that is
 * not done; "" if nothing. */
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
