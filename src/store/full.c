/* A disk without room: how gc and rm give some back all the same. The index needs room to write
 * down that room was given back; so the room goes first, and the index hears of it after. A crash
 * in between leaves entries whose slots are not whole, which are found. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "store/impl.h"
#include "base/path.h"

static uint64_t room_left(const mote__store *s)
{
    struct statvfs v;
    return statvfs(s->dir, &v) ? UINT64_MAX : (uint64_t)v.f_bavail * v.f_frsize;
}

/* What a transaction of some hundred rows may take: the index itself at most. */
static uint64_t journal_room(const mote__store *s)
{
    char path[MOTE_PATH_ROOM];
    struct stat st;
    mote__store_path(s, path, "index.db");
    uint64_t n = stat(path, &st) ? 0 : (uint64_t)st.st_size + 16384;
    return n < MOTE_STORE_ENOUGH ? n : MOTE_STORE_ENOUGH;
}

/* A commit that changes nothing but is written. */
static int can_commit(mote__store *s)
{
    int rc = mote__index_begin(&s->writer);
    if (!rc)
        rc = mote__index_nudge(&s->writer);
    if (!rc)
        rc = mote__index_commit(&s->writer);
    mote__index_rollback(&s->writer);
    return !rc || !s->writer.full; /* other failures are not ours to deal with */
}

static int empty_slot(mote__store *s, const mote__place *p)
{
    if (mote__slot_lock(s, p))
        return 0;
    mote__segfile *f = mote__segfile_get(s, p->segment);
    int done = f && !s->io->punch(s->io->ctx, f->fd, mote__slot_offset(p), p->slot_bytes);
    mote__segfile_put(s, f);
    mote__slot_unlock(s, p);
    return done;
}

static int by_age(const void *a, const void *b)
{
    const mote__entry *x = a, *y = b;
    if (x->used != y->used)
        return x->used < y->used ? -1 : 1;
    /* descendants first */
    return x->n_blocks > y->n_blocks ? -1 : x->n_blocks < y->n_blocks;
}

static int is_short(mote__store *s, uint64_t bytes)
{
    return room_left(s) < bytes || !can_commit(s);
}

enum { CANDIDATES = 1024, MOST = 64 /* that wait for room to be dropped */ };
typedef struct giving {
    mote__entry waiting[MOST];
    size_t n_waiting;
    uint64_t n_emptied, n_seen;
} giving;

static int is_waiting(const giving *g, const mote__entry *e)
{
    for (size_t i = 0; i < g->n_waiting; i++)
        if (!memcmp(g->waiting[i].id, e->id, sizeof e->id))
            return 1;
    return 0;
}

/* 0, or negative: the index failed otherwise than for want of room. */
static int give_way(mote__store *s, const mote__entry *e, giving *g)
{
    g->n_seen++;
    g->n_emptied += (uint64_t)empty_slot(s, &e->place);
    if (!mote__drop_entries(s, e, 1))
        return 0;
    if (!s->writer.full)
        return MOTE_EIO;
    g->waiting[g->n_waiting++] = *e;
    return 0;
}

/* The blocks without children, the least recently used first, as long as room is short. */
static int empty_leaves(mote__store *s, uint64_t bytes, giving *g)
{
    mote__victims v = { .before = INT64_MAX };
    int rc = mote__victims_find(s, &v, CANDIDATES);
    if (v.heap.n)
        qsort(v.heap.list, v.heap.n, sizeof *v.heap.list, by_age);
    for (size_t i = 0; !rc && i < v.heap.n && g->n_waiting < MOST && is_short(s, bytes); i++)
        if (!is_waiting(g, &v.heap.list[i]))
            rc = give_way(s, &v.heap.list[i], g);
    mote__victims_end(&v);
    return rc;
}

/* Where no leaf could be dropped yet: any block. */
static int empty_any(mote__store *s, uint64_t bytes, giving *g)
{
    mote__entry e = { 0 };
    int rc = 0;
    for (const uint8_t *after = NULL; !rc && g->n_waiting < MOST && is_short(s, bytes) &&
                                      !(rc = mote__index_next(&s->writer, after, &e));
         after = e.id)
        if (!is_waiting(g, &e))
            rc = give_way(s, &e, g);
    return rc;
}

void mote__store_make_way(mote__store *s, int much, int tell)
{
    mote__place p = { 0 };
    giving g = { 0 };
    uint64_t bytes = much ? journal_room(s) : 0;
    if (room_left(s) >= MOTE_STORE_ENOUGH)
        return;
    for (int64_t slot = -1; !mote__index_free_next(&s->writer, p.segment, slot, &p); slot = p.slot)
        empty_slot(s, &p);
    for (uint64_t seen = UINT64_MAX; g.n_seen != seen && is_short(s, bytes);) {
        seen = g.n_seen;
        if (empty_leaves(s, bytes, &g))
            break;
    }
    empty_any(s, bytes, &g);
    if (g.n_waiting)
        mote__drop_entries(s, g.waiting, g.n_waiting);
    if (g.n_emptied && tell)
        mote__store_log(s, "the disk is full: the %llu least recently used blocks gave way",
                        (unsigned long long)g.n_emptied);
}
