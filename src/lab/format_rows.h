/* Cache formats against each other on a text: loss, KL to a base, memory and speed, a JSON row per
 * context and format. */
#ifndef MOTE_LAB_FORMAT_ROWS_H
#define MOTE_LAB_FORMAT_ROWS_H

#include <jansson.h>

#include "lab/measure.h"
#include "lab/corpus.h"

/* A store behind the measured sessions; the caller opens and closes it, so that this file need not
 * know its options. */
typedef struct lab_store {
    void *ctx;
    /* before the sessions of a window, and `close` after them: what one window wrote */
    void (*open)(void *ctx);
    /* the next can find */
    void (*close)(void *ctx);
    int (*fill)(void *ctx, mote_session *session, const int32_t *ids, size_t n_ids,
                mote_restored *found, int *exact, mote_err *err);
} lab_store;

typedef struct lab_formats {
    /* [n_kv] formats, as in mote_session_params */
    const char *const *kv;
    size_t n_kv;
    /* [n_ctx] */
    const uint64_t *ctx;
    /* windows of each length at most, 0: all */
    size_t n_ctx, n_windows;
    /* formats that KL is taken against; NULL: no KL */
    const char *base;
    /* of the speed measurement alone */
    mote_prefill prefill;
    /* tokens of it that are decoded */
    size_t n_decode;
    /* NULL: none */
    const lab_store *store;
} lab_formats;

/* Appends to `rows`: {kv, ctx, windows, tokens, loss, ...}, the fields of `mote eval`. */
int lab_formats_run(json_t *rows, mote_model *model, const lab_text *text, const lab_formats *f,
                    const lab_progress *progress, mote_err *err);
/* Tokens a second of an ordinary session: all but the last n_decode tokens (at most half) are read
 * in one step, those decoded singly. */
int lab_speed(mote_model *model, const mote_session_params *params, const int32_t *window, size_t n,
              size_t n_decode, double *prefill, double *decode, mote_err *err);
/* A number, or null where it is not finite. */
json_t *lab_real(double v);

#endif
