/* Pieces in an io_uring. Where the kernel stops taking submissions the ring is dead: nothing is
 * sent to it again, what flies in it is waited for, and all else is read by hand. */
#include <errno.h>
#include <sched.h>

#include "io/reads_impl.h"

void mote__ring_open(mote__reads *r)
{
    r->has_ring = !io_uring_queue_init((unsigned)r->params.depth, &r->ring, 0);
}

void mote__ring_close(mote__reads *r)
{
    if (r->has_ring)
        io_uring_queue_exit(&r->ring);
}

int mote__ring_push(mote__reads *r, mote__piece *p)
{
    if (!r->has_ring || r->ring_dead)
        return 0;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    if (!sqe)
        return 0;
    const mote__read_file *f = p->read->file;
    io_uring_prep_readv(sqe, p->direct ? f->direct_fd : f->fd, p->parts, (unsigned)p->n_parts,
                        p->read->offset + p->begin);
    if (r->params.kernel_workers)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data(sqe, p);
    p->in_ring = 1;
    mote__pieces_push(&r->unsent, p);
    r->n_unsent++;
    return 1;
}

void mote__ring_send(mote__reads *r)
{
    enum { TRIES = 1000 };
    for (int tries = 0; r->n_unsent && !r->ring_dead;) {
        int n = io_uring_submit(&r->ring);
        for (int i = 0; i < n && r->n_unsent; i++) {
            mote__pieces_pop(&r->unsent);
            r->n_unsent--;
            r->n_in_ring++;
        }
        if (n >= 0 || n == -EINTR)
            continue;
        if (n == -EAGAIN || n == -EBUSY) {
            if (r->n_in_ring)
                return; /* room comes when one of them is done */
            if (++tries < TRIES) {
                sched_yield();
                continue;
            }
        }
        r->ring_dead = 1;
    }
    while (r->ring_dead && r->n_unsent) {
        r->n_unsent--;
        mote__hand_push(r, mote__pieces_pop(&r->unsent));
    }
}

mote__piece *mote__ring_next(mote__reads *r, int wait)
{
    while (r->n_in_ring) {
        struct io_uring_cqe *cqe;
        int rc = wait ? io_uring_wait_cqe(&r->ring, &cqe) : io_uring_peek_cqe(&r->ring, &cqe);
        if (rc && !wait)
            return NULL;
        if (rc) /* EINTR and the like: the kernel still holds the memory, so wait on */
            continue;
        mote__piece *p = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&r->ring, cqe);
        if (!p) /* the answer to a cancellation */
            continue;
        r->n_in_ring--;
        p->in_ring = 0;
        p->got = result > 0 ? (size_t)result : 0;
        p->got_direct = p->direct ? p->got : 0;
        p->error = p->got == p->bytes                           ? 0
                   : result == -ECANCELED && p->read->cancelled ? ECANCELED
                                                                : -1;
        if (result == -EINVAL && p->direct)
            atomic_store(&p->read->file->direct_refused, 1);
        if (p->error) /* short or refused: the rest comes through the page cache */
            p->direct = 0;
        return p;
    }
    return NULL;
}

void mote__ring_cancel(mote__reads *r, mote__piece *p)
{
    mote__ring_send(r);
    if (r->ring_dead || r->n_unsent)
        return;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    if (!sqe)
        return; /* then it comes to its end by itself */
    io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)p, 0);
    io_uring_sqe_set_data(sqe, NULL);
    int n;
    do
        n = io_uring_submit(&r->ring);
    while (n == -EINTR);
    if (n < 0)
        r->ring_dead = 1;
}
