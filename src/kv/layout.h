/* Layout of a block: 256 tokens of global KV of all sources, one array after the other, the same in
 * RAM and on disk. Per source, in order: main codes, main scales, indexer codes, indexer scales;
 * each array starts where the one before ends. Main entries and non-MXFP4 indexer keys are plain
 * rows; MXFP4 indexer keys lie in tiles of 16 entries (kern/kern.h). In a dense model every layer
 * is a source, `main` holds its keys and `index` its values: plain rows of n_kv_heads vectors. At
 * the published geometry a block has 227,840 bytes: 890 a token. Source: docs/format-kv.md. */
#ifndef MOTE_KV_LAYOUT_H
#define MOTE_KV_LAYOUT_H

#include <mote/mote.h>

#include "kv/shape.h"
#include "kv/spec.h"
#include "num/kvfmt.h"

enum { MOTE_BLOCK_TOKENS = 256, MOTE_INDEX_TILE = 16 };

typedef struct mote__kv_source {
    /* tokens per entry; entries per block = 256 / ratio (a multiple of 16) */
    size_t ratio, entries;
    int tiled; /* index is in tiles of 16 entries */
    const mote__kvfmt *main, *index;
    /* per entry */
    size_t main_code_bytes, main_scale_bytes, index_code_bytes, index_scale_bytes;
    /* offsets in the block */
    size_t main_codes, main_scales, index_codes, index_scales;
} mote__kv_source;

typedef struct mote__kv_layout {
    size_t n_sources, main_dim, index_dim, block_bytes;
    /* of a block: main codes, main scales, index codes, index scales */
    size_t part_bytes[4];
    mote_mem_class part_class[4]; /* what they are accounted under */
    mote__kv_source source[MOTE_KV_MAX_SOURCES];
    mote__kv_spec spec;
} mote__kv_layout;

void mote__kv_layout_init(mote__kv_layout *layout, const mote__kv_shape *shape,
                          const mote__kv_spec *spec);
/* Exact bytes of global KV per token, in all or of one part (0-3 as in part_bytes). */
double mote__kv_layout_bytes_per_token(const mote__kv_layout *layout);
double mote__kv_layout_part_per_token(const mote__kv_layout *layout, int part);

#endif
