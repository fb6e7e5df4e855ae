/* The remote tier: the same blocks by identity in a server or cluster that speaks Redis' protocol.
 *
 * Key: "mote:b1:" and the identity in hexadecimal; value: the whole slot, checked on arrival like
 * one from disk. Finding goes on where the directory ended, many blocks in flight, in the thread
 * that asks. Writing is done by one thread behind a bounded queue, which also renews the time to
 * live of what was used, and asks servers that were down whether they are back.
 *
 * A server that is down costs whoever finds at most the time-out, once; until the thread has heard
 * from it, nobody asks. */
#ifndef MOTE_STORE_REMOTE_REMOTE_H
#define MOTE_STORE_REMOTE_REMOTE_H

#include "store/remote/cluster.h"
#include "store/slot.h"

enum { MOTE_REMOTE_KEY = 8 + 2 * MOTE_STORE_ID, MOTE_REMOTE_IN_FLIGHT = 16, MOTE_REMOTE_BAD = 64 };

typedef struct mote__upload {
    struct mote__upload *next;
    mote__slot slot;
    uint8_t head[MOTE_SLOT_HEAD];
    mote__kv_pool *pool;
    mote__kv_block *block; /* a reference */
} mote__upload;

typedef struct mote__remote {
    mote__store *store;
    mote__cluster cluster;
    pthread_mutex_t find_mutex; /* of `finder`; taken before all locks of the store */
    mote__client finder, sender;
    int timeout_ms, close_ms;

    pthread_t thread;
    int running;
    /* the queue and `bad`; nothing else is taken under it */
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    mote__upload *first, *last;
    size_t n_waiting;
    uint64_t n_put, n_done;
    int64_t close_at; /* ms */
    _Atomic int stop;
    /* values that were found bad: the next put replaces them */
    uint8_t bad[MOTE_REMOTE_BAD][MOTE_STORE_ID];
    size_t n_bad;
} mote__remote;

void mote__remote_key(char key[MOTE_REMOTE_KEY + 1], const uint8_t *id);
/* Whether a value is the block that `chain` ends with, below `parent`: 0, or MOTE_EFORMAT and *why.
 */
int mote__remote_check(const mote__store_context *c, const mote__chain *chain,
                       const uint8_t *parent, const int32_t *ids, const uint8_t *value, size_t n,
                       mote__slot *slot, const char **why);

int mote__remote_open(mote__remote **r, mote__store *s, const mote__server *servers, size_t n,
                      mote_err *err);
void mote__remote_close(mote__remote *r); /* sends what is queued, within bounds */
/* mote__store_match, from where the directory ended, to at most `max` blocks. */
size_t mote__remote_match(mote__remote *r, const mote__store_context *c,
                          const mote__store_want *want, const int32_t *ids, size_t max,
                          mote__kv_pool *pool, mote__kv_block **blocks, mote__chain *chain);
/* Queue a block: its time to live is renewed, or it is sent. Never waits. */
void mote__remote_put(mote__remote *r, const mote__slot *slot, const uint8_t *head,
                      mote__kv_pool *pool, mote__kv_block *block);
/* until all that was put before was sent or given up */
void mote__remote_flush(mote__remote *r);
void mote__remote_note_bad(mote__remote *r, const uint8_t *id);

#endif
