/* The cases of blame, measured: losses behind a prefix, and needles. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/blame.h"
#include "lab/formats.h"
#include "lab/needle.h"
#include "lab/needle_text.h"
#include "lab/spec.h"

/* Causes in a fixed order. The three parts of the cache come first, as in lab_parts. A needle context is read whole, so a hit has no place there. */
enum { TOPK = LAB_PARTS, CANDIDATES, PREFILL, REPLAY, N_CAUSES, N_NEEDLE_CAUSES = REPLAY };

typedef struct setup {
    const lab_blame *b;
    lab_spec spec;
    char topk[2][32], specs[1 << LAB_PARTS][LAB_SPEC_BYTES];      /* by the set of exact parts */
    const char *names[N_CAUSES][3];
} setup;

static int prepare(setup *s, const mote_model *model, const lab_blame *b, mote_err *err)
{
    mote_model_info info;
    mote_model_get_info(model, &info);
    s->b = b;
    if (lab_spec_split(&s->spec, b->kv))
        return mote__fail(err, MOTE_EINVAL, "--kv: '%s' cannot be taken apart for blame", b->kv);
    for (unsigned m = 0; m < 1u << LAB_PARTS; m++)
        lab_spec_join(s->specs[m], &s->spec, m);
    for (size_t p = 0; p < LAB_PARTS; p++) {
        s->names[p][0] = lab_parts[p];
        s->names[p][1] = "f32";
        s->names[p][2] = s->spec.words[p];
    }
    snprintf(s->topk[0], sizeof s->topk[0], "%zu", b->topk);
    snprintf(s->topk[1], sizeof s->topk[1], "%zu", info.topk);
    const char *const more[][3] = {
        { "top-k", b->topk == SIZE_MAX ? "every entry" : s->topk[0], s->topk[1] },
        { "candidates", "every entry scored", "candidate blocks" },
        { "prefill", "full", "bounded" },
        { "replay", "no hit", "bounded replay after a hit" },
    };
    memcpy(s->names + TOPK, more, sizeof more);
    return MOTE_OK;
}

/* on: the causes that are in their full state. */
static void make_case(lab_case *c, const setup *s, unsigned on)
{
    unsigned exact = ~on & ((1u << LAB_PARTS) - 1);
    *c = (lab_case){ .params = { .kv = s->specs[exact], .topk = on >> TOPK & 1 ? 0 : s->b->topk, .all_candidates = !(on >> CANDIDATES & 1),
                                 .prefill = on >> PREFILL & 1 ? MOTE_PREFILL_BOUNDED : MOTE_PREFILL_FULL },
                     .cut = s->b->ctx / 2 / 256 * 256, .hit = on >> REPLAY & 1, .replay = MOTE_REPLAY_BOUNDED };
    if (c->cut == 0)
        c->cut = s->b->ctx / 2 / 16 * 16;
}

/* Which causes are on in case i of n. */
static unsigned case_mask(size_t i, size_t n)
{
    unsigned all = (1u << n) - 1;
    return i == 0 ? 0 : i <= n ? 1u << (i - 1) : i == lab_blame_full(n) ? all : all & ~(1u << (i - n - 2));
}

static int moves(const lab_sum *over) { return lab_sum_mean(over) > 0 && lab_is_real(lab_sum_mean(over), lab_sum_error(over), LAB_SEVERAL); }

/* "top-k (0.0145), candidates (0.0065) and main (0.0017) move the predictions ...": by falling KL. kl, over: by case. */
static json_t *kl_words(const setup *s, const lab_sum *kl, const lab_sum *over, double control)
{
    size_t order[N_CAUSES], n = 0, used = 0;
    for (size_t c = 0; c < N_CAUSES; c++) {
        if (!moves(&over[lab_blame_alone(c)]))
            continue;
        size_t at = n++;
        for (; at && lab_sum_mean(&kl[lab_blame_alone(order[at - 1])]) < lab_sum_mean(&kl[lab_blame_alone(c)]); at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
    char line[500];
    if (n == 0)
        snprintf(line, sizeof line, "By KL no single cause moves the predictions more than the control does (%.4f).", control);
    for (size_t i = 0; i < n && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s (%.4f)", i == 0 ? "By KL the predictions are moved by " : i + 1 == n ? " and " : ", ",
                                 s->names[order[i]][0], lab_sum_mean(&kl[lab_blame_alone(order[i])]));
    if (n && used < sizeof line)
        snprintf(line + used, sizeof line - used, ", most first, each alone; the control moves them by %.4f. Moved is not worse: the loss says that.", control);
    return json_string(line);
}

static int measure_losses(json_t *result, mote_model *model, const lab_text *text, const setup *s, const lab_progress *progress, mote_err *err)
{
    enum { CASES = 2 * N_CAUSES + 2, CONTROL = CASES };
    const lab_blame *b = s->b;
    size_t n_windows = 0;
    int rc = lab_text_windows(text, model, b->ctx, b->n_windows, &n_windows, err);
    lab_case cases[CASES + 1], *list[CASES + 1];
    mote_score *scores = calloc(b->ctx * (CASES + 1), sizeof *scores);
    int32_t *window = malloc(b->ctx * sizeof *window);
    if (!rc && (!scores || !window))
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a window of %zu tokens", b->ctx);
    for (size_t i = 0; i <= CASES; i++) {
        make_case(&cases[i], s, i == CONTROL ? 0 : case_mask(i, N_CAUSES));
        cases[i].scores = scores + i * b->ctx;
        list[i] = &cases[i];
    }
    cases[CONTROL].params.kv = "main=bf16,index=bf16,window=bf16";
    if (!rc && cases[0].cut == 0)
        rc = mote__fail(err, MOTE_EINVAL, "--blame: a window of %zu tokens is too short to cut in two", b->ctx);
    lab_blame_sums sums = { .n_causes = N_CAUSES };
    lab_sum kl[CASES + 1] = { { 0 } }, over[CASES + 1] = { { 0 } };
    for (size_t w = 0; !rc && w < n_windows; w++) {
        char what[96];
        snprintf(what, sizeof what, "blame, %d cases, ctx %zu, window %zu of %zu", CASES + 1, b->ctx, w + 1, n_windows);
        lab_text_window(text, b->ctx, w, window);
        rc = lab_measure(model, window, b->ctx, list, CASES + 1, &cases[0], what, progress, err);
        for (size_t t = cases[0].cut; !rc && t + 1 < b->ctx; t++) {
            double values[CASES];
            for (size_t i = 0; i < CASES; i++)
                values[i] = cases[i].scores[t].loss;
            lab_blame_add(&sums, values);
            for (size_t i = 1; i <= CASES; i++) {
                lab_sum_add(&kl[i], cases[i].scores[t].kl);
                lab_sum_add(&over[i], cases[i].scores[t].kl - cases[CONTROL].scores[t].kl);
            }
        }
        lab_blame_gap(&sums);
        for (size_t i = 0; i <= CASES; i++)
            lab_sum_gap(&kl[i]), lab_sum_gap(&over[i]);
    }
    json_t *rows = json_array();
    for (size_t i = 1; !rc && i <= N_CAUSES + 2; i++) {
        size_t k = i == N_CAUSES + 2 ? CONTROL : i;
        json_t *o = json_object();
        json_object_set_new(o, "cause", json_string(k == CONTROL ? "control" : k == lab_blame_full(N_CAUSES) ? "full" : s->names[k - 1][0]));
        json_object_set_new(o, "kl", lab_real(lab_sum_mean(&kl[k])));
        json_object_set_new(o, "kl_se", lab_real(lab_sum_error(&kl[k])));
        json_object_set_new(o, "over_control", lab_real(k == CONTROL ? 0 : lab_sum_mean(&over[k])));
        json_object_set_new(o, "over_control_se", lab_real(k == CONTROL ? 0 : lab_sum_error(&over[k])));
        json_object_set_new(o, "beyond_noise", json_boolean(k != CONTROL && moves(&over[k])));
        json_array_append_new(rows, o);
    }
    json_object_set_new(result, "cut", json_integer((json_int_t)cases[0].cut));
    json_object_set_new(result, "windows", json_integer((json_int_t)n_windows));
    json_object_set_new(result, "kl", rows);
    if (!rc)
        json_object_set_new(result, "kl_verdict", kl_words(s, kl, over, lab_sum_mean(&kl[CONTROL])));
    if (!rc)
        json_object_set_new(result, "loss", lab_blame_json(&sums, s->names, "loss behind the cut", "nat a token", "token"));
    free(window);
    free(scores);
    return rc;
}

static int measure_needles(json_t *result, mote_model *model, const lab_text *text, const setup *s, const lab_progress *progress, mote_err *err)
{
    enum { CASES = 2 * N_NEEDLE_CAUSES + 2 };
    const lab_blame *b = s->b;
    lab_blame_sums sums = { .n_causes = N_NEEDLE_CAUSES };
    lab_answer answers[CASES][LAB_MAX_NEEDLES];
    int rc = MOTE_OK;
    for (size_t sample = 0; !rc && sample < b->n_samples; sample++) {
        lab_haystack h;
        rc = lab_haystack_make(&h, model, text, b->ctx, b->depths, b->n_depths, b->seed, sample, err);
        for (size_t i = 0; !rc && i < CASES; i++) {
            char what[96];
            lab_case c;
            snprintf(what, sizeof what, "blame, needles, ctx %zu, sample %zu of %zu, case %zu of %d", b->ctx, sample + 1, b->n_samples, i + 1, CASES);
            make_case(&c, s, case_mask(i, N_NEEDLE_CAUSES));
            rc = lab_needle_ask(answers[i], model, &c.params, &h, what, progress, err);
        }
        for (size_t d = 0; !rc && d < h.n_needles; d++) {
            double values[CASES];
            for (size_t i = 0; i < CASES; i++)
                values[i] = -answers[i][d].logp;
            lab_blame_add(&sums, values);
        }
        lab_haystack_free(&h);
    }
    if (!rc)
        json_object_set_new(result, "needle",
                            lab_blame_json(&sums, s->names, "-ln p of the needle's answer", "nat an answer", "needle"));
    return rc;
}

int lab_blame_run(json_t **result, mote_model *model, const lab_text *text, const lab_blame *b, const lab_progress *progress, mote_err *err)
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
