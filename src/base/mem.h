/* Memory: allocation with accounting by class, and a growing buffer.
 *
 * What lives as long as a model, a session or a store is counted by its meter. What a call hands to
 * the caller (to be freed with mote_free) or frees before it returns is not, and may come from
 * malloc.
 *
 * Every sizeable allocation names its class, and the meter holds the bytes of each class. Counted
 * sizes are rounded as allocated: to 64 bytes, or to whole pages by mote__map_pages. Any thread may
 * use a meter: its counters are atomic. */
#ifndef MOTE_BASE_MEM_H
#define MOTE_BASE_MEM_H

#include <stdatomic.h>
#include <stddef.h>

#include <mote/mote.h>

typedef struct mote__meter {
    _Atomic size_t bytes[MOTE_MEM_CLASSES]; /* now, by class */
    _Atomic size_t peak;                    /* largest total so far */
    _Atomic size_t n_allocs;                /* successful allocations so far */
} mote__meter;

/* Allocate zero-filled memory, 64-byte aligned; owned by the caller. NULL: out of memory, or
 * mote__alloc_fail_at. Size 0 gives a valid pointer. `meter` may be NULL: not accounted. Free with
 * the same meter, class and size; ptr may be NULL. */
void *mote__alloc(mote__meter *meter, mote_mem_class cls, size_t size);
void mote__free(mote__meter *meter, mote_mem_class cls, void *ptr, size_t size);

/* Map whole zero-filled pages; the system backs a page when it is first written. *size is rounded
 * up to pages, and mote__unmap_pages must get the rounded size. NULL: *size is 0, out of memory, or
 * mote__alloc_fail_at. */
void *mote__map_pages(mote__meter *meter, mote_mem_class cls, size_t *size);
void mote__unmap_pages(mote__meter *meter, mote_mem_class cls, void *ptr, size_t size);
/* The same, aligned to a large page (2 MiB) and advised to use large pages; the first write to one
 * may then back all its 2 MiB. *size is rounded to normal pages. */
void *mote__map_large_pages(mote__meter *meter, mote_mem_class cls, size_t *size);
enum { MOTE_LARGE_PAGE = 2 << 20 };

/* Bytes that can be allocated now without swapping: mote__ram_of("").available (base/limit.h). */
uint64_t mote__memory_available(void);

/* Account for `size` bytes that were not allocated here (a mapped file, another library). `meter`
 * may be NULL. */
void mote__meter_add(mote__meter *meter, mote_mem_class cls, size_t size);
void mote__meter_sub(mote__meter *meter, mote_mem_class cls, size_t size);
/* The sum of all classes, in bytes. */
size_t mote__meter_total(const mote__meter *meter);

/* A list of items that grows by doubling: makes room for one more than the n that are there.
 * `list`: the address of a pointer to *room items, NULL and 0 at first; freed by
 * mote__list_free. 0, or MOTE_ENOMEM with the list as it was. */
int mote__list_grow(mote__meter *meter, mote_mem_class cls, void *list, size_t n, size_t *room,
                    size_t item_bytes);
void mote__list_free(mote__meter *meter, mote_mem_class cls, void *list, size_t room,
                     size_t item_bytes);

/* A byte buffer that at least doubles when it grows and never shrinks; accounted under one
 * class. */
typedef struct mote__buf {
    void *data;            /* owned */
    size_t size, capacity; /* in bytes */
    mote__meter *meter;    /* borrowed, may be NULL */
    mote_mem_class cls;
} mote__buf;
void mote__buf_init(mote__buf *b, mote__meter *meter, mote_mem_class cls);
void mote__buf_deinit(mote__buf *b);
/* Grow the capacity to at least `capacity` bytes; data may move, contents are kept. 0, or
 * MOTE_ENOMEM with *b unchanged. */
int mote__buf_reserve(mote__buf *b, size_t capacity);
/* Append bytes[0..n), which must not lie in *b. 0, or MOTE_ENOMEM with *b unchanged. */
int mote__buf_append(mote__buf *b, const void *bytes, size_t n);

/* Gaps between arrays that share one allocation. Under ASan a closed gap is poisoned, so that a
 * read or write there is reported; call mote__gaps_open on the allocation before it is freed.
 * Otherwise a gap has no bytes. */
#if defined(__SANITIZE_ADDRESS__)
#define MOTE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MOTE_ASAN 1
#endif
#endif
#ifdef MOTE_ASAN
#include <sanitizer/asan_interface.h>
enum { MOTE_GAP = 64 };
static inline void mote__gap_close(void *at) { ASAN_POISON_MEMORY_REGION(at, MOTE_GAP); }
static inline void mote__gaps_open(void *p, size_t size) { ASAN_UNPOISON_MEMORY_REGION(p, size); }
#else
enum { MOTE_GAP = 0 };
static inline void mote__gap_close(void *at) { (void)at; }
static inline void mote__gaps_open(void *p, size_t size) { (void)p, (void)size; }
#endif

/* For tests: the n-th allocation from now (1: the next) and all later ones fail; 0: none fails. */
extern _Atomic long mote__alloc_fail_at;

/* Up to a multiple of 64: a cache line, and what vectors want. */
static inline size_t mote__round64(size_t n) { return (n + 63) & ~(size_t)63; }
/* a * b and a + b; SIZE_MAX on overflow, so that an allocation of the result fails. */
static inline size_t mote__mul(size_t a, size_t b)
{
    size_t r;
    return __builtin_mul_overflow(a, b, &r) ? (size_t)-1 : r;
}
static inline size_t mote__add(size_t a, size_t b)
{
    size_t r;
    return __builtin_add_overflow(a, b, &r) ? (size_t)-1 : r;
}

#endif
