/* The process's limit for the size of files (RLIMIT_FSIZE, `ulimit -f`). Writing beyond it raises
 * SIGXFSZ, which ends a process; a library leaves signals alone, so whatever may be written without
 * a person's asking looks here first. */
#ifndef MOTE_BASE_FILE_LIMIT_H
#define MOTE_BASE_FILE_LIMIT_H

#include <stdint.h>
#include <sys/resource.h>

/* Whether a file may be written up to `end`. */
static inline int mote__file_size_allowed(uint64_t end)
{
    struct rlimit r;
    return getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY || end <= r.rlim_cur;
}

#endif
