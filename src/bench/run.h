/* The bench, for the command: what it measures, with which parameters. A library of its own over
 * the internals of libmote; not installed. */
#ifndef MOTE_BENCH_RUN_H
#define MOTE_BENCH_RUN_H

#include <mote/mote.h>

typedef enum mote_bench_geometry {
    MOTE_BENCH_ALL,
    MOTE_BENCH_PUBLISHED,
    MOTE_BENCH_NANO
} mote_bench_geometry;
typedef struct mote_bench_params {
    /* a small checkpoint for the end-to-end rows; NULL: they are left out */
    const char *model;
    mote_bench_geometry geometry; /* PUBLISHED: kernels and a random model of the published shapes;
                             NANO: `model` end to end */
    /* names of parts, separated by commas; NULL: all */
    const char *only;
    /* files for the tokenizer rows; none: text of the model's folder */
    const char *const *texts;
    size_t n_texts;
    /* 0: as in mote_model_params; 0: 7 */
    int n_threads, runs;
    /* of `model`; everything else lies in huge pages */
    mote_weights weights, place[MOTE_WEIGHT_GROUPS];
    uint64_t expert_ram;
    /* 1: tiny shapes, in seconds: does it work, not how fast */
    int quick;
    mote_progress progress; /* may be NULL */
    void *progress_ctx;
} mote_bench_params;
/* Kernels and whole steps as ratios to limits of the machine measured in the same run. Each answer
 * is checked first; a wrong one is an error. JSON text with the fields of docs/results/bench.md;
 * free with mote_free. */
int mote_bench_json(char **json, const mote_bench_params *params, mote_err *err);
/* Name and one sentence of the i-th part; NULL behind the last. */
const char *mote_bench_part(size_t i, const char **summary);

#endif
