/* Causal attention over all earlier positions, for the query heads that share one key and value
 * head and for consecutive positions at once. Packed entries are walked 64 at a time from position
 * 0; a tile is decoded into scratch for all queries that see it, so no second copy of the cache
 * exists. Source: docs/architecture.md, "Dense models".
 *
 * The result of a query depends on the query and the entries it sees alone: how many positions
 * share a call does not show. */
#ifndef MOTE_KERN_ATTEND_DENSE_H
#define MOTE_KERN_ATTEND_DENSE_H

#include "kern/attend.h"

enum { MOTE_DENSE_TILE = 64 };

/* Entries of one side: rows of one head, code_stride and scale_stride bytes apart inside a tile. */
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
    /* row r sees entries 0 .. pos + r */
    uint64_t pos;
    mote__dense_side key, value;
    /* where entry 64 * tile lies; a tile's entries follow each other */
    void (*tile)(void *ctx, size_t tile, mote__kv_ref *key, mote__kv_ref *value);
    void *ctx;
    float scale;
    /* probabilities are rounded to BF16 before they meet the values */
    int published;
    /* [n_rows][n_heads][dim] */
    float *out;
    size_t ldo;
} mote__dense_args;

/* Positions worth serving with one walk. */
size_t mote__dense_rows(size_t n_heads);
size_t mote__dense_scratch(size_t n_heads, size_t dim); /* floats, for as many rows */
void mote__attend_dense(const mote__kern_ops *kern, const mote__dense_args *a, float *scratch);

#endif
