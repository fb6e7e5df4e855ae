#include "model/select.h"

#include <math.h>
#include <string.h>

#include "kern/topk.h"
#include "model/pass.h"
#include "num/formats.h"

enum { STRIP_TILES = 64, STRIP = STRIP_TILES * MOTE_INDEX_TILE };      /* entries scored between two pushes */

/* Thread scratch: the query in integer form, then a strip of scores, then what the generic formats need. */
struct scratch {
    int8_t *codes; int32_t *code_sum; float *q_scales;
    float *scores;             /* [STRIP] */
    float *keys;               /* [MOTE_INDEX_TILE][dim], generic formats */
    float *dots;               /* [n_heads][MOTE_INDEX_TILE] */
};

static size_t align64(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t scratch_layout(struct scratch *s, uint8_t *base, const mote__config *c)
{
    size_t at = 0, n = c->index_n_heads * c->index_head_dim;
    struct scratch t;
    t.codes = (int8_t *)(base + at);
    at += align64(n);
    t.code_sum = (int32_t *)(void *)(base + at);
    at += align64(n / 32 * 4);
    t.q_scales = (float *)(void *)(base + at);
    at += align64(n / 32 * 4);
    t.scores = (float *)(void *)(base + at);
    at += STRIP * 4;
    t.keys = (float *)(void *)(base + at);
    at += align64(MOTE_INDEX_TILE * c->index_head_dim * 4);
    t.dots = (float *)(void *)(base + at);
    at += align64(c->index_n_heads * MOTE_INDEX_TILE * 4);
    if (s)
        *s = t;
    return at;
}

size_t mote__select_thread_bytes(const mote__config *c)
{
    static uint8_t nowhere[64];
    return scratch_layout(NULL, nowhere, c);
}

struct select {
    mote__pass *p;
    size_t layer, source, ratio;
    mote__candidates candidates;
    size_t parts;              /* pieces a row's entries are cut into */
    uint8_t *ops;              /* top-k states: one per thread (parts == 1) or per (row, part) */
    size_t op_bytes;           /* of one: entries top-k, then block top-k */
    float *maxima;             /* block maxima: one run of max_blocks floats per thread or per row */
    size_t max_blocks;
};

struct query {                 /* one row on its way */
    const struct select *s;
    const mote__seq *seq;
    size_t row, n;             /* live row, visible entries */
    const mote__kv_source *src;
    mote__index_query iq;
    struct scratch t;
    const float *q;            /* generic formats: rounded as the keys are */
};

static float round_if(int on, float x) { return on ? mote__bf16_round(x) : x; }

/* Scores of tiles [tile, tile + n) of the source (they may cross blocks) */
static void score_tiles(const struct query *k, size_t tile, size_t n, float *scores)
{
    const mote__kern_ops *kern = k->s->p->net->kern;
    const mote__config *c = &k->s->p->net->config;
    size_t per_block = k->src->entries / MOTE_INDEX_TILE, dim = c->index_head_dim;
    while (n) {
        size_t block = tile / per_block, at = tile % per_block, run = per_block - at < n ? per_block - at : n;
        mote__kv_ref keys = mote__kv_index(&k->seq->kv, k->s->source, block);
        const uint8_t *codes = keys.codes + at * MOTE_INDEX_TILE * k->src->index_code_bytes;
        const uint8_t *scales = keys.scales + at * MOTE_INDEX_TILE * k->src->index_scale_bytes;
        if (k->src->index->id == MOTE_KV_MXFP4) {
            kern->index_scores(scores, &k->iq, codes, scales, run);
        } else
            for (size_t t = 0; t < run; t++) {
                for (size_t e = 0; e < MOTE_INDEX_TILE; e++) {
                    size_t i = t * MOTE_INDEX_TILE + e;
                    kern->decode[k->src->index->id](k->t.keys + e * dim, codes + i * k->src->index_code_bytes,
                                                    scales + i * k->src->index_scale_bytes, dim);
                }
                kern->dots(k->t.dots, MOTE_INDEX_TILE, k->q, dim, c->index_n_heads, k->t.keys, dim, MOTE_INDEX_TILE, dim, 1.0f);
                for (size_t e = 0; e < MOTE_INDEX_TILE; e++) {
                    float sum = 0;
                    int rnd = k->iq.round_bf16;
                    for (size_t h = 0; h < c->index_n_heads; h++) {
                        float d = round_if(rnd, k->t.dots[h * MOTE_INDEX_TILE + e]), w = k->iq.weights[h];
                        d = d > 0 ? d : 0;
                        sum = rnd ? sum + mote__bf16_round(d * w) : fmaf(d, w, sum);
                    }
                    scores[t * MOTE_INDEX_TILE + e] = round_if(rnd, sum);
                }
            }
        scores += run * MOTE_INDEX_TILE;
        tile += run;
        n -= run;
    }
}

static void prepare(struct query *k, const struct select *s, size_t row, int thread)
{
    mote__pass *p = s->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    *k = (struct query){ .s = s, .row = row, .seq = p->segments[p->rows[row].segment].seq };
    k->src = &k->seq->kv.pool->layout.source[s->source];
    k->n = (size_t)((p->rows[row].pos + 1) / s->ratio);
    scratch_layout(&k->t, mote__pass_thread(p, thread), c);
    float *q = p->iq + row * c->index_n_heads * c->index_head_dim;
    k->iq = (mote__index_query){ .n_heads = c->index_n_heads, .dim = c->index_head_dim, .codes = k->t.codes, .code_sum = k->t.code_sum,
                                 .scales = k->t.q_scales, .weights = p->iw + row * c->index_n_heads, .round_bf16 = net->published };
    k->q = q;
    if (k->src->index->id == MOTE_KV_MXFP4)
        mote__index_query_encode(k->t.codes, k->t.code_sum, k->t.q_scales, q, c->index_n_heads, c->index_head_dim);
}

/* Entries [begin, end) of the row: push scores, note block maxima. begin is a multiple of STRIP. */
static void scan(const struct query *k, size_t begin, size_t end, mote__topk *best, float *maxima)
{
    size_t bs = k->s->p->net->config.candidate_block_size;
    for (size_t at = begin; at < end; at += STRIP) {
        size_t n = end - at < STRIP ? end - at : STRIP;
        score_tiles(k, at / MOTE_INDEX_TILE, (n + MOTE_INDEX_TILE - 1) / MOTE_INDEX_TILE, k->t.scores);
        mote__topk_push(best, k->t.scores, n, (uint32_t)at);
        if (!maxima)
            continue;
        for (size_t b = 0; b * bs < n; b++) {
            float top = -INFINITY;
            for (size_t i = b * bs; i < n && i < (b + 1) * bs; i++)
                top = k->t.scores[i] > top ? k->t.scores[i] : top;
            maxima[at / bs + b] = top;
        }
    }
}

/* Only entries inside the row's candidate blocks; tiles that hold several of them are scored once. */
static void scan_candidates(const struct query *k, mote__topk *best)
{
    const mote__pass *p = k->s->p;
    const mote__config *c = &p->net->config;
    size_t bs = c->candidate_block_size, slot = p->rows[k->row].slot, have = SIZE_MAX;
    const int32_t *list = p->candidates + slot * c->candidate_topk_blocks;
    for (size_t i = 0; i < p->n_candidates[slot]; i++) {
        size_t begin = (size_t)list[i] * bs, tile = begin / MOTE_INDEX_TILE, n = k->n - begin < bs ? k->n - begin : bs;
        if (tile != have)
            score_tiles(k, have = tile, 1, k->t.scores);
        mote__topk_push(best, k->t.scores + begin % MOTE_INDEX_TILE, n, (uint32_t)begin);
    }
}

static void finish_entries(const struct select *s, size_t row, mote__topk *best)
{
    mote__pass *p = s->p;
    size_t slot = p->rows[row].slot;
    p->n_topk[slot] = (uint32_t)mote__topk_finish(best, (uint32_t *)p->topk + slot * p->net->config.index_topk);
}

static void finish_candidates(const struct select *s, size_t row, mote__topk *blocks, float *maxima, size_t n)
{
    mote__pass *p = s->p;
    const mote__config *c = &p->net->config;
    size_t slot = p->rows[row].slot, n_blocks = (n + c->candidate_block_size - 1) / c->candidate_block_size;
    mote__topk_reset(blocks);
    if (n)
        maxima[(n - 1) / c->candidate_block_size] = INFINITY;      /* the newest block always stays */
    mote__topk_push(blocks, maxima, n_blocks, 0);
    p->n_candidates[slot] = (uint32_t)mote__topk_finish(blocks, (uint32_t *)p->candidates + slot * c->candidate_topk_blocks);
}

static void op_init(const struct select *s, uint8_t *op, mote__topk *best, mote__topk *blocks)
{
    const mote__config *c = &s->p->net->config;
    mote__topk_init(best, s->p->net->kern, c->index_topk, op);
    if (s->candidates == MOTE_CAND_MAKE)
        mote__topk_init(blocks, s->p->net->kern, c->candidate_topk_blocks, op + align64(mote__topk_bytes(c->index_topk)));
}

static void whole_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct select *s = ctx;
    for (size_t row = begin; row < end; row++) {
        struct query k;
        mote__topk best, blocks;
        prepare(&k, s, row, thread);
        op_init(s, s->ops + (size_t)thread * s->op_bytes, &best, &blocks);
        float *maxima = s->candidates == MOTE_CAND_MAKE ? s->maxima + (size_t)thread * s->max_blocks : NULL;
        if (s->candidates == MOTE_CAND_USE)
            scan_candidates(&k, &best);
        else
            scan(&k, 0, k.n, &best, maxima);
        finish_entries(s, row, &best);
        if (maxima)
            finish_candidates(s, row, &blocks, maxima, k.n);
    }
}

/* Few rows, many entries: a row's entries are cut into parts whose winners are merged. The set of winners does not depend on
 * the cut, so neither does the result. */
static void row_parts(void *ctx, size_t begin, size_t end, int thread)
{
    struct select *s = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t row = i / s->parts, part = i % s->parts;
        struct query k;
        prepare(&k, s, row, thread);
        mote__topk *best = (mote__topk *)(void *)(s->ops + i * s->op_bytes);
        mote__topk_init(best, s->p->net->kern, s->p->net->config.index_topk, (uint8_t *)best + align64(sizeof *best));
        size_t strips = (k.n + STRIP - 1) / STRIP, first = strips * part / s->parts, last = strips * (part + 1) / s->parts;
        float *maxima = s->candidates == MOTE_CAND_MAKE ? s->maxima + row * s->max_blocks : NULL;
        size_t end_entry = last * STRIP < k.n ? last * STRIP : k.n;
        if (first < last)
            scan(&k, first * STRIP, end_entry, best, maxima);
    }
}

static void merge_parts(struct select *s, size_t row)
{
    const mote__config *c = &s->p->net->config;
    uint8_t *own = s->ops + s->p->n_rows * s->parts * s->op_bytes;          /* one more state behind the parts' */
    mote__topk best, blocks;
    op_init(s, own, &best, &blocks);
    uint32_t *order = (uint32_t *)s->p->topk + s->p->rows[row].slot * c->index_topk;
    for (size_t part = 0; part < s->parts; part++) {
        mote__topk *t = (mote__topk *)(void *)(s->ops + (row * s->parts + part) * s->op_bytes);
        size_t n = mote__topk_finish(t, order);                              /* sorts t->score and t->index alike */
        for (size_t i = 0; i < n; i++)
            mote__topk_push(&best, &t->score[i], 1, t->index[i]);
    }
    finish_entries(s, row, &best);
    if (s->candidates == MOTE_CAND_MAKE)
        finish_candidates(s, row, &blocks, s->maxima + row * s->max_blocks, (size_t)((s->p->rows[row].pos + 1) / s->ratio));
}

/* Queries and head weights of all rows: iq [rows][heads][dim] rotated (and on its format's grid where the keys are decoded to
 * fp32), iw [rows][heads]. */
static int make_queries(const struct select *s)
{
    mote__pass *p = s->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = &net->weights.layers[s->layer];
    size_t width = c->index_n_heads * c->index_head_dim;
    mote__linear_job jobs[2] = {
        { .w = &L->i_wq, .x = mote__linear_input(net, &L->i_wq, p->qr, p->n_rows, p->xq), .ldx = c->q_lora_rank, .n_rows = p->n_rows,
          .y = p->iq, .ldy = width },
        { .w = &L->i_w, .x = p->x, .ldx = c->hidden_size, .n_rows = p->n_rows, .y = p->iw, .ldy = c->index_n_heads },
    };
    int rc = mote__pass_linear(p, jobs, 1);
    if (rc)
        return rc;
    jobs[1].x = mote__linear_input(net, &L->i_w, p->x, p->n_rows, p->xq);
    if ((rc = mote__pass_linear(p, jobs + 1, 1)))
        return rc;
    float scale = (float)(pow((double)c->index_head_dim, -0.5) * pow((double)c->index_n_heads, -0.5));
    for (size_t r = 0; r < p->n_rows; r++) {
        float *q = p->iq + r * width, *w = p->iw + r * c->index_n_heads;
        mote__act(net, q, width);
        mote__rope_apply(q, c->index_n_heads, c->index_head_dim, p->angles[1] + p->rows[r].slot * c->rope_dim, c->rope_dim, 0);
        mote__act(net, q, width);
        const mote__kvfmt *f = p->segments[p->rows[r].segment].seq->kv.pool->layout.source[s->source].index;
        if (f->id != MOTE_KV_MXFP4)
            mote__kvfmt_round(f, q, width);
        mote__act(net, w, c->index_n_heads);
        for (size_t h = 0; h < c->index_n_heads; h++)
            w[h] *= scale;
        mote__act(net, w, c->index_n_heads);
    }
    return 0;
}

int mote__select(mote__pass *p, size_t layer)
{
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_plan *plan = &net->plan[layer];
    struct select s = { .p = p, .layer = layer, .source = (size_t)plan->source, .ratio = plan->ratio, .candidates = plan->candidates };
    int rc = make_queries(&s);
    if (rc)
        return rc;
    uint64_t longest = 0;
    for (size_t r = 0; r < p->n_rows; r++)
        longest = p->rows[r].pos > longest ? p->rows[r].pos : longest;
    size_t n_max = (size_t)((longest + 1) / s.ratio), threads = (size_t)p->n_threads;
    s.parts = s.candidates != MOTE_CAND_USE && p->n_rows < threads && n_max >= 4 * STRIP ? threads : 1;
    size_t states = s.parts == 1 ? threads : p->n_rows * s.parts + 1, runs = s.parts == 1 ? threads : p->n_rows;
    size_t two = align64(mote__topk_bytes(c->index_topk)) + align64(mote__topk_bytes(c->candidate_topk_blocks));
    s.op_bytes = align64(sizeof(mote__topk)) + two;
    s.max_blocks = s.candidates == MOTE_CAND_MAKE ? align64(n_max / c->candidate_block_size + 1) : 0;
    mote__buf *maxima = &p->maxima, *ops = &p->topk_states;
    if (mote__buf_reserve(ops, states * s.op_bytes) || mote__buf_reserve(maxima, runs * s.max_blocks * sizeof(float)))
        return MOTE_ENOMEM;
    s.ops = ops->data;
    s.maxima = maxima->data;
    if (s.parts == 1) {
        mote__pool_for(net->pool, p->n_rows, 1, whole_rows, &s);
    } else {
        mote__pool_for(net->pool, p->n_rows * s.parts, 1, row_parts, &s);
        for (size_t r = 0; r < p->n_rows; r++)
            merge_parts(&s, r);
    }
    return 0;
}
