/* The store as its users see it: what is put comes back, what is not the same does not, damage is
 * seen, budgets are kept. */
#include "common.h"
#include "store/impl.h"

enum { BYTES = 1000, SLOT_BYTES = 4096, MAX = 24 * 256 };
static int32_t ids[MAX], other[MAX];

static void round_trip(void **state)
{
    for (int mode = 0; mode < 3; mode++) {
        fixture f;
        fixture_init(&f, mode == 2 ? 227840 : BYTES);
        f.tuning.no_uring = mode == 1;
        f.tuning.reads_in_flight = mode == 0 ? 3 : 0;
        must_open(&f);
        make_ids(ids, MAX, 1, 0);
        assert_int_equal(match_n(&f, ids, MAX), 0);
        put_prompt(&f, ids, 20);
        mote__store_counts c;
        mote__store_flush(f.store, &c);
        assert_int_equal(c.written_blocks, 20);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(match_n(&f, ids, MAX), 20);
            assert_int_equal(match_n(&f, ids, 20 * 256 - 1), 19);
            assert_int_equal(match_n(&f, ids, 255), 0);
            mote__store_want want = { .max_blocks = 7 };
            assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, MAX, &want, NULL), 7);
            reopen(&f);
        }
        /* the same again is known */
        put_prompt(&f, ids, 20);
        mote__store_flush(f.store, &c);
        assert_int_equal(c.known_blocks, 20);
        assert_int_equal(c.written_blocks, 0);
        /* prompts that diverge at token k reuse whole blocks before it */
        static const size_t cut[][2] = { { 255, 0 }, { 256, 1 }, { 257, 1 }, { 511, 1 },
                                         { 512, 2 }, { 513, 2 }, { 2000, 7 } };
        for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
            memcpy(other, ids, sizeof ids);
            other[cut[i][0]]++;
            assert_int_equal(match_n(&f, other, MAX), cut[i][1]);
        }
        /* another context has nothing */
        mote__store_context strange;
        make_context(&strange, f.context.block_bytes, "another");
        assert_int_equal(match_checked(f.store, &strange, &f.pool, ids, MAX, NULL, NULL), 0);
        struct stat st;
        char path[600];
        stat(f.dir, &st);
        assert_int_equal(st.st_mode & 0777, 0700);
        DIR *d = opendir(f.dir);
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            snprintf(path, sizeof path, "%s/%s", f.dir, e->d_name);
            stat(path, &st);
            if (S_ISREG(st.st_mode) && (st.st_mode & 0777) != 0600)
                fail_msg("%s: mode %o", path, st.st_mode & 0777);
        }
        closedir(d);
        assert_string_equal(f.log, "");
        assert_int_equal(ask(f.store, mote_store_stat_json, "blocks"), 20);
        assert_int_equal(ask(f.store, mote_store_stat_json, "payload_bytes"),
                         20 * f.context.block_bytes);
        assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
        assert_int_equal(f.pool.n_blocks_used, 0);
        fixture_end(&f);
    }
}

static void provenance(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    must_open(&f);
    make_ids(ids, MAX, 2, 0);
    mote__chain exact = { 0 }, mixed = { 0 }, got;
    put_blocks(&f, &f.context, &f.pool, &exact, ids, 5, 5);
    /* 2 exact, then approximate up to 8 */
    put_blocks(&f, &f.context, &f.pool, &mixed, ids, 8, 2);
    mote__store_flush(f.store, NULL);
    mote__store_want want = { .exact_only = 1 };
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, MAX, &want, &got), 5);
    assert_int_equal(got.n_exact, 5);
    /* exact ones are preferred */
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, MAX, NULL, &got), 5);
    assert_int_equal(got.n_exact, 5);
    want = (mote__store_want){ .follow = &mixed };
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, MAX, &want, &got), 8);
    assert_int_equal(got.n_exact, 2);
    assert_memory_equal(got.id, mixed.id, 16);
    /* an approximate block on the third exact one: found below it, and only without exact_only */
    mote__chain third = { 0 };
    make_ids(other, MAX, 3, 3 * 256);
    memcpy(other, ids, 3 * 256 * sizeof *ids);
    put_blocks(&f, &f.context, &f.pool, &third, other, 5, 3);
    mote__store_flush(f.store, NULL);
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, other, MAX, NULL, &got), 5);
    assert_int_equal(got.n_exact, 3);
    want = (mote__store_want){ .exact_only = 1 };
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, other, MAX, &want, &got), 3);
    assert_int_equal(ask(f.store, mote_store_stat_json, "exact_blocks"), 5);
    assert_int_equal(ask(f.store, mote_store_stat_json, "blocks"), 5 + 6 + 2);
    /* a walk that another tier began goes on from there */
    mote__kv_block *blocks[24] = { 0 };
    mote__chain at = { 0 };
    for (int i = 0; i < 2; i++)
        at = mote__chain_next(&f.context, &at, ids + i * 256, 1);
    assert_int_equal(mote__store_match(f.store, &f.context, NULL, ids, MAX, &f.pool, blocks, &at),
                     3);
    assert_null(blocks[1]);
    for (int i = 2; i < 5; i++) {
        assert_non_null(blocks[i]);
        mote__kv_block_unref(&f.pool, blocks[i]);
    }
    assert_memory_equal(at.id, exact.id, 16);
    fixture_end(&f);
}

/* Any single byte of a slot on the disk: the block is not served, it goes, and those below it are
 * not reached. */
static void flips_on_disk(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    must_open(&f);
    make_ids(ids, MAX, 5, 0);
    put_prompt(&f, ids, 3);
    char path[300];
    snprintf(path, sizeof path, "%s/seg-00000001.mote", f.dir);
    for (size_t i = 0; i < SLOT_BYTES; i += i < 560 ? 7 : 53) {
        /* which slot the second block is in can change: look for its identity */
        mote__chain c = { 0 };
        for (int k = 0; k < 2; k++)
            c = mote__chain_next(&f.context, &c, ids + k * 256, 1);
        int fd = open(path, O_RDWR);
        uint8_t image[SLOT_BYTES], id[16];
        off_t at = 4096;
        while (pread(fd, id, 16, at + 64) == 16 && memcmp(id, c.id, 16))
            at += SLOT_BYTES;
        assert_int_equal(pread(fd, image, SLOT_BYTES, at), SLOT_BYTES);
        uint8_t flipped = (uint8_t)(image[i] ^ (1 << i % 8));
        assert_int_equal(pwrite(fd, &flipped, 1, at + (off_t)i), 1);
        close(fd);
        if (match_n(&f, ids, MAX) != 1)
            fail_msg("byte %zu: not seen", i);
        mote__store_flush(f.store, NULL);
        assert_int_equal(ask(f.store, mote_store_stat_json, "blocks"), 2);
        /* written again, into the same slot with a new generation */
        put_prompt(&f, ids, 3);
        assert_int_equal(match_n(&f, ids, MAX), 3);
    }
    assert_non_null(strstr(f.log, "1 block is damaged and dropped ("));
    fixture_end(&f);
}

static void snapshots(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    must_open(&f);
    make_ids(ids, MAX, 6, 0);
    uint8_t blob[5000];
    mote__chain chain = { 0 };
    mote__snapshot got;
    assert_int_equal(mote__store_find_snapshot(f.store, &f.context, ids, MAX, 0, &got), 0);
    static const struct {
        size_t n;
        int exact;
        uint8_t mark;
    } rows[] = { { 100, 1, 1 }, { 512, 1, 2 }, { 600, 1, 3 }, { 600, 0, 4 }, { 700, 0, 5 } };
    put_blocks(&f, &f.context, &f.pool, &chain, ids, 4, 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mote__chain at = { 0 };
        for (size_t k = 0; k < rows[i].n / 256; k++)
            at = mote__chain_next(&f.context, &at, ids + k * 256, 1);
        memset(blob, rows[i].mark, sizeof blob);
        assert_int_equal(mote__store_put_snapshot(f.store, &f.context, &at, ids, rows[i].n,
                                                  rows[i].exact, blob, sizeof blob),
                         MOTE_PUT_QUEUED);
    }
    mote__store_counts c;
    mote__store_flush(f.store, &c);
    assert_int_equal(c.written_snapshots, 5);
    /* ids given, exact only: length found, whose blob */
    static const struct {
        size_t n;
        int exact_only;
        size_t want;
        uint8_t mark;
    } ask_for[] = {
        { 99, 0, 0, 0 },    { 100, 0, 100, 1 }, { 511, 0, 100, 1 }, { 512, 0, 512, 2 },
        { 599, 0, 512, 2 }, { 600, 0, 600, 3 }, { 699, 0, 600, 3 }, { 700, 0, 700, 5 },
        { 700, 1, 600, 3 }, { MAX, 0, 700, 5 }, { MAX, 1, 600, 3 },
    };
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < sizeof ask_for / sizeof *ask_for; i++) {
            int found = mote__store_find_snapshot(f.store, &f.context, ids, ask_for[i].n,
                                                  ask_for[i].exact_only, &got);
            assert_int_equal(found, ask_for[i].want != 0);
            assert_int_equal(got.n_tokens, ask_for[i].want);
            if (found) {
                assert_int_equal(got.blob_bytes, sizeof blob);
                assert_int_equal(((uint8_t *)got.blob)[4999], ask_for[i].mark);
                mote__store_want want = { .follow = &got.chain };
                assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, MAX, &want, NULL),
                                 got.n_tokens / 256);
            }
            mote__snapshot_free(&got);
        }
        reopen(&f);
    }
    /* another tail, another context: nothing */
    memcpy(other, ids, sizeof ids);
    other[599]++;
    mote__store_find_snapshot(f.store, &f.context, other, MAX, 0, &got);
    assert_int_equal(got.n_tokens, 512);
    mote__snapshot_free(&got);
    other[3]++;
    assert_int_equal(mote__store_find_snapshot(f.store, &f.context, other, MAX, 0, &got), 0);
    mote__store_context strange;
    make_context(&strange, BYTES, "another");
    assert_int_equal(mote__store_find_snapshot(f.store, &strange, ids, MAX, 0, &got), 0);
    /* damage: the longest one is dropped, the next is found */
    DIR *d = opendir(f.dir);
    int flipped = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[600];
        uint8_t head[512];
        snprintf(path, sizeof path, "%s/%s", f.dir, e->d_name);
        if (strncmp(e->d_name, "snap-", 5))
            continue;
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, head, 512, 0), 512);
        if (head[24] == 700 - 512) {
            assert_int_equal(pwrite(fd, "X", 1, 3000), 1);
            flipped++;
        }
        close(fd);
    }
    closedir(d);
    assert_int_equal(flipped, 1);
    assert_int_equal(mote__store_find_snapshot(f.store, &f.context, ids, MAX, 0, &got), 1);
    assert_int_equal(got.n_tokens, 600);
    mote__snapshot_free(&got);
    mote__store_flush(f.store, NULL);
    assert_int_equal(ask(f.store, mote_store_stat_json, "snapshots"), 4);
    assert_non_null(strstr(f.log, "a snapshot is damaged (checksum)"));
    /* the index from the files alone finds them again */
    assert_int_equal(verify_n(f.store, 1, "snapshots"), 4);
    assert_int_equal(match_n(&f, ids, MAX), 4);
    mote__store_find_snapshot(f.store, &f.context, ids, MAX, 0, &got);
    assert_int_equal(got.n_tokens, 600);
    mote__snapshot_free(&got);
    /* their own budget, and their own time */
    mote_store_close(f.store);
    f.params.snapshot_budget_bytes = 2 * 6000;
    f.now += 10;
    must_open(&f);
    memset(blob, 9, sizeof blob);
    assert_int_equal(mote__store_put_snapshot(f.store, &f.context, &(mote__chain){ 0 }, ids, 50, 1,
                                              blob, sizeof blob),
                     MOTE_PUT_QUEUED);
    mote__store_flush(f.store, NULL);
    assert_int_equal(ask(f.store, mote_store_stat_json, "snapshots"), 2);
    f.now += 73 * 3600;
    assert_int_equal(mote__store_find_snapshot(f.store, &f.context, ids, 60, 0, &got), 0);
    assert_int_equal(ask(f.store, mote_store_gc_json, "removed_snapshots"), 2);
    fixture_end(&f);
}

/* gc: a note of a fingerprint goes when its time is up, and not before; what is not ours stays. */
static void old_notes(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    must_open(&f);
    static const struct {
        const char *name;
        int hours;
        int stays;
    } files[] = {
        { "model-00.mote", 1, 1 },
        { "model-11.mote", 73, 0 },
        { "mine.txt", 1000, 1 },
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", f.dir, files[i].name);
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        struct timespec then = { .tv_sec = time(NULL) - files[i].hours * 3600 },
                        times[2] = { then, then };
        assert_int_equal(futimens(fd, times), 0);
        close(fd);
    }
    ask(f.store, mote_store_gc_json, "removed_snapshots");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", f.dir, files[i].name);
        assert_int_equal(access(path, F_OK) == 0, files[i].stays);
    }
    fixture_end(&f);
}

static uint64_t recent_found(fixture *f)
{
    mote__store_counts c;
    mote__store_get_counts(f->store, &c);
    return c.recent_snapshots;
}

static size_t find_length(fixture *f, const mote__store_context *c, size_t n_ids, int exact_only,
                          uint8_t mark)
{
    mote__snapshot got;
    if (mote__store_find_snapshot(f->store, c, ids, n_ids, exact_only, &got))
        assert_int_equal(((uint8_t *)got.blob)[0], mark);
    size_t n = got.n_tokens;
    mote__snapshot_free(&got);
    return n;
}

static void put_mark(fixture *f, size_t n, int exact, uint8_t mark)
{
    uint8_t blob[1000];
    memset(blob, mark, sizeof blob);
    mote__chain at = { 0 };
    for (size_t k = 0; k < n / 256; k++)
        at = mote__chain_next(&f->context, &at, ids + k * 256, 1);
    assert_int_equal(mote__store_put_snapshot(f->store, &f->context, &at, ids, n, exact, blob,
                                              sizeof blob),
                     MOTE_PUT_QUEUED);
}

/* Snapshots in memory: found without a file, among those on disk by the same order, within their
 * own room and time. */
static void recent_snapshots(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    f.params.snapshot_memory_bytes = 3 * 2200; /* three of these */
    must_open(&f);
    make_ids(ids, MAX, 8, 0);
    mote__chain chain = { 0 };
    put_blocks(&f, &f.context, &f.pool, &chain, ids, 4, 4);
    mote__store_flush(f.store, NULL);
    put_mark(&f, 100, 1, 1);
    put_mark(&f, 150, 1, 2);
    put_mark(&f, 600, 0, 3);
    mote__store_flush(f.store, NULL);
    /* their files are gone: memory serves them, and the index's entries do not disturb */
    DIR *d = opendir(f.dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (!strncmp(e->d_name, "snap-", 5))
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
    closedir(d);
    assert_int_equal(find_length(&f, &f.context, 120, 0, 1), 100);
    assert_int_equal(find_length(&f, &f.context, 200, 0, 2), 150);
    assert_int_equal(find_length(&f, &f.context, MAX, 0, 3), 600);
    assert_int_equal(recent_found(&f), 3);
    assert_int_equal(find_length(&f, &f.context, MAX, 1, 2), 150);
    mote__store_context strange;
    make_context(&strange, BYTES, "another");
    assert_int_equal(find_length(&f, &strange, MAX, 0, 0), 0);
    /* another one pushes the least recently used out (100): its file is gone, which is noticed, and
     * nothing is served */
    put_mark(&f, 601, 1, 4);
    mote__store_flush(f.store, NULL);
    assert_int_equal(ask(f.store, mote_store_stat_json, "memory_snapshots"), 3);
    assert_int_equal(find_length(&f, &f.context, MAX, 0, 4), 601);
    assert_int_equal(find_length(&f, &f.context, 120, 0, 0), 0);
    assert_non_null(strstr(f.log, "a snapshot is damaged (the file is missing or cut)"));
    /* flipped in memory: the one on disk serves instead */
    uint64_t before = recent_found(&f);
    for (size_t i = 0; i < f.store->recent.n; i++)
        if (f.store->recent.entries[i].e.n_tail == 601 - 512)
            f.store->recent.entries[i].file[700] ^= 1;
    assert_int_equal(find_length(&f, &f.context, MAX, 1, 4), 601);
    assert_int_equal(recent_found(&f), before);
    /* their time is shorter than that of the files */
    f.now += 301;
    assert_int_equal(find_length(&f, &f.context, 601, 1, 4), 601);
    assert_int_equal(ask(f.store, mote_store_stat_json, "memory_snapshots"), 0);
    /* what is removed is removed from memory as well */
    put_mark(&f, 50, 1, 5);
    mote__store_flush(f.store, NULL);
    assert_int_equal(find_length(&f, &f.context, 60, 1, 5), 50);
    char *text;
    mote_err err;
    assert_int_equal(mote_store_rm_json(f.store, NULL, 0, &text, &err), 0);
    mote_free(text);
    assert_int_equal(find_length(&f, &f.context, 60, 1, 5), 0);
    assert_int_equal(ask(f.store, mote_store_stat_json, "memory_snapshots"), 0);
    /* one too large for the room is not kept, nor counted */
    f.params.snapshot_memory_bytes = 100;
    reopen(&f);
    put_mark(&f, 50, 1, 6);
    assert_int_equal(ask(f.store, mote_store_stat_json, "memory_snapshots"), 0);
    assert_int_equal(find_length(&f, &f.context, 60, 1, 6), 50);
    fixture_end(&f);
}

/* Budget: the least recently used prompt gives way, leaves first, and what it left is never served
 * as something else. */
static void eviction(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    f.params.budget_bytes = 20 * SLOT_BYTES + 4096; /* and the header of a segment */
    must_open(&f);
    int32_t p[5][8 * 256];
    for (int i = 0; i < 5; i++)
        make_ids(p[i], 8 * 256, (uint64_t)i + 10, 0);
    for (int i = 0; i < 2; i++) {
        put_prompt(&f, p[i], 8);
        f.now += 10;
    }
    /* prompt 0 is used again: prompt 1 is the oldest now */
    assert_int_equal(match_n(&f, p[0], 8 * 256), 8);
    f.now += 10;
    /* times are written when the store is closed */
    reopen(&f);
    put_prompt(&f, p[2], 8);
    assert_int_equal(match_n(&f, p[0], 8 * 256), 8);
    assert_int_equal(match_n(&f, p[1], 8 * 256), 4);
    assert_int_equal(match_n(&f, p[2], 8 * 256), 8);
    assert_true(ask(f.store, mote_store_stat_json, "slots") <= 20);
    assert_int_equal(ask(f.store, mote_store_stat_json, "blocks"), 20);
    /* a prompt longer than the budget: as much of its beginning as fits */
    make_ids(ids, MAX, 20, 0);
    f.now += 10;
    put_prompt(&f, ids, 24);
    size_t n = match_n(&f, ids, MAX);
    assert_true(n > 8 && n <= 20);
    assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
    /* another geometry in the same store takes its room from the first, and the disk gets it back
     */
    fixture g = f;
    fixture_pool(&g, 8000); /* slots of 12,288 bytes */
    f.now += 10;
    mote__chain chain = { 0 };
    make_ids(other, MAX, 30, 0);
    put_blocks(&f, &g.context, &g.pool, &chain, other, 5, 5);
    mote__store_counts c;
    mote__store_flush(f.store, &c);
    assert_int_equal(match_checked(f.store, &g.context, &g.pool, other, 5 * 256, NULL, NULL), 5);
    /* two headers, and what the file system needs for the holes */
    assert_true(ask(f.store, mote_store_stat_json, "segment_bytes") <= 20 * SLOT_BYTES + 4 * 4096);
    assert_int_equal(ask(f.store, mote_store_gc_json, "unreachable_blocks"), 0);
    mote__kv_pool_deinit(&g.pool);
    /* writes the times of use, as of now */
    reopen(&f);
    f.now += 71 * 3600;
    assert_int_equal(ask(f.store, mote_store_gc_json, "expired_blocks"), 0);
    match_n(&f, ids, MAX);
    reopen(&f);
    json_int_t all = ask(f.store, mote_store_stat_json, "blocks");
    f.now += 2 * 3600;
    /* (the writer may have been there first) */
    ask(f.store, mote_store_gc_json, "expired_blocks");
    json_int_t gone = all - ask(f.store, mote_store_stat_json, "blocks");
    /* the other geometry's at least; what was matched stays */
    if (gone < 5 || gone >= all)
        fail_msg("%d of %d expired", (int)gone, (int)all);
    f.now += 100 * 3600;
    ask(f.store, mote_store_gc_json, "expired_blocks");
    assert_int_equal(ask(f.store, mote_store_stat_json, "blocks"), 0);
    assert_int_equal(ask(f.store, mote_store_stat_json, "segments"), 0);
    assert_int_equal(ask(f.store, mote_store_stat_json, "segment_bytes"), 0);
    put_prompt(&f, p[3], 8); /* and it goes on */
    assert_int_equal(match_n(&f, p[3], 8 * 256), 8);
    fixture_end(&f);
}

static void many_segments(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    f.tuning.segment_bytes = 5 * SLOT_BYTES + 4096;
    must_open(&f);
    make_ids(ids, MAX, 40, 0);
    put_prompt(&f, ids, 24);
    assert_int_equal(ask(f.store, mote_store_stat_json, "segments"), 5);
    assert_int_equal(match_n(&f, ids, MAX), 24);
    assert_int_equal(verify_n(f.store, 1, "blocks"), 24);
    assert_int_equal(match_n(&f, ids, MAX), 24);
    /* a segment whose header is damaged is rebuilt from its slots' */
    char path[300];
    snprintf(path, sizeof path, "%s/seg-00000002.mote", f.dir);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "??????", 6, 18), 6);
    close(fd);
    assert_int_equal(verify_n(f.store, 1, "blocks"), 24);
    /* one that is gone costs its blocks and what stands on them, and nothing else */
    unlink(path);
    mote_store_close(f.store);
    must_open(&f);
    size_t n = match_n(&f, ids, MAX);
    assert_true(n < 24);
    mote__store_flush(f.store, NULL);
    put_prompt(&f, ids, 24);
    fixture_end(&f);
}

static void removing(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    must_open(&f);
    make_ids(ids, MAX, 50, 0);
    make_ids(other, MAX, 51, 0);
    put_prompt(&f, ids, 6);
    put_prompt(&f, other, 6);
    mote__chain c = { 0 };
    for (int k = 0; k < 3; k++)
        c = mote__chain_next(&f.context, &c, ids + k * 256, 1);
    char hex[33], *text;
    mote_err err;
    mote__hex(hex, c.id, 16);
    hex[12] = 0;
    const char *list[1] = { hex };
    json_t *o;
    int rc = mote_store_rm_json(f.store, list, 1, &text, &err);
    o = store_json(rc, text, &err);
    assert_int_equal(number_of(o, "removed_blocks"), 4); /* the third and what stands on it */
    json_decref(o);
    assert_int_equal(match_n(&f, ids, MAX), 2);
    assert_int_equal(match_n(&f, other, MAX), 6);
    assert_int_equal(verify_n(f.store, 1, "blocks"), 8); /* no rebuild brings them back */
    list[0] = "ffffff";
    assert_int_equal(mote_store_rm_json(f.store, list, 1, &text, &err), MOTE_EINVAL);
    list[0] = "ff";
    assert_int_equal(mote_store_rm_json(f.store, list, 1, &text, &err), MOTE_EINVAL);
    rc = mote_store_rm_json(f.store, NULL, 0, &text, &err);
    o = store_json(rc, text, &err);
    assert_int_equal(number_of(o, "removed_blocks"), 8);
    json_decref(o);
    assert_int_equal(verify_n(f.store, 1, "blocks"), 0);
    fixture_end(&f);
}

static void portable(void **state)
{
    fixture f, g;
    fixture_init(&f, BYTES);
    fixture_init(&g, BYTES);
    must_open(&f);
    must_open(&g);
    make_ids(ids, MAX, 60, 0);
    put_prompt(&f, ids, 12);
    mote__chain c = { 0 };
    for (int k = 0; k < 12; k++)
        c = mote__chain_next(&f.context, &c, ids + k * 256, 1);
    mote__store_put_snapshot(f.store, &f.context, &c, ids, 12 * 256 + 5, 1, "blob", 4);
    char path[300], *text;
    mote_err err = { 0 };
    snprintf(path, sizeof path, "%s.kvx", f.dir);
    json_t *o;
    int rc = mote_store_export_json(f.store, path, &text, &err);
    o = store_json(rc, text, &err);
    assert_int_equal(number_of(o, "blocks"), 12);
    assert_int_equal(number_of(o, "snapshots"), 1);
    json_decref(o);
    for (int again = 0; again < 2; again++) {
        rc = mote_store_import_json(g.store, path, &text, &err);
        o = store_json(rc, text, &err);
        assert_int_equal(number_of(o, again ? "known" : "blocks"), again ? 13 : 12);
        json_decref(o);
    }
    assert_int_equal(match_n(&g, ids, MAX), 12);
    mote__snapshot s;
    assert_int_equal(mote__store_find_snapshot(g.store, &g.context, ids, MAX, 1, &s), 1);
    assert_int_equal(s.n_tokens, 12 * 256 + 5);
    mote__snapshot_free(&s);
    /* any byte of the file changed, and any length cut off: refused, and nothing wrong gets in */
    int fd = open(path, O_RDWR);
    struct stat st;
    fstat(fd, &st);
    rnd r = { 8 };
    for (int k = 0; k < 60; k++) {
        mote_store_rm_json(g.store, NULL, 0, &text, &err);
        mote_free(text);
        off_t at = k < 40 ? (off_t)rnd_below(&r, (size_t)st.st_size) : k - 40;
        uint8_t was, now;
        assert_int_equal(pread(fd, &was, 1, at), 1);
        now = (uint8_t)(was ^ (1 + rnd_below(&r, 255)));
        assert_int_equal(pwrite(fd, &now, 1, at), 1);
        text = NULL;
        if (!mote_store_import_json(g.store, path, &text, &err))
            fail_msg("byte %lld: not seen", (long long)at);
        match_n(&g, ids, MAX); /* fails where a block is wrong */
        assert_int_equal(pwrite(fd, &was, 1, at), 1);
    }
    for (int k = 0; k < 8; k++) {
        assert_int_equal(ftruncate(fd, (off_t)rnd_below(&r, (size_t)st.st_size)), 0);
        assert_int_not_equal(mote_store_import_json(g.store, path, &text, &err), 0);
        mote_store_export_json(f.store, path, &text, &err);
        mote_free(text);
        close(fd);
        fd = open(path, O_RDWR);
    }
    close(fd);
    unlink(path);
    fixture_end(&f);
    fixture_end(&g);
}

static void reading_only(void **state)
{
    fixture f, g;
    fixture_init(&f, BYTES);
    f.params.read_only = 1;
    assert_int_equal(fixture_open(&f), MOTE_EIO); /* nothing there, and nothing made */
    assert_int_not_equal(access(f.dir, F_OK), 0);
    f.params.read_only = 0;
    f.params.must_exist = 1;
    assert_int_equal(fixture_open(&f), MOTE_EIO);
    f.params.must_exist = 0;
    must_open(&f);
    make_ids(ids, MAX, 70, 0);
    put_prompt(&f, ids, 10);
    g = f; /* beside a writer, and alone */
    g.params.read_only = 1;
    for (int alone = 0; alone < 2; alone++) {
        must_open(&g);
        assert_int_equal(match_n(&g, ids, MAX), 10);
        mote__chain c = { 0 };
        make_ids(other, MAX, 71, 0);
        mote__kv_block *b = mote__kv_block_new(&g.pool);
        assert_int_equal(mote__store_put(g.store, &g.context, &c, other, 1, &g.pool, b),
                         MOTE_PUT_DROPPED);
        mote__kv_block_unref(&g.pool, b);
        mote_err err;
        char *text;
        assert_int_equal(mote_store_gc_json(g.store, &text, &err), MOTE_EIO);
        assert_int_equal(verify_n(g.store, 0, "damaged"), 0);
        mote_store_close(g.store);
        mote_store_close(f.store);
        f.store = NULL;
    }
    fixture_end(&f);
}

/* Somebody else's index.db is left alone. */
static void foreign(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    assert_int_equal(mkdir(f.dir, 0700), 0);
    char path[300], text[16] = "";
    snprintf(path, sizeof path, "%s/index.db", f.dir);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, "my own notes", 12), 12);
    assert_int_not_equal(fixture_open(&f), 0);
    assert_int_equal(pread(fd, text, 12, 0), 12);
    assert_string_equal(text, "my own notes");
    close(fd);
    fixture_end(&f);
}

/* A full queue drops; it never waits, and what is dropped takes its descendants along. */
static void full_queue(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    f.tuning.queue_items = 4;
    must_open(&f);
    make_ids(ids, MAX, 80, 0);
    mote__chain c = { 0 };
    for (int k = 0; k < 50; k++) {
        c = (mote__chain){ 0 };
        put_blocks(&f, &f.context, &f.pool, &c, ids, 24, 24);
    }
    mote__store_counts n;
    mote__store_flush(f.store, &n);
    assert_int_equal(n.put_blocks, 50 * 24);
    assert_int_equal(n.put_blocks, n.written_blocks + n.known_blocks + n.dropped_blocks);
    assert_true(n.dropped_blocks > 0);
    assert_int_equal(match_n(&f, ids, MAX), n.written_blocks);
    assert_int_equal(f.pool.n_blocks_used, 0);
    fixture_end(&f);
}

struct reader {
    fixture *f;
    int seed, n;
};
static void *reader(void *arg)
{
    struct reader *r = arg;
    int32_t *mine = malloc(12 * 256 * sizeof *mine);
    for (int k = 0; k < 60; k++) {
        make_ids(mine, 12 * 256, (uint64_t)(90 + (k + r->seed) % 6), 0);
        r->n += match_checked(r->f->store, &r->f->context, &r->f->pool, mine, 12 * 256, NULL,
                              NULL) > 0;
    }
    free(mine);
    return NULL;
}

/* Several threads read while the writer writes and evicts. */
static void concurrent(void **state)
{
    fixture f;
    fixture_init(&f, BYTES);
    f.params.budget_bytes = 40 * SLOT_BYTES;
    must_open(&f);
    pthread_t threads[3];
    struct reader r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = (struct reader){ &f, i, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &r[i]), 0);
    }
    for (int k = 0; k < 30; k++) {
        make_ids(ids, 12 * 256, (uint64_t)(90 + k % 6), 0);
        mote__chain c = { 0 };
        put_blocks(&f, &f.context, &f.pool, &c, ids, 12, 12);
        f.now += 1;
        if (k % 3 == 0)
            mote__store_flush(f.store, NULL);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    mote__store_flush(f.store, NULL);
    assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
    assert_string_equal(f.log, "");
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),       cmocka_unit_test(provenance),
        cmocka_unit_test(flips_on_disk),    cmocka_unit_test(snapshots),
        cmocka_unit_test(recent_snapshots), cmocka_unit_test(old_notes),
        cmocka_unit_test(eviction),         cmocka_unit_test(many_segments),
        cmocka_unit_test(removing),         cmocka_unit_test(portable),
        cmocka_unit_test(reading_only),     cmocka_unit_test(foreign),
        cmocka_unit_test(full_queue),       cmocka_unit_test(concurrent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
