/* The index from the segments alone. It is made beside the old one and put in its place when it is whole; a crash in between leaves a
 * directory without an index, which the next opening makes again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "store/impl.h"

int mote__store_list(const mote__store *s, const char *prefix, size_t digits, int (*f)(void *ctx, const char *digits), void *ctx)
{
    DIR *d = opendir(s->dir);
    if (!d)
        return MOTE_EIO;
    size_t n = strlen(prefix);
    int rc = 0;
    for (struct dirent *e; !rc && (e = readdir(d)) != NULL;) {
        char middle[64];
        if (strncmp(e->d_name, prefix, n) || strlen(e->d_name) != n + digits + 5 || strcmp(e->d_name + n + digits, ".mote") ||
            strspn(e->d_name + n, "0123456789abcdef") < digits || digits >= sizeof middle)
            continue;
        memcpy(middle, e->d_name + n, digits);
        middle[digits] = 0;
        rc = f(ctx, middle);
    }
    closedir(d);
    return rc;
}

typedef struct job {
    mote__store *s;
    mote__index *x;
    mote__index old;                       /* for the times of use; closed where it cannot be read */
    mote__rebuilt *r;
    int64_t now;
    uint32_t *ids;
    size_t n_ids, capacity;
    int rc;
} job;

static int note_id(void *ctx, const char *digits)
{
    job *j = ctx;
    if (j->n_ids == j->capacity) {
        size_t capacity = j->capacity ? 2 * j->capacity : 64;
        uint32_t *ids = realloc(j->ids, capacity * sizeof *ids);
        if (!ids)
            return j->rc = MOTE_ENOMEM;
        j->ids = ids;
        j->capacity = capacity;
    }
    j->ids[j->n_ids++] = (uint32_t)strtoul(digits, NULL, 16);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Sizes from the segment's header or, where that is damaged, from the first slots' own. */
static int segment_sizes(mote__store *s, int fd, uint32_t id, off_t size, mote__segment *g)
{
    uint8_t page[MOTE_SEGMENT_HEADER];
    mote__segment_header h;
    const char *why = "it cannot be read";
    *g = (mote__segment){ .id = id };
    if (!mote__read_full(s, fd, &(struct iovec){ page, sizeof page }, 1, 0) && !mote__segment_read(&h, page, sizeof page, &why) && h.id == id) {
        g->slot_bytes = h.slot_bytes;
        g->payload_bytes = h.payload_bytes;
    } else if (!mote__read_full(s, fd, &(struct iovec){ page, MOTE_SLOT_HEADER }, 1, MOTE_SEGMENT_HEADER) && !memcmp(page, "MOTESLT1", 8) &&
               mote__le32(page + 16) == mote__slot_bytes(mote__le32(page + 20)) && mote__le32(page + 16)) {
        g->slot_bytes = mote__le32(page + 16);
        g->payload_bytes = mote__le32(page + 20);
        h = (mote__segment_header){ id, g->slot_bytes, g->payload_bytes };
        mote__segment_write(page, &h);
        mote__store_log(s, "segment %08x: its header was damaged (%s) and is written again", (unsigned)id, why);
        if (!mote__write_full(s, fd, &(struct iovec){ page, sizeof page }, 1, 0))
            s->io->sync(s->io->ctx, fd);
    } else {
        mote__store_log(s, "segment %08x: left out: its header is damaged (%s)", (unsigned)id, why);
        return 1;
    }
    uint64_t n = size > MOTE_SEGMENT_HEADER ? (uint64_t)(size - MOTE_SEGMENT_HEADER) / g->slot_bytes : 0;
    g->n_slots = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
    return 0;
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
    mote__segfile *f = mote__segfile_get(s, id);
    if (!f) {
        mote__store_log(s, "segment %08x: left out: %s", (unsigned)id, strerror(errno));
        return 0;
    }
    struct stat st;
    mote__segment g;
    uint64_t *unused = NULL, highest = 0;
    uint8_t *image = NULL;
    int rc = 0;
    if (fstat(f->fd, &st) || segment_sizes(s, f->fd, id, st.st_size, &g))
        goto out;
    /* generation of each slot that is not whole, 0 where it cannot be told; ~0: in use */
    unused = mote__alloc(NULL, MOTE_MEM_OTHER, mote__mul(g.n_slots, sizeof *unused));
    image = mote__alloc(NULL, MOTE_MEM_OTHER, g.slot_bytes);
    rc = unused && image ? mote__index_add_segment(j->x, &g) : MOTE_ENOMEM;
    j->r->segments++;
    for (uint32_t i = 0; i < g.n_slots && !rc; i++) {
        mote__entry e = { .place = { id, i, g.slot_bytes, g.payload_bytes, 0, 0 }, .used = j->now };
        mote__slot slot;
        const char *why = "";
        j->r->slots++;
        if (is_hole(f->fd, mote__slot_offset(&e.place), g.slot_bytes))
            continue;
        int bad = mote__slot_load(s, &e.place, image, &slot, &why);
        if (!bad && slot.generation > INT64_MAX - 2)
            bad = MOTE_EFORMAT;
        if (bad) {
            int ours = !memcmp(image, "MOTESLT1", 8);
            j->r->damaged += (uint64_t)ours;
            continue;
        }
        highest = slot.generation > highest ? slot.generation : highest;
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
    mote__free(NULL, MOTE_MEM_OTHER, unused, mote__mul(g.n_slots, sizeof *unused));
    mote__free(NULL, MOTE_MEM_OTHER, image, g.slot_bytes);
out:
    mote__segfile_put(s, f);
    return rc;
}

static int scan_snapshot(void *ctx, const char *digits)
{
    job *j = ctx;
    char name[64], path[4200];
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
    int bad = e || mote__snapfile_read(&snap, file, n, &tail, &blob, &why) || memcmp(snap.key, key, sizeof key);
    if (bad) {
        j->r->damaged_snapshots++;
        mote__store_log(j->s, "snapshot %s is damaged (%s) and goes", digits, e ? strerror(e) : why);
        mote__snap_name(name, key);
        mote__store_path(j->s, path, name);
        if (!e || e == ENODATA)
            j->s->io->unlink(j->s->io->ctx, path);
    } else {
        mote__snap_entry entry = { .chain = snap.chain, .approximate = snap.approximate, .n_tail = snap.n_tail, .bytes = n,
                                   .created = (int64_t)(snap.created & INT64_MAX), .used = j->now };
        memcpy(entry.key, key, sizeof key);
        memcpy(entry.tokens, snap.tokens, sizeof entry.tokens);
        mote__snap_entry was;
        if (j->old.db && !mote__index_snapshot_get(&j->old, key, &was) &&
            was.created == entry.created)
            entry.used = time_between(j, was.used);
        j->rc = mote__index_snapshot_put(j->x, &entry);
        j->r->snapshots++;
    }
    mote__free(NULL, MOTE_MEM_OTHER, file, n);
    return j->rc;
}

static void remove_file(mote__store *s, const char *name)
{
    char path[4200];
    mote__store_path(s, path, name);
    s->io->unlink(s->io->ctx, path);
}

int mote__store_make_index(mote__store *s, mote__rebuilt *r, mote_err *err)
{
    char fresh[4200], old[4200];
    mote__store_path(s, fresh, "index.new");
    mote__store_path(s, old, "index.db");
    remove_file(s, "index.new");
    remove_file(s, "index.new-journal");
    mote__index x = { 0 };
    *r = (mote__rebuilt){ 0 };
    job j = { .s = s, .x = &x, .r = r, .now = mote__store_now(s) };
    int fd = s->io->open(s->io->ctx, fresh, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return mote__fail(err, MOTE_EIO, "%s: cannot create: %s", fresh, strerror(errno));
    s->io->close(s->io->ctx, fd);
    int rc = mote__index_open(&x, fresh, MOTE_INDEX_CREATE, mote__vfs_name(s->vfs), err);
    if (!rc) {
        mote__index_open(&j.old, old, MOTE_INDEX_READ, mote__vfs_name(s->vfs), NULL);
        mote__store_list(s, "seg-", 8, note_id, &j);
        if (j.n_ids)
            qsort(j.ids, j.n_ids, sizeof *j.ids, by_number);
        rc = j.rc;
        for (size_t i = 0; i < j.n_ids && !rc; i++)
            rc = j.ids[i] ? scan_segment(&j, j.ids[i]) : 0;
        if (!rc) {
            mote__store_list(s, "snap-", 2 * MOTE_STORE_ID, scan_snapshot, &j);
            rc = j.rc;
        }
        if (!rc)
            rc = mote__index_commit(&x);
        if (rc)
            mote__fail(err, rc == MOTE_ENOMEM ? rc : MOTE_EIO, "%s: cannot make the index anew: %s", fresh, rc == MOTE_ENOMEM ? "out of memory" : x.why);
        mote__index_close(&x);
        mote__index_close(&j.old);
    }
    if (!rc) {
        /* No database without its log, no log without its database: first the old one goes as a whole, then the new one comes. */
        s->io->unlink(s->io->ctx, old);
        int e = s->io->sync_dir(s->io->ctx, s->dir) ? errno : 0;
        if (!e) {
            remove_file(s, "index.db-wal");
            remove_file(s, "index.db-shm");
            e = s->io->sync_dir(s->io->ctx, s->dir) || s->io->rename(s->io->ctx, fresh, old) || s->io->sync_dir(s->io->ctx, s->dir) ? errno : 0;
        }
        if (e)
            rc = mote__fail(err, MOTE_EIO, "%s: cannot put the new index in place: %s", old, strerror(e));
    } else {
        s->io->unlink(s->io->ctx, fresh);
        rc = rc == MOTE_ENOMEM ? rc : MOTE_EIO;
    }
    if (!rc) {
        pthread_mutex_lock(&s->mutex);
        s->counts.rebuilds += r->segments != 0;
        pthread_mutex_unlock(&s->mutex);
    }
    free(j.ids);
    return rc;
}
