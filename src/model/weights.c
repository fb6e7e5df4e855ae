#include "base/le.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/catalog.h"
#include "num/formats.h"

/* The first failure sticks; later calls do nothing. */
typedef struct loader {
    mote__weights *w;
    mote_err *err;
    int rc;
    mote_weight_group group; /* of the tensor that is being loaded */
} loader;

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

static const char *where(loader *ld, const mote__tensor *t)
{
    return mote__checkpoint_shard_path(ld->w->ckpt, t->shard);
}

/* `name` in the checkpoint with shape [d0, d1] (d1 == 0: one dimension), or NULL and a sentence. */
static const mote__tensor *need(loader *ld, const char *name, uint64_t d0, uint64_t d1)
{
    if (ld->rc)
        return NULL;
    const mote__tensor *t = mote__checkpoint_find(ld->w->ckpt, name);
    if (!t) {
        fail(ld, MOTE_EFORMAT, "tensor '%s' is missing from the checkpoint", name);
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
    ld->w->group_bytes[ld->group] += t->n_bytes;
    return t;
}

/* 1 if the names' table has the tensor's dtype; else 0 and a sentence that lists what it has. */
static int check_dtype(loader *ld, const mote__tensor *t, unsigned allowed)
{
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

/* A small tensor as an fp32 copy. */
static float *vector(loader *ld, const mote__expected *e)
{
    const mote__tensor *t = need(ld, e->name, e->dims[0], e->n_dims == 2 ? e->dims[1] : 0);
    if (!t || !check_dtype(ld, t, e->dtypes))
        return NULL;
    size_t n = e->dims[0] * (e->n_dims == 2 ? e->dims[1] : 1);
    float *v = own(ld, n * sizeof *v);
    if (v)
        to_f32(v, t, n);
    ld->w->n_parameters += n;
    return v;
}

/* The scales of a weight `name`, "X.weight"; published checkpoints call them X.scale, some
 * conversions X.weight_scale_inv. */
static const mote__tensor *scale_of(loader *ld, const char *name, uint64_t d0, uint64_t d1)
{
    char stem[150], full[200];
    snprintf(stem, sizeof stem, "%s", name);
    stem[strlen(stem) - strlen(".weight")] = 0;
    snprintf(full, sizeof full, "%s.weight_scale_inv", stem);
    if (!mote__checkpoint_find(ld->w->ckpt, full))
        snprintf(full, sizeof full, "%s.scale", stem);
    const mote__tensor *s = need(ld, full, d0, d1);
    return s && check_dtype(ld, s, 1u << MOTE_DT_F8_E8M0) ? s : NULL;
}

/* The kernels know no half precision: an exact fp32 copy. */
static const uint8_t *half_copy(loader *ld, const mote__tensor *t, size_t n_out, size_t n_in)
{
    float *copy = own(ld, mote__mul(mote__mul(n_out, n_in), sizeof *copy));
    if (copy)
        to_f32(copy, t, n_out * n_in);
    return (const uint8_t *)copy;
}

/* 1: the kernels take so many columns of this dtype; else 0 and a sentence. */
static int check_columns(loader *ld, const mote__tensor *t, size_t n_in)
{
    /* published math rounds the inputs of FP8 in groups of 32 */
    const char *what = t->dtype == MOTE_DT_I8 && n_in % 32
                           ? "packed E2M1 needs a multiple of 32 columns"
                       : t->dtype == MOTE_DT_F8_E4M3 && n_in % 32
                           ? "FP8 linears need a multiple of 32 columns"
                       : t->dtype == MOTE_DT_BF16 && n_in % 2
                           ? "BF16 linears need an even number of columns"
                           : NULL;
    if (what)
        fail(ld, MOTE_EUNSUPPORTED, "%s: tensor '%s': %s", where(ld, t), t->name, what);
    return !what;
}

/* A matrix or a table of rows, in whatever dtype the file has it. */
static mote__mat matrix(loader *ld, const mote__expected *e, mote__form form)
{
    size_t n_out = e->dims[0], n_in = e->dims[1];
    mote__mat m = { .n_out = n_out, .n_in = n_in };
    const mote__tensor *t = ld->rc ? NULL : mote__checkpoint_find(ld->w->ckpt, e->name), *s = NULL;
    if (t && (!check_dtype(ld, t, e->dtypes) || !check_columns(ld, t, n_in)))
        return m;
    t = need(ld, e->name, n_out, t && t->dtype == MOTE_DT_I8 ? n_in / 2 : n_in);
    if (!t)
        return m;
    m.data = t->data;
    ld->w->n_parameters += (uint64_t)n_out * n_in;
    switch (t->dtype) {
    case MOTE_DT_F16:
        m.kind = MOTE_W_F32;
        m.data = half_copy(ld, t, n_out, n_in);
        break;
    case MOTE_DT_F32: m.kind = MOTE_W_F32; break;
    case MOTE_DT_BF16: m.kind = MOTE_W_BF16; break;
    case MOTE_DT_F8_E4M3:
        m.kind = MOTE_W_FP8;
        s = scale_of(ld, e->name, form == MOTE_FORM_TABLE ? n_out : (n_out + 31) / 32,
                     (n_in + 31) / 32);
        break;
    case MOTE_DT_I8:
        m.kind = MOTE_W_MXFP4;
        s = scale_of(ld, e->name, n_out, n_in / 32);
        break;
    default: /* the table has no others */ break;
    }
    if (s) {
        m.scale = s->data;
        m.scale_stride = (size_t)s->shape[1];
    }
    return m;
}

static int load_tensor(void *ctx, const mote__expected *e)
{
    loader *ld = ctx;
    if (e->is_scale) /* read with its weight */
        return 0;
    const mote__catalog_row *row = mote__catalog(e->id);
    void *member = mote__catalog_member(ld->w, e->id, (size_t)e->layer, (size_t)e->expert);
    ld->group = mote__catalog_group(ld->w, e->id);
    switch (row->form) {
    case MOTE_FORM_MATRIX:
    case MOTE_FORM_TABLE: *(mote__mat *)member = matrix(ld, e, row->form); break;
    case MOTE_FORM_VECTOR: *(float **)member = vector(ld, e); break;
    case MOTE_FORM_FACTOR: {
        float *v = *(float **)member, *factor = vector(ld, e);
        for (uint64_t i = 0; factor && i < e->dims[0] * (e->n_dims == 2 ? e->dims[1] : 1); i++)
            v[i] *= factor[i];
        break;
    }
    }
    return ld->rc;
}

int mote__weights_open(mote__weights *w, const char *folder, const mote__config *c,
                       mote__meter *meter, mote_err *err)
{
    *w = (mote__weights){ .meter = meter };
    int rc = mote__checkpoint_open(&w->ckpt, folder, err);
    if (rc)
        return rc;
    loader ld = { .w = w, .err = err };
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++)
        w->placed[g] = MOTE_WEIGHTS_MAP;
    w->n_layers = c->n_layers;
    w->n_experts = c->n_routed_experts;
    w->layers = own(&ld, c->n_layers * sizeof *w->layers);
    for (size_t l = 0; l < c->n_layers && w->n_experts && !ld.rc; l++)
        w->layers[l].experts = own(&ld, w->n_experts * sizeof *w->layers[l].experts);
    if (!ld.rc)
        mote__expected_tensors(c, load_tensor, &ld);
    if (c->tied_embeddings)
        w->head = w->embed;
    if (ld.rc) {
        w->used_bytes = 0; /* not accounted yet */
        mote__meter_add(meter, MOTE_MEM_OTHER, mote__checkpoint_memory(w->ckpt));
        mote__weights_close(w);
        return ld.rc;
    }
    mote__meter_add(meter, MOTE_MEM_WEIGHTS, w->used_bytes);
    mote__meter_add(meter, MOTE_MEM_OTHER, mote__checkpoint_memory(w->ckpt));
    return MOTE_OK;
}

void mote__weights_close(mote__weights *w)
{
    mote__meter_sub(w->meter, MOTE_MEM_WEIGHTS,
                    w->used_bytes - w->copied_bytes - w->streamed_bytes);
    mote__unmap_pages(w->meter, MOTE_MEM_WEIGHTS, w->copy, w->copy_bytes);
    for (size_t i = 0; i < w->n_owned; i++)
        mote__free(w->meter, MOTE_MEM_WEIGHTS, w->owned[i].ptr, w->owned[i].bytes);
    free(w->owned);
    if (w->ckpt)
        mote__meter_sub(w->meter, MOTE_MEM_OTHER, mote__checkpoint_memory(w->ckpt));
    mote__checkpoint_close(w->ckpt);
    *w = (mote__weights){ .meter = w->meter };
}
