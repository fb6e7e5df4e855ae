/* Guesses for reads: the next layer's router over this layer's input, brought from the one norm's
 * weights to the other's. The residual stream changes little from layer to layer, so that the
 * routers mostly agree. */
#include <math.h>

#include "model/cpu/pass.h"

enum { ROWS = 8, IDS = 64 }; /* many rows want most experts anyway */

/* What the router would choose by, without the row's softmax, which keeps the order. */
static void to_choices(float *z, const mote__layer_plan *plan, const float *bias)
{
    for (size_t e = 0; e < plan->n_experts; e++) {
        if (plan->score_func != MOTE_SCORE_SOFTMAX)
            z[e] = (float)mote__router_score(plan->score_func, (double)z[e]);
        z[e] += bias[e];
    }
}

/* Takes the greatest out; n: none is above -inf. */
static size_t take_greatest(float *z, size_t n)
{
    size_t best = n;
    for (size_t e = 0; e < n; e++)
        if (z[e] > (best < n ? z[best] : -INFINITY))
            best = e;
    if (best < n)
        z[best] = -INFINITY;
    return best;
}

int mote__cpu_look_ahead(mote__cpu_pass *p, size_t layer, size_t n_rows)
{
    const mote__net *net = p->net;
    mote__experts *experts = net->experts;
    size_t next = layer + 1, d = net->config.hidden_size;
    if (!experts->ops->guess || n_rows > ROWS || next >= net->config.n_layers ||
        !net->plan[next].n_experts)
        return 0;
    const mote__layer_plan *plan = &net->plan[next];
    const mote__layer_weights *L = &net->weights.layers[layer], *N = L + 1;
    size_t n = plan->n_experts, n_ids = 0;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < d; i++)
            p->rounded[r * d + i] = L->ffn_norm[i] != 0
                                        ? p->x[r * d + i] / L->ffn_norm[i] * N->ffn_norm[i]
                                        : 0;
    mote__linear_job job = {
        .w = &N->gate, .x = p->rounded, .ldx = d, .n_rows = n_rows, .y = p->router, .ldy = n
    };
    int rc = mote__cpu_linear(p, &job, 1);
    if (rc)
        return rc;
    uint32_t ids[IDS];
    for (size_t r = 0; r < n_rows; r++)
        to_choices(p->router + r * n, plan, N->gate_bias);
    for (size_t i = 0; i < plan->n_per_token; i++)
        for (size_t r = 0; r < n_rows && n_ids < IDS; r++) {
            size_t e = take_greatest(p->router + r * n, n);
            if (e < n)
                ids[n_ids++] = (uint32_t)e;
        }
    experts->ops->guess(experts, next, ids, n_ids);
    return 0;
}
