/* The process's limit on the size of a file (RLIMIT_FSIZE, `ulimit -f`). A write beyond it raises
 * SIGXFSZ, which kills the process by default. The library does not change signal handlers, so code
 * that writes files the user did not ask for checks the limit first. */
#ifndef MOTE_BASE_FILE_LIMIT_H
#define MOTE_BASE_FILE_LIMIT_H

#include <stdint.h>
#include <sys/resource.h>

/* 1 if a file may grow to `end` bytes, else 0. */
static inline int mote__file_size_allowed(uint64_t end)
{
    struct rlimit r;
    return getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY || end <= r.rlim_cur;
}

#endif
