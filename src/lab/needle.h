/* Needle recall: can the model still find a fact, by depth and context, and how much surer or less
 * sure is it with another cache? */
#ifndef MOTE_LAB_NEEDLE_H
#define MOTE_LAB_NEEDLE_H

#include <jansson.h>

#include "lab/measure.h"
#include "lab/corpus.h"

typedef struct lab_needles {
    /* [n_cases]; cases[0] is what the others are compared with */
    const mote_session_params *cases;
    size_t n_cases;
    const uint64_t *ctx; /* [n_ctx] */
    size_t n_ctx;
    const double *depths;       /* [n_depths], ascending, 0 ... 1 */
    size_t n_depths, n_samples; /* contexts of each length */
    uint64_t seed;
} lab_needles;

/* One needle asked once. Log probabilities are natural and of the whole answer, all its tokens
 * together. */
typedef struct lab_answer {
    /* of the right answer */
    double logp;
    double margin; /* logp less the mean over the distractors (answers of the other needles of
                      the kind); NaN where there are none */
    /* every token of the answer is the likeliest one, the right ones before it */
    int exact;
    /* likelier than every distractor; says nothing where margin is NaN */
    int chosen;
    /* the text that is generated begins with the answer */
    int greedy;
} lab_answer;

/* Read a context and ask for all of its needles: answers[n_needles]. */
struct lab_haystack;
int lab_needle_ask(lab_answer *answers, mote_model *model, const mote_session_params *params,
                   const struct lab_haystack *h, const char *what, const lab_progress *progress,
                   mote_err *err);
/* *result: {seed, samples, depths[], rows[] by case and context, cells[] by case, context and
 * depth}, documented in the help of eval. */
int lab_needle_run(json_t **result, mote_model *model, const lab_text *text, const lab_needles *n,
                   const lab_progress *progress, mote_err *err);

#endif
