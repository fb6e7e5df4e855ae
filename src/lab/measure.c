#include "lab/measure.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "base/clock.h"

int lab_progress_at(const lab_progress *p, const char *what, double fraction)
{
    return p && p->step ? p->step(p->ctx, what, fraction) : 0;
}

int lab_progress_step(void *ctx, size_t done, size_t all)
{
    lab_shown *s = ctx;
    if (s->model) {
        mote_memory m;
        mote_model_get_memory(s->model, &m);
        s->scratch_peak = m.bytes[MOTE_MEM_SCRATCH] > s->scratch_peak ? m.bytes[MOTE_MEM_SCRATCH]
                                                                      : s->scratch_peak;
    }
    return lab_progress_at(s->progress, s->what, all ? (double)done / (double)all : 1);
}

/* One case on its way. */
typedef struct run {
    lab_case *c;
    mote_session *session;
    size_t held, piece; /* tokens the session holds; tokens of one step */
} run;

typedef struct window {
    mote_model *model;
    const int32_t *ids;
    size_t n_ids, chunk, vocab;
    run *base;
} window;

/* Rows of logits are the memory of a chunk: at most 16 MiB a session, at least 32 rows. */
static size_t chunk_rows(size_t vocab)
{
    size_t rows = ((size_t)1 << 22) / vocab;
    return rows > 256 ? 256 : rows < 32 ? 32 : rows;
}

static int step(const window *w, run *r, size_t n, mote_logits_rows rows, mote_err *err)
{
    mote_feed f = { r->session, w->ids + r->held, n, rows };
    double t0 = mote__clock_s();
    int rc = mote_run(w->model, &f, 1, NULL, NULL, err);
    r->c->seconds += mote__clock_s() - t0;
    r->c->n_run += n;
    r->held += n;
    mote_memory session, model;
    mote_session_get_memory(r->session, &session);
    mote_model_get_memory(w->model, &model);
    size_t bytes = session.total + model.bytes[MOTE_MEM_SCRATCH];
    if (bytes > r->c->peak_bytes)
        r->c->peak_bytes = bytes;
    return rc;
}

static int start(const window *w, run *r, mote_err *err)
{
    mote_model_info info;
    mote_model_get_info(w->model, &info);
    lab_case *c = r->c;
    c->seconds = 0;
    c->n_run = c->peak_bytes = 0;
    int rc = mote_session_create(&r->session, w->model, &c->params, err);
    if (!rc && c->fill)
        rc = c->fill(c->fill_ctx, r->session, w->ids, w->n_ids, err);
    if (rc)
        return rc;
    c->kv_bytes = mote_session_kv_bytes_per_token(r->session, NULL);
    r->held = mote_session_length(r->session);
    if (r->held + 1 >= w->n_ids)
        return mote__fail(err, MOTE_EINVAL,
                          "a window of %zu tokens, %zu of them stored, predicts nothing", w->n_ids,
                          r->held);
    /* fewer tokens than a window go on exactly in every prefill mode */
    r->piece = c->params.prefill == MOTE_PREFILL_FULL || info.window < 2 ? w->chunk
                                                                         : info.window - 1;
    c->first = r->held > c->cut ? r->held : c->cut;
    if (c->cut > r->held) {
        rc = step(w, r, c->cut - r->held, MOTE_LOGITS_NONE, err);
        if (!rc && c->hit)
            rc = mote_session_forget_windows(r->session, c->replay, err);
    }
    return rc;
}

/* Read on to position `end`; score what is new. */
static int advance(const window *w, run *r, size_t end, mote_err *err)
{
    while (r->held < end) {
        size_t at = r->held, n = end - at < r->piece ? end - at : r->piece, rows, first;
        int rc = step(w, r, n, MOTE_LOGITS_ALL, err);
        if (rc)
            return rc;
        const float *x = mote_session_logits(r->session, &rows, &first), *y = NULL;
        if (first > at || first + rows != at + n)
            return mote__fail(err, MOTE_EINVAL,
                              "the decoder left out positions before %zu: they cannot be scored",
                              first);
        if (w->base && w->base != r) {
            size_t base_rows, base_first;
            const float *b = mote_session_logits(w->base->session, &base_rows, &base_first);
            if (base_first <= at)
                y = b + (at - base_first) * w->vocab;
        }
        n = at + n < w->n_ids ? n : n - 1; /* the last row predicts nothing */
        mote_score_rows(w->model, x + (at - first) * w->vocab, y, n, w->ids + at + 1,
                        r->c->scores + at);
    }
    return MOTE_OK;
}

int lab_measure(mote_model *model, const int32_t *ids, size_t n_ids, lab_case *const *cases,
                size_t n_cases, const lab_case *base, const char *what,
                const lab_progress *progress, mote_err *err)
{
    mote_model_info info;
    mote_model_get_info(model, &info);
    window w = { model, ids, n_ids, chunk_rows(info.vocab), info.vocab, NULL };
    run *runs = calloc(n_cases ? n_cases : 1, sizeof *runs);
    if (!runs)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu cases", n_cases);
    int rc = MOTE_OK;
    size_t begin = SIZE_MAX;
    for (size_t i = 0; !rc && i < n_cases; i++) {
        runs[i] = (run){ .c = cases[i] };
        if (cases[i] == base)
            w.base = &runs[i];
        rc = start(&w, &runs[i], err);
        begin = runs[i].held < begin ? runs[i].held : begin;
        if (!rc && lab_progress_at(progress, what, 0))
            rc = mote__fail(err, MOTE_ECANCELED, "cancelled");
    }
    for (size_t at = begin; !rc && at < n_ids;) {
        size_t end = n_ids - at < w.chunk ? n_ids : at + w.chunk;
        if (w.base)
            rc = advance(&w, w.base, end, err);
        for (size_t i = 0; !rc && i < n_cases; i++)
            if (&runs[i] != w.base)
                rc = advance(&w, &runs[i], end, err);
        at = end;
        if (!rc && lab_progress_at(progress, what, (double)at / (double)n_ids))
            rc = mote__fail(err, MOTE_ECANCELED, "cancelled after %zu of %zu tokens", at, n_ids);
    }
    for (size_t i = 0; i < n_cases; i++)
        mote_session_destroy(runs[i].session);
    free(runs);
    return rc;
}
