/* One segment and its part of the index, made to agree: what verify does for a whole store, without
 * reading the rest, and without shutting others out. What is right stays as it is, times of use
 * included. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json_put.h"
#include "store/impl.h"

typedef struct work {
    mote__store *s;
    mote__segfile *f;
    mote__segment g;
    mote__slot *slots;  /* [n_slots]; payload_bytes 0: it is not whole */
    mote__entries rows; /* of this segment */
    int header_written;
    uint64_t kept, added, dropped, freed;
} work;

static int note_row(void *ctx, const mote__index_any *row)
{
    return mote__entries_add(ctx, &row->block);
}

/* Sizes by the header, or where that is damaged by the index; n_slots by the file. */
static int sizes(work *w, mote_err *err)
{
    uint8_t page[MOTE_SEGMENT_HEADER];
    mote__segment_header h;
    struct stat st;
    const char *why = "it cannot be read";
    mote__segment known;
    int rc = mote__index_segment(&w->s->writer, w->g.id, &known);
    int sound = !mote__read_full(w->s, w->f->fd, &(struct iovec){ page, sizeof page }, 1, 0) &&
                !mote__segment_read(&h, page, sizeof page, &why) && h.id == w->g.id;
    if (rc < 0 || fstat(w->f->fd, &st))
        return mote__fail(err, MOTE_EIO, "%s: segment %08x cannot be looked at", w->s->dir,
                          (unsigned)w->g.id);
    if (!sound && rc)
        return mote__fail(
            err, MOTE_EFORMAT,
            "%s: segment %08x: its header is damaged (%s), and the index does not know it",
            w->s->dir, (unsigned)w->g.id, why);
    if (sound && !rc &&
        (known.slot_bytes != h.slot_bytes || known.payload_bytes != h.payload_bytes))
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: segment %08x and the index name different sizes: verify --rebuild",
                          w->s->dir, (unsigned)w->g.id);
    w->g.slot_bytes = sound ? h.slot_bytes : known.slot_bytes;
    w->g.payload_bytes = sound ? h.payload_bytes : known.payload_bytes;
    uint64_t n = st.st_size > MOTE_SEGMENT_HEADER
                     ? (uint64_t)(st.st_size - MOTE_SEGMENT_HEADER) / w->g.slot_bytes
                     : 0;
    w->g.n_slots = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
    if (!sound) {
        h = (mote__segment_header){ w->g.id, w->g.slot_bytes, w->g.payload_bytes };
        mote__segment_write(page, &h);
        int e = mote__write_full(w->s, w->f->fd, &(struct iovec){ page, sizeof page }, 1, 0);
        if (e || (e = mote__sync_segment(w->s, w->g.id)) != 0)
            return mote__fail(err, MOTE_EIO, "%s: segment %08x cannot be written: %s", w->s->dir,
                              (unsigned)w->g.id, strerror(e));
        w->header_written = 1;
    }
    return 0;
}

static mote__place place_of(const work *w, uint32_t slot)
{
    return (mote__place){ .segment = w->g.id,
                          .slot = slot,
                          .slot_bytes = w->g.slot_bytes,
                          .payload_bytes = w->g.payload_bytes };
}

static int read_slots(work *w, mote_err *err)
{
    uint8_t *image = mote__alloc(&w->s->meter, MOTE_MEM_SCRATCH, w->g.slot_bytes);
    w->slots = mote__alloc(&w->s->meter, MOTE_MEM_SCRATCH,
                           mote__mul((size_t)w->g.n_slots + 1, sizeof *w->slots));
    int rc = image && w->slots ? 0
                               : mote__fail(err, MOTE_ENOMEM, "out of memory for %u slots",
                                            (unsigned)w->g.n_slots);
    for (uint32_t i = 0; i < w->g.n_slots && !rc; i++) {
        mote__place p = place_of(w, i);
        const char *why;
        if (w->s->params.progress && i % 64 == 0 &&
            w->s->params.progress(w->s->params.progress_ctx, "reading",
                                  (double)i / (double)w->g.n_slots))
            rc = mote__fail(err, MOTE_ECANCELED, "%s: interrupted", w->s->dir);
        else if ((rc = mote__slot_load(w->s, &p, image, &w->slots[i], &why)) == MOTE_EIO ||
                 rc == MOTE_ENOMEM)
            mote__fail(err, rc, "%s: segment %08x, slot %u: %s", w->s->dir, (unsigned)w->g.id,
                       (unsigned)i, why);
        else if (rc || w->slots[i].generation > INT64_MAX - 2)
            w->slots[i] = (mote__slot){ .payload_bytes = 0 };
        rc = rc == MOTE_EFORMAT ? 0 : rc;
    }
    mote__free(&w->s->meter, MOTE_MEM_SCRATCH, image, w->g.slot_bytes);
    return rc;
}

/* The index says of this slot what the slot says. */
static int agrees(const work *w, const mote__entry *e)
{
    const char *why;
    return e->place.slot < w->g.n_slots && w->slots[e->place.slot].payload_bytes &&
           !mote__slot_matches(&w->slots[e->place.slot], e, &why);
}

/* Inside a transaction. */
static int settle_rows(work *w)
{
    mote__index *x = &w->s->writer;
    int64_t id = w->g.id, now = mote__store_now(w->s);
    uint64_t highest = 0, generation;
    int rc = mote__index_each(x, mote__index_blocks, "WHERE b.segment = ?1 ORDER BY b.slot", &id, 1,
                              MOTE_ROW_BLOCK, note_row, &w->rows);
    for (size_t i = 0; i < w->rows.n && !rc; i++) {
        const mote__entry *e = &w->rows.list[i];
        highest = e->place.generation > highest ? e->place.generation : highest;
        mote__slot *slot = e->place.slot < w->g.n_slots ? &w->slots[e->place.slot] : NULL;
        if (agrees(w, e)) {
            w->kept++;
            slot->n_blocks = 0; /* done with */
        } else {
            rc = mote__index_drop(x, e);
            w->dropped++;
            if (slot && slot->payload_bytes &&
                (slot->generation == e->place.generation ||
                 !memcmp(slot->id, e->id, sizeof e->id))) {
                slot->slot_bytes =
                    0; /* the row was wrong, not the slot: it comes back, with its time */
                slot->created = (uint64_t)(e->used > 0 && e->used <= now ? e->used : now);
            }
        }
    }
    mote__segment known;
    int none = rc ? rc : mote__index_segment(x, w->g.id, &known);
    if (!rc && none == MOTE_INDEX_NONE)
        rc = mote__index_add_segment(x, &w->g);
    else if (!rc && !none && known.n_slots != w->g.n_slots)
        rc = mote__index_set_slots(x, &w->g);
    if (!rc) /* a file that was cut: what is beyond its end is no slot */
        rc = mote__index_each(x, "DELETE FROM free WHERE segment = ?1 AND slot >= ?2", "",
                              (const int64_t[]){ id, w->g.n_slots }, 2, MOTE_ROW_NUMBER, NULL,
                              NULL);
    for (uint32_t i = 0; i < w->g.n_slots; i++)
        highest = w->slots[i].payload_bytes && w->slots[i].generation > highest
                      ? w->slots[i].generation
                      : highest;
    for (uint32_t i = 0; i < w->g.n_slots && !rc; i++) {
        const mote__slot *slot = &w->slots[i];
        mote__entry e = { .place = place_of(w, i),
                          .approximate = slot->approximate,
                          .n_blocks = slot->n_blocks,
                          .used = now },
                    other;
        int wrong_row = slot->payload_bytes && !slot->slot_bytes;
        if (wrong_row)
            e.used = (int64_t)slot->created;
        if (slot->payload_bytes && !slot->n_blocks)
            continue;
        int free = mote__index_free_generation(x, w->g.id, i, &generation);
        if (free < 0) {
            rc = free;
        } else if (slot->payload_bytes &&
                   (wrong_row || slot->generation >= (free ? 0 : generation)) &&
                   mote__index_get(x, slot->id, &other) == MOTE_INDEX_NONE) {
            /* whole, and newer than what the index has forgotten on purpose */
            e.place.generation = slot->generation;
            memcpy(e.id, slot->id, sizeof e.id);
            memcpy(e.parent, slot->parent, sizeof e.parent);
            rc = mote__index_insert(x, &e);
            if (!rc && !free)
                rc = mote__index_each(x, "DELETE FROM free WHERE segment = ?1 AND slot = ?2", "",
                                      (const int64_t[]){ id, i }, 2, MOTE_ROW_NUMBER, NULL, NULL);
            w->added += !rc;
        } else if (free == MOTE_INDEX_NONE) {
            e.place.generation = highest + 1;
            rc = mote__index_put_free(x, &e.place);
            w->freed += !rc;
        }
    }
    return rc;
}

int mote_store_repair_json(mote_store *s, uint32_t segment, char **text, mote_err *err)
{
    work w = { .s = s, .g = { .id = segment } };
    mote__store_flush(s, NULL);
    int rc = mote__store_enter(s, err), locked = 0;
    if (rc)
        return rc;
    w.f = segment ? mote__segfile_get(s, segment) : NULL;
    if (!w.f)
        rc = mote__fail(err, segment && errno == ENOMEM ? MOTE_ENOMEM : MOTE_EINVAL,
                        "%s: segment %08x: %s", s->dir, (unsigned)segment,
                        segment ? strerror(errno) : "numbers begin at 1");
    else if (s->n_doubtful)
        rc = mote__fail(err, MOTE_EIO, "%s: the index could not be written lately", s->dir);
    for (int i = 0; !rc && !locked && i < 500;
         i++) { /* nobody writes into its slots meanwhile; those who are about to are quick */
        locked = !s->io->lock(s->io->ctx, w.f->fd, MOTE_SEGMENT_HEADER, (off_t)1 << 60,
                              MOTE_LOCK_EXCLUSIVE);
        if (!locked)
            nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
    }
    if (!rc && !locked)
        rc = mote__fail(err, MOTE_EIO, "%s: segment %08x: another process is writing into it",
                        s->dir, (unsigned)segment);
    if (!rc)
        rc = sizes(&w, err);
    if (!rc)
        rc = read_slots(&w, err);
    if (!rc) {
        rc = mote__index_begin(&s->writer);
        if (!rc)
            rc = settle_rows(&w);
        if (!rc)
            rc = mote__index_commit(&s->writer);
        if (rc) {
            mote__index_rollback(&s->writer);
            rc = mote__fail(err, rc < 0 ? rc : MOTE_EIO, "%s: %s", s->dir, s->writer.why);
        }
    }
    if (locked)
        s->io->lock(s->io->ctx, w.f->fd, MOTE_SEGMENT_HEADER, (off_t)1 << 60, MOTE_UNLOCK);
    mote__segfile_put(s, w.f);
    mote__entries_end(&w.rows);
    if (w.slots)
        mote__free(&s->meter, MOTE_MEM_SCRATCH, w.slots,
                   mote__mul((size_t)w.g.n_slots + 1, sizeof *w.slots));
    mote__store_leave(s);
    if (rc)
        return rc;
    json_t *o = json_object();
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        { "segment", segment },
        { "slots", w.g.n_slots },
        { "blocks", w.kept + w.added },
        { "kept", w.kept },
        { "added", w.added },
        { "dropped", w.dropped },
        { "freed", w.freed },
        { "damaged", w.dropped + w.added + (uint64_t)w.header_written },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        mote__json_put_u64(o, rows[i].name, rows[i].value);
    json_object_set_new(o, "header", json_string(w.header_written ? "written again" : "sound"));
    return mote__store_json(o, text, err);
}
