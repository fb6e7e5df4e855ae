/* Sparse attention of one query row over packed KV entries, with a sink in the denominator.
 * Entries are walked 64 at a time in the given order; a tile is decoded into scratch, scored for all heads, and mixed
 * under a running maximum, so no second copy of the cache exists. Source: docs/architecture.md, "Attention". */
#ifndef MOTE_KERN_ATTEND_H
#define MOTE_KERN_ATTEND_H

#include "kern/kern.h"

typedef struct mote__kv_ref { const uint8_t *codes, *scales; } mote__kv_ref;

typedef struct mote__attend_args {
    const float *q;            /* [n_heads][dim], rotated                                             */
    size_t n_heads, dim;
    const mote__kv_ref *window; size_t n_window; mote__kvfmt_id window_fmt;     /* first these, ascending positions */
    const mote__kv_ref *main;   size_t n_main;   mote__kvfmt_id main_fmt;       /* then these                       */
    const float *sink;         /* [n_heads]                                                           */
    float scale;
    int published;             /* probabilities are rounded to BF16 before they meet the values       */
    float *out;                /* [n_heads][dim]                                                      */
} mote__attend_args;

size_t mote__attend_scratch(size_t n_heads, size_t dim);      /* floats */
void mote__attend(const mote__kern_ops *kern, const mote__attend_args *a, float *scratch);

#endif
