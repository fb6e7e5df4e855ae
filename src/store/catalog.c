#include "store/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- labels ---- */

int mote__label_field(char *dst, const char *label, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = label; p; p = strchr(p, ' ') ? strchr(p, ' ') + 1 : NULL)
        if (!strncmp(p, name, n) && p[n] == '=') {
            const char *value = p + n + 1;
            /* a namespace may hold spaces, and ends the label */
            size_t len = !strcmp(name, "ns") ? strlen(value) : strcspn(value, " ");
            memcpy(dst, value, len);
            dst[len] = 0;
            return 1;
        }
    *dst = 0;
    return 0;
}

static int has_item(const char *list, const char *item, size_t n)
{
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !strncmp(p, item, n))
            return 1;
    return 0;
}

int mote__label_has_kv(const char *label_kv, const char *wanted)
{
    static const char *const whole[] = { "main", "key", "value" }; /* what one word is about */
    for (const char *p = wanted; *p; p += strcspn(p, ","), p += *p == ',') {
        size_t n = strcspn(p, ",");
        int found = 0, missing = 0;
        if (memchr(p, '=', n)) {
            if (!has_item(label_kv, p, n))
                return 0;
            continue;
        }
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
            for (const char *q = label_kv; *q; q += strcspn(q, ","), q += *q == ',') {
                size_t lead = strlen(whole[i]);
                if (strncmp(q, whole[i], lead) || q[lead] != '=')
                    continue;
                if (strcspn(q, ",") == lead + 1 + n && !strncmp(q + lead + 1, p, n))
                    found = 1;
                else
                    missing = 1;
            }
        if (!found || missing)
            return 0;
    }
    return 1;
}

int mote__label_has_namespace(const char *label, const char *name)
{
    char ns[MOTE_STORE_LABEL];
    if (!mote__label_field(ns, label, "ns"))
        return 0;
    if (strlen(label) < MOTE_STORE_LABEL - 1)
        return !strcmp(ns, name);
    return !strncmp(ns, name, strlen(ns)) ? 2 : 0;
}

static int is_chosen(const mote__store *s, const mote__catalog_context *c)
{
    const mote_store_params *p = &s->params;
    char field[MOTE_STORE_LABEL], hash[2 * MOTE_STORE_DIGEST + 1];
    if (p->only_model &&
        (!mote__label_field(field, c->label, "model") || !*field ||
         strncmp(field, p->only_model,
                 strlen(field) < strlen(p->only_model) ? strlen(field) : strlen(p->only_model))))
        return 0;
    if (p->only_kv &&
        (!mote__label_field(field, c->label, "kv") || !mote__label_has_kv(field, p->only_kv)))
        return 0;
    if (p->only_namespace && !mote__label_has_namespace(c->label, p->only_namespace))
        return 0;
    mote__hex(hash, c->hash, sizeof c->hash);
    return !p->only_context || !strncmp(hash, p->only_context, strlen(p->only_context));
}

int mote__catalog_has_choice(const mote__store *s)
{
    const mote_store_params *p = &s->params;
    return p->only_model || p->only_kv || p->only_namespace || p->only_context;
}

/* ---- from an identity to its place in a list: open addressing, as identities are hashes ---- */

static size_t first_place(const mote__catalog_map *m, const uint8_t *id)
{
    uint64_t h;
    memcpy(&h, id, sizeof h);
    return (size_t)(h % m->size);
}

static int map_make(mote__catalog_map *m, mote__meter *meter, const void *list, size_t n,
                    size_t stride)
{
    m->size = 2 * n + 1;
    m->at = mote__alloc(meter, MOTE_MEM_SCRATCH, mote__mul(m->size, sizeof *m->at));
    if (!m->at)
        return MOTE_ENOMEM;
    memset(m->at, 0xff, m->size * sizeof *m->at);
    for (size_t i = 0; i < n; i++) {
        size_t k = first_place(m, (const uint8_t *)list + i * stride);
        while (m->at[k] != MOTE_CATALOG_UNKNOWN)
            k = (k + 1) % m->size;
        m->at[k] = (uint32_t)i;
    }
    return 0;
}

static uint32_t map_find(const mote__catalog_map *m, const void *list, size_t stride,
                         const uint8_t *id)
{
    if (!m->at)
        return MOTE_CATALOG_UNKNOWN;
    size_t k = first_place(m, id);
    while (m->at[k] != MOTE_CATALOG_UNKNOWN &&
           memcmp((const uint8_t *)list + m->at[k] * stride, id, MOTE_STORE_ID))
        k = (k + 1) % m->size;
    return m->at[k];
}

static uint32_t block_number(const mote__catalog *c, const uint8_t *id)
{
    return map_find(&c->block_map, c->blocks.list, sizeof *c->blocks.list, id);
}

/* ---- reading ---- */

static int take_block(void *ctx, const mote__index_any *row)
{
    mote__catalog *c = ctx;
    return c->rc = mote__entries_add(&c->blocks, &row->block);
}

static int take_snap(void *ctx, const mote__index_any *row)
{
    mote__catalog *c = ctx;
    if (mote__list_grow(c->meter, MOTE_MEM_SCRATCH, &c->snaps, c->n_snaps, &c->snap_room,
                        sizeof *c->snaps))
        return c->rc = MOTE_ENOMEM;
    c->snaps[c->n_snaps++] = row->snapshot;
    return 0;
}

/* The number of a context; a new one is added. */
static uint32_t context_number(mote__catalog *c, const mote__store *s, const uint8_t *hash,
                               const uint8_t *raw_label)
{
    for (size_t i = 0; i < c->n_contexts; i++)
        if (!memcmp(c->contexts[i].hash, hash, MOTE_STORE_DIGEST))
            return (uint32_t)i;
    if (mote__list_grow(c->meter, MOTE_MEM_SCRATCH, &c->contexts, c->n_contexts, &c->context_room,
                        sizeof *c->contexts)) {
        c->rc = MOTE_ENOMEM;
        return MOTE_CATALOG_UNKNOWN;
    }
    mote__catalog_context *x = &c->contexts[c->n_contexts];
    *x = (mote__catalog_context){ .used = INT64_MIN };
    memcpy(x->hash, hash, sizeof x->hash);
    memcpy(x->label, raw_label, sizeof x->label - 1);
    x->chosen = is_chosen(s, x);
    c->n_chosen += (size_t)x->chosen;
    return (uint32_t)c->n_contexts++;
}

enum { LABEL_AT = 128 }; /* in a slot's header and in a snapshot's */

/* By the slot of the first block of a chain. */
static uint32_t context_of_block(mote__catalog *c, mote__store *s, const mote__entry *e,
                                 uint8_t **image, size_t *room)
{
    mote__slot slot;
    const char *why;
    if (*room < e->place.slot_bytes) {
        mote__free(&s->meter, MOTE_MEM_SCRATCH, *image, *room);
        *room = e->place.slot_bytes;
        *image = mote__alloc(&s->meter, MOTE_MEM_SCRATCH, *room);
        if (!*image) {
            *room = 0;
            c->rc = MOTE_ENOMEM;
            return MOTE_CATALOG_UNKNOWN;
        }
    }
    int rc = mote__slot_load(s, &e->place, *image, &slot, &why);
    if (rc == MOTE_ENOMEM)
        c->rc = rc;
    if (rc || mote__slot_matches(&slot, e, &why))
        return MOTE_CATALOG_UNKNOWN;
    return context_number(c, s, slot.context, *image + LABEL_AT);
}

static uint32_t context_of_snapshot(mote__catalog *c, mote__store *s, const mote__snap_entry *e)
{
    uint8_t *file = NULL;
    const uint8_t *tail, *blob;
    size_t n;
    mote__snapfile got;
    const char *why;
    uint32_t under = e->chain.n_blocks ? block_number(c, e->chain.id) : MOTE_CATALOG_UNKNOWN,
             k = MOTE_CATALOG_UNKNOWN;
    if (under != MOTE_CATALOG_UNKNOWN)
        return c->of_block[under];
    int err = mote__snap_load(s, e->key, &file, &n);
    if (err == ENOMEM)
        c->rc = MOTE_ENOMEM;
    if (!err && !mote__snapfile_read(&got, file, n, &tail, &blob, &why) &&
        mote__snap_matches(&got, e))
        k = context_number(c, s, got.context, file + LABEL_AT);
    mote__free(&s->meter, MOTE_MEM_SCRATCH, file, n);
    return k;
}

static void add_up(mote__catalog *c)
{
    for (size_t i = 0; i < c->blocks.n; i++) {
        const mote__entry *e = &c->blocks.list[i];
        mote__catalog_context *x = c->of_block[i] == MOTE_CATALOG_UNKNOWN
                                       ? NULL
                                       : &c->contexts[c->of_block[i]];
        if (!x)
            continue;
        x->blocks++;
        x->exact_blocks += !e->approximate;
        x->payload_bytes += e->place.payload_bytes;
        x->slot_bytes += e->place.slot_bytes;
        x->used = e->used > x->used ? e->used : x->used;
    }
    for (size_t i = 0; i < c->n_snaps; i++) {
        mote__catalog_context *x = c->of_snap[i] == MOTE_CATALOG_UNKNOWN
                                       ? NULL
                                       : &c->contexts[c->of_snap[i]];
        if (!x)
            continue;
        x->snapshots++;
        x->snapshot_bytes += c->snaps[i].bytes;
        x->used = c->snaps[i].used > x->used ? c->snaps[i].used : x->used;
    }
}

int mote__catalog_read(mote__catalog *c, mote__store *s, mote__index *x, mote_err *err)
{
    uint8_t *image = NULL;
    size_t room = 0;
    *c = (mote__catalog){ .everything = !mote__catalog_has_choice(s),
                          .meter = &s->meter,
                          .blocks.meter = &s->meter };
    int rc = mote__index_all(x, take_block, c);
    if (!rc && !c->rc)
        rc = mote__index_all_snapshots(x, take_snap, c);
    if (rc)
        mote__fail(err, rc, "%s: %s", s->dir, x->why);
    rc = rc ? rc : c->rc;
    if (!rc)
        rc = map_make(&c->block_map, c->meter, c->blocks.list, c->blocks.n, sizeof *c->blocks.list);
    if (!rc)
        rc = map_make(&c->snap_map, c->meter, c->snaps, c->n_snaps, sizeof *c->snaps);
    c->of_block_room = c->blocks.n;
    c->of_snap_room = c->n_snaps;
    c->of_block = mote__alloc(&s->meter, MOTE_MEM_SCRATCH,
                              mote__mul(c->of_block_room + 1, sizeof *c->of_block));
    c->of_snap = mote__alloc(&s->meter, MOTE_MEM_SCRATCH,
                             mote__mul(c->of_snap_room + 1, sizeof *c->of_snap));
    if (!rc && (!c->of_block || !c->of_snap))
        rc = MOTE_ENOMEM;
    for (size_t i = 0; i < c->blocks.n && !rc; i++) {
        const mote__entry *e = &c->blocks.list[i];
        uint32_t parent = e->n_blocks > 1 ? block_number(c, e->parent) : MOTE_CATALOG_UNKNOWN;
        c->of_block[i] = parent < i ? c->of_block[parent]
                                    : context_of_block(c, s, e, &image, &room);
        rc = c->rc;
    }
    for (size_t i = 0; i < c->n_snaps && !rc; i++) {
        c->of_snap[i] = context_of_snapshot(c, s, &c->snaps[i]);
        rc = c->rc;
    }
    mote__free(&s->meter, MOTE_MEM_SCRATCH, image, room);
    if (!rc)
        add_up(c);
    else if (rc == MOTE_ENOMEM)
        mote__fail(err, rc, "out of memory for the list of a store");
    if (rc)
        mote__catalog_end(c);
    return rc;
}

void mote__catalog_end(mote__catalog *c)
{
    mote__entries_end(&c->blocks);
    if (c->of_block)
        mote__free(c->meter, MOTE_MEM_SCRATCH, c->of_block,
                   mote__mul(c->of_block_room + 1, sizeof *c->of_block));
    if (c->of_snap)
        mote__free(c->meter, MOTE_MEM_SCRATCH, c->of_snap,
                   mote__mul(c->of_snap_room + 1, sizeof *c->of_snap));
    mote__list_free(c->meter, MOTE_MEM_SCRATCH, c->snaps, c->snap_room, sizeof *c->snaps);
    mote__list_free(c->meter, MOTE_MEM_SCRATCH, c->contexts, c->context_room, sizeof *c->contexts);
    if (c->block_map.at)
        mote__free(c->meter, MOTE_MEM_SCRATCH, c->block_map.at,
                   mote__mul(c->block_map.size, sizeof(uint32_t)));
    if (c->snap_map.at)
        mote__free(c->meter, MOTE_MEM_SCRATCH, c->snap_map.at,
                   mote__mul(c->snap_map.size, sizeof(uint32_t)));
    *c = (mote__catalog){ 0 };
}

/* ---- choosing ---- */

int mote__catalog_chosen(const mote__catalog *c, uint32_t context)
{
    return context == MOTE_CATALOG_UNKNOWN ? c->everything : c->contexts[context].chosen;
}

int mote__catalog_keep_block(void *ctx, const mote__entry *e)
{
    const mote__catalog *c = ctx;
    uint32_t i = block_number(c, e->id);
    return i == MOTE_CATALOG_UNKNOWN || !mote__catalog_chosen(c, c->of_block[i]);
}

int mote__catalog_keep_snapshot(void *ctx, const mote__snap_entry *e)
{
    const mote__catalog *c = ctx;
    uint32_t i = map_find(&c->snap_map, c->snaps, sizeof *c->snaps, e->key);
    return i == MOTE_CATALOG_UNKNOWN || !mote__catalog_chosen(c, c->of_snap[i]);
}
