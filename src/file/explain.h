/* Error messages for paths that are not a checkpoint folder: they say what the path is and what to
 * give instead. */
#ifndef MOTE_FILE_EXPLAIN_H
#define MOTE_FILE_EXPLAIN_H

#include "base/err.h"

/* MOTE_OK if path is a folder that contains the file `needed` (NULL: any folder). Otherwise an
 * error that recognises a GGUF or weights file, a name on a hub, or another kind of folder. */
int mote__explain_folder(const char *path, const char *needed, mote_err *err);
/* MOTE_OK unless the file is of a known wrong kind (MOTE_EUNSUPPORTED). takes_config: a config.json
 * is accepted. */
int mote__explain_file(const char *path, int takes_config, mote_err *err);
/* For a folder without safetensors: returns an error that names the weights it has instead. */
int mote__explain_weights(const char *folder, mote_err *err);

#endif
