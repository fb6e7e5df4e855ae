/* What the model's own approximations cost, and what is stored: losses behind a cut however the
 * prefix came, and the error of stored KV. */
#ifndef MOTE_LAB_CUTS_H
#define MOTE_LAB_CUTS_H

#include <jansson.h>

#include "lab/measure.h"
#include "lab/corpus.h"

/* *rows: by cut {kv, ctx, cut, windows, tokens, cold_loss, ways[] {way, loss, minus_cold,
 * minus_cold_se, beyond_noise}}: the tokens behind the cut, the prefix before it read whole (cold),
 * with bounded prefill, or found as after a hit with bounded and with exact replay. */
int lab_cuts_run(json_t **rows, mote_model *model, const lab_text *text, const char *kv, size_t ctx,
                 size_t n_windows, const uint64_t *cuts, size_t n_cuts,
                 const lab_progress *progress, mote_err *err);
/* Appends {kv, ctx, rows[] as of mote_kv_error_json}: formats against f32 after reading the first
 * window. */
int lab_kv_error_run(json_t *rows, mote_model *model, const lab_text *text, const char *const *kv,
                     size_t n_kv, size_t ctx, const lab_progress *progress, mote_err *err);

#endif
