#include "model/weights_load.h"
#include "base/le.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/names.h"
#include "num/formats.h"

typedef mote__loader loader;

static int fail(loader *ld, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(loader *ld, int code, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ld->rc = mote__fail(ld->err, code, "%s", text);
}

void *mote__weights_own(mote__weights *w, size_t bytes)
{
    if (w->n_owned == w->cap_owned) {
        size_t cap = w->cap_owned ? w->cap_owned * 2 : 256;
        void *p = realloc(w->owned, cap * sizeof *w->owned);
        if (!p)
            return NULL;
        w->owned = p;
        w->cap_owned = cap;
    }
    void *p = mote__alloc(w->meter, MOTE_MEM_WEIGHTS, bytes);
    if (p) {
        w->owned[w->n_owned].ptr = p;
        w->owned[w->n_owned++].bytes = bytes;
    }
    return p;
}

static void *own(loader *ld, size_t bytes)
{
    void *p = ld->rc ? NULL : mote__weights_own(ld->w, bytes);
    if (!p && !ld->rc)
        fail(ld, MOTE_ENOMEM, "out of memory while loading weights (%zu bytes)", bytes);
    return p;
}

static const mote__tensor *find(loader *ld, const char *name, const char *suffix)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s%s", ld->prefix, name, suffix);
    return mote__checkpoint_find(ld->w->ckpt, full);
}

static const char *where(loader *ld, const mote__tensor *t)
{
    return mote__checkpoint_shard_path(ld->w->ckpt, t->shard);
}

/* `name` in the checkpoint with shape [d0, d1] (d1 == 0: one dimension), or NULL and a sentence. */
static const mote__tensor *need(loader *ld, const char *name, uint64_t d0, uint64_t d1)
{
    if (ld->rc)
        return NULL;
    const mote__tensor *t = find(ld, name, "");
    if (!t) {
        fail(ld, MOTE_EFORMAT, "tensor '%s%s' is missing from the checkpoint", ld->prefix, name);
        return NULL;
    }
    unsigned dims = d1 ? 2 : 1;
    if (t->n_dims != dims || t->shape[0] != d0 || (d1 && t->shape[1] != d1)) {
        char got[120] = "";
        for (unsigned i = 0; i < t->n_dims; i++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%llu", i ? ", " : "",
                     (unsigned long long)t->shape[i]);
        if (d1)
            fail(ld, MOTE_EFORMAT,
                 "%s: tensor '%s' has shape [%s], config.json asks for [%llu, %llu]", where(ld, t),
                 t->name, got, (unsigned long long)d0, (unsigned long long)d1);
        else
            fail(ld, MOTE_EFORMAT, "%s: tensor '%s' has shape [%s], config.json asks for [%llu]",
                 where(ld, t), t->name, got, (unsigned long long)d0);
        return NULL;
    }
    ld->w->used_bytes += t->n_bytes;
    return t;
}

/* 1 if the names' table has the tensor's dtype; else 0 and a sentence that lists what it has. */
static int check_dtype(loader *ld, const mote__tensor *t)
{
    unsigned allowed = mote__tensor_dtypes(t->name, ld->c);
    char list[120] = "";
    if (allowed >> t->dtype & 1)
        return 1;
    for (int d = 0; d < MOTE_DTYPES; d++)
        if (allowed >> d & 1)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s%s", *list ? " or " : "",
                     mote__dtype_name((mote__dtype)d), d == MOTE_DT_I8 ? " (packed E2M1)" : "");
    fail(ld, MOTE_EFORMAT, "%s: tensor '%s' has dtype %s, expected %s", where(ld, t), t->name,
         mote__dtype_name(t->dtype), list);
    return 0;
}

static void to_f32(float *dst, const mote__tensor *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = t->dtype == MOTE_DT_BF16  ? mote__bf16_decode(mote__le16(t->data + 2 * i))
                 : t->dtype == MOTE_DT_F16 ? mote__f16_decode(mote__le16(t->data + 2 * i))
                                           : mote__bits_f32(mote__le32(t->data + 4 * i));
}

float *mote__load_vector(loader *ld, const char *name, uint64_t d0, uint64_t d1)
{
    const mote__tensor *t = need(ld, name, d0, d1);
    if (!t || !check_dtype(ld, t))
        return NULL;
    size_t n = d0 * (d1 ? d1 : 1);
    float *v = own(ld, n * sizeof *v);
    if (v)
        to_f32(v, t, n);
    ld->w->n_parameters += n;
    return v;
}

/* The scale tensor that belongs to `name`.weight; published checkpoints call it .scale, some
 * conversions .weight_scale_inv. */
static const mote__tensor *scale_of(loader *ld, const char *name, uint64_t d0, uint64_t d1)
{
    char full[200];
    int converted = !find(ld, name, ".scale") && find(ld, name, ".weight_scale_inv");
    snprintf(full, sizeof full, "%s%s", name, converted ? ".weight_scale_inv" : ".scale");
    const mote__tensor *s = need(ld, full, d0, d1);
    return s && check_dtype(ld, s) ? s : NULL;
}

/* The kernels know no half precision: an exact fp32 copy. */
static const uint8_t *half_copy(loader *ld, const mote__tensor *t, size_t n_out, size_t n_in)
{
    float *copy = own(ld, mote__mul(mote__mul(n_out, n_in), sizeof *copy));
    if (copy)
        to_f32(copy, t, n_out * n_in);
    return (const uint8_t *)copy;
}

/* The linear `name`[.weight] of n_out x n_in in whatever dtype the file has it. */
static mote__mat matrix_at(loader *ld, const char *name, const char *suffix, size_t n_out,
                           size_t n_in)
{
    mote__mat m = { .n_out = n_out, .n_in = n_in };
    char full[200];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    const mote__tensor *t = ld->rc ? NULL : find(ld, full, "");
    if (t && !check_dtype(ld, t))
        return m;
    int packed = t && t->dtype == MOTE_DT_I8;
    if (packed && n_in % 32) {
        fail(ld, MOTE_EUNSUPPORTED, "%s: tensor '%s': packed E2M1 needs a multiple of 32 columns",
             where(ld, t), t->name);
        return m;
    }
    t = need(ld, full, n_out, packed ? n_in / 2 : n_in);
    if (!t)
        return m;
    m.data = t->data;
    ld->w->n_parameters += (uint64_t)n_out * n_in;
    const mote__tensor *s = NULL;
    switch (t->dtype) {
    case MOTE_DT_F16:
        m.kind = MOTE_W_F32;
        m.data = half_copy(ld, t, n_out, n_in);
        return m;
    case MOTE_DT_F32: m.kind = MOTE_W_F32; return m;
    case MOTE_DT_BF16:
        m.kind = MOTE_W_BF16;
        if (n_in % 2)
            fail(ld, MOTE_EUNSUPPORTED,
                 "%s: tensor '%s': BF16 linears need an even number of columns", where(ld, t),
                 t->name);
        return m;
    case MOTE_DT_F8_E4M3:
        m.kind = MOTE_W_FP8;
        if (n_in % 32) /* published math rounds inputs in groups of 32 */
            fail(ld, MOTE_EUNSUPPORTED,
                 "%s: tensor '%s': FP8 linears need a multiple of 32 columns", where(ld, t),
                 t->name);
        s = scale_of(ld, name, (n_out + 31) / 32, (n_in + 31) / 32);
        break;
    case MOTE_DT_I8:
        m.kind = MOTE_W_MXFP4;
        s = scale_of(ld, name, n_out, n_in / 32);
        break;
    default: /* the table has no others */ return m;
    }
    if (s) {
        m.scale = s->data;
        m.scale_stride = (size_t)s->shape[1];
    }
    return m;
}

mote__mat mote__load_matrix(loader *ld, const char *name, size_t n_out, size_t n_in)
{
    return matrix_at(ld, name, ".weight", n_out, n_in);
}

mote__mat mote__load_plain(loader *ld, const char *name, const char *suffix, size_t n_out,
                           size_t n_in)
{
    return matrix_at(ld, name, suffix, n_out, n_in);
}

static mote__hc hyper(loader *ld, const char *part)
{
    const mote__config *c = ld->c;
    size_t n = c->hc_mult, mixes = (2 + n) * n;
    char name[64];
    mote__hc hc = { 0 };
    snprintf(name, sizeof name, "hc_%s_fn", part);
    hc.fn = mote__load_plain(ld, name, "", mixes, n * c->hidden_size);
    snprintf(name, sizeof name, "hc_%s_base", part);
    hc.base = mote__load_vector(ld, name, mixes, 0);
    snprintf(name, sizeof name, "hc_%s_scale", part);
    hc.scale = mote__load_vector(ld, name, 3, 0);
    return hc;
}

static mote__expert expert(loader *ld, const char *prefix, size_t inter, size_t d)
{
    char name[128];
    mote__expert e;
    snprintf(name, sizeof name, "%s.w1", prefix);
    e.w1 = mote__load_matrix(ld, name, inter, d);
    snprintf(name, sizeof name, "%s.w2", prefix);
    e.w2 = mote__load_matrix(ld, name, d, inter);
    snprintf(name, sizeof name, "%s.w3", prefix);
    e.w3 = mote__load_matrix(ld, name, inter, d);
    return e;
}

static void load_engram(loader *ld, mote__layer_weights *L, int index)
{
    const mote__config *c = ld->c;
    size_t d = c->hidden_size, n = c->hc_mult, dim = c->engram_head_dim;
    size_t cols = (c->engram_max_ngram - 1) * c->engram_heads * dim;
    const mote__tensor *t = need(ld, "engram.embed.weight", c->engram_rows[index], dim);
    const mote__tensor *s = t && check_dtype(ld, t)
                                ? scale_of(ld, "engram.embed", c->engram_rows[index], dim / 32)
                                : NULL;
    if (!s)
        return;
    L->e_codes = t->data;
    L->e_scales = s->data;
    ld->w->n_parameters += c->engram_rows[index] * dim;
    L->e_wkv = mote__load_matrix(ld, "engram.wkv", d * (n + 1), cols);
    float *q = mote__load_vector(ld, "engram.q_weight", n, d),
          *k = mote__load_vector(ld, "engram.k_weight", n, d);
    if (q && k)
        for (size_t i = 0; i < n * d; i++)
            q[i] *= k[i];
    L->e_qk = q;
}

static void load_layer(loader *ld, mote__layer_weights *L, const mote__layer_plan *p)
{
    const mote__config *c = ld->c;
    size_t d = c->hidden_size, wide = c->n_heads * c->head_dim;
    L->attn_norm = mote__load_vector(ld, "attn_norm.weight", d, 0);
    L->ffn_norm = mote__load_vector(ld, "ffn_norm.weight", d, 0);
    L->hc_attn = hyper(ld, "attn");
    L->hc_ffn = hyper(ld, "ffn");
    L->wq_a = mote__load_matrix(ld, "attn.wq_a", c->q_lora_rank, d);
    L->wq_b = mote__load_matrix(ld, "attn.wq_b", wide, c->q_lora_rank);
    L->wkv = mote__load_matrix(ld, "attn.wkv", c->head_dim, d);
    L->wo_a = mote__load_matrix(ld, "attn.wo_a", c->o_groups * c->o_lora_rank, wide / c->o_groups);
    L->wo_b = mote__load_matrix(ld, "attn.wo_b", d, c->o_groups * c->o_lora_rank);
    L->q_norm = mote__load_vector(ld, "attn.q_norm.weight", c->q_lora_rank, 0);
    L->kv_norm = mote__load_vector(ld, "attn.kv_norm.weight", c->head_dim, 0);
    L->sink = mote__load_vector(ld, "attn.attn_sink", c->n_heads, 0);
    if (p->role == MOTE_ROLE_FULL) {
        L->c_wkv = mote__load_matrix(ld, "attn.compressor.wkv", c->head_dim, d);
        if (p->ratio > 1)
            L->c_gate = mote__load_matrix(ld, "attn.compressor.wgate", c->head_dim, d);
        L->c_norm = mote__load_vector(ld, "attn.compressor.norm.weight", c->head_dim, 0);
        L->i_wk = mote__load_matrix(ld, "attn.indexer.wk", c->index_head_dim, c->head_dim);
        L->i_norm = mote__load_vector(ld, "attn.indexer.k_norm.weight", c->index_head_dim, 0);
    }
    if (p->role == MOTE_ROLE_FULL || p->role == MOTE_ROLE_REINDEX) {
        L->i_wq = mote__load_matrix(ld, "attn.indexer.wq_b", c->index_n_heads * c->index_head_dim,
                                    c->q_lora_rank);
        L->i_w = mote__load_matrix(ld, "attn.indexer.weights_proj", c->index_n_heads, d);
    }
    L->gate = mote__load_plain(ld, "ffn.gate", ".weight", c->n_routed_experts, d);
    L->gate_bias = mote__load_vector(ld, "ffn.gate.bias", c->n_routed_experts, 0);
    L->experts = own(ld, c->n_routed_experts * sizeof *L->experts);
    for (size_t e = 0; e < c->n_routed_experts && !ld->rc; e++) {
        char name[64];
        snprintf(name, sizeof name, "ffn.experts.%zu", e);
        L->experts[e] = expert(ld, name, c->moe_intermediate_size, d);
    }
    L->shared = expert(ld, "ffn.shared_experts", c->moe_intermediate_size, d);
    if (p->engram >= 0)
        load_engram(ld, L, p->engram);
}

static void load_v41(loader *ld)
{
    const mote__config *c = ld->c;
    mote__weights *w = ld->w;
    mote__layer_plan plan[MOTE_MAX_LAYERS];
    mote__plan_init(plan, c);
    w->embed = mote__load_plain(ld, "embed", ".weight", c->vocab_size, c->hidden_size);
    w->head = mote__load_plain(ld, "head", ".weight", c->vocab_size, c->hidden_size);
    w->norm = mote__load_vector(ld, "norm.weight", c->hidden_size, 0);
    for (size_t l = 0; l < c->n_layers && !ld->rc; l++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%zu.", l);
        ld->prefix = prefix;
        load_layer(ld, &w->layers[l], &plan[l]);
    }
    ld->prefix = "";
}

int mote__weights_open(mote__weights *w, const char *folder, const mote__config *c,
                       mote__meter *meter, mote_err *err)
{
    static void (*const load[MOTE_ARCHS])(
        loader * ld) = { [MOTE_ARCH_V41] = load_v41, [MOTE_ARCH_DENSE] = mote__load_dense };
    *w = (mote__weights){ .meter = meter };
    int rc = mote__checkpoint_open(&w->ckpt, folder, err);
    if (rc)
        return rc;
    loader ld = { .w = w, .c = c, .err = err, .prefix = "" };
    w->n_layers = c->n_layers;
    w->n_experts = c->n_routed_experts;
    w->layers = own(&ld, c->n_layers * sizeof *w->layers);
    if (w->layers)
        load[c->arch](&ld);
    if (ld.rc) {
        w->used_bytes = 0; /* not accounted yet */
        mote__weights_close(w);
        return ld.rc;
    }
    mote__meter_add(meter, MOTE_MEM_WEIGHTS, w->used_bytes);
    return MOTE_OK;
}

void mote__weights_close(mote__weights *w)
{
    mote__meter_sub(w->meter, MOTE_MEM_WEIGHTS, w->used_bytes - w->copied_bytes);
    mote__unmap_pages(w->meter, MOTE_MEM_WEIGHTS, w->copy, w->copy_bytes);
    for (size_t i = 0; i < w->n_owned; i++)
        mote__free(w->meter, MOTE_MEM_WEIGHTS, w->owned[i].ptr, w->owned[i].bytes);
    free(w->owned);
    mote__checkpoint_close(w->ckpt);
    *w = (mote__weights){ .meter = w->meter };
}
