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
    mote__pass *p;
    const mote__hc *hc;
};

static void mixes_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct mixes *m = ctx;
    mote__pass *p = m->p;
    const mote__config *c = &p->net->config;
    size_t n = c->hc_mult, width = n * c->hidden_size, cols = (2 + n) * n;
    const float *base = m->hc->base, *scale = m->hc->scale;
    for (size_t r = begin; r < end; r++) {
        const float *z = p->xq + r * cols; /* raw products, see mote__hyper_mixes */
        double inv = 1 / sqrt(p->net->kern->mean_square(p->h + p->rows[r].slot * width, width) +
                              (double)c->rms_norm_eps);
        double comb[MOTE_MAX_HC * MOTE_MAX_HC];
        for (size_t j = 0; j < n; j++) {
            p->next[r * n + j] = (float)(sigmoid((double)z[j] * inv * (double)scale[0] +
                                                 (double)base[j]) +
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

int mote__hyper_mixes(mote__pass *p, const mote__hc *hc)
{
    const mote__config *c = &p->net->config;
    size_t width = c->hc_mult * c->hidden_size, cols = (2 + c->hc_mult) * c->hc_mult;
    mote__linear_job job = { .w = &hc->fn,
                             .x = p->h,
                             .ldx = width,
                             .n_rows = p->n_rows,
                             .rows = p->slots,
                             .y = p->xq,
                             .ldy = cols };
    int rc = mote__pass_linear(p, &job, 1);
    if (rc)
        return rc;
    struct mixes m = { p, hc };
    mote__pool_for(p->net->pool, p->n_rows, 4, mixes_rows, &m);
    return 0;
}

_Static_assert((int)MOTE_MAX_HC <= (int)MOTE_MAX_COPIES, "kernels have room for all copies");
struct collapse {
    mote__pass *p;
    const float *mix, *norm;
    int by_slot;
};

static void collapse_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct collapse *k = ctx;
    mote__pass *p = k->p;
    const mote__config *c = &p->net->config;
    size_t n = c->hc_mult, d = c->hidden_size;
    for (size_t r = begin; r < end; r++) {
        const float *h = p->h + p->rows[r].slot * n * d,
                    *mix = k->mix + (k->by_slot ? p->rows[r].slot : r) * n;
        float *x = p->x + r * d;
        p->net->kern->collapse(x, h, mix, n, d);
        mote__act(p->net, x, d);
        p->net->kern->rmsnorm(x, x, k->norm, d, c->rms_norm_eps);
        mote__act(p->net, x, d);
    }
}

void mote__hyper_collapse(mote__pass *p, const float *mix, int mix_by_slot, const float *norm)
{
    struct collapse k = { p, mix, norm, mix_by_slot };
    mote__pool_for(p->net->pool, p->n_rows, 8, collapse_rows, &k);
}

static void expand_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    mote__pass *p = ctx;
    const mote__config *c = &p->net->config;
    size_t n = c->hc_mult, d = c->hidden_size;
    for (size_t r = begin; r < end; r++) {
        float *h = p->h + p->rows[r].slot * n * d;
        p->net->kern->expand(h, p->y + r * d, p->post + r * n, p->comb + r * n * n, n, d);
        mote__act(p->net, h, n * d);
    }
}

void mote__hyper_expand(mote__pass *p)
{
    mote__pool_for(p->net->pool, p->n_rows, 4, expand_rows, p);
}
