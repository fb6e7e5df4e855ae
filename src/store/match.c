/* Finding a stored prefix: look its blocks up, read several at a time straight into cache blocks,
 * check each in turn.
 *
 * What the page cache holds is copied from there. Everything else is read past it, from the disk
 * into the block, several reads in flight: on the measured machine twice as fast as through the
 * cache (docs/results/store.md), and the cache does not hold twice what the session holds
 * (io/reads.h; where that is not possible it is a plain read).
 *
 * Nothing is released while it is read. Blocks are judged in the order of the chain, so that each
 * has a parent that was verified in this walk. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/impl.h"

typedef struct load {
    mote__entry entry;
    mote__segfile *file;
    mote__kv_block *block;
    mote__kv_view view; /* of the block: where its bytes are read to */
    int reading, error; /* errno, ENODATA: too short */
    /* MOTE_SLOT_HEAD and MOTE_SLOT_ALIGN, aligned for the disk */
    uint8_t *head, *pad;
} load;
enum { BUFFER = 2 * MOTE_SLOT_ALIGN };

typedef struct walk {
    mote__store *s;
    mote__reads *reads;
    size_t n_loads, buffer_bytes;
    uint8_t *buffers;
    load *loads;
} walk;

/* A table of functions that is not the system's does all reading itself, one block at a time. */
static int open_reads(walk *w, size_t n_reads)
{
    const mote__store *s = w->s;
    int system = s->io->direct_reads, several = n_reads > 1 && system && !s->tuning.no_uring;
    return mote__reads_open(&w->reads,
                            &(mote__reads_params){ .depth = w->n_loads,
                                                   .engine = several ? MOTE_READS_AUTO
                                                                     : MOTE_READS_PLAIN,
                                                   .direct = several,
                                                   .cached_first = system,
                                                   .kernel_workers = 1,
                                                   .preadv = system ? NULL : s->io->preadv,
                                                   .preadv_ctx = s->io->ctx },
                            &w->s->meter, NULL);
}

static void start(walk *w, load *l)
{
    const mote__place *p = &l->entry.place;
    size_t n_pad = p->slot_bytes - p->payload_bytes - MOTE_SLOT_HEAD;
    struct iovec parts[] = { { l->head, MOTE_SLOT_HEAD },
                             { l->view.bytes, p->payload_bytes },
                             { l->pad, n_pad } };
    if (!l->file) {
        l->error = errno == ENOENT || mote__file_is_other(errno) ? ENODATA : errno;
        return;
    }
    l->error = EIO;
    l->reading = !mote__reads_submit_parts(w->reads, &l->file->file, (uint64_t)mote__slot_offset(p),
                                           parts, 3, l);
    mote__reads_start(w->reads);
}

static void finish(walk *w, const load *l)
{
    mote__read_done done;
    while (l->reading && mote__reads_next(w->reads, 1, &done)) {
        load *other = done.tag;
        other->reading = 0;
        other->error = done.error;
        mote__count(&w->s->counts.read_bytes, done.bytes);
    }
}

/* ---- the plan: which blocks the index promises ---- */

/* Entries of the chain along ids, from chain->n_blocks on; *n of them. */
static void plan(mote__store *s, const mote__store_context *c, const mote__store_want *want,
                 const int32_t *ids, size_t max, mote__chain chain, mote__entry *entries,
                 mote__chain *chains, size_t *n)
{
    *n = 0;
    pthread_mutex_lock(&s->read_mutex);
    int rc = atomic_load(&s->damaged) || !s->reader.db ? MOTE_INDEX_NONE
                                                       : mote__index_begin_read(&s->reader);
    if (rc)
        max = 0;
    while (chain.n_blocks < max) {
        int follow = want->follow != NULL,
            exact = follow ? chain.n_blocks < want->follow->n_exact : mote__chain_exact(&chain);
        const int32_t *block_ids = ids + chain.n_blocks * MOTE_BLOCK_TOKENS;
        mote__chain next = mote__chain_next(c, &chain, block_ids, exact);
        rc = mote__index_get(&s->reader, next.id, &entries[*n]);
        if (rc == MOTE_INDEX_NONE && exact && !want->exact_only && !follow) {
            next = mote__chain_next(c, &chain, block_ids, 0);
            rc = mote__index_get(&s->reader, next.id, &entries[*n]);
        }
        if (rc || (want->exact_only && !mote__chain_exact(&next)))
            break;
        chains[(*n)++] = chain = next;
    }
    if (rc < 0)
        mote__store_index_failed(s, &s->reader, rc, "looking for blocks");
    if (s->reader.db && !sqlite3_get_autocommit(s->reader.db))
        mote__index_commit(&s->reader);
    pthread_mutex_unlock(&s->read_mutex);
}

/* ---- one block ---- */

static int check_slot(mote__store *s, const mote__store_context *c, load *l,
                      const mote__chain *chain, const uint8_t *parent, const int32_t *ids,
                      const char **why)
{
    mote__slot slot;
    if (l->error) {
        *why = l->error == ENODATA ? "it is not there" : strerror(l->error);
        return l->error == ENODATA || l->error == EIO ? MOTE_EFORMAT : MOTE_EIO;
    }
    int rc = mote__slot_read(&slot, l->head, l->view.bytes, c->block_bytes, l->pad,
                             l->entry.place.slot_bytes, why);
    if (!rc)
        rc = mote__slot_matches(&slot, &l->entry, why);
    if (rc)
        return rc;
    return mote__slot_answers(&slot, l->head, c, chain, parent, ids, why);
}

/* How many of n entries, from the first on, the index still gives as they are: nobody took their
 * slots while they were read. */
static size_t still_there(mote__store *s, const mote__entry *entries, size_t n)
{
    size_t i = 0;
    pthread_mutex_lock(&s->read_mutex);
    int rc = atomic_load(&s->damaged) || !s->reader.db ? MOTE_INDEX_NONE
                                                       : mote__index_begin_read(&s->reader);
    for (mote__entry now; i < n && !rc; i += !rc) {
        const mote__place *a = &now.place, *b = &entries[i].place;
        rc = mote__index_get(&s->reader, entries[i].id, &now);
        if (!rc &&
            (a->segment != b->segment || a->slot != b->slot || a->generation != b->generation))
            rc = MOTE_INDEX_NONE;
    }
    if (rc < 0)
        mote__store_index_failed(s, &s->reader, rc, "looking at blocks again");
    if (s->reader.db && !sqlite3_get_autocommit(s->reader.db))
        mote__index_commit(&s->reader);
    pthread_mutex_unlock(&s->read_mutex);
    return i;
}

/* What is wrong with the blocks of one walk: one line for all of them. */
typedef struct ills {
    uint64_t damaged, unreadable;
    char first[160];
} ills;

static void note_ill(mote__store *s, ills *ill, const mote__entry *e, int bad, const char *why)
{
    char hex[2 * MOTE_STORE_ID + 1];
    mote__hex(hex, e->id, MOTE_STORE_ID);
    if (!ill->damaged && !ill->unreadable)
        snprintf(ill->first, sizeof ill->first, "%s, segment %08x, slot %u: %s", hex,
                 (unsigned)e->place.segment, (unsigned)e->place.slot, why);
    if (bad != MOTE_EFORMAT) {
        ill->unreadable++;
        return;
    }
    ill->damaged++;
    mote__count(&s->counts.damaged_blocks, 1);
    mote__queue_drop(s, e);
}

static void tell_ills(mote__store *s, const ills *ill)
{
    if (ill->damaged)
        mote__store_log(s, "%llu block%s damaged and dropped (%s)%s",
                        (unsigned long long)ill->damaged, ill->damaged > 1 ? "s are" : " is",
                        ill->first, s->read_only ? "" : "; 'mote kv verify' looks at all others");
    else if (ill->unreadable)
        mote__store_log(
            s, "%llu block%s cannot be read (%s); if that lasts, 'mote kv verify' drops them",
            (unsigned long long)ill->unreadable, ill->unreadable > 1 ? "s" : "", ill->first);
}

static void give_up(walk *w, mote__kv_pool *pool, load *l)
{
    if (l->reading)
        mote__reads_cancel(w->reads, l);
    finish(w, l);
    mote__segfile_put(w->s, l->file);
    mote__kv_view_close(&l->view, pool, l->block, 0);
    if (l->block)
        mote__kv_block_unref(pool, l->block);
    l->file = NULL;
    l->block = NULL;
}

/* Begins to read the block of entries[at]; 0: no memory. */
static int prepare(walk *w, mote__kv_pool *pool, const mote__store_context *c,
                   const mote__entry *entries, size_t at, size_t n)
{
    size_t buffer = at % w->n_loads;
    load *l = &w->loads[buffer];
    const mote__entry *e = &entries[at];
    const mote__place *p = &e->place;
    l->entry = *e;
    if (at % MOTE_POOL_EXPECTED == 0)
        mote__kv_pool_expect(pool, n - at);
    l->block = mote__kv_block_new(pool);
    if (!l->block || mote__kv_view_open(&l->view, pool, l->block, 0))
        return 0;
    l->head = w->buffers + buffer * BUFFER;
    l->pad = l->head + MOTE_SLOT_ALIGN;
    /* a place where such a block cannot be: the index is wrong about it */
    l->error = ENODATA;
    if (p->payload_bytes != c->block_bytes)
        return 1;
    l->file = mote__segfile_get(w->s, p->segment);
    start(w, l);
    return 1;
}

static size_t match_directory(mote__store *s, const mote__store_context *c,
                              const mote__store_want *want, const int32_t *ids, size_t max,
                              mote__kv_pool *pool, mote__kv_block **blocks, mote__chain *chain)
{
    size_t n = 0, used = 0, started = 0, room = max - chain->n_blocks, first = chain->n_blocks;
    int healing = 0;
    ills ill = { 0 };
    walk w = { .s = s,
               .n_loads = s->tuning.reads_in_flight < room ? s->tuning.reads_in_flight : room };
    mote__entry *entries = mote__alloc(&s->meter, MOTE_MEM_SCRATCH,
                                       mote__mul(room, sizeof *entries));
    mote__chain *chains = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, mote__mul(room, sizeof *chains));
    w.loads = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, w.n_loads * sizeof *w.loads);
    w.buffer_bytes = w.n_loads * BUFFER;
    w.buffers = mote__map_pages(&s->meter, MOTE_MEM_SCRATCH, &w.buffer_bytes);
    if (entries && chains && w.loads && w.buffers) {
        plan(s, c, want, ids, max, *chain, entries, chains, &n);
        n = open_reads(&w, n) ? 0 : n;
    }
    /* Behind a block that is damaged the others of the chain are looked at all the same: each
     * damaged one is dropped now, so that one run heals the whole chain. */
    for (size_t i = 0; i < n; i++) {
        for (; started < n && started < i + w.n_loads; started++)
            if (!prepare(&w, pool, c, entries, started, n))
                break;
        if (started <= i)
            break; /* no memory for more blocks */
        load *l = &w.loads[i % w.n_loads];
        const char *why = "";
        finish(&w, l);
        int bad = check_slot(s, c, l, &chains[i], i ? chains[i - 1].id : chain->id,
                             ids + (first + i) * MOTE_BLOCK_TOKENS, &why);
        if (bad && (s->stale || !still_there(s, &l->entry, 1)))
            n = i + 1; /* it was taken away meanwhile */
        else if (bad)
            note_ill(s, &ill, &l->entry, bad, why);
        healing |= bad != 0;
        if (!healing) {
            mote__kv_view_close(&l->view, pool, l->block, 1);
            blocks[first + i] = l->block;
            l->block = NULL;
            used++;
        }
        give_up(&w, pool, l);
    }
    size_t sure = used ? still_there(s, entries, used) : 0;
    while (used > sure)
        mote__kv_block_unref(pool, blocks[first + --used]);
    tell_ills(s, &ill);
    for (size_t i = 0; i < w.n_loads && w.loads; i++)
        give_up(&w, pool, &w.loads[i]);
    mote__reads_close(w.reads);
    if (used) {
        mote__count(&s->counts.matched_blocks, used);
        pthread_mutex_lock(&s->mutex);
        for (size_t i = 0; i < used && s->n_touched < MOTE_STORE_TOUCHED; i++)
            memcpy(s->touched[s->n_touched++], chains[i].id, MOTE_STORE_ID);
        pthread_mutex_unlock(&s->mutex);
        *chain = chains[used - 1];
    }
    mote__unmap_pages(&s->meter, MOTE_MEM_SCRATCH, w.buffers, w.buffer_bytes);
    mote__free(&s->meter, MOTE_MEM_SCRATCH, w.loads, w.n_loads * sizeof *w.loads);
    mote__free(&s->meter, MOTE_MEM_SCRATCH, chains, mote__mul(room, sizeof *chains));
    mote__free(&s->meter, MOTE_MEM_SCRATCH, entries, mote__mul(room, sizeof *entries));
    return used;
}

/* ---- both tiers ---- */

/* What was used here is renewed there, or brought there. */
static void offer(mote__store *s, const mote__store_context *c, const int32_t *ids,
                  mote__kv_pool *pool, mote__kv_block **blocks, mote__chain at,
                  const mote__chain *end)
{
    uint64_t now = (uint64_t)mote__store_now(s);
    while (at.n_blocks < end->n_blocks) {
        mote__slot slot;
        uint8_t head[MOTE_SLOT_HEAD];
        const int32_t *block_ids = ids + at.n_blocks * MOTE_BLOCK_TOKENS;
        mote__chain next = mote__chain_next(c, &at, block_ids, at.n_blocks < end->n_exact);
        mote__slot_describe(&slot, head, c, &at, &next, block_ids, now);
        mote__tier_remote->send(s->tier, &slot, head, pool, blocks[at.n_blocks]);
        at = next;
    }
}

size_t mote__store_match(mote__store *s, const mote__store_context *c, const mote__store_want *want,
                         const int32_t *ids, size_t n_ids, mote__kv_pool *pool,
                         mote__kv_block **blocks, mote__chain *chain)
{
    static const mote__store_want any;
    want = want ? want : &any;
    size_t max = n_ids / MOTE_BLOCK_TOKENS;
    if (want->max_blocks && want->max_blocks < max)
        max = want->max_blocks;
    if (want->follow && want->follow->n_blocks < max)
        max = want->follow->n_blocks;
    if (max <= chain->n_blocks || pool->layout.block_bytes != c->block_bytes ||
        (want->exact_only && !mote__chain_exact(chain)))
        return 0;
    mote__chain began = *chain;
    size_t n = 0, waiting;
    uint64_t batches, then;
    do { /* what the directory does not have yet may wait to be written */
        then = mote__queue_batches(s);
        n += match_directory(s, c, want, ids, max, pool, blocks, chain);
        waiting = mote__queue_match(s, c, want, ids, max, pool, blocks, chain);
        n += waiting;
        batches = mote__queue_batches(s);
    } while (chain->n_blocks < max && (waiting || batches != then));
    if (s->tier) {
        size_t more = mote__tier_remote->find(s->tier, c, want, ids, max, pool, blocks, chain);
        if (want->n_remote)
            *want->n_remote += more;
        n += more;
        if (!s->read_only)
            offer(s, c, ids, pool, blocks, began, chain);
    }
    mote__count(&s->counts.missed_blocks, max - chain->n_blocks);
    return n;
}
