/* A disk without room: how gc and rm give some back all the same. The index needs room to write
 * down that room was given back; so the room goes first, and the index hears of it after. A crash
 * in between leaves entries whose slots are not whole, which are found. */
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "store/impl.h"

static uint64_t room_left(const mote__store *s)
{
    struct statvfs v;
    return statvfs(s->dir, &v) ? UINT64_MAX : (uint64_t)v.f_bavail * v.f_frsize;
}

/* What a transaction of some hundred rows may take: the index itself at most. */
static uint64_t journal_room(const mote__store *s)
{
    char path[4200];
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

/* The next to give way: a leaf, the least recently used first, or, where no leaf could be dropped yet,
 * any block. n: those that wait to be dropped. */
static int next_victim(mote__store *s, const mote__entry *waiting, size_t n, mote__entry *e)
{
    int rc = mote__index_leaf(&s->writer, (int64_t)n, e), taken = 1;
    for (const uint8_t *after = NULL; rc == MOTE_INDEX_NONE && taken; after = e->id) {
        if (mote__index_next(&s->writer, after, e))
            return MOTE_INDEX_NONE;
        taken = 0;
        for (size_t i = 0; i < n; i++)
            taken |= !memcmp(waiting[i].id, e->id, MOTE_STORE_ID);
        if (!taken)
            return 0;
    }
    return rc;
}

void mote__store_make_way(mote__store *s, int much, int tell)
{
    enum { MOST = 64 }; /* that wait for room to be dropped */
    mote__place p = { 0 };
    mote__entry e, waiting[MOST];
    size_t n_waiting = 0;
    uint64_t n = 0, bytes = much ? journal_room(s) : 0;
    if (room_left(s) >= MOTE_STORE_ENOUGH)
        return;
    for (int64_t slot = -1; !mote__index_free_next(&s->writer, p.segment, slot, &p); slot = p.slot)
        empty_slot(s, &p);
    while (n_waiting < MOST && (room_left(s) < bytes || !can_commit(s)) &&
           !next_victim(s, waiting, n_waiting, &e)) {
        n += (uint64_t)empty_slot(s, &e.place);
        if (mote__drop_entries(s, &e, 1)) {
            if (!s->writer.full)
                break;
            waiting[n_waiting++] = e;
        }
    }
    if (n_waiting)
        mote__drop_entries(s, waiting, n_waiting);
    if (n && tell)
        mote__store_log(s, "the disk is full: the %llu least recently used blocks gave way",
                        (unsigned long long)n);
}
