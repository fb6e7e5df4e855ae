/* The files of a store's directory, as names: opened so that nobody waits and no link is followed,
 * put out of the way without overwriting anything. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/impl.h"
#include "base/path.h"

int mote__store_open_file(const mote__store *s, const char *path, int flags, mode_t mode)
{
    int fd = s->io->open(s->io->ctx, path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode), e = 0;
    if (fd < 0)
        return -1;
    struct stat st;
    if (fstat(fd, &st))
        e = errno;
    else if (!S_ISREG(st.st_mode))
        e = ENXIO;
    int now = e ? 0 : fcntl(fd, F_GETFL);
    if (!e && now >= 0)
        fcntl(fd, F_SETFL, now & ~O_NONBLOCK); /* io_uring would not wait for the disk */
    if (!e)
        return fd;
    s->io->close(s->io->ctx, fd);
    errno = e;
    return -1;
}

int mote__file_is_other(int e) { return e == ELOOP || e == ENXIO || e == EISDIR || e == ENODEV; }

const char *mote__file_problem(int e)
{
    return e == ELOOP               ? "it is a symbolic link"
           : e == EISDIR            ? "it is a directory"
           : mote__file_is_other(e) ? "it is no regular file"
           : e == ENOENT            ? "it is not there"
                                    : strerror(e);
}

int mote__store_set_aside(mote__store *s, const char *name, const char *why)
{
    char from[MOTE_PATH_ROOM], to[MOTE_PATH_ROOM];
    struct stat st;
    mote__store_path(s, from, name);
    for (int i = 1; i < 1000; i++) {
        snprintf(to, sizeof to, i > 1 ? "%s.aside-%d" : "%s.aside", from, i);
        if (lstat(to, &st) == 0)
            continue;
        if (errno != ENOENT || s->io->rename(s->io->ctx, from, to))
            break;
        mote__store_log(s, "%s is set aside as %s (%s)", name, strrchr(to, '/') + 1, why);
        return 0;
    }
    return errno ? errno : EEXIST;
}

int mote__store_clear_name(mote__store *s, const char *name)
{
    char path[MOTE_PATH_ROOM];
    struct stat st;
    mote__store_path(s, path, name);
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : errno;
    if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
        return s->io->unlink(s->io->ctx, path) ? errno : 0;
    return mote__store_set_aside(s, name, mote__file_problem(S_ISDIR(st.st_mode) ? EISDIR : ENXIO));
}

int mote__store_list(const mote__store *s, const char *prefix, size_t digits,
                     int (*f)(void *ctx, const char *digits), void *ctx)
{
    DIR *d = opendir(s->dir);
    if (!d)
        return MOTE_EIO;
    size_t n = strlen(prefix);
    int rc = 0;
    for (struct dirent *e; !rc && (e = readdir(d)) != NULL;) {
        char middle[64];
        if (strncmp(e->d_name, prefix, n) || strlen(e->d_name) != n + digits + 5 ||
            strcmp(e->d_name + n + digits, ".mote") ||
            strspn(e->d_name + n, "0123456789abcdef") < digits || digits >= sizeof middle)
            continue;
        memcpy(middle, e->d_name + n, digits);
        middle[digits] = 0;
        rc = f(ctx, middle);
    }
    closedir(d);
    return rc;
}

void mote__store_judge_dir(mote__store *s)
{
    struct stat st;
    if (stat(s->dir, &st))
        return;
    if (st.st_mode & 022)
        mote__store_log(s,
                        "other users can write this directory (mode %04o), and so decide what a "
                        "prompt is taken to mean:"
                        " 'chmod go-w' it",
                        (unsigned)st.st_mode & 07777);
    else if (st.st_uid != geteuid())
        mote__store_log(s,
                        "this directory belongs to another user (%u), who decides what a prompt is "
                        "taken to mean",
                        (unsigned)st.st_uid);
}
