/* Choosing a format for each KV source and part under a budget of bytes per token: sensitivities
 * are measured one at a time with everything else unrounded, windows too, an additive model of them
 * is minimised exactly, and the choice is then measured as a whole. */
#ifndef MOTE_LAB_TUNE_H
#define MOTE_LAB_TUNE_H

#include <jansson.h>

#include "lab/measure.h"
#include "lab/corpus.h"

/* What a format is charged for. Both are squares of small disturbances, so independent ones add up.
 * GENERATION: mean KL(unrounded || this) over all predicted tokens, in nat a token.
 * RETRIEVAL:  mean square change of ln p(answer) of needles against the unrounded cache, in nat^2
 * an answer. */
typedef enum lab_task { LAB_GENERATION, LAB_RETRIEVAL, LAB_TASKS } lab_task;
extern const char *const lab_task_names[], *const lab_task_units[];

typedef struct lab_tune {
    const char *model_path;
    /* bytes of global KV per token; not positive: that of the default formats */
    double budget;
    lab_task task;
    /* [n_formats] tried for every part; those a part cannot take are left out */
    const char *const *formats;
    size_t n_formats;
    /* the windows measured; as many again, if the text has them, check the result */
    size_t ctx, n_windows;
    const double *depths;
    size_t n_depths, n_samples; /* of the needles */
    uint64_t seed;
} lab_tune;

/* *result: the fields in the help of `mote tune`; result.profile is what a profile file holds.
 * MOTE_EINVAL when the budget is below what the smallest formats take. */
int lab_tune_run(json_t **result, mote_model *model, const lab_text *text, const lab_tune *t,
                 const lab_progress *progress, mote_err *err);

#endif
