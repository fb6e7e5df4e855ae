#include "model/catalog.h"
#include "model/cpu/pass.h"

#include <string.h>

#include "num/formats.h"

void mote__act(const mote__net *net, float *x, size_t n)
{
    if (net->published)
        for (size_t i = 0; i < n; i++)
            x[i] = mote__bf16_round(x[i]);
}

struct rounding {
    const mote__net *net;
    const float *x;
    float *buf;
    size_t n;
};

static void round_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    const struct rounding *k = ctx;
    k->net->kern->round_fp8(k->buf + begin * k->n, k->x + begin * k->n, (end - begin) * k->n);
}

const float *mote__linear_input(const mote__net *net, const mote__mat *m, const float *x,
                                size_t n_rows, float *buf)
{
    if (!net->published || m->kind < MOTE_W_FP8)
        return x;
    mote__threads_for(net->threads, n_rows, 2, round_rows,
                      &(struct rounding){ net, x, buf, m->n_in });
    return buf;
}

int mote__cpu_linear(mote__cpu_pass *p, const mote__linear_job *jobs, size_t n_jobs)
{
    if (!p->net->published)
        return mote__linear_run(&p->linear, jobs, n_jobs);
    /* matrices of MXFP4 take BF16 inputs: the same bytes by another kernel */
    for (size_t i = 0; i < n_jobs; i++) {
        p->published_jobs[i] = jobs[i];
        if (jobs[i].w->kind != MOTE_W_MXFP4)
            continue;
        p->published_views[i] = *jobs[i].w;
        p->published_views[i].kind = MOTE_W_MXFP4_BF16;
        p->published_jobs[i].w = &p->published_views[i];
    }
    return mote__linear_run(&p->linear, p->published_jobs, n_jobs);
}

int mote__cpu_linear_rows(mote__cpu_pass *p, const mote__mat *w, const float *x, size_t n_rows,
                          float *y)
{
    for (size_t at = 0, n; at < n_rows; at += n) {
        n = n_rows - at < p->tile_room ? n_rows - at : p->tile_room;
        mote__linear_job job = {
            .w = w,
            .x = mote__linear_input(p->net, w, x + at * w->n_in, n, p->rounded),
            .ldx = w->n_in,
            .n_rows = n,
            .y = y + at * w->n_out,
            .ldy = w->n_out,
        };
        int rc = mote__cpu_linear(p, &job, 1);
        if (rc)
            return rc;
    }
    return 0;
}

void mote__cpu_trace(const mote__cpu_pass *p, size_t layer, const char *name, const float *data,
                     size_t n_cols)
{
    const mote__trace *t = p->net->trace;
    if (t && t->f32)
        t->f32(t->ctx, layer, name, data, p->batch->n_rows, n_cols);
}

void mote__cpu_trace_tokens(const mote__cpu_pass *p, size_t layer, const char *name,
                            const float *data, size_t n_cols)
{
    if (p->batch->n_rows == p->batch->n_tokens)
        mote__cpu_trace(p, layer, name, data, n_cols);
}

/* ---- memory ---- */

static size_t max2(size_t a, size_t b) { return a > b ? a : b; }
/* Items that a token has of each array. */
struct widths {
    size_t one, hidden, copies, residual, comb, mix_products, rope, topk, candidates;
    size_t heads, query_low, attended_low, head, window_packed, index_query, index_weight,
        index_coded, dense_kv;
    size_t engram_rows, engram_kv, experts, per_token, pairs, pair_inner, pair_out;
    size_t rounded; /* the widest input of a linear that is rounded */
};

static struct widths widths_of(const mote__net *net, size_t topk_room)
{
    const mote__config *c = &net->config;
    struct widths w = {
        .one = 1,
        .hidden = c->hidden_size,
        .copies = c->hc_mult,
        .residual = c->hc_mult * c->hidden_size,
        .comb = c->hc_mult * c->hc_mult,
        .mix_products = (2 + c->hc_mult) * c->hc_mult,
        .rope = c->rope_dim,
        .topk = topk_room,
        .candidates = c->candidate_topk_blocks,
        .heads = c->n_heads * c->head_dim,
        .query_low = c->q_lora_rank,
        .attended_low = c->o_groups * c->o_lora_rank,
        .head = c->n_kv_heads ? 0 : c->head_dim,
        .window_packed = c->window ? c->head_dim * 4 : 0,
        .index_query = c->index_n_heads * c->index_head_dim,
        .index_weight = c->index_n_heads,
        .index_coded = mote__index_query_bytes(c->index_n_heads, c->index_head_dim),
        .dense_kv = c->n_kv_heads * c->head_dim,
        .engram_rows = c->n_engram_layers
                           ? (c->engram_max_ngram - 1) * c->engram_heads * c->engram_head_dim
                           : 0,
        .engram_kv = c->n_engram_layers ? (c->hc_mult + 1) * c->hidden_size : 0,
    };
    for (size_t l = 0; l < c->n_layers; l++) {
        w.experts = max2(w.experts, net->plan[l].n_experts);
        w.per_token = max2(w.per_token, net->plan[l].n_per_token);
    }
    w.pairs = w.per_token + 1;
    w.pair_inner = w.pairs * c->moe_intermediate_size;
    w.pair_out = w.pairs * c->hidden_size;
    w.rounded = max2(max2(w.hidden, w.query_low), max2(w.attended_low, w.engram_rows));
    w.rounded = max2(w.rounded, c->n_kv_heads ? w.heads : w.head);
    return w;
}

/* Every array: where its pointer is, bytes of an item, items of a token. shares: it lies where the
 * one before lies. Window KV, latents, and a dense layer's keys and values are of different parts
 * of a layer or of different families. by_tile: it has the rows of a tile. */
#define ARRAY_OF(member, width, shares, by_tile)                                    \
    {                                                                               \
        offsetof(mote__cpu_pass, member), sizeof *((mote__cpu_pass *)NULL)->member, \
            offsetof(struct widths, width), shares, by_tile                         \
    }
#define ARRAY(member, width, shares) ARRAY_OF(member, width, shares, 0)
#define TILE(member, width) ARRAY_OF(member, width, 0, 1)
static const struct array {
    size_t pointer, item_bytes, width;
    int shares, by_tile;
} arrays[] = {
    ARRAY(h, residual, 0),
    ARRAY(mix, copies, 0),
    ARRAY(topk, topk, 0),
    ARRAY(n_topk, one, 0),
    ARRAY(candidates, candidates, 0),
    ARRAY(n_candidates, one, 0),
    ARRAY(angles[0], rope, 0),
    ARRAY(angles[1], rope, 0),
    ARRAY(x, hidden, 0),
    ARRAY(y, hidden, 0),
    TILE(rounded, rounded),
    ARRAY(mix_products, mix_products, 0),
    ARRAY(post, copies, 0),
    ARRAY(comb, comb, 0),
    TILE(query_low, query_low),
    TILE(query, heads),
    TILE(attended, heads),
    TILE(attended_low, attended_low),
    ARRAY(window_kv, head, 0),
    ARRAY(latent, head, 1),
    ARRAY(dense_key, dense_kv, 1),
    ARRAY(pool_gate, head, 0),
    ARRAY(dense_value, dense_kv, 1),
    ARRAY(window_packed, window_packed, 0),
    TILE(index_query, index_query),
    TILE(index_weight, index_weight),
    TILE(index_coded, index_coded),
    TILE(engram_rows, engram_rows),
    TILE(engram_kv, engram_kv),
    ARRAY(router, experts, 0),
    ARRAY(expert_id, per_token, 0),
    ARRAY(expert_weight, per_token, 0),
    ARRAY(pair_of_row, pairs, 0),
    TILE(pair_gate, pair_inner),
    TILE(pair_up, pair_inner),
    TILE(pair_out, pair_out),
};
enum { N_ARRAYS = sizeof arrays / sizeof arrays[0] };

static size_t token_bytes(const struct array *a, const struct widths *w)
{
    size_t n;
    memcpy(&n, (const char *)w + a->width, sizeof n);
    return n * a->item_bytes;
}

/* Bytes a token takes of the place that array i and those that share it have. */
static size_t place_bytes(size_t i, const struct widths *w)
{
    size_t most = token_bytes(&arrays[i], w);
    while (++i < N_ARRAYS && arrays[i].shares)
        most = max2(most, token_bytes(&arrays[i], w));
    return most;
}

/* Rows of a tile in a pass over n_tokens. Dense layers are not tiled. */
static size_t tile_of(const mote__net *net, size_t n_tokens)
{
    return net->config.n_kv_heads || n_tokens < net->tile_rows ? n_tokens : net->tile_rows;
}

static size_t array_bytes(size_t i, const struct widths *w, size_t n_tokens, size_t tile)
{
    return mote__mul(place_bytes(i, w), arrays[i].by_tile ? tile : n_tokens);
}

static size_t scratch_bytes(const mote__net *net, size_t n_tokens)
{
    const struct widths w = widths_of(net, net->config.index_topk);
    size_t total = 0;
    for (size_t i = 0; i < N_ARRAYS; i++)
        if (!arrays[i].shares)
            total = mote__add(total, array_bytes(i, &w, n_tokens, tile_of(net, n_tokens)));
    return total;
}

static int place_arrays(mote__cpu_pass *p, size_t n_tokens)
{
    const struct widths w = widths_of(p->net, p->topk_room);
    size_t total = 0, tile = tile_of(p->net, n_tokens);
    for (size_t i = 0; i < N_ARRAYS; i++)
        if (!arrays[i].shares)
            total = mote__add(total, mote__add(array_bytes(i, &w, n_tokens, tile), 63) / 64 * 64 +
                                         MOTE_GAP);
    p->memory = mote__alloc(p->net->meter, MOTE_MEM_SCRATCH, total);
    if (!p->memory)
        return MOTE_ENOMEM;
    p->memory_bytes = total;
    uint8_t *at = p->memory, *here = NULL;
    for (size_t i = 0; i < N_ARRAYS; i++) {
        if (!arrays[i].shares) {
            here = at;
            at += mote__round64(array_bytes(i, &w, n_tokens, tile));
            mote__gap_close(at);
            at += MOTE_GAP;
        }
        memcpy((char *)p + arrays[i].pointer, &here, sizeof here);
    }
    p->capacity = n_tokens;
    p->tile_room = tile;
    return 0;
}

static size_t n_jobs(const mote__net *net)
{
    return max2(2 * max2(widths_of(net, 0).experts, MOTE_WIDE_EXPERTS) + 4,
                net->config.o_groups + 4);
}

static size_t jobs_bytes(const mote__net *net)
{
    size_t n = n_jobs(net);
    return 2 * n * sizeof(mote__linear_job) + (n + net->config.o_groups) * sizeof(mote__mat);
}

static mote__backend_pass *pass_create(mote__net *net, const mote__batch *batch)
{
    mote__cpu_pass *p = mote__alloc(net->meter, MOTE_MEM_SCRATCH, sizeof *p);
    if (!p)
        return NULL;
    *p = (mote__cpu_pass){ .base = { mote__cpu_backend(), net, batch },
                           .net = net,
                           .batch = batch,
                           .first_threads = net->threads };
    mote__buf *const bufs[] = { &p->block_maxima, &p->topk_states, &p->entries,    &p->pairs,
                                &p->query_tiles,  &p->stashed_h,   &p->row_numbers };
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        mote__buf_init(bufs[i], net->meter, MOTE_MEM_SCRATCH);
    p->jobs = mote__alloc(net->meter, MOTE_MEM_SCRATCH, jobs_bytes(net));
    if (mote__linear_init(&p->linear, net->kern, net->threads, net->meter) || !p->jobs) {
        mote__linear_deinit(&p->linear);
        mote__free(net->meter, MOTE_MEM_SCRATCH, p->jobs, jobs_bytes(net));
        mote__free(net->meter, MOTE_MEM_SCRATCH, p, sizeof *p);
        return NULL;
    }
    p->published_jobs = p->jobs + n_jobs(net);
    p->output_groups = (mote__mat *)(void *)(p->published_jobs + n_jobs(net));
    p->published_views = p->output_groups + net->config.o_groups;
    return &p->base;
}

static void shrink(mote__backend_pass *base)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    mote__gaps_open(p->memory, p->memory_bytes);
    mote__free(p->net->meter, MOTE_MEM_SCRATCH, p->memory, p->memory_bytes);
    p->memory = NULL;
    p->memory_bytes = p->capacity = p->tile_room = 0;
    mote__buf_deinit(&p->entries);
    mote__buf_deinit(&p->pairs);
    mote__buf_deinit(&p->query_tiles);
    mote__buf_deinit(&p->stashed_h);
    mote__buf_deinit(&p->row_numbers);
    mote__buf_deinit(&p->linear.arranged);
}

static void free_threads(mote__cpu_pass *p)
{
    mote__free(p->net->meter, MOTE_MEM_SCRATCH, p->thread_memory,
               p->thread_bytes * (size_t)p->n_threads);
    p->thread_memory = NULL;
}

static void pass_destroy(mote__backend_pass *base)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    mote__meter *meter = p->net->meter;
    shrink(base);
    free_threads(p);
    mote__buf_deinit(&p->block_maxima);
    mote__buf_deinit(&p->topk_states);
    p->linear.pool = p->first_threads;
    mote__linear_deinit(&p->linear);
    mote__free(meter, MOTE_MEM_SCRATCH, p->jobs, jobs_bytes(p->net));
    mote__free(meter, MOTE_MEM_SCRATCH, p, sizeof *p);
}

void *mote__cpu_thread(mote__cpu_pass *p, int thread)
{
    return (uint8_t *)p->thread_memory + (size_t)thread * p->thread_bytes;
}

static int reserve_threads(mote__cpu_pass *p)
{
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    if (p->thread_memory)
        return 0;
    p->n_threads = mote__threads_count(net->threads);
    p->thread_bytes = mote__round64(
        max2(max2(mote__cpu_attend_thread_bytes(c, p->topk_room), mote__cpu_dense_thread_bytes(c)),
             mote__cpu_select_thread_bytes(c)));
    p->thread_memory = mote__alloc(net->meter, MOTE_MEM_SCRATCH,
                                   p->thread_bytes * (size_t)p->n_threads);
    return p->thread_memory ? 0 : MOTE_ENOMEM;
}

static int begin(mote__backend_pass *base)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__batch *b = p->batch;
    p->linear.kern = net->kern;
    p->linear.pool = net->threads;
    if (p->topk_room != b->topk_room) {
        shrink(base);
        free_threads(p);
        p->topk_room = b->topk_room;
    }
    if (reserve_threads(p))
        return MOTE_ENOMEM;
    if (b->n_tokens > p->capacity) {
        shrink(base);
        /* as mote__batch_begin: decode steps of a few sessions never allocate */
        if (place_arrays(p, b->n_tokens < 16 ? 16 : b->n_tokens))
            return MOTE_ENOMEM;
    }
    for (size_t r = 0; r < b->n_rows; r++)
        for (int k = 0; k < 2; k++)
            mote__rope_angles(p->angles[k] + b->rows[r].token * net->config.rope_dim, &net->rope[k],
                              b->rows[r].pos);
    return 0;
}

/* ---- the carry ---- */

static int carry(mote__backend_pass *base, mote__carry *view)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__config *c = &p->net->config;
    *view = (mote__carry){ .n_tokens = p->batch->n_tokens,
                           .h_width = c->hc_mult * c->hidden_size,
                           .mix_width = c->hc_mult,
                           .topk_room = p->topk_room,
                           .candidate_room = c->candidate_topk_blocks,
                           .h = p->h,
                           .mix = p->mix,
                           .topk = p->topk,
                           .n_topk = p->n_topk,
                           .candidates = p->candidates,
                           .n_candidates = p->n_candidates };
    return 0;
}

static int take(mote__backend_pass *base, const mote__carry *from)
{
    mote__carry here;
    carry(base, &here);
    mote__carry_copy(&here, from);
    return 0;
}

static int stash(mote__backend_pass *base)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__config *c = &p->net->config;
    p->stashed_h.size = 0;
    return mote__buf_append(&p->stashed_h, p->h,
                            p->batch->n_tokens * c->hc_mult * c->hidden_size * sizeof *p->h);
}

static int unstash(mote__backend_pass *base)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    memcpy(p->h, p->stashed_h.data, p->stashed_h.size);
    return 0;
}

static int narrow(mote__backend_pass *base)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    size_t d = p->net->config.hidden_size, kept = 0, old = 0;
    for (size_t i = 0; i < p->batch->n_extents; i++) {
        const mote__extent *e = &p->batch->extents[i];
        size_t live = e->n - e->skip;
        old += e->dropped;
        if (old != kept)
            memmove(p->x + kept * d, p->x + old * d, live * d * sizeof *p->x);
        kept += live;
        old += live;
    }
    return 0;
}

/* ---- the ends of the model ---- */

/* h of every copy of a row, from the embedding of its token. */
static void embed_row(const mote__net *net, const uint8_t *data, float *h)
{
    const mote__config *c = &net->config;
    size_t d = c->hidden_size;
    if (net->weights.embed.kind == MOTE_W_F32)
        memcpy(h, data, d * sizeof *h);
    else
        for (size_t i = 0; i < d; i++)
            h[i] = mote__bf16_decode((uint16_t)(data[2 * i] | data[2 * i + 1] << 8));
    mote__act(net, h, d);
    for (size_t j = 1; j < c->hc_mult; j++)
        memcpy(h + j * d, h, d * sizeof *h);
}

static int embed(mote__backend_pass *base)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__batch *b = p->batch;
    const uint8_t *data = net->weights.embed.data;
    size_t n = c->hc_mult, row_bytes = mote__mat_code_bytes(&net->weights.embed) / c->vocab_size;
    mote__tile t = { 0 };
    for (; t.first < b->n_rows; t.first += t.n) {
        t = mote__cpu_tile(p, t.first);
        if (mote__buf_reserve(&p->row_numbers, t.n * sizeof(uint64_t)))
            return MOTE_ENOMEM;
        uint64_t *id = p->row_numbers.data;
        for (size_t r = 0; r < t.n; r++) {
            const mote__row *row = &b->rows[t.first + r];
            id[r] = (uint64_t)b->extents[row->extent].seq->ids[row->pos];
        }
        /* rows from the files lie in the order of the tile */
        uint8_t *read = net->rows ? (uint8_t *)p->rounded : NULL;
        int rc = read ? mote__rows_read(net->rows, &net->embed_rows, id, t.n, read, &net->fault)
                      : 0;
        if (rc)
            return rc;
        for (size_t r = 0; r < t.n; r++) {
            size_t token = b->rows[t.first + r].token;
            embed_row(net, read ? read + r * row_bytes : data + id[r] * row_bytes,
                      p->h + token * n * c->hidden_size);
            for (size_t j = 0; j < n; j++)
                p->mix[token * n + j] = j == 0; /* the first sublayer reads copy 0 */
        }
    }
    return 0;
}

static int logits(mote__backend_pass *base, const uint32_t *rows, size_t n, float *out)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    mote__cpu_collapse_rows(p, rows, n, net->weights.norm);
    return mote__cpu_linear_rows(p, &net->weights.head, p->x, n, out);
}

static int sync(mote__backend_pass *base)
{
    (void)base; /* calls return when they are done */
    return 0;
}

const mote__backend_ops *mote__cpu_backend(void)
{
    static const mote__backend_ops ops = {
        .name = "cpu",
        .scratch_bytes = scratch_bytes,
        .pass_create = pass_create,
        .pass_destroy = pass_destroy,
        .shrink = shrink,
        .begin = begin,
        .carry = carry,
        .take = take,
        .stash = stash,
        .unstash = unstash,
        .narrow = narrow,
        .embed = embed,
        .engram = mote__cpu_engram,
        .collapse = mote__cpu_collapse,
        .mixes = mote__cpu_mixes,
        .expand = mote__cpu_expand,
        .publish = mote__cpu_publish,
        .window = mote__cpu_window,
        .queries = mote__cpu_queries,
        .select = mote__cpu_select,
        .attend = mote__cpu_attend,
        .moe = mote__cpu_moe,
        .dense_project = mote__cpu_dense_project,
        .dense_attend = mote__cpu_dense_attend,
        .dense_add = mote__cpu_dense_add,
        .logits = logits,
        .sync = sync,
    };
    return &ops;
}
