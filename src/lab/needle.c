#include "lab/needle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/format_rows.h"
#include "lab/needle_text.h"
#include "lab/stats.h"

/* ---- asking ---- */

/* One possible answer to one question: a fork that reads it. */
typedef struct candidate {
    size_t needle, answer;
    mote_session *session;
    double logp;
    int exact;
} candidate;

typedef struct asking {
    mote_model *model;
    const lab_haystack *h;
    size_t limit;                         /* tokens a session may hold */
    mote_session *asked[LAB_MAX_NEEDLES]; /* the context and needle i's question */
    candidate *list;
    size_t n;
    mote_feed *feeds;
} asking;

static const int32_t *answer_ids(const lab_needle *n) { return n->ids + n->n_question; }

static int ask_questions(asking *a, mote_session *context, mote_err *err)
{
    int rc = MOTE_OK;
    for (size_t i = 0; !rc && i < a->h->n_needles; i++) {
        rc = mote_session_fork(&a->asked[i], context, err);
        a->feeds[i] = (mote_feed){ a->asked[i], a->h->needle[i].ids, a->h->needle[i].n_question,
                                   MOTE_LOGITS_LAST };
    }
    return rc ? rc : mote_run(a->model, a->feeds, a->h->n_needles, NULL, NULL, err);
}

/* First tokens are scored from the question's logits, the others by forks that read the answer but
 * its last token. */
static int score_candidates(asking *a, mote_err *err)
{
    int rc = MOTE_OK;
    size_t n_feeds = 0;
    for (size_t i = 0; !rc && i < a->n; i++) {
        candidate *c = &a->list[i];
        const lab_needle *n = &a->h->needle[c->answer];
        mote_score s;
        mote_score_rows(a->model, mote_session_logits(a->asked[c->needle], NULL, NULL), NULL, 1,
                        answer_ids(n), &s);
        c->logp = -s.loss;
        c->exact = s.best == answer_ids(n)[0];
        if (n->n_answer > 1) {
            rc = mote_session_fork(&c->session, a->asked[c->needle], err);
            a->feeds[n_feeds++] = (mote_feed){ c->session, answer_ids(n), n->n_answer - 1,
                                               MOTE_LOGITS_ALL };
        }
    }
    if (!rc && n_feeds)
        rc = mote_run(a->model, a->feeds, n_feeds, NULL, NULL, err);
    for (size_t i = 0; !rc && i < a->n; i++) {
        candidate *c = &a->list[i];
        const lab_needle *n = &a->h->needle[c->answer];
        size_t rows = 0, first = 0;
        const float *x = c->session ? mote_session_logits(c->session, &rows, &first) : NULL;
        mote_score scores[64];
        rows = rows < 64 ? rows : 64;
        if (x)
            mote_score_rows(a->model, x, NULL, rows, answer_ids(n) + 1, scores);
        for (size_t r = 0; r < rows; r++) {
            c->logp -= scores[r].loss;
            c->exact &= scores[r].best == answer_ids(n)[1 + r];
        }
    }
    return rc;
}

/* Does `text` (blanks in front aside) begin with the answer? */
static int begins(const char *text, const char *answer)
{
    text += strspn(text, " ");
    answer += strspn(answer, " ");
    return !strncmp(text, answer, strlen(answer));
}

/* The likeliest continuations of all questions, step by step together; two tokens more than the
 * longest answer, or to the context's end (which leaves room for a needle's own answer: a haystack
 * keeps it free). */
static int generate(asking *a, lab_answer *answers, mote_err *err)
{
    char text[LAB_MAX_NEEDLES][96] = { { 0 } };
    size_t used[LAB_MAX_NEEDLES] = { 0 }; /* zero bytes may be among them */
    int32_t next[LAB_MAX_NEEDLES];
    size_t steps = 2, n = a->h->n_needles;
    for (size_t i = 0; i < n; i++)
        steps = a->h->needle[i].n_answer + 2 > steps ? a->h->needle[i].n_answer + 2 : steps;
    for (size_t step = 0; step < steps; step++) {
        size_t n_feeds = 0;
        for (size_t i = 0; i < n; i++) {
            size_t held = a->h->n_ids + a->h->needle[i].n_question + step;
            if (mote_session_length(a->asked[i]) < held)
                continue; /* full: its last token was drawn */
            mote_score s;
            int32_t any = 0;
            mote_score_rows(a->model, mote_session_logits(a->asked[i], NULL, NULL), NULL, 1, &any,
                            &s);
            next[i] = s.best;
            size_t bytes = 0;
            const char *t = mote_token_bytes(a->model, s.best, &bytes);
            if (t && used[i] + bytes < sizeof text[i]) {
                memcpy(text[i] + used[i], t, bytes);
                used[i] += bytes;
            }
            if (held < a->limit)
                a->feeds[n_feeds++] = (mote_feed){ a->asked[i], &next[i], 1, MOTE_LOGITS_LAST };
        }
        int rc = n_feeds && step + 1 < steps
                     ? mote_run(a->model, a->feeds, n_feeds, NULL, NULL, err)
                     : MOTE_OK;
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < n; i++)
        answers[i].greedy = begins(text[i], a->h->needle[i].answer);
    return MOTE_OK;
}

static void score_answers(const asking *a, lab_answer *answers)
{
    for (size_t i = 0; i < a->h->n_needles; i++) {
        double sum = 0, best = -INFINITY;
        size_t others = 0;
        for (size_t k = 0; k < a->n; k++) {
            const candidate *c = &a->list[k];
            if (c->needle != i)
                continue;
            if (c->answer == i) {
                answers[i].logp = c->logp;
                answers[i].exact = c->exact;
            } else {
                sum += c->logp;
                best = fmax(best, c->logp);
                others++;
            }
        }
        answers[i].margin = others ? answers[i].logp - sum / (double)others : (double)NAN;
        answers[i].chosen = answers[i].logp > best;
    }
}

int lab_needle_ask(lab_answer *answers, mote_model *model, const mote_session_params *params,
                   const lab_haystack *h, const char *what, const lab_progress *progress,
                   mote_err *err)
{
    mote_model_info info;
    mote_model_get_info(model, &info);
    asking a = { .model = model,
                 .h = h,
                 .limit = params->max_context ? params->max_context : info.max_context };
    size_t most = h->n_needles * h->n_needles;
    a.list = calloc(most, sizeof *a.list);
    a.feeds = calloc(most, sizeof *a.feeds);
    mote_session *context = NULL;
    int rc = a.list && a.feeds
                 ? MOTE_OK
                 : mote__fail(err, MOTE_ENOMEM, "out of memory for %zu needles", h->n_needles);
    for (size_t i = 0; !rc && i < h->n_needles; i++)
        for (size_t k = 0; k < h->n_needles; k++)
            if (h->needle[i].kind == h->needle[k].kind)
                a.list[a.n++] = (candidate){ .needle = i, .answer = k };
    if (!rc)
        rc = mote_session_create(&context, model, params, err);
    mote_feed f = { context, h->ids, h->n_ids, MOTE_LOGITS_NONE };
    lab_shown s = { progress, what, NULL, 0 };
    if (!rc)
        rc = mote_run(model, &f, 1, lab_progress_step, &s, err);
    if (!rc)
        rc = ask_questions(&a, context, err);
    if (!rc)
        rc = score_candidates(&a, err);
    if (!rc) {
        score_answers(&a, answers);
        rc = generate(&a, answers, err);
    }
    for (size_t i = 0; i < a.n; i++)
        mote_session_destroy(a.list[i].session);
    for (size_t i = 0; i < h->n_needles; i++)
        mote_session_destroy(a.asked[i]);
    mote_session_destroy(context);
    free(a.feeds);
    free(a.list);
    return rc;
}

/* ---- tables ---- */

typedef struct tally {
    size_t exact, chosen, greedy;
    lab_sum logp, margin, logp_diff, margin_diff;
} tally;

static void count(tally *t, const lab_answer *x, const lab_answer *base)
{
    t->exact += (size_t)x->exact;
    t->greedy += (size_t)x->greedy;
    lab_sum_add(&t->logp, x->logp);
    lab_sum_add(&t->logp_diff, x->logp - base->logp);
    if (isfinite(x->margin)) { /* there was another fact to choose */
        t->chosen += (size_t)x->chosen;
        lab_sum_add(&t->margin, x->margin);
        lab_sum_add(&t->margin_diff, x->margin - base->margin);
    }
}

static json_t *tally_json(const tally *t, const char *kv, size_t ctx, int is_base)
{
    double n = (double)t->logp.n;
    json_t *o = json_pack("{s:s, s:I, s:I}", "kv", kv, "ctx", (json_int_t)ctx, "asked",
                          (json_int_t)t->logp.n);
    const struct {
        const char *name;
        double value;
    } reals[] = {
        { "recall", (double)t->exact / n },
        { "choice", (double)t->chosen / (double)t->margin.n },
        { "greedy", (double)t->greedy / n },
        { "logp", lab_sum_mean(&t->logp) },
        { "margin", lab_sum_mean(&t->margin) },
        { "margin_se", lab_sum_error(&t->margin) },
        { "logp_minus_base", is_base ? 0 : lab_sum_mean(&t->logp_diff) },
        { "logp_minus_base_se", is_base ? 0 : lab_sum_error(&t->logp_diff) },
        { "margin_minus_base", is_base ? 0 : lab_sum_mean(&t->margin_diff) },
        { "margin_minus_base_se", is_base ? 0 : lab_sum_error(&t->margin_diff) },
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        json_object_set_new(o, reals[i].name, lab_real(reals[i].value));
    return o;
}

static int run_context(json_t *rows, json_t *cells, mote_model *model, const lab_text *text,
                       const lab_needles *n, size_t ctx, const lab_progress *progress,
                       mote_err *err)
{
    tally *all = calloc(n->n_cases, sizeof *all),
          *by_depth = calloc(n->n_cases * n->n_depths, sizeof *by_depth);
    lab_answer *answers = calloc(n->n_cases * n->n_depths, sizeof *answers);
    int rc = all && by_depth && answers
                 ? MOTE_OK
                 : mote__fail(err, MOTE_ENOMEM, "out of memory for the needles' table");
    for (size_t s = 0; !rc && s < n->n_samples; s++) {
        lab_haystack h;
        rc = lab_haystack_make(&h, model, text, ctx, n->depths, n->n_depths, n->seed, s, err);
        for (size_t k = 0; !rc && k < n->n_cases; k++) {
            const char *kv = n->cases[k].kv ? n->cases[k].kv : "default";
            char what[128];
            snprintf(what, sizeof what, "needles, %.40s, ctx %zu, sample %zu of %zu", kv, ctx,
                     s + 1, n->n_samples);
            rc = lab_needle_ask(answers + k * n->n_depths, model, &n->cases[k], &h, what, progress,
                                err);
        }
        for (size_t k = 0; !rc && k < n->n_cases; k++)
            for (size_t d = 0; d < n->n_depths; d++) {
                const lab_answer *x = &answers[k * n->n_depths + d], *base = &answers[d];
                count(&all[k], x, base);
                count(&by_depth[k * n->n_depths + d], x, base);
            }
        lab_haystack_free(&h);
    }
    for (size_t k = 0; !rc && k < n->n_cases; k++) {
        const char *kv = n->cases[k].kv ? n->cases[k].kv : "default";
        json_array_append_new(rows, tally_json(&all[k], kv, ctx, k == 0));
        for (size_t d = 0; d < n->n_depths; d++) {
            json_t *cell = tally_json(&by_depth[k * n->n_depths + d], kv, ctx, k == 0);
            json_object_set_new(cell, "depth", lab_real(n->depths[d]));
            json_array_append_new(cells, cell);
        }
    }
    free(answers);
    free(by_depth);
    free(all);
    return rc;
}

int lab_needle_run(json_t **result, mote_model *model, const lab_text *text, const lab_needles *n,
                   const lab_progress *progress, mote_err *err)
{
    json_t *rows = json_array(), *cells = json_array(), *depths = json_array();
    int rc = MOTE_OK;
    for (size_t d = 0; d < n->n_depths; d++)
        json_array_append_new(depths, json_real(n->depths[d]));
    for (size_t c = 0; !rc && c < n->n_ctx; c++)
        rc = run_context(rows, cells, model, text, n, (size_t)n->ctx[c], progress, err);
    *result = json_pack("{s:I, s:I, s:o, s:o, s:o}", "seed", (json_int_t)n->seed, "samples",
                        (json_int_t)n->n_samples, "depths", depths, "rows", rows, "cells", cells);
    if (!*result)
        return rc ? rc : mote__fail(err, MOTE_ENOMEM, "out of memory");
    if (rc) {
        json_decref(*result);
        *result = NULL;
    }
    return rc;
}
