/* A layer of a Llama-style model: h += Wo attention(RMSNorm(h)); h += SwiGLU(RMSNorm(h)). The
 * residual stream is one copy that is read whole, so the collapse of hyper.c with a mix of 1 is its
 * norm, and the shared expert of moe.c its feed-forward part. Keys and values of all rows are
 * stored first and read back from the cache, so decoding a token equals prefilling it. */
#include <assert.h>
#include <math.h>

#include "kern/attend_dense.h"
#include "model/cpu/pass.h"

/* Rows of one segment at consecutive positions, at most mote__dense_rows of them. */
struct span {
    uint32_t row, n;
};

struct dense {
    mote__pass *p;
    size_t layer;
    const mote__layer_weights *L;
    const struct span *spans;
};

size_t mote__dense_thread_bytes(const mote__config *c)
{
    return c->n_kv_heads
               ? mote__dense_scratch(c->n_heads / c->n_kv_heads, c->head_dim) * sizeof(float)
               : 0;
}

/* ---- queries, keys and values ---- */

/* Bias, the norm of each head and the rotation, each where the model has it. */
static void finish_heads(const mote__net *net, float *x, size_t n_heads, const float *bias,
                         const float *norm, const float *angles)
{
    const mote__config *c = &net->config;
    size_t n = n_heads * c->head_dim;
    for (size_t i = 0; bias && i < n; i++)
        x[i] += bias[i];
    mote__act(net, x, n);
    for (size_t h = 0; norm && h < n_heads; h++)
        net->kern->rmsnorm(x + h * c->head_dim, x + h * c->head_dim, norm, c->head_dim,
                           c->rms_norm_eps);
    mote__act(net, x, n);
    if (angles)
        mote__rope_apply_halves(x, n_heads, angles, c->head_dim);
    mote__act(net, x, n);
}

static void finish_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct dense *a = ctx;
    mote__pass *p = a->p;
    const mote__config *c = &p->net->config;
    size_t kv = c->n_kv_heads * c->head_dim;
    for (size_t r = begin; r < end; r++) {
        const mote__row *row = &p->rows[r];
        const float *angles = p->angles[0] + row->slot * c->rope_dim;
        finish_heads(p->net, p->q + r * c->n_heads * c->head_dim, c->n_heads, a->L->q_bias,
                     a->L->q_norm, angles);
        finish_heads(p->net, p->key + r * kv, c->n_kv_heads, a->L->k_bias, a->L->k_norm, angles);
        finish_heads(p->net, p->gate + r * kv, c->n_kv_heads, a->L->v_bias, NULL, NULL);
        mote__kv_put(&p->segments[row->segment].seq->kv, (size_t)p->net->plan[a->layer].source,
                     (size_t)row->pos, p->key + r * kv, p->gate + r * kv);
    }
}

static int project(struct dense *a)
{
    mote__pass *p = a->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = a->L;
    const mote__mat *w[3] = { &L->wq, &L->wk, &L->wv };
    float *y[3] = { p->q, p->key, p->gate };
    /* of published math: made once for all that want it */
    const float *rounded = NULL;
    for (int i = 0; i < 3; i++) {
        const float *x = p->x;
        if (net->published && w[i]->kind == MOTE_W_FP8)
            x = rounded ? rounded
                        : (rounded = mote__linear_input(net, w[i], p->x, p->n_rows, p->xq));
        p->jobs[i] = (mote__linear_job){ .w = w[i],
                                         .x = x,
                                         .ldx = c->hidden_size,
                                         .n_rows = p->n_rows,
                                         .y = y[i],
                                         .ldy = w[i]->n_out };
    }
    int rc = mote__pass_linear(p, p->jobs, 3);
    if (rc)
        return rc;
    mote__pool_for(net->pool, p->n_rows, 2, finish_rows, a);
    for (size_t i = 0; i < p->n_segments; i++) {
        const mote__segment *s = &p->segments[i];
        size_t *n = &s->seq->kv.n_entries[net->plan[a->layer].source];
        assert(*n == s->pos && s->skip == 0 && s->publish_from <= s->pos);
        *n += s->n;
    }
    return 0;
}

/* ---- attention ---- */

struct walk {
    const mote__kv_cache *kv;
    size_t source, head, key_codes, key_scales, value_codes, value_scales;
};

/* A block holds whole tiles. */
static void find_tile(void *ctx, size_t tile, mote__kv_ref *key, mote__kv_ref *value)
{
    const struct walk *w = ctx;
    const mote__kv_source *s = &w->kv->pool->layout.source[w->source];
    size_t entry = tile * MOTE_DENSE_TILE, i = entry % s->entries;
    *key = mote__kv_main(w->kv, w->source, entry);
    *value = mote__kv_index(w->kv, w->source, entry / s->entries);
    key->codes += w->head * w->key_codes;
    key->scales += w->head * w->key_scales;
    value->codes += i * s->index_code_bytes + w->head * w->value_codes;
    value->scales += i * s->index_scale_bytes + w->head * w->value_scales;
}

/* One task: one key and value head for one span of rows. */
static void attend(void *ctx, size_t begin, size_t end, int thread)
{
    struct dense *a = ctx;
    mote__pass *p = a->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    size_t dim = c->head_dim, group = c->n_heads / c->n_kv_heads, wide = c->n_heads * dim,
           source = (size_t)net->plan[a->layer].source;
    for (size_t i = begin; i < end; i++) {
        const struct span *span = &a->spans[i / c->n_kv_heads];
        size_t head = i % c->n_kv_heads;
        const mote__row *row = &p->rows[span->row];
        const mote__kv_cache *kv = &p->segments[row->segment].seq->kv;
        const mote__kv_source *s = &kv->pool->layout.source[source];
        struct walk w = { kv,
                          source,
                          head,
                          s->main_code_bytes / c->n_kv_heads,
                          s->main_scale_bytes / c->n_kv_heads,
                          s->index_code_bytes / c->n_kv_heads,
                          s->index_scale_bytes / c->n_kv_heads };
        mote__dense_args args = {
            .q = p->q + span->row * wide + head * group * dim,
            .ldq = wide,
            .n_rows = span->n,
            .n_heads = group,
            .dim = dim,
            .pos = row->pos,
            .key = { s->main->id, s->main_code_bytes, s->main_scale_bytes },
            .value = { s->index->id, s->index_code_bytes, s->index_scale_bytes },
            .tile = find_tile,
            .ctx = &w,
            .scale = (float)pow((double)dim, -0.5),
            .published = net->published,
            .out = p->o + span->row * wide + head * group * dim,
            .ldo = wide,
        };
        mote__attend_dense(net->kern, &args, mote__pass_thread(p, thread));
        for (size_t r = 0; r < span->n; r++)
            mote__act(net, args.out + r * wide, group * dim);
    }
}

static int attention(struct dense *a)
{
    mote__pass *p = a->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    size_t wide = c->n_heads * c->head_dim, most = mote__dense_rows(c->n_heads / c->n_kv_heads),
           n_spans = 0;
    int rc = project(a);
    if (rc)
        return rc;
    if (mote__buf_reserve(&p->work, p->n_rows * sizeof(struct span)))
        return MOTE_ENOMEM;
    struct span *spans = p->work.data;
    for (size_t r = 0; r < p->n_rows; n_spans++) {
        size_t n = 1;
        while (n < most && r + n < p->n_rows && p->rows[r + n].segment == p->rows[r].segment)
            n++;
        spans[n_spans] = (struct span){ (uint32_t)r, (uint32_t)n };
        r += n;
    }
    a->spans = spans;
    mote__pool_for(net->pool, n_spans * c->n_kv_heads, 1, attend, a);
    mote__linear_job job = { .w = &a->L->wo,
                             .x = mote__linear_input(net, &a->L->wo, p->o, p->n_rows, p->xq),
                             .ldx = wide,
                             .n_rows = p->n_rows,
                             .y = p->y,
                             .ldy = c->hidden_size };
    if ((rc = mote__pass_linear(p, &job, 1)))
        return rc;
    mote__act(net, p->y, p->n_rows * c->hidden_size);
    return 0;
}

/* ---- the layer ---- */

static void add_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    mote__pass *p = ctx;
    size_t d = p->net->config.hidden_size;
    for (size_t r = begin; r < end; r++) {
        float *h = p->h + p->rows[r].slot * d;
        for (size_t i = 0; i < d; i++)
            h[i] += p->y[r * d + i];
        mote__act(p->net, h, d);
    }
}

int mote__dense_layer(mote__pass *p, size_t layer, size_t top)
{
    (void)top;
    const mote__net *net = p->net;
    const mote__trace *t = net->trace;
    struct dense a = { .p = p, .layer = layer, .L = &net->weights.layers[layer] };
    int rc;
    if (t && t->enter)
        t->enter(t->ctx, layer, p->h, p->mix, p->n_slots);
    mote__hyper_collapse(p, p->mix, 1, a.L->attn_norm);
    if ((rc = attention(&a)))
        return rc;
    if (t && t->f32)
        t->f32(t->ctx, layer, "attn_out", p->y, p->n_rows, net->config.hidden_size);
    mote__pool_for(net->pool, p->n_rows, 16, add_rows, p);
    mote__hyper_collapse(p, p->mix, 1, a.L->ffn_norm);
    if ((rc = mote__moe(p, layer)))
        return rc;
    mote__pool_for(net->pool, p->n_rows, 16, add_rows, p);
    if (t && t->f32 && p->n_rows == p->n_slots)
        t->f32(t->ctx, layer, "out", p->h, p->n_slots, net->config.hidden_size);
    return 0;
}
