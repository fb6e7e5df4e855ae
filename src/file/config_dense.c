/* Reads config.json of Llama-style models: decoder-only, grouped-query attention over all
 * positions, one SwiGLU per layer. A table has one row per family with what the name implies. Keys
 * of variants that mote does not run are refused by name. */
#include "file/config_read.h"

#include <string.h>

#define AT(member) offsetof(mote__config, member)
static const field fields[] = {
    { "vocab_size", NULL, SIZE, AT(vocab_size), 1, 1 << 24, 0, 0 },
    { "hidden_size", NULL, SIZE, AT(hidden_size), 2, 1 << 20, 0, 0 },
    { "num_hidden_layers", NULL, SIZE, AT(n_layers), 1, MOTE_MAX_LAYERS, 0, 0 },
    { "num_attention_heads", NULL, SIZE, AT(n_heads), 1, 1024, 0, 0 },
    { "num_key_value_heads", NULL, SIZE, AT(n_kv_heads), 1, 1024, 1, 0 },
    { "head_dim", NULL, SIZE, AT(head_dim), 2, 512, 1, 0 },
    { "intermediate_size", NULL, SIZE, AT(moe_intermediate_size), 2, 1 << 20, 0, 0 },
    { "rms_norm_eps", NULL, F32, AT(rms_norm_eps), 1e-37, 1, 1, 1e-6 },
    { "rope_theta", NULL, F64, AT(rope_theta), 1.001, 1e12, 1, 0 },
    { "max_position_embeddings", NULL, SIZE, AT(max_context), 1, 1 << 30, 0, 0 },
    { "tie_word_embeddings", NULL, FLAG, AT(tied_embeddings), 0, 1, 1, 0 },
};

const field *mote__config_dense_fields(size_t *n)
{
    *n = sizeof fields / sizeof *fields;
    return fields;
}

/* by_layer: only layers from max_window_layers on have a sliding window, or those listed in
 * layer_types */
static const struct dense {
    const char *name;
    int qkv_bias, qk_norm, slides_unless_told, by_layer;
} families[] = {
    { "llama", 0, 0, 1, 0 },
    { "mistral", 0, 0, 1, 0 },
    { "qwen2", 1, 0, 0, 1 },
    { "qwen3", 0, 1, 0, 1 },
};

/* Keys of variants that mote does not run. Absent, null, false and the neutral number are
 * accepted. */
static const struct {
    const char *key;
    double neutral;
} variants[] = {
    { "attention_bias", 0 },
    { "mlp_bias", 0 },
    { "num_local_experts", 0 },
    { "num_experts", 0 },
    { "n_routed_experts", 0 },
    { "num_experts_per_tok", 0 },
    { "kv_lora_rank", 0 },
    { "q_lora_rank", 0 },
    { "clip_qkv", 0 },
    { "use_qk_norm", 0 },
    { "attention_multiplier", 0 },
    { "residual_multiplier", 1 },
    { "embedding_multiplier", 1 },
    { "logits_scaling", 1 },
    { "attn_logit_softcapping", 0 },
    { "final_logit_softcapping", 0 },
};

static int check_variants(const reader *r)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const json_t *v = json_object_get(r->text, variants[i].key);
        /* compared exactly: the value is not used in computations */
        int neutral = !v || json_is_null(v) || json_is_false(v) ||
                      (json_is_number(v) && !(json_number_value(v) < variants[i].neutral) &&
                       !(json_number_value(v) > variants[i].neutral));
        if (!neutral)
            return mote__fail(r->err, MOTE_EUNSUPPORTED,
                              "%s: '%s' asks for a variant of '%s' that this version does not run",
                              r->what, variants[i].key, r->config->family);
    }
    return MOTE_OK;
}

/* Every layer must see every position: there is no window, or it is as long as the context, or no
 * layer uses it. */
static int check_window(const reader *r, const struct dense *d)
{
    json_t *window, *use, *types, *from;
    double first = 0;
    int rc = mote__config_integer(r, r->text, "sliding_window", &window);
    if (!rc)
        rc = mote__json_get(&use, r->text, "use_sliding_window", JSON_TRUE, r->what, r->err);
    if (!rc)
        rc = mote__json_get(&types, r->text, "layer_types", JSON_ARRAY, r->what, r->err);
    if (!rc)
        rc = mote__config_integer(r, r->text, "max_window_layers", &from);
    if (rc)
        return rc;
    int slides = window && (use ? json_is_true(use) : d->slides_unless_told);
    int cuts = slides && json_number_value(window) < (double)r->config->max_context;
    if (d->by_layer)
        first = from ? json_number_value(from) : 28; /* default of the reference library */
    if (cuts && !(d->by_layer && types) && first < (double)r->config->n_layers)
        return mote__fail(r->err, MOTE_EUNSUPPORTED,
                          "%s: 'sliding_window' is %.17g and in use, less than "
                          "'max_position_embeddings' (%zu); this "
                          "version runs full attention only",
                          r->what, json_number_value(window), r->config->max_context);
    for (size_t l = 0; l < json_array_size(types); l++) {
        const char *t = json_string_value(json_array_get(types, l));
        if (!t ||
            (strcmp(t, "full_attention") && (strcmp(t, "sliding_attention") || !slides || cuts)))
            return mote__fail(
                r->err, MOTE_EUNSUPPORTED,
                "%s: 'layer_types[%zu]' is '%.40s'; this version runs full_attention only", r->what,
                l, t ? t : "?");
    }
    return MOTE_OK;
}

/* ---- the whole configuration ---- */

static int check_heads(const reader *r, int has_head_dim)
{
    mote__config *c = r->config;
    if (!c->n_kv_heads)
        c->n_kv_heads = c->n_heads;
    if (c->n_heads % c->n_kv_heads)
        return mote__fail(r->err, MOTE_EFORMAT,
                          "%s: 'num_key_value_heads' is %zu and does not divide %zu heads", r->what,
                          c->n_kv_heads, c->n_heads);
    if (!has_head_dim && c->hidden_size % c->n_heads)
        return mote__fail(
            r->err, MOTE_EFORMAT,
            "%s: 'head_dim' is missing and %zu heads do not divide 'hidden_size' (%zu)", r->what,
            c->n_heads, c->hidden_size);
    if (!has_head_dim)
        c->head_dim = c->hidden_size / c->n_heads;
    if (c->head_dim < 2 || c->head_dim > 512 || c->head_dim % 2)
        return mote__fail(r->err, MOTE_EUNSUPPORTED,
                          "%s: 'head_dim' is %zu; this version runs even ones from 2 to 512",
                          r->what, c->head_dim);
    c->rope_dim = c->head_dim;
    return MOTE_OK;
}

static void derive(mote__config *c, const struct dense *d)
{
    c->qkv_bias = d->qkv_bias;
    c->qk_norm = d->qk_norm;
    c->n_kv_sources = c->n_layers;
    for (size_t l = 0; l < c->n_layers; l++) {
        c->compress_ratios[l] = 1;
        c->kv_sources[l] = c->kv_source_of[l] = l;
    }
    c->decoder_start = c->n_layers;
    c->prefix_multiple = 1;
    c->hc_mult = 1;
    c->candidate_source = -1;
    c->image_token = -1;
}

int mote__config_dense(reader *r)
{
    const struct dense *d = families;
    while (strcmp(d->name, r->config->family))
        d++; /* the table of families in config.c has only names of this table */
    int rc = MOTE_OK;
    json_t *head_dim;
    for (size_t i = 0; !rc && i < sizeof fields / sizeof *fields; i++)
        rc = mote__config_field(r, &fields[i], r->text);
    if (!rc)
        rc = mote__config_integer(r, r->text, "head_dim", &head_dim);
    if (!rc)
        rc = check_heads(r, head_dim != NULL);
    if (!rc)
        rc = mote__config_string(r, r->text, "hidden_act", "silu");
    if (!rc)
        rc = check_variants(r);
    if (!rc)
        rc = check_window(r, d);
    if (!rc)
        rc = mote__config_rope(r);
    if (!rc)
        rc = mote__config_quantization(r);
    if (!rc)
        derive(r->config, d);
    return rc;
}
