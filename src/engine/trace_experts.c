/* Recording of routing: the file is model/route_log.h's. */
#include "engine/engine.h"
#include "model/catalog.h"

/* The first layer with routed experts: they are alike in all. */
static const mote__expert *an_expert(const mote__net *net)
{
    for (size_t i = 0; i < net->config.n_layers && net->weights.layers; i++)
        if (net->plan[i].n_experts && net->weights.layers[i].experts)
            return &net->weights.layers[i].experts[0];
    return NULL;
}

int mote_model_trace_experts(mote_model *m, const char *path, mote_err *err)
{
    const mote__config *c = &m->net.config;
    mote__route_log *old = m->net.route_log;
    m->net.route_log = NULL;
    int rc = mote__route_log_close(old, err);
    if (rc || !path)
        return rc;
    const mote__expert *x = an_expert(&m->net);
    if (!x)
        return mote__fail(err, MOTE_EUNSUPPORTED, "%s: the model has no routed experts", m->path);
    return mote__route_log_open(&m->net.route_log, path, c->n_layers, c->n_routed_experts,
                                c->n_experts_per_token, mote__expert_bytes(x), err);
}
