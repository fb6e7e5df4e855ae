/* What people give instead of a checkpoint folder, told in a sentence that says what to give. */
#ifndef MOTE_FILE_EXPLAIN_H
#define MOTE_FILE_EXPLAIN_H

#include "base/err.h"

/* MOTE_OK if path is a folder and `needed` (NULL: nothing) is in it, else an error: a GGUF or
 * weights file, a name of a hub, a folder of another kind. */
int mote__explain_folder(const char *path, const char *needed, mote_err *err);
/* The same for a regular file: MOTE_OK if it is none of the kinds that are known. takes_config: a
 * config.json is right. */
int mote__explain_file(const char *path, int takes_config, mote_err *err);
/* For a folder without safetensors: what weights it holds instead. Always an error. */
int mote__explain_weights(const char *folder, mote_err *err);

#endif
