/* Sparse attention of one query row over packed KV entries, with a sink in the denominator. Entries
 * are processed in the given order in tiles of 64: a tile is decoded into scratch, scored for all
 * heads and accumulated with a running maximum, so no decoded copy of the cache is kept. Source:
 * docs/architecture.md, "Attention". */
#ifndef MOTE_KERN_ATTEND_H
#define MOTE_KERN_ATTEND_H

#include "kern/kern.h"

/* One packed entry; borrowed from its block. */
typedef struct mote__kv_ref {
    const uint8_t *codes, *scales;
} mote__kv_ref;

typedef struct mote__attend_args {
    /* [n_heads][dim], rotated */
    const float *q;
    size_t n_heads, dim;
    /* entries of the window, processed first, positions ascending */
    const mote__kv_ref *window;
    size_t n_window;
    mote__kvfmt_id window_fmt;
    /* selected main entries, processed after the window */
    const mote__kv_ref *main;
    size_t n_main;
    mote__kvfmt_id main_fmt;
    /* [n_heads] */
    const float *sink;
    float scale;
    /* published math: probabilities are rounded to BF16 before the product with the values */
    int published;
    /* [n_heads][dim] */
    float *out;
} mote__attend_args;

/* Size of the scratch of mote__attend in floats; SIZE_MAX if that overflows. */
size_t mote__attend_scratch(size_t n_heads, size_t dim);
/* Compute a->out. All pointers are borrowed; scratch is 64-byte aligned and not shared between
 * threads. */
void mote__attend(const mote__kern_ops *kern, const mote__attend_args *a, float *scratch);

#endif
