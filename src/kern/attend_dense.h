/* Causal attention over all earlier positions, for the query heads that share one key and value
 * head and for several consecutive positions. Packed entries are processed from position 0 in tiles
 * of 64: a tile is decoded into scratch once for all queries that see it, so no decoded copy of the
 * cache is kept. Source: docs/architecture.md, "Dense models".
 *
 * The result of a query depends only on the query and on the entries it sees, not on the number of
 * positions in a call. */
#ifndef MOTE_KERN_ATTEND_DENSE_H
#define MOTE_KERN_ATTEND_DENSE_H

#include "kern/attend.h"

enum { MOTE_DENSE_TILE = 64 };

/* Format of the keys, or of the values: within a tile, rows of one head are code_stride and
 * scale_stride bytes apart. */
typedef struct mote__dense_side {
    mote__kvfmt_id fmt;
    size_t code_stride, scale_stride;
} mote__dense_side;

typedef struct mote__dense_args {
    /* [n_rows][n_heads][dim], rotated; rows ldq floats apart */
    const float *q;
    size_t ldq;
    /* n_rows at most mote__dense_rows(n_heads) */
    size_t n_rows, n_heads, dim;
    /* position of row 0; row r sees entries 0..pos + r */
    uint64_t pos;
    mote__dense_side key, value;
    /* sets *key and *value to entry 64 * tile; the entries of a tile are stored one after
     * another */
    void (*tile)(void *ctx, size_t tile, mote__kv_ref *key, mote__kv_ref *value);
    void *ctx;
    float scale;
    /* published math: probabilities are rounded to BF16 before the product with the values */
    int published;
    /* [n_rows][n_heads][dim]; rows ldo floats apart */
    float *out;
    size_t ldo;
} mote__dense_args;

/* Maximum number of positions per call; at least 1. */
size_t mote__dense_rows(size_t n_heads);
/* Size of the scratch of mote__attend_dense for that many positions, in floats; SIZE_MAX if that
 * overflows. */
size_t mote__dense_scratch(size_t n_heads, size_t dim);
/* Compute a->out. All pointers are borrowed; scratch is 64-byte aligned and not shared between
 * threads. */
void mote__attend_dense(const mote__kern_ops *kern, const mote__dense_args *a, float *scratch);

#endif
