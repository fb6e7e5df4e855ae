/* Dying and failing: a power cut at each sync, each operation failing in turn, and bytes of the
 * index that change. Whatever happens, no wrong block is served, no damaged one is indexed, and
 * what was acknowledged is there.
 *
 *   fault [SEEDS]      images per crash point, default 2 */
#include "base/mem.h"
#include "disk.h"

enum { BYTES = 1000, SLOT_BYTES = 4096, PROMPTS = 3, BLOCKS = 5, N_IDS = BLOCKS * 256 };
static int seeds = 2;
static int32_t ids[PROMPTS][N_IDS];

/* What the store said it has written. */
typedef struct acked {
    int blocks[PROMPTS], snapshot;
} acked;

static uint64_t done_blocks(fixture *f)
{
    mote__store_counts c;
    mote__store_flush(f->store, &c);
    return c.written_blocks + c.known_blocks;
}

/* A little of everything. Failures are expected; crashing, hanging, or lying is not. */
static void workload(fixture *f, acked *a, int strict)
{
    mote__kv_block *blocks[PROMPTS][BLOCKS] = { { NULL } };
    mote__chain at[PROMPTS] = { 0 };
    memset(a, 0, sizeof *a);
    for (int p = 0; p < PROMPTS; p++)
        for (int b = 0; b < BLOCKS; b++)
            if (!(blocks[p][b] = mote__kv_block_new(&f->pool)))
                goto out;
    if (fixture_open(f))
        goto out;
    for (int b = 0; b < BLOCKS; b++)
        for (int p = 0; p < PROMPTS; p++) {
            mote__chain next = mote__chain_next(&f->context, &at[p], ids[p] + b * 256, 1);
            content(mote__kv_block_here(blocks[p][b]), BYTES, next.id);
            uint64_t before = done_blocks(f);
            mote__store_put(f->store, &f->context, &at[p], ids[p] + b * 256, 1, &f->pool,
                            blocks[p][b]);
            if (done_blocks(f) == before + 1 && a->blocks[p] == b)
                a->blocks[p] = b + 1;
            if (p == 0 && b == 2) {
                mote__store_counts c;
                mote__store_put_snapshot(f->store, &f->context, &at[0], ids[0], 3 * 256 + 9, 1,
                                         "the windows", 12);
                mote__store_flush(f->store, &c);
                a->snapshot = c.written_snapshots == 1;
            }
            if (p == 1 && b == 3)
                match_checked(f->store, &f->context, &f->pool, ids[0], N_IDS, NULL, NULL);
            if (b == 3 && !strict) {
                char *text = NULL;
                f->now += 100;
                if (!mote_store_gc_json(f->store, &text, NULL))
                    mote_free(text);
            }
            if (b == 4 && p == 0) {
                mote_store_close(f->store);
                f->store = NULL;
                if (fixture_open(f))
                    goto out;
                memset(&at[0], 0, sizeof at[0]);
                for (int k = 0; k <= b; k++)
                    at[0] = mote__chain_next(&f->context, &at[0], ids[0] + k * 256, 1);
            }
        }
out:
    mote_store_close(f->store);
    f->store = NULL;
    for (int p = 0; p < PROMPTS; p++)
        for (int b = 0; b < BLOCKS && blocks[p][b]; b++)
            mote__kv_block_unref(&f->pool, blocks[p][b]);
}

/* A sound system opens what is left. */
static void check(fixture *f, const char *dir, const acked *a, int strict, const char *what)
{
    fixture g = *f;
    snprintf(g.dir, sizeof g.dir, "%s", dir);
    g.tuning.io = NULL;
    g.store = NULL;
    g.log[0] = 0;
    if (fixture_open(&g))
        fail_msg("%s: does not open: %s", what, g.log);
    json_int_t damaged = verify_n(g.store, 0, "damaged");
    if (damaged)
        fail_msg("%s: %d damaged entries in the index: %s", what, (int)damaged, g.log);
    for (int p = 0; p < PROMPTS; p++) {
        int n = (int)match_checked(g.store, &g.context, &g.pool, ids[p], N_IDS, NULL, NULL);
        if (strict && n < a->blocks[p])
            fail_msg("%s: prompt %d: %d blocks acknowledged, %d there: %s", what, p, a->blocks[p],
                     n, g.log);
    }
    mote__snapshot s;
    int found = mote__store_find_snapshot(g.store, &g.context, ids[0], N_IDS, 1, &s);
    if (found)
        assert_memory_equal(s.blob, "the windows", 12);
    if (strict && a->snapshot && a->blocks[0] >= 3 && !found) /* it stands on three blocks */
        fail_msg("%s: the snapshot was acknowledged and is gone: %s", what, g.log);
    mote__snapshot_free(&s);
    /* and it is a store that works */
    mote__chain c = { 0 };
    put_blocks(&g, &g.context, &g.pool, &c, ids[0], strict ? BLOCKS : 2, BLOCKS);
    mote__store_flush(g.store, NULL);
    assert_true(match_checked(g.store, &g.context, &g.pool, ids[0], N_IDS, NULL, NULL) >=
                (strict ? (size_t)BLOCKS : 2));
    assert_int_equal(verify_n(g.store, 0, "damaged"), 0);
    mote_store_close(g.store);
}

static void begin(fixture *f, disk *d, int logging, int strict)
{
    fixture_init(f, BYTES);
    disk_init(d, logging);
    f->tuning.io = &d->io;
    /* otherwise it evicts and collects all the time */
    f->params.budget_bytes = strict ? 0 : 9 * SLOT_BYTES;
}

static void crash(int strict)
{
    static fixture f;
    static disk d;
    acked a;
    begin(&f, &d, 1, strict);
    workload(&f, &a, strict);
    long n = d.n_syncs;
    for (int p = 0; p < PROMPTS && strict; p++)
        assert_int_equal(a.blocks[p], p ? BLOCKS : 5);
    fixture_end(&f);
    disk_deinit(&d);
    assert_true(n > 40);
    int images = 0;
    for (long k = 1; k <= n; k++) {
        begin(&f, &d, 1, strict);
        d.crash_at = k;
        workload(&f, &a, strict);
        for (int seed = 0; seed < seeds; seed++) {
            char dir[300], what[64];
            snprintf(dir, sizeof dir, "%s-%d", f.dir, seed);
            snprintf(what, sizeof what, "crash at sync %ld, seed %d", k, seed);
            disk_image(&d, dir, (uint64_t)(k * 1000 + seed));
            check(&f, dir, &a, strict, what);
            remove_dir(dir);
            images++;
        }
        fixture_end(&f);
        disk_deinit(&d);
    }
    printf("  %ld crash points, %d images\n", n, images);
}
static void crash_strict(void **state) { crash(1); }
static void crash_evicting(void **state) { crash(0); }

/* ---- tending: gc and rm, with blocks of two sizes, cut short at each sync and with each operation
 * failing ---- */

enum { LARGE = 6000 }; /* slots of 8,192 bytes */
typedef struct tended {
    int removed[PROMPTS];
} tended; /* 1: rm has said that it is gone, and nobody put it again */

static int tend_ask(fixture *f, int (*what)(mote_store *s, char **json, mote_err *err))
{
    char *text = NULL;
    int rc = what(f->store, &text, NULL);
    mote_free(text);
    return !rc;
}
static int rm_all(mote_store *s, char **json, mote_err *err)
{
    return mote_store_rm_json(s, NULL, 0, json, err);
}

/* Blocks whose memory is there before anything fails. */
static void put_made(fixture *f, const mote__store_context *c, mote__kv_pool *pool,
                     mote__kv_block **made, const int32_t *own)
{
    mote__chain at = { 0 };
    for (int b = 0; b < BLOCKS; b++) {
        mote__chain next = mote__chain_next(c, &at, own + b * 256, 1);
        content(mote__kv_block_here(made[b]), c->block_bytes, next.id);
        mote__store_put(f->store, c, &at, own + b * 256, 1, pool, made[b]);
    }
    mote__store_flush(f->store, NULL);
}

static void tending(fixture *f, tended *t)
{
    fixture large = *f;
    mote__kv_block *small_blocks[BLOCKS], *large_blocks[BLOCKS];
    fixture_pool(&large, LARGE);
    memset(t, 0, sizeof *t);
    for (int b = 0; b < BLOCKS; b++) {
        small_blocks[b] = mote__kv_block_new(&f->pool);
        large_blocks[b] = mote__kv_block_new(&large.pool);
        assert_true(small_blocks[b] && large_blocks[b]);
    }
    f->params.budget_bytes = 0;
    if (fixture_open(f))
        goto out;
    for (int p = 0; p < 2; p++) {
        put_made(f, &f->context, &f->pool, small_blocks, ids[p]);
        put_made(f, &large.context, &large.pool, large_blocks, ids[p]);
        f->now += 10;
    }
    mote_store_close(f->store);
    f->store = NULL;
    f->params.budget_bytes = 8 * SLOT_BYTES + 2 * 4096;
    if (fixture_open(f))
        goto out;
    tend_ask(f, mote_store_gc_json);
    char hex[33];
    mote__chain first = mote__chain_next(&f->context, &(mote__chain){ 0 }, ids[1], 1);
    mote__hex(hex, first.id, 16);
    char *text = NULL;
    t->removed[1] = !mote_store_rm_json(f->store, (const char *const[]){ hex }, 1, &text, NULL);
    mote_free(text);
    put_made(f, &f->context, &f->pool, small_blocks, ids[2]);
    f->now += 73 * 3600;
    tend_ask(f, mote_store_gc_json);
    put_made(f, &large.context, &large.pool, large_blocks, ids[0]);
    put_made(f, &f->context, &f->pool, small_blocks, ids[0]);
    if (tend_ask(f, rm_all))
        t->removed[0] = t->removed[1] = t->removed[2] = 1;
    t->removed[2] = 0;
    put_made(f, &f->context, &f->pool, small_blocks, ids[2]);
out:
    mote_store_close(f->store);
    f->store = NULL;
    for (int b = 0; b < BLOCKS; b++) {
        mote__kv_block_unref(&f->pool, small_blocks[b]);
        mote__kv_block_unref(&large.pool, large_blocks[b]);
    }
    mote__kv_pool_deinit(&large.pool);
}

/* What was removed stays removed, however the index was made; for the rest, as above. */
static void check_tended(fixture *f, const char *dir, const tended *t, int rebuild,
                         const char *what)
{
    fixture g = *f;
    acked none = { .snapshot = 0 };
    snprintf(g.dir, sizeof g.dir, "%s", dir);
    g.tuning.io = NULL;
    g.store = NULL;
    g.log[0] = 0;
    g.params.budget_bytes = 0;
    if (fixture_open(&g))
        fail_msg("%s: does not open: %s", what, g.log);
    if (rebuild)
        verify_n(g.store, 1, "blocks");
    for (int p = 0; p < PROMPTS; p++) {
        size_t n = match_checked(g.store, &g.context, &g.pool, ids[p], N_IDS, NULL, NULL);
        if (t->removed[p] && n)
            fail_msg("%s: prompt %d was removed, %d blocks are back: %s", what, p, (int)n, g.log);
    }
    mote_store_close(g.store);
    g.store = NULL;
    check(&g, dir, &none, 0, what);
}

static void crash_tending(void **state)
{
    static fixture f;
    static disk d;
    tended t;
    int images = 0;
    long n = 0;
    for (long k = 0; k <= n; k++) { /* 0: to its end */
        begin(&f, &d, 1, 1);
        d.crash_at = k;
        tending(&f, &t);
        if (k == 0) {
            n = d.n_syncs;
            assert_true(n > 40 && t.removed[0] && t.removed[1]);
        }
        for (int seed = 0; seed < seeds; seed++) {
            char dir[300], what[64];
            snprintf(dir, sizeof dir, "%s-%d", f.dir, seed);
            snprintf(what, sizeof what, "tending, crash at sync %ld, seed %d", k, seed);
            disk_image(&d, dir, (uint64_t)(k * 1000 + seed));
            check_tended(&f, dir, &t, seed % 2, what);
            remove_dir(dir);
            images++;
        }
        fixture_end(&f);
        disk_deinit(&d);
    }
    printf("  %ld crash points, %d images\n", n, images);
}

static void failing_tending(void **state)
{
    static fixture f;
    static disk d;
    long runs = 0, all[K_KINDS];
    tended t;
    begin(&f, &d, 0, 1);
    tending(&f, &t);
    memcpy(all, d.seen, sizeof all);
    fixture_end(&f);
    disk_deinit(&d);
    for (int kind = 0; kind < K_KINDS; kind++)
        for (long n = 1; n <= all[kind]; n += seeds > 10 ? 1 : 1 + all[kind] / 40, runs++) {
            char what[64];
            begin(&f, &d, 0, 1);
            d.fail_at[kind] = n;
            d.fail_on = runs % 2;
            tending(&f, &t);
            snprintf(what, sizeof what, "tending, kind %d, failure %ld", kind, n);
            memset(&t, 0,
                   /* room that could not be given back brings blocks back with a rebuild */
                   sizeof t);
            check_tended(&f, f.dir, &t, 0, what);
            fixture_end(&f);
            disk_deinit(&d);
        }
    printf("  %ld failures\n", runs);
}

/* ---- each operation failing ---- */

static void each_failure(void **state)
{
    static fixture f;
    static disk d;
    static const char *const name[K_KINDS] = { "write", "sync", "grow", "open", "name", "read" };
    for (int kind = 0; kind < K_KINDS; kind++)
        for (int on = 0; on < 2; on++) {
            long n = 1;
            for (;; n++) {
                acked a;
                char what[64];
                begin(&f, &d, 0, 1);
                d.fail_at[kind] = n;
                d.fail_on = on;
                workload(&f, &a, 1);
                long seen = d.seen[kind];
                snprintf(what, sizeof what, "%s %ld fails%s", name[kind], n,
                         on ? ", and all after it" : "");
                if (kind == K_READ)
                    /* a block that cannot be read is dropped, rightly */
                    memset(&a, 0, sizeof a);
                check(&f, f.dir, &a, 1, what);
                fixture_end(&f);
                disk_deinit(&d);
                if (seen < n)
                    break;
            }
            printf("  %s: %ld failures%s\n", name[kind], n - 1, on ? " for good" : "");
        }
}

static void each_allocation(void **state)
{
    static fixture f;
    static disk d;
    long n = 1;
    for (int clean = 0; !clean; n++) {
        acked a;
        begin(&f, &d, 0, 1);
        mote__alloc_fail_at = n;
        workload(&f, &a, 1);
        clean = mote__alloc_fail_at > 1;
        mote__alloc_fail_at = 0;
        check(&f, f.dir, &a, 1, "allocation");
        fixture_end(&f);
        disk_deinit(&d);
    }
    printf("  %ld allocations\n", n - 2);
}

/* SQLite's own memory. */
static sqlite3_mem_methods system_memory;
static _Atomic long sqlite_fail_at;
static int sqlite_fails(void)
{
    return atomic_load(&sqlite_fail_at) > 0 && atomic_fetch_sub(&sqlite_fail_at, 1) == 1;
}
static void *m_malloc(int n) { return sqlite_fails() ? NULL : system_memory.xMalloc(n); }
static void *m_realloc(void *p, int n)
{
    return sqlite_fails() ? NULL : system_memory.xRealloc(p, n);
}

static void each_sqlite_allocation(void **state)
{
    static fixture f;
    static disk d;
    long n = 1, step = 1;
    int runs = 0;
    for (int clean = 0; !clean; n += step, runs++) {
        acked a;
        begin(&f, &d, 0, 1);
        atomic_store(&sqlite_fail_at, n);
        workload(&f, &a, 1);
        clean = atomic_load(&sqlite_fail_at) > 0;
        atomic_store(&sqlite_fail_at, 0);
        check(&f, f.dir, &a, 1, "SQLite's allocation");
        fixture_end(&f);
        disk_deinit(&d);
        /* thousands of them: every one in the long run only */
        step = n < 60 || seeds > 10 ? 1 : 1 + n / 60;
    }
    printf("  %d of %ld allocations\n", runs - 1, n - step);
}

/* ---- the index under attack ---- */

static void index_flips(void **state)
{
    static fixture f;
    rnd r = { 12 };
    int rebuilt = 0, runs = seeds * 40;
    for (int k = 0; k < runs; k++) {
        fixture_init(&f, BYTES);
        must_open(&f);
        for (int p = 0; p < PROMPTS; p++)
            put_prompt(&f, ids[p], BLOCKS);
        /* half of them while it is closed, half under an open store */
        int live = k % 2;
        if (!live) {
            mote_store_close(f.store);
            f.store = NULL;
        }
        for (int w = 0; w < 2; w++) {
            char path[300];
            struct stat st;
            snprintf(path, sizeof path, "%s/index.db%s", f.dir, w ? "-journal" : "");
            int fd = open(path, O_RDWR);
            if (fd < 0)
                continue;
            fstat(fd, &st);
            size_t flips = 1 + rnd_below(&r, 30), span = 1 + rnd_below(&r, 3);
            for (size_t i = 0; i < flips && st.st_size; i++) {
                uint8_t bytes[3] = { (uint8_t)rnd_u64(&r), (uint8_t)rnd_u64(&r),
                                     (uint8_t)rnd_u64(&r) };
                off_t at = (off_t)rnd_below(&r, (size_t)st.st_size);
                if (k % 5 == 4)
                    at = at % 100; /* SQLite's header */
                assert_int_equal(pwrite(fd, bytes, span, at), span);
            }
            close(fd);
        }
        if (!live)
            must_open(&f);
        for (int round = 0; round < 3; round++) {
            for (int p = 0; p < PROMPTS; p++) {
                match_n(&f, ids[p], N_IDS); /* fails where anything is wrong */
                mote__chain c = { 0 };
                put_blocks(&f, &f.context, &f.pool, &c, ids[p], BLOCKS, BLOCKS);
            }
            mote__store_flush(f.store, NULL);
            f.now += 20;
        }
        char *text = NULL;
        mote_err err = { 0 };
        if (mote_store_verify_json(f.store, 0, &text, &err))
            fail_msg("verify: %s\n%s", err.message, f.log);
        mote_free(text);
        mote_store_close(f.store);
        must_open(&f);
        verify_n(f.store, 0, "damaged");
        if (verify_n(f.store, 0, "damaged"))
            fail_msg("damage stays: %s", f.log);
        for (int p = 0; p < PROMPTS; p++) {
            put_prompt(&f, ids[p], BLOCKS);
            if (match_n(&f, ids[p], N_IDS) != BLOCKS)
                fail_msg("run %d: it does not recover: %s", k, f.log);
        }
        rebuilt += strstr(f.log, "made anew") != NULL;
        fixture_end(&f);
    }
    printf("  %d damaged indexes, %d made anew\n", runs, rebuilt);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seeds = atoi(argv[1]);
    for (int p = 0; p < PROMPTS; p++)
        make_ids(ids[p], N_IDS, (uint64_t)p + 200, p == 2 ? 300 : 0);
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &system_memory);
    sqlite3_mem_methods mine = system_memory;
    mine.xMalloc = m_malloc;
    mine.xRealloc = m_realloc;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &mine);
    if (!access("/dev/shm", W_OK))
        /* thousands of stores; what a disk would lose is in the log */
        setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crash_strict),           cmocka_unit_test(crash_evicting),
        cmocka_unit_test(crash_tending),          cmocka_unit_test(failing_tending),
        cmocka_unit_test(each_failure),           cmocka_unit_test(each_allocation),
        cmocka_unit_test(each_sqlite_allocation), cmocka_unit_test(index_flips)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
