/* The attention of a Llama-style model. Its layer is h += Wo attention(RMSNorm(h)); h +=
 * SwiGLU(RMSNorm(h)). The residual stream is one copy that is read whole, so the collapse of
 * hyper.c with a mix of 1 is its norm, and the shared expert of moe.c its feed-forward part. Keys
 * and values of all rows are stored first and read back from the cache, so decoding a token equals
 * prefilling it. */
#include <assert.h>
#include <math.h>

#include "kern/attend_dense.h"
#include "model/cpu/pass.h"

/* Rows of one extent at consecutive positions, at most mote__dense_rows of them. */
struct query_tile {
    uint32_t row, n;
};

struct dense {
    mote__cpu_pass *p;
    size_t layer;
    const mote__layer_weights *L;
    const struct query_tile *tiles;
};

size_t mote__cpu_dense_thread_bytes(const mote__config *c)
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
    mote__cpu_pass *p = a->p;
    const mote__config *c = &p->net->config;
    size_t kv = c->n_kv_heads * c->head_dim;
    for (size_t r = begin; r < end; r++) {
        const mote__row *row = &p->batch->rows[r];
        const float *angles = p->angles[0] + row->token * c->rope_dim;
        finish_heads(p->net, p->query + r * c->n_heads * c->head_dim, c->n_heads, a->L->q_bias,
                     a->L->q_norm, angles);
        finish_heads(p->net, p->dense_key + r * kv, c->n_kv_heads, a->L->k_bias, a->L->k_norm,
                     angles);
        finish_heads(p->net, p->dense_value + r * kv, c->n_kv_heads, a->L->v_bias, NULL, NULL);
        mote__kv_put(&p->batch->extents[row->extent].seq->kv, (size_t)p->net->plan[a->layer].source,
                     (size_t)row->pos, p->dense_key + r * kv, p->dense_value + r * kv);
    }
}

int mote__cpu_dense_project(mote__backend_pass *base, size_t layer)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = &net->weights.layers[layer];
    struct dense a = { .p = p, .layer = layer, .L = L };
    size_t n = p->batch->n_rows;
    const mote__mat *w[3] = { &L->wq, &L->wk, &L->wv };
    float *y[3] = { p->query, p->dense_key, p->dense_value };
    /* of published math: made once for all that want it */
    const float *rounded = NULL;
    for (int i = 0; i < 3; i++) {
        const float *x = p->x;
        if (net->published && w[i]->kind == MOTE_W_FP8)
            x = rounded ? rounded : (rounded = mote__linear_input(net, w[i], p->x, n, p->rounded));
        p->jobs[i] = (mote__linear_job){ .w = w[i],
                                         .x = x,
                                         .ldx = c->hidden_size,
                                         .n_rows = p->batch->n_rows,
                                         .y = y[i],
                                         .ldy = w[i]->n_out };
    }
    int rc = mote__cpu_linear(p, p->jobs, 3);
    if (rc)
        return rc;
    mote__threads_for(net->threads, p->batch->n_rows, 2, finish_rows, &a);
    for (size_t i = 0; i < p->batch->n_extents; i++) {
        const mote__extent *s = &p->batch->extents[i];
        size_t *n_entries = &s->seq->kv.n_entries[net->plan[layer].source];
        assert(*n_entries == s->pos && s->skip == 0 && s->publish_from <= s->pos);
        *n_entries += s->n;
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

/* One task: one key and value head for one tile of rows. */
static void attend(void *ctx, size_t begin, size_t end, int thread)
{
    struct dense *a = ctx;
    mote__cpu_pass *p = a->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    size_t dim = c->head_dim, group = c->n_heads / c->n_kv_heads, wide = c->n_heads * dim,
           source = (size_t)net->plan[a->layer].source;
    for (size_t i = begin; i < end; i++) {
        const struct query_tile *tile = &a->tiles[i / c->n_kv_heads];
        size_t head = i % c->n_kv_heads;
        const mote__row *row = &p->batch->rows[tile->row];
        const mote__kv_cache *kv = &p->batch->extents[row->extent].seq->kv;
        const mote__kv_source *s = &kv->pool->layout.source[source];
        struct walk w = { kv,
                          source,
                          head,
                          s->main_code_bytes / c->n_kv_heads,
                          s->main_scale_bytes / c->n_kv_heads,
                          s->index_code_bytes / c->n_kv_heads,
                          s->index_scale_bytes / c->n_kv_heads };
        mote__dense_args args = {
            .q = p->query + tile->row * wide + head * group * dim,
            .ldq = wide,
            .n_rows = tile->n,
            .n_heads = group,
            .dim = dim,
            .pos = row->pos,
            .key = { s->main->id, s->main_code_bytes, s->main_scale_bytes },
            .value = { s->index->id, s->index_code_bytes, s->index_scale_bytes },
            .tile = find_tile,
            .ctx = &w,
            .scale = (float)pow((double)dim, -0.5),
            .published = net->published,
            .out = p->attended + tile->row * wide + head * group * dim,
            .ldo = wide,
        };
        mote__attend_dense(net->kern, &args, mote__cpu_thread(p, thread));
        for (size_t r = 0; r < tile->n; r++)
            mote__act(net, args.out + r * wide, group * dim);
    }
}

int mote__cpu_dense_attend(mote__backend_pass *base, size_t layer)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__row *rows = p->batch->rows;
    struct dense a = { .p = p, .layer = layer, .L = &net->weights.layers[layer] };
    size_t wide = c->n_heads * c->head_dim, most = mote__dense_rows(c->n_heads / c->n_kv_heads),
           n_rows = p->batch->n_rows, n_tiles = 0;
    if (mote__buf_reserve(&p->query_tiles, n_rows * sizeof(struct query_tile)))
        return MOTE_ENOMEM;
    struct query_tile *tiles = p->query_tiles.data;
    for (size_t r = 0; r < n_rows; n_tiles++) {
        size_t n = 1;
        while (n < most && r + n < n_rows && rows[r + n].extent == rows[r].extent)
            n++;
        tiles[n_tiles] = (struct query_tile){ (uint32_t)r, (uint32_t)n };
        r += n;
    }
    a.tiles = tiles;
    mote__threads_for(net->threads, n_tiles * c->n_kv_heads, 1, attend, &a);
    mote__linear_job job = { .w = &a.L->wo,
                             .x = mote__linear_input(net, &a.L->wo, p->attended, n_rows,
                                                     p->rounded),
                             .ldx = wide,
                             .n_rows = n_rows,
                             .y = p->y,
                             .ldy = c->hidden_size };
    int rc = mote__cpu_linear(p, &job, 1);
    if (rc)
        return rc;
    mote__act(net, p->y, n_rows * c->hidden_size);
    mote__cpu_trace(p, layer, "attn_out", p->y, c->hidden_size);
    return 0;
}

static void add_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    mote__cpu_pass *p = ctx;
    size_t d = p->net->config.hidden_size;
    for (size_t r = begin; r < end; r++) {
        float *h = p->h + p->batch->rows[r].token * d;
        for (size_t i = 0; i < d; i++)
            h[i] += p->y[r * d + i];
        mote__act(p->net, h, d);
    }
}

int mote__cpu_dense_add(mote__backend_pass *base, size_t layer, mote__sublayer sub)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    mote__threads_for(p->net->threads, p->batch->n_rows, 16, add_rows, p);
    if (sub == MOTE_SUB_EXPERTS)
        mote__cpu_trace_tokens(p, layer, "out", p->h, p->net->config.hidden_size);
    return 0;
}
