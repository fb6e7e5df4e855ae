/* The tier behind the directory, as a table of functions. The store calls it and knows nothing of
 * servers or protocols; store/remote/ implements it, and a build without that has none
 * (mote__tier_remote is NULL then, see store/tier_none.c).
 *
 * Threads: find, send, flush, stat and note_bad may be called from any thread while the tier is
 * open. */
#ifndef MOTE_STORE_TIER_H
#define MOTE_STORE_TIER_H

#include "store/slot.h"
#include "store/url.h"

typedef struct mote__tier mote__tier;

/* What is so at this moment; sums since opening are in mote__store_counts. */
typedef struct mote__tier_stat {
    size_t queued_blocks; /* to be sent, those under way included */
    size_t n_servers, n_servers_down;
} mote__tier_stat;

/* What one server answers to a check. */
typedef struct mote__tier_found {
    char name[400];             /* never a user or a password */
    char version[64], mode[32]; /* "": not known */
    char failure[300];          /* "": it can be used */
    double round_trip_ms;       /* 0: not measured */
    int n_known;                /* servers of its cluster, itself included */
} mote__tier_found;

typedef struct mote__tier_ops {
    const char *library; /* version of the client library */
    /* servers: n of them, not kept. Whatever fails, *tier is for close (which takes NULL). 0 or
     * MOTE_ENOMEM. */
    int (*open)(mote__tier **tier, mote__store *s, const mote__server *servers, size_t n,
                mote_err *err);
    void (*close)(mote__tier *tier); /* sends what is queued, within bounds */
    /* mote__store_match, from where the directory ended, to at most `max` blocks. */
    size_t (*find)(mote__tier *tier, const mote__store_context *c, const mote__store_want *want,
                   const int32_t *ids, size_t max, mote__kv_pool *pool, mote__kv_block **blocks,
                   mote__chain *chain);
    /* Queue a block: its time to live is renewed, or it is sent. Never waits. */
    void (*send)(mote__tier *tier, const mote__slot *slot, const uint8_t *head, mote__kv_pool *pool,
                 mote__kv_block *block);
    /* until all that was queued before was sent or given up */
    void (*flush)(mote__tier *tier);
    void (*stat)(mote__tier *tier, mote__tier_stat *stat);
    /* One server: reached, logged in, a value written, read, removed. Needs no open tier. *found is
     * filled whatever happens. timeout_ms 0: the tier's own. */
    void (*check)(mote__tier_found *found, const mote__server *server, int timeout_ms);
} mote__tier_ops;

/* The tier of servers that speak Redis' protocol; NULL where it was not built. */
extern const mote__tier_ops *const mote__tier_remote;

/* check.c: MOTE_EUNSUPPORTED, for a place with servers where there is no tier for them. */
int mote__tier_missing(mote_err *err);

#endif
