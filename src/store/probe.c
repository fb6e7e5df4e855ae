/* How much of a prompt is stored, by the index alone. */
#include "store/impl.h"

/* 1: the block is in the index, or waits to be written. */
static int is_stored(mote__store *s, const uint8_t *id)
{
    mote__entry e;
    pthread_mutex_lock(&s->read_mutex);
    int there = !atomic_load(&s->damaged) && s->reader.db && !mote__index_get(&s->reader, id, &e);
    pthread_mutex_unlock(&s->read_mutex);
    return there || mote__queue_has(s, id);
}

void mote__store_probe(mote__store *s, const mote__store_context *c, const int32_t *ids,
                       size_t n_ids, mote__chain *chain)
{
    while (chain->n_blocks < n_ids / MOTE_BLOCK_TOKENS) {
        const int32_t *block_ids = ids + chain->n_blocks * MOTE_BLOCK_TOKENS;
        int exact = mote__chain_exact(chain);
        mote__chain next = mote__chain_next(c, chain, block_ids, exact);
        int there = is_stored(s, next.id);
        if (!there && exact) {
            next = mote__chain_next(c, chain, block_ids, 0);
            there = is_stored(s, next.id);
        }
        if (!there)
            return;
        *chain = next;
    }
}
