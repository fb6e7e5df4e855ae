/* KV sources: from attention inputs to global KV entries. A group of `ratio` tokens is pooled into
 * one latent; the unrotated latent gives the indexer key, the rotated one is stored as main KV.
 * Source: docs/architecture.md, "CSA2". */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/cpu/pass.h"

struct entry {
    mote__seq *seq;
    size_t number;
    const float *rows[2 * MOTE_MAX_RATIO]; /* kv, gate of each token of the group */
};

struct publish {
    mote__cpu_pass *p;
    size_t layer, source, ratio;
    struct entry *entries;
    size_t n_entries;
    float *latent, *index; /* [n_entries][head_dim], [n_entries][index_head_dim] */
};

/* softmax over the group, per channel, of the gate weighs kv */
static void pool_group(float *latent, const struct entry *e, size_t ratio, size_t d)
{
    for (size_t i = 0; i < d; i++) {
        double top = (double)e->rows[1][i], sum = 0, acc = 0;
        for (size_t t = 1; t < ratio; t++)
            top = fmax(top, (double)e->rows[2 * t + 1][i]);
        double w[MOTE_MAX_RATIO];
        for (size_t t = 0; t < ratio; t++)
            sum += w[t] = exp((double)e->rows[2 * t + 1][i] - top);
        for (size_t t = 0; t < ratio; t++)
            acc += (double)e->rows[2 * t][i] * (w[t] / sum);
        latent[i] = (float)acc;
    }
}

static void make_latents(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct publish *u = ctx;
    const mote__net *net = u->p->net;
    const mote__config *c = &net->config;
    for (size_t i = begin; i < end; i++) {
        float *latent = u->latent + i * c->head_dim;
        if (u->ratio > 1)
            pool_group(latent, &u->entries[i], u->ratio, c->head_dim);
        else
            memcpy(latent, u->entries[i].rows[0], c->head_dim * sizeof *latent);
        mote__act(net, latent, c->head_dim);
        net->kern->rmsnorm(latent, latent, net->weights.layers[u->layer].c_norm, c->head_dim,
                           c->rms_norm_eps);
        mote__act(net, latent, c->head_dim);
    }
}

static void store(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct publish *u = ctx;
    const mote__net *net = u->p->net;
    const mote__config *c = &net->config;
    float angles[MOTE_MAX_ROPE_DIM];
    for (size_t i = begin; i < end; i++) {
        float *latent = u->latent + i * c->head_dim, *key = u->index + i * c->index_head_dim;
        mote__rope_angles(angles, &net->rope[1], (uint64_t)u->entries[i].number * u->ratio);
        mote__act(net, key, c->index_head_dim);
        net->kern->rmsnorm(key, key, net->weights.layers[u->layer].i_norm, c->index_head_dim,
                           c->rms_norm_eps);
        mote__act(net, key, c->index_head_dim);
        mote__rope_apply(key, 1, c->index_head_dim, angles, c->rope_dim, 0);
        mote__act(net, key, c->index_head_dim);
        mote__rope_apply(latent, 1, c->head_dim, angles, c->rope_dim, 0);
        mote__act(net, latent, c->head_dim);
        mote__kv_put(&u->entries[i].seq->kv, u->source, u->entries[i].number, latent, key);
    }
}

/* Walk the published rows of one extent: complete groups become entries, the rest waits in the
 * sequence's partial group. The pending rows of earlier steps stay readable until the entries are
 * made, so the new rest is kept in a second walk. */
static void list_entries(struct publish *u, const mote__extent *s, size_t first_row, size_t n)
{
    mote__cpu_pass *p = u->p;
    size_t d = p->net->config.head_dim, r = u->ratio;
    mote__seq *seq = s->seq;
    size_t pending = seq->state.n_pending[u->source], entry = seq->kv.n_entries[u->source];
    for (size_t t = 0; t + r <= pending + n; t += r) {
        struct entry *e = &u->entries[u->n_entries++];
        e->seq = seq;
        e->number = entry++;
        for (size_t k = 0; k < r; k++)
            for (int g = 0; g < (r > 1 ? 2 : 1); g++)
                e->rows[2 * k + (size_t)g] = t + k < pending
                                                 ? mote__kv_pending(&seq->state, u->source, t + k,
                                                                    g)
                                                 : (g ? p->pool_gate : p->latent) +
                                                       (first_row + t + k - pending) * d;
    }
}

static void keep_rest(struct publish *u, const mote__extent *s, size_t first_row, size_t n)
{
    mote__cpu_pass *p = u->p;
    size_t d = p->net->config.head_dim, r = u->ratio;
    mote__kv_state *st = &s->seq->state;
    size_t pending = st->n_pending[u->source], all = pending + n, rest = all % r;
    s->seq->kv.n_entries[u->source] += all / r;
    for (size_t k = 0; k < rest; k++) {
        /* counted from the start of the old partial group */
        size_t t = all - rest + k;
        if (t < pending)
            /* it stays where it is: nothing was completed */
            continue;
        for (int g = 0; g < 2; g++)
            memcpy(mote__kv_pending(st, u->source, k, g),
                   (g ? p->pool_gate : p->latent) + (first_row + t - pending) * d,
                   d * sizeof(float));
    }
    st->n_pending[u->source] = rest;
}

/* Latents and their scores of all rows; pooling stays in fp32. */
static int pooled_linears(mote__cpu_pass *p, const mote__layer_weights *L)
{
    const mote__config *c = &p->net->config;
    mote__tile t = { 0 };
    int rc = 0;
    for (; t.first < p->batch->n_rows && !rc; t.first += t.n) {
        t = mote__cpu_tile(p, t.first);
        mote__linear_job jobs[2];
        for (int gate = 0; gate < 2; gate++)
            jobs[gate] = (mote__linear_job){
                .w = gate ? &L->c_gate : &L->c_wkv,
                .x = p->x + t.first * c->hidden_size,
                .ldx = c->hidden_size,
                .n_rows = t.n,
                .y = (gate ? p->pool_gate : p->latent) + t.first * c->head_dim,
                .ldy = c->head_dim,
            };
        rc = mote__cpu_linear(p, jobs, 2);
    }
    return rc;
}

int mote__cpu_publish(mote__backend_pass *base, size_t layer)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = &net->weights.layers[layer];
    struct publish u = { .p = p,
                         .layer = layer,
                         .source = (size_t)net->plan[layer].source,
                         .ratio = net->plan[layer].ratio };
    if (u.ratio == 1)
        for (size_t i = 0; i < p->batch->n_extents; i++)
            assert(p->batch->extents[i].seq->state.n_pending[u.source] == 0);

    /* only rows at or after publish_from: the live rows of a segment are consecutive */
    size_t n_new = 0, at = 0;
    for (size_t i = 0; i < p->batch->n_extents; i++) {
        const mote__extent *s = &p->batch->extents[i];
        for (size_t k = s->skip; k < s->n; k++)
            n_new += s->pos + k >= s->publish_from;
    }
    if (n_new == 0)
        return 0;
    int rc = u.ratio > 1 ? pooled_linears(p, L)
                         : mote__cpu_linear_rows(p, &L->c_wkv, p->x, p->batch->n_rows, p->latent);
    if (rc)
        return rc;

    size_t max_entries = n_new / u.ratio + p->batch->n_extents;
    if (mote__buf_reserve(&p->entries,
                          max_entries * (sizeof(struct entry) +
                                         (c->head_dim + c->index_head_dim) * sizeof(float))))
        return MOTE_ENOMEM;
    u.entries = p->entries.data;
    u.latent = (float *)(void *)(u.entries + max_entries);
    u.index = u.latent + max_entries * c->head_dim;
    for (int walk = 0; walk < 2; walk++) {
        at = 0;
        for (size_t i = 0; i < p->batch->n_extents; i++) {
            const mote__extent *s = &p->batch->extents[i];
            size_t live = s->n - s->skip, old = 0;
            while (old < live && s->pos + s->skip + old < s->publish_from)
                old++;
            if (walk == 0)
                list_entries(&u, s, at + old, live - old);
            else
                keep_rest(&u, s, at + old, live - old);
            at += live;
        }
        if (walk == 0) {
            mote__threads_for(net->threads, u.n_entries, 1, make_latents, &u);
            if (net->trace && net->trace->f32)
                net->trace->f32(net->trace->ctx, layer, "latent", u.latent, u.n_entries,
                                c->head_dim);
            rc = mote__cpu_linear_rows(p, &L->i_wk, u.latent, u.n_entries, u.index);
            if (rc)
                break;
            mote__threads_for(net->threads, u.n_entries, 1, store, &u);
        }
    }
    return rc;
}
