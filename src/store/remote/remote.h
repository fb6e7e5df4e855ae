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
#include "store/tier.h"

enum { MOTE_REMOTE_KEY = 8 + 2 * MOTE_STORE_ID, MOTE_REMOTE_IN_FLIGHT = 16, MOTE_REMOTE_BAD = 64 };

typedef struct mote__upload {
    struct mote__upload *next;
    mote__slot slot;
    uint8_t head[MOTE_SLOT_HEAD];
    mote__kv_pool *pool;
    mote__kv_block *block; /* a reference */
} mote__upload;

typedef struct mote__tier {
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
int mote__remote_check_value(const mote__store_context *c, const mote__chain *chain,
                             const uint8_t *parent, const int32_t *ids, const uint8_t *value,
                             size_t n, mote__slot *slot, const char **why);

/* What the table of store/tier.h holds; contracts there. */
size_t mote__remote_find(mote__remote *r, const mote__store_context *c,
                         const mote__store_want *want, const int32_t *ids, size_t max,
                         mote__kv_pool *pool, mote__kv_block **blocks, mote__chain *chain);
void mote__remote_check_server(mote__tier_found *found, const mote__server *server, int timeout_ms);
/* The server with MOTE_REDIS_PASSWORD where it has no password of its own; to be wiped. */
mote__server mote__remote_login(const mote__server *server);
/* The block's value was found bad: the next put replaces it. */
void mote__remote_note_bad(mote__remote *r, const uint8_t *id);

#endif
