/* The tables of tensor names and the two walks over them: from a name to its row, and from the
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
    const char *pattern;
    mote__tclass cls;
    where at;
    stored as;
    size dims[2];
} name_row;

static const name_row v41_rows[] = {
    { "embed.weight", MOTE_TC_EMBED, ONCE, PLAIN, { VOCAB, HIDDEN } },
    { "head.weight", MOTE_TC_HEAD, ONCE, PLAIN, { VOCAB, HIDDEN } },
    { "norm.weight", MOTE_TC_NORM, ONCE, NORM, { HIDDEN, NONE } },
    { "layers.#.attn_norm.weight", MOTE_TC_NORM, EACH, NORM, { HIDDEN, NONE } },
    { "layers.#.ffn_norm.weight", MOTE_TC_NORM, EACH, NORM, { HIDDEN, NONE } },
    { "layers.#.attn.wq_a", MOTE_TC_ATTENTION, EACH, FP8, { Q_LORA, HIDDEN } },
    { "layers.#.attn.wq_b", MOTE_TC_ATTENTION, EACH, FP8, { HEADS_DIM, Q_LORA } },
    { "layers.#.attn.wkv", MOTE_TC_ATTENTION, EACH, FP8, { HEAD_DIM, HIDDEN } },
    { "layers.#.attn.wo_a", MOTE_TC_ATTENTION, EACH, FP8, { O_RANKS, O_IN } },
    { "layers.#.attn.wo_b", MOTE_TC_ATTENTION, EACH, FP8, { HIDDEN, O_RANKS } },
    { "layers.#.attn.q_norm.weight", MOTE_TC_NORM, EACH, NORM, { Q_LORA, NONE } },
    { "layers.#.attn.kv_norm.weight", MOTE_TC_NORM, EACH, NORM, { HEAD_DIM, NONE } },
    { "layers.#.attn.attn_sink", MOTE_TC_ATTENTION, EACH, F32, { HEADS, NONE } },
    { "layers.#.attn.compressor.wkv", MOTE_TC_COMPRESSOR, AT_KV, BF16, { HEAD_DIM, HIDDEN } },
    { "layers.#.attn.compressor.wgate",
      MOTE_TC_COMPRESSOR,
      AT_KV_GROUPS,
      BF16,
      { HEAD_DIM, HIDDEN } },
    { "layers.#.attn.compressor.norm.weight", MOTE_TC_NORM, AT_KV, NORM, { HEAD_DIM, NONE } },
    { "layers.#.attn.indexer.wq_b", MOTE_TC_INDEXER, AT_INDEX, FP8, { INDEX_HEADS_DIM, Q_LORA } },
    { "layers.#.attn.indexer.weights_proj",
      MOTE_TC_INDEXER,
      AT_INDEX,
      BF16,
      { INDEX_HEADS, HIDDEN } },
    { "layers.#.attn.indexer.wk", MOTE_TC_INDEXER, AT_KV, BF16, { INDEX_DIM, HEAD_DIM } },
    { "layers.#.attn.indexer.k_norm.weight", MOTE_TC_NORM, AT_KV, NORM, { INDEX_DIM, NONE } },
    { "layers.#.hc_attn_fn", MOTE_TC_HYPER, EACH, F32, { HC_OUT, HC_IN } },
    { "layers.#.hc_attn_base", MOTE_TC_HYPER, EACH, F32, { HC_OUT, NONE } },
    { "layers.#.hc_attn_scale", MOTE_TC_HYPER, EACH, F32, { THREE, NONE } },
    { "layers.#.hc_ffn_fn", MOTE_TC_HYPER, EACH, F32, { HC_OUT, HC_IN } },
    { "layers.#.hc_ffn_base", MOTE_TC_HYPER, EACH, F32, { HC_OUT, NONE } },
    { "layers.#.hc_ffn_scale", MOTE_TC_HYPER, EACH, F32, { THREE, NONE } },
    { "layers.#.ffn.gate.weight", MOTE_TC_ROUTER, EACH, PLAIN, { EXPERTS, HIDDEN } },
    { "layers.#.ffn.gate.bias", MOTE_TC_ROUTER, EACH, F32, { EXPERTS, NONE } },
    { "layers.#.ffn.shared_experts.w1", MOTE_TC_SHARED_EXPERT, EACH, FP8, { INTER, HIDDEN } },
    { "layers.#.ffn.shared_experts.w2", MOTE_TC_SHARED_EXPERT, EACH, FP8, { HIDDEN, INTER } },
    { "layers.#.ffn.shared_experts.w3", MOTE_TC_SHARED_EXPERT, EACH, FP8, { INTER, HIDDEN } },
    { "layers.#.ffn.experts.*.w1", MOTE_TC_EXPERT, EACH, MXFP4, { INTER, HIDDEN } },
    { "layers.#.ffn.experts.*.w2", MOTE_TC_EXPERT, EACH, MXFP4, { HIDDEN, INTER } },
    { "layers.#.ffn.experts.*.w3", MOTE_TC_EXPERT, EACH, MXFP4, { INTER, HIDDEN } },
    { "layers.#.engram.embed", MOTE_TC_ENGRAM_TABLE, AT_ENGRAM, TABLE, { ROWS, ROW_DIM } },
    { "layers.#.engram.wkv", MOTE_TC_ENGRAM, AT_ENGRAM, FP8, { ENGRAM_OUT, ENGRAM_IN } },
    { "layers.#.engram.q_weight", MOTE_TC_ENGRAM, AT_ENGRAM, NORM, { HC, HIDDEN } },
    { "layers.#.engram.k_weight", MOTE_TC_ENGRAM, AT_ENGRAM, NORM, { HC, HIDDEN } },
};

static const name_row dense_rows[] = {
    { "model.embed_tokens.weight", MOTE_TC_EMBED, ONCE, FLOAT, { VOCAB, HIDDEN } },
    { "lm_head", MOTE_TC_HEAD, ONCE_UNTIED, LINEAR, { VOCAB, HIDDEN } },
    { "model.norm.weight", MOTE_TC_NORM, ONCE, FLOAT, { HIDDEN, NONE } },
    { "model.layers.#.input_layernorm.weight", MOTE_TC_NORM, EACH, FLOAT, { HIDDEN, NONE } },
    { "model.layers.#.post_attention_layernorm.weight",
      MOTE_TC_NORM,
      EACH,
      FLOAT,
      { HIDDEN, NONE } },
    { "model.layers.#.self_attn.q_proj", MOTE_TC_ATTENTION, EACH, LINEAR, { HEADS_DIM, HIDDEN } },
    { "model.layers.#.self_attn.k_proj", MOTE_TC_ATTENTION, EACH, LINEAR, { KV_DIM, HIDDEN } },
    { "model.layers.#.self_attn.v_proj", MOTE_TC_ATTENTION, EACH, LINEAR, { KV_DIM, HIDDEN } },
    { "model.layers.#.self_attn.o_proj", MOTE_TC_ATTENTION, EACH, LINEAR, { HIDDEN, HEADS_DIM } },
    { "model.layers.#.self_attn.q_proj.bias",
      MOTE_TC_ATTENTION,
      IF_QKV_BIAS,
      FLOAT,
      { HEADS_DIM, NONE } },
    { "model.layers.#.self_attn.k_proj.bias",
      MOTE_TC_ATTENTION,
      IF_QKV_BIAS,
      FLOAT,
      { KV_DIM, NONE } },
    { "model.layers.#.self_attn.v_proj.bias",
      MOTE_TC_ATTENTION,
      IF_QKV_BIAS,
      FLOAT,
      { KV_DIM, NONE } },
    { "model.layers.#.self_attn.q_norm.weight",
      MOTE_TC_NORM,
      IF_QK_NORM,
      FLOAT,
      { HEAD_DIM, NONE } },
    { "model.layers.#.self_attn.k_norm.weight",
      MOTE_TC_NORM,
      IF_QK_NORM,
      FLOAT,
      { HEAD_DIM, NONE } },
    { "model.layers.#.mlp.gate_proj", MOTE_TC_FFN, EACH, LINEAR, { INTER, HIDDEN } },
    { "model.layers.#.mlp.up_proj", MOTE_TC_FFN, EACH, LINEAR, { INTER, HIDDEN } },
    { "model.layers.#.mlp.down_proj", MOTE_TC_FFN, EACH, LINEAR, { HIDDEN, INTER } },
};

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
} classes[MOTE_TCLASSES] = {
    [MOTE_TC_EMBED] = { "embed", MOTE_TG_DENSE, 1 },
    [MOTE_TC_HEAD] = { "head", MOTE_TG_DENSE, 1 },
    [MOTE_TC_NORM] = { "norm", MOTE_TG_DENSE, 1 },
    [MOTE_TC_ATTENTION] = { "attention", MOTE_TG_DENSE, 1 },
    [MOTE_TC_COMPRESSOR] = { "compressor", MOTE_TG_DENSE, 1 },
    [MOTE_TC_INDEXER] = { "indexer", MOTE_TG_DENSE, 1 },
    [MOTE_TC_HYPER] = { "hyper_connection", MOTE_TG_DENSE, 1 },
    [MOTE_TC_ROUTER] = { "router", MOTE_TG_DENSE, 1 },
    [MOTE_TC_SHARED_EXPERT] = { "shared_expert", MOTE_TG_DENSE, 1 },
    [MOTE_TC_FFN] = { "ffn", MOTE_TG_DENSE, 1 },
    [MOTE_TC_EXPERT] = { "routed_expert", MOTE_TG_EXPERTS, 1 },
    [MOTE_TC_ENGRAM_TABLE] = { "engram_table", MOTE_TG_ENGRAM, 1 },
    [MOTE_TC_ENGRAM] = { "engram", MOTE_TG_ENGRAM, 1 },
    [MOTE_TC_MTP] = { "mtp", MOTE_TG_DRAFT, 0 },
    [MOTE_TC_VISION] = { "vision", MOTE_TG_VISION, 0 },
    [MOTE_TC_IMAGE_BIAS] = { "image_bias", MOTE_TG_OTHER, 0 },
    [MOTE_TC_UNKNOWN] = { "unknown", MOTE_TG_OTHER, 0 },
};
const char *mote__tclass_name(mote__tclass cls) { return classes[cls].name; }
mote__tgroup mote__tclass_group(mote__tclass cls) { return classes[cls].group; }
int mote__tclass_is_loaded(mote__tclass cls) { return classes[cls].loaded; }

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

unsigned mote__tensor_dtypes(const char *name, const mote__config *config)
{
    int layer, expert;
    const name_row *row = find_row(&tables[config->arch], name, &layer, &expert);
    size_t n = strlen(name), m = strlen(".weight");
    if (!row)
        return 0;
    int scale = has_scale(row->as) && (n < m || strcmp(name + n - m, ".weight"));
    return scale ? DT(F8_E8M0) : storage[row->as].dtypes;
}

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
