/* The public functions that tend a store: gc, rm. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "store/impl.h"

static void put_u(json_t *o, const char *key, uint64_t v) { json_object_set_new(o, key, json_integer((json_int_t)v)); }

/* ---- gc ---- */

/* Everything that fulfils a query goes, some hundreds to a transaction. */
static int drop_all(mote__store *s, int (*query)(mote__index *x, mote__entry *e), uint64_t *n)
{
    int rc = 0;
    while (!rc) {
        rc = mote__index_begin(&s->writer);
        mote__entry e;
        for (size_t k = 0; k < 256 && !rc && !(rc = query(&s->writer, &e)); k++) {
            rc = mote__index_drop(&s->writer, &e);
            *n += !rc;
        }
        int end = rc;
        if (rc >= 0)
            rc = mote__index_commit(&s->writer);
        if (rc < 0) {
            mote__index_rollback(&s->writer);
            return mote__store_index_failed(s, &s->writer, rc, "collecting");
        }
        rc = end;
    }
    return 0;
}

static int oldest_leaf(mote__index *x, mote__entry *e) { return mote__index_leaf(x, 0, e); }

/* Segments that hold nothing any more. */
static uint64_t drop_empty_segments(mote__store *s)
{
    mote__segment g;
    uint64_t n = 0, entries;
    for (int64_t after = -1; !mote__index_next_segment(&s->writer, after, &g); after = g.id) {
        mote__place all = { .segment = g.id, .slot_bytes = g.slot_bytes };
        mote__segfile *f = mote__segfile_get(s, g.id);
        /* nobody may be writing into one of its slots */
        int ours = f && f->writable && !s->io->lock(s->io->ctx, f->fd, mote__slot_offset(&all), (off_t)1 << 60, MOTE_LOCK_EXCLUSIVE), gone = 0;
        if (ours && !mote__index_begin(&s->writer)) {
            gone = !mote__index_segment_entries(&s->writer, g.id, &entries) && entries == 0 && !mote__index_drop_segment(&s->writer, g.id) &&
                   !mote__index_commit(&s->writer);
            mote__index_rollback(&s->writer);
        }
        if (gone) {
            char name[32], path[4200];
            mote__segment_name(name, g.id);
            mote__store_path(s, path, name);
            s->io->unlink(s->io->ctx, path);
            n++;
        }
        if (ours)
            s->io->lock(s->io->ctx, f->fd, mote__slot_offset(&all), (off_t)1 << 60, MOTE_UNLOCK);
        mote__segfile_put(s, f);
        if (gone)
            mote__segfile_kill(s, g.id);
    }
    return n;
}

/* Files that a crash left: beside their names, or without an entry. */
static int remove_strays(mote__store *s)
{
    DIR *d = opendir(s->dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[4200];
        struct stat st;
        mote__snap_entry p;
        uint8_t key[MOTE_STORE_ID];
        /* notes of fingerprints (file/fingerprint_note.c): they cost a second to make anew */
        if (!strncmp(e->d_name, "model-", 6) && snprintf(path, sizeof path, "%.3900s/%.255s", s->dir, e->d_name) < (int)sizeof path &&
            !lstat(path, &st) && S_ISREG(st.st_mode) && s->ttl >= 0 && st.st_mtime < time(NULL) - s->ttl)
            n += !s->io->unlink(s->io->ctx, path);
        if (strncmp(e->d_name, "snap-", 5) || strlen(e->d_name) < 5 + 2 * MOTE_STORE_ID + 5)
            continue;
        for (size_t i = 0; i < sizeof key; i++) {
            unsigned byte = 0;
            sscanf(e->d_name + 5 + 2 * i, "%2x", &byte);
            key[i] = (uint8_t)byte;
        }
        if (!strcmp(e->d_name + 5 + 2 * MOTE_STORE_ID, ".mote") && mote__index_snapshot_get(&s->writer, key, &p) != MOTE_INDEX_NONE)
            continue;
        if (snprintf(path, sizeof path, "%.3900s/%.255s", s->dir, e->d_name) >= (int)sizeof path)
            continue;
        if (!lstat(path, &st) && S_ISREG(st.st_mode) && st.st_mtime < time(NULL) - 600)
            n += !s->io->unlink(s->io->ctx, path);
    }
    if (d)
        closedir(d);
    return n;
}

/* much: more room for the index than a small change needs is made first. */
static int collect(mote_store *s, int much, char **text, mote_err *err)
{
    uint64_t expired = 0, orphans = 0, snapshots = 0, over = 0, segments, room, punched;
    mote__store_flush(s, NULL);
    int rc = mote__store_enter(s, err);
    if (rc)
        return rc;
    mote__store_make_way(s, much, 1);
    s->writer.was_full = 0;
    mote__store_expire(s, SIZE_MAX, &expired, &snapshots);
    rc = drop_all(s, mote__index_orphan, &orphans);
    /* over budget: what is free goes first (its room is given back below), then the least recently used */
    mote__index_sums m;
    while (!rc && !(rc = mote__index_sum(&s->writer, &m))) {
        mote__entry e;
        uint64_t in_use = m.slot_bytes - m.hole_bytes, avg = m.blocks ? m.payload_bytes / m.blocks + MOTE_SLOT_HEAD : 0;
        uint64_t idle = (m.free_slots - m.holes) * avg;
        if (!m.blocks || in_use <= s->budget + idle || (rc = oldest_leaf(&s->writer, &e)) != 0)
            break;
        rc = mote__drop_entries(s, &e, 1);
        over += !rc;
    }
    rc = rc == MOTE_INDEX_NONE ? 0 : rc;
    mote__snap_entry p;
    while (!rc && !mote__index_snapshot_orphan(&s->writer, &p)) {
        mote__drop_snapshot(s, p.key);
        snapshots++;
        if (!mote__index_snapshot_get(&s->writer, p.key, &p))
            break;
    }
    if (!rc)
        mote__snap_make_room(s, 0, &snapshots);
    punched = rc ? 0 : mote__punch_free(s);
    segments = rc ? 0 : drop_empty_segments(s);
    if (!rc)
        rc = mote__index_room(&s->writer, &room);
    int strays = remove_strays(s);
    if (!rc && s->writer.db) {
        sqlite3_exec(s->writer.db, "PRAGMA incremental_vacuum", NULL, NULL, NULL);
        sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    }
    if (rc)
        mote__fail(err, rc < 0 ? rc : MOTE_EIO, "%s: %s", s->dir, s->writer.why);
    mote__store_leave(s);
    if (rc)
        return rc < 0 ? rc : MOTE_EIO;
    json_t *o = json_object();
    put_u(o, "expired_blocks", expired);
    put_u(o, "unreachable_blocks", orphans);
    put_u(o, "evicted_blocks", over);
    put_u(o, "removed_snapshots", snapshots);
    put_u(o, "removed_segments", segments);
    put_u(o, "removed_files", (uint64_t)strays);
    put_u(o, "freed_bytes", punched);
    put_u(o, "slot_bytes", room);
    return mote__store_json(o, text, err);
}

/* An index that turns out to be damaged on the way is made anew by the second attempt, and for one
 * that found no room on the disk more is made. */
int mote_store_gc_json(mote_store *s, char **text, mote_err *err)
{
    int rc = collect(s, 0, text, err);
    if (rc != MOTE_EFORMAT && !(s->writer.db && s->writer.was_full))
        return rc;
    if (!rc)
        mote_free(*text);
    return collect(s, 1, text, err);
}

/* ---- rm ---- */

/* A beginning of an identity as a range: the first id that has it, and how many digits to compare. */
static int starts_with(const uint8_t *id, const char *digits)
{
    char hex[2 * MOTE_STORE_ID + 1];
    mote__hex(hex, id, MOTE_STORE_ID);
    return !strncmp(hex, digits, strlen(digits));
}

static void lower_bound(uint8_t *id, const char *digits)
{
    memset(id, 0, MOTE_STORE_ID);
    for (size_t i = 0; digits[i]; i++) {
        unsigned v = (unsigned)(digits[i] <= '9' ? digits[i] - '0' : digits[i] - 'a' + 10);
        id[i / 2] |= (uint8_t)(i % 2 ? v : v << 4);
    }
    /* queries ask for what comes after */
    for (size_t i = MOTE_STORE_ID; i-- > 0 && id[i]-- == 0;)
        ;
}

/* The block and all that stands on it, deepest first. */
static int remove_chain(mote__store *s, const mote__entry *top, uint64_t *n)
{
    for (;;) {
        mote__entry e = *top, child;
        int rc = 0;
        while (!(rc = mote__index_child(&s->writer, e.id, &child)))
            e = child;
        if (rc < 0)
            return mote__store_index_failed(s, &s->writer, rc, "removing");
        rc = mote__drop_entries(s, &e, 1);
        if (rc)
            return rc;
        ++*n;
        if (!memcmp(e.id, top->id, sizeof e.id))
            return 0;
    }
}

static int remove_one(mote__store *s, const char *digits, uint64_t *n_blocks, uint64_t *n_snapshots, mote_err *err)
{
    size_t n = strlen(digits);
    uint8_t from[MOTE_STORE_ID];
    mote__entry e = { 0 }, e2;
    mote__snap_entry p = { 0 }, p2;
    if (n < 6 || n > 2 * MOTE_STORE_ID || strspn(digits, "0123456789abcdef") != n)
        return mote__fail(err, MOTE_EINVAL, "'%.60s' is no identity: 6 to 32 hexadecimal digits in lower case", digits);
    lower_bound(from, digits);
    int block = !mote__index_next(&s->writer, from, &e) && starts_with(e.id, digits);
    int snap = !mote__index_snapshot_next(&s->writer, from, &p) && starts_with(p.key, digits);
    if (!block && !snap)
        return mote__fail(err, MOTE_EINVAL, "%s: nothing is called %s", s->dir, digits);
    if ((block && snap) || (block && !mote__index_next(&s->writer, e.id, &e2) && starts_with(e2.id, digits)) ||
        (snap && !mote__index_snapshot_next(&s->writer, p.key, &p2) && starts_with(p2.key, digits)))
        return mote__fail(err, MOTE_EINVAL, "%s: %s is the beginning of several identities", s->dir, digits);
    if (snap) {
        mote__drop_snapshot(s, p.key);
        ++*n_snapshots;
        return 0;
    }
    return remove_chain(s, &e, n_blocks) ? mote__fail(err, MOTE_EIO, "%s: %s", s->dir, s->writer.why) : 0;
}

static int remove_ids(mote_store *s, const char *const *ids, size_t n_ids, char **text, mote_err *err)
{
    uint64_t blocks = 0, snapshots = 0;
    mote__store_flush(s, NULL);
    int rc = mote__store_enter(s, err);
    if (rc && (ids || mote__store_begin_anew(s, err)))
        return rc;
    mote__snap_entry p;
    mote__store_make_way(s, !ids, ids != NULL);
    if (!ids) {
        rc = drop_all(s, oldest_leaf, &blocks);
        while (!rc && !mote__index_snapshot_next(&s->writer, NULL, &p)) {
            mote__drop_snapshot(s, p.key);
            snapshots++;
            if (!mote__index_snapshot_get(&s->writer, p.key, &p))
                break;
        }
        if (rc)
            mote__fail(err, rc, "%s: %s", s->dir, s->writer.why);
    }
    for (size_t i = 0; ids && i < n_ids && !rc; i++)
        rc = remove_one(s, ids[i], &blocks, &snapshots, err);
    /* snapshots that stood on what is gone; and the bytes themselves go, so that no rebuild brings them back */
    while (blocks && !mote__index_snapshot_orphan(&s->writer, &p)) {
        mote__drop_snapshot(s, p.key);
        snapshots++;
        if (!mote__index_snapshot_get(&s->writer, p.key, &p))
            break;
    }
    mote__punch_free(s);
    if (!ids)
        drop_empty_segments(s);
    mote__store_leave(s);
    if (rc)
        return rc;
    json_t *o = json_object();
    put_u(o, "removed_blocks", blocks);
    put_u(o, "removed_snapshots", snapshots);
    return mote__store_json(o, text, err);
}

int mote_store_rm_json(mote_store *s, const char *const *ids, size_t n_ids, char **text, mote_err *err)
{
    int rc = remove_ids(s, ids, n_ids, text, err);
    return rc == MOTE_EFORMAT ? remove_ids(s, ids, n_ids, text, err) : rc;
}
