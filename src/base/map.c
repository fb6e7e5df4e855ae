#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static mote__file_id id_of(const struct stat *st)
{
    return (mote__file_id){ st->st_dev, st->st_ino, (uint64_t)st->st_size,
                            st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec,
                            st->st_ctim.tv_sec * INT64_C(1000000000) + st->st_ctim.tv_nsec };
}

int mote__file_id_get(mote__file_id *id, const char *path, mote_err *err)
{
    struct stat st;
    if (stat(path, &st))
        return mote__fail(err, MOTE_EIO, "%s: cannot stat: %s", path, strerror(errno));
    *id = id_of(&st);
    return MOTE_OK;
}

int mote__file_is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

int mote__map_open_fd(mote__map *map, int *kept, const char *path, mote_err *err)
{
    *map = (mote__map){ 0 };
    *kept = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mote__fail(err, MOTE_EIO, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    int rc = MOTE_OK;
    if (fstat(fd, &st))
        rc = mote__fail(err, MOTE_EIO, "%s: cannot stat: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = mote__fail(err, MOTE_EIO, "%s: not a regular file", path);
    else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            rc = mote__fail(err, MOTE_EIO, "%s: cannot map: %s", path, strerror(errno));
        else
            *map = (mote__map){ .data = p, .size = (size_t)st.st_size };
    }
    if (rc) {
        close(fd);
        return rc;
    }
    map->id = id_of(&st);
    *kept = fd;
    return MOTE_OK;
}

int mote__map_open(mote__map *map, const char *path, mote_err *err)
{
    int fd, rc = mote__map_open_fd(map, &fd, path, err);
    if (!rc)
        close(fd);
    return rc;
}

void mote__map_close(mote__map *map)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    *map = (mote__map){ 0 };
}
