/* The layer plan: what each layer does and who runs it, made once from the configuration. Execution
 * walks this table and never asks for a layer's number. */
#ifndef MOTE_MODEL_LAYER_PLAN_H
#define MOTE_MODEL_LAYER_PLAN_H

#include "file/config.h"

typedef enum mote__role {
    /* window attention only */
    MOTE_ROLE_WINDOW,
    /* makes global KV and indexer keys, and selects */
    MOTE_ROLE_FULL,
    /* selects anew among its source's entries */
    MOTE_ROLE_REINDEX,
    /* reads its source's entries with the last selection */
    MOTE_ROLE_REUSE,
    /* makes keys and values of its own and attends to all of them */
    MOTE_ROLE_DENSE
} mote__role;

typedef enum mote__candidates { MOTE_CAND_NONE, MOTE_CAND_MAKE, MOTE_CAND_USE } mote__candidates;

typedef struct mote__layer_plan {
    mote__role role;
    unsigned ratio;              /* tokens per entry of its source; 0 for window layers */
    int source;                  /* index of the KV source it reads, -1 for window layers */
    mote__candidates candidates; /* of a selecting layer */
    int engram;                  /* index of its Engram table, or -1 */
    int decoder;                 /* 0: encoder half */
    /* routed experts, and how many of them run for a token; 0: the shared one alone */
    size_t n_experts, n_per_token;
    mote__score_func score_func;
    const struct mote__backend_ops *backend; /* model/backend.h; set by mote__net_use */
} mote__layer_plan;

void mote__plan_init(mote__layer_plan *plan, const mote__config *config);
/* Whether the layers before `layer` may run elsewhere than those from it on, a carry
 * (model/carry.h) between them: it makes KV of its own, and none behind it reads what one before it
 * made. */
int mote__plan_cuts(const mote__layer_plan *plan, size_t n_layers, size_t layer);
const char *mote__role_name(mote__role role);

#endif
