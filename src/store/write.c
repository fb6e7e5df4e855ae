/* Writing blocks: find slots, write and sync them, then index them; make room by growing or by
 * evicting. */
#include <errno.h>
#include <string.h>

#include "store/impl.h"

static int failed(mote__store *s, int rc, const char *what)
{
    return mote__store_index_failed(s, &s->writer, rc, what);
}

/* A commit of the writing connection succeeded: see `doubtful`. */
void mote__doubts_end(mote__store *s)
{
    for (size_t i = 0; i < s->n_doubtful; i++)
        mote__slot_unlock(s, &s->doubtful[i]);
    s->n_doubtful = 0;
}

static int same_place(const mote__place *a, const mote__place *b)
{
    return a->segment == b->segment && a->slot == b->slot;
}

/* ---- room ---- */

/* Whether a waiting block has this one as parent. */
static int is_wanted(mote__item *const *items, size_t n, const uint8_t *id)
{
    for (size_t i = 0; i < n; i++)
        if (items[i]->end == MOTE_ITEM_WAITING && !memcmp(items[i]->slot.parent, id, MOTE_STORE_ID))
            return 1;
    return 0;
}

typedef struct waiting {
    mote__item *const *items;
    size_t n;
} waiting;
static int keep_wanted(void *ctx, const mote__entry *e)
{
    const waiting *w = ctx;
    return is_wanted(w->items, w->n, e->id);
}

static int may_write(mote__store *s, uint32_t segment)
{
    mote__segfile *f = mote__segfile_get(s, segment);
    int writable = f && f->writable;
    mote__segfile_put(s, f);
    return writable;
}

/* More slots at the end of a segment, or a new segment. 1: there is more; 0: the budget has no
 * room, and *lacking bytes would make it; negative: a failure. */
static int grow(mote__store *s, uint32_t slot_bytes, uint32_t payload_bytes, size_t want,
                uint64_t *lacking)
{
    mote__index *x = &s->writer;
    mote__segment g, best = { 0 };
    uint64_t room, total_slots = 0;
    mote_err err;
    int rc = mote__index_begin(x);
    if (!rc)
        rc = mote__index_room(x, &room);
    int64_t after = -1;
    for (int none = 0; !rc && !none;) {
        none = mote__index_next_segment(x, after, &g);
        rc = none < 0 ? none : 0;
        if (none)
            break;
        after = g.id;
        total_slots += g.n_slots;
        if (g.payload_bytes == payload_bytes && g.slot_bytes == slot_bytes &&
            MOTE_SEGMENT_HEADER + ((uint64_t)g.n_slots + 1) * slot_bytes <=
                s->tuning.segment_bytes &&
            may_write(s, g.id))
            best = g;
    }
    uint64_t least = slot_bytes + (best.id ? 0 : MOTE_SEGMENT_HEADER),
             spare = !rc && room < s->budget ? s->budget - room : 0;
    if (!rc && spare < least) {
        mote__index_rollback(x);
        *lacking = least + (uint64_t)(want - 1) * slot_bytes - spare;
        return 0;
    }
    if (!rc && !best.id) {
        best = (mote__segment){ .slot_bytes = slot_bytes, .payload_bytes = payload_bytes };
        rc = mote__index_new_segment_id(x, &best.id);
        /* a file of that name belongs to an index we do not have, or to somebody else: leave it,
         * take the next number */
        int made = MOTE_INDEX_NONE;
        while (!rc && best.id < UINT32_MAX &&
               (made = mote__segment_create(s, best.id, payload_bytes, &err)) == MOTE_INDEX_NONE)
            best.id++;
        if (!rc && made) {
            mote__index_rollback(x);
            mote__store_log(s, "%s", made < 0 ? err.message : "no number is left for a segment");
            return MOTE_EIO;
        }
        if (!rc)
            rc = mote__index_add_segment(x, &best);
    } else if (!rc) {
        /* a sixty-fourth at a time, at most 8 slots more than asked for: little lies idle */
        uint64_t more = total_slots / 64, fit = spare / slot_bytes;
        more = more > 8 ? 8 : more;
        more = more > want ? more : want;
        more = more > fit ? fit : more;
        uint64_t in_segment = (s->tuning.segment_bytes - MOTE_SEGMENT_HEADER) / slot_bytes -
                              best.n_slots;
        more = more > in_segment ? in_segment : more;
        mote__segfile *f = mote__segfile_get(s, best.id);
        int e = f ? 0 : errno;
        off_t at = (off_t)MOTE_SEGMENT_HEADER + (off_t)best.n_slots * slot_bytes;
        if (f && s->io->grow(s->io->ctx, f->fd, at, (off_t)(more * slot_bytes)))
            e = errno;
        mote__segfile_put(s, f);
        if (e) {
            mote__index_rollback(x);
            mote__store_log(s, "segment %08x cannot grow: %s", (unsigned)best.id, strerror(e));
            return MOTE_EIO;
        }
        uint32_t first = best.n_slots;
        best.n_slots += (uint32_t)more;
        rc = mote__index_set_slots(x, &best);
        for (uint32_t i = first; i < best.n_slots && !rc; i++)
            rc = mote__index_put_free(x, &(mote__place){ best.id, i, slot_bytes, payload_bytes, 1,
                                                         0 });
    }
    if (!rc)
        rc = mote__index_commit(x);
    if (rc) {
        mote__index_rollback(x);
        return failed(s, rc < 0 ? rc : MOTE_EIO, "growing");
    }
    return 1;
}

/* Holes that we hold begin to count, as far as the budget goes: in one transaction, so that all
 * writers together stay within it. */
static int fill_holes(mote__store *s, mote__place *holes, size_t n, size_t want,
                      mote__place *places, size_t *got)
{
    uint64_t room = 0;
    size_t began = *got;
    int rc = mote__index_begin(&s->writer);
    if (!rc)
        rc = mote__index_room(&s->writer, &room);
    for (size_t i = 0; i < n && !rc; i++) {
        if (*got == want || room + holes[i].slot_bytes > s->budget)
            continue;
        rc = mote__index_fill_hole(&s->writer, &holes[i]);
        if (!rc) {
            room += holes[i].slot_bytes;
            places[(*got)++] = holes[i];
            holes[i].slot_bytes = 0; /* taken */
        }
        rc = rc == MOTE_INDEX_NONE ? 0 : rc;
    }
    if (!rc)
        rc = mote__index_commit(&s->writer);
    if (rc) {
        mote__index_rollback(&s->writer);
        for (; *got > began; --*got)
            mote__slot_unlock(s, &places[*got - 1]);
    }
    for (size_t i = 0; i < n; i++)
        if (holes[i].slot_bytes)
            mote__slot_unlock(s, &holes[i]);
    return rc;
}

/* What is free of this size, locked for us, behind the *got that we have: slots that hold room
 * first. */
static int take_free(mote__store *s, uint32_t payload_bytes, size_t want, mote__place *places,
                     size_t *got)
{
    enum { MAX = 2 * MOTE_STORE_BATCH };
    mote__place free[MAX], holes[MAX];
    size_t n = 0, n_holes = 0;
    uint64_t generation;
    int rc = mote__index_free_slots(&s->writer, payload_bytes, free, MAX, &n);
    for (size_t i = 0; i < n && *got + n_holes < want && !rc; i++) {
        int mine = 0;
        for (size_t k = 0; k < *got; k++)
            mine |= same_place(&places[k], &free[i]);
        for (size_t k = 0; k < s->n_doubtful; k++)
            mine |= same_place(&s->doubtful[k], &free[i]);
        if (mine || mote__slot_lock(s, &free[i]))
            continue;
        /* Whoever indexes a slot holds its lock: what is free now stays so until we let go. */
        if (mote__index_free_generation(&s->writer, free[i].segment, free[i].slot, &generation) ||
            generation != free[i].generation)
            mote__slot_unlock(s, &free[i]);
        else if (free[i].hole)
            holes[n_holes++] = free[i];
        else
            places[(*got)++] = free[i];
    }
    return rc || !n_holes ? rc : fill_holes(s, holes, n_holes, want, places, got);
}

/* Slots for `want` blocks, locked for us. Fewer where the budget, the disk or the index says no
 * (*rc then). */
static size_t take_slots(mote__store *s, uint32_t slot_bytes, uint32_t payload_bytes, size_t want,
                         mote__item *const *items, size_t n_items, mote__place *places, int *rc)
{
    waiting w = { items, n_items };
    size_t got = 0;
    *rc = 0;
    if (s->budget < (uint64_t)slot_bytes + MOTE_SEGMENT_HEADER) {
        mote__store_log(
            s, "nothing is stored: a block takes %u bytes and its file %d, the budget is %llu",
            (unsigned)slot_bytes, MOTE_SEGMENT_HEADER, (unsigned long long)s->budget);
        return 0;
    }
    for (int round = 0; round < 64; round++) {
        uint64_t room = 0, lacking = 0;
        int r = mote__index_room(&s->writer, &room);
        if (r) {
            *rc = failed(s, r, "adding up the room");
            break;
        }
        /* it was filled under another budget */
        if (room > s->budget) {
            r = mote__make_room(s, room - s->budget, 0, keep_wanted, &w);
        } else {
            r = take_free(s, payload_bytes, want, places, &got);
            if (r)
                r = failed(s, r, "looking for free slots");
            else if (got == want)
                break;
            else if ((r = grow(s, slot_bytes, payload_bytes, want - got, &lacking)) == 0)
                r = mote__make_room(s, lacking, payload_bytes, keep_wanted, &w);
        }
        if (r <= 0) {
            *rc = r;
            break;
        }
    }
    return got;
}

/* ---- blocks ---- */

/* Already there, or without a parent? `at`: its place in the batch. */
static void look_up(mote__store *s, mote__item **items, size_t at, int *rc)
{
    mote__item *it = items[at];
    mote__entry e;
    int r = mote__index_get(&s->writer, it->slot.id, &e);
    /* an entry that cannot be this block's is written anew */
    if (r == 0 &&
        (e.place.payload_bytes != it->slot.payload_bytes || e.approximate != it->slot.approximate ||
         e.n_blocks != it->slot.n_blocks || memcmp(e.parent, it->slot.parent, MOTE_STORE_ID)))
        r = mote__drop_entries(s, &e, 1) ? MOTE_EIO : MOTE_INDEX_NONE;
    if (r == MOTE_INDEX_NONE) {
        int has_parent = it->slot.n_blocks == 1;
        for (size_t k = 0; k < at; k++) {
            if (!memcmp(items[k]->slot.id, it->slot.id, MOTE_STORE_ID)) {
                /* twice in one batch; the first may still fail */
                it->end = MOTE_ITEM_DROPPED;
                return;
            }
            has_parent |= items[k]->end == MOTE_ITEM_WAITING &&
                          !memcmp(items[k]->slot.id, it->slot.parent, MOTE_STORE_ID);
        }
        if (!has_parent) {
            r = mote__index_get(&s->writer, it->slot.parent, &e);
            if (r == MOTE_INDEX_NONE)
                it->end = MOTE_ITEM_DROPPED;
        }
    } else if (r == 0) {
        it->end = MOTE_ITEM_KNOWN;
    }
    if (r < 0) {
        *rc = failed(s, r, "looking up a block");
        it->end = MOTE_ITEM_FAILED;
    }
}

static int write_slot(mote__store *s, mote__item *it, const mote__place *p)
{
    static const uint8_t zeros[MOTE_SLOT_ALIGN];
    mote__kv_view view = { 0 };
    if (it->pool && mote__kv_view_open(&view, it->pool, it->block, 1))
        return ENOMEM;
    const uint8_t *payload = it->pool ? view.bytes : it->payload;
    mote__slot_seal(it->head, p->generation, payload, p->payload_bytes, p->slot_bytes);
    mote__segfile *f = mote__segfile_get(s, p->segment);
    int e = f ? 0 : errno;
    struct iovec v[3] = { { it->head, MOTE_SLOT_HEAD },
                          { (void *)payload, p->payload_bytes },
                          { (void *)zeros, p->slot_bytes - MOTE_SLOT_HEAD - p->payload_bytes } };
    if (f) {
        e = mote__write_full(s, f->fd, v, 3, mote__slot_offset(p));
        mote__count(&s->counts.written_bytes, e ? 0 : p->slot_bytes);
        mote__segfile_put(s, f);
    }
    if (it->pool)
        mote__kv_view_close(&view, it->pool, it->block, 0);
    return e;
}

int mote__sync_segment(mote__store *s, uint32_t id)
{
    mote__segfile *f = mote__segfile_get(s, id);
    int e = !f || s->io->sync(s->io->ctx, f->fd) ? errno : 0;
    mote__segfile_put(s, f);
    return e;
}

static int index_blocks(mote__store *s, mote__item **with, const mote__place *places, size_t n)
{
    mote__index *x = &s->writer;
    int64_t now = mote__store_now(s);
    int rc = mote__index_begin(x), changed = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        mote__item *it = with[i];
        mote__entry e = { .place = places[i],
                          .approximate = it->slot.approximate,
                          .n_blocks = it->slot.n_blocks,
                          .used = now },
                    parent;
        memcpy(e.id, it->slot.id, sizeof e.id);
        memcpy(e.parent, it->slot.parent, sizeof e.parent);
        if (it->end != MOTE_ITEM_WAITING)
            continue;
        /* another process may have evicted the parent since */
        rc = it->slot.n_blocks > 1 ? mote__index_get(x, it->slot.parent, &parent) : 0;
        if (rc == MOTE_INDEX_NONE) {
            it->end = MOTE_ITEM_DROPPED;
            rc = 0;
            continue;
        }
        if (!rc)
            rc = mote__index_put(x, &e);
        changed |= !rc;
        if (rc == MOTE_INDEX_NONE) {
            it->end = mote__index_get(x, it->slot.id, &parent) ? MOTE_ITEM_FAILED : MOTE_ITEM_KNOWN;
            rc = 0;
        }
        if (!rc && it->slot.n_blocks > 1)
            rc = mote__index_touch(x, it->slot.parent, now);
    }
    if (!rc)
        rc = mote__index_commit(x);
    if (rc) {
        mote__index_rollback(x);
        rc = failed(s, rc < 0 ? rc : MOTE_EIO, "indexing blocks");
    } else if (changed) {
        mote__doubts_end(s);
    }
    return rc;
}

void mote__write_blocks(mote__store *s, mote__item **items, size_t n)
{
    mote__item *with[MOTE_STORE_BATCH];
    mote__place places[MOTE_STORE_BATCH];
    size_t want = 0, got = 0;
    int rc = atomic_load(&s->care_due) ? mote__store_care(s) : 0;
    for (size_t i = 0; i < n && !rc; i++) {
        look_up(s, items, i, &rc);
        want += items[i]->end == MOTE_ITEM_WAITING;
    }
    if (!rc && s->n_doubtful + want > sizeof s->doubtful / sizeof *s->doubtful) {
        /* nothing was committed for long: a small commit shows whether the disk is back */
        if (!(rc = mote__index_begin(&s->writer)) && !(rc = mote__index_nudge(&s->writer)) &&
            !(rc = mote__index_commit(&s->writer)))
            mote__doubts_end(s);
        else
            mote__index_rollback(&s->writer);
    }
    if (!rc && want)
        got = take_slots(s, items[0]->slot.slot_bytes, items[0]->slot.payload_bytes, want, items, n,
                         places, &rc);
    /* the first ones get the slots: they are the ancestors of the others */
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (items[i]->end != MOTE_ITEM_WAITING)
            continue;
        if (k < got)
            with[k++] = items[i];
        else
            items[i]->end = rc ? MOTE_ITEM_FAILED : MOTE_ITEM_DROPPED;
    }
    int e = 0;
    for (size_t i = 0; i < got && !e; i++)
        e = write_slot(s, with[i], &places[i]);
    for (size_t i = 0; i < got && !e; i++)
        if (i == 0 || places[i].segment != places[i - 1].segment)
            e = mote__sync_segment(s, places[i].segment);
    if (e)
        mote__store_log(s, "blocks cannot be written: %s", strerror(e));
    if (got) {
        rc = e ? MOTE_EIO : index_blocks(s, with, places, got);
        for (size_t i = 0; i < got; i++) {
            if (with[i]->end == MOTE_ITEM_WAITING || rc)
                with[i]->end = rc ? MOTE_ITEM_FAILED : MOTE_ITEM_WRITTEN;
            if (rc && !e)
                s->doubtful[s->n_doubtful++] = places[i];
            else
                mote__slot_unlock(s, &places[i]);
        }
    }
}

/* ---- small changes ---- */

int mote__drop_entries(mote__store *s, const mote__entry *entries, size_t n)
{
    int rc = mote__index_begin(&s->writer);
    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = mote__index_drop(&s->writer, &entries[i]);
    if (rc >= 0)
        rc = mote__index_commit(&s->writer);
    if (rc < 0) {
        mote__index_rollback(&s->writer);
        return failed(s, rc, "dropping blocks");
    }
    return 0;
}

void mote__write_touched(mote__store *s)
{
    uint8_t(*ids)[MOTE_STORE_ID] = NULL;
    size_t n;
    pthread_mutex_lock(&s->mutex);
    n = s->n_touched;
    if (n && (ids = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, n * sizeof *ids)) != NULL) {
        memcpy(ids, s->touched, n * sizeof *ids);
        s->n_touched = 0;
    }
    pthread_mutex_unlock(&s->mutex);
    if (!ids)
        return;
    int64_t now = mote__store_now(s);
    int rc = mote__index_begin(&s->writer);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = mote__index_touch(&s->writer, ids[i], now);
        if (!rc)
            rc = mote__index_snapshot_touch(&s->writer, ids[i], now);
    }
    if (!rc)
        rc = mote__index_commit(&s->writer);
    if (rc) {
        mote__index_rollback(&s->writer);
        failed(s, rc < 0 ? rc : MOTE_EIO, "noting times of use");
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, ids, n * sizeof *ids);
}
