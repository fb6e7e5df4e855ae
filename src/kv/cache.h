/* Global KV of one sequence: a table of blocks, appended to and never changed.
 *
 * Invariants: (1) blocks[i] holds tokens [256 i, 256 (i+1)); only the last one may be unfinished.
 * (2) An entry is written once. (3) A block with more than one reference is never written:
 * mote__kv_reserve copies the unfinished one first. Reserving is separate from writing, so that a
 * step fails before it starts or not at all. */
#ifndef MOTE_KV_CACHE_H
#define MOTE_KV_CACHE_H

#include "kern/attend.h"
#include "kv/block_pool.h"

typedef struct mote__kv_cache {
    mote__kv_pool *pool;     /* borrowed */
    mote__kv_block **blocks; /* owned table */
    size_t n_blocks, capacity;
    size_t n_entries[MOTE_KV_MAX_SOURCES];
} mote__kv_cache;

void mote__kv_cache_init(mote__kv_cache *cache, mote__kv_pool *pool);
void mote__kv_cache_deinit(mote__kv_cache *cache);
/* Room for n_tokens in all; the block that token n_written falls into becomes private. 0 or
 * MOTE_ENOMEM (unchanged). */
int mote__kv_reserve(mote__kv_cache *cache, size_t n_written, size_t n_tokens);
/* *copy shares the full blocks of the first n_tokens and copies the unfinished one. 0 or
 * MOTE_ENOMEM. */
int mote__kv_cache_fork(mote__kv_cache *copy, const mote__kv_cache *cache, size_t n_tokens);
/* Keep the first n_tokens (a multiple of every ratio). Later blocks are released. */
void mote__kv_cache_truncate(mote__kv_cache *cache, size_t n_tokens);

/* An empty cache takes over `n` full blocks of its pool, with the caller's references. 0 or
 * MOTE_ENOMEM (nothing taken). */
int mote__kv_cache_adopt(mote__kv_cache *cache, mote__kv_block *const *blocks, size_t n);

/* Kernels of the CPU, where the blocks' memory is the host's. put: encode and store one entry
 * (different entries may be written by different threads at once); does not move n_entries. */
void mote__kv_put(mote__kv_cache *cache, size_t source, size_t entry, const float *main,
                  const float *index);

static inline mote__kv_ref mote__kv_main(const mote__kv_cache *c, size_t source, size_t entry)
{
    const mote__kv_source *s = &c->pool->layout.source[source];
    const uint8_t *block = mote__kv_block_here(c->blocks[entry / s->entries]);
    size_t i = entry % s->entries;
    return (mote__kv_ref){ block + s->main_codes + i * s->main_code_bytes,
                           block + s->main_scales + i * s->main_scale_bytes };
}
/* Codes and scales of the indexer keys (a dense model's values) of one block. */
static inline mote__kv_ref mote__kv_index(const mote__kv_cache *c, size_t source, size_t block_no)
{
    const mote__kv_source *s = &c->pool->layout.source[source];
    const uint8_t *block = mote__kv_block_here(c->blocks[block_no]);
    return (mote__kv_ref){ block + s->index_codes, block + s->index_scales };
}

/* Decode one entry for a look at it, wherever the blocks lie: its main values (a dense model's
 * keys), its indexer key (a dense model's values). */
void mote__kv_main_decode(float *dst, const mote__kv_cache *c, size_t source, size_t entry);
void mote__kv_index_decode(float *dst, const mote__kv_cache *c, size_t source, size_t entry);

#endif
