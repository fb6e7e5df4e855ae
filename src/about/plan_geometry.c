/* Weights of Llama-like and MLA models from their configuration, by the lists of tensors in their
 * checkpoints. Quantised models have the same number of parameters; their bytes are computed for
 * the methods whose layout is known. */
#include "about/plan.h"

#include <string.h>

#include "base/mem.h"
#include "base/json.h"

/* ---- bytes of a value ---- */

/* How weights are stored. plain: bytes of an unquantised value. bits: of a quantised value; 0:
 * linears are not quantised. There is a scale (and a zero) for each block of rows x columns values,
 * 0: all rows or columns. column_bytes: of an index per column. extra: bytes per matrix. */
typedef struct layout {
    uint64_t plain, bits, rows, columns, scale_bits, zero_bits, column_bytes, extra;
} layout;

static uint64_t linear_bytes(const layout *y, uint64_t out, uint64_t in)
{
    uint64_t values = mote__mul(out, in);
    if (!y->bits)
        return mote__mul(values, y->plain);
    uint64_t rows = y->rows ? y->rows : out, columns = y->columns ? y->columns : in;
    uint64_t groups = rows && columns
                          ? mote__mul((out + rows - 1) / rows, (in + columns - 1) / columns)
                          : 0;
    uint64_t side = mote__mul(groups, y->scale_bits) / 8 + mote__mul(groups, y->zero_bits) / 8;
    return mote__add(mote__add(values / 8 * y->bits + (values % 8 * y->bits + 7) / 8, side),
                     in * y->column_bytes + y->extra);
}

const json_t *mote__plan_quantization(const mote__plan *p)
{
    static const char *const keys[] = { "quantization_config", "compression_config" };
    for (size_t i = 0; i < 4; i++) {
        const json_t *q = json_object_get(i < 2 ? p->text : p->root, keys[i % 2]);
        if (json_is_object(q))
            return q;
    }
    return NULL;
}

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* An integer member; `absent` if it is missing. */
static int64_t integer(const json_t *o, const char *key, int64_t absent)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : absent;
}

static int read_fp8(layout *y, const json_t *q, int runs)
{
    const json_t *block = json_object_get(q, "weight_block_size");
    int64_t rows = json_integer_value(json_array_get(block, 0)),
            columns = json_integer_value(json_array_get(block, 1));
    y->bits = 8;
    y->scale_bits = runs ? 8 : 32; /* E8M0 scales in models that the engine runs, fp32 in others */
    if (block && (rows < 1 || columns < 1 || rows > 1 << 20 || columns > 1 << 20))
        return 0;
    y->rows = block ? (uint64_t)rows : runs ? 32 : 0; /* 0: one scale for the matrix */
    y->columns = block ? (uint64_t)columns : y->rows;
    if (!block && !runs && !strcmp(word(q, "activation_scheme"), "static"))
        y->extra = 4;
    return 1;
}

/* Packed codes with a 16-bit scale and a zero per group of columns; GPTQ also stores the group of
 * each column. */
static int read_packed(layout *y, const json_t *q, int is_gptq)
{
    int64_t bits = integer(q, "bits", 4), group = integer(q, "group_size", 128);
    if (bits < 1 || bits > 8 || group == 0 || group > 1 << 20)
        return 0;
    y->bits = y->zero_bits = (uint64_t)bits;
    y->rows = 1;
    y->columns = group < 0 ? 0 : (uint64_t)group;
    y->scale_bits = 16;
    y->column_bytes = is_gptq ? 4 : 0;
    return 1;
}

static int read_compressed(layout *y, const json_t *q)
{
    const json_t *groups = json_object_get(q, "config_groups"), *w = NULL;
    const char *key;
    json_t *v;
    if (json_object_size(groups) != 1) /* different groups of layers are not supported */
        return 0;
    json_object_foreach((json_t *)groups, key, v) w = json_object_get(v, "weights");
    const char *strategy = word(w, "strategy");
    int64_t bits = integer(w, "num_bits", 0), group = integer(w, "group_size", 0);
    const json_t *block = json_object_get(w, "block_structure");
    if (bits < 1 || bits > 16)
        return 0;
    y->bits = (uint64_t)bits;
    y->scale_bits = 16;
    int packed = !strcmp(word(q, "format"), "pack-quantized");
    y->extra = packed ? 16 : 0; /* weight_shape */
    if (!strcmp(strategy, "group") && group > 0 && group <= 1 << 20) {
        y->rows = 1;
        y->columns = (uint64_t)group;
    } else if (!strcmp(strategy, "channel")) {
        y->rows = 1;
    } else if (!strcmp(strategy, "block") && json_array_size(block) == 2) {
        int64_t r = json_integer_value(json_array_get(block, 0)),
                c = json_integer_value(json_array_get(block, 1));
        if (r < 1 || c < 1 || r > 1 << 20 || c > 1 << 20)
            return 0;
        y->rows = (uint64_t)r;
        y->columns = (uint64_t)c;
    } else if (strcmp(strategy, "tensor")) {
        return 0;
    }
    if (packed && json_is_false(json_object_get(w, "symmetric")))
        y->zero_bits = y->bits;
    return 1;
}

/* Returns 0 if bytes cannot be computed; parameters can still be counted. */
static int read_layout(layout *y, mote__plan *p)
{
    const json_t *q = mote__plan_quantization(p), *dtype = json_object_get(p->text, "torch_dtype");
    const char *type = json_string_value(dtype ? dtype : json_object_get(p->text, "dtype")),
               *method = word(q, "quant_method");
    *y = (layout){ .plain = type && !strcmp(type, "float32") ? 4 : 2 };
    if (!q)
        return 1;
    int known = !strcmp(method, "fp8") ? read_fp8(y, q, p->runs)
                : !strcmp(method, "awq") || !strcmp(method, "gptq")
                    ? read_packed(y, q, method[0] == 'g')
                : !strcmp(method, "compressed-tensors") ? read_compressed(y, q)
                                                        : 0;
    if (!known) {
        mote__plan_note(p, "bytes are not known, nor the layout of the quantization '%.40s'",
                        method);
        return 0;
    }
    static const char *const lists[] = { "modules_to_not_convert", "ignore", "ignored_layers" };
    for (size_t l = 0; l < 3; l++) {
        const json_t *list = json_object_get(q, lists[l]), *name;
        size_t i;
        json_array_foreach(list, i, name) if (json_is_string(name) &&
                                              !strstr(json_string_value(name), "lm_head"))
        {
            mote__plan_note(p, "what '%s' names is counted as quantized, but for the head",
                            lists[l]);
            return 1;
        }
    }
    return 1;
}

/* ---- sums ---- */

/* The keys that the weights depend on; 0 if absent. */
typedef struct keys {
    size_t vocab_size, hidden_size, intermediate_size, moe_intermediate_size, n_routed_experts,
        num_experts, num_local_experts, n_shared_experts, shared_expert_intermediate_size,
        first_k_dense_replace, moe_layer_freq, decoder_sparse_step, q_lora_rank, qk_nope_head_dim,
        v_head_dim, num_experts_per_tok, num_nextn_predict_layers;
} keys;

typedef struct sums {
    mote__plan *p;
    layout y;
    keys k;
    int draft;
} sums; /* draft: tensors are being added for a draft layer */

static void add(sums *s, mote__plan_item i)
{
    if (s->draft)
        i.cls = MOTE_TC_MTP;
    mote__plan_add(s->p, &i);
}

static void add_linear(sums *s, mote__tclass cls, size_t layer, uint64_t count, uint64_t out,
                       uint64_t in)
{
    uint64_t values = mote__mul(count, mote__mul(out, in));
    add(s, (mote__plan_item){ .cls = cls,
                              .layer = (int)layer,
                              .values = values,
                              .products = values,
                              .bytes = mote__mul(count, linear_bytes(&s->y, out, in)) });
}

/* Add a matrix that is never quantised. */
static void add_matrix(sums *s, mote__tclass cls, int layer, uint64_t values)
{
    add(s, (mote__plan_item){ .cls = cls,
                              .layer = layer,
                              .values = values,
                              .products = values,
                              .bytes = mote__mul(values, s->y.plain) });
}

static void add_vector(sums *s, mote__tclass cls, int layer, uint64_t values)
{
    add(s,
        (mote__plan_item){
            .cls = cls, .layer = layer, .values = values, .bytes = mote__mul(values, s->y.plain) });
}

static int read_keys(keys *k, const mote__plan *p, mote_err *err)
{
    const struct {
        const char *key;
        size_t *at;
        size_t max;
    } rows[] = {
#define KEY(name, max) { #name, &k->name, max }
        KEY(vocab_size, 1 << 24),
        KEY(hidden_size, 1 << 20),
        KEY(intermediate_size, 1 << 20),
        KEY(moe_intermediate_size, 1 << 20),
        KEY(n_routed_experts, 65536),
        KEY(num_experts, 65536),
        KEY(num_local_experts, 65536),
        KEY(n_shared_experts, 1024),
        KEY(shared_expert_intermediate_size, 1 << 20),
        KEY(first_k_dense_replace, 1024),
        KEY(moe_layer_freq, 1024),
        KEY(decoder_sparse_step, 1024),
        KEY(q_lora_rank, 1 << 20),
        KEY(qk_nope_head_dim, 4096),
        KEY(v_head_dim, 4096),
        KEY(num_experts_per_tok, 65536),
        KEY(num_nextn_predict_layers, 64),
#undef KEY
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = mote__plan_get_size(p, rows[i].key, rows[i].max, 0, rows[i].at, err);
        if (rc)
            return rc;
    }
    return MOTE_OK;
}

static int flag(const mote__plan *p, const char *key, int absent)
{
    const json_t *v = json_object_get(p->text, key);
    return json_is_boolean(v) ? json_is_true(v) : absent;
}

static void add_mla(sums *s, size_t l)
{
    const mote__plan *p = s->p;
    const keys *k = &s->k;
    uint64_t h = k->hidden_size, heads = p->n_heads,
             q = heads * (k->qk_nope_head_dim + p->rope_dim);
    add_linear(s, MOTE_TC_ATTENTION, l, 1, k->q_lora_rank ? k->q_lora_rank : q, h);
    if (k->q_lora_rank) {
        add_linear(s, MOTE_TC_ATTENTION, l, 1, q, k->q_lora_rank);
        add_vector(s, MOTE_TC_NORM, (int)l, k->q_lora_rank);
    }
    add_linear(s, MOTE_TC_ATTENTION, l, 1, p->latent_dim + p->rope_dim, h);
    add_linear(s, MOTE_TC_ATTENTION, l, 1, heads * (k->qk_nope_head_dim + k->v_head_dim),
               p->latent_dim);
    add_linear(s, MOTE_TC_ATTENTION, l, 1, h, heads * k->v_head_dim);
    add_vector(s, MOTE_TC_NORM, (int)l, p->latent_dim);
    if (flag(p, "attention_bias", 0))
        add_vector(s, MOTE_TC_ATTENTION, (int)l, k->q_lora_rank + p->latent_dim + p->rope_dim + h);
    if (p->index_dim) { /* the norm of the indexer's keys has a bias */
        add_linear(s, MOTE_TC_INDEXER, l, 1, p->index_heads * p->index_dim,
                   k->q_lora_rank ? k->q_lora_rank : h);
        add_linear(s, MOTE_TC_INDEXER, l, 1, p->index_dim, h);
        add_matrix(s, MOTE_TC_INDEXER, (int)l, p->index_heads * h);
        add_vector(s, MOTE_TC_NORM, (int)l, 2 * p->index_dim);
    }
}

static void add_gqa(sums *s, size_t l)
{
    const mote__plan *p = s->p;
    uint64_t h = s->k.hidden_size, q = p->n_heads * p->head_dim, kv = p->n_kv_heads * p->head_dim;
    add_linear(s, MOTE_TC_ATTENTION, l, 1, q, h);
    add_linear(s, MOTE_TC_ATTENTION, l, 2, kv, h);
    add_linear(s, MOTE_TC_ATTENTION, l, 1, h, q);
    int qwen2 = !strncmp(p->model_type, "qwen2", 5), qwen3 = !strncmp(p->model_type, "qwen3", 5);
    if (qwen2 ? flag(p, "qkv_bias", 1) : flag(p, "attention_bias", 0))
        add_vector(s, MOTE_TC_ATTENTION, (int)l, q + 2 * kv + (qwen2 ? 0 : h));
    if (qwen3)
        add_vector(s, MOTE_TC_NORM, (int)l, 2 * p->head_dim); /* q_norm, k_norm */
}

static size_t n_experts(const keys *k)
{
    return k->n_routed_experts ? k->n_routed_experts
           : k->num_experts    ? k->num_experts
                               : k->num_local_experts;
}

static int is_moe(const sums *s, size_t l)
{
    const keys *k = &s->k;
    size_t step = k->moe_layer_freq ? k->moe_layer_freq : k->decoder_sparse_step;
    const json_t *dense_layers = json_object_get(s->p->text, "mlp_only_layers");
    int moe = n_experts(k) && l >= k->first_k_dense_replace && !(k->moe_layer_freq && l % step) &&
              !(k->decoder_sparse_step && (l + 1) % step);
    for (size_t i = 0; i < json_array_size(dense_layers); i++)
        moe = moe && json_integer_value(json_array_get(dense_layers, i)) != (json_int_t)l;
    return moe;
}

static void add_ffn(sums *s, size_t l, int moe)
{
    const mote__plan *p = s->p;
    const keys *k = &s->k;
    uint64_t h = k->hidden_size, experts = n_experts(k),
             width = k->moe_intermediate_size ? k->moe_intermediate_size : k->intermediate_size;
    uint64_t shared = k->shared_expert_intermediate_size ? k->shared_expert_intermediate_size
                                                         : k->n_shared_experts * width;
    if (!moe) {
        add_linear(s, MOTE_TC_FFN, l, 2, k->intermediate_size, h);
        add_linear(s, MOTE_TC_FFN, l, 1, h, k->intermediate_size);
        if (flag(p, "mlp_bias", 0))
            add_vector(s, MOTE_TC_FFN, (int)l, 2 * k->intermediate_size + h);
        return;
    }
    /* the selection bias of a noaux_tc router, one value per expert; V3 and models derived from it
     * have such a router even if topk_method is missing */
    static const char *const heirs[] = { "deepseek_v3", "deepseek_v32", "kimi_k2" };
    const char *method = json_string_value(json_object_get(p->text, "topk_method"));
    int bias = method && !strcmp(method, "noaux_tc");
    for (size_t i = 0; !method && i < sizeof heirs / sizeof *heirs; i++)
        bias |= !strcmp(p->model_type, heirs[i]);
    add_matrix(s, MOTE_TC_ROUTER, (int)l, experts * h);
    if (bias)
        add(s,
            (mote__plan_item){
                .cls = MOTE_TC_ROUTER, .layer = (int)l, .values = experts, .bytes = 4 * experts });
    add_linear(s, MOTE_TC_EXPERT, l, 2 * experts, width, h);
    add_linear(s, MOTE_TC_EXPERT, l, experts, h, width);
    if (shared) {
        add_linear(s, MOTE_TC_SHARED_EXPERT, l, 2, shared, h);
        add_linear(s, MOTE_TC_SHARED_EXPERT, l, 1, h, shared);
    }
    if (k->shared_expert_intermediate_size)
        add_matrix(s, MOTE_TC_SHARED_EXPERT, (int)l, h); /* the gate of the shared expert */
}

static void add_layer(sums *s, size_t l, int moe)
{
    if (!strcmp(s->p->family, "mla"))
        add_mla(s, l);
    else
        add_gqa(s, l);
    add_ffn(s, l, moe);
    add_vector(s, MOTE_TC_NORM, (int)l, 2 * s->k.hidden_size);
}

/* Add the draft layers: each is a layer with experts, three norms, a matrix that combines two rows,
 * and copies of the embedding and the head. */
static void add_drafts(sums *s)
{
    uint64_t h = s->k.hidden_size;
    s->draft = 1;
    for (size_t d = 0; d < s->k.num_nextn_predict_layers; d++) {
        add_layer(s, s->p->n_layers + d, n_experts(&s->k) > 0);
        add_vector(s, MOTE_TC_NORM, -1, 3 * h);
        add_matrix(s, MOTE_TC_ATTENTION, -1, 2 * h * h);
        add_matrix(s, MOTE_TC_EMBED, -1, 2 * (uint64_t)s->k.vocab_size * h);
    }
    s->draft = 0;
}

int mote__plan_geometry(mote__plan *p, mote_err *err)
{
    sums s = { .p = p };
    int rc = read_keys(&s.k, p, err);
    if (rc)
        return rc;
    const keys *k = &s.k;
    p->vocab_size = k->vocab_size;
    p->n_experts = n_experts(k);
    p->n_active = k->num_experts_per_tok;
    p->tied = flag(p, "tie_word_embeddings", 0);
    const char *missing = !k->vocab_size                    ? "vocab_size"
                          : !k->hidden_size                 ? "hidden_size"
                          : !k->intermediate_size           ? "intermediate_size"
                          : p->index_dim && !p->index_heads ? "index_n_heads"
                                                            : NULL;
    if (!strcmp(p->family, "deepseek_v4")) {
        mote__plan_note(p, "weights are not known: mote has no list of this family's tensors");
        return MOTE_OK;
    }
    if (missing) {
        mote__plan_note(p, "weights are not known: '%s' is missing", missing);
        return MOTE_OK;
    }
    if (p->n_experts && p->n_active > p->n_experts)
        return mote__fail(err, MOTE_EFORMAT, "%s: 'num_experts_per_tok' is %zu, of %zu experts",
                          p->path, p->n_active, p->n_experts);
    p->knows_parameters = 1;
    p->knows_bytes = read_layout(&s.y, p);
    uint64_t table = (uint64_t)k->vocab_size * k->hidden_size;
    mote__plan_add(p, &(mote__plan_item){ .cls = MOTE_TC_EMBED,
                                          .layer = -1,
                                          .values = table,
                                          .bytes = table * s.y.plain,
                                          .take = 1,
                                          .of = k->vocab_size });
    if (!p->tied)
        add_matrix(&s, MOTE_TC_HEAD, -1, table);
    add_vector(&s, MOTE_TC_NORM, -1, k->hidden_size);
    for (size_t l = 0; l < p->n_layers; l++)
        add_layer(&s, l, is_moe(&s, l));
    add_drafts(&s);
    return MOTE_OK;
}
