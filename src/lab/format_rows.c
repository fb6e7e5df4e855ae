#include "lab/format_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/stats.h"
#include "base/clock.h"

json_t *lab_real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

/* What is gathered over the windows of one context for one format. */
typedef struct row {
    lab_case c, cold; /* as asked; and the same without the store */
    const lab_store *store;
    mote_restored found;
    int exact;
    lab_sum loss, kl, same, cold_loss, difference;
    size_t reused, replayed, n_run, peak, all_exact;
    double seconds;
} row;

static int fill(void *ctx, mote_session *session, const int32_t *ids, size_t n_ids, mote_err *err)
{
    row *r = ctx;
    r->found = (mote_restored){ .exact = 1 };
    /* the last two tokens are left out, so that something is left to predict */
    return r->store->fill(r->store->ctx, session, ids, n_ids > 2 ? n_ids - 2 : 0, &r->found,
                          &r->exact, err);
}

static void gather(row *r, size_t n_ids, int has_kl)
{
    for (size_t i = r->c.first; i + 1 < n_ids; i++) {
        lab_sum_add(&r->loss, r->c.scores[i].loss);
        if (has_kl) {
            lab_sum_add(&r->kl, r->c.scores[i].kl);
            lab_sum_add(&r->same, r->c.scores[i].same_top1);
        }
    }
    lab_sum_gap(&r->loss);
    lab_sum_gap(&r->kl);
    lab_sum_gap(&r->same);
    r->seconds += r->c.seconds;
    r->n_run += r->c.n_run;
    r->peak = r->c.peak_bytes > r->peak ? r->c.peak_bytes : r->peak;
    r->reused += r->found.reused_tokens;
    r->replayed += r->found.replay_tokens;
    r->all_exact &= (size_t)r->exact;
}

static void gather_cold(row *r, size_t n_ids)
{
    const mote_score *cold = r->found.reused_tokens ? r->cold.scores : r->c.scores;
    for (size_t i = r->c.first; i + 1 < n_ids; i++) {
        lab_sum_add(&r->cold_loss, cold[i].loss);
        lab_sum_add(&r->difference, r->c.scores[i].loss - cold[i].loss);
    }
    lab_sum_gap(&r->cold_loss);
    lab_sum_gap(&r->difference);
}

int lab_speed(mote_model *model, const mote_session_params *params, const int32_t *window, size_t n,
              size_t n_decode, double *prefill, double *decode, mote_err *err)
{
    mote_session *session = NULL;
    n_decode = n / 2 < n_decode ? n / 2 : n_decode;
    size_t n_read = n - n_decode;
    int rc = mote_session_create(&session, model, params, err);
    mote_feed f = { session, window, n_read, MOTE_LOGITS_LAST };
    double t0 = mote__clock_s();
    if (!rc)
        rc = mote_run(model, &f, 1, NULL, NULL, err);
    double t1 = mote__clock_s();
    for (size_t i = 0; !rc && i < n_decode; i++) {
        f = (mote_feed){ session, window + n_read + i, 1, MOTE_LOGITS_LAST };
        rc = mote_run(model, &f, 1, NULL, NULL, err);
    }
    *prefill = (double)n_read / (t1 - t0);
    *decode = n_decode ? (double)n_decode / (mote__clock_s() - t1) : (double)NAN;
    mote_session_destroy(session);
    return rc;
}

static json_t *row_json(const row *r, const lab_formats *f, size_t ctx, size_t n_windows,
                        double prefill, double decode)
{
    json_t *o = json_pack("{s:s, s:I, s:I, s:I}", "kv", r->c.params.kv, "ctx", (json_int_t)ctx,
                          "windows", (json_int_t)n_windows, "tokens", (json_int_t)r->loss.n);
    int is_base = f->base && !f->store && !strcmp(r->c.params.kv, f->base),
        is_bf16 = f->base && !strcmp(f->base, "bf16");
    double kl = is_base ? 0 : lab_sum_mean(&r->kl), same = is_base ? 1 : lab_sum_mean(&r->same),
           loss = lab_sum_mean(&r->loss);
    const struct {
        const char *name;
        double value;
    } reals[] = {
        { "loss", loss },
        { "loss_se", lab_sum_error(&r->loss) },
        { "perplexity", exp(loss) },
        { "kl", kl },
        { "kl_se", is_base ? 0 : lab_sum_error(&r->kl) },
        { "kl_vs_bf16", is_bf16 ? kl : (double)NAN },
        { "top1_agreement", same },
        { "kv_bytes_per_token", r->c.kv_bytes },
        { "prefill_tokens_per_s", prefill },
        { "decode_tokens_per_s", decode },
        { "full_pass_tokens_per_s", (double)r->n_run / r->seconds },
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        json_object_set_new(o, reals[i].name, lab_real(reals[i].value));
    json_object_set_new(o, "peak_bytes", json_integer((json_int_t)r->peak));
    if (!f->store)
        return o;
    json_object_set_new(o, "reused_tokens", json_integer((json_int_t)r->reused));
    json_object_set_new(o, "replayed_tokens", json_integer((json_int_t)r->replayed));
    json_object_set_new(o, "computed_tokens",
                        json_integer((json_int_t)(n_windows * ctx - r->reused)));
    json_object_set_new(o, "exact", json_boolean(r->all_exact));
    json_object_set_new(o, "cold_loss", lab_real(lab_sum_mean(&r->cold_loss)));
    json_object_set_new(o, "cold_perplexity", lab_real(exp(lab_sum_mean(&r->cold_loss))));
    json_object_set_new(o, "loss_minus_cold", lab_real(lab_sum_mean(&r->difference)));
    json_object_set_new(o, "loss_minus_cold_se", lab_real(lab_sum_error(&r->difference)));
    return o;
}

/* One window: the base and all formats side by side; then, for what the store shortened, cold runs
 * of the same tokens. */
static int measure_window(mote_model *model, const lab_formats *f, row *rows, lab_case *base,
                          const int32_t *window, size_t ctx, const char *what,
                          const lab_progress *progress, mote_err *err)
{
    lab_case **cases = calloc(f->n_kv + 1, sizeof *cases);
    if (!cases)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu formats", f->n_kv);
    size_t n = 0;
    const lab_case *yardstick = NULL;
    /* a format that is the base, and cold, serves as it */
    for (size_t k = 0; k < f->n_kv; k++)
        if (f->base && !f->store && !strcmp(f->kv[k], f->base))
            yardstick = &rows[k].c;
    if (f->base && !yardstick) {
        cases[n++] = base;
        yardstick = base;
    }
    for (size_t k = 0; k < f->n_kv; k++)
        cases[n++] = &rows[k].c;
    if (f->store)
        f->store->open(f->store->ctx);
    int rc = lab_measure(model, window, ctx, cases, n, yardstick, what, progress, err);
    if (f->store)
        f->store->close(f->store->ctx);
    n = 0;
    for (size_t k = 0; !rc && k < f->n_kv; k++) {
        gather(&rows[k], ctx, yardstick && yardstick != &rows[k].c);
        if (rows[k].found.reused_tokens)
            cases[n++] = &rows[k].cold;
    }
    if (!rc && n)
        rc = lab_measure(model, window, ctx, cases, n, NULL, "the same without the store", progress,
                         err);
    for (size_t k = 0; !rc && f->store && k < f->n_kv; k++)
        gather_cold(&rows[k], ctx);
    free(cases);
    return rc;
}

static int measure_context(json_t *out, mote_model *model, const lab_text *text,
                           const lab_formats *f, size_t ctx, size_t n_windows,
                           const lab_progress *progress, mote_err *err)
{
    size_t per_row = ctx * (f->store ? 2 : 1);
    row *rows = calloc(f->n_kv, sizeof *rows);
    mote_score *scores = calloc(f->n_kv * per_row + ctx, sizeof *scores);
    int32_t *window = malloc(ctx * sizeof *window);
    lab_case base = { .params = { .kv = f->base, .prefill = MOTE_PREFILL_FULL } };
    int rc = rows && scores && window
                 ? MOTE_OK
                 : mote__fail(err, MOTE_ENOMEM, "out of memory for a window of %zu tokens", ctx);
    for (size_t k = 0; !rc && k < f->n_kv; k++) {
        row *r = &rows[k];
        r->store = f->store;
        r->all_exact = 1;
        r->exact = 1;
        r->c = (lab_case){ .params = { .kv = f->kv[k], .prefill = MOTE_PREFILL_FULL },
                           .scores = scores + k * per_row,
                           .fill = f->store ? fill : NULL,
                           .fill_ctx = r };
        r->cold = (lab_case){ .params = r->c.params, .scores = r->c.scores + (f->store ? ctx : 0) };
    }
    base.scores = scores ? scores + f->n_kv * per_row : NULL;
    for (size_t w = 0; !rc && w < n_windows; w++) {
        char what[96];
        snprintf(what, sizeof what, "%zu formats, ctx %zu, window %zu of %zu", f->n_kv, ctx, w + 1,
                 n_windows);
        lab_text_window(text, ctx, w, window);
        rc = measure_window(model, f, rows, &base, window, ctx, what, progress, err);
    }
    if (!rc)
        lab_text_window(text, ctx, 0, window);
    for (size_t k = 0; !rc && k < f->n_kv; k++) {
        mote_session_params params = { .kv = f->kv[k], .prefill = f->prefill };
        double prefill = (double)NAN, decode = (double)NAN;
        if (f->n_decode)
            rc = lab_speed(model, &params, window, ctx, f->n_decode, &prefill, &decode, err);
        if (!rc)
            json_array_append_new(out, row_json(&rows[k], f, ctx, n_windows, prefill, decode));
        if (!rc && lab_progress_at(progress, "speed", (double)(k + 1) / (double)f->n_kv))
            rc = mote__fail(err, MOTE_ECANCELED, "cancelled");
    }
    free(window);
    free(scores);
    free(rows);
    return rc;
}

int lab_formats_run(json_t *rows, mote_model *model, const lab_text *text, const lab_formats *f,
                    const lab_progress *progress, mote_err *err)
{
    int rc = MOTE_OK;
    for (size_t c = 0; !rc && c < f->n_ctx; c++) {
        size_t n = 0;
        rc = lab_text_windows(text, model, f->ctx[c], f->n_windows, &n, err);
        if (!rc)
            rc = measure_context(rows, model, text, f, f->ctx[c], n, progress, err);
    }
    return rc;
}
