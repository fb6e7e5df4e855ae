/* Whole-model figures of the published shapes: the roles' times of real passes (mote__pass_layers
 * and its companions), weighted by how often the model of 40 layers has each. Decode at four
 * depths, eight sessions in one step, prefill bounded and full.
 *
 * Every sum is made within one run and the median is taken over the sums. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/synthetic.h"
#include "engine/engine.h"
#include "base/clock.h"

enum { DEPTHS = 4, SESSIONS = 8, PREFILL_DEPTH = 8192, PREFILL_ROWS = 512 };

typedef struct published {
    mote__bench *b;
    mote__synthetic s, thin;
    mote__synthetic_seq long_seq;
    size_t depth[DEPTHS];
    float *logits, *again; /* [SESSIONS][vocab] */
} published;

static double weighted(const double *seconds)
{
    double sum = 0;
    for (int i = 0; i < MOTE_STAGES; i++)
        sum += mote__stage_count[i] * seconds[i];
    return sum;
}

static const char *depth_name(size_t n)
{
    static char text[8][24];
    static int turn;
    char *t = text[turn++ & 7];
    if (n >= 1 << 20)
        snprintf(t, 24, "%zuM", n >> 20);
    else
        snprintf(t, 24, "%zuK", n >> 10);
    return t;
}

/* ---- bounds ---- */

/* union_read: experts in memory that each layer's rows use */
static double step_bytes(const mote__synthetic *s, const size_t *union_read)
{
    double bytes = 0;
    for (int i = 0; i < MOTE_STAGES; i++)
        bytes += mote__stage_count[i] *
                 (s->dense_bytes[i] +
                  (i < MOTE_SYNTHETIC_LAYERS ? (double)union_read[i] * s->expert_bytes : 0));
    return bytes;
}

static double row_flops(const mote__synthetic *s)
{
    const mote__config *c = &s->net.config;
    double flops = 0;
    for (int i = 0; i < MOTE_STAGES; i++) {
        flops += mote__stage_count[i] * s->dense_flops[i];
        if (i < MOTE_SYNTHETIC_LAYERS)
            flops += mote__stage_count[i] *
                     ((double)c->n_experts_per_token * s->expert_flops +
                      4.0 * (double)(c->n_heads * c->head_dim) *
                          (double)(c->window + (i == MOTE_STAGE_WINDOW ? 0 : c->index_topk)));
    }
    return flops;
}

/* ---- decode ---- */

static int token(published *x, size_t depth, float *logits, double *seconds, size_t *picked,
                 size_t *read)
{
    mote__synthetic_seq *seq = &x->long_seq;
    mote__synthetic_seq_at(seq, depth - 1);
    return mote__synthetic_pass(&x->s, &seq, 1, depth - 1, 1, 1, MOTE_SYNTHETIC_LAYERS, logits,
                                seconds, picked, read);
}

/* The same token on one thread, with AVX2 kernels where there are others: the same bits. */
static int check_token(published *x, size_t depth)
{
    mote__bench *b = x->b;
    mote__net *net = &x->s.net;
    double unused[MOTE_STAGES] = { 0 };
    int rc = token(x, depth, x->logits, unused, NULL, NULL);
    mote__threads *pool = net->threads;
    const mote__kern_ops *kern = net->kern, *other = b->env[MOTE_BENCH_AVX2].kern
                                                         ? b->env[MOTE_BENCH_AVX2].kern
                                                         : kern;
    net->threads = NULL;
    net->kern = other;
    if (!rc)
        rc = token(x, depth, x->again, unused, NULL, NULL);
    net->threads = pool;
    net->kern = kern;
    if (rc)
        return mote__bench_fail(b, rc, "out of memory in a pass");
    for (size_t i = 0; i < net->config.vocab_size; i++)
        if (!isfinite(x->logits[i]) || memcmp(&x->logits[i], &x->again[i], sizeof(float)))
            return mote__bench_fail(b, MOTE_EFORMAT,
                                    "wrong answer: logit %zu is %.9g with %d threads and %s "
                                    "kernels, %.9g with one and %s",
                                    i, (double)x->logits[i], b->n_threads, kern->name,
                                    (double)x->again[i], other->name);
    return 0;
}

/* Experts of the layers get places of their own, layer by layer: a changed expert changes what
 * later layers pick. */
static int spread(published *x, mote__synthetic_seq **seqs, size_t n_seqs, size_t held)
{
    x->s.next_expert = 0;
    for (size_t l = 0; l < MOTE_SYNTHETIC_LAYERS; l++) {
        double unused[MOTE_STAGES] = { 0 };
        for (size_t i = 0; i < n_seqs; i++)
            mote__synthetic_seq_at(seqs[i], held);
        int rc = mote__synthetic_pass(&x->s, seqs, n_seqs, held, 1, 1, l + 1, NULL, unused, NULL,
                                      NULL);
        if (rc)
            return mote__bench_fail(x->b, rc, "out of memory in a pass");
        mote__synthetic_spread(&x->s, l);
    }
    return 0;
}

/* The read rate at this moment, over (at most a gigabyte of) the model's own weights. */
static double read_rate(published *x)
{
    size_t most = (size_t)1 << 30;
    mote__bench_work w = mote__bench_reads(x->b, x->s.memory,
                                           x->s.memory_bytes < most ? x->s.memory_bytes : most);
    double t = mote__clock_s();
    w.body(w.ctx, w.env);
    return w.amount / (mote__clock_s() - t);
}

static int stage_rows(published *x, size_t depth, double stages[][100], int n)
{
    int rc = 0;
    for (int i = 0; i < MOTE_STAGES && !rc; i++) {
        char name[80], note[80];
        mote__bench_time t = mote__bench_median(stages[i], n);
        snprintf(name, sizeof name, "decode at %s, one %s", depth_name(depth), mote__stage_name[i]);
        snprintf(note, sizeof note, "counted %.0f times; %.0f MB of dense weights",
                 mote__stage_count[i], x->s.dense_bytes[i] * 1e-6);
        rc = mote__bench_add(x->b, &(mote__bench_row){ name, "one token", t.median * 1e3, "ms", NAN,
                                                       NAN, NAN, t, 1, note });
    }
    return rc;
}

/* Depths take turns, so that what disturbs the machine disturbs all of them. */
struct decode_times {
    double sum[DEPTHS][100], stage[DEPTHS][MOTE_STAGES][100], quotient[100], rate[100],
        to_bound[DEPTHS][100];
    size_t read[DEPTHS][MOTE_SYNTHETIC_LAYERS];
};

static int decode_times(published *x, struct decode_times *t, int n)
{
    mote__synthetic_seq *seq = &x->long_seq;
    int rc = 0;
    for (int k = -1; k < n && !rc; k++) {
        double rate = read_rate(x);
        if (k >= 0)
            t->rate[k] = rate;
        for (int i = 0; i < DEPTHS && !rc; i++) {
            double seconds[MOTE_STAGES] = { 0 };
            size_t picked[MOTE_SYNTHETIC_LAYERS];
            /* every depth picks other experts: give them their places before each token, outside
             * the time */
            if ((rc = spread(x, &seq, 1, x->depth[i] - 1)))
                return rc;
            rc = token(x, x->depth[i], x->logits, seconds, k < 0 ? picked : NULL, t->read[i]);
            if (k < 0)
                continue;
            t->sum[i][k] = weighted(seconds);
            t->to_bound[i][k] = t->sum[i][k] * rate / step_bytes(&x->s, t->read[i]);
            for (int j = 0; j < MOTE_STAGES; j++)
                t->stage[i][j][k] = seconds[j];
        }
        if (k >= 0)
            t->quotient[k] = t->sum[DEPTHS - 1][k] / t->sum[0][k];
    }
    return rc ? mote__bench_fail(x->b, rc, "out of memory in a pass") : 0;
}

static int decode_rows(published *x)
{
    mote__bench *b = x->b;
    struct decode_times *t = calloc(1, sizeof *t);
    int n = b->runs < 100 ? b->runs : 100,
        rc = t ? 0 : mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    if (!rc)
        rc = check_token(x, x->depth[0]);
    if (!rc)
        rc = decode_times(x, t, n);
    double rate = rc ? 0 : mote__bench_median(t->rate, n).median;
    for (int i = 0; i < DEPTHS && !rc; i++) {
        mote__bench_time sum = mote__bench_median(t->sum[i], n),
                         q = mote__bench_median(t->to_bound[i], n);
        double bytes = step_bytes(&x->s, t->read[i]), bound = bytes / rate;
        char name[80], note[120];
        snprintf(name, sizeof name, "decode at %s", depth_name(x->depth[i]));
        snprintf(note, sizeof note,
                 "limit: %.2f GB of weights of the 40 layers at the read rate; ratio: time / limit",
                 bytes * 1e-9);
        rc = mote__bench_add(b,
                             &(mote__bench_row){ name, "whole model, one token", sum.median * 1e3,
                                                 "ms", bound * 1e3, q.median, NAN, q, 1, note });
        if (!rc && (i == 0 || i == DEPTHS - 1))
            rc = stage_rows(x, x->depth[i], t->stage[i], n);
    }
    if (!rc) {
        char name[80];
        mote__bench_time q = mote__bench_median(t->quotient, n);
        snprintf(name, sizeof name, "decode, %s against %s", depth_name(x->depth[DEPTHS - 1]),
                 depth_name(x->depth[0]));
        rc = mote__bench_add(b, &(mote__bench_row){ name, "whole model, one token", q.median,
                                                    "x time", NAN, NAN, 1.12, q, 1, NULL });
    }
    free(t);
    return rc;
}

/* ---- the cache's own work: attention of a model whose linears are next to nothing ---- */

struct stamps {
    double q, topk;
};
static void note_f32(void *ctx, size_t layer, const char *name, const float *data, size_t rows,
                     size_t cols)
{
    struct stamps *s = ctx;
    if (!strcmp(name, "q"))
        s->q = s->topk = mote__clock_s();
}
static void note_i32(void *ctx, size_t layer, const char *name, const int32_t *data, size_t rows,
                     size_t cols)
{
    struct stamps *s = ctx;
    if (!strcmp(name, "topk"))
        s->topk = mote__clock_s();
}

/* seconds[0]: indexer and top-k, [1]: attention over the chosen entries; the 40 layers' sums */
static int cache_work(published *x, size_t depth, double *seconds)
{
    struct stamps at = { 0, 0 };
    mote__trace trace = { &at, NULL, note_f32, note_i32 };
    mote__pass *p = &x->thin.pass;
    mote__extent extent = {
        .seq = &x->long_seq.seq, .pos = depth - 1, .n = 1, .publish_from = UINT64_MAX
    };
    const mote__tile all = { .n = 1 };
    mote__synthetic_seq_at(&x->long_seq, depth - 1);
    int rc = mote__pass_begin(p, &extent, 1);
    seconds[0] = seconds[1] = 0;
    for (size_t l = 0; l < MOTE_SYNTHETIC_LAYERS && !rc; l++) {
        mote__backend_pass *b = p->of[0];
        mote__bench_floats(mote__cpu_pass_of(b)->x, x->thin.net.config.hidden_size, 60 + l);
        const mote__layer_plan *plan = &x->thin.net.plan[l];
        if ((rc = b->ops->window(b, l)))
            break;
        x->thin.net.trace = &trace;
        rc = b->ops->queries(b, l, all);
        if (!rc && (plan->role == MOTE_ROLE_FULL || plan->role == MOTE_ROLE_REINDEX))
            rc = b->ops->select(b, l, all);
        if (!rc)
            rc = b->ops->attend(b, l, all);
        double end = mote__clock_s();
        x->thin.net.trace = NULL;
        seconds[0] += mote__stage_count[l] * (at.topk - at.q);
        seconds[1] += mote__stage_count[l] * (end - at.topk);
    }
    return rc;
}

struct cache_mode {
    published *x;
    size_t depth;
    int rc;
};
static void run_cache_work(void *ctx, mote__bench_env *env)
{
    struct cache_mode *m = ctx;
    mote__net *net = &m->x->thin.net;
    mote__threads *pool = net->threads;
    const mote__kern_ops *kern = net->kern;
    double part[2];
    net->threads = env->pool;
    net->kern = env->kern;
    int rc = cache_work(m->x, m->depth, part);
    m->rc = rc ? rc : m->rc;
    net->threads = pool;
    net->kern = kern;
}

static int cache_rows(published *x)
{
    mote__bench *b = x->b;
    double all[DEPTHS][100], select[DEPTHS][100], attend[DEPTHS][100], quotient[100], part[2];
    int n = b->runs < 100 ? b->runs : 100, rc = 0;
    for (int k = -1; k < n && !rc; k++) {
        for (int i = 0; i < DEPTHS && !rc; i++) {
            rc = cache_work(x, x->depth[i], part);
            if (k < 0)
                continue;
            select[i][k] = part[0];
            attend[i][k] = part[1];
            all[i][k] = part[0] + part[1];
        }
        if (k >= 0)
            quotient[k] = all[DEPTHS - 1][k] / all[0][k];
    }
    if (rc)
        return mote__bench_fail(b, rc, "out of memory in a pass");
    char name[80], note[160];
    for (int i = 0; i < DEPTHS && !rc; i++) {
        mote__bench_time t = mote__bench_median(all[i], n), s = mote__bench_median(select[i], n),
                         a = mote__bench_median(attend[i], n);
        snprintf(name, sizeof name, "the cache's own work at %s", depth_name(x->depth[i]));
        snprintf(note, sizeof note,
                 "indexer and top-k %.3g ms, attention %.3g ms; linears of width 32 are inside",
                 s.median * 1e3, a.median * 1e3);
        rc = mote__bench_add(b, &(mote__bench_row){ name, "40 layers, one token", t.median * 1e3,
                                                    "ms", NAN, NAN, NAN, t, 1, note });
    }
    mote__bench_time q = mote__bench_median(quotient, n);
    snprintf(name, sizeof name, "the cache's own work, %s against %s",
             depth_name(x->depth[DEPTHS - 1]), depth_name(x->depth[0]));
    if (!rc)
        rc = mote__bench_add(b, &(mote__bench_row){ name, "40 layers, one token", q.median,
                                                    "x time", NAN, NAN, 2.6, q, 1, NULL });
    struct cache_mode mode = { x, x->depth[DEPTHS - 1], 0 };
    snprintf(name, sizeof name, "the cache's own work at %s", depth_name(mode.depth));
    if (!rc)
        rc = mote__bench_modes(b, name, "5 layers, one of each role", run_cache_work, &mode, 1);
    return !rc && mode.rc ? mote__bench_fail(b, mode.rc, "out of memory in a pass") : rc;
}

/* ---- eight sessions ---- */

static int batch_row(published *x, mote__synthetic_seq **seqs, const char *what, double target)
{
    mote__bench *b = x->b;
    size_t held = x->depth[0] - 1, picked[MOTE_SYNTHETIC_LAYERS], read[MOTE_SYNTHETIC_LAYERS];
    double sums[100], rates[100], warm[MOTE_STAGES] = { 0 };
    int n = b->runs < 100 ? b->runs : 100, rc = spread(x, seqs, SESSIONS, held);
    for (int k = -1; k < n && !rc; k++) {
        double seconds[MOTE_STAGES] = { 0 }, rate = read_rate(x);
        for (size_t i = 0; i < SESSIONS; i++)
            mote__synthetic_seq_at(seqs[i], held);
        rc = mote__synthetic_pass(&x->s, seqs, SESSIONS, held, 1, 1, MOTE_SYNTHETIC_LAYERS,
                                  x->logits, k < 0 ? warm : seconds, k < 0 ? picked : NULL, read);
        if (k >= 0) {
            sums[k] = weighted(seconds);
            rates[k] = rate;
        }
        if (rc)
            mote__bench_fail(b, rc, "out of memory in a pass");
    }
    if (rc)
        return rc;
    mote__bench_time t = mote__bench_median(sums, n);
    double bytes = step_bytes(&x->s, read), flops = SESSIONS * row_flops(&x->s),
           fma = b->limits.fma > 0 ? b->limits.fma : NAN;
    double by_bytes = bytes / mote__bench_median(rates, n).median, by_flops = flops / (0.7 * fma),
           bound = by_flops > by_bytes ? by_flops : by_bytes;
    size_t most = 0, most_read = 0;
    double traffic = step_bytes(&x->s, picked);
    for (size_t l = 0; l < MOTE_SYNTHETIC_LAYERS; l++) {
        most = picked[l] > most ? picked[l] : most;
        most_read = read[l] > most_read ? read[l] : most_read;
    }
    char name[80], note[240];
    snprintf(name, sizeof name, "%d sessions in one step, %s", SESSIONS, what);
    snprintf(note, sizeof note,
             "limit: the larger of %.1f GB / read rate = %.0f ms and %.0f GFLOP / (0.7 FMA peak) = "
             "%.0f ms; ratio: limit / time; at most "
             "%zu of %zu experts a layer, %zu in memory; traffic of all experts apart: %.1f GB",
             bytes * 1e-9, by_bytes * 1e3, flops * 1e-9, by_flops * 1e3, most,
             x->s.net.config.n_routed_experts, most_read, traffic * 1e-9);
    return mote__bench_add(b, &(mote__bench_row){ name, "whole model, one token each",
                                                  t.median * 1e3, "ms", bound * 1e3,
                                                  bound / t.median, target, t, 0, note });
}

static int batch_rows(published *x)
{
    mote__synthetic_seq seq[SESSIONS] = { 0 }, same[SESSIONS] = { 0 }, *at[SESSIONS],
                        *same_at[SESSIONS];
    int rc = 0;
    for (size_t i = 0; i < SESSIONS && !rc; i++) {
        at[i] = &seq[i];
        same_at[i] = &same[i];
        rc = mote__synthetic_seq_open(x->b, &x->s, &seq[i], x->depth[0], 1000 * (i + 1), NULL);
        if (!rc)
            rc = mote__synthetic_seq_open(x->b, &x->s, &same[i], x->depth[0], 1000, &seq[0]);
    }
    if (!rc)
        rc = batch_row(x, at, "independent routing", 0.85);
    if (!rc)
        rc = batch_row(x, same_at, "identical routing", 0.85);
    for (size_t i = 0; i < SESSIONS; i++) {
        mote__synthetic_seq_close(&same[i]);
        mote__synthetic_seq_close(&seq[i]);
    }
    return rc;
}

/* ---- prefill ---- */

/* n rows from `held` on, in the engine's chunks; decoder_rows of the last ones go on through the
 * decoder. */
static int prefill(published *x, size_t held, size_t n, size_t decoder_rows, double *seconds)
{
    size_t chunk = mote__chunk_rows(&x->s.net);
    mote__synthetic_seq *seq = &x->long_seq;
    mote__synthetic_seq_at(seq, held);
    int rc = 0;
    for (size_t at = 0; at < n && !rc; at += chunk) {
        size_t rows = n - at < chunk ? n - at : chunk, left = n - at - rows;
        size_t mine = decoder_rows > left
                          ? (decoder_rows - left < rows ? decoder_rows - left : rows)
                          : 0;
        rc = mote__synthetic_pass(&x->s, &seq, 1, held + at, rows, mine, MOTE_SYNTHETIC_LAYERS,
                                  left ? NULL : x->logits, seconds, NULL, NULL);
    }
    return rc;
}

/* 20 encoder layers are 2 window, 3 full and 15 reuse; 20 decoder layers 1 full, 4 reindex and 15
 * reuse. */
static double prefill_sum(const double *encoder, const double *decoder)
{
    return 2 * encoder[MOTE_STAGE_WINDOW] + 3 * encoder[MOTE_STAGE_FULL2] +
           15 * encoder[MOTE_STAGE_REUSE] + 2 * encoder[MOTE_STAGE_ENGRAM] +
           encoder[MOTE_STAGE_EMBED] + encoder[MOTE_STAGE_PUBLISH] + decoder[MOTE_STAGE_FULL1] +
           4 * decoder[MOTE_STAGE_REINDEX] + 15 * decoder[MOTE_STAGE_REUSE] +
           decoder[MOTE_STAGE_HEAD];
}

static int prefill_rows(published *x)
{
    /* a run takes many seconds: not more than the spread needs */
    enum { LEAST_RUNS = 5 };
    mote__bench *b = x->b;
    size_t rows = b->quick ? 160 : PREFILL_ROWS, held = b->quick ? 1024 : PREFILL_DEPTH,
           window = x->s.net.config.window;
    double full[LEAST_RUNS], bounded[LEAST_RUNS], quotient[LEAST_RUNS];
    int n = b->runs < LEAST_RUNS ? b->runs : LEAST_RUNS, rc = 0;
    x->s.next_expert = 0;
    for (int k = 0; k < n && !rc; k++) {
        double all[MOTE_STAGES] = { 0 }, last[MOTE_STAGES] = { 0 };
        char what[80];
        snprintf(what, sizeof what, "prefill, run %d of %d", k + 1, n);
        rc = mote__bench_progress(b, what);
        if (rc)
            return rc;
        rc = prefill(x, held, rows, rows, all);
        /* the decoder's roles over the last window alone */
        if (!rc)
            rc = prefill(x, held + rows - window, window, window, last);
        full[k] = prefill_sum(all, all);
        bounded[k] = prefill_sum(all, last);
        quotient[k] = full[k] / bounded[k];
    }
    if (rc)
        return mote__bench_fail(b, rc, "out of memory in a pass");
    char shape[80];
    snprintf(shape, sizeof shape, "whole model, %zu tokens at depth %zu", rows, held);
    mote__bench_time f = mote__bench_median(full, n), c = mote__bench_median(bounded, n),
                     q = mote__bench_median(quotient, n);
    double fma = b->limits.fma > 0 ? b->limits.fma : NAN, peak = fma / row_flops(&x->s);
    rc = mote__bench_add(b, &(mote__bench_row){
                                "prefill full", shape, (double)rows / f.median, "tokens/s", peak,
                                (double)rows / f.median / peak, NAN, f, 0,
                                "limit: FLOPs of a token's 40 layers at FP32 FMA peak" });
    if (!rc)
        rc = mote__bench_add(b, &(mote__bench_row){
                                    "prefill bounded", shape, (double)rows / c.median, "tokens/s",
                                    NAN, NAN, NAN, c, 0,
                                    "the decoder's layers run over the last 128 tokens" });
    if (!rc)
        rc = mote__bench_add(b, &(mote__bench_row){
                                    "prefill, bounded against full", shape, q.median, "x as fast",
                                    2 * (double)rows / (double)(rows + window), NAN, 1.8, q, 0,
                                    "limit: halves of equal cost, the decoder's over the last "
                                    "window; the target is about the value" });
    return rc;
}

int mote__bench_published(mote__bench *b)
{
    published *x = calloc(1, sizeof *x);
    if (!x)
        return mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    x->b = b;
    for (size_t i = 0; i < DEPTHS; i++)
        x->depth[i] = b->quick ? (size_t)1024 << i : (size_t[]){ 4096, 65536, 262144, 1048576 }[i];
    mote__bench_env *env = &b->env[MOTE_BENCH_AS_RUN];
    int rc = mote__bench_progress(b, "making a random model");
    if (!rc)
        rc = mote__synthetic_open(b, &x->s, env, 0);
    if (!rc)
        rc = mote__synthetic_open(b, &x->thin, env, 1);
    if (!rc)
        rc = mote__synthetic_seq_open(b, &x->s, &x->long_seq, x->depth[DEPTHS - 1], 500, NULL);
    if (!rc) {
        x->logits = calloc(SESSIONS * x->s.net.config.vocab_size, sizeof *x->logits);
        x->again = calloc(x->s.net.config.vocab_size, sizeof *x->again);
        rc = x->logits && x->again ? 0
                                   : mote__bench_fail(b, MOTE_ENOMEM, "out of memory for logits");
    }
    if (!rc)
        rc = decode_rows(x);
    if (!rc)
        rc = cache_rows(x);
    if (!rc)
        rc = batch_rows(x);
    if (!rc)
        rc = prefill_rows(x);
    free(x->logits);
    free(x->again);
    mote__synthetic_seq_close(&x->long_seq);
    mote__synthetic_close(&x->thin);
    mote__synthetic_close(&x->s);
    free(x);
    return rc;
}
