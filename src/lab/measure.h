/* Measuring ways to hold the cache against each other: several sessions read the same window of
 * tokens side by side, chunk by chunk, so that every token is scored under all of them (paired
 * numbers) and only a chunk's logits exist at a time. The yardstick of a window is one of the cases
 * and runs once, whatever the number of others. */
#ifndef MOTE_LAB_MEASURE_H
#define MOTE_LAB_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include <mote/mote.h>

/* Shown while long work runs; non-zero cancels. */
typedef struct lab_progress {
    int (*step)(void *ctx, const char *what, double fraction);
    void *ctx;
} lab_progress;
/* p may be NULL */
int lab_progress_at(const lab_progress *p, const char *what, double fraction);
/* For mote_step: shows, and notes the largest scratch memory seen between chunks (model NULL: does
 * not look). ctx: lab_shown *. */
typedef struct lab_shown {
    const lab_progress *progress;
    const char *what;
    const mote_model *model;
    size_t scratch_peak;
} lab_shown;
int lab_progress_step(void *ctx, size_t done, size_t all);

typedef struct lab_case {
    /* asked */
    /* params.prefill is that of the tokens before `cut`; after it every token is decoded */
    mote_session_params params;
    /* tokens [0, cut) are a prefix that is not scored; 0: none */
    size_t cut;
    /* 1: at the cut the windows are forgotten and come back by `replay`, as after a hit */
    int hit;
    mote_replay replay;
    /* May put a stored prefix of ids[0, n_ids) into the fresh, empty session; what it holds is not
     * scored. NULL: none. */
    int (*fill)(void *ctx, mote_session *session, const int32_t *ids, size_t n_ids, mote_err *err);
    void *fill_ctx;
    /* found: scores[i] is of the prediction of ids[i + 1], for i in [first, n_ids - 1). Room of the
     * caller's. */
    mote_score *scores;
    size_t first;
    /* global KV per token */
    double kv_bytes;
    /* of this case's steps */
    double seconds;
    /* tokens they ran */
    size_t n_run;
    /* the session's share and scratch, at its largest */
    size_t peak_bytes;
} lab_case;

/* base: the case that the KL of all others is taken against (it must have no `fill`), or NULL.
 * Cases with a cut are scored from it on. A case that breaks the model's rules is an error naming
 * it. */
int lab_measure(mote_model *model, const int32_t *ids, size_t n_ids, lab_case *const *cases,
                size_t n_cases, const lab_case *base, const char *what,
                const lab_progress *progress, mote_err *err);

#endif
