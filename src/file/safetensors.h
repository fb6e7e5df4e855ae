/* safetensors: one file, or a folder with model.safetensors.index.json and shards (or a single
 * model.safetensors), mapped. Everything is checked before use: header length, JSON, dtype, shape,
 * overflow, offsets (inside the file, no overlap, no holes), duplicate names, the index against the
 * shards. Format and limits: docs/safetensors.md. safetensors.c         dtypes and the parser of
 * one file checkpoint.c          folder, index, shards, the sorted list of all tensors
 *   safetensors_write.c   the writer */
#ifndef MOTE_FILE_SAFETENSORS_H
#define MOTE_FILE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"

typedef enum mote__dtype {
    MOTE_DT_F32,
    MOTE_DT_F16,
    MOTE_DT_BF16,
    MOTE_DT_F8_E4M3,
    MOTE_DT_F8_E8M0,
    MOTE_DT_I8,
    MOTE_DT_U8,
    MOTE_DT_I32,
    MOTE_DT_I64,
    MOTE_DT_F64,
    MOTE_DT_I16,
    MOTE_DT_U16,
    MOTE_DT_U32,
    MOTE_DT_U64,
    MOTE_DT_BOOL,
    MOTE_DT_F8_E5M2,
    MOTE_DTYPES
} mote__dtype;
const char *mote__dtype_name(mote__dtype dt);
size_t mote__dtype_bytes(mote__dtype dt);

enum { MOTE_MAX_DIMS = 8 };
typedef struct mote__tensor {
    const char *name; /* borrowed from the checkpoint */
    mote__dtype dtype;
    unsigned n_dims;
    uint64_t shape[MOTE_MAX_DIMS];
    const uint8_t *data; /* in the mapping, any alignment */
    uint64_t n_bytes;
    unsigned shard; /* into the checkpoint's shard list */
} mote__tensor;

/* Bytes of dtype x shape, or UINT64_MAX where the product overflows (zero dimensions do not hide an
 * overflow of the others). */
uint64_t mote__shape_bytes(mote__dtype dt, const uint64_t *shape, unsigned n_dims);

typedef struct mote__checkpoint mote__checkpoint;

/* path: a folder or a single .safetensors file. With an index, index and shards must agree both
 * ways: a tensor that is in a shard but not in the index is an error too, because it tells of
 * mixed-up downloads. */
int mote__checkpoint_open(mote__checkpoint **ckpt, const char *path, mote_err *err);
void mote__checkpoint_close(mote__checkpoint *ckpt);
/* Bytes allocated: names and the list of tensors; what is mapped is not among them. */
size_t mote__checkpoint_memory(const mote__checkpoint *ckpt);
size_t mote__checkpoint_n_tensors(const mote__checkpoint *ckpt);
/* sorted by name (strcmp) */
const mote__tensor *mote__checkpoint_tensor(const mote__checkpoint *ckpt, size_t i);
/* NULL if absent; O(log n) */
const mote__tensor *mote__checkpoint_find(const mote__checkpoint *ckpt, const char *name);
size_t mote__checkpoint_n_shards(const mote__checkpoint *ckpt);
const char *mote__checkpoint_shard_path(const mote__checkpoint *ckpt, size_t shard);
/* of the file */
uint64_t mote__checkpoint_shard_bytes(const mote__checkpoint *ckpt, size_t shard);
const mote__map *mote__checkpoint_shard_map(const mote__checkpoint *ckpt, size_t shard);
uint64_t mote__checkpoint_bytes(const mote__checkpoint *ckpt); /* of all tensors */

/* Where bytes lie in the files of a checkpoint, for reads by offset beside the mapping. */
typedef struct mote__source {
    unsigned shard;
    uint64_t offset; /* in the file, any alignment */
    uint64_t bytes;
} mote__source;
/* of a tensor of this checkpoint */
mote__source mote__checkpoint_source(const mote__checkpoint *ckpt, const mote__tensor *t);
/* Descriptor of a shard, borrowed until the checkpoint is closed. -1 where none is kept: they take
 * the lower half of the descriptors that the process may have (RLIMIT_NOFILE), no more. */
int mote__checkpoint_shard_fd(const mote__checkpoint *ckpt, size_t shard);
/* Reads all of `source` into `to` (source->bytes). A shard without a descriptor is opened for the
 * time of the read. MOTE_EINVAL for a range outside of its file; MOTE_EIO with the path where the
 * read fails, the file has become shorter or, if it had to be opened, is not the one that is
 * mapped. Any thread. */
int mote__checkpoint_read(const mote__checkpoint *ckpt, const mote__source *source, void *to,
                          mote_err *err);

/* Parse one file held in memory (the fuzzer's door): calls back for each tensor in offset order.
 * The tensor's name lives only until the parse returns; its shard is 0. A non-zero answer of the
 * callback ends the parse and is returned. */
int mote__safetensors_parse(const uint8_t *bytes, size_t n, const char *what,
                            int (*on_tensor)(void *ctx, const mote__tensor *t, mote_err *err),
                            void *ctx, mote_err *err);

/* Write tensors of one file, in the given order (names, dtypes, shapes, data of each
 * `mote__tensor`). Replaces `path` atomically (temporary file beside it, synced, then rename). */
int mote__safetensors_write(const char *path, const mote__tensor *tensors, size_t n, mote_err *err);

#endif
