/* A SQLite VFS that asks mote__store_io.sqlite before each write, sync, truncation and deletion, and leaves the doing to the system's own
 * VFS. Only registered for an I/O table that has such a function. */
#ifndef MOTE_STORE_VFS_H
#define MOTE_STORE_VFS_H

#include "store/io.h"

typedef struct mote__vfs mote__vfs;
/* NULL: no memory. */
mote__vfs *mote__vfs_create(const mote__store_io *io);
const char *mote__vfs_name(const mote__vfs *vfs);      /* NULL for NULL: the default */
void mote__vfs_destroy(mote__vfs *vfs);                /* after the last database */

#endif
