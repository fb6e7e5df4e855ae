/* Sparse attention of one query row over packed KV entries, with a sink in the denominator.
 * Entries are walked 64 at a time in the given order; a tile is decoded into scratch, scored for
 * all heads, and mixed under a running maximum, so no second copy of the cache exists. Source:
 * docs/architecture.md, "Attention". */
#ifndef MOTE_KERN_ATTEND_H
#define MOTE_KERN_ATTEND_H

#include "kern/kern.h"

typedef struct mote__kv_ref {
    const uint8_t *codes, *scales;
} mote__kv_ref;

typedef struct mote__attend_args {
    /* [n_heads][dim], rotated */
    const float *q;
    size_t n_heads, dim;
    /* first these, ascending positions */
    const mote__kv_ref *window;
    size_t n_window;
    mote__kvfmt_id window_fmt;
    /* then these */
    const mote__kv_ref *main;
    size_t n_main;
    mote__kvfmt_id main_fmt;
    /* [n_heads] */
    const float *sink;
    float scale;
    /* probabilities are rounded to BF16 before they meet the values */
    int published;
    /* [n_heads][dim] */
    float *out;
} mote__attend_args;

size_t mote__attend_scratch(size_t n_heads, size_t dim); /* floats */
void mote__attend(const mote__kern_ops *kern, const mote__attend_args *a, float *scratch);

#endif
