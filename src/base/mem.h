/* Memory: allocation with accounting by class, and a growing buffer with a ceiling.
 *
 * Every sizeable allocation of the library names its class; the meter then says, to the byte, who
 * holds what. What is counted is what was handed out (rounded to 64 bytes; whole pages for
 * mote__map_pages). Thread-safe: counters are atomics. */
#ifndef MOTE_BASE_MEM_H
#define MOTE_BASE_MEM_H

#include <stdatomic.h>
#include <stddef.h>

#include <mote/mote.h>

typedef struct mote__meter {
    _Atomic size_t bytes[MOTE_MEM_CLASSES]; /* held now, by class */
    _Atomic size_t peak;                    /* largest sum of all classes ever held */
    _Atomic size_t n_allocs;                /* calls that handed out memory, since birth */
} mote__meter;

/* 64-byte aligned, zero-filled. NULL when there is no memory (or the fault counter says so). size 0
 * gives a valid pointer. `meter` may be NULL (not accounted). Free with the same meter, class and
 * size. */
void *mote__alloc(mote__meter *meter, mote_mem_class cls, size_t size);
void mote__free(mote__meter *meter, mote_mem_class cls, void *ptr, size_t size);

/* Whole pages straight from the system, zero-filled, touched only when written; `size` is rounded
 * up to pages and the rounded size is what mote__unmap_pages must be given. */
void *mote__map_pages(mote__meter *meter, mote_mem_class cls, size_t *size);
void mote__unmap_pages(mote__meter *meter, mote_mem_class cls, void *ptr, size_t size);
/* The same, beginning at a large page (2 MiB) and asking the system for large ones: a page is
 * touched as a whole then. */
void *mote__map_large_pages(mote__meter *meter, mote_mem_class cls, size_t *size);
enum { MOTE_LARGE_PAGE = 2 << 20 };

/* Bytes that could be handed out now without swapping: mote__ram_of("").available (base/limit.h).
 */
uint64_t mote__memory_available(void);

/* Account for memory that somebody else allocated (a mapped file, a library). */
void mote__meter_add(mote__meter *meter, mote_mem_class cls, size_t size);
void mote__meter_sub(mote__meter *meter, mote_mem_class cls, size_t size);
size_t mote__meter_total(const mote__meter *meter);

/* A list of items that grows by doubling: makes room for one more than the n that are there.
 * `list`: the address of a pointer to *room items, NULL and 0 at first; freed by
 * mote__list_free. 0, or MOTE_ENOMEM with the list as it was. */
int mote__list_grow(mote__meter *meter, mote_mem_class cls, void *list, size_t n, size_t *room,
                    size_t item_bytes);
void mote__list_free(mote__meter *meter, mote_mem_class cls, void *list, size_t room,
                     size_t item_bytes);

/* A buffer that grows by doubling (geometric growth, never shrinks before deinit), accounted under
 * one class. */
typedef struct mote__buf {
    void *data;            /* owned */
    size_t size, capacity; /* bytes */
    mote__meter *meter;    /* borrowed, may be NULL */
    mote_mem_class cls;
} mote__buf;
void mote__buf_init(mote__buf *b, mote__meter *meter, mote_mem_class cls);
void mote__buf_deinit(mote__buf *b);
/* Make room for `capacity` bytes in all; contents are kept. 0 or MOTE_ENOMEM. */
int mote__buf_reserve(mote__buf *b, size_t capacity);
/* Append n bytes. 0 or MOTE_ENOMEM. */
int mote__buf_append(mote__buf *b, const void *bytes, size_t n);

/* Between arrays that share one allocation: under ASan a gap that must not be touched, otherwise
 * nothing. Opened before it is freed. */
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

/* Tests: make the n-th allocation from now (1 = the next) and all later ones fail; 0 = never. */
extern _Atomic long mote__alloc_fail_at;

/* a*b and a+b, or SIZE_MAX on overflow (which no allocation can satisfy). */
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
