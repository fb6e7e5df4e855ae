/* Blame: which knob costs the quality? One cause at a time is switched, from the all-exact baseline
 * and from the full configuration, on the same tokens, so that every effect is a paired difference
 * with a standard error; words are found only for what is beyond the noise. */
#ifndef MOTE_LAB_BLAME_H
#define MOTE_LAB_BLAME_H

#include <jansson.h>

#include "lab/measure.h"
#include "lab/stats.h"
#include "lab/corpus.h"

/* ---- the arithmetic ---- */
enum { LAB_MAX_CAUSES = 8 };
/* Cases of n causes: 0 = exact, 1 + c = exact but for cause c, n + 1 = full, n + 2 + c = full but
 * for cause c. */
static inline size_t lab_blame_cases(size_t n_causes) { return 2 * n_causes + 2; }
static inline size_t lab_blame_alone(size_t c) { return 1 + c; }
static inline size_t lab_blame_full(size_t n) { return n + 1; }
static inline size_t lab_blame_without(size_t n, size_t c) { return n + 2 + c; }

typedef struct lab_blame_sums {
    size_t n_causes;
    lab_sum exact, full, total;    /* total = full - exact */
    lab_sum alone[LAB_MAX_CAUSES]; /* exact but for c - exact */
    lab_sum last[LAB_MAX_CAUSES];  /* full - full but for c */
    lab_sum rest;                  /* total - sum of alone: what only happens together */
} lab_blame_sums;
/* One observation (a token's loss, say) under every case. */
void lab_blame_add(lab_blame_sums *s, const double *values);
void lab_blame_gap(lab_blame_sums *s);

typedef enum lab_guilt {
    LAB_NOISE,
    LAB_ALONE_ONLY,
    LAB_LAST_ONLY,
    LAB_GUILTY,
    LAB_HELPS
} lab_guilt;
/* Both effects beyond the noise and harmful: guilty. Both, and helpful: helps. One of them: that
 * one only. */
lab_guilt lab_blame_judge(const lab_blame_sums *s, size_t c);
/* {what, unit, observations, exact, full, total, total_se, rest, rest_se, causes[] {cause,
 * exact_is, full_is, alone, alone_se, last, last_se, judgement}, verdict[]}: what every number
 * means is in the help of eval. names[c][0..2]: the cause, its exact and its full state. */
json_t *lab_blame_json(const lab_blame_sums *s, const char *const (*names)[3], const char *what,
                       const char *unit, const char *observation);

/* ---- measuring ---- */
typedef struct lab_blame {
    /* the full configuration's formats */
    const char *kv;
    /* the exact selection: entries a query attends to; SIZE_MAX: all */
    size_t topk;
    /* the first half of a window is the prefix, the other is scored */
    size_t ctx, n_windows;
    /* n_depths > 0: the same for needles, n_samples contexts */
    const double *depths;
    size_t n_depths, n_samples;
    uint64_t seed;
} lab_blame;
/* *result: {ctx, kv, loss: as above, kl[] {cause, kl, over_control, over_control_se}, needle: as
 * above or null}. */
int lab_blame_run(json_t **result, mote_model *model, const lab_text *text, const lab_blame *b,
                  const lab_progress *progress, mote_err *err);

#endif
