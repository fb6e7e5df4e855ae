/* Pieces read by preadv: by threads or, where there are none, by whoever asks for results. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "io/reads_impl.h"

/* What is left of the piece's memory behind its first `got` bytes. */
static int rest_of(const mote__piece *p, struct iovec rest[MOTE_READ_PARTS])
{
    size_t skip = p->got;
    int n = 0;
    for (int i = 0; i < p->n_parts; i++) {
        size_t bytes = p->parts[i].iov_len, step = skip < bytes ? skip : bytes;
        skip -= step;
        if (bytes > step)
            rest[n++] = (struct iovec){ (char *)p->parts[i].iov_base + step, bytes - step };
    }
    return n;
}

void mote__hand_read(const mote__reads *r, mote__piece *p)
{
    mote__read_file *f = p->read->file;
    p->error = 0;
    while (p->got < p->bytes) {
        struct iovec rest[MOTE_READ_PARTS];
        int n = rest_of(p, rest), fd = p->direct ? f->direct_fd : f->fd;
        off_t at = (off_t)(p->read->offset + p->begin + p->got);
        ssize_t k = r->params.preadv ? r->params.preadv(r->params.preadv_ctx, fd, rest, n, at)
                                     : preadv(fd, rest, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && p->direct) {
            /* whatever it was, the page cache is asked, which also tells why */
            if (errno == EINVAL)
                atomic_store(&f->direct_refused, 1);
            p->direct = 0;
            continue;
        }
        if (k <= 0) {
            p->error = k == 0 ? ENODATA : errno ? errno : EIO;
            return;
        }
        p->got += (size_t)k;
        p->got_direct += p->direct ? (size_t)k : 0;
        /* what follows a short direct read is not aligned: mostly the end of the file */
        p->direct &= p->got == p->bytes;
    }
}

static void *worker(void *arg)
{
    mote__reads *r = arg;
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        while (!r->stop && !r->todo.first)
            pthread_cond_wait(&r->wake, &r->mutex);
        mote__piece *p = r->stop ? NULL : mote__pieces_pop(&r->todo);
        if (!p)
            break;
        pthread_mutex_unlock(&r->mutex);
        mote__hand_read(r, p);
        pthread_mutex_lock(&r->mutex);
        mote__pieces_push(&r->done, p);
        pthread_cond_signal(&r->read_one);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

void mote__hand_open(mote__reads *r, size_t n_threads)
{
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->wake, NULL);
    pthread_cond_init(&r->read_one, NULL);
    r->params.n_threads = n_threads;
    if (!n_threads)
        return;
    r->threads = mote__alloc(r->meter, MOTE_MEM_OTHER, n_threads * sizeof *r->threads);
    /* fewer will do, and none too */
    while (r->threads && r->n_threads < n_threads &&
           !pthread_create(&r->threads[r->n_threads], NULL, worker, r))
        r->n_threads++;
}

void mote__hand_close(mote__reads *r)
{
    pthread_mutex_lock(&r->mutex);
    r->stop = 1;
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->mutex);
    for (size_t i = 0; i < r->n_threads; i++)
        pthread_join(r->threads[i], NULL);
    mote__free(r->meter, MOTE_MEM_OTHER, r->threads, r->params.n_threads * sizeof *r->threads);
    pthread_mutex_destroy(&r->mutex);
    pthread_cond_destroy(&r->wake);
    pthread_cond_destroy(&r->read_one);
}

void mote__hand_push(mote__reads *r, mote__piece *p)
{
    p->in_ring = 0;
    r->n_by_hand++;
    pthread_mutex_lock(&r->mutex);
    mote__pieces_push(&r->todo, p);
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mutex);
}

mote__piece *mote__hand_next(mote__reads *r, int wait)
{
    if (!r->n_by_hand)
        return NULL;
    pthread_mutex_lock(&r->mutex);
    while (wait && r->n_threads && !r->done.first)
        pthread_cond_wait(&r->read_one, &r->mutex);
    mote__piece *p = mote__pieces_pop(r->n_threads ? &r->done : &r->todo);
    pthread_mutex_unlock(&r->mutex);
    if (p && !r->n_threads)
        mote__hand_read(r, p);
    r->n_by_hand -= p != NULL;
    return p;
}

mote__piece *mote__hand_take_back(mote__reads *r, const mote__read *of)
{
    mote__pieces kept = { 0 }, taken = { 0 };
    pthread_mutex_lock(&r->mutex);
    for (mote__piece *p; (p = mote__pieces_pop(&r->todo)) != NULL;)
        if (p->read == of) {
            mote__pieces_push(&taken, p);
            r->n_by_hand--;
        } else {
            mote__pieces_push(&kept, p);
        }
    r->todo = kept;
    pthread_mutex_unlock(&r->mutex);
    return taken.first;
}
