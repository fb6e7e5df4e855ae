#include <math.h>
#include <string.h>

#include "kern/topk.h"
#include "model/cpu/pass.h"
#include "num/formats.h"

/* PART: multiply-adds that are worth a piece of their own; GATHERED: tiles of candidates scored at
 * once */
enum { STRIP = MOTE_TOPK_STRIP, PART = 1 << 18, PARTS_A_THREAD = 4, GATHERED = 64 };

/* Thread scratch: a strip of scores, gathered tiles of candidates, then what the generic formats
 * need. */
struct scratch {
    float *scores;                /* [STRIP], of whole tiles */
    uint8_t *tiles, *tile_scales; /* [GATHERED] */
    float *keys;                  /* [MOTE_INDEX_TILE][dim], generic formats */
    float *dots;                  /* [n_heads][MOTE_INDEX_TILE] */
};

static size_t scratch_layout(struct scratch *s, uint8_t *base, const mote__config *c)
{
    size_t at = 0;
    struct scratch t;
    t.scores = (float *)(void *)(base + at);
    at += (STRIP + MOTE_INDEX_TILE) * 4;
    t.tiles = base + at;
    at += GATHERED * MOTE_INDEX_TILE * c->index_head_dim / 2;
    t.tile_scales = base + at;
    at += GATHERED * mote__round64(MOTE_INDEX_TILE * c->index_head_dim / 32);
    t.keys = (float *)(void *)(base + at);
    at += mote__round64(MOTE_INDEX_TILE * c->index_head_dim * 4);
    t.dots = (float *)(void *)(base + at);
    at += mote__round64(c->index_n_heads * MOTE_INDEX_TILE * 4);
    if (s)
        *s = t;
    return at;
}

size_t mote__cpu_select_thread_bytes(const mote__config *c)
{
    static uint8_t nowhere[64];
    return scratch_layout(NULL, nowhere, c);
}

struct select {
    mote__cpu_pass *p;
    size_t layer, source, ratio;
    mote__tile tile; /* a row's number below is counted from its first one */
    mote__candidates candidates;
    size_t parts; /* pieces a row's entries are cut into */
    /* top-k states: one per thread (parts == 1), or one per (row, part) and one more */
    uint8_t *ops;
    size_t op_bytes; /* of one: mote__topk, its memory, the memory of a block top-k */
    /* block maxima: one run of max_blocks floats per thread or per row */
    float *maxima;
    size_t max_blocks;
};

static const mote__row *row_of(const struct select *s, size_t row)
{
    return &s->p->batch->rows[s->tile.first + row];
}

static const mote__seq *seq_of(const struct select *s, size_t row)
{
    return s->p->batch->extents[row_of(s, row)->extent].seq;
}

/* 1: only entries inside the row's candidate blocks are scored */
static int uses_candidates(const struct select *s, size_t row)
{
    return s->candidates == MOTE_CAND_USE && !seq_of(s, row)->all_candidates;
}

/* Entries this row selects at most; what is visible bounds it, so it never passes the room. */
static size_t row_topk(const struct select *s, size_t row)
{
    size_t want = mote__seq_topk(seq_of(s, row), &s->p->net->config);
    return want < s->p->topk_room ? want : s->p->topk_room;
}

struct query { /* one row on its way */
    const struct select *s;
    const mote__seq *seq;
    size_t row, n; /* live row, visible entries */
    const mote__kv_source *src;
    mote__index_query iq;
    struct scratch t;
    const float *q; /* generic formats: rounded as the keys are */
};

static float round_if(int on, float x) { return on ? mote__bf16_round(x) : x; }

/* Scores of n <= MOTE_INDEX_TILE entries whose keys are plain rows */
static void score_rows(const struct query *k, const uint8_t *codes, const uint8_t *scales, size_t n,
                       float *scores)
{
    const mote__kern_ops *kern = k->s->p->net->kern;
    const mote__config *c = &k->s->p->net->config;
    size_t dim = c->index_head_dim;
    int rnd = k->iq.round_bf16;
    for (size_t e = 0; e < n; e++)
        kern->decode[k->src->index->id](k->t.keys + e * dim, codes + e * k->src->index_code_bytes,
                                        scales + e * k->src->index_scale_bytes, dim);
    kern->dots(k->t.dots, MOTE_INDEX_TILE, k->q, dim, c->index_n_heads, k->t.keys, dim, n, dim,
               1.0f);
    for (size_t e = 0; e < n; e++) {
        float sum = 0;
        for (size_t h = 0; h < c->index_n_heads; h++) {
            float d = round_if(rnd, k->t.dots[h * MOTE_INDEX_TILE + e]), w = k->iq.weights[h];
            d = d > 0 ? d : 0;
            sum = rnd ? sum + mote__bf16_round(d * w) : fmaf(d, w, sum);
        }
        scores[e] = round_if(rnd, sum);
    }
}

/* Codes and scales of entry `e` (of its tile, if keys lie in tiles) */
static mote__kv_ref keys_at(const struct query *k, size_t e)
{
    mote__kv_ref keys = mote__kv_index(&k->seq->kv, k->s->source, e / k->src->entries);
    size_t at = e % k->src->entries;
    if (k->src->index->id == MOTE_KV_MXFP4)
        at -= at % MOTE_INDEX_TILE;
    return (mote__kv_ref){ keys.codes + at * k->src->index_code_bytes,
                           keys.scales + at * k->src->index_scale_bytes };
}

/* Keys that are looked at soon: they lie anywhere, where no prefetcher of the CPU looks */
static void fetch_keys(const struct query *k, size_t e, size_t n)
{
    mote__kv_ref keys = keys_at(k, e);
    for (size_t i = 0; i < n * k->src->index_code_bytes; i += 64)
        __builtin_prefetch(keys.codes + i, 0, 3);
    for (size_t i = 0; i < n * k->src->index_scale_bytes; i += 64)
        __builtin_prefetch(keys.scales + i, 0, 3);
}

/* Scores of at most STRIP entries from `first`, the start of a tile, up to `end`; of MXFP4 keys up
 * to the end of the last tile. */
static void score(const struct query *k, size_t first, size_t end, float *scores)
{
    /* one a block, which holds whole tiles */
    mote__index_tiles runs[STRIP / MOTE_INDEX_TILE + 1];
    size_t n_runs = 0;
    float *start = scores;
    while (first < end) {
        size_t here = k->src->entries - first % k->src->entries,
               n = end - first < here ? end - first : here;
        mote__kv_ref keys = keys_at(k, first);
        if (k->src->index->id == MOTE_KV_MXFP4) {
            runs[n_runs++] = (mote__index_tiles){ keys.codes, keys.scales,
                                                  (n + MOTE_INDEX_TILE - 1) / MOTE_INDEX_TILE };
        } else {
            n = n < MOTE_INDEX_TILE ? n : MOTE_INDEX_TILE;
            score_rows(k, keys.codes, keys.scales, n, scores);
        }
        scores += n;
        first += n;
    }
    /* plain rows have no integer form of the query */
    if (n_runs)
        k->s->p->net->kern->index_scores(start, &k->iq, runs, n_runs);
}

/* Where a row's query lies in integer form: codes, sums of codes, scales */
struct coded {
    int8_t *codes;
    int32_t *code_sum;
    float *scales;
};

static struct coded coded_of(const mote__cpu_pass *p, size_t row)
{
    const mote__config *c = &p->net->config;
    size_t n = c->index_n_heads * c->index_head_dim;
    uint8_t *codes = p->index_coded +
                     row * mote__index_query_bytes(c->index_n_heads, c->index_head_dim);
    return (struct coded){ (int8_t *)codes, (int32_t *)(void *)(codes + n),
                           (float *)(void *)(codes + n + n / 32 * 4) };
}

static mote__index_query coded_query(const mote__cpu_pass *p, size_t row)
{
    const mote__config *c = &p->net->config;
    struct coded at = coded_of(p, row);
    return (mote__index_query){ .n_heads = c->index_n_heads,
                                .dim = c->index_head_dim,
                                .codes = at.codes,
                                .code_sum = at.code_sum,
                                .scales = at.scales,
                                .weights = p->index_weight + row * c->index_n_heads,
                                .round_bf16 = p->net->published };
}

static void prepare(struct query *k, const struct select *s, size_t row, int thread)
{
    mote__cpu_pass *p = s->p;
    const mote__config *c = &p->net->config;
    *k = (struct query){ .s = s, .row = row, .seq = seq_of(s, row) };
    k->src = &k->seq->kv.pool->layout.source[s->source];
    k->n = (size_t)((row_of(s, row)->pos + 1) / s->ratio);
    scratch_layout(&k->t, mote__cpu_thread(p, thread), c);
    k->iq = coded_query(p, row);
    k->q = p->index_query + row * c->index_n_heads * c->index_head_dim;
}

/* Entries [begin, end) of the row: push scores, note block maxima. begin is the start of a tile and
 * of a candidate block. */
static void scan(const struct query *k, size_t begin, size_t end, mote__topk *best, float *maxima)
{
    size_t bs = k->s->p->net->config.candidate_block_size;
    for (size_t at = begin; at < end; at += STRIP) {
        size_t n = end - at < STRIP ? end - at : STRIP;
        score(k, at, at + n, k->t.scores);
        mote__topk_push(best, k->t.scores, n, (uint32_t)at);
        if (maxima)
            k->s->p->net->kern->block_maxima(maxima + at / bs, k->t.scores, n, bs);
    }
}

/* Only entries inside the row's candidate blocks [begin, end) of its list. MXFP4 keys are gathered
 * into tiles of their own: where candidates are few, a tile of the cache holds one block of them
 * and much else. Entries are numbered as they come in the list of blocks; finish_entries turns that
 * into their numbers. */
static void scan_candidates(const struct query *k, size_t begin, size_t end, mote__topk *best)
{
    enum { AHEAD = 8 };
    const mote__cpu_pass *p = k->s->p;
    const mote__config *c = &p->net->config;
    const int32_t *list = p->candidates + row_of(k->s, k->row)->token * c->candidate_topk_blocks;
    size_t bs = c->candidate_block_size, dim = c->index_head_dim,
           some = GATHERED * MOTE_INDEX_TILE / bs;
    for (size_t i = begin, next; i < end; i = next) {
        next = end - i < some ? end : i + some;
        size_t n = 0;
        for (size_t b = i; b < next; b++) {
            size_t e = (size_t)list[b] * bs, m = k->n - e < bs ? k->n - e : bs,
                   tile = n / MOTE_INDEX_TILE;
            mote__kv_ref keys = keys_at(k, e);
            if (b + AHEAD < end)
                fetch_keys(k, (size_t)list[b + AHEAD] * bs,
                           k->src->index->id == MOTE_KV_MXFP4 ? MOTE_INDEX_TILE : 1);
            if (k->src->index->id == MOTE_KV_MXFP4)
                mote__index_tile_move(k->t.tiles + tile * MOTE_INDEX_TILE * dim / 2,
                                      k->t.tile_scales + tile * MOTE_INDEX_TILE * dim / 32,
                                      n % MOTE_INDEX_TILE, keys.codes, keys.scales,
                                      e % MOTE_INDEX_TILE, m, dim);
            else
                score_rows(k, keys.codes, keys.scales, m, k->t.scores + n);
            n += m;
        }
        if (k->src->index->id == MOTE_KV_MXFP4)
            p->net->kern->index_scores(k->t.scores, &k->iq,
                                       &(mote__index_tiles){ k->t.tiles, k->t.tile_scales,
                                                             (n + MOTE_INDEX_TILE - 1) /
                                                                 MOTE_INDEX_TILE },
                                       1);
        mote__topk_push(best, k->t.scores, n, (uint32_t)(i * bs));
    }
}

/* The selected entries into the row's list, in ascending order */
static void finish_entries(const struct select *s, size_t row, mote__topk *best)
{
    mote__cpu_pass *p = s->p;
    const mote__config *c = &p->net->config;
    size_t token = row_of(s, row)->token, bs = c->candidate_block_size;
    uint32_t *out = (uint32_t *)p->topk + token * p->topk_room;
    p->n_topk[token] = (uint32_t)mote__topk_finish(best, out);
    if (uses_candidates(s, row))
        for (size_t i = 0; i < p->n_topk[token]; i++)
            out[i] = (uint32_t)p->candidates[token * c->candidate_topk_blocks + out[i] / bs] *
                         (uint32_t)bs +
                     out[i] % (uint32_t)bs;
}

static void finish_candidates(const struct select *s, size_t row, mote__topk *blocks, float *maxima,
                              size_t n)
{
    mote__cpu_pass *p = s->p;
    const mote__config *c = &p->net->config;
    size_t token = row_of(s, row)->token,
           n_blocks = (n + c->candidate_block_size - 1) / c->candidate_block_size;
    mote__topk_reset(blocks);
    if (n)
        /* the newest block always stays */
        maxima[(n - 1) / c->candidate_block_size] = INFINITY;
    mote__topk_push(blocks, maxima, n_blocks, 0);
    p->n_candidates[token] = (uint32_t)mote__topk_finish(
        blocks, (uint32_t *)p->candidates + token * c->candidate_topk_blocks);
}

static mote__topk *op_init(const struct select *s, size_t i, size_t row)
{
    mote__topk *best = (mote__topk *)(void *)(s->ops + i * s->op_bytes);
    mote__topk_init(best, s->p->net->kern, row_topk(s, row),
                    (uint8_t *)best + mote__round64(sizeof *best));
    return best;
}

static void finish(const struct select *s, size_t row, size_t n, mote__topk *best, float *maxima)
{
    const mote__config *c = &s->p->net->config;
    finish_entries(s, row, best);
    if (s->candidates == MOTE_CAND_MAKE) {
        mote__topk blocks;
        mote__topk_init(&blocks, s->p->net->kern, c->candidate_topk_blocks,
                        (uint8_t *)best + mote__round64(sizeof *best) +
                            mote__round64(mote__topk_bytes(s->p->topk_room)));
        finish_candidates(s, row, &blocks, maxima, n);
    }
}

static void whole_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct select *s = ctx;
    for (size_t row = begin; row < end; row++) {
        struct query k;
        prepare(&k, s, row, thread);
        mote__topk *best = op_init(s, (size_t)thread, row);
        float *maxima = s->candidates == MOTE_CAND_MAKE ? s->maxima + (size_t)thread * s->max_blocks
                                                        : NULL;
        if (uses_candidates(s, row))
            scan_candidates(&k, 0, s->p->n_candidates[row_of(s, row)->token], best);
        else
            scan(&k, 0, k.n, best, maxima);
        finish(s, row, k.n, best, maxima);
    }
}

/* Few rows, many entries: a row's entries are cut into parts whose winners are merged. The set of
 * winners does not depend on the cut, so neither does the result. */
static void row_parts(void *ctx, size_t begin, size_t end, int thread)
{
    struct select *s = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t row = i / s->parts, part = i % s->parts;
        struct query k;
        prepare(&k, s, row, thread);
        mote__topk *best = op_init(s, i, row);
        if (uses_candidates(s, row)) {
            size_t n = s->p->n_candidates[row_of(s, row)->token];
            scan_candidates(&k, n * part / s->parts, n * (part + 1) / s->parts, best);
        } else {
            enum { UNIT = 4 * MOTE_INDEX_TILE };
            size_t units = (k.n + UNIT - 1) / UNIT, first = units * part / s->parts * UNIT,
                   last = units * (part + 1) / s->parts * UNIT;
            scan(&k, first, last < k.n ? last : k.n, best,
                 s->candidates == MOTE_CAND_MAKE ? s->maxima + row * s->max_blocks : NULL);
        }
    }
}

static void merge_parts(struct select *s, size_t row)
{
    /* one more state behind the parts' */
    mote__topk *best = op_init(s, s->tile.n * s->parts, row);
    for (size_t part = 0; part < s->parts; part++)
        mote__topk_merge(best,
                         (mote__topk *)(void *)(s->ops + (row * s->parts + part) * s->op_bytes));
    finish(s, row, (size_t)((row_of(s, row)->pos + 1) / s->ratio), best,
           s->max_blocks ? s->maxima + row * s->max_blocks : NULL);
}

/* Rotation, grids and scale of queries and weights; the integer form where keys are MXFP4 */
static void finish_queries(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    const struct select *s = ctx;
    mote__cpu_pass *p = s->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    size_t width = c->index_n_heads * c->index_head_dim;
    float scale = (float)(pow((double)c->index_head_dim, -0.5) *
                          pow((double)c->index_n_heads, -0.5));
    for (size_t r = begin; r < end; r++) {
        float *q = p->index_query + r * width, *w = p->index_weight + r * c->index_n_heads;
        mote__act(net, q, width);
        mote__rope_apply(q, c->index_n_heads, c->index_head_dim,
                         p->angles[1] + row_of(s, r)->token * c->rope_dim, c->rope_dim, 0);
        mote__act(net, q, width);
        const mote__kvfmt *f = seq_of(s, r)->kv.pool->layout.source[s->source].index;
        struct coded at = coded_of(p, r);
        if (f->id != MOTE_KV_MXFP4)
            mote__kvfmt_round(f, q, width);
        else
            mote__index_query_encode(at.codes, at.code_sum, at.scales, q, c->index_n_heads,
                                     c->index_head_dim);
        mote__act(net, w, c->index_n_heads);
        for (size_t h = 0; h < c->index_n_heads; h++)
            w[h] *= scale;
        mote__act(net, w, c->index_n_heads);
    }
}

/* Queries and head weights of all rows: iq [rows][heads][dim] rotated (and on its format's grid
 * where the keys are decoded to fp32), iw [rows][heads]. */
static int make_queries(struct select *s)
{
    mote__cpu_pass *p = s->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = &net->weights.layers[s->layer];
    size_t width = c->index_n_heads * c->index_head_dim, n = s->tile.n;
    const float *x = p->x + s->tile.first * c->hidden_size;
    mote__linear_job jobs[2] = {
        { .w = &L->i_wq,
          .x = mote__linear_input(net, &L->i_wq, p->query_low, n, p->rounded),
          .ldx = c->q_lora_rank,
          .n_rows = n,
          .y = p->index_query,
          .ldy = width },
        { .w = &L->i_w,
          .x = x,
          .ldx = c->hidden_size,
          .n_rows = n,
          .y = p->index_weight,
          .ldy = c->index_n_heads },
    };
    int rc = mote__cpu_linear(p, jobs, 1);
    if (rc)
        return rc;
    jobs[1].x = mote__linear_input(net, &L->i_w, x, n, p->rounded);
    if ((rc = mote__cpu_linear(p, jobs + 1, 1)))
        return rc;
    mote__threads_for(net->threads, n, 1, finish_queries, s);
    return 0;
}

int mote__cpu_select(mote__backend_pass *base, size_t layer, mote__tile tile)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_plan *plan = &net->plan[layer];
    struct select s = { .p = p,
                        .layer = layer,
                        .tile = tile,
                        .source = (size_t)plan->source,
                        .ratio = plan->ratio,
                        .candidates = plan->candidates };
    int rc = make_queries(&s);
    if (rc)
        return rc;
    /* the row with most to score, and how many parts that makes where rows are fewer than threads
     */
    size_t n_max = 0, most = 0, threads = (size_t)mote__threads_count(net->threads);
    for (size_t r = 0; r < tile.n; r++) {
        size_t n = (size_t)((row_of(&s, r)->pos + 1) / s.ratio);
        n_max = n > n_max ? n : n_max;
        if (uses_candidates(&s, r))
            n = p->n_candidates[row_of(&s, r)->token] * c->candidate_block_size;
        most = n > most ? n : most;
    }
    size_t most_parts = threads > 1 && tile.n ? PARTS_A_THREAD * threads / tile.n : 1;
    size_t worth = most * c->index_n_heads * c->index_head_dim / PART;
    s.parts = worth < most_parts ? worth : most_parts;
    s.parts = s.parts > 1 ? s.parts : 1;
    /* room for as many parts as there can be from the start, so that a growing context finds it */
    size_t states = most_parts > 1 ? PARTS_A_THREAD * threads + 1 : threads,
           runs = s.parts == 1 ? threads : tile.n;
    s.op_bytes = mote__round64(sizeof(mote__topk)) + mote__round64(mote__topk_bytes(p->topk_room)) +
                 (s.candidates == MOTE_CAND_MAKE
                      ? mote__round64(mote__topk_bytes(c->candidate_topk_blocks))
                      : 0);
    s.max_blocks = s.candidates == MOTE_CAND_MAKE
                       ? mote__round64((n_max + c->candidate_block_size - 1) /
                                       c->candidate_block_size)
                       : 0;
    mote__buf *maxima = &p->block_maxima, *ops = &p->topk_states;
    if (mote__buf_reserve(ops, states * s.op_bytes) ||
        mote__buf_reserve(maxima, runs * s.max_blocks * sizeof(float)))
        return MOTE_ENOMEM;
    s.ops = ops->data;
    s.maxima = maxima->data;
    if (s.parts == 1) {
        mote__threads_for(net->threads, tile.n, 1, whole_rows, &s);
    } else {
        mote__threads_for(net->threads, tile.n * s.parts, 1, row_parts, &s);
        for (size_t r = 0; r < tile.n; r++)
            merge_parts(&s, r);
    }
    return 0;
}
