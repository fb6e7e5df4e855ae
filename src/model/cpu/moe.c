/* Mixture of experts: the router picks, rows are gathered by expert, three linears per expert run
 * for all its rows at once, and each row adds its experts' outputs in ascending expert order, the
 * shared expert last. Experts are computed as they become ready, all that are at once in one list
 * of jobs: a pair writes its own rows only, so the order changes nothing. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/cpu/moe.h"

/* ---- the router ---- */

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
    mote__cpu_pass *p = m->p;
    const mote__config *c = &p->net->config;
    size_t n = m->plan->n_experts, k = m->plan->n_per_token;
    for (size_t r = begin; r < end; r++) {
        float *s = p->router + r * n;
        int32_t *id = p->expert_id + r * k;
        float *weight = p->expert_weight + r * k;
        if (m->plan->score_func == MOTE_SCORE_SOFTMAX) {
            double top = (double)s[0], sum = 0;
            for (size_t e = 1; e < n; e++)
                top = fmax(top, (double)s[e]);
            for (size_t e = 0; e < n; e++)
                sum += exp((double)s[e] - top);
            for (size_t e = 0; e < n; e++)
                s[e] = (float)(exp((double)s[e] - top) / sum);
        } else
            for (size_t e = 0; e < n; e++)
                s[e] = (float)score(m->plan->score_func, (double)s[e]);
        /* the bias picks, the raw score weighs; ties: the smaller expert */
        for (size_t i = 0; i < k; i++) {
            int32_t best = -1;
            float best_score = 0;
            for (size_t e = 0; e < n; e++) {
                float v = s[e] + m->L->gate_bias[e];
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

static void trace_router(const struct moe *m)
{
    const mote__cpu_pass *p = m->p;
    const mote__trace *t = p->net->trace;
    if (t && t->i32)
        t->i32(t->ctx, m->layer, "router_ids", p->expert_id, m->n_rows, m->plan->n_per_token);
    mote__cpu_trace(p, m->layer, "router_weights", p->expert_weight, m->plan->n_per_token);
}

static int route(struct moe *m)
{
    mote__cpu_pass *p = m->p;
    size_t d = p->net->config.hidden_size;
    mote__tile t = { 0 };
    for (; t.first < m->n_rows; t.first += t.n) {
        t = mote__cpu_tile(p, t.first);
        mote__linear_job job = { .w = &m->L->gate,
                                 .x = p->x + t.first * d,
                                 .ldx = d,
                                 .n_rows = t.n,
                                 .y = p->router + t.first * m->plan->n_experts,
                                 .ldy = m->plan->n_experts };
        int rc = mote__cpu_linear(p, &job, 1);
        if (rc)
            return rc;
    }
    mote__threads_for(p->net->threads, m->n_rows, 4, route_rows, m);
    trace_router(m);
    if (p->net->route_log)
        mote__route_log_rows(p->net->route_log, p->batch, m->layer, p->expert_id);
    return 0;
}

/* ---- pairs ---- */

static int reserve(struct moe *m)
{
    size_t n_experts = m->plan->n_experts, pairs = m->n_rows * (m->plan->n_per_token + 1);
    mote__buf *b = &m->p->pairs;
    if (mote__buf_reserve(b, (n_experts + 1) * sizeof *m->ready +
                                 (3 * pairs + 3 * n_experts + 1) * sizeof(uint32_t)))
        return MOTE_ENOMEM;
    m->ready = b->data;
    m->row_of = (uint32_t *)(void *)(m->ready + n_experts + 1);
    m->batch = m->row_of + pairs;
    m->first_pair = m->batch + pairs;
    m->fill = m->first_pair + n_experts + 1;
    m->wanted = m->fill + n_experts;
    m->weight_of = (float *)(void *)(m->wanted + n_experts);
    return 0;
}

/* Pairs sorted by expert: a counting sort, which keeps rows in order. */
static void sort_pairs(struct moe *m)
{
    mote__cpu_pass *p = m->p;
    size_t n = m->n_rows, k = m->plan->n_per_token, n_experts = m->plan->n_experts;
    memset(m->first_pair, 0, (n_experts + 1) * sizeof *m->first_pair);
    for (size_t i = 0; i < n * k; i++)
        m->first_pair[p->expert_id[i] + 1]++;
    for (size_t e = 0; e < n_experts; e++) {
        if (m->first_pair[e + 1])
            m->wanted[m->n_wanted++] = (uint32_t)e;
        m->first_pair[e + 1] += m->first_pair[e];
    }
    memcpy(m->fill, m->first_pair, n_experts * sizeof *m->fill);
    for (size_t r = 0; r < n; r++) {
        uint32_t *list = p->pair_of_row + r * (k + 1);
        for (size_t i = 0; i < k; i++) {
            uint32_t pair = m->fill[p->expert_id[r * k + i]]++;
            m->row_of[pair] = (uint32_t)r;
            m->weight_of[pair] = p->expert_weight[r * k + i];
            /* insert into the row's list, ascending */
            size_t at = i;
            for (; at > 0 && list[at - 1] > pair; at--)
                list[at] = list[at - 1];
            list[at] = pair;
        }
        list[k] = (uint32_t)(n * k + r);
        m->weight_of[n * k + r] = 1;
    }
}

/* Pairs of a ready expert, or of the shared one. */
static size_t pairs_of(const struct moe *m, const mote__expert *x, uint32_t id, size_t *first)
{
    int shared = x == &m->L->shared;
    *first = shared ? m->n_rows * m->plan->n_per_token : m->first_pair[id];
    return shared ? m->n_rows : m->first_pair[id + 1] - *first;
}

/* ---- experts ---- */

void mote__moe_activate(mote__cpu_pass *p, size_t pair, float weight)
{
    size_t inter = p->net->config.moe_intermediate_size;
    float *gate = p->pair_gate + pair * inter, *up = p->pair_up + pair * inter;
    mote__act(p->net, gate, inter);
    mote__act(p->net, up, inter);
    p->net->kern->swiglu(gate, gate, up, inter, p->net->config.swiglu_limit, weight);
    mote__act(p->net, gate, inter);
}

static void activate_pairs(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct moe *m = ctx;
    mote__cpu_pass *p = m->p;
    for (size_t i = begin; i < end; i++)
        mote__moe_activate(p, m->batch[i], m->weight_of[m->batch[i]]);
}

/* x as `w` wants it: one rounded copy serves all, as widths of scaled weights are whole groups. */
static const float *input_of(struct moe *m, const mote__mat *w)
{
    mote__cpu_pass *p = m->p;
    if (w->kind < MOTE_W_FP8)
        return p->x;
    if (!m->rounded)
        m->rounded = mote__linear_input(p->net, w, p->x, m->n_rows, p->rounded);
    return m->rounded;
}

/* All pairs of the n ready experts, in two lists of jobs. */
static int compute(struct moe *m, size_t n_ready)
{
    mote__cpu_pass *p = m->p;
    size_t d = p->net->config.hidden_size, inter = p->net->config.moe_intermediate_size, n_jobs = 0;
    m->n_batch = 0;
    for (size_t i = 0; i < n_ready; i++) {
        const mote__expert *x = m->ready[i].weights;
        size_t first, rows = pairs_of(m, x, m->ready[i].id, &first);
        const mote__mat *w[2] = { &x->w1, &x->w3 };
        for (int up = 0; up < 2; up++)
            p->jobs[n_jobs++] = (mote__linear_job){
                .w = w[up],
                .x = input_of(m, w[up]),
                .ldx = d,
                .n_rows = rows,
                .rows = x == &m->L->shared ? NULL : m->row_of + first,
                .y = (up ? p->pair_up : p->pair_gate) + first * inter,
                .ldy = inter,
            };
        for (size_t k = 0; k < rows; k++)
            m->batch[m->n_batch++] = (uint32_t)(first + k);
    }
    int rc = mote__cpu_linear(p, p->jobs, n_jobs);
    if (rc)
        return rc;
    mote__threads_for(p->net->threads, m->n_batch, 2, activate_pairs, m);
    for (size_t i = 0; i < n_ready; i++) {
        const mote__expert *x = m->ready[i].weights;
        size_t first, rows = pairs_of(m, x, m->ready[i].id, &first);
        const float *in = mote__linear_input(p->net, &x->w2, p->pair_gate + first * inter, rows,
                                             p->pair_up + first * inter);
        p->jobs[i] = (mote__linear_job){ .w = &x->w2,
                                         .x = in,
                                         .ldx = inter,
                                         .n_rows = rows,
                                         .y = p->pair_out + first * d,
                                         .ldy = d };
    }
    return mote__cpu_linear(p, p->jobs, n_ready);
}

/* Every wanted expert as it comes; the shared one goes with the first of them. */
static int run_experts(struct moe *m)
{
    mote__experts *e = m->p->net->experts;
    size_t left = m->n_wanted;
    int rc = left ? e->ops->want(e, m->layer, m->wanted, left, 0) : 0;
    int shared = 1;
    while (!rc && (left || shared)) {
        long n = left ? e->ops->next(e, m->ready, left) : 0;
        if (n < 0) {
            rc = (int)n;
            break;
        }
        size_t n_ready = (size_t)n;
        assert((n_ready || !left) && n_ready <= left);
        if (shared)
            m->ready[n_ready] = (mote__ready_expert){ 0, &m->L->shared };
        rc = compute(m, n_ready + (size_t)shared);
        e->ops->release(e, m->ready, n_ready);
        left -= n_ready;
        shared = 0;
    }
    if (rc && m->n_wanted)
        e->ops->drop(e);
    return rc;
}

static void add_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct moe *m = ctx;
    mote__cpu_pass *p = m->p;
    size_t d = p->net->config.hidden_size, k = m->plan->n_per_token;
    for (size_t r = begin; r < end; r++) {
        float *y = p->y + r * d;
        memset(y, 0, d * sizeof *y);
        /* pair numbers of a row ascend with the expert; the shared one is last */
        for (size_t i = 0; i <= k; i++) {
            float *out = p->pair_out + (size_t)p->pair_of_row[r * (k + 1) + i] * d;
            mote__act(p->net, out, d);
            for (size_t j = 0; j < d; j++)
                y[j] += out[j];
        }
        mote__act(p->net, y, d);
    }
}

int mote__cpu_moe(mote__backend_pass *base, size_t layer)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    struct moe m = { .p = p,
                     .L = &p->net->weights.layers[layer],
                     .plan = &p->net->plan[layer],
                     .layer = layer,
                     .n_rows = p->batch->n_rows };
    int rc = 0;
    if (m.plan->n_experts) /* a dense layer is its shared expert */
        rc = route(&m);
    if (rc || (rc = reserve(&m)))
        return rc;
    sort_pairs(&m);
    if (m.n_rows > p->tile_room)
        return mote__moe_wide(&m);
    if ((rc = run_experts(&m)))
        return rc;
    mote__threads_for(p->net->threads, m.n_rows, 2, add_rows, &m);
    return 0;
}
