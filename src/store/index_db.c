/* The index as a database: opening it, waiting for other processes, running statements. What the
 * statements are is in index.c. */
#include "store/index_db.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char schema[] =
    "CREATE TABLE segment(id INTEGER PRIMARY KEY AUTOINCREMENT, slot_bytes INTEGER NOT NULL, "
    "payload_bytes INTEGER NOT NULL,"
    " n_slots INTEGER NOT NULL);"
    "CREATE TABLE block(id BLOB PRIMARY KEY NOT NULL, parent BLOB NOT NULL, segment INTEGER NOT "
    "NULL, slot INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, approximate INTEGER NOT NULL, n_blocks INTEGER NOT NULL, used "
    "INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX block_parent ON block(parent);"
    "CREATE UNIQUE INDEX block_slot ON block(segment, slot);"
    "CREATE INDEX block_used ON block(used, n_blocks DESC);"
    "CREATE TABLE free(segment INTEGER NOT NULL, slot INTEGER NOT NULL, generation INTEGER NOT "
    "NULL, hole INTEGER NOT NULL,"
    " PRIMARY KEY(segment, slot)) WITHOUT ROWID;"
    "CREATE TABLE snapshot(key BLOB PRIMARY KEY NOT NULL, tokens BLOB NOT NULL, chain BLOB NOT "
    "NULL, n_blocks INTEGER NOT NULL,"
    " n_exact INTEGER NOT NULL, approximate INTEGER NOT NULL, n_tail INTEGER NOT NULL, bytes "
    "INTEGER NOT NULL,"
    " created INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX snapshot_tokens ON snapshot(tokens);"
    /* says the same as user_version: two flips do not look like a new version */
    "CREATE TABLE meta(version INTEGER NOT NULL);"
    "INSERT INTO meta VALUES(1);";

enum { APPLICATION_ID = 0x4d4f5445 }; /* "MOTE" */

/* ---- waiting for others ---- */

int64_t mote__waiting_left(mote__waiting *w)
{
    int64_t missing = (atomic_load(&w->full_at) - mote__clock_ms() + 9) / 10;
    return missing < 0 ? w->limit_ms : missing < w->limit_ms ? w->limit_ms - missing : 0;
}

void mote__waiting_given_up(mote__waiting *w, int64_t waited_ms)
{
    int64_t now = mote__clock_ms(), at = atomic_load(&w->full_at);
    atomic_store(&w->full_at, (at > now ? at : now) + 10 * waited_ms);
}

/* SQLite asks, n-th time for one lock, whether to try again. */
static int wait_again(void *ctx, int n)
{
    mote__index *x = ctx;
    if (n == 0)
        x->wait_began = mote__clock_ms();
    int64_t waited = mote__clock_ms() - x->wait_began;
    if (!x->waiting || waited >= mote__waiting_left(x->waiting)) {
        if (x->waiting)
            mote__waiting_given_up(x->waiting, waited);
        return 0;
    }
    nanosleep(&(struct timespec){ 0, n < 20 ? 500000 : 2000000 }, NULL);
    return 1;
}

/* ---- statements ---- */

int mote__index_failed(mote__index *x, int rc)
{
    int moved = rc == SQLITE_READONLY_DBMOVED; /* removed, or another one is in its place */
    rc &= 0xff;
    x->busy = rc == SQLITE_BUSY;
    x->full = rc == SQLITE_FULL;
    x->was_full |= x->full;
    if (x->busy)
        snprintf(x->why, sizeof x->why, "another process holds it and does not let go");
    else if (x->full)
        snprintf(x->why, sizeof x->why, "no room (a full disk, or the process's limit for files)");
    else if (moved)
        snprintf(x->why, sizeof x->why, "it was removed");
    else
        snprintf(x->why, sizeof x->why, "%s", x->db ? sqlite3_errmsg(x->db) : sqlite3_errstr(rc));
    return moved || rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB || rc == SQLITE_MISMATCH ||
                   rc == SQLITE_ERROR
               ? MOTE_EFORMAT
               : MOTE_EIO;
}

/* The statement, ready to be bound; NULL: x->why says. */
static sqlite3_stmt *statement(mote__index *x, int which, int *rc)
{
    *rc = SQLITE_OK;
    if (!x->db) {
        snprintf(x->why, sizeof x->why, "the index is closed");
        *rc = SQLITE_MISUSE;
        return NULL;
    }
    if (!x->statements[which])
        *rc = sqlite3_prepare_v3(x->db, mote__index_sql[which], -1, SQLITE_PREPARE_PERSISTENT,
                                 &x->statements[which], NULL);
    return x->statements[which];
}

static int bind(sqlite3_stmt *s, const mote__index_arg *args, int n)
{
    int rc = SQLITE_OK;
    for (int i = 0; i < n && rc == SQLITE_OK; i++)
        rc = args[i].blob ? sqlite3_bind_blob(s, i + 1, args[i].blob, MOTE_STORE_ID, SQLITE_STATIC)
                          : sqlite3_bind_int64(s, i + 1, args[i].number);
    return rc;
}

int mote__index_run(mote__index *x, int which, const mote__index_arg *args, int n_args,
                    mote__index_take take, void *to, size_t stride, size_t max, size_t *n_rows)
{
    int rc;
    sqlite3_stmt *s = statement(x, which, &rc);
    if (!s)
        return x->db ? mote__index_failed(x, rc) : MOTE_EIO;
    size_t n = 0;
    int bad = 0;
    rc = bind(s, args, n_args);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(s);
        if (rc != SQLITE_ROW)
            break;
        if (n < max && take && !bad)
            bad = take(s, (char *)to + n * stride);
        if (++n >= max)
            break;
    }
    int result = rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : mote__index_failed(x, rc);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    if (n_rows)
        *n_rows = n;
    if (result)
        return result;
    if (bad) {
        snprintf(x->why, sizeof x->why, "a value that cannot be");
        return MOTE_EFORMAT;
    }
    return n || n_rows || !take ? 0 : MOTE_INDEX_NONE;
}
/* ---- opening ---- */

void mote__index_close(mote__index *x)
{
    for (int i = 0; i < MOTE_INDEX_STATEMENTS; i++)
        sqlite3_finalize(x->statements[i]);
    memset(x->statements, 0, sizeof x->statements);
    if (x->db)
        sqlite3_close_v2(x->db);
    x->db = NULL;
}

/* The one number that a query gives. */
static int pragma_number(mote__index *x, const char *text, int64_t *value)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(x->db, text, -1, &s, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    *value = rc == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    return rc == SQLITE_ROW ? SQLITE_OK : rc == SQLITE_DONE ? SQLITE_ERROR : rc;
}

/* "file:" and the path with the characters that mean something in a URI written as %xx, and one '/'
 * at most before it: two would begin the name of a host. */
static int uri(char *dst, size_t n, const char *path, const char *query)
{
    size_t k = (size_t)snprintf(dst, n, "file:");
    while (path[0] == '/' && path[1] == '/')
        path++;
    for (; *path; path++) {
        if (k + 4 >= n)
            return 1;
        if (strchr("%?#", *path))
            k += (size_t)snprintf(dst + k, n - k, "%%%02x", (unsigned char)*path);
        else
            dst[k++] = *path;
    }
    return (size_t)snprintf(dst + k, n - k, "%s", query) >= n - k;
}

static int execute(mote__index *x, const char *text)
{
    return sqlite3_exec(x->db, text, NULL, NULL, NULL);
}

/* An earlier mote left the index in WAL mode, or there is a log of that kind: nobody else may use
 * it while that is changed. */
static int set_up(mote__index *x, int writing)
{
    static const char settings[] = "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; "
                                   "PRAGMA mmap_size = 0; PRAGMA synchronous = FULL;"
                                   "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4096";
    static const char journal[] =
        "PRAGMA journal_mode = PERSIST; PRAGMA journal_size_limit = 524288";
    int rc = execute(x, settings), wal = writing && (rc & 0xff) == SQLITE_CANTOPEN;
    if (wal) {
        rc = execute(x, "PRAGMA locking_mode = EXCLUSIVE");
        if (rc == SQLITE_OK)
            rc = execute(x, settings);
    }
    if (rc == SQLITE_OK && writing)
        rc = execute(x, journal);
    if (rc == SQLITE_OK && wal)
        rc = execute(x, "PRAGMA locking_mode = NORMAL; SELECT count(*) FROM meta");
    return rc;
}

int mote__index_open(mote__index *x, const char *path, mote__index_mode mode, const char *vfs,
                     mote__waiting *waiting, mote_err *err)
{
    *x = (mote__index){ .waiting = waiting };
    char name[3 * 4096 + 64];
    if (uri(name, sizeof name, path, mode == MOTE_INDEX_IMMUTABLE ? "?immutable=1" : ""))
        return mote__fail(err, MOTE_EIO, "%s: the path is too long", path);
    /* whoever reads may have to undo what a dead process has left half done, so the file is opened
     * for writing where it can be */
    int access = mode == MOTE_INDEX_IMMUTABLE ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    int rc = sqlite3_open_v2(name, &x->db, SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | access, vfs);
    int64_t application = 0, version = 0, meta = 0;
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(x->db, 1);
        sqlite3_busy_handler(x->db, wait_again, x);
        sqlite3_db_config(x->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        rc = set_up(x, mode == MOTE_INDEX_WRITE);
    }
    if (rc == SQLITE_OK && mode == MOTE_INDEX_READ)
        rc = execute(x, "PRAGMA query_only = ON");
    if (rc == SQLITE_OK && mode == MOTE_INDEX_CREATE)
        rc = sqlite3_exec(x->db,
                          "PRAGMA page_size = 4096; PRAGMA journal_mode = MEMORY; PRAGMA "
                          "application_id = 0x4d4f5445;"
                          "PRAGMA user_version = 1; BEGIN",
                          NULL, NULL, NULL);
    if (rc == SQLITE_OK && mode == MOTE_INDEX_CREATE)
        rc = sqlite3_exec(x->db, schema, NULL, NULL, NULL);
    if (rc == SQLITE_OK && mode != MOTE_INDEX_CREATE) {
        rc = pragma_number(x, "PRAGMA application_id", &application);
        if (rc == SQLITE_OK)
            rc = pragma_number(x, "PRAGMA user_version", &version);
        if (rc == SQLITE_OK)
            rc = pragma_number(x, "SELECT version FROM meta", &meta);
        if (rc == SQLITE_OK && application == APPLICATION_ID && version > MOTE_STORE_VERSION &&
            meta == version) {
            mote__index_close(x);
            return mote__fail(err, MOTE_EVERSION, "%s: store version %lld, the newest known is %d",
                              path, (long long)version, MOTE_STORE_VERSION);
        }
        if (rc == SQLITE_OK &&
            (application != APPLICATION_ID || version != MOTE_STORE_VERSION || meta != version))
            rc = SQLITE_NOTADB;
        for (int i = 0; i < MOTE_INDEX_STATEMENTS && mote__index_sql[i] && rc == SQLITE_OK; i++)
            statement(x, i, &rc);
    }
    if (rc == SQLITE_OK)
        return 0;
    int code = mote__index_failed(x, rc), busy = x->busy, full = x->full;
    mote__fail(err, code, "%s: %s", path,
               rc == SQLITE_NOTADB ? "not an index of this store" : x->why);
    char why[sizeof x->why];
    memcpy(why, x->why, sizeof why);
    mote__index_close(x);
    memcpy(x->why, why, sizeof why);
    x->busy = busy;
    x->full = full;
    return code;
}
