/* The public functions that maintain a store: gc, rm. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json_put.h"
#include "store/catalog.h"
#include "base/path.h"

/* ---- gc ---- */

/* Slots of a failed commit are ours alone until a later one succeeds; before they can be collected
 * one must. */
static int settle_doubts(mote__store *s)
{
    if (!s->n_doubtful)
        return 0;
    int rc = mote__index_begin(&s->writer);
    if (!rc)
        rc = mote__index_nudge(&s->writer);
    if (!rc)
        rc = mote__index_commit(&s->writer);
    if (!rc)
        mote__doubts_end(s);
    else
        mote__index_rollback(&s->writer);
    return rc;
}

typedef struct empties {
    uint32_t ids[256];
    mote__segfile *files[256];
    size_t n;
} empties;
static int note_empty(void *ctx, const mote__index_any *row)
{
    empties *e = ctx;
    e->ids[e->n++] = (uint32_t)row->number;
    return e->n == sizeof e->ids / sizeof *e->ids;
}

/* Segments that hold nothing any more, some hundreds in one transaction. */
static int drop_empty_segments(mote__store *s, uint64_t *n)
{
    empties e = { .n = 0 };
    mote__index *x = &s->writer;
    uint64_t entries;
    size_t ours = 0;
    int rc = mote__index_empty_segments(x, note_empty, &e);
    if (rc || !e.n)
        return rc;
    for (size_t i = 0; i < e.n; i++) { /* nobody may be writing into one of its slots */
        mote__segfile *f = mote__segfile_get(s, e.ids[i]);
        if (f && (!f->writable || s->io->lock(s->io->ctx, f->fd, MOTE_SEGMENT_HEADER,
                                              (off_t)1 << 60, MOTE_LOCK_EXCLUSIVE))) {
            mote__segfile_put(s, f);
            continue;
        }
        e.ids[ours] = e.ids[i];
        e.files[ours++] = f; /* NULL: the file is gone already */
    }
    rc = mote__index_begin(x);
    size_t gone = 0;
    for (size_t i = 0; i < ours && !rc; i++) {
        rc = mote__index_segment_entries(x, e.ids[i], &entries);
        if (!rc && entries == 0 && !(rc = mote__index_drop_segment(x, e.ids[i]))) {
            uint32_t id = e.ids[i];
            mote__segfile *f = e.files[i];
            e.ids[i] = e.ids[gone];
            e.files[i] = e.files[gone];
            e.ids[gone] = id;
            e.files[gone++] = f;
        }
    }
    if (!rc)
        rc = mote__index_commit(x);
    if (rc) {
        mote__index_rollback(x);
        mote__store_index_failed(s, x, rc, "removing segments");
        gone = 0;
    }
    for (size_t i = 0; i < ours; i++) {
        char name[32], path[MOTE_PATH_ROOM];
        mote__segment_name(name, e.ids[i]);
        mote__store_path(s, path, name);
        if (i < gone && e.files[i]) /* without one, what is called so is not ours */
            s->io->unlink(s->io->ctx, path);
        if (e.files[i])
            s->io->lock(s->io->ctx, e.files[i]->fd, MOTE_SEGMENT_HEADER, (off_t)1 << 60,
                        MOTE_UNLOCK);
        mote__segfile_put(s, e.files[i]);
        if (i < gone)
            mote__segfile_kill(s, e.ids[i]);
    }
    *n += gone;
    if (gone && s->io->sync_dir(s->io->ctx, s->dir)) {
        mote__store_log(s, "removed segments may come back: %s", strerror(errno));
        rc = MOTE_EIO;
    }
    return rc || gone < sizeof e.ids / sizeof *e.ids ? rc : drop_empty_segments(s, n);
}

static int note_entry(void *ctx, const mote__index_any *row)
{
    return mote__entries_add(ctx, &row->block);
}

static int drop_orphans(mote__store *s, mote__catalog *only, uint64_t *n)
{
    mote__entries tops = { .meter = &s->meter };
    int rc = mote__index_orphans(&s->writer, note_entry, &tops);
    for (size_t i = 0; only && i < tops.n;)
        if (mote__catalog_keep_block(only, &tops.list[i]))
            tops.list[i] = tops.list[--tops.n];
        else
            i++;
    rc = rc ? mote__store_index_failed(s, &s->writer, rc, "collecting")
            : mote__remove_trees(s, tops.list, tops.n, n);
    mote__entries_end(&tops);
    return rc;
}

/* A name that was cut in the files tells too little to remove by it. */
static int refuse_cut_names(const mote__store *s, const mote__catalog *c, mote_err *err)
{
    for (size_t i = 0; i < c->n_contexts && s->params.only_namespace && !s->params.only_context;
         i++)
        if (c->contexts[i].chosen &&
            mote__label_has_namespace(c->contexts[i].label, s->params.only_namespace) == 2)
            return mote__fail(
                err, MOTE_EINVAL,
                "%s: only the beginning of so long a namespace is kept: name the context instead",
                s->dir);
    return 0;
}

/* What the chosen blocks and snapshots take. */
static void chosen_bytes(const mote__catalog *c, uint64_t *blocks, uint64_t *snapshots)
{
    *blocks = *snapshots = 0;
    for (size_t i = 0; i < c->n_contexts; i++)
        if (c->contexts[i].chosen) {
            *blocks += c->contexts[i].slot_bytes;
            *snapshots += c->contexts[i].snapshot_bytes;
        }
}

/* The least recently used blocks go until the rest, with their segments' headers, is within the
 * budget. What lies free does not count: its room is given back afterwards. */
static int drop_over_budget(mote__store *s, mote__catalog *only, uint64_t *n)
{
    mote__victims v = { .before = INT64_MAX,
                        .keep = only ? mote__catalog_keep_block : NULL,
                        .keep_ctx = only };
    uint64_t bytes, segments, ignored;
    int rc = mote__index_block_bytes(&s->writer, &bytes, &segments);
    if (only) {
        chosen_bytes(only, &bytes, &ignored);
        segments = 0;
    }
    uint64_t headers = segments * MOTE_SEGMENT_HEADER,
             enough = s->budget > headers ? s->budget - headers : 0;
    if (!rc && bytes > enough)
        rc = mote__victims_find(s, &v, SIZE_MAX);
    rc = rc ? mote__store_index_failed(s, &s->writer, rc, "collecting")
            : mote__remove_victims(s, &v, &bytes, enough, UINT64_MAX, n);
    mote__victims_end(&v);
    return rc;
}

static int drop_snapshots_over_budget(mote__store *s, mote__catalog *only, uint64_t *n)
{
    mote__snap_choice by = { .max = SIZE_MAX,
                             .enough = s->snap_budget,
                             .keep = only ? mote__catalog_keep_snapshot : NULL,
                             .keep_ctx = only };
    uint64_t ignored;
    int rc = only ? 0 : mote__index_snapshot_room(&s->writer, &by.bytes);
    if (only)
        chosen_bytes(only, &ignored, &by.bytes);
    if (rc)
        return mote__store_index_failed(s, &s->writer, rc, "collecting");
    return by.bytes > by.enough ? mote__remove_snapshots(s, &by, n) : 0;
}

static int drop_expired(mote__store *s, mote__catalog *only, uint64_t *n_blocks,
                        uint64_t *n_snapshots)
{
    int64_t now = mote__store_now(s);
    int rc = s->ttl < 0
                 ? 0
                 : mote__remove_expired(s, now - s->ttl, SIZE_MAX,
                                        only ? mote__catalog_keep_block : NULL, only, n_blocks);
    if (!rc && s->snap_ttl >= 0)
        rc = mote__remove_snapshots(s,
                                    &(mote__snap_choice){ .before = now - s->snap_ttl,
                                                          .max = SIZE_MAX,
                                                          .keep = only ? mote__catalog_keep_snapshot
                                                                       : NULL,
                                                          .keep_ctx = only },
                                    n_snapshots);
    return rc;
}

/* Room of what is free: whole segments first, then slots one by one. */
static int give_back(mote__store *s, uint64_t *n_segments, uint64_t *bytes)
{
    uint64_t before = 0, after = 0, punched;
    int rc = mote__index_room(&s->writer, &before);
    if (!rc)
        rc = drop_empty_segments(s, n_segments);
    if (!rc)
        rc = mote__punch_idle(s, 0, UINT64_MAX, &punched);
    if (!rc)
        rc = mote__index_room(&s->writer, &after);
    *bytes = before > after ? before - after : 0;
    return rc;
}

/* Files that a crash left: beside their names, or without an entry. */
static int remove_strays(mote__store *s)
{
    DIR *d = opendir(s->dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[MOTE_PATH_ROOM];
        struct stat st;
        mote__snap_entry p;
        uint8_t key[MOTE_STORE_ID];
        /* notes of fingerprints (file/fingerprint_note.c): they cost a second to make anew */
        if (!strncmp(e->d_name, "model-", 6) &&
            snprintf(path, sizeof path, "%.3900s/%.255s", s->dir, e->d_name) < (int)sizeof path &&
            !lstat(path, &st) && S_ISREG(st.st_mode) && s->ttl >= 0 &&
            st.st_mtime < time(NULL) - s->ttl)
            n += !s->io->unlink(s->io->ctx, path);
        if (strncmp(e->d_name, "snap-", 5) || strlen(e->d_name) < 5 + 2 * MOTE_STORE_ID + 5)
            continue;
        for (size_t i = 0; i < sizeof key; i++) {
            unsigned byte = 0;
            sscanf(e->d_name + 5 + 2 * i, "%2x", &byte);
            key[i] = (uint8_t)byte;
        }
        if (!strcmp(e->d_name + 5 + 2 * MOTE_STORE_ID, ".mote") &&
            mote__index_snapshot_get(&s->writer, key, &p) != MOTE_INDEX_NONE)
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
    uint64_t expired = 0, orphans = 0, snapshots = 0, over = 0, segments = 0, freed = 0, room = 0,
             headers = 0, on_disk, ignored;
    mote__catalog catalog, *only = NULL;
    mote_err why = { 0 };
    mote__store_flush(s, NULL);
    int rc = mote__store_enter(s, err);
    if (rc)
        return rc;
    mote__store_make_way(s, much, 1);
    s->writer.was_full = 0;
    rc = settle_doubts(s);
    if (!rc && mote__catalog_has_choice(s)) {
        rc = mote__catalog_read(&catalog, s, &s->writer, &why);
        only = rc ? NULL : &catalog;
        if (only)
            rc = refuse_cut_names(s, only, &why);
    }
    if (!rc)
        rc = drop_expired(s, only, &expired, &snapshots);
    if (!rc)
        rc = drop_orphans(s, only, &orphans);
    if (!rc)
        rc = drop_over_budget(s, only, &over);
    mote__index_sums m = { 0 };
    if (!rc)
        rc = mote__remove_snapshots(s, &(mote__snap_choice){ .max = SIZE_MAX, .orphans = 1 },
                                    &snapshots);
    if (!rc)
        rc = drop_snapshots_over_budget(s, only, &snapshots);
    if (!rc)
        rc = give_back(s, &segments, &freed);
    if (!rc && !(rc = mote__index_room(&s->writer, &room)) &&
        !(rc = mote__index_sum(&s->writer, &m)))
        headers = m.segments * MOTE_SEGMENT_HEADER;
    int strays = remove_strays(s);
    if (rc)
        mote__fail(err, rc < 0 ? rc : MOTE_EIO, why.code ? "%.0s%s" : "%s: %s", s->dir,
                   why.code ? why.message : s->writer.why);
    if (only)
        mote__catalog_end(only);
    mote__store_leave(s);
    if (rc)
        return rc < 0 ? rc : MOTE_EIO;
    mote__disk_bytes(s, &on_disk, &ignored, &ignored);
    json_t *o = json_object();
    mote__json_put_u64(o, "expired_blocks", expired);
    mote__json_put_u64(o, "unreachable_blocks", orphans);
    mote__json_put_u64(o, "evicted_blocks", over);
    mote__json_put_u64(o, "removed_snapshots", snapshots);
    mote__json_put_u64(o, "removed_segments", segments);
    mote__json_put_u64(o, "removed_files", (uint64_t)strays);
    mote__json_put_u64(o, "freed_bytes", freed);
    mote__json_put_u64(o, "slot_bytes", room > headers ? room - headers : 0);
    mote__json_put_u64(o, "segment_bytes", on_disk);
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

/* A beginning of an identity as a range: the first id that has it, and how many digits to compare.
 */
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

static int remove_one(mote__store *s, const char *digits, uint64_t *n_blocks, uint64_t *n_snapshots,
                      mote_err *err)
{
    size_t n = strlen(digits);
    uint8_t from[MOTE_STORE_ID];
    mote__entry e = { 0 }, e2;
    mote__snap_entry p = { 0 }, p2;
    if (n < 6 || n > 2 * MOTE_STORE_ID || strspn(digits, "0123456789abcdef") != n)
        return mote__fail(err, MOTE_EINVAL,
                          "'%.60s' is no identity: 6 to 32 hexadecimal digits in lower case",
                          digits);
    lower_bound(from, digits);
    int block = !mote__index_next(&s->writer, from, &e) && starts_with(e.id, digits);
    int snap = !mote__index_snapshot_next(&s->writer, from, &p) && starts_with(p.key, digits);
    if (!block && !snap)
        return mote__fail(err, MOTE_EINVAL, "%s: nothing is called %s", s->dir, digits);
    if ((block && snap) ||
        (block && !mote__index_next(&s->writer, e.id, &e2) && starts_with(e2.id, digits)) ||
        (snap && !mote__index_snapshot_next(&s->writer, p.key, &p2) && starts_with(p2.key, digits)))
        return mote__fail(err, MOTE_EINVAL, "%s: %s is the beginning of several identities", s->dir,
                          digits);
    if (snap) {
        mote__drop_snapshot(s, p.key);
        ++*n_snapshots;
        return 0;
    }
    return mote__remove_trees(s, &e, 1, n_blocks)
               ? mote__fail(err, MOTE_EIO, "%s: %s", s->dir, s->writer.why)
               : 0;
}

/* What the parameters choose. */
static int remove_chosen(mote__store *s, uint64_t *n_blocks, uint64_t *n_snapshots, mote_err *err)
{
    mote__catalog c;
    mote__entries tops = { .meter = &s->meter };
    int rc = mote__catalog_read(&c, s, &s->writer, err);
    if (rc)
        return rc;
    if (!c.n_chosen)
        rc = mote__fail(err, MOTE_EINVAL, "%s: nothing of that kind is stored", s->dir);
    if (!rc)
        rc = refuse_cut_names(s, &c, err);
    for (size_t i = 0; i < c.blocks.n && !rc; i++)
        if (mote__catalog_chosen(&c, c.of_block[i]) &&
            (rc = mote__entries_add(&tops, &c.blocks.list[i])) != 0)
            mote__fail(err, rc, "out of memory");
    if (!rc &&
        ((rc = mote__remove_trees(s, tops.list, tops.n, n_blocks)) != 0 ||
         (rc = mote__remove_snapshots(s,
                                      &(mote__snap_choice){ .max = SIZE_MAX,
                                                            .keep = mote__catalog_keep_snapshot,
                                                            .keep_ctx = &c },
                                      n_snapshots)) != 0))
        mote__fail(err, rc, "%s: %s", s->dir, s->writer.why);
    mote__entries_end(&tops);
    mote__catalog_end(&c);
    return rc;
}

static int remove_everything(mote__store *s, uint64_t *n_blocks, uint64_t *n_snapshots)
{
    int rc = mote__index_begin(&s->writer);
    if (!rc)
        rc = mote__index_drop_all(&s->writer, n_blocks);
    if (!rc)
        rc = mote__index_commit(&s->writer);
    if (rc) {
        mote__index_rollback(&s->writer);
        *n_blocks = 0;
        return mote__store_index_failed(s, &s->writer, rc, "removing everything");
    }
    return mote__remove_snapshots(s, &(mote__snap_choice){ .max = SIZE_MAX }, n_snapshots);
}

static int remove_ids(mote_store *s, const char *const *ids, size_t n_ids, char **text,
                      mote_err *err)
{
    uint64_t blocks = 0, snapshots = 0, segments = 0, freed;
    mote__store_flush(s, NULL);
    int rc = mote__store_enter(s, err);
    if (rc && (ids || mote__catalog_has_choice(s) || mote__store_begin_anew(s, err)))
        return rc;
    int everything = !ids && !mote__catalog_has_choice(s);
    mote__store_make_way(s, everything, !everything);
    rc = settle_doubts(s);
    if (!rc && everything)
        rc = remove_everything(s, &blocks, &snapshots);
    if (rc)
        mote__fail(err, rc, "%s: %s", s->dir, s->writer.why);
    if (!rc && !ids && !everything)
        rc = remove_chosen(s, &blocks, &snapshots, err);
    for (size_t i = 0; ids && i < n_ids && !rc; i++)
        rc = remove_one(s, ids[i], &blocks, &snapshots, err);
    /* snapshots that stood on what is gone; and the bytes themselves go, so that no rebuild brings
     * them back */
    if (blocks &&
        mote__remove_snapshots(s, &(mote__snap_choice){ .max = SIZE_MAX, .orphans = 1 },
                               &snapshots) &&
        !rc)
        rc = mote__fail(err, MOTE_EIO, "%s: %s", s->dir, s->writer.why);
    int given = give_back(s, &segments, &freed);
    if (given && !rc)
        rc = mote__fail(err, given,
                        "%s: the index has forgotten them, but their bytes are still in the files",
                        s->dir);
    mote__store_leave(s);
    if (rc)
        return rc;
    json_t *o = json_object();
    mote__json_put_u64(o, "removed_blocks", blocks);
    mote__json_put_u64(o, "removed_snapshots", snapshots);
    return mote__store_json(o, text, err);
}

int mote_store_rm_json(mote_store *s, const char *const *ids, size_t n_ids, char **text,
                       mote_err *err)
{
    int rc = remove_ids(s, ids, n_ids, text, err);
    return rc == MOTE_EFORMAT ? remove_ids(s, ids, n_ids, text, err) : rc;
}
