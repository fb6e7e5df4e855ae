#include "kv/memory.h"

#include <string.h>

#include "base/mem.h"

static mote__kv_addr slab_new(mote__kv_memory *m, size_t *bytes)
{
    (void)m;
    void *p = (*bytes < 2 * MOTE_LARGE_PAGE
                   ? mote__map_pages
                   : mote__map_large_pages)(NULL, MOTE_MEM_KV_SLACK, bytes);
    return (mote__kv_addr){ (uintptr_t)p };
}

static void slab_free(mote__kv_memory *m, mote__kv_addr slab, size_t bytes)
{
    (void)m;
    mote__unmap_pages(NULL, MOTE_MEM_KV_SLACK, (void *)slab.at, bytes);
}

static void zero(mote__kv_memory *m, mote__kv_addr to, size_t n)
{
    (void)m;
    memset((void *)to.at, 0, n);
}

static void copy(mote__kv_memory *m, mote__kv_addr to, mote__kv_addr from, size_t n)
{
    (void)m;
    memcpy((void *)to.at, (const void *)from.at, n);
}

static void to_host(mote__kv_memory *m, void *to, mote__kv_addr from, size_t n)
{
    (void)m;
    memcpy(to, (const void *)from.at, n);
}

static void from_host(mote__kv_memory *m, mote__kv_addr to, const void *from, size_t n)
{
    (void)m;
    memcpy((void *)to.at, from, n);
}

mote__kv_memory *mote__kv_host_memory(void)
{
    static const mote__kv_memory_ops ops = {
        .name = "host",
        .in_place = 1,
        .slab_new = slab_new,
        .slab_free = slab_free,
        .zero = zero,
        .copy = copy,
        .to_host = to_host,
        .from_host = from_host,
    };
    static mote__kv_memory host = { &ops };
    return &host;
}
