/* mote_bench_json: the table of parts, what they share, and rows to JSON. */
#include "bench/bench.h"

#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "engine/engine.h"
#include "base/clock.h"

static const struct part {
    const char *name, *summary;
    int (*run)(mote__bench *b);
    mote_bench_geometry geometry;
} parts[] = {
    { "weights", "FP8 and BF16 matrix-vector products from memory", mote__bench_weights,
      MOTE_BENCH_PUBLISHED },
    { "experts", "MXFP4 expert triples: one token, 16 to 512 tokens, against OpenBLAS",
      mote__bench_experts, MOTE_BENCH_PUBLISHED },
    { "indexer", "indexer scores of a million packed keys", mote__bench_indexer,
      MOTE_BENCH_PUBLISHED },
    { "topk", "top 512 of a million scores", mote__bench_topk, MOTE_BENCH_PUBLISHED },
    { "attention", "sparse attention over scattered packed entries", mote__bench_attention,
      MOTE_BENCH_PUBLISHED },
    { "published", "decode at four depths, eight sessions, prefill: random whole model",
      mote__bench_published, MOTE_BENCH_PUBLISHED },
    { "nano", "MODEL: prefill bounded and full, steady decode, where the time goes",
      mote__bench_small, MOTE_BENCH_NANO },
    { "load", "MODEL: opening and the first token", mote__bench_load, MOTE_BENCH_NANO },
    { "tokenizer", "MODEL: text to tokens", mote__bench_tokenizer, MOTE_BENCH_NANO },
};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

const char *mote_bench_part(size_t i, const char **summary)
{
    if (i >= N_PARTS)
        return NULL;
    if (summary)
        *summary = parts[i].summary;
    return parts[i].name;
}

/* ---- time ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

mote__bench_time mote__bench_median(double *t, int n)
{
    qsort(t, (size_t)n, sizeof *t, by_value);
    return (mote__bench_time){ t[n / 2], (t[n * 3 / 4] - t[n / 4]) / 2 / t[n / 2], n };
}

mote__bench_time mote__bench_measure(const mote__bench *b, mote__bench_body body, void *ctx,
                                     mote__bench_env *env)
{
    double t[100];
    int n = b->runs < 100 ? b->runs : 100;
    body(ctx, env);
    for (int i = 0; i < n; i++) {
        t[i] = mote__clock_s();
        body(ctx, env);
        t[i] = mote__clock_s() - t[i];
    }
    return mote__bench_median(t, n);
}

/* ---- rows ---- */

int mote__bench_fail(mote__bench *b, int code, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return mote__fail(b->err, code, "bench: %s: %s", b->part, text);
}

int mote__bench_progress(mote__bench *b, const char *what)
{
    char text[160];
    snprintf(text, sizeof text, "%s: %s", b->part, what);
    if (b->params->progress && b->params->progress(b->params->progress_ctx, text, b->fraction))
        return mote__bench_fail(b, MOTE_ECANCELED, "cancelled");
    return 0;
}

/* Four significant digits are more than any of these figures has. */
static json_t *real(double v)
{
    char text[32];
    if (!isfinite(v))
        return json_null();
    snprintf(text, sizeof text, "%.4g", v);
    return json_real(strtod(text, NULL));
}

int mote__bench_add(mote__bench *b, const mote__bench_row *r)
{
    double judged = isfinite(r->ratio) ? r->ratio : r->value, target = b->quick ? NAN : r->target;
    json_t *o = json_pack("{s:s s:s s:s s:o s:s s:o s:o s:o s:i s:o s:b}", "part", b->part, "name",
                          r->name, "shape", r->shape, "value", real(r->value), "unit", r->unit,
                          "limit", real(r->limit), "ratio", real(r->ratio), "spread",
                          real(r->time.spread), "runs", r->time.runs, "target", real(target),
                          "lower_is_better", r->lower_is_better);
    if (!o || json_array_append_new(b->rows, o))
        return mote__bench_fail(b, MOTE_ENOMEM, "out of memory");
    json_object_set_new(o, "met",
                        isfinite(target) && isfinite(judged)
                            ? json_boolean(r->lower_is_better ? judged <= target : judged >= target)
                            : json_null());
    json_object_set_new(o, "note", r->note ? json_string(r->note) : json_null());
    return mote__bench_progress(b, r->name);
}

mote__bench_pair mote__bench_in_turn(const mote__bench *b, const mote__bench_work *x,
                                     const mote__bench_work *y)
{
    double tx[100], ty[100], q[100];
    int n = b->runs < 100 ? b->runs : 100;
    x->body(x->ctx, x->env);
    y->body(y->ctx, y->env);
    for (int i = 0; i < n; i++) {
        double t0 = mote__clock_s();
        x->body(x->ctx, x->env);
        double t1 = mote__clock_s();
        y->body(y->ctx, y->env);
        double t2 = mote__clock_s();
        tx[i] = t1 - t0;
        ty[i] = t2 - t1;
        q[i] = ty[i] / tx[i];
    }
    return (mote__bench_pair){ mote__bench_median(tx, n), mote__bench_median(ty, n),
                               mote__bench_median(q, n) };
}

int mote__bench_against(mote__bench *b, const char *name, const char *shape,
                        const mote__bench_work *w, const mote__bench_work *yard, const char *unit,
                        double target, const char *note)
{
    if (!yard->body) {
        mote__bench_time t = mote__bench_measure(b, w->body, w->ctx, w->env);
        return mote__bench_add(b, &(mote__bench_row){ name, shape, w->amount / t.median * 1e-9,
                                                      unit, NAN, NAN, NAN, t, 0, note });
    }
    mote__bench_pair p = mote__bench_in_turn(b, w, yard);
    return mote__bench_add(b, &(mote__bench_row){ name, shape, w->amount / p.x.median * 1e-9, unit,
                                                  yard->amount / p.y.median * 1e-9,
                                                  p.y_over_x.median * w->amount / yard->amount,
                                                  target, p.y_over_x, 0, note });
}

int mote__bench_modes(mote__bench *b, const char *name, const char *shape, mote__bench_body body,
                      void *ctx, int compute_bound)
{
    char text[120];
    int rc = 0;
    mote__bench_work as_run = { body, ctx, &b->env[MOTE_BENCH_AS_RUN], 1 };
    if (b->n_threads > 1 && compute_bound) {
        mote__bench_work one = { body, ctx, &b->env[MOTE_BENCH_ONE_THREAD], 1 };
        mote__bench_pair p = mote__bench_in_turn(b, &as_run, &one);
        snprintf(text, sizeof text, "%s, %d threads", name, b->n_threads);
        rc = mote__bench_add(
            b, &(mote__bench_row){
                   text, shape, p.y_over_x.median, "x one thread",
                   b->limits.fma / b->one_thread.fma, NAN, 0.9 * b->n_threads, p.y_over_x, 0,
                   "limit: FP32 FMA peak over that of one thread; the target is about the value" });
    }
    if (!rc && b->env[MOTE_BENCH_AVX2].kern) {
        mote__bench_work avx2 = { body, ctx, &b->env[MOTE_BENCH_AVX2], 1 };
        mote__bench_pair p = mote__bench_in_turn(b, &as_run, &avx2);
        snprintf(text, sizeof text, "%s, AVX2-only", name);
        rc = mote__bench_add(b, &(mote__bench_row){ text, shape, p.y_over_x.median, "x time", NAN,
                                                    NAN, 2.5, p.y_over_x, 1, NULL });
    }
    return rc;
}

/* ---- the run ---- */

static int listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && !strncmp(at, name, n))
            return 1;
    return 0;
}

static int check_only(const mote_bench_params *p, mote_err *err)
{
    for (const char *at = p->only; at && *at; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, ","), i = 0;
        while (i < N_PARTS && (strlen(parts[i].name) != n || strncmp(at, parts[i].name, n)))
            i++;
        if (i == N_PARTS)
            return mote__fail(err, MOTE_EINVAL, "there is no part '%.*s' of the bench",
                              (int)(n < 60 ? n : 60), at);
        if (parts[i].geometry == MOTE_BENCH_NANO && !p->model)
            return mote__fail(err, MOTE_EINVAL, "the part '%s' needs a model", parts[i].name);
    }
    return 0;
}

static int wanted(const mote_bench_params *p, const struct part *part)
{
    if (p->only)
        return listed(p->only, part->name);
    return (p->geometry == MOTE_BENCH_ALL || p->geometry == part->geometry) &&
           (part->geometry != MOTE_BENCH_NANO || p->model);
}

static json_t *limits_json(const mote__bench_limits *l)
{
    json_t *o = json_object();
    json_object_set_new(o, "read_gb_s", real(l->read > 0 ? l->read * 1e-9 : NAN));
    json_object_set_new(o, "fp32_fma_gflop_s", real(l->fma > 0 ? l->fma * 1e-9 : NAN));
    json_object_set_new(o, "bf16_dot_gflop_s", real(l->bf16 > 0 ? l->bf16 * 1e-9 : NAN));
    json_object_set_new(o, "int8_vnni_gop_s", real(l->int8 > 0 ? l->int8 * 1e-9 : NAN));
    json_object_set_new(o, "empty_loop_us", real(l->loop > 0 ? l->loop * 1e6 : NAN));
    return o;
}

static double load_average(void)
{
    double v = NAN;
    return getloadavg(&v, 1) == 1 ? v : NAN;
}

static int measure_limits(mote__bench *b, mote__bench_limits *all, mote__bench_limits *one)
{
    size_t bytes = (size_t)(b->quick ? 64 : 1024) << 20;
    uint8_t *buffer = mote__bench_pages(bytes);
    if (!buffer)
        return mote__bench_fail(b, MOTE_ENOMEM, "out of memory for a buffer of %zu MiB",
                                bytes >> 20);
    mote__mat m = { .kind = MOTE_W_F32, .n_out = bytes / 4096, .n_in = 1024, .data = buffer };
    mote__bench_fill(b->env[MOTE_BENCH_AS_RUN].pool, &m, 1);
    mote__bench_limits_measure(b, &b->env[MOTE_BENCH_AS_RUN], buffer, bytes, all);
    if (one)
        mote__bench_limits_measure(b, &b->env[MOTE_BENCH_ONE_THREAD], buffer, bytes, one);
    mote__bench_unpages(buffer, bytes);
    return 0;
}

static int open_env(mote__bench *b, mote__threads *pool)
{
    int rc = 0;
    b->env[MOTE_BENCH_AS_RUN] = (mote__bench_env){ .kern = mote__kern(), .pool = pool };
    b->env[MOTE_BENCH_ONE_THREAD] = (mote__bench_env){ .kern = mote__kern() };
    if (mote__kern() != mote__kern_at(1))
        b->env[MOTE_BENCH_AVX2] = (mote__bench_env){ .kern = mote__kern_at(1), .pool = pool };
    for (int i = 0; i < MOTE_BENCH_MODES && !rc; i++)
        if (b->env[i].kern)
            rc = mote__linear_init(&b->env[i].linear, b->env[i].kern, b->env[i].pool, NULL);
    return rc;
}

static int run_parts(mote__bench *b, json_t *out)
{
    const mote_bench_params *p = b->params;
    mote__bench_limits after;
    b->part = "limits";
    int rc = mote__bench_progress(b, "the machine");
    if (!rc)
        rc = measure_limits(b, &b->limits, &b->one_thread);
    if (rc)
        return rc;
    json_object_set_new(out, "limits", limits_json(&b->limits));
    json_object_set_new(out, "limits_one_thread", limits_json(&b->one_thread));
    size_t n = 0, done = 0;
    for (size_t i = 0; i < N_PARTS; i++)
        n += wanted(p, &parts[i]) != 0;
    json_t *seconds = json_object();
    json_object_set_new(out, "seconds", seconds);
    for (size_t i = 0; i < N_PARTS && !rc; i++) {
        if (!wanted(p, &parts[i]))
            continue;
        b->part = parts[i].name;
        b->fraction = (double)done++ / (double)n;
        double t = mote__clock_s();
        rc = parts[i].run(b);
        json_object_set_new(seconds, parts[i].name, real(mote__clock_s() - t));
    }
    b->part = "limits";
    if (!rc)
        rc = measure_limits(b, &after, NULL);
    if (!rc)
        json_object_set_new(out, "limits_at_end", limits_json(&after));
    return rc;
}

int mote_bench_json(char **json, const mote_bench_params *params, mote_err *err)
{
    static const mote_bench_params defaults;
    const mote_bench_params *p = params ? params : &defaults;
    *json = NULL;
    int n_threads = 1, rc = mote__kern_init(err);
    if (rc || (rc = mote__count_threads(p->n_threads, &n_threads, err)) ||
        (rc = check_only(p, err)))
        return rc;
    if (p->geometry == MOTE_BENCH_NANO && !p->model)
        return mote__fail(err, MOTE_EINVAL, "the geometry nano needs a model");
    mote__bench b = { .params = p,
                      .n_threads = n_threads,
                      .quick = p->quick,
                      .err = err,
                      .part = "start",
                      .runs = p->runs > 0 ? p->runs
                              : p->quick  ? 1
                                          : 7 };
    double start = mote__clock_s(), load = load_average();
    mote__threads *pool = mote__threads_create(n_threads);
    json_t *out = json_object();
    b.rows = json_array();
    if (!pool || !out || !b.rows || open_env(&b, pool))
        rc = mote__fail(err, MOTE_ENOMEM, "bench: out of memory or threads (%d asked)", n_threads);
    if (!rc)
        rc = run_parts(&b, out);
    if (!rc) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        json_object_set_new(out, "mote", json_string(mote_version()));
        json_object_set_new(out, "kernels", json_string(mote__kern()->name));
        json_object_set_new(out, "threads", json_integer(n_threads));
        json_object_set_new(out, "quick", json_boolean(p->quick));
        json_object_set_new(out, "load_average_before", real(load));
        json_object_set_new(out, "load_average_after", real(load_average()));
        json_object_set_new(out, "peak_rss_bytes",
                            json_integer((json_int_t)usage.ru_maxrss * 1024));
        json_object_set_new(out, "total_seconds", real(mote__clock_s() - start));
        json_object_set(out, "rows", b.rows);
        *json = json_dumps(out, JSON_COMPACT);
        if (!*json)
            rc = mote__fail(err, MOTE_ENOMEM, "bench: out of memory");
    }
    json_decref(b.rows);
    json_decref(out);
    for (int i = 0; i < MOTE_BENCH_MODES; i++)
        if (b.env[i].kern)
            mote__linear_deinit(&b.env[i].linear);
    mote__threads_destroy(pool);
    return rc;
}
