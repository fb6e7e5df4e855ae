#include "model/layer_plan.h"

static int find(const size_t *list, size_t n, size_t value)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == value)
            return (int)i;
    return -1;
}

void mote__plan_init(mote__layer_plan *plan, const mote__config *c)
{
    for (size_t l = 0; l < c->n_layers; l++) {
        mote__layer_plan *p = &plan[l];
        *p = (mote__layer_plan){ .ratio = c->compress_ratios[l],
                                 .source = -1,
                                 .decoder = l >= c->decoder_start,
                                 .n_experts = c->n_routed_experts,
                                 .n_per_token = c->n_experts_per_token,
                                 .score_func = c->score_func };
        p->engram = find(c->engram_layers, c->n_engram_layers, l);
        if (c->arch == MOTE_ARCH_DENSE) {
            p->role = MOTE_ROLE_DENSE;
            p->source = (int)l;
            continue;
        }
        if (p->ratio == 0)
            continue;
        p->source = (int)c->kv_source_of[l];
        int selects = find(c->index_sources, c->n_index_sources, l) >= 0;
        p->role = find(c->kv_sources, c->n_kv_sources, l) >= 0 ? MOTE_ROLE_FULL
                  : selects                                    ? MOTE_ROLE_REINDEX
                                                               : MOTE_ROLE_REUSE;
        if (selects && c->candidate_source >= 0 && l >= (size_t)c->candidate_source)
            p->candidates = l == (size_t)c->candidate_source ? MOTE_CAND_MAKE : MOTE_CAND_USE;
    }
}

int mote__plan_cuts(const mote__layer_plan *plan, size_t n_layers, size_t layer)
{
    if (plan[layer].role != MOTE_ROLE_FULL && plan[layer].role != MOTE_ROLE_DENSE)
        return 0;
    for (size_t l = layer; l < n_layers; l++) {
        if (plan[l].role == MOTE_ROLE_WINDOW)
            continue;
        size_t made = layer;
        while (made <= l &&
               !(plan[made].source == plan[l].source &&
                 (plan[made].role == MOTE_ROLE_FULL || plan[made].role == MOTE_ROLE_DENSE)))
            made++;
        if (made > l)
            return 0;
    }
    return 1;
}

const char *mote__role_name(mote__role role)
{
    static const char *const names[] = { "window", "full", "reindex", "reuse", "dense" };
    return names[role];
}
