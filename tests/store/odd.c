/* What a store must bear besides crashes and damaged files: numbers of the index that cannot be, a
 * process that stops with a lock in its hands, a limit for the size of files, a full disk, an index
 * that an earlier mote left in WAL mode. */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include <sqlite3.h>

#include "common.h"

enum { BYTES = 1000, BLOCKS = 4, PROMPTS = 2, N_IDS = BLOCKS * 256 + 9 };
static int32_t ids[PROMPTS][N_IDS];

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void put_all(fixture *f)
{
    for (int p = 0; p < PROMPTS; p++) {
        mote__chain c = { 0 };
        put_blocks(f, &f->context, &f->pool, &c, ids[p], BLOCKS, BLOCKS);
        mote__store_put_snapshot(f->store, &f->context, &c, ids[p], N_IDS, 1, "the windows", 12);
    }
    mote__store_flush(f->store, NULL);
}

static int windows_of(fixture *f, int p)
{
    mote__snapshot s;
    int found = mote__store_find_snapshot(f->store, &f->context, ids[p], N_IDS, 1, &s);
    if (found)
        assert_memory_equal(s.blob, "the windows", 12);
    mote__snapshot_free(&s);
    return found;
}

/* 1: a row was changed, and no constraint refused it. */
static int change(const char *dir, const char *sql, int64_t value)
{
    char path[300];
    sqlite3 *db;
    sqlite3_stmt *s;
    snprintf(path, sizeof path, "%s/index.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_bind_int64(s, 1, value);
    int changed = sqlite3_step(s) == SQLITE_DONE && sqlite3_changes(db) == 1;
    sqlite3_finalize(s);
    sqlite3_close(db);
    return changed;
}

/* ---- numbers ---- */

/* The value that `how` makes of the column's own: a bit flipped, or one of these. */
static const int64_t odd[] = { -1,
                               0,
                               1,
                               7,
                               255,
                               65536,
                               INT64_C(1) << 31,
                               INT64_C(1) << 32,
                               (INT64_C(1) << 32) - 1,
                               INT64_C(1) << 40,
                               INT64_C(1) << 62,
                               INT64_MAX - 1,
                               INT64_MAX,
                               INT64_MIN };
static const int bits[] = { 0, 1, 3, 8, 20, 31, 32, 47, 62 };
enum { N_ODD = sizeof odd / sizeof *odd, N_BITS = sizeof bits / sizeof *bits };

/* One row of a table: of one prompt. */
#define BLOCK(n) "id = (SELECT id FROM block WHERE n_blocks = " #n " ORDER BY id LIMIT 1)"
#define FREE "(segment, slot) = (SELECT segment, slot FROM free LIMIT 1)"
#define SNAP "key = (SELECT min(key) FROM snapshot)"
static const struct column {
    const char *table, *name, *row;
    int tells; /* verify must not call it sound */
} columns[] = {
    { "block", "segment", BLOCK(2), 1 },
    { "block", "slot", BLOCK(2), 1 },
    { "block", "generation", BLOCK(3), 1 },
    { "block", "approximate", BLOCK(1), 1 },
    { "block", "n_blocks", BLOCK(2), 1 },
    { "block", "used", BLOCK(4), 0 },
    { "free", "segment", FREE, 1 },
    { "free", "slot", FREE, 1 },
    { "free", "generation", FREE, 0 },
    { "free", "hole", FREE, 0 },
    { "segment", "id", "1", 1 },
    { "segment", "slot_bytes", "1", 1 },
    { "segment", "payload_bytes", "1", 1 },
    { "segment", "n_slots", "1", 1 },
    { "snapshot", "n_blocks", SNAP, 1 },
    { "snapshot", "n_exact", SNAP, 1 },
    { "snapshot", "approximate", SNAP, 1 },
    { "snapshot", "n_tail", SNAP, 1 },
    { "snapshot", "bytes", SNAP, 1 },
    { "snapshot", "created", SNAP, 0 },
    { "snapshot", "used", SNAP, 0 },
    { "sqlite_sequence", "seq", "1", 0 },
    { "meta", "version", "1", 1 },
    /* from here on with values of other types only */
    { "block", "id", BLOCK(2), 1 },
    { "block", "parent", BLOCK(2), 1 },
    { "snapshot", "key", SNAP, 1 },
    { "snapshot", "tokens", SNAP, 1 },
    { "snapshot", "chain", SNAP, 1 },
};
enum { N_COLUMNS = sizeof columns / sizeof *columns, N_NUMBERS = N_COLUMNS - 5 };
static const char *const types[] = { "'abc'",
                                     "1.5",
                                     "x'0102'",
                                     "zeroblob(16)",
                                     "x'ffffffffffffffffffffffffffffff00'",
                                     "zeroblob(100000)",
                                     "''" };
enum { N_TYPES = sizeof types / sizeof *types };

static void copy_file(const char *from, const char *to)
{
    char buffer[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (ssize_t n; (n = read(in, buffer, sizeof buffer)) > 0;)
        assert_int_equal(write(out, buffer, (size_t)n), n);
    close(in);
    close(out);
}
static void copy_dir(const char *from, const char *to)
{
    mkdir(to, 0700);
    DIR *d = opendir(from);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char a[600], b[600];
        snprintf(a, sizeof a, "%s/%s", from, e->d_name);
        snprintf(b, sizeof b, "%s/%s", to, e->d_name);
        if (e->d_name[0] != '.')
            copy_file(a, b);
    }
    closedir(d);
}

/* After one number was changed: a run, gc or verify comes first; then everything works, and the
 * rows that were not touched are there. */
static void after_change(fixture *f, const struct column *c, const char *what, int first, int all)
{
    f->log[0] = 0;
    char *text = NULL;
    mote_err err = { 0 };
    if (fixture_open(f))
        fail_msg("%s: does not open: %s", what, f->log);
    if (first == 1 && mote_store_gc_json(f->store, &text, &err))
        fail_msg("%s: gc: %s: %s", what, err.message, f->log);
    if (first == 2) {
        int rc = mote_store_verify_json(f->store, 0, &text, &err);
        if (rc ||
            (c->tells && all && !strstr(text, "\"damaged\":1") && !strstr(text, "\"damaged\":2")))
            fail_msg("%s: verify: %s %s", what, rc ? err.message : text, f->log);
    }
    mote_free(text);
    size_t n[PROMPTS], whole = 0;
    for (int p = 0; p < PROMPTS; p++) {
        windows_of(f, p);
        whole += (n[p] = match_n(f, ids[p], N_IDS)) == BLOCKS;
    }
    if (!whole) /* only one prompt's row was changed */
        fail_msg("%s: %zu and %zu blocks of %d are left: %s", what, n[0], n[1], BLOCKS, f->log);
    put_all(f);
    for (int p = 0; p < PROMPTS; p++) {
        if (match_n(f, ids[p], N_IDS) != BLOCKS)
            fail_msg("%s: prompt %d is not stored again: %s", what, p, f->log);
        if (!windows_of(f, p))
            fail_msg("%s: snapshot %d is not stored again: %s", what, p, f->log);
    }
    mote_store_close(f->store);
    if (fixture_open(f))
        fail_msg("%s: does not open again: %s", what, f->log);
    verify_n(f->store, 0, "damaged");
    if (verify_n(f->store, 0, "damaged"))
        fail_msg("%s: damage stays: %s", what, f->log);
    for (int p = 0; p < PROMPTS; p++)
        if (!windows_of(f, p))
            fail_msg("%s: snapshot %d is not stored again on the disk: %s", what, p, f->log);
    mote_store_close(f->store);
    f->store = NULL;
}

static void numbers(void **state)
{
    (void)state;
    static fixture f;
    char sound[300];
    int n = 0, n_changed = 0;
    fixture_init(&f, BYTES);
    f.params.budget_bytes = 64 * 4096; /* a garbled sum is soon over it */
    f.params.snapshot_budget_bytes = 100000;
    must_open(&f);
    put_all(&f);
    /* a free slot, too */
    int32_t other[256];
    mote__chain c0 = { 0 };
    char hex[2 * MOTE_STORE_ID + 1], *text = NULL;
    make_ids(other, 256, 1234, 0);
    put_blocks(&f, &f.context, &f.pool, &c0, other, 1, 1);
    mote__hex(hex, c0.id, MOTE_STORE_ID);
    assert_int_equal(mote_store_rm_json(f.store, &(const char *){ hex }, 1, &text, NULL), 0);
    mote_free(text);
    mote_store_close(f.store);
    snprintf(sound, sizeof sound, "%s-sound", f.dir);
    copy_dir(f.dir, sound);
    for (int k = 0; k < N_COLUMNS; k++)
        for (int v = k < N_NUMBERS ? 0 : N_ODD + N_BITS; v < N_ODD + N_BITS + N_TYPES; v++) {
            const struct column *c = &columns[k];
            char sql[400], what[200];
            int first = (n++ + k) % 3;
            if (v >= N_ODD + N_BITS)
                snprintf(sql, sizeof sql, "UPDATE %s SET %s = %s WHERE %s", c->table, c->name,
                         types[v - N_ODD - N_BITS], c->row);
            else if (v < N_ODD)
                snprintf(sql, sizeof sql, "UPDATE %s SET %s = ?1 WHERE %s", c->table, c->name,
                         c->row);
            else
                snprintf(sql, sizeof sql, "UPDATE %s SET %s = (%s | ?1) - (%s & ?1) WHERE %s",
                         c->table, c->name, c->name, c->name, c->row);
            snprintf(what, sizeof what, "%s.%s, value %d", c->table, c->name, v);
            remove_dir(f.dir);
            copy_dir(sound, f.dir);
            int changed = change(f.dir, sql,
                                 v < N_ODD            ? odd[v]
                                 : v < N_ODD + N_BITS ? INT64_C(1) << bits[v - N_ODD]
                                                      : 0);
            n_changed += changed;
            after_change(&f, c, what, first, changed && v >= N_ODD);
        }
    printf("  %d odd numbers, %d of them taken by the index\n", n, n_changed);
    remove_dir(sound);
    mote__kv_pool_deinit(&f.pool);
    remove_dir(f.dir);
}

/* One chain with several damaged blocks is whole again after one run. */
static void heals_at_once(void **state)
{
    (void)state;
    static fixture f;
    char path[300];
    fixture_init(&f, BYTES);
    must_open(&f);
    put_all(&f);
    snprintf(path, sizeof path, "%s/seg-00000001.mote", f.dir);
    int fd = open(path, O_RDWR);
    for (int slot = 0; slot < 2 * BLOCKS; slot++)
        if (slot % BLOCKS) /* all but the first of each chain */
            assert_int_equal(pwrite(fd, "xxxx", 4, 4096 + slot * 4096 + 2000), 4);
    close(fd);
    for (int p = 0; p < PROMPTS; p++)
        assert_true(match_n(&f, ids[p], N_IDS) < BLOCKS);
    put_all(&f);
    for (int p = 0; p < PROMPTS; p++)
        assert_int_equal(match_n(&f, ids[p], N_IDS), BLOCKS);
    size_t n = 0;
    for (const char *p = f.log; *p; p++)
        n += *p == '\n';
    assert_true(n <= PROMPTS); /* a line for each chain */
    assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
    fixture_end(&f);
}

/* ---- waiting ---- */

/* A process that holds the index, as far as `sql` goes, and stops. */
static pid_t stopped_holder(const char *dir, const char *sql)
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[300];
        sqlite3 *db;
        snprintf(path, sizeof path, "%s/index.db", dir);
        if (sqlite3_open(path, &db) || sqlite3_exec(db, sql, NULL, NULL, NULL))
            _exit(1);
        raise(SIGSTOP);
        for (;;)
            pause();
    }
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    return pid;
}

static void stopped(void **state)
{
    (void)state;
    static const struct {
        const char *sql;
        int written;
    } held[] = {
        { "BEGIN EXCLUSIVE", 0 },
        { "BEGIN IMMEDIATE; UPDATE meta SET version = version", 0 },
        { "BEGIN; SELECT * FROM meta", 0 },
    };
    static fixture f;
    fixture_init(&f, BYTES);
    must_open(&f);
    mote__chain c = { 0 };
    put_blocks(&f, &f.context, &f.pool, &c, ids[0], BLOCKS, BLOCKS);
    mote__store_flush(f.store, NULL);
    mote_store_close(f.store);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        pid_t pid = stopped_holder(f.dir, held[i].sql);
        double began = clock_s();
        f.log[0] = 0;
        must_open(&f);
        if (match_n(&f, ids[0], N_IDS) != BLOCKS) /* what is stored is served */
            fail_msg("%s: not served: %s", held[i].sql, f.log);
        for (int round = 0; round < 5; round++) {
            c = (mote__chain){ 0 };
            put_blocks(&f, &f.context, &f.pool, &c, ids[1], BLOCKS, BLOCKS);
            mote__store_flush(f.store, NULL);
        }
        mote_store_close(f.store);
        f.store = NULL;
        double took = clock_s() - began;
        printf("  %s: %.1f s\n", held[i].sql, took);
        if (took > 12 || took < 1) /* 2 s, on a machine that has nothing else to do */
            fail_msg("%s: %.1f s", held[i].sql, took);
        if (!strstr(f.log, "does not let go") || strchr(strchr(f.log, '\n') + 1, '\n'))
            fail_msg("%s: not one line: %s", held[i].sql, f.log);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    must_open(&f);
    assert_int_equal(match_n(&f, ids[0], N_IDS), BLOCKS);
    assert_int_equal(match_n(&f, ids[1], N_IDS), 0);
    put_all(&f);
    assert_int_equal(match_n(&f, ids[1], N_IDS), BLOCKS);
    fixture_end(&f);
}

/* ---- limits ---- */

static void in_child(void (*body)(fixture *f), fixture *f, const char *what)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        body(f);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("%s: status %x", what, status);
}

static void under_limit(fixture *f)
{
    if (fixture_open(f))
        _exit(strstr(f->log, "limit for files") || strstr(f->log, "File too large") ? 0 : 1);
    put_all(f);
    for (int p = 0; p < PROMPTS; p++)
        match_n(f, ids[p], N_IDS);
    mote_store_close(f->store);
}

static void file_size_limit(void **state)
{
    (void)state;
    static fixture f;
    static const int kib[] = { 0, 4, 8, 16, 24, 32, 48, 64, 128 };
    fixture_init(&f, BYTES);
    for (size_t i = 0; i < sizeof kib / sizeof *kib; i++)
        for (int there = 0; there < 2; there++) {
            char what[64];
            struct rlimit r, old;
            snprintf(what, sizeof what, "%d KiB, store %s", kib[i], there ? "there" : "new");
            remove_dir(f.dir);
            if (there) {
                must_open(&f);
                put_all(&f);
                mote_store_close(f.store);
                f.store = NULL;
            }
            getrlimit(RLIMIT_FSIZE, &old);
            r = old;
            r.rlim_cur = (rlim_t)kib[i] << 10;
            setrlimit(RLIMIT_FSIZE, &r);
            in_child(under_limit, &f, what);
            setrlimit(RLIMIT_FSIZE, &old);
            f.log[0] = 0;
            must_open(&f);
            put_all(&f);
            for (int p = 0; p < PROMPTS; p++)
                if (match_n(&f, ids[p], N_IDS) != BLOCKS)
                    fail_msg("%s: %s", what, f.log);
            assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
            mote_store_close(f.store);
            f.store = NULL;
        }
    fixture_end(&f);
}

/* A file system of 512 KiB of our own; 0: we may not. */
static int small_disk(const char *dir)
{
    char map[64];
    int fd, uid = (int)geteuid();
    if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS))
        return 0;
    snprintf(map, sizeof map, "0 %d 1", uid);
    if (uid && ((fd = open("/proc/self/uid_map", O_WRONLY)) < 0 ||
                write(fd, map, strlen(map)) < 0 || close(fd)))
        return 0;
    return !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
           !mount("tmpfs", dir, "tmpfs", 0, "size=512k,mode=0700");
}

static int fill_disk(const char *dir)
{
    char path[300], zeros[4096] = { 0 };
    snprintf(path, sizeof path, "%s/full", dir);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    while (write(fd, zeros, sizeof zeros) > 0 || write(fd, zeros, 1) > 0)
        ;
    return close(fd);
}

#define check(x)                                                      \
    do {                                                              \
        if (!(x)) {                                                   \
            fprintf(stderr, "line %d: %s\n%s", __LINE__, #x, f->log); \
            _exit(1);                                                 \
        }                                                             \
    } while (0)

static void on_full_disk(fixture *f)
{
    char disk[200], store[240], full[240];
    snprintf(disk, sizeof disk, "%.199s", f->dir);
    if (!small_disk(disk)) {
        printf("  left out: no file system of one's own here\n");
        fflush(stdout);
        _exit(0);
    }
    snprintf(full, sizeof full, "%s/full", disk);
    for (int k = 0; k < 8; k++) { /* each way with the index's log there, and without it */
        int way = k % 4;
        snprintf(store, sizeof store, "%s/store%d", disk, k);
        snprintf(f->dir, sizeof f->dir, "%.255s", store);
        f->log[0] = 0;
        f->now = 1000000;
        f->params.must_exist = 0;
        check(!fixture_open(f));
        put_all(f);
        mote_store_close(f->store);
        if (way == 3) { /* the index is gone, and there is no room for one */
            char path[400];
            snprintf(path, sizeof path, "%s/index.db", store);
            truncate(path, 0);
        }
        if (k >= 4) {
            char path[400];
            snprintf(path, sizeof path, "%s/index.db-journal", store);
            unlink(path);
        }
        fill_disk(disk);
        char *text = NULL;
        mote_err err = { 0 };
        f->params.must_exist = 1;
        check(!fixture_open(f));
        if (way < 3) {
            for (int p = 0; p < PROMPTS; p++)
                check(match_n(f, ids[p], N_IDS) == BLOCKS); /* what is stored is served */
            check(windows_of(f, 0));
            check(!mote_store_stat_json(f->store, &text, &err));
            mote_free(text);
            text = NULL;
            int32_t other[N_IDS];
            mote__chain c = { 0 };
            make_ids(other, N_IDS, 999, 0);
            put_blocks(f, &f->context, &f->pool, &c, other, 3 * BLOCKS / 4, BLOCKS);
            mote__store_flush(f->store, NULL);
            for (int p = 0; p < PROMPTS; p++)
                check(match_n(f, ids[p], N_IDS) == BLOCKS);
            if (way == 1) { /* times of use are written with the closing; then all expires */
                mote_store_close(f->store);
                f->now += 100 * 3600;
                check(!fixture_open(f));
            }
            check(!(way == 2 ? mote_store_rm_json(f->store, NULL, 0, &text, &err)
                             : mote_store_gc_json(f->store, &text, &err)));
            json_int_t left = ask(f->store, mote_store_stat_json, "blocks");
            if (left > (way ? 0 : 2 * BLOCKS + 3))
                fprintf(stderr, "way %d: %d blocks left, %s\n", way, (int)left, text);
            check(left <= (way ? 0 : 2 * BLOCKS + 3));
        } else {
            check(!mote_store_rm_json(f->store, NULL, 0, &text, &err));
        }
        mote_free(text);
        mote_store_close(f->store);
        f->store = NULL;
        unlink(full);
        f->log[0] = 0;
        check(!fixture_open(f));
        put_all(f);
        for (int p = 0; p < PROMPTS; p++)
            check(match_n(f, ids[p], N_IDS) == BLOCKS);
        check(verify_n(f->store, 0, "damaged") == 0);
        mote_store_close(f->store);
        f->store = NULL;
        remove_dir(store);
    }
}

static void full_disk(void **state)
{
    (void)state;
    static fixture f;
    fixture_init(&f, BYTES);
    mkdir(f.dir, 0700);
    in_child(on_full_disk, &f, "a full disk");
    fixture_end(&f);
}

/* ---- a process that died while it committed ---- */

static void dead_in_commit(void **state)
{
    (void)state;
    static fixture f;
    /* read only, in a directory that may not be written, written */
    for (int way = 0; way < 3; way++) {
        fixture_init(&f, BYTES);
        must_open(&f);
        put_all(&f);
        mote_store_close(f.store);
        pid_t pid = fork();
        if (pid == 0) {
            char path[300];
            sqlite3 *db;
            snprintf(path, sizeof path, "%s/index.db", f.dir);
            _exit(sqlite3_open(path, &db) ||
                  sqlite3_exec(
                      db,
                      "PRAGMA journal_mode = PERSIST; PRAGMA cache_size = 1; BEGIN EXCLUSIVE;"
                      "UPDATE block SET used = used + 1, n_blocks = 77; DELETE FROM snapshot;"
                      "INSERT INTO free SELECT 9, slot, 1, 0 FROM block",
                      NULL, NULL, NULL));
        }
        int status;
        char log[300], first = 0;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        snprintf(log, sizeof log, "%s/index.db-journal", f.dir);
        int fd = open(log, O_RDONLY);
        assert_int_equal(read(fd, &first, 1), 1);
        close(fd);
        assert_int_not_equal(first, 0); /* it has something to undo */
        f.params.read_only = way < 2;
        if (way == 1)
            chmod(f.dir, 0500);
        must_open(&f);
        assert_int_equal(ask(f.store, mote_store_stat_json, "blocks"), PROMPTS * BLOCKS);
        for (int p = 0; p < PROMPTS; p++) {
            assert_int_equal(match_n(&f, ids[p], N_IDS), BLOCKS);
            assert_true(windows_of(&f, p));
        }
        assert_string_equal(f.log, "");
        chmod(f.dir, 0700);
        fixture_end(&f);
    }
}

/* ---- an index of an earlier mote ---- */

static void from_wal(void **state)
{
    (void)state;
    static fixture f;
    for (int crashed = 0; crashed < 2; crashed++) {
        fixture_init(&f, BYTES);
        must_open(&f);
        put_all(&f);
        mote_store_close(f.store);
        pid_t pid = fork();
        if (pid == 0) {
            char path[300];
            sqlite3 *db;
            snprintf(path, sizeof path, "%s/index.db", f.dir);
            int bad = sqlite3_open(path, &db) ||
                      sqlite3_exec(db, "PRAGMA journal_mode = WAL; UPDATE block SET used = 1000001",
                                   NULL, NULL, NULL);
            if (!crashed)
                sqlite3_close(db);
            _exit(bad);
        }
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        must_open(&f);
        for (int p = 0; p < PROMPTS; p++) {
            assert_int_equal(match_n(&f, ids[p], N_IDS), BLOCKS);
            assert_true(windows_of(&f, p));
        }
        mote__store_counts c;
        mote__store_get_counts(f.store, &c);
        assert_int_equal(c.rebuilds, 0); /* it was changed, not made anew */
        assert_string_equal(f.log, "");
        fixture_end(&f);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (int p = 0; p < PROMPTS; p++)
        make_ids(ids[p], N_IDS, (uint64_t)p + 700, 0);
    if (!access("/dev/shm", W_OK))
        setenv("TMPDIR", "/dev/shm", 0); /* hundreds of stores */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),   cmocka_unit_test(heals_at_once),
        cmocka_unit_test(stopped),   cmocka_unit_test(file_size_limit),
        cmocka_unit_test(full_disk), cmocka_unit_test(dead_in_commit),
        cmocka_unit_test(from_wal)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
