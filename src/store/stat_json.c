/* The public functions that tell about a store: stat, ls, verify. What changes it on purpose is in
 * maintain.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json_put.h"
#include "base/json_string.h"
#include "store/catalog.h"

int mote__store_json(json_t *root, char **text, mote_err *err)
{
    *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return *text ? 0 : mote__fail(err, MOTE_ENOMEM, "out of memory");
}

static json_t *hex_json(const uint8_t *id)
{
    char text[2 * MOTE_STORE_ID + 1];
    mote__hex(text, id, MOTE_STORE_ID);
    return json_string(text);
}

/* ---- stat ---- */

int mote_store_stat_json(mote_store *s, char **text, mote_err *err)
{
    mote_store_stats m;
    mote__store_flush(s, NULL);
    int rc = mote__store_stats(s, &m, err);
    if (rc)
        return rc;
    uint64_t disk = m.segment_bytes + m.index_bytes;
    json_t *o = json_object(), *n = json_object(), *now = json_object();
    mote__json_put_u64(o, "version", MOTE_STORE_VERSION);
    mote__json_put_u64(o, "blocks", m.blocks);
    mote__json_put_u64(o, "exact_blocks", m.exact_blocks);
    mote__json_put_u64(o, "tokens", m.tokens);
    mote__json_put_u64(o, "payload_bytes", m.payload_bytes);
    mote__json_put_u64(o, "disk_bytes", disk);
    mote__json_put(o, "bytes_per_token",
                   m.tokens ? json_real((double)disk / (double)m.tokens) : json_null());
    mote__json_put_u64(o, "segment_bytes", m.segment_bytes);
    mote__json_put_u64(o, "index_bytes", m.index_bytes);
    mote__json_put_u64(o, "segments", m.segments);
    mote__json_put_u64(o, "slots", m.slots);
    mote__json_put_u64(o, "free_slots", m.free_slots);
    mote__json_put_u64(o, "snapshots", m.snapshots);
    mote__json_put_u64(o, "snapshot_bytes", m.snapshot_bytes);
    mote__json_put_u64(o, "snapshot_disk_bytes", m.snapshot_disk_bytes);
    mote__json_put_u64(o, "memory_snapshots", m.memory_snapshots);
    mote__json_put_u64(o, "memory_snapshot_bytes", m.memory_snapshot_bytes);
    mote__json_put(o, "read_only", json_boolean(m.read_only));
#define MOTE_X(name) mote__json_put_u64(n, #name, m.name);
    MOTE_STORE_COUNTS(MOTE_X)
#undef MOTE_X
    mote__json_put(o, "since_open", n);
    mote__json_put_u64(now, "budget_bytes", m.budget_bytes);
    mote__json_put_u64(now, "snapshot_budget_bytes", m.snapshot_budget_bytes);
    mote__json_put_u64(now, "memory_bytes", m.memory_bytes);
    mote__json_put_u64(now, "memory_peak_bytes", m.memory_peak_bytes);
    mote__json_put_u64(now, "memory_scratch_bytes", m.memory_scratch_bytes);
    mote__json_put_u64(now, "queued_items", m.queued_items);
    mote__json_put_u64(now, "queued_sends", m.queued_sends);
    mote__json_put_u64(now, "servers", (uint64_t)m.n_servers);
    mote__json_put_u64(now, "servers_down", (uint64_t)m.n_servers_down);
    mote__json_put(o, "now", now);
    return mote__store_json(o, text, err);
}

/* ---- ls ---- */

/* A context's number as the first digits of its hash, which are what a person gives back. */
static json_t *context_id(const mote__catalog *c, uint32_t number)
{
    char hex[2 * MOTE_STORE_DIGEST + 1];
    if (number == MOTE_CATALOG_UNKNOWN)
        return json_null();
    mote__hex(hex, c->contexts[number].hash, MOTE_STORE_DIGEST);
    hex[12] = 0;
    return json_string(hex);
}

static json_t *context_json(const mote__catalog *c, uint32_t number)
{
    static const char *const fields[][2] = {
        { "model", "model" }, { "math", "math" }, { "kv", "kv" }, { "namespace", "ns" }
    };
    const mote__catalog_context *x = &c->contexts[number];
    char hex[2 * MOTE_STORE_DIGEST + 1], field[MOTE_STORE_LABEL];
    json_t *o = json_object();
    mote__hex(hex, x->hash, MOTE_STORE_DIGEST);
    mote__json_put(o, "context", context_id(c, number));
    mote__json_put(o, "hash", json_string(hex));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        mote__json_put(o, fields[i][0],
                       mote__label_field(field, x->label, fields[i][1]) ? mote__json_string(field)
                                                                        : NULL);
    mote__json_put_u64(o, "blocks", x->blocks);
    mote__json_put_u64(o, "exact_blocks", x->exact_blocks);
    mote__json_put_u64(o, "tokens", x->blocks * MOTE_BLOCK_TOKENS);
    mote__json_put_u64(o, "payload_bytes", x->payload_bytes);
    mote__json_put_u64(o, "slot_bytes", x->slot_bytes);
    mote__json_put_u64(o, "snapshots", x->snapshots);
    mote__json_put_u64(o, "snapshot_bytes", x->snapshot_bytes);
    mote__json_put(o, "used", json_integer(x->used));
    return o;
}

static json_t *entry_json(const mote__entry *e)
{
    json_t *o = json_object();
    mote__json_put(o, "id", hex_json(e->id));
    mote__json_put(o, "parent", e->n_blocks > 1 ? hex_json(e->parent) : json_null());
    mote__json_put_u64(o, "tokens", e->n_blocks * MOTE_BLOCK_TOKENS);
    mote__json_put(o, "provenance", json_string(e->approximate ? "approximate" : "exact"));
    mote__json_put(o, "used", json_integer(e->used));
    mote__json_put_u64(o, "segment", e->place.segment);
    mote__json_put_u64(o, "slot", e->place.slot);
    mote__json_put_u64(o, "generation", e->place.generation);
    mote__json_put_u64(o, "payload_bytes", e->place.payload_bytes);
    return o;
}

static json_t *snapshot_json(const mote__snap_entry *p)
{
    json_t *o = json_object();
    mote__json_put(o, "id", hex_json(p->key));
    mote__json_put(o, "on", p->chain.n_blocks ? hex_json(p->chain.id) : json_null());
    mote__json_put_u64(o, "tokens", p->chain.n_blocks * MOTE_BLOCK_TOKENS + p->n_tail);
    mote__json_put(o, "provenance", json_string(p->approximate ? "approximate" : "exact"));
    mote__json_put(o, "created", json_integer(p->created));
    mote__json_put(o, "used", json_integer(p->used));
    mote__json_put_u64(o, "bytes", p->bytes);
    return o;
}

int mote_store_ls_json(mote_store *s, char **text, mote_err *err)
{
    mote__catalog c;
    mote__store_flush(s, NULL);
    pthread_mutex_lock(&s->read_mutex);
    int rc = mote__catalog_read(&c, s, &s->reader, err);
    pthread_mutex_unlock(&s->read_mutex);
    if (rc)
        return rc;
    json_t *root = json_object(), *contexts = json_array(), *blocks = json_array(),
           *snapshots = json_array();
    for (size_t i = 0; i < c.n_contexts; i++)
        if (mote__catalog_chosen(&c, (uint32_t)i))
            json_array_append_new(contexts, context_json(&c, (uint32_t)i));
    for (size_t i = 0; i < c.blocks.n; i++)
        if (mote__catalog_chosen(&c, c.of_block[i])) {
            json_t *o = entry_json(&c.blocks.list[i]);
            mote__json_put(o, "context", context_id(&c, c.of_block[i]));
            json_array_append_new(blocks, o);
        }
    for (size_t i = 0; i < c.n_snaps; i++)
        if (mote__catalog_chosen(&c, c.of_snap[i])) {
            json_t *o = snapshot_json(&c.snaps[i]);
            mote__json_put(o, "context", context_id(&c, c.of_snap[i]));
            json_array_append_new(snapshots, o);
        }
    mote__catalog_end(&c);
    mote__json_put(root, "contexts", contexts);
    mote__json_put(root, "blocks", blocks);
    mote__json_put(root, "snapshots", snapshots);
    return mote__store_json(root, text, err);
}

/* ---- verify ---- */

typedef struct report {
    json_t *damaged;
    uint64_t n_blocks, n_snapshots, n_damaged;
} report;

static void note(report *r, const char *kind, const uint8_t *id, const char *why)
{
    json_t *o = json_object();
    mote__json_put(o, "kind", json_string(kind));
    mote__json_put(o, "id", id ? hex_json(id) : json_null());
    mote__json_put(o, "what", json_string(why));
    if (r->n_damaged++ < 1000)
        json_array_append_new(r->damaged, o);
    else
        json_decref(o);
}

static int verify_blocks(mote__store *s, mote__index *x, report *r, mote_err *err)
{
    mote__entry e;
    size_t room = 0;
    uint8_t *image = NULL;
    mote__index_sums m = { 0 };
    if (s->params.progress)
        mote__index_sum(x, &m);
    uint64_t n_all = m.blocks;
    int rc = 0;
    for (const uint8_t *after = NULL; !rc && !(rc = mote__index_next(x, after, &e)); after = e.id) {
        mote__slot slot;
        const char *why = "";
        if (room < e.place.slot_bytes) {
            mote__free(&s->meter, MOTE_MEM_SCRATCH, image, room);
            room = e.place.slot_bytes;
            image = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, room);
            if (!image) {
                room = 0;
                rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a slot of %u bytes",
                                (unsigned)e.place.slot_bytes);
                break;
            }
        }
        r->n_blocks++;
        if (s->params.progress && r->n_blocks % 64 == 1 &&
            s->params.progress(s->params.progress_ctx, "verifying",
                               n_all ? (double)r->n_blocks / (double)n_all : 1)) {
            rc = mote__fail(err, MOTE_ECANCELED, "%s: interrupted", s->dir);
            break;
        }
        int bad = mote__slot_load(s, &e.place, image, &slot, &why);
        if (bad == MOTE_ENOMEM) {
            rc = mote__fail(err, bad, "%s: out of memory for a segment's file", s->dir);
            break;
        }
        if (!bad)
            bad = mote__slot_matches(&slot, &e, &why);
        mote__entry now;
        if (!bad || mote__index_get(x, e.id, &now) || now.place.generation != e.place.generation ||
            now.place.slot != e.place.slot || now.place.segment != e.place.segment)
            continue; /* whole, or evicted while we looked */
        note(r, "block", e.id, why);
        if (!s->read_only)
            mote__drop_entries(s, &e, 1);
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, image, room);
    return rc;
}

/* *wrong: NULL where it is whole, else what is wrong. 0, or MOTE_ENOMEM: it was not looked at. */
static int look_at_snapshot(mote__store *s, const mote__snap_entry *p, const char **wrong)
{
    uint8_t *file;
    const uint8_t *tail, *blob;
    size_t n;
    mote__snapfile got;
    const char *why = NULL;
    int e = mote__snap_load(s, p->key, &file, &n);
    if (e == ENOMEM)
        return MOTE_ENOMEM;
    if (e)
        why = e == ENODATA ? "the file is missing, cut or no regular one" : strerror(e);
    else if (n != p->bytes)
        why = "it has another size";
    else if (!mote__snapfile_read(&got, file, n, &tail, &blob, &why))
        why = mote__snap_matches(&got, p) ? NULL : "it is another one";
    mote__free(&s->meter, MOTE_MEM_SCRATCH, file, n);
    *wrong = why;
    return 0;
}

static int verify_snapshots(mote__store *s, mote__index *x, report *r, mote_err *err)
{
    mote__snap_entry p, now;
    int rc = 0;
    for (const uint8_t *after = NULL; !rc && !(rc = mote__index_snapshot_next(x, after, &p));
         after = p.key) {
        const char *why = NULL;
        int no_memory = look_at_snapshot(s, &p, &why);
        r->n_snapshots++;
        /* gone is fine, and so is dropped and put anew while we looked */
        for (int again = 0; why && !no_memory && again < 2; again++)
            if (mote__index_snapshot_get(x, p.key, &now))
                why = NULL;
            else
                no_memory = look_at_snapshot(s, &now, &why);
        if (no_memory)
            return mote__fail(err, MOTE_ENOMEM, "%s: out of memory for a snapshot of %llu bytes",
                              s->dir, (unsigned long long)p.bytes);
        if (why) {
            note(r, "snapshot", p.key, why);
            if (!s->read_only)
                mote__drop_snapshot(s, p.key);
        }
    }
    return rc;
}

int mote_store_verify_json(mote_store *s, int rebuild, char **text, mote_err *err)
{
    report r = { .damaged = json_array() };
    mote__rebuilt made = { 0 };
    mote_err why = { 0 };
    const char *index = "sound";
    int rc = 0, writing = !s->read_only, usable = 1;
    mote__store_flush(s, NULL);
    if (rebuild && !writing) {
        json_decref(r.damaged);
        return mote__fail(err, MOTE_EIO, "%s: the store is open for reading only", s->dir);
    }
    pthread_mutex_t *mutex = writing ? &s->write_mutex : &s->read_mutex;
    mote__index *x = writing ? &s->writer : &s->reader;
    pthread_mutex_lock(mutex);
    s->retry_at = 0;
    if (writing && mote__store_revive(s)) {
        usable = 0;
        rc = rebuild ? 0 : mote__fail(&why, MOTE_EIO, "%s: the index cannot be opened", s->dir);
    }
    /* what an opening or a step before this one repaired is damage too, once */
    uint64_t rebuilds = s->counts.rebuilds - s->rebuilds_told;
    s->rebuilds_told += rebuilds;
    if (rebuilds) {
        note(&r, "index", NULL, "it was missing or damaged and has been made anew");
        index = "made anew";
    }
    if (writing && usable && !rc && mote__store_care(s) == MOTE_EFORMAT)
        mote__store_revive(s);
    if (s->mended != s->mended_told) {
        note(&r, "index", NULL, "it did not fit the files and has been mended");
        index = "mended";
        s->mended_told = s->mended;
    }
    int bad = rc || !usable ? 0 : mote__index_check(x);
    if (!bad && !rc && usable)
        bad = verify_blocks(s, x, &r, &why);
    if (bad >= 0 && !rc && usable)
        bad = verify_snapshots(s, x, &r, &why);
    if (bad == MOTE_EFORMAT) {
        note(&r, "index", NULL, x->why);
        index = "damaged";
        rebuild |= writing;
    } else if (bad < 0) {
        rc = why.code ? bad : mote__fail(&why, bad, "%s: %s", s->dir, x->why);
    }
    if (!rc && rebuild) {
        rc = mote__store_rebuild_now(s, 0, &made, &why);
        r.n_blocks = made.blocks;
        r.n_snapshots = made.snapshots;
        index = "made anew";
        s->rebuilds_told = s->counts.rebuilds;
    }
    pthread_mutex_unlock(mutex);
    if (rc) {
        json_decref(r.damaged);
        if (err)
            *err = why;
        return rc;
    }
    json_t *o = json_object();
    mote__json_put_u64(o, "blocks", r.n_blocks);
    mote__json_put_u64(o, "snapshots", r.n_snapshots);
    mote__json_put_u64(o, "damaged", r.n_damaged);
    mote__json_put(o, "index", json_string(index));
    mote__json_put(o, "dropped", json_boolean(writing && r.n_damaged));
    mote__json_put_u64(o, "slots_left_out", made.damaged);
    mote__json_put(o, "list", r.damaged);
    return mote__store_json(o, text, err);
}
