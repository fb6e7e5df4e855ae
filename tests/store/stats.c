/* mote_store_get_stats: numbers that follow from what was done, its size, and its use from another
 * thread while the store works. */
#include "common.h"
#include "store/impl.h"

enum { BYTES = 8192, N = 6, TAIL = 40 };
static fixture f;

static mote_store_stats stats(void)
{
    mote_store_stats m;
    assert_int_equal(mote_store_get_stats(f.store, &m, sizeof m), 0);
    return m;
}

static void numbers_follow(void **state)
{
    static int32_t ids[N * 256 + TAIL], other[N * 256];
    static const uint8_t blob[1000] = { 7 };
    mote__chain chain = { 0 };
    fixture_init(&f, BYTES);
    f.params.budget_bytes = 1 << 20;
    make_ids(ids, N * 256 + TAIL, 1, 0);
    make_ids(other, N * 256, 2, 256); /* shares one block */
    must_open(&f);
    mote_store_stats m = stats();
    assert_int_equal(m.blocks + m.snapshots + m.put_blocks + m.matched_blocks + m.read_bytes, 0);
    assert_int_equal(m.budget_bytes, 1 << 20);
    assert_int_equal(m.snapshot_budget_bytes, (uint64_t)4 << 30);
    assert_true(m.memory_bytes >= sizeof *f.store && m.memory_peak_bytes >= m.memory_bytes);
    make_ids(ids, N * 256 + TAIL, 1, 256);
    put_blocks(&f, &f.context, &f.pool, &chain, ids, N, N - 1);
    mote__store_put_snapshot(f.store, &f.context, &chain, ids, N * 256 + TAIL, 0, blob, 1000);
    mote__store_flush(f.store, NULL);
    m = stats();
    size_t slot = mote__slot_bytes(BYTES);
    assert_int_equal(m.blocks, N);
    assert_int_equal(m.exact_blocks, N - 1);
    assert_int_equal(m.tokens, N * 256);
    assert_int_equal(m.payload_bytes, N * BYTES);
    assert_int_equal(m.put_blocks, N);
    assert_int_equal(m.written_blocks, N);
    assert_int_equal(m.snapshots, 1);
    assert_int_equal(m.memory_snapshots, 1);
    assert_int_equal(m.memory_snapshot_bytes, m.snapshot_bytes);
    assert_true(m.memory_bytes > sizeof *f.store + 1000);
    assert_int_equal(m.written_bytes, N * slot + m.snapshot_bytes);
    assert_true(m.segment_bytes >= N * slot && m.segments == 1 && m.slots >= N);
    assert_true(m.index_bytes > 0 && m.snapshot_disk_bytes >= 1000);
    assert_int_equal(m.queued_items + m.memory_scratch_bytes + m.failed_blocks, 0);
    assert_int_equal(m.read_only, 0);
    assert_int_equal(match_n(&f, ids, N * 256), N);
    assert_int_equal(match_n(&f, other, N * 256), 1);
    m = stats();
    assert_int_equal(m.matched_blocks, N + 1);
    assert_int_equal(m.missed_blocks, N - 1);
    assert_int_equal(m.read_bytes, (N + 1) * slot);
    fixture_end(&f);
}

/* Callers of other versions: no byte beyond theirs is written, and what we do not know is 0. */
static void sizes(void **state)
{
    struct {
        mote_store_stats m;
        uint64_t newer[4];
    } large;
    fixture_init(&f, BYTES);
    must_open(&f);
    memset(&large, 0xff, sizeof large);
    assert_int_equal(mote_store_get_stats(f.store, &large.m, sizeof(uint64_t)), 0);
    assert_int_equal(large.m.blocks, 0);
    assert_int_equal(large.m.exact_blocks, UINT64_MAX);
    assert_int_equal(mote_store_get_stats(f.store, &large.m, sizeof large), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(large.newer[i], 0);
    assert_int_equal(mote_store_get_stats(f.store, &large.m, 0), 0);
    fixture_end(&f);
}

static _Atomic int stop;
static void *watch(void *arg)
{
    uint64_t last = 0, *n = arg;
    for (; !stop; ++*n) {
        mote_store_stats m;
        mote_store_get_stats(f.store, &m, sizeof m);
        if (m.put_blocks < last) /* sums only grow */
            return (void *)1;
        last = m.put_blocks;
    }
    return NULL;
}

static void from_another_thread(void **state)
{
    static int32_t ids[N * 256];
    pthread_t thread;
    void *wrong;
    uint64_t n = 0;
    fixture_init(&f, BYTES);
    must_open(&f);
    pthread_create(&thread, NULL, watch, &n);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        make_ids(ids, N * 256, seed, 0);
        put_prompt(&f, ids, N);
        assert_int_equal(match_n(&f, ids, N * 256), N);
    }
    stop = 1;
    pthread_join(thread, &wrong);
    assert_null(wrong);
    assert_true(n > 0);
    fixture_end(&f);
}

/* Without an index only what it says is missing. */
static void without_an_index(void **state)
{
    static int32_t ids[N * 256];
    char path[300];
    mote_store_stats m;
    fixture_init(&f, BYTES);
    must_open(&f);
    make_ids(ids, N * 256, 1, 0);
    put_prompt(&f, ids, N);
    snprintf(path, sizeof path, "%s/index.db", f.dir);
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    close(fd);
    int rc = mote_store_get_stats(f.store, &m, sizeof m);
    assert_true(rc == 0 || rc == MOTE_EIO);
    assert_int_equal(m.blocks, 0);
    assert_int_equal(m.written_blocks, N);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_follow),
        cmocka_unit_test(sizes),
        cmocka_unit_test(from_another_thread),
        cmocka_unit_test(without_an_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
