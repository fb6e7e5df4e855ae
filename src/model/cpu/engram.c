/* Engram: a gated lookup of hashed n-grams, added to every residual copy. Rows are read from the
 * mapped table; which rows depends on token ids alone. Source: docs/engram.md. */
#include <math.h>

#include "model/cpu/pass.h"
#include "num/formats.h"

struct engram {
    mote__cpu_pass *p;
    const mote__layer_weights *L;
    const mote__engram_table *table;
    size_t layer;
    mote__tile tile;   /* rows below are counted from its first one */
    uint64_t *numbers; /* of table rows, for each row of the tile */
    /* where they lie: the table by number, or what was read of it, one after the other */
    const uint8_t *codes, *scales;
    int were_read;
};

static size_t rows_of_token(const mote__config *c)
{
    return (c->engram_max_ngram - 1) * c->engram_heads;
}

static void number_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct engram *g = ctx;
    mote__cpu_pass *p = g->p;
    const mote__config *c = &p->net->config;
    size_t n = rows_of_token(c);
    for (size_t r = begin; r < end; r++) {
        const mote__row *at = &p->batch->rows[g->tile.first + r];
        mote__engram_rows(g->numbers + r * n, g->table, c, p->net->token_map,
                          p->batch->extents[at->extent].seq->ids, at->pos);
    }
}

static void decode_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct engram *g = ctx;
    mote__cpu_pass *p = g->p;
    const mote__config *c = &p->net->config;
    size_t n = rows_of_token(c), dim = c->engram_head_dim, groups = dim / 32;
    for (size_t i = begin * n; i < end * n; i++) {
        uint64_t at = g->were_read ? i : g->numbers[i];
        p->net->kern->decode[MOTE_KV_FP8](p->engram_rows + i * dim, g->codes + at * dim,
                                          g->scales + at * groups, dim);
    }
}

/* engram_rows of the tile: the table's rows, decoded. */
static int gather_rows(struct engram *g)
{
    mote__cpu_pass *p = g->p;
    mote__net *net = p->net;
    const mote__config *c = &net->config;
    size_t n = g->tile.n * rows_of_token(c), dim = c->engram_head_dim;
    int index = net->plan[g->layer].engram, rc = 0;
    if (mote__buf_reserve(&p->row_numbers, n * (sizeof(uint64_t) + dim + dim / 32)))
        return MOTE_ENOMEM;
    g->numbers = p->row_numbers.data;
    mote__threads_for(net->threads, g->tile.n, 4, number_rows, g);
    g->codes = g->L->e_table.data;
    g->scales = g->L->e_table.scale;
    g->were_read = net->rows != NULL;
    if (g->were_read) {
        uint8_t *codes = (uint8_t *)(g->numbers + n), *scales = codes + n * dim;
        if ((rc = mote__rows_read(net->rows, &net->engram_codes[index], g->numbers, n, codes,
                                  &net->fault)) ||
            (rc = mote__rows_read(net->rows, &net->engram_scales[index], g->numbers, n, scales,
                                  &net->fault)))
            return rc;
        g->codes = codes;
        g->scales = scales;
    }
    mote__threads_for(net->threads, g->tile.n, 4, decode_rows, g);
    return 0;
}

static void trace_rows(const struct engram *g)
{
    mote__cpu_pass *p = g->p;
    const mote__config *c = &p->net->config;
    const mote__trace *t = p->net->trace;
    size_t n = (c->engram_max_ngram - 1) * c->engram_heads;
    for (size_t r = 0; t && t->i32 && r < p->batch->n_rows; r++) {
        const mote__row *at = &p->batch->rows[r];
        uint64_t row[MOTE_ENGRAM_MAX_NGRAM * MOTE_ENGRAM_MAX_HEADS];
        int32_t small[MOTE_ENGRAM_MAX_NGRAM * MOTE_ENGRAM_MAX_HEADS];
        mote__engram_rows(row, g->table, c, p->net->token_map,
                          p->batch->extents[at->extent].seq->ids, at->pos);
        for (size_t i = 0; i < n; i++)
            small[i] = (int32_t)row[i];
        t->i32(t->ctx, g->layer, "engram_ids", small, 1, n);
    }
}

/* four partial sums keep the additions independent; their order is part of the definition */
static double dot3(const float *a, const float *b, const float *c, size_t n)
{
    double s[4] = { 0 };
    for (size_t i = 0; i < n; i++)
        s[i & 3] += (double)a[i] * (double)b[i] * (double)c[i];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

static void add_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    struct engram *g = ctx;
    mote__cpu_pass *p = g->p;
    const mote__config *c = &p->net->config;
    size_t n = c->hc_mult, d = c->hidden_size;
    double eps = (double)c->rms_norm_eps;
    for (size_t r = begin; r < end; r++) {
        float *h = p->h + p->batch->rows[g->tile.first + r].token * n * d;
        float *kv = p->engram_kv + r * (n + 1) * d;
        mote__act(p->net, kv, (n + 1) * d);
        for (size_t j = 0; j < n; j++) {
            const float *key = kv + j * d, *value = kv + n * d;
            double inv = 1 / sqrt(p->net->kern->mean_square(h + j * d, d) + eps) /
                         sqrt(p->net->kern->mean_square(key, d) + eps);
            double dot = dot3(h + j * d, g->L->e_qk + j * d, key, d) * inv / sqrt((double)d);
            double x = copysign(sqrt(fmax(fabs(dot), 1e-6)), dot), e = exp(-fabs(x));
            float gate = (float)(x >= 0 ? 1 / (1 + e) : e / (1 + e));
            for (size_t i = 0; i < d; i++)
                h[j * d + i] += gate * value[i];
            mote__act(p->net, h + j * d, d);
        }
    }
}

int mote__cpu_engram(mote__backend_pass *base, size_t layer)
{
    mote__cpu_pass *p = mote__cpu_pass_of(base);
    const mote__net *net = p->net;
    const mote__layer_weights *L = &net->weights.layers[layer];
    struct engram g = { p,    L, &net->engram[net->plan[layer].engram], layer, { 0 }, NULL, NULL,
                        NULL, 0 };
    trace_rows(&g);
    for (size_t at = 0; at < p->batch->n_rows; at += g.tile.n) {
        g.tile = mote__cpu_tile(p, at);
        int rc = gather_rows(&g);
        if (!rc)
            rc = mote__cpu_linear_rows(p, &L->e_wkv, p->engram_rows, g.tile.n, p->engram_kv);
        if (rc)
            return rc;
        mote__threads_for(net->threads, g.tile.n, 2, add_rows, &g);
    }
    return 0;
}
