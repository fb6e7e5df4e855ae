/* Which blocks go, and giving their room back.
 *
 * Blocks without children go, the least recently used first; a parent follows when its last child
 * has gone. The candidates are read in one pass and kept in a heap, so removing n blocks takes n
 * log n; each is looked at again in the transaction that removes it, as other processes change the
 * index in between.
 *
 * Room is given back by punching the slot out of its segment: the slot stays, as a hole, and counts
 * nothing. Order: the slot is free in a committed index, its lock is ours, it is punched, the
 * segment is synced, and only then the index says "hole". So the index never counts less than the
 * disk holds, but for what was being written when a machine lost its power. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/impl.h"

enum { CHUNK = 4096, PUNCH = 1024 };

static int failed(mote__store *s, int rc, const char *what)
{
    return mote__store_index_failed(s, &s->writer, rc, what);
}

int mote__entries_add(mote__entries *l, const mote__entry *e)
{
    if (mote__list_grow(l->meter, MOTE_MEM_SCRATCH, &l->list, l->n, &l->room, sizeof *e))
        return MOTE_ENOMEM;
    l->list[l->n++] = *e;
    return 0;
}

void mote__entries_end(mote__entries *l)
{
    mote__list_free(l->meter, MOTE_MEM_SCRATCH, l->list, l->room, sizeof *l->list);
    *l = (mote__entries){ .meter = l->meter };
}

/* ---- candidates: a heap, the next victim on top ---- */

static int goes_before(const mote__entry *a, const mote__entry *b)
{
    return a->used != b->used ? a->used < b->used : a->n_blocks > b->n_blocks;
}

static int push(mote__victims *v, const mote__entry *e)
{
    int rc = mote__entries_add(&v->heap, e);
    if (rc)
        return rc;
    mote__entry *h = v->heap.list, own = *e;
    size_t i = v->heap.n - 1;
    for (; i && goes_before(&own, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = own;
    return 0;
}

static mote__entry pop(mote__victims *v)
{
    mote__entry *h = v->heap.list, top = h[0], last = h[--v->heap.n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < v->heap.n; i = child) {
        child += child + 1 < v->heap.n && goes_before(&h[child + 1], &h[child]);
        if (!goes_before(&h[child], &last))
            break;
        h[i] = h[child];
    }
    h[i] = last;
    return top;
}

static int add(void *ctx, const mote__index_any *row)
{
    mote__victims *v = ctx;
    if (!v->keep || !v->keep(v->keep_ctx, &row->block))
        v->rc = push(v, &row->block);
    return v->rc;
}

int mote__victims_find(mote__store *s, mote__victims *v, size_t max)
{
    v->heap.meter = &s->meter;
    int rc = mote__index_leaves(&s->writer, v->before, max, add, v);
    return rc ? rc : v->rc;
}

void mote__victims_end(mote__victims *v) { mote__entries_end(&v->heap); }

int mote__victims_next(mote__store *s, mote__victims *v, mote__entry *e)
{
    mote__index *x = &s->writer;
    while (v->heap.n) {
        mote__entry was = pop(v), child, parent;
        int rc = mote__index_get(x, was.id, e);
        if (rc == MOTE_INDEX_NONE)
            continue;
        if (!rc && e->used > was.used) { /* used meanwhile: its turn is later */
            if (e->used < v->before && (rc = push(v, e)))
                return rc;
            continue;
        }
        if (!rc && !(rc = mote__index_child(x, e->id, &child)))
            continue; /* somebody went on from it */
        if (rc == MOTE_INDEX_NONE)
            rc = mote__index_drop(x, e);
        if (rc)
            return rc;
        if (e->n_blocks > 1 && !(rc = mote__index_get(x, e->parent, &parent)) &&
            parent.used < v->before && (!v->keep || !v->keep(v->keep_ctx, &parent)) &&
            (rc = mote__index_child(x, parent.id, &child)) == MOTE_INDEX_NONE)
            rc = push(v, &parent);
        return rc < 0 ? rc : 0;
    }
    return MOTE_INDEX_NONE;
}

/* ---- giving room back ---- */

static int is_doubtful(const mote__store *s, const mote__place *p)
{
    for (size_t i = 0; i < s->n_doubtful; i++)
        if (s->doubtful[i].segment == p->segment && s->doubtful[i].slot == p->slot)
            return 1;
    return 0;
}

/* places[from, to) lie side by side in one segment. 1: they are holes now; 0: they read as "never
 * written", but take room; or -errno. */
static int punch_run(mote__store *s, const mote__place *places, size_t from, size_t to)
{
    static const uint8_t zeros[MOTE_SLOT_ALIGN];
    mote__segfile *f = mote__segfile_get(s, places[from].segment);
    if (!f)
        return -errno;
    off_t bytes = (off_t)(to - from) * (off_t)places[from].slot_bytes;
    int e = EOPNOTSUPP;
    if (!s->no_punch)
        e = s->io->punch(s->io->ctx, f->fd, mote__slot_offset(&places[from]), bytes) ? errno : 0;
    int holes = !e;
    if (e == EOPNOTSUPP || e == ENOSYS) { /* at least nothing is to be found there */
        s->no_punch = 1;
        e = 0;
        for (size_t i = from; i < to && !e; i++)
            e = mote__write_full(s, f->fd, &(struct iovec){ (void *)zeros, sizeof zeros }, 1,
                                 mote__slot_offset(&places[i]));
    }
    mote__segfile_put(s, f);
    return e ? -e : holes;
}

int mote__punch(mote__store *s, mote__place *places, size_t n, uint64_t *bytes)
{
    mote__index *x = &s->writer;
    uint64_t generation, holes = 0;
    size_t ours = 0;
    int rc = 0, e = 0;
    *bytes = 0;
    /* Whoever indexes a slot holds its lock: what is free under ours stays so. */
    for (size_t i = 0; i < n; i++) {
        if (is_doubtful(s, &places[i]) || mote__slot_lock(s, &places[i]))
            continue;
        if (!mote__index_free_generation(x, places[i].segment, places[i].slot, &generation) &&
            generation == places[i].generation)
            places[ours++] = places[i];
        else
            mote__slot_unlock(s, &places[i]);
    }
    for (size_t from = 0, to; from < ours && !e; from = to) {
        for (to = from + 1; to < ours && places[to].segment == places[from].segment &&
                            places[to].slot == places[to - 1].slot + 1;)
            to++;
        int done = punch_run(s, places, from, to);
        e = done < 0 ? -done : 0;
        for (size_t i = from; i < to; i++)
            places[i].hole = done > 0;
        if (!e && (to == ours || places[to].segment != places[from].segment))
            e = mote__sync_segment(s, places[from].segment);
    }
    if (e) {
        mote__store_log(s, "room cannot be given back: %s", strerror(e));
        rc = MOTE_EIO;
    } else if (ours) {
        rc = mote__index_begin(x);
        for (size_t i = 0; i < ours && !rc; i++)
            if (places[i].hole && !(rc = mote__index_set_hole(x, &places[i])))
                holes += places[i].slot_bytes;
        if (!rc)
            rc = mote__index_commit(x);
        if (rc) {
            mote__index_rollback(x);
            failed(s, rc, "giving room back");
        } else if (holes) {
            mote__doubts_end(s);
            *bytes = holes;
        }
    }
    for (size_t i = 0; i < ours; i++)
        mote__slot_unlock(s, &places[i]);
    return rc;
}

typedef struct idle {
    mote__place *places;
    size_t n;
    uint64_t bytes, enough;
} idle;
static int note_idle(void *ctx, const mote__index_any *row)
{
    idle *d = ctx;
    d->places[d->n++] = row->place;
    return (d->bytes += row->place.slot_bytes) >= d->enough;
}

int mote__punch_idle(mote__store *s, uint32_t but_payload, uint64_t enough, uint64_t *bytes)
{
    mote__place *places = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, PUNCH * sizeof *places),
                last = { 0 };
    int64_t slot = -1;
    int rc = places ? 0 : MOTE_ENOMEM;
    *bytes = 0;
    for (size_t n = PUNCH; !rc && n == PUNCH && *bytes < enough;) {
        idle d = { .places = places, .enough = enough - *bytes };
        uint64_t more;
        rc = mote__index_idle(&s->writer, but_payload, last.segment, slot, PUNCH, note_idle, &d);
        if (rc)
            failed(s, rc, "looking for free slots");
        if (rc || (n = d.n) == 0)
            break;
        last = places[n - 1];
        slot = last.slot;
        rc = mote__punch(s, places, n, &more);
        *bytes += more;
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, places, PUNCH * sizeof *places);
    return rc;
}

/* ---- making room ---- */

static int by_place(const void *a, const void *b)
{
    const mote__place *p = a, *q = b;
    return p->segment != q->segment ? (p->segment < q->segment ? -1 : 1)
           : p->slot < q->slot      ? -1
                                    : p->slot > q->slot;
}

int mote__make_room(mote__store *s, uint64_t bytes, uint32_t own_payload,
                    int (*keep)(void *ctx, const mote__entry *e), void *keep_ctx)
{
    enum { MAX = 256 };
    uint64_t freed = 0, planned, more = 0;
    mote__victims v = { .before = INT64_MAX, .keep = keep, .keep_ctx = keep_ctx };
    int rc = s->no_punch ? 0 : mote__punch_idle(s, own_payload, bytes, &freed);
    if (rc || (planned = freed) >= bytes)
        return rc ? rc : 1;
    mote__place *others = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, MAX * sizeof *others);
    size_t n_others = 0, n = 0;
    rc = others ? mote__victims_find(s, &v, MAX) : MOTE_ENOMEM;
    if (!rc)
        rc = mote__index_begin(&s->writer);
    mote__entry e;
    while (!rc && n < MAX && planned < bytes && !(rc = mote__victims_next(s, &v, &e))) {
        n++;
        planned += e.place.slot_bytes;
        e.place.generation++; /* what its free row says */
        if (own_payload && e.place.payload_bytes == own_payload)
            freed += e.place.slot_bytes; /* the slot itself serves */
        else
            others[n_others++] = e.place;
    }
    if (rc >= 0)
        rc = mote__index_commit(&s->writer);
    if (rc < 0) {
        mote__index_rollback(&s->writer);
        failed(s, rc, "making room");
    } else {
        if (n)
            mote__doubts_end(s);
        mote__count(&s->counts.evicted_blocks, n);
        if (n_others)
            qsort(others, n_others, sizeof *others, by_place);
        rc = mote__punch(s, others, n_others, &more);
        rc = rc ? rc : freed + more > 0;
    }
    mote__victims_end(&v);
    mote__free(&s->meter, MOTE_MEM_SCRATCH, others, MAX * sizeof *others);
    return rc;
}

/* ---- removing many ---- */

int mote__remove_victims(mote__store *s, mote__victims *v, uint64_t *bytes, uint64_t enough,
                         uint64_t max, uint64_t *n)
{
    int rc = 0;
    while (!rc && *bytes > enough && *n < max) {
        uint64_t left = *bytes, k = 0;
        mote__entry e;
        rc = mote__index_begin(&s->writer);
        while (!rc && k < CHUNK && *n + k < max && left > enough &&
               !(rc = mote__victims_next(s, v, &e))) {
            left -= e.place.slot_bytes < left ? e.place.slot_bytes : left;
            k++;
        }
        int end = rc;
        if (rc >= 0)
            rc = mote__index_commit(&s->writer);
        if (rc < 0) {
            mote__index_rollback(&s->writer);
            return failed(s, rc, "removing blocks");
        }
        if (k)
            mote__doubts_end(s);
        *n += k;
        *bytes = left;
        rc = end;
    }
    return rc < 0 ? rc : 0;
}

int mote__remove_expired(mote__store *s, int64_t before, size_t max,
                         int (*keep)(void *ctx, const mote__entry *e), void *ctx, uint64_t *n)
{
    mote__victims v = { .before = before, .keep = keep, .keep_ctx = ctx };
    uint64_t bytes = UINT64_MAX;
    int rc = mote__victims_find(s, &v, max);
    rc = rc < 0     ? failed(s, rc, "removing what has expired")
         : v.heap.n ? mote__remove_victims(s, &v, &bytes, 0, max, n)
                    : 0;
    mote__victims_end(&v);
    return rc;
}

/* write_mutex is held and the index sound. */
void mote__store_expire(mote__store *s, size_t max, uint64_t *n_blocks, uint64_t *n_snapshots)
{
    int64_t now = mote__store_now(s);
    *n_blocks = *n_snapshots = 0;
    if (s->ttl >= 0 && mote__remove_expired(s, now - s->ttl, max, NULL, NULL, n_blocks))
        return;
    if (s->snap_ttl >= 0)
        mote__remove_snapshots(s, &(mote__snap_choice){ .before = now - s->snap_ttl, .max = max },
                               n_snapshots);
}

int mote__remove_trees(mote__store *s, const mote__entry *tops, size_t n_tops, uint64_t *n)
{
    mote__index *x = &s->writer;
    mote__entries path = { .meter = &s->meter };
    size_t at = 0;
    int rc = 0;
    while (!rc && (at < n_tops || path.n)) {
        uint64_t k = 0;
        rc = mote__index_begin(x);
        while (!rc && k < CHUNK && (at < n_tops || path.n)) {
            if (!path.n && (rc = mote__entries_add(&path, &tops[at++])))
                break;
            mote__entry child;
            rc = mote__index_child(x, path.list[path.n - 1].id, &child);
            if (!rc) {
                rc = mote__entries_add(&path, &child);
            } else if (rc == MOTE_INDEX_NONE) { /* it has no descendants any more */
                rc = mote__index_drop(x, &path.list[--path.n]);
                k += !rc;
                rc = rc == MOTE_INDEX_NONE ? 0 : rc;
            }
        }
        if (!rc)
            rc = mote__index_commit(x);
        if (rc) {
            mote__index_rollback(x);
            failed(s, rc, "removing blocks");
        } else {
            if (k)
                mote__doubts_end(s);
            *n += k;
        }
    }
    mote__entries_end(&path);
    return rc;
}

/* ---- snapshots ---- */

typedef struct chosen {
    const mote__snap_choice *by;
    uint8_t (*keys)[MOTE_STORE_ID];
    size_t n, room;
    uint64_t bytes;
    mote__meter *meter;
    int rc;
} chosen;
static int choose(void *ctx, const mote__index_any *row)
{
    chosen *c = ctx;
    const mote__snap_entry *e = &row->snapshot;
    if (c->by->before && e->used >= c->by->before)
        return 1; /* in order of use */
    if (c->n >= c->by->max || c->bytes <= c->by->enough)
        return 1;
    if (c->by->keep && c->by->keep(c->by->keep_ctx, e))
        return 0;
    if (mote__list_grow(c->meter, MOTE_MEM_SCRATCH, &c->keys, c->n, &c->room, sizeof *c->keys))
        return c->rc = MOTE_ENOMEM;
    memcpy(c->keys[c->n++], e->key, MOTE_STORE_ID);
    c->bytes -= e->bytes < c->bytes ? e->bytes : c->bytes;
    return 0;
}

int mote__remove_snapshots(mote__store *s, const mote__snap_choice *by, uint64_t *n)
{
    chosen c = { .by = by, .bytes = by->bytes ? by->bytes : UINT64_MAX, .meter = &s->meter };
    int rc = by->orphans ? mote__index_snapshot_orphans(&s->writer, choose, &c)
                         : mote__index_all_snapshots(&s->writer, choose, &c);
    rc = rc ? failed(s, rc, "choosing snapshots") : c.rc;
    for (size_t i = 0; i < c.n && !rc; i += 256) {
        size_t k = c.n - i < 256 ? c.n - i : 256;
        rc = mote__drop_snapshots(s, (const uint8_t(*)[MOTE_STORE_ID])c.keys + i, k);
        *n += rc ? 0 : k;
    }
    mote__list_free(&s->meter, MOTE_MEM_SCRATCH, c.keys, c.room, sizeof *c.keys);
    return rc;
}
