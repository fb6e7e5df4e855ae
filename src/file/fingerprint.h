/* The fingerprint identifies a checkpoint for a persistent cache: SHA-256 over config.json and the
 * tensors. A checkpoint below 1 GiB is hashed completely; of a larger one, names, types and shapes
 * and three pages of 4 KiB of each tensor (first, middle, last), so that a fingerprint takes
 * seconds, not minutes. Source: docs/format-store.md, "Context". */
#ifndef MOTE_FILE_FINGERPRINT_H
#define MOTE_FILE_FINGERPRINT_H

#include "file/safetensors.h"

/* Checkpoints with fewer bytes of tensors are hashed completely. */
#define MOTE_FINGERPRINT_WHOLE ((uint64_t)1 << 30)

/* config_path: the config.json of the checkpoint. 0, MOTE_EIO or MOTE_ENOMEM. */
int mote__fingerprint(uint8_t digest[32], const mote__checkpoint *ckpt, const char *config_path,
                      mote_err *err);

/* The same, cached in a note in the folder `notes`. A note is valid for exactly these files:
 * device, inode, size, mtime and ctime of config.json and each shard. Without a note the
 * fingerprint is computed and, if may_write, stored in a note. No note is written for files that
 * changed within the last two seconds, because a further change could have the same times. Failures
 * to read or write a note are not errors. Useful for large checkpoints, whose pages are spread over
 * a disk. Layout: docs/format-store.md. */
int mote__fingerprint_noted(uint8_t digest[32], const mote__checkpoint *ckpt,
                            const char *config_path, const char *notes, int may_write,
                            mote_err *err);

#endif
