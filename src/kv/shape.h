/* What the cache knows of a model: numbers alone. Made from a configuration by mote__kv_shape_of
 * (model/kv_shape.h). */
#ifndef MOTE_KV_SHAPE_H
#define MOTE_KV_SHAPE_H

#include <stddef.h>

/* ratios are at most 16, dims of a vector at most MOTE_KV_MAX_DIM */
enum { MOTE_KV_MAX_SOURCES = 256, MOTE_KV_MAX_DIM = 4096 };

typedef struct mote__kv_shape {
    /* 0: V4.1: each source has main entries and indexer keys, each layer a window. 1: Llama-style:
     * each layer is a source with keys (`main`) and values (`index`), without windows. */
    int dense;
    size_t n_layers, window;
    /* values of a vector of either part (windows: as main), of which formats' groups are pieces */
    size_t main_vector, index_vector;
    size_t main_dim, index_dim; /* values of an entry: a dense model's are n_kv_heads vectors */
    size_t n_sources;
    size_t source_layer[MOTE_KV_MAX_SOURCES];
    unsigned ratio[MOTE_KV_MAX_SOURCES]; /* tokens per entry of a source */
} mote__kv_shape;

#endif
