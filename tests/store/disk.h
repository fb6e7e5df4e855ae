/* A disk that crashes. The store works on real files; beside that a log is kept of every write, and
 * of what was synced. From the log comes an image of what a power cut would have left: all that was
 * synced, and of the rest some writes whole, some lost, some torn into sectors, in any order; names
 * as far as the directory was synced, and perhaps a few changes more.
 *
 * It can also fail the n-th operation of a kind, once or from then on. */
#ifndef MOTE_TESTS_STORE_DISK_H
#define MOTE_TESTS_STORE_DISK_H

#include <sqlite3.h>

#include "common.h"

enum { SECTOR = 512, DISK_FILES = 4096, DISK_FDS = 1024 };
typedef enum disk_op_kind { OP_WRITE, OP_TRUNCATE, OP_LINK, OP_UNLINK, OP_RENAME } disk_op_kind;
typedef struct disk_op {
    disk_op_kind kind;
    int durable, inode; /* inode of data operations and links */
    uint64_t offset;    /* or the new size */
    size_t n;
    uint8_t *data;
    char name[80], to[80];
} disk_op;

typedef enum disk_kind { K_WRITE, K_SYNC, K_GROW, K_OPEN, K_NAME, K_READ, K_KINDS } disk_kind;
typedef struct disk {
    pthread_mutex_t mutex;
    mote__store_io io;
    disk_op *ops;
    size_t n_ops, capacity;
    struct {
        char name[80];
        int inode;
    } names[DISK_FILES];
    size_t n_names;
    int next_inode, inode_of_fd[DISK_FDS];
    int logging;
    long n_syncs, crash_at; /* 0: never */
    int dead;
    long seen[K_KINDS], fail_at[K_KINDS]; /* the fail_at-th of a kind fails; 0: never */
    int fail_on;                          /* and all after it */
} disk;

static inline const char *base_name(const char *path)
{
    return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}
static inline void copy_name(char dst[80], const char *name)
{
    size_t n = name ? strnlen(name, 79) : 0;
    memcpy(dst, name ? name : "", n);
    dst[n] = 0;
}
static inline int *disk_inode(disk *d, const char *name)
{
    for (size_t i = 0; i < d->n_names; i++)
        if (!strcmp(d->names[i].name, name))
            return &d->names[i].inode;
    return NULL;
}
static inline disk_op *disk_log(disk *d, disk_op_kind kind, int inode)
{
    if (d->n_ops == d->capacity) {
        d->capacity = d->capacity ? 2 * d->capacity : 1024;
        d->ops = realloc(d->ops, d->capacity * sizeof *d->ops);
        assert_non_null(d->ops);
    }
    d->ops[d->n_ops] = (disk_op){ .kind = kind, .inode = inode };
    return &d->ops[d->n_ops++];
}
static inline void disk_name(disk *d, const char *name) /* a new file */
{
    if (disk_inode(d, name) || !d->logging)
        return;
    assert_true(d->n_names < DISK_FILES);
    copy_name(d->names[d->n_names].name, name);
    d->names[d->n_names++].inode = ++d->next_inode;
    disk_op *o = disk_log(d, OP_LINK, d->next_inode);
    copy_name(o->name, name);
}
static inline void disk_unname(disk *d, const char *name)
{
    int *inode = disk_inode(d, name);
    if (!inode)
        return;
    disk_op *o = disk_log(d, OP_UNLINK, *inode);
    copy_name(o->name, name);
    size_t at = (size_t)((char *)inode - (char *)d->names) / sizeof d->names[0];
    d->names[at] = d->names[--d->n_names];
}
static inline void disk_sync_file(disk *d, int inode)
{
    for (size_t i = 0; i < d->n_ops; i++)
        d->ops[i].durable |= d->ops[i].kind <= OP_TRUNCATE && d->ops[i].inode == inode;
}
static inline void disk_sync_names(disk *d)
{
    for (size_t i = 0; i < d->n_ops; i++)
        d->ops[i].durable |= d->ops[i].kind >= OP_LINK;
}
/* 0 = go on; called with the mutex held. */
static inline int disk_gate(disk *d, disk_kind k)
{
    if (k == K_SYNC && !d->dead && d->crash_at && ++d->n_syncs == d->crash_at)
        d->dead = 1;
    else if (k == K_SYNC && !d->crash_at)
        d->n_syncs++;
    if (d->dead && k != K_READ)
        return EIO;
    long at = ++d->seen[k];
    if (d->fail_at[k] && (at == d->fail_at[k] || (d->fail_on && at > d->fail_at[k])))
        return k == K_WRITE || k == K_GROW ? ENOSPC : EIO;
    return 0;
}

#define DISK       \
    disk *d = ctx; \
    pthread_mutex_lock(&d->mutex)
#define LEAVE pthread_mutex_unlock(&d->mutex)
static inline int disk_fail(disk *d, int e)
{
    pthread_mutex_unlock(&d->mutex);
    errno = e;
    return -1;
}

static int d_open(void *ctx, const char *path, int flags, mode_t mode)
{
    DISK;
    int writing = (flags & O_ACCMODE) != O_RDONLY,
        e = disk_gate(d, flags & O_CREAT ? K_OPEN : K_READ);
    if (e)
        return disk_fail(d, e);
    int fd = mote__store_io_system.open(NULL, path, flags, mode);
    int *inode;
    if (fd >= 0 && fd < DISK_FDS && strstr(path, "mote-store-")) {
        if (writing && (flags & O_CREAT))
            disk_name(d, base_name(path));
        inode = disk_inode(d, base_name(path));
        d->inode_of_fd[fd] = inode ? *inode : 0;
        if (inode && (flags & O_TRUNC))
            disk_log(d, OP_TRUNCATE, *inode);
    }
    LEAVE;
    return fd;
}
static int d_close(void *ctx, int fd)
{
    DISK;
    if (fd < DISK_FDS)
        d->inode_of_fd[fd] = 0;
    int rc = close(fd);
    LEAVE;
    return rc;
}
static ssize_t d_preadv(void *ctx, int fd, const struct iovec *iov, int n, off_t offset)
{
    DISK;
    int e = disk_gate(d, K_READ);
    if (e)
        return disk_fail(d, e);
    LEAVE;
    return preadv(fd, iov, n, offset);
}
static ssize_t d_pwritev(void *ctx, int fd, const struct iovec *iov, int n, off_t offset)
{
    DISK;
    int e = disk_gate(d, K_WRITE);
    if (e)
        return disk_fail(d, e);
    if (d->logging && fd < DISK_FDS && d->inode_of_fd[fd]) {
        size_t bytes = 0;
        for (int i = 0; i < n; i++)
            bytes += iov[i].iov_len;
        disk_op *o = disk_log(d, OP_WRITE, d->inode_of_fd[fd]);
        o->offset = (uint64_t)offset;
        o->data = malloc(bytes ? bytes : 1);
        assert_non_null(o->data);
        for (int i = 0; i < n; i++) {
            memcpy(o->data + o->n, iov[i].iov_base, iov[i].iov_len);
            o->n += iov[i].iov_len;
        }
    }
    ssize_t k = pwritev(fd, iov, n, offset);
    LEAVE;
    return k;
}
static int d_sync(void *ctx, int fd)
{
    DISK;
    int e = disk_gate(d, K_SYNC);
    if (e)
        return disk_fail(d, e);
    if (fd < DISK_FDS && d->inode_of_fd[fd])
        disk_sync_file(d, d->inode_of_fd[fd]);
    LEAVE;
    return 0;
}
static int d_grow(void *ctx, int fd, off_t offset, off_t bytes)
{
    DISK;
    int e = disk_gate(d, K_GROW);
    if (e)
        return disk_fail(d, e);
    if (d->logging && fd < DISK_FDS && d->inode_of_fd[fd])
        disk_log(d, OP_TRUNCATE, d->inode_of_fd[fd])->offset = (uint64_t)(offset + bytes);
    int rc = mote__store_io_system.grow(NULL, fd, offset, bytes);
    LEAVE;
    return rc;
}
static int d_punch(void *ctx, int fd, off_t offset, off_t bytes)
{
    DISK;
    int e = disk_gate(d, K_WRITE);
    if (e)
        return disk_fail(d, e);
    if (d->logging && fd < DISK_FDS && d->inode_of_fd[fd]) {
        disk_op *o = disk_log(d, OP_WRITE, d->inode_of_fd[fd]);
        o->offset = (uint64_t)offset;
        o->n = (size_t)bytes;
        o->data = calloc(1, (size_t)bytes);
        assert_non_null(o->data);
    }
    int rc = mote__store_io_system.punch(NULL, fd, offset, bytes);
    LEAVE;
    return rc;
}
static int d_rename(void *ctx, const char *from, const char *to)
{
    DISK;
    int e = disk_gate(d, K_NAME);
    if (e)
        return disk_fail(d, e);
    int rc = rename(from, to), *inode = disk_inode(d, base_name(from));
    if (!rc && inode && d->logging) {
        disk_op *o = disk_log(d, OP_RENAME, *inode);
        copy_name(o->name, base_name(from));
        copy_name(o->to, base_name(to));
        int moved = *inode, *old = disk_inode(d, base_name(to));
        if (old)
            *old = moved;
        for (size_t i = 0; i < d->n_names; i++)
            if (!strcmp(d->names[i].name, base_name(from))) {
                if (old)
                    d->names[i] = d->names[--d->n_names];
                else
                    memcpy(d->names[i].name, o->to, sizeof o->to);
                break;
            }
    }
    LEAVE;
    return rc;
}
static int d_unlink(void *ctx, const char *path)
{
    DISK;
    int e = disk_gate(d, K_NAME);
    if (e)
        return disk_fail(d, e);
    int rc = unlink(path);
    if (!rc && d->logging)
        disk_unname(d, base_name(path));
    LEAVE;
    return rc;
}
static int d_sync_dir(void *ctx, const char *path)
{
    DISK;
    int e = disk_gate(d, K_SYNC);
    if (e)
        return disk_fail(d, e);
    disk_sync_names(d);
    LEAVE;
    return 0;
}
static int d_lock(void *ctx, int fd, off_t offset, off_t bytes, mote__store_lock lock)
{
    return mote__store_io_system.lock(NULL, fd, offset, bytes, lock);
}
static int d_sqlite(void *ctx, mote__sqlite_op op, const char *path, const void *data, size_t n,
                    uint64_t offset)
{
    DISK;
    static const disk_kind kind[] = { [MOTE_SQLITE_OPEN] = K_OPEN,
                                      [MOTE_SQLITE_WRITE] = K_WRITE,
                                      [MOTE_SQLITE_SYNC] = K_SYNC,
                                      [MOTE_SQLITE_TRUNCATE] = K_WRITE,
                                      [MOTE_SQLITE_DELETE] = K_NAME };
    const char *name = base_name(path);
    int e = disk_gate(d, kind[op]);
    if (!e && d->logging) {
        if (op == MOTE_SQLITE_OPEN && (offset & SQLITE_OPEN_CREATE))
            disk_name(d, name);
        int *inode = disk_inode(d, name);
        if (inode && op == MOTE_SQLITE_WRITE) {
            disk_op *o = disk_log(d, OP_WRITE, *inode);
            o->offset = offset;
            o->n = n;
            o->data = malloc(n ? n : 1);
            assert_non_null(o->data);
            memcpy(o->data, data, n);
        } else if (inode && op == MOTE_SQLITE_TRUNCATE) {
            disk_log(d, OP_TRUNCATE, *inode)->offset = offset;
        } else if (inode && op == MOTE_SQLITE_SYNC) {
            disk_sync_file(d, *inode);
            if (strstr(name, "-wal") || strstr(name, "-journal"))
                /* SQLite syncs the directory with a log's first sync */
                disk_sync_names(d);
        } else if (op == MOTE_SQLITE_DELETE) {
            disk_unname(d, name);
            if (offset)
                disk_sync_names(d);
        }
    }
    LEAVE;
    return e;
}

static inline void disk_init(disk *d, int logging)
{
    memset(d, 0, sizeof *d);
    pthread_mutex_init(&d->mutex, NULL);
    d->logging = logging;
    d->io = (mote__store_io){ .ctx = d,
                              .open = d_open,
                              .close = d_close,
                              .preadv = d_preadv,
                              .pwritev = d_pwritev,
                              .sync = d_sync,
                              .grow = d_grow,
                              .punch = d_punch,
                              .rename = d_rename,
                              .unlink = d_unlink,
                              .sync_dir = d_sync_dir,
                              .lock = d_lock,
                              .sqlite = d_sqlite };
}
static inline void disk_deinit(disk *d)
{
    for (size_t i = 0; i < d->n_ops; i++)
        free(d->ops[i].data);
    free(d->ops);
}

/* ---- the image ---- */

typedef struct disk_file {
    uint8_t *data;
    size_t n;
} disk_file;
static inline void file_size(disk_file *f, size_t n)
{
    f->data = realloc(f->data, n ? n : 1);
    assert_non_null(f->data);
    if (n > f->n)
        memset(f->data + f->n, 0, n - f->n);
    f->n = n;
}
static inline void file_write(disk_file *f, const disk_op *o, rnd *torn)
{
    if (o->offset + o->n > f->n)
        file_size(f, o->offset + o->n);
    for (size_t i = 0; i < o->n;) {
        size_t step = SECTOR - (o->offset + i) % SECTOR;
        step = step < o->n - i ? step : o->n - i;
        if (!torn || rnd_u64(torn) >> 63)
            memcpy(f->data + o->offset + i, o->data + i, step);
        i += step;
    }
}

/* What is on the disk after the lights went out, as a new directory. */
static inline void disk_image(const disk *d, const char *dir, uint64_t seed)
{
    rnd r = { seed * 2 + 1 };
    disk_file *files = calloc((size_t)d->next_inode + 1, sizeof *files);
    assert_non_null(files);
    size_t *loose = malloc((d->n_ops + 1) * sizeof *loose), n_loose = 0, names_ahead = 0;
    for (size_t i = 0; i < d->n_ops; i++) {
        const disk_op *o = &d->ops[i];
        if (o->kind > OP_TRUNCATE) {
            names_ahead += !o->durable;
        } else if (!o->durable) {
            loose[n_loose++] = i;
        } else if (o->kind == OP_WRITE) {
            file_write(&files[o->inode], o, NULL);
        } else {
            file_size(&files[o->inode], o->offset);
        }
    }
    for (size_t i = n_loose; i > 1; i--) { /* any order */
        size_t k = rnd_below(&r, i), t = loose[i - 1];
        loose[i - 1] = loose[k];
        loose[k] = t;
    }
    int keep_order = rnd_below(&r, 4) == 0;
    for (size_t k = 0; k < n_loose; k++) {
        const disk_op *o = &d->ops[loose[k]];
        size_t fate = keep_order ? 0 : rnd_below(&r, 3); /* whole, torn, lost */
        if (fate == 2)
            continue;
        if (o->kind == OP_WRITE)
            file_write(&files[o->inode], o, fate == 1 ? &r : NULL);
        else
            file_size(&files[o->inode], o->offset);
    }
    struct {
        char name[80];
        int inode;
    } *names = calloc(d->n_ops + 1, sizeof *names);
    size_t n_names = 0, ahead = rnd_below(&r, names_ahead + 1);
    for (size_t i = 0; i < d->n_ops; i++) {
        const disk_op *o = &d->ops[i];
        if (o->kind < OP_LINK || (!o->durable && ahead-- == 0))
            continue;
        if (!o->durable && ahead == (size_t)-1)
            break;
        size_t at = 0, to = n_names;
        while (at < n_names && strcmp(names[at].name, o->name))
            at++;
        for (size_t k = 0; k < n_names; k++)
            if (o->kind == OP_RENAME && !strcmp(names[k].name, o->to))
                to = k;
        if (o->kind == OP_LINK) {
            copy_name(names[n_names].name, o->name);
            names[n_names++].inode = o->inode;
        } else if (o->kind == OP_RENAME) {
            if (to == n_names)
                copy_name(names[n_names++].name, o->to);
            names[to].inode = o->inode;
            if (at < n_names)
                names[at].name[0] = 0;
        } else if (at < n_names) {
            names[at].name[0] = 0;
        }
    }
    mkdir(dir, 0700);
    for (size_t i = 0; i < n_names; i++) {
        if (!names[i].name[0])
            continue;
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, names[i].name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        disk_file *data = &files[names[i].inode];
        assert_int_equal(fwrite(data->data ? data->data : (uint8_t *)"", 1, data->n, f), data->n);
        fclose(f);
    }
    for (int i = 0; i <= d->next_inode; i++)
        free(files[i].data);
    free(files);
    free(loose);
    free(names);
}

#endif
