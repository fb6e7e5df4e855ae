/* All that an index lists, in memory, each with its context: for listing, and for maintaining a
 * part of a store.
 *
 * The index does not say which context a block belongs to; slots do. All of a chain share one, so
 * the first block of each chain is read (whole, and checked). What a rebuilt index would say is
 * therefore the same. A damaged one leaves its chain without a known context. */
#ifndef MOTE_STORE_CATALOG_H
#define MOTE_STORE_CATALOG_H

#include "store/impl.h"

enum { MOTE_CATALOG_UNKNOWN = 0xffffffff };

typedef struct mote__catalog_context {
    uint8_t hash[MOTE_STORE_DIGEST];
    char label[MOTE_STORE_LABEL]; /* as written, bytes above 0x7e included; 0-terminated */
    int chosen;                   /* by the store's only_... parameters */
    uint64_t blocks, exact_blocks, payload_bytes, slot_bytes, snapshots, snapshot_bytes;
    int64_t used; /* the latest */
} mote__catalog_context;

typedef struct mote__catalog_map {
    uint32_t *at;
    size_t size;
} mote__catalog_map;
typedef struct mote__catalog {
    mote__entries blocks; /* parents first */
    uint32_t *of_block;   /* the number of its context */
    mote__snap_entry *snaps;
    uint32_t *of_snap;
    size_t n_snaps, snap_room, of_block_room, of_snap_room;
    mote__catalog_context *contexts;
    size_t n_contexts, context_room, n_chosen;
    mote__catalog_map block_map, snap_map;
    mote__meter *meter; /* borrowed; MOTE_MEM_SCRATCH */
    int everything;     /* no only_... parameter was given */
    int rc;
} mote__catalog;

/* x: s->reader with read_mutex held, or s->writer with write_mutex. */
int mote__catalog_read(mote__catalog *c, mote__store *s, mote__index *x, mote_err *err);
void mote__catalog_end(mote__catalog *c);
int mote__catalog_has_choice(const mote__store *s); /* 1: some only_... parameter is given */
/* An unknown context only where everything is. */
int mote__catalog_chosen(const mote__catalog *c, uint32_t context);
/* For mote__victims.keep and mote__snap_choice.keep, with the catalog as ctx: 1 for what is not
 * chosen, or not known here. */
int mote__catalog_keep_block(void *ctx, const mote__entry *e);
int mote__catalog_keep_snapshot(void *ctx, const mote__snap_entry *e);

/* ---- labels ---- */
/* A field of "model=... math=... kv=... ns=..." -> dst (room for MOTE_STORE_LABEL); 0 where there
 * is none. */
int mote__label_field(char *dst, const char *label, const char *name);
/* Whether a list of formats, as in --kv, holds for those of a label. */
int mote__label_has_kv(const char *label_kv, const char *wanted);
/* 1: its namespace is `name`; 2: as far as the label goes, which was cut. */
int mote__label_has_namespace(const char *label, const char *name);

#endif
