/* Segment files: open descriptors, whole reads and writes, locks on slots. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "store/impl.h"
#include "base/path.h"

void mote__segment_name(char name[32], uint32_t id) { snprintf(name, 32, "seg-%08x.mote", id); }

/* Whether the header says that this is the segment: another file is never written. */
static int header_fits(const mote__store *s, int fd, uint32_t id)
{
    uint8_t page[MOTE_SEGMENT_HEADER];
    mote__segment_header h;
    const char *why;
    return !mote__read_full(s, fd, &(struct iovec){ page, sizeof page }, 1, 0) &&
           !mote__segment_read(&h, page, sizeof page, &why) && h.id == id;
}

/* NULL and errno. With files_mutex held. */
static mote__segfile *open_segment(mote__store *s, uint32_t id)
{
    char name[32], path[MOTE_PATH_ROOM];
    mote__segment_name(name, id);
    mote__store_path(s, path, name);
    int writable = !s->read_only, fd = -1;
    mote__segfile *f = mote__alloc(&s->meter, MOTE_MEM_OTHER, sizeof *f);
    if (!f) {
        errno = ENOMEM;
        return NULL;
    }
    if (writable)
        fd = mote__store_open_file(s, path, O_RDWR, 0);
    if (fd < 0 && (!writable || errno == EACCES || errno == EPERM || errno == EROFS)) {
        writable = 0;
        fd = mote__store_open_file(s, path, O_RDONLY, 0);
    }
    if (fd < 0) {
        int e = errno;
        mote__free(&s->meter, MOTE_MEM_OTHER, f, sizeof *f);
        if (e == ENOENT || mote__file_is_other(e))
            atomic_store(&s->care_due, 1);
        errno = e;
        return NULL;
    }
    if (writable && !header_fits(s, fd, id)) {
        writable = 0;
        atomic_store(&s->care_due, 1);
    }
    *f = (mote__segfile){ .id = id, .fd = fd, .direct_fd = -1, .writable = writable };
    if (s->io->direct_reads)
        f->direct_fd = mote__store_open_file(s, path, O_RDONLY | O_DIRECT, 0);
    mote__read_file_use(&f->file, f->fd, f->direct_fd);
    return f;
}

mote__segfile *mote__segfile_get(mote__store *s, uint32_t id)
{
    if (id == 0) { /* no segment has this number */
        errno = ENOENT;
        return NULL;
    }
    pthread_mutex_lock(&s->files_mutex);
    mote__segfile *f = s->files;
    struct stat st;
    while (f && (f->id != id || f->dead))
        f = f->next;
    /* removed: perhaps there is another of that name */
    if (f && !fstat(f->fd, &st) && st.st_nlink == 0) {
        f->dead = 1;
        f = NULL;
    }
    if (!f) {
        f = open_segment(s, id);
        if (f) {
            f->next = s->files;
            s->files = f;
        }
    }
    int e = errno;
    if (f)
        f->refs++;
    pthread_mutex_unlock(&s->files_mutex);
    errno = e;
    return f;
}

static void close_unused(mote__store *s, int all)
{
    for (mote__segfile **at = &s->files, *f; (f = *at) != NULL;) {
        if (f->refs == 0 && (f->dead || all)) {
            *at = f->next;
            s->io->close(s->io->ctx, f->fd);
            if (f->direct_fd >= 0)
                s->io->close(s->io->ctx, f->direct_fd);
            mote__free(&s->meter, MOTE_MEM_OTHER, f, sizeof *f);
        } else {
            at = &f->next;
        }
    }
}

void mote__segfile_put(mote__store *s, mote__segfile *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&s->files_mutex);
    if (--f->refs == 0 && f->dead)
        close_unused(s, 0);
    pthread_mutex_unlock(&s->files_mutex);
}

void mote__segfile_kill(mote__store *s, uint32_t id)
{
    pthread_mutex_lock(&s->files_mutex);
    for (mote__segfile *f = s->files; f; f = f->next)
        f->dead |= f->id == id;
    close_unused(s, 0);
    pthread_mutex_unlock(&s->files_mutex);
}

/* Another process may have removed a segment: our descriptor would keep its room taken. */
void mote__segfiles_sweep(mote__store *s, int all)
{
    pthread_mutex_lock(&s->files_mutex);
    struct stat st;
    for (mote__segfile *f = s->files; f; f = f->next)
        if (!fstat(f->fd, &st) && st.st_nlink == 0)
            f->dead = 1;
    close_unused(s, all);
    pthread_mutex_unlock(&s->files_mutex);
}

/* Loops until all is moved. The vector is small (head, payload, padding). */
static int move_full(const mote__store *s, int fd, const struct iovec *iov, int n, off_t offset,
                     int writing)
{
    struct iovec v[4];
    if (n > 4)
        return EINVAL;
    memcpy(v, iov, (size_t)n * sizeof *v);
    struct iovec *at = v;
    while (n > 0) {
        if (at->iov_len == 0) {
            at++;
            n--;
            continue;
        }
        ssize_t k = writing ? s->io->pwritev(s->io->ctx, fd, at, n, offset)
                            : s->io->preadv(s->io->ctx, fd, at, n, offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno ? errno : EIO;
        if (k == 0)
            return writing ? EIO : ENODATA;
        offset += k;
        for (size_t left = (size_t)k; left;) {
            size_t step = left < at->iov_len ? left : at->iov_len;
            at->iov_base = (char *)at->iov_base + step;
            at->iov_len -= step;
            left -= step;
            if (at->iov_len == 0) {
                at++;
                n--;
            }
        }
    }
    return 0;
}
int mote__read_full(const mote__store *s, int fd, const struct iovec *iov, int n, off_t offset)
{
    return move_full(s, fd, iov, n, offset, 0);
}
int mote__write_full(const mote__store *s, int fd, const struct iovec *iov, int n, off_t offset)
{
    return move_full(s, fd, iov, n, offset, 1);
}

/* What a crash leaves of an attempt to make a segment: nothing, or no more than a header or zeros.
 */
static int is_leftover(const mote__store *s, const char *path)
{
    struct stat st;
    uint8_t page[MOTE_SEGMENT_HEADER] = { 0 };
    mote__segment_header h;
    const char *why;
    if (lstat(path, &st) || !S_ISREG(st.st_mode) || st.st_size > MOTE_SEGMENT_HEADER)
        return 0;
    int fd = mote__store_open_file(s, path, O_RDONLY, 0);
    int e = fd < 0       ? errno
            : st.st_size ? mote__read_full(s, fd, &(struct iovec){ page, (size_t)st.st_size }, 1, 0)
                         : 0,
        zeros = 1;
    if (fd >= 0)
        s->io->close(s->io->ctx, fd);
    for (size_t i = 0; i < sizeof page; i++)
        zeros &= !page[i];
    return !e && (zeros || !mote__segment_read(&h, page, sizeof page, &why));
}

int mote__segment_create(mote__store *s, uint32_t id, uint32_t payload_bytes, mote_err *err)
{
    char name[32], path[MOTE_PATH_ROOM];
    uint8_t page[MOTE_SEGMENT_HEADER];
    mote__segment_name(name, id);
    mote__store_path(s, path, name);
    mote__segment_header h = { .id = id,
                               .slot_bytes = (uint32_t)mote__slot_bytes(payload_bytes),
                               .payload_bytes = payload_bytes };
    mote__segment_write(page, &h);
    if (is_leftover(s, path))
        s->io->unlink(s->io->ctx, path);
    int fd = s->io->open(s->io->ctx, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    int e = fd < 0 ? errno : mote__write_full(s, fd, &(struct iovec){ page, sizeof page }, 1, 0);
    if (!e && s->io->sync(s->io->ctx, fd))
        e = errno;
    if (fd >= 0)
        s->io->close(s->io->ctx, fd);
    if (!e && s->io->sync_dir(s->io->ctx, s->dir))
        e = errno;
    if (e && fd >= 0)
        s->io->unlink(s->io->ctx, path);
    return e == EEXIST ? MOTE_INDEX_NONE
           : e         ? mote__fail(err, MOTE_EIO, "%s: cannot create: %s", path, strerror(e))
                       : 0;
}

int mote__slot_lock(mote__store *s, const mote__place *p)
{
    mote__segfile *f = mote__segfile_get(s, p->segment);
    if (!f)
        return MOTE_EIO;
    int rc = f->writable
                 ? s->io->lock(s->io->ctx, f->fd, mote__slot_offset(p), 1, MOTE_LOCK_EXCLUSIVE)
                 : -1;
    mote__segfile_put(s, f);
    return rc ? MOTE_EIO : 0;
}

void mote__slot_unlock(mote__store *s, const mote__place *p)
{
    mote__segfile *f = mote__segfile_get(s, p->segment);
    if (f)
        s->io->lock(s->io->ctx, f->fd, mote__slot_offset(p), 1, MOTE_UNLOCK);
    mote__segfile_put(s, f);
}

int mote__slot_load(mote__store *s, const mote__place *p, uint8_t *image, mote__slot *slot,
                    const char **why)
{
    if (!p->slot_bytes) {
        *why = "no segment of the index holds it";
        return MOTE_EFORMAT;
    }
    mote__segfile *f = mote__segfile_get(s, p->segment);
    if (!f) {
        int gone = errno == ENOENT || mote__file_is_other(errno);
        *why = errno == ENOENT ? "no segment file" : mote__file_problem(errno);
        return gone ? MOTE_EFORMAT : errno == ENOMEM ? MOTE_ENOMEM : MOTE_EIO;
    }
    int e = mote__read_full(s, f->fd, &(struct iovec){ image, p->slot_bytes }, 1,
                            mote__slot_offset(p));
    mote__count(&s->counts.read_bytes, e ? 0 : p->slot_bytes);
    mote__segfile_put(s, f);
    if (e) {
        *why = e == ENODATA ? "beyond the end of the segment" : strerror(e);
        return e == ENODATA ? MOTE_EFORMAT : MOTE_EIO;
    }
    const uint8_t *payload = image + MOTE_SLOT_HEAD;
    return mote__slot_read(slot, image, payload, p->payload_bytes, payload + p->payload_bytes,
                           p->slot_bytes, why);
}

int mote__slot_matches(const mote__slot *slot, const mote__entry *e, const char **why)
{
    *why = memcmp(slot->id, e->id, MOTE_STORE_ID)           ? "another block's identity"
           : memcmp(slot->parent, e->parent, MOTE_STORE_ID) ? "another parent"
           : slot->generation != e->place.generation        ? "another generation"
           : slot->approximate != e->approximate            ? "another provenance"
           : slot->n_blocks != e->n_blocks                  ? "another place in its chain"
                                                            : NULL;
    return *why ? MOTE_EFORMAT : 0;
}
