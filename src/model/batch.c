#include "model/batch.h"

void mote__batch_init(mote__batch *b, mote__meter *meter) { *b = (mote__batch){ .meter = meter }; }

static size_t memory_bytes(size_t n_tokens)
{
    return mote__mul(n_tokens, sizeof(mote__row) + sizeof(uint32_t));
}

void mote__batch_shrink(mote__batch *b)
{
    mote__free(b->meter, MOTE_MEM_SCRATCH, b->memory, memory_bytes(b->capacity));
    b->memory = NULL;
    b->rows = NULL;
    b->row_token = NULL;
    b->capacity = b->n_rows = 0;
}

static int reserve(mote__batch *b, size_t n)
{
    if (n <= b->capacity)
        return 0;
    /* decode steps of a few sessions never allocate */
    n = n < 16 ? 16 : n;
    mote__batch_shrink(b);
    b->memory = mote__alloc(b->meter, MOTE_MEM_SCRATCH, memory_bytes(n));
    if (!b->memory)
        return MOTE_ENOMEM;
    b->capacity = n;
    return 0;
}

/* A power of two times index_topk, so that a growing context seldom changes it. */
static size_t topk_room(const mote__config *c, const mote__extent *extents, size_t n_extents)
{
    size_t room = c->index_topk;
    for (size_t i = 0; i < n_extents; i++) {
        size_t want = mote__seq_topk(extents[i].seq, c),
               there = (size_t)(extents[i].pos + extents[i].n);
        while (room < want && room < there)
            room *= 2;
    }
    return room;
}

int mote__batch_begin(mote__batch *b, const mote__config *config, mote__extent *extents,
                      size_t n_extents)
{
    size_t n = 0;
    for (size_t i = 0; i < n_extents; i++)
        n += extents[i].n;
    if (reserve(b, n))
        return MOTE_ENOMEM;
    b->extents = extents;
    b->n_extents = n_extents;
    b->n_tokens = n;
    b->topk_room = topk_room(config, extents, n_extents);
    size_t first = 0;
    for (size_t i = 0; i < n_extents; i++) {
        mote__extent *e = &extents[i];
        e->first = first;
        e->window_skip = e->skip;
        e->dropped = 0;
        first += e->n;
    }
    mote__batch_list_rows(b);
    return 0;
}

void mote__batch_list_rows(mote__batch *b)
{
    mote__row *rows = b->memory;
    uint32_t *tokens = (uint32_t *)(void *)(rows + b->capacity);
    size_t n = 0;
    for (size_t i = 0; i < b->n_extents; i++) {
        const mote__extent *e = &b->extents[i];
        for (size_t k = e->skip; k < e->n; k++) {
            tokens[n] = (uint32_t)(e->first + k);
            rows[n++] = (mote__row){ (uint32_t)i, (uint32_t)(e->first + k), e->pos + k };
        }
    }
    b->rows = rows;
    b->row_token = tokens;
    b->n_rows = n;
}

void mote__batch_mark_windows(mote__batch *b)
{
    for (size_t i = 0; i < b->n_extents; i++)
        b->extents[i].window_skip = b->extents[i].skip;
}

size_t mote__batch_narrow(mote__batch *b, size_t layer, size_t top, size_t window)
{
    size_t reach = (top - 1 - layer) * (window - 1), all = 0;
    for (size_t i = 0; i < b->n_extents; i++) {
        mote__extent *e = &b->extents[i];
        uint64_t start = e->apex > reach ? e->apex - reach : 0, at = e->pos + e->skip;
        size_t live = e->n - e->skip;
        e->dropped = at >= start ? 0 : start - at < live ? (size_t)(start - at) : live;
        e->skip += e->dropped;
        all += e->dropped;
    }
    if (all)
        mote__batch_list_rows(b);
    return all;
}
