/* Writing behind: the queue of puts, and the thread that empties it. */
#include <string.h>
#include <time.h>

#include "store/impl.h"
#include "base/clock.h"

enum { TICK_S = 5, EXPIRE_TICKS = 12 };

void mote__item_free(mote__store *s, mote__item *it)
{
    if (!it)
        return;
    if (it->pool)
        mote__kv_block_unref(it->pool, it->block);
    if (it->owns_file)
        mote__free(&s->meter, MOTE_MEM_OTHER, it->file, it->file_bytes);
    mote__free(&s->meter, MOTE_MEM_OTHER, it, sizeof *it);
}

int mote__queue_push(mote__store *s, mote__item *it, int even_if_full)
{
    int taken = 0;
    if (it && s->running) {
        pthread_mutex_lock(&s->mutex);
        taken = !s->stop && (even_if_full || s->n_waiting < s->tuning.queue_items);
        if (taken) {
            *(s->last ? &s->last->next : &s->first) = it;
            s->last = it;
            s->n_waiting++;
            s->n_put++;
            pthread_cond_signal(&s->wake);
        }
        pthread_mutex_unlock(&s->mutex);
    }
    if (!taken)
        mote__item_free(s, it);
    return !taken;
}

void mote__queue_drop(mote__store *s, const mote__entry *e)
{
    mote__item *it = s->running ? mote__alloc(&s->meter, MOTE_MEM_OTHER, sizeof *it) : NULL;
    if (!it)
        return;
    it->kind = MOTE_ITEM_DROP;
    it->entry = *e;
    mote__queue_push(s, it, 1);
}

void mote__queue_drop_snapshot(mote__store *s, const uint8_t *key)
{
    mote__item *it = s->running ? mote__alloc(&s->meter, MOTE_MEM_OTHER, sizeof *it) : NULL;
    if (!it)
        return;
    it->kind = MOTE_ITEM_DROP_SNAPSHOT;
    memcpy(it->snap.key, key, MOTE_STORE_ID);
    mote__queue_push(s, it, 1);
}

/* ---- looking into it: what was put is there for all sessions of the process at once ---- */

/* With the mutex held. */
static const mote__item *find(const mote__store *s, const uint8_t *id)
{
    for (size_t i = 0; i < s->n_under_way; i++)
        if (s->under_way[i]->kind == MOTE_ITEM_BLOCK &&
            !memcmp(s->under_way[i]->slot.id, id, MOTE_STORE_ID))
            return s->under_way[i];
    for (const mote__item *it = s->first; it; it = it->next)
        if (it->kind == MOTE_ITEM_BLOCK && !memcmp(it->slot.id, id, MOTE_STORE_ID))
            return it;
    return NULL;
}

int mote__queue_has(mote__store *s, const uint8_t *id)
{
    pthread_mutex_lock(&s->mutex);
    int has = find(s, id) != NULL;
    pthread_mutex_unlock(&s->mutex);
    return has;
}

uint64_t mote__queue_batches(mote__store *s)
{
    pthread_mutex_lock(&s->mutex);
    uint64_t n = s->n_batches;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

/* A reference for the caller, or NULL. Blocks of another pool (another model that is the same) are
 * copied. */
static mote__kv_block *share(mote__store *s, const uint8_t *id, mote__kv_pool *pool)
{
    mote__kv_block *block = NULL, *copy;
    mote__kv_pool *from = NULL;
    pthread_mutex_lock(&s->mutex);
    const mote__item *it = find(s, id);
    if (it && it->pool && it->pool->layout.block_bytes == pool->layout.block_bytes) {
        from = it->pool;
        block = mote__kv_block_ref(it->block);
    }
    pthread_mutex_unlock(&s->mutex);
    if (!block || from == pool)
        return block;
    mote__kv_view view;
    copy = mote__kv_view_open(&view, from, block, 1) ? NULL : mote__kv_block_new(pool);
    if (copy)
        mote__kv_block_put(pool, copy, 0, view.bytes, pool->layout.block_bytes);
    mote__kv_view_close(&view, from, block, 0);
    mote__kv_block_unref(from, block);
    return copy;
}

size_t mote__queue_match(mote__store *s, const mote__store_context *c, const mote__store_want *want,
                         const int32_t *ids, size_t max, mote__kv_pool *pool,
                         mote__kv_block **blocks, mote__chain *chain)
{
    size_t first = chain->n_blocks;
    while (chain->n_blocks < max) {
        const int32_t *block_ids = ids + chain->n_blocks * MOTE_BLOCK_TOKENS;
        int exact = want->follow ? chain->n_blocks < want->follow->n_exact
                                 : mote__chain_exact(chain);
        mote__chain next = mote__chain_next(c, chain, block_ids, exact);
        mote__kv_block *block = share(s, next.id, pool);
        if (!block && exact && !want->exact_only && !want->follow) {
            next = mote__chain_next(c, chain, block_ids, 0);
            block = share(s, next.id, pool);
        }
        if (!block)
            break;
        blocks[chain->n_blocks] = block;
        *chain = next;
    }
    size_t n = chain->n_blocks - first;
    mote__count(&s->counts.matched_blocks, n);
    return n;
}

static mote__store_put_result dropped(mote__store *s, int snapshot)
{
    mote__count(snapshot ? &s->counts.put_snapshots : &s->counts.put_blocks, 1);
    mote__count(snapshot ? &s->counts.dropped_snapshots : &s->counts.dropped_blocks, 1);
    return MOTE_PUT_DROPPED;
}

mote__store_put_result mote__queue_block(mote__store *s, const mote__slot *slot,
                                         const uint8_t *head, mote__kv_pool *pool,
                                         mote__kv_block *block)
{
    mote__item *it = s->running ? mote__alloc(&s->meter, MOTE_MEM_OTHER, sizeof *it) : NULL;
    if (!it)
        return dropped(s, 0);
    it->slot = *slot;
    memcpy(it->head, head, sizeof it->head);
    it->pool = pool;
    it->block = mote__kv_block_ref(block);
    if (mote__queue_push(s, it, 0))
        return dropped(s, 0);
    mote__count(&s->counts.put_blocks, 1);
    return MOTE_PUT_QUEUED;
}

mote__store_put_result mote__store_put(mote__store *s, const mote__store_context *c,
                                       mote__chain *chain, const int32_t *ids, int exact,
                                       mote__kv_pool *pool, mote__kv_block *block)
{
    mote__chain parent = *chain;
    mote__slot slot;
    uint8_t head[MOTE_SLOT_HEAD];
    *chain = mote__chain_next(c, &parent, ids, exact);
    mote__slot_describe(&slot, head, c, &parent, chain, ids, (uint64_t)mote__store_now(s));
    if (s->tier && !s->read_only)
        mote__tier_remote->send(s->tier, &slot, head, pool, block);
    return mote__queue_block(s, &slot, head, pool, block);
}

mote__store_put_result mote__store_keep_snapshot(mote__store *s, const mote__store_context *c,
                                                 const mote__snapshot *snap, const int32_t *ids)
{
    size_t n_blocks = snap->n_tokens / MOTE_BLOCK_TOKENS,
           n_tail = snap->n_tokens % MOTE_BLOCK_TOKENS;
    mote__item *it = s->running && n_blocks == snap->chain.n_blocks &&
                             snap->blob_bytes <= MOTE_STORE_MAX_SNAPSHOT &&
                             snap->origin <= UINT32_MAX
                         ? mote__alloc(&s->meter, MOTE_MEM_OTHER, sizeof *it)
                         : NULL;
    if (!it)
        return dropped(s, 1);
    it->kind = MOTE_ITEM_SNAPSHOT;
    it->snap = (mote__snapfile){ .chain = snap->chain,
                                 .approximate = !snap->exact || !mote__chain_exact(&snap->chain),
                                 .n_tail = (uint32_t)n_tail,
                                 .origin = (uint32_t)snap->origin,
                                 .blob_bytes = snap->blob_bytes,
                                 .created = (uint64_t)mote__store_now(s) };
    memcpy(it->snap.context, c->hash, MOTE_STORE_DIGEST);
    memcpy(it->snap.label, c->label, MOTE_STORE_LABEL);
    mote__chain tokens = { 0 };
    for (size_t i = 0; i < n_blocks; i++)
        tokens = mote__chain_next(c, &tokens, ids + i * MOTE_BLOCK_TOKENS, 1);
    memcpy(it->snap.tokens, tokens.id, MOTE_STORE_ID);
    uint8_t tail[MOTE_SLOT_IDS];
    mote__put_ids(tail, ids + n_blocks * MOTE_BLOCK_TOKENS, n_tail);
    mote__snapfile_key(&it->snap, tail);
    it->file_bytes = mote__snapfile_bytes(&it->snap);
    it->file = mote__alloc(&s->meter, MOTE_MEM_OTHER, it->file_bytes);
    it->owns_file = 1;
    if (!it->file) {
        mote__item_free(s, it);
        return dropped(s, 1);
    }
    mote__snapfile_write(it->file, &it->snap, tail, snap->blob);
    mote__snap_entry e = mote__snap_entry_of(s, it);
    mote__recent_put(&s->recent, &e, c->hash, it->file, e.used);
    if (mote__queue_push(s, it, 0))
        return dropped(s, 1);
    mote__count(&s->counts.put_snapshots, 1);
    return MOTE_PUT_QUEUED;
}

/* ---- the thread ---- */

static void work(mote__store *s, mote__item **items, size_t n)
{
    pthread_mutex_lock(&s->write_mutex);
    if (mote__store_revive(s)) {
        for (size_t i = 0; i < n; i++)
            items[i]->end = MOTE_ITEM_FAILED;
    } else if (items[0]->kind == MOTE_ITEM_BLOCK) {
        mote__write_blocks(s, items, n);
    } else if (items[0]->kind == MOTE_ITEM_SNAPSHOT) {
        mote__write_snapshot(s, items[0]);
    } else if (items[0]->kind == MOTE_ITEM_DROP) {
        mote__drop_entries(s, &items[0]->entry, 1);
    } else {
        mote__drop_snapshot(s, items[0]->snap.key);
    }
    pthread_mutex_unlock(&s->write_mutex);
}

static void count_end(mote__store *s, const mote__item *it)
{
    int snap = it->kind == MOTE_ITEM_SNAPSHOT;
    if (it->kind != MOTE_ITEM_BLOCK && !snap)
        return;
    mote__count(it->end == MOTE_ITEM_WRITTEN
                    ? snap ? &s->counts.written_snapshots : &s->counts.written_blocks
                : it->end == MOTE_ITEM_KNOWN
                    ? snap ? &s->counts.known_snapshots : &s->counts.known_blocks
                : it->end == MOTE_ITEM_DROPPED
                    ? snap ? &s->counts.dropped_snapshots : &s->counts.dropped_blocks
                : snap ? &s->counts.failed_snapshots
                       : &s->counts.failed_blocks,
                1);
}

static void tick(mote__store *s, unsigned n_ticks)
{
    uint64_t blocks, snapshots;
    pthread_mutex_lock(&s->write_mutex);
    if (!mote__store_revive(s)) {
        mote__write_touched(s);
        if (n_ticks % EXPIRE_TICKS == 0) {
            mote__store_expire(s, 1024, &blocks, &snapshots);
            mote__segfiles_sweep(s, 0);
        }
    }
    pthread_mutex_unlock(&s->write_mutex);
}

static void *writer(void *arg)
{
    mote__store *s = arg;
    mote__item *items[MOTE_STORE_BATCH];
    struct timespec next = mote__clock_after(0);
    unsigned n_ticks = 0;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        struct timespec now = mote__clock_after(0);
        int due = now.tv_sec > next.tv_sec ||
                  (now.tv_sec == next.tv_sec && now.tv_nsec >= next.tv_nsec);
        if (due) {
            next.tv_sec = now.tv_sec + TICK_S;
            pthread_mutex_unlock(&s->mutex);
            tick(s, n_ticks++);
            pthread_mutex_lock(&s->mutex);
        }
        if (!s->first) {
            if (s->stop)
                break;
            pthread_cond_timedwait(&s->wake, &s->mutex, &next);
            continue;
        }
        size_t n = 0;
        mote__item *head = s->first;
        while (s->first && n < MOTE_STORE_BATCH && s->first->kind == head->kind &&
               (n == 0 || (head->kind == MOTE_ITEM_BLOCK &&
                           s->first->slot.payload_bytes == head->slot.payload_bytes))) {
            items[n++] = s->first;
            s->first = s->first->next;
        }
        memcpy(s->under_way, items, n * sizeof *items);
        s->n_under_way = n;
        if (!s->first)
            s->last = NULL;
        pthread_mutex_unlock(&s->mutex);
        work(s, items, n);
        pthread_mutex_lock(&s->mutex);
        for (size_t i = 0; i < n; i++)
            count_end(s, items[i]);
        s->n_under_way = 0;
        s->n_batches++;
        pthread_mutex_unlock(&s->mutex);
        for (size_t i = 0; i < n; i++)
            /* before anybody hears that it is done: the pool may go then */
            mote__item_free(s, items[i]);
        pthread_mutex_lock(&s->mutex);
        s->n_waiting -= n;
        s->n_done += n;
        pthread_cond_broadcast(&s->done);
    }
    pthread_mutex_unlock(&s->mutex);
    tick(s, 1);
    return NULL;
}

int mote__queue_start(mote__store *s)
{
    s->running = !pthread_create(&s->thread, NULL, writer, s);
    return !s->running;
}

void mote__queue_stop(mote__store *s)
{
    if (!s->running)
        return;
    pthread_mutex_lock(&s->mutex);
    s->stop = 1;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    s->running = 0;
}

void mote__store_flush(mote__store *s, mote__store_counts *counts)
{
    pthread_mutex_lock(&s->mutex);
    uint64_t until = s->n_put;
    while (s->n_done < until)
        pthread_cond_wait(&s->done, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    if (counts)
        mote__store_get_counts(s, counts);
}

void mote__store_get_counts(mote__store *s, mote__store_counts *counts)
{
#define MOTE_X(name) counts->name = atomic_load_explicit(&s->counts.name, memory_order_relaxed);
    MOTE_STORE_COUNTS(MOTE_X)
#undef MOTE_X
}
