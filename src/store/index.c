/* The statements of the index, and its rows: what is asked of it, and what of an answer is
 * believed. How statements are run is in index_db.c. */
#include "store/index.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "store/index_db.h"

#define BLOCK_COLUMNS                                                                      \
    "b.id, b.parent, b.segment, b.slot, b.generation, b.approximate, b.n_blocks, b.used, " \
    "s.slot_bytes, s.payload_bytes"
#define BLOCKS "SELECT " BLOCK_COLUMNS " FROM block b LEFT JOIN segment s ON s.id = b.segment "
#define FREE_COLUMNS "f.segment, f.slot, f.generation, f.hole, s.slot_bytes, s.payload_bytes"
/* numbers that can be: others wait for store/care.c */
#define FREE_SOUND                                                                               \
    "f.slot >= 0 AND f.slot < s.n_slots AND f.generation BETWEEN 0 AND 4611686018427387904 AND " \
    "f.hole IN (0, 1)"
#define SNAP                                                                                   \
    "SELECT key, tokens, chain, n_blocks, n_exact, approximate, n_tail, bytes, created, used " \
    "FROM snapshot "

enum {
    BEGIN,
    COMMIT,
    ROLLBACK,
    BEGIN_READ,
    GET,
    FREE_GENERATION,
    FREE_SLOTS,
    FREE_NEXT,
    PUT,
    FREE_TAKE,
    FREE_PUT,
    DROP,
    DROP_ID,
    SET_HOLE,
    TOUCH,
    NEXT,
    CHILD,
    SEGMENT,
    NEXT_SEGMENT,
    ADD_SEGMENT,
    NEW_SEGMENT_ID,
    SET_SLOTS,
    DROP_SEGMENT,
    DROP_SEGMENT_FREE,
    SUM_BLOCKS,
    SUM_FREE,
    SUM_SEGMENTS,
    SUM_SNAPSHOTS,
    SEGMENT_ENTRIES,
    SNAP_PUT,
    SNAP_GET,
    SNAP_DROP,
    SNAP_TOUCH,
    SNAP_NEXT,
    SNAP_ON,
    SNAP_OLDEST,
    OVERLAP,
    NUDGE,
    CENSUS_BLOCK,
    CENSUS_FREE,
    AT,
    DROP_BEYOND,
    FREE_BEYOND,
    DROP_LOST,
    SNAP_LOST,
    FREE_LOST,
    SET_SIZES,
    MEND_BLOCK_TIMES,
    MEND_SNAP_TIMES,
    SNAP_SET_BYTES,
    ODD,
    UNCOUNTED,
    N_STATEMENTS
};
static_assert((int)N_STATEMENTS <= (int)MOTE_INDEX_STATEMENTS, "room for the statements");

const char *const mote__index_sql[MOTE_INDEX_STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [BEGIN_READ] = "BEGIN",
    [GET] = BLOCKS "WHERE b.id = ?1",
    [FREE_GENERATION] = "SELECT generation FROM free WHERE segment = ?1 AND slot = ?2",
    [FREE_SLOTS] =
        "SELECT " FREE_COLUMNS
        " FROM free f JOIN segment s ON s.id = f.segment WHERE s.payload_bytes = ?1 AND " FREE_SOUND
        " ORDER BY f.hole, f.segment, f.slot LIMIT ?2",
    [FREE_NEXT] =
        "SELECT " FREE_COLUMNS
        " FROM free f JOIN segment s ON s.id = f.segment WHERE (f.segment, f.slot) > (?1, ?2)"
        " AND f.hole = 0 AND " FREE_SOUND " ORDER BY f.segment, f.slot LIMIT 1",
    [PUT] = "INSERT OR IGNORE INTO block VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [FREE_TAKE] = "DELETE FROM free WHERE segment = ?1 AND slot = ?2 AND generation = ?3",
    [FREE_PUT] = "INSERT OR REPLACE INTO free SELECT ?1, ?2, ?3, ?4 WHERE ?2 < (SELECT n_slots "
                 "FROM segment WHERE id = ?1)"
                 " AND NOT EXISTS(SELECT 1 FROM block WHERE segment = ?1 AND slot = ?2)",
    [DROP] = "DELETE FROM block WHERE id = ?1 AND segment = ?2 AND slot = ?3 AND generation = ?4",
    [DROP_ID] = "DELETE FROM block WHERE id = ?1",
    [SET_HOLE] = "UPDATE free SET hole = 1 WHERE segment = ?1 AND slot = ?2 AND generation = ?3",
    [TOUCH] = "UPDATE block SET used = ?2 WHERE id = ?1 AND used < ?2",
    [NEXT] = BLOCKS "WHERE b.id > ?1 ORDER BY b.id LIMIT 1",
    [CHILD] = BLOCKS "WHERE b.parent = ?1 LIMIT 1",
    [SEGMENT] = "SELECT id, slot_bytes, payload_bytes, n_slots FROM segment WHERE id = ?1",
    [NEXT_SEGMENT] = "SELECT id, slot_bytes, payload_bytes, n_slots FROM segment WHERE id > ?1 "
                     "ORDER BY id LIMIT 1",
    [ADD_SEGMENT] = "INSERT INTO segment VALUES(?1, ?2, ?3, ?4)",
    /* the next number; where the last one is in use, the lowest gap */
    [NEW_SEGMENT_ID] = "SELECT CASE WHEN n < 4294967295 THEN n ELSE (SELECT min(id) + 1 FROM "
                       "(SELECT 0 AS id UNION ALL SELECT id FROM"
                       " segment) g WHERE NOT EXISTS(SELECT 1 FROM segment h WHERE h.id = g.id + "
                       "1)) END FROM (SELECT"
                       " max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'segment'), 0),"
                       " coalesce((SELECT max(id) FROM segment), 0)) + 1 AS n)",
    [SET_SLOTS] = "UPDATE segment SET n_slots = ?2 WHERE id = ?1",
    [DROP_SEGMENT] = "DELETE FROM segment WHERE id = ?1",
    [DROP_SEGMENT_FREE] = "DELETE FROM free WHERE segment = ?1",
    [SUM_BLOCKS] = "SELECT count(*), coalesce(sum(b.approximate = 0), 0), "
                   "coalesce(sum(s.payload_bytes), 0) FROM block b"
                   " JOIN segment s ON s.id = b.segment",
    [SUM_FREE] = "SELECT count(*), coalesce(sum(f.hole), 0), coalesce(sum(f.hole * s.slot_bytes), "
                 "0) FROM free f"
                 " JOIN segment s ON s.id = f.segment",
    [SUM_SEGMENTS] = "SELECT count(*), coalesce(sum(n_slots), 0), coalesce(sum(n_slots * "
                     "slot_bytes), 0) FROM segment",
    [SUM_SNAPSHOTS] = "SELECT count(*), coalesce(sum(bytes), 0) FROM snapshot",
    [SEGMENT_ENTRIES] = "SELECT count(*) FROM block WHERE segment = ?1",
    [SNAP_PUT] = "INSERT OR REPLACE INTO snapshot VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [SNAP_GET] = SNAP "WHERE key = ?1",
    [SNAP_DROP] = "DELETE FROM snapshot WHERE key = ?1",
    [SNAP_TOUCH] = "UPDATE snapshot SET used = ?2 WHERE key = ?1 AND used < ?2",
    [SNAP_NEXT] = SNAP "WHERE key > ?1 ORDER BY key LIMIT 1",
    [SNAP_ON] = SNAP "WHERE tokens = ?1 AND n_tail <= ?2 ORDER BY n_tail DESC, approximate, "
                     "created DESC, key LIMIT 1 OFFSET ?3",
    [SNAP_OLDEST] = SNAP "ORDER BY used, created LIMIT 1 OFFSET ?1",
    [NUDGE] = "UPDATE meta SET version = version",
    [OVERLAP] = "SELECT " FREE_COLUMNS
                " FROM free f JOIN block b ON b.segment = f.segment AND b.slot = f.slot"
                " JOIN segment s ON s.id = f.segment WHERE f.segment = ?1 AND f.slot > ?2 ORDER BY "
                "f.slot LIMIT 1",
    [CENSUS_BLOCK] = "SELECT segment, count(*), min(slot), max(slot) FROM block WHERE segment > ?1 "
                     "GROUP BY segment ORDER BY segment LIMIT ?2",
    [CENSUS_FREE] = "SELECT segment, count(*), min(slot), max(slot) FROM free WHERE segment > ?1 "
                    "GROUP BY segment ORDER BY segment LIMIT ?2",
    [AT] = BLOCKS "WHERE b.segment = ?1 AND b.slot = ?2",
    [DROP_BEYOND] = "DELETE FROM block WHERE segment = ?1 AND (slot >= ?2 OR slot < 0)",
    [FREE_BEYOND] = "DELETE FROM free WHERE segment = ?1 AND (slot >= ?2 OR slot < 0)",
    /* what is no blob sorts before all blobs, and is no identity */
    [DROP_LOST] = "DELETE FROM block WHERE segment NOT IN (SELECT id FROM segment) OR id < x''",
    [SNAP_LOST] = "DELETE FROM snapshot WHERE key < x''",
    [FREE_LOST] =
        "DELETE FROM free WHERE segment NOT IN (SELECT id FROM segment) OR hole NOT IN (0, 1)"
        " OR generation NOT BETWEEN 0 AND 4611686018427387904",
    [SET_SIZES] =
        "UPDATE segment SET slot_bytes = ?2, payload_bytes = ?3, n_slots = ?4 WHERE id = ?1",
    [MEND_BLOCK_TIMES] = "UPDATE block SET used = ?1 WHERE used > ?2 OR used <= 0",
    [MEND_SNAP_TIMES] = "UPDATE snapshot SET used = ?1 WHERE used > ?2 OR used <= 0",
    [SNAP_SET_BYTES] = "UPDATE snapshot SET bytes = ?2 WHERE key = ?1",
    [ODD] = "SELECT EXISTS(SELECT 1 FROM block WHERE used > ?1) + EXISTS(SELECT 1 FROM block WHERE "
            "used <= 0)"
            " + EXISTS(SELECT 1 FROM snapshot WHERE used > ?1 OR used <= 0)"
            " + EXISTS(SELECT 1 FROM snapshot WHERE key < x'') + EXISTS(SELECT 1 FROM block WHERE "
            "id < x'')"
            " + EXISTS(SELECT 1 FROM free WHERE hole NOT IN (0, 1) OR generation NOT BETWEEN 0 AND "
            "4611686018427387904)",
    /* what integrity_check cannot see: a segment whose rows are not its slots, rows without a
       segment, a slot in both tables */
    [UNCOUNTED] =
        "SELECT (SELECT count(*) FROM segment s WHERE n_slots <> (SELECT count(*) FROM block b "
        "WHERE b.segment = s.id AND"
        " b.slot < s.n_slots) + (SELECT count(*) FROM free f WHERE f.segment = s.id AND f.slot < "
        "s.n_slots))"
        " + (SELECT count(*) FROM block WHERE segment NOT IN (SELECT id FROM segment))"
        " + (SELECT count(*) FROM free WHERE segment NOT IN (SELECT id FROM segment))"
        " + (SELECT count(*) FROM free f JOIN block b ON b.segment = f.segment AND b.slot = f.slot)"
        " + (SELECT count(*) FROM block WHERE typeof(id) <> 'blob' OR length(id) <> 16 OR id = "
        "zeroblob(16))"
        " + (SELECT count(*) FROM snapshot WHERE typeof(key) <> 'blob' OR length(key) <> 16 OR key "
        "= zeroblob(16))",
};

#define B(p)        \
    {               \
        .blob = (p) \
    }
#define N(v)                   \
    {                          \
        .number = (int64_t)(v) \
    }

#define ARGS(...)                             \
    (const mote__index_arg[]){ __VA_ARGS__ }, \
        (int)(sizeof((const mote__index_arg[]){ __VA_ARGS__ }) / sizeof(mote__index_arg))
#define ONE(x, which, take, to, ...) \
    mote__index_run(x, which, ARGS(__VA_ARGS__), take, to, 0, 1, NULL)
#define DO(x, which, ...) mote__index_run(x, which, ARGS(__VA_ARGS__), NULL, NULL, 0, 1, NULL)

static int blob(sqlite3_stmt *s, int column, uint8_t *to)
{
    if (sqlite3_column_type(s, column) != SQLITE_BLOB ||
        sqlite3_column_bytes(s, column) != MOTE_STORE_ID)
        return 1;
    memcpy(to, sqlite3_column_blob(s, column), MOTE_STORE_ID);
    return 0;
}
/* [min, max] */
static int number(sqlite3_stmt *s, int column, int64_t min, int64_t max, int64_t *to)
{
    *to = sqlite3_column_int64(s, column);
    return sqlite3_column_type(s, column) != SQLITE_INTEGER || *to < min || *to > max;
}

static int geometry(sqlite3_stmt *s, int column, uint32_t *slot_bytes, uint32_t *payload_bytes)
{
    int64_t a, b;
    if (number(s, column, 1, UINT32_MAX, &a) || number(s, column + 1, 1, UINT32_MAX, &b) ||
        mote__slot_bytes((size_t)b) != (size_t)a)
        return 1;
    *slot_bytes = (uint32_t)a;
    *payload_bytes = (uint32_t)b;
    return 0;
}

/* As geometry, or zeros where the join has found no segment or its sizes cannot be. */
static void geometry_if_known(sqlite3_stmt *s, int column, uint32_t *slot_bytes,
                              uint32_t *payload_bytes)
{
    if (geometry(s, column, slot_bytes, payload_bytes))
        *slot_bytes = *payload_bytes = 0;
}

/* A number of one row that cannot be makes that row useless, not the index: it reads as an entry in
 * segment 0, which is nobody's, and is dropped like any damaged block. What has another type than a
 * number is damage to the index. */
static int take_entry(sqlite3_stmt *s, void *to)
{
    mote__entry *e = to;
    int64_t segment, slot, generation, approximate, n_blocks;
    if (blob(s, 0, e->id) || blob(s, 1, e->parent))
        return 1;
    for (int i = 2; i <= 7; i++)
        if (sqlite3_column_type(s, i) != SQLITE_INTEGER)
            return 1;
    int bad = number(s, 2, 1, UINT32_MAX, &segment) | number(s, 3, 0, UINT32_MAX, &slot) |
              number(s, 4, 0, INT64_MAX, &generation) | number(s, 5, 0, 1, &approximate) |
              number(s, 6, 1, INT64_MAX, &n_blocks) | number(s, 7, INT64_MIN, INT64_MAX, &e->used);
    e->place = (mote__place){ 0 };
    e->approximate = approximate != 0;
    e->n_blocks = (uint64_t)n_blocks;
    if (!bad) {
        e->place.segment = (uint32_t)segment;
        e->place.slot = (uint32_t)slot;
        e->place.generation = (uint64_t)generation;
        geometry_if_known(s, 8, &e->place.slot_bytes, &e->place.payload_bytes);
    }
    return 0;
}

static int take_place(sqlite3_stmt *s, void *to)
{
    mote__place *p = to;
    int64_t segment, slot, generation, hole;
    if (number(s, 0, 1, UINT32_MAX, &segment) || number(s, 1, 0, UINT32_MAX, &slot) ||
        number(s, 2, 0, INT64_MAX - 1, &generation) || number(s, 3, 0, 1, &hole) ||
        geometry(s, 4, &p->slot_bytes, &p->payload_bytes))
        return 1;
    p->segment = (uint32_t)segment;
    p->slot = (uint32_t)slot;
    p->generation = (uint64_t)generation;
    p->hole = (int)hole;
    return 0;
}

static int take_segment(sqlite3_stmt *s, void *to)
{
    mote__segment *g = to;
    int64_t id, n_slots;
    if (number(s, 0, 1, UINT32_MAX, &id))
        return 1;
    geometry_if_known(s, 1, &g->slot_bytes, &g->payload_bytes);
    g->id = (uint32_t)id;
    g->n_slots = number(s, 3, 0, UINT32_MAX, &n_slots) ? UINT32_MAX : (uint32_t)n_slots;
    return 0;
}

/* A number that cannot be: the others read as 0, so that the file never matches. */
static int take_snap(sqlite3_stmt *s, void *to)
{
    mote__snap_entry *e = to;
    int64_t n_blocks, n_exact, approximate, n_tail, bytes;
    if (blob(s, 0, e->key) || blob(s, 1, e->tokens) || blob(s, 2, e->chain.id))
        return 1;
    for (int i = 3; i <= 9; i++)
        if (sqlite3_column_type(s, i) != SQLITE_INTEGER)
            return 1;
    int bad = number(s, 3, 0, INT64_MAX / MOTE_BLOCK_TOKENS, &n_blocks) |
              number(s, 4, 0, n_blocks, &n_exact) | number(s, 5, 0, 1, &approximate) |
              number(s, 6, 0, MOTE_BLOCK_TOKENS - 1, &n_tail) |
              number(s, 7, 0, (int64_t)MOTE_STORE_MAX_SNAPSHOT + 8192, &bytes) |
              number(s, 8, INT64_MIN, INT64_MAX, &e->created) |
              number(s, 9, INT64_MIN, INT64_MAX, &e->used);
    e->chain.n_blocks = bad ? 0 : (size_t)n_blocks;
    e->chain.n_exact = bad ? 0 : (size_t)n_exact;
    e->approximate = !bad && approximate;
    e->n_tail = bad ? 0 : (uint32_t)n_tail;
    e->bytes = bad ? 0 : (uint64_t)bytes;
    return 0;
}

static int take_census(sqlite3_stmt *s, void *to)
{
    mote__census *c = to;
    int64_t n;
    if (number(s, 0, INT64_MIN, INT64_MAX, &c->segment) || number(s, 1, 0, INT64_MAX, &n) ||
        number(s, 2, INT64_MIN, INT64_MAX, &c->lowest) ||
        number(s, 3, INT64_MIN, INT64_MAX, &c->highest))
        return 1;
    c->n = (uint64_t)n;
    return 0;
}

static int take_u64(sqlite3_stmt *s, void *to)
{
    int64_t v;
    if (number(s, 0, 0, INT64_MAX, &v))
        return 1;
    *(uint64_t *)to = (uint64_t)v;
    return 0;
}
static int take_three(sqlite3_stmt *s, void *to)
{
    uint64_t *v = to;
    for (int i = 0; i < 3; i++)
        v[i] = i < sqlite3_column_count(s) ? (uint64_t)sqlite3_column_int64(s, i) : 0;
    return 0;
}

/* ---- transactions, and all of it at once ---- */

int mote__index_check(mote__index *x)
{
    sqlite3_stmt *s = NULL;
    int rc = x->db ? sqlite3_prepare_v2(x->db, "PRAGMA integrity_check(1)", -1, &s, NULL)
                   : SQLITE_MISUSE;
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    int result = rc == SQLITE_ROW ? 0 : mote__index_failed(x, rc);
    const char *text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (!result && (!text || strcmp(text, "ok"))) {
        snprintf(x->why, sizeof x->why, "%s", text ? text : "no answer");
        result = MOTE_EFORMAT;
    }
    sqlite3_finalize(s);
    uint64_t wrong = 0;
    if (!result)
        result = mote__index_run(x, UNCOUNTED, NULL, 0, take_u64, &wrong, 0, 1, NULL);
    if (!result && wrong) {
        snprintf(x->why, sizeof x->why, "its rows do not fit together");
        result = MOTE_EFORMAT;
    }
    return result;
}

int mote__index_begin(mote__index *x)
{
    int rc = mote__index_run(x, BEGIN, NULL, 0, NULL, NULL, 0, 1, NULL);
    x->changes = rc ? 0 : 1 + sqlite3_total_changes64(x->db);
    return rc;
}
int mote__index_begin_read(mote__index *x)
{
    return mote__index_run(x, BEGIN_READ, NULL, 0, NULL, NULL, 0, 1, NULL);
}
/* SQLite takes the whole index for itself to commit, even where nothing was changed. */
int mote__index_commit(mote__index *x)
{
    int same = x->db && x->changes && x->changes == 1 + sqlite3_total_changes64(x->db);
    x->changes = 0;
    return mote__index_run(x, same ? ROLLBACK : COMMIT, NULL, 0, NULL, NULL, 0, 1, NULL);
}
int mote__index_nudge(mote__index *x)
{
    return mote__index_run(x, NUDGE, NULL, 0, NULL, NULL, 0, 1, NULL);
}
void mote__index_rollback(mote__index *x)
{
    if (!x->db || sqlite3_get_autocommit(x->db))
        return;
    char why[sizeof x->why];
    memcpy(why, x->why, sizeof why);
    mote__index_run(x, ROLLBACK, NULL, 0, NULL, NULL, 0, 1, NULL);
    memcpy(x->why, why, sizeof why);
}

/* ---- blocks and slots ---- */

int mote__index_get(mote__index *x, const uint8_t *id, mote__entry *e)
{
    return ONE(x, GET, take_entry, e, B(id));
}

int mote__index_free_generation(mote__index *x, uint32_t segment, uint32_t slot,
                                uint64_t *generation)
{
    return ONE(x, FREE_GENERATION, take_u64, generation, N(segment), N(slot));
}

int mote__index_free_slots(mote__index *x, uint32_t payload_bytes, mote__place *places, size_t max,
                           size_t *n)
{
    return mote__index_run(x, FREE_SLOTS, ARGS(N(payload_bytes), N(max)), take_place, places,
                           sizeof *places, max, n);
}

int mote__index_free_next(mote__index *x, uint32_t segment, int64_t slot, mote__place *place)
{
    return ONE(x, FREE_NEXT, take_place, place, N(segment), N(slot));
}

int mote__index_insert(mote__index *x, const mote__entry *e)
{
    int rc = DO(x, PUT, B(e->id), B(e->parent), N(e->place.segment), N(e->place.slot),
                N(e->place.generation), N(e->approximate), N(e->n_blocks), N(e->used));
    return rc ? rc : sqlite3_changes(x->db) == 1 ? 0 : MOTE_INDEX_NONE;
}

int mote__index_put(mote__index *x, const mote__entry *e)
{
    uint64_t generation;
    int rc = mote__index_free_generation(x, e->place.segment, e->place.slot, &generation);
    if (rc || generation != e->place.generation)
        return rc ? rc : MOTE_INDEX_NONE;
    rc = mote__index_insert(x, e);
    return rc ? rc
              : DO(x, FREE_TAKE, N(e->place.segment), N(e->place.slot), N(e->place.generation));
}

int mote__index_put_free(mote__index *x, const mote__place *p)
{
    return DO(x, FREE_PUT, N(p->segment), N(p->slot), N(p->generation), N(p->hole));
}

int mote__index_drop(mote__index *x, const mote__entry *e)
{
    int lost = e->place.segment == 0; /* see take_entry */
    int rc = lost ? DO(x, DROP_ID, B(e->id))
                  : DO(x, DROP, B(e->id), N(e->place.segment), N(e->place.slot),
                       N(e->place.generation));
    if (rc || sqlite3_changes(x->db) != 1)
        return rc ? rc : MOTE_INDEX_NONE;
    if (lost)
        return 0;
    mote__place p = e->place;
    p.generation = mote__next_generation(p.generation);
    p.hole = 0;
    return mote__index_put_free(x, &p);
}

int mote__index_set_hole(mote__index *x, const mote__place *p)
{
    return DO(x, SET_HOLE, N(p->segment), N(p->slot), N(p->generation));
}
int mote__index_touch(mote__index *x, const uint8_t *id, int64_t used)
{
    return DO(x, TOUCH, B(id), N(used));
}

static const uint8_t lowest[MOTE_STORE_ID]; /* no digest is all zeros */
int mote__index_next(mote__index *x, const uint8_t *after, mote__entry *e)
{
    return ONE(x, NEXT, take_entry, e, B(after ? after : lowest));
}
int mote__index_child(mote__index *x, const uint8_t *parent, mote__entry *e)
{
    return ONE(x, CHILD, take_entry, e, B(parent));
}

/* ---- segments ---- */

int mote__index_segment(mote__index *x, uint32_t id, mote__segment *s)
{
    return ONE(x, SEGMENT, take_segment, s, N(id));
}
int mote__index_next_segment(mote__index *x, int64_t after, mote__segment *s)
{
    return ONE(x, NEXT_SEGMENT, take_segment, s, N(after));
}
int mote__index_add_segment(mote__index *x, const mote__segment *s)
{
    return DO(x, ADD_SEGMENT, N(s->id), N(s->slot_bytes), N(s->payload_bytes), N(s->n_slots));
}
int mote__index_new_segment_id(mote__index *x, uint32_t *id)
{
    uint64_t v = 0;
    int rc = mote__index_run(x, NEW_SEGMENT_ID, NULL, 0, take_u64, &v, 0, 1, NULL);
    if (!rc && (v == 0 || v >= UINT32_MAX)) {
        snprintf(x->why, sizeof x->why, "no segment number is left");
        rc = MOTE_EFORMAT;
    }
    *id = (uint32_t)v;
    return rc;
}
int mote__index_set_slots(mote__index *x, const mote__segment *s)
{
    return DO(x, SET_SLOTS, N(s->id), N(s->n_slots));
}
int mote__index_drop_segment(mote__index *x, uint32_t id)
{
    int rc = DO(x, DROP_SEGMENT_FREE, N(id));
    return rc ? rc : DO(x, DROP_SEGMENT, N(id));
}
int mote__index_forget_segment(mote__index *x, uint32_t id, uint64_t *n_blocks)
{
    int rc = mote__index_drop_beyond(x, id, 0, n_blocks);
    return rc ? rc : mote__index_drop_segment(x, id);
}
int mote__index_set_sizes(mote__index *x, const mote__segment *s)
{
    return DO(x, SET_SIZES, N(s->id), N(s->slot_bytes), N(s->payload_bytes), N(s->n_slots));
}
int mote__index_segment_entries(mote__index *x, uint32_t id, uint64_t *n)
{
    return ONE(x, SEGMENT_ENTRIES, take_u64, n, N(id));
}

/* ---- rows that do not fit together ---- */

int mote__index_census(mote__index *x, int of_free, int64_t after, mote__census *c, size_t max,
                       size_t *n)
{
    return mote__index_run(x, of_free ? CENSUS_FREE : CENSUS_BLOCK, ARGS(N(after), N(max)),
                           take_census, c, sizeof *c, max, n);
}
int mote__index_overlap(mote__index *x, int64_t segment, int64_t after, mote__place *p)
{
    return ONE(x, OVERLAP, take_place, p, N(segment), N(after));
}
int mote__index_at(mote__index *x, const mote__place *p, mote__entry *e)
{
    return ONE(x, AT, take_entry, e, N(p->segment), N(p->slot));
}
int mote__index_take_free(mote__index *x, const mote__place *p)
{
    return DO(x, FREE_TAKE, N(p->segment), N(p->slot), N(p->generation));
}
int mote__index_drop_beyond(mote__index *x, int64_t segment, uint64_t slots, uint64_t *n_blocks)
{
    int rc = DO(x, DROP_BEYOND, N(segment), N(slots));
    *n_blocks = rc ? 0 : (uint64_t)sqlite3_changes64(x->db);
    return rc ? rc : DO(x, FREE_BEYOND, N(segment), N(slots));
}
int mote__index_drop_lost(mote__index *x, uint64_t *n_blocks)
{
    int rc = mote__index_run(x, DROP_LOST, NULL, 0, NULL, NULL, 0, 1, NULL);
    *n_blocks = rc ? 0 : (uint64_t)sqlite3_changes64(x->db);
    if (!rc)
        rc = mote__index_run(x, SNAP_LOST, NULL, 0, NULL, NULL, 0, 1, NULL);
    return rc ? rc : mote__index_run(x, FREE_LOST, NULL, 0, NULL, NULL, 0, 1, NULL);
}
/* A day ahead is what clocks that differ may do. */
int mote__index_mend_times(mote__index *x, int64_t now)
{
    int rc = DO(x, MEND_BLOCK_TIMES, N(now), N(now + 86400));
    return rc ? rc : DO(x, MEND_SNAP_TIMES, N(now), N(now + 86400));
}
int mote__index_odd(mote__index *x, int64_t now, uint64_t *n)
{
    return ONE(x, ODD, take_u64, n, N(now + 86400));
}

/* ---- sums ---- */

int mote__index_sum(mote__index *x, mote__index_sums *s)
{
    uint64_t b[3], f[3], g[3], p[3];
    *s = (mote__index_sums){ 0 };
    int rc = mote__index_run(x, SUM_BLOCKS, NULL, 0, take_three, b, 0, 1, NULL);
    if (!rc)
        rc = mote__index_run(x, SUM_FREE, NULL, 0, take_three, f, 0, 1, NULL);
    if (!rc)
        rc = mote__index_run(x, SUM_SEGMENTS, NULL, 0, take_three, g, 0, 1, NULL);
    if (!rc)
        rc = mote__index_run(x, SUM_SNAPSHOTS, NULL, 0, take_three, p, 0, 1, NULL);
    if (!rc)
        *s = (mote__index_sums){ .blocks = b[0],
                                 .exact_blocks = b[1],
                                 .payload_bytes = b[2],
                                 .free_slots = f[0],
                                 .holes = f[1],
                                 .hole_bytes = f[2],
                                 .segments = g[0],
                                 .slots = g[1],
                                 .slot_bytes = g[2],
                                 .snapshots = p[0],
                                 .snapshot_bytes = p[1] };
    return rc;
}

int mote__index_room(mote__index *x, uint64_t *bytes)
{
    uint64_t f[3], g[3];
    *bytes = 0;
    int rc = mote__index_run(x, SUM_FREE, NULL, 0, take_three, f, 0, 1, NULL);
    if (!rc)
        rc = mote__index_run(x, SUM_SEGMENTS, NULL, 0, take_three, g, 0, 1, NULL);
    if (!rc)
        *bytes = (g[2] > f[2] ? g[2] - f[2] : 0) + g[0] * MOTE_SEGMENT_HEADER;
    return rc;
}

/* ---- snapshots ---- */

int mote__index_snapshot_put(mote__index *x, const mote__snap_entry *e)
{
    return DO(x, SNAP_PUT, B(e->key), B(e->tokens), B(e->chain.id), N(e->chain.n_blocks),
              N(e->chain.n_exact), N(e->approximate), N(e->n_tail), N(e->bytes), N(e->created),
              N(e->used));
}
int mote__index_snapshot_get(mote__index *x, const uint8_t *key, mote__snap_entry *e)
{
    return ONE(x, SNAP_GET, take_snap, e, B(key));
}
int mote__index_snapshot_drop(mote__index *x, const uint8_t *key)
{
    return DO(x, SNAP_DROP, B(key));
}
int mote__index_snapshot_touch(mote__index *x, const uint8_t *key, int64_t used)
{
    return DO(x, SNAP_TOUCH, B(key), N(used));
}
int mote__index_snapshot_set_bytes(mote__index *x, const uint8_t *key, uint64_t bytes)
{
    return DO(x, SNAP_SET_BYTES, B(key), N(bytes));
}
int mote__index_snapshot_next(mote__index *x, const uint8_t *after, mote__snap_entry *e)
{
    return ONE(x, SNAP_NEXT, take_snap, e, B(after ? after : lowest));
}
int mote__index_snapshot_on(mote__index *x, const uint8_t *tokens, uint32_t max_tail, int64_t skip,
                            mote__snap_entry *e)
{
    return ONE(x, SNAP_ON, take_snap, e, B(tokens), N(max_tail), N(skip));
}
int mote__index_snapshot_oldest(mote__index *x, int64_t skip, mote__snap_entry *e)
{
    return ONE(x, SNAP_OLDEST, take_snap, e, N(skip));
}
int mote__index_snapshot_room(mote__index *x, uint64_t *bytes)
{
    uint64_t v[3];
    int rc = mote__index_run(x, SUM_SNAPSHOTS, NULL, 0, take_three, v, 0, 1, NULL);
    *bytes = rc ? 0 : v[1];
    return rc;
}

/* ---- queries of store/index_maintain.c ---- */

const char mote__index_blocks[] = BLOCKS;
const char mote__index_frees[] = "SELECT " FREE_COLUMNS
                                 " FROM free f JOIN segment s ON s.id = f.segment ";
const char mote__index_snaps[] = SNAP;

int mote__index_each(mote__index *x, const char *head, const char *tail, const int64_t *numbers,
                     int n_numbers, mote__index_kind kind, mote__index_row row, void *ctx)
{
    char text[800];
    sqlite3_stmt *s = NULL;
    mote__index_any any;
    int rc = x->db ? SQLITE_OK : SQLITE_MISUSE, result = 0;
    if (!x->db) {
        snprintf(x->why, sizeof x->why, "the index is closed");
        return MOTE_EIO;
    }
    snprintf(text, sizeof text, "%s%s", head, tail);
    rc = sqlite3_prepare_v2(x->db, text, -1, &s, NULL);
    for (int i = 0; i < n_numbers && rc == SQLITE_OK; i++)
        rc = sqlite3_bind_int64(s, i + 1, numbers[i]);
    while (!result && (rc == SQLITE_OK || rc == SQLITE_ROW) &&
           (rc = sqlite3_step(s)) == SQLITE_ROW) {
        int bad = kind == MOTE_ROW_BLOCK      ? take_entry(s, &any.block)
                  : kind == MOTE_ROW_PLACE    ? take_place(s, &any.place)
                  : kind == MOTE_ROW_SNAPSHOT ? take_snap(s, &any.snapshot)
                                              : take_u64(s, &any.number);
        if (bad) {
            snprintf(x->why, sizeof x->why, "a value that cannot be");
            result = MOTE_EFORMAT;
        } else if (row && row(ctx, &any)) {
            break;
        }
    }
    if (!result && rc != SQLITE_OK && rc != SQLITE_ROW && rc != SQLITE_DONE)
        result = mote__index_failed(x, rc);
    sqlite3_finalize(s);
    return result;
}
