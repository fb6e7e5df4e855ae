/* The persistent prefix store: blocks of 256 tokens of global KV and snapshots of sequences, in one
 * directory that several processes may use at once, and behind it, perhaps, the same blocks in a
 * server (store/remote/remote.h).
 *
 * The store gives back exactly what was put under the same context, tokens and provenance, or
 * nothing: checksum, identity, parent, generation and token ids of a block are compared after it
 * was read, and its index entry is read again, before anybody sees it. Every failure is a line
 * through the log callback and a miss; nothing here ends a run.
 *
 * A *context* says what makes KV interchangeable besides the tokens. A *chain* is a place in a
 * prefix: so many whole blocks, and the identity of the last of them. Identities hash the parent's,
 * so that one names the whole prefix. Layout: docs/format-store.md.
 *
 * Threads: match, put, snapshot and flush may be called from any thread. One background thread does
 * all writing, another all sending. Blocks in their queues hold references, so mote_store_close
 * (without servers, mote__store_flush will do) comes before the pool's end. */
#ifndef MOTE_STORE_STORE_H
#define MOTE_STORE_STORE_H

#include "base/err.h"
#include "kv/block_pool.h"
#include "store/io.h"

enum {
    MOTE_STORE_VERSION = 1,
    /* bytes of an identity */
    MOTE_STORE_ID = 16,
    /* SHA-256 */
    MOTE_STORE_DIGEST = 32,
    /* a context in words, for `mote kv ls`, 0-terminated */
    MOTE_STORE_LABEL = 192,
    /* bytes of a snapshot's blob */
    MOTE_STORE_MAX_SNAPSHOT = 256 << 20
};

/* ---- contexts and chains ---- */

typedef struct mote__store_context_desc {
    /* [32], of the model */
    const uint8_t *fingerprint;
    /* mote__kv_spec_text: main, index and window formats */
    const char *kv;
    /* "fp32/3", "published/3": mode and MOTE_KERN_DEFINITION */
    const char *math;
    /* NULL = ""; prefixes are shared only inside one */
    const char *name_space;
    /* of the layout; 256 */
    size_t block_bytes, block_tokens;
    /* what else shapes a prefix: sources and ratios, e.g. "2/2,8/2,14/2,20/1" */
    const char *geometry;
} mote__store_context_desc;

typedef struct mote__store_context {
    /* over all of the above */
    uint8_t hash[MOTE_STORE_DIGEST];
    size_t block_bytes;
    /* "ns=... kv=... math=... model=<8 hex digits>", cut if too long */
    char label[MOTE_STORE_LABEL];
} mote__store_context;

/* MOTE_EINVAL: block_bytes 0 or more than 1 GiB, block_tokens not 256. */
int mote__store_context_init(mote__store_context *c, const mote__store_context_desc *desc,
                             mote_err *err);

typedef struct mote__chain {
    /* whole blocks; the first n_exact of them are exact (all others approximate) */
    size_t n_blocks, n_exact;
    /* of the last block; zeros at the root */
    uint8_t id[MOTE_STORE_ID];
} mote__chain;
/* { 0 } is the root */

/* The block of 256 ids that follows `chain`. Below an approximate block everything is approximate,
 * whatever `exact` says. */
mote__chain mote__chain_next(const mote__store_context *c, const mote__chain *chain,
                             const int32_t *ids, int exact);
static inline int mote__chain_exact(const mote__chain *chain)
{
    return chain->n_exact == chain->n_blocks;
}

/* ---- opening ---- */

typedef struct mote_store mote__store;

/* Beyond the public mote_store_params; all may be 0. */
typedef struct mote__store_tuning {
    /* NULL: the system's */
    const mote__store_io *io;
    /* waiting puts before new ones are dropped; 0 = 1024 */
    size_t queue_items;
    /* largest segment file; 0 = 4 GiB */
    size_t segment_bytes;
    /* 0 = 16 */
    size_t reads_in_flight;
    /* 1: one pread after the other, through the page cache */
    int no_uring;
    /* seconds since 1970; NULL: the system's clock */
    int64_t (*now)(void *ctx);
    void *now_ctx;
    /* without an answer from a server; 0 = 200 */
    int remote_timeout_ms;
    /* until a server that is down is tried again; 0 = 5000, then doubling to 12 times that */
    int remote_retry_ms;
    /* for sending what is queued at the end; 0 = 5000 */
    int remote_close_ms;
} mote__store_tuning;

/* place: the directory, and servers behind it (store/url.h). Creates the directory (0700) and the
 * index where they are missing; a damaged index is made anew from the segments. MOTE_EIO,
 * MOTE_EVERSION (made by a newer mote), MOTE_ENOMEM. tuning may be NULL. */
int mote__store_open(mote__store **store, const char *place, const mote_store_params *params,
                     const mote__store_tuning *tuning, mote_err *err);
/* mote_store_close(store) of the public header writes what is queued and closes. */
const char *mote__store_dir(const mote__store *store);
int mote__store_writable(const mote__store *store);

/* ---- blocks ---- */

typedef struct mote__store_want {
    /* 1: exact blocks only; 0: at each place the exact one, else the approximate one */
    int exact_only;
    /* of the whole chain; 0 = as many as there are ids for */
    size_t max_blocks;
    /* NULL, or a snapshot's chain: only the blocks that lead to it */
    const mote__chain *follow;
    /* NULL, or counts those that came from a server */
    size_t *n_remote;
} mote__store_want;

/* Extend `chain` (the root, or where another tier stopped) along ids, which begin at token 0 of the
 * sequence, by stored blocks and by those that wait to be written. Block i goes into blocks[i]
 * (room for n_ids / 256 pointers), taken from `pool`, one reference each, for the caller. Stops at
 * the first block that is missing, expired or damaged (that one is dropped from the store). Returns
 * the number of blocks added; every failure is logged and ends the walk. want may be NULL. */
size_t mote__store_match(mote__store *store, const mote__store_context *c,
                         const mote__store_want *want, const int32_t *ids, size_t n_ids,
                         mote__kv_pool *pool, mote__kv_block **blocks, mote__chain *chain);

/* How far the directory's index and the queue lead along ids, as mote__store_match would go; no
 * block is read, no server is asked. Any thread. */
void mote__store_probe(mote__store *store, const mote__store_context *c, const int32_t *ids,
                       size_t n_ids, mote__chain *chain);

typedef enum mote__store_put_result { MOTE_PUT_QUEUED, MOTE_PUT_DROPPED } mote__store_put_result;
/* Advance `chain` over a finished block and queue it for writing. Never waits for a disk: with a
 * full queue, a closed or a read-only store the block is dropped (and counted). What is stored
 * already is not written again. ids: the block's 256. */
mote__store_put_result mote__store_put(mote__store *store, const mote__store_context *c,
                                       mote__chain *chain, const int32_t *ids, int exact,
                                       mote__kv_pool *pool, mote__kv_block *block);

/* ---- snapshots ---- */

typedef struct mote__snapshot {
    /* the whole blocks before it */
    mote__chain chain;
    /* of the prefix in all: 256 n_blocks + tail, tail < 256 */
    size_t n_tokens;
    /* blocks and windows both */
    int exact;
    size_t origin; /* where the decoder's windows began: two states of the same tokens are equal
                      only if this is, too (docs/format-snapshot.md) */
    void *blob;    /* owned (from seek): mote__snapshot_free, before the store is closed */
    size_t blob_bytes;
    mote__meter *meter; /* of a blob from seek; borrowed */
} mote__snapshot;

/* Queue a snapshot of a sequence of n_tokens ids (all from token 0). The blob is copied. */
mote__store_put_result mote__store_keep_snapshot(mote__store *store, const mote__store_context *c,
                                                 const mote__snapshot *snapshot,
                                                 const int32_t *ids);

typedef struct mote__snapshot_want {
    int exact_only;
    int any_origin; /* 0: only what has this origin, or ends at or before it */
    size_t origin;
} mote__snapshot_want;
/* The longest snapshot whose tokens are a prefix of ids (the newest of equals) and whose last whole
 * block is stored; among equally long ones an exact one. Returns 1 and fills *snapshot, or 0.
 * Attach with mote__store_match(.follow = &snapshot->chain). */
int mote__store_seek_snapshot(mote__store *store, const mote__store_context *c, const int32_t *ids,
                              size_t n_ids, const mote__snapshot_want *want,
                              mote__snapshot *snapshot);
/* Tokens of the longest snapshot whose tokens are a prefix of ids, whatever its origin; 0: none.
 * Nothing is read but the index. */
size_t mote__store_peek_snapshot(mote__store *store, const mote__store_context *c,
                                 const int32_t *ids, size_t n_ids);
void mote__snapshot_free(mote__snapshot *snapshot);

/* ---- writing behind ---- */

/* Sums since the store was opened by this process; their meanings are in mote_store_stats. */
#define MOTE_STORE_COUNTS(X) \
    X(put_blocks)            \
    X(written_blocks)        \
    X(known_blocks)          \
    X(dropped_blocks)        \
    X(failed_blocks)         \
    X(put_snapshots)         \
    X(written_snapshots)     \
    X(known_snapshots)       \
    X(dropped_snapshots)     \
    X(failed_snapshots)      \
    X(matched_blocks)        \
    X(missed_blocks)         \
    X(read_bytes)            \
    X(written_bytes)         \
    X(found_snapshots)       \
    X(recent_snapshots)      \
    X(damaged_blocks)        \
    X(damaged_snapshots)     \
    X(evicted_blocks)        \
    X(rebuilds)              \
    X(remote_hits)           \
    X(remote_misses)         \
    X(remote_written)        \
    X(remote_known)          \
    X(remote_dropped)        \
    X(remote_errors)         \
    X(remote_damaged)
typedef struct mote__store_counts {
#define MOTE_X(name) uint64_t name;
    MOTE_STORE_COUNTS(MOTE_X)
#undef MOTE_X
} mote__store_counts;

/* Wait until all that was put before is written and synced, or has failed. counts may be NULL. Each
 * written_ or known_ block is then in the index and survives a crash. */
void mote__store_flush(mote__store *store, mote__store_counts *counts);
void mote__store_get_counts(mote__store *store, mote__store_counts *counts);

#endif
