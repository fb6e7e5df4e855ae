/* The bench, for the command: what it measures, with which parameters. A library of its own over
 * the internals of libmote; not installed. */
#ifndef MOTE_BENCH_RUN_H
#define MOTE_BENCH_RUN_H

#include <mote/mote.h>

typedef enum mote_bench_geometry { MOTE_BENCH_ALL, MOTE_BENCH_PUBLISHED, MOTE_BENCH_NANO } mote_bench_geometry;
typedef struct mote_bench_params {
    const char *model;         /* a small checkpoint for the end-to-end rows; NULL: they are left out    */
    mote_bench_geometry geometry;      /* PUBLISHED: kernels and a random model of the published shapes;
                                  NANO: `model` end to end                                    */
    const char *only;          /* names of parts, separated by commas; NULL: all                         */
    const char *const *texts;  /* files for the tokenizer rows; none: text of the model's folder         */
    size_t n_texts;
    int n_threads, runs;       /* 0: as in mote_model_params; 0: 7                                       */
    mote_weights weights;      /* of `model`; everything else lies in huge pages                         */
    int quick;                 /* 1: tiny shapes, in seconds: does it work, not how fast                 */
    int (*progress)(void *ctx, const char *what, double fraction);     /* may be NULL; non-zero cancels  */
    void *progress_ctx;
} mote_bench_params;
/* Kernels and whole steps as ratios to limits of the machine measured in the same run. Each answer is checked first; a wrong
 * one is an error. JSON text with the fields of docs/results/bench.md; free with mote_free. */
int mote_bench_json(char **json, const mote_bench_params *params, mote_err *err);
/* Name and one sentence of the i-th part; NULL behind the last. */
const char *mote_bench_part(size_t i, const char **summary);

#endif
