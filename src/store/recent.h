/* The newest snapshots of this process in memory: found before the writer has put them on the disk,
 * and without reading it. They are whole snapshot files, checked like those on disk when they are
 * used. Own budget and (short) time; the least recently used goes first. */
#ifndef MOTE_STORE_RECENT_H
#define MOTE_STORE_RECENT_H

#include <pthread.h>

#include "base/mem.h"
#include "store/index.h"

enum { MOTE_RECENT_MAX = 256 };

typedef struct mote__recent_entry {
    mote__snap_entry e;
    uint8_t context[MOTE_STORE_DIGEST];
    uint8_t *file;
    uint64_t turn;
} mote__recent_entry;
typedef struct mote__recent {
    pthread_mutex_t mutex;
    mote__meter *meter; /* borrowed */
    uint64_t budget, bytes, turn;
    int64_t ttl; /* seconds; negative: never */
    size_t n;
    mote__recent_entry entries[MOTE_RECENT_MAX];
} mote__recent;

/* 1: a comes first: longest, then exact, then newest; the key decides between equals. The order of
 * mote__index_snapshot_on. */
int mote__snap_before(const mote__snap_entry *a, const mote__snap_entry *b);

void mote__recent_init(mote__recent *r, uint64_t budget, int64_t ttl, mote__meter *meter);
void mote__recent_deinit(mote__recent *r);
/* Keeps a copy of file[e->bytes]; one that is larger than the budget is left out. */
void mote__recent_put(mote__recent *r, const mote__snap_entry *e, const uint8_t *context,
                      const uint8_t *file, int64_t now);
/* As mote__index_snapshot_on, of one context: the skip-th; MOTE_INDEX_NONE. */
int mote__recent_on(mote__recent *r, const uint8_t *context, const uint8_t *tokens,
                    uint32_t max_tail, int64_t skip, int64_t now, mote__snap_entry *e);
/* A copy of the file (the meter's, MOTE_MEM_SCRATCH), used now; NULL: not here. */
uint8_t *mote__recent_get(mote__recent *r, const uint8_t *key, size_t *n, int64_t now);
void mote__recent_drop(mote__recent *r, const uint8_t *key); /* NULL: all */
void mote__recent_sum(mote__recent *r, uint64_t *n, uint64_t *bytes);

#endif
