#include "model/place.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/le.h"
#include "model/catalog.h"
#include "num/formats.h"

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

static void add_matrix(void *ctx, mote__tensor_id id, mote__mat *m)
{
    list *l = ctx;
    if (m->kind <= MOTE_W_BF16 && is_converted(l->w, m->data))
        return;
    add(l, &m->data, mote__mat_code_bytes(m));
    if (m->scale)
        add(l, &m->scale, mote__mat_scale_bytes(m, mote__catalog(id)->form));
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

int mote__weights_round_outputs(mote__weights *w)
{
    int rc = 0;
    for (size_t i = 0; i < w->n_layers && !rc; i++)
        if (w->layers[i].wo_a.data && w->layers[i].wo_a.kind == MOTE_W_F32)
            rc = round_matrix(w, &w->layers[i].wo_a);
    return rc;
}

/* ---- what is copied ---- */

static int is_table(int group) { return group == MOTE_GROUP_EMBED || group == MOTE_GROUP_ENGRAM; }

void mote__place_choose(mote_weights placing[MOTE_WEIGHT_GROUPS],
                        const uint64_t bytes[MOTE_WEIGHT_GROUPS], uint64_t available)
{
    uint64_t all = 0;
    int tables_asked = 0; /* for a place that is no stream: the other table then has none either */
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++) {
        if (placing[g] == MOTE_WEIGHTS_COPY)
            all = mote__add(all, bytes[g]);
        tables_asked |= is_table(g) && bytes[g] && placing[g] != MOTE_WEIGHTS_AUTO &&
                        placing[g] != MOTE_WEIGHTS_STREAM;
    }
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++) {
        if (placing[g] != MOTE_WEIGHTS_AUTO)
            continue;
        uint64_t with = mote__add(all, bytes[g]);
        int fits = with <= available / 2 && with <= MOTE_AUTO_COPY_MOST,
            streams = placing[MOTE_GROUP_EXPERTS] == MOTE_WEIGHTS_STREAM && !tables_asked;
        if (is_table(g))
            placing[g] = streams ? MOTE_WEIGHTS_STREAM : MOTE_WEIGHTS_MAP;
        else if (fits)
            placing[g] = MOTE_WEIGHTS_COPY;
        else
            placing[g] = g == MOTE_GROUP_EXPERTS && bytes[g] ? MOTE_WEIGHTS_STREAM
                                                             : MOTE_WEIGHTS_MAP;
        all = placing[g] == MOTE_WEIGHTS_COPY ? with : all;
    }
}

void mote__place_bytes(mote__weights *w, uint64_t bytes[MOTE_WEIGHT_GROUPS])
{
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++) {
        list l = { .w = w };
        mote__weights_each(w, 1u << g, add_matrix, &l);
        bytes[g] = l.bytes;
    }
}

static unsigned copied_groups(const mote_weights placing[MOTE_WEIGHT_GROUPS])
{
    unsigned groups = 0;
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++)
        groups |= (unsigned)(placing[g] == MOTE_WEIGHTS_COPY) << g;
    return groups;
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

/* Copies the groups; MOTE_ENOMEM without a sentence. */
static int copy_groups(mote__weights *w, unsigned groups, mote__threads *pool,
                       mote_progress progress, void *progress_ctx, mote_err *err)
{
    list l = { .w = w };
    mote__weights_each(w, groups, add_matrix, &l);
    size_t memory_bytes = (size_t)l.bytes, n = l.n,
           table = n * (sizeof(range) + sizeof(size_t) + sizeof(uint8_t *));
    if (!n)
        return 0;
    void *memory = mote__map_large_pages(w->meter, MOTE_MEM_WEIGHTS, &memory_bytes);
    list all = { .w = w, .at = mote__alloc(w->meter, MOTE_MEM_OTHER, table) };
    int rc = 0;
    if (!memory || !all.at) {
        if (memory)
            mote__unmap_pages(w->meter, MOTE_MEM_WEIGHTS, memory, memory_bytes);
        mote__free(w->meter, MOTE_MEM_OTHER, all.at, table);
        return MOTE_ENOMEM;
    }
    mote__weights_each(w, groups, add_matrix, &all);
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
            mote__threads_for(pool,
                              pieces - c.from < PIECES_A_TURN ? pieces - c.from : PIECES_A_TURN, 1,
                              copy_pieces, &c);
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

int mote__weights_place(mote__weights *w, const mote_weights placing[MOTE_WEIGHT_GROUPS],
                        mote__threads *pool, mote_progress progress, void *progress_ctx,
                        mote_err *err)
{
    uint64_t bytes[MOTE_WEIGHT_GROUPS];
    mote_weights chosen[MOTE_WEIGHT_GROUPS];
    memcpy(chosen, placing, sizeof chosen);
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++)
        if (chosen[g] == MOTE_WEIGHTS_STREAM &&
            (!w->n_experts || !(is_table(g) || g == MOTE_GROUP_EXPERTS)))
            chosen[g] = MOTE_WEIGHTS_AUTO; /* `weights` is of all groups */
    mote__place_bytes(w, bytes);
    mote__place_choose(chosen, bytes, mote__memory_available());
    unsigned groups = copied_groups(chosen), asked = copied_groups(placing);
    int rc = copy_groups(w, groups, pool, progress, progress_ctx, err);
    if (rc == MOTE_ENOMEM && groups != asked) {
        groups = asked;
        rc = copy_groups(w, groups, pool, progress, progress_ctx, err);
    }
    if (rc == MOTE_ENOMEM) {
        char names[100] = "";
        uint64_t all = 0;
        for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++)
            if (asked >> g & 1 && bytes[g]) {
                size_t n = strlen(names);
                snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "",
                         mote_weight_group_name((mote_weight_group)g));
                all += bytes[g];
            }
        return mote__fail(err, rc, "out of memory for a copy of the weights (%s: %llu bytes)",
                          names, (unsigned long long)all);
    }
    for (int g = 0; g < MOTE_WEIGHT_GROUPS && !rc; g++)
        w->placed[g] = groups >> g & 1                    ? MOTE_WEIGHTS_COPY
                       : chosen[g] == MOTE_WEIGHTS_STREAM ? MOTE_WEIGHTS_STREAM
                                                          : MOTE_WEIGHTS_MAP;
    for (int g = 0; g < MOTE_WEIGHT_GROUPS && !rc; g++)
        if (w->placed[g] == MOTE_WEIGHTS_STREAM) /* nobody looks at their mapping */
            w->streamed_bytes += w->group_bytes[g];
    mote__meter_sub(w->meter, MOTE_MEM_WEIGHTS, (size_t)w->streamed_bytes);
    return rc;
}
