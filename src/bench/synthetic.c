#include "bench/synthetic.h"
#include "model/catalog.h"
#include "model/kv_shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "num/formats.h"
#include "base/clock.h"

const char *const mote__stage_name[MOTE_STAGES] = { "window",  "full ratio 2", "full ratio 1",
                                                    "reindex", "reuse",        "publish",
                                                    "engram",  "embedding",    "head" };
const double mote__stage_count[MOTE_STAGES] = { 2, 3, 1, 4, 30, 1, 2, 1, 1 };

enum { ENGRAM_ROWS = 10007 }; /* of each table of an n-gram and a head */

/* ---- configuration ---- */

static int configure(mote__bench *b, mote__config *c, int thin)
{
    int small = b->quick;
    *c = (mote__config){
        .vocab_size = small || thin ? 512 : 129280,
        .hidden_size = thin    ? 32
                       : small ? 128
                               : 5120,
        .n_layers = MOTE_SYNTHETIC_LAYERS,
        .n_heads = small ? 8 : 64,
        .head_dim = small ? 128 : 512,
        .rope_dim = small ? 32 : 64,
        .q_lora_rank = thin    ? 32
                       : small ? 64
                               : 1280,
        .o_lora_rank = thin || small ? 32 : 1024,
        .o_groups = 8,
        .moe_intermediate_size = thin    ? 32
                                 : small ? 96
                                         : 2304,
        .n_routed_experts = thin    ? 8
                            : small ? 48
                                    : 384,
        .n_experts_per_token = 6,
        .score_func = MOTE_SCORE_SQRTSOFTPLUS,
        .norm_topk_prob = 1,
        .routed_scaling_factor = 1.5f,
        .swiglu_limit = 10,
        .window = 128,
        .rms_norm_eps = 1e-20f,
        .rope_theta = 10000,
        .compress_rope_theta = 160000,
        .rope_factor = 16,
        .rope_beta_fast = 32,
        .rope_beta_slow = 1,
        .rope_original = 65536,
        .max_context = 2 << 20,
        .compress_ratios = { 0, 2, 1, 1, 1 },
        .kv_sources = { MOTE_STAGE_FULL2, MOTE_STAGE_FULL1 },
        .n_kv_sources = 2,
        .index_sources = { MOTE_STAGE_FULL2, MOTE_STAGE_FULL1, MOTE_STAGE_REINDEX },
        .n_index_sources = 3,
        .index_n_heads = small ? 8 : 32,
        .index_head_dim = 128,
        .index_topk = small ? 64 : 512,
        .candidate_source = MOTE_STAGE_FULL1,
        .candidate_topk_blocks = small ? 64 : 2048,
        .candidate_block_size = 8,
        .hc_mult = 4,
        .hc_sinkhorn_iters = 20,
        .hc_eps = 1e-6f,
        .bos = 0,
        .eos = { 1 },
        .n_eos = 1,
        .image_token = -1,
    };
    int rc = mote__config_rules(c, 0, "the bench's model", b->err);
    if (!rc && thin)
        /* finer than a checkpoint may have: only the bench makes such matrices */
        c->o_lora_rank = 4;
    if (!rc && !thin) {
        /* one table that two layers are charged for; its hashes are made up below */
        c->n_engram_layers = 1;
        c->engram_max_ngram = 4;
        c->engram_heads = small ? 2 : 8;
        c->engram_head_dim = small ? 32 : 256;
        c->engram_pad_token = 2;
        c->engram_rows[0] = (c->engram_max_ngram - 1) * c->engram_heads * ENGRAM_ROWS;
    }
    return rc;
}

/* ---- weights: one walk counts the bytes, a second one places ---- */

struct maker {
    mote__synthetic *s;
    uint8_t *base; /* NULL while counting */
    size_t used, floats;
    mote__threads *pool;
    uint64_t seed;
};

static mote__mat matrix(struct maker *m, mote__stage stage, mote__wkind kind, size_t n_out,
                        size_t n_in)
{
    size_t start = m->used;
    m->used += mote__bench_mat_bytes(kind, n_out, n_in);
    if (!m->base)
        return (mote__mat){ 0 };
    uint8_t *at = m->base + start;
    mote__mat w = mote__bench_place(&at, kind, n_out, n_in);
    mote__bench_fill(m->pool, &w, m->seed++);
    m->s->dense_bytes[stage] += mote__bench_mat_traffic(&w);
    m->s->dense_flops[stage] += 2.0 * (double)n_out * (double)n_in;
    return w;
}

static float *vector(struct maker *m, size_t n, float base, float spread)
{
    size_t start = m->floats;
    m->floats += (n + 15) / 16 * 16;
    if (!m->base)
        return NULL;
    float *v = m->s->vectors + start;
    for (size_t i = 0; i < n; i++)
        v[i] = base + spread * mote__bench_unit(m->seed, i);
    m->seed++;
    return v;
}

/* A matrix as published: its dtype says the kind. */
static mote__wkind kind_of(mote__dtype published)
{
    return published == MOTE_DT_F32       ? MOTE_W_F32
           : published == MOTE_DT_BF16    ? MOTE_W_BF16
           : published == MOTE_DT_F8_E4M3 ? MOTE_W_FP8
                                          : MOTE_W_MXFP4;
}

/* Around what random vectors lie. */
static float *vector_of(struct maker *m, const mote__expected *e)
{
    size_t n = e->dims[0] * (e->n_dims == 2 ? e->dims[1] : 1);
    switch (e->id) {
    case MOTE_T_SINK: return vector(m, n, 0, 1);
    case MOTE_T_HC_ATTN_BASE:
    case MOTE_T_HC_FFN_BASE: return vector(m, n, 0, 0.5f);
    case MOTE_T_HC_ATTN_SCALE:
    case MOTE_T_HC_FFN_SCALE: return vector(m, n, 0.5f, 0);
    case MOTE_T_GATE_BIAS: return vector(m, n, 0, 0.01f);
    default: return vector(m, n, 1, 0.2f);
    }
}

/* What the decoder's first layer needs for its entries alone is another stage's. */
static mote__stage stage_of(const struct maker *m, const mote__expected *e)
{
    const mote__layer_plan *p = &m->s->net.plan[e->layer < 0 ? 0 : e->layer];
    int makes_kv = e->id == MOTE_T_C_WKV || e->id == MOTE_T_C_GATE || e->id == MOTE_T_I_WK;
    return e->id == MOTE_T_HEAD                                  ? MOTE_STAGE_HEAD
           : e->cls == MOTE_TC_ENGRAM                            ? MOTE_STAGE_ENGRAM
           : makes_kv && p->role == MOTE_ROLE_FULL && p->decoder ? MOTE_STAGE_PUBLISH
                                                                 : (mote__stage)e->layer;
}

/* The rows of the Engram table have their own scales per 32 values, which a tile's layout does not
 * have: a second run of bytes. */
static void make_table(struct maker *m, mote__mat *table, size_t n_rows, size_t dim)
{
    const mote__config *c = &m->s->net.config;
    *table = matrix(m, MOTE_STAGE_ENGRAM, MOTE_W_FP8, n_rows, dim);
    size_t scales_at = m->used, n_scales = n_rows * dim / 32;
    m->used += (n_scales + 63) / 64 * 64;
    if (!m->base)
        return;
    uint8_t *scales = m->base + scales_at;
    memset(scales, 119, n_scales);
    table->scale = scales;
    table->scale_stride = dim / 32;
    /* a token reads some rows */
    size_t n = (c->engram_max_ngram - 1) * c->engram_heads;
    m->s->dense_bytes[MOTE_STAGE_ENGRAM] += (double)(n * (dim + dim / 32)) -
                                            mote__bench_mat_traffic(&(mote__mat){
                                                .kind = MOTE_W_FP8, .n_out = n_rows, .n_in = dim });
    m->s->dense_flops[MOTE_STAGE_ENGRAM] -= 2.0 * (double)n_rows * (double)dim;
}

/* All that the table of names has for the configuration, but for routed experts, of which a set
 * serves all layers, and what is no matter of speed. */
static int make_tensor(void *ctx, const mote__expected *e)
{
    struct maker *m = ctx;
    mote__weights *w = &m->s->net.weights;
    if (e->is_scale || e->cls == MOTE_TC_EXPERT || e->id == MOTE_T_EMBED ||
        mote__catalog(e->id)->form == MOTE_FORM_FACTOR)
        return 0;
    void *member = mote__catalog_member(w, e->id, (size_t)e->layer, 0);
    switch (mote__catalog(e->id)->form) {
    case MOTE_FORM_MATRIX:
        *(mote__mat *)member = matrix(m, stage_of(m, e), kind_of(e->dtype), e->dims[0], e->dims[1]);
        break;
    case MOTE_FORM_TABLE: make_table(m, member, e->dims[0], e->dims[1]); break;
    default: *(float **)member = vector_of(m, e); break;
    }
    return 0;
}

static mote__expert expert(struct maker *m, mote__stage stage)
{
    const mote__config *c = &m->s->net.config;
    mote__expert e;
    e.w1 = matrix(m, stage, MOTE_W_MXFP4, c->moe_intermediate_size, c->hidden_size);
    e.w2 = matrix(m, stage, MOTE_W_MXFP4, c->hidden_size, c->moe_intermediate_size);
    e.w3 = matrix(m, stage, MOTE_W_MXFP4, c->moe_intermediate_size, c->hidden_size);
    return e;
}

static void make_all(struct maker *m)
{
    mote__net *net = &m->s->net;
    mote__expected_tensors(&net->config, make_tensor, m);
    /* a row each; the second gigabyte would only be memory */
    net->weights.embed = net->weights.head;
    for (size_t l = 0; l < MOTE_SYNTHETIC_LAYERS; l++)
        m->s->layers[l].experts = m->s->experts + l * net->config.n_routed_experts;
    for (size_t e = 0; e < m->s->n_set; e++)
        m->s->set[e] = expert(m, MOTE_STAGES - 1);
}

/* Hashes that are as good as any: each n-gram's table has as many rows. */
static void make_hashes(mote__net *net)
{
    const mote__config *c = &net->config;
    size_t n = (c->engram_max_ngram - 1) * c->engram_heads;
    mote__engram_table *t = &net->engram[0];
    for (size_t i = 0; i < n; i++) {
        t->primes[i] = ENGRAM_ROWS;
        t->offsets[i] = i * ENGRAM_ROWS;
    }
    for (size_t i = 0; i < MOTE_ENGRAM_MAX_NGRAM; i++)
        t->multipliers[i] = (int64_t)(mote__bench_random(77, i) >> 24 | 1);
    t->n_rows = n * ENGRAM_ROWS;
}

int mote__synthetic_open(mote__bench *b, mote__synthetic *s, mote__bench_env *env, int thin)
{
    memset(s, 0, sizeof *s);
    mote__net *net = &s->net;
    mote__config *c = &net->config;
    int rc = configure(b, c, thin);
    if (rc)
        return rc;
    mote__plan_init(net->plan, c);
    net->plan[0].engram = -1; /* the lookup is timed by itself */
    net->kern = env->kern;
    net->threads = env->pool;
    net->meter = &s->meter;
    net->weights = (mote__weights){ .layers = s->layers,
                                    .n_layers = MOTE_SYNTHETIC_LAYERS,
                                    .meter = &s->meter };
    mote__rope_init(&net->rope[0], c->rope_dim, c->rope_theta, 1, 1, 1, 0);
    mote__rope_init(&net->rope[1], c->rope_dim, c->compress_rope_theta, c->rope_factor,
                    c->rope_beta_fast, c->rope_beta_slow, c->rope_original);
    s->n_set = thin || b->quick ? 8 : MOTE_SYNTHETIC_EXPERTS;
    s->experts = calloc(MOTE_SYNTHETIC_LAYERS * c->n_routed_experts, sizeof *s->experts);
    net->token_map = calloc(c->vocab_size, sizeof *net->token_map);
    struct maker count = { .s = s };
    make_all(&count);
    s->memory_bytes = count.used;
    s->vector_floats = count.floats;
    s->memory = mote__bench_pages(s->memory_bytes);
    s->vectors = mote__alloc(&s->meter, MOTE_MEM_WEIGHTS, s->vector_floats * sizeof(float));
    if (!s->experts || !net->token_map || !s->memory || !s->vectors) {
        mote__synthetic_close(s);
        return mote__bench_fail(b, MOTE_ENOMEM, "out of memory for %zu MiB of random weights",
                                s->memory_bytes >> 20);
    }
    struct maker make = { .s = s, .base = s->memory, .pool = env->pool, .seed = 1000 };
    make_all(&make);
    if (c->n_engram_layers)
        make_hashes(net);
    /* what the set cost went to the head's account: take it back */
    const mote__expert *x = &s->set[0];
    s->expert_bytes = mote__bench_mat_traffic(&x->w1) + mote__bench_mat_traffic(&x->w2) +
                      mote__bench_mat_traffic(&x->w3);
    s->expert_flops = 6.0 * (double)c->moe_intermediate_size * (double)c->hidden_size;
    s->dense_bytes[MOTE_STAGES - 1] -= s->expert_bytes * (double)s->n_set;
    s->dense_flops[MOTE_STAGES - 1] -= s->expert_flops * (double)s->n_set;
    for (size_t i = 0; i < MOTE_SYNTHETIC_LAYERS * c->n_routed_experts; i++)
        s->experts[i] = s->set[i % c->n_routed_experts % s->n_set];
    for (size_t i = 0; i < c->vocab_size; i++)
        net->token_map[i] = (int32_t)i;
    mote__kv_shape shape;
    mote__kv_spec spec;
    mote__kv_layout layout;
    mote__kv_shape_of(&shape, c);
    rc = mote__kv_spec_parse(&spec, NULL, &shape, b->err);
    if (!rc) {
        mote__kv_layout_init(&layout, &shape, &spec);
        mote__kv_pool_init(&s->kv_pool, &layout, &s->meter);
        mote__net_use(net, mote__cpu_backend());
        mote__pass_init(&s->pass, net);
        s->open = 1;
    } else {
        mote__synthetic_close(s);
    }
    return rc;
}

void mote__synthetic_close(mote__synthetic *s)
{
    if (s->open) {
        mote__pass_deinit(&s->pass);
        mote__kv_pool_deinit(&s->kv_pool);
    }
    mote__free(&s->meter, MOTE_MEM_WEIGHTS, s->vectors, s->vector_floats * sizeof(float));
    mote__bench_unpages(s->memory, s->memory_bytes);
    free(s->net.token_map);
    free(s->experts);
    memset(s, 0, sizeof *s);
}

/* ---- sequences ---- */

struct random_blocks {
    mote__kv_cache *kv;
    uint64_t seed;
};

/* Codes: any byte. E4M3 scales of FP4: 0.125 to 0.47. E8M0 scales of keys: 2^-5 to 2^-2. */
static void fill_blocks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct random_blocks *r = ctx;
    const mote__kv_layout *l = &r->kv->pool->layout;
    for (size_t i = begin; i < end; i++) {
        uint8_t *data = mote__kv_block_here(r->kv->blocks[i]);
        for (size_t at = 0; at < l->block_bytes; at += 8) {
            uint64_t u = mote__bench_random(r->seed + i, at);
            memcpy(data + at, &u, l->block_bytes - at < 8 ? l->block_bytes - at : 8);
        }
        for (size_t k = 0; k < l->n_sources; k++) {
            const mote__kv_source *s = &l->source[k];
            for (size_t j = 0; j < s->entries * s->main_scale_bytes; j++)
                data[s->main_scales + j] = 0x20 | (data[s->main_scales + j] & 15);
            for (size_t j = 0; j < s->entries * s->index_scale_bytes; j++)
                data[s->index_scales + j] = (uint8_t)(122 + (data[s->index_scales + j] & 3));
        }
    }
}

int mote__synthetic_seq_open(mote__bench *b, mote__synthetic *s, mote__synthetic_seq *q,
                             size_t n_tokens, uint64_t seed, const mote__synthetic_seq *from)
{
    const mote__config *c = &s->net.config;
    const mote__kv_spec *spec = &s->kv_pool.layout.spec;
    mote__kv_shape shape;
    mote__kv_shape_of(&shape, c);
    memset(q, 0, sizeof *q);
    q->n_tokens = n_tokens;
    q->ids = calloc(n_tokens, sizeof *q->ids);
    mote__kv_cache_init(&q->seq.kv, &s->kv_pool);
    int rc = !q->ids || mote__kv_state_init(&q->seq.state, &shape, spec, &s->meter);
    if (!rc && from)
        rc = mote__kv_cache_fork(&q->seq.kv, &from->seq.kv, n_tokens - 1);
    if (!rc && !from && !(rc = mote__kv_reserve(&q->seq.kv, 0, n_tokens)))
        mote__threads_for(s->net.threads, q->seq.kv.n_blocks, 1, fill_blocks,
                          &(struct random_blocks){ &q->seq.kv, seed });
    if (rc) {
        mote__synthetic_seq_close(q);
        return mote__bench_fail(b, MOTE_ENOMEM, "out of memory for a cache of %zu tokens",
                                n_tokens);
    }
    for (size_t i = 0; i < n_tokens; i++)
        q->ids[i] = (int32_t)(mote__bench_random(seed, i) % c->vocab_size);
    q->seq.ids = q->ids;
    mote__kv_state *st = &q->seq.state;
    /* E4M3 codes below 2, one scale of 1 per 32 */
    for (size_t i = 0; i < st->n_layers * st->window; i++)
        for (size_t j = 0; j < st->row_bytes; j++)
            st->rows[i * st->row_bytes + j] =
                j < st->code_bytes ? (uint8_t)(mote__bench_random(seed + i, j) >> 56 & 0xbf) : 127;
    mote__bench_floats(st->pending, st->pending_floats, seed);
    return 0;
}

void mote__synthetic_seq_close(mote__synthetic_seq *q)
{
    if (!q->ids)
        return;
    mote__kv_cache_deinit(&q->seq.kv);
    if (q->seq.state.memory)
        mote__kv_state_deinit(&q->seq.state);
    free(q->ids);
    q->ids = NULL;
}

void mote__synthetic_seq_at(mote__synthetic_seq *q, size_t held)
{
    mote__seq *seq = &q->seq;
    const mote__kv_layout *l = &seq->kv.pool->layout;
    for (size_t i = 0; i < l->n_sources; i++) {
        seq->kv.n_entries[i] = held / l->source[i].ratio;
        seq->state.n_pending[i] = held % l->source[i].ratio;
    }
    for (size_t i = 0; i < seq->state.n_layers; i++)
        seq->state.ring[i] = (mote__kv_ring){ held > seq->state.window ? held - seq->state.window
                                                                       : 0,
                                              held };
}

/* ---- passes ---- */

static double since(double *t)
{
    double now = mote__clock_s(), d = now - *t;
    *t = now;
    return d;
}

static void count_experts(const mote__synthetic *s, size_t layer, size_t *picked, size_t *read)
{
    const mote__config *c = &s->net.config;
    const mote__expert *mine = s->layers[layer].experts;
    const int32_t *id = mote__cpu_pass_of(s->pass.holds)->expert_id;
    size_t n = s->pass.batch.n_rows * c->n_experts_per_token;
    *picked = *read = 0;
    for (size_t e = 0; e < c->n_routed_experts; e++) {
        int used = 0, again = 0;
        for (size_t i = 0; i < n && !used; i++)
            used = id[i] == (int32_t)e;
        for (size_t i = 0; i < n && used && !again; i++)
            again = id[i] < (int32_t)e && mine[id[i]].w1.data == mine[e].w1.data;
        *picked += used != 0;
        *read += used && !again;
    }
}

int mote__synthetic_pass(mote__synthetic *s, mote__synthetic_seq **seqs, size_t n_seqs, size_t held,
                         size_t n, size_t decoder_rows, size_t layers, float *logits,
                         double *seconds, size_t *union_experts, size_t *union_read)
{
    enum { MOST = 16 };
    mote__extent extents[MOST];
    uint32_t last[MOST];
    mote__pass *p = &s->pass;
    for (size_t i = 0; i < n_seqs && i < MOST; i++)
        extents[i] = (mote__extent){
            .seq = &seqs[i]->seq, .pos = held, .n = n, .publish_from = held
        };
    double t = mote__clock_s();
    int rc = mote__pass_begin(p, extents, n_seqs);
    if (rc)
        return rc;
    if ((rc = mote__pass_embed(p)))
        return rc;
    seconds[MOTE_STAGE_EMBED] += since(&t);
    for (size_t l = 0; l < layers && !rc; l++) {
        if (l == s->net.config.decoder_start) {
            if ((rc = mote__pass_publish_decoder(p)))
                break;
            seconds[MOTE_STAGE_PUBLISH] += since(&t);
            for (size_t i = 0; i < n_seqs; i++) {
                extents[i].publish_from = UINT64_MAX;
                extents[i].skip = n - (decoder_rows < n ? decoder_rows : n);
            }
            if (decoder_rows == 0)
                return 0;
            mote__batch_list_rows(&p->batch);
        }
        since(&t);
        rc = mote__pass_layers(p, l, l + 1);
        seconds[l] += since(&t);
        if (!rc && union_experts)
            count_experts(s, l, &union_experts[l], &union_read[l]);
        since(&t);
        if (!rc && l == 0 && s->net.config.n_engram_layers) {
            s->net.plan[0].engram = 0;
            rc = p->holds->ops->engram(p->holds, 0);
            s->net.plan[0].engram = -1;
            seconds[MOTE_STAGE_ENGRAM] += since(&t);
        }
    }
    if (!rc && logits) {
        for (size_t r = 0, i = 0; r < p->batch.n_rows; r++)
            if (p->batch.rows[r].pos + 1 == held + n)
                last[i++] = (uint32_t)r;
        since(&t);
        rc = mote__pass_logits(p, last, n_seqs, logits);
        seconds[MOTE_STAGE_HEAD] += since(&t);
    }
    return rc;
}

void mote__synthetic_spread(mote__synthetic *s, size_t layer)
{
    const mote__config *c = &s->net.config;
    const int32_t *id = mote__cpu_pass_of(s->pass.holds)->expert_id;
    size_t n = s->pass.batch.n_rows * c->n_experts_per_token;
    for (size_t e = 0; e < c->n_routed_experts; e++) {
        int used = 0;
        for (size_t i = 0; i < n; i++)
            used |= id[i] == (int32_t)e;
        if (used)
            s->layers[layer].experts[e] = s->set[s->next_expert++ % s->n_set];
    }
}
