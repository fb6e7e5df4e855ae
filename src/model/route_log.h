/* Records which experts rows were routed to, in a file: docs/format-trace.md. An error of the file
 * ends the recording and is kept for whoever closes it; the run goes on. One thread: the one that
 * steps the model. */
#ifndef MOTE_MODEL_ROUTE_LOG_H
#define MOTE_MODEL_ROUTE_LOG_H

#include "model/batch.h"

typedef struct mote__route_log mote__route_log;
/* Creates the file, or empties it. expert_bytes: of one expert's matrices. */
int mote__route_log_open(mote__route_log **log, const char *path, size_t n_layers, size_t n_experts,
                         size_t n_per_token, uint64_t expert_bytes, mote_err *err);
/* The rows of `batch` in `layer`: ids [n_rows][n_per_token]. */
void mote__route_log_rows(mote__route_log *log, const mote__batch *batch, size_t layer,
                          const int32_t *ids);
/* 0, or MOTE_EIO: the recording ended early. NULL is fine. */
int mote__route_log_close(mote__route_log *log, mote_err *err);

#endif
