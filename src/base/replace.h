/* Replaces the contents of a file completely or not at all. The new content goes into a temporary
 * file in the target's folder, which is renamed to the target after it has been synced to disk. Any
 * failure before that leaves the old file unchanged.
 *
 * Symbolic links are followed: the link stays, and the file it names is replaced, or created if it
 * does not exist. Permissions are kept, and owner and group if the system allows it. A file without
 * write permission is refused. A pipe, a device, /dev/stdout or /dev/fd/N cannot be replaced and is
 * written directly. */
#ifndef MOTE_BASE_REPLACE_H
#define MOTE_BASE_REPLACE_H

#include <stdio.h>

#include "base/err.h"

typedef struct mote__replace {
    FILE *file;       /* write here; owned */
    const char *path; /* the caller's path, for messages; borrowed until commit or abort */
    char *target;     /* path with its links followed; owned */
    char *temporary;  /* path of the temporary file; owned; NULL: `file` is the target itself */
} mote__replace;

/* Open r->file for writing. mode: permissions of a new file, before the umask. 0, or MOTE_EIO with
 * the path and the system's reason; then *r holds nothing and must not be committed or aborted. */
int mote__replace_begin(mote__replace *r, const char *path, unsigned mode, mote_err *err);
/* Sync and rename. 0, or MOTE_EIO (also for an earlier write error of r->file) with the old file
 * unchanged. Closes and frees what *r holds in both cases. */
int mote__replace_commit(mote__replace *r, mote_err *err);
/* Discard the new content; the old file stays. Closes and frees what *r holds. */
void mote__replace_abort(mote__replace *r);

/* 1 if `path` names the file or pipe that is standard output, else 0. */
int mote__replace_is_stdout(const char *path);

#endif
