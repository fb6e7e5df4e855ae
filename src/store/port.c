/* Export and import. Blocks go parents first, so that an import can stop anywhere and leave chains
 * that begin at the root. */
#include "store/port.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_put.h"
#include "base/crc32c.h"
#include "base/le.h"
#include "store/catalog.h"
#include "base/path.h"

/* ---- format ---- */

static const uint8_t file_magic[8] = "MOTEKVX1", record_magic[4] = "MREC";

void mote__port_header_write(uint8_t dst[MOTE_PORT_HEADER])
{
    memset(dst, 0, MOTE_PORT_HEADER);
    memcpy(dst, file_magic, 8);
    mote__put_le32(dst + 8, MOTE_STORE_VERSION);
    mote__put_le32(dst + 28, mote__crc32c(0, dst, 28));
}

int mote__port_header_read(const uint8_t *src, size_t n, const char **why)
{
    *why = n < MOTE_PORT_HEADER || memcmp(src, file_magic, 8) ? "it is no export of a store"
           : mote__le32(src + 28) != mote__crc32c(0, src, 28) ? "its header is damaged"
           : mote__le32(src + 8) > MOTE_STORE_VERSION         ? "it comes from a newer version"
           : mote__le32(src + 8) != MOTE_STORE_VERSION        ? "its header is damaged"
                                                              : NULL;
    return !*why ? 0
           : n >= MOTE_PORT_HEADER && !memcmp(src, file_magic, 8) &&
                   mote__le32(src + 8) > MOTE_STORE_VERSION
               ? MOTE_EVERSION
               : MOTE_EFORMAT;
}

void mote__port_record_write(uint8_t dst[MOTE_PORT_RECORD], const mote__port_record *r)
{
    memset(dst, 0, MOTE_PORT_RECORD);
    memcpy(dst, record_magic, 4);
    mote__put_le32(dst + 4, (uint32_t)r->kind);
    mote__put_le64(dst + 8, r->bytes);
    mote__put_le64(dst + 16, r->n_before);
    mote__put_le32(dst + 28, mote__crc32c(0, dst, 28));
}

int mote__port_record_read(mote__port_record *r, const uint8_t *src, size_t n, const char **why)
{
    *why = "a record's header is damaged";
    if (n < MOTE_PORT_RECORD || memcmp(src, record_magic, 4) ||
        mote__le32(src + 28) != mote__crc32c(0, src, 28) || mote__le32(src + 24) != 0 ||
        mote__le32(src + 4) > MOTE_PORT_SNAPSHOT)
        return MOTE_EFORMAT;
    *r = (mote__port_record){ (mote__port_kind)mote__le32(src + 4), mote__le64(src + 8),
                              mote__le64(src + 16) };
    *why = "a record has a length that cannot be";
    switch (r->kind) {
    case MOTE_PORT_END: return r->bytes == 0 ? 0 : MOTE_EFORMAT;
    case MOTE_PORT_BLOCK:
        return r->bytes > MOTE_SLOT_HEAD && r->bytes % MOTE_SLOT_ALIGN == 0 &&
                       r->bytes <= mote__slot_bytes((size_t)1 << 30)
                   ? 0
                   : MOTE_EFORMAT;
    default:
        return r->bytes >= MOTE_SNAPSHOT_HEADER &&
                       r->bytes <= (uint64_t)MOTE_STORE_MAX_SNAPSHOT + 8192
                   ? 0
                   : MOTE_EFORMAT;
    }
}

/* Between 0 and 1 of the way, or -1 where its length is not known. Non-zero: to be cancelled. */
static int tell(const mote__store *s, const char *what, double fraction)
{
    return s->params.progress && s->params.progress(s->params.progress_ctx, what, fraction);
}

/* ---- export ---- */

typedef struct out {
    mote__store *s;
    int fd, stream; /* stream: bytes go one after the other, to what cannot be replaced */
    off_t at;
    uint64_t n;
    int error;
    char target[MOTE_PATH_ROOM],
        beside[MOTE_PATH_ROOM +
               64]; /* of a file: what is replaced, and what is written meanwhile */
} out;

static int write_stream(int fd, const struct iovec *iov, int n)
{
    for (int i = 0; i < n; i++) {
        const char *p = iov[i].iov_base;
        for (size_t left = iov[i].iov_len; left;) {
            ssize_t k = write(fd, p, left);
            if (k < 0 && errno == EINTR)
                continue;
            if (k <= 0)
                return k ? errno : EIO;
            p += k;
            left -= (size_t)k;
        }
    }
    return 0;
}

static void write_out(out *o, const struct iovec *iov, int n)
{
    if (!o->error)
        o->error = o->stream ? write_stream(o->fd, iov, n)
                             : mote__write_full(o->s, o->fd, iov, n, o->at);
    for (int i = 0; i < n; i++)
        o->at += (off_t)iov[i].iov_len;
}

static void emit(out *o, mote__port_kind kind, const uint8_t *data, size_t n)
{
    uint8_t head[MOTE_PORT_RECORD];
    mote__port_record_write(head, &(mote__port_record){ kind, n, o->n });
    write_out(o, (struct iovec[]){ { head, sizeof head }, { (void *)data, n } }, n ? 2 : 1);
    o->n += kind != MOTE_PORT_END;
}

/* Where a name leads to, through symbolic links whether or not there is anything at their end. */
static int follow_links(char target[MOTE_PATH_ROOM], const char *path)
{
    char link[MOTE_PATH_ROOM];
    if (snprintf(target, 4200, "%s", path) >= 4200)
        return ENAMETOOLONG;
    for (int i = 0; i < 40; i++) {
        ssize_t n = readlink(target, link, sizeof link - 1);
        if (n < 0)
            return errno == EINVAL || errno == ENOENT ? 0
                                                      : errno; /* no link, or nothing there yet */
        link[n] = 0;
        char *slash = link[0] == '/' ? NULL : strrchr(target, '/');
        size_t dir = slash ? (size_t)(slash - target) + 1 : 0;
        if (dir + (size_t)n >= 4200)
            return ENAMETOOLONG;
        memcpy(target + dir, link, (size_t)n + 1);
    }
    return ELOOP;
}

/* Standard output, a pipe or device as it is, or a file beside the one to be replaced: under a name
 * of its own, as two may export to one. */
static int open_out(out *o, const char *path, mote_err *err)
{
    struct stat st;
    uint64_t own = 0;
    if (!strcmp(path, "-")) {
        o->fd = STDOUT_FILENO;
        o->stream = 1;
        return 0;
    }
    int e = follow_links(o->target, path);
    if (!e && !stat(o->target, &st) && !S_ISREG(st.st_mode)) {
        o->stream = 1;
        o->fd = open(o->target, O_WRONLY | O_CLOEXEC);
        return o->fd < 0 ? mote__fail(err, MOTE_EIO, "%s: cannot write: %s", path, strerror(errno))
                         : 0;
    }
    if (!e && getrandom(&own, sizeof own, 0) != (ssize_t)sizeof own)
        own = (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)o;
    if (!e)
        snprintf(o->beside, sizeof o->beside, "%s.%016llx.part", o->target,
                 (unsigned long long)own);
    o->fd = e ? -1 : o->s->io->open(o->s->io->ctx, o->beside, O_RDWR | O_CREAT | O_EXCL, 0600);
    e = e ? e : o->fd < 0 ? errno : 0;
    return e ? mote__fail(err, MOTE_EIO, "%s: cannot create: %s", path, strerror(e)) : 0;
}

static void close_out(out *o, int keep)
{
    const mote__store_io *io = o->s->io;
    if (o->stream) {
        if (o->fd != STDOUT_FILENO)
            close(o->fd);
        return;
    }
    if (keep && !o->error && io->sync(io->ctx, o->fd))
        o->error = errno;
    io->close(io->ctx, o->fd);
    if (keep && !o->error && io->rename(io->ctx, o->beside, o->target))
        o->error = errno;
    if (!keep || o->error)
        io->unlink(io->ctx, o->beside);
}

typedef struct exported {
    uint64_t blocks, snapshots, damaged;
} exported;

static int export_blocks(out *o, const mote__catalog *c, exported *sum)
{
    mote__store *s = o->s;
    uint8_t *image = NULL;
    size_t room = 0;
    int rc = 0;
    for (size_t i = 0; i < c->blocks.n && !rc && !o->error; i++) {
        const mote__entry *e = &c->blocks.list[i];
        mote__slot slot;
        const char *why;
        if (!mote__catalog_chosen(c, c->of_block[i]))
            continue;
        if (i % 64 == 0 && tell(s, "exporting", (double)i / (double)(c->blocks.n + c->n_snaps)))
            rc = MOTE_ECANCELED;
        if (room < e->place.slot_bytes) {
            mote__free(&s->meter, MOTE_MEM_SCRATCH, image, room);
            room = e->place.slot_bytes;
            image = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, room);
            if (!image) {
                room = 0;
                rc = MOTE_ENOMEM;
                break;
            }
        }
        int bad = mote__slot_load(s, &e->place, image, &slot, &why);
        if (bad == MOTE_ENOMEM) {
            rc = bad;
        } else if (!bad && !mote__slot_matches(&slot, e, &why)) {
            emit(o, MOTE_PORT_BLOCK, image, e->place.slot_bytes);
            sum->blocks++;
        } else {
            mote__entry now; /* evicted while we were on our way is no damage */
            pthread_mutex_lock(&s->read_mutex);
            sum->damaged += !mote__index_get(&s->reader, e->id, &now) &&
                            now.place.generation == e->place.generation &&
                            now.place.segment == e->place.segment &&
                            now.place.slot == e->place.slot;
            pthread_mutex_unlock(&s->read_mutex);
        }
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, image, room);
    return rc;
}

static int export_snapshots(out *o, const mote__catalog *c, exported *sum)
{
    mote__store *s = o->s;
    for (size_t i = 0; i < c->n_snaps && !o->error; i++) {
        uint8_t *file;
        const uint8_t *tail, *blob;
        const char *why;
        size_t n;
        mote__snapfile got;
        mote__snap_entry now;
        if (!mote__catalog_chosen(c, c->of_snap[i]))
            continue;
        if (tell(s, "exporting", (double)(c->blocks.n + i) / (double)(c->blocks.n + c->n_snaps)))
            return MOTE_ECANCELED;
        int e = mote__snap_load(s, c->snaps[i].key, &file, &n);
        if (e == ENOMEM)
            return MOTE_ENOMEM;
        if (!e && !mote__snapfile_read(&got, file, n, &tail, &blob, &why)) {
            emit(o, MOTE_PORT_SNAPSHOT, file, n);
            sum->snapshots++;
        } else {
            pthread_mutex_lock(&s->read_mutex);
            sum->damaged += !mote__index_snapshot_get(&s->reader, c->snaps[i].key, &now);
            pthread_mutex_unlock(&s->read_mutex);
        }
        mote__free(&s->meter, MOTE_MEM_SCRATCH, file, n);
    }
    return 0;
}

int mote_store_export_json(mote_store *s, const char *path, char **text, mote_err *err)
{
    uint8_t head[MOTE_PORT_HEADER];
    exported sum = { 0 };
    mote__catalog c;
    out o = { .s = s };
    mote__store_flush(s, NULL);
    pthread_mutex_lock(&s->read_mutex);
    int rc = mote__catalog_read(&c, s, &s->reader, err);
    pthread_mutex_unlock(&s->read_mutex);
    if (rc)
        return rc;
    if (!c.everything && !c.n_chosen)
        rc = mote__fail(err, MOTE_EINVAL, "%s: nothing of that kind is stored", s->dir);
    if (!rc)
        rc = open_out(&o, path, err);
    if (rc) {
        mote__catalog_end(&c);
        return rc;
    }
    mote__port_header_write(head);
    write_out(&o, &(struct iovec){ head, sizeof head }, 1);
    rc = export_blocks(&o, &c, &sum);
    if (!rc)
        rc = export_snapshots(&o, &c, &sum);
    if (!rc)
        emit(&o, MOTE_PORT_END, NULL, 0);
    close_out(&o, !rc);
    mote__catalog_end(&c);
    if (o.error)
        return mote__fail(err, MOTE_EIO, "%s: cannot write: %s",
                          strcmp(path, "-") ? path : "standard output", strerror(o.error));
    if (rc)
        return mote__fail(err, rc,
                          rc == MOTE_ECANCELED ? "%s: the export was interrupted"
                                               : "%s: out of memory",
                          s->dir);
    json_t *j = json_object();
    mote__json_put_u64(j, "blocks", sum.blocks);
    mote__json_put_u64(j, "snapshots", sum.snapshots);
    mote__json_put_u64(j, "damaged", sum.damaged);
    mote__json_put_u64(j, "bytes", o.at);
    return mote__store_json(j, text, err);
}

/* ---- import ---- */

enum { BATCH_BYTES = 64 << 20, FIRST_BYTES = 4 << 20 };

typedef struct in {
    mote__store *s;
    int fd;
    off_t at, size; /* size 0: not known */
    mote__item *batch[MOTE_STORE_BATCH];
    size_t n_batch, batch_bytes;
    uint64_t blocks, snapshots, known, dropped, n; /* n: records taken */
    char what[64];
} in;

/* Exactly n bytes from where the reader is; files and pipes alike. ENODATA: it ends before. */
static int read_on(in *j, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = read(j->fd, (char *)to + done, n - done);
        if (k < 0 && errno == EINTR) {
            if (tell(j->s, j->what, -1))
                return ECANCELED;
            continue;
        }
        if (k <= 0)
            return k ? errno : ENODATA;
        done += (size_t)k;
        j->at += k;
    }
    return 0;
}

/* A record's content. Memory is made as bytes arrive, not as a header promises them. */
static int read_record(in *j, uint8_t **data, size_t *room, size_t n)
{
    *room = n < FIRST_BYTES ? n : FIRST_BYTES;
    mote__meter *meter = &j->s->meter;
    *data = mote__alloc(meter, MOTE_MEM_SCRATCH, *room);
    size_t done = 0;
    int e = *data ? 0 : ENOMEM;
    while (!e && done < n) {
        if (done == *room) {
            size_t more = *room > n / 2 ? n : 2 * *room;
            uint8_t *grown = mote__alloc(meter, MOTE_MEM_SCRATCH, more);
            if (!grown)
                return ENOMEM;
            memcpy(grown, *data, done);
            mote__free(meter, MOTE_MEM_SCRATCH, *data, *room);
            *data = grown;
            *room = more;
        }
        e = read_on(j, *data + done, *room - done);
        done = *room;
    }
    return e;
}

static void free_item(mote__store *s, mote__item *it)
{
    if (it)
        mote__free(&s->meter, MOTE_MEM_SCRATCH, it->file, it->file_bytes);
    mote__free(&s->meter, MOTE_MEM_SCRATCH, it, sizeof *it);
}

/* What was read whole and checked is written. 0, MOTE_ENOMEM or MOTE_EIO. */
static int write_batch(in *j)
{
    int rc = 0;
    mote_err ignored;
    if (!j->n_batch)
        return 0;
    rc = mote__store_enter(j->s, &ignored);
    if (!rc) {
        if (j->batch[0]->kind == MOTE_ITEM_SNAPSHOT)
            mote__write_snapshot(j->s, j->batch[0]);
        else
            mote__write_blocks(j->s, j->batch, j->n_batch);
        mote__store_leave(j->s);
    }
    for (size_t i = 0; i < j->n_batch; i++) {
        const mote__item *it = j->batch[i];
        if (rc || it->end == MOTE_ITEM_FAILED) {
            rc = rc == MOTE_ENOMEM ? rc : MOTE_EIO;
        } else {
            ++*(it->end == MOTE_ITEM_KNOWN     ? &j->known
                : it->end == MOTE_ITEM_DROPPED ? &j->dropped
                : it->kind == MOTE_ITEM_BLOCK  ? &j->blocks
                                               : &j->snapshots);
            j->n++;
        }
        free_item(j->s, j->batch[i]);
    }
    j->n_batch = j->batch_bytes = 0;
    return rc;
}

/* One record's content, which is `data`'s from now on. */
static int take_record(in *j, const mote__port_record *r, uint8_t *data, size_t room,
                       const char **why)
{
    const uint8_t *tail, *blob;
    size_t n = (size_t)r->bytes;
    mote__item *it = mote__alloc(&j->s->meter, MOTE_MEM_SCRATCH, sizeof *it);
    if (!it) {
        mote__free(&j->s->meter, MOTE_MEM_SCRATCH, data, room);
        *why = "out of memory";
        return MOTE_ENOMEM;
    }
    it->kind = r->kind == MOTE_PORT_BLOCK ? MOTE_ITEM_BLOCK : MOTE_ITEM_SNAPSHOT;
    it->file = data;
    it->file_bytes = n;
    int rc;
    if (it->kind == MOTE_ITEM_SNAPSHOT) {
        rc = mote__snapfile_read(&it->snap, data, n, &tail, &blob, why);
    } else {
        size_t payload = mote__le32(data + 20);
        *why = "size";
        rc = mote__slot_bytes(payload) == n ? 0 : MOTE_EFORMAT;
        if (!rc)
            rc = mote__slot_read(&it->slot, data, data + MOTE_SLOT_HEAD, payload,
                                 data + MOTE_SLOT_HEAD + payload, n, why);
        memcpy(it->head, data, MOTE_SLOT_HEAD);
        it->payload = data + MOTE_SLOT_HEAD;
    }
    if (rc) {
        free_item(j->s, it);
        return rc;
    }
    const mote__item *first = j->n_batch ? j->batch[0] : NULL;
    *why = "the store cannot be written";
    if (first && (first->kind != it->kind || first->slot.payload_bytes != it->slot.payload_bytes))
        rc = write_batch(j);
    if (rc) {
        free_item(j->s, it);
        return rc;
    }
    j->batch[j->n_batch++] = it;
    j->batch_bytes += n;
    return it->kind == MOTE_ITEM_SNAPSHOT || j->n_batch == MOTE_STORE_BATCH ||
                   j->batch_bytes >= BATCH_BYTES
               ? write_batch(j)
               : 0;
}

static int import_all(in *j, const char **why)
{
    uint8_t head[MOTE_PORT_RECORD];
    int e = read_on(j, head, MOTE_PORT_HEADER), rc = 0;
    *why = e == ENODATA ? "it is no export of a store" : strerror(e);
    rc = e == ECANCELED ? MOTE_ECANCELED
         : e == ENODATA ? MOTE_EFORMAT
         : e            ? MOTE_EIO
                        : mote__port_header_read(head, MOTE_PORT_HEADER, why);
    for (uint64_t n = 0; !rc; n++) {
        mote__port_record r;
        off_t began = j->at;
        uint8_t *data = NULL;
        size_t room = 0;
        snprintf(j->what, sizeof j->what, "importing, record %llu", (unsigned long long)n + 1);
        if (n % 64 == 0 && tell(j->s, j->what, j->size ? (double)j->at / (double)j->size : -1))
            e = ECANCELED;
        else
            e = read_on(j, head, sizeof head);
        if (!e && (rc = mote__port_record_read(&r, head, sizeof head, why)) == 0 &&
            r.n_before != n) {
            *why = "a record is missing";
            rc = MOTE_EFORMAT;
        }
        if (!e && !rc && r.kind == MOTE_PORT_END) {
            uint8_t more;
            began = j->at;
            e = read_on(j, &more, 1);
            if (e == ENODATA)
                return 0;
            *why = "something follows its end";
            rc = e ? 0 : MOTE_EFORMAT;
        } else if (!e && !rc) {
            e = read_record(j, &data, &room, (size_t)r.bytes);
            if (e)
                mote__free(&j->s->meter, MOTE_MEM_SCRATCH, data, room);
            else
                rc = take_record(j, &r, data, room, why);
        }
        if (e) {
            *why = e == ENODATA     ? "it ends too early"
                   : e == ECANCELED ? "interrupted"
                                    : strerror(e);
            rc = e == ENODATA     ? MOTE_EFORMAT
                 : e == ENOMEM    ? MOTE_ENOMEM
                 : e == ECANCELED ? MOTE_ECANCELED
                                  : MOTE_EIO;
        }
        if (rc)
            j->at = began;
    }
    return rc;
}

int mote_store_import_json(mote_store *s, const char *path, char **text, mote_err *err)
{
    in j = { .s = s, .what = "importing" };
    const char *why = "", *shown = strcmp(path, "-") ? path : "standard input";
    struct stat st;
    j.fd = strcmp(path, "-") ? s->io->open(s->io->ctx, path, O_RDONLY, 0) : STDIN_FILENO;
    if (j.fd < 0)
        return mote__fail(err, MOTE_EIO, "%s: cannot open: %s", path, strerror(errno));
    if (!fstat(j.fd, &st) && S_ISREG(st.st_mode))
        j.size = st.st_size;
    int rc = import_all(&j, &why);
    int last = write_batch(&j);
    if (last && !rc) {
        why = "the store cannot be written";
        rc = last;
    }
    if (j.fd != STDIN_FILENO)
        s->io->close(s->io->ctx, j.fd);
    if (rc)
        return mote__fail(err, rc, "%s: at byte %lld: %s (%llu records before it were taken)",
                          shown, (long long)j.at, why, (unsigned long long)j.n);
    json_t *o = json_object();
    mote__json_put_u64(o, "blocks", j.blocks);
    mote__json_put_u64(o, "snapshots", j.snapshots);
    mote__json_put_u64(o, "known", j.known);
    mote__json_put_u64(o, "dropped", j.dropped);
    return mote__store_json(o, text, err);
}
