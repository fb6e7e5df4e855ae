#include "model/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* DEPTH: reads in flight; RUN: bytes of rows that are read together, GAP: that may be between two
 * of them */
enum { DEPTH = 128, PAGE = 4096, RUN = 16 << 10, GAP = 4 << 10, TRIES = 2 };

/* A row that is wanted, and where. */
typedef struct wanted {
    uint64_t row;
    size_t to;
} wanted;

/* A read: rows [first, end) of the sorted list. */
typedef struct run {
    uint64_t offset; /* in the file, of a page */
    size_t bytes, first, end;
    int n_tries;
} run;

struct mote__rows {
    const mote__checkpoint *ckpt; /* borrowed */
    mote__meter *meter;
    mote__read_file *files;
    size_t n_files, n_shards;
    mote__reads *reads;
    size_t place_bytes; /* of a read's memory */
    uint8_t *places;    /* [DEPTH][place_bytes] */
    size_t places_bytes;
    run runs[DEPTH]; /* by place */
    uint8_t free_places[DEPTH];
    size_t n_free;
    mote__buf list; /* wanted */
};

int mote__rows_open(mote__rows **out, const mote__checkpoint *ckpt, size_t most_row_bytes,
                    const mote__reads_params *reads, mote__meter *meter, mote_err *err)
{
    *out = NULL;
    mote__rows *r = mote__alloc(meter, MOTE_MEM_WEIGHTS, sizeof *r);
    if (!r)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for rows of tables");
    r->ckpt = ckpt;
    r->meter = meter;
    r->n_shards = mote__checkpoint_n_shards(ckpt);
    mote__buf_init(&r->list, meter, MOTE_MEM_SCRATCH);
    size_t most = most_row_bytes > RUN ? most_row_bytes : RUN;
    r->place_bytes = (most + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
    r->places_bytes = DEPTH * r->place_bytes;
    r->places = mote__map_large_pages(meter, MOTE_MEM_WEIGHTS, &r->places_bytes);
    r->files = mote__alloc(meter, MOTE_MEM_WEIGHTS, r->n_shards * sizeof *r->files);
    mote__reads_params p = reads ? *reads : (mote__reads_params){ 0 };
    p.depth = DEPTH;
    p.direct = 1;
    int rc = 0;
    if (!r->places || !r->files)
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for rows of tables");
    for (; !rc && r->n_files < r->n_shards; r->n_files += !rc)
        rc = mote__read_file_open(&r->files[r->n_files],
                                  mote__checkpoint_shard_path(ckpt, r->n_files), 1, err);
    if (!rc)
        rc = mote__reads_open(&r->reads, &p, meter, err);
    if (rc) {
        mote__rows_close(r);
        return rc;
    }
    for (size_t i = 0; i < DEPTH; i++)
        r->free_places[r->n_free++] = (uint8_t)i;
    *out = r;
    return 0;
}

void mote__rows_close(mote__rows *r)
{
    if (!r)
        return;
    mote__reads_close(r->reads);
    for (size_t i = 0; i < r->n_files; i++)
        mote__read_file_close(&r->files[i]);
    mote__buf_deinit(&r->list);
    mote__unmap_pages(r->meter, MOTE_MEM_WEIGHTS, r->places, r->places_bytes);
    mote__free(r->meter, MOTE_MEM_WEIGHTS, r->files, r->n_shards * sizeof *r->files);
    mote__free(r->meter, MOTE_MEM_WEIGHTS, r, sizeof *r);
}

static int by_row(const void *a, const void *b)
{
    const wanted *x = a, *y = b;
    return (x->row > y->row) - (x->row < y->row);
}

static uint64_t offset_of(const mote__row_table *t, const wanted *w)
{
    return t->at.offset + w->row * t->row_bytes;
}

static uint8_t *place_of(const mote__rows *r, size_t place)
{
    return r->places + place * r->place_bytes;
}

static void submit(mote__rows *r, const mote__row_table *t, size_t place)
{
    const run *u = &r->runs[place];
    /* as many reads as places may be held */
    mote__reads_submit(r->reads, &r->files[t->at.shard], u->offset, u->bytes, place_of(r, place),
                       (void *)(uintptr_t)(place + 1));
}

/* The rows from `first` on that are read together. */
static void begin_run(mote__rows *r, const mote__row_table *t, const wanted *list, size_t n,
                      size_t first)
{
    uint64_t begin = offset_of(t, &list[first]), end = begin + t->row_bytes;
    size_t k = first + 1;
    for (; k < n; k++) {
        uint64_t at = offset_of(t, &list[k]);
        if (at > end + GAP || at + t->row_bytes - begin > RUN)
            break;
        end = at + t->row_bytes > end ? at + t->row_bytes : end;
    }
    uint64_t page = begin / PAGE * PAGE;
    size_t place = r->free_places[--r->n_free];
    r->runs[place] = (run){
        .offset = page,
        .bytes = (size_t)((end - page + PAGE - 1) / PAGE * PAGE),
        .first = first,
        .end = k,
    };
    submit(r, t, place);
}

static int fail(const mote__rows *r, const mote__row_table *t, const run *u, int error,
                mote_err *err)
{
    const char *path = mote__checkpoint_shard_path(r->ckpt, t->at.shard);
    if (error == ENODATA)
        return mote__fail(err, MOTE_EFORMAT, "%s: ends before %llu: changed while in use", path,
                          (unsigned long long)(u->offset + u->bytes));
    return mote__fail(err, MOTE_EIO, "%s: cannot read %zu bytes at %llu: %s", path, u->bytes,
                      (unsigned long long)u->offset, strerror(error));
}

/* A read came back: its rows go where they are wanted. */
static int take(mote__rows *r, const mote__row_table *t, const wanted *list, uint8_t *to,
                const mote__read_done *done, mote_err *err)
{
    size_t place = (uintptr_t)done->tag - 1;
    run *u = &r->runs[place];
    const wanted *last = &list[u->end - 1];
    size_t needed = (size_t)(offset_of(t, last) + t->row_bytes - u->offset);
    if (done->bytes < needed && done->error != ENODATA && done->error != ECANCELED &&
        ++u->n_tries < TRIES) {
        submit(r, t, place);
        return 0;
    }
    r->free_places[r->n_free++] = (uint8_t)place;
    if (done->bytes < needed)
        return done->error == ECANCELED ? 0 : fail(r, t, u, done->error, err);
    for (size_t i = u->first; i < u->end; i++)
        memcpy(to + list[i].to * t->row_bytes,
               place_of(r, place) + (offset_of(t, &list[i]) - u->offset), t->row_bytes);
    return 0;
}

int mote__rows_read(mote__rows *r, const mote__row_table *t, const uint64_t *rows, size_t n,
                    uint8_t *to, mote_err *err)
{
    if (mote__buf_reserve(&r->list, n * sizeof(wanted)))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu rows", n);
    wanted *list = r->list.data;
    for (size_t i = 0; i < n; i++)
        list[i] = (wanted){ rows[i], i };
    qsort(list, n, sizeof *list, by_row);
    int rc = 0;
    mote__read_done done;
    for (size_t next = 0; next < n || mote__reads_held(r->reads);) {
        while (next < n && r->n_free && !rc) {
            begin_run(r, t, list, n, next);
            next = r->runs[r->free_places[r->n_free]].end;
        }
        if (rc && next < n)
            next = n;
        if (!mote__reads_next(r->reads, 1, &done))
            continue;
        int one = take(r, t, list, to, &done, rc ? NULL : err);
        if (one && !rc) {
            rc = one;
            mote__reads_cancel_all(r->reads);
        }
    }
    return rc;
}
