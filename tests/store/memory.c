/* Memory: whatever allocation fails, nothing that is stored is lost or changed, nothing wrong is
 * served, and closing finds no byte without an owner (mote_store_close asserts it). */
#include "common.h"
#include "store/impl.h"

enum { BYTES = 8192, N = 6, TAIL = 40, BLOB = 3000 };
static fixture f;
static int32_t kept[N * 256 + TAIL], more[N * 256 + TAIL];
static mote__chain kept_chain;
static uint8_t blob[BLOB];

static int expected(int rc) { return rc == 0 || rc == MOTE_ENOMEM; }

/* As put_blocks, but for blocks that there is no memory for. */
static void put_what_goes(const int32_t *ids)
{
    mote__chain chain = { 0 };
    for (size_t i = 0; i < N; i++) {
        mote__kv_block *b = mote__kv_block_new(&f.pool);
        if (!b)
            break;
        mote__chain next = mote__chain_next(&f.context, &chain, ids + i * 256, 1);
        content(mote__kv_block_here(b), BYTES, next.id);
        mote__store_put(f.store, &f.context, &chain, ids + i * 256, 1, &f.pool, b);
        mote__kv_block_unref(&f.pool, b);
    }
    mote__store_put_snapshot(f.store, &f.context, &chain, ids, N * 256 + TAIL, 1, blob, BLOB);
}

static int snapshot_is_found(const int32_t *ids)
{
    mote__snapshot snap;
    if (!mote__store_find_snapshot(f.store, &f.context, ids, N * 256 + TAIL, 0, &snap))
        return 0;
    assert_int_equal(snap.blob_bytes, BLOB);
    assert_memory_equal(snap.blob, blob, BLOB);
    mote__snapshot_free(&snap);
    return 1;
}

static void ask_everything(void)
{
    static const struct {
        const char *name;
        store_function f;
    } asks[] = { { "stat", mote_store_stat_json },
                 { "ls", mote_store_ls_json },
                 { "gc", mote_store_gc_json } };
    char *text = NULL;
    mote_err err = { 0 };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        int rc = asks[i].f(f.store, &text, &err);
        if (!expected(rc))
            fail_msg("%s: %s", asks[i].name, err.message);
        if (!rc)
            mote_free(text);
    }
    int rc = mote_store_verify_json(f.store, 0, &text, &err);
    if (!expected(rc))
        fail_msg("verify: %s", err.message);
    if (!rc)
        mote_free(text);
}

/* What was stored before is all there. */
static void check_kept(const char *after, long n)
{
    f.log[0] = 0;
    must_open(&f);
    size_t there = match_n(&f, kept, N * 256);
    if (there != N || !snapshot_is_found(kept) || verify_n(f.store, 0, "damaged"))
        fail_msg("%s, allocation %ld: %zu of %d blocks left: %s", after, n, there, N, f.log);
    mote_store_close(f.store);
    f.store = NULL;
}

/* Removes what a round has put, so that the next one puts it anew. */
static void remove_more(void)
{
    mote__chain chain = { 0 };
    char id[33], *text = NULL;
    mote_err err;
    const char *ids[] = { id };
    must_open(&f);
    chain = mote__chain_next(&f.context, &chain, more, 1);
    mote__hex(id, chain.id, 16);
    if (!mote_store_rm_json(f.store, ids, 1, &text, &err))
        mote_free(text);
    mote_store_close(f.store);
    f.store = NULL;
}

static void keep_something(void)
{
    kept_chain = (mote__chain){ 0 };
    fixture_init(&f, BYTES);
    make_ids(kept, N * 256 + TAIL, 1, 0);
    make_ids(more, N * 256 + TAIL, 2, 0);
    for (size_t i = 0; i < BLOB; i++)
        blob[i] = (uint8_t)(i * 7);
    must_open(&f);
    put_blocks(&f, &f.context, &f.pool, &kept_chain, kept, N, N);
    mote__store_put_snapshot(f.store, &f.context, &kept_chain, kept, N * 256 + TAIL, 1, blob, BLOB);
    mote_store_close(f.store);
    f.store = NULL;
}

static void every_allocation(void **state)
{
    keep_something();
    long n = 1, opened = 0;
    for (int through = 0; !through; n++) {
        f.log[0] = 0;
        mote__alloc_fail_at = n;
        int rc = fixture_open(&f);
        if (!rc) {
            opened++;
            put_what_goes(more);
            match_n(&f, kept, N * 256);
            snapshot_is_found(kept);
            mote__store_flush(f.store, NULL);
            match_n(&f, more, N * 256);
            snapshot_is_found(more);
            ask_everything();
            through = mote__alloc_fail_at > 1; /* it was never this one's turn */
            mote__alloc_fail_at = 0;
            mote_store_close(f.store);
        }
        mote__alloc_fail_at = 0;
        if (!expected(rc))
            fail_msg("allocation %ld: %d: %s", n, rc, f.log);
        assert_int_equal(rc != 0, f.store == NULL);
        f.store = NULL;
        check_kept("all of it", n);
        remove_more();
    }
    assert_true(n > 60);
    assert_true(opened > 40);
    fixture_end(&f);
}

/* One call at a time, each with its n-th allocation failing, for every n. */
static char port[300];
static int rebuild(char **text, mote_err *err)
{
    return mote_store_verify_json(f.store, 1, text, err);
}
static int verify(char **text, mote_err *err)
{
    return mote_store_verify_json(f.store, 0, text, err);
}
static int repair(char **text, mote_err *err)
{
    return mote_store_repair_json(f.store, 1, text, err);
}
static int export(char **text, mote_err *err)
{
    return mote_store_export_json(f.store, port, text, err);
}
static int import(char **text, mote_err *err)
{
    return mote_store_import_json(f.store, port, text, err);
}
static int list(char **text, mote_err *err) { return mote_store_ls_json(f.store, text, err); }
static int collect(char **text, mote_err *err) { return mote_store_gc_json(f.store, text, err); }
static int remove_one(char **text, mote_err *err)
{
    return mote_store_rm_json(f.store, (const char *const[]){ "abcdef0123" }, 1, text, err);
}

static void every_allocation_of_each_call(void **state)
{
    static const struct {
        const char *name;
        int (*f)(char **text, mote_err *err);
        int best; /* without a failure */
    } calls[] = { { "export", export, 0 }, { "import", import, 0 },
                  { "repair", repair, 0 }, { "rebuild", rebuild, 0 },
                  { "ls", list, 0 },       { "gc", collect, 0 },
                  { "verify", verify, 0 }, { "rm", remove_one, MOTE_EINVAL } };
    keep_something();
    snprintf(port, sizeof port, "%s.export", f.dir);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int failures = 0;
        for (long n = 1, through = 0; !through; n++) {
            char *text = NULL;
            mote_err err = { 0 };
            must_open(&f);
            mote__alloc_fail_at = n;
            int rc = calls[i].f(&text, &err);
            through = mote__alloc_fail_at > 1 || n > 300;
            mote__alloc_fail_at = 0;
            /* the writer does not say why a record was not written */
            if (rc == MOTE_EIO && calls[i].f == import)
                rc = MOTE_ENOMEM;
            if (rc != (through ? calls[i].best : MOTE_ENOMEM) && rc != calls[i].best)
                fail_msg("%s, allocation %ld: %d: %s", calls[i].name, n, rc, err.message);
            failures += rc == MOTE_ENOMEM;
            if (!rc)
                mote_free(text);
            mote_store_close(f.store);
            f.store = NULL;
            check_kept(calls[i].name, n);
        }
        if (!failures)
            fail_msg("%s never failed", calls[i].name);
    }
    unlink(port);
    fixture_end(&f);
}

/* Openings that have to make the index anew, or a segment's header. */
static void every_allocation_of_an_opening(void **state)
{
    keep_something();
    for (int damage = 0; damage < 3; damage++)
        for (long n = 1, through = 0; !through; n++) {
            char path[300];
            uint8_t zeros[64] = { 0 };
            snprintf(path, sizeof path, "%s/index.db", f.dir);
            if (damage != 1)
                unlink(path);
            snprintf(path, sizeof path, "%s/seg-00000001.mote", f.dir);
            int fd = damage ? open(path, O_WRONLY) : -1;
            if (fd >= 0) {
                assert_int_equal(pwrite(fd, zeros, sizeof zeros, 0), sizeof zeros);
                close(fd);
            }
            f.log[0] = 0;
            mote__alloc_fail_at = n;
            int rc = fixture_open(&f);
            through = mote__alloc_fail_at > 1;
            mote__alloc_fail_at = 0;
            if (through ? rc : !expected(rc))
                fail_msg("damage %d, allocation %ld: %d: %s", damage, n, rc, f.log);
            mote_store_close(f.store);
            f.store = NULL;
            must_open(&f); /* what it repairs, verify tells of once */
            mote_store_close(f.store);
            check_kept(damage ? "header" : "index", n);
        }
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_allocation),
                                        cmocka_unit_test(every_allocation_of_each_call),
                                        cmocka_unit_test(every_allocation_of_an_opening) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
