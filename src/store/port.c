/* Export and import. Blocks go parents first, so that an import can stop anywhere and leave chains that begin at the root. */
#include "store/port.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/le.h"
#include "base/map.h"
#include "store/impl.h"

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
    *why = n < MOTE_PORT_HEADER || memcmp(src, file_magic, 8)       ? "it is no export of a store"
           : mote__le32(src + 28) != mote__crc32c(0, src, 28)       ? "its header is damaged"
           : mote__le32(src + 8) > MOTE_STORE_VERSION               ? "it comes from a newer version"
           : mote__le32(src + 8) != MOTE_STORE_VERSION              ? "its header is damaged"
                                                                    : NULL;
    return !*why ? 0 : n >= MOTE_PORT_HEADER && !memcmp(src, file_magic, 8) && mote__le32(src + 8) > MOTE_STORE_VERSION ? MOTE_EVERSION : MOTE_EFORMAT;
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
    if (n < MOTE_PORT_RECORD || memcmp(src, record_magic, 4) || mote__le32(src + 28) != mote__crc32c(0, src, 28) ||
        mote__le32(src + 24) != 0 || mote__le32(src + 4) > MOTE_PORT_SNAPSHOT)
        return MOTE_EFORMAT;
    *r = (mote__port_record){ (mote__port_kind)mote__le32(src + 4), mote__le64(src + 8), mote__le64(src + 16) };
    *why = "a record has a length that cannot be";
    switch (r->kind) {
    case MOTE_PORT_END: return r->bytes == 0 ? 0 : MOTE_EFORMAT;
    case MOTE_PORT_BLOCK:
        return r->bytes > MOTE_SLOT_HEAD && r->bytes % MOTE_SLOT_ALIGN == 0 && r->bytes <= mote__slot_bytes((size_t)1 << 30) ? 0 : MOTE_EFORMAT;
    default: return r->bytes >= MOTE_SNAPSHOT_HEADER && r->bytes <= (uint64_t)MOTE_STORE_MAX_SNAPSHOT + 8192 ? 0 : MOTE_EFORMAT;
    }
}

/* ---- export ---- */

typedef struct out { mote__store *s; int fd; off_t at; uint64_t n; int error; } out;

static void emit(out *o, mote__port_kind kind, const uint8_t *data, size_t n)
{
    uint8_t head[MOTE_PORT_RECORD];
    mote__port_record_write(head, &(mote__port_record){ kind, n, o->n });
    if (o->error)
        return;
    o->error = mote__write_full(o->s, o->fd, (struct iovec[]){ { head, sizeof head }, { (void *)data, n } }, n ? 2 : 1, o->at);
    o->at += (off_t)(sizeof head + n);
    o->n += kind != MOTE_PORT_END;
}

static int export_all(mote__store *s, out *o, uint64_t *blocks, uint64_t *snapshots, uint64_t *damaged)
{
    mote__entry e;
    mote__snap_entry p;
    uint8_t *image = NULL;
    size_t room = 0;
    uint64_t depth = 0;
    const uint8_t *after = NULL;
    int rc;
    for (;;) {
        pthread_mutex_lock(&s->read_mutex);
        rc = mote__index_next_by_depth(&s->reader, depth, after, &e);
        pthread_mutex_unlock(&s->read_mutex);
        if (rc || o->error)
            break;
        depth = e.n_blocks;
        after = e.id;
        mote__slot slot;
        const char *why;
        if (room < e.place.slot_bytes) {
            mote__free(NULL, MOTE_MEM_OTHER, image, room);
            room = e.place.slot_bytes;
            image = mote__alloc(NULL, MOTE_MEM_OTHER, room);
            if (!image) {
                room = 0;
                rc = MOTE_ENOMEM;
                break;
            }
        }
        if (mote__slot_load(s, &e.place, image, &slot, &why) || mote__slot_matches(&slot, &e, &why)) {
            ++*damaged;
            continue;
        }
        emit(o, MOTE_PORT_BLOCK, image, e.place.slot_bytes);
        ++*blocks;
    }
    mote__free(NULL, MOTE_MEM_OTHER, image, room);
    for (after = NULL; rc >= 0 && !o->error; after = p.key) {
        pthread_mutex_lock(&s->read_mutex);
        rc = mote__index_snapshot_next(&s->reader, after, &p);
        pthread_mutex_unlock(&s->read_mutex);
        if (rc)
            break;
        uint8_t *file;
        const uint8_t *tail, *blob;
        const char *why;
        size_t n;
        mote__snapfile got;
        if (mote__snap_load(s, p.key, &file, &n) || mote__snapfile_read(&got, file, n, &tail, &blob, &why)) {
            ++*damaged;
        } else {
            emit(o, MOTE_PORT_SNAPSHOT, file, n);
            ++*snapshots;
        }
        mote__free(NULL, MOTE_MEM_OTHER, file, n);
    }
    return rc < 0 ? rc : 0;
}

int mote_store_export_json(mote_store *s, const char *path, char **text, mote_err *err)
{
    uint8_t head[MOTE_PORT_HEADER];
    char beside[4300];
    uint64_t blocks = 0, snapshots = 0, damaged = 0;
    mote__store_flush(s, NULL);
    if (snprintf(beside, sizeof beside, "%s.part", path) >= (int)sizeof beside)
        return mote__fail(err, MOTE_EIO, "%.200s...: the path is too long", path);
    out o = { .s = s, .fd = s->io->open(s->io->ctx, beside, O_RDWR | O_CREAT | O_TRUNC, 0600), .at = MOTE_PORT_HEADER };
    if (o.fd < 0)
        return mote__fail(err, MOTE_EIO, "%s: cannot create: %s", beside, strerror(errno));
    mote__port_header_write(head);
    o.error = mote__write_full(s, o.fd, &(struct iovec){ head, sizeof head }, 1, 0);
    int rc = export_all(s, &o, &blocks, &snapshots, &damaged);
    emit(&o, MOTE_PORT_END, NULL, 0);
    if (!o.error && s->io->sync(s->io->ctx, o.fd))
        o.error = errno;
    s->io->close(s->io->ctx, o.fd);
    if (!rc && !o.error && s->io->rename(s->io->ctx, beside, path))
        o.error = errno;
    if (rc || o.error) {
        s->io->unlink(s->io->ctx, beside);
        return o.error ? mote__fail(err, MOTE_EIO, "%s: cannot write: %s", beside, strerror(o.error))
                       : mote__fail(err, rc, "%s: %s", s->dir, rc == MOTE_ENOMEM ? "out of memory" : s->reader.why);
    }
    json_t *j = json_object();
    json_object_set_new(j, "blocks", json_integer((json_int_t)blocks));
    json_object_set_new(j, "snapshots", json_integer((json_int_t)snapshots));
    json_object_set_new(j, "damaged", json_integer((json_int_t)damaged));
    json_object_set_new(j, "bytes", json_integer((json_int_t)o.at));
    return mote__store_json(j, text, err);
}

/* ---- import ---- */

typedef struct in { mote__store *s; uint64_t blocks, snapshots, known, dropped; } in;

static int import_block(in *j, uint8_t *image, size_t n, const char **why)
{
    mote__item *it = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *it);
    if (!it) {
        *why = "out of memory";
        return MOTE_ENOMEM;
    }
    size_t payload = mote__le32(image + 20);
    int rc = mote__slot_bytes(payload) == n ? 0 : MOTE_EFORMAT;
    *why = "size";
    if (!rc)
        rc = mote__slot_read(&it->slot, image, image + MOTE_SLOT_HEAD, payload, image + MOTE_SLOT_HEAD + payload, n, why);
    if (!rc) {
        memcpy(it->head, image, MOTE_SLOT_HEAD);
        it->payload = image + MOTE_SLOT_HEAD;
        mote__write_blocks(j->s, &it, 1);
        j->blocks += it->end == MOTE_ITEM_WRITTEN;
        j->known += it->end == MOTE_ITEM_KNOWN;
        j->dropped += it->end == MOTE_ITEM_DROPPED || it->end == MOTE_ITEM_FAILED;
        if (it->end == MOTE_ITEM_FAILED) {
            *why = "the store cannot be written";
            rc = MOTE_EIO;
        }
    }
    mote__item_free(it);
    return rc;
}

static int import_snapshot(in *j, uint8_t *file, size_t n, const char **why)
{
    const uint8_t *tail, *blob;
    mote__item *it = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *it);
    if (!it) {
        *why = "out of memory";
        return MOTE_ENOMEM;
    }
    int rc = mote__snapfile_read(&it->snap, file, n, &tail, &blob, why);
    if (!rc) {
        it->kind = MOTE_ITEM_SNAPSHOT;
        it->file = file;
        it->file_bytes = n;
        mote__write_snapshot(j->s, it);
        j->snapshots += it->end == MOTE_ITEM_WRITTEN;
        j->known += it->end == MOTE_ITEM_KNOWN;
        j->dropped += it->end == MOTE_ITEM_DROPPED;
        if (it->end == MOTE_ITEM_FAILED) {
            *why = "the store cannot be written";
            rc = MOTE_EIO;
        }
    }
    mote__item_free(it);
    return rc;
}

int mote_store_import_json(mote_store *s, const char *path, char **text, mote_err *err)
{
    uint8_t head[MOTE_PORT_RECORD];
    const char *why = "";
    off_t at = MOTE_PORT_HEADER;
    uint64_t n = 0;
    in j = { .s = s };
    int fd = s->io->open(s->io->ctx, path, O_RDONLY, 0);
    if (fd < 0)
        return mote__fail(err, MOTE_EIO, "%s: cannot open: %s", path, strerror(errno));
    int e = mote__read_full(s, fd, &(struct iovec){ head, MOTE_PORT_HEADER }, 1, 0);
    int rc = e ? MOTE_EFORMAT : mote__port_header_read(head, MOTE_PORT_HEADER, &why);
    if (e)
        why = e == ENODATA ? "it is no export of a store" : strerror(e);
    while (!rc) {
        mote__port_record r;
        off_t began = at;
        e = mote__read_full(s, fd, &(struct iovec){ head, sizeof head }, 1, at);
        rc = e ? MOTE_EFORMAT : mote__port_record_read(&r, head, sizeof head, &why);
        if (e)
            why = e == ENODATA ? "it ends too early" : strerror(e);
        if (!rc && r.n_before != n) {
            why = "a record is missing";
            rc = MOTE_EFORMAT;
        }
        if (rc || r.kind == MOTE_PORT_END)
            break;
        at += sizeof head;
        /* no room is made for bytes that the file does not have */
        off_t end = lseek(fd, 0, SEEK_END);
        uint8_t *data = end >= at && (uint64_t)(end - at) >= r.bytes ? mote__alloc(NULL, MOTE_MEM_OTHER, (size_t)r.bytes) : NULL;
        if (!data) {
            why = end >= at && (uint64_t)(end - at) >= r.bytes ? "out of memory" : "it ends too early";
            rc = MOTE_EFORMAT;
            break;
        }
        e = mote__read_full(s, fd, &(struct iovec){ data, (size_t)r.bytes }, 1, at);
        if (e) {
            why = strerror(e);
            rc = MOTE_EIO;
        } else {
            mote_err ignored;
            rc = mote__store_enter(s, &ignored);
            why = "the store cannot be written";
            if (!rc) {
                rc = r.kind == MOTE_PORT_BLOCK ? import_block(&j, data, (size_t)r.bytes, &why) : import_snapshot(&j, data, (size_t)r.bytes, &why);
                mote__store_leave(s);
            }
        }
        mote__free(NULL, MOTE_MEM_OTHER, data, (size_t)r.bytes);
        if (rc)
            at = began;
        else
            at += (off_t)r.bytes;
        n++;
    }
    s->io->close(s->io->ctx, fd);
    if (rc)
        return mote__fail(err, rc, "%s: at byte %lld: %s (%llu records before it were taken)", path, (long long)at, why, (unsigned long long)(n ? n - 1 : 0));
    json_t *o = json_object();
    json_object_set_new(o, "blocks", json_integer((json_int_t)j.blocks));
    json_object_set_new(o, "snapshots", json_integer((json_int_t)j.snapshots));
    json_object_set_new(o, "known", json_integer((json_int_t)j.known));
    json_object_set_new(o, "dropped", json_integer((json_int_t)j.dropped));
    return mote__store_json(o, text, err);
}
