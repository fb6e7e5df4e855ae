/* Atomic replacement of a file by rename(2); see the header. */
#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LINKS = 40, MAX_TRIES = 100 };

/* The N of "/dev/fd/N" and of the other names of a descriptor; -1 for other paths. */
static int named_descriptor(const char *path)
{
    static const char *const folders[] = { "/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/" };
    if (!strcmp(path, "/dev/stdout"))
        return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr"))
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        size_t n = strlen(folders[i]);
        char *end;
        if (strncmp(path, folders[i], n) || path[n] < '0' || path[n] > '9')
            continue;
        long fd = strtol(path + n, &end, 10);
        if (!*end && fd < 1 << 20)
            return (int)fd;
    }
    return -1;
}

/* Bytes of the folder part of a path, its slash included; 0 if there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Follow `path` while its last component is a symbolic link. Returns a malloc'd path, or NULL with
 * errno. Stops at the name of a descriptor: the kernel's link there ("pipe:[123]") may not be a
 * path that can be opened. */
static char *follow(const char *path)
{
    char *at = strdup(path);
    for (int i = 0; at; i++) {
        struct stat st;
        if (named_descriptor(at) >= 0 || lstat(at, &st) || !S_ISLNK(st.st_mode))
            return at;
        size_t folder = folder_length(at), room = 4096;
        char *next = malloc(folder + room + 1);
        ssize_t n = next ? readlink(at, next + folder, room) : -1;
        int why = i == MAX_LINKS ? ELOOP : n == (ssize_t)room ? ENAMETOOLONG : n < 0 ? errno : 0;
        if (!why) {
            next[folder + (size_t)n] = 0;
            if (next[folder] == '/')
                memmove(next, next + folder, (size_t)n + 1);
            else
                memcpy(next, at, folder);
        }
        free(at);
        at = next;
        if (why) {
            free(next);
            errno = why;
            return NULL;
        }
    }
    return NULL;
}

/* Create the temporary file in the target's folder, so that it is on the same file system. Its name
 * does not contain the target's, which may already have the maximum length. Returns a descriptor,
 * or -1 with errno. */
static int open_beside(mote__replace *r, mode_t mode)
{
    static _Atomic unsigned serial;
    int folder = (int)folder_length(r->target), fd = -1;
    for (int i = 0; i < MAX_TRIES && fd < 0; i++) {
        free(r->temporary);
        if (asprintf(&r->temporary, "%.*s.mote-%ld-%u.tmp", folder, r->target, (long)getpid(),
                     atomic_fetch_add(&serial, 1)) < 0) {
            r->temporary = NULL;
            errno = ENOMEM;
            return -1;
        }
        fd = open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0) {
        free(r->temporary);
        r->temporary = NULL;
    }
    return fd;
}

/* Give the new file the owner, group and permissions of the old one, so that nobody else may read
 * it. If the group cannot be kept, the group's permissions are removed. */
static int take_over(int fd, const struct stat *old)
{
    mode_t mode = old->st_mode & 0777;
    if (fchown(fd, old->st_uid, old->st_gid) && fchown(fd, (uid_t)-1, old->st_gid))
        mode &= ~(mode_t)070;
    return fchmod(fd, mode);
}

/* Open the descriptor to write to: the target itself or the temporary file. -1 with errno. */
static int open_target(mote__replace *r, mode_t mode)
{
    struct stat old;
    int known = named_descriptor(r->target);
    if (known >= 0) {
        if (known == STDOUT_FILENO)
            fflush(stdout);
        return fcntl(known, F_DUPFD_CLOEXEC, 3);
    }
    if (stat(r->target, &old))
        return errno == ENOENT ? open_beside(r, mode) : -1;
    if (S_ISDIR(old.st_mode)) {
        errno = EISDIR;
        return -1;
    }
    if (!S_ISREG(old.st_mode))
        return open(r->target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (access(r->target, W_OK))
        return -1;
    int fd = open_beside(r, 0600);
    if (fd >= 0 && take_over(fd, &old)) {
        int why = errno;
        close(fd);
        unlink(r->temporary);
        errno = why;
        return -1;
    }
    return fd;
}

static void end(mote__replace *r)
{
    free(r->target);
    free(r->temporary);
    *r = (mote__replace){ 0 };
}

static int failed(mote__replace *r, int why, mote_err *err)
{
    if (r->temporary)
        unlink(r->temporary);
    int rc = mote__fail(err, MOTE_EIO, "%s: cannot write: %s", r->path, strerror(why));
    end(r);
    return rc;
}

int mote__replace_begin(mote__replace *r, const char *path, unsigned mode, mote_err *err)
{
    *r = (mote__replace){ .path = path, .target = follow(path) };
    int fd = r->target ? open_target(r, (mode_t)mode) : -1;
    r->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (r->file)
        return MOTE_OK;
    int why = errno;
    if (fd >= 0)
        close(fd);
    return failed(r, why, err);
}

/* Sync the folder of `path`, so that the rename survives a power cut. Errors are ignored: some file
 * systems cannot sync a folder, and the file is complete either way. */
static void sync_folder(const char *path)
{
    size_t n = folder_length(path);
    char *folder = n ? strndup(path, n) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

int mote__replace_commit(mote__replace *r, mote_err *err)
{
    errno = 0;
    int bad = fflush(r->file) || ferror(r->file) || (r->temporary && fsync(fileno(r->file)));
    int why = errno;
    if (fclose(r->file) && !bad) {
        bad = 1;
        why = errno;
    }
    if (!bad && r->temporary && rename(r->temporary, r->target)) {
        bad = 1;
        why = errno;
    }
    if (bad)
        return failed(r, why ? why : EIO, err);
    if (r->temporary)
        sync_folder(r->target);
    end(r);
    return MOTE_OK;
}

void mote__replace_abort(mote__replace *r)
{
    fclose(r->file);
    if (r->temporary)
        unlink(r->temporary);
    end(r);
}

int mote__replace_is_stdout(const char *path)
{
    char *target = follow(path);
    struct stat st, out;
    int known = target ? named_descriptor(target) : -1, is = known == STDOUT_FILENO;
    if (target && known < 0 && !stat(target, &st) && !fstat(STDOUT_FILENO, &out))
        is = (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode)) && st.st_dev == out.st_dev &&
             st.st_ino == out.st_ino;
    free(target);
    return is;
}
