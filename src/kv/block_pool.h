/* Blocks of one layout, handed out from slabs and shared by reference count.
 *
 * A slab is a mapping of 1, 1, 2, 4, 8, 16, then always 64 blocks, so that page rounding is paid
 * per slab and a short sequence holds little; it goes back to the system when its last block is
 * free. Pages are touched only as entries are written, and of a slab of 64 the meter counts 16
 * blocks at a time, before their first use. A slab of 4 MiB or more asks for large pages: entries
 * are read from all over the cache. Thread-safe. */
#ifndef MOTE_KV_BLOCK_POOL_H
#define MOTE_KV_BLOCK_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "kv/layout.h"

typedef struct mote__kv_slab mote__kv_slab;

typedef struct mote__kv_block {
    uint8_t *data; /* layout.block_bytes */
    mote__kv_slab *slab;
    struct mote__kv_block *next_free;
    _Atomic unsigned refs;
    unsigned used; /* handed out before */
} mote__kv_block;

typedef struct mote__kv_pool {
    mote__kv_layout layout;
    mote__meter *meter; /* borrowed */
    pthread_mutex_t mutex;
    mote__kv_slab *slabs; /* list, owned */
    size_t n_slabs, n_blocks_used;
} mote__kv_pool;

void mote__kv_pool_init(mote__kv_pool *pool, const mote__kv_layout *layout, mote__meter *meter);
void mote__kv_pool_deinit(mote__kv_pool *pool); /* all blocks must have been released */
/* one reference, zeros; NULL: no memory */
mote__kv_block *mote__kv_block_new(mote__kv_pool *pool);
/* So many blocks will be taken and filled at once (a stored prefix is restored): the next blocks
 * come from one slab of up to 128, whose large pages save most of the page faults. A hint; ask
 * again after 128. */
void mote__kv_pool_expect(mote__kv_pool *pool, size_t n_blocks);
enum { MOTE_POOL_EXPECTED = 128 };
mote__kv_block *mote__kv_block_ref(mote__kv_block *block);
void mote__kv_block_unref(mote__kv_pool *pool, mote__kv_block *block);

#endif
