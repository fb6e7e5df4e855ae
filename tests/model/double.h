/* A double of a backend: hands every call to the CPU's and checks it, and a KV memory that cannot
 * be touched outside its own functions and the backend's calls.
 *
 * Checked: the calls of a layer come in the order of model/layer.c's contract, all of one layer;
 * rows are the extents' live tokens and change by narrow alone; nobody reads the carry before sync.
 * A stray look at a block dies by SIGSEGV. */
#ifndef MOTE_TESTS_DOUBLE_H
#define MOTE_TESTS_DOUBLE_H

#include <pthread.h>
#include <sys/mman.h>

#include "engine/engine.h"
#include "model/cpu/pass.h"
#include "test.h"

/* ---- memory ---- */

static struct fenced {
    mote__kv_memory base;
    pthread_mutex_t mutex;
    struct fenced_slab {
        void *at;
        size_t bytes;
    } slabs[4096];
    size_t n_slabs, n_open, n_gets, n_puts;
} fenced;

static void protect(int how)
{
    for (size_t i = 0; i < fenced.n_slabs; i++)
        assert_int_equal(mprotect(fenced.slabs[i].at, fenced.slabs[i].bytes, how), 0);
}

static void fence_open(void)
{
    pthread_mutex_lock(&fenced.mutex);
    if (fenced.n_open++ == 0)
        protect(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&fenced.mutex);
}

static void fence_close(void)
{
    pthread_mutex_lock(&fenced.mutex);
    if (--fenced.n_open == 0)
        protect(PROT_NONE);
    pthread_mutex_unlock(&fenced.mutex);
}

static mote__kv_addr fenced_new(mote__kv_memory *m, size_t *bytes)
{
    *bytes = (*bytes + 4095) / 4096 * 4096;
    pthread_mutex_lock(&fenced.mutex);
    void *at = mmap(NULL, *bytes, fenced.n_open ? PROT_READ | PROT_WRITE : PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED && fenced.n_slabs < 4096);
    fenced.slabs[fenced.n_slabs++] = (struct fenced_slab){ at, *bytes };
    pthread_mutex_unlock(&fenced.mutex);
    return (mote__kv_addr){ (uintptr_t)at };
}

static void fenced_free(mote__kv_memory *m, mote__kv_addr slab, size_t bytes)
{
    pthread_mutex_lock(&fenced.mutex);
    size_t i = 0;
    while (i < fenced.n_slabs && fenced.slabs[i].at != (void *)slab.at)
        i++;
    assert_true(i < fenced.n_slabs && fenced.slabs[i].bytes == bytes);
    fenced.slabs[i] = fenced.slabs[--fenced.n_slabs];
    munmap((void *)slab.at, bytes);
    pthread_mutex_unlock(&fenced.mutex);
}

static void fenced_zero(mote__kv_memory *m, mote__kv_addr to, size_t n)
{
    fence_open();
    memset((void *)to.at, 0, n);
    fence_close();
}

static void fenced_copy(mote__kv_memory *m, mote__kv_addr to, mote__kv_addr from, size_t n)
{
    fence_open();
    memcpy((void *)to.at, (void *)from.at, n);
    fence_close();
}

static void fenced_get(mote__kv_memory *m, void *to, mote__kv_addr from, size_t n)
{
    fence_open();
    memcpy(to, (void *)from.at, n);
    fence_close();
    fenced.n_gets++;
}

static void fenced_put(mote__kv_memory *m, mote__kv_addr to, const void *from, size_t n)
{
    fence_open();
    memcpy((void *)to.at, from, n);
    fence_close();
    fenced.n_puts++;
}

static mote__kv_memory *fenced_memory(void)
{
    static const mote__kv_memory_ops ops = {
        .name = "fenced",
        .slab_new = fenced_new,
        .slab_free = fenced_free,
        .zero = fenced_zero,
        .copy = fenced_copy,
        .to_host = fenced_get,
        .from_host = fenced_put,
    };
    if (!fenced.base.ops)
        pthread_mutex_init(&fenced.mutex, NULL);
    fenced.base.ops = &ops;
    return &fenced.base;
}

/* ---- backend ---- */

enum double_call {
    CALL_BEGIN,
    CALL_EMBED,
    CALL_TAKE,
    CALL_ENGRAM,
    CALL_COLLAPSE,
    CALL_PUBLISH,
    CALL_WINDOW,
    CALL_NARROW,
    CALL_MIXES,
    CALL_QUERIES,
    CALL_SELECT,
    CALL_ATTEND,
    CALL_EXPAND,
    CALL_MOE,
    CALL_DENSE_PROJECT,
    CALL_DENSE_ATTEND,
    CALL_DENSE_ADD,
    CALL_STASH,
    CALL_UNSTASH,
    CALL_LOGITS,
    CALLS
};
static const char *const double_names[CALLS] = {
    "begin",         "embed",        "take",      "engram", "collapse", "publish", "window",
    "narrow",        "mixes",        "queries",   "select", "attend",   "expand",  "moe",
    "dense_project", "dense_attend", "dense_add", "stash",  "unstash",  "logits",
};
static size_t double_counts[CALLS];

struct double_pass {
    mote__backend_pass base;
    mote__backend_pass *inner;
    int begun, holds, dirty;
    size_t layer; /* that is being run; n_layers: none */
    int at, sub;  /* the last call of it; CALLS: none */
    int stashed;
    size_t n_rows;
    mote__tile tile; /* of attention */
};

static struct double_pass *double_of(mote__backend_pass *p) { return (struct double_pass *)p; }

static void check_rows(struct double_pass *p)
{
    const mote__batch *b = p->base.batch;
    size_t n = 0, first = 0;
    for (size_t i = 0; i < b->n_extents; i++) {
        const mote__extent *e = &b->extents[i];
        assert_true(e->skip <= e->n && e->first == first);
        for (size_t k = e->skip; k < e->n; k++, n++) {
            assert_int_equal(b->rows[n].extent, i);
            assert_int_equal(b->rows[n].token, first + k);
            assert_int_equal(b->rows[n].pos, e->pos + k);
            assert_int_equal(b->row_token[n], first + k);
        }
        first += e->n;
    }
    assert_int_equal(n, b->n_rows);
    assert_int_equal(first, b->n_tokens);
}

/* What may follow what within a layer: for each call of a part the ones that may come next. */
static int may_follow(const mote__layer_plan *plan, int last, int last_sub, int call, int sub)
{
    int selects = plan->role == MOTE_ROLE_FULL || plan->role == MOTE_ROLE_REINDEX;
    int dense = plan->role == MOTE_ROLE_DENSE;
    switch (last) {
    case CALLS: /* the layer begins */
        return call == (plan->engram >= 0 ? CALL_ENGRAM : CALL_COLLAPSE) &&
               sub == MOTE_SUB_ATTENTION;
    case CALL_ENGRAM: return call == CALL_COLLAPSE && sub == MOTE_SUB_ATTENTION;
    case CALL_COLLAPSE:
        if (dense)
            return call == (last_sub == MOTE_SUB_ATTENTION ? CALL_DENSE_PROJECT : CALL_MOE);
        if (last_sub == MOTE_SUB_EXPERTS)
            return call == CALL_MIXES && sub == MOTE_SUB_EXPERTS;
        /* the decoder's source makes its KV before its layer runs */
        if (plan->role == MOTE_ROLE_FULL && plan->decoder)
            return call == CALL_PUBLISH || call == CALL_WINDOW;
        return call == (plan->role == MOTE_ROLE_FULL ? CALL_PUBLISH : CALL_WINDOW);
    case CALL_PUBLISH: return call == CALL_WINDOW;
    case CALL_WINDOW:
        return call == CALL_NARROW || (call == CALL_MIXES && sub == MOTE_SUB_ATTENTION);
    case CALL_NARROW: return call == CALL_MIXES && sub == MOTE_SUB_ATTENTION;
    case CALL_MIXES: return call == (last_sub == MOTE_SUB_ATTENTION ? CALL_QUERIES : CALL_MOE);
    case CALL_QUERIES: return call == (selects ? CALL_SELECT : CALL_ATTEND);
    case CALL_SELECT: return call == CALL_ATTEND;
    case CALL_ATTEND: /* the next tile, or all were there */
        return call == CALL_QUERIES || (call == CALL_EXPAND && sub == MOTE_SUB_ATTENTION);
    case CALL_EXPAND:
    case CALL_DENSE_ADD:
        return last_sub == MOTE_SUB_ATTENTION && call == CALL_COLLAPSE && sub == MOTE_SUB_EXPERTS;
    case CALL_MOE: return call == (dense ? CALL_DENSE_ADD : CALL_EXPAND) && sub == MOTE_SUB_EXPERTS;
    case CALL_DENSE_PROJECT: return call == CALL_DENSE_ATTEND;
    case CALL_DENSE_ATTEND: return call == CALL_DENSE_ADD && sub == MOTE_SUB_ATTENTION;
    default: return 0;
    }
}

/* Before each call of a part. */
static void enter(struct double_pass *p, int call, size_t layer, int sub)
{
    const mote__net *net = p->base.net;
    double_counts[call]++;
    assert_true(p->begun && p->holds && layer < net->config.n_layers);
    assert_ptr_equal(net->plan[layer].backend, p->base.ops);
    check_rows(p);
    int last = p->at, last_sub = p->sub;
    if (last != CALLS)
        assert_int_equal(layer, p->layer);
    if (!may_follow(&net->plan[layer], last, last_sub, call, sub))
        fail_msg("layer %zu: %s %d follows %s %d", layer, double_names[call], sub,
                 last == CALLS ? "nothing" : double_names[last], last_sub);
    if (last == CALL_ATTEND && call != CALL_QUERIES)
        assert_int_equal(p->tile.first + p->tile.n, p->n_rows);
    if (call == CALL_NARROW)
        assert_true(p->base.batch->n_rows < p->n_rows);
    else if (last != CALLS)
        assert_int_equal(p->base.batch->n_rows, p->n_rows);
    p->layer = layer;
    p->at = call;
    p->sub = sub;
    if (((call == CALL_EXPAND || call == CALL_DENSE_ADD) && sub == MOTE_SUB_EXPERTS) ||
        (call == CALL_PUBLISH && net->plan[layer].decoder))
        p->at = CALLS;
    p->n_rows = p->base.batch->n_rows;
    p->dirty = 1;
    fence_open();
}

static int leave(int rc)
{
    fence_close();
    return rc;
}

#define CPU mote__cpu_backend()
#define INNER(p) double_of(p)->inner

static size_t double_scratch(const mote__net *net, size_t n) { return CPU->scratch_bytes(net, n); }
static const mote__backend_ops *double_backend(void);

static mote__backend_pass *double_create(mote__net *net, const mote__batch *batch)
{
    struct double_pass *p = calloc(1, sizeof *p);
    *p = (struct double_pass){ .base = { double_backend(), net, batch },
                               .inner = CPU->pass_create(net, batch) };
    return &p->base;
}
static void double_destroy(mote__backend_pass *p)
{
    CPU->pass_destroy(INNER(p));
    free(p);
}
static void double_shrink(mote__backend_pass *p) { CPU->shrink(INNER(p)); }

static int double_begin(mote__backend_pass *p)
{
    struct double_pass *d = double_of(p);
    double_counts[CALL_BEGIN]++;
    check_rows(d);
    d->begun = 1;
    d->holds = d->stashed = 0;
    d->at = CALLS;
    d->n_rows = p->batch->n_rows;
    return CPU->begin(d->inner);
}
static int double_carry(mote__backend_pass *p, mote__carry *view)
{
    assert_true(double_of(p)->holds && !double_of(p)->dirty);
    return CPU->carry(INNER(p), view);
}
static int double_take(mote__backend_pass *p, const mote__carry *from)
{
    double_counts[CALL_TAKE]++;
    assert_true(double_of(p)->begun && double_of(p)->at == CALLS);
    assert_int_equal(from->n_tokens, p->batch->n_tokens);
    double_of(p)->holds = 1;
    return CPU->take(INNER(p), from);
}
static int double_stash(mote__backend_pass *p)
{
    double_counts[CALL_STASH]++;
    assert_true(double_of(p)->at == CALLS && !double_of(p)->stashed);
    double_of(p)->stashed = 1;
    return CPU->stash(INNER(p));
}
static int double_unstash(mote__backend_pass *p)
{
    double_counts[CALL_UNSTASH]++;
    assert_true(double_of(p)->at == CALLS && double_of(p)->stashed);
    double_of(p)->stashed = 0;
    return CPU->unstash(INNER(p));
}
static int double_embed(mote__backend_pass *p)
{
    double_counts[CALL_EMBED]++;
    assert_true(double_of(p)->begun && p->batch->n_rows == p->batch->n_tokens);
    double_of(p)->holds = double_of(p)->dirty = 1;
    return CPU->embed(INNER(p));
}
static int double_narrow(mote__backend_pass *p)
{
    enter(double_of(p), CALL_NARROW, double_of(p)->layer, 0);
    return leave(CPU->narrow(INNER(p)));
}
#define PART(part, CALL)                                          \
    static int double_##part(mote__backend_pass *p, size_t layer) \
    {                                                             \
        enter(double_of(p), CALL, layer, 0);                      \
        return leave(CPU->part(INNER(p), layer));                 \
    }
/* Tiles come in order, without gaps, and cover all rows before the layer goes on. */
static void check_tile(struct double_pass *d, int call, mote__tile tile)
{
    size_t n = d->base.batch->n_rows;
    if (call == CALL_QUERIES) {
        assert_int_equal(tile.first, d->at == CALL_ATTEND ? d->tile.first + d->tile.n : 0);
        assert_true(tile.first + tile.n <= n && tile.n <= d->base.net->tile_rows);
        assert_true(tile.n > 0 || n == 0);
        d->tile = tile;
    }
    assert_true(tile.first == d->tile.first && tile.n == d->tile.n);
}
#define PART_OF_TILE(part, CALL)                                                   \
    static int double_##part(mote__backend_pass *p, size_t layer, mote__tile tile) \
    {                                                                              \
        check_tile(double_of(p), CALL, tile);                                      \
        enter(double_of(p), CALL, layer, 0);                                       \
        return leave(CPU->part(INNER(p), layer, tile));                            \
    }
#define PART_OF_SUB(part, CALL)                                                       \
    static int double_##part(mote__backend_pass *p, size_t layer, mote__sublayer sub) \
    {                                                                                 \
        enter(double_of(p), CALL, layer, (int)sub);                                   \
        return leave(CPU->part(INNER(p), layer, sub));                                \
    }
PART(engram, CALL_ENGRAM)
PART(publish, CALL_PUBLISH)
PART(window, CALL_WINDOW)
PART_OF_TILE(queries, CALL_QUERIES)
PART_OF_TILE(select, CALL_SELECT)
PART_OF_TILE(attend, CALL_ATTEND)
PART(moe, CALL_MOE)
PART(dense_project, CALL_DENSE_PROJECT)
PART(dense_attend, CALL_DENSE_ATTEND)
PART_OF_SUB(collapse, CALL_COLLAPSE)
PART_OF_SUB(mixes, CALL_MIXES)
PART_OF_SUB(expand, CALL_EXPAND)
PART_OF_SUB(dense_add, CALL_DENSE_ADD)

static int double_logits(mote__backend_pass *p, const uint32_t *rows, size_t n, float *logits)
{
    struct double_pass *d = double_of(p);
    double_counts[CALL_LOGITS]++;
    assert_true(d->holds && d->at == CALLS && n > 0);
    check_rows(d);
    for (size_t i = 0; i < n; i++)
        assert_true(rows[i] < p->batch->n_rows && (i == 0 || rows[i] > rows[i - 1]));
    d->dirty = 1;
    return CPU->logits(d->inner, rows, n, logits);
}
static int double_sync(mote__backend_pass *p)
{
    double_of(p)->dirty = 0;
    return CPU->sync(INNER(p));
}

static const mote__backend_ops *double_backend(void)
{
    static const mote__backend_ops ops = {
        .name = "double",
        .scratch_bytes = double_scratch,
        .pass_create = double_create,
        .pass_destroy = double_destroy,
        .shrink = double_shrink,
        .begin = double_begin,
        .carry = double_carry,
        .take = double_take,
        .stash = double_stash,
        .unstash = double_unstash,
        .narrow = double_narrow,
        .embed = double_embed,
        .engram = double_engram,
        .collapse = double_collapse,
        .mixes = double_mixes,
        .expand = double_expand,
        .publish = double_publish,
        .window = double_window,
        .queries = double_queries,
        .select = double_select,
        .attend = double_attend,
        .moe = double_moe,
        .dense_project = double_dense_project,
        .dense_attend = double_dense_attend,
        .dense_add = double_dense_add,
        .logits = double_logits,
        .sync = double_sync,
    };
    return &ops;
}

/* Before the model's first session. */
static void use_double(mote_model *m)
{
    mote__net_use(&m->net, double_backend());
    m->net.kv_memory = fenced_memory();
    m->net.tile_rows = 48; /* several tiles a pass */
}

#endif
