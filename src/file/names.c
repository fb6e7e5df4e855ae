/* The tables of tensor names, which loading, placement, inspection, the planner's sums and the
 * bench's model all walk, and the two walks over them: from a name to its row, and from the
 * configuration to all names. */
#include "file/names.h"

#include <stdio.h>
#include <string.h>

/* Which layers have a row's tensor. */
typedef enum where {
    ONCE,
    ONCE_UNTIED,
    EACH,
    AT_KV,
    AT_KV_GROUPS,
    AT_INDEX,
    AT_ENGRAM,
    IF_QKV_BIAS,
    IF_QK_NORM
} where;

/* How it is stored as published. LINEAR, BF16, FP8, MXFP4 and TABLE rows give the stem: ".weight"
 * and, where that is quantised,
 * ".scale" (or ".weight_scale_inv") follow. */
typedef enum stored { NORM, PLAIN, F32, FLOAT, LINEAR, BF16, FP8, MXFP4, TABLE } stored;

/* Sizes by name; NONE in the second place: one dimension. */
typedef enum size {
    NONE,
    VOCAB,
    HIDDEN,
    Q_LORA,
    HEADS,
    HEADS_DIM,
    HEAD_DIM,
    O_RANKS,
    O_IN,
    INDEX_HEADS,
    INDEX_HEADS_DIM,
    INDEX_DIM,
    HC_OUT,
    HC_IN,
    HC,
    THREE,
    EXPERTS,
    INTER,
    ROWS,
    ROW_DIM,
    ENGRAM_OUT,
    ENGRAM_IN,
    KV_DIM
} size;

/* '#' stands for the layer, '*' for the expert. */
typedef struct name_row {
    mote__tensor_id id;
    const char *pattern;
    mote__tclass cls;
    where at;
    stored as;
    size dims[2];
} name_row;

/* clang-format off */
#define ROW(id, pattern, cls, at, as, d0, d1) \
    { MOTE_T_##id, pattern, MOTE_TC_##cls, at, as, { d0, d1 } }
static const name_row v41_rows[] = {
    ROW(EMBED, "embed.weight", EMBED, ONCE, PLAIN, VOCAB, HIDDEN),
    ROW(HEAD, "head.weight", HEAD, ONCE, PLAIN, VOCAB, HIDDEN),
    ROW(NORM, "norm.weight", NORM, ONCE, NORM, HIDDEN, NONE),
    ROW(ATTN_NORM, "layers.#.attn_norm.weight", NORM, EACH, NORM, HIDDEN, NONE),
    ROW(FFN_NORM, "layers.#.ffn_norm.weight", NORM, EACH, NORM, HIDDEN, NONE),
    ROW(WQ_A, "layers.#.attn.wq_a", ATTENTION, EACH, FP8, Q_LORA, HIDDEN),
    ROW(WQ_B, "layers.#.attn.wq_b", ATTENTION, EACH, FP8, HEADS_DIM, Q_LORA),
    ROW(WKV, "layers.#.attn.wkv", ATTENTION, EACH, FP8, HEAD_DIM, HIDDEN),
    ROW(WO_A, "layers.#.attn.wo_a", ATTENTION, EACH, FP8, O_RANKS, O_IN),
    ROW(WO_B, "layers.#.attn.wo_b", ATTENTION, EACH, FP8, HIDDEN, O_RANKS),
    ROW(Q_NORM, "layers.#.attn.q_norm.weight", NORM, EACH, NORM, Q_LORA, NONE),
    ROW(KV_NORM, "layers.#.attn.kv_norm.weight", NORM, EACH, NORM, HEAD_DIM, NONE),
    ROW(SINK, "layers.#.attn.attn_sink", ATTENTION, EACH, F32, HEADS, NONE),
    ROW(C_WKV, "layers.#.attn.compressor.wkv", COMPRESSOR, AT_KV, BF16, HEAD_DIM, HIDDEN),
    ROW(C_GATE, "layers.#.attn.compressor.wgate", COMPRESSOR, AT_KV_GROUPS, BF16, HEAD_DIM, HIDDEN),
    ROW(C_NORM, "layers.#.attn.compressor.norm.weight", NORM, AT_KV, NORM, HEAD_DIM, NONE),
    ROW(I_WQ, "layers.#.attn.indexer.wq_b", INDEXER, AT_INDEX, FP8, INDEX_HEADS_DIM, Q_LORA),
    ROW(I_W, "layers.#.attn.indexer.weights_proj", INDEXER, AT_INDEX, BF16, INDEX_HEADS, HIDDEN),
    ROW(I_WK, "layers.#.attn.indexer.wk", INDEXER, AT_KV, BF16, INDEX_DIM, HEAD_DIM),
    ROW(I_NORM, "layers.#.attn.indexer.k_norm.weight", NORM, AT_KV, NORM, INDEX_DIM, NONE),
    ROW(HC_ATTN_FN, "layers.#.hc_attn_fn", HYPER, EACH, F32, HC_OUT, HC_IN),
    ROW(HC_ATTN_BASE, "layers.#.hc_attn_base", HYPER, EACH, F32, HC_OUT, NONE),
    ROW(HC_ATTN_SCALE, "layers.#.hc_attn_scale", HYPER, EACH, F32, THREE, NONE),
    ROW(HC_FFN_FN, "layers.#.hc_ffn_fn", HYPER, EACH, F32, HC_OUT, HC_IN),
    ROW(HC_FFN_BASE, "layers.#.hc_ffn_base", HYPER, EACH, F32, HC_OUT, NONE),
    ROW(HC_FFN_SCALE, "layers.#.hc_ffn_scale", HYPER, EACH, F32, THREE, NONE),
    ROW(GATE, "layers.#.ffn.gate.weight", ROUTER, EACH, PLAIN, EXPERTS, HIDDEN),
    ROW(GATE_BIAS, "layers.#.ffn.gate.bias", ROUTER, EACH, F32, EXPERTS, NONE),
    ROW(SHARED_W1, "layers.#.ffn.shared_experts.w1", SHARED_EXPERT, EACH, FP8, INTER, HIDDEN),
    ROW(SHARED_W2, "layers.#.ffn.shared_experts.w2", SHARED_EXPERT, EACH, FP8, HIDDEN, INTER),
    ROW(SHARED_W3, "layers.#.ffn.shared_experts.w3", SHARED_EXPERT, EACH, FP8, INTER, HIDDEN),
    ROW(EXPERT_W1, "layers.#.ffn.experts.*.w1", EXPERT, EACH, MXFP4, INTER, HIDDEN),
    ROW(EXPERT_W2, "layers.#.ffn.experts.*.w2", EXPERT, EACH, MXFP4, HIDDEN, INTER),
    ROW(EXPERT_W3, "layers.#.ffn.experts.*.w3", EXPERT, EACH, MXFP4, INTER, HIDDEN),
    ROW(ENGRAM_TABLE, "layers.#.engram.embed", ENGRAM_TABLE, AT_ENGRAM, TABLE, ROWS, ROW_DIM),
    ROW(ENGRAM_WKV, "layers.#.engram.wkv", ENGRAM, AT_ENGRAM, FP8, ENGRAM_OUT, ENGRAM_IN),
    ROW(ENGRAM_Q, "layers.#.engram.q_weight", ENGRAM, AT_ENGRAM, NORM, HC, HIDDEN),
    ROW(ENGRAM_K, "layers.#.engram.k_weight", ENGRAM, AT_ENGRAM, NORM, HC, HIDDEN),
};

static const name_row dense_rows[] = {
    ROW(EMBED, "model.embed_tokens.weight", EMBED, ONCE, FLOAT, VOCAB, HIDDEN),
    ROW(HEAD, "lm_head", HEAD, ONCE_UNTIED, LINEAR, VOCAB, HIDDEN),
    ROW(NORM, "model.norm.weight", NORM, ONCE, FLOAT, HIDDEN, NONE),
    ROW(ATTN_NORM, "model.layers.#.input_layernorm.weight", NORM, EACH, FLOAT, HIDDEN, NONE),
    ROW(FFN_NORM, "model.layers.#.post_attention_layernorm.weight", NORM, EACH, FLOAT,
        HIDDEN, NONE),
    ROW(WQ, "model.layers.#.self_attn.q_proj", ATTENTION, EACH, LINEAR, HEADS_DIM, HIDDEN),
    ROW(WK, "model.layers.#.self_attn.k_proj", ATTENTION, EACH, LINEAR, KV_DIM, HIDDEN),
    ROW(WV, "model.layers.#.self_attn.v_proj", ATTENTION, EACH, LINEAR, KV_DIM, HIDDEN),
    ROW(WO, "model.layers.#.self_attn.o_proj", ATTENTION, EACH, LINEAR, HIDDEN, HEADS_DIM),
    ROW(Q_BIAS, "model.layers.#.self_attn.q_proj.bias", ATTENTION, IF_QKV_BIAS, FLOAT,
        HEADS_DIM, NONE),
    ROW(K_BIAS, "model.layers.#.self_attn.k_proj.bias", ATTENTION, IF_QKV_BIAS, FLOAT,
        KV_DIM, NONE),
    ROW(V_BIAS, "model.layers.#.self_attn.v_proj.bias", ATTENTION, IF_QKV_BIAS, FLOAT,
        KV_DIM, NONE),
    ROW(Q_NORM, "model.layers.#.self_attn.q_norm.weight", NORM, IF_QK_NORM, FLOAT, HEAD_DIM, NONE),
    ROW(K_NORM, "model.layers.#.self_attn.k_norm.weight", NORM, IF_QK_NORM, FLOAT, HEAD_DIM, NONE),
    ROW(SHARED_W1, "model.layers.#.mlp.gate_proj", FFN, EACH, LINEAR, INTER, HIDDEN),
    ROW(SHARED_W3, "model.layers.#.mlp.up_proj", FFN, EACH, LINEAR, INTER, HIDDEN),
    ROW(SHARED_W2, "model.layers.#.mlp.down_proj", FFN, EACH, LINEAR, HIDDEN, INTER),
};
/* clang-format on */

static const struct table {
    const name_row *rows;
    size_t n;
} tables[MOTE_ARCHS] = {
    [MOTE_ARCH_V41] = { v41_rows, sizeof v41_rows / sizeof *v41_rows },
    [MOTE_ARCH_DENSE] = { dense_rows, sizeof dense_rows / sizeof *dense_rows },
};

/* Known and not loaded: whole families by prefix, and one bias. */
static const struct {
    const char *prefix;
    mote__tclass cls;
} not_loaded[] = {
    { "mtp.", MOTE_TC_MTP },
    { "vision.", MOTE_TC_VISION },
    { "aligner.", MOTE_TC_VISION },
    { "image_", MOTE_TC_VISION },
};
static const char image_bias[] = "layers.#.ffn.gate.bias_vl";

static const struct {
    const char *name;
    mote__tgroup group;
    int loaded;
    mote_weight_group placed; /* with */
} classes[MOTE_TCLASSES] = {
    [MOTE_TC_EMBED] = { "embed", MOTE_TG_DENSE, 1, MOTE_GROUP_EMBED },
    [MOTE_TC_HEAD] = { "head", MOTE_TG_DENSE, 1, MOTE_GROUP_HEAD },
    [MOTE_TC_NORM] = { "norm", MOTE_TG_DENSE, 1, MOTE_GROUP_DENSE },
    [MOTE_TC_ATTENTION] = { "attention", MOTE_TG_DENSE, 1, MOTE_GROUP_DENSE },
    [MOTE_TC_COMPRESSOR] = { "compressor", MOTE_TG_DENSE, 1, MOTE_GROUP_DENSE },
    [MOTE_TC_INDEXER] = { "indexer", MOTE_TG_DENSE, 1, MOTE_GROUP_DENSE },
    [MOTE_TC_HYPER] = { "hyper_connection", MOTE_TG_DENSE, 1, MOTE_GROUP_DENSE },
    [MOTE_TC_ROUTER] = { "router", MOTE_TG_DENSE, 1, MOTE_GROUP_DENSE },
    [MOTE_TC_SHARED_EXPERT] = { "shared_expert", MOTE_TG_DENSE, 1, MOTE_GROUP_SHARED },
    [MOTE_TC_FFN] = { "ffn", MOTE_TG_DENSE, 1, MOTE_GROUP_DENSE },
    [MOTE_TC_EXPERT] = { "routed_expert", MOTE_TG_EXPERTS, 1, MOTE_GROUP_EXPERTS },
    [MOTE_TC_ENGRAM_TABLE] = { "engram_table", MOTE_TG_ENGRAM, 1, MOTE_GROUP_ENGRAM },
    [MOTE_TC_ENGRAM] = { "engram", MOTE_TG_ENGRAM, 1, MOTE_GROUP_DENSE },
    [MOTE_TC_MTP] = { "mtp", MOTE_TG_DRAFT, 0, MOTE_WEIGHT_GROUPS },
    [MOTE_TC_VISION] = { "vision", MOTE_TG_VISION, 0, MOTE_WEIGHT_GROUPS },
    [MOTE_TC_IMAGE_BIAS] = { "image_bias", MOTE_TG_OTHER, 0, MOTE_WEIGHT_GROUPS },
    [MOTE_TC_UNKNOWN] = { "unknown", MOTE_TG_OTHER, 0, MOTE_WEIGHT_GROUPS },
};
const char *mote__tclass_name(mote__tclass cls) { return classes[cls].name; }
mote__tgroup mote__tclass_group(mote__tclass cls) { return classes[cls].group; }
int mote__tclass_is_loaded(mote__tclass cls) { return classes[cls].loaded; }
mote_weight_group mote__tclass_placed(mote__tclass cls) { return classes[cls].placed; }

const char *mote__tgroup_name(mote__tgroup group)
{
    static const char *const names[MOTE_TGROUPS] = { "dense", "routed_experts", "engram",
                                                     "draft", "vision",         "other" };
    return names[group];
}

static int has_scale(stored as)
{
    return as == LINEAR || as == BF16 || as == FP8 || as == MXFP4 || as == TABLE;
}

/* A decimal number without leading zeros, at most 5 digits; the bytes it took, 0 if there is none.
 */
static size_t read_number(const char *s, int *value)
{
    size_t n = 0;
    *value = 0;
    while (n < 6 && s[n] >= '0' && s[n] <= '9')
        *value = *value * 10 + (s[n++] - '0');
    return n > 5 || (n > 1 && s[0] == '0') ? 0 : n;
}

/* Matches name against pattern; returns what is left of the name, or NULL. */
static const char *match(const char *pattern, const char *name, int *layer, int *expert)
{
    for (; *pattern; pattern++) {
        if (*pattern == '#' || *pattern == '*') {
            size_t n = read_number(name, *pattern == '#' ? layer : expert);
            if (!n)
                return NULL;
            name += n;
        } else if (*name++ != *pattern) {
            return NULL;
        }
    }
    return name;
}

static int is_in(size_t layer, const size_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == layer)
            return 1;
    return 0;
}

static int layer_has(const mote__config *c, where at, size_t layer)
{
    if (layer >= c->n_layers)
        return 0;
    switch (at) {
    case ONCE:
    case ONCE_UNTIED: return 0;
    case EACH: return 1;
    case AT_KV: return is_in(layer, c->kv_sources, c->n_kv_sources);
    case AT_KV_GROUPS:
        return is_in(layer, c->kv_sources, c->n_kv_sources) && c->compress_ratios[layer] > 1;
    case AT_INDEX: return is_in(layer, c->index_sources, c->n_index_sources);
    case AT_ENGRAM: return is_in(layer, c->engram_layers, c->n_engram_layers);
    case IF_QKV_BIAS: return c->qkv_bias;
    case IF_QK_NORM: return c->qk_norm;
    }
    return 0;
}

static int once(const mote__config *c, where at)
{
    return at == ONCE || (at == ONCE_UNTIED && !(c && c->tied_embeddings));
}

/* The row of `name`, with its layer and expert, or NULL. */
static const name_row *find_row(const struct table *t, const char *name, int *layer, int *expert)
{
    for (size_t i = 0; i < t->n; i++) {
        *layer = *expert = -1;
        const char *rest = match(t->rows[i].pattern, name, layer, expert);
        if (rest &&
            (has_scale(t->rows[i].as) ? !strcmp(rest, ".weight") || !strcmp(rest, ".scale") ||
                                            !strcmp(rest, ".weight_scale_inv")
                                      : !*rest))
            return &t->rows[i]; /* patterns exclude each other */
    }
    return NULL;
}

mote__tclass mote__tensor_class(const char *name, const mote__config *config, int *layer,
                                int *expert)
{
    int l = -1, e = -1, unused;
    mote__tclass cls = MOTE_TC_UNKNOWN;
    for (size_t i = 0; i < sizeof not_loaded / sizeof *not_loaded && cls == MOTE_TC_UNKNOWN; i++)
        if (!strncmp(name, not_loaded[i].prefix, strlen(not_loaded[i].prefix)))
            cls = not_loaded[i].cls;
    for (int a = config ? (int)config->arch : 0;
         a < (config ? (int)config->arch + 1 : MOTE_ARCHS) && cls == MOTE_TC_UNKNOWN; a++) {
        const name_row *found = find_row(&tables[a], name, &l, &e);
        if (found && (!config || once(config, found->at) ||
                      (layer_has(config, found->at, (size_t)l) &&
                       (e < 0 || (size_t)e < config->n_routed_experts))))
            cls = found->cls;
    }
    if (cls == MOTE_TC_UNKNOWN) {
        l = e = -1;
        const char *rest = match(image_bias, name, &l, &unused);
        if (rest && !*rest && (!config || (size_t)l < config->n_layers))
            cls = MOTE_TC_IMAGE_BIAS;
        else
            l = -1;
    }
    if (layer)
        *layer = l;
    if (expert)
        *expert = e;
    return cls;
}

static uint64_t value_of(const mote__config *c, size s, size_t layer)
{
    switch (s) {
    case NONE: return 0;
    case VOCAB: return c->vocab_size;
    case HIDDEN: return c->hidden_size;
    case Q_LORA: return c->q_lora_rank;
    case HEADS: return c->n_heads;
    case HEADS_DIM: return c->n_heads * c->head_dim;
    case HEAD_DIM: return c->head_dim;
    case O_RANKS: return c->o_groups * c->o_lora_rank;
    case O_IN: return c->n_heads * c->head_dim / c->o_groups;
    case INDEX_HEADS: return c->index_n_heads;
    case INDEX_HEADS_DIM: return c->index_n_heads * c->index_head_dim;
    case INDEX_DIM: return c->index_head_dim;
    case HC_OUT: return (2 + c->hc_mult) * c->hc_mult;
    case HC_IN: return c->hc_mult * c->hidden_size;
    case HC: return c->hc_mult;
    case THREE: return 3;
    case EXPERTS: return c->n_routed_experts;
    case INTER: return c->moe_intermediate_size;
    case ROWS:
        for (size_t i = 0; i < c->n_engram_layers; i++)
            if (c->engram_layers[i] == layer)
                return c->engram_rows[i];
        return 0;
    case ROW_DIM: return c->engram_head_dim;
    case ENGRAM_OUT: return c->hidden_size * (c->hc_mult + 1);
    case ENGRAM_IN: return (c->engram_max_ngram - 1) * c->engram_heads * c->engram_head_dim;
    case KV_DIM: return c->n_kv_heads * c->head_dim;
    }
    return 0;
}

#define DT(name) (1u << MOTE_DT_##name)
/* The published dtype of each way to store, and those that can stand in for it. */
static const struct {
    mote__dtype dtype;
    unsigned dtypes;
} storage[] = {
    [NORM] = { MOTE_DT_BF16, DT(BF16) | DT(F32) },
    [PLAIN] = { MOTE_DT_BF16, DT(BF16) | DT(F32) },
    [F32] = { MOTE_DT_F32, DT(BF16) | DT(F32) },
    [FLOAT] = { MOTE_DT_BF16, DT(BF16) | DT(F16) | DT(F32) },
    [LINEAR] = { MOTE_DT_BF16, DT(F8_E4M3) | DT(BF16) | DT(F16) | DT(F32) },
    [BF16] = { MOTE_DT_BF16, DT(I8) | DT(F8_E4M3) | DT(BF16) | DT(F32) },
    [FP8] = { MOTE_DT_F8_E4M3, DT(I8) | DT(F8_E4M3) | DT(BF16) | DT(F32) },
    [MXFP4] = { MOTE_DT_I8, DT(I8) | DT(F8_E4M3) | DT(BF16) | DT(F32) },
    [TABLE] = { MOTE_DT_F8_E4M3, DT(F8_E4M3) },
};

int mote__expected_shape(uint64_t shape[2], const mote__expected *e, mote__dtype weight_dtype)
{
    int packed = weight_dtype == MOTE_DT_I8, fp8 = weight_dtype == MOTE_DT_F8_E4M3;
    shape[0] = e->dims[0];
    shape[1] = e->n_dims == 2 ? e->dims[1] : 0;
    if (!e->is_scale) {
        if (packed)
            shape[1] /= 2; /* two codes a byte */
        return 1;
    }
    shape[1] = (shape[1] + 31) / 32; /* one scale per 32 columns ... */
    if (fp8 && e->cls != MOTE_TC_ENGRAM_TABLE)
        /* ... and, for FP8 linears, per 32 rows */
        shape[0] = (shape[0] + 31) / 32;
    return packed || fp8;
}

static int give(const mote__config *c, const name_row *row, int layer, int expert,
                int (*each)(void *ctx, const mote__expected *e), void *ctx)
{
    char stem[100], name[120], weight[120];
    size_t used = 0;
    /* the longest pattern and two numbers take some 60 bytes */
    for (const char *p = row->pattern; *p; p++)
        if (*p == '#' || *p == '*')
            used += (size_t)snprintf(stem + used, sizeof stem - used, "%d",
                                     *p == '#' ? layer : expert);
        else
            stem[used++] = *p;
    stem[used] = 0;
    mote__expected e = {
        .name = stem,
        .id = row->id,
        .cls = row->cls,
        .layer = layer,
        .expert = expert,
        .n_dims = row->dims[1] == NONE ? 1 : 2,
        .dims = { value_of(c, row->dims[0], (size_t)layer),
                  value_of(c, row->dims[1], (size_t)layer) },
        .dtype = storage[row->as].dtype,
        .weight_dtype = storage[row->as].dtype,
        .dtypes = storage[row->as].dtypes,
    };
    if (has_scale(row->as)) {
        snprintf(name, sizeof name, "%s.weight", stem);
        e.name = name;
    }
    mote__expected_shape(e.shape, &e, e.dtype);
    e.n_bytes = mote__shape_bytes(e.dtype, e.shape, e.n_dims);
    int rc = each(ctx, &e);
    if (rc || !has_scale(row->as))
        return rc;
    memcpy(weight, name, sizeof weight);
    snprintf(name, sizeof name, "%s.scale", stem);
    e.weight = weight;
    e.is_scale = 1;
    e.dtypes = DT(F8_E8M0);
    int published = mote__expected_shape(e.shape, &e, e.dtype);
    e.dtype = MOTE_DT_F8_E8M0;
    e.n_bytes = published ? mote__shape_bytes(e.dtype, e.shape, e.n_dims) : 0;
    return each(ctx, &e);
}

int mote__expected_tensors(const mote__config *c, int (*each)(void *ctx, const mote__expected *e),
                           void *ctx)
{
    int rc = 0;
    const name_row *rows = tables[c->arch].rows;
    size_t n_rows = tables[c->arch].n;
    for (size_t i = 0; !rc && i < n_rows; i++)
        if (once(c, rows[i].at))
            rc = give(c, &rows[i], -1, -1, each, ctx);
    for (size_t l = 0; !rc && l < c->n_layers; l++)
        for (size_t i = 0; !rc && i < n_rows; i++) {
            if (!layer_has(c, rows[i].at, l))
                continue;
            int experts = strchr(rows[i].pattern, '*') != NULL;
            for (size_t x = 0; !rc && x < (experts ? c->n_routed_experts : 1); x++)
                rc = give(c, &rows[i], (int)l, experts ? (int)x : -1, each, ctx);
        }
    return rc;
}
