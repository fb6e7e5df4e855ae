/* Opening and closing a store, its log, and what to do about a damaged index. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/impl.h"
#include "base/path.h"

int64_t mote__store_now(const mote__store *s)
{
    return s->tuning.now ? s->tuning.now(s->tuning.now_ctx) : (int64_t)time(NULL);
}

void mote__store_log(mote__store *s, const char *fmt, ...)
{
    char text[1024], line[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "store %.150s: %s", s->dir, text);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (char *p = line; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    }
    if (!s->params.log)
        return;
    pthread_mutex_lock(&s->log_mutex);
    size_t room = sizeof s->said / sizeof s->said[0];
    int64_t now = (int64_t)time(NULL);
    int again = 0;
    for (size_t i = 0; i < room; i++)
        again |= s->said[i].hash == hash && now - s->said[i].at < 60;
    if (!again) {
        s->said[s->n_said % room].hash = hash;
        s->said[s->n_said++ % room].at = now;
        s->params.log(s->params.log_ctx, line);
    }
    pthread_mutex_unlock(&s->log_mutex);
}

int mote__store_index_failed(mote__store *s, const mote__index *x, int rc, const char *what)
{
    if (s->stale)
        return rc; /* half of a change of somebody's: a miss */
    if (x->busy && rc == MOTE_EIO) {
        mote__store_log(s, "another process holds the index and does not let go: it is not waited "
                           "for again for a while");
    } else if (x->full && rc == MOTE_EIO) {
        mote__store_log(
            s, "the index cannot be written: %s; 'mote kv gc' or 'mote kv rm' gives some back",
            x->why);
    } else if (rc == MOTE_EFORMAT) {
        atomic_store(&s->damaged, 1);
        mote__store_log(s, "the index is damaged (%s, while %s)%s", x->why, what,
                        s->read_only ? "; 'mote kv verify' makes it anew"
                                     : "; it will be made anew");
    } else {
        mote__store_log(s, "%s: the index failed: %s", what, x->why);
    }
    return rc;
}

void mote__store_path(const mote__store *s, char path[MOTE_PATH_ROOM], const char *name)
{
    mote__path_join(path, s->dir, name);
}

/* ---- the lock of the directory: shared while the index is open, exclusive to replace it ---- */

static int dir_lock(mote__store *s, mote__store_lock lock)
{
    enum { STEP_MS = 5 };
    if (s->lock_fd < 0)
        return lock == MOTE_LOCK_EXCLUSIVE ? MOTE_EIO : 0;
    for (int64_t waited = 0;; waited += STEP_MS) {
        if (!s->io->lock(s->io->ctx, s->lock_fd, 0, 1, lock))
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return MOTE_EIO;
        if (waited >= mote__waiting_left(&s->waiting)) {
            mote__waiting_given_up(&s->waiting, waited);
            return MOTE_EIO;
        }
        nanosleep(&(struct timespec){ 0, STEP_MS * 1000000 }, NULL);
    }
}

/* What is no file under that name is put out of the way: whoever put it there has already ended the
 * lock. */
static int open_lock(mote__store *s, const char *path)
{
    for (int again = 0;; again++) {
        int fd = mote__store_open_file(s, path, O_RDWR | O_CREAT, 0600), e = errno;
        if (fd >= 0 || again || !mote__file_is_other(e))
            return fd;
        if (mote__store_set_aside(s, "lock", mote__file_problem(e))) {
            errno = e;
            return -1;
        }
    }
}

/* Where the file was removed: the next one to come makes another. */
static void renew_lock(mote__store *s)
{
    char path[MOTE_PATH_ROOM];
    struct stat st;
    if (s->read_only || s->lock_fd < 0 || fstat(s->lock_fd, &st) || st.st_nlink)
        return;
    mote__store_path(s, path, "lock");
    int fd = open_lock(s, path);
    if (fd >= 0) {
        s->io->close(s->io->ctx, s->lock_fd);
        s->lock_fd = fd;
    }
}

/* ---- opening the index ---- */

/* Files called like segments: what an index must know. */
typedef struct seen {
    mote__store *s;
    uint32_t *ids;
    size_t n, room;
} seen;
static int note_segment(void *ctx, const char *digits)
{
    seen *u = ctx;
    if (mote__list_grow(&u->s->meter, MOTE_MEM_SCRATCH, &u->ids, u->n, &u->room, sizeof *u->ids))
        return MOTE_ENOMEM;
    u->ids[u->n++] = (uint32_t)strtoul(digits, NULL, 16);
    return 0;
}

/* A file that the index does not know: a segment with slots (MOTE_EFORMAT), or a stray one, which
 * is told of. */
static int judge_unknown(mote__store *s, uint32_t id, mote_err *err)
{
    mote__segment g;
    const char *why = NULL;
    mote__segment_state state = mote__segment_look(s, id, 0, &g, &why);
    if (state == MOTE_SEGMENT_NO_MEMORY)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a look at segment %08x",
                          (unsigned)id);
    if (state == MOTE_SEGMENT_SOUND && g.n_slots)
        return mote__fail(err, MOTE_EFORMAT, "it does not know segment %08x", (unsigned)id);
    if (state == MOTE_SEGMENT_FOREIGN || state == MOTE_SEGMENT_UNREADABLE)
        mote__store_log(s, "seg-%08x.mote is left out: %s%s", (unsigned)id, why,
                        state == MOTE_SEGMENT_FOREIGN ? "; 'mote kv verify --rebuild' sets it aside"
                                                      : "");
    return 0;
}

/* Whether SQLite may be let near the index: files, with one name each, that may be read. What may
 * not be written makes the store one for reading, at opening. */
static int judge_index_files(mote__store *s, mote_err *err)
{
    static const char *const names[] = { "index.db", "index.db-journal", "index.db-wal",
                                         "index.db-shm" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[MOTE_PATH_ROOM];
        struct stat st;
        mote__store_path(s, path, names[i]);
        if (lstat(path, &st)) {
            if (errno != ENOENT || i == 0)
                return mote__fail(err, errno == ENOENT ? MOTE_EFORMAT : MOTE_EIO, "%s: %s", path,
                                  strerror(errno));
        } else if (!S_ISREG(st.st_mode) || st.st_nlink != 1) {
            return mote__fail(err, MOTE_EFORMAT, "%s is no regular file with one name", names[i]);
        } else if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) && errno == EACCES) {
            return mote__fail(err, MOTE_EFORMAT, "%s may not be read", names[i]);
        } else if (!s->read_only && i > 1 && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) &&
                   errno == EACCES) {
            return mote__fail(err, MOTE_EFORMAT, "%s may not be removed", names[i]);
        } else if (!s->read_only && !s->running && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) &&
                   errno == EACCES) {
            mote__store_log(s,
                            "%s may not be written: what is stored is read, and nothing is "
                            "written; 'chmod u+w' it",
                            names[i]);
            s->read_only = 1;
        }
    }
    return 0;
}

static void close_index(mote__store *s)
{
    pthread_mutex_lock(&s->read_mutex);
    mote__index_close(&s->reader);
    pthread_mutex_unlock(&s->read_mutex);
    mote__index_close(&s->writer);
}

/* Both connections. MOTE_EFORMAT: the index is missing, damaged, or (fresh: 0) does not know a
 * segment that is there. */
static int open_index(mote__store *s, int fresh, mote_err *err)
{
    char path[MOTE_PATH_ROOM];
    const char *vfs = mote__vfs_name(s->vfs);
    mote__store_path(s, path, "index.db");
    int rc = judge_index_files(s, err);
    if (rc)
        return rc;
    seen found = { .s = s };
    if (mote__store_list(s, "seg-", 8, note_segment, &found) == MOTE_ENOMEM)
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for the list of segments");
    pthread_mutex_lock(&s->read_mutex);
    if (!rc && !s->read_only)
        rc = mote__index_open(&s->writer, path, MOTE_INDEX_WRITE, vfs, &s->waiting, err);
    if (!rc)
        rc = mote__index_open(&s->reader, path, MOTE_INDEX_READ, vfs, &s->read_waiting, err);
    /* left with a log, where none can be written */
    if (rc == MOTE_EIO && s->read_only && !s->reader.busy)
        rc = mote__index_open(&s->reader, path, MOTE_INDEX_IMMUTABLE, vfs, NULL, err);
    if (rc && !s->running && (s->writer.busy || s->reader.busy)) {
        mote__index_close(&s->writer);
        rc = mote__index_open(&s->reader, path, MOTE_INDEX_IMMUTABLE, vfs, NULL, err);
        if (!rc) {
            mote__store_log(s, "another process holds the index and does not let go: what is "
                               "stored is read, and nothing is written");
            s->read_only = s->stale = 1;
        }
    }
    for (size_t i = 0; i < found.n && !rc && !s->stale; i++) {
        mote__segment g;
        rc = mote__index_segment(&s->reader, found.ids[i], &g);
        if (rc == MOTE_INDEX_NONE)
            rc = fresh ? 0 : judge_unknown(s, found.ids[i], err);
        else if (rc)
            mote__fail(err, rc, "%s: %s", path, s->reader.why);
    }
    pthread_mutex_unlock(&s->read_mutex);
    mote__list_free(&s->meter, MOTE_MEM_SCRATCH, found.ids, found.room, sizeof *found.ids);
    if (!rc && !s->read_only && mote__store_care(s) == MOTE_EFORMAT && !fresh)
        rc = mote__fail(err, MOTE_EFORMAT, "%s: %s", path, s->writer.why);
    if (rc)
        close_index(s);
    return rc;
}

/* The index is made anew if nobody else has done so in the meantime; `always`: even so. Ends with a
 * shared lock and an open index, or with neither, so that another process can do what we could not.
 */
static int replace_index(mote__store *s, int always, int wipe, mote__rebuilt *r, mote_err *err)
{
    close_index(s);
    dir_lock(s, MOTE_UNLOCK);
    renew_lock(s);
    int rc = 0;
    if (!dir_lock(s, MOTE_LOCK_EXCLUSIVE)) {
        if (wipe)
            mote__store_remove_all(s);
        if (always || open_index(s, 0, err)) {
            rc = mote__store_make_index(s, r, err);
            if (!rc)
                rc = open_index(s, 1, err);
        }
        if (dir_lock(s, MOTE_LOCK_SHARED) && !rc)
            rc = mote__fail(err, MOTE_EIO, "%s: the lock was lost", s->dir);
    } else if (always || dir_lock(s, MOTE_LOCK_SHARED) || open_index(s, 0, err)) {
        rc = mote__fail(err, MOTE_EIO,
                        "%s: the index must be made anew, but another process is using the store",
                        s->dir);
    }
    if (rc) {
        close_index(s);
        dir_lock(s, MOTE_UNLOCK);
    } else {
        atomic_store(&s->damaged, 0);
        mote__doubts_end(s);
    }
    return rc;
}

int mote__store_rebuild_now(mote__store *s, int wipe, mote__rebuilt *r, mote_err *err)
{
    if (s->read_only)
        return mote__fail(err, MOTE_EIO, "%s: the store is open for reading only", s->dir);
    int rc = replace_index(s, 1, wipe, r, err);
    if (!rc)
        mote__store_sort_out(s);
    return rc;
}

int mote__store_revive(mote__store *s)
{
    if (s->writer.db && !atomic_load(&s->damaged))
        return 0;
    if (s->read_only || mote__store_now(s) < s->retry_at)
        return MOTE_EIO;
    mote_err err = { 0 };
    mote__rebuilt r = { 0 };
    int rc = replace_index(s, atomic_load(&s->damaged), 0, &r, &err);
    if (rc) {
        mote__store_log(s, "goes on without: %s", err.message);
        s->retry_at = mote__store_now(s) + 10;
    }
    return rc;
}

/* ---- changing it on purpose ---- */

int mote__store_enter(mote__store *s, mote_err *err)
{
    if (s->stale)
        return mote__fail(err, MOTE_EIO, "%s: another process holds the index and does not let go",
                          s->dir);
    if (s->read_only)
        return mote__fail(err, MOTE_EIO, "%s: the store is open for reading only", s->dir);
    pthread_mutex_lock(&s->write_mutex);
    s->retry_at = 0;
    int rc = 0;
    for (int again = 0; again < 2 && !(rc = mote__store_revive(s)); again++)
        if (!(rc = mote__store_care(s))) /* an index that it finds damaged is made anew */
            return 0;
    pthread_mutex_unlock(&s->write_mutex);
    return rc == MOTE_ENOMEM
               ? mote__fail(err, rc, "%s: out of memory for a look at the index", s->dir)
               : mote__fail(err, MOTE_EIO, "%s: the index cannot be used", s->dir);
}

int mote__store_begin_anew(mote__store *s, mote_err *err)
{
    mote__rebuilt r;
    pthread_mutex_lock(&s->write_mutex);
    int rc = mote__store_rebuild_now(s, 1, &r, err);
    if (rc)
        pthread_mutex_unlock(&s->write_mutex);
    return rc;
}

void mote__store_leave(mote__store *s) { pthread_mutex_unlock(&s->write_mutex); }

/* ---- open, close ---- */

static int64_t ttl_of(double seconds)
{
    return seconds == 0     ? 72 * 3600
           : seconds < 0    ? -1
           : seconds > 9e15 ? (int64_t)9e15
                            : (int64_t)seconds;
}

static int any_segment(void *ctx, const char *digits)
{
    *(int *)ctx = 1;
    return 1;
}

static int open_dir(mote__store *s, mote_err *err)
{
    struct stat st;
    char path[MOTE_PATH_ROOM];
    int exists = !stat(s->dir, &st);
    if (exists && !S_ISDIR(st.st_mode))
        return mote__fail(err, MOTE_EIO, "%s: not a directory", s->dir);
    int store = 0;
    if (exists) {
        mote__store_path(s, path, "index.db");
        store = !lstat(path, &st);
        if (!store)
            mote__store_list(s, "seg-", 8, any_segment, &store);
    }
    if (!store && (s->params.must_exist || s->read_only))
        return mote__fail(err, MOTE_EIO, "%s: there is no store here", s->dir);
    if (!exists && mkdir(s->dir, 0700) && (errno != EEXIST || stat(s->dir, &st)))
        return mote__fail(err, MOTE_EIO, "%s: cannot make the directory: %s", s->dir,
                          strerror(errno));
    mote__store_path(s, path, "lock");
    /* an index.db without anything else of ours is not ours to remove */
    s->may_replace = lstat(path, &st) == 0 || !store;
    if (!s->may_replace)
        mote__store_list(s, "seg-", 8, any_segment, &s->may_replace);
    if (!s->read_only) {
        s->lock_fd = open_lock(s, path);
        int e = errno;
        if (s->lock_fd < 0 && (!store || (e != EACCES && e != EROFS && e != EPERM)))
            return mote__fail(err, MOTE_EIO, "%s: cannot open: %s", path, mote__file_problem(e));
        if (s->lock_fd < 0) {
            mote__store_log(s, "%s: it is read, and nothing is written", strerror(e));
            s->read_only = 1;
        }
    }
    if (s->lock_fd < 0)
        s->lock_fd = mote__store_open_file(s, path, O_RDONLY, 0);
    mote__store_judge_dir(s);
    return 0;
}

int mote__store_open(mote__store **out, const char *place, const mote_store_params *params,
                     const mote__store_tuning *tuning, mote_err *err)
{
    *out = NULL;
    mote__server servers[MOTE_URL_SERVERS];
    size_t n, n_servers;
    int rc = mote__store_url_parse(place, &n, servers, &n_servers, err);
    if (!rc && n_servers && !mote__tier_remote)
        rc = mote__tier_missing(err);
    if (rc)
        return rc;
    while (n > 1 && place[n - 1] == '/')
        n--;
    if (n == 0 || n >= sizeof(*out)->dir)
        return mote__fail(err, MOTE_EIO, "a store's directory name must have 1 to %zu bytes",
                          sizeof(*out)->dir - 1);
    mote__store *s = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *s);
    if (!s)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a store");
    mote__meter_add(&s->meter, MOTE_MEM_OTHER, sizeof *s); /* its meter lies in it */
    memcpy(s->dir, place, n);
    s->lock_fd = -1;
    if (params)
        s->params = *params;
    if (tuning)
        s->tuning = *tuning;
    s->io = s->tuning.io ? s->tuning.io : &mote__store_io_system;
    s->read_only = s->params.read_only;
    s->budget = s->params.budget_bytes ? s->params.budget_bytes : (uint64_t)64 << 30;
    s->snap_budget = s->params.snapshot_budget_bytes ? s->params.snapshot_budget_bytes
                                                     : (uint64_t)4 << 30;
    s->ttl = ttl_of(s->params.ttl_s);
    s->snap_ttl = ttl_of(s->params.snapshot_ttl_s);
    mote__recent_init(
        &s->recent,
        s->params.snapshot_memory_bytes ? s->params.snapshot_memory_bytes : (uint64_t)64 << 20,
        s->params.snapshot_memory_ttl_s == 0 ? 300 : ttl_of(s->params.snapshot_memory_ttl_s),
        &s->meter);
    if (!s->tuning.queue_items)
        s->tuning.queue_items = 1024;
    if (!s->tuning.segment_bytes)
        s->tuning.segment_bytes = (size_t)4 << 30;
    if (!s->tuning.reads_in_flight || s->tuning.reads_in_flight > 64)
        s->tuning.reads_in_flight = s->tuning.reads_in_flight ? 64 : 16;
    pthread_mutex_t *mutexes[] = { &s->write_mutex, &s->read_mutex, &s->files_mutex, &s->mutex,
                                   &s->log_mutex };
    for (size_t i = 0; i < sizeof mutexes / sizeof *mutexes; i++)
        pthread_mutex_init(mutexes[i], NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &attr);
    pthread_cond_init(&s->done, &attr);
    pthread_condattr_destroy(&attr);

    s->waiting.limit_ms = s->read_waiting.limit_ms = MOTE_STORE_WAIT_MS;
    if (!(s->vfs = mote__vfs_create(s->io, &s->meter)))
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a store");
    s->touched = rc ? NULL
                    : mote__alloc(&s->meter, MOTE_MEM_OTHER,
                                  MOTE_STORE_TOUCHED * sizeof *s->touched);
    if (!rc && !s->touched)
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a store");
    if (!rc)
        rc = open_dir(s, err);
    if (!rc && dir_lock(s, MOTE_LOCK_SHARED))
        rc = mote__fail(err, MOTE_EIO, "%s: another process is making the index anew", s->dir);
    pthread_mutex_lock(&s->write_mutex);
    if (!rc) {
        rc = open_index(s, 0, err);
        if (rc == MOTE_EFORMAT && !s->read_only && s->may_replace) {
            mote__rebuilt r = { 0 };
            mote_err why = err ? *err : (mote_err){ 0 };
            rc = replace_index(s, 0, 0, &r, err);
            if (!rc && r.segments)
                mote__store_log(
                    s, "the index was made anew from %llu segments: %llu blocks, %llu damaged (%s)",
                    (unsigned long long)r.segments, (unsigned long long)r.blocks,
                    (unsigned long long)r.damaged, why.message);
            /* whoever maintains it may still remove everything */
            if (rc && s->params.must_exist) {
                mote__store_log(s, "%s", err ? err->message : "the index cannot be made anew");
                s->retry_at = INT64_MAX;
                rc = 0;
            }
        }
    }
    pthread_mutex_unlock(&s->write_mutex);
    if (!rc && !s->read_only && mote__queue_start(s))
        rc = mote__fail(err, MOTE_ENOMEM, "cannot start the store's writer");
    if (!rc && n_servers)
        rc = mote__tier_remote->open(&s->tier, s, servers, n_servers, err);
    explicit_bzero(servers, sizeof servers);
    if (rc) {
        mote_store_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

const char *mote__store_dir(const mote__store *s) { return s->dir; }
int mote__store_writable(const mote__store *s) { return !s->read_only; }

int mote_store_open(mote_store **store, const char *place, const mote_store_params *params,
                    mote_err *err)
{
    *store = NULL;
    int rc = params ? MOTE_CHECK_RESERVED(params, "mote_store_params", err) : 0;
    return rc ? rc : mote__store_open(store, place, params, NULL, err);
}

void mote_store_close(mote_store *s)
{
    if (!s)
        return;
    if (s->tier)
        mote__tier_remote->close(s->tier);
    mote__queue_stop(s);
    close_index(s);
    mote__segfiles_sweep(s, 1);
    if (s->lock_fd >= 0)
        s->io->close(s->io->ctx, s->lock_fd);
    mote__vfs_destroy(s->vfs);
    mote__recent_deinit(&s->recent);
    pthread_mutex_t *mutexes[] = { &s->write_mutex, &s->read_mutex, &s->files_mutex, &s->mutex,
                                   &s->log_mutex };
    for (size_t i = 0; i < sizeof mutexes / sizeof *mutexes; i++)
        pthread_mutex_destroy(mutexes[i]);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->done);
    mote__free(&s->meter, MOTE_MEM_OTHER, s->touched, MOTE_STORE_TOUCHED * sizeof *s->touched);
    assert(mote__meter_total(&s->meter) == sizeof *s); /* all else had an owner */
    mote__free(NULL, MOTE_MEM_OTHER, s, sizeof *s);
}
