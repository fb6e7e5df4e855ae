#include "kv/block_pool.h"

#include <assert.h>
#include <string.h>

enum { STEP_BLOCKS = 16, SLAB_BLOCKS = 64 };

struct mote__kv_slab {
    mote__kv_slab *next, **link; /* list of all slabs */
    mote__kv_addr at;
    size_t bytes, counted_bytes;      /* of the memory, whole pages; in the meter */
    size_t n_blocks, n_ready, n_used; /* ready: in the meter, used or free */
    mote__kv_block *free;
    mote__kv_block block[];
};

/* Ready blocks enter the meter as slack; a block in use moves its bytes to the four parts. */
static void account(mote__kv_pool *p, int in_use)
{
    for (int i = 0; i < 4; i++) {
        size_t n = p->layout.part_bytes[i];
        if (in_use) {
            mote__meter_sub(p->meter, MOTE_MEM_KV_SLACK, n);
            mote__meter_add(p->meter, p->layout.part_class[i], n);
        } else {
            mote__meter_sub(p->meter, p->layout.part_class[i], n);
            mote__meter_add(p->meter, MOTE_MEM_KV_SLACK, n);
        }
    }
}

void mote__kv_pool_init_in(mote__kv_pool *p, const mote__kv_layout *layout, mote__kv_memory *memory,
                           mote__meter *meter)
{
    *p = (mote__kv_pool){ .layout = *layout, .memory = memory, .meter = meter };
    pthread_mutex_init(&p->mutex, NULL);
}

void mote__kv_pool_init(mote__kv_pool *p, const mote__kv_layout *layout, mote__meter *meter)
{
    mote__kv_pool_init_in(p, layout, mote__kv_host_memory(), meter);
}

static size_t slab_struct_bytes(size_t n_blocks)
{
    return sizeof(mote__kv_slab) + n_blocks * sizeof(mote__kv_block);
}

static void slab_free(mote__kv_pool *p, mote__kv_slab *s)
{
    if (s->next)
        s->next->link = s->link;
    *s->link = s->next;
    p->memory->ops->slab_free(p->memory, s->at, s->bytes);
    mote__meter_sub(p->meter, MOTE_MEM_KV_SLACK, s->counted_bytes);
    mote__free(p->meter, MOTE_MEM_KV_SLACK, s, slab_struct_bytes(s->n_blocks));
    p->n_slabs--;
}

void mote__kv_pool_deinit(mote__kv_pool *p)
{
    assert(p->n_blocks_used == 0);
    while (p->slabs)
        slab_free(p, p->slabs);
    pthread_mutex_destroy(&p->mutex);
}

/* `n` more blocks of a slab become free ones */
static void slab_ready(mote__kv_pool *p, mote__kv_slab *s, size_t n)
{
    size_t end = s->n_ready + n < s->n_blocks ? s->n_ready + n : s->n_blocks;
    size_t bytes = end < s->n_blocks ? p->layout.block_bytes * end : s->bytes;
    mote__meter_add(p->meter, MOTE_MEM_KV_SLACK, bytes - s->counted_bytes);
    s->counted_bytes = bytes;
    for (size_t i = end; i-- > s->n_ready;) {
        s->block[i] = (mote__kv_block){ .at = mote__kv_addr_plus(s->at, i * p->layout.block_bytes),
                                        .slab = s,
                                        .next_free = s->free };
        s->free = &s->block[i];
    }
    s->n_ready = end;
}

static mote__kv_slab *slab_new(mote__kv_pool *p, size_t n)
{
    mote__kv_slab *s = mote__alloc(p->meter, MOTE_MEM_KV_SLACK, slab_struct_bytes(n));
    if (!s)
        return NULL;
    s->bytes = p->layout.block_bytes * n;
    s->at = p->memory->ops->slab_new(p->memory, &s->bytes);
    if (!s->at.at) {
        mote__free(p->meter, MOTE_MEM_KV_SLACK, s, slab_struct_bytes(n));
        return NULL;
    }
    s->n_blocks = n;
    s->next = p->slabs;
    s->link = &p->slabs;
    if (s->next)
        s->next->link = &s->next;
    p->slabs = s;
    p->n_slabs++;
    return s;
}

mote__kv_block *mote__kv_block_new(mote__kv_pool *p)
{
    pthread_mutex_lock(&p->mutex);
    /* the newest slab is first; older ones are mostly full */
    mote__kv_slab *s = p->slabs;
    while (s && !s->free && s->n_ready == s->n_blocks)
        s = s->next;
    if (!s)
        s = slab_new(p, p->n_slabs < 2   ? 1
                        : p->n_slabs < 6 ? (size_t)1 << (p->n_slabs - 1)
                                         : SLAB_BLOCKS);
    mote__kv_block *b = NULL;
    if (s) {
        if (!s->free)
            slab_ready(p, s, STEP_BLOCKS);
        b = s->free;
        s->free = b->next_free;
        s->n_used++;
        p->n_blocks_used++;
        /* fresh pages are zero; nothing of an earlier owner may reach a disk */
        if (b->used)
            p->memory->ops->zero(p->memory, b->at, p->layout.block_bytes);
        b->used = 1;
        atomic_store(&b->refs, 1);
        account(p, 1);
    }
    pthread_mutex_unlock(&p->mutex);
    return b;
}

void mote__kv_pool_expect(mote__kv_pool *p, size_t n_blocks)
{
    size_t n = n_blocks < MOTE_POOL_EXPECTED ? n_blocks : MOTE_POOL_EXPECTED;
    if (n <= SLAB_BLOCKS)
        return;
    pthread_mutex_lock(&p->mutex);
    mote__kv_slab *s = slab_new(p, n);
    if (s)
        slab_ready(p, s, n);
    pthread_mutex_unlock(&p->mutex);
}

mote__kv_block *mote__kv_block_ref(mote__kv_block *b)
{
    atomic_fetch_add(&b->refs, 1);
    return b;
}

void mote__kv_block_unref(mote__kv_pool *p, mote__kv_block *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
        return;
    pthread_mutex_lock(&p->mutex);
    mote__kv_slab *s = b->slab;
    b->next_free = s->free;
    s->free = b;
    p->n_blocks_used--;
    account(p, 0);
    if (--s->n_used == 0)
        slab_free(p, s);
    pthread_mutex_unlock(&p->mutex);
}

/* ---- bytes ---- */

void mote__kv_block_get(const mote__kv_pool *p, const mote__kv_block *b, size_t offset, void *to,
                        size_t n)
{
    assert(offset + n <= p->layout.block_bytes);
    p->memory->ops->to_host(p->memory, to, mote__kv_addr_plus(b->at, offset), n);
}

void mote__kv_block_put(const mote__kv_pool *p, mote__kv_block *b, size_t offset, const void *from,
                        size_t n)
{
    assert(offset + n <= p->layout.block_bytes);
    p->memory->ops->from_host(p->memory, mote__kv_addr_plus(b->at, offset), from, n);
}

void mote__kv_block_copy(const mote__kv_pool *p, mote__kv_block *to, const mote__kv_block *from)
{
    p->memory->ops->copy(p->memory, to->at, from->at, p->layout.block_bytes);
}

int mote__kv_view_open(mote__kv_view *v, const mote__kv_pool *p, const mote__kv_block *b, int read)
{
    size_t n = p->layout.block_bytes;
    *v = (mote__kv_view){ .is_copy = !p->memory->ops->in_place };
    v->bytes = v->is_copy ? mote__alloc(p->meter, MOTE_MEM_KV_SLACK, n) : mote__kv_block_here(b);
    if (!v->bytes)
        return MOTE_ENOMEM;
    if (v->is_copy && read)
        mote__kv_block_get(p, b, 0, v->bytes, n);
    return 0;
}

void mote__kv_view_close(mote__kv_view *v, const mote__kv_pool *p, mote__kv_block *b, int write)
{
    size_t n = p->layout.block_bytes;
    if (v->is_copy && v->bytes) {
        if (write)
            mote__kv_block_put(p, b, 0, v->bytes, n);
        mote__free(p->meter, MOTE_MEM_KV_SLACK, v->bytes, n);
    }
    *v = (mote__kv_view){ 0 };
}
