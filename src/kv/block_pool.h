/* Blocks of one layout, handed out from slabs and shared by reference count.
 *
 * A slab is a mapping of 1, 1, 2, 4, 8, 16, then always 64 blocks, so that page rounding is paid
 * per slab and a short sequence holds little; it goes back to the system when its last block is
 * free. Pages are touched only as entries are written, and of a slab of 64 the meter counts 16
 * blocks at a time, before their first use. Thread-safe. */
#ifndef MOTE_KV_BLOCK_POOL_H
#define MOTE_KV_BLOCK_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "kv/layout.h"
#include "kv/memory.h"

typedef struct mote__kv_slab mote__kv_slab;

typedef struct mote__kv_block {
    mote__kv_addr at; /* layout.block_bytes */
    mote__kv_slab *slab;
    struct mote__kv_block *next_free;
    _Atomic unsigned refs;
    unsigned used; /* handed out before */
} mote__kv_block;

typedef struct mote__kv_pool {
    mote__kv_layout layout;
    mote__kv_memory *memory; /* borrowed */
    mote__meter *meter;      /* borrowed */
    pthread_mutex_t mutex;
    mote__kv_slab *slabs; /* list, owned */
    size_t n_slabs, n_blocks_used;
} mote__kv_pool;

/* Blocks in `memory`; without _in: the host's. */
void mote__kv_pool_init_in(mote__kv_pool *pool, const mote__kv_layout *layout,
                           mote__kv_memory *memory, mote__meter *meter);
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

/* Bytes of a block to and from the host. */
void mote__kv_block_get(const mote__kv_pool *pool, const mote__kv_block *block, size_t offset,
                        void *to, size_t n);
void mote__kv_block_put(const mote__kv_pool *pool, mote__kv_block *block, size_t offset,
                        const void *from, size_t n);
/* All of `to` becomes that of `from`, a block of the same pool. */
void mote__kv_block_copy(const mote__kv_pool *pool, mote__kv_block *to, const mote__kv_block *from);

/* All bytes of a block at a pointer of the host: the block's own where its memory is in place,
 * otherwise a copy. */
typedef struct mote__kv_view {
    uint8_t *bytes;
    int is_copy;
} mote__kv_view;
/* read 0: a copy begins undefined. 0 or MOTE_ENOMEM. */
int mote__kv_view_open(mote__kv_view *view, const mote__kv_pool *pool, const mote__kv_block *block,
                       int read);
/* write 1: a copy goes into the block. A view that was not opened is zero and is left alone. */
void mote__kv_view_close(mote__kv_view *view, const mote__kv_pool *pool, mote__kv_block *block,
                         int write);

/* For kernels that run where the memory is (the CPU's: in the host's), and for nobody else. */
static inline uint8_t *mote__kv_block_here(const mote__kv_block *block)
{
    return (uint8_t *)block->at.at;
}

#endif
