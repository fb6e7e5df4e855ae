/* A real checkpoint end to end, through the public API: prefill bounded against full, steady decode
 * (what it allocates, whether threads wait for locks, one thread, AVX2), where a decode step's time
 * goes, opening, and the tokenizer. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/bench.h"
#include "base/map.h"
#include "engine/engine.h"
#include "base/clock.h"
#include "base/path.h"

static int open_model(mote__bench *b, mote_model **m, int n_threads)
{
    mote_model_params p = { .n_threads = n_threads,
                            .weights = b->params->weights,
                            .expert_ram = b->params->expert_ram };
    memcpy(p.place, b->params->place, sizeof b->params->place);
    return mote_model_open(m, b->params->model, &p, b->err);
}

/* ---- prefill ---- */

/* deterministic tokens: no text has to be found, and no expert is favoured by a repeated one */
static int32_t token_at(const mote_model *m, size_t i)
{
    return (int32_t)(3 + mote__bench_random(90, i) % (m->net.config.vocab_size - 3));
}

static int feed(mote__bench *b, mote_model *m, mote_session *s, size_t from, size_t n,
                mote_logits_rows rows)
{
    int32_t *ids = malloc(n * sizeof *ids);
    if (!ids)
        return mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        ids[i] = token_at(m, from + i);
    mote_feed f = { .session = s, .ids = ids, .n_ids = n, .logits = rows };
    int rc = mote_run(m, &f, 1, NULL, NULL, b->err);
    free(ids);
    return rc;
}

static int prefill_mode(mote__bench *b, mote_model *m, mote_prefill mode, size_t depth, size_t n,
                        mote__bench_time *t)
{
    mote_session_params p = { .prefill = mode };
    mote_session *s = NULL;
    double seconds[100];
    int runs = b->runs < 100 ? b->runs : 100, rc = mote_session_create(&s, m, &p, b->err);
    if (!rc)
        rc = feed(b, m, s, 0, depth, MOTE_LOGITS_LAST);
    if (!rc)
        rc = mote_session_mark(s, b->err);
    for (int i = -1; i < runs && !rc; i++) {
        double start = mote__clock_s();
        rc = feed(b, m, s, depth, n, MOTE_LOGITS_LAST);
        if (i >= 0)
            seconds[i] = mote__clock_s() - start;
        if (!rc)
            rc = mote_session_truncate(s, depth, MOTE_REPLAY_EXACT, NULL, b->err);
    }
    mote_session_destroy(s);
    if (!rc)
        *t = mote__bench_median(seconds, runs);
    return rc;
}

/* what bounded prefill gains over full prefill of n rows if all layers cost the same */
static double equal_layers(const mote__config *c, size_t n)
{
    double encoder = (double)c->decoder_start, decoder = (double)c->n_layers - encoder,
           rows = (double)n, window = (double)c->window;
    return rows * (encoder + decoder) /
           (rows * encoder + (window < rows ? window : rows) * decoder);
}

/* A prompt of n tokens from the first to the last: what somebody waits for. Runs of both modes take
 * turns. */
static int prompt_row(mote__bench *b, mote_model *m, size_t n)
{
    enum { RUNS = 3 };
    double seconds[2][RUNS], quotient[RUNS];
    int rc = 0;
    for (int i = 0; i < RUNS && !rc; i++) {
        for (int full = 0; full < 2 && !rc; full++) {
            mote_session_params p = { .prefill = full ? MOTE_PREFILL_FULL : MOTE_PREFILL_BOUNDED };
            mote_session *s = NULL;
            if ((rc = mote_session_create(&s, m, &p, b->err)))
                break;
            double start = mote__clock_s();
            rc = feed(b, m, s, 0, n, MOTE_LOGITS_LAST);
            seconds[full][i] = mote__clock_s() - start;
            mote_session_destroy(s);
        }
        quotient[i] = seconds[1][i] / seconds[0][i];
    }
    if (rc)
        return rc;
    char shape[80];
    snprintf(shape, sizeof shape, "a prompt of %zu tokens", n);
    mote__bench_time q = mote__bench_median(quotient, RUNS);
    return mote__bench_add(b, &(mote__bench_row){
                                  "prompt, bounded against full", shape, q.median, "x as fast",
                                  equal_layers(&m->net.config, n), NAN, 1.8, q, 0,
                                  "limit: layers of equal cost, the decoder's over the last "
                                  "window; the target is about the value" });
}

static int prefill_rows(mote__bench *b, mote_model *m)
{
    size_t depth = b->quick ? 256 : 8192, n = b->quick ? 128 : 512;
    mote__bench_time bounded, full;
    char shape[80];
    snprintf(shape, sizeof shape, "%zu tokens at depth %zu", n, depth);
    int rc = prefill_mode(b, m, MOTE_PREFILL_BOUNDED, depth, n, &bounded);
    if (!rc)
        rc = prefill_mode(b, m, MOTE_PREFILL_FULL, depth, n, &full);
    if (!rc)
        rc = mote__bench_add(b, &(mote__bench_row){ "prefill full", shape, (double)n / full.median,
                                                    "tokens/s", NAN, NAN, NAN, full, 0, NULL });
    if (!rc)
        rc = mote__bench_add(b, &(mote__bench_row){ "prefill bounded", shape,
                                                    (double)n / bounded.median, "tokens/s", NAN,
                                                    NAN, NAN, bounded, 0, NULL });
    if (!rc)
        rc = mote__bench_add(b, &(mote__bench_row){
                                    "prefill, bounded against full",
                                    shape,
                                    full.median / bounded.median,
                                    "x as fast",
                                    equal_layers(&m->net.config, n),
                                    NAN,
                                    1.8,
                                    { 0, full.spread + bounded.spread, full.runs },
                                    0,
                                    "limit: layers of equal cost, the decoder's over the last "
                                    "window; the target is about the value" });
    if (!rc)
        rc = prompt_row(b, m, depth);
    return rc;
}

/* ---- decode ---- */

static int decode(mote__bench *b, mote_model *m, mote_session *s, size_t from, size_t n,
                  double *seconds)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        int32_t id = token_at(m, from + i);
        mote_feed f = { .session = s, .ids = &id, .n_ids = 1, .logits = MOTE_LOGITS_LAST };
        double start = mote__clock_s();
        rc = mote_run(m, &f, 1, NULL, NULL, b->err);
        if (seconds)
            seconds[i] = mote__clock_s() - start;
    }
    return rc;
}

static long waits(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

/* Allocations of steps that take no new cache block; those that do may bring a slab and make tables
 * grow. */
static int steady(mote__bench *b, mote_model *m, mote_session *s, size_t at, size_t n)
{
    mote__kv_pool *pool = s->seq.kv.pool;
    size_t heap = mallinfo2().uordblks, others = 0, with_block = 0, blocks = 0;
    long before = waits();
    for (size_t i = 0; i < n; i++) {
        size_t had = pool->n_blocks_used, allocs = atomic_load(&m->meter.n_allocs);
        int rc = decode(b, m, s, at + i, 1, NULL);
        if (rc)
            return rc;
        size_t new_blocks = pool->n_blocks_used - had;
        *(new_blocks ? &with_block : &others) += atomic_load(&m->meter.n_allocs) - allocs;
        blocks += new_blocks;
    }
    long switches = waits() - before;
    size_t grown = mallinfo2().uordblks - heap;
    char shape[80], note[160];
    snprintf(shape, sizeof shape, "%zu steps of one token from %zu on", n, at);
    snprintf(note, sizeof note,
             "in steps without a new cache block; %zu in the %zu with one; the heap holds %zd "
             "bytes more",
             with_block, blocks, (ssize_t)grown);
    int rc = mote__bench_add(b, &(mote__bench_row){ "allocations of steady decode",
                                                    shape,
                                                    (double)others,
                                                    "allocations",
                                                    NAN,
                                                    NAN,
                                                    0,
                                                    { 0, 0, 1 },
                                                    1,
                                                    note });
    if (!rc)
        rc = mote__bench_add(
            b, &(mote__bench_row){
                   "waits of steady decode",
                   shape,
                   (double)switches / (double)n,
                   "switches/step",
                   NAN,
                   NAN,
                   NAN,
                   { 0, 0, 1 },
                   1,
                   "times any thread gave its core away of its own accord, per step" });
    return rc;
}

/* time of a decode step with other threads or kernels; position does not move: the session is cut
 * back to its mark */
static int decode_time(mote__bench *b, mote_model *m, mote_session *s, size_t at, size_t n,
                       mote__bench_time *t)
{
    double *seconds = malloc(n * sizeof *seconds);
    int rc = seconds ? decode(b, m, s, at, n, seconds)
                     : mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    if (!rc) {
        *t = mote__bench_median(seconds, (int)n);
        rc = mote_session_truncate(s, at, MOTE_REPLAY_EXACT, NULL, b->err);
    }
    free(seconds);
    return rc;
}

static int decode_rows(mote__bench *b, mote_model *m)
{
    enum { WARM = 40, STEPS = 128 };
    mote_session *s = NULL;
    size_t depth = b->quick ? 300 : 4096 + 300, at = depth + WARM, n = b->quick ? 8 : STEPS;
    int rc = mote_session_create(&s, m, NULL, b->err);
    if (!rc)
        rc = feed(b, m, s, 0, depth, MOTE_LOGITS_LAST);
    if (!rc)
        rc = decode(b, m, s, depth, WARM, NULL);
    if (!rc)
        rc = mote_session_mark(s, b->err);
    mote__bench_time t, one, avx2;
    char shape[80];
    snprintf(shape, sizeof shape, "one token at depth %zu", at);
    if (!rc)
        rc = decode_time(b, m, s, at, n, &t);
    if (!rc)
        rc = mote__bench_add(b, &(mote__bench_row){
                                    "decode", shape, 1 / t.median, "tokens/s", NAN, NAN, NAN, t, 0,
                                    "nano's weights stay in the caches: no read limit" });
    mote__net *net = &m->net;
    mote__threads *pool = net->threads;
    const mote__kern_ops *kern = net->kern;
    if (!rc && b->n_threads > 1) {
        net->threads = NULL;
        rc = decode_time(b, m, s, at, n, &one);
        net->threads = pool;
        if (!rc)
            rc = mote__bench_add(b, &(mote__bench_row){ "decode, threads",
                                                        shape,
                                                        one.median / t.median,
                                                        "x one thread",
                                                        b->limits.fma / b->one_thread.fma,
                                                        NAN,
                                                        0.9 * b->n_threads,
                                                        { 0, one.spread + t.spread, t.runs },
                                                        0,
                                                        "limit: FP32 FMA peak over that of one "
                                                        "thread; the target is about the value" });
    }
    if (!rc && b->env[MOTE_BENCH_AVX2].kern) {
        net->kern = b->env[MOTE_BENCH_AVX2].kern;
        rc = decode_time(b, m, s, at, n, &avx2);
        net->kern = kern;
        if (!rc)
            rc = mote__bench_add(b, &(mote__bench_row){ "decode, AVX2-only",
                                                        shape,
                                                        avx2.median / t.median,
                                                        "x time",
                                                        NAN,
                                                        NAN,
                                                        2.5,
                                                        { 0, avx2.spread + t.spread, t.runs },
                                                        1,
                                                        NULL });
    }
    if (!rc)
        rc = steady(b, m, s, at, b->quick ? 16 : 1024);
    mote_session_destroy(s);
    return rc;
}

/* ---- where a decode step's time goes ---- */

/* What has happened when the trace names this tensor; the time since the name before it is the
 * part's. */
static const struct {
    const char *tensor, *part;
} marks[] = {
    { "attn_in", "Engram, collapsing the copies" },
    { "latent", "compressor" },
    { "window_kv", "window and global KV" },
    { "q", "query projections, copies' mixes" },
    { "topk", "indexer and top-k" },
    { "attn_out", "attention, output projection" },
    { "ffn_in", "expanding, mixing the copies" },
    { "out", "router and experts" },
};
enum { MARKS = sizeof marks / sizeof marks[0] };
typedef struct profile {
    double last, seconds[MARKS], between;
} profile;

static void note(profile *p, const char *name)
{
    double now = mote__clock_s();
    for (size_t i = 0; i < MARKS; i++)
        /* the time of a name that stands for no part goes to the next one */
        if (!strcmp(marks[i].tensor, name)) {
            p->seconds[i] += now - p->last;
            p->last = now;
        }
}
static void on_enter(void *ctx, size_t layer, float *h, float *mix, size_t n)
{
    profile *p = ctx;
    double now = mote__clock_s();
    p->between += now - p->last;
    p->last = now;
}
static void on_f32(void *ctx, size_t layer, const char *name, const float *data, size_t rows,
                   size_t cols)
{
    note(ctx, name);
}
static void on_i32(void *ctx, size_t layer, const char *name, const int32_t *data, size_t rows,
                   size_t cols)
{
    note(ctx, name);
}

static int profile_rows(mote__bench *b, mote_model *m)
{
    size_t depth = b->quick ? 256 : 4096, n = b->quick ? 4 : 256;
    mote_session *s = NULL;
    profile p = { 0 };
    mote__trace trace = { &p, on_enter, on_f32, on_i32 };
    int rc = mote_session_create(&s, m, NULL, b->err);
    if (!rc)
        rc = feed(b, m, s, 0, depth, MOTE_LOGITS_LAST);
    if (!rc)
        rc = decode(b, m, s, depth, 8, NULL);
    m->net.trace = &trace;
    double total = mote__clock_s();
    p.last = total;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = decode(b, m, s, depth + 8 + i, 1, NULL);
        double now = mote__clock_s();
        p.between += now - p.last;
        p.last = now;
    }
    total = mote__clock_s() - total;
    m->net.trace = NULL;
    mote_session_destroy(s);
    for (size_t i = 0; i <= MARKS && !rc; i++) {
        char name[100];
        double v = i < MARKS ? p.seconds[i] : p.between;
        snprintf(name, sizeof name, "decode's time: %s",
                 i < MARKS ? marks[i].part : "embedding, decoder's KV, head, step");
        rc = mote__bench_add(b,
                             &(mote__bench_row){ name,
                                                 "share of a step",
                                                 100 * v / total,
                                                 "%",
                                                 NAN,
                                                 NAN,
                                                 NAN,
                                                 { 0, NAN, (int)n },
                                                 1,
                                                 i == MARKS ? "with the trace's own cost" : NULL });
    }
    return rc;
}

int mote__bench_small(mote__bench *b)
{
    mote_model *m = NULL;
    int rc = open_model(b, &m, b->n_threads);
    if (!rc)
        rc = prefill_rows(b, m);
    if (!rc)
        rc = decode_rows(b, m);
    if (!rc)
        rc = profile_rows(b, m);
    mote_model_close(m);
    return rc;
}

/* ---- opening ---- */

int mote__bench_load(mote__bench *b)
{
    double opens[100], firsts[100];
    int n = b->runs < 100 ? b->runs : 100, rc = 0;
    for (int i = -1; i < n && !rc; i++) { /* the first one warms the page cache */
        mote_model *m = NULL;
        mote_session *s = NULL;
        double t0 = mote__clock_s(), t1 = t0, t2 = t0;
        rc = open_model(b, &m, b->n_threads);
        if (!rc) {
            t1 = mote__clock_s();
            rc = mote_session_create(&s, m, NULL, b->err);
        }
        if (!rc)
            rc = feed(b, m, s, 0, 1, MOTE_LOGITS_LAST);
        t2 = mote__clock_s();
        mote_session_destroy(s);
        mote_model_close(m);
        if (i >= 0) {
            opens[i] = t1 - t0;
            firsts[i] = t2 - t0;
        }
    }
    if (rc)
        return rc;
    mote__bench_time open = mote__bench_median(opens, n), all = mote__bench_median(firsts, n);
    rc = mote__bench_add(b, &(mote__bench_row){ "opening", "config, tokenizer, weights mapped",
                                                open.median * 1e3, "ms", NAN, NAN, NAN, open, 1,
                                                NULL });
    if (!rc)
        rc = mote__bench_add(b, &(mote__bench_row){ "opening and the first token",
                                                    "warm page cache", all.median * 1e3, "ms", NAN,
                                                    NAN, 100, all, 1, NULL });
    return rc;
}

/* ---- tokenizer ---- */

/* Share of the bytes that belong to characters of U+3000 to U+9FFF: three bytes each, led by E3 to
 * E9. */
static int mostly_chinese(const uint8_t *text, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += text[i] >= 0xE3 && text[i] <= 0xE9 ? 3 : 0;
    return bytes > n / 2;
}

static int text_row(mote__bench *b, mote_model *m, const char *path)
{
    enum { ENOUGH = 4 << 20 };
    mote__map map;
    int rc = mote__map_open(&map, path, b->err), n = b->runs < 100 ? b->runs : 100;
    if (rc)
        return rc;
    double seconds[100];
    size_t n_ids = 0, bytes = b->quick && map.size > 20000 ? 20000 : map.size;
    rc = bytes ? 0 : mote__bench_fail(b, MOTE_EINVAL, "%s: the text is empty", path);
    for (int i = -1; i < n && !rc; i++) {
        int32_t *ids = NULL;
        double start = mote__clock_s();
        rc = mote_encode(m, (const char *)map.data, bytes, MOTE_ENCODE_PLAIN, &ids, &n_ids, b->err);
        if (i >= 0)
            seconds[i] = mote__clock_s() - start;
        size_t at = 0; /* the tokens spell the text */
        for (size_t k = 0; i < 0 && k < n_ids && !rc; k++) {
            size_t len = 0;
            const char *t = mote_token_bytes(m, ids[k], &len);
            if (!t || len > bytes - at || memcmp(t, map.data + at, len))
                rc = mote__bench_fail(
                    b, MOTE_EFORMAT,
                    "wrong answer, %s: token %zu does not spell the text at byte %zu", path, k, at);
            at += len;
        }
        if (!rc && i < 0 && at != bytes)
            rc = mote__bench_fail(b, MOTE_EFORMAT,
                                  "wrong answer, %s: the tokens spell %zu of %zu bytes", path, at,
                                  bytes);
        mote_free(ids);
    }
    if (!rc) {
        int chinese = mostly_chinese(map.data, bytes);
        mote__bench_time t = mote__bench_median(seconds, n);
        const char *name = strrchr(path, '/');
        char shape[100], note_text[160];
        snprintf(shape, sizeof shape, "%.1f MB, %zu tokens, one thread", (double)bytes * 1e-6,
                 n_ids);
        snprintf(note_text, sizeof note_text, "%.60s%s", name ? name + 1 : path,
                 bytes < ENOUGH ? "; less than 4 MB: no target" : "");
        rc = mote__bench_add(b, &(mote__bench_row){ chinese ? "tokenizer, Chinese" : "tokenizer",
                                                    shape, (double)bytes / t.median * 1e-6, "MB/s",
                                                    NAN, NAN,
                                                    bytes < ENOUGH ? NAN
                                                    : chinese      ? 4
                                                                   : 10,
                                                    t, 0, note_text });
    }
    mote__map_close(&map);
    return rc;
}

int mote__bench_tokenizer(mote__bench *b)
{
    const mote_bench_params *p = b->params;
    mote_model *m = NULL;
    mote_model_params mp = { .n_threads = 1, .tokenizer_only = 1 };
    int rc = mote_model_open(&m, p->model, &mp, b->err);
    char path[MOTE_PATH_ROOM];
    mote__path_join(path, p->model, "heldout.txt");
    for (size_t i = 0; i < p->n_texts && !rc; i++)
        rc = text_row(b, m, p->texts[i]);
    FILE *f = p->n_texts == 0 ? fopen(path, "re") : NULL;
    if (!rc && f)
        rc = text_row(b, m, path);
    if (f)
        fclose(f);
    mote_model_close(m);
    return rc;
}
