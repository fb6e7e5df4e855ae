/* Processes that die and processes that share.
 *
 *   stress kill COUNT        a child writes, is killed with -9 at a random moment, and the store is
 * checked; COUNT times stress share SECONDS     two processes write, read, evict and collect in one
 * store for so long
 *
 * Without arguments, as a test: kill 20, share 20. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "common.h"

enum { BYTES = 3000, SLOT_BYTES = 8192, PROMPTS = 24, BLOCKS = 6, N_IDS = BLOCKS * 256 };
static int kills = 20, seconds = 20;

/* Told by the child before it dies: prompt p has so many acknowledged blocks. */
typedef struct shared {
    _Atomic int acked[PROMPTS];
    _Atomic long blocks, rounds;
    _Atomic int failed;
} shared;
static shared *board;

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* fail_msg belongs to the process that runs the tests. */
#define die(...)                         \
    do {                                 \
        fprintf(stderr, __VA_ARGS__);    \
        fprintf(stderr, "\n");           \
        atomic_store(&board->failed, 1); \
        _exit(1);                        \
    } while (0)

static void child_open(fixture *f)
{
    if (fixture_open(f))
        die("child: %s", f->log);
}

/* Everything that comes back must be right; returns how much did. */
static size_t child_match(fixture *f, const int32_t *ids)
{
    mote__kv_block *blocks[BLOCKS];
    mote__chain chain = { 0 }, at = { 0 };
    size_t n = mote__store_match(f->store, &f->context, NULL, ids, N_IDS, &f->pool, blocks, &chain);
    for (size_t i = 0; i < n; i++) {
        at = mote__chain_next(&f->context, &at, ids + i * 256, 1);
        if (!is_content(mote__kv_block_here(blocks[i]), BYTES, at.id))
            die("a wrong block was served");
        mote__kv_block_unref(&f->pool, blocks[i]);
    }
    return n;
}

static void child_put(fixture *f, const int32_t *ids, size_t from, size_t to)
{
    mote__chain c = { 0 };
    for (size_t i = 0; i < to; i++) {
        mote__chain next = mote__chain_next(&f->context, &c, ids + i * 256, 1);
        mote__kv_block *b = i >= from ? mote__kv_block_new(&f->pool) : NULL;
        if (b) {
            content(mote__kv_block_here(b), BYTES, next.id);
            mote__store_put(f->store, &f->context, &c, ids + i * 256, 1, &f->pool, b);
            mote__kv_block_unref(&f->pool, b);
        }
        c = next;
    }
}

static uint64_t child_flush(fixture *f)
{
    mote__store_counts c;
    mote__store_flush(f->store, &c);
    if (c.failed_blocks || c.failed_snapshots)
        die("a write failed: %s", f->log);
    return c.written_blocks + c.known_blocks;
}

/* ---- kill ---- */

static void writing_child(const char *dir, unsigned seed)
{
    static fixture f;
    f = (fixture){ .now = (int64_t)time(NULL) };
    pthread_mutex_init(&f.log_mutex, NULL);
    snprintf(f.dir, sizeof f.dir, "%s", dir);
    fixture_pool(&f, BYTES);
    child_open(&f);
    static int32_t ids[N_IDS];
    rnd r = { seed * 2 + 1 };
    for (;;) {
        int p = (int)rnd_below(&r, PROMPTS);
        size_t to = 1 + rnd_below(&r, BLOCKS);
        make_ids(ids, N_IDS, (uint64_t)p + 300, 0);
        uint64_t before = child_flush(&f);
        child_put(&f, ids, 0, to);
        mote__chain c = { 0 };
        for (size_t i = 0; i < to; i++)
            c = mote__chain_next(&f.context, &c, ids + i * 256, 1);
        mote__store_put_snapshot(f.store, &f.context, &c, ids, to * 256 + (to < BLOCKS ? 3 : 0), 1,
                                 "the windows", 12);
        if (child_flush(&f) - before != to)
            die("not all blocks were taken");
        if (atomic_load(&board->acked[p]) < (int)to)
            atomic_store(&board->acked[p], (int)to);
        atomic_fetch_add(&board->blocks, (long)to);
        if (atomic_fetch_add(&board->rounds, 1) % 8 == 7) {
            mote_store_close(f.store);
            child_open(&f);
        }
    }
}

static void kill_nine(void **state)
{
    static fixture f;
    rnd r = { 4242 };
    long acked = 0, rebuilt = 0;
    fixture_init(&f, BYTES);
    f.now = (int64_t)time(NULL);
    memset(board, 0, sizeof *board);
    double began = clock_s();
    for (int k = 0; k < kills; k++) {
        /* the store grows over some deaths, then a new one begins */
        if (k % 10 == 0) {
            remove_dir(f.dir);
            for (int p = 0; p < PROMPTS; p++)
                atomic_store(&board->acked[p], 0);
        }
        pid_t pid = fork();
        if (pid == 0)
            writing_child(f.dir, (unsigned)k + 1);
        assert_true(pid > 0);
        struct timespec t = { 0, (long)rnd_below(&r, 150 * 1000 * 1000) + 100000 };
        nanosleep(&t, NULL);
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        if (atomic_load(&board->failed))
            fail_msg("death %d: the child failed by itself", k);
        must_open(&f);
        json_int_t damaged = verify_n(f.store, 0, "damaged");
        if (damaged)
            fail_msg("death %d: %d damaged: %s", k, (int)damaged, f.log);
        for (int p = 0; p < PROMPTS; p++) {
            static int32_t ids[N_IDS];
            make_ids(ids, N_IDS, (uint64_t)p + 300, 0);
            int n = (int)match_n(&f, ids, N_IDS);
            if (n < atomic_load(&board->acked[p]))
                fail_msg("death %d: prompt %d: %d acknowledged, %d there: %s", k, p,
                         atomic_load(&board->acked[p]), n, f.log);
        }
        mote__store_counts c;
        mote__store_get_counts(f.store, &c);
        rebuilt += (long)c.rebuilds;
        mote_store_close(f.store);
        f.store = NULL;
    }
    acked = atomic_load(&board->blocks);
    printf("  %d deaths in %.1f s, %ld blocks acknowledged before them, none lost, none wrong; %ld "
           "indexes made anew\n",
           kills, clock_s() - began, acked, rebuilt);
    assert_true(acked > kills / 2);
    /* a killed process leaves the page cache whole */
    assert_int_equal(rebuilt, 0);
    fixture_end(&f);
}

/* ---- share ---- */

static void sharing_child(const char *dir, unsigned who, double until)
{
    static fixture f;
    f = (fixture){ .now = (int64_t)time(NULL),
                   .params = { .budget_bytes = 60 * SLOT_BYTES, .snapshot_budget_bytes = 30000 } };
    pthread_mutex_init(&f.log_mutex, NULL);
    snprintf(f.dir, sizeof f.dir, "%s", dir);
    fixture_pool(&f, BYTES);
    child_open(&f);
    static int32_t ids[N_IDS];
    rnd r = { who * 2 + 1 };
    long matched = 0;
    for (long round = 0; clock_s() < until; round++) {
        int p = (int)rnd_below(&r, PROMPTS);
        make_ids(ids, N_IDS, (uint64_t)p + 400, 0);
        size_t have = child_match(&f, ids);
        matched += (long)have;
        f.now = (int64_t)time(NULL) + round / 20;
        if (have < BLOCKS)
            child_put(&f, ids, have, BLOCKS);
        char blob[32];
        snprintf(blob, sizeof blob, "windows of %d", p);
        mote__snapshot s;
        if (mote__store_find_snapshot(f.store, &f.context, ids, N_IDS, 0, &s) &&
            strcmp(s.blob, blob))
            die("a wrong snapshot was served");
        mote__snapshot_free(&s);
        mote__chain c = { 0 };
        for (size_t i = 0; i < BLOCKS; i++)
            c = mote__chain_next(&f.context, &c, ids + i * 256, 1);
        mote__store_put_snapshot(f.store, &f.context, &c, ids, N_IDS, 1, blob, strlen(blob) + 1);
        if (round % 7 == 0)
            child_flush(&f);
        char *text = NULL;
        mote_err err = { 0 };
        if (round % 50 == 25) {
            if (mote_store_gc_json(f.store, &text, &err))
                die("gc: %s", err.message);
            mote_free(text);
        }
        if (round % 80 == 60) {
            if (mote_store_verify_json(f.store, 0, &text, &err))
                die("verify: %s", err.message);
            json_t *o = json_loads(text, 0, NULL);
            if (json_integer_value(json_object_get(o, "damaged")))
                die("verify: %s", text);
            json_decref(o);
            mote_free(text);
        }
        if (round % 60 == 40) {
            mote_store_close(f.store);
            child_open(&f);
        }
    }
    child_flush(&f);
    mote__store_counts c;
    mote__store_get_counts(f.store, &c);
    if (c.damaged_blocks || c.damaged_snapshots || f.log[0])
        die("log: %s", f.log);
    mote_store_close(f.store);
    atomic_fetch_add(&board->blocks, matched);
    _exit(0);
}

static void sharing(void **state)
{
    static fixture f;
    fixture_init(&f, BYTES);
    f.now = (int64_t)time(NULL);
    memset(board, 0, sizeof *board);
    double until = clock_s() + seconds;
    pid_t pids[2];
    for (unsigned i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            sharing_child(f.dir, i + 1, until);
        assert_true(pids[i] > 0);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status))
            fail_msg("process %d ended with %d", i, status);
    }
    must_open(&f);
    assert_int_equal(verify_n(f.store, 0, "damaged"), 0);
    json_int_t blocks = ask(f.store, mote_store_stat_json, "blocks");
    printf("  %d s, two processes: %ld blocks served, all right; %d stored at the end\n", seconds,
           atomic_load(&board->blocks), (int)blocks);
    assert_true(blocks > 0 && atomic_load(&board->blocks) > 0);
    assert_int_equal(ask(f.store, mote_store_gc_json, "unreachable_blocks"), 0);
    fixture_end(&f);
}

int main(int argc, char **argv)
{
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    if (argc == 1 && !access("/dev/shm", W_OK))
        /* a death loses nothing that a disk has not yet */
        setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest all[] = { cmocka_unit_test(kill_nine), cmocka_unit_test(sharing) };
    if (argc == 3 && !strcmp(argv[1], "kill")) {
        kills = atoi(argv[2]);
        return _cmocka_run_group_tests("kill", all, 1, NULL, NULL);
    }
    if (argc == 3 && !strcmp(argv[1], "share")) {
        seconds = atoi(argv[2]);
        return _cmocka_run_group_tests("share", all + 1, 1, NULL, NULL);
    }
    return cmocka_run_group_tests(all, NULL, NULL);
}
