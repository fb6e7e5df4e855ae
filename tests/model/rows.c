/* Rows of tables read from files: random rows, orders and repetitions against the mapped bytes, by
 * every engine, through readers that fail, are interrupted and read short. */
#include "model/rows.h"

#include <errno.h>
#include <unistd.h>

#include "golden.h"

static struct faults {
    rnd r;
    size_t n_calls, fail_at;
    int error, once, unsteady;
} faults;

static ssize_t faulty(void *ctx, int fd, const struct iovec *iov, int n, off_t offset)
{
    struct faults *f = ctx;
    size_t call = ++f->n_calls;
    if (f->fail_at && (f->once ? call == f->fail_at : call >= f->fail_at)) {
        errno = f->error;
        return f->error ? -1 : 0;
    }
    if (f->unsteady && rnd_below(&f->r, 3) == 0) {
        errno = EINTR;
        return -1;
    }
    struct iovec part = iov[0];
    if (f->unsteady)
        part.iov_len = 1 + rnd_below(&f->r, part.iov_len);
    return f->unsteady ? preadv(fd, &part, 1, offset) : preadv(fd, iov, n, offset);
}

enum { MOST = 700 };

/* n random rows of a table, some of them several times; 0, or what failed. */
static int some_rows(mote__rows *r, const mote__row_table *t, const uint8_t *mapped, size_t n_rows,
                     rnd *g, mote_err *err)
{
    uint64_t rows[MOST];
    size_t n = 1 + rnd_below(g, MOST), near = rnd_below(g, n_rows);
    for (size_t i = 0; i < n; i++)
        rows[i] = rnd_below(g, 3) ? rnd_below(g, n_rows) : (near + rnd_below(g, 20)) % n_rows;
    uint8_t *to = malloc(n * t->row_bytes);
    int rc = mote__rows_read(r, t, rows, n, to, err);
    for (size_t i = 0; i < n && !rc; i++)
        assert_memory_equal(to + i * t->row_bytes, mapped + rows[i] * t->row_bytes, t->row_bytes);
    free(to);
    return rc;
}

static void every_row(void **state)
{
    (void)state;
    static const mote__reads_engine engines[] = { MOTE_READS_RING, MOTE_READS_PLAIN,
                                                  MOTE_READS_THREADS };
    mote_err err;
    mote__checkpoint *c = golden_open(source_path("models/nano"));
    mote__meter meter = { 0 };
    for (int i = 0; i < 4; i++) {
        mote__reads_params p = { .engine = engines[i % 3] };
        if (i == 1) { /* one caller: the generator is not shared */
            p.preadv = faulty;
            p.preadv_ctx = &faults;
        }
        faults = (struct faults){ .r = { 5 }, .unsteady = 1 };
        mote__rows *r;
        assert_int_equal(mote__rows_open(&r, c, 4096, &p, &meter, &err), 0);
        rnd g = { 7 + (uint64_t)i };
        for (size_t k = 0; k < 40; k++) {
            static const char *const names[] = { "embed.weight", "layers.1.engram.embed.weight",
                                                 "layers.1.engram.embed.scale",
                                                 "layers.4.engram.embed.weight" };
            const mote__tensor *t = mote__checkpoint_find(c, names[k % 4]);
            mote__row_table table = { mote__checkpoint_source(c, t),
                                      (size_t)(t->n_bytes / t->shape[0]) };
            if (some_rows(r, &table, t->data, (size_t)t->shape[0], &g, &err))
                fail_msg("%s", err.message);
        }
        mote__rows_close(r);
        assert_int_equal(mote__meter_total(&meter), 0);
    }
    mote__checkpoint_close(c);
}

static void failures(void **state)
{
    (void)state;
    mote_err err;
    mote__checkpoint *c = golden_open(source_path("models/nano"));
    const mote__tensor *t = mote__checkpoint_find(c, "embed.weight");
    mote__row_table table = { mote__checkpoint_source(c, t), (size_t)(t->n_bytes / t->shape[0]) };
    for (size_t at = 1; at < 60; at += 3)
        for (int once = 0; once < 2; once++) {
            mote__reads_params p = { .engine = MOTE_READS_PLAIN,
                                     .preadv = faulty,
                                     .preadv_ctx = &faults };
            mote__rows *r;
            rnd g = { at };
            assert_int_equal(mote__rows_open(&r, c, 4096, &p, NULL, &err), 0);
            faults = (struct faults){ .fail_at = at, .once = once, .error = at % 2 ? EIO : 0 };
            int rc = 0;
            for (int k = 0; k < 4 && !rc; k++)
                rc = some_rows(r, &table, t->data, (size_t)t->shape[0], &g, &err);
            if (faults.error && once) {
                assert_int_equal(rc, 0); /* tried again */
            } else if (!once) {
                assert_int_equal(rc, faults.error ? MOTE_EIO : MOTE_EFORMAT);
                assert_non_null(strstr(err.message, ".safetensors: "));
            }
            faults.fail_at = 0;
            for (int k = 0; k < 4; k++)
                assert_int_equal(some_rows(r, &table, t->data, (size_t)t->shape[0], &g, &err), 0);
            mote__rows_close(r);
        }
    mote__checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_row), cmocka_unit_test(failures) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
