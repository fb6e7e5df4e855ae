/* The memory that blocks lie in: the host's, or a device's. An address says where, and only the
 * memory's own functions (and kernels that run where it is) go there.
 *
 * Functions are done when they return, and may be called by several threads at once on different
 * bytes. */
#ifndef MOTE_KV_MEMORY_H
#define MOTE_KV_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* at 0: nowhere */
typedef struct mote__kv_addr {
    uintptr_t at;
} mote__kv_addr;
static inline mote__kv_addr mote__kv_addr_plus(mote__kv_addr a, size_t n)
{
    return (mote__kv_addr){ a.at + n };
}

typedef struct mote__kv_memory mote__kv_memory;
typedef struct mote__kv_memory_ops {
    const char *name;
    int in_place; /* 1: an address is a pointer that the host may follow at any time */
    /* zeros; *bytes is rounded up. at 0: no memory. */
    mote__kv_addr (*slab_new)(mote__kv_memory *m, size_t *bytes);
    void (*slab_free)(mote__kv_memory *m, mote__kv_addr slab, size_t bytes);
    void (*zero)(mote__kv_memory *m, mote__kv_addr to, size_t n);
    void (*copy)(mote__kv_memory *m, mote__kv_addr to, mote__kv_addr from, size_t n);
    void (*to_host)(mote__kv_memory *m, void *to, mote__kv_addr from, size_t n);
    void (*from_host)(mote__kv_memory *m, mote__kv_addr to, const void *from, size_t n);
} mote__kv_memory_ops;

struct mote__kv_memory {
    const mote__kv_memory_ops *ops;
};

/* The host's. Slabs of 4 MiB and more ask for large pages. */
mote__kv_memory *mote__kv_host_memory(void);

#endif
