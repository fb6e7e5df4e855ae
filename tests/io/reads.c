/* Reads in flight against plain ones: every engine, random files, places, sizes and memory, with
 * cancellations and failures in the middle. */
#include "io/reads.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/reads_impl.h"
#include "test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { READS = 12 };
#else
enum { READS = 60 };
#endif
static const mote__reads_engine engines[] = { MOTE_READS_RING, MOTE_READS_THREADS,
                                              MOTE_READS_PLAIN };
enum { ENGINES = 3, GUARD = 64, ROOM = 1 << 16, HELD = 64 };
static char dir[] = "/tmp/mote-reads-XXXXXX";

/* ---- files ---- */

typedef struct test_file {
    mote__read_file f;
    char path[64];
    uint8_t *bytes; /* all of it, as a plain read gives it */
    size_t size;
} test_file;
enum { FILES = 8 };
static test_file files[FILES];

static void make_file(test_file *t, int number, size_t size, int sparse)
{
    rnd r = { 7u + (unsigned)number };
    snprintf(t->path, sizeof t->path, "%s/%d", dir, number);
    t->size = size;
    t->bytes = calloc(1, size + 1);
    int fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    for (size_t at = 0; at < size; at += 65536) {
        size_t n = size - at < 65536 ? size - at : 65536;
        if (sparse && rnd_below(&r, 4))
            continue;
        for (size_t i = 0; i < n; i++)
            t->bytes[at + i] = (uint8_t)(rnd_u64(&r) >> 40);
        assert_int_equal(pwrite(fd, t->bytes + at, n, (off_t)at), (ssize_t)n);
    }
    assert_int_equal(fsync(fd), 0); /* a direct read does not have to write it first */
    close(fd);
    mote_err err;
    assert_int_equal(mote__read_file_open(&t->f, t->path, 1, &err), 0);
    assert_int_equal(fcntl(t->f.fd, F_GETFL) & O_NONBLOCK, 0); /* the disk is waited for */
}

static int make_files(void **state)
{
    static const size_t sizes[FILES] = { 0,
                                         1,
                                         511,
                                         4096,
                                         100003,
                                         MOTE_READ_PIECE + 5,
                                         2 * MOTE_READ_PIECE + 70000,
                                         5 * MOTE_READ_PIECE };
    make_tree(dir);
    for (int i = 0; i < FILES; i++)
        make_file(&files[i], i, sizes[i], i == 7);
    return 0;
}
static int remove_files(void **state)
{
    for (int i = 0; i < FILES; i++) {
        mote__read_file_close(&files[i].f);
        free(files[i].bytes);
    }
    remove_tree(dir);
    return 0;
}

/* ---- one read and what must come of it ---- */

typedef struct wanted {
    const test_file *t;
    uint64_t offset;
    size_t bytes, room;
    uint8_t *memory; /* [GUARD][room][GUARD], the parts with gaps between them inside */
    struct iovec parts[MOTE_READ_PARTS];
    int n_parts, reported, cancelled;
} wanted;

static void choose(rnd *r, wanted *w, size_t most)
{
    static const size_t units[] = { 1, 512, 4096, 16384 };
    const test_file *t = &files[rnd_below(r, FILES)];
    size_t unit = units[rnd_below(r, 4)];
    *w = (wanted){ .t = t, .n_parts = 1 + (int)rnd_below(r, MOTE_READ_PARTS) };
    w->offset = rnd_below(r, t->size + t->size / 4 + 100) / unit * unit;
    size_t left = 1 + rnd_below(r, rnd_below(r, 24) ? ROOM : most);
    w->room = GUARD;
    size_t starts[MOTE_READ_PARTS];
    for (int i = 0; i < w->n_parts; i++) {
        size_t n = i + 1 == w->n_parts ? left : rnd_below(r, left + 1);
        n = n / unit * unit;
        left -= n;
        w->room = (w->room + unit - 1) / unit * unit;
        starts[i] = w->room;
        w->parts[i].iov_len = n;
        w->room += n + GUARD;
        w->bytes += n;
    }
    size_t whole = (w->room + 4095) / 4096 * 4096;
    w->memory = aligned_alloc(4096, whole);
    memset(w->memory, 0xa5, whole);
    w->room = whole;
    for (int i = 0; i < w->n_parts; i++)
        w->parts[i].iov_base = w->memory + starts[i];
}

/* bytes came; the memory behind them may hold anything, that between parts is as it was. */
static void check_bytes(const wanted *w, size_t bytes)
{
    uint64_t at = w->offset;
    size_t left = bytes, place = 0;
    for (int i = 0; i < w->n_parts; i++) {
        const uint8_t *p = w->parts[i].iov_base;
        size_t n = w->parts[i].iov_len, k = n < left ? n : left;
        for (; place < (size_t)(p - w->memory); place++)
            if (w->memory[place] != 0xa5)
                fail_msg("byte %zu between parts was written", place);
        if (k && memcmp(p, w->t->bytes + at, k))
            fail_msg("wrong bytes of %s at %llu", w->t->path, (unsigned long long)at);
        place += n;
        at += k;
        left -= k;
    }
    for (; place < w->room; place++)
        if (w->memory[place] != 0xa5)
            fail_msg("byte %zu behind the parts was written", place);
    assert_int_equal(left, 0);
}

static size_t there(const wanted *w)
{
    size_t behind = w->offset < w->t->size ? w->t->size - (size_t)w->offset : 0;
    return behind < w->bytes ? behind : w->bytes;
}

static void check_done(const mote__read_done *done)
{
    wanted *w = done->tag;
    assert_false(w->reported);
    w->reported = 1;
    size_t n = there(w);
    if (w->cancelled && done->error == ECANCELED) {
        assert_true(done->bytes <= n);
    } else {
        assert_int_equal(done->bytes, n);
        assert_int_equal(done->error, n < w->bytes ? ENODATA : 0);
    }
    check_bytes(w, done->bytes);
    memset(w->memory, 0x5a, w->room); /* it is ours again: nobody may write to it */
}

static void release(wanted *w)
{
    assert_true(w->reported);
    for (size_t i = 0; i < w->room; i++)
        if (w->memory[i] != 0x5a)
            fail_msg("byte %zu was written after the read was reported", i);
    free(w->memory);
}

/* ---- random reads ---- */

static void run_random(uint64_t seed, const mote__reads_params *params, int cancelling)
{
    static wanted all[READS];
    rnd r = { seed * 2 + 1 };
    mote__meter meter = { 0 };
    mote__reads *reads;
    mote_err err;
    assert_int_equal(mote__reads_open(&reads, params, &meter, &err), 0);
    size_t n = 0, n_done = 0, depth = params->depth;
    mote__read_done done;
    while (n_done < READS) {
        size_t what = rnd_below(&r, cancelling ? 8 : 6);
        if (what < 4 && n < READS) {
            wanted *w = &all[n];
            choose(&r, w, files[7].size);
            int rc = mote__reads_submit_parts(reads, (mote__read_file *)&w->t->f, w->offset,
                                              w->parts, w->n_parts, w);
            assert_int_equal(rc, mote__reads_held(reads) <= depth && rc == 0 ? 0 : MOTE_EFULL);
            if (rc == MOTE_EFULL) {
                assert_int_equal(mote__reads_held(reads), depth);
                free(w->memory);
            }
            n += rc == 0;
        } else if (what == 4) {
            mote__reads_start(reads);
        } else if (what == 6) {
            wanted *w = &all[rnd_below(&r, n + 1)];
            w->cancelled = 1;
            mote__reads_cancel(reads, w);
        } else if (what == 7 && rnd_below(&r, 4) == 0) {
            for (size_t i = 0; i < n; i++)
                all[i].cancelled = 1;
            mote__reads_cancel_all(reads);
        }
        if (rnd_below(&r, 3) && mote__reads_next(reads, (int)rnd_below(&r, 2), &done)) {
            check_done(&done);
            n_done++;
        }
    }
    assert_int_equal(mote__reads_held(reads), 0);
    assert_int_equal(mote__reads_next(reads, 1, &done), 0);
    mote__reads_close(reads);
    for (size_t i = 0; i < n; i++)
        release(&all[i]);
    assert_int_equal(mote__meter_total(&meter), 0);
}

static void equal_plain_reads(void **state)
{
    static const size_t depths[] = { 1, 2, 7, 64 };
    uint64_t seed = 1;
    for (size_t e = 0; e < ENGINES; e++)
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
            for (int flags = 0; flags < 8; flags += 1 + (d > 1))
                run_random(seed++,
                           &(mote__reads_params){ .depth = depths[d],
                                                  .engine = engines[e],
                                                  .direct = flags & 1,
                                                  .cached_first = flags >> 1 & 1,
                                                  .kernel_workers = flags >> 2 },
                           0);
}

static void cancelled_in_the_middle(void **state)
{
    uint64_t seed = 1000;
    for (size_t e = 0; e < ENGINES; e++)
        for (size_t depth = 1; depth <= 64; depth *= 4)
            for (int direct = 0; direct < 2; direct++)
                run_random(seed++,
                           &(mote__reads_params){
                               .depth = depth, .engine = engines[e], .direct = direct },
                           1);
}

/* Closing with reads in flight: the memory is the caller's again at once. */
static void closed_in_the_middle(void **state)
{
    rnd r = { 99 };
    for (int again = 0; again < 30; again++) {
        mote__reads *reads;
        mote_err err;
        wanted all[HELD];
        size_t n = 1 + rnd_below(&r, HELD);
        assert_int_equal(mote__reads_open(&reads,
                                          &(mote__reads_params){ .depth = HELD,
                                                                 .engine = engines[again % ENGINES],
                                                                 .direct = again & 1 },
                                          NULL, &err),
                         0);
        for (size_t i = 0; i < n; i++) {
            choose(&r, &all[i], files[7].size);
            assert_int_equal(mote__reads_submit_parts(reads, (mote__read_file *)&all[i].t->f,
                                                      all[i].offset, all[i].parts, all[i].n_parts,
                                                      &all[i]),
                             0);
        }
        mote__reads_start(reads);
        mote__reads_close(reads);
        for (size_t i = 0; i < n; i++) {
            memset(all[i].memory, 0x5a, all[i].room);
            all[i].reported = 1;
        }
        for (size_t i = 0; i < n; i++)
            release(&all[i]);
    }
}

/* ---- failures ---- */

/* A disk that gives little at a time, is interrupted, and refuses what touches [bad, bad + 512). */
typedef struct bad_disk {
    pthread_mutex_t mutex;
    rnd r;
    off_t bad;
} bad_disk;
static ssize_t bad_preadv(void *ctx, int fd, const struct iovec *iov, int n, off_t offset)
{
    bad_disk *b = ctx;
    pthread_mutex_lock(&b->mutex);
    size_t choice = rnd_below(&b->r, 4), few = 1 + rnd_below(&b->r, 5000);
    pthread_mutex_unlock(&b->mutex);
    if (choice == 0) {
        errno = EINTR;
        return -1;
    }
    if (offset >= b->bad && offset < b->bad + 512) {
        errno = EIO;
        return -1;
    }
    few = few < iov->iov_len ? few : iov->iov_len;
    if (offset < b->bad && few > (size_t)(b->bad - offset))
        few = (size_t)(b->bad - offset);
    return pread(fd, iov->iov_base, few, offset);
}

static void a_failing_disk(void **state)
{
    rnd r = { 5 };
    for (size_t again = 0; again < 60; again++) {
        bad_disk disk = { .r = { again + 1 }, .bad = (off_t)rnd_below(&r, files[6].size) };
        pthread_mutex_init(&disk.mutex, NULL);
        mote__reads *reads;
        mote_err err;
        mote__read_done done;
        assert_int_equal(mote__reads_open(&reads,
                                          &(mote__reads_params){ .depth = 1 + rnd_below(&r, 20),
                                                                 .engine = engines[again % ENGINES],
                                                                 .direct = again & 1,
                                                                 .preadv = bad_preadv,
                                                                 .preadv_ctx = &disk },
                                          NULL, &err),
                         0);
        assert_int_not_equal(mote__reads_engine_of(reads), MOTE_READS_RING);
        wanted w = { .t = &files[6], .bytes = rnd_below(&r, files[6].size) };
        w.offset = rnd_below(&r, files[6].size - w.bytes);
        w.memory = malloc(w.room = w.bytes + 1);
        memset(w.memory, 0xa5, w.room);
        w.parts[0] = (struct iovec){ w.memory, w.bytes };
        w.n_parts = 1;
        assert_int_equal(mote__reads_submit(reads, &files[6].f, w.offset, w.bytes, w.memory, &w),
                         0);
        assert_int_equal(mote__reads_next(reads, 1, &done), 1);
        /* what lies before the bad place came, whatever else did */
        size_t good = w.bytes;
        if (disk.bad + 512 > (off_t)w.offset && disk.bad < (off_t)(w.offset + w.bytes))
            good = disk.bad > (off_t)w.offset ? (size_t)disk.bad - (size_t)w.offset : 0;
        assert_int_equal(done.bytes, good);
        assert_int_equal(done.error, good < w.bytes ? EIO : 0);
        check_bytes(&w, done.bytes);
        mote__reads_close(reads);
        free(w.memory);
        pthread_mutex_destroy(&disk.mutex);
    }
}

static void descriptors_that_cannot_be_read(void **state)
{
    for (size_t e = 0; e < ENGINES; e++) {
        mote__read_file f;
        mote__reads *reads;
        mote_err err;
        mote__read_done done;
        char byte;
        int fd = open(files[4].path, O_WRONLY);
        mote__read_file_use(&f, fd, -1);
        assert_int_equal(
            mote__reads_open(&reads, &(mote__reads_params){ .engine = engines[e] }, NULL, &err), 0);
        assert_int_equal(mote__reads_submit(reads, &f, 0, 1, &byte, &f), 0);
        assert_int_equal(mote__reads_next(reads, 1, &done), 1);
        assert_int_equal(done.error, EBADF);
        assert_int_equal(done.bytes, 0);
        assert_ptr_equal(done.tag, &f);
        mote__reads_close(reads);
        close(fd);
    }
}

/* Direct reads that the kernel refuses after all go through the page cache, then and later. */
static void refused_direct_reads(void **state)
{
    for (size_t e = 0; e < ENGINES; e++) {
        mote__read_file f;
        mote__reads *reads;
        mote_err err;
        mote__read_done done;
        uint8_t *p = malloc(5001);
        assert_int_equal(mote__read_file_open(&f, files[4].path, 1, &err), 0);
        if (f.direct_fd < 0) { /* this file system has none */
            mote__read_file_close(&f);
            free(p);
            return;
        }
        f.align = f.memory_align = 1; /* as if the file system had said so */
        f.direct_refused = 0;
        assert_int_equal(
            mote__reads_open(&reads, &(mote__reads_params){ .engine = engines[e], .direct = 1 },
                             NULL, &err),
            0);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(mote__reads_submit(reads, &f, 77, 5000, p + 1, NULL), 0);
            assert_int_equal(mote__reads_next(reads, 1, &done), 1);
            assert_int_equal(done.error, 0);
            assert_memory_equal(p + 1, files[4].bytes + 77, 5000);
            uint64_t direct, buffered;
            mote__reads_bytes(reads, &direct, &buffered);
            assert_int_equal(direct + buffered, 5000 * (again + 1));
            assert_int_equal(f.direct_refused, direct == 0);
        }
        mote__reads_close(reads);
        mote__read_file_close(&f);
        free(p);
    }
}

/* A ring that the kernel takes nothing from any more: the reads come all the same. */
static void a_ring_that_dies(void **state)
{
    mote__reads *reads;
    mote_err err;
    mote__read_done done;
    static uint8_t p[8][4096];
    assert_int_equal(mote__reads_open(&reads, &(mote__reads_params){ .engine = MOTE_READS_RING },
                                      NULL, &err),
                     0);
    if (mote__reads_engine_of(reads) == MOTE_READS_RING) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(dup2(null, reads->ring.ring_fd) >= 0);
        close(null);
        for (int again = 0; again < 2; again++) {
            for (size_t i = 0; i < 8; i++)
                assert_int_equal(mote__reads_submit(reads, &files[4].f, i * 4096, 4096, p[i], p[i]),
                                 0);
            for (size_t i = 0; i < 8; i++) {
                assert_int_equal(mote__reads_next(reads, 1, &done), 1);
                assert_int_equal(done.error, 0);
                assert_memory_equal(done.tag,
                                    files[4].bytes + ((uint8_t(*)[4096])done.tag - p) * 4096, 4096);
            }
            assert_int_equal(mote__reads_engine_of(reads), MOTE_READS_PLAIN);
        }
    }
    mote__reads_close(reads);
}

static void memory_runs_out(void **state)
{
    for (size_t e = 0; e < ENGINES; e++)
        for (long n = 1; n <= 5; n++) {
            mote__meter meter = { 0 };
            mote__reads *reads;
            mote_err err;
            mote__alloc_fail_at = n;
            int rc = mote__reads_open(&reads, &(mote__reads_params){ .engine = engines[e] }, &meter,
                                      &err);
            mote__alloc_fail_at = 0;
            assert_int_equal(rc,
                             n <= 3 ? MOTE_ENOMEM : 0); /* without its threads it reads itself */
            assert_int_equal(rc ? reads != NULL : reads == NULL, 0);
            mote__reads_close(reads);
            assert_int_equal(mote__meter_total(&meter), 0);
        }
}

/* ---- limits, files ---- */

static void limits(void **state)
{
    mote__reads *reads;
    mote_err err;
    mote__read_done done;
    char p[8];
    struct iovec parts[MOTE_READ_PARTS + 1] = { { p, 1 }, { p + 1, 1 } };
    mote__read_file *f = &files[4].f;
    assert_int_equal(mote__reads_open(&reads, &(mote__reads_params){ .depth = 2 }, NULL, &err), 0);
    assert_int_equal(mote__reads_submit_parts(reads, f, 0, parts, MOTE_READ_PARTS + 1, NULL),
                     MOTE_EINVAL);
    assert_int_equal(mote__reads_submit(reads, f, INT64_MAX, 1, p, NULL), MOTE_EINVAL);
    assert_int_equal(mote__reads_submit(reads, f, UINT64_MAX, 2, p, NULL), MOTE_EINVAL);
    assert_int_equal(mote__reads_next(reads, 1, &done), 0);
    assert_int_equal(mote__reads_submit(reads, f, 5, 0, NULL, p), 0); /* nothing comes at once */
    assert_int_equal(mote__reads_submit(reads, f, 5, 1, p, NULL), 0);
    assert_int_equal(mote__reads_submit(reads, f, 5, 1, p, NULL), MOTE_EFULL);
    assert_int_equal(mote__reads_next(reads, 0, &done), 1);
    assert_ptr_equal(done.tag, p);
    assert_int_equal(done.error, 0);
    mote__reads_close(reads);
    mote__reads_close(NULL);
}

static void files_that_are_none(void **state)
{
    char path[64];
    mote__read_file f;
    mote_err err;
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mote__read_file_open(&f, path, 1, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_int_equal(mote__read_file_open(&f, dir, 1, &err), MOTE_EINVAL);
    snprintf(path, sizeof path, "%s/none", dir);
    assert_int_equal(mote__read_file_open(&f, path, 1, &err), MOTE_EIO);
    assert_int_equal(f.fd, -1);
    mote__read_file_close(&f); /* what failed may be closed */
}

static void spans(void **state)
{
    mote__read_file f = { .align = 512 };
    uint64_t at = 1000;
    size_t n = 100;
    mote__read_file_span(&f, &at, &n);
    assert_int_equal(at, 512);
    assert_int_equal(n, 1024);
    mote__read_file_span(&f, &at, &n);
    assert_int_equal(at, 512);
    assert_int_equal(n, 1024);
}

/* Aligned reads do go past the page cache where the file system has that. */
static void direct_reads_are_direct(void **state)
{
    for (size_t e = 0; e < ENGINES; e++) {
        mote__reads *reads;
        mote_err err;
        mote__read_done done;
        uint64_t direct, buffered;
        test_file *t = &files[7];
        uint8_t *p = aligned_alloc(4096, t->size + 4096);
        assert_int_equal(
            mote__reads_open(&reads, &(mote__reads_params){ .engine = engines[e], .direct = 1 },
                             NULL, &err),
            0);
        /* beyond the end: what is there comes directly, its end is found by the page cache */
        assert_int_equal(mote__reads_submit(reads, &t->f, 0, t->size + 4096, p, p), 0);
        assert_int_equal(mote__reads_next(reads, 1, &done), 1);
        assert_int_equal(done.error, ENODATA);
        assert_int_equal(done.bytes, t->size);
        assert_memory_equal(p, t->bytes, t->size);
        mote__reads_bytes(reads, &direct, &buffered);
        if (t->f.direct_fd >= 0 && !t->f.direct_refused)
            assert_int_equal(direct, t->size);
        assert_int_equal(direct + buffered, t->size);
        mote__reads_close(reads);
        free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_reads_are_direct),
        cmocka_unit_test(equal_plain_reads),
        cmocka_unit_test(cancelled_in_the_middle),
        cmocka_unit_test(closed_in_the_middle),
        cmocka_unit_test(a_failing_disk),
        cmocka_unit_test(descriptors_that_cannot_be_read),
        cmocka_unit_test(refused_direct_reads),
        cmocka_unit_test(a_ring_that_dies),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(limits),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(spans),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
