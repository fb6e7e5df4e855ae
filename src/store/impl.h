/* The store from inside. Locks, in the order in which they are taken: `write_mutex` (the writing
 * connection, and everything that changes files), `read_mutex` (the reading connection),
 * `files_mutex`, `mutex` (queue, times of use), `log_mutex`. The remote tier's are in
 * store/remote/remote.h. */
#ifndef MOTE_STORE_IMPL_H
#define MOTE_STORE_IMPL_H

#include <pthread.h>

#include <jansson.h>

#include "base/mem.h"
#include "io/reads.h"
#include "store/index.h"
#include "store/recent.h"
#include "store/tier.h"
#include "store/vfs.h"
#include "base/path.h"

enum {
    MOTE_STORE_BATCH = 32,
    MOTE_STORE_TOUCHED = 16384,
    MOTE_STORE_NAME = 80,
    MOTE_STORE_WAIT_MS = 2000
};

/* file: its descriptors, of this fd and of direct_fd (the same file past the page cache, or -1).
 * writable: it may be written, and its header says that it is this segment. */
typedef struct mote__segfile {
    struct mote__segfile *next;
    uint32_t id;
    int fd, direct_fd, refs, dead, writable;
    mote__read_file file;
} mote__segfile;

typedef enum mote__item_kind {
    MOTE_ITEM_BLOCK,
    MOTE_ITEM_SNAPSHOT,
    MOTE_ITEM_DROP,
    MOTE_ITEM_DROP_SNAPSHOT
} mote__item_kind;
typedef enum mote__item_end {
    MOTE_ITEM_WAITING,
    MOTE_ITEM_WRITTEN,
    MOTE_ITEM_KNOWN,
    MOTE_ITEM_DROPPED,
    MOTE_ITEM_FAILED
} mote__item_end;
typedef struct mote__item {
    struct mote__item *next;
    mote__item_kind kind;
    mote__item_end end;
    /* of a block */
    mote__slot slot;
    uint8_t head[MOTE_SLOT_HEAD];
    /* the payload: of a block, which is released into its pool, or borrowed bytes (pool NULL) */
    const uint8_t *payload;
    mote__kv_pool *pool;
    mote__kv_block *block;
    /* of a snapshot; its file, owned when queued */
    mote__snapfile snap;
    uint8_t *file;
    size_t file_bytes;
    int owns_file;
    mote__entry entry; /* to drop */
} mote__item;

struct mote_store {
    char dir[MOTE_FOLDER_ROOM];
    mote_store_params params;
    const mote__store_io *io;
    mote__store_tuning tuning;
    mote__vfs *vfs;
    /* All that the store holds: OTHER, queues and tables; SCRATCH, while a function runs;
     * KV_WINDOW, the newest snapshots. */
    mote__meter meter;
    mote__tier *tier; /* of mote__tier_remote; NULL: the directory alone */
    uint64_t budget, snap_budget;
    int64_t ttl, snap_ttl; /* seconds; negative: never */
    int read_only, may_replace, lock_fd;
    /* somebody held the index at opening: it is read as it lies on the disk, without locks */
    int stale;
    /* For other processes. Whoever reads has patience of his own: a commit of ours that waits for a
     * reader who was stopped keeps our readers out until it is given up. */
    mote__waiting waiting, read_waiting;

    pthread_mutex_t write_mutex, read_mutex, files_mutex, mutex, log_mutex;
    mote__index writer, reader;
    /* Slots of transactions whose commit failed. What reached the disk of it may come back after a
     * crash; so nothing else is written there, and their locks stay ours, until a later commit has
     * succeeded. */
    mote__place doubtful[4 * MOTE_STORE_BATCH];
    size_t n_doubtful;
    int no_punch; /* room comes back by whole files alone */
    mote__segfile *files;

    pthread_t thread;
    int running;
    pthread_cond_t wake, done;
    mote__item *first, *last;                /* of the queue */
    mote__item *under_way[MOTE_STORE_BATCH]; /* taken from it, not yet done */
    size_t n_under_way;
    size_t n_waiting;
    uint64_t n_put, n_done, n_batches;
    int stop;
    /* used since the last write of times; [MOTE_STORE_TOUCHED] */
    uint8_t (*touched)[MOTE_STORE_ID];
    size_t n_touched;
    struct {
#define MOTE_X(name) _Atomic uint64_t name;
        MOTE_STORE_COUNTS(MOTE_X)
#undef MOTE_X
    } counts;
    mote__recent recent;    /* snapshots in memory; its lock is taken last */
    uint64_t rebuilds_told; /* by verify */
    _Atomic int damaged;    /* the index gave nonsense: it must be made anew */
    /* a segment is not what the index says: store/care.c */
    _Atomic int care_due;
    uint64_t mended, mended_told; /* what care has put right; by verify */
    int64_t retry_at;             /* not before: for an index that could not be opened */

    struct {
        uint64_t hash;
        int64_t at;
    } said[16];
    size_t n_said;
};

/* One more, or n more, of what `counts` counts; from any thread. */
static inline void mote__count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- store.c ---- */
int64_t mote__store_now(const mote__store *s);
/* One line; the same one again within a minute is left out. */
void mote__store_log(mote__store *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* An index call failed: says so, and marks a damaged index. Returns rc. */
int mote__store_index_failed(mote__store *s, const mote__index *x, int rc, const char *what);
void mote__store_path(const mote__store *s, char path[MOTE_PATH_ROOM], const char *name);
/* ---- files.c: files of the directory ---- */
/* Opens a regular file that is no symbolic link, without waiting for anybody. -1 and errno: ENXIO
 * where it is something else. */
int mote__store_open_file(const mote__store *s, const char *path, int flags, mode_t mode);
/* whether this errno of the above says that the name is taken by something else */
int mote__file_is_other(int e);
const char *mote__file_problem(int e); /* the sentence */
/* Nothing has this name any more: files and links are removed, anything else is renamed. 0 or
 * errno. */
int mote__store_clear_name(mote__store *s, const char *name);
/* Renames it to NAME.aside, or .aside-2 and so on, never over anything, and says so with `why`. 0
 * or errno. */
int mote__store_set_aside(mote__store *s, const char *name, const char *why);
/* Calls f for each file called <prefix><digits>.mote; the name without both goes along. */
int mote__store_list(const mote__store *s, const char *prefix, size_t digits,
                     int (*f)(void *ctx, const char *digits), void *ctx);
/* A word about a directory that others may write. */
void mote__store_judge_dir(mote__store *s);
/* With write_mutex held: make a damaged index usable again; 0 when it is usable. */
int mote__store_revive(mote__store *s);
/* For the functions that change a store: write_mutex taken and the index usable, or an error (and
 * nothing taken). */
int mote__store_enter(mote__store *s, mote_err *err);
/* where that failed: with an empty store */
int mote__store_begin_anew(mote__store *s, mote_err *err);
void mote__store_leave(mote__store *s);
/* ---- care.c: the index compared with the files, with write_mutex held ---- */
/* short: no more than a header's bytes, as a crash may leave it; what is unreadable may be sound.
 */
typedef enum mote__segment_state {
    MOTE_SEGMENT_SOUND,
    MOTE_SEGMENT_GONE,
    MOTE_SEGMENT_SHORT,
    MOTE_SEGMENT_FOREIGN,
    MOTE_SEGMENT_UNREADABLE,
    MOTE_SEGMENT_NO_MEMORY /* it was not looked at */
} mote__segment_state;
/* What is behind a segment's name, and the sizes that its header or, where that is damaged, its
 * first whole slot gives. mend: a damaged header is written again. *why: what is wrong, with the
 * header alone where the state is sound; else NULL. */
mote__segment_state mote__segment_look(mote__store *s, uint32_t id, int mend, mote__segment *g,
                                       const char **why);
/* Rows that do not fit the files or each other go or are put right, and each kind is told of once.
 * 0 or negative. */
int mote__store_care(mote__store *s);
/* ---- full.c: with write_mutex held ---- */
/* On a full disk: free slots, and where that is not enough the least recently used blocks, give
 * their room back before the index, which may need some, hears of it: until a small transaction is
 * possible or, with `much`, a large one. tell: that blocks gave way. */
enum { MOTE_STORE_ENOUGH = 1 << 20 }; /* bytes for the journal of some hundred rows */
void mote__store_make_way(mote__store *s, int much, int tell);
/* ---- rebuild.c: everything else has been shut out ---- */
typedef struct mote__rebuilt {
    uint64_t segments, slots, blocks, damaged, duplicates, snapshots, damaged_snapshots;
} mote__rebuilt;
int mote__store_make_index(mote__store *s, mote__rebuilt *r, mote_err *err);
/* Segments and snapshots go. */
void mote__store_remove_all(mote__store *s);
/* What is called like a segment and is none is set aside. */
void mote__store_sort_out(mote__store *s);
/* With write_mutex held, in any state (store.c). wipe: nothing is kept. */
int mote__store_rebuild_now(mote__store *s, int wipe, mote__rebuilt *r, mote_err *err);

/* ---- segment.c ---- */
void mote__segment_name(char name[32], uint32_t id);
static inline off_t mote__slot_offset(const mote__place *p)
{
    return (off_t)MOTE_SEGMENT_HEADER + (off_t)p->slot * (off_t)p->slot_bytes;
}
mote__segfile *mote__segfile_get(mote__store *s, uint32_t id); /* NULL and errno */
void mote__segfile_put(mote__store *s, mote__segfile *f);
/* close those whose file is gone */
void mote__segfiles_sweep(mote__store *s, int all);
void mote__segfile_kill(mote__store *s, uint32_t id);
/* 0, or errno; ENODATA: too short */
int mote__read_full(const mote__store *s, int fd, const struct iovec *iov, int n, off_t offset);
int mote__write_full(const mote__store *s, int fd, const struct iovec *iov, int n, off_t offset);
/* MOTE_INDEX_NONE: there is a file of that name already, which is left alone. */
int mote__segment_create(mote__store *s, uint32_t id, uint32_t payload_bytes, mote_err *err);
int mote__slot_lock(mote__store *s, const mote__place *p); /* 0: ours now */
void mote__slot_unlock(mote__store *s, const mote__place *p);
/* Read and check a whole slot. payload: slot_bytes of room, which the payload begins at
 * [MOTE_SLOT_HEAD]. 0, MOTE_EFORMAT (*why), MOTE_EIO, or MOTE_ENOMEM: it was not looked at. */
int mote__slot_load(mote__store *s, const mote__place *p, uint8_t *image, mote__slot *slot,
                    const char **why);
/* What an index entry promises, compared with what the slot says. */
int mote__slot_matches(const mote__slot *slot, const mote__entry *e, const char **why);

/* ---- write.c: with write_mutex held, a sound index ---- */
/* at most MOTE_STORE_BATCH, one payload size; sets `end` */
void mote__write_blocks(mote__store *s, mote__item **items, size_t n);
/* a commit that wrote something has succeeded */
void mote__doubts_end(mote__store *s);
/* inside a transaction of its own */
void mote__write_touched(mote__store *s);
int mote__drop_entries(mote__store *s, const mote__entry *entries, size_t n);
int mote__sync_segment(mote__store *s, uint32_t id); /* 0, or errno */

/* ---- evict.c: with write_mutex held, a sound index ---- */
typedef struct mote__entries {
    mote__entry *list;
    size_t n, room;
    mote__meter *meter; /* borrowed; MOTE_MEM_SCRATCH */
} mote__entries;
int mote__entries_add(mote__entries *l, const mote__entry *e); /* 0 or MOTE_ENOMEM */
void mote__entries_end(mote__entries *l);

/* Blocks that may go: those not used since `before` for which `keep` (may be NULL) says 0. */
typedef struct mote__victims {
    mote__entries heap;
    int64_t before;
    int (*keep)(void *ctx, const mote__entry *e);
    void *keep_ctx;
    int rc;
} mote__victims;
int mote__victims_find(mote__store *s, mote__victims *v, size_t max); /* max without children */
/* Drops the next one from the index, inside a transaction. MOTE_INDEX_NONE: none is left. */
int mote__victims_next(mote__store *s, mote__victims *v, mote__entry *e);
void mote__victims_end(mote__victims *v);
/* In as few transactions as there are thousands, until *bytes (of slots) is at most `enough` or *n
 * is max. */
int mote__remove_victims(mote__store *s, mote__victims *v, uint64_t *bytes, uint64_t enough,
                         uint64_t max, uint64_t *n);
int mote__remove_expired(mote__store *s, int64_t before, size_t max,
                         int (*keep)(void *ctx, const mote__entry *e), void *ctx, uint64_t *n);
/* Blocks with all their descendants. */
int mote__remove_trees(mote__store *s, const mote__entry *tops, size_t n_tops, uint64_t *n);

/* Free slots, sorted by place, become holes, and *bytes is the room given back; those that somebody
 * holds stay. Where a file system has no holes they are marked as never written. Changes the list.
 */
int mote__punch(mote__store *s, mote__place *places, size_t n, uint64_t *bytes);
/* Free slots of other payloads than this one (0: of all), until `enough` bytes came free. */
int mote__punch_idle(mote__store *s, uint32_t but_payload, uint64_t enough, uint64_t *bytes);
/* Room for `bytes` more: what lies idle goes first, then the least recently used. Slots of
 * own_payload stay, to be used again. 1: there is more now, perhaps not all of it; 0: nothing is
 * left to go; negative: a failure. */
int mote__make_room(mote__store *s, uint64_t bytes, uint32_t own_payload,
                    int (*keep)(void *ctx, const mote__entry *e), void *keep_ctx);

/* Snapshots to remove, the least recently used first. */
typedef struct mote__snap_choice {
    int64_t before;         /* not used since then; 0: whenever */
    uint64_t bytes, enough; /* bytes > 0: they take that, until it is `enough` */
    size_t max;
    int orphans; /* only those whose last block is gone */
    int (*keep)(void *ctx, const mote__snap_entry *e);
    void *keep_ctx;
} mote__snap_choice;
int mote__remove_snapshots(mote__store *s, const mote__snap_choice *by, uint64_t *n);

/* ---- queue.c ---- */
int mote__queue_start(mote__store *s);
void mote__queue_stop(mote__store *s);
/* 0: taken; the item is freed either way in the end */
int mote__queue_push(mote__store *s, mote__item *item, int even_if_full);
void mote__item_free(mote__store *s, mote__item *item);
/* Extend `chain` as mote__store_match does, by blocks that wait to be written or are being written:
 * shared where `pool` is theirs. */
size_t mote__queue_match(mote__store *s, const mote__store_context *c, const mote__store_want *want,
                         const int32_t *ids, size_t max, mote__kv_pool *pool,
                         mote__kv_block **blocks, mote__chain *chain);
int mote__queue_has(mote__store *s, const uint8_t *id);
uint64_t mote__queue_batches(
    mote__store *s); /* grows whenever some have left the queue for the index */
/* A block to be written: its head is made, its payload is the block. */
mote__store_put_result mote__queue_block(mote__store *s, const mote__slot *slot,
                                         const uint8_t *head, mote__kv_pool *pool,
                                         mote__kv_block *block);
void mote__queue_drop(mote__store *s, const mote__entry *e); /* a damaged block */
void mote__queue_drop_snapshot(mote__store *s, const uint8_t *key);
void mote__store_expire(mote__store *s, size_t max, uint64_t *n_blocks, uint64_t *n_snapshots);

/* ---- snapshot_file.c ---- */
void mote__snap_name(char name[64], const uint8_t *key);
/* 0, ENODATA, errno; the file is the store's MOTE_MEM_SCRATCH */
int mote__snap_load(mote__store *s, const uint8_t *key, uint8_t **file, size_t *n);
/* 1: the file is what the entry promises */
int mote__snap_matches(const mote__snapfile *s, const mote__snap_entry *e);
/* what the index will say of a queued one, used now */
mote__snap_entry mote__snap_entry_of(const mote__store *s, const mote__item *it);
void mote__write_snapshot(mote__store *s, mote__item *item); /* write_mutex held */
/* Both with write_mutex held, outside a transaction. Entries and files; 0 or negative. */
int mote__drop_snapshots(mote__store *s, const uint8_t (*keys)[MOTE_STORE_ID], size_t n);
void mote__drop_snapshot(mote__store *s, const uint8_t *key);
int mote__snap_make_room(mote__store *s, uint64_t bytes, uint64_t *n_dropped);

/* ---- stat_json.c ---- */
/* Hands the tree over as text; drops the reference. */
int mote__store_json(json_t *root, char **text, mote_err *err);

/* ---- stats.c ---- */
/* As mote_store_get_stats, and says what is wrong with the index. */
int mote__store_stats(mote__store *s, mote_store_stats *m, mote_err *err);
/* What the files take on the disk: segments; index, lock and notes; snapshots. */
void mote__disk_bytes(const mote__store *s, uint64_t *segments, uint64_t *index,
                      uint64_t *snapshots);

#endif
