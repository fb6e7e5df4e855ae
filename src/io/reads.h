/* Reads in flight: many reads of any size from files into memory of the caller, completed in any
 * order.
 *
 *     mote__reads_open(&r, &(mote__reads_params){ .depth = 16, .direct = 1 }, meter, err);
 *     while (there is more || mote__reads_held(r)) {
 *         while (there is more && !mote__reads_submit(r, file, offset, bytes, dst, tag))
 *             ...
 *         mote__reads_next(r, 1, &done);      one of them is finished
 *     }
 *     mote__reads_close(r);
 *
 * A read is held from its submission until mote__reads_next has reported it, exactly once; until
 * then the memory it goes to, its file and that file's descriptors must stay. At most `depth` are
 * held. Long reads are cut into pieces of MOTE_READ_PIECE, and at most `depth` pieces are in
 * flight; older reads come first, so that the first ones finish early instead of all of them late.
 *
 * A read may be a guess: no piece of it begins while one of another read waits, and at most a
 * quarter of the pieces in flight are guesses'. mote__reads_promote makes it a read like others.
 *
 * Engines: io_uring; where the kernel or a sandbox refuses a ring, threads that call preadv; with
 * no threads the caller reads inside mote__reads_next. Results do not depend on the engine.
 *
 * Threads: a mote__reads belongs to one thread at a time. A mote__read_file may be used by any
 * number of them at once. */
#ifndef MOTE_IO_READS_H
#define MOTE_IO_READS_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/mem.h"

enum {
    MOTE_READ_PARTS = 4,       /* of memory that one read may go to */
    MOTE_READ_PIECE = 4 << 20, /* measured: as fast as a whole sequential read from depth 2 on */
    MOTE_READS_DEPTH = 1024    /* at most */
};

/* ---- files ---- */

/* A regular file, open for reading through the page cache and, where possible, past it. */
typedef struct mote__read_file {
    int fd;
    int direct_fd; /* O_DIRECT; -1: not possible */
    /* what the file system wants of an offset and a length, and of an address, for direct reads */
    uint32_t align, memory_align;
    _Atomic int direct_refused; /* the kernel refused one all the same: they end for this file */
    int owns_fds;
} mote__read_file;

/* direct: 1: open it past the page cache too. MOTE_EIO; MOTE_EINVAL: no regular file (a FIFO is not
 * waited for). */
int mote__read_file_open(mote__read_file *f, const char *path, int direct, mote_err *err);
/* The same over descriptors that the caller owns and keeps open. direct_fd: of the same file with
 * O_DIRECT, or -1. */
void mote__read_file_use(mote__read_file *f, int fd, int direct_fd);
void mote__read_file_close(mote__read_file *f);
/* The range around [offset, offset + bytes) that may be read past the page cache: whole units of
 * `align`. Its end may lie behind the file's. */
void mote__read_file_span(const mote__read_file *f, uint64_t *offset, size_t *bytes);
/* Whether the page cache holds all of a range. Where the system does not tell (before Linux 6.5):
 * 0. */
int mote__file_is_cached(int fd, uint64_t offset, size_t bytes);

/* ---- reads ---- */

typedef enum mote__reads_engine {
    MOTE_READS_AUTO, /* a ring where there is one, else threads */
    MOTE_READS_RING, /* the same, but without threads */
    MOTE_READS_THREADS,
    MOTE_READS_PLAIN /* no ring, no threads */
} mote__reads_engine;

typedef struct mote__reads_params {
    size_t depth; /* 1 to MOTE_READS_DEPTH; 0 = 16 */
    mote__reads_engine engine;
    size_t n_threads; /* of the threads' engine; 0 = 4, never more than `depth` */
    /* 1: past the page cache where file, offset, lengths and addresses allow it */
    int direct;
    /* 1: what the page cache holds as a whole is copied from there at submission */
    int cached_first;
    /* 1: a worker of the kernel takes each read from a ring: page faults of new memory are then its
     * work, not the submitter's */
    int kernel_workers;
    /* NULL, or used instead of the system's preadv, which also ends rings and hints to the kernel;
     * with threads it is called from them */
    ssize_t (*preadv)(void *ctx, int fd, const struct iovec *iov, int n, off_t offset);
    void *preadv_ctx;
} mote__reads_params;

typedef struct mote__reads mote__reads; /* owned by one thread at a time */

typedef struct mote__read_done {
    void *tag;
    /* 0: all bytes came; ENODATA: the file ends before; ECANCELED; else the system's errno */
    int error;
    size_t bytes; /* that came, from the first one on without a gap */
} mote__read_done;

/* meter: may be NULL; memory is MOTE_MEM_OTHER. params NULL: defaults. MOTE_ENOMEM. */
int mote__reads_open(mote__reads **r, const mote__reads_params *params, mote__meter *meter,
                     mote_err *err);
/* Cancels what is held, waits until no memory of the caller belongs to the kernel, frees. NULL is
 * fine. */
void mote__reads_close(mote__reads *r);
/* 0: held. MOTE_EFULL: `depth` are held already. MOTE_EINVAL: more than MOTE_READ_PARTS, or a range
 * no file has. What goes wrong later is the read's result. Several are handed to the kernel at
 * once: by mote__reads_start, or when one is asked for. */
int mote__reads_submit(mote__reads *r, mote__read_file *file, uint64_t offset, size_t bytes,
                       void *dst, void *tag);
int mote__reads_submit_parts(mote__reads *r, mote__read_file *file, uint64_t offset,
                             const struct iovec *parts, int n_parts, void *tag);
/* The same as a guess. */
int mote__reads_guess(mote__reads *r, mote__read_file *file, uint64_t offset, size_t bytes,
                      void *dst, void *tag);
/* Guesses with this tag are none any more. */
void mote__reads_promote(mote__reads *r, const void *tag);
/* Begin what was submitted. */
void mote__reads_start(mote__reads *r);
/* 1: *done is one that is finished. 0: none is held or, without `wait`, none is finished yet.
 * Without a ring and threads one piece is read here, whatever `wait` says. */
int mote__reads_next(mote__reads *r, int wait, mote__read_done *done);
/* Guesses with this tag of which nothing has begun are given up: ECANCELED. */
void mote__reads_drop(mote__reads *r, const void *tag);
/* Reads with this tag, or all of them: what has not begun does not begin, what has is stopped where
 * possible. Each is still reported: with ECANCELED, or as it ended. */
void mote__reads_cancel(mote__reads *r, const void *tag);
void mote__reads_cancel_all(mote__reads *r);
size_t mote__reads_held(const mote__reads *r);
/* The engine in use: never AUTO. */
mote__reads_engine mote__reads_engine_of(const mote__reads *r);
/* Bytes that came past the page cache and through it, since opening. */
void mote__reads_bytes(const mote__reads *r, uint64_t *direct, uint64_t *buffered);

#endif
