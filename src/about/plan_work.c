/* The cost of a token besides its weights: attention at a context, by family; and reads from disk
 * if weights are mapped and memory is short. Formulas: docs/plan.md. */
#include "about/plan.h"

#include <string.h>

#include "base/mem.h"

static double least(double a, double b) { return a < b ? a : b; }
static double main_bytes(const mote__plan_stream *s)
{
    return (double)(s->main_codes + s->main_scales);
}
static double index_bytes(const mote__plan_stream *s)
{
    return (double)(s->index_codes + s->index_scales);
}

/* Operations of scores and weighted sums over `entries` of `values` each, for all heads: two per
 * value for each of both. */
static double attend(const mote__plan *p, double values, double entries)
{
    return 4.0 * (double)p->n_heads * values * entries;
}

static double score(const mote__plan *p, double entries)
{
    return 2.0 * (double)p->index_heads * (double)p->index_dim * entries;
}

/* Every layer reads its window. Layers with a ratio also read the top-k entries of their source;
 * layers that select also score all entries of the source, or only the candidates. */
static mote__plan_work v41(const mote__plan *p, const mote__plan_cache *cache, double ctx,
                           int token)
{
    const mote__config *c = &p->config;
    mote__plan_work w = { 0, 0 };
    size_t layers = token == MOTE_PLAN_PROMPT ? c->decoder_start : c->n_layers, next = 0;
    for (size_t l = 0; l < layers; l++) {
        double in_window = least(ctx, (double)c->window);
        w.flops += attend(p, (double)c->head_dim, in_window);
        w.cache_bytes += in_window * (double)cache->window_entry;
        int selects = next < c->n_index_sources && c->index_sources[next] == l;
        next += (size_t)selects;
        if (!c->compress_ratios[l])
            continue;
        const mote__plan_stream *s = &cache->streams[c->kv_source_of[l]];
        double entries = (double)((uint64_t)ctx / c->compress_ratios[l]),
               chosen = least(entries, (double)c->index_topk);
        w.flops += attend(p, (double)c->head_dim, chosen);
        w.cache_bytes += chosen * main_bytes(s);
        if (selects) {
            if (c->candidate_source >= 0 && l > (size_t)c->candidate_source)
                entries = least(entries,
                                (double)(c->candidate_topk_blocks * c->candidate_block_size));
            w.flops += score(p, entries);
            w.cache_bytes += entries * index_bytes(s);
        }
    }
    return w;
}

static mote__plan_work v4(const mote__plan *p, const mote__plan_cache *cache, double ctx)
{
    double in_window = (double)p->n_layers * least(ctx, (double)p->window), d = (double)p->head_dim;
    mote__plan_work w = { attend(p, d, in_window), in_window * (double)cache->window_entry };
    for (size_t i = 0; i < cache->n_streams; i++) {
        const mote__plan_stream *s = &cache->streams[i];
        double entries = (double)((uint64_t)ctx / s->ratio), n = (double)s->count;
        int selects = s->index_format != NULL;
        double chosen = selects && p->index_topk ? least(entries, (double)p->index_topk) : entries;
        w.flops += n * (attend(p, d, chosen) + (selects ? score(p, entries) : 0));
        w.cache_bytes += n * (chosen * main_bytes(s) + (selects ? entries * index_bytes(s) : 0));
    }
    return w;
}

/* Attention in the latent space, as in decoding: keys are latent and rotated values, values are the
 * latent. */
static mote__plan_work mla(const mote__plan *p, const mote__plan_cache *cache, double ctx)
{
    const mote__plan_stream *s = &cache->streams[0];
    double n = (double)p->n_layers,
           chosen = p->index_dim && p->index_topk ? least(ctx, (double)p->index_topk) : ctx;
    double values = (double)p->latent_dim +
                    (double)p->rope_dim / 2; /* the mean of the two widths */
    mote__plan_work w = { n * attend(p, values, chosen), n * chosen * main_bytes(s) };
    if (p->index_dim) {
        w.flops += n * score(p, ctx);
        w.cache_bytes += n * ctx * index_bytes(s);
    }
    return w;
}

static mote__plan_work gqa(const mote__plan *p, const mote__plan_cache *cache, double ctx)
{
    mote__plan_work w = { 0, 0 };
    for (size_t i = 0; i < cache->n_streams; i++) {
        const mote__plan_stream *s = &cache->streams[i];
        double seen = (double)s->count * (s->window ? least(ctx, (double)s->window) : ctx);
        w.flops += attend(p, (double)p->head_dim, seen);
        w.cache_bytes += seen * (main_bytes(s) + index_bytes(s));
    }
    return w;
}

mote__plan_work mote__plan_attention(const mote__plan *p, const mote__plan_cache *cache,
                                     uint64_t ctx, int token)
{
    if (!strcmp(p->family, "deepseek_v41"))
        return v41(p, cache, (double)ctx, token);
    if (!strcmp(p->family, "deepseek_v4"))
        return v4(p, cache, (double)ctx);
    return !strcmp(p->family, "mla") ? mla(p, cache, (double)ctx) : gqa(p, cache, (double)ctx);
}

/* n x part / whole for part <= whole, in double because the product may overflow; exact enough for
 * an estimate. */
static uint64_t part_of(uint64_t n, uint64_t part, uint64_t whole)
{
    return whole ? (uint64_t)((double)n * ((double)part / (double)whole)) : 0;
}

/* Assumes that the system keeps the pages used most: first those that every token reads, then
 * experts, all equally likely. Engram rows are single pages of large tables, so they are read from
 * disk unless the tables fit too. */
mote__plan_disk mote__plan_paging(const mote__plan *p, uint64_t room)
{
    enum { PAGE = 4096, ROW_TENSORS = 2 }; /* codes and scales of a row are in different tensors */
    const uint64_t experts = p->weights[MOTE_TG_EXPERTS];
    uint64_t constant = p->use[MOTE_PLAN_ANSWER].bytes - p->expert_use[MOTE_PLAN_ANSWER].bytes,
             rows = p->table_rows * ROW_TENSORS * PAGE;
    mote__plan_disk d = { 0, 0, 0 };
    if (room <
        constant) { /* pages that are read cyclically are evicted before they are read again */
        d.answer_bytes = p->use[MOTE_PLAN_ANSWER].bytes;
        d.chunk_bytes = mote__add(p->use[MOTE_PLAN_PROMPT].bytes -
                                      p->expert_use[MOTE_PLAN_PROMPT].bytes,
                                  p->prompt_experts);
        return d;
    }
    room -= constant;
    d.experts_in_memory = room < experts ? room : experts;
    uint64_t missing = experts - d.experts_in_memory;
    d.answer_bytes = part_of(p->expert_use[MOTE_PLAN_ANSWER].bytes, missing, experts);
    d.chunk_bytes = part_of(p->prompt_experts, missing, experts);
    if (room - d.experts_in_memory < p->table_bytes)
        d.answer_bytes = mote__add(d.answer_bytes, rows);
    return d;
}
