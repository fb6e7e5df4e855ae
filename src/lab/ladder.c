#include "lab/ladder.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/err.h"
#include "lab/blame.h"
#include "lab/format_rows.h"
#include "lab/needle.h"
#include "lab/kv_text.h"
#include "lab/stats.h"
#include "base/clock.h"

enum { DECODE_TOKENS = 32, BLOCK = 256, CHUNK = 256 };

/* What a step will hold at its largest. */
typedef struct need {
    double weights, kv, windows, base_kv, base_windows, logits, scratch, total;
} need;

typedef struct climb {
    mote_model *model;
    const lab_text *text;
    const lab_ladder *l;
    const lab_progress *progress;
    mote_model_info info;
    const char *exact;                         /* the baseline's formats */
    double kv, windows, base_kv, base_windows; /* bytes per token, bytes */
    double scratch;                            /* the largest seen so far */
    int32_t *window;
} climb;

static double mebi(double bytes) { return bytes / 1048576; }

/* Bytes a process may still take: the smallest of available memory, the limit of its control group
 * and of its address space. */
static double available_bytes(void)
{
    double available = INFINITY;
    char *text = NULL;
    struct rlimit limit;
    if (!mote_doctor_json(&text, NULL)) {
        json_t *root = json_loads(text, 0, NULL), *memory = json_object_get(root, "memory");
        static const char *const keys[] = { "available_bytes", "limit_bytes" };
        for (size_t i = 0; i < 2; i++)
            if (json_is_number(json_object_get(memory, keys[i])))
                available = fmin(available, json_number_value(json_object_get(memory, keys[i])));
        json_decref(root);
    }
    mote_free(text);
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
        available = fmin(available, (double)limit.rlim_cur);
    return available;
}

/* ---- memory before it is allocated ---- */

static int formats_weigh(climb *c, mote_err *err)
{
    mote_session *s = NULL;
    int rc = mote_session_create(&s, c->model, &c->l->params, err);
    if (!rc) {
        c->kv = mote_session_kv_bytes_per_token(s, NULL);
        c->windows = (double)mote_session_window_bytes(s);
        mote_session_destroy(s);
        mote_session_params exact = { .kv = c->exact };
        rc = mote_session_create(&s, c->model, &exact, err);
    }
    if (!rc) {
        c->base_kv = mote_session_kv_bytes_per_token(s, NULL);
        c->base_windows = (double)mote_session_window_bytes(s);
        mote_session_destroy(s);
    }
    return rc;
}

static need need_of(const climb *c, size_t ctx)
{
    mote_memory m;
    mote_model_get_memory(c->model, &m);
    double blocks = ceil((double)ctx / BLOCK) * BLOCK;
    need n = { .weights = (double)m.bytes[MOTE_MEM_WEIGHTS],
               .kv = c->kv * blocks,
               .windows = c->windows,
               .scratch = c->scratch,
               .logits = (double)c->info.vocab * sizeof(float) * CHUNK };
    if (!c->l->no_base) {
        n.base_kv = c->base_kv * blocks;
        n.base_windows = c->base_windows;
        n.logits *= 2;
    }
    n.total = n.weights + n.kv + n.windows + n.base_kv + n.base_windows + n.logits + n.scratch;
    return n;
}

static json_t *need_json(const need *n, double available)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "weights", lab_real(n->weights),
                     "kv", lab_real(n->kv), "windows", lab_real(n->windows), "baseline",
                     lab_real(n->base_kv + n->base_windows), "logits", lab_real(n->logits),
                     "scratch", lab_real(n->scratch), "total", lab_real(n->total), "available",
                     lab_real(available));
}

/* Weights that are mapped are already there, so what is available counts on top of them. */
static double room_of(const climb *c, const need *n)
{
    return c->l->ram ? (double)c->l->ram : n->weights + available_bytes();
}

/* ---- one step ---- */

/* An ordinary session: read, decode, and what it holds by part. */
static int measure_use(json_t *step, climb *c, size_t ctx, mote_err *err)
{
    mote_session *s = NULL;
    size_t n_decode = ctx / 2 < DECODE_TOKENS ? ctx / 2 : DECODE_TOKENS, n_read = ctx - n_decode;
    char what[64];
    snprintf(what, sizeof what, "ctx %zu: reading", ctx);
    double seconds[2] = { 0 };
    int rc = mote_session_create(&s, c->model, &c->l->params, err);
    mote_memory m, held;
    lab_shown shown = { c->progress, what, c->model, 0 };
    for (size_t i = 0; !rc && i <= n_decode; i++) {
        mote_feed f = { s, c->window + (i ? n_read + i - 1 : 0), i ? 1 : n_read, MOTE_LOGITS_LAST };
        double t0 = mote__clock_s();
        rc = mote_run(c->model, &f, 1, lab_progress_step, &shown, err);
        seconds[i > 0] += mote__clock_s() - t0;
    }
    if (!rc) {
        mote_session_get_memory(s, &held);
        mote_model_get_memory(c->model, &m);
        c->scratch = fmax(c->scratch,
                          fmax((double)shown.scratch_peak, (double)m.bytes[MOTE_MEM_SCRATCH]));
        json_t *parts = json_object();
        for (int k = 0; k < MOTE_MEM_CLASSES; k++) {
            size_t bytes = k == MOTE_MEM_WEIGHTS ? m.bytes[k]
                           : k == MOTE_MEM_SCRATCH
                               ? (shown.scratch_peak > m.bytes[k] ? shown.scratch_peak : m.bytes[k])
                               : held.bytes[k];
            json_object_set_new(parts, mote_memory_class_name((mote_mem_class)k),
                                json_integer((json_int_t)bytes));
        }
        json_object_set_new(step, "memory", parts);
        json_object_set_new(step, "prefill_tokens_per_s", lab_real((double)n_read / seconds[0]));
        json_object_set_new(step, "decode_tokens_per_s",
                            lab_real(n_decode ? (double)n_decode / seconds[1] : (double)NAN));
        json_object_set_new(step, "peak_rss", json_integer((json_int_t)m.peak_rss));
    }
    mote_session_destroy(s);
    return rc;
}

typedef struct quality {
    double loss, error;
    int loss_fails;
    double needle, needle_error;
    int needle_fails;
} quality;

static int measure_loss(json_t *step, climb *c, size_t ctx, quality *q, mote_err *err)
{
    size_t scored = c->l->n_scored < ctx / 2 ? c->l->n_scored : ctx / 2, cut = ctx - scored;
    cut -= cut % 16;
    mote_score *scores = calloc(2 * ctx, sizeof *scores);
    if (!scores)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for the scores of %zu tokens", ctx);
    lab_case use = { .params = c->l->params, .cut = cut, .scores = scores };
    lab_case base = { .params = { .kv = c->exact, .prefill = MOTE_PREFILL_FULL },
                      .cut = cut,
                      .scores = scores + ctx };
    lab_case *cases[2] = { &use, &base };
    lab_sum loss = { 0 }, exact = { 0 }, diff = { 0 }, kl = { 0 };
    char what[64];
    snprintf(what, sizeof what, "ctx %zu: loss", ctx);
    int rc = lab_measure(c->model, c->window, ctx, cases, c->l->no_base ? 1 : 2,
                         c->l->no_base ? NULL : &base, what, c->progress, err);
    for (size_t t = cut; !rc && t + 1 < ctx; t++) {
        lab_sum_add(&loss, use.scores[t].loss);
        if (c->l->no_base)
            continue;
        lab_sum_add(&exact, base.scores[t].loss);
        lab_sum_add(&diff, use.scores[t].loss - base.scores[t].loss);
        lab_sum_add(&kl, use.scores[t].kl);
    }
    free(scores);
    if (rc)
        return rc;
    q->loss = lab_sum_mean(&diff);
    q->error = lab_sum_error(&diff);
    q->loss_fails = q->loss > c->l->max_loss && lab_is_real(q->loss, q->error, LAB_SEVERAL);
    json_object_set_new(step, "tokens", json_integer((json_int_t)loss.n));
    const struct {
        const char *name;
        double value;
    } reals[] = {
        { "loss", lab_sum_mean(&loss) },
        { "perplexity", exp(lab_sum_mean(&loss)) },
        { "base_perplexity", exp(lab_sum_mean(&exact)) },
        { "loss_minus_base", q->loss },
        { "loss_minus_base_se", q->error },
        { "kl", lab_sum_mean(&kl) },
        { "kl_se", lab_sum_error(&kl) },
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        json_object_set_new(step, reals[i].name, lab_real(reals[i].value));
    return MOTE_OK;
}

static int measure_recall(json_t *step, climb *c, size_t ctx, quality *q, mote_err *err)
{
    mote_session_params cases[2] = { { .kv = c->exact, .prefill = MOTE_PREFILL_FULL },
                                     c->l->params };
    uint64_t at = ctx;
    size_t first = c->l->no_base ? 1 : 0;
    lab_needles n = { .cases = cases + first,
                      .n_cases = 2 - first,
                      .ctx = &at,
                      .n_ctx = 1,
                      .depths = c->l->depths,
                      .n_depths = c->l->n_depths,
                      .n_samples = c->l->n_samples,
                      .seed = c->l->seed };
    json_t *result = NULL;
    int rc = lab_needle_run(&result, c->model, c->text, &n, c->progress, err);
    if (rc)
        return rc;
    const json_t *rows = json_object_get(result, "rows"), *use = json_array_get(rows, 1 - first),
                 *base = first ? NULL : json_array_get(rows, 0);
    q->needle = first ? (double)NAN : -json_number_value(json_object_get(use, "logp_minus_base"));
    q->needle_error = first ? (double)NAN
                            : json_number_value(json_object_get(use, "logp_minus_base_se"));
    q->needle_fails = q->needle > c->l->max_needle &&
                      lab_is_real(q->needle, q->needle_error, LAB_SEVERAL);
    static const char *const names[] = {
        "recall", "choice", "greedy", "margin", "margin_se", "logp_minus_base", "logp_minus_base_se"
    };
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_object_set(o, names[i], json_object_get(use, names[i]));
        char key[40];
        snprintf(key, sizeof key, "base_%s", names[i]);
        if (base && i < 4)
            json_object_set(o, key, json_object_get(base, names[i]));
    }
    json_object_set_new(o, "cells", json_incref(json_object_get(result, "cells")));
    json_object_set_new(step, "needle", o);
    json_decref(result);
    return MOTE_OK;
}

/* ---- the climb ---- */

static json_t *stop(size_t ctx, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static json_t *stop(size_t ctx, const char *reason, const char *fmt, ...)
{
    char line[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return json_pack("{s:I, s:s, s:s}", "ctx", (json_int_t)ctx, "reason", reason, "diagnosis",
                     line);
}

/* Why the step cannot begin, or NULL. */
static json_t *refuse(const climb *c, size_t ctx, json_t *step)
{
    if (ctx > c->info.max_context)
        return stop(ctx, "model", "the model's context ends at %zu tokens", c->info.max_context);
    if (ctx - 1 > c->text->n_ids)
        return stop(ctx, "text",
                    "%s has %zu tokens: not enough for a window of %zu; give a longer text",
                    c->text->path, c->text->n_ids, ctx);
    need n = need_of(c, ctx);
    double room = room_of(c, &n), left = room - (n.total - n.kv - n.base_kv),
           per_token = c->kv + (c->l->no_base ? 0 : c->base_kv);
    json_object_set_new(step, "need", need_json(&n, room));
    if (n.total <= room)
        return NULL;
    return stop(ctx, "memory",
                "out of memory, told before it is allocated: %.1f MiB are needed (weights %.1f, KV "
                "%.1f, baseline's KV %.1f, windows %.1f, logits %.1f, scratch %.1f), "
                "%.1f MiB may be used; %s%.0f tokens would fit",
                mebi(n.total), mebi(n.weights), mebi(n.kv), mebi(n.base_kv),
                mebi(n.windows + n.base_windows), mebi(n.logits), mebi(n.scratch), mebi(room),
                c->l->no_base ? "" : "without the baseline (--no-base) less is needed; with it ",
                left > 0 ? floor(left / per_token / BLOCK) * BLOCK : 0);
}

static int blame(json_t *result, climb *c, size_t ctx, mote_err *err)
{
    lab_blame b = { .kv = c->l->params.kv,
                    .topk = 4 * c->info.topk,
                    .ctx = ctx,
                    .n_windows = 1,
                    .depths = c->l->depths,
                    .n_depths = c->l->n_depths,
                    .n_samples = c->l->n_samples,
                    .seed = c->l->seed };
    json_t *found = NULL;
    int rc = lab_blame_run(&found, c->model, c->text, &b, c->progress, err);
    if (!rc)
        json_object_set_new(result, "blame", found);
    return rc;
}

static int step(json_t **stopped, json_t *out, json_t *result, climb *c, size_t ctx, mote_err *err)
{
    quality q = { .loss = (double)NAN, .needle = (double)NAN };
    json_object_set_new(out, "ctx", json_integer((json_int_t)ctx));
    if ((*stopped = refuse(c, ctx, out)))
        return MOTE_OK;
    lab_text_window(c->text, ctx, 0, c->window);
    int rc = measure_use(out, c, ctx, err);
    if (!rc)
        rc = measure_loss(out, c, ctx, &q, err);
    if (!rc && c->l->n_depths)
        rc = measure_recall(out, c, ctx, &q, err);
    if (rc == MOTE_ENOMEM) {
        *stopped = stop(ctx, "memory", "out of memory while running: %s", err->message);
        return MOTE_OK;
    }
    if (!rc && (q.loss_fails || q.needle_fails)) {
        *stopped = q.loss_fails ? stop(ctx, "quality",
                                       "the loss is %.4f +- %.4f nat a token above the unrounded "
                                       "cache's, more than the %.4f allowed",
                                       q.loss, q.error, c->l->max_loss)
                                : stop(ctx, "quality",
                                       "ln p of the needles' answers is %.3f +- %.3f nat below the "
                                       "unrounded cache's, more than the %.3f allowed",
                                       q.needle, q.needle_error, c->l->max_needle);
        rc = blame(result, c, ctx, err);
    }
    return rc;
}

int lab_ladder_run(json_t **result, mote_model *model, const lab_text *text, const lab_ladder *l,
                   const lab_progress *progress, mote_err *err)
{
    climb c = {
        .model = model, .text = text, .l = l, .progress = progress, .exact = lab_exact_kv(model)
    };
    mote_model_get_info(model, &c.info);
    size_t largest = 0;
    for (size_t i = 0; i < l->n_ctx; i++)
        if (l->ctx[i] <= c.info.max_context && l->ctx[i] <= text->n_ids + 1 && l->ctx[i] > largest)
            largest = (size_t)l->ctx[i];
    json_t *steps = json_array(), *stopped = NULL;
    *result = json_pack("{s:s?, s:s, s:o}", "kv", l->params.kv, "base", c.exact, "steps", steps);
    c.window = malloc((largest ? largest : 1) * sizeof *c.window);
    int rc = *result && c.window ? formats_weigh(&c, err)
                                 : mote__fail(err, MOTE_ENOMEM,
                                              "out of memory for a window of %zu tokens", largest);
    if (!rc)
        json_object_set_new(*result, "kv_bytes_per_token", lab_real(c.kv));
    for (size_t i = 0; !rc && !stopped && i < l->n_ctx; i++) {
        json_t *one = json_object();
        rc = step(&stopped, one, *result, &c, (size_t)l->ctx[i], err);
        json_object_set_new(one, "ok", json_boolean(!rc && !stopped));
        json_array_append_new(steps, one);
        if (!rc && l->on_step)
            l->on_step(l->on_step_ctx, one);
    }
    free(c.window);
    if (!rc)
        json_object_set_new(*result, "stopped", stopped ? stopped : json_null());
    else {
        json_decref(stopped);
        json_decref(*result);
        *result = NULL;
    }
    return rc;
}
