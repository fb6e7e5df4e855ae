/* Budgets, and tending in time proportional to what is tended: blocks of several sizes, writers in several processes. */
#include <sys/wait.h>

#include "common.h"
#include "store/impl.h"

enum { SMALL = 1000, LARGE = 30000, MAX = 24 * 256 };
static const size_t payloads[] = { SMALL, 6000, LARGE };     /* slots of 4,096, 8,192 and 32,768 bytes */
static int32_t ids[MAX];

static uint64_t segment_bytes(const char *dir, uint64_t *n)
{
    uint64_t bytes = 0;
    DIR *d = opendir(dir);
    *n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[600];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (!strncmp(e->d_name, "seg-", 4) && !stat(path, &st)) {
            bytes += (uint64_t)st.st_blocks * 512;
            ++*n;
        }
    }
    if (d)
        closedir(d);
    return bytes;
}

/* Single blocks, each a prompt of its own: the worst case for anything that looks at blocks without children. */
static void put_singles(fixture *f, size_t payload, size_t n, uint64_t seed)
{
    fixture g = *f;
    fixture_pool(&g, payload);
    for (size_t i = 0; i < n; i++) {
        mote__chain c = { 0 };
        make_ids(ids, 256, seed + i, 0);
        put_blocks(f, &g.context, &g.pool, &c, ids, 1, 1);
        if (i % 500 == 499)
            mote__store_flush(f->store, NULL);
    }
    mote__store_flush(f->store, NULL);
    mote__kv_pool_deinit(&g.pool);
}

/* gc ends below its budget, and not further below than a block of the largest size. */
static void gc_is_near_its_budget(void **state)
{
    static const struct { size_t payload[2], n[2]; uint64_t budget; } rows[] = {
        { { SMALL, LARGE }, { 100, 40 }, 700000 }, { { LARGE, SMALL }, { 40, 100 }, 700000 }, { { SMALL, SMALL }, { 100, 60 }, 300000 },
        { { 2561, 2561 }, { 100, 100 }, 800000 },  { { 6000, LARGE }, { 100, 60 }, 900000 },  { { SMALL, LARGE }, { 100, 40 }, 40000 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        uint64_t files, largest = 0;
        fixture_init(&f, SMALL);
        must_open(&f);
        for (int k = 0; k < 2; k++) {
            put_singles(&f, rows[i].payload[k], rows[i].n[k], 1000 * (uint64_t)k + 1);
            largest = mote__slot_bytes(rows[i].payload[k]) > largest ? mote__slot_bytes(rows[i].payload[k]) : largest;
            f.now += 10;
        }
        mote_store_close(f.store);
        f.params.budget_bytes = rows[i].budget;
        must_open(&f);
        uint64_t slots = (uint64_t)ask(f.store, mote_store_gc_json, "slot_bytes"), disk = segment_bytes(f.dir, &files);
        if (slots + files * 4096 > rows[i].budget || slots + 2 * 4096 + largest < rows[i].budget || disk > rows[i].budget + files * 4096)
            fail_msg("row %zu: budget %llu, slots %llu, on disk %llu", i, (unsigned long long)rows[i].budget, (unsigned long long)slots,
                     (unsigned long long)disk);
        assert_int_equal(ask(f.store, mote_store_gc_json, "evicted_blocks"), 0);      /* and a second one has nothing to do */
        assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
        json_int_t blocks = ask(f.store, mote_store_stat_json, "blocks");
        assert_int_equal(verify_n(f.store, 1, "blocks"), blocks);                      /* what went is not found in the files either */
        fixture_end(&f);
    }
}

/* A store that was filled under a larger budget shrinks as soon as somebody writes under a smaller one. */
static void smaller_budget_is_kept(void **state)
{
    fixture f;
    uint64_t files;
    fixture_init(&f, SMALL);
    must_open(&f);
    put_singles(&f, LARGE, 60, 1);
    put_singles(&f, SMALL, 60, 500);
    mote_store_close(f.store);
    f.now += 10;
    f.params.budget_bytes = 400000;
    must_open(&f);
    put_singles(&f, 6000, 1, 900);
    uint64_t disk = segment_bytes(f.dir, &files);
    if (disk > 400000 + files * 4096)
        fail_msg("%llu bytes on disk", (unsigned long long)disk);
    assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
    fixture_end(&f);
}

/* A budget that no block fits into is said, once, and nothing is evicted for it. */
static void budget_below_a_block(void **state)
{
    fixture f;
    fixture_init(&f, SMALL);
    must_open(&f);
    put_singles(&f, SMALL, 5, 1);
    mote_store_close(f.store);
    f.params.budget_bytes = 4096;
    must_open(&f);
    put_singles(&f, SMALL, 5, 100);
    mote__store_counts c;
    mote__store_get_counts(f.store, &c);
    assert_int_equal(c.dropped_blocks, 5);
    assert_int_equal(ask(f.store, mote_store_stat_json, "blocks"), 5);
    const char *line = strstr(f.log, "nothing is stored: a block takes 4096 bytes");
    assert_non_null(line);
    assert_null(strstr(line + 1, "nothing is stored"));
    fixture_end(&f);
}

/* ---- work in proportion ---- */

/* What SQLite's machine does for gc, in hundreds of its steps. */
static int64_t n_steps;
static int count_steps(void *ctx)
{
    n_steps++;
    return 0;
}

static void linear(void **state)
{
    double each[2][2];
    for (int shape = 0; shape < 2; shape++) {                /* single blocks; one long chain, stored over a long time */
        for (int large = 0; large < 2; large++) {
            size_t n = large ? 2400 : 600;
            fixture f;
            fixture_init(&f, SMALL);
            must_open(&f);
            if (shape == 0) {
                put_singles(&f, SMALL, n, 1);
            } else {
                int32_t *all = malloc(n * 256 * sizeof *all);
                mote__chain c = { 0 };
                make_ids(all, n * 256, 5, 0);
                while (c.n_blocks < n) {
                    put_blocks(&f, &f.context, &f.pool, &c, all, c.n_blocks + 100, n);
                    mote__store_flush(f.store, NULL);
                    f.now += 1;
                }
                free(all);
            }
            mote_store_close(f.store);
            f.params.budget_bytes = n / 2 * 4096;
            must_open(&f);
            sqlite3_progress_handler(f.store->writer.db, 100, count_steps, NULL);
            n_steps = 0;
            assert_int_equal(ask(f.store, mote_store_gc_json, "evicted_blocks"), n / 2 + 1);
            each[shape][large] = (double)n_steps * 100 / (double)n;
            fixture_end(&f);
        }
        if (each[shape][1] > 1.5 * each[shape][0])
            fail_msg("shape %d: %.0f steps a block among 600, %.0f among 2400", shape, each[shape][0], each[shape][1]);
    }
}

static _Atomic long n_syncs;
static int count_syncs(void *ctx, mote__sqlite_op op, const char *path, const void *data, size_t n, uint64_t offset)
{
    n_syncs += op == MOTE_SQLITE_SYNC;
    return 0;
}

/* Thousands of blocks go in a few transactions. */
static void few_transactions(void **state)
{
    fixture f;
    mote__store_io io = mote__store_io_system;
    io.sqlite = count_syncs;
    fixture_init(&f, SMALL);
    f.tuning.io = &io;
    must_open(&f);
    put_singles(&f, SMALL, 1500, 1);
    mote_store_close(f.store);
    f.params.budget_bytes = 750 * 4096;
    must_open(&f);
    char *text;
    n_syncs = 0;
    assert_int_equal(ask(f.store, mote_store_gc_json, "evicted_blocks"), 751);
    long gc = n_syncs;
    assert_int_equal(mote_store_rm_json(f.store, NULL, 0, &text, NULL), 0);
    mote_free(text);
    if (gc > 30 || n_syncs - gc > 20)
        fail_msg("gc: %ld syncs, rm --all: %ld", gc, n_syncs - gc);
    fixture_end(&f);
}

/* ---- several writers ---- */

static void writing_child(const char *dir, unsigned who, uint64_t budget)
{
    static fixture f;
    f = (fixture){ .now = (int64_t)time(NULL), .params = { .budget_bytes = budget } };
    pthread_mutex_init(&f.log_mutex, NULL);
    snprintf(f.dir, sizeof f.dir, "%s", dir);
    if (fixture_open(&f))
        _exit(1);
    rnd r = { who * 2 + 1 };
    for (int round = 0; round < 12; round++) {
        fixture g = f;
        fixture_pool(&g, payloads[rnd_below(&r, 3)]);
        mote__chain c = { 0 };
        make_ids(ids, MAX, who * 1000 + (unsigned)round, 0);
        put_blocks(&f, &g.context, &g.pool, &c, ids, 1 + rnd_below(&r, 24), 24);
        if (round % 3 == 2)
            mote__store_flush(f.store, NULL);
        mote__store_flush(f.store, NULL);
        mote__kv_pool_deinit(&g.pool);
    }
    mote_store_close(f.store);
    _exit(f.log[0] ? 2 : 0);
}

/* The budget holds at every moment, whatever the sizes, but for one block a writer. */
static void writers_keep_the_budget(void **state)
{
    enum { N = 3 };
    uint64_t budget = 500000, files, most = 0;
    fixture f;
    fixture_init(&f, SMALL);
    must_open(&f);
    mote_store_close(f.store);
    pid_t pids[N];
    int left = N, status, looks = 0;
    for (unsigned i = 0; i < N; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            writing_child(f.dir, i + 1, budget);
        assert_true(pids[i] > 0);
    }
    while (left) {
        for (int i = 0; i < N; i++)
            if (pids[i] && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
                pids[i] = 0;
                left--;
                if (!WIFEXITED(status) || WEXITSTATUS(status))
                    fail_msg("writer %d ended with %d", i, status);
            }
        uint64_t disk = segment_bytes(f.dir, &files);
        disk -= disk < files * 4096 ? disk : files * 4096;   /* what the file system needs to find the holes */
        most = disk > most ? disk : most;
        looks++;
        nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
    }
    if (most > budget + N * mote__slot_bytes(LARGE))
        fail_msg("%llu bytes on disk", (unsigned long long)most);
    assert_true(looks > 5 && most > budget / 2);
    must_open(&f);
    assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
    fixture_end(&f);
}

int main(void)
{
    if (!access("/dev/shm", W_OK))
        setenv("TMPDIR", "/dev/shm", 0);                     /* many small commits */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gc_is_near_its_budget), cmocka_unit_test(smaller_budget_is_kept), cmocka_unit_test(budget_below_a_block),
        cmocka_unit_test(linear), cmocka_unit_test(few_transactions), cmocka_unit_test(writers_keep_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
