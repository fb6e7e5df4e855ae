#include "lab/cuts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "lab/format_rows.h"
#include "lab/kv_text.h"
#include "lab/stats.h"

/* Ways to come by the prefix; the first is the yardstick. */
static const struct {
    const char *name;
    mote_prefill prefill;
    int hit;
    mote_replay replay;
} ways[] = {
    { "cold", MOTE_PREFILL_FULL, 0, MOTE_REPLAY_EXACT },
    { "bounded prefill", MOTE_PREFILL_BOUNDED, 0, MOTE_REPLAY_EXACT },
    { "hit, bounded replay", MOTE_PREFILL_FULL, 1, MOTE_REPLAY_BOUNDED },
    { "hit, bounded replay and prefill", MOTE_PREFILL_BOUNDED, 1, MOTE_REPLAY_BOUNDED },
    { "hit, exact replay", MOTE_PREFILL_FULL, 1, MOTE_REPLAY_EXACT },
};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

static int run_cut(json_t *rows, mote_model *model, const lab_text *text, const char *kv,
                   size_t ctx, size_t n_windows, size_t cut, mote_score *scores, int32_t *window,
                   const lab_progress *progress, mote_err *err)
{
    lab_case cases[N_WAYS], *list[N_WAYS];
    lab_sum loss[N_WAYS] = { { 0 } }, diff[N_WAYS] = { { 0 } };
    int rc = MOTE_OK;
    for (size_t i = 0; i < N_WAYS; i++) {
        cases[i] = (lab_case){ .params = { .kv = kv, .prefill = ways[i].prefill },
                               .cut = cut,
                               .hit = ways[i].hit,
                               .replay = ways[i].replay,
                               .scores = scores + i * ctx };
        list[i] = &cases[i];
    }
    for (size_t w = 0; !rc && w < n_windows; w++) {
        char what[96];
        snprintf(what, sizeof what, "cut %zu, ctx %zu, window %zu of %zu", cut, ctx, w + 1,
                 n_windows);
        lab_text_window(text, ctx, w, window);
        rc = lab_measure(model, window, ctx, list, N_WAYS, NULL, what, progress, err);
        for (size_t i = 0; !rc && i < N_WAYS; i++) {
            for (size_t t = cut; t + 1 < ctx; t++) {
                lab_sum_add(&loss[i], cases[i].scores[t].loss);
                lab_sum_add(&diff[i], cases[i].scores[t].loss - cases[0].scores[t].loss);
            }
            lab_sum_gap(&loss[i]);
            lab_sum_gap(&diff[i]);
        }
    }
    if (rc)
        return rc;
    json_t *list_json = json_array();
    for (size_t i = 1; i < N_WAYS; i++) {
        json_t *o = json_pack("{s:s}", "way", ways[i].name);
        double mean = lab_sum_mean(&diff[i]), error = lab_sum_error(&diff[i]);
        json_object_set_new(o, "loss", lab_real(lab_sum_mean(&loss[i])));
        json_object_set_new(o, "minus_cold", lab_real(mean));
        json_object_set_new(o, "minus_cold_se", lab_real(error));
        json_object_set_new(o, "beyond_noise", json_boolean(lab_is_real(mean, error, LAB_SEVERAL)));
        json_array_append_new(list_json, o);
    }
    json_array_append_new(rows, json_pack("{s:s?, s:I, s:I, s:I, s:I, s:o, s:o}", "kv", kv, "ctx",
                                          (json_int_t)ctx, "cut", (json_int_t)cut, "windows",
                                          (json_int_t)n_windows, "tokens", (json_int_t)loss[0].n,
                                          "cold_loss", lab_real(lab_sum_mean(&loss[0])), "ways",
                                          list_json));
    return MOTE_OK;
}

int lab_cuts_run(json_t **rows, mote_model *model, const lab_text *text, const char *kv, size_t ctx,
                 size_t n_windows, const uint64_t *cuts, size_t n_cuts,
                 const lab_progress *progress, mote_err *err)
{
    size_t n = 0;
    int rc = lab_text_windows(text, model, ctx, n_windows, &n, err);
    mote_model_info info;
    mote_model_get_info(model, &info);
    mote_score *scores = calloc(ctx * N_WAYS, sizeof *scores);
    int32_t *window = malloc(ctx * sizeof *window);
    *rows = json_array();
    if (!rc && (!scores || !window || !*rows))
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a window of %zu tokens", ctx);
    for (size_t i = 0; !rc && i < n_cuts; i++) {
        size_t cut = (size_t)cuts[i];
        if (cut + 2 > ctx || cut % info.prefix_multiple)
            rc = mote__fail(
                err, MOTE_EINVAL,
                "--cut: %zu must be below the window of %zu tokens and a multiple of %zu", cut, ctx,
                info.prefix_multiple);
        else
            rc = run_cut(*rows, model, text, kv, ctx, n, cut, scores, window, progress, err);
    }
    free(window);
    free(scores);
    if (rc) {
        json_decref(*rows);
        *rows = NULL;
    }
    return rc;
}

static int read_window(mote_session **s, mote_model *model, const char *kv, const int32_t *window,
                       size_t n, mote_err *err)
{
    mote_session_params params = { .kv = kv, .prefill = MOTE_PREFILL_FULL };
    int rc = mote_session_create(s, model, &params, err);
    mote_feed f = { *s, window, n, MOTE_LOGITS_NONE };
    return rc ? rc : mote_run(model, &f, 1, NULL, NULL, err);
}

int lab_kv_error_run(json_t *rows, mote_model *model, const lab_text *text, const char *const *kv,
                     size_t n_kv, size_t ctx, const lab_progress *progress, mote_err *err)
{
    int32_t *window = malloc(ctx * sizeof *window);
    mote_session *base = NULL;
    size_t n = 0;
    int rc = window ? lab_text_windows(text, model, ctx, 1, &n, err)
                    : mote__fail(err, MOTE_ENOMEM, "out of memory for a window");
    if (!rc) {
        lab_text_window(text, ctx, 0, window);
        rc = read_window(&base, model, lab_exact_kv(model), window, ctx, err);
    }
    for (size_t k = 0; !rc && k < n_kv; k++) {
        mote_session *s = NULL;
        char *json = NULL;
        rc = read_window(&s, model, kv[k], window, ctx, err);
        if (!rc)
            rc = mote_kv_error_json(s, base, &json, err);
        if (!rc)
            json_array_append_new(rows,
                                  json_pack("{s:s, s:I, s:o}", "kv", kv[k], "ctx", (json_int_t)ctx,
                                            "rows", json_loads(json, 0, NULL)));
        mote_free(json);
        mote_session_destroy(s);
        if (!rc && lab_progress_at(progress, "error of stored KV", (double)(k + 1) / (double)n_kv))
            rc = mote__fail(err, MOTE_ECANCELED, "cancelled");
    }
    mote_session_destroy(base);
    free(window);
    return rc;
}
