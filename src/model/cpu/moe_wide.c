/* Experts of a wide batch, one that has more rows than a tile: they come in ascending order, some
 * of them are computed together in the memory of a tile, and what they give is added to the rows at
 * once. Each row adds in the order of moe.c, and so gets the same bits. */
#include <assert.h>
#include <string.h>

#include "model/cpu/moe.h"

enum { COLUMNS = 256 }; /* of a task */

/* Some rows of an expert; their pairs lie at `at` in the buffers of pairs. */
struct piece {
    const mote__expert *weights;
    size_t first, n; /* pairs of m->row_of, or rows for the shared one */
    int shared;
    size_t at;
};

struct wide {
    struct moe *m;
    struct piece pieces[MOTE_WIDE_EXPERTS];
    size_t n_pieces, n_pairs;
};

static size_t row_of_pair(const struct wide *w, const struct piece *q, size_t i)
{
    return q->shared ? q->first + i : w->m->row_of[q->first + i];
}

static void activate_wide(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct wide *w = ctx;
    mote__cpu_pass *p = w->m->p;
    size_t k = 0;
    for (size_t pair = begin; pair < end; pair++) {
        while (pair >= w->pieces[k].at + w->pieces[k].n)
            k++;
        const struct piece *q = &w->pieces[k];
        mote__moe_activate(p, pair, q->shared ? 1 : w->m->weight_of[q->first + pair - q->at]);
    }
}

/* Columns [begin, end) x COLUMNS of y: pieces come in ascending order of experts. */
static void add_wide(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct wide *w = ctx;
    mote__cpu_pass *p = w->m->p;
    size_t d = p->net->config.hidden_size, from = begin * COLUMNS,
           to = end * COLUMNS < d ? end * COLUMNS : d;
    for (size_t k = 0; k < w->n_pieces; k++) {
        const struct piece *q = &w->pieces[k];
        for (size_t i = 0; i < q->n; i++) {
            float *out = p->pair_out + (q->at + i) * d, *y = p->y + row_of_pair(w, q, i) * d;
            mote__act(p->net, out + from, to - from);
            for (size_t j = from; j < to; j++)
                y[j] += out[j];
        }
    }
}

/* x of the piece's rows as `w1` or `w3` wants it; *rows: which rows of it, or NULL: the first. */
static const float *wide_input(struct wide *w, const struct piece *q, const mote__mat *m,
                               const uint32_t **rows)
{
    mote__cpu_pass *p = w->m->p;
    size_t d = p->net->config.hidden_size;
    *rows = q->shared ? NULL : w->m->row_of + q->first;
    const float *x = p->x + (q->shared ? q->first * d : 0);
    if (!p->net->published || m->kind < MOTE_W_FP8)
        return x;
    /* outputs are not there yet: their memory takes the gathered rows */
    float *gathered = p->pair_out + q->at * d;
    for (size_t i = 0; i < q->n; i++)
        memcpy(gathered + i * d, p->x + row_of_pair(w, q, i) * d, d * sizeof *gathered);
    *rows = NULL;
    return mote__linear_input(p->net, m, gathered, q->n, p->rounded + q->at * d);
}

static int flush(struct wide *w)
{
    mote__cpu_pass *p = w->m->p;
    size_t d = p->net->config.hidden_size, inter = p->net->config.moe_intermediate_size;
    if (!w->n_pieces)
        return 0;
    for (size_t k = 0; k < w->n_pieces; k++)
        for (int up = 0; up < 2; up++) {
            const struct piece *q = &w->pieces[k];
            mote__linear_job *job = &p->jobs[2 * k + (size_t)up];
            *job = (mote__linear_job){ .w = up ? &q->weights->w3 : &q->weights->w1,
                                       .ldx = d,
                                       .n_rows = q->n,
                                       .y = (up ? p->pair_up : p->pair_gate) + q->at * inter,
                                       .ldy = inter };
            job->x = wide_input(w, q, job->w, &job->rows);
        }
    int rc = mote__cpu_linear(p, p->jobs, 2 * w->n_pieces);
    if (rc)
        return rc;
    mote__threads_for(p->net->threads, w->n_pairs, 2, activate_wide, w);
    for (size_t k = 0; k < w->n_pieces; k++) {
        const struct piece *q = &w->pieces[k];
        p->jobs[k] = (mote__linear_job){
            .w = &q->weights->w2,
            .x = mote__linear_input(p->net, &q->weights->w2, p->pair_gate + q->at * inter, q->n,
                                    p->pair_up + q->at * inter),
            .ldx = inter,
            .n_rows = q->n,
            .y = p->pair_out + q->at * d,
            .ldy = d,
        };
    }
    if ((rc = mote__cpu_linear(p, p->jobs, w->n_pieces)))
        return rc;
    mote__threads_for(p->net->threads, (d + COLUMNS - 1) / COLUMNS, 1, add_wide, w);
    w->n_pieces = w->n_pairs = 0;
    return 0;
}

/* All rows of an expert. */
static int add_expert(struct wide *w, const mote__expert *x, size_t first, size_t n, int shared)
{
    size_t room = w->m->p->tile_room;
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < room - w->n_pairs ? n - done : room - w->n_pairs;
        w->pieces[w->n_pieces++] = (struct piece){ x, first + done, some, shared, w->n_pairs };
        w->n_pairs += some;
        int rc = w->n_pairs == room || w->n_pieces == MOTE_WIDE_EXPERTS ? flush(w) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

int mote__moe_wide(struct moe *m)
{
    mote__cpu_pass *p = m->p;
    mote__experts *e = p->net->experts;
    size_t d = p->net->config.hidden_size, left = m->n_wanted;
    struct wide w = { .m = m };
    memset(p->y, 0, m->n_rows * d * sizeof *p->y);
    int rc = left ? e->ops->want(e, m->layer, m->wanted, left, 1) : 0;
    while (!rc && left) {
        long n = e->ops->next(e, m->ready, left);
        if (n < 0) {
            rc = (int)n;
            break;
        }
        assert(n > 0 && (size_t)n <= left);
        for (long i = 0; i < n && !rc; i++) {
            size_t first = m->first_pair[m->ready[i].id];
            rc = add_expert(&w, m->ready[i].weights, first,
                            m->first_pair[m->ready[i].id + 1] - first, 0);
        }
        if (!rc)
            rc = flush(&w);
        e->ops->release(e, m->ready, (size_t)n);
        left -= (size_t)n;
    }
    if (rc && m->n_wanted)
        e->ops->drop(e);
    if (!rc)
        rc = add_expert(&w, &m->L->shared, 0, m->n_rows, 1);
    if (!rc)
        rc = flush(&w);
    mote__act(p->net, p->y, m->n_rows * d);
    return rc;
}
