/* The index compared with the files that are there, at opening and whenever a segment turns out to
 * be another than the index says.
 *
 * What the index says of a segment: that there is such a file, its sizes, and that each of its
 * slots is in `block` or in `free`. Where that is not so, the file is right: rows that cannot be
 * go, slots that no row names are read, and what is whole in them is taken in. Nothing is believed
 * of a row that was not compared with the file. Times of use are kept.
 *
 * What this leaves to others: whether a slot holds what its row says (store/match.c and verify), an
 * index that SQLite itself calls damaged (store/rebuild.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/le.h"
#include "store/impl.h"
#include "base/path.h"

/* ---- a segment's file ---- */

/* Sizes by the first whole slot: one that begins with its magic, at a place where such a slot can
 * be, and passes every check. 0, 1: there is none, or MOTE_ENOMEM. */
static int find_sizes(mote__store *s, int fd, off_t size, mote__segment *g)
{
    enum { PAGES = 1 << 16 }; /* so many are looked at: 256 MiB that hold data */
    uint8_t head[32];
    const char *why;
    off_t at = MOTE_SEGMENT_HEADER;
    for (int i = 0; i < PAGES; i++, at += MOTE_SLOT_ALIGN) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        if (data > at)
            at = (data + MOTE_SLOT_ALIGN - 1) / MOTE_SLOT_ALIGN * MOTE_SLOT_ALIGN;
        if (at + MOTE_SLOT_HEAD > size ||
            mote__read_full(s, fd, &(struct iovec){ head, sizeof head }, 1, at))
            break;
        size_t slot_bytes = mote__le32(head + 16), payload = mote__le32(head + 20);
        if (memcmp(head, "MOTESLT1", 8) || !slot_bytes || slot_bytes != mote__slot_bytes(payload) ||
            (size_t)(at - MOTE_SEGMENT_HEADER) % slot_bytes || (off_t)slot_bytes > size - at)
            continue;
        mote__slot slot;
        uint8_t *image = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, slot_bytes);
        if (!image)
            return MOTE_ENOMEM;
        int whole = !mote__read_full(s, fd, &(struct iovec){ image, slot_bytes }, 1, at) &&
                    !mote__slot_read(&slot, image, image + MOTE_SLOT_HEAD, payload,
                                     image + MOTE_SLOT_HEAD + payload, slot_bytes, &why);
        mote__free(&s->meter, MOTE_MEM_SCRATCH, image, slot_bytes);
        if (whole) {
            g->slot_bytes = (uint32_t)slot_bytes;
            g->payload_bytes = (uint32_t)payload;
            return 0;
        }
    }
    return 1;
}

static int write_header(mote__store *s, const char *path, const mote__segment *g)
{
    uint8_t page[MOTE_SEGMENT_HEADER];
    mote__segment_header h = { g->id, g->slot_bytes, g->payload_bytes };
    mote__segment_write(page, &h);
    int fd = mote__store_open_file(s, path, O_RDWR, 0);
    int e = fd < 0 ? errno : mote__write_full(s, fd, &(struct iovec){ page, sizeof page }, 1, 0);
    if (!e && s->io->sync(s->io->ctx, fd))
        e = errno;
    if (fd >= 0)
        s->io->close(s->io->ctx, fd);
    mote__segfile_kill(s, g->id); /* it was opened as a file of somebody else's */
    return e;
}

mote__segment_state mote__segment_look(mote__store *s, uint32_t id, int mend, mote__segment *g,
                                       const char **why)
{
    char name[32], path[MOTE_PATH_ROOM];
    uint8_t page[MOTE_SEGMENT_HEADER];
    mote__segment_header h;
    struct stat st;
    *g = (mote__segment){ .id = id };
    mote__segment_name(name, id);
    mote__store_path(s, path, name);
    int fd = mote__store_open_file(s, path, O_RDONLY, 0), e = fd < 0 ? errno : 0;
    if (fd < 0 && e == ENOENT)
        return MOTE_SEGMENT_GONE;
    if (fd < 0) {
        *why = mote__file_problem(e);
        return mote__file_is_other(e) ? MOTE_SEGMENT_FOREIGN : MOTE_SEGMENT_UNREADABLE;
    }
    mote__segment_state state = MOTE_SEGMENT_SOUND;
    off_t size = fstat(fd, &st) ? 0 : st.st_size;
    e = mote__read_full(s, fd, &(struct iovec){ page, sizeof page }, 1, 0);
    if (e && e != ENODATA) {
        *why = strerror(e);
        state = MOTE_SEGMENT_UNREADABLE;
    } else if (e) {
        *why = "it is shorter than a header";
        state = MOTE_SEGMENT_SHORT;
    } else if (!mote__segment_read(&h, page, sizeof page, why)) {
        *why = h.id == id ? NULL : "it has another one's number";
        state = *why ? MOTE_SEGMENT_FOREIGN : MOTE_SEGMENT_SOUND;
        g->slot_bytes = h.slot_bytes;
        g->payload_bytes = h.payload_bytes;
    } else if (id && (e = find_sizes(s, fd, size, g)) == MOTE_ENOMEM) {
        state = MOTE_SEGMENT_NO_MEMORY;
    } else if (!id || e) {
        *why = "it is none of this version, and no whole block is in it";
        state = MOTE_SEGMENT_FOREIGN;
    } else if (mend && !s->read_only) {
        int bad = write_header(s, path, g);
        mote__store_log(s, "%s: its header was damaged (%s) and %s", name, *why,
                        bad ? "cannot be written" : "is written again");
    }
    s->io->close(s->io->ctx, fd);
    uint64_t largest = s->tuning.segment_bytes > (size_t)4 << 30 ? s->tuning.segment_bytes
                                                                 : (uint64_t)4 << 30,
             bytes = (uint64_t)size;
    bytes = bytes < largest ? bytes : largest; /* nobody makes larger ones */
    g->n_slots = bytes > MOTE_SEGMENT_HEADER && g->slot_bytes
                     ? (uint32_t)((bytes - MOTE_SEGMENT_HEADER) / g->slot_bytes)
                     : 0;
    return state;
}

/* ---- the rows of one segment ---- */

/* 1, 0 or MOTE_ENOMEM. */
static int holds(mote__store *s, const mote__entry *e, uint8_t *image)
{
    mote__slot slot;
    const char *why;
    int rc = mote__slot_load(s, &e->place, image, &slot, &why);
    return rc == MOTE_ENOMEM ? rc : !rc && !mote__slot_matches(&slot, e, &why);
}

/* A slot in both tables: the file says which row is right. */
static int end_overlaps(mote__store *s, const mote__segment *g, uint8_t *image, uint64_t *n)
{
    mote__index *x = &s->writer;
    mote__place p;
    mote__entry e;
    int rc = 0;
    for (int64_t after = -1; !rc && !(rc = mote__index_overlap(x, g->id, after, &p));
         after = p.slot) {
        rc = mote__index_at(x, &p, &e);
        int whole = rc ? rc : holds(s, &e, image);
        if (!rc)
            rc = whole < 0 ? whole : whole ? mote__index_take_free(x, &p) : mote__index_drop(x, &e);
        ++*n;
        rc = rc == MOTE_INDEX_NONE ? 0 : rc;
    }
    return rc < 0 ? rc : 0;
}

/* A slot that no row names: what is whole in it is taken in, everything else is free. */
static int take_in(mote__store *s, const mote__place *place, uint8_t *image)
{
    mote__slot slot;
    const char *why;
    mote__entry e = { .place = *place, .used = mote__store_now(s) };
    mote__place p = *place;
    p.generation = 1;
    int bad = mote__slot_load(s, place, image, &slot, &why);
    if (bad == MOTE_ENOMEM)
        return bad;
    if (!bad) {
        p.generation = mote__next_generation(slot.generation);
        e.place.generation = slot.generation;
        e.approximate = slot.approximate;
        e.n_blocks = slot.n_blocks;
        memcpy(e.id, slot.id, sizeof e.id);
        memcpy(e.parent, slot.parent, sizeof e.parent);
        int rc = mote__index_insert(&s->writer, &e);
        if (rc <= 0)
            return rc;
    }
    return mote__index_put_free(&s->writer, &p);
}

/* Inside a transaction. g: what the file is. */
static int mend_rows(mote__store *s, const mote__segment *g, uint64_t *n_dropped)
{
    mote__index *x = &s->writer;
    mote__entry e;
    uint64_t generation, n = 0;
    uint8_t *image = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, g->slot_bytes);
    int rc = image ? mote__index_set_sizes(x, g) : MOTE_ENOMEM;
    if (!rc)
        rc = mote__index_drop_beyond(x, g->id, g->n_slots, n_dropped);
    if (!rc)
        rc = end_overlaps(s, g, image, &n);
    for (uint32_t i = 0; i < g->n_slots && !rc; i++) {
        mote__place p = { g->id, i, g->slot_bytes, g->payload_bytes, 0, 0 };
        rc = mote__index_at(x, &p, &e);
        if (rc == MOTE_INDEX_NONE)
            rc = mote__index_free_generation(x, g->id, i, &generation);
        if (rc == MOTE_INDEX_NONE)
            rc = take_in(s, &p, image);
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, image, g->slot_bytes);
    return rc;
}

/* ---- all of it ---- */

/* By segment: how many rows, and how far they go. */
typedef struct tally {
    mote__census *rows;
    size_t n, room;
} tally;

static int count_rows(mote__store *s, int of_free, tally *t)
{
    enum { STEP = 64 };
    t->n = 0;
    for (size_t n = STEP; n == STEP;) {
        mote__census step[STEP];
        int rc = mote__index_census(&s->writer, of_free,
                                    t->n ? t->rows[t->n - 1].segment : INT64_MIN, step, STEP, &n);
        for (size_t i = 0; i < n && !rc; i++) {
            rc = mote__list_grow(&s->meter, MOTE_MEM_SCRATCH, &t->rows, t->n, &t->room,
                                 sizeof *t->rows);
            if (!rc)
                t->rows[t->n++] = step[i];
        }
        if (rc)
            return rc;
    }
    return 0;
}

static void end_tally(mote__store *s, tally *t)
{
    mote__list_free(&s->meter, MOTE_MEM_SCRATCH, t->rows, t->room, sizeof *t->rows);
}

static const mote__census *rows_of(const tally *t, int64_t segment)
{
    static const mote__census none = { .highest = -1 };
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].segment == segment)
            return &t->rows[i];
    return &none;
}

typedef struct segments {
    mote__segment *list;
    size_t n, room;
} segments;

static int all_known(const tally *t, const segments *all)
{
    size_t known = 0;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < all->n; k++)
            known += t->rows[i].segment == all->list[k].id;
    return known == t->n;
}

/* The segments that the index knows. */
static int list_segments(mote__store *s, segments *all)
{
    mote__segment g;
    int rc = 0;
    for (int64_t after = -1; !(rc = mote__index_next_segment(&s->writer, after, &g));
         after = g.id) {
        if (mote__list_grow(&s->meter, MOTE_MEM_SCRATCH, &all->list, all->n, &all->room, sizeof g))
            return MOTE_ENOMEM;
        all->list[all->n++] = g;
    }
    return rc < 0 ? rc : 0;
}

/* One segment: its file is not there or not one, or its rows do not fit. Counts what is off; mend:
 * inside a transaction, and put right. */
static int care_for(mote__store *s, const mote__segment *g, const mote__census *blocks,
                    const mote__census *unused, int mend, int *off)
{
    mote__index *x = &s->writer;
    mote__segment file;
    const char *why = NULL;
    uint64_t n = 0;
    mote__place p;
    int rc = 0;
    mote__segment_state state = mote__segment_look(s, g->id, mend, &file, &why);
    if (state == MOTE_SEGMENT_NO_MEMORY)
        return MOTE_ENOMEM;
    if (state == MOTE_SEGMENT_UNREADABLE)
        return 0; /* whoever looks for its blocks tells of it */
    if (state != MOTE_SEGMENT_SOUND) {
        ++*off;
        rc = mend ? mote__index_forget_segment(x, g->id, &n) : 0;
        if (mend && !rc)
            mote__store_log(s, "segment %08x is gone (%s), and %llu blocks with it",
                            (unsigned)g->id, why ? why : "there is no such file",
                            (unsigned long long)n);
        return rc;
    }
    *off += why != NULL; /* a header to be written again */
    int fits = file.slot_bytes == g->slot_bytes && file.payload_bytes == g->payload_bytes &&
               blocks->n + unused->n == g->n_slots && blocks->highest < (int64_t)file.n_slots &&
               blocks->highest < (int64_t)g->n_slots && unused->highest < (int64_t)g->n_slots &&
               blocks->lowest >= 0 && unused->lowest >= 0;
    if (fits) {
        rc = mote__index_overlap(x, g->id, -1, &p);
        if (rc)
            return rc < 0 ? rc : 0;
    }
    ++*off;
    if (mend) {
        rc = mend_rows(s, &file, &n);
        if (!rc)
            mote__store_log(s,
                            "the index was wrong about segment %08x and is mended: %llu of its "
                            "blocks were not there",
                            (unsigned)g->id, (unsigned long long)n);
    }
    return rc;
}

/* Everything but snapshots, inside a transaction: of reading, to see what is off; of writing, to
 * mend it. */
static int examine(mote__store *s, int mend, int *off)
{
    mote__index *x = &s->writer;
    segments all = { 0 };
    tally blocks = { 0 }, unused = { 0 };
    uint64_t odd = 0, lost = 0;
    int64_t now = mote__store_now(s);
    *off = 0;
    int rc = list_segments(s, &all);
    if (!rc)
        rc = count_rows(s, 0, &blocks);
    if (!rc)
        rc = count_rows(s, 1, &unused);
    if (!rc)
        rc = mote__index_odd(x, now, &odd);
    if (!rc && (odd || !all_known(&blocks, &all) || !all_known(&unused, &all))) {
        ++*off;
        if (mend) {
            rc = mote__index_drop_lost(x, &lost);
            if (!rc)
                rc = mote__index_mend_times(x, now);
            if (!rc)
                mote__store_log(s,
                                "the index had numbers that cannot be, and is mended: %llu of its "
                                "blocks were nowhere",
                                (unsigned long long)lost);
            if (!rc)
                rc = count_rows(s, 1, &unused);
        }
    }
    for (size_t i = 0; i < all.n && !rc; i++)
        rc = care_for(s, &all.list[i], rows_of(&blocks, all.list[i].id),
                      rows_of(&unused, all.list[i].id), mend, off);
    mote__list_free(&s->meter, MOTE_MEM_SCRATCH, all.list, all.room, sizeof *all.list);
    end_tally(s, &blocks);
    end_tally(s, &unused);
    return rc;
}

/* Snapshots without a file, or whose files have other sizes than the index says, which is what
 * their budget counts. */
static int care_for_snapshots(mote__store *s)
{
    mote__snap_entry e, now;
    int rc;
    for (const uint8_t *after = NULL; !(rc = mote__index_snapshot_next(&s->writer, after, &e));
         after = e.key) {
        char name[64], path[MOTE_PATH_ROOM];
        struct stat st;
        mote__snap_name(name, e.key);
        mote__store_path(s, path, name);
        int gone = lstat(path, &st) || !S_ISREG(st.st_mode);
        if (gone && !mote__index_snapshot_get(&s->writer, e.key, &now) &&
            (lstat(path, &st) || !S_ISREG(st.st_mode))) {
            mote__drop_snapshot(s, e.key);
            mote__store_log(s, "%s is gone", name);
            s->mended++;
        } else if (!gone && (uint64_t)st.st_size != e.bytes) {
            rc = mote__index_snapshot_set_bytes(&s->writer, e.key, (uint64_t)st.st_size);
            s->mended++;
            if (rc)
                break;
        }
    }
    return rc < 0 ? rc : 0;
}

int mote__store_care(mote__store *s)
{
    mote__index *x = &s->writer;
    int off = 0;
    atomic_store(&s->care_due, 0);
    int rc = mote__index_begin_read(x);
    if (!rc)
        rc = examine(s, 0, &off);
    if (!rc)
        rc = mote__index_commit(x);
    if (!rc && off) {
        rc = mote__index_begin(x);
        if (!rc)
            rc = examine(s, 1, &off);
        if (!rc)
            rc = mote__index_commit(x);
        s->mended += !rc && off;
    }
    mote__index_rollback(x);
    if (!rc)
        rc = care_for_snapshots(s);
    atomic_store(&s->care_due, 0);
    if (rc < 0 && rc != MOTE_ENOMEM)
        mote__store_index_failed(s, x, rc, "comparing it with the files");
    return rc < 0 ? rc : 0;
}
