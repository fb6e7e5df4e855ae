/* What maintenance asks of the index: whole tables in one pass each, so that it takes time in
 * proportion to what there is. */
#include <string.h>

#include "store/index.h"

#define NO_CHILD "NOT EXISTS(SELECT 1 FROM block c WHERE c.parent = b.id) "

int mote__index_leaves(mote__index *x, int64_t before, size_t max, mote__index_row row, void *ctx)
{
    int64_t limit = max > INT64_MAX ? INT64_MAX : (int64_t)max;
    return mote__index_each(x, mote__index_blocks,
                            "WHERE b.used < ?1 AND " NO_CHILD
                            "ORDER BY b.used, b.n_blocks DESC LIMIT ?2",
                            (const int64_t[]){ before, limit }, 2, MOTE_ROW_BLOCK, row, ctx);
}

int mote__index_orphans(mote__index *x, mote__index_row row, void *ctx)
{
    return mote__index_each(
        x, mote__index_blocks,
        "WHERE b.n_blocks > 1 AND NOT EXISTS(SELECT 1 FROM block p WHERE p.id = b.parent)", NULL, 0,
        MOTE_ROW_BLOCK, row, ctx);
}

int mote__index_all(mote__index *x, mote__index_row row, void *ctx)
{
    return mote__index_each(x, mote__index_blocks, "ORDER BY b.n_blocks, b.id", NULL, 0,
                            MOTE_ROW_BLOCK, row, ctx);
}

int mote__index_all_snapshots(mote__index *x, mote__index_row row, void *ctx)
{
    return mote__index_each(x, mote__index_snaps, "ORDER BY used, created, key", NULL, 0,
                            MOTE_ROW_SNAPSHOT, row, ctx);
}

int mote__index_snapshot_orphans(mote__index *x, mote__index_row row, void *ctx)
{
    return mote__index_each(
        x, mote__index_snaps,
        "WHERE n_blocks > 0 AND NOT EXISTS(SELECT 1 FROM block b WHERE b.id = chain)", NULL, 0,
        MOTE_ROW_SNAPSHOT, row, ctx);
}

int mote__index_idle(mote__index *x, uint32_t but_payload, uint32_t segment, int64_t slot,
                     size_t max, mote__index_row row, void *ctx)
{
    return mote__index_each(
        x, mote__index_frees,
        "WHERE f.hole = 0 AND (f.segment, f.slot) > (?1, ?2) AND s.payload_bytes != ?3"
        " ORDER BY f.segment, f.slot LIMIT ?4",
        (const int64_t[]){ segment, slot, but_payload, (int64_t)max }, 4, MOTE_ROW_PLACE, row, ctx);
}

int mote__index_empty_segments(mote__index *x, mote__index_row row, void *ctx)
{
    return mote__index_each(x,
                            "SELECT s.id FROM segment s WHERE NOT EXISTS(SELECT 1 FROM block b "
                            "WHERE b.segment = s.id) ORDER BY s.id",
                            "", NULL, 0, MOTE_ROW_NUMBER, row, ctx);
}

static int keep_number(void *ctx, const mote__index_any *row)
{
    *(uint64_t *)ctx = row->number;
    return 1;
}

int mote__index_block_bytes(mote__index *x, uint64_t *bytes, uint64_t *segments)
{
    *bytes = *segments = 0;
    int rc = mote__index_each(
        x, "SELECT coalesce(sum(s.slot_bytes), 0) FROM block b JOIN segment s ON s.id = b.segment",
        "", NULL, 0, MOTE_ROW_NUMBER, keep_number, bytes);
    return rc ? rc
              : mote__index_each(x,
                                 "SELECT count(*) FROM segment s WHERE EXISTS(SELECT 1 FROM block "
                                 "b WHERE b.segment = s.id)",
                                 "", NULL, 0, MOTE_ROW_NUMBER, keep_number, segments);
}

int mote__index_drop_all(mote__index *x, uint64_t *n)
{
    *n = 0;
    int rc = mote__index_each(x, "SELECT count(*) FROM block", "", NULL, 0, MOTE_ROW_NUMBER,
                              keep_number, n);
    if (rc || !*n) /* emptying an empty table takes room for a journal, too */
        return rc;
    rc = mote__index_each(
        x, "INSERT OR REPLACE INTO free SELECT segment, slot, generation + 1, 0 FROM block", "",
        NULL, 0, MOTE_ROW_NUMBER, NULL, NULL);
    return rc ? rc
              : mote__index_each(x, "DELETE FROM block", "", NULL, 0, MOTE_ROW_NUMBER, NULL, NULL);
}

int mote__index_fill_hole(mote__index *x, const mote__place *p)
{
    int rc = mote__index_each(x,
                              "UPDATE free SET hole = 0 WHERE segment = ?1 AND slot = ?2 AND "
                              "generation = ?3 AND hole = 1",
                              "", (const int64_t[]){ p->segment, p->slot, (int64_t)p->generation },
                              3, MOTE_ROW_NUMBER, NULL, NULL);
    return rc ? rc : sqlite3_changes(x->db) == 1 ? 0 : MOTE_INDEX_NONE;
}
