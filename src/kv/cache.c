#include "kv/cache.h"

#include <assert.h>
#include <string.h>

/* MAX_KEY_BYTES: codes of an MXFP4 key; TABLE: blocks of the first table: 16,384 tokens in 512
 * bytes */
enum { MAX_KEY_BYTES = MOTE_KV_MAX_DIM / 2, TABLE = 64 };

void mote__kv_cache_init(mote__kv_cache *c, mote__kv_pool *pool)
{
    *c = (mote__kv_cache){ .pool = pool };
}

static void drop_blocks(mote__kv_cache *c, size_t keep)
{
    while (c->n_blocks > keep)
        mote__kv_block_unref(c->pool, c->blocks[--c->n_blocks]);
}

void mote__kv_cache_deinit(mote__kv_cache *c)
{
    drop_blocks(c, 0);
    mote__free(c->pool->meter, MOTE_MEM_KV_SLACK, c->blocks, c->capacity * sizeof *c->blocks);
    *c = (mote__kv_cache){ .pool = c->pool };
}

static int grow_table(mote__kv_cache *c, size_t n)
{
    if (n <= c->capacity)
        return 0;
    size_t capacity = c->capacity * 2 > n ? c->capacity * 2 : n < TABLE ? TABLE : n;
    mote__kv_block **t = mote__alloc(c->pool->meter, MOTE_MEM_KV_SLACK, capacity * sizeof *t);
    if (!t)
        return MOTE_ENOMEM;
    if (c->n_blocks)
        memcpy(t, c->blocks, c->n_blocks * sizeof *t);
    mote__free(c->pool->meter, MOTE_MEM_KV_SLACK, c->blocks, c->capacity * sizeof *t);
    c->blocks = t;
    c->capacity = capacity;
    return 0;
}

int mote__kv_reserve(mote__kv_cache *c, size_t n_written, size_t n_tokens)
{
    size_t had = c->n_blocks, need = (n_tokens + MOTE_BLOCK_TOKENS - 1) / MOTE_BLOCK_TOKENS;
    if (grow_table(c, need))
        return MOTE_ENOMEM;
    size_t tail = n_written / MOTE_BLOCK_TOKENS;
    if (tail < had && n_tokens > n_written && atomic_load(&c->blocks[tail]->refs) > 1) {
        mote__kv_block *b = mote__kv_block_new(c->pool);
        if (!b)
            return MOTE_ENOMEM;
        mote__kv_block_copy(c->pool, b, c->blocks[tail]);
        mote__kv_block_unref(c->pool, c->blocks[tail]);
        c->blocks[tail] = b;
    }
    while (c->n_blocks < need) {
        mote__kv_block *b = mote__kv_block_new(c->pool);
        if (!b) {
            drop_blocks(c, had);
            return MOTE_ENOMEM;
        }
        c->blocks[c->n_blocks++] = b;
    }
    return 0;
}

static void set_entries(mote__kv_cache *c, size_t n_tokens)
{
    for (size_t i = 0; i < c->pool->layout.n_sources; i++)
        c->n_entries[i] = n_tokens / c->pool->layout.source[i].ratio;
}

int mote__kv_cache_fork(mote__kv_cache *copy, const mote__kv_cache *c, size_t n_tokens)
{
    mote__kv_cache_init(copy, c->pool);
    size_t need = (n_tokens + MOTE_BLOCK_TOKENS - 1) / MOTE_BLOCK_TOKENS,
           full = n_tokens / MOTE_BLOCK_TOKENS;
    assert(need <= c->n_blocks);
    if (grow_table(copy, need))
        return MOTE_ENOMEM;
    for (size_t i = 0; i < full; i++)
        copy->blocks[copy->n_blocks++] = mote__kv_block_ref(c->blocks[i]);
    if (full < need) {
        mote__kv_block *b = mote__kv_block_new(c->pool);
        if (!b) {
            mote__kv_cache_deinit(copy);
            return MOTE_ENOMEM;
        }
        mote__kv_block_copy(c->pool, b, c->blocks[full]);
        copy->blocks[copy->n_blocks++] = b;
    }
    memcpy(copy->n_entries, c->n_entries, sizeof copy->n_entries);
    return 0;
}

void mote__kv_cache_truncate(mote__kv_cache *c, size_t n_tokens)
{
    drop_blocks(c, (n_tokens + MOTE_BLOCK_TOKENS - 1) / MOTE_BLOCK_TOKENS);
    set_entries(c, n_tokens);
}

int mote__kv_cache_adopt(mote__kv_cache *c, mote__kv_block *const *blocks, size_t n)
{
    assert(c->n_blocks == 0);
    if (grow_table(c, n))
        return MOTE_ENOMEM;
    if (n)
        memcpy(c->blocks, blocks, n * sizeof *blocks);
    c->n_blocks = n;
    set_entries(c, n * MOTE_BLOCK_TOKENS);
    return 0;
}

void mote__kv_put(mote__kv_cache *c, size_t source, size_t entry, const float *main,
                  const float *index)
{
    const mote__kv_layout *l = &c->pool->layout;
    const mote__kv_source *s = &l->source[source];
    uint8_t *block = mote__kv_block_here(c->blocks[entry / s->entries]);
    assert(atomic_load_explicit(&c->blocks[entry / s->entries]->refs, memory_order_relaxed) == 1);
    size_t i = entry % s->entries;
    s->main->encode(block + s->main_codes + i * s->main_code_bytes,
                    block + s->main_scales + i * s->main_scale_bytes, main, l->main_dim);
    if (!s->tiled) {
        s->index->encode(block + s->index_codes + i * s->index_code_bytes,
                         block + s->index_scales + i * s->index_scale_bytes, index, l->index_dim);
        return;
    }
    uint8_t codes[MAX_KEY_BYTES], scales[MAX_KEY_BYTES / 16];
    assert(s->index_code_bytes <= sizeof codes);
    s->index->encode(codes, scales, index, l->index_dim);
    size_t tile = i / MOTE_INDEX_TILE * MOTE_INDEX_TILE;
    mote__index_tile_put(block + s->index_codes + tile * s->index_code_bytes,
                         block + s->index_scales + tile * s->index_scale_bytes, l->index_dim,
                         i % MOTE_INDEX_TILE, codes, scales);
}

/* `dim` values of one entry of a part that is plain rows: a piece at a time. Groups of every format
 * divide a piece. */
static void decode_row(float *dst, const mote__kv_cache *c, size_t entry, size_t entries,
                       const mote__kvfmt *f, size_t codes_at, size_t scales_at, size_t dim)
{
    enum { PIECE = 1024 };
    const mote__kv_block *b = c->blocks[entry / entries];
    uint8_t codes[PIECE * sizeof(float)], scales[PIECE];
    codes_at += entry % entries * mote__kvfmt_code_bytes(f, dim);
    scales_at += entry % entries * mote__kvfmt_scale_bytes(f, dim);
    for (size_t at = 0; at < dim; at += PIECE) {
        size_t n = dim - at < PIECE ? dim - at : PIECE, n_codes = mote__kvfmt_code_bytes(f, n),
               n_scales = mote__kvfmt_scale_bytes(f, n);
        assert(n_codes <= sizeof codes && n_scales <= sizeof scales);
        mote__kv_block_get(c->pool, b, codes_at, codes, n_codes);
        mote__kv_block_get(c->pool, b, scales_at, scales, n_scales);
        f->decode(dst + at, codes, scales, n);
        codes_at += n_codes;
        scales_at += n_scales;
    }
}

void mote__kv_main_decode(float *dst, const mote__kv_cache *c, size_t source, size_t entry)
{
    const mote__kv_layout *l = &c->pool->layout;
    const mote__kv_source *s = &l->source[source];
    decode_row(dst, c, entry, s->entries, s->main, s->main_codes, s->main_scales, l->main_dim);
}

void mote__kv_index_decode(float *dst, const mote__kv_cache *c, size_t source, size_t entry)
{
    const mote__kv_layout *l = &c->pool->layout;
    const mote__kv_source *s = &l->source[source];
    if (!s->tiled) {
        decode_row(dst, c, entry, s->entries, s->index, s->index_codes, s->index_scales,
                   l->index_dim);
        return;
    }
    uint8_t tile_codes[MOTE_INDEX_TILE * MAX_KEY_BYTES],
        tile_scales[MOTE_INDEX_TILE * MAX_KEY_BYTES / 16];
    uint8_t codes[MAX_KEY_BYTES], scales[MAX_KEY_BYTES / 16];
    const mote__kv_block *b = c->blocks[entry / s->entries];
    size_t i = entry % s->entries, tile = i / MOTE_INDEX_TILE * MOTE_INDEX_TILE;
    mote__kv_block_get(c->pool, b, s->index_codes + tile * s->index_code_bytes, tile_codes,
                       MOTE_INDEX_TILE * s->index_code_bytes);
    mote__kv_block_get(c->pool, b, s->index_scales + tile * s->index_scale_bytes, tile_scales,
                       MOTE_INDEX_TILE * s->index_scale_bytes);
    mote__index_tile_get(codes, scales, l->index_dim, i % MOTE_INDEX_TILE, tile_codes, tile_scales);
    s->index->decode(dst, codes, scales, l->index_dim);
}
