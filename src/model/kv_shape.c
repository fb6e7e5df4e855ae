#include "model/kv_shape.h"

_Static_assert((int)MOTE_KV_MAX_SOURCES >= (int)MOTE_MAX_SOURCES, "room for every source");
_Static_assert((int)MOTE_KV_MAX_DIM >= (int)MOTE_MAX_HEAD_DIM, "room for every vector");

void mote__kv_shape_of(mote__kv_shape *s, const mote__config *c)
{
    int dense = c->arch == MOTE_ARCH_DENSE;
    *s = (mote__kv_shape){ .dense = dense,
                           .n_layers = c->n_layers,
                           .window = c->window,
                           .main_vector = c->head_dim,
                           .index_vector = dense ? c->head_dim : c->index_head_dim,
                           .n_sources = c->n_kv_sources };
    s->main_dim = dense ? c->n_kv_heads * c->head_dim : c->head_dim;
    s->index_dim = dense ? c->n_kv_heads * c->head_dim : c->index_head_dim;
    for (size_t i = 0; i < c->n_kv_sources; i++) {
        s->source_layer[i] = c->kv_sources[i];
        s->ratio[i] = c->compress_ratios[c->kv_sources[i]];
    }
}
