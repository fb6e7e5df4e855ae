/* Hyper-connections (mHC, Single-Pass): the residual stream is hc copies; a sublayer reads one
 * mixture of them and adds its output to a doubly-normalised mixture. Source: docs/architecture.md,
 * "Residual copies". */
#include <math.h>

#include "model/cpu/pass.h"

static double sigmoid(double x)
{
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* comb [n][n]: row softmax + eps, one column normalisation, then iters-1 times (row, column), each
 * dividing by (sum + eps) */
static void sinkhorn(double *m, size_t n, size_t iters, double eps)
{
    for (size_t i = 0; i < n; i++) {
        double top = m[i * n], sum = 0;
        for (size_t j = 1; j < n; j++)
            top = fmax(top, m[i * n + j]);
        for (size_t j = 0; j < n; j++)
            sum += m[i * n + j] = exp(m[i * n + j] - top);
        for (size_t j = 0; j < n; j++)
            m[i * n + j] = m[i * n + j] / sum + eps;
    }
    for (size_t it = 0; it < iters; it++) {
        if (it)
            for (size_t i = 0; i < n; i++) {
                double sum = eps;
                for (size_t j = 0; j < n; j++)
                    sum += m[i * n + j];
                double inv = 1 / sum;
                for (size_t j = 0; j < n; j++)
                    m[i * n + j] *= inv;
            }
        for (size_t j = 0; j < n; j++) {
            double sum = eps;
            for (size_t i = 0; i < n; i++)
                sum += m[i * n + j];
            double inv = 1 / sum;
            for (size_t i = 0; i < n; i++)
                m[i * n + j] *= inv;
        }
    }
}

struct mixes {
    mote__cpu_pass *p;
    const mote__hc *hc;
};

/* of a sublayer */
static const mote__hc *hc_of(const mote__net *net, size_t layer, mote__sublayer sub)
{
    const mote__layer_weights *L = &net->weights.layers[layer];
    return sub == MOTE_SUB_ATTENTION ? &L->hc_attn : &L->hc_ffn;
}

static void mixes_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct mixes *m = ctx;
    mote__cpu_pass *p = m->p;
    const mote__config *c = &p->net->config;
    size_t n = c->hc_mult, width = n * c->hidden_size, cols = (2 + n) * n;
    const float *base = m->hc->base, *scale = m->hc->scale;
    for (size_t r = begin; r < end; r++) {
        const float *z = p->mix_products + r * cols;
        size_t token = p->batch->rows[r].token;
        float *mix = p->mix + token * n;
        double inv = 1 / sqrt(p->net->kern->mean_square(p->h + token * width, width) +
                              (double)c->rms_norm_eps);
        double comb[MOTE_MAX_HC * MOTE_MAX_HC];
        for (size_t j = 0; j < n; j++) {
            mix[j] = (float)(sigmoid((double)z[j] * inv * (double)scale[0] + (double)base[j]) +
                             (double)c->hc_eps);
            p->post[r * n + j] = (float)(2 * sigmoid((double)z[n + j] * inv * (double)scale[1] +
                                                     (double)base[n + j]));
        }
        for (size_t j = 0; j < n * n; j++)
            comb[j] = (double)z[2 * n + j] * inv * (double)scale[2] + (double)base[2 * n + j];
        sinkhorn(comb, n, c->hc_sinkhorn_iters, (double)c->hc_eps);
        for (size_t j = 0; j < n * n; j++)
            p->comb[r * n * n + j] = (float)comb[j];
    }
}

/* mix is overwritten: this sublayer's input was collapsed with the old one before. */
int mote__cpu_mixes(mote__backend_pass *base, size_t layer, mote__sublayer sub)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__config *c = &p->net->config;
    size_t width = c->hc_mult * c->hidden_size, cols = (2 + c->hc_mult) * c->hc_mult;
    struct mixes m = { p, hc_of(p->net, layer, sub) };
    mote__tile t = { 0 };
    for (; t.first < p->batch->n_rows; t.first += t.n) {
        t = mote__cpu_tile(p, t.first);
        mote__linear_job job = { .w = &m.hc->fn,
                                 .x = p->h,
                                 .ldx = width,
                                 .n_rows = t.n,
                                 .rows = p->batch->row_token + t.first,
                                 .y = p->mix_products + t.first * cols,
                                 .ldy = cols };
        int rc = mote__cpu_linear(p, &job, 1);
        if (rc)
            return rc;
    }
    mote__threads_for(p->net->threads, p->batch->n_rows, 4, mixes_rows, &m);
    return 0;
}

_Static_assert((int)MOTE_MAX_HC <= (int)MOTE_MAX_COPIES, "kernels have room for all copies");
struct collapse {
    mote__cpu_pass *p;
    const uint32_t *rows; /* NULL: all in order */
    const float *norm;
};

static void collapse_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct collapse *k = ctx;
    mote__cpu_pass *p = k->p;
    const mote__config *c = &p->net->config;
    size_t n = c->hc_mult, d = c->hidden_size;
    for (size_t i = begin; i < end; i++) {
        size_t token = p->batch->row_token[k->rows ? k->rows[i] : i];
        float *x = p->x + i * d;
        p->net->kern->collapse(x, p->h + token * n * d, p->mix + token * n, n, d);
        mote__act(p->net, x, d);
        p->net->kern->rmsnorm(x, x, k->norm, d, c->rms_norm_eps);
        mote__act(p->net, x, d);
    }
}

void mote__cpu_collapse_rows(mote__cpu_pass *p, const uint32_t *rows, size_t n, const float *norm)
{
    struct collapse k = { p, rows, norm };
    mote__threads_for(p->net->threads, n, 8, collapse_rows, &k);
}

int mote__cpu_collapse(mote__backend_pass *base, size_t layer, mote__sublayer sub)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__config *c = &p->net->config;
    const mote__layer_weights *L = &p->net->weights.layers[layer];
    int dense = p->net->plan[layer].role == MOTE_ROLE_DENSE;
    mote__cpu_collapse_rows(p, NULL, p->batch->n_rows,
                            sub == MOTE_SUB_ATTENTION ? L->attn_norm : L->ffn_norm);
    if (dense)
        return 0;
    if (sub == MOTE_SUB_EXPERTS)
        mote__cpu_trace_tokens(p, layer, "attn_pre_mix", p->mix, c->hc_mult);
    mote__cpu_trace(p, layer, sub == MOTE_SUB_ATTENTION ? "attn_in" : "ffn_in", p->x,
                    c->hidden_size);
    return 0;
}

static void expand_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    mote__cpu_pass *p = ctx;
    const mote__config *c = &p->net->config;
    size_t n = c->hc_mult, d = c->hidden_size;
    for (size_t r = begin; r < end; r++) {
        float *h = p->h + p->batch->rows[r].token * n * d;
        p->net->kern->expand(h, p->y + r * d, p->post + r * n, p->comb + r * n * n, n, d);
        mote__act(p->net, h, n * d);
    }
}

int mote__cpu_expand(mote__backend_pass *base, size_t layer, mote__sublayer sub)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__config *c = &p->net->config;
    mote__threads_for(p->net->threads, p->batch->n_rows, 4, expand_rows, p);
    if (sub == MOTE_SUB_EXPERTS) {
        mote__cpu_trace_tokens(p, layer, "pre_mix", p->mix, c->hc_mult);
        mote__cpu_trace_tokens(p, layer, "out", p->h, c->hc_mult * c->hidden_size);
    }
    return 0;
}
