#include "kv/snapshot_bytes.h"

#include <string.h>

#include "base/le.h"

/* Offsets of the fixed head; see docs/format-snapshot.md. */
enum {
    MAGIC = 0,
    VERSION = 8,
    FLAGS = 12,
    TOKENS = 16,
    APPROXIMATE = 24,
    LAYERS = 32,
    WINDOW = 36,
    ROW_BYTES = 40,
    SOURCES = 44,
    ORIGIN = 48,
    HEAD = 56
};
static const char magic[8] = "MOTESNAP";

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

/* The tail of one source: entries of the unfinished block, as four runs. Tiled keys go in whole
 * tiles. */
static size_t tail_entries(const mote__kv_layout *l, size_t source, uint64_t n_tokens)
{
    return (size_t)(n_tokens % MOTE_BLOCK_TOKENS) / l->source[source].ratio;
}

static void tail_runs(const mote__kv_layout *l, size_t source, uint64_t n_tokens, size_t offset[4],
                      size_t bytes[4])
{
    const mote__kv_source *s = &l->source[source];
    size_t n = tail_entries(l, source, n_tokens), keys = n;
    if (s->tiled)
        keys = (n + MOTE_INDEX_TILE - 1) / MOTE_INDEX_TILE * MOTE_INDEX_TILE;
    const size_t at[4] = { s->main_codes, s->main_scales, s->index_codes, s->index_scales };
    const size_t n_bytes[4] = { n * s->main_code_bytes, n * s->main_scale_bytes,
                                keys * s->index_code_bytes, keys * s->index_scale_bytes };
    memcpy(offset, at, sizeof at);
    memcpy(bytes, n_bytes, sizeof n_bytes);
}

static size_t pending_rows(const mote__kv_layout *l, size_t source, uint64_t n_tokens)
{
    return (size_t)(n_tokens % l->source[source].ratio);
}

static size_t ring_rows(const mote__kv_state *s, size_t layer)
{
    return (size_t)(s->ring[layer].end - s->ring[layer].start);
}

size_t mote__snapshot_bytes(const mote__kv_state *s, const mote__kv_layout *l, uint64_t n_tokens)
{
    size_t total = HEAD + s->n_layers * 16;
    for (size_t i = 0; i < s->n_layers; i++)
        total += ring_rows(s, i) * s->row_bytes;
    for (size_t i = 0; i < l->n_sources; i++) {
        size_t offset[4], bytes[4];
        tail_runs(l, i, n_tokens, offset, bytes);
        for (int p = 0; p < 4; p++)
            total += bytes[p];
        total += pending_rows(l, i, n_tokens) * 2 * s->dim * sizeof(float);
    }
    return total;
}

void mote__snapshot_write(uint8_t *out, const mote__snapshot_head *h, const mote__kv_state *s,
                          const mote__kv_cache *kv)
{
    const mote__kv_layout *l = &kv->pool->layout;
    memcpy(out + MAGIC, magic, sizeof magic);
    put32(out + VERSION, MOTE_SNAPSHOT_VERSION);
    put32(out + FLAGS, 0);
    put64(out + TOKENS, h->n_tokens);
    put64(out + APPROXIMATE, h->approximate_from);
    put32(out + LAYERS, (uint32_t)s->n_layers);
    put32(out + WINDOW, (uint32_t)s->window);
    put32(out + ROW_BYTES, (uint32_t)s->row_bytes);
    put32(out + SOURCES, (uint32_t)l->n_sources);
    put64(out + ORIGIN, h->origin);
    uint8_t *at = out + HEAD;
    for (size_t i = 0; i < s->n_layers; i++, at += 16) {
        put64(at, s->ring[i].start);
        put64(at + 8, s->ring[i].end);
    }
    for (size_t i = 0; i < s->n_layers; i++)
        for (uint64_t p = s->ring[i].start; p < s->ring[i].end; p++, at += s->row_bytes)
            memcpy(at, mote__kv_window_row(s, i, p), s->row_bytes);
    for (size_t i = 0; i < l->n_sources; i++) {
        size_t offset[4], bytes[4];
        tail_runs(l, i, h->n_tokens, offset, bytes);
        for (int p = 0; p < 4; p++) {
            if (bytes[p])
                mote__kv_block_get(kv->pool, kv->blocks[h->n_tokens / MOTE_BLOCK_TOKENS], offset[p],
                                   at, bytes[p]);
            at += bytes[p];
        }
        size_t floats = pending_rows(l, i, h->n_tokens) * 2 * s->dim;
        for (size_t k = 0; k < floats; k++, at += 4) {
            uint32_t u;
            memcpy(&u, s->pending + s->pending_offset[i] + k, 4);
            put32(at, u);
        }
    }
}

int mote__snapshot_peek(mote__snapshot_head *h, const uint8_t *b, size_t n, mote_err *err)
{
    if (n < HEAD || memcmp(b + MAGIC, magic, sizeof magic) != 0)
        return mote__fail(err, MOTE_EFORMAT, "snapshot: no snapshot (%zu bytes)", n);
    if (mote__le32(b + VERSION) < MOTE_SNAPSHOT_VERSION) /* 1 did not say where windows began */
        return mote__fail(err, MOTE_EUNSUPPORTED, "snapshot: version %u is no longer read",
                          mote__le32(b + VERSION));
    if (mote__le32(b + VERSION) != MOTE_SNAPSHOT_VERSION)
        return mote__fail(err, MOTE_EVERSION, "snapshot: version %u, known is %d",
                          mote__le32(b + VERSION), MOTE_SNAPSHOT_VERSION);
    if (mote__le32(b + FLAGS) != 0)
        return mote__fail(err, MOTE_EFORMAT, "snapshot: flags %#x", mote__le32(b + FLAGS));
    *h = (mote__snapshot_head){ .n_tokens = mote__le64(b + TOKENS),
                                .approximate_from = mote__le64(b + APPROXIMATE),
                                .origin = mote__le64(b + ORIGIN) };
    return 0;
}

/* The whole of it is what this state and layout would have written. */
static int check(const mote__snapshot_head *h, const uint8_t *b, size_t n, const mote__kv_state *s,
                 const mote__kv_cache *kv, mote_err *err)
{
    const mote__kv_layout *l = &kv->pool->layout;
    if (mote__le32(b + LAYERS) != s->n_layers || mote__le32(b + WINDOW) != s->window ||
        mote__le32(b + ROW_BYTES) != s->row_bytes || mote__le32(b + SOURCES) != l->n_sources)
        return mote__fail(err, MOTE_EFORMAT, "snapshot: made for another geometry");
    size_t total = HEAD + s->n_layers * 16,
           need = (size_t)((h->n_tokens + MOTE_BLOCK_TOKENS - 1) / MOTE_BLOCK_TOKENS);
    if (h->n_tokens > (uint64_t)1 << 40 || need > kv->n_blocks)
        return mote__fail(err, MOTE_EFORMAT, "snapshot: %llu tokens do not fit the blocks at hand",
                          (unsigned long long)h->n_tokens);
    if (n < total)
        return mote__fail(err, MOTE_EFORMAT, "snapshot: cut short (%zu bytes)", n);
    for (size_t i = 0; i < s->n_layers; i++) {
        uint64_t start = mote__le64(b + HEAD + 16 * i), end = mote__le64(b + HEAD + 16 * i + 8);
        if (start > end || end - start > s->window || end != (start == end ? end : h->n_tokens))
            return mote__fail(err, MOTE_EFORMAT,
                              "snapshot: layer %zu's window covers %llu to %llu of %llu tokens", i,
                              (unsigned long long)start, (unsigned long long)end,
                              (unsigned long long)h->n_tokens);
        total += (size_t)(end - start) * s->row_bytes;
    }
    for (size_t i = 0; i < l->n_sources; i++) {
        size_t offset[4], bytes[4];
        tail_runs(l, i, h->n_tokens, offset, bytes);
        total += bytes[0] + bytes[1] + bytes[2] + bytes[3] +
                 pending_rows(l, i, h->n_tokens) * 2 * s->dim * sizeof(float);
    }
    if (n != total)
        return mote__fail(err, MOTE_EFORMAT, "snapshot: %zu bytes, expected %zu", n, total);
    return 0;
}

int mote__snapshot_read(const uint8_t *b, size_t n, mote__kv_state *s, mote__kv_cache *kv,
                        mote_err *err)
{
    const mote__kv_layout *l = &kv->pool->layout;
    mote__snapshot_head h;
    int rc = mote__snapshot_peek(&h, b, n, err);
    if (rc || (rc = check(&h, b, n, s, kv, err)))
        return rc;
    const uint8_t *at = b + HEAD + 16 * s->n_layers;
    for (size_t i = 0; i < s->n_layers; i++) {
        s->ring[i] = (mote__kv_ring){ mote__le64(b + HEAD + 16 * i),
                                      mote__le64(b + HEAD + 16 * i + 8) };
        for (uint64_t p = s->ring[i].start; p < s->ring[i].end; p++, at += s->row_bytes)
            memcpy(mote__kv_window_row(s, i, p), at, s->row_bytes);
    }
    for (size_t i = 0; i < l->n_sources; i++) {
        size_t offset[4], bytes[4];
        tail_runs(l, i, h.n_tokens, offset, bytes);
        for (int p = 0; p < 4; p++) {
            if (bytes[p])
                mote__kv_block_put(kv->pool, kv->blocks[h.n_tokens / MOTE_BLOCK_TOKENS], offset[p],
                                   at, bytes[p]);
            at += bytes[p];
        }
        kv->n_entries[i] = (size_t)(h.n_tokens / l->source[i].ratio);
        s->n_pending[i] = pending_rows(l, i, h.n_tokens);
        for (size_t k = 0; k < s->n_pending[i] * 2 * s->dim; k++, at += 4) {
            uint32_t u = mote__le32(at);
            memcpy(s->pending + s->pending_offset[i] + k, &u, 4);
        }
    }
    return 0;
}
