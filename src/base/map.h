/* Read-only view of a whole file, mapped. */
#ifndef MOTE_BASE_MAP_H
#define MOTE_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* What tells one state of a file from another without reading it. */
typedef struct mote__file_id {
    uint64_t device, inode, size;
    int64_t mtime_ns, ctime_ns;
} mote__file_id;

typedef struct mote__map {
    const uint8_t *data; /* owned mapping; NULL for an empty file */
    size_t size;
    mote__file_id id; /* when it was opened */
} mote__map;

/* MOTE_EIO with the path and the system's reason; refuses anything that is not a regular file. */
int mote__map_open(mote__map *map, const char *path, mote_err *err);
/* The same, and *fd is the file itself, open for reading (O_CLOEXEC), the caller's to close; -1 on
 * failure. */
int mote__map_open_fd(mote__map *map, int *fd, const char *path, mote_err *err);
void mote__map_close(mote__map *map);
/* 0 only if nothing has that name. For optional files: what is there but cannot be read (a link
 * into nothing, no permission, a directory) counts as there, so that opening it says what is wrong.
 */
int mote__file_is_there(const char *path);
/* The state a file is in now; MOTE_EIO. */
int mote__file_id_get(mote__file_id *id, const char *path, mote_err *err);

#endif
