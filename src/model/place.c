#include "model/place.h"
#include "base/le.h"

#include "num/formats.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE = 1 << 20, ALIGN = 64, PIECES_A_TURN = 128 };

/* One range of bytes that belongs together, and the pointer that is to follow it. */
typedef struct range {
    const uint8_t **where;
    size_t bytes;
} range;
/* at NULL: only counting */
typedef struct list {
    const mote__weights *w;
    range *at;
    size_t n;
    uint64_t bytes;
} list;

static void add(list *l, const uint8_t **where, size_t bytes)
{
    if (l->at)
        l->at[l->n] = (range){ where, bytes };
    l->n++;
    l->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* In memory of ours already (converted when it was loaded), perhaps shared: not a part of the
 * mapped files. */
static int is_converted(const mote__weights *w, const uint8_t *p)
{
    for (size_t i = 0; i < w->n_owned; i++)
        if (p == w->owned[i].ptr)
            return 1;
    return 0;
}

static size_t code_bytes(const mote__mat *m)
{
    static const size_t bits[MOTE_W_KINDS] = { 32, 16, 8, 4, 4 };
    return m->n_out * m->n_in * bits[m->kind] / 8;
}

static size_t scale_bytes(const mote__mat *m)
{
    size_t rows = m->kind == MOTE_W_FP8 ? (m->n_out + 31) / 32 : m->n_out;
    return m->scale ? rows * m->scale_stride : 0;
}

size_t mote__expert_bytes(const mote__expert *x)
{
    return code_bytes(&x->w1) + code_bytes(&x->w2) + code_bytes(&x->w3) + scale_bytes(&x->w1) +
           scale_bytes(&x->w2) + scale_bytes(&x->w3);
}

static void add_matrix(void *ctx, mote__mat *m)
{
    list *l = ctx;
    if (is_converted(l->w, m->data))
        return;
    add(l, &m->data, code_bytes(m));
    if (m->scale)
        add(l, &m->scale, scale_bytes(m));
}

/* every matrix that is used in linears and exists */
static void each_matrix(mote__weights *w, void (*what)(void *ctx, mote__mat *m), void *ctx)
{
    what(ctx, &w->head);
    for (size_t i = 0; i < w->n_layers; i++) {
        mote__layer_weights *L = &w->layers[i];
        mote__mat *const own[] = { &L->wq_a,  &L->wq_b,      &L->wkv,        &L->wo_a,
                                   &L->wo_b,  &L->c_wkv,     &L->c_gate,     &L->i_wk,
                                   &L->i_wq,  &L->i_w,       &L->hc_attn.fn, &L->hc_ffn.fn,
                                   &L->gate,  &L->shared.w1, &L->shared.w2,  &L->shared.w3,
                                   &L->e_wkv, &L->wq,        &L->wk,         &L->wv,
                                   &L->wo };
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (own[k]->data)
                what(ctx, own[k]);
        for (size_t e = 0; e < w->n_experts; e++) {
            what(ctx, &L->experts[e].w1);
            what(ctx, &L->experts[e].w2);
            what(ctx, &L->experts[e].w3);
        }
    }
}

static void with_bf16_inputs(void *ctx, mote__mat *m)
{
    (void)ctx;
    if (m->kind == MOTE_W_MXFP4)
        m->kind = MOTE_W_MXFP4_BF16;
}

static int round_matrix(mote__weights *w, mote__mat *m)
{
    size_t n = m->n_out * m->n_in;
    uint8_t *copy = mote__weights_own(w, n * 2);
    if (!copy)
        return MOTE_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = mote__bf16_encode(mote__bits_f32(mote__le32(m->data + 4 * i)));
        copy[2 * i] = (uint8_t)h;
        copy[2 * i + 1] = (uint8_t)(h >> 8);
    }
    m->data = copy;
    m->kind = MOTE_W_BF16;
    return 0;
}

int mote__weights_publish_math(mote__weights *w)
{
    int rc = 0;
    each_matrix(w, with_bf16_inputs, NULL);
    for (size_t i = 0; i < w->n_layers && !rc; i++)
        if (w->layers[i].wo_a.data && w->layers[i].wo_a.kind == MOTE_W_F32)
            rc = round_matrix(w, &w->layers[i].wo_a);
    return rc;
}

mote_weights mote__place_choose(mote_weights mode, uint64_t bytes, uint64_t available)
{
    if (mode != MOTE_WEIGHTS_AUTO)
        return mode;
    return bytes <= available / 2 && bytes <= MOTE_AUTO_COPY_MOST ? MOTE_WEIGHTS_COPY
                                                                  : MOTE_WEIGHTS_MAP;
}

struct copy {
    const range *ranges;
    const size_t *first;
    size_t n, from;
    const uint8_t *const *source;
};

/* Pieces of all ranges, numbered through: first[i] is the first piece of range i. */
static void copy_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    const struct copy *c = ctx;
    for (size_t piece = c->from + begin; piece < c->from + end; piece++) {
        size_t lo = 0, hi = c->n;
        while (hi - lo > 1) {
            size_t mid = lo + (hi - lo) / 2;
            *(c->first[mid] <= piece ? &lo : &hi) = mid;
        }
        size_t at = (piece - c->first[lo]) * PIECE, n = c->ranges[lo].bytes - at;
        memcpy((uint8_t *)(uintptr_t)*c->ranges[lo].where + at, c->source[lo] + at,
               n < PIECE ? n : PIECE);
    }
}

/* The mapped pages behind a copy are not needed any more: out of the resident set, still in the
 * page cache. */
static void drop(const uint8_t *p, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
              from = ((uintptr_t)p + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)p + bytes) / page * page;
    if (end > from)
        madvise((void *)from, end - from, MADV_DONTNEED);
}

int mote__weights_place(mote__weights *w, mote_weights mode, mote__pool *pool,
                        int (*progress)(void *, const char *, double), void *progress_ctx,
                        mote_err *err)
{
    list l = { .w = w };
    each_matrix(w, add_matrix, &l);
    if (mote__place_choose(mode, l.bytes, mote__memory_available()) != MOTE_WEIGHTS_COPY)
        return 0;
    const int must = mode == MOTE_WEIGHTS_COPY;
    size_t memory_bytes = (size_t)l.bytes, n = l.n,
           table = n * (sizeof(range) + sizeof(size_t) + sizeof(uint8_t *));
    void *memory = mote__map_large_pages(w->meter, MOTE_MEM_WEIGHTS, &memory_bytes);
    list all = { .w = w, .at = mote__alloc(w->meter, MOTE_MEM_OTHER, table) };
    int rc = 0;
    if (!memory || !all.at) {
        if (must)
            rc = mote__fail(err, MOTE_ENOMEM,
                            "out of memory for a copy of the weights (%llu bytes)",
                            (unsigned long long)l.bytes);
        if (memory)
            mote__unmap_pages(w->meter, MOTE_MEM_WEIGHTS, memory, memory_bytes);
        mote__free(w->meter, MOTE_MEM_OTHER, all.at, table);
        return rc;
    }
    each_matrix(w, add_matrix, &all);
    size_t *first = (size_t *)(void *)(all.at + n), pieces = 0;
    const uint8_t **source = (const uint8_t **)(void *)(first + n);
    uint8_t *at = memory;
    for (size_t i = 0; i < n; i++) {
        first[i] = pieces;
        source[i] = *all.at[i].where;
        *all.at[i].where = at;
        at += (all.at[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
        pieces += (all.at[i].bytes + PIECE - 1) / PIECE;
    }
    struct copy c = { .ranges = all.at, .first = first, .n = n, .source = source };
    for (; c.from < pieces && !rc; c.from += PIECES_A_TURN) {
        if (progress && progress(progress_ctx, "copying weights", (double)c.from / (double)pieces))
            rc = mote__fail(err, MOTE_ECANCELED, "canceled while copying weights");
        else
            mote__pool_for(pool, pieces - c.from < PIECES_A_TURN ? pieces - c.from : PIECES_A_TURN,
                           1, copy_pieces, &c);
    }
    uint64_t copied = 0;
    for (size_t i = 0; i < n; i++) {
        copied += all.at[i].bytes;
        if (rc)
            *all.at[i].where = source[i];
        else
            drop(source[i], all.at[i].bytes);
    }
    mote__free(w->meter, MOTE_MEM_OTHER, all.at, table);
    if (rc) {
        mote__unmap_pages(w->meter, MOTE_MEM_WEIGHTS, memory, memory_bytes);
        return rc;
    }
    /* the mapped bytes that nobody reads any more */
    mote__meter_sub(w->meter, MOTE_MEM_WEIGHTS, (size_t)copied);
    w->copy = memory;
    w->copy_bytes = memory_bytes;
    w->copied_bytes = copied;
    return 0;
}
