#include "store/vfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/file_limit.h"

struct mote__vfs {
    sqlite3_vfs vfs;
    sqlite3_vfs *system;
    const mote__store_io *io;
    mote__meter *meter;
    char name[32];
};

typedef struct shim {
    sqlite3_file base;
    const mote__vfs *owner;
    /* SQLite's, good as long as the file is open */
    const char *path;
    sqlite3_file *file; /* the system's, in the room behind */
} shim;

static int ask(const mote__vfs *v, mote__sqlite_op op, const char *path, const void *data, size_t n,
               uint64_t offset, int code)
{
    int e = path && v->io->sqlite ? v->io->sqlite(v->io->ctx, op, path, data, n, offset) : 0;
    return e == 0 ? SQLITE_OK : e == ENOSPC ? SQLITE_FULL : code;
}

#define FILE_OF(f) (((shim *)(f))->file)
static int x_close(sqlite3_file *f) { return FILE_OF(f)->pMethods->xClose(FILE_OF(f)); }
static int x_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    return FILE_OF(f)->pMethods->xRead(FILE_OF(f), p, n, at);
}
static int x_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    shim *s = (shim *)f;
    if (!mote__file_size_allowed((uint64_t)at + (uint64_t)n))
        return SQLITE_FULL;
    int rc = ask(s->owner, MOTE_SQLITE_WRITE, s->path, p, (size_t)n, (uint64_t)at,
                 SQLITE_IOERR_WRITE);
    return rc ? rc : s->file->pMethods->xWrite(s->file, p, n, at);
}
static int x_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    shim *s = (shim *)f;
    int rc = ask(s->owner, MOTE_SQLITE_TRUNCATE, s->path, NULL, 0, (uint64_t)size,
                 SQLITE_IOERR_TRUNCATE);
    return rc ? rc : s->file->pMethods->xTruncate(s->file, size);
}
static int x_sync(sqlite3_file *f, int flags)
{
    shim *s = (shim *)f;
    int rc = ask(s->owner, MOTE_SQLITE_SYNC, s->path, NULL, 0, 0, SQLITE_IOERR_FSYNC);
    return rc ? rc : s->file->pMethods->xSync(s->file, flags);
}
static int x_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return FILE_OF(f)->pMethods->xFileSize(FILE_OF(f), size);
}
static int x_lock(sqlite3_file *f, int level)
{
    return FILE_OF(f)->pMethods->xLock(FILE_OF(f), level);
}
static int x_unlock(sqlite3_file *f, int level)
{
    return FILE_OF(f)->pMethods->xUnlock(FILE_OF(f), level);
}
static int x_reserved(sqlite3_file *f, int *out)
{
    return FILE_OF(f)->pMethods->xCheckReservedLock(FILE_OF(f), out);
}
static int x_control(sqlite3_file *f, int op, void *arg)
{
    return FILE_OF(f)->pMethods->xFileControl(FILE_OF(f), op, arg);
}
static int x_sector(sqlite3_file *f) { return FILE_OF(f)->pMethods->xSectorSize(FILE_OF(f)); }
/* Nothing is promised about atomic or ordered writes. */
static int x_traits(sqlite3_file *f) { return 0; }

/* Version 1: without shared memory. */
static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = x_close,
    .xRead = x_read,
    .xWrite = x_write,
    .xTruncate = x_truncate,
    .xSync = x_sync,
    .xFileSize = x_size,
    .xLock = x_lock,
    .xUnlock = x_unlock,
    .xCheckReservedLock = x_reserved,
    .xFileControl = x_control,
    .xSectorSize = x_sector,
    .xDeviceCharacteristics = x_traits,
};

/* Nothing there, or a file that may be opened. */
static int may_open(const char *path)
{
    struct stat st;
    return !path || (lstat(path, &st) ? errno == ENOENT : S_ISREG(st.st_mode) && st.st_nlink == 1);
}

static int x_open(sqlite3_vfs *vfs, sqlite3_filename path, sqlite3_file *f, int flags, int *out)
{
    const mote__vfs *v = vfs->pAppData;
    shim *s = (shim *)f;
    *s = (shim){ .owner = v, .path = path, .file = (sqlite3_file *)(s + 1) };
    s->file->pMethods = NULL;
    if (!may_open(path))
        return SQLITE_CANTOPEN;
    int rc = ask(v, MOTE_SQLITE_OPEN, path, NULL, 0, (uint64_t)flags, SQLITE_CANTOPEN);
    if (!rc)
        rc = v->system->xOpen(v->system, path, s->file, flags, out);
    if (!rc)
        s->base.pMethods = &methods;
    return rc;
}
static int x_delete(sqlite3_vfs *vfs, const char *path, int sync_dir)
{
    const mote__vfs *v = vfs->pAppData;
    int rc = ask(v, MOTE_SQLITE_DELETE, path, NULL, 0, (uint64_t)sync_dir, SQLITE_IOERR_DELETE);
    return rc ? rc : v->system->xDelete(v->system, path, sync_dir);
}
#define SYSTEM(vfs) (((const mote__vfs *)(vfs)->pAppData)->system)
static int x_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
    return SYSTEM(vfs)->xAccess(SYSTEM(vfs), path, flags, out);
}
/* As it is, from the root on: the system's own would follow links. */
static int x_full(sqlite3_vfs *vfs, const char *path, int n, char *out)
{
    size_t k = 0;
    if (*path != '/') {
        if (!getcwd(out, (size_t)n))
            return SQLITE_CANTOPEN;
        k = strlen(out);
    }
    const char *between = k ? "/" : "";
    return snprintf(out + k, (size_t)n - k, "%s%s", between, path) >= n - (int)k ? SQLITE_CANTOPEN
                                                                                 : SQLITE_OK;
}
static int x_random(sqlite3_vfs *vfs, int n, char *out)
{
    return SYSTEM(vfs)->xRandomness(SYSTEM(vfs), n, out);
}
static int x_sleep(sqlite3_vfs *vfs, int us) { return SYSTEM(vfs)->xSleep(SYSTEM(vfs), us); }
static int x_time(sqlite3_vfs *vfs, double *out)
{
    return SYSTEM(vfs)->xCurrentTime(SYSTEM(vfs), out);
}
static int x_error(sqlite3_vfs *vfs, int n, char *out)
{
    return SYSTEM(vfs)->xGetLastError(SYSTEM(vfs), n, out);
}
static int x_time64(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    return SYSTEM(vfs)->xCurrentTimeInt64(SYSTEM(vfs), out);
}

mote__vfs *mote__vfs_create(const mote__store_io *io, mote__meter *meter)
{
    sqlite3_vfs *system = sqlite3_vfs_find(NULL);
    mote__vfs *v = system ? mote__alloc(meter, MOTE_MEM_OTHER, sizeof *v) : NULL;
    if (!v)
        return NULL;
    v->system = system;
    v->meter = meter;
    v->io = io;
    snprintf(v->name, sizeof v->name, "mote-%p", (void *)v);
    v->vfs = (sqlite3_vfs){ .iVersion = 2,
                            .szOsFile = (int)sizeof(shim) + system->szOsFile,
                            .mxPathname = system->mxPathname,
                            .zName = v->name,
                            .pAppData = v,
                            .xOpen = x_open,
                            .xDelete = x_delete,
                            .xAccess = x_access,
                            .xFullPathname = x_full,
                            .xRandomness = x_random,
                            .xSleep = x_sleep,
                            .xCurrentTime = x_time,
                            .xGetLastError = x_error,
                            .xCurrentTimeInt64 = x_time64 };
    if (sqlite3_vfs_register(&v->vfs, 0)) {
        mote__free(meter, MOTE_MEM_OTHER, v, sizeof *v);
        return NULL;
    }
    return v;
}

const char *mote__vfs_name(const mote__vfs *v) { return v ? v->name : NULL; }

void mote__vfs_destroy(mote__vfs *v)
{
    if (!v)
        return;
    sqlite3_vfs_unregister(&v->vfs);
    mote__free(v->meter, MOTE_MEM_OTHER, v, sizeof *v);
}
