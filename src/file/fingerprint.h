/* What makes a checkpoint the same checkpoint, for a cache that outlives the process: SHA-256 over config.json and the shards.
 * A checkpoint under 1 GiB is hashed whole; of a larger one the shard headers and three pages of 4 KiB of each tensor (first, middle,
 * last) are, so that a fingerprint costs seconds and not minutes. Source: docs/format-store.md, "Context". */
#ifndef MOTE_FILE_FINGERPRINT_H
#define MOTE_FILE_FINGERPRINT_H

#include "file/safetensors.h"

/* config_path: the config.json of the checkpoint. */
int mote__fingerprint(uint8_t digest[32], const mote__checkpoint *ckpt, const char *config_path, mote_err *err);

#endif
