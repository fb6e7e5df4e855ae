/* How long gc and rm --all take by the number of blocks: flat per block, or not. Not part of the
 * tests.
 *
 *   store-maintain-time DIR [ROUNDS]      DIR must not exist and is removed; default 3 rounds, of
 * which the median is told
 *
 * Blocks of 4,096 bytes in chains of 100, put in small commits; gc to half of them, then rm --all
 * of the rest. Of the same machine in the same run: one pass over the index (limit), which nothing
 * that looks at every block can beat. */
#include <time.h>

#include "common.h"
#include "store/impl.h"

enum { BYTES = 1000, CHAIN = 100, SIZES = 3, ROUNDS = 9 };
static const size_t sizes[SIZES] = { 2000, 8000, 32000 };
static fixture f;
static int rounds = 3;

static double clock_s(void)
{
    struct timespec t;
    /* the rest of the machine does not count */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static double one_pass(void)
{
    sqlite3_stmt *s = NULL;
    double began = clock_s();
    assert_int_equal(sqlite3_prepare_v2(f.store->writer.db, "SELECT * FROM block", -1, &s, NULL),
                     SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW)
        ;
    sqlite3_finalize(s);
    return clock_s() - began;
}

static void round_of(size_t n, double t[3])
{
    static int32_t ids[CHAIN * 256];
    char *text;
    mote_err err;
    f.params.budget_bytes = 0;
    must_open(&f);
    for (size_t k = 0; k < n / CHAIN; k++) {
        mote__chain chain = { 0 };
        make_ids(ids, CHAIN * 256, k + 1, 0);
        put_blocks(&f, &f.context, &f.pool, &chain, ids, CHAIN, CHAIN);
        mote__store_flush(f.store, NULL);
        f.now += 1;
    }
    mote_store_close(f.store);
    f.params.budget_bytes = n / 2 * 4096;
    must_open(&f);
    t[2] = one_pass();
    double began = clock_s();
    assert_true(ask(f.store, mote_store_gc_json, "evicted_blocks") > 0);
    t[0] = clock_s() - began;
    size_t left = (size_t)ask(f.store, mote_store_stat_json, "blocks");
    began = clock_s();
    if (mote_store_rm_json(f.store, NULL, 0, &text, &err))
        fail_msg("%s", err.message);
    t[1] = clock_s() - began;
    mote_free(text);
    t[0] /= (double)(n - left); /* of a block that went */
    t[1] /= (double)left;
    t[2] /= (double)n;
    mote_store_close(f.store);
    remove_dir(f.dir);
}

static void run(void **state)
{
    double first[2] = { 0 };
    fixture_pool(&f, BYTES);
    pthread_mutex_init(&f.log_mutex, NULL);
    f.now = 1000000;
    printf("blocks   gc, us a block      rm --all, us a block   limit, us a block\n");
    for (int i = 0; i < SIZES; i++) {
        double t[3][ROUNDS], each[3];
        for (int r = 0; r < rounds; r++) {
            round_of(sizes[i], each);
            for (int k = 0; k < 3; k++)
                t[k][r] = each[k] * 1e6;
        }
        for (int k = 0; k < 3; k++)
            qsort(t[k], (size_t)rounds, sizeof(double), by_value);
        for (int k = 0; k < 2; k++)
            first[k] = i ? first[k] : t[k][rounds / 2];
        printf("%6zu   %8.1f (x %.2f)   %8.1f (x %.2f)      %8.2f\n", sizes[i], t[0][rounds / 2],
               t[0][rounds / 2] / first[0], t[1][rounds / 2], t[1][rounds / 2] / first[1],
               t[2][rounds / 2]);
        fflush(stdout);
    }
    mote__kv_pool_deinit(&f.pool);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !access(argv[1], F_OK)) {
        fprintf(stderr, "store-maintain-time DIR [ROUNDS]; DIR must not exist\n");
        return 2;
    }
    snprintf(f.dir, sizeof f.dir, "%s", argv[1]);
    if (argc > 2)
        rounds = atoi(argv[2]) < 1 ? 1 : atoi(argv[2]) < ROUNDS ? atoi(argv[2]) : ROUNDS;
    const struct CMUnitTest tests[] = { cmocka_unit_test(run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
