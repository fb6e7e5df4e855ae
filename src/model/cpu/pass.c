#include "model/cpu/pass.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/cpu/select.h"
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
    mote__pool_for(net->pool, n_rows, 2, round_rows, &(struct rounding){ net, x, buf, m->n_in });
    return buf;
}

/* ---- memory ---- */

static size_t max2(size_t a, size_t b) { return a > b ? a : b; }

/* Every per-row array: pointer, bytes per row. One list serves sizing and placing. */
/* clang-format off */
#define ROW_ARRAYS(X) \
    X(h, c->hc_mult * d * 4) X(mix, c->hc_mult * 4) X(angles[0], c->rope_dim * 4) \
    X(angles[1], c->rope_dim * 4) X(topk, p->topk_room * 4) X(n_topk, 4) \
    X(candidates, c->candidate_topk_blocks * 4 + 4) X(n_candidates, 4) \
    X(rows, sizeof(mote__row)) X(slots, 4) X(pre, c->hc_mult * 4) X(post, c->hc_mult * 4) \
    X(comb, c->hc_mult * c->hc_mult * 4) X(next, mixes * 4) X(x, d * 4) X(xq, widest * 4) \
    X(y, d * 4) X(qr, c->q_lora_rank * 4) X(q, wide * 4) X(o, wide * 4) \
    X(low, c->o_groups * c->o_lora_rank * 4) X(key, kv * 4) X(gate, kv * 4) \
    X(iq, c->index_n_heads * c->index_head_dim * 4) X(iw, c->index_n_heads * 4) \
    X(iq_coded, mote__index_query_bytes(c->index_n_heads, c->index_head_dim)) \
    X(router, c->n_routed_experts * 4) X(e, engram_cols * 4) \
    X(ekv, (engram_cols ? (c->hc_mult + 1) * d : 0) * 4) X(win, c->window ? c->head_dim * 4 : 0) \
    X(expert_id, c->n_experts_per_token * 4) X(expert_weight, c->n_experts_per_token * 4) \
    X(pair_row, pairs * 4) X(pair_gate, pairs * c->moe_intermediate_size * 4) \
    X(pair_up, pairs * c->moe_intermediate_size * 4) X(pair_out, pairs * d * 4)
/* clang-format on */

#define ROW_SIZES(c)                                                                              \
    size_t d = (c)->hidden_size, wide = (c)->n_heads * (c)->head_dim,                             \
           mixes = (2 + (c)->hc_mult) * (c)->hc_mult;                                             \
    size_t pairs = (c)->n_experts_per_token + 1,                                                  \
           kv = max2((c)->head_dim, (c)->n_kv_heads * (c)->head_dim);                             \
    size_t engram_cols = (c)->n_engram_layers ? ((c)->engram_max_ngram - 1) * (c)->engram_heads * \
                                                    (c)->engram_head_dim                          \
                                              : 0;                                                \
    /* xq holds the rounded inputs of any linear, latents among them, and the raw products of     \
     * hyper.c */                                                                                 \
    size_t widest = max2(max2(d, (c)->q_lora_rank),                                               \
                         max2((c)->o_groups * (c)->o_lora_rank, engram_cols));                    \
    widest = max2(max2(widest, mixes), max2((c)->head_dim, (c)->n_kv_heads ? wide : 0));

size_t mote__pass_row_bytes(const mote__net *net)
{
    const mote__config *c = &net->config;
    const mote__pass usual = { .topk_room = c->index_topk }, *p = &usual;
    ROW_SIZES(c)
    size_t total = 0;
#define X(field, bytes) total += (bytes);
    ROW_ARRAYS(X)
#undef X
    return total;
}

void mote__pass_init(mote__pass *p, mote__net *net)
{
    *p = (mote__pass){ .net = net, .topk_room = net->config.index_topk };
    mote__buf_init(&p->maxima, net->meter, MOTE_MEM_SCRATCH);
    mote__buf_init(&p->topk_states, net->meter, MOTE_MEM_SCRATCH);
    mote__buf_init(&p->work, net->meter, MOTE_MEM_SCRATCH);
}

void mote__pass_shrink(mote__pass *p)
{
    mote__gaps_open(p->memory, p->memory_bytes);
    mote__free(p->net->meter, MOTE_MEM_SCRATCH, p->memory, p->memory_bytes);
    p->memory = NULL;
    p->memory_bytes = p->capacity = 0;
    mote__buf_deinit(&p->work);
    mote__buf_deinit(&p->net->linear.arranged);
}

static size_t n_jobs(const mote__net *net)
{
    return max2(2 * net->config.n_routed_experts + 4, net->config.o_groups + 4);
}

static size_t jobs_bytes(const mote__net *net)
{
    return n_jobs(net) * sizeof(mote__linear_job) + net->config.o_groups * sizeof(mote__mat);
}

static void free_threads(mote__pass *p)
{
    mote__free(p->net->meter, MOTE_MEM_SCRATCH, p->thread_memory,
               p->thread_bytes * (size_t)p->n_threads);
    p->thread_memory = NULL;
}

void mote__pass_deinit(mote__pass *p)
{
    mote__pass_shrink(p);
    free_threads(p);
    mote__free(p->net->meter, MOTE_MEM_SCRATCH, p->jobs, jobs_bytes(p->net));
    mote__buf_deinit(&p->maxima);
    mote__buf_deinit(&p->topk_states);
    *p = (mote__pass){ .net = p->net };
}

void *mote__pass_thread(mote__pass *p, int thread)
{
    return (uint8_t *)p->thread_memory + (size_t)thread * p->thread_bytes;
}

static int reserve(mote__pass *p, size_t n)
{
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    if (!p->thread_memory) {
        p->n_threads = mote__pool_threads(net->pool);
        size_t refs = (c->window + p->topk_room) * sizeof(mote__kv_ref);
        size_t attend = (refs + 63) / 64 * 64 +
                        mote__attend_scratch(c->n_heads, c->head_dim) * sizeof(float);
        p->thread_bytes =
            (max2(max2(attend, mote__dense_thread_bytes(c)), mote__select_thread_bytes(c)) + 63) /
            64 * 64;
        p->thread_memory = mote__alloc(net->meter, MOTE_MEM_SCRATCH,
                                       p->thread_bytes * (size_t)p->n_threads);
        if (!p->thread_memory)
            return MOTE_ENOMEM;
    }
    if (!p->jobs && !(p->jobs = mote__alloc(net->meter, MOTE_MEM_SCRATCH, jobs_bytes(net))))
        return MOTE_ENOMEM;
    p->groups = (mote__mat *)(void *)(p->jobs + n_jobs(net));
    if (n <= p->capacity)
        return 0;
    /* decode steps of a few sessions never allocate */
    n = n < 16 ? 16 : n;
    mote__pass_shrink(p);
    ROW_SIZES(c)
    size_t total = 0;
#define X(field, bytes) \
    total = mote__add(total, mote__add(mote__mul((bytes), n), 63) / 64 * 64 + MOTE_GAP);
    ROW_ARRAYS(X)
#undef X
    p->memory = mote__alloc(net->meter, MOTE_MEM_SCRATCH, total);
    if (!p->memory)
        return MOTE_ENOMEM;
    p->memory_bytes = total;
    uint8_t *at = p->memory;
#define X(field, bytes)               \
    p->field = (void *)at;            \
    at += ((bytes)*n + 63) / 64 * 64; \
    mote__gap_close(at);              \
    at += MOTE_GAP;
    ROW_ARRAYS(X)
#undef X
    p->capacity = n;
    return 0;
}

/* ---- rows ---- */

void mote__pass_list_rows(mote__pass *p)
{
    p->n_rows = 0;
    for (size_t i = 0; i < p->n_segments; i++) {
        mote__segment *s = &p->segments[i];
        for (size_t k = s->skip; k < s->n; k++) {
            p->slots[p->n_rows] = (uint32_t)(s->slot + k);
            p->rows[p->n_rows++] = (mote__row){ (uint32_t)i, (uint32_t)(s->slot + k), s->pos + k };
        }
    }
}

/* Room for the longest list of selected entries: a power of two times index_topk, so that a growing
 * context seldom changes it. */
static void fit_topk(mote__pass *p, const mote__segment *segments, size_t n_segments)
{
    const mote__config *c = &p->net->config;
    size_t room = c->index_topk;
    for (size_t i = 0; i < n_segments; i++) {
        size_t want = mote__seq_topk(segments[i].seq, c),
               there = (size_t)(segments[i].pos + segments[i].n);
        while (room < want && room < there)
            room *= 2;
    }
    if (room != p->topk_room) {
        mote__pass_shrink(p);
        free_threads(p);
        p->topk_room = room;
    }
}

int mote__pass_begin(mote__pass *p, mote__segment *segments, size_t n_segments)
{
    size_t n = 0;
    for (size_t i = 0; i < n_segments; i++)
        n += segments[i].n;
    fit_topk(p, segments, n_segments);
    if (reserve(p, n))
        return MOTE_ENOMEM;
    p->segments = segments;
    p->n_segments = n_segments;
    p->n_slots = n;
    size_t slot = 0;
    for (size_t i = 0; i < n_segments; i++) {
        segments[i].slot = slot;
        segments[i].skip = 0;
        slot += segments[i].n;
    }
    mote__pass_list_rows(p);
    for (size_t r = 0; r < p->n_rows; r++)
        for (int k = 0; k < 2; k++)
            mote__rope_angles(p->angles[k] + p->rows[r].slot * p->net->config.rope_dim,
                              &p->net->rope[k], p->rows[r].pos);
    return 0;
}

void mote__pass_embed(mote__pass *p)
{
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__mat *m = &net->weights.embed;
    size_t d = c->hidden_size, n = c->hc_mult;
    for (size_t r = 0; r < p->n_rows; r++) {
        const mote__row *row = &p->rows[r];
        size_t id = (size_t)p->segments[row->segment].seq->ids[row->pos];
        float *h = p->h + row->slot * n * d, *mix = p->mix + row->slot * n;
        for (size_t i = 0; i < d; i++)
            h[i] = m->kind == MOTE_W_BF16
                       ? mote__bf16_decode((uint16_t)(m->data[2 * (id * d + i)] |
                                                      m->data[2 * (id * d + i) + 1] << 8))
                       : 0;
        if (m->kind == MOTE_W_F32)
            memcpy(h, m->data + 4 * id * d, d * sizeof *h);
        mote__act(net, h, d);
        for (size_t j = 1; j < n; j++)
            memcpy(h + j * d, h, d * sizeof *h);
        for (size_t j = 0; j < n; j++)
            mix[j] = j == 0; /* the first sublayer reads copy 0 */
    }
}

/* Drop the rows that `layer` does not query, and move the rows of x that stay. */
static void trim(mote__pass *p, size_t layer, size_t top)
{
    size_t d = p->net->config.hidden_size, w = p->net->config.window,
           reach = (top - 1 - layer) * (w - 1), kept = 0, r = 0;
    for (size_t i = 0; i < p->n_segments; i++) {
        mote__segment *s = &p->segments[i];
        uint64_t start = s->apex > reach ? s->apex - reach : 0;
        size_t live = s->n - s->skip, drop = 0;
        if (s->pos + s->skip < start)
            drop = start - (s->pos + s->skip) < live ? (size_t)(start - (s->pos + s->skip)) : live;
        if (r + drop != kept)
            memmove(p->x + kept * d, p->x + (r + drop) * d, (live - drop) * d * sizeof *p->x);
        kept += live - drop;
        r += live;
        s->skip += drop;
    }
    if (kept != p->n_rows)
        mote__pass_list_rows(p);
}

/* ---- layers ---- */

int mote__pass_linear(mote__pass *p, const mote__linear_job *jobs, size_t n_jobs)
{
    return mote__linear_run(&p->net->linear, jobs, n_jobs);
}

static void trace_rows(mote__pass *p, size_t layer, const char *name, const float *by_slot,
                       size_t cols)
{
    const mote__trace *t = p->net->trace;
    if (t && t->f32 && p->n_rows == p->n_slots)
        t->f32(t->ctx, layer, name, by_slot, p->n_slots, cols);
}

static int v41_layer(mote__pass *p, size_t layer, size_t top)
{
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = &net->weights.layers[layer];
    const mote__layer_plan *plan = &net->plan[layer];
    const mote__trace *t = net->trace;
    int rc;
    if (t && t->enter)
        t->enter(t->ctx, layer, p->h, p->mix, p->n_slots);
    if (plan->engram >= 0 && (rc = mote__engram_add(p, layer)))
        return rc;
    mote__hyper_collapse(p, p->mix, 1, L->attn_norm);
    if (t && t->f32)
        t->f32(t->ctx, layer, "attn_in", p->x, p->n_rows, c->hidden_size);
    if (plan->role == MOTE_ROLE_FULL && !plan->decoder && (rc = mote__publish(p, layer)))
        return rc;
    if ((rc = mote__attention_window(p, layer)))
        return rc;
    trim(p, layer, top);
    if ((rc = mote__hyper_mixes(p, &L->hc_attn)))
        return rc;
    memcpy(p->pre, p->next, p->n_rows * c->hc_mult * sizeof *p->pre);
    if ((rc = mote__attention(p, layer)))
        return rc;
    if (t && t->f32)
        t->f32(t->ctx, layer, "attn_out", p->y, p->n_rows, c->hidden_size);
    mote__hyper_expand(p);
    if ((rc = mote__hyper_mixes(p, &L->hc_ffn)))
        return rc;
    mote__hyper_collapse(p, p->pre, 0, L->ffn_norm);
    if (t && t->f32) {
        t->f32(t->ctx, layer, "attn_pre_mix", p->pre, p->n_rows, c->hc_mult);
        t->f32(t->ctx, layer, "ffn_in", p->x, p->n_rows, c->hidden_size);
    }
    if ((rc = mote__moe(p, layer)))
        return rc;
    mote__hyper_expand(p);
    for (size_t r = 0; r < p->n_rows; r++)
        memcpy(p->mix + p->rows[r].slot * c->hc_mult, p->next + r * c->hc_mult,
               c->hc_mult * sizeof *p->mix);
    trace_rows(p, layer, "pre_mix", p->mix, c->hc_mult);
    trace_rows(p, layer, "out", p->h, c->hc_mult * c->hidden_size);
    return 0;
}

int mote__pass_layers(mote__pass *p, size_t first, size_t last)
{
    static int (*const run[])(mote__pass * p, size_t layer, size_t top) = {
        [MOTE_ROLE_WINDOW] = v41_layer,        [MOTE_ROLE_FULL] = v41_layer,
        [MOTE_ROLE_REINDEX] = v41_layer,       [MOTE_ROLE_REUSE] = v41_layer,
        [MOTE_ROLE_DENSE] = mote__dense_layer,
    };
    for (size_t l = first; l < last; l++) {
        int rc = run[p->net->plan[l].role](p, l, last);
        if (rc)
            return rc;
    }
    return 0;
}

int mote__pass_publish_decoder(mote__pass *p)
{
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    size_t layer = c->decoder_start,
           h_bytes = p->n_slots * c->hc_mult * c->hidden_size * sizeof(float);
    float *saved = NULL;
    int rc = 0;
    if (layer == c->n_layers) /* a dense model has no decoder half */
        return 0;
    /* the decoder adds its lookup itself: work on a copy */
    if (net->plan[layer].engram >= 0) {
        saved = mote__alloc(net->meter, MOTE_MEM_SCRATCH, h_bytes);
        if (!saved)
            return MOTE_ENOMEM;
        memcpy(saved, p->h, h_bytes);
        rc = mote__engram_add(p, layer);
    }
    if (!rc) {
        mote__hyper_collapse(p, p->mix, 1, net->weights.layers[layer].attn_norm);
        rc = mote__publish(p, layer);
    }
    if (saved) {
        memcpy(p->h, saved, h_bytes);
        mote__free(net->meter, MOTE_MEM_SCRATCH, saved, h_bytes);
    }
    return rc;
}

int mote__pass_logits(mote__pass *p, const uint32_t *rows, size_t n, float *logits)
{
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    if (n == 0)
        return 0;
    mote__hyper_collapse(p, p->mix, 1, net->weights.norm);
    const float *x = mote__linear_input(net, &net->weights.head, p->x, p->n_rows, p->xq);
    mote__linear_job job = { .w = &net->weights.head,
                             .x = x,
                             .ldx = c->hidden_size,
                             .n_rows = n,
                             .rows = rows,
                             .y = logits,
                             .ldy = c->vocab_size };
    return mote__pass_linear(p, &job, 1);
}
