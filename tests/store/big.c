/* The store at the published geometry: bytes on disk per token, and reading against what the disk
 * gives. Not part of the tests: it takes space and a quiet disk.
 *
 *   store-big DIR [BLOCKS [ROUNDS [READS]]]   default 4800 blocks (1.1 GB) in prompts of 240
 * (61,440 tokens), 5 rounds; DIR must not exist and is removed; READS in flight: as the store has
 * it
 *
 * Each round drops the page cache and reads the same segments in four ways, in an order that
 * changes: sequentially with O_DIRECT, 1 MiB at a time; the same with 8 reads in flight (the limit
 * that ratios refer to); mote__store_match; and match with plain preads. The cache is dropped by
 * posix_fadvise on each file and, where that is allowed, /proc/sys/vm/drop_caches. */
#include <liburing.h>
#include <time.h>

#include "common.h"

enum { PROMPT = 240, BYTES = 227840, CHUNK = 1 << 20, DEPTH = 8 };
static fixture f;
static size_t n_blocks = 4800;
static int rounds = 5;

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct segments {
    char path[16][600];
    size_t size[16], n, bytes;
} segments;
static void list_segments(segments *s)
{
    memset(s, 0, sizeof *s);
    DIR *d = opendir(f.dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (!strncmp(e->d_name, "seg-", 4) && s->n < 16) {
            struct stat st;
            snprintf(s->path[s->n], sizeof s->path[0], "%s/%s", f.dir, e->d_name);
            if (!stat(s->path[s->n], &st)) {
                s->size[s->n] = (size_t)st.st_size;
                s->bytes += s->size[s->n++];
            }
        }
    closedir(d);
}

static void drop_cache(const segments *s)
{
    sync();
    for (size_t i = 0; i < s->n; i++) {
        int fd = open(s->path[i], O_RDONLY);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
    if (fd >= 0) {
        if (write(fd, "3", 1) != 1)
            fprintf(stderr, "drop_caches: refused\n");
        close(fd);
    }
}

/* Bytes a second of the whole files. depth 1: pread. */
static double read_direct(const segments *s, unsigned depth)
{
    struct io_uring ring;
    uint8_t *memory = NULL;
    size_t done = 0;
    if (posix_memalign((void **)&memory, 4096, (size_t)CHUNK * DEPTH) ||
        io_uring_queue_init(DEPTH, &ring, 0))
        return 0;
    double began = clock_s();
    for (size_t i = 0; i < s->n; i++) {
        int fd = open(s->path[i], O_RDONLY | O_DIRECT);
        if (fd < 0)
            return 0;
        size_t at = 0, flying = 0;
        while (at < s->size[i] || flying) {
            if (depth == 1) {
                ssize_t k = pread(fd, memory, CHUNK, (off_t)at);
                if (k <= 0)
                    break;
                at += CHUNK;
                done += (size_t)k;
                continue;
            }
            while (at < s->size[i] && flying < depth) {
                struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
                io_uring_prep_read(sqe, fd, memory + at / CHUNK % depth * CHUNK, CHUNK, at);
                at += CHUNK;
                flying++;
            }
            struct io_uring_cqe *cqe;
            if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_wait_cqe(&ring, &cqe) ||
                cqe->res < 0)
                return 0;
            done += (size_t)cqe->res;
            io_uring_cqe_seen(&ring, cqe);
            flying--;
        }
        close(fd);
    }
    double t = clock_s() - began;
    io_uring_queue_exit(&ring);
    free(memory);
    return (double)done / t;
}

/* Prompt after prompt, each as a run would restore it: into new cache blocks, which are given back
 * afterwards. */
static double read_match(const int32_t *ids, mote__kv_block **blocks, int no_uring)
{
    double t = 0;
    f.tuning.no_uring = no_uring;
    must_open(&f);
    for (size_t p = 0; p < n_blocks / PROMPT; p++) {
        const int32_t *own = ids + p * PROMPT * 256;
        mote__chain chain = { 0 }, at = { 0 };
        double began = clock_s();
        size_t n = mote__store_match(f.store, &f.context, NULL, own, PROMPT * 256, &f.pool, blocks,
                                     &chain);
        t += clock_s() - began;
        if (n != PROMPT)
            fail_msg("%zu of %d blocks: %s", n, PROMPT, f.log);
        /* right, besides: some of them in full */
        for (size_t i = 0; i < n; i++) {
            at = mote__chain_next(&f.context, &at, own + i * 256, 1);
            if (i % 97 == 0 && !is_content(mote__kv_block_here(blocks[i]), BYTES, at.id))
                fail_msg("block %zu is wrong", i);
            mote__kv_block_unref(&f.pool, blocks[i]);
        }
    }
    mote_store_close(f.store);
    return (double)n_blocks * mote__slot_bytes(BYTES) / t;
}

/* Processor seconds of the process so far: what else runs on the machine does not count. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static void run(void **state)
{
    fixture_pool(&f, BYTES);
    pthread_mutex_init(&f.log_mutex, NULL);
    f.now = (int64_t)time(NULL);
    int32_t *ids = malloc(n_blocks * 256 * sizeof *ids);
    mote__kv_block **blocks = malloc(n_blocks * sizeof *blocks);
    assert_true(ids && blocks);
    make_ids(ids, n_blocks * 256, 1, 0);
    must_open(&f);
    double began = clock_s();
    for (size_t p = 0; p < n_blocks / PROMPT; p++) {
        mote__chain chain = { 0 };
        put_blocks(&f, &f.context, &f.pool, &chain, ids + p * PROMPT * 256, PROMPT, PROMPT);
        mote__store_flush(f.store, NULL);
    }
    double filled = clock_s() - began;
    printf("open store, just filled:\n");
    char *text;
    mote_err err;
    for (int closed = 0; closed < 2; closed++) {
        if (mote_store_stat_json(f.store, &text, &err))
            fail_msg("%s", err.message);
        json_t *o = json_loads(text, 0, NULL);
        mote_free(text);
        printf("  blocks %lld, tokens %lld, payload %lld, disk %lld (segments %lld, index %lld): "
               "%.3f bytes a token\n",
               number_of(o, "blocks"), number_of(o, "tokens"), number_of(o, "payload_bytes"),
               number_of(o, "disk_bytes"), number_of(o, "segment_bytes"),
               number_of(o, "index_bytes"), json_real_value(json_object_get(o, "bytes_per_token")));
        assert_true(json_real_value(json_object_get(o, "bytes_per_token")) <= 900);
        json_decref(o);
        if (!closed) {
            mote_store_close(f.store);
            must_open(&f);
            printf("closed and opened again:\n");
        }
    }
    mote_store_close(f.store);
    segments s;
    list_segments(&s);
    printf("written at %.0f MB/s (contents made in between)\n", (double)s.bytes / filled / 1e6);
    static const char *const name[4] = { "O_DIRECT, 1 in flight", "O_DIRECT, 8 in flight",
                                         "match, io_uring", "match, pread" };
    double rate[4][16], cpu[4] = { 0 };
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < 4; k++) {
            int way = (k + r) % 4;
            drop_cache(&s);
            double before = cpu_s();
            rate[way][r] = way < 2 ? read_direct(&s, way ? DEPTH : 1)
                                   : read_match(ids, blocks, way == 3);
            cpu[way] += cpu_s() - before;
        }
    double limit = 0;
    for (int way = 0; way < 4; way++)
        qsort(rate[way], (size_t)rounds, sizeof(double), by_value);
    limit = rate[1][rounds / 2] > rate[0][rounds / 2] ? rate[1][rounds / 2] : rate[0][rounds / 2];
    printf("%zu MB, page cache dropped before each, %d rounds\n", s.bytes / 1000000, rounds);
    for (int way = 0; way < 4; way++)
        printf("  %-22s median %5.0f MB/s (%.0f to %.0f), %.2f of the limit; %.2f s of processor "
               "time a GB\n",
               name[way], rate[way][rounds / 2] / 1e6, rate[way][0] / 1e6,
               rate[way][rounds - 1] / 1e6, rate[way][rounds / 2] / limit,
               cpu[way] / rounds / ((double)s.bytes / 1e9));
    for (size_t i = 0; i < s.n; i++) {
        int fd = open(s.path[i], O_RDONLY);
        while (read(fd, blocks, n_blocks * sizeof *blocks) > 0)
            ;
        close(fd);
    }
    double warm = read_match(ids, blocks, 0);
    printf("  %-22s %12.0f MB/s\n", "match, from page cache", warm / 1e6);
    mote__kv_pool_deinit(&f.pool);
    remove_dir(f.dir);
    free(ids);
    free(blocks);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "store-big DIR [BLOCKS [ROUNDS [READS]]]\n");
        return 2;
    }
    snprintf(f.dir, sizeof f.dir, "%s", argv[1]);
    if (argc > 2)
        n_blocks = ((size_t)atol(argv[2]) + PROMPT - 1) / PROMPT * PROMPT;
    if (argc > 3)
        rounds = atoi(argv[3]) < 16 ? atoi(argv[3]) : 15;
    if (argc > 4)
        f.tuning.reads_in_flight = (size_t)atol(argv[4]);
    if (!access(f.dir, F_OK)) {
        fprintf(stderr, "%s exists\n", f.dir);
        return 2;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
