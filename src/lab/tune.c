#include "lab/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_string.h"
#include "lab/format_rows.h"
#include "lab/knapsack.h"
#include "lab/needle.h"
#include "lab/needle_text.h"
#include "lab/profile.h"
#include "lab/kv_text.h"
#include "lab/stats.h"

const char *const lab_task_names[] = { "generation", "retrieval", NULL };
const char *const lab_task_units[] = { "KL, nat a token", "change of ln p(answer), nat^2" };

enum {
    MAX_ITEMS = 64,
    MAX_OPTIONS = 16,
    N_GLOBAL = 2 /* main and index; windows cost nothing per token */,
    BATCH = 63
};

typedef struct choice {
    const char *format;
    double bytes;
    char kv[64];
    lab_sum cost;
} choice;
typedef struct item {
    long layer;
    size_t part, n;
    choice options[MAX_OPTIONS];
} item;

typedef struct tuning {
    mote_model *model;
    const lab_text *text;
    const lab_tune *t;
    const lab_progress *progress;
    item items[MAX_ITEMS];
    size_t n_items;
    int32_t *window;
    /* Windows too: one that is rounded turns any disturbance, however small, into flipped
     * roundings, and a floor that does not add up. */
    const char *exact;
    /* names of the model's parts; the first two grow with the context */
    lab_spec parts;
} tuning;

/* ---- what there is to choose ---- */

static int plan_of(json_t **root, const tuning *t, const char *kv, mote_err *err)
{
    char *text = NULL;
    *root = NULL;
    int rc = mote_plan_json(&text, t->t->model_path, kv, NULL, 0, 0, err);
    if (!rc && !(*root = json_loads(text, 0, NULL)))
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory");
    mote_free(text);
    return rc;
}

/* Does the model take these formats? */
static int taken(const tuning *t, const char *kv)
{
    mote_session_params params = { .kv = kv };
    mote_session *s = NULL;
    int good = mote_session_create(&s, t->model, &params, NULL) == MOTE_OK;
    mote_session_destroy(s);
    return good;
}

static int add_options(tuning *t, const char *format, mote_err *err)
{
    for (size_t part = 0; part < N_GLOBAL; part++) {
        char kv[96], key[40];
        snprintf(kv, sizeof kv, "%s=%.24s", t->parts.name[part], format);
        snprintf(key, sizeof key, "%s_bytes_per_entry", t->parts.name[part]);
        json_t *plan = NULL;
        if (!taken(t, kv))
            continue;
        int rc = plan_of(&plan, t, kv, err);
        if (rc)
            return rc;
        const json_t *row;
        size_t i;
        json_array_foreach(json_object_get(plan, "sources"), i, row)
        {
            const json_t *layer = json_object_get(row, "layer");
            size_t at = i * N_GLOBAL + part;
            if (at >= MAX_ITEMS || !json_is_integer(layer))
                continue;
            item *it = &t->items[at];
            t->n_items = at + 1 > t->n_items ? at + 1 : t->n_items;
            it->layer = (long)json_integer_value(layer);
            it->part = part;
            if (it->n == MAX_OPTIONS)
                continue;
            choice *c = &it->options[it->n++];
            *c = (choice){ .format = format,
                           .bytes = json_number_value(json_object_get(row, key)) /
                                    json_number_value(json_object_get(row, "ratio")) };
            snprintf(c->kv, sizeof c->kv, "%s.%ld=%.24s", t->parts.name[part], it->layer, format);
        }
        json_decref(plan);
    }
    return MOTE_OK;
}

static int list_items(tuning *t, mote_err *err)
{
    int rc = MOTE_OK;
    for (size_t f = 0; !rc && f < t->t->n_formats; f++)
        rc = add_options(t, t->t->formats[f], err);
    if (rc)
        return rc;
    if (!t->n_items)
        return mote__fail(err, MOTE_EUNSUPPORTED,
                          "%s: no KV source of this model can be given a format of its own",
                          t->t->model_path);
    for (size_t i = 0; i < t->n_items; i++)
        if (!t->items[i].n)
            return mote__fail(err, MOTE_EINVAL, "--formats: none of them fits %s of layer %ld",
                              t->parts.name[t->items[i].part], t->items[i].layer);
    return MOTE_OK;
}

/* ---- what each costs ---- */

/* The text with one item rounded and everything else exact. */
static void kv_of(char out[128], const tuning *t, const choice *c)
{
    snprintf(out, 128, "%s,%s", t->exact, c->kv);
}

static int generation_cost(tuning *t, choice **list, size_t n, size_t window, mote_err *err)
{
    size_t ctx = t->t->ctx;
    lab_case *cases = calloc(n + 1, sizeof *cases), **all = calloc(n + 1, sizeof *all);
    char(*kv)[128] = calloc(n + 1, sizeof *kv);
    mote_score *scores = calloc((n + 1) * ctx, sizeof *scores);
    int rc = cases && all && kv && scores
                 ? MOTE_OK
                 : mote__fail(err, MOTE_ENOMEM, "out of memory for %zu cases of %zu tokens", n + 1,
                              ctx);
    char what[96];
    snprintf(what, sizeof what, "sensitivities, window %zu of %zu, %zu cases", window + 1,
             t->t->n_windows, n);
    for (size_t i = 0; !rc && i <= n; i++) {
        if (i < n)
            kv_of(kv[i], t, list[i]);
        cases[i] = (lab_case){ .params = { .kv = i < n ? kv[i] : t->exact,
                                           .prefill = MOTE_PREFILL_FULL },
                               .scores = scores + i * ctx };
        all[i] = &cases[i];
    }
    lab_text_window(t->text, ctx, window, t->window);
    if (!rc)
        rc = lab_measure(t->model, t->window, ctx, all, n + 1, &cases[n], what, t->progress, err);
    for (size_t i = 0; !rc && i < n; i++) {
        for (size_t k = 0; k + 1 < ctx; k++)
            lab_sum_add(&list[i]->cost, cases[i].scores[k].kl);
        lab_sum_gap(&list[i]->cost);
    }
    free(scores);
    free(kv);
    free(all);
    free(cases);
    return rc;
}

static int retrieval_cost(tuning *t, choice **list, size_t n, size_t sample, mote_err *err)
{
    lab_haystack h;
    lab_answer base[LAB_MAX_NEEDLES], answers[LAB_MAX_NEEDLES];
    mote_session_params params = { .kv = t->exact };
    int rc = lab_haystack_make(&h, t->model, t->text, t->t->ctx, t->t->depths, t->t->n_depths,
                               t->t->seed, sample, err);
    if (!rc)
        rc = lab_needle_ask(base, t->model, &params, &h, "needles, exact", t->progress, err);
    for (size_t i = 0; !rc && i < n; i++) {
        char kv[128], what[96];
        kv_of(kv, t, list[i]);
        params.kv = kv;
        snprintf(what, sizeof what, "sensitivities, sample %zu of %zu, case %zu of %zu", sample + 1,
                 t->t->n_samples, i + 1, n);
        rc = lab_needle_ask(answers, t->model, &params, &h, what, t->progress, err);
        for (size_t d = 0; !rc && d < h.n_needles; d++)
            lab_sum_add(&list[i]->cost, pow(answers[d].logp - base[d].logp, 2));
    }
    lab_haystack_free(&h);
    return rc;
}

static int measure_costs(tuning *t, mote_err *err)
{
    choice *list[MAX_ITEMS * MAX_OPTIONS];
    size_t n = 0, rounds = t->t->task == LAB_GENERATION ? t->t->n_windows : t->t->n_samples;
    for (size_t i = 0; i < t->n_items; i++)
        for (size_t o = 0; o < t->items[i].n; o++)
            list[n++] = &t->items[i].options[o];
    int rc = MOTE_OK;
    for (size_t w = 0; !rc && w < rounds; w++)
        for (size_t at = 0; !rc && at < n; at += BATCH) {
            size_t some = n - at < BATCH ? n - at : BATCH;
            rc = t->t->task == LAB_GENERATION ? generation_cost(t, list + at, some, w, err)
                                              : retrieval_cost(t, list + at, some, w, err);
        }
    return rc;
}

/* ---- choosing and checking ---- */

static int choose(lab_frontier *frontier, const lab_point **best, const tuning *t, double budget,
                  mote_err *err)
{
    lab_option options[MAX_ITEMS][MAX_OPTIONS];
    lab_item items[MAX_ITEMS];
    for (size_t i = 0; i < t->n_items; i++) {
        items[i] = (lab_item){ options[i], t->items[i].n };
        for (size_t o = 0; o < items[i].n; o++) {
            const choice *c = &t->items[i].options[o];
            options[i][o] = (lab_option){ c->bytes, c->cost.n ? lab_sum_mean(&c->cost) : 0 };
        }
    }
    if (lab_frontier_make(frontier, items, t->n_items))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for the choice among %zu parts",
                          t->n_items);
    *best = lab_frontier_best(frontier, budget);
    if (!*best)
        return mote__fail(
            err, MOTE_EINVAL,
            "--budget: %g bytes a token are too few: the smallest of these formats take %g", budget,
            frontier->points[0].bytes);
    return MOTE_OK;
}

/* The choice as the shortest text that says it. */
static int spec_of(char out[LAB_SPEC_BYTES], const tuning *t, const lab_point *p, mote_err *err)
{
    size_t used = 0;
    for (size_t i = 0; i < t->n_items && used < LAB_SPEC_BYTES; i++)
        used += (size_t)snprintf(out + used, LAB_SPEC_BYTES - used, "%s%s", i ? "," : "",
                                 t->items[i].options[p->choice[i]].kv);
    json_t *plan = NULL;
    int rc = plan_of(&plan, t, out, err);
    const char *kv = json_string_value(json_object_get(plan, "kv"));
    if (kv && strlen(kv) < LAB_SPEC_BYTES)
        strcpy(out, kv);
    json_decref(plan);
    return rc;
}

/* The whole choice and the default formats, measured against exact on windows [first, first + n):
 * {kv, bytes, loss..., kl...} rows. */
static int verify(json_t **rows, const tuning *t, const char *kv, size_t first, size_t n,
                  mote_err *err)
{
    enum { CASES = 4 };
    char alone[LAB_SPEC_BYTES + 16];
    lab_spec spec;
    if (lab_spec_split(&spec, kv, lab_default_kv(t->model)))
        return mote__fail(err, MOTE_EINVAL, "'%s' is too long", kv);
    lab_spec_join(alone, &spec, 1u << 2);
    const char *const specs[CASES] = { t->exact, kv, NULL, alone };
    const char *const names[CASES] = { "exact", "chosen", "default", "chosen, windows f32" };
    size_t ctx = t->t->ctx, peak = 0;
    lab_case cases[CASES], *all[CASES];
    lab_sum kl[CASES] = { { 0 } }, loss[CASES] = { { 0 } }, diff[CASES] = { { 0 } };
    mote_score *scores = calloc(CASES * ctx, sizeof *scores);
    int rc = scores ? MOTE_OK : mote__fail(err, MOTE_ENOMEM, "out of memory for a window");
    for (size_t w = first; !rc && w < first + n; w++) {
        for (size_t i = 0; i < CASES; i++) {
            cases[i] = (lab_case){ .params = { .kv = specs[i], .prefill = MOTE_PREFILL_FULL },
                                   .scores = scores + i * ctx };
            all[i] = &cases[i];
        }
        lab_text_window(t->text, ctx, w, t->window);
        rc = lab_measure(t->model, t->window, ctx, all, CASES, &cases[0], "checking the choice",
                         t->progress, err);
        for (size_t i = 0; !rc && i < CASES; i++) {
            for (size_t k = 0; k + 1 < ctx; k++) {
                lab_sum_add(&kl[i], i ? cases[i].scores[k].kl : 0);
                lab_sum_add(&loss[i], cases[i].scores[k].loss);
                lab_sum_add(&diff[i], cases[i].scores[k].loss - cases[0].scores[k].loss);
            }
            lab_sum_gap(&kl[i]), lab_sum_gap(&loss[i]), lab_sum_gap(&diff[i]);
        }
        peak = cases[1].peak_bytes > peak ? cases[1].peak_bytes : peak;
    }
    *rows = json_array();
    for (size_t i = 0; !rc && i < CASES; i++) {
        json_t *o = json_pack("{s:s, s:s?, s:f, s:I}", "name", names[i], "kv", specs[i],
                              "bytes_per_token", cases[i].kv_bytes, "tokens",
                              (json_int_t)loss[i].n);
        const struct {
            const char *name;
            double value;
        } reals[] = {
            { "loss", lab_sum_mean(&loss[i]) },
            { "perplexity", exp(lab_sum_mean(&loss[i])) },
            { "loss_minus_exact", lab_sum_mean(&diff[i]) },
            { "loss_minus_exact_se", lab_sum_error(&diff[i]) },
            { "kl", lab_sum_mean(&kl[i]) },
            { "kl_se", lab_sum_error(&kl[i]) },
        };
        for (size_t k = 0; k < sizeof reals / sizeof reals[0]; k++)
            json_object_set_new(o, reals[k].name, lab_real(reals[k].value));
        json_object_set_new(o, "peak_bytes", json_integer((json_int_t)cases[i].peak_bytes));
        json_array_append_new(*rows, o);
    }
    free(scores);
    return rc;
}

static int verify_needles(json_t **needles, const tuning *t, const char *kv, mote_err *err)
{
    const mote_session_params cases[3] = { { .kv = t->exact },
                                           { .kv = kv },
                                           { .kv = lab_default_kv(t->model) } };
    uint64_t ctx = t->t->ctx;
    /* other needles than those that were measured */
    lab_needles n = { .cases = cases,
                      .n_cases = 3,
                      .ctx = &ctx,
                      .n_ctx = 1,
                      .depths = t->t->depths,
                      .n_depths = t->t->n_depths,
                      .n_samples = t->t->n_samples,
                      .seed = t->t->seed + 1 };
    return lab_needle_run(needles, t->model, t->text, &n, t->progress, err);
}

/* ---- the report ---- */

static json_t *items_json(const tuning *t, const lab_point *best)
{
    json_t *items = json_array();
    for (size_t i = 0; i < t->n_items; i++) {
        json_t *options = json_array();
        for (size_t o = 0; o < t->items[i].n; o++) {
            const choice *c = &t->items[i].options[o];
            json_array_append_new(options, json_pack("{s:s, s:f, s:o, s:o, s:b}", "format",
                                                     c->format, "bytes_per_token", c->bytes, "cost",
                                                     lab_real(lab_sum_mean(&c->cost)), "cost_se",
                                                     lab_real(lab_sum_error(&c->cost)), "chosen",
                                                     o == best->choice[i]));
        }
        json_array_append_new(
            items, json_pack("{s:I, s:s, s:o}", "layer", (json_int_t)t->items[i].layer, "part",
                             t->parts.name[t->items[i].part], "options", options));
    }
    return items;
}

static json_t *frontier_json(const lab_frontier *f)
{
    json_t *points = json_array();
    for (size_t i = 0; i < f->n; i++)
        json_array_append_new(points, json_pack("{s:f, s:f}", "bytes_per_token", f->points[i].bytes,
                                                "predicted", f->points[i].cost));
    return points;
}

/* How far the additive model was off: the measured cost of the whole choice. For retrieval only the
 * check's needles can tell. */
static void add_verdict(json_t *result, const lab_tune *t, double predicted)
{
    const json_t *chosen = json_array_get(json_object_get(result, "verified"), 3);
    char line[300];
    if (t->task != LAB_GENERATION) {
        const json_t *row = json_array_get(
            json_object_get(json_object_get(result, "needle"), "rows"), 1);
        snprintf(line, sizeof line,
                 "predicted: a mean square change of %.5f nat^2 (%.4f nat) of ln p(answer); on "
                 "other needles its mean change is %+.4f +- %.4f nat",
                 predicted, sqrt(predicted),
                 json_number_value(json_object_get(row, "logp_minus_base")),
                 json_number_value(json_object_get(row, "logp_minus_base_se")));
    } else {
        double kl = json_number_value(json_object_get(chosen, "kl")),
               se = json_number_value(json_object_get(chosen, "kl_se"));
        json_object_set_new(result, "measured", lab_real(kl));
        json_object_set_new(result, "measured_se", lab_real(se));
        snprintf(line, sizeof line,
                 "predicted a KL of %.5f, measured %.5f +- %.5f (windows f32): %s by %.0f %%",
                 predicted, kl, se, kl >= predicted ? "more" : "less",
                 100 * fabs(kl - predicted) / (predicted > 0 ? predicted : 1));
    }
    json_object_set_new(result, "judgement", json_string(line));
}

static json_t *profile_json(const json_t *result, const tuning *t, const char *fingerprint,
                            double prefill, double decode)
{
    mote_model_info info;
    mote_model_get_info(t->model, &info);
    const char *slash = strrchr(t->t->model_path, '/'),
               *name = slash && slash[1] ? slash + 1 : t->t->model_path;
    const json_t *chosen = json_array_get(json_object_get(result, "verified"), 1),
                 *held = json_array_get(json_object_get(result, "heldout"), 1);
    json_t *measured = json_pack(
        "{s:I, s:I, s:O, s:O, s:O, s:O?, s:o, s:o, s:i, s:s, s:O}", "ctx", (json_int_t)t->t->ctx,
        "tokens", json_integer_value(json_object_get(chosen, "tokens")), "chosen", chosen, "exact",
        json_array_get(json_object_get(result, "verified"), 0), "default",
        json_array_get(json_object_get(result, "verified"), 2), "heldout", held,
        "prefill_tokens_per_s", lab_real(prefill), "decode_tokens_per_s", lab_real(decode),
        "threads", info.n_threads, "cpu", info.cpu, "peak_bytes",
        json_object_get(chosen, "peak_bytes"));
    return json_pack("{s:s, s:i, s:s, s:{s:o, s:s, s:s, s:I}, s:O, s:O, s:s, s:f, s:O, s:s, s:o}",
                     "format", "mote-profile", "version", LAB_PROFILE_VERSION, "mote",
                     mote_version(), "model", "name", mote__json_string(name), "fingerprint",
                     fingerprint, "family", info.family, "layers", (json_int_t)info.n_layers, "kv",
                     json_object_get(result, "kv"), "bytes_per_token",
                     json_object_get(result, "bytes_per_token"), "task", lab_task_names[t->t->task],
                     "budget", json_number_value(json_object_get(result, "budget")), "predicted",
                     json_object_get(result, "predicted"), "judgement",
                     json_string_value(json_object_get(result, "judgement")), "measured", measured);
}

static int report(json_t **out, tuning *t, double budget, mote_err *err)
{
    lab_frontier frontier = { 0 };
    const lab_point *best = NULL;
    char spec[LAB_SPEC_BYTES] = "", hex[65] = "";
    json_t *verified = NULL, *heldout = NULL, *needle = NULL;
    double prefill = (double)NAN, decode = (double)NAN;
    size_t n = t->t->n_windows, whole = 0;
    int rc = choose(&frontier, &best, t, budget, err);
    if (!rc) {
        rc = spec_of(spec, t, best, err);
    }
    if (!rc) {
        rc = verify(&verified, t, spec, 0, n, err);
    }
    if (!rc)
        rc = lab_text_windows(t->text, t->model, t->t->ctx, 0, &whole, err);
    if (!rc && whole > n) /* tokens that had no part in the choice */
        rc = verify(&heldout, t, spec, n, whole - n < n ? whole - n : n, err);
    if (!rc && t->t->task == LAB_RETRIEVAL)
        rc = verify_needles(&needle, t, spec, err);
    mote_session_params params = { .kv = spec };
    lab_text_window(t->text, t->t->ctx, 0, t->window);
    if (!rc)
        rc = lab_speed(t->model, &params, t->window, t->t->ctx, 32, &prefill, &decode, err);
    if (!rc)
        rc = mote_fingerprint(t->t->model_path, hex, err);
    if (!rc) {
        *out = json_pack("{s:s, s:s, s:f, s:s, s:f, s:f, s:o, s:o, s:o, s:o?, s:o?}", "task",
                         lab_task_names[t->t->task], "cost", lab_task_units[t->t->task], "budget",
                         budget, "kv", spec, "bytes_per_token", best->bytes, "predicted",
                         best->cost, "items", items_json(t, best), "frontier",
                         frontier_json(&frontier), "verified", verified, "heldout", heldout,
                         "needle", needle);
        verified = heldout = needle = NULL;
        add_verdict(*out, t->t, best->cost);
        json_object_set_new(*out, "profile", profile_json(*out, t, hex, prefill, decode));
        if (!*out || !json_object_get(*out, "profile"))
            rc = mote__fail(err, MOTE_ENOMEM, "out of memory");
    }
    json_decref(verified);
    json_decref(heldout);
    json_decref(needle);
    lab_frontier_free(&frontier);
    return rc;
}

int lab_tune_run(json_t **result, mote_model *model, const lab_text *text, const lab_tune *request,
                 const lab_progress *progress, mote_err *err)
{
    *result = NULL;
    tuning *t = calloc(1, sizeof *t);
    size_t n = 0;
    if (!t)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    *t = (tuning){ .model = model,
                   .text = text,
                   .t = request,
                   .progress = progress,
                   .exact = lab_exact_kv(model) };
    lab_spec_split(&t->parts, NULL, lab_default_kv(model));
    int rc = lab_text_windows(text, model, request->ctx, request->n_windows, &n, err);
    if (!rc && !(t->window = malloc(request->ctx * sizeof *t->window)))
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a window of %zu tokens", request->ctx);
    lab_tune with = *request;
    with.n_windows = n;
    t->t = &with;
    double budget = request->budget;
    if (!rc && budget <= 0) {
        mote_session *s = NULL;
        rc = mote_session_create(&s, model, NULL, err);
        budget = rc ? 0 : mote_session_kv_bytes_per_token(s, NULL);
        mote_session_destroy(s);
    }
    if (!rc)
        rc = list_items(t, err);
    lab_frontier frontier = { 0 };
    const lab_point *best;
    /* a budget that cannot be met is said before anything is measured */
    if (!rc)
        rc = choose(&frontier, &best, t, budget, err);
    lab_frontier_free(&frontier);
    if (!rc)
        rc = measure_costs(t, err);
    if (!rc)
        rc = report(result, t, budget, err);
    if (rc) {
        json_decref(*result);
        *result = NULL;
    }
    free(t->window);
    free(t);
    return rc;
}
