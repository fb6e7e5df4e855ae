/* Allocation, the meter and the growing buffer; see the header. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limit.h"

_Atomic long mote__alloc_fail_at;

/* Whether the fault counter makes this allocation fail. */
static int fault(void)
{
    long at = atomic_load_explicit(&mote__alloc_fail_at, memory_order_relaxed);
    if (at <= 0)
        return 0;
    if (at == 1)
        return 1;
    atomic_fetch_sub(&mote__alloc_fail_at, 1);
    return 0;
}

void mote__meter_add(mote__meter *meter, mote_mem_class cls, size_t size)
{
    if (!meter)
        return;
    atomic_fetch_add(&meter->bytes[cls], size);
    size_t total = mote__meter_total(meter), peak = atomic_load(&meter->peak);
    while (total > peak && !atomic_compare_exchange_weak(&meter->peak, &peak, total))
        ;
}

void mote__meter_sub(mote__meter *meter, mote_mem_class cls, size_t size)
{
    if (meter)
        atomic_fetch_sub(&meter->bytes[cls], size);
}

size_t mote__meter_total(const mote__meter *meter)
{
    size_t total = 0;
    for (int i = 0; i < MOTE_MEM_CLASSES; i++)
        total += atomic_load_explicit(&((mote__meter *)meter)->bytes[i], memory_order_relaxed);
    return total;
}

static size_t round64(size_t size) { return size ? (size + 63) & ~(size_t)63 : 64; }

void *mote__alloc(mote__meter *meter, mote_mem_class cls, size_t size)
{
    if (size > (size_t)1 << 47 || fault())
        return NULL;
    size_t rounded = round64(size);
    void *p = aligned_alloc(64, rounded);
    if (!p)
        return NULL;
    memset(p, 0, rounded);
    if (meter)
        atomic_fetch_add(&meter->n_allocs, 1);
    mote__meter_add(meter, cls, rounded);
    return p;
}

void mote__free(mote__meter *meter, mote_mem_class cls, void *ptr, size_t size)
{
    if (!ptr)
        return;
    mote__meter_sub(meter, cls, round64(size));
    free(ptr);
}

void *mote__map_pages(mote__meter *meter, mote_mem_class cls, size_t *size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (*size == 0 || *size > (size_t)1 << 47 || fault())
        return NULL;
    size_t rounded = (*size + page - 1) / page * page;
    void *p = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    *size = rounded;
    if (meter)
        atomic_fetch_add(&meter->n_allocs, 1);
    mote__meter_add(meter, cls, rounded);
    return p;
}

void *mote__map_large_pages(mote__meter *meter, mote_mem_class cls, size_t *size)
{
    size_t whole = *size ? mote__add(*size, MOTE_LARGE_PAGE) : 0;
    char *p = mote__map_pages(NULL, cls, &whole);
    if (!p)
        return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), rounded = (*size + page - 1) / page * page;
    size_t before = (MOTE_LARGE_PAGE - (uintptr_t)p % MOTE_LARGE_PAGE) % MOTE_LARGE_PAGE,
           after = whole - before - rounded;
    if (before)
        munmap(p, before);
    if (after)
        munmap(p + before + rounded, after);
    madvise(p + before, rounded, MADV_HUGEPAGE);
    *size = rounded;
    if (meter)
        atomic_fetch_add(&meter->n_allocs, 1);
    mote__meter_add(meter, cls, rounded);
    return p + before;
}

void mote__unmap_pages(mote__meter *meter, mote_mem_class cls, void *ptr, size_t size)
{
    if (!ptr)
        return;
    munmap(ptr, size);
    mote__meter_sub(meter, cls, size);
}

uint64_t mote__memory_available(void) { return mote__ram_of("").available; }

int mote__list_grow(mote__meter *meter, mote_mem_class cls, void *list, size_t n, size_t *room,
                    size_t item_bytes)
{
    void *old, *grown;
    if (n < *room)
        return 0;
    size_t more = *room ? mote__mul(2, *room) : 16;
    memcpy(&old, list, sizeof old);
    grown = mote__alloc(meter, cls, mote__mul(more, item_bytes));
    if (!grown)
        return MOTE_ENOMEM;
    if (n)
        memcpy(grown, old, n * item_bytes);
    mote__list_free(meter, cls, old, *room, item_bytes);
    memcpy(list, &grown, sizeof grown);
    *room = more;
    return 0;
}

void mote__list_free(mote__meter *meter, mote_mem_class cls, void *list, size_t room,
                     size_t item_bytes)
{
    mote__free(meter, cls, list, mote__mul(room, item_bytes));
}

void mote__buf_init(mote__buf *b, mote__meter *meter, mote_mem_class cls)
{
    *b = (mote__buf){ .meter = meter, .cls = cls };
}

void mote__buf_deinit(mote__buf *b)
{
    mote__free(b->meter, b->cls, b->data, b->capacity);
    *b = (mote__buf){ .meter = b->meter, .cls = b->cls };
}

int mote__buf_reserve(mote__buf *b, size_t capacity)
{
    if (capacity <= b->capacity)
        return 0;
    size_t grown = b->capacity * 2 > capacity ? b->capacity * 2 : capacity;
    void *p = mote__alloc(b->meter, b->cls, grown);
    if (!p)
        return MOTE_ENOMEM;
    if (b->size)
        memcpy(p, b->data, b->size);
    mote__free(b->meter, b->cls, b->data, b->capacity);
    b->data = p;
    b->capacity = grown;
    return 0;
}

int mote__buf_append(mote__buf *b, const void *bytes, size_t n)
{
    if (mote__buf_reserve(b, mote__add(b->size, n)))
        return MOTE_ENOMEM;
    if (n)
        memcpy((char *)b->data + b->size, bytes, n);
    b->size += n;
    return 0;
}
