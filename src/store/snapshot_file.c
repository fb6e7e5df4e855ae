/* Snapshots: a file each, written beside its name, synced and renamed before the index hears of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/impl.h"
#include "base/path.h"

static int failed(mote__store *s, int rc, const char *what)
{
    return mote__store_index_failed(s, &s->writer, rc, what);
}

void mote__snap_name(char name[64], const uint8_t *key)
{
    char hex[2 * MOTE_STORE_ID + 1];
    mote__hex(hex, key, MOTE_STORE_ID);
    snprintf(name, 64, "snap-%s.mote", hex);
}

int mote__snap_load(mote__store *s, const uint8_t *key, uint8_t **file, size_t *n)
{
    char name[64], path[MOTE_PATH_ROOM];
    struct stat st;
    *file = NULL;
    *n = 0;
    mote__snap_name(name, key);
    mote__store_path(s, path, name);
    int fd = mote__store_open_file(s, path, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT || errno == EACCES || mote__file_is_other(errno) ? ENODATA : errno;
    int e = fstat(fd, &st) ? errno : 0;
    if (!e &&
        (st.st_size < MOTE_SNAPSHOT_HEADER || st.st_size > (off_t)MOTE_STORE_MAX_SNAPSHOT + 8192))
        e = ENODATA;
    if (!e && !(*file = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, (size_t)st.st_size)))
        e = ENOMEM;
    if (!e)
        e = mote__read_full(s, fd, &(struct iovec){ *file, (size_t)st.st_size }, 1, 0);
    s->io->close(s->io->ctx, fd);
    if (e && *file) {
        mote__free(&s->meter, MOTE_MEM_SCRATCH, *file, (size_t)st.st_size);
        *file = NULL;
    } else if (!e) {
        *n = (size_t)st.st_size;
        mote__count(&s->counts.read_bytes, *n);
    }
    return e;
}

/* Entries go first, their files after them, and only where nobody has put the same snapshot
 * meanwhile: a put renames its file into place inside its transaction, and only one process at a
 * time is inside one. A crash in between leaves a file without an entry, for gc. */
int mote__drop_snapshots(mote__store *s, const uint8_t (*keys)[MOTE_STORE_ID], size_t n)
{
    mote__index *x = &s->writer;
    mote__snap_entry e;
    int rc = mote__index_begin(x);
    for (size_t i = 0; i < n && !rc; i++) {
        mote__recent_drop(&s->recent, keys[i]);
        rc = mote__index_snapshot_drop(x, keys[i]);
    }
    if (!rc)
        rc = mote__index_commit(x);
    if (!rc)
        rc = mote__index_begin(x);
    if (rc) {
        mote__index_rollback(x);
        return failed(s, rc, "dropping snapshots");
    }
    for (size_t i = 0; i < n; i++) {
        char name[64];
        mote__snap_name(name, keys[i]);
        if (mote__index_snapshot_get(x, keys[i], &e) == MOTE_INDEX_NONE)
            mote__store_clear_name(s, name);
    }
    if (mote__index_commit(x))
        mote__index_rollback(x);
    return 0;
}

void mote__drop_snapshot(mote__store *s, const uint8_t *key)
{
    uint8_t own[1][MOTE_STORE_ID]; /* the key may be the index's, or an entry's that goes */
    memcpy(own[0], key, sizeof own[0]);
    mote__drop_snapshots(s, (const uint8_t(*)[MOTE_STORE_ID])own, 1);
}

/* The least recently used go until `bytes` more fit. 1: they do. */
int mote__snap_make_room(mote__store *s, uint64_t bytes, uint64_t *n_dropped)
{
    for (;;) {
        uint64_t room = 0;
        mote__snap_entry e;
        int rc = mote__index_snapshot_room(&s->writer, &room);
        if (!rc && (bytes > s->snap_budget || room <= s->snap_budget - bytes))
            return bytes <= s->snap_budget;
        if (!rc)
            rc = mote__index_snapshot_oldest(&s->writer, 0, &e);
        if (rc) {
            if (rc < 0)
                failed(s, rc, "making room for a snapshot");
            return 0;
        }
        mote__drop_snapshot(s, e.key);
        if (n_dropped)
            ++*n_dropped;
        if (atomic_load(&s->damaged) || !mote__index_snapshot_get(&s->writer, e.key, &e))
            return 0;
    }
}

mote__snap_entry mote__snap_entry_of(const mote__store *s, const mote__item *it)
{
    mote__snap_entry e = { .chain = it->snap.chain,
                           .approximate = it->snap.approximate,
                           .n_tail = it->snap.n_tail,
                           .bytes = it->file_bytes,
                           .created = (int64_t)(it->snap.created & INT64_MAX),
                           .used = mote__store_now(s) };
    memcpy(e.key, it->snap.key, sizeof e.key);
    memcpy(e.tokens, it->snap.tokens, sizeof e.tokens);
    return e;
}

void mote__write_snapshot(mote__store *s, mote__item *it)
{
    char name[64], path[MOTE_PATH_ROOM], beside[MOTE_PATH_ROOM + 64];
    mote__snap_entry e = mote__snap_entry_of(s, it), old;
    int rc = mote__index_snapshot_get(&s->writer, e.key, &old);
    if (rc == 0 && !mote__snap_matches(&it->snap, &old))
        /* an entry that cannot be this one's is written anew */
        rc = MOTE_INDEX_NONE;
    it->end = rc < 0 ? MOTE_ITEM_FAILED : MOTE_ITEM_KNOWN;
    if (rc < 0)
        failed(s, rc, "looking up a snapshot");
    if (rc <= 0) {
        if (rc == 0)
            mote__index_snapshot_touch(&s->writer, e.key, e.used);
        return;
    }
    if (!mote__snap_make_room(s, it->file_bytes, NULL)) {
        it->end = MOTE_ITEM_DROPPED;
        if (it->file_bytes > s->snap_budget)
            mote__store_log(
                s, "a snapshot is not stored: it is larger than the budget of snapshots, %llu",
                (unsigned long long)s->snap_budget);
        return;
    }
    mote__snap_name(name, e.key);
    mote__store_path(s, path, name);
    /* two processes may write the same one: each beside, under a name of its own */
    uint64_t own = 0;
    if (getrandom(&own, sizeof own, 0) != (ssize_t)sizeof own)
        own = (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)it;
    snprintf(beside, sizeof beside, "%s.%016llx", path, (unsigned long long)own);
    int fd = s->io->open(s->io->ctx, beside, O_RDWR | O_CREAT | O_EXCL, 0600);
    int err = fd < 0 ? errno
                     : mote__write_full(s, fd, &(struct iovec){ it->file, it->file_bytes }, 1, 0);
    if (!err && s->io->sync(s->io->ctx, fd))
        err = errno;
    if (fd >= 0)
        s->io->close(s->io->ctx, fd);
    if (err) {
        it->end = MOTE_ITEM_FAILED;
        mote__store_log(s, "a snapshot cannot be written: %s", strerror(err));
        if (fd >= 0)
            s->io->unlink(s->io->ctx, beside);
        return;
    }
    rc = mote__index_begin(&s->writer);
    if (!rc && (s->io->rename(s->io->ctx, beside, path) || s->io->sync_dir(s->io->ctx, s->dir)))
        err = errno;
    if (!rc && !err)
        rc = mote__index_snapshot_put(&s->writer, &e);
    if (!rc && !err)
        rc = mote__index_commit(&s->writer);
    it->end = rc || err ? MOTE_ITEM_FAILED : MOTE_ITEM_WRITTEN;
    mote__count(&s->counts.written_bytes, it->file_bytes);
    if (rc || err) {
        mote__index_rollback(&s->writer);
        s->io->unlink(s->io->ctx, beside);
        if (err)
            mote__store_log(s, "a snapshot cannot be put in its place: %s", strerror(err));
        else
            failed(s, rc, "indexing a snapshot");
    }
}

/* ---- finding ---- */

int mote__snap_matches(const mote__snapfile *s, const mote__snap_entry *e)
{
    return !memcmp(s->key, e->key, sizeof e->key) &&
           !memcmp(s->tokens, e->tokens, sizeof e->tokens) &&
           !memcmp(s->chain.id, e->chain.id, sizeof e->chain.id) &&
           s->chain.n_blocks == e->chain.n_blocks && s->chain.n_exact == e->chain.n_exact &&
           s->approximate == e->approximate && s->n_tail == e->n_tail;
}

/* One candidate: 1 = loaded and whole (out NULL: it fits by its names), 0 = not this one. */
static int take(mote__store *s, const mote__store_context *c, const mote__snapshot_want *w,
                const mote__snap_entry *e, const uint8_t *tail, int again, mote__snapshot *out)
{
    mote__snapfile want = { .chain = e->chain, .approximate = e->approximate, .n_tail = e->n_tail },
                   got;
    uint64_t n_tokens = (uint64_t)e->chain.n_blocks * MOTE_BLOCK_TOKENS + e->n_tail;
    const uint8_t *file_tail, *blob;
    const char *why = "";
    size_t n;
    memcpy(want.context, c->hash, sizeof want.context);
    memcpy(want.tokens, e->tokens, sizeof want.tokens);
    if (!mote__snapfile_is(&want, tail, e->key))
        return 0; /* another tail */
    if (!w->any_origin && want.origin != w->origin && n_tokens > w->origin)
        return 0; /* other windows */
    if (!out)
        return 1;
    uint8_t *file = mote__recent_get(&s->recent, e->key, &n, mote__store_now(s));
    int recent = file != NULL, err = recent ? 0 : mote__snap_load(s, e->key, &file, &n);
    if (err && err != ENODATA) {
        mote__store_log(s, "a snapshot cannot be read: %s", strerror(err));
        return 0;
    }
    int bad = err || mote__snapfile_read(&got, file, n, &file_tail, &blob, &why);
    if (!bad && (!mote__snap_matches(&got, e) || got.origin != want.origin ||
                 memcmp(got.context, c->hash, sizeof got.context) ||
                 memcmp(file_tail, tail, got.n_tail * 4u))) {
        bad = 1;
        why = "it is another one";
    }
    void *copy = bad ? NULL : mote__alloc(&s->meter, MOTE_MEM_SCRATCH, (size_t)got.blob_bytes);
    if (copy) {
        memcpy(copy, blob, (size_t)got.blob_bytes);
        *out = (mote__snapshot){ .chain = got.chain,
                                 .n_tokens = (size_t)n_tokens,
                                 .exact = !got.approximate,
                                 .origin = got.origin,
                                 .blob = copy,
                                 .blob_bytes = (size_t)got.blob_bytes,
                                 .meter = &s->meter };
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, file, n);
    if (bad && recent) {
        mote__recent_drop(&s->recent, e->key);
        return take(s, c, w, e, tail, again, out); /* from the disk */
    }
    if (bad) {
        mote__snap_entry now;
        pthread_mutex_lock(&s->read_mutex);
        int there = !mote__index_snapshot_get(&s->reader, e->key, &now);
        pthread_mutex_unlock(&s->read_mutex);
        /* dropped and put anew while we looked, perhaps */
        if (there && again)
            return take(s, c, w, e, tail, again - 1, out);
        if (there) {
            mote__store_log(s, "a snapshot is damaged (%s) and is dropped",
                            err ? "the file is missing or cut" : why);
            mote__count(&s->counts.damaged_snapshots, 1);
            mote__queue_drop_snapshot(s, e->key);
        }
    }
    if (copy) {
        mote__count(&s->counts.found_snapshots, 1);
        mote__count(&s->counts.recent_snapshots, (uint64_t)recent);
        pthread_mutex_lock(&s->mutex);
        if (s->n_touched < MOTE_STORE_TOUCHED)
            memcpy(s->touched[s->n_touched++], e->key, MOTE_STORE_ID);
        pthread_mutex_unlock(&s->mutex);
    }
    return copy != NULL;
}

/* The candidates on one prefix, in memory and on disk: two lists in one order, read as one. */
/* state: 0 to be read, 1 there, 2 at the end */
typedef struct seek {
    mote__snap_entry e[2];
    int state[2];
    int64_t skip[2];
} seek;
enum { MEMORY, DISK };

/* The better of the next two -> *e; 0, MOTE_INDEX_NONE, or an error of the index. */
static int next_candidate(mote__store *s, const mote__store_context *c, seek *k,
                          const uint8_t *tokens, uint32_t max_tail, mote__snap_entry *e)
{
    for (int t = MEMORY; t <= DISK; t++) {
        if (k->state[t])
            continue;
        int rc = MOTE_INDEX_NONE;
        if (t == MEMORY) {
            rc = mote__recent_on(&s->recent, c->hash, tokens, max_tail, k->skip[t],
                                 mote__store_now(s), &k->e[t]);
        } else if (!atomic_load(&s->damaged)) {
            pthread_mutex_lock(&s->read_mutex);
            rc = mote__index_snapshot_on(&s->reader, tokens, max_tail, k->skip[t], &k->e[t]);
            if (rc < 0)
                mote__store_index_failed(s, &s->reader, rc, "looking for a snapshot");
            pthread_mutex_unlock(&s->read_mutex);
        }
        if (rc < 0)
            return rc;
        k->state[t] = rc ? 2 : 1;
        k->skip[t]++;
    }
    if (k->state[MEMORY] == 2 && k->state[DISK] == 2)
        return MOTE_INDEX_NONE;
    int t = k->state[MEMORY] == 2 ||
                    (k->state[DISK] == 1 && mote__snap_before(&k->e[DISK], &k->e[MEMORY]))
                ? DISK
                : MEMORY;
    *e = k->e[t];
    k->state[t] = 0;
    return 0;
}

/* The block before it is stored, and its time is not up. */
static int is_usable(mote__store *s, const mote__snap_entry *e)
{
    mote__entry under;
    if (s->snap_ttl >= 0 && e->used < mote__store_now(s) - s->snap_ttl)
        return 0;
    if (e->chain.n_blocks == 0)
        return 1;
    pthread_mutex_lock(&s->read_mutex);
    int there = !atomic_load(&s->damaged) && !mote__index_get(&s->reader, e->chain.id, &under);
    pthread_mutex_unlock(&s->read_mutex);
    return there || mote__queue_has(s, e->chain.id);
}

/* out NULL: look only. Returns the tokens of what was found; 0: nothing. */
static size_t seek_snapshot(mote__store *s, const mote__store_context *c, const int32_t *ids,
                            size_t n_ids, const mote__snapshot_want *want, mote__snapshot *out)
{
    size_t n_blocks = n_ids / MOTE_BLOCK_TOKENS, found = 0;
    uint8_t(*tokens)[MOTE_STORE_ID] = mote__alloc(&s->meter, MOTE_MEM_SCRATCH,
                                                  mote__mul(n_blocks + 1, MOTE_STORE_ID));
    if (!tokens)
        return 0;
    mote__chain chain = { 0 };
    for (size_t i = 0; i < n_blocks; i++) {
        chain = mote__chain_next(c, &chain, ids + i * MOTE_BLOCK_TOKENS, 1);
        memcpy(tokens[i + 1], chain.id, MOTE_STORE_ID);
    }
    int rc = 0;
    for (size_t k = n_blocks + 1; k-- > 0 && !found && rc >= 0;) {
        size_t tail_ids = n_ids - k * MOTE_BLOCK_TOKENS;
        tail_ids = tail_ids < MOTE_BLOCK_TOKENS ? tail_ids : MOTE_BLOCK_TOKENS - 1;
        uint8_t tail[MOTE_SLOT_IDS];
        mote__put_ids(tail, ids + k * MOTE_BLOCK_TOKENS, tail_ids);
        seek at = { 0 };
        mote__snap_entry e;
        while (!found && !(rc = next_candidate(s, c, &at, tokens[k], (uint32_t)tail_ids, &e)))
            if (e.chain.n_blocks == k && !(want->exact_only && e.approximate) && is_usable(s, &e) &&
                take(s, c, want, &e, tail, 2, out))
                found = k * MOTE_BLOCK_TOKENS + e.n_tail;
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, tokens, mote__mul(n_blocks + 1, MOTE_STORE_ID));
    return found;
}

int mote__store_seek_snapshot(mote__store *s, const mote__store_context *c, const int32_t *ids,
                              size_t n_ids, const mote__snapshot_want *want, mote__snapshot *out)
{
    *out = (mote__snapshot){ 0 };
    return seek_snapshot(s, c, ids, n_ids, want, out) > 0;
}

size_t mote__store_peek_snapshot(mote__store *s, const mote__store_context *c, const int32_t *ids,
                                 size_t n_ids)
{
    mote__snapshot_want any = { .any_origin = 1 };
    return seek_snapshot(s, c, ids, n_ids, &any, NULL);
}

void mote__snapshot_free(mote__snapshot *snapshot)
{
    mote__free(snapshot->meter, MOTE_MEM_SCRATCH, snapshot->blob, snapshot->blob_bytes);
    *snapshot = (mote__snapshot){ 0 };
}
