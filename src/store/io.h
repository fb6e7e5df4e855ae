/* All file operations of the store, as a table of functions: tests put one in that tears, drops and
 * refuses. SQLite's writes reach the same table through `sqlite` (store/vfs.c), which is asked
 * before each of them.
 *
 * Results as the system calls': -1 and errno, except where noted. */
#ifndef MOTE_STORE_IO_H
#define MOTE_STORE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef enum mote__store_lock {
    MOTE_UNLOCK,
    MOTE_LOCK_SHARED,
    MOTE_LOCK_EXCLUSIVE
} mote__store_lock;
typedef enum mote__sqlite_op {
    MOTE_SQLITE_OPEN,
    MOTE_SQLITE_WRITE,
    MOTE_SQLITE_SYNC,
    MOTE_SQLITE_TRUNCATE,
    MOTE_SQLITE_DELETE
} mote__sqlite_op;

typedef struct mote__store_io {
    void *ctx;
    int (*open)(void *ctx, const char *path, int flags, mode_t mode);
    int (*close)(void *ctx, int fd);
    ssize_t (*preadv)(void *ctx, int fd, const struct iovec *iov, int n, off_t offset);
    ssize_t (*pwritev)(void *ctx, int fd, const struct iovec *iov, int n, off_t offset);
    /* fdatasync */
    int (*sync)(void *ctx, int fd);
    /* make room: the file then reaches offset + bytes */
    int (*grow)(void *ctx, int fd, off_t offset, off_t bytes);
    /* give room back: reads as zeros; EOPNOTSUPP is fine */
    int (*punch)(void *ctx, int fd, off_t offset, off_t bytes);
    int (*rename)(void *ctx, const char *from, const char *to);
    int (*unlink)(void *ctx, const char *path);
    int (*sync_dir)(void *ctx, const char *path);
    /* Byte ranges, owned by the open file, never waits: 0, or -1 with EAGAIN where somebody else
     * holds it. */
    int (*lock)(void *ctx, int fd, off_t offset, off_t bytes, mote__store_lock lock);
    /* NULL, or asked before SQLite changes a file: 0 = go on, else an errno. Truncate: offset is
     * the new size. */
    int (*sqlite)(void *ctx, mote__sqlite_op op, const char *path, const void *data, size_t n,
                  uint64_t offset);
    /* 1: reads may go to the descriptor (io_uring) instead of preadv */
    int direct_reads;
} mote__store_io;

extern const mote__store_io mote__store_io_system;

#endif
