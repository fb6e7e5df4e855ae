/* Files to read from, and what their file system wants of direct reads. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/reads.h"

#if !defined(SYS_cachestat) && defined(__x86_64__)
#define SYS_cachestat 451 /* newer than Debian 12's headers */
#endif

enum { SECTOR = 512, PAGE = 4096 };

/* Whether a direct read of so much, at such an address, is taken. */
static int takes(int fd, size_t unit)
{
    size_t bytes = 2 * PAGE;
    char *p = mote__map_pages(NULL, MOTE_MEM_OTHER, &bytes);
    ssize_t n = p ? pread(fd, p + (unit < PAGE ? unit : 0), unit, 0) : -1;
    mote__unmap_pages(NULL, MOTE_MEM_OTHER, p, bytes);
    return n >= 0;
}

/* What the file system says (Linux 6.1, and not all of them do), else what a trial says. */
static void find_alignment(mote__read_file *f)
{
#ifdef STATX_DIOALIGN
    struct statx st;
    if (!statx(f->direct_fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) &&
        (st.stx_mask & STATX_DIOALIGN)) {
        f->align = st.stx_dio_offset_align;
        f->memory_align = st.stx_dio_mem_align;
        f->direct_refused = !f->align || !f->memory_align;
        return;
    }
#endif
    f->align = f->memory_align = takes(f->direct_fd, SECTOR) ? SECTOR : PAGE;
}

void mote__read_file_use(mote__read_file *f, int fd, int direct_fd)
{
    *f = (mote__read_file){
        .fd = fd, .direct_fd = direct_fd, .align = 1, .memory_align = 1, .direct_refused = 0
    };
    if (direct_fd >= 0)
        find_alignment(f);
}

/* Opened without waiting for anybody (a FIFO's writer), but read with waiting for the disk: with
 * O_NONBLOCK a ring gives up what is not in the page cache. -1 and errno. */
static int open_waiting(const char *path, int flags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags),
        now = fd < 0 ? -1 : fcntl(fd, F_GETFL);
    if (now >= 0)
        fcntl(fd, F_SETFL, now & ~O_NONBLOCK);
    return fd;
}

int mote__read_file_open(mote__read_file *f, const char *path, int direct, mote_err *err)
{
    struct stat st, same;
    *f = (mote__read_file){ .fd = -1, .direct_fd = -1 };
    int fd = open_waiting(path, 0), direct_fd = -1;
    if (fd < 0)
        return mote__fail(err, MOTE_EIO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return mote__fail(err, MOTE_EINVAL, "%s: not a regular file", path);
    }
    if (direct)
        direct_fd = open_waiting(path, O_DIRECT);
    /* the name may be another file's by now */
    if (direct_fd >= 0 &&
        (fstat(direct_fd, &same) || same.st_dev != st.st_dev || same.st_ino != st.st_ino)) {
        close(direct_fd);
        direct_fd = -1;
    }
    mote__read_file_use(f, fd, direct_fd);
    f->owns_fds = 1;
    return 0;
}

void mote__read_file_close(mote__read_file *f)
{
    if (f->owns_fds && f->fd >= 0)
        close(f->fd);
    if (f->owns_fds && f->direct_fd >= 0)
        close(f->direct_fd);
    *f = (mote__read_file){ .fd = -1, .direct_fd = -1 };
}

void mote__read_file_span(const mote__read_file *f, uint64_t *offset, size_t *bytes)
{
    size_t unit = f->align ? f->align : 1, before = (size_t)(*offset % unit);
    *offset -= before;
    *bytes = (*bytes + before + unit - 1) / unit * unit;
}

int mote__file_is_cached(int fd, uint64_t offset, size_t bytes)
{
#ifdef SYS_cachestat
    struct {
        uint64_t offset, bytes;
    } range = { offset, bytes };
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } stat = { 0 };
    return !syscall(SYS_cachestat, fd, &range, &stat, 0) &&
           stat.cached * (uint64_t)sysconf(_SC_PAGESIZE) >= bytes;
#else
    return 0;
#endif
}
