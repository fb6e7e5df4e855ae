/* The driver of linears. All jobs become one list of tiles (a range of outputs times a range of
 * rows). Results do not depend on how a job is cut, because each output of a row is one sum in a
 * fixed order.
 *
 * Cutting: with few rows a tile is 16 outputs (FP8: the 32 that share a row of scales), enough
 * bytes of weights to stream. With many rows it is 64 outputs times 48 rows: the rows (48 x 5120
 * floats: 1 MB) stay in L2, and weights are decoded once per 48 rows.
 *
 * Work stealing: each thread has a share of neighbouring tiles and takes them from the front, so
 * that it prefetches what it reads next. A thread whose share is empty takes tiles from the ends of
 * the other shares. */
#include "kern/linear.h"

#include <stdatomic.h>
#include <string.h>

#include "kern/lanes.h"

enum {
    STREAM_ROWS = 48,
    FEW_OUTPUTS = 16,
    FEW_OUTPUTS_FP8 = 32,
    MANY_OUTPUTS = 64,
    ROW_CHUNK = 48,
    ARRANGE_FLOATS = 16384,
    TILE_WORK = 1 << 16
};

/* The remaining tiles of a share: bits 63..32 the first, bits 31..0 one past the last. Alone on its
 * cache line. */
typedef struct share {
    _Alignas(64) _Atomic uint64_t tiles;
} share;

/* A job, the place of its arranged inputs, and its first row and tile in the lists of all jobs. */
typedef struct plan {
    const mote__linear_job *job;
    /* offset of its first arranged row, and from one row to the next, in floats */
    size_t xp, ldxp;
    /* in the list of rows to arrange; a job that shares another's inputs adds none */
    size_t first_row;
    size_t first_tile;
    /* tiles per range of rows; outputs per tile */
    size_t n_o_tiles, outputs;
} plan;

typedef struct step {
    const mote__linear_ctx *ctx;
    const plan *plans;
    size_t n_plans;
    float *arranged;
    share *shares;          /* one per thread */
    size_t n_shares, grain; /* least number of tiles taken at once */
} step;

int mote__linear_init(mote__linear_ctx *ctx, const mote__kern_ops *kern, mote__threads *pool,
                      mote__meter *meter)
{
    *ctx = (mote__linear_ctx){ .kern = kern, .pool = pool, .meter = meter };
    mote__buf_init(&ctx->arranged, meter, MOTE_MEM_SCRATCH);
    ctx->scratch = mote__alloc(meter, MOTE_MEM_SCRATCH,
                               (size_t)mote__threads_count(pool) * MOTE_LINEAR_SCRATCH *
                                   sizeof(float));
    return ctx->scratch ? 0 : MOTE_ENOMEM;
}

void mote__linear_deinit(mote__linear_ctx *ctx)
{
    mote__buf_deinit(&ctx->arranged);
    mote__free(ctx->meter, MOTE_MEM_SCRATCH, ctx->scratch,
               (size_t)mote__threads_count(ctx->pool) * MOTE_LINEAR_SCRATCH * sizeof(float));
    ctx->scratch = NULL;
}

/* The plan that row or tile number `at` belongs to: the last one whose first row or tile is <= at.
 * A plan without rows or tiles has the same first number as its successor and is never found. */
static const plan *find(const step *s, size_t at, size_t field)
{
    size_t lo = 0, hi = s->n_plans;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2, first;
        memcpy(&first, (const char *)&s->plans[mid] + field, sizeof first);
        if (first <= at)
            lo = mid;
        else
            hi = mid;
    }
    return &s->plans[lo];
}

static void arrange_rows(void *arg, size_t begin, size_t end, int thread)
{
    const step *s = arg;
    for (size_t at = begin; at < end; at++) {
        const plan *p = find(s, at, offsetof(plan, first_row));
        const mote__linear_job *job = p->job;
        size_t r = at - p->first_row, from = job->rows ? job->rows[r] : r;
        s->ctx->kern->arrange(job->w->kind, s->arranged + p->xp + r * p->ldxp,
                              job->x + from * job->ldx, job->w->n_in);
    }
}

/* Run tiles [begin, end). Consecutive tiles of one job and one chunk of rows are passed to the
 * kernel as one call, because it prefetches ahead within a call. */
static void run_tiles(void *arg, size_t begin, size_t end, int thread)
{
    const step *s = arg;
    float *scratch = s->ctx->scratch + (size_t)thread * MOTE_LINEAR_SCRATCH;
    for (size_t at = begin; at < end;) {
        const plan *p = find(s, at, offsetof(plan, first_tile));
        const mote__linear_job *job = p->job;
        size_t tile = at - p->first_tile, first = tile % p->n_o_tiles,
               r0 = tile / p->n_o_tiles * ROW_CHUNK;
        size_t n = end - at < p->n_o_tiles - first ? end - at : p->n_o_tiles - first,
               o0 = first * p->outputs;
        size_t o1 = (first + n) * p->outputs < job->w->n_out ? (first + n) * p->outputs
                                                             : job->w->n_out;
        size_t n_rows = job->n_rows - r0 < ROW_CHUNK ? job->n_rows - r0 : ROW_CHUNK;
        mote__kern_linear(s->ctx->kern, job->w, o0, o1, s->arranged + p->xp + r0 * p->ldxp, n_rows,
                          p->ldxp, job->y + r0 * job->ldy, job->ldy, scratch);
        at += n;
    }
}

/* Take tiles from a share: from the front a quarter of the rest but at least `grain`, from the end
 * `grain`; fewer if fewer are left. Returns 0 if it is empty. */
static int take(share *from, size_t grain, int front, size_t *begin, size_t *end)
{
    uint64_t tiles = atomic_load_explicit(&from->tiles, memory_order_relaxed), rest;
    do {
        size_t first = (size_t)(tiles >> 32), behind = (size_t)(tiles & 0xffffffffu);
        if (first >= behind)
            return 0;
        size_t left = behind - first, n = front && left / 4 > grain ? left / 4
                                          : left < grain            ? left
                                                                    : grain;
        *begin = front ? first : behind - n;
        *end = *begin + n;
        rest = front ? (uint64_t)*end << 32 | behind : (uint64_t)first << 32 | *begin;
    } while (!atomic_compare_exchange_weak_explicit(&from->tiles, &tiles, rest,
                                                    memory_order_relaxed, memory_order_relaxed));
    return 1;
}

static void run_shares(void *arg, size_t begin, size_t end, int thread)
{
    const step *s = arg;
    size_t from, to;
    for (size_t own = begin; own < end; own++)
        for (size_t i = 0; i < s->n_shares; i++)
            while (take(&s->shares[(own + i) % s->n_shares], s->grain, i == 0, &from, &to))
                run_tiles(arg, from, to, thread);
}

/* Whether two jobs read the same rows in the same arrangement, as gate and up of an expert do, or
 * the projections of one hidden state. */
static int same_inputs(const mote__linear_job *a, const mote__linear_job *b)
{
    return a->x == b->x && a->ldx == b->ldx && a->n_rows == b->n_rows && a->rows == b->rows &&
           a->w->n_in == b->w->n_in && a->w->kind == b->w->kind;
}

int mote__linear_run(mote__linear_ctx *ctx, const mote__linear_job *jobs, size_t n_jobs)
{
    enum { LOOK_BACK = 8 };
    const size_t n_shares = (size_t)mote__threads_count(ctx->pool);
    size_t plan_bytes = (mote__mul(n_jobs, sizeof(plan)) + 63) / 64 * 64 + n_shares * sizeof(share),
           floats = 0, rows = 0, tiles = 0;
    if (n_jobs > (size_t)-1 / 2 / sizeof(plan) || mote__buf_reserve(&ctx->arranged, plan_bytes))
        return MOTE_ENOMEM;
    /* keep the plans when the buffer grows for the rows */
    ctx->arranged.size = plan_bytes;
    plan *plans = ctx->arranged.data;
    double work = 0;
    for (size_t i = 0; i < n_jobs; i++) {
        const mote__linear_job *job = &jobs[i];
        plan *p = &plans[i];
        size_t source = i;
        for (size_t j = i > LOOK_BACK ? i - LOOK_BACK : 0; j < i && source == i; j++)
            if (same_inputs(&jobs[j], job))
                source = j;
        /* an odd number of cache lines: rows a power of two apart would fall into the same cache
         * sets */
        size_t ldxp = mote__arranged_size(job->w->kind, job->w->n_in);
        ldxp += ldxp / 16 % 2 ? 0 : 16;
        *p = (plan){ .job = job, .ldxp = ldxp, .first_row = rows, .first_tile = tiles };
        p->outputs = job->n_rows >= STREAM_ROWS   ? MANY_OUTPUTS
                     : job->w->kind == MOTE_W_FP8 ? FEW_OUTPUTS_FP8
                                                  : FEW_OUTPUTS;
        p->n_o_tiles = (job->w->n_out + p->outputs - 1) / p->outputs;
        tiles += p->n_o_tiles * ((job->n_rows + ROW_CHUNK - 1) / ROW_CHUNK);
        work += (double)job->w->n_out * (double)job->w->n_in * (double)job->n_rows;
        p->xp = source == i ? floats : plans[source].xp;
        if (source == i) {
            floats = mote__add(floats, mote__mul(ldxp, job->n_rows));
            rows += job->n_rows;
        }
    }
    if (tiles == 0)
        return 0;
    if (tiles > UINT32_MAX ||
        mote__buf_reserve(&ctx->arranged, mote__add(plan_bytes, mote__mul(floats, sizeof(float)))))
        return MOTE_ENOMEM;
    /* the contents need not be kept when it grows again */
    ctx->arranged.size = 0;
    char *memory = ctx->arranged.data;
    step s = { ctx,
               (plan *)(void *)memory,
               n_jobs,
               (float *)(void *)(memory + plan_bytes),
               (share *)(void *)(memory + plan_bytes - n_shares * sizeof(share)),
               n_shares,
               (size_t)(TILE_WORK / (work / (double)tiles + 1)) + 1 };
    for (size_t i = 0; i < n_shares; i++)
        atomic_init(&s.shares[i].tiles,
                    (uint64_t)(tiles * i / n_shares) << 32 | tiles * (i + 1) / n_shares);
    mote__threads_for(ctx->pool, rows, ARRANGE_FLOATS / (floats / rows + 1) + 1, arrange_rows, &s);
    mote__threads_for(ctx->pool, tiles > s.grain ? n_shares : 1, 1, run_shares, &s);
    return 0;
}
