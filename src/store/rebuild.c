/* The index from the segments alone. It is made beside the old one and put in its place when it is
 * whole; a crash in between leaves a directory without an index, which the next opening makes
 * again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/impl.h"
#include "base/path.h"

typedef struct job {
    mote__store *s;
    mote__index *x;
    /* for the times of use; closed where it cannot be read */
    mote__index old;
    mote__rebuilt *r;
    int64_t now;
    uint32_t *ids;
    size_t n_ids, id_room;
    int rc;
} job;

static int note_id(void *ctx, const char *digits)
{
    job *j = ctx;
    if (mote__list_grow(&j->s->meter, MOTE_MEM_SCRATCH, &j->ids, j->n_ids, &j->id_room,
                        sizeof *j->ids))
        return j->rc = MOTE_ENOMEM;
    j->ids[j->n_ids++] = (uint32_t)strtoul(digits, NULL, 16);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int is_hole(int fd, off_t at, size_t n)
{
    off_t data = lseek(fd, at, SEEK_DATA);
    return data < 0 ? errno == ENXIO : data >= at + (off_t)n;
}

/* A time of the old index, where it can be one. */
static int64_t time_between(const job *j, int64_t used)
{
    return used > 0 && used <= j->now ? used : j->now;
}

/* When a block was used, where the old index knew it in this very place. */
static int64_t time_of_use(job *j, const mote__entry *e)
{
    mote__entry was;
    if (!j->old.db || mote__index_get(&j->old, e->id, &was) ||
        was.place.segment != e->place.segment || was.place.slot != e->place.slot ||
        was.place.generation != e->place.generation)
        return j->now;
    return time_between(j, was.used);
}

static int scan_segment(job *j, uint32_t id)
{
    mote__store *s = j->s;
    mote__segment g;
    const char *why = NULL;
    mote__segment_state state = mote__segment_look(s, id, 1, &g, &why);
    mote__segfile *f = state == MOTE_SEGMENT_SOUND ? mote__segfile_get(s, id) : NULL;
    if (state == MOTE_SEGMENT_NO_MEMORY || (!f && state == MOTE_SEGMENT_SOUND && errno == ENOMEM))
        return MOTE_ENOMEM;
    if (!f) {
        if (state == MOTE_SEGMENT_SOUND || state == MOTE_SEGMENT_UNREADABLE)
            mote__store_log(s, "segment %08x is left out: %s", (unsigned)id,
                            why ? why : strerror(errno));
        return 0; /* a stray file: whoever opens the store tells of it */
    }
    uint64_t *unused = NULL, highest = 0;
    uint8_t *image = NULL;
    int rc = 0;
    /* generation of each slot that is not whole, 0 where it cannot be told; ~0: in use */
    unused = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, mote__mul(g.n_slots, sizeof *unused));
    image = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, g.slot_bytes);
    rc = unused && image ? mote__index_add_segment(j->x, &g) : MOTE_ENOMEM;
    j->r->segments++;
    for (uint32_t i = 0; i < g.n_slots && !rc; i++) {
        mote__entry e = { .place = { id, i, g.slot_bytes, g.payload_bytes, 0, 0 }, .used = j->now };
        mote__slot slot;
        j->r->slots++;
        if (is_hole(f->fd, mote__slot_offset(&e.place), g.slot_bytes))
            continue;
        int bad = mote__slot_load(s, &e.place, image, &slot, &why);
        if (bad == MOTE_ENOMEM) {
            rc = bad;
            break;
        }
        if (bad) {
            int ours = !memcmp(image, "MOTESLT1", 8);
            j->r->damaged += (uint64_t)ours;
            continue;
        }
        highest = slot.generation > highest && !(slot.generation >> 62) ? slot.generation : highest;
        unused[i] = slot.generation;
        e.place.generation = slot.generation;
        e.approximate = slot.approximate;
        e.n_blocks = slot.n_blocks;
        memcpy(e.id, slot.id, sizeof e.id);
        memcpy(e.parent, slot.parent, sizeof e.parent);
        e.used = time_of_use(j, &e);
        rc = mote__index_insert(j->x, &e);
        if (!rc)
            unused[i] = UINT64_MAX;
        j->r->blocks += !rc;
        j->r->duplicates += rc == MOTE_INDEX_NONE;
        rc = rc == MOTE_INDEX_NONE ? 0 : rc;
    }
    for (uint32_t i = 0; i < g.n_slots && !rc; i++) {
        mote__place p = { id, i, g.slot_bytes, g.payload_bytes, highest + 1, 0 };
        p.hole = is_hole(f->fd, mote__slot_offset(&p), g.slot_bytes);
        if (unused[i] != UINT64_MAX)
            rc = mote__index_put_free(j->x, &p);
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, unused, mote__mul(g.n_slots, sizeof *unused));
    mote__free(&s->meter, MOTE_MEM_SCRATCH, image, g.slot_bytes);
    mote__segfile_put(s, f);
    return rc;
}

static int scan_snapshot(void *ctx, const char *digits)
{
    job *j = ctx;
    char name[64];
    uint8_t key[MOTE_STORE_ID], *file = NULL;
    const uint8_t *tail, *blob;
    size_t n = 0;
    mote__snapfile snap;
    const char *why = "name";
    for (size_t i = 0; i < sizeof key; i++) {
        unsigned byte = 0;
        sscanf(digits + 2 * i, "%2x", &byte);
        key[i] = (uint8_t)byte;
    }
    int e = mote__snap_load(j->s, key, &file, &n);
    if (e == ENOMEM)
        return j->rc = MOTE_ENOMEM;
    int bad = e || mote__snapfile_read(&snap, file, n, &tail, &blob, &why) ||
              memcmp(snap.key, key, sizeof key);
    if (bad) {
        j->r->damaged_snapshots++;
        mote__store_log(j->s, "snapshot %s is damaged (%s) and goes", digits,
                        e && e != ENODATA ? strerror(e)
                        : e               ? "it is cut or no file"
                                          : why);
        mote__snap_name(name, key);
        if (!e || e == ENODATA)
            mote__store_clear_name(j->s, name);
    } else {
        mote__snap_entry entry = { .chain = snap.chain,
                                   .approximate = snap.approximate,
                                   .n_tail = snap.n_tail,
                                   .bytes = n,
                                   .created = (int64_t)(snap.created & INT64_MAX),
                                   .used = j->now };
        memcpy(entry.key, key, sizeof key);
        memcpy(entry.tokens, snap.tokens, sizeof entry.tokens);
        mote__snap_entry was;
        if (j->old.db && !mote__index_snapshot_get(&j->old, key, &was) &&
            was.created == entry.created)
            entry.used = time_between(j, was.used);
        j->rc = mote__index_snapshot_put(j->x, &entry);
        j->r->snapshots++;
    }
    mote__free(&j->s->meter, MOTE_MEM_SCRATCH, file, n);
    return j->rc;
}

/* ---- names that are out of place ---- */

typedef struct names {
    mote__store *s;
    size_t n, room;
    char (*list)[MOTE_STORE_NAME];
} names;

static int note_name(names *t, const char *prefix, const char *digits)
{
    if (mote__list_grow(&t->s->meter, MOTE_MEM_SCRATCH, &t->list, t->n, &t->room, sizeof *t->list))
        return MOTE_ENOMEM;
    snprintf(t->list[t->n++], sizeof *t->list, "%s%s.mote", prefix, digits);
    return 0;
}
static int note_segment(void *ctx, const char *digits) { return note_name(ctx, "seg-", digits); }
static int note_snapshot(void *ctx, const char *digits) { return note_name(ctx, "snap-", digits); }

void mote__store_sort_out(mote__store *s)
{
    names t = { .s = s };
    mote__store_list(s, "seg-", 8, note_segment, &t);
    for (size_t i = 0; i < t.n; i++) {
        mote__segment g;
        const char *why = NULL;
        mote__segment_state state = mote__segment_look(s,
                                                       (uint32_t)strtoul(t.list[i] + 4, NULL, 16),
                                                       0, &g, &why);
        if (state == MOTE_SEGMENT_FOREIGN || state == MOTE_SEGMENT_SHORT)
            mote__store_set_aside(s, t.list[i], why);
    }
    mote__list_free(&s->meter, MOTE_MEM_SCRATCH, t.list, t.room, sizeof *t.list);
}

void mote__store_remove_all(mote__store *s)
{
    names t = { .s = s };
    mote__store_list(s, "seg-", 8, note_segment, &t);
    size_t n_segments = t.n;
    mote__store_list(s, "snap-", 2 * MOTE_STORE_ID, note_snapshot, &t);
    for (size_t i = 0; i < t.n; i++) {
        mote__segment g;
        const char *why = NULL;
        if (i >= n_segments || mote__segment_look(s, (uint32_t)strtoul(t.list[i] + 4, NULL, 16), 0,
                                                  &g, &why) == MOTE_SEGMENT_SOUND)
            mote__store_clear_name(s, t.list[i]);
    }
    mote__segfiles_sweep(s, 0);
    mote__list_free(&s->meter, MOTE_MEM_SCRATCH, t.list, t.room, sizeof *t.list);
}

/* ---- the new index in the old one's place ---- */

/* Fills index.new. *full: for want of room. */
static int fill(mote__store *s, const char *fresh, job *j, int *full, mote_err *err)
{
    mote__index x = { 0 };
    char old[MOTE_PATH_ROOM];
    j->x = &x;
    j->n_ids = 0;
    j->rc = 0;
    *j->r = (mote__rebuilt){ 0 };
    *full = 0;
    int e = mote__store_clear_name(s, "index.new"), fd = -1;
    if (!e)
        e = mote__store_clear_name(s, "index.new-journal");
    if (!e &&
        (fd = s->io->open(s->io->ctx, fresh, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600)) < 0)
        e = errno;
    *full = e == ENOSPC || e == EDQUOT;
    if (e)
        return mote__fail(err, MOTE_EIO, "%s: cannot create: %s", fresh, strerror(e));
    s->io->close(s->io->ctx, fd);
    int rc = mote__index_open(&x, fresh, MOTE_INDEX_CREATE, mote__vfs_name(s->vfs), NULL, err);
    *full = rc && x.full;
    if (!rc) {
        mote__store_path(s, old, "index.db");
        mote__index_open(&j->old, old, MOTE_INDEX_READ, mote__vfs_name(s->vfs), NULL, NULL);
        mote__store_list(s, "seg-", 8, note_id, j);
        if (j->n_ids)
            qsort(j->ids, j->n_ids, sizeof *j->ids, by_number);
        rc = j->rc;
        for (size_t i = 0; i < j->n_ids && !rc; i++)
            rc = j->ids[i] ? scan_segment(j, j->ids[i]) : 0;
        if (!rc) {
            mote__store_list(s, "snap-", 2 * MOTE_STORE_ID, scan_snapshot, j);
            rc = j->rc;
        }
        if (!rc)
            rc = mote__index_commit(&x);
        *full = rc && x.full;
        if (rc)
            mote__fail(err, rc == MOTE_ENOMEM ? rc : MOTE_EIO, "%s: cannot make the index anew: %s",
                       fresh, rc == MOTE_ENOMEM ? "out of memory" : x.why);
        mote__index_close(&x);
        mote__index_close(&j->old);
    }
    if (rc) {
        s->io->unlink(s->io->ctx, fresh);
        rc = rc == MOTE_ENOMEM ? rc : MOTE_EIO;
    }
    return rc;
}

/* No database without its log, no log without its database: the old one goes as a whole. 0 or
 * errno. */
static int remove_old(mote__store *s)
{
    static const char *const logs[] = { "index.db-journal", "index.db-wal", "index.db-shm" };
    int e = mote__store_clear_name(s, "index.db");
    if (!e && s->io->sync_dir(s->io->ctx, s->dir))
        e = errno;
    for (size_t i = 0; i < sizeof logs / sizeof *logs && !e; i++)
        e = mote__store_clear_name(s, logs[i]);
    return e ? e : s->io->sync_dir(s->io->ctx, s->dir) ? errno : 0;
}

int mote__store_make_index(mote__store *s, mote__rebuilt *r, mote_err *err)
{
    char fresh[MOTE_PATH_ROOM], old[MOTE_PATH_ROOM];
    int full;
    mote__store_path(s, fresh, "index.new");
    mote__store_path(s, old, "index.db");
    job j = { .s = s, .r = r, .now = mote__store_now(s) };
    int rc = fill(s, fresh, &j, &full, err);
    if (rc && full && !remove_old(s)) /* on a full disk in its own room */
        rc = fill(s, fresh, &j, &full, err);
    if (!rc) {
        int e = remove_old(s);
        if (!e && (s->io->rename(s->io->ctx, fresh, old) || s->io->sync_dir(s->io->ctx, s->dir)))
            e = errno;
        if (e)
            rc = mote__fail(err, MOTE_EIO, "%s: cannot put the new index in place: %s", old,
                            strerror(e));
    }
    if (!rc) {
        mote__count(&s->counts.rebuilds, r->segments != 0);
    }
    mote__list_free(&s->meter, MOTE_MEM_SCRATCH, j.ids, j.id_room, sizeof *j.ids);
    return rc;
}
