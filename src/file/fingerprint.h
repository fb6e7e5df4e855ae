/* What makes a checkpoint the same checkpoint, for a cache that outlives the process: SHA-256 over
 * config.json and the shards. A checkpoint under 1 GiB is hashed whole; of a larger one the shard
 * headers and three pages of 4 KiB of each tensor (first, middle, last) are, so that a fingerprint
 * costs seconds and not minutes. Source: docs/format-store.md, "Context". */
#ifndef MOTE_FILE_FINGERPRINT_H
#define MOTE_FILE_FINGERPRINT_H

#include "file/safetensors.h"

#define MOTE_FINGERPRINT_WHOLE \
    ((uint64_t)1 << 30) /* bytes of tensors from which on pages are hashed */

/* config_path: the config.json of the checkpoint. */
int mote__fingerprint(uint8_t digest[32], const mote__checkpoint *ckpt, const char *config_path,
                      mote_err *err);

/* The same, but read from a note in the directory `notes` if there is one about exactly these files
 * (device, inode, size, times of content and of status, of config.json and each shard); else worked
 * out and, if may_write, noted for the next time. Files that changed within the last two seconds
 * are not noted: a clock's step could hide a further change. A note that cannot be read or written
 * costs time and nothing else. For large checkpoints, whose pages lie all over a disk. Layout:
 * docs/format-store.md. */
int mote__fingerprint_noted(uint8_t digest[32], const mote__checkpoint *ckpt,
                            const char *config_path, const char *notes, int may_write,
                            mote_err *err);

#endif
