/* Inside src/model/weights*.c: finding tensors by name and checking them. The first failure sticks;
 * later calls do nothing. */
#ifndef MOTE_MODEL_WEIGHTS_LOAD_H
#define MOTE_MODEL_WEIGHTS_LOAD_H

#include "model/weights.h"

typedef struct mote__loader {
    mote__weights *w;
    const mote__config *c;
    mote_err *err;
    int rc;             /* the first failure */
    const char *prefix; /* "layers.3." */
} mote__loader;

/* A small tensor of n values (any shape d0 x d1; d1 == 0: one dimension) as an fp32 copy. */
float *mote__load_vector(mote__loader *ld, const char *name, uint64_t d0, uint64_t d1);
/* The linear `name`.weight of n_out x n_in in whatever dtype the file has it, with its scales. */
mote__mat mote__load_matrix(mote__loader *ld, const char *name, size_t n_out, size_t n_in);
/* `name` `suffix`, a matrix whose row of the names' table has no scale (embedding rows are read
 * directly, routers and mixes stay fp32). */
mote__mat mote__load_plain(mote__loader *ld, const char *name, const char *suffix, size_t n_out,
                           size_t n_in);

/* model/weights_dense.c: all of a Llama-style model; w->layers is allocated. */
void mote__load_dense(mote__loader *ld);

#endif
