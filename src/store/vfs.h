/* The SQLite VFS of the index, in front of the system's own:
 *
 *  - a file is only opened if it is a regular one with one name, and symbolic links are not
 * followed;
 *  - there is no shared memory: SQLite would map a file, and whoever cuts a mapped file kills the
 * process;
 *  - what would go beyond the process's file size limit fails (SQLITE_FULL) instead of raising
 * SIGXFSZ;
 *  - mote__store_io.sqlite, where there is one, is asked before each write, sync, truncation and
 * deletion. */
#ifndef MOTE_STORE_VFS_H
#define MOTE_STORE_VFS_H

#include "base/mem.h"
#include "store/io.h"

typedef struct mote__vfs mote__vfs;
/* NULL: no memory. */
mote__vfs *mote__vfs_create(const mote__store_io *io, mote__meter *meter);
const char *mote__vfs_name(const mote__vfs *vfs); /* NULL for NULL: the default */
void mote__vfs_destroy(mote__vfs *vfs);           /* after the last database */

#endif
