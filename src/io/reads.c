/* Reads in flight: what is held, the pieces it is cut into, and what became of it.
 *
 * A read is active until all its pieces are back, then finished until it is reported. Pieces are
 * made oldest read first, for as long as one is free; a read of which one piece failed gets no
 * more. Nothing of a read is released while one of its pieces is with the kernel or a thread. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "io/reads_impl.h"

enum { DEPTH = 16, THREADS = 4 };

int mote__reads_open(mote__reads **out, const mote__reads_params *params, mote__meter *meter,
                     mote_err *err)
{
    *out = NULL;
    mote__reads *r = mote__alloc(meter, MOTE_MEM_OTHER, sizeof *r);
    if (!r)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for reads in flight");
    if (params)
        r->params = *params;
    mote__reads_params *p = &r->params;
    p->depth = p->depth == 0 ? DEPTH : p->depth > MOTE_READS_DEPTH ? MOTE_READS_DEPTH : p->depth;
    size_t n_threads = p->n_threads ? p->n_threads : THREADS;
    n_threads = n_threads < p->depth ? n_threads : p->depth;
    r->meter = meter;
    r->reads = mote__alloc(meter, MOTE_MEM_OTHER, p->depth * sizeof *r->reads);
    r->pieces = mote__alloc(meter, MOTE_MEM_OTHER, p->depth * sizeof *r->pieces);
    if ((p->engine == MOTE_READS_AUTO || p->engine == MOTE_READS_RING) && !p->preadv)
        mote__ring_open(r);
    int threads = p->engine == MOTE_READS_THREADS || p->engine == MOTE_READS_AUTO;
    mote__hand_open(r, threads && !r->has_ring ? n_threads : 0);
    if (!r->reads || !r->pieces) {
        mote__fail(err, MOTE_ENOMEM, "out of memory for %zu reads in flight", p->depth);
        mote__reads_close(r);
        return MOTE_ENOMEM;
    }
    for (size_t i = p->depth; i-- > 0;) {
        r->reads[i].next = r->free_reads;
        r->free_reads = &r->reads[i];
        r->pieces[i].next = r->free_pieces;
        r->free_pieces = &r->pieces[i];
    }
    *out = r;
    return 0;
}

size_t mote__reads_held(const mote__reads *r) { return r->n_held; }

mote__reads_engine mote__reads_engine_of(const mote__reads *r)
{
    return r->has_ring && !r->ring_dead ? MOTE_READS_RING
           : r->n_threads               ? MOTE_READS_THREADS
                                        : MOTE_READS_PLAIN;
}

void mote__reads_bytes(const mote__reads *r, uint64_t *direct, uint64_t *buffered)
{
    *direct = r->direct_bytes;
    *buffered = r->buffered_bytes;
}

/* ---- a read's end ---- */

/* What is wrong from byte `at` on; the first such byte counts. */
static void note_end(mote__read *d, size_t at, int error)
{
    if (at < d->reached) {
        d->reached = at;
        d->error = error;
    }
    d->begun = d->bytes; /* no more pieces */
}

static void finish_if_done(mote__reads *r, mote__read *d)
{
    if (d->begun < d->bytes || d->n_pieces)
        return;
    mote__read **at = &r->active, *before = NULL;
    for (; *at != d; at = &(*at)->next)
        before = *at;
    *at = d->next;
    if (r->active_last == d)
        r->active_last = before;
    d->next = NULL;
    *(r->finished ? &r->finished_last->next : &r->finished) = d;
    r->finished_last = d;
}

/* ---- pieces ---- */

static size_t piece_bytes(const mote__read *d)
{
    size_t left = d->bytes - d->begun;
    return left > MOTE_READ_PIECE ? MOTE_READ_PIECE : left;
}

/* The piece's share of the read's memory. */
static void set_parts(mote__piece *p)
{
    const mote__read *d = p->read;
    size_t skip = p->begin, left = p->bytes;
    p->n_parts = 0;
    for (int i = 0; i < d->n_parts && left; i++) {
        size_t bytes = d->parts[i].iov_len, step = skip < bytes ? skip : bytes;
        skip -= step;
        bytes = bytes - step < left ? bytes - step : left;
        if (bytes)
            p->parts[p->n_parts++] = (struct iovec){ (char *)d->parts[i].iov_base + step, bytes };
        left -= bytes;
    }
}

static int may_be_direct(const mote__reads *r, const mote__piece *p)
{
    mote__read_file *f = p->read->file;
    if (!r->params.direct || f->direct_fd < 0 || atomic_load(&f->direct_refused) ||
        (p->read->offset + p->begin) % f->align)
        return 0;
    for (int i = 0; i < p->n_parts; i++)
        if ((uintptr_t)p->parts[i].iov_base % f->memory_align || p->parts[i].iov_len % f->align)
            return 0;
    return 1;
}

static void make_piece(mote__reads *r, mote__read *d, mote__piece *p)
{
    *p = (mote__piece){ .read = d, .begin = d->begun, .bytes = piece_bytes(d), .guess = d->guess };
    r->n_guess_pieces += (size_t)p->guess;
    d->begun += p->bytes;
    d->n_pieces++;
    set_parts(p);
    p->direct = may_be_direct(r, p);
    if (mote__ring_push(r, p))
        return;
    if (!p->direct && !r->params.preadv)
        posix_fadvise(d->file->fd, (off_t)(d->offset + p->begin), (off_t)p->bytes,
                      POSIX_FADV_WILLNEED);
    mote__hand_push(r, p);
}

static void take_piece(mote__reads *r, mote__piece *p)
{
    mote__read *d = p->read;
    if (p->error == -1 && d->cancelled)
        p->error = ECANCELED;
    else if (p->error == -1)
        mote__hand_read(r, p);
    r->direct_bytes += p->got_direct;
    r->buffered_bytes += p->got - p->got_direct;
    if (p->got < p->bytes)
        note_end(d, p->begin + p->got, p->error);
    r->n_guess_pieces -= (size_t)p->guess;
    p->next = r->free_pieces;
    r->free_pieces = p;
    d->n_pieces--;
    finish_if_done(r, d);
}

static void begin_class(mote__reads *r, int guess)
{
    size_t most = guess ? (r->params.depth + 3) / 4 : r->params.depth;
    mote__read *d = r->active;
    while (d && r->free_pieces && (!guess || r->n_guess_pieces < most)) {
        if (d->begun == d->bytes || d->guess != guess) {
            d = d->next;
            continue;
        }
        mote__piece *p = r->free_pieces;
        r->free_pieces = p->next;
        make_piece(r, d, p);
    }
}

static void begin_pieces(mote__reads *r)
{
    begin_class(r, 0);
    begin_class(r, 1); /* a free piece is left: nothing else waits */
}

/* ---- submitting ---- */

static int submit(mote__reads *r, mote__read_file *file, uint64_t offset, const struct iovec *parts,
                  int n_parts, void *tag, int guess)
{
    uint64_t end = offset;
    for (int i = 0; i < n_parts; i++)
        if (__builtin_add_overflow(end, (uint64_t)parts[i].iov_len, &end))
            return MOTE_EINVAL;
    if (n_parts < 0 || n_parts > MOTE_READ_PARTS || end > INT64_MAX)
        return MOTE_EINVAL;
    mote__read *d = r->free_reads;
    if (!d)
        return MOTE_EFULL;
    r->free_reads = d->next;
    r->n_held++;
    *d = (mote__read){ .file = file,
                       .tag = tag,
                       .offset = offset,
                       .n_parts = n_parts,
                       .bytes = (size_t)(end - offset),
                       .guess = guess };
    d->reached = d->bytes;
    if (n_parts)
        memcpy(d->parts, parts, (size_t)n_parts * sizeof *parts);
    *(r->active ? &r->active_last->next : &r->active) = d;
    r->active_last = d;
    if (d->bytes && r->params.cached_first && mote__file_is_cached(file->fd, offset, d->bytes)) {
        mote__piece p = { .read = d, .bytes = d->bytes, .n_parts = n_parts };
        memcpy(p.parts, d->parts, sizeof p.parts);
        mote__hand_read(r, &p);
        r->buffered_bytes += p.got;
        d->begun = d->bytes;
        if (p.got < p.bytes)
            note_end(d, p.got, p.error);
    }
    finish_if_done(r, d);
    return 0;
}

int mote__reads_submit(mote__reads *r, mote__read_file *file, uint64_t offset, size_t bytes,
                       void *dst, void *tag)
{
    return mote__reads_submit_parts(r, file, offset, &(struct iovec){ dst, bytes }, 1, tag);
}

int mote__reads_guess(mote__reads *r, mote__read_file *file, uint64_t offset, size_t bytes,
                      void *dst, void *tag)
{
    return submit(r, file, offset, &(struct iovec){ dst, bytes }, 1, tag, 1);
}

int mote__reads_submit_parts(mote__reads *r, mote__read_file *file, uint64_t offset,
                             const struct iovec *parts, int n_parts, void *tag)
{
    return submit(r, file, offset, parts, n_parts, tag, 0);
}

void mote__reads_promote(mote__reads *r, const void *tag)
{
    for (mote__read *d = r->active; d; d = d->next)
        if (d->tag == tag)
            d->guess = 0;
}

void mote__reads_start(mote__reads *r)
{
    begin_pieces(r);
    mote__ring_send(r);
}

/* ---- results ---- */

int mote__reads_next(mote__reads *r, int wait, mote__read_done *done)
{
    while (!r->finished && r->n_held) {
        mote__reads_start(r);
        mote__piece *p = mote__hand_next(r, 0);
        if (!p)
            p = mote__ring_next(r, wait && !r->n_by_hand);
        if (!p)
            p = mote__hand_next(r, wait);
        if (p)
            take_piece(r, p);
        else if (!wait)
            return 0;
        if (!wait && !r->finished && !r->has_ring && !r->n_threads)
            return 0; /* one piece was read */
    }
    mote__read *d = r->finished;
    if (!d)
        return 0;
    r->finished = d->next;
    *done = (mote__read_done){ .tag = d->tag, .error = d->error, .bytes = d->reached };
    d->next = r->free_reads;
    r->free_reads = d;
    r->n_held--;
    return 1;
}

/* ---- cancelling ---- */

static void cancel_read(mote__reads *r, mote__read *d)
{
    d->cancelled = 1;
    d->n_pieces++; /* it does not finish in here */
    if (d->begun < d->bytes)
        note_end(d, d->begun, ECANCELED);
    for (mote__piece *p = mote__hand_take_back(r, d), *next; p; p = next) {
        next = p->next;
        p->error = ECANCELED;
        take_piece(r, p);
    }
    for (size_t i = 0; i < r->params.depth; i++)
        if (r->pieces[i].in_ring && r->pieces[i].read == d)
            mote__ring_cancel(r, &r->pieces[i]);
    d->n_pieces--;
    finish_if_done(r, d);
}

static void cancel_those(mote__reads *r, int all, const void *tag)
{
    for (mote__read *d = r->active, *next; d; d = next) {
        next = d->next;
        if (!all && d->tag != tag)
            continue;
        cancel_read(r, d);
    }
}

void mote__reads_drop(mote__reads *r, const void *tag)
{
    for (mote__read *d = r->active, *next; d; d = next) {
        next = d->next;
        if (d->tag == tag && d->guess && !d->begun)
            cancel_read(r, d);
    }
}

void mote__reads_cancel(mote__reads *r, const void *tag) { cancel_those(r, 0, tag); }
void mote__reads_cancel_all(mote__reads *r) { cancel_those(r, 1, NULL); }

void mote__reads_close(mote__reads *r)
{
    if (!r)
        return;
    mote__read_done done;
    mote__reads_cancel_all(r);
    while (mote__reads_next(r, 1, &done))
        ;
    mote__ring_close(r);
    mote__hand_close(r);
    mote__free(r->meter, MOTE_MEM_OTHER, r->reads, r->params.depth * sizeof *r->reads);
    mote__free(r->meter, MOTE_MEM_OTHER, r->pieces, r->params.depth * sizeof *r->pieces);
    mote__free(r->meter, MOTE_MEM_OTHER, r, sizeof *r);
}
