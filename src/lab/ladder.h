/* The careful rollout: longer and longer contexts, each with its memory told before it is
 * allocated, its speed, and its quality against an unrounded cache; the first step that fails ends
 * it with a diagnosis. */
#ifndef MOTE_LAB_LADDER_H
#define MOTE_LAB_LADDER_H

#include <jansson.h>

#include "lab/measure.h"
#include "lab/corpus.h"

typedef struct lab_ladder {
    /* the configuration */
    mote_session_params params;
    /* [n_ctx] steps */
    const uint64_t *ctx;
    /* tokens at the end of each step's window that are scored */
    size_t n_ctx, n_scored;
    /* nat a token over the baseline: more, beyond the noise, fails */
    double max_loss;
    /* nat of ln p(answer) below the baseline: the same */
    double max_needle;
    /* bytes for all that is held; 0: what the machine has */
    uint64_t ram;
    /* n_depths 0: no needles */
    const double *depths;
    size_t n_depths, n_samples;
    uint64_t seed;
    /* 1: no baseline: half the time, no judgement of quality */
    int no_base;
    /* a step is done; may be NULL */
    void (*on_step)(void *ctx, const json_t *step);
    void *on_step_ctx;
} lab_ladder;

/* *result: {kv, steps[], stopped {ctx, reason, diagnosis} or null, blame or null}: the fields in
 * the help of `mote ladder`. A step that fails is no error. */
int lab_ladder_run(json_t **result, mote_model *model, const lab_text *text, const lab_ladder *l,
                   const lab_progress *progress, mote_err *err);

#endif
