/* The cases of blame, measured: losses behind a prefix, and needles. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/blame.h"
#include "lab/format_rows.h"
#include "lab/needle.h"
#include "lab/needle_text.h"
#include "lab/kv_text.h"

/* Causes beside the parts of the cache, which come first. A needle context is read whole, so that a
 * hit has no place there. */
typedef enum cause { TOPK = LAB_PARTS, CANDIDATES, PREFILL, REPLAY } cause;
enum { MOST_CASES = 2 * LAB_MAX_CAUSES + 2 };

typedef struct setup {
    const lab_blame *b;
    lab_spec spec;
    char topk[2][32], specs[1 << LAB_PARTS][LAB_SPEC_BYTES]; /* by the set of exact parts */
    char control[LAB_SPEC_BYTES];
    /* causes; those that needles have: the first so many */
    size_t n, n_needle;
    int kind[LAB_MAX_CAUSES]; /* a part's number or a cause */
    const char *names[LAB_MAX_CAUSES][3];
} setup;

static void add_cause(setup *s, int kind, const char *name, const char *exact, const char *full)
{
    s->kind[s->n] = kind;
    s->names[s->n][0] = name;
    s->names[s->n][1] = exact;
    s->names[s->n++][2] = full;
}

static int prepare(setup *s, mote_model *model, const lab_blame *b, mote_err *err)
{
    mote_model_info info;
    mote_model_get_info(model, &info);
    s->b = b;
    if (lab_spec_split(&s->spec, b->kv, lab_default_kv(model)))
        return mote__fail(err, MOTE_EINVAL, "--kv: '%s' cannot be taken apart for blame", b->kv);
    for (unsigned m = 0; m < 1u << s->spec.n_parts; m++)
        lab_spec_join(s->specs[m], &s->spec, m);
    for (size_t p = 0, used = 0; p < s->spec.n_parts; p++)
        used += (size_t)snprintf(s->control + used, sizeof s->control - used, "%s%s=bf16",
                                 p ? "," : "", s->spec.name[p]);
    snprintf(s->topk[0], sizeof s->topk[0], "%zu", b->topk);
    snprintf(s->topk[1], sizeof s->topk[1], "%zu", info.topk);
    for (size_t p = 0; p < s->spec.n_parts; p++)
        add_cause(s, (int)p, s->spec.name[p], "f32", s->spec.words[p]);
    /* models that attend to everything have no selection */
    if (info.topk) {
        add_cause(s, TOPK, "top-k", b->topk == SIZE_MAX ? "every entry" : s->topk[0], s->topk[1]);
        add_cause(s, CANDIDATES, "candidates", "every entry scored", "candidate blocks");
    }
    if (info.window)
        add_cause(s, PREFILL, "prefill", "full", "bounded");
    s->n_needle = s->n;
    if (info.window)
        add_cause(s, REPLAY, "replay", "no hit", "bounded replay after a hit");
    return MOTE_OK;
}

/* on: the causes that are in their full state, by their place in the list. */
static void make_case(lab_case *c, const setup *s, unsigned on)
{
    unsigned full = 0, parts = (1u << s->spec.n_parts) - 1;
    for (size_t i = 0; i < s->n; i++)
        full |= (on >> i & 1) << s->kind[i];
    *c = (lab_case){ .params = { .kv = s->specs[~full & parts],
                                 .topk = full >> TOPK & 1 ? 0 : s->b->topk,
                                 .all_candidates = !(full >> CANDIDATES & 1),
                                 .prefill = full >> PREFILL & 1 ? MOTE_PREFILL_BOUNDED
                                                                : MOTE_PREFILL_FULL },
                     .cut = s->b->ctx / 2 / 256 * 256,
                     .hit = full >> REPLAY & 1,
                     .replay = MOTE_REPLAY_BOUNDED };
    if (c->cut == 0)
        c->cut = s->b->ctx / 2 / 16 * 16;
}

/* Which causes are on in case i of n. */
static unsigned case_mask(size_t i, size_t n)
{
    unsigned all = (1u << n) - 1;
    return i == 0                   ? 0
           : i <= n                 ? 1u << (i - 1)
           : i == lab_blame_full(n) ? all
                                    : all & ~(1u << (i - n - 2));
}

static int moves(const lab_sum *over)
{
    return lab_sum_mean(over) > 0 &&
           lab_is_real(lab_sum_mean(over), lab_sum_error(over), LAB_SEVERAL);
}

/* "top-k (0.0145), candidates (0.0065) and main (0.0017) move the predictions ...": by falling KL.
 * kl, over: by case. */
static json_t *kl_words(const setup *s, const lab_sum *kl, const lab_sum *over, double control)
{
    size_t order[LAB_MAX_CAUSES], n = 0, used = 0;
    for (size_t c = 0; c < s->n; c++) {
        if (!moves(&over[lab_blame_alone(c)]))
            continue;
        size_t at = n++;
        for (; at && lab_sum_mean(&kl[lab_blame_alone(order[at - 1])]) <
                         lab_sum_mean(&kl[lab_blame_alone(c)]);
             at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
    char line[500];
    if (n == 0)
        snprintf(line, sizeof line,
                 "By KL no single cause moves the predictions more than the control does (%.4f).",
                 control);
    for (size_t i = 0; i < n && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s (%.4f)",
                                 i == 0       ? "By KL the predictions are moved by "
                                 : i + 1 == n ? " and "
                                              : ", ",
                                 s->names[order[i]][0],
                                 lab_sum_mean(&kl[lab_blame_alone(order[i])]));
    if (n && used < sizeof line)
        snprintf(line + used, sizeof line - used,
                 ", most first, each alone; the control moves them by %.4f. Moved is not worse: "
                 "the loss says that.",
                 control);
    return json_string(line);
}

static int measure_losses(json_t *result, mote_model *model, const lab_text *text, const setup *s,
                          const lab_progress *progress, mote_err *err)
{
    const lab_blame *b = s->b;
    size_t n_windows = 0, n_cases = lab_blame_cases(s->n), control = n_cases;
    int rc = lab_text_windows(text, model, b->ctx, b->n_windows, &n_windows, err);
    lab_case cases[MOST_CASES + 1], *list[MOST_CASES + 1];
    mote_score *scores = calloc(b->ctx * (n_cases + 1), sizeof *scores);
    int32_t *window = malloc(b->ctx * sizeof *window);
    if (!rc && (!scores || !window))
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a window of %zu tokens", b->ctx);
    for (size_t i = 0; i <= n_cases; i++) {
        make_case(&cases[i], s, i == control ? 0 : case_mask(i, s->n));
        cases[i].scores = scores + i * b->ctx;
        list[i] = &cases[i];
    }
    cases[control].params.kv = s->control;
    if (!rc && cases[0].cut == 0)
        rc = mote__fail(err, MOTE_EINVAL,
                        "--blame: a window of %zu tokens is too short to cut in two", b->ctx);
    lab_blame_sums sums = { .n_causes = s->n };
    lab_sum kl[MOST_CASES + 1] = { { 0 } }, over[MOST_CASES + 1] = { { 0 } };
    for (size_t w = 0; !rc && w < n_windows; w++) {
        char what[96];
        snprintf(what, sizeof what, "blame, %zu cases, ctx %zu, window %zu of %zu", n_cases + 1,
                 b->ctx, w + 1, n_windows);
        lab_text_window(text, b->ctx, w, window);
        rc = lab_measure(model, window, b->ctx, list, n_cases + 1, &cases[0], what, progress, err);
        for (size_t t = cases[0].cut; !rc && t + 1 < b->ctx; t++) {
            double values[MOST_CASES];
            for (size_t i = 0; i < n_cases; i++)
                values[i] = cases[i].scores[t].loss;
            lab_blame_add(&sums, values);
            for (size_t i = 1; i <= n_cases; i++) {
                lab_sum_add(&kl[i], cases[i].scores[t].kl);
                lab_sum_add(&over[i], cases[i].scores[t].kl - cases[control].scores[t].kl);
            }
        }
        lab_blame_gap(&sums);
        for (size_t i = 0; i <= n_cases; i++)
            lab_sum_gap(&kl[i]), lab_sum_gap(&over[i]);
    }
    json_t *rows = json_array();
    for (size_t i = 1; !rc && i <= s->n + 2; i++) {
        size_t k = i == s->n + 2 ? control : i;
        json_t *o = json_object();
        json_object_set_new(o, "cause",
                            json_string(k == control                ? "control"
                                        : k == lab_blame_full(s->n) ? "full"
                                                                    : s->names[k - 1][0]));
        json_object_set_new(o, "kl", lab_real(lab_sum_mean(&kl[k])));
        json_object_set_new(o, "kl_se", lab_real(lab_sum_error(&kl[k])));
        json_object_set_new(o, "over_control", lab_real(k == control ? 0 : lab_sum_mean(&over[k])));
        json_object_set_new(o, "over_control_se",
                            lab_real(k == control ? 0 : lab_sum_error(&over[k])));
        json_object_set_new(o, "beyond_noise", json_boolean(k != control && moves(&over[k])));
        json_array_append_new(rows, o);
    }
    json_object_set_new(result, "cut", json_integer((json_int_t)cases[0].cut));
    json_object_set_new(result, "windows", json_integer((json_int_t)n_windows));
    json_object_set_new(result, "kl", rows);
    if (!rc)
        json_object_set_new(result, "kl_verdict",
                            kl_words(s, kl, over, lab_sum_mean(&kl[control])));
    if (!rc)
        json_object_set_new(result, "loss",
                            lab_blame_json(&sums, s->names, "loss behind the cut", "nat a token",
                                           "token"));
    free(window);
    free(scores);
    return rc;
}

static int measure_needles(json_t *result, mote_model *model, const lab_text *text, const setup *s,
                           const lab_progress *progress, mote_err *err)
{
    const lab_blame *b = s->b;
    size_t n = s->n_needle, n_cases = lab_blame_cases(n);
    lab_blame_sums sums = { .n_causes = n };
    lab_answer answers[MOST_CASES][LAB_MAX_NEEDLES];
    int rc = MOTE_OK;
    for (size_t sample = 0; !rc && sample < b->n_samples; sample++) {
        lab_haystack h;
        rc = lab_haystack_make(&h, model, text, b->ctx, b->depths, b->n_depths, b->seed, sample,
                               err);
        for (size_t i = 0; !rc && i < n_cases; i++) {
            char what[160];
            lab_case c;
            snprintf(what, sizeof what,
                     "blame, needles, ctx %zu, sample %zu of %zu, case %zu of %zu", b->ctx,
                     sample + 1, b->n_samples, i + 1, n_cases);
            make_case(&c, s, case_mask(i, n));
            rc = lab_needle_ask(answers[i], model, &c.params, &h, what, progress, err);
        }
        for (size_t d = 0; !rc && d < h.n_needles; d++) {
            double values[MOST_CASES];
            for (size_t i = 0; i < n_cases; i++)
                values[i] = -answers[i][d].logp;
            lab_blame_add(&sums, values);
        }
        lab_haystack_free(&h);
    }
    if (!rc)
        json_object_set_new(result, "needle",
                            lab_blame_json(&sums, s->names, "-ln p of the needle's answer",
                                           "nat an answer", "needle"));
    return rc;
}

int lab_blame_run(json_t **result, mote_model *model, const lab_text *text, const lab_blame *b,
                  const lab_progress *progress, mote_err *err)
{
    setup *s = calloc(1, sizeof *s);
    *result = json_pack("{s:I, s:s?}", "ctx", (json_int_t)b->ctx, "kv", b->kv);
    int rc = s && *result ? MOTE_OK : mote__fail(err, MOTE_ENOMEM, "out of memory");
    if (!rc)
        rc = prepare(s, model, b, err);
    if (!rc)
        rc = measure_losses(*result, model, text, s, progress, err);
    if (!rc && b->n_depths)
        rc = measure_needles(*result, model, text, s, progress, err);
    if (rc) {
        json_decref(*result);
        *result = NULL;
    }
    free(s);
    return rc;
}
