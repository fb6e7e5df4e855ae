#include "store/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file_limit.h"

static int too_large(void)
{
    errno = EFBIG;
    return -1;
}

/* Never one of the standard descriptors: where one of them is closed, what is printed would flow
 * into the file. */
static int sys_open(void *ctx, const char *path, int flags, mode_t mode)
{
    int fd = open(path, flags | O_CLOEXEC, mode);
    if (fd < 0 || fd > 2)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, 3), e = errno;
    close(fd);
    errno = e;
    return higher;
}
static int sys_close(void *ctx, int fd) { return close(fd); }
static ssize_t sys_preadv(void *ctx, int fd, const struct iovec *iov, int n, off_t offset)
{
    return preadv(fd, iov, n, offset);
}
static ssize_t sys_pwritev(void *ctx, int fd, const struct iovec *iov, int n, off_t offset)
{
    uint64_t end = (uint64_t)offset;
    for (int i = 0; i < n; i++)
        end += iov[i].iov_len;
    return mote__file_size_allowed(end) ? pwritev(fd, iov, n, offset) : too_large();
}
static int sys_sync(void *ctx, int fd) { return fdatasync(fd); }
static int sys_rename(void *ctx, const char *from, const char *to) { return rename(from, to); }
static int sys_unlink(void *ctx, const char *path) { return unlink(path); }

static int sys_grow(void *ctx, int fd, off_t offset, off_t bytes)
{
    if (!mote__file_size_allowed((uint64_t)offset + (uint64_t)bytes))
        return too_large();
    int rc = posix_fallocate(fd, offset, bytes);
    if (rc == 0)
        return 0;
    /* no such thing on this file system: a sparse file will do */
    if (rc == EINVAL || rc == EOPNOTSUPP)
        return ftruncate(fd, offset + bytes);
    errno = rc;
    return -1;
}

static int sys_punch(void *ctx, int fd, off_t offset, off_t bytes)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

static int sys_sync_dir(void *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd), e = errno;
    close(fd);
    errno = e;
    return rc;
}

/* Open-file-description locks: unlike fcntl's classic ones they belong to the descriptor, so two
 * stores in one process exclude each other too, and closing another descriptor of the file does not
 * drop them. */
static int sys_lock(void *ctx, int fd, off_t offset, off_t bytes, mote__store_lock lock)
{
    static const short type[] = {
        [MOTE_UNLOCK] = F_UNLCK, [MOTE_LOCK_SHARED] = F_RDLCK, [MOTE_LOCK_EXCLUSIVE] = F_WRLCK
    };
    struct flock l = {
        .l_type = type[lock], .l_whence = SEEK_SET, .l_start = offset, .l_len = bytes
    };
    int rc = fcntl(fd, F_OFD_SETLK, &l);
    if (rc && errno == EACCES)
        errno = EAGAIN;
    return rc;
}

const mote__store_io mote__store_io_system = {
    .open = sys_open,
    .close = sys_close,
    .preadv = sys_preadv,
    .pwritev = sys_pwritev,
    .sync = sys_sync,
    .grow = sys_grow,
    .punch = sys_punch,
    .rename = sys_rename,
    .unlink = sys_unlink,
    .sync_dir = sys_sync_dir,
    .lock = sys_lock,
    .direct_reads = 1,
};
