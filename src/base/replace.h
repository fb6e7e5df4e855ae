/* Writing a file that is there whole or not at all. The new content goes into a temporary file
 * beside the target, which takes the target's place when all is on the disk; a failure on the way
 * leaves the old file as it was.
 *
 * Symbolic links are followed, so that the link stays and what it names is replaced (or made, where
 * it names nothing yet). The target's permissions and, where the system lets us, its owner are
 * kept; a file that may not be written is refused. What is no regular file (a pipe, a device,
 * /dev/stdout, /dev/fd/N) cannot be replaced: it is written directly. */
#ifndef MOTE_BASE_REPLACE_H
#define MOTE_BASE_REPLACE_H

#include <stdio.h>

#include "base/err.h"

typedef struct mote__replace {
    FILE *file;       /* write here; owned */
    const char *path; /* as the caller named it; borrowed */
    char *target;     /* owned: path with its links followed */
    char *temporary;  /* owned; NULL: `file` is the target itself */
} mote__replace;

/* mode: permissions of a file that is not there yet, less the umask. MOTE_EIO names the path and
 * the system's reason; then there is nothing to end. */
int mote__replace_begin(mote__replace *r, const char *path, unsigned mode, mote_err *err);
/* Put the new content in place, or leave the old one and say why. An earlier error of r->file
 * counts. Ends *r. */
int mote__replace_commit(mote__replace *r, mote_err *err);
/* Leave the old file; ends *r. */
void mote__replace_abort(mote__replace *r);

/* 1: writing to `path` would write to standard output. */
int mote__replace_is_stdout(const char *path);

#endif
