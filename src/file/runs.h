/* The runs of consecutive bytes that a group of tensors makes up in a checkpoint's files: what is
 * read together. In the published files an expert is two of them, its scales and its codes; any
 * other order gives more, and works too. */
#ifndef MOTE_FILE_RUNS_H
#define MOTE_FILE_RUNS_H

#include "file/safetensors.h"

enum { MOTE_RUN_TENSORS = 6 };

typedef struct mote__runs {
    unsigned n;
    mote__source run[MOTE_RUN_TENSORS]; /* ascending by shard and offset, not adjacent */
    /* where tensor i lies: in run part[i].run, from byte part[i].at on; run -1: it has no bytes */
    struct mote__run_part {
        int run;
        uint64_t at;
    } part[MOTE_RUN_TENSORS];
} mote__runs;

/* n at most MOTE_RUN_TENSORS, no two overlap. */
void mote__runs_of(mote__runs *runs, const mote__source *tensors, size_t n);

#endif
