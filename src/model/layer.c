#include "model/layer.h"

#include <assert.h>

void mote__net_use(mote__net *net, const mote__backend_ops *backend)
{
    for (size_t l = 0; l < net->config.n_layers; l++)
        net->plan[l].backend = backend;
    mote__resident_experts_init(&net->resident, &net->weights);
    net->experts = &net->resident.base;
    net->kv_memory = mote__kv_host_memory();
    net->tile_rows = MOTE_TILE_ROWS;
}

void mote__pass_init(mote__pass *p, mote__net *net)
{
    *p = (mote__pass){ .net = net };
    mote__batch_init(&p->batch, net->meter);
    mote__buf_init(&p->logits, net->meter, MOTE_MEM_SCRATCH);
}

void mote__pass_shrink(mote__pass *p)
{
    for (int i = 0; i < MOTE_MAX_BACKENDS && p->of[i]; i++)
        p->of[i]->ops->shrink(p->of[i]);
    mote__batch_shrink(&p->batch);
    mote__buf_deinit(&p->logits);
}

void mote__pass_deinit(mote__pass *p)
{
    mote__pass_shrink(p);
    for (int i = 0; i < MOTE_MAX_BACKENDS && p->of[i]; i++)
        p->of[i]->ops->pass_destroy(p->of[i]);
    *p = (mote__pass){ .net = p->net };
}

size_t mote__pass_bytes(const mote__net *net, size_t n_tokens)
{
    size_t most = 0;
    for (size_t l = 0; l < net->config.n_layers; l++) {
        const mote__backend_ops *ops = net->plan[l].backend;
        if (l && ops == net->plan[l - 1].backend)
            continue;
        size_t n = ops->scratch_bytes(net, n_tokens);
        most = n > most ? n : most;
    }
    return most;
}

/* ---- who runs a layer ---- */

/* The pass object of the layer's backend; NULL: there is none yet. */
static mote__backend_pass **place_of(mote__pass *p, size_t layer)
{
    int i = 0;
    while (p->of[i] && p->of[i]->ops != p->net->plan[layer].backend)
        i++;
    assert(i < MOTE_MAX_BACKENDS);
    return &p->of[i];
}

int mote__pass_begin(mote__pass *p, mote__extent *extents, size_t n_extents)
{
    mote__net *net = p->net;
    p->holds = NULL;
    net->fault = (mote_err){ 0 };
    if (mote__batch_begin(&p->batch, &net->config, extents, n_extents))
        return MOTE_ENOMEM;
    for (size_t l = 0; l < net->config.n_layers; l++) {
        if (l && net->plan[l].backend == net->plan[l - 1].backend)
            continue;
        mote__backend_pass **at = place_of(p, l);
        if (!*at && !(*at = net->plan[l].backend->pass_create(p->net, &p->batch)))
            return MOTE_ENOMEM;
        int rc = (*at)->ops->begin(*at);
        if (rc)
            return rc;
    }
    return 0;
}

/* The carry comes to the backend of `layer`. */
static int move_to(mote__pass *p, size_t layer)
{
    mote__backend_pass *to = *place_of(p, layer), *from = p->holds;
    if (from == to)
        return 0;
    mote__carry view;
    int rc;
    if ((rc = from->ops->sync(from)) || (rc = from->ops->carry(from, &view)) ||
        (rc = to->ops->take(to, &view)))
        return rc;
    p->holds = to;
    return 0;
}

int mote__pass_carry(mote__pass *p, mote__carry *view)
{
    return p->holds->ops->carry(p->holds, view);
}

int mote__pass_take(mote__pass *p, size_t layer, const mote__carry *carry)
{
    p->holds = *place_of(p, layer);
    return p->holds->ops->take(p->holds, carry);
}

/* ---- layers ---- */

static int attention(mote__pass *p, size_t layer)
{
    const mote__layer_plan *plan = &p->net->plan[layer];
    mote__backend_pass *b = p->holds;
    const mote__backend_ops *ops = b->ops;
    int selects = plan->role == MOTE_ROLE_FULL || plan->role == MOTE_ROLE_REINDEX, rc = 0;
    size_t n = p->batch.n_rows;
    /* with no rows left the windows still move on */
    mote__tile t = { 0 };
    do {
        t.n = n - t.first < p->net->tile_rows ? n - t.first : p->net->tile_rows;
        if ((rc = ops->queries(b, layer, t)) || (selects && (rc = ops->select(b, layer, t))) ||
            (rc = ops->attend(b, layer, t)))
            return rc;
        t.first += t.n;
    } while (t.first < n);
    return 0;
}

static int v41_layer(mote__pass *p, size_t layer, size_t top)
{
    const mote__layer_plan *plan = &p->net->plan[layer];
    mote__backend_pass *b = p->holds;
    const mote__backend_ops *ops = b->ops;
    int rc;
    if (plan->engram >= 0 && (rc = ops->engram(b, layer)))
        return rc;
    if ((rc = ops->collapse(b, layer, MOTE_SUB_ATTENTION)))
        return rc;
    /* the decoder's source made its own from the encoder's output: mote__pass_publish_decoder */
    if (plan->role == MOTE_ROLE_FULL && !plan->decoder && (rc = ops->publish(b, layer)))
        return rc;
    mote__batch_mark_windows(&p->batch);
    if ((rc = ops->window(b, layer)))
        return rc;
    if (mote__batch_narrow(&p->batch, layer, top, p->net->config.window) && (rc = ops->narrow(b)))
        return rc;
    if ((rc = ops->mixes(b, layer, MOTE_SUB_ATTENTION)) || (rc = attention(p, layer)))
        return rc;
    if ((rc = ops->expand(b, layer, MOTE_SUB_ATTENTION)) ||
        (rc = ops->collapse(b, layer, MOTE_SUB_EXPERTS)) ||
        (rc = ops->mixes(b, layer, MOTE_SUB_EXPERTS)) || (rc = ops->moe(b, layer)))
        return rc;
    return ops->expand(b, layer, MOTE_SUB_EXPERTS);
}

static int dense_layer(mote__pass *p, size_t layer, size_t top)
{
    (void)top; /* it attends to all that came before: no cone */
    mote__backend_pass *b = p->holds;
    const mote__backend_ops *ops = b->ops;
    int rc;
    if ((rc = ops->collapse(b, layer, MOTE_SUB_ATTENTION)) || (rc = ops->dense_project(b, layer)) ||
        (rc = ops->dense_attend(b, layer)) || (rc = ops->dense_add(b, layer, MOTE_SUB_ATTENTION)) ||
        (rc = ops->collapse(b, layer, MOTE_SUB_EXPERTS)) || (rc = ops->moe(b, layer)))
        return rc;
    return ops->dense_add(b, layer, MOTE_SUB_EXPERTS);
}

static int trace_enter(mote__pass *p, size_t layer)
{
    const mote__trace *t = p->net->trace;
    mote__carry c;
    int rc;
    if (!t || !t->enter)
        return 0;
    if ((rc = p->holds->ops->sync(p->holds)) || (rc = mote__pass_carry(p, &c)))
        return rc;
    t->enter(t->ctx, layer, c.h, c.mix, c.n_tokens);
    return 0;
}

int mote__pass_layers(mote__pass *p, size_t first, size_t last)
{
    const mote__config *c = &p->net->config;
    static int (*const run[])(mote__pass * pass, size_t layer, size_t top) = {
        [MOTE_ROLE_WINDOW] = v41_layer,  [MOTE_ROLE_FULL] = v41_layer,
        [MOTE_ROLE_REINDEX] = v41_layer, [MOTE_ROLE_REUSE] = v41_layer,
        [MOTE_ROLE_DENSE] = dense_layer,
    };
    for (size_t l = first; l < last; l++) {
        int rc;
        if ((rc = move_to(p, l)) || (rc = trace_enter(p, l)) ||
            (rc = run[p->net->plan[l].role](p, l,
                                            l < c->decoder_start ? c->decoder_start : c->n_layers)))
            return rc;
    }
    return p->holds->ops->sync(p->holds);
}

int mote__pass_embed(mote__pass *p)
{
    p->holds = *place_of(p, 0);
    return p->holds->ops->embed(p->holds);
}

int mote__pass_publish_decoder(mote__pass *p)
{
    size_t layer = p->net->config.decoder_start;
    int rc;
    if (layer == p->net->config.n_layers) /* a dense model has no decoder half */
        return 0;
    if ((rc = move_to(p, layer)))
        return rc;
    mote__backend_pass *b = p->holds;
    const mote__backend_ops *ops = b->ops;
    int engram = p->net->plan[layer].engram >= 0;
    /* the decoder adds its lookup itself, for the rows that it runs: h comes back */
    if (engram && ((rc = ops->stash(b)) || (rc = ops->engram(b, layer))))
        return rc;
    if ((rc = ops->collapse(b, layer, MOTE_SUB_ATTENTION)) || (rc = ops->publish(b, layer)))
        return rc;
    if (engram && (rc = ops->unstash(b)))
        return rc;
    return ops->sync(b);
}

int mote__pass_logits(mote__pass *p, const uint32_t *rows, size_t n, float *logits)
{
    int rc;
    if (n == 0)
        return 0;
    if ((rc = move_to(p, p->net->config.n_layers - 1)))
        return rc;
    rc = p->holds->ops->logits(p->holds, rows, n, logits);
    return rc ? rc : p->holds->ops->sync(p->holds);
}
