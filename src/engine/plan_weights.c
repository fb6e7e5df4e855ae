/* Bytes of weights by group: exactly, from the tensors of a checkpoint, or from the geometry in the published dtypes.
 * Groups: dense (every token uses them), routed experts, Engram, other (draft layers, vision, unknown). */
#include "engine/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "file/json.h"

/* ---- geometry of what the engine runs: the table of names says it all --------------------------------------------------------- */

static int add_expected(void *ctx, const mote__expected *e)
{
    mote__plan *p = ctx;
    uint64_t *sum = &p->weights[mote__tclass_group(e->cls)];
    *sum = mote__add(*sum, e->n_bytes);
    if (!e->is_scale)
        p->n_parameters = mote__add(p->n_parameters, mote__mul(e->dims[0], e->n_dims == 2 ? e->dims[1] : 1));
    return 0;
}

/* ---- geometry of the other families ---------------------------------------------------------------------------- */

/* Running sums, saturating: a hostile geometry gives a huge number, not a small one. bytes: of an unquantised value; block: linears
 * have one byte a value and a scale per block x block (0: they are not quantised). */
typedef struct sums { mote__plan *p; size_t bytes, block, scale_bytes; } sums;

static void add(sums *s, mote__tgroup group, uint64_t values, uint64_t bytes)
{
    s->p->n_parameters = mote__add(s->p->n_parameters, values);
    s->p->weights[group] = mote__add(s->p->weights[group], bytes);
}

static void add_plain(sums *s, mote__tgroup group, uint64_t n) { add(s, group, n, mote__mul(n, s->bytes)); }

static void add_linear(sums *s, mote__tgroup group, uint64_t count, uint64_t out, uint64_t in)
{
    uint64_t values = mote__mul(out, in);
    uint64_t bytes = mote__mul(values, s->bytes), b = s->block;
    if (b)
        bytes = mote__add(values, mote__mul((out + b - 1) / b * s->scale_bytes, (in + b - 1) / b));
    add(s, group, mote__mul(count, values), mote__mul(count, bytes));
}

/* The keys that weights follow from; 0 where absent. */
typedef struct keys {
    size_t vocab_size, hidden_size, intermediate_size, moe_intermediate_size, n_routed_experts, num_experts, num_local_experts,
        n_shared_experts, shared_expert_intermediate_size, first_k_dense_replace, moe_layer_freq, decoder_sparse_step, q_lora_rank,
        qk_nope_head_dim, v_head_dim;
} keys;

static int read_keys(keys *k, const mote__plan *p, mote_err *err)
{
    const struct { const char *key; size_t *at; size_t max; } rows[] = {
#define KEY(name, max) { #name, &k->name, max }
        KEY(vocab_size, 1 << 24), KEY(hidden_size, 1 << 20), KEY(intermediate_size, 1 << 20), KEY(moe_intermediate_size, 1 << 20),
        KEY(n_routed_experts, 65536), KEY(num_experts, 65536), KEY(num_local_experts, 65536), KEY(n_shared_experts, 1024),
        KEY(shared_expert_intermediate_size, 1 << 20), KEY(first_k_dense_replace, 1024), KEY(moe_layer_freq, 1024),
        KEY(decoder_sparse_step, 1024), KEY(q_lora_rank, 1 << 20), KEY(qk_nope_head_dim, 4096), KEY(v_head_dim, 4096),
#undef KEY
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = mote__plan_get_size(p, rows[i].key, rows[i].max, 0, rows[i].at, err);
        if (rc)
            return rc;
    }
    return MOTE_OK;
}

static int flag(const mote__plan *p, const char *key) { return json_is_true(json_object_get(p->text, key)); }

static void add_attention(sums *s, const keys *k)
{
    const mote__plan *p = s->p;
    uint64_t h = k->hidden_size, n = p->n_layers, heads = p->n_heads;
    if (!strcmp(p->family, "mla")) {
        uint64_t q = heads * (k->qk_nope_head_dim + p->rope_dim);
        if (k->q_lora_rank) {
            add_linear(s, MOTE_TG_DENSE, n, k->q_lora_rank, h);
            add_linear(s, MOTE_TG_DENSE, n, q, k->q_lora_rank);
            add_plain(s, MOTE_TG_DENSE, n * k->q_lora_rank);
        } else {
            add_linear(s, MOTE_TG_DENSE, n, q, h);
        }
        add_linear(s, MOTE_TG_DENSE, n, p->latent_dim + p->rope_dim, h);
        add_linear(s, MOTE_TG_DENSE, n, heads * (k->qk_nope_head_dim + k->v_head_dim), p->latent_dim);
        add_linear(s, MOTE_TG_DENSE, n, h, heads * k->v_head_dim);
        add_plain(s, MOTE_TG_DENSE, n * p->latent_dim);
        return;
    }
    uint64_t q = heads * p->head_dim, kv = p->n_kv_heads * p->head_dim;
    add_linear(s, MOTE_TG_DENSE, n, q, h);
    add_linear(s, MOTE_TG_DENSE, n, kv, h);
    add_linear(s, MOTE_TG_DENSE, n, kv, h);
    add_linear(s, MOTE_TG_DENSE, n, h, q);
    int qwen2 = !strncmp(p->model_type, "qwen2", 5), qwen3 = !strncmp(p->model_type, "qwen3", 5);
    if (qwen2 || flag(p, "attention_bias"))
        add_plain(s, MOTE_TG_DENSE, n * (q + 2 * kv + (qwen2 ? 0 : h)));
    if (qwen3)
        add_plain(s, MOTE_TG_DENSE, n * 2 * p->head_dim);          /* q_norm, k_norm */
}

static void add_ffn(sums *s, const keys *k)
{
    const mote__plan *p = s->p;
    uint64_t h = k->hidden_size;
    uint64_t experts = k->n_routed_experts ? k->n_routed_experts : k->num_experts ? k->num_experts : k->num_local_experts;
    uint64_t width = k->moe_intermediate_size ? k->moe_intermediate_size : k->intermediate_size;
    uint64_t shared = k->shared_expert_intermediate_size ? k->shared_expert_intermediate_size : k->n_shared_experts * width;
    size_t step = k->moe_layer_freq ? k->moe_layer_freq : k->decoder_sparse_step;
    const json_t *dense_layers = json_object_get(p->text, "mlp_only_layers");
    /* the selection bias, one value an expert: where the router is noaux_tc, which V3 is even where it does not say so */
    const char *method = json_string_value(json_object_get(p->text, "topk_method"));
    int bias = method ? !strcmp(method, "noaux_tc") : !strcmp(p->model_type, "deepseek_v3");
    for (size_t l = 0; l < p->n_layers; l++) {
        int moe = experts && l >= k->first_k_dense_replace && !(k->moe_layer_freq && l % step) &&
                  !(k->decoder_sparse_step && (l + 1) % step);
        for (size_t i = 0; i < json_array_size(dense_layers); i++)
            moe = moe && json_integer_value(json_array_get(dense_layers, i)) != (json_int_t)l;
        if (!moe) {
            add_linear(s, MOTE_TG_DENSE, 3, k->intermediate_size, h);
            continue;
        }
        add_plain(s, MOTE_TG_DENSE, experts * h + (bias ? experts : 0));
        add_linear(s, MOTE_TG_EXPERTS, 3 * experts, width, h);
        if (shared)
            add_linear(s, MOTE_TG_DENSE, 3, shared, h);
        if (k->shared_expert_intermediate_size)
            add_plain(s, MOTE_TG_DENSE, h);                        /* the shared expert's own gate */
    }
}

static int from_geometry(mote__plan *p, mote_err *err)
{
    p->weights_source = "geometry";
    if (!strcmp(p->family, "deepseek_v41")) {
        if (p->config.n_mtp_layers)
            snprintf(p->weights_note, sizeof p->weights_note, "draft layers and vision are not counted");
        return mote__expected_tensors(&p->config, add_expected, p);
    }
    keys k = { 0 };
    int rc = read_keys(&k, p, err);
    if (rc)
        return rc;
    const json_t *quant = json_object_get(p->text, "quantization_config"), *dtype = json_object_get(p->text, "torch_dtype");
    if (!quant)
        quant = json_object_get(p->root, "quantization_config");
    const char *method = json_string_value(json_object_get(quant, "quant_method"));
    int known_quant = !quant || (method && !strcmp(method, "fp8") && json_object_get(quant, "weight_block_size"));
    const char *type = json_string_value(dtype ? dtype : json_object_get(p->text, "dtype"));
    if (!strcmp(p->family, "deepseek_v4") || !k.vocab_size || !k.hidden_size || !k.intermediate_size || !known_quant) {
        p->weights_source = "unknown";
        return MOTE_OK;
    }
    sums s = { .p = p, .bytes = type && !strcmp(type, "float32") ? 4 : 2 };
    if (quant) {                             /* what the engine runs has E8M0 scales of 32 x 32; others fp32 of 128 x 128 */
        s.block = p->runs ? 32 : 128;
        s.scale_bytes = p->runs ? 1 : 4;
    }
    add_plain(&s, MOTE_TG_DENSE, (uint64_t)k.vocab_size * k.hidden_size * (flag(p, "tie_word_embeddings") ? 1 : 2));
    add_plain(&s, MOTE_TG_DENSE, (uint64_t)k.hidden_size * (2 * p->n_layers + 1));
    add_attention(&s, &k);
    add_ffn(&s, &k);
    if (json_is_integer(json_object_get(p->text, "num_nextn_predict_layers")))
        snprintf(p->weights_note, sizeof p->weights_note, "draft layers are not counted");
    return MOTE_OK;
}

/* ---- a checkpoint's tensors ------------------------------------------------------------------------------------- */

static void from_checkpoint(mote__plan *p, const mote__checkpoint *ckpt)
{
    int v41 = !strcmp(p->family, "deepseek_v41");
    p->weights_source = "checkpoint";
    for (size_t i = 0; i < mote__checkpoint_n_tensors(ckpt); i++) {
        const mote__tensor *t = mote__checkpoint_tensor(ckpt, i);
        mote__tgroup group = v41 ? mote__tclass_group(mote__tensor_class(t->name, &p->config, NULL, NULL))
                                 : strstr(t->name, ".experts.") ? MOTE_TG_EXPERTS : MOTE_TG_DENSE;
        p->weights[group] += t->n_bytes;          /* lies in mapped files: no overflow */
        size_t n = strlen(t->name);
        int is_scale = (n > 6 && !strcmp(t->name + n - 6, ".scale")) || (n > 17 && !strcmp(t->name + n - 17, ".weight_scale_inv"));
        uint64_t values = t->n_bytes / mote__dtype_bytes(t->dtype);
        if (!is_scale)
            p->n_parameters += t->dtype == MOTE_DT_I8 && v41 ? 2 * values : values;      /* two codes a byte */
    }
}

static int exists(const char *folder, const char *name)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && mote__file_is_there(path);
}

int mote__plan_weights(mote__plan *p, const char *folder, mote_err *err)
{
    memset(p->weights, 0, sizeof p->weights);
    p->n_parameters = 0;
    char why[400] = "";
    if (folder && (exists(folder, "model.safetensors.index.json") || exists(folder, "model.safetensors"))) {
        mote__checkpoint *ckpt;
        mote_err reason = { 0 };
        int rc = mote__checkpoint_open(&ckpt, folder, &reason);
        if (!rc) {
            from_checkpoint(p, ckpt);
            mote__checkpoint_close(ckpt);
            return MOTE_OK;
        }
        /* Plan is asked before downloads are complete: geometry answers, and the reason is told. */
        snprintf(why, sizeof why, "the checkpoint cannot be read: %.350s", reason.message);
    }
    int rc = from_geometry(p, err);
    if (why[0])
        snprintf(p->weights_note, sizeof p->weights_note, "%s", why);
    return rc;
}
