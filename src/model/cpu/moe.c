/* Mixture of experts: the router picks, rows are gathered by expert, three linears per expert run
 * for all its rows at once, and each row adds its experts' outputs in ascending expert order, the
 * shared expert last. */
#include <math.h>
#include <string.h>

#include "model/cpu/pass.h"

struct moe {
    mote__pass *p;
    size_t layer;
    size_t n_pairs;
    const float *pair_weight;
};

static double score(mote__score_func f, double z)
{
    double e = exp(-fabs(z));
    if (f == MOTE_SCORE_SIGMOID)
        return z >= 0 ? 1 / (1 + e) : e / (1 + e);
    return sqrt(fmax(z, 0) + log1p(e)); /* sqrt(softplus(z)) */
}

static void route_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct moe *m = ctx;
    mote__pass *p = m->p;
    const mote__config *c = &p->net->config;
    const mote__layer_weights *L = &p->net->weights.layers[m->layer];
    size_t n = c->n_routed_experts, k = c->n_experts_per_token;
    for (size_t r = begin; r < end; r++) {
        float *s = p->router + r * n;
        int32_t *id = p->expert_id + r * k;
        float *weight = p->expert_weight + r * k;
        if (c->score_func == MOTE_SCORE_SOFTMAX) {
            double top = (double)s[0], sum = 0;
            for (size_t e = 1; e < n; e++)
                top = fmax(top, (double)s[e]);
            for (size_t e = 0; e < n; e++)
                sum += exp((double)s[e] - top);
            for (size_t e = 0; e < n; e++)
                s[e] = (float)(exp((double)s[e] - top) / sum);
        } else
            for (size_t e = 0; e < n; e++)
                s[e] = (float)score(c->score_func, (double)s[e]);
        /* the bias picks, the raw score weighs; ties: the smaller expert */
        for (size_t i = 0; i < k; i++) {
            int32_t best = -1;
            float best_score = 0;
            for (size_t e = 0; e < n; e++) {
                float v = s[e] + L->gate_bias[e];
                int taken = 0;
                for (size_t j = 0; j < i; j++)
                    taken |= id[j] == (int32_t)e;
                if (!taken && (best < 0 || v > best_score)) {
                    best = (int32_t)e;
                    best_score = v;
                }
            }
            id[i] = best;
            weight[i] = s[best];
        }
        double sum = 1e-20;
        for (size_t i = 0; i < k; i++)
            sum += (double)weight[i];
        for (size_t i = 0; i < k; i++) {
            double w = (double)weight[i];
            if (c->norm_topk_prob && k > 1)
                w /= sum;
            weight[i] = (float)(w * (double)c->routed_scaling_factor);
        }
    }
}

static void activate_pairs(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct moe *m = ctx;
    mote__pass *p = m->p;
    const mote__config *c = &p->net->config;
    size_t inter = c->moe_intermediate_size;
    for (size_t i = begin; i < end; i++) {
        float *gate = p->pair_gate + i * inter, *up = p->pair_up + i * inter;
        mote__act(p->net, gate, inter);
        mote__act(p->net, up, inter);
        p->net->kern->swiglu(gate, gate, up, inter, c->swiglu_limit, m->pair_weight[i]);
        mote__act(p->net, gate, inter);
    }
}

static void add_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct moe *m = ctx;
    mote__pass *p = m->p;
    const mote__config *c = &p->net->config;
    size_t d = c->hidden_size, k = c->n_experts_per_token;
    for (size_t r = begin; r < end; r++) {
        float *y = p->y + r * d;
        memset(y, 0, d * sizeof *y);
        /* pair numbers of a row ascend with the expert; the shared one is last */
        for (size_t i = 0; i <= k; i++) {
            float *out = p->pair_out + (size_t)p->pair_row[r * (k + 1) + i] * d;
            mote__act(p->net, out, d);
            for (size_t j = 0; j < d; j++)
                y[j] += out[j];
        }
        mote__act(p->net, y, d);
    }
}

static void trace_router(mote__pass *p, size_t layer)
{
    const mote__trace *t = p->net->trace;
    if (t && t->i32)
        t->i32(t->ctx, layer, "router_ids", p->expert_id, p->n_rows,
               p->net->config.n_experts_per_token);
    if (t && t->f32)
        t->f32(t->ctx, layer, "router_weights", p->expert_weight, p->n_rows,
               p->net->config.n_experts_per_token);
}

static int any_scaled(const mote__layer_weights *L, size_t n_experts)
{
    int any = L->shared.w1.kind >= MOTE_W_FP8 || L->shared.w3.kind >= MOTE_W_FP8;
    for (size_t e = 0; e < n_experts && !any; e++)
        any = L->experts[e].w1.kind >= MOTE_W_FP8 || L->experts[e].w3.kind >= MOTE_W_FP8;
    return any;
}

int mote__moe(mote__pass *p, size_t layer)
{
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = &net->weights.layers[layer];
    size_t d = c->hidden_size, inter = c->moe_intermediate_size, k = c->n_experts_per_token,
           n = p->n_rows, n_experts = c->n_routed_experts;
    struct moe m = { .p = p, .layer = layer };
    int rc;
    if (n_experts) { /* a dense layer is its shared expert */
        mote__linear_job job = {
            .w = &L->gate, .x = p->x, .ldx = d, .n_rows = n, .y = p->router, .ldy = n_experts
        };
        if ((rc = mote__pass_linear(p, &job, 1)))
            return rc;
        mote__pool_for(net->pool, n, 4, route_rows, &m);
        trace_router(p, layer);
    }

    /* pairs sorted by expert (counting sort keeps rows in order), the shared expert's rows behind
     * them */
    if (mote__buf_reserve(&p->work, (2 * n * (k + 1) + 2 * (n_experts + 1)) * 4))
        return MOTE_ENOMEM;
    /* start[e]: first pair of expert e */
    uint32_t *row_of = p->work.data, *start = row_of + n * (k + 1);
    memset(start, 0, (n_experts + 1) * sizeof *start);
    float *weight_of = (float *)(void *)(start + 2 * (n_experts + 1));
    uint32_t *fill = start + n_experts + 1;
    for (size_t i = 0; i < n * k; i++)
        start[p->expert_id[i] + 1]++;
    for (size_t e = 0; e < n_experts; e++)
        start[e + 1] += start[e];
    memcpy(fill, start, n_experts * sizeof *fill);
    for (size_t r = 0; r < n; r++) {
        for (size_t i = 0; i < k; i++) {
            uint32_t pair = fill[p->expert_id[r * k + i]]++;
            row_of[pair] = (uint32_t)r;
            weight_of[pair] = p->expert_weight[r * k + i];
            /* insert into the row's list, ascending */
            uint32_t *list = p->pair_row + r * (k + 1);
            size_t at = i;
            for (; at > 0 && list[at - 1] > pair; at--)
                list[at] = list[at - 1];
            list[at] = pair;
        }
        p->pair_row[r * (k + 1) + k] = (uint32_t)(n * k + r);
        weight_of[n * k + r] = 1;
    }
    m.n_pairs = n * (k + 1);
    m.pair_weight = weight_of;

    size_t n_jobs = 0;
    /* one rounded copy serves those that want it: widths of scaled weights are whole groups */
    const float *xq = p->x;
    if (net->published && any_scaled(L, n_experts))
        xq = mote__linear_input(net, &(mote__mat){ .kind = MOTE_W_FP8, .n_in = d }, p->x, n, p->xq);
    for (size_t e = 0; e <= n_experts; e++) {
        int shared = e == n_experts;
        const mote__expert *x = shared ? &L->shared : &L->experts[e];
        size_t first = shared ? n * k : start[e], rows = shared ? n : start[e + 1] - start[e];
        if (rows == 0)
            continue;
        const mote__mat *w[2] = { &x->w1, &x->w3 };
        for (int i = 0; i < 2; i++) {
            int scaled = w[i]->kind >= MOTE_W_FP8;
            p->jobs[n_jobs++] = (mote__linear_job){ .w = w[i],
                                                    .x = scaled ? xq : p->x,
                                                    .ldx = d,
                                                    .n_rows = rows,
                                                    .rows = shared ? NULL : row_of + first,
                                                    .y = (i ? p->pair_up : p->pair_gate) +
                                                         first * inter,
                                                    .ldy = inter };
        }
    }
    if (!(rc = mote__pass_linear(p, p->jobs, n_jobs))) {
        mote__pool_for(net->pool, m.n_pairs, 2, activate_pairs, &m);
        n_jobs = 0;
        for (size_t e = 0; e <= n_experts; e++) {
            int shared = e == n_experts;
            const mote__expert *x = shared ? &L->shared : &L->experts[e];
            size_t first = shared ? n * k : start[e], rows = shared ? n : start[e + 1] - start[e];
            if (rows == 0)
                continue;
            float *in = p->pair_gate + first * inter;
            p->jobs[n_jobs++] = (mote__linear_job){
                .w = &x->w2,
                .ldx = inter,
                .n_rows = rows,
                .y = p->pair_out + first * d,
                .ldy = d,
                .x = mote__linear_input(net, &x->w2, in, rows, p->pair_up + first * inter)
            };
        }
        rc = mote__pass_linear(p, p->jobs, n_jobs);
    }
    if (!rc)
        mote__pool_for(net->pool, n, 2, add_rows, &m);
    return rc;
}
