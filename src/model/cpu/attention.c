/* Attention of a layer: window entries of the layer's own ring and of this pass, selected entries
 * of its KV source. */
#include <math.h>
#include <string.h>

#include "model/cpu/pass.h"

struct attention {
    mote__cpu_pass *p;
    size_t layer;
    const mote__layer_weights *L;
    mote__tile tile; /* rows below are counted from its first one */
    size_t head_groups;
};

static const float *angles_of(const mote__cpu_pass *p, size_t layer, size_t token)
{
    return p->angles[p->net->plan[layer].ratio != 0] + token * p->net->config.rope_dim;
}

/* ---- window KV ---- */

static uint8_t *packed_row(const mote__cpu_pass *p, size_t token)
{
    return p->window_packed + token * p->net->config.head_dim * 4;
}

static void window_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct attention *a = ctx;
    mote__cpu_pass *p = a->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    for (size_t r = begin; r < end; r++) {
        const mote__row *row = &p->batch->rows[r];
        const mote__kv_state *st = &p->batch->extents[row->extent].seq->state;
        float *kv = p->window_kv + r * c->head_dim;
        mote__act(net, kv, c->head_dim);
        net->kern->rmsnorm(kv, kv, a->L->kv_norm, c->head_dim, c->rms_norm_eps);
        mote__act(net, kv, c->head_dim);
        mote__rope_apply(kv, 1, c->head_dim, angles_of(p, a->layer, row->token), c->rope_dim, 0);
        mote__act(net, kv, c->head_dim);
        uint8_t *packed = packed_row(p, row->token);
        st->fmt->encode(packed, packed + st->code_bytes, kv, c->head_dim);
    }
}

int mote__cpu_window(mote__backend_pass *base, size_t layer)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    size_t n = p->batch->n_rows;
    struct attention a = { .p = p, .layer = layer, .L = &net->weights.layers[layer] };
    int rc = mote__cpu_linear_rows(p, &a.L->wkv, p->x, n, p->window_kv);
    if (rc)
        return rc;
    mote__threads_for(net->threads, n, 2, window_rows, &a);
    if (net->trace && net->trace->f32) {
        for (size_t r = 0; r < n; r++) { /* as it will be read back */
            const mote__row *row = &p->batch->rows[r];
            const mote__kv_state *st = &p->batch->extents[row->extent].seq->state;
            const uint8_t *packed = packed_row(p, row->token);
            st->fmt->decode(p->window_kv + r * c->head_dim, packed, packed + st->code_bytes,
                            c->head_dim);
        }
        mote__cpu_trace(p, layer, "window_kv", p->window_kv, c->head_dim);
    }
    return 0;
}

/* The window of a query at pos: ring entries before this pass, then this pass's own, in ascending
 * position. */
static size_t window_refs(const mote__cpu_pass *p, size_t layer, const mote__row *row,
                          mote__kv_ref *refs)
{
    const mote__extent *s = &p->batch->extents[row->extent];
    const mote__kv_state *st = &s->seq->state;
    const mote__kv_ring *ring = &st->ring[layer];
    /* first position whose entry this pass made */
    uint64_t fresh = s->pos + s->window_skip;
    uint64_t oldest = ring->end == fresh ? ring->start : fresh, w = st->window;
    uint64_t begin = row->pos + 1 > w ? row->pos + 1 - w : 0;
    if (begin < oldest)
        begin = oldest;
    size_t n = 0;
    for (uint64_t q = begin; q <= row->pos; q++) {
        if (q < fresh) {
            refs[n++] = mote__kv_window(st, layer, q);
        } else {
            const uint8_t *packed = packed_row(p, s->first + (size_t)(q - s->pos));
            refs[n++] = (mote__kv_ref){ packed, packed + st->code_bytes };
        }
    }
    return n;
}

static void push_windows(mote__cpu_pass *p, size_t layer)
{
    for (size_t i = 0; i < p->batch->n_extents; i++) {
        mote__extent *s = &p->batch->extents[i];
        mote__kv_state *st = &s->seq->state;
        size_t n = s->n - s->window_skip, keep = n < st->window ? n : st->window;
        /* rows lie head_dim*4 bytes apart here, row_bytes apart in the ring: push them one by one
         */
        for (size_t k = n - keep; k < n; k++)
            mote__kv_window_push(st, layer, s->pos + s->window_skip + k,
                                 packed_row(p, s->first + s->window_skip + k), 1);
    }
}

/* ---- queries ---- */

static void rotate_queries(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct attention *a = ctx;
    mote__cpu_pass *p = a->p;
    const mote__config *c = &p->net->config;
    size_t wide = c->n_heads * c->head_dim;
    for (size_t r = begin; r < end; r++) {
        mote__act(p->net, p->query + r * wide, wide);
        mote__rope_apply(p->query + r * wide, c->n_heads, c->head_dim,
                         angles_of(p, a->layer, p->batch->rows[a->tile.first + r].token),
                         c->rope_dim, 0);
        mote__act(p->net, p->query + r * wide, wide);
    }
}

static void norm_queries(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct attention *a = ctx;
    mote__cpu_pass *p = a->p;
    const mote__config *c = &p->net->config;
    for (size_t r = begin; r < end; r++) {
        float *qr = p->query_low + r * c->q_lora_rank;
        mote__act(p->net, qr, c->q_lora_rank);
        p->net->kern->rmsnorm(qr, qr, a->L->q_norm, c->q_lora_rank, c->rms_norm_eps);
        mote__act(p->net, qr, c->q_lora_rank);
    }
}

int mote__cpu_queries(mote__backend_pass *base, size_t layer, mote__tile tile)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = &net->weights.layers[layer];
    struct attention a = { .p = p, .layer = layer, .L = L, .tile = tile };
    size_t wide = c->n_heads * c->head_dim, n = tile.n;
    const float *x = p->x + tile.first * c->hidden_size;
    int rc;
    mote__linear_job job = { .w = &L->wq_a,
                             .x = mote__linear_input(net, &L->wq_a, x, n, p->rounded),
                             .ldx = c->hidden_size,
                             .n_rows = n,
                             .y = p->query_low,
                             .ldy = c->q_lora_rank };
    if ((rc = mote__cpu_linear(p, &job, 1)))
        return rc;
    mote__threads_for(net->threads, n, 8, norm_queries, &a);
    job = (mote__linear_job){ .w = &L->wq_b,
                              .x = mote__linear_input(net, &L->wq_b, p->query_low, n, p->rounded),
                              .ldx = c->q_lora_rank,
                              .n_rows = n,
                              .y = p->query,
                              .ldy = wide };
    if ((rc = mote__cpu_linear(p, &job, 1)))
        return rc;
    mote__threads_for(net->threads, n, 2, rotate_queries, &a);
    if (n == p->batch->n_rows)
        mote__cpu_trace(p, layer, "q", p->query, wide);
    return 0;
}

/* ---- attention and output ---- */

/* Thread scratch: references to the entries of one row, then what the kernel needs. */
static size_t refs_bytes(const mote__config *c, size_t topk_room)
{
    return ((c->window + topk_room) * sizeof(mote__kv_ref) + 63) / 64 * 64;
}

size_t mote__cpu_attend_thread_bytes(const mote__config *c, size_t topk_room)
{
    return refs_bytes(c, topk_room) + mote__attend_scratch(c->n_heads, c->head_dim) * sizeof(float);
}

/* One task: some heads of one row. */
static void attend_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct attention *a = ctx;
    mote__cpu_pass *p = a->p;
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_plan *plan = &net->plan[a->layer];
    mote__kv_ref *refs = mote__cpu_thread(p, thread);
    float *scratch = (float *)(void *)((uint8_t *)refs + refs_bytes(c, p->topk_room));
    size_t wide = c->n_heads * c->head_dim;
    for (size_t i = begin; i < end; i++) {
        size_t r = i / a->head_groups, group = i % a->head_groups;
        size_t h0 = c->n_heads * group / a->head_groups,
               h1 = c->n_heads * (group + 1) / a->head_groups;
        const mote__row *row = &p->batch->rows[a->tile.first + r];
        const mote__seq *seq = p->batch->extents[row->extent].seq;
        size_t n_window = window_refs(p, a->layer, row, refs), n_main = 0;
        mote__attend_args args = { .q = p->query + r * wide + h0 * c->head_dim,
                                   .n_heads = h1 - h0,
                                   .dim = c->head_dim,
                                   .window = refs,
                                   .n_window = n_window,
                                   .window_fmt = seq->state.fmt->id,
                                   .main = refs + n_window,
                                   .sink = a->L->sink + h0,
                                   .scale = (float)pow((double)c->head_dim, -0.5),
                                   .published = net->published,
                                   .out = p->attended + r * wide + h0 * c->head_dim };
        if (plan->ratio) {
            const int32_t *list = p->topk + row->token * p->topk_room;
            n_main = p->n_topk[row->token];
            for (size_t k = 0; k < n_main; k++)
                refs[n_window + k] = mote__kv_main(&seq->kv, (size_t)plan->source, (size_t)list[k]);
            args.main_fmt = seq->kv.pool->layout.source[plan->source].main->id;
        }
        args.n_main = n_main;
        mote__attend(net->kern, &args, scratch);
        mote__act(net, args.out, (h1 - h0) * c->head_dim);
        mote__rope_apply(args.out, h1 - h0, c->head_dim, angles_of(p, a->layer, row->token),
                         c->rope_dim, 1);
        mote__act(net, args.out, (h1 - h0) * c->head_dim);
    }
}

static void trace_selection(mote__cpu_pass *p, size_t layer)
{
    const mote__trace *t = p->net->trace;
    const mote__config *c = &p->net->config;
    if (!t || !t->i32 || p->batch->n_rows != p->batch->n_tokens)
        return;
    for (size_t s = 0; s < p->batch->n_tokens; s++) {
        for (size_t k = p->n_topk[s]; k < p->topk_room; k++)
            p->topk[s * p->topk_room + k] = -1;
        for (size_t k = p->n_candidates[s];
             p->net->plan[layer].candidates == MOTE_CAND_MAKE && k < c->candidate_topk_blocks; k++)
            p->candidates[s * c->candidate_topk_blocks + k] = -1;
    }
    t->i32(t->ctx, layer, "topk", p->topk, p->batch->n_tokens, p->topk_room);
    if (p->net->plan[layer].candidates == MOTE_CAND_MAKE)
        t->i32(t->ctx, layer, "candidate_blocks", p->candidates, p->batch->n_tokens,
               c->candidate_topk_blocks);
}

/* Group g of wo_a as a matrix of its own. */
static mote__mat output_group(const mote__mat *wo_a, size_t g, size_t n_out, size_t n_in)
{
    static const uint8_t bits[] = { [MOTE_W_F32] = 32, [MOTE_W_BF16] = 16, [MOTE_W_FP8] = 8 };
    mote__mat m = *wo_a;
    size_t row0 = g * n_out;
    m.n_out = n_out;
    m.data += row0 * n_in * (m.kind <= MOTE_W_FP8 ? bits[m.kind] : 4) / 8;
    if (m.kind == MOTE_W_FP8)
        m.scale_row0 += row0;
    else if (m.kind >= MOTE_W_MXFP4)
        m.scale += row0 * m.scale_stride;
    return m;
}

int mote__cpu_attend(mote__backend_pass *base, size_t layer, mote__tile tile)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__config *c = &net->config;
    const mote__layer_weights *L = &net->weights.layers[layer];
    struct attention a = { .p = p, .layer = layer, .L = L, .tile = tile };
    size_t wide = c->n_heads * c->head_dim, n = tile.n, low = c->o_groups * c->o_lora_rank,
           in = wide / c->o_groups;
    float *y = p->y + tile.first * c->hidden_size;
    int rc, last = tile.first + tile.n == p->batch->n_rows;
    if (net->plan[layer].ratio && last)
        trace_selection(p, layer);
    size_t threads = (size_t)mote__threads_count(net->threads);
    a.head_groups = n >= 2 * threads ? 1 : threads < c->n_heads ? threads : c->n_heads;
    mote__threads_for(net->threads, n * a.head_groups, 1, attend_rows, &a);
    if (last) /* earlier rows of the batch have read what this overwrites */
        push_windows(p, layer);

    /* grouped output projection: group g of wo_a sees its own heads only */
    for (size_t g = 0; g < c->o_groups; g++) {
        p->output_groups[g] = output_group(&L->wo_a, g, c->o_lora_rank, in);
        p->jobs[g] = (mote__linear_job){ .w = &p->output_groups[g],
                                         .x = p->attended + g * in,
                                         .ldx = wide,
                                         .n_rows = n,
                                         .y = p->attended_low + g * c->o_lora_rank,
                                         .ldy = low };
    }
    if ((rc = mote__cpu_linear(p, p->jobs, c->o_groups)))
        return rc;
    mote__act(net, p->attended_low, n * low);
    mote__linear_job job = { .w = &L->wo_b,
                             .x = mote__linear_input(net, &L->wo_b, p->attended_low, n, p->rounded),
                             .ldx = low,
                             .n_rows = n,
                             .y = y,
                             .ldy = c->hidden_size };
    if ((rc = mote__cpu_linear(p, &job, 1)))
        return rc;
    mote__act(net, y, n * c->hidden_size);
    if (last)
        mote__cpu_trace(p, layer, "attn_out", p->y, c->hidden_size);
    return 0;
}
