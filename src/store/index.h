/* The index: which block lies in which slot, which slots are free, which snapshots there are. A
 * SQLite database with a rollback journal; one connection per user (the readers share one, the
 * writer has its own). Reading waits while another process commits.
 *
 * Not WAL: its index is a mapped file, and whoever cuts a mapped file kills the process (SIGBUS);
 * and it cannot be opened on a full disk. The journal is kept (PERSIST), so that a small change
 * needs no new room.
 *
 * The index is a hint that is right unless the disk is not: whoever follows an entry compares what
 * the slot says about itself.
 *
 * Invariants: (1) a slot is in `block` or in `free`, never in both. (2) A slot enters `block` in
 * the transaction that follows the sync of its bytes. (3) A slot's generation in `free` is another
 * than that of anything indexed there before. (4) Ids of segments are not used again while the
 * index lives, as long as there are others.
 *
 * Results: 0 done; MOTE_INDEX_NONE no such row; MOTE_EFORMAT the database is damaged; MOTE_EIO
 * another failure. */
#ifndef MOTE_STORE_INDEX_H
#define MOTE_STORE_INDEX_H

#include <sqlite3.h>

#include "store/slot.h"

enum { MOTE_INDEX_NONE = 1, MOTE_INDEX_STATEMENTS = 64 };

/* How long one waits for others: `limit_ms`, shared by all who wait. A wait that succeeds costs
 * nothing; one that is given up uses up what it took, and that comes back in ten times as long. So
 * whoever is stopped with a lock in its hands delays a process once. */
typedef struct mote__waiting {
    int limit_ms;
    _Atomic int64_t full_at;
} mote__waiting;
int64_t mote__waiting_left(mote__waiting *w); /* ms */
void mote__waiting_given_up(mote__waiting *w, int64_t waited_ms);

typedef struct mote__index {
    sqlite3 *db; /* NULL: closed */
    sqlite3_stmt *statements[MOTE_INDEX_STATEMENTS];
    char why[200]; /* of the last failure */
    /* it was: somebody else holds the index; no room on the disk */
    int busy, full;
    /* before the transaction: one that changed nothing is not committed */
    int64_t changes;
    /* one failure since somebody set this to 0 was for want of room */
    int was_full;
    mote__waiting *waiting; /* NULL: nobody is waited for */
    int64_t wait_began;
} mote__index;

/* slot_bytes and payload_bytes are 0 where the index does not know the segment. */
typedef struct mote__place {
    uint32_t segment, slot, slot_bytes, payload_bytes;
    uint64_t generation;
    int hole;
} mote__place;
/* Of a slot that is used again. A garbled one near the end of what can be written begins anew. */
static inline uint64_t mote__next_generation(uint64_t g) { return g >> 62 ? 1 : g + 1; }
typedef struct mote__entry {
    uint8_t id[MOTE_STORE_ID], parent[MOTE_STORE_ID];
    mote__place place;
    int approximate;
    uint64_t n_blocks;
    int64_t used;
} mote__entry;
typedef struct mote__snap_entry {
    uint8_t key[MOTE_STORE_ID], tokens[MOTE_STORE_ID];
    mote__chain chain;
    int approximate;
    uint32_t n_tail;
    uint64_t bytes;
    int64_t created, used;
} mote__snap_entry;

typedef enum mote__index_mode {
    MOTE_INDEX_CREATE,
    MOTE_INDEX_WRITE,
    MOTE_INDEX_READ,
    MOTE_INDEX_IMMUTABLE
} mote__index_mode;
/* vfs: NULL or a name from store/vfs.h. CREATE makes the tables in an empty file and commits
 * nothing to a log; MOTE_EVERSION: made by a newer mote. */
int mote__index_open(mote__index *x, const char *path, mote__index_mode mode, const char *vfs,
                     mote__waiting *waiting, mote_err *err);
void mote__index_close(mote__index *x);
/* SQLite's integrity_check, and that each slot is in one table */
int mote__index_check(mote__index *x);

int mote__index_begin(mote__index *x); /* of a writing transaction */
int mote__index_commit(mote__index *x);
void mote__index_rollback(mote__index *x);
/* a change that changes nothing, but is written */
int mote__index_nudge(mote__index *x);
int mote__index_begin_read(mote__index *x); /* a stable view until commit */

int mote__index_get(mote__index *x, const uint8_t *id, mote__entry *e);
int mote__index_free_generation(mote__index *x, uint32_t segment, uint32_t slot,
                                uint64_t *generation);
/* Free slots of one geometry, those with room on the disk first. Returns the number in *n. */
int mote__index_free_slots(mote__index *x, uint32_t payload_bytes, mote__place *places, size_t max,
                           size_t *n);
/* Free slots of all geometries that still hold room on the disk, after (segment, slot). */
int mote__index_free_next(mote__index *x, uint32_t segment, int64_t slot, mote__place *place);
/* A free slot becomes an entry. MOTE_INDEX_NONE: somebody was faster, with the slot or with the
 * block. */
int mote__index_put(mote__index *x, const mote__entry *e);
/* without a free row (rebuild) */
int mote__index_insert(mote__index *x, const mote__entry *e);
int mote__index_put_free(mote__index *x, const mote__place *p);
/* An entry becomes a free slot, unless its place cannot be. MOTE_INDEX_NONE: it is not there (any
 * more) with this generation. */
int mote__index_drop(mote__index *x, const mote__entry *e);
int mote__index_set_hole(mote__index *x, const mote__place *p);
int mote__index_touch(mote__index *x, const uint8_t *id, int64_t used);

/* in order of id; NULL: the first */
int mote__index_next(mote__index *x, const uint8_t *after, mote__entry *e);
int mote__index_child(mote__index *x, const uint8_t *parent, mote__entry *e);

typedef struct mote__segment {
    uint32_t id, slot_bytes, payload_bytes, n_slots;
} mote__segment;
int mote__index_segment(mote__index *x, uint32_t id, mote__segment *s);
int mote__index_next_segment(mote__index *x, int64_t after, mote__segment *s);
int mote__index_add_segment(mote__index *x, const mote__segment *s);
int mote__index_new_segment_id(mote__index *x, uint32_t *id);
int mote__index_set_slots(mote__index *x, const mote__segment *s);
/* with its free slots; its entries must be gone */
int mote__index_drop_segment(mote__index *x, uint32_t id);
/* With all its entries. */
int mote__index_forget_segment(mote__index *x, uint32_t id, uint64_t *n_blocks);
int mote__index_set_sizes(mote__index *x, const mote__segment *s);

/* ---- for store/care.c: rows that do not fit together ---- */
typedef struct mote__census {
    int64_t segment;
    uint64_t n;
    int64_t lowest, highest;
} mote__census;
/* How many rows of `block` and `free` name each segment, and their lowest and highest slots; up to
 * `max` segments after one. */
int mote__index_census(mote__index *x, int of_free, int64_t after, mote__census *c, size_t max,
                       size_t *n);
/* a slot in both tables */
int mote__index_overlap(mote__index *x, int64_t segment, int64_t after, mote__place *p);
/* the entry of a slot */
int mote__index_at(mote__index *x, const mote__place *p, mote__entry *e);
int mote__index_take_free(mote__index *x, const mote__place *p); /* not free any more */
/* Rows of one segment that name slots from `slots` on, or of segments that are not there; rows with
 * times that cannot be get `now`. */
int mote__index_drop_beyond(mote__index *x, int64_t segment, uint64_t slots, uint64_t *n_blocks);
int mote__index_drop_lost(mote__index *x, uint64_t *n_blocks);
int mote__index_mend_times(mote__index *x, int64_t now);
/* whether the last two have anything to do with numbers */
int mote__index_odd(mote__index *x, int64_t now, uint64_t *n);

typedef struct mote__index_sums {
    uint64_t blocks, exact_blocks, payload_bytes, slots, free_slots, holes, slot_bytes, hole_bytes,
        segments, snapshots, snapshot_bytes;
} mote__index_sums;
int mote__index_sum(mote__index *x, mote__index_sums *sums);
/* Of segment headers, and of all slots that are not holes. */
int mote__index_room(mote__index *x, uint64_t *bytes);
int mote__index_segment_entries(mote__index *x, uint32_t id, uint64_t *n);

int mote__index_snapshot_put(mote__index *x, const mote__snap_entry *e);
int mote__index_snapshot_get(mote__index *x, const uint8_t *key, mote__snap_entry *e);
int mote__index_snapshot_drop(mote__index *x, const uint8_t *key);
int mote__index_snapshot_touch(mote__index *x, const uint8_t *key, int64_t used);
int mote__index_snapshot_next(mote__index *x, const uint8_t *after, mote__snap_entry *e);
/* Those on one prefix, longest first, exact before approximate, newest first: the skip-th. */
int mote__index_snapshot_on(mote__index *x, const uint8_t *tokens, uint32_t max_tail, int64_t skip,
                            mote__snap_entry *e);
int mote__index_snapshot_oldest(mote__index *x, int64_t skip, mote__snap_entry *e);
int mote__index_snapshot_room(mote__index *x, uint64_t *bytes);
int mote__index_snapshot_set_bytes(mote__index *x, const uint8_t *key, uint64_t bytes);

/* ---- many rows at once, for maintenance and listing ---- */
typedef enum mote__index_kind {
    MOTE_ROW_BLOCK,
    MOTE_ROW_PLACE,
    MOTE_ROW_SNAPSHOT,
    MOTE_ROW_NUMBER
} mote__index_kind;
typedef union mote__index_any {
    mote__entry block;
    mote__place place;
    mote__snap_entry snapshot;
    uint64_t number;
} mote__index_any;
typedef int (*mote__index_row)(void *ctx, const mote__index_any *row); /* non-zero: enough */
/* A query of its own: head (one of the three below, or all of it) and tail. The row function must
 * not change the index. */
int mote__index_each(mote__index *x, const char *head, const char *tail, const int64_t *numbers,
                     int n_numbers, mote__index_kind kind, mote__index_row row, void *ctx);
extern const char mote__index_blocks[], mote__index_frees[], mote__index_snaps[];

/* ---- index_maintain.c: in a constant number of passes over the tables ---- */
/* Blocks without children that were not used since `before`, least recently used first, at most
 * max. */
int mote__index_leaves(mote__index *x, int64_t before, size_t max, mote__index_row row, void *ctx);
/* their parent is gone */
int mote__index_orphans(mote__index *x, mote__index_row row, void *ctx);
/* blocks, parents first */
int mote__index_all(mote__index *x, mote__index_row row, void *ctx);
/* Snapshots, the least recently used first; and those whose last block is gone. */
int mote__index_all_snapshots(mote__index *x, mote__index_row row, void *ctx);
int mote__index_snapshot_orphans(mote__index *x, mote__index_row row, void *ctx);
/* Free slots that still hold room, in order of place, after (segment, slot); those of `but_payload`
 * bytes are left out. */
int mote__index_idle(mote__index *x, uint32_t but_payload, uint32_t segment, int64_t slot,
                     size_t max, mote__index_row row, void *ctx);
/* numbers: ids */
int mote__index_empty_segments(mote__index *x, mote__index_row row, void *ctx);
/* Of the slots of all blocks; and how many segments hold any. */
int mote__index_block_bytes(mote__index *x, uint64_t *bytes, uint64_t *segments);
int mote__index_drop_all(mote__index *x, uint64_t *n); /* every block becomes a free slot */
/* A hole is going to be written: its room counts from now on. MOTE_INDEX_NONE: it is not a hole of
 * this generation. */
int mote__index_fill_hole(mote__index *x, const mote__place *p);

#endif
